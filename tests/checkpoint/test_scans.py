"""Scans give the newest rows in order, whatever runs they lie in, and the first few rows cost few rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import CheckpointStore, Reader, Run, scan, spans
from checkpoint.large import INLINE_BYTES
from checkpoint.run import slot_order
from tests.checkpoint.store_helpers import DIFFERENTIAL, FULL, quick_store, run_of

SLOTS: list[Any] = [*range(30), 2.5, 1e30, "a", "b", "ä", b"", b"\xff"]

CHANGES = st.dictionaries(st.sampled_from(SLOTS), st.none() | st.integers(0, 9), max_size=12)
GROWTH = st.integers(0, 60).map(lambda first: dict.fromkeys(range(first, first + 25), first))
APART = st.integers(0, 8).map(lambda place: dict.fromkeys(range(place * 7, place * 7 + 5), place))
ENDS = st.integers(5, 30).map(lambda last: {slot: None for slot in SLOTS if slot_order(slot) > slot_order(last)})
LONG = 2 * INLINE_BYTES
BOUNDS = st.none() | st.sampled_from(SLOTS)
SCANS = st.tuples(BOUNDS, BOUNDS, st.booleans(), st.sampled_from([None, 1, 2, 5, 100]))


@pytest.fixture(params=[(2, 6, 3, 2, 4), (4, 30, 2, 3, 10), (2, 6, 3, 1, 1), (16, 8192, 256, 16, 4096)])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let few slots in few runs take every way that many take."""
    *sizes, with_spans = request.param
    for name, size in zip(("_LEAST_ROWS", "_MOST_AROUND", "_MEMBERS", "_FEW_OVER"), sizes, strict=True):
        monkeypatch.setattr(scan, name, size)
    monkeypatch.setattr(scan, "MOST_BYTES", 3 * LONG)
    monkeypatch.setattr(spans, "LEAST_ROWS", with_spans)
    scan._merging.cache_clear()
    yield
    scan._merging.cache_clear()


def expected_of(state: dict[Any, Any], lower: Any, upper: Any, reverse: bool) -> list[Any]:
    found = sorted((slot for slot, value in state.items() if value is not None), key=slot_order, reverse=reverse)
    low, high = slot_order(-1 if lower is None else lower), slot_order(b"\xff\xff" if upper is None else upper)
    return [(slot, orjson.dumps(state[slot]).decode()) for slot in found if low <= slot_order(slot) <= high]


def lengthened(value: int | None, least: int | None) -> int | str | None:
    return value if value is None or least is None or value < least else str(value) * LONG


@pytest.mark.usefixtures("sizes")
@given(
    st.lists(st.one_of(CHANGES, GROWTH, APART, APART, ENDS), max_size=14),
    st.lists(SCANS, min_size=1, max_size=6),
    st.sampled_from([None, 0, 5]),
)
def test_scans_give_what_there_is_in_order(steps: list[dict[Any, Any]], scans: list[Any], large: int | None) -> None:
    with quick_store(":memory:", history=20) as store:
        state: dict[Any, Any] = {}
        for step in steps:
            changes = {slot: lengthened(value, large) for slot, value in step.items()}
            store.append(run_of(changes))
            state |= changes
        found = store.reader()
        for lower, upper, reverse, page_rows in scans:
            expected = expected_of(state, lower, upper, reverse)
            items = found.items(1, lower, upper, reverse=reverse, page_rows=page_rows)
            assert [item[:2] for item in items] == expected
            pages = found.item_pages(1, lower, upper, reverse=reverse, page_rows=page_rows)
            assert [row for page in pages for row in page] == expected
        assert found.last_slot(1) == next((slot for slot, _ in expected_of(state, None, None, True)), None)
        assert found.last_slot(2) is None


@pytest.mark.parametrize("page_rows", [1, 100])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_range_ends_where_the_rows_of_another_run_begin(
    reverse: bool, page_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "LEAST_ROWS", 1)
    state = {slot: first for first in (0, 10, 20) for slot in range(first, first + 4)}
    with quick_store(":memory:", history=20) as store:
        for first in (10, 20, 0):
            store.append(run_of({slot: first for slot in state if state[slot] == first}))
        found = store.reader()
        edges = [slot for first in (0, 10, 20) for slot in (first - 1, first, first + 3, first + 4)]
        for lower in edges:
            for upper in edges:
                slots = [item.slot for item in found.items(1, lower, upper, reverse=reverse, page_rows=page_rows)]
                assert slots == sorted((slot for slot in state if lower <= slot <= upper), reverse=reverse)


