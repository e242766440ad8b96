"""Whether the metadata of objects agrees with their slots, as far as a store can tell without their code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson

from checkpoint.errors import SALVAGE, CorruptStoreError
from checkpoint.key_order import ORDER, is_sorted, numbers_out_of_order
from checkpoint.owned import owned_kind
from checkpoint.reader import Reader
from checkpoint.run import IndexRow, Payload, is_owner, owned_ids

Metadata = dict[str, Any]

RANKED = frozenset({"Dictionary", "Set"})
"""The kinds whose slots have ranks, which keep insertion order."""

LENGTH = "length"
"""The metadata key that says how many slots an object has; it differs if any slot came or went."""

DENSE_LENGTH = 1024
"""Arrays up to this length store every slot when they are first stored; longer ones only what is assigned."""


def check_objects(reader: Reader, path: str) -> None:
    """Check every object of a state.

    Raises:
        CorruptStoreError: one does not have the slots that its metadata says; the message names it.

    Time: O(state). The slots are streamed.
    """
    for row in reader.index():
        for fault in faults_in(reader, row):
            raise CorruptStoreError(
                f"{path}: the {fault} at checkpoint {reader.newest}: roll it back to one that is sound, {SALVAGE}"
            )


def faults_in(reader: Reader, row: IndexRow) -> Iterator[str]:
    """Yield what is wrong with an object of the index and with those that it owns: which one it is, and what it has.

    Time: O(their slots). They are streamed.
    """
    object_id, name, kind, codec = row
    if fault := fault_of(reader, object_id, kind, codec):
        yield f"{kind} {name!r} has {fault}"
    if is_owner(row):
        of, known = owned_kind(codec), set[int]()
        for item in reader.items(object_id):
            owned = _owned(item.value)
            if owned is None or owned in known:
                whose = "that says no object" if owned is None else f"that says object {owned}, as another one does"
                yield f"{kind} {name!r} has a slot {item.slot!r} {whose}"
            else:
                known.add(owned)
        for owned in sorted(known):
            if fault := fault_of(reader, owned, of, None):
                yield f"{of} {owned} in {name!r} has {fault}"


def _owned(value: Payload) -> int | None:
    """Return the id that a slot of an owner names, ``None`` if it names none."""
    try:
        found = next(iter(owned_ids([value])), None)
    except (CorruptStoreError, TypeError):
        return None
    return found if isinstance(found, int) else None


def fault_of(reader: Reader, object_id: int, kind: str | None, codec: str | None) -> str | None:
    """Return in words what is wrong with an object, or None if nothing is.

    Args:
        reader: the state.
        object_id: the object.
        kind: its kind; for one that the store does not know, nothing is found.
        codec: what its slots stand for, as the index says.

    Time: O(its slots). They are streamed.
    """
    rule = _RULES.get(kind or "")
    if rule is None:
        return None
    try:
        metadata = {key: orjson.loads(value) for key, value in reader.metadata(object_id).items()}
        if fault := rule(reader, object_id, metadata):
            return fault
        return _order_fault(reader, object_id, metadata) if is_sorted(kind, codec) else None
    except KeyError as error:
        return f"no {error} in its metadata"
    except (ValueError, TypeError) as error:
        return f"invalid metadata ({error!r})"


def _counted(reader: Reader, object_id: int, metadata: Metadata) -> str | None:
    """A length says how many slots there are."""
    return _length_fault(reader.count(object_id), metadata)


def _length_fault(found: int, metadata: Metadata) -> str | None:
    length = metadata[LENGTH]
    return _compare(found, length[0] if isinstance(length, list) else length)


def _ranked(reader: Reader, object_id: int, metadata: Metadata) -> str | None:
    """If ranks have gaps, the length comes with the next rank, which no slot has yet."""
    if fault := _counted(reader, object_id, metadata):
        return fault
    length = metadata[LENGTH]
    following, last = length[1] if isinstance(length, list) else length, reader.last_rank(object_id)
    is_taken = last is not None and last >= following
    return f"a slot of rank {last} where its metadata says that {following} is the next one" if is_taken else None


def _labelled(reader: Reader, object_id: int, metadata: Metadata) -> str | None:
    """Slots are finite numbers. All others sort before the first or after the last one: infinity, text and bytes."""
    summary = reader.summary(object_id)
    ends = (summary.first, summary.last) if summary.slots else ()
    return _length_fault(summary.slots, metadata) or _first(slot for slot in ends if not _is_finite(slot))


def _is_finite(slot: object) -> bool:
    return type(slot) is int or (type(slot) is float and math.isfinite(slot))


def _integral(reader: Reader, object_id: int, metadata: Metadata) -> str | None:
    """Slots are integers."""
    summary = reader.summary(object_id)
    items = reader.items(object_id) if summary.others else ()
    strangers = (item.slot for item in items if type(item.slot) is not int)
    return _length_fault(summary.slots, metadata) or _first(strangers)


def _array(reader: Reader, object_id: int, metadata: Metadata) -> str | None:
    """Slots are indexes below the length; in a long array, those that hold the default may be absent."""
    slots = range(metadata[LENGTH])
    return (_exact if len(slots) <= DENSE_LENGTH else _inside)(reader, object_id, slots)


def _queue(reader: Reader, object_id: int, metadata: Metadata) -> str | None:
    return _exact(reader, object_id, range(metadata["head"], metadata["tail"]))


def _stack(reader: Reader, object_id: int, metadata: Metadata) -> str | None:
    return _exact(reader, object_id, range(metadata["count"]))


def _value(reader: Reader, object_id: int, metadata: Metadata) -> str | None:
    if fault := _first(item.slot for item in reader.items(object_id) if item.slot != "value"):
        return fault
    return None if reader.count(object_id) else "no slot 'value'"


def _order_fault(reader: Reader, object_id: int, metadata: Metadata) -> str | None:
    """Keys that SQLite has no number for do not sort as their slots: an object that has one must say so."""
    is_told = metadata.get(ORDER) is not None
    number = None if is_told else next(numbers_out_of_order(reader, object_id), None)
    return (
        None if number is None else f"a slot {number.slot!r} that sorts unlike its key, and no {ORDER!r} that says so"
    )


def _exact(reader: Reader, object_id: int, slots: range) -> str | None:
    return _inside(reader, object_id, slots) or _compare(reader.count(object_id), len(slots))


def _inside(reader: Reader, object_id: int, slots: range) -> str | None:
    return _first(item.slot for item in reader.items(object_id) if item.slot not in slots)


def _compare(found: int, expected: int) -> str | None:
    return None if found == expected else f"{found} slots where its metadata says {expected}"


def _first(strangers: Iterable[object]) -> str | None:
    return next((f"a slot {slot!r} that cannot be one of its own" for slot in strangers), None)


_RULES: dict[str, Callable[[Reader, int, Metadata], str | None]] = {
    "Array": _array,
    "Dictionary": _ranked,
    "LinkedList": _labelled,
    "List": _labelled,
    "Queue": _queue,
    "Set": _ranked,
    "SortedDictionary": _counted,
    "SortedSet": _counted,
    "SparseArray": _integral,
    "Stack": _stack,
    "Tensor": _integral,
    "Value": _value,
}

KINDS = frozenset(_RULES)
"""The kinds whose slots the store understands."""
