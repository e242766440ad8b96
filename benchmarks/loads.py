"""Much that is loaded at once, and small checkpoints after it, beside a SQLite table and RocksDB.

What a load leaves to be merged is paid by the checkpoints that follow it: ``python -m benchmarks.loads``.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from benchmarks.scenarios.stores import Ours, Rocks, Sqlite, Store, batches, changes
from benchmarks.timing import Action, Ratio, folder, in_turn, machine, table


class Counting(Ours):
    """The same with a counter beside what grows, as most programs have one."""

    def open(self) -> None:
        super().open()
        self.count = self.space.get_or_create_value("count", 0)

    def change(self, entries: Mapping[int, str]) -> None:
        self.count.value += len(entries)
        super().change(entries)


KINDS: dict[str, type[Store]] = {
    "objectspace": Ours,
    "with a counter": Counting,
    "SQLite in place": Sqlite,
    "rocksdict": Rocks,
}

STEPS = (("random", 1), ("random", 100), ("random", 1_000), ("clustered", 1_000), ("random", 10_000))
"""What a checkpoint changes."""


def loaded(stores: Mapping[str, Store], slots: int) -> Iterator[list[str]]:
    """Load all stores in turn, a part at a time, and yield what each took for a slot, and its bytes on the disk."""
    seconds = dict.fromkeys(stores, 0.0)
    for entries in batches(slots):
        for name, store in stores.items():
            started = time.perf_counter()
            store.change(entries)
            seconds[name] += time.perf_counter() - started
    for name, store in stores.items():
        store.close()
        size = sum(file.stat().st_size for file in store.place.rglob("*") if file.is_file())
        store.open()
        yield [name, f"{seconds[name] / slots * 1e6:.2f}", f"{size / slots:.0f}"]


def changed(stores: Mapping[str, Store], slots: int, repetitions: int) -> Iterator[list[str]]:
    """Yield for each step what a slot takes in each store, and how many times as long ours takes as each other."""
    chance = random.Random(1)
    for kind, count in STEPS:

        def prepare(store: Store, kind: str = kind, count: int = count) -> Action:
            return partial(store.change, changes(kind, count, slots, chance))

        measured = in_turn({name: partial(prepare, store) for name, store in stores.items()}, repetitions)
        mine, *others = measured.values()
        times = (f"{one.median / count * 1e6:,.1f}" for one in measured.values())
        yield [f"{count:,} {kind}", *times, *(Ratio(mine, other).describe() for other in others)]


def opened(place: Path) -> dict[str, Store]:
    """Return the stores, empty, each in a folder of its own."""
    stores = {}
    for number, (name, kind) in enumerate(KINDS.items()):
        (place / str(number)).mkdir()
        stores[name] = kind(place / str(number))
        stores[name].open()
    return stores


def main() -> None:
    """Run the benchmark and print its tables in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loads", description=__doc__)
    parser.add_argument("--slots", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--repetitions", type=int, default=21)
    given = parser.parse_args()
    print(machine("objectspace", "orjson", "rocksdict") + "\n")
    for slots in given.slots:
        with folder() as place:
            stores = opened(place)
            title = f"{slots:,} slots, loaded 100,000 a checkpoint"
            print(table(title, ("", "us a slot", "bytes a slot on disk"), list(loaded(stores, slots))))
            ratios = (f"ratio to {name}" for name in list(KINDS)[1:])
            header = ("us a slot, then", *KINDS, *ratios)
            print(table("Checkpoints after it", header, list(changed(stores, slots, given.repetitions))), flush=True)
            for store in stores.values():
                store.close()


if __name__ == "__main__":
    main()
