"""The persisted dictionary: a real ``dict`` while it is small enough, a window on the store when it is not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, islice
from operator import is_, is_not
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Never, NoReturn, Self, TypeVar, overload

from checkpoint.run import ItemRow
from objectspace.objects import limits, scans
from objectspace.objects.arguments import TakesNone
from objectspace.objects.base import ABSENT, alike
from objectspace.objects.keyed import KeyedObject
from objectspace.objects.table import STORED
from objectspace.objects.torn import undivided
from objectspace.objects.variants import is_cold, named_as, refuse_dead
from objectspace.objects.views import StreamedItems, StreamedKeys, StreamedValues

if TYPE_CHECKING:
    from _typeshed import SupportsKeysAndGetItem

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class Dictionary(dict[K, V], KeyedObject):
    """A dictionary that keeps the order of insertion; one slot per key.

    It has the methods of ``dict``. A handle is *open* if its object is new or a large part of it has changed since the
    last save: it is a plain ``dict``, and the next save finds the changes by comparison. Otherwise it is *watched* and
    notes each change. If the object is large, only the slots in use are in memory.

    Changing a stored value in place is not an edit: assign it again. ``space.check_mutations()`` finds such slots.

    ============================ =======================================================
    method                       dirties
    ============================ =======================================================
    ``d[k] = v``, ``setdefault`` 1 item; for a new key also the length
    ``update``                   1 item per key that changes
    ``del d[k]``, ``pop``        1 item and the length
    ``discard_many``             1 item per key that was there, and the length
    ``clear``                    the length, and the items up to 32, else 2 index rows
    ============================ =======================================================

    >>> from objectspace import VolatileObjectSpace
    >>> d = VolatileObjectSpace().create_dictionary("d")
    >>> d["a"] = 1
    >>> d.update(b=2)
    >>> d
    Dictionary('d', {'a': 1, 'b': 2})
    """

    kind = "Dictionary"
    _is_ranked = True
    __hash__ = None  # type: ignore[assignment]

    if TYPE_CHECKING:  # To a type checker, an __init__ that is assigned as a variable is not a constructor.

        def __init__(self, *_: Never, **__: Never) -> None: ...
    else:
        __init__ = KeyedObject.__init__

    _twin: dict[Any, Any] | None
    """The items as they were when the dictionary was opened; ``None`` while changes are noted."""
    _noted: int
    """How many changes were noted since the last save, or since it was last tried to open it."""

    def _body(self) -> dict[Any, Any]:
        self._twin, self._noted = None, 0
        return self

    @overload
    def pop(self, key: K, /) -> V: ...
    @overload
    def pop(self, key: K, default: V, /) -> V: ...
    @overload
    def pop(self, key: K, default: T, /) -> V | T: ...
    def pop(self, key: K, *default: Any) -> Any:
        """Remove a key and return its value, or the default if there is no such key.

        Raises:
            KeyError: there is no such key, and no default is given.

        Time: O(1).
        Dirties: one item and the length.
        """
        if len(default) > 1:
            raise TypeError(f"pop expected at most 2 arguments, got {1 + len(default)}")
        self._close()
        value = self._table.delete(key)
        if value is not ABSENT:
            return value
        if not default:
            raise KeyError(key)
        return default[0]

    def popitem(self) -> tuple[K, V]:
        """Remove the key that was inserted last and return it with its value.

        Raises:
            KeyError: the dictionary is empty.

        Time: O(1) in memory, where a dictionary that fits is soon; else O(n) for every thousand keys or more.
        Dirties: one item and the length.
        """
        refuse_dead(self)
        self._close()
        if (taken := self._table.delete_last()) is not None:
            return taken
        if (key := self._table.last_keys.newest(self._table)) is ABSENT:
            raise KeyError(f"{self._describe()} is empty")
        return key, self.pop(key)

    @overload
    def setdefault(self: TakesNone[K], key: K, default: None = None) -> V: ...
    @overload
    def setdefault(self, key: K, default: V) -> V: ...
    @undivided
    def setdefault(self, key: K, default: Any = None) -> Any:
        """Return the value of a key, setting it to the default if there is none.

        Time: O(1). Dirties: one item and the length for a new key.
        """
        if type(self) is Dictionary:
            return dict.setdefault(self, key, default)
        if key not in self:
            self[key] = default
        return self[key]

    @overload
    def update(self, other: SupportsKeysAndGetItem[K, V], /) -> None: ...
    @overload
    def update(self, other: Iterable[tuple[K, V]] = ..., /) -> None: ...
    @overload
    def update(self: Dictionary[str, V], other: SupportsKeysAndGetItem[K, V], /, **more: V) -> None: ...
    @overload
    def update(self: Dictionary[str, V], other: Iterable[tuple[K, V]] = ..., /, **more: V) -> None: ...
    def update(self, other: Any = (), /, **more: Any) -> None:
        """Set many keys.

        Time: O(changes). Dirties: one item per key that changes; for new ones, also the length.
        """
        # Anything but a plain dict may run any code while it is read, even a save of the space: it is read first.
        changes = other if type(other) is dict and not more else dict(other, **more)
        refuse_dead(self)
        if is_cold(self):
            self._wake()
        self._update(changes)

    @overload
    def get_many(self, keys: Sequence[K], default: None = None) -> list[V | None]: ...
    @overload
    def get_many(self, keys: Sequence[K], default: V) -> list[V]: ...
    @overload
    def get_many(self, keys: Sequence[K], default: T) -> list[V | T]: ...
    def get_many(self, keys: Sequence[K], default: Any = None) -> list[Any]:
        """Return the value, or the default, of each of some keys: quicker than ``get`` if they are not in memory.

        Time: O(keys · log n), or O(stored slots) if they are many of those stored.
        """
        return self._table.read_all(keys, default)

    def discard_many(self, keys: Iterable[K]) -> None:
        """Remove whichever of some keys are there: quicker than one by one.

        Raises:
            TypeError: a key is not hashable; nothing is removed then.

        Time: O(keys). Dirties: one item per key that is removed, and the length.
        """
        unwanted = list(dict.fromkeys(keys))  # Reading it may run any code.
        refuse_dead(self)
        self._close()
        self._table.delete_all(unwanted)

    @undivided
    def _update(self, changes: dict[Any, Any]) -> None:
        dict.update(self, changes)

    @overload  # type: ignore[override, misc]  # as dict itself has it
    def __ior__(self, other: SupportsKeysAndGetItem[K, V]) -> Self: ...
    @overload
    def __ior__(self, other: Iterable[tuple[K, V]]) -> Self: ...
    def __ior__(self, other: Any) -> Self:  # type: ignore[misc]
        self.update(other)
        return self

    def __eq__(self, other: object) -> bool:
        found = self._table.of_whole(lambda _: dict.__eq__(self, _read_whole(other)))
        return self._as_paged().__eq__(self, other) if found is None else found

    def __ne__(self, other: object) -> bool:
        found = self._table.of_whole(lambda _: dict.__ne__(self, _read_whole(other)))
        return self._as_paged().__ne__(self, other) if found is None else found

    @undivided
    def clear(self) -> None:
        """Remove every key.

        Time: O(1) slots written beyond 32 of them.
        Dirties: one item per key up to 32 stored keys, two index rows beyond that; the length.
        """
        self._close()
        self._table.clear()
        if self._fresh:
            self.__class__ = Dictionary

    def copy(self) -> dict[K, V]:
        """Return a plain ``dict`` with the same contents."""
        whole = self._table.of_whole(dict.copy)
        return dict(self.items()) if whole is None else whole

    def keys(self) -> StreamedKeys[K]:  # type: ignore[override]  # the views of dict are final
        """Return a view of the keys, which are read as it is iterated."""
        return StreamedKeys(self)

    def values(self) -> StreamedValues[V]:  # type: ignore[override]
        """Return a view of the values, which are read as it is iterated."""
        return StreamedValues(self)

    def items(self) -> StreamedItems[K, V]:  # type: ignore[override]
        """Return a view of the items, which are read as it is iterated."""
        return StreamedItems(self)

    def _keys(self, *, reverse: bool = False) -> Iterator[K]:
        """Return an iterator over the keys, which notices if they leave the memory: that of ``dict`` does not."""
        return scans.keys_of(self._table, reverse=reverse)

    def _pairs(self, *, reverse: bool = False) -> Iterator[tuple[K, V]]:
        """Return an iterator over the items."""
        return scans.items_of(self._table, reverse=reverse)

    @staticmethod
    def _as_paged() -> Any:
        """Return the class whose methods read what is not in memory: another thread is dropping clean slots."""
        return _Paged

    @classmethod
    def fromkeys(cls, *_: Never) -> NoReturn:  # type: ignore[override]  # a checker refuses what it is given
        """Refuse: a persisted dictionary belongs to a space."""
        raise TypeError("a Dictionary belongs to a space: use space.create_dictionary(name)")

    @recursive_repr("{...}")
    def __repr__(self) -> str:
        return f"Dictionary({self._name!r}, {dict(self.items())!r})"

    def _is_open(self) -> bool:
        return type(self) is Dictionary

    @undivided
    def _try_open(self) -> None:
        """Stop noting single changes, unless a value may have been changed in place: comparing would not find it."""
        self._noted = 0
        if self._twin is None and self._table.complete and not self._table.prints:
            self._twin = dict.copy(self)
            self.__class__ = Dictionary

    @undivided
    def _close(self) -> None:
        """Note what has changed since the dictionary was opened, and watch it from now on."""
        twin, table = self._twin, self._table
        if twin is None:
            return
        if not all(map(is_, dict.keys(self), twin)) or dict.__len__(self) < len(twin):
            self._note_removed(twin)
        for key in compress(dict.keys(self), map(is_not, dict.values(self), twin.values())):
            if key not in table.edits:
                table.edits[key] = twin[key]
        for key in islice(dict.keys(self), len(twin), None):
            if key not in table.edits:
                table.add_key(key)
        self._twin, self.__class__ = None, _Watched  # Last, so that it is done again after an interruption.

    def _note_removed(self, twin: dict[Any, Any]) -> None:
        """Note the keys that were removed while nothing was noted, and drop them from the twin.

        What was not removed keeps its order and comes first, so the two run in step until the first newer key.
        """
        ours = iter(list(dict.keys(self)))
        place = next(ours, ABSENT)
        for key in list(twin):
            if key is place:
                place = next(ours, ABSENT)
            else:
                self._table.forget_key(key, twin[key])
                del twin[key]

    def _has_slipped(self) -> bool:
        ranks = self._table.ranks
        assert ranks is not None
        return not self._fresh and self._twin is None and dict.__len__(self) != len(ranks)

    _is_astray = _has_slipped

    @undivided
    def _note_slip(self) -> None:
        table = self._table
        assert table.ranks is not None
        late = {key: dict.pop(self, key) for key in list(dict.keys(self)) if key not in table.ranks}
        for key in [key for key in table.ranks if not dict.__contains__(self, key)]:
            if table.complete:
                table.forget_key(key, STORED)
                table.prints.pop(key, None)
            elif not table.is_dirty(key):
                del table.ranks[key]  # A read of it was interrupted.
        for key, value in late.items():
            table.edits.pop(key, None)
            table.write(key, value)

    def _rows(self) -> list[ItemRow]:
        self._close()
        return super()._rows()

    def _turn(self) -> None:
        super()._turn()
        noting: type = _Watched if self._table.complete else _Paged
        self.__class__ = noting
        self._noted = 0

    def _settle(self, durable: bool) -> None:
        if not durable:
            self._close()
        super()._settle(durable)
        if self._fresh:
            self.__class__ = Dictionary

    def _go_cold(self) -> None:
        self._twin = None
        super()._go_cold()

    def _warm(self) -> type:
        # C code may have put values here: it does not see that the dictionary has not been read yet.
        late = dict(dict.items(self))
        super()._warm()
        for key, value in late.items():
            self._table.write(key, value)
        warm: type = _Watched if self._table.complete else _Paged
        return warm

    def _load_whole(self) -> None:
        super()._load_whole()
        if not is_cold(self):
            self.__class__ = _Watched

    def _shrink(self, *, gently: bool) -> None:
        if self._can_shrink(gently):
            self._close()
            self.__class__ = _Paged
            self._table.shrink()

    def _check(self) -> None:
        super()._check()
        assert self._twin is None or type(self) is Dictionary
        assert not self._fresh or type(self) is Dictionary


def _read_whole(other: Any) -> Any:
    """Return what ``dict`` itself may look into: a copy if a dictionary is not wholly in memory."""
    is_window = isinstance(other, _Paged) or (isinstance(other, Dictionary) and is_cold(other))
    return other.copy() if is_window else other


@named_as(Dictionary)
class _Watched(Dictionary[K, V]):
    """A dictionary that is wholly in memory and notes each change."""

    @undivided
    def __setitem__(self, key: K, value: V) -> None:
        table = self._table
        if key in table.edits or type(self) is Dictionary:  # The method may have been kept, and nothing is noted now.
            dict.__setitem__(self, key, value)
            return
        table.remember_old(key)
        dict.__setitem__(self, key, value)
        self._noted += 1
        if self._noted * limits.OPEN_SHARE > dict.__len__(self):  # Not if the method was kept from another state.
            self._try_open()

    def __delitem__(self, key: K) -> None:
        self._close()
        if self._table.delete(key) is ABSENT:
            raise KeyError(key)

    @undivided
    def _update(self, changes: dict[Any, Any]) -> None:
        if len(changes) * limits.OPEN_SHARE_AT_ONCE > dict.__len__(self):
            self._home.touch(self)
            self._try_open()
        if type(self) is Dictionary or self._table.remember_many_old(changes):
            dict.update(self, changes)
        else:
            for key, value in changes.items():
                self[key] = value


@named_as(Dictionary)
class _Paged(_Watched[K, V]):
    """A dictionary of which only the slots in use are in memory."""

    def __missing__(self, key: K) -> V:
        value = self._table.read(key)
        if value is ABSENT:
            raise KeyError(key)
        return value  # type: ignore[no-any-return]

    def __setitem__(self, key: K, value: V) -> None:
        self._close()
        self._table.write(key, value)

    def _update(self, changes: dict[Any, Any]) -> None:
        self._table.write_all(changes)

    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of a key, or the default if there is none. Time: O(1), or one lookup in the store."""
        value = self._table.read(key)
        return default if value is ABSENT else value

    def __contains__(self, key: object) -> bool:
        return self._table.read(key) is not ABSENT

    def __len__(self) -> int:
        return len(self._table)

    def __bool__(self) -> bool:
        return len(self._table) > 0

    def __iter__(self) -> Iterator[K]:
        return scans.keys_of(self._table)

    def __reversed__(self) -> Iterator[K]:
        return scans.keys_of(self._table, reverse=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict):
            return NotImplemented
        return len(self) == len(other) and all(alike(other.get(key, ABSENT), value) for key, value in self.items())

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __or__(self, other: Any) -> Any:
        return self.copy() | other if isinstance(other, dict) else NotImplemented

    def __ror__(self, other: Any) -> Any:
        return {**other, **self.copy()} if isinstance(other, dict) else NotImplemented
