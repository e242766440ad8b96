"""The state of three streaming operators, slot by slot and as a blob."""

from __future__ import annotations

import os
import random
import sqlite3
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson

from benchmarks.registry import Action, Contestant, Scenario, Sizes, Step, Subject
from benchmarks.scenarios.conversation import connect
from benchmarks.scenarios.stores import sync_folder
from objectspace import PersistedObjectSpace

EVENTS = 100
"""How many events reach a buffer between two checkpoints."""


def event(number: int) -> dict[str, Any]:
    """Return an event of about a hundred bytes."""
    return {
        "id": number,
        "time": 1_700_000_000_000 + number,
        "source": f"sensor-{number % 97}",
        "text": f"{number:040d}",
    }


class State(Subject):
    """Three operators with ``state`` elements each: a buffer, CombineLatest and SelectMany."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.next = self.state

    def action(self, step: Step, chance: random.Random) -> Action:
        kind = step.values["kind"]
        if kind == "latest":
            return partial(self.latest, chance.randrange(self.state), chance.random())
        count = EVENTS if kind == "buffer" else 1
        events = [event(number) for number in range(self.next, self.next + count)]
        self.next += count
        change: Callable[[list[Any]], None] = self.buffer if kind == "buffer" else self.inner
        return partial(change, events)

    @abstractmethod
    def buffer(self, events: list[Any]) -> None:
        """Add events to the buffer, drop as many old ones, and save."""

    @abstractmethod
    def latest(self, place: int, value: float) -> None:
        """Set the latest value of one input, and save."""

    @abstractmethod
    def inner(self, subscriptions: list[Any]) -> None:
        """Add inner subscriptions to the list, and save."""

    def first(self) -> dict[str, list[Any]]:
        """Return the first state of the three."""
        events = [event(number) for number in range(self.state)]
        return {"buffer": events, "latest": [0.5] * self.state, "inner": events}


class Slots(State):
    """A queue, an array and a list of a space."""

    def fill(self) -> None:
        self._connect()
        for number in range(self.state):
            self.queue.enqueue(event(number))
        self.inners.extend(event(number) for number in range(self.state))
        self.space.checkpoint()
        self.close()

    def open(self) -> None:
        self._connect()

    def _connect(self) -> None:
        self.space = PersistedObjectSpace.open(self.place / "state.db")
        self.queue = self.space.get_or_create_queue("buffer")
        self.array = self.space.get_or_create_array("latest", self.state, default=0.5)
        self.inners = self.space.get_or_create_list("inner")

    def buffer(self, events: list[Any]) -> None:
        for one in events:
            self.queue.enqueue(one)
            self.queue.dequeue()
        self.space.checkpoint()

    def latest(self, place: int, value: float) -> None:
        self.array[place] = value
        self.space.checkpoint()

    def inner(self, subscriptions: list[Any]) -> None:
        self.inners.extend(subscriptions)
        self.space.checkpoint()

    def close(self) -> None:
        self.space.close()


class Blobs(State):
    """A blob for each operator that has changed: a new file, synced, renamed over the old one."""

    def fill(self) -> None:
        for name, value in self.first().items():
            self._save(name, value)

    def open(self) -> None:
        self.values = {path.stem: orjson.loads(path.read_bytes()) for path in self.place.glob("*.json")}

    def _save(self, name: str, value: list[Any]) -> None:
        fresh = self.place / f"{name}.new"
        with fresh.open("wb") as file:
            file.write(orjson.dumps(value))
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self.place / f"{name}.json")
        sync_folder(self.place)

    def _change(self, name: str) -> None:
        self._save(name, self.values[name])

    def buffer(self, events: list[Any]) -> None:
        self.values["buffer"] = self.values["buffer"][len(events) :] + events
        self._change("buffer")

    def latest(self, place: int, value: float) -> None:
        self.values["latest"][place] = value
        self._change("latest")

    def inner(self, subscriptions: list[Any]) -> None:
        self.values["inner"].extend(subscriptions)
        self._change("inner")


class SqliteBlobs(Blobs):
    """The same blobs as rows of a table."""

    db: sqlite3.Connection

    def fill(self) -> None:
        self._connect()
        super().fill()
        self.close()

    def open(self) -> None:
        self._connect()
        self.values = {name: orjson.loads(value) for name, value in self.db.execute("SELECT name, value FROM operator")}

    def _connect(self) -> None:
        self.db = connect(self.place / "operators.db")
        self.db.execute("CREATE TABLE IF NOT EXISTS operator (name TEXT PRIMARY KEY, value BLOB)")

    def _save(self, name: str, value: list[Any]) -> None:
        self.db.execute("INSERT OR REPLACE INTO operator VALUES (?, ?)", (name, orjson.dumps(value)))

    def close(self) -> None:
        self.db.close()


class RocksBlobs(Blobs):
    """The same blobs as values of RocksDB, a value for each operator, as engines keep the state of a key."""

    def fill(self) -> None:
        self._connect()
        super().fill()
        self.close()

    def open(self) -> None:
        self._connect()
        self.values = {
            name: orjson.loads(bytes(self.db[name.encode()] or b"")) for name in ("buffer", "latest", "inner")
        }

    def _connect(self) -> None:
        from rocksdict import Options, Rdict, WriteOptions

        self.db = Rdict(str(self.place / "rocks"), Options(raw_mode=True))
        options = WriteOptions()
        options.sync = True
        self.db.set_write_options(options)

    def _save(self, name: str, value: list[Any]) -> None:
        self.db[name.encode()] = orjson.dumps(value)

    def close(self) -> None:
        self.db.close()


STEPS = (
    Step(f"buffer: {EVENTS} events in, {EVENTS} out", 1, {"kind": "buffer"}),
    Step("CombineLatest: one input of all changes", 1, {"kind": "latest"}),
    Step("SelectMany: one more inner subscription", 1, {"kind": "inner"}),
)

SCENARIOS = (
    Scenario(
        name="state",
        group="store",
        title="The state of streaming operators: slots or a blob",
        why="A buffer over an hour, the latest values of many inputs, a list of inner subscriptions: an engine that"
        " saves a blob for each operator writes all of it at each checkpoint, whatever has changed. Look at the bytes.",
        state="elements",
        unit="checkpoint",
        contestants=(
            Contestant("objectspace", Slots, "a queue, an array and a list, the defaults: durability=full", "ours"),
            Contestant("JSON blobs", Blobs, "orjson; a new file for what changed, fsync, rename, fsync of the folder"),
            Contestant("SQLite, a blob a row", SqliteBlobs, "WAL and synchronous=FULL; a row an operator"),
            Contestant(
                "rocksdict, a blob a value",
                RocksBlobs,
                "raw_mode and synced writes; a value an operator; the other options are RocksDB's defaults",
                needs=("rocksdict",),
            ),
        ),
        quick=Sizes((1_000, 10_000), STEPS, repetitions=9, seconds=1),
        full=Sizes((1_000, 10_000, 100_000, 1_000_000), STEPS, repetitions=41, seconds=20, patience=600),
    ),
)
