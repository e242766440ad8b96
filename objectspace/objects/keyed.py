"""What objects that keep their slots in a :class:`SlotTable` have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from checkpoint.reader import StoredItem, StoredRow
from checkpoint.run import ItemRow, Slot
from objectspace import codec, keys
from objectspace.objects.base import UNREADABLE, PersistedObject, item_text
from objectspace.objects.table import SlotTable
from objectspace.objects.variants import base_of, is_cold

KEY, VALUE = "$key", "$value"
"""The two parts of the text of a slot that does not tell its key."""

_KEYED = f'{{"{KEY}":'
"""How such a text begins."""


class KeyedObject(PersistedObject):
    """An object of which each slot is a key with a value.

    A handle is *cold* until it is touched; then it is read whole if it is small, and slot by slot if it is not.
    """

    _table: SlotTable
    _is_ranked = False
    _counts_slots = True
    _is_plain = True
    """Whether the text of a slot is that of its value, if the slot tells the key."""
    _key_prefix: str | None = _KEYED
    """How the text of a slot begins if it tells the key, which the slot does not; ``None`` if more of it counts."""

    def _begin(self, options: dict[str, Any]) -> None:
        self._table = SlotTable(self, self._body(), is_ranked=self._is_ranked)
        self._configure(options)
        if not self._fresh:
            self._go_cold()

    def _body(self) -> dict[Any, Any] | None:
        """Return the dictionary that holds the values in memory, if it is not an ordinary one."""
        return None

    def _configure(self, options: dict[str, Any]) -> None:
        """Take over what the index keeps of the object."""

    def _go_cold(self) -> None:
        """Arrange that the next touch reads the object."""
        self._sleep()  # First: if the rest is interrupted, the next touch does all of it again.
        self._table.begin_cold(0)

    def _warm(self) -> type:
        """Read the metadata, and all slots if there are few and all of them are small."""
        self._table.begin_cold(*self._extent())
        if self._table.is_small and not self._home.reader().has_large(self._id):
            self._load_whole()
        return base_of(self)

    def _extent(self) -> tuple[int, int]:
        """Return the stored length and the next rank."""
        stored = self._load_metadata("length")["length"]
        if isinstance(stored, list):
            return int(stored[0]), int(stored[1])
        return int(stored), int(stored)

    def _load_whole(self) -> None:
        self._table.load_all()

    def _metadata(self) -> dict[str, Any]:
        length = len(self._table)
        if not self._is_ranked:
            return {"length": length}
        following = length if self._fresh else self._table.next_rank
        return {"length": length if following == length else [length, following]}

    def _rows(self) -> list[ItemRow]:
        return self._table.rows()

    def _turn(self) -> None:
        self._table.turn()
        self._was_fresh, self._fresh = self._fresh, False
        self._turn_metadata()

    def _settle(self, durable: bool) -> None:
        was_fresh, self._was_fresh = bool(self._was_fresh), None
        if was_fresh and not durable:
            self._fresh = True
        self._table.settle(durable, was_fresh)
        self._settle_metadata(durable)

    def _can_shrink(self, gently: bool) -> bool:
        """Return whether clean slots can be dropped: the store has the object, and nobody relies on having it whole."""
        return not (self._fresh or self._was_fresh or is_cold(self) or (gently and self._table.complete))

    def _shrink(self, *, gently: bool) -> None:
        if self._can_shrink(gently):
            self._table.shrink()

    def _held(self) -> int:
        return dict.__len__(self._table.live)

    def _is_open(self) -> bool:
        """Return whether changes are found by comparison at the next save, not noted one by one."""
        return False

    def _stored_differences(self) -> Iterable[Any]:
        return self._table.stored_differences()

    def _check(self) -> None:
        self._table.check()

    def _slot(self, key: Any) -> Slot:
        try:
            return keys.to_slot(key)
        except (codec.Unencodable, RecursionError) as error:
            raise self._unencodable("key", key, error) from error.__cause__

    def _text(self, key: Any, value: Any) -> str:
        """Return the stored text of a slot: the value, with the key if the slot does not tell it."""
        if keys.is_exact(key):
            return self._encode(value, key)
        self._table.is_mixed = True
        try:
            return codec.encode_plain({KEY: codec.plain(key), VALUE: codec.plain(value)})
        except (codec.Unencodable, RecursionError) as error:
            raise self._unencodable("slot", key, error) from error.__cause__

    def _pairs_of(self, rows: Sequence[StoredRow]) -> list[tuple[Any, Any]]:
        """Return the keys and values of stored slots: in one piece if all keys and values are plain."""
        slots, texts = [row[0] for row in rows], [row[1] for row in rows]
        if self._is_plain and {int, str}.issuperset(map(type, slots)):
            values = codec.decode_together(texts)
            if values is not None:
                return list(zip(slots, values, strict=True))
        return [self._key_value(StoredItem(slot, text, None)) for slot, text in zip(slots, texts, strict=True)]

    def _keys_of(self, rows: Sequence[StoredRow]) -> list[Any]:
        """Return the keys of stored slots, whose texts are given only if they begin with the key."""
        slots, texts = [row[0] for row in rows], [row[1] for row in rows]
        if not any(texts):
            return keys.from_slots(slots)
        return [
            self._key_value(StoredItem(slot, text, None))[0] if text else keys.from_slot(slot)
            for slot, text in zip(slots, texts, strict=True)
        ]

    def _value_of(self, item: StoredItem) -> Any:
        return self._key_value(item)[1]

    def _key_value(self, item: StoredItem) -> tuple[Any, Any]:
        """Return the key and value of a stored slot."""
        text = item.value if type(item.value) is str else item_text(item)
        if not text.startswith(_KEYED):
            return keys.from_slot(item.slot), self._decode(text, item.slot)
        self._table.is_mixed = True
        try:
            pair = orjson.loads(text)
            return keys.as_stored(codec.restore(pair[KEY]), item.slot), codec.restore_value(pair[VALUE])
        except UNREADABLE as error:
            self._damaged(item.slot, text, error)
