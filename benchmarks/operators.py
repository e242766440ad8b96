"""Operators beside other ways to the same result, each with its state made durable every 100,000 events.

Run it with ``python -m benchmarks.operators`` (or ``make bench-operators``); ``--quick`` takes a fifth of the events.
A scenario is a function that returns the events and what to run over them; :data:`SCENARIOS` lists them.
"""

from __future__ import annotations

import argparse
import gc
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import bytewax.operators as op
import orjson
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulBatchLogic
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import TestingSink, TestingSource, run_main

from benchmarks.timing import in_turn, machine, table
from objectspace import PersistedObjectSpace
from objectspace.operators import AggCall, HashAgg, Operator
from objectspace.relational import Chunk, Column, TableSchema

CHUNK = 10_000
CHECKPOINT = 100_000
GROUPS = 100_000

Event = tuple[Any, ...]
Run = Callable[[Path], object]


@dataclass(frozen=True)
class Scenario:
    """What is measured: how many events, and each way to take them in."""

    title: str
    events: int
    ways: dict[str, Run]


@contextmanager
def folder() -> Iterator[Path]:
    """Give a folder for the stores, on the disk of the current folder, and remove it at the end."""
    made = Path(tempfile.mkdtemp(prefix=".bench-", dir="."))
    try:
        yield made
    finally:
        shutil.rmtree(made)


def batches(events: list[Any], size: int) -> list[list[Any]]:
    """Return events in lists of a size."""
    return [events[start : start + size] for start in range(0, len(events), size)]


def run_operator(make: Callable[[], Operator], chunks: list[Chunk], place: Path) -> int:
    """Run an operator over chunks, with a barrier and a checkpoint every 100,000 events; return the changes given."""
    given = epoch = 0
    with PersistedObjectSpace.open(place / "mine.db") as space:
        operator = make()
        operator.open(space, "operator")
        for number, chunk in enumerate(chunks, 1):
            operator.process(chunk)
            if number % (CHECKPOINT // CHUNK) == 0 or number == len(chunks):
                epoch += 1
                given += sum(map(len, operator.barrier(epoch)))
                space.checkpoint(epoch=epoch)
    return given


# Count, sum and maximum by group -------------------------------------------------------------------------------------


EVENTS = TableSchema([Column("k", "int64"), Column("v", "int64"), Column("id", "int64")], primary_key=["id"])

CALLS = [AggCall("count"), AggCall("sum", "v"), AggCall("max", "v")]


def by_hand(events: list[list[Event]], place: Path) -> None:
    """Keep a dictionary of lists, and write the groups that were touched to SQLite as JSON."""
    groups: dict[int, list[int]] = {}
    with sqlite3.connect(place / "hand.db") as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE state (key INTEGER PRIMARY KEY, value TEXT) WITHOUT ROWID")
        touched: set[int] = set()
        for number, batch in enumerate(events, 1):
            for k, v, _ in batch:
                found = groups.setdefault(k, [0, 0, v])
                found[0] += 1
                found[1] += v
                found[2] = max(found[2], v)
                touched.add(k)
            if number % (CHECKPOINT // CHUNK) == 0 or number == len(events):
                rows = [(k, orjson.dumps(groups[k])) for k in touched]
                database.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", rows)
                database.commit()
                touched.clear()


class Totals(StatefulBatchLogic[Any, Any, Any]):
    """The count, sum and maximum of one key, for Bytewax."""

    def __init__(self, state: Any) -> None:
        self.state = state or (0, 0, -(2**63))

    def on_batch(self, values: list[int]) -> Any:
        """Take the values of a batch."""
        count, total, greatest = self.state
        self.state = (count + len(values), total + sum(values), max(greatest, *values))
        return [self.state], StatefulBatchLogic.RETAIN

    def snapshot(self) -> Any:
        """Return what is saved."""
        return self.state


def with_bytewax(events: list[Any], place: Path) -> None:
    """Run Bytewax with recovery from SQLite; an epoch, which ends with a snapshot, is one batch of 100,000 events."""
    init_db_dir(place, 1)
    flow = Dataflow("totals")
    stream = op.input("events", flow, TestingSource(events, batch_size=CHECKPOINT))
    given: list[Any] = []
    op.output("out", op.stateful_batch("totals", stream, Totals), TestingSink(given))
    run_main(flow, epoch_interval=timedelta(0), recovery_config=RecoveryConfig(str(place)))


def hash_agg(events: int) -> Scenario:
    """Return the scenario of an aggregation by 100,000 groups."""
    source = random.Random(1)
    rows: list[Event] = [(source.randrange(GROUPS), source.randrange(1000), number) for number in range(events)]
    changes = [Chunk(EVENTS, ["+"] * len(batch), batch) for batch in batches(rows, CHUNK)]
    return Scenario(
        f"count, sum and max of {events:,} events by {GROUPS:,} groups",
        events,
        {
            "HashAgg, append-only": partial(
                run_operator, lambda: HashAgg(EVENTS, ["k"], CALLS, append_only=True), changes
            ),
            "HashAgg, with retractions": partial(run_operator, lambda: HashAgg(EVENTS, ["k"], CALLS), changes),
            "HashAgg, with retractions, without max": partial(
                run_operator, lambda: HashAgg(EVENTS, ["k"], CALLS[:2]), changes
            ),
            "a dictionary and JSON in SQLite by hand": partial(by_hand, batches(rows, CHUNK)),
            "Bytewax, recovery from SQLite": partial(with_bytewax, [(str(k), v) for k, v, _ in rows]),
        },
    )


SCENARIOS: dict[str, Callable[[int], Scenario]] = {"hash_agg": hash_agg}
"""Each takes a number of events."""


def measure(scenario: Scenario, repetitions: int) -> str:
    """Run the ways of a scenario in turn, and return events a second of each."""
    # The events are there before: the collector need not walk them in any of the ways.
    gc.collect()
    gc.freeze()
    with folder() as place:
        actions = {name: partial(_prepared, way, place) for name, way in scenario.ways.items()}
        measured = in_turn(actions, repetitions)
    slowest = max(found.median for found in measured.values())
    rows = [
        [name, f"{scenario.events / found.median:,.0f}", f"{slowest / found.median:.1f}"]
        for name, found in measured.items()
    ]
    return table(scenario.title, ["way", "events a second", "times the slowest"], rows)


def _prepared(way: Run, place: Path) -> Callable[[], object]:
    return partial(way, Path(tempfile.mkdtemp(dir=place)))


def main() -> None:
    """Measure the scenarios that are named, all by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", nargs="*", choices=[*SCENARIOS, []], default=[])
    parser.add_argument("--quick", action="store_true", help="a fifth of the events, once")
    chosen = parser.parse_args()
    print(machine("bytewax", "pyarrow", "orjson"), "\n")
    for name in chosen.scenario or SCENARIOS:
        print(measure(SCENARIOS[name](100_000 if chosen.quick else 500_000), 1 if chosen.quick else 3))


if __name__ == "__main__":
    main()
