"""The rows of a table as slots of a sorted dictionary: encoded keys and row texts, stored as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from checkpoint.run import Payload, Slot
from objectspace import ObjectNotFoundError, ObjectSpace


class RowStore:
    """The sealed rows of a table.

    Args:
        space: the space of the table.
        name: the name of the table.

    ``table`` is the name of the table, used in its errors.
    """

    def __init__(self, space: ObjectSpace, name: str) -> None:
        self.table = name
        self._rows: Any = space.get_sorted_dictionary(name)

    def get(self, key: bytes) -> str | None:
        """Return the text of a row, or ``None`` if there is none. Time: O(log n)."""
        try:
            found: str | None = self._rows.get(key)
        except ObjectNotFoundError:
            raise self._gone() from None
        return found

    def get_all(self, keys: Sequence[bytes]) -> list[str | None]:
        """Return the text of each row, or ``None`` if there is none. Time: O(log n) per row."""
        try:
            found: list[str | None] = self._rows.get_many(keys)
        except ObjectNotFoundError:
            raise self._gone() from None
        return found

    def put_all(self, rows: Mapping[bytes, str]) -> None:
        """Store rows. Time: O(log n) per row. Dirties: one item per row; for a new key also the length."""
        self._rows.update(rows)

    def remove_all(self, keys: Sequence[bytes]) -> None:
        """Remove rows that are there. Time: O(log n) per row. Dirties: one item per row, and the length."""
        self._rows.discard_many(keys)

    def between(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, str]]:
        """Return an iterator over (key, text) from ``start`` up to but not including ``end``; an empty end is no end.

        Time: O(log n) for the first row, then O(1) per row.
        """
        try:
            pages = self._rows.pages_between(start or None, end or None, (True, False), reverse)
        except ObjectNotFoundError:
            raise self._gone() from None
        return chain.from_iterable(pages)

    def all(self) -> Iterator[tuple[bytes, str]]:
        """Return an iterator over (key, text) of all rows. Time: O(1) per row."""
        return self.between(b"", b"")

    def key_from(self, start: bytes) -> bytes | None:
        """Return the first key from a given key on, or ``None`` if there is none. Time: O(log n)."""
        return next(self._rows.irange(start), None)

    @property
    def name(self) -> str:
        """The current name of the dictionary: a rollback may have taken back a change of its name."""
        return str(self._rows.name)

    @property
    def handle(self) -> Any:
        """The dictionary, which is the same object for the same rows, and not for others that now have their name."""
        return self._rows

    @property
    def is_deleted(self) -> bool:
        """Whether the dictionary no longer exists."""
        try:
            self.refuse_dead()
        except ObjectNotFoundError:
            return True
        return False

    def refuse_dead(self) -> None:
        """Refuse all work if the dictionary is deleted or its space is closed."""
        try:
            self._rows.is_raw  # noqa: B018 - It refuses whatever it is asked; a property costs least.
        except ObjectNotFoundError:
            raise self._gone() from None

    def _gone(self) -> ObjectNotFoundError:
        return ObjectNotFoundError(
            f"table {self.table!r} no longer exists: it was dropped, or its creation was rolled back; this handle"
            f" refuses all work, even if the table is made again: open it with StateTable(space, {self.table!r}),"
            " or create it with its schema"
        )


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
