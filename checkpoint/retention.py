"""Retention: which old checkpoints to let go of."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from datetime import timedelta

from checkpoint.record import timestamp
from checkpoint.session import Session
from checkpoint.tiers import RunMap

Progress = Callable[[int, int], None]
"""Is told how many item rows are merged, and how many are to be merged in all."""

UNUSED = 0.25
"""Which part of the file may hold nothing before pruning gives it back to the file system."""


def silent(done: int, total: int) -> None:
    """Tell nobody."""


def first_kept(session: Session, keep: int | None, older_than: timedelta | None) -> int:
    """Return the oldest checkpoint that a retention keeps, be it that its rows were let go of already.

    Args:
        session: the store.
        keep: how many of the newest to keep at least.
        older_than: keep all that are younger.
    """
    last = session.row("SELECT coalesce(max(number), 0) FROM checkpoint")[0]
    bounds = [] if keep is None else [last - keep + 1]
    if older_than is not None:
        young = session.row("SELECT min(number) FROM checkpoint WHERE time >= ?", (timestamp(older_than),))[0]
        bounds.append(last if young is None else young)
    return int(min(bounds))


def first_younger(session: Session, age: timedelta, first: int) -> int:
    """Return the oldest checkpoint up to ``first`` that is younger than an age, or ``first``.

    Time: O(checkpoints that are younger).
    """
    oldest = timestamp(age)
    while first > 1 and (row := session.row("SELECT time FROM checkpoint WHERE number = ?", (first - 1,))):
        if row[0] < oldest:
            break
        first -= 1
    return first


def beginning_is_gone(session: Session) -> bool:
    """Tell whether some of the first checkpoints were merged or pruned, so that the state before them is no more."""
    first = "SELECT 1 FROM checkpoint WHERE run_slots IS NULL OR (SELECT min(number) FROM checkpoint) > 1 LIMIT 1"
    return session.row(first) is not None


def forget(connection: sqlite3.Connection, runs: RunMap, first: int, pins: Collection[int]) -> None:
    """Drop the records of checkpoints before ``first`` that cannot be read any more.

    The record of a full checkpoint says where a lineage begins, also after its rows were merged into a newer run: it
    stays while anything of the lineage does.

    Dirties: these records.
    """
    begin = runs.full_at(first, pins)
    # What is full is known of the map: what the records say of it by now may be wrong.
    stay = ", ".join(str(number) for number in runs.fulls if number >= begin)
    connection.execute(
        f"DELETE FROM checkpoint WHERE number < ? AND run_slots IS NULL AND number NOT IN ({stay})", (first,)
    )
