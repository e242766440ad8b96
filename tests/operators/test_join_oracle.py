"""Joins and top-n against the same query in DuckDB over the rows that are there, after any history."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace, VolatileObjectSpace
from objectspace.operators import GroupTopN, HashJoin, IntervalJoin, Operator, TemporalJoin, TopN
from objectspace.operators.hash_join import KINDS
from objectspace.relational import Chunk, Column, TableSchema
from tests.operators.join_history import History, Row, edits
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
@settings(max_examples=15, deadline=None)
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


@pytest.mark.parametrize("condition", [("k", "!=", "w"), ("v", "!=", "k_right")])
def test_no_pair_meets_a_condition_of_which_one_side_is_null(condition: Any) -> None:
    join = HashJoin(LEFT, RIGHT, ["k"], ["k"], "left_outer", True, condition)
    join.open(VolatileObjectSpace(), "join")
    join.process(Chunk.from_rows(RIGHT, [("+", (None, 2, 1))]), side="right")
    (out,) = join.process(Chunk.from_rows(LEFT, [("+", (None, 1, 1))]), side="left")
    assert out.rows() == [("+", (None, 1, 1, None, None, None))]


@settings(max_examples=40, deadline=None)
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


OPERATORS: dict[str, Callable[[], Operator]] = {
    **{kind: partial(HashJoin, LEFT, LEFT, ["k"], ["k"], kind, True) for kind in KINDS},
    "top-n": lambda: TopN(LEFT, ["v desc"], 3, with_ties=True),
    "group top-n": lambda: GroupTopN(LEFT, ["k"], ["v"], 1, 1),
    "interval": lambda: IntervalJoin(LEFT, LEFT, ["k"], ["k"], "v", "v", 0, 1, "full_outer"),
    "temporal": lambda: TemporalJoin(LEFT, LEFT, ["k"], ["k"], "v", "v", "left_outer"),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_the_order_of_a_chunk_leaves_no_trace_even_where_it_breaks_updates_apart(name: str) -> None:
    before = [("+", (n % 4 or None, n % 5, n)) for n in range(20)]
    after = [change for op, row in before[::2] for change in (("-", row), ("+", (row[0], row[1] + 1, row[2])))]
    after += [("-", row) for _, row in before[1::4]] + [("+", (1, n, 20 + n)) for n in range(3)]
    outcomes = {_outcome(OPERATORS[name](), before, after, seed) for seed in range(5)}
    assert len(outcomes) == 1


def _outcome(operator: Operator, before: list[Any], after: list[Any], seed: int) -> Any:
    """Return the state, as the digest of a whole checkpoint, and the net output of chunks whose rows are shuffled."""
    space, shuffled = PersistedObjectSpace(CheckpointStore(":memory:")), random.Random(seed)
    operator.open(space, "operator")
    net: Counter[Row] = Counter()
    for epoch, rows in enumerate((before, after), start=1):
        chunks = []
        for side in operator.sides:
            mixed = shuffled.sample(rows, len(rows))
            chunks += operator.process(Chunk.from_rows(LEFT, mixed), side=side)
            if epoch == 2:
                operator.watermark("v", 3, side=side)
        for op, row in chain.from_iterable(chunk.rows() for chunk in [*chunks, *operator.barrier(epoch)]):
            net[row] += 1 if op in ("+", "U+") else -1
    space.checkpoint(epoch=2, kind="full")  # type: ignore[arg-type]
    return space.store.checkpoints()[-1].digest, frozenset((row, count) for row, count in net.items() if count)
