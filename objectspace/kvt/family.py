"""A family as a mutable mapping."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, MutableMapping, ValuesView
from typing import TYPE_CHECKING, Any, TypeVar, overload

from objectspace.kvt.core import family_of
from objectspace.kvt.entries import K, Put, TableEntry, V
from objectspace.kvt.errors import BadKeyVersionError, ConditionalTableUpdateError
from objectspace.objects.base import alike

if TYPE_CHECKING:
    from _typeshed import SupportsKeysAndGetItem

    from objectspace.kvt.table import KeyValueTable

T = TypeVar("T")

_PAGE = 256
_NONE: Any = object()


class _Items(ItemsView[K, V]):
    """The pairs of a family, read in pages with their values: a key that is removed meanwhile is not an error."""

    _mapping: FamilyView[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return ((entry.key.key, entry.value) for entry in self._mapping._entries())


class _Values(ValuesView[V]):
    """The values of a family, read in pages."""

    _mapping: FamilyView[Any, V]

    def __iter__(self) -> Iterator[V]:
        return (entry.value for entry in self._mapping._entries())

    def __contains__(self, value: object) -> bool:
        return any(alike(one, value) for one in self)


class FamilyView(MutableMapping[K, V]):
    """The keys of one family with their values: a view that shows and makes changes at once.

    Iteration is in byte order, page by page, so the family may change meanwhile. ``update`` and ``clear`` are one batch
    each, and ``setdefault``, ``pop`` and ``popitem`` are atomic. Keys without a family are updated one by one, and what
    needs all of them is refused: iteration, ``len``, ``clear`` and ``popitem``.

    ``dict(view)`` reads key by key, as Python does with any mapping: if others write meanwhile, use
    ``dict(view.items())``, which reads pages.

    >>> from objectspace.kvt import UTF8, KeyValueTableConfiguration, KeyValueTableManager
    >>> from objectspace import VolatileObjectSpace
    >>> manager = KeyValueTableManager(VolatileObjectSpace())
    >>> manager.create_scope("s"), manager.create_key_value_table("s", "t", KeyValueTableConfiguration(4))
    (True, True)
    >>> colours = manager.open_key_value_table("s", "t", key_serializer=UTF8, value_serializer=UTF8).family("colours")
    >>> colours.update({"sky": "blue", "grass": "green"})
    >>> dict(colours), colours.setdefault("sky", "grey"), len(colours)
    ({'grass': 'green', 'sky': 'blue'}, 'blue', 2)
    """

    def __init__(self, table: KeyValueTable[K, V], key_family: str | None) -> None:
        self._table, self._family = table, key_family
        if key_family is not None:
            table._family_place(key_family)

    def __getitem__(self, key: K) -> V:
        entry = self._table.get(key, self._family)
        if entry is None:
            raise KeyError(key)
        return entry.value

    def __setitem__(self, key: K, value: V) -> None:
        """Set a key. Time: O(log n). Dirties: one slot and the counter; for a new key, also the length."""
        self._table.put(key, value, self._family)

    def __delitem__(self, key: K) -> None:
        """Remove a key. Time: O(log n). Dirties: one slot, the counter and the length.

        Raises:
            KeyError: there is no such key.
        """
        self.pop(key)

    def __contains__(self, key: object) -> bool:
        return self._table.exists(key, self._family)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[K]:
        """Yield the keys in byte order."""
        for page in self._table.key_iterator(family_of(self._family), _PAGE):
            yield from (item.key for item in page.items)

    def items(self) -> ItemsView[K, V]:
        """Return a view of the pairs, in the order of the keys."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """Return a view of the values, in the order of the keys."""
        return _Values(self)

    def __eq__(self, other: object) -> bool:
        """Return whether a mapping holds the same pairs."""
        if not isinstance(other, Mapping):
            return NotImplemented
        pairs = list(self.items())
        return len(pairs) == len(other) and all(_value_in(other, key) == value for key, value in pairs)

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        """Return the number of keys. Time: O(keys of the family)."""
        return self._table.count(family_of(self._family))

    def __bool__(self) -> bool:
        """Return whether there are keys.

        Time: O(log n); if the partition is not in memory, the first call also steps over the keys that were removed
        from the beginning of the family.
        """
        return next(self._table._found(family_of(self._family), 1), None) is not None

    def setdefault(self, key: K, default: V | None = None) -> V:
        """Return the value of a key, setting it to the default if there is none.

        Time: O(log n). Dirties: for a new key one slot, the counter and the length.
        """
        while (entry := self._table.get(key, self._family)) is None:
            try:
                self._table.put_if_absent(key, default, self._family)  # type: ignore[arg-type]  # refuses None
            except BadKeyVersionError:
                continue
        return entry.value

    @overload
    def pop(self, key: K) -> V: ...
    @overload
    def pop(self, key: K, default: V) -> V: ...
    @overload
    def pop(self, key: K, default: T) -> V | T: ...
    def pop(self, key: K, default: Any = _NONE) -> Any:
        """Remove a key and return its value.

        Raises:
            KeyError: there is no such key, and no default is given.

        Time: O(log n). Dirties: one slot, the counter and the length.
        """
        while (entry := self._table.get(key, self._family)) is not None:
            try:
                self._table.remove(key, entry.key.version, self._family)
            except ConditionalTableUpdateError:
                continue
            return entry.value
        if default is _NONE:
            raise KeyError(key)
        return default

    def popitem(self) -> tuple[K, V]:
        """Remove the first key, and return it with its value.

        Raises:
            KeyError: the family is empty.

        Time: O(log n); if the partition is not in memory, the first call also steps over the keys that were removed
        from the beginning of the family. Dirties: one slot, the counter and the length.
        """
        entry = self._table._pop_first(family_of(self._family))
        if entry is None:
            raise KeyError(f"table {self._table.name}: family {self._family!r} is empty")
        return entry.key.key, entry.value

    def update(self, *others: SupportsKeysAndGetItem[K, V] | Iterable[tuple[K, V]], **named: V) -> None:
        """Set many keys; in a family, all at once.

        Time: O(keys · log n). Dirties: one slot per key and the counter; if keys are new, also the length.
        """
        if len(others) > 1:
            raise TypeError(f"update takes one mapping or iterable of pairs: found {len(others)}")
        puts = [Put(key, value) for other in (*others, named) for key, value in _pairs(other)]
        if self._family is not None:
            self._table.apply(self._family, puts)
            return
        for put in puts:
            self[put.key] = put.value

    def clear(self) -> None:
        """Remove every key of the family, all at once.

        Time: O(keys · log n). Dirties: one slot per key, the counter and the length.
        """
        self._table._clear(family_of(self._family))

    def _entries(self) -> Iterator[TableEntry[K, V]]:
        for page in self._table.entry_iterator(family_of(self._family), _PAGE):
            yield from page.items

    def __repr__(self) -> str:
        return f"FamilyView({self._table.name!r}, {self._family!r})"


def _value_in(other: Mapping[Any, Any], key: object) -> Any:
    """Return what a mapping holds for a key: nothing if it takes no key of that kind, as a dict takes no list."""
    try:
        return other.get(key, _NONE)
    except TypeError:
        return _NONE


def _pairs(other: Any) -> Iterable[tuple[Any, Any]]:
    """Return what a mapping or an iterable of pairs holds; no dictionary is made, in which 1 and True are one key."""
    return ((key, other[key]) for key in other.keys()) if hasattr(other, "keys") else other  # noqa: SIM118
