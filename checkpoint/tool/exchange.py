"""``export`` and ``import``: objects as Parquet, CSV, lines of JSON or an SQLite table, and back."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click
import orjson

from checkpoint.errors import CheckpointError
from checkpoint.tool import printing
from checkpoint.tool.command import cli, takes_source
from checkpoint.tool.content import State
from checkpoint.tool.source import Source, reader_at

BATCH_ROWS = 10_000

ENDINGS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".db": "sqlite", ".sqlite": "sqlite"}


@cli.command()
@takes_source
@click.argument("name")
@click.argument("target", type=click.Path(dir_okay=False))
@click.argument("checkpoint", required=False)
def export(source: Source, name: str, target: str, checkpoint: str | None) -> None:
    """Write what an object holds to a file: .parquet, .csv, .jsonl, or a table of an SQLite database (.db).

    A relational table gives its columns, any other object the columns key and value.

    \b
    checkpoint export state.db orders orders.parquet
    checkpoint export state.db counts counts.csv HEAD~1
    """
    kind = _ending(target)
    if Path(target).exists():
        raise CheckpointError(f"{target} exists already: give the path of a new file")
    with source.open() as store:
        state = State(reader_at(store, checkpoint))
        columns = state.columns(name)
        header = ["key", "value"] if columns is None else [column["name"] for column in columns]
        rows = (
            dict(zip(header, (entry.key, entry.value), strict=True)) if columns is None else entry.value
            for entry in state.entries(name)
        )
        count = WRITERS[kind](Path(target), header, rows, name)
    click.echo(f"{target}: {count:,} rows")


def _ending(target: str) -> str:
    ending = Path(target).suffix
    if ending not in ENDINGS:
        raise CheckpointError(f"{target}: the ending says the format; expected one of {', '.join(ENDINGS)}")
    return ENDINGS[ending]


Rows = Iterable[dict[str, Any]]


def _write_jsonl(path: Path, header: list[str], rows: Rows, name: str) -> int:
    count = 0
    with path.open("wb") as file:
        for row in rows:
            count += 1
            file.write(orjson.dumps(row, default=str, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS))
    return count


def _write_csv(path: Path, header: list[str], rows: Rows, name: str) -> int:
    count = 0
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for row in rows:
            count += 1
            writer.writerow([_flat(row.get(column)) for column in header])
    return count


def _flat(value: Any) -> Any:
    """Return a value that a cell can hold: numbers and text as they are, all else as JSON."""
    return value if value is None or isinstance(value, (str, int, float)) else printing.as_json(value)


def _write_parquet(path: Path, header: list[str], rows: Rows, name: str) -> int:
    try:
        pa, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise CheckpointError("Parquet takes pyarrow: pip install 'objectspace[arrow]'") from None
    count, iterator, writer = 0, iter(rows), None
    try:
        while batch := list(islice(iterator, BATCH_ROWS)):
            cells = {column: _column([row.get(column) for row in batch]) for column in header}
            table = pa.table(cells) if writer is None else pa.table(cells).cast(writer.schema)
            writer = writer or parquet.ParquetWriter(str(path), table.schema)
            writer.write_table(table)
            count += len(batch)
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        parquet.write_table(pa.table({column: pa.array([], pa.string()) for column in header}), str(path))
    return count


def _column(values: list[Any]) -> list[Any]:
    """Return the values of a column of one type: as they are where they have one, else as text."""
    kinds = {bool if isinstance(value, bool) else type(value) for value in values if value is not None}
    if kinds <= {int} or kinds <= {int, float} or kinds <= {str} or kinds <= {bool}:
        return values
    return [value if value is None or isinstance(value, str) else printing.as_json(value) for value in values]


def _write_sqlite(path: Path, header: list[str], rows: Rows, name: str) -> int:
    import sqlite_utils

    database = sqlite_utils.Database(path)
    table = database.table(name)
    table.insert_all(({column: _flat(row.get(column)) for column in header} for row in rows), batch_size=1_000)
    count: int = table.count if table.exists() else 0
    database.close()
    return count


WRITERS = {"jsonl": _write_jsonl, "csv": _write_csv, "parquet": _write_parquet, "sqlite": _write_sqlite}


@cli.command("import")
@takes_source
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.argument("name")
@click.option("--key", help="The column whose values are the keys: the object is a dictionary; else a list.")
def import_(source: Source, file: str, name: str, key: str | None) -> None:
    """Read a file (.jsonl, .csv or .parquet) into a new list or dictionary, as one checkpoint. It writes.

    The store is created where it does not exist. A dictionary whose rows have but one other column, `value`, holds the
    values alone.

    \b
    checkpoint import state.db counts.csv counts --key key
    """
    kind = _ending(file)
    if kind not in READERS:
        raise CheckpointError(f"{file}: import reads {', '.join(READERS)}")
    space_module = importlib.import_module("objectspace")
    with space_module.PersistedObjectSpace.open(source.path) as space:
        if name in space:
            raise CheckpointError(f"{source.path} has an object {name!r} already: choose another name")
        rows = READERS[kind](Path(file))
        if key is None:
            space.create_list(name).extend(rows)
        else:
            _fill(space.create_dictionary(name), rows, key)
        receipt = space.checkpoint()
    click.echo(f"checkpoint {receipt.number}: {name} with {receipt.slots:,} slots")


def _fill(target: Any, rows: Rows, key: str) -> None:
    for number, row in enumerate(rows, start=1):
        if key not in row:
            raise CheckpointError(f"row {number} has no column {key!r}: it has {', '.join(row)}")
        rest = {column: value for column, value in row.items() if column != key}
        target[row[key]] = rest["value"] if rest.keys() == {"value"} else rest


def _read_jsonl(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise CheckpointError(f"{path}, line {number} is no JSON: {error}") from None


def _read_csv(path: Path) -> Iterator[Any]:
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            yield {column: _guessed(text) for column, text in row.items()}


def _guessed(text: str) -> Any:
    """Return the value of a cell: what is JSON as JSON, all else as text."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _read_parquet(path: Path) -> Iterator[Any]:
    parquet = importlib.import_module("pyarrow.parquet")
    for batch in parquet.ParquetFile(path).iter_batches():
        yield from batch.to_pylist()


READERS = {"jsonl": _read_jsonl, "csv": _read_csv, "parquet": _read_parquet}
