"""The memory of an agent: a conversation that only grows, saved after each turn."""

from __future__ import annotations

import os
import random
import sqlite3
from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from benchmarks.registry import Action, Contestant, Scenario, Sizes, Step, Subject
from benchmarks.scenarios.stores import Durability, sync_folder
from objectspace import PersistedObjectSpace

TURN_BYTES = 2_048


class Conversation(Subject):
    """A conversation that starts empty in each repetition."""

    def __init__(self, place: Path, state: int, settings: Mapping[str, Any]) -> None:
        super().__init__(place, state, settings)
        self.number = 0

    def action(self, step: Step, chance: random.Random) -> Action:
        self.number += 1
        turns = [chance.randbytes(TURN_BYTES // 2).hex() for _ in range(step.units)]
        return partial(self.hold, self.place / str(self.number), turns)

    @abstractmethod
    def hold(self, path: Path, turns: list[str]) -> None:
        """Create the conversation at a path without a suffix, add the turns, each durable, and close it."""


class Ours(Conversation):
    durability: Durability = "full"

    def hold(self, path: Path, turns: list[str]) -> None:
        with PersistedObjectSpace.open(path, durability=self.durability) as space:
            messages = space.create_list("messages")
            for turn in turns:
                messages.append(turn)
                space.checkpoint()


class OursNormal(Ours):
    durability = "normal"


class Blob(Conversation):
    def hold(self, path: Path, turns: list[str]) -> None:
        messages, fresh = [], path.with_suffix(".new")
        for turn in turns:
            messages.append(turn)
            with fresh.open("wb") as file:
                file.write(orjson.dumps(messages))
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, path)
            sync_folder(path.parent)


class Sqlite(Conversation):
    def hold(self, path: Path, turns: list[str]) -> None:
        db = connect(path)
        db.execute("CREATE TABLE message (number INTEGER PRIMARY KEY, text TEXT)")
        for number, turn in enumerate(turns):
            db.execute("INSERT INTO message VALUES (?, ?)", (number, turn))
        db.close()


class SqliteBlobs(Conversation):
    def hold(self, path: Path, turns: list[str]) -> None:
        db, messages = connect(path), []
        db.execute("CREATE TABLE checkpoint (number INTEGER PRIMARY KEY, state BLOB)")
        for number, turn in enumerate(turns):
            messages.append(turn)
            db.execute("INSERT INTO checkpoint VALUES (?, ?)", (number, orjson.dumps(messages)))
        db.close()


class Sqlitedict(Conversation):
    def hold(self, path: Path, turns: list[str]) -> None:
        from sqlitedict import SqliteDict

        messages = []
        with SqliteDict(str(path), outer_stack=False) as db:
            for turn in turns:
                messages.append(turn)
                db["messages"] = messages
                db.commit()


class Diskcache(Conversation):
    def hold(self, path: Path, turns: list[str]) -> None:
        from diskcache import Deque

        messages = Deque(directory=str(path))
        for turn in turns:
            messages.append(turn)
        messages.cache.close()


class Floor(Conversation):
    def hold(self, path: Path, turns: list[str]) -> None:
        with path.open("wb", buffering=0) as file:
            for turn in turns:
                file.write(turn.encode())
                os.fdatasync(file.fileno())


def connect(path: Path) -> sqlite3.Connection:
    """Open a database that loses nothing that was committed, with a cache like ours; a statement is a transaction."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA cache_size = -65536")
    return db


SCENARIOS = (
    Scenario(
        name="conversation",
        group="store",
        title=f"A conversation of turns of {TURN_BYTES:,} bytes, saved after each turn",
        why="The memory of an agent or a chat only grows. Whoever saves the whole of it after each turn writes bytes"
        " that grow with the square of its length.",
        state="turns before",
        unit="turn",
        contestants=(
            Contestant("objectspace", Ours, "a list in a space, the defaults: durability=full", "ours"),
            Contestant(
                "objectspace, durability=normal",
                OursNormal,
                "the last turns may be lost when the power fails, as with diskcache; the store stays whole",
                "part",
            ),
            Contestant("whole JSON blob", Blob, "orjson, a new file, fsync, rename, fsync of the folder"),
            Contestant("SQLite, a row a turn", Sqlite, "WAL, synchronous=FULL, a cache of 64 MB: a hand-written table"),
            Contestant(
                "SQLite, a blob a checkpoint",
                SqliteBlobs,
                "WAL and synchronous=FULL: each checkpoint is a row with the whole conversation, and all are kept,"
                " so that one can go back: what checkpoint tables of agent frameworks look like",
            ),
            Contestant(
                "sqlitedict, the list under one key",
                Sqlitedict,
                "the value set as a whole, since its page says that changes inside a value are not noticed; commit()"
                " after each turn; synchronous=OFF is its default: the file may be damaged when the power fails",
                needs=("sqlitedict",),
            ),
            Contestant(
                "diskcache.Deque",
                Diskcache,
                "the defaults of its Deque; synchronous=NORMAL: the last turns may be lost when the power fails",
                needs=("diskcache",),
            ),
            Contestant(
                "append and sync", Floor, "one write and one fdatasync a turn; nothing can find a turn", "floor"
            ),
        ),
        quick=Sizes(states=(0,), steps=(Step("50 turns", 50), Step("200 turns", 200)), repetitions=3, seconds=5),
        full=Sizes(
            states=(0,),
            steps=(Step("50 turns", 50, x=50), Step("200 turns", 200, x=200), Step("1,000 turns", 1_000, x=1_000)),
            repetitions=9,
            seconds=60,
            patience=600,
        ),
    ),
)