@pytest.mark.parametrize("length", [100_000, 3_000_000])
def test_a_page_of_large_values_is_no_larger_than_it_must_be(length: int) -> None:
    values = dict.fromkeys(range(2000), "small") | dict.fromkeys(range(2000, 2005), "x" * length)
    with quick_store(":memory:") as store:
        for run in (run_of(values, FULL), run_of({2_002: "y" * length, 2_001: None})):
            store.append(run)
        found = store.reader()
        for pages in (found.item_pages(1), found.item_pages(1, page_rows=found.PAGE_ROWS), found.pages_by_rank(1)):
            read = [[len(row[1]) for row in page] for page in pages]
            assert sum(map(len, read)) == 2_004
            assert max(map(sum, read)) < 6 * length
            assert sum(sum(page) > length + 1_000 for page in read) <= 1
            assert len(read) < 60


def test_a_scan_goes_on_over_merges_of_its_runs() -> None:
    with quick_store(":memory:", history=40) as store:
        for first in range(0, 400, 10):
            store.append(run_of(dict.fromkeys(range(first, first + 12), first)))
        items = store.reader().items(1, page_rows=7)
        found = [next(items).slot for _ in range(100)]
        store.compact()
        assert found + [item.slot for item in items] == list(range(402))


@pytest.fixture
def grown() -> Iterator[CheckpointStore]:
    """A store that has grown at its end, so that the rows there lie in many runs."""
    with CheckpointStore(":memory:", history=1_000) as store:
        store.append(run_of(dict.fromkeys(range(5_000), 0), FULL))
        for first in range(5_000, 11_000, 10):
            store.append(run_of(dict.fromkeys(range(first, first + 10), first)))
        yield store


def test_what_lies_at_the_end_is_read_without_the_rest(grown: CheckpointStore) -> None:
    found = grown.reader()
    assert len(found.runs) > 20
    read = counted(found)
    assert next(found.items(1, reverse=True, page_rows=1)).slot == 10_999
    assert next(found.items(1, None, 9_005, reverse=True, page_rows=16)).slot == 9_005
    assert next(found.items(1, 7_003, page_rows=16)).slot == 7_003
    assert [row[0] for row in next(found.item_pages(1, 6_000))] == list(range(6_000, 6_016))
    assert found.last_slot(1) == 10_999
    assert sum(read) < 100
    assert next(found.items(1, reverse=True)).slot == 10_999
    assert next(found.items(1, 3, 10_900, reverse=True)).slot == 10_900
    assert sum(read) < 100
    assert [item.slot for item in found.items(1)] == list(range(11_000))
    assert [item.slot for item in found.items(1, 4_000, 8_000, reverse=True)] == list(range(8_000, 3_999, -1))
    assert sum(read) < 5 * 15_000


def test_what_was_deleted_at_the_end_is_passed_over(grown: CheckpointStore) -> None:
    grown.append(run_of(dict.fromkeys(range(10_500, 11_000))))
    assert grown.reader().last_slot(1) == 10_499
    grown.append(run_of(dict.fromkeys(range(10_500))))
    assert grown.reader().last_slot(1) is None


def test_one_key_of_the_metadata_is_that_of_the_newest_run_that_has_it() -> None:
    with quick_store(":memory:", history=20) as store:
        assert store.reader().metadatum(1, "length") is None
        for number, rows in enumerate([[("length", "1")], [("other", "2")], [("length", "3")], [("other", None)]]):
            store.append(Run(DIFFERENTIAL, [(1, "o", "Sample", "{}")], [(1, *row) for row in rows], []))
            assert store.reader().metadatum(1, "length") == ("1" if number < 2 else "3")
        assert store.reader().metadatum(1, "other") is None
        assert store.reader().metadata(1) == {"length": "3"}
        assert store.reader().metadatum(2, "length") is None


def counted(found: Reader) -> list[int]:
    """Note how many rows each statement of a reader gives from now on."""
    read: list[int] = []
    for name in ("rows", "peek_all"):
        give = getattr(found._session, name)

        def _give(*args: Any, give: Any = give) -> Any:
            rows = give(*args)
            read.append(len(rows))
            return rows

        setattr(found._session, name, _give)
    return read
