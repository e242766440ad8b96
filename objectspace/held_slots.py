"""The slots that a space holds in memory: how many each object has, and which clean ones go if there are too many."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container

from objectspace.objects.base import PersistedObject
from objectspace.objects.variants import is_known_elsewhere


class HeldSlots:
    """Counts the slots in memory by object, that touched last at the end; those of an owned object are its owner's.

    Every method is called under the mutex of the space, because many threads may read.

    Args:
        budget: how many clean slots may stay in memory.
    """

    def __init__(self, budget: int) -> None:
        self.total = 0
        self._by_object: OrderedDict[int, int] = OrderedDict()
        self._room = budget

    @property
    def is_crowded(self) -> bool:
        """Whether it is time to look for slots to drop."""
        return self.total > self._room

    def note(self, target: PersistedObject, slots: int) -> None:
        """Note how many slots an object now holds. Time: O(1)."""
        root = target._id if target._owner is None else target._owner._id
        more = slots - target._accounted
        held, total = self._by_object.get(root, 0) + more, self.total + more
        # All at once and last, so that an interruption before this has changed nothing.
        target._accounted, self._by_object[root], self.total = slots, held, total
        self._by_object.move_to_end(root)

    def drop(self, object_id: int) -> None:
        """Forget the slots of an object that is gone, or of which nothing is in memory any more."""
        self.total -= self._by_object.pop(object_id, 0)

    def take_out(self, object_id: int) -> int | None:
        """Return the slots of an object whose id changes, for :meth:`put_back`; None if it has none."""
        return self._by_object.pop(object_id, None)

    def put_back(self, object_id: int, slots: int | None) -> None:
        """Note under its new id what :meth:`take_out` has returned."""
        if slots is not None:
            self._by_object[object_id] = slots

    def saved(self, budget: int) -> None:
        """Note that what was dirty has been saved: what could not be dropped may go, and needs no more room."""
        self._room = budget

    def shrink(self, handles: dict[int, PersistedObject], dirty: Container[int], budget: int, *, gently: bool) -> None:
        """Drop clean slots, of the objects touched least recently first, until a quarter of the budget is free.

        Args:
            handles: the objects in memory by id; what nobody else refers to goes whole.
            dirty: the ids of those that wait for a save.
            budget: how many clean slots may stay in memory.
            gently: a caller may be in the middle of using one, an iteration for example.

        Time: O(slots in memory) each time that as much as a quarter of the budget, or of what stayed, has come since.
        """
        goal = budget - budget // 4
        for object_id in list(self._by_object):
            is_idle = object_id in handles and object_id not in dirty
            if is_idle and not is_known_elsewhere(handles, object_id):
                del handles[object_id]
            if object_id in handles:
                handles[object_id]._shrink(gently=gently)
                self._recount(handles[object_id])
            else:
                self.drop(object_id)
            if self.total <= goal:
                break
        # If the rest is dirty or in use, look again only when there is a good deal more, however much that is by then.
        self._room = max(budget, self.total + max(budget, self.total) // 4)

    def _recount(self, handle: PersistedObject) -> None:
        """Recount the slots of an object and of those it owns; some of them may have left memory."""
        held = 0
        for counted in (handle, *handle._owned()):
            counted._accounted = counted._held() * counted._weight
            held += counted._accounted
        total = self.total + held - self._by_object.get(handle._id, 0)
        self._by_object[handle._id], self.total = held, total
        self._by_object.move_to_end(handle._id)

    def check(self) -> None:
        """Assert that the total is that of all objects."""
        assert self.total == sum(self._by_object.values()), (self.total, self._by_object)
