"""One thread that plays two: what another one would read at a step of the first, and what comes in its midst."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

TRACED = ("objectspace.hooks", "objectspace.objects", "objectspace.persisted", "objectspace.space")


class WouldWaitError(BaseException):
    """The other thread waits for the mutex here, and goes on when the first one has put it back."""


class Mutex:
    """Stands for the mutex of a space: the other thread does not get it while the first one has it."""

    def __init__(self) -> None:
        self.is_others_turn = False
        self._depths = [0, 0]

    @property
    def is_free(self) -> bool:
        """Whether the other thread would get it."""
        return not self._depths[not self.is_others_turn]

    def __enter__(self) -> None:
        if not self.is_free:
            raise WouldWaitError
        self._depths[self.is_others_turn] += 1

    def __exit__(self, *exception: object) -> None:
        self._depths[self.is_others_turn] -= 1


def at_each_step(work: Callable[[], object], look: Callable[[], object]) -> None:
    """Do some work, and call ``look`` before each instruction of the library that it comes to."""

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_globals.get("__name__", "").startswith(TRACED):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            look()
        return trace

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # In Python 3.12 the first trace of a process has opcodes only after this.
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)


def read_at_each_step(space: Any, work: Callable[[], object], read: Callable[[], object]) -> list[object]:
    """Return the different things that another thread reads while a first one does some work."""
    mutex = space.mutex = Mutex()
    found: list[object] = []

    def look() -> None:
        mutex.is_others_turn = True
        try:
            seen = read()
        except (RuntimeError, WouldWaitError):  # An iteration may end so.
            return
        finally:
            mutex.is_others_turn = False
        if seen not in found:
            found.append(seen)

    at_each_step(work, look)
    return found


def done_at_step(space: Any, number: int, work: Callable[[], object], read: Callable[[], object]) -> tuple[bool, Any]:
    """Read while another thread does some work after so many steps, or as soon as the mutex is free from then on.

    Returns:
        Whether it came to that, and what was read, ``None`` where the iteration was refused.
    """
    mutex, left, is_done = Mutex(), number, False
    space.mutex = mutex

    def look() -> None:
        nonlocal left, is_done
        left -= 1
        mutex.is_others_turn = True
        if left < 0 and not is_done and mutex.is_free:
            is_done = True
            work()
        mutex.is_others_turn = False

    found: list[object] = [None]

    def _read() -> None:
        with suppress(RuntimeError):
            found[0] = read()

    at_each_step(_read, look)
    return is_done, found[0]
