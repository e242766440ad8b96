"""Storage that fails: the n-th statement of the connections of all stores, once or from then on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

from checkpoint import CheckpointError
from checkpoint.session import Session

Mode = Literal["once", "from then on"]

ONCE: Mode = "once"
LASTING: Mode = "from then on"

FAILURES = (CheckpointError, sqlite3.Error)
"""What a failing storage raises."""


class Fault:
    """Which operation of the storage fails, and whether those after it do.

    Args:
        at: the number of the operation, counted from 1.
        mode: whether it fails alone, or all operations after it as well.
    """

    def __init__(self, at: int, mode: Mode) -> None:
        self.at, self.mode = at, mode
        self.seen, self.is_over = 0, False
        self.has_struck = False

    def strikes(self) -> bool:
        """Count an operation, and return whether it fails."""
        if self.is_over:
            return False
        self.seen += 1
        is_struck = self.seen == self.at or (self.mode == LASTING and self.seen > self.at)
        self.has_struck |= is_struck
        return is_struck

    def __str__(self) -> str:
        return f"the failure of storage operation {self.at}, {self.mode}"


class FaultyConnection(sqlite3.Connection):
    """A connection whose statements fail as :attr:`fault` says."""

    fault: ClassVar[Fault | None] = None

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        """Execute a statement, unless it fails."""
        return _unless_struck(super().execute, *arguments)

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        """Execute a statement many times, unless it fails."""
        return _unless_struck(super().executemany, *arguments)

    def executescript(self, *arguments: Any) -> sqlite3.Cursor:
        """Execute several statements, unless they fail."""
        return _unless_struck(super().executescript, *arguments)


@contextmanager
def failing(fault: Fault) -> Iterator[None]:
    """Make the connections that stores open meanwhile fail as a fault says."""
    before = Session.factory
    Session.factory, FaultyConnection.fault = FaultyConnection, fault
    try:
        yield
    finally:
        Session.factory, FaultyConnection.fault = before, None


def _unless_struck(call: Callable[..., sqlite3.Cursor], *arguments: Any) -> sqlite3.Cursor:
    fault = FaultyConnection.fault
    if fault is not None and fault.strikes():
        error = sqlite3.OperationalError(f"storage operation {fault.seen} fails: this is a test")
        # A full disk is a passing problem; one that fails may have written anything, and the store refuses to go on.
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR if fault.mode == LASTING else sqlite3.SQLITE_FULL
        raise error
    return call(*arguments)
