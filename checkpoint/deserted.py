"""How many rows deleted objects have left: nobody can reach them, and they stay in the file until all is merged."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import orjson

from checkpoint.run import IndexRow
from checkpoint.session import Session
from checkpoint.tiers import RunNumber

MOST_OBJECTS = 1_000
"""For how many deleted objects of a run the rows are counted: a checkpoint that deletes more must not wait for it."""


class Deserted:
    """Tells how many rows of the runs of a store belong to deleted objects.

    Args:
        session: the connection.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._deleted: dict[RunNumber, list[int]] = {}
        self._before: tuple[RunNumber, ...] = ()
        self._rows: dict[RunNumber, int] = {}
        self._last_object = 0

    def rows(self, runs: Sequence[RunNumber]) -> int:
        """Return how many rows of deleted objects are in those of some runs, oldest first, that precede any deletion.

        Everything written after a deletion already counts among the rows that may replace others.

        Time: O(runs), a search for each new one, and O(runs · log n) for each earlier object that it deletes.
        """
        for run in runs:
            if run not in self._deleted:
                self._deleted[run] = [row[0] for row in self._session.rows(_DELETED, (run, MOST_OBJECTS))]
        if not any(self._deleted.values()):
            return 0
        first = next((place for place, run in enumerate(runs) if self._deleted[run]), 0)
        before = tuple(runs[:first])
        if before != self._before:
            self._before, self._rows, self._last_object = before, {}, self._greatest_in(before)
        for run in runs[first:]:
            if run not in self._rows:
                known = [one for one in self._deleted[run] if one <= self._last_object]
                self._rows[run] = self._left_by(known) if known else 0
        return sum(map(self._rows.__getitem__, runs[first:]))

    def note(self, run: RunNumber, index: Sequence[IndexRow]) -> None:
        """Note which objects a newly written run deletes, so that it need not be searched for them."""
        self._deleted[run] = [row[0] for row in index if row[2] is None][:MOST_OBJECTS]
        self._rows.pop(run, None)

    def keep(self, runs: Container[RunNumber]) -> None:
        """Forget all other runs: their numbers may be reused one day."""
        self._deleted = {run: deleted for run, deleted in self._deleted.items() if run in runs}
        self._before, self._rows = (), {}

    def _greatest_in(self, runs: Sequence[RunNumber]) -> int:
        """Return the greatest id of an object in some runs: later ones have no rows there."""
        return max((self._session.rows(_GREATEST, (run,))[0][0] or 0 for run in runs), default=0)

    def _left_by(self, objects: Sequence[int]) -> int:
        """Return how many slots some objects had in the earlier runs, according to the lengths stored there."""
        runs, wanted = ("(" + ", ".join(map(str, many)) + ")" for many in (self._before, objects))
        found = self._session.rows(_LENGTHS.format(runs=runs, objects=wanted), ())
        return sum(_signed(key, text) for key, text, _ in found)


def _signed(key: str, text: Any) -> int:
    """Return what a metadata entry adds to the number of slots: for a queue the head is subtracted."""
    try:
        value = orjson.loads(text)
        number = int(value[0] if isinstance(value, list) else value)  # The next rank may stand beside a length.
    except (TypeError, ValueError, LookupError):
        return 0  # It is damaged, which others find and report.
    return -number if key == "head" else number


_DELETED = "SELECT object FROM state_index WHERE checkpoint = ? AND kind IS NULL LIMIT ?"

_GREATEST = "SELECT max(object) FROM state_index WHERE checkpoint = ?"

_LENGTHS = """
    SELECT key, value, max(checkpoint) FROM state_metadata
    WHERE checkpoint IN {runs} AND object IN {objects} AND key IN ('length', 'count', 'head', 'tail')
    AND value IS NOT NULL GROUP BY object, key
"""
