"""Retention: which old checkpoints to drop."""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Collection
from datetime import datetime, timedelta

from checkpoint.record import timestamp
from checkpoint.session import Session
from checkpoint.tiers import RunMap

UNUSED = 0.25
"""What fraction of the file may be unused before pruning returns it to the file system."""


def first_kept(session: Session, keep: int | None, older_than: timedelta | None) -> int:
    """Return the oldest checkpoint that a retention keeps, even if its rows have already been dropped.

    Args:
        session: the store.
        keep: how many of the newest to keep, at least.
        older_than: keep all that are younger.
    """
    last = session.row("SELECT coalesce(max(number), 0) FROM checkpoint")[0]
    bounds = [] if keep is None else [last - keep + 1]
    if older_than is not None:
        bounds.append(_after_old(session, 0, last, timestamp(older_than), timestamp()))
    return int(min(bounds))


def first_younger(session: Session, age: timedelta, oldest: int, last: int) -> int:
    """Return the oldest checkpoint that an age keeps.

    The age is counted from the earlier of the times of the newest two: the clock may have been ahead for one of them.

    Args:
        session: the store.
        age: how old they may become.
        oldest: the oldest one that can be read.
        last: the newest one.

    Time: O(checkpoints dropped, and those for which the clock was ahead).
    """
    newest = "SELECT min(time) FROM (SELECT time FROM checkpoint ORDER BY number DESC LIMIT 2)"
    try:
        now = datetime.fromisoformat(session.row(newest)[0])
    except (TypeError, ValueError):
        return oldest  # It is damaged, so there is no age to tell.
    return _after_old(session, oldest, last, timestamp(age, now), timestamp(now=now))


def _after_old(session: Session, oldest: int, last: int, since: str, now: str) -> int:
    """Return the checkpoint before which all are old, from the oldest on; at most the last one.

    The first young one ends the search, whatever the records say of those after it: the clock may have been behind for
    one. A time in the future says nothing; otherwise a clock that was ahead would keep all that follows until then.

    Args:
        session: the store.
        oldest: the checkpoint to begin with.
        last: the newest one.
        since: the time from which on checkpoints are young.
        now: the current time.
    """
    find_young = "SELECT min(number) FROM checkpoint WHERE number >= ? AND time BETWEEN ? AND ?"
    find_old = "SELECT max(number) FROM checkpoint WHERE number >= ? AND number < ? AND time < ?"
    young = session.row(find_young, (oldest, since, now))[0]
    old = session.row(find_old, (oldest, last if young is None else young, since))[0]
    return oldest if old is None else int(old) + 1


def beginning_is_gone(session: Session) -> bool:
    """Return whether some of the first checkpoints were merged or pruned, so that the state before them is gone."""
    first = "SELECT 1 FROM checkpoint WHERE run_slots IS NULL OR (SELECT min(number) FROM checkpoint) > 1 LIMIT 1"
    return session.row(first) is not None


def forget(connection: sqlite3.Connection, runs: RunMap, first: int, pins: Collection[int]) -> None:
    """Drop the records of checkpoints before ``first`` that can no longer be read.

    The record of a full checkpoint says where a lineage begins, even after its rows were merged into a newer run: it
    stays while anything of the lineage does.

    Dirties: these records.
    """
    begin = runs.full_at(first, pins)
    # The map knows which are full: what the records say by now may be wrong.
    fulls = runs.fulls[bisect_left(runs.fulls, begin) : bisect_left(runs.fulls, first)]
    stay = ", ".join(map(str, fulls))
    connection.execute(
        f"DELETE FROM checkpoint WHERE number < ? AND run_slots IS NULL AND number NOT IN ({stay})", (first,)
    )
