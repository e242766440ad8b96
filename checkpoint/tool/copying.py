"""Copies of a whole space at another location: a fork with its history, or the state of one epoch alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from uuid import uuid4

from checkpoint.chain import AcceptedRun, Chain, Lineage, Location, Manifest, SpaceFile, location_at, write_run
from checkpoint.chain.collect import FLOORS, MANIFESTS, RUNS, file_name, first_needed, needed_runs, put_floor
from checkpoint.chain.founding import CLAIM, SPACE_FILE, require_nothing
from checkpoint.chain.location import PROBE
from checkpoint.chain.runfile import checksum, write_pages
from checkpoint.errors import CheckpointError, CorruptStoreError
from checkpoint.progress import silent
from checkpoint.run import Run
from checkpoint.tool.content import State
from checkpoint.tool.printing import Show
from checkpoint.tool.rehearsal import Rehearsal
from checkpoint.tool.replaced import images_with_runs
from checkpoint.tool.selecting import require_found, selection
from checkpoint.tool.source import folded


@dataclass(frozen=True)
class Copied:
    """What was written.

    Args:
        epochs: how many epochs can be read in the copy.
        files: how many run files it has.
        bytes: their bytes.
        objects: how many objects it holds, over all shards; 0 if they were not counted.
    """

    epochs: int
    files: int
    bytes: int
    objects: int = 0


def fork_space(chain: Chain, target: str, epoch: int, names: Sequence[str], show: Show) -> Copied:
    """Copy a space up to an epoch, with the epochs before it that can still be read.

    It has another incarnation, so that caches of the one are not taken for the other. What was committed stays noted: a
    pipeline continues from a copy of its own checkpoint. Instead of an image that is missing or damaged, the copy has
    the runs that the image replaces, as long as these are there.

    Args:
        chain: the space.
        target: the new location.
        epoch: its newest epoch.
        names: the objects to keep, all if none is named: one more epoch deletes the others, and no pipeline continues
            from it.
        show: called with how many files were copied.

    Raises:
        CheckpointError: something is at the target already, it cannot be written, or no shard has one of the objects.
        CorruptStoreError: a file is missing or damaged.
    """
    deletions = _deletions(chain, epoch, names)
    instead = _instead(chain, epoch)
    kept = [_reading(chain.manifest(number), instead) for number in range(chain.first_epoch, epoch + 1)]
    first = first_needed(kept[0])
    older = [chain.manifest_for(number, kept[0].epoch) for number in range(first, kept[0].epoch)]
    runs = list(needed_runs(chain.location, kept, older).values())
    with _founded(target, chain.location) as location:
        for done, run in enumerate(runs):
            show(done, len(runs))
            location.write(run.file, _read(chain.location, run))
        space = replace(chain.space, incarnation=str(uuid4()))
        _begin(location, space, kept[0].epoch)
        for manifest in [*older, *kept]:
            _put(location, replace(manifest, incarnation=space.incarnation))
        if deletions:
            last = [write_run(location, run, *place, epoch + 1) for place, run in deletions.items()]
            step = replace(kept[-1], epoch=epoch + 1, base=epoch, runs=tuple(last), metrics={}, partial=True)
            own = replace(step, incarnation=space.incarnation, publisher=str(uuid4()))
            kept.append(replace(own, format=own.own_format))
            _put(location, kept[-1])
            runs += last
        _found(location, space)
    return Copied(len(kept), len(runs), sum(run.file_bytes for run in runs))


def _instead(chain: Chain, epoch: int) -> dict[str, Lineage]:
    """Return what to read instead of images up to an epoch that are missing or damaged, by their files."""
    instead: dict[str, Lineage] = {}
    for image, runs in images_with_runs(chain, epoch):
        data = chain.location.read(image.file)
        if data is None or checksum(data) != image.checksum:
            instead[image.file] = _replaced(runs, instead)
    return instead


def _reading(manifest: Manifest, instead: Mapping[str, Lineage]) -> Manifest:
    """Return a manifest whose lineages begin with other runs instead of some images."""
    changed = replace(manifest, images=_replaced(manifest.images, instead))
    return replace(changed, format=changed.own_format)


def _replaced(runs: Lineage, instead: Mapping[str, Lineage]) -> Lineage:
    return tuple(one for run in runs for one in instead.get(run.file, (run,)))


def _deletions(chain: Chain, epoch: int, names: Sequence[str]) -> dict[tuple[str, int], Run]:
    """Return the runs that leave only some objects in the shards of a space, if there are others.

    Raises:
        CheckpointError: no shard has one of the objects.
    """
    runs: dict[tuple[str, int], Run] = {}
    found: set[str] = set()
    known: set[str] = set()
    shards = range(chain.shards_at(epoch))
    for operator, shard in [(operator, shard) for operator in chain.manifest(epoch).lineage for shard in shards]:
        if names and (steps := chain.lineage(operator, shard, epoch)):
            with folded(chain, steps) as store:
                state = State(store.reader())
                others, chosen = selection(state, names)
            found, known = found | chosen, known | state.names()
            if not others.is_empty():
                others.sort()
                runs[operator, shard] = others
    require_found(names, found, known)
    return runs


def restore_space(
    chain: Chain,
    target: str,
    epoch: int,
    shards: Sequence[tuple[str, int]],
    names: Sequence[str],
    show: Show,
    *,
    may_be_empty: bool = False,
) -> Copied:
    """Write the state of a space at one epoch, whole or only some objects, as a space with just this epoch.

    Args:
        chain: the space.
        target: the new location.
        epoch: the epoch, which the copy keeps as its number.
        shards: the shards to write; the others are empty.
        names: the objects to write; all if none is named. No pipeline continues from it if any are left out.
        show: called with how many shards were written.
        may_be_empty: whether to write a space even from shards that hold nothing yet.

    Raises:
        CheckpointError: something is at the target already, it cannot be written, or no shard has one of the objects.
    """
    count = chain.shards_at(epoch)
    lineage = {operator: [0] * count for operator, _ in shards}
    runs: list[AcceptedRun] = []
    found: set[str] = set()
    known: set[str] = set()
    objects = 0
    before = chain.manifest(epoch)
    is_partial = before.partial or any(
        begin and (operator, shard) not in shards
        for operator, begins in before.lineage.items()
        for shard, begin in enumerate(begins)
    )
    with _founded(target, chain.location) as location:
        for done, (operator, shard) in enumerate(shards):
            show(done, len(shards))
            steps = chain.lineage(operator, shard, epoch)
            if not steps:
                continue
            with folded(chain, steps) as store:
                state = State(store.reader())
                others, chosen = selection(state, names)
                found, known = found | chosen, known | state.names()
                if not others.is_empty():
                    store.append(others)
                    is_partial = True
                reader = store.reader()
                objects += len(reader.index())
                runs.append(write_pages(location, reader.image_pages(), operator, shard, epoch))
            lineage[operator][shard] = epoch
        require_found(names, found, known)
        if not runs and not may_be_empty:
            raise CheckpointError(f"{chain.location.url} holds nothing at epoch {epoch}: choose a later one")
        space = SpaceFile(str(uuid4()), count)
        _begin(location, space, epoch)
        like = replace(before, incarnation=space.incarnation, base=epoch - 1, partial=is_partial)
        if is_partial:
            # Whoever follows the epoch must not take a part of it for the whole.
            like = replace(like, publisher=str(uuid4()))
        made = replace(like, runs=tuple(runs), images=(), lineage=lineage)
        _put(location, replace(made, format=made.own_format))
        _found(location, space)
    return Copied(1, len(runs), sum(run.file_bytes for run in runs), objects)


class _Noting(Rehearsal):
    """A location that notes which files were made, or may have been: a put may fail after it took effect."""

    def __init__(self, location: Location) -> None:
        super().__init__(location, silent, is_dry=False)
        self._made: dict[str, str | None] = {}
        """The checksum of what was to be put in a file; None of a run file, which other copies may write as well."""
        self._gave_up_claim = False

    def write(self, name: str, data: bytes) -> None:
        """Write a file."""
        self._made[name] = None
        super().write(name, data)

    def create(self, name: str, data: bytes) -> bool:
        """Put a file if it is absent."""
        self._made[name] = checksum(data)
        if super().create(name, data):
            return True
        del self._made[name]
        return False

    def delete(self, name: str) -> None:
        """Remove a file."""
        self._gave_up_claim |= name == CLAIM  # Even if it fails: it may do so after it took effect.
        super().delete(name)

    def claim(self) -> None:
        """Make sure that no other copy writes here meanwhile.

        Raises:
            CheckpointError: another one does.
        """
        if not self.create(CLAIM, str(uuid4()).encode()):
            raise CheckpointError(f"{self.url}: another copy to here has just begun: name another location")

    def require_claim(self) -> None:
        """Make sure that nobody has taken this copy for dead and removed its claim, and files with it.

        Raises:
            CheckpointError: somebody has.
        """
        if not self._is_mine(CLAIM):
            raise CheckpointError(
                f"{self.url}: the file {CLAIM} of this copy was removed meanwhile, as if it had ended, and another copy"
                " may be there now: name another location"
            )

    def remove_made(self) -> None:
        """Remove the files, the claim last. If that which founds the space may be left, all stay: it is whole then."""
        with suppress(CheckpointError):
            has_place = self._has_place()
            mine = [name for name, put in self._made.items() if (has_place if put is None else self._is_mine(name))]
            if SPACE_FILE in mine:
                self.delete(SPACE_FILE)
            for name in reversed(mine):
                with suppress(CheckpointError):
                    self.delete(name)

    def _has_place(self) -> bool:
        """Return whether the run files are of this copy: those of another one may have the same names.

        If somebody has removed its claim, they may be of a copy that was made since. If they are not, they stay all the
        same: they are garbage of what is founded there, and the next collection takes them.
        """
        if self._is_mine(CLAIM):
            return True
        return self._gave_up_claim and (self.read(SPACE_FILE) is None or self._is_mine(SPACE_FILE))

    def _is_mine(self, name: str) -> bool:
        """Return whether a file has the bytes that this copy was to put there."""
        data = self.read(name) if name in self._made else None
        return data is not None and checksum(data) == self._made[name]


@contextmanager
def _founded(target: str, source: Location) -> Iterator[_Noting]:
    """Yield the location of a new space; if that fails, none of its files is left behind.

    Raises:
        CheckpointError: something is there already, even half a copy, or it lies inside the space that is copied.
    """
    location = _Noting(location_at(target, publishes=True))
    if _is_inside(location, source):
        raise CheckpointError(
            f"{target} lies inside of the space at {source.url}, which has nothing but its own files: whoever removes"
            " or copies the one takes the other along: name another location"
        )
    if not _others(location):
        require_nothing(location)
    _require_free(location, target)
    location.require_exclusive_create()
    try:
        location.claim()
        # Another copy may have come and gone between the look and the claim.
        _require_free(location, target)
        yield location
    except BaseException:
        location.remove_made()
        raise


def _others(location: Location) -> set[str]:
    """Return what lies at a location besides the folders that copies write to, and what they leave."""
    return {*location.names("")} - {*_FOLDERS, PROBE, CLAIM}


def _require_free(location: Location, target: str) -> None:
    if _others(location) or any(map(location.names, _FOLDERS)):
        raise CheckpointError(f"{target} exists: a copy overwrites nothing; name another location")


_FOLDERS = (RUNS, MANIFESTS, FLOORS)
"""The folders of a space that a copy writes to."""


def _is_inside(location: Location, outer: Location) -> bool:
    (system, path), (system_of_outer, path_of_outer) = location.place(), outer.place()
    return system == system_of_outer and PurePosixPath(path_of_outer) in PurePosixPath(path).parents


def _begin(location: Location, space: SpaceFile, epoch: int) -> None:
    """Mark the epochs before the first one of a copy as gone, where nobody else has founded a space meanwhile."""
    # That one may have collected garbage, and have a floor of its own by now: it stays.
    if SpaceFile.is_at(location) or (epoch > 1 and not put_floor(location, epoch, space.incarnation)):
        raise _founded_meanwhile(location)


def _found(location: _Noting, space: SpaceFile) -> None:
    """Write the file that makes a space of what lies at a location, as the last one: so it is whole or not there."""
    location.require_claim()
    # Before that, since what is founded must not be taken back. From now on the other files keep other copies away. Who
    # may not delete leaves the claim, which means nothing in a space.
    with suppress(CheckpointError):
        location.delete(CLAIM)
    if not space.found_at(location):
        raise _founded_meanwhile(location)


def _founded_meanwhile(location: Location) -> CheckpointError:
    return CheckpointError(f"{location.url}: another space was founded here meanwhile: name another location")


def _put(location: Location, manifest: Manifest) -> None:
    if not location.create(file_name(MANIFESTS, manifest.epoch), manifest.to_json()):
        raise _founded_meanwhile(location)


def _read(location: Location, run: AcceptedRun) -> bytes:
    """Return the bytes of a run file as they were accepted.

    Raises:
        CorruptStoreError: it is missing or damaged.
    """
    data = location.read(run.file)
    if data is None or checksum(data) != run.checksum:
        what = "is missing" if data is None else "is damaged"
        raise CorruptStoreError(f"{run.file} of {location.url} (epoch {run.epoch}) {what}: see `checkpoint verify`")
    return data
