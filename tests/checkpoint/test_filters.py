"""Filters never hide a slot, spare most searches in vain, and are found out where they are damaged."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import CheckpointStore, CorruptStoreError, filters
from checkpoint.filters import FilterMaker, Hashes, RunFilter, Sieve, hash_of, hashes_of, passing
from tests.checkpoint.store_helpers import quick_store, run_of, values_in

SLOTS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(), st.binary(), st.text("\ud800\udfffa")
)


def made_by(maker: FilterMaker) -> RunFilter:
    """Return the filter."""
    packed = maker.packed()
    return (1, packed, 8 * len(packed) - 1)


@given(st.integers(1, 2**40), st.lists(SLOTS))
def test_the_hashes_of_many_slots_are_those_of_each(object_id: int, slots: list[Any]) -> None:
    for kind in (int, float, str, bytes, object):
        wanted = [slot for slot in slots if isinstance(slot, kind)]
        assert list(hashes_of(object_id, wanted)) == [hash_of(object_id, slot) for slot in wanted]
    whole = [float(slot) for slot in slots if isinstance(slot, int) and float(slot) == slot]
    assert [hash_of(object_id, slot) for slot in whole] == [hash_of(object_id, int(slot)) for slot in whole]


def test_hashes_are_the_same_in_every_version() -> None:
    assert [hash_of(7, slot) for slot in (1, 1.0, -1, 0.5, "a", b"a")] == [
        *(1_308_602_381, 1_308_602_381, 3_308_499_174, 1_766_682_178, 4_032_003_431, 4_032_003_431)
    ]


@given(st.dictionaries(st.integers(1, 5), st.sets(SLOTS)), st.integers(0, 40))
def test_a_filter_knows_every_slot_of_its_run(objects: dict[int, set[Any]], room: int) -> None:
    maker = FilterMaker(room)
    maker.add([(object_id, slot) for object_id in sorted(objects) for slot in objects[object_id]])
    found = made_by(maker)
    for object_id, slots in objects.items():
        assert all(passing([found], hash_of(object_id, slot)) == [1] for slot in slots)
        hashes = Hashes(hashes_of(object_id, list(slots)))
        assert hashes.passing(found, 0, len(slots)) == list(range(len(slots)))


@given(st.lists(st.tuples(st.sets(SLOTS), st.sampled_from([0, 0, 0, 100, 1000])), max_size=20), SLOTS, st.data())
def test_filters_side_by_side_tell_what_they_tell_one_by_one(
    runs: list[tuple[set[Any], int]], slot: Any, data: st.DataObject
) -> None:
    filters: list[RunFilter] = []
    for run, (slots, room) in enumerate(runs):
        maker = FilterMaker(room)
        maker.add([(1, one) for one in slots])
        maker._rows += room  # So that the filters are of several sizes.
        filters.insert(0, (run, *made_by(maker)[1:]) if slots else (run, b"\xff", 7))
    wanted = [slot, *(one for slots, _ in runs for one in slots)]
    part = Sieve(data.draw(st.permutations(filters[len(filters) // 3 :])))
    for sieve in (Sieve(filters), Sieve(data.draw(st.permutations(filters)), part.blocks)):
        for one in wanted:
            assert sieve.passing(hash_of(1, one)) == passing(filters, hash_of(1, one))
    hashes = Hashes(hash_of(1, one) for one in wanted)
    for one_filter in filters:
        expected = [place for place, one in enumerate(wanted) if passing([one_filter], hash_of(1, one))]
        assert hashes.passing(one_filter, 0, len(wanted)) == expected
        assert hashes.passing(one_filter, 1, len(wanted) - 1) == [p for p in expected if 1 <= p < len(wanted) - 1]


ROWS = 2**14
"""So many rows have the fewest flags a row."""

LISTS = [(number, slot) for number in range(ROWS // 16) for slot in range(16)]

NEIGHBOURS: dict[str, tuple[list[tuple[int, Any]], list[tuple[int, Any]]]] = {
    "numbers": ([(1, slot) for slot in range(ROWS)], [(1, slot) for slot in range(ROWS, 2 * ROWS)]),
    "far apart": ([(1, slot << 20) for slot in range(ROWS)], [(1, slot << 20) for slot in range(ROWS, 2 * ROWS)]),
    "texts": ([(1, f"user {slot}") for slot in range(ROWS)], [(1, f"user {slot}x") for slot in range(ROWS)]),
    "longer lists": (LISTS, [(number, slot + 16) for number, slot in LISTS]),
    "other lists": (LISTS, [(number + ROWS // 16, slot) for number, slot in LISTS]),
}


@pytest.mark.parametrize("case", NEIGHBOURS)
def test_a_filter_tells_most_slots_of_others(case: str) -> None:
    mine, others = NEIGHBOURS[case]
    maker, roomy = FilterMaker(ROWS), FilterMaker(20 * ROWS)
    for one in (maker, roomy):
        one.add(mine)
    assert roomy.packed() == maker.packed(), "room for rows that did not come is not kept"
    found = made_by(maker)
    in_vain = sum(bool(passing([found], hash_of(*other))) for other in others)
    assert in_vain < ROWS / 48


def history(store: CheckpointStore, checkpoints: int, rows: int) -> dict[int, int]:
    """Let each of some checkpoints change some of many slots, and return what all hold."""
    state = dict.fromkeys(range(20 * rows), 0)
    store.append(run_of(state))
    for number in range(1, checkpoints):
        edits = dict.fromkeys(random.Random(number).sample(range(20 * rows), rows), number)
        store.append(run_of(edits))
        state |= edits
    return state


def searched_in(store: CheckpointStore, slots: Iterable[int]) -> int:
    """Look slots up one by one, and return in how many runs they were looked for."""
    found: list[str] = []
    store.session.connection.set_trace_callback(found.append)
    reader = store.reader()
    for slot in slots:
        reader.item(1, slot)
    store.session.connection.set_trace_callback(None)
    return sum(max(1, one.count("(") - 1) for one in found if "_item" in one)


def test_runs_stored_with_a_filter_are_searched_for_what_they_have(tmp_path: Path) -> None:
    with quick_store(tmp_path / "state.db", history=4) as store:
        state = history(store, 12, min(filters.STORED_ROWS))
    with CheckpointStore(tmp_path / "state.db") as store:
        assert [run for (run,) in store.database.execute("SELECT run FROM filter")] == list(range(2, 13))
        reader, slots = store.reader(), random.Random(1).choices(range(len(state)), k=500)
        assert searched_in(store, slots[:7]) == 7 * 12, "they are not worth loading yet"
        assert searched_in(store, slots) < 3 * 500
        assert [reader.item(1, slot) for slot in slots] == [(slot, str(state[slot]), None) for slot in slots]
        assert sorted(reader.items_at(1, range(len(state)))) == [(n, str(value), None) for n, value in state.items()]
        assert reader.item(1, -1) is None


def test_filters_of_small_runs_are_made_once_that_costs_no_more_than_the_searches() -> None:
    with quick_store(":memory:", history=100) as store:
        state = history(store, 12, 400)
        assert not store.database["filter"].count
        slots = random.Random(1).choices(range(len(state)), k=1_000)
        searched_in(store, slots[:30])
        assert not store._readers._run_spans.filters._flags
        searched_in(store, slots[:100])
        assert searched_in(store, slots) < 3 * 1_000
        assert values_in(store.reader()) == state
        store.append(run_of({1: "new", 31: None}))
        assert store.reader().item(1, 1) == (1, '"new"', None)
        assert store.reader().item(1, 31) is None


def test_the_filters_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "MOST_BYTES", 1_000)
    with quick_store(":memory:", history=100) as store:
        history(store, 30, 20)
        searched_in(store, range(400))
        in_memory = store._readers._run_spans.filters._flags
        assert 500 < sum(map(len, in_memory.values())) <= 1_000
        store.compact()
        assert store._readers._run_spans.filters._room == 1_000 - sum(map(len, in_memory.values()))
        assert len(in_memory) < 3


def test_a_merged_run_has_a_filter_also_where_the_merge_was_interrupted(tmp_path: Path) -> None:
    for place, stops in ((tmp_path / "whole.db", False), (tmp_path / "stops.db", True)):
        store = quick_store(place, history=1)
        store.append(run_of(dict.fromkeys(range(40_000), 0)))
        for number in range(1, 100):
            store.append(run_of(dict.fromkeys(random.Random(number).sample(range(40_000), 500), number)))
            if stops and number % 2:
                store.close()
                store = quick_store(place, history=1)
        merged = [run for run in store.reader().runs if not isinstance(run, int)]
        stored = {run for (run,) in store.database.execute("SELECT run FROM filter")}
        assert merged
        assert stored <= {*merged}
        assert stops or stored
        assert store.verify()
        store.close()


@pytest.mark.parametrize("damage", ["UPDATE filter SET flags = zeroblob(2048)", "UPDATE filter SET checksum = 7"])
def test_a_damaged_filter_is_not_believed_and_found_by_verify(damage: str, tmp_path: Path) -> None:
    with quick_store(tmp_path / "state.db", history=4) as store:
        state = history(store, 3, min(filters.STORED_ROWS))
    with sqlite3.connect(tmp_path / "state.db") as other:
        other.execute(f"{damage} WHERE run = 2")
    with CheckpointStore(tmp_path / "state.db") as store:
        reader = store.reader()
        for slot in range(0, len(state), 20):
            assert reader.item(1, slot) == (slot, str(state[slot]), None)
        with pytest.raises(CorruptStoreError, match="filter of run 2 is not that of its rows"):
            store.verify()
        report = store.repair()
        assert report.lost == ()
        assert "filter of run 2" in report.damage[0]
        assert store.verify()
        assert [run for (run,) in store.database.execute("SELECT run FROM filter")] == [3]


def test_what_is_dropped_takes_its_filter_along() -> None:
    with quick_store(":memory:", history=4) as store:
        history(store, 6, min(filters.STORED_ROWS))
        store.truncate_after(4)
        assert [run for (run,) in store.database.execute("SELECT run FROM filter")] == [2, 3, 4]
        store.append(run_of({0: "other"}))
        assert store.reader().item(1, 0) == (0, '"other"', None)
        store.compact()
        assert not store.database["filter"].count
        assert store.verify()


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_read_that_is_interrupted_while_filters_are_laid_side_by_side_hides_nothing(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    with quick_store(":memory:", history=12) as store:
        state = history(store, 12, min(filters.STORED_ROWS))
        reader = store.reader()

        def stop(*_: Any) -> Any:
            raise error

        with monkeypatch.context() as patch, pytest.raises(error):
            patch.setattr(filters, "_side_by_side", stop)
            for slot in state:
                reader.item(1, slot)
        assert [reader.item(1, slot) for slot in range(200)] == [(slot, str(state[slot]), None) for slot in range(200)]
