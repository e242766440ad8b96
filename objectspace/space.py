"""The object space: names for objects, and the handles through which they are used."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import RLock
from typing import Any, NoReturn, Self

import orjson

from checkpoint import CheckpointKind, IndexEntry, Reader, Receipt
from objectspace.codec import is_utf8
from objectspace.errors import (
    GO_ON,
    CheckpointProtocolError,
    DamagedObjectError,
    NameInUseError,
    ObjectNotFoundError,
    WrongKindError,
    shown,
)
from objectspace.factory import ObjectFactory
from objectspace.hooks import Hooks, raise_first, tell
from objectspace.objects import KINDS, RawSortedDictionary, class_of
from objectspace.objects.base import PersistedObject
from objectspace.objects.torn import REFUSALS, InOnePiece, Torn, undivided
from objectspace.objects.variants import base_of, become

Entry = tuple[str, str, str]
"""(name, kind, codec) of one object."""

_OF_CALLS = (*REFUSALS, TypeError, ValueError)
"""The errors with which values and calls are refused."""

TABLES = "$tables"
"""The name of the dictionary in which the layer of relational tables lists them."""

WATERMARKS = "$watermarks"
"""The name of the dictionary in which it keeps their watermarks."""

CATALOGUES = (TABLES, WATERMARKS)
"""The dictionaries in which a layer above notes by name what objects are: a note goes with its object."""

CACHE_SLOTS = 1_000_000
"""How many clean slots a space keeps in memory unless it is told otherwise."""


class ObjectSpace(Hooks, ObjectFactory):
    """Names for objects: what a persisted and a volatile space have in common."""

    def __init__(self, cache_slots: int = CACHE_SLOTS) -> None:
        super().__init__()
        self.cache_slots = checked_cache_slots(cache_slots)
        self.mutex = RLock()
        self._entries: dict[int, Entry] = {}
        self._ids: dict[str, int] = {}
        self._handles: dict[int, PersistedObject] = {}
        self._next_id = 1
        self._closed = False
        self._torn = Torn.NO

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"<{name} [closed]>" if self._closed else f"{name}({self._shown_count()})"

    def _shown_count(self) -> str:
        return f"{len(self._ids):,} object{'' if len(self._ids) == 1 else 's'}"

    @property
    def read_only(self) -> bool:
        """Whether nothing can be changed; never true of a space without a store."""
        return False

    @property
    def last_epoch(self) -> int:
        """The last epoch that is stored, or 0 if there is none."""
        return 0

    @abstractmethod
    def checkpoint(self, epoch: int | None = None, kind: CheckpointKind = CheckpointKind.DIFFERENTIAL) -> Receipt:
        """Take a checkpoint, which is durable if the space has a store, and return what it cost."""

    @abstractmethod
    def close(self) -> None:
        """Close the space: its handles refuse all work. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def get(self, name: str) -> Any:
        """Return the object of this name, of whatever kind.

        Raises:
            ObjectNotFoundError: there is none.
        """
        self._usable()
        return self._handle(self._find(name))

    def delete(self, name: str) -> None:
        """Delete an object; its name is free at once.

        Raises:
            ObjectNotFoundError: there is none of this name.
            DamagedObjectError: it may be a relational table, and the catalogues cannot be read; nothing has changed.

        Time: O(1).
        Dirties: one index row; for a relational table also what the catalogues hold about it.
        """
        raise_first(self._delete(name))

    @undivided
    def _delete(self, name: str) -> list[Exception]:
        self._usable()
        object_id = self._find(name)
        self._will_change()
        with self.in_one_piece():
            self._forget_notes(name, may_count=may_be_table(*self._entries[object_id][1:]))
            handle = self._handles.get(object_id)
            if handle is not None:
                with self.mutex:  # Another thread may be making room.
                    self._kill(handle, refuse_deleted)  # Before the space forgets it: no rollback would find it.
                    self._handles.pop(object_id, None)
            del self._ids[name], self._entries[object_id]
            self._index_changed(object_id)
            return [] if handle is None else tell(self._deletions, handle)

    def rename(self, name: str, new_name: str) -> None:
        """Give an object another name; a relational table keeps its columns and its watermarks.

        Raises:
            ObjectNotFoundError: there is none of this name.
            NameInUseError: the new name is in use, or this is a relational table and the entries of another one wait in
                the catalogues under the new name, as an earlier version left them.
            DamagedObjectError: it may be a relational table, and the catalogues cannot be read; nothing has changed.

        Time: O(1).
        Dirties: one index row; of a relational table also what the catalogues hold of it.
        """
        raise_first(self._rename(name, new_name))

    @undivided
    def _rename(self, name: str, new_name: str) -> list[Exception]:
        self._usable()
        object_id = self._find(name)
        self._check_free(new_name)
        self._will_change()
        _, kind, codec = self._entries[object_id]
        catalogues = self._noting(name, new_name) if may_be_table(kind, codec) else []
        with self.in_one_piece():
            for noted in catalogues:
                noted[new_name] = noted.pop(name)
            self._entries[object_id] = (new_name, kind, codec)
            self._ids[new_name] = self._ids.pop(name)
            with self.mutex:  # Another thread may be making room.
                if object_id in self._handles:
                    self._handles[object_id]._rename(new_name)
            self._index_changed(object_id)
            return tell(self._renamings, name, new_name)

    def kind_of(self, name: str) -> str:
        """Return the kind of an object as it stands in the index, ``"Dictionary"`` for example.

        Raises:
            ObjectNotFoundError: there is none of this name.
        """
        return self._entries[self._find(name)][1]

    def entry_of(self, name: str) -> IndexEntry:
        """Return name, kind and codec of an object as they stand in the index.

        Raises:
            ObjectNotFoundError: there is none of this name.
        """
        return IndexEntry(*self._entries[self._find(name)])

    def __contains__(self, name: object) -> bool:
        return name in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._ids, key=self._ids.__getitem__))

    def check_mutations(self) -> list[tuple[str, Any]]:
        """Return (name, slot) of every value in memory that was changed in place, which no checkpoint will save.

        An instance of a dataclass that has other fields by now than when it was stored is not one of them.

        Assign such a value to its slot again to make it an edit. Time: O(slots in memory).
        """
        self._usable()
        return [(handle._name, slot) for handle in self._all_handles() for slot in handle._stored_differences()]

    @undivided
    def _create(self, cls: type[PersistedObject], name: str, options: dict[str, Any]) -> Any:
        self._usable()
        self._check_free(name)
        self._will_change()
        self._forget_notes(name, may_count=issubclass(cls, RawSortedDictionary))
        handle = cls._make(self, name, self.new_id(), fresh=True, options=options)
        self._register(handle)
        return handle

    def _forget_notes(self, name: str, *, may_count: bool) -> None:
        """Forget what is noted about an object that had this name: the next one may be anything.

        Args:
            name: the name.
            may_count: whether the object may be taken for what is noted. For any other object leftover notes count for
                nothing, so damaged ones do not stand in its way.

        Raises:
            DamagedObjectError: it may, and the notes cannot be read; nothing has changed.
        """
        catalogues = self._catalogues()
        for catalogue in catalogues if may_count else ():
            self.get_dictionary(catalogue).get(name)  # Read all of them before one changes.
        for catalogue in catalogues:
            with suppress(*(() if may_count else (DamagedObjectError,))):
                self.get_dictionary(catalogue).pop(name, None)

    def _noting(self, name: str, new_name: str) -> list[Any]:
        """Return the catalogues that note an object: the notes go with it to a new name.

        Raises:
            NameInUseError: there are some, and notes of another object wait under the new name.
            DamagedObjectError: the notes cannot be read.
        """
        catalogues = {one: self.get_dictionary(one) for one in self._catalogues()}
        found = {one: noted.get_many((name, new_name)) for one, noted in catalogues.items()}
        noting = [catalogues[one] for one, (note, _) in found.items() if note is not None]
        waiting = [one for one, (_, note) in found.items() if note is not None]
        if noting and waiting:
            raise NameInUseError(
                f"{name!r} is a relational table, and entries of another one wait under {new_name!r} in"
                f" {waiting[0]!r}: an earlier version has renamed that one without them; give it this name back with"
                " space.rename(), or rename by rename_table() of objectspace.relational, which drops those that wait"
            )
        return noting

    def _catalogues(self) -> list[str]:
        return [one for one in CATALOGUES if one in self._ids and self.kind_of(one) == "Dictionary"]

    def _register(self, handle: PersistedObject) -> None:
        handle._codec = orjson.dumps(handle._options()).decode()
        with self.in_one_piece():
            self._entries[handle._id] = (handle._name, handle.kind, handle._codec)
            self._ids[handle._name] = handle._id
            self._handles[handle._id] = handle
            self._index_changed(handle._id)

    def _get(self, cls: type[PersistedObject], name: str) -> Any:
        self._usable()
        object_id = self._find(name)
        found = self._entries[object_id][1]
        if found != cls.kind:
            advice = "ask for what it is, or delete it first"
            if name.startswith("$"):
                advice = "such names are the library's; if yours has one, rename it"
            raise WrongKindError(f"{name!r} is of kind {found}, not {cls.kind}: {advice}")
        return self._handle(object_id)

    def _handle(self, object_id: int) -> PersistedObject:
        with self.mutex:
            if object_id not in self._handles:
                name, kind, codec = self._entries[object_id]
                if kind not in KINDS:
                    raise WrongKindError(
                        f"{name!r} is of kind {kind}, which this version does not know: install a newer one;"
                        " if no version has that kind, the index is damaged: delete this one"
                    )
                try:
                    options = orjson.loads(codec)
                    cls = class_of(kind, options)
                    handle = cls._make(self, name, object_id, fresh=False, options=options)
                except (ValueError, KeyError, TypeError) as error:
                    raise DamagedObjectError(
                        f"{kind} {name!r}: its codec {codec!r} in the index cannot be read ({error}); other objects are"
                        f" readable; {GO_ON}"
                    ) from error
                handle._codec = codec
                self._handles[object_id] = handle
                self._lend(handle)
            return self._handles[object_id]

    def _lend(self, handle: PersistedObject) -> None:
        """Note that somebody has a handle, which a save may have missed."""

    def _find(self, name: str) -> int:
        _check_name(name)
        if name not in self._ids:
            raise ObjectNotFoundError(f"there is no object {name!r} in this space: create it, or see list(space)")
        return self._ids[name]

    def _check_free(self, name: str) -> None:
        _check_name(name)
        if name in self._ids:
            kind = self._entries[self._ids[name]][1]
            raise NameInUseError(
                f"{name!r} is in use by an object of kind {kind}: get it, delete it, or choose another name"
            )

    def _all_handles(self) -> Iterator[PersistedObject]:
        pending = list(self._handles.values())
        while pending:
            handle = pending.pop()
            yield handle
            pending += handle._owned()

    def _kill(self, handle: PersistedObject, refusal: Callable[[Any], None]) -> None:
        """Make a handle, and those of the objects it owns, refuse all work."""
        for owned in list(handle._owned()):
            self._kill(owned, refusal)
        become(handle, base_of(handle), "dead", refusal, _SHOWN[refusal])

    def kill(self, target: PersistedObject) -> None:
        """Make the handle of a deleted object refuse all work."""
        with self.mutex:  # Another thread may be making room.
            self._kill(target, refuse_deleted)

    def let_go(self, target: PersistedObject) -> None:
        """Make the handle of an owned object refuse all work after a rollback: its owner reads it again."""
        self._kill(target, refuse_let_go)

    def new_id(self) -> int:
        """Return an object id that was never used before."""
        self._next_id += 1
        return self._next_id - 1

    @undivided
    def renumber(self, target: PersistedObject) -> None:
        """Give an object a new id, under which nothing is stored: its old rows are out of reach."""
        owner, old = target._owner, target._id
        with self.in_one_piece():
            if owner is not None:
                owner._renumbered(target)
            target._id, target._fresh, target._was_fresh = self.new_id(), True, None
            if owner is not None:
                owner._renumbered_to(target)
            if old in self._entries:
                self._entries[target._id] = self._entries.pop(old)
                self._ids[target._name] = target._id
                self._handles[target._id] = self._handles.pop(old)
                self._index_changed(old)
                self._index_changed(target._id)

    def touch(self, target: PersistedObject) -> None:
        """Note that an object is about to change."""

    def account(self, target: PersistedObject, slots: int | None = None) -> None:
        """Note how many slots an object now holds in memory, large ones as several."""

    def make_room(self) -> None:
        """Drop clean slots if too many are in memory."""

    def reader(self) -> Reader:
        """Refuse: nothing is stored."""
        raise CheckpointProtocolError("a volatile space stores nothing")

    def in_one_piece(self, *made_up_for: type[Exception]) -> InOnePiece:
        """Return a ``with`` block for several edits that are only useful together.

        If the block is cut short by Ctrl-C, or by any error but a refusal (an error of the library, ``ValueError`` or
        ``TypeError``), saves are refused until a rollback, so nothing half done becomes durable. Whatever may be
        refused should therefore come first. A save within the block is refused.

        Args:
            made_up_for: more errors that leave nothing half done, since the block itself takes back what it did. Those
                that may come anywhere are none of them: ``MemoryError``, and ``RecursionError`` unless code of a user
                was at work.

        >>> from objectspace import VolatileObjectSpace
        >>> space = VolatileObjectSpace()
        >>> with space.in_one_piece():
        ...     space.create_list("rows").append(1)
        ...     space.create_value("count", 1)
        Value('count', 1)
        """
        return InOnePiece(self, (*_OF_CALLS, *made_up_for) if made_up_for else _OF_CALLS)

    def _usable(self) -> None:
        if self._closed:
            raise CheckpointProtocolError("this space is closed: open it again")

    def _will_change(self) -> None:
        """Refuse changes if nothing may change."""

    def _index_changed(self, object_id: int) -> None:
        """Note that the index entry of an object changed."""


