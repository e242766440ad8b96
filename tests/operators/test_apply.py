"""Objects of users in a pipeline: what they get, what they may return, and what comes of it behind them."""

from __future__ import annotations

from collections import Counter
from random import Random
from threading import Lock
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace, SpacePart, VolatileObjectSpace
from objectspace.kvt import UTF8, KeyValueTableConfiguration, KeyValueTableManager, NoSuchTableError
from objectspace.operators import LocalRun, Pipeline, count, sum_
from objectspace.operators.apply import Apply
from objectspace.operators.events import Average, Chain, GroupBy, Select, SelectMany, Take, Window
from objectspace.relational import Chunk, Column, EpochError, RowError, SchemaError, TableSchema
from objectspace.testing import crash_everywhere
from tests.operators.pipeline_trees import EDITS, SCHEMA, World
from tests.operators.processors import GREATEST, Greatest, expected, greatest

FLIGHTS = {"id": "int64", "carrier": "string", "delay": "int64?"}
LONGEST = {"carrier": "string", "delay": "int64"}


def pipeline_of_greatest() -> Pipeline:
    pipeline = Pipeline()
    greatest(pipeline.source("a", SCHEMA, key=["id"]))
    return pipeline


class Says:
    """Returns what it is told to, whatever comes."""

    def __init__(self, *answers: Any) -> None:
        self.answers = answers

    def process(self, batch: Any, space: Any) -> Any:
        calls = space.get_or_create_value("calls", 0)
        calls.value += 1
        return self.answers[(calls.value - 1) % len(self.answers)]


class Notes:
    """Keeps in the space what it gets."""

    def process(self, batch: Any, space: Any) -> None:
        space.get_or_create_list("seen").append([list(row.values()) for row in batch.to_pylist()])
        space.get_or_create_value("columns").value = batch.schema.names


def run_of(processor: Any, epochs: list[Any], *, append_only: bool = False, **options: Any) -> LocalRun:
    """Run an object over the flights of some epochs."""
    pipeline = Pipeline()
    flights = pipeline.source("flights", FLIGHTS, key=["id"], append_only=append_only)
    flights.apply(processor, "mine", **{"schema": LONGEST, "key": ["carrier"], **options}).materialize("found")
    return pipeline.run_local([{"flights": epoch} for epoch in epochs])


