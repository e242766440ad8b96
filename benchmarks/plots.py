"""Plots as SVG files that are readable on light and on dark pages."""

from __future__ import annotations

import io
import re
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import measured
from benchmarks.report import EVEN_FROM, Standing, standings
from benchmarks.results import Case, Outcome, Table
from benchmarks.scripts import is_series

INK, LIGHT_INK = "#5a5a5a", "#b8b8b8"
"""Text and lines on light pages, and on dark ones."""

COLOURS = ("#d55e00", "#1f85cc", "#009e73", "#cc79a7", "#56b4e9", "#b8860b", "#7f7f7f", "#8c6bb1", "#e377c2", "#17a589")
MARKERS = "osD^vPX<>*"
RATIOS_SHOWN = 40

_STYLE = f"<style>@media (prefers-color-scheme: dark) {{ svg {{ --ink: {LIGHT_INK}; }} }}</style>"


def plot(outcome: Outcome, folder: Path) -> list[Path]:
    """Draw a scenario and return the files: lines over the states or steps, or the ratios where there is no axis."""
    found = []
    for axis, series in charts(outcome):
        name = file_name(f"{outcome.name}-{axis}")
        found.append(_save(folder / f"{name}.svg", _lines(outcome, axis, series)))
    for case in outcome.cases:
        if max((len(one.wall) for one in case.contestants.values()), default=0) >= EVEN_FROM:
            name = file_name(f"{outcome.name}-{case.state}-{case.label}-each")
            found.append(_save(folder / f"{name}.svg", _sequence(outcome, case)))
    for one in (one for one in outcome.tables if is_series(one)):
        found.append(_save(folder / f"{file_name(f'{outcome.name}-{one.title}')}.svg", _series(one)))
    compared = standings(outcome)
    if not found and compared:
        found.append(_save(folder / f"{outcome.name}-ratios.svg", _ratios(compared)))
    return found


def file_name(text: str) -> str:
    """Return a text as the name of a file.

    >>> file_name("spark: 1,000 lists")
    'spark-1-000-lists'
    """
    return re.sub(r"\W+", "-", text).strip("-").lower()


def charts(outcome: Outcome) -> list[tuple[str, list[Case]]]:
    """Return the charts of a scenario: by step at the largest state, by state for the last step that has them all."""
    if not outcome.cases:
        return []
    largest = max(case.state for case in outcome.cases)
    stepped = [case for case in outcome.cases if case.state == largest and case.x is not None]
    found = [(f"{outcome.unit}s at {largest:,}", stepped)] if len(stepped) > 1 else []
    states = {case.state for case in outcome.cases}
    for label in dict.fromkeys(case.label for case in outcome.cases):
        cases = [case for case in outcome.cases if case.label == label]
        if len(states) > 1 and {case.state for case in cases} == states:
            found.append((f"{outcome.state}, {label}", cases))
    return found


def _figure(width: float, height: float) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as pyplot

    settings: dict[Any, Any] = (
        {"svg.fonttype": "none", "svg.hashsalt": "benchmarks", "font.family": "sans-serif", "font.size": 10}
        | {f"{part}.color": INK for part in ("text", "xtick", "ytick", "grid")}
        | {"axes.edgecolor": INK, "axes.labelcolor": INK}
    )
    pyplot.rcParams.update(settings)
    figure, axes = pyplot.subplots(figsize=(width, height), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, alpha=0.25)
    return figure, axes


