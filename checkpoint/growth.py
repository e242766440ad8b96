"""How much runs replace, and how much they only add to what is there, as when objects only grow.

What only grows need not be merged with everything that was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from checkpoint.run import BELOW_ALL, is_owner, slot_order
from checkpoint.session import Session
from checkpoint.spans import MOST_OBJECTS, Span, search, stored
from checkpoint.tiers import FAN_IN, FEW_OF, RunNumber

RowsOfObjects = Callable[[RunNumber, Iterable[int] | None], int]
"""Counts the rows that a run has of some objects, or of all."""


@dataclass
class _Stretch:
    """Neighbouring runs already examined: how many rows may replace others, and how far the slots of objects reach.

    For ``is_unclear`` runs it can no longer be told: all rows that follow count as replacing others.
    """

    runs: tuple[RunNumber, ...] = ()
    replaced: int = 0
    highest: dict[int, Any] = field(default_factory=dict)
    is_unclear: bool = False

    def take(self, run: RunNumber, spans: list[Span] | None, rows_of: RowsOfObjects) -> None:
        """Go on to the next run, with the spans of its objects; None if it has too many, or objects of another kind."""
        highest, is_first = self.highest, not self.runs
        self.runs = (*self.runs, run)
        self.is_unclear = self.is_unclear or spans is None
        if spans is None or self.is_unclear:
            self.replaced += 0 if is_first else rows_of(run, None)
            return
        met = [
            one.object
            for one in spans
            if one.has_deletions or slot_order(one.low) <= highest.get(one.object, BELOW_ALL)
        ]
        if met and not is_first:
            self.replaced += rows_of(run, met)
        highest.update({one.object: max(slot_order(one.high), highest.get(one.object, BELOW_ALL)) for one in spans})


class Growth:
    """Tells how many rows of the runs of a store may replace rows of older ones.

    Args:
        session: the connection.
        rows_of: returns how many item rows a run has.
    """

    def __init__(self, session: Session, rows_of: Callable[[RunNumber], int]) -> None:
        self._session, self._rows_of = session, rows_of
        self._spans: dict[RunNumber, list[Span] | None] = {}
        self._stretches: dict[tuple[RunNumber, bool], _Stretch] = {}

    def replaced(self, runs: Sequence[RunNumber]) -> int:
        """Return how many rows of some runs, given oldest first, may replace rows of earlier ones.

        The others belong to objects to which a run adds slots beyond all that were there, as when objects only grow. If
        more than a few rows of a run may replace others, all of its rows count. A run with rows of many objects counts
        as one that replaces others, and so do all after it; so does a run with an object that was deleted or that owns
        others, whose slots can be out of reach although no row replaces them. Rows of slots that were added and then
        deleted replace nothing either, but are useless.

        Time: O(runs added since the last call for those before them); for each new one some searches, and one row in
        some hundred.
        """
        asked = tuple(runs)
        place = asked[0] if asked else 0, len(asked) <= FAN_IN
        known = self._stretches.get(place, _Stretch())
        if asked[: len(known.runs)] != known.runs:
            known = _Stretch()
        for run in asked[len(known.runs) :]:
            known.take(run, None if known.is_unclear else self._spans_of(run), self._rows_or_all_if_many)
        self._stretches[place] = known
        return known.replaced

    def keep(self, runs: Container[RunNumber]) -> None:
        """Forget all other runs: their numbers may be reused one day."""
        self._spans = {run: spans for run, spans in self._spans.items() if run in runs}
        self._stretches.clear()

    def _rows_or_all_if_many(self, run: RunNumber, objects: Iterable[int] | None) -> int:
        """Return how many rows a run has of some objects if these are few, otherwise how many it has in all."""
        rows = self._rows_of(run)
        few, found = rows // FEW_OF, 0
        for object_id in objects or ():
            bounds = {"run": run, "object": object_id, "most": few + 1 - found}
            found += self._session.rows(_COUNT, bounds)[0][0] if few else 1
            if found > few:
                return rows
        return rows if objects is None else found

    def _spans_of(self, run: RunNumber) -> list[Span] | None:
        """Return the slot range in which a run has rows of each object, or ``None`` if that does not tell enough."""
        if run not in self._spans:
            index = self._session.rows(_INDEX, {"run": run, "most": MOST_OBJECTS + 1})
            is_plain = len(index) <= MOST_OBJECTS and not any(row[2] is None or is_owner(row) for row in index)
            self._spans[run] = self._found_in(run) if is_plain else None
        return self._spans[run]

    def _found_in(self, run: RunNumber) -> list[Span] | None:
        return stored(self._session, [run]).get(run) or search(self._session.rows, run)


_COUNT = "SELECT count(*) FROM (SELECT 1 FROM state_item WHERE checkpoint = :run AND object = :object LIMIT :most)"

_INDEX = "SELECT object, name, kind, codec FROM state_index WHERE checkpoint = :run LIMIT :most"
