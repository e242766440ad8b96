"""Timing in turn: A B A B ..., so that a machine that slows down slows both."""

from __future__ import annotations

import gc
import platform
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

Action = Callable[[], object]


@dataclass(frozen=True)
class Measured:
    """The seconds of each repetition of one action."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median, in seconds."""
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Ratio:
    """How much longer one action took than another, repetition by repetition."""

    mine: Measured
    other: Measured

    @property
    def ratios(self) -> list[float]:
        """The ratio of each pair of repetitions."""
        return [mine / other for mine, other in zip(self.mine.seconds, self.other.seconds, strict=True)]

    @property
    def median(self) -> float:
        """The median of the ratios."""
        return statistics.median(self.ratios)

    @property
    def total(self) -> float:
        """The ratio of all repetitions together: what only some of them pay for counts."""
        return sum(self.mine.seconds) / sum(self.other.seconds)

    def describe(self) -> str:
        """Return the median with the least and the greatest ratio."""
        return f"{self.median:.2f} ({min(self.ratios):.2f}-{max(self.ratios):.2f})"


def in_turn(actions: Mapping[str, Callable[[], Action]], repetitions: int) -> dict[str, Measured]:
    """Time actions in turn.

    Args:
        actions: for each name what prepares a repetition and returns the action to time.
        repetitions: how many are counted; one more warms up.
    """
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for repetition in range(repetitions + 1):
        for name, prepare in actions.items():
            action = prepare()
            gc.collect()
            started = time.perf_counter()
            action()
            elapsed = time.perf_counter() - started
            if repetition:
                seconds[name].append(elapsed)
    return {name: Measured(name, tuple(values)) for name, values in seconds.items()}


def compare(mine: Callable[[], Action], other: Callable[[], Action], repetitions: int = 7) -> Ratio:
    """Time two actions in turn and return the ratio of the first to the second."""
    measured = in_turn({"mine": mine, "other": other}, repetitions)
    return Ratio(measured["mine"], measured["other"])


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a Markdown table under a heading."""
    lines = [f"### {title}", "", _line(header), "|" + " --- |" * len(header)]
    return "\n".join(lines + [_line(row) for row in rows]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("\\|", "|").replace("|", "\\|") for cell in cells) + " |"


def machine(*packages: str) -> str:
    """Return what was measured with, in one line."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in packages)
    python = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    return f"{platform.system()} {platform.machine()}, {python}, {versions}"


@contextmanager
def folder() -> Iterator[Path]:
    """Give a folder for the stores, on the disk of the current folder, and remove it at the end."""
    made = Path(tempfile.mkdtemp(prefix=".bench-", dir="."))
    try:
        yield made
    finally:
        shutil.rmtree(made)
