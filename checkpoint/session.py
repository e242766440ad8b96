"""The single connection of a store: how its file is opened and recognised, how it is written, and how it failed."""

from __future__ import annotations

import errno
import os
import sqlite3
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from time import monotonic
from typing import Any, Literal

from checkpoint import inherited, schema
from checkpoint.errors import (
    REPAIR,
    RESTORE,
    CheckpointError,
    CorruptStoreError,
    InheritedStoreError,
    RunRefusedError,
    StoreFailedError,
    StoreLockedError,
)
from checkpoint.seals import fetch_as_stored

Durability = Literal["full", "normal"]

IN_MEMORY = ":memory:"
"""The path of a store that has no file."""

SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite raises; the second if damage has left text that is not text, even if only in its own message."""

LOG_BYTES = 4 << 20
"""How large the write-ahead log grows before it is copied into the file, and how large it stays on the disk."""

REOPEN = ", then call reopen()"
"""What a program does once the cause of a failure is resolved; the command-line tool has another way to say it."""

_OLDEST_SQLITE = (3, 33)
"""The first SQLite that has all that a store uses: ``sqlite_schema``, and ``iif`` before it."""

_CACHE_KIB = 64 * 1024
_SMALLEST = 512
_ROOM_BYTES = 64 << 10
"""If less is left, SQLite may not get the 32 KiB by which the index of a log grows."""

_BUSY_SECONDS = 5
_HOLD_SECONDS = 0.01
"""How long reads in quick succession are one transaction: a thousand of them."""


PAGE_BYTES = 2048
"""The page size of a new store: a run of small rows leaves less unused at its end than with SQLite's 4,096 bytes."""


