"""``report``: one page of HTML about a store, which needs nothing beside it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from checkpoint.record import CheckpointRecord
from checkpoint.store import CheckpointStore
from checkpoint.tool.command import cli, takes_source
from checkpoint.tool.content import State
from checkpoint.tool.listing import object_rows
from checkpoint.tool.source import Source, query

FIXED = {"Array", "Tensor", "Value"}
"""The kinds that have as many slots as they were made with: they are rewritten, and do not grow."""

COLUMNS = 60
"""How many bars a chart has at most: older checkpoints share them."""


@cli.command()
@takes_source
@click.argument("target", type=click.Path(dir_okay=False))
def report(source: Source, target: str) -> None:
    """Write a page about a store: what checkpoints cost over time, which objects are large, which change, which grow.

    The page is one file that works offline, on a telephone too, light or dark.

    \b
    checkpoint report state.db report.html
    """
    with source.open() as store:
        page = page_of(source.path, store)
    Path(target).write_text(page, encoding="utf-8")
    click.echo(f"{target}: {len(page):,} characters")


def page_of(title: str, store: CheckpointStore) -> str:
    """Return the page."""
    records = store.checkpoints()
    state = State(store.reader())
    objects = object_rows(store, state)
    churn = churn_of(store, state, records)
    sections = [
        _section("Totals", _totals(store, records, objects)),
        _section("Bytes a checkpoint", _bars([record.bytes for record in records], "bytes", records)),
        _section("Slots a checkpoint", _bars([record.slots for record in records], "slots", records)),
        _section("Full against differential", _costs(records, objects)),
        _section("Objects by size", _treemap(objects)),
        _section("Where slots change", _heat(churn)),
        _section(
            "What only grows", _growing({name: churn[name] for name in churn if state.kind_of(name) not in FIXED})
        ),
        _section("All objects", _table(["name", "kind", "length", "bytes", "codec"], objects)),
        _section("All checkpoints", _table(CHECKPOINT_COLUMNS, [_cells(record) for record in records[::-1]])),
    ]
    template = files("checkpoint.tool").joinpath("report.html").read_text(encoding="utf-8")
    return template.replace("{{title}}", html.escape(title)).replace("{{body}}", "\n".join(sections))


CHECKPOINT_COLUMNS = ["number", "epoch", "kind", "time", "slots", "bytes"]


def _cells(record: CheckpointRecord) -> list[Any]:
    return [record.number, record.epoch, record.kind.value, record.time, record.slots, record.bytes]


def churn_of(
    store: CheckpointStore, state: State, records: Sequence[CheckpointRecord]
) -> dict[str, list[tuple[int, int]]]:
    """Return (slots written, slots deleted) of each object in each live run, oldest first."""
    names = {row[0]: name for name, row in state.index.items()}
    runs = sorted(state.reader.runs)[-COLUMNS:]
    found = {name: [(0, 0)] * len(runs) for name in state.index}
    marks = ",".join(map(str, runs)) or "-1"
    rows = query(
        store,
        "SELECT checkpoint, object, sum(value IS NOT NULL), sum(value IS NULL) FROM state_item"
        f" WHERE checkpoint IN ({marks}) GROUP BY checkpoint, object",
    )
    for number, object_id, written, deleted in rows:
        if object_id in names:
            found[names[object_id]][runs.index(number)] = (written, deleted)
    return found


def _section(title: str, body: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>{body}</section>"


def _totals(store: CheckpointStore, records: Sequence[CheckpointRecord], objects: Sequence[Sequence[Any]]) -> str:
    facts = {
        "checkpoints": len(records),
        "newest epoch": records[-1].epoch if records else 0,
        "objects": len(objects),
        "bytes of the state": sum(row[3] for row in objects),
        "bytes of all checkpoints": sum(record.bytes for record in records),
        "live runs": len(store.reader().runs),
    }
    return "<dl>" + "".join(f"<div><dt>{key}</dt><dd>{value:,}</dd></div>" for key, value in facts.items()) + "</dl>"


def _bars(numbers: Sequence[int], unit: str, records: Sequence[CheckpointRecord]) -> str:
    """Return a chart with a bar for each checkpoint, or for the mean of some where there are many."""
    if not numbers:
        return "<p>No checkpoint yet.</p>"
    step = -(-len(numbers) // COLUMNS)
    groups = [numbers[start : start + step] for start in range(0, len(numbers), step)]
    means = [sum(group) / len(group) for group in groups]
    top = max(means) or 1
    bars = []
    for place, mean in enumerate(means):
        first, last = records[place * step], records[min(len(records), (place + 1) * step) - 1]
        label = f"epoch {first.epoch}" + (f" to {last.epoch}" if last is not first else "")
        height = 100 * mean / top
        bars.append(
            f'<rect x="{place * 10}" y="{100 - height:.2f}" width="8" height="{height:.2f}">'
            f"<title>{label}: {mean:,.0f} {unit}</title></rect>"
        )
    return (
        f'<svg class="bars" viewBox="0 0 {len(means) * 10} 100" preserveAspectRatio="none" role="img"'
        f' aria-label="{unit} over time">{"".join(bars)}</svg><p>at most {top:,.0f} {unit}'
        f"{f', {step} checkpoints a bar' if step > 1 else ''}</p>"
    )


def _costs(records: Sequence[CheckpointRecord], objects: Sequence[Sequence[Any]]) -> str:
    size = sum(row[3] for row in objects)
    differential = [record.bytes for record in records if record.kind.value == "differential"]
    if not differential:
        return "<p>No differential checkpoint yet.</p>"
    mean = sum(differential) / len(differential)
    ratio = f"{size / mean:,.1f} times as much" if mean else "nothing was written"
    return (
        f"<p>A differential checkpoint wrote {mean:,.0f} bytes on average; a full one now writes {size:,}: {ratio}.</p>"
    )


def _treemap(objects: Sequence[Sequence[Any]]) -> str:
    """Return rectangles in rows, as large as the objects."""
    total = sum(row[3] for row in objects)
    if not total:
        return "<p>Nothing is stored.</p>"
    boxes, rest = [], 0
    for name, kind, length, size, _ in objects:
        if size / total < 0.005:
            rest += size
            continue
        boxes.append(_box(f"{name}", f"{kind} of {length:,}: {size:,} bytes", 100 * size / total))
    if rest:
        boxes.append(_box("others", f"{rest:,} bytes", 100 * rest / total))
    return f'<div class="treemap">{"".join(boxes)}</div>'


def _box(name: str, text: str, share: float) -> str:
    label = f"{html.escape(name)}<small>{html.escape(text)}</small>"
    return f'<div style="flex:{share:.2f} 1 {share * 4:.0f}px" title="{html.escape(f"{name}: {text}")}">{label}</div>'


def _heat(churn: dict[str, list[tuple[int, int]]]) -> str:
    """Return a row for each of the objects that change most, a cell for each run."""
    busiest = sorted(churn.items(), key=lambda item: -sum(map(sum, item[1])))[:20]
    top = max((sum(cell) for _, cells in busiest for cell in cells), default=0)
    if not top:
        return "<p>Nothing changed.</p>"
    rows = []
    for name, cells in busiest:
        marks = "".join(f'<td style="--heat:{sum(cell) / top:.3f}" title="{sum(cell):,} slots"></td>' for cell in cells)
        rows.append(f"<tr><th>{html.escape(name)}</th>{marks}</tr>")
    return f'<div class="scroll"><table class="heat">{"".join(rows)}</table></div><p>at most {top:,} slots</p>'


def _growing(churn: dict[str, list[tuple[int, int]]]) -> str:
    """Return the objects of which slots were written again and again and never deleted."""
    found = [
        (name, sum(written for written, _ in cells))
        for name, cells in churn.items()
        if sum(written > 0 for written, _ in cells) >= 5 and not any(deleted for _, deleted in cells)
    ]
    if not found:
        return "<p>No object that is written in many checkpoints goes without deletions.</p>"
    items = "".join(f"<li>{html.escape(name)}: {count:,} slots written, none deleted</li>" for name, count in found)
    return f"<ul>{items}</ul>"


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f'<th><button type="button">{html.escape(name)}</button></th>' for name in header)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:5_000])
    return (
        f'<div class="scroll"><table class="sortable"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _cell(cell: Any) -> str:
    if isinstance(cell, int):
        return f'<td class="number" data-value="{cell}">{cell:,}</td>'
    return f"<td>{html.escape(str(cell))}</td>"
