"""Garbage collection of a chain: it removes what no kept epoch needs, and what nobody ever published.

A file ``floor/<epoch>.json``, written before anything is removed, names the first epoch that can be read. So whoever
opens the chain meanwhile, or after an interruption anywhere, sees either an epoch with all that it needs or one that is
marked as gone; collecting again finishes the work.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from checkpoint.chain.division import with_parts
from checkpoint.chain.location import Location
from checkpoint.chain.manifest import DIVISION, PLAIN_FORMAT, AcceptedRun, Manifest, seal
from checkpoint.chain.runfile import checked, kind_of, missing
from checkpoint.errors import CheckpointError, CorruptStoreError
from checkpoint.run import CheckpointKind

FLOORS = "floor"
MANIFESTS = "manifest"
RUNS = "run"
HANDOVER = "handover"
"""Where pipelines keep what their tasks hand over; the files themselves belong to the pipelines."""

_FOLDERS = ("", FLOORS, MANIFESTS, RUNS, HANDOVER)
"""The folders of a space, in which a write may leave a temporary file."""


@dataclass(frozen=True)
class Collected:
    """The result of a garbage collection.

    Args:
        first_epoch: the oldest epoch that can be read from now on.
        manifests: how many manifests were removed.
        runs: how many run files were removed.
        leftovers: how many temporary files of processes that died were removed.
    """

    first_epoch: int
    manifests: int
    runs: int
    leftovers: int


def file_name(folder: str, epoch: int) -> str:
    """Return the name of the file of an epoch."""
    return f"{folder}/{epoch:012d}.json"


_FILE_NAME = re.compile(r"\d{12,}\.json", re.ASCII)


def epochs_in(location: Location, folder: str) -> list[int]:
    """Return the epochs that have a file in a folder, in order."""
    return sorted(int(name.removesuffix(".json")) for name in location.names(folder) if _FILE_NAME.fullmatch(name))


def put_floor(location: Location, epoch: int, incarnation: str) -> bool:
    """Put the file that marks the epochs before this one as no longer readable, and return whether it was not there."""
    return location.create(
        file_name(FLOORS, epoch), seal({"incarnation": incarnation, "epoch": epoch, "format": PLAIN_FORMAT})
    )


def raise_floor(location: Location, epoch: int, incarnation: str) -> None:
    """Mark the epochs before this one as no longer readable.

    Dirties: one new file, unless it is there; the files of lower floors are removed.
    """
    # Two collectors may raise the floor at once; the highest counts, so the order does not matter.
    put_floor(location, epoch, incarnation)
    for lower in epochs_in(location, FLOORS):
        if lower < epoch:
            location.delete(file_name(FLOORS, lower))


def needed_runs(location: Location, kept: Sequence[Manifest], older: Iterable[Manifest] = ()) -> dict[str, AcceptedRun]:
    """Return the run files that some epochs need, by name.

    Args:
        location: where they lie.
        kept: the manifests of these epochs, oldest first.
        older: the manifests of earlier epochs, in which the lineages of the first one begin.

    Raises:
        CorruptStoreError: a division that they name is missing or damaged.
    """
    named = [run for manifest in kept for run in manifest.files]
    named += [run for manifest in older for run in manifest.runs if _is_in_lineage(run, kept[0])]
    return {run.file: run for run in with_parts(location, named)}


def require_there(
    location: Location, needed: Mapping[str, AcceptedRun], listed: Collection[str], kept: Sequence[Manifest]
) -> None:
    """Refuse to remove anything while a file that kept epochs need is gone: what would be removed may help restore it.

    Args:
        location: where they lie.
        needed: the run files that the kept epochs need, by name.
        listed: the names of the files that a listing has found; each of the others is looked at.
        kept: the manifests of these epochs, oldest first.

    Raises:
        CorruptStoreError: it is so.

    Time: O(needed), and a look at each file that was added since the listing.
    """
    gone = (run for name, run in needed.items() if name not in listed and location.modified(name) is None)
    if lost := next(gone, None):
        raise missing(
            location,
            lost,
            f", which an epoch from {kept[0].epoch} to {kept[-1].epoch} needs; nothing was removed, so that"
            " `checkpoint fork` finds what there is",
        )


def require_sound(location: Location, needed: Iterable[AcceptedRun], floor: Manifest, before: Manifest | None) -> None:
    """Refuse to make older runs garbage while what takes their place is damaged: they are the only way back from that.

    Each full run and image is read once, by the collection that first has lineages begin with it.

    Args:
        location: where they lie.
        needed: the run files that the kept epochs need.
        floor: the manifest of the epoch that is to be the first.
        before: the manifest of the epoch that was the first until now, if it can be read.

    Raises:
        CorruptStoreError: it is so.

    Time: O(bytes of these files); memory for one of them.
    """
    for run in needed:
        if run.kind is CheckpointKind.FULL and run.epoch <= floor.epoch and _begins_newly(run, floor, before):
            try:
                checked(location, run)
            except CorruptStoreError as error:
                raise CorruptStoreError(
                    f"nothing was removed, so that `checkpoint fork` finds the runs before it: {error}"
                ) from error


def _begins_newly(run: AcceptedRun, floor: Manifest, before: Manifest | None) -> bool:
    """Return whether a full run or image may have lineages begin with it at one epoch, and not yet at another."""
    # An image is older than the epoch that names it first.
    is_named = run in floor.images and run not in (before.images if before else ())
    return run.epoch > (before.epoch if before else 0) or (bool(run.replaces) and is_named)


def first_needed(floor: Manifest) -> int:
    """Return the oldest epoch whose manifest the lineages of ``floor`` need."""
    begins = [begin for shards in floor.lineage.values() for begin in shards if begin]
    return min([floor.epoch, *begins])


def published_at(location: Location, epoch: int) -> float:
    """Return when an epoch was published, by the clock of the location; 0 if that is not known."""
    return location.modified(file_name(MANIFESTS, epoch)) or 0


def remove_runs(
    location: Location,
    listed: Iterable[str],
    needed: Collection[str],
    grace_seconds: float,
    published: float = 0,
    named_since: Callable[[], Collection[str]] = frozenset,
) -> int:
    """Remove the run files that are not needed and older than the grace period, and return how many there were.

    Anything that is not a file stays where it is.

    Args:
        location: where they lie.
        listed: the names of the files.
        needed: those that stay.
        grace_seconds: the grace period.
        published: when the newest epoch was published, by the clock of the location.
        named_since: returns more files that stay; called once all files have been looked at, if any is to be removed.

    Dirties: these files.
    """
    unneeded = (name for name in listed if name not in needed)
    old = old_among(location, unneeded, grace_seconds, published)
    # The looks may take minutes, in which an epoch may have named an image that has waited for longer than the grace.
    named = named_since() if old else ()
    return _remove(location, (name for name in old if name not in named))


def later_run(location: Location) -> str | None:
    """Return the name of a run file that cannot be of a first epoch, or None if there is none among the first ones.

    Time: O(names) and O(bytes of a few run files).
    """
    names = [f"{RUNS}/{name}" for name in location.names(RUNS)]
    divisions = (name for name in names if name.endswith(DIVISION))
    return next(chain(divisions, (name for name in names[:_FEW] if _is_differential(location, name))), None)


def _is_differential(location: Location, name: str) -> bool:
    with suppress(CheckpointError):  # One that is damaged tells nothing.
        return kind_of(location.read(name) or b"", name) is CheckpointKind.DIFFERENTIAL
    return False


_FEW = 16
"""How many run files to look into: of a space with epochs, hardly any that many are all of its first one."""


def leftovers_at(location: Location) -> list[str]:
    """Return the names of the temporary files at a location, each from a write that is under way or was cut off."""
    return location.leftovers(_FOLDERS)


def remove_leftovers(location: Location, grace_seconds: float, published: float = 0) -> int:
    """Remove the temporary files left by processes that died, and return how many there were.

    Dirties: these files.
    """
    return _remove(location, old_among(location, leftovers_at(location), grace_seconds, published))


def remove_manifests(location: Location, first: int) -> int:
    """Remove the manifests before an epoch, oldest first, and return how many there were.

    Dirties: these files.
    """
    return _remove(location, (file_name(MANIFESTS, epoch) for epoch in epochs_in(location, MANIFESTS) if epoch < first))


def _is_in_lineage(run: AcceptedRun, floor: Manifest) -> bool:
    begin = floor.lineage[run.operator][run.shard]
    # The runs that a lineage starts from also hold what the epoch that it begins with has written.
    return 0 < begin <= run.epoch and not (begin == run.epoch and floor.starts(run.operator, run.shard))


def old_among(location: Location, names: Iterable[str], grace_seconds: float, published: float) -> list[str]:
    """Return the names of the files that are older than the grace period; anything that is not a file is left out.

    Args:
        location: where they lie.
        names: the names to choose from.
        grace_seconds: the grace period.
        published: when the newest epoch was published, by the clock of the location.
    """
    times = {name: modified for name in names if (modified := location.modified(name)) is not None}
    # The clock of this machine may have jumped ahead. The time of the newest file lags behind the clock of the location
    # by no more than its age, so a file under way is never taken for an old one.
    now = min(time.time(), max([published, *times.values()]))
    return [name for name, modified in times.items() if now - modified >= grace_seconds]


def _remove(location: Location, names: Iterable[str]) -> int:
    count = 0
    for name in names:
        location.delete(name)
        count += 1
    return count
