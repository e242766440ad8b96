"""``export`` and ``import``: objects as Parquet, CSV, lines of JSON or an SQLite table, and back."""

from __future__ import annotations

import csv
import importlib
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from checkpoint.errors import CheckpointError
from checkpoint.tool import printing
from checkpoint.tool.arrow import arrow, batches
from checkpoint.tool.command import (
    Address,
    cli,
    json_option,
    name_argument,
    require_folder,
    said_of,
    takes_path,
    takes_source,
)
from checkpoint.tool.contents import Contents, split_epoch
from checkpoint.tool.listing import takes_short_name
from checkpoint.tool.printing import Row
from checkpoint.tool.source import Source

ENDINGS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".db": "sqlite",
    ".sqlite": "sqlite",
    ".arrow": "arrow",
}


@cli.command()
@takes_source
@name_argument
@click.argument("target", type=Address(dir_okay=False))
@click.argument("checkpoint", required=False)
@json_option
@takes_short_name
def export(source: Source, name: str, target: str, checkpoint: str | None, is_json: bool) -> None:
    """Write what an object holds to a new file: .parquet, .csv, .jsonl, .arrow, or a table of an SQLite database (.db).

    A relational table gives its columns with their types, lists and structs as JSON text; a key-value table gives
    family, key, version and value; any other object gives the columns key and value, in a space also operator and
    shard. The file appears whole or not at all.

    \b
    Examples:
      checkpoint export state.db orders orders.parquet
      checkpoint export state.db counts counts.csv HEAD~1
    """
    kind = _ending(target)
    if Path(target).exists():
        raise CheckpointError(f"{target} exists already: give the path of a new file")
    require_folder(target)
    if checkpoint is None:
        name, checkpoint = split_epoch(source, name)
    contents = Contents(source, name, checkpoint)
    staged = Path(target).with_name(f".{uuid4().hex}.tmp")
    try:
        with said_of(Path(target), staged), printing.progress("rows") as show:
            rows = printing.watched(contents.rows(), show, contents.length)
            count = WRITERS[kind](staged, contents, rows)
            _publish(staged, Path(target))
    finally:
        for end in ("", "-wal", "-shm", "-journal"):
            with suppress(OSError):
                staged.with_name(staged.name + end).unlink(missing_ok=True)
    printing.emit(is_json, {"target": target, "rows": count}, f"{target}: {printing.count(count, 'row')}")


def _publish(staged: Path, target: Path) -> None:
    try:
        os.link(staged, target)
    except OSError:
        # Without hard links a rename has to do.
        if target.exists():
            raise CheckpointError(f"{target} exists already: give the path of a new file") from None
        staged.rename(target)


def _ending(target: str) -> str:
    ending = Path(target).suffix.lower()
    if ending not in ENDINGS:
        raise CheckpointError(f"{target}: the ending says the format; expected one of {', '.join(ENDINGS)}")
    return ENDINGS[ending]


def _write_jsonl(path: Path, contents: Contents, rows: Iterable[Row]) -> int:
    count = 0
    with path.open("wb") as file:
        for count, row in enumerate(rows, start=1):  # noqa: B007 - the number of the last one is the count
            file.write(printing.as_json(row).encode() + b"\n")
    return count


def _write_csv(path: Path, contents: Contents, rows: Iterable[Row]) -> int:
    count = 0
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(contents.header)
        for count, row in enumerate(rows, start=1):  # noqa: B007
            writer.writerow([printing.flat(row.get(column)) for column in contents.header])
    return count


def _write_parquet(path: Path, contents: Contents, rows: Iterable[Row]) -> int:
    arrow()
    parquet = importlib.import_module("pyarrow.parquet")
    schema, found = batches(contents, rows)
    count = 0
    # A file: Arrow takes the path itself for a URI if a folder in it has a colon.
    with path.open("wb") as file, parquet.ParquetWriter(file, schema) as writer:
        for batch in found:
            count += len(batch)
            writer.write_batch(batch)
    return count


def _write_arrow(path: Path, contents: Contents, rows: Iterable[Row]) -> int:
    pa = arrow()
    schema, found = batches(contents, rows)
    count = 0
    with pa.ipc.new_file(str(path), schema) as writer:
        for batch in found:
            count += len(batch)
            writer.write_batch(batch)
    return count


def _write_sqlite(path: Path, contents: Contents, rows: Iterable[Row]) -> int:
    import sqlite3
    from contextlib import closing

    if contents.name.lower().startswith("sqlite_"):
        others = ", ".join(ending for ending, kind in ENDINGS.items() if kind != "sqlite")
        raise CheckpointError(
            "SQLite keeps the names that begin with sqlite_ for itself, and takes no table"
            f" {contents.name!r}: export to one of {others}"
        )
    # By hand: sqlite-utils imports pandas if it is installed, and makes no table from no rows.
    columns = ", ".join(map(_quoted, contents.header))
    placeholders = ", ".join("?" * len(contents.header))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"CREATE TABLE {_quoted(contents.name)} ({columns})")
        cells = ([_stored(row.get(column)) for column in contents.header] for row in rows)
        done = database.executemany(f"INSERT INTO {_quoted(contents.name)} VALUES ({placeholders})", cells)
        return max(0, done.rowcount)


def _stored(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else printing.flat(value)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


WRITERS: dict[str, Callable[[Path, Contents, Iterable[Row]], int]] = {
    "jsonl": _write_jsonl,
    "csv": _write_csv,
    "parquet": _write_parquet,
    "arrow": _write_arrow,
    "sqlite": _write_sqlite,
}


@cli.command("import")
@takes_path
@click.argument("file", type=Address(dir_okay=False))
@click.argument("name")
@click.option("--key", help="The column whose values are the keys: makes a dictionary instead of a list.")
@click.option("--table", help="For an SQLite database: the table to read, if there are several.")
@click.option("--primary-key", help="Columns, separated by commas: makes a relational table with this key.")
@json_option
def import_(
    source: Source, file: str, name: str, key: str | None, table: str | None, primary_key: str | None, is_json: bool
) -> None:
    """Read a file (.jsonl, .csv, .parquet, .arrow or .db) into a new object, as one checkpoint. It writes.

    The object is a list of rows, with --key a dictionary, with --primary-key a relational table. The store is created
    if it does not exist. A dictionary whose rows have only one other column, `value`, holds the values alone.

    JSON lines bring back every value of an object as it was; of a table, they bring back what JSON has, and everything
    else as text. .parquet and .arrow bring back the types of a table, whole numbers as int64, lists and decimals
    without a scale as text. A CSV cell that is JSON is read as such; an SQLite database gives what its cells hold.

    \b
    Examples:
      checkpoint import state.db counts.csv counts --key key
      checkpoint import state.db orders.parquet orders --primary-key id
    """
    if source.is_location:
        source.require_file("import into a file")
    if key is not None and primary_key is not None:
        raise CheckpointError("--key makes a dictionary and --primary-key a table: give one of them")
    kind = _ending(file)
    if not Path(file).is_file():
        raise CheckpointError(f"{file} does not exist, or is no file")
    from checkpoint.tool.filling import fill
    from checkpoint.tool.reading import READERS

    with printing.progress("bytes" if kind in ("csv", "jsonl") else "rows") as show:
        rows = READERS[kind](Path(file), show, table)
        receipt = fill(source.path, name, rows, key, primary_key)
    fields = {"number": receipt.number, "epoch": receipt.epoch, "name": name, "slots": receipt.slots}
    text = f"checkpoint {receipt.number}: {printing.plain(name)} with {printing.count(receipt.slots, 'slot')}"
    printing.emit(is_json, fields, text)
