"""Window: inner sequences by count, by time or both, one after the other or overlapping."""

from __future__ import annotations

from typing import Any

from objectspace.operators.events.base import Hand, flush, handing
from objectspace.operators.events.buffer import check_lengths
from objectspace.operators.events.nested import Make, Nested
from objectspace.operators.events.periods import Periods


class Window(Nested):
    """What comes out of inner sequences of some values each, which may overlap.

    With ``count`` a window ends when it has had so many values, with ``duration`` when its time is over, with both when
    either comes first. ``skip`` or ``shift`` begin one every so many values, or every so long: windows overlap where
    that is less than their length, and values are passed over where it is more. Time begins with the first value. A
    window in which no value falls is never begun, and what is open at the end ends then.

    State: a dictionary of the open windows, counters, the objects of each, and what it counts by. A value dirties what
    each open window dirties, with a count 1 item; where it begins a window also 1 item, the length, and the counters.

    Args:
        count: how many values a window has, ``None`` for any number.
        make: returns the operator of a window, from its number.
        skip: how many values after one window the next begins; ``count`` by default.
        duration: how long a window lasts, in the unit of the times that come with the values.
        shift: how long after one window the next begins; ``duration`` by default.

    Raises:
        ValueError: there is neither count nor duration, a number is not positive, or skip and shift do not fit them.

    Source: Rx's Window, as Nuqleon keeps its state.

    >>> from objectspace import VolatileObjectSpace
    >>> from objectspace.operators.events import Average
    >>> means = Window(None, lambda number: Average(), duration=60, shift=30)
    >>> means.open(VolatileObjectSpace(), "means")
    >>> [out for at in (0, 20, 40, 70) for out in means.on_next(at, at=at)], means.on_completed()
    ([20.0], [55.0, 70.0])
    """

    def __init__(
        self,
        count: int | None,
        make: Make,
        skip: int | None = None,
        *,
        duration: float | None = None,
        shift: float | None = None,
    ) -> None:
        super().__init__(make)
        check_lengths("Window", count, skip, duration, shift)
        self._count, self._skip = count, count if skip is None else skip
        self._periods = None if duration is None else Periods(duration, duration if shift is None else shift)

    def _create(self) -> None:
        super()._create()
        self._clock = None if self._periods is None else self._object("value", "clock")
        self._seen = None if self._count is None else self._object("value", "seen", 0)
        if self._clock is not None:
            self._begun = self._object("value", "begun", 0)
        if self._clock is not None and self._seen is not None:
            self._period = self._object("value", "period", 0)

    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        if self._clock is None:
            return self._next_counted(value, handing(at))
        if at is None:
            raise ValueError(f"Window {self.name!r} has a duration: its values come with their times, at=...")
        if self._clock.value is None:
            self._clock.value = at
        return self._next_timed(value, at) if self._seen is None else self._next_both(value, handing(at), at)

    def _flushed(self, value: Any) -> list[Any]:
        if self._seen is None:
            return self._into_open(value)
        return self._next_counted(value, flush) if self._clock is None else self._next_both(value, flush, None)

    def _tick(self, at: float) -> list[Any]:
        """End the windows whose times are over, and tell the others what time it is."""
        out: list[Any] = []
        if self._clock is not None and self._clock.value is not None:
            out = self._tick_timed(at) if self._seen is None else self._tick_both(at)
        return out + super()._tick(at)

    def _finish(self, source: int) -> list[Any]:
        out = [one for number in list(self._keys) for one in self._close(number)]
        self._end()
        return out

    def _give_all(self, value: Any, hand: Hand) -> list[Any]:
        return [one for number in list(self._keys) for one in self._give(number, value, hand)]

    def _end_window(self, window: int) -> list[Any]:
        """End a window, unless its sequence has ended by itself."""
        return [one for number in list(self._numbers.get(window, ())) for one in self._close(number)]

    # By count ---------------------------------------------------------------------------------------------------------

    def _next_counted(self, value: Any, hand: Hand) -> list[Any]:
        assert self._seen is not None
        assert self._count is not None
        assert self._skip is not None
        if self._seen.value % self._skip == 0:
            self._start(self._seen.value // self._skip)
        self._seen.value += 1
        out = self._give_all(value, hand)
        finished = self._seen.value - self._count
        if finished >= 0 and finished % self._skip == 0:
            out += self._end_window(finished // self._skip)
        return out

    # By time ----------------------------------------------------------------------------------------------------------

    def _next_timed(self, value: Any, at: float) -> list[Any]:
        assert self._clock is not None
        assert self._periods is not None
        # A window that lies before one that was begun was begun with it, and may have ended by itself.
        for window in self._periods.open_at(at, self._clock.value, self._begun.value):
            self._start(window)
            self._begun.value = window + 1
        return self._give_all(value, handing(at))

    def _into_open(self, value: Any) -> list[Any]:
        """Give a value of the last known time to the open windows, and begin the next one where none is open."""
        if not len(self._keys):
            self._start(self._begun.value)
            self._begun.value += 1
        return self._give_all(value, flush)

    def _tick_timed(self, at: float) -> list[Any]:
        due = sorted(window for window in self._numbers if self._end_of(window) <= at)
        return [one for window in due for one in self._end_on_time(window, self._end_of(window))]

    def _end_of(self, window: int) -> float:
        """Return when a window ends."""
        assert self._clock is not None
        assert self._periods is not None
        return self._periods.end(window, self._clock.value)

    def _end_on_time(self, window: int, at: float) -> list[Any]:
        """Tell a window that it is time to end, and end it."""
        out = [one for number in list(self._numbers.get(window, ())) for one in self._tell(number, at)]
        return out + self._end_window(window)

    # By what comes first ----------------------------------------------------------------------------------------------

    def _next_both(self, value: Any, hand: Hand, at: float | None) -> list[Any]:
        assert self._clock is not None
        assert self._seen is not None
        if not self._seen.value:
            self._start(self._begun.value)
            self._begun.value += 1
        self._seen.value += 1
        out = self._give_all(value, hand)
        if self._seen.value == self._count:
            self._seen.value = 0
            if at is not None:
                self._clock.value, self._period.value = at, 0
            out += self._end_window(self._begun.value - 1)
        return out

    def _tick_both(self, at: float) -> list[Any]:
        assert self._clock is not None
        assert self._seen is not None
        assert self._periods is not None
        period, ended = self._periods.last_at(at, self._clock.value), self._period.value
        if period <= ended:
            return []
        self._period.value, self._seen.value = period, 0
        return self._end_on_time(self._begun.value - 1, self._periods.end(ended, self._clock.value))
