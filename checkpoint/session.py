"""The single connection of a store: how its file is opened and recognised, how it is written, and how it failed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from time import monotonic
from typing import Any, Literal

from checkpoint import inherited, schema
from checkpoint.errors import REPAIR, RESTORE, CheckpointError, InheritedStoreError, StoreFailedError
from checkpoint.failures import OPEN_AGAIN, REOPEN, SQLITE_ERRORS, code_of, explained, is_of_the_file, not_given_back
from checkpoint.recognised import format_of, recognise
from checkpoint.seals import fetch_as_stored
from checkpoint.write_ahead_log import LOG_BYTES, WriteAheadLog

Durability = Literal["full", "normal"]

IN_MEMORY = ":memory:"
"""The path of a store that has no file."""

_CACHE_KIB = 64 * 1024
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
        self._is_unread = False
        """Whether the file was opened again, and what memory holds may be from before."""
        self._connection: sqlite3.Connection | None = None
        self._cursors: set[sqlite3.Cursor] = set()
        self._log = WriteAheadLog(path, is_watched=not (read_only or self.in_memory))
        self._identity: inherited.Identity | None = None
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
                raise self._unopened(self.explain(error)) from error
            except BaseException:
                self._disconnect()
                raise
            self._failure = None
            self._identity = self._identity_now()
            self._log.note_opened()

    def _unopened(self, error: CheckpointError) -> CheckpointError:
        """Return the error for a file that cannot be opened; one that never was is to be opened once more."""
        return error if self._identity else type(error)(str(error).replace(REOPEN, OPEN_AGAIN))

    def reopen(self) -> None:
        """Open the file again; its contents decide what was in doubt. It takes no writes before :meth:`trust`.

        Raises:
            CheckpointError: it cannot be opened, or is not the one that was open.
            StoreFailedError: its log is gone, and somebody still reads from it.
        """
        with self.mutex:
            if not self.in_memory:
                if not self.read_only:
                    self._require_identity()
                if self._log.is_lost:
                    self._log.require_unneeded(self.connection if self.is_open else None)
                self._is_unread = True
                self.open()
            else:
                self._is_unread = True
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
            self._failure = None

    def trust(self) -> None:
        """Take writes again: what memory holds has been read from the file that was opened again."""
        self._is_unread = False

    def close(self) -> None:
        """Copy the log into the file if nobody else is reading, and disconnect. Calling it twice is allowed."""
        with self.mutex:
            if self._connection is None:
                return
            self._held_until = 0.0
            self._log.warn_if_lost(self._connection)
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
            refusal = self.failed(error)
            self._abandon(connection)
            raise refusal from error
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

    def copy_log(self, *, is_first: bool = False) -> None:
        """Copy the write-ahead log into the file if it has grown long: after a commit, and outside its cost.

        Args:
            is_first: whether the commit was that of the first checkpoint, which is copied at once.
        """
        if self.in_memory:
            return
        try:
            self._log.copy_if_due(self.connection, is_first=is_first)
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
            CheckpointError: the disk has no room for a second copy, and for a log of it; it says how much it takes.

        Time: O(size of the file). Dirties: the whole file, but nothing in it changes.
        """
        with self.mutex:
            room = self._bytes_in_use()
            try:
                self.connection.execute("VACUUM")
                self._cut_log()
            except SQLITE_ERRORS as error:
                if "in progress" not in str(error):  # SQLite rewrites no file while a statement reads it.
                    raise self._not_shrunk(error, room) from error

    def _bytes_in_use(self) -> int:
        pages = self.row("PRAGMA page_count")[0] - self.row("PRAGMA freelist_count")[0]
        return int(pages * self.row("PRAGMA page_size")[0])

    def _cut_log(self) -> None:
        """Copy the log into the file and leave an empty one, unless somebody reads from it."""
        self.connection.execute("PRAGMA busy_timeout = 0")
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self.connection.execute(f"PRAGMA busy_timeout = {1000 * _BUSY_SECONDS}")

    def _not_shrunk(self, error: Exception, room: int) -> CheckpointError:
        """Note an error of rewriting the file, and return what to raise."""
        failed = self.failed(error)
        if code_of(error) != sqlite3.SQLITE_FULL:
            return type(failed)(f"{failed}; what was merged or dropped before stays so")
        with suppress(sqlite3.Error):  # The log is as long as the disk allowed: others need that room.
            self._cut_log()
        return not_given_back(self.path, error, room)

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
        """Raise an error if the log was removed: what is committed into it from now on ends with the process."""
        if not self._log.is_same():
            self._failure = self._failure or StoreFailedError("its write-ahead log is not the one that was open")
            raise self._log.removed(self.connection)

    def require_settled(self) -> None:
        """Raise an error if it is uncertain what the file holds.

        Raises:
            StoreFailedError: the file system failed, and the file was not opened again.
        """
        if self._is_unread or isinstance(self._failure, StoreFailedError):
            why = self._failure or "opening it again did not complete"
            raise StoreFailedError(
                f"{self.path} takes no writes until it is opened again ({why}): call reopen()"
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
        if is_of_the_file(error):
            self._failure = self._failure or error
        return self.explain(error)

    def explain(self, error: Exception) -> CheckpointError:
        """Return an SQLite error as one of ours, with advice on what to do."""
        is_of_schema = code_of(error) == sqlite3.SQLITE_ERROR
        return explained(self.path, error, self._schema_damage(error) if is_of_schema else "")

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
        return not self._log.exists() and not os.access(self._log.path.parent, os.W_OK)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if self.read_only:
            # The first read inside a transaction fixes what all later ones see.
            connection.execute("BEGIN")
        is_empty = recognise(self.path, connection)
        connection.execute(f"PRAGMA cache_size = {-_CACHE_KIB}")
        if self.read_only:
            if is_empty:
                raise CheckpointError(f"{self.path} is empty: there is nothing to read yet")
            if format_of(connection) < schema.FORMAT_VERSION:
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
        elif format_of(connection) < schema.FORMAT_VERSION:
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
