"""Process-wide settings that some work needs to be different while it lasts."""

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
"""The thresholds of the three generations of the collector."""


class Setting(Generic[T]):
    """A setting that several threads may want changed: the first one sets it, and the last one restores it.

    Args:
        read: returns its current value.
        write: sets it.
        value: the wanted value.
    """

    def __init__(self, read: Callable[[], T], write: Callable[[T], object], value: T) -> None:
        self._read, self._write, self._value = read, write, value
        self._before = read()
        self._lock, self._wanted = threading.RLock(), 0

    @contextmanager
    def wanted(self) -> Iterator[None]:
        """Apply the wanted value."""
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
    """Make Python look for cycles less often while many rows are built, none of which is garbage.

    Otherwise it would walk them and all other objects in memory again and again, which takes a tenth to a half of the
    time of a checkpoint or of reading a table, and more the more there is in memory. A program that looks for no
    cycles, or even less often, is left alone. If threads overlap, the first one may restore the thresholds for all; if
    an interruption kept a thread from that, the next use does it.
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
        if gc.get_threshold() == _SELDOM:  # Otherwise the program has set its own meanwhile.
            gc.set_threshold(*before)
        _last.before = None


def _before() -> Thresholds | None:
    """Return the thresholds to restore, or ``None`` if the current ones stay."""
    found = gc.get_threshold()
    if found == _SELDOM:
        return _last.before if _last.use() is None else None
    return found if 0 < found[0] < _SELDOM[0] else None


class _Use:
    """Stands for a use that has raised the thresholds, and disappears with it, whether it has restored them or not."""


class _Last:
    """The last use that raised the thresholds, and what they were, until it has restored them."""

    def __init__(self) -> None:
        self.use: Callable[[], _Use | None] = lambda: None
        self.before: Thresholds | None = None


def switching_often() -> AbstractContextManager[None]:
    """Give a waiting thread its turn soon, for example one that asks SQLite for a little again and again."""
    return _SWITCH.wanted()


_SELDOM: Thresholds = (1_000_000, 20, 100)

_last = _Last()

_SWITCH = Setting(sys.getswitchinterval, sys.setswitchinterval, 0.0002)
