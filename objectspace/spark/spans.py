"""The epochs that a change feed reads, as spans in which every shard stays what it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from checkpoint import UnknownCheckpointError
from checkpoint.chain import Chain


@dataclass(frozen=True)
class Span:
    """Some epochs of a feed.

    Args:
        first: the first one.
        last: the last one.
        shards: the number of shards in all of them, and before the first.
        is_whole: whether the first gives all rows that are there, because what came before is gone; of a store file
            whether the reader has seen nothing yet.
        mark: what tells the last one from an epoch of another history; empty if it was not looked at.
    """

    first: int
    last: int
    shards: int
    is_whole: bool = False
    mark: str = ""


def spans_of(chain: Chain, after: int, last: int) -> Iterator[Span]:
    """Yield the epochs after one up to another, without those that only gave the space another number of shards.

    Args:
        chain: the space.
        after: the epoch that the reader has seen, 0 at the beginning.
        last: the last epoch to read.

    Raises:
        UnknownCheckpointError: epochs that the reader has not seen yet were collected.
        CorruptStoreError: a manifest is missing or damaged.

    Time: O(epochs).
    """
    if last <= after:
        return
    floor = chain.first_epoch
    require_kept(f"space at {chain.location.url}", after or None, last, floor)
    first = max(after + 1, floor)
    is_whole = first > after + 1
    begin, shards = first, chain.shards_at(after or first)
    for epoch in range(first, last + 1):
        found = chain.shards_at(epoch)
        if found != shards:
            if begin < epoch:
                yield Span(begin, epoch - 1, shards, is_whole)
            begin, shards, is_whole = epoch + 1, found, False
    if begin <= last:
        yield Span(begin, last, shards, is_whole)


def require_kept(place: str, after: int | None, last: int, floor: int) -> None:
    """Make sure that a feed has not fallen behind what is kept.

    Args:
        place: what it reads.
        after: the epoch that the reader has seen, ``None`` at the beginning.
        last: the last epoch to read.
        floor: the oldest epoch that is kept.

    Raises:
        UnknownCheckpointError: epochs that the reader has not seen yet are gone.
    """
    if last < floor or (after is not None and after < floor):
        raise UnknownCheckpointError(
            f"{place}: the feed comes from epoch {after or 0}, and the oldest that is kept is {floor}: start a new"
            " feed, with another checkpointLocation: it then begins with all rows; and keep more epochs"
        )
