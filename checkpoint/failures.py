"""What the errors of SQLite mean to a store, and what to do about them."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from checkpoint.errors import (
    RESTORE,
    CheckpointError,
    CorruptStoreError,
    RunRefusedError,
    StoreFailedError,
    StoreLockedError,
)

SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite raises; the second if damage has left text that is not text, even if only in its own message."""

REOPEN = ", then call reopen()"
"""What a program does once the cause of a failure is resolved; the command-line tool has another way to say it."""

OPEN_AGAIN = ", then open it again"
"""The same where it was never open: there is no store yet to call anything of."""

TOO_MANY_OPEN = {
    errno.EMFILE: "this process has too many files open: close some",
    errno.ENFILE: "the machine has too many files open",
}
"""What to do where no more files can be opened."""

_ROOM_BYTES = 64 << 10
"""If less is left, SQLite may not get the 32 KiB by which the index of a log grows."""


def code_of(error: Exception) -> int:
    """Return the primary code of an error of SQLite, 0 for any other error."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_of_the_file(error: Exception) -> bool:
    """Return whether the file itself failed, so that it is uncertain what it holds."""
    return code_of(error) in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def explained(path: str, error: Exception, schema_damage: str = "") -> CheckpointError:
    """Return an error of SQLite as one of ours, with advice on what to do.

    Args:
        path: the file; it need not exist.
        error: what SQLite raised.
        schema_damage: what is to be done about it if it comes from a damaged schema.
    """
    kind, advice = _ADVICE.get(code_of(error), (CheckpointError, "the store could not do it"))
    if schema_damage:
        kind, advice = CorruptStoreError, f"the file is damaged: {schema_damage}"
    elif "decode" in str(error):
        kind, advice = _ADVICE[sqlite3.SQLITE_CORRUPT]
    if kind is StoreFailedError and lacks_room(error, Path(path).parent):
        advice = f"no space is left: free some{REOPEN}"
    elif code_of(error) == sqlite3.SQLITE_FULL and (folder := _full_temporary_folder(path)):
        advice = (
            f"no space is left in {folder}, the temporary folder in which SQLite sorts: free some there, or set TMPDIR"
            " to another folder before the program starts; nothing was written"
        )
    elif advice is _CLOSED:
        advice = _why_not_opened(path, error) or _CLOSED
    elif getattr(error, "sqlite_errorcode", 0) in _LACK_OF_MEMORY:
        advice = f"the file system failed, or memory ran out: see to both{REOPEN}"
    return kind(f"{path}: {advice} (SQLite says: {error})")


def not_given_back(path: str, error: Exception, room: int) -> CheckpointError:
    """Return the error for a full disk that a file could not be rewritten on, after all else was done.

    Args:
        path: the file.
        error: what SQLite raised.
        room: how many bytes of it are in use.
    """
    return CheckpointError(
        f"{path}: what was merged or dropped stays so, but the space of it was not given back to the file system, as no"
        f" space is left to rewrite the file: that takes about {room:,} bytes beside it, and as many for temporary"
        f" files; free some and try again (SQLite says: {error})"
    )


def lacks_room(error: Exception, folder: Path) -> bool:
    """Return whether an error came from a full disk: SQLite reports a disk error if its index cannot grow.

    Args:
        error: what was raised when writing a file.
        folder: the folder of that file.
    """
    if code_of(error) == sqlite3.SQLITE_FULL or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return True
    with suppress(OSError):  # There may be no handle left for the import.
        from shutil import disk_usage  # on demand: it imports archive modules, and few ever meet a full disk

        return code_of(error) == sqlite3.SQLITE_IOERR and disk_usage(folder).free < _ROOM_BYTES
    return False


def _why_not_opened(path: str, error: Exception) -> str | None:
    """Return why SQLite cannot open a file and what to do, ``None`` if nothing tells: SQLite itself does not say."""
    if unreadable := _unreadable(path):
        return f"this user may not read {unreadable}: see to its permissions"
    if foreign := _left_by_a_reader(path):
        return (
            f"{foreign}, which another user has made by reading the store, may not be written by this one: while nobody"
            " has the store open, remove it, or have its owner do that; where several users share a store, let a group"
            " of theirs write its file, and SQLite lets it write such files, too"
        )
    if found := lack_of_handles():
        return found
    file = os.path.realpath(path)
    if (length := len(os.fsencode(file))) > _LONGEST_PATH:
        return f"its path has {length} bytes, and SQLite takes {_LONGEST_PATH}: use a shorter one"
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_ROLLBACK:
        return "a writer was killed, and what it began is to be undone, which takes a writer: open it for writing once"
    is_log_alone = os.path.exists(f"{file}-wal") and not os.path.exists(f"{file}-shm")
    if is_log_alone and not os.access(os.path.dirname(file), os.W_OK):
        return (
            f"{path}-wal has checkpoints that are not in the file yet, and nothing may be written beside it, which it"
            " takes to read them: copy both to a folder that may be written"
        )
    return None


def lack_of_handles() -> str | None:
    """Return what to do if so few files can be opened that a store cannot, ``None`` if that is not so."""
    opened: list[int] = []
    try:
        for _ in range(_FILES_OF_A_STORE):  # Not the store itself: to close it would release the locks of this process.
            opened.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return TOO_MANY_OPEN.get(error.errno or 0)
    finally:
        for each in opened:
            os.close(each)
    return None


def _unreadable(path: str) -> str | None:
    """Return which of the files of a store this process may not read, ``None`` if there is none."""
    found = (f"{path}{end}" for end in ("", "-wal", "-shm", "-journal"))
    return next((each for each in found if os.path.exists(each) and not os.access(each, os.R_OK)), None)


def _left_by_a_reader(path: str) -> str | None:
    """Return which file beside a store this process may not write although it may write the store; ``None`` if none."""
    if not os.access(path, os.W_OK):
        return None
    beside = (f"{path}{end}" for end in ("-shm", "-wal"))
    return next((each for each in beside if os.path.exists(each) and not os.access(each, os.W_OK)), None)


def _full_temporary_folder(path: str) -> str | None:
    """Return the folder of SQLite's temporary files if that must have been full, as the disk of a file is not."""
    from shutil import disk_usage

    places = (os.environ.get("SQLITE_TMPDIR"), os.environ.get("TMPDIR"), "/var/tmp", "/usr/tmp", "/tmp", ".")
    with suppress(OSError):
        # The first that SQLite can write is the one that it takes.
        folder = next(place for place in places if place and os.path.isdir(place) and os.access(place, os.W_OK))
        # How much is left there now says nothing: SQLite has removed its files already.
        is_elsewhere = os.stat(folder).st_dev != os.stat(Path(path).parent).st_dev
        if is_elsewhere and disk_usage(Path(path).parent).free >= _ROOM_BYTES:
            return folder
    return None


