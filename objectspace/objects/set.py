"""The persisted set: an element is its own slot, and the order is that of insertion."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, MutableSet, Sequence
from collections.abc import Set as AbstractSet
from functools import wraps
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar, cast

import orjson

from checkpoint.reader import StoredItem, StoredRow
from checkpoint.run import ItemRow
from objectspace import codec, keys
from objectspace.objects import scans
from objectspace.objects.base import ABSENT, UNREADABLE, item_text
from objectspace.objects.ends import taken
from objectspace.objects.keyed import KEY, KeyedObject
from objectspace.objects.torn import undivided
from objectspace.objects.variants import BY_NAME, is_cold, refuse_dead

F = TypeVar("F", bound=Callable[[Any, Any], Any])
S = TypeVar("S")
T = TypeVar("T")

MEMBER = "true"
"""What is stored beside an element whose slot tells it."""

_STEADY = frozenset({list, tuple, range, set, frozenset})
"""Elements of these can be added one by one: taking them runs no code that could look at the set meanwhile."""


def _of_sets(operator: F) -> F:
    """Return an operator that takes sets only, as those of ``set`` do: its methods take any iterable."""

    @wraps(operator)
    def _operate(self: Any, other: object) -> Any:
        return operator(self, other) if isinstance(other, AbstractSet) else NotImplemented

    return cast(F, _operate)


def _from_right(operator: F) -> F:
    """Return an operator of what stands on its right: as with ``set``, the result is frozen if the other one is."""

    @wraps(operator)
    def _operate(self: Any, other: object) -> Any:
        found = operator(self, other)
        return frozenset(found) if isinstance(other, frozenset) else found

    return cast(F, _operate)


class SetMethods(MutableSet[T]):
    """The methods that ``set`` has beyond ``MutableSet``; results are plain sets."""

    def __init__(self, *_: Any) -> None:
        raise TypeError("a set belongs to a space")

    @classmethod
    def _from_iterable(cls, values: Iterable[Any]) -> Any:
        return set(values)

    def remove(self, value: T) -> None:
        """Remove an element.

        Raises:
            KeyError: it is not there.

        Time: as for ``discard``. Dirties: one item and the length.
        """
        if value not in self:
            raise KeyError(value)
        self.discard(value)

    def update(self, *others: Iterable[T]) -> None:
        """Add the elements of all others, or none if one is refused.

        Time: as for ``add`` for each element of the others. Dirties: one item per new element, and the length.
        """
        wanted = dict.fromkeys(value for other in others for value in list(other))
        self._change([value for value in wanted if value not in self], ())

    def difference_update(self, *others: Iterable[Any]) -> None:
        """Remove the elements of all others.

        Time: as for ``discard`` for each of them. Dirties: one item per element removed, and the length.
        """
        for other in others:
            for value in list(other):
                self.discard(value)

    def intersection_update(self, *others: Iterable[Any]) -> None:
        """Keep only what all others have as well.

        Time: O(n) and the elements of the others, and as for ``discard`` for each element removed.
        Dirties: one item per element removed, and the length.
        """
        kept = self.intersection(*others)
        for value in [value for value in self if value not in kept]:
            self.discard(value)

    def symmetric_difference_update(self, other: Iterable[T]) -> None:
        """Add what only the other has and remove what both have, or change nothing if an element is refused.

        Time: as for ``add`` or ``discard`` for each element of the other. Dirties: one item per element, and the
        length.
        """
        wanted = dict.fromkeys(other)
        there = {value for value in wanted if value in self}
        self._change([value for value in wanted if value not in there], there)

    def _change(self, added: Iterable[T], removed: Iterable[T]) -> None:
        """Add what is not there and remove what is; if adding fails, all is as it was."""
        done: list[T] = []
        try:
            for value in added:
                self.add(value)
                done.append(value)
        except BaseException:
            for value in done:
                self.discard(value)
            raise
        for value in removed:
            self.discard(value)

    def union(self, *others: Iterable[S]) -> set[T | S]:
        """Return a plain set of the elements of this one and all others."""
        found: set[Any] = self.copy()
        found.update(*others)
        return found

    def intersection(self, *others: Iterable[Any]) -> set[T]:
        """Return a plain set of what this one and all others have."""
        return self.copy().intersection(*others)

    def difference(self, *others: Iterable[Any]) -> set[T]:
        """Return a plain set of what this one has and no other has."""
        return self.copy().difference(*others)

    def symmetric_difference(self, other: Iterable[S]) -> set[T | S]:
        """Return a plain set of what just one of the two has."""
        return self.copy().symmetric_difference(other)

    def issubset(self, other: Iterable[Any]) -> bool:
        """Return whether the other has every element."""
        return self.copy().issubset(other)

    def issuperset(self, other: Iterable[Any]) -> bool:
        """Return whether every element of the other is here."""
        return all(value in self for value in other)

    def isdisjoint(self, other: Iterable[Any]) -> bool:
        """Return whether no element of the other is here."""
        return not any(value in self for value in other)

    def copy(self) -> set[T]:
        """Return a plain ``set`` with the same elements."""
        return set(self)

    if TYPE_CHECKING:  # That of all sets, of which a type checker does not know that it takes plain ones.

        def __eq__(self, other: object) -> bool: ...

    @_of_sets
    def __or__(self, other: AbstractSet[S]) -> set[T | S]:
        return self.union(other)

    @_of_sets
    def __and__(self, other: AbstractSet[Any]) -> set[T]:
        return {value for value in other if value in self}

    @_of_sets
    def __sub__(self, other: AbstractSet[Any]) -> set[T]:
        return {value for value in self if value not in other}

    @_from_right
    @_of_sets
    def __rsub__(self, other: AbstractSet[S]) -> set[S]:  # type: ignore[misc]
        return {value for value in other if value not in self}

    @_of_sets
    def __xor__(self, other: AbstractSet[S]) -> set[T | S]:
        return self.symmetric_difference(other)

    __ror__, __rand__, __rxor__ = _from_right(__or__), _from_right(__and__), _from_right(__xor__)

    @_of_sets
    def __ior__(self, other: AbstractSet[T]) -> Self:  # type: ignore[override]
        self.update(other)
        return self

    @_of_sets
    def __iand__(self, other: AbstractSet[Any]) -> Self:
        self.intersection_update(other)
        return self

    @_of_sets
    def __isub__(self, other: AbstractSet[Any]) -> Self:
        self.difference_update(other)
        return self

    @_of_sets
    def __ixor__(self, other: AbstractSet[T]) -> Self:  # type: ignore[override]
        self.symmetric_difference_update(other)
        return self


class MemberCodec(KeyedObject):
    """An object whose slots are its elements, with nothing beside them."""

    _is_plain = False
    _key_prefix = None

    def _text(self, key: Any, value: Any) -> str:
        if keys.is_exact(key):
            return MEMBER
        self._table.is_mixed = True
        try:
            return codec.encode_plain({KEY: codec.plain(key)})
        except (codec.Unencodable, RecursionError) as error:
            raise self._unencodable("element", key, error) from error.__cause__

    def _keys_of(self, rows: Sequence[StoredRow]) -> list[Any]:
        if {MEMBER}.issuperset(row[1] for row in rows):
            return keys.from_slots([row[0] for row in rows])
        return [self._key_value(StoredItem(row[0], row[1], None))[0] for row in rows]

    def _key_value(self, item: StoredItem) -> tuple[Any, Any]:
        text = item_text(item)
        if text == MEMBER:
            return keys.from_slot(item.slot), None
        self._table.is_mixed = True
        try:
            return keys.as_stored(codec.restore(orjson.loads(text)[KEY]), item.slot), None
        except UNREADABLE as error:
            self._damaged(item.slot, text, error)


_NOWHERE, _IN_STORE = (-1, -1), (-2, -2)
"""What stands for where the first elements were looked up: neither is a number of pages and of drops."""


class Set(MemberCodec, SetMethods[T]):
    """A set that keeps the order of insertion; one slot per element.

    It has the methods of ``set``. From the first change after a save to the next save or removal, ``add`` is a method
    of the ``dict`` that holds the elements.

    ============== ======================================================
    method         dirties
    ============== ======================================================
    ``add``        1 item and the length, if the element is new
    ``discard``    1 item and the length, if the element is there
    ``clear``      the length, and the items up to 32, else 2 index rows
    ============== ======================================================

    >>> from objectspace import VolatileObjectSpace
    >>> s = VolatileObjectSpace().create_set("s")
    >>> s |= {3}
    >>> s.add(1)
    >>> s
    Set('s', {3, 1})
    """

    kind = "Set"
    __slots__ = ("_table",)  # Found sooner there than in a __dict__ that also has methods.
    _is_ranked = True
    __hash__ = None  # type: ignore[assignment]
    if TYPE_CHECKING:  # To a type checker, an __init__ that is assigned as a variable is not a constructor.

        def __init__(self, *_: Never, **__: Never) -> None: ...
    else:
        __init__ = KeyedObject.__init__
    _is_lent = False
    """Whether somebody has kept ``add`` across a save: it goes straight to the elements in memory, so they stay."""
    _first: dict[Any, None]
    """Some of the elements that were added first, the very first one last; none where they must be looked up."""
    _first_since: tuple[int, int]
    """How many pages were turned and how often memory was dropped when they were looked up, if that was in memory."""
    _first_count: int
    """How many are looked up the next time."""

    def _configure(self, options: dict[str, Any]) -> None:
        self._forget_first()
        if self._fresh:
            self._open()

    @undivided
    def add(self, value: T, /) -> None:
        """Add an element.

        Time: O(1). Dirties: one item and the length, if it is new.
        """
        if self._table.read(value) is not ABSENT:
            return
        if self._table.complete:
            self._open()
            self._table.live.setdefault(value)
        else:
            self._table.write(value, None)

    def discard(self, value: T) -> None:
        """Remove an element if it is there.

        Time: O(1). Dirties: one item and the length.
        """
        self._close()
        first, self._first = self._first, {}  # Away meanwhile: they are looked up again after an interruption.
        try:
            self._table.delete(value)
            first.pop(value, None)
        except TypeError:
            if not isinstance(value, set):
                raise
            there: Any = frozenset(value)  # The one that may be there, as with a plain set.
            self._table.delete(there)
            first.pop(there, None)
        self._first = first

    def update(self, *others: Iterable[T]) -> None:
        """Add the elements of all others.

        Time: O(elements). Dirties: one item per new element, and the length.
        """
        for other in others:
            # Anything but a plain container may run any code while it is read, even a save of the space: it is read
            # first.
            added = other if type(other) in _STEADY else dict.fromkeys(other)
            self._add_all(added)

    @undivided
    def _add_all(self, added: Iterable[T]) -> None:
        """Add what no code but that of its elements runs for."""
        if self._table.complete:
            self._open()
            _extend(self._table.live, zip(added, repeat(None)))
        else:
            self._table.write_all(dict.fromkeys(added))

    def pop(self) -> T:
        """Remove the element that was added first and return it.

        Raises:
            KeyError: the set is empty.

        Time: O(1) in memory, where a set that fits is soon; else O(n) for every thousand elements or more.
        Dirties: one item and the length.
        """
        refuse_dead(self)
        first, self._first = self._found_first(), {}  # Away meanwhile, as in ``discard``.
        if not first:
            raise KeyError(f"{self._describe()} is empty: there is nothing to pop")
        value, _ = first.popitem()
        self.discard(value)
        self._first = first
        return value  # type: ignore[no-any-return]

    def _found_first(self) -> dict[Any, None]:
        """Return some of the elements that were added first, the very first one last; none if the set is empty."""
        table = self._table
        with self._home.mutex:  # Another thread may be dropping clean slots.
            # Nothing comes before what was added first, so in the store these are the same until they are forgotten.
            since = (table.saves, table.drops) if table.complete else _IN_STORE
            if self._first_since != since:
                self._forget_first()
                self._first_since = since
            if not self._first:
                self._first = dict.fromkeys(self._look_up_first())
            return self._first

    def _look_up_first(self) -> list[Any]:
        """Return some of the elements that were added first, the very first one last.

        A search from the begin steps over the holes that were left there, so each one finds twice as many as the last
        one, until they are all that there are: those are found from the end.
        """
        table = self._table
        if not table.complete:
            return taken(self, table.fetched_at_once())[::-1]
        if len(table.live) <= self._first_count:
            return list(reversed(table.live))
        some = list(islice(table.live, self._first_count))
        self._first_count *= 2
        return some[::-1]

    def _forget_first(self) -> None:
        """Have the elements that were added first looked up again: what is in memory is not what it was."""
        self._first, self._first_since, self._first_count = {}, _NOWHERE, scans.FIRST_PAGE_ROWS

    def clear(self) -> None:
        """Remove every element.

        Time: O(1) rows beyond 32. Dirties: one item per element up to 32, two index rows beyond that; the length.
        """
        self._close()
        self._forget_first()
        self._table.clear()
        if self._fresh:
            self._open()

    def __contains__(self, value: object) -> bool:
        table = self._table
        try:
            return value in table.live or table.read(value) is not ABSENT
        except TypeError:
            if not isinstance(value, set):
                raise
            return frozenset(value) in self

    def copy(self) -> set[T]:
        """Return a plain ``set`` with the same elements."""
        whole: set[T] | None = self._table.of_whole(set)
        return set(self) if whole is None else whole

    def __iter__(self) -> Iterator[T]:
        """Yield the elements in the order of insertion."""
        iterator: Iterator[T] = scans.keys_of(self._table)
        return iterator

    def __reversed__(self) -> Iterator[T]:
        with self._home.mutex:  # Another thread may drop them again.
            self._wake()  # The method may have been kept since before a rollback.
            self._load_whole()
            iterator: Iterator[T] = scans.keys_of(self._table, reverse=True)
            return iterator

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return f"Set({self._name!r}, {{{', '.join(map(repr, self))}}})"

    @undivided
    def _open(self) -> None:
        """Note that the set changes, and find new elements at the next save: they stand at the end."""
        self._home.touch(self)
        self.__dict__.setdefault("add", self._table.live.setdefault)  # One and the same: whoever keeps it is counted.

    def _is_open(self) -> bool:
        return "add" in self.__dict__

    @undivided
    def _close(self) -> None:
        """Note the elements that were added while the set was open, and watch it from now on."""
        table = self._table
        add = self.__dict__.pop("add", None)
        if add is not None and sys.getrefcount(add) > BY_NAME:
            self._is_lent = True
        if self._fresh or not table.complete:
            return
        if add is None and not self._is_lent and dict.__len__(table.live) == table.count:
            return  # All are noted. A walk from the end steps over what was removed there.
        assert table.ranks is not None
        added = []
        for value in reversed(table.live):
            if value in table.ranks:
                break
            added.append(value)
        for value in reversed(added):
            table.add_key(value)

    def _rows(self) -> list[ItemRow]:
        self._close()
        return super()._rows()

    def _has_slipped(self) -> bool:
        return (self._table.complete or is_cold(self)) and dict.__len__(self._table.live) != self._table.count

    def _warm(self) -> type:
        late = list(self._table.live)  # They came through an ``add`` that was kept across a rollback.
        warm = super()._warm()
        if late:
            self._load_whole()
            _extend(self._table.live, zip(late, repeat(None)))
        return warm

    def _settle(self, durable: bool) -> None:
        if not durable:
            self._close()
        super()._settle(durable)
        if self._fresh:
            self._open()

    def _go_cold(self) -> None:
        self._forget_first()
        super()._go_cold()

    def _shrink(self, *, gently: bool) -> None:
        if not self._is_lent and self._can_shrink(gently):
            self._close()
            self._table.shrink()


def _extend(elements: dict[Any, None], added: Any) -> None:
    """Add elements to those in memory, all or none."""
    before = len(elements)
    try:
        elements.update(added)
    except BaseException:
        while len(elements) > before:
            elements.popitem()  # The last one to come is the first to go.
        raise
