"""Order labels: numbers that keep a sequence in order, so that an insertion in the middle moves nothing.

Appended elements get whole numbers one apart; an element inserted between 3 and 4 gets 3.5. SQLite sorts such labels as
they are, and a person can read them. When the gap between two labels is used up, the labels around it are spread again:
the list-labelling scheme of Itai, Konheim and Rodeh (1981). It costs at worst O(log n) new labels per insertion,
amortised. Most insertions come where the last one came, so the gap there gets most of the room that there is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice

Label = int | float
"""A place in a sequence; also the slot of the element there."""

_FINEST = 2.0**-51
"""How close two labels may be, as a fraction of the greater one."""

_HALVINGS = 50
"""How often a gap can be halved at most."""

_OPEN = 0.9375
"""The part of a neighbourhood left open between its labels when they are new: insertions will come there again."""

_PACKED = 2.0**4
"""How many of the finest steps lie at least between two new labels."""

_ROOMY = 2.0**10
"""How many of the finest steps lie at least between two labels of many that come at once: some room is left there."""

_SPARE = 16
"""How many halvings do not count: what gives hardly more room than that would be used up again at once."""


def between(left: Label | None, right: Label | None) -> Label | None:
    """Return a label between two neighbours, or ``None`` if there is no room.

    Args:
        left: the label on the left, or ``None`` at the beginning of the sequence.
        right: the label on the right, or ``None`` at its end.

    >>> between(3, 4), between(3, None), between(None, 0), between(3, 7)
    (3.5, 4, -1, 5)
    """
    if left is None:
        return 0 if right is None else math.ceil(right) - 1
    if right is None:
        return math.floor(left) + 1
    middle = left + (right - left) / 2
    for whole in (math.floor(middle), math.ceil(middle)):
        if left < whole < right:
            return whole
    return middle if left < middle < right else None


def spread(before: Iterable[Label], after: Iterable[Label]) -> tuple[int, int, list[Label]]:
    """Return new labels around a gap that is used up.

    Of all neighbourhoods, whether or not they reach equally far left and right, it takes the one with the fewest labels
    for each insertion that will find room afterwards.

    Args:
        before: the labels before the gap, the nearest one first; no more of them are read than are needed.
        after: the labels after it, the nearest one first.

    Returns:
        (left, right, new): ``left`` labels before the gap and ``right`` after it become ``new``; then there is room
        between them.

    >>> spread([0], [1e-16, 0.5])
    (1, 0, [-0.9375])
    """
    return _spread(_Side(before), _Side(after))


def _spread(left: _Side, right: _Side) -> tuple[int, int, list[Label]]:
    """Return new labels around a gap that is used up, with room between them."""
    widths, width, best = [0], 1, (math.inf, 0, 0)
    while not (left.ends_within(width // 2) and right.ends_within(width // 2)) and width < best[0] * _HALVINGS:
        for first, second in [*((width, other) for other in [*widths, width]), *((other, width) for other in widths)]:
            best = min(best, _offer(left, right, first, second))
        widths.append(width)
        width *= 2
    _, first, second = best
    return first, second, _packed(left.beyond(first), right.beyond(second), first, second)


def spread_all(before: Iterable[Label], after: Iterable[Label], count: int) -> tuple[int, int, list[Label]]:
    """Return labels for many elements that come into one gap, and new ones for their neighbours if it is too small.

    Args:
        before: the labels before the gap, the nearest one first; no more of them are read than are needed.
        after: the labels after it, the nearest one first.
        count: how many elements come.

    Returns:
        (left, right, new): ``left`` labels before the gap, the ones that come, and ``right`` after it become ``new``.

    Time: O(count + neighbours).

    >>> spread_all([3], [4], 3), spread_all([3], [12], 3), spread_all([], [0], 3)
    ((0, 0, [3.25, 3.5, 3.75]), (0, 0, [5, 7, 9]), (0, 0, [-3, -2, -1]))
    >>> spread_all([0, -1, -2], [1e-16, 2], 3)
    (0, 1, [0.46875, 0.9375, 1.40625, 1.875])
    """
    left, right = _Side(before), _Side(after)
    if _room(low := left.beyond(0), high := right.beyond(0)) >= (count + 1) * _PACKED:
        return 0, 0, _even(*_ends(low, high, count), count)
    first, second, new = _spread(left, right)
    ends = new[first - 1] if first else low, new[first] if second else high
    if _room(*ends) >= (count + 1) * _PACKED:
        return first, second, [*new[:first], *_even(*_ends(*ends, count), count), *new[first:]]
    return _spread_evenly(left, right, count)


def _spread_evenly(left: _Side, right: _Side, count: int) -> tuple[int, int, list[Label]]:
    """Return labels for more elements than a gap has room for, whatever is done, and for their neighbours."""
    first, second = left.within(1), right.within(1)
    while _room(low := left.beyond(first), high := right.beyond(second)) < (first + count + second + 1) * _ROOMY:
        first, second = left.within(first * 2), right.within(second * 2)
    return first, second, _even(*_ends(low, high, first + count + second), first + count + second)


def _room(low: Label | None, high: Label | None) -> float:
    """Return how many of the finest steps lie between two labels; at an end of the sequence there is always room."""
    if low is None or high is None:
        return math.inf
    return (high - low) / (max(abs(low), abs(high), 1.0) * _FINEST)


class _Side:
    """The labels on one side of a gap, which are read as far as they are asked for."""

    def __init__(self, labels: Iterable[Label]) -> None:
        self._rest = iter(labels)
        self._read: list[Label] = []

    def ends_within(self, count: int) -> bool:
        """Return whether there are no more than so many labels."""
        self._read += islice(self._rest, max(0, count + 1 - len(self._read)))
        return len(self._read) <= count

    def within(self, count: int) -> int:
        """Return how many of so many labels there are."""
        return len(self._read) if self.ends_within(count) else count

    def beyond(self, count: int) -> Label | None:
        """Return the label after so many others, or ``None`` if there is none."""
        return None if self.ends_within(count) else self._read[count]


def _offer(left: _Side, right: _Side, first: int, second: int) -> tuple[float, int, int]:
    """Return what a neighbourhood costs, in labels for each insertion that then finds room, and how far it reaches."""
    first, second = left.within(first), right.within(second)
    low, high = _ends(left.beyond(first), right.beyond(second), first + second)
    room = _room(low, high)
    if room * (1 - _OPEN) < (first + second) * _PACKED:
        return math.inf, first, second
    return (first + second) / max(math.log2(room * _OPEN) - _SPARE, 2.0**-40), first, second


def _packed(low: Label | None, high: Label | None, first: int, second: int) -> list[Label]:
    """Return labels between two others, some near the one and some near the other: most of the room lies between."""
    low, high = _ends(low, high, first + second)
    step = (high - low) * (1 - _OPEN) / (first + second)
    new = [low + step * place for place in range(1, first + 1)]
    return [_whole(label) for label in [*new, *(high - step * place for place in range(second, 0, -1))]]


def _even(low: Label, high: Label, count: int) -> list[Label]:
    """Return labels between two others, all of them equally far apart: whole numbers if there are enough."""
    step, first = (high - low) / (count + 1), math.floor(low)
    apart = math.floor(step) or 1
    if first + apart * count < high:
        return list(range(first + apart, first + apart * count + 1, apart))
    return [_whole(low + step * place) for place in range(1, count + 1)]


def _ends(low: Label | None, high: Label | None, count: int) -> tuple[Label, Label]:
    """Return the labels between which ``count`` others lie: at an end of the sequence with whole numbers for all."""
    if low is None:
        low = -(count + 1) if high is None else math.ceil(high) - count - 1
    return low, math.floor(low) + count + 1 if high is None else high


def _whole(label: float) -> Label:
    return int(label) if label.is_integer() else label
