"""Views of a dictionary whose items are read as they are iterated, in both directions.

They ask the dictionary again each time, so they show what it holds wherever that lies by then. The views of a ``dict``
look straight into its memory, from which the items may have been dropped.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from objectspace.objects.variants import is_dead

K = TypeVar("K")
V = TypeVar("V")


class _OnePlace:
    """What looks into a dictionary of a space, and so is neither copied nor pickled, like the views of a ``dict``."""

    _mapping: Any

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__}: a view is not copied or pickled: make a list or a set of it")

    def __repr__(self) -> str:
        if is_dead(self._mapping):
            return f"<{type(self).__name__} of {self._mapping!r}>"
        return f"{type(self).__name__}({list(self)!r})"  # type: ignore[call-overload]

    @property
    def mapping(self) -> MappingProxyType[Any, Any]:
        """The dictionary, read only."""
        return MappingProxyType(self._mapping)


class StreamedKeys(_OnePlace, KeysView[K]):
    """The keys of a dictionary."""

    def __iter__(self) -> Iterator[K]:
        return _keys(self._mapping)

    def __reversed__(self) -> Iterator[K]:
        return _keys(self._mapping, reverse=True)

    if TYPE_CHECKING:  # That of all sets, of which a type checker does not know that it takes plain sets.

        def __eq__(self, other: object) -> bool: ...


class StreamedValues(_OnePlace, ValuesView[V]):
    """The values of a dictionary, read in one pass."""

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in _pairs(self._mapping))

    def __reversed__(self) -> Iterator[V]:
        return (value for _, value in _pairs(self._mapping, reverse=True))


class StreamedItems(_OnePlace, ItemsView[K, V]):
    """The items of a dictionary, read in one pass."""

    def __contains__(self, item: object) -> bool:
        return isinstance(item, tuple) and len(item) == 2 and super().__contains__(item)

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return _pairs(self._mapping)

    def __reversed__(self) -> Iterator[tuple[K, V]]:
        return _pairs(self._mapping, reverse=True)

    if TYPE_CHECKING:  # That of all sets, of which a type checker does not know that it takes plain sets.

        def __eq__(self, other: object) -> bool: ...


def _keys(mapping: Any, *, reverse: bool = False) -> Iterator[Any]:
    """Return an iterator over the keys of a dictionary."""
    len(mapping)  # As for the items.
    return mapping._keys(reverse=reverse)  # type: ignore[no-any-return]


def _pairs(mapping: Any, *, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
    """Return an iterator over the items of a dictionary."""
    len(mapping)  # One that is not read yet reads itself, and then knows how.
    return mapping._pairs(reverse=reverse)  # type: ignore[no-any-return]
