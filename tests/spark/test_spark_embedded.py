"""A pipeline of several operators inside each shard gives what the same query gives as a batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from objectspace import PersistedObjectSpace, operators
from objectspace.operators import col, count, max_, sum_
from objectspace.relational import StorageTable
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


def batch(*rows: tuple[str, int, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(("op", "id", "v"), row, strict=True)) for row in rows])


def kept_rows() -> operators.Pipeline:
    pipeline = operators.Pipeline()
    pipeline.source("s", {"id": "int64", "v": "int64"}, key=["id"]).materialize("t")
    return pipeline


@pytest.mark.parametrize(
    "batches",
    [
        [batch(("-", 1, 10), ("+", 1, 20))],
        [batch(("+", 1, 20), ("-", 1, 10))],
        [batch(("U+", 1, 20)), batch(), batch(("U-", 1, 10))],
    ],
)
def test_rows_of_an_epoch_have_no_order(batches: list[pa.RecordBatch]) -> None:
    with PersistedObjectSpace.open(":memory:") as space:
        process = EmbeddedPipeline(kept_rows, "s")
        for given in ([batch(("+", 1, 10))], batches):
            process(iter(given), space)
            space.checkpoint()
        assert list(StorageTable(space, "pipeline/t/table").scan()) == [(1, 20)]


def above(least: int) -> EmbeddedPipeline:
    """Return what counts the rows with a greater value."""

    def made() -> operators.Pipeline:
        pipeline = operators.Pipeline()
        rows = pipeline.source("s", {"id": "int64", "v": "int64"}, key=["id"])
        rows.filter(col("v") > least).group_by("v").agg(n=count()).materialize("t")
        return pipeline

    return EmbeddedPipeline(made, "s")


def test_state_of_another_pipeline_is_refused_and_stays_as_it_is() -> None:
    with PersistedObjectSpace.open(":memory:") as space:
        above(3)(iter([batch(("+", 1, 10))]), space)
        space.checkpoint()
        with pytest.raises(operators.PipelineChangedError, match=r"'pipeline'.*now reads Where\(\(v > 5"):
            above(5)(iter([batch(("+", 2, 10))]), space)
        assert not space.checkpoint().slots
        above(3)(iter([batch(("+", 2, 10))]), space)
        assert list(StorageTable(space, "pipeline/t/table").scan()) == [(10, 1)]
        space.checkpoint()
        assert list(StorageTable(space, "pipeline/t/table").scan()) == [(10, 2)]


def test_what_a_pipeline_does_is_noted_also_after_a_rollback() -> None:
    with PersistedObjectSpace.open(":memory:") as space:
        for end in (space.rollback, space.checkpoint):
            operator = busiest().as_operator()
            operator.open(space, "it")
            operator.barrier(1)
            end()
        with pytest.raises(operators.PipelineChangedError, match="'it' is not the one"):
            kept_rows().as_operator().open(space, "it")


def test_rows_of_a_source_without_a_key_are_numbered() -> None:
    def keyless() -> operators.Pipeline:
        pipeline = operators.Pipeline()
        pipeline.source("s", {"v": "int64"}).group_by("v").agg(n=count()).materialize("t")
        return pipeline

    with PersistedObjectSpace.open(":memory:") as space:
        for _ in range(2):
            EmbeddedPipeline(keyless, "s")(iter([pa.RecordBatch.from_pylist([{"v": 1}, {"v": 1}])]), space)
            space.checkpoint()
        assert list(StorageTable(space, "pipeline/t/table").scan()) == [(1, 4)]
