"""Operators of several inputs: CombineLatest and Zip."""

from __future__ import annotations

from typing import Any

from objectspace.operators.events.base import EventOperator, checked_count


class CombineLatest(EventOperator):
    """The latest values of all inputs, at each new value, once every input has given one.

    It ends when all inputs have ended, or when an input has ended that never gave a value.

    State: an array with one slot per input, and one with the inputs that have ended. A value dirties 1 item of n.

    Args:
        count: how many inputs there are.

    Raises:
        ValueError: the count is not a whole number from 1.

    >>> from objectspace import VolatileObjectSpace
    >>> latest = CombineLatest(2)
    >>> latest.open(VolatileObjectSpace(), "latest")
    >>> latest.on_next("a", source=0), latest.on_next(1, source=1), latest.on_next("b", source=0)
    ([], [('a', 1)], [('b', 1)])
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.inputs = checked_count(count, 1)  # type: ignore[misc]  # of this operator

    def _create(self) -> None:
        self._latest = self._object("array", "latest", self.inputs)
        self._over = self._object("array", "over", self.inputs, default=False)

    def _resume(self) -> None:
        self._missing = sum(slot is None for slot in self._latest)
        self._going = sum(not over for over in self._over)

    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        if self._over[source]:
            return []
        is_first = self._latest[source] is None
        self._latest[source] = [value]
        self._missing -= is_first
        return [] if self._missing else [tuple(slot[0] for slot in self._latest)]

    def _finish(self, source: int) -> list[Any]:
        if not self._over[source]:
            self._over[source] = True
            self._going -= 1
        if self._latest[source] is None or not self._going:
            self._end()
        return []


class Zip(EventOperator):
    """The first values of all inputs together, then the second ones, and so on.

    It ends when an input has ended and all its values were given.

    State: one queue per input, and an array with the inputs that have ended. A value dirties 1 item and the tail of its
    queue; a value that completes a tuple dirties nothing of its own queue, and of each other queue the head and an
    item, which it deletes.

    Args:
        count: how many inputs there are.

    Raises:
        ValueError: the count is not a whole number from 1.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.inputs = checked_count(count, 1)  # type: ignore[misc]  # of this operator

    def _create(self) -> None:
        self._queues = [self._object("queue", f"queue.{place}") for place in range(self.inputs)]
        self._over = self._object("array", "over", self.inputs, default=False)

    def _resume(self) -> None:
        self._empty = sum(not len(queue) for queue in self._queues)

    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        if self._over[source]:
            return []
        is_first = not len(self._queues[source])
        self._queues[source].enqueue(value)
        self._empty -= is_first
        if self._empty:
            return []
        out = tuple(queue.dequeue() for queue in self._queues)
        self._resume()
        if any(over and not len(queue) for over, queue in zip(self._over, self._queues, strict=True)):
            self._end()
        return [out]

    def _finish(self, source: int) -> list[Any]:
        self._over[source] = True
        if not len(self._queues[source]):
            self._end()
        return []
