"""Which runs just add slots to those that are there, as where objects only grow: their rows replace no others.

What only grows need not be merged with all that was there before.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from checkpoint.lookup import BELOW_ALL, order_of
from checkpoint.run import is_owner
from checkpoint.session import Session
from checkpoint.tiers import FAN_IN, RunNumber


class Span(NamedTuple):
    """The least and the greatest slot of an object in one run, as :func:`checkpoint.lookup.order_of` says them.

    ``has_deletions`` tells whether any of its first or last rows deletes a slot, as where a queue has come and gone.
    """

    object: int
    low: Any
    high: Any
    has_deletions: bool


@dataclass
class _Stretch:
    """Neighbouring runs that were looked through: those that replace rows, and how far the slots of each object reach.

    Of ``is_unclear`` runs it cannot be told any more: all that follow count as such that replace rows.
    """

    runs: tuple[RunNumber, ...] = ()
    replacing: list[RunNumber] = field(default_factory=list)
    highest: dict[int, Any] = field(default_factory=dict)
    is_unclear: bool = False

    def take(self, run: RunNumber, spans: list[Span] | None) -> None:
        """Go on to the next run, with the spans of its objects; None where it has too many, or of another kind."""
        highest, is_first = self.highest, not self.runs
        self.runs = (*self.runs, run)
        self.is_unclear = self.is_unclear or spans is None
        if spans is None or self.is_unclear:
            self.replacing += [] if is_first else [run]
            return
        if not is_first and any(one.has_deletions or one.low <= highest.get(one.object, BELOW_ALL) for one in spans):
            self.replacing.append(run)
        highest.update({one.object: max(one.high, highest.get(one.object, one.high)) for one in spans})


class Growth:
    """What tells the runs of a store that may replace rows of older ones from those that do not.

    Args:
        session: the connection.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._spans: dict[RunNumber, list[Span] | None] = {}
        self._stretches: dict[tuple[RunNumber, bool], _Stretch] = {}

    def replacing(self, runs: Sequence[RunNumber]) -> list[RunNumber]:
        """Return those of some runs, oldest first, whose rows may replace rows of the ones before.

        The others have slots beyond all of those alone, as where objects just grow. A run with rows of many objects
        counts as one that may replace, and so do all after it; so does one with an object that was deleted or that
        owns others, whose slots can be out of reach though no row replaces them. Rows of slots that have come and gone
        replace nothing either, but are of no use.

        Time: O(runs that have come since it was asked of those before them), and some searches for each that is new.
        """
        asked = tuple(runs)
        place = asked[0] if asked else 0, len(asked) <= FAN_IN
        known = self._stretches.get(place, _Stretch())
        if asked[: len(known.runs)] != known.runs:
            known = _Stretch()
        for run in asked[len(known.runs) :]:
            known.take(run, None if known.is_unclear else self._spans_of(run))
        self._stretches[place] = known
        return list(known.replacing)

    def keep(self, runs: Container[RunNumber]) -> None:
        """Forget all other runs: another one may have their number one day."""
        self._spans = {run: spans for run, spans in self._spans.items() if run in runs}
        self._stretches.clear()

    def _spans_of(self, run: RunNumber) -> list[Span] | None:
        """Return between which slots a run has rows of each object, ``None`` where that does not tell enough."""
        if run not in self._spans:
            bounds = {"run": run, "most": _MOST_SPANS + 1}
            index, rows = (self._session.rows(statement, bounds) for statement in (_INDEX, _SPANS))
            is_plain = not any(row[2] is None or is_owner(row) for row in index)
            spans = [Span(object_id, order_of(low), order_of(high), bool(gone)) for object_id, low, high, gone in rows]
            self._spans[run] = spans if is_plain and max(len(spans), len(index)) <= _MOST_SPANS else None
        return self._spans[run]


_MOST_SPANS = 16
"""Of a run with more objects than that it is not found out whether it just adds slots."""

_INDEX = "SELECT object, name, kind, codec FROM state_index WHERE checkpoint = :run LIMIT :most"

_SPANS = """
    WITH RECURSIVE found(object) AS (
        SELECT min(object) FROM state_item WHERE checkpoint = :run
        UNION ALL
        SELECT (SELECT min(object) FROM state_item WHERE checkpoint = :run AND object > found.object) FROM found
        WHERE found.object IS NOT NULL
    )
    SELECT object,
        (SELECT slot FROM state_item AS item WHERE checkpoint = :run AND item.object = found.object
            ORDER BY slot LIMIT 1),
        (SELECT slot FROM state_item AS item WHERE checkpoint = :run AND item.object = found.object
            ORDER BY slot DESC LIMIT 1),
        (SELECT count(*) > count(value) FROM (SELECT value FROM state_item AS item
            WHERE checkpoint = :run AND item.object = found.object ORDER BY slot LIMIT 256))
        OR (SELECT count(*) > count(value) FROM (SELECT value FROM state_item AS item
            WHERE checkpoint = :run AND item.object = found.object ORDER BY slot DESC LIMIT 256))
    FROM found WHERE object IS NOT NULL LIMIT :most
"""
"""The objects of a run with what a span says of each: a few searches for each object, and some hundred rows."""
