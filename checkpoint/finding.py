"""Finds one checkpoint in a store, by its number or its epoch, or says which ones are there."""

from __future__ import annotations

from checkpoint.epochs import require_epoch_type
from checkpoint.errors import EpochTypeError, UnknownCheckpointError
from checkpoint.record import CheckpointRecord, read_records
from checkpoint.session import Session


def record_of(session: Session, number: int | None, epoch: int | None = None) -> CheckpointRecord:
    """Return the record of the checkpoint with a number or, if that is ``None``, with an epoch.

    Raises:
        EpochTypeError: that is not an int of 64 bits.
        UnknownCheckpointError: there is no such checkpoint.
    """
    column, wanted = ("epoch", epoch) if number is None else ("number", number)
    if not isinstance(wanted, int) or isinstance(wanted, bool):
        raise EpochTypeError(f"{column} is {wanted!r}: expected an int")
    require_epoch_type(wanted, column)
    for clause, given in ((f"WHERE {column} = ?", (wanted,)), ("ORDER BY number", ())):
        # The row of the wanted record may have been changed to say otherwise, and a row that matches may not be the one
        # wanted.
        found = (one for one in read_records(session, clause, given) if getattr(one, column) == wanted)
        if record := next(found, None):
            return record
    raise _unknown(session, number, wanted)


def epoch_of(session: Session, number: int) -> int:
    """Return the epoch that a checkpoint seals; 0 if there is no such checkpoint."""
    records = read_records(session, "WHERE number = ?", (number,)) if -(2**63) <= number < 2**63 else []
    return records[0].epoch if records else 0


def number_up_to(session: Session, epoch: int) -> int:
    """Return the number of the last checkpoint up to an epoch; 0 if there never was one.

    Raises:
        UnknownCheckpointError: its record may be one of those that were dropped.
    """
    before = session.row("SELECT number, epoch FROM checkpoint WHERE epoch <= ? ORDER BY epoch DESC LIMIT 1", (epoch,))
    number, its_epoch = before or (0, None)
    after = session.row("SELECT number, epoch FROM checkpoint WHERE epoch > ? ORDER BY epoch LIMIT 1", (epoch,))
    if before is None and after is not None and after[0] == after[1] and epoch < 1:
        return 0
    # Numbers have gaps only where records are gone: an older checkpoint that somebody reads stays before such a gap.
    if after is not None and after[0] > number + 1 and its_epoch != epoch:
        raise _unknown(session, None, epoch)
    return int(number)


def _unknown(session: Session, number: int | None, wanted: int) -> UnknownCheckpointError:
    """Return the error that says which checkpoint is absent, and which are there."""
    first, last, count, *numbers = session.row(
        "SELECT min(epoch), max(epoch), count(*), min(number), max(number) FROM checkpoint"
    )
    span = "it has no checkpoint yet" if first is None else f"it has epochs {first} to {last}"
    if count and type(first) is type(last) is int and count <= last - first:
        span += f", {count} in all"
    if first is not None and number is not None:
        span = f"it has {numbers[0]} to {numbers[1]}, of the epochs {first} to {last}"
    what = f"epoch {wanted}" if number is None else f"checkpoint {wanted}"
    return UnknownCheckpointError(f"{session.path} has no {what}: {span}")
