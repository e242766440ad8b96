"""The checkpoint store: one SQLite file in which every checkpoint is a run of rows under its own number."""

from __future__ import annotations

import logging
import sqlite3
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from checkpoint import catalogue, filters, finding, retention, run_rows, spans
from checkpoint.applying import run_applying
from checkpoint.diff import Change, differences, with_values
from checkpoint.epochs import epoch_after, require_epoch_type
from checkpoint.errors import (
    REPAIR,
    CheckpointError,
    CorruptStoreError,
    RunRefusedError,
    UnknownCheckpointError,
    not_copied,
)
from checkpoint.fork import fork
from checkpoint.lock import WriterLock
from checkpoint.pages import ITEMS, TABLES
from checkpoint.progress import Progress, silent
from checkpoint.reader import Reader
from checkpoint.readers import Readers
from checkpoint.recognised import absolute, require_sqlite, require_usable
from checkpoint.record import CheckpointRecord, Newest, read_next_object_id, read_records, write_record
from checkpoint.repair import Repair, repair
from checkpoint.run import CheckpointKind, Measure, Page, Run
from checkpoint.session import IN_MEMORY, Durability, Session
from checkpoint.settings import Retention, note_rollback, read_retention, write_retention
from checkpoint.tiers import YOUNG, RunNumber
from checkpoint.upkeep import Upkeep
from checkpoint.verify import verify
from checkpoint.writer import CheckpointWriter, Receipt

if TYPE_CHECKING:
    import sqlite_utils

T = TypeVar("T")

LOG = logging.getLogger("checkpoint")


