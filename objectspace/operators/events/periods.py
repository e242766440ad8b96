"""Periods of time of one length that begin at regular intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Any


@dataclass(frozen=True)
class Periods:
    """The periods of time of lists and windows, numbered from 0.

    Starts and ends are computed in the same way everywhere, so no time falls between two successive periods, however
    floats are rounded.

    Args:
        duration: how long each lasts.
        shift: how long after the start of one period the next begins.

    >>> tenths = Periods(0.1, 0.1)
    >>> [tenths.last_at(number * 0.1, 0.0) for number in range(8)]
    [0, 1, 2, 3, 4, 5, 6, 7]
    """

    duration: float
    shift: float

    def start(self, number: int, first: float) -> float:
        """Return when a period begins if number 0 begins at ``first``."""
        return plain_time(first) + number * self.shift  # Some stored times are Decimals.

    def end(self, number: int, first: float) -> float:
        """Return when a period ends; it does not include that time itself."""
        if self.duration == self.shift:
            return self.start(number + 1, first)
        return self.start(number, first) + self.duration

    def begun(self, first: float) -> float:
        """Return a time at which number 0 may begin, as :meth:`last_at` judges it."""
        self.last_at(first, first)
        return first

    def last_at(self, at: float, first: float) -> int:
        """Return the number of the last period that has begun by a time.

        Raises:
            ValueError: the times are so great that floats cannot tell a period from the next one.
        """
        if isinstance(at, float) and math.isfinite(at) and isinstance(self.start(0, first), int):
            at = math.floor(at)  # All that follows is exact then, where floats would be far off.
        try:
            number = int((at - plain_time(first)) // self.shift)
            is_told_apart = self.start(number, first) < self.start(number + 1, first)
        except (OverflowError, ValueError):  # beyond all floats, or as far apart as that
            is_told_apart = False
        if not is_told_apart:
            raise ValueError(
                f"{self.shift} is less than floats tell apart at the time {at!r:.80}: use whole numbers, or count times"
                " from a later beginning"
            )
        while self.start(number + 1, first) <= at:
            number += 1
        while self.start(number, first) > at:
            number -= 1
        return number

    def open_at(self, at: float, first: float, least: int) -> range:
        """Return the numbers, from ``least`` on, of the periods that include a time.

        Time: O(these periods), however long ago number ``least`` was.
        """
        last = self.last_at(at, first)
        number = last + 1
        while number > least and self.end(number - 1, first) > at:
            number -= 1
        return range(number, last + 1)


def plain_time(at: Any) -> float:
    """Return a time as an ``int`` or a ``float``: other types have no stored form, or do not mix with floats."""
    return int(at) if isinstance(at, Integral) else float(at)
