"""State on Spark beside its own state stores: the same input for all, micro-batch by micro-batch in turn.

Run it with ``python -m benchmarks.spark`` (or ``make bench-spark``); ``--quick`` takes smaller inputs, ``--only`` some
scenarios, ``--json FILE`` keeps every figure. All queries of a scenario are alive at once and get one file each in turn
(A B C A B C ...), so that a machine that slows down slows all of them. A time is ``triggerExecution`` as Spark reports
it; medians are of micro-batches 3 and later.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import LongType, StructType

from benchmarks.timing import machine, table
from objectspace import PersistedObjectSpace
from objectspace.spark import Measure, Operator, Pipeline, RunningAggregate, open_shard, quiet_session, save_shard

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
DEFAULT_STORE = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
SCHEMA = "key long, value long"
SHARDS = 2
FIRST_COUNTED = 3

Start = Callable[[SparkSession, DataFrame, Path], StreamingQuery]


@dataclass(frozen=True)
class Contestant:
    """One way to the same result.

    Args:
        name: what it is called in the tables.
        start: starts the query over a stream, with its state in a folder.
        state: the folders under it that hold state, which are weighed after each micro-batch.
        conf: settings of the session while the query is started, which it keeps.
    """

    name: str
    start: Start
    state: tuple[str, ...]
    conf: dict[str, str] = field(default_factory=dict)


@dataclass
class Measured:
    """The micro-batches of one contestant.

    Args:
        milliseconds: the time of each.
        bytes: what each added to the state folders.
    """

    milliseconds: list[float] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)

    @property
    def counted(self) -> list[float]:
        """The times that count."""
        return self.milliseconds[FIRST_COUNTED - 1 :]

    @property
    def median(self) -> float:
        """The median time, in milliseconds."""
        return statistics.median(self.counted)

    @property
    def typical_bytes(self) -> float:
        """The median of the bytes that a micro-batch wrote."""
        return statistics.median(self.bytes[FIRST_COUNTED - 1 :])


@dataclass(frozen=True)
class Scenario:
    """What is measured.

    Args:
        title: its heading.
        batches: yields the rows of each micro-batch.
        contestants: ours first.
        limits: for each rival the greatest ratio of our time to its time that was aimed at.
    """

    title: str
    batches: Callable[[], Iterator[pa.Table]]
    contestants: tuple[Contestant, ...]
    limits: dict[str, float]


# The contestants ------------------------------------------------------------------------------------------------------

TOTALS = RunningAggregate(
    "totals", ("key",), (Measure("rows", "rows"), Measure("sum", "sum", "value"), Measure("max", "max", "value"))
)


def append_to_lists(batches: Iterator[pa.RecordBatch], space: PersistedObjectSpace) -> None:
    """Append each value to the list of its key, in the order of the values."""
    rows = sorted(row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns)))
    for key, value in rows:
        space.get_or_create_list(str(key)).append(value)


def ours(process: Any) -> Start:
    """Return what starts a pipeline of this library."""

    def start(spark: SparkSession, stream: DataFrame, place: Path) -> StreamingQuery:
        pipeline = Pipeline(place / "space", SHARDS, cache=place / "cache")
        pipeline.add(Operator("operator", ("key",), process))
        return pipeline.start(stream, place / "query")

    return start


def native(spark: SparkSession, stream: DataFrame, place: Path) -> StreamingQuery:
    """Start Spark's own aggregation."""
    totals = stream.groupBy("key").agg(sf.count("*"), sf.sum("value"), sf.max("value"))
    return to_nowhere(totals, place)


def stateless(spark: SparkSession, stream: DataFrame, place: Path) -> StreamingQuery:
    """Start a query without any state."""
    return to_nowhere(stream, place, mode="append")


def with_state(processor: type[StatefulProcessor], output: StructType) -> Start:
    """Return what starts a query of transformWithState over rows."""

    def start(spark: SparkSession, stream: DataFrame, place: Path) -> StreamingQuery:
        done = stream.groupBy("key").transformWithState(
            processor(), outputStructType=output, outputMode="Update", timeMode="none"
        )
        return to_nowhere(done, place)

    return start


def to_nowhere(rows: DataFrame, place: Path, mode: str = "update") -> StreamingQuery:
    """Start a query that computes its rows and drops them."""
    writer = rows.writeStream.format("noop").outputMode(mode)
    return writer.option("checkpointLocation", str(place / "query")).start()


