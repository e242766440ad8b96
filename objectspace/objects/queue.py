"""The persisted queue: its head and tail only grow, and a slot is written once and deleted once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice, zip_longest
from typing import Any, Generic, TypeVar

from checkpoint.run import ItemRow
from objectspace.objects import limits
from objectspace.objects.base import PersistedObject, alike, item_text
from objectspace.objects.moves import Moving
from objectspace.objects.placing import refuse_change, refuse_empty, walk
from objectspace.objects.torn import NOT_TORN, WITHIN, undivided
from objectspace.objects.variants import is_cold, named_as

T = TypeVar("T")


class Queue(PersistedObject, Generic[T]):
    """First in, first out; a slot is the absolute number of an element, counted from 0.

    The elements at the head, as far as they were read, and those at the tail, as far as they were enqueued lately, are
    in memory; what lies between is in the store. From the first change after a save to the next save nothing is noted,
    and ``enqueue`` is the ``append`` of a ``deque``.

    ============== =====================================================
    method         dirties
    ============== =====================================================
    ``enqueue``    1 item and the tail
    ``dequeue``    1 item and the head; nothing if it was not saved yet
    ``clear``      head and tail, and the items up to 32, else 2 index rows
    ============== =====================================================

    >>> from objectspace import VolatileObjectSpace
    >>> q = VolatileObjectSpace().create_queue("q")
    >>> q.enqueue("a")
    >>> q.enqueue("b")
    >>> q.dequeue(), q
    ('a', Queue('q', ['b']))
    """

    kind = "Queue"
    __slots__ = ("_front", "_moves")  # Found sooner there than in a __dict__ that also has methods.
    __hash__ = None  # type: ignore[assignment]
    _moves: int
    """How often elements began or stopped moving between the parts: see :class:`~objectspace.objects.moves.Moving`."""
    _emptied: int
    """How often elements have left the back, all at once: an iteration that would go on there is refused."""
    _is_full = False
    """Whether an unread queue may hold elements in memory that are stored."""

    def _begin(self, options: dict[str, Any]) -> None:
        self._moves = self._emptied = 0
        self._front: deque[T] = deque()
        self._back: deque[T] = deque()
        self._unread = range(0)
        self._stored = range(0)
        self._stored_before = range(0)
        self._ahead = limits.FIRST_SLOTS
        if self._fresh:
            self._open()
        else:
            self._go_cold()

    def enqueue(self, value: T, /) -> None:
        """Put an element at the tail.

        Time: O(1). Dirties: one item and the tail.
        """
        self._back.append(value)

    @undivided
    def dequeue(self) -> T:
        """Remove the element at the head and return it.

        Raises:
            EmptyError: the queue is empty.

        Time: O(1) amortised. Dirties: one item and the head.
        """
        try:
            return self._front.popleft()
        except IndexError:
            self._refuse_empty("dequeue")
            self._fill_front()
            return self._front.popleft()

    def peek(self) -> T:
        """Return the element at the head.

        Raises:
            EmptyError: the queue is empty.
        """
        try:
            return self._front[0]
        except IndexError:  # Nothing is there yet, or another thread is dropping clean elements from memory.
            with self._home.mutex:
                self._refuse_empty("peek")
                if self._unread:
                    self._fill_front()
                return self._front[0] if self._front else self._back[0]

    @undivided
    def clear(self) -> None:
        """Remove every element.

        Time: O(1) rows beyond 32. Dirties: one item per element up to 32, two index rows beyond that; head and tail.
        """
        if not len(self):
            return
        self._open()
        with self._in_one_piece():
            tail = self._range().stop
            if not self._fresh and len(self._stored) > limits.CLEAR_ROWS:
                self._close()
                self._home.renumber(self)
                self._stored, tail = range(0), 0
                self._open()
            self._front.clear()
            self._empty_back()
            self._unread = range(tail, tail)

    def __len__(self) -> int:
        moves = self._moves
        length = len(self._front) + len(self._unread) + len(self._back)
        if moves & 1 or moves != self._moves:  # Another thread has read elements, or dropped clean ones from memory.
            with self._home.mutex:
                return len(self._front) + len(self._unread) + len(self._back)
        return length

    def __iter__(self) -> Iterator[T]:
        """Yield the elements from the head."""
        with self._home.mutex:  # Another thread may be dropping clean elements from memory.
            self._wake()  # A rollback may have come since the iterator was made.
            front, unread, emptied = self._front, self._unread, self._emptied
        yield from front
        yield from self._items(unread)
        back = iter(self._back)  # It refuses to go on if elements leave from now on.
        if self._emptied != emptied:  # As many as had gone may have come.
            refuse_change(self)
        yield from back

    def __reversed__(self) -> Iterator[T]:
        """Yield the elements from the tail."""
        with self._home.mutex:
            self._wake()
            back, unread, front = reversed(self._back), self._unread, reversed(self._front)
        yield from walk(self, back, self._items(unread, reverse=True), front)

    def __contains__(self, value: object) -> bool:
        return any(alike(element, value) for element in self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Queue | deque | list | tuple):
            return len(self) == len(other) and all(map(alike, self, other))
        return NotImplemented

    def copy(self) -> deque[T]:
        """Return a plain ``deque`` with the same elements."""
        return deque(self)

    def __repr__(self) -> str:
        return f"Queue({self._name!r}, {list(self)!r})"

    def _open(self) -> None:
        """Note that the queue changes, and stop noting it until the next save."""
        self._wake()  # A method that was kept may come while nothing is in memory.
        self._home.touch(self)
        self.__class__ = Queue
        self.__dict__["enqueue"] = self._back.append

    def _close(self) -> None:
        """Watch the queue for its next change."""
        self.__dict__.pop("enqueue", None)
        self.__class__ = _Watched

    _refuse_empty = refuse_empty

    def _fill_front(self) -> None:
        """Bring the next elements to the front: from the store, or else from the back."""
        if self._unread:
            with self._home.mutex:
                if self._front:
                    return
                most = max(limits.FIRST_SLOTS, limits.QUEUE_SLOTS // self._weight)
                page = self._unread[: min(self._ahead, most)]
                self._ahead *= 2 if self._ahead < limits.QUEUE_SLOTS else 1
                front = deque(self._items(page, stays=True))
                with Moving(self):
                    # At once: an interruption does not separate them.
                    self._unread, self._front = self._unread[len(page) :], front
                self._home.account(self)
        elif not self._front:
            end = self._unread.stop + len(self._back)
            self._torn = WITHIN
            self._front.extend(self._back)
            self._empty_back()
            self._unread = range(end, end)
            self._torn = NOT_TORN

    def _empty_back(self) -> None:
        """Take all elements from the back, in place: a bound ``enqueue`` may be kept."""
        if self._back:
            self._emptied += 1
            self._back.clear()

    def _items(self, slots: range, *, reverse: bool = False, stays: bool = False) -> Iterator[T]:
        """Yield stored elements; those that stay in memory are weighed."""
        if not slots:
            return
        size_bytes = 0
        items = self._home.reader().items(self._id, slots.start, slots.stop - 1, reverse=reverse)
        for slot, item in zip_longest(reversed(slots) if reverse else slots, items):
            if item is None or item.slot != slot:
                if slot not in self._range():
                    refuse_change(self)
                self._damaged(slot, None, "it is missing")
            text = item_text(item)
            if stays:
                size_bytes += len(text)
            yield self._decode(text, slot)
        if stays:
            self._weigh(len(slots), size_bytes)

    def _range(self) -> range:
        """Return the slots of the queue: from its head to its tail."""
        with self._home.mutex:  # Another thread may be bringing elements to the front.
            return range(self._unread.start - len(self._front), self._unread.stop + len(self._back))

    def _values(self, slots: range) -> list[T]:
        """Return the values of slots that are in memory."""
        with self._home.mutex:
            now = self._range()
            in_front = range(max(slots.start, now.start), min(slots.stop, self._unread.start))
            in_back = range(max(slots.start, self._unread.stop), min(slots.stop, now.stop))
            front = islice(self._front, in_front.start - now.start, max(in_front.stop, in_front.start) - now.start)
            first = in_back.start - self._unread.stop
            return [*front, *islice(self._back, first, first + len(in_back))]

    def _rows(self) -> list[ItemRow]:
        stored = range(0) if self._fresh else self._stored
        if self._range().start > stored.stop:
            # Elements that came and went between two saves leave no trace, not even in the numbers of later ones.
            self._unread = range(stored.stop + len(self._front), stored.stop + len(self._front))
        now = self._range()
        added = range(max(stored.stop, now.start), now.stop)
        object_id, encode = self._id, self._encode
        gone = range(stored.start, min(now.start, stored.stop))
        rows: list[ItemRow] = [(object_id, slot, None, None) for slot in gone]
        return rows + [
            (object_id, slot, encode(value, slot), None) for slot, value in zip(added, self._values(added), strict=True)
        ]

    def _metadata(self) -> dict[str, Any]:
        now = self._range()
        return {"head": now.start, "tail": now.stop}

    def _turn(self) -> None:
        self._close()
        self._stored_before, self._stored = self._stored, self._range()
        self._was_fresh, self._fresh = self._fresh, False
        self._turn_metadata()

    def _settle(self, durable: bool) -> None:
        was_fresh, self._was_fresh = self._was_fresh, None
        if not durable and was_fresh is not None:
            self._stored = self._stored_before
            if was_fresh:
                self._fresh = True
        self._settle_metadata(durable)

    def _go_cold(self) -> None:
        self._is_full = True  # Until it is empty: if that is interrupted, the next touch does it.
        self._sleep()
        self._empty()

    def _empty(self) -> None:
        self._front.clear()
        self._empty_back()
        self._unread = self._stored = self._stored_before = range(0)
        self._is_full = False

    def _warm(self) -> type:
        # What is at the back of an empty queue came through an ``enqueue`` that was kept across a rollback.
        if self._is_full:
            self._empty()
        stored = self._load_metadata("head", "tail")
        self._stored = self._unread = range(stored["head"], stored["tail"])
        return _Watched

    def _shrink(self, *, gently: bool) -> None:
        if gently or is_cold(self) or self._fresh or self._was_fresh is not None:
            return
        if self._stored == self._range():
            self._close()
            with self._home.mutex, Moving(self):
                # Whoever is in the middle of the front reads it to its end.
                self._unread, self._front = self._stored, deque()
                self._empty_back()

    def _has_slipped(self) -> bool:
        return self._range() != self._stored

    def _held(self) -> int:
        return len(self._front) + len(self._back)

    def _stored_differences(self) -> Iterable[Any]:
        kept = range(0) if self._fresh else self._stored
        clean = [slot for slot in self._range() if slot in kept and slot not in self._unread]
        if not clean or (self._stored_before != self._stored and self._was_fresh is not None):
            return
        values = dict(zip(clean, self._values(range(clean[0], clean[-1] + 1)), strict=True))
        for item in self._home.reader().items(self._id, clean[0], clean[-1]):
            if item.slot in values and not self._is_as_stored(item, values[item.slot]):  # type: ignore[index]
                yield item.slot

    def _check(self) -> None:
        now = self._range()
        assert 0 <= now.start <= now.stop, now
        assert len(now) == len(self._front) + len(self._unread) + len(self._back)
        assert self._fresh or self._stored.start <= now.start, "the head only grows"
        assert self._fresh or self._stored.stop <= now.stop, "the tail only grows"
        assert not self._unread or self._unread.stop <= self._stored.stop, "unread slots are stored"


@named_as(Queue)
class _Watched(Queue[T]):
    """A queue whose next change must be noted."""

    def enqueue(self, value: T, /) -> None:
        """Put an element at the tail. Time: O(1). Dirties: one item and the tail."""
        self._open()
        self._back.append(value)

    @undivided
    def dequeue(self) -> T:
        """Remove the element at the head and return it. Time: O(1) amortised. Dirties: one item and the head."""
        self._refuse_empty("dequeue")
        self._open()
        return self.dequeue()
