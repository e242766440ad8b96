"""The raw sorted dictionary: bytes as keys and text as values, both stored as they are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, islice, repeat
from operator import itemgetter, ne
from typing import Any

from checkpoint.reader import StoredItem, StoredRow
from checkpoint.run import ItemRow, Slot, fault_of
from objectspace.codec import is_utf8
from objectspace.errors import UnencodableValueError, shown
from objectspace.objects.sorted_dictionary import SortedDictionary
from objectspace.objects.torn import undivided


class RawSortedDictionary(SortedDictionary[bytes, str | bytes]):
    """A sorted dictionary for those who encode keys and values themselves: a key is a BLOB slot, a value its payload.

    >>> from objectspace import VolatileObjectSpace
    >>> d = VolatileObjectSpace().create_sorted_dictionary("d", raw=True)
    >>> d[b"b"] = "[2]"; d[b"a"] = "[1]"
    >>> list(d.items())
    [(b'a', '[1]'), (b'b', '[2]')]
    """

    kind = "SortedDictionary"
    _is_plain = False

    def _options(self) -> dict[str, Any]:
        return {"raw": True}

    @property
    def is_raw(self) -> bool:
        """Whether keys are bytes and values bytes or text, both stored as they are."""
        return True

    @undivided
    def __setitem__(self, key: bytes, value: str | bytes) -> None:
        """Set the value of a key. Time: O(log n). Dirties: one item; for a new key, also the length."""
        table = self._table
        live, edits = table.live, table.edits
        if not (edits and key in live and _is_storable(value) and table.places is None):
            self._put(key, value)
        elif table.complete:
            # The page has an edit already, so the object is known as dirty; and what is in memory is what is stored.
            if key not in edits:
                edits[key] = live[key]
            live[key] = value
        else:
            self._set_known(key, value)

    @undivided
    def _set_known(self, key: bytes, value: str | bytes) -> None:
        """Set the value of a key that was in memory a moment ago: another thread may be dropping clean slots."""
        table = self._table
        with self._home.mutex:
            if key in table.live:
                if key not in table.edits:
                    table.edits[key] = table.live[key]
                table.live[key] = value
                return
        self._put(key, value)

    def _put(self, key: Any, value: Any) -> None:
        if type(key) is not bytes or not _is_storable(value):
            raise self._refusal(key, value)
        super()._put(key, value)

    def put_removed(self, key: bytes, value: str | bytes) -> None:
        """Set the value of a key that the caller has removed and not set since.

        Time: O(log n). Dirties: one item and the length.
        """
        if type(key) is not bytes or not _is_storable(value):
            raise self._refusal(key, value)
        super().put_removed(key, value)

    def _refusal(self, key: object, value: object) -> Exception:
        if type(key) is not bytes:
            return TypeError(f"{self._describe()} is raw: a key is bytes, found {shown(key):.80}")
        wanted = "text valid in UTF-8, without lone surrogates" if type(value) is str else "text or bytes"
        return UnencodableValueError(f"{self._describe()} is raw: a value is {wanted}, found {shown(value):.80}")

    def _put_all(self, pairs: dict[Any, Any]) -> None:
        if _are_storable(pairs):
            super()._put_all(pairs)
            return
        for key, value in pairs.items():
            self[key] = value

    def _put_fetched(self, pairs: dict[Any, Any]) -> None:
        table = self._table
        if not table.remember_many_old(pairs, is_fetched=True):
            super()._put_fetched(pairs)
            return
        before, order, self._sorted = len(table.live), self._sorted, None
        table.live.update(pairs)
        self._changes += len(table.live) - before
        if table.complete:
            self._unsorted += islice(reversed(table.live), len(table.live) - before)  # What is new stands at the end.
            self._simple = bytes
        self._sorted = order

    def _check_new(self, key: Any) -> None:
        """Take every key: all bytes have an order."""

    def _rows(self) -> list[ItemRow]:
        table = self._table
        if self._fresh:
            return table.rows()
        edits, object_id = table.edits, self._id
        keys = sorted(edits)
        values = table.whole_values(keys)
        rows = zip(repeat(object_id), keys, values, repeat(None), strict=False)
        changed: list[ItemRow] = list(compress(rows, map(ne, map(edits.__getitem__, keys), values)))
        return changed + [(object_id, key, None, None) for key in table.gone]

    def _slot(self, key: Any) -> Slot:
        return key  # type: ignore[no-any-return]

    def _text(self, key: Any, value: Any) -> str:
        return value  # type: ignore[no-any-return]

    def _key_value(self, item: StoredItem) -> tuple[Any, Any]:
        if (fault := fault_of(item.value)) is not None:
            self._damaged(item.slot, item.value, fault)
        return item.slot, item.value

    def _bound(self, key: Any, beyond: float) -> Slot | None:
        return key  # type: ignore[no-any-return]

    def _keys_of(self, rows: Sequence[StoredRow]) -> list[Any]:
        return [row[0] for row in rows]

    def _pairs_of(self, rows: Sequence[StoredRow]) -> list[tuple[Any, Any]]:
        for row in rows if int in set(map(type, map(_second, rows))) else ():
            if (fault := fault_of(row[1])) is not None:
                self._damaged(row[0], row[1], fault)
        return rows if rows and len(rows[0]) == 2 else [row[:2] for row in rows]  # type: ignore[return-value]


def _are_storable(pairs: dict[Any, Any]) -> bool:
    """Return whether all pairs can be slots, if that is seen quickly."""
    if not set(map(type, pairs)) <= {bytes} or not set(map(type, pairs.values())) <= {str}:
        return False
    return all(map(str.isascii, pairs.values())) or all(map(_is_storable, pairs.values()))


def _is_storable(value: object) -> bool:
    """Return whether a value can be a payload: bytes, or text without half a surrogate pair."""
    if type(value) is str:
        return is_utf8(value)
    return type(value) is bytes


_second = itemgetter(1)
