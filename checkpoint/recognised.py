"""Which files a store can be opened on: everything that is found out before anything is written."""

from __future__ import annotations

import glob
import os
import sqlite3
import stat
from contextlib import suppress
from pathlib import Path

from checkpoint import inherited, schema
from checkpoint.errors import CheckpointError
from checkpoint.failures import SQLITE_ERRORS, code_of

_OLDEST_SQLITE = (3, 33)
"""The first SQLite that has all that a store uses: ``sqlite_schema``, and ``iif`` before it."""

LOGS = ("-wal", "-shm", "-journal")
"""How the names of the files end that SQLite keeps beside a database, and removes."""

BESIDE = (*LOGS, ".lock", ".owner")
"""How the names of all files end that may lie beside a store."""

_MAGIC = b"SQLite format 3\0"
"""The first bytes of a database."""

_MOUNTS = Path("/proc/self/mountinfo")
"""Where Linux lists what is mounted where."""

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


def absolute(path: str | os.PathLike[str]) -> str:
    """Return an absolute path.

    Raises:
        CheckpointError: it is relative, and the folder that the process works in is gone.
    """
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} cannot be found: the folder in which this process works no longer exists; give an absolute path"
        ) from None


def _is_folder(path: Path) -> bool:
    """Return whether a path leads to a folder; ``Path.is_dir`` says only "no" where that cannot be found out.

    Raises:
        OSError: it cannot be found out.
    """
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def require_usable(path: Path, *, read_only: bool) -> None:
    """Refuse a path that cannot be a store, before anything is written there or beside it.

    Raises:
        InheritedStoreError: it was open in the process that this one was forked from.
        CheckpointError: it is a folder or a device, its folder is missing, it holds something else, or what SQLite
            would keep beside it would be in the way of another store.
    """
    if "\0" in str(path):
        raise CheckpointError(f"{str(path)!r} is no path: it holds a NUL character; name another file")
    inherited.require_own(path)
    try:
        target = path.resolve()
        folder = target.parent
        is_folder, has_folder = _is_folder(path), _is_folder(folder)
    except (OSError, RuntimeError, UnicodeEncodeError) as error:  # RuntimeError: its links lead in a circle.
        raise CheckpointError(f"{str(path)!r} cannot be used as a path ({error}): name another file") from error
    if is_folder:
        raise CheckpointError(f"{path} is a folder: name a file in it, for example {path / 'state.db'}")
    if not has_folder:
        raise CheckpointError(f"{path} cannot be created: the folder {folder} does not exist; create it first")
    _require_no_index(target)
    _require_no_store_beside(target)
    if not path.exists():
        if read_only:
            raise CheckpointError(f"{path} does not exist: check the path, or open it for writing to create it")
        require_free_name(path)
        require_free_name(target)
        return
    if not path.is_file():
        raise CheckpointError(f"{path} is not a regular file, or was removed this moment: name another one")
    try:
        if not read_only:
            _require_one_name(path)
            _require_no_mount(path)
        size = path.stat().st_size
    except FileNotFoundError:
        raise CheckpointError(f"{path} was removed while it was being opened: check who removes it") from None
    if not size:
        require_free_name(path)
    if 0 < size < _SMALLEST_BYTES:
        raise CheckpointError(f"{path} is not a checkpoint store, or was cut short: name another file")
    _look_into(path)


def require_free_name(path: Path) -> None:
    """Refuse a name that would be taken for the log or the lock of another store, and lost with it.

    Raises:
        CheckpointError: it is one.
    """
    for end in BESIDE:
        if path.name.endswith(end):
            raise CheckpointError(
                f"{path} is the name of what lies beside a store {path.name.removesuffix(end)!r} while it is open, and"
                " is removed or emptied with that: name another file"
            )


