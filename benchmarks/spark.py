"""State on Spark beside its own state stores: the same input for all, micro-batch by micro-batch in turn.

Run it with ``python -m benchmarks.spark`` (or ``make bench-spark``); ``--quick`` takes smaller inputs, ``--only`` some
scenarios, ``--json FILE`` keeps every figure. All queries of a scenario are alive at once and get one file each in turn
(A B C A B C ...), so that a machine that slows down slows all of them; a slow one may get fewer. A time is
``triggerExecution`` as Spark reports it; medians are of micro-batches 3 and later. Who takes part, and how, is in
``benchmarks.spark_contestants``.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks import spark_contestants as who
from benchmarks.figures import Spread, ratios
from benchmarks.scripts import SERIES
from benchmarks.timing import machine, table
from objectspace.spark import Operator, Pipeline, open_shard, quiet_session, save_shard

FIRST_COUNTED = 3
SCHEMA = "key long, value long"
SLOWER = "a micro-batch takes seconds: in the full run only"


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
        fewer: how many micro-batches the slow ones get, by name; the others get all.
        absent: who does not take part, with the reason.
        shows_bytes: whether the bytes of every micro-batch are shown too.
    """

    title: str
    batches: Callable[[], Iterator[pa.Table]]
    contestants: tuple[who.Contestant, ...]
    limits: dict[str, float] = field(default_factory=dict)
    fewer: dict[str, int] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    shows_bytes: bool = False


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
                if number == scenario.fewer.get(one.name):
                    queries.pop(one.name).stop()
                if one.name in queries:
                    add(measured[one.name], one, queries[one.name], place, number)
    return measured


def add(measured: Measured, one: who.Contestant, query: StreamingQuery, place: Path, number: int) -> None:
    """Give a query the next micro-batch and note what it took."""
    before = weigh(place / one.name, one.state)
    feed(place / "made.parquet", place / one.name / "input" / f"{number}.parquet")
    measured.milliseconds.append(next_progress(query, number)["durationMs"]["triggerExecution"])
    measured.bytes.append(weigh(place / one.name, one.state) - before)


@contextmanager
def running(spark: SparkSession, scenario: Scenario, place: Path) -> Iterator[dict[str, StreamingQuery]]:
    """Start all queries of a scenario, and stop them at the end."""
    queries: dict[str, StreamingQuery] = {}
    try:
        for one in scenario.contestants:
            folder = place / one.name
            (folder / "input").mkdir(parents=True)
            for key, value in one.conf.items():
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
    """Wait until a micro-batch is done, and return what Spark says of it.

    Only the last progress is asked for, one out of a hundred: what waits here takes turns with the code of the driver.
    """
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if not query.isActive:
            raise RuntimeError(f"query {query.name or query.id} stopped: {query.exception()}")
        last = query.lastProgress
        if last is not None and last["batchId"] >= number and (found := _progress_of(query, number)):
            return found
        time.sleep(0.02)
    raise RuntimeError(f"micro-batch {number} took more than {patience:.0f} s")


def _progress_of(query: StreamingQuery, number: int) -> dict[str, Any] | None:
    """Return what Spark says of a micro-batch, rather of one that had rows; None where it is not done."""
    done = [dict(one) for one in query.recentProgress if one["batchId"] == number]
    with_rows = [one for one in done if one["numInputRows"]]
    worked = [one for one in done if "addBatch" in one["durationMs"]]
    return with_rows[-1] if with_rows else worked[0] if worked else None


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
    return {
        "aggregate": aggregate(quick),
        "small": small(quick),
        "few": few(quick),
        "buffer": buffer(quick),
        "empty": almost_empty("One event a micro-batch", 1, quick),
        "none": almost_empty("Micro-batches without any event", 0, quick),
        "files": almost_empty(
            "One event a micro-batch, in a session as quiet_session() makes it", 1, quick, who.BY_FILE_SYSTEM
        ),
        "state-50k": many_keys("State of 50,000 keys, 10,000 events a micro-batch", 50_000, quick),
        "state-5m": many_keys(
            f"State of {300_000 if quick else 5_000_000:,} keys, 10,000 events a micro-batch over 50,000 of them",
            300_000 if quick else 5_000_000,
            quick,
        ),
    }


