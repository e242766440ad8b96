"""The slots of runs that are asked again and again, kept in memory: what a run does not have is not looked for in it.

Reading the slots of a run pays once as many slots were looked for in it as it has rows; then it costs each read at most
as much again. So a store whose slots are seldom read keeps nothing, and of one that is read often small runs cost no
more than a look into a set.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field

from checkpoint.run import Slot
from checkpoint.session import Session
from checkpoint.tiers import RunNumber

MOST_SLOTS = 262_144
"""How many slots are kept in memory, of all runs and objects together."""

STEP = 1_024
"""After so many slots of an object that were looked for it is seen to what has been paid for."""

_MOST_OBJECTS = 1_024

RowsOf = Callable[[RunNumber], float]
"""Returns how many rows a run has."""

Known = Mapping[RunNumber, frozenset[Slot]]
"""All slots of an object that a run has rows of, deletions included, by run."""

_NOTHING: Known = {}

_SLOTS = "SELECT slot FROM state_item WHERE checkpoint = ? AND object = ?"


@dataclass
class _Object:
    """What is known of one object.

    ``searches`` counts the slots that were looked for in all runs alike; ``since`` says for each run from which count
    on that is to be paid for, less where slots were looked for in it alone; ``unseen`` are those since the last look.
    """

    searches: int = 0
    seen_at: int = 0
    unseen: int = 0
    since: dict[RunNumber, int] = field(default_factory=dict)
    slots: dict[RunNumber, frozenset[Slot]] = field(default_factory=dict)


class KnownSlots:
    """The slots that some runs of a store have; a run that is complete never changes.

    Args:
        session: the connection.
        rows_of: tells how many rows a run has; without it nothing is kept.
    """

    def __init__(self, session: Session, rows_of: RowsOf | None = None) -> None:
        self._session, self._rows_of = session, rows_of
        self._objects: dict[int, _Object] = {}
        self._room = MOST_SLOTS

    def of(self, object_id: int) -> Known:
        """Return what is known of the runs of an object."""
        found = self._objects.get(object_id)
        return _NOTHING if found is None else found.slots

    def searched(self, object_id: int, slots: int, runs: Sequence[RunNumber]) -> Known:
        """Take note that slots were looked for in all of the runs of a state, and return what is known of these.

        Args:
            object_id: the object.
            slots: how many slots.
            runs: the runs, the newest first.

        Time: O(1), now and then O(runs), and O(rows) for a run whose slots have become worth knowing.
        """
        found = self._noted(object_id, slots)
        found.searches += slots
        if found.unseen >= STEP and self._rows_of is not None:
            self._learn(object_id, found, runs, self._rows_of)
        return found.slots

    def searched_in(self, object_id: int, slots: int, run: RunNumber) -> None:
        """Take note that slots were looked for in one run."""
        found = self._noted(object_id, slots)
        found.since[run] = found.since.get(run, found.seen_at) - slots

    def keep(self, runs: Container[RunNumber]) -> None:
        """Forget all other runs: another one may have their number one day."""
        for found in self._objects.values():
            for run in [run for run in found.since if run not in runs]:
                del found.since[run]
                self._room += len(found.slots.pop(run, ()))

    def clear(self) -> None:
        """Forget everything."""
        self._objects.clear()
        self._room = MOST_SLOTS

    def _noted(self, object_id: int, slots: int) -> _Object:
        found = self._objects.get(object_id)
        if found is None:
            if len(self._objects) >= _MOST_OBJECTS:
                self.clear()
            found = self._objects[object_id] = _Object()
        found.unseen += slots
        return found

    def _learn(self, object_id: int, found: _Object, runs: Sequence[RunNumber], rows_of: RowsOf) -> None:
        # What the oldest run has is hardly ever of use: there is none to go on to.
        for run in runs[:-1]:
            # A run that was not there last time has come since.
            paid = found.searches - found.since.setdefault(run, found.seen_at)
            if run not in found.slots and rows_of(run) <= min(paid, self._room):
                rows = self._session.peek_all(_SLOTS, (run, object_id))
                found.slots[run] = frozenset(slot for (slot,) in rows)
                self._room -= len(rows)
        found.seen_at, found.unseen = found.searches, 0
