"""The persisted objects beside Python's containers, RocksDB, bare SQLite and the append-and-sync floor.

Run it with ``python -m benchmarks.objects`` (or ``make bench-objects``); ``--quick`` leaves out the largest stores.
"""

from __future__ import annotations

import argparse
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sortedcontainers import SortedDict, SortedSet

from benchmarks.timing import Action, Ratio, compare, folder, in_turn, machine, table
from checkpoint import CheckpointStore
from checkpoint.tiers import FAN_IN
from objectspace import PersistedObjectSpace

OPERATIONS = 100_000
DIRTY_SLOTS = 2_000
CYCLES = 3
"""The bytes are those of so many times the checkpoints after which runs are merged."""

VALUE = "{:044d}"
"""Values of 44 digits: with the quotes of their JSON and an integer key about 52 bytes a slot."""


@dataclass(frozen=True)
class Operation:
    """One operation, on a persisted object and on the container that it is compared with.

    Args:
        kind: the kind of the object.
        builtin: makes the container from its first contents.
        contents: the first contents; none for an object that starts empty.
        code: what is timed, with ``t`` for the object or container and ``r`` for the places or values.
        goal: the ratio that was aimed at.
        fill: the method that puts the first contents into the object.
        mine: the code for the object, where its methods have other names.
    """

    kind: str
    builtin: Callable[..., Any]
    contents: Any
    code: str
    goal: float
    fill: str = "extend"
    mine: str | None = None


PLACES = range(OPERATIONS)
PAIRS = {place: place for place in PLACES}
OTHER_PAIRS = {place: -place for place in PLACES}

OPERATIONS_TABLE = [
    Operation("list", list, PLACES, "for i in r: t[i]", 2.5),
    Operation("list", list, PLACES, "for i in r: t[i] = i", 2.5),
    Operation("list", list, PLACES, "for i in r: t.append(i)", 2.5),
    Operation("dictionary", dict, PAIRS, "for i in r: t[i]", 2.5, "update"),
    Operation("dictionary", dict, PAIRS, "for i in r: t.get(i)", 2.5, "update"),
    Operation("dictionary", dict, PAIRS, "for i in r: t[i] = i", 2.5, "update"),
    Operation("set", set, PLACES, "for i in r: t.add(-i)", 2.5, "update"),
    Operation("set", set, PLACES, "for i in r: i in t", 2.5, "update"),
    Operation("queue", deque, PLACES, "for i in r: t.append(i)", 2.5, "", "for i in r: t.enqueue(i)"),
    Operation("queue", deque, PLACES, "for i in r: t.popleft()", 2.5, "", "for i in r: t.dequeue()"),
    Operation("stack", list, PLACES, "for i in r: t.append(i)", 2.5, "", "for i in r: t.push(i)"),
    Operation("stack", list, PLACES, "for i in r: t.pop()", 2.5, "", "for i in r: t.pop()"),
    Operation("sorted_dictionary", SortedDict, PAIRS, "for i in r: t[i]", 2.5, "update"),
    Operation("sorted_dictionary", SortedDict, PAIRS, "for i in r: t[i] = i", 2.5, "update"),
    Operation("sorted_dictionary", SortedDict, {}, "for i in r: t[i] = i", 2.5, "update"),
    Operation("sorted_set", SortedSet, (), "for i in r: t.add(i)", 2.5, "update"),
    Operation("list", list, PLACES, "t.extend(r)", 1.5),
    Operation("dictionary", dict, PAIRS, "t.update(p)", 1.5, "update"),
    Operation("set", set, (), "t.update(r)", 1.5, "update"),
]


def compiled(code: str) -> Callable[[Any], None]:
    """Return a function of ``t`` that runs code as a user would write it."""
    scope: dict[str, Any] = {"r": PLACES, "p": OTHER_PAIRS}
    exec(f"def run(t, r=r, p=p):\n    {code}", scope)
    return scope["run"]  # type: ignore[no-any-return]


