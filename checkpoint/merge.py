"""What moves rows between runs: writing one, completing an image, merging neighbours, dropping what is obsolete.

Everything here runs inside a transaction of the caller, and streams: the memory used does not depend on the state.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, islice
from typing import Any

from checkpoint.reader import Reader
from checkpoint.run import Measure, Run, measure
from checkpoint.session import Session

_TABLES = (
    ("state_index", "object", "name, kind, codec", "kind"),
    ("state_metadata", "object, key", "value", "value"),
    ("state_item", "object, slot", "value, rank", "value"),
)
"""(table, key after the number of the checkpoint, other columns, the column whose NULL marks a deletion)"""

_GROUP_ROWS = 16
"""How many rows one statement inserts."""

NUMBERED = (
    ("checkpoint", "number"),
    ("state_index", "checkpoint"),
    ("state_metadata", "checkpoint"),
    ("state_item", "checkpoint"),
)
"""Every table that has rows by checkpoint, with the column that tells which."""


def insert(connection: sqlite3.Connection, number: int, run: Run) -> None:
    """Write the rows of a sorted run.

    Time: O(rows).
    Dirties: the rows, at the end of each table.
    """
    tables: tuple[tuple[str, int, Sequence[tuple[Any, ...]]], ...] = (
        ("state_index", 4, run.index),
        ("state_metadata", 3, run.metadata),
        ("state_item", 4, run.items),
    )
    for table, columns, rows in tables:
        whole = len(rows) - len(rows) % _GROUP_ROWS
        if whole:
            groups = (rows[start : start + _GROUP_ROWS] for start in range(0, whole, _GROUP_ROWS))
            flat = ((number, *chain.from_iterable(group)) for group in groups)
            connection.executemany(_insertion(table, columns, _GROUP_ROWS), flat)
        if whole < len(rows):
            connection.executemany(_insertion(table, columns, 1), ((number, *row) for row in rows[whole:]))


@cache
def _insertion(table: str, columns: int, rows: int) -> str:
    """Return the statement that inserts so many rows at once: several a statement cost less than one each."""
    marks = iter(range(2, rows * columns + 2))
    groups = (", ".join(f"?{mark}" for mark in islice(marks, columns)) for _ in range(rows))
    return f"INSERT INTO {table} VALUES " + ", ".join(f"(?1, {group})" for group in groups)


def complete(session: Session, number: int, runs: Sequence[int]) -> None:
    """Turn the rows under ``number`` into a complete image by adding what they do not mention of the older runs.

    Time: O(state).
    Dirties: the rows of the image.
    """
    absorb(session.connection, runs, number)
    drop_deletions(session.connection, number)
    drop_unreachable(session, number)


def merge(session: Session, group: Sequence[int], *, is_base: bool) -> int:
    """Merge neighbouring runs into the newest of them and return its item rows.

    Args:
        session: the connection.
        group: the runs, oldest first.
        is_base: no older live run lies below them, so that there is nothing left to delete.

    Time: O(rows of the group).
    Dirties: the rows of the group.
    """
    connection = session.connection
    *older, newest = group
    absorb(connection, older, newest)
    if is_base:
        drop_deletions(connection, newest)
        drop_unreachable(session, newest)
    drop(connection, older)
    found = measured(connection, newest)
    connection.execute(
        "UPDATE checkpoint SET run_slots = ?, run_digest = ? WHERE number = ?", (found.slots, found.digest, newest)
    )
    return found.slots


def absorb(connection: sqlite3.Connection, older: Sequence[int], newest: int) -> None:
    """Copy what ``newest`` does not mention from the newest of the ``older`` runs that does."""
    runs = _list(older)
    for table, keys, rest, _ in _TABLES:
        connection.execute(
            f"INSERT OR IGNORE INTO {table} (checkpoint, {keys}, {rest}) SELECT {newest}, {keys}, {rest} FROM ("
            f"SELECT {keys}, {rest}, max(checkpoint) FROM {table} WHERE checkpoint IN ({runs}) GROUP BY {keys})"
        )


def drop_deletions(connection: sqlite3.Connection, number: int) -> None:
    """Drop the rows of a run that mark deletions: below the oldest run there is nothing to delete."""
    for table, _, _, mark in _TABLES:
        connection.execute(f"DELETE FROM {table} WHERE checkpoint = {number} AND {mark} IS NULL")


def drop_unreachable(session: Session, number: int) -> None:
    """Drop the rows of a base run whose object exists no more."""
    live = Reader(session, (number,)).reachable()
    for table, _, _, _ in _TABLES[1:]:
        rows = session.connection.execute(f"SELECT DISTINCT object FROM {table} WHERE checkpoint = {number}")
        for dead in {row[0] for row in rows} - live:
            session.connection.execute(f"DELETE FROM {table} WHERE checkpoint = {number} AND object = ?", (dead,))


def drop_before(connection: sqlite3.Connection, first: int) -> None:
    """Drop every run older than ``first``, a full checkpoint, once nobody needs them.

    Dirties: their rows.
    """
    rows = connection.execute("SELECT number FROM checkpoint WHERE run_slots IS NOT NULL AND number < ?", (first,))
    drop(connection, [row[0] for row in rows])


def drop(connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
    """Drop runs that nobody needs.

    Dirties: their rows.
    """
    runs = _list(numbers)
    for table, _, _, _ in _TABLES:
        connection.execute(f"DELETE FROM {table} WHERE checkpoint IN ({runs})")
    connection.execute(f"UPDATE checkpoint SET run_slots = NULL, run_digest = NULL WHERE number IN ({runs})")


def measured(connection: sqlite3.Connection, number: int) -> Measure:
    """Return slots, bytes and digest of the rows that lie under a number."""
    return measure(*rows_of(connection, number))


def rows_of(connection: sqlite3.Connection, number: int) -> tuple[Iterator[Any], Iterator[Any], Iterator[Any]]:
    """Return iterators over the index, metadata and item rows stored under one number, in the order of a run."""
    index, metadata, items = (
        connection.execute(f"SELECT {keys}, {rest} FROM {table} WHERE checkpoint = ? ORDER BY {keys}", (number,))
        for table, keys, rest, _ in _TABLES
    )
    return index, metadata, items


def numbers_in(connection: sqlite3.Connection, table: str) -> Iterator[int]:
    """Yield the checkpoint numbers that have rows in a table, by one search each instead of a scan."""
    number = None
    while True:
        where = "" if number is None else f"WHERE checkpoint > {number}"
        number = connection.execute(f"SELECT min(checkpoint) FROM {table} {where}").fetchone()[0]
        if number is None:
            return
        yield number


def _list(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers)) or "-1"
