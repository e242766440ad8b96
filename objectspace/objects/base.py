"""What every persisted object has: a name, an id, its place in a space, and its part in a save and its commit.

An object keeps two pages of edits. The open page collects what changes now. ``_turn`` hands it over to a save and
opens a new one; the handed-over page is *in flight* until ``_settle`` says whether the commit took effect: then it is
dropped, or it is given back and the next save covers it.

Notes of edits may be wrong in three ways. An object has *slipped* if something changed it without being noted: a bound
method that was kept across a save, or C code that writes into what is a ``list`` or a ``dict``. The next save looks for
such objects among the clean ones and has them note what changed. An object is *astray* if it has slipped in such a way
that the notes it has are wrong: then a save corrects them first, even if the object is dirty. An object is *torn* if an
interruption has cut an edit in two: nobody can tell what it should hold, so nothing is saved until a rollback. What a
signal handler asks for in the middle of an edit, a save or a rollback, is refused: see :mod:`objectspace.objects.torn`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from contextlib import suppress
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, Never, NoReturn, Protocol

from checkpoint.reader import Reader, StoredItem
from checkpoint.run import ItemRow, Payload, fault_of
from objectspace import codec
from objectspace.errors import (
    GO_ON,
    CheckpointProtocolError,
    DamagedObjectError,
    ObjectSpaceError,
    UnencodableValueError,
    shown,
)
from objectspace.objects import limits
from objectspace.objects.torn import NOT_TORN, InOnePiece, Torn, undivided_read
from objectspace.objects.variants import base_of, become, is_cold

DAMAGE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
"""What decoding a damaged text may raise."""

UNREADABLE = (*DAMAGE, RecursionError)
"""The same of a text that may be nested deeper than any that is written: ``_damaged`` tells it from too many calls."""


class _Absent:
    """The one value that no slot can hold."""

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> bool:
        return False


ABSENT: Any = _Absent()


class Home(Protocol):
    """What an object asks of the space that it lives in."""

    cache_slots: int
    _torn: Torn
    mutex: RLock
    """Held while a reader brings slots into memory or drops them, because many threads may read."""

    def touch(self, target: PersistedObject) -> None:
        """Note that an object is about to change; refuse if nothing may change."""

    def reader(self) -> Reader:
        """Return the reader of the last acknowledged state."""

    def new_id(self) -> int:
        """Return an object id that was never used before."""

    def renumber(self, target: PersistedObject) -> None:
        """Give an object a new id, under which nothing is stored: its old rows are out of reach."""

    def account(self, target: PersistedObject, slots: int | None = None) -> None:
        """Note how many slots an object now holds in memory, large ones as several; or other slots instead."""

    def make_room(self) -> None:
        """Drop clean slots if too many are in memory, but only those that no caller can be in the middle of using."""

    def kill(self, target: PersistedObject) -> None:
        """Make the handle of a deleted object refuse all work."""

    def let_go(self, target: PersistedObject) -> None:
        """Make the handle of an owned object refuse all work after a rollback: its owner reads it again."""


class PersistedObject:
    """The base of all persisted objects. Spaces make them: ``space.create_list("name")`` and the like."""

    kind: ClassVar[str] = "Object"
    """The kind as it stands in the index of a store."""

    _home: Home
    _name: str
    _id: int
    _codec: str
    """The options as they stand in the index; an owned object has none there."""
    _fresh: bool
    """Whether the object is new: nothing of it is stored or on its way to the store."""
    _was_fresh: bool | None
    """Whether it was new at the save that is in flight; ``None`` if none is."""
    _former: tuple[int, ...]
    """Ids that it had before and was stored under, the latest one last."""
    _accounted: int
    """How many of its slots the space counts among those in memory, large ones as several."""
    _weight: int = 1
    """As how many slots each one in memory counts: one more for each 256 bytes of its value, on average."""
    _weighed: tuple[int, int] = (0, 0)
    """How many slots were weighed lately, and how many bytes they had together."""
    _metadata_stored: dict[str, str]
    """The texts of the metadata as they are stored, or will be once the save in flight is committed."""
    _metadata_before: dict[str, str]
    """The same from before that save."""
    _metadata_next: dict[str, str]
    """The same as the save that is collecting now will have it."""
    _owner: PersistedObject | None
    _owner_key: Any
    _label: ClassVar[str] = ""
    """What the variant of the class is called: see :mod:`objectspace.objects.variants`."""
    _torn: Torn
    """Whether an edit is under way, or cut in two by an interruption: nobody can tell what the object should hold."""
    _is_half_read: bool = False
    """Whether an unread object may hold some of what is stored, from a reading that was given up."""

    def __init__(self, *_: Never, **__: Never) -> None:
        raise TypeError(
            f"an object of kind {self.kind} belongs to a space: use space.create_...(name) or space.get_...(name)"
        )

    @classmethod
    def _make(cls, home: Home, name: str, object_id: int, *, fresh: bool, options: dict[str, Any]) -> PersistedObject:
        """Return a new handle, of a new object where ``fresh``, of a stored one otherwise."""
        handle = cls.__new__(cls)
        handle._home, handle._name, handle._id = home, name, object_id
        handle._fresh, handle._was_fresh = fresh, None
        handle._former, handle._accounted = (), 0
        handle._metadata_stored, handle._metadata_before = {}, {}
        handle._owner, handle._torn = None, NOT_TORN
        handle._begin(options)
        return handle

    @property
    def name(self) -> str:
        """The name of the object in its space."""
        return self._name

    def _begin(self, options: dict[str, Any]) -> None:
        """Set up the memory of a new or stored object; what is stored is read later, when it is touched."""
        raise AssertionError(f"{type(self).__name__} must define _begin")

    def _options(self) -> dict[str, Any]:
        """Return what the index must keep so that the object can be read without its code."""
        return {}

    def _rows(self) -> list[ItemRow]:
        """Return the item rows of the open page, without changing anything."""
        raise AssertionError(f"{type(self).__name__} must define _rows")

    def _metadata(self) -> dict[str, Any]:
        """Return the metadata as it should be stored."""
        return {}

    def _turn(self) -> None:
        """Open a new page; the one so far is in flight."""
        raise AssertionError(f"{type(self).__name__} must define _turn")

    def _settle(self, durable: bool) -> None:
        """End the flight: drop its page if it is durable, take it back if it is not."""
        raise AssertionError(f"{type(self).__name__} must define _settle")

    def _forget(self) -> None:
        """Drop all memory and edits of a stored object; it is read again when it is touched."""
        self._fresh, self._was_fresh = False, None
        self._go_cold()
        self._is_half_read = False

    def _go_cold(self) -> None:
        """Drop all memory and arrange that the next touch reads the object."""
        raise AssertionError(f"{type(self).__name__} must define _go_cold")

    def _warm(self) -> type:
        """Read what the first touch needs; return the class that a readable handle has."""
        raise AssertionError(f"{type(self).__name__} must define _warm")

    def _sleep(self) -> None:
        """Take a class whose every method wakes the handle first."""
        become(self, base_of(self), "cold", PersistedObject._wake)

    def _wake(self) -> None:
        with self._home.mutex:
            if is_cold(self):
                self._read_itself()

    @undivided_read
    def _read_itself(self) -> None:
        self._home.make_room()
        if self._is_half_read:
            self._go_cold()
        self._is_half_read = True
        try:
            warm = self._warm()
            self._home.account(self)
        except BaseException:
            self._go_cold()  # If that is interrupted, too, the next touch does it all again.
            self._is_half_read = False
            raise
        self.__class__ = warm
        self._is_half_read = False

    def _shrink(self, *, gently: bool) -> None:
        """Drop clean slots from memory if the kind can read them again.

        Args:
            gently: somebody may be in the middle of using the object, an iteration for example.
        """

    def _held(self) -> int:
        """Return how many slots are in memory."""
        return 0

    def _weigh(self, slots: int, size_bytes: int) -> None:
        """Note how large slots are that were read or saved.

        Time: O(1).
        """
        slots, size_bytes = slots + self._weighed[0], size_bytes + self._weighed[1]
        if slots > limits.WEIGHED_SLOTS:
            slots, size_bytes = slots // 2, size_bytes // 2  # What comes now counts more than what was.
        self._weighed = slots, size_bytes
        self._weight = 1 + size_bytes // (max(1, slots) * limits.SLOT_BYTES)

    def _stored_differences(self) -> Iterable[Any]:
        """Yield the slots whose value in memory is not the stored one although no edit says so."""
        return ()

    def _owned(self) -> Iterable[PersistedObject]:
        """Return the loaded objects that this one owns."""
        return ()

    def _renumbered(self, owned: PersistedObject) -> None:
        """Note that an object that this one owns is about to get a new id."""

    def _renumbered_to(self, owned: PersistedObject) -> None:
        """Note that an object that this one owns has got a new id."""

    def _has_slipped(self) -> bool:
        """Return whether the object changed without being noted: by a bound method kept across a save, or by C code."""
        return False

    def _require_whole(self) -> None:
        """Refuse to save an edit that an interruption has cut in two.

        Raises:
            CheckpointProtocolError: there is one.
        """
        if self._torn:
            self._refuse_cut()

    def _refuse_cut(self) -> NoReturn:
        raise CheckpointProtocolError(
            f"{self._describe()}: an edit was interrupted partway (by Ctrl-C, or lack of memory);"
            " nothing was saved: go back to the last checkpoint with rollback() of the space"
        )

    def _in_one_piece(self) -> InOnePiece:
        """Do what an interruption must not cut in two: if it does, the object is no longer saved."""
        self._home.touch(self)
        return InOnePiece(self)

    def _is_astray(self) -> bool:
        """Return whether C code has changed the object so that its notes are wrong, and a save of them would be too."""
        return False

    def _note_slip(self) -> None:
        """Note what changed without being noted, if the next save would not find it."""

    if TYPE_CHECKING:  # Each kind has its own.

        def copy(self) -> Any:
            """Return a plain copy."""

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self.copy(), memo)

    def _check(self) -> None:
        """Assert every invariant of the object."""

    def _rename(self, name: str) -> None:
        self._name = name

    def _metadata_rows(self) -> list[tuple[str, str | None]]:
        """Return the metadata rows that differ from what is stored."""
        wanted = {key: self._encode(value, key) for key, value in self._metadata().items()}
        stored = {} if self._fresh else self._metadata_stored
        rows: list[tuple[str, str | None]] = [(key, text) for key, text in wanted.items() if stored.get(key) != text]
        rows += [(key, None) for key in stored if key not in wanted]
        self._metadata_next = wanted
        return rows

    def _turn_metadata(self) -> None:
        self._metadata_before, self._metadata_stored = self._metadata_stored, self._metadata_next

    def _settle_metadata(self, durable: bool) -> None:
        if not durable:
            self._metadata_stored = self._metadata_before
        self._metadata_before = {}

    def _load_metadata(self, *required: str) -> dict[str, Any]:
        """Return the decoded metadata of a stored object, which must have the ``required`` keys."""
        self._metadata_stored = self._home.reader().metadata(self._id)
        return self._stored_metadata(*required)

    def _load_length(self) -> int:
        """Return the stored length of an object that has no other metadata: quicker than finding all metadata."""
        text = self._home.reader().metadatum(self._id, "length")
        self._metadata_stored = {} if text is None else {"length": text}
        length: int = self._stored_metadata("length")["length"]
        return length

    def _stored_metadata(self, *required: str) -> dict[str, Any]:
        for key in required:
            if key not in self._metadata_stored:
                self._damaged(key, None, "the metadata row is missing")
        found = {key: self._decode(text, key) for key, text in self._metadata_stored.items()}
        for key in required:
            counts = found[key] if isinstance(found[key], list) and len(found[key]) == 2 else [found[key]]
            if not all(type(count) is int and count >= 0 for count in counts):
                self._damaged(key, found[key], "expected a number of 0 or more")
        return found

    def _encode(self, value: Any, slot: Any) -> str:
        try:
            return codec.encode(value)
        except codec.Unencodable as error:
            raise self._unencodable("slot", slot, error) from error.__cause__

    def _unencodable(self, what: str, slot: Any, error: Exception) -> UnencodableValueError:
        reason = codec.TOO_DEEP_OR_FULL if isinstance(error, RecursionError) else error
        return UnencodableValueError(f"{self._describe()}, {what} {shown(slot):.80}: {reason}")

    def _decode(self, text: Payload, slot: Any) -> Any:
        try:
            return codec.decode(text)
        except UNREADABLE as error:
            self._damaged(slot, text, error)

    def _is_as_stored(self, item: StoredItem, value: Any) -> bool:
        """Return whether a value is the one of a stored item."""
        with suppress(UnencodableValueError):
            if self._encode(value, item.slot) == item_text(item):
                return True
        return self._is_read_from(item, value)

    def _is_read_from(self, item: StoredItem | None, value: Any) -> bool:
        """Return whether a value is what a stored item is read as: its class may have had other fields at the save."""
        with suppress(DamagedObjectError):
            return item is not None and codec.is_same(value, self._value_of(item))
        return False

    def _value_of(self, item: StoredItem) -> Any:
        """Return the value of a stored item."""
        return self._decode(item_text(item), item.slot)

    def _damaged(self, slot: Any, found: Any, error: Exception | str) -> NoReturn:
        if Torn.CUT in (self._torn, self._home._torn):
            self._refuse_cut()  # What is in memory does not fit what is stored, which may well be sound.
        if isinstance(found, NoText):
            found, error = None, str(found)
        if isinstance(error, RecursionError):
            if not codec.is_nested_too_deep(found):
                raise error  # It was called from too deep in other calls.
            error = codec.TOO_DEEP
        if isinstance(error, codec.NotReadHere):
            raise ObjectSpaceError(f"{self._describe()}, slot {shown(slot):.80}: {error}; nothing is lost")
        raise DamagedObjectError(
            f"{self._describe()}, slot {shown(slot):.80}: what is stored cannot be read ({error});"
            f" found {shown(found):.80}; other objects are readable; {GO_ON}"
        )

    def _describe(self) -> str:
        return f"{self.kind} {self._name!r}"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"{self._describe()} is not pickled: pass a plain copy, or open the space where it is needed")


def unchanged(stored: Any, value: Any, text: Payload) -> bool:
    """Return whether a slot still holds what is stored.

    Args:
        stored: the stored value if it is an atom, else the :class:`Fingerprint` of its text.
        value: what the slot holds now.
        text: the text of ``value``.
    """
    if type(stored) is Fingerprint:
        return stored == hash(text)
    if type(stored) is not type(value):
        return False
    # The text of a float tells -0.0 from 0.0, and nan is the same as nan.
    return bool(repr(stored) == repr(value) if type(value) is float else stored == value)


def alike(mine: Any, theirs: Any) -> bool:
    """Return whether two elements are equal as in Python's containers, where an element equals itself, even nan."""
    return mine is theirs or bool(mine == theirs)


class Fingerprint(int):
    """The hash of a stored text, kept for values that may have been changed in place since they were stored."""


class NoText(str):
    """What stands for the text of an item that has none, and says why; no decoder takes it."""

    __slots__ = ()


def item_text(item: StoredItem) -> str:
    """Return the text of a stored item, or a text that no decoder takes if it is not text."""
    if isinstance(item.value, str):
        return item.value
    return item.value.decode(errors="replace") if isinstance(item.value, bytes) else NoText(fault_of(item.value))
