"""For tests of your own operators: run them through every crash point, and hold them to a budget of dirty slots.

An operator is anything with ``open(space, name)`` that keeps its state in objects of the space. The tests give it
events: an operator with ``on_next`` takes each as a value; one with ``process`` and ``barrier`` takes each as a chunk,
or as a pair of a side and a chunk; a pipeline takes each as a batch, a mapping of sources to their rows; and an event
that is a function is called with the operator, whatever that is.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from objectspace.testing.faults import LASTING, ONCE, Fault, Mode
from objectspace.testing.runs import POINTS, SURVIVED, Disturbed, History, Plan, Undisturbed, check_budget, compare
from objectspace.testing.storage import FaultyRun
from objectspace.testing.subjects import maker_of

__all__ = ["POINTS", "SURVIVED", "TWICE", "crash_everywhere"]

_MEMORY = "/dev/shm"
"""Where files need no disk, which hundreds of small stores would wait for."""

TWICE = ("before the save", "after the save")
"""Where the recovered run is cut off once more."""


def crash_everywhere(
    subject: Any,
    events: Iterable[Any],
    *,
    events_per_epoch: int = 1,
    max_dirty_per_event: int | None = None,
    storage: bool = True,
    name: str = "operator",
) -> int:
    """Run an operator or a pipeline through every crash point, and compare each run with an undisturbed one.

    Each epoch is cut off before its save, after it, after a commit that failed, after the commit, and after the
    checkpoint. The operator is then opened again, given the events since the last checkpoint again, and cut off again.
    Each epoch also meets, without a restart, a commit that fails and one whose outcome is not known.

    In addition, from each checkpoint on, every operation of the storage fails in turn, from the recovery to the end of
    the next epoch: once, so that the space is rolled back and continues if that is possible, and from then on, so that
    the process ends and the next one recovers. Every time, all epochs must give the same output (for chunks, what they
    add up to), and the objects of the space must end with the same contents.

    Args:
        subject: a function that returns a new operator or pipeline; or an operator that was never opened, or a
            pipeline.
        events: the events.
        events_per_epoch: after how many events a checkpoint is taken.
        max_dirty_per_event: how many items an event may dirty, each event with a checkpoint of its own; no limit by
            default. What ``open`` creates does not count, nor do metadata rows such as lengths, nor an object that is
            created or deleted empty.
        storage: whether operations of the storage fail too.
        name: the name to open the operator under.

    Returns:
        how many disturbed runs there were.

    Raises:
        AssertionError: a run differs, or an event dirtied too much; the message says where and what.
        ValueError: an epoch has no event.
        TypeError: this is not an operator, or not a list of events that it takes.

    Time: O(epochs²) epochs, and with ``storage`` two more for each operation of the storage.

    >>> from objectspace.operators.events import Buffer
    >>> crash_everywhere(Buffer(count=2), [1, 2, 3], max_dirty_per_event=1, storage=False)
    27
    """
    events = _events(events)
    history = History(maker_of(subject), events, events_per_epoch, name)
    clean = Undisturbed(history, keeps_images=storage)
    if max_dirty_per_event is not None:
        each = History(history.make, events, 1, name)
        Undisturbed(each, lambda epoch, receipt: check_budget(epoch, receipt, max_dirty_per_event))
    plans = [
        Plan(epoch, point, times)
        for epoch in range(1, len(history.epochs) + 1)
        for point in (*POINTS, *SURVIVED)
        for times in (1, 2)
        if times == 1 or point in TWICE
    ]
    for plan in plans:
        compare(str(plan), clean, Disturbed(history, plan), clean.contents[-1])
    return len(plans) + (_storage_runs(history, clean) if storage else 0)


def _events(given: Any) -> list[Any]:
    """Return events as a list: they are given many times.

    Raises:
        TypeError: it is one batch, or nothing that holds several events.
    """
    if isinstance(given, Mapping | str) or not isinstance(given, Iterable):
        raise TypeError(f"events is {given!r:.80}: expected a list of events; one alone is a list of one")
    return list(given)


def _storage_runs(history: History, clean: Undisturbed) -> int:
    """Make every operation of the storage fail, and return how many runs that took."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None) as folder:
        paths = (Path(folder) / f"{number}.db" for number in itertools.count())
        return sum(
            _failures(history, clean, paths, done, mode)
            for done in range(-1, len(history.epochs))
            for mode in (ONCE, LASTING)
        )


def _failures(history: History, clean: Undisturbed, paths: Iterator[Path], done: int, mode: Mode) -> int:
    """Make every operation fail from the recovery of a checkpoint to the end of the next epoch; return how many."""
    where = f"after epoch {done}" if done >= 0 else "from the beginning"
    for place in itertools.count(1):
        fault = Fault(place, mode)
        run = FaultyRun(history, next(paths), clean.images[done + 1], done, fault)
        if not fault.has_struck:
            return place - 1
        compare(f"{where}, disturbed by {fault}", clean, run, clean.contents[run.last])
    raise AssertionError("the storage is used without end")
