"""Operators beside other ways to the same result, each with its state made durable every 100,000 events.

Run it with ``python -m benchmarks.operators`` (or ``make bench-operators``); ``--quick`` takes fewer events.
A scenario is a function that returns the events and what to run over them; :data:`SCENARIOS` lists them.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from bytewax.operators import StatefulBatchLogic

from benchmarks import quix
from benchmarks.durable import (
    AN_EPOCH,
    CHUNK,
    RIVAL,
    Scenario,
    chunks_of,
    measure,
    pieces,
    run_bytewax,
    run_operator,
)
from benchmarks.joins import group_top, hash_join, top_n, top_of_growing
from benchmarks.timing import machine
from objectspace.operators import AggCall, HashAgg
from objectspace.relational import Column, TableSchema

GROUPS = 100_000

Event = tuple[Any, ...]

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
            if number % AN_EPOCH == 0 or number == len(events):
                rows = [(k, orjson.dumps(groups[k])) for k in touched]
                database.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", rows)
                database.commit()
                touched.clear()


class Totals(StatefulBatchLogic[Any, Any, Any]):
    """The count, sum and maximum of one key, for Bytewax; nothing is ever taken back."""

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


class Tallies(StatefulBatchLogic[Any, Any, Any]):
    """The count, sum and maximum of one key, for Bytewax, where values are taken back: all of them are kept."""

    def __init__(self, state: Any) -> None:
        self.values: Counter[int] = Counter(state)

    def on_batch(self, values: list[tuple[int, int]]) -> Any:
        """Take pairs of a sign and a value."""
        for sign, value in values:
            self.values[value] += sign
            if not self.values[value]:
                del self.values[value]
        count, total = self.values.total(), sum(value * times for value, times in self.values.items())
        return [(count, total, max(self.values, default=None))], StatefulBatchLogic.RETAIN

    def snapshot(self) -> Any:
        """Return what is saved."""
        return dict(self.values)


def _aggregation(
    title: str, rows: list[Event], ways: dict[str, Callable[[], HashAgg]], rival: Any, given: Any
) -> Scenario:
    changes = chunks_of(EVENTS, [("input", [("+", row) for row in piece]) for piece in pieces(rows, CHUNK)])
    mine = {name: partial(run_operator, make, changes) for name, make in ways.items()}
    hand = {"a dictionary and JSON in SQLite by hand": partial(by_hand, pieces(rows, CHUNK))}
    return Scenario(title, len(rows), {**mine, **hand, RIVAL: partial(run_bytewax, rival, given)})


def _rows(events: int) -> list[Event]:
    source = random.Random(1)
    return [(source.randrange(GROUPS), source.randrange(1000), number) for number in range(events)]


def hash_agg(events: int) -> Scenario:
    """Return the scenario of an aggregation by 100,000 groups whose input only grows."""
    rows = _rows(events)
    ways = {
        "HashAgg, append-only": lambda: HashAgg(EVENTS, ["k"], CALLS, append_only=True),
        "HashAgg, with retractions, without max": lambda: HashAgg(EVENTS, ["k"], CALLS[:2]),
    }
    title = f"count, sum and max of {events:,} events by {GROUPS:,} groups"
    found = _aggregation(title, rows, ways, Totals, [(str(k), v) for k, v, _ in rows])
    found.ways[quix.RIVAL] = partial(quix.totals, pieces(rows, CHUNK))
    return found


def hash_agg_extremes(events: int) -> Scenario:
    """Return the scenario of an aggregation whose maximum can be taken back, so that each value is kept."""
    rows = _rows(events)
    ways = {"HashAgg, with retractions": lambda: HashAgg(EVENTS, ["k"], CALLS)}
    title = f"count, sum and max that can be taken back, of {events:,} events by {GROUPS:,} groups"
    return _aggregation(title, rows, ways, Tallies, [(str(k), (1, v)) for k, v, _ in rows])


SCENARIOS: dict[str, Callable[[int], Scenario]] = {
    "hash_agg": hash_agg,
    "hash_agg_extremes": hash_agg_extremes,
    "hash_join": hash_join,
    "top_n": top_n,
    "top_of_growing": top_of_growing,
    "group_top_n": group_top,
}
"""Each takes a number of events."""


def main() -> None:
    """Measure the scenarios that are named, all by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", nargs="*", choices=[*SCENARIOS, []], default=[])
    parser.add_argument("--quick", action="store_true", help="200,000 events, once")
    chosen = parser.parse_args()
    print(machine("bytewax", "quixstreams", "pyarrow", "orjson"), "\n")
    for name in chosen.scenario or SCENARIOS:
        print(measure(SCENARIOS[name](200_000 if chosen.quick else 500_000), 1 if chosen.quick else 3), flush=True)


if __name__ == "__main__":
    main()
