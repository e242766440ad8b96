"""``log``: the checkpoints of a store or the epochs of a space, as a list or as a graph of lineages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from checkpoint.errors import CheckpointError
from checkpoint.record import CheckpointRecord
from checkpoint.run import CheckpointKind
from checkpoint.store import CheckpointStore
from checkpoint.tool import graph, printing
from checkpoint.tool.command import cli, json_option, takes_source
from checkpoint.tool.key_values import whole
from checkpoint.tool.source import Source, query


@cli.command()
@takes_source
@click.option("-n", "--limit", type=click.IntRange(0), default=20, show_default=True, help="How many; 0 for all.")
@click.option("--objects", is_flag=True, help="Show what each checkpoint wrote, by object; for a space, by shard.")
@click.option("--graph", "is_graph", is_flag=True, help="Draw lineages: full checkpoints, forks and rollbacks.")
@click.option("--with", "others", multiple=True, help="Another store to draw beside this one; may be repeated.")
@json_option
def log(source: Source, limit: int, objects: bool, is_graph: bool, others: tuple[str, ...], is_json: bool) -> None:
    """List the checkpoints, newest first: number, epoch, kind, time, slots and bytes that each wrote.

    For a space these are its epochs, over all shards, or over those that --operator and --shard choose.

    A graph marks a full checkpoint, which begins a lineage, with ◆, and any other one with ●. What was rolled back is
    noted where it branched off. A fork knows its origin, which is drawn beside it if it still exists. The graph of a
    space has a column for each shard: a shard that did not change in an epoch has no mark.

    \b
    Examples:
      checkpoint log state.db
      checkpoint log state.db -n 0 --json
      checkpoint log state.db --graph --with fork.db
      checkpoint log s3://bucket/state --objects
    """
    if others and (source.is_location or is_json):
        wrong = f"{source.path} is a space" if source.is_location else "--json draws nothing"
        raise CheckpointError(f"--with draws another store file beside a store file: {wrong}")
    if source.is_location:
        _log_space(source, limit, objects, is_graph, is_json)
        return
    with source.open() as store:
        if (is_graph or others) and not is_json:
            for line in graph.of_store(store, others, limit):
                click.echo(printing.plain(line))
            return
        _log_store(store, limit, objects, is_json)


def _log_store(store: CheckpointStore, limit: int, objects: bool, is_json: bool) -> None:
    records = store.checkpoints()[::-1]
    shown = records[:limit] if limit else records
    written = _written(store, shown) if objects else {}
    if is_json:
        for record in shown:
            more = {"objects": written.get(record.number, {})} if objects else {}
            click.echo(printing.as_json({**fields_of(record), **more}))
        return
    rows = [[r.number, r.epoch, r.kind.value, r.time, r.slots, r.bytes] for r in shown]
    header = ["number", "epoch", "kind", "time", "slots", "bytes"]
    _print(header, rows, [_by_name(written.get(r.number, {})) for r in shown] if objects else None)
    _print_end([r.bytes for r in shown[::-1]], len(records) - len(shown))
    readable = [r.number for r in records if r.run_slots is not None]
    if len(readable) < len(records):
        click.echo(f"can be read: {_spans(sorted(readable))}; the rows of the others were merged into newer ones")


def _spans(numbers: Sequence[int]) -> str:
    """Return whole numbers in order as text, consecutive ones as a span.

    >>> _spans([1, 4, 5, 6])
    '1, 4 to 6'
    """
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], number]
        else:
            spans.append([number])
    return ", ".join(" to ".join(map(str, span)) for span in spans) or "none"


def _print(header: list[str], rows: list[list[Any]], objects: list[str] | None) -> None:
    if objects is not None:
        header, rows = [*header, "objects"], [[*row, cell] for row, cell in zip(rows, objects, strict=True)]
    printing.print_table(header, rows)


def _print_end(sizes: Sequence[int], older: int) -> None:
    if len(sizes) > 1:
        click.echo(f"bytes, oldest to newest: {printing.sparkline(sizes[-_WIDEST:])}")
    if older:
        click.echo(f"{older:,} older: --limit 0 shows all")


_WIDEST = 120


def _by_name(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def fields_of(record: CheckpointRecord) -> dict[str, Any]:
    """Return what is shown of a checkpoint."""
    return {
        "number": record.number,
        "epoch": record.epoch,
        "kind": record.kind.value,
        "time": record.time,
        "slots": record.slots,
        "bytes": record.bytes,
        "digest": record.digest,
        "parent": record.parent,
        "readable": record.run_slots is not None,
    }


def _written(store: CheckpointStore, shown: Sequence[CheckpointRecord]) -> dict[int, dict[str, int]]:
    """Return how many slots each checkpoint wrote, by object, if its rows are still there."""
    found: dict[int, Counter[str]] = {record.number: Counter() for record in shown}
    if not found:
        return {}
    names = dict(query(store, "SELECT object, name FROM state_index ORDER BY checkpoint"))
    statement = "SELECT object, count(*) FROM state_item WHERE checkpoint = ? GROUP BY object"
    for number, counts in found.items():
        for object_id, count in query(store, statement, number):
            name = names.get(object_id)
            counts["owned objects" if name is None else whole(name)] += count
    return {number: dict(counts.most_common()) for number, counts in found.items()}


def _log_space(source: Source, limit: int, objects: bool, is_graph: bool, is_json: bool) -> None:
    chain = source.chain
    after = max(chain.epoch - limit, chain.first_epoch - 1) if limit else 0
    shown = list(chain.manifests(after))[::-1]
    chosen = source.shards(manifest.epoch for manifest in shown)
    if is_graph and not is_json:
        for line in graph.of_space(shown, chosen):
            click.echo(printing.plain(line))
        return
    places = set(chosen)
    rows: list[list[Any]] = []
    written: list[dict[str, int]] = []
    for manifest in shown:
        runs = [run for run in manifest.runs if (run.operator, run.shard) in places]
        kinds = {run.kind for run in runs}
        kind = "full" if kinds == {CheckpointKind.FULL} else "differential" if len(kinds) < 2 else "mixed"
        size = sum(run.bytes for run in runs), sum(run.file_bytes for run in runs)
        rows.append([manifest.epoch, kind, manifest.time, sum(run.slots for run in runs), *size, len(runs)])
        written.append({f"{run.operator}/{run.shard}": run.slots for run in runs})
    header = ["epoch", "kind", "time", "slots", "bytes", "file bytes", "runs"]
    if is_json:
        for manifest, row, counts in zip(shown, rows, written, strict=True):
            named = dict(zip((name.replace(" ", "_") for name in header), row, strict=True))
            fed = {"query": manifest.source.query, "batch": manifest.source.batch}
            click.echo(printing.as_json({**named, **fed, **({"objects": counts} if objects else {})}))
        return
    _print(header, rows, [_by_name(counts) for counts in written] if objects else None)
    _print_end([row[4] for row in rows[::-1]], chain.epoch - len(shown) - max(0, chain.first_epoch - 1))
