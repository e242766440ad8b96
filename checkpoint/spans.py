"""The range of slots in which a run has rows of each object: stored with larger runs, to spare searching them for it.

If keys grow with time, or much is loaded at once, a slot lies between the least and the greatest one of only a few
runs. The others need not be asked for it, even in a process that has just started.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple
from zlib import crc32

from checkpoint.run import Slot
from checkpoint.session import Session
from checkpoint.tiers import RunNumber

LEAST_ROWS = 4_096
"""Runs of at least so many rows are stored with their spans: for smaller ones the searches cost more than they save."""

MOST_OBJECTS = 16
"""For a run with more objects than that, the spans are not determined."""

Execute = Callable[[str, Mapping[str, Any]], Iterable[Any]]
"""Returns the rows that a statement gives, with parameters by name."""


class Span(NamedTuple):
    """The least and the greatest slot of an object in one run.

    ``has_deletions`` tells whether any of its first or last rows deletes a slot, as when a queue has been filled and
    emptied.
    """

    object: int
    low: Slot
    high: Slot
    has_deletions: bool


class RunSpan(NamedTuple):
    """A run that has rows of an object, with their least and greatest slot."""

    run: RunNumber
    low: Slot
    high: Slot


def search(execute: Execute, run: RunNumber) -> list[Span] | None:
    """Return the spans of a run by searching it, or ``None`` if it has too many objects.

    Time: O(objects · log n), and some hundred rows of each.
    """
    rows = list(execute(_SPANS, {"run": run, "most": MOST_OBJECTS + 1}))
    return list(map(_span, rows)) if len(rows) <= MOST_OBJECTS else None


def store(connection: sqlite3.Connection, run: RunNumber, rows: int) -> None:
    """Write the spans of a run if it is large enough for that.

    Args:
        connection: inside a transaction.
        run: the number of the run, which is complete.
        rows: how many item rows it has.

    Time: as of :func:`search`. Dirties: a row for each object of the run, or none.
    """
    found = search(connection.execute, run) if rows >= LEAST_ROWS else None
    for span in found or ():
        row = (run, *span[:3], int(span.has_deletions), len(found or ()))
        connection.execute("INSERT INTO span VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, _checksum(row)))


def stored(session: Session, runs: Sequence[RunNumber]) -> dict[RunNumber, list[Span]]:
    """Return the spans of those among some runs that are stored with spans that can be trusted.

    Time: O(runs · log n).
    """
    if not runs or not session.has_table("span"):
        return {}
    wanted = ", ".join(f"({run})" for run in runs)
    rows = session.peek_all(f"SELECT span.* FROM (VALUES {wanted}) AS wanted JOIN span ON run = wanted.column1", ())
    return {run: found for run, group in groupby(rows, _run) if (found := _trusted(list(group))) is not None}


def untrusted(session: Session) -> list[RunNumber]:
    """Return the runs whose stored spans are not used because one is missing or has a wrong checksum.

    Time: O(spans).
    """
    if not session.has_table("span"):
        return []
    runs = [run for (run,) in session.rows("SELECT DISTINCT run FROM span")]
    trusted = stored(session, runs)
    return [run for run in runs if run not in trusted]


def find_wrong(session: Session) -> Iterator[tuple[RunNumber, str]]:
    """Yield each run whose stored spans are not those of its rows, with what is wrong: they might hide a slot.

    Time: O(runs that have some · objects · log n).
    """
    if not session.has_table("span"):
        return
    for (run,) in session.rows("SELECT DISTINCT run FROM span"):
        if stored(session, [run]).get(run) != search(session.rows, run):
            yield run, f"the spans of run {run} are not those of its rows"


def _trusted(rows: list[Any]) -> list[Span] | None:
    """Return the spans in the rows of one run, or ``None`` if one of them is missing or damaged."""
    if any(row[-1] != _checksum(row[:-1]) or row[-2] != len(rows) for row in rows):
        return None
    return [_span(row[1:5]) for row in rows]


def _span(row: tuple[Any, ...]) -> Span:
    object_id, low, high, deletes = row
    return Span(object_id, low, high, bool(deletes))


def _checksum(row: tuple[Any, ...]) -> int:
    return crc32(repr(row).encode())


def _run(row: tuple[Any, ...]) -> Any:
    return row[0]


_SPANS = """
    WITH RECURSIVE found(object) AS (
        SELECT min(object) FROM state_item WHERE checkpoint = :run
        UNION ALL
        SELECT (SELECT min(object) FROM state_item WHERE checkpoint = :run AND object > found.object) FROM found
        WHERE found.object IS NOT NULL
    )
    SELECT object,
        (SELECT slot FROM state_item AS item WHERE checkpoint = :run AND item.object = found.object
            ORDER BY slot LIMIT 1),
        (SELECT slot FROM state_item AS item WHERE checkpoint = :run AND item.object = found.object
            ORDER BY slot DESC LIMIT 1),
        (SELECT count(*) > count(value) FROM (SELECT value FROM state_item AS item
            WHERE checkpoint = :run AND item.object = found.object ORDER BY slot LIMIT 256))
        OR (SELECT count(*) > count(value) FROM (SELECT value FROM state_item AS item
            WHERE checkpoint = :run AND item.object = found.object ORDER BY slot DESC LIMIT 256))
    FROM found WHERE object IS NOT NULL LIMIT :most
"""
"""The objects of a run with what a span says of each: a few searches for each object, and some hundred rows."""