def loaded_object(operation: Operation) -> Any:
    """Return an object with the first contents, saved once, so that each change must be noted."""
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    target = getattr(space, f"create_{operation.kind}")("target")
    if operation.kind in ("queue", "stack"):
        put = target.enqueue if operation.kind == "queue" else target.push
        for value in operation.contents:
            put(value)
    else:
        getattr(target, operation.fill)(operation.contents)
    space.checkpoint()
    return target


def _on_mine(action: Callable[[Any], object], operation: Operation) -> Action:
    return partial(action, loaded_object(operation))


def _on_theirs(action: Callable[[Any], object], operation: Operation) -> Action:
    return partial(action, operation.builtin(operation.contents))


def operations() -> str:
    """Compare single operations and bulk methods with those of the containers."""
    rows = []
    for operation in OPERATIONS_TABLE:
        theirs, mine = compiled(operation.code), compiled(operation.mine or operation.code)
        ratio = compare(
            partial(_on_mine, mine, operation),
            partial(_on_theirs, theirs, operation),
            repetitions=5,
        )
        calls = OPERATIONS if operation.code.startswith("for") else 1
        unit, scale = ("ns", 1e9) if calls > 1 else ("ms", 1e3)
        rows.append(
            (
                f"{operation.kind} of {len(operation.contents):,}",
                f"`{operation.mine or operation.code}`",
                f"{ratio.mine.median / calls * scale:.1f} {unit}",
                f"{ratio.other.median / calls * scale:.1f} {unit}",
                ratio.describe(),
                f"{operation.goal}",
            )
        )
    return table("Operations", ("object", "code", "here", "container", "ratio (min-max)", "aim"), rows)


# Checkpoints ----------------------------------------------------------------------------------------------------------


class Mine:
    """A dictionary in a space, of which some slots change."""

    def __init__(self, place: Path, slots: int) -> None:
        self.space = PersistedObjectSpace.open(place / f"mine-{slots}.db", cache_slots=1_000_000)
        self.target = self.space.create_dictionary("target")
        for start in range(0, slots, 500_000):
            self.target.update({key: VALUE.format(key) for key in range(start, min(start + 500_000, slots))})
            self.space.checkpoint()

    def change(self, keys: list[int], values: list[str]) -> Action:
        """Change slots and return the action that saves them."""
        for key, value in zip(keys, values, strict=True):
            self.target[key] = value
        return self.space.checkpoint


class Rocks:
    """The same in RocksDB: one synced batch."""

    def __init__(self, place: Path, slots: int) -> None:
        from rocksdict import Options, Rdict

        self.db = Rdict(str(place / f"rocks-{slots}"), Options(raw_mode=True))
        for start in range(0, slots, 100_000):
            self._write(
                (key.to_bytes(8), VALUE.format(key).encode()) for key in range(start, min(start + 100_000, slots))
            )

    def _write(self, pairs: Any) -> None:
        from rocksdict import WriteBatch, WriteOptions

        batch, options = WriteBatch(raw_mode=True), WriteOptions()
        for key, value in pairs:
            batch.put(key, value)
        options.sync = True
        self.db.write(batch, options)

    def change(self, keys: list[int], values: list[str]) -> Action:
        """Return the action that encodes and writes the slots."""
        return lambda: self._write((key.to_bytes(8), value.encode()) for key, value in zip(keys, values, strict=True))


class Floor:
    """The least that any durable store must do: append the bytes and wait until they are on the disk."""

    def __init__(self, place: Path) -> None:
        self.file = (place / "floor").open("ab", buffering=0)

    def change(self, keys: list[int], values: list[str]) -> Action:
        """Return the action that encodes and appends the slots."""

        def run() -> None:
            self.file.write(b"".join(key.to_bytes(8) + value.encode() for key, value in zip(keys, values, strict=True)))
            os.fdatasync(self.file.fileno())

        return run