class CheckpointStore:
    """A file of checkpoints, with one writer and any number of readers in other processes.

    A store opened with ``read_only=True`` sees one snapshot: the complete checkpoints that were there when it was
    opened. It shows newer ones after :meth:`refresh`. Readers never wait for the writer, nor the writer for them. But
    while somebody holds a snapshot, the file's write-ahead log grows. A refreshed reader holds the next one, so whoever
    follows a store for long opens it for each look and closes it again.

    Args:
        path: the file, created if it does not exist; ``":memory:"`` for a store that lives in memory.
        durability: ``"full"`` loses nothing that was acknowledged; ``"normal"`` may lose the last checkpoints in a
            power failure, but stays consistent.
        read_only: open for reading only, even while another process writes.
        history: how many of the newest checkpoints stay readable, at least, while the store is open; by default as many
            as :meth:`configure` has set.

    ``session`` is the connection, for reading what the methods do not cover.

    Raises:
        CheckpointError: the path is not usable, is not a store, or was written by a newer version; or SQLite is older
            than 3.33.
        StoreLockedError: another writer has it open.
        InheritedStoreError: this process was forked from one that had it open.

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
        history: int | None = None,
    ) -> None:
        if isinstance(path, bytes):
            raise TypeError(f"path is {path!r}: expected text or a Path; os.fsdecode() makes text of bytes")
        if durability not in ("full", "normal"):
            raise ValueError(f"durability is {durability!r}: expected 'full' or 'normal'")
        if history is not None:
            Retention(history=history)  # It refuses what is no number of checkpoints.
        require_sqlite()
        self._is_closed = False
        # Absolute, so that it names the same file after the process has changed its folder.
        self.path = str(path) if str(path) == IN_MEMORY else absolute(path)
        self.read_only = read_only
        if self.path != IN_MEMORY:
            require_usable(Path(path), read_only=read_only)
        self.session = Session(self.path, read_only=read_only, durability=durability)
        self._mutex = self.session.mutex
        self._readers = Readers(self.session, lambda: self._runs)
        self._suspected: set[str] = set()
        self._lock = None if read_only or self.session.in_memory else WriterLock(Path(path))
        try:
            self.session.open()
            self._load()
            self._configured = read_retention(self.session)
            self._history = history
        except BaseException:
            self.close()
            raise

    @property
    def database(self) -> sqlite_utils.Database:
        """The file as a ``sqlite_utils.Database``, for inspection."""
        import sqlite_utils  # on demand: it imports pandas if that is installed, which takes a third of a second

        return sqlite_utils.Database(self.session.handed_out(), execute_plugins=False)

    def checkpoints(self) -> list[CheckpointRecord]:
        """Return what is known of each checkpoint, oldest first."""
        return read_records(self.session, "ORDER BY number")

    def writer(self, kind: CheckpointKind = CheckpointKind.DIFFERENTIAL, epoch: int | None = None) -> CheckpointWriter:
        """Return a writer for one save.

        Args:
            kind: whether to save a complete image or only what changed.
            epoch: the epoch that the checkpoint seals; one more than the last by default.

        Raises:
            EpochTypeError: the epoch is not a 64-bit int.
        """
        self.session.require_writable()
        require_epoch_type(epoch)
        return CheckpointWriter(self, CheckpointKind(kind), epoch)

    def reader(self, number: int | None = None, *, epoch: int | None = None) -> Reader:
        """Return a view of the state as of a checkpoint, the newest by default.

        The view stays as it is, whatever happens to the store, for as long as something refers to it: its runs are
        neither dropped nor merged in a way that it would notice. Only a rollback to before its checkpoint ends it.

        Raises:
            UnknownCheckpointError: there is no such checkpoint, or its rows were merged into a newer one.
        """
        with self._mutex:
            self.session.connection  # noqa: B018 - a closed store refuses here, not at the first read
            if number is None and epoch is None:
                self._require_newest()
                return self._readers.of(self._runs.live)
            record = finding.record_of(self.session, number, epoch)
            runs = self._runs.at(record.number) if record.number in self._runs else ()
            if not runs:
                near = (f"checkpoint {one} (epoch {self.epoch_of(one)})" for one in self._runs.nearest(record.number))
                raise UnknownCheckpointError(
                    f"{self.path} no longer has rows of checkpoint {record.number} (epoch {record.epoch}): they were"
                    f" merged; the nearest that can be read: {', '.join(near) or 'none'}"
                )
            return self._readers.of(runs)

    def append(self, run: Run, epoch: int | None = None) -> Receipt:
        """Make a run durable as the next checkpoint, all or nothing.

        Args:
            run: the rows, which are sorted in place; a full run is completed with whatever part of the previous state
                it does not mention.
            epoch: the epoch it seals; must be greater than the last one.

        Raises:
            StoreFailedError: the file system failed: call :meth:`reopen`, then check whether the checkpoint is there.
            CorruptStoreError: a full run would take over rows that are not as they were written; nothing was written.
            RunRefusedError: a row cannot be stored, or occurs twice; nothing was written.
            CheckpointError: the epoch goes backwards, or the store takes no writes; nothing was written.

        Time: O(rows · log rows); for a full run O(state).
        Dirties: one row of ``checkpoint`` and the rows of the run.
        """
        completes = run.kind is CheckpointKind.FULL
        write = partial(self._write_run, run, completes=completes)
        return self._append(run.kind, epoch, write, None if completes else run)

    @contextmanager
    def unchanged_since(self, base: Reader | None) -> Iterator[None]:
        """Keep other threads from committing, provided that ``base`` still reads the newest state.

        Raises:
            CheckpointError: somebody else has committed since; nothing was done.
        """
        with self._mutex:
            if base is not None and (base.is_retired or base.newest != self._newest.number):
                raise CheckpointError(
                    f"{self.path} has moved on since the save: somebody else has committed into it; pick that up with"
                    " the rollback() of the space, and let one space write at a time"
                )
            yield

    def apply(self, run: Run, epoch: int | None = None) -> Receipt:
        """Fold in a run that was written elsewhere, as the next checkpoint.

        Like :meth:`append`, except that a full run is taken as the complete image: what it does not mention is gone.

        Time: O(rows · log rows).
        Dirties: one row of ``checkpoint`` and the rows of the run.
        """
        return self._append(run.kind, epoch, partial(self._write_run, run, completes=False), run)

    def apply_pages(self, kind: CheckpointKind, pages: Iterable[Page], epoch: int | None = None) -> Receipt:
        """Fold in a run that need not fit into memory, as :meth:`apply` does.

        Args:
            kind: what the run holds.
            pages: its rows in order, as :meth:`Reader.image_pages` yields them.
            epoch: the epoch it seals; must be greater than the last one.
        """
        return self._append(CheckpointKind(kind), epoch, partial(run_rows.insert_pages, pages))

    def diff(
        self,
        a: int | Reader | None = None,
        b: int | Reader | None = None,
        *,
        a_epoch: int | None = None,
        b_epoch: int | None = None,
    ) -> Iterator[Change]:
        """Return an iterator over the slot changes that lead from checkpoint ``a`` to checkpoint ``b``.

        Args:
            a: the state before, by number or as a reader (of any store); 0 stands for the empty state.
            b: the state after, which may be the older of the two; the newest by default.
            a_epoch: the state before, by epoch instead of ``a``; if neither is given, the empty state.
            b_epoch: the state after, by epoch instead of ``b``.

        Raises:
            UnknownCheckpointError: there is no such checkpoint, or its rows were merged into a newer one.
            CorruptStoreError: raised by the changes: a large value, which lay apart from its row, is lost.

        Time: O(rows of the runs between the two); if an object was deleted in between, or an owned one changed, also
        O(slots of the objects that own others); O(state) if the runs no longer exist. The changes are streamed.
        """
        before = self._reader_of(0 if a is None and a_epoch is None else a, a_epoch)
        return map(with_values, differences(before, self._reader_of(b, b_epoch)))

    def apply_changes(self, changes: Iterable[Change], epoch: int | None = None) -> Receipt:
        """Apply changes to the newest state as the next checkpoint, all or nothing.

        A space that is open on the store sees them after its ``rollback()``.

        Args:
            changes: what :meth:`diff` or :func:`~checkpoint.invert` yields.
            epoch: the epoch that the checkpoint seals; one more than the last by default.

        Raises:
            CheckpointError: a slot does not hold what a change says it held, or belongs to another object that has the
                same id here; or the changes would add an object whose id another one has, or to a sorted object a key
                that does not compare with its other keys; nothing was written.

        Time: O(changes · live runs · log n); if objects are added, or owned ones change, also O(slots of the objects
        that own others). Memory: the changes.
        Dirties: a row for each change; none for the slots of an object that is deleted.
        """
        with self._mutex:
            self.session.require_writable()
            return self.append(run_applying(changes, self.reader()), epoch)

    def fork(
        self,
        path: str | Path,
        epoch: int | None = None,
        progress: Progress = silent,
        origin: str | None = None,
        finish: Callable[[Path], object] = lambda staged: None,
    ) -> None:
        """Write an independent store file as of an epoch, with the checkpoints before it.

        The file appears whole or not at all, and is durable on return. This store goes on as before; its other threads
        wait.

        Args:
            path: the new file.
            epoch: the newest epoch of the fork; the newest of this store by default.
            progress: called with the number of rows copied so far and the total to copy.
            origin: what the fork records as its origin; the path of this store by default.
            finish: called with the path of the copy before it appears; may open it as a store, and must close it again.

        Raises:
            UnknownCheckpointError: no checkpoint has this epoch, or it was merged.
            CorruptStoreError: rows to be copied are not as they were written.
            CheckpointError: the file exists already, or cannot be written.

        Time: O(rows up to the epoch). The rows are streamed.
        Dirties: the new file.
        """
        with self._mutex:
            fork(self.session, Path(path), self.reader(epoch=epoch).newest, progress, origin, finish)

    def holds(self, number: int, run: Run, *, is_whole: bool = False) -> bool:
        """Return whether checkpoint ``number`` is durable and holds exactly the rows of ``run``.

        It answers the question after a commit that failed in a way that leaves its outcome open. A full run that is not
        whole was completed when it was written, and is known by the digest that it got then.

        Args:
            number: the number of the checkpoint.
            run: the rows.
            is_whole: whether a full run has all rows of its image, so that they are compared too.

        Raises:
            StoreFailedError: the file system failed; the answer is not known before :meth:`reopen`.
        """
        self.session.require_settled()
        found = self.session.row("SELECT kind, digest FROM checkpoint WHERE number = ?", (number,))
        if found is None or found[0] != run.kind:
            return False
        is_completed = run.kind is CheckpointKind.FULL and not is_whole
        return (number, found[1]) == run.attempt if is_completed else bool(found[1] == run.digest())

    def next_object_id(self) -> int:
        """Return an object id greater than any that was ever stored, even by objects that no longer exist."""
        return self._next_object_id

    def epoch_of(self, number: int) -> int:
        """Return the epoch that a checkpoint seals; 0 if there is no such checkpoint."""
        return finding.epoch_of(self.session, number)

    def number_up_to(self, epoch: int) -> int:
        """Return the number of the last checkpoint up to an epoch; 0 if there never was one.

        If the epochs equal the numbers of their checkpoints, they began with 1. For other epochs, once the first
        records are dropped, there is no telling whether an earlier one existed.

        Raises:
            UnknownCheckpointError: its record may be one of those that were dropped.
        """
        return finding.number_up_to(self.session, epoch)

    def next_epoch(self) -> int:
        """Return the epoch that the next checkpoint will have unless one is given."""
        return self._newest.epoch + 1

    def next_number(self) -> int:
        """Return the number that the next checkpoint will have."""
        return self._newest.number + 1

    def verify(self, progress: Progress = silent) -> int:
        """Check everything that is stored: the file, every run, and the newest state.

        It checks the digest of every run; that merged runs equal what the runs they were made of yield, where these are
        kept; that no row lies outside a run; that lengths, heads and tails agree with the slots of every object; and
        the structure of the file itself.

        Args:
            progress: called with the number of rows checked so far and the total to check.

        Returns:
            the number of checkpoints that can be read.

        Raises:
            CorruptStoreError: the first damage found, by number and epoch if it lies in a run.

        Time: O(rows). The rows are streamed.
        """
        with self._mutex:
            return verify(self.session, progress)

    def repair(self, progress: Progress = silent, *, salvage: bool = False) -> Repair:
        """Drop what is damaged, so that the newest checkpoint that can be proved becomes the newest one.

        A merged run is rebuilt from the runs beside it, so nothing is lost with it; a full checkpoint is rebuilt from
        the state before it, if its digest says that nothing had changed. The repair is all or nothing. A space that is
        open on the store picks up the new state with its ``rollback()``.

        A digest covers a whole run, so there is no telling which of its rows was changed. If the newest checkpoint
        cannot be proved, ``salvage`` keeps it as it reads all the same: its objects become a full checkpoint of its
        epoch under the next number, except those of which something cannot be read or does not fit together.

        Args:
            progress: called with the number of rows checked so far and the total to check.
            salvage: rather than going back, keep what can be read, although nothing proves it.

        Returns:
            what was damaged, what was rebuilt and which checkpoints are lost; for a salvage also which objects are
                lost, and which were kept without proof.

        Raises:
            CorruptStoreError: nothing can be proved (or, for a salvage, read), or the structure of the file is damaged;
                nothing was changed.

        Time: O(rows). Dirties: the rows of what is damaged; for a salvage O(state).
        """
        with self._mutex:
            self.session.require_writable()
            report = self._drop(
                lambda connection: repair(self.session, connection, progress, salvage=salvage),
                "was damaged, and dropped by a repair",
            )
            while self._work():
                pass
            return report

    def compact(self, progress: Progress = silent) -> None:
        """Merge all runs into one and return the space to the file system; only the newest checkpoint stays readable.

        What a reader holds stays readable too. The call may be interrupted anywhere: what was done by then stays done.
        While an iteration over the store is under way, the file keeps its size until the next call.

        Args:
            progress: called with the number of item rows merged so far and the total to merge, before each step and at
                the end.

        Raises:
            StoreFailedError: the file system failed: call :meth:`reopen`, then compact again.
            CheckpointError: the store takes no writes, or the disk has no room: for up to three further copies of what
                is there, one of them in the folder of temporary files, and more while somebody reads an older snapshot.
                If only the space could not be given back, it says so, and what was merged stays merged.

        Time: O(rows). The rows are streamed.
        Dirties: the whole file.
        """
        with self._mutex:
            self.session.require_writable()
            self._reduce(self._newest.number, progress)
            self._require_alone()
            self.session.shrink()

    def configure(
        self, *, history: int | None = None, keep_for: timedelta | None = None, records: int | None = None
    ) -> Retention:
        """Set which checkpoints the store keeps on its own, and save the setting in it.

        Args:
            history: how many of the newest checkpoints stay readable, at least; 16 in a new store.
            keep_for: checkpoints younger than this stay readable as well; ``timedelta(0)`` for no such rule, as in a
                new store.
            records: for how many of the newest :meth:`checkpoints` has a record; 10,000 in a new store.

        Returns:
            the settings now in force; what was not given stays as it was. A history that this handle was opened with is
                not part of them, and holds until another one is set.

        Raises:
            ValueError: nothing would be kept.
            TypeError: the age is not a timedelta.
            CheckpointError: the store takes no writes.

        Time: O(1). Dirties: three settings. What is no longer kept is removed with the next checkpoints.
        """
        with self._mutex:
            self.session.require_writable()
            given: dict[str, Any] = {"history": history, "keep_for": keep_for, "records": records}
            wanted = replace(self._configured, **{key: value for key, value in given.items() if value is not None})
            if any(value is not None for value in given.values()):
                self._change(lambda connection: write_retention(connection, wanted))
            self._configured = wanted
            if history is not None:
                self._history = None
            return wanted

    @property
    def retention(self) -> Retention:
        """What this handle keeps: as configured, except for the history that it was opened with."""
        return self._configured if self._history is None else replace(self._configured, history=self._history)

    def prune(
        self,
        keep: int | None = None,
        older_than: timedelta | None = None,
        progress: Progress = silent,
    ) -> int:
        """Drop old checkpoints: those that are beyond the newest ``keep`` and ``older_than`` an age.

        The newest one stays, and so does what a reader holds. The rows that kept checkpoints need become part of the
        oldest of them. The call may be interrupted anywhere: what was done by then stays done. If a quarter of the file
        is unused afterwards, the space is returned to the file system; while an iteration over the store is under way,
        this waits until the next call.

        Args:
            keep: how many of the newest to keep, at least.
            older_than: keep all that are younger. If neither is given, what :meth:`configure` has set stays.
            progress: called with the number of item rows merged so far and the total to merge.

        Returns:
            how many checkpoints could be read before but no longer can.

        Raises:
            StoreFailedError: the file system failed: call :meth:`reopen`, then prune again.
            CheckpointError: the store takes no writes, or the disk has no room. If only the space could not be given
                back, it says so, and what was dropped stays dropped.

        Time: O(rows of the oldest checkpoint kept and of those before); O(rows) if a quarter of the file is unused.
        Dirties: these rows.
        """
        if not isinstance(keep, int | None) or not isinstance(older_than, timedelta | None):
            raise TypeError(f"keep is {keep!r}, older_than {older_than!r}: expected an int and a timedelta")
        if (keep is not None and keep < 1) or (older_than is not None and older_than < timedelta(0)):
            raise ValueError(f"keep is {keep}, older_than {older_than}: keep at least 1, and give an age in the past")
        with self._mutex:
            self.session.require_writable()
            before = self._runs.readable_count
            keep = None if keep is None else min(keep, sys.maxsize)
            if keep is None and older_than is None:
                keep, older_than = self.retention.history, self.retention.keep_for
            first = retention.first_kept(self.session, keep, older_than)
            self._reduce(self._runs.readable(first), progress)
            self._change(
                lambda connection: retention.forget(connection, self._runs, first, self._readers.pins), then=self._load
            )
            if self.session.unused() > retention.UNUSED:
                self._require_alone()
                self.session.shrink()
            return before - self._runs.readable_count

    def truncate_after(self, number: int) -> None:
        """Drop every checkpoint after ``number``; 0 drops all. Readers of what is dropped refuse to work from then on.

        Raises:
            UnknownCheckpointError: the checkpoint is not stored or its rows were merged.

        Time: O(rows dropped).
        Dirties: the rows of the checkpoints dropped, and the setting that records the last rollbacks.
        """
        with self._mutex:
            self.session.require_writable()
            if number:
                self.reader(number)
            elif retention.beginning_is_gone(self.session):
                raise UnknownCheckpointError(f"{self.path}: the first checkpoints were merged and cannot be dropped")
            self._drop(lambda connection: self._delete_after(connection, number), "was dropped by a rollback")

    def _delete_after(self, connection: sqlite3.Connection, number: int) -> None:
        stay = [run.run for run in self._runs if run.last <= number]
        run_rows.delete_rows(connection, TABLES[ITEMS], "checkpoint >= ?", (number + 1,), stay)
        for table, column in run_rows.NUMBERED:
            connection.execute(f"DELETE FROM {table} WHERE {column} >= ?", (number + 1,))
        note_rollback(connection, self._newest, number)

    def setting(self, key: str) -> Any:
        """Return a setting kept in the store, or ``None`` if it is not set."""
        row = self.session.row("SELECT value FROM setting WHERE key = ?", (key,))
        return None if row is None else row[0]

    def refresh(self) -> None:
        """Let a read-only store see the checkpoints made since it was opened or refreshed.

        Readers made before continue to show their own checkpoint; if the writer has merged or dropped it in the
        meantime, they raise UnknownCheckpointError, and so does an iteration in key order, which reads page by page.
        Any other that is under way continues over the older snapshot, and holds it. A store that writes always sees
        its newest state.
        """
        if self.read_only:
            self.reopen()

    def reopen(self) -> None:
        """Open the file again after a file system failure, so that it takes writes again.

        A space on the store keeps its edits: its next save covers them. Readers made before keep working. An iteration
        that is under way continues, or raises RuntimeError if the file system had failed.

        Raises:
            CheckpointError: the store is closed, its lock file was removed, or it cannot be read.
        """
        with self._mutex:
            if self._is_closed:
                raise CheckpointError(f"{self.path} is closed, and others may write to it now: open the store again")
            self.session.reopen()
            if self._lock is not None:  # The file comes first: it may have been moved away with the lock.
                self._lock.require_held()
            self._load()
            self._readers.retire("is gone: its rows were merged into a newer one, or dropped")
            self.session.trust()

    def announce_close(self) -> None:
        """Tell other processes that want to write that this handle will soon close by itself."""
        if self._lock is not None:
            self._lock.announce()

    def close(self) -> None:
        """Close the file and let others write; nothing is saved. Calling it twice is allowed."""
        with self._mutex:
            self._is_closed = True
            self.session.close()
            if self._lock is not None:
                self._lock.release()
            # Whoever keeps a reference to a closed store need not keep its rows in memory.
            self._readers.forget()
            if (upkeep := getattr(self, "_upkeep", None)) is not None:  # __init__ may have failed before it was set.
                upkeep.forget()

    def __enter__(self) -> CheckpointStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise not_copied(self, f"open {self.path} where it is needed, or fork() it")

    def __repr__(self) -> str:
        return f"CheckpointStore({self.path!r})"

    def _load(self) -> None:
        """Read what is kept in memory, so that no commit has to look at the table of checkpoints."""
        last = read_records(self.session, "ORDER BY number DESC LIMIT 1")
        next_object_id = read_next_object_id(self.session)
        found = catalogue.load(self.session)
        self._runs, self._upkeep = found.runs, Upkeep(self.session, found)
        self._readers.forget()
        self._newest = Newest(last[0].number, last[0].epoch) if last else Newest()
        self._next_object_id = next_object_id

    def _require_alone(self) -> None:
        """Refuse to change what nobody would find, or what somebody else may have changed meanwhile."""
        self.session.require_same_file()
        if self._lock is not None:
            self._lock.require_held()

    def _require_newest(self) -> None:
        """Refuse to read the store as an older or an empty one if runs of its newest checkpoint are missing."""
        number, epoch = self._newest
        if number and not (number in self._runs and self._runs.live):
            raise CorruptStoreError(
                f"{self.path}: checkpoint {number} (epoch {epoch}), the newest, has no run, or one without those before"
                f" it: {REPAIR}"
            )

    def _reader_of(self, state: int | Reader | None, epoch: int | None) -> Reader:
        if isinstance(state, Reader):
            return state
        return Reader(self.session, ()) if state == 0 else self.reader(state, epoch=epoch)

    def _append(self, kind: CheckpointKind, epoch: int | None, write: Write, run: Run | None = None) -> Receipt:
        started = time.perf_counter()
        with self._mutex:
            self.session.require_writable()
            self._require_alone()
            self._require_newest()
            number, epoch, parent = self._next(epoch)
            try:
                with self._statements() as connection:
                    found, following = write(connection, number)
                    spans.store(connection, number, found.slots)
                    write_record(connection, CheckpointRecord.made_now(number, epoch, kind, parent, found))
                    next_object_id = self._reserve_ids(connection, following)
                self._next_object_id, self._newest = next_object_id, Newest(number, epoch)
                self._runs.added(number, found.slots, is_full=kind is CheckpointKind.FULL)
                if run is not None:
                    self._upkeep.note_written(number, run.tables, found.bytes)
                seconds = time.perf_counter() - started
                self.session.copy_log(is_first=number == 1)
                self._tidy(found, is_full=kind is CheckpointKind.FULL)
            except BaseException:  # Also for an interruption after the commit: memory may differ from the file.
                self._reload()
                raise
        return Receipt(number, epoch, kind, found.slots, found.bytes, seconds)

    def _write_run(
        self, run: Run, connection: sqlite3.Connection, number: int, *, completes: bool
    ) -> tuple[Measure, int]:
        """Write a run, as is or completed from the state before; return its measure and the first id after its own."""
        run.sort()
        run_rows.insert(connection, number, run)
        if completes:
            # The image has a digest of its own, which would vouch for any damage in the rows that it takes over.
            Reader(self.session, self._runs.live).check_rows()
            run_rows.complete(self.session, number, self._runs.live)
        elif run.kind is CheckpointKind.DIFFERENTIAL and self._runs.live:
            filters.store(connection, number, run.items)
        found = run_rows.measured(connection, number) if completes else run.measure()
        run.attempt = number, found.digest
        return found, max((rows[-1][0] + 1 for rows in run.tables if rows), default=0)

    def _next(self, epoch: int | None) -> tuple[int, int, int | None]:
        number, last = self._newest
        return number + 1, epoch_after(number, last, epoch, str(self.path)), number or None

    def _reserve_ids(self, connection: sqlite3.Connection, following: int) -> int:
        """Keep the ids in a run from being reused after their objects are gone."""
        if following <= self._next_object_id:
            return self._next_object_id
        connection.execute("INSERT OR REPLACE INTO setting VALUES ('next_object_id', ?)", (following,))
        return following

    @contextmanager
    def _statements(self, *, is_lazy: bool = False) -> Iterator[sqlite3.Connection]:
        """Run statements in one transaction."""
        try:
            with self.session.transaction(is_lazy=is_lazy) as connection:
                yield connection
        except (OverflowError, ValueError, TypeError) as error:
            raise RunRefusedError(
                f"{self.path}: the run holds a row that cannot be stored ({error}); nothing was written"
            ) from error

    def _change(
        self,
        work: Callable[[sqlite3.Connection], T],
        then: Callable[[], object] = lambda: None,
        *,
        is_lazy: bool = False,
    ) -> T:
        """Work in one transaction, then update memory; if either is interrupted, reload memory.

        It is not a context manager: if Ctrl-C kept the exit of one from being called, it could do nothing.
        """
        if not is_lazy:  # What is lazy follows a commit that has looked.
            self._require_alone()
        try:
            with self._statements(is_lazy=is_lazy) as connection:
                done = work(connection)
            then()
        except BaseException:
            self._reload()
            raise
        return done

    def _drop(self, work: Callable[[sqlite3.Connection], T], reason: str) -> T:
        """Drop checkpoints in one transaction, and end their readers: nothing may be added to what no longer exists."""
        self._require_alone()
        try:
            with self._statements() as connection:
                done = work(connection)
            self._load()
            self._readers.retire(reason)
        except BaseException:  # Also for an interruption after the commit, as in an append.
            self._reload()
            with suppress(CheckpointError):
                self._readers.retire(reason)
            raise
        return done

    def _reload(self) -> None:
        """Reload memory from what is committed; if that does not complete, take no writes."""
        try:
            self.session.end_transaction()
            self._load()
        except CheckpointError as error:
            self.session.distrust(error)
        except BaseException:
            self.session.distrust(CheckpointError("it was interrupted before its content was read again"))
            raise

    def _tidy(self, written: Measure, *, is_full: bool) -> None:
        """Do some of the merging and deleting that is due, and copy the log."""
        young = min(self.retention.history, YOUNG)
        if not self._upkeep.owe(written.slots, written.bytes) and not is_full:
            return
        try:
            if self._upkeep.has_work(self._newest.number, young, is_full=is_full):
                work = partial(self._pay, young=young, is_full=is_full)
                self._change(work, then=self._settle, is_lazy=True)
        except CheckpointError as error:
            # The checkpoint just written is durable, so this must not make it fail. What is due stays due.
            if isinstance(error, RunRefusedError):  # Not the disk, which may soon be mended.
                said = (
                    "%s: what old checkpoints have left cannot be merged (%r), so reads become slower: please report it"
                )
                LOG.warning(said, self.path, error.__cause__)
            return
        self.session.copy_log()

    def _pay(self, connection: sqlite3.Connection, *, young: int, is_full: bool) -> None:
        self._upkeep.begin(connection, young)
        if self._upkeep.is_time(self._newest.number, is_full=is_full):
            self._sweep(connection)
        self._upkeep.pay(connection)

    def _sweep(self, connection: sqlite3.Connection) -> None:
        """Drop the checkpoints that the retention does not keep."""
        kept, pins = self.retention, self._readers.pins
        first = self._newest.number - kept.history + 1
        if kept.keep_for:
            oldest, last = self._runs.readable(1), self._newest.number
            first = min(first, retention.first_younger(self.session, kept.keep_for, oldest, last))
        self._upkeep.sweep(connection, first, pins, self._readers.held)
        retention.forget(connection, self._runs, min(first, self._newest.number - kept.records + 1), pins)

    def _settle(self) -> None:
        self._readers.settle(self._upkeep.settle())
        for damage in self._upkeep.damage:
            if str(damage) not in self._suspected:
                self._suspected.add(str(damage))
                warnings.warn(f"{damage}; it is not merged meanwhile", RuntimeWarning, stacklevel=6)
        self._upkeep.damage.clear()

    def _reduce(self, first: int, progress: Progress = silent) -> None:
        """Merge what makes up checkpoint ``first``, and drop what neither it nor a later one nor a reader needs.

        Each step is a transaction of its own.
        """
        targets = [first, *sorted(pin for pin in self._readers.pins if 0 < pin < first)]
        total = sum(self._runs.rows(parts) for parts in map(self._runs.at, targets) if len(parts) > 1)
        done = 0
        for target in targets:
            done += self._merge_all(self._runs.at(target), lambda copied: progress(copied, total), done)
        self._change(
            lambda connection: self._upkeep.sweep(connection, first, self._readers.pins, self._readers.held),
            then=self._settle,
        )
        while self._work():
            pass
        progress(total, total)

    def _merge_all(self, parts: Sequence[RunNumber], progress: Callable[[int], None], done: int) -> int:
        """Merge exactly these runs, and return how many item rows they had."""
        if not self._upkeep.is_merging(parts):
            self._change(lambda connection: self._merge_next(connection, parts))
        rows = self._runs.rows(parts) if self._upkeep.merging else 0
        while (merging := self._upkeep.merging) is not None:
            progress(done + merging.copied)
            self._work()
        return rows

    def _merge_next(self, connection: sqlite3.Connection, parts: Sequence[RunNumber]) -> None:
        self._upkeep.give_up(connection)
        if len(parts) > 1:
            self._upkeep.begin_merge(connection, parts)

    def _work(self) -> bool:
        """Do some of the merging and deleting, and return whether there was any."""
        damage: list[CorruptStoreError] = []

        def _raise_later() -> None:
            damage[:] = self._upkeep.damage
            self._upkeep.damage.clear()  # It is raised, so no warning is needed.
            self._settle()

        has_worked = self._change(lambda connection: self._upkeep.work(connection, _STEP_ROWS) > 0, then=_raise_later)
        self.session.copy_log()  # A log of all steps would be larger than the file, and the disk has to hold both.
        if damage:
            raise damage[0]
        return has_worked


Write = Callable[[sqlite3.Connection, int], tuple[Measure, int]]
"""Writes the rows of a checkpoint under its number; returns their measure, and the first id after their objects."""

_STEP_ROWS = 16 * 1024
"""How many rows one step of a compaction copies."""
