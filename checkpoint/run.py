"""The rows of one checkpoint: a *run*, independent of where it is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

import orjson

Slot = int | float | str | bytes
"""A slot as SQLite stores and orders it: numbers before text before bytes."""

Payload = str | bytes
"""A stored value: JSON text, or raw bytes where the codec of the object says so."""

IndexRow = tuple[int, str, str | None, str | None]
"""(object, name, kind, codec); a kind of ``None`` marks the deletion of the object."""

MetadataRow = tuple[int, str, str | None]
"""(object, key, value); a value of ``None`` marks a deletion."""

OWNER_MARK = '"of":'
"""Stands in the codec of an object whose slots refer to objects that it owns."""

OWNED_KEY = "$object"
"""The key under which a slot names the id of the object that it owns."""

ItemRow = tuple[int, Slot, Payload | None, int | None]
"""(object, slot, value, rank); a value of ``None`` marks a deletion, the rank orders kinds that keep insertion order."""


class CheckpointKind(StrEnum):
    """What a checkpoint holds: a complete image, or the slots that changed since the one before."""

    FULL = "full"
    DIFFERENTIAL = "differential"


_CHUNK_ROWS = 4096


@dataclass
class Run:
    """The rows that one checkpoint writes to the index, metadata and item tables.

    >>> run = Run(CheckpointKind.DIFFERENTIAL, items=[(1, 3, "42", None)])
    >>> run.slots, run.bytes
    (1, 3)
    """

    kind: CheckpointKind
    index: list[IndexRow] = field(default_factory=list)
    metadata: list[MetadataRow] = field(default_factory=list)
    items: list[ItemRow] = field(default_factory=list)

    @property
    def slots(self) -> int:
        """The number of item rows, deletions included."""
        return len(self.items)

    @property
    def bytes(self) -> int:
        """The bytes of all keys, slots and values as they are stored, without the overhead of the file."""
        return index_bytes(self.index) + metadata_bytes(self.metadata) + item_bytes(self.items)

    def sort(self) -> None:
        """Put the rows into the order of the tables, so that writing them is an append.

        Time: O(n log n).
        """
        self.index.sort(key=_by_object)
        self.metadata.sort(key=_by_object_and_key)
        self.items = sorted_items(self.items)

    def digest(self) -> str:
        """Return a hash over every row, the same wherever and in whatever order the rows are kept.

        Time: O(n log n) for rows that are not sorted yet.
        """
        self.sort()
        return digest_of(self.index, self.metadata, self.items)

    def is_empty(self) -> bool:
        """Tell whether the run writes no row at all."""
        return not (self.index or self.metadata or self.items)


def digest_of(index: Iterable[IndexRow], metadata: Iterable[MetadataRow], items: Iterable[ItemRow]) -> str:
    """Return the digest of sorted rows: 16 bytes of BLAKE2b over their JSON, in hexadecimal digits.

    The rows may come from iterators of any length: they are hashed in chunks, and the chunks leave no trace.
    """
    state = hashlib.blake2b(digest_size=16)
    tables: tuple[Iterable[tuple[object, ...]], ...] = (index, metadata, items)
    for rows in tables:
        iterator = iter(rows)
        while chunk := list(islice(iterator, _CHUNK_ROWS)):
            state.update(orjson.dumps(chunk, default=_hex)[1:-1])
            state.update(b",")
        state.update(b"\n")
    return state.hexdigest()


def reachable(index: Iterable[IndexRow], values_of: Callable[[int], Iterable[Payload | None]]) -> set[int]:
    """Return the ids of the objects in ``index`` and of those that their slots own.

    Args:
        index: the index rows of the objects that have a name.
        values_of: gives the stored values of one object by its id.
    """
    found: set[int] = set()
    for object_id, _, _, codec in index:
        found.add(object_id)
        if codec is not None and OWNER_MARK in codec:
            found.update(owned for owned in map(_owned, values_of(object_id)) if owned is not None)
    return found


def _owned(payload: Payload | None) -> int | None:
    value = None if payload is None else orjson.loads(payload)
    if isinstance(value, dict):
        value = value.get("$value", value)
    return value.get(OWNED_KEY) if isinstance(value, dict) else None


def sorted_items(rows: list[ItemRow]) -> list[ItemRow]:
    """Return item rows in the order in which SQLite keeps them: object, then numbers, text, bytes."""
    try:
        return sorted(rows, key=_by_object_and_slot)
    except TypeError:
        return sorted(rows, key=_by_object_class_and_slot)


def index_bytes(rows: list[IndexRow]) -> int:
    """Return the bytes of index rows: names, kinds and codecs."""
    return sum(len(name) + len(kind or "") + len(codec or "") for _, name, kind, codec in rows)


def metadata_bytes(rows: list[MetadataRow]) -> int:
    """Return the bytes of metadata rows: keys and values."""
    return sum(len(key) + len(value or "") for _, key, value in rows)


def item_bytes(rows: list[ItemRow]) -> int:
    """Return the bytes of item rows: slots and values."""
    return sum(_slot_bytes(slot) + len(value or "") for _, slot, value, _ in rows)


def _slot_bytes(slot: Slot) -> int:
    if type(slot) is int:
        return (slot.bit_length() + 8) // 8
    return 8 if isinstance(slot, float) else len(slot)  # type: ignore[arg-type]


def _hex(value: object) -> str:
    if isinstance(value, bytes):
        return "x'" + value.hex() + "'"
    raise TypeError(f"a row holds a {type(value).__name__}: expected a number, text or bytes")


def _by_object(row: IndexRow) -> int:
    return row[0]


def _by_object_and_key(row: MetadataRow) -> tuple[int, str]:
    return row[0], row[1]


def _by_object_and_slot(row: ItemRow) -> tuple[int, Slot]:
    return row[0], row[1]


_CLASS = {int: 0, float: 0, str: 1, bytes: 2}


def _by_object_class_and_slot(row: ItemRow) -> tuple[int, int, Slot]:
    return row[0], _CLASS[type(row[1])], row[1]
