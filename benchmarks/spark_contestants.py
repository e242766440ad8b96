"""Who takes part in the benchmark of Spark: our pipelines and Spark's own ways to keep state.

Each rival runs as the guide to Structured Streaming advises: RocksDB both with checkpoints of files (the default) and
with changelog checkpoints, which the guide recommends for latency, and in both without counting rows, which it names as
what slows RocksDB down; as many partitions as processors. The default store, whose state lies in the memory of the
JVM, takes part only where the state is small: for millions of keys the guide sends one to RocksDB.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from objectspace import PersistedObjectSpace
from objectspace.operators import count, max_, sum_
from objectspace.spark import Measure, Operator, Pipeline, RunningAggregate

SHARDS = 2

_STORE = "spark.sql.streaming.stateStore"
_PROVIDER = "org.apache.spark.sql.execution.streaming.state"
_FILES = "spark.sql.streaming.checkpointFileManagerClass"
_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.{}BasedCheckpointFileManager"
BY_FILE_SYSTEM = {_FILES: _MANAGER.format("FileSystem")}
"""How ``quiet_session()`` has a query's files kept; all else runs as Spark does by default."""

MEMORY = {
    _FILES: _MANAGER.format("FileContext"),
    f"{_STORE}.providerClass": f"{_PROVIDER}.HDFSBackedStateStoreProvider",
    f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "false",
    f"{_STORE}.rocksdb.trackTotalNumberOfRows": "false",
}
ROCKSDB = {**MEMORY, f"{_STORE}.providerClass": f"{_PROVIDER}.RocksDBStateStoreProvider"}
CHANGELOG = {**ROCKSDB, f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true"}
STORES = {"RocksDB": ROCKSDB, "changelog": CHANGELOG}
_OF_STORE = {
    "RocksDB": "RocksDB that checkpoints its files, Spark's default for it; rows are not counted",
    "changelog": "RocksDB with changelog checkpoints, which the guide advises for latency; rows are not counted",
}

TOTALS = RunningAggregate(
    "totals", ("key",), (Measure("rows", "rows"), Measure("sum", "sum", "value"), Measure("max", "max", "value"))
)
TOTALS_ROW = "key long, rows long, sum long, max long"
LEAST = -(2**63)

Start = Callable[[SparkSession, DataFrame, Path], StreamingQuery]


@dataclass(frozen=True)
class Contestant:
    """One way to the same result.

    Args:
        name: what it is called in the tables.
        start: starts the query over a stream, with its state in a folder.
        state: the folders under it that hold state, which are weighed after each micro-batch.
        how: what it does, and why in this way.
        store: where its state lies, and why there.
        conf: settings of the session while the query is started, which it keeps.
    """

    name: str
    start: Start
    state: tuple[str, ...]
    how: str
    store: str
    conf: dict[str, str] = field(default_factory=lambda: MEMORY)


# Ours -----------------------------------------------------------------------------------------------------------------


def ours(process: Any) -> Start:
    """Return what starts a pipeline of this library."""

    def start(spark: SparkSession, stream: DataFrame, place: Path) -> StreamingQuery:
        pipeline = Pipeline(place / "space", SHARDS, cache=place / "cache")
        pipeline.add(Operator("operator", ("key",), process))
        return pipeline.start(stream, place / "query")

    return start


def built(spark: SparkSession, stream: DataFrame, place: Path) -> StreamingQuery:
    """Start a pipeline that the builder makes: an aggregation that can take rows back, and a table of its results."""
    pipeline = Pipeline(place / "space", SHARDS, cache=place / "cache")
    totals = pipeline.source("rows", stream).group_by("key").agg(rows=count(), sum=sum_("value"), max=max_("value"))
    totals.materialize("totals")
    return pipeline.start(checkpoint_location=place / "query")


def append_to_lists(batches: Iterator[pa.RecordBatch], space: PersistedObjectSpace) -> None:
    """Append each value to the list of its key, in the order of the values."""
    rows = sorted(row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns)))
    for key, value in rows:
        space.get_or_create_list(str(key)).append(value)


# Spark's --------------------------------------------------------------------------------------------------------------


def to_nowhere(rows: DataFrame, place: Path, mode: str = "update") -> StreamingQuery:
    """Start a query that computes its rows and drops them."""
    writer = rows.writeStream.format("noop").outputMode(mode)
    return writer.option("checkpointLocation", str(place / "query")).start()


def stateless(spark: SparkSession, stream: DataFrame, place: Path) -> StreamingQuery:
    """Start a query without any state."""
    return to_nowhere(stream, place, mode="append")


def native(*measures: str) -> Start:
    """Return what starts Spark's own aggregation."""

    def start(spark: SparkSession, stream: DataFrame, place: Path) -> StreamingQuery:
        return to_nowhere(stream.groupBy("key").agg(*(sf.expr(one) for one in measures)), place)

    return start


