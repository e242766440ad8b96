"""Receipts: what each epoch of a chain wrote, next to what saving the whole state again would have written."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from checkpoint.chain.chain import Chain
from checkpoint.chain.folding import rows_of
from checkpoint.run import (
    CheckpointKind,
    ItemRow,
    Run,
    Slot,
    is_owner,
    item_bytes,
    owned_ids,
    text_bytes,
)


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
        state_bytes: the bytes that saving all of it again would have written.
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
        if manifest.shards != count:  # every shard starts over
            shards, count = {}, manifest.shards
        for accepted in manifest.runs:
            sizes = shards.setdefault((accepted.operator, accepted.shard), _Sizes())
            sizes.apply(rows_of(chain.location, accepted))
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
                        sizes.apply(rows_of(chain.location, accepted))
    return shards


class _Sizes:
    """The bytes of every live row of one shard."""

    def __init__(self) -> None:
        self._objects: dict[int, dict[Hashable, int]] = {}
        self._owners: set[int] = set()
        self._owned: dict[tuple[int, Slot], set[int]] = {}
        self.slots = 0
        self.bytes = 0

    def apply(self, run: Run) -> None:
        """Apply what a run changes."""
        if run.kind is CheckpointKind.FULL:
            for object_id in list(self._objects):
                self._drop(object_id)
        for index in run.index:
            if index[2] is None:
                self._drop(index[0])
                continue
            self._put(index[0], None, text_bytes([index]))
            if is_owner(index):
                self._owners.add(index[0])
        for metadata in run.metadata:
            self._put(metadata[0], metadata[1], None if metadata[2] is None else text_bytes([metadata]))
        for item in run.items:
            if item[0] in self._owners:
                self._own(item)
            self._put(item[0], (item[1],), None if item[2] is None else item_bytes([item]))

    def _own(self, item: ItemRow) -> None:
        """Drop what a slot of an owner no longer owns."""
        owned = owned_ids([item[2]])
        for gone in self._owned.pop(item[:2], set()) - owned:
            self._drop(gone)
        if owned:
            self._owned[item[:2]] = owned

    def _drop(self, object_id: int) -> None:
        """Drop an object, and what it owns."""
        rows = self._objects.pop(object_id, {})
        self.bytes -= sum(rows.values())
        self.slots -= sum(type(key) is tuple for key in rows)
        if object_id in self._owners:
            self._owners.discard(object_id)
            for place in [place for place in self._owned if place[0] == object_id]:
                for owned in self._owned.pop(place):
                    self._drop(owned)

    def _put(self, object_id: int, key: Hashable, size: int | None) -> None:
        """Set the bytes of a row: an index row under None, metadata under its key, a slot under a tuple with it."""
        rows = self._objects.setdefault(object_id, {})
        known = rows.pop(key, None)
        self.bytes += (size or 0) - (known or 0)
        if type(key) is tuple:
            self.slots += (size is not None) - (known is not None)
        if size is not None:
            rows[key] = size
