"""Settings of the whole process that some work wants otherwise for as long as it takes."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Generic, TypeVar
from weakref import ref

T = TypeVar("T")

Thresholds = tuple[int, int, int]
"""Of the three generations of the collector."""


class Setting(Generic[T]):
    """A setting that several threads may want: the first one sets it, and the last one puts it back.

    Args:
        read: returns what it is.
        write: sets it.
        value: what is wanted.
    """

    def __init__(self, read: Callable[[], T], write: Callable[[T], object], value: T) -> None:
        self._read, self._write, self._value = read, write, value
        self._before = read()
        self._lock, self._wanted = threading.Lock(), 0

    @contextmanager
    def wanted(self) -> Iterator[None]:
        """Have the setting as it is wanted."""
        with self._lock:
            if not self._wanted:
                self._before = self._read()
                self._write(self._value)
            self._wanted += 1
        try:
            yield
        finally:
            with self._lock:
                self._wanted -= 1
                if not self._wanted:
                    self._write(self._before)


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Let Python look for cycles more seldom while many rows are built, none of which is garbage.

    It would walk them and all others in memory again and again: a tenth to a half of the time of a checkpoint or of
    reading a table, and more the more there is in memory. A program that looks for none, or more seldom still, is left
    to it. Of threads that overlap the first one may put it back for all; where an interruption kept somebody from that,
    the next use does.
    """
    before = _before()
    if before is None:
        yield
        return
    use = _Use()
    try:
        _last.use, _last.before = ref(use), before
        gc.set_threshold(*_SELDOM)
        yield
    finally:
        if gc.get_threshold() == _SELDOM:  # Else the program has chosen meanwhile.
            gc.set_threshold(*before)
        _last.before = None


def _before() -> Thresholds | None:
    """Return the thresholds to put back, ``None`` where those that are stay."""
    found = gc.get_threshold()
    if found == _SELDOM:
        return _last.before if _last.use() is None else None
    return found if 0 < found[0] < _SELDOM[0] else None


class _Use:
    """Stands for a use that has raised the thresholds, and is gone with it whether it has put them back or not."""


class _Last:
    """The last use that has raised the thresholds, and what they were, until it has put them back."""

    def __init__(self) -> None:
        self.use: Callable[[], _Use | None] = lambda: None
        self.before: Thresholds | None = None


def switching_often() -> AbstractContextManager[None]:
    """Let a thread that waits for its turn have it soon, as one does that asks SQLite for little again and again."""
    return _SWITCH.wanted()


_SELDOM: Thresholds = (1_000_000, 20, 100)

_last = _Last()

_SWITCH = Setting(sys.getswitchinterval, sys.setswitchinterval, 0.0002)
