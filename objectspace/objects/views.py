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
        return (value for _, value in _pairs(self._mapping))

    def __reversed__(self) -> Iterator[V]:
        return (value for _, value in _pairs(self._mapping, reverse=True))


class StreamedItems(ItemsView[K, V]):
    """The items of a dictionary, read in one pass."""

    _mapping: Any

    @property
    def mapping(self) -> MappingProxyType[K, V]:
        """The dictionary, read only."""
        return MappingProxyType(self._mapping)

    def __contains__(self, item: object) -> bool:
        return isinstance(item, tuple) and len(item) == 2 and super().__contains__(item)

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return _pairs(self._mapping)

    def __reversed__(self) -> Iterator[tuple[K, V]]:
        return _pairs(self._mapping, reverse=True)


def _pairs(mapping: Any, *, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
    """Yield the items of a dictionary, which may have come into memory as a whole since the view was made."""
    streamed = getattr(mapping, "_pairs", None)
    if streamed is not None:
        return streamed(reverse=reverse)  # type: ignore[no-any-return]
    return reversed(mapping.items()) if reverse else iter(mapping.items())
