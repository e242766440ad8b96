"""The checkpoint store: one SQLite file, in which every checkpoint is a run of rows under its own number."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from typing import Any, Literal

import sqlite_utils

from checkpoint import merge, schema
from checkpoint.errors import CheckpointError, CorruptStoreError, UnknownCheckpointError
from checkpoint.lock import WriterLock
from checkpoint.reader import Reader
from checkpoint.run import CheckpointKind, Run, digest_of
from checkpoint.writer import CheckpointWriter, Receipt

Durability = Literal["full", "normal"]


@dataclass(frozen=True)
class CheckpointRecord:
    """What the store knows of one checkpoint."""

    number: int
    epoch: int
    kind: CheckpointKind
    parent: int | None
    slots: int
    bytes: int
    digest: str
    time: str
    format: int
    run_slots: int | None
    run_digest: str | None


class CheckpointStore:
    """A file of checkpoints, with one writer and any number of readers in other processes.

    Args:
        path: the file, created where it does not exist; ``":memory:"`` for a store that lives in memory.
        durability: ``"full"`` loses nothing that was acknowledged; ``"normal"`` may lose the last checkpoints when the
            power fails, and stays consistent.
        read_only: open for reading only, also while another process writes.
        history: how many of the newest checkpoints keep rows of their own; older ones are merged, a few at a time.

    Raises:
        CheckpointError: the path is not usable, is no store, or was written by a newer version.
        StoreLockedError: somebody else writes to it.

    >>> store = CheckpointStore(":memory:")
    >>> store.checkpoints()
    []
    """

    def __init__(
        self,
        path: str | Path,
        *,
        durability: Durability = "full",
        read_only: bool = False,
        history: int = merge.DEFAULT_HISTORY,
    ) -> None:
        if durability not in ("full", "normal"):
            raise ValueError(f"durability is {durability!r}: expected 'full' or 'normal'")
        if history < 1:
            raise ValueError(f"history is {history}: keep at least 1 checkpoint")
        self.path = str(path)
        self.read_only = read_only
        self._durability: Durability = durability
        self._history = history
        self._mutex = RLock()
        self._failure: BaseException | None = None
        self._last = (0, 0)
        self._next_object_id = 0
        self._live: tuple[int, ...] = ()
        self._connection: sqlite3.Connection | None = None
        self._lock = None if self._in_memory or read_only else _lock(Path(path))
        try:
            self._connection = self._connect()
            self._prepare(durability)
        except BaseException:
            self.close()
            raise

    @property
    def database(self) -> sqlite_utils.Database:
        """The file as a ``sqlite_utils.Database``, to look into."""
        return sqlite_utils.Database(self._open(), execute_plugins=False)

    def checkpoints(self) -> list[CheckpointRecord]:
        """Return what is known of each checkpoint, oldest first."""
        with self._mutex:
            rows = list(self.database["checkpoint"].rows_where(order_by="number"))
        return [CheckpointRecord(**{**row, "kind": CheckpointKind(row["kind"])}) for row in rows]

    def writer(self, kind: CheckpointKind = CheckpointKind.DIFFERENTIAL, epoch: int | None = None) -> CheckpointWriter:
        """Return a writer for one save.

        Args:
            kind: a complete image, or what changed.
            epoch: the epoch that the checkpoint seals; one more than the last by default.
        """
        self._writable()
        return CheckpointWriter(self, CheckpointKind(kind), epoch)

    def reader(self, number: int | None = None, *, epoch: int | None = None) -> Reader:
        """Return a view of the state as of a checkpoint, the newest by default.

        Raises:
            UnknownCheckpointError: there is no such checkpoint, or its rows were merged into a newer one.
        """
        with self._mutex:
            if number is None and epoch is None:
                return Reader(self._open(), self._mutex, self._runs())
            record = self._record(number, epoch)
            runs = self._runs(record.number)
            if record.number not in runs:
                raise UnknownCheckpointError(
                    f"{self.path} has no rows of checkpoint {record.number} (epoch {record.epoch}) any more: they were"
                    f" merged; the last {self._history} checkpoints can be read"
                )
            return Reader(self._open(), self._mutex, runs)

    def append(self, run: Run, epoch: int | None = None) -> Receipt:
        """Make a run durable as the next checkpoint, all or none.

        Args:
            run: the rows; a run of kind full is completed by what it does not mention of the state before.
            epoch: the epoch it seals; must be greater than the last one.

        Raises:
            CheckpointError: the epoch goes backwards, or the store takes no writes.

        Time: O(rows · log rows); for a full run O(state).
        Dirties: one row of ``checkpoint`` and the rows of the run.
        """
        started = time.perf_counter()
        with self._mutex:
            self._writable()
            number, epoch, parent = self._next(epoch)
            with self._transaction() as connection:
                runs = self._runs()
                _insert(connection, number, run)
                if run.kind is CheckpointKind.FULL:
                    _complete(connection, self._mutex, number, runs)
                slots, size, digest = _measure(connection, number, run)
                connection.execute(
                    "INSERT INTO checkpoint VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        number,
                        epoch,
                        run.kind,
                        parent,
                        slots,
                        size,
                        digest,
                        _now(),
                        schema.FORMAT_VERSION,
                        slots,
                        digest,
                    ),
                )
                self._reserve_ids(connection, run)
            self._live = (number,) if run.kind is CheckpointKind.FULL else (*runs, number)
            self._last = (number, epoch)
            self._tidy()
        return Receipt(number, epoch, run.kind, slots, size, time.perf_counter() - started)

    def apply(self, run: Run, epoch: int | None = None) -> Receipt:
        """Fold a run that was written elsewhere in as the next checkpoint; the same as :meth:`append`."""
        return self.append(run, epoch)

    def holds(self, number: int, run: Run) -> bool:
        """Tell whether checkpoint ``number`` is durable and holds just the rows of ``run``.

        It settles the question after a commit that failed in a way that leaves its outcome open.
        """
        with self._mutex:
            found = self._open().execute("SELECT digest FROM checkpoint WHERE number = ?", (number,)).fetchone()
            if found is None:
                return False
            self._refresh()
            return run.kind is CheckpointKind.FULL or found[0] == run.digest()

    def next_object_id(self) -> int:
        """Return an object id greater than any that was ever stored, also of objects that exist no more."""
        return int(self.setting("next_object_id") or 1)

    def next_number(self) -> int:
        """Return the number that the next checkpoint will have."""
        return self._last[0] + 1

    def verify(self) -> int:
        """Check the digest of every run that still has its own rows, and the file's own structure.

        Returns:
            the number of runs checked.

        Raises:
            CorruptStoreError: the first damaged run, by number and epoch.
        """
        with self._mutex:
            connection = self._open()
            damage = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if damage != "ok":
                raise CorruptStoreError(f"{self.path} is damaged: SQLite says {damage}; restore it from a copy")
            checked = 0
            for number, epoch, digest in connection.execute(
                "SELECT number, epoch, run_digest FROM checkpoint WHERE run_digest IS NOT NULL ORDER BY number"
            ).fetchall():
                if digest_of(*merge.rows_of(connection, number)) != digest:
                    raise CorruptStoreError(
                        f"{self.path}: the rows of checkpoint {number} (epoch {epoch}) do not have the digest {digest}"
                        " that was recorded with them: restore the file from a copy"
                    )
                checked += 1
            return checked

    def truncate_after(self, number: int) -> None:
        """Drop every checkpoint after ``number``; 0 drops all.

        Raises:
            UnknownCheckpointError: the checkpoint is not stored or its rows were merged.

        Time: O(rows dropped).
        Dirties: the rows of the checkpoints dropped.
        """
        with self._mutex:
            self._writable()
            if number:
                self.reader(number)
            elif any(record.run_slots is None for record in self.checkpoints()):
                raise UnknownCheckpointError(f"{self.path}: the first checkpoints were merged and cannot be dropped")
            with self._transaction() as connection:
                for table, column in _NUMBERED:
                    connection.execute(f"DELETE FROM {table} WHERE {column} > ?", (number,))
            self._refresh()

    def setting(self, key: str) -> Any:
        """Return a setting kept in the store, ``None`` where it is not set."""
        with self._mutex:
            row = self._open().execute("SELECT value FROM setting WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def close(self) -> None:
        """Close the file and let others write; nothing is saved. May be done twice."""
        with self._mutex:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            if self._lock is not None:
                self._lock.release()

    def __enter__(self) -> CheckpointStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"CheckpointStore({self.path!r})"

    def reopen(self) -> None:
        """Open the file again after a failure of the file system, so that it takes writes again.

        A space on the store keeps its edits: its next save covers them.
        """
        with self._mutex:
            if self._connection is not None:
                self._connection.close()
            self._connection, self._failure = self._connect(), None
            self._prepare(self._durability)

    @property
    def _in_memory(self) -> bool:
        return self.path == ":memory:"

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise CheckpointError(f"{self.path} is closed: open the store again")
        return self._connection

    def _writable(self) -> None:
        self._open()
        if self.read_only:
            raise CheckpointError(f"{self.path} was opened with read_only=True: open it for writing")
        if self._failure is not None:
            raise CheckpointError(
                f"{self.path} failed before ({self._failure}) and takes no writes until it is opened again"
            )

    def _connect(self) -> sqlite3.Connection:
        target = self.path if self._in_memory else Path(self.path).absolute().as_uri()
        mode = "" if self._in_memory else "?mode=ro" if self.read_only else "?mode=rwc"
        try:
            return sqlite3.connect(target + mode, uri=True, isolation_level=None, check_same_thread=False, timeout=5)
        except sqlite3.Error as error:
            raise _unusable(self.path, error) from error

    def _prepare(self, durability: Durability) -> None:
        connection = self._open()
        try:
            self._recognise(connection)
            if not self.read_only:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(f"PRAGMA synchronous = {durability}")
            connection.execute(f"PRAGMA cache_size = {-64 * 1024}")
            if not self._is_created(connection):
                if self.read_only:
                    raise CheckpointError(f"{self.path} is empty: there is nothing to read yet")
                schema.create(connection)
            self._refresh()
        except sqlite3.DatabaseError as error:
            raise _unusable(self.path, error) from error

    def _recognise(self, connection: sqlite3.Connection) -> None:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = self.database.table_names()
        if application != schema.APPLICATION_ID and (application or tables):
            raise CheckpointError(
                f"{self.path} is an SQLite database but no checkpoint store (it has the tables {tables}):"
                " name another file"
            )
        if version > schema.FORMAT_VERSION:
            raise CheckpointError(
                f"{self.path} has format {version}, and this version reads formats up to {schema.FORMAT_VERSION}:"
                " install a newer objectspace"
            )

    def _is_created(self, connection: sqlite3.Connection) -> bool:
        return bool(connection.execute("PRAGMA application_id").fetchone()[0])

    def _refresh(self) -> None:
        connection = self._open()
        row = connection.execute("SELECT number, epoch FROM checkpoint ORDER BY number DESC LIMIT 1").fetchone()
        self._last = row or (0, 0)
        self._live = merge.live_runs(connection, self._last[0])

    def _runs(self, number: int | None = None) -> tuple[int, ...]:
        if self.read_only:
            self._refresh()
        return self._live if number is None else merge.live_runs(self._open(), number)

    def _record(self, number: int | None, epoch: int | None) -> CheckpointRecord:
        records = self.checkpoints()
        for record in records:
            if record.number == number or (number is None and record.epoch == epoch):
                return record
        wanted = f"epoch {epoch}" if number is None else f"checkpoint {number}"
        span = f"it has epochs {records[0].epoch} to {records[-1].epoch}" if records else "it has no checkpoint yet"
        raise UnknownCheckpointError(f"{self.path} has no {wanted}: {span}")

    def _next(self, epoch: int | None) -> tuple[int, int, int | None]:
        number, last = self._last
        if epoch is None:
            epoch = last + 1
        if not isinstance(epoch, int) or isinstance(epoch, bool):
            raise TypeError(f"epoch is {epoch!r}: expected an int")
        if number and epoch <= last:
            raise CheckpointError(f"epoch {epoch} is not after epoch {last}, the last one in {self.path}")
        return number + 1, epoch, number or None

    def _reserve_ids(self, connection: sqlite3.Connection, run: Run) -> None:
        """Keep the ids in a run from being used again after their objects are gone."""
        tables: tuple[list[Any], ...] = (run.index, run.metadata, run.items)
        highest = max((rows[-1][0] for rows in tables if rows), default=0)
        if highest >= self._next_object_id:
            self._next_object_id = highest + 1
            connection.execute("INSERT OR REPLACE INTO setting VALUES ('next_object_id', ?)", (highest + 1,))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Run statements in one transaction; a failure of the file itself closes the store for writing."""
        connection = self._open()
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except BaseException as error:
            if isinstance(error, sqlite3.Error) and _is_fatal(error):
                self._failure = error
            self._next_object_id = 0
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _tidy(self) -> None:
        """Merge old runs where there are many, and drop those that a full checkpoint has made useless."""
        connection = self._open()
        group = merge.due(connection, self._live, self._history)
        if group:
            with self._transaction():
                merge.merge(connection, self._mutex, group, is_base=group[0] == self._live[0])
            self._live = tuple(run for run in self._live if run not in group[:-1])
        if self._live[0] == self._last[0] - self._history + 1:
            with self._transaction():
                merge.drop_before(connection, self._live[0])


