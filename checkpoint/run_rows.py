"""The rows of a run: writing, completing and measuring them, and the tables that have some.

Everything here runs inside a transaction of the caller, and streams: the memory used does not depend on the state.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import Any

from checkpoint.large import copy_for, delete_items, has_bodies, set_aside
from checkpoint.pages import ITEMS, TABLES, RunTable
from checkpoint.reader import Reader
from checkpoint.run import CHUNK_ROWS, Measure, Page, PageMeasure, Run, measure
from checkpoint.session import Session
from checkpoint.tiers import RunNumber

GROUP = 240
"""How many rows one statement inserts at most; every SQLite accepts that many values (999)."""

FEW_ROWS = 16
"""How many rows are read at once if they may be large."""

_GROUPS = (GROUP, 32, 4, 1)

_INTEGERS = {int, type(None)}

NUMBERED = (
    ("checkpoint", "number"),
    ("state_index", "checkpoint"),
    ("state_metadata", "checkpoint"),
    ("state_item", "checkpoint"),
    ("run", "run"),
    ("portion", "run"),
    ("filter", "run"),
    ("span", "run"),
)
"""Every table that has rows by run, with the column that tells the run."""

LARGE = "state_large"
"""The table of bodies."""

WRITTEN = (*NUMBERED, (LARGE, "checkpoint"))
"""Every table with rows that came with a checkpoint: a body stays after the rows of the checkpoint are gone."""


def insert(connection: sqlite3.Connection, number: int, run: Run) -> None:
    """Write the rows of a sorted run.

    Time: O(rows).
    Dirties: the rows, at the end of each table.
    """
    for table, rows in zip(TABLES, run.tables, strict=True):
        insert_rows(connection, table, number, rows)


def insert_rows(
    connection: sqlite3.Connection,
    table: RunTable,
    run: RunNumber,
    rows: Sequence[tuple[Any, ...]],
    parts: Sequence[RunNumber] = (),
) -> None:
    """Write rows of one table under the number of a run.

    Args:
        connection: inside a transaction of the caller.
        table: the table.
        run: the number.
        rows: the rows, without it.
        parts: the runs, oldest first, that the rows were merged from: what is large is not written again.

    Time: O(rows).
    Dirties: the rows.
    """
    start = 0
    for size in _GROUPS:
        while start + size <= len(rows):
            _insert_group(connection, table, run, rows[start : start + size], parts)
            start += size


def _insert_group(
    connection: sqlite3.Connection,
    table: RunTable,
    run: RunNumber,
    rows: Sequence[Any],
    parts: Sequence[RunNumber],
) -> None:
    """Write some rows with one statement, in which a shared id and a last column of NULLs appear only once."""
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
    if len(columns) != table.columns:
        raise ValueError(f"a row of {table.name} has {len(columns)} columns: expected {table.columns}")
    for place in table.integers:
        if strange := set(map(type, columns[place])) - _INTEGERS:
            # SQLite would turn it into another one, and what is read would not be what was written.
            raise TypeError(f"an id or rank in {table.name} is a {strange.pop().__name__}: expected an int")
    if table.stored:
        columns[table.width] = set_aside(connection, run, columns, parts)
    if columns[-1].count(None) == len(rows):
        columns.pop()
    is_of_one = columns[0].count(columns[0][0]) == len(rows)
    shared = (run, columns.pop(0)[0]) if is_of_one else (run,)
    statement = _insertion(table, len(rows), len(columns), is_of_one=is_of_one)
    connection.execute(statement, (*shared, *chain.from_iterable(zip(*columns))))


@cache
def _insertion(table: RunTable, rows: int, columns: int, *, is_of_one: bool) -> str:
    """Return the statement that inserts so many rows of so many columns, and NULL in the others.

    The number of the run, and the id if all rows belong to one object, come once, before the rows. Placeholders have no
    numbers: from 3.12 on, Python looks for the name of each that has one among all that were given before.
    """
    given = [*(["?"] if is_of_one else []), *(f"column{place}" for place in range(1, columns + 1))]
    missing = ["NULL"] * (table.columns - len(given))
    values = ", ".join([f"({', '.join('?' * columns)})"] * rows)
    return f"INSERT INTO {table.name} SELECT ?, {', '.join([*given, *missing])} FROM (VALUES {values})"


def insert_pages(pages: Iterable[Page], connection: sqlite3.Connection, number: int) -> tuple[Measure, int]:
    """Write the pages of a run, and return its measure and the first id after those of its objects.

    Time: O(rows).
    Dirties: the rows, at the end of each table.
    """
    measure, following = PageMeasure(), 0
    for place, rows in filter(itemgetter(1), pages):
        insert_rows(connection, TABLES[place], number, rows)
        measure.take((place, rows))
        following = max(following, rows[-1][0] + 1)
    return measure.result(), following


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
        connection.execute(f"DELETE FROM {table.name} WHERE checkpoint = {number} AND {table.deleted_column} IS NULL")
    _drop_unreachable(session, number, runs)
    copy_for(connection, number)


def _drop_unreachable(session: Session, number: int, older: Sequence[RunNumber]) -> None:
    """Drop the rows of an image whose object no longer exists."""
    live = Reader(session, (number,)).reachable()
    for table in TABLES[1:]:
        rows = session.connection.execute(f"SELECT DISTINCT object FROM {table.name} WHERE checkpoint = {number}")
        for dead in {row[0] for row in rows} - live:
            delete_rows(session.connection, table, f"checkpoint = {number} AND object = ?", (dead,), (*older, number))


def delete_rows(
    connection: sqlite3.Connection,
    table: RunTable,
    condition: str,
    parameters: Sequence[object],
    holders: Iterable[RunNumber],
) -> int:
    """Delete the rows of one table that satisfy a condition, and return how many there were, or what they cost.

    Args:
        connection: inside a transaction of the caller.
        table: the table.
        condition: which rows.
        parameters: those of the condition.
        holders: every run that stays and has checkpoints in common with the runs of these rows.

    Time: O(rows). Dirties: the rows.
    """
    if table is TABLES[ITEMS]:
        return delete_items(connection, condition, parameters, holders)
    return connection.execute(f"DELETE FROM {table.name} WHERE {condition}", parameters).rowcount


def measured(connection: sqlite3.Connection, number: int) -> Measure:
    """Return slots, bytes and digest of the rows stored under a number."""
    return measure(*rows_of(connection, number), chunk_rows=FEW_ROWS if has_bodies(connection) else CHUNK_ROWS)


def rows_of(connection: sqlite3.Connection, number: int) -> tuple[Iterator[Any], Iterator[Any], Iterator[Any]]:
    """Return iterators over the index, metadata and item rows stored under one number, in the order of a run."""
    index, metadata, items = (
        connection.execute(
            f"SELECT {table.keys}, {table.rest} FROM {table.source} WHERE checkpoint = ? ORDER BY {table.keys}",
            (number,),
        )
        for table in TABLES
    )
    return index, metadata, items


def numbers_in(session: Session, table: str, column: str) -> Iterator[RunNumber]:
    """Yield the numbers of the runs that have rows in a table, by one search each instead of a scan."""
    number: Any = None
    while True:
        # In a damaged file the number may be anything.
        where, found = ("", ()) if number is None else (f"WHERE {column} > ?", (number,))
        number = session.row(f"SELECT min({column}) FROM {table} {where}", found)[0]
        if number is None:
            return
        yield number
