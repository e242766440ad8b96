"""The epochs of a space at a location: their manifests, each read once, and the runs that make up a shard at one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Self

from checkpoint.chain.collect import FLOORS, MANIFESTS, epochs_in, file_name, later_run
from checkpoint.chain.founding import SPACE_FILE, SpaceFile
from checkpoint.chain.location import Location
from checkpoint.chain.manifest import FORMAT_VERSION, Manifest, unseal
from checkpoint.chain.plan import FULL_AFTER, Lineage, OperatorPlan
from checkpoint.errors import RESTORE, CheckpointError, CorruptStoreError, FencedError, UnknownCheckpointError
from checkpoint.run import CheckpointKind


class Epochs:
    """The epochs of a space at a location, as far as whoever opened it knows them.

    Args:
        location: where it lies.
        space: the file that founds it.
    """

    def __init__(self, location: Location, space: SpaceFile) -> None:
        self.location = location
        self.space = space
        self._manifests: dict[int, Manifest] = {}
        self._epoch, self._floor = 0, 1
        self._look()

    @classmethod
    def open(cls, location: Location) -> Self:
        """Open a space for reading or publishing.

        Raises:
            CheckpointError: the location cannot be read, holds no space, or one of a newer format.
            CorruptStoreError: a file of the space is damaged.
        """
        return cls(location, SpaceFile.read(location))

    @classmethod
    def is_at(cls, location: Location) -> bool:
        """Return whether there is a space at a location.

        Raises:
            CheckpointError: the location cannot be read.
        """
        return SpaceFile.is_at(location)

    @property
    def incarnation(self) -> str:
        """The UUID of the space."""
        return self.space.incarnation

    @property
    def shards(self) -> int:
        """The number of shards of every operator, at the newest epoch."""
        return self.shards_at(self._epoch)

    def shards_at(self, epoch: int | None = None) -> int:
        """Return the number of shards of every operator at an epoch, the newest by default.

        Raises: as ``manifest``.
        """
        at = self._epoch if epoch is None else epoch
        return self.manifest(at).shards if at else self.space.shards

    @property
    def epoch(self) -> int:
        """The newest published epoch that this chain knows, 0 if there is none."""
        return self._epoch

    @property
    def first_epoch(self) -> int:
        """The oldest epoch that has not been collected, as far as this chain knows; 1 before the first."""
        return self._floor

    @property
    def newest(self) -> Manifest | None:
        """The manifest of the newest epoch, or None before the first."""
        return self.manifest(self._epoch) if self._epoch else None

    def unlisted(self) -> CorruptStoreError | None:
        """Return what is wrong with a space that must have had epochs, where none is listed; None for any other one.

        Time: O(1) where an epoch is listed, else as ``later_run``.
        """
        floor = file_name(FLOORS, self._floor) if self._floor > 1 else None
        left = None if self._epoch else floor or later_run(self.location)
        if left is None or epochs_in(self.location, MANIFESTS):  # Its first ones may have come meanwhile.
            return None
        return CorruptStoreError(
            f"space at {self.location.url}: no manifest is listed, although there is {left}, which no first epoch has:"
            f" check the location (is its folder {MANIFESTS} there?), and remove nothing of it before"
        )

    def newest_view(self) -> Self:
        """Return a chain that knows the newest epochs now at the location, for reading alongside this one.

        A driver publishes what follows the epochs that it has seen itself; whoever shows its state, even in another
        thread, must not make it see more. A reader has no such position to keep: if the space was replaced, say by an
        older copy, it reads what is there, and uses nothing that is known of the other one.

        Raises:
            CheckpointError: the location cannot be read, or holds no space any more.
            CorruptStoreError: a file of the space is damaged.
        """
        known = dict(self._manifests)  # Copied before the look, and whole: another thread may add to it.
        chain = type(self).open(self.location)
        last = max(known, default=0)
        if chain.incarnation == self.incarnation and chain.first_epoch <= last <= chain.epoch:
            with suppress(UnknownCheckpointError):  # It was collected meanwhile.
                if chain.manifest(last).publisher == known[last].publisher:
                    chain._manifests.update(known)
        return chain

    def refresh(self) -> None:
        """Look for epochs that others have published: a driver does so before its first epoch, and never after.

        Raises:
            FencedError: the space was replaced underneath this chain, which stays as it was.
            CheckpointError: the location cannot be read.
            CorruptStoreError: a file of the space is damaged; or an epoch that this chain has read is not listed any
                more, nor a later one, and it stays as it was.
        """
        last = max(self._manifests, default=0)
        self._require_own(last)
        self._look()
        if last < self._floor:
            self._manifests.clear()  # There is no longer any way to tell whether they led to what is there.
        elif last:
            self._forget_before(last)

    def _stored_floor(self) -> int:
        return max(epochs_in(self.location, FLOORS), default=1)

    def _look(self) -> None:
        # The floor is read first: if it rises in between, manifests missing below it count as those of collected
        # epochs.
        floor, epoch = self._stored_floor(), max(epochs_in(self.location, MANIFESTS), default=0)
        last = max(self._manifests, default=0)
        if epoch < last:
            # Epochs never become fewer: whoever believed such a listing would take the runs of the others for garbage.
            raise CorruptStoreError(
                f"space at {self.location.url}: the newest epoch that is listed is {epoch}, and {last} was read from"
                " it before: the listing of its manifests is not whole, as where a mount is missing or a backup is"
                " being put back: check the location, and start again"
            )
        self._floor, self._epoch = floor, epoch

    def manifest(self, epoch: int) -> Manifest:
        """Return the manifest of an epoch.

        Raises:
            UnknownCheckpointError: the epoch has not been published, or was collected.
            CorruptStoreError: its file is missing or damaged, or belongs to another space.
            CheckpointError: the location cannot be read, or the manifest has a newer format.
        """
        self._require_kept(epoch)
        return self.manifest_for(epoch, epoch)

    def manifest_for(self, epoch: int, wanted: int) -> Manifest:
        """Return the manifest of an epoch that lineages of a later one need; it may be below the first kept epoch.

        Args:
            epoch: the epoch.
            wanted: the epoch whose lineages need it, which the error names if it was collected.

        Raises: as ``manifest``.
        """
        if epoch not in self._manifests:
            self._manifests[epoch] = self._read(epoch, wanted)
        return self._manifests[epoch]

    def manifests(self, after: int = 0) -> Iterator[Manifest]:
        """Yield the manifests after an epoch, oldest first, without those that were collected.

        Raises: as ``manifest``.
        """
        self._floor = max(self._floor, self._stored_floor())
        for epoch in range(max(after + 1, self._floor), self._epoch + 1):
            yield self.manifest(epoch)

    def lineage(self, operator: str, shard: int, epoch: int | None = None) -> Lineage:
        """Return the runs that make up a shard at an epoch, the newest by default: a full one, then the others.

        A shard that did not exist yet, or no longer exists, has none.

        Raises: as ``manifest``.
        """
        at = self._epoch if epoch is None else epoch
        begins = self.manifest(at).lineage.get(operator, []) if at else []
        begin = begins[shard] if shard < len(begins) else 0
        if not begin:
            return ()
        # The runs that a lineage starts from also hold what the epoch that it begins with has written.
        starts = self.manifest(at).starts(operator, shard)
        steps = range(begin + 1 if starts else begin, at + 1)
        found = (*starts, *(run for step in steps for run in self.manifest_for(step, at).runs_of(operator, shard)))
        if not found or found[0].kind is not CheckpointKind.FULL:
            raise CorruptStoreError(
                f"{file_name(MANIFESTS, at)} of {self.location.url}: the lineage of {operator}/{shard} begins with"
                f" epoch {begin}, which has no full run of it: {RESTORE}"
            )
        return found

    def runs(self, operator: str, shard: int, first: int, last: int) -> Lineage:
        """Return the runs of a shard that the epochs from ``first`` to ``last`` (inclusive) have written, oldest first.

        Raises: as ``manifest``.
        """
        steps = (self.manifest(epoch) for epoch in range(first, last + 1))
        return tuple(run for step in steps for run in step.runs_of(operator, shard))

    def operator_plan(
        self, operator: str, epoch: int | None = None, full_after: int = FULL_AFTER, cache: str | None = None
    ) -> OperatorPlan:
        """Return the plan for opening any shard of an operator as of an epoch, the newest by default.

        The ``epoch`` of the plan is the one that work on it leads to: one more than the epoch that it opens.

        Args:
            operator: the name of the operator.
            epoch: the epoch to open.
            full_after: how many differential runs may follow a full one before the next full one is considered.
            cache: the folder of the local caches, or None for the default of the machine.

        Raises: as ``manifest``.
        """
        at = self._epoch if epoch is None else epoch
        lineages = tuple(self.lineage(operator, shard, at) for shard in range(self.shards_at(at)))
        return OperatorPlan(self.location, self.incarnation, operator, at + 1, lineages, full_after, cache)

    def _require_kept(self, epoch: int) -> None:
        if not self._epoch:
            raise UnknownCheckpointError(f"space at {self.location.url}: no epoch {epoch}: none was published yet")
        if self._floor > self._epoch:
            raise self._left_behind()
        if type(epoch) is not int or not self._floor <= epoch <= self._epoch:
            raise UnknownCheckpointError(
                f"space at {self.location.url}: no epoch {epoch!r}: expected one from {self._floor} to {self._epoch}"
            )

    def _left_behind(self) -> CheckpointError:
        """Return the error for a chain none of whose epochs is kept."""
        if max(epochs_in(self.location, MANIFESTS), default=0) < self._floor:
            return self._laid_over(self._floor)
        return UnknownCheckpointError(
            f"space at {self.location.url}: all epochs that this chain knows, up to {self._epoch}, were collected"
            f" meanwhile, and the oldest one kept is {self._floor}: call refresh() to read on, or reopen the chain"
        )

    def _laid_over(self, floor: int) -> CorruptStoreError:
        return CorruptStoreError(
            f"space at {self.location.url}: it says that its first kept epoch is {floor}, and the newest is"
            f" {self._epoch}: manifests are missing, as after an older copy was laid over it: {RESTORE}"
        )

    def _require_own(self, base: int) -> None:
        """Refuse to go on if the space is no longer the one whose epochs this chain knows.

        Args:
            base: the epoch whose manifest, known to this chain, must be there as well; 0 for none.

        Raises:
            FencedError: it was removed, recreated, or replaced by an older copy or a fork; nothing was published.
        """
        founding, file = self.location.read(SPACE_FILE), file_name(MANIFESTS, base)
        found = founding and unseal(founding, f"{SPACE_FILE} of {self.location.url}").get("incarnation")
        if found != self.incarnation:
            said = f"names the incarnation {found}" if founding else "is gone"
            raise self._replaced(f"{SPACE_FILE} {said}, expected {self.incarnation}: it was removed or remade")
        if not base:
            return
        below = self.location.read(file)
        if below is None:
            if base < self._stored_floor():
                return  # It was collected: epochs have gone on.
            raise self._replaced(f"{file} is gone, which the next epoch builds upon: an older copy was put back")
        publisher = unseal(below, f"{file} of {self.location.url}", FORMAT_VERSION).get("publisher")
        if publisher != self.manifest_for(base, base).publisher:
            raise self._replaced(f"{file} is another one than the next epoch builds upon: an older copy was put back")

    def _replaced(self, what: str) -> FencedError:
        return FencedError(
            f"space at {self.location.url}: {what} under this driver, which must stop: nothing was published; reopen"
            " the space (make a new Pipeline), with the checkpoint that belongs to what is there now"
        )

    def _read(self, epoch: int, wanted: int) -> Manifest:
        name = file_name(MANIFESTS, epoch)
        place = f"{name} of {self.location.url}"
        data = self.location.read(name)
        if data is None:
            self._floor = self._stored_floor()
            self._require_kept(wanted)
            raise CorruptStoreError(f"{place} is missing, but later epochs are there: {RESTORE}")
        manifest = Manifest.from_json(data, place)
        if (manifest.incarnation, manifest.epoch) != (self.incarnation, epoch):
            raise CorruptStoreError(
                f"{place} is epoch {manifest.epoch} of space {manifest.incarnation}: expected epoch {epoch} of"
                f" {self.incarnation}: two spaces were mixed up here; restore the location from a backup"
            )
        return manifest

    def _forget_before(self, newest: int) -> None:
        # What runs for years keeps in memory what the lineages of its newest epoch need, and rereads others on demand.
        begins = [begin for shards in self._manifests[newest].lineage.values() for begin in shards if begin]
        for epoch in [epoch for epoch in self._manifests if epoch < min(begins, default=newest)]:
            del self._manifests[epoch]
