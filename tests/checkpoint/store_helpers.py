"""What the tests of the store share: runs, a model of the state, and a connection that fails on demand."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from checkpoint import CheckpointError, CheckpointKind, CheckpointStore, Reader, Run
from tests.tally import TALLY

FULL, DIFFERENTIAL = CheckpointKind.FULL, CheckpointKind.DIFFERENTIAL
ROOT = Path(__file__).parents[2]


def run_of(values: dict[Any, Any], kind: CheckpointKind = DIFFERENTIAL, object_id: int = 1) -> Run:
    """Return a run that puts slots of one object, or deletes them where the value is None."""
    items = [(object_id, slot, None if value is None else json.dumps(value), None) for slot, value in values.items()]
    return Run(kind, [(object_id, f"o{object_id}", "Sample", "{}")], [], items)


def values_in(reader: Reader, object_id: int = 1) -> dict[Any, Any]:
    return {item.slot: json.loads(item.value) for item in reader.items(object_id)}


def image_of(reader: Reader) -> tuple[list[Any], list[Any], list[Any]]:
    image = reader.image()
    return image.index, image.metadata, image.items


def retained(store: CheckpointStore) -> list[int]:
    """Return the numbers of the checkpoints that can be read."""
    return [record.number for record in store.checkpoints() if record.run_slots is not None]


def images(store: CheckpointStore) -> dict[int, Any]:
    """Return the image of each checkpoint that can be read."""
    return {number: image_of(store.reader(number)) for number in retained(store)}


def assert_bodies(store: CheckpointStore) -> None:
    """Assert that every body of a large value has a row that refers to it, and came with a run that this one holds."""
    execute = store.database.conn.execute
    referred = {row[0] for row in execute("SELECT value FROM state_item WHERE typeof(value) = 'integer'")}
    assert {row[0] for row in execute("SELECT id FROM state_large")} <= referred
    runs = execute("SELECT number, coalesce(run_first, number), number FROM checkpoint WHERE run_slots IS NOT NULL")
    merged = execute("SELECT run, first, last FROM run WHERE state <> 'dropped'")
    rows = "FROM state_item LEFT JOIN state_large ON id = value WHERE state_item.checkpoint = ?"
    for run, first, last in [*runs, *merged]:
        born = execute(f"SELECT state_large.checkpoint {rows} AND typeof(value) = 'integer'", (run,))
        assert all(number is not None and first <= number <= last for (number,) in born), run


@dataclass
class Model:
    """What a store should hold: three dictionaries."""

    index: dict[int, Any] = field(default_factory=dict)
    metadata: dict[Any, Any] = field(default_factory=dict)
    items: dict[Any, Any] = field(default_factory=dict)

    def follow(self, run: Run) -> Model:
        """Return the state after a run."""
        after = Model(dict(self.index), dict(self.metadata), dict(self.items))
        after.index |= {row[0]: row for row in run.index}
        after.metadata |= {row[:2]: row for row in run.metadata}
        after.items |= {row[:2]: row for row in run.items}
        return after

    def image(self) -> tuple[list[Any], list[Any], list[Any]]:
        """Return the rows that an image must have."""
        index = [row for _, row in sorted(self.index.items()) if row[2] is not None]
        live = {row[0] for row in index}
        metadata, items = (
            [row for key, row in sorted(rows.items()) if row[2] is not None and key[0] in live]
            for rows in (self.metadata, self.items)
        )
        return index, metadata, items


def random_run(rng: random.Random, number: int, kind: CheckpointKind = DIFFERENTIAL) -> Run:
    """Return puts and deletes over three objects, of which the third is deleted and replaced now and then."""
    run = Run(kind)
    # An id is never used again: the object that comes after a deleted one has another.
    for object_id in rng.sample([1, 2, 3 + number // 10], rng.randint(0, 3)):
        if object_id > 2 and number % 10 == 9:
            run.index.append((object_id, f"o{object_id}", None, None))
            continue
        run.index.append((object_id, f"o{object_id}", "Sample", "{}"))
        run.metadata.append((object_id, "length", rng.choice([None, str(number)])))
        slots = rng.sample(range(40), rng.randint(0, 6))
        run.items += [(object_id, slot, rng.choice([None, str(number)]), number) for slot in slots]
    return run


class Fault:
    """Which statement of a connection fails, and how.

    Args:
        at: the number of the statement that fails, counted from 1.
        code: the error code of SQLite.
        lasting: all statements after it fail as well.
        late: it takes effect before it fails.
    """

    def __init__(self, at: int, code: int, *, lasting: bool = False, late: bool = False) -> None:
        self.at, self.code, self.lasting, self.late = at, code, lasting, late
        self.seen = 0

    def strikes(self) -> bool:
        """Count a statement and tell whether it fails."""
        self.seen += 1
        return self.seen == self.at or (self.lasting and self.seen > self.at)

    def error(self) -> sqlite3.OperationalError:
        """Return what SQLite would raise."""
        error = sqlite3.OperationalError(f"injected at statement {self.seen}")
        error.sqlite_errorcode = self.code
        return error


class FaultyConnection(sqlite3.Connection):
    """A connection with a fault, for ``Session.factory``."""

    fault: ClassVar[Fault | None] = None

    def execute(self, *args: Any) -> sqlite3.Cursor:
        return self._faulty(super().execute, *args)

    def executemany(self, *args: Any) -> sqlite3.Cursor:
        return self._faulty(super().executemany, *args)

    def executescript(self, *args: Any) -> sqlite3.Cursor:
        return self._faulty(super().executescript, *args)

    def _faulty(self, call: Callable[..., sqlite3.Cursor], *args: Any) -> sqlite3.Cursor:
        fault = FaultyConnection.fault
        if fault is None or not fault.strikes():
            return call(*args)
        if fault.late:
            call(*args)
        raise fault.error()


FAULTS = [
    {"code": code, "lasting": lasting, "late": late}
    for code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    for lasting in (False, True)
    for late in (False, True)
]


Inject = Callable[[Fault | None], None]


def crash_points(inject: Inject, fault: dict[str, Any], work: Callable[[], None], step: int = 1) -> Iterator[int]:
    """Run the work with its n-th statement failing for every n, until it completes without meeting the fault.

    Args:
        inject: makes connections fail.
        fault: how they fail.
        work: what is run.
        step: from one n to the next, where the work takes too long to try them all each time.
    """
    at = 1
    while True:
        injected = Fault(at, **fault)
        inject(injected)
        with suppress(CheckpointError):
            work()
        inject(None)
        if injected.seen < at:
            return
        TALLY["crash points"] += 1
        yield at
        at += step


@contextmanager
def child(code: str, *args: Any) -> Iterator[subprocess.Popen[str]]:
    """Run Python code in another process, which is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code, *map(str, args)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def other_lines(process: subprocess.Popen[str]) -> list[str]:
    """Return what a process said after the lines that were read; communicate() would lose what was read ahead."""
    assert process.stdout is not None
    return process.stdout.read().splitlines()


def quick_store(path: Path | str, **options: Any) -> CheckpointStore:
    """Open a store that does not wait for the disk: what the tests kill are processes, not machines."""
    return CheckpointStore(path, durability="normal", **options)
