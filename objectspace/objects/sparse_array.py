"""The persisted sparse array: an index of 64 bits, of which only the assigned slots are stored."""

from __future__ import annotations

import copy
import operator
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Generic, SupportsIndex, TypeVar, overload

from objectspace import codec
from objectspace.errors import shown
from objectspace.keys import INT64_MAX, INT64_MIN
from objectspace.objects import scans
from objectspace.objects.base import ABSENT
from objectspace.objects.keyed import KeyedObject
from objectspace.objects.placing import whole
from objectspace.objects.variants import refuse_dead

T = TypeVar("T")


class SparseArray(KeyedObject, Generic[T]):
    """An array over all integers of 64 bits, with a default where nothing is assigned; one slot per assigned index.

    A negative index is just that: a sparse array has no end to count from. Its length is the number of assigned slots.

    ====================== =======================================================
    method                 dirties
    ====================== =======================================================
    ``a[i] = v``           1 item; for a new slot also the length
    ``a[i:j] = values``    1 item per slot; for new slots also the length
    ``del a[i], a[i:j]``   1 item per assigned slot, and the length
    ``clear``              the length, and the items up to 32, else 2 index rows
    ====================== =======================================================

    >>> from objectspace import VolatileObjectSpace
    >>> a = VolatileObjectSpace().create_sparse_array("a", default=0)
    >>> a[-5], a[10**12] = 1, 2
    >>> a[-6:-3], list(a.assigned())
    ([0, 1, 0], [(-5, 1), (1000000000000, 2)])
    """

    kind = "SparseArray"

    def _configure(self, options: dict[str, Any]) -> None:
        self._default = codec.restore(options.get("default"))
        self._order: list[int] | None = None
        """The assigned places in order; ``None`` if some came or went since they were put in order."""

    def _options(self) -> dict[str, Any]:
        return {"default": codec.plain(self._default)}

    def _go_cold(self) -> None:
        self._order = None
        super()._go_cold()

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: Any) -> Any:
        """Return the value at an index, or the list of a slice, whose bounds must both be given.

        Raises:
            IndexError: the index has more than 64 bits.
            ValueError: a slice without bounds, or of more indexes than a list can have elements.
        """
        if isinstance(index, slice):
            places = self._places(index)
            if (count := _count(places)) > sys.maxsize:
                raise ValueError(
                    f"{self._describe()}: a slice of {count} indexes fits no list: use assigned(low, high)"
                )
            _ = [None] * count  # What memory cannot hold is refused at once, not when it is nearly full.
            return list(map(self._read, places))
        return self._read(self._place(index))

    @overload
    def __setitem__(self, index: SupportsIndex, value: T) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[T]) -> None: ...
    def __setitem__(self, index: Any, value: Any) -> None:
        """Assign an index, or all the indexes of a slice.

        Raises:
            IndexError: the index has more than 64 bits.
            ValueError: a slice without bounds, or with a different number of values.

        Time: O(1) per slot. Dirties: one item per slot; for new ones, also the length.
        """
        if not isinstance(index, slice):
            self._write(self._place(index), value)
            return
        places, values = self._places(index), list(value)
        refuse_dead(self)  # Reading the values may have run any code.
        if _count(places) != len(values):
            raise ValueError(f"{self._describe()}: {len(values)} values for a slice of {_count(places)}")
        for place, element in zip(places, values, strict=True):
            self._write(place, element)

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        """Forget what was assigned to an index or to a slice: it has the default again.

        Time: O(1) for an index; for a slice as for ``assigned``. Dirties: one item per assigned slot, and the length.
        """
        if not isinstance(index, slice):
            self._delete(self._place(index))
            return
        places = self._places(index)
        if places:
            low, high = min(places[0], places[-1]), max(places[0], places[-1])
            for place in [place for place, _ in self.assigned(low, high + 1) if place in places]:
                self._delete(place)

    def assigned(self, start: int | None = None, stop: int | None = None) -> Iterator[tuple[int, T]]:
        """Yield (index, value) of the assigned slots with ``start <= index < stop`` in order.

        Time: O(log n) for the first slot, then O(1) per slot. In memory, besides: O(indexes in the range) if these are
        fewer than the slots, else O(n log n) if slots came or went since the last time.
        """
        low = INT64_MIN if start is None else max(whole(self, start), INT64_MIN)
        high = INT64_MAX if stop is None else min(whole(self, stop) - 1, INT64_MAX)
        yield from self._assigned(low, high)

    def clear(self) -> None:
        """Forget all that was assigned.

        Time: O(1) rows beyond 32. Dirties: one item per slot up to 32, two index rows beyond that; the length.
        """
        self._order = None
        self._table.clear()

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, index: object) -> bool:
        """Return whether an index is assigned."""
        return self._table.read(index) is not ABSENT

    def __iter__(self) -> Iterator[int]:
        """Yield the assigned indexes in order."""
        return (place for place, _ in self.assigned())

    def __reversed__(self) -> Iterator[int]:
        """Yield the assigned indexes from the last to the first."""
        yield from (place for place, _ in self._assigned(INT64_MIN, INT64_MAX, reverse=True))

    def copy(self) -> dict[int, T]:
        """Return a plain ``dict`` of the assigned slots."""
        return dict(self.assigned())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SparseArray):
            return bool(self._default == other._default) and self.copy() == other.copy()
        return self.copy() == other if isinstance(other, Mapping) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SparseArray({self._name!r}, {self.copy()!r}, default={self._default!r})"

    def _assigned(self, low: int, high: int, *, reverse: bool = False) -> Iterator[tuple[int, T]]:
        """Return what is assigned between two indexes, the last included."""
        found = self._table.of_whole(lambda live: (len(live), self._places_between(live, low, high)))
        if found is not None:
            length, (order, stretch) = found
            return self._assigned_in_memory(length, map(order.__getitem__, reversed(stretch) if reverse else stretch))
        return scans.pairs_of(self._table, low, high, reverse=reverse) if low <= high else iter(())

    def _places_between(self, live: dict[Any, Any], low: int, high: int) -> tuple[list[int], range]:
        """Return places in order, and where in there those of the slots in memory between two indexes stand."""
        order = self._order
        if order is None or len(order) != len(live):  # An edit was interrupted.
            if high - low < len(live):
                few = [place for place in range(low, high + 1) if place in live]
                return few, range(len(few))
            self._order = order = sorted(live)
        return order, range(bisect_left(order, low), bisect_right(order, high))

    def _assigned_in_memory(self, length: int, places: Iterator[int]) -> Iterator[tuple[int, T]]:
        """Yield some of the slots in memory, and refuse to go on if slots came or went meanwhile."""
        live = self._table.live
        with suppress(KeyError):
            for place in places:
                yield place, live[place]
            if len(live) == length:
                return
        raise RuntimeError(f"{self._describe()} changed size during iteration: iterate over a list of its indexes")

    def _write(self, place: int, value: T) -> None:
        if place not in self._table.live:
            self._order = None
        self._table.write(place, value)

    def _delete(self, place: int) -> None:
        if self._table.delete(place) is not ABSENT:
            self._order = None

    def _read(self, place: int) -> Any:
        value = self._table.read(place)
        return copy.deepcopy(self._default) if value is ABSENT else value

    def _place(self, index: SupportsIndex) -> int:
        try:
            place = operator.index(index)
        except TypeError:
            place = whole(self, index)
        if not INT64_MIN <= place <= INT64_MAX:
            raise IndexError(f"{self._describe()}: the index {shown(place)} has more than 64 bits")
        return place

    def _places(self, index: slice) -> range:
        if index.start is None or index.stop is None:
            raise ValueError(f"{self._describe()}: a slice needs both bounds, since a sparse array has no ends")
        bounds = (index.start, index.stop, 1 if index.step is None else index.step)
        places = range(*(whole(self, bound) for bound in bounds))
        self._place(index.start)
        self._place(places[-1] if places else index.stop)
        return places


def _count(places: range) -> int:
    """Return the length of a range, which ``len`` tells only up to 63 bits."""
    return (places[-1] - places[0]) // places.step + 1 if places else 0
