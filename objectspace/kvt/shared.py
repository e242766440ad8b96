"""What all handles on one space share: a lock, and the numbers given out."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from weakref import WeakKeyDictionary

from objectspace import ObjectSpace

Floor = Callable[[], int]
"""Returns a number that no version given out and lost can exceed."""


class Shared:
    """The lock of a space, and for each partition the greatest number that was given out in this process.

    There is one lock a space, not one a partition: a checkpoint must see no object half changed, so it would have to
    take the locks of all partitions; and the store has one connection for what is not in memory.
    """

    def __init__(self) -> None:
        self.lock = RLock()
        self.given: dict[int, int] = {}

    def resume(self, partition: int, stored: int, floor: Floor) -> int:
        """Return the number after which a partition goes on whose counter is not the last number given out here.

        Numbers may have been given out and lost then, by a session that ended before its checkpoint or by a rollback.

        Args:
            partition: the id of the partition.
            stored: its counter.
            floor: what to exceed where numbers may be lost.
        """
        return max(stored, self.given.get(partition, 0), floor())


_spaces: WeakKeyDictionary[ObjectSpace, Shared] = WeakKeyDictionary()
_spaces_lock = RLock()


def shared_of(space: ObjectSpace) -> Shared:
    """Return what all handles on a space share."""
    with _spaces_lock:
        return _spaces.setdefault(space, Shared())
