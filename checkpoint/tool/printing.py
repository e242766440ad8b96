"""How commands print: aligned columns on a terminal and in a pipe alike, JSON, CSV, and progress on a terminal only."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
import orjson

SPARKS = "▁▂▃▄▅▆▇█"


def short(value: Any, width: int = 60) -> str:
    """Return a value in one line: JSON, cut where it is long."""
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    text = text.replace("\n", "\\n")
    return text if len(text) <= width else text[: width - 1] + "…"


def as_json(value: Any) -> str:
    """Return a value as JSON in one line."""
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Yield the lines of a table; columns of numbers are aligned to the right, and nothing is drawn.

    >>> list(table(["name", "slots"], [["a", 7], ["bc", 1200]]))
    ['name  slots', 'a         7', 'bc    1,200']
    """
    texts = [[_cell(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *texts, strict=True)]
    numbers = [bool(rows) and all(type(row[c]) in (int, float) for row in rows) for c in range(len(header))]
    for row in [list(header), *texts]:
        padded = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, numbers, strict=True)
        ]
        yield "  ".join(padded).rstrip()


def _cell(cell: Any) -> str:
    return f"{cell:,}" if type(cell) is int else "" if cell is None else str(cell)


def print_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table."""
    for line in table(header, rows):
        click.echo(line)


def csv_line(cells: Sequence[Any]) -> str:
    """Return one line of CSV without its end."""
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(
        [cell if isinstance(cell, (str, int, float)) or cell is None else as_json(cell) for cell in cells]
    )
    return out.getvalue()


def sparkline(numbers: Sequence[int]) -> str:
    """Return numbers as a line of blocks.

    >>> sparkline([0, 1, 2, 4])
    '▁▂▄▇'
    """
    top = max(numbers, default=0) or 1
    return "".join(SPARKS[min(len(SPARKS) - 1, number * len(SPARKS) // (top + 1))] for number in numbers)


@contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """Give a function that shows (done, total) with rate and time left, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    with click.progressbar(length=1, label=label, file=sys.stderr, show_pos=True) as bar:

        def _show(done: int, total: int) -> None:
            bar.length = max(total, 1)
            bar.update(done - bar.pos)

        yield _show
