"""Users' own stateful classes: one batch a shard and epoch, with objects and key-value tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.kvt import UTF8, KeyValueTableConfiguration, KeyValueTableManager
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
