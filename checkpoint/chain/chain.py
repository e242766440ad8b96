"""A chain: a space at a location, its manifests one after the other, and the right to publish the next one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Self
from uuid import uuid4

from checkpoint.chain.location import Location
from checkpoint.chain.manifest import FORMAT_VERSION, AcceptedRun, Manifest, SourcePosition, seal, unseal
from checkpoint.chain.plan import EpochPlan, Lineage, OperatorPlan, ShardSaved, require_one_each
from checkpoint.errors import CheckpointError, CorruptStoreError, FencedError, UnknownCheckpointError
from checkpoint.run import CheckpointKind

_SPACE = "space.json"
_MANIFESTS = "manifest"


@dataclass(frozen=True)
class SpaceFile:
    """What founds a space: written once, before its first epoch.

    Args:
        incarnation: the UUID of the space; a space that is dropped and made again has another one.
        shards: the number of shards of every operator.
        format: the version of the format.
    """

    incarnation: str
    shards: int
    format: int = FORMAT_VERSION


class Chain:
    """A space at a location, opened by a driver or a reader.

    Args:
        location: where it lies.
        space: the file that founds it.

    Use ``Chain.open`` or ``Chain.open_or_create``.
    """

    def __init__(self, location: Location, space: SpaceFile) -> None:
        self.location = location
        self.space = space
        self._manifests: dict[int, Manifest] = {}
        self._epoch = 0
        self.refresh()

    @classmethod
    def open(cls, location: Location) -> Self:
        """Open a space for reading or publishing.

        Raises:
            CheckpointError: the location cannot be read, holds no space, or one of a newer format.
            CorruptStoreError: a file of the space is damaged.
        """
        data = location.read(_SPACE)
        if data is None:
            raise CheckpointError(
                f"location {location.url}: no space here: expected a file {_SPACE}: check the location, or run a"
                " pipeline on it first"
            )
        return cls(location, SpaceFile(**unseal(data, f"{_SPACE} of {location.url}")))

    @classmethod
    def open_or_create(cls, location: Location, shards: int) -> Self:
        """Open a space for publishing, and found it where there is none.

        Args:
            location: where it lies.
            shards: the number of shards, 1 to 256; it stays the same for the life of the space.

        Raises:
            CheckpointError: the location cannot be used, or holds a space with another number of shards.
            CorruptStoreError: a file of the space is damaged.
        Dirties: ``space.json``, where it is absent.
        """
        if not 1 <= shards <= 256:
            raise CheckpointError(f"space at {location.url}: expected 1 to 256 shards, found {shards}")
        location.require_exclusive_create()
        if location.read(_SPACE) is None:
            # Of two drivers that found the space at once one does; both then open what is there.
            location.create(_SPACE, seal(asdict(SpaceFile(str(uuid4()), shards))))
        chain = cls.open(location)
        if chain.shards != shards:
            raise CheckpointError(
                f"space at {location.url} has {chain.shards} shards, found a pipeline with {shards}:"
                f" run it with shards={chain.shards}, or choose another location"
            )
        return chain

    @property
    def incarnation(self) -> str:
        """The UUID of the space."""
        return self.space.incarnation

    @property
    def shards(self) -> int:
        """The number of shards of every operator."""
        return self.space.shards

    @property
    def epoch(self) -> int:
        """The newest published epoch that this chain knows, 0 where there is none."""
        return self._epoch

    @property
    def newest(self) -> Manifest | None:
        """The manifest of the newest epoch, or None before the first."""
        return self.manifest(self._epoch) if self._epoch else None

    def refresh(self) -> None:
        """Look for epochs that others have published.

        Raises:
            CheckpointError: the location cannot be read.
        """
        names = self.location.names(_MANIFESTS)
        epochs = [int(name.removesuffix(".json")) for name in names if name.removesuffix(".json").isdecimal()]
        self._epoch = max(epochs, default=0)

    def manifest(self, epoch: int) -> Manifest:
        """Return the manifest of an epoch.

        Raises:
            UnknownCheckpointError: the epoch has not been published.
            CorruptStoreError: its file is missing or damaged, or belongs to another space.
            CheckpointError: the location cannot be read, or the manifest has a newer format.
        """
        if not 1 <= epoch <= self._epoch:
            raise UnknownCheckpointError(
                f"space at {self.location.url}: no epoch {epoch}: expected one from 1 to {self._epoch}"
            )
        if epoch not in self._manifests:
            self._manifests[epoch] = self._read(epoch)
        return self._manifests[epoch]

    def manifests(self, after: int = 0) -> Iterator[Manifest]:
        """Yield the manifests after an epoch, oldest first.

        Raises: as ``manifest``.
        """
        for epoch in range(after + 1, self._epoch + 1):
            yield self.manifest(epoch)

    def lineage(self, operator: str, shard: int, epoch: int | None = None) -> Lineage:
        """Return the runs that make up a shard at an epoch, the newest by default: a full one, then the others.

        Raises: as ``manifest``.
        """
        at = self._epoch if epoch is None else epoch
        begin = self.manifest(at).lineage.get(operator, [0] * self.shards)[shard] if at else 0
        if not begin:
            return ()
        return tuple(run for step in range(begin, at + 1) for run in _runs_of(self.manifest(step), operator, shard))

    def operator_plan(
        self, operator: str, epoch: int | None = None, full_after: int = 64, cache: str | None = None
    ) -> OperatorPlan:
        """Return the plan to open any shard of an operator as of an epoch, the newest by default.

        Args:
            operator: the name of the operator.
            epoch: the epoch to open; work on it would lead to the one after.
            full_after: how many differential runs may follow a full one before the next full one is considered.
            cache: the folder of the local caches, or None for the default of the machine.

        Raises: as ``manifest``.
        """
        at = self._epoch if epoch is None else epoch
        lineages = tuple(self.lineage(operator, shard, at) for shard in range(self.shards))
        return OperatorPlan(self.location, self.incarnation, operator, at + 1, lineages, full_after, cache)

    def begin(
        self, source: SourcePosition, operators: Sequence[str], full_after: int = 64, cache: str | None = None
    ) -> EpochPlan | None:
        """Return the plan of the next epoch, or None where its micro-batch is committed already.

        Args:
            source: the micro-batch.
            operators: the names of the operators that take part.
            full_after: how many differential runs may follow a full one before the next full one is considered.
            cache: the folder of the local caches, or None for the default of the machine.

        Raises:
            CheckpointError: micro-batches between the last committed one and this one are missing from the space.
        """
        last = self.newest.committed.get(source.query) if self.newest else None
        if last is not None and source.batch <= last:
            return None
        if last is not None and source.batch > last + 1:
            raise CheckpointError(
                f"space at {self.location.url}: query {source.query} comes with batch {source.batch}, but the last one"
                f" committed here is {last}: the batches between are missing: if an older copy of the space was put"
                " back, put the matching one there, or start a new query from the input that the space has not seen"
            )
        plans = {name: self.operator_plan(name, None, full_after, cache) for name in operators}
        return EpochPlan(self._epoch, source, plans)

    def publish(
        self,
        plan: EpochPlan,
        saved: Mapping[str, Sequence[ShardSaved]],
        metrics: Mapping[str, float] | None = None,
    ) -> Manifest:
        """Commit an epoch: the one step after which it has happened.

        Args:
            plan: the plan that the operators worked with.
            saved: for each operator of the plan the messages of its shards.
            metrics: figures about the epoch; those of the messages are summed and join them.

        Raises:
            CheckpointError: a shard has no message or several; nothing is published.
            FencedError: another driver has published this epoch.
        Dirties: one new manifest.
        """
        for operator in plan.operators:
            require_one_each(operator, self.shards, saved.get(operator, ()))
        messages = [message for messages in saved.values() for message in messages]
        manifest = self._manifest_of(plan, messages, {**_summed(messages), **(metrics or {})})
        if not self.location.create(_manifest_name(plan.epoch), manifest.to_json()):
            raise FencedError(
                f"space at {self.location.url}: epoch {plan.epoch} was published by another driver first: this one"
                " must stop; make sure that a single driver feeds the space, then start it again"
            )
        self._manifests[plan.epoch] = manifest
        self._epoch = plan.epoch
        self._forget_old()
        return manifest

    def _manifest_of(self, plan: EpochPlan, saved: Sequence[ShardSaved], metrics: dict[str, float]) -> Manifest:
        before = self.manifest(plan.base) if plan.base else None
        runs = tuple(message.run for message in saved if message.run)
        return Manifest(
            incarnation=self.incarnation,
            epoch=plan.epoch,
            base=plan.base,
            shards=self.shards,
            source=plan.source,
            committed={**(before.committed if before else {}), plan.source.query: plan.source.batch},
            runs=runs,
            lineage=self._lineage_after(before, runs),
            publisher=str(uuid4()),
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            metrics=metrics,
        )

    def _lineage_after(self, before: Manifest | None, runs: Sequence[AcceptedRun]) -> dict[str, list[int]]:
        lineage = {operator: list(begins) for operator, begins in before.lineage.items()} if before else {}
        for run in runs:
            begins = lineage.setdefault(run.operator, [0] * self.shards)
            if run.kind is CheckpointKind.FULL:
                begins[run.shard] = run.epoch
        return lineage

    def _read(self, epoch: int) -> Manifest:
        name = _manifest_name(epoch)
        place = f"{name} of {self.location.url}"
        data = self.location.read(name)
        if data is None:
            raise CorruptStoreError(f"{place} is missing, but later epochs are there: restore it from a backup")
        manifest = Manifest.from_json(data, place)
        if (manifest.incarnation, manifest.epoch) != (self.incarnation, epoch):
            raise CorruptStoreError(
                f"{place} is epoch {manifest.epoch} of space {manifest.incarnation}: expected epoch {epoch} of"
                f" {self.incarnation}: two spaces were mixed up here; restore the location from a backup"
            )
        return manifest

    def _forget_old(self) -> None:
        # A driver that runs for years keeps in memory what its lineages need, and reads older manifests again if asked.
        begins = [begin for shards in self._manifests[self._epoch].lineage.values() for begin in shards if begin]
        for epoch in [epoch for epoch in self._manifests if epoch < min(begins, default=self._epoch)]:
            del self._manifests[epoch]


def _manifest_name(epoch: int) -> str:
    return f"{_MANIFESTS}/{epoch:012d}.json"


def _runs_of(manifest: Manifest, operator: str, shard: int) -> Lineage:
    return tuple(run for run in manifest.runs if (run.operator, run.shard) == (operator, shard))


def _summed(saved: Sequence[ShardSaved]) -> dict[str, float]:
    names = sorted({name for message in saved for name in message.metrics})
    return {name: sum(message.metrics.get(name, 0) for message in saved) for name in names}
