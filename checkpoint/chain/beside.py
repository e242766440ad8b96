"""Images made in a process of their own, at the lowest priority: what goes on in this one does not wait for them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import orjson

from checkpoint.chain.cache import write_image
from checkpoint.chain.location import LocalLocation, RemoteLocation, location_at
from checkpoint.chain.manifest import AcceptedRun
from checkpoint.chain.plan import OperatorPlan
from checkpoint.errors import CheckpointError


def write_image_beside(plan: OperatorPlan, shard: int) -> AcceptedRun:
    """Do what ``write_image`` does in another process, and wait for it.

    Args:
        plan: the plan of the operator; its location a folder or an fsspec URL, or the work is done in this process.
        shard: the number of the shard.

    Raises:
        CheckpointError: the process failed; what it said last follows.
    Time: O(state). Dirties: the cache, and one new file of the location.
    """
    order = _order(plan, shard)
    if order is None:
        return write_image(plan, shard)
    # What says how to reach the location may be secret: it goes through a pipe, not into the list of processes. What
    # was imported here is found there, too, where a notebook has added to the path.
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-m", __name__], input=order, capture_output=True, check=False, env=known)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        raise CheckpointError(f"image of {plan.operator}/{shard} at {plan.location.url}: {said}")
    return AcceptedRun.from_dict(orjson.loads(done.stdout))


def _order(plan: OperatorPlan, shard: int) -> bytes | None:
    if not isinstance(plan.location, LocalLocation | RemoteLocation):
        return None
    values = {
        "url": plan.location.url,
        "options": plan.location.options if isinstance(plan.location, RemoteLocation) else {},
        "incarnation": plan.incarnation,
        "operator": plan.operator,
        "epoch": plan.epoch,
        "shard": shard,
        "lineage": [asdict(run) for run in plan.lineages[shard]],
        "cache": plan.cache,
    }
    try:
        return orjson.dumps(values)
    except TypeError:  # An option is an object, which only this process has.
        return None


def _main() -> None:
    if hasattr(os, "nice"):
        os.nice(19)
    order: dict[str, Any] = orjson.loads(sys.stdin.buffer.read())
    shard = order["shard"]
    lineage = tuple(AcceptedRun.from_dict(run) for run in order["lineage"])
    plan = OperatorPlan(
        location_at(order["url"], order["options"]),
        order["incarnation"],
        order["operator"],
        order["epoch"],
        (*[()] * shard, lineage),
        cache=order["cache"],
    )
    sys.stdout.buffer.write(orjson.dumps(asdict(write_image(plan, shard))))


if __name__ == "__main__":
    _main()
