"""Local caches: a SQLite store on the machine of a task, brought to an epoch by folding in the runs that it lacks.

A cache is trusted as far as its checkpoints, by epoch and digest, are a beginning of the lineage of its shard. The
lineage begins with a full run, so that nothing a cache holds can come from anywhere else; all others are dropped.

A lineage may come to begin with an image of the shard that was made beside the epochs. A cache that was made of the
very runs that the image stands for stays as it is: a file beside it notes that its first checkpoints are that image.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from uuid import uuid4

from checkpoint.chain.collect import FLOORS, epochs_in
from checkpoint.chain.location import Location
from checkpoint.chain.manifest import AcceptedRun
from checkpoint.chain.plan import Lineage, OperatorPlan, fingerprint_of, standing
from checkpoint.chain.runfile import read_pages, read_run, write_pages
from checkpoint.errors import (
    CheckpointError,
    CorruptStoreError,
    StoreFailedError,
    StoreLockedError,
    UnknownCheckpointError,
)
from checkpoint.pages import ITEMS
from checkpoint.run import Page
from checkpoint.store import CheckpointStore

Fingerprint = list[tuple[int, str]]

KEPT_SECONDS = 7 * 86_400
"""How long a cache is kept that nobody opens: that of a space or an operator that is gone, or of a task that died."""


LONGEST_NAME = 160
"""How many characters of the name of an operator the name of a folder has; file systems take 255 bytes."""

PAGED_SLOTS = 100_000
"""A run of more item rows is folded in page by page: in memory they would take some hundred bytes each."""


def cache_root() -> Path:
    """Return the folder of this machine's caches: ``$OBJECTSPACE_CACHE``, or the user's own in the temporary one."""
    named = os.environ.get("OBJECTSPACE_CACHE")
    return Path(named) if named else Path(tempfile.gettempdir()) / f"objectspace-{os.getuid()}"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder beside the caches of this machine, for files that are of no use afterwards, and remove it.

    Raises:
        CheckpointError: it cannot be made.
    """
    root = _made(cache_root())
    # What a process that was killed has left goes as old caches do.
    _sweep(root)
    with tempfile.TemporaryDirectory(prefix="private-", dir=root, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def catch_up(store: CheckpointStore, location: Location, lineage: Lineage) -> bool:
    """Fold into a store the runs of a lineage that it lacks, and tell whether it then stands at its end.

    Args:
        store: a cache of the shard, of any age; or an empty store.
        location: where the run files lie.
        lineage: the runs of the shard, a full one first.

    Returns:
        False where the store holds anything that the lineage does not: then it is no use, and unchanged.

    Raises:
        CorruptStoreError: a run file is missing or damaged.
        CheckpointError: the location cannot be read.
    Time: O(rows of the runs that were lacking). Dirties: one checkpoint of the store for each of them.
    """
    have = _fingerprint(store)
    if have != fingerprint_of(lineage)[: len(have)]:
        have = _replaced(have, lineage)
        if not have:
            return False
        _note_image(store, lineage[0])
    fold(store, location, lineage[len(have) :])
    return True


def fold(store: CheckpointStore, location: Location, runs: Sequence[AcceptedRun]) -> None:
    """Fold runs into a store that holds everything before them; those that it has already are passed over.

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
        if accepted.slots > PAGED_SLOTS:
            store.apply_pages(accepted.kind, read_pages(location, accepted), accepted.epoch)
        else:
            store.apply(read_run(location, accepted), accepted.epoch)
    if lacking and _records(store)[-len(lacking) :] != fingerprint_of(lacking):
        raise CorruptStoreError(
            f"{store.path}: the runs of {lacking[-1].operator}/{lacking[-1].shard} at {location.url} do not have the"
            " digests that their manifests name: restore the location from a backup"
        )


def write_image(plan: OperatorPlan, shard: int) -> AcceptedRun:
    """Write an image of a shard as of the end of its lineage, for ``Chain.publish`` to start later lineages from.

    Args:
        plan: the plan of the operator.
        shard: the number of the shard.

    Raises:
        CorruptStoreError: a run file is missing or damaged.
        CheckpointError: the location or the folder of the caches cannot be used.
    Time: O(state); the memory used is that of the file. Dirties: the cache, and one new file of the location.
    """
    lineage = plan.lineages[shard]
    with open_cache(plan, shard) as store:
        pages = _reserving(store.reader().image_pages(), store.next_object_id() - 1)
        written = write_pages(plan.location, pages, plan.operator, shard, lineage[-1].epoch)
    return replace(written, replaces=standing(fingerprint_of(lineage)))


def _reserving(pages: Iterator[Page], last: int) -> Iterator[Page]:
    """Yield the pages of an image, and a row that keeps the ids up to the last one from being given again.

    Caches that stand for the image still hold what objects that are gone have left: rows of a new one would lie on top.
    """
    greatest = 0
    for place, rows in pages:
        greatest = max(greatest, rows[-1][0])
        yield place, rows
    if greatest < last:
        yield ITEMS, [(last, 0, None, None)]


@contextmanager
def open_cache(plan: OperatorPlan, shard: int, later: Sequence[AcceptedRun] = ()) -> Iterator[CheckpointStore]:
    """Open the cache of one shard on this machine, standing at the end of its lineage.

    Where another task has the cache open, or it is newer than what is asked for, a private one serves in its place.

    Args:
        plan: the plan of the operator.
        shard: the number of the shard.
        later: runs that follow the lineage, and that are to be folded in one by one: a cache that has some of them
            serves too, as long as it still reads the states before and after each of these.

    Raises:
        CorruptStoreError: a run file is missing or damaged.
        UnknownCheckpointError: the epoch was collected since the plan was made.
        CheckpointError: the location or the folder of the caches cannot be used.
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
    with (
        tempfile.TemporaryDirectory(prefix="private-", dir=folder) as private,
        _fresh(Path(private), plan, shard) as store,
    ):
        yield store


@contextmanager
def _removed_where_damaged(store: CheckpointStore) -> Iterator[None]:
    """Remove a cache that turns out to be damaged: all that it holds lies at the location, too."""
    try:
        yield
    except (CorruptStoreError, StoreFailedError) as error:
        if store.path not in str(error) and not _is_damaged(Path(store.path)):
            raise  # It is the location that is damaged.
        _remove(Path(store.path))
        raise CorruptStoreError(
            f"{error}; that file was a cache of this machine and is removed now: try again, which makes it anew"
        ) from error


def _is_damaged(path: Path) -> bool:
    """Tell whether a cache, which is closed, is no more what was folded into it. Time: O(state)."""
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
            store = CheckpointStore(path, durability="normal")
        except StoreLockedError:
            continue
        except CheckpointError:
            # Whatever it is, a store of this version it is not: all that a cache holds lies at the location, too.
            _remove(path)
            continue
        try:
            lineage = plan.lineages[shard]
            if _has_just(store, lineage, later) or catch_up(store, plan.location, lineage):
                return store
            stale = not _is_ahead(store, lineage)
        except (CorruptStoreError, StoreFailedError):
            # If it is the location that is damaged, a new cache will say so.
            stale = True
        except BaseException:
            store.close()
            raise
        store.close()
        if stale:
            _remove(path)
    return None


def _fresh(folder: Path, plan: OperatorPlan, shard: int) -> CheckpointStore:
    _sweep(Path(plan.cache) if plan.cache else cache_root())
    # A new name each time: whoever still holds a removed cache open keeps a file of his own.
    store = CheckpointStore(folder / f"{uuid4().hex}.db", durability="normal")
    try:
        catch_up(store, plan.location, plan.lineages[shard])
    except BaseException as error:
        store.close()
        if isinstance(error, CorruptStoreError):
            _require_kept(plan)
        raise
    return store


def _require_kept(plan: OperatorPlan) -> None:
    """Refuse a plan whose epoch was collected since it was made: then files of its lineages may be gone.

    Raises:
        UnknownCheckpointError: it was.
    """
    epoch, first = plan.epoch - 1, max(epochs_in(plan.location, FLOORS), default=1)
    if epoch < first:
        raise UnknownCheckpointError(
            f"space at {plan.location.url}: epoch {epoch} was collected meanwhile: the oldest to be read is {first}"
        )


def _folder(plan: OperatorPlan, shard: int) -> Path:
    # A space that was dropped and made again at the same place has another incarnation, and so other caches.
    root = Path(plan.cache) if plan.cache else cache_root()
    return _made(root / plan.incarnation / f"{_folder_name(plan.operator)}-{shard}")


def _folder_name(operator: str) -> str:
    """Return a name that every file system takes; one that would be too long ends in a digest."""
    plain = re.sub(r"[^A-Za-z0-9_-]", lambda match: f"%{ord(match[0]):02x}", operator)
    if len(plain) <= LONGEST_NAME:
        return plain
    return f"{plain[: LONGEST_NAME - 33]}-{hashlib.blake2b(operator.encode(), digest_size=16).hexdigest()}"


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise CheckpointError(
            f"cache folder {folder}: {error.strerror}: set OBJECTSPACE_CACHE to a folder that can be written"
        ) from error
    return folder


@cache
def _sweep(root: Path) -> None:
    """Remove what nobody has opened for long: once a process, and only where caches lie."""
    oldest = time.time() - KEPT_SECONDS
    for pattern in ("*/*/*.db", "*/*/private-*", "private-*"):
        with suppress(OSError):  # Another process sweeps, or removes what it is done with, at the same time.
            for path in root.glob(pattern):
                if path.stat().st_mtime < oldest:
                    _remove(path)


def _caches(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.db"))


def _is_ahead(store: CheckpointStore, lineage: Lineage) -> bool:
    """Tell whether a cache only holds more than was asked for, as when an older epoch is read."""
    wanted = fingerprint_of(lineage)
    begins_later = bool(wanted) and any(entry[0] > wanted[-1][0] for entry in _fingerprint(store)[:1])
    return begins_later or wanted in (_fingerprint(store)[: len(wanted)], _records(store)[: len(wanted)])


def _has_just(store: CheckpointStore, lineage: Lineage, later: Sequence[AcceptedRun]) -> bool:
    """Tell whether a cache has a lineage and the first of some later runs, and still reads the state between."""
    wanted, following = fingerprint_of(lineage), fingerprint_of(later)
    for have in (_fingerprint(store), _records(store)) if later else ():
        beyond = have[len(wanted) :]
        is_same = have[: len(wanted)] == wanted and beyond[: len(following)] == following[: len(beyond)]
        if beyond and is_same:
            before = [record.number for record in store.checkpoints() if record.epoch < beyond[0][0]]
            return _is_readable(store, before[-1] if before else 1)
    return False


def _is_readable(store: CheckpointStore, number: int) -> bool:
    try:
        store.reader(number)
    except UnknownCheckpointError:
        return False
    return True


def _replaced(have: Fingerprint, lineage: Lineage) -> Fingerprint:
    """Return what a cache holds as the image that a lineage begins with and what follows; nothing where it differs."""
    if not lineage or not lineage[0].replaces:
        return []
    first, *rest = fingerprint_of(lineage)
    before = [entry for entry in have if entry[0] <= first[0]]
    after = have[len(before) :]
    return [first, *after] if standing(before) == lineage[0].replaces and after == rest[: len(after)] else []


def _fingerprint(store: CheckpointStore) -> Fingerprint:
    records, noted = _records(store), _noted_image(store)
    # A cache that has lost its last checkpoints with the power may be older than what was noted of it.
    if noted is None or noted[1] not in records:
        return records
    return [noted[0], *(entry for entry in records if entry[0] > noted[0][0])]


def _records(store: CheckpointStore) -> Fingerprint:
    return [(record.epoch, record.digest) for record in store.checkpoints()]


def _note_image(store: CheckpointStore, image: AcceptedRun) -> None:
    """Note that the checkpoints of a cache up to an epoch are together an image."""
    last = [entry for entry in _records(store) if entry[0] <= image.epoch][-1]
    path = _note_of(store)
    staged = path.with_name(f"{path.name}-{uuid4().hex}")
    staged.write_text(json.dumps([[image.epoch, image.digest], last]))
    staged.replace(path)


def _noted_image(store: CheckpointStore) -> tuple[tuple[int, str], tuple[int, str]] | None:
    """Return the image that a cache stands for, and the checkpoint that completes it."""
    try:
        image, last = json.loads(_note_of(store).read_text())
        return (image[0], image[1]), (last[0], last[1])
    except (OSError, ValueError, TypeError, IndexError):
        return None


def _note_of(store: CheckpointStore) -> Path:
    return Path(f"{store.path}.image")


def _remove(path: Path) -> None:
    for file in path.parent.glob(path.name + "*"):
        if file.is_dir():
            shutil.rmtree(file, ignore_errors=True)
        else:
            file.unlink(missing_ok=True)
