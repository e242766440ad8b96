"""Values that are equal in SQL and not in Python, such as NaN: rows of them come and go, keys of them are one key."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectspace import VolatileObjectSpace
from objectspace.operators import (
    AggCall,
    DynamicFilter,
    Filter,
    GroupTopN,
    HashAgg,
    HashJoin,
    IntervalJoin,
    Materialize,
    Operator,
    Pipeline,
    SessionWindow,
    SimpleAgg,
    TemporalJoin,
    TopN,
    col,
)
from objectspace.operators.predicates import COMPARISONS
from objectspace.relational import Chunk, Column, TableSchema
from objectspace.relational.values import nearest_float32
from tests.operators.join_history import History, edits
from tests.operators.spellings import SPELLINGS, Spelling

TWICE = {**{kind: values[3] for kind, values in SPELLINGS.items()}, "float32": SPELLINGS["float32"][1]}
"""For each type two spellings of one value."""


def schema_of(kind: str) -> TableSchema:
    return TableSchema([Column("v", kind), Column("at", "int64"), Column("id", "int64")], ["id"])


def opened(operator: Operator) -> Operator:
    operator.open(VolatileObjectSpace(), "it")
    return operator


def changes(operator: Operator, schema: TableSchema, rows: list[Any], side: str | None = None) -> list[Any]:
    """Return what comes out: the operation and the number of each row."""
    out = operator.process(Chunk.from_rows(schema, rows), operator.sides[0] if side is None else side)
    return [(op, row[2]) for chunk in out for op, row in chunk.rows()]


KEPT: dict[str, Callable[[TableSchema], Operator]] = {
    "top-n": lambda schema: TopN(schema, ["id"], 5),
    "top-n of rows that only come": lambda schema: TopN(schema, ["id"], 5, append_only=True),
    "sessions": lambda schema: SessionWindow(schema, "at", 5),
    "filter": lambda schema: DynamicFilter(schema, TableSchema([Column("least", "int64")]), "at", ">"),
    "join": lambda schema: HashJoin(schema, schema, ["at"], ["at"]),
    "left join": lambda schema: HashJoin(schema, schema, ["at"], ["at"], "left_outer"),
}


@pytest.mark.parametrize("kind", SPELLINGS)
@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("ops", ["+-", "-+"])
def test_a_row_that_comes_and_goes_in_one_chunk_is_in_no_state(kind: str, name: str, ops: str) -> None:
    operator, schema = opened(KEPT[name](schema_of(kind))), schema_of(kind)
    one, other = (SPELLINGS[kind][3] * 2)[:2]
    found = changes(operator, schema, [(ops[0], (one, 1, 1)), (ops[1], (other, 1, 1)), ("+", (one, 1, 2))])
    assert {number for _, number in found} <= {1, 2}
    tables = [table for table in operator._tables.values() if "id" in table.schema.names]
    assert [row for table in tables for row in table.scan() if row[table.schema.place_of("id")] == 1] == []


@pytest.mark.parametrize("kind", TWICE)
def test_a_row_of_a_session_can_go(kind: str) -> None:
    sessions, schema = opened(SessionWindow(schema_of(kind), "at", 5)), schema_of(kind)
    one, other = (TWICE[kind] * 2)[:2]
    assert changes(sessions, schema, [("+", (one, 1, 1)), ("+", (one, 4, 2))]) == [("+", 1), ("+", 2)]
    assert changes(sessions, schema, [("-", (other, 1, 1))]) == [("-", 1), ("U-", 2), ("U+", 2)]


@pytest.mark.parametrize("kind", TWICE)
@pytest.mark.parametrize("call", ["count", "array_agg", "first_value", "min"])
def test_a_group_that_shows_the_same_gives_nothing(kind: str, call: str) -> None:
    one, other = (TWICE[kind] * 2)[:2]
    schema = schema_of(kind)
    agg = opened(HashAgg(schema, ["v"], [AggCall(call, "v")], cache_groups=0))
    agg.process(Chunk.from_rows(schema, [("+", (one, 1, 1)), ("+", (one, 1, 2))]))
    assert [chunk.ops for chunk in agg.barrier(1)] == [["+"]]
    agg.process(Chunk.from_rows(schema, [("-", (other, 1, 2)), ("+", (other, 1, 3))]))
    assert agg.barrier(2) == []


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["one first", "other first"])
@pytest.mark.parametrize(
    ("kind", "shown"), [("float64", "0.0"), ("float32", "0.10000000149011612"), ("decimal", "Decimal('1')")]
)
def test_a_group_shows_one_form_of_equal_values_whichever_came_first(
    kind: str, shown: str, order: tuple[int, int]
) -> None:
    spellings = {
        "float64": (0.0, -0.0),
        "float32": (0.1, nearest_float32(0.1)),
        "decimal": (Decimal(1), Decimal("1.00")),
    }
    schema = schema_of(kind)
    agg = opened(HashAgg(schema, ["v"], [AggCall(call, "v") for call in ("min", "last_value", "array_agg")]))
    rows = [("+", (spellings[kind][place], 1, number)) for number, place in enumerate(order)]
    agg.process(Chunk.from_rows(schema, rows))
    ((_, row),) = agg.barrier(1)[0].rows()
    assert repr(row) == f"({shown}, {shown}, {shown}, [{shown}, {shown}])"


@pytest.mark.parametrize("kind", TWICE)
def test_the_value_of_a_filter_can_go(kind: str) -> None:
    schema, value = schema_of(kind), TableSchema([Column("least", kind, nullable=True)])
    above = opened(DynamicFilter(schema, value, "v", ">="))
    one, other = (TWICE[kind] * 2)[:2]
    changes(above, schema, [("+", (one, 1, 1))], "left")
    changes(above, value, [("+", (one,))], "right")
    assert [op for chunk in above.barrier(1) for op in chunk.ops] == ["+"]
    changes(above, value, [("-", (other,))], "right")
    assert [op for chunk in above.barrier(2) for op in chunk.ops] == ["-"]


# Over numbers and over what stands for them --------------------------------------------------------------------------

NUMBERS = TableSchema(
    [
        Column("k", "int64", nullable=True),
        Column("v", "int64", nullable=True),
        Column("at", "int64"),
        Column("id", "int64"),
    ],
    ["k", "id"],
)

numbers = st.none() | st.integers(0, 3)
rows = st.tuples(numbers, numbers, st.integers(0, 6))

UNARY: dict[str, Callable[[TableSchema], Operator]] = {
    "sums": lambda one: HashAgg(one, ["k"], [AggCall("count"), AggCall("sum", "at")], cache_groups=1),
    "extremes": lambda one: HashAgg(one, ["k"], [AggCall("min", "at"), AggCall("max", "at")], cache_rows=1),
    "distinct": lambda one: HashAgg(one, ["at"], [AggCall("count", "v", distinct=True), AggCall("count", "k")]),
    "all rows": lambda one: SimpleAgg(one, [AggCall("count", "v", distinct=True), AggCall("sum", "at")]),
    "top-n": lambda one: TopN(one, ["v desc"], 2),
    "group top-n": lambda one: GroupTopN(one, ["k"], ["v"], 1, cache_groups=1),
    "group top-n with ties": lambda one: GroupTopN(one, ["k", "at"], ["v"], 1, with_ties=True),
    "view": lambda one: Materialize(TableSchema(one.columns, ["k", "v"]), stream_key=["k"]),
    "view of the first": lambda one: Materialize(TableSchema(one.columns, ["k"]), "ignore"),
    "view of the newest": lambda one: Materialize(TableSchema(one.columns, ["at"]), "update_if_newer", "v"),
    "sessions": lambda one: SessionWindow(one, "at", 2, ["k"]),
}

BINARY: dict[str, Callable[[TableSchema, TableSchema], Operator]] = {
    "join": lambda one, other: HashJoin(one, other, ["k"], ["k"], cache_keys=1),
    "join by two": lambda one, other: HashJoin(one, other, ["k", "v"], ["k", "v"], null_safe=[True, False]),
    "full join": lambda one, other: HashJoin(one, other, ["k"], ["v"], "full_outer", cache_keys=1),
    "anti join": lambda one, other: HashJoin(one, other, ["k"], ["k"], "left_anti", null_safe=True),
    "interval join": lambda one, other: IntervalJoin(one, other, ["k"], ["k"], "at", "at", -1, 2, "left_outer"),
    "temporal join": lambda one, other: TemporalJoin(one, other, ["k"], ["k"], "at", "at"),
}


def logs_of(
    make: Callable[[Spelling], Operator], schemas: dict[str, TableSchema], kind: str, events: list[Any]
) -> list[Any]:
    """Return what comes out over numbers, and what comes out over values that stand for them."""
    logs = []
    for spelling in (Spelling("int64", "k v"), Spelling(kind, "k v")):
        spelled = {side: spelling.schema(schema) for side, schema in schemas.items()}
        history = History(lambda spelling=spelling: make(spelling), spelled, spelling=spelling)  # type: ignore[misc]
        history.run([*events, "barrier"])
        logs.append(history.log)
    return logs


@pytest.mark.parametrize("name", UNARY)
@settings(max_examples=6, deadline=None)
@given(kind=st.sampled_from([*SPELLINGS][1:]), history=edits(rows), refusals=st.lists(st.integers(0, 14), max_size=2))
def test_an_operator_takes_equal_values_for_one(name: str, kind: str, history: list[Any], refusals: list[int]) -> None:
    events = [("input", event[1]) if isinstance(event, tuple) else event for event in history]
    for place in refusals if name in ("sums", "extremes", "distinct", "all rows") else ():
        events.insert(place, "refuse")
    plain, spelled = logs_of(lambda spelling: UNARY[name](spelling.schema(NUMBERS)), {"input": NUMBERS}, kind, events)
    assert plain == spelled


@pytest.mark.parametrize("name", BINARY)
@settings(max_examples=6, deadline=None)
@given(kind=st.sampled_from([*SPELLINGS][1:]), history=edits(rows))
def test_a_join_takes_equal_values_for_one(name: str, kind: str, history: list[Any]) -> None:
    plain, spelled = logs_of(
        lambda spelling: BINARY[name](spelling.schema(NUMBERS), spelling.schema(NUMBERS)),
        {"left": NUMBERS, "right": NUMBERS},
        kind,
        history,
    )
    assert plain == spelled


@pytest.mark.parametrize("kind", sorted(SPELLINGS))
@pytest.mark.parametrize("comparison", ["=", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("one", range(4))
@pytest.mark.parametrize("other", range(4))
def test_values_compare_in_the_order_of_sql(kind: str, comparison: str, one: int, other: int) -> None:
    mine, yours = SPELLINGS[kind][one][0], SPELLINGS[kind][other][-1]
    wide = kind
    if kind == "float32":  # A literal is a double, and so is the other column here.
        yours, wide = nearest_float32(yours), "float64"
    schema = TableSchema([Column("v", kind), Column("w", wide), Column("id", "int64")], ["id"])
    chunk = Chunk.from_rows(schema, [("+", (mine, yours, 1))])
    join = opened(HashJoin(schema, schema, ["id"], ["id"], condition=("v", comparison, "w_right")))
    join.process(chunk, "left")
    found = [
        bool(Filter(schema, ("v", comparison, yours)).process(chunk)),
        bool(join.process(chunk, "right")),
        COMPARISONS[comparison](col("v"), col("w")).bind(schema).value(chunk.values[0]),
    ]
    assert found == [COMPARISONS[comparison](one, other)] * 3


def test_nan_is_found_among_values() -> None:
    for kind, make in (("float64", float), ("list<float64>", lambda text: [float(text)])):
        schema = TableSchema([Column("v", kind), Column("id", "int64")], ["id"])
        chunk = Chunk.from_rows(schema, [("+", (make("nan"), 1)), ("+", (make("1.5"), 2))])
        (found,) = Filter(schema, ("v", "in", [make("nan"), make("2.0")])).process(chunk)
        assert [row[1] for row in found.values] == [1]


@pytest.mark.parametrize("kind", TWICE)
def test_a_pipeline_takes_equal_values_for_one(kind: str) -> None:
    one, other = (TWICE[kind] * 2)[:2]
    pipeline = Pipeline()
    rows = pipeline.source("rows", {"id": "int64", "v": kind}, key=["v"])
    rows.materialize("by value")
    rows.select("v").distinct().materialize("values")
    rows.materialize("overwritten", key=["v"], conflict="overwrite")
    rows.group_by("v").top_n(1, order_by=["id"]).materialize("first")
    rows.join(rows, on="v").materialize("pairs")
    run = pipeline.run_local([{"rows": [(1, one), ("-", (1, other)), ("+", (2, other))]}, {"rows": [("-", (2, one))]}])
    results = ["by value", "values", "overwritten", "first", "pairs"]
    assert [run.changes(name)[0][1].ops for name in results] == [["+"]] * 5
    assert [run.rows(name) for name in results] == [[]] * 5
