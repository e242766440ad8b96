"""The persisted sorted dictionary: keys in order, ranges read through SQLite if it is large."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Never, NoReturn, Self, TypeVar, overload

from objectspace.errors import shown
from objectspace.objects.base import ABSENT, alike
from objectspace.objects.placing import whole
from objectspace.objects.sorted import SortedObject
from objectspace.objects.variants import refuse_dead
from objectspace.objects.views import StreamedItems, StreamedKeys, StreamedValues

if TYPE_CHECKING:
    from _typeshed import SupportsKeysAndGetItem

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
T = TypeVar("T")


class SortedDictionary(SortedObject, MutableMapping[K, V]):
    """A dictionary in key order; one slot per key.

    It has the methods of ``dict`` and ranges in both directions. Keys must be comparable with each other. None has no
    order: to ask for it as a key is a TypeError, but ``get_many`` and ``discard_many`` pass over it.

    ============================ =======================================================
    method                       dirties
    ============================ =======================================================
    ``d[k] = v``, ``setdefault`` 1 item; for a new key also the length
    ``put_removed``              1 item and the length
    ``del d[k]``, ``pop``        1 item and the length
    ``discard_many``             1 item per key that was there, and the length
    ``clear``                    the length, and the items up to 32, else 2 index rows
    ============================ =======================================================

    The first key that has no place in the order of slots dirties one more metadata row.

    >>> from objectspace import VolatileObjectSpace
    >>> d = VolatileObjectSpace().create_sorted_dictionary("d")
    >>> d.update({3: "c", 1: "a", 2: "b"})
    >>> list(d.irange(2)), d.floor(2.5), d.peekitem()
    ([2, 3], 2, (3, 'c'))
    """

    kind = "SortedDictionary"
    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, key: K) -> V:
        table = self._table
        value = table.live.get(key, ABSENT)
        if value is ABSENT and (value := table.read(key)) is ABSENT:
            raise self._absent(key)
        return value  # type: ignore[no-any-return]

    @property
    def is_raw(self) -> bool:
        """Whether keys are bytes and values bytes or text, both stored as they are."""
        return False

    def __setitem__(self, key: K, value: V) -> None:
        """Set the value of a key.

        Raises:
            TypeError: the key has no order among the other keys.

        Time: O(log n). Dirties: one item; for a new key, also the length.
        """
        self._put(key, value)

    @overload
    def update(self, other: SupportsKeysAndGetItem[K, V], /) -> None: ...
    @overload
    def update(self, other: Iterable[tuple[K, V]] = ..., /) -> None: ...
    @overload
    def update(self: SortedDictionary[str, V], other: SupportsKeysAndGetItem[K, V], /, **more: V) -> None: ...
    @overload
    def update(self: SortedDictionary[str, V], other: Iterable[tuple[K, V]] = ..., /, **more: V) -> None: ...
    def update(self, other: Any = (), /, **more: Any) -> None:
        """Set the values of many keys.

        Raises:
            TypeError: a key has no order among the other keys.

        Time: O(log n) per key. Dirties: one item per key that changes; for new keys, also the length.
        """
        pairs = dict(other, **more)  # Reading it may run any code.
        refuse_dead(self)
        self._put_all(pairs)

    def __delitem__(self, key: K) -> None:
        """Remove a key.

        Raises:
            KeyError: there is no such key.

        Time: O(log n). Dirties: one item and the length.
        """
        if self._take(key) is ABSENT:
            raise self._absent(key)

    @overload
    def get(self, key: K, default: None = None) -> V | None: ...
    @overload
    def get(self, key: K, default: V) -> V: ...
    @overload
    def get(self, key: K, default: T) -> V | T: ...
    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of a key, or the default if there is no such key. Time: O(log n)."""
        value = self._table.read(key)
        if value is not ABSENT:
            return value
        if key is None:
            raise self._absent(key)
        return default

    def put_removed(self, key: K, value: V) -> None:
        """Set the value of a key that the caller has removed and not set since: nothing is read to find that out.

        Time: O(log n). Dirties: one item and the length.
        """
        if self.was_set(key):
            self[key] = value
        else:
            self._put_checked(key, value)

    def was_set(self, key: K) -> bool:
        """Return whether a key that the caller has removed was set since, or that was begun: nothing is read."""
        return key in self._table.live or key in self._table.edits

    @overload
    def get_many(self, keys: Sequence[K], default: None = None) -> list[V | None]: ...
    @overload
    def get_many(self, keys: Sequence[K], default: V) -> list[V]: ...
    @overload
    def get_many(self, keys: Sequence[K], default: T) -> list[V | T]: ...
    def get_many(self, keys: Sequence[K], default: Any = None) -> list[Any]:
        """Return the value, or the default, of each of some keys: quicker than ``get`` if they are not in memory.

        Time: O(keys · log n), or O(stored slots) if they are many of those stored.
        """
        return self._table.read_all(keys, default)

    def discard_many(self, keys: Iterable[K]) -> None:
        """Remove whichever of some keys are there: quicker than one by one.

        Raises:
            TypeError: a key is not hashable; nothing is removed then.

        Time: O(log n) per key. Dirties: one item per key that is removed, and the length.
        """
        unwanted = list(dict.fromkeys(keys))  # Reading it may run any code.
        refuse_dead(self)
        self._take_all(unwanted)

    def __contains__(self, key: object) -> bool:
        if self._table.read(key) is not ABSENT:
            return True
        if key is None:
            raise self._absent(key)
        return False

    def __iter__(self) -> Iterator[K]:
        """Yield the keys in order."""
        return self._keys()

    def __reversed__(self) -> Iterator[K]:
        return self._keys(reverse=True)

    def __len__(self) -> int:
        return len(self._table)

    def keys(self) -> StreamedKeys[K]:
        """Return a view of the keys in order."""
        return StreamedKeys(self)

    def values(self) -> StreamedValues[V]:
        """Return a view of the values in key order."""
        return StreamedValues(self)

    def items(self) -> StreamedItems[K, V]:
        """Return a view of the items in key order."""
        return StreamedItems(self)

    def irange(
        self,
        lo: K | None = None,
        hi: K | None = None,
        inclusive: tuple[bool, bool] = (True, True),
        reverse: bool = False,
    ) -> Iterator[K]:
        """Yield the keys between two bounds in order; ``None`` means no bound.

        Time: O(log n) for the first key, then O(1) per key.
        """
        self._check_inclusive(inclusive)
        return self._keys(lo, hi, inclusive, reverse=reverse)

    def items_between(
        self,
        lo: K | None = None,
        hi: K | None = None,
        inclusive: tuple[bool, bool] = (True, True),
        reverse: bool = False,
    ) -> Iterator[tuple[K, V]]:
        """Yield the items between two bounds in key order; ``None`` means no bound.

        Time: O(log n) for the first item, then O(1) per item.
        """
        self._check_inclusive(inclusive)
        return self._pairs(lo, hi, inclusive, reverse=reverse)

    def pages_between(
        self,
        lo: K | None = None,
        hi: K | None = None,
        inclusive: tuple[bool, bool] = (True, True),
        reverse: bool = False,
    ) -> Iterator[list[tuple[K, V]]]:
        """Yield the items between two bounds as :meth:`items_between` does, in lists that grow from 16 to 1,024.

        What is set in between shows in the lists that follow, not in the one that was yielded.

        >>> from objectspace import VolatileObjectSpace
        >>> d = VolatileObjectSpace().create_sorted_dictionary("d")
        >>> d.update(zip(range(20), "abcdefghijklmnopqrst"))
        >>> [len(page) for page in d.pages_between(1, 18)]
        [16, 2]

        Time: O(log n) for the first list, then O(1) per item; less per item than one by one if the dictionary is not in
        memory.
        """
        self._check_inclusive(inclusive)
        return self._pages(lo, hi, inclusive, reverse=reverse)

    def peekitem(self, index: int = -1) -> tuple[K, V]:
        """Return the item at an index in key order, the last one by default.

        Raises:
            IndexError: there is no such item, as in an empty dictionary.

        Time: O(log n) in memory; O(distance from the nearer end) if the dictionary is not.
        """
        index = whole(self, index)
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"{self._describe()} has {len(self)} items, none at {shown(index)}")
        if (order := self._order_in_memory()) is not None:
            return order[place], self._table.read(order[place])
        item: tuple[K, V] = self._walk_to(place, self._pairs)
        return item

    def floor(self, key: K) -> K | None:
        """Return the greatest key not greater than ``key``, or ``None`` if there is none. Time: O(log n)."""
        if key is None:
            raise self._absent(key)
        return next(self._keys(upper=key, reverse=True), None)

    def ceiling(self, key: K) -> K | None:
        """Return the least key not less than ``key``, or ``None`` if there is none. Time: O(log n)."""
        if key is None:
            raise self._absent(key)
        return next(self._keys(lower=key), None)

    def popitem(self, index: int = -1) -> tuple[K, V]:
        """Remove the item at an index in key order, the last one by default, and return it.

        Raises:
            KeyError: the dictionary is empty.
            IndexError: there is no such item.

        Time: O(log n) in memory. Dirties: one item and the length.
        """
        if not len(self):
            raise KeyError(f"{self._describe()} is empty")
        key, value = self.peekitem(index)
        del self[key]
        return key, value

    def clear(self) -> None:
        """Remove every key.

        Time: O(1) rows beyond 32. Dirties: one item per key up to 32, two index rows beyond that; the length.
        """
        self._empty()

    def copy(self) -> dict[K, V]:
        """Return a plain ``dict`` with the same contents in key order."""
        return dict(self._pairs())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return len(self) == len(other) and all(alike(other.get(key, ABSENT), value) for key, value in self._pairs())

    def __or__(self, other: Mapping[K2, T]) -> dict[K | K2, V | T]:
        return self.copy() | dict(other) if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Mapping[K2, T]) -> dict[K | K2, V | T]:
        return dict(other) | self.copy() if isinstance(other, Mapping) else NotImplemented

    @overload  # type: ignore[misc]  # as dict itself has it
    def __ior__(self, other: SupportsKeysAndGetItem[K, V]) -> Self: ...
    @overload
    def __ior__(self, other: Iterable[tuple[K, V]]) -> Self: ...
    def __ior__(self, other: Any) -> Self:  # type: ignore[misc]
        self.update(other)
        return self

    @classmethod
    def fromkeys(cls, *_: Never) -> NoReturn:
        """Refuse: a persisted dictionary belongs to a space."""
        raise TypeError("a SortedDictionary belongs to a space: use space.create_sorted_dictionary(name)")

    def _absent(self, key: object) -> Exception:
        """Return the error for a key that is not there; None has no place among any keys, so nobody can mean it."""
        if key is None:
            return TypeError(f"{self._describe()}: the key is None, which has no order: expected a key")
        return KeyError(key)

    @recursive_repr("{...}")
    def __repr__(self) -> str:
        return f"SortedDictionary({self._name!r}, {self.copy()!r})"