def aggregate(quick: bool) -> Scenario:
    """Return the running aggregate over many keys, most of which each micro-batch touches."""
    rows, batches = (40_000, 5) if quick else (125_000, 8)
    slow = (*who.WITH_STATE, *who.IN_PANDAS)
    return Scenario(
        f"Running aggregate: {rows * batches:,} events, {rows * 4 // 5:,} keys, {batches} micro-batches",
        events(batches, rows, rows * 4 // 5),
        (who.OURS, who.BUILT, *who.NATIVE_ROCKSDB, who.NATIVE_DEFAULT, *(() if quick else slow)),
        {"native, RocksDB": 0.75, "native, default store": 1.0} | ({} if quick else {slow[0].name: 0.08}),
        fewer={} if quick else {one.name: 5 for one in slow},
        absent={one.name: SLOWER for one in slow} if quick else {},
    )


def small(quick: bool) -> Scenario:
    """Return small micro-batches."""
    slow = who.WITH_STATE[:1] if quick else (*who.WITH_STATE, *who.IN_PANDAS)
    return Scenario(
        "Small micro-batches: 10,000 events each over 100,000 keys",
        events(8 if quick else 12, 10_000, 100_000),
        (who.OURS, who.BUILT, *who.NATIVE_ROCKSDB, who.NATIVE_DEFAULT, *slow),
        {"native, RocksDB": 0.7, "native, default store": 0.7, "transformWithState, RocksDB": 0.3},
        fewer={one.name: 4 for one in slow} if quick else {},
        absent={one.name: SLOWER for one in (*who.WITH_STATE, *who.IN_PANDAS) if one not in slow},
    )


def few(quick: bool) -> Scenario:
    """Return many events over few keys."""
    rows, slow = 40_000 if quick else 125_000, (*who.WITH_STATE, *who.IN_PANDAS)
    return Scenario(
        f"Few keys: {rows:,} events a micro-batch over 1,000 keys",
        events(8 if quick else 20, rows, 1000),
        (who.OURS, *who.NATIVE_ROCKSDB, who.NATIVE_DEFAULT, *slow),
        {"native, RocksDB": 1.2, "native, default store": 1.2},
        fewer={one.name: 4 for one in slow} if quick else {},
    )


def buffer(quick: bool) -> Scenario:
    """Return lists that grow: a way that writes them as a whole writes more with each micro-batch."""
    return Scenario(
        "Buffers: 1,000 lists, 2 elements appended to each a micro-batch",
        appends(8 if quick else 120, 1000, 2),
        (who.OUR_LISTS, *who.LIST_STATE, *who.LIST_IN_PANDAS, *who.COLLECT_LIST),
        shows_bytes=True,
    )


def almost_empty(title: str, rows: int, quick: bool, conf: dict[str, str] | None = None) -> Scenario:
    """Return micro-batches that show what a query costs by itself, perhaps with other settings than Spark has."""
    contestants = (who.OURS, who.STATELESS, *who.NATIVE_ROCKSDB)
    if conf:
        contestants = tuple(replace(one, conf=one.conf | conf) for one in contestants)
    return Scenario(title, events(8 if quick else 30, rows, 1000), contestants, {"stateless": 1.5})


def many_keys(title: str, keys: int, quick: bool) -> Scenario:
    """Return micro-batches over a large state, of which they touch little."""
    slow = "it takes a key at a time: it would fill the state for longer than all the others run"
    return Scenario(
        title,
        after_filling(keys, 5 if quick else 8, 10_000, 50_000),
        (who.OURS, *who.NATIVE_ROCKSDB),
        absent={one.name: slow for one in (*who.WITH_STATE, *who.IN_PANDAS)}
        | {who.NATIVE_DEFAULT.name: "all its state lies in memory: the guide advises RocksDB for many keys"},
    )


# What is printed ------------------------------------------------------------------------------------------------------


def report(scenario: Scenario, measured: dict[str, Measured]) -> str:
    """Return the tables of a scenario: what it comes to, and the time of every micro-batch."""
    mine = measured[scenario.contestants[0].name]
    rows = [row_of(scenario, name, found, mine) for name, found in measured.items()]
    header = ["query", "micro-batch", "ratio of ours to it", "aim", "micro-batches"]
    header += ["bytes of the second", "median bytes", "of the last"]
    times = {name: [f"{value:,.0f} ms" for value in one.milliseconds] for name, one in measured.items()}
    found = [table(scenario.title, header, rows), each(f"{scenario.title}: time of each", times)]
    if scenario.shows_bytes:
        sizes = {name: [f"{value / 1000:,.1f} kB" for value in one.bytes] for name, one in measured.items()}
        found.append(each(f"{scenario.title}: state bytes of each", sizes))
    return "\n".join(found)


def row_of(scenario: Scenario, name: str, found: Measured, mine: Measured) -> list[str]:
    """Return the row of a contestant in the table of a scenario."""
    ratio = "" if found is mine else str(Spread.of(ratios(mine.counted, found.counted)))
    aim = f"{scenario.limits[name]:.2f}" if name in scenario.limits else ""
    sizes = (found.bytes[1], found.typical_bytes, found.bytes[-1])
    counted = f"{len(found.milliseconds):,}"
    return [name, f"{found.median:,.0f} ms", ratio, aim, counted, *(f"{size / 1000:,.1f} kB" for size in sizes)]


def each(title: str, cells: dict[str, list[str]]) -> str:
    """Return the table of what was measured in every micro-batch, a column for each contestant."""
    rows = itertools.zip_longest(*cells.values(), fillvalue="")
    return table(title, [SERIES, *cells], [[str(number), *row] for number, row in enumerate(rows, 1)])


def configurations(chosen: Iterable[Scenario]) -> str:
    """Return the table of who takes part and how, and the one of who does not and why."""
    chosen = [*chosen]
    # Two contestants of one name differ in what they do.
    how = dict.fromkeys((one.name, one.how, one.store) for scenario in chosen for one in scenario.contestants)
    missing = [
        (scenario.title, "; ".join(name for name, reason in scenario.absent.items() if reason == why), why)
        for scenario in chosen
        for why in dict.fromkeys(scenario.absent.values())
    ]
    found = table("Configurations", ["query", "what it does", "where its state lies"], [*how])
    return found + ("\n" + table("Not run", ["scenario", "query", "why"], missing) if missing else "")


# A shard that moved ---------------------------------------------------------------------------------------------------


def catch_up(quick: bool, place: Path) -> tuple[str, dict[str, Any]]:
    """Measure a task whose shard moved beside one whose shard stayed: open, process, save, without Spark around it."""
    slots, changed = (100_000 if quick else 1_000_000), 10_000
    pipeline = Pipeline(place / "space", 1)
    pipeline.add(Operator("operator", ("key",), who.TOTALS))
    stayed, moved, spare = (place / name for name in ("stayed", "moved", "spare"))
    batches = [*after_filling(slots, 22 if quick else 40, changed, slots)()]
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
        who.TOTALS(iter(rows.to_batches()), space)
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
    print(f"# State on Spark\n\n{machine('pyspark', 'pyarrow')}, {os.cpu_count()} processors, {who.SHARDS} shards\n")
    place = Path(tempfile.mkdtemp(prefix=".bench-", dir=".")).resolve()
    try:
        if set(wanted) & set(chosen):
            conf = {"spark.driver.memory": "4g", "spark.sql.streaming.pollingDelay": "150ms"}
            spark = quiet_session("benchmark", f"local[{who.SHARDS},4]", place / "spark.log", conf)
            for name in (name for name in chosen if name in wanted):
                measured = run(spark, chosen[name], place / name)
                kept[name] = {key: asdict(value) for key, value in measured.items()}
                print(report(chosen[name], measured), flush=True)
                shutil.rmtree(place / name)
            spark.stop()
            print(configurations(chosen[name] for name in chosen if name in wanted))
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
