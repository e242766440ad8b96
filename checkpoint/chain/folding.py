"""Folding runs into a store, and telling which runs a store was made of.

A store is trusted if its checkpoints, by epoch and digest, are a prefix of the lineage of its shard. The lineage begins
with a full run, so nothing a store holds can come from anywhere else.

A lineage may later begin with an image of the shard that was made alongside the epochs. A store made of exactly the
runs that the image stands for stays as it is: a file beside it notes that its first checkpoints are that image. The
same is noted for a division, whose rows are made when they are asked for.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from checkpoint.chain.division import DIVIDER, Division, read_division
from checkpoint.chain.folders import private_folder, scratch_folder, unusable
from checkpoint.chain.location import Location
from checkpoint.chain.manifest import AcceptedRun
from checkpoint.chain.plan import Lineage, RunsSeen, runs_seen_at, standing
from checkpoint.chain.runfile import read_pages, read_run
from checkpoint.errors import CorruptStoreError
from checkpoint.run import Page, Run
from checkpoint.store import CheckpointStore

PAGED_SLOTS = 100_000
"""A run of more item rows is folded in page by page: in memory each would take some hundred bytes."""


def catch_up(store: CheckpointStore, location: Location, lineage: Lineage) -> bool:
    """Fold into a store the runs of a lineage that it lacks, and return whether it is then at the end of the lineage.

    Args:
        store: a cache of the shard, of any age; or an empty store.
        location: where the run files lie.
        lineage: the runs of the shard, a full one first.

    Returns:
        False if the store holds anything that the lineage does not: then it is of no use, and unchanged.

    Raises:
        CorruptStoreError: a run file is missing or damaged.
        CheckpointError: the location cannot be read.

    Time: O(rows of the runs that were lacking). Dirties: one checkpoint of the store for each of them.
    """
    have = runs_seen(store)
    if have != runs_seen_at(lineage)[: len(have)]:
        have = _replaced(have, lineage)
        if not have:
            return False
        _note_image(store, lineage[0])
    fold(store, location, lineage[len(have) :])
    return True


def fold(store: CheckpointStore, location: Location, runs: Sequence[AcceptedRun]) -> None:
    """Fold runs into a store that holds everything before them; those that it already has are skipped.

    Args:
        store: a cache of the shard.
        location: where the run files lie.
        runs: what follows, oldest first.

    Raises:
        CorruptStoreError: a run file is missing or damaged.
        CheckpointError: the location cannot be read.

    Time: O(rows of the runs that were lacking). Dirties: one checkpoint of the store for each of them.
    """
    lacking = [accepted for accepted in runs if accepted.epoch >= store.next_epoch()]
    for accepted in lacking:
        if accepted.is_division:
            with divided(location, accepted, Path(store.path).parent) as pages:
                store.apply_pages(accepted.kind, pages, accepted.epoch)
            _note_image(store, accepted)
        elif accepted.slots > PAGED_SLOTS:
            store.apply_pages(accepted.kind, read_pages(location, accepted), accepted.epoch)
        else:
            store.apply(read_run(location, accepted), accepted.epoch)
    if lacking and runs_seen(store)[-len(lacking) :] != runs_seen_at(lacking):
        raise CorruptStoreError(
            f"{store.path}: the runs of {lacking[-1].operator}/{lacking[-1].shard} at {location.url} do not have the"
            " digests that their manifests name: restore the location from a backup"
        )


@contextmanager
def divided(location: Location, accepted: AcceptedRun, beside: Path) -> Iterator[Iterator[Page]]:
    """Give the rows of a shard that a division makes of others, as ``Reader.image_pages`` yields them.

    They are the same on every machine, including their object ids, which the runs that follow refer to.

    Args:
        location: where the run files lie.
        accepted: what the manifest says of the division.
        beside: a folder with room for as much data as the shards that it is made of.

    Raises:
        CorruptStoreError: a file is missing or damaged.
        CheckpointError: the location cannot be read, or the division has a newer format.

    Time: O(rows of the shards that it is made of). Dirties: a folder in ``beside``, which is gone afterwards.
    """
    division = read_division(location, accepted)
    with (
        private_folder(beside) as folder,
        closing(_parts(location, division, folder)) as parts,
        import_module(DIVIDER).divide(division, parts, folder) as pages,
    ):
        yield pages


def _parts(location: Location, division: Division, folder: Path) -> Generator[tuple[int, CheckpointStore]]:
    """Yield the shards that a division is made of, one after the other: each is gone when the next is asked for."""
    for part in division.parts:
        with TemporaryDirectory(dir=folder) as own, CheckpointStore(f"{own}/part.db", durability="normal") as store:
            catch_up(store, location, part.lineage)
            yield part.shard, store


def rows_of(location: Location, accepted: AcceptedRun) -> Run:
    """Return the rows of an accepted run, or those that a division stands for.

    Raises: as ``divided``, and ``read_run``.
    """
    if not accepted.is_division:
        return read_run(location, accepted)
    with scratch_folder() as folder, divided(location, accepted, folder) as pages:
        return Run.of_pages(accepted.kind, pages)


def fits(have: RunsSeen, lineage: Lineage) -> bool:
    """Return whether a store that stands for some runs can be brought to the end of a lineage."""
    return have == runs_seen_at(lineage)[: len(have)] or bool(_replaced(have, lineage))


def _replaced(have: RunsSeen, lineage: Lineage) -> RunsSeen:
    """Return what a cache holds, as the image that a lineage begins with and what follows; nothing if they differ."""
    if not lineage or not lineage[0].replaces:
        return []
    first, *rest = runs_seen_at(lineage)
    before = [entry for entry in have if entry[0] <= first[0]]
    after = have[len(before) :]
    return [first, *after] if standing(before) == lineage[0].replaces and after == rest[: len(after)] else []


def runs_seen(store: CheckpointStore) -> RunsSeen:
    """Return the epoch and digest of each run that a store stands for."""
    have, noted = records(store), _noted_image(store)
    # A cache that has lost its last checkpoints in a power failure may be older than what was noted of it.
    if noted is None or noted[1] not in have:
        return have
    return [noted[0], *(entry for entry in have if entry[0] > noted[0][0])]


def records(store: CheckpointStore) -> RunsSeen:
    """Return the epoch and digest of each checkpoint that a store has had."""
    return [(record.epoch, record.digest) for record in store.checkpoints()]


def _note_image(store: CheckpointStore, image: AcceptedRun) -> None:
    """Note that the checkpoints of a cache up to an epoch together are an image."""
    last = [entry for entry in records(store) if entry[0] <= image.epoch][-1]
    path = _note_of(store)
    staged = path.with_name(f"{path.name}-{uuid4().hex}")
    try:
        staged.write_text(json.dumps([[image.epoch, image.digest], last]), "utf-8")
        staged.replace(path)
    except OSError as error:
        raise unusable(path.parent, error) from error


def _noted_image(store: CheckpointStore) -> tuple[tuple[int, str], tuple[int, str]] | None:
    """Return the image that a cache stands for, and the checkpoint that completes it."""
    try:
        image, last = json.loads(_note_of(store).read_text("utf-8"))
        return (image[0], image[1]), (last[0], last[1])
    except (OSError, ValueError, TypeError, IndexError):
        return None


def _note_of(store: CheckpointStore) -> Path:
    return Path(f"{store.path}.image")
