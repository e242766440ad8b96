"""Another number of shards for a space, while no query runs on it.

Each key goes to the shard that its vnode belongs to from now on. What is moved are the tables of pipelines, and objects
whose keys are those that rows are routed by; an object that says nothing of keys cannot be divided, and is refused
before anything changes.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from checkpoint import CheckpointKind, CheckpointStore, RunWriter
from checkpoint.chain import Chain, EpochPlan, Location, Manifest, OperatorPlan, ShardSaved, location_at, save_run
from objectspace import ObjectDictionary, PersistedObjectSpace, SortedDictionary
from objectspace.errors import ObjectSpaceError
from objectspace.kvt.catalogue import NAME as CATALOGUE
from objectspace.objects import RawSortedDictionary
from objectspace.relational import TableSchema, tables
from objectspace.relational.catalogue import TABLES, WATERMARKS
from objectspace.spark.executor import open_shard
from objectspace.spark.handover import vnode_hasher
from objectspace.spark.routes import KINDS, PIPELINE, noted_routes
from objectspace.spark.shards import VNODES, shard_of

Spaces = list[PersistedObjectSpace]
Sides = list[list[str]]

_MAPPINGS = ("Dictionary", "SortedDictionary")
_SETS = ("Set", "SortedSet")

_PARTS = {"string": str, "binary": bytes, "int16": int, "int32": int, "int64": int}
"""What a key of an object has for the values of a column."""


def rescale(
    location: str | os.PathLike[str] | Location, shards: int, *, options: Mapping[str, Any] | None = None
) -> Manifest | None:
    """Give every operator of a space another number of shards, as one new epoch.

    Stop the query first: a driver that still runs is fenced at its next epoch. Then start it with the new number; it
    goes on where it stopped. Older epochs stay readable with their own shards.

    Args:
        location: where the space lies.
        shards: the new number of shards, 1 to 256.
        options: what fsspec passes to the file system of a URL.

    Returns:
        the manifest of the new epoch, or None where the space has that number already.

    Raises:
        ObjectSpaceError: an object cannot be divided by its keys; nothing was changed.
        CheckpointError: there is no space or no epoch yet, or the number is out of range.
        FencedError: a driver has published an epoch meanwhile; nothing was changed.
    Time: O(state); memory: the state of one operator. Dirties: a full run for each new shard, and one manifest.
    """
    if not 1 <= shards <= 256:
        raise ObjectSpaceError(f"rescale to {shards} shards: expected 1 to 256")
    started = time.perf_counter()
    chain = Chain.open(location_at(location, options))
    newest = chain.newest
    if newest is None:
        raise ObjectSpaceError(
            f"space at {chain.location.url} has no epoch yet: start the pipeline with shards={shards}"
        )
    if newest.shards == shards:
        return None
    with tempfile.TemporaryDirectory(prefix="objectspace-rescale-") as cache:
        plans = {name: chain.operator_plan(name, cache=cache) for name in newest.lineage}
        routes, kinds = _routes(plans)
        saved = {name: _divided(plan, shards, routes.get(name), kinds.get(name, [])) for name, plan in plans.items()}
    plan = EpochPlan(newest.epoch, newest.source, plans)
    return chain.publish_rescaled(plan, saved, shards, {"seconds": time.perf_counter() - started})


def _routes(plans: Mapping[str, OperatorPlan]) -> tuple[dict[str, Sides], dict[str, Sides]]:
    """Return for each operator of a built pipeline by which columns its rows are routed, and their types."""
    if PIPELINE not in plans:
        return {}, {}
    with open_shard(plans[PIPELINE], 0) as space:
        return {PIPELINE: [], **noted_routes(space)}, noted_routes(space, KINDS)


def _divided(plan: OperatorPlan, shards: int, sides: Sides | None, kinds: Sides) -> list[ShardSaved]:
    """Write the new shards of one operator, and return their messages.

    Args:
        plan: its plan.
        shards: how many there are from now on.
        sides: by which columns rows of each side are routed; None for an operator of objects with such keys.
        kinds: of which types these columns are, where that is known.
    """
    if sides == []:
        return _whole(plan, shards)
    divide = _divide if sides is None else partial(_divide_table, sides, kinds)
    stores = [CheckpointStore(":memory:") for _ in range(shards)]
    try:
        spaces = [PersistedObjectSpace(store) for store in stores]
        for old in range(plan.shards):
            with open_shard(plan, old) as space:
                for name in space:
                    divide(plan, old, space, name, spaces)
        return [_saved(plan, shard, space) for shard, space in enumerate(spaces)]
    finally:
        for store in stores:
            store.close()


def _whole(plan: OperatorPlan, shards: int) -> list[ShardSaved]:
    """Write an operator whose rows all meet in its first shard."""
    saved = [ShardSaved(plan.operator, shard, None) for shard in range(shards)]
    if plan.lineages[0]:
        with open_shard(plan, 0) as space:
            saved[0] = save_run(plan, 0, space.store.reader().image())
    return saved


def _divide_table(
    sides: Sides, kinds: Sides, plan: OperatorPlan, old: int, space: PersistedObjectSpace, name: str, spaces: Spaces
) -> None:
    """Put each row of a table into its new shard, by the columns that rows are routed by; objects go by their keys."""
    place = f"operator {plan.operator}, shard {old}, {space.get(name).kind} {name!r}"
    record = tables(space).get(name)
    overlapping = list(_overlapping(old, plan.shards, len(spaces)))
    if name in (TABLES, WATERMARKS):
        _copy_notes(place, space.get(name), [spaces[shard] for shard in overlapping])
        return
    if record is None:
        _check_keys(place, space.get(name), kinds, plan.shards)
        _divide(plan, old, space, name, spaces)
        return
    targets = {shard: _rows_of(spaces[shard], name) for shard in overlapping}
    key = [record.schema.place_of(column) for column in _routed_by(place, record.schema, sides)]
    vnode_of = vnode_hasher([record.schema.columns[column].type for column in key])
    read = record.codec().decode
    for slot, text in space.get_sorted_dictionary(name).items():
        row = read(text)
        vnode = vnode_of([row[column] for column in key])
        if vnode * plan.shards // VNODES != old:
            raise ObjectSpaceError(
                f"{place}: the row {row!r} is not where rows of its key go, so that nothing tells which shard is its"
                f" own: keep the {plan.shards} shards, or feed a new space from the beginning"
            )
        targets[vnode * len(spaces) // VNODES][slot] = text


def _routed_by(place: str, schema: TableSchema, sides: Sides) -> list[str]:
    """Return the columns of a table by which its rows are routed: those of a side, at best at the head of its key."""
    there, head = {column.name for column in schema.columns}, [column for column, _ in schema.primary_key]
    found = [side for side in sides if there.issuperset(side)]
    if not found:
        raise ObjectSpaceError(
            f"{place}: it has the columns {', '.join(sorted(there))}: expected those that rows are routed by,"
            f" {' or '.join(', '.join(side) for side in sides)}: keep the shards, or feed a new space from the"
            " beginning"
        )
    return max(found, key=lambda side: head[: len(side)] == side)


def _rows_of(space: PersistedObjectSpace, name: str) -> SortedDictionary[bytes, str]:
    """Return what holds the rows of a table, as tables make it: encoded keys and texts, stored as they are."""
    return space.get_sorted_dictionary(name) if name in space else space.create_sorted_dictionary(name, raw=True)


def _copy_notes(place: str, source: Any, spaces: Spaces) -> None:
    """Copy what is known of tables, which must be the same in all shards that come together."""
    for target in [space.get_or_create_dictionary(source.name) for space in spaces]:
        for name, known in source.items():
            if target.setdefault(name, known) != known:
                raise ObjectSpaceError(
                    f"{place}: {name!r} is {known!r} here and {target[name]!r} in another shard: let the query run one"
                    " more epoch, so that they agree"
                )


def _divide(plan: OperatorPlan, old: int, space: PersistedObjectSpace, name: str, spaces: Spaces) -> None:
    """Put each slot of an object into the object of the same name in its new shard."""
    source: Any = space.get(name)
    place = f"operator {plan.operator}, shard {old}, {source.kind} {source.name!r}"
    if source.kind not in (*_MAPPINGS, *_SETS) or f"/{name}".endswith(f"/{CATALOGUE}"):
        raise ObjectSpaceError(
            f"{place}: expected objects with keys ({', '.join((*_MAPPINGS, *_SETS))}), which tell where each slot"
            f" belongs: keep the {plan.shards} shards, or feed a new space from the beginning"
        )
    targets = {}
    for shard in _overlapping(old, plan.shards, len(spaces)):
        targets[shard] = _twin(source, spaces[shard])
    slots: Iterable[tuple[Any, Any]] = source.items() if source.kind in _MAPPINGS else ((key, None) for key in source)
    for key, value in slots:
        target = targets[_new_shard(place, key, old, plan.shards, len(spaces))]
        if source.kind in _MAPPINGS:
            target[key] = value.copy() if isinstance(source, ObjectDictionary) else value
        else:
            target.add(key)


def _twin(source: Any, space: PersistedObjectSpace) -> Any:
    """Return the object of the same name and kind in another space."""
    if source.kind == "Dictionary":
        member = source._member.kind if isinstance(source, ObjectDictionary) else None
        return space.get_or_create_dictionary(source.name, member)
    if source.kind == "SortedDictionary":
        return space.get_or_create_sorted_dictionary(source.name, raw=isinstance(source, RawSortedDictionary))
    is_sorted = source.kind == "SortedSet"
    return space.get_or_create_sorted_set(source.name) if is_sorted else space.get_or_create_set(source.name)


def _overlapping(old: int, before: int, after: int) -> Iterator[int]:
    """Yield the new shards that own any vnode of an old one."""
    vnodes = (vnode for vnode in range(256) if vnode * before // 256 == old)
    yield from dict.fromkeys(vnode * after // 256 for vnode in vnodes)


def _check_keys(place: str, source: Any, kinds: Sides, before: int) -> None:
    """Refuse keys that cannot be those of rows by their types: of a space with one shard the shard does not tell."""
    if kinds and source.kind in (*_MAPPINGS, *_SETS):
        for key in source:
            if not any(_fits(_parts(key), side) for side in kinds):
                raise _not_routed(place, key, before)


def _fits(parts: tuple[Any, ...], kinds: list[str]) -> bool:
    return len(parts) == len(kinds) and all(
        part is None or type(part) is _PARTS.get(kind) for part, kind in zip(parts, kinds, strict=True)
    )


def _parts(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _new_shard(place: str, key: Any, old: int, before: int, after: int) -> int:
    parts = _parts(key)
    if not all(part is None or type(part) in _PARTS.values() for part in parts) or shard_of(before, *parts) != old:
        raise _not_routed(place, key, before)
    return shard_of(after, *parts)


def _not_routed(place: str, key: Any, before: int) -> ObjectSpaceError:
    return ObjectSpaceError(
        f"{place}: the key {key!r} is not one that rows are routed by, so that nothing tells which shard it belongs"
        f" to: keep the {before} shards, or feed a new space from the beginning"
    )


def _saved(plan: OperatorPlan, shard: int, space: PersistedObjectSpace) -> ShardSaved:
    writer = RunWriter(CheckpointKind.FULL)
    space.save(writer)
    writer.commit()
    return save_run(plan, shard, writer.run)
