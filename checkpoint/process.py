"""Settings of the whole process that some work wants otherwise for as long as it takes."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


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
    to it. Of threads that overlap the first one may put it back for all: nothing is kept that an interruption leaves
    wrong.
    """
    before = gc.get_threshold()
    if not 0 < before[0] < _SELDOM[0]:
        yield
        return
    try:
        gc.set_threshold(*_SELDOM)
        yield
    finally:
        if gc.get_threshold() == _SELDOM:  # Else the program has chosen meanwhile.
            gc.set_threshold(*before)


def switching_often() -> AbstractContextManager[None]:
    """Let a thread that waits for its turn have it soon, as one does that asks SQLite for little again and again."""
    return _SWITCH.wanted()


_SELDOM = (1_000_000, 20, 100)

_SWITCH = Setting(sys.getswitchinterval, sys.setswitchinterval, 0.0002)
