"""The persisted sorted set, and live views of its ranges."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Never, NoReturn, TypeVar

from objectspace import keys
from objectspace.errors import EmptyError, shown
from objectspace.objects.base import ABSENT
from objectspace.objects.placing import whole
from objectspace.objects.set import MemberCodec, SetMethods
from objectspace.objects.sorted import SortedObject
from objectspace.objects.variants import is_dead

T = TypeVar("T")


class SortedSet(MemberCodec, SortedObject, SetMethods[T]):
    """A set in order; one slot per element.

    It has the methods of ``set``, and ranges in both directions. Elements must be comparable with each other.

    ============== ======================================================
    method         dirties
    ============== ======================================================
    ``add``        1 item and the length, if the element is new
    ``discard``    1 item and the length, if the element is there
    ``clear``      the length, and the items up to 32, else 2 index rows
    ============== ======================================================

    The first element that has no place in the order of slots dirties one more metadata row.

    >>> from objectspace import VolatileObjectSpace
    >>> s = VolatileObjectSpace().create_sorted_set("s")
    >>> s |= {3, 1, 2}
    >>> s, s.min(), s.max(), list(s.irange(2))
    (SortedSet('s', {1, 2, 3}), 1, 3, [2, 3])
    """

    kind = "SortedSet"
    __hash__ = None  # type: ignore[assignment]
    if TYPE_CHECKING:  # To a type checker, an __init__ that is assigned as a variable is not a constructor.

        def __init__(self, *_: Never, **__: Never) -> None: ...
        def copy(self) -> set[T]:
            """Return a plain ``set`` with the same elements."""
    else:
        __init__ = SortedObject.__init__

    def add(self, value: T) -> None:
        """Add an element.

        Raises:
            TypeError: the element has no order among the others.

        Time: O(log n). Dirties: one item and the length, if it is new.
        """
        table = self._table
        if value not in table.live and (table.complete or table.read(value) is ABSENT):
            self._put(value, None)

    def discard(self, value: T) -> None:
        """Remove an element if it is there.

        Time: O(log n). Dirties: one item and the length.
        """
        if not isinstance(value, set):
            self._take(value)

    def pop(self, index: int = -1) -> T:
        """Remove the element at an index in order, the greatest by default, and return it.

        Raises:
            KeyError: the set is empty.
            IndexError: there is no such element.

        Time: O(log n) in memory; O(distance from the nearer end) if the set is not.
        Dirties: one item and the length.
        """
        if not len(self):
            raise KeyError(f"{self._describe()} is empty: there is nothing to pop")
        index = whole(self, index)
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"{self._describe()} has {len(self)} elements, none at {shown(index)}")
        order = self._order_in_memory()
        value: T = self._walk_to(place, self._keys) if order is None else order[place]
        self.discard(value)
        return value

    def clear(self) -> None:
        """Remove every element.

        Time: O(1) rows beyond 32. Dirties: one item per element up to 32, two index rows beyond that; the length.
        """
        self._empty()

    def min(self) -> T:
        """Return the least element.

        Raises:
            EmptyError: the set is empty.

        Time: O(log n).
        """
        least: T = _first(self._keys(), self)
        return least

    def max(self) -> T:
        """Return the greatest element.

        Raises:
            EmptyError: the set is empty.

        Time: O(log n).
        """
        greatest: T = _first(self._keys(reverse=True), self)
        return greatest

    def irange(
        self,
        lo: T | None = None,
        hi: T | None = None,
        inclusive: tuple[bool, bool] = (True, True),
        reverse: bool = False,
    ) -> Iterator[T]:
        """Yield the elements between two bounds in order; ``None`` means no bound.

        Time: O(log n) for the first element, then O(1) per element.
        """
        self._check_inclusive(inclusive)
        return self._keys(lo, hi, inclusive, reverse=reverse)

    def view_between(self, lo: T, hi: T) -> SortedSetView[T]:
        """Return a live, writable view of the elements between two bounds, both included.

        Raises:
            ValueError: the bounds are the wrong way round.
        """
        return SortedSetView(self, lo, hi)

    def __contains__(self, value: object) -> bool:
        try:
            return self._table.read(value) is not ABSENT
        except TypeError:
            if isinstance(value, set):  # The frozenset that a set looks for has no order, so it is not here.
                return False
            raise

    def __iter__(self) -> Iterator[T]:
        """Yield the elements in order."""
        return self._keys()

    def __reversed__(self) -> Iterator[T]:
        return self._keys(reverse=True)

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return f"SortedSet({self._name!r}, {{{', '.join(map(repr, self))}}})"


class SortedSetView(SetMethods[T]):
    """The elements of a sorted set between two bounds; what changes here changes there, and vice versa.

    >>> from objectspace import VolatileObjectSpace
    >>> s = VolatileObjectSpace().create_sorted_set("s")
    >>> s |= {1, 5, 9}
    >>> view = s.view_between(4, 6)
    >>> view.add(6)
    >>> view, s
    (SortedSetView({5, 6}), SortedSet('s', {1, 5, 6, 9}))
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, source: SortedSet[T], lower: T, upper: T) -> None:
        if lower is None or upper is None:
            raise TypeError(
                f"a view is between two elements: found {shown(lower)} and {shown(upper)}; irange() has open sides"
            )
        keys.refuse_nan((lower, upper))
        if upper < lower:  # type: ignore[operator]
            raise ValueError(
                f"the bounds of a view are the wrong way round: {shown(lower)} is greater than {shown(upper)}"
            )
        self._source, self._lower, self._upper = source, lower, upper

    def add(self, value: T) -> None:
        """Add an element.

        Raises:
            ValueError: the element is outside the bounds.

        Time: O(log n). Dirties: one item and the length, if it is new.
        """
        if not self._covers(value):
            bounds = f"{shown(self._lower)} to {shown(self._upper)}"
            raise ValueError(f"{shown(value)} is outside this view, which reaches from {bounds}")
        self._source.add(value)

    def discard(self, value: T) -> None:
        """Remove an element if it is there and inside the bounds.

        Time: O(log n). Dirties: one item and the length.
        """
        if value in self:
            self._source.discard(value)

    def pop(self, index: int = -1) -> T:
        """Remove the element at an index in order, the greatest inside the bounds by default, and return it.

        Raises:
            KeyError: there is none inside the bounds.
            IndexError: there is none at the index.

        Time: O(distance from the end). Dirties: one item and the length.
        """
        index = whole(self._source, index)
        walk, steps = (iter(self), index) if index >= 0 else (reversed(self), -1 - index)
        for value in islice(walk, min(steps, sys.maxsize), None):
            self._source.discard(value)
            return value
        if len(self):
            raise IndexError(
                f"{self._source._describe()} has {len(self)} elements in this view, none at {shown(index)}"
            )
        raise KeyError(f"{self._source._describe()} is empty here: there is nothing to pop")

    def clear(self) -> None:
        """Remove the elements inside the bounds.

        Time: O(log n) per element. Dirties: one item per element, and the length.
        """
        for value in list(self):
            self._source.discard(value)

    def min(self) -> T:
        """Return the least element; raise EmptyError if there is none. Time: O(log n)."""
        return _first(iter(self), self._source)

    def max(self) -> T:
        """Return the greatest element; raise EmptyError if there is none. Time: O(log n)."""
        return _first(reversed(self), self._source)

    def view_between(self, lo: T, hi: T) -> SortedSetView[T]:
        """Return a view of a part of this view.

        Raises:
            ValueError: the bounds are the wrong way round, or outside this view.
        """
        keys.refuse_nan((lo, hi))
        if not (self._covers(lo) and self._covers(hi)):
            bounds = f"{shown(self._lower)} to {shown(self._upper)}"
            raise ValueError(f"{shown(lo)} to {shown(hi)} is outside this view, {bounds}")
        return SortedSetView(self._source, lo, hi)

    def irange(
        self,
        lo: T | None = None,
        hi: T | None = None,
        inclusive: tuple[bool, bool] = (True, True),
        reverse: bool = False,
    ) -> Iterator[T]:
        """Yield the elements between two bounds in order, as far as they are in this view; ``None`` means no bound."""
        self._source._check_inclusive(inclusive)
        is_lower_ours = lo is None or lo < self._lower  # type: ignore[operator]
        is_upper_ours = hi is None or hi > self._upper  # type: ignore[operator]
        start, stop = self._lower if is_lower_ours else lo, self._upper if is_upper_ours else hi
        if stop < start:  # type: ignore[operator]
            return iter(())
        return self._source.irange(start, stop, (is_lower_ours or inclusive[0], is_upper_ours or inclusive[1]), reverse)

    def __contains__(self, value: object) -> bool:
        try:
            return self._covers(value) and value in self._source
        except TypeError:  # It has no order among the elements.
            return False

    def __iter__(self) -> Iterator[T]:
        return self._source.irange(self._lower, self._upper)

    def __reversed__(self) -> Iterator[T]:
        return self._source.irange(self._lower, self._upper, reverse=True)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __copy__(self) -> set[T]:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> set[T]:
        return copy.deepcopy(self.copy(), memo)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"a view of {self._source._describe()} is not pickled: pass a plain copy")

    def __repr__(self) -> str:
        if is_dead(self._source):
            return f"<SortedSetView of {self._source!r}>"
        return f"SortedSetView({{{', '.join(map(repr, self))}}})"

    def _covers(self, value: Any) -> bool:
        return bool(self._lower <= value <= self._upper)


def _first(values: Iterable[T], source: SortedSet[T]) -> T:
    for value in values:
        return value
    raise EmptyError(f"{source._describe()} is empty here: there is no least or greatest element")
