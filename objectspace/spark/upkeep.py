"""Upkeep of a location by the driver, alongside the micro-batches: none of them waits for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from checkpoint.chain import (
    AcceptedRun,
    Chain,
    Collected,
    Location,
    OperatorPlan,
    SpaceFile,
    WaitingImage,
    write_image_beside,
)
from checkpoint.chain.waiting import noted_files, noted_images
from checkpoint.errors import StoreLockedError
from objectspace.spark.handover import remove_before

LOG = logging.getLogger("objectspace.spark")

IMAGE_LAG = 16
"""How many epochs old an image is when an epoch names it: caches that lag by fewer then stay what they are."""

TASKS_WAIT = 8
"""How many times as long as the upkeep a task waits before it writes an image itself, if none has come."""


@dataclass(frozen=True)
class Retention:
    """What is kept of a space at a location.

    Args:
        epochs: how many of the newest epochs stay readable.
        every: after how many epochs garbage is collected.
        grace_seconds: how old a run file that no epoch names must be to be removed: longer than any epoch takes.

    Raises:
        ValueError: nothing would be kept.
    """

    epochs: int = 64
    every: int = 64
    grace_seconds: float = 86_400

    def __post_init__(self) -> None:
        are_counts = type(self.epochs) is int and type(self.every) is int
        if not are_counts or self.epochs < 1 or self.every < 1 or not self.grace_seconds >= 0:
            raise ValueError(
                f"{self}: expected at least 1 epoch to keep and between collections, as whole numbers, and 0 s or more"
            )


class Upkeep:
    """Looks after a space in a daemon thread: removes old hand-over files, makes images and collects garbage.

    It works on a chain of its own, so it shares nothing with the driver but the files and the images, which the driver
    names in its next manifests. An image that waits for that is noted at the location, and a later process names it if
    this one does not, since many end after a few epochs. What fails is logged and tried again after the next epochs:
    the epochs themselves do not need it.

    Args:
        location: where the space lies.
        retention: what is kept.
        full_after: how many differential runs may follow a full one before an image is considered.
        image_lag: how many epochs old an image is when an epoch names it.
    """

    def __init__(
        self, location: Location, retention: Retention, full_after: int = 64, image_lag: int = IMAGE_LAG
    ) -> None:
        self.retention = retention
        self.last: Collected | None = None
        self._location, self._full_after, self._image_lag = location, full_after, image_lag
        self._thread: threading.Thread | None = None
        self._collected = 0
        self._lock = threading.Lock()
        self._is_adopted = False
        self._waiting: dict[tuple[str, int], WaitingImage] = {}
        self._handed: set[str] = set()

    def published(self, epoch: int) -> bool:
        """Note a new epoch whose changes were handed out, and return whether work on it has begun.

        Time: O(1): the work is done in the background.
        """
        if self.is_busy():
            return False
        # A daemon: a driver may end in the middle of the work, and the next one finishes it.
        self._thread = threading.Thread(target=self._work, args=(epoch,), name="objectspace-upkeep", daemon=True)
        self._thread.start()
        return True

    def is_busy(self) -> bool:
        """Return whether work is under way."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the work under way, if there is any.

        Args:
            timeout: how long, in seconds.
        """
        if self._thread is not None:
            self._thread.join(timeout)

    def images(self, epoch: int) -> list[AcceptedRun]:
        """Return the images that the manifest of an epoch is to name, also those that earlier processes have made.

        One that has waited for a quarter of the grace period is named whatever its epoch.

        Time: O(1); the first call lists and reads the notes of earlier processes.
        """
        with self._logged("the look for images that wait"):
            self._adopt()
        longest, now = self.retention.grace_seconds / 4, time.time()
        with self._lock:
            due = {
                shard: one.image
                for shard, one in self._waiting.items()
                if epoch - one.image.epoch >= self._image_lag or now - one.since >= longest
            }
            for shard in due:
                del self._waiting[shard]
            self._handed.update(image.file for image in due.values())
        return list(due.values())

    def _adopt(self) -> None:
        """Take over the images that earlier processes have noted; whether each fits is looked at when it is named."""
        if self._is_adopted:
            return
        files = noted_files(self._location)
        if files:
            self._wait_for(noted_images(self._location, SpaceFile.read(self._location).incarnation, files))
        self._is_adopted = True

    def _settle(self, chain: Chain) -> None:
        """Make what waits what is noted and fits, and have the notes of all others removed."""
        # An image may have been handed to an epoch that was then not published: it waits again.
        noted = chain.waiting_images()
        self._wait_for(noted)
        self._is_adopted = True
        with self._lock:
            self._handed &= {one.image.file for one in noted}

    def _wait_for(self, images: Iterable[WaitingImage]) -> None:
        found = sorted(images, key=lambda one: one.image.epoch)  # Of two drivers each may have made one: the newest.
        with self._lock:
            self._waiting = {(one.image.operator, one.image.shard): one for one in found}

    def _work(self, epoch: int) -> None:
        with self._logged("the upkeep"):
            remove_before(self._location, epoch)
            is_due = epoch - self._collected >= self.retention.every
            makes_images = is_due or epoch % max(1, self._full_after // 4) == 0
            if makes_images or self._handed:
                chain = Chain.open(self._location)
                if is_due:
                    # Before the images, which take long if all of them are due, as after a rescale.
                    self._collected = epoch
                    with self._logged("the collection of garbage"):
                        self._collect(chain)
                self._settle(chain)
                if makes_images:
                    self._make_images(chain)

    @contextmanager
    def _logged(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # Whatever it is, the epochs go on without it.
            LOG.warning("%s: %s failed and will be retried: %s", self._location.url, what, error)

    def _collect(self, chain: Chain) -> None:
        self.last = chain.collect(self.retention.grace_seconds, self.retention.epochs)
        LOG.info("%s: collected %s", self._location.url, self.last)

    def _make_images(self, chain: Chain) -> None:
        for operator in chain.newest.lineage if chain.newest else ():
            plan = chain.operator_plan(operator, None, self._full_after)
            for shard in self._due(plan):
                with self._logged(f"the image of {operator}/{shard}"):
                    self._make_image(plan, shard)

    def _due(self, plan: OperatorPlan) -> Iterable[int]:
        return [
            shard
            for shard in range(plan.shards)
            if plan.is_image_due(shard) and (plan.operator, shard) not in self._waiting
        ]

    def _make_image(self, plan: OperatorPlan, shard: int) -> None:
        begun = time.monotonic()
        try:
            image = write_image_beside(plan, shard, is_noted=True)
        except StoreLockedError as error:
            LOG.debug("%s", error)  # That of an earlier start of the job, say: its note is found later.
            return
        with self._lock:
            self._waiting[plan.operator, shard] = WaitingImage(image, time.time())
        seconds = time.monotonic() - begun
        LOG.info(
            "%s: image of %s/%d at epoch %d, %.2f s", self._location.url, image.operator, shard, image.epoch, seconds
        )
