"""``log``, ``ls``, ``show`` and ``blame``: what is there, and since when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import click

from checkpoint.errors import CheckpointError
from checkpoint.reader import StoredItem
from checkpoint.record import CheckpointRecord
from checkpoint.run import Slot
from checkpoint.store import CheckpointStore
from checkpoint.tool import printing
from checkpoint.tool.command import cli, json_option, takes_source
from checkpoint.tool.content import BYTES_TAG, Entry, State
from checkpoint.tool.source import Source, find, query, reader_at


@cli.command()
@takes_source
@click.option("-n", "--limit", type=int, default=20, show_default=True, help="How many checkpoints; 0 for all.")
@click.option("--objects", is_flag=True, help="Say of each checkpoint which objects it wrote.")
@json_option
def log(source: Source, limit: int, objects: bool, is_json: bool) -> None:
    """List the checkpoints, newest first.

    \b
    checkpoint log state.db
    checkpoint log state.db -n 0 --json
    checkpoint log s3://bucket/state
    """
    if source.is_location and source.operator is None:
        _log_location(source, limit, is_json)
        return
    with source.open() as store:
        records = store.checkpoints()[::-1]
        shown = records[:limit] if limit else records
        if is_json:
            for record in shown:
                written = {"objects": _written(store, record)} if objects else {}
                click.echo(printing.as_json({**_fields(record), **written}))
            return
        rows = [[r.number, r.epoch, r.kind.value, r.time, r.slots, r.bytes] for r in shown]
        if objects:
            for row, record in zip(rows, shown, strict=True):
                row.append(", ".join(f"{name} {count}" for name, count in _written(store, record).items()))
        header = ["number", "epoch", "kind", "time", "slots", "bytes", *(["objects"] if objects else [])]
        printing.print_table(header, list(rows))
        if len(shown) > 1:
            click.echo(f"bytes, oldest to newest: {printing.sparkline([r.bytes for r in shown[::-1]])}")
        if len(shown) < len(records):
            click.echo(f"{len(records) - len(shown):,} older ones: --limit 0 shows all")


def _log_location(source: Source, limit: int, is_json: bool) -> None:
    manifests = sorted(source.chain().manifests(), key=lambda manifest: -manifest.epoch)
    rows: list[list[Any]] = []
    for manifest in manifests[: limit or None]:
        mine = [run for run in manifest.runs if run.epoch == manifest.epoch]
        operators = ", ".join(sorted({run.operator for run in manifest.runs}))
        rows.append([manifest.epoch, sum(r.slots for r in mine), sum(r.bytes for r in mine), len(mine), operators])
    header = ["epoch", "slots", "bytes", "runs", "operators"]
    if is_json:
        for row in rows:
            click.echo(printing.as_json(dict(zip(header, row, strict=True))))
    else:
        printing.print_table(header, list(rows))


def _fields(record: CheckpointRecord) -> dict[str, Any]:
    return {
        "number": record.number,
        "epoch": record.epoch,
        "kind": record.kind.value,
        "time": record.time,
        "slots": record.slots,
        "bytes": record.bytes,
        "digest": record.digest,
    }


def _written(store: CheckpointStore, record: CheckpointRecord) -> dict[str, int]:
    """Return how many item rows lie under the number of a checkpoint, by object: more once others were merged in."""
    names = {row[0]: row[1] for row in store.reader().index()}
    rows = query(store, "SELECT object, count(*) FROM state_item WHERE checkpoint = ? GROUP BY object", record.number)
    return {names.get(object_id, f"#{object_id}"): count for object_id, count in rows}


@cli.command()
@takes_source
@click.argument("checkpoint", required=False)
@json_option
def ls(source: Source, checkpoint: str | None, is_json: bool) -> None:
    """List the objects of a checkpoint, the largest first; dirty is how many slots it wrote of each.

    \b
    checkpoint ls state.db
    checkpoint ls state.db HEAD~1
    """
    with source.open() as store:
        state = State(reader_at(store, checkpoint))
        dirty = _dirty(store, state)
        rows = [[*row[:4], dirty.get(state.index[row[0]][0], 0), row[4]] for row in object_rows(store, state)]
        header = ["name", "kind", "length", "bytes", "dirty", "codec"]
        if is_json:
            for row in rows:
                click.echo(printing.as_json(dict(zip(header, row, strict=True))))
        else:
            printing.print_table(header, rows)


def _dirty(store: CheckpointStore, state: State) -> dict[int, int]:
    """Return how many slots lie under the number of the checkpoint that is read, by object."""
    statement = "SELECT object, count(*) FROM state_item WHERE checkpoint = ? GROUP BY object"
    return dict(query(store, statement, state.reader.newest))


def object_rows(store: CheckpointStore, state: State) -> list[Any]:
    """Return name, kind, length, stored bytes and codec of each object; bytes of what objects own are theirs."""
    sizes = _sizes(store, state)
    rows = [
        [name, state.kind_of(name), state.length(name), sizes.get(row[0], 0), "" if row[3] == "{}" else row[3]]
        for name, row in state.index.items()
    ]
    return sorted(rows, key=lambda row: (-row[3], row[0]))


def _sizes(store: CheckpointStore, state: State) -> dict[int, int]:
    """Return the bytes of the slots and values of each object, by its id, added up by SQLite.

    Each run is read in the order of its index, and what its rows replace is looked up in the older ones: nothing is
    sorted, and of the oldest run, which is the largest, nothing is looked up.
    """
    found: Counter[int] = Counter()
    runs = state.reader.runs
    for place, run in enumerate(runs):
        older = ",".join(map(str, runs[place + 1 :]))
        replaced = (
            f"coalesce((SELECT {_BYTES.format('o')} FROM state_item AS o WHERE o.checkpoint IN ({older}) AND"
            " o.object = n.object AND o.slot = n.slot ORDER BY o.checkpoint DESC LIMIT 1), 0)"
        )
        statement = (
            f"SELECT object, sum({_BYTES.format('n')} - {replaced if older else 0})"
            f" FROM state_item AS n WHERE checkpoint = {run} GROUP BY object"
        )
        for object_id, size in query(store, statement):
            found[object_id] += size
    return found


_BYTES = "iif({0}.value IS NULL, 0, length(CAST({0}.slot AS BLOB)) + length(CAST({0}.value AS BLOB)))"


@cli.command()
@takes_source
@click.argument("name")
@click.option("-n", "--limit", type=int, default=50, show_default=True, help="How many entries; 0 for all.")
@click.option("--from", "lower", help="The least slot: a number, or text.")
@click.option("--to", "upper", help="The greatest slot.")
@click.option("--where", help="Of a table: COLUMN=VALUE, the rows to show.")
@click.option(
    "--format", "shape", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True, help="How."
)
def show(
    source: Source, name: str, limit: int, lower: str | None, upper: str | None, where: str | None, shape: str
) -> None:
    """Show what an object holds, as its kind reads; NAME may be NAME@EPOCH.

    \b
    checkpoint show state.db counts
    checkpoint show state.db counts@12 --format json
    checkpoint show state.db orders --where carrier=UA
    """
    with source.open() as store:
        name, epoch = _split(store, name)
        state = State(store.reader(epoch=epoch) if epoch is not None else reader_at(store, None))
        entries = state.entries(name, lower=_slot(lower), upper=_slot(upper))
        columns = state.columns(name)
        if where is not None:
            entries = _filtered(entries, where, columns)
        found = islice(entries, limit or None)
        if shape == "table":
            _show_table(state, name, list(found), columns)
        else:
            _show_lines(found, columns, shape)


def _split(store: CheckpointStore, name: str) -> tuple[str, int | None]:
    """Return the name and the epoch of NAME@EPOCH; a name may hold an @ itself."""
    head, at, epoch = name.rpartition("@")
    if not at or not epoch.isdigit():
        return name, None
    record = find(store, f"@{epoch}")
    assert record is not None
    return head, record.epoch


def _slot(text: str | None) -> Slot | None:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        return text


def _filtered(entries: Iterator[Entry], where: str, columns: list[dict[str, Any]] | None) -> Iterator[Entry]:
    column, equals, value = where.partition("=")
    if columns is None or not equals:
        raise CheckpointError("--where takes COLUMN=VALUE, and goes with a table")
    if column not in {one["name"] for one in columns}:
        raise CheckpointError(f"there is no column {column!r}: it has {', '.join(one['name'] for one in columns)}")
    return (entry for entry in entries if printing.short(entry.value[column], 10_000) == value)


def _show_table(state: State, name: str, entries: list[Entry], columns: list[dict[str, Any]] | None) -> None:
    click.echo(f"{name} = {state.kind_of(name)} of {state.length(name):,}")
    if columns is not None:
        names = [column["name"] for column in columns]
        rows = [[_cell(entry.value.get(column)) for column in names] for entry in entries]
        printing.print_table(names, list(rows))
        return
    for entry in entries:
        click.echo(f"{printing.short(entry.key)} = {printing.short(entry.value)}")


def _cell(value: Any) -> Any:
    return value if type(value) in (int, float) else "NULL" if value is None else printing.short(value, 40)


def _show_lines(entries: Iterator[Entry], columns: list[dict[str, Any]] | None, shape: str) -> None:
    header = ["key", "value"] if columns is None else [column["name"] for column in columns]
    if shape == "csv":
        click.echo(printing.csv_line(header))
    for entry in entries:
        row = {"key": entry.key, "value": entry.value} if columns is None else entry.value
        click.echo(printing.as_json(row) if shape == "json" else printing.csv_line([row.get(h) for h in header]))


@cli.command()
@takes_source
@click.argument("name")
@click.option("-n", "--limit", type=int, default=50, show_default=True, help="How many slots; 0 for all.")
@json_option
def blame(source: Source, name: str, limit: int, is_json: bool) -> None:
    """Say of each slot of an object which checkpoint wrote it last, as far as runs have not been merged.

    NAME may be NAME[KEY], for one slot: its key is a number or text.

    \b
    checkpoint blame state.db counts
    checkpoint blame state.db counts[bob]
    """
    with source.open() as store:
        state = State(store.reader())
        name, key = _keyed(state, name)
        object_id, slots = state.find(name)[0], _slots(key)
        only = f" AND slot IN ({','.join('?' * len(slots))})" if slots else ""
        epochs = {record.number: record.epoch for record in store.checkpoints()}
        runs = ",".join(map(str, state.reader.runs)) or "-1"
        rows = query(
            store,
            "SELECT slot, value, max(checkpoint) FROM state_item"
            f" WHERE checkpoint IN ({runs}) AND object = ?{only} GROUP BY slot ORDER BY slot",
            object_id,
            *slots,
        )
        found = []
        for slot, value, number in islice((row for row in rows if row[1] is not None), limit or None):
            entry = state.entry(StoredItem(slot, value, None))
            found.append([number, epochs[number], printing.short(entry.key, 40), printing.short(entry.value)])
        if slots and not found:
            raise CheckpointError(f"{name!r} has no key {key!r}: see `checkpoint show {source.path} {name}`")
        header = ["number", "epoch", "key", "value"]
        if is_json:
            for row in found:
                click.echo(printing.as_json(dict(zip(header, row, strict=True))))
        else:
            printing.print_table(header, list(found))


def _keyed(state: State, name: str) -> tuple[str, str | None]:
    """Return the name and the key of NAME[KEY]; a name may hold brackets itself."""
    head, bracket, key = name.removesuffix("]").partition("[")
    return (head, key) if bracket and name.endswith("]") and name not in state.index else (name, None)


def _slots(key: str | None) -> list[Slot]:
    """Return the slots that a key may have: of text, of a number, of bytes."""
    if key is None:
        return []
    return [key, bytes([BYTES_TAG]) + key.encode(), *({_slot(key)} - {key})]  # type: ignore[list-item]
