"""A chain: a space at a location, its sequence of manifests, and the right to publish the next one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Self
from uuid import uuid4

from checkpoint.chain.collect import (
    MANIFESTS,
    RUNS,
    Collected,
    epochs_in,
    file_name,
    first_needed,
    needed_runs,
    published_at,
    raise_floor,
    remove_leftovers,
    remove_manifests,
    remove_runs,
    require_sound,
    require_there,
)
from checkpoint.chain.division import with_parts
from checkpoint.chain.epochs import Epochs
from checkpoint.chain.founding import SpaceFile, require_nothing
from checkpoint.chain.lineages import next_lineages
from checkpoint.chain.location import Location
from checkpoint.chain.manifest import (
    MOST_SHARDS,
    AcceptedRun,
    Manifest,
    SourcePosition,
)
from checkpoint.chain.plan import (
    FULL_AFTER,
    EpochPlan,
    ShardSaved,
    require_numbers,
    require_one_each,
    require_own_run,
    require_text,
    runs_seen_at,
    standing,
)
from checkpoint.chain.runfile import missing
from checkpoint.chain.waiting import WaitingImage, forget_image, noted_files, noted_images
from checkpoint.errors import CheckpointError, CorruptStoreError, FencedError, UnknownCheckpointError
from checkpoint.run import CheckpointKind

_MOST_OVERTAKEN = 8
"""How many times a collection starts over because others have overtaken it."""

_OTHER_SHARDS_AT_FIRST = (
    "and rescale it once it has an epoch; or stop what runs on it and remove the location, if it never had one"
)
"""How a space without an epoch, of which there is nothing to divide, gets another number of shards."""


class Chain(Epochs):
    """A space at a location, opened by a driver or a reader.

    Args:
        location: where it lies.
        space: the file that founds it.

    Use ``Chain.open`` or ``Chain.open_or_create``.
    """

    @classmethod
    def open_or_create(cls, location: Location, shards: int) -> Self:
        """Open a space for publishing, founding it if there is none.

        Args:
            location: where it lies.
            shards: the number of shards, 1 to 256.

        Raises:
            CheckpointError: the location cannot be used, holds a space with another number of shards or the remains of
                a space, or lies in the folder of another space.
            CorruptStoreError: a file of the space is damaged, or its manifests are missing.

        Dirties: ``space.json``, if it is absent.
        """
        if type(shards) is not int or not 1 <= shards <= MOST_SHARDS:
            raise CheckpointError(
                f"space at {location.url}: expected 1 to {MOST_SHARDS} shards, found {shards!r}: give their number as"
                " an int"
            )
        is_new = not cls.is_at(location)
        if is_new:
            require_nothing(location)
        location.require_exclusive_create()
        if is_new:
            # If two drivers try to found the space at once, one of them does; both then open what is there.
            SpaceFile(str(uuid4()), shards).found_at(location)
        chain = cls.open(location)
        if chain.shards != shards:
            if lost := chain.unlisted():
                raise lost  # What is out of sight may also say that it has this very number.
            others = "rescale the space" if chain.epoch else _OTHER_SHARDS_AT_FIRST
            raise CheckpointError(
                f"space at {location.url} has {chain.shards} shards, found a pipeline with {shards}:"
                f" run it with shards={chain.shards}, {others}, or choose another location"
            )
        return chain

    def begin(
        self, source: SourcePosition, operators: Sequence[str], full_after: int = FULL_AFTER, cache: str | None = None
    ) -> EpochPlan | None:
        """Return the plan of the next epoch, or None if its micro-batch is already committed.

        Args:
            source: the micro-batch.
            operators: the names of the operators that take part.
            full_after: how many differential runs may follow a full one before the next full one is considered.
            cache: the folder of the local caches, or None for the default of the machine.

        Raises:
            CheckpointError: the space is a copy of only some objects of another one; or micro-batches between the last
                committed one and this one are missing from the space; or this one was committed with other rows, or
                follows one that was; or its number is not a whole number.
        """
        if type(source.batch) is not int or source.batch < 0:
            raise CheckpointError(
                f"space at {self.location.url}: query {source.query} comes with batch {source.batch!r}: expected a"
                " whole number from 0 on"
            )
        if self.newest is not None and self.newest.partial:
            raise CheckpointError(
                f"space at {self.location.url}: it is a copy of only some objects of another space, made by `checkpoint"
                " fork` or `restore` with --object or --operator: it can be read, but a run on it would start the"
                " others empty: copy the space as a whole, or run this at another location"
            )
        base = self._epoch
        last = self.manifest(base).committed.get(source.query) if base else None
        if last is not None and source.batch <= last:
            self._require_same_rows(source, last)
            return None
        if source.batch > (-1 if last is None else last) + 1:
            raise self._missing_batches(source, last)
        if last is not None:
            self._require_same_history(source, last)
        read = {name: self.operator_plan(name, base, full_after, cache) for name in operators}
        plans = {name: replace(plan, makes_epoch=True) for name, plan in read.items()}
        return EpochPlan(base, source, plans)

    def require_committed(self, source: SourcePosition) -> None:
        """Make sure that the space holds a micro-batch that its query considers done, and so never delivers again.

        Raises:
            CheckpointError: it holds none of the query, or only older ones, for example because an older copy was put
                back.
        """
        last = self.newest.committed.get(source.query) if self.newest else None
        if last is None or last < source.batch:
            raise self._missing_batches(SourcePosition(source.query, source.batch + 1), last)

    def _missing_batches(self, source: SourcePosition, last: int | None) -> CheckpointError:
        comes = f"space at {self.location.url}: query {source.query} comes with batch {source.batch}"
        if last is None:
            return CheckpointError(
                f"{comes}, and none of its batches is committed here: the ones before are missing: if the query has fed"
                " another location, give that one; else start a new query, with a new checkpoint location, from the"
                " input that the space has not seen"
            )
        return CheckpointError(
            f"{comes}, but the last one committed here is {last}: the batches between are missing: if an older copy of"
            " the space was put back, put the matching one there, or start a new query from the input that the space"
            " has not seen"
        )

    @contextmanager
    def working(self, plan: EpochPlan) -> Iterator[None]:
        """Make work on an epoch that fails because the space was replaced underneath it say so: its files were gone.

        Args:
            plan: the plan that the operators work with.

        Raises:
            FencedError: the work failed, and the space was replaced underneath this chain; nothing was published.
        """
        try:
            yield
        except Exception as error:
            try:
                self._require_own(plan.base)
            except FencedError as fenced:
                raise fenced from error
            except CheckpointError:
                pass  # The first failure says more than the failure of this look does.
            raise

    def publish(
        self,
        plan: EpochPlan,
        saved: Mapping[str, Sequence[ShardSaved]],
        metrics: Mapping[str, float] | None = None,
        images: Sequence[AcceptedRun] = (),
    ) -> Manifest:
        """Commit an epoch: the single step that makes it happen.

        Args:
            plan: the plan that the operators worked with.
            saved: for each operator of the plan, the messages of its shards.
            metrics: figures about the epoch; those of the messages are summed and added to them.
            images: images that ``write_image`` made of shards at earlier epochs: from now on, their state starts from
                these. An image that no longer fits the history of its shard, or whose file is gone, is skipped. Each
                costs a look at its file, since it may have waited for longer than the grace period of a collection.

        Raises:
            CheckpointError: a shard has no message or several, or one that was saved for another epoch or shard, or its
                first run is not a full one, or a saved file is gone; nothing is published.
            FencedError: another driver has published this epoch, or the space was replaced underneath this one.

        Dirties: one new manifest.
        """
        for operator in {**plan.operators, **saved}:
            require_one_each(operator, self.shards, saved.get(operator, ()))
        fitting = [image for image in images if self._fits(image, plan.base) and self._is_there(image)]
        return self._publish(plan, saved, metrics or {}, self.shards, fitting)

    def publish_rescaled(
        self, plan: EpochPlan, saved: Mapping[str, Sequence[ShardSaved]], shards: int, metrics: Mapping[str, float]
    ) -> Manifest:
        """Commit an epoch in which every operator has a different number of shards, each starting afresh.

        Args:
            plan: the plan of the epoch, with all operators of the space; its source is the one committed last.
            saved: for each operator, the messages of its new shards.
            shards: the new number of shards.
            metrics: figures about the epoch.

        Raises:
            CheckpointError: an operator or shard has no message, or a run is neither an image nor a division, or its
                file is gone; nothing changes.
            FencedError: another driver has published this epoch, or the space was replaced underneath this one.

        Dirties: one new manifest.
        """
        for operator in {**(self.newest.lineage if self.newest else {}), **saved}:
            require_one_each(operator, shards, saved.get(operator, ()))
        if any(one.run and one.run.kind is not CheckpointKind.FULL for each in saved.values() for one in each):
            raise CheckpointError(
                f"space at {self.location.url}: new shards begin with complete images, or divisions: write full runs"
            )
        return self._publish(plan, saved, metrics, shards)

    def _publish(
        self,
        plan: EpochPlan,
        saved: Mapping[str, Sequence[ShardSaved]],
        metrics: Mapping[str, float],
        shards: int,
        images: Sequence[AcceptedRun] = (),
    ) -> Manifest:
        messages = [message for messages in saved.values() for message in messages]
        for message in messages:
            require_own_run(message, plan.epoch)
            require_numbers(message.metrics)
            self._require_first_full(message, plan.base, shards)
        known = {**_summed(messages), **metrics}
        require_numbers(known)
        require_text((*saved, plan.source.query, plan.source.offsets))
        manifest = self._manifest_of(plan, messages, known, shards, images)
        manifest.require_readable()
        if not self._create(manifest):
            raise FencedError(
                f"space at {self.location.url}: epoch {plan.epoch} was published by another driver first: this one"
                " must stop; make sure that a single driver feeds the space, then start it again"
            )
        self._manifests[plan.epoch] = manifest
        self._epoch = plan.epoch
        self._forget_before(plan.epoch)
        return manifest

    def _require_first_full(self, message: ShardSaved, base: int, shards: int) -> None:
        """Refuse a first run of a shard that is not a full one.

        Raises:
            CheckpointError: it is so.
        """
        before = self.manifest(base) if base else None
        begins = before.lineage.get(message.operator, []) if before and before.shards == shards else []
        is_first = not any(begins[message.shard : message.shard + 1])
        if is_first and message.run and message.run.kind is not CheckpointKind.FULL:
            raise CheckpointError(
                f"operator {message.operator}, shard {message.shard}: its first run is a {message.run.kind} one, whose"
                " rows nobody would read: nothing was published; write one of the kind that the plan names"
            )

    def _fits(self, image: AcceptedRun, base: int) -> bool:
        """Return whether an image can replace the first runs that make up its shard at an epoch."""
        lineage = self.lineage(image.operator, image.shard, base) if image.shard < self.shards else ()
        until = [run for run in lineage if run.epoch <= image.epoch]
        is_worth_it = len(until) > 1 or any(run.is_division for run in until)
        return image.epoch <= base and is_worth_it and standing(runs_seen_at(until)) == image.replaces

    def _is_there(self, image: AcceptedRun) -> bool:
        return self.location.modified(image.file) is not None

    def collect(
        self, grace_seconds: float = 86_400, keep_epochs: int = 16, keep_files: Iterable[str] = ()
    ) -> Collected:
        """Remove run files and manifests that the newest epochs do not need, and run files that nobody published.

        A collection may be interrupted anywhere, repeated, and run while others read or publish. A run file that no
        manifest names may belong to an epoch under way, so the grace period must be longer than any epoch takes, plus
        the difference between the clocks of this machine and of the location. An image that is not noted and waits for
        longer than that to be named may be removed, and is then skipped.

        Where no epoch is listed, no run file is removed: nothing tells which ones a manifest names.

        Args:
            grace_seconds: how old a run file must be to be removed.
            keep_epochs: how many of the newest epochs stay readable.
            keep_files: run files that stay, whether an epoch names them or not; so do images that are noted, as long
                as the next epoch can name them.

        Returns:
            what was removed.

        Raises:
            CorruptStoreError: a manifest or run file that a kept epoch needs is missing, or a manifest is damaged, or a
                full run or image that takes the place of older runs from now on; nothing was removed, since what is
                there may help to repair it.
            CheckpointError: the location cannot be read or written; what was removed until then stays removed.

        Time: O(files listed + runs named by the kept epochs + bytes of these full runs and images).
        Dirties: the notes of images that no epoch can name, the floor, then the removed files.
        """
        is_number = isinstance(grace_seconds, int | float) and type(keep_epochs) is int
        if not is_number or keep_epochs < 1 or not grace_seconds >= 0:
            raise ValueError(
                f"keep_epochs is {keep_epochs!r}, grace_seconds {grace_seconds!r}: expected a whole number from 1 on,"
                " and a number of seconds from 0 on"
            )
        overtaken = 0
        while True:
            listed = {f"{RUNS}/{name}" for name in self.location.names(RUNS)}
            self.refresh()
            floor = max(self._floor, self._epoch - keep_epochs + 1)
            try:
                # In this order: what is published after the listing names files not in it, or younger than the grace.
                # A note goes only after the image was published.
                spared = {*keep_files, *(one.image.file for one in self.waiting_images())}
                self.refresh()
                return self._collect(floor, listed, spared, grace_seconds)
            except (UnknownCheckpointError, CorruptStoreError):
                # What another collection has removed meanwhile is not damage: its floor, which is written first, shows
                # that.
                if overtaken == _MOST_OVERTAKEN or self._stored_floor() <= floor:
                    raise
            overtaken += 1

    def _collect(self, floor: int, listed: set[str], spared: set[str], grace_seconds: float) -> Collected:
        """Raise the floor to an epoch, and remove the listed files and the manifests that are then not needed.

        Raises: as ``collect``; and UnknownCheckpointError if another collection has raised the floor further.
        """
        if floor > max(self._epoch, 1):
            raise self._laid_over(floor)
        if not self._epoch:
            # Its manifests may only be out of sight, as where a mount is missing: then all run files would be lost. A
            # space that never had an epoch leaves little, which goes once it has one.
            return Collected(floor, 0, 0, remove_leftovers(self.location, grace_seconds))
        kept = [self.manifest(epoch) for epoch in range(floor, self._epoch + 1)]
        first = first_needed(kept[0])
        needed = needed_runs(self.location, kept, (self.manifest_for(epoch, floor) for epoch in range(first, floor)))
        require_there(self.location, needed, listed, kept)
        if floor > self._floor:
            require_sound(self.location, needed.values(), kept[0], self._first_manifest())
            raise_floor(self.location, floor, self.incarnation)
            self._floor = floor
        published, unnamed = published_at(self.location, self._epoch), sorted(listed - spared)
        return Collected(
            floor,
            runs=remove_runs(self.location, unnamed, needed, grace_seconds, published, self._named_since),
            manifests=remove_manifests(self.location, first),
            leftovers=remove_leftovers(self.location, grace_seconds, published),
        )

    def _first_manifest(self) -> Manifest | None:
        """Return the manifest of the first epoch, or None if it is lost."""
        with suppress(CorruptStoreError, UnknownCheckpointError):
            return self.manifest(self._floor)
        return None

    def _named_since(self) -> set[str]:
        """Return the run files needed by epochs that others have published since the last look, and those noted."""
        known, noted = self._epoch, noted_files(self.location)
        self.refresh()
        newer = [self.manifest(epoch) for epoch in range(known + 1, self._epoch + 1)]
        return {*noted, *needed_runs(self.location, newer)}

    def waiting_images(self) -> list[WaitingImage]:
        """Return the images that are noted and that the next epoch can name, oldest first.

        Raises: as ``refresh`` and ``manifest``.

        Dirties: the notes of others are removed: of images that are named, gone or of another history, and damaged
        ones.
        """
        files = noted_files(self.location)
        if not files:
            return []
        # After the listing: an image that is noted was made of epochs that are found now.
        self.refresh()
        noted = noted_images(self.location, self.incarnation, files)
        found = [one for one in noted if self._fits(one.image, self._epoch) and self._is_there(one.image)]
        for file in files - {one.image.file for one in found}:
            forget_image(self.location, file)
        return sorted(found, key=lambda one: one.image.epoch)

    def _require_same_rows(self, source: SourcePosition, last: int) -> None:
        """Refuse a micro-batch that comes again with other rows, or whose rows are no longer known."""
        known = self._epoch_of_batch(source)
        if known is None and source.offsets and source.batch < last:
            # Spark repeats only its last micro-batch.
            raise CheckpointError(
                f"space at {self.location.url}: query {source.query} comes with batch {source.batch} again, whose epoch"
                f" is no longer kept (the last one committed here is {last}), so nothing tells whether its rows are the"
                " same: if an older copy of Spark's checkpoint was put back, put the newest one there, or start a new"
                " query from the input that the space has not seen"
            )
        if known is not None and known.source.offsets and source.offsets not in ("", known.source.offsets):
            raise CheckpointError(
                f"space at {self.location.url}: query {source.query} comes with batch {source.batch} again, with other"
                f" rows than those that epoch {known.epoch} holds: if an older copy of Spark's checkpoint was put back,"
                " put the newest one there, or start a new query from the input that the space has not seen"
            )

    def _require_same_history(self, source: SourcePosition, last: int) -> None:
        """Refuse a micro-batch that follows another one than the space holds: after going back, numbers are reused."""
        known = self._epoch_of_batch(SourcePosition(source.query, last)) if source.before else None
        if known is not None and known.source.offsets not in ("", source.before):
            raise CheckpointError(
                f"space at {self.location.url}: query {source.query} comes with batch {source.batch}, and its batch"
                f" {last} has other rows than the one that epoch {known.epoch} holds: Spark's checkpoint belongs to"
                " another history than the space, as when one of them was put back or forked alone: put the matching"
                " one there, or start a new query from the input that the space has not seen"
            )

    def _epoch_of_batch(self, source: SourcePosition) -> Manifest | None:
        """Return the newest kept epoch of a micro-batch, usually the newest of all."""
        if self.newest is not None and self.newest.source == source:
            return self.newest
        self._floor = max(self._floor, self._stored_floor())
        kept = map(self.manifest, range(self._epoch, self._floor - 1, -1))
        return next((one for one in kept if one.source == source), None)

    def _manifest_of(
        self,
        plan: EpochPlan,
        saved: Sequence[ShardSaved],
        metrics: dict[str, float],
        shards: int,
        images: Sequence[AcceptedRun],
    ) -> Manifest:
        before = self.manifest(plan.base) if plan.base else None
        runs = tuple(message.run for message in saved if message.run)
        lineage, starts = next_lineages(self, before, runs, images, shards)
        manifest = Manifest(
            incarnation=self.incarnation,
            epoch=plan.epoch,
            base=plan.base,
            shards=shards,
            source=plan.source,
            committed={**(before.committed if before else {}), plan.source.query: plan.source.batch},
            runs=runs,
            lineage=lineage,
            images=tuple(run for each in starts.values() for run in each),
            publisher=str(uuid4()),
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            metrics=metrics,
            partial=before is not None and before.partial,
        )
        return replace(manifest, format=manifest.own_format)

    def _create(self, manifest: Manifest) -> bool:
        name = file_name(MANIFESTS, manifest.epoch)
        # A replacement between this look and the put is not noticed: a put cannot depend on other files.
        self._require_own(manifest.base)
        if lost := self._lost(manifest.runs):
            if max(epochs_in(self.location, MANIFESTS), default=0) >= manifest.epoch:
                return False  # They are garbage because another driver has published.
            raise self._gone(lost[0], manifest)
        if not self.location.create(name, manifest.to_json()):
            return False
        # A driver that slept for long may find the place of its epoch free again, because the epoch was collected. The
        # floor rises before any manifest is removed. If the driver slept after the put, others may have built upon it.
        if manifest.epoch >= (floor := self._stored_floor()):
            return True
        with suppress(UnknownCheckpointError):  # The floor has risen again: the next collection removes it.
            if manifest.epoch < first_needed(self.manifest_for(floor, floor)):
                self.location.delete(name)
        return False

    def _lost(self, runs: Sequence[AcceptedRun]) -> list[AcceptedRun]:
        """Return runs of an epoch whose files no longer exist, or those that its divisions are made of."""
        if not any(run.is_division for run in runs):
            gone = self.location.lost(run.file for run in runs)
            return [run for run in runs if run.file in gone]
        # The images that a rescale makes wait for one another, maybe for longer than the grace period. Rescales are
        # rare: one listing for each does no harm on an object store either.
        listed = {f"{RUNS}/{name}" for name in self.location.names(RUNS)}
        lost = [run for run in runs if run.file not in listed]
        return lost or [run for run in with_parts(self.location, runs) if run.file not in listed]

    def _gone(self, run: AcceptedRun, manifest: Manifest) -> CheckpointError:
        """Return the error for a run that is gone before its epoch was published."""
        if run in self.lineage(run.operator, run.shard, manifest.base):  # It is needed anyway: this is damage.
            return missing(
                self.location, run, f", which epoch {manifest.epoch} was to be made of; nothing was published"
            )
        return CheckpointError(
            f"space at {self.location.url}: {run.file}, which was saved for epoch {manifest.epoch}, is gone: it was"
            " taken for garbage, as when the grace period is shorter than the epoch took, or a clock was"
            " corrected; nothing was published: do the epoch again"
        )


def _summed(saved: Sequence[ShardSaved]) -> dict[str, float]:
    names = sorted({name for message in saved for name in message.metrics})
    return {name: sum(message.metrics.get(name, 0) for message in saved) for name in names}
