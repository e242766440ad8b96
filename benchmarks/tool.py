"""What the tool costs: the time of ``checkpoint diff`` by the size of the state and of the change, and peak memory.

``python -m benchmarks.tool``. Two checkpoints differ in 100 slots; of a million slots also in more. The rival is what
one does without: both states are read and compared. Memory is the largest resident set of a process that runs one
command on a million slots.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from click.testing import CliRunner

from benchmarks.timing import machine, table
from checkpoint.tool.command import cli, load
from objectspace import PersistedObjectSpace

CHANGED = 100
SIZES = (10_000, 100_000, 1_000_000)
CHANGES = (CHANGED, 1_000, 10_000, 100_000)

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
        space.create_list("numbers").extend(range(slots))
        space.checkpoint()
    change(path, CHANGED)


def change(path: Path, count: int) -> None:
    """Change some slots, spread over all, as another checkpoint."""
    with PersistedObjectSpace.open(path) as space:
        numbers = space.get_list("numbers")
        for place in range(0, len(numbers), len(numbers) // count):
            numbers[place] = -count
        space.checkpoint()


def by_tool(path: Path) -> int:
    """Return how many slots the command says have changed in the newest checkpoint."""
    return CliRunner().invoke(cli, ["diff", str(path), "--json"]).output.count("\n")


def by_reading(path: Path) -> int:
    """Return how many slots differ between the states, which are both loaded."""
    with PersistedObjectSpace.open(path, read_only=True) as space:
        before, after = (list(space.at(epoch=epoch).get_list("numbers")) for epoch in (1, 2))
    return sum(old != new for old, new in zip(before, after, strict=True))


def milliseconds(work: Callable[[Path], int], paths: Sequence[Path], changed: int = CHANGED) -> list[float]:
    """Return the median time of five runs on each store, taken in turns, so that what disturbs disturbs all."""
    times: list[list[float]] = [[] for _ in paths]
    for _ in range(5):
        for path, spent in zip(paths, times, strict=True):
            start = time.perf_counter()
            found = work(path)
            spent.append(1000 * (time.perf_counter() - start))
            if found != changed:
                raise AssertionError(f"{work.__name__} found {found} changes: expected {changed}")
    return list(map(median, times))


MEASURED = """
import json, os, subprocess, sys, time
start = time.perf_counter()
with subprocess.Popen([sys.executable, "-m", "checkpoint", *sys.argv[1:]], stdout=subprocess.DEVNULL) as child:
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
print(json.dumps([child.returncode, usage.ru_maxrss / 1024, seconds]))
"""
"""Starts a command and waits for it. A program of its own, since a process begins with the size of its parent."""


def peak(command: str, path: Path, target: Path) -> tuple[float, float]:
    """Return the largest memory of a command in MiB, and its seconds."""
    name, *rest = command.replace("{}", str(target)).split()
    arguments = [sys.executable, "-c", MEASURED, name, str(path), *rest]
    done = subprocess.run(arguments, stdout=subprocess.PIPE, check=True)
    status, memory, seconds = json.loads(done.stdout)
    if status not in (0, 1):
        raise AssertionError(f"{command} failed")
    return memory, seconds


def main() -> None:
    """Print the tables."""
    load()
    peaks, by_change = [], []
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{slots}.db" for slots in SIZES]
        for path, slots in zip(paths, SIZES, strict=True):
            make(path, slots)
        found = zip(SIZES, milliseconds(by_tool, paths), milliseconds(by_reading, paths), strict=True)
        times = [(f"{slots:,}", f"{tool:.1f}", f"{reading:.1f}") for slots, tool, reading in found]
        for number, command in enumerate(COMMANDS):
            memory, seconds = peak(command, path, Path(folder) / f"new{number}.db")
            peaks.append((command.removesuffix(" {}"), f"{memory:.0f}", f"{seconds:.2f}"))
        for changed in CHANGES:
            if changed != CHANGED:
                change(path, changed)
            (spent,) = milliseconds(by_tool, [path], changed)
            by_change.append((f"{changed:,}", f"{spent:.1f}", f"{1000 * spent / changed:.1f}"))
    print(machine("objectspace"))
    print(
        table(
            "Two checkpoints that differ in 100 slots", ("slots", "checkpoint diff, ms", "both states read, ms"), times
        )
    )
    print(table(f"Of {SIZES[-1]:,} slots", ("changed", "checkpoint diff, ms", "us a change"), by_change))
    print(table(f"Commands on {SIZES[-1]:,} slots", ("command", "peak, MiB", "seconds"), peaks))


if __name__ == "__main__":
    main()
