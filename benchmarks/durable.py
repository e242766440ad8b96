"""Ways to a result whose state is made durable every 100,000 events: ours, Bytewax's and by hand."""

from __future__ import annotations

import gc
import sqlite3
import tempfile
from collections.abc import Callable
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

from benchmarks.timing import folder, in_turn, table
from objectspace import PersistedObjectSpace
from objectspace.operators import Operator
from objectspace.relational import Chunk, TableSchema

CHUNK = 10_000
CHECKPOINT = 100_000
AN_EPOCH = CHECKPOINT // CHUNK

RIVAL = "Bytewax, recovery from SQLite"
"""What the rates are set against."""

Change = tuple[str, tuple[int, int, int]]
Batch = tuple[str, list[Change]]
"""The side, and changes of it."""

Run = Callable[[Path], object]
Step = Callable[[str, list[Change]], int]


@dataclass(frozen=True)
class Scenario:
    """What is measured: how many events, and each way to take them in."""

    title: str
    events: int
    ways: dict[str, Run]


def pieces(events: list[Any], size: int) -> list[list[Any]]:
    """Return events in lists of a size."""
    return [events[start : start + size] for start in range(0, len(events), size)]


def chunks_of(schema: TableSchema, batches: list[Batch]) -> list[tuple[str, Chunk]]:
    """Return batches as chunks of the change log."""
    return [(side, Chunk(schema, [op for op, _ in rows], [row for _, row in rows])) for side, rows in batches]  # type: ignore[misc]


def run_operator(make: Callable[[], Operator], chunks: list[tuple[str, Chunk]], place: Path) -> int:
    """Run an operator over chunks, with a barrier and a checkpoint every 100,000 events; return the changes given."""
    given = epoch = 0
    with PersistedObjectSpace.open(place / "mine.db") as space:
        operator = make()
        operator.open(space, "operator")
        for number, (side, chunk) in enumerate(chunks, 1):
            given += sum(map(len, operator.process(chunk, side=side)))
            if number % AN_EPOCH == 0 or number == len(chunks):
                epoch += 1
                given += sum(map(len, operator.barrier(epoch)))
                space.checkpoint(epoch=epoch)
    return given


def run_bytewax(logic: Callable[[Any], StatefulBatchLogic[Any, Any, Any]], events: list[Any], place: Path) -> None:
    """Run Bytewax with recovery from SQLite; an epoch, which ends with a snapshot, is one batch of 100,000 events."""
    init_db_dir(place, 1)
    flow = Dataflow("flow")
    stream = op.input("events", flow, TestingSource(events, batch_size=CHECKPOINT))
    given: list[Any] = []
    op.output("out", op.stateful_batch("state", stream, logic), TestingSink(given))
    run_main(flow, epoch_interval=timedelta(0), recovery_config=RecoveryConfig(str(place)))


def run_whole(make: Callable[[], tuple[Any, Step]], batches: list[Batch], place: Path) -> None:
    """Run a plain implementation that saves its state whole, as JSON in one row of SQLite."""
    with sqlite3.connect(place / "whole.db") as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE state (id INTEGER PRIMARY KEY, value BLOB)")
        state, step = make()
        for number, (side, rows) in enumerate(batches, 1):
            step(side, rows)
            if number % AN_EPOCH == 0 or number == len(batches):
                saved = orjson.dumps(state, option=orjson.OPT_NON_STR_KEYS)
                database.execute("INSERT OR REPLACE INTO state VALUES (0, ?)", (saved,))
                database.commit()


def measure(scenario: Scenario, repetitions: int) -> str:
    """Run the ways of a scenario in turn, and return events a second of each, and how they compare with Bytewax."""
    # The events are there before: the collector need not walk them in any of the ways.
    gc.collect()
    gc.freeze()
    with folder() as place:
        actions = {name: partial(_prepared, way, place) for name, way in scenario.ways.items()}
        measured = in_turn(actions, repetitions)
    rows = [
        [name, f"{scenario.events / found.median:,.0f}", f"{measured[RIVAL].median / found.median:.1f}"]
        for name, found in measured.items()
    ]
    return table(scenario.title, ["way", "events a second", "times Bytewax"], rows)


def _prepared(way: Run, place: Path) -> Callable[[], object]:
    return partial(way, Path(tempfile.mkdtemp(dir=place)))
