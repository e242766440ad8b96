"""A small aggregate, and ways to look at what a space holds."""

from __future__ import annotations

from functools import cache
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from objectspace.spark import Measure, Operator, Pipeline, Process, RunningAggregate

SHARDS = 3
QUERY_ID = "sql.streaming.queryId"
TOTALS = RunningAggregate("totals", ("key",), (Measure("rows", "rows"), Measure("sum", "sum", "value")))

Totals = dict[Any, tuple[int, int]]


def totals_operator(process: Process = TOTALS) -> Operator:
    """Return an operator over (key, value) rows."""
    return Operator("totals", ("key",), process)


def kept(pipeline: Pipeline, epoch: int | None = None) -> Totals:
    """Return what the space of a pipeline holds, over all shards."""
    found: Totals = {}
    for shard in range(pipeline.chain.shards):
        with pipeline.read("totals", shard, epoch) as space:
            for key, figures in space.get_or_create_dictionary("totals").items():
                assert key not in found
                found[key] = figures["rows"], figures["sum"]
    return found


def expected(batches: list[DataFrame]) -> Totals:
    """Return what Spark computes over some micro-batches, each of which it is asked once."""
    found: Totals = {}
    for key, (rows, total) in (item for batch in batches for item in _totals(batch).items()):
        known = found.get(key, (0, 0))
        found[key] = known[0] + rows, known[1] + total
    return found


@cache
def _totals(batch: DataFrame) -> Totals:
    totals = batch.groupBy("key").agg(sf.count("*").alias("rows"), sf.sum("value").alias("sum"))
    return {row.key: (row.rows, row.sum) for row in totals.collect()}


def accepted_files(pipeline: Pipeline) -> set[str]:
    """Return the names of all run files that a manifest names."""
    return {run.file.removeprefix("run/") for manifest in pipeline.chain.manifests() for run in manifest.runs}


def orphans(pipeline: Pipeline) -> set[str]:
    """Return the names of the run files that no manifest names."""
    return set(pipeline.chain.location.names("run")) - accepted_files(pipeline)
