"""``show``: what an object holds, in the form of its kind."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import click
from click.core import ParameterSource

from checkpoint.errors import CheckpointError
from checkpoint.tool import printing
from checkpoint.tool.command import Limit, cli, json_option, name_argument, say_limit, takes_source
from checkpoint.tool.contents import Contents, split_epoch
from checkpoint.tool.listing import takes_short_name
from checkpoint.tool.printing import Row
from checkpoint.tool.source import Source


@cli.command()
@takes_source
@name_argument
@click.option("-n", "--limit", type=Limit(), default=50, show_default=True, help="How many; 0 for all.")
@click.option("--from", "lower", help="The least index or key: a number, or text.")
@click.option("--to", "upper", help="The greatest index or key.")
@click.option("--where", "conditions", multiple=True, help="For a table: COLUMN=VALUE; also != < <= > >=; repeatable.")
@click.option(
    "--format",
    "shape",
    type=click.Choice(["table", "json", "csv", "arrow"]),
    default="table",
    show_default=True,
    help="json: one line per entry; arrow: an Arrow IPC stream.",
)
@json_option
@takes_short_name
def show(
    source: Source,
    name: str,
    limit: int,
    lower: str | None,
    upper: str | None,
    conditions: tuple[str, ...],
    shape: str,
    is_json: bool,
) -> None:
    """Show what an object holds, in the form of its kind; NAME may be NAME@EPOCH.

    A list is shown by index, a queue from the head, a stack from the top, a dictionary in insertion order; a table as
    rows with column names, without those below its watermark; a key-value table, named scope/table, by family. In a
    space all shards of an operator are read, one after the other: anything but a row of a table then begins with its
    operator and shard.

    \b
    Examples:
      checkpoint show state.db counts
      checkpoint show state.db counts@12 --json
      checkpoint show state.db events --from 100 --to 120
      checkpoint show state.db orders --where carrier=UA --where 'delay>60'
      checkpoint show state.db orders -n 0 --format arrow > orders.arrow
    """
    shape = _shape(shape, is_json=is_json)
    name, point = split_epoch(source, name)
    contents = Contents(source, name, point, conditions, lower, upper)
    found = contents.rows()
    rows = islice(found, limit or None)
    if shape == "arrow":
        from checkpoint.tool.arrow import write_stream

        if sys.stdout.isatty():
            raise CheckpointError("Arrow data is not for a terminal: send it to a file or a pipe")
        write_stream(sys.stdout.buffer, contents, rows)
    elif shape == "table":
        _show_table(contents, rows)
    else:
        _show_lines(contents, rows, shape)
    # It may take long to find out whether more rows fulfil conditions, or lie in other shards.
    if limit and contents.given >= limit and (conditions or source.is_location or next(found, None) is not None):
        say_limit(limit)


def _shape(shape: str, *, is_json: bool) -> str:
    """Return the shape of the rows that ``--format`` and ``--json`` ask for together."""
    asked = click.get_current_context().get_parameter_source("shape") is not ParameterSource.DEFAULT
    if is_json and asked and shape != "json":
        raise click.UsageError(f"--json and --format {shape} ask for two shapes: give one of them")
    return "json" if is_json else shape


def _show_table(contents: Contents, found: Iterator[Row]) -> None:
    is_table = contents.is_table or len(contents.header) > 2
    # The widths of columns depend on all rows, and so does how much of a space was counted; all else goes by.
    if is_table or not contents.is_counted:
        rows: Iterable[Row] = list(found)
    else:
        rows = chain(list(islice(found, 1)), found)  # What is refused at once is refused without a first line.
    # If the limit was reached, the other shards were not even opened.
    more = ("" if contents.is_counted else " or more") + (" stored" if contents.has_watermark else "")
    click.echo(f"{printing.plain(contents.name)} = {contents.kind} of {contents.length:,}{more}")
    if is_table:
        cells = [[_cell(row.get(column)) for column in contents.header] for row in rows]
        printing.print_table(list(contents.header), cells)
        return
    for row in rows:
        first, *rest = (row[column] for column in contents.header)
        click.echo(" = ".join([printing.key(first), *map(printing.short, rest)]))


def _cell(value: Any) -> Any:
    return value if type(value) in (int, float) else "NULL" if value is None else printing.short(value, 40)


def _show_lines(contents: Contents, rows: Iterator[Row], shape: str) -> None:
    if shape == "csv":
        _echo_csv(contents.header)
    for row in rows:
        ordered = [row.get(column) for column in contents.header]
        if shape == "json":
            click.echo(printing.as_json(dict(zip(contents.header, ordered, strict=True))))
        else:
            _echo_csv(ordered)


def _echo_csv(cells: Sequence[Any]) -> None:
    """Print a line of CSV: as it is in a pipe, and on a terminal without what that would obey."""
    line = printing.csv_line(cells)
    click.echo(printing.plain(line) if sys.stdout.isatty() else line, color=True)
