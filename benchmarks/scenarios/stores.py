"""Stores of integer keys and short texts, each as its own documentation advises: what several scenarios compare.

Every store does the same work: open, read one key, change some and make them durable. What a store promises after a
power failure is said with its configuration.
"""

from __future__ import annotations

import os
import pickle
import random
import shelve
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

from benchmarks.registry import Role
from objectspace import PersistedObjectSpace

Durability = Literal["full", "normal"]

VALUE = "{:044d}"
"""Values of 44 digits: with the quotes of their JSON and an integer key about 52 bytes a slot."""

FILL = 100_000
"""How many entries one commit of the filling holds."""


def batches(size: int) -> Iterator[dict[int, str]]:
    """Yield the entries of a state, a commit at a time."""
    for start in range(0, size, FILL):
        yield {key: VALUE.format(key) for key in range(start, min(start + FILL, size))}


def changes(kind: str, count: int, size: int, chance: random.Random) -> dict[int, str]:
    """Return what one repetition changes: ``random`` keys, ``clustered`` ones, or new ones ``appended``."""
    if kind == "random":
        keys: Any = chance.sample(range(size), count)
    else:
        start = size if kind == "appended" else chance.randrange(size - count + 1)
        keys = range(start, start + count)
    return {key: VALUE.format(chance.getrandbits(100)) for key in keys}


class Store(ABC):
    """A store in a folder."""

    def __init__(self, place: Path) -> None:
        self.place = place

    @abstractmethod
    def open(self) -> None:
        """Open the store, or create it."""

    @abstractmethod
    def change(self, entries: Mapping[int, str]) -> None:
        """Set entries and make them durable."""

    @abstractmethod
    def get(self, key: int) -> str:
        """Return the value of a key."""

    @abstractmethod
    def close(self) -> None:
        """Close the store."""

    def fill(self, size: int) -> None:
        """Make the first entries."""
        self.open()
        for entries in batches(size):
            self.change(entries)
        self.close()


class Ours(Store):
    """A dictionary in a space, with the defaults."""

    durability: Durability = "full"

    def open(self) -> None:
        self.space = PersistedObjectSpace.open(self.place / "state.db", durability=self.durability)
        self.target = self.space.get_or_create_dictionary("target")

    def change(self, entries: Mapping[int, str]) -> None:
        self.target.update(entries)
        self.space.checkpoint()

    def get(self, key: int) -> str:
        return self.target[key]  # type: ignore[no-any-return]

    def close(self) -> None:
        self.space.close()


class OursNormal(Ours):
    """The same, where the last checkpoints may be lost when the power fails."""

    durability = "normal"


class Floor(Store):
    """The least that any durable store must do: append the bytes and wait for the disk. It reads nothing."""

    def open(self) -> None:
        self.file = (self.place / "floor").open("ab", buffering=0)

    def change(self, entries: Mapping[int, str]) -> None:
        self.file.write(b"".join(key.to_bytes(8) + value.encode() for key, value in entries.items()))
        os.fdatasync(self.file.fileno())

    def get(self, key: int) -> str:
        raise NotImplementedError("the floor only appends")

    def close(self) -> None:
        self.file.close()


