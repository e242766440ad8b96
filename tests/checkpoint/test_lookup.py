"""Slots that are named are found in whatever runs they lie, and runs that cannot have them are not asked."""

from __future__ import annotations

import json
import sqlite3
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import CheckpointStore, Reader, filters, lookup, spans
from tests.checkpoint.store_helpers import FULL, quick_store, retained, run_of

SLOTS: list[Any] = [*range(12), 2.5, 1e30, "a", "b", "ä", b"", b"\xff"]

SOME_SLOTS = st.dictionaries(st.sampled_from(SLOTS), st.none() | st.integers(0, 9), max_size=8)
STEPS = st.one_of(
    SOME_SLOTS.map(lambda values: ("append", values)),
    st.integers(0, 100).map(lambda first: ("append", dict.fromkeys(range(first, first + 9), first))),
    SOME_SLOTS.map(lambda values: ("full", values)),
    st.integers(0, 3).map(lambda back: ("go back", back)),
    st.sampled_from([("compact", None), ("prune", None)]),
)


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few slots in few runs take every way that many take."""
    sizes = {"_FEW_RUNS": 1, "_READS": 1, "_MOST_OBJECTS": 2, "_MANY": 3, "_LENGTHS": (2, 4, 8)}
    for name, size in sizes.items():
        monkeypatch.setattr(lookup, name, size)
    monkeypatch.setattr(filters, "STORED_ROWS", range(3, 100))
    monkeypatch.setattr(spans, "LEAST_ROWS", 3)
    monkeypatch.setattr(filters, "STEP", 1)
    monkeypatch.setattr(filters, "_MAKE", 1_000)


def assert_finds(reader: Reader, state: dict[Any, Any], object_id: int = 1) -> None:
    wanted = [*SLOTS, *range(12, 110)]
    expected = {slot: value for slot, value in state.items() if value is not None}
    rows = reader.items_at(object_id, wanted)
    assert {row[0]: json.loads(row[1] or "") for row in rows} == expected
    assert len(rows) == len(expected)
    in_pairs = [row for pair in pairwise(wanted) for row in reader.items_at(object_id, pair)]
    assert {row[0]: json.loads(row[1] or "") for row in in_pairs} == expected
    one_by_one = {slot: item for slot in wanted if (item := reader.item(object_id, slot)) is not None}
    assert {slot: json.loads(item.value) for slot, item in one_by_one.items()} == expected
    assert all(item.slot == slot for slot, item in one_by_one.items())


def filtered(store: CheckpointStore) -> list[float]:
    """Return the runs whose filters are in memory."""
    return list(store._readers._run_spans.filters._flags)


@given(st.lists(STEPS, max_size=24))
def test_slots_are_found_after_any_history(steps: list[tuple[str, Any]]) -> None:
    with quick_store(":memory:", history=3) as store:
        states: dict[int, dict[Any, Any]] = {0: {}}
        for step, given_ in steps:
            number = store.next_number() - 1
            if step == "append":
                store.append(run_of(given_))
                states[number + 1] = states[number] | given_
            elif step == "full":
                store.append(run_of(given_, FULL))
                states[number + 1] = states[number] | given_
            elif step == "go back" and number - given_ in retained(store):
                store.truncate_after(number - given_)
            elif step == "compact":
                store.compact()
            elif step == "prune" and number:
                store.prune(keep=2)
            newest = store.next_number() - 1
            assert_finds(store.reader(), states[newest])
            for other in (2, 3):
                assert store.reader().item(other, 1) is None
            upkeep = store._upkeep
            remembered = [
                *store._readers._run_spans._found,
                *upkeep._growth._spans,
                *upkeep._recent._rows,
                *filtered(store),
            ]
            assert all(run in store._runs for run in remembered), "a run that is gone is remembered"


def test_what_is_known_of_a_run_is_forgotten_with_it() -> None:
    with quick_store(":memory:") as store:
        store.append(run_of({1: "a", 2: "a"}))
        for number in range(3):
            store.append(run_of({10 * number + 20: "b"}))
        before = store.reader(1)
        assert_finds(store.reader(), {1: "a", 2: "a", 20: "b", 30: "b", 40: "b"})
        store.truncate_after(1)
        for slot in (100, 3, 60):
            store.append(run_of({slot: "c"}))
        assert_finds(store.reader(), {1: "a", 2: "a", 100: "c", 3: "c", 60: "c"})
        assert_finds(before, {1: "a", 2: "a"})


def test_a_reader_that_somebody_holds_finds_what_a_repair_has_brought_back(tmp_path: Path) -> None:
    with quick_store(tmp_path / "state.db") as store:
        store.append(run_of({slot: slot for slot in range(40)}))
        store.append(store.reader().image())
        for number in range(4):
            store.append(run_of({100 + number: number}))
        with sqlite3.connect(tmp_path / "state.db") as other:
            other.execute("DELETE FROM state_item WHERE checkpoint = 2 AND slot >= 10")
        held = store.reader()
        assert [held.item(1, slot) for slot in (30, 5, 30, 30)] == [None, (5, "5", None), None, None]
        store.repair()
        assert held.item(1, 30) == store.reader().item(1, 30) == (30, "30", None)
        assert len(held.items_at(1, range(40))) == 40


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_MOST_OBJECTS", 5)
    with quick_store(":memory:") as store:
        for number in range(1, 30):
            store.append(run_of({slot: slot for slot in range(9)}, object_id=number))
        reader = store.reader()
        for number in range(1, 30):
            assert [reader.item(number, slot) for slot in (3, 3, 3)] == [(3, "3", None)] * 3
            assert len(reader.items_at(number, range(9))) == 9
            assert all(len(objects) <= 5 for objects in store._readers._run_spans._found.values())


def asked(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of the statements that the store runs from now on."""
    found: list[str] = []
    store.session.connection.set_trace_callback(found.append)
    monkeypatch.undo()
    return found


