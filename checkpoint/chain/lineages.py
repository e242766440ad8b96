"""The lineages of the next epoch: which runs make up each shard, without going back to its first one."""

from __future__ import annotations

from collections.abc import Sequence

from checkpoint.chain.epochs import Epochs
from checkpoint.chain.manifest import AcceptedRun, Manifest
from checkpoint.chain.plan import MOST_CARRIED, Lineage
from checkpoint.run import CheckpointKind

CARRY_AFTER = 64
"""After how many epochs the lineage of a shard that has had few runs starts over with these."""


def next_lineages(
    epochs: Epochs, before: Manifest | None, runs: Sequence[AcceptedRun], images: Sequence[AcceptedRun], shards: int
) -> tuple[dict[str, list[int]], dict[tuple[str, int], Lineage]]:
    """Return the epoch that the lineage of each shard begins with, and the runs that come before that.

    If the shards are new, because there are more or fewer, nothing before their first image counts.
    """
    is_same = before is not None and before.shards == shards
    known = before.lineage if before else {}
    begins = {operator: list(old) if is_same else [0] * shards for operator, old in known.items()}
    starts: dict[tuple[str, int], Lineage] = {}
    if before is not None and is_same:
        for one in before.images:
            starts[one.operator, one.shard] = (*starts.get((one.operator, one.shard), ()), one)
        _carry(epochs, before.epoch, begins, starts)
        for image in images:
            place = image.operator, image.shard
            starts[place] = (image, *(run for run in starts.get(place, ()) if run.epoch > image.epoch))
            begins[image.operator][image.shard] = max(image.epoch, begins[image.operator][image.shard])
    for run in runs:
        old = begins.setdefault(run.operator, [0] * shards)
        if run.kind is CheckpointKind.FULL:
            old[run.shard] = run.epoch
            starts.pop((run.operator, run.shard), None)
    return begins, starts


def _carry(epochs: Epochs, base: int, begins: dict[str, list[int]], starts: dict[tuple[str, int], Lineage]) -> None:
    """Make the lineages of shards that seldom change start over with the few runs that they have.

    Otherwise every plan would go through all epochs since the last image, and none of their manifests could be
    removed.
    """
    for operator, old in begins.items():
        for shard, begin in enumerate(old):
            if begin and base > begin and (base - begin) % CARRY_AFTER == 0:
                lineage = epochs.lineage(operator, shard, base)
                if len(lineage) <= MOST_CARRIED:
                    starts[operator, shard], old[shard] = lineage, base