_NUMBERED = (
    ("checkpoint", "number"),
    ("state_index", "checkpoint"),
    ("state_metadata", "checkpoint"),
    ("state_item", "checkpoint"),
)


def _lock(path: Path) -> WriterLock:
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder: name a file in it, for example {path / 'state.db'}")
    if not path.parent.is_dir():
        raise CheckpointError(f"{path} cannot be created: the folder {path.parent} does not exist; create it first")
    return WriterLock(path)


def _is_fatal(error: sqlite3.Error) -> bool:
    """Tell whether the file itself failed, so that nothing can be known of what it holds until it is opened again."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _unusable(path: str, error: sqlite3.Error) -> CheckpointError:
    if "not a database" in str(error):
        return CheckpointError(f"{path} is no checkpoint store (SQLite says: {error}): name another file")
    if "malformed" in str(error):
        return CorruptStoreError(f"{path} is damaged (SQLite says: {error}): restore it from a copy")
    return CheckpointError(f"{path} cannot be opened (SQLite says: {error}): check that it exists and its permissions")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _insert(connection: sqlite3.Connection, number: int, run: Run) -> None:
    run.sort()
    connection.executemany(f"INSERT INTO state_index VALUES ({number}, ?, ?, ?, ?)", run.index)
    connection.executemany(f"INSERT INTO state_metadata VALUES ({number}, ?, ?, ?)", run.metadata)
    connection.executemany(f"INSERT INTO state_item VALUES ({number}, ?, ?, ?, ?)", run.items)


def _complete(connection: sqlite3.Connection, mutex: RLock, number: int, runs: tuple[int, ...]) -> None:
    """Turn the rows under ``number`` into a complete image by adding what they do not mention of the older runs."""
    merge.absorb(connection, runs, number)
    merge.drop_deletions(connection, number)
    merge.drop_unreachable(connection, mutex, number)


def _measure(connection: sqlite3.Connection, number: int, run: Run) -> tuple[int, int, str]:
    """Return the slots, bytes and digest of what was written; for a full run of all that lies under its number."""
    if run.kind is CheckpointKind.FULL:
        run = Run(run.kind, *(list(rows) for rows in merge.rows_of(connection, number)))
    return run.slots, run.bytes, digest_of(run.index, run.metadata, run.items)