def checked_cache_slots(count: object) -> int:
    """Return how many slots to keep in memory.

    Raises:
        TypeError, ValueError: it is not such a number.
    """
    if not isinstance(count, int) or isinstance(count, bool):
        raise TypeError(f"cache_slots is {count!r}: expected an int, how many slots to keep in memory")
    if count < 1:
        raise ValueError(f"cache_slots is {shown(count)}: keep at least 1 slot in memory")
    return count


def may_be_table(kind: str | None, codec: str | None) -> bool:
    """Return whether a layer above may take an object for one of its tables: a raw sorted dictionary.

    >>> may_be_table("SortedDictionary", '{"raw":true}'), may_be_table("SortedDictionary", "{}")
    (True, False)
    """
    return kind == RawSortedDictionary.kind and codec != "{}"  # A damaged entry is refused by whoever reads it.


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"a name is text: found {shown(name)} of type {type(name).__name__}")
    if not is_utf8(name):
        raise ValueError(f"the name {name!r} holds a lone surrogate: a name is valid text")


def refuse_deleted(handle: PersistedObject) -> NoReturn:
    """Refuse all work of the handle of a deleted object."""
    raise ObjectNotFoundError(
        f"{handle._describe()} has been deleted: this handle refuses all work; get or create it again"
    )


def refuse_let_go(handle: PersistedObject) -> NoReturn:
    """Refuse all work of the handle of an owned object that was obtained before a rollback."""
    assert handle._owner is not None
    raise ObjectNotFoundError(
        f"{handle._describe()} was got before a rollback: this handle refuses all work; get it again from"
        f" {handle._owner._describe()}, if it is still there"
    )


def refuse_unstored(handle: PersistedObject) -> NoReturn:
    """Refuse all work of a handle whose object is gone after a rollback."""
    raise ObjectNotFoundError(
        f"{handle._describe()}: its creation was rolled back, or it was deleted: this handle refuses all work; get or"
        " create it again"
    )


def refuse_closed(handle: PersistedObject) -> NoReturn:
    """Refuse all work of a handle whose space is closed."""
    raise CheckpointProtocolError(f"{handle._describe()}: its space is closed; open it again")


_SHOWN: dict[Callable[[Any], None], str] = {
    refuse_deleted: "deleted",
    refuse_let_go: "got before a rollback",
    refuse_unstored: "rolled back, or deleted",
    refuse_closed: "its space is closed",
}
"""What the ``repr`` of a handle that refuses all work says about it, as that of a file says that it is closed."""
