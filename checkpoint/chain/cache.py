"""Local caches: a SQLite store on the machine of a task, brought to an epoch by folding in the runs that it lacks.

A cache is trusted if its checkpoints, by epoch and digest, are a prefix of the lineage of its shard. The lineage begins
with a full run, so nothing a cache holds can come from anywhere else. All other caches are dropped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from checkpoint.chain.collect import FLOORS, MANIFESTS, epochs_in, file_name
from checkpoint.chain.folders import (
    PRIVATE,
    cache_root,
    discard,
    failing,
    folder_name,
    made,
    private_folder,
    removed,
    sweep,
    unopened,
)
from checkpoint.chain.folding import catch_up, fits, records, runs_seen
from checkpoint.chain.manifest import AcceptedRun
from checkpoint.chain.plan import Lineage, OperatorPlan, runs_seen_at, standing
from checkpoint.chain.runfile import write_pages
from checkpoint.errors import (
    CheckpointError,
    CorruptStoreError,
    InheritedStoreError,
    RunRefusedError,
    StoreFailedError,
    StoreLockedError,
    UnknownCheckpointError,
)
from checkpoint.failures import lacks_room
from checkpoint.lock import is_closing
from checkpoint.pages import ITEMS
from checkpoint.run import Page
from checkpoint.store import CheckpointStore

_PATIENCE_SECONDS = {True: 30.0, None: 0.1, False: 0.0}
"""How long to wait for a cache whose owner says that it will soon be closed, for one of which nothing is said, as in
the moment between two owners, and for any other."""

_POLL_SECONDS = 0.002

_DAMAGE = (CorruptStoreError, StoreFailedError, RunRefusedError)
"""What a damaged cache raises. The rows of a run are checked before they are folded in: a cache that refuses them
already holds some of them, and has lost the record that would say so."""


def write_image(plan: OperatorPlan, shard: int) -> AcceptedRun:
    """Write an image of a shard as of the end of its lineage, for ``Chain.publish`` to start later lineages from.

    Args:
        plan: the plan of the operator.
        shard: the number of the shard.

    Raises:
        CorruptStoreError: a run file is missing or damaged, or the cache was damaged and is now removed.
        CheckpointError: the location or the cache folder cannot be used.

    Time: O(state); the memory used is that of the file. Dirties: the cache, and one new file of the location.
    """
    lineage = plan.lineages[shard]
    with open_cache(plan, shard) as store:
        reader = store.reader()
        # The image has a digest of its own: a damaged row in the cache would become the truth for all machines.
        reader.check_rows()
        plan.location.require_there()
        pages = _reserving(reader.image_pages(), store.next_object_id() - 1)
        written = write_pages(plan.location, pages, plan.operator, shard, lineage[-1].epoch)
    return replace(written, replaces=standing(runs_seen_at(lineage)))


def _reserving(pages: Iterator[Page], last: int) -> Iterator[Page]:
    """Yield the pages of an image, and a row that keeps the ids up to the last one from being reused.

    Caches that stand for the image still hold what deleted objects have left: rows of a new one would lie on top.
    """
    greatest = 0
    for place, rows in pages:
        greatest = max(greatest, rows[-1][0])
        yield place, rows
    if greatest < last:
        yield ITEMS, [(last, 0, None, None)]


@contextmanager
def open_cache(plan: OperatorPlan, shard: int, later: Sequence[AcceptedRun] = ()) -> Iterator[CheckpointStore]:
    """Open the cache of one shard on this machine, brought to the end of its lineage.

    If another task has the cache open, or it is newer than what is asked for, a private one is used instead. A cache
    that will soon be closed is waited for. If a cache is ahead by a run that was not accepted, that run is dropped: it
    was folded in before that was known.

    Args:
        plan: the plan of the operator.
        shard: the number of the shard.
        later: runs that follow the lineage and are to be folded in one by one: a cache that has some of them will do
            too, as long as it can still read the states before and after each of these.

    Raises:
        CorruptStoreError: a run file is missing or damaged.
        UnknownCheckpointError: the epoch was collected since the plan was made.
        CheckpointError: the location or the cache folder cannot be used.

    Time: O(rows of the runs that the cache lacks). Dirties: the cache, never the location.
    """
    folder = _folder(plan, shard)
    store = _reopened(folder, plan, shard, later)
    if store is not None:
        with _removed_where_damaged(store), store:
            yield store
        return
    if not _caches(folder):
        with _fresh(folder, plan, shard) as store:
            yield store
        return
    with private_folder(folder) as private, _fresh(private, plan, shard) as store:
        yield store


@contextmanager
def _removed_where_damaged(store: CheckpointStore) -> Iterator[None]:
    """Remove a cache that turns out to be damaged: all that it holds is also at the location."""
    try:
        yield
    except _DAMAGE as error:
        if store.path not in str(error) and not _is_damaged(Path(store.path)):
            raise  # It is the location that is damaged.
        discard(Path(store.path))
        raise CorruptStoreError(
            f"{error}; that file was a cache of this machine and is removed now: try again, which rebuilds it"
        ) from error


def _is_damaged(path: Path) -> bool:
    """Return whether a closed cache no longer holds what was folded into it. Time: O(state)."""
    try:
        with CheckpointStore(path, read_only=True) as store:
            store.verify()
    except CheckpointError:
        return True
    return False


def _reopened(folder: Path, plan: OperatorPlan, shard: int, later: Sequence[AcceptedRun]) -> CheckpointStore | None:
    for path in _caches(folder):
        with suppress(OSError):
            os.utime(path)
        try:
            store = _opened(path)
        except StoreLockedError:
            continue
        except CheckpointError:
            # Whatever it is, it is not a store of this version: all that a cache holds is also at the location.
            discard(path)
            continue
        try:
            lineage = plan.lineages[shard]
            if _has_just(store, lineage, later):
                return store
            _drop_what_was_not_accepted(store, plan, lineage)
            if catch_up(store, plan.location, lineage):
                return store
            stale = not _is_ahead(store, lineage)
        except _DAMAGE:
            # If it is the location that is damaged, a new cache will say so.
            stale = True
        except BaseException as error:
            store.close()
            if isinstance(error, CheckpointError) and not os.path.exists(path):
                raise removed(path) from error
            if isinstance(error, CheckpointError) and _has_no_room(error, folder):
                raise failing(folder, error) from error
            raise
        store.close()
        if stale:
            discard(path)
    return None


def _opened(path: Path) -> CheckpointStore:
    """Open a cache; if another task is about to close it, as soon as that is done."""
    begun: dict[bool | None, float] = {}
    while True:
        try:
            return CheckpointStore(path, durability="normal")
        except InheritedStoreError:
            raise  # That will not change, whatever is said of it.
        except StoreLockedError:
            said, now = is_closing(path), time.monotonic()
            if now - begun.setdefault(said, now) >= _PATIENCE_SECONDS[said]:
                raise
        time.sleep(_POLL_SECONDS)


def _drop_what_was_not_accepted(store: CheckpointStore, plan: OperatorPlan, lineage: Lineage) -> None:
    """Drop the last checkpoint of a cache that fits a lineage without it, unless an epoch has accepted it."""
    have = runs_seen(store)
    if len(have) > 1 and not fits(have, lineage) and fits(have[:-1], lineage):
        epoch = have[-1][0]
        is_told = plan.makes_epoch or epoch < plan.epoch
        if not is_told and plan.location.modified(file_name(MANIFESTS, epoch)) is not None:
            return  # A reader of an older epoch than this one leaves the cache to those who need it.
        with suppress(UnknownCheckpointError):  # Its rows were merged: the cache is of no use.
            store.truncate_after(store.checkpoints()[-2].number)


def _fresh(folder: Path, plan: OperatorPlan, shard: int) -> CheckpointStore:
    sweep(Path(plan.cache) if plan.cache else cache_root())
    # A new name each time: whoever still has a removed cache open keeps a separate file.
    path = folder / f"{uuid4().hex}.db"
    try:
        return _made(path, plan, shard)
    except CheckpointError as error:
        if not isinstance(error, StoreFailedError) and not _has_no_room(error, folder):
            raise
        discard(path)  # It would take the room that is to be made, and the next attempt makes another one.
        raise failing(folder, error) from error


def _has_no_room(error: CheckpointError, folder: Path) -> bool:
    return isinstance(error.__cause__, Exception) and lacks_room(error.__cause__, folder)


def _made(path: Path, plan: OperatorPlan, shard: int) -> CheckpointStore:
    try:
        store = CheckpointStore(path, durability="normal")
    except StoreFailedError:
        raise
    except CheckpointError as error:
        raise unopened(path.parent, error) from error.__cause__
    try:
        catch_up(store, plan.location, plan.lineages[shard])
    except BaseException as error:
        store.close()
        if isinstance(error, CorruptStoreError):
            _require_kept(plan)
        if isinstance(error, CheckpointError) and not os.path.exists(path):
            raise removed(path) from error
        raise
    return store


def _require_kept(plan: OperatorPlan) -> None:
    """Refuse a plan whose epoch was collected since it was made: files of its lineages may then be gone.

    Raises:
        UnknownCheckpointError: it was.
    """
    epoch, first = plan.epoch - 1, max(epochs_in(plan.location, FLOORS), default=1)
    if epoch < first:
        raise UnknownCheckpointError(
            f"space at {plan.location.url}: epoch {epoch} was collected meanwhile: the oldest to be read is {first}"
        )


def _folder(plan: OperatorPlan, shard: int) -> Path:
    # A space that was dropped and recreated at the same place has another incarnation, and so other caches.
    root = Path(plan.cache) if plan.cache else cache_root()
    return made(root / plan.incarnation / f"{folder_name(plan.operator)}-{shard}")


def is_private(store: CheckpointStore) -> bool:
    """Return whether a cache is removed once it is closed, because another task has the one that stays."""
    return Path(store.path).parent.name.startswith(PRIVATE)


def _caches(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.db"))


def _is_ahead(store: CheckpointStore, lineage: Lineage) -> bool:
    """Return whether a cache merely holds more than was asked for, as when an older epoch is read."""
    wanted = runs_seen_at(lineage)
    begins_later = bool(wanted) and any(entry[0] > wanted[-1][0] for entry in runs_seen(store)[:1])
    return begins_later or wanted in (runs_seen(store)[: len(wanted)], records(store)[: len(wanted)])


def _has_just(store: CheckpointStore, lineage: Lineage, later: Sequence[AcceptedRun]) -> bool:
    """Return whether a cache has a lineage and the first of some later runs, and can read the states around them."""
    wanted, following = runs_seen_at(lineage), runs_seen_at(later)
    for have in (runs_seen(store), records(store)) if later else ():
        beyond = have[len(wanted) :]
        is_same = have[: len(wanted)] == wanted and beyond[: len(following)] == following[: len(beyond)]
        if beyond and is_same:
            numbers = {record.epoch: record.number for record in store.checkpoints()}
            before = max((number for epoch, number in numbers.items() if epoch < beyond[0][0]), default=1)
            # A large run stays readable while smaller ones after it are merged.
            around = [before, *(numbers.get(entry[0], 0) for entry in beyond[: len(following)])]
            return all(_is_readable(store, number) for number in around)
    return False


def _is_readable(store: CheckpointStore, number: int) -> bool:
    try:
        store.reader(number)
    except UnknownCheckpointError:
        return False
    return True
