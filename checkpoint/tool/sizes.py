"""How large objects are: the bytes of their slots, including those of the objects that they own."""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from checkpoint.run import is_owner, owned_ids
from checkpoint.store import CheckpointStore
from checkpoint.tool.content import State
from checkpoint.tool.raw import key_and_value
from checkpoint.tool.source import query


@dataclass(frozen=True)
class Owned:
    """An object that another one owns.

    Args:
        key: its key in its owner.
        kind: its kind.
        length: how many elements it has.
        bytes: how large it is.
        shard: of a space, the number of the shard that holds it.
    """

    key: Any
    kind: str
    length: int
    bytes: int
    shard: int | None = None


class Sizes:
    """The sizes of the objects of a state, added up by SQLite. Memory: 16 bytes for each owned object.

    Args:
        store: the store.
        state: the state.
    """

    def __init__(self, store: CheckpointStore, state: State) -> None:
        self._store, self._state = store, state
        self._owned: dict[str, array[int]] = {}
        for name, row in state.index.items():
            if is_owner(row):
                # In order, so that they are found by bisection: a million of them take 8 MB this way.
                ids = array("q")
                for item in state.reader.items(row[0]):
                    ids.extend(owned_ids([item.value]))
                self._owned[name] = array("q", sorted(ids))
        self._sizes = {name: array("q", bytes(8 * len(ids))) for name, ids in self._owned.items()}
        self.bytes: Counter[str] = Counter()
        names = {row[0]: name for name, row in state.index.items()}
        for object_id, size in _sizes(store, state):
            if object_id in names:
                self.bytes[names[object_id]] += size
            else:
                self._add_owned(object_id, size)

    def _add_owned(self, object_id: int, size: int) -> None:
        for name, ids in self._owned.items():
            place = bisect_left(ids, object_id)
            if place < len(ids) and ids[place] == object_id:
                self.bytes[name] += size
                self._sizes[name][place] += size
                return

    def owned(self, name: str, most: int) -> tuple[list[Owned], int]:
        """Return the largest objects that an object owns, and how many others there are.

        Args:
            name: the owner.
            most: how many to return at most.
        """
        if partitions := self._state.partitions(name):
            return self._partitions(partitions, most)
        ids, sizes = self._owned.get(name, array("q")), self._sizes.get(name, array("q"))
        if not ids or not most:
            return [], len(ids)
        chosen = dict(heapq.nlargest(most, zip(ids, sizes, strict=True), key=lambda pair: (pair[1], -pair[0])))
        object_id, _, _, codec = self._state.find(name)
        kind = str(orjson.loads(codec or "{}").get("of"))
        found = []
        for item in self._state.reader.items(object_id):
            for one in owned_ids([item.value]):
                if one in chosen:
                    key, _ = key_and_value(item.slot, item.value)
                    length = self._state.length_of(one, kind, f"{name}[{key}]")
                    found.append(Owned(key, kind, length, chosen[one]))
        return sorted(found, key=lambda owned: -owned.bytes), len(ids) - len(found)

    def _partitions(self, names: list[str], most: int) -> tuple[list[Owned], int]:
        found = [
            Owned(f"partition {name.rpartition('/')[2]}", self._state.kind_of(name), self._state.length(name), size)
            for name, size in ((name, self.bytes[name] + self.bytes[f"{name}/version"]) for name in names)
        ]
        return sorted(found, key=lambda owned: -owned.bytes)[:most], max(0, len(found) - most)


def dirty_slots(store: CheckpointStore, state: State) -> Counter[str]:
    """Return how many slots the checkpoint that is read has written, by object; what one owns counts as its own."""
    statement = "SELECT object, count(*) FROM state_item WHERE checkpoint = ? GROUP BY object"
    names = {row[0]: name for name, row in state.index.items()}
    found: Counter[str] = Counter()
    strangers = []
    for object_id, count in query(store, statement, state.reader.newest):
        if object_id in names:
            found[names[object_id]] += count
        else:
            strangers.append((object_id, count))
    return found + _of_owners(state, dict(strangers)) if strangers else found


def _of_owners(state: State, counts: dict[int, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, row in state.index.items():
        if is_owner(row):
            for item in state.reader.items(row[0]):
                found[name] += sum(counts.get(one, 0) for one in owned_ids([item.value]))
    return found


def _sizes(store: CheckpointStore, state: State) -> Iterator[tuple[int, int]]:
    """Yield ids of objects and bytes to add to what they have, some more than once.

    The oldest run, which is the largest if there is a base, is added up as it is. Of the newer ones SQLite finds the
    newest row of each slot by sorting, outside memory if necessary, and only that is looked up in the oldest.
    """
    *newer, oldest = state.reader.runs or (-1,)
    yield from query(
        store, f"SELECT object, sum({_BYTES}) FROM stored_item WHERE checkpoint = {oldest} GROUP BY object"
    )
    if newer:
        replaced = (
            f"SELECT {_BYTES} FROM stored_item AS o"
            f" WHERE checkpoint = {oldest} AND o.object = n.object AND o.slot = n.slot"
        )
        yield from query(
            store,
            f"SELECT object, sum(bytes - coalesce(({replaced}), 0)) FROM ("
            f" SELECT object, slot, {_BYTES} AS bytes, max(checkpoint) FROM stored_item"
            f" WHERE checkpoint IN ({','.join(map(str, newer))}) GROUP BY object, slot) AS n GROUP BY object",
        )


_BYTES = "iif(value IS NULL, 0, length(CAST(slot AS BLOB)) + length(CAST(value AS BLOB)))"
