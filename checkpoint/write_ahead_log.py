"""The write-ahead log of a store: when it is copied into the file, and what becomes of it if somebody removes it.

SQLite removes the log when it closes a file that nobody else has locked. The locks of Unix belong to a process, and all
of them go when any part of it closes the file, even after only reading it: the next SQLite to close the file then
removes the log that this one writes into, and what is committed from then on would end with the process.
"""

from __future__ import annotations

import os
import sqlite3
import warnings
from contextlib import suppress
from pathlib import Path

from checkpoint import inherited
from checkpoint.errors import StoreFailedError
from checkpoint.failures import SQLITE_ERRORS

LOG_BYTES = 4 << 20
"""How large the write-ahead log grows before it is copied into the file, and how large it stays on the disk."""


class WriteAheadLog:
    """The log beside the file of a store.

    Args:
        path: the file of the store.
        is_watched: whether this process writes into the log, so that it must stay the same.

    ``is_lost`` tells whether it was found to be removed or replaced.
    """

    def __init__(self, path: str, *, is_watched: bool) -> None:
        file = Path(path).resolve()
        self.path = file.with_name(f"{file.name}-wal")
        self.is_lost = False
        self._store, self._is_watched = path, is_watched
        self._identity: inherited.Identity | None = None
        self._copied_bytes = 0
        self._is_owed = False

    @property
    def index(self) -> Path:
        """The index of the log, which the processes that have the store open share."""
        return self.path.with_name(f"{self.path.name.removesuffix('-wal')}-shm")

    def exists(self) -> bool:
        """Return whether anybody has a log or an index of one: without, the file is all there is."""
        return self.index.exists() or (self.path.exists() and self.path.stat().st_size > 0)

    def note_opened(self) -> None:
        """Take the log that is there for that of the store; SQLite may create it only with the first commit."""
        self._identity, self.is_lost = self._identity_now(), False

    def is_same(self) -> bool:
        """Return whether the log is still the one that was there when the store was opened, or the first one since."""
        found = self._identity_now()
        if self._identity is None:
            self._identity = found
        self.is_lost = self.is_lost or found != self._identity
        return found == self._identity

    def removed(self, connection: sqlite3.Connection) -> StoreFailedError:
        """Copy all that was committed into a log that is gone into the file, and return what to raise.

        Args:
            connection: the one that writes into the log.
        """
        cause = (
            "somebody has removed it, or this program has opened the store by other means than a store, with open() for"
            " example, which ends the locks of the process"
        )
        return self._lost(cause, is_copied=copy_all(connection))

    def require_unneeded(self, connection: sqlite3.Connection | None) -> None:
        """Refuse to leave a log that is gone before all of it is in the file and nobody else in the process reads it.

        A reader has the index of that log in memory, which a new connection would take for that of the new one.

        Raises:
            StoreFailedError: it is still needed.
        """
        if connection is not None and not copy_all(connection):
            raise self._lost("it holds what is nowhere else", is_copied=False)
        if inherited.is_open_elsewhere(self._store, connection):
            raise self._lost("this process reads from it", is_copied=True)

    def warn_if_lost(self, connection: sqlite3.Connection) -> None:
        """Warn if to close a connection loses what a log that is gone holds."""
        if self.is_lost and not copy_all(connection):
            warnings.warn(
                f"{self.path} was removed, and a reader holds an older checkpoint: closing the store before every"
                " reader is closed loses what was committed since, or damages the file",
                RuntimeWarning,
                stacklevel=5,
            )

    def copy_if_due(self, connection: sqlite3.Connection, *, is_first: bool) -> None:
        """Copy the log into the file if it has grown long, or has the first checkpoint.

        A copy of the file alone, which somebody takes for a backup, would be a new store and not an older state.

        Args:
            connection: the one that writes into the log.
            is_first: whether the first checkpoint was committed just now.

        When all is copied and nobody reads, SQLite starts the log over and cuts its file to ``LOG_BYTES``, so a longer
        file is one that has grown since. While somebody keeps the log from starting over, copying is tried again only
        after as much growth: each attempt would cost two syncs and gain little.
        """
        self._is_owed = self._is_owed or is_first
        try:
            size = os.stat(self.path).st_size
        except FileNotFoundError:
            return
        if size < self._copied_bytes:
            self._copied_bytes = 0
        if size - self._copied_bytes > LOG_BYTES or self._is_owed:
            self._copied_bytes = size
            # As long as a reader keeps part of it from being copied, the file alone may be damaged.
            self._is_owed = not _copy(connection) and self._is_owed

    def _identity_now(self) -> inherited.Identity | None:
        try:
            return inherited.file_identity(self.path) if self._is_watched else None
        except OSError:
            return None

    def _lost(self, cause: str, *, is_copied: bool) -> StoreFailedError:
        held = "what was committed was copied into the file" if is_copied else "a reader holds an older checkpoint"
        return StoreFailedError(
            f"{self.path} was removed or replaced while the store was open ({cause}); {held}: close every reader of the"
            " store, in other processes too, and before the store itself; then call reopen(), and save again. fork()"
            " writes a copy of what is there now"
        )


def copy_all(connection: sqlite3.Connection) -> bool:
    """Copy the log into the file, and return whether all is there: readers of older snapshots hold it back."""
    with suppress(*SQLITE_ERRORS):
        return _copy(connection)
    return False


def _copy(connection: sqlite3.Connection) -> bool:
    """Do the same, and let the errors of SQLite through."""
    busy, frames, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return bool(not busy and frames == copied)
