"""Pipelines that are built from streams: what they keep and hand out equals the same query over all the input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

from objectspace.operators import avg, col, count, max_
from objectspace.spark import Pipeline

from .spark_helpers import SHARDS

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


def test_a_pipeline_of_two_sources_equals_the_batch_queries(spark: SparkSession, make: Callable[[], Pipeline]) -> None:
    for number, epoch in enumerate(EPOCHS):
        pipeline = make()  # A new driver for each epoch.
        assert pipeline.run_epoch(pipeline.rows(frames(spark, epoch)), number) is not None
        assert pipeline.run_epoch(pipeline.rows(frames(spark, epoch)), number) is None
    for name in ANSWERS:
        assert table(spark, pipeline, name) == answers(EPOCHS)[name]
        assert table(spark, pipeline, name, epoch=1) == answers(EPOCHS[:1])[name]
