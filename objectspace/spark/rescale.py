"""Another number of shards for a space, while no query runs on it.

Each key goes to the shard that its vnode belongs to from now on. What is moved are the tables of pipelines, and objects
of which it is known that their keys are those that rows are routed by: an operator has noted it, or the caller says so.
Nothing is divided on a guess: any other object is refused before anything changes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain, islice
from typing import Any

from checkpoint import CheckpointStore
from checkpoint.chain import Chain, EpochPlan, Location, Manifest, OperatorPlan, ShardSaved, location_at, scratch_folder
from checkpoint.chain.runfile import write_pages
from objectspace import ObjectDictionary, PersistedObjectSpace, Set, SortedDictionary, Value
from objectspace.errors import ObjectSpaceError
from objectspace.kvt.catalogue import NAME as CATALOGUE
from objectspace.objects import RawSortedDictionary
from objectspace.operators.catalogue import OPERATORS
from objectspace.relational import Column, RelationalError, TableSchema, tables
from objectspace.relational.catalogue import TABLES, WATERMARKS
from objectspace.spark.executor import open_shard
from objectspace.spark.handover import vnode_router
from objectspace.spark.routes import KEYED, KINDS, PIPELINE, KeyedBy, noted_keyed, noted_routes
from objectspace.spark.shards import VNODES, vnode_of

Sides = list[list[str]]
VnodeOfKey = Callable[[Any], int | None]
"""What tells to which vnode a key of an object belongs; None of one that rows are not routed by."""

Marks = dict[str, KeyedBy | None]
"""The objects that can be divided, with what is noted of their keys; None where the caller says that they are whole."""

_NOTES = (TABLES, WATERMARKS, KEYED)
"""What is known of other objects, and goes to each shard that gets a part of them."""

_MAPPINGS = ("Dictionary", "SortedDictionary")
_SETS = ("Set", "SortedSet")

_PAGE_ROWS = 4096
"""How many rows of a table are divided at once."""

_FLUSH_ROWS = 256 * 1024
"""How many slots are divided before what has become of them is written to the disk."""

_OPEN_SHARDS = 16
"""How many new shards are filled at once: each has four files open. Those that follow read their old ones again."""

_CACHE_SLOTS = 256 * 1024
"""How many clean slots are kept in memory: of the shard that is read, and as many of all new ones together."""


def rescale(
    location: str | os.PathLike[str] | Location,
    shards: int,
    *,
    keyed: Mapping[str, Iterable[str]] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Manifest | None:
    """Give every operator of a space another number of shards, as one new epoch.

    Stop the query first: a driver that still runs is fenced at its next epoch. Then start it with the new number; it
    goes on where it stopped. Older epochs stay readable with their own shards.

    Args:
        location: where the space lies.
        shards: the new number of shards, 1 to 256.
        keyed: for operators that were added to a pipeline the names of the objects whose keys are the values that rows
            are routed by, in tuples where these are several; of a table it is the primary key. What an operator has
            noted (of a ``RunningAggregate``, or by ``Operator(keyed=)``) need not be said.
        options: what fsspec passes to the file system of a URL.

    Returns:
        the manifest of the new epoch, or None where the space has that number already.

    Raises:
        ObjectSpaceError: an object cannot be divided by its keys, or nothing says that it can; nothing was changed.
        CheckpointError: there is no space or no epoch yet, or the number is out of range.
        FencedError: a driver has published an epoch meanwhile; nothing was changed.
    Time: O(state); memory: some pages of new shards, the compressed file of one, and the largest object that another
        one owns. New shards are made where the caches of this machine lie. Dirties: a full run for each new shard that
        holds anything, and one manifest.
    """
    if type(shards) is not int or not 1 <= shards <= 256:
        raise ObjectSpaceError(f"rescale to {shards!r} shards: expected 1 to 256")
    if keyed is not None and not isinstance(keyed, Mapping):
        raise ObjectSpaceError(f"keyed is {keyed!r:.80}: expected the names of objects by the name of their operator")
    started = time.perf_counter()
    opened = Chain.open(location_at(location, options))
    newest = opened.newest
    if newest is None:
        raise ObjectSpaceError(
            f"space at {opened.location.url} has no epoch yet: start the pipeline with shards={shards}"
        )
    if newest.shards == shards:
        return None
    with scratch_folder() as cache:
        plans = {name: opened.operator_plan(name, cache=str(cache)) for name in newest.lineage}
        routes, kinds = _routes(plans)
        added = _added([name for name in plans if name not in routes], keyed or {}, opened.location.url)
        for name, named in added.items():
            _require_divisible(plans[name], named)
        saved = {
            name: _divided(plan, shards, routes.get(name), kinds.get(name, []), added.get(name, ()))
            for name, plan in plans.items()
        }
    plan = EpochPlan(newest.epoch, newest.source, plans)
    return opened.publish_rescaled(plan, saved, shards, {"seconds": time.perf_counter() - started})


def _routes(plans: Mapping[str, OperatorPlan]) -> tuple[dict[str, Sides], dict[str, Sides]]:
    """Return for each operator of a built pipeline by which columns its rows are routed, and their types."""
    if PIPELINE not in plans:
        return {}, {}
    with open_shard(plans[PIPELINE], 0) as space:
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


def _require_divisible(plan: OperatorPlan, named: Iterable[str]) -> None:
    """Make sure that it is known of every object of an operator how it is divided."""
    missing = dict.fromkeys(named)
    for old in range(plan.shards):
        with open_shard(plan, old) as space:
            marks = _marks(space, named)
            for name in space:
                missing.pop(name, None)
                _require_keyed(plan, old, space.get(name), marks)
    if missing:
        raise ObjectSpaceError(
            f"operator {plan.operator}: keyed names {next(iter(missing))!r}, and no shard has an object of this name:"
            " correct it; nothing was changed"
        )


def _require_keyed(plan: OperatorPlan, old: int, target: Any, marks: Marks) -> None:
    if _is_note(target.name):
        return
    if target.name.startswith("kvt/"):
        reason = "expected objects that an operator keys by what routes its rows, found a part of key-value tables"
    elif target.name.startswith("$"):
        reason = "expected objects of the operator, and this one is the library's own, which nothing can divide"
    elif target.kind not in (*_MAPPINGS, *_SETS):
        kinds = ", ".join((*_MAPPINGS, *_SETS))
        reason = f"expected objects with keys ({kinds}), which may tell where each slot belongs"
    elif target.name not in marks:
        reason = (
            "nothing says that its keys are the values that rows are routed by: if they are, say rescale(...,"
            f" keyed={{{plan.operator!r}: [{target.name!r}]}}), or Operator(keyed=) and let the query run one more"
            " epoch; otherwise nothing tells where a slot belongs"
        )
    else:
        return
    raise ObjectSpaceError(f"{_place(plan, old, target)}: {reason}: {_advice(plan)}")


def _marks(space: PersistedObjectSpace, named: Iterable[str]) -> Marks:
    """Return what a shard has noted of its objects, and what the caller says."""
    return {**dict.fromkeys(named), **noted_keyed(space)}


def _place(plan: OperatorPlan, old: int, target: Any) -> str:
    return f"operator {plan.operator}, shard {old}, {target.kind} {target.name!r}"


def _advice(plan: OperatorPlan) -> str:
    count = f"{plan.shards} shard{'s' if plan.shards > 1 else ''}"
    return f"keep the {count}, or feed a new space from the beginning"


def _divided(
    plan: OperatorPlan, shards: int, sides: Sides | None, kinds: Sides, named: Iterable[str]
) -> list[ShardSaved]:
    """Write the new shards of one operator, and return their messages.

    Args:
        plan: its plan.
        shards: how many there are from now on.
        sides: by which columns rows of each side are routed; None for an operator that was added.
        kinds: of which types these columns are, where that is known.
        named: which of its objects the caller says to be divided by their keys.
    """
    if sides == []:
        return _whole(plan, shards)
    divide = partial(_divide_added, named) if sides is None else partial(_divide_table, sides, kinds)
    saved = []
    for first in range(0, shards, _OPEN_SHARDS):
        with _opened(range(first, min(first + _OPEN_SHARDS, shards)), shards) as targets:
            for old in range(plan.shards):
                if targets.overlapping(old, plan.shards):
                    with open_shard(plan, old, cache_slots=_CACHE_SLOTS) as space:
                        for name in space:
                            divide(plan, old, space, name, targets)
            targets.flush()
            saved += [_saved(plan, shard, space.store) for shard, space in targets.spaces.items()]
    return saved


class _Targets:
    """Some of the new shards, which are open.

    Args:
        spaces: by their numbers.
        shards: how many new shards there are in all.
    """

    def __init__(self, spaces: Mapping[int, PersistedObjectSpace], shards: int) -> None:
        self.spaces, self.shards = spaces, shards
        self._divided = 0

    def overlapping(self, old: int, before: int) -> dict[int, PersistedObjectSpace]:
        """Return those that own any vnode of an old shard."""
        owners = {vnode * self.shards // VNODES for vnode in range(VNODES) if vnode * before // VNODES == old}
        return {shard: space for shard, space in self.spaces.items() if shard in owners}

    def flushing(self, slots: Iterable[Any]) -> Iterator[Any]:
        """Yield slots, and now and then let go of what has become of them: it lies on the disk then."""
        for slot in slots:
            if self._divided >= _FLUSH_ROWS:
                self.flush()
            yield slot
            self._divided += 1

    def took(self, slots: int) -> None:
        """Note that one of them was more: an object that is owned comes with all its slots."""
        self._divided += slots

    def flush(self) -> None:
        """Write to the disk what was divided."""
        for space in self.spaces.values():
            space.checkpoint()
        self._divided = 0


@contextmanager
def _opened(numbers: Iterable[int], shards: int) -> Iterator[_Targets]:
    """Open new shards that are empty, in files that are gone afterwards."""
    options: dict[str, Any] = {"durability": "normal", "cache_slots": max(1, _CACHE_SLOTS // _OPEN_SHARDS)}
    with scratch_folder() as folder, ExitStack() as stack:
        spaces = {
            number: stack.enter_context(PersistedObjectSpace.open(folder / f"{number}.db", **options))
            for number in numbers
        }
        yield _Targets(spaces, shards)


def _whole(plan: OperatorPlan, shards: int) -> list[ShardSaved]:
    """Write an operator whose rows all meet in its first shard."""
    saved = [ShardSaved(plan.operator, shard, None) for shard in range(shards)]
    if plan.lineages[0]:
        with open_shard(plan, 0) as space:
            saved[0] = _saved(plan, 0, space.store)
    return saved


def _divide_table(
    sides: Sides, kinds: Sides, plan: OperatorPlan, old: int, space: PersistedObjectSpace, name: str, targets: _Targets
) -> None:
    """Put each row of a table into its new shard, by the columns that rows are routed by; objects go by their keys."""
    place = _place(plan, old, space.get(name))
    record = tables(space).get(name)
    overlapping = targets.overlapping(old, plan.shards)
    if _is_note(name):
        _copy_notes(place, space.get(name), overlapping.values())
        return
    if record is None:
        _divide(_vnode_by_types(kinds) if kinds else _vnode_by_note(None), plan, old, space, name, targets)
        return
    into = {shard: _rows_of(target, name) for shard, target in overlapping.items()}
    key = [record.schema.place_of(column) for column in _routed_by(place, record.schema, sides)]
    vnodes_of, read = vnode_router(record.schema, key), record.codec().decode
    items = targets.flushing(space.get_sorted_dictionary(name).items())
    while page := list(islice(items, _PAGE_ROWS)):
        rows = [read(text) for _, text in page]
        for (slot, text), row, vnode in zip(page, rows, vnodes_of(rows), strict=True):
            if vnode * plan.shards // VNODES != old:
                raise ObjectSpaceError(
                    f"{place}: the row {row!r} is not where rows of its key go, so that nothing tells which shard is"
                    f" its own: {_advice(plan)}"
                )
            rows_of_shard = into.get(vnode * targets.shards // VNODES)
            if rows_of_shard is not None:
                rows_of_shard[slot] = text


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


def _is_note(name: str) -> bool:
    return name in _NOTES or name.endswith(f"/{OPERATORS}")


def _copy_notes(place: str, source: Any, spaces: Iterable[PersistedObjectSpace]) -> None:
    """Copy what is known of tables, which must be the same in all shards that come together."""
    for target in [space.get_or_create_dictionary(source.name) for space in spaces]:
        for name, known in source.items():
            if target.setdefault(name, known) != known:
                raise ObjectSpaceError(
                    f"{place}: {name!r} is {known!r} here and {target[name]!r} in another shard: let the query run one"
                    " more epoch, so that they agree"
                )


def _divide_added(
    named: Iterable[str], plan: OperatorPlan, old: int, space: PersistedObjectSpace, name: str, targets: _Targets
) -> None:
    """Put what an object of an added operator holds into its new shards."""
    source, record = space.get(name), tables(space).get(name)
    keyed = _marks(space, named).get(name)
    if _is_note(name):
        _copy_notes(_place(plan, old, source), source, targets.overlapping(old, plan.shards).values())
    elif record is not None:
        key = tuple(column for column, _ in record.schema.primary_key)
        columns = _routed(key, keyed)
        if columns is None:
            raise ObjectSpaceError(
                f"{_place(plan, old, source)}: its key is {', '.join(key)}, expected that which rows are routed by:"
                f" {_advice(plan)}"
            )
        _divide_table([list(columns)], [], plan, old, space, name, targets)
    else:
        _divide(_vnode_by_note(keyed), plan, old, space, name, targets)


def _divide(
    vnode_of_key: VnodeOfKey, plan: OperatorPlan, old: int, space: PersistedObjectSpace, name: str, targets: _Targets
) -> None:
    """Put each slot of an object into the object of the same name in its new shard."""
    source: Any = space.get(name)
    if source.kind not in (*_MAPPINGS, *_SETS) or f"/{name}".endswith(f"/{CATALOGUE}"):
        raise ObjectSpaceError(
            f"{_place(plan, old, source)}: expected objects with keys ({', '.join((*_MAPPINGS, *_SETS))}), which tell"
            f" where each slot belongs: {_advice(plan)}"
        )
    into = {shard: _twin(source, target) for shard, target in targets.overlapping(old, plan.shards).items()}
    slots: Iterable[tuple[Any, Any]] = source.items() if source.kind in _MAPPINGS else ((key, None) for key in source)
    for key, value in targets.flushing(slots):
        vnode = vnode_of_key(key)
        if vnode is None or vnode * plan.shards // VNODES != old:
            raise _not_routed(plan, old, source, key)
        target = into.get(vnode * targets.shards // VNODES)
        if target is None:
            continue
        if isinstance(source, ObjectDictionary):
            contents = _contents(value)
            targets.took(1 if isinstance(value, Value) else len(contents))
            target[key] = contents
        elif source.kind in _MAPPINGS:
            target[key] = value
        else:
            target.add(key)


def _contents(member: Any) -> Any:
    """Return what an owned object holds, in its order."""
    return list(member) if isinstance(member, Set) else member.copy()


def _twin(source: Any, space: PersistedObjectSpace) -> Any:
    """Return the object of the same name and kind in another space."""
    if source.kind == "Dictionary":
        member = source._member.kind if isinstance(source, ObjectDictionary) else None
        return space.get_or_create_dictionary(source.name, member)
    if source.kind == "SortedDictionary":
        return space.get_or_create_sorted_dictionary(source.name, raw=isinstance(source, RawSortedDictionary))
    is_sorted = source.kind == "SortedSet"
    return space.get_or_create_sorted_set(source.name) if is_sorted else space.get_or_create_set(source.name)


def _vnode_by_types(kinds: Sides) -> VnodeOfKey:
    """Return what tells the vnode of a key by the columns that the rows of each side are routed by, given their types.

    A key that cannot be that of a row has none: where the space has one shard, nothing else would tell.
    """
    sides = [[Column(f"part {place}", kind, nullable=True) for place, kind in enumerate(side)] for side in kinds]
    schemas = list(map(TableSchema, sides))
    routers = [(schema, vnode_router(schema, range(len(schema.columns)))) for schema in schemas]

    def _vnode(key: Any) -> int | None:
        parts = _parts(key)
        return next((route([parts])[0] for schema, route in routers if _fits(parts, schema)), None)

    return _vnode


def _fits(parts: tuple[Any, ...], schema: TableSchema) -> bool:
    """Tell whether values are those of a row just as they are."""
    try:
        row = schema.check_row(parts)
    except RelationalError:
        return False
    return [(type(part), part) for part in parts] == [(type(part), part) for part in row]


def _vnode_by_note(keyed: KeyedBy | None) -> VnodeOfKey:
    """Return what tells the vnode of a key by where it has the values that rows are routed by."""

    def _vnode(key: Any) -> int | None:
        routed = _routed(key, keyed)
        is_routed = routed and all(part is None or type(part) in (str, bytes, int) for part in routed)
        return vnode_of(*routed) if routed and is_routed else None

    return _vnode


def _parts(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _routed(key: Any, keyed: KeyedBy | None) -> tuple[Any, ...] | None:
    """Return the values in a key that its rows were routed by; None where it is no such key as was noted."""
    parts = _parts(key)
    if keyed is None:
        return parts
    return tuple(parts[place] for place in keyed.places) if len(parts) == keyed.parts else None


def _not_routed(plan: OperatorPlan, old: int, source: Any, key: Any) -> ObjectSpaceError:
    return ObjectSpaceError(
        f"{_place(plan, old, source)}: the key {key!r} is not one that rows are routed by, so that nothing tells which"
        f" shard it belongs to: {_advice(plan)}"
    )


def _saved(plan: OperatorPlan, shard: int, store: CheckpointStore) -> ShardSaved:
    pages = store.reader().image_pages()
    first = next(pages, None)
    if first is None:
        return ShardSaved(plan.operator, shard, None)
    image = write_pages(plan.location, chain([first], pages), plan.operator, shard, plan.epoch)
    return ShardSaved(plan.operator, shard, image)
