"""The errors of the store: one base class, one subclass per cause, and in each message what to do next."""

from __future__ import annotations

RESTORE = "restore it from a backup"
"""What to do about a damaged file that nothing can mend; the message names the file first."""

SALVAGE = f"{RESTORE}, or go on with what can still be read by repair(salvage=True)"
"""What to do about a damaged file in which no repair can prove anything."""

REPAIR = f"call repair() on the store, {SALVAGE}"
"""What to do about a damaged file that a repair may mend."""


def not_copied(what: object, instead: str) -> TypeError:
    """Return the error for the copying or pickling of what has one place: two of it would share a half of it.

    Args:
        what: what it is.
        instead: what to do instead.

    >>> not_copied("a lock", "make another one")
    TypeError("'a lock' is neither copied nor pickled: make another one")
    """
    return TypeError(f"{what!r} is neither copied nor pickled: {instead}")


class CheckpointError(Exception):
    """Something about a store is not as the caller expected; nothing was changed."""


class CorruptStoreError(CheckpointError):
    """What is stored is damaged: the message names the place and what can still be read."""


class StoreFailedError(CheckpointError):
    """The file system failed under the store: whether the last change took effect is known when it is opened again."""


class StoreLockedError(CheckpointError):
    """Another writer has the store open: the message names its process and host."""


class RunRefusedError(CheckpointError):
    """A run holds a row that cannot be stored, or that the store already has; nothing was written."""


class InheritedStoreError(StoreLockedError):
    """The process was forked from one that had the store open, whose locks do not hold in the child."""


class FencedError(CheckpointError):
    """Another writer published this epoch first, so this one must stop."""


class UnknownCheckpointError(CheckpointError, LookupError):
    """No checkpoint with this number or epoch is stored, or its rows were merged into a newer one."""


class EpochTypeError(CheckpointError, TypeError):
    """An epoch is not a 64-bit integer."""
