"""What all handles on one space share: a lock, and the numbers given out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import RLock
from weakref import WeakKeyDictionary

from objectspace import CheckpointProtocolError, ObjectSpace, PersistedObjectSpace, SpacePart
from objectspace.kvt.versions import clock_floor

Lock = AbstractContextManager[bool]

Floor = Callable[[], int]
"""Returns a number that no version given out and lost can exceed."""

_FLOOR_LIMIT = 2**62
"""From here on there would not be enough room for the numbers to come."""


class Shared:
    """The lock of a space, and for each partition the greatest number that was given out in this process.

    There is one lock per space, not one per partition: a checkpoint must not see a half-changed object, so it would
    have to take the locks of all partitions; and the store has one connection for what is not in memory. The parts of a
    space have the lock of the whole, but their own numbers: each counts its partitions from 0.

    Args:
        lock: the lock of the space.
    """

    def __init__(self, lock: Lock) -> None:
        self.lock = lock
        self.given: dict[int, int] = {}
        self.creations: Counter[tuple[int, int, int | None]] = Counter()
        """How often a table was created in this process, by its identity: more than once if that was rolled back."""
        self.rollbacks = 0
        """How often the space went back: numbers given out before may then be given out again."""
        self._created = -1

    def went_back(self) -> None:
        """Note that the space went back."""
        self.rollbacks += 1

    def resume(self, partition: int, stored: int, floor: Floor) -> int:
        """Return the number after which a partition continues whose counter is not the last number given out here.

        In that case numbers may have been given out and lost, by a session that ended before its checkpoint or by a
        rollback. If the floor is the clock, which may be set back, the numbers that this process knows of are exceeded
        too. Any other floor alone says what to exceed: a write that is replayed has the same number in whichever
        process.

        Args:
            partition: the id of the partition.
            stored: its counter.
            floor: what to exceed if numbers may be lost.

        Raises:
            TypeError: the floor is not an int.
            ValueError: it leaves no room for numbers of 64 bits.
        """
        known = self.given.get(partition, 0) if floor is clock_floor else 0
        return max(stored, known, _checked(floor()))

    def creation(self, first: int, floor: Floor) -> int:
        """Return the token of a table that is being created; by the clock, no table that was rolled back has it.

        Args:
            first: the id of its first partition: the token if there is no clock, so that a task that is replayed writes
                the same one.
            floor: what to exceed if tokens may be lost.
        """
        following = self._created + 1 if floor is clock_floor else 0
        self._created = max(first, following, _checked(floor()))
        return self._created


def _checked(floor: int) -> int:
    """Return what version_floor returned: a number that cannot be stored would make its partition unreadable."""
    if type(floor) is not int:
        raise TypeError(f"version_floor returned {floor!r:.80}, a {type(floor).__name__}: expected an int")
    if floor >= _FLOOR_LIMIT:
        raise ValueError(f"version_floor returned {floor}: expected less than 2**62, as versions have 64 bits")
    return floor


_spaces: WeakKeyDictionary[ObjectSpace, dict[str, Shared]] = WeakKeyDictionary()
"""What is shared in each space, by the prefix of the part: the whole has none."""
_spaces_lock = RLock()


def shared_of(space: ObjectSpace | SpacePart) -> Shared:
    """Return what all handles on a space, or on one part of it, share."""
    whole, prefix = space, ""
    while isinstance(whole, SpacePart):
        prefix = whole.prefix + prefix
        whole = whole.whole
    with _spaces_lock:
        parts = _spaces.setdefault(whole, {})
        if prefix not in parts:
            parts[prefix] = Shared(next(iter(parts.values())).lock if parts else RLock())
            whole.on_rollback(parts[prefix].went_back)
        return parts[prefix]


def require_persisted(
    space: ObjectSpace, advice: str = "leave out autocommit=True, and what is changed here is saved with the next one"
) -> PersistedObjectSpace:
    """Return the space of a manager or a table that is to commit or to roll back.

    Args:
        space: the space.
        advice: what to do if it is a part of another one.

    Raises:
        CheckpointProtocolError: it is a part of a space.
        ValueError: it stores nothing.
    """
    if isinstance(space, SpacePart):
        raise CheckpointProtocolError(
            f"key-value tables in a part of a space ({space.prefix}) cannot commit or go back: checkpoints belong"
            f" to whoever has the whole space; {advice}"
        )
    if not isinstance(space, PersistedObjectSpace):
        raise ValueError("a commit needs a PersistedObjectSpace: a volatile one stores nothing")
    return space
