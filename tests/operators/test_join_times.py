"""Joins by time against the same query in DuckDB, with and without what watermarks forget."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace, VolatileObjectSpace
from objectspace.operators import HashJoin, IntervalJoin, TemporalJoin
from objectspace.operators.hash_join import KINDS
from objectspace.operators.temporal_join import KINDS as TEMPORAL_KINDS
from objectspace.relational import Chunk, Column, SchemaError, TableSchema
from tests.operators.join_history import History, timely_edits
from tests.operators.join_oracle import join_query, rows_of

LEFT = TableSchema([Column("k", "int64"), Column("t", "int64", nullable=True), Column("id", "int64")], ["id"])
RIGHT = TableSchema([Column("k", "int64"), Column("s", "int64", nullable=True), Column("id", "int64")], ["id"])
SCHEMAS = {"left": LEFT, "right": RIGHT}

timed_row = st.tuples(st.integers(0, 1), st.none() | st.integers(0, 9))
bound = st.none() | st.integers(-3, 3)


def sides(run: History) -> dict[str, Any]:
    return {"l": (LEFT, run.live["left"].values()), "r": (RIGHT, run.live["right"].values())}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10, deadline=None)
@given(history=timely_edits(timed_row, 9), bounds=st.tuples(bound, bound))
def test_an_interval_join_forgets_nothing_that_counts(kind: Any, history: list[Any], bounds: Any) -> None:
    lower, upper = sorted(bounds) if None not in bounds else bounds
    run = History(
        lambda: IntervalJoin(LEFT, RIGHT, ["k"], ["k"], "t", "s", lower, upper, kind), SCHEMAS, {"left": 1, "right": 1}
    )
    run.run(history)
    on = "l.k = r.k AND l.t IS NOT NULL AND r.s IS NOT NULL"
    on += "" if lower is None else f" AND l.t >= r.s + ({lower})"
    on += "" if upper is None else f" AND l.t <= r.s + ({upper})"
    assert run.output == rows_of(join_query(kind, on), **sides(run))


@pytest.mark.parametrize("kind", TEMPORAL_KINDS)
@settings(max_examples=10, deadline=None)
@given(history=timely_edits(timed_row, 7))
def test_a_temporal_join_is_an_asof_join_once_watermarks_have_passed_all(kind: Any, history: list[Any]) -> None:
    # The time of a right row is its number, so no two versions have one time.
    run = History(lambda: TemporalJoin(LEFT, RIGHT, ["k"], ["k"], "t", "id", kind), SCHEMAS, {"left": 1, "right": 2})
    run.run([*history, ("watermark", "left", 100), ("watermark", "right", 100), "barrier"])
    outer = "LEFT" if kind == "left_outer" else ""
    found = rows_of(f"SELECT * FROM l ASOF {outer} JOIN r ON l.k = r.k AND l.t >= r.id", **sides(run))
    assert run.output == found
    assert list(run.operator._tables["waiting"].scan()) == list(run.operator._tables["coming"].scan()) == []
    versions = [row[0] for row in run.operator._tables["versions"].scan()]
    assert len(versions) == len(set(versions)), "of each key the last version is enough"


def test_what_no_row_can_meet_any_more_leaves_the_store() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    join = IntervalJoin(LEFT, RIGHT, ["k"], ["k"], "t", "s", -5, 5, "left_outer")
    join.open(space, "join")
    for side, schema in SCHEMAS.items():
        join.process(Chunk.from_rows(schema, [("+", (n, n, n)) for n in range(100)]), side=side)
    join.barrier(1)
    space.checkpoint(epoch=1)
    assert join.watermark("t", 95, side="left") == []
    assert join.watermark("s", 100, side="right") == [("t", 95), ("s", 90)]
    join.barrier(2)
    assert {name: len(space.get(f"join/{name}")) for name, _ in join.state()} == {
        "left": 5,
        "left_degree": 5,
        "left_times": 5,
        "right": 10,
        "right_times": 10,
    }


def test_an_event_of_an_interval_join_dirties_its_row_and_the_degrees_of_its_matches() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    join = IntervalJoin(LEFT, RIGHT, ["k"], ["k"], "t", "s", -1, 1, "left_outer")
    join.open(space, "join")
    join.process(Chunk.from_rows(LEFT, [("+", (0, n, n)) for n in range(100)]), side="left")
    join.barrier(1)
    space.checkpoint(epoch=1)
    join.process(Chunk.from_rows(RIGHT, [("+", (0, 50, 0))]), side="right")
    join.barrier(2)
    row, time, matches = 1, 1, 3
    assert space.checkpoint(epoch=2).slots == row + time + matches


def test_times_at_the_ends_of_their_type() -> None:
    join = IntervalJoin(LEFT, RIGHT, ["k"], ["k"], "t", "s", 1, 2)
    join.open(VolatileObjectSpace(), "join")
    least, most = -(2**63), 2**63 - 1
    lefts = [(0, least, 0), (0, most, 1), (0, most - 1, 2)]
    rights = [(0, least, 0), (0, most, 1), (0, most - 2, 2)]
    join.process(Chunk.from_rows(LEFT, [("+", row) for row in lefts]), side="left")
    (out,) = join.process(Chunk.from_rows(RIGHT, [("+", row) for row in rights]), side="right")
    expected = [(*left, *right) for right in rights for left in lefts if 1 <= left[1] - right[1] <= 2]
    assert sorted(row for _, row in out.rows()) == sorted(expected)
    assert len(expected) == 2


def test_times_may_be_timestamps() -> None:
    schema = TableSchema([Column("k", "int64"), Column("at", "timestamp")], ["k", "at"])
    join = IntervalJoin(schema, schema, ["k"], ["k"], "at", "at", timedelta(0), timedelta(minutes=1))
    join.open(VolatileObjectSpace(), "join")
    begin = datetime(2024, 1, 1)
    join.process(Chunk.from_rows(schema, [("+", (1, begin))]), side="right")
    rows = [(1, begin + timedelta(seconds=n)) for n in (-1, 0, 60, 61)]
    (out,) = join.process(Chunk.from_rows(schema, [("+", row) for row in rows]), side="left")
    assert [row for _, row in out.rows()] == [(*row, 1, begin) for row in rows[1:3]]
    assert list(join.schema.names) == ["k", "at", "k_right", "at_right"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lower": 3, "upper": 1}, "is empty"),
        ({"lower": timedelta(1)}, "lower, the least of within=, is .* int"),
        ({"left_time": "nothing"}, "no column 'nothing'"),
    ],
)
def test_bad_intervals(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        IntervalJoin(LEFT, RIGHT, ["k"], ["k"], **{"left_time": "t", "right_time": "s"} | arguments)


@pytest.mark.parametrize(("left", "right"), [("int64", "int32"), ("timestamp", "timestamptz"), ("float64", "float64")])
def test_times_that_do_not_go_together_are_refused(left: str, right: str) -> None:
    sides = [TableSchema([Column("k", "int64"), Column("t", kind)], ["k"]) for kind in (left, right)]
    with pytest.raises(SchemaError, match=f"the times are {left} and {right}: expected one type of int16, "):
        IntervalJoin(*sides, ["k"], ["k"], "t", "t")


def test_a_watermark_of_the_key_cleans_both_sides_of_a_join() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    join = HashJoin(LEFT, RIGHT, ["k"], ["k"], watermarks=True)
    join.open(space, "join")
    for side, schema in SCHEMAS.items():
        join.process(Chunk.from_rows(schema, [("+", (n, 0, n)) for n in range(10)]), side=side)
    assert join.watermark("k", 8, side="left") == []
    assert join.watermark("k", 4, side="right") == [("k", 4), ("k_right", 4)]
    join.barrier(1)
    assert {name: len(space.get(f"join/{name}")) for name in ("left", "right")} == {"left": 6, "right": 6}


def test_late_rows_of_a_temporal_join_are_passed_over_and_counted() -> None:
    join = TemporalJoin(LEFT, RIGHT, ["k"], ["k"], "t", "s", "left_outer")
    join.open(VolatileObjectSpace(), "join")
    join.watermark("t", 5, side="left")
    join.watermark("s", 7, side="right")
    assert join.barrier(1) == []
    assert join.process(Chunk.from_rows(LEFT, [("+", (0, 4, 0)), ("+", (0, None, 1))]), side="left")[0].rows() == [
        ("+", (0, None, 1, None, None, None))
    ]
    assert join.late_rows == 1
    assert join.watermarks() == [("t", 5)]


@pytest.mark.parametrize(
    ("kind", "key"), [("list<int64>", [1]), ("struct<a:int64>", {"a": 1}), ("float64", float("nan")), ("int64", 1)]
)
def test_a_temporal_join_keeps_the_last_version_of_any_key(kind: str, key: Any) -> None:
    left = TableSchema([Column("n", "int64"), Column("k", kind), Column("t", "int64")], ["n"])
    right = TableSchema([Column("k", kind), Column("s", "int64"), Column("p", "int64")], ["k", "s"])
    join = TemporalJoin(left, right, ["k"], ["k"], "t", "s")
    join.open(VolatileObjectSpace(), "j")
    join.process(Chunk.from_rows(right, [("+", (key, 10, 3)), ("+", (key, 20, 4)), ("+", (key, 30, 5))]), side="right")
    join.process(Chunk.from_rows(left, [("+", (1, key, 19)), ("+", (2, key, 25))]), side="left")
    for side, column in (("left", "t"), ("right", "s")):
        join.watermark(column, 26, side=side)
    assert [(row[0], row[-1]) for chunk in join.barrier(1) for row in chunk.values] == [(1, 3), (2, 4)]
    assert [row[1:] for row in join._tables["versions"].scan()] == [(20, 4), (30, 5)]
