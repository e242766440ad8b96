"""Receipts: what each epoch of a chain wrote, beside what saving the whole state again would have written."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from checkpoint.chain.chain import Chain
from checkpoint.chain.runfile import read_run
from checkpoint.run import CheckpointKind, Run, index_bytes, item_bytes, metadata_bytes


@dataclass(frozen=True)
class EpochReceipt:
    """What one epoch cost.

    Args:
        epoch: its number.
        batch: the micro-batch that made it.
        rows: the rows that came in.
        slots: the dirty slots that it wrote.
        bytes: the bytes of their keys and values.
        file_bytes: the bytes of its run files.
        state_slots: the slots of the whole state after it.
        state_bytes: the bytes that saving all of them again would have written.
    """

    epoch: int
    batch: int
    rows: int
    slots: int
    bytes: int
    file_bytes: int
    state_slots: int
    state_bytes: int


def receipts(chain: Chain) -> Iterator[EpochReceipt]:
    """Yield the receipt of every epoch that was not collected, oldest first.

    Raises:
        CorruptStoreError: a manifest or run file is missing or damaged.
        CheckpointError: the location cannot be read.
    Time: O(rows of all runs).
    """
    shards, count = _sizes_before(chain), chain.shards_at(chain.first_epoch) if chain.epoch else 0
    for manifest in chain.manifests():
        if manifest.shards != count:  # every shard begins anew
            shards, count = {}, manifest.shards
        for accepted in manifest.runs:
            sizes = shards.setdefault((accepted.operator, accepted.shard), _Sizes())
            sizes.apply(read_run(chain.location, accepted))
        yield EpochReceipt(
            epoch=manifest.epoch,
            batch=manifest.source.batch,
            rows=int(manifest.metrics.get("rows", 0)),
            slots=manifest.slots,
            bytes=manifest.bytes,
            file_bytes=manifest.file_bytes,
            state_slots=sum(sizes.slots for sizes in shards.values()),
            state_bytes=sum(sizes.bytes for sizes in shards.values()),
        )


def _sizes_before(chain: Chain) -> dict[tuple[str, int], _Sizes]:
    """Return what every shard held before the first epoch that was not collected."""
    shards: dict[tuple[str, int], _Sizes] = {}
    if chain.first_epoch > 1:
        for operator in chain.manifest(chain.first_epoch).lineage:
            for shard in range(chain.shards_at(chain.first_epoch)):
                sizes = shards.setdefault((operator, shard), _Sizes())
                for accepted in chain.lineage(operator, shard, chain.first_epoch):
                    if accepted.epoch < chain.first_epoch:
                        sizes.apply(read_run(chain.location, accepted))
    return shards


class _Sizes:
    """The bytes of every live row of one shard."""

    def __init__(self) -> None:
        self._rows: dict[Hashable, int] = {}
        self.slots = 0
        self.bytes = 0

    def apply(self, run: Run) -> None:
        """Follow what a run changes."""
        if run.kind is CheckpointKind.FULL:
            self._rows.clear()
            self.slots = self.bytes = 0
        for index in run.index:
            self._put(("index", index[0]), None if index[2] is None else index_bytes([index]))
        for metadata in run.metadata:
            self._put(("metadata", *metadata[:2]), None if metadata[2] is None else metadata_bytes([metadata]))
        for item in run.items:
            key = ("item", *item[:2])
            self.slots -= key in self._rows
            self.slots += item[2] is not None
            self._put(key, None if item[2] is None else item_bytes([item]))

    def _put(self, key: Hashable, size: int | None) -> None:
        self.bytes -= self._rows.pop(key, 0)
        if size is not None:
            self._rows[key] = size
            self.bytes += size
