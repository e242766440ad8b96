"""Images made, and garbage collected, in a separate process at the lowest priority: nothing here waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import orjson
from filelock import FileLock, Timeout

from checkpoint.chain.cache import write_image
from checkpoint.chain.chain import Chain
from checkpoint.chain.folders import cache_root, folder_name, made, scratch_folder, unusable
from checkpoint.chain.local_location import LocalLocation
from checkpoint.chain.locating import location_at
from checkpoint.chain.location import Location
from checkpoint.chain.manifest import AcceptedRun
from checkpoint.chain.plan import OperatorPlan
from checkpoint.chain.remote_location import RemoteLocation
from checkpoint.chain.waiting import note_image
from checkpoint.errors import CheckpointError, StoreLockedError


def write_image_beside(plan: OperatorPlan, shard: int, *, is_noted: bool = False) -> AcceptedRun:
    """Do what ``write_image`` does in another process, and wait for it.

    If this process ends meanwhile, the other one may go on, and a note tells later processes of the image.

    Args:
        plan: the plan of the operator; unless its location is a folder or an fsspec URL, the work is done in this
            process.
        shard: the number of the shard.
        is_noted: whether to note at the location that the image waits for an epoch to name it. It is then made apart
            from the caches of this machine: a task that met one in use would have to make another. Only one process
            of this machine does so at a time: a job that is started again and again would start one each time.

    Raises:
        StoreLockedError: another process, or another thread, is making and noting an image of the shard.
        CheckpointError: the process failed; its last line of output follows.

    Time: O(state). Dirties: the cache, and one or two new files of the location.
    """
    order = _order(plan, shard, is_noted)
    if order is None:
        return _written(plan, shard, is_noted)
    if is_noted:
        with _alone(plan, shard):
            pass  # The other process takes it; to start one in vain would cost more than this look.
    # How to reach the location may be secret, so it goes through a pipe, not into the process list.
    command = [sys.executable, "-m", __name__]
    done = subprocess.run(command, input=order, capture_output=True, check=False, env=_environment())
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        kind = StoreLockedError if done.returncode == _TAKEN else CheckpointError
        raise kind(f"image of {plan.operator}/{shard} at {plan.location.url}: {said}")
    return AcceptedRun.from_dict(orjson.loads(done.stdout))


def collect_beside(location: Location, grace_seconds: float, keep_epochs: int) -> bool:
    """Start what ``Chain.collect`` does in another process, which nobody waits for, and return whether it started.

    Whatever fails, even the start of the process, is tried again by the next collection.

    Args:
        location: where the space lies: a folder or an fsspec URL with options that are plain values.
        grace_seconds: how old a run file must be to be removed.
        keep_epochs: how many of the newest epochs stay readable.
    """
    order = _encoded(location, {"grace_seconds": grace_seconds, "keep_epochs": keep_epochs})
    if order is None:
        return False
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    command = [sys.executable, "-m", __name__]
    _UNDER_WAY[:] = [process for process in _UNDER_WAY if process.poll() is None]
    try:
        process = _Beside(command, stdin=subprocess.PIPE, env=_environment(), **quiet)
        _UNDER_WAY.append(process)
        assert process.stdin is not None
        with process.stdin as pipe:
            pipe.write(order)
    except OSError:
        return False
    return True


class _Beside(subprocess.Popen[bytes]):
    """A process that may outlive this one, which is nothing to warn of."""

    def __del__(self) -> None:
        pass


_TAKEN = 3
"""The exit status of a process that found another one at its work."""

_UNDER_WAY: list[_Beside] = []
"""Collections that may have ended: the next one looks, so that no more than a few stay zombies."""


def _environment() -> dict[str, str]:
    """Return the environment of the other process, in which everything imported here is found too."""
    # A notebook may have added to the path.
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _written(plan: OperatorPlan, shard: int, is_noted: bool) -> AcceptedRun:
    if not is_noted:
        return write_image(plan, shard)
    # Here, not in the process that waits: that may end meanwhile and take the folder along.
    with _alone(plan, shard), scratch_folder() as cache:
        image = write_image(replace(plan, cache=str(cache)), shard)
        note_image(plan.location, plan.incarnation, image)
    return image


@contextmanager
def _alone(plan: OperatorPlan, shard: int) -> Iterator[None]:
    """Keep other processes of this machine, and other threads, from making an image of a shard to note.

    Raises:
        StoreLockedError: one of them does.
        CheckpointError: the folder of the caches cannot be written.
    """
    folder = made(cache_root() / plan.incarnation / f"{folder_name(plan.operator)}-{shard}")
    try:
        held = FileLock(folder / "image.lock").acquire(timeout=0)
    except Timeout:
        raise StoreLockedError(
            f"image of {plan.operator}/{shard} at {plan.location.url}: another process of this machine is making one:"
            " wait for its note"
        ) from None
    except OSError as error:
        raise unusable(folder, error) from error
    with held:
        yield


def _order(plan: OperatorPlan, shard: int, is_noted: bool) -> bytes | None:
    values = {
        "incarnation": plan.incarnation,
        "operator": plan.operator,
        "epoch": plan.epoch,
        "shard": shard,
        "lineage": [asdict(run) for run in plan.lineages[shard]],
        "cache": plan.cache,
        "is_noted": is_noted,
    }
    return _encoded(plan.location, values)


def _encoded(location: Location, values: dict[str, Any]) -> bytes | None:
    """Return what another process is to do; None if it could not reach the location."""
    # The memory of this process cannot be reached from elsewhere.
    if not isinstance(location, LocalLocation | RemoteLocation) or location.url.startswith("memory://"):
        return None
    options = location.options if isinstance(location, RemoteLocation) else {}
    try:
        return orjson.dumps({"url": location.url, "options": options, **values})
    except TypeError:  # An option is an object that only this process has.
        return None


def _main() -> None:
    if hasattr(os, "nice"):
        os.nice(19)
    order: dict[str, Any] = orjson.loads(sys.stdin.buffer.read())
    location = location_at(order["url"], order["options"])
    if "keep_epochs" in order:
        Chain.open(location).collect(order["grace_seconds"], order["keep_epochs"])
        return
    try:
        _make_image(location, order)
    except StoreLockedError as error:
        print(error, file=sys.stderr)
        sys.exit(_TAKEN)


def _make_image(location: Location, order: dict[str, Any]) -> None:
    shard = order["shard"]
    lineage = tuple(AcceptedRun.from_dict(run) for run in order["lineage"])
    plan = OperatorPlan(
        location,
        order["incarnation"],
        order["operator"],
        order["epoch"],
        (*[()] * shard, lineage),
        cache=order["cache"],
    )
    sys.stdout.buffer.write(orjson.dumps(asdict(_written(plan, shard, order["is_noted"]))))


if __name__ == "__main__":
    _main()
