"""Rows of runs in memory: merged as those on the disk are, bounded, and given up for what is of more use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import CheckpointStore, recent
from checkpoint.pages import TABLES, merged_pages
from checkpoint.recent import Gathered, RecentRuns, Rows, kept_pages
from tests.checkpoint.store_helpers import quick_store, run_of, values_in

SLOTS: list[Any] = [*range(400), 2.5, -1e30, "a", "b", "ä", b"", b"\xff"]

RUNS = st.lists(
    st.dictionaries(st.sampled_from(SLOTS), st.none() | st.integers(0, 9), max_size=60)
    | st.integers(0, 300).map(lambda first: dict.fromkeys(range(first, first + 100), first)),
    min_size=1,
    max_size=8,
)


@given(RUNS, st.sampled_from([None, {1}, {2}, set()]), st.booleans())
def test_rows_in_memory_are_merged_as_those_on_the_disk_are(
    runs: list[dict[Any, Any]], live: set[int] | None, are_of_two: bool
) -> None:
    with quick_store(":memory:") as store:
        kept = [run_of(values, object_id=1 + place % 2 * are_of_two) for place, values in enumerate(runs)]
        for run in kept:
            store.append(run)
        for place, table in enumerate(TABLES):
            parts = [run.tables[place] for run in kept]
            here = list(kept_pages(table, parts, live))
            there = list(merged_pages(store.session, table, range(1, len(runs) + 1), live))
            assert [row for _, rows in here for row in rows] == [row for _, rows in there for row in rows]
            assert sum(looked_at for looked_at, _ in here) == sum(map(len, parts))


def test_no_page_of_rows_in_memory_is_much_larger_than_the_others() -> None:
    parts = [run_of(dict.fromkeys(range(start, 40_000, 20), 1)).items for start in range(20)]
    parts.append(run_of(dict.fromkeys(range(39_000, 43_000), 2)).items)
    sizes = [looked_at for looked_at, _ in kept_pages(TABLES[-1], parts, None)]
    assert max(sizes) <= 1_024 + 64 * len(parts)
    assert len(sizes) <= 2 * 44_000 / 1_024


def rows_of(count: int) -> Rows:
    return [], [], run_of(dict.fromkeys(range(count), 1)).items


def test_smaller_runs_take_the_room_of_larger_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "MOST_ROWS", 100)
    runs = RecentRuns()
    for number, size in enumerate([60, 30, 30, 30, 101, 9], start=1):
        runs.add(number, rows_of(size), 10 * size)
    assert [number for number in range(1, 7) if runs.of([number])] == [2, 3, 4, 6]
    assert runs.of([2, 5]) is None
    runs.keep([6])
    runs.add(7, rows_of(91), 910)
    assert runs.of([6, 7]) is not None
    runs.add(8, rows_of(1), 99 * 128)
    assert runs.of([8]) is None
    runs.keep([])
    runs.add(8, rows_of(1), 99 * 128)
    runs.add(9, rows_of(1), 2 * 128)
    assert (runs.of([8]), runs.of([9])) == (None, [list(rows_of(1))])


def test_rows_of_a_merged_run_are_gathered_only_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "MOST_ROWS", 100)
    few, wide = Gathered(), Gathered()
    assert [few.add(2, list(rows_of(50)[2])) for _ in range(3)] == [True, True, False]
    assert [wide.add(2, list(run_of({slot: "x" * 6_000}).items)) for slot in range(3)] == [True, True, False]
    assert 18_000 <= wide.size <= 18_100


def test_rows_too_wide_for_memory_are_merged_from_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "MOST_ROWS", 1_000)
    expected: dict[int, str] = {}
    with quick_store(tmp_path / "state.db", history=1) as store:
        for number in range(60):
            values = {(number * 7 + slot) % 50: f"{number} " + "x" * 3_000 for slot in range(5)}
            store.append(run_of(values))
            expected |= values
        assert values_in(store.reader()) == expected
        assert store.verify() >= 1
        kept = store._upkeep._recent
        assert sum(kept._sizes.values()) <= 1_000


def read_items(store: CheckpointStore) -> list[str]:
    """Return the list of the statements that read values of slots from now on."""
    found: list[str] = []
    store.session.connection.set_trace_callback(
        lambda text: found.append(text) if "SELECT object, slot, value" in text else None
    )
    return found


def test_runs_of_this_process_are_merged_without_reading_them(tmp_path: Path) -> None:
    with quick_store(tmp_path / "state.db", history=1) as store:
        statements = read_items(store)
        for number in range(200):
            store.append(run_of({number % 50: number, number % 7: number}))
        assert statements == []
        assert len(store.reader().runs) < 50
        assert store.verify() >= 1


def test_a_merge_from_memory_heals_what_was_damaged_on_the_disk(tmp_path: Path) -> None:
    with quick_store(tmp_path / "state.db", history=1) as store:
        expected: dict[int, int] = {}
        for number in range(100):
            if number == 20:
                store.database.conn.execute("UPDATE state_item SET value = '7' WHERE checkpoint = 19")
            store.append(run_of({number % 50: number}))
            expected[number % 50] = number
        assert values_in(store.reader()) == expected
        assert store.verify() >= 1


@pytest.mark.parametrize("are_lists", [False, True])
def test_what_a_caller_does_to_the_rows_of_a_run_afterwards_changes_nothing(are_lists: bool) -> None:
    with quick_store(":memory:", history=1) as store:
        for number in range(60):
            run: Any = run_of({number % 9: number})
            if are_lists and number % 2:
                run.index, run.items = list(map(list, run.index)), list(map(list, run.items))
            store.append(run)
            for rows in (run.index, run.items):
                if are_lists and number % 2:
                    rows[0][-1] = "changed"
                rows.clear()
        assert values_in(store.reader()) == {number % 9: number for number in range(51, 60)}
        assert store.verify() >= 1


def test_a_merge_goes_on_from_the_disk_where_the_process_ended(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    expected: dict[int, str] = {}
    for start in range(0, 4_000, 500):
        with quick_store(path, history=1) as store:
            for number in range(start, start + 500, 50):
                values = dict.fromkeys(range(number * 7 % 3_000, number * 7 % 3_000 + 400), str(number))
                store.append(run_of(values))
                expected |= values
            assert values_in(store.reader()) == expected
            assert store.verify() >= 1
    assert json.loads(store_value(path, 0)) == expected[0]


def store_value(path: Path, slot: int) -> str:
    with CheckpointStore(path, read_only=True) as store:
        item = store.reader().item(1, slot)
        assert item is not None
        return str(item.value)
