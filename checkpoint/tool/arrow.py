"""What an object holds as Arrow data: a table with its columns' types, other objects with those of their values."""

from __future__ import annotations

import base64
import importlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, BinaryIO

from checkpoint.errors import CheckpointError
from checkpoint.tool import printing

if TYPE_CHECKING:
    from checkpoint.tool.contents import Contents
    from checkpoint.tool.printing import Row

BATCH_ROWS = 10_000


def arrow() -> Any:
    """Return pyarrow.

    Raises:
        CheckpointError: it is not installed, or does not load.
    """
    try:
        return importlib.import_module("pyarrow")
    except ModuleNotFoundError:
        raise CheckpointError("Arrow and Parquet take pyarrow: pip install 'objectspace[arrow]'") from None
    except ImportError as error:
        raise CheckpointError(f"Arrow and Parquet take pyarrow, which does not load here: {error}") from error


def batches(contents: Contents, rows: Iterable[Row]) -> tuple[Any, Iterator[Any]]:
    """Return the schema of an object, and its rows as batches of it.

    If there is no schema, the first 10,000 rows decide which types the columns have; a value that does not fit is an
    error.
    """
    pa = arrow()
    iterator = iter(rows)
    first = list(islice(iterator, BATCH_ROWS))
    typed = {column["name"]: str(column["type"]) for column in contents.columns or ()}
    schema = pa.schema([pa.field(name, _type(pa, typed.get(name), first, name)) for name in contents.header])
    return schema, _batches(pa, schema, chain(first, iterator), typed)


def write_stream(target: BinaryIO, contents: Contents, rows: Iterable[Row]) -> int:
    """Write rows as an Arrow IPC stream, and return how many there were."""
    pa, count = arrow(), 0
    schema, found = batches(contents, rows)
    with pa.ipc.new_stream(target, schema) as writer:
        for batch in found:
            count += len(batch)
            writer.write_batch(batch)
    return count


def _batches(pa: Any, schema: Any, rows: Iterator[Row], typed: dict[str, str]) -> Iterator[Any]:
    while batch := list(islice(rows, BATCH_ROWS)):
        arrays = [_array(pa, field, [row.get(field.name) for row in batch], typed.get(field.name)) for field in schema]
        yield pa.record_batch(arrays, schema=schema)


def _array(pa: Any, field: Any, cells: Sequence[Any], kind: str | None) -> Any:
    convert = _FROM_CELL.get(kind or "") or (Decimal if kind and kind.startswith("decimal(") else None)
    if convert is not None:
        values = [None if cell is None else convert(cell) for cell in cells]
    elif pa.types.is_string(field.type):
        values = [cell if cell is None or isinstance(cell, str) else printing.as_json(cell) for cell in cells]
    else:
        values = list(cells)
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, OverflowError) as error:
        raise CheckpointError(
            f"column {field.name!r}: a value is no {field.type} as those before it: {error}"
        ) from None


def _type(pa: Any, kind: str | None, rows: Sequence[Row], name: str) -> Any:
    """Return the type of a column: that of the schema, else the one that all values have, else text."""
    if kind is not None:
        if kind.startswith("decimal("):
            precision, scale = kind[8:-1].split(",")
            return pa.decimal128(int(precision), int(scale))
        return _types(pa).get(kind, pa.string())
    kinds = {type(row[name]) for row in rows if row.get(name) is not None}
    if kinds == {int} and all(abs(row[name]) < 2**63 for row in rows if row.get(name) is not None):
        return pa.int64()
    if kinds == {bool}:
        return pa.bool_()
    return pa.float64() if kinds in ({float}, {int, float}) else pa.string()


def _types(pa: Any) -> dict[str, Any]:
    """Return the types of Arrow; a decimal without digits, a list and a struct stay text."""
    return {
        "bool": pa.bool_(),
        "int16": pa.int16(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float32": pa.float32(),
        "float64": pa.float64(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "time": pa.time64("us"),
        "timestamp": pa.timestamp("us"),
        "timestamptz": pa.timestamp("us", "UTC"),
    }


_FROM_CELL: dict[str, Any] = {
    "float32": float,
    "float64": float,
    "binary": base64.b64decode,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamptz": datetime.fromisoformat,
}
