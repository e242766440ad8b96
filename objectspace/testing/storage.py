"""Runs on a file from one checkpoint on, with an operation of the storage that fails."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from checkpoint import CheckpointStore
from objectspace.testing.faults import FAILURES, ONCE, Fault, failing
from objectspace.testing.runs import History, Run


class FaultyRun(Run):
    """A run that recovers from a checkpoint, plays the next epoch on failing storage, and the one after on a sound one.

    If the storage fails once, the space is rolled back and the operator opened again in the same process, if that is
    possible. Otherwise the process ends, and the next one recovers.

    Args:
        history: the events.
        path: where its file may lie.
        image: the file as the checkpoint left it.
        done: the epoch of that checkpoint, or -1 if there is none.
        fault: what fails.
    """

    def __init__(self, history: History, path: Path, image: bytes, done: int, fault: Fault) -> None:
        super().__init__(history)
        self._path, self._fault = path, fault
        self._is_open = self._was_rolled_back = self._was_restarted = False
        self.last = min(done + 2, len(history.epochs))
        path.write_bytes(image)
        with failing(fault):
            try:
                self._begin()
                while not self._is_done():
                    pass
                self.found = self.held()
            finally:
                self._die()

    def _begin(self) -> None:
        try:
            self._start()
        except FAILURES:
            self._restart()

    def _is_done(self) -> bool:
        """Play an epoch, and return whether it was the last one; if the storage fails, go back to the checkpoint."""
        try:
            epoch = self.durable() + 1
            if epoch > self.last:
                return True
            self.outputs[epoch] = self.history.play(self.operator, epoch)
            self.space.checkpoint(epoch=epoch + 1)
            self._fault.is_over = True
        except FAILURES:
            self._go_back()
        return False

    def _go_back(self) -> None:
        """Handle a failure in this process if it is the first one and the storage fails once."""
        if self._fault.has_struck and self._fault.mode == ONCE and not self._was_rolled_back:
            self._was_rolled_back = True
            with suppress(*FAILURES):
                self.space.rollback()
                self.operator = self.history.opened(self.space)
                return
        self._restart()

    def _restart(self) -> None:
        """Handle a failure by ending this process; raise it again if the storage is sound."""
        if not self._fault.has_struck or self._was_restarted:
            raise
        self._die()
        self._was_restarted = self._fault.is_over = True
        self._start()

    def _start(self) -> None:
        self.store = CheckpointStore(self._path, durability="normal")
        self._is_open = True
        self.open(self.store)

    def _die(self) -> None:
        """End without saving anything."""
        if self._is_open:
            self._is_open = False
            with suppress(*FAILURES):
                self.store.close()
