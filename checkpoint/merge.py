"""Merging runs, so that a read never visits many of them and a file does not grow for ever.

The newest checkpoints keep rows of their own (the *history*). Older runs are merged in tiers: as soon as eight
neighbours are small enough for a tier, they become one run under the number of the newest of them. A row is so
rewritten about once for each factor of eight by which the state grows.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Sequence
from threading import RLock
from typing import Any

from checkpoint.reader import Reader
from checkpoint.run import digest_of

DEFAULT_HISTORY = 16
"""How many of the newest checkpoints keep rows of their own."""

FAN_IN = 8
"""How many neighbouring runs are merged into one."""

_TABLES = (
    ("state_index", "object", "kind"),
    ("state_metadata", "object, key", "value"),
    ("state_item", "object, slot", "value"),
)
_REST = {"state_index": "name, kind, codec", "state_metadata": "value", "state_item": "value, rank"}


def live_runs(connection: sqlite3.Connection, number: int) -> tuple[int, ...]:
    """Return the runs that make up the state at checkpoint ``number``, oldest first; none before the newest full one."""
    rows = connection.execute(
        "SELECT number FROM checkpoint WHERE number <= :number AND run_slots IS NOT NULL AND number >= coalesce("
        "(SELECT max(number) FROM checkpoint WHERE kind = 'full' AND number <= :number), 0) ORDER BY number",
        {"number": number},
    )
    return tuple(row[0] for row in rows)


def due(connection: sqlite3.Connection, live: Sequence[int], history: int) -> tuple[int, ...]:
    """Return the neighbouring runs to merge next, oldest first; nothing where reads visit few runs already."""
    candidates = live[:-history]
    if len(candidates) < FAN_IN:
        return ()
    sizes = dict(connection.execute("SELECT number, run_slots FROM checkpoint WHERE run_slots IS NOT NULL"))
    tiers = [_tier(sizes[number]) for number in candidates]
    for tier in sorted(set(tiers)):
        for start in range(len(candidates) - FAN_IN + 1):
            if max(tiers[start : start + FAN_IN]) <= tier:
                return tuple(candidates[start : start + FAN_IN])
    return ()


def merge(connection: sqlite3.Connection, mutex: RLock, group: Sequence[int], *, is_base: bool) -> None:
    """Merge neighbouring runs into the newest of them; ``is_base`` where no older live run lies below.

    Time: O(rows of the group).
    Dirties: the rows of the group, inside the transaction of the caller.
    """
    *older, newest = group
    absorb(connection, older, newest)
    if is_base:
        drop_deletions(connection, newest)
        drop_unreachable(connection, mutex, newest)
    _discard(connection, older)
    slots = connection.execute("SELECT count(*) FROM state_item WHERE checkpoint = ?", (newest,)).fetchone()[0]
    connection.execute(
        "UPDATE checkpoint SET run_slots = ?, run_digest = ? WHERE number = ?",
        (slots, digest_of(*rows_of(connection, newest)), newest),
    )


def absorb(connection: sqlite3.Connection, older: Sequence[int], newest: int) -> None:
    """Copy what ``newest`` does not mention from the newest of the ``older`` runs that does."""
    runs = ",".join(map(str, older)) or "-1"
    for table, keys, _ in _TABLES:
        rest = _REST[table]
        connection.execute(
            f"INSERT OR IGNORE INTO {table} (checkpoint, {keys}, {rest}) SELECT {newest}, {keys}, {rest} FROM ("
            f"SELECT {keys}, {rest}, max(checkpoint) FROM {table} WHERE checkpoint IN ({runs}) GROUP BY {keys})"
        )


def drop_deletions(connection: sqlite3.Connection, number: int) -> None:
    """Drop the rows of a run that mark deletions: below the oldest run there is nothing to delete."""
    for table, _, mark in _TABLES:
        connection.execute(f"DELETE FROM {table} WHERE checkpoint = {number} AND {mark} IS NULL")


def drop_unreachable(connection: sqlite3.Connection, mutex: RLock, number: int) -> None:
    """Drop the rows of a base run whose object exists no more."""
    live = Reader(connection, mutex, (number,)).reachable()
    for table, _, _ in _TABLES[1:]:
        present = {
            row[0] for row in connection.execute(f"SELECT DISTINCT object FROM {table} WHERE checkpoint = {number}")
        }
        for dead in present - live:
            connection.execute(f"DELETE FROM {table} WHERE checkpoint = {number} AND object = {dead}")


def drop_before(connection: sqlite3.Connection, first: int) -> None:
    """Drop every run older than ``first``, a full one, once no checkpoint of the history needs them."""
    rows = connection.execute("SELECT number FROM checkpoint WHERE run_slots IS NOT NULL AND number < ?", (first,))
    _discard(connection, [row[0] for row in rows])


def rows_of(connection: sqlite3.Connection, number: int) -> tuple[Iterator[Any], Iterator[Any], Iterator[Any]]:
    """Return iterators over the index, metadata and item rows stored under one number, in the order of a run."""
    index, metadata, items = (
        connection.execute(f"SELECT {keys}, {_REST[table]} FROM {table} WHERE checkpoint = {number} ORDER BY {keys}")
        for table, keys, _ in _TABLES
    )
    return index, metadata, items


def _discard(connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
    runs = ",".join(map(str, numbers)) or "-1"
    for table, _, _ in _TABLES:
        connection.execute(f"DELETE FROM {table} WHERE checkpoint IN ({runs})")
    connection.execute(f"UPDATE checkpoint SET run_slots = NULL, run_digest = NULL WHERE number IN ({runs})")


def _tier(slots: int) -> int:
    return max(0, int(math.log(max(slots, 1), FAN_IN)) - 1)
