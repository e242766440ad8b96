"""The rows of one checkpoint: a *run*, independent of where it is stored."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple, Self

import orjson

from checkpoint.errors import REPAIR, CorruptStoreError

Slot = int | float | str | bytes
"""A slot as SQLite stores and orders it: numbers before text, text before bytes."""

BELOW_ALL = (-1, None)
"""Less than every slot in the order of :func:`slot_order`."""

Payload = str | bytes
"""A stored value: JSON text, or raw bytes if the codec of the object says so."""

IndexRow = tuple[int, str, str | None, str | None]
"""(object, name, kind, codec); a kind of ``None`` marks the deletion of the object."""

MetadataRow = tuple[int, str, str | None]
"""(object, key, value); a value of ``None`` marks a deletion."""

OWNER_MARK = '"of":'
"""Appears in the codec of an object whose slots refer to objects that it owns."""

OWNED_KEY = "$object"
"""The key under which a slot names the id of the object that it owns."""

ItemRow = tuple[int, Slot, Payload | None, int | None]
"""(object, slot, value, rank); a value of ``None`` marks a deletion, and the rank keeps the order of insertion."""


Page = tuple[int, list[Any]]
"""Some rows of a run streamed page by page: the position of their table (index, metadata, items), and the rows."""


class CheckpointKind(StrEnum):
    """What a checkpoint holds: a complete image, or the slots that changed since the one before."""

    FULL = "full"
    DIFFERENTIAL = "differential"


CHUNK_ROWS = 4096
"""How many rows are handled at once, if they are small."""


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
    _counted: tuple[int, int] = field(default=(0, 0), repr=False, compare=False)
    """How many metadata and item rows were counted when they were added, and their bytes."""
    attempt: tuple[int, str] | None = field(default=None, repr=False, compare=False)
    """The number and the digest that a store gave it last, whether or not the commit succeeded; a full run that it has
    completed has the digest of the whole image."""

    def add(self, metadata: list[MetadataRow], items: list[ItemRow]) -> int:
        """Add the rows of an object, and return their bytes.

        Time: O(rows).
        """
        size = text_bytes(metadata) + item_bytes(items)
        self.metadata += metadata
        self.items += items
        self._counted = self._counted[0] + len(metadata) + len(items), self._counted[1] + size
        return size

    @property
    def slots(self) -> int:
        """The number of item rows, deletions included."""
        return len(self.items)

    @property
    def bytes(self) -> int:
        """The bytes of all keys, slots and values as they are stored, without the overhead of the file."""
        counted, size = self._counted
        if counted == len(self.metadata) + len(self.items):
            return size + text_bytes(self.index)
        return text_bytes(self.index) + text_bytes(self.metadata) + item_bytes(self.items)

    def sort(self) -> None:
        """Sort the rows into the order of the tables, so that writing them is an append.

        Time: O(n log n); O(n) for rows that are sorted already.
        """
        self.index.sort(key=_by_object)
        self.metadata.sort(key=_by_object_and_key)
        try:
            # The keys are unique, so comparing whole rows ends at them: faster than a key function.
            self.items.sort()
        except TypeError:
            _require_slots(map(_slot, self.items))
            self.items.sort(key=_by_object_and_slot)

    def digest(self) -> str:
        """Return a hash over all rows, which does not depend on where or in what order they are kept.

        Time: O(n log n); O(n) for rows that are sorted already.
        """
        self.sort()
        return self.measure().digest

    def measure(self) -> Measure:
        """Return slots, bytes and digest of a run that is sorted.

        Time: O(n).
        """
        found = RunDigest()
        for rows in self.tables:
            for start in range(0, len(rows), CHUNK_ROWS):
                found.update(rows[start : start + CHUNK_ROWS])
            found.end_table()
        return Measure(found.slots, self.bytes, found.hexdigest())

    @property
    def tables(self) -> tuple[list[Any], ...]:
        """The rows table by table, in order of position: index, metadata, items."""
        return self.index, self.metadata, self.items

    @classmethod
    def of_pages(cls, kind: CheckpointKind, pages: Iterable[Page]) -> Self:
        """Return the run that consists of these pages.

        Time: O(rows).
        """
        run = cls(kind)
        for place, rows in pages:
            run.tables[place].extend(rows)
        return run

    def is_empty(self) -> bool:
        """Return whether the run writes no row at all."""
        return not (self.index or self.metadata or self.items)


class Measure(NamedTuple):
    """What is recorded of a run."""

    slots: int
    bytes: int
    digest: str


def measure(
    index: Iterable[IndexRow],
    metadata: Iterable[MetadataRow],
    items: Iterable[ItemRow],
    chunk_rows: int = CHUNK_ROWS,
) -> Measure:
    """Return item rows, bytes and digest of sorted rows: 16 bytes of BLAKE2b over their JSON, as hexadecimal digits.

    The rows may come from iterators of any length: they are read once, in chunks, and the chunks do not affect the
    result.

    >>> measure([], [], [(1, 3, "42", None)])
    Measure(slots=1, bytes=3, digest='...')
    """
    found = PageMeasure()
    for place, rows in enumerate((index, metadata, items)):
        iterator = iter(rows)
        while chunk := list(islice(iterator, chunk_rows)):
            found.take((place, chunk))
    return found.result()


class PageMeasure:
    """Measures a run as its pages are streamed: index, metadata and item rows, each in the order of their keys."""

    def __init__(self) -> None:
        self._digest, self._bytes, self._place = RunDigest(), 0, 0

    def take(self, page: Page) -> None:
        """Take the next rows."""
        place, rows = page
        self._go_on_to(place)
        self._digest.update(rows)
        self._bytes += table_bytes(place, rows)

    def result(self) -> Measure:
        """Return slots, bytes and digest of all rows taken."""
        self._go_on_to(len(_BYTES))
        return Measure(self._digest.slots, self._bytes, self._digest.hexdigest())

    def _go_on_to(self, place: int) -> None:
        if place < self._place:
            raise ValueError(f"a page of table {place} comes after one of table {self._place}: give them in order")
        while self._place < place:
            self._digest.end_table()
            self._place += 1


class RunDigest:
    """The digest of the rows of a run, which are passed in table by table, in chunks of any size."""

    def __init__(self) -> None:
        self.slots = 0
        self._state = hashlib.blake2b(digest_size=16)
        self._rows = 0

    def update(self, rows: list[Any]) -> None:
        """Add the next rows of the current table."""
        if rows:
            self._state.update(_json(rows))
            self._rows += len(rows)

    def end_table(self) -> None:
        """Move on to the next table; the last one has the slots."""
        self._state.update(b"\n")
        self.slots, self._rows = self._rows, 0

    def hexdigest(self) -> str:
        """Return the digest in hexadecimal digits."""
        return self._state.hexdigest()


def digest_of(rows: list[Any]) -> str:
    """Return the digest of some rows of one table in hexadecimal digits."""
    return hashlib.blake2b(_json(rows) if rows else b"", digest_size=16).hexdigest()


def slot_order(slot: Slot) -> tuple[int, Any]:
    """Return a key that sorts slots as SQLite does: numbers, then text, then bytes."""
    order = _ORDER.get(type(slot))
    if order is None:
        if slot is None:
            raise CorruptStoreError(f"a row has no slot: it is damaged; {REPAIR}")
        # A class of the caller's own, derived from one of these.
        order = 2 if isinstance(slot, bytes) else 1 if isinstance(slot, str) else 0
    return order, slot


def reachable(index: Iterable[IndexRow], values_of: Callable[[int], Iterable[Payload | None]]) -> set[int]:
    """Return the ids of the objects in ``index`` and of those that their slots own.

    Args:
        index: the index rows of the objects that have a name.
        values_of: returns the stored values of one object by its id.

    Raises:
        CorruptStoreError: a value that should name an object is damaged.
    """
    found: set[int] = set()
    for row in index:
        object_id = row[0]
        found.add(object_id)
        if is_owner(row):
            found |= owned_ids(values_of(object_id))
    return found


def is_owner(row: IndexRow) -> bool:
    """Return whether the slots of an object refer to objects that it owns."""
    return row[3] is not None and OWNER_MARK in row[3]


def fault_of(value: object) -> str | None:
    """Return why what an item row shows is no value; ``None`` if it is one, or nothing.

    >>> fault_of("1"), fault_of(7), fault_of(0.5)
    (None, 'its value lay apart from its row and is lost', 'it is a float, neither text nor bytes')
    """
    if value is None or isinstance(value, str | bytes):
        return None
    if isinstance(value, int):  # The number of a body, which is shown only if the body is not there.
        return "its value lay apart from its row and is lost"
    return f"it is a {type(value).__name__}, neither text nor bytes"


def owned_ids(payloads: Iterable[Payload | None]) -> set[int]:
    """Return the ids of the objects that stored values of an owner refer to.

    Raises:
        CorruptStoreError: one is damaged.
    """
    return {owned for owned in map(_owned, payloads) if owned is not None}


def _owned(payload: Payload | None) -> int | None:
    try:
        value = None if payload is None else orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        why = fault_of(payload) or error
        what = f"a slot that says which object it owns is damaged: it holds {payload!r:.80} ({why})"
        raise CorruptStoreError(f"{what}: {REPAIR}") from error
    if isinstance(value, dict):
        value = value.get("$value", value)
    return value.get(OWNED_KEY) if isinstance(value, dict) else None


def text_bytes(rows: Sequence[IndexRow] | Sequence[MetadataRow]) -> int:
    """Return the bytes of index rows (names, kinds and codecs) or metadata rows (keys and values)."""
    return _payload_bytes([text for row in rows for text in row[1:]])


def item_bytes(rows: Sequence[ItemRow]) -> int:
    """Return the bytes of item rows: slots and values.

    Time: O(rows), about 0.15 us each.
    """
    size = 0
    for start in range(0, len(rows), CHUNK_ROWS):
        chunk = rows[start : start + CHUNK_ROWS]
        size += _slot_bytes([row[1] for row in chunk]) + _payload_bytes([row[2] for row in chunk])
    return size


def table_bytes(place: int, rows: list[Any]) -> int:
    """Return the bytes of rows of the table at a position: index, metadata, items."""
    return _BYTES[place](rows)


def _slot_bytes(slots: list[Slot]) -> int:
    types = set(map(type, slots))
    if types == {bytes}:
        return sum(map(len, slots))  # type: ignore[arg-type]
    if types == {int}:
        widths = Counter(map(int.bit_length, slots))  # type: ignore[arg-type]
        return sum((bits + 8) // 8 * count for bits, count in widths.items())
    if types <= {str, bytes}:
        return _payload_bytes(slots)  # type: ignore[arg-type]
    if strange := types - {int, float, str, bytes}:
        raise TypeError(f"a slot is a {strange.pop().__name__}: expected a number, text or bytes")
    return sum(8 if isinstance(slot, float) else _slot_bytes([slot]) for slot in slots)


def _payload_bytes(payloads: Iterable[Payload | None]) -> int:
    present = list(filter(None, payloads))
    try:
        # One long text is encoded many times faster than many short ones. What cannot be encoded is refused elsewhere.
        return len("".join(present).encode(errors="surrogatepass"))  # type: ignore[arg-type]
    except TypeError:
        texts = [payload for payload in present if isinstance(payload, str)]
        blobs = sum(map(len, present))
        return blobs - sum(map(len, texts)) + _payload_bytes(texts)


def _json(rows: list[Any]) -> bytes:
    """Return rows as JSON, each followed by a comma; no two different rows give the same bytes."""
    if len(rows[0]) == 4 and float in set(map(type, map(_slot, rows))):
        rows = [(row[0], _finite(row[1]), *row[2:]) for row in rows]
    try:
        return orjson.dumps(rows, default=_hex)[1:-1] + b","
    except orjson.JSONEncodeError as error:
        # It is raised instead of whatever the function raises, even an interruption.
        raise error.__cause__ or error from None


def _finite(slot: Any) -> Any:
    """Return a slot in a form that JSON has: JSON has no infinity, but a list stands for no other slot."""
    return [repr(slot)] if type(slot) is float and not math.isfinite(slot) else slot


def _hex(value: object) -> list[str]:
    if isinstance(value, bytes):
        return [value.hex()]
    raise TypeError(f"a row holds a {type(value).__name__}: expected a number, text or bytes")


def _by_object(row: IndexRow) -> int:
    return row[0]


def _by_object_and_key(row: MetadataRow) -> tuple[int, str]:
    return row[0], row[1]


_BYTES: tuple[Callable[[list[Any]], int], ...] = (text_bytes, text_bytes, item_bytes)

_ORDER: dict[type, int] = {int: 0, bool: 0, float: 0, str: 1, bytes: 2}


def _by_object_and_slot(row: ItemRow) -> tuple[int, int, Any]:
    return row[0], *slot_order(row[1])


def _require_slots(slots: Iterable[Slot]) -> None:
    for slot in slots:
        if type(slot) not in _ORDER:
            raise TypeError(f"slot {slot!r} is a {type(slot).__name__}: expected a number, text or bytes")


_slot = itemgetter(1)
