"""Values from some hundred bytes to a megabyte, beside a table of bare SQLite: ``python -m benchmarks.large``.

A state of each size; one slot is changed a checkpoint, then slots are read by a process that has none in memory. SQLite
has one table of keys and values, which an update overwrites: no history, no digests, and nothing to merge.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import statistics
import time
from pathlib import Path

from benchmarks.timing import folder, machine, table
from objectspace import PersistedObjectSpace

SIZES = (300, 600, 2_000, 20_000, 200_000, 1_000_000)
MOST_SLOTS, STATE_BYTES = 20_000, 100_000_000

SQLITE = """
PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
CREATE TABLE state (key TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
UPSERT = "INSERT INTO state VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"


class Measurement:
    """The seconds of each checkpoint and of each cold read, of a space and of SQLite in turn."""

    def __init__(self, place: Path, size: int, checkpoints: int) -> None:
        self.size, self.slots = size, min(MOST_SLOTS, STATE_BYTES // size)
        self.place, self.chance = place, random.Random(size)
        self.mine: list[float] = []
        self.theirs: list[float] = []
        self._fill()
        for _ in range(checkpoints):
            self._checkpoint()
        self.space.close()
        self.database.close()
        self.my_reads, self.their_reads = self._read()

    def _text(self) -> str:
        return self.chance.randbytes(self.size // 2).hex()

    def _fill(self) -> None:
        self.space = PersistedObjectSpace.open(self.place / f"{self.size}.db")
        self.database = sqlite3.connect(self.place / f"{self.size}-bare.db", isolation_level=None)
        self.database.executescript(SQLITE)
        self.documents = self.space.create_dictionary("documents")
        self.database.execute("BEGIN")
        for number in range(self.slots):
            text = self._text()
            self.documents[f"key-{number}"] = text
            self.database.execute(UPSERT, (f"key-{number}", text))
        self.database.execute("COMMIT")
        self.space.checkpoint()

    def _checkpoint(self) -> None:
        key, text = f"key-{self.chance.randrange(self.slots)}", self._text()
        started = time.perf_counter()
        self.documents[key] = text
        self.space.checkpoint()
        between = time.perf_counter()
        self.database.execute(UPSERT, (key, text))
        self.mine.append(between - started)
        self.theirs.append(time.perf_counter() - between)

    def _read(self) -> tuple[float, float]:
        """Return the seconds of a read of a slot that is not in memory, of a space and of SQLite."""
        keys = [f"key-{number}" for number in self.chance.sample(range(self.slots), min(500, self.slots // 10))]
        space = PersistedObjectSpace.open(self.place / f"{self.size}.db")
        documents = space.get_dictionary("documents")
        database = sqlite3.connect(self.place / f"{self.size}-bare.db")
        found, seconds = 0, [0.0, 0.0]
        for key in keys:
            started = time.perf_counter()
            found += len(documents[key])
            between = time.perf_counter()
            (text,) = database.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
            seconds[0] += between - started
            seconds[1] += time.perf_counter() - between
            assert text == documents[key], key
        space.close()
        database.close()
        return seconds[0] / len(keys), seconds[1] / len(keys)

    def row(self) -> list[str]:
        """Return what was measured in words."""
        mine, theirs = statistics.mean(self.mine), statistics.mean(self.theirs)
        return [
            f"{self.size:,} bytes",
            f"{self.slots:,}",
            f"{1e3 * mine:.2f} ms",
            f"{1e3 * statistics.median(self.mine):.2f} ms",
            f"{1e3 * max(self.mine):.1f} ms",
            f"{1e3 * theirs:.2f} ms",
            f"{mine / theirs:.2f}",
            f"{1e6 * self.my_reads:,.0f} us",
            f"{1e6 * self.their_reads:,.0f} us",
            f"{self.my_reads / self.their_reads:.2f}",
        ]


HEADER = (
    "value",
    "slots",
    "a checkpoint of one slot, mean",
    "median",
    "longest",
    "SQLite, mean",
    "ratio",
    "a read of a slot not in memory",
    "SQLite",
    "ratio",
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large", description=__doc__)
    parser.add_argument("--checkpoints", type=int, default=200)
    parser.add_argument("--most", type=int, default=SIZES[-1], help="the size of the largest values")
    options = parser.parse_args()
    with folder() as place:
        rows = [Measurement(place, size, options.checkpoints).row() for size in SIZES if size <= options.most]
    print(machine("objectspace"))
    print()
    print(table("Large values", HEADER, rows))


if __name__ == "__main__":
    main()
