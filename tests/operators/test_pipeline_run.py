"""Runs in one process: epochs, recovery, several inputs, failures, plans and what is refused."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.operators import (
    Filter,
    LocalRun,
    Pipeline,
    PipelineChangedError,
    PipelineOperator,
    Stream,
    call,
    col,
    count,
    max_,
    min_,
    run_local,
    sum_,
)
from objectspace.relational import (
    Chunk,
    Column,
    RelationalError,
    RowError,
    SchemaError,
    StorageTable,
    TableSchema,
    tables,
)
from objectspace.testing import crash_everywhere
from tests.operators.flight_pipelines import BATCHES, FLIGHTS, built, counted, flights, named, per_carrier
from tests.operators.own_operators import Passing
from tests.operators.processors import Greatest


def test_several_inputs_are_aligned_at_the_barrier() -> None:
    run = built(named).run_local(BATCHES[:1])
    assert run.rows("named") == [("B6", 1, 20, None), ("UA", 2, 90, "United")]
    run.step(BATCHES[1])
    run.step(BATCHES[2])
    assert run.rows("named") == [("B6", 1, 40, "JetBlue"), ("UA", 2, 5, None)]
    assert run.epoch == run.position == 3


def test_a_run_that_keeps_no_changes_keeps_its_last_receipt_only() -> None:
    run = run_local(built(named), BATCHES, keep_changes=False)
    assert ([receipt.epoch for receipt in run.receipts], run.changes("named")) == ([3], [])


def test_the_same_batches_again_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    run_local(built(named), BATCHES[:2], path).close()
    again = run_local(built(named), BATCHES, path)
    assert [receipt.epoch for receipt in again.receipts] == [3]
    assert again.rows("named") == built(named).run_local(BATCHES).rows("named")
    again.close()
    once_more = run_local(built(named), BATCHES, path)
    assert once_more.receipts == []
    once_more.close()


def test_an_epoch_can_be_read_without_the_pipeline(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "state.db")
    built(counted).run_local(BATCHES, store)
    assert list(StorageTable(store, "delays/table", epoch=1).scan()) == [("B6", 1, 20), ("UA", 2, 90)]
    assert list(StorageTable(store, "delays/table", epoch=3).scan()) == [("B6", 1, 40), ("UA", 2, 5)]
    store.close()


def test_a_failure_between_the_barrier_and_the_checkpoint_loses_and_doubles_nothing() -> None:
    seen: list[int] = []

    def fails_once(epoch: int, changes: Chunk) -> None:
        seen.append(epoch)
        if seen.count(epoch) == 1:
            raise RuntimeError("the sink is down")

    pipeline = built(counted)
    Stream(pipeline, pipeline.results["delays"], ("carrier", "n", "worst")).sink("alerts", fails_once)
    run = LocalRun(pipeline)
    with pytest.raises(RuntimeError, match="the sink is down"):
        run.step(BATCHES[0])
    assert run.rows("delays") == []
    run.step(BATCHES[0])
    with pytest.raises(RuntimeError, match="the sink is down"):
        run.step(BATCHES[1])
    assert run.position == 1
    assert run.rows("delays") == [("B6", 1, 20), ("UA", 2, 90)]
    run.step(BATCHES[1])
    assert run.rows("delays") == [("B6", 2, 40), ("UA", 2, 5)]
    assert seen == [1, 1, 2, 2]


def test_bad_input_leaves_nothing_half_applied() -> None:
    run = built(named).run_local(BATCHES[:1])
    for bad, said in (
        ({"flights": [(9, "AA", 1)], "names": [("AA", 7)]}, "source 'names'.*column 'name'"),
        ({"flights": [(9, "AA", 1)], "weather": []}, "no source 'weather': its sources are flights, names"),
        ({"flights": [("U*", (9, "AA", 1))]}, "source 'flights'"),
    ):
        with pytest.raises(RowError, match=said):
            run.step(bad)
    run.step({})
    assert run.rows("named") == [("B6", 1, 20, None), ("UA", 2, 90, "United")]


@pytest.mark.parametrize(
    "rows",
    [
        [(1, "UA", 90), (2, "B6", None)],
        [{"id": 1, "carrier": "UA", "delay": 90}, {"op": "+", "id": 2, "carrier": "B6"}],
        [("+", (1, "UA", 90)), ["+", {"id": 2, "carrier": "B6"}]],
        pa.table({"id": [1, 2], "carrier": ["UA", "B6"], "delay": pa.array([90, None], pa.int64())}),
        pa.table({"op": ["+", "+"], "delay": pa.array([90, None], pa.int64()), "carrier": ["UA", "B6"], "id": [1, 2]}),
        pa.table({"id": [1, 2], "carrier": ["UA", "B6"], "delay": pa.array([90, None], pa.int64())}).to_reader(1),
        duckdb.sql("SELECT * FROM VALUES (1, 'UA', 90), (2, 'B6', NULL) AS t(id, carrier, delay)"),
        pd.DataFrame({"id": [1, 2], "carrier": ["UA", "B6"], "delay": pd.array([90, None], "Int64")}),
        Chunk.from_rows(flights(Pipeline()).schema, [("+", (1, "UA", 90)), ("+", (2, "B6", None))]),
    ],
    ids=[
        "tuples",
        "mappings",
        "pairs",
        "arrow",
        "arrow with operations",
        "arrow in batches",
        "stream",
        "pandas",
        "chunk",
    ],
)
def test_rows_come_in_many_forms(rows: Any) -> None:
    pipeline = Pipeline()
    flights(pipeline).materialize("all")
    assert pipeline.run_local([{"flights": rows}]).rows("all") == [(1, "UA", 90), (2, "B6", None)]


def test_an_update_may_change_the_key_of_a_row() -> None:
    pipeline = Pipeline()
    flights(pipeline).materialize("all").sink("changes")
    moved = [("U-", (1, "UA", 90)), ("U+", (7, "UA", 90)), ("U-", (2, "B6", None)), ("U+", (2, "B6", 5))]
    run = pipeline.run_local([{"flights": [(1, "UA", 90), (2, "B6", None)]}, {"flights": moved}])
    assert run.rows("all") == [(2, "B6", 5), (7, "UA", 90)]
    assert run.changes("changes")[1][1].rows() == [
        ("-", (1, "UA", 90)),
        ("U-", (2, "B6", None)),
        ("U+", (2, "B6", 5)),
        ("+", (7, "UA", 90)),
    ]


def test_an_update_of_nothing_sets_what_a_table_has_missed() -> None:
    pipeline = Pipeline()
    flights(pipeline).materialize("all")
    run = pipeline.run_local([{"flights": [(1, "UA", 90)]}, {"flights": [("U-", (1, "B6", 0)), ("U+", (1, "B6", 0))]}])
    assert run.rows("all") == [(1, "B6", 0)]


@pytest.mark.parametrize(
    "given", [pa.schema([("id", pa.int64()), ("s", pa.string())]), pd.DataFrame({"id": [1], "s": ["x"]})]
)
def test_a_source_takes_the_schema_of_what_it_is_given(given: Any) -> None:
    stream = Pipeline().source("s", given, key=["id"])
    assert [(one.name, str(one.type)) for one in stream.schema.columns] == [("id", "int64"), ("s", "string")]


def test_rows_without_a_key_are_numbered_whatever_their_order() -> None:
    def answer(rows: list[Any]) -> list[Any]:
        pipeline = Pipeline()
        pipeline.source("events", {"kind": "string", "n": "int64"}).materialize("all")
        return pipeline.run_local([{"events": rows}, {"events": rows}]).rows("all", hidden=True)

    rows = [("b", 1), ("a", 2), ("a", 2), ("a", 1)]
    assert answer(rows) == answer(rows[::-1])
    assert [row[:2] for row in answer(rows)] == [("a", 1), ("a", 2), ("a", 2), ("b", 1)] * 2


@pytest.mark.parametrize(
    "rows", [[(5, 2), (6, 1)], [{"_row": 1, "x": 6}, {"_row": 2, "x": 5}], pa.table({"x": [5, 6], "_row": [2, 1]})]
)
def test_a_key_may_be_called_as_what_numbers_rows(rows: Any) -> None:
    pipeline = Pipeline()
    pipeline.source("s", {"x": "int64", "_row": "int64"}, key=["_row"]).materialize("all")
    run = pipeline.run_local([{"s": rows}, {"s": [("-", (5, 2))]}])
    assert run.changes("all")[0][1].rows() == [("+", (6, 1)), ("+", (5, 2))]
    assert run.rows("all") == [(6, 1)]


def test_equal_rows_may_have_a_column_that_is_called_as_what_counts_them() -> None:
    pipeline = Pipeline()
    source = pipeline.source("s", {"id": "int64", "_rows": "int64", "__rows": "int64"}, key=["id"])
    source.select("_rows", "__rows").distinct().materialize("distinct")
    run = pipeline.run_local([{"s": [(1, 5, 0), (2, 5, 0), (3, 6, 0)]}, {"s": [("-", (1, 5, 0)), ("-", (3, 6, 0))]}])
    assert run.rows("distinct") == [(5, 0)]


def test_an_append_only_source_refuses_what_is_taken_back() -> None:
    pipeline = Pipeline()
    pipeline.source("events", {"n": "int64"}).agg(least=min_("n")).materialize("least")
    run = pipeline.run_local([{"events": [(5,), (3,)]}])
    assert run.rows("least") == [(3,)]
    with pytest.raises(RowError, match=r"source 'events': - .*only added"):
        run.step({"events": [("-", (3,))]})


def test_the_rows_of_an_epoch_in_any_order_give_the_same_state_and_changes() -> None:
    rows = [("+", (number, "ABC"[number % 3], number * 7 % 13)) for number in range(40)]

    def outcome(order: list[Any]) -> tuple[Any, ...]:
        store = CheckpointStore(":memory:")
        pipeline = built(named)
        run = pipeline.run_local([{"flights": order, "names": [("A", "a"), ("B", "b")]}], store)
        return store.database.execute("SELECT name, slot, value FROM current_item").fetchall(), run.changes("named")

    first = outcome(rows)
    for seed in range(3):
        assert outcome(random.Random(seed).sample(rows, len(rows))) == first


ORDERS: list[list[Any]] = [
    [("-", (1, 4)), ("+", (1, 5))],
    [("+", (1, 5)), ("-", (1, 4))],
    [("U-", (1, 4)), ("U+", (1, 5))],
    [("U+", (1, 5)), ("U-", (1, 4))],
    [("U-", (1, 4)), ("U+", (1, 9)), ("U-", (1, 9)), ("U+", (1, 5))],
    [("+", (1, 9)), ("+", (1, 5)), ("-", (1, 9)), ("-", (1, 4))],
]


@pytest.mark.parametrize("batch", ORDERS)
def test_a_new_row_may_come_before_the_old_one_of_its_key(batch: list[Any]) -> None:
    pipeline = Pipeline()
    source = pipeline.source("a", {"id": "int64", "v": "int64"}, key=["id"])
    source.materialize("rows")
    source.group_by("v").agg(n=count()).materialize("by_value")
    source.top_n(1, ["v desc"]).materialize("top", conflict="check")
    source.sink("log")
    run = pipeline.run_local([{"a": [(1, 4), (2, 0)]}, {"a": [("-", (2, 0)), *batch, ("+", (2, 3))]}])
    assert run.rows("rows") == [(1, 5), (2, 3)]
    assert run.rows("by_value") == [(3, 1), (5, 1)]
    assert run.rows("top") == [(1, 5)]
    log = [("U-", (1, 4)), ("U+", (1, 5)), ("U-", (2, 0)), ("U+", (2, 3))]
    assert run.changes("log")[1][1].rows() == log


def test_a_batch_means_the_same_in_every_order_of_its_rows() -> None:
    def outcome(changes: Sequence[Any]) -> Any:
        pipeline = Pipeline()
        source = pipeline.source("a", {"id": "int64", "t": "int64"}, key=["id"])
        source.materialize("rows")
        source.group_by("t").agg(n=count()).materialize("counts")
        source.watermark("t", 0).materialize("kept")
        run = pipeline.run_local([{"a": [(1, 10)]}, {"a": list(changes)}, {"a": [(3, 50)]}])
        return [run.rows(name) for name in ("rows", "counts", "kept")]

    chain = [("-", (1, 10)), ("+", (1, 100)), ("-", (1, 100)), ("+", (1, 20))]
    for changes in permutations(chain):
        assert outcome(changes) == [[(1, 20), (3, 50)], [(20, 1), (50, 1)], [(1, 20), (3, 50)]]
    came_and_went = [("+", (2, 100)), ("-", (2, 100))]
    assert outcome(came_and_went) == outcome(came_and_went[::-1]) == outcome([])
    moved = [("U-", (1, 10)), ("U+", (2, 10))]
    for pairs in permutations([moved, [("-", (2, 10))]]):
        assert outcome([change for pair in pairs for change in pair]) == outcome([("-", (1, 10))])
    for pairs in permutations([moved, [("U-", (2, 10)), ("U+", (4, 10))], [("U-", (4, 10)), ("U+", (5, 10))]]):
        assert outcome([change for pair in pairs for change in pair]) == outcome([("-", (1, 10)), ("+", (5, 10))])


@pytest.mark.parametrize("conflict", ["overwrite", "ignore"])
def test_a_conflict_rule_takes_the_rows_of_a_key_as_they_come(conflict: str) -> None:
    pipeline = Pipeline()
    source = pipeline.source("a", {"id": "int64", "v": "int64?"}, key=["id"])
    source.filter(col("id") > 0).materialize("rows", conflict=conflict)
    run = pipeline.run_local([{"a": [(1, 4), (1, 5), (2, 6), ("-", (2, None)), (3, 7), ("-", (3, None)), (3, 8)]}])
    assert run.rows("rows") == [(1, 5 if conflict == "overwrite" else 4), (3, 8)]


# Plans


def test_explain_shows_every_table_once_with_its_number_schema_and_key() -> None:
    pipeline = built(named)
    text = pipeline.explain()
    plan = pipeline.plan()
    assert [table.id for table in plan.tables()] == list(range(6))
    for table in plan.tables():
        assert text.count(f"table {table.id} '{table.name}': ") == 1
    assert "table 0 'named/table': carrier string not null, n int64 not null, worst int64, name string" in text
    assert "HashJoin(left_outer on carrier = _right_carrier)" in text
    assert "Source  [flights; key (id)]" in text
    run = pipeline.run_local(BATCHES)
    assert {table.name for table in plan.tables()} == set(tables(run.space))
    assert run.explain() == text


def test_a_stream_that_is_used_twice_is_one_operator() -> None:
    pipeline = Pipeline()
    delays = per_carrier(pipeline)
    delays.join(delays, on=[("worst", "worst")]).materialize("pairs")
    assert pipeline.explain().count("HashAgg(") == 1
    assert [node.label for node in pipeline.plan().nodes].count("HashAgg") == 1
    run = pipeline.run_local([{"flights": [(1, "A", 5), (2, "B", 5), (3, "C", 1)]}, {"flights": [("-", (2, "B", 5))]}])
    assert [(row[0], row[3]) for row in run.rows("pairs")] == [("A", "A"), ("C", "C")]


def test_a_way_of_many_operators_is_gone_to_its_end() -> None:
    pipeline = Pipeline()
    streams = [pipeline.source(f"s{place}", {"id": "int64", "v": "int64"}, key=["id"]) for place in range(120)]
    stream = reduce(Stream.union, streams)
    for least in range(900):
        stream = stream.filter(col("v") > least)
    stream.materialize("last", key=["v"], conflict="ignore")
    run = pipeline.run_local([{"s117": [(1, 900)], "s119": [(1, 899), (2, 901)]}])
    assert run.rows("last") == [(1, 900), (2, 901)]
    assert run.explain().count("─ Union  [") == 119
    (node,) = run.plan.stateful
    assert (len(node.outline), repr(node).count("Node(")) == (16, 1)


def test_a_plan_of_many_operators_with_state_costs_once_for_each() -> None:
    def cost(results: int) -> float:
        pipeline = Pipeline()
        source = pipeline.source("s", {"id": "int64", "v": "int64"}, key=["id"])
        for place in range(results):
            source.group_by("v").agg(n=count()).materialize(f"r{place}")
        started = time.process_time()
        text = pipeline.explain()
        taken = time.process_time() - started
        assert text.count(" table ") == 2 * results
        return taken

    assert min(cost(1_000) for _ in range(3)) < 9 * min(cost(250) for _ in range(3))


@pytest.mark.parametrize(
    "use",
    [
        lambda rows: rows.materialize("flights"),
        lambda rows: rows.through(lambda schema: Filter(schema, ("id", ">", 1)), "flights"),
        lambda rows: rows.apply(SimpleNamespace(process=lambda batch, space: []), "flights", {"n": "int64"}),
    ],
    ids=["materialize", "through", "apply"],
)
def test_what_keeps_state_has_not_the_name_of_a_source(use: Callable[[Stream], Stream]) -> None:
    pipeline = Pipeline()
    with pytest.raises(SchemaError, match="the pipeline has a source 'flights': choose another name"):
        use(flights(pipeline))


def test_a_source_has_not_the_name_of_what_keeps_state() -> None:
    pipeline = Pipeline()
    trains = pipeline.source("trains", FLIGHTS, key=["id"])
    trains.materialize("late")
    with pytest.raises(SchemaError, match="the pipeline has a result 'late': choose another name for the source"):
        pipeline.source("late", FLIGHTS, key=["id"])
    mine = trains.through(lambda schema: Filter(schema, ("id", ">", 1)), "flights")
    mine.union(flights(pipeline)).sink("all")
    with pytest.raises(SchemaError, match="a source and an operator of the pipeline have the name 'flights'"):
        pipeline.plan()


def test_two_names_of_a_kind_are_refused() -> None:
    pipeline = built(counted)
    with pytest.raises(SchemaError, match="has a result 'delays'"):
        Stream(pipeline, pipeline.results["delays"], ()).materialize("delays")
    with pytest.raises(SchemaError, match="has a source 'flights'"):
        flights(pipeline)
    with pytest.raises(SchemaError, match="no result: end a stream"):
        Pipeline().explain()
    with pytest.raises(SchemaError, match="without '/'"):
        Pipeline().source("a/b", FLIGHTS)
    with pytest.raises(SchemaError, match="'kvt' is no name of an operator: the key-value tables of a space lie under"):
        flights(Pipeline()).materialize("kvt")
    with pytest.raises(RelationalError, match=r"nothing is materialised as 'x': there is delays$"):
        pipeline.run_local([]).rows("x")
    without = Pipeline()
    flights(without).sink("log")
    with pytest.raises(
        SchemaError, match="materialised as 'log': this pipeline has no such result: build it as it ran"
    ):
        without.run_local([]).rows("log")


class Doubled(Passing):
    """An operator of a user: each number twice as great; it counts the rows that it saw."""

    def open(self, space: Any, name: str) -> None:
        self._seen = space.get_or_create_value(f"{name}/seen", 0)

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        self._seen.value += len(chunk)
        return [Chunk(self._schema, [op for op, _ in chunk.rows()], [(k, 2 * v) for _, (k, v) in chunk.rows()])]


def test_a_union_leaves_columns_that_are_called_as_its_key() -> None:
    pipeline = Pipeline()
    streams = [pipeline.source(name, {"_key": "string", "_branch": "string"}, key=["_key"]) for name in "ab"]
    streams[0].union(streams[1]).materialize("all")
    run = pipeline.run_local([{"a": [("x", "y")], "b": [("x", "y"), ("z", "w")]}, {"b": [("-", ("x", "y"))]}])
    assert sorted(run.rows("all")) == [("x", "y"), ("z", "w")]
    assert "primary key (__branch asc nulls first, __key asc nulls first)" in pipeline.explain()


def test_an_operator_of_ones_own_takes_part(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "state.db")
    pipeline = Pipeline()
    numbers = pipeline.source("numbers", {"k": "int64", "v": "int64"}, key=["k"])
    numbers.through(Doubled, "doubled").materialize("twice")
    run = pipeline.run_local([{"numbers": [(1, 10), (2, 20)]}, {"numbers": [("-", (1, 10))]}], store)
    assert run.rows("twice") == [(2, 40)]
    assert run.space.get_value("doubled/seen").value == 3
    run.space.close()
    other = Pipeline()
    other.source("numbers", {"k": "int64", "v": "int64"}, key=["k"]).materialize("twice")
    after = LocalRun(other, PersistedObjectSpace(store), drop_changed=True)
    assert "doubled/seen" not in after.space
    store.close()


def test_an_operator_of_ones_own_with_a_key_gives_the_same_in_one_process() -> None:
    pipeline = Pipeline()
    numbers = pipeline.source("numbers", {"k": "int64", "v": "int64"}, key=["k"])
    twice = numbers.through(Doubled, "doubled", key=["v"])
    twice.materialize("twice")
    run = pipeline.run_local([{"numbers": [(1, 10), (2, 20)]}])
    assert run.rows("twice") == [(1, 20), (2, 40)]
    assert twice.node.keys == (("v",),)
    assert "Doubled by v)" in run.explain()
    with pytest.raises(SchemaError, match="operator 'other': key column 'w': expected one of k, v"):
        numbers.through(Doubled, "other", key="w")


def test_a_sink_gives_the_changes_of_each_epoch() -> None:
    pipeline = Pipeline()
    flights(pipeline).filter(col("delay") > 15).sink("late")
    run = pipeline.run_local(BATCHES[:0])
    run.step({"flights": [(1, "UA", 90), (2, "B6", 20)]})
    run.step({"flights": [("U-", (1, "UA", 90)), ("U+", (1, "UA", 5))]})
    assert [(epoch, chunk.rows()) for epoch, chunk in run.changes("late")] == [
        (1, [("+", (1, "UA", 90)), ("+", (2, "B6", 20))]),
        (2, [("-", (1, "UA", 90))]),
    ]


def test_a_pipeline_survives_every_crash_point() -> None:
    pipeline = built(named)
    rows = [{"flights": [(n, "AB"[n % 2], n * 7 % 5), (n + 10, "C", None)]} for n in range(4)]
    names = {"names": [("A", "Alpha"), ("C", "Charlie")]}
    gone = {"flights": [("-", (0, "A", 0)), ("-", (11, "C", None))]}
    events = [*rows[:2], names, *rows[2:], gone]
    assert crash_everywhere(pipeline, events, events_per_epoch=2, storage=False) == 27


def test_a_pipeline_as_an_operator_names_its_sides_and_tables() -> None:
    operator = PipelineOperator(built(named))
    assert operator.sides == ("flights", "names")
    assert [role for role, _ in operator.state()][-1] == "named/table"
    assert operator.schema.names == ("carrier", "n", "worst", "name")
    with pytest.raises(SchemaError, match="no source 'weather': its sources are flights, names"):
        operator.process(Chunk(operator.schema, [], []), side="weather")


def test_windows_close_when_the_watermark_passes_and_their_state_goes() -> None:
    pipeline = Pipeline()
    events = pipeline.source("events", {"at": "int64", "v": "int64"}).watermark("at", delay=5)
    windows = events.window("at", 10).group_by("window_start").on_window_close()
    windows.agg(n=count(), total=sum_("v")).materialize("closed")
    run = pipeline.run_local([{"events": [(1, 1), (12, 2)]}, {"events": [(3, 3), (16, 4)]}])
    assert run.rows("closed") == [(0, 1, 1)]
    state = "events.WatermarkFilter.HashAgg/HashAggState"
    run.step({"events": [(2, 100), (31, 5)]})
    assert run.rows("closed") == [(0, 1, 1), (10, 2, 6)]
    (open_window,) = StorageTable(run.space, state).scan()
    assert open_window[0] == 30
    assert windows.stream.schema.watermark_column == "window_start"


def test_a_watermark_cleans_the_groups_that_it_closes() -> None:
    pipeline = Pipeline()
    events = pipeline.source("events", {"at": "int64"}).watermark("at", delay=0).filter(col("at") >= 0)
    events.window("at", 10, hop=5).group_by("window_start").agg(n=count()).materialize("windows")
    run = pipeline.run_local([{"events": [(n,) for n in range(start, start + 20)]} for start in (0, 20, 40)])
    assert run.rows("windows") == [(-5, 5), *((start, 10) for start in range(0, 55, 5)), (55, 5)]
    run.step({})
    kept = StorageTable(run.space, "events.WatermarkFilter.HashAgg/HashAggState").scan()
    assert [row[0] for row in kept] == [50, 55]


@pytest.mark.parametrize(
    ("least", "most", "column", "found"),
    [
        (None, 0, "t", "one on 'u'; group by that too, or take it"),
        (0, None, "u", "one on 't'; group by that too, or take it"),
        (-1, 1, "k", "one on 't' and one on 'u'; group by that too, or take it"),
        (None, None, "t", "none; take it"),
    ],
)
def test_groups_that_no_watermark_closes_are_refused(
    least: int | None, most: int | None, column: str, found: str
) -> None:
    pipeline = Pipeline()
    left, right = (
        pipeline.source(name, {"id": "int64", "k": "int64", time: "int64"}, key=["id"]).watermark(time, 0)
        for name, time in (("left", "t"), ("right", "u"))
    )
    near = left.join(right, on="k", within=("t", "u", least, most))
    with pytest.raises(SchemaError, match=rf"takes a watermark on a group column .*: the stream has {found}"):
        near.window(column, 10).group_by("window_start").on_window_close().agg(n=count())


WATCHED: dict[str, Callable[[Stream, Stream], Stream]] = {
    "join in time": lambda a, b: a.join(b, on="k", within=("at", "at", 5)),
    "full join in time": lambda a, b: a.join(b, on="k", how="full", within=("at", "at", 5)),
    "join in time of another column": lambda a, b: a.join(b, on="k", within=("id", "at", 5)),
    "join": lambda a, b: a.join(b, on=["k", "at"]),
    "semi join": lambda a, b: a.join(b, on=["k", "at"], how="semi"),
    "union": lambda a, b: a.union(b),
}


@pytest.mark.parametrize("watched", ["", "a", "b", "ab"])
@pytest.mark.parametrize("name", WATCHED)
def test_what_waits_for_watermarks_is_refused_where_none_come(name: str, watched: str) -> None:
    """The schema of a source may name a watermark column: that alone promises nothing."""
    pipeline = Pipeline()
    schema = TableSchema([Column(one, "int64") for one in ("id", "k", "at")], ["id", "at"], watermark_column="at")
    sources = {one: pipeline.source(one, schema) for one in "abc"}
    found = {one: stream.watermark("at", 0) if one in watched else stream for one, stream in sources.items()}
    met = WATCHED[name](found["a"], found["b"]).select("id", "k", "at")
    counts = met.window("at", 10).group_by("window_start").on_window_close()
    if watched != "ab" or "another" in name:
        with pytest.raises(SchemaError, match=r"takes a watermark on a group column .*: the stream has none"):
            counts.agg(n=count())
        with pytest.raises(SchemaError, match="as_of= waits for watermarks: the left side has none on 'at'"):
            met.join(sources["c"].watermark("at", 0), on="k", as_of=("at", "at"))
        return
    counts.agg(n=count()).materialize("closed")
    run = pipeline.run_local([{one: [(1, 1, at)] for one in "ab"} for at in (5, 100, 200)])
    assert [start for start, _ in run.rows("closed")] == [0, 100]


def test_a_source_whose_column_looks_like_the_operations_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"'op' is where changes say what they do: .* of Spark pass op_column="):
        Pipeline().source("s", {"id": "int64", "op": "string?"}, key=["id"])


OTHER = Pipeline().source("other", FLIGHTS, key=["id"])


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda s: s.group_by("carrier").agg(carrier=count()), "grouped by 'carrier' already"),
        (lambda s: s.group_by("carrier").on_window_close().top_n(1, "id"), "does not wait for on_window_close"),
        (
            lambda s: s.watermark("id", 0).window("id", 10).group_by("window_end").on_window_close().agg(n=count()),
            r"group column \(window_end\): the stream has one on 'window_start'; group by that too, or take it",
        ),
        (
            lambda s: s.select("id", d=lambda row: row.delay * 2),
            r"column 'd': give the type .*: \(function, 'int64'\), or",
        ),
        (lambda s: s.with_columns(d=lambda row: row.delay * 2), r"column 'd': give the type"),
        (lambda s: s.group_by(d=lambda row: row.delay // 10), r"column 'd': give the type"),
        (lambda s: s.select(d=("delay", "int32")), r"column 'd': expected \(function, type .* or cast it: col\("),
        (
            lambda s: s.select(d=call(abs, "int64", lambda row: row.delay)),
            r"argument of call\(\) is a function: give it as call",
        ),
        (lambda s: s.join(OTHER, on="id"), "a stream of another pipeline"),
        (lambda s: s.union(OTHER), "a stream of another pipeline"),
        (lambda s: s.filter_by("id", "<", OTHER.agg(most=max_("id"))), "a stream of another pipeline"),
        (lambda s: s.sink("out", 5), r"sink 'out': expected a function of the epoch and its changes, found 5"),
        (lambda s: s.select(d=col(1)), "a column is given by its name: found 1"),
        (lambda s: s.watermark(col("id"), 1), r"a column is given by its name: found Expression\(id\)"),
        (lambda s: s.window(col("id"), 1), r"a column is given by its name: found Expression\(id\)"),
        (lambda s: s.sessions("id", 1, by=[col("carrier")]), r"a column is given by its name: found Expression"),
        (
            lambda s: s.agg(n=max_(col("delay") * 2)),
            r"max takes names of columns: found Expression\(\(delay \* 2\)\): compute it before: with_columns",
        ),
    ],
)
def test_what_would_be_passed_over_in_silence_is_refused(use: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        use(flights(Pipeline()))


def test_a_filter_of_an_aggregate_leaves_columns_that_are_called_as_its_own() -> None:
    pipeline = Pipeline()
    rows = flights(pipeline).with_columns(_where_n="delay")
    rows.group_by("carrier").agg(n=count(filter=col("delay") > 10), most=max_("_where_n")).materialize("r")
    with pipeline.run_local([{"flights": BATCHES[0]["flights"]}]) as run:
        assert run.rows("r") == [("B6", 1, 20), ("UA", 1, 90)]


def test_a_function_of_a_filter_of_an_aggregate_that_takes_a_row_is_told_what_it_takes() -> None:
    with pytest.raises(SchemaError, match=r"takes columns as its parameters, as in lambda id: id > 1"):
        flights(Pipeline()).agg(n=count(filter=lambda row: row.delay > 1))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("id long", r"a schema is a mapping of names to types, .* found the text 'id long'"),
        ({"id": "long"}, "there is no type 'long': write int64; types are"),
        ({"id": "int64", "v": "array<string>"}, "there is no type 'array': write list<T>; types are"),
        ({"id": "int64", "v": "uuid"}, "there is no type 'uuid'; types are"),
        ({"k": "int64"}, "there is no column 'id'"),
        ({"id": int}, "column 'id': a type is text such as 'int64': found <class 'int'>"),
    ],
)
def test_what_is_no_schema_of_a_source_is_refused_with_its_name(schema: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=f"source 's': .*{message}"):
        Pipeline().source("s", schema, key=["id"])


def test_what_is_no_key_is_refused_with_the_name_of_its_owner() -> None:
    source = Pipeline().source("s", {"id": "int64"}, key=["id"])
    said = r"'own': a key is names of columns: found None: leave it out if there is none"
    for give in (
        lambda key: Pipeline().source("own", {"id": "int64"}, key=key),
        lambda key: source.through(Passing, "own", key=key),
        lambda key: source.apply(Greatest(), "own", {"id": "int64"}, output_key=key),
    ):
        with pytest.raises(SchemaError, match=said):
            give(None)
    with pytest.raises(SchemaError, match=r"source 's': the hidden column '_row' numbers the rows .*: give yours"):
        Pipeline().source("s", {"_row": "int64"})


@pytest.mark.parametrize("use", [lambda s: s.agg(n=5), lambda s: s.drop("nosuch")])
def test_what_is_no_call_and_no_column_is_refused(use: Any) -> None:
    with pytest.raises(SchemaError, match=r"takes a call|nosuch"):
        use(Pipeline().source("s", {"id": "int64"}, key=["id"]))


@pytest.mark.parametrize("row", [5, None])
def test_what_is_no_row_is_refused_in_words(row: Any) -> None:
    pipeline = Pipeline()
    pipeline.source("s", {"id": "int64"}, key=["id"]).materialize("r")
    with pytest.raises(RowError, match=r"source 's': .* a row is a tuple, a list or a mapping"):
        pipeline.run_local([{"s": [row]}])


def test_columns_to_join_on_come_one_by_one_or_in_pairs() -> None:
    pipeline = Pipeline()
    left, right = (pipeline.source(name, {"id": "int64", "k": "int64"}, key=["id"]) for name in ("left", "right"))
    with pytest.raises(SchemaError, match="on= takes names, or pairs"):
        left.join(right, on=[("id", "k", "id")])  # type: ignore[list-item]


def test_what_is_held_back_comes_before_the_watermark_that_it_is_below() -> None:
    """The watermark of the aggregation is window 2 when it still has to give one of 0: its reader must not forget 0."""
    pipeline = Pipeline()
    stream = pipeline.source("s", {"id": "int64", "k": "string", "v": "int64"}, key=["id"])
    counts = stream.watermark("v", 0).window("v", 4, hop=2).group_by("window_start", "k").agg(n=count())
    counts.group_by("window_start").top_n(1, ["n desc", "k"]).materialize("r")
    epochs = [[("+", (0, "x", 2))], [("+", (1, "z", 4)), ("+", (2, "z", 3))]]
    run = pipeline.run_local([{"s": rows} for rows in epochs])
    assert sorted(run.rows("r")) == [(0, "x", 1), (2, "z", 2), (4, "z", 1)]


def test_no_result_takes_the_name_under_which_other_state_is_stored(tmp_path: Path) -> None:
    def made(pipeline: Pipeline, *others: str) -> None:
        rows = flights(pipeline)
        rows.group_by("carrier").agg(n=count()).materialize("r")
        for name in others:
            rows.materialize(name)

    batches = [{"flights": batch["flights"]} for batch in BATCHES[:2]]
    built(made).run_local(batches, tmp_path / "x.db").close()
    for drop_changed in (False, True):
        with pytest.raises(SchemaError, match=r"stored under the name 'flights.HashAgg'"):
            built(lambda pipeline: made(pipeline, "flights.HashAgg")).run_local(
                batches, tmp_path / "x.db", drop_changed=drop_changed
            )


def test_a_column_called_as_a_number_is_another_condition_than_the_number(tmp_path: Path) -> None:
    def compared(with_: Any) -> Pipeline:
        pipeline = Pipeline()
        rows = pipeline.source("rows", {"id": "int64", "v": "int64", "5": "int64"}, key=["id"])
        rows.filter(col("v") > with_).group_by("v").agg(n=count()).materialize("r")
        return pipeline

    batches = [{"rows": [(1, 1, 0), (2, 9, 20)]}]
    run = compared(col("5")).run_local(batches, tmp_path / "x.db")
    assert run.rows("r") == [(1, 1)]
    run.close()
    with pytest.raises(PipelineChangedError):
        compared(5).run_local(batches, tmp_path / "x.db")


def test_a_batch_that_is_no_mapping_is_refused_in_words() -> None:
    run = built(counted).run_local([])
    with pytest.raises(TypeError, match=r"a batch is a mapping of the names .* found a list, \[\('flights', \[\]\)\]"):
        run.step([("flights", [])])  # type: ignore[arg-type]
    assert run.step(BATCHES[0]).epoch == 1


def test_a_column_called_as_a_call_is_not_taken_for_the_call(tmp_path: Path) -> None:
    lengths = {"column": col("length(a)"), "call": col("a").length()}

    def counting(*names: str) -> Pipeline:
        pipeline = Pipeline()
        rows = pipeline.source("rows", {"id": "int64", "length(a)": "int64", "a": "string"}, key=["id"])
        for name in names:
            rows.filter(lengths[name] > 1).agg(n=count()).materialize(name)
        return pipeline

    counting("column", "call").run_local(
        [{"rows": [(1, 0, "abc"), (2, 0, "abc"), (3, 5, "a")]}], tmp_path / "x.db"
    ).close()
    run = counting("call", "column").run_local([], tmp_path / "x.db")
    run.step({"rows": [(4, 0, "abc")]})
    assert (run.rows("call"), run.rows("column")) == ([(3,)], [(1,)])


def test_a_source_or_result_that_comes_after_a_run_was_opened_is_refused_and_another_run_takes_it() -> None:
    pipeline, seen = Pipeline(), list[int]()
    rows = pipeline.source("rows", {"id": "int64"}, key=["id"])
    rows.materialize("all")
    run = pipeline.run_local([{"rows": [(1,)]}])
    pipeline.source("more", {"id": "int64"}, key=["id"]).materialize("late")
    rows.sink("told", lambda epoch, chunk: seen.append(epoch))
    refused = r"the pipeline got source 'more', result 'late', result 'told' after this run was opened: close it"
    for call_ in (lambda: run.step({"more": [(1,)]}), lambda: run.rows("late"), lambda: run.changes("told")):
        with pytest.raises(PipelineChangedError, match=refused):
            call_()
    assert (run.position, run.rows("all")) == (1, [(1,)])
    with pipeline.run_local([{"rows": [(1,)], "more": [(2,)]}]) as again:
        assert (again.rows("late"), seen) == ([(2,)], [1])


def test_a_column_that_is_replaced_stays_in_its_place_and_new_ones_come_last() -> None:
    pipeline = Pipeline()
    rows = pipeline.source("s", {"self": "int64", "a": "int64", "b": "int64"}, key=["self"])
    replaced = rows.with_columns(c=col("b") + 1, a=col("a") * 2)
    replaced.materialize("r")
    rows.union(rows.with_columns(a=col("a") + 1)).materialize("both")
    with pipeline.run_local([{"s": [(1, 10, 20)]}]) as run:
        assert replaced.columns == ("self", "a", "b", "c")
        assert run.rows("r") == [(1, 20, 20, 21)]
        assert sorted(row[-3:] for row in run.rows("both")) == [(1, 10, 20), (1, 11, 20)]


def test_state_goes_on_where_replaced_columns_came_last() -> None:
    pipeline = Pipeline()
    rows = pipeline.source("s", {"id": "int64", "a": "int64", "b": "int64"}, key=["id"])
    grouped = rows.group_by(a=col("a") % 3).agg(n=count())
    assert grouped.node.inputs[0].structure == "id, b, (a % 3) as a"
    assert rows.select("id", "b", a=col("a") % 3).node.structure == "id, b, (a % 3) as a"
    assert rows.with_columns(c="a").node.structure == "id, a, b, a as c"
