"""The MemTable: the net operations of one epoch, with the old rows if they are known.

How a second operation on a key combines with the first (``b``, ``x``, ``c`` are rows)::

    buffered      Insert(c)       Delete(x)                     Update(x, c)
    nothing       Insert(c)       Delete(x)                     Update(x, c)
    Insert(b)     error           x = b: nothing, else error    x = b: Insert(c), else error
    Delete(a)     Update(a, c)    error                         error
    Update(a, b)  error           x = b: Delete(a), else error  x = b: Update(a, c), else error

So the old row in the buffer is what is stored, the new row is what a read returns, and the buffer is a minimal change
that can be inverted. An update to the row that is already there leaves nothing, not even for checks: an operation that
contradicts it is taken as the first one on its key. A *strict* table raises the errors; a *trusted* one lets the
operation win over what contradicts it. A *blind* table does not know what is stored: only its last operation on a key
counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from itertools import islice
from threading import RLock
from types import TracebackType
from typing import Any, Literal, NamedTuple, get_args

from sortedcontainers import SortedList

from objectspace.relational.errors import InconsistentOperationError

Consistency = Literal["strict", "trusted", "blind"]

CONSISTENCIES: tuple[Consistency, ...] = get_args(Consistency)


BATCH = 64
"""The number of operations that a scan takes at first."""


class Kind(StrEnum):
    """What an operation does to its key."""

    INSERT = "insert"
    DELETE = "delete"
    UPDATE = "update"


class Operation(NamedTuple):
    """The net operation on one key; the old row of an insert and the new row of a delete are ``None``."""

    kind: Kind
    old: Any
    new: Any


_INSERT, _DELETE, _UPDATE = Kind.INSERT, Kind.DELETE, Kind.UPDATE
_new = tuple.__new__

_Noted = Any
"""What is kept for a key: an operation, or only the new row for an insert whose old row is not known."""


def _operation(noted: _Noted) -> Operation:
    return noted if type(noted) is Operation else _new(Operation, (_INSERT, None, noted))


class MemTable:
    """Net operations by key.

    Args:
        consistency: how operations on one key combine, see above.

    >>> buffer = MemTable("strict")
    >>> buffer.delete(b"k", "a"); buffer.insert(b"k", "b"); buffer.get(b"k")
    Operation(kind=<Kind.UPDATE: 'update'>, old='a', new='b')
    """

    def __init__(self, consistency: Consistency = "blind") -> None:
        if consistency not in CONSISTENCIES:
            raise ValueError(f"consistency is {consistency!r}: expected one of {', '.join(CONSISTENCIES)}")
        self.consistency = consistency
        self._operations: dict[bytes, _Noted] = {}
        self._order: SortedList | None = None
        self._unsorted: list[bytes] = []
        self._sorting, self._is_sorting = RLock(), False
        self._journal: dict[bytes, _Noted] | None = None

    def insert(self, key: bytes, new: Any) -> None:
        """Note that a row was inserted.

        Raises:
            InconsistentOperationError: the table is strict and the key is already there.

        Time: O(1); O(log n) after a scan.
        """
        found = None if self.consistency == "blind" else self.get(key)
        if found is not None and found.kind is _DELETE:
            self._put_update(key, found.old, new)
            return
        if found is not None:
            self._contradiction(f"insert of {new!r:.200}", found)
        self._put(key, new)

    def write_all(self, keys: Sequence[bytes], olds: Sequence[Any], news: Sequence[Any]) -> None:
        """Note inserts (their old row is ``None``) and deletes (their new row is ``None``), one by one in order.

        Raises:
            InconsistentOperationError: the table is strict and an operation contradicts what is there.

        Time: O(1) per row, and faster than separate calls if the table is blind.
        """
        if self.consistency != "blind" or self._journal is not None:
            for key, old, new in zip(keys, olds, news):
                if new is None:
                    self.delete(key, old)
                else:
                    self.insert(key, new)
            return
        if self._order is not None:
            self._unsorted += [key for key in keys if key not in self._operations]
        if None not in news:
            self._operations.update(zip(keys, news))
            return
        pairs = zip(olds, news)
        noted = [_new(Operation, (_DELETE, old, None)) if new is None else new for old, new in pairs]
        self._operations.update(zip(keys, noted))

    def delete(self, key: bytes, old: Any) -> None:
        """Note that a row was deleted.

        Raises:
            InconsistentOperationError: the table is strict, and the key is not there or holds another row.

        Time: O(1); O(log n) after a scan.
        """
        found = None if self.consistency == "blind" else self.get(key)
        if found is None:
            self._put_operation(key, _DELETE, old, None)
            return
        if found.kind is _DELETE or found.new != old:
            self._contradiction(f"delete of {old!r:.200}", found)
        if found.kind is _INSERT:
            self._drop(key)
        else:
            self._put_operation(key, _DELETE, old if found.kind is _DELETE else found.old, None)

    def update(self, key: bytes, old: Any, new: Any) -> None:
        """Note that a row was replaced by another one with the same key.

        Raises:
            InconsistentOperationError: the table is strict, and the key is not there or holds another row.

        Time: O(1); O(log n) after a scan.
        """
        if self.consistency == "blind":
            self._put_operation(key, _UPDATE, old, new)
            return
        found = self.get(key)
        if found is None:
            self._put_update(key, old, new)
            return
        if found.kind is _DELETE or found.new != old:
            self._contradiction(f"update of {old!r:.200} to {new!r:.200}", found)
        if found.kind is _INSERT:
            self._put(key, new)
        else:
            self._put_update(key, old if found.kind is _DELETE else found.old, new)

    def get(self, key: bytes) -> Operation | None:
        """Return the net operation on a key, or ``None`` if there is none."""
        found = self._operations.get(key)
        return found if found is None or type(found) is Operation else _operation(found)

    def between(
        self, start: bytes, end: bytes, *, reverse: bool = False
    ) -> list[tuple[bytes, Operation]] | Iterator[tuple[bytes, Operation]]:
        """Return (key, operation) for the keys from ``start`` to before ``end``, in key order; an empty end is no end.

        Time: O(log n + what is taken of it); the first scan of an epoch sorts.
        """
        if not self._operations:
            return []
        operations, order = self._operations, self._sorted()
        keys = list(islice(order.irange(start, end or None, (True, False), reverse), BATCH))
        first = [(key, _operation(operations[key])) for key in keys]
        return first if len(first) < BATCH else _batches(operations, order, first, start, end, reverse)

    def items(self) -> Iterator[tuple[bytes, Operation]]:
        """Yield (key, operation) in key order."""
        operations = dict(self._operations)  # A copy: the epoch may be sealed before they are read.
        return ((key, _operation(operations[key])) for key in sorted(operations))

    def outcome(self) -> tuple[list[bytes], dict[bytes, Any]]:
        """Return the keys whose rows go, and the new rows of the others by their keys, both in key order."""
        keys = sorted(self._operations)
        news = list(map(self._operations.__getitem__, keys))
        if Operation not in set(map(type, news)):
            return [], dict(zip(keys, news))
        news = [noted[2] if type(noted) is Operation else noted for noted in news]
        gone = [key for key, new in zip(keys, news) if new is None]
        return gone, {key: new for key, new in zip(keys, news) if new is not None}

    def clear(self) -> None:
        """Forget all operations. Time: O(1)."""
        self._operations, self._order = {}, None
        self._unsorted = []

    def all_or_nothing(self, take_back: Callable[[], object]) -> AbstractContextManager[None]:
        """Take back what is noted inside if it ends with an error.

        Args:
            take_back: called then, to take back what others have counted inside.

        Time: O(operations noted inside).
        """
        return _AllOrNothing(self, take_back)

    def _begin_journal(self) -> None:
        self._journal = {}

    def _end_journal(self, *, takes_back: bool) -> None:
        journal, self._journal = self._journal or {}, None
        # One by one, and the order with them: a scan that has begun continues in it.
        for key, before in journal.items() if takes_back else ():
            if before is None:
                self._drop(key)
            else:
                self._put(key, before)

    def __len__(self) -> int:
        return len(self._operations)

    def __bool__(self) -> bool:
        return bool(self._operations)

    def _sorted(self) -> SortedList:
        """Return the keys in order; keys that came in bulk writes are sorted in only now.

        Other threads may be scanning too, and an interruption may have left a key among the unsorted ones that is gone,
        or is already in order.
        """
        if self._order is None or self._unsorted:
            with self._sorting:
                return SortedList(self._operations) if self._is_sorting else self._sorted_in()
        return self._order

    def _sorted_in(self) -> SortedList:
        """Sort in what is unsorted; what comes in its midst, in a signal handler, sorts for itself."""
        self._is_sorting = True
        try:
            order, operations = self._order, self._operations
            if order is None:
                order = SortedList(operations)
            else:
                new = dict.fromkeys(self._unsorted)
                order.update([key for key in new if key in operations and key not in order])
            self._order, self._unsorted = order, []
            return order
        except BaseException:
            self._order = None  # It may be half updated.
            raise
        finally:
            self._is_sorting = False

    def _put_update(self, key: bytes, old: Any, new: Any) -> None:
        if old == new:
            self._drop(key)
        else:
            self._put_operation(key, _UPDATE, old, new)

    def _put_operation(self, key: bytes, kind: Kind, old: Any, new: Any) -> None:
        self._put(key, _new(Operation, (kind, old, new)))

    def _put(self, key: bytes, noted: _Noted) -> None:
        if self._journal is not None:
            self._remember(key)
        if self._order is not None and key not in self._operations:
            self._unsorted.append(key)
        self._operations[key] = noted

    def _drop(self, key: bytes) -> None:
        if self._journal is not None:
            self._remember(key)
        try:
            if self._order is not None and key in self._operations:
                self._sorted().remove(key)
            self._operations.pop(key, None)
        except BaseException:
            self._order = None  # It may lack a key that is still there.
            raise

    def _remember(self, key: bytes) -> None:
        assert self._journal is not None
        self._journal.setdefault(key, self._operations.get(key))

    def _contradiction(self, what: str, found: Operation) -> None:
        if self.consistency == "strict":
            rows = found.old if found.kind is _DELETE else found.new
            raise InconsistentOperationError(f"{what} after the {found.kind} of {rows!r:.200} in the same epoch")


class _AllOrNothing:
    """The block of :meth:`MemTable.all_or_nothing`.

    This is a class because a generator would not do: if Ctrl-C keeps it from hearing that its block was left, it is
    closed only once the interruption is no longer referenced, and would take back what was noted until then.
    """

    def __init__(self, buffer: MemTable, take_back: Callable[[], object]) -> None:
        self._buffer, self._take_back = buffer, take_back

    def __enter__(self) -> None:
        self._buffer._begin_journal()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._buffer._end_journal(takes_back=kind is not None)
        if kind is not None:
            self._take_back()


def _batches(
    operations: dict[bytes, _Noted],
    order: SortedList,
    batch: list[tuple[bytes, Operation]],
    start: bytes,
    end: bytes,
    reverse: bool,
) -> Iterator[tuple[bytes, Operation]]:
    """Yield a first batch and what follows in batches that double, so taking little costs little."""
    size = BATCH
    while batch:
        yield from batch
        last, size = batch[-1][0], 2 * size
        low, high, inclusive = (start, last, (True, False)) if reverse else (last, end or None, (False, False))
        batch = [
            (key, _operation(operations[key])) for key in islice(order.irange(low, high, inclusive, reverse), size)
        ]


def overlaid(
    sealed: Iterator[tuple[bytes, str]], buffered: Iterable[tuple[bytes, Operation]], reverse: bool
) -> Iterator[tuple[bytes, str]]:
    """Merge operations over sealed rows, both in key order: for equal keys the operation wins, and a delete hides."""
    waiting = iter(buffered)
    ahead = next(waiting, None)
    for key, text in sealed:
        while ahead is not None and (ahead[0] > key if reverse else ahead[0] < key):
            if ahead[1].new is not None:
                yield ahead[0], ahead[1].new
            ahead = next(waiting, None)
        if ahead is None or ahead[0] != key:
            yield key, text
    while ahead is not None:
        if ahead[1].new is not None:
            yield ahead[0], ahead[1].new
        ahead = next(waiting, None)
