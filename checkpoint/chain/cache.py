"""Local caches: a SQLite store on the machine of a task, brought to an epoch by folding in the runs that it lacks.

A cache is trusted as far as its checkpoints, by epoch and digest, are a beginning of the lineage of its shard. The
lineage begins with a full run, so that nothing a cache holds can come from anywhere else; all others are dropped.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from checkpoint.chain.location import Location
from checkpoint.chain.plan import Lineage, OperatorPlan
from checkpoint.chain.runfile import read_run
from checkpoint.errors import CheckpointError, CorruptStoreError, StoreLockedError
from checkpoint.store import CheckpointStore


def cache_root() -> Path:
    """Return the folder of this machine's caches: ``$OBJECTSPACE_CACHE``, or the user's own in the temporary one."""
    named = os.environ.get("OBJECTSPACE_CACHE")
    return Path(named) if named else Path(tempfile.gettempdir()) / f"objectspace-{os.getuid()}"


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
    wanted = [(run.epoch, run.digest) for run in lineage]
    if have != wanted[: len(have)]:
        return False
    for accepted in lineage[len(have) :]:
        store.apply(read_run(location, accepted), accepted.epoch)
    if _fingerprint(store)[len(have) :] != wanted[len(have) :]:
        raise CorruptStoreError(
            f"{store.path}: the runs of {lineage[-1].operator}/{lineage[-1].shard} at {location.url} do not have the"
            " digests that their manifests name: restore the location from a backup"
        )
    return True


@contextmanager
def open_cache(plan: OperatorPlan, shard: int) -> Iterator[CheckpointStore]:
    """Open the cache of one shard on this machine, standing at the end of its lineage.

    Where another task has the cache open, or it is newer than what is asked for, a private one serves in its place.

    Args:
        plan: the plan of the operator.
        shard: the number of the shard.

    Raises:
        CorruptStoreError: a run file is missing or damaged.
        CheckpointError: the location or the folder of the caches cannot be used.
    Time: O(rows of the runs that the cache lacks). Dirties: the cache, never the location.
    """
    folder = _folder(plan, shard)
    store = _reopened(folder, plan, shard)
    if store is not None:
        with store:
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


def _reopened(folder: Path, plan: OperatorPlan, shard: int) -> CheckpointStore | None:
    for path in _caches(folder):
        try:
            store = CheckpointStore(path, durability="normal")
        except StoreLockedError:
            continue
        except CorruptStoreError:
            _remove(path)
            continue
        try:
            if catch_up(store, plan.location, plan.lineages[shard]):
                return store
            stale = not _is_ahead(store, plan.lineages[shard])
        except BaseException:
            store.close()
            raise
        store.close()
        if stale:
            _remove(path)
    return None


def _fresh(folder: Path, plan: OperatorPlan, shard: int) -> CheckpointStore:
    # A new name each time: whoever still holds a removed cache open keeps a file of his own.
    store = CheckpointStore(folder / f"{uuid4().hex}.db", durability="normal")
    try:
        catch_up(store, plan.location, plan.lineages[shard])
    except BaseException:
        store.close()
        raise
    return store


def _folder(plan: OperatorPlan, shard: int) -> Path:
    # A space that was dropped and made again at the same place has another incarnation, and so other caches.
    root = Path(plan.cache) if plan.cache else cache_root()
    operator = re.sub(r"[^A-Za-z0-9_-]", lambda match: f"%{ord(match[0]):02x}", plan.operator)
    folder = root / plan.incarnation / f"{operator}-{shard}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise CheckpointError(
            f"cache folder {folder}: {error.strerror}: set OBJECTSPACE_CACHE to a folder that can be written"
        ) from error
    return folder


def _caches(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.db"))


def _is_ahead(store: CheckpointStore, lineage: Lineage) -> bool:
    """Tell whether a cache only holds more than was asked for, as when an older epoch is read."""
    return _fingerprint(store)[: len(lineage)] == [(run.epoch, run.digest) for run in lineage]


def _fingerprint(store: CheckpointStore) -> list[tuple[int, str]]:
    return [(record.epoch, record.digest) for record in store.checkpoints()]


def _remove(path: Path) -> None:
    for file in path.parent.glob(path.name + "*"):
        file.unlink(missing_ok=True)
