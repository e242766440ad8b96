"""The page of ``report``: charts as inline SVG and HTML, in one file that needs no others."""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib.resources import files
from math import log1p
from typing import Any

from checkpoint.tool import printing
from checkpoint.tool.report import Facts, Step
from checkpoint.tool.treemap import Box, squarified

BEGINNING = b'<!doctype html>\n<html lang="en">\n'
"""How every page begins."""

_BARS = 60
"""How many bars a chart has at most: older checkpoints share them."""

_ROWS = 5_000
"""How many rows a table has at most."""


def page_of(facts: Facts) -> str:
    """Return the page."""
    sections = [
        _section("Totals", _totals(facts)),
        _section("Bytes a checkpoint", _bars(facts.steps, "bytes")),
        _section("Slots a checkpoint", _bars(facts.steps, "slots")),
        _section("Full against differential", _costs(facts)),
        _section("Objects by size", _treemap(facts)),
        _section("Where slots change", _heat(facts)),
        _section("What grows", _growth(facts)),
        _section("All objects", _object_table(facts)),
        _section("All checkpoints", _step_table(facts)),
    ]
    template = files("checkpoint.tool").joinpath("report.html").read_text(encoding="utf-8")
    return template.replace("{{title}}", html.escape(facts.title)).replace("{{body}}", "\n".join(sections))


