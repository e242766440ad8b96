"""Differences between two checkpoints, slot by slot: they can be read, inverted, and applied as a new checkpoint.

If one checkpoint is the other with later runs on top, only the rows of those runs are looked at, so the time depends on
what changed. Otherwise the two states are compared as streams, object by object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain, islice
from typing import NamedTuple, Self

from checkpoint.errors import REPAIR, CorruptStoreError
from checkpoint.owned import OwnerSlot, owner_slots
from checkpoint.reader import Reader, StoredItem
from checkpoint.run import IndexRow, Payload, Slot, fault_of, is_owner, owned_ids, slot_order

NO_OPTIONS = "{}"
"""What stands for the slot options of an object if the index says nothing of them."""


class Table(StrEnum):
    """Which of the three tables a change is in."""

    INDEX = "index"
    METADATA = "metadata"
    ITEM = "item"


class IndexEntry(NamedTuple):
    """What the index says of an object."""

    name: str
    kind: str
    codec: str | None

    @classmethod
    def of(cls, row: IndexRow) -> Self:
        """Return what a row of the index says."""
        return cls(row[1], row[2] or "", row[3])

    @property
    def options(self) -> str:
        """What it says of the slots of the object: an empty JSON object if it says nothing."""
        return self.codec or NO_OPTIONS


@dataclass(frozen=True, slots=True)
class Change:
    """What one slot held before, and what it holds after.

    Args:
        table: the table of the slot.
        object: the id of the object.
        name: its name afterwards, or before if it is gone; None for an object that another one owns, which is found by
            its id in the slots of its owner.
        kind: its kind, likewise.
        slot: the slot of an item, the key of a metadata value; None for the index.
        old: what was there: the text or bytes as stored, or for the index an :class:`IndexEntry`; None for nothing.
        new: what is there now.
        old_rank: the place of an item in the order of insertion, if its kind keeps one.
        new_rank: the same afterwards.
        owner: for an object that another one owns, the slot of the owner that names its id, as a change of nothing.
            None if that slot is itself among the changes, or is not known.
        codec: what its slots stand for, according to the index: in a dictionary of objects, for example, objects of one
            kind. ``"{}"`` if the index says nothing, None if it is not known. Changes that differ in this alone are
            equal.
    """

    table: Table
    object: int
    name: str | None
    kind: str | None
    slot: Slot | None
    old: Payload | IndexEntry | None
    new: Payload | IndexEntry | None
    old_rank: int | None = None
    new_rank: int | None = None
    owner: Change | None = None
    codec: str | None = field(default=None, compare=False)


def with_values(change: Change) -> Change:
    """Return a change of which both values are there.

    Raises:
        CorruptStoreError: one of them was stored apart from its row, and is lost.
    """
    for value in (change.old, change.new):
        if change.table is Table.ITEM and (fault := fault_of(value)):
            whose = f"object {change.object}" if change.name is None else f"{change.kind} {change.name!r}"
            raise CorruptStoreError(f"slot {change.slot!r:.80} of {whose} is damaged ({fault}): {REPAIR}")
    return change


Pair = tuple[StoredItem | None, StoredItem | None]
"""What a slot holds in two states; never None in both."""


def differences(a: Reader, b: Reader) -> Iterator[Change]:
    """Yield every change that leads from one state to another, object by object: index, metadata, then items.

    Both states stay as they are while the changes are read, whatever happens to their stores. If different objects have
    the same id in the two states, as can happen in forks, all metadata is yielded, even what is the same.

    Args:
        a: the state before.
        b: the state after; it may be older than ``a``, or lie in another store.

    Time: O(rows of the runs between the two, and slots of the objects that were added or deleted); if an owned object
    changed, also O(slots of the objects that own others); O(state) if these runs no longer exist.
    Memory: the ids of the objects that are looked at.
    """
    if between := b.since(a):
        return _LaterRuns(a, b, between).changes()
    if between := a.since(b):
        return invert(_LaterRuns(b, a, between).changes())
    return _Comparison(a, b).changes()


def invert(changes: Iterable[Change]) -> Iterator[Change]:
    """Yield the changes that lead back: ``invert(differences(a, b))`` is ``differences(b, a)``.

    >>> list(invert([Change(Table.ITEM, 1, "a", "Array", 3, "42", None)]))[0].new
    '42'
    """
    renamed: dict[int, IndexEntry] = {}
    for change in changes:
        if isinstance(change.old, IndexEntry):
            # The index entry comes before the items of its object, which go by the name that they will have.
            renamed[change.object] = change.old
        entry = renamed.get(change.object)
        yield replace(
            change,
            name=entry.name if entry else change.name,
            kind=entry.kind if entry else change.kind,
            codec=entry.options if entry else change.codec,
            old=change.new,
            new=change.old,
            old_rank=change.new_rank,
            new_rank=change.old_rank,
            owner=change.owner and _called(change.owner, renamed.get(change.owner.object)),
        )


class _Subject(NamedTuple):
    """The object that changes belong to, as each of them names it: only by the id if another object owns it."""

    object: int
    name: str | None = None
    kind: str | None = None
    codec: str | None = None

    def change(
        self, table: Table, slot: Slot | None, old: Payload | IndexEntry | None, new: Payload | IndexEntry | None
    ) -> Change:
        """Return a change of it."""
        return Change(table, self.object, self.name, self.kind, slot, old, new, codec=self.codec)

    def item_change(self, old: StoredItem | None, new: StoredItem | None) -> Change:
        """Return a change of one of its slots."""
        slot = new.slot if new else old.slot if old else None
        values = old.value if old else None, new.value if new else None
        ranks = old.rank if old else None, new.rank if new else None
        return Change(Table.ITEM, self.object, self.name, self.kind, slot, *values, *ranks, codec=self.codec)


class _Comparison:
    """A comparison of two states as streams; a subclass knows a faster way.

    Args:
        a: the state before.
        b: the state after.
    """

    def __init__(self, a: Reader, b: Reader) -> None:
        self._a, self._b = a, b
        self._ids: set[int] = set()
        self._slots_of_owners: dict[int, OwnerSlot] | None = None

    def changes(self) -> Iterator[Change]:
        """Yield all changes."""
        self._ids = self._objects()
        for object_id in sorted(self._ids):
            found = self._changes_of(object_id)
            first = next(found, None)
            if first is not None:
                owner = self._owner(object_id) if first.name is None else None
                rest = chain([first], found)
                yield from rest if owner is None else (replace(change, owner=owner) for change in rest)

    def _changes_of(self, object_id: int) -> Iterator[Change]:
        before, after = self._a.entry(object_id), self._b.entry(object_id)
        row = after or before
        subject = _subject(row) if row else _Subject(object_id)
        if before != after:
            yield subject.change(Table.INDEX, None, _entry(before), _entry(after))
        in_a, in_b = self._presence(object_id)
        old, new = (self._a.metadata(object_id) if in_a else {}, self._b.metadata(object_id) if in_b else {})
        # If another object has the id, all is yielded, so that it is not applied to one that others have written to
        # since.
        is_other = in_a and in_b and not is_same(_entry(before), _entry(after))
        for key in sorted(old.keys() | new.keys()):
            if is_other or old.get(key) != new.get(key):
                yield subject.change(Table.METADATA, key, old.get(key), new.get(key))
        for pair in self._items(object_id, in_a, in_b):
            yield subject.item_change(*pair)

    def _owner(self, object_id: int) -> Change | None:
        """Return the slot that names the id of an owned object, if it holds the same before and after."""
        slot = self._owner_slots.get(object_id)
        before = self._a.entry(slot.owner[0]) if slot else None
        if slot is None or before is None or self._a.item(before[0], slot.item.slot) != slot.item:
            return None
        return _subject(slot.owner).item_change(slot.item, slot.item)

    @property
    def _owner_slots(self) -> dict[int, OwnerSlot]:
        if self._slots_of_owners is None:
            self._slots_of_owners = owner_slots(self._b, self._ids)
        return self._slots_of_owners

    def _objects(self) -> set[int]:
        """Return the ids of the objects that may differ."""
        self._reachable = self._a.reachable(), self._b.reachable()
        return self._reachable[0] | self._reachable[1]

    def _presence(self, object_id: int) -> tuple[bool, bool]:
        """Return whether an object exists before, and whether after."""
        return object_id in self._reachable[0], object_id in self._reachable[1]

    def _items(self, object_id: int, in_a: bool, in_b: bool) -> Iterator[Pair]:
        """Yield the slots of an object that differ."""
        before = self._a.items(object_id) if in_a else iter(())
        after = self._b.items(object_id) if in_b else iter(())
        return _differences(before, after)


class _LaterRuns(_Comparison):
    """A comparison of a state with a later one that has these runs on top."""

    def __init__(self, a: Reader, b: Reader, between: Reader) -> None:
        super().__init__(a, b)
        self._between = between
        self._owned_before: set[int] = set()
        self._owned_after: set[int] = set()
        self._may_return = between.deletes_objects()
        self._reachable_after: set[int] | None = None

    def _objects(self) -> set[int]:
        touched = self._between.touched()
        for object_id in touched:
            before, after = self._a.entry(object_id), self._b.entry(object_id)
            owned, owns = (row is not None and is_owner(row) for row in (before, after))
            if owned or owns:
                self._may_return |= any(row[1] is None for row in self._between.rows(object_id))
                for old, new in self._items(object_id, before is not None, after is not None):
                    self._owned_before |= owned_ids([old.value] if old and owned else [])
                    self._owned_after |= owned_ids([new.value] if new and owns else [])
        return touched | self._owned_before | self._owned_after

    def _presence(self, object_id: int) -> tuple[bool, bool]:
        # Both may hold for one id: changes of a fork may use the id of a deleted object again.
        in_a = self._a.entry(object_id) is not None or object_id in self._owned_before
        in_b = self._b.entry(object_id) is not None or object_id in self._owned_after
        if in_a or in_b:
            return in_a, in_b
        # The slot that refers to it did not change. Nothing is written to a deleted object, so an object that had rows
        # before still exists; one that had none either was empty, or came and went between the two states. Only if
        # objects were deleted, or changes brought some back, may an object with rows be one that was already gone
        # before.
        had_rows = _has_rows(self._a, object_id) and not self._may_return
        alive = had_rows or object_id in self._alive_after
        return alive, alive

    def _owner(self, object_id: int) -> Change | None:
        is_told = object_id in self._owned_before or object_id in self._owned_after
        return None if is_told else super()._owner(object_id)

    @property
    def _alive_after(self) -> set[int]:
        if self._reachable_after is None:
            self._reachable_after = self._b.reachable()
        return self._reachable_after

    def _items(self, object_id: int, in_a: bool, in_b: bool) -> Iterator[Pair]:
        if not (in_a and in_b):
            yield from super()._items(object_id, in_a, in_b)
            return
        rows, size = self._between.rows(object_id), self._between.page_size()
        while page := list(islice(rows, size.rows)):
            found = self._a.items_at(object_id, [row[0] for row in page])
            size.after([*page, *found], Reader.PAGE_ROWS)
            olds = {row[0]: StoredItem._make(row) for row in found}
            for row in page:
                old, new = olds.get(row[0]), None if row[1] is None else StoredItem._make(row)
                if old != new:
                    yield old, new


def _differences(before: Iterator[StoredItem], after: Iterator[StoredItem]) -> Iterator[Pair]:
    """Yield what differs between two streams in slot order."""
    old, new = next(before, None), next(after, None)
    while old is not None or new is not None:
        order = _compare(old, new)
        if order < 0:
            yield old, None
            old = next(before, None)
        elif order > 0:
            yield None, new
            new = next(after, None)
        else:
            if old != new:
                yield old, new
            old, new = next(before, None), next(after, None)


def _compare(old: StoredItem | None, new: StoredItem | None) -> int:
    """Return which of two slots comes first, -1 or 1; 0 if they are the same. The end comes after every slot."""
    if old is None or new is None:
        return 1 if old is None else -1
    left, right = slot_order(old.slot), slot_order(new.slot)
    return (left > right) - (left < right)


def _entry(row: IndexRow | None) -> IndexEntry | None:
    return None if row is None else IndexEntry.of(row)


def is_same(before: IndexEntry | None, after: IndexEntry | None) -> bool:
    """Return whether two entries belong to one object, which may have been renamed."""
    kinds = [entry and (entry.kind, entry.options) for entry in (before, after)]
    return kinds[0] == kinds[1]


def _subject(row: IndexRow) -> _Subject:
    entry = IndexEntry.of(row)
    return _Subject(row[0], entry.name, entry.kind, entry.options)


def _called(change: Change, entry: IndexEntry | None) -> Change:
    """Return a change as one of the object with this entry; unchanged if there is none."""
    return replace(change, name=entry.name, kind=entry.kind, codec=entry.options) if entry else change


def _has_rows(reader: Reader, object_id: int) -> bool:
    return bool(reader.metadata(object_id)) or next(reader.items(object_id, page_rows=1), None) is not None