class TotalsProcessor(StatefulProcessor):
    """Count, sum and maximum of a key, with transformWithState."""

    def init(self, handle: Any) -> None:
        """Ask for the state of a key."""
        self._state = handle.getValueState("totals", "rows long, sum long, max long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Fold the rows of a key in."""
        values = [row.value for row in rows]
        count, total, most = self._state.get() or (0, 0, -(2**63))
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


_TOTALS_OUT = StructType()
for _name in ("key", "rows", "sum", "max"):
    _TOTALS_OUT = _TOTALS_OUT.add(_name, LongType())

OURS = Contestant("objectspace", ours(TOTALS), ("space",))
NATIVE_ROCKSDB = Contestant("native, RocksDB", native, ("query/state",), {PROVIDER: ROCKSDB})
NATIVE_DEFAULT = Contestant("native, default store", native, ("query/state",), {PROVIDER: DEFAULT_STORE})
WITH_STATE = Contestant(
    "transformWithState (Row)", with_state(TotalsProcessor, _TOTALS_OUT), ("query/state",), {PROVIDER: ROCKSDB}
)
STATELESS = Contestant("stateless", stateless, ())
OUR_LISTS = Contestant("objectspace", ours(append_to_lists), ("space",))
LIST_STATE = Contestant(
    "ListState, changelog",
    with_state(ListProcessor, StructType().add("key", LongType())),
    ("query/state",),
    {PROVIDER: ROCKSDB, CHANGELOG: "true"},
)


# The input ------------------------------------------------------------------------------------------------------------


def events(batches: int, rows: int, keys: int) -> Callable[[], Iterator[pa.Table]]:
    """Return what yields micro-batches of random (key, value)."""

    def make() -> Iterator[pa.Table]:
        rng = random.Random(5)
        for _ in range(batches):
            key = [rng.randrange(keys) for _ in range(rows)]
            yield rows_of(key, [rng.randrange(1_000_000) for _ in range(rows)])

    return make


def appends(batches: int, lists: int, each: int) -> Callable[[], Iterator[pa.Table]]:
    """Return what yields micro-batches with some new elements for every list."""

    def make() -> Iterator[pa.Table]:
        rng = random.Random(6)
        for _ in range(batches):
            key = [number for number in range(lists) for _ in range(each)]
            yield rows_of(key, [rng.randrange(2**40) for _ in key])

    return make


def after_filling(slots: int, batches: int, rows: int, keys: int) -> Callable[[], Iterator[pa.Table]]:
    """Return what yields one micro-batch with every key, then random ones."""

    def make() -> Iterator[pa.Table]:
        yield rows_of(range(slots), range(slots))
        yield from events(batches, rows, keys)()

    return make


def rows_of(key: Any, value: Any) -> pa.Table:
    """Return the rows of a micro-batch."""
    return pa.table({"key": pa.array(key, pa.int64()), "value": pa.array(value, pa.int64())})


# Running --------------------------------------------------------------------------------------------------------------


def run(spark: SparkSession, scenario: Scenario, place: Path) -> dict[str, Measured]:
    """Run the queries of a scenario side by side, a micro-batch of each in turn."""
    measured = {one.name: Measured() for one in scenario.contestants}
    with running(spark, scenario, place) as queries:
        for number, rows in enumerate(scenario.batches()):
            pq.write_table(rows, place / "made.parquet")
            for one in scenario.contestants:
                before = weigh(place / one.name, one.state)
                feed(place / "made.parquet", place / one.name / "input" / f"{number}.parquet")
                progress = next_progress(queries[one.name], number)
                measured[one.name].milliseconds.append(progress["durationMs"]["triggerExecution"])
                measured[one.name].bytes.append(weigh(place / one.name, one.state) - before)
    return measured


@contextmanager
def running(spark: SparkSession, scenario: Scenario, place: Path) -> Iterator[dict[str, StreamingQuery]]:
    """Start all queries of a scenario, and stop them at the end."""
    queries: dict[str, StreamingQuery] = {}
    try:
        for one in scenario.contestants:
            folder = place / one.name
            (folder / "input").mkdir(parents=True)
            for key, value in {PROVIDER: DEFAULT_STORE, CHANGELOG: "false", **one.conf}.items():
                spark.conf.set(key, value)
            stream = spark.readStream.schema(SCHEMA).parquet(str(folder / "input"))
            queries[one.name] = one.start(spark, stream, folder)
        yield queries
    finally:
        for query in queries.values():
            query.stop()


def feed(made: Path, target: Path) -> None:
    """Give a query its next file, which appears whole."""
    staged = target.with_name("_" + target.name)  # Spark looks past such names
    shutil.copy(made, staged)
    os.replace(staged, target)


def next_progress(query: StreamingQuery, number: int, patience: float = 900) -> dict[str, Any]:
    """Wait until a micro-batch is done, and return what Spark says of it."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if not query.isActive:
            raise RuntimeError(f"query {query.name or query.id} stopped: {query.exception()}")
        found = [
            dict(one) for one in reversed(query.recentProgress) if one["batchId"] == number and one["numInputRows"]
        ]
        empty = [
            dict(one) for one in query.recentProgress if one["batchId"] == number and "addBatch" in one["durationMs"]
        ]
        if found or empty:
            return (found or empty)[0]
        time.sleep(0.02)
    raise RuntimeError(f"micro-batch {number} took more than {patience:.0f} s")


def weigh(place: Path, folders: tuple[str, ...]) -> int:
    """Return the bytes of all files in some folders."""
    total = 0
    for folder in folders:
        for parent, _, names in os.walk(place / folder):
            for name in names:
                try:
                    total += os.stat(os.path.join(parent, name)).st_size
                except FileNotFoundError:
                    continue
    return total


# What is measured -----------------------------------------------------------------------------------------------------


def scenarios(quick: bool) -> dict[str, Scenario]:
    """Return the scenarios by name."""
    large, batches = (40_000, 5) if quick else (125_000, 8)
    states = (300_000, 5) if quick else (5_000_000, 8)
    native_too = (OURS, NATIVE_ROCKSDB, NATIVE_DEFAULT)
    rivals = (*native_too, WITH_STATE)
    return {
        "aggregate": Scenario(
            f"Running aggregate: {large * batches:,} events, {large * 4 // 5:,} keys, {batches} micro-batches",
            events(batches, large, large * 4 // 5),
            rivals,
            {"native, RocksDB": 0.75, "native, default store": 1.0, "transformWithState (Row)": 0.08},
        ),
        "small": Scenario(
            "Small micro-batches: 10,000 events each",
            events(8 if quick else 12, 10_000, 100_000),
            rivals,
            {"native, RocksDB": 0.7, "native, default store": 0.7, "transformWithState (Row)": 0.3},
        ),
        "few": Scenario(
            f"Few keys: {large:,} events a micro-batch over 1,000 keys",
            events(10 if quick else 20, large, 1000),
            native_too,
            {"native, RocksDB": 1.2, "native, default store": 1.2},
        ),
        "buffer": Scenario(
            "Buffers: 1,000 lists, 2 elements appended to each a micro-batch",
            appends(12 if quick else 120, 1000, 2),
            (OUR_LISTS, LIST_STATE),
            {},
        ),
        "empty": Scenario(
            "One event a micro-batch",
            events(12 if quick else 30, 1, 1000),
            (OURS, STATELESS, NATIVE_ROCKSDB),
            {"stateless": 1.5},
        ),
        "none": Scenario(
            "Micro-batches without any event",
            events(12 if quick else 30, 0, 1000),
            (OURS, STATELESS, NATIVE_ROCKSDB),
            {"stateless": 1.5},
        ),
        "state-50k": Scenario(
            "State of 50,000 keys, 10,000 events a micro-batch",
            after_filling(50_000, states[1], 10_000, 50_000),
            (OURS,),
            {},
        ),
        "state-5m": Scenario(
            f"State of {states[0]:,} keys, 10,000 events a micro-batch over 50,000 of them",
            after_filling(states[0], states[1], 10_000, 50_000),
            (OURS,),
            {},
        ),
    }


def report(scenario: Scenario, measured: dict[str, Measured]) -> str:
    """Return the table of a scenario."""
    mine = measured[scenario.contestants[0].name]
    rows = []
    for name, found in measured.items():
        pairs = [a / b for a, b in zip(mine.counted, found.counted, strict=True)]
        ratio = "" if found is mine else f"{statistics.median(pairs):.2f} ({min(pairs):.2f}-{max(pairs):.2f})"
        aim = f"{scenario.limits[name]:.2f}" if name in scenario.limits else ""
        size = [f"{found.bytes[1] / 1000:,.1f} kB", f"{found.typical_bytes / 1000:,.1f} kB"]
        size.append(f"{found.bytes[-1] / 1000:,.1f} kB")
        rows.append([name, f"{found.median:,.0f} ms", ratio, aim, *size])
    header = [
        "query",
        "micro-batch",
        "ratio of ours to it",
        "aim",
        "bytes of the second",
        "median bytes",
        "of the last",
    ]
    return table(scenario.title, header, rows)


def catch_up(quick: bool, place: Path) -> tuple[str, dict[str, Any]]:
    """Measure a task whose shard moved beside one whose shard stayed: open, process, save, without Spark around it."""
    slots, changed = (100_000 if quick else 1_000_000), 10_000
    pipeline = Pipeline(place / "space", 1)
    pipeline.add(Operator("operator", ("key",), TOTALS))
    stayed, moved, spare = (place / name for name in ("stayed", "moved", "spare"))
    batches = [*after_filling(slots, 40, changed, slots)()]
    times: dict[str, list[float]] = {"stayed": [], "moved, 5 epochs behind": []}
    for number, rows in enumerate(batches):
        seconds = {}
        is_due = number > 1 and number % 5 == 1
        # The cache that moved is opened every fifth epoch only, first and second in turn.
        caches = {"stayed": stayed, **({"moved, 5 epochs behind": moved} if is_due or number == 1 else {})}
        order = list(caches) if number % 2 else list(reversed(caches))
        for name in order:
            plan = begin(pipeline, number, caches[name])
            started = time.perf_counter()
            saved = one_task(plan, rows)
            seconds[name] = time.perf_counter() - started
        publish(pipeline, number, spare, saved)
        if is_due:
            for name, value in seconds.items():
                times[name].append(value * 1000)
    rows_out = [[name, f"{statistics.median(values):,.0f} ms"] for name, values in times.items()]
    pairs = [b / a for a, b in zip(times["stayed"], times["moved, 5 epochs behind"], strict=True)]
    rows_out[0] += ["", ""]
    rows_out[1] += [f"{statistics.median(pairs):.2f} ({min(pairs):.2f}-{max(pairs):.2f})", "2.00"]
    title = f"A shard of {slots:,} slots that moved: {changed:,} events an epoch"
    return table(title, ["cache", "task", "ratio of it to staying", "aim"], rows_out), {"catch-up": times}


def begin(pipeline: Pipeline, number: int, cache: Path) -> Any:
    """Return the plan of an epoch on one cache."""
    return pipeline.chain.operator_plan("operator", cache=str(cache))


def one_task(plan: Any, rows: pa.Table) -> Any:
    """Do what the task of a shard does."""
    with open_shard(plan, 0) as space:
        TOTALS(iter(rows.to_batches()), space)
        return save_shard(plan, space, 0)


def publish(pipeline: Pipeline, number: int, spare: Path, saved: Any) -> None:
    """Publish an epoch of one shard."""
    from checkpoint.chain import SourcePosition

    plan = pipeline.chain.begin(SourcePosition("benchmark", number), ["operator"], cache=str(spare))
    assert plan is not None
    pipeline.chain.publish(plan, {"operator": [saved]})


def main() -> None:
    """Run the scenarios and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller inputs")
    parser.add_argument("--only", action="append", help="a scenario; may be given several times")
    parser.add_argument("--json", type=Path, help="where to keep every figure")
    given = parser.parse_args()
    chosen = scenarios(given.quick)
    wanted = given.only or [*chosen, "catch-up"]
    if unknown := set(wanted) - {*chosen, "catch-up"}:
        parser.error(f"no scenario {sorted(unknown)[0]}: there are {', '.join([*chosen, 'catch-up'])}")
    kept: dict[str, Any] = {}
    print(f"# State on Spark\n\n{machine('pyspark', 'pyarrow')}, {os.cpu_count()} processors, {SHARDS} shards\n")
    place = Path(tempfile.mkdtemp(prefix=".bench-", dir=".")).resolve()
    try:
        if set(wanted) & set(chosen):
            conf = {"spark.driver.memory": "4g", "spark.sql.streaming.pollingDelay": "250ms"}
            spark = quiet_session("benchmark", f"local[{SHARDS},4]", place / "spark.log", conf)
            for name in (name for name in chosen if name in wanted):
                measured = run(spark, chosen[name], place / name)
                kept[name] = {key: asdict(value) for key, value in measured.items()}
                print(report(chosen[name], measured), flush=True)
                shutil.rmtree(place / name)
            spark.stop()
        if "catch-up" in wanted:
            text, figures = catch_up(given.quick, place / "catch-up")
            kept |= figures
            print(text, flush=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if given.json:
            given.json.write_bytes(orjson.dumps(kept, option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
