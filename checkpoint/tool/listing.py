"""``ls``: the objects and tables of a store or a space, the largest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any

import click

from checkpoint.errors import CheckpointError
from checkpoint.tool import printing
from checkpoint.tool.command import cli, json_option, takes_source
from checkpoint.tool.content import AbsentError, State, absence
from checkpoint.tool.sizes import Owned, Sizes, dirty_slots
from checkpoint.tool.source import OpenStore, Source, find_epoch


@dataclass
class Listed:
    """What is listed of an object, over all shards that have it.

    Args:
        name: its name.
        kind: its kind; ``Table`` for a relational table.
        codec: how it is stored, beyond its kind.
        operator: of a space, the operator that it belongs to.
        length: how many elements it has.
        bytes: how large it is, including what it owns.
        dirty: how many slots of it the last checkpoint wrote.
        shards: how many shards it is in.
        owned: the largest objects that it owns.
        more: how many others it owns.
    """

    name: str
    kind: str
    codec: str
    operator: str | None = None
    length: int = 0
    bytes: int = 0
    dirty: int = 0
    shards: int = 0
    owned: list[Owned] = field(default_factory=list)
    more: int = 0


@cli.command()
@takes_source
@click.argument("checkpoint", required=False)
@click.option(
    "--tree",
    is_flag=True,
    help="List the largest objects that each object owns below it, and the partitions below a key-value table.",
)
@click.option(
    "--children", type=click.IntRange(0), default=10, show_default=True, help="How many of them, with --tree."
)
@click.option("--sort", type=click.Choice(["bytes", "name", "length", "dirty"]), default="bytes", show_default=True)
@json_option
def ls(source: Source, checkpoint: str | None, tree: bool, children: int, sort: str, is_json: bool) -> None:
    """List the objects and tables of a checkpoint: kind, length, stored bytes, slots dirty in it, and codec.

    The largest come first. The bytes of an object are those of its slots, keys and values, including what it owns. A
    key-value table is one entry. In a space an object is listed once, with what all its shards hold of it.

    \b
    Examples:
      checkpoint ls state.db
      checkpoint ls state.db HEAD~1 --sort name
      checkpoint ls state.db --tree
      checkpoint ls s3://bucket/state --operator counts --shard 3
    """
    found: list[Listed] = []
    epoch = find_epoch(source.chain, checkpoint) if source.is_location else None
    for part in source.parts(checkpoint):
        merge_listed(found, list_of(part, children if tree else 0, epoch), children)
    found.sort(key=lambda one: (0 if sort == "name" else -getattr(one, sort), one.operator or "", one.name))
    if is_json:
        for one in found:
            click.echo(printing.as_json(_fields(one, source.is_location, tree)))
        return
    header = ["name", "kind", "length", "bytes", "dirty", "codec"]
    rows = [row for one in found for row in _rows(one, tree)]
    if source.is_location:
        header = ["operator", *header, "shards"]
    else:
        rows = [row[1:-1] for row in rows]
    printing.print_table(header, rows)


def list_of(part: OpenStore, children: int = 0, epoch: int | None = None) -> Iterator[Listed]:
    """Yield the objects of one store.

    Args:
        part: the store.
        children: how many of the objects that each one owns to list.
        epoch: of a shard, the epoch that is listed, in which it need not have written anything.
    """
    state = State(part.readers[0])
    sizes, dirty = Sizes(part.store, state), Counter[str]()
    if epoch is None or part.store.epoch_of(state.reader.newest) == epoch:
        dirty = dirty_slots(part.store, state)
    for name, parts in state.listed().items():
        size = sum(sizes.bytes[one] for one in parts)
        found = Listed(name, state.kind_of(name), _codec(state, name), part.operator, state.length(name), size)
        found.dirty, found.shards = sum(dirty[one] for one in parts), 1
        owned, found.more = sizes.owned(name, children)
        found.owned = [replace(one, shard=part.shard) for one in owned]
        yield found


def _codec(state: State, name: str) -> str:
    codec = state.index[name][3] if name in state.index else None
    return "" if codec in (None, "{}") else str(codec)


def merge_listed(found: list[Listed], more: Iterator[Listed], children: int = 0) -> None:
    """Add what another shard holds to what is listed already, with so many of the objects that each one owns."""
    known = {(one.operator, one.name, one.kind): one for one in found}
    for one in more:
        whole = known.get((one.operator, one.name, one.kind))
        if whole is None:
            found.append(one)
            continue
        for key in ("length", "bytes", "dirty", "shards", "more"):
            setattr(whole, key, getattr(whole, key) + getattr(one, key))
        owned = sorted([*whole.owned, *one.owned], key=lambda owned: -owned.bytes)
        whole.owned = owned[:children]
        whole.more += len(owned) - len(whole.owned)


def _rows(one: Listed, tree: bool) -> Iterator[list[Any]]:
    yield [one.operator, one.name, one.kind, one.length, one.bytes, one.dirty, one.codec, one.shards]
    if not tree:
        return
    for place, owned in enumerate(one.owned):
        sign = "└─" if place == len(one.owned) - 1 and not one.more else "├─"
        where = "" if owned.shard is None else f", shard {owned.shard}"
        label = f"{sign} {printing.short(owned.key, 40)}{where}"
        yield [None, label, owned.kind, owned.length, owned.bytes, None, None, None]
    if one.more:
        yield [None, f"└─ {one.more:,} more", *[None] * 6]


def _fields(one: Listed, is_space: bool, tree: bool) -> dict[str, Any]:
    fields = {key: getattr(one, key) for key in ("name", "kind", "length", "bytes", "dirty", "codec")}
    if is_space:
        fields = {"operator": one.operator, **fields, "shards": one.shards}
    if tree:
        owned = [{key: value for key, value in vars(each).items() if value is not None} for each in one.owned]
        fields |= {"owned": owned, "more": one.more}
    return fields


def takes_short_name(function: Callable[..., None]) -> Callable[..., None]:
    """Let a command take the name, or names, of objects without what stands before it, as ``spark.read`` does.

    Such a name counts only where no object has it and exactly one is called so: then the command begins anew. It must
    not have printed anything by then, nor left anything that it wrote.
    """

    @wraps(function)
    def _command(source: Source, **options: Any) -> None:
        try:
            function(source, **options)
        except AbsentError as absent:
            whole = _with_whole_name(options, absent)
            if whole == options:
                raise
            _command(source, **whole)

    return _command


def _with_whole_name(options: Mapping[str, Any], absent: AbsentError) -> dict[str, Any]:
    """Return the options of a command with the only name that an absent one can stand for, if there is one."""
    whole, name, names = absent.whole, options.get("name"), options.get("names", ())
    if whole is None:
        return {**options}
    if name is not None and name.startswith(absent.name):  # Behind it may stand @EPOCH or [KEY].
        return {**options, "name": whole + name.removeprefix(absent.name)}
    return {**options, "names": tuple(whole if one == absent.name else one for one in names)} if names else {**options}


def parts_with(source: Source, name: str, *points: str | None) -> Iterator[tuple[OpenStore, State]]:
    """Yield each store that has an object, with its state at the last of some checkpoints.

    Raises:
        CheckpointError: none has it.
    """
    is_there = False
    known: set[str] | None = None
    for part in source.parts(*points):
        state = State(part.readers[-1])
        if name in state:
            is_there = True
            yield part, state
        elif not is_there:
            known = state.names().union(known or ())
    if not is_there and known is not None:
        raise absence(name, known)
    if not is_there:
        raise CheckpointError(f"there is no object {name!r}: {source.path} has no epoch yet")


def require_known(source: Source, name: str, *points: str | None) -> None:
    """Refuse a name that no object has at any of some checkpoints.

    Raises:
        AbsentError: there is none; those that may be meant are named.
    """
    known: set[str] = set()
    for part in source.parts(*points):
        for state in map(State, part.readers):
            if name in state:
                return
            known |= state.names()
    raise absence(name, known)


def require_one_operator(source: Source, name: str, *points: str | None) -> int | None:
    """Refuse an object that several operators have, before anything of it is shown.

    Returns:
        How many elements it has in all shards, if all had to be looked at; else None.

    Raises:
        CheckpointError: several operators of a space have it.
    """
    newest = source.chain.newest if source.is_location and source.operator is None else None
    if newest is None or len(newest.lineage) < 2:
        return None
    lengths = Counter[str]()
    for part in source.parts(*points):
        state = State(part.readers[-1])
        if name in state:
            lengths[str(part.operator)] += state.length(name)
    if len(lengths) > 1:
        raise CheckpointError(
            f"operators {', '.join(sorted(lengths))} have an object {name!r}: name one with --operator"
        )
    return lengths.total()
