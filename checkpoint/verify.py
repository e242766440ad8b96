"""Verifying a store: the digest of every run, rows that belong to none, and the structure of the file."""

from __future__ import annotations

from checkpoint import merge
from checkpoint.errors import CorruptStoreError
from checkpoint.record import CheckpointRecord, read_records
from checkpoint.session import SQLITE_ERRORS, Session


def verify(session: Session) -> int:
    """Check all that a store holds, and return the number of its runs.

    Raises:
        CorruptStoreError: the first damage found, by number and epoch where it lies in a run.
    Time: O(rows). The rows are streamed.
    """
    damage = session.row("PRAGMA integrity_check(1)")[0]
    if damage != "ok":
        raise CorruptStoreError(f"{session.path} is damaged: SQLite says {damage}; restore it from a copy")
    records = read_records(session, "WHERE run_slots IS NOT NULL OR run_digest IS NOT NULL ORDER BY number")
    for record in records:
        _verify_run(session, record)
    _verify_no_orphans(session, {record.number for record in records})
    return len(records)


def _verify_run(session: Session, record: CheckpointRecord) -> None:
    try:
        found = merge.measured(session.connection, record.number)
    except SQLITE_ERRORS as error:
        raise session.failed(error) from error
    if (found.slots, found.digest) != (record.run_slots, record.run_digest):
        raise CorruptStoreError(
            f"{session.path}: the rows of checkpoint {record.number} (epoch {record.epoch}) do not have the digest"
            f" {record.run_digest} that was recorded with them: restore the file from a copy"
        )


def _verify_no_orphans(session: Session, numbers: set[int]) -> None:
    for table, column in merge.NUMBERED[1:]:
        for number in merge.numbers_in(session.connection, table):
            if number not in numbers:
                raise CorruptStoreError(
                    f"{session.path}: {table} has rows under {column} {number}, which has no run: restore the file"
                    " from a copy"
                )
