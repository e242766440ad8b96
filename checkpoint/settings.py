"""Settings that are kept in the store, so that whoever opens it next keeps as much as whoever had it open before."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import orjson

from checkpoint.errors import RESTORE, CorruptStoreError
from checkpoint.record import Newest, timestamp
from checkpoint.session import Session

DEFAULT_HISTORY = 16
"""How many of the newest checkpoints can be read if nothing else is set."""

DEFAULT_RECORDS = 10_000
"""For how many of the newest checkpoints the record is kept if nothing else is set."""


ROLLBACKS = "rollbacks"
"""The setting that records the last rollbacks: a JSON list of objects, oldest first."""

_ROLLBACKS_KEPT = 100

_MOST_SECONDS = timedelta.max // timedelta(seconds=1)
"""Seconds are kept as a float, in which the longest age would round to more than a timedelta can hold."""


@dataclass(frozen=True)
class Retention:
    """Which checkpoints a store keeps on its own; a checkpoint that somebody reads is kept too.

    Args:
        history: how many of the newest checkpoints stay readable, at least.
        keep_for: checkpoints younger than this stay readable as well; None for no such rule.
        records: for how many of the newest the record is kept: number, epoch, time, size and digest.
    """

    history: int = DEFAULT_HISTORY
    keep_for: timedelta | None = None
    records: int = DEFAULT_RECORDS

    def __post_init__(self) -> None:
        for name, count in (("history", self.history), ("records", self.records)):
            if type(count) is not int or not 1 <= count < 2**63:
                raise ValueError(f"{name} is {count!r}: expected a whole number of checkpoints, from 1 on")
        if not isinstance(self.keep_for, timedelta | None):
            raise TypeError(f"keep_for is {self.keep_for!r}: expected a timedelta")
        if self.keep_for is not None and self.keep_for < timedelta(0):
            raise ValueError(f"keep_for is {self.keep_for}: expected an age in the past")


def read_retention(session: Session) -> Retention:
    """Return the retention that is kept in a store.

    Raises:
        CorruptStoreError: it is damaged.
    """
    found = dict(session.rows("SELECT key, value FROM setting WHERE key IN ('history', 'keep_for', 'records')"))
    seconds = found.get("keep_for")
    try:
        return Retention(
            found.get("history", DEFAULT_HISTORY),
            None if seconds is None else timedelta(seconds=min(seconds, _MOST_SECONDS)),
            found.get("records", DEFAULT_RECORDS),
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise CorruptStoreError(f"{session.path}: the settings are damaged ({error}): {RESTORE}") from error


def write_retention(connection: sqlite3.Connection, retention: Retention) -> None:
    """Save a retention in a store.

    Dirties: three settings.
    """
    seconds = None if retention.keep_for is None else retention.keep_for.total_seconds()
    values = {"history": retention.history, "keep_for": seconds, "records": retention.records}
    connection.executemany("INSERT OR REPLACE INTO setting VALUES (?, ?)", values.items())


def note_rollback(connection: sqlite3.Connection, last: Newest, number: int) -> None:
    """Record in the store that checkpoints were dropped; numbers and epochs are reused afterwards.

    Args:
        connection: the store, inside a transaction.
        last: the newest checkpoint until now.
        number: the newest one from now on.

    Dirties: one setting.
    """
    if last.number <= number:
        return
    row = connection.execute("SELECT value FROM setting WHERE key = ?", (ROLLBACKS,)).fetchone()
    known: Any = []
    with suppress(orjson.JSONDecodeError, TypeError):  # What only informs must not keep anybody from rolling back.
        known = orjson.loads(row[0]) if row else []
    if not isinstance(known, list):
        known = []
    entry = {"time": timestamp(), "from": last.number, "from_epoch": last.epoch, "to": number}
    text = orjson.dumps([*known, entry][-_ROLLBACKS_KEPT:]).decode()
    connection.execute("INSERT OR REPLACE INTO setting VALUES (?, ?)", (ROLLBACKS, text))
