"""What history costs: reads over several runs, the difference of two checkpoints, going back."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from benchmarks.registry import Action, Contestant, Scenario, Sizes, Step, Subject
from benchmarks.scenarios.conversation import connect
from benchmarks.scenarios.stores import VALUE, changes
from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace

CHANGED = 1_000
"""How many slots the checkpoints after the first change."""

Entries = dict[int, str]


def first(slots: int) -> Entries:
    """Return the first contents."""
    return {key: VALUE.format(key) for key in range(slots)}


def edit(number: int, slots: int) -> Entries:
    """Return what a later checkpoint changes, the same for every contestant."""
    return changes("random", CHANGED, slots, random.Random(number))


# Reading --------------------------------------------------------------------------------------------------------------


class Reading(Subject):
    """A sorted dictionary of ``state`` checkpoints that can be read, of which random keys or ranges are read."""

    def action(self, step: Step, chance: random.Random) -> Action:
        slots: int = self.settings["slots"]
        if step.values["kind"] in ("range", "pages"):
            start = chance.randrange(slots - step.units)
            self.close()
            self.open()
            return partial(self.range if step.values["kind"] == "range" else self.pages, start, start + step.units)
        keys = chance.sample(range(slots), step.units)
        if step.values["kind"] == "cold":
            self.close()
            self.open()
        else:
            self.points(keys)
        return partial(self.points, keys)

    def points(self, keys: list[int]) -> list[str]:
        """Read keys one by one."""
        raise NotImplementedError

    def range(self, start: int, stop: int) -> list[tuple[int, str]]:
        """Read the entries of a range, in order, of a store that has not read them before."""
        raise NotImplementedError

    def pages(self, start: int, stop: int) -> list[tuple[int, str]]:
        """Do the same as fast as it goes."""
        return self.range(start, stop)


class OurRuns(Reading):
    def fill(self) -> None:
        self.open()
        self.target.update(first(self.settings["slots"]))
        self.space.checkpoint()
        for number in range(1, self.state):
            self.target.update(edit(number, self.settings["slots"]))
            self.space.checkpoint()
        self.close()

    def open(self) -> None:
        self.store = CheckpointStore(self.place / "state.db", history=64)
        self.space = PersistedObjectSpace(self.store)
        self.target = self.space.get_or_create_sorted_dictionary("target")

    def points(self, keys: list[int]) -> list[str]:
        return [self.target[key] for key in keys]

    def range(self, start: int, stop: int) -> list[tuple[int, str]]:
        return [*self.target.items_between(start, stop, inclusive=(True, False))]

    def pages(self, start: int, stop: int) -> list[tuple[int, str]]:
        return [*chain.from_iterable(self.target.pages_between(start, stop, inclusive=(True, False)))]

    def action(self, step: Step, chance: random.Random) -> Action:
        found = super().action(step, chance)
        if len(self.store.checkpoints()) != self.state:
            raise AssertionError(f"expected {self.state} checkpoints, found {len(self.store.checkpoints())}")
        return found

    def close(self) -> None:
        self.space.close()
        self.store.close()


class Table(Reading):
    """The same entries in one table: it has no history, so it is the same however many checkpoints there are."""

    db: sqlite3.Connection

    def fill(self) -> None:
        self.open()
        self.db.execute("CREATE TABLE item (slot INTEGER PRIMARY KEY, value TEXT)")
        for number in range(self.state):
            slots = self.settings["slots"]
            entries = edit(number, slots) if number else first(slots)
            self.db.execute("BEGIN")
            self.db.executemany("INSERT OR REPLACE INTO item VALUES (?, ?)", entries.items())
            self.db.execute("COMMIT")
        self.close()

    def open(self) -> None:
        self.db = connect(self.place / "plain.db")

    def points(self, keys: list[int]) -> list[str]:
        query = "SELECT value FROM item WHERE slot = ?"
        return [self.db.execute(query, (key,)).fetchone()[0] for key in keys]

    def range(self, start: int, stop: int) -> list[tuple[int, str]]:
        query = "SELECT slot, value FROM item WHERE slot >= ? AND slot < ? ORDER BY slot"
        return self.db.execute(query, (start, stop)).fetchall()

    def close(self) -> None:
        self.db.close()


# Two checkpoints ------------------------------------------------------------------------------------------------------


class Comparing(Subject):
    """Two checkpoints of ``state`` slots, of which a thousand differ."""

    def action(self, step: Step, chance: random.Random) -> Action:
        return self.keys

    def keys(self) -> list[int]:
        """Return the slots that differ, in order."""
        raise NotImplementedError


class OurDiff(Comparing):
    def fill(self) -> None:
        with PersistedObjectSpace.open(self.place / "state.db") as space:
            target = space.create_dictionary("target")
            target.update(first(self.state))
            space.checkpoint(epoch=1)
            target.update(edit(1, self.state))
            space.checkpoint(epoch=2)

    def open(self) -> None:
        self.store = CheckpointStore(self.place / "state.db", read_only=True)

    def keys(self) -> list[int]:
        return sorted(change.slot for change in self.store.diff(a_epoch=1, b_epoch=2) if change.table == "item")  # type: ignore[misc]

    def close(self) -> None:
        self.store.close()


class BlobDiff(Comparing):
    def fill(self) -> None:
        before = {str(key): value for key, value in first(self.state).items()}
        after = before | {str(key): value for key, value in edit(1, self.state).items()}
        (self.place / "1.json").write_bytes(orjson.dumps(before))
        (self.place / "2.json").write_bytes(orjson.dumps(after))

    def keys(self) -> list[int]:
        before, after = (orjson.loads((self.place / f"{number}.json").read_bytes()) for number in (1, 2))
        return sorted(int(key) for key in before.keys() | after.keys() if before.get(key) != after.get(key))


class TableDiff(Comparing):
    """Two files, one a copy of the other before the change; SQLite compares them."""

    db: sqlite3.Connection

    def fill(self) -> None:
        for number in (1, 2):
            with sqlite3.connect(self.place / f"{number}.db") as db:
                db.execute("CREATE TABLE item (slot INTEGER PRIMARY KEY, value TEXT)")
                entries = first(self.state) | (edit(1, self.state) if number == 2 else {})
                db.executemany("INSERT INTO item VALUES (?, ?)", entries.items())
            db.close()

    def open(self) -> None:
        self.db = sqlite3.connect(self.place / "1.db")
        self.db.execute("ATTACH ? AS later", (str(self.place / "2.db"),))

    def keys(self) -> list[int]:
        query = (
            "SELECT slot FROM main.item JOIN later.item AS new USING (slot) WHERE item.value <> new.value ORDER BY slot"
        )
        return [slot for (slot,) in self.db.execute(query)]

    def close(self) -> None:
        self.db.close()


class Returning(Subject):
    """A state to which a checkpoint of a thousand changes was added, which is then taken back."""

    def action(self, step: Step, chance: random.Random) -> Action:
        self.advance(changes("random", CHANGED, self.state, chance))
        return partial(self.go_back, chance.randrange(self.state))

    def advance(self, entries: Entries) -> None:
        """Keep the state as it is, and change it durably."""
        raise NotImplementedError

    def go_back(self, key: int) -> str:
        """Go back to the state before, durably, and read a key."""
        raise NotImplementedError


class OurRollback(Returning):
    def __init__(self, place: Path, state: int, settings: Mapping[str, Any]) -> None:
        super().__init__(place, state, settings)
        self.path = place / "state.db"

    def fill(self) -> None:
        with PersistedObjectSpace.open(self.path) as space:
            space.create_dictionary("target").update(first(self.state))
            space.checkpoint(epoch=1)

    def open(self) -> None:
        self.space = PersistedObjectSpace.open(self.path)
        self.target = self.space.get_dictionary("target")

    def advance(self, entries: Entries) -> None:
        self.target.update(entries)
        self.space.checkpoint(epoch=2)

    def go_back(self, key: int) -> str:
        self.space.rollback(epoch=1)
        return self.target[key]  # type: ignore[no-any-return]

    def close(self) -> None:
        self.space.close()


class TableCopies(Returning):
    """A copy of the file for each checkpoint that one may want to return to, made by SQLite's backup."""

    db: sqlite3.Connection

    def fill(self) -> None:
        self.open()
        self.db.execute("CREATE TABLE item (slot INTEGER PRIMARY KEY, value TEXT)")
        self.db.execute("BEGIN")
        self.db.executemany("INSERT INTO item VALUES (?, ?)", first(self.state).items())
        self.db.execute("COMMIT")
        self.close()

    def open(self) -> None:
        self.db = connect(self.place / "plain.db")

    def advance(self, entries: Entries) -> None:
        with sqlite3.connect(self.place / "kept.db") as kept:
            self.db.backup(kept)
        kept.close()
        self.db.execute("BEGIN")
        self.db.executemany("INSERT OR REPLACE INTO item VALUES (?, ?)", entries.items())
        self.db.execute("COMMIT")

    def go_back(self, key: int) -> str:
        self.db.close()
        shutil.copyfile(self.place / "kept.db", self.place / "fresh.db")
        with (self.place / "fresh.db").open("rb") as file:
            os.fsync(file.fileno())
        os.replace(self.place / "fresh.db", self.place / "plain.db")
        self.open()
        return self.db.execute("SELECT value FROM item WHERE slot = ?", (key,)).fetchone()[0]  # type: ignore[no-any-return]

    def close(self) -> None:
        self.db.close()


