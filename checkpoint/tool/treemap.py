"""Rectangles of given areas that fill another one, each as square as possible (Bruls, Huizing, van Wijk)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Box(NamedTuple):
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float


def squarified(sizes: Sequence[float], width: float, height: float) -> list[Box]:
    """Return a box for each size, in the order of the sizes.

    Args:
        sizes: what the areas are in proportion to, positive, the largest first.
        width: of the whole.
        height: of the whole.

    >>> squarified([3, 1], width=4, height=1)
    [Box(x=0.0, y=0.0, width=3.0, height=1), Box(x=3.0, y=0.0, width=1.0, height=1)]
    """
    total = sum(sizes)
    areas = [size * width * height / total for size in sizes]
    boxes: list[Box] = []
    rest = Box(0.0, 0.0, width, height)
    while len(boxes) < len(areas):
        row = _row(areas[len(boxes) :], min(rest.width, rest.height))
        rest = _lay(row, rest, boxes)
    return boxes


def _row(areas: Sequence[float], side: float) -> Sequence[float]:
    """Return the first areas, as many as make the worst of them the best along a side."""
    taken = 1
    while taken < len(areas) and _worst(areas[: taken + 1], side) <= _worst(areas[:taken], side):
        taken += 1
    return areas[:taken]


def _worst(areas: Sequence[float], side: float) -> float:
    """Return how much longer than wide the worst of some boxes is that lie along a side."""
    thickness = sum(areas) / side
    return max(max(thickness**2 / area, area / thickness**2) for area in areas)


def _lay(row: Sequence[float], rest: Box, boxes: list[Box]) -> Box:
    """Put boxes along the shorter side, and return what is left."""
    is_column = rest.width >= rest.height
    side = rest.height if is_column else rest.width
    thickness, at = sum(row) / side, 0.0
    for area in row:
        length = area / thickness if len(row) > 1 else side
        place = (rest.x, rest.y + at, thickness, length) if is_column else (rest.x + at, rest.y, length, thickness)
        boxes.append(Box(*place))
        at += length
    if is_column:
        return Box(rest.x + thickness, rest.y, rest.width - thickness, rest.height)
    return Box(rest.x, rest.y + thickness, rest.width, rest.height - thickness)
