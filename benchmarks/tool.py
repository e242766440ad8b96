"""The time of ``checkpoint diff`` over two checkpoints that differ in 100 slots, by the size of the state.

``python -m benchmarks.tool``. The rival is what one does without: both states are read and compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from click.testing import CliRunner

from benchmarks.timing import machine, table
from checkpoint.tool.command import cli, load
from objectspace import PersistedObjectSpace

CHANGED = 100
SIZES = (10_000, 100_000, 1_000_000)


def make(path: Path, slots: int) -> None:
    """Write a store of two checkpoints that differ in 100 slots."""
    with PersistedObjectSpace.open(path) as space:
        numbers = space.create_list("numbers")
        numbers.extend(range(slots))
        space.checkpoint()
        for place in range(0, slots, slots // CHANGED):
            numbers[place] = -1
        space.checkpoint()


def by_tool(path: Path) -> int:
    """Return how many slots the command says have changed."""
    return CliRunner().invoke(cli, ["diff", str(path), "--json"]).output.count("\n")


def by_reading(path: Path) -> int:
    """Return how many slots differ between the states, which are both loaded."""
    with PersistedObjectSpace.open(path, read_only=True) as space:
        before, after = (list(space.at(epoch=epoch).get_list("numbers")) for epoch in (1, 2))
    return sum(old != new for old, new in zip(before, after, strict=True))


def milliseconds(work: Callable[[Path], int], path: Path) -> float:
    """Return the median time of five runs."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        found = work(path)
        times.append(1000 * (time.perf_counter() - start))
        if found != CHANGED:
            raise AssertionError(f"{work.__name__} found {found} changes: expected {CHANGED}")
    return median(times)


def main() -> None:
    """Print the table."""
    load()
    rows = []
    with TemporaryDirectory() as folder:
        for slots in SIZES:
            path = Path(folder) / f"{slots}.db"
            make(path, slots)
            rows.append((f"{slots:,}", *(f"{milliseconds(work, path):.1f}" for work in (by_tool, by_reading))))
    print(machine("objectspace"))
    print(
        table(
            "Two checkpoints that differ in 100 slots", ("slots", "checkpoint diff, ms", "both states read, ms"), rows
        )
    )


if __name__ == "__main__":
    main()
