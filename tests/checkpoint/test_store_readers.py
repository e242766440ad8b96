"""Stores that only read: one snapshot, whole checkpoints, and nothing that waits for the writer."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import CheckpointError, CheckpointStore, Reader, StoreLockedError, UnknownCheckpointError
from checkpoint.write_ahead_log import LOG_BYTES
from tests.checkpoint.store_helpers import FULL, child, first_line, quick_store, run_of, values_in


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def test_a_read_only_store_shows_one_snapshot_until_it_is_refreshed(path: Path) -> None:
    with quick_store(path) as writer:
        writer.append(run_of({1: "a"}))
        with CheckpointStore(path, read_only=True) as store:
            before = store.reader()
            writer.append(run_of({1: "b"}))
            assert values_in(store.reader()) == {1: "a"}
            assert len(store.checkpoints()) == 1
            store.refresh()
            assert values_in(store.reader()) == {1: "b"}
            assert values_in(before) == {1: "a"}


def test_merging_in_the_writer_does_not_reach_into_a_snapshot(path: Path) -> None:
    with quick_store(path, history=1) as writer:
        writer.append(run_of({1: 0}))
        with CheckpointStore(path, read_only=True) as store:
            reader = store.reader()
            for number in range(1, 40):
                writer.append(run_of({1: number}))
            assert values_in(reader) == {1: 0}
            store.refresh()
            assert values_in(store.reader()) == {1: 39}
            with pytest.raises(UnknownCheckpointError, match="another reader"):
                values_in(reader)


def test_a_reader_is_not_fooled_by_a_checkpoint_with_the_number_of_one_that_was_dropped(path: Path) -> None:
    with quick_store(path) as writer:
        writer.append(run_of({1: "a"}))
        writer.append(run_of({1: "b"}))
        with CheckpointStore(path, read_only=True) as store:
            kept, dropped = store.reader(1), store.reader(2)
            writer.truncate_after(1)
            writer.append(run_of({1: "c"}))
            assert values_in(dropped) == {1: "b"}
            store.refresh()
            assert values_in(kept) == {1: "a"}
            with pytest.raises(UnknownCheckpointError):
                values_in(dropped)


def held_in(store: CheckpointStore, numbers: Iterable[int]) -> list[Reader]:
    """Append some checkpoints, and return a reader of each."""
    readers = []
    for number in numbers:
        store.append(run_of({1: number}))
        readers.append(store.reader())
    return readers


def test_a_merge_leaves_the_readers_of_older_checkpoints_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with quick_store(":memory:", history=1000) as store:
        older = held_in(store, range(1, 101))
        told, read_from = list[Reader](), Reader.read_from
        monkeypatch.setattr(Reader, "read_from", lambda self, runs: told.append(self) or read_from(self, runs))
        newer = held_in(store, range(101, 201))
        assert not {*older[:50]} & {*told}
        assert any(told.count(reader) > 1 for reader in newer), "once when it was made"
        for number, reader in enumerate([*older, *newer], 1):
            assert reader.runs == store.reader(number).runs
            assert values_in(reader) == {1: number}


def test_readers_read_what_was_merged_when_nobody_could_tell_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with quick_store(":memory:", history=1000) as store:
        readers = held_in(store, range(1, 30))
        for number in range(30, 40):
            monkeypatch.setattr(store._upkeep, "settle", Mock(side_effect=KeyboardInterrupt))
            with suppress(KeyboardInterrupt):  # After the commit, so the file is ahead of the memory.
                readers += held_in(store, [number])
        missed = [reader for number, reader in enumerate(readers, 1) if reader.runs != store.reader(number).runs]
        assert missed
        held_in(store, range(30))
        assert all(reader.runs == store.reader(reader.newest).runs for reader in readers)


def test_a_reader_keeps_its_store_open_and_so_others_from_writing(path: Path) -> None:
    with quick_store(path) as store:
        store.append(run_of({1: "a"}))
    reader = CheckpointStore(path).reader()
    gc.collect()
    with pytest.raises(StoreLockedError):
        CheckpointStore(path)
    assert values_in(reader) == {1: "a"}


def test_refreshing_a_writing_store_changes_nothing(path: Path) -> None:
    with quick_store(path) as store:
        store.append(run_of({1: "a"}))
        reader = store.reader()
        store.refresh()
        assert values_in(reader) == values_in(store.reader()) == {1: "a"}


def test_a_closed_store_is_read_where_nothing_can_be_written(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "left.db"
    with quick_store(path) as store:
        store.append(run_of({1: "a"}))
        shutil.copy(path, left)
        shutil.copy(f"{path}-wal", f"{left}-wal")
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(os, "access", lambda *_: False)
    with CheckpointStore(path, read_only=True) as store:
        assert (values_in(store.reader()), store.verify()) == ({1: "a"}, 1)
        store.refresh()
        store.fork(tmp_path / "fork.db")
        assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "fork.db"])
    with CheckpointStore(left, read_only=True) as store:  # what its log holds is not passed over
        assert values_in(store.reader()) == {1: "a"}


def test_a_read_only_store_refuses_to_write(path: Path) -> None:
    with quick_store(path) as writer:
        writer.append(run_of({1: "a"}))
    with CheckpointStore(path, read_only=True) as store:
        for write in (lambda: store.append(run_of({})), store.writer, lambda: store.truncate_after(0)):
            with pytest.raises(CheckpointError, match="read_only=True"):
                write()
        assert store.verify() == 1


WRITER = """
import sys
from tests.checkpoint.store_helpers import quick_store, run_of
with quick_store(sys.argv[1], history=2) as store:
    for number in range(1, 1_000_000):
        store.append(run_of({slot: number for slot in range(20)}))
        if number == 1:
            print("ready")