def checkpoints(sizes: list[int]) -> str:
    """Compare the checkpoint of 2,000 random dirty slots, at several sizes of the state."""
    rows = []
    for slots in sizes:
        with folder() as place:
            rivals: dict[str, Any] = {
                "objectspace": Mine(place, slots),
                "rocksdict": Rocks(place, slots),
                "floor": Floor(place),
            }
            chance = random.Random(slots)

            def prepare(rival: Any, chance: random.Random = chance, slots: int = slots) -> Action:
                keys = chance.sample(range(slots), DIRTY_SLOTS)
                return rival.change(keys, [VALUE.format(chance.getrandbits(100)) for _ in keys])  # type: ignore[no-any-return]

            measured = in_turn({name: partial(prepare, rival) for name, rival in rivals.items()}, 21)
            mine, rocks, floor = (measured[name] for name in rivals)
            alone, merged = bytes_a_slot(rivals["objectspace"], partial(prepare, rivals["objectspace"]))
            rows.append(
                (
                    f"{slots:,}",
                    *(f"{one.median / DIRTY_SLOTS * 1e6:.2f}" for one in (mine, rocks, floor)),
                    Ratio(mine, rocks).describe(),
                    f"{statistics.median(a / b for a, b in zip(mine.seconds, floor.seconds, strict=True)):.2f}",
                    f"{alone:.0f}",
                    f"{merged:.0f}",
                )
            )
            rivals["objectspace"].space.close()
    ratios = ("ratio to rocksdict", "ratio to floor")
    header = ("stored slots", "us a slot", "rocksdict", "floor", *ratios, "bytes a slot, alone", "with merging")
    return table(f"Checkpoint of {DIRTY_SLOTS:,} random dirty slots", header, rows)


def bytes_a_slot(mine: Mine, prepare: Callable[[], Action]) -> tuple[float, float]:
    """Return the bytes that checkpoints add to the write-ahead log, for each dirty slot: the least, and the mean.

    The least are those of a checkpoint that has merged nothing, the mean has all the merging, which comes in pieces.
    """
    log = Path(mine.space.store.path + "-wal")
    found = []
    for _ in range(CYCLES * FAN_IN):
        mine.space.store.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        prepare()()
        found.append(log.stat().st_size / DIRTY_SLOTS)
    return min(found), statistics.fmean(found)


# Opening and reading --------------------------------------------------------------------------------------------------


def opening() -> str:
    """Compare opening a large store with opening a small one, and a cold read with a bare SQLite point query."""
    with folder() as place:
        for slots in (1_000, 1_000_000):
            Mine(place, slots).space.close()

        def opened(slots: int) -> Action:
            def run() -> None:
                PersistedObjectSpace.open(place / f"mine-{slots}.db").close()

            return run

        opens = compare(lambda: opened(1_000_000), lambda: opened(1_000), repetitions=15)
        bare = _bare_table(place, 1_000_000)
        space = PersistedObjectSpace.open(place / "mine-1000000.db")
        target = space.get_dictionary("target")
        assert target[0] == VALUE.format(0)
        chance = random.Random(1)
        reads = compare(
            lambda: partial(_read_mine, target, chance.sample(range(1_000_000), 1_000)),
            lambda: partial(_read_bare, bare, chance.sample(range(1_000_000), 1_000)),
            repetitions=9,
        )
        space.close()
    rows = [
        (
            "open 1,000,000 slots against 1,000",
            f"{opens.mine.median * 1e3:.2f} ms",
            f"{opens.other.median * 1e3:.2f} ms",
            opens.describe(),
            "2",
        ),
        (
            "cold key against a bare SQLite point query",
            f"{reads.mine.median * 1e3:.1f} us",
            f"{reads.other.median * 1e3:.1f} us",
            reads.describe(),
            "3",
        ),
    ]
    return table("Opening and reading", ("what", "here", "other", "ratio (min-max)", "aim"), rows)


