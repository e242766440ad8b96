"""Upkeep of a location by the driver, beside the micro-batches: none of them waits for it."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from checkpoint.chain import Chain, Collected, Location
from checkpoint.errors import CheckpointError

_LOG = logging.getLogger("objectspace.spark")


@dataclass(frozen=True)
class Retention:
    """What is kept of a space at a location.

    Args:
        epochs: how many of the newest epochs stay readable.
        every: after how many epochs garbage is collected.
        grace_seconds: how old a run file that no epoch names must be to go: longer than any epoch takes.

    Raises:
        ValueError: nothing would be kept.
    """

    epochs: int = 64
    every: int = 64
    grace_seconds: float = 86_400

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.every < 1 or self.grace_seconds < 0:
            raise ValueError(
                f"{self}: expected at least 1 epoch to keep and between collections, and 0 seconds or more"
            )


class Upkeep:
    """Collects the garbage of a space in a daemon thread, at most one collection at a time.

    It works on a chain of its own, so that it shares nothing with the driver but the files. What fails is logged and
    tried again after the next epochs: the epochs themselves do not need it.

    Args:
        location: where the space lies.
        retention: what is kept.
    """

    def __init__(self, location: Location, retention: Retention) -> None:
        self.retention = retention
        self.last: Collected | None = None
        self._location = location
        self._thread: threading.Thread | None = None

    def published(self, epoch: int) -> bool:
        """Note a new epoch, and tell whether a collection has begun.

        Time: O(1): the work is done in the background.
        """
        if epoch % self.retention.every or self.is_busy():
            return False
        # A daemon: a driver may end in the midst of it, and the next collection finishes the work.
        self._thread = threading.Thread(target=self._collect, name="objectspace-upkeep", daemon=True)
        self._thread.start()
        return True

    def is_busy(self) -> bool:
        """Tell whether a collection is under way."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the collection under way, where there is one.

        Args:
            timeout: seconds.
        """
        if self._thread is not None:
            self._thread.join(timeout)

    def _collect(self) -> None:
        try:
            chain = Chain.open(self._location)
            self.last = chain.collect(self.retention.grace_seconds, self.retention.epochs)
            _LOG.info("%s: collected %s", self._location.url, self.last)
        except (CheckpointError, OSError) as error:
            _LOG.warning("%s: garbage was not collected, which is tried again: %s", self._location.url, error)
