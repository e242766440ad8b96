"""Spark SQL and Python send every key to the same partition."""

from __future__ import annotations

import random
from functools import cache

import pyarrow
import pytest
from pyspark.sql import SparkSession

from objectspace.kvt import partition_of, partition_sql

KEYS = 20_000
ALPHABET = "abz\x00\u00e9\u4e2d\U0001f600"


@cache
def places() -> list[tuple[str | None, bytes]]:
    """Random families and keys of many lengths, with the shortest and the longest."""
    chance = random.Random(1)
    edges = [(None, b""), (None, b"\x00" * 8190), ("f" * 8189, b"k"), ("f" * 256, b""), (None, b"k" * 256)]
    return edges + [
        ("".join(chance.choices(ALPHABET, k=chance.randint(1, 9))) if chance.random() < 0.5 else None,
         chance.randbytes(chance.randint(0, 40)))
        for _ in range(KEYS)
    ]  # fmt: skip


@pytest.mark.parametrize("count", [4, 97, 2**31 - 1])
def test_spark_and_python_agree(spark: SparkSession, count: int) -> None:
    families, keys = zip(*places(), strict=True)
    rows = pyarrow.table({"family": pyarrow.array(families, pyarrow.string()), "key": pyarrow.array(keys)})
    expression = partition_sql("key", "family", count)
    found = spark.createDataFrame(rows).selectExpr(f"{expression} AS partition").toArrow()["partition"].to_pylist()
    assert found == [partition_of(key, family, count) for family, key in zip(families, keys)]
    assert len(set(found)) >= min(count, 97)


def test_keys_without_families_need_no_column(spark: SparkSession) -> None:
    rows = spark.sql("SELECT cast('k' || id AS BINARY) AS key FROM range(1000)")
    found = rows.selectExpr("key", f"{partition_sql('key', None, 16)} AS partition").toArrow().to_pylist()
    assert [row["partition"] for row in found] == [partition_of(bytes(row["key"]), None, 16) for row in found]
