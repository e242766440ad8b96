"""Reading the files that ``import`` takes, row by row, each a dictionary or any other value of JSON."""

from __future__ import annotations

import csv
import importlib
import io
import json
import re
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from checkpoint.errors import CheckpointError
from checkpoint.inherited import require_own
from checkpoint.tool.arrow import arrow
from checkpoint.tool.printing import Show

_EVERY = 1000
"""After how many rows progress is shown."""


def _read_jsonl(path: Path, show: Show, table: str | None) -> Iterator[Any]:
    size = path.stat().st_size
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if number % _EVERY == 0:
                show(file.tell(), size)
            if not line.strip():
                continue
            try:
                yield _parsed(line)
            except (ValueError, RecursionError) as error:
                raise CheckpointError(f"{path}, line {number} is no JSON: {error}") from None


def _read_csv(path: Path, show: Show, table: str | None) -> Iterator[Any]:
    size = path.stat().st_size
    csv.field_size_limit(sys.maxsize)  # a value may be of any length
    with path.open("rb") as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
        reader = csv.DictReader(text)
        try:
            _require_names(path, reader.fieldnames or ())
            for number, row in enumerate(reader, start=1):
                if number % _EVERY == 0:
                    show(file.tell(), size)
                if None in row or None in row.values():
                    raise CheckpointError(
                        f"{path}, line {reader.line_num} does not have {len(row) - (None in row)} cells"
                    )
                yield {column: guessed(cell) for column, cell in row.items()}
        except (csv.Error, UnicodeDecodeError) as error:
            raise CheckpointError(f"{path}, line {reader.line_num} is no CSV in UTF-8: {error}") from None


def _require_names(path: Path, names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise CheckpointError(f"{path} has several columns {name!r}: give each a name")


def guessed(text: str) -> Any:
    """Return the value of a cell: what is JSON as JSON, an empty one as None, everything else as text.

    >>> guessed("7"), guessed("007"), guessed(""), guessed('{"a":1}')
    (7, '007', None, {'a': 1})
    """
    if not text:
        return None
    try:
        return _parsed(text.encode())
    except (ValueError, RecursionError):
        return text


def _parsed(text: bytes) -> Any:
    """Return a value of JSON, its whole numbers with all their digits: orjson makes floats of those beyond 64 bits."""
    value = orjson.loads(text)
    return json.loads(text) if _LONG_NUMBER.search(text) else value


_LONG_NUMBER = re.compile(rb"[0-9]{19}")


def _read_parquet(path: Path, show: Show, table: str | None) -> Iterator[Any]:
    pa = arrow()
    parquet = importlib.import_module("pyarrow.parquet")
    with path.open("rb") as opened:  # Arrow takes the path itself for a URI if a folder in it has a colon.
        try:
            file = parquet.ParquetFile(opened)
            _require_names(path, file.schema_arrow.names)
            yield from _rows_of(file.iter_batches(), show, file.metadata.num_rows)
        except pa.ArrowException as error:
            raise CheckpointError(f"{path} is no Parquet file: {error}") from None


def _read_arrow(path: Path, show: Show, table: str | None) -> Iterator[Any]:
    pa = arrow()
    with path.open("rb") as file:
        try:
            reader = _arrow_batches(pa, path, file)
            yield from _rows_of(reader, show, None)
        except pa.ArrowException as error:
            raise CheckpointError(f"{path} is no Arrow file or stream: {error}") from None


def _arrow_batches(pa: Any, path: Path, file: BinaryIO) -> Iterator[Any]:
    try:
        found = pa.ipc.open_file(file)
    except pa.ArrowException:
        file.seek(0)
        stream = pa.ipc.open_stream(file)
        _require_names(path, stream.schema.names)
        yield from stream
        return
    _require_names(path, found.schema.names)
    for number in range(found.num_record_batches):
        yield found.get_batch(number)


def _rows_of(batches: Any, show: Show, total: int | None) -> Iterator[Any]:
    done = 0
    for batch in batches:
        yield from batch.to_pylist()
        done += len(batch)
        show(done, total)


def _read_sqlite(path: Path, show: Show, table: str | None) -> Iterator[Any]:
    require_own(path)  # it may be a store
    uri = f"{path.resolve().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as database:
            names = [
                row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")
            ]
            wanted = names[0] if table is None and len(names) == 1 else table
            if wanted not in names:
                raise CheckpointError(
                    f"{path}: name one of its tables with --table: it has {', '.join(names) or 'none'}"
                )
            quoted = '"' + str(wanted).replace('"', '""') + '"'
            total = database.execute(f"SELECT count(*) FROM {quoted}").fetchone()[0]
            cursor = database.execute(f"SELECT * FROM {quoted}")
            columns = [column[0] for column in cursor.description]
            for number, row in enumerate(cursor, start=1):
                if number % _EVERY == 0:
                    show(number, total)
                yield dict(zip(columns, row, strict=True))
    except sqlite3.Error as error:
        raise CheckpointError(f"{path} cannot be read: SQLite says {error}") from None


READERS: dict[str, Callable[[Path, Show, str | None], Iterator[Any]]] = {
    "jsonl": _read_jsonl,
    "csv": _read_csv,
    "parquet": _read_parquet,
    "arrow": _read_arrow,
    "sqlite": _read_sqlite,
}
