"""A save on its way to the store: what it has collected is neither dirty any more nor known to be durable."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from checkpoint import Writer, WriterState
from objectspace.objects.base import PersistedObject
from objectspace.objects.variants import BY_NAME
from objectspace.space import Entry


class Flight:
    """One save on its way to the store.

    Args:
        writer: the writer that it has filled.
        objects: those that it has saved.
        index: the entries of the index that it has saved, by object; None where the object is gone.
        started: when it began, of the clock ``time.perf_counter``.
    """

    def __init__(
        self,
        writer: Writer,
        objects: list[PersistedObject],
        index: dict[int, Entry | None],
        started: float,
    ) -> None:
        self.objects, self.index, self.started = objects, index, started
        self.writer, self.task = writer, current_task()

    def is_pending(self) -> bool:
        """Return whether the writer may still commit."""
        return self.writer.state is WriterState.OPEN

    def is_abandoned(self) -> bool:
        """Return whether nobody is left waiting for the commit: the caller has dropped it, or the writer."""
        writer = self.writer
        return self.is_pending() and (sys.getrefcount(writer) <= BY_NAME + 1 or writer.is_let_go())


def current_task() -> asyncio.Task[Any] | None:
    """Return the task of asyncio that this runs in, if it does in one."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
