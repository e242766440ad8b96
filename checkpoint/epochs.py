"""Which epochs a checkpoint may have: whole numbers of 64 bits that grow."""

from __future__ import annotations

from checkpoint.errors import CheckpointError, EpochTypeError


def require_epoch_type(epoch: int | None) -> None:
    """Refuse what is no epoch, nor ``None`` for the next one.

    Raises:
        EpochTypeError: it is none.
    """
    is_whole = isinstance(epoch, int) and not isinstance(epoch, bool)
    if epoch is not None and not (is_whole and -(2**63) <= epoch < 2**63):
        raise EpochTypeError(f"epoch is {epoch!r}: expected an int of 64 bits")


def epoch_after(number: int, last: int, epoch: int | None, where: str) -> int:
    """Return the epoch of the checkpoint after the last one.

    Args:
        number: the number of the last one; 0 where there is none.
        last: its epoch.
        epoch: the epoch that was asked for; one more by default.
        where: what holds the checkpoints.

    Raises:
        EpochTypeError: it is no int of 64 bits.
        CheckpointError: it is not after the last one.
    """
    if epoch is None:
        epoch = last + 1
    require_epoch_type(epoch)
    if number and epoch <= last:
        raise CheckpointError(
            f"epoch {epoch} is not after epoch {last}, the last one in {where}: give a greater one, or none"
        )
    return epoch
