"""The dictionary of objects: each value is a persisted object that the dictionary owns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Never, NoReturn, Self, TypeVar, cast, overload
from weakref import WeakValueDictionary

import orjson

from checkpoint.reader import StoredItem
from checkpoint.run import OWNED_KEY
from objectspace import codec, keys
from objectspace.codec import ATOMS
from objectspace.errors import shown
from objectspace.objects import scans
from objectspace.objects.arguments import Copied
from objectspace.objects.base import ABSENT, UNREADABLE, PersistedObject, item_text
from objectspace.objects.keyed import KEY, VALUE, KeyedObject
from objectspace.objects.torn import undivided
from objectspace.objects.variants import is_cold, is_known_elsewhere, refuse_dead, replace_unknown

if TYPE_CHECKING:  # Type checkers know these libraries on their own: they need not be installed.
    from _typeshed import SupportsKeysAndGetItem
    from typing_extensions import TypeVar as _DefaultedTypeVar

    M = _DefaultedTypeVar("M", bound=PersistedObject, default=Any)
else:
    M = TypeVar("M")

K = TypeVar("K")
K2 = TypeVar("K2")
C = TypeVar("C")
T = TypeVar("T")

NOTHING: Any = object()
"""Stands for the contents of an object that is created empty."""


class ObjectDictionary(KeyedObject, MutableMapping[K, M]):
    """A dictionary whose values are persisted objects of one kind; one slot per key, and the slots of each value.

    The objects belong to the dictionary: each is saved slot by slot, and deleted with its key. ``d.setdefault(key)``
    returns the object of a key, creating it if there is none; assigning a plain container makes an object with its
    contents. An object that is removed or dropped by a rollback refuses work: ask the dictionary for it again. ``pop``
    and ``popitem`` return plain copies of objects, which remain usable.

    In type hints it is ``ObjectDictionary[str, List[int]]``, or ``ObjectDictionary[str]`` if the kind of its objects
    does not matter.

    ============================ ======================================================
    method                       dirties
    ============================ ======================================================
    ``d[k] = v``, ``setdefault`` 1 item, for a new key also the length, and the object
    ``d[k].append(v)`` ...       what the object says
    ``del d[k]``, ``pop``        1 item and the length, whatever the object holds
    ``clear``                    the length, and the items up to 32, else 2 index rows
    ============================ ======================================================

    >>> from objectspace import VolatileObjectSpace
    >>> groups = VolatileObjectSpace().create_dictionary("groups", of=list)
    >>> groups.setdefault("a").append(1)
    >>> groups["b"] = [2, 3]
    >>> groups
    ObjectDictionary('groups', {'a': [1], 'b': [2, 3]})
    """

    kind = "Dictionary"
    _is_plain = False
    _is_ranked = True
    __hash__ = None  # type: ignore[assignment]

    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters: Any) -> Any:
            """Return what a type hint means, with or without the kind of the objects."""
            return super().__class_getitem__(parameters if isinstance(parameters, tuple) else (parameters, Any))

    def _configure(self, options: dict[str, Any]) -> None:
        from objectspace.objects import KINDS

        self._member = KINDS[options["of"]]
        self._known: WeakValueDictionary[int, PersistedObject] = WeakValueDictionary()
        self._places: dict[int, Any] = {}

    def _options(self) -> dict[str, Any]:
        return {"of": self._member.kind}

    def __getitem__(self, key: K) -> M:
        value = self._table.read(key)
        if value is ABSENT:
            raise KeyError(key)
        return value  # type: ignore[no-any-return]

    def __setitem__(self, key: K, contents: Any) -> None:
        """Set a key to a new object with these contents, in place of what it has.

        Raises:
            TypeError: the contents are a persisted object, which has a place of its own, or are not contents of its
                kind.
            ValueError: they are not pairs although pairs are expected.

        Time: O(contents). Dirties: one item, the length for a new key, and the slots of the new object.
        """
        self._put(key, self._made(key, contents))

    @overload
    def update(self, other: SupportsKeysAndGetItem[K, Any] | Iterable[tuple[K, Any]] = ..., /) -> None: ...
    @overload
    def update(
        self: ObjectDictionary[str, M],
        other: SupportsKeysAndGetItem[K, Any] | Iterable[tuple[K, Any]] = ...,
        /,
        **more: Any,
    ) -> None: ...
    def update(self, other: Any = (), /, **more: Any) -> None:
        """Set keys to new objects with these contents, in place of what they have, or none of them if one is refused.

        Raises:
            TypeError: as for an assignment.

        Time: O(contents). Dirties: one item per key, the length, and the slots of the new objects.
        """
        made: dict[K, PersistedObject] = {}
        try:
            for key, contents in dict(other, **more).items():
                made[key] = self._made(key, contents)
        except BaseException:
            for key, member in made.items():
                if member is not self._table.read(key):
                    self._kill(member)
            raise
        for key, member in made.items():
            self._put(key, member)

    @undivided
    def _put(self, key: K, member: PersistedObject) -> None:
        """Put an object in place of what a key has."""
        present = self._table.read(key)
        if member is present:
            return
        with self._in_one_piece():
            self._table.write(key, member)
            if present is not ABSENT:
                self._kill(present)

    def _made(self, key: K, contents: Any) -> PersistedObject:
        """Return a new object with these contents for a key, or what the key has if that is given."""
        present = self._table.read(key)
        if contents is present:
            return present  # type: ignore[no-any-return]
        if isinstance(contents, PersistedObject):
            raise TypeError(
                f"{self._describe()}, key {shown(key):.80}: assign a plain copy; {contents._describe()} has its own"
                " place"
            )
        if present is ABSENT:
            self._slot(key)
            self._reference(key, self._id)  # It stands one level deeper in there than as a slot.
        else:
            key = present._owner_key  # The one that is there stays, as in a dict.
        name = self._name_of(key)  # First: the key may be of a class with a repr of its own, which may raise anything.
        member = self._make_new(key, name)
        try:
            _fill(member, self._readable(key, contents))
            refuse_dead(member)  # What the contents come from may have rolled back to a checkpoint.
        except BaseException:
            self._kill(member)
            raise
        return member

    @undivided
    def _make_new(self, key: K, name: str) -> PersistedObject:
        """Return a new object that is dirty."""
        with self._in_one_piece():
            member = self._make_member(key, name, self._home.new_id(), fresh=True)
            self._home.touch(member)
            return member

    def _readable(self, key: K, contents: Any) -> Any:
        """Return contents that an object of the kind takes; refuse with a reason what has no values, or no pairs."""
        kind = self._member
        takes_pairs = hasattr(kind, "keys") or hasattr(kind, "assigned")
        if contents is NOTHING or not (takes_pairs or hasattr(kind, "__iter__")):
            return contents
        try:
            if takes_pairs:
                return contents if type(contents) is dict else dict(contents)
            if not hasattr(type(contents), "__iter__"):  # What has one is read once, and not twice.
                iter(contents)
        except (TypeError, ValueError) as error:
            expected = "a mapping or pairs" if takes_pairs else "an iterable of values"
            raise (ValueError if isinstance(error, ValueError) else TypeError)(
                f"{self._describe()}, key {shown(key):.80}: found {shown(contents):.80} for an object of kind"
                f" {kind.kind}: expected {expected} ({error})"
            ) from error
        return contents

    def setdefault(self, key: K, default: Any = NOTHING) -> M:
        """Return the object of a key, creating it with the default contents if there is none.

        Time: O(1). Dirties: one item and the length for a new key.
        """
        if self._table.read(key) is ABSENT:
            self[key] = default
        return self[key]

    @undivided
    def __delitem__(self, key: K) -> None:
        """Remove a key and delete its object.

        Raises:
            KeyError: there is no such key.

        Time: O(1). Dirties: one item and the length.
        """
        member = self._table.read(key)
        if member is ABSENT:
            raise KeyError(key)
        self._remove(key, member)

    def _remove(self, key: K, member: PersistedObject, *, is_last: bool = False) -> None:
        """Remove a key and delete its object."""
        with self._in_one_piece():
            if not is_last or self._table.delete_last() is None:
                self._table.delete(key)
            self._kill(member)

    @overload
    def pop(self: Mapping[K, Copied[C]], key: K, /) -> C: ...
    @overload
    def pop(self: Mapping[K, Copied[C]], key: K, default: T, /) -> C | T: ...
    def pop(self, key: K, *default: Any) -> Any:
        """Remove a key and return a plain copy of its object, which is deleted.

        Raises:
            KeyError: there is no such key, and no default is given.

        Time: O(contents). Dirties: one item and the length.
        """
        if len(default) > 1:
            raise TypeError(f"pop expected at most 2 arguments, got {1 + len(default)}")
        if key not in self and default:
            return default[0]
        contents = self[key].copy()
        del self[key]
        return contents

    def popitem(self: Mapping[K, Copied[C]]) -> tuple[K, C]:
        """Remove the key that was inserted last and return it with a plain copy of its object.

        Raises:
            KeyError: the dictionary is empty.

        Time: O(contents) in memory, where a dictionary that fits is soon; else also O(n) for every thousand keys or
        more. Dirties: one item and the length.
        """
        return cast("ObjectDictionary[K, Any]", self)._taken_last()

    def _taken_last(self) -> tuple[K, Any]:
        if (key := self._table.last_keys.newest(self._table)) is ABSENT:
            raise KeyError(f"{self._describe()} is empty")
        member = self[key]
        contents = member.copy()
        self._remove(key, member, is_last=True)
        return key, contents

    @undivided
    def clear(self) -> None:
        """Remove every key and delete its object.

        Time: O(1) rows beyond 32. Dirties: one item per key up to 32, two index rows beyond that; the length.
        """
        with self._in_one_piece(), self._home.mutex:  # Another thread may be making room.
            members = list(self._known.values())
            self._table.clear()
            for member in members:
                self._kill(member)

    def copy(self: Mapping[K, Copied[C]]) -> dict[K, C]:
        """Return a plain ``dict`` of plain copies."""
        return {key: value.copy() for key, value in self.items()}

    def __contains__(self, key: object) -> bool:
        return self._table.read(key) is not ABSENT

    def __iter__(self) -> Iterator[K]:
        """Yield the keys in the order of insertion."""
        return scans.keys_of(self._table)

    def __reversed__(self) -> Iterator[K]:
        return scans.keys_of(self._table, reverse=True)

    def __len__(self) -> int:
        return len(self._table)

    def __or__(self, other: Mapping[K2, Any]) -> dict[K | K2, Any]:
        return self.copy() | dict(other) if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Mapping[K2, Any]) -> dict[K | K2, Any]:
        return dict(other) | self.copy() if isinstance(other, Mapping) else NotImplemented

    def __ior__(self, other: SupportsKeysAndGetItem[K, Any] | Iterable[tuple[K, Any]]) -> Self:  # type: ignore[misc]  # as dict itself has it
        self.update(other)
        return self

    @classmethod
    def fromkeys(cls, *_: Never) -> NoReturn:
        """Refuse: a persisted dictionary belongs to a space."""
        raise TypeError("an ObjectDictionary belongs to a space: use space.create_dictionary(name, of=...)")

    def __repr__(self) -> str:
        return f"ObjectDictionary({self._name!r}, {self.copy()!r})"

    def _rename(self, name: str) -> None:
        super()._rename(name)
        for member in self._owned():
            member._rename(self._name_of(member._owner_key))

    def _name_of(self, key: Any) -> str:
        """Return the name of the object of a key."""
        return f"{self._name}[{shown(key)}]"

    def _make_member(self, key: Any, name: str, object_id: int, *, fresh: bool) -> PersistedObject:
        member = self._unknown_member(key, name, object_id, fresh=fresh)
        with self._home.mutex:  # Another thread may be making room.
            self._known[object_id] = member
        return member

    def _unknown_member(self, key: Any, name: str, object_id: int, *, fresh: bool) -> PersistedObject:
        member = self._member._make(self._home, name, object_id, fresh=fresh, options=dict(_MEMBER_OPTIONS))
        member._owner, member._owner_key = self, key
        return member

    def _renumbered(self, owned: PersistedObject) -> None:
        """Note that an owned object gets a new id, which stands in the slot of its key."""
        if owned._owner_key not in self._table.edits:
            self._table.remember_old(owned._owner_key)
        del self._known[owned._id]

    def _renumbered_to(self, owned: PersistedObject) -> None:
        self._known[owned._id] = owned

    def _kill(self, member: PersistedObject) -> None:
        with self._home.mutex:
            self._home.kill(member)
            self._known.pop(member._id, None)

    def _shrink(self, *, gently: bool) -> None:
        if self._can_shrink(gently):
            for member in self._owned():
                member._shrink(gently=gently)
            self._table.shrink()
        elif not is_cold(self):
            self._renew_members()

    def _renew_members(self) -> None:
        """Replace handles that nobody else knows with unread ones: the space knows all that are dirty.

        Another thread may ask for one of them at any time. It gets the old one, which then stays, or the new one: a
        look at who else knows a handle and its replacement are one step, in which no other thread runs. So those of
        keys whose hash is the work of Python code stay until a save.
        """
        live = self._table.live
        unread = {
            key: self._unknown_member(key, live[key]._name, live[key]._id, fresh=False)
            for key in [key for key in live if _is_hashed_at_once(key) and not is_known_elsewhere(live, key)]
        }
        replace_unknown(live, unread)
        self._known.update((new._id, new) for key, new in unread.items() if live.get(key) is new)

    def _owned(self) -> Iterable[PersistedObject]:
        return list(self._known.values())

    def _go_cold(self) -> None:
        for member in self._owned():
            self._home.let_go(member)
        self._known.clear()
        super()._go_cold()

    def _text(self, key: Any, value: Any) -> str:
        return self._reference(key, value._id)

    def _reference(self, key: Any, object_id: int) -> str:
        """Return the text of a slot that says which object it has, with the key if the slot does not tell it."""
        reference = {OWNED_KEY: object_id}
        if keys.is_exact(key):
            return orjson.dumps(reference).decode()
        self._table.is_mixed = True
        try:
            return codec.encode_plain({KEY: codec.plain(key), VALUE: reference})
        except (codec.Unencodable, RecursionError) as error:
            raise self._unencodable("key", key, error) from error.__cause__

    def _key_value(self, item: StoredItem) -> tuple[Any, Any]:
        text = item_text(item)
        try:
            stored = orjson.loads(text)
            is_mixed = KEY in stored
            key = keys.as_stored(codec.restore(stored[KEY]), item.slot) if is_mixed else keys.from_slot(item.slot)
            object_id = int(stored.get(VALUE, stored)[OWNED_KEY])
        except UNREADABLE as error:
            self._damaged(item.slot, text, error)
        self._table.is_mixed = self._table.is_mixed or is_mixed
        with self._home.mutex:
            known = self._known.get(object_id)
            if known is None:
                known = self._make_member(key, self._name_of(key), object_id, fresh=False)
            return key, known

    def _stored_differences(self) -> Iterable[Any]:
        return ()


def _is_hashed_at_once(key: Any) -> bool:
    """Return whether no other thread can run while a key is looked up."""
    return type(key) in ATOMS or (type(key) is tuple and all(map(_is_hashed_at_once, key)))


_MEMBER_OPTIONS: dict[str, Any] = {"default": None, "initial": None}


def _fill(member: Any, contents: Any) -> None:
    """Put plain contents into a new object."""
    if contents is NOTHING:
        return
    for method in ("update", "extend"):
        if hasattr(member, method):
            getattr(member, method)(contents)
            return
    for method in ("enqueue", "push", "add_last"):
        if hasattr(member, method):
            for value in contents:
                getattr(member, method)(value)
            return
    if hasattr(member, "assigned"):
        for index, value in dict(contents).items():
            member[index] = value
    else:
        member.value = contents
