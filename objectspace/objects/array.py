"""The persisted array: a fixed number of slots, each with a default until it is assigned."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, SupportsIndex, TypeVar, overload

from checkpoint.run import ItemRow
from objectspace import codec
from objectspace.codec import ATOMS
from objectspace.errors import shown
from objectspace.objects import limits, scans
from objectspace.objects.base import ABSENT, alike, unchanged
from objectspace.objects.keyed import KeyedObject
from objectspace.objects.placing import placed, whole
from objectspace.objects.variants import refuse_dead

T = TypeVar("T")


class Array(KeyedObject, Sequence[T]):
    """An array of fixed length.

    It is a ``collections.abc.Sequence`` whose slots can be assigned, including by negative indexes and slices.

    ===================== ===========================
    method                dirties
    ===================== ===========================
    ``a[i] = v``          1 item
    ``a[i:j] = values``   1 item per element
    ``fill(v)``           1 item per element
    ===================== ===========================

    >>> from objectspace import VolatileObjectSpace
    >>> a = VolatileObjectSpace().create_array("a", 3, default=0)
    >>> a[1] = 42
    >>> a
    Array('a', [0, 42, 0])
    """

    kind = "Array"

    @property
    def _counts_slots(self) -> bool:  # type: ignore[override]
        return self._length <= limits.DENSE_LENGTH

    def _configure(self, options: dict[str, Any]) -> None:
        self._default = codec.restore(options.get("default"))
        self._length = int(options["length"]) if self._fresh else -1
        if self._length <= limits.DENSE_LENGTH:
            self._table.live.update((place, copy.deepcopy(self._default)) for place in range(self._length))

    def _options(self) -> dict[str, Any]:
        return {"default": codec.plain(self._default)}

    def _extent(self) -> tuple[int, int]:
        self._length, _ = super()._extent()
        return self._length, 0

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: Any) -> Any:
        """Return an element, or the list of a slice.

        Raises:
            IndexError: there is no such element.
        """
        if isinstance(index, slice):
            places = range(*index.indices(len(self)))
            found = zip(places, self._table.read_all(places), strict=True)
            return [self._fill_in(place) if value is ABSENT else value for place, value in found]
        return self._read(self._place(index))

    @overload
    def __setitem__(self, index: SupportsIndex, value: T) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[T]) -> None: ...
    def __setitem__(self, index: SupportsIndex | slice, value: Any) -> None:
        """Assign an element, or all the elements of a slice.

        Raises:
            IndexError: there is no such element.
            ValueError: a slice is assigned a different number of values.

        Time: O(1) per element. Dirties: one item per element.
        """
        if not isinstance(index, slice):
            self._table.write(self._place(index), value)
            return
        places, values = range(*index.indices(len(self))), list(value)
        refuse_dead(self)  # Reading the values may have run any code.
        if len(places) != len(values):
            raise ValueError(
                f"{self._describe()}: {len(values)} values for a slice of {len(places)}; an array has a fixed length"
            )
        self._table.write_all(dict(zip(places, values, strict=True)))

    def __iter__(self) -> Iterator[T]:
        """Yield every element in order."""
        if self._table.complete:
            return map(self._read, range(len(self)))
        return self._stream()

    def index(self, value: Any, start: SupportsIndex = 0, stop: SupportsIndex = sys.maxsize) -> int:
        """Return the index of the first element between two indexes that is equal to a value.

        Raises:
            ValueError: there is none.

        Time: O(stop).
        """
        first, last, _ = slice(whole(self, start), whole(self, stop)).indices(len(self))
        for place, element in enumerate(islice(self, first, max(first, last)), first):
            if alike(element, value):
                return place
        raise ValueError(f"{self._describe()}: {shown(value)} is not among the elements from {first} to {last}")

    def fill(self, value: T) -> None:
        """Assign one value to every element.

        Time: O(n). Dirties: one item per element.
        """
        self[:] = [value] * len(self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Array | list | tuple):
            return len(self) == len(other) and all(map(alike, self, other))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> list[T]:
        """Return a plain ``list`` with the same elements."""
        return list(self)

    def __repr__(self) -> str:
        return f"Array({self._name!r}, {list(self)!r})"

    def _read(self, place: int) -> Any:
        value = self._table.read(place)
        return self._fill_in(place) if value is ABSENT else value

    def _stream(self) -> Iterator[T]:
        following, saves = 0, self._table.saves
        for place, value in scans.pairs_of(self._table):
            if place > following:
                yield from self._unassigned(range(following, place), saves)
                # It may have been assigned while those before it were yielded, or all was rolled back.
                value = self._table.live.get(place, value) if self._table.saves == saves else self._read(place)
            yield value
            following = place + 1
        yield from self._unassigned(range(following, len(self)), saves)

    def _unassigned(self, places: range, saves: int) -> Iterator[T]:
        """Yield what slots hold that were unassigned as of some number of saves: by now they may be in the store."""
        for place in places:
            yield self._fill_in(place) if self._table.saves == saves else self._read(place)

    def _fill_in(self, place: int) -> Any:
        """Return what a slot that was unassigned a moment ago holds: a copy each time, it may be changed in place."""
        value = self._table.live.get(place, ABSENT)
        return copy.deepcopy(self._default) if value is ABSENT else value

    _place = placed

    def _metadata(self) -> dict[str, Any]:
        return {"length": len(self)}

    def _rows(self) -> list[ItemRow]:
        if self._length > limits.DENSE_LENGTH:
            self._table.forget_new(self._is_default)
        return super()._rows()

    def _is_default(self, value: Any) -> bool:
        if type(value) is not type(self._default):
            return False
        return type(value) in ATOMS and unchanged(self._default, value, "")
