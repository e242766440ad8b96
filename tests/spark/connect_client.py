"""A program that runs the library through Spark Connect: ``python -m tests.spark.connect_client FOLDER PORT``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from checkpoint.chain import Chain, location_at
from objectspace.spark import Operator, Pipeline, shard_expression

SCHEMA = "k string, v long"


def written(spark: SparkSession, root: Path) -> None:
    """Write a stream into a table, one file a micro-batch."""
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(root / "in"))
    routed = stream.repartitionById(2, shard_expression(stream.schema, ["k"], 2))
    writer = routed.writeStream.format("objectspace").option("checkpointLocation", str(root / "ck"))
    options = {"path": str(root / "space"), "table": "t", "key": "k", "shards": "2"}
    writer.options(**options).trigger(availableNow=True).start().awaitTermination()


def read(spark: SparkSession, root: Path, **options: Any) -> list[list[Any]]:
    """Return the rows of the table."""
    rows = spark.read.format("objectspace").options(table="t", **options).load(str(root / "space"))
    return sorted(map(list, rows.collect()))


def found(spark: SparkSession, root: Path) -> list[list[Any]]:
    """Return what a filter on the key leaves of the table."""
    rows = spark.read.format("objectspace").load(str(root / "space"), table="t").where("k = 'b'")
    return [list(row) for row in rows.collect()]


def changes(spark: SparkSession, root: Path) -> list[list[Any]]:
    """Return the change feed of the table."""
    feed = spark.readStream.format("objectspace").options(table="t", changes="true").load(str(root / "space"))
    writer = feed.select("epoch", "op", "k", "v").writeStream.format("parquet").option("path", str(root / "feed"))
    writer.option("checkpointLocation", str(root / "feed-ck")).trigger(availableNow=True).start().awaitTermination()
    return sorted(map(list, spark.read.parquet(str(root / "feed")).collect()))


def worked(spark: SparkSession) -> list[list[Any]]:
    """Return what a task that uses a space of its own gives."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from objectspace import PersistedObjectSpace

        with PersistedObjectSpace.open(":memory:") as space:
            seen = space.create_list("seen")
            for batch in batches:
                seen.extend(batch.column(0).to_pylist())
            yield pa.RecordBatch.from_pydict({"n": [len(seen)]})

    return [list(row) for row in spark.range(7).repartition(1).mapInArrow(task, "n long").collect()]


def there(path: Path) -> Pipeline:
    """Return a pipeline on a space that is there already."""
    Chain.open_or_create(location_at(path), 2)
    return Pipeline(path, shards=2)


def refusals(spark: SparkSession, root: Path) -> list[str]:
    """Return what is said to those who would run a pipeline, by each of the ways to one."""
    stream = spark.readStream.schema(SCHEMA).parquet(str(root / "in"))
    declared, added = there(root / "declared"), there(root / "added")
    added.add(Operator("totals", ("k",), print))
    ways: list[Callable[[], object]] = [
        lambda: declared.source("rows", stream, key=["k"]),
        lambda: added.start(stream, root / "query"),
        lambda: added.run_epoch(spark.range(1), 0),
        lambda: Pipeline(root / "new", shards=2),
    ]
    return [refusal(way) for way in ways]


def in_foreach_batch(spark: SparkSession, root: Path) -> str:
    """Return what the query says whose micro-batches are to go through a pipeline on the server."""
    pipeline = there(root / "each")
    stream = spark.readStream.schema(SCHEMA).parquet(str(root / "in")).writeStream.foreachBatch(pipeline.run_epoch)
    return refusal(stream.option("checkpointLocation", str(root / "query")).start().awaitTermination)


def relative(spark: SparkSession) -> str:
    """Return what is said to a relative path."""
    return refusal(spark.read.format("objectspace").options(table="t").load("space").collect)


def refusal(way: Callable[[], object]) -> str:
    """Return what is raised, by the library or by Spark for it."""
    try:
        way()
    except Exception as error:
        return str(error)
    return "nothing was raised"


def main() -> None:
    """Print what each of them gives, as JSON."""
    root, port = Path(sys.argv[1]), sys.argv[2]
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    written(spark, root)
    print(
        json.dumps(
            {
                "table": read(spark, root),
                "first": read(spark, root, epoch=1),
                "column": read(spark, root, columns="v"),
                "found": found(spark, root),
                "changes": changes(spark, root),
                "worked": worked(spark),
                "refusals": refusals(spark, root),
                "in_foreach_batch": in_foreach_batch(spark, root),
                "relative": relative(spark),
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main()