_LONGEST_PATH = 504
"""Of the 512 bytes that SQLite takes, its journal has the last 8 (``-journal``)."""

_FILES_OF_A_STORE = 3
"""How many files a connection opens at least: the file, its log, and the index of it."""

_LACK_OF_MEMORY = (sqlite3.SQLITE_IOERR_NOMEM, sqlite3.SQLITE_IOERR_SHMMAP)
_DAMAGED = f"the file is damaged: {RESTORE}"
_CLOSED = "the file cannot be opened or written: check that it exists, and the permissions of it and its folder"
_ADVICE: dict[int, tuple[type[CheckpointError], str]] = {
    sqlite3.SQLITE_NOTADB: (CorruptStoreError, f"its first page is damaged: {RESTORE}"),
    sqlite3.SQLITE_CORRUPT: (CorruptStoreError, _DAMAGED),
    sqlite3.SQLITE_IOERR: (StoreFailedError, f"the file system failed: see to the disk{REOPEN}"),
    sqlite3.SQLITE_FULL: (CheckpointError, "no space is left: free some and try again; nothing was written"),
    sqlite3.SQLITE_BUSY: (StoreLockedError, "another program is writing to the file: try again when it has finished"),
    sqlite3.SQLITE_CANTOPEN: (CheckpointError, _CLOSED),
    sqlite3.SQLITE_PERM: (CheckpointError, _CLOSED),
    sqlite3.SQLITE_READONLY: (CheckpointError, _CLOSED),
    sqlite3.SQLITE_CONSTRAINT: (
        RunRefusedError,
        "the run holds a row twice, or an invalid one; nothing was written",
    ),
    sqlite3.SQLITE_TOOBIG: (CheckpointError, "a value is too large for SQLite, nothing was written: store it in parts"),
}