class Sqlite(Store):
    """One table, whose rows are replaced in place."""

    def open(self) -> None:
        self.db = sqlite3.connect(self.place / "plain.db", isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -65536"):
            self.db.execute(f"PRAGMA {pragma}")
        self.db.execute("CREATE TABLE IF NOT EXISTS item (slot INTEGER PRIMARY KEY, value TEXT)")

    def change(self, entries: Mapping[int, str]) -> None:
        self.db.execute("BEGIN")
        self.db.executemany("INSERT OR REPLACE INTO item VALUES (?, ?)", entries.items())
        self.db.execute("COMMIT")

    def get(self, key: int) -> str:
        return self.db.execute("SELECT value FROM item WHERE slot = ?", (key,)).fetchone()[0]  # type: ignore[no-any-return]

    def close(self) -> None:
        self.db.close()


class Rocks(Store):
    """RocksDB, one synced batch a commit."""

    def open(self) -> None:
        from rocksdict import Options, Rdict

        self.db = Rdict(str(self.place / "rocks"), Options(raw_mode=True))

    def change(self, entries: Mapping[int, str]) -> None:
        from rocksdict import WriteBatch, WriteOptions

        batch, options = WriteBatch(raw_mode=True), WriteOptions()
        for key, value in entries.items():
            batch.put(key.to_bytes(8), value.encode())
        options.sync = True
        self.db.write(batch, options)

    def get(self, key: int) -> str:
        return str(self.db[key.to_bytes(8)], "utf-8")

    def close(self) -> None:
        self.db.close()


class Lmdb(Store):
    """LMDB, one write transaction a commit."""

    def open(self) -> None:
        import lmdb

        self.db = lmdb.open(str(self.place / "lmdb"), map_size=1 << 36)

    def change(self, entries: Mapping[int, str]) -> None:
        with self.db.begin(write=True) as transaction:
            transaction.cursor().putmulti([(key.to_bytes(8), value.encode()) for key, value in entries.items()])

    def get(self, key: int) -> str:
        with self.db.begin() as transaction:
            return bytes(transaction.get(key.to_bytes(8), b"")).decode()

    def close(self) -> None:
        self.db.close()


class Zodb(Store):
    """ZODB, a BTree in a file storage."""

    def open(self) -> None:
        import transaction
        import ZODB
        import ZODB.FileStorage
        from BTrees.LOBTree import LOBTree

        self.manager = transaction.TransactionManager()
        storage = ZODB.FileStorage.FileStorage(str(self.place / "state.fs"))
        self.db = ZODB.DB(storage, cache_size=200_000)
        self.connection = self.db.open(self.manager)
        root = self.connection.root()
        if "target" not in root:
            root["target"] = LOBTree()
        self.target = root["target"]

    def change(self, entries: Mapping[int, str]) -> None:
        self.target.update(entries)
        self.manager.commit()

    def get(self, key: int) -> str:
        return self.target[key]  # type: ignore[no-any-return]

    def close(self) -> None:
        self.connection.close()
        self.db.close()


class Diskcache(Store):
    """diskcache, one transaction a commit."""

    def open(self) -> None:
        from diskcache import Cache

        self.db = Cache(str(self.place / "diskcache"), eviction_policy="none")

    def change(self, entries: Mapping[int, str]) -> None:
        with self.db.transact():
            for key, value in entries.items():
                self.db[key] = value

    def get(self, key: int) -> str:
        return self.db[key]  # type: ignore[no-any-return]

    def close(self) -> None:
        self.db.close()


class Sqlitedict(Store):
    """sqlitedict, one commit for many keys."""

    def open(self) -> None:
        from sqlitedict import SqliteDict

        self.db = SqliteDict(str(self.place / "sqlitedict.db"), outer_stack=False)

    def change(self, entries: Mapping[int, str]) -> None:
        self.db.update(entries.items())
        self.db.commit()

    def get(self, key: int) -> str:
        return self.db[key]  # type: ignore[no-any-return]

    def close(self) -> None:
        self.db.close()


class Shelve(Store):
    """The standard library's shelf, synced after each change."""

    def open(self) -> None:
        self.db = shelve.open(str(self.place / "shelf"))  # noqa: SIM115

    def change(self, entries: Mapping[int, str]) -> None:
        for key, value in entries.items():
            self.db[str(key)] = value
        self.db.sync()

    def get(self, key: int) -> str:
        return self.db[str(key)]  # type: ignore[no-any-return]

    def close(self) -> None:
        self.db.close()


def no_good_dbm() -> str | None:
    """Return why shelve does not take part, where Python has no database for it but the last resort."""
    for name in ("dbm.sqlite3", "dbm.gnu", "dbm.ndbm"):
        try:
            __import__(name)
        except ImportError:
            continue
        return None
    return "this Python has only dbm.dumb for it, which its documentation calls a last resort"


class Blob(Store):
    """The whole state in memory, re-saved as one blob: a new file, synced, renamed over the old one."""

    name: str

    def encoded(self) -> bytes:
        """Return the state as it is saved."""
        raise NotImplementedError

    def decoded(self, blob: bytes) -> dict[Any, str]:
        """Return the state that was saved."""
        raise NotImplementedError

    def key(self, number: int) -> Any:
        """Return a key as the state has it."""
        return number

    def open(self) -> None:
        self.path = self.place / self.name
        self.entries = self.decoded(self.path.read_bytes()) if self.path.exists() else {}

    def change(self, entries: Mapping[int, str]) -> None:
        self.entries.update((self.key(number), value) for number, value in entries.items())
        self.save()

    def save(self) -> None:
        """Write everything."""
        fresh = self.path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(self.encoded())
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self.path)
        sync_folder(self.place)

    def get(self, key: int) -> str:
        return self.entries[self.key(key)]

    def fill(self, size: int) -> None:
        self.open()
        for entries in batches(size):
            self.entries.update((self.key(number), value) for number, value in entries.items())
        self.save()

    def close(self) -> None:
        self.entries = {}