class Session:
    """A connection that the store and its readers share, and that is replaced by another when necessary.

    Args:
        path: the file; ``":memory:"`` for none.
        read_only: read one snapshot, which the whole session sees.
        durability: as for :class:`~checkpoint.CheckpointStore`.
    """

    factory: type[sqlite3.Connection] = inherited.Connection

    def __init__(self, path: str, *, read_only: bool, durability: Durability) -> None:
        self.path = path
        self.read_only = read_only
        self.in_memory = path == IN_MEMORY
        self.mutex = RLock()
        self._durability = durability
        self._failure: Exception | None = None
        self._connection: sqlite3.Connection | None = None
        self._cursors: set[sqlite3.Cursor] = set()
        self._log = Path(path).resolve().with_name(Path(path).resolve().name + "-wal")
        self._log_copied = 0
        self._identity: inherited.Identity | None = None
        self._log_identity: inherited.Identity | None = None
        self._is_log_lost = False
        self._may_hold = not read_only
        self._held_until = self._peeked_until = 0.0
        self._is_of_parent = False
        self._has_tables: dict[str, bool] = {}
        self._running: object = None
        inherited.note_user(self)

    @property
    def is_open(self) -> bool:
        """Whether there is a connection; this waits for nobody."""
        return self._connection is not None

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection, for statements of the caller.

        Raises:
            CheckpointError: it is closed.
            InheritedStoreError: it is that of the process which this one was forked from.
        """
        connection = self._require_open()
        if self._held_until:
            self._let_go(connection)
        return connection

    def _require_open(self) -> sqlite3.Connection:
        if self._connection is None:
            if self._is_of_parent:
                raise InheritedStoreError(
                    f"{self.path} was opened before this process was forked, and its connection is that of the parent:"
                    f" leave the work to the parent, or {inherited.INSTEAD}"
                )
            self.require_settled()
            raise CheckpointError(f"{self.path} is closed: open the store again")
        return self._connection

    def leave_to_parent(self) -> list[Any]:
        """In a forked process, stop using the connections, without even closing them; return the cursors."""
        if self._connection is None or self.in_memory:
            return []
        self._connection, self._is_of_parent, self._held_until = None, True, 0.0
        cursors, self._cursors = list(self._cursors), set()
        return cursors

    def handed_out(self) -> sqlite3.Connection:
        """Return the connection for a caller who may do anything with it, at any time from now on."""
        with self.mutex:
            self._may_hold = False
            return self.connection

    def open(self) -> None:
        """Connect, make sure that the file is a store of a known format, and create one in an empty file.

        Cursors continue to read from the previous connection, unless the file system has failed underneath it.

        Raises:
            CheckpointError: the file is something else, or cannot be opened.
        """
        with self.mutex:
            self._leave_to_cursors()
            self._has_tables.clear()
            try:
                self._connection = self._connect()
                self._prepare(self._connection)
            except SQLITE_ERRORS as error:
                self._disconnect()
                raise self.explain(error) from error
            except BaseException:
                self._disconnect()
                raise
            self._failure = None
            self._identity, self._log_identity = self._identity_now(), self._identity_of_log()
            self._is_log_lost = False

    def reopen(self) -> None:
        """Open the file again; its contents decide what was in doubt.

        Raises:
            CheckpointError: it cannot be opened, or is not the one that was open.
            StoreFailedError: its log is gone, and somebody still reads from it.
        """
        with self.mutex:
            if not self.in_memory:
                if not self.read_only:
                    self._require_identity()
                if self._is_log_lost:
                    self._leave_lost_log()
                self.open()
            elif self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            self._failure = None

    def close(self) -> None:
        """Copy the log into the file if nobody else is reading, and disconnect. Calling it twice is allowed."""
        with self.mutex:
            if self._connection is None:
                return
            self._held_until = 0.0
            self._warn_of_lost_log()
            if not self.read_only and self._failure is None:
                # What the log holds is durable: if it cannot be copied now, the next opening does it.
                with suppress(sqlite3.Error):
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    self._connection.execute("PRAGMA busy_timeout = 0")
                    self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._disconnect()

    def rows(self, statement: str, parameters: Sequence[object] | Mapping[str, object] = ()) -> list[Any]:
        """Return all rows of a query."""
        with self.mutex:
            try:
                return self.connection.execute(statement, parameters).fetchall()
            except SQLITE_ERRORS as error:
                raise self.failed(error) from error

    def row(self, statement: str, parameters: Sequence[object] | Mapping[str, object] = ()) -> Any:
        """Return the first row of a query, or ``None``."""
        with self.mutex:
            try:
                return self.connection.execute(statement, parameters).fetchone()
            except SQLITE_ERRORS as error:
                raise self.failed(error) from error

    def rows_as_stored(self, statement: str, parameters: Sequence[object] = ()) -> list[Any]:
        """Return what :meth:`rows` does, even for text that damage has made invalid: see :func:`fetch_as_stored`."""
        with self._reading():
            return fetch_as_stored(self.connection, statement, parameters)

    def has_table(self, name: str) -> bool:
        """Return whether there is a table: a store of an older format that is only read lacks some."""
        if name not in self._has_tables:
            found = self.peek("SELECT 1 FROM sqlite_schema WHERE name = ? COLLATE NOCASE", (name,))
            self._has_tables[name] = found is not None
        return self._has_tables[name]

    def peek(self, statement: str, parameters: Sequence[object]) -> Any:
        """Return what :meth:`row` does; such reads in quick succession are one transaction.

        That saves each of them locking the file, which takes longer than finding a row in it.
        """
        with self.mutex:
            try:
                return self._in_read_transaction().execute(statement, parameters).fetchone()
            except SQLITE_ERRORS as error:
                raise self.failed(error) from error

    def peek_all(self, statement: str, parameters: Sequence[object] | Mapping[str, object]) -> list[Any]:
        """Return what :meth:`rows` does, in quick succession as :meth:`peek`."""
        with self.mutex:
            try:
                return self._in_read_transaction().execute(statement, parameters).fetchall()
            except SQLITE_ERRORS as error:
                raise self.failed(error) from error

    @contextmanager
    def cursor(self, statement: str, parameters: Sequence[object]) -> Iterator[Callable[[int], list[Any]]]:
        """Run a query whose rows are fetched in portions, by a function that takes the number of rows.

        Fetching continues if the file is opened again meanwhile.

        Raises:
            RuntimeError: it was opened again after a file system failure, so the query must be run again for the rest.
        """
        with self._reading():
            cursor = self.connection.execute(statement, parameters)
            self._cursors.add(cursor)
        try:
            yield lambda count: self._fetched(cursor, count)
        finally:
            self._end(cursor)

    def _fetched(self, cursor: sqlite3.Cursor, count: int) -> list[Any]:
        with self.mutex:
            self._require_open()
            if cursor not in self._cursors:
                raise RuntimeError(
                    f"{self.path} failed and was reopened while an iteration over it was under way: iterate again"
                )
            try:
                return cursor.fetchmany(count)
            except SQLITE_ERRORS as error:
                is_current = cursor.connection is self._connection
                raise (self.failed if is_current else self.explain)(error) from error

    def _end(self, cursor: sqlite3.Cursor) -> None:
        """Close a cursor: one that stays open keeps the log from starting over. Any thread may do so at any time."""
        if cursor in self._cursors:  # Others were closed, or belong to a parent.
            self._cursors.discard(cursor)
            with suppress(sqlite3.Error):
                cursor.close()
            if cursor.connection is not self._connection:
                self._close_unless_read(cursor.connection)

    def _close_unless_read(self, connection: sqlite3.Connection) -> None:
        if all(cursor.connection is not connection for cursor in frozenset(self._cursors)):
            connection.close()

    @contextmanager
    def transaction(self, *, is_lazy: bool = False) -> Iterator[sqlite3.Connection]:
        """Run statements in one transaction: all of them take effect, or none.

        Args:
            is_lazy: do not wait for the disk: the next transaction that does so makes this one durable too.

        Raises:
            StoreFailedError: the file system failed; if it did so while committing, the outcome is open.
            CheckpointError: nothing took effect, and the message says why.
        """
        connection, mine = self.connection, object()
        self._running = mine
        try:
            if is_lazy:
                connection.execute("PRAGMA synchronous = normal")
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
            self._require_log()
            if is_lazy:
                connection.execute(f"PRAGMA synchronous = {self._durability}")
        except SQLITE_ERRORS as error:
            explained = self.failed(error)
            self._abandon(connection)
            raise explained from error
        except BaseException:
            if self._running is mine:  # One that was abandoned may be collected at any time, even during another.
                self._abandon(connection)
            raise

    def end_transaction(self) -> None:
        """Roll back what an interruption has left open, so that what is read from now on is what is committed.

        Ctrl-C may come before the ``with`` statement of a transaction can call its exit.

        Raises:
            CheckpointError: the session is closed, or rolling back failed, and it takes no writes then.
        """
        with self.mutex:
            self._running = None
            self._abandon(self.connection)

    def copy_log(self) -> None:
        """Copy the write-ahead log into the file if it has grown long: after a commit, and outside its cost.

        When all is copied and nobody reads, SQLite starts the log over and cuts its file to ``LOG_BYTES``, so a longer
        file is one that has grown since. While somebody keeps the log from starting over, copying is tried again only
        after as much growth: each attempt would cost two syncs and gain little.
        """
        if self.in_memory:
            return
        try:
            size = os.stat(self._log).st_size
        except FileNotFoundError:
            return
        if size < self._log_copied:
            self._log_copied = 0
        if size - self._log_copied > LOG_BYTES:
            self._log_copied = size
            try:
                self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            except sqlite3.Error as error:
                # Refused while an iteration is under way: the log waits. A failure of the file shows at the next write.
                self.failed(error)

    def unused(self) -> float:
        """Return what fraction of the file is unused, from 0 to 1."""
        pages = self.row("PRAGMA page_count")[0]
        return float(self.row("PRAGMA freelist_count")[0] / max(1, pages))

    def shrink(self) -> None:
        """Return unused space to the file system.

        While an iteration over the store is under way, the file keeps its size, and the next call returns the space.
        While another process reads an older snapshot, the file keeps its size until the log can be copied.

        Raises:
            CheckpointError: the disk has no room for a second copy.

        Time: O(size of the file). Dirties: the whole file, but nothing in it changes.
        """
        with self.mutex:
            try:
                self.connection.execute("VACUUM")
                self.connection.execute("PRAGMA busy_timeout = 0")
                self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                self.connection.execute(f"PRAGMA busy_timeout = {1000 * _BUSY_SECONDS}")
            except SQLITE_ERRORS as error:
                if "in progress" not in str(error):  # SQLite rewrites no file while a statement reads it.
                    raise self.failed(error) from error

    def require_writable(self) -> None:
        """Raise an error if nothing may be written. Any thread may call it: it leaves the transactions of others alone.

        Raises:
            CheckpointError: the session is closed or read-only.
            StoreFailedError: it failed, and was not opened again.
        """
        if self._connection is None:
            with self.mutex:  # Another thread may be opening it again.
                self._require_open()
        self.require_settled()
        self._require_open()
        if self.read_only:
            raise CheckpointError(f"{self.path} was opened with read_only=True: open it for writing")

    def require_same_file(self) -> None:
        """Raise an error if the file was removed, moved or replaced: nobody would find what is written now.

        Raises:
            CheckpointError: it was.
            StoreFailedError: its log was.
        """
        self._require_identity()
        self._require_log()

    def _require_identity(self) -> None:
        if self._identity is not None and self._identity_now() != self._identity:
            raise CheckpointError(
                f"{self.path} was removed or replaced while the store was open, and nothing was written: put the file"
                " back, or write what is open into another one with fork(), then open that"
            )

    def _require_log(self) -> None:
        """Raise an error if the log was removed: what is committed into it from now on ends with the process.

        Another SQLite does so when it closes the file and the lock of this one is gone: that of Unix goes when any part
        of the process closes the file, even after reading it. All that was committed is copied into the file then.
        """
        found = self._identity_of_log()
        if self._log_identity is None:
            self._log_identity = found
        if found == self._log_identity:
            return
        self._is_log_lost = True
        self._failure = self._failure or StoreFailedError("its write-ahead log is not the one that was open")
        cause = (
            "somebody has removed it, or this program has opened the store by other means than a store, with open() for"
            " example, which ends the locks of the process"
        )
        raise self._log_lost(cause, is_copied=self._copy_all())

    def _log_lost(self, cause: str, *, is_copied: bool) -> StoreFailedError:
        held = "what was committed was copied into the file" if is_copied else "a reader holds an older checkpoint"
        return StoreFailedError(
            f"{self._log} was removed or replaced while the store was open ({cause}); {held}: close every reader of the"
            " store, in other processes too, and before the store itself; then call reopen(), and save again. fork()"
            " writes a copy of what is there now"
        )

    def _copy_all(self) -> bool:
        """Copy the log into the file, and return whether all is there: readers of older snapshots hold it back."""
        with suppress(*SQLITE_ERRORS):
            busy, frames, copied = self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            return not busy and frames == copied
        return False

    def _warn_of_lost_log(self) -> None:
        """Warn if to close the connection loses what a log that is gone holds."""
        if self._is_log_lost and not self._copy_all():
            warnings.warn(
                f"{self._log} was removed, and a reader holds an older checkpoint: closing the store before every"
                " reader is closed loses what was committed since, or damages the file",
                RuntimeWarning,
                stacklevel=5,
            )

    def _leave_lost_log(self) -> None:
        """Close the connection to a log that is gone, once all of it is in the file and nobody else reads from it.

        A reader has the index of that log in memory, which a new connection would take for that of the new one.
        """
        if self._connection is not None and not self._copy_all():
            raise self._log_lost("it holds what is nowhere else", is_copied=False)
        if inherited.is_open_elsewhere(self.path, self._connection):
            raise self._log_lost("this process reads from it", is_copied=True)

    def require_settled(self) -> None:
        """Raise an error if it is uncertain what the file holds.

        Raises:
            StoreFailedError: the file system failed, and the file was not opened again.
        """
        if isinstance(self._failure, StoreFailedError):
            raise StoreFailedError(
                f"{self.path} takes no writes until it is opened again ({self._failure}): call reopen()"
            ) from self._failure
        if self._failure is not None:
            raise StoreFailedError(
                f"{self.path} failed ({self._failure}) and takes no writes until it is opened again: see to its"
                f" disk{REOPEN}"
            ) from self._failure

    def distrust(self, error: Exception) -> None:
        """Take no writes before the file is opened again, because what it holds could not be read."""
        self._failure = self._failure or error

    def failed(self, error: Exception) -> CheckpointError:
        """Note an error, refuse writes from now on if the file itself failed, and return what to raise."""
        if _code(error) in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            self._failure = self._failure or error
        return self.explain(error)

    def explain(self, error: Exception) -> CheckpointError:
        """Return an SQLite error as one of ours, with advice on what to do."""
        kind, advice = _ADVICE.get(_code(error), (CheckpointError, "the store could not do it"))
        if _code(error) == sqlite3.SQLITE_ERROR and (said := self._schema_damage(error)):
            kind, advice = CorruptStoreError, f"the file is damaged: {said}"
        elif "decode" in str(error):
            kind, advice = _ADVICE[sqlite3.SQLITE_CORRUPT]
        if kind is StoreFailedError and not self.in_memory and lacks_room(error, Path(self.path).parent):
            advice = f"no space is left: free some{REOPEN}"
        elif getattr(error, "sqlite_errorcode", 0) in _LACK_OF_MEMORY:
            advice = f"the file system failed, or memory ran out: see to both{REOPEN}"
        return kind(f"{self.path}: {advice} (SQLite says: {error})")

    def _schema_damage(self, error: Exception) -> str:
        """Return what is to be done about an error that comes from a damaged schema, "" for any other."""
        if self._connection is not None:
            with suppress(*SQLITE_ERRORS):
                for said in schema.find_unmendable(self._connection.execute):
                    return said
        absent, _, name = str(error).rpartition(": ")
        if not absent.endswith(("no such table", "no such column")):
            return ""
        is_lost = absent.endswith("table") and schema.is_table(name.removeprefix("main."))
        # A repair creates a view again, but only in a store that can be opened.
        return RESTORE if is_lost or self._connection is None else REPAIR

    def _in_read_transaction(self) -> sqlite3.Connection:
        """Return the connection, inside a read transaction if reads come in quick succession.

        The transaction ends with the next use for anything else, or with the first read after a moment: what others do
        to the file must be seen. An idle process may keep its last one open.
        """
        if self._connection is None or not self._may_hold:
            return self.connection
        connection, now = self._connection, monotonic()
        if now < self._held_until:
            return connection
        if self._held_until:
            self._let_go(connection)
        if now >= self._peeked_until:
            self._peeked_until = now + _HOLD_SECONDS
        elif not connection.in_transaction:
            self._held_until = now + _HOLD_SECONDS
            connection.execute("BEGIN")
        return connection

    def _let_go(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("COMMIT")
        except SQLITE_ERRORS as error:
            raise self.failed(error) from error
        self._held_until = 0.0

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Do what the row methods spell out themselves, because for a row or two this would take a fifth longer."""
        with self.mutex:
            try:
                yield
            except SQLITE_ERRORS as error:
                raise self.failed(error) from error

    def _identity_now(self) -> inherited.Identity | None:
        try:
            return None if self.in_memory else inherited.file_identity(self.path)
        except OSError:
            return None

    def _identity_of_log(self) -> inherited.Identity | None:
        try:
            return None if self.in_memory or self.read_only else inherited.file_identity(self._log)
        except OSError:
            return None

    def _connect(self) -> sqlite3.Connection:
        how = "mode=rwc" if not self.read_only else "immutable=1" if self._lies_still() else "mode=ro"
        target = self.path if self.in_memory else f"{Path(self.path).absolute().as_uri()}?{how}"
        inherited.require_own(self.path)
        connection = sqlite3.connect(
            target, uri=True, isolation_level=None, check_same_thread=False, timeout=_BUSY_SECONDS, factory=self.factory
        )
        inherited.note_opened(connection, self.path)
        return connection

    def _lies_still(self) -> bool:
        """Return whether the file has no log, and is in a folder where SQLite cannot create the index of one."""
        index = Path(f"{Path(self.path).resolve()}-shm")
        has_log = index.exists() or (self._log.exists() and self._log.stat().st_size > 0)
        return not has_log and not os.access(self._log.parent, os.W_OK)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if self.read_only:
            # The first read inside a transaction fixes what all later ones see.
            connection.execute("BEGIN")
        is_empty = recognise(self.path, connection)
        connection.execute(f"PRAGMA cache_size = {-_CACHE_KIB}")
        if self.read_only:
            if is_empty:
                raise CheckpointError(f"{self.path} is empty: there is nothing to read yet")
            if _version(connection) < schema.FORMAT_VERSION:
                schema.prepare_older(connection)
            return
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal" and not self.in_memory:
            raise CheckpointError(f"{self.path} is on a file system without shared memory: put it on a local disk")
        connection.execute(f"PRAGMA synchronous = {self._durability}")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        if is_empty:
            schema.create(connection)
        elif _version(connection) < schema.FORMAT_VERSION:
            schema.upgrade(connection)

    def _abandon(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.execute(f"PRAGMA synchronous = {self._durability}")
        except sqlite3.Error as error:
            # Reads must not see what was not committed; closing the connection rolls it back for certain.
            self._failure = self._failure or error
            if not self.in_memory:
                self._disconnect()

    def _leave_to_cursors(self) -> None:
        """Leave the connection to the cursors that read from it: the last of them closes it."""
        connection = self._connection
        if connection is None:
            return
        try:
            if self._failure is None and not self.read_only and connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._failure = error
        if self._failure is not None:
            self._disconnect()
            return
        self._connection, self._held_until = None, 0.0
        self._close_unless_read(connection)

    def _disconnect(self) -> None:
        """Close the connection, and those that were left to cursors."""
        self._held_until = 0.0
        connections = {self._connection} if self._connection is not None else set()
        self._connection = None
        while self._cursors:
            cursor = self._cursors.pop()
            connections.add(cursor.connection)
            with suppress(sqlite3.Error):
                cursor.close()
        for connection in connections:
            connection.close()


def recognise(path: str, connection: sqlite3.Connection) -> bool:
    """Return whether a file is empty and may become a store; return False if it is one.

    Raises:
        CheckpointError: it is another database, or a store of a newer format.
    """
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = _version(connection)
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


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


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
    if 0 < path.stat().st_size < _SMALLEST:
        # SQLite would take some of these for new databases and overwrite them.
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
        if _code(error) == sqlite3.SQLITE_NOTADB:
            raise CheckpointError(f"{path} is no checkpoint store (SQLite says: {error}): name another file") from error
    finally:
        connection.close()


def lacks_room(error: Exception, folder: Path) -> bool:
    """Return whether an error came from a full disk: SQLite reports a disk error if its index cannot grow.

    Args:
        error: what was raised when writing a file.
        folder: the folder of that file.
    """
    if _code(error) == sqlite3.SQLITE_FULL or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return True
    from shutil import disk_usage  # on demand: it imports archive modules, and few ever meet a full disk

    with suppress(OSError):
        return _code(error) == sqlite3.SQLITE_IOERR and disk_usage(folder).free < _ROOM_BYTES
    return False


def _code(error: Exception) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


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
