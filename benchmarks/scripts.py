"""Programs that measure for themselves: they are run, and the Markdown tables that they print are read."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.figures import Spread
from benchmarks.registry import Script
from benchmarks.results import Outcome, Table

_BAR = re.compile(r"(?<!\\)\|")
"""What parts two cells: a bar within a cell is escaped."""

SERIES = "micro-batch"
"""The heading of the first column of a table whose other columns are measured one after the other."""

_RATIO = re.compile(r"^([\d.]+) \(([\d.]+)-([\d.]+)\)$")


def run_script(script: Script, *, quick: bool) -> Outcome:
    """Run a script in a process of its own and return its tables."""
    outcome = Outcome(script.name, script.group, script.title, script.why, better=script.better)
    outcome.failure = script.missing()
    if outcome.failure:
        return outcome
    command = [sys.executable, "-m", script.module, *(script.quick if quick else script.full)]
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=script.patience)
    except subprocess.TimeoutExpired as error:
        # What it had measured by then counts; it comes as bytes.
        outcome.tables = list(tables_in((error.stdout or b"").decode()))
        outcome.failure = f"took more than {script.patience:.0f} s"
    else:
        outcome.tables = list(tables_in(done.stdout))
        if done.returncode or not outcome.tables:
            outcome.failure = (done.stderr.strip().splitlines() or ["it printed no table"])[-1]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    outcome.seconds = time.perf_counter() - started
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    outcome.notes = f"`python -m {script.module}`: {outcome.seconds:.0f} s, {cpu:.0f} s of CPU"
    return outcome


def tables_in(text: str) -> Iterator[Table]:
    r"""Yield the tables of a Markdown text, each under the heading before it.

    >>> [found] = tables_in("### Gets\n\n| what | here |\n| --- | --- |\n| one | 2 us |\n")
    >>> found.title, found.header, found.rows
    ('Gets', ['what', 'here'], [['one', '2 us']])
    """
    title, rows = "", []
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            title = line.lstrip("#").strip()
        if line.startswith("|"):
            rows.append([cell.strip() for cell in _BAR.split(line.strip()[1:-1])])
        elif rows:
            header, *body = (row for row in rows if not all(re.fullmatch(r":?-+:?", cell) for cell in row))
            yield Table(title, header, body)
            rows = []


def is_series(table: Table) -> bool:
    """Tell a table of every micro-batch, which is drawn, from one of results."""
    return table.header[:1] == [SERIES]


def ratios_in(table: Table) -> dict[tuple[str, str], Spread]:
    """Return the ratios of a table, by the label of their row and the heading of their column.

    >>> ratios_in(Table("Gets", ["what", "us", "ratio"], [["one", "1,653.8", "1.46 (1.31-1.90)"]]))
    {('one', 'ratio'): Spread(median=1.46, least=1.31, greatest=1.9)}
    """
    found = {}
    for row in table.rows:
        ratios = {place: match for place, cell in enumerate(row) if (match := _RATIO.match(cell))}
        label = ", ".join(cell for cell in row[: min(ratios, default=0)] if not _is_figure(cell))
        for place, match in ratios.items():
            found[label, table.header[place]] = Spread(*(float(part) for part in match.groups()))
    return found


def _is_figure(cell: str) -> bool:
    """Tell a measured figure ("27.9 ns", "1.88") from a label ("list of 10", "10,000")."""
    return bool(re.fullmatch(r"[\d,]*\.?\d+ (ns|us|ms|s|B|kB|MB|MiB|GB)|[\d,]*\d\.\d+", cell))