def _bare_table(place: Path, slots: int) -> sqlite3.Connection:
    connection = sqlite3.connect(place / "bare.db")
    connection.execute("CREATE TABLE item (slot INTEGER PRIMARY KEY, value TEXT)")
    with connection:
        connection.executemany("INSERT INTO item VALUES (?, ?)", ((key, VALUE.format(key)) for key in range(slots)))
    connection.close()
    return sqlite3.connect(place / "bare.db")


def _read_mine(target: Any, keys: list[int]) -> None:
    for key in keys:
        target[key]


def _read_bare(connection: sqlite3.Connection, keys: list[int]) -> None:
    for key in keys:
        connection.execute("SELECT value FROM item WHERE slot = ?", (key,)).fetchone()


# The middle of a list -------------------------------------------------------------------------------------------------


def middle() -> str:
    """Count the rows that insertions and removals in a list of 100,000 write."""
    rows = []
    chance = random.Random(2)
    for what in ("insert at random places", "insert at one place", "delete at random places"):
        with PersistedObjectSpace(CheckpointStore(":memory:")) as space:
            target = space.create_list("target")
            target.extend(range(100_000))
            space.checkpoint()
            started = time.perf_counter()
            for number in range(DIRTY_SLOTS):
                place = 50_000 if "one" in what else chance.randrange(len(target))
                if what.startswith("insert"):
                    target.insert(place, -number)
                else:
                    del target[place]
            elapsed = time.perf_counter() - started
            rows.append(
                (what, f"{space.checkpoint().slots / DIRTY_SLOTS:.3f}", f"{elapsed / DIRTY_SLOTS * 1e6:.1f} us")
            )
    return table("A list of 100,000 elements", ("what, 2,000 times", "rows written each", "time each in memory"), rows)


# Larger than memory ---------------------------------------------------------------------------------------------------

_BOUNDED = """
import random, re, sys, time
from objectspace import PersistedObjectSpace
space = PersistedObjectSpace.open(sys.argv[1], cache_slots=100_000)
def peak(): return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
empty = peak()
target, slots = space.get_dictionary("target"), int(sys.argv[2])
chance, started = random.Random(3), time.perf_counter()
def lap(what):
    global started
    print(what, time.perf_counter() - started, empty / 1024, peak() / 1024, sep="|", flush=True)
    started = time.perf_counter()
for key in chance.sample(range(slots), 100_000): target[key]
lap("read 100,000 random keys")
for key in chance.sample(range(slots), 100_000): target[key] = "changed"
space.checkpoint()
lap("change 100,000 random keys and save")
for key in range(slots, slots + 100_000): target[key] = "new"
space.checkpoint()
lap("insert 100,000 keys and save")
assert sum(1 for _ in target.items()) == slots + 100_000
lap("iterate over all")
"""


def bounded(slots: int) -> str:
    """Read, change and iterate over a large dictionary with a cache of 100,000 slots, and look at the memory."""
    with folder() as place:
        Mine(place, slots).space.close()
        command = [sys.executable, "-c", _BOUNDED, str(place / f"mine-{slots}.db"), str(slots)]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = []
    for what, seconds, empty, peak in (line.split("|") for line in lines):
        rows.append((what, f"{float(seconds):.1f} s", f"{float(empty):.0f} MiB", f"{float(peak):.0f} MiB"))
    header = ("what", "time", "memory after opening", "peak so far")
    return table(f"A dictionary of {slots:,} slots, cache_slots=100,000", header, rows)


def main() -> None:
    """Run the benchmark and print its tables in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.objects", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the store of ten million slots")
    quick = parser.parse_args().quick
    print(machine("objectspace", "rocksdict", "sortedcontainers", "orjson") + "\n", flush=True)
    sizes = [10_000, 300_000] if quick else [10_000, 300_000, 10_000_000]
    for part in (operations, partial(checkpoints, sizes), opening, middle, partial(bounded, sizes[-1])):
        print(part(), flush=True)


if __name__ == "__main__":
    main()
