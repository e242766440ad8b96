"""What the sorted kinds share: keys in order, in memory if all are there and through SQLite if they are not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, dropwhile, islice, repeat
from operator import ge, gt, itemgetter, le, lt
from typing import Any, NoReturn

from sortedcontainers import SortedKeyList, SortedList

from checkpoint.process import collecting_seldom
from checkpoint.run import Slot
from objectspace import keys
from objectspace.errors import shown
from objectspace.keys import INT64_MAX, INT64_MIN
from objectspace.objects import scans
from objectspace.objects.base import ABSENT
from objectspace.objects.columns import ALONE
from objectspace.objects.keyed import KeyedObject
from objectspace.objects.torn import undivided
from objectspace.objects.variants import is_cold

_HAS_PLACE: dict[Any, Callable[[Any], bool]] = {
    int: lambda key: INT64_MIN <= key <= INT64_MAX,
    str: str.isascii,
    bytes: lambda key: True,
}
"""Tells, for a key of a type whose keys all compare, whether its place in the order of slots is clear at once."""


_ALL_COMPARE: list[set[type]] = [{int}, {str}, {bytes}]
"""Types of which every key has a place, or none has: one that is refused is the first."""


class SortedObject(KeyedObject):
    """An object whose keys are in order.

    The keys of one object must be comparable with each other in Python. In the store the order is that of the slots, so
    a large object is read in order without being in memory. Integers beyond 64 bits, Decimals, and times that the
    clocks of a zone show twice or never have no place in that order: an object that holds one is always read whole, and
    a metadata row says so from the first one on.
    """

    _sorted: SortedList | None
    """The keys in order, as they were before ``_unsorted`` came and ``_removed`` went; ``None`` if they must be ordered
    again, and during a change."""
    _in_slot_order: bool
    _changes = 0
    """How often keys came or went: an iteration over those in memory goes on as long as this is the same."""

    def _configure(self, options: dict[str, Any]) -> None:
        self._start_order()

    def _start_order(self) -> None:
        """Begin with no key in memory."""
        self._changes += 1
        self._in_slot_order, self._sample = True, ABSENT
        self._forget_order()
        self._simple: type | None = None

    def _forget_order(self) -> None:
        """Have the keys ordered again when their order is asked for."""
        self._sorted = None
        self._unsorted: list[Any] = []
        self._removed: list[Any] = []

    @property
    def _order(self) -> SortedList:
        """The keys in order; those that came or went lately are sorted in or out only now, all at once."""
        order = self._sorted
        if order is None or self._unsorted or self._removed:
            with self._home.mutex:  # Another thread may be ordering them, or dropping clean slots from memory.
                return self._ordered()
        return order

    def _ordered(self) -> SortedList:
        """Return the keys in order after what came and went has been sorted in and out."""
        order = self._sorted
        if order is None or self._unsorted or self._removed:
            self._sorted = None
            if order is not None:
                self._bring_up(order)
            if order is None or len(order) != len(self._table.live):  # An edit was interrupted halfway.
                order = _in_order(self._table.live)
            self._sorted, self._unsorted, self._removed = order, [], []
        return order

    def _bring_up(self, order: SortedList) -> None:
        """Bring an order up to date: a key that went may have come back."""
        new = self._unsorted
        if self._removed:
            for key in self._removed:
                order.discard(key)
            new = [key for key in dict.fromkeys(chain(self._removed, new)) if key in self._table.live]
        order.update(new)

    def _warm(self) -> type:
        warm = super()._warm()
        if not self._in_slot_order:
            self._load_whole()
        return warm

    def _go_cold(self) -> None:
        super()._go_cold()
        self._start_order()

    def _extent(self) -> tuple[int, int]:
        stored = self._load_metadata("length")
        self._in_slot_order = stored.get("order", "slot") == "slot"
        return stored["length"], 0

    def _metadata(self) -> dict[str, Any]:
        length = {"length": len(self._table)}
        return length if self._in_slot_order else {**length, "order": "memory"}

    def _load_whole(self) -> None:
        self._forget_order()
        super()._load_whole()

    def _shrink(self, *, gently: bool) -> None:
        if self._in_slot_order and self._can_shrink(gently):
            self._table.shrink()
            self._forget_order()

    @undivided
    def _put(self, key: Any, value: Any) -> None:
        """Set the value of a key that may be new."""
        table = self._table
        kind: Any = type(key)
        if kind is not self._simple or not table.complete:
            self._put_with_care(key, value)
            return
        if key in table.live:
            if not self._fresh and key not in table.edits:
                table.remember_old(key)
        elif _HAS_PLACE[kind](key):
            self._home.touch(self)
            self._changes += 1
            self._unsorted.append(key)
            if not self._fresh:
                table.add_key(key)
        else:
            self._put_with_care(key, value)
            return
        table.live[key] = value

    def _put_with_care(self, key: Any, value: Any) -> None:
        """Set the value of a key that is not yet known to have a place among the others."""
        if self._table.read(key) is not ABSENT:
            self._table.write(key, value)
        else:
            self._put_new(key, value)

    @collecting_seldom()
    @undivided
    def _put_all(self, pairs: dict[Any, Any]) -> None:
        """Set the values of many keys: what is stored of them is read together."""
        table = self._table
        table.expect(len(pairs))
        with self._home.mutex:
            table.fetch(pairs)
            self._put_fetched(pairs)

    def _put_fetched(self, pairs: dict[Any, Any]) -> None:
        """Set the values of many keys; those of them that are not in memory are not stored."""
        table = self._table
        if not any(map({*map(type, pairs)}.__le__, _ALL_COMPARE)):
            self._require_places([key for key in pairs if key not in table.live])
        for key, value in pairs.items():
            (self._put if key in table.live or table.complete else self._put_new)(key, value)

    def _put_new(self, key: Any, value: Any) -> None:
        """Set the value of a key that is not there yet."""
        self._check_new(key)
        self._put_checked(key, value)

    @undivided
    def _put_checked(self, key: Any, value: Any) -> None:
        """Set the value of a key that is not there yet and has a place among the others: nothing is read."""
        self._home.touch(self)
        if self._in_slot_order and not keys.keeps_order(key):
            self._load_whole()
            self._in_slot_order = False
        self._changes += 1
        order = None
        if self._table.complete:
            order, self._sorted = self._order, None
            order.add(key)
        self._table.write_new(key, value)
        self._sorted = order
        self._sample = key
        # Keys of these types compare with all others of their type: the next ones need no second look.
        self._simple = type(key) if type(key) in _HAS_PLACE else None

    def _require_places(self, new: list[Any]) -> None:
        """Refuse keys if one of them has no place among the others, before any of them is there."""
        for key in new:
            self._check_new(key)
        _ = sorted(new)

    def _check_new(self, key: Any) -> None:
        """Refuse a key that has no place among the others."""
        keys.check_sortable(key)
        self._compare(key)

    def _compare(self, key: Any) -> None:
        """Refuse a key that does not compare with the others."""
        if len(self._table):
            if self._sample is ABSENT:
                self._sample = next(self._keys())
            _ = key < self._sample

    @undivided
    def _take(self, key: Any) -> Any:
        """Remove a key and return its value, :data:`ABSENT` if it is not there."""
        if not self._table.complete:
            value = self._table.delete(key)
            self._changes += value is not ABSENT
            return value
        order, self._sorted = self._order, None
        value = self._table.delete(key)
        if value is not ABSENT:
            self._changes += 1
            try:
                order.remove(key)
            except (TypeError, ValueError):
                # Not found by its place, so all are sorted again. A complex number may be equal to a key, a time
                # that a clock shows twice or never may be neither before nor after another one.
                return value
        self._sorted = order
        return value

    @undivided
    def _take_all(self, unwanted: list[Any]) -> None:
        """Remove those of many keys that are there; their order is looked at when it is asked for."""
        order, self._sorted = self._sorted, None
        self._changes += self._table.delete_all(unwanted) > 0
        self._removed += unwanted
        is_worth = order is not None and len(self._removed) + len(self._unsorted) <= len(self._table.live)
        if is_worth and ALONE.issuperset(map(type, unwanted)):
            self._sorted = order
        else:
            self._forget_order()

    @undivided
    def _empty(self) -> None:
        self._sorted = None
        self._table.clear()
        self._start_order()

    def _keys(
        self,
        lower: Any = None,
        upper: Any = None,
        inclusive: tuple[bool, bool] = (True, True),
        *,
        reverse: bool = False,
    ) -> Iterator[Any]:
        """Yield the keys between two bounds in order; ``None`` means no bound.

        Raises:
            RuntimeError: keys came or went since the last one.
        """
        _refuse_nan(lower, upper)
        if (order := self._order_in_memory()) is None:
            start, stop = self._bound(lower, -math.inf), self._bound(upper, math.inf)
            found = scans.keys_between(self._table, start, stop, reverse=reverse)
            yield from _keys_within(found, lower, upper, inclusive, reverse)
            return
        changes = self._changes
        with suppress(IndexError):  # Of an order that changed under the iteration.
            for key in order.irange(lower, upper, inclusive, reverse):
                if self._changes != changes:
                    break
                yield key
        if self._changes != changes:
            self._refuse_change()

    def _pairs(
        self,
        lower: Any = None,
        upper: Any = None,
        inclusive: tuple[bool, bool] = (True, True),
        *,
        reverse: bool = False,
    ) -> Iterator[tuple[Any, Any]]:
        """Yield (key, value) between two bounds in order."""
        _refuse_nan(lower, upper)
        if (order := self._order_in_memory()) is not None:
            live, changes = self._table.live, self._changes
            with suppress(IndexError, KeyError):  # Of what changed under the iteration.
                for key in order.irange(lower, upper, inclusive, reverse):
                    if self._changes != changes:
                        break
                    yield key, live[key]
                if self._changes == changes:
                    return
            self._refuse_change()
        start, stop = self._bound(lower, -math.inf), self._bound(upper, math.inf)
        yield from _between(scans.pairs_of(self._table, start, stop, reverse=reverse), lower, upper, inclusive, reverse)

    def _pages(
        self, lower: Any, upper: Any, inclusive: tuple[bool, bool], *, reverse: bool
    ) -> Iterator[list[tuple[Any, Any]]]:
        """Yield (key, value) between two bounds in order, in lists that grow."""
        _refuse_nan(lower, upper)
        if (order := self._order_in_memory()) is not None:
            live, changes = self._table.live, self._changes
            with suppress(IndexError, KeyError):  # Of what changed under the iteration.
                for found in scans.in_pages(order.irange(lower, upper, inclusive, reverse)):
                    if self._changes != changes:
                        break
                    yield [(key, live[key]) for key in found]
                if self._changes == changes:
                    return
            self._refuse_change()
        start, stop = self._bound(lower, -math.inf), self._bound(upper, math.inf)
        for page in scans.pages_of(self._table, start, stop, reverse=reverse):
            if found := _clipped(page, lower, upper, inclusive):
                yield found

    def _order_in_memory(self) -> SortedList | None:
        """Return the keys in order if all are in memory, else ``None``.

        It is asked when an iteration begins, not when it was made: a checkpoint or a rollback may have come between.
        """
        if is_cold(self):
            self._wake()
        if not self._table.complete:
            return None
        order = self._order
        return order if self._table.complete else None  # Another thread may have dropped them meanwhile.

    def _walk_to(self, place: int, walk: Callable[..., Iterator[Any]]) -> Any:
        """Return what stands at a place in order, of what is walked from the nearer end: the keys, or the pairs."""
        is_near_end = place > len(self._table) // 2
        steps = len(self._table) - 1 - place if is_near_end else place
        return next(islice(walk(reverse=is_near_end), steps, None))

    def _check_inclusive(self, inclusive: object) -> None:
        """Refuse what does not say for two bounds whether they belong to a range."""
        if not isinstance(inclusive, tuple | list) or len(inclusive) != 2:
            raise TypeError(
                f"{self._describe()}: inclusive is a pair, (True, False) for a lower bound that belongs to the range"
                f" and an upper one that does not: found {shown(inclusive)}"
            )

    def _refuse_change(self) -> NoReturn:
        raise RuntimeError(f"{self._describe()} changed size during iteration: iterate over a list of its keys")

    def _bound(self, key: Any, beyond: float) -> Slot | None:
        """Return the slot of a bound, or one a little further out if it has none in the order of slots."""
        if key is None:
            return None
        bound = keys.as_bound(key)
        if keys.keeps_order(bound):  # Others have a place, also if nothing that is stored is equal to one.
            keys.check_sortable(bound)
        self._compare(key)  # Not the bound: it may have an order where the key has none, as bytes for a memoryview.
        return self._slot(bound) if keys.keeps_order(bound) else keys.outside(bound, beyond)

    def _check(self) -> None:
        super()._check()
        if self._table.complete:
            wanted = (
                sorted(self._table.live, key=keys.comparable) if self._in_slot_order else _in_order(self._table.live)
            )
            assert list(self._order) == list(wanted), "the order and the slots differ"
        assert self._table.complete or self._in_slot_order, "an object in memory order is whole"


def _between(
    pairs: Iterator[tuple[Any, Any]], lower: Any, upper: Any, inclusive: tuple[bool, bool], reverse: bool
) -> Iterator[tuple[Any, Any]]:
    """Return those of some pairs in order that lie between two bounds: all but a few at both ends."""
    low, high = (lower, ge if inclusive[0] else gt), (upper, le if inclusive[1] else lt)
    (near, has_begun), (far, is_within) = (high, low) if reverse else (low, high)
    if near is not None:
        pairs = dropwhile(lambda pair: not has_begun(pair[0], near), pairs)
    return pairs if far is None else (pair for pair in pairs if is_within(pair[0], far))


def _keys_within(
    found: Iterator[Any], lower: Any, upper: Any, inclusive: tuple[bool, bool], reverse: bool
) -> Iterator[Any]:
    """Return those of some keys in order that lie between two bounds."""
    if lower is None and upper is None:
        return found
    return map(_key, _between(zip(found, repeat(None)), lower, upper, inclusive, reverse))


def _clipped(
    page: list[tuple[Any, Any]], lower: Any, upper: Any, inclusive: tuple[bool, bool]
) -> list[tuple[Any, Any]]:
    """Return those pairs of a page in order that lie between two bounds: nearly always all."""
    for bound, holds in ((lower, ge if inclusive[0] else gt), (upper, le if inclusive[1] else lt)):
        if bound is not None and not (holds(page[0][0], bound) and holds(page[-1][0], bound)):
            page = [pair for pair in page if holds(pair[0], bound)]
            if not page:
                break
    return page


def _refuse_nan(*bounds: Any) -> None:
    for bound in bounds:
        if type(bound) not in _HAS_PLACE:
            keys.refuse_nan(bound)


_key = itemgetter(0)


def _in_order(found: Iterable[Any]) -> SortedList:
    """Return keys in order, by their bytes if Python does not order every pair: ``(1, 2)`` and ``(1, "a")``."""
    try:
        return SortedList(found)
    except TypeError:
        return SortedKeyList(found, key=keys.comparable)
