"""Which slots of a sorted object do not sort as its keys do: an object that has such a slot is read whole.

Its metadata says so, and no single slot tells whether there are others: if changes remove or add one, what the metadata
must say depends on the slots that the object has afterwards, not on what it said when the changes were made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import orjson

from checkpoint.reader import Reader, StoredItem
from checkpoint.run import Payload, Slot

ORDER = "order"
"""The metadata key that says where the order of the keys is found, if it is not that of the slots."""

IN_MEMORY = '"memory"'
"""The value it has then."""

KINDS = frozenset({"SortedDictionary", "SortedSet"})
"""The kinds whose keys are in order."""

_NUMBER, _TEXT, _TIME, _TUPLE = b"\x11", b"\x12", b"\x16", b"\x1a"
"""How the slots of numbers that are not numbers in SQLite, of texts, of times with a zone, and of tuples begin."""

_END = b"\x00"
"""What follows the last element of a tuple."""


def is_sorted(kind: str | None, codec: str | None) -> bool:
    """Return whether an object sorts keys of its own by their slots; one that keeps its keys as they are has no others.

    >>> is_sorted("SortedSet", None), is_sorted("SortedDictionary", '{"raw":true}'), is_sorted("Set", None)
    (True, False, False)
    """
    return kind in KINDS and not orjson.loads(codec or "{}").get("raw")


def may_compare(slot: Slot, other: Slot) -> bool:
    r"""Return whether two keys compare with each other, as numbers do, texts and so on; tuples by their first elements.

    >>> may_compare(1, b"\x11\xc4"), may_compare("a", b"\x13a"), may_compare(b"\x1a\x11\xc4", b"\x1a\x12a")
    (True, False, False)
    """
    found, others = _class_of(slot), _class_of(other)
    return found == others or _is_empty_beside(found, others) or _is_empty_beside(others, found)


def _class_of(slot: Slot) -> bytes:
    """Return what the slots of a class of keys begin with; for a tuple with the class of its first element."""
    if isinstance(slot, bytes):
        depth = len(slot) - len(slot.lstrip(_TUPLE))
        return slot[: depth + 1]
    return _TEXT if isinstance(slot, str) else _NUMBER


def _is_empty_beside(found: bytes, others: bytes) -> bool:
    """Return whether a class is that of an empty tuple, comparable with the other because that is of tuples too."""
    return found.endswith(_END) and others.startswith(found.removesuffix(_END))


def keeps_order(slot: Slot, value: Payload | None) -> bool:
    r"""Return whether a slot of a sorted object sorts among others as its key does among other keys.

    Numbers that are not numbers in SQLite do not, since they come after all that are; nor do times that the clocks of
    their zone show twice or never.

    >>> keeps_order(1.5, '{"$key":{"$decimal":"1.5"}}'), keeps_order(b"\x11\xc4", '{"$key":1e30}')
    (True, False)
    """
    if not isinstance(slot, bytes) or slot[:1] not in (_NUMBER, _TIME, _TUPLE):
        return True
    return slot[:1] != _NUMBER and not _holds_unclear_time(value)


def numbers_out_of_order(reader: Reader, object_id: int) -> Iterator[StoredItem]:
    """Yield the slots of a sorted object that stand for numbers that are not numbers in SQLite."""
    return reader.items(object_id, _NUMBER, _after(_NUMBER))


def breaks_order(reader: Reader, object_id: int, without: Collection[Slot]) -> bool:
    """Return whether a sorted object has a slot that does not sort as its key.

    Args:
        reader: the state.
        object_id: the object.
        without: slots that are left out.

    Time: O(slots of such numbers, times and tuples, up to the first).
    """
    for first in (_NUMBER, _TIME, _TUPLE):
        for item in reader.items(object_id, first, _after(first)):
            if item.slot not in without and not keeps_order(item.slot, item.value):
                return True
    return False


def _after(first: bytes) -> bytes:
    return bytes([first[0] + 1])


def _holds_unclear_time(value: Payload | None) -> bool:
    """Return whether a key, which the value holds, has a time that the clocks of its zone show twice or never."""
    if value is None or "$datetime" not in str(value):
        return False
    try:
        stored = orjson.loads(value)
    except orjson.JSONDecodeError:
        return False  # It belongs to an object that keeps its values as they are.
    return any(map(_is_unclear, _times_in(stored.get("$key") if isinstance(stored, dict) else None)))


def _times_in(key: Any) -> Iterable[Any]:
    """Yield the stored times of a key, which may be a tuple."""
    if isinstance(key, list):
        for item in key:
            yield from _times_in(item)
    elif isinstance(key, dict):
        yield from (key["$datetime"],) if "$datetime" in key else _times_in(list(key.values()))


def _is_unclear(stored: Any) -> bool:
    """Return whether a stored time, with its zone name if it has one, is unclear; so is one of an unknown zone."""
    if not isinstance(stored, list) or not stored[1]:
        return False
    try:
        moment = datetime.fromisoformat(stored[0]).replace(tzinfo=ZoneInfo(stored[1]))
    except (KeyError, ValueError, OSError):
        return True
    return moment.replace(fold=0).utcoffset() != moment.replace(fold=1).utcoffset()
