"""Joins and top-n beside plain dictionaries that save themselves whole: ``python -m benchmarks.joins``.

Each way takes the same events in chunks of 1,000 and makes its state durable every 100,000 events. The rivals keep
their state in dictionaries and write all of it as JSON into one row of SQLite. Two events of ten are retractions.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from benchmarks.timing import machine, table
from objectspace import PersistedObjectSpace
from objectspace.operators import HashJoin, Operator, TopN
from objectspace.relational import Chunk, Column, TableSchema

CHUNK = 1_000
CHECKPOINT = 100_000
LIMIT = 10

SCHEMA = TableSchema([Column("k", "int64"), Column("v", "int64"), Column("id", "int64")], ["id"])

Change = tuple[str, tuple[int, int, int]]
Batch = tuple[str, list[Change]]
Step = Callable[[str, list[Change]], int]


def batches(events: int, keys: int, sides: tuple[str, ...]) -> list[Batch]:
    """Return lists of changes, the sides in turn."""
    source, live, number = random.Random(7), {side: [] for side in sides}, 0
    found: list[Batch] = []
    for place in range(events // CHUNK):
        side = sides[place % len(sides)]
        rows: list[Any] = live[side]
        changes: list[Change] = []
        for _ in range(CHUNK):
            if len(rows) > CHUNK and source.random() < 0.2:
                old = source.randrange(len(rows) - CHUNK)
                rows[old], rows[-1] = rows[-1], rows[old]
                changes.append(("-", rows.pop()))
            else:
                number += 1
                rows.append((source.randrange(keys), source.randrange(10**9), number))
                changes.append(("+", rows[-1]))
        found.append((side, changes))
    return found


def run_operator(make: Callable[[], Operator], given: list[Batch], place: Path) -> Iterator[float]:
    """Run an operator, and yield the seconds of each 100,000 events with their checkpoint."""
    chunks = [(side, Chunk(SCHEMA, [op for op, _ in rows], [row for _, row in rows])) for side, rows in given]  # type: ignore[misc]
    with PersistedObjectSpace.open(place / "mine.db") as space:
        operator = make()
        operator.open(space, "operator")
        for epoch, start in enumerate(range(0, len(chunks), CHECKPOINT // CHUNK), 1):
            begun = time.perf_counter()
            for side, chunk in chunks[start : start + CHECKPOINT // CHUNK]:
                operator.process(chunk, side=side)
            operator.barrier(epoch)
            space.checkpoint(epoch=epoch)
            yield time.perf_counter() - begun


def run_whole(make: Callable[[], tuple[Any, Step]], given: list[Batch], place: Path) -> Iterator[float]:
    """Run a plain implementation that saves its state whole, likewise."""
    with sqlite3.connect(place / "whole.db") as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE state (id INTEGER PRIMARY KEY, value BLOB)")
        state, step = make()
        for start in range(0, len(given), CHECKPOINT // CHUNK):
            begun = time.perf_counter()
            for side, rows in given[start : start + CHECKPOINT // CHUNK]:
                step(side, rows)
            saved = orjson.dumps(state, option=orjson.OPT_NON_STR_KEYS)
            database.execute("INSERT OR REPLACE INTO state VALUES (0, ?)", (saved,))
            database.commit()
            yield time.perf_counter() - begun


def plain_join() -> tuple[Any, Step]:
    """Return the state and the step of an inner join on dictionaries."""
    state: dict[str, dict[int, dict[int, Any]]] = {"left": {}, "right": {}}

    def step(side: str, changes: list[Change]) -> int:
        mine, other = state[side], state["right" if side == "left" else "left"]
        out = []
        for op, row in changes:
            if op == "+":
                mine.setdefault(row[0], {})[row[2]] = row
            else:
                del mine[row[0]][row[2]]
            out += [(op, (*row, *match)) for match in other.get(row[0], {}).values()]
        return len(out)

    return state, step


def plain_top() -> tuple[Any, Step]:
    """Return the state and the step of a top-n that looks through all rows where one of the first goes."""
    state: dict[str, Any] = {"rows": {}, "first": []}

    def step(side: str, changes: list[Change]) -> int:
        before, rows = state["first"], state["rows"]
        new = []
        for op, row in changes:
            if op == "+":
                rows[row[2]] = row
                new.append(row)
            else:
                del rows[row[2]]
        lost = any(row[2] not in rows for row in before)
        pool = rows.values() if lost else [*before, *(row for row in new if row[2] in rows)]
        state["first"] = heapq.nsmallest(LIMIT, pool, key=lambda row: (-row[1], row[2]))
        return len(set(before) ^ set(state["first"]))

    return state, step


def measure(title: str, ways: dict[str, Callable[[Path], Iterator[float]]], events: int) -> str:
    """Run the ways, 100,000 events of each in turn, and return a table of events a second."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=".") as folder:
        running = {name: way(Path(tempfile.mkdtemp(dir=folder))) for name, way in ways.items()}
        for _ in range(events // CHECKPOINT):
            for name, run in running.items():
                gc.collect()
                seconds[name].append(next(run))
        for run in running.values():
            next(run, None)
    rows = [
        (name, f"{events / sum(found):,.0f}", f"{CHECKPOINT / found[0]:,.0f}", f"{CHECKPOINT / found[-1]:,.0f}")
        for name, found in seconds.items()
    ]
    return table(title, ("way", "events a second", "the first 100,000", "the last 100,000"), rows)


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=500_000, help="a multiple of 100,000")
    events = parser.parse_args().events
    print(machine("objectspace", "orjson"), end="\n\n")
    given = batches(events, events // 4, ("left", "right"))
    join = partial(HashJoin, SCHEMA, SCHEMA, ["k"], ["k"])
    ways = {"HashJoin": partial(run_operator, join, given), "dictionaries": partial(run_whole, plain_join, given)}
    print(measure(f"Inner join of {events:,} events by {events // 4:,} keys", ways, events))
    given = batches(events, 1, ("input",))
    top = partial(TopN, SCHEMA, ["v desc"], LIMIT)
    ways = {"TopN": partial(run_operator, top, given), "dictionaries": partial(run_whole, plain_top, given)}
    print(measure(f"The first {LIMIT} of {events:,} events", ways, events))


if __name__ == "__main__":
    main()
