"""Large values, stored apart from the table of items: a search that passes the row of one does not read it.

SQLite keeps whole rows in the B-tree of the table, and reads all of a row to compare its key with another one. So the
row of a value of more than some hundred bytes has the number of its *body* instead, which is stored in ``state_large``.
A value is text or bytes, so an integer is always such a number. (After Lu et al., "WiscKey: Separating Keys from Values
in SSD-conscious Storage", 2016.)

A body is written with the run of a checkpoint, and a merged run refers to the same one: what is large is written once.
A body is deleted with the last row that refers to it, and never with a row of another slot, whatever number damage may
have left there. The checkpoint that it came with is stored beside it, and every run that refers to the body holds that
checkpoint, so a copy of older checkpoints knows what it needs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from checkpoint.errors import REPAIR, CorruptStoreError
from checkpoint.filters import hash_of
from checkpoint.lookup import newest_of
from checkpoint.run import Payload, fault_of
from checkpoint.session import Session
from checkpoint.tiers import RunNumber, StoredRun

INLINE_BYTES = 400
"""A value of more bytes lies apart from its row, which would be too long for its page with a key of usual length."""

_BODY_COST = 4
"""Deleting a row that refers to a body takes as long as deleting so many others."""

_FEW_BODIES = 16
"""So many bodies are looked for one by one in the runs that may share them."""

Reference = tuple[int, RunNumber, int, Any]
"""The number of a body, and the run, the object and the slot of a row that refers to it."""


def set_aside(
    connection: sqlite3.Connection, run: RunNumber, columns: Sequence[Sequence[Any]], parts: Sequence[RunNumber] = ()
) -> Sequence[Payload | int | None]:
    """Return the values of some rows as they are to be written, and write the bodies of the large ones.

    Args:
        connection: inside a transaction of the caller.
        run: the number of the run that the rows are written under.
        columns: the objects, the slots and the values of the rows.
        parts: the runs, oldest first, that the rows come from and whose bodies they share.

    Raises:
        TypeError: a value is neither text nor bytes.
        CorruptStoreError: the same, for a row that was already stored.

    Time: O(rows); O(parts · log n) for each value that is shared.
    Dirties: a row for each body that is written.
    """
    objects, slots, values = columns[:3]
    found = [*values]
    for place in _large_places(columns, is_stored=bool(parts)):
        shared = _shared(connection, parts, objects[place], slots[place])
        if shared is None:
            row = int(run), _hash(objects[place], slots[place]), values[place]
            shared = connection.execute(
                "INSERT INTO state_large (checkpoint, hash, body) VALUES (?, ?, ?)", row
            ).lastrowid
        found[place] = shared
    return found


def _large_places(columns: Sequence[Sequence[Any]], *, is_stored: bool) -> list[int]:
    """Return the places of the values that are large."""
    values = columns[2]
    if set(map(type, values)) - _PLAIN:
        for object_id, slot, value in zip(*columns[:3], strict=True):
            if fault_of(value) is not None:
                raise _refusal(object_id, slot, value, is_stored=is_stored)
    # Text has at most four bytes per character: most values are seen at once to be short, whatever they hold.
    if max(map(len, filter(None, values)), default=0) <= INLINE_BYTES // 4:
        return []
    return [place for place, value in enumerate(values) if value and _size(value) > INLINE_BYTES]


def _refusal(object_id: object, slot: object, value: object, *, is_stored: bool) -> Exception:
    if is_stored:
        return CorruptStoreError(f"slot {slot!r:.80} of object {object_id} is damaged ({fault_of(value)}): {REPAIR}")
    return TypeError(f"a value is a {type(value).__name__}: expected text or bytes")


def _size(value: Payload) -> int:
    is_plain = isinstance(value, bytes) or value.isascii()
    return len(value) if is_plain else len(value.encode(errors="surrogatepass"))  # type: ignore[union-attr]


def _shared(connection: sqlite3.Connection, parts: Sequence[RunNumber], object_id: int, slot: Any) -> int | None:
    """Return the number of the body that the newest row of a slot in some runs refers to."""
    if not parts:
        return None
    newest_first = (*reversed(parts), object_id, slot)
    row = connection.execute(newest_of("value", "state_item", "slot", len(parts)), newest_first).fetchone()
    return row[0] if row and type(row[0]) is int else None


def delete_items(
    connection: sqlite3.Connection, condition: str, parameters: Sequence[object], holders: Iterable[RunNumber]
) -> int:
    """Delete rows of items and the bodies that no other row refers to.

    Args:
        connection: inside a transaction of the caller.
        condition: which rows.
        parameters: those of the condition.
        holders: every run that stays and has checkpoints in common with the runs of these rows: it may share bodies.

    Returns:
        how many rows there were; one that refers to a body counts for as many as take the same time to delete.

    Time: O(rows), and for large values O(holders), with as many rows of each at most. Dirties: the rows.
    """
    gone = _referred(connection, condition, parameters)
    rows = connection.execute(f"DELETE FROM state_item WHERE {condition}", parameters).rowcount
    if not gone:
        return rows
    held, others = _held(connection, holders, len(gone)) if len(gone) > _FEW_BODIES else (set(), [*holders])
    drop = _DROP_UNHELD.format(", ".join(map(str, others)))
    left = [one for one in gone if one[0] not in held]
    connection.executemany(drop, [(body, _hash(*key), run, *key, body) for body, run, *key in left])
    return rows + (_BODY_COST - 1) * len(gone)


def _held(connection: sqlite3.Connection, holders: Iterable[RunNumber], most: int) -> tuple[set[int], list[RunNumber]]:
    """Return the bodies that those runs refer to that have so many rows at most, and the other runs.

    A history may have a thousand small runs: to look for each body in each of them takes longer than to read them.
    """
    bodies, others = set[int](), []
    for run in holders:
        found = connection.execute(_FIRST_BODIES, (run, most + 1)).fetchall()
        if len(found) > most:
            others.append(run)
        else:
            bodies.update(row[0] for row in found)
    return bodies, others


def _referred(connection: sqlite3.Connection, condition: str, parameters: Sequence[object]) -> list[Reference]:
    if not has_bodies(connection):
        return []
    statement = (
        f"SELECT value, checkpoint, object, slot FROM state_item WHERE {condition} AND typeof(value) = 'integer'"
    )
    return connection.execute(statement, parameters).fetchall()


def has_bodies(connection: sqlite3.Connection) -> bool:
    """Return whether any value is stored apart from its row."""
    return connection.execute("SELECT 1 FROM state_large LIMIT 1").fetchone() is not None


def copy_for(connection: sqlite3.Connection, number: int) -> None:
    """Give the rows of a complete image bodies of their own instead of those that they share with older runs.

    Time: O(rows). Dirties: a row for each body.
    """
    after: tuple[int, Any] | None = None
    while rows := connection.execute(*_foreign(number, after)).fetchall():
        for object_id, slot, body in rows:
            copied = connection.execute(_COPY, (number, body)).lastrowid
            connection.execute(_REFER, (copied, number, object_id, slot))
        after = rows[-1][:2]


def _foreign(number: int, after: tuple[int, Any] | None) -> tuple[str, tuple[object, ...]]:
    beyond = "" if after is None else "AND (object, slot) > (?, ?)"
    statement = (
        "SELECT object, slot, value FROM state_item CROSS JOIN state_large ON id = value"
        " WHERE state_item.checkpoint = ?"
        f" AND typeof(value) = 'integer' AND state_large.checkpoint <> ? {beyond} ORDER BY object, slot LIMIT 1000"
    )
    return statement, (number, number, *(after or ()))


def drop_unused(connection: sqlite3.Connection, dropped: Iterable[RunNumber]) -> None:
    """Drop every body that no row refers to: damage can leave some.

    Args:
        connection: inside a transaction of the caller.
        dropped: runs that nobody reads, whose rows are deleted later. They no longer refer to anything: a damaged row
            would leave its body behind.

    Time: O(rows of all runs). Dirties: these bodies, and the rows of the dropped runs that refer to any.
    """
    connection.executemany(_UNREFER, [(run,) for run in dropped])
    connection.execute(f"DELETE FROM state_large WHERE {_IS_UNUSED}")


def find_unused(session: Session) -> Iterator[str]:
    """Yield what is wrong if a body has no row that refers to it.

    Time: O(rows of all runs).
    """
    if session.has_table("state_large"):
        for (number,) in session.rows(f"SELECT id FROM state_large WHERE {_IS_UNUSED} LIMIT 1"):
            yield f"state_large has the body {number}, which no row refers to"


def find_wrong(session: Session, run: StoredRun) -> Iterator[str]:
    """Yield each row that refers to a body which would not be deleted with its last row, but too early or never.

    Time: O(rows). They are streamed.
    """
    for _, object_id, slot, born, _ in _misnamed(session, run):
        whose = f"checkpoint {born}" if not _is_in(run, born) else "another slot"
        yield f"the body of slot {slot!r} of object {object_id} in run {run.run} is said to be of {whose}"


def mend(session: Session, connection: sqlite3.Connection, runs: Iterable[StoredRun]) -> None:
    """Make each body be deleted with the last row that refers to it.

    Time: O(rows). Dirties: the rows of the bodies that would not.
    """
    for run in sorted(runs, key=lambda run: run.first - run.last):  # The widest first: the others lie within it.
        for body, object_id, slot, born, _ in list(_misnamed(session, run)):
            number = born if _is_in(run, born) else run.last
            connection.execute(_RENAME, (number, _hash(object_id, slot), body))


def _misnamed(session: Session, run: StoredRun) -> Iterator[tuple[Any, ...]]:
    """Yield what the file says of bodies that rows of a run refer to, where it is not what was written."""
    if session.has_table("state_large") and session.row("SELECT 1 FROM state_large LIMIT 1"):
        with session.cursor(_SAID, (run.run,)) as fetch:
            while rows := fetch(_PORTION_ROWS):
                yield from (row for row in rows if not _is_in(run, row[3]) or row[4] != _hash(row[1], row[2]))


def _hash(object_id: object, slot: Any) -> int:
    """Return the hash of an object and a slot; for a damaged row, one that is the hash of nothing."""
    return hash_of(object_id, slot) if isinstance(object_id, int) else -1


def _is_in(run: StoredRun, born: object) -> bool:
    return isinstance(born, int) and run.first <= born <= run.last


_PLAIN = {str, bytes, type(None)}

_DROP_UNHELD = """
    DELETE FROM state_large WHERE id = ? AND hash = ? AND checkpoint <= ? AND NOT EXISTS (
        SELECT 1 FROM state_item WHERE object = ? AND slot = ? AND value = ? AND checkpoint IN ({})
    )
