"""Operators that keep one object or none: Where, Select, Take, Average, SkipUntil, Concat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from objectspace.errors import shown
from objectspace.operators.events.base import EventOperator, checked_count, checked_function, plain_number


class Where(EventOperator):
    """The values for which a function is true. State: none.

    Args:
        predicate: the function of a value.

    Raises:
        TypeError: it is not a function.
    """

    def __init__(self, predicate: Callable[[Any], Any]) -> None:
        super().__init__()
        self._predicate = checked_function("Where", "predicate", predicate)

    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        return [value] if self._predicate(value) else []


class Select(EventOperator):
    """The result of a function for each value. State: none.

    Args:
        function: the function of a value.

    Raises:
        TypeError: it is not a function.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self._function = checked_function("Select", "function", function)

    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        return [self._function(value)]


class Take(EventOperator):
    """The first values; after them it ends.

    State: how many are left. A value dirties 1 item.

    Args:
        count: how many values.

    Raises:
        ValueError: the count is not a whole number, or negative.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = checked_count(count, 0)

    def _create(self) -> None:
        self._left = self._object("value", "left", self._count)

    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        if self._left.value <= 0:
            self._end()
            return []
        self._left.value -= 1
        if not self._left.value:
            self._end()
        return [value]


class Average(EventOperator):
    """The mean of all values, given at the end, or after each value.

    State: the sum and the count, in one value. A value dirties 1 item.

    Args:
        running: whether to give the mean so far after each value.

    Raises:
        TypeError: a value is no number, or cannot be added to those before it; it is not taken.
    """

    def __init__(self, *, running: bool = False) -> None:
        super().__init__()
        self._is_running = running

    def _create(self) -> None:
        self._total = self._object("value", "total", [0, 0])

    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        total, count = self._total.value
        try:
            total, count = total + plain_number(value), count + 1
        except TypeError as error:
            raise TypeError(
                f"Average {self.name!r}: {shown(value):.80} cannot be added to the sum so far, {shown(total):.80}: let"
                " only numbers of one kind through, with Where or Select before it"
            ) from error
        out = [total / count] if self._is_running else []
        self._total.value = [total, count]
        return out

    def _finish(self, source: int) -> list[Any]:
        total, count = self._total.value
        out = [total / count] if count and not self._is_running else []
        self._end()
        return out


class SkipUntil(EventOperator):
    """The values of input 0 once input 1 has given one.

    State: whether input 1 has given a value, or ``None`` if it ended without one. The event that decides this dirties 1
    item, any other none.
    """

    inputs: ClassVar[int] = 2

    def _create(self) -> None:
        self._is_open = self._object("value", "open", False)

    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        if source == 1:
            if self._is_open.value is False:
                self._is_open.value = True
            return []
        return [value] if self._is_open.value else []

    def _finish(self, source: int) -> list[Any]:
        if source == 0:
            self._end()
        elif not self._is_open.value:
            self._is_open.value = None
        return []


class Concat(EventOperator):
    """The values of input 0 until it ends, then those of input 1, and so on.

    An input does not count before its turn has come: what it gave until then is dropped. An input that has ended by
    then is skipped.

    State: an array that says which inputs have ended, and so whose turn it is. The end of an input dirties 1 item.

    Args:
        count: how many inputs there are.

    Raises:
        ValueError: the count is not a whole number from 1.
    """

    def __init__(self, count: int = 2) -> None:
        super().__init__()
        self.inputs = checked_count(count, 1)  # type: ignore[misc]  # of this operator

    def _create(self) -> None:
        self._over = self._object("array", "over", self.inputs, default=False)

    def _turn(self) -> int:
        return next((place for place, over in enumerate(self._over) if not over), self.inputs)

    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        return [value] if source == self._turn() else []

    def _finish(self, source: int) -> list[Any]:
        self._over[source] = True
        if self._turn() == self.inputs:
            self._end()
        return []
