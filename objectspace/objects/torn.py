"""What an interruption must not cut in two: an object or a space knows of it, and is no longer saved."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from checkpoint.errors import CheckpointError
from objectspace.errors import ObjectSpaceError

REFUSALS: tuple[type[BaseException], ...] = (CheckpointError, ObjectSpaceError)
"""What refuses an edit before it has changed anything, so that it is whole."""


class MayTear(Protocol):
    """What notes that it is itself between two states."""

    _is_torn: int


CUT = 2
"""What is noted if an edit was cut in two: only a rollback makes up for that, and no block around the edit does."""


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
        self._before = self._target._is_torn
        self._target._is_torn = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        target = self._target
        if kind is not None and not issubclass(kind, self._refusals):
            target._is_torn = CUT
        elif target._is_torn and target._is_torn != CUT:  # Else it was cut within the block, or rolled back there.
            target._is_torn = self._before