"""
"""Drops a body with a row of a run, unless a run that stays refers to it.

What the file says of runs and bodies is not enough to drop one: if that is damaged, a row would lose the body that it
needs. A body that came after the run is not the one that the row referred to: SQLite gives the number of a deleted body
to a later one while rows of dropped runs wait to be deleted.
"""

_COPY = "INSERT INTO state_large (checkpoint, hash, body) SELECT ?, hash, body FROM state_large WHERE id = ?"

_REFER = "UPDATE state_item SET value = ? WHERE checkpoint = ? AND object = ? AND slot = ?"

_FIRST_BODIES = "SELECT iif(typeof(value) = 'integer', value, NULL) FROM state_item WHERE checkpoint = ? LIMIT ?"

_UNREFER = "UPDATE state_item SET value = NULL WHERE checkpoint = ? AND typeof(value) = 'integer'"

_RENAME = "UPDATE state_large SET checkpoint = ?, hash = ? WHERE id = ?"

_IS_UNUSED = "id NOT IN (SELECT value FROM state_item WHERE typeof(value) = 'integer')"

_SAID = """
    SELECT id, object, slot, state_large.checkpoint, hash FROM state_item CROSS JOIN state_large ON id = value
    WHERE state_item.checkpoint = ? AND typeof(value) = 'integer'
"""

_PORTION_ROWS = 4_096
