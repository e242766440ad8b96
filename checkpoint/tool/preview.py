"""The state that a run would leave, with none of its rows stored: a dry run describes its changes by it."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import Any

from checkpoint.lookup import ReadRow
from checkpoint.reader import Reader, SlotSummary
from checkpoint.run import IndexRow, Run, Slot, slot_order
from checkpoint.session import Session


class Preview(Reader):
    """A state with a run on top: the objects that it would have, and their slots.

    Args:
        session: the connection to read through.
        base: the state.
        run: the run, which is in no store.
    """

    def __init__(self, session: Session, base: Reader, run: Run) -> None:
        super().__init__(session, base.runs)
        self._index = run.index
        self._metadata: dict[int, dict[str, str | None]] = {}
        for object_id, key, text in run.metadata:
            self._metadata.setdefault(object_id, {})[key] = text
        self._rows: dict[int, dict[Slot, ReadRow]] = {}
        for object_id, slot, value, rank in run.items:
            self._rows.setdefault(object_id, {})[slot] = slot, value, rank

    def index(self) -> list[IndexRow]:
        """Return the index row of every object that would exist, in order of their ids."""
        rows = {row[0]: row for row in (*super().index(), *self._index)}
        return [rows[object_id] for object_id in sorted(rows) if rows[object_id][2] is not None]

    def metadata(self, object_id: int) -> dict[str, str]:
        """Return the metadata that one object would have: JSON text by key."""
        found = {**super().metadata(object_id), **self._metadata.get(object_id, {})}
        return {key: text for key, text in found.items() if text is not None}

    def count(self, object_id: int) -> int:
        """Return the number of slots that an object would have stored. Time: O(n)."""
        return sum(1 for _ in self.items(object_id))

    def summary(self, object_id: int) -> SlotSummary:
        """Return how many slots an object would have, and the least and the greatest of them. Time: O(n)."""
        slots = [item.slot for item in self.items(object_id)]
        others = sum(type(slot) is not int for slot in slots)
        return SlotSummary(len(slots), others, *((slots[0], slots[-1]) if slots else (None, None)))

    def last_rank(self, object_id: int) -> int | None:
        """Return the highest rank that a slot of an object would have, None if none would. Time: O(n)."""
        return max((item.rank for item in self.items(object_id) if item.rank is not None), default=None)

    def rows(
        self,
        object_id: int,
        lower: Slot | None = None,
        upper: Slot | None = None,
        *,
        reverse: bool = False,
        page_rows: int | None = None,
    ) -> Iterator[ReadRow]:
        """Yield the newest row that each slot would have, as :meth:`Reader.rows` does."""
        mine = self._rows.get(object_id, {})
        stored = super().rows(object_id, lower, upper, reverse=reverse, page_rows=page_rows)
        kept = (row for row in stored if row[0] not in mine)
        added = [row for row in mine.values() if _is_between(row[0], lower, upper)]
        yield from merge(kept, sorted(added, key=_order, reverse=reverse), key=_order, reverse=reverse)


def _order(row: ReadRow) -> tuple[int, Any]:
    return slot_order(row[0])


def _is_between(slot: Slot, lower: Slot | None, upper: Slot | None) -> bool:
    place = slot_order(slot)
    return (lower is None or slot_order(lower) <= place) and (upper is None or place <= slot_order(upper))
