"""What must not be cut in two: by an interruption, after which nothing is saved, or by a save in its midst."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import IntEnum
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar

from checkpoint.errors import CheckpointError
from objectspace.codec import is_registered
from objectspace.errors import ObjectSpaceError

REFUSALS: tuple[type[BaseException], ...] = (CheckpointError, ObjectSpaceError)
"""What refuses an edit before it has changed anything, so that it is whole."""

M = TypeVar("M", bound=Callable[..., Any])

_EDIT, _READ, _LAST = range(3)
"""What marked methods do: see :func:`undivided`, :func:`undivided_read` and :func:`reads_first`."""

_MARKED: dict[int, tuple[CodeType, int]] = {}
"""The code of marked methods by its id, since to hash code takes the longer the longer it is, and what they do."""

_OURS = frozenset({"checkpoint", "numpy", "objectspace", "pyarrow", "sortedcontainers", *sys.stdlib_module_names})
"""Whose code is at work where no function of a user is."""

_OF_KEYS = frozenset({"__hash__", "__eq__", "__lt__"})
"""What Python's own code calls of a key while it makes an edit, of which it leaves no frame."""


class Torn(IntEnum):
    """How far an object or a space is from being whole: unless it is, nothing of it is saved."""

    NO = 0
    WITHIN = 1
    """It is between two states, and whole again once what is under way has ended; if that was interrupted, never."""
    CUT = 2
    """An edit was cut in two: only a rollback makes up for that, and no block around the edit does."""


NOT_TORN, WITHIN = Torn.NO, Torn.WITHIN
"""The same by names of their own: to look one up in its class takes a good part of the time of a short edit."""


class MayTear(Protocol):
    """What notes that it is itself between two states."""

    _torn: Torn


class InOnePiece:
    """A ``with`` block within which an object is torn: it stays torn if anything but a refusal ends the block.

    A class of its own: around a short edit a generator would take longer than the edit.

    Args:
        target: the object or space.
        refusals: the errors that leave it whole.
    """

    __slots__ = ("_before", "_refusals", "_target")

    def __init__(self, target: MayTear, refusals: tuple[type[BaseException], ...] = REFUSALS) -> None:
        self._target, self._refusals = target, refusals

    def __enter__(self) -> None:
        self._before = self._target._torn
        self._target._torn = WITHIN

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        target = self._target
        if kind is not None and (not issubclass(kind, self._refusals) or _may_be_ours(kind, at)):
            target._torn = Torn.CUT
        elif target._torn is WITHIN:  # Else it was cut within the block, or rolled back there.
            target._torn = self._before


def _may_be_ours(kind: type[BaseException], at: TracebackType | None) -> bool:
    """Return whether an error may have struck anywhere, and not a function of a user, which is called last."""
    return issubclass(kind, MemoryError) or (issubclass(kind, RecursionError) and not _is_of_user(at))


def _is_of_user(at: TracebackType | None) -> bool:
    while at is not None:
        if at.tb_frame.f_globals.get("__name__", "").partition(".")[0] not in _OURS:
            return True
        at = at.tb_next
    return False


def undivided(edit: M) -> M:
    """Mark a method of an object, its table or the space that goes on with what it has read there and noted about it.

    So no save and no rollback may come in its midst, in a signal handler or in a method of a key. Only they look for
    the mark; the method itself stays as it is, and takes no longer.
    """
    return _marked(edit, _EDIT)


def undivided_read(read: M) -> M:
    """Mark a method that brings slots into memory, which no save and no rollback must change under it.

    One that is asked for there is refused, and no more has happened than if the read had been interrupted.
    """
    return _marked(read, _READ)


def reads_first(edit: M) -> M:
    """Mark a method that ends an undivided one, which has noted nothing then, and that may run any code itself."""
    return _marked(edit, _LAST)


def _marked(method: M, does: int) -> M:
    code: CodeType = method.__code__
    _MARKED[id(code)] = code, does
    return method


class UnderWay(NamedTuple):
    """What goes on further out in the calls."""

    what: str
    """The object, or the method of a key."""
    is_edit: bool
    """Whether it is more than a read."""


def under_way(home: object) -> UnderWay | None:
    """Return what those who called, further out, do with an object of a space; ``None`` if nothing is in its midst.

    Time: O(depth of the calls), about a tenth of a microsecond each.
    """
    frame: FrameType | None = sys._getframe(1)
    found: UnderWay | None = None
    while frame is not None:
        code = frame.f_code
        if id(code) in _MARKED:
            _, does = _MARKED[id(code)]
            target = _target_of(frame, home)
            if does == _LAST:
                frame = frame.f_back  # It has been called last.
            elif target is not None and does == _EDIT:
                return UnderWay(target, is_edit=True)
            elif target is not None:
                found = found or UnderWay(target, is_edit=False)
        elif code.co_name in _OF_KEYS and is_registered(key := type(_first_argument(frame))):
            found = UnderWay(f"{key.__name__}.{code.co_name}", is_edit=True)
        frame = frame and frame.f_back
    return found


def _target_of(frame: FrameType, home: object) -> str | None:
    """Return what a marked method is at work on, if that is in a space."""
    target = _first_argument(frame)
    target = getattr(target, "owner", target)  # It may be the table of an object.
    if target is home:
        return "the space"
    return str(target._describe()) if getattr(target, "_home", None) is home else None


def _first_argument(frame: FrameType) -> Any:
    names = frame.f_code.co_varnames
    return frame.f_locals.get(names[0]) if names else None
