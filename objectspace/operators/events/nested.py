"""Operators with inner sequences, each kept as named objects of its own: SelectMany and GroupBy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from objectspace.operators.events.base import Chain, EventOperator, Hand, flush, handing

Make = Callable[..., EventOperator]


OPEN_INNER = 10_000
"""How many inner sequences stay open in memory; the others are opened again when they are touched."""


class Nested(EventOperator):
    """Keeps the inner sequences by number, with their keys; an inner one is opened when it is touched."""

    def __init__(self, make: Make) -> None:
        super().__init__()
        self._make = make

    def _create(self) -> None:
        self._keys = self._object("dictionary", "inner")
        self._following = self._object("value", "following", 0)

    def _resume(self) -> None:
        self._opened: dict[int, EventOperator] = {}
        self._numbers: dict[Any, dict[int, None]] = {}
        self._timed: dict[int, None] | None = None
        for number, key in self._keys.items():
            self._numbers.setdefault(_one_nan(key), {})[number] = None

    def _delete_more(self) -> None:
        for number in list(self._keys):
            self._inner(number).delete()
        self._opened, self._numbers = {}, {}

    def _start(self, key: Any) -> int:
        number: int = self._following.value
        self._of(key)  # What is no key is refused before anything is changed.
        self._following.value = number + 1
        self._keys[number] = key
        self._numbers.setdefault(_one_nan(key), {})[number] = None
        if self._timed is not None and self._takes_time(number):
            self._timed[number] = None
        return number

    def _takes_time(self, number: int) -> bool:
        """Tell whether time alone can change anything in an inner sequence, which need not be opened for it."""
        return (self._opened.get(number) or self._make(self._keys[number])).takes_time

    def _of(self, key: Any) -> list[int]:
        """Return the numbers of the inner sequences of a key."""
        try:
            return list(self._numbers.get(_one_nan(key), ()))
        except TypeError as error:
            raise TypeError(
                f"{type(self).__name__} {self.name!r}: {key!r:.80} begins no inner sequence ({error}): use a number,"
                " text or a tuple of them"
            ) from None

    def _inner(self, number: int) -> EventOperator:
        if number not in self._opened:
            made = self._make(self._keys[number])
            inner = self._opened[number] = made if isinstance(made, Chain) else Chain(made)
            inner.open(self._space, f"{self.name}/{number}")
            if len(self._opened) > OPEN_INNER:
                del self._opened[next(iter(self._opened))]
        return self._opened[number]

    def _drop(self, number: int) -> None:
        """Forget an inner sequence that has ended."""
        self._inner(number).delete()
        self._opened.pop(number, None)
        key = _one_nan(self._keys.pop(number))
        del self._numbers[key][number]
        if not self._numbers[key]:
            del self._numbers[key]
        if self._timed is not None:
            self._timed.pop(number, None)

    def _give(self, number: int, value: Any, hand: Hand) -> list[Any]:
        inner = self._inner(number)
        out = hand(inner, value)
        if inner.has_ended:
            self._drop(number)
        return out

    def _tick(self, at: float) -> list[Any]:
        out: list[Any] = []
        if self._timed is None:
            self._timed = dict.fromkeys(number for number in self._keys if self._takes_time(number))
        for number in list(self._timed):
            out += self._tell(number, at)
        return out

    def _tell(self, number: int, at: float) -> list[Any]:
        """Tell an inner sequence what time it is."""
        inner = self._inner(number)
        out = self._shown(self._keys[number], inner.on_time(at))
        if inner.has_ended:
            self._drop(number)
        return out

    def _close(self, number: int) -> list[Any]:
        out = self._inner(number).on_completed()
        self._drop(number)
        return out

    def _shown(self, key: Any, out: list[Any]) -> list[Any]:
        return out


class SelectMany(Nested):
    """What comes out of the inner sequences, one of which begins with each value.

    A value begins an inner sequence, whose key it is; values of the inner sequences of a key come through
    :meth:`on_inner`. It ends when its input has ended and no inner sequence is left.

    State: a dictionary of the inner sequences, a counter, and the objects of each. A value dirties 1 item and the
    length, the counter, and the objects of the new inner sequence; a value of an inner one what that one dirties.

    Args:
        make: returns the operator of a new inner sequence for its key.

    >>> from objectspace import VolatileObjectSpace
    >>> from objectspace.operators.events import Average, Take
    >>> chain = Chain(SelectMany(lambda x: Take(2)), Average(running=True))
    >>> chain.open(VolatileObjectSpace(), "means")
    >>> chain.on_next("x"), [chain.on_inner("x", n) for n in (1, 2, 3)]
    ([], [[1.0], [1.5], []])
    """

    def _create(self) -> None:
        super()._create()
        self._is_over = self._object("value", "over", False)

    def on_inner(self, key: Any, value: Any, at: float | None = None) -> list[Any]:
        """Hand a value to the inner sequences of a key, and return what comes out."""
        return self._take(at, lambda: self._each(key, lambda number: self._give(number, value, handing(at))))

    def on_inner_completed(self, key: Any, at: float | None = None) -> list[Any]:
        """End the inner sequences of a key, and return what comes out."""
        return self._take(at, lambda: self._each(key, self._close))

    def _each(self, key: Any, give: Callable[[int], list[Any]]) -> list[Any]:
        """Return what the inner sequences of a key give, and end where none is left."""
        out = [one for number in self._of(key) for one in give(number)]
        self._end_where_over()
        return out

    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        if not self._is_over.value:
            self._start(value)
        return []

    def _tick(self, at: float) -> list[Any]:
        out = super()._tick(at)
        self._end_where_over()
        return out

    def _finish(self, source: int) -> list[Any]:
        self._is_over.value = True
        self._end_where_over()
        return []

    def _end_where_over(self) -> None:
        if self._is_over.value and not self._keys:
            self._end()


class GroupBy(Nested):
    """Pairs of a key and what comes out of the inner sequence of the values with this key.

    The inner sequence of a key that has ended begins anew with the next value. At the end all of them end.

    State: a dictionary of the inner sequences, a counter, and the objects of each. A value dirties what its inner
    sequence dirties; the first of a key also 1 item and the length, and the counter.

    Args:
        key: the function of a value that gives its key.
        make: returns the operator of the inner sequence of a key.
    """

    def __init__(self, key: Callable[[Any], Any], make: Make) -> None:
        super().__init__(make)
        self._key = key

    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        return self._into_group(value, handing(at))

    def _flushed(self, value: Any) -> list[Any]:
        return self._into_group(value, flush)

    def _into_group(self, value: Any, hand: Hand) -> list[Any]:
        key = self._key(value)
        numbers = self._of(key) or [self._start(key)]
        return self._shown(key, self._give(numbers[0], value, hand))

    def _finish(self, source: int) -> list[Any]:
        keys = list(self._keys.items())
        out = [one for number, key in keys for one in self._shown(key, self._close(number))]
        self._end()
        return out

    def _shown(self, key: Any, out: list[Any]) -> list[Any]:
        return [(key, value) for value in out]


def _one_nan(key: Any) -> Any:
    """Return a key that is equal to itself after recovery too: Python finds a NaN only where it is the same object."""
    if isinstance(key, tuple):
        return tuple(map(_one_nan, key))
    return math.nan if isinstance(key, float) and key != key else key
