"""Window: inner sequences by count, by time or by both, one after the other or overlapping."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from objectspace.operators.events.base import Hand, flush, handing
from objectspace.operators.events.buffer import checked_lengths
from objectspace.operators.events.nested import Make, Nested
from objectspace.operators.events.periods import Periods


class Window(Nested):
    """What comes out of inner sequences of some values each, which may overlap.

    With ``count`` a window ends when it has had that many values, with ``duration`` when its time is over, and with
    both when the first of these happens. ``skip`` begins a window every so many values, ``shift`` every so long:
    windows overlap if that is less than their length, and values are skipped if it is more. Time begins with the first
    value. A window into which no value falls is never begun, and windows that are open at the end end then.

    State: a dictionary of the open windows, counters, the objects of each window, and what it counts by. A value
    dirties what each open window dirties, and with a count 1 item; a value that begins a window also dirties 1 item,
    the length, and the counters. Time dirties a counter or two when a window could begin or is over.

    Args:
        count: the number of values in a window, ``None`` for any number.
        make: a function of the number of a window, counted from 0, that returns its operator, a new one each time.
        skip: after how many values from the start of one window the next begins; ``count`` by default.
        duration: how long a window lasts, in the unit of the times that come with the values.
        shift: how long after the start of one window the next begins; ``duration`` by default.

    Raises:
        TypeError: ``make`` is not a function of the number.
        ValueError: there is neither count nor duration, a number is not positive, or skip and shift do not fit them.

    Source: Rx's Window, as Nuqleon keeps its state.

    >>> from objectspace import VolatileObjectSpace
    >>> from objectspace.operators.events import Average
    >>> means = Window(None, lambda number: Average(), duration=60, shift=30)
    >>> means.open(VolatileObjectSpace(), "means")
    >>> [out for at in (0, 20, 40, 70) for out in means.on_next(at, at=at)], means.on_completed()
    ([20.0], [55.0, 70.0])
    """

    _made_of: ClassVar[str] = "number"

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
        count, skip, duration, shift = checked_lengths("Window", count, skip, duration, shift)
        self._count, self._skip = count, skip
        self._periods = None if duration is None else Periods(duration, duration if shift is None else shift)

    @property
    def takes_time(self) -> bool:
        """Whether time alone can end a window, or change anything in one."""
        return self._periods is not None or type(self)._tick is not Window._tick or self._has_timed()

    def _create(self) -> None:
        super()._create()
        self._clock = None if self._periods is None else self._object("value", "clock")
        self._seen = None if self._count is None else self._object("value", "seen", 0)
        if self._clock is not None:
            self._begun = self._object("value", "begun", 0)
        if self._clock is not None and self._seen is None:
            self._reached = self._object("value", "reached", 0)
        if self._clock is not None and self._seen is not None:
            self._period = self._object("value", "period", 0)

    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        if self._clock is None:
            return self._next_counted(value, handing(at))
        if at is None:
            raise ValueError(f"Window {self.name!r} has a duration: its values come with their times, at=...")
        assert self._periods is not None
        is_first = self._clock.value is None
        if is_first:
            self._clock.value = self._periods.begun(at)
        try:
            return self._next_timed(value, at) if self._seen is None else self._next_both(value, handing(at), at)
        finally:
            if is_first and not self._begun.value:  # Time begins with a value that is taken.
                self._clock.value = None

    def _flushed(self, value: Any) -> list[Any]:
        if self._seen is None:
            return self._into_open(value)
        return self._next_counted(value, flush) if self._clock is None else self._next_both(value, flush, None)

    def _tick(self, at: float) -> list[Any]:
        """End the windows whose times are over, and tell the others the time."""
        errors: list[Exception] = []
        out: list[Any] = []
        if self._clock is not None and self._clock.value is not None:
            out = self._tick_timed(errors, at) if self._seen is None else self._tick_both(errors, at)
        return self._unless(errors, out + self._tell_all(errors, at))

    def _due_from(self) -> float:
        inner = self._first_due()
        if self._clock is None or self._clock.value is None or self._periods is None:
            return inner
        first = self._clock.value
        if self._seen is not None:
            return min(inner, self._periods.start(self._period.value + 1, first))
        begins = self._periods.start(max(self._begun.value, self._reached.value), first)
        return min(inner, begins, self._end_of(min([self._begun.value, *self._numbers])))

    def _finish(self, source: int) -> list[Any]:
        return self._close_all()

    def _begin(self, windows: Iterable[int]) -> list[int]:
        """Begin some windows, or none if that raises; return their numbers."""
        begun: list[int] = []
        try:
            for window in windows:
                begun.append(self._start(window))
        except BaseException:
            self._take_back(begun)
            raise
        return begun

    def _give_all(self, errors: list[Exception], value: Any, hand: Hand, begun: list[int]) -> list[Any]:
        """Give a value to the open windows; if none of them takes it, undo those that the value has begun, and raise.

        So a value is counted in all windows or in none; a window that refuses a value that others take goes without it.
        """
        refused, out = set(), {}
        for number in list(self._keys):
            known = len(errors)
            out[number] = self._ask(errors, number, hand, value)
            if len(errors) > known:
                refused.add(number)
        is_taken = len(refused) < len(out) or not out
        if not is_taken:
            self._take_back(begun)
        found = [one for number, given in out.items() if is_taken or number not in begun for one in given]
        return found if is_taken else self._unless(errors, found)

    def _end_window(self, errors: list[Exception], window: int) -> list[Any]:
        """End a window, unless its sequence has ended by itself; it takes no more values even if that raises."""
        out: list[Any] = []
        for number in list(self._numbers.get(window, ())):
            out += self._close(errors, number)
            if number in self._keys and number in self._opened:
                self._drop(number)
        return out

    # By count ---------------------------------------------------------------------------------------------------------

    def _next_counted(self, value: Any, hand: Hand) -> list[Any]:
        return self._next_in_turn(value, hand) if self._skip is None else self._next_skipping(value, hand, self._skip)

    def _next_in_turn(self, value: Any, hand: Hand) -> list[Any]:
        """Give a value to the window that is open, or to the next one; end it if it is full."""
        assert self._seen is not None
        assert self._count is not None
        held = self._held_by_last(self._seen.value, self._count)
        errors: list[Exception] = []
        out = self._give_all(errors, value, hand, [] if held else self._begin([self._following.value]))
        is_full = held + 1 >= self._count
        self._seen.value = 0 if is_full else -held - 1
        # More than one is open only if they were begun with a skip: those before the last are full.
        ended = sorted(self._numbers)[: None if is_full else -1]
        return self._unless(errors, out + self._end_windows(errors, ended))

    def _held_by_last(self, seen: int, count: int) -> int:
        """Return how many values the last window has had, or 0 if it is full.

        What is stored is this number, negative: the count may be another one by now. An earlier version stored how many
        values all windows have had, and numbered them by that. It does not say for which count; the least that fits
        them ends no window too late.
        """
        if seen <= 0:
            return -seen
        if not self._numbers:
            begun: int = self._following.value
            held = seen - (begun - 1) * max(count, -(-seen // begun))
            return held if held == seen % count else 0  # Where the two differ, the next value begins a window.
        last: int = max(self._numbers)
        return max(1, seen - last * max(count, -(-seen // (last + 1))))

    def _next_skipping(self, value: Any, hand: Hand, skip: int) -> list[Any]:
        assert self._seen is not None
        assert self._count is not None
        seen = self._seen.value
        if seen <= 0:  # Nothing yet, or what is stored without a skip.
            seen = (self._following.value - (seen < 0)) * skip - seen
        errors: list[Exception] = []
        out = self._give_all(errors, value, hand, [] if seen % skip else self._begin([seen // skip]))
        self._seen.value = seen + 1
        # There is more than one, and not just where one begins, if they were begun with a greater count.
        full = [window for window in self._numbers if window * skip + self._count <= seen + 1]
        return self._unless(errors, out + self._end_windows(errors, full))

    def _end_windows(self, errors: list[Exception], windows: Iterable[int]) -> list[Any]:
        return [one for window in sorted(windows) for one in self._end_window(errors, window)]

    # By time ----------------------------------------------------------------------------------------------------------

    def _next_timed(self, value: Any, at: float) -> list[Any]:
        assert self._clock is not None
        assert self._periods is not None
        # A window before one that was begun was begun together with it, and may have ended by itself.
        windows = self._periods.open_at(at, self._clock.value, self._begun.value)
        return self._into(windows, value, handing(at))

    def _into_open(self, value: Any) -> list[Any]:
        """Give a value of the last known time to the windows that hold it, or to the next one if there is none."""
        first, reached = self._begun.value, self._reached.value
        return self._into(range(first, max(reached, first + (not self._keys))), value, flush)

    def _into(self, windows: range, value: Any, hand: Hand) -> list[Any]:
        """Begin some windows, and give a value to all that are open."""
        errors: list[Exception] = []
        out = self._give_all(errors, value, hand, self._begin(windows))
        if windows:
            self._begun.value = windows.stop
        return self._unless(errors, out)

    def _tick_timed(self, errors: list[Exception], at: float) -> list[Any]:
        assert self._clock is not None
        assert self._periods is not None
        windows = self._periods.open_at(at, self._clock.value, self._begun.value)
        if windows.start > self._begun.value:  # Those before are over.
            self._begun.value = windows.start
        if windows and windows.stop > self._reached.value:
            self._reached.value = windows.stop
        due = sorted(window for window in self._numbers if self._end_of(window) <= at)
        return [one for window in due for one in self._end_on_time(errors, window, self._end_of(window))]

    def _end_of(self, window: int) -> float:
        """Return when a window ends."""
        assert self._clock is not None
        assert self._periods is not None
        return self._periods.end(window, self._clock.value)

    def _end_on_time(self, errors: list[Exception], window: int, at: float) -> list[Any]:
        """Tell a window that it is time to end, and end it."""
        out = [one for number in list(self._numbers.get(window, ())) for one in self._tell(errors, number, at)]
        return out + self._end_window(errors, window)

    # By whichever comes first -----------------------------------------------------------------------------------------

    def _next_both(self, value: Any, hand: Hand, at: float | None) -> list[Any]:
        assert self._clock is not None
        assert self._seen is not None
        seen, begun = self._seen.value, self._begun.value
        errors: list[Exception] = []
        out = self._give_all(errors, value, hand, [] if seen else self._begin([begun]))
        if not seen:
            self._begun.value = begun + 1
        self._seen.value = seen + 1
        if seen + 1 >= self._count:
            self._seen.value = 0
            if at is not None:
                self._clock.value, self._period.value = at, 0
            out += self._end_window(errors, self._begun.value - 1)
        return self._unless(errors, out)

    def _tick_both(self, errors: list[Exception], at: float) -> list[Any]:
        assert self._clock is not None
        assert self._seen is not None
        assert self._periods is not None
        period, ended = self._periods.last_at(at, self._clock.value), self._period.value
        if period <= ended:
            return []
        out: list[Any] = []
        for window in sorted(self._numbers):
            out += self._end_on_time(errors, window, self._periods.end(ended, self._clock.value))
        if not self._numbers:  # One that could not be made is due until it can.
            self._period.value, self._seen.value = period, 0
        return out
