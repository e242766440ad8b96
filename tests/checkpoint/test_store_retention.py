"""Retention: what is compacted or pruned away is gone, and all that is kept or held shows what it showed."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint import CheckpointError, CheckpointStore, CorruptStoreError, UnknownCheckpointError
from checkpoint.session import Session
from checkpoint.tiers import RunMap
from tests.checkpoint.store_helpers import (
    FULL,
    Fault,
    crash_points,
    image_of,
    quick_store,
    retained,
    run_of,
    values_in,
)
from tests.checkpoint.world import World, store_of


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from([1, 4, 100]))
def test_what_is_kept_or_held_shows_what_it_showed(rng: random.Random, history: int) -> None:
    world = World(rng)
    store = store_of([world.run() for _ in range(rng.randint(1, 30))], history)
    for _ in range(rng.randint(1, 4)):
        held = [store.reader(number) for number in rng.sample(retained(store), min(2, len(retained(store))))]
        images = {number: image_of(store.reader(number)) for number in retained(store)}
        keep = rng.choice([None, 1, 2, 7])
        if keep is None:
            store.compact()
        else:
            store.prune(keep=keep)
        oldest = store.next_number() - (keep or 1)
        kept = {number for number in images if number >= oldest} | {reader.newest for reader in held}
        assert retained(store) == sorted(kept)
        for number in retained(store):
            assert image_of(store.reader(number)) == images[number]
        assert [image_of(reader) for reader in held] == [images[reader.newest] for reader in held]
        assert store.verify() == len(retained(store))
        store.append(world.run())


def make(path: Path | str, count: int, **options: Any) -> CheckpointStore:
    store = quick_store(path, **options)
    for number in range(1, count + 1):
        store.append(run_of({number % 50: number, "filler": "x" * 1000}), epoch=10 * number)
    return store


def test_compacting_leaves_one_run_and_gives_the_space_back(tmp_path: Path) -> None:
    path, told = tmp_path / "state.db", list[tuple[int, int]]()
    with make(path, 300, history=1000) as store:
        before, expected = path.stat().st_size, image_of(store.reader())
        store.compact(progress=lambda done, total: told.append((done, total)))
        assert path.stat().st_size < before / 6
        assert (retained(store), image_of(store.reader())) == ([300], expected)
        assert len(store.checkpoints()) == 300
        with pytest.raises(
            UnknownCheckpointError, match=r"the nearest that can be read: checkpoint 300 \(epoch 3000\)"
        ):
            store.reader(299)
    assert told[0][0] == 0
    assert told[-1] == (told[0][1], told[0][1])
    assert told == sorted(told)


def test_what_was_merged_is_refused_with_what_can_be_read_before_and_after_it() -> None:
    with make(":memory:", 30, history=1000) as store:
        held = store.reader(3)
        store.compact()
        with pytest.raises(
            UnknownCheckpointError, match=r"read: checkpoint 3 \(epoch 30\), checkpoint 30 \(epoch 300\)"
        ):
            store.reader(epoch=100)
        assert held.newest == 3


def test_a_long_compaction_can_be_given_up_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkpoint.store._STEP_ROWS", 2_000)

    def impatient(done: int, total: int) -> None:
        if done > total / 3:
            raise KeyboardInterrupt

    with quick_store(tmp_path / "state.db", history=1000) as store:
        for number in range(20):
            store.append(run_of(dict.fromkeys(range(number * 10, number * 10 + 3000), number)))
        expected = image_of(store.reader())
        with pytest.raises(KeyboardInterrupt):
            store.compact(impatient)
        assert len(retained(store)) == 20
        copied = store.database.execute("SELECT sum(rows) FROM portion WHERE run IN (SELECT run FROM run)").fetchone()
        assert copied[0] > 1000
        assert store.verify() == 20
        assert image_of(store.reader()) == expected
        store.append(run_of({}))
    with quick_store(tmp_path / "state.db", history=1000) as store:
        store.compact()
        assert image_of(store.reader()) == expected
        assert store.verify() == 1
        assert store.database["state_item"].count == len(expected[2])


def test_a_long_compaction_keeps_its_log_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkpoint.store._STEP_ROWS", 2_000)
    for module in ("session", "write_ahead_log"):
        monkeypatch.setattr(f"checkpoint.{module}.LOG_BYTES", 1 << 18)
    path, log, sizes = tmp_path / "state.db", tmp_path / "state.db-wal", list[int]()
    with quick_store(path, history=1000) as store:
        for number in range(40):
            store.append(run_of(dict.fromkeys(range(number * 1000, number * 1000 + 2000), f"{number}" * 20)))
        store.session.copy_log()
        whole, expected = path.stat().st_size, image_of(store.reader())
        store.compact(lambda done, total: sizes.append(log.stat().st_size))
        assert len(sizes) > 10
        assert max(sizes) < whole / 5
        assert image_of(store.reader()) == expected


class CrampedConnection(sqlite3.Connection):
    """A connection to a file on a disk that has no room to rewrite it."""

    free: ClassVar[bool] = False

    def execute(self, *args: Any) -> sqlite3.Cursor:
        if args[0] == "VACUUM" and not CrampedConnection.free:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return super().execute(*args)


@pytest.mark.parametrize("drop", [CheckpointStore.compact, partial(CheckpointStore.prune, keep=1)])
def test_space_that_a_full_disk_keeps_is_given_back_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drop: Callable[[CheckpointStore], object]
) -> None:
    monkeypatch.setattr(Session, "factory", CrampedConnection)
    path = tmp_path / "state.db"
    with make(path, 300, history=1000) as store:
        expected = image_of(store.reader())
        with pytest.raises(
            CheckpointError,
            match=r"merged or dropped stays so, .* takes about [\d,]+ bytes beside it, .* free some and try again",
        ) as refused:
            drop(store)
        assert "nothing was written" not in str(refused.value)
        assert (retained(store), (tmp_path / "state.db-wal").stat().st_size) == ([300], 0)
        before = path.stat().st_size
        monkeypatch.setattr(CrampedConnection, "free", True)
        drop(store)
        assert path.stat().st_size < before / 6
        assert (retained(store), image_of(store.reader())) == ([300], expected)


def test_pruning_keeps_by_count_and_by_age() -> None:
    store = make(":memory:", 20, history=100)
    connection = store.session.connection
    for number in range(1, 21):
        connection.execute("UPDATE checkpoint SET time = ? WHERE number = ?", (f"2020-01-{number:02}T00:00", number))
    assert store.prune(keep=15, older_than=timedelta(days=1)) == 5
    assert [record.number for record in store.checkpoints()] == retained(store) == list(range(6, 21))
    connection.execute("UPDATE checkpoint SET time = '2999-01-01' WHERE number >= 12")
    assert store.prune(older_than=timedelta(days=1)) == 6
    assert store.prune(keep=5, older_than=timedelta(days=1)) == 0
    assert store.prune(keep=3) == 6
    assert retained(store) == [18, 19, 20]
    assert store.prune(keep=50) == 0
    connection.execute("UPDATE checkpoint SET time = '2020-01-01'")
    assert store.prune(older_than=timedelta(0)) == 2
    assert values_in(store.reader()) == {**{n: n for n in range(1, 21)}, "filler": "x" * 1000}
    assert store.append(run_of({})).number == 21
    with pytest.raises(UnknownCheckpointError, match="cannot be dropped"):
        store.truncate_after(0)


@pytest.mark.parametrize("off", [0, -365, 365])
def test_a_clock_that_is_wrong_for_a_checkpoint_takes_nothing_young_and_keeps_nothing_old(
    off: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Clock:
            return cls(2026, 1, 1, tzinfo=tz) + timedelta(day + (off if day in (64, 350) else 0))

    monkeypatch.setattr("checkpoint.record.datetime", Clock)
    with quick_store(":memory:") as store:
        store.configure(history=1, keep_for=timedelta(days=100))
        for day in range(1, 401):
            store.append(run_of({day % 5: day}))
            assert set(range(max(1, day - 99), day + 1)) <= set(retained(store))
        assert retained(store)[0] > 270
        store.prune(older_than=timedelta(days=10))
        assert retained(store) == list(range(390, 401))


def test_a_prune_without_arguments_drops_nothing_that_the_settings_keep() -> None:
    with quick_store(":memory:") as store:
        store.configure(history=4, keep_for=timedelta(days=7))
        for number in range(60):
            store.append(run_of({1: number}))
        assert (store.prune(), store.prune(keep=50)) == (0, 10)
        store.configure(keep_for=timedelta(0))
        assert store.prune() == 46


def test_an_age_may_be_longer_than_there_are_dates(tmp_path: Path) -> None:
    with make(tmp_path / "state.db", 5) as store:
        store.configure(history=1, keep_for=timedelta.max)
    store = quick_store(tmp_path / "state.db")
    for number in range(40):
        store.append(run_of({number: number}))
    assert store.database["run"].count > 0  # runs are merged as ever
    assert store.prune(older_than=timedelta.max) == 0
    assert len(retained(store)) == 45
    store.close()


def test_pruning_without_arguments_keeps_the_history(tmp_path: Path) -> None:
    with make(tmp_path / "state.db", 200, history=5) as store:
        store.prune()
        assert [record.number for record in store.checkpoints()] == retained(store) == list(range(196, 201))
    with quick_store(tmp_path / "state.db", history=5) as store:
        assert len(values_in(store.reader(epoch=1970))) == 51
    assert quick_store(":memory:").prune() == 0


def test_the_full_checkpoint_that_a_lineage_begins_with_is_remembered() -> None:
    store = quick_store(":memory:", history=100)
    store.append(run_of({1: "a", 2: "a"}))
    held = store.reader()
    store.apply(run_of({1: "b"}, FULL))
    store.append(run_of({3: "c"}))
    for _ in range(2):
        store.prune(keep=1)
        store.reopen()
        assert values_in(store.reader()) == {1: "b", 3: "c"}
        assert values_in(held) == {1: "a", 2: "a"}
    del held
    store.prune(keep=1)
    assert [record.number for record in store.checkpoints() if record.run_slots is not None] == [3]


@pytest.mark.parametrize("arguments", [{"keep": 0}, {"older_than": timedelta(-1)}], ids=str)
def test_a_retention_that_keeps_nothing_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="keep at least 1"):
        quick_store(":memory:").prune(**arguments)


@pytest.mark.parametrize("method", ["compact", "prune"])
def test_a_file_in_use_by_an_iteration_keeps_its_size_until_the_next_time(tmp_path: Path, method: str) -> None:
    with make(tmp_path / "state.db", 20, history=1000) as store:
        for epoch in range(1000, 1020):
            store.append(run_of(dict.fromkeys(range(5000), epoch)), epoch=epoch)
        reduce = store.compact if method == "compact" else lambda: store.prune(keep=1)
        expected = image_of(store.reader())
        items = store.reader().items_by_rank(1)
        found = {next(items).slot}
        assert reduce() == (None if method == "compact" else 39)
        assert (retained(store), image_of(store.reader()), store.verify()) == ([40], expected, 1)
        assert store.session.unused() > 0.5
        found |= {item.slot for item in items}
        assert found == {*range(5000), "filler"}
        reduce()
        assert store.session.unused() == 0


STEP = 3
"""One statement in so many fails in turn, unless all are asked for."""


@pytest.mark.parametrize("method", ["compact", "prune"])
def test_retention_survives_every_crash_point(
    tmp_path: Path,
    inject: Callable[[Fault | None], None],
    some_fault: dict[str, Any],
    method: str,
    at_scale: bool,
    apart: int,
) -> None:
    begin, path = tmp_path / "begin.db", tmp_path / "state.db"
    with quick_store(begin, history=100) as store:
        for number in range(1, 9):
            store.append(run_of({number % 3: number}, FULL if number == 3 else "differential"))
        expected = image_of(store.reader())
    points = 0

    def work() -> None:
        shutil.copy(begin, path)
        with CheckpointStore(path, history=100) as store:
            held = store.reader(5)
            store.compact() if method == "compact" else store.prune(keep=2)
            assert held.newest == 5

    for _ in crash_points(inject, some_fault, work, step=1 if at_scale else STEP * apart):
        with quick_store(path, history=100) as store:
            assert image_of(store.reader()) == expected
            assert {5, 8} <= set(retained(store))
            assert store.verify() == len(retained(store))
            store.append(run_of({1: "on"}))
            store.compact()
            assert values_in(store.reader())[1] == "on"
        for file in tmp_path.glob("state.db*"):
            file.unlink()
        points += 1
    print(f"{points} crash points tried: {method} {some_fault}")
    assert apart * points > 20


def test_a_checkpoint_goes_through_no_list_of_all_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    store, said = quick_store(":memory:", history=100), list[str]()
    monkeypatch.setattr(RunMap, "__iter__", Mock(side_effect=AssertionError("all runs are gone through")))
    store.session.connection.set_trace_callback(said.append)
    for number in range(250):
        store.append(run_of({number % 7: number}))
    for number in range(250):
        store.append(run_of({number % 7: number}, FULL))
    assert len(retained(store)) in range(100, 130)
    assert max(len(one) for one in said if one.startswith("DELETE FROM checkpoint")) < 150


def test_a_merged_run_gets_no_number_that_the_file_has_beyond_all_that_is_known() -> None:
    store = quick_store(":memory:", history=100)
    store.append(run_of({1: 0}))
    damaged = [(24 + step / 1024, 1, 24, "merging") for step in (1, 2)]
    store.database.conn.executemany("INSERT INTO run (run, first, last, state) VALUES (?, ?, ?, ?)", damaged)
    for number in range(2, 60):
        store.append(run_of({1: number}))
    assert store.reader(24).runs == (24 + 3 / 1024,)


def test_rows_that_a_trigger_keeps_from_being_deleted_end_a_pruning(tmp_path: Path) -> None:
    """It goes on until nothing is left to delete, which would be never."""
    with quick_store(tmp_path / "state.db", history=1_000) as store:
        for number in range(3):
            store.append(run_of({slot: f"{number} {slot}" * 500 for slot in range(600)}, FULL))
        store.database.conn.execute("CREATE TRIGGER t BEFORE DELETE ON state_item BEGIN SELECT RAISE(IGNORE); END")
        with pytest.raises(CorruptStoreError, match=r"state\.db: the table state_item keeps rows"):
            store.prune(keep=1)
        store.database.conn.execute("DROP TRIGGER t")
        store.prune(keep=1)
        assert store.verify() == 1
