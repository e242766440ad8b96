"""The rows of a table as slots of a sorted dictionary: encoded keys and the texts of rows, stored as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from checkpoint.run import Payload, Slot
from objectspace import ObjectNotFoundError, ObjectSpace


class RowStore:
    """What is sealed of a table.

    Args:
        space: the space of the table.
        name: the name of the table.

    ``table`` is what the table is called, which its errors name.
    """

    def __init__(self, space: ObjectSpace, name: str) -> None:
        self.table = name
        self._rows: Any = space.get_sorted_dictionary(name)

    def get(self, key: bytes) -> str | None:
        """Return the text of a row, ``None`` where there is none. Time: O(log n)."""
        try:
            found: str | None = self._rows.get(key)
        except ObjectNotFoundError:
            raise self._gone() from None
        return found

    def get_all(self, keys: Sequence[bytes]) -> list[str | None]:
        """Return the text of each row, ``None`` where there is none. Time: O(log n) a row."""
        try:
            found: list[str | None] = self._rows.get_many(keys)
        except ObjectNotFoundError:
            raise self._gone() from None
        return found

    def put_all(self, rows: Mapping[bytes, str]) -> None:
        """Store rows. Time: O(log n) a row. Dirties: one item a row; for a new key also the length."""
        self._rows.update(rows)

    def remove_all(self, keys: Sequence[bytes]) -> None:
        """Remove rows where they are. Time: O(log n) a row. Dirties: one item a row, and the length."""
        self._rows.discard_many(keys)

    def between(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, str]]:
        """Return an iterator over (key, text) from ``start`` up to but without ``end``; an empty end is no end.

        Time: O(log n) for the first row, then O(1) a row.
        """
        try:
            pages = self._rows.pages_between(start or None, end or None, (True, False), reverse)
        except ObjectNotFoundError:
            raise self._gone() from None
        return chain.from_iterable(pages)

    def all(self) -> Iterator[tuple[bytes, str]]:
        """Return an iterator over (key, text) of all rows. Time: O(1) a row."""
        return self.between(b"", b"")

    def key_from(self, start: bytes) -> bytes | None:
        """Return the first key from a key on, ``None`` where there is none. Time: O(log n)."""
        return next(self._rows.irange(start), None)

    @property
    def name(self) -> str:
        """What the dictionary is called now: a rollback may have taken a change of its name back."""
        return str(self._rows.name)

    def is_that_of(self, other: RowStore) -> bool:
        """Tell whether both are the same rows, and not rows that have their name now."""
        return self._rows is other._rows

    @property
    def is_deleted(self) -> bool:
        """Whether the dictionary exists no more."""
        try:
            self.refuse_dead()
        except ObjectNotFoundError:
            return True
        return False

    def refuse_dead(self) -> None:
        """Refuse all work where the dictionary is deleted or its space is closed."""
        try:
            self._rows.is_raw  # noqa: B018 - It refuses whatever it is asked; a property costs least.
        except ObjectNotFoundError:
            raise self._gone() from None

    def _gone(self) -> ObjectNotFoundError:
        return ObjectNotFoundError(
            f"table {self.table!r} exists no more: it was dropped, or its creation was rolled back; this handle refuses"
            f" all work, also once there is such a table again: open it with StateTable(space, {self.table!r}), or"
            " create it with its schema"
        )


def may_hold_rows(kind: str | None, codec: str | None) -> bool:
    """Tell whether an object can be that of a table by its entry in the index: a raw sorted dictionary.

    >>> may_hold_rows("SortedDictionary", '{"raw":true}'), may_hold_rows("SortedDictionary", "{}")
    (True, False)
    """
    return kind == "SortedDictionary" and codec != "{}"  # What is damaged is refused by whoever reads it.


def slot_of(key: bytes) -> Any:
    """Return the slot of a key in a store."""
    return key


def key_of(slot: Slot) -> bytes:
    """Return the key of a slot in a store."""
    assert isinstance(slot, bytes)
    return slot


def text_of(payload: Payload) -> str:
    """Return the text of a stored row."""
    return payload  # type: ignore[return-value]


def texts_of(payloads: list[Payload | None]) -> list[str]:
    """Return the texts of many stored rows."""
    return payloads  # type: ignore[return-value]