def _lines(outcome: Outcome, axis: str, cases: Sequence[Case]) -> Any:
    from matplotlib import ticker

    figure, axes = _figure(8, 4.2)
    by_state = len({case.state for case in cases}) > 1
    names = list(dict.fromkeys(name for case in cases for name in case.contestants))
    for place, name in enumerate(names):
        shown = [(case, case.contestants[name]) for case in cases if name in case.contestants]
        xs = [case.state if by_state else case.x or 0 for case, _ in shown]
        middles = [statistics.median(one.wall) / case.units for case, one in shown]
        spread = [
            [min(one.wall) / case.units for case, one in shown],
            [max(one.wall) / case.units for case, one in shown],
        ]
        is_ours = shown[0][1].role == "ours"
        colour = COLOURS[place % len(COLOURS)]
        style = "--" if shown[0][1].role in ("floor", "part") else "-"
        axes.plot(
            xs,
            middles,
            style,
            color=colour,
            marker=MARKERS[place % len(MARKERS)],
            label=name,
            lw=2.6 if is_ours else 1.3,
        )
        axes.fill_between(xs, *spread, color=colour, alpha=0.12, lw=0)
    axes.set(xscale="log", yscale="log", xlabel=axis, ylabel=f"time a {outcome.unit}")
    axes.yaxis.set_major_formatter(ticker.EngFormatter("s"))
    low, high = axes.get_ylim()
    # Between two powers of ten the ticks of the others must say what they are.
    axes.yaxis.set_minor_formatter(ticker.EngFormatter("s") if high / low < 20 else ticker.NullFormatter())
    axes.tick_params(axis="y", which="both", labelsize=9)
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _sequence(outcome: Outcome, case: Case) -> Any:
    """Draw each repetition after the other: the even and the uneven."""
    from matplotlib import ticker

    figure, axes = _figure(8, 4.2)
    for place, (name, one) in enumerate(case.contestants.items()):
        is_ours = one.role == "ours"
        xs, ys = range(1, len(one.wall) + 1), [seconds / case.units for seconds in one.wall]
        axes.plot(
            xs, ys, color=COLOURS[place % len(COLOURS)], label=name, lw=1.8 if is_ours else 0.9, zorder=3 - is_ours
        )
    axes.set(yscale="log", xlabel="repetition", ylabel=f"time a {outcome.unit}")
    axes.yaxis.set_major_formatter(ticker.EngFormatter("s"))
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _series(shown: Table) -> Any:
    """Draw the columns of a table over its rows: the first column of figures is ours."""
    from matplotlib import ticker

    figure, axes = _figure(8, 4.2)
    names, unit = shown.header[1:], ""
    for place, name in enumerate(names):
        found = [(int(row[0]), measured(row[place + 1])) for row in shown.rows]
        points = [(number, *figure) for number, figure in found if figure is not None]
        xs, ys = [number for number, *_ in points], [value for _, value, _ in points]
        unit = points[0][2] if points else unit
        style = {"marker": MARKERS[place % len(MARKERS)], "ms": 4} if len(xs) < EVEN_FROM else {}
        colour = COLOURS[place % len(COLOURS)]
        axes.plot(xs, ys, color=colour, label=name, lw=2.6 if place == 0 else 1.3, zorder=3 - (place > 0), **style)
    axes.set(yscale="log", xlabel=shown.header[0], ylabel="bytes" if unit == "B" else "time")
    axes.yaxis.set_minor_locator(ticker.LogLocator(subs=(2, 5)))
    for formatted in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        formatted(ticker.EngFormatter(unit))
    axes.tick_params(axis="y", which="both", labelsize=9)
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _ratios(compared: Iterable[Standing]) -> Any:
    from matplotlib import ticker

    shown = sorted(compared, key=lambda one: one.ratio.median)[-RATIOS_SHOWN:]
    figure, axes = _figure(8, 1.2 + 0.28 * len(shown))
    for place, one in enumerate(shown):
        colour = COLOURS[0] if one.is_loss else COLOURS[1]
        axes.plot([one.ratio.least, one.ratio.greatest], [place, place], color=colour, lw=1.5)
        axes.plot([one.ratio.median], [place], "o", color=colour, ms=5)
    axes.axvline(1, color=INK, lw=1)
    several = len({one.rival for one in shown}) > 1
    labels = [f"{one.rival}: {one.case}" if several else one.case for one in shown]
    axes.set_yticks(range(len(shown)), [label.replace("$", r"\$") for label in labels], fontsize=7)
    axes.set(xscale="log", xlabel="times as long: left of 1 we are faster")
    for axis in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        axis(ticker.FuncFormatter(lambda x, _: f"{x:g}"))
    axes.tick_params(axis="x", which="both", labelsize=8)
    return figure


def _save(path: Path, figure: Any) -> Path:
    import matplotlib.pyplot as pyplot

    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(adaptive(text.getvalue()))
    return path


def adaptive(svg: str) -> str:
    """Return a drawing whose ink follows the colour scheme of the reader.

    >>> adaptive('<svg id="a"><path style="stroke: #5a5a5a"/></svg>').count("var(--ink, #5a5a5a)")
    1
    """
    start = svg.index(">", svg.index("<svg")) + 1
    ink = svg[start:].replace(INK, f"var(--ink, {INK})")
    return re.sub(r"[ \t]+\n", "\n", svg[:start] + _STYLE + ink)
