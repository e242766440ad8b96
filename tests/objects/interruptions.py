"""Ctrl-C at a line of one's choice."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

LIBRARY = ("objectspace", "checkpoint")


def at_exit(frame: FrameType) -> bool:
    """Tell whether a ``with`` block is told there that it is left."""
    return frame.f_code.co_name == "__exit__"


def interrupted(
    work: Callable[[], object],
    lines: int,
    modules: tuple[str, ...] = LIBRARY,
    where: Callable[[FrameType], bool] | None = None,
    kept: list[BaseException] | None = None,
) -> bool:
    """Do some work with Ctrl-C after so many lines of the library; tell whether it came to that.

    Args:
        work: the work.
        lines: after how many lines.
        modules: the modules or packages whose lines count.
        where: tells in which functions, of whatever module, the lines count instead.
        kept: gets the interruption, which lives as long as it is in there, with all that was under way.
    """
    left, came, within = iter(range(lines)), False, tuple(f"{name}." for name in modules)

    def counts(frame: FrameType) -> bool:
        return f"{frame.f_globals.get('__name__', '')}.".startswith(within) if where is None else where(frame)

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if not counts(frame):
            return None
        nonlocal came
        if event == "line" and next(left, None) is None:
            sys.settrace(None)
            came = True
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt as error:
        if kept is not None:
            kept.append(error)
    finally:
        sys.settrace(before)
    return came  # Python drops what is raised while a generator is closed.
