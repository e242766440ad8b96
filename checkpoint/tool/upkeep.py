"""``verify``, ``restore``, ``fork``, ``compact``, ``prune``, ``gc`` and ``doctor``: keeping state sound."""

from __future__ import annotations

import os
import sqlite3
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from checkpoint.errors import CheckpointError, StoreLockedError
from checkpoint.reader import Reader
from checkpoint.run import Run, reachable
from checkpoint.store import CheckpointStore
from checkpoint.tool import printing
from checkpoint.tool.command import TROUBLE, cli, json_option, takes_source
from checkpoint.tool.content import State
from checkpoint.tool.source import Source, reader_at

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
    if Path(target).exists():
        raise CheckpointError(f"{target} exists already: give the path of a new file")
    with source.open() as store:
        reader = reader_at(store, checkpoint)
        run = _image(reader, names)
        with CheckpointStore(target) as new:
            receipt = new.append(run)
    click.echo(f"{target}: {len(run.index):,} objects, {receipt.slots:,} slots, {receipt.bytes:,} bytes")


def _image(reader: Reader, names: tuple[str, ...]) -> Run:
    """Return the complete image of a state, of some objects where they are named."""
    image = reader.image()
    if not names:
        return image
    state = State(reader)
    index = [state.find(name) for name in names]
    ids = reachable(index, lambda object_id: (item.value for item in reader.items(object_id)))
    image.index = [row for row in image.index if row[0] in ids]
    image.metadata = [row for row in image.metadata if row[0] in ids]
    image.items = [row for row in image.items if row[0] in ids]
    return image


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
        number = reader_at(store, checkpoint).newest
        epoch = next((record.epoch for record in store.checkpoints() if record.number == number), None)
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
    try:
        with source.open_to_write():
            return "none"
    except StoreLockedError as error:
        return str(error)
