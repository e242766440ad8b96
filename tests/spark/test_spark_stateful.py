"""Users' own stateful classes: one batch a shard and epoch, with objects and key-value tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.kvt import (
    JSON,
    UTF8,
    KeyValueTableConfiguration,
    KeyValueTableManager,
    partition_of,
    partition_sql,
)
from objectspace.spark import Operator, Pipeline
from objectspace.spark.stateful import WholeEpoch

from .spark_helpers import SHARDS

pytestmark = pytest.mark.usefixtures("query")


class Visits:
    """Counts the rows of each key in a key-value table, and its own calls in a value."""

    def process(self, batch: pa.RecordBatch, space: PersistedObjectSpace) -> None:
        manager = KeyValueTableManager(space)
        manager.create_scope("site")
        manager.create_key_value_table("site", "visits", KeyValueTableConfiguration(2))
        visits = manager.open_key_value_table("site", "visits", key_serializer=UTF8, value_serializer=UTF8)
        for key in batch.column("key").to_pylist():
            known = visits.get(key, "all")
            visits.put(key, str(int(known.value) + 1 if known else 1), key_family="all")
        calls = space.get_or_create_dictionary("calls")
        calls["n"] = calls.get("n", 0) + 1


def test_a_class_is_called_once_a_shard_and_epoch(
    make_pipeline: Callable[..., Pipeline], batches: list[DataFrame]
) -> None:
    pipeline = make_pipeline(Operator("visits", ("key",), Visits()))
    for number, rows in enumerate(batches):
        pipeline.run_epoch(rows, number)
    found: Counter[str] = Counter()
    for shard in range(SHARDS):
        with pipeline.read("visits", shard) as space:
            table = KeyValueTableManager(space).open_key_value_table(
                "site", "visits", key_serializer=UTF8, value_serializer=UTF8
            )
            found.update({key: int(value) for key, value in table.family("all").items()})
            assert dict(space.get_dictionary("calls").items()) == {"n": len(batches)}
    assert found == Counter(row.key for rows in batches for row in rows.collect())


PARTITIONS = 8


class Stock:
    """Keeps one table of all shards: the rows of a partition come to one of them, and so does the partition."""

    def process(self, batch: pa.RecordBatch, space: PersistedObjectSpace) -> None:
        manager = KeyValueTableManager(space)
        manager.create_scope("shop")
        manager.create_key_value_table("shop", "stock", KeyValueTableConfiguration(PARTITIONS))
        stock = manager.open_key_value_table("shop", "stock", value_serializer=JSON)
        for row in batch.to_pylist():
            key, family, amount = row["key"], row["family"], row["amount"]
            stock.update(key, lambda held, more=amount: held + more, family, default=0)
            assert stock.get(key, family).value >= amount
        totals = space.get_or_create_dictionary("totals")
        for family in stock.families():
            totals[family] = sum(entry.value for page in stock.entry_iterator(family, 5) for entry in page.items)


def test_the_partitions_of_a_table_are_divided_among_the_shards(
    spark: SparkSession, make_pipeline: Callable[..., Pipeline]
) -> None:
    moves = [(f"item {n % 17}".encode(), f"aisle {n % 13}", n % 5) for n in range(400)]
    expected: Counter[tuple[str, bytes]] = Counter()
    for key, family, amount in moves:
        expected[family, key] += amount
    pipeline = make_pipeline(Operator("stock", ("partition",), Stock()))
    for epoch in range(2):
        rows = spark.createDataFrame(moves[epoch::2], "key binary, family string, amount long")
        pipeline.run_epoch(rows.selectExpr("*", f"{partition_sql('key', 'family', PARTITIONS)} AS partition"), epoch)

    held: list[set[int]] = []
    totals: Counter[str] = Counter()
    for shard in range(SHARDS):
        with pipeline.read("stock", shard) as space:
            held.append({int(name.split("/")[3]) for name in space if name.count("/") == 3 and "stock" in name})
            totals.update(dict(space.get_dictionary("totals").items()))
    assert sorted(partition for those in held for partition in those) == sorted(
        {partition_of(key, family, PARTITIONS) for family, key in expected}
    ), "each partition lies in one shard, whole"
    assert totals == Counter({f: sum(n for (g, _), n in expected.items() if f == g) for f, _ in expected})

    table = spark.read.format("objectspace").load(str(pipeline.location), kvt="shop/stock").collect()
    assert {(row.family, bytes(row.key)): int(row.value) for row in table} == expected
    assert all(row.partition == partition_of(bytes(row.key), row.family, PARTITIONS) for row in table)
    assert len({(row.partition, row.version) for row in table}) == len(table)


def test_batches_are_joined_and_an_epoch_without_rows_is_passed_over() -> None:
    seen: list[list[int]] = []

    class Keeps:
        def process(self, batch: pa.RecordBatch, space: PersistedObjectSpace) -> None:
            seen.append(batch.column("n").to_pylist())

    cut = [pa.record_batch({"n": pa.array(part, pa.int64())}) for part in ([1, 2], [], [3])]
    with PersistedObjectSpace.open(":memory:") as space:
        WholeEpoch(Keeps())(iter(cut), space)
        WholeEpoch(Keeps())(iter(cut[1:2]), space)
    assert seen == [[1, 2, 3]]


@pytest.mark.parametrize("wrong", [Visits, object(), None])
def test_what_is_no_operator_is_refused_by_name(wrong: object) -> None:
    with pytest.raises(ObjectSpaceError, match="operator visits: expected a function"):
        Operator("visits", ("key",), wrong)  # type: ignore[arg-type]
