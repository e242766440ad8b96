"""Joins and top-n against the same query over the rows that are there, after any history."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.operators import GroupTopN, HashJoin, Operator, TopN
from objectspace.operators.hash_join import KINDS
from objectspace.relational import Chunk, Column, TableSchema

Row = tuple[Any, ...]

LEFT = TableSchema([Column("k", "int64", nullable=True), Column("v", "int64"), Column("id", "int64")], ["id"])
RIGHT = TableSchema([Column("k", "int64", nullable=True), Column("w", "int64"), Column("id", "int64")], ["id"])
TOP = TableSchema(
    [Column("g", "int64"), Column("v", "float64", nullable=True), Column("p", "string"), Column("id", "int64")], ["id"]
)

key = st.one_of(st.none(), st.integers(0, 2))
joined_row = st.tuples(key, st.integers(0, 3))
top_row = st.tuples(
    st.integers(0, 1), st.sampled_from([None, -0.0, 0.0, 1.5, float("inf"), 2.0]), st.sampled_from("ab")
)
ids = st.integers(0, 7)


def edits(rows: st.SearchStrategy[Row]) -> st.SearchStrategy[list[Any]]:
    """Return what happens: (side, [(id, row or None)]) is a chunk, a text is a barrier or a crash."""
    chunk = st.tuples(st.sampled_from(["left", "right"]), st.lists(st.tuples(ids, st.none() | rows), max_size=5))
    return st.lists(st.one_of(chunk, chunk, chunk, st.sampled_from(["barrier", "crash", "rollback"])), max_size=14)


class History:
    """An operator under a history of edits, and the rows that are there."""

    def __init__(self, make: Callable[[], Operator], schemas: dict[str, TableSchema]) -> None:
        self.make, self.schemas = make, schemas
        self.store = CheckpointStore(":memory:")
        self.live: dict[str, dict[int, Row]] = {side: {} for side in schemas}
        self.output: Counter[Row] = Counter()
        self.epoch = 0
        self.keep()
        self.open()

    def open(self) -> None:
        self.space = PersistedObjectSpace(self.store)
        self.operator = self.make()
        self.operator.open(self.space, "operator")

    def keep(self) -> None:
        self.kept = ({side: dict(rows) for side, rows in self.live.items()}, Counter(self.output))

    def restore(self) -> None:
        live, output = self.kept
        self.live, self.output = {side: dict(rows) for side, rows in live.items()}, Counter(output)

    def take(self, chunks: list[Chunk]) -> None:
        for op, row in chain.from_iterable(chunk.rows() for chunk in chunks):
            self.output[row] += 1 if op in ("+", "U+") else -1
            assert self.output[row] >= 0, f"{row} goes, and was not there"
        self.output = +self.output

    def change(self, side: str, changes: list[tuple[int, Row | None]]) -> None:
        rows = self.live[side]
        log: list[Any] = []
        for number, values in changes:
            old = rows.pop(number, None)
            new = None if values is None else (*values, number)
            if old is not None and new is not None:
                log += [("U-", old), ("U+", new)]
            elif old is not None or new is not None:
                log.append(("-", old) if new is None else ("+", new))
            if new is not None:
                rows[number] = new
        self.take(self.operator.process(Chunk.from_rows(self.schemas[side], log), side=side))

    def run(self, history: list[Any]) -> None:
        for event in history:
            if event == "barrier":
                self.epoch += 1
                self.take(self.operator.barrier(self.epoch))
                self.space.checkpoint(epoch=self.epoch)
                self.keep()
            elif event == "rollback":
                self.space.rollback()
                self.restore()
                # Tables that were never committed are gone with the rollback: the operator is opened again.
                if not self.epoch:
                    self.operator.open(self.space, "operator")
            elif event == "crash":
                self.space.close()
                self.open()
                self.restore()
            else:
                self.change(*event)


def equal(left: Any, right: Any, safe: bool) -> bool:
    return safe if left is None or right is None else bool(left == right)


def joined(live: dict[str, dict[int, Row]], kind: str, safe: bool, condition: Any) -> Counter[Row]:
    """Return the join of two tables, row by row."""
    lefts, rights = live["left"].values(), live["right"].values()

    def matches(a: Row, b: Row) -> bool:
        equals = a[0] is None and b[0] is None if safe and (a[0] is None or b[0] is None) else equal(a[0], b[0], False)
        return equals and (condition is None or a[1] < b[1])

    pairs = [(a, b) for a in lefts for b in rights if matches(a, b)]
    if kind.endswith(("semi", "anti")):
        main, place = (lefts, 0) if kind.startswith("left") else (rights, 1)
        met = {pair[place] for pair in pairs}
        return Counter(row for row in main if (row in met) == kind.endswith("semi"))
    found = Counter(a + b for a, b in pairs)
    if kind in ("left_outer", "full_outer"):
        found.update(a + (None,) * 3 for a in lefts if not any(matches(a, b) for b in rights))
    if kind in ("right_outer", "full_outer"):
        found.update((None,) * 3 + b for b in rights if not any(matches(a, b) for a in lefts))
    return found


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=120, deadline=None)
@given(history=edits(joined_row), safe=st.booleans(), condition=st.sampled_from([None, ("v", "<", "w")]))
def test_a_join_is_the_join_of_what_is_there(kind: Any, history: list[Any], safe: bool, condition: Any) -> None:
    run = History(
        lambda: HashJoin(LEFT, RIGHT, ["k"], ["k"], kind, safe, condition, cache_keys=1),
        {"left": LEFT, "right": RIGHT},
    )
    run.run(history)
    assert run.output == joined(run.live, kind, safe, condition)


def first(rows: list[Row], limit: int, offset: int, with_ties: bool, descending: bool) -> list[Row]:
    """Return the first rows in the order of ``v``, NULL first where it ascends and last where it descends."""

    def order(row: Row) -> Any:
        rank = (row[1] is not None, row[1] or 0.0)
        return (not rank[0], -rank[1]) if descending else rank

    ordered = sorted(rows, key=lambda row: (order(row), row[3]))
    end = offset + limit
    while with_ties and 0 < end < len(ordered) and order(ordered[end]) == order(ordered[end - 1]):
        end += 1
    return ordered[offset:end]


@settings(max_examples=300, deadline=None)
@given(
    history=edits(top_row),
    limit=st.integers(0, 3),
    offset=st.integers(0, 2),
    with_ties=st.booleans(),
    descending=st.booleans(),
    grouped=st.booleans(),
)
def test_the_first_rows_are_those_of_what_is_there(
    history: list[Any], limit: int, offset: int, with_ties: bool, descending: bool, grouped: bool
) -> None:
    offset = 0 if with_ties else offset
    order = ["v desc" if descending else "v"]

    def make() -> Operator:
        if grouped:
            return GroupTopN(TOP, ["g"], order, limit, offset, with_ties, cache_groups=1)
        return TopN(TOP, order, limit, offset, with_ties)

    run = History(make, {"left": TOP})
    run.run([("left", event[1]) if isinstance(event, tuple) else event for event in history])
    rows = list(run.live["left"].values())
    groups = [[row for row in rows if row[0] == group] for group in (0, 1)] if grouped else [rows]
    expected = chain.from_iterable(first(group, limit, offset, with_ties, descending) for group in groups)
    assert run.output == Counter(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_rows_in_an_epoch_leaves_no_trace(kind: Any) -> None:
    rows = [(side, (n, (n % 5 or None, n % 3))) for n in range(40) for side in ("left", "right")]
    outcomes = set()
    for seed in range(4):
        random.Random(seed).shuffle(rows)
        run = History(lambda: HashJoin(LEFT, RIGHT, ["k"], ["k"], kind), {"left": LEFT, "right": RIGHT})
        run.run([(side, [change]) for side, change in rows] + ["barrier"])  # type: ignore[list-item]
        run.space.checkpoint(kind="full")  # type: ignore[arg-type]
        outcomes.add((run.store.checkpoints()[-1].digest, frozenset(run.output.items())))
    assert len(outcomes) == 1


def test_what_an_event_dirties_does_not_grow_with_the_state() -> None:
    join = HashJoin(LEFT, RIGHT, ["k"], ["k"], "left_outer")
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    join.open(space, "join")
    for side, schema in (("left", LEFT), ("right", RIGHT)):
        join.process(Chunk.from_rows(schema, [("+", (n, 0, n)) for n in range(500)]), side=side)
    join.barrier(1)
    space.checkpoint(epoch=1)
    join.process(Chunk.from_rows(RIGHT, [("+", (7, 1, 1000))]), side="right")
    join.barrier(2)
    assert space.checkpoint(epoch=2).slots == 2


def test_a_row_beyond_the_first_ones_costs_its_own_slot() -> None:
    top = TopN(TOP, ["v"], 10)
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    top.open(space, "top")
    top.process(Chunk.from_rows(TOP, [("+", (0, float(n), "a", n)) for n in range(500)]))
    top.barrier(1)
    space.checkpoint(epoch=1)
    assert top.process(Chunk.from_rows(TOP, [("+", (0, 99.0, "a", 1000))])) == []
    top.barrier(2)
    assert space.checkpoint(epoch=2).slots == 1
