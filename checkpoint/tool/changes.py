"""``diff``, ``apply`` and ``revert``: what changed between two checkpoints, and how to bring it about or undo it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click

from checkpoint.diff import Change, IndexEntry, Table, invert
from checkpoint.errors import CheckpointError
from checkpoint.store import CheckpointStore
from checkpoint.tool import printing
from checkpoint.tool.command import TROUBLE, cli, json_option, takes_source
from checkpoint.tool.content import key_and_value, key_of, loaded
from checkpoint.tool.patch import changes_of, lines_of
from checkpoint.tool.source import Source, find, reader_at

COLOURS = {"+": "green", "-": "red", "~": "yellow"}


@cli.command()
@takes_source
@click.argument("a", required=False)
@click.argument("b", required=False)
@click.argument("name", required=False)
@click.option("--stat", is_flag=True, help="Only how many slots changed, by object.")
@click.option("--patch", type=click.Path(dir_okay=False), help="Write a patch for `apply` to this file.")
@click.option("-n", "--limit", type=int, default=0, help="How many changes; all by default.")
@json_option
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

    The exit status is 0 where nothing changed, 1 where something did, and 2 for trouble.

    \b
    checkpoint diff state.db
    checkpoint diff state.db 3 7 counts
    checkpoint diff state.db @10 @20 --stat
    checkpoint diff state.db 3 7 --patch fix.jsonl
    """
    with source.open() as store:
        before = reader_at(store, a if a is not None else _parent(store))
        changes = store.diff(before, reader_at(store, b))
        if name is not None:
            changes = (change for change in changes if name in (change.name, _old_name(change)))
        if limit:
            changes = islice(changes, limit)
        if patch is not None:
            found = _write_patch(changes, Path(patch))
        elif stat:
            found = _print_stat(changes, is_json)
        else:
            found = _print(changes, is_json)
    sys.exit(1 if found else 0)


def _parent(store: CheckpointStore) -> str:
    return "HEAD~1" if len(store.checkpoints()) > 1 else "0"


def _old_name(change: Change) -> str | None:
    return change.old.name if isinstance(change.old, IndexEntry) else None


def _write_patch(changes: Iterator[Change], path: Path) -> int:
    count = -1
    with path.open("wb") as file:
        for line in lines_of(changes):
            file.write(line + b"\n")
            count += 1
    click.echo(f"{count:,} changes in {path}", err=True)
    return count


def _print(changes: Iterator[Change], is_json: bool) -> int:
    count, last = 0, None
    for change in changes:
        count += 1
        if is_json:
            click.echo(printing.as_json(_fields(change)))
            continue
        title = f"{change.name or f'#{change.object}'} ({change.kind})"
        if title != last:
            click.secho(title, bold=True)
            last = title
        sign, text = _line(change)
        click.secho(f"  {sign} {text}", fg=COLOURS[sign])
    return count


def _line(change: Change) -> tuple[str, str]:
    """Return the sign of a change and what it says."""
    sign = "+" if change.old is None else "-" if change.new is None else "~"
    if change.table is Table.INDEX:
        old, new = (getattr(entry, "name", None) for entry in (change.old, change.new))
        return sign, f"object {new if old is None else old if new is None or new == old else f'{old} → {new}'}"
    key, old, new = _values(change)
    values = [printing.short(value) for value in (old, new)]
    shown = values[1] if sign == "+" else values[0] if sign == "-" else " → ".join(values)
    return sign, f"{'' if change.table is Table.ITEM else 'its '}{printing.short(key, 40)} = {shown}"


def _values(change: Change) -> tuple[Any, Any, Any]:
    if change.table is Table.METADATA:
        return change.slot, loaded(change.old), loaded(change.new)  # type: ignore[arg-type]
    assert change.slot is not None
    keys, values = zip(*(key_and_value(change.slot, payload) for payload in (change.old, change.new)), strict=True)  # type: ignore[arg-type]
    plain = key_of(change.slot)
    return next((key for key in keys if key != plain), plain), values[0], values[1]


def _fields(change: Change) -> dict[str, Any]:
    if change.table is Table.INDEX:
        old, new = (list(entry) if isinstance(entry, IndexEntry) else None for entry in (change.old, change.new))
        key: Any = None
    else:
        key, old, new = _values(change)
    return {
        "table": change.table.value,
        "object": change.name,
        "kind": change.kind,
        "key": key,
        "old": old,
        "new": new,
    }


def _print_stat(changes: Iterator[Change], is_json: bool) -> int:
    counts: dict[str, Counter[str]] = {}
    for change in changes:
        if change.table is not Table.METADATA:
            title = change.name or f"#{change.object}"
            is_item = change.table is Table.ITEM
            counts.setdefault(title, Counter())[_line(change)[0] if is_item else "object"] += 1
    rows = [
        [name, found["+"], found["-"], found["~"], "#" * min(40, sum(found[sign] for sign in "+-~"))]
        for name, found in sorted(counts.items(), key=lambda item: -item[1].total())
    ]
    if is_json:
        for row in rows:
            click.echo(printing.as_json(dict(zip(("object", "added", "removed", "changed"), row[:4], strict=True))))
    else:
        printing.print_table(["object", "+", "-", "~", ""], rows)
    return len(rows)


@cli.command()
@takes_source
@click.argument("patch", type=click.Path(dir_okay=False))
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
def apply(source: Source, patch: str, dry_run: bool) -> None:
    """Apply a patch of `diff --patch` as a new checkpoint, all or nothing. It writes.

    \b
    checkpoint apply state.db fix.jsonl
    """
    with Path(patch).open("rb") as file:
        changes = list(changes_of(file))
    _apply(source, changes, dry_run)


@cli.command()
@takes_source
@click.argument("checkpoint")
@click.option("--dry-run", is_flag=True, help="Only show what would be undone.")
def revert(source: Source, checkpoint: str, dry_run: bool) -> None:
    """Undo one checkpoint by a new one that is its inverse. It writes.

    Where a later checkpoint has changed one of the slots again, nothing is done.

    \b
    checkpoint revert state.db 7
    """
    with source.open() as store:
        record = find(store, checkpoint)
        if record is None:
            raise CheckpointError("0 is the state before the first checkpoint: there is nothing to undo")
        changes = list(invert(store.diff(record.parent or 0, record.number)))
    _apply(source, changes, dry_run)


def _apply(source: Source, changes: list[Change], dry_run: bool) -> None:
    if dry_run:
        _print(iter(changes), is_json=False)
        click.echo(f"{len(changes):,} changes would be made", err=True)
        return
    if not changes:
        click.echo("no changes: nothing was written", err=True)
        sys.exit(TROUBLE)
    with source.open_to_write() as store:
        receipt = store.apply_changes(changes)
    click.echo(f"checkpoint {receipt.number}, epoch {receipt.epoch}: {receipt.slots:,} slots, {receipt.bytes:,} bytes")
