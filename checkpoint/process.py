"""Settings of the whole process that some work wants otherwise for as long as it takes."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Generic, TypeVar

T = TypeVar("T")


class Setting(ContextDecorator, Generic[T]):
    """A setting that several threads may want: the first one sets it, and the last one puts it back.

    It is a context, and makes a function one; one instance serves all.

    Args:
        read: returns what it is.
        write: sets it.
        wanted: returns what is wanted in place of what it is.
    """

    def __init__(self, read: Callable[[], T], write: Callable[[T], object], wanted: Callable[[T], T]) -> None:
        self._read, self._write, self._wanted = read, write, wanted
        self._before = read()
        # An interruption may come where a thread is about to let go of it: it must not wait for itself then.
        self._lock, self._users = threading.RLock(), 0

    def __enter__(self) -> None:
        """Have the setting as it is wanted."""
        with self._lock:
            if not self._users:
                self._before = self._read()
                self._write(self._wanted(self._before))
            self._users += 1

    def __exit__(self, *_: object) -> None:
        """Put it back if nobody else wants it."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._write(self._before)


_Thresholds = tuple[int, int, int]

_SELDOM: _Thresholds = (1_000_000, 20, 100)


def _seldom(before: _Thresholds) -> _Thresholds:
    return _SELDOM if 0 < before[0] < _SELDOM[0] else before


collecting_seldom = Setting(gc.get_threshold, lambda thresholds: gc.set_threshold(*thresholds), _seldom)
"""Lets Python look for cycles more seldom while many rows are built, none of which is garbage.

It would walk them and all others in memory again and again: a tenth to a half of the time of a checkpoint or of reading
a table, and more the more there is in memory. A program that looks for none, or more seldom still, is left to it.
"""

switching_often = Setting(sys.getswitchinterval, sys.setswitchinterval, lambda _: 0.0002)
"""Lets a thread that waits for its turn have it soon, as one does that asks SQLite for little again and again."""
