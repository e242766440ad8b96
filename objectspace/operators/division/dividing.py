"""Dividing shards: the rows of a new one, taken from the shards that there were."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from checkpoint import CheckpointStore
from checkpoint.chain import Division
from checkpoint.run import Page
from objectspace import ObjectDictionary, PersistedObjectSpace, Set
from objectspace.codec import dataclasses_kept
from objectspace.objects import RawSortedDictionary
from objectspace.objects.limits import SLOT_BYTES
from objectspace.operators.division.agreement import copy_notes
from objectspace.operators.division.rules import Rule
from objectspace.operators.division.shard import MAPPINGS, OldShard, is_note
from objectspace.operators.division.vnodes import owner_of

_FLUSH_SLOTS = 256 * 1024
"""How many slots, large ones counted as several, are divided before what has become of them is written to the disk."""

_CACHE_SLOTS = 256 * 1024
"""How many clean slots are kept in memory: of the shard that is read, and as many of the new one."""


@contextmanager
def divide(division: Division, parts: Iterator[tuple[int, CheckpointStore]], folder: Path) -> Iterator[Iterator[Page]]:
    """Give the rows of a new shard, page by page.

    They follow from the rows of the old ones alone, to the last object id: what is written later names these ids, and
    another machine divides again. So the order in which objects are made here is part of the format.

    Args:
        division: which shard, and by which rule.
        parts: the shards that it is made of, by their numbers; each is open until the next one is asked for.
        folder: an empty one, for as long as this takes.

    Raises:
        ObjectSpaceError: nothing tells where a slot belongs.

    Time: O(slots of the old shards); memory: some of them, and the largest object that another one owns. Dirties: the
    folder.
    """
    rule = Rule.of(division.rule, f"shard {division.shard} of {division.operator!r}")
    if rule.is_whole:
        _, store = next(parts)
        yield store.reader().image_pages()
        return
    with PersistedObjectSpace.open(folder / "new.db", durability="normal", cache_slots=_CACHE_SLOTS) as space:
        new = _NewShard(division.shard, division.shards, space)
        with dataclasses_kept():
            for number, store in parts:
                with closing(PersistedObjectSpace(store, cache_slots=_CACHE_SLOTS)) as old:
                    new.take_all(OldShard(division.operator, number, division.before, rule, old))
            space.checkpoint()
        yield space.store.reader().image_pages()


class _NewShard:
    """A shard that is filled.

    Args:
        number: its number.
        shards: how many there are from now on.
        space: its space, in a store of its own.
    """

    def __init__(self, number: int, shards: int, space: PersistedObjectSpace) -> None:
        self._space, self._number, self._shards = space, number, shards
        self._taken = 0

    def take_all(self, old: OldShard) -> None:
        """Take from an old shard what belongs to this one."""
        for name in old.space:
            if is_note(name):
                self._space.get_or_create_dictionary(name)
            else:
                self._take(old, name, old.space.get(name))
        for name, known in old.notes().items():  # At last: to create an object forgets what is noted under its name.
            copy_notes(old.place(name), known, self._space.get_or_create_dictionary(name))

    def _take(self, old: OldShard, name: str, source: Any) -> None:
        target = self._twin(source)
        for vnode, key, value in old.slots(name):
            if owner_of(vnode, self._shards) != self._number:
                continue
            if self._taken >= _FLUSH_SLOTS:
                self._space.checkpoint()
                self._taken = 0
            if isinstance(source, ObjectDictionary):
                target[key] = contents = _contents(value)
                self._taken += 1 + _slots(contents)
            elif source.kind in MAPPINGS:
                target[key] = value
                self._taken += 1 + _text_bytes(value) // SLOT_BYTES
            else:
                target.add(key)
                self._taken += 1 + _text_bytes(key) // SLOT_BYTES

    def _twin(self, source: Any) -> Any:
        """Return the object of the same name and kind."""
        space, name = self._space, source.name
        if source.kind == "Dictionary":
            member = source._member.kind if isinstance(source, ObjectDictionary) else None
            return space.get_or_create_dictionary(name, member)
        if source.kind == "SortedDictionary":
            return space.get_or_create_sorted_dictionary(name, raw=isinstance(source, RawSortedDictionary))
        is_sorted = source.kind == "SortedSet"
        return space.get_or_create_sorted_set(name) if is_sorted else space.get_or_create_set(name)


def _slots(contents: Any) -> int:
    """Return as how many slots the contents of an owned object count, large ones as several."""
    if not isinstance(contents, dict | list | deque):
        return _text_bytes(contents) // SLOT_BYTES
    values = contents.values() if isinstance(contents, dict) else contents
    return len(values) + sum(map(_text_bytes, values)) // SLOT_BYTES


def _text_bytes(value: Any) -> int:
    """Return about how many bytes of text a value has, by itself or in the columns of a row."""
    columns = value if isinstance(value, list | tuple) else (value,)
    return sum(len(column) for column in columns if isinstance(column, str | bytes))


def _contents(member: Any) -> Any:
    """Return what an owned object holds, in its order."""
    return list(member) if isinstance(member, Set) else member.copy()
