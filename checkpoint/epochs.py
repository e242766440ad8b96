"""Which epochs a checkpoint may have: increasing 64-bit integers."""

from __future__ import annotations

from checkpoint.errors import CheckpointError, EpochTypeError

_SHOWN_BITS = 128
"""Integers of more bits are not shown in messages: Python has no text of those of more than 4,300 digits."""


def require_epoch_type(epoch: int | None, what: str = "epoch") -> None:
    """Refuse anything but an epoch or ``None``, which stands for the next one.

    Args:
        epoch: the epoch, or the number of a checkpoint.
        what: what it is called.

    Raises:
        EpochTypeError: it is neither.
    """
    is_whole = isinstance(epoch, int) and not isinstance(epoch, bool)
    if epoch is not None and not (is_whole and -(2**63) <= epoch < 2**63):
        is_long = is_whole and epoch.bit_length() > _SHOWN_BITS
        found = f"an int of {epoch.bit_length()} bits" if is_long else repr(epoch)
        raise EpochTypeError(f"{what} is {found}: expected an int of 64 bits")


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
