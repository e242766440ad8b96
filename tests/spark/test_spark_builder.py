"""Pipelines that are built from streams: what they keep and hand out equals the same query over all the input."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from objectspace.operators import Pipeline as LocalPipeline
from objectspace.operators import PipelineChangedError, avg, col, count, max_, sum_
from objectspace.relational import SchemaError
from objectspace.spark import Pipeline, TaskFailedError

SHARDS = 2

FLIGHT = "op string, id long, carrier string, origin string, delay long"
WEATHER = "origin string, wind double"


@pytest.fixture
def make(spark: SparkSession, tmp_path: Path, query: Callable[[str], None]) -> Callable[[], Pipeline]:
    """A function that returns the pipeline of these tests, as another driver would have it."""

    def make() -> Pipeline:
        pipeline = Pipeline(tmp_path / "space", SHARDS, cache=tmp_path / "cache")
        empty = {name: spark.createDataFrame([], schema) for name, schema in (("flight", FLIGHT), ("wind", WEATHER))}
        flights = pipeline.source("flights", empty["flight"], key=["id"], op_column="op")
        weather = pipeline.source("weather", empty["wind"], key=["origin"])
        late = flights.filter(col("delay") > 0)
        joined = late.join(weather, on="origin", how="left")
        delays = joined.group_by("carrier").agg(n=count(), worst=max_("delay"), wind=avg("wind"))
        delays.materialize("delays")
        delays.top_n(2, order_by=["worst desc", "carrier"]).materialize("worst")
        flights.agg(n=count()).materialize("total")
        return pipeline

    return make


EPOCHS: list[dict[str, list[tuple[Any, ...]]]] = [
    {"flights": [("+", n, "ABC"[n % 3], "XYZ"[n % 2], n * 7 % 11 - 2) for n in range(40)], "weather": [("X", 2.5)]},
    {"flights": [("-", n, "ABC"[n % 3], "XYZ"[n % 2], n * 7 % 11 - 2) for n in range(5, 20)], "weather": [("Y", 1.0)]},
    {"flights": [("U-", 1, "B", "Y", 5), ("U+", 1, "C", "X", 90)]},
]

ANSWERS = {
    "delays": "SELECT carrier, count(*), max(delay), avg(wind) FROM flights LEFT JOIN weather USING (origin)"
    " WHERE delay > 0 GROUP BY carrier",
    "worst": "SELECT * FROM ({delays}) AS d(carrier, n, worst, wind) ORDER BY worst DESC, carrier LIMIT 2",
    "total": "SELECT count(*) FROM flights",
}


def frames(spark: SparkSession, epoch: dict[str, list[tuple[Any, ...]]]) -> dict[str, DataFrame]:
    schemas = {"flights": FLIGHT, "weather": WEATHER}
    return {name: spark.createDataFrame(rows, schemas[name]).repartition(3) for name, rows in epoch.items()}


def answers(epochs: list[dict[str, list[tuple[Any, ...]]]]) -> dict[str, Counter[Any]]:
    """Return what the batch queries give over what is left of the rows of some epochs."""
    held: Counter[Any] = Counter()
    for epoch in epochs:
        for op, *row in epoch.get("flights", []):
            held[tuple(row)] += 1 if op in ("+", "U+") else -1
    connection = duckdb.connect()
    connection.execute("CREATE TABLE flights (id BIGINT, carrier VARCHAR, origin VARCHAR, delay BIGINT)")
    connection.executemany("INSERT INTO flights VALUES (?, ?, ?, ?)", [list(row) for row in held.elements()])
    connection.execute("CREATE TABLE weather (origin VARCHAR, wind DOUBLE)")
    connection.executemany("INSERT INTO weather VALUES (?, ?)", [r for e in epochs for r in e.get("weather", [])])
    return {name: Counter(connection.execute(sql.format(**ANSWERS)).fetchall()) for name, sql in ANSWERS.items()}


def table(spark: SparkSession, pipeline: Pipeline, name: str, **options: Any) -> Counter[Any]:
    rows = spark.read.format("objectspace").options(table=name, **options).load(pipeline.chain.location.url)
    return Counter(tuple(row) for row in rows.collect())


@pytest.mark.slow
def test_a_pipeline_of_two_sources_equals_the_batch_queries(spark: SparkSession, make: Callable[[], Pipeline]) -> None:
    for number, epoch in enumerate(EPOCHS):
        pipeline = make()  # A new driver for each epoch.
        assert pipeline.run_epoch(pipeline.micro_batch(frames(spark, epoch)), number) is not None
        assert pipeline.run_epoch(pipeline.micro_batch(frames(spark, epoch)), number) is None
    wanted, first = answers(EPOCHS), answers(EPOCHS[:1])
    for name in ANSWERS:
        assert Counter(pipeline.rows(name)) == wanted[name]
        assert Counter(pipeline.rows(name, epoch=1)) == first[name]
    assert table(spark, pipeline, "delays") == wanted["delays"]
    status = pipeline.status()
    assert (status.epoch, status.error, status.is_active) == (3, None, False)
    assert status.last is not None
    assert status.last.rows == 2
    figures = {one.name: one for one in status.last.operators}
    assert figures["sources"].rows_in == 2
    assert figures["delays"].slots == sum(
        run.slots for run in pipeline.chain.manifest(3).runs if run.operator == "delays"
    )
    assert {"open_ms", "process_ms", "save_ms"} <= set(figures["delays"].phases)


class Lost(Exception):
    """The driver dies here."""


def test_after_a_crash_the_functions_get_the_same_changes_again(
    spark: SparkSession, tmp_path: Path, query: Callable[[str], None]
) -> None:
    seen: list[tuple[int, list[Any]]] = []
    chunks: list[tuple[int, Any]] = []

    def driver(*, dies: bool = False) -> Pipeline:
        pipeline = Pipeline(tmp_path / "space", SHARDS, cache=tmp_path / "cache")
        flights = pipeline.source("flights", spark.createDataFrame([], FLIGHT), key=["id"], op_column="op")
        counts = flights.group_by("carrier").agg(n=count()).materialize("counts")
        counts.sink("log", lambda epoch, chunk: chunks.append((epoch, sorted(chunk.rows()))))

        def note(changes: DataFrame, epoch: int) -> None:
            seen.append((epoch, sorted(map(tuple, changes.collect()))))
            if dies:
                raise Lost

        pipeline.for_each_epoch(counts, note)
        return pipeline

    rows = spark.createDataFrame([("+", n, "AB"[n % 2], "X", 1) for n in range(4)], FLIGHT)
    with pytest.raises(Lost) as lost:
        driver(dies=True).run_epoch(rows, 0)
    assert "raised by the function of result 'counts' for epoch 1, which is published" in lost.value.__notes__[0]
    assert driver().run_epoch(rows, 0) is None  # The same micro-batch: it is in the state, and handed out once more.
    assert driver().run_epoch(spark.createDataFrame([("-", 0, "A", "X", 1)], FLIGHT), 1) is not None
    query("another")  # Nobody knows whether the last epoch of the query before was handed out to its end.
    assert driver().run_epoch(spark.createDataFrame([], FLIGHT), 0) is not None
    first, second = (1, [("+", "A", 2), ("+", "B", 2)]), (2, [("U+", "A", 1), ("U-", "A", 2)])
    assert seen == [first, first, second, second]
    assert [epoch for epoch, _ in chunks] == [1, 2, 2]  # The first driver died before it came to this one.
    assert chunks[1] == (2, [("U+", ("A", 1)), ("U-", ("A", 2))])


def test_an_error_of_a_task_is_told_in_words_and_nothing_counts(
    spark: SparkSession, tmp_path: Path, query: Callable[[str], None]
) -> None:
    pipeline = Pipeline(tmp_path / "space", SHARDS, cache=tmp_path / "cache")
    flights = pipeline.source("flights", spark.createDataFrame([], FLIGHT), key=["id"], op_column="op")
    flights.group_by(share=(lambda row: 12 // row.delay, "int64")).agg(n=count()).materialize("shares")
    with pytest.raises(TaskFailedError) as failed:
        pipeline.run_epoch(spark.createDataFrame([("+", 1, "A", "X", 0)], FLIGHT), 0)
    assert re.fullmatch(
        r"operator \S+, epoch 1: the function <lambda> failed for the row .*: ZeroDivisionError: .*, which replays its"
        r" micro-batch",
        str(failed.value),
    )
    for op in (None, "+ "):
        with pytest.raises(TaskFailedError, match=re.escape(f"the operation {op!r} of the row id=7: expected one of")):
            pipeline.run_epoch(spark.createDataFrame([("+", 1, "A", "X", 1), (op, 7, "A", "X", 1)], FLIGHT), 0)
    malformed = spark.createDataFrame([("+", 1, "A", "X", 0)], FLIGHT).withColumn("delay", expr("bigint(carrier)"))
    with pytest.raises(
        TaskFailedError, match=r"^operator \S+, epoch 1: \[CAST_INVALID_INPUT\] The value 'A' .*\d; noth"
    ):
        pipeline.run_epoch(malformed, 0)
    assert pipeline.status().epoch == 0


def test_what_cannot_run_is_refused_in_words(spark: SparkSession, tmp_path: Path, query: Callable[[str], None]) -> None:
    def driver(by: str) -> Pipeline:
        pipeline = Pipeline(tmp_path / "space", SHARDS, cache=tmp_path / "cache")
        flights = pipeline.source("flights", spark.createDataFrame([], FLIGHT), key=["id"], op_column="op")
        flights.group_by(by).agg(n=count()).materialize("counts")
        return pipeline

    with pytest.raises(SchemaError, match=r"does not stream: read it with spark\.readStream"):
        driver("origin").start(checkpoint_location=tmp_path / "progress")
    with pytest.raises(SchemaError, match="takes a checkpoint_location="):
        driver("origin").start()
    with pytest.raises(TypeError, match=r"trigger is 'availableNow': expected a mapping, such as {'availableNow': Tr"):
        driver("origin").start(checkpoint_location=tmp_path / "progress", trigger="availableNow")  # type: ignore[arg-type]
    for trigger in ({"continuous": "1 second"}, {"availablenow": True}):
        with pytest.raises(TypeError, match=r"start\(\): trigger is .* one of availableNow, once, processingTime$"):
            driver("origin").start(checkpoint_location=tmp_path / "progress", trigger=trigger)
    with pytest.raises(SchemaError, match="has no result 'other': it has counts"):
        driver("origin").for_each_epoch("other", print)
    with pytest.raises(SchemaError, match="source 'maps': column 'm': Spark's type map has no match: drop it, or make"):
        driver("origin").source("maps", spark.createDataFrame([], "id long, m map<string,int>"), key=["id"])
    with pytest.raises(SchemaError, match="op_column 'what': the source has the columns op, id"):
        driver("origin").source("more", spark.createDataFrame([], FLIGHT), op_column="what")
    with pytest.raises(
        SchemaError, match=r"source 'more': op_column 'delay' is of the type bigint: expected text, one"
    ):
        driver("origin").source("more", spark.createDataFrame([], FLIGHT), key=["id"], op_column="delay")
    with pytest.raises(SchemaError, match="there is a source 'flights', and Spark takes the two for one name"):
        driver("origin").source("Flights", spark.createDataFrame([], FLIGHT), op_column="op")
    with pytest.raises(SchemaError, match="'op' is where changes say what they do"):
        operations = Pipeline(tmp_path / "operations", SHARDS, cache=tmp_path / "cache")
        plain = operations.source("plain", spark.createDataFrame([], FLIGHT), key=["id"])
        plain.group_by("op").agg(n=count()).materialize("counts")
        operations.run_epoch(spark.createDataFrame([("+", 1, "A", "X", 0)], FLIGHT), 0)
    driver("carrier").run_epoch(spark.createDataFrame([("+", 1, "A", "X", 0)], FLIGHT), 0)
    with pytest.raises(SchemaError, match="as 'counts': this pipeline has no such result: build it as it ran"):
        Pipeline(tmp_path / "space", SHARDS, cache=tmp_path / "cache").rows("counts")
    with pytest.raises(PipelineChangedError, match="start at another location"):
        driver("origin").run_epoch(spark.createDataFrame([("+", 2, "A", "X", 0)], FLIGHT), 1)


def test_a_source_says_what_tells_its_rows_apart(
    spark: SparkSession, tmp_path: Path, query: Callable[[str], None]
) -> None:
    pipeline = Pipeline(tmp_path / "space", SHARDS, cache=tmp_path / "cache")
    empty = spark.createDataFrame([], FLIGHT)
    with pytest.raises(SchemaError, match=r"op_column='op' takes rows back, and nothing tells which: .* key="):
        pipeline.source("flights", empty, op_column="op")
    with pytest.raises(SchemaError, match=r"source 'db\.flights': .* choose another name"):
        pipeline.source("db.flights", empty, key=["id"])
    pipeline.source("flights", empty, key=["id"], op_column="op", append_only=True).materialize("kept")
    pipeline.run_epoch(spark.createDataFrame([("+", 1, "A", "X", 1)], FLIGHT), 0)
    with pytest.raises(TaskFailedError, match=r"'flights' was declared with append_only=True, but - \(1, "):
        pipeline.run_epoch(spark.createDataFrame([("-", 1, "A", "X", 1)], FLIGHT), 1)
    assert len(pipeline.rows("kept")) == 1
    pipeline.source("cases", spark.createDataFrame([], "id long, Id long"), key=["id"])
    with pytest.raises(SchemaError, match="source 'cases': Spark takes its columns 'id' and 'Id' for one: rename one"):
        pipeline.micro_batch({"flights": empty})


def test_columns_of_one_source_that_differ_only_by_case_are_refused_before_it_starts(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.createDataFrame([(1, 10, "a")], "id long, v long, g string").write.parquet(str(tmp_path / "in"))
    read = spark.readStream.schema("id long, v long, g string").parquet(str(tmp_path / "in"))
    pipeline = Pipeline(tmp_path / "space", SHARDS, cache=tmp_path / "cache")
    pipeline.source("x", read.withColumnRenamed("g", "V"), key=["id"]).materialize("t")

    def start() -> None:
        pipeline.start(checkpoint_location=tmp_path / "progress", trigger={"availableNow": True}).awaitTermination()

    with pytest.raises(SchemaError, match="source 'x': Spark takes its columns 'v' and 'V' for one: rename one"):
        start()
    assert not (tmp_path / "progress").exists()
    spark.conf.set("spark.sql.caseSensitive", "TRUE")  # As SQL has it: Spark keeps the text.
    try:
        start()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert pipeline.rows("t") == [(1, 10, "a")]


@pytest.mark.parametrize("name", ["Op", "V"])
def test_changes_of_which_spark_takes_two_columns_for_one_are_not_handed_out(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    spark.createDataFrame([(1, 10, "a")], "id long, v long, g string").write.parquet(str(tmp_path / "in"))
    read = spark.readStream.schema("id long, v long, g string").parquet(str(tmp_path / "in"))
    seen: list[Any] = []

    def start(*, is_handed_out: bool) -> Pipeline:
        pipeline = Pipeline(tmp_path / "space", SHARDS, cache=tmp_path / "cache")
        kept = pipeline.source("x", read, key=["id"]).select("id", "v", **{name: "g"}).materialize("t")
        if is_handed_out:
            pipeline.for_each_epoch(kept, lambda changes, epoch: seen.append((changes.columns, *changes.collect())))
        pipeline.start(checkpoint_location=tmp_path / "progress", trigger={"availableNow": True}).awaitTermination()
        return pipeline

    other = {"Op": "op", "V": "v"}[name]
    told = f"result 't': for_each_epoch .* op, id, v, {name}, of which Spark takes '{other}' and '{name}' for one: give"
    with pytest.raises(SchemaError, match=told):
        start(is_handed_out=True)
    assert not (tmp_path / "progress").exists()
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        start(is_handed_out=True)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert seen == [(["op", "id", "v", name], ("+", 1, 10, "a"))]
    assert start(is_handed_out=False).rows("t") == [(1, 10, "a")]


def test_changes_straight_from_a_source_are_net_by_key(
    spark: SparkSession, tmp_path: Path, query: Callable[[str], None]
) -> None:
    """They may lie in any partition of the micro-batch."""
    seen: dict[int, list[Any]] = {}
    pipeline = Pipeline(tmp_path / "space", SHARDS, cache=tmp_path / "cache")
    flights = pipeline.source("flights", spark.createDataFrame([], FLIGHT), key=["id"], op_column="op")
    late = flights.filter(col("delay") > 0).sink("late")
    pipeline.for_each_epoch(late, lambda changes, epoch: seen.update({epoch: sorted(map(tuple, changes.collect()))}))
    rows = [("+", 1, 1), ("+", 7, 7), ("-", 1, 1), ("+", 1, 2), ("-", 7, 7), ("-", 1, 2), ("+", 1, 3), ("+", 2, 0)]
    epochs = [rows, [("-", 1, 3), ("+", 1, 3)], [("-", 1, 3)]]
    for number, epoch in enumerate(epochs):
        frame = spark.createDataFrame([(op, key, "A", "X", delay) for op, key, delay in epoch], FLIGHT)
        pipeline.run_epoch(frame.repartition(len(epoch)), number)
    assert seen == {1: [("+", 1, "A", "X", 3)], 3: [("-", 1, "A", "X", 3)]}


def test_decimals_of_any_size_leave(spark: SparkSession, tmp_path: Path, query: Callable[[str], None]) -> None:
    """A sum has the scale of what is added up; what has no fixed scale is rounded to 18 places where it leaves."""
    pipeline = Pipeline(tmp_path / "space", SHARDS, cache=tmp_path / "cache")
    shape = "id long, x decimal(38,0), y decimal(20,10)"
    rows = pipeline.source("rows", spark.createDataFrame([], shape), key=["id"])
    sums = rows.group_by("id").agg(all=sum_("x"), parts=sum_("y"))
    rows.select("id", product=col("y") * col("y")).materialize("products")
    sums.materialize("sums")
    third = Decimal("0.3333333333")
    pipeline.run_epoch(spark.createDataFrame([(1, Decimal(10) ** 25, third), (1 << 40, None, Decimal(3))], shape), 0)
    assert table(spark, pipeline, "sums") == Counter([(1, Decimal(10) ** 25, third), (1 << 40, None, Decimal(3))])
    products = {row[0]: row[1] for row in table(spark, pipeline, "products")}
    assert products == {1: (third * third).quantize(Decimal("1e-18")), 1 << 40: Decimal(9)}


@pytest.mark.parametrize("name", ["x.y", "x`y", "*"])
def test_a_column_that_spark_cannot_hand_to_python_is_refused(spark: SparkSession, tmp_path: Path, name: str) -> None:
    frame = spark.createDataFrame([], "id long, x long").withColumnRenamed("x", name)
    pipeline = Pipeline(tmp_path / "space", SHARDS)
    with pytest.raises(SchemaError, match="rename it"):
        pipeline.source("s", frame, key=["id"])


FED: list[list[Any]] = [
    [("+", 1, "Rome", 5), ("+", 2, "Oslo", 5), ("+", 3, "Bonn", 5)],
    [("U-", 1, "Rome", 5), ("U+", 9, "Rome", 5), ("+", 1, None, 3)],  # a key is left, and taken by another row
    [("+", 2, "Kiel", 6), ("-", 2, "Kiel", 6), ("-", 3, None, None), ("+", 3, None, None)],  # none tells what is there
    [("U-", 7, "Ulm", 1), ("U+", 7, "Ulm", 1)],  # what it was before has never come
]


def test_a_feed_with_gaps_goes_by_the_rules_of_conflicts_as_in_one_process(
    spark: SparkSession, tmp_path: Path, query: Callable[[str], None]
) -> None:
    rules = {"overwrite": None, "ignore": None, "update_if_newer": "lsn"}
    sparks, local = Pipeline(tmp_path / "space", SHARDS, cache=tmp_path / "cache"), LocalPipeline()
    feed = spark.createDataFrame([], "op string, id long, city string, lsn long")
    one = sparks.source("feed", feed, key=["id"], op_column="op")
    other = local.source("feed", {"id": "int64", "city": "string?", "lsn": "int64?"}, key=["id"])
    for rule, version in rules.items():
        one.materialize(rule, ["id"], conflict=rule, version=version)
        other.materialize(rule, ["id"], conflict=rule, version=version)
    for number, rows in enumerate(FED):
        sparks.run_epoch(sparks.micro_batch({"feed": spark.createDataFrame(rows, feed.schema).repartition(1)}), number)
    run = local.run_local([{"feed": [(op, row) for op, *row in rows]} for rows in FED])
    assert {rule: sorted(sparks.rows(rule)) for rule in rules} == {rule: sorted(run.rows(rule)) for rule in rules}
    assert sorted(sparks.rows("overwrite")) == [(1, None, 3), (3, None, None), (7, "Ulm", 1), (9, "Rome", 5)]