def _section(title: str, body: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>{body}</section>"


def _totals(facts: Facts) -> str:
    values = {
        "checkpoints": len(facts.steps),
        "newest epoch": facts.steps[-1].epoch if facts.steps else 0,
        "objects": len(facts.objects),
        "bytes of the state": sum(one.bytes for one in facts.objects),
        "bytes of all checkpoints": sum(step.bytes for step in facts.steps),
        "live runs": facts.runs,
    }
    return "<dl>" + "".join(f"<div><dt>{key}</dt><dd>{value:,}</dd></div>" for key, value in values.items()) + "</dl>"


def _bars(steps: Sequence[Step], unit: str) -> str:
    """Return a chart with a bar for each checkpoint, or for the mean of some if there are many."""
    if not steps:
        return "<p>No checkpoint yet.</p>"
    share = -(-len(steps) // _BARS)
    groups = [steps[start : start + share] for start in range(0, len(steps), share)]
    means = [sum(getattr(step, unit) for step in group) / len(group) for group in groups]
    top = max(means) or 1
    bars = []
    for place, (mean, group) in enumerate(zip(means, groups, strict=True)):
        label = f"epoch {group[0].epoch}" + (f" to {group[-1].epoch}" if len(group) > 1 else "")
        height = 100 * mean / top
        kind = " class=full" if any(step.kind != "differential" for step in group) else ""
        bars.append(
            f'<rect{kind} x="{place * 10}" y="{100 - height:.2f}" width="8" height="{height:.2f}">'
            f"<title>{label}: {mean:,.0f} {unit}</title></rect>"
        )
    shared = f", {share} checkpoints a bar" if share > 1 else ""
    return (
        f'<svg class="bars" viewBox="0 0 {len(means) * 10} 100" preserveAspectRatio="none" role="img"'
        f' aria-label="{unit} of each checkpoint, oldest to newest">{"".join(bars)}</svg>'
        f'<p class="axis"><span>{_when(steps[0])}</span><span>{_when(steps[-1])}</span></p>'
        f"<p>At most {top:,.0f} {unit}{shared}{_legend(steps)}.</p>"
    )


def _legend(steps: Sequence[Step]) -> str:
    return "; the bars of another colour hold full ones" if any(step.kind != "differential" for step in steps) else ""


def _when(step: Step) -> str:
    return html.escape(f"epoch {step.epoch}, {step.time[:16].replace('T', ' ')}")


def _costs(facts: Facts) -> str:
    """Return what was written next to what saving the whole state at every checkpoint would have written."""
    size = sum(one.bytes for one in facts.objects)
    differential = [step.bytes for step in facts.steps if step.kind == "differential"]
    full = [step.bytes for step in facts.steps if step.kind == "full"]
    if not differential:
        return "<p>No differential checkpoint yet.</p>"
    mean = sum(differential) / len(differential)
    rows = [("a differential checkpoint, on average", mean), ("a full one of the state as it is now", float(size))]
    if full:
        rows.insert(1, ("a full checkpoint, on average", sum(full) / len(full)))
    top = max(value for _, value in rows) or 1
    bars = "".join(
        f'<div class="cost"><span>{label}</span><div><i style="width:{max(0.3, 100 * value / top):.2f}%"></i></div>'
        f"<b>{value:,.0f} bytes</b></div>"
        for label, value in rows
    )
    ratio = f"{size / mean:,.1f} times as much" if mean else "nothing was written"
    return f"{bars}<p>A full one now would write {ratio} as a differential one did.</p>"


def _treemap(facts: Facts) -> str:
    """Return rectangles with the areas of the objects; those of less than half a percent are put together."""
    total = sum(one.bytes for one in facts.objects)
    if not total:
        return "<p>Nothing is stored.</p>"
    large = [one for one in facts.objects if one.bytes / total >= 0.005]
    named: list[tuple[str, str, float]] = [
        (one.name, f"{one.kind} of {one.length:,}: {one.bytes:,} bytes", float(one.bytes)) for one in large
    ]
    rest = total - sum(one.bytes for one in large)
    if rest:
        named.append((f"{len(facts.objects) - len(large):,} others", f"{rest:,} bytes", float(rest)))
    boxes = squarified([size for _, _, size in named], width=100, height=56)
    return f'<div class="treemap">{"".join(map(_box, named, boxes))}</div>'


def _box(named: tuple[str, str, float], box: Box) -> str:
    name, text, _ = named
    place = f"left:{box.x:.3f}%;top:{box.y / 0.56:.3f}%;width:{box.width:.3f}%;height:{box.height / 0.56:.3f}%"
    label = f"<b>{html.escape(name)}</b><small>{html.escape(text)}</small>"
    return f'<div tabindex="0" style="{place}" title="{html.escape(f"{name}: {text}")}">{label}</div>'


def _heat(facts: Facts) -> str:
    """Return a row for each of the objects that change most, a cell for each checkpoint."""
    busiest = sorted(facts.churn.items(), key=lambda item: -sum(map(sum, item[1].values())))[:20]
    top = max((sum(cells.get(epoch, (0, 0))) for _, cells in busiest for epoch in facts.epochs), default=0)
    if not top:
        return "<p>There is no differential checkpoint whose rows are still there.</p>"
    rows = []
    for name, cells in busiest:
        marks = "".join(_heat_cell(epoch, *cells.get(epoch, (0, 0)), top) for epoch in facts.epochs)
        rows.append(f'<tr><th scope=row title="{html.escape(name)}">{html.escape(name)}</th>{marks}</tr>')
    return (
        f'<div class="scroll"><table class="heat">{"".join(rows)}</table></div>'
        f"<p>A column for each differential checkpoint, epochs {facts.epochs[0]} to {facts.epochs[-1]}, on a"
        f" logarithmic scale; the strongest cell is {printing.count(top, 'slot')}.</p>"
    )


def _heat_cell(epoch: int, written: int, deleted: int, top: int) -> str:
    heat = log1p(written + deleted) / log1p(top)
    return f'<td style="--heat:{heat:.3f}" title="epoch {epoch}: {written:,} written, {deleted:,} deleted"></td>'


def _growth(facts: Facts) -> str:
    """Return a line for each object whose length changed, and call out those that only grow."""
    unbounded = facts.unbounded()
    parts = []
    if unbounded:
        names = ", ".join(f"<b>{html.escape(name)}</b>" for name in unbounded)
        parts.append(f'<p class="call">{names}: only ever grew, and never deleted a slot. Is that intended?</p>')
    growth = facts.growth()[:20]
    if not growth:
        return "<p>No object changed its length in the checkpoints that can be read.</p>"
    for one in growth:
        parts.append(
            f'<div class="line"><span>{html.escape(one.name)}</span>{_line(one.points)}'
            f"<b>{one.points[0][1]:,} → {one.points[-1][1]:,}</b><small>{one.rate:+,.1f} a checkpoint</small></div>"
        )
    return "".join(parts)


def _line(points: Sequence[tuple[int, int]]) -> str:
    """Return a line through lengths, at their epochs."""
    lengths = [length for _, length in points]
    low, high, first, last = min(lengths), max(lengths), points[0][0], points[-1][0]
    places = " ".join(
        f"{100 * (epoch - first) / (last - first or 1):.1f},{28 - 26 * (length - low) / (high - low or 1):.1f}"
        for epoch, length in points
    )
    return (
        '<svg viewBox="0 0 100 30" preserveAspectRatio="none" role="img" aria-label="length over time">'
        f'<polyline points="{places}"/></svg>'
    )


def _object_table(facts: Facts) -> str:
    rows = [[one.name, one.kind, one.length, one.bytes, one.dirty, one.codec] for one in facts.objects]
    return _table(["name", "kind", "length", "bytes", "dirty", "codec"], rows)


def _step_table(facts: Facts) -> str:
    rows = [[s.number, s.epoch, s.kind, s.slots, s.bytes, s.time] for s in reversed(facts.steps)]
    return _table(["number", "epoch", "kind", "slots", "bytes", "time"], rows)


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    numbers = [bool(rows) and isinstance(rows[0][place], int) for place in range(len(header))]
    head = "".join(
        f'<th aria-sort="none"{" class=number" if number else ""}>'
        f'<button type="button">{html.escape(name)}</button></th>'
        for name, number in zip(header, numbers, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:_ROWS])
    more = f"<p>{len(rows) - _ROWS:,} more are not shown.</p>" if len(rows) > _ROWS else ""
    return (
        f'<div class="scroll"><table class="sortable"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        f"{more}"
    )


def _cell(cell: Any) -> str:
    if isinstance(cell, int):
        return f'<td class="number" data-value="{cell}">{cell:,}</td>'
    return f"<td>{html.escape(str(cell))}</td>"
