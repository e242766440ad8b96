"""Order labels: numbers that keep a sequence in order, so that an insertion in the middle moves nothing.

Appended elements get whole numbers one apart; an element inserted between 3 and 4 gets 3.5. SQLite sorts such labels
as they are, and a person can read them. Where the gap between two labels is used up, the labels around it are spread
again, over the smallest neighbourhood that has room: the list-labelling scheme of Itai, Konheim and Rodeh (1981), which
costs O(1) new labels an insertion in practice and O(log n) amortised at worst.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

Label = int | float
"""A place in a sequence; also the slot of the element there."""

WHOLE_MAX = 2**53
"""Whole numbers up to here are exact as doubles."""


def between(left: Label | None, right: Label | None) -> Label | None:
    """Return a label between two neighbours, or ``None`` where there is no room.

    Args:
        left: the label on the left, ``None`` at the beginning of the sequence.
        right: the label on the right, ``None`` at its end.

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


def spread(labels: Sequence[Label], place: int) -> tuple[int, int, list[Label]]:
    """Return new labels around a gap that is used up.

    Args:
        labels: the labels of the sequence in order.
        place: the index at which an element is to be inserted.

    Returns:
        (start, stop, new): the labels of ``start`` to ``stop`` become ``new``; there is room at ``place`` then.
    """
    width = 8
    while True:
        start, stop = max(0, place - width), min(len(labels), place + width)
        low = labels[start - 1] if start else None
        high = labels[stop] if stop < len(labels) else None
        new = fit(low, high, stop - start)
        if new is not None:
            return start, stop, new
        width *= 2


def fit(low: Label | None, high: Label | None, count: int) -> list[Label] | None:
    """Return ``count`` labels spread evenly between two others, or ``None`` where they would lie too close together.

    Args:
        low: the label before them, ``None`` at the beginning of the sequence.
        high: the label after them, ``None`` at its end.
        count: how many labels are wanted, at least 1.

    >>> fit(0, 4, 3), fit(None, 0, 2)
    ([1, 2, 3], [-2, -1])
    """
    if low is None:
        low = -(count + 1) if high is None else math.ceil(high) - count - 1
    if high is None:
        high = math.floor(low) + count + 1
    step = (high - low) / (count + 1)
    new = [low + step * position for position in range(1, count + 1)]
    return [_whole(label) for label in new] if _has_room(low, high, new) else None


def _whole(label: float) -> Label:
    return int(label) if label.is_integer() else label


def _has_room(low: Label, high: Label, new: Sequence[float]) -> bool:
    """Tell whether labels are so far apart that each gap can be halved often again."""
    line = [low, *new, high]
    finest = max(abs(low), abs(high), 1.0) * 2.0**-40
    return all(right - left > finest for left, right in pairwise(line))
