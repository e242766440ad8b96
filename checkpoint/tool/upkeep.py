"""``verify``, ``restore``, ``fork``, ``compact``, ``prune``, ``gc``, ``repair`` and ``doctor``: keeping state sound."""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from checkpoint.errors import CheckpointError, StoreLockedError
from checkpoint.lock import WriterLock
from checkpoint.run import CheckpointKind, IndexRow, Run
from checkpoint.store import CheckpointStore
from checkpoint.tool import printing
from checkpoint.tool.command import TROUBLE, cli, json_option, takes_source
from checkpoint.tool.content import TABLES, State
from checkpoint.tool.source import Source, find

FIXED = (3, 51, 3)
"""The first SQLite in which two connections that write and checkpoint at once cannot damage a log."""

dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would be done.")


@cli.command()
@takes_source
def verify(source: Source) -> None:
    """Check every run against its digest, that no row lies outside of one, and the structure of the file.

    Of a space every shard of every operator is checked. The exit status is 2 where damage was found.

    \b
    checkpoint verify state.db
    """
    if not source.is_location:
        with source.open() as store:
            runs = store.verify()
            click.echo(f"{source.path}: {runs:,} runs, all as their digests say; no stray rows; the file is sound")
        return
    chain = source.chain()
    newest = chain.newest
    operators = sorted({run.operator for run in newest.runs}) if newest is not None else []
    total = len(operators) * chain.shards
    with printing.progress("verifying") as show:
        for place in range(total):
            operator, shard = operators[place // chain.shards], place % chain.shards
            with Source(source.path, operator, shard).open() as store:
                store.verify()
            show(place + 1, total)
    click.echo(f"{source.path}: {total:,} shards at epoch {chain.epoch}, all as their manifests say")


@cli.command()
@takes_source
@click.argument("target", type=click.Path(dir_okay=False))
@click.argument("checkpoint", required=False)
@click.option("--object", "names", multiple=True, help="Only this object; may be given more than once.")
def restore(source: Source, target: str, checkpoint: str | None, names: tuple[str, ...]) -> None:
    """Write the state at a checkpoint into a new store file, whole or some objects of it.

    \b
    checkpoint restore state.db monday.db @120
    checkpoint restore s3://bucket/state shard0.db --shard 0
    checkpoint restore state.db counts.db --object counts
    """
    with source.open() as store:
        epoch = _epoch(store, checkpoint)
        others = _others(State(store.reader(epoch=epoch)), names)
        store.fork(target, epoch)
    with CheckpointStore(target) as new, printing.progress("merging") as show:
        if others.index:
            new.append(others)
        new.compact(show)
        objects = len(new.reader().index())
    click.echo(f"{target}: {objects:,} objects as of epoch {epoch}, {Path(target).stat().st_size:,} bytes")


def _epoch(store: CheckpointStore, checkpoint: str | None) -> int:
    record = find(store, checkpoint)
    if record is None:
        raise CheckpointError("the state before the first checkpoint is empty: name a checkpoint; see `checkpoint log`")
    return record.epoch


def _others(state: State, names: tuple[str, ...]) -> Run:
    """Return a run that deletes the objects that are not named, none where no name is given.

    It is merged with what it deletes, so that nothing is loaded, however large the state. With a relational table the
    schemas stay.
    """
    wanted = {state.find(name)[0] for name in names}
    if state.tables().keys() & set(names):
        wanted.add(state.find(TABLES)[0])
    rows: list[IndexRow] = [
        (row[0], row[1], None, None) for row in state.index.values() if names and row[0] not in wanted
    ]
    return Run(CheckpointKind.DIFFERENTIAL, rows, [], [])


@cli.command()
@takes_source
@click.argument("target", type=click.Path(dir_okay=False))
@click.argument("checkpoint", required=False)
def fork(source: Source, target: str, checkpoint: str | None) -> None:
    """Write an independent store file as of a checkpoint, with the history before it.

    \b
    checkpoint fork state.db what-if.db HEAD~3
    """
    with source.open() as store:
        epoch = _epoch(store, checkpoint)
        store.fork(target, epoch)
    click.echo(f"{target}: a fork of {source.path} at epoch {epoch}")


@cli.command()
@takes_source
@dry_run_option
def compact(source: Source, dry_run: bool) -> None:
    """Merge all runs into one and give the space back to the file system. It writes.

    \b
    checkpoint compact state.db
    """
    before = Path(source.path).stat().st_size if not source.is_location else 0
    if dry_run:
        with source.open() as store:
            click.echo(f"{len(store.reader().runs)} runs would become one; the file has {before:,} bytes")
        return
    with source.open_to_write() as store, printing.progress("merging") as show:
        store.compact(show)
    click.echo(f"{before:,} bytes before, {Path(source.path).stat().st_size:,} after")


@cli.command()
@takes_source
@click.option("--keep", type=int, help="How many of the newest checkpoints to keep at least.")
@click.option("--older-than", type=float, help="Keep all that are younger than so many days.")
@dry_run_option
def prune(source: Source, keep: int | None, older_than: float | None, dry_run: bool) -> None:
    """Let go of old checkpoints; the state stays as it is. It writes.

    \b
    checkpoint prune state.db --keep 100
    checkpoint prune state.db --older-than 30
    """
    age = None if older_than is None else timedelta(days=older_than)
    if dry_run:
        with source.open() as store:
            records = store.checkpoints()
            beyond = len(records) if keep is None and age is None else max(0, len(records) - (keep or 0))
            click.echo(f"of {len(records):,} checkpoints at most {beyond:,} would go")
        return
    with source.open_to_write() as store:
        click.echo(f"{store.prune(keep, age):,} checkpoints cannot be read any more")


@cli.command()
@takes_source
@click.option("--keep-epochs", type=int, default=16, show_default=True, help="How many of the newest epochs to keep.")
@click.option(
    "--grace", type=float, default=86_400, show_default=True, help="Spare files younger than so many seconds."
)
def gc(source: Source, keep_epochs: int, grace: float) -> None:
    """Delete the files of a space that no kept manifest names. It writes.

    \b
    checkpoint gc s3://bucket/state --keep-epochs 100
    """
    if not source.is_location:
        raise CheckpointError(
            f"{source.path} is a store file, which has no files to collect: see `prune` and `compact`"
        )
    click.echo(str(source.chain().collect(grace, keep_epochs)))


@cli.command()
@takes_source
@dry_run_option
@json_option
def repair(source: Source, dry_run: bool, is_json: bool) -> None:
    """Let go of what is damaged, so that the newest checkpoint that can be proved is the newest one. It writes.

    A merged run is made again from the runs beside it. The exit status is 1 where damage was found, and 2 where nothing
    can be proved: then nothing is changed. A dry run repairs a copy in the temporary folder.

    \b
    checkpoint repair state.db --dry-run
    checkpoint repair state.db
    """
    with TemporaryDirectory() as folder:
        worked_on = Source(_copied(source, Path(folder) / "copy.db")) if dry_run else source
        with worked_on.open_to_write() as store:
            found = store.repair()
    if is_json:
        click.echo(printing.as_json(asdict(found)))
    else:
        for line in found.damage:
            click.echo(f"damaged: {line}")
        lost = ", ".join(map(str, found.lost)) or "none"
        click.echo(f"{len(found.damage):,} damaged; checkpoints lost: {lost}; the newest is {found.newest}")
    sys.exit(1 if found.damage else 0)


def _copied(source: Source, path: Path) -> str:
    """Copy a store file with its log, as it is, and return the path of the copy."""
    with source.open():
        pass  # refuses what is no store
    if source.is_location:
        raise CheckpointError(f"{source.path} is a space of shards: repair works on a store file")
    uri = f"{Path(source.path).resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as old, closing(sqlite3.connect(path)) as new:
        old.backup(new)
    return str(path)


@cli.command()
@takes_source
@json_option
def doctor(source: Source, is_json: bool) -> None:
    """Say what is worth knowing of a store and of this machine: versions, settings, locks, leftovers, advice.

    \b
    checkpoint doctor state.db
    """
    found = _facts(source)
    if is_json:
        click.echo(printing.as_json(found))
    else:
        for key, value in found.items():
            for line in value if isinstance(value, list) else [value]:
                click.echo(f"{key}: {line}")
    sys.exit(TROUBLE if found["advice"] else 0)


def _facts(source: Source) -> dict[str, Any]:
    from importlib.metadata import version

    advice: list[str] = []
    facts: dict[str, Any] = {"objectspace": version("objectspace"), "python": sys.version.split()[0]}
    facts["sqlite"] = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < FIXED:
        facts["sqlite note"] = (
            "before 3.51.3: safe here, as one connection does all writing and checkpointing of the log"
        )
    with source.open() as store:
        records, reader = store.checkpoints(), store.reader()
        facts |= {"checkpoints": len(records), "live runs": len(reader.runs), "objects": len(reader.index())}
    if not source.is_location:
        facts["bytes"] = os.path.getsize(source.path)
        log = Path(f"{source.path}-wal")
        facts["log bytes"] = log.stat().st_size if log.exists() else 0
        facts["writer"] = _writer(source)
        if facts["log bytes"] > facts["bytes"]:
            advice.append("the write-ahead log is larger than the file: a reader holds an old snapshot; close it")
    if len(reader.runs) > 64:
        advice.append(f"{len(reader.runs)} live runs make reads slow: run `checkpoint compact {source.path}`")
    facts["advice"] = advice
    return facts


def _writer(source: Source) -> str:
    """Say who writes to a store; the file itself is not opened for that."""
    path = Path(source.path)
    if not path.resolve().with_name(path.resolve().name + ".lock").exists():
        return "none"
    try:
        WriterLock(path).release()
    except StoreLockedError as error:
        return str(error)
    except CheckpointError as error:
        return f"unknown: {error}"
    return "none"
