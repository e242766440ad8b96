"""Buffer: lists of values by count, by time or by both, one after the other or overlapping."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from objectspace.operators.events.base import EventOperator, plain_number
from objectspace.operators.events.periods import Periods

Lengths = tuple[int | None, int | None, float | None, float | None]
"""Count, skip, duration and shift."""


class Buffer(EventOperator):
    """Lists of values.

    With ``count`` a list is given when it has that many values, with ``duration`` when its time is over, and with both
    when the first of these happens. ``skip`` opens a list every so many values, ``shift`` every so long: lists overlap
    if that is less than their length, and values are skipped if it is more. Lists that are open at the end are given
    then. A list into which no value fell is not given.

    State: if lists follow each other, one list, which is used again: a value dirties 1 item and the length; an event
    that gives the list dirties an item for each of its stored elements or, for more than 32, two index rows. If lists
    can overlap, a queue of the numbers of the open lists, and each of the lists: a value dirties 1 item and the length
    of each open list; an event that gives a list dirties an item of the queue and an index row. Time dirties 1 item
    when a list begins or is over.

    Args:
        count: the number of values in a list.
        skip: after how many values from the start of one list the next is opened; ``count`` by default.
        duration: how long a list is open, in the unit of the times that come with the values.
        shift: how long after the start of one list the next is opened; ``duration`` by default.

    Raises:
        ValueError: there is neither count nor duration, a number is not positive, or skip and shift do not fit them.

    Source: Rx's Buffer, as Nuqleon keeps its state.

    >>> from objectspace import VolatileObjectSpace
    >>> buffer = Buffer(count=3, skip=2)
    >>> buffer.open(VolatileObjectSpace(), "b")
    >>> [out for x in range(7) for out in buffer.on_next(x)], buffer.on_completed()
    ([[0, 1, 2], [2, 3, 4], [4, 5, 6]], [[6]])
    """

    def __init__(
        self,
        count: int | None = None,
        skip: int | None = None,
        *,
        duration: float | None = None,
        shift: float | None = None,
    ) -> None:
        super().__init__()
        count, skip, duration, shift = checked_lengths("Buffer", count, skip, duration, shift)
        self._count, self._skip = count, count if skip is None else skip
        self._periods = None if duration is None else Periods(duration, duration if shift is None else shift)
        self._can_overlap = self._skip != count or (self._periods is not None and self._periods.shift != duration)
        self._overlaps = self._can_overlap

    @property
    def takes_time(self) -> bool:
        """Whether time alone can end a list."""
        return self._periods is not None

    def _delete_more(self) -> None:
        for number in self._open if self._overlaps else ():
            if self._name_of(number) in self._space:
                self._space.delete(self._name_of(number))

    def _create(self) -> None:
        self._clock = self._object("value", "clock") if self._periods is not None else None
        if self._clock is None:
            with self._space.in_one_piece():
                self._settle_form()
        if self._overlaps:
            self._open = self._object("queue", "open")
            self._seen = self._object("value", "seen", 0)
            return
        self._list = self._object("list", "values")
        if self._clock is not None:
            self._period = self._object("value", "period", 0)

    def _settle_form(self) -> None:
        """Find out in which form the lists are stored: in another one if the count was the skip, or has become it."""
        one, many = f"{self.name}/values", f"{self.name}/open"
        if one in self._space and many in self._space:
            # An earlier version has left both, and used the one for its count.
            self._drop_one() if self._can_overlap else self._drop_many()
        self._overlaps = self._can_overlap or many in self._space
        if self._overlaps and one in self._space:
            self._take_over()

    def _drop_one(self) -> None:
        self._space.delete(f"{self.name}/values")

    def _drop_many(self) -> None:
        names = map(self._name_of, self._space.get_queue(f"{self.name}/open"))
        for name in (*names, f"{self.name}/seen", f"{self.name}/open"):
            if name in self._space:
                self._space.delete(name)

    def _take_over(self) -> None:
        """Continue with the one list that there was when the count was the skip."""
        values = list(self._space.get_list(f"{self.name}/values"))
        self._drop_one()
        self._open = self._space.get_or_create_queue(f"{self.name}/open")
        if values:
            self._open.enqueue(0)
            self._list_of(0).extend(values)
        self._space.get_or_create_value(f"{self.name}/seen").value = len(values)

    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        if self._clock is not None:
            if at is None:
                raise ValueError(f"Buffer {self.name!r} has a duration: its values come with their times, at=...")
            if self._clock.value is None:
                self._begin(at)
        return self._next_overlapping(value) if self._overlaps else self._next_alone(value, at)

    def _flushed(self, value: Any) -> list[Any]:
        if self._clock is not None and self._overlaps and not len(self._open):
            self._open_list()
        return self._next_overlapping(value) if self._overlaps else self._next_alone(value, None)

    def _tick(self, at: float) -> list[Any]:
        if self._clock is None or self._clock.value is None:
            return []
        return self._tick_overlapping(at) if self._overlaps else self._tick_alone(at)

    def _due_from(self) -> float:
        if self._clock is None or self._clock.value is None or self._periods is None:
            return math.inf
        first = self._clock.value
        if not self._overlaps:
            return self._periods.start(self._period.value + 1, first)
        begins = self._periods.start(self._seen.value, first)
        return min(begins, self._periods.end(self._open.peek(), first)) if len(self._open) else begins

    def _finish(self, source: int) -> list[Any]:
        lists = [list(self._list_of(number)) for number in self._open] if self._overlaps else [list(self._list)]
        self._end()
        return [values for values in lists if values]

    # One list --------------------------------------------------------------------------------------------------------

    def _next_alone(self, value: Any, at: float | None) -> list[Any]:
        self._list.append(value)
        if self._count is None or len(self._list) < self._count:
            return []
        if self._clock is not None and at is not None:
            self._clock.value, self._period.value = at, 0
        return self._give()

    def _tick_alone(self, at: float) -> list[Any]:
        """Give the list if its period is over, and continue with the period that holds the time."""
        assert self._clock is not None
        assert self._periods is not None
        period = self._periods.last_at(at, self._clock.value)
        if period <= self._period.value:
            return []
        self._period.value = period
        return self._give()

    def _give(self) -> list[Any]:
        values = list(self._list)
        self._list.clear()
        return [values] if values else []

    # Lists that overlap ----------------------------------------------------------------------------------------------

    def _begin(self, at: float) -> None:
        assert self._clock is not None
        assert self._periods is not None
        self._clock.value = self._periods.begun(at)
        if self._overlaps and not self._seen.value:
            self._open_list()

    def _next_overlapping(self, value: Any) -> list[Any]:
        if self._clock is None:
            if self._seen.value % self._skip == 0:
                # Lists that were opened with a smaller skip have greater numbers: none of them has this one.
                last = max(self._open, default=-1)
                self._open.enqueue(max(self._seen.value // self._skip, last + 1))
            self._seen.value += 1
        for number in self._open:
            self._list_of(number).append(value)
        out: list[Any] = []
        # More than one list is full if they were opened with a greater count.
        while self._count is not None and len(self._open) and len(self._list_of(self._open.peek())) >= self._count:
            out += self._close_list()
        return out

    def _tick_overlapping(self, at: float) -> list[Any]:
        """Close the lists whose times are over, and open those that hold the time: no value fell into others."""
        assert self._clock is not None
        assert self._periods is not None
        first, out = self._clock.value, []
        begun = self._periods.open_at(at, first, self._seen.value)
        while len(self._open) and self._periods.end(self._open.peek(), first) <= at:
            out += self._close_list()
        # If the time lies between lists, a value at an end goes into the next one, not into one that is over.
        if begun.start > self._seen.value:
            self._seen.value = begun.start
        for _ in begun:
            self._open_list()
        return out

    def _open_list(self) -> None:
        self._open.enqueue(self._seen.value)
        self._seen.value += 1

    def _close_list(self) -> list[Any]:
        number = self._open.dequeue()
        values = list(self._list_of(number))
        self._space.delete(self._name_of(number))
        return [values] if values else []

    def _list_of(self, number: int) -> Any:
        return self._space.get_or_create_list(self._name_of(number))

    def _name_of(self, number: int) -> str:
        return f"{self.name}/{number}"


def checked_lengths(
    kind: str, count: int | None, skip: int | None, duration: float | None, shift: float | None
) -> Lengths:
    """Return checked lengths: NumPy numbers as Python ones, which can be stored and do not overflow.

    Raises:
        ValueError: one is not a length, or they do not go together.
    """
    if count is None and duration is None:
        raise ValueError(f"a {kind} has a count, a duration or both")
    for what, number in (("count", count), ("skip", skip)):
        if number is not None and (not isinstance(number, Integral) or isinstance(number, bool) or number <= 0):
            raise ValueError(f"{what} is {number!r}: expected a positive whole number")
    for what, length in (("duration", duration), ("shift", shift)):
        if length is not None and (not isinstance(length, Real) or not 0 < length < math.inf):
            raise ValueError(f"{what} is {length!r}: expected a positive number")
    if (skip is not None and count is None) or (shift is not None and duration is None):
        raise ValueError("skip goes with a count, and shift with a duration")
    if count is not None and duration is not None and (skip is not None or shift is not None):
        raise ValueError(f"a {kind} with count and duration has neither skip nor shift")
    return plain_number(count), plain_number(skip), plain_number(duration), plain_number(shift)
