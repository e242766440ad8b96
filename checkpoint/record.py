"""What a store knows of its checkpoints: the rows of the table ``checkpoint``."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Self

from checkpoint import seals
from checkpoint.errors import RESTORE, CorruptStoreError
from checkpoint.run import CheckpointKind, Measure
from checkpoint.schema import FORMAT_VERSION
from checkpoint.session import Session


@dataclass(frozen=True)
class CheckpointRecord:
    """What the store knows of one checkpoint."""

    number: int
    epoch: int
    kind: CheckpointKind
    parent: int | None
    slots: int
    bytes: int
    digest: str
    time: str
    format: int
    run_slots: int | None
    run_digest: str | None

    @classmethod
    def made_now(cls, number: int, epoch: int, kind: CheckpointKind, parent: int | None, found: Measure) -> Self:
        """Return the record of a checkpoint whose rows were just written."""
        slots, size, digest = found
        return cls(number, epoch, kind, parent, slots, size, digest, timestamp(), FORMAT_VERSION, slots, digest)


class Newest(NamedTuple):
    """Number and epoch of the newest checkpoint of a store; 0 before the first."""

    number: int = 0
    epoch: int = 0


def read_records(session: Session, clause: str, parameters: tuple[object, ...] = ()) -> list[CheckpointRecord]:
    """Return the records that a clause of SQL selects.

    Raises:
        CorruptStoreError: one of them is damaged.
    """
    if session.row("PRAGMA user_version")[0] < seals.FORMAT:
        rows = session.rows(f"SELECT {_COLUMNS} FROM checkpoint {clause}", parameters)
    else:
        rows = _read_sealed(session, clause, parameters)
    try:
        return [CheckpointRecord(row[0], row[1], CheckpointKind(row[2]), *row[3:]) for row in rows]
    except ValueError as error:
        raise records_damaged(session) from error


def _read_sealed(session: Session, clause: str, parameters: tuple[object, ...]) -> list[tuple[Any, ...]]:
    """Return the records as they were written if that can be determined, otherwise as they are."""
    rows = session.rows_as_stored(f"SELECT {_SEALED}, run_slots, run_digest FROM checkpoint {clause}", parameters)
    told = [(*(seals.written(seals.CHECKPOINT, row[:-2]) or row[:-2])[:-2], *row[-2:]) for row in rows]
    are_numbers = all(type(row[0]) is type(row[1]) is int for row in told)
    if not are_numbers or not all(cell.isascii() for row in told for cell in row[:-1] if isinstance(cell, str)):
        raise records_damaged(session)
    return told


def read_next_object_id(session: Session) -> int:
    """Return an id greater than any that an object was given.

    Raises:
        CorruptStoreError: it is damaged.
    """
    row = session.row("SELECT value FROM setting WHERE key = 'next_object_id'") or (1,)
    if not isinstance(row[0], int):
        raise records_damaged(session)
    return row[0]


def records_damaged(session: Session) -> CorruptStoreError:
    """Return the error to raise if the records of checkpoints or runs cannot be what was written."""
    return CorruptStoreError(f"{session.path}: the table of checkpoints is damaged: {RESTORE}")


def write_record(connection: sqlite3.Connection, record: CheckpointRecord) -> None:
    """Write the record of a new checkpoint.

    Dirties: one row.
    """
    cells = vars(record) | {"kind": str(record.kind)}
    seal = seals.seal_of([cells.get(name) for name in seals.CHECKPOINT.columns])
    connection.execute(
        f"INSERT INTO checkpoint ({_COLUMNS}, seal) VALUES ({_PLACEHOLDERS}, ?)", (*cells.values(), seal)
    )


def timestamp(ago: timedelta = timedelta(0), now: datetime | None = None) -> str:
    """Return the time as records keep it, in UTC, so that timestamps sort as text in the order of time."""
    try:
        then = (now or datetime.now(UTC)) - ago
    except OverflowError:  # longer ago than dates reach
        then = datetime.min.replace(tzinfo=UTC)
    return then.isoformat(timespec="milliseconds")


_SEALED = ", ".join((*seals.CHECKPOINT.columns, "seal"))
_COLUMNS = ", ".join(CheckpointRecord.__dataclass_fields__)
_PLACEHOLDERS = ", ".join("?" for _ in CheckpointRecord.__dataclass_fields__)
