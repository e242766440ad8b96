"""State tables beside a plain SQLite table with the same rows and the same key.

Run it with ``python -m benchmarks.relational`` (or ``make bench-relational``); ``--quick`` takes a tenth of the rows.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.timing import Action, Ratio, compare, folder, machine, table
from checkpoint import CheckpointKind
from objectspace import PersistedObjectSpace
from objectspace.relational import Column, StateTable, StorageTable, TableSchema
from objectspace.relational.keys_arrow import encode_keys

SCHEMA = TableSchema(
    [
        Column("id", "int64"),
        Column("carrier", "string"),
        Column("delay", "int64", nullable=True),
        Column("distance", "float64"),
        Column("note", "string", nullable=True),
    ],
    primary_key=["id"],
)

UPSERTS, EPOCHS = 10_000, 24
"""How many rows an epoch writes, and how many epochs are timed: so many that merging is among what they do."""

GETS = 1_000
SCANNED = 20_000

Row = tuple[int, str, int | None, float, str | None]


def row_of(number: int, salt: int = 0) -> Row:
    """Return a row of five columns for a key."""
    carrier = ("UA", "B6", "EV", "DL")[number % 4]
    return (
        number,
        carrier,
        (number * 7 + salt) % 997,
        number / 8 + salt,
        None if number % 3 else f"note {number + salt}",
    )


class Mine:
    """The rows in a state table, in order of a few checkpoints."""

    def __init__(self, place: Path, rows: int) -> None:
        self.path, self.rows = place / "mine.db", rows
        self.space = PersistedObjectSpace.open(self.path)
        self.table = StateTable(self.space, "flights", SCHEMA)
        for start in range(0, rows, 100_000):
            self.table.write_chunk(("+", row_of(number)) for number in range(start, min(start + 100_000, rows)))
            self.barrier()

    def barrier(self) -> None:
        """Seal the next epoch and make it durable."""
        epoch = self.table.epoch + 1
        self.table.commit(epoch)
        self.space.checkpoint(epoch=epoch)

    def upsert(self, changed: list[Row]) -> None:
        """Write rows one by one and commit."""
        for row in changed:
            self.table.insert_row(row)
        self.barrier()

    def upsert_together(self, changed: list[Row]) -> None:
        """Write rows and commit."""
        self.table.insert_rows(changed)
        self.barrier()

    def reopen(self) -> None:
        """Open the store again, with nothing in memory."""
        self.space.close()
        self.space = PersistedObjectSpace.open(self.path)
        self.table = StateTable(self.space, "flights")


class Bare:
    """The rows in a plain SQLite table, with its key, a write-ahead log and a sync at each commit."""

    def __init__(self, place: Path, rows: int) -> None:
        self.path = place / "bare.db"
        self.connect()
        columns = "id INTEGER PRIMARY KEY, carrier TEXT NOT NULL, delay INTEGER, distance REAL NOT NULL, note TEXT"
        self.connection.execute(f"CREATE TABLE flights ({columns})")
        self.upsert([row_of(number) for number in range(rows)])

    def connect(self) -> None:
        """Connect, as a store does."""
        self.connection = sqlite3.connect(self.path, isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -65536"):
            self.connection.execute(f"PRAGMA {pragma}")

    def reopen(self) -> None:
        """Open the file again, with nothing in memory."""
        self.connection.close()
        self.connect()

    def upsert(self, changed: list[Row]) -> None:
        """Write rows and commit."""
        self.connection.execute("BEGIN")
        self.connection.executemany("INSERT OR REPLACE INTO flights VALUES (?, ?, ?, ?, ?)", changed)
        self.connection.execute("COMMIT")

    def get(self, key: int) -> Any:
        """Read one row."""
        return self.connection.execute("SELECT * FROM flights WHERE id = ?", (key,)).fetchone()

    def scan(self, start: int) -> list[Any]:
        """Read a range of rows."""
        where = "WHERE id >= ? AND id < ? ORDER BY id"
        return self.connection.execute(f"SELECT * FROM flights {where}", (start, start + SCANNED)).fetchall()


def line(what: str, ratio: Ratio, each: int, aim: str) -> tuple[str, ...]:
    """Return a row of the table of results."""
    mine, bare = (f"{one.median / each * 1e6:.2f} us" for one in (ratio.mine, ratio.other))
    return what, mine, bare, ratio.describe(), aim


def filled(place: Path, rows: int) -> tuple[Mine, Bare]:
    """Return the two tables, anew: so each way to write finds the same runs, and the same rows in memory."""
    place.mkdir()
    return Mine(place, rows), Bare(place, rows)


def writing(
    mine: Mine, bare: Bare, what: str, upsert: Callable[[list[Row]], None], prepare: Callable[[], object] = lambda: None
) -> Iterator[tuple[str, ...]]:
    """Compare an epoch of random upserts.

    Args:
        mine: the state table.
        bare: the plain table.
        what: how the rows are written.
        upsert: what writes them.
        prepare: what comes before each epoch, untimed.
    """
    chance, others = random.Random(1), random.Random(1)

    def changed(chance: random.Random) -> list[Row]:
        return [row_of(key, chance.randrange(1000)) for key in chance.sample(range(mine.rows), UPSERTS)]

    def first() -> Action:
        prepare()
        return partial(upsert, changed(chance))

    ratio = compare(first, lambda: partial(bare.upsert, changed(others)), EPOCHS)
    yield line(f"an epoch of {UPSERTS:,} random upserts, {what}", ratio, UPSERTS, "1.0")
    means = (f"{sum(one.seconds) / EPOCHS / UPSERTS * 1e6:.2f} us" for one in (ratio.mine, ratio.other))
    yield f"the same, the mean of {EPOCHS} epochs with what they merge", *means, f"{ratio.total:.2f}", ""


def reading(mine: Mine, bare: Bare, when: str) -> Iterator[tuple[str, ...]]:
    """Compare point gets, range scans and reading the whole table, with nothing in memory."""
    chance = random.Random(2)
    ratio = compare(partial(cold, mine, chance), partial(cold_bare, bare, mine, chance))
    yield line(f"a cold point get, {when}", ratio, GETS, "3")
    storage = StorageTable(mine.space, "flights")
    others = partial(bare_scan, bare, mine, chance)
    ratio = compare(partial(scan, storage.scan, mine, chance), others)
    yield line(f"a row of a range scan, StorageTable, {when}", ratio, SCANNED, "3")
    ratio = compare(partial(scan, mine.table.scan, mine, chance), others)
    yield line(f"a row of a range scan, StateTable, cold, {when}", ratio, SCANNED, "3")
    everything = "SELECT * FROM flights ORDER BY id"
    ratio = compare(lambda: storage.to_arrow, lambda: lambda: bare.connection.execute(everything).fetchall(), 5)
    yield line(f"a row of to_arrow of all, against fetchall, {when}", ratio, mine.rows, "3.3")


def reading_memory(mine: Mine, bare: Bare) -> Iterator[tuple[str, ...]]:
    """Compare point gets and range scans of rows that are in memory."""
    chance = random.Random(2)
    for key in range(0, mine.rows, 4):
        mine.table.get_row((key,))
    ratio = compare(partial(scan, mine.table.scan, mine, chance), partial(bare_scan, bare, mine, chance))
    yield line("a row of a range scan, StateTable, in memory", ratio, SCANNED, "3")
    held = partial(gets, lambda key: mine.table.get_row((key,)), mine, chance)
    ratio = compare(held, partial(gets, bare.get, mine, chance))
    yield line("a point get, in memory", ratio, GETS, "")


def gets(read: Callable[[int], object], mine: Mine, chance: random.Random) -> Action:
    """Return the action that reads some rows."""
    keys = [chance.randrange(mine.rows) for _ in range(GETS)]
    return lambda: [read(key) for key in keys]


def cold(mine: Mine, chance: random.Random) -> Action:
    """Return the action that reads some rows of a table that was just opened."""
    mine.reopen()
    return gets(lambda key: mine.table.get_row((key,)), mine, chance)


def cold_bare(bare: Bare, mine: Mine, chance: random.Random) -> Action:
    """Return the action that reads some rows of the plain table, which was just opened, too."""
    bare.reopen()
    return gets(bare.get, mine, chance)


def scan(rows: Callable[..., Any], mine: Mine, chance: random.Random) -> Action:
    """Return the action that reads a range of rows."""
    start = chance.randrange(mine.rows - SCANNED)
    return lambda: list(rows(lower=(start,), upper=(start + SCANNED,), inclusive=(True, False)))


def bare_scan(bare: Bare, mine: Mine, chance: random.Random) -> Action:
    """Return the action that reads a range of rows of the plain table."""
    return partial(bare.scan, chance.randrange(mine.rows - SCANNED))


def encoding(rows: int) -> Iterator[tuple[str, ...]]:
    """Time the keys of an Arrow batch."""
    schema = TableSchema([Column("a", "int64"), Column("b", "string")], primary_key=["a", "b desc"])
    batch = pa.record_batch({"a": range(rows), "b": [f"name {number}" for number in range(rows)]})
    pairs, encode = list(zip(batch["a"].to_pylist(), batch["b"].to_pylist(), strict=True)), schema.key_encoder.encode
    ratio = compare(lambda: partial(encode_keys, schema, batch), lambda: lambda: list(map(encode, pairs)))
    yield line("the key of a row of an Arrow batch (int64, string desc), against one by one", ratio, rows, "1 us")


def sizes(mine: Mine, bare: Bare) -> str:
    """Compare what the commit of an epoch adds to the write-ahead log."""
    found = []
    changed = [row_of(key, 5) for key in random.Random(3).sample(range(mine.rows), UPSERTS)]
    for one, connection in ((mine, mine.space.store.database.conn), (bare, bare.connection)):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        one.upsert(changed)
        found.append(Path(f"{one.path}-wal").stat().st_size / UPSERTS)
    return f"Bytes in the log for each upsert of that epoch: {found[0]:.0f} here, {found[1]:.0f} there.\n"


def main() -> None:
    """Run the benchmark and print its tables in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.relational", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="30,000 rows instead of 300,000")
    parser.add_argument("--rows", type=int, default=300_000, help="how many rows; 300,000 by default")
    arguments = parser.parse_args()
    rows = 30_000 if arguments.quick else arguments.rows
    print(machine("objectspace", "pyarrow", "orjson") + "\n", flush=True)
    with folder() as place:
        started = time.perf_counter()
        mine, bare = filled(place / "one by one", rows)
        found = [*writing(mine, bare, "rows in memory", mine.upsert)]
        found += reading(mine, bare, f"{len(mine.space.store.reader().runs)} runs")
        found += reading_memory(mine, bare)
        together, beside = filled(place / "together", rows)
        found += writing(together, beside, "rows in memory, given together", together.upsert_together)
        unread, beside = filled(place / "unread", rows)
        found += writing(unread, beside, "nothing in memory", unread.upsert, unread.reopen)
        mine.space.checkpoint(kind=CheckpointKind.FULL)
        found += [*reading(mine, bare, "1 run"), *encoding(100_000)]
        header = ("what", "here", "plain SQLite", "ratio (min-max)", "aim")
        print(table(f"A table of {rows:,} rows of five columns", header, found))
        print(sizes(mine, bare))
        print(f"({time.perf_counter() - started:.0f} s in all)")


if __name__ == "__main__":
    main()
