"""How long single checkpoints take while a large store merges its runs in the background."""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.timing import machine, table
from objectspace import PersistedObjectSpace

VALUE = '{{"price": {}, "volume": {}}}'


def churn(slots: int, dirty: int, checkpoints: int) -> list[float]:
    """Change random slots of a large dictionary again and again, and return the seconds of each checkpoint."""
    chance, seconds = random.Random(1), []
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=".") as place:
        space = PersistedObjectSpace.open(Path(place) / "state.db", cache_slots=2 * slots)
        target = space.create_dictionary("target")
        for start in range(0, slots, 100_000):
            target.update({key: VALUE.format(key, key) for key in range(start, min(start + 100_000, slots))})
            space.checkpoint()
        for _ in range(checkpoints):
            for key in chance.sample(range(slots), dirty):
                target[key] = VALUE.format(chance.getrandbits(30), key)
            started = time.perf_counter()
            space.checkpoint()
            seconds.append(time.perf_counter() - started)
        print(f"live runs at the end: {len(space.store.reader().runs)}\n")
        space.close()
    return seconds


def main() -> None:
    """Run the benchmark and print median, 99th percentile, maximum and their ratio."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stalls", description=__doc__)
    parser.add_argument("--slots", type=int, default=1_000_000)
    parser.add_argument("--dirty", type=int, default=2_000)
    parser.add_argument("--checkpoints", type=int, default=600)
    given = parser.parse_args()
    print(machine("objectspace", "orjson"))
    seconds = sorted(churn(given.slots, given.dirty, given.checkpoints))
    median, late = statistics.median(seconds), seconds[len(seconds) * 99 // 100]
    title = f"{given.checkpoints} checkpoints of {given.dirty:,} random dirty slots among {given.slots:,}"
    figures = [f"{value * 1e3:.1f} ms" for value in (median, late, seconds[-1])]
    ratios = [f"{value / median:.2f}" for value in (late, seconds[-1])]
    head = ("", "median", "99th percentile", "longest", "99th percentile / median", "longest / median")
    print(table(title, head, [["checkpoint()", *figures, *ratios]]))


if __name__ == "__main__":
    main()
