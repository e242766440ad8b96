"""Top-n beside sorting all rows: any offset, ties, small caches, retractions and recovery."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace, VolatileObjectSpace
from objectspace.operators import AggCall, GroupTopN, TopN
from objectspace.operators.top_n import SPARE
from objectspace.relational import Chunk, Column, TableSchema
from objectspace.relational.chunk import is_insert

SCHEMA = TableSchema([Column("g", "int64"), Column("v", "int64"), Column("id", "int64")], ["id"])

Row = tuple[int, int, int]


def first_rows(rows: list[Row], limit: int, offset: int, ties: bool) -> list[Row]:
    found: list[Row] = []
    for group in sorted({row[0] for row in rows}):
        mine = sorted((row for row in rows if row[0] == group), key=lambda row: (-row[1], row[2]))
        tied = [row for row in mine[limit:] if ties and limit and row[1] == mine[limit - 1][1]]
        found += mine[offset : offset + limit] + tied
    return sorted(found)


class Beside:
    """A top-n and the rows that are there; what came out adds up to its result."""

    def __init__(self, limit: int, offset: int, ties: bool, append_only: bool, cache: int) -> None:
        self.store = CheckpointStore(":memory:")
        self.make: Any = lambda: GroupTopN(
            SCHEMA, ["g"], ["v desc"], limit, offset, ties, append_only=append_only, cache_groups=cache
        )
        self.shape, self.append_only = (limit, offset, ties), append_only
        self.rows: dict[int, Row] = {}
        self.shown: list[Row] = []
        self.number = 0
        self.open()

    def open(self) -> None:
        self.space = PersistedObjectSpace(self.store)
        self.top = self.make()
        self.top.open(self.space, "top")

    def step(self, new: list[tuple[int, int]], gone: list[int]) -> None:
        changes: list[Any] = []
        for place in gone:
            if self.rows:
                changes.append(("-", self.rows.pop(list(self.rows)[place % len(self.rows)])))
        for group, value in new:
            self.number += 1
            self.rows[self.number] = (group, value, self.number)
            changes.append(("+", self.rows[self.number]))
        for chunk in self.top.process(Chunk.from_rows(SCHEMA, changes)):
            for op, row in chunk.rows():
                if is_insert(op):
                    self.shown.append(row)
                else:
                    self.shown.remove(row)
        assert sorted(self.shown) == self.expected()

    def expected(self) -> list[Row]:
        return first_rows(list(self.rows.values()), *self.shape)

    def end(self, epoch: int, restarts: bool) -> None:
        self.top.barrier(epoch)
        self.space.checkpoint(epoch=epoch)
        limit, offset, ties = self.shape
        rows = list(self.rows.values())
        stored = [row[2] for row in self.top._tables["rows"].scan()]
        kept = first_rows(rows, limit + offset, 0, ties) if self.append_only else rows
        assert sorted(stored) == sorted(row[2] for row in kept), "what no result can show any more is not stored"
        if restarts:
            self.open()


NEW = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=12)


@settings(max_examples=40)
@given(
    shape=st.sampled_from([(1, 0, False), (2, 1, False), (0, 0, False), (2, 0, True), (3, 0, True)]),
    append_only=st.booleans(),
    cache=st.sampled_from([1, 2, 100]),
    steps=st.lists(st.tuples(NEW, st.lists(st.integers(0, 50), max_size=6), st.booleans()), max_size=5),
)
def test_it_is_what_sorting_gives(shape: Any, append_only: bool, cache: int, steps: list[Any]) -> None:
    beside = Beside(*shape, append_only, cache)
    for epoch, (new, gone, restarts) in enumerate(steps, 1):
        beside.step(new, [] if append_only else gone)
        assert sorted(beside.shown) == beside.expected()
        beside.end(epoch, restarts)


def test_what_comes_behind_rows_that_are_tied_costs_nothing_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    beside = Beside(1, 0, True, False, 100)
    beside.step([(0, 9)] * 500, [])
    looks: list[Row] = []
    order_of = GroupTopN._order_of
    monkeypatch.setattr(GroupTopN, "_order_of", lambda self, row: looks.append(row) or order_of(self, row))
    beside.step([(0, 1), (0, 2)], [])
    assert len(looks) < 10
    beside.step([(0, 9)], [])
    assert len(beside.shown) == 501


@pytest.mark.parametrize("append_only", [False, True])
def test_a_change_among_rows_that_are_tied_does_not_read_them_all(
    append_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = Beside(1, 0, True, append_only, 100)
    beside.step([(0, 9)] * 500, [])
    looks: list[Row] = []
    order_of = GroupTopN._order_of
    monkeypatch.setattr(GroupTopN, "_order_of", lambda self, row: looks.append(row) or order_of(self, row))
    for _ in range(50):
        beside.step([(0, 9)], [] if append_only else [7])
        beside.step([(0, 9)], [])
    assert len(beside.shown) == len(beside.rows) == (600 if append_only else 550)
    assert len(looks) < 2_000


def test_it_reads_on_when_a_window_runs_out() -> None:
    beside = Beside(2, 0, False, False, 100)
    beside.step([(0, value) for value in range(4 * SPARE)], [])
    beside.end(1, restarts=True)
    for epoch in range(2, 6):
        best = sorted(beside.rows.values(), key=lambda row: -row[1])[: SPARE - 2]
        places = [list(beside.rows).index(row[2]) for row in best]
        beside.step([], [place - sum(other < place for other in places[:at]) for at, place in enumerate(places)])
        beside.end(epoch, restarts=epoch == 4)
    assert len(beside.rows) == 4 * SPARE - 4 * (SPARE - 2)


def test_only_first_rows_are_kept_of_a_stream_that_only_grows() -> None:
    beside = Beside(2, 0, True, True, 100)
    beside.step([(0, 3), (0, 3), (0, 3), (0, 1), (1, 5)], [])
    beside.end(1, restarts=False)
    assert len(beside.space.get("top/rows")) == 4
    beside.step([(0, 4), (0, 5)], [])
    beside.end(2, restarts=False)
    assert len(beside.space.get("top/rows")) == 3


KINDS = {
    "int64": st.integers(-3, 3),
    "float64": st.sampled_from([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.5]),
    "string": st.sampled_from(["", "a", "b", "\x00", "\uffff", "\U0001f600"]),
    "bool": st.booleans(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ["v", "v desc", "v desc nulls first", "v asc nulls last"])
@settings(max_examples=10)
@given(data=st.data(), groups=st.sampled_from([["g"], []]))
def test_a_stream_that_only_grows_has_the_first_rows_of_any(
    kind: str, order: str, data: st.DataObject, groups: list[str]
) -> None:
    name, _, rest = order.partition(" ")
    columns = [Column("g", "int64"), Column("v", kind, nullable=True), Column("id", "int64")]
    schema, shown = TableSchema(columns, ["id"]), []
    chunks = data.draw(
        st.lists(st.lists(st.tuples(st.integers(0, 1), st.none() | KINDS[kind]), max_size=6), max_size=4)
    )
    for append_only in (False, True):
        top = GroupTopN(schema, groups, [(name, rest or "asc")], 2, 1, append_only=append_only)
        top.open(VolatileObjectSpace(), "top")
        found: list[Any] = []
        for number, values in enumerate(chunks):
            rows = [("+", (*pair, 10 * number + place)) for place, pair in enumerate(values)]
            for chunk in top.process(Chunk.from_rows(schema, rows)):
                for op, row in chunk.rows():
                    found.append(repr(row)) if is_insert(op) else found.remove(repr(row))
        shown.append(sorted(found))
    assert shown[0] == shown[1]


def test_a_watermark_of_a_group_is_passed_on_and_one_of_another_column_is_not() -> None:
    top = GroupTopN(SCHEMA, ["g"], ["v"], 1)
    top.open(VolatileObjectSpace(), "top")
    assert (top.watermark("g", 1), top.watermark("v", 1)) == ([("g", 1)], [])


@pytest.mark.parametrize("order_by", ["v desc", ("v desc",), [("v", "desc")]])
def test_an_order_may_be_a_string_or_several_parts(order_by: Any) -> None:
    top = TopN(SCHEMA, order_by, limit=1)
    top.open(VolatileObjectSpace(), "top")
    assert str(top.state()[0][1]).endswith("primary key (v desc nulls last, id asc nulls first)")
    assert AggCall("array_agg", "v", order_by=order_by).order_by == AggCall("max", "v", order_by=order_by).order_by
    chunk = Chunk.from_rows(SCHEMA, [("+", (1, 5, 1)), ("+", (1, 7, 2))])
    assert [out.rows() for out in top.process(chunk)] == [[("+", (1, 7, 2))]]


def test_a_call_without_an_order_may_say_so() -> None:
    assert AggCall("array_agg", "v", order_by=None).order_by == ()
