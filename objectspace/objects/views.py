"""Views of a dictionary whose items are read as they are iterated, in both directions."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from types import MappingProxyType
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class StreamedKeys(KeysView[K]):
    """The keys of a dictionary."""

    _mapping: Any

    @property
    def mapping(self) -> MappingProxyType[K, Any]:
        """The dictionary, read only."""
        return MappingProxyType(self._mapping)

    def __reversed__(self) -> Iterator[K]:
        return reversed(self._mapping)  # type: ignore[no-any-return]


class StreamedValues(ValuesView[V]):
    """The values of a dictionary, read in one pass."""

    _mapping: Any

    @property
    def mapping(self) -> MappingProxyType[Any, V]:
        """The dictionary, read only."""
        return MappingProxyType(self._mapping)

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._mapping._pairs())

    def __reversed__(self) -> Iterator[V]:
        return (value for _, value in self._mapping._pairs(reverse=True))


class StreamedItems(ItemsView[K, V]):
    """The items of a dictionary, read in one pass."""

    _mapping: Any

    @property
    def mapping(self) -> MappingProxyType[K, V]:
        """The dictionary, read only."""
        return MappingProxyType(self._mapping)

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self._mapping._pairs()  # type: ignore[no-any-return]

    def __reversed__(self) -> Iterator[tuple[K, V]]:
        return self._mapping._pairs(reverse=True)  # type: ignore[no-any-return]
