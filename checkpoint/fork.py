"""Forks: an independent store file as of one checkpoint, with the history before it.

The rows are streamed into a new file by SQL, run by run. Unlike ``VACUUM INTO`` followed by cutting off what came
later, this writes nothing that the fork does not keep, leaves no later values in free pages, and works on a read-only
snapshot and on a store in memory. The runs keep their numbers and digests, so the fork can be verified like its origin.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson

from checkpoint import filters, schema, seals, spans
from checkpoint.errors import CheckpointError
from checkpoint.failures import code_of, lack_of_handles, lacks_room
from checkpoint.inherited import note_opened
from checkpoint.progress import Progress, silent
from checkpoint.recognised import BESIDE, require_free_name
from checkpoint.run_rows import FEW_ROWS, LARGE, WRITTEN
from checkpoint.session import PAGE_BYTES, Session
from checkpoint.tiers import RunNumber
from checkpoint.verify import verify_up_to

ORIGIN = "forked_from"
"""The setting of a fork that records its origin: JSON with ``path``, ``number``, ``epoch`` and ``time``."""

_PORTION_ROWS = 4096


def fork(
    session: Session,
    path: Path,
    number: int,
    progress: Progress = silent,
    origin: str | None = None,
    finish: Callable[[Path], object] = lambda staged: None,
) -> None:
    """Write the checkpoints up to ``number`` into a new store file, which appears whole or not at all.

    Args:
        session: the store; the caller keeps others from writing meanwhile.
        path: the new file.
        number: the newest checkpoint of the fork, 0 for an empty store.
        progress: called with the number of rows copied so far and the total to copy.
        origin: what the fork records as its origin; this store by default.
        finish: called with the path of the copy before it appears; may open it as a store, and must close it again.

    Raises:
        CorruptStoreError: rows to be copied are not as they were written: a copy would be no backup.
        CheckpointError: the file exists, its folder does not, or it cannot be written.

    Time: O(rows up to the checkpoint). Memory: a few thousand rows. Dirties: the new file, durable on return.
    """
    _require_absent(path)
    verify_up_to(session, number)  # Otherwise the damage would be copied too, and later look like damage of the copy.
    staged = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        _write(session, staged, number, progress, origin)
        finish(staged)
        _require_no_log(staged, path)
        _publish(staged, path)
    except (sqlite3.Error, OSError) as error:
        said = error.strerror if isinstance(error, OSError) else f"SQLite says: {error}"
        advice = "no space is left: free some" if lacks_room(error, path.parent) else "see to its disk"
        if code_of(error) == sqlite3.SQLITE_CANTOPEN:
            permissions = "see to the permissions of its folder, and whether its disk is read-only"
            advice = lack_of_handles() or permissions
        raise CheckpointError(f"{path} cannot be written ({said}): {advice}, try again") from error
    finally:
        for end in ("", *BESIDE):
            with suppress(OSError):
                staged.with_name(staged.name + end).unlink(missing_ok=True)


def _require_absent(path: Path) -> None:
    if "\0" in str(path):
        raise CheckpointError(f"{str(path)!r} is no path: it holds a NUL character; name another file")
    if not path.parent.is_dir():
        raise CheckpointError(f"{path} cannot be created: the folder {path.parent} does not exist; create it first")
    require_free_name(path)
    # A log left behind by another store would be taken for the log of this one.
    for taken in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-journal")):
        if os.path.lexists(taken):
            raise CheckpointError(f"{taken} exists: a fork overwrites nothing; name another file, or remove it first")


def _require_no_log(staged: Path, path: Path) -> None:
    """Refuse a copy with something still in its log: only the file itself gets the name."""
    log = staged.with_name(staged.name + "-wal")
    if log.exists() and log.stat().st_size:
        raise CheckpointError(
            f"{path} cannot be written (its log could not be copied into it): see to its disk, try again"
        )


def _write(session: Session, staged: Path, number: int, progress: Progress, origin: str | None) -> None:
    # The file does not get its final name before it is complete and synced, so it needs no journal until then.
    with closing(sqlite3.connect(staged, isolation_level=None, factory=Session.factory)) as target:
        note_opened(target, staged)
        target.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        target.execute("PRAGMA synchronous = OFF")
        target.execute("PRAGMA journal_mode = OFF")
        schema.create(target)
        target.execute("BEGIN")
        _copy(target, "setting", _rows(session, "SELECT * FROM setting WHERE key <> ?", (ORIGIN,)))
        target.execute("INSERT INTO setting VALUES (?, ?)", (ORIGIN, _origin(session, number, origin)))
        sources = list(_sources(session))
        total = sum(
            session.row(f"SELECT count(*) FROM {table} WHERE {column} < ?", (number + 1,))[0]
            for table, column, _ in sources
        )
        done = 0
        for table, column, cells in sources:
            portion_rows = FEW_ROWS if table == LARGE else _PORTION_ROWS
            rows = _rows(session, f"SELECT {cells} FROM {table} WHERE {column} < ?", (number + 1,), portion_rows)
            _copy(target, table, _counted(rows, lambda copied: progress(done + copied, total)))  # noqa: B023
            done += target.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        _leave_out(target, "filter", filters.untrusted(session))
        _leave_out(target, "span", spans.untrusted(session))
        if session.row("PRAGMA user_version")[0] < seals.FORMAT:
            seals.add(target)
        target.execute("COMMIT")
        target.execute("PRAGMA journal_mode = WAL")


def _leave_out(target: sqlite3.Connection, table: str, runs: Iterable[RunNumber]) -> None:
    """Leave out what is damaged and whose absence only costs reads some time."""
    target.executemany(f"DELETE FROM {table} WHERE run = ?", [(run,) for run in runs])


def _sources(session: Session) -> Iterator[tuple[str, str, str]]:
    """Yield each table that has rows by run, with the column that tells the run, and what to copy of a row."""
    is_first = session.row("PRAGMA user_version")[0] == 1
    for table, column in WRITTEN:  # A read-only store is not upgraded before it is copied.
        if is_first and table == "checkpoint":
            yield table, column, f"*, iif(run_slots IS NULL, NULL, {schema.FIRST_IN_FORMAT_1})"
        elif session.has_table(table):
            yield table, column, "*"


def _origin(session: Session, number: int, path: str | None) -> str:
    found = session.row("SELECT epoch, time FROM checkpoint WHERE number = ?", (number,)) or (None, None)
    text = os.fsencode(path or session.path).decode(errors="replace")  # a path need not be text
    return orjson.dumps({"path": text, "number": number, "epoch": found[0], "time": found[1]}).decode()


def _copy(target: sqlite3.Connection, table: str, rows: Iterator[tuple[Any, ...]]) -> None:
    columns = [row[1] for row in target.execute(f"PRAGMA table_info({table})")]
    for row in rows:
        names = ", ".join(columns[: len(row)])  # rows of older formats have no seal, which comes last
        statement = f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})"
        target.executemany(statement, chain([row], rows))


def _counted(rows: Iterator[tuple[Any, ...]], tell: Callable[[int], None]) -> Iterator[tuple[Any, ...]]:
    for count, row in enumerate(rows, start=1):
        if count % _PORTION_ROWS == 0:
            tell(count)
        yield row


def _rows(
    session: Session, statement: str, parameters: tuple[object, ...], portion_rows: int = _PORTION_ROWS
) -> Iterator[tuple[Any, ...]]:
    with session.cursor(statement, parameters) as fetch:
        while portion := fetch(portion_rows):
            yield from portion


def _publish(staged: Path, path: Path) -> None:
    _sync(staged, os.O_RDWR)
    try:
        os.link(staged, path)
    except FileExistsError as error:
        raise CheckpointError(f"{path} exists: a fork overwrites nothing; name another file") from error
    except OSError:
        # Without hard links a rename has to do; between the look before it and the rename somebody may create the file.
        _require_absent(path)
        os.rename(staged, path)
    _sync(path.parent, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
