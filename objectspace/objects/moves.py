"""Elements that move between the parts of an object while other threads may be counting them."""

from __future__ import annotations

from typing import Any


class Moving:
    """Counts in ``_moves`` of an object when its elements begin to move from part to part, and when they are at rest.

    The number is odd while they move. Whoever has read several parts and finds the number odd or changed reads them
    again under the mutex of the space, which whoever moves them holds. So nobody needs the mutex as long as all are at
    rest.

    Args:
        target: the object.
    """

    __slots__ = ("_target",)

    def __init__(self, target: Any) -> None:
        self._target = target

    def __enter__(self) -> None:
        self._target._moves |= 1

    def __exit__(self, *exception: object) -> None:
        # If it was interrupted before this, the number is still odd: it gets even all the same.
        self._target._moves = (self._target._moves | 1) + 1
