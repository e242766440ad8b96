"""The volatile object space: the interface of a space, without a store."""

from __future__ import annotations

from typing import Any, NoReturn

from checkpoint import CheckpointKind, Receipt, Writer
from checkpoint.epochs import epoch_after
from checkpoint.errors import not_copied
from objectspace.errors import CheckpointProtocolError
from objectspace.space import ObjectSpace, refuse_closed


class VolatileObjectSpace(ObjectSpace):
    """An object space without a store: the same interface for tests, and for operators that need no recovery.

    >>> space = VolatileObjectSpace()
    >>> space.create_list("l").append(1)
    >>> space.get_list("l")
    List('l', [1])
    """

    _number = _epoch = 0
    """The number and the epoch of the last checkpoint."""

    def checkpoint(self, epoch: int | None = None, kind: CheckpointKind = CheckpointKind.DIFFERENTIAL) -> Receipt:
        """Keep everything in memory, and return a receipt of nothing written.

        Raises:
            EpochTypeError: the epoch is not an int of 64 bits.
            CheckpointError: it is not after the last one.

        Time: O(1). Dirties: nothing.
        """
        self._usable()
        kind = CheckpointKind(kind)
        self._may_be_refused()
        sealed = self._last_sealed()
        if epoch is None:
            epoch = max(self._epoch + 1, sealed)
        epoch = epoch_after(self._number, self._epoch, epoch, "this volatile space")
        for seal in self._barriers:
            seal(epoch)
        self._number, self._epoch = self._number + 1, epoch
        return Receipt(self._number, epoch, kind, 0, 0, 0.0)

    def save(self, writer: Writer) -> NoReturn:
        """Refuse: there is no store to save to; :meth:`checkpoint` runs what belongs to a barrier."""
        self._refuse_save()

    def on_saved(self) -> NoReturn:
        """Refuse: there was no save."""
        self._refuse_save()

    def rollback(self, epoch: int | None = None) -> NoReturn:
        """Refuse: there is nothing stored to go back to."""
        self._refuse_return()

    def at(self, epoch: int) -> NoReturn:
        """Refuse: nothing is stored of any epoch."""
        self._refuse_return()

    def _refuse_save(self) -> NoReturn:
        raise CheckpointProtocolError("a volatile space stores nothing: call checkpoint(), or use PersistedObjectSpace")

    def _refuse_return(self) -> NoReturn:
        raise CheckpointProtocolError("a volatile space has nothing to go back to: use PersistedObjectSpace")

    def close(self) -> None:
        """Close the space: its handles refuse all work. May be called twice."""
        if not self._closed:
            self._closed = True
            for handle in list(self._handles.values()):
                self._kill(handle, refuse_closed)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise not_copied(self, "it has no store: make another one where it is needed; its objects have copy()")
