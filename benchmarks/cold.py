"""The first reads of a large state whose files are not in memory, as after a restart, beside SQLite and RocksDB.

Before each repetition the files are dropped from the memory of the machine: ``python -m benchmarks.cold``.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.scenarios.stores import VALUE, Ours, Rocks, Sqlite, Store
from benchmarks.timing import Action, Ratio, folder, in_turn, machine, table

KEYS = (1, 100, 1_000, 10_000)
"""How many random keys are read."""

Read = Callable[[Store, Sequence[int]], Sequence[str]]


def together(store: Store, keys: Sequence[int]) -> Sequence[str]:
    """Read all keys in one call."""
    assert isinstance(store, Ours)
    found: list[Any] = store.target.get_many(keys)
    return found


def one_by_one(store: Store, keys: Sequence[int]) -> Sequence[str]:
    """Read one key after the other."""
    return [store.get(key) for key in keys]


WAYS: dict[str, tuple[type[Store], Read]] = {
    "get_many": (Ours, together),
    "one by one": (Ours, one_by_one),
    "SQLite in place": (Sqlite, one_by_one),
    "rocksdict": (Rocks, one_by_one),
}


def forget(place: Path) -> None:
    """Have the machine drop what it keeps in memory of the files below a folder."""
    for file in place.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def checked(read: Read, store: Store, keys: Sequence[int]) -> None:
    """Read keys, and make sure that their values are right."""
    found = read(store, keys)
    assert found == [VALUE.format(key) for key in keys], "a wrong value"


def compared(stores: Mapping[type[Store], Store], slots: int, repetitions: int) -> Iterator[list[str]]:
    """Yield for each number of keys what one takes in each way, and how many times as long ours takes as each other."""
    chance = random.Random(1)
    for count in KEYS:

        def prepare(store: Store, read: Read, count: int = count) -> Action:
            store.close()
            forget(store.place)
            store.open()
            return partial(checked, read, store, chance.sample(range(slots), count))

        ways = {name: partial(prepare, stores[kind], read) for name, (kind, read) in WAYS.items()}
        mine, *others = in_turn(ways, repetitions).values()
        times = (f"{one.median / count * 1e6:,.1f}" for one in (mine, *others))
        yield [f"{count:,}", *times, *(Ratio(mine, other).describe() for other in others)]


def main() -> None:
    """Run the benchmark and print its table in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold", description=__doc__)
    parser.add_argument("--slots", type=int, default=10_000_000)
    parser.add_argument("--repetitions", type=int, default=9)
    given = parser.parse_args()
    print(machine("objectspace", "orjson", "rocksdict") + "\n")
    with folder() as place:
        stores: dict[type[Store], Store] = {}
        for kind in (Ours, Sqlite, Rocks):
            (place / kind.__name__).mkdir()
            stores[kind] = kind(place / kind.__name__)
            stores[kind].fill(given.slots)
            stores[kind].open()
        title = f"Random keys of {given.slots:,} stored slots, none of whose files is in memory"
        header = ("keys", *(f"us a key, {name}" for name in WAYS), *(f"ratio to {name}" for name in list(WAYS)[1:]))
        print(table(title, header, list(compared(stores, given.slots, given.repetitions))))
        for store in stores.values():
            store.close()


if __name__ == "__main__":
    main()