class BlobCopies(Returning):
    """A file for each checkpoint; going back loads the older one."""

    def fill(self) -> None:
        (self.place / "1.json").write_bytes(orjson.dumps({str(key): value for key, value in first(self.state).items()}))

    def open(self) -> None:
        self.entries: dict[str, str] = orjson.loads((self.place / "1.json").read_bytes())

    def advance(self, entries: Entries) -> None:
        self.entries.update((str(key), value) for key, value in entries.items())
        (self.place / "2.json").write_bytes(orjson.dumps(self.entries))

    def go_back(self, key: int) -> str:
        (self.place / "2.json").unlink()
        self.open()
        return self.entries[str(key)]


POINTS = (
    Step("cold point reads", 1_000, {"kind": "cold"}),
    Step("warm point reads", 1_000, {"kind": "warm"}),
    Step("range read, cold", 10_000, {"kind": "range"}),
    Step("range read in pages, cold", 10_000, {"kind": "pages"}),
)

SCENARIOS = (
    Scenario(
        name="reads",
        group="history",
        title="Reads after 1, 8 and 64 checkpoints",
        why="History is made of runs, and a read has to look at some of them: what keeping the last checkpoints"
        " readable costs every read.",
        state="checkpoints",
        unit="slot read",
        contestants=(
            Contestant("objectspace", OurRuns, "a sorted dictionary, history=64 so that each can be read", "ours"),
            Contestant("SQLite table", Table, "WAL, synchronous=FULL, a cache of 64 MB; one table without history"),
        ),
        quick=Sizes((1, 8, 64), POINTS, repetitions=9, seconds=2, settings={"slots": 100_000}),
        full=Sizes((1, 8, 64), POINTS, repetitions=25, seconds=20, patience=600, settings={"slots": 1_000_000}),
    ),
    Scenario(
        name="diff",
        group="history",
        title="What changed between two checkpoints: 1,000 slots of many",
        why="The first question after an incident is what changed. Here it is a read of what lies between.",
        state="stored slots",
        unit="difference",
        contestants=(
            Contestant("objectspace", OurDiff, "store.diff of two epochs of a dictionary", "ours"),
            Contestant("two JSON blobs", BlobDiff, "orjson: both are loaded and compared"),
            Contestant("two SQLite files", TableDiff, "ATTACH and one join by key, which its planner runs as a merge"),
        ),
        quick=Sizes((10_000, 100_000), (Step("diff", 1),), repetitions=7),
        full=Sizes((10_000, 100_000, 1_000_000), (Step("diff", 1),), repetitions=21, seconds=20, patience=600),
    ),
    Scenario(
        name="rollback",
        group="history",
        title="Go back one checkpoint of 1,000 changes and read a key",
        why="A bad deployment has written nonsense into the state: how long it takes to be back where it was well.",
        state="stored slots",
        unit="rollback",
        contestants=(
            Contestant("objectspace", OurRollback, "space.rollback(epoch), the defaults: durability=full", "ours"),
            Contestant(
                "SQLite and copies of the file",
                TableCopies,
                "WAL, synchronous=FULL; a copy by its backup API, which its documentation advises for live databases;"
                " going back copies it over. Making the copies is not timed",
            ),
            Contestant("JSON blobs", BlobCopies, "orjson: a file a checkpoint, of which the older one is loaded"),
        ),
        quick=Sizes((10_000, 100_000), (Step("rollback", 1),), repetitions=7),
        full=Sizes((10_000, 100_000, 1_000_000), (Step("rollback", 1),), repetitions=21, seconds=20, patience=600),
    ),
)
