"""A tensor beside a mapped file and an array that is saved whole: one element, a row, scattered elements, all.

A mapped file is quick and keeps no state whole: what a crash leaves of it, nobody knows. An array that is saved whole,
beside the old one, is safe and costs its size each time: ``python -m benchmarks.tensors``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.timing import Action, Measured, Ratio, folder, in_turn, machine, table
from objectspace import PersistedObjectSpace

SCATTERED = 100
"""How many elements are taken where they are scattered."""

Array = Any
"""A tensor, a mapped array or one in memory: what is timed is the same code."""


class Mapped:
    """An array in a mapped file."""

    def __init__(self, path: Path) -> None:
        self.array: Array = np.lib.format.open_memmap(path, mode="r+")

    def commit(self) -> None:
        """Have the file system write what has changed."""
        self.array.flush()


class Whole:
    """An array in memory, which is saved whole and put in the place of the old one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.array: Array = np.load(path)

    def commit(self) -> None:
        """Write the array, wait for the disk, and give it its name."""
        new = self._path.with_suffix(".new")
        with new.open("wb") as file:
            np.save(file, self.array)
            file.flush()
            os.fsync(file.fileno())
        new.rename(self._path)


class Ours:
    """A tensor in a space."""

    def __init__(self, path: Path) -> None:
        self._space = PersistedObjectSpace.open(path)
        self.array: Array = self._space.get_tensor("t")

    def commit(self) -> None:
        """Take a checkpoint."""
        self._space.checkpoint()


class Step(NamedTuple):
    """What is timed, of an array that was just opened."""

    name: str
    work: Callable[[Array, int], object]
    is_durable: bool = False


def steps_of(side: int) -> list[Step]:
    """Return what is timed, of arrays with so many rows and columns."""
    rng = np.random.default_rng(1)
    places = rng.integers(0, side, (2, SCATTERED))

    def scatter(array: Array, value: int) -> None:
        array[places[0], places[1]] = value

    return [
        Step("one element read", lambda array, _: float(array[side // 2, 3])),
        Step("a row read", lambda array, _: float(np.sum(array[side // 2]))),
        Step(f"{SCATTERED} scattered elements read", lambda array, _: float(np.sum(array[places[0], places[1]]))),
        Step("all read", lambda array, _: float(np.sum(array[...]))),
        Step("one element changed, durable", lambda array, value: array.__setitem__((side // 2, 3), value), True),
        Step("a row changed, durable", lambda array, value: array.__setitem__(side // 2, value), True),
        Step(f"{SCATTERED} scattered elements changed, durable", scatter, True),
        Step("all changed, durable", lambda array, value: array.__setitem__(..., value), True),
    ]


def made(place: Path, side: int) -> dict[str, Callable[[], Any]]:
    """Write the three arrays, and return what opens each."""
    array = np.random.default_rng(0).random((side, side))
    for name in ("mapped", "whole"):
        np.save(place / f"{name}.npy", array)
    with PersistedObjectSpace.open(place / "ours.db") as space:
        space.create_tensor("t", (side, side))[...] = array
        space.checkpoint()
    return {
        "objectspace": partial(Ours, place / "ours.db"),
        "mapped file": partial(Mapped, place / "mapped.npy"),
        "saved whole": partial(Whole, place / "whole.npy"),
    }


def compared(ways: dict[str, Callable[[], Any]], step: Step, repetitions: int) -> dict[str, Measured]:
    """Time one step on an array that was just opened; it is closed before the next one."""
    found: dict[str, list[object]] = {name: [] for name in ways}
    opened: dict[str, Any] = {}

    def prepare(name: str) -> Action:
        opened.clear()
        way = opened[name] = ways[name]()
        value = len(found[name])

        def act() -> None:
            found[name].append(step.work(way.array, value))
            if step.is_durable:
                way.commit()

        return act

    measured = in_turn({name: partial(prepare, name) for name in ways}, repetitions)
    if len({repr(answers) for answers in found.values()}) > 1:
        raise AssertionError(f"{step.name}: the arrays differ: {found}")
    return measured


def row(step: Step, measured: dict[str, Measured]) -> list[str]:
    """Return a row of the table: the milliseconds of each, and how many times as long ours takes."""
    ours, *others = measured.values()
    times = [f"{one.median * 1e3:,.2f} ms" for one in measured.values()]
    return [step.name, *times, *(Ratio(ours, other).describe() for other in others)]


def main() -> None:
    """Run the benchmark and print its table in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tensors", description=__doc__)
    parser.add_argument("--side", type=int, default=2_000)
    parser.add_argument("--repetitions", type=int, default=9)
    given = parser.parse_args()
    print(machine("objectspace", "numpy") + "\n")
    with folder() as place:
        ways = made(place, given.side)
        rows = [row(step, compared(ways, step, given.repetitions)) for step in steps_of(given.side)]
    size = given.side**2 * 8 / 2**20
    header = ("just opened", *ways, *(f"ratio to {name}" for name in list(ways)[1:]))
    print(table(f"{given.side:,} times {given.side:,} numbers of 64 bits, {size:,.0f} MiB", header, rows))


if __name__ == "__main__":
    main()
