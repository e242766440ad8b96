"""Rows and changes of a relational table, as Arrow takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import islice
from math import inf, isfinite
from typing import Any

import pyarrow as pa

from objectspace.errors import ObjectSpaceError
from objectspace.relational import Column, RowError, StorageTable
from objectspace.relational.arrow import array_of, schema_of
from objectspace.relational.memtable import Operation
from objectspace.relational.schema import Row
from objectspace.relational.types import FLOATS, INTEGERS, DataType
from objectspace.relational.values import BadValue, checker, nearest_float32
from objectspace.spark.contents import BATCH_ROWS
from objectspace.spark.pushdown import Bounds

Changes = Iterator[tuple[str, Row]]
"""Pairs of an operation and a row."""


def bounded(table: StorageTable, bounds: Bounds) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table within bounds."""
    rows = table.scan(bounds.prefix, bounds.lower, bounds.upper, bounds.inclusive)
    while page := list(islice(rows, BATCH_ROWS)):
        yield pa.RecordBatch.from_arrays(_arrays(table, page), schema=table.arrow_schema())


def filled(table: StorageTable, columns: Sequence[Column], bounds: Bounds) -> Iterator[pa.RecordBatch]:
    """Yield some columns of the rows of a table within bounds; the table may lack columns or have narrower ones.

    Args:
        table: the table, with those of the columns that it has, in their order.
        columns: the columns.
        bounds: the bounds.
    """
    found = [table.schema.column(one.name) if one.name in table.columns else None for one in columns]
    rows = table.scan(bounds.prefix, bounds.lower, bounds.upper, bounds.inclusive)
    while page := list(islice(rows, BATCH_ROWS)):
        arrays = arrays_of(columns, found, page, f"table {table.name!r}")
        yield pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns))


def halves(changes: Iterable[Operation]) -> Changes:
    """Yield the net changes of keys as rows that go and come."""
    for change in changes:
        if change.old is not None:
            yield ("-" if change.new is None else "U-", change.old)
        if change.new is not None:
            yield ("+" if change.old is None else "U+", change.new)


def arrays_of(
    columns: Sequence[Column], found: Sequence[Column | None], rows: Sequence[Row], what: str
) -> list[pa.Array]:
    """Return rows as arrays of some columns.

    Args:
        columns: the columns.
        found: what each of them is in the rows, which have only those that are there; the others get their defaults.
        rows: the rows, at least one.
        what: what is read, for errors.

    Raises:
        ObjectSpaceError: a value does not fit the type of its column.
    """
    stored = zip(*rows, strict=True)
    return [
        array_of([column.default] * len(rows), column) if there is None else _array(next(stored), column, there, what)
        for column, there in zip(columns, found, strict=True)
    ]


def _array(values: Sequence[Any], column: Column, there: Column, what: str) -> pa.Array:
    if there.type == column.type:
        return array_of(values, column)
    check = checker(column.type)
    try:
        return array_of([None if value is None else check(_narrowed(value, column.type)) for value in values], column)
    except (BadValue, RowError) as error:
        raise ObjectSpaceError(
            f"{what}: column {column.name!r} is {there.type} now, and the feed began with {column.type}, which does not"
            f" hold this value: start another one, with a new load(), or a schema, which has that type; {error}"
        ) from None


def _narrowed(value: Any, kind: DataType) -> Any:
    """Return a value of a wider type in the form of a narrower one that holds it; others as they are.

    Raises:
        BadValue: it would be rounded.
    """
    if kind.element is not None:
        return [None if item is None else _narrowed(item, kind.element) for item in value]
    if kind.kind in INTEGERS and isinstance(value, float | Decimal) and isfinite(value) and value == int(value):
        return int(value)
    return _narrowed_float(value, kind) if kind.kind in FLOATS else value


def _narrowed_float(value: Any, kind: DataType) -> float:
    try:
        near = nearest_float32(value) if kind.kind == "float32" else float(value)
    except OverflowError:
        near = inf
    if near != value and value == value:
        raise BadValue(f"expected a {kind}, found {value}, which it would round")
    return near


def _arrays(table: StorageTable, rows: Sequence[Row]) -> list[pa.Array]:
    columns = [table.schema.column(name) for name in table.columns]
    return [array_of(values, column) for values, column in zip(zip(*rows, strict=True), columns, strict=True)]