class JsonBlob(Blob):
    """One JSON text, whose keys are text."""

    name = "state.json"

    def encoded(self) -> bytes:
        return orjson.dumps(self.entries)

    def decoded(self, blob: bytes) -> dict[Any, str]:
        return orjson.loads(blob)  # type: ignore[no-any-return]

    def key(self, number: int) -> str:
        return str(number)


class PickleBlob(Blob):
    """One pickle of the dictionary."""

    name = "state.pickle"

    def encoded(self) -> bytes:
        return pickle.dumps(self.entries, pickle.HIGHEST_PROTOCOL)

    def decoded(self, blob: bytes) -> dict[Any, str]:
        return pickle.loads(blob)  # type: ignore[no-any-return]


def sync_folder(place: Path) -> None:
    """Make a rename durable."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Kind:
    """A kind of store, with what the results say of it."""

    name: str
    store: type[Store]
    configuration: str
    role: Role = "rival"
    needs: tuple[str, ...] = ()
    refusal: Callable[[], str | None] | None = None


OURS = Kind("objectspace", Ours, "the defaults: durability=full, nothing acknowledged is lost", "ours")

OURS_NORMAL = Kind(
    "objectspace, durability=normal",
    OursNormal,
    "the last checkpoints may be lost when the power fails, as with diskcache; the store stays whole",
    "part",
)

RIVALS = (
    Kind(
        "SQLite in place",
        Sqlite,
        "WAL and synchronous=FULL: its documentation says that NORMAL may lose commits; a cache of 64 MB and one"
        " executemany in one transaction, the ways that it and Python's module advise",
    ),
    Kind(
        "rocksdict",
        Rocks,
        "raw_mode, a WriteBatch and WriteOptions.sync, as its documentation does for bytes, for many keys and for"
        " durability; the other options are RocksDB's defaults",
        needs=("rocksdict",),
    ),
    Kind(
        "LMDB",
        Lmdb,
        "the defaults, which sync at each commit; putmulti in one transaction, which its documentation advises for"
        " many keys; a map of 64 GB, since the map must be larger than the data",
        needs=("lmdb",),
    ),
    Kind(
        "ZODB",
        Zodb,
        "FileStorage, which syncs at each commit; an LOBTree, since its guide advises BTrees for large mappings; a"
        " cache of 200,000 objects, since the guide advises one that holds the working set",
        needs=("ZODB", "BTrees"),
    ),
    Kind(
        "diskcache",
        Diskcache,
        "transact() around what belongs together, as its tutorial advises, and eviction_policy none, so that nothing"
        " is dropped; synchronous=NORMAL is its default: the last commits may be lost when the power fails",
        needs=("diskcache",),
    ),
    Kind(
        "sqlitedict",
        Sqlitedict,
        "autocommit off and one commit for many keys, and outer_stack off for speed, as its page advises;"
        " synchronous=OFF is its default: the file may be damaged when the power fails",
        needs=("sqlitedict",),
    ),
    Kind(
        "shelve",
        Shelve,
        "writeback off, since its documentation warns of the cost of writeback; sync() after each change; keys are"
        " text, since it takes no others",
        refusal=no_good_dbm,
    ),
    Kind(
        "whole pickle",
        PickleBlob,
        "the highest protocol, a new file, fsync, rename, fsync of the folder; the state must fit into memory",
    ),
    Kind(
        "whole JSON blob",
        JsonBlob,
        "orjson, a new file, fsync, rename, fsync of the folder: the safe way to replace a file; the state must fit"
        " into memory",
    ),
)

FLOOR = Kind(
    "append and sync", Floor, "one write and one fdatasync: the bytes are durable, and nothing can find them", "floor"
)
