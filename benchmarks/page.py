"""The page of the results in the docs, made by ``python -m benchmarks page``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from benchmarks import plots, report
from benchmarks.results import Outcome, Run
from benchmarks.timing import table

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "performance.md"

INTRODUCTION = """# Performance

This page is made by `python -m benchmarks page` from the results of `python -m benchmarks run`; nothing on it is typed.
[How the benchmarks work](benchmarks.md) says more. The scenarios that we lose stand first. Contestants of a scenario do
the same work in turn (A B A B), each in a process of its own, after one repetition that warms up; a ratio is the median
of the ratios of the pairs of repetitions, with the least and the greatest. Above 1 we are slower.

- *time* is wall time; *CPU* is that of all threads, both the median of the repetitions.
- *written* is what the kernel counts (`write_bytes` less `cancelled_write_bytes` of `/proc/self/io`), over all
  repetitions and the threads behind them: pages of 4,096 bytes that were dirtied, so appending ten bytes counts 4,096.
  The journal of the file system is not in it. After each repetition, and outside of its time, the files of the
  contestant are synced, so that nobody waits for what another has left to be written.
- *on disk* is what its files take at the end of the step; *memory* is the peak of the process, and its peak before it
  opened anything.
- A *floor* promises less than we do and shows how low one could get; it is no rival.
"""


def write_page(run: Run, source: str, page: Path = PAGE) -> list[Path]:
    """Write the page and its plots, and return the files.

    Args:
        run: the results.
        source: what the page names as their file.
        page: the file of the page; the plots come into ``performance/`` beside it.
    """
    if page.is_dir():
        raise IsADirectoryError(f"{page} is a folder: give the path of a file")
    folder = page.parent / page.stem
    for old in folder.glob("*.svg"):
        old.unlink()
    drawn = {outcome.name: plots.plot(outcome, folder) for outcome in run.outcomes}
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(_parts(run, source, page, drawn)))
    return [page, *(path for paths in drawn.values() for path in paths)]


def _parts(run: Run, source: str, page: Path, drawn: dict[str, list[Path]]) -> Iterator[str]:
    yield INTRODUCTION
    yield f"{report.conditions(run)}The figures: `{source}`.\n"
    yield f"#{report.losing(run, True)[2:]}"
    yield report.writing(run, True)
    missing = report.absences(run.outcomes)
    if missing:
        yield table("Not run", ("scenario", "who", "why"), missing)
    for outcome in report.losses_first(run):
        yield from _section(outcome, page, drawn[outcome.name])
    yield f"#{report.losing(run, False)[2:]}"
    yield report.writing(run, False)


def _section(outcome: Outcome, page: Path, drawn: list[Path]) -> Iterator[str]:
    yield f"## {outcome.name}\n\n{outcome.title}.\n\n{outcome.why}\n"
    if outcome.made:
        yield f"{outcome.made}\n"
    yield from (f"![{path.stem}]({quote(os.path.relpath(path, page.parent))})\n" for path in drawn)
    yield from report.scenario_tables(outcome, series=False)
    if outcome.configurations:
        lines = (f"- {name}: {configuration}." for name, configuration in outcome.configurations.items())
        yield "\n".join(["Configurations, and why:", "", *lines, ""])
    if outcome.notes:
        yield f"{outcome.notes}\n"