@settings(max_examples=15, deadline=None)
@given(st.lists(EDITS, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_whatever_changes_the_output_is_that_of_the_rows_that_are_left(epochs: list[Any], random: Random) -> None:
    store, world, log = CheckpointStore(":memory:"), World(), Counter[Any]()
    run = LocalRun(pipeline_of_greatest(), PersistedObjectSpace(store))
    for number, edits in enumerate(epochs, 1):
        if random.random() < 0.5:
            run = LocalRun(pipeline_of_greatest(), PersistedObjectSpace(store))
        run.step({"a": world.change(edits)["a"]})
        for op, row in (change for epoch, chunk in run.changes("found") if epoch == number for change in chunk.rows()):
            log[row] += 1 if op in ("+", "U+") else -1
        found, counted = expected(world)
        assert (Counter(run.rows("found")), Counter(run.rows("counted"))) == (found, counted)
        assert +log == found
    store.close()


@pytest.mark.slow
def test_it_survives_every_crash_point() -> None:
    events = [
        {"a": [("+", (1, "x", 5, 0)), ("+", (2, "y", 7, 0))]},
        {"a": [("U-", (2, "y", 7, 0)), ("U+", (2, "x", 9, 0))]},
        {"a": [("-", (1, "x", 5, 0)), ("-", (2, "x", 9, 0))]},
    ]
    assert crash_everywhere(pipeline_of_greatest(), events) > 100


class Remembers:
    """Counts in memory only, which is what a test should find."""

    def __init__(self) -> None:
        self.calls = 0

    def process(self, batch: Any, space: Any) -> list[Any]:
        self.calls += 1
        return [("UA", self.calls)]


def test_what_an_object_keeps_in_its_attributes_is_lost_with_the_process() -> None:
    pipeline = Pipeline()
    flights = pipeline.source("flights", FLIGHTS, key=["id"])
    flights.apply(Remembers(), "mine", LONGEST, key="carrier", output_key="carrier").materialize("found")
    with pytest.raises(AssertionError, match="disturbed"):
        crash_everywhere(pipeline, [{"flights": [(n, "UA", n)]} for n in range(3)], storage=False)


def test_the_batch_has_the_net_changes_in_the_order_of_the_key() -> None:
    first = [(3, "UA", 1), (1, "B6", 2), (2, "UA", None)]
    second = [
        ("U-", (3, "UA", 1)),
        ("U+", (3, "UA", 9)),
        ("U-", (1, "B6", 2)),
        ("U+", (1, "UA", 2)),
        ("-", (2, "UA", None)),
        ("+", (7, "UA", 5)),
        ("-", (7, "UA", 5)),
    ]
    space = run_of(Notes(), [first, second, [("+", (7, "UA", 5)), ("-", (7, "UA", 5))]]).space
    assert space.get_value("mine/columns").value == ["op", "id", "carrier", "delay"]
    assert space.get_list("mine/seen") == [
        [["+", 1, "B6", 2], ["+", 2, "UA", None], ["+", 3, "UA", 1]],
        [
            ["-", 1, "B6", 2],  # Of another key now: its old and its new row may lie in different shards.
            ["+", 1, "UA", 2],
            ["-", 2, "UA", None],
            ["U-", 3, "UA", 1],
            ["U+", 3, "UA", 9],
        ],
    ]


def test_rows_of_an_append_only_stream_may_have_a_column_that_is_called_as_the_operations() -> None:
    pipeline = Pipeline()
    said = pipeline.source("said", {"word": "string"}).select(op="word")
    said.apply(Notes(), "notes", {"none": "int64"}).materialize("none")
    with pipeline.run_local([{"said": [("-",)]}]) as run:
        assert SpacePart(run.space, "notes/").get_list("seen")[0] == [["-"]]


def test_rows_of_an_append_only_stream_have_no_operations() -> None:
    space = run_of(Notes(), [[(1, "UA", 2)]], append_only=True).space
    assert space.get_value("mine/columns").value == ["id", "carrier", "delay"]


TABLE = pa.table({"delay": [4, 5], "carrier": ["B6", "UA"]})


@pytest.mark.parametrize(
    "answer",
    [
        [{"carrier": "UA", "delay": 5}, {"carrier": "B6", "delay": 4}],
        [("UA", 1), ["B6", 4], ("UA", 5)],
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_pandas(),
    ],
    ids=["mappings", "tuples", "table", "batch", "pandas"],
)
def test_rows_come_in_any_of_the_usual_forms(answer: Any) -> None:
    run = run_of(Says(answer), [[(1, "UA", 1), (2, "B6", 1)]], output_key="carrier")
    assert run.rows("found") == [("B6", 4), ("UA", 5)]


class Reads:
    """Returns what can be read once, or is bound to a connection."""

    def __init__(self, form: str) -> None:
        self.form = form

    def process(self, batch: Any, space: Any) -> Any:
        return TABLE.to_reader() if self.form == "reader" else duckdb.from_arrow(TABLE)


@pytest.mark.parametrize("form", ["reader", "relation"])
def test_a_stream_of_batches_is_read(form: str) -> None:
    run = run_of(Reads(form), [[(1, "UA", 1), (2, "B6", 1)]], output_key="carrier")
    assert run.rows("found") == [("B6", 4), ("UA", 5)]


def test_a_returned_row_takes_the_place_of_the_last_one_of_its_key() -> None:
    gone = pa.table({"op": ["-"], "carrier": ["UA"], "delay": pa.array([None], pa.int64())})
    answers = [[("UA", 5)], [("UA", 6)], None, [("UA", 6)], gone, [{"op": "-", "carrier": "UA"}]]
    run = run_of(Says(*answers), [[(n, "UA", n)] for n in range(6)], output_key="carrier")
    assert [(epoch, chunk.rows()) for epoch, chunk in run.changes("found")] == [
        (1, [("+", ("UA", 5))]),
        (2, [("U-", ("UA", 5)), ("U+", ("UA", 6))]),
        (5, [("-", ("UA", 6))]),
    ]


def test_without_an_output_key_rows_are_added() -> None:
    run = run_of(Says([("UA", 5), ("UA", 5)], [("B6", 5), ("UA", 1)]), [[(1, "UA", 1)], [(2, "UA", 1), (3, "B6", 1)]])
    assert run.rows("found") == [("B6", 5), ("UA", 5), ("UA", 5), ("UA", 1)]
    numbers = [row[-1] for row in run.rows("found", hidden=True)]
    assert numbers == [2 << 32, 1 << 32, (1 << 32) + 1, 2 << 32]
    assert run.pipeline.results["found"].inputs[0].append_only


@pytest.mark.parametrize(
    ("answer", "options", "message"),
    [
        ([("DL", 1)], {}, r"operator 'mine' \(Says\) returned what does not fit: \('DL', 1\) has a key that is not in"),
        ([("UA", 1, 2)], {}, r"a row has 2 values \(carrier, delay\): found \('UA', 1, 2\)"),
        ([{"carrier": "UA", "late": 1}], {}, "there is no column 'late': the columns are carrier, delay"),
        ([("UA", "much")], {}, r"column 'delay' \(int64\)"),
        ([{"op": "?", "carrier": "UA"}], {}, r"the operation '\?': expected one of \+, -"),
        ([{"op": "U+", "carrier": "UA"}], {"output_key": ()}, "name their key with output_key= .* or key= of an Apply"),
        ({"carrier": "UA", "delay": 1}, {}, "expected Arrow data, a data frame, rows or None, found a dict"),
        ([1], {}, "expected rows as mappings or tuples, found 1"),
        (pa.table({"carrier": ["UA"]}), {}, "column 'delay' is missing: the data has carrier"),
        (pa.table({"carrier": ["UA"], "x": [1]}), {}, "there is no column 'x': the columns are carrier, delay"),
        (pa.array([1]), {}, "expected Arrow data with columns, found a Int64Array"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_the_name_of_the_operator(answer: Any, options: Any, message: str) -> None:
    with pytest.raises((RowError, SchemaError), match=message) as refused:
        run_of(Says(answer), [[(1, "UA", 1)]], **{"output_key": "carrier", **options})
    assert "operator 'mine' (Says)" in str(refused.value)


class Locked:
    """Cannot be copied."""

    def __init__(self) -> None:
        self.lock = Lock()

    def process(self, batch: Any, space: Any) -> None:
        return None


@pytest.mark.parametrize(
    ("processor", "options", "message"),
    [
        (Notes, {}, r"expected an object with process\(batch, space\)"),
        (lambda batch, space: [], {}, r"operator 'mine' \(function\): expected an object with process"),
        (object(), {}, r"operator 'mine' \(object\): expected an object with process"),
        (Locked(), {}, "the object is copied for each task, but cannot be"),
        (Notes(), {"name": "a/b"}, "the name of an operator is text without '/'"),
        (Notes(), {"key": ["plane"]}, "key column 'plane': expected one of id, carrier, delay"),
        (Notes(), {"key": ["id", "id"]}, "key column 'id': found it twice"),
        (Notes(), {"key": ["id"]}, r"expected the key column 'id' \(int64\) in the schema: the schema has carrier"),
        (Notes(), {"schema": {"carrier": "int64"}}, r"the key column 'carrier' \(string\) in the schema: found int64"),
        (Notes(), {"output_key": ["delay"]}, "the output key lacks 'carrier'"),
        (Notes(), {"schema": {"carrier": "string", "op": "string"}}, "the column 'op' says what a row does"),
        (Notes(), {"schema": {"carrier": "string", "_row": "int64"}}, "the column '_row' numbers the rows"),
        (Notes(), {"schema": {"carrier": "words"}}, "operator 'mine': "),
        (Notes(), {"output_key": ["plane"]}, "operator 'mine': "),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_runs(processor: Any, options: Any, message: str) -> None:
    flights = Pipeline().source("flights", FLIGHTS, key=["id"])
    with pytest.raises(SchemaError, match=message):
        flights.apply(processor, **{"name": "mine", "schema": LONGEST, "key": ["carrier"], **options})


def test_a_column_of_the_input_that_would_be_hidden_is_refused() -> None:
    events = Pipeline().source("events", {"id": "int64", "kind": "string"}, key=["id"]).select("id", op="kind")
    with pytest.raises(SchemaError, match="the column 'op' says what a row does: give yours another name"):
        events.apply(Notes(), "mine", {"n": "int64"})


def test_operators_do_not_meet_each_others_names() -> None:
    pipeline = Pipeline()
    flights = pipeline.source("flights", FLIGHTS, key=["id"])
    for name in ("one", "two"):
        flights.apply(Says([("UA", 1)], []), name, LONGEST, output_key="carrier").materialize(f"{name}_found")
    run = pipeline.run_local([{"flights": [(1, "UA", 1)]}])
    assert {"one/calls", "one/$output", "two/calls", "two/$output"} <= set(run.space)
    assert run.rows("two_found") == [("UA", 1)]
    with pytest.raises(SchemaError, match="two operators of the pipeline have the name 'one'"):
        flights.apply(Notes(), "one", LONGEST).materialize("again")
        pipeline.plan()


def test_with_no_key_it_sees_all_rows_and_may_return_any() -> None:
    run = run_of(Says([("DL", 1), ("XX", 2)]), [[(1, "UA", 1)]], key=(), output_key="carrier")
    assert run.rows("found") == [("DL", 1), ("XX", 2)]


def test_it_stands_behind_and_before_other_operators() -> None:
    pipeline = Pipeline()
    rows = pipeline.source("a", SCHEMA, key=["id"])
    sums = rows.group_by("k").agg(v=sum_("v")).select("k", "v", id="v")
    best = sums.filter(lambda row: row.v is not None).apply(Greatest(), "greatest", GREATEST, "k", "k")
    best.join(rows, on="k").select("k", "most", "w").materialize("joined")
    run = pipeline.run_local([{"a": [("+", (1, "x", 3, 4))]}, {"a": [("+", (2, "x", 5, 6))]}])
    assert run.rows("joined") == [("x", 8, 4), ("x", 8, 6)]


class Grouping:
    """Keeps what it counts in event operators."""

    def process(self, batch: Any, space: SpacePart) -> list[Any]:
        means = GroupBy(
            lambda row: row["carrier"], lambda key: Chain(Select(lambda row: row["id"]), Average(running=True))
        )
        means.open(space, "means")
        found = dict(pair for row in batch.to_pylist() for pair in means.on_next(row))
        return [(key, int(10 * mean)) for key, mean in found.items()]


def test_event_operators_keep_their_inner_sequences_in_a_part_of_a_space() -> None:
    pipeline = Pipeline()
    flights = pipeline.source("flights", FLIGHTS, key=["id"])
    flights.apply(Grouping(), "mine", LONGEST, key="carrier", output_key="carrier").materialize("found")
    events: list[Any] = [{"flights": [(1, "UA", 0), (2, "B6", 0)]}, {"flights": [(4, "UA", 0)]}]
    assert pipeline.run_local(events).rows("found") == [("B6", 20), ("UA", 25)]
    assert crash_everywhere(pipeline, events, storage=False) > 0


@pytest.mark.parametrize("of", [lambda made: Window(2, lambda number: made), lambda made: SelectMany(lambda v: made)])
def test_an_inner_operator_is_one_of_its_own_in_a_part_too(of: Any) -> None:
    space, made = VolatileObjectSpace(), Take(3)
    first, second = of(made), of(made)
    first.open(SpacePart(space, "one/"), "op")
    first.on_next(1)
    second.open(SpacePart(space, "two/"), "op")
    with pytest.raises(ValueError, match="one that is open as 'one/op/0"):
        second.on_next(1)


def test_a_part_of_a_space_has_names_and_key_value_tables_of_its_own() -> None:
    space = VolatileObjectSpace()
    part, other = SpacePart(space, "one/"), SpacePart(space, "two/")
    manager = KeyValueTableManager(part)
    manager.create_scope("shop")
    manager.create_key_value_table("shop", "stock", KeyValueTableConfiguration(2))
    manager.open_key_value_table("shop", "stock", key_serializer=UTF8, value_serializer=UTF8).put("a", "1")
    part.create_list("l").append(1)
    part.rename("l", "m")
    space.create_value("one/$mine")
    assert part.kind_of("m") == "List"
    assert part.get("m") == [1]
    assert len(part) == len(list(part)) == len(space) - 1
    assert "kvt/catalogue" in part
    assert "$mine" not in part
    assert list(other) == []
    with pytest.raises(ValueError, match=r"the name '\$mine' under 'one/': expected text that does not begin"):
        part.get_or_create_value("$mine")
    part.delete("m")
    assert "one/m" not in space


class Stocks:
    def process(self, batch: pa.RecordBatch, space: SpacePart) -> None:
        manager = KeyValueTableManager(space, version_floor=lambda: 0)
        manager.create_scope("shop")
        manager.create_key_value_table("shop", "stock", KeyValueTableConfiguration(2))
        for row in batch.to_pylist():
            manager.open_key_value_table("shop", "stock").put(row["carrier"].encode(), b"1")


def test_the_key_value_table_of_an_operator_is_opened_in_its_part_of_the_space() -> None:
    pipeline = Pipeline()
    flights = pipeline.source("flights", FLIGHTS, key=["id"])
    for name in ("one", "two"):
        flights.apply(Stocks(), name, LONGEST, key="carrier").sink(f"{name}_out")
    run = pipeline.run_local([{"flights": [(1, "UA", 3)]}])
    run.space.create_list("three/kvt/catalogue")
    for name in ("one", "two"):
        part = KeyValueTableManager(SpacePart(run.space, f"{name}/"))
        assert part.open_key_value_table("shop", "stock").get(b"UA") is not None
    parts = r"KeyValueTableManager\(SpacePart\(space, 'one/'\)\) or KeyValueTableManager\(SpacePart\(space, 'two/'\)\)$"
    whole = KeyValueTableManager(run.space)
    for refused in (whole.open_key_value_table, whole.get_key_value_table_configuration):
        with pytest.raises(NoSuchTableError, match=f"there is no table shop/stock in this space: create it.*{parts}"):
            refused("shop", "stock")
    with pytest.raises(NoSuchTableError, match=r"or see the list of tables$"):
        whole.open_key_value_table("shop", "other")


def test_a_rollback_drops_the_rows_of_the_epoch() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    rows = TableSchema([Column("id", "int64"), Column("carrier", "string"), Column("delay", "int64")], ["id"])
    output = TableSchema([Column("carrier", "string"), Column("delay", "int64")], ["carrier"])
    operator = Apply(rows, Says([("UA", 3)]), "says", output, ["carrier"], append_only=True)
    operator.open(space, "says")
    space.checkpoint(epoch=1)
    operator.process(Chunk.from_rows(rows, [("+", (1, "UA", 99))]))
    space.rollback()
    assert operator.barrier(2) == []
    operator.process(Chunk.from_rows(rows, [("+", (2, "UA", 3))]))
    with pytest.raises(EpochError):
        operator.barrier(2)
    assert [chunk.rows() for chunk in operator.barrier(3)] == [[("+", ("UA", 3))]]


def test_an_operator_that_is_new_gets_what_came_before_batch_by_batch() -> None:
    store, batches = CheckpointStore(":memory:"), [{"flights": [(n, "UA", n)]} for n in range(3)]
    first = Pipeline()
    first.source("flights", FLIGHTS, key=["id"]).materialize("all")
    first.run_local(batches, store)
    second = Pipeline()
    flights = second.source("flights", FLIGHTS, key=["id"])
    flights.materialize("all")
    flights.apply(Notes(), "mine", LONGEST, key="carrier").sink("out")
    run = second.run_local(batches, store)
    assert run.space.get_list("mine/seen") == [[["+", n, "UA", n]] for n in range(3)]
    assert Chunk(run.plan.roots[1].schema, [], []).schema.names == ("carrier", "delay", "_row")
    store.close()


class Delays:
    """Returns the delay of each row that came."""

    def process(self, batch: Any, space: Any) -> list[Any]:
        return [(delay,) for delay in batch["delay"].to_pylist()]


def grown(stage: int) -> Pipeline:
    """Build a pipeline that an object of a user is added to, and then a result behind it."""
    pipeline = Pipeline()
    flights = pipeline.source("flights", FLIGHTS, key=["id"])
    flights.materialize("all")
    if stage:
        delays = flights.apply(Delays(), "mine", {"delay": "int64"})
        delays.materialize("added")
        delays.agg(n=count()).materialize("number")
        worst = delays.top_n(1, ["delay desc"])
        worst.materialize("worst")
    if stage > 1:
        worst.select("delay").materialize("behind")
    return pipeline


def all_rows(run: LocalRun) -> list[Any]:
    return [run.rows(name, hidden=True) for name in run.pipeline.results]


FOUR = [{"flights": [(n, "UA", 10 * n), (-n, "UA", 10 * n)]} for n in range(1, 5)]


@pytest.mark.parametrize("batches", [1, 3])
def test_added_rows_have_the_numbers_of_their_batches_whenever_what_reads_them_came(batches: int) -> None:
    store = CheckpointStore(":memory:")
    for stage in range(3):
        run = grown(stage).run_local(FOUR[:batches], store)
        assert all_rows(run) == all_rows(grown(stage).run_local(FOUR[:batches]))
    run.step(FOUR[batches])
    assert run.epoch == run.position + 2
    assert all_rows(run) == all_rows(grown(2).run_local(FOUR[: batches + 1]))


def test_one_column_may_be_given_by_its_name() -> None:
    source = Pipeline().source("flights", FLIGHTS, key="id")
    assert source.schema.primary_key == Pipeline().source("flights", FLIGHTS, key=["id"]).schema.primary_key


class Ends:
    """Asks for one more of what has ended."""

    def process(self, *_: Any) -> Any:
        return next(iter([]))


def test_an_end_that_nobody_expects_is_told_as_one() -> None:
    pipeline = Pipeline()
    pipeline.source("a", SCHEMA, key=["id"]).apply(Ends(), "op", {"id": "int64"}, key="id").materialize("r")
    with pytest.raises(RuntimeError, match="raised StopIteration, as next"):
        pipeline.run_local([{"a": [(1, "k", 2, 3)]}])
