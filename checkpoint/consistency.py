"""Whether the metadata of objects agrees with their slots, as far as a store can tell without their code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson

from checkpoint.errors import RESTORE, CorruptStoreError
from checkpoint.key_order import ORDER, is_sorted, numbers_out_of_order
from checkpoint.owned import owned_kind
from checkpoint.reader import Reader
from checkpoint.run import is_owner, owned_ids

Metadata = dict[str, Any]

RANKED = frozenset({"Dictionary", "Set"})
"""The kinds whose slots have ranks, which keep the order of insertion."""

DENSE_LENGTH = 1024
"""Arrays up to this length store every slot when they are stored first; longer ones only what is assigned."""


def check_objects(reader: Reader, path: str) -> None:
    """Check every object of a state.

    Raises:
        CorruptStoreError: one does not have the slots that its metadata says; with its name.

    Time: O(state). The slots are streamed.
    """
    for object_id, name, kind, codec in reader.index():
        _check(reader, path, object_id, repr(name), kind, codec)
        if is_owner((object_id, name, kind, codec)):
            of = owned_kind(codec)
            for owned in sorted(_owned_by(reader, path, object_id, f"{kind} {name!r}")):
                _check(reader, path, owned, f"{owned} in {name!r}", of, None)


def _owned_by(reader: Reader, path: str, object_id: int, owner: str) -> set[int]:
    """Return the ids of the objects that another one owns, one for each of its slots."""
    found: set[int] = set()
    for item in reader.items(object_id):
        ids = owned_ids([item.value])
        if not ids or ids & found:
            whose = f"that says object {min(ids)}, as another one does" if ids else "that says no object"
            raise _fault(reader, path, owner, f"a slot {item.slot!r} {whose}")
        found |= ids
    return found


def _check(reader: Reader, path: str, object_id: int, name: str, kind: str | None, codec: str | None) -> None:
    if fault := fault_of(reader, object_id, kind, codec):
        raise _fault(reader, path, f"{kind} {name}", fault)


def fault_of(reader: Reader, object_id: int, kind: str | None, codec: str | None) -> str | None:
    """Return what is wrong with an object in words, None where nothing is.

    Args:
        reader: the state.
        object_id: the object.
        kind: its kind; of one that the store knows nothing of, nothing is found.
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
        return f"metadata that is none ({error!r})"


def _fault(reader: Reader, path: str, what: str, fault: str) -> CorruptStoreError:
    return CorruptStoreError(
        f"{path}: the {what} has {fault} at checkpoint {reader.newest}: roll it back to one that is sound, or {RESTORE}"
    )


def _counted(reader: Reader, object_id: int, metadata: Metadata) -> str | None:
    """A length says how many slots there are."""
    length = metadata["length"]
    return _compare(reader.count(object_id), length[0] if isinstance(length, list) else length)


def _ranked(reader: Reader, object_id: int, metadata: Metadata) -> str | None:
    """Where ranks have gaps the length comes with the next one, which no slot has yet."""
    if fault := _counted(reader, object_id, metadata):
        return fault
    length = metadata["length"]
    following, last = length[1] if isinstance(length, list) else length, reader.last_rank(object_id)
    is_taken = last is not None and last >= following
    return f"a slot of rank {last} where its metadata says that {following} is the next one" if is_taken else None


def _array(reader: Reader, object_id: int, metadata: Metadata) -> str | None:
    """Slots are indexes below the length; in a long one those that hold the default may be absent."""
    slots = range(metadata["length"])
    return (_exact if len(slots) <= DENSE_LENGTH else _inside)(reader, object_id, slots)


def _queue(reader: Reader, object_id: int, metadata: Metadata) -> str | None:
    return _exact(reader, object_id, range(metadata["head"], metadata["tail"]))


def _stack(reader: Reader, object_id: int, metadata: Metadata) -> str | None:
    return _exact(reader, object_id, range(metadata["count"]))


def _value(reader: Reader, object_id: int, metadata: Metadata) -> str | None:
    return _first(item.slot for item in reader.items(object_id) if item.slot != "value")


def _order_fault(reader: Reader, object_id: int, metadata: Metadata) -> str | None:
    """Keys that SQLite has no number for do not sort as their slots: of an object that has one that is said."""
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
    "LinkedList": _counted,
    "List": _counted,
    "Queue": _queue,
    "Set": _ranked,
    "SortedDictionary": _counted,
    "SortedSet": _counted,
    "SparseArray": _counted,
    "Stack": _stack,
    "Tensor": _counted,
    "Value": _value,
}
