"""Plans: what a driver decides about an epoch before it starts, and what a shard reports back.

Both are small values that can be pickled or turned into JSON, and neither depends on the engine that carries them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import orjson

from checkpoint.chain.location import Location
from checkpoint.chain.manifest import AcceptedRun, SourcePosition
from checkpoint.chain.runfile import write_run
from checkpoint.errors import CheckpointError
from checkpoint.run import CheckpointKind, Run

Lineage = tuple[AcceptedRun, ...]
"""The runs that make up a shard: one full run, then the differential ones, oldest first; empty before the first."""

RunsSeen = list[tuple[int, str]]
"""The epoch and digest of each run that a state is made of, the full one first."""

FULL_AFTER = 64
"""How many differential runs may follow a full one before the next full one is considered, by default."""

MOST_CARRIED = 4
"""A lineage of up to so many runs is named whole by every manifest, not pieced together from all since its first."""

MOST_RUNS = 8192
"""A lineage never has many more runs, whatever their size: a cache that has seen all remembers 10,000 checkpoints."""

_SELDOM = 16
"""After this many times ``full_after`` runs or epochs a lineage is too long, whatever the size of its runs."""

_GREATEST = 2**63


@dataclass(frozen=True)
class OperatorPlan:
    """What a task needs to open and save any shard of one operator.

    Args:
        location: where the chain lies.
        incarnation: the UUID of the space.
        operator: the name of the operator.
        epoch: the epoch that work on it leads to; what is opened is the state at the one before.
        lineages: the lineage of each shard, in order of shard number.
        full_after: how many differential runs may follow a full one before the next full one is considered.
        cache: the folder of the local caches, or None for the default of the machine.
        makes_epoch: whether it is for the epoch that the driver is making now, not for reading an existing epoch.
    """

    location: Location
    incarnation: str
    operator: str
    epoch: int
    lineages: tuple[Lineage, ...]
    full_after: int = FULL_AFTER
    cache: str | None = None
    makes_epoch: bool = False

    @property
    def shards(self) -> int:
        """The number of shards."""
        return len(self.lineages)

    def is_image_due(self, shard: int) -> bool:
        """Return whether the differential runs of a shard are many, and outweigh the image that they start from.

        If they are few, yet too many to be carried on, an image is due after many epochs. If they start from a
        division, one is due at once, so that opening the shard no longer means reading others.
        """
        return any(run.is_division for run in self.lineages[shard][:1]) or self._is_long(shard)

    def _is_long(self, shard: int) -> bool:
        lineage = self.lineages[shard]
        if MOST_CARRIED < len(lineage) <= self.full_after:
            return self.epoch - lineage[0].epoch > _SELDOM * self.full_after
        return len(lineage) > self.full_after and (sum(run.file_bytes for run in lineage[1:]) >= lineage[0].file_bytes)

    def kind(self, shard: int) -> CheckpointKind:
        """Return the kind of the next run of a shard.

        A full run is due once the differential ones outweigh the last full one, so that all full runs together cost at
        most what the differential ones do, and a fresh machine reads at most twice the state. State that is large
        compared with its changes waits longer, but not forever: a lineage stays short enough to ship with every task.
        """
        lineage = self.lineages[shard]
        if not lineage:
            return CheckpointKind.FULL
        due = self._is_long(shard) or len(lineage) > min(_SELDOM * self.full_after, MOST_RUNS)
        return CheckpointKind.FULL if due else CheckpointKind.DIFFERENTIAL


@dataclass(frozen=True)
class ShardSaved:
    """What a task reports about the one shard that it has saved.

    Args:
        operator: the name of the operator.
        shard: the number of the shard.
        run: its private run file, or None if nothing had changed.
        metrics: figures to be summed over the shards, such as rows and seconds.
    """

    operator: str
    shard: int
    run: AcceptedRun | None
    metrics: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the message as text."""
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the message from text that ``to_json`` has made."""
        values: dict[str, Any] = orjson.loads(text)
        run = values["run"]
        return cls(**{**values, "run": run and AcceptedRun.from_dict(run)})


@dataclass(frozen=True)
class EpochPlan:
    """What a driver has decided about the next epoch, before any of its operators runs.

    Args:
        base: the epoch that it builds on, 0 for the first.
        source: the micro-batch that makes it.
        operators: the plan of each operator, by name.
    """

    base: int
    source: SourcePosition
    operators: Mapping[str, OperatorPlan]

    @property
    def epoch(self) -> int:
        """The epoch that will be published."""
        return self.base + 1


def save_run(plan: OperatorPlan, shard: int, run: Run, metrics: Mapping[str, float] | None = None) -> ShardSaved:
    """Write what a shard has changed to a private run file, and return the message for the driver.

    Args:
        plan: the plan that the shard was opened with.
        shard: the number of the shard.
        run: its rows.
        metrics: figures about the work.

    Raises:
        CheckpointError: the location cannot be written.

    Dirties: one new file, unless the run changes nothing; nothing shared changes.
    """
    # An image without a row says that all is gone, if there was anything.
    is_nothing = run.is_empty() and not (run.kind is CheckpointKind.FULL and plan.lineages[shard])
    plan.location.require_there()
    accepted = None if is_nothing else write_run(plan.location, run, plan.operator, shard, plan.epoch)
    return ShardSaved(plan.operator, shard, accepted, dict(metrics or {}))


def standing(seen: RunsSeen) -> str:
    """Return a digest that stands for a shard made of some runs.

    Args:
        seen: the runs.

    >>> standing([(1, "a"), (2, "b")]) != standing([(1, "a")])
    True
    """
    return hashlib.blake2b(orjson.dumps(seen), digest_size=16).hexdigest()


def runs_seen_at(lineage: Sequence[AcceptedRun]) -> RunsSeen:
    """Return the epoch and digest of each run of a lineage."""
    return [(run.epoch, run.digest) for run in lineage]


def require_one_each(operator: str, shards: int, saved: Sequence[ShardSaved]) -> None:
    """Make sure that there is exactly one message for each shard of an operator.

    Raises:
        CheckpointError: a message is missing, duplicated, or belongs to another operator or shard.
    """
    found = sorted(message.shard for message in saved)
    foreign = {message.operator for message in saved} - {operator}
    if found != list(range(shards)) or foreign:
        raise CheckpointError(
            f"operator {operator}: expected one saved run for each of {shards} shards, found shards {found}"
            f"{f' and operators {sorted(foreign)}' if foreign else ''}: nothing was published; the rows must reach"
            " their shards by repartitionById with that number of partitions"
        )


def require_numbers(metrics: Mapping[str, float]) -> None:
    """Refuse figures that a manifest cannot hold.

    Raises:
        CheckpointError: one is not a number, not finite, or a whole number of more than 64 bits.
    """
    for name, figure in metrics.items():
        require_text([name])
        if type(figure) not in (int, float, bool) or not abs(figure) < _GREATEST:
            raise CheckpointError(
                f"metric {name!r} is {figure!r:.80}: expected a finite number below 2**63, of type int or float:"
                " nothing was published"
            )


def require_text(names: Iterable[str]) -> None:
    """Refuse names that a manifest cannot hold.

    Raises:
        CheckpointError: one is not text, or has half of a surrogate pair.
    """
    for name in names:
        if not isinstance(name, str) or any("\ud800" <= letter <= "\udfff" for letter in name):
            raise CheckpointError(f"{name!r:.80} cannot be stored as text: nothing was published; choose another name")


def require_own_run(message: ShardSaved, epoch: int) -> None:
    """Refuse a message whose run belongs to another epoch or shard.

    Raises:
        CheckpointError: it is.
    """
    run, wanted = message.run, (message.operator, message.shard, epoch)
    if run is not None and (run.operator, run.shard, run.epoch) != wanted:
        raise CheckpointError(
            f"operator {message.operator}, shard {message.shard}: its run was saved for {run.operator}/{run.shard} at"
            f" epoch {run.epoch}, and epoch {epoch} is to be published: nothing was published; save each shard with"
            " the plan of this epoch"
        )
