"""Insertions in the middle of a list, made durable."""

from __future__ import annotations

import os
import random
import sqlite3
from functools import partial
from typing import Any

import orjson

from benchmarks.registry import Action, Contestant, Scenario, Sizes, Step, Subject
from benchmarks.scenarios.conversation import connect
from benchmarks.scenarios.stores import VALUE, sync_folder
from objectspace import PersistedObjectSpace

Insertion = tuple[int, str]


class Inserting(Subject):
    """A list into which texts are inserted at random places, one save for all of them."""

    def action(self, step: Step, chance: random.Random) -> Action:
        values = [VALUE.format(chance.getrandbits(100)) for _ in range(step.units)]
        return partial(self.insert, [(chance.randrange(self.state), value) for value in values])

    def insert(self, places: list[Insertion]) -> None:
        """Insert the texts and make them durable."""
        raise NotImplementedError

    def texts(self) -> list[str]:
        """Return the first contents."""
        return [VALUE.format(number) for number in range(self.state)]


class Ours(Inserting):
    def fill(self) -> None:
        with PersistedObjectSpace.open(self.place / "state.db") as space:
            space.create_list("target").extend(self.texts())
            space.checkpoint()

    def open(self) -> None:
        self.space = PersistedObjectSpace.open(self.place / "state.db")
        self.target = self.space.get_list("target")

    def insert(self, places: list[Insertion]) -> None:
        for place, value in places:
            self.target.insert(place, value)
        self.space.checkpoint()

    def close(self) -> None:
        self.space.close()


class Blob(Inserting):
    def fill(self) -> None:
        (self.place / "state.json").write_bytes(orjson.dumps(self.texts()))

    def open(self) -> None:
        self.path = self.place / "state.json"
        self.target: list[str] = orjson.loads(self.path.read_bytes())

    def insert(self, places: list[Insertion]) -> None:
        for place, value in places:
            self.target.insert(place, value)
        fresh = self.path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(orjson.dumps(self.target))
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self.path)
        sync_folder(self.place)


class SqlitePositions(Inserting):
    """The table that one writes first: the position is the key, and an insertion moves all that follow."""

    db: sqlite3.Connection

    def fill(self) -> None:
        self.open()
        self.db.execute("CREATE TABLE item (place INTEGER PRIMARY KEY, value TEXT)")
        self.db.execute("BEGIN")
        self.db.executemany("INSERT INTO item VALUES (?, ?)", enumerate(self.texts()))
        self.db.execute("COMMIT")
        self.close()

    def open(self) -> None:
        self.db = connect(self.place / "positions.db")

    def insert(self, places: list[Insertion]) -> None:
        self.db.execute("BEGIN")
        for place, value in places:
            # A key may not stand twice even for a moment, so the rows go by way of the negative numbers.
            self.db.execute("UPDATE item SET place = -place - 1 WHERE place >= ?", (place,))
            self.db.execute("UPDATE item SET place = -place WHERE place < 0")
            self.db.execute("INSERT INTO item VALUES (?, ?)", (place, value))
        self.db.execute("COMMIT")

    def close(self) -> None:
        self.db.close()


class SqliteRanks(Inserting):
    """The table that one writes next: a fractional rank, read from the neighbours."""

    db: sqlite3.Connection

    def fill(self) -> None:
        self.open()
        self.db.execute("CREATE TABLE item (rank REAL PRIMARY KEY, value TEXT) WITHOUT ROWID")
        self.db.execute("BEGIN")
        self.db.executemany("INSERT INTO item VALUES (?, ?)", enumerate(self.texts()))
        self.db.execute("COMMIT")
        self.close()

    def open(self) -> None:
        self.db = connect(self.place / "ranks.db")

    def insert(self, places: list[Insertion]) -> None:
        self.db.execute("BEGIN")
        for place, value in places:
            query = "SELECT rank FROM item ORDER BY rank LIMIT 2 OFFSET ?"
            ranks = [rank for (rank,) in self.db.execute(query, (max(place - 1, 0),))]
            low, high = (ranks[0] - 1, ranks[0]) if place == 0 else ranks
            self.db.execute("INSERT INTO item VALUES (?, ?)", ((low + high) / 2, value))
        self.db.execute("COMMIT")

    def close(self) -> None:
        self.db.close()


class Zodb(Inserting):
    manager: Any

    def fill(self) -> None:
        from persistent.list import PersistentList

        self._connect()
        self.connection.root()["target"] = PersistentList(self.texts())
        self.manager.commit()
        self.close()

    def open(self) -> None:
        self._connect()
        self.target = self.connection.root()["target"]

    def _connect(self) -> None:
        import transaction
        import ZODB
        import ZODB.FileStorage

        self.manager = transaction.TransactionManager()
        self.db = ZODB.DB(ZODB.FileStorage.FileStorage(str(self.place / "state.fs")))
        self.connection = self.db.open(self.manager)

    def insert(self, places: list[Insertion]) -> None:
        for place, value in places:
            self.target.insert(place, value)
        self.manager.commit()

    def close(self) -> None:
        self.connection.close()
        self.db.close()


STEPS = tuple(Step(f"{count:,} insertions", count, x=count) for count in (1, 10, 100))

SCENARIOS = (
    Scenario(
        name="middle",
        group="store",
        title="Insert in the middle of a list and save",
        why="A list whose slots are its positions moves all that follow an insertion, and saves it all. A playlist, an"
        " outline, a buffer in order of time: lists are not only appended to.",
        state="elements",
        unit="insertion",
        contestants=(
            Contestant("objectspace", Ours, "a list in a space, the defaults: durability=full", "ours"),
            Contestant("whole JSON blob", Blob, "orjson, a new file, fsync, rename, fsync of the folder"),
            Contestant(
                "SQLite, positions",
                SqlitePositions,
                "WAL and synchronous=FULL; the position is the key",
                largest=(100_000, "an insertion moves all that follow, so that one repetition would take minutes"),
            ),
            Contestant(
                "SQLite, fractional ranks",
                SqliteRanks,
                "WAL and synchronous=FULL; the rank is the key, and the place is found by OFFSET, which reads up to it",
            ),
            Contestant(
                "ZODB PersistentList",
                Zodb,
                "FileStorage; its guide has PersistentList for sequences: it is one record, saved as a whole",
                needs=("ZODB", "persistent"),
            ),
        ),
        quick=Sizes(states=(10_000,), steps=STEPS[:2], repetitions=5, seconds=3, patience=30),
        full=Sizes(states=(10_000, 100_000, 1_000_000), steps=STEPS, repetitions=11, seconds=30, patience=900),
    ),
)
