"""``verify``, ``compact``, ``prune``, ``gc`` and ``repair``: keeping state sound and small."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from checkpoint.errors import CheckpointError, CorruptStoreError
from checkpoint.failures import explained
from checkpoint.store import CheckpointStore
from checkpoint.tool import printing
from checkpoint.tool.command import (
    MOST,
    NumberRange,
    answered,
    cli,
    dry_run_option,
    json_option,
    takes_path,
    takes_source,
)
from checkpoint.tool.content import State
from checkpoint.tool.source import Source, query
from checkpoint.tool.undoing import misfits

if TYPE_CHECKING:
    from checkpoint.chain import AcceptedRun, Chain

_COLLECT = "its images are made by the pipeline, and `checkpoint gc` removes what no epoch needs"
"""What is done with a space instead of merging the runs of a store."""


@cli.command()
@takes_source
@json_option
def verify(source: Source, is_json: bool) -> None:
    """Prove that what is stored is what was written, and say what was checked.

    In a store it checks every run against its digest, merged runs against what they were made from, that no row lies
    outside a run, that lengths agree with the slots of every object, that columns hold the watermarks of their tables,
    and the structure of the file. In a space it checks every manifest, every run file that a readable epoch needs, the
    newest state of every shard, and every image that was made alongside the epochs against the runs that it replaces,
    if these are still there.

    The exit status is 2 if damage was found.

    \b
    Examples:
      checkpoint verify state.db
      checkpoint verify s3://bucket/state --json
    """
    if source.is_location:
        _verify_space(source, is_json)
        return
    with source.open() as store:
        with printing.progress("rows") as show:
            readable = store.verify(show)
        _require_held(State(store.reader()), source.path)
        found = _amount(store)
    text = (
        f"{source.path}: {printing.count(readable, 'run')}, all match their digests;"
        f" {printing.count(found['merged_runs'], 'merged one')}, matching what they merged\n"
        f"{printing.count(found['rows'], 'row')}, none outside a run;"
        f" {printing.count(found['objects'], 'object')}, lengths matching their slots\n"
        f"{printing.size(found['bytes'])}: the structure of the file is sound"
    )
    printing.emit(is_json, {"runs": readable, **found, "sound": True}, text)


def _require_held(state: State, path: str) -> None:
    """Refuse a state with a watermark that its column does not hold."""
    for name, why in misfits(state).values():
        raise CorruptStoreError(
            f"{path}: table {name!r} has {why}, which does not hold it: undo what made the column narrower, or what"
            " moved the watermark, as a whole"
        )


def _amount(store: CheckpointStore) -> dict[str, int]:
    rows = sum(next(query(store, f"SELECT count(*) FROM {table}"))[0] for table in _TABLES)
    merged = sum(row[0] for row in query(store, "SELECT count(*) FROM sqlite_schema WHERE name = 'run'"))
    if merged:
        merged = next(query(store, "SELECT count(*) FROM run WHERE state = 'merged'"))[0]
    objects = len(store.reader().index())
    return {"merged_runs": merged, "rows": rows, "objects": objects, "bytes": Path(store.path).stat().st_size}


_TABLES = ("state_index", "state_metadata", "state_item")


def _verify_space(source: Source, is_json: bool) -> None:
    from checkpoint.chain.division import with_parts
    from checkpoint.tool.replaced import images_with_runs, require_same

    chain = source.chain
    if lost := chain.unlisted():
        raise lost
    shards, manifests = source.shards(), list(chain.manifests())
    needed = {
        run.file: run
        for manifest in manifests[:1]
        for operator, shard in source.shards([manifest.epoch])
        for run in chain.lineage(operator, shard, manifest.epoch)
    }
    known = {*source.shards(manifest.epoch for manifest in manifests)}
    needed |= {run.file: run for m in manifests for run in m.files if (run.operator, run.shard) in known}
    needed = {run.file: run for run in with_parts(chain.location, needed.values())}
    for run in printing.each("run files", needed.values(), len(needed)):
        _verify_file(chain, run)
    for part in printing.each("shards", source.parts(None), len(shards)):
        part.store.verify()
    images = [one for one in images_with_runs(chain) if one[0].file in needed]
    for image, runs in printing.each("images", images, len(images)):
        require_same(chain, image, runs)
    size = sum(run.file_bytes for run in needed.values())
    text = (
        f"{source.path}: {printing.count(len(shards), 'shard')} at epoch {chain.epoch}, all match their manifests:"
        f" {printing.count(len(manifests), 'manifest')}, {printing.count(len(needed), 'run file')},"
        f" {printing.size(size)};"
        f" {printing.count(len(images), 'image')}, same as the runs they replace"
    )
    counts = {"shards": len(shards), "manifests": len(manifests), "run_files": len(needed), "images": len(images)}
    counts["bytes"] = size
    printing.emit(is_json, {"epoch": chain.epoch, **counts, "sound": True}, text)


def _verify_file(chain: Chain, run: AcceptedRun) -> None:
    """Compare the rows of a run file with its digest; a division, which has none, was read to find its parts."""
    from checkpoint.chain import read_run

    if not run.is_division:
        found = read_run(chain.location, run)
        if (found.digest(), found.slots) != (run.digest, run.slots):
            raise CheckpointError(f"{run.file} does not have the digest {run.digest} that epoch {run.epoch} names")


@cli.command()
@takes_path
@dry_run_option
@json_option
def compact(source: Source, dry_run: bool, is_json: bool) -> None:
    """Merge all runs into one and give the space back to the file system. It writes.

    Only the newest checkpoint can be read afterwards. What it wrote stays beside the run that holds all.

    \b
    Examples:
      checkpoint compact state.db --dry-run
      checkpoint compact state.db
    """
    source.require_file(_COLLECT)
    if dry_run:
        _rehearse(source, lambda store: store.compact(), is_json)
        return
    before = _usage(source.path)
    with source.open_to_write() as store, printing.progress("merging") as show:
        store.compact(show)
    _print_usage(before, _usage(source.path), is_json, "")


@cli.command()
@takes_path
@click.option("--keep", type=click.IntRange(1, MOST), help="How many of the newest checkpoints to keep at least.")
@click.option("--older-than", type=NumberRange(0, 1e6), help="Keep all that are younger than this many days.")
@dry_run_option
@json_option
def prune(source: Source, keep: int | None, older_than: float | None, dry_run: bool, is_json: bool) -> None:
    """Drop old checkpoints; the state stays as it is. It writes.

    Without options, what the settings of the store keep stays. A dry run prunes a copy in the temporary folder, so its
    figures are those of the work itself.

    \b
    Examples:
      checkpoint prune state.db --keep 100 --dry-run
      checkpoint prune state.db --older-than 30
    """
    source.require_file(_COLLECT)
    age = None if older_than is None else timedelta(days=older_than)
    if dry_run:
        _rehearse(source, lambda store: store.prune(keep, age), is_json)
        return
    before = _usage(source.path)
    with source.open_to_write() as store, printing.progress("merging") as show:
        store.prune(keep, age, show)
    _print_usage(before, _usage(source.path), is_json, "")


def _usage(path: str) -> dict[str, int]:
    """Return how many checkpoints of a store can be read, its live runs and its bytes, including the log."""
    with CheckpointStore(path, read_only=True) as store:
        readable = sum(record.run_slots is not None for record in store.checkpoints())
        runs = len(store.reader().runs)
    log = Path(f"{path}-wal")
    return {
        "checkpoints": readable,
        "runs": runs,
        "bytes": Path(path).stat().st_size + (log.stat().st_size if log.exists() else 0),
    }


def _rehearse(source: Source, work: Any, is_json: bool) -> None:
    """Do the work on a copy, and say what it would do."""
    with _copy_of(source) as path:
        before = _usage(path)
        with CheckpointStore(path) as store:
            work(store)
        _print_usage(before, _usage(path), is_json, "would go from ")


def _print_usage(before: dict[str, int], after: dict[str, int], is_json: bool, would: str) -> None:
    fields = {**{f"{key}_before": value for key, value in before.items()}, **after, "dry_run": bool(would)}
    gone = before["checkpoints"] - after["checkpoints"]
    verb = "would not be readable" if would else "cannot be read"
    text = (
        f"{printing.count(gone, 'checkpoint')} {verb} any more, {after['checkpoints']:,} stay;"
        f" runs {would}{before['runs']:,} to {after['runs']:,}; bytes {would}{before['bytes']:,} to {after['bytes']:,}"
    )
    printing.emit(is_json, fields, text)


@cli.command()
@takes_path
@click.option(
    "--keep-epochs",
    type=click.IntRange(1, MOST),
    default=16,
    show_default=True,
    help="How many of the newest epochs to keep.",
)
@click.option(
    "--grace",
    type=NumberRange(0),
    default=86_400,
    show_default=True,
    help="Spare files that were less than this many seconds old when the newest one of the space was written: more than"
    " any epoch takes. An image that waits to be named stays as long as the next epoch can name it.",
)
@dry_run_option
@json_option
def gc(source: Source, keep_epochs: int, grace: float, dry_run: bool, is_json: bool) -> None:
    """Delete the files of a space that no kept manifest names. It writes.

    \b
    Examples:
      checkpoint gc s3://bucket/state --keep-epochs 100 --dry-run
      checkpoint gc s3://bucket/state --keep-epochs 100
    """
    if not source.is_location:
        with source.open():
            pass  # refuses what is not a store
        raise CheckpointError(
            f"{source.path} is a store file, which has no files to collect: see `prune` and `compact`"
        )
    if source.operator is not None or source.shard is not None:
        raise CheckpointError("garbage is collected over all shards: leave out --operator and --shard")
    from checkpoint.chain import Chain, location_at
    from checkpoint.tool.rehearsal import Rehearsal  # on demand: it imports pyarrow

    with printing.progress("files") as show:
        # Not the location of source.chain, for which an error would mean that somebody has collected what it reads.
        watched = Rehearsal(location_at(source.path), show, is_dry=dry_run)
        chain = Chain.open(watched)
        found, lost = chain.collect(grace, keep_epochs), chain.unlisted()
    if lost:
        click.echo(printing.plain(str(lost)), err=True)
    files = found.runs + found.manifests + found.leftovers
    text = (
        f"{printing.count(files, 'file')} {'would go' if dry_run else 'gone'}: {printing.count(found.runs, 'run')},"
        f" {printing.count(found.manifests, 'manifest')}, {printing.count(found.leftovers, 'leftover')};"
        f" the oldest epoch that can be read {'would be' if dry_run else 'is'} {found.first_epoch}"
    )
    printing.emit(is_json, {**asdict(found), "dry_run": dry_run}, text)


@cli.command()
@takes_path
@click.option(
    "--salvage",
    is_flag=True,
    help="If the newest checkpoint cannot be proved, keep what can be read of it instead of going back.",
)
@dry_run_option
@json_option
def repair(source: Source, salvage: bool, dry_run: bool, is_json: bool) -> None:
    """Drop what is damaged, so that the newest checkpoint that can be proved becomes the newest one. It writes.

    A merged run is made again from the runs beside it. The exit status is 1 if damage was found, and 2 if nothing can
    be proved: then nothing is changed. A dry run repairs a copy in the temporary folder.

    A digest covers a whole run, so nobody can tell which of its rows was changed. With --salvage the newest state, as
    it reads, becomes a new full checkpoint all the same. Objects that cannot be read whole are left out, and those that
    nothing proves are named.

    If the structure of the file itself is damaged, which `verify` reports in SQLite's words, neither goes on. A fork at
    a checkpoint before the damage is then sound, and `export` reads the objects whose rows SQLite still finds.

    \b
    Examples:
      checkpoint repair state.db --dry-run
      checkpoint repair state.db
      checkpoint repair state.db --salvage --dry-run
    """
    source.require_file("`checkpoint verify` names what is damaged in it; fork it at an epoch that is sound")
    place = _copy_of(source) if dry_run else nullcontext(source.path)
    with place as path, printing.progress("rows") as show, Source(path).open_to_write() as store:
        found = store.repair(show, salvage=salvage)
    damage = tuple(line.replace(path, os.path.abspath(source.path)) for line in found.damage)
    status = 1 if damage else 0
    with answered(status):
        if is_json:
            click.echo(printing.as_json({**asdict(found), "damage": damage, "dry_run": dry_run}))
        else:
            for line in damage:
                click.echo(f"damaged: {printing.plain(line)}")
            for what, objects in (("left out", found.objects_lost), ("kept unproved", found.unproved)):
                for line in objects:
                    click.echo(f"{what}: {printing.plain(line)}")
            lost = ", ".join(map(str, found.lost)) or "none"
            would = ("would be lost", "would be") if dry_run else ("lost", "is")
            click.echo(f"{len(damage):,} damaged; checkpoints {would[0]}: {lost}; the newest {would[1]} {found.newest}")
    sys.exit(status)


@contextmanager
def _copy_of(source: Source) -> Iterator[str]:
    """Yield the path of a copy in the temporary folder; an error names the store instead, as the work itself does.

    The copy is gone by the time an error is read.
    """
    with TemporaryDirectory() as folder:
        path = copied(source, Path(folder) / "copy.db")
        try:
            yield path
        except CheckpointError as error:
            raise type(error)(str(error).replace(path, os.path.abspath(source.path))) from error


def copied(source: Source, path: Path) -> str:
    """Copy a store file with its log, as it is, and return the path of the copy.

    Raises:
        CheckpointError: the copy cannot be written, or the store cannot be read.
    """
    with source.open() as store:
        try:
            with closing(sqlite3.connect(path)) as new:
                store.session.connection.backup(new)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) not in _NOT_WRITTEN:
                raise explained(os.path.abspath(source.path), error) from error
            raise CheckpointError(
                f"{source.path} cannot be copied into the temporary folder {path.parent.parent}: free some room there,"
                f" or set TMPDIR to a folder that has as much as the store takes (SQLite says: {error})"
            ) from error
    return str(path)


_NOT_WRITTEN = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC)
