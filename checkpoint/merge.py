"""What writes the rows of a run, and completes a full one.

Everything here runs inside a transaction of the caller, and streams: the memory used does not depend on the state.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, islice
from typing import Any

from checkpoint.pages import TABLES, Table
from checkpoint.reader import Reader
from checkpoint.run import Measure, Run, measure
from checkpoint.session import Session
from checkpoint.tiers import RunNumber

_GROUP_ROWS = 64
"""How many rows one statement inserts."""

NUMBERED = (
    ("checkpoint", "number"),
    ("state_index", "checkpoint"),
    ("state_metadata", "checkpoint"),
    ("state_item", "checkpoint"),
    ("run", "run"),
    ("portion", "run"),
)
"""Every table that has rows by run, with the column that tells which."""


def insert(connection: sqlite3.Connection, number: int, run: Run) -> None:
    """Write the rows of a sorted run.

    Time: O(rows).
    Dirties: the rows, at the end of each table.
    """
    tables: tuple[list[Any], ...] = (run.index, run.metadata, run.items)
    for table, rows in zip(TABLES, tables, strict=True):
        insert_rows(connection, table, number, rows)


def insert_rows(connection: sqlite3.Connection, table: Table, run: RunNumber, rows: Sequence[tuple[Any, ...]]) -> None:
    """Write rows of one table under the number of a run.

    Time: O(rows).
    Dirties: the rows.
    """
    columns = table.width + table.rest.count(",") + 1
    whole = len(rows) - len(rows) % _GROUP_ROWS
    if whole:
        groups = (rows[start : start + _GROUP_ROWS] for start in range(0, whole, _GROUP_ROWS))
        flat = ((run, *chain.from_iterable(group)) for group in groups)
        connection.executemany(_insertion(table.name, columns, _GROUP_ROWS), flat)
    if whole < len(rows):
        connection.executemany(_insertion(table.name, columns, 1), ((run, *row) for row in rows[whole:]))


@cache
def _insertion(table: str, columns: int, rows: int) -> str:
    """Return the statement that inserts so many rows at once: several a statement cost less than one each."""
    marks = iter(range(2, rows * columns + 2))
    groups = (", ".join(f"?{mark}" for mark in islice(marks, columns)) for _ in range(rows))
    return f"INSERT INTO {table} VALUES " + ", ".join(f"(?1, {group})" for group in groups)


def complete(session: Session, number: int, runs: Sequence[RunNumber]) -> None:
    """Turn the rows under ``number`` into a complete image by adding what they do not mention of the older runs.

    Time: O(state).
    Dirties: the rows of the image.
    """
    connection, older = session.connection, ",".join(map(str, runs)) or "-1"
    for table in TABLES:
        keys, rest = table.keys, table.rest
        connection.execute(
            f"INSERT OR IGNORE INTO {table.name} (checkpoint, {keys}, {rest}) SELECT {number}, {keys}, {rest} FROM ("
            f"SELECT {keys}, {rest}, max(checkpoint) FROM {table.name} WHERE checkpoint IN ({older}) GROUP BY {keys})"
        )
        connection.execute(f"DELETE FROM {table.name} WHERE checkpoint = {number} AND {table.mark} IS NULL")
    _drop_unreachable(session, number)


def _drop_unreachable(session: Session, number: int) -> None:
    """Drop the rows of an image whose object exists no more."""
    live = Reader(session, (number,)).reachable()
    for table in TABLES[1:]:
        rows = session.connection.execute(f"SELECT DISTINCT object FROM {table.name} WHERE checkpoint = {number}")
        for dead in {row[0] for row in rows} - live:
            session.connection.execute(f"DELETE FROM {table.name} WHERE checkpoint = {number} AND object = ?", (dead,))


def measured(connection: sqlite3.Connection, number: int) -> Measure:
    """Return slots, bytes and digest of the rows that lie under a number."""
    return measure(*rows_of(connection, number))


def rows_of(connection: sqlite3.Connection, number: int) -> tuple[Iterator[Any], Iterator[Any], Iterator[Any]]:
    """Return iterators over the index, metadata and item rows stored under one number, in the order of a run."""
    index, metadata, items = (
        connection.execute(
            f"SELECT {table.keys}, {table.rest} FROM {table.name} WHERE checkpoint = ? ORDER BY {table.keys}", (number,)
        )
        for table in TABLES
    )
    return index, metadata, items


def numbers_in(session: Session, table: str, column: str) -> Iterator[RunNumber]:
    """Yield the numbers of the runs that have rows in a table, by one search each instead of a scan."""
    number: Any = None
    while True:
        where = "" if number is None else f"WHERE {column} > {number}"
        number = session.row(f"SELECT min({column}) FROM {table} {where}")[0]
        if number is None:
            return
        yield number
