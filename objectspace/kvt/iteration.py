"""Iteration: exact pages in byte order, and the state from which an iteration continues, even in another process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import orjson

from objectspace.kvt.errors import SerializationError
from objectspace.kvt.partition import Row

T = TypeVar("T")

READ_AHEAD = 1024
"""How many rows are read ahead at most, if nothing is written between the pages."""

Found = tuple[bytes, Row, int]
"""(table key, row, id of the partition)."""

_FORMAT = "kvt1"


class IteratorState(NamedTuple):
    """Where an iteration stands: the key that it returned last. Its bytes are JSON.

    It belongs to one table, and to one family or to the whole table, and is refused elsewhere. It is a key, not an
    index: keys that come and go do not move it.

    Args:
        table: the scope and name of the table.
        incarnation: the id of its first partition, which a later table of the same name does not have.
        key_family: the family, or ``None`` for an iteration over the whole table.
        position: the table key that was returned last.
        created: the token of its creation, which a table that was created again after a rollback does not have;
            ``None`` for tables from before there were tokens.
    """

    table: str
    incarnation: int
    key_family: str | None
    position: bytes
    created: int | None = None

    def to_bytes(self) -> bytes:
        """Return the state as bytes, to be kept anywhere.

        Raises:
            TypeError: its position is not bytes.
        """
        parts = [_FORMAT, self.table, self.incarnation, self.key_family, position_of(self).hex()]
        return orjson.dumps(parts if self.created is None else [*parts, self.created])

    @classmethod
    def from_bytes(cls, data: bytes) -> IteratorState:
        """Return the state of bytes that :meth:`to_bytes` made.

        Raises:
            SerializationError: they are something else.

        >>> IteratorState.from_bytes(IteratorState("s/t", 0, "f", b"a").to_bytes()).position
        b'a'
        """
        try:
            form, table, incarnation, key_family, position, *created = orjson.loads(data)
            state = cls(table, incarnation, key_family, bytes.fromhex(position), *created)
        except (ValueError, TypeError):
            raise _malformed(data) from None
        is_typed = isinstance(table, str) and isinstance(key_family, (str, type(None)))
        is_typed = is_typed and all(type(number) is int for number in (incarnation, *created))
        if form != _FORMAT or not is_typed:
            raise _malformed(data)
        return state


def position_of(state: IteratorState) -> bytes:
    """Return the table key at which a state stands.

    Raises:
        TypeError: it is not bytes.
    """
    if not isinstance(state.position, bytes):
        raise TypeError(f"the position of the state is {state.position!r:.80}: expected bytes, as in page.state")
    return state.position


def _malformed(data: object) -> SerializationError:
    return SerializationError(f"{data!r:.80} is no iterator state: pass what IteratorState.to_bytes() returned")


class Page(NamedTuple, Generic[T]):
    """One page: its items, and the state from which the next one follows."""

    items: list[T]
    state: IteratorState


class Rows(Protocol):
    """What an iteration asks of its table; both calls refuse work if the table does."""

    def stamp(self) -> Any:
        """Return what changes with every write to the rows."""

    def read(self, after: bytes | None, count: int) -> list[Found]:
        """Return the next rows after a table key, from the beginning if it is ``None``."""


class PageIterator(Generic[T], Iterator[Page[T]]):
    """The pages of an iteration, each as of the moment it is taken. Every page but the last is full.

    Args:
        rows: the rows to iterate over.
        lock: held while a page is read.
        size: how many items make a page.
        item: makes the item of a row.
        start: the state from which to continue.
        is_begun: whether it is the state of a page; if not, only the table and the family are taken from it.
    """

    def __init__(
        self,
        rows: Rows,
        lock: Any,
        size: int,
        item: Callable[[Found], T],
        start: IteratorState,
        *,
        is_begun: bool,
    ) -> None:
        if type(size) is not int:
            raise TypeError(f"the size of a page is {size!r}: expected an int")
        if size < 1:
            raise ValueError(f"the size of a page is {size}: expected 1 or more")
        self._rows, self._lock, self._size, self._item = rows, lock, min(size, sys.maxsize), item
        self._state = start
        self._position = start.position if is_begun else None
        self._ahead: list[Found] = []
        self._stamp: Any = None
        self._count = self._size
        self._is_over = False

    def __next__(self) -> Page[T]:
        """Return the next page.

        Raises:
            StopIteration: nothing follows; resume from the last state to see what came later.

        Time: O(log n + items of the page), in memory.
        """
        before, found = self._take()
        if not found:
            self._is_over = True
            raise StopIteration
        try:
            items = [self._item(row) for row in found]
        except BaseException as error:
            self._position, self._stamp = before, None  # The page is read again, and not skipped.
            if isinstance(error, StopIteration):
                raise RuntimeError("a serializer raised StopIteration, which would end the iteration") from error
            raise
        return Page(items, self._state._replace(position=found[-1][0]))

    def _take(self) -> tuple[bytes | None, list[Found]]:
        """Return the key after which the next page begins, and its rows, read ahead if nothing was written since."""
        with self._lock:
            before = self._position
            if self._is_over:
                return before, []
            stamp = self._rows.stamp()
            is_same = stamp == self._stamp
            if not is_same or len(self._ahead) < self._size:
                self._count = max(self._size, min(self._count * 2, READ_AHEAD)) if is_same else self._size
                self._ahead = self._rows.read(before, self._count)
                self._stamp = stamp
            found, self._ahead = self._ahead[: self._size], self._ahead[self._size :]
            self._position = found[-1][0] if found else before
        return before, found
