"""A pipeline of several operators inside each shard gives what the same query gives as a batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from objectspace import operators
from objectspace.operators import col, count, max_, sum_
from objectspace.spark import EmbeddedPipeline, Operator, Pipeline


def busiest() -> operators.Pipeline:
    """Return the keys with their rows, sums and greatest values, of the rows with a value above 3."""
    pipeline = operators.Pipeline()
    rows = pipeline.source("rows", {"id": "int64", "key": "string", "value": "int64"}, key=["id"])
    totals = rows.filter(col("value") > 3).group_by("key").agg(n=count(), total=sum_("value"), most=max_("value"))
    totals.filter(col("n") > 5).materialize("busiest")
    return pipeline


def test_the_result_is_that_of_the_batch(
    spark: SparkSession,
    tmp_path: Path,
    batches: list[DataFrame],
    make_pipeline: Callable[..., Pipeline],
    query: Callable[[str], None],
) -> None:
    numbered = [
        spark.createDataFrame(
            [(100 * batch + n, row.key, row.value) for n, row in enumerate(rows.collect())],
            "id long, key string, value long",
        )
        for batch, rows in enumerate(batches)
    ]
    pipeline = make_pipeline(Operator("busiest", ("key",), EmbeddedPipeline(busiest, "rows")))
    for number, rows in enumerate(numbered):
        pipeline.run_epoch(rows, number)
    found = spark.read.format("objectspace").option("table", "busiest").load(str(tmp_path / "space"))
    numbered[0].unionAll(numbered[1]).unionAll(numbered[2]).createOrReplaceTempView("rows")
    expected = spark.sql(
        "SELECT key, count(*), sum(value), max(value) FROM rows WHERE value > 3 GROUP BY key HAVING count(*) > 5"
    )
    assert sorted(map(tuple, found.collect())) == sorted(map(tuple, expected.collect()))
    assert found.count() > 3