"""


def test_a_reader_beside_a_writing_process_sees_whole_checkpoints_only(path: Path) -> None:
    with child(WRITER, path) as process:
        assert first_line(process) == "ready"
        seen = []
        with CheckpointStore(path, read_only=True) as store:
            for _ in range(100):
                store.refresh()
                values = values_in(store.reader())
                assert values == dict.fromkeys(range(20), store.checkpoints()[-1].number)
                seen.append(values[0])
    assert seen == sorted(seen)
    assert seen[-1] > seen[0]


AT_A_WORD = """
import sys
from tests.checkpoint.store_helpers import quick_store, run_of
with quick_store(sys.argv[1], history=1) as store:
    for line in sys.stdin:
        for number in range(20):
            store.append(run_of(dict.fromkeys(range(3000), number)))
        print("done")
"""


def test_opening_a_store_once_more_takes_nothing_from_whoever_reads_it_in_this_process(path: Path) -> None:
    """A file that is opened and closed by anybody but SQLite ends the locks that keep a snapshot from being written."""
    with child(AT_A_WORD, path) as process:
        assert process.stdin is not None
        process.stdin.write("write\n")
        process.stdin.flush()
        assert first_line(process) == "done"
        with CheckpointStore(path, read_only=True) as store:
            with CheckpointStore(path, read_only=True) as other:
                assert other.checkpoints() == store.checkpoints()
            with pytest.raises(StoreLockedError):
                CheckpointStore(path)
            process.stdin.write("write\n")
            process.stdin.flush()
            assert first_line(process) == "done"
            assert values_in(store.reader()) == dict.fromkeys(range(3000), 19)


def log_of(path: Path) -> int:
    log = path.with_name(path.name + "-wal")
    return log.stat().st_size if log.exists() else 0


def test_the_log_is_copied_before_it_grows_long_and_is_gone_after_close(path: Path) -> None:
    with quick_store(path, history=60) as store:
        for number in range(60):
            store.append(run_of(dict.fromkeys(range(number * 1000, number * 1000 + 300), "x" * 700)))
            assert log_of(path) < 3 * LOG_BYTES
        assert path.stat().st_size > 3 * LOG_BYTES
    assert log_of(path) == 0
    with quick_store(path) as store:
        assert len(values_in(store.reader())) == 60 * 300


def test_a_snapshot_that_is_held_lets_the_log_grow_and_nothing_else(path: Path) -> None:
    with quick_store(path) as store:
        store.append(run_of({1: "a"}))
        with CheckpointStore(path, read_only=True) as reader:
            for _ in range(40):
                store.append(run_of(dict.fromkeys(range(300), "x" * 1000)))
            assert log_of(path) > 2 * LOG_BYTES
            assert values_in(reader.reader()) == {1: "a"}
        for _ in range(20):
            store.append(run_of(dict.fromkeys(range(300), "y" * 1000)))
        # What the last checkpoint has merged may come on top.
        assert log_of(path) < 3 * LOG_BYTES
    assert log_of(path) == 0


def test_whoever_opens_a_store_for_each_look_lets_the_log_start_over(path: Path) -> None:
    with quick_store(path) as store:
        for number in range(15):  # Few, as each look goes through all of them, and large.
            store.append(run_of(dict.fromkeys(range(300), f"{number:04000}")))
            with CheckpointStore(path, read_only=True) as reader:
                assert values_in(reader.reader())[299] == f"{number:04000}"
            assert log_of(path) < 3 * LOG_BYTES
    assert path.stat().st_size > 4 * LOG_BYTES


def test_closing_does_not_wait_for_a_reader_or_an_iteration(path: Path) -> None:
    store = quick_store(path)
    store.append(run_of(dict.fromkeys(range(3000), "x"), FULL))
    with CheckpointStore(path, read_only=True) as reader:
        rows = store.reader().items_by_rank(1)
        next(rows)
        store.close()
        with pytest.raises(CheckpointError, match="closed"):
            list(rows)
        assert len(values_in(reader.reader())) == 3000


NUMBERS = st.one_of(st.integers(0, 60), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))
SLOTS = st.one_of(NUMBERS, st.text("ab\xe9\U0001f600", max_size=3), st.binary(max_size=3).map(b"\x13".__add__))
CHANGES = st.dictionaries(SLOTS, st.none() | st.integers(), max_size=30)


@given(changes=st.lists(CHANGES, min_size=1, max_size=6), others=st.lists(SLOTS, max_size=30), start=st.integers(0, 40))
def test_slots_that_are_named_together_are_read_as_one_by_one(
    changes: list[Any], others: list[Any], start: int
) -> None:
    with quick_store(":memory:") as store:
        for values in changes:
            store.append(run_of(values))
        reader = store.reader()
        for slots in (others, [*range(start, start + 20)], [*others, *values_in(reader)]):
            one_by_one = {slot: item for slot in slots if (item := reader.item(1, slot)) is not None}
            assert {row[0]: row for row in reader.items_at(1, slots)} == one_by_one
