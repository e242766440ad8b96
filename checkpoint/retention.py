"""Retention: which old checkpoints to let go of, and how their rows become part of what is kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
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


def first_kept(session: Session, runs: RunMap, keep: int | None, older_than: timedelta | None) -> int:
    """Return the oldest checkpoint that a retention keeps and that can still be read; 0 for an empty store.

    Args:
        session: the store.
        runs: its runs.
        keep: how many of the newest to keep at least.
        older_than: keep all that are younger.
    """
    last = session.row("SELECT coalesce(max(number), 0) FROM checkpoint")[0]
    bounds = [] if keep is None else [last - keep + 1]
    if older_than is not None:
        young = session.row("SELECT min(number) FROM checkpoint WHERE time >= ?", (timestamp(older_than),))[0]
        bounds.append(last if young is None else young)
    return runs.readable(min(bounds))


def reduce(
    runs: RunMap,
    first: int,
    pins: Sequence[int],
    merge: Callable[[Sequence[int]], None],
    progress: Progress = silent,
) -> None:
    """Merge every run that neither a checkpoint from ``first`` on nor a pin needs to stand alone, step by step.

    Args:
        runs: the runs, which ``merge`` keeps true.
        first: the oldest checkpoint to keep.
        pins: the checkpoints that somebody is reading.
        merge: merges neighbouring runs in a transaction of its own.
        progress: is told before each step and at the end.

    Time: O(rows merged).
    Dirties: these rows.
    """
    done, total = 0, runs.rows(runs.surplus(first, pins))
    while group := runs.next_surplus(first, pins):
        progress(done, total)
        done += runs.rows(group[:-1])
        merge(group)
    progress(total, total)


def beginning_is_gone(session: Session) -> bool:
    """Tell whether some of the first checkpoints were merged or pruned, so that the state before them is no more."""
    first = "SELECT 1 FROM checkpoint WHERE run_slots IS NULL OR (SELECT min(number) FROM checkpoint) > 1 LIMIT 1"
    return session.row(first) is not None


def forget(connection: sqlite3.Connection, runs: RunMap, first: int, pins: Sequence[int]) -> None:
    """Drop the records of checkpoints before ``first`` that cannot be read any more.

    The record of a full checkpoint says where a lineage begins, also after its rows were merged into a newer run: it
    stays while anything of the lineage does.

    Dirties: these records.
    """
    begin = runs.needed_full(first, pins)
    connection.execute(
        "DELETE FROM checkpoint WHERE number < ? AND run_slots IS NULL AND NOT (kind = 'full' AND number >= ?)",
        (first, begin),
    )
