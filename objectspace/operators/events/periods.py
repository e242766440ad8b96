"""Stretches of time of one length, which begin one every so long."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any


@dataclass(frozen=True)
class Periods:
    """The stretches of time of lists and windows, numbered from 0.

    A start and an end are computed in one way everywhere, so that no time falls between two periods that follow each
    other, however floats are rounded.

    Args:
        duration: how long each lasts.
        shift: how long after one the next begins.

    >>> tenths = Periods(0.1, 0.1)
    >>> [tenths.last_at(number * 0.1, 0.0) for number in range(8)]
    [0, 1, 2, 3, 4, 5, 6, 7]
    """

    duration: float
    shift: float

    def start(self, number: int, first: float) -> float:
        """Return when a period begins, where number 0 begins at ``first``."""
        return plain_time(first) + number * self.shift  # There are stored ones that are a Decimal.

    def end(self, number: int, first: float) -> float:
        """Return when a period ends: it does not hold that time itself."""
        if self.duration == self.shift:
            return self.start(number + 1, first)
        return self.start(number, first) + self.duration

    def begun(self, first: float) -> float:
        """Return a time at which number 0 may begin, as :meth:`last_at` judges it."""
        self.last_at(first, first)
        return first

    def last_at(self, at: float, first: float) -> int:
        """Return the number of the last period that has begun at a time.

        Raises:
            ValueError: the times are so great that floats do not tell a period from the next one.
        """
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
        """Return the numbers from ``least`` on of the periods that hold a time.

        Time: O(these periods), however long ago number ``least`` was.
        """
        last = self.last_at(at, first)
        number = last + 1
        while number > least and self.end(number - 1, first) > at:
            number -= 1
        return range(number, last + 1)


def plain_time(at: Any) -> float:
    """Return a time as an ``int`` or a ``float``: others have no stored form, or do not go with floats."""
    return int(at) if isinstance(at, Integral) else float(at)
