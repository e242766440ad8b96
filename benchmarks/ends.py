"""The ends of what has grown, just opened: the greatest key and its neighbours, the top of a stack, an append.

What grows has its newest slots in the newest runs and its oldest ones in the oldest, so each end asks other runs.
Beside it stand plain SQLite tables with the same rows: ``python -m benchmarks.ends``.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.timing import Action, Ratio, folder, in_turn, machine, table
from objectspace import PersistedObjectSpace

VALUE = '{{"price": {}, "volume": {}}}'
TABLES = ("sorted", "stack", "list")
ASKED = 100
"""How many keys a repetition of floor and ceiling asks for."""


class Step(NamedTuple):
    """What is timed, in a space and in the tables; both return the same."""

    name: str
    ours: Callable[[PersistedObjectSpace], object]
    theirs: Callable[[sqlite3.Connection], object]


def grow(place: Path, slots: int, checkpoints: int) -> None:
    """Make a sorted dictionary, a stack and a list that have grown by as much with each checkpoint, and the tables."""
    with PersistedObjectSpace.open(place / "mine.db") as space, closing(_connected(place)) as db:
        times, stack, log = space.create_sorted_dictionary("t"), space.create_stack("s"), space.create_list("l")
        for name in TABLES:
            db.execute(f"CREATE TABLE {name} (slot INTEGER PRIMARY KEY, value TEXT)")
        for start in range(0, slots, slots // checkpoints):
            rows = {slot: VALUE.format(slot, slot) for slot in range(start, start + slots // checkpoints)}
            times.update(rows)
            for value in rows.values():
                stack.push(value)
            log.extend(rows.values())
            space.checkpoint()
            for name in TABLES:
                db.executemany(f"INSERT INTO {name} VALUES (?, ?)", rows.items())
            db.commit()
        print(f"{len(space.store.reader().runs)} live runs of {checkpoints} checkpoints\n")


def steps_of(slots: int) -> list[Step]:
    """Return what is timed."""
    keys = random.Random(1).sample(range(slots), ASKED)
    return [
        Step("the greatest key", lambda s: s.get_sorted_dictionary("t").peekitem()[0], partial(_one, "max(slot)")),
        Step("the least key", lambda s: s.get_sorted_dictionary("t").peekitem(0)[0], partial(_one, "min(slot)")),
        Step(f"floor of {ASKED} keys", partial(_neighbours, "floor", keys), partial(_bounds, "max", "<=", keys)),
        Step(f"ceiling of {ASKED} keys", partial(_neighbours, "ceiling", keys), partial(_bounds, "min", ">=", keys)),
        Step("the top of a stack", lambda s: s.get_stack("s").peek(), _top),
        Step("append to a list", lambda s: s.get_list("l").append("more"), _append),
        Step("all keys", lambda s: sum(s.get_sorted_dictionary("t")), partial(_one, "sum(slot)")),
    ]


def compared(place: Path, step: Step, repetitions: int) -> list[str]:
    """Return a row of the table: milliseconds of both, and how many times as long ours takes."""
    opened: list[Any] = []

    def prepare(make: Callable[[], Any], run: Callable[[Any], object], found: list[object]) -> Action:
        while opened:
            opened.pop().close()
        opened.append(make())
        return lambda: found.append(run(opened[0]))

    mine: list[object] = []
    other: list[object] = []
    actions = {
        "mine": partial(prepare, partial(PersistedObjectSpace.open, place / "mine.db"), step.ours, mine),
        "other": partial(prepare, partial(_connected, place), step.theirs, other),
    }
    measured = in_turn(actions, repetitions)
    opened.pop().close()
    if mine != other:
        raise AssertionError(f"{step.name}: the space says {mine[0]!r}, the table {other[0]!r}")
    times = [f"{one.median * 1e3:,.3f} ms" for one in measured.values()]
    return [step.name, *times, Ratio(measured["mine"], measured["other"]).describe()]


def _connected(place: Path) -> sqlite3.Connection:
    db = sqlite3.connect(place / "other.db")
    db.execute("PRAGMA journal_mode=WAL")
    return db


def _one(what: str, db: sqlite3.Connection) -> object:
    return db.execute(f"SELECT {what} FROM sorted").fetchone()[0]


def _neighbours(method: str, keys: list[int], space: PersistedObjectSpace) -> object:
    ask = getattr(space.get_sorted_dictionary("t"), method)
    return [ask(key + 0.5) for key in keys]


def _bounds(what: str, sign: str, keys: list[int], db: sqlite3.Connection) -> object:
    ask = f"SELECT {what}(slot) FROM sorted WHERE slot {sign} ?"
    return [db.execute(ask, (key + 0.5,)).fetchone()[0] for key in keys]


def _top(db: sqlite3.Connection) -> object:
    return db.execute("SELECT value FROM stack ORDER BY slot DESC LIMIT 1").fetchone()[0]


def _append(db: sqlite3.Connection) -> None:
    db.execute("INSERT INTO list SELECT max(slot) + 1, 'more' FROM list")


def main() -> None:
    """Run the benchmark and print its tables in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ends", description=__doc__)
    parser.add_argument("--slots", type=int, default=160_000)
    parser.add_argument("--checkpoints", type=int, nargs="+", default=[1, 40, 400])
    parser.add_argument("--repetitions", type=int, default=15)
    given = parser.parse_args()
    print(machine("objectspace", "orjson") + "\n")
    for checkpoints in given.checkpoints:
        with folder() as place:
            grow(place, given.slots, checkpoints)
            rows = [compared(place, step, given.repetitions) for step in steps_of(given.slots)]
        title = f"{given.slots:,} slots that came with {checkpoints} checkpoints"
        print(table(title, ("just opened", "objectspace", "SQLite tables", "ratio (min-max)"), rows), flush=True)


if __name__ == "__main__":
    main()
