"""The shard of a row is the same in Python and in Spark, and the row really goes there."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from objectspace.errors import ObjectSpaceError
from objectspace.spark import VNODES, shard_expression, shard_of, vnode_of

TEXTS = [None, "", "UA", "zürich", "a" * 31, "a" * 32, "a" * 100, *(f"key {n}" for n in range(200))]
NUMBERS = [None, 0, -1, 2**63 - 1, -(2**63), *range(1, 204)]
KEYS = [
    (text, None if text is None else text.encode()[::-1], number) for text, number in zip(TEXTS, NUMBERS, strict=False)
]


def _label(key: tuple[str, ...]) -> str:
    return "shard by " + "+".join(key)


@pytest.mark.parametrize("shards", [1, 3, 4, 256])
def test_python_and_spark_agree(spark: SparkSession, shards: int) -> None:
    rows = spark.createDataFrame(KEYS, "text string, raw binary, number long").withColumn(
        "small", (sf.col("number") % 1000).cast("int")
    )
    keys = [("text",), ("raw",), ("number",), ("small",), ("text", "number", "raw")]
    shown = rows.select("*", *(shard_expression(rows.schema, key, shards).alias(_label(key)) for key in keys))
    for row in shown.collect():
        for key in keys:
            parts = [bytes(row[name]) if name == "raw" and row[name] is not None else row[name] for name in key]
            assert row[_label(key)] == shard_of(shards, *parts), (key, parts)


def test_rows_go_where_the_expression_says(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(key[0],) for key in KEYS], "text string")
    placed = rows.repartitionById(5, shard_expression(rows.schema, ["text"], 5))
    for row in placed.select("text", sf.spark_partition_id().alias("partition")).collect():
        assert row.partition == shard_of(5, row.text)


@pytest.mark.parametrize("shards", [1, 2, 5, 256])
def test_shards_own_contiguous_ranges_of_vnodes(shards: int) -> None:
    owners = [vnode * shards // VNODES for vnode in range(VNODES)]
    assert owners == sorted(owners)
    assert set(owners) == set(range(shards))
    assert all(shard_of(shards, f"{n}") == owners[vnode_of(f"{n}")] for n in range(500))


def test_a_key_that_cannot_be_hashed_alike_is_refused(spark: SparkSession) -> None:
    schema = spark.createDataFrame([(1.5, "x")], "real double, text string").schema
    with pytest.raises(
        ObjectSpaceError, match="key column real: expected text, binary or a whole number, found double"
    ):
        shard_expression(schema, ["real"], 2)
    with pytest.raises(ObjectSpaceError, match="key column nosuch: expected one of real, text"):
        shard_expression(schema, ["nosuch"], 2)
