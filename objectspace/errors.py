"""The errors of the object space: a base class, and one subclass per cause that is also the builtin kind that fits."""

from __future__ import annotations

from checkpoint.errors import CheckpointError, CorruptStoreError

GO_ON = (
    "delete this one, or go back with space.rollback(epoch=...); if verify() of the store still fails then,"
    " repair(salvage=True) makes it sound"
)
"""What to do if an object is damaged in a store that has others; the message names it before this text."""


def shown(value: object) -> str:
    """Return a value as messages show it, even if its ``repr`` fails, as that of an integer of over 4,300 digits does.

    >>> shown("a"), shown(10**5000)
    ("'a'", 'an int of 16610 bits')
    """
    try:
        return repr(value)
    except (MemoryError, CheckpointError, ObjectSpaceError):
        raise
    except Exception:
        return f"an int of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"


class ObjectSpaceError(Exception):
    """Something went wrong in an object space; nothing was lost and nothing is half applied."""

    def __str__(self) -> str:
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


class NameInUseError(ObjectSpaceError, ValueError):
    """An object of this name already exists."""


class ObjectNotFoundError(ObjectSpaceError, KeyError):
    """There is no object of this name, or the object of this handle has been deleted."""


class WrongKindError(ObjectSpaceError, TypeError):
    """The object of this name is of another kind."""


class EmptyError(ObjectSpaceError, IndexError):
    """A queue, stack, linked list or sorted set has no element to give."""


class UnencodableValueError(ObjectSpaceError, TypeError):
    """A value or key is of a type that cannot be stored."""


class CheckpointProtocolError(ObjectSpaceError, RuntimeError):
    """``save``, ``commit`` and ``on_saved`` were called in an order that has no meaning, or a closed space was used."""


class DamagedObjectError(ObjectSpaceError, CorruptStoreError):
    """What is stored of an object cannot be read; other objects are not affected."""