def with_state(processor: type[StatefulProcessor], output: str) -> Start:
    """Return what starts a query of transformWithState over rows."""

    def start(spark: SparkSession, stream: DataFrame, place: Path) -> StreamingQuery:
        done = stream.groupBy("key").transformWithState(
            processor(), outputStructType=output, outputMode="Update", timeMode="none"
        )
        return to_nowhere(done, place)

    return start


def in_pandas(function: Callable[..., Iterator[pd.DataFrame]], output: str, state: str) -> Start:
    """Return what starts a query of applyInPandasWithState."""

    def start(spark: SparkSession, stream: DataFrame, place: Path) -> StreamingQuery:
        done = stream.groupBy("key").applyInPandasWithState(
            function, output, state, "update", GroupStateTimeout.NoTimeout
        )
        return to_nowhere(done, place)

    return start


class TotalsProcessor(StatefulProcessor):
    """Count, sum and maximum of a key, with transformWithState."""

    def init(self, handle: Any) -> None:
        """Ask for the state of a key."""
        self._state = handle.getValueState("totals", "rows long, sum long, max long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Fold the rows of a key in."""
        values = [row.value for row in rows]
        count, total, most = self._state.get() or (0, 0, LEAST)
        found = (count + len(values), total + sum(values), max(most, *values))
        self._state.update(found)
        yield Row(key=key[0], rows=found[0], sum=found[1], max=found[2])

    def close(self) -> None:
        """Do nothing."""


class ListProcessor(StatefulProcessor):
    """A list for each key, with the ListState of transformWithState."""

    def init(self, handle: Any) -> None:
        """Ask for the state of a key."""
        self._state = handle.getListState("list", "value long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Append the values of a key."""
        self._state.appendList([(row.value,) for row in rows])
        return iter(())

    def close(self) -> None:
        """Do nothing."""


def totals_in_pandas(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Fold the rows of a key into its count, sum and maximum, with applyInPandasWithState."""
    count, total, most = state.get if state.exists else (0, 0, LEAST)
    for frame in frames:
        values = frame["value"]
        count, total, most = count + len(values), total + int(values.sum()), max(most, int(values.max()))
    state.update((count, total, most))
    yield pd.DataFrame({"key": [key[0]], "rows": [count], "sum": [total], "max": [most]})


def list_in_pandas(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Append the values of a key to its list, which is one value: a state of Spark 4.3 cannot hold an array here."""
    found = array("q", state.get[0] if state.exists else b"")
    for frame in frames:
        found.extend(frame["value"].tolist())
    state.update((found.tobytes(),))
    yield pd.DataFrame({"key": [key[0]]})


# All of them ----------------------------------------------------------------------------------------------------------


def on_rocksdb(way: str, start: Start, how: str) -> tuple[Contestant, ...]:
    """Return one of Spark's ways on RocksDB, without changelog checkpoints and with them."""
    return tuple(
        Contestant(f"{way}, {store}", start, ("query/state",), how, _OF_STORE[store], conf)
        for store, conf in STORES.items()
    )


NATIVE = native("count(*)", "sum(value)", "max(value)")
_NATIVE_HOW = "groupBy().agg()"
_OUR_STORE = "a local folder; the defaults"

OURS = Contestant("objectspace", ours(TOTALS), ("space",), "a RunningAggregate", _OUR_STORE)
BUILT = Contestant(
    "objectspace, built",
    built,
    ("space",),
    "group_by().agg().materialize(): two operators with state, the second a table that others can read",
    _OUR_STORE,
)
NATIVE_DEFAULT = Contestant(
    "native, default store",
    NATIVE,
    ("query/state",),
    _NATIVE_HOW,
    "Spark's default: all state lies in the memory of the JVM",
)
NATIVE_ROCKSDB = on_rocksdb("native", NATIVE, _NATIVE_HOW)
WITH_STATE = on_rocksdb(
    "transformWithState",
    with_state(TotalsProcessor, TOTALS_ROW),
    "one ValueState a key; over rows, which is faster here than over pandas frames",
)
IN_PANDAS = on_rocksdb(
    "applyInPandasWithState",
    in_pandas(totals_in_pandas, TOTALS_ROW, "rows long, sum long, max long"),
    "one state a key",
)
STATELESS = Contestant("stateless", stateless, (), "the rows go from the source to nowhere", "none")

OUR_LISTS = Contestant("objectspace", ours(append_to_lists), ("space",), "a persisted list a key", _OUR_STORE)
LIST_STATE = on_rocksdb(
    "ListState",
    with_state(ListProcessor, "key long"),
    "transformWithState over rows; appendList, which need not write the list again",
)
LIST_IN_PANDAS = on_rocksdb(
    "applyInPandasWithState",
    in_pandas(list_in_pandas, "key long", "list binary"),
    "the list as packed bytes: a state of Spark 4.3 cannot hold an array here",
)
COLLECT_LIST = on_rocksdb("collect_list", native("collect_list(value)"), "groupBy().agg(collect_list())")
