"""The persisted stack: only what was popped and pushed since the last save is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice, repeat, zip_longest
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from checkpoint.run import ItemRow
from objectspace.codec import ATOMS
from objectspace.errors import UnencodableValueError
from objectspace.objects import limits
from objectspace.objects.base import ABSENT, Fingerprint, PersistedObject, alike, item_text, unchanged
from objectspace.objects.moves import Moving
from objectspace.objects.placing import refuse_change, refuse_empty, steady, walk
from objectspace.objects.torn import NOT_TORN, WITHIN, undivided
from objectspace.objects.variants import named_as

T = TypeVar("T")


class Stack(PersistedObject, Generic[T]):
    """Last in, first out; a slot is the height of an element, 0 at the bottom.

    The elements lie in three parts: at the bottom what is only in the store, above it the clean elements in memory
    (``_kept``), on top what may have changed (``_top``), with what is stored at those heights (``_below``, the highest
    first). From the first change after a save to the next save nothing is noted, and ``push`` is the ``append`` of a
    ``list``.

    ============== ======================================================
    method         dirties
    ============== ======================================================
    ``push``       1 item and the count
    ``pop``        1 item and the count; nothing if it was not saved yet
    ``clear``      the count, and the items up to 32, else 2 index rows
    ============== ======================================================

    >>> from objectspace import VolatileObjectSpace
    >>> s = VolatileObjectSpace().create_stack("s")
    >>> s.push("a")
    >>> s.push("b")
    >>> s.pop(), s
    ('b', Stack('s', ['a']))
    """

    kind = "Stack"
    __slots__ = ("_moves", "_top")  # Found sooner there than in a __dict__ that also has methods.
    __hash__ = None  # type: ignore[assignment]
    _moves: int
    """How often elements began or stopped moving between the parts: see :class:`~objectspace.objects.moves.Moving`."""
    _raised: int
    """How often stored elements came to the top: an iteration that would go on with what lies there is refused."""

    def _begin(self, options: dict[str, Any]) -> None:
        self._moves = self._raised = 0
        self._top: list[T] = []
        self._reset(0)
        if not self._fresh:
            self._go_cold()

    def _reset(self, stored: int) -> None:
        self._moves += 2  # As after a move: an iteration over the top takes nothing that comes there later for the old.
        self._top.clear()
        self._kept: list[T] = []
        self._low = self._stored = stored
        self._below: list[Any] = []
        self._prints: dict[int, int] = {}
        self._saved_page: _SavedPage | None = None
        self._batch = 8

    def push(self, value: T, /) -> None:
        """Put an element on top.

        Time: O(1). Dirties: one item and the count.
        """
        self._top.append(value)

    @undivided
    def pop(self) -> T:
        """Remove the element on top and return it.

        Raises:
            EmptyError: the stack is empty.

        Time: O(1) amortised. Dirties: one item and the count.
        """
        try:
            return self._top.pop()
        except IndexError:
            self._refuse_empty("pop")
            self._raise_kept()
            return self._top.pop()

    def peek(self) -> T:
        """Return the element on top.

        Raises:
            EmptyError: the stack is empty.
        """
        kept = self._kept  # First: what moves to the top meanwhile stays in it.
        try:
            return (self._top or kept)[-1]
        except IndexError:  # Nothing is there yet, or another thread is dropping clean elements from memory.
            with self._home.mutex:
                self._refuse_empty("peek")
                if not self._top and not self._kept:
                    self._read_kept()
                return (self._top or self._kept)[-1]

    @undivided
    def clear(self) -> None:
        """Remove every element.

        Time: O(1) rows beyond 32. Dirties: one item per element up to 32, two index rows beyond that; the count.
        """
        if not len(self):
            return
        self._open()
        if self._fresh:
            self._top.clear()
        elif self._stored <= limits.CLEAR_ROWS:
            while len(self):
                self.pop()
        else:
            self._close()
            with self._in_one_piece():
                self._home.renumber(self)
                self._reset(0)
            self._open()

    def __len__(self) -> int:
        moves = self._moves
        length = self._low + len(self._top)
        if moves & 1 or moves != self._moves:  # Another thread has counted what is on top among what is clean.
            with self._home.mutex:
                return self._low + len(self._top)
        return length

    def __iter__(self) -> Iterator[T]:
        """Yield the elements from the top."""
        with self._home.mutex:  # While another thread saves, elements move from the top to those that are clean.
            self._wake()  # A rollback may have come since the iterator was made.
            top, kept, below = reversed(self._top), reversed(self._kept), self._low - len(self._kept)
            left, moves, raised = len(self._top), self._moves, self._raised
        for value in top:
            yield value
            left -= 1
        if left or self._moves != moves:  # As many as had gone may have come.
            refuse_change(self)
        for part in (kept, (value for _, value, _ in self._read_down(below))):
            yield from part
            if self._raised != raised:
                refuse_change(self)

    def __reversed__(self) -> Iterator[T]:
        """Yield the elements from the bottom."""
        with self._home.mutex:
            self._wake()
            top, kept = steady(self, self._top, len(self._top)), islice(self._kept, len(self._kept))
            below = self._read_up(self._low - len(self._kept))
            raised, moves = self._raised, self._moves if self._top else None
        parts = self._undisturbed(below, raised), self._undisturbed(kept, raised), self._undisturbed(top, raised, moves)
        yield from walk(self, *parts)

    def __contains__(self, value: object) -> bool:
        return any(alike(element, value) for element in self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Stack | list | tuple):
            return len(self) == len(other) and all(map(alike, self, other))
        return NotImplemented

    def copy(self) -> list[T]:
        """Return a plain ``list`` with the same elements, the bottom first, so that its ``pop`` takes the top."""
        return list(self)[::-1]

    def __repr__(self) -> str:
        return f"Stack({self._name!r}, {list(self)!r})"

    def _open(self) -> None:
        """Note that the stack changes, and stop noting it until the next save."""
        self._home.touch(self)
        self.__class__ = Stack
        self.__dict__["push"] = self._top.append

    def _close(self) -> None:
        """Watch the stack for its next change."""
        self.__dict__.pop("push", None)
        self.__class__ = _Watched

    _refuse_empty = refuse_empty

    def _raise_kept(self) -> None:
        """Bring a batch of stored elements to the empty top, and remember that they are stored."""
        if not self._kept:
            self._read_kept()
        batch = self._kept[-self._batch :]
        self._batch = min(2 * self._batch, limits.STACK_SLOTS)
        self._torn = WITHIN
        self._raised += 1
        self._moves += 2  # It stays even: whoever pops is alone.
        del self._kept[-len(batch) :]
        self._low -= len(batch)
        self._top.extend(batch)
        self._below.extend(reversed(batch))
        self._torn = NOT_TORN

    def _read_kept(self) -> None:
        """Read the highest elements that are only in the store."""
        with self._home.mutex:
            if self._kept:
                return
            most = max(limits.FIRST_SLOTS, limits.STACK_SLOTS // self._weight)
            size_bytes, kept, count = 0, [], min(max(2 * self._batch, limits.FIRST_SLOTS), most)
            for height, value, text in islice(self._read_down(self._low, count), count):
                kept.append(value)
                size_bytes += len(text)
                if type(value) not in ATOMS:
                    self._prints[height] = hash(text)
            self._kept = kept[::-1]
            self._weigh(len(kept), size_bytes)
            self._home.account(self)

    def _undisturbed(self, part: Iterable[T], raised: int, moves: int | None = None) -> Iterator[T]:
        """Yield the elements of a part, as long as the numbers of the stack are as they were when the part was taken.

        Raises:
            RuntimeError: elements came to the top since, or, if ``moves`` is given, moved at all.
        """
        yield from part
        if self._raised != raised or moves not in (None, self._moves):
            refuse_change(self)

    def _read_down(self, height: int, page_rows: int | None = None) -> Iterator[tuple[int, T, str]]:
        """Yield (height, value, text) of the stored elements below a height, the highest first."""
        if not height:
            return
        for item in self._home.reader().items(self._id, 0, height - 1, reverse=True, page_rows=page_rows):
            height -= 1
            if item.slot != height:
                self._missing(height)
            text = item_text(item)
            yield height, self._decode(text, height), text
        if height:
            self._missing(height - 1)

    def _read_up(self, height: int) -> Iterator[T]:
        """Yield the stored elements below a height, the lowest first."""
        items = self._home.reader().items(self._id, 0, height - 1) if height else ()
        for place, item in zip_longest(range(height), items):
            if item is None or item.slot != place:
                self._missing(place)
            yield self._decode(item_text(item), place)

    def _missing(self, height: int) -> NoReturn:
        """Refuse to go on with an iteration whose element is gone, or with a stack whose element is not stored."""
        if height >= len(self):
            refuse_change(self)
        self._damaged(height, None, "it is missing")

    def _rows(self) -> list[ItemRow]:
        rows: list[ItemRow] = []
        object_id = self._id
        self._new_prints: dict[int, int] = {}
        stored_values = chain(reversed(self._below), repeat(ABSENT))
        for height, (value, stored) in enumerate(zip(self._top, stored_values, strict=False), self._low):
            if value is stored and (type(value) in ATOMS or self._is_clean(height, value)):
                continue
            text = self._encode(value, height)
            if type(value) not in ATOMS:
                self._new_prints[height] = hash(text)
            if stored is ABSENT or not unchanged(self._as_stored(height, stored), value, text):
                rows.append((object_id, height, text, None))
        stored_count = 0 if self._fresh else self._stored
        return rows + [(object_id, height, None, None) for height in range(len(self), stored_count)]

    def _is_clean(self, height: int, value: Any) -> bool:
        """Return whether a value that may change in place is what is stored at a height."""
        with suppress(UnencodableValueError):
            if self._prints.get(height) == hash(self._encode(value, height)):
                return True
        return self._is_read_from(self._home.reader().item(self._id, height), value)

    def _as_stored(self, height: int, stored: Any) -> Any:
        """Return what is stored at a height: an atom, or the fingerprint of another value."""
        return stored if type(stored) in ATOMS else Fingerprint(self._prints[height])

    def _metadata(self) -> dict[str, Any]:
        return {"count": len(self)}

    def _turn(self) -> None:
        self._close()
        replaced = {height: self._prints[height] for height in self._new_prints if height in self._prints}
        self._saved_page = _SavedPage(self._low, self._stored, self._below, replaced)
        self._was_fresh, self._fresh = self._fresh, False
        self._prints.update(self._new_prints)
        with self._home.mutex, Moving(self):
            self._low = self._stored = len(self)
            self._kept.extend(self._top)
            self._top.clear()
        self._below, self._batch = [], 8
        self._turn_metadata()

    def _settle(self, durable: bool) -> None:
        page, self._saved_page = self._saved_page, None
        was_fresh, self._was_fresh = self._was_fresh, None
        if not durable and page is not None:
            low, self._stored = page.low, page.stored
            self._prints.update(page.prints)
            self._raise_to(low)
            # What lies lower was brought up since the save, which had not touched it; the rest is as it was before.
            deeper = self._below[len(self._below) - (low - self._low) :] if self._low < low else []
            self._below = page.below + deeper
            self._fresh = self._fresh or bool(was_fresh)
        self._settle_metadata(durable)

    def _raise_to(self, low: int) -> None:
        """Move what a failed save had called clean back to the top."""
        count = self._low - low
        if count > 0:
            with self._home.mutex, Moving(self):
                self._top[:0] = self._kept[-count:]
                self._kept = self._kept[:-count]  # An iteration may be in the middle of the old one.
                self._low = low

    def _go_cold(self) -> None:
        self._reset(0)
        self._sleep()

    def _warm(self) -> type:
        stored = self._load_metadata("count")["count"]
        late = list(self._top)  # It came through a ``push`` that was kept across a rollback.
        self._reset(stored)
        self._top.extend(late)
        return _Watched

    def _shrink(self, *, gently: bool) -> None:
        if not gently and not self._top and self._saved_page is None:
            popped = range(self._low, self._stored)
            self._kept, self._prints = [], {height: text for height, text in self._prints.items() if height in popped}

    def _has_slipped(self) -> bool:
        return bool(self._top) or self._low != self._stored

    def _held(self) -> int:
        return len(self._top) + len(self._kept)

    def _stored_differences(self) -> Iterable[Any]:
        for height, value in enumerate(self._kept, self._low - len(self._kept)):
            known = self._prints.get(height)
            if known is not None and type(value) not in ATOMS and not self._is_clean(height, value):
                yield height

    def _check(self) -> None:
        assert 0 <= len(self._kept) <= self._low, (len(self._kept), self._low)
        if self._fresh:
            assert not self._low, "a fresh stack is all top"
            assert not self._below, "nothing is stored of a fresh stack"
        else:
            assert self._low <= self._stored, (self._low, self._stored)
            assert len(self._below) == self._stored - self._low, (self._below, self._low, self._stored)


class _SavedPage(NamedTuple):
    """What a stack was like before the save that is in flight, to be taken back if that fails."""

    low: int
    stored: int
    below: list[Any]
    prints: dict[int, int]
    """The fingerprints of the stored values that it replaces."""


@named_as(Stack)
class _Watched(Stack[T]):
    """A stack whose next change must be noted."""

    def push(self, value: T, /) -> None:
        """Put an element on top. Time: O(1). Dirties: one item and the count."""
        self._open()
        self._top.append(value)

    @undivided
    def pop(self) -> T:
        """Remove the element on top and return it. Time: O(1) amortised. Dirties: one item and the count."""
        self._refuse_empty("pop")
        self._open()
        return self.pop()