def _require_no_index(path: Path) -> None:
    """Refuse the index of a log, without looking into it: see below."""
    store = path.with_name(path.name.removesuffix("-shm"))
    if store != path and store.exists():
        raise CheckpointError(f"{path} is what SQLite keeps beside {store.name}: name that one")


def _require_no_store_beside(target: Path) -> None:
    """Refuse to open a store if a database has the name of its log: SQLite would remove it.

    The index of the log is not looked into. Whoever closes a file ends all locks that the process has on it, and on
    that one SQLite has some as long as the store is open anywhere in the process.
    """
    for end in ("-wal", "-journal", ".owner"):
        beside = target.with_name(target.name + end)
        if inherited.is_open_elsewhere(beside, None) or _is_database(beside):
            raise CheckpointError(
                f"{beside} is a database, and has the name of what lies beside {target.name} while it is open, and is"
                " removed then: rename it first"
            )


def _is_database(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC
    return False


def _require_one_name(path: Path) -> None:
    """Refuse to write a file that has several names: each would have a lock and a log of its own.

    A fork that was killed at its very end leaves the name under which it made the file; that name is removed.
    """
    found = path.stat()
    if found.st_nlink == 1:
        return
    target = path.resolve()
    for staged in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        with suppress(OSError):
            if staged.samefile(target):
                staged.unlink()
    names = path.stat().st_nlink
    if names > 1:
        raise CheckpointError(
            f"{path} has {names} names (hard links), of which each would have a lock and a log of its own, so writers"
            " under two of them would lose what the other has saved: remove the other names, or make a copy with"
            " `checkpoint fork`, and open that; if a file that ends in -wal lies beside one of the names, keep and fork"
            " that one, as the newest checkpoints may be there; read_only=True reads it, as long as nobody writes to it"
        )


def _require_no_mount(path: Path) -> None:
    """Refuse to write a file that is mounted alone: its lock and its log lie in another folder than under other names.

    A container gets it so if it is handed the file and not the folder.
    """
    if _is_mount(path.resolve()):
        raise CheckpointError(
            f"{path} is mounted alone, without the folder that it lies in, so its lock and its log here are not those"
            " that it has there: writers here and there would lose what the other has saved, and the newest checkpoints"
            " would go with this folder: mount the folder instead, or copy it with `checkpoint fork` there, where the"
            " log lies that has its newest checkpoints, and open the copy"
        )


def _is_mount(path: Path) -> bool:
    """Return whether a file is mounted alone, on Linux; elsewhere nobody can tell."""
    listed = os.fsencode(path)
    for sign in (b"\\", b" ", b"\t", b"\n"):
        listed = listed.replace(sign, b"\\%03o" % ord(sign))
    try:
        mounts = _MOUNTS.read_bytes()
        own = _mount_of(path) if listed in mounts else None
    except OSError:
        return False
    fields = (line.split(b" ") for line in mounts.splitlines())
    return any(number == own and point == listed for number, _, _, _, point, *_ in fields)


def _mount_of(path: Path) -> bytes:
    """Return the number of the mount that a file lies in, as Linux lists it."""
    descriptor = os.open(path, os.O_PATH)  # To close one of this kind ends no lock of the process on the file.
    try:
        found = Path(f"/proc/self/fdinfo/{descriptor}").read_bytes()
    finally:
        os.close(descriptor)
    return next(line.split()[1] for line in found.splitlines() if line.startswith(b"mnt_id:"))


def _look_into(path: Path) -> None:
    # An immutable connection leaves no trace, not even a log. It does not see the log either, and may meet a page that
    # a writer is changing, so only what is certain counts here; the actual opening decides the rest.
    with inherited.OPENING:
        try:
            connection = sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)
        except sqlite3.Error:
            return
        try:
            recognise(str(path), connection)
        except SQLITE_ERRORS as error:
            if code_of(error) == sqlite3.SQLITE_NOTADB:
                raise CheckpointError(
                    f"{path} is no checkpoint store (SQLite says: {error}): name another file"
                ) from error
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
