"""``restore`` and ``fork``: a state, or a state with its history, into a new place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from checkpoint.address import local_path
from checkpoint.errors import CheckpointError
from checkpoint.store import CheckpointStore
from checkpoint.tool import printing
from checkpoint.tool.command import Address, cli, json_option, takes_path, takes_source
from checkpoint.tool.content import State
from checkpoint.tool.listing import takes_short_name
from checkpoint.tool.selecting import require_found, selection
from checkpoint.tool.source import Source, find, find_epoch


def takes_copy(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command take what to copy, where to, as of which checkpoint, and which objects."""
    named = "Only this object or table; may be given more than once."
    for decorate in (
        takes_short_name,
        json_option,
        click.option("--object", "names", multiple=True, help=named),
        click.argument("checkpoint", required=False),
        click.argument("target", type=Address()),
    ):
        command = decorate(command)
    return command


@cli.command()
@takes_source
@takes_copy
def restore(source: Source, target: str, checkpoint: str | None, names: tuple[str, ...], is_json: bool) -> None:
    """Write the state at a checkpoint, or some objects of it, to a new place.

    TARGET is a new store file. For a space it is a new location, with only this epoch; with --shard (and --operator, if
    there are several) one shard becomes a store file. A table keeps its schema and its watermarks, a key-value table
    its catalogue entry. A pipeline can continue from a space that is restored whole, but not from only some of its
    objects or operators.

    \b
    Examples:
      checkpoint restore state.db monday.db @120
      checkpoint restore state.db counts.db --object counts
      checkpoint restore s3://bucket/state monday/ @120
      checkpoint restore s3://bucket/state shard0.db --shard 0
    """
    if source.is_location and source.shard is None:
        _restore_space(source, target, checkpoint, names, is_json)
        return
    _require_new(target)
    if source.is_location:
        epoch, objects = _restore_shard(source, target, checkpoint, names)
    else:
        epoch, objects = _restore_store(source, target, checkpoint, names)
    size = Path(target).stat().st_size
    text = f"{target}: {printing.count(objects, 'object')} as of epoch {epoch}, {printing.size(size)}"
    printing.emit(is_json, {"target": target, "epoch": epoch, "objects": objects, "bytes": size}, text)


def _require_new(target: str) -> None:
    if local_path(target) is None:
        raise CheckpointError(f"{target} is a URL: a store is a file; give a path")
    if not target:
        raise CheckpointError("the path of the new store is empty: name a new file")
    if Path(target).exists():
        raise CheckpointError(f"{target} exists: name a new file")


def _restore_store(source: Source, target: str, checkpoint: str | None, names: tuple[str, ...]) -> tuple[int, int]:
    with source.open() as store, printing.progress("copying") as show:
        epoch = epoch_of(store, checkpoint)
        state = State(store.reader(epoch=epoch))
        require_found(names, {name for name in names if name in state}, state.names())
        return epoch, _restore_from(store, target, epoch, names, show)


def _restore_shard(source: Source, target: str, checkpoint: str | None, names: tuple[str, ...]) -> tuple[int, int]:
    epoch = find_epoch(source.chain, checkpoint)
    if len(shards := source.shards([epoch])) != 1:
        what = "has several operators: name one with --operator" if shards else "has no epoch yet"
        raise CheckpointError(f"{source.path} {what}")
    for part in source.parts(checkpoint):
        state = State(part.readers[0])
        require_found(names, {name for name in names if name in state}, state.names())
        if part.readers[0].newest == 0:
            raise CheckpointError(f"{part.operator}/{part.shard} holds nothing at epoch {epoch}: choose a later one")
        origin = f"{source.path} ({part.operator}/{part.shard})"
        with printing.progress("copying") as show:
            objects = _restore_from(part.store, target, part.store.checkpoints()[-1].epoch, names, show, origin)
    return epoch, objects


def _restore_from(
    store: CheckpointStore,
    target: str,
    epoch: int,
    names: tuple[str, ...],
    show: printing.Show,
    origin: str | None = None,
) -> int:
    """Write the state at an epoch into a new store, which appears whole or not at all; return how many objects it has.

    What the state no longer holds, or is not to hold, is in no file that bears the name of the new store.
    """
    objects = 0

    def _finish(staged: Path) -> None:
        nonlocal objects
        objects = _reduce(staged, target, names, show)

    store.fork(target, epoch, show, origin, _finish)
    return objects


