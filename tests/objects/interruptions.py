"""Ctrl-C at a line of one's choice."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

LIBRARY = ("objectspace", "checkpoint")


def interrupted(work: Callable[[], object], lines: int, modules: tuple[str, ...] = LIBRARY) -> bool:
    """Do some work with Ctrl-C after so many lines of the library, or of some modules; tell whether it came to that."""
    left, came, within = iter(range(lines)), False, tuple(f"{name}." for name in modules)

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if not f"{frame.f_globals.get('__name__', '')}.".startswith(within):
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
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return came  # Python drops what is raised while a generator is closed.
