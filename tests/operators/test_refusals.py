"""What operators refuse, of which nothing is taken: functions that fail, rows that go twice, watermarks, literals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace, VolatileObjectSpace
from objectspace.operators import (
    AggCall,
    Dedup,
    ExpressionError,
    Filter,
    GroupTopN,
    HashAgg,
    HashJoin,
    Hop,
    IntervalJoin,
    Operator,
    Pipeline,
    Project,
    SessionWindow,
    SimpleAgg,
    TemporalJoin,
    Union,
    WatermarkFilter,
    call,
    col,
    count,
)
from objectspace.relational import (
    Chunk,
    Column,
    InconsistentOperationError,
    RowError,
    SchemaError,
    SchemaMismatchError,
    TableSchema,
)
from objectspace.relational.chunk import is_insert

LEFT = TableSchema([Column("id", "int64"), Column("k", "int64"), Column("at", "int64")], ["id"])
RIGHT = TableSchema([Column("rid", "int64"), Column("k", "int64"), Column("since", "int64", nullable=True)], ["rid"])
SENT = TableSchema([Column("of", "int64"), Column("sent", "int64")], ["of"])
TIMED = TableSchema([Column("at", "int64"), Column("id", "int64")], ["id"])
AT_TWICE = TableSchema([Column("at", "int64"), Column("time", "int64"), Column("id", "int64")], ["id"])


def opened(operator: Any, space: Any = None) -> Any:
    operator.open(VolatileObjectSpace() if space is None else space, "o")
    return operator


def given(operator: Operator, schema: TableSchema, *changes: Any, side: str = "input") -> list[Any]:
    chunks = operator.process(Chunk.from_rows(schema, changes), side=side)
    return [change for chunk in chunks for change in chunk.rows()]


def net(changes: list[Any]) -> set[Any]:
    found: Counter[Any] = Counter()
    for op, row in changes:
        found[row] += 1 if is_insert(op) else -1
    return {row for row, times in found.items() if times}


JOINS: dict[str, Any] = {
    "hash": lambda: HashJoin(LEFT, RIGHT, ["k"], ["k"], "left_outer", condition=lambda row: row[2] >= row[5]),
    "interval": lambda: IntervalJoin(
        LEFT, RIGHT, ["k"], ["k"], "at", "rid", -99, 99, "left_outer", condition=lambda row: row[2] >= row[5]
    ),
}


@pytest.mark.parametrize("kind", JOINS)
def test_a_chunk_whose_condition_fails_is_not_taken(kind: str) -> None:
    join = opened(JOINS[kind]())
    out = given(join, LEFT, ("+", (1, 7, 50)), side="left")
    with pytest.raises(ExpressionError, match=r"failed for \(1, 7, 50, 2, 7, None\): TypeError"):
        given(join, RIGHT, ("+", (1, 7, 5)), ("+", (2, 7, None)), side="right")
    out += given(join, RIGHT, ("+", (1, 7, 5)), side="right")
    assert net(out) == {(1, 7, 50, 1, 7, 5)}
    out += given(join, RIGHT, ("-", (1, 7, 5)), side="right")
    assert net(out) == {(1, 7, 50, None, None, None)}


def test_a_condition_over_types_that_do_not_compare_is_refused() -> None:
    text = TableSchema([Column("rid", "int64"), Column("name", "string")], ["rid"])
    with pytest.raises(SchemaError, match="takes values of one type: found int64 and string"):
        HashJoin(LEFT, text, ["id"], ["rid"], condition=("k", "<", "name"))


def test_a_join_that_is_opened_again_forgets_watermarks_that_were_lost() -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    near = opened(IntervalJoin(TIMED, SENT, ["id"], ["of"], "at", "sent", lower=-10, upper=0), space)
    given(near, TIMED, ("+", (7, 1)), side="left")
    near.barrier(1)
    space.checkpoint(epoch=1)
    near.watermark("sent", 25, side="right")
    space = PersistedObjectSpace(store)
    opened(near, space).watermark("sent", 10, side="right")
    near.barrier(2)
    assert given(near, SENT, ("+", (1, 12)), side="right") == [("+", (7, 1, 1, 12))]


WATCHED: dict[str, tuple[Any, str, str]] = {
    "interval join": (IntervalJoin(TIMED, SENT, ["id"], ["of"], "at", "sent", lower=-10, upper=0), "at", "left"),
    "hop": (Hop(TIMED, "at", size=10, slide=5), "at", "input"),
    "union": (Union(TIMED), "at", "input0"),
    "dedup": (Dedup(TIMED, ["id"]), "at", "input"),
    "aggregate": (HashAgg(TIMED, ["at"], [AggCall("count")]), "at", "input"),
    "hop, another column": (Hop(AT_TWICE, "time", size=10, slide=5), "at", "input"),
}


@pytest.mark.parametrize("name", WATCHED)
@pytest.mark.parametrize("value", ["soon", 25.5])
def test_a_watermark_that_is_no_value_is_refused_and_leaves_nothing(name: str, value: Any) -> None:
    made, column, side = WATCHED[name]
    operator = opened(made)
    with pytest.raises(RowError, match="the watermark of 'at'"):
        operator.watermark(column, value, side=side)
    operator.watermark(column, 25, side=side)


def test_columns_of_a_chunk_are_found_by_their_names_or_refused() -> None:
    chunk = Chunk.from_rows(TableSchema([Column("v", "int64"), Column("id", "int64")], ["id"]), [("+", (500, 1))])
    pipeline = Pipeline()
    pipeline.source("e", {"id": "int64", "v": "int64"}, key=["id"]).filter(col("v") > 100).materialize("big")
    assert pipeline.run_local([{"e": chunk}]).rows("big") == [(1, 500)]
    operator = opened(pipeline.as_operator())
    with pytest.raises(SchemaMismatchError, match="the chunk has the columns"):
        operator.process(chunk, side="e")
    with pytest.raises(TypeError, match="takes a Chunk"):
        operator.process([("+", (1, 500))], side="e")


def test_a_top_n_of_an_append_only_input_takes_nothing_back() -> None:
    top = opened(GroupTopN(TIMED, [], ["at"], 2, append_only=True))
    given(top, TIMED, ("+", (1, 1)), ("+", (2, 2)), ("+", (3, 3)))
    with pytest.raises(InconsistentOperationError, match="append-only"):
        given(top, TIMED, ("-", (1, 1)))


def test_a_row_goes_from_its_session_once() -> None:
    sessions = opened(SessionWindow(TIMED, "at", gap=10))
    given(sessions, TIMED, ("+", (5, 1)))
    with pytest.raises(InconsistentOperationError, match="finds nothing under its key"):
        given(sessions, TIMED, ("-", (5, 1)), ("-", (5, 1)))
    assert given(sessions, TIMED, ("-", (5, 1))) == [("-", (5, 1, 5))]


VALUES = TableSchema([Column("v", "int64"), Column("d", "decimal"), Column("f", "float64")], ["v"])


@pytest.mark.parametrize("predicate", [("v", ">", "4"), ("v", "=", "5"), ("v", "in", 5), ("v", "in", ["5"])])
def test_literals_are_of_the_type_of_their_column(predicate: Any) -> None:
    with pytest.raises(SchemaError, match=r"the condition \('v'"):
        Filter(VALUES, predicate)


@pytest.mark.parametrize(
    "predicate", [("d", "=", 0.1), ("d", "in", [0.1]), ("f", "=", Decimal("0.1")), ("d", "<", 0.2), ("v", "=", 1.0)]
)
def test_a_decimal_beside_a_double_is_compared_as_a_double(predicate: Any) -> None:
    row = (1, Decimal("0.1"), 0.1)
    assert given(Filter(VALUES, predicate), VALUES, ("+", row)) == [("+", row)]


def test_a_group_key_may_be_text_also_where_windows_close() -> None:
    agg = opened(HashAgg(TIMED, "at", [AggCall("count")], emit_on_window_close=True))
    given(agg, TIMED, ("+", (1, 1)))
    agg.watermark("at", 2)
    assert [chunk.rows() for chunk in agg.barrier(1)] == [[("+", (1, 1))]]


@pytest.mark.parametrize("kind", ["float64", "decimal"])
def test_a_deviation_that_no_double_holds_is_infinite(kind: str) -> None:
    schema = TableSchema([Column("d", kind), Column("id", "int64")], ["id"])
    agg = opened(SimpleAgg(schema, [AggCall("stddev", "d")]))
    great = 1e200 if kind == "float64" else Decimal("1E+200")
    given(agg, schema, ("+", (great, 1)), ("+", (0 * great, 2)))
    assert agg.barrier(1)[0].rows() == [("+", (float("inf"),))]


def test_the_average_of_long_decimals_is_the_same_after_recovery() -> None:
    schema = TableSchema([Column("k", "int64"), Column("d", "decimal(38,20)"), Column("id", "int64")], ["id"])
    store, shown = CheckpointStore(":memory:"), []
    for epoch, texts in enumerate([("0.50", "0.25", "0.25000000000000000000"), ("1",)], 1):
        space = PersistedObjectSpace(store)
        agg = opened(HashAgg(schema, ["k"], [AggCall("avg", "d")]), space)
        given(agg, schema, *[("+", (1, Decimal(text), 10 * epoch + n)) for n, text in enumerate(texts)])
        shown += agg.barrier(epoch)[0].rows()
        space.checkpoint(epoch=epoch)
    assert shown[1] == ("U-", shown[0][1])


def test_without_a_stream_key_lists_tell_rows_apart_too() -> None:
    schema = TableSchema([Column("g", "string"), Column("v", "int64"), Column("tags", "list<string>")])
    agg = opened(HashAgg(schema, ["g"], [AggCall("min", "v")], cache_rows=1))
    given(agg, schema, ("+", ("a", 5, ["x"])), ("+", ("a", 5, ["y"])))
    assert agg.barrier(1)[0].rows() == [("+", ("a", 5))]
    given(agg, schema, ("-", ("a", 5, ["x"])))
    assert agg.barrier(2) == []


@pytest.mark.parametrize("rows", [[("a", 2), ("a", 1)], [("a", 1), ("a", 2)]])
def test_without_a_stream_key_the_least_row_of_an_epoch_is_kept(rows: list[Any]) -> None:
    plain = TableSchema([Column("k", "string"), Column("v", "int64")])
    dedup = opened(Dedup(plain, ["k"]))
    given(dedup, plain, *[("+", row) for row in rows])
    assert dedup.barrier(1)[0].rows() == [("+", ("a", 1))]


def test_names_of_columns_may_come_in_a_list() -> None:
    pipeline = Pipeline()
    rows = pipeline.source("rows", {"ab": "int64", "a": "int64", "b": "int64"}, key="ab", append_only=True)
    assert [name for name, _ in rows.schema.primary_key] == ["ab"]
    assert rows.select(["a", "b"]).columns == rows.drop(["ab"]).columns == ("a", "b")
    assert rows.dedup(["a"]).node.keys == rows.dedup("a").node.keys
    assert rows.group_by(["a", "b"]).names == rows.group_by("a", "b").names
    for give in (rows.select, rows.drop, rows.group_by, rows.dedup):
        with pytest.raises(SchemaError, match="a column is given by its name: found 5"):
            give([5])
    with pytest.raises(SchemaError, match=r"given by its name: found \('a', 'desc'\)"):
        rows.materialize("t", key=[("a", "desc")])  # type: ignore[list-item]


def test_one_text_is_one_name_wherever_names_are_given() -> None:
    schema = TableSchema([Column("ab", "int64"), Column("a", "int64"), Column("b", "int64")], "ab")
    rows = Chunk.from_rows(schema, [("+", (1, 5, 6)), ("-", (1, 5, 6)), ("+", (1, 7, 8))])
    join = opened(HashJoin(schema, schema, "ab", "ab", "left_semi"))
    temporal = TemporalJoin(schema, schema, "ab", "ab", "a", "a")
    assert given(join, schema, ("+", (1, 5, 6)), side="left") == []
    assert given(join, schema, ("+", (1, 7, 8)), side="right") == [("+", (1, 5, 6))]
    assert temporal.schema.names == TemporalJoin(schema, schema, ["ab"], ["ab"], "a", "a").schema.names
    assert Project(schema, "ab", "ab").schema.names == ("ab",)
    assert SessionWindow(schema, "a", 2, "ab").by == ("ab",)
    assert rows.compact("ab").rows() == rows.compact(["ab"]).rows() == [("+", (1, 7, 8))]


def test_what_is_given_to_a_builder_is_refused_in_words() -> None:
    pipeline = Pipeline()
    rows = pipeline.source("rows", {"id": "int64", "v": "int64"}, key=["id"])
    other: Any = rows.select("id", w="v")
    wrong: list[tuple[Any, str]] = [
        (lambda: rows.join(other.group_by("id"), on="id"), "expected a stream of the pipeline, found a Grouped"),
        (lambda: rows.join("rows", on="id"), "expected a stream of the pipeline, found a str"),
        (lambda: rows.join(other, on=col("id")), "on= takes names, or pairs of names"),
        (lambda: rows.join(other, on="id", how="outerr"), "'outerr': expected one of inner, left, right, full"),
        (lambda: rows.join(other, on="id", as_of=("v", "w", "x")), "as_of= takes"),
        (lambda: rows.top_n(1, [col("v")]), "order_by= takes columns"),
    ]
    for build, words in wrong:
        with pytest.raises(SchemaError, match=words):
            build()
    rows.materialize("t")
    with pytest.raises(RowError, match="source 'rows': expected rows, Arrow data or a data frame, found a int"):
        pipeline.run_local([{"rows": 5}])
    with pytest.raises(RowError, match="source 'rows': column 'v' is missing: the data has id"):
        pipeline.run_local([{"rows": pa.table({"id": [1]})}])
    with pytest.raises(RowError, match="source 'rows': expected Arrow data with columns, found a Int64Array"):
        pipeline.run_local([{"rows": pa.array([1])}])


def test_a_new_result_behind_many_joins_of_a_stream_with_itself_opens_at_once() -> None:
    def made(*, has_new: bool) -> Pipeline:
        pipeline = Pipeline()
        stream = pipeline.source("rows", {"id": "int64", "v": "int64"}, key=["id"])
        for _ in range(40):  # There are more than a trillion ways from the last one to the source.
            stream = stream.join(stream.select(id="id"), on="id", how="semi")
        stream.materialize("t")
        if has_new:
            stream.agg(n=count()).materialize("n")
        return pipeline

    store = CheckpointStore(":memory:")
    made(has_new=False).run_local([{"rows": [(1, 1), (2, 2)]}], PersistedObjectSpace(store))
    run = made(has_new=True).run_local([{"rows": [(1, 1), (2, 2)]}], PersistedObjectSpace(store))
    assert run.rows("n") == [(2,)]


def test_a_side_that_an_operator_does_not_have_is_refused_by_its_name() -> None:
    join = opened(HashJoin(LEFT, RIGHT, ["k"], ["k"]))
    with pytest.raises(ValueError, match="HashJoin has no side 'input': expected 'left' or 'right'"):
        given(join, LEFT, ("+", (1, 7, 50)))


GIVEN = {
    "text": lambda: "carrier",
    "list": lambda: ["carrier"],
    "set": lambda: {"carrier"},
    "keys": lambda: {"carrier": 1}.keys(),
    "iterator": lambda: iter(["carrier"]),
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_columns_may_be_given_as_anything_that_yields_names(given: Callable[[], Any]) -> None:
    source = Pipeline().source("s", {"id": "int64", "carrier": "string"}, key=["id"])
    assert source.sessions("id", 2, by=given()).columns == ("id", "carrier", "session_start")
    assert AggCall("array_agg", "id", order_by=given()).order_by == ("carrier",)


def _grouped() -> Any:
    return Pipeline().source("left", LEFT).group_by("k")


def _run(batches: Any) -> object:
    pipeline = Pipeline()
    pipeline.source("left", LEFT).materialize("kept")
    return pipeline.run_local(batches)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: Pipeline("state/x"), r"runs in one process.*objectspace\.spark\.Pipeline takes a location"),
        (lambda: Pipeline(shards=4), "in one shard"),
        (lambda: _grouped().count(), r"have no 'count': they are aggregated with agg\(\)"),
        (lambda: call(abs, "int64?", "k"), "write 'int64'; a result may be NULL"),
        (lambda: _run(5), "one for each epoch: found 5"),
        (lambda: _run([{"left": [("insert", (1, 2, 3))]}]), r"one of \+, -, U-, U\+, if 'insert' is to be"),
    ],
)
def test_what_another_library_would_take_is_refused_in_words(made: Callable[[], object], why: str) -> None:
    with pytest.raises((TypeError, AttributeError, SchemaError, RowError), match=why):
        made()


def test_a_pipeline_of_an_engine_takes_a_location_and_still_runs_in_this_process() -> None:
    class OfAnEngine(Pipeline):
        pass

    pipeline = OfAnEngine("state/x", shards=4)
    pipeline.source("left", LEFT).materialize("kept")
    assert pipeline.run_local([{"left": [(1, 2, 3)]}]).rows("kept") == [(1, 2, 3)]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: HashJoin(LEFT, RIGHT, ["k"], ["k"], cache_keys=1.5), r"cache_keys is 1\.5: expected a number from 0"),
        (lambda: HashJoin(LEFT, RIGHT, ["k"], ["k"], cache_keys=-1), "cache_keys is -1"),
        (lambda: HashAgg(LEFT, [], [AggCall("count")]), "at least one group column: SimpleAgg aggregates all rows"),
        (lambda: HashAgg(LEFT, ["k"], [AggCall("count")], cache_groups=True), "cache_groups is True"),
        (lambda: HashAgg(LEFT, ["k"], [AggCall("min", "at")], cache_rows=1.5), r"cache_rows is 1\.5"),
        (lambda: Hop(TIMED, "at", 4, 2, origin="x"), "origin of windows over at int64 not null is one of .*'x'"),
        (lambda: WatermarkFilter(TIMED, "at", True), r"the delay of 'at' \(int64\) is a int from 0 on: found True"),
        (lambda: WatermarkFilter(TIMED, "at", -1), r"the delay of 'at' \(int64\) is a int from 0 on: found -1"),
    ],
)
def test_numbers_that_are_none_are_refused_when_an_operator_is_made(made: Callable[[], Operator], said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        made()
