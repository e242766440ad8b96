"""Which epochs a checkpoint may have: increasing 64-bit integers."""

from __future__ import annotations

from checkpoint.errors import CheckpointError, EpochTypeError


def require_epoch_type(epoch: int | None) -> None:
    """Refuse anything but an epoch or ``None``, which stands for the next one.

    Raises:
        EpochTypeError: it is neither.
    """
    is_whole = isinstance(epoch, int) and not isinstance(epoch, bool)
    if epoch is not None and not (is_whole and -(2**63) <= epoch < 2**63):
        raise EpochTypeError(f"epoch is {epoch!r}: expected an int of 64 bits")


def epoch_after(number: int, last: int, epoch: int | None, where: str) -> int:
    """Return the epoch of the checkpoint after the last one.

    Args:
        number: the number of the last one; 0 if there is none.
        last: its epoch.
        epoch: the epoch that was asked for; one more by default.
        where: what holds the checkpoints.

    Raises:
        EpochTypeError: it is not a 64-bit int.
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
