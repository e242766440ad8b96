"""Rows that a disk takes long to give are read ahead, several at once, and found as ever."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import CheckpointStore, lookup, warming
from tests.checkpoint.store_helpers import quick_store, run_of

SLOTS: list[Any] = [*range(40), 2.5, "a", "ä", b"", b"\xff"]
HISTORIES = st.lists(st.dictionaries(st.sampled_from(SLOTS), st.none() | st.integers(0, 9), min_size=1), max_size=8)


class Warmed:
    """What was read ahead, which goes on to be."""

    def __init__(self) -> None:
        self.queries: list[warming.Query] = []
        self._warm = warming.warm

    def __call__(self, path: str, queries: Sequence[warming.Query]) -> None:
        self.queries += queries
        self._warm(path, queries)

    def slots(self) -> list[Any]:
        """Return the slots that were asked for, each as often as it was."""
        return [slot for _, parameters in self.queries for slot in parameters[2:]]


@pytest.fixture(autouse=True)
def warmed(monkeypatch: pytest.MonkeyPatch) -> Warmed:
    """Take every disk for slow, and note what is read ahead."""
    found = Warmed()
    monkeypatch.setattr(warming, "LEAST_SLOTS", 5)
    monkeypatch.setattr(warming, "SLOW_SECONDS", -1.0)
    monkeypatch.setattr(warming, "warm", found)
    monkeypatch.setattr(lookup, "_TOGETHER", 3)
    return found


def found_in(store: CheckpointStore, wanted: Sequence[Any]) -> dict[Any, Any]:
    return {row[0]: json.loads(row[1]) for row in store.reader().items_at(1, wanted) if row[1] is not None}


@given(HISTORIES)
def test_slots_are_found_after_any_history(tmp_path_factory: pytest.TempPathFactory, history: list[Any]) -> None:
    expected: dict[Any, Any] = {}
    with quick_store(tmp_path_factory.mktemp("store") / "state.db") as store:
        for values in history:
            store.append(run_of(values))
            expected |= values
        assert found_in(store, SLOTS) == {slot: value for slot, value in expected.items() if value is not None}


def test_each_slot_is_read_ahead_once_where_the_oldest_run_may_have_it(tmp_path: Path, warmed: Warmed) -> None:
    with quick_store(tmp_path / "state.db") as store:
        for start in (0, 10, 5):
            store.append(run_of(dict.fromkeys(range(start, start + 10), start)))
        assert len(found_in(store, [*range(15), 100, "text"])) == 15
    assert warmed.slots() == list(range(15)), "what lies in no run is asked of none"
    runs = [parameters[0] for _, parameters in warmed.queries]
    assert runs == [1, 1, 1, 1, 2, 2]


def test_nothing_is_read_ahead_where_few_are_wanted_or_the_disk_is_fast(
    tmp_path: Path, warmed: Warmed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quick_store(tmp_path / "state.db") as store, quick_store(":memory:") as in_memory:
        for one in (store, in_memory):
            one.append(run_of(dict.fromkeys(range(100), 0)))
        assert len(found_in(store, range(4))) == 4
        assert len(found_in(in_memory, range(100))) == 100
        monkeypatch.setattr(warming, "SLOW_SECONDS", 60.0)
        assert len(found_in(store, range(100))) == 100
    assert warmed.queries == []


def test_what_cannot_be_read_ahead_is_left_alone(tmp_path: Path) -> None:
    warming.warm(str(tmp_path / "nowhere" / "state.db"), [("SELECT 1", ())])
    with quick_store(tmp_path / "state.db") as store:
        store.append(run_of({1: "one"}))
        warming.warm(store.path, [("SELECT nothing FROM nowhere", ()), ("SELECT 1", ())] * 9)
        assert not (tmp_path / "nowhere").exists()
        assert found_in(store, [1]) == {1: "one"}


def test_where_memory_runs_out_reading_ahead_ends_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Mock()
    monkeypatch.setattr(threading, "excepthook", told)
    monkeypatch.setattr(warming, "closing", Mock(side_effect=MemoryError))
    with quick_store(tmp_path / "state.db") as store:
        store.append(run_of(dict.fromkeys(range(100), 0)))
        assert len(found_in(store, range(100))) == 100
    assert not told.called


def test_where_there_are_no_more_threads_all_is_found_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = Mock(side_effect=RuntimeError("can't start new thread"))
    monkeypatch.setattr(Thread, "start", refusal)
    with quick_store(tmp_path / "state.db") as store:
        store.append(run_of(dict.fromkeys(range(100), 0)))
        assert len(found_in(store, range(100))) == 100
    assert refusal.call_count == 1


def test_a_transaction_of_the_writer_and_readers_ahead_are_not_in_each_others_way(tmp_path: Path) -> None:
    with quick_store(tmp_path / "state.db") as store:
        store.append(run_of(dict.fromkeys(range(50), "old")))
        with store.session.transaction() as connection:
            connection.execute("UPDATE state_item SET value = '\"new\"'")
            assert set(found_in(store, range(50)).values()) == {"new"}
