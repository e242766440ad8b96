"""Change the number of shards of a space, while no query runs on it.

Each key goes to the shard that its vnode now belongs to. What moves are the tables of pipelines, and objects whose keys
are known to be those that rows are routed by: an operator has noted it, or the caller says so. Nothing is divided on a
guess: any other object is refused before anything changes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from checkpoint.chain import (
    Chain,
    Division,
    EpochPlan,
    Lineage,
    Location,
    Manifest,
    OperatorPlan,
    Part,
    ShardSaved,
    cache_root,
    location_at,
    scratch_folder,
    write_division,
    write_image,
)
from objectspace.codec import dataclasses_kept
from objectspace.errors import ObjectSpaceError
from objectspace.operators.division import (
    Notes,
    OldShard,
    Rule,
    copy_notes,
    overlapping,
    require_same_tables,
    require_same_watermarks,
)
from objectspace.spark.executor import open_shard
from objectspace.spark.routes import KINDS, PIPELINE, noted_routes


def rescale(
    location: str | os.PathLike[str] | Location,
    shards: int,
    *,
    keyed: Mapping[str, Iterable[str]] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Manifest | None:
    """Give every operator of a space another number of shards, as one new epoch.

    Stop the query first: a driver that still runs is fenced at its next epoch. Then start it with the new number; it
    continues where it stopped. Older epochs stay readable with their own shards.

    Args:
        location: where the space lies.
        shards: the new number of shards, 1 to 256.
        keyed: for operators that were added to a pipeline, the names of the objects whose keys are the values that rows
            are routed by, in tuples if these are several; of a table it is the primary key. What an operator has noted
            (of a ``RunningAggregate``, or by ``Operator(keyed=)``) need not be given.
        options: what fsspec passes to the file system of a URL.

    Returns:
        The manifest of the new epoch, or None if the space already has that number.

    Raises:
        ObjectSpaceError: the number is out of range, or there is no epoch yet; or an object cannot be divided by its
            keys, or nothing says that it can, or the shards have evolved a table apart, or have different watermarks of
            it; nothing was changed.
        CheckpointError: there is no space, or it cannot be read, or its manifests are missing.
        FencedError: a driver has published an epoch meanwhile; nothing was changed.

    Time: O(objects), and O(slots) of what users' operators have written, whose keys are compared with their shards; and
        what the caches of this machine lack. Dirties: a division for each new shard, which names the runs of those that
        it gets its rows from, and one manifest. No row is written: whoever opens a new shard reads these runs. Only if
        shards were divided and have no image yet, that image is made first, in O(state).
    """
    if type(shards) is not int or not 1 <= shards <= 256:
        raise ObjectSpaceError(f"rescale to {shards!r} shards: expected 1 to 256")
    if keyed is not None and not isinstance(keyed, Mapping):
        raise ObjectSpaceError(f"keyed is {keyed!r:.80}: expected the names of objects by the name of their operator")
    started = time.perf_counter()
    opened = Chain.open(location_at(location, options, publishes=True))
    newest = opened.newest
    if lost := opened.unlisted():
        raise lost
    if opened.shards == shards:
        return None
    if newest is None:
        raise ObjectSpaceError(
            f"space at {opened.location.url} has no epoch yet, so there is nothing to divide: run the pipeline with"
            f" shards={opened.shards}, as it was founded, and then rescale it; or, if it never had"
            f" one, stop what runs on it, remove the location, and start with shards={shards}"
        )
    with _caches_of(opened) as cache:
        plans = {name: opened.operator_plan(name, cache=cache) for name in newest.lineage}
        rules = _rules(plans, keyed or {}, opened.location.url)
        for name, plan in plans.items():
            _require_divisible(plan, rules[name], shards)
        saved = {name: _divisions(plan, rules[name], shards) for name, plan in plans.items()}
    epoch = EpochPlan(newest.epoch, newest.source, plans)
    return opened.publish_rescaled(epoch, saved, shards, {"seconds": time.perf_counter() - started})


@contextmanager
def _caches_of(chain: Chain) -> Iterator[str | None]:
    """Yield a folder of caches: that of the machine if it has any of the space, else one that is removed afterwards."""
    if (cache_root() / chain.incarnation).is_dir():
        yield None
        return
    with scratch_folder() as folder:
        yield str(folder)


def _rules(plans: Mapping[str, OperatorPlan], keyed: Mapping[str, Iterable[str]], url: str) -> dict[str, Rule]:
    """Return how each operator is divided."""
    routes, kinds = _routes(plans)
    added = _added([name for name in plans if name not in routes], keyed, url)
    built = {name: Rule(sides, kinds.get(name, [])) for name, sides in routes.items()}
    return {name: built.get(name) or Rule(named=added[name]) for name in plans}


def _routes(plans: Mapping[str, OperatorPlan]) -> tuple[dict[str, list[list[str]]], dict[str, list[list[str]]]]:
    """Return for each operator of a built pipeline the columns that its rows are routed by, and their types."""
    if PIPELINE not in plans:
        return {}, {}
    with open_shard(plans[PIPELINE], 0) as space:
        space.store.reader().check_rows()  # What it says becomes the rule of every new shard.
        return {PIPELINE: [], **noted_routes(space)}, noted_routes(space, KINDS)


def _added(names: Iterable[str], keyed: Mapping[str, Iterable[str]], url: str) -> dict[str, list[str]]:
    """Return for each operator that was added which of its objects the caller names."""
    found: dict[str, list[str]] = {name: [] for name in names}
    for name, objects in keyed.items():
        if name not in found:
            raise ObjectSpaceError(
                f"space at {url}: keyed names the operator {name!r}: expected one that was added to a pipeline:"
                f" {', '.join(found) or 'there is none'}"
            )
        found[name] = [objects] if isinstance(objects, str) else list(objects)
    return found


def _require_divisible(plan: OperatorPlan, rule: Rule, shards: int) -> None:
    """Make sure that it is known where every slot of an operator belongs."""
    if rule.is_whole:
        return
    missing, notes, filled = dict.fromkeys(rule.named), list[Notes](), list[set[str]]()
    for number in range(plan.shards):
        with open_shard(plan, number) as space, dataclasses_kept():
            old = OldShard(plan.operator, number, plan.shards, rule, space)
            old.require_divisible()
            notes.append(old.notes())
            filled.append(old.filled_tables())
            for name in space:
                missing.pop(name, None)
    if missing:
        raise ObjectSpaceError(
            f"operator {plan.operator}: keyed names {next(iter(missing))!r}, and no shard has an object of this name:"
            " correct it; nothing was changed"
        )
    require_same_tables(plan.operator, notes)
    for shard in range(shards):
        parts = {number: notes[number] for number in overlapping(shard, shards, plan.shards)}
        require_same_watermarks(plan.operator, parts, filled)
        together: dict[str, dict[Any, Any]] = {}
        for number, noted in parts.items():
            for name, known in noted.items():
                copy_notes(f"operator {plan.operator}, shard {number}, {name!r}", known, together.setdefault(name, {}))


def _divisions(plan: OperatorPlan, rule: Rule, shards: int) -> list[ShardSaved]:
    """Write what says how the new shards of an operator are made, and return their messages."""
    parts = [Part(number, _undivided(plan, number)) for number in range(1 if rule.is_whole else plan.shards)]
    saved = []
    for shard in range(shards):
        wanted = ([] if shard else [0]) if rule.is_whole else overlapping(shard, shards, plan.shards)
        found = tuple(parts[number] for number in wanted if parts[number].lineage)
        division = Division(plan.operator, shard, shards, plan.shards, found, asdict(rule))
        run = write_division(plan.location, division, plan.epoch) if found else None
        saved.append(ShardSaved(plan.operator, shard, run))
    return saved


def _undivided(plan: OperatorPlan, shard: int) -> Lineage:
    """Return the runs of an old shard, or an image of it if they include a division: no division is made of one."""
    # Otherwise opening a shard after several rescales would mean dividing the shards that those were made of, too.
    lineage = plan.lineages[shard]
    return (write_image(plan, shard),) if any(run.is_division for run in lineage) else lineage
