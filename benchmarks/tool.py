"""What the tool costs: the time of ``checkpoint diff`` by the size of the state, and the peak memory of each command.

``python -m benchmarks.tool``. Two checkpoints differ in 100 slots. The rival is what one does without: both states are
read and compared. Memory is the largest resident set of a process that runs one command on a million slots.
"""

from __future__ import annotations

import os
import sys
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

COMMANDS = (
    "log",
    "ls",
    "diff",
    "verify",
    "show numbers",
    "blame numbers",
    "doctor",
    "report {}",
    "fork {}",
    "restore {}",
)
"""Those whose memory is measured; ``{}`` is a new file."""


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


def peak(command: str, path: Path, target: Path) -> tuple[float, float]:
    """Return the largest memory of a command in MiB, and its seconds."""
    name, *rest = command.replace("{}", str(target)).split()
    start = time.perf_counter()
    null = os.open(os.devnull, os.O_WRONLY)
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "checkpoint", name, str(path), *rest],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, null, 1)],
    )
    _, status, usage = os.wait4(pid, 0)
    os.close(null)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise AssertionError(f"{command} failed")
    return usage.ru_maxrss / 1024, time.perf_counter() - start


def main() -> None:
    """Print the tables."""
    load()
    times, peaks = [], []
    with TemporaryDirectory() as folder:
        for slots in SIZES:
            path = Path(folder) / f"{slots}.db"
            make(path, slots)
            times.append((f"{slots:,}", *(f"{milliseconds(work, path):.1f}" for work in (by_tool, by_reading))))
        for number, command in enumerate(COMMANDS):
            memory, seconds = peak(command, path, Path(folder) / f"new{number}.db")
            peaks.append((command.removesuffix(" {}"), f"{memory:.0f}", f"{seconds:.2f}"))
    print(machine("objectspace"))
    print(
        table(
            "Two checkpoints that differ in 100 slots", ("slots", "checkpoint diff, ms", "both states read, ms"), times
        )
    )
    print(table(f"Commands on {SIZES[-1]:,} slots", ("command", "peak, MiB", "seconds"), peaks))


if __name__ == "__main__":
    main()
