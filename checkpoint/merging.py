"""Making a merged run beside its parts, some rows at a time: nothing that is read changes before it is complete.

Copying resumes after what is already copied, so nothing else has to be kept to resume it. The parts are checked against
their digests as their rows are copied, and the merged run does not count before all of them are right: from then on its
own digests would vouch for any damage. If a merge is resumed, the parts are checked one by one after everything is
copied, and the number of checked parts is recorded, so that processes of a checkpoint or two each continue where the
one before stopped.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from checkpoint import run_rows, spans
from checkpoint.catalogue import note_merged, note_merging, noted_checks, placeholders
from checkpoint.digests import Check, check_of, check_run
from checkpoint.errors import CorruptStoreError
from checkpoint.filters import FilterMaker, filter_of, is_stored
from checkpoint.large import has_bodies
from checkpoint.pages import BYTES_A_ROW, ITEMS, PAGE_ROWS, TABLES, RunTable, bytes_of, merged_pages
from checkpoint.reader import Reader
from checkpoint.recent import Gathered, Rows, kept_pages
from checkpoint.run import digest_of, is_owner, owned_ids
from checkpoint.run_rows import GROUP, insert_rows
from checkpoint.session import Session
from checkpoint.tiers import RunNumber, StoredRun

_CHECK_COST, _DELETE_COST = 3, 3
"""How many rows can be checked, or deleted, in the time it takes to copy one; useless rows are only checked."""

_PORTION_BYTES = 1 << 20
"""Rows of so many bytes are written, and get a digest of their own, even if they are few."""

_A_FEW = 256
"""So many rows are deleted in one slice if bodies stored apart from them may have to be deleted too."""


class Merge:
    """A merge under way.

    Args:
        session: the connection.
        run: the number of the merged run.
        parts: the runs to merge, oldest first; their rows do not change.
        is_base: whether nothing lies below them, so that what is deleted or out of reach is left out.
        rows: how many item rows they have.
        kept: the rows of each part, if all of them are in memory.
        keeps: whether to keep the rows of the merged run.

    ``copied`` counts the item rows of the parts that were processed, ``checking`` is the part that is being checked,
    ``result`` is the merged run once it is complete, and ``merged`` has its rows if they are kept.
    """

    def __init__(
        self,
        session: Session,
        run: RunNumber,
        parts: Sequence[StoredRun],
        *,
        is_base: bool,
        rows: int,
        kept: Sequence[Rows] | None = None,
        keeps: bool = False,
    ) -> None:
        self.run, self.parts = run, tuple(part.run for part in parts)
        self._stored = parts
        self.merged = Gathered() if keeps else None
        self._kept = kept
        self._checks: dict[RunNumber, Check] = {}
        self.result: StoredRun | None = None
        self.checking: RunNumber = 0
        self.copied = 0
        self._session, self.is_base = session, is_base
        self._filter = FilterMaker(rows) if is_stored(rows) and not is_base else None
        self.slices = self._work()

    def _work(self) -> Iterator[int]:
        """Do the work slice by slice, inside transactions of the caller; yield what each cost, in rows copied."""
        connection = self._session.connection
        is_resumed = connection.execute("SELECT 1 FROM portion WHERE run = ? LIMIT 1", (self.run,)).fetchone()
        if is_resumed:
            self._kept = self._filter = self.merged = None  # They would lack what was copied by an earlier process.
        elif self._kept is None:
            for part in self.parts:
                self.checking = part
                self._checks[part] = check_of(self._session, part)
        live: set[int] | None = None
        if self.is_base:
            live = set()
            for rows in _find_live(Reader(self._session, self.parts), live):
                yield 1 + rows // _CHECK_COST
        for place, table in enumerate(TABLES):
            yield from self._copy(connection, place, self._pages(place, table, live))
        if is_resumed:
            yield from self._check_parts(connection)
        for part, check in self._checks.items():
            self.checking = part
            check.finish()
        self.result = note_merged(connection, self.run, self._stored)
        if is_resumed and is_stored(self.result.slots) and not self.is_base:
            self._filter = filter_of(self._session, self.run, self.result.slots)
        if self._filter:
            self._filter.store(connection, self.run)
        spans.store(connection, self.run, self.result.slots)

    def _check_parts(self, connection: sqlite3.Connection) -> Iterator[int]:
        """Check the parts not yet checked since all was copied: if they are right, so is what was copied."""
        for place in range(noted_checks(connection, self.run), len(self.parts)):
            self.checking = self.parts[place]
            for rows in check_run(self._session, self.checking):
                yield 1 + rows // _CHECK_COST
            note_merging(connection, self.run, self._stored, place + 1)

    def _pages(self, place: int, table: RunTable, live: set[int] | None) -> Iterator[tuple[int, list[Any]]]:
        """Return the merged rows of a table page by page, with how many rows were looked at for each page."""
        if self._kept is not None:
            return kept_pages(table, [rows[place] for rows in self._kept], live)
        after = _last_key(self._session.connection, table, self.run)
        return merged_pages(self._session, table, self.parts, live, after, self._seen if self._checks else None)

    def _seen(self, part: RunNumber, rows: list[Any]) -> None:
        self.checking = part
        self._checks[part].take(rows)

    def _copy(
        self, connection: sqlite3.Connection, place: int, pages: Iterator[tuple[int, list[Any]]]
    ) -> Iterator[int]:
        left: list[Any] = []
        for looked_at, in_use in pages:
            rows = left + in_use
            size = bytes_of(rows) if place == ITEMS else 0
            whole = len(rows) // GROUP * GROUP if size < _PORTION_BYTES else len(rows)
            self._write(connection, place, rows[:whole])
            left = rows[whole:]
            self.copied += looked_at if place == ITEMS else 0
            yield 1 + size // BYTES_A_ROW + len(in_use) + (looked_at - len(in_use)) // _CHECK_COST
        self._write(connection, place, left)
        for part, check in self._checks.items():
            self.checking = part
            check.end_table()

    def _write(self, connection: sqlite3.Connection, place: int, rows: list[Any]) -> None:
        """Write some rows of the merged run, and their digest."""
        if not rows:
            return
        try:
            insert_rows(connection, TABLES[place], self.run, rows, self.parts)
        except CorruptStoreError as error:
            raise CorruptStoreError(f"{self._session.path}: {error}") from error
        if self._filter and place == ITEMS:
            self._filter.add(rows)
        if self.merged is not None and not self.merged.add(place, rows):
            self.merged = None
        connection.execute(
            "INSERT INTO portion SELECT ?, 1 + coalesce(max(number), 0), ?, ?, ? FROM portion WHERE run = ?",
            (self.run, TABLES[place].name, len(rows), digest_of(rows), self.run),
        )


def delete_rows(
    connection: sqlite3.Connection, runs: Sequence[RunNumber], holders: Callable[[], Iterable[RunNumber]]
) -> Iterator[int]:
    """Delete all rows of some runs slice by slice; yield what each cost, in rows copied.

    Args:
        connection: inside transactions of the caller, one after the other.
        runs: their numbers, in order.
        holders: returns, for each slice, the runs that stay and have checkpoints in common with these.
    """
    for table in TABLES:
        left, before = list(runs), None
        while end := _row_beyond(connection, table, left):
            if end == before:
                raise CorruptStoreError(
                    f"{_path(connection)}: the table {table.name} keeps rows that are deleted, as one with a trigger"
                    " does: verify() of the store names it, then drop it"
                )
            before = end
            whole = [run for run in left if run < end[0]]
            left = left[len(whole) :]
            cost = _delete_whole(connection, table, whole, holders())
            keys = f"({table.keys}) < ({placeholders(end[1:])})"
            cost += run_rows.delete_rows(connection, table, f"checkpoint = ? AND {keys}", end, holders())
            yield 1 + cost // _DELETE_COST
        yield 1 + _delete_whole(connection, table, left, holders()) // _DELETE_COST


def _path(connection: sqlite3.Connection) -> str:
    """Return the file of a connection."""
    return str(connection.execute("PRAGMA database_list").fetchone()[2])


def _row_beyond(connection: sqlite3.Connection, table: RunTable, runs: Sequence[RunNumber]) -> tuple[Any, ...] | None:
    """Return the run and the key of the row that is one slice beyond the first; None if there are not so many rows."""
    rows = _A_FEW if has_bodies(connection) else _DELETE_COST * PAGE_ROWS
    found: tuple[Any, ...] | None = connection.execute(
        f"SELECT checkpoint, {table.keys} FROM {table.name} WHERE checkpoint IN ({placeholders(runs)})"
        f" ORDER BY checkpoint, {table.keys} LIMIT 1 OFFSET {rows}",
        runs,
    ).fetchone()
    return found


def _delete_whole(
    connection: sqlite3.Connection, table: RunTable, runs: Sequence[RunNumber], holders: Iterable[RunNumber]
) -> int:
    """Delete all rows of some runs in one table, and return how many there were, or what they cost."""
    return run_rows.delete_rows(connection, table, f"checkpoint IN ({placeholders(runs)})", runs, holders)


def _find_live(reader: Reader, live: set[int]) -> Iterator[int]:
    """Collect the ids of the objects that exist, slice by slice; yield how many rows were looked at."""
    index = reader.index()
    yield len(index)
    for row in index:
        live.add(row[0])
        if is_owner(row):
            for number, item in enumerate(reader.items(row[0], page_rows=PAGE_ROWS), 1):
                live |= owned_ids([item.value])
                if number % PAGE_ROWS == 0:
                    yield PAGE_ROWS


def _last_key(connection: sqlite3.Connection, table: RunTable, run: RunNumber) -> tuple[Any, ...] | None:
    backwards = ", ".join(f"{key} DESC" for key in table.keys.split(", "))
    found: tuple[Any, ...] | None = connection.execute(
        f"SELECT {table.keys} FROM {table.name} WHERE checkpoint = ? ORDER BY {backwards} LIMIT 1", (run,)
    ).fetchone()
    return found