def test_where_keys_grow_with_time_one_run_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with quick_store(":memory:", history=100) as store:
        for start in range(0, 4_000, 100):
            store.append(run_of({slot: slot for slot in range(start, start + 100)}))
        reader, statements = store.reader(), asked(store, monkeypatch)
        for slot in range(0, 4_000, 50):
            assert reader.item(1, slot) == (slot, str(slot), None)
        asked_all = [statement for statement in statements if "run CROSS JOIN" in statement]
        assert len(asked_all) <= lookup._READS, "only the first ones ask all runs"
        assert reader.item(1, 4_000) is None
        assert reader.item(1, "text") is None
        rows = reader.items_at(1, range(0, 4_000, 50))
        assert sorted(row[0] for row in rows) == list(range(0, 4_000, 50))


def test_a_few_slots_are_looked_for_only_where_they_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    with quick_store(":memory:", history=100) as store:
        for start in range(0, 4_000, 100):
            store.append(run_of({slot: slot for slot in range(start, start + 100)}))
        store.reader().items_at(1, range(0, 4_000, 200))
        store.append(run_of({7: 8}))
        reader, statements = store.reader(), asked(store, monkeypatch)
        rows = reader.items_at(1, [7, 555, 3_999, 5_000])
        assert [row[:2] for row in rows] == [(7, "8"), (555, "555"), (3_999, "3999")]
        assert max(statement.count("), (") for statement in statements) < 2, (
            "of the object it is known which runs to ask"
        )


def test_what_the_newest_runs_have_is_not_looked_for_in_older_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    with quick_store(":memory:", history=100) as store:
        for number in range(40):
            store.append(run_of(dict.fromkeys(range(500), number)))
        reader, statements = store.reader(), asked(store, monkeypatch)
        rows = reader.items_at(1, range(500))
        assert {row[1] for row in rows} == {"39"}
        assert len(rows) == 500
        assert len([statement for statement in statements if "_item" in statement]) == 3, statements