def _reduce(staged: Path, target: str, names: tuple[str, ...], show: printing.Show | None) -> int:
    """Leave only some objects in a copy that does not have its own name yet, and return how many there are.

    Args:
        staged: where it lies.
        target: the name that it is to have.
        names: the objects, all if none is named.
        show: called with how far the history is merged; None to keep it.
    """
    try:
        with CheckpointStore(staged) as new:
            others, _ = selection(State(new.reader()), names)
            if not others.is_empty():
                new.append(others)
            if show is not None:
                new.compact(show)
            return len(new.reader().index())
    except CheckpointError as error:
        raise type(error)(str(error).replace(os.path.abspath(staged), target)) from error


def epoch_of(store: CheckpointStore, checkpoint: str | None) -> int:
    """Return the epoch of a checkpoint.

    Raises:
        CheckpointError: there is no such checkpoint, or it is the empty state before the first.
    """
    record = find(store, checkpoint)
    if record is None:
        raise CheckpointError("the state before the first checkpoint is empty: name a checkpoint; see `checkpoint log`")
    return record.epoch


def _restore_space(source: Source, target: str, checkpoint: str | None, names: tuple[str, ...], is_json: bool) -> None:
    from checkpoint.tool.copying import restore_space

    epoch = _space_epoch(source, checkpoint)
    with printing.progress("shards") as show:
        done = restore_space(source.chain, target, epoch, source.shards([epoch]), names, show)
    text = (
        f"{target}: {printing.count(done.objects, 'object')} in {printing.count(done.files, 'shard')} as of epoch"
        f" {epoch}, {printing.size(done.bytes)}"
    )
    fields = {"target": target, "epoch": epoch, "objects": done.objects, "shards": done.files, "bytes": done.bytes}
    printing.emit(is_json, fields, text)


def _space_epoch(source: Source, checkpoint: str | None) -> int:
    epoch = find_epoch(source.chain, checkpoint)
    if not epoch:
        raise CheckpointError("the state before the first epoch is empty: name an epoch; see `checkpoint log`")
    return epoch


@cli.command()
@takes_path
@takes_copy
def fork(source: Source, target: str, checkpoint: str | None, names: tuple[str, ...], is_json: bool) -> None:
    """Write an independent copy as of a checkpoint, with the history before it.

    TARGET is a new store file, or for a space a new location: all shards are copied, and a pipeline can continue there.
    With --object one more checkpoint deletes the other objects; those before it stay as they were. Such a space can be
    read, but no pipeline continues there.

    \b
    Examples:
      checkpoint fork state.db what-if.db HEAD~3
      checkpoint fork state.db counts.db --object counts
      checkpoint fork s3://bucket/state s3://bucket/what-if @120
    """
    if source.is_location:
        _fork_space(source, target, checkpoint, names, is_json)
        return
    _require_new(target)
    with source.open() as store, printing.progress("copying") as show:
        epoch = epoch_of(store, checkpoint)
        state = State(store.reader(epoch=epoch))
        require_found(names, {name for name in names if name in state}, state.names())
        _fork_store(store, target, epoch, names, show)
    size = Path(target).stat().st_size
    text = f"{target}: a fork of {source.path} at epoch {epoch}, {printing.size(size)}"
    printing.emit(is_json, {"target": target, "epoch": epoch, "bytes": size}, text)


def _fork_store(store: CheckpointStore, target: str, epoch: int, names: tuple[str, ...], show: printing.Show) -> None:
    def _finish(staged: Path) -> None:
        if names:
            _reduce(staged, target, names, None)

    store.fork(target, epoch, show, finish=_finish)


def _fork_space(source: Source, target: str, checkpoint: str | None, names: tuple[str, ...], is_json: bool) -> None:
    from checkpoint.tool.copying import fork_space

    if source.operator is not None or source.shard is not None:
        raise CheckpointError("a fork of a space has all its shards: leave out --operator and --shard, or use restore")
    epoch = _space_epoch(source, checkpoint)
    with printing.progress("run files") as show:
        done = fork_space(source.chain, target, epoch, names, show)
    text = (
        f"{target}: a fork of {source.path} at epoch {epoch}: {printing.count(done.epochs, 'epoch')},"
        f" {printing.count(done.files, 'run file')}, {printing.size(done.bytes)}"
    )
    fields = {"target": target, "epoch": epoch, "epochs": done.epochs, "files": done.files, "bytes": done.bytes}
    printing.emit(is_json, fields, text)
