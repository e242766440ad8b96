"""Which history is read: the mark of an epoch tells it from one of the same number in another history."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from checkpoint import CheckpointError, CheckpointStore, UnknownCheckpointError
from checkpoint.chain import Chain
from checkpoint.record import CheckpointRecord


@dataclass(frozen=True)
class Seen:
    """How far a feed has come, which Spark keeps as its offset; or the epoch that a DataFrame is of.

    Args:
        epoch: the newest epoch that was read, 0 without a mark where a feed begins: a store file may have an epoch 0.
        mark: the mark of that epoch, empty if nothing is known of it, as in offsets of earlier versions.
    """

    epoch: int = 0
    mark: str = ""

    @classmethod
    def of(cls, offset: Any) -> Self:
        """Return what an offset says.

        Raises:
            CheckpointError: it is none that a change feed has given: another source may have used Spark's checkpoint.
        """
        epoch, mark = (offset.get("epoch"), offset.get("history", "")) if isinstance(offset, dict) else (None, "")
        if type(epoch) is not int or type(mark) is not str:
            raise CheckpointError(
                f"Spark's checkpoint says that the change feed has come to {offset!r:.80}: expected"
                ' {"epoch": 3, "history": "..."}, a whole number and text: give the query a checkpointLocation'
                " that no other source has used, or put back a copy of this one"
            )
        return cls(epoch, mark)

    def offset(self) -> dict[str, Any]:
        """Return the offset that says it."""
        return {"epoch": self.epoch, "history": self.mark} if self.mark else {"epoch": self.epoch}

    @property
    def is_nothing(self) -> bool:
        """Whether nothing was read yet."""
        return not self.epoch and not self.mark

    def is_after(self, other: Seen) -> bool:
        """Return whether this is further than another one has come."""
        return not self.is_nothing and (other.is_nothing or self.epoch > other.epoch)


@dataclass(frozen=True)
class History:
    """The epochs that a space or a store file has now.

    Args:
        place: what an error calls it.
        oldest: the oldest epoch from which on all can be read.
        newest: the newest epoch, 0 if there is none.
        mark_of: returns the mark of an epoch from the oldest to the newest.
        epochs: those that there are, in order.
    """

    place: str
    oldest: int
    newest: int
    mark_of: Callable[[int], str]
    epochs: Sequence[int]

    @classmethod
    def of_space(cls, chain: Chain) -> Self:
        """Return the history of a space.

        Its marks say who published an epoch. A fork keeps that, so a feed may continue from a fork that replaces the
        space, as long as it has read no epoch that the fork lacks.
        """
        place, epochs = f"space at {chain.location.url}", range(chain.first_epoch, chain.epoch + 1)
        return cls(place, chain.first_epoch, chain.epoch, lambda epoch: chain.manifest(epoch).publisher, epochs)

    @classmethod
    def of_file(cls, path: str) -> Self:
        """Return the history of a store file."""
        with CheckpointStore(path, read_only=True) as store:
            return cls.of_store(store)

    @classmethod
    def of_store(cls, store: CheckpointStore) -> Self:
        """Return the history of a store file as an open store sees it."""
        kept = kept_records(store)
        oldest, newest = (kept[0].epoch, kept[-1].epoch) if kept else (1, 0)

        def mark_of(epoch: int) -> str:
            """Return the mark of the last checkpoint up to an epoch: the checkpoints of a file may have gaps."""
            last = [record for record in kept if record.epoch <= epoch][-1]
            return hashlib.blake2b(f"{last.epoch} {last.time} {last.digest}".encode(), digest_size=16).hexdigest()

        return cls(f"store {store.path}", oldest, newest, mark_of, [record.epoch for record in kept])

    def further(self, seen: Seen, most: int) -> int:
        """Return the epoch that comes so many after what was seen, or the newest; those of a store file have gaps."""
        place = most + (0 if seen.is_nothing else bisect_right(self.epochs, seen.epoch))
        return self.epochs[place - 1] if place <= len(self.epochs) else self.newest

    def seen(self, epoch: int) -> Seen:
        """Return an epoch with its mark; of one that is no longer kept nothing is known.

        Raises:
            CheckpointError: its manifest cannot be read.
        """
        if not self.oldest <= epoch <= self.newest:
            return Seen(epoch)
        try:
            return Seen(epoch, self.mark_of(epoch))
        except UnknownCheckpointError:
            return Seen(epoch)  # It was collected meanwhile.

    def require(self, seen: Seen) -> None:
        """Make sure that an epoch is the one that a feed has read, as far as both are known.

        Raises:
            CheckpointError: it is not there, or belongs to another history; or its manifest cannot be read.
        """
        if found := self._instead_of(seen):
            raise CheckpointError(
                f"{self.place}: the change feed comes from epoch {seen.epoch}: {found}: what it has read was replaced,"
                " by an older state or by something newly made: put back what it has followed, or start a new feed,"
                " with another checkpointLocation: it then begins with all rows"
            )

    def require_loaded(self, seen: Seen) -> None:
        """Make sure that an epoch is the one that a DataFrame is of, as far as both are known.

        Raises:
            CheckpointError: as ``require``.
        """
        if found := self._instead_of(seen):
            raise CheckpointError(
                f"{self.place}: the DataFrame is of epoch {seen.epoch}: {found}: what it reads was replaced, by an"
                " older state or by something newly made: reload it, or put back what it was loaded from"
            )

    def _instead_of(self, seen: Seen) -> str:
        """Return what was expected and what is there, if that is not the epoch that was seen; else nothing."""
        if seen.is_nothing:
            return ""
        expected = f"expected that epoch{f' with the mark {seen.mark}' if seen.mark else ''}"
        if seen.epoch > self.newest:
            found = f"the newest epoch is {self.newest}" if self.epochs else "there is no epoch yet"
            return f"{expected}, found that {found}"
        mark = self.seen(seen.epoch).mark if seen.mark else ""
        return f"{expected}, found that epoch {seen.epoch} has the mark {mark}" if mark not in ("", seen.mark) else ""


def kept_records(store: CheckpointStore) -> list[CheckpointRecord]:
    """Return the checkpoints of a store from which on all can be read, oldest first.

    There may be older ones, which a reader held when those after them were dropped.
    """
    kept: list[CheckpointRecord] = []
    for record in reversed(store.checkpoints()):
        if record.run_slots is None or (kept and record.number < kept[-1].number - 1):
            break
        kept.append(record)
    return kept[::-1]
