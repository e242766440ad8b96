"""What an object holds, read from its rows alone: keys, values, rows of tables, without the code that wrote them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import orjson

from checkpoint.errors import CheckpointError
from checkpoint.reader import Reader, StoredItem
from checkpoint.run import IndexRow, Payload, Slot

TABLES = "$tables"
"""The dictionary in which a space keeps the schemas of its relational tables."""

BYTES_TAG = 0x13
"""The first byte of the slot of a key of bytes."""


@dataclass(frozen=True)
class Entry:
    """One slot as a person reads it.

    Args:
        key: the index, key or name; for a table the number of the row.
        value: the value, as JSON has it; for a table the row by column names.
        slot: the slot itself.
    """

    key: Any
    value: Any
    slot: Slot


class State:
    """The objects of a store at one checkpoint, by name.

    Args:
        reader: the state.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.index: dict[str, IndexRow] = {row[1]: row for row in reader.index()}
        self._tables: dict[str, dict[str, Any]] | None = None

    def find(self, name: str) -> IndexRow:
        """Return the index row of an object.

        Raises:
            CheckpointError: there is no object of this name; the nearest one is suggested.
        """
        if name in self.index:
            return self.index[name]
        near = get_close_matches(name, self.index, 1)
        hint = f"did you mean {near[0]!r}?" if near else "see `checkpoint ls`"
        raise CheckpointError(f"there is no object {name!r}: {hint}")

    def columns(self, name: str) -> list[dict[str, Any]] | None:
        """Return the columns of a relational table; ``None`` for any other object."""
        record = self.tables().get(name)
        return None if record is None else record["schema"]["columns"]

    def tables(self) -> dict[str, dict[str, Any]]:
        """Return what the space knows of its relational tables, by name."""
        if self._tables is None:
            row = self.index.get(TABLES)
            items = [] if row is None else self.reader.items(row[0])
            self._tables = {str(item.slot): loaded(item.value) for item in items}
        return self._tables

    def kind_of(self, name: str) -> str:
        """Return the kind of an object; ``Table`` for a relational one."""
        return "Table" if name in self.tables() else str(self.find(name)[2])

    def length(self, name: str) -> int:
        """Return how many elements an object has, of some kinds how many are stored."""
        object_id, _, kind, _ = self.find(name)
        stored = {key: orjson.loads(text) for key, text in self.reader.metadata(object_id).items()}
        if kind == "Queue":
            return int(stored["tail"] - stored["head"])
        length = stored.get("count", stored.get("length"))
        if length is None:
            return self.reader.count(object_id)
        return int(length[0] if isinstance(length, list) else length)

    def entries(self, name: str, *, lower: Slot | None = None, upper: Slot | None = None) -> Iterator[Entry]:
        """Yield what an object holds, in the order of its kind. Time: O(slots). Memory: for one page of rows.

        Args:
            name: the object.
            lower: the least slot, where the slots of the kind are numbers or text.
            upper: the greatest slot.
        """
        object_id, _, kind, codec = self.find(name)
        bounded = lower is not None or upper is not None
        if kind in ("Dictionary", "Set") and not bounded:
            items = self.reader.items_by_rank(object_id)
        else:
            items = self.reader.items(object_id, lower, upper, reverse=kind == "Stack")
        row_of = self._row_reader(name)
        for place, item in enumerate(items):
            if row_of is not None:
                yield Entry(place, row_of(item.value), item.slot)
            elif kind in ("List", "LinkedList", "Queue", "Stack") and not bounded:
                yield Entry(place, self._value(item.value), item.slot)
            else:
                yield self.entry(item, codec)

    def entry(self, item: StoredItem, codec: str | None = None) -> Entry:
        """Return one stored slot as a key and a value."""
        key, value = key_and_value(item.slot, item.value)
        return Entry(key, self._expanded(value), item.slot)

    def _value(self, payload: Payload) -> Any:
        return self._expanded(loaded(payload))

    def _expanded(self, value: Any) -> Any:
        """Return a value, with the contents of an owned object in place of the reference to it."""
        if isinstance(value, dict) and value.keys() == {"$object"}:
            items = self.reader.items(int(value["$object"]))
            pairs = [key_and_value(item.slot, item.value) for item in items]
            if all(isinstance(key, (int, float)) for key, _ in pairs):
                return [value for _, value in pairs]
            return {str(key): value for key, value in pairs}
        return value

    def _row_reader(self, name: str) -> Any:
        record = self.tables().get(name)
        if record is None:
            return None
        names = {column["id"]: column["name"] for column in record["schema"]["columns"]}
        layouts = record["layouts"]

        def _row(payload: Payload) -> dict[str, Any]:
            number, *cells = loaded(payload)
            return {names[id]: cell for id, cell in zip(layouts[number], cells, strict=True) if id in names}

        return _row


def loaded(payload: Payload | None) -> Any:
    """Return a stored value as JSON has it; bytes as base64 in ``{"$bytes": ...}``."""
    if payload is None:
        return None
    if isinstance(payload, bytes):
        return {"$bytes": base64.b64encode(payload).decode()}
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        return payload


def key_and_value(slot: Slot, payload: Payload | None) -> tuple[Any, Any]:
    """Return the key and the value of a stored slot."""
    value = loaded(payload)
    if isinstance(value, dict) and "$key" in value:
        return value["$key"], value.get("$value")
    return key_of(slot), value


def key_of(slot: Slot) -> Any:
    """Return the key that a slot stands for, as JSON has it; a key of bytes as text where it is UTF-8."""
    if not isinstance(slot, bytes):
        return slot
    body = slot[1:] if slot[:1] == bytes([BYTES_TAG]) else slot
    try:
        text = body.decode()
        return text if text.isprintable() else {"$bytes": base64.b64encode(body).decode()}
    except UnicodeDecodeError:
        return {"$bytes": base64.b64encode(body).decode()}
