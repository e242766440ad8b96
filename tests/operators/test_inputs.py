"""What operators take: the columns of their input, rows told apart by its stream key, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from objectspace import CheckpointProtocolError, VolatileObjectSpace
from objectspace.operators import (
    AggCall,
    Apply,
    Chunk,
    Dedup,
    DynamicFilter,
    Filter,
    GroupTopN,
    HashAgg,
    HashJoin,
    Materialize,
    Operator,
    Pipeline,
    SessionWindow,
    TemporalJoin,
    TopN,
    Tumble,
    Union,
    WatermarkFilter,
    col,
    count,
)
from objectspace.relational import Column, RowError, SchemaError, SchemaMismatchError, StateTable, TableSchema
from tests.operators.processors import Greatest

COLUMNS = [Column("g", "int64"), Column("v", "int64"), Column("id", "int64")]
KEYED = TableSchema(COLUMNS, ["id"])

MADE: dict[str, Callable[[TableSchema], Operator]] = {
    "hash agg": lambda schema: HashAgg(
        schema, ["g"], [AggCall("count"), AggCall("max", "v"), AggCall("array_agg", "v")]
    ),
    "dedup": lambda schema: Dedup(schema, ["g"]),
    "filter": lambda schema: Filter(schema, ("v", ">", 0)),
    "group top n": lambda schema: GroupTopN(schema, ["g"], ["v"], limit=5),
    "hash join": lambda schema: HashJoin(schema, schema, ["g"], ["g"]),
    "materialize": Materialize,
    "checked": lambda schema: Materialize(schema, "check"),
    "sessions": lambda schema: SessionWindow(schema, "v", 10, ["g"]),
    "temporal join": lambda schema: TemporalJoin(schema, schema, ["g"], ["g"], "v", "v"),
    "top n": lambda schema: TopN(schema, ["v"], limit=5),
    "union": Union,
}

every_operator = pytest.mark.parametrize("name", sorted(MADE))


def opened(name: str, schema: TableSchema = KEYED) -> Operator:
    operator = MADE[name](schema)
    operator.open(VolatileObjectSpace(), "o")
    return operator


def side_of(operator: Operator) -> str:
    return operator.sides[0]


@every_operator
@pytest.mark.parametrize("order", [[2, 0, 1], [0, 1], [1, 0, 2]])
def test_a_chunk_with_other_columns_is_refused(name: str, order: list[int]) -> None:
    operator = opened(name)
    other = TableSchema([COLUMNS[place] for place in order], [COLUMNS[order[0]].name])
    chunk = Chunk.from_rows(other, [("+", tuple(range(len(order))))])
    with pytest.raises(
        SchemaMismatchError, match=r"the chunk has the columns.*: (column '|the order of the columns: exp)"
    ):
        operator.process(chunk, side_of(operator))
    assert [out.rows() for out in operator.barrier(1)] == []


@every_operator
def test_what_is_no_chunk_is_refused(name: str) -> None:
    operator = opened(name)
    with pytest.raises(TypeError, match="takes a Chunk"):
        operator.process([("+", (1, 2, 3))], side_of(operator))  # type: ignore[arg-type]


KEEPING: dict[str, Callable[[TableSchema], Operator]] = {
    **{name: make for name, make in MADE.items() if name not in ("filter", "union")},
    "adding up": lambda schema: HashAgg(schema, ["g"], [AggCall("count"), AggCall("sum", "v")]),
    "apply": lambda schema: Apply(schema, Greatest(), "greatest", TableSchema([COLUMNS[0]], ["g"]), ["g"]),
    "dynamic filter": lambda schema: DynamicFilter(schema, TableSchema([COLUMNS[1]]), "v", ">"),
    "watermark filter": lambda schema: WatermarkFilter(schema, "v", 1),
}


@pytest.mark.parametrize("name", sorted(KEEPING))
def test_an_operator_that_keeps_state_takes_nothing_before_it_is_open(name: str) -> None:
    operator = KEEPING[name](KEYED)
    chunk = Chunk.from_rows(KEYED, [("+", (1, 2, 3))])
    for use in (lambda: operator.process(chunk, side_of(operator)), lambda: operator.barrier(1)):
        with pytest.raises(CheckpointProtocolError, match=r"is not open: call open\(space, name\)"):
            use()
    operator.open(VolatileObjectSpace(), "o")
    assert [out.rows() for out in operator.barrier(1)] == []


# Dedup takes no row back, a checked view no changes out of order.
@pytest.mark.parametrize("name", sorted(MADE.keys() - {"dedup", "checked"}))
@pytest.mark.parametrize("key", [["id"], ["g", "v", "id"], ["g"]])
def test_it_is_the_stream_key_of_the_input_that_tells_rows_apart(name: str, key: list[str]) -> None:
    """A row is replaced by another one of its key, and the new one comes first, as after a shuffle."""
    chunk = TableSchema(COLUMNS, key)
    found = []
    for schema in (KEYED, chunk):
        operator = opened(name)
        side = side_of(operator)
        outputs = operator.process(Chunk.from_rows(schema, [("+", (1, 5, 1)), ("+", (2, 7, 2))]), side)
        outputs += operator.process(Chunk.from_rows(schema, [("+", (1, 6, 1)), ("-", (1, 5, 1))]), side)
        outputs += operator.barrier(1)
        tables = {role: list(table.scan()) for role, table in operator._tables.items()}
        found.append(([out.rows() for out in outputs], tables))
    assert found[0] == found[1]


def test_a_table_takes_no_chunk_with_other_columns() -> None:
    table = StateTable(VolatileObjectSpace(), "t", KEYED)
    other = TableSchema([COLUMNS[2], *COLUMNS[:2]], ["id"])
    with pytest.raises(SchemaMismatchError, match=r"table 't' has .*: the order of the columns: the chunk"):
        table.write_chunk(Chunk.from_rows(other, [("+", (1, 2, 3))]))
    assert list(table.scan()) == []


def test_without_a_stream_key_the_whole_row_is_the_key() -> None:
    agg = opened("hash agg", TableSchema(COLUMNS))
    agg.process(Chunk.from_rows(KEYED, [("+", (1, 1, 0)), ("+", (1, 3, 0)), ("+", (1, 2, 0))]))
    assert [out.rows() for out in agg.barrier(1)] == [[("+", (1, 3, 3, [1, 2, 3]))]]
    agg.process(Chunk.from_rows(KEYED, [("-", (1, 3, 0))]))
    assert [out.rows() for out in agg.barrier(2)] == [[("U-", (1, 3, 3, [1, 2, 3])), ("U+", (1, 2, 2, [1, 2]))]]


@pytest.mark.parametrize(
    "filter_", [("v", ">", 1), ["v", ">", 1], [("v", ">", 1)], lambda v: v > 1, col("v") > 1, col("v") + 0 > 1]
)
def test_a_call_takes_every_form_of_a_condition(filter_: Any) -> None:
    agg = HashAgg(KEYED, "g", [AggCall("count"), AggCall("sum", "v", filter=filter_), AggCall("count", filter=filter_)])
    agg.open(VolatileObjectSpace(), "o")
    agg.process(Chunk.from_rows(KEYED, [("+", (1, value, value)) for value in (1, 2, 3)]))
    assert [out.rows() for out in agg.barrier(1)] == [[("+", (1, 3, 5, 2))]]


def test_one_column_may_be_given_as_text() -> None:
    assert GroupTopN(KEYED, "g", ["v"], limit=1)._group_key == ["g"]
    assert Dedup(KEYED, "g").schema.primary_key == TableSchema(COLUMNS, ["g"]).primary_key
    assert TableSchema(COLUMNS, "id desc") == TableSchema(COLUMNS, ["id desc"])
    with pytest.raises(SchemaError, match="None"):
        TableSchema(COLUMNS, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ([("v", "<", "v_right"), ("id", "<", "id_right")], "a condition is"),
        ((1, "<", 17), "6 columns"),
        ("v", "a cond"),
    ],
)
def test_conditions_of_a_join_without_meaning_are_refused(condition: Any, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        HashJoin(KEYED, KEYED, ["g"], ["g"], condition=condition)


def test_the_rows_of_a_chunk_that_a_pipeline_is_given_are_brought_into_form() -> None:
    """In the hour that comes twice Python finds one instant unlike itself in two time zones."""
    pipeline = Pipeline()
    events = pipeline.source("events", {"id": "int64", "at": "timestamptz"}, key=["id"])
    events.window("at", timedelta(hours=1)).group_by("window_start").agg(n=count()).materialize("windows")
    at = datetime(2020, 10, 25, 0, 30, tzinfo=UTC)
    rows = [(1, at), (2, at.astimezone(ZoneInfo("Europe/Berlin"))), (3, at)]
    run = pipeline.run_local([{"events": Chunk(events.schema, ["+"] * 3, rows)}])
    assert run.rows("windows") == [(at.replace(minute=0), 3)]
    with pytest.raises(RowError, match=r"source 'events': column 'at' .*it takes no NULL"):
        run.step({"events": Chunk(events.schema, ["+"] * 2, [(4, at), (5, None)])})


def test_a_source_refuses_arrow_data_with_two_columns_of_one_name() -> None:
    pipeline = Pipeline()
    pipeline.source("events", {"id": "int64"}, key=["id"]).materialize("all")
    data = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    with pytest.raises(RowError, match="source 'events': column 'id' is there more than once"):
        pipeline.run_local([{"events": data}])


@pytest.mark.parametrize("ops", [["+", "+"], ["-", "+"]])
def test_a_window_takes_no_row_that_does_not_fit_its_schema(ops: list[Any]) -> None:
    schema = TableSchema([Column("at", "int64"), Column("v", "int64")], ["at"])
    with pytest.raises(RowError, match="column 'v'"):
        Tumble(schema, "at", 10).process(Chunk(schema, ops, [(1, 1), (2, None)]))


def test_none_is_no_rows_of_a_source_and_the_batch_is_not_counted() -> None:
    pipeline = Pipeline()
    pipeline.source("s", COLUMNS, key=["id"]).materialize("r")
    run = pipeline.run_local([])
    with pytest.raises(RowError, match=r"source 's': found None: give no rows as \[\], or leave the source out"):
        run.step({"s": None})
    assert run.position == 0
