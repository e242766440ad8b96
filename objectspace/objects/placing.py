"""Places in an object that has ends: which one an index means, that an empty one has none, and walks over them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NoReturn, Protocol, SupportsIndex, TypeVar

from objectspace.errors import EmptyError, shown

T = TypeVar("T")


class Named(Protocol):
    """What has a name for errors."""

    def _describe(self) -> str: ...


class Ended(Named, Protocol):
    """What has a length, and a name for errors."""

    def __len__(self) -> int: ...


def whole(target: Named, index: SupportsIndex) -> int:
    """Return an index as an ``int``.

    Raises:
        TypeError: it is not a whole number.
    """
    try:
        return operator.index(index)
    except TypeError as error:
        message = f"{target._describe()}: the index is {shown(index):.80}: expected a whole number"
        raise TypeError(message) from error


def placed(target: Ended, index: SupportsIndex) -> int:
    """Return the place, counted from 0, that an index means; a negative index counts from the end.

    Raises:
        IndexError: there is no such place.
        TypeError: the index is not a whole number.
    """
    try:
        place = operator.index(index)
    except TypeError:
        place = whole(target, index)  # Only now: one more call for each index would take time.
    place += len(target) if place < 0 else 0
    if not 0 <= place < len(target):
        raise IndexError(f"{target._describe()} has {len(target)} elements, none at {shown(operator.index(index))}")
    return place


def refuse_empty(target: Ended, method: str) -> None:
    """Refuse an operation that needs an element.

    Raises:
        EmptyError: there is none.
    """
    if not len(target):
        raise EmptyError(f"{target._describe()} is empty: there is nothing to {method}")


def walk(target: Ended, *parts: Iterable[T]) -> Iterator[T]:
    """Yield the elements of an object, part by part, as long as their number stays the same.

    Raises:
        RuntimeError: elements came or went since the walk began.
    """
    count = len(target)
    for part in parts:
        yield from part
        if len(target) != count:
            refuse_change(target)


def steady(target: Ended, part: Iterable[T], count: int) -> Iterator[T]:
    """Yield the elements of a part that has ``count`` of them, as long as it keeps them.

    Raises:
        RuntimeError: some have left it meanwhile.
    """
    for value in islice(part, count):
        yield value
        count -= 1
    if count:
        refuse_change(target)


def refuse_change(target: Ended) -> NoReturn:
    """Refuse to go on with an iteration.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(f"{target._describe()} changed during iteration: iterate over a list of it")
