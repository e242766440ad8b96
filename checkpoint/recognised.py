"""Which files a store can be opened on: everything that is found out before anything is written."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from checkpoint import inherited, schema
from checkpoint.errors import CheckpointError
from checkpoint.failures import SQLITE_ERRORS, code_of

_OLDEST_SQLITE = (3, 33)
"""The first SQLite that has all that a store uses: ``sqlite_schema``, and ``iif`` before it."""

_SMALLEST_BYTES = 512
"""SQLite would take some shorter files for new databases, and overwrite them."""


def require_sqlite() -> None:
    """Refuse a SQLite that does not know what a store asks of it, before anything is written.

    Raises:
        CheckpointError: it is too old.
    """
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise CheckpointError(
            f"this Python has SQLite {sqlite3.sqlite_version}: expected {'.'.join(map(str, _OLDEST_SQLITE))} or newer,"
            " as a store needs it; use a Python that was built with a newer one"
        )


def require_usable(path: Path, *, read_only: bool) -> None:
    """Refuse a path that cannot be a store, before anything is written there or beside it.

    Raises:
        InheritedStoreError: it was open in the process that this one was forked from.
        CheckpointError: it is a folder or a device, its folder is missing, or it holds something else.
    """
    if "\0" in str(path):
        raise CheckpointError(f"{str(path)!r} is no path: it holds a NUL character; name another file")
    inherited.require_own(path)
    try:
        folder = path.resolve().parent
        is_folder, has_folder = path.is_dir(), folder.is_dir()
    except (OSError, RuntimeError, UnicodeEncodeError) as error:  # RuntimeError: its links lead in a circle.
        raise CheckpointError(f"{str(path)!r} cannot be used as a path ({error}): name another file") from error
    if is_folder:
        raise CheckpointError(f"{path} is a folder: name a file in it, for example {path / 'state.db'}")
    if not has_folder:
        raise CheckpointError(f"{path} cannot be created: the folder {folder} does not exist; create it first")
    if not path.exists():
        if read_only:
            raise CheckpointError(f"{path} does not exist: check the path, or open it for writing to create it")
        return
    if not path.is_file():
        raise CheckpointError(f"{path} is not a regular file: name another one")
    if 0 < path.stat().st_size < _SMALLEST_BYTES:
        raise CheckpointError(f"{path} is not a checkpoint store, or was cut short: name another file")
    _look_into(path)


def _look_into(path: Path) -> None:
    # An immutable connection leaves no trace, not even a log. It does not see the log either, and may meet a page that
    # a writer is changing, so only what is certain counts here; the actual opening decides the rest.
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)
    except sqlite3.Error:
        return
    try:
        recognise(str(path), connection)
    except SQLITE_ERRORS as error:
        if code_of(error) == sqlite3.SQLITE_NOTADB:
            raise CheckpointError(f"{path} is no checkpoint store (SQLite says: {error}): name another file") from error
    finally:
        connection.close()


def recognise(path: str, connection: sqlite3.Connection) -> bool:
    """Return whether a file is empty and may become a store; return False if it is one.

    Raises:
        CheckpointError: it is another database, or a store of a newer format.
    """
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = format_of(connection)
    if application != schema.APPLICATION_ID:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        if application or tables:
            raise CheckpointError(
                f"{path} is an SQLite database, not a checkpoint store (its tables: {tables}): name another file"
            )
    if version > schema.FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format {version}, and this version reads formats up to {schema.FORMAT_VERSION}:"
            " install a newer objectspace"
        )
    return not application


def format_of(connection: sqlite3.Connection) -> int:
    """Return the number of the format of a store."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
