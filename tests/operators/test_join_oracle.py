"""Joins and top-n against the same query in DuckDB over the rows that are there, after any history."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.operators import GroupTopN, HashJoin, Operator, TopN
from objectspace.operators.hash_join import KINDS
from objectspace.relational import Chunk, Column, TableSchema
from tests.operators.join_history import History, edits
from tests.operators.join_oracle import join_query, rows_of, top_query

LEFT = TableSchema([Column("k", "int64", nullable=True), Column("v", "int64"), Column("id", "int64")], ["id"])
RIGHT = TableSchema([Column("k", "int64", nullable=True), Column("w", "int64"), Column("id", "int64")], ["id"])
TOP = TableSchema(
    [Column("g", "int64"), Column("v", "float64", nullable=True), Column("p", "string"), Column("id", "int64")], ["id"]
)

SIDES = (("l", "left", LEFT), ("r", "right", RIGHT))

key = st.one_of(st.none(), st.integers(0, 2))
joined_row = st.tuples(key, st.integers(0, 3))
top_row = st.tuples(
    st.integers(0, 1), st.sampled_from([None, -0.0, 0.0, 1.5, float("inf"), 2.0]), st.sampled_from("ab")
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=80, deadline=None)
@given(history=edits(joined_row), safe=st.booleans(), condition=st.sampled_from([None, ("v", "<", "w")]))
def test_a_join_is_the_join_of_what_is_there(kind: Any, history: list[Any], safe: bool, condition: Any) -> None:
    run = History(
        lambda: HashJoin(LEFT, RIGHT, ["k"], ["k"], kind, safe, condition, cache_keys=1),
        {"left": LEFT, "right": RIGHT},
    )
    run.run(history)
    on = f"l.k {'IS NOT DISTINCT FROM' if safe else '='} r.k" + (" AND l.v < r.w" if condition else "")
    sides = {name: (schema, run.live[side].values()) for name, side, schema in SIDES}
    assert run.output == rows_of(join_query(kind, on), **sides)


@settings(max_examples=250, deadline=None)
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
    sorting = "v DESC NULLS LAST" if descending else "v ASC NULLS FIRST"
    text = top_query("g" if grouped else "true", sorting, limit, offset, with_ties)
    assert run.output == rows_of(text, t=(TOP, run.live["left"].values()))


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
