"""``diff``, ``apply`` and ``revert``: what changed between two checkpoints, and how to bring it about or undo it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import ceil
from pathlib import Path

import click

from checkpoint.applying import counted_now, run_applying
from checkpoint.diff import Change, Table, differences, invert
from checkpoint.errors import CheckpointError
from checkpoint.reader import Reader
from checkpoint.store import CheckpointStore
from checkpoint.tool import printing
from checkpoint.tool.command import (
    TROUBLE,
    Address,
    Limit,
    answered,
    cli,
    complete_names,
    dry_run_option,
    json_option,
    replacing,
    require_folder,
    require_replaceable,
    takes_path,
    takes_source,
)
from checkpoint.tool.content import State, absence
from checkpoint.tool.described import Described, Describer, sign_of
from checkpoint.tool.listing import require_known, takes_short_name
from checkpoint.tool.patch import BEGINNING, changes_of, lines_of
from checkpoint.tool.preview import Preview
from checkpoint.tool.selecting import of_objects, with_versions_now
from checkpoint.tool.source import EMPTY, Source, find, find_epoch, names_checkpoint, reader_at
from checkpoint.tool.undoing import require_readable

COLOURS = {"+": "green", "-": "red", "~": "yellow"}


@dataclass(frozen=True)
class _Seen:
    """A change in the part that it belongs to."""

    title: str
    change: Change
    describer: Describer

    @property
    def described(self) -> Described:
        """The change in words."""
        return self.describer.describe(self.change)


@cli.command()
@takes_source
@click.argument("a", required=False)
@click.argument("b", required=False)
@click.argument("name", required=False, shell_complete=complete_names)
@click.option("--stat", is_flag=True, help="Only show how many slots changed, by object, as git does.")
@click.option("--patch", type=Address(dir_okay=False), help="Write a patch for `apply` to this file.")
@click.option("-n", "--limit", type=Limit(), default=0, help="How many changes to show; all by default.")
@json_option
@takes_short_name
def diff(
    source: Source,
    a: str | None,
    b: str | None,
    name: str | None,
    stat: bool,
    patch: str | None,
    limit: int,
    is_json: bool,
) -> None:
    """Show slot by slot what changed from checkpoint A to checkpoint B; from HEAD~1 to HEAD by default.

    + marks a slot that came, - one that went, ~ one that changed. Rows of tables are shown with column names; of a
    changed row, only the columns that changed. With --json the sign is the `op`. With NAME, a table includes what
    changed of its schema and its watermarks, a key-value table its catalogue entry. If only HEAD can be read, as after
    a restore, it can be compared only with 0, and A has to say so. In a space all shards are compared; after a rescale
    they start over, so what a shard had goes, and what it has comes. The time depends on what changed and on the number
    of objects, not of slots, as long as the runs between the two are there.

    The exit status is 0 if nothing changed, 1 if something did, and 2 for trouble.

    \b
    Examples:
      checkpoint diff state.db
      checkpoint diff state.db 3 7 counts
      checkpoint diff state.db @10 @20 --stat
      checkpoint diff state.db 3 7 --patch fix.jsonl
    """
    _require_checkpoint(source, a)
    points = a if a is not None else _parent(source), b
    if patch is not None:
        if source.is_location:
            raise CheckpointError(
                f"{source.path} is a space: a patch is from and for a store file, and only a pipeline writes a space"
            )
        if limit:
            raise CheckpointError("--limit with --patch would leave objects half changed: name an object instead")
        require_folder(patch)
        require_replaceable(patch, BEGINNING)
        if name is not None:
            require_known(source, name, *points)  # Before a patch that is there is replaced.
        found = 0
        for part in source.parts(*points):
            changes = differences(*part.readers)
            if name is not None:
                changes = of_objects(changes, (name,), *map(State, part.readers))
            found = _write_patch(changes, Path(patch))
        with answered(1 if found else 0):
            _say_written(found, patch, is_json)
    else:
        seen = islice(_changes(source, points, name), limit or None)
        with answered(1):
            found = _print_stat(seen, is_json) if stat else _print(seen, is_json)
    if name is not None and not found:
        require_known(source, name, *points)
    sys.exit(1 if found else 0)


def _require_checkpoint(source: Source, text: str | None) -> None:
    """Refuse the name of an object where a checkpoint is expected.

    Raises:
        CheckpointError: it is one.
    """
    if text is None or names_checkpoint(text):
        return
    for part in source.parts(None):
        if text in State(part.readers[0]):
            line = printing.command_line("diff", *source.words, "HEAD~1", "HEAD", text)
            raise CheckpointError(f"{text!r} is an object: use {line}")


def _parent(source: Source) -> str:
    """Return what the newest checkpoint is compared with: the one before it, or the empty state if it is the first.

    Raises:
        CheckpointError: the newest one is not the first, and the only one that can be read.
    """
    if source.is_location:
        newest, oldest = source.chain.epoch, source.chain.first_epoch
    else:
        with source.open() as store:
            readable = [record.number for record in store.checkpoints() if record.run_slots is not None]
        newest, oldest = max(readable, default=0), min(readable, default=0)
    if newest > 1 and newest == oldest:
        raise CheckpointError(
            f"checkpoint {newest} is the only one that can be read, as after a restore: use"
            f" {printing.command_line('diff', *source.words, EMPTY, 'HEAD')}, which shows all that it holds as new"
        )
    return "HEAD~1" if newest > 1 else EMPTY


def _changes(source: Source, points: tuple[str | None, str | None], name: str | None) -> Iterator[_Seen]:
    pairs = _each_with_none if _began_anew(source, points) else lambda before, after: iter([(before, after)])
    for part in source.parts(*points):
        for before, after in pairs(*part.readers):
            describer = Describer(State(before), State(after))
            for change in _chosen(differences(before, after), name, describer):
                yield _Seen(part.title, change, describer)


def _began_anew(source: Source, points: tuple[str | None, str | None]) -> bool:
    """Return whether a space got another number of shards between two epochs, so that its objects have other ids.

    It may have got its old number back meanwhile.
    """
    epochs = [find_epoch(source.chain, point) for point in points] if source.is_location else [0]
    if not all(epochs):
        return False  # The empty state has no object that might be taken for another one.
    return len({source.chain.shards_at(epoch) for epoch in range(min(epochs), max(epochs) + 1)}) > 1


def _each_with_none(before: Reader, after: Reader) -> Iterator[tuple[Reader, Reader]]:
    with CheckpointStore(":memory:") as nothing:
        yield before, nothing.reader()
        yield nothing.reader(), after


def _chosen(changes: Iterator[Change], name: str | None, describer: Describer) -> Iterator[Change]:
    if name is None:
        return changes
    names = describer.called((name,))
    return (change for change in changes if not names.isdisjoint(describer.names_of(change)))


def _write_patch(changes: Iterator[Change], path: Path) -> int:
    """Write a patch, and return how many changes it has."""
    count = -2  # Neither the first line nor the last one is a change.
    with replacing(path) as file:
        for line in lines_of(changes):
            file.write(line + b"\n")
            count += 1
    return count


def _say_written(count: int, path: str, is_json: bool) -> None:
    if is_json:
        click.echo(printing.as_json({"changes": count, "patch": path}))
    else:
        click.echo(f"{printing.count(count, 'change')} in {path}", err=True)


def _print(changes: Iterator[_Seen], is_json: bool) -> int:
    count, last = 0, None
    for seen in changes:
        count += 1
        one = seen.described
        if is_json:
            where = {"shard": seen.title} if seen.title else {}
            click.echo(printing.as_json({**where, "op": sign_of(seen.change), **one.fields}))
            continue
        title = f"{printing.plain(seen.title)}: {one.title}" if seen.title else one.title
        if title != last:
            click.secho(title, bold=True)
            last = title
        sign = sign_of(seen.change)
        click.secho(f"  {sign} {one.line}", fg=COLOURS[sign])
    return count


def _print_stat(changes: Iterator[_Seen], is_json: bool) -> int:
    counts: dict[str, Counter[str]] = {}
    number = 0
    for number, seen in enumerate(changes, start=1):  # noqa: B007 - the number of the last one is the count
        name, table = seen.describer.place_of(seen.change)
        if table is not Table.METADATA:
            title = f"{seen.title}: {name}" if seen.title else name
            is_item = seen.change.table is Table.ITEM
            counts.setdefault(title, Counter())[sign_of(seen.change) if is_item else "object"] += 1
    ordered = sorted(counts.items(), key=lambda item: (-sum(item[1][sign] for sign in "+-~"), item[0]))
    if is_json:
        for name, found in ordered:
            row = (name, found["+"], found["-"], found["~"])
            click.echo(printing.as_json(dict(zip(("object", "added", "removed", "changed"), row, strict=True))))
    elif ordered:
        _print_bars(ordered)
    return number


_BAR = 40


def _print_bars(counts: list[tuple[str, Counter[str]]]) -> None:
    """Print a line for each object with a bar of its signs, and the sum, as git does."""
    totals = [sum(found[sign] for sign in "+-~") for _, found in counts]
    names = printing.labels([name for name, _ in counts])
    width, digits = max(map(len, names)), len(f"{max(totals):,}")
    scale = min(1, _BAR / max(totals, default=1)) if max(totals) else 1
    for name, (_, found), total in zip(names, counts, totals, strict=True):
        lengths = {sign: ceil(found[sign] * scale) for sign in "+-~" if found[sign]}
        bar = "".join(click.style(sign * length, fg=COLOURS[sign]) for sign, length in lengths.items())
        click.echo(f" {name:{width}} | {total:>{digits},} {bar}".rstrip())
    added, removed, changed = (sum(found[sign] for _, found in counts) for sign in "+-~")
    words = [
        f"{printing.count(number, 'slot')} {what}({sign})"
        for number, what, sign in ((added, "added", "+"), (removed, "removed", "-"), (changed, "changed", "~"))
        if number
    ]
    click.echo(f" {', '.join([printing.count(len(counts), 'object') + ' changed', *words])}")


@cli.command()
@takes_path
@click.argument("patch", type=Address(dir_okay=False))
@dry_run_option
@json_option
def apply(source: Source, patch: str, dry_run: bool, is_json: bool) -> None:
    """Apply a patch of `diff --patch` as a new checkpoint, all or nothing. It writes.

    It is trouble, and nothing is written, if a slot does not hold what the patch was made from; if a dictionary or a
    set would get new slots and others have come since, so that their places in the order are taken; or if tables would
    hold rows or keys that nobody could find or read, because the schema or the catalogue entry is missing. So it is if
    the patch was cut or lost a line: its last line says how many there are, and their digest. Patches of older versions
    have no such line: with these, objects are refused that would have other slots than their lengths say.

    \b
    Examples:
      checkpoint apply state.db fix.jsonl --dry-run
      checkpoint apply state.db fix.jsonl
    """
    source.require_file()
    with Path(patch).open("rb") as file:
        changes = list(changes_of(file))
    if dry_run:
        with source.open() as store:
            _rehearse(store, changes, is_json)
    else:
        _apply(source, changes, is_json)


@cli.command()
@takes_path
@click.argument("checkpoint")
@click.option("--object", "names", multiple=True, help="Undo only what changed of this object; may be repeated.")
@dry_run_option
@json_option
@takes_short_name
def revert(source: Source, checkpoint: str, names: tuple[str, ...], dry_run: bool, is_json: bool) -> None:
    """Undo one checkpoint with a new one that is its inverse, as a whole or for some objects. It writes.

    Nothing is done if a later checkpoint has changed one of the slots again. What has come and gone elsewhere in the
    same objects does not matter, except in queues and stacks, and in tables whose schema or catalogue entry is undone
    if rows or keys have come since that could then not be read or found. With --object, no watermark goes back, nor
    does the number of the next partition; versions of a key-value table never do. Every epoch of a pipeline moves its
    position, so only the tables of an older one can be undone, by name.

    \b
    Examples:
      checkpoint revert state.db 7 --dry-run
      checkpoint revert state.db 7
      checkpoint revert state.db 7 --object counts --object orders
    """
    source.require_file("fork it at an epoch")
    with source.open() as store:
        record = find(store, checkpoint)
        if record is None:
            raise CheckpointError("0 is the state before the first checkpoint: there is nothing to undo")
        before, after = reader_at(store, str(record.parent or EMPTY)), store.reader(record.number)
        changes = list(_of_objects(invert(differences(before, after)), names, after, before))
        if dry_run:  # Still the same store: another checkpoint may be the newest by now.
            _rehearse(store, changes, is_json)
            return
    _apply(source, changes, is_json)


def _of_objects(changes: Iterator[Change], names: tuple[str, ...], before: Reader, after: Reader) -> Iterator[Change]:
    """Return the changes of some objects, or of all if none is named.

    Raises:
        CheckpointError: there is no such object; those that may be meant are named.
    """
    if not names:
        return changes
    states = State(before), State(after)
    for name in names:
        if not any(name in state for state in states):
            raise absence(name, states[0].names() | states[1].names())
    return of_objects(changes, names, *states)


def _rehearse(store: CheckpointStore, changes: list[Change], is_json: bool) -> None:
    """Say what changes would do to a store."""
    _require_any(changes)
    now = store.reader()
    changes = list(with_versions_now(changes, now))
    run = run_applying(changes, now)  # refuses what does not fit
    require_readable(store, run)
    # A length that others have changed since may stay as it is.
    made = [one for one in counted_now(changes, now) if (one.old, one.old_rank) != (one.new, one.new_rank)]
    if not is_json:
        describer = Describer(State(now), State(Preview(store.session, now, run)))
        _print((_Seen("", change, describer) for change in made), is_json=False)
    text = f"{printing.count(len(made), 'change')} would be made"
    click.echo(printing.as_json({"changes": len(made), "dry_run": True}) if is_json else text, err=not is_json)


def _require_any(changes: list[Change]) -> None:
    if not changes:
        click.echo("error: there are no changes: nothing was written", err=True)
        sys.exit(TROUBLE)


def _apply(source: Source, changes: list[Change], is_json: bool) -> None:
    _require_any(changes)
    with source.open_to_write() as store:
        now = store.reader()
        run = run_applying(with_versions_now(changes, now), now)
        require_readable(store, run)
        receipt = store.append(run)
    fields = {"number": receipt.number, "epoch": receipt.epoch, "slots": receipt.slots, "bytes": receipt.bytes}
    text = f"checkpoint {receipt.number}, epoch {receipt.epoch}: "
    text += f"{printing.count(receipt.slots, 'slot')}, {printing.count(receipt.bytes, 'byte')}"
    printing.emit(is_json, fields, text)
