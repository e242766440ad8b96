"""Shards that the driver keeps open from one epoch to the next, so that what is in memory need not be read again.

A held space is continued only if the runs that its shard is made of are those that it has seen, and the run that it
saved last, if that was accepted. In every other case it is closed, and the shard is opened again as a task would open
it. So nothing but time depends on what is held, and no time is lost by what is taken over between two epochs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread

from checkpoint import Run
from checkpoint.chain import AcceptedRun, Manifest, OperatorPlan, ShardSaved, cache_root
from checkpoint.chain.plan import runs_seen_at
from objectspace import PersistedObjectSpace
from objectspace.spark.executor import open_shard, save_shard_run

LOG = logging.getLogger("objectspace.spark")

HELD_EPOCHS = 256
"""After how many epochs a space is opened again: each operator that was opened on one leaves a little behind."""

IDLE_SECONDS = 60.0
"""After how many seconds without an epoch the shards are closed."""

HELD_SLOTS, LEAST_HELD_SLOTS = 400_000, 10_000
"""How many clean slots all held spaces together keep in memory, and how many each of them keeps at least."""


@dataclass
class _Held:
    """An open space, the runs that it has seen, and the one that it has saved, which may have been accepted or not."""

    space: PersistedObjectSpace
    opened: ExitStack
    seen: list[tuple[int, str]]
    run: Run | None = None
    saved: AcceptedRun | None = None
    epochs: int = 0

    def brought_to(self, plan: OperatorPlan, shard: int) -> bool:
        """Begin another epoch: take over the run that was saved, if it was accepted.

        Returns:
            Whether the space is what the plan says, and need not be opened again.
        """
        wanted = runs_seen_at(plan.lineages[shard])
        self.epochs += 1
        if self.epochs > HELD_EPOCHS:
            return False
        if self.saved is not None and wanted == [*self.seen, (self.saved.epoch, self.saved.digest)]:
            self.take_over()
        return self.saved is None and wanted == self.seen

    def take_over(self) -> None:
        """Make the run that was saved and accepted part of what the space continues from."""
        if self.run is not None and self.saved is not None:
            self.space.store.apply(self.run, self.saved.epoch)
            self.space.on_saved()
            self.seen = [*self.seen, (self.saved.epoch, self.saved.digest)]
            self.run = self.saved = None


class HeldShards:
    """The open shards of a driver. One thread at a time works with them, inside :meth:`turn`."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], _Held] = {}
        self._lock = threading.Lock()
        self._cache_slots = HELD_SLOTS
        self._is_leaving = False
        self._timer: threading.Timer | None = None

    def __len__(self) -> int:
        return len(self._held)

    def expect(self, shards: int) -> None:
        """Set how many shards there may be: those that are opened from now on share the memory."""
        self._cache_slots = max(LEAST_HELD_SLOTS, HELD_SLOTS // max(1, shards))

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Work with the shards: an error leaves none of them open, since they may have been changed."""
        self._wake()
        try:
            with self._lock:
                try:
                    yield
                except BaseException as error:
                    if (found := self._closed_after(error)) is not error:
                        raise found from error
                    raise
        finally:
            if self._is_leaving:
                self.release()
        self._doze()

    def accepted(self, manifest: Manifest) -> Thread:
        """Begin to take over what an epoch has accepted, while Spark gets ready for the next one.

        Whatever becomes of that: what was not taken over when the next epoch begins is taken over then, or the shard is
        opened again.

        Args:
            manifest: that of the epoch.

        Returns:
            The thread that does it.
        """
        files = {run.file for run in manifest.runs}
        thread = Thread(target=self._take_over, args=(files,), name="objectspace-held", daemon=True)
        thread.start()
        return thread

    def _take_over(self, files: Collection[str]) -> None:
        try:
            with self.turn():
                for held in self._held.values():
                    if held.saved is not None and held.saved.file in files:
                        held.take_over()
        except Exception as error:
            LOG.info("a shard that the driver keeps open could not go on, and is reopened: %s", error)

    def release(self) -> None:
        """Close all shards, at the end of the turn if there is one. May be called twice."""
        self._is_leaving = True
        if self._lock.acquire(blocking=False):
            try:
                self._close()
                self._is_leaving = False
            finally:
                self._lock.release()

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _doze(self) -> None:
        """Close the shards when nobody has worked with them for a while: their query may have ended unnoticed."""
        self._wake()
        self._timer = threading.Timer(IDLE_SECONDS, self.release)
        self._timer.daemon = True
        self._timer.start()

    @contextmanager
    def open(self, plan: OperatorPlan, shard: int) -> Iterator[PersistedObjectSpace]:
        """Open the space of a shard as ``open_shard`` does, and leave it open.

        Args:
            plan: the plan of the operator.
            shard: the number of the shard.

        Raises: as ``open_shard``.
        """
        key = plan.operator, shard
        held = self._held.pop(key, None)
        if held is not None and not _brought_to(held, plan, shard):
            held.opened.close()
            held = None
        self._held[key] = held or _opened(plan, shard, self._cache_slots)
        yield self._held[key].space

    def save(self, plan: OperatorPlan, space: PersistedObjectSpace, shard: int) -> ShardSaved:
        """Save what has changed in an open shard into a private run file, as ``save_shard`` does, and remember it."""
        held = self._held[plan.operator, shard]
        saved, held.run = save_shard_run(plan, space, shard)
        held.saved = saved.run
        return saved

    def _closed_after(self, error: BaseException) -> BaseException:
        """Close all shards after an error, which may come from the cache of one; return it, or what becomes of it."""
        while self._held:
            opened = self._held.popitem()[1].opened
            try:
                opened.__exit__(type(error), error, error.__traceback__)
            except BaseException as found:
                error = found
        return error

    def _close(self) -> None:
        while self._held:
            self._held.popitem()[1].opened.close()


def _brought_to(held: _Held, plan: OperatorPlan, shard: int) -> bool:
    try:
        return held.brought_to(plan, shard)
    except BaseException:
        held.opened.close()
        raise


def _opened(plan: OperatorPlan, shard: int, cache_slots: int) -> _Held:
    # A task that met a cache in use would have to make another one: the driver has caches of its own.
    folder = Path(plan.cache) if plan.cache else cache_root()
    own = replace(plan, cache=str(folder / "driver"))
    opened = ExitStack()
    space = opened.enter_context(open_shard(own, shard, cache_slots=cache_slots))
    return _Held(space, opened, runs_seen_at(plan.lineages[shard]))
