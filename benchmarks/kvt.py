"""Key-value tables beside sqlitedict, diskcache and a hand-written SQLite table.

Run it with ``python -m benchmarks.kvt``; ``--quick`` leaves out the larger state. Every store holds the same keys and
values. What a rival promises after a power failure is not the same: see the first table.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from diskcache import Cache
from sqlitedict import SqliteDict

from benchmarks.timing import Action, Measured, Ratio, folder, in_turn, machine, table
from objectspace import PersistedObjectSpace
from objectspace.kvt import KeyValueTableConfiguration, KeyValueTableManager

FAMILY = "f"
VALUE = b"%044d"
BATCH = 1_000
"""How many puts come before a checkpoint."""


class Rival(Protocol):
    """What is measured of each store. Keys are text of one family, values bytes."""

    def put(self, key: str, value: bytes) -> None:
        """Set one key, without making it durable."""

    def commit(self) -> None:
        """Make what was set durable."""

    def put_now(self, key: str, value: bytes) -> None:
        """Set one key and make it durable."""

    def get(self, key: str) -> bytes:
        """Return the value of a key."""

    def replace(self, key: str, value: bytes) -> None:
        """Set a key on the condition that it is as it was read before."""

    def entries(self) -> int:
        """Iterate over all entries of the family; return how many there are."""

    def close(self) -> None:
        """Close the store."""


class Mine:
    """A key-value table of four partitions."""

    def __init__(self, place: Path) -> None:
        self.space = PersistedObjectSpace.open(place / "mine.db")
        manager = KeyValueTableManager(self.space)
        manager.create_scope("s")
        manager.create_key_value_table("s", "t", KeyValueTableConfiguration(4))
        self.table = manager.open_key_value_table("s", "t")
        self.commits = manager.open_key_value_table("s", "t", autocommit=True)

    def commit(self) -> None:
        self.space.checkpoint()

    def put(self, key: str, value: bytes) -> None:
        self.table.put(key.encode(), value, FAMILY)

    def put_now(self, key: str, value: bytes) -> None:
        self.commits.put(key.encode(), value, FAMILY)

    def get(self, key: str) -> bytes:
        return self.table.get(key.encode(), FAMILY).value  # type: ignore[union-attr]

    def replace(self, key: str, value: bytes) -> None:
        entry = self.table.get(key.encode(), FAMILY)
        self.table.replace(key.encode(), value, entry.key.version, FAMILY)  # type: ignore[union-attr]

    def entries(self) -> int:
        return sum(len(page.items) for page in self.table.entry_iterator(FAMILY, 1_000))

    def close(self) -> None:
        self.space.close()


class Sqlitedict:
    """sqlitedict, as its page advises for speed: pickled values, a thread that writes, no waiting for the disk."""

    keeps_stacks = False
    """Whether it keeps the stack of the caller with each call, for its log."""

    def __init__(self, place: Path) -> None:
        self.store = SqliteDict(str(place / f"{type(self).__name__}.db"), outer_stack=self.keeps_stacks)
        self.commit = self.store.commit

    def put(self, key: str, value: bytes) -> None:
        self.store[key] = value

    def put_now(self, key: str, value: bytes) -> None:
        self.store[key] = value
        self.store.commit()

    def get(self, key: str) -> bytes:
        return self.store[key]  # type: ignore[no-any-return]

    def replace(self, key: str, value: bytes) -> None:
        if self.store[key] != value:
            self.store[key] = value

    def entries(self) -> int:
        return sum(1 for _ in self.store.items())

    def close(self) -> None:
        self.store.close()


class SqlitedictAsItComes(Sqlitedict):
    """sqlitedict with all its defaults."""

    keeps_stacks = True


class Diskcache:
    """diskcache with a transaction around what is committed together, and nothing ever dropped."""

    def __init__(self, place: Path) -> None:
        self.store = Cache(str(place / "diskcache"), eviction_policy="none")
        self.transaction: Any = None

    def put(self, key: str, value: bytes) -> None:
        if self.transaction is None:
            self.transaction = self.store.transact()
            self.transaction.__enter__()
        self.store[key] = value

    def commit(self) -> None:
        self.transaction.__exit__(None, None, None)
        self.transaction = None

    def put_now(self, key: str, value: bytes) -> None:
        self.store[key] = value

    def get(self, key: str) -> bytes:
        return self.store[key]  # type: ignore[no-any-return]

    def replace(self, key: str, value: bytes) -> None:
        if self.store[key] != value:
            self.put(key, value)

    def entries(self) -> int:
        return sum(1 for key in self.store if self.store[key])

    def close(self) -> None:
        self.store.close()


class Handwritten:
    """The table that one would write: (family, key) -> (version, value), synchronous like ours."""

    def __init__(self, place: Path) -> None:
        self.db = sqlite3.connect(place / "handwritten.db", isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=FULL")
        self.db.execute("PRAGMA cache_size=-65536")
        columns = "family TEXT, key TEXT, version INTEGER, value BLOB, PRIMARY KEY (family, key)"
        self.db.execute(f"CREATE TABLE IF NOT EXISTS entry ({columns}) WITHOUT ROWID")
        self.version = 0

    def put(self, key: str, value: bytes) -> None:
        if not self.db.in_transaction:
            self.db.execute("BEGIN")
        self.version += 1
        self.db.execute("INSERT OR REPLACE INTO entry VALUES (?, ?, ?, ?)", (FAMILY, key, self.version, value))

    def commit(self) -> None:
        self.db.execute("COMMIT")

    def put_now(self, key: str, value: bytes) -> None:
        self.put(key, value)
        self.db.execute("COMMIT")

    def get(self, key: str) -> bytes:
        row = self.db.execute("SELECT version, value FROM entry WHERE family = ? AND key = ?", (FAMILY, key)).fetchone()
        return row[1]  # type: ignore[no-any-return]

    def replace(self, key: str, value: bytes) -> None:
        if not self.db.in_transaction:
            self.db.execute("BEGIN")
        where = "family = ? AND key = ?"
        (version,) = self.db.execute(f"SELECT version FROM entry WHERE {where}", (FAMILY, key)).fetchone()
        self.version += 1
        self.db.execute(
            f"UPDATE entry SET version = ?, value = ? WHERE {where} AND version = ?",
            (self.version, value, FAMILY, key, version),
        )

    def entries(self) -> int:
        found = self.db.execute("SELECT key, version, value FROM entry WHERE family = ? ORDER BY key", (FAMILY,))
        return sum(1 for _ in found)

    def close(self) -> None:
        self.db.close()


RIVALS: dict[str, Callable[[Path], Rival]] = {
    "objectspace.kvt": Mine,
    "sqlitedict": Sqlitedict,
    "sqlitedict as it comes": SqlitedictAsItComes,
    "diskcache": Diskcache,
    "handwritten SQLite": Handwritten,
}

PROMISES = [
    ("objectspace.kvt", "everything up to the last checkpoint", "yes", "yes"),
    ("sqlitedict, with outer_stack=False and as it comes", "may be damaged: synchronous=OFF", "no", "no"),
    ("diskcache", "the last commits may be missing: synchronous=NORMAL", "no", "no"),
    ("handwritten SQLite", "everything up to the last commit", "yes", "no"),
]


def key_of(number: int) -> str:
    """Return a key of eleven characters."""
    return f"key{number:08d}"


def filled(place: Path, size: int) -> dict[str, Rival]:
    """Return the stores with ``size`` entries each."""
    rivals = {name: make(place) for name, make in RIVALS.items()}
    for rival in rivals.values():
        for start in range(0, size, 10_000):
            for number in range(start, min(start + 10_000, size)):
                rival.put(key_of(number), VALUE % number)
            rival.commit()
    return rivals


def randomly(rival: Rival, step: str, size: int, count: int, chance: random.Random) -> Action:
    """Return the action that sets or replaces random keys, with a commit after each thousand."""
    pairs = [(key_of(chance.randrange(size)), VALUE % chance.getrandbits(100)) for _ in range(count)]
    do, commit = getattr(rival, step), rival.commit

    def run() -> None:
        for place, (key, value) in enumerate(pairs, start=1):
            do(key, value)
            if place % BATCH == 0:
                commit()

    return run


def at_once(rival: Rival, size: int, count: int, chance: random.Random) -> Action:
    """Return the action that sets random keys, each durable before the next."""
    pairs = [(key_of(chance.randrange(size)), VALUE % chance.getrandbits(100)) for _ in range(count)]

    def run() -> None:
        for key, value in pairs:
            rival.put_now(key, value)

    return run


def gets(rival: Rival, size: int, count: int, chance: random.Random) -> Action:
    """Return the action that gets random keys."""
    keys = [key_of(chance.randrange(size)) for _ in range(count)]
    return lambda: [rival.get(key) for key in keys]


def cold_gets(make: Callable[[Path], Rival], place: Path, size: int, chance: random.Random) -> Action:
    """Return the action that gets 1,000 random keys from a store that was just opened."""
    keys = [key_of(chance.randrange(size)) for _ in range(1_000)]
    rival = make(place)

    def run() -> None:
        for key in keys:
            rival.get(key)
        rival.close()

    return run


def row(what: str, count: int, measured: dict[str, Measured]) -> tuple[str, ...]:
    """Return one row: microseconds an operation, and how many times as long as each rival ours takes."""
    mine, *others = measured.values()
    ratios = (Ratio(mine, other).describe() for other in others)
    return what, *(f"{found.median / count * 1e6:.2f}" for found in measured.values()), *ratios


def operations(size: int) -> str:
    """Compare all operations on stores with ``size`` entries."""
    chance = random.Random(size)
    count = 20 * BATCH
    with folder() as place:
        rivals = filled(place, size)

        def compared(what: str, count: int, repetitions: int, action: Callable[[Rival], Action]) -> tuple[str, ...]:
            actions = {name: partial(action, rival) for name, rival in rivals.items()}
            return row(what, count, in_turn(actions, repetitions))

        rows = [
            compared("put, durable every 1,000", count, 5, lambda r: randomly(r, "put", size, count, chance)),
            compared("get and replace, every 1,000", count, 5, lambda r: randomly(r, "replace", size, count, chance)),
            compared("put, each durable", 200, 5, lambda r: at_once(r, size, 200, chance)),
            compared("get, warm", count, 5, lambda r: gets(r, size, count, chance)),
        ]
        if size == 10_000:
            rows.append(compared("iterate over the family", size, 7, lambda r: r.entries))
        for rival in rivals.values():
            rival.close()
        opened = {name: partial(cold_gets, make, place, size, chance) for name, make in RIVALS.items()}
        rows.append(row("get 1,000, just opened", 1_000, in_turn(opened, 7)))
    header = ("us an operation", *RIVALS, *(f"ratio to {name}" for name in list(RIVALS)[1:]))
    return table(f"{size:,} entries", header, rows)


def dirtied(sizes: list[int]) -> str:
    """Count what one put writes, at several sizes of the table."""
    rows = []
    for size in sizes:
        with folder() as place:
            mine = Mine(place)
            for number in range(size):
                mine.put(key_of(number), VALUE % number)
            mine.commit()
            mine.put(key_of(size // 2), VALUE % 0)
            receipt = mine.space.checkpoint()
            costs = ", ".join(f"{name}: {cost.slots}" for name, cost in sorted(receipt.objects.items()))
            rows.append((f"{size:,}", f"{receipt.slots}", f"{receipt.bytes}", costs))
            mine.close()
    return table("What one put writes", ("entries", "slots", "bytes", "slots by object"), rows)


def main() -> None:
    """Run the benchmark and print its tables in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kvt", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the stores of 300,000 entries")
    sizes = [10_000] if parser.parse_args().quick else [10_000, 300_000]
    print(machine("objectspace", "sqlitedict", "diskcache", "orjson") + "\n", flush=True)
    print(table("After a power failure", ("store", "what is there", "versions", "history"), PROMISES), flush=True)
    for size in sizes:
        print(operations(size), flush=True)
    print(dirtied(sizes), flush=True)


if __name__ == "__main__":
    main()
