"""Objects that others own have no name: the slot of the owner that holds the id tells whose one is."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import orjson

from checkpoint.reader import Reader, StoredItem
from checkpoint.run import IndexRow, Payload, Slot, is_owner, owned_ids


class OwnerSlot(NamedTuple):
    """The slot that holds the id of an owned object, and the index row of the owner."""

    owner: IndexRow
    item: StoredItem


def owner_slots(reader: Reader, ids: Collection[int]) -> dict[int, OwnerSlot]:
    """Return the slots that hold the ids of owned objects, by id: none for an object that nobody owns.

    Args:
        reader: the state.
        ids: the objects.

    Time: O(slots of the objects that own others), inside SQLite. Memory: the slots that are found.
    """
    found: dict[int, OwnerSlot] = {}
    for row in filter(is_owner, reader.index()):
        for item in map(StoredItem._make, reader.items_at(row[0], reader.slots_naming(row[0], ids))):
            found |= dict.fromkeys(owned_ids([item.value]), OwnerSlot(row, item))
    return found


def owned_kind(codec: str | None) -> str | None:
    """Return the kind of the objects that another one owns, according to its index row; None if that names none.

    >>> owned_kind('{"of":"List"}'), owned_kind(None)
    ('List', None)
    """
    found = orjson.loads(codec or "{}").get("of")
    return found if isinstance(found, str) else None


def member(owner: str | None, slot: Slot | None, value: Payload | None) -> str:
    r"""Return an owned object in words: its owner by name, and its key.

    Args:
        owner: the name of the owner.
        slot: the slot that holds the id.
        value: what the slot holds, which also tells the key if the slot alone does not.

    >>> member("groups", "a", '{"$object":3}'), member("groups", b"\x13ab", '{"$object":3}')
    ("groups['a']", "groups[b'ab']")
    """
    return f"{owner}[{_key(slot, value)!r}]"


def _key(slot: Slot | None, value: Payload | None) -> Any:
    stored = orjson.loads(value or "null")
    if isinstance(stored, dict) and "$key" in stored:
        return stored["$key"]
    return slot[1:] if isinstance(slot, bytes) else slot
