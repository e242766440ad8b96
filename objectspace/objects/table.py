"""The slot table: values by key, of which some or all are in memory, and what changed since the last save."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from checkpoint.reader import StoredItem
from checkpoint.run import Slot
from objectspace.codec import ATOMS
from objectspace.objects.base import ABSENT, Fingerprint, Row, unchanged

WHOLE_SLOTS = 1024
"""Objects of at most so many slots are read whole when they are touched first."""

PROMOTE_SHARE = 8
"""An object of which more than one eighth was read slot by slot is read whole, where it fits."""

STORED: Any = Fingerprint(-1)
"""Stands for a stored value that must be written over whatever it is, because its rank has changed."""

_get = dict.get
_put = dict.__setitem__
_drop = dict.pop


class SlotTable:
    """The slots of one object by key.

    Invariants: a key of ``edits`` is in ``live``; a key of ``gone`` is not; both hold what is stored of their keys
    (:data:`ABSENT` where nothing is). ``flight`` holds the same of the page that is being committed.

    Args:
        owner: the object that the slots belong to.
        live: the dictionary for values in memory; the handle itself where it is one.
        is_ranked: whether the order of insertion is kept, in the ranks of the rows.
    """

    def __init__(self, owner: Any, live: dict[Any, Any] | None = None, *, is_ranked: bool) -> None:
        self.owner = owner
        self.live: dict[Any, Any] = {} if live is None else live
        self.edits: dict[Any, Any] = {}
        self.gone: dict[Any, Any] = {}
        self.flight: dict[Any, Any] | None = None
        self.prints: dict[Any, int] = {}
        self.ranks: dict[Any, int] | None = {} if is_ranked else None
        self.next_rank = 0
        self.rank_base = 0
        self.rank_flight = 0
        self.complete = True
        self.count = 0
        self.faults = 0
        self._new_prints: dict[Any, int] = {}

    def __len__(self) -> int:
        return dict.__len__(self.live) if self.complete else self.count

    def begin_cold(self, count: int, next_rank: int = 0) -> None:
        """Forget all memory of a stored object of ``count`` slots."""
        dict.clear(self.live)
        self.edits, self.gone, self.flight, self.prints = {}, {}, None, {}
        self.ranks = None if self.ranks is None else {}
        self.complete, self.count, self.faults = False, count, 0
        self.next_rank = self.rank_base = self.rank_flight = next_rank

    def read(self, key: Any) -> Any:
        """Return the value of a key, from memory or else from the store; :data:`ABSENT` where there is none."""
        value = _get(self.live, key, ABSENT)
        if value is ABSENT and not self.complete:
            return self._fault(key)
        return value

    def write(self, key: Any, value: Any) -> None:
        """Set the value of a key."""
        if key not in self.edits:
            self.note(key)
        _put(self.live, key, value)

    def note(self, key: Any) -> None:
        """Remember what is stored of a key that is about to be set for the first time on this page."""
        self.owner._home.touch(self.owner)
        if self.owner._fresh:
            return
        stored = ABSENT if key in self.gone else self._stored(key)
        if stored is ABSENT:
            self.enter(key)
        else:
            self.edits[key] = stored

    def enter(self, key: Any) -> None:
        """Note a key that is new, or comes back after it was removed: at the end where the order of insertion counts."""
        stored = self.gone.pop(key, ABSENT)
        self.count += 1
        if self.ranks is not None:
            self.ranks[key] = self.next_rank
            self.next_rank += 1
            stored = stored if stored is ABSENT else STORED
        self.edits[key] = stored

    def delete(self, key: Any) -> Any:
        """Remove a key and return its value, :data:`ABSENT` where there was none."""
        value = self.read(key)
        if value is ABSENT:
            return ABSENT
        self.owner._home.touch(self.owner)
        if not self.owner._fresh:
            stored = self.edits.pop(key) if key in self.edits else self._stored(key)
            if stored is not ABSENT:
                self.gone[key] = stored
            self.prints.pop(key, None)
            self.count -= 1
            if self.ranks is not None:
                self.ranks.pop(key, None)
        _drop(self.live, key)
        return value

    def clear(self) -> None:
        """Remove every key; beyond a few stored slots by leaving them behind under the old id of the object.

        Dirties: one row a stored slot up to 32 of them, otherwise two index rows.
        """
        if not len(self):
            return
        self.owner._home.touch(self.owner)
        if not self.owner._fresh and len(self) <= 32:
            for key in list(self.keys()):
                self.delete(key)
            return
        self.restart()

    def restart(self) -> None:
        """Become empty under a new id, where nothing is stored yet."""
        if not self.owner._fresh:
            self.owner._home.renumber(self.owner)
        dict.clear(self.live)
        self.edits, self.gone, self.flight, self.prints = {}, {}, None, {}
        self.ranks = None if self.ranks is None else {}
        self.complete, self.count = True, 0
        self.next_rank = self.rank_base = self.rank_flight = 0

    def rows(self) -> list[Row]:
        """Return the rows of the open page."""
        if self.owner._fresh:
            return self._all_rows()
        rows: list[Row] = []
        prints: dict[Any, int] = {}
        live, encode, slot_of, ranks = self.live, self.owner._text, self.owner._slot, self.ranks
        if ranks is not None:
            # Ranks of keys that came and went between two saves are free again: such keys leave no trace.
            self.next_rank = max(self.rank_base, max((ranks[key] for key in self.edits), default=-1) + 1)
        for key, stored in self.edits.items():
            value = _get(live, key)
            text = encode(key, value)
            if type(value) not in ATOMS:
                prints[key] = hash(text)
            elif key in self.prints:
                del self.prints[key]
            if stored is ABSENT or not unchanged(stored, value, text):
                rows.append((slot_of(key), text, None if ranks is None else ranks[key]))
        rows += [(slot_of(key), None, None) for key in self.gone]
        self._new_prints = prints
        return rows

    def turn(self) -> None:
        """Open a new page; the one so far is in flight."""
        self.prints.update(self._new_prints)
        if self.owner._fresh:
            self.flight = {}
            if self.ranks is not None:
                self.ranks = {key: rank for rank, key in enumerate(dict.keys(self.live))}
                self.next_rank = len(self.ranks)
        else:
            self.flight = self.edits | self.gone
        self.rank_flight, self.rank_base = self.rank_base, self.next_rank
        self.edits, self.gone = {}, {}
        self.count = len(self)

    def settle(self, durable: bool, was_fresh: bool) -> None:
        """Drop the page in flight, or take it back where it is not durable."""
        flight, self.flight = self.flight or {}, None
        if durable:
            return
        self.rank_base = self.rank_flight
        if was_fresh:
            self.edits, self.gone = {}, {}
            return
        for key, stored in flight.items():
            self.edits.pop(key, None)
            self.gone.pop(key, None)
            if dict.__contains__(self.live, key):
                self.edits[key] = STORED if self.ranks is not None and stored is not ABSENT else stored
            elif stored is not ABSENT:
                self.gone[key] = stored

    def load_all(self) -> None:
        """Read what is not in memory yet.

        Time: O(stored slots).
        """
        if self.complete:
            return
        merged = {}
        for key, value, item in self.stream():
            merged[key] = value
            if item is not None:
                self._remember(key, value, item)
        if self.owner._counts_slots and len(merged) != self.count:
            self.owner._damaged("length", self.count, f"{len(merged)} slots are stored")
        dict.clear(self.live)
        dict.update(self.live, merged)
        self.complete, self.count = True, len(merged)
        self.owner._home.account(self.owner, len(merged))

    def stream(self) -> Iterator[tuple[Any, Any, StoredItem | None]]:
        """Yield (key, value, item) of every slot in the order of the object, without keeping what is read.

        The item is what was read of a slot that is not in memory, else ``None``.
        """
        return self._stream_ranked() if self.ranks is not None else self.scan()

    def scan(
        self, lower: Slot | None = None, upper: Slot | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[Any, Any, StoredItem | None]]:
        """Yield (key, value, item) in slot order, with ``lower <= slot <= upper`` where bounds are given."""
        overlay = self._overlay(lower, upper, reverse)
        if self.owner._fresh:
            return iter(overlay)
        stored = self._stored_between(lower, upper, reverse)
        return heapq.merge(stored, overlay, key=lambda entry: order_of(self.owner._slot(entry[0])), reverse=reverse)

    def keys(self) -> Iterator[Any]:
        """Yield every key in the order of the object."""
        if self.complete:
            return iter(dict.keys(self.live))
        return (key for key, _, _ in self.stream())

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Yield every (key, value) in the order of the object."""
        if self.complete:
            return iter(dict.items(self.live))
        return ((key, value) for key, value, _ in self.stream())

    def shrink(self) -> int:
        """Drop clean slots from memory; return how many stay."""
        if self.owner._fresh:
            return dict.__len__(self.live)
        self.count = len(self)
        kept = {key: value for key, value in dict.items(self.live) if self._is_dirty(key)}
        dict.clear(self.live)
        dict.update(self.live, kept)
        self.prints = {key: value for key, value in self.prints.items() if key in kept}
        if self.ranks is not None:
            self.ranks = {key: rank for key, rank in self.ranks.items() if key in kept}
        self.complete, self.faults = False, 0
        return len(kept)

    def stored_differences(self) -> Iterator[Any]:
        """Yield the keys whose value in memory is not the stored one although they were not set."""
        if self.owner._fresh:
            return
        for key, value in dict.items(self.live):
            if type(value) not in ATOMS and not self._is_dirty(key):
                stored = self.prints.get(key)
                if stored is not None and stored != hash(self.owner._text(key, value)):
                    yield key

    def check(self) -> None:
        """Assert the invariants of the table."""
        live = dict.keys(self.live)
        assert self.edits.keys() <= live, f"edited but not in memory: {self.edits.keys() - live}"
        assert not self.gone.keys() & live, f"gone but in memory: {self.gone.keys() & live}"
        assert not self.edits.keys() & self.gone.keys()
        assert ABSENT not in self.gone.values(), "gone but never stored"
        if not self.owner._fresh:
            assert not self.complete or self.owner._is_open() or self.count == len(live), (self.count, len(live))
            assert self.ranks is None or self.owner._is_open() or self.ranks.keys() == live
        assert not (self.owner._fresh and (self.edits or self.gone)), "a fresh object needs no edits"

    def _is_dirty(self, key: Any) -> bool:
        return key in self.edits or key in self.gone or (self.flight is not None and key in self.flight)

    def _stored(self, key: Any) -> Any:
        """Return what is stored of a key: an atom, the fingerprint of another value, or :data:`ABSENT`."""
        value = self.read(key)
        if value is ABSENT or type(value) in ATOMS:
            return value
        return Fingerprint(self.prints[key])

    def _fault(self, key: Any) -> Any:
        """Read one slot that is not in memory."""
        if key in self.gone or (self.flight is not None and key in self.flight):
            return ABSENT
        item = self.owner._home.reader().item(self.owner._id, self.owner._slot(key))
        if item is None:
            return ABSENT
        stored_key, value = self.owner._key_value(item)
        _put(self.live, stored_key, value)
        self._remember(stored_key, value, item)
        self.faults += 1
        self.owner._home.account(self.owner, dict.__len__(self.live))
        if self.faults * PROMOTE_SHARE > self.count and self.count * 2 <= self.owner._home.cache_slots:
            self.owner._load_whole()
        return value

    def _remember(self, key: Any, value: Any, item: StoredItem) -> None:
        if type(value) not in ATOMS:
            self.prints[key] = hash(item.value)
        if self.ranks is not None and item.rank is not None:
            self.ranks[key] = item.rank

    def _all_rows(self) -> list[Row]:
        text, slot_of, is_ranked = self.owner._text, self.owner._slot, self.ranks is not None
        rows: list[Row] = []
        prints: dict[Any, int] = {}
        for rank, (key, value) in enumerate(dict.items(self.live)):
            encoded = text(key, value)
            if type(value) not in ATOMS:
                prints[key] = hash(encoded)
            rows.append((slot_of(key), encoded, rank if is_ranked else None))
        self._new_prints = prints
        return rows

    def _stream_ranked(self) -> Iterator[tuple[Any, Any, StoredItem | None]]:
        assert self.ranks is not None
        size, seen = len(self), set()
        if not self.owner._fresh:
            for item in self.owner._home.reader().items_by_rank(self.owner._id):
                key, value = self.owner._key_value(item)
                if dict.__contains__(self.live, key):
                    if self.ranks[key] != item.rank:
                        continue
                    seen.add(key)
                    yield key, _get(self.live, key), None
                elif not self._is_dirty(key):
                    yield key, value, item
                self._refuse_change(size)
        moved = [key for key in dict.keys(self.live) if key not in seen]
        for key in sorted(moved, key=self.ranks.__getitem__):
            yield key, _get(self.live, key), None
            self._refuse_change(size)

    def _stored_between(
        self, lower: Slot | None, upper: Slot | None, reverse: bool
    ) -> Iterator[tuple[Any, Any, StoredItem | None]]:
        size = len(self)
        for item in self.owner._home.reader().items(self.owner._id, lower, upper, reverse=reverse):
            key, value = self.owner._key_value(item)
            if not self._is_dirty(key):
                known = _get(self.live, key, ABSENT)
                yield (key, value, item) if known is ABSENT else (key, known, None)
                self._refuse_change(size)

    def _overlay(
        self, lower: Slot | None, upper: Slot | None, reverse: bool
    ) -> list[tuple[Any, Any, StoredItem | None]]:
        """Return the slots that must come from memory: all of a fresh object, the changed ones of a stored one."""
        found = []
        for key, value in dict.items(self.live):
            if self.owner._fresh or self._is_dirty(key):
                place = order_of(self.owner._slot(key))
                if (lower is None or order_of(lower) <= place) and (upper is None or place <= order_of(upper)):
                    found.append((place, (key, value, None)))
        found.sort(key=lambda entry: entry[0], reverse=reverse)
        return [entry for _, entry in found]

    def _refuse_change(self, size: int) -> None:
        if len(self) != size:
            raise RuntimeError(f"{self.owner._describe()} changed size during iteration")


def order_of(slot: Slot) -> tuple[int, Any]:
    """Return what sorts slots as SQLite does: numbers, then text, then bytes."""
    return (2 if isinstance(slot, bytes) else 1 if isinstance(slot, str) else 0), slot
