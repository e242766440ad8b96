"""Rows and changes of a relational table, as Arrow takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import pyarrow as pa

from objectspace.relational import StorageTable
from objectspace.relational.arrow import array_of
from objectspace.relational.memtable import Operation
from objectspace.relational.schema import Row
from objectspace.spark.contents import BATCH_ROWS
from objectspace.spark.pushdown import Bounds


def bounded(table: StorageTable, bounds: Bounds) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table within bounds."""
    rows = table.scan(bounds.prefix, bounds.lower, bounds.upper, bounds.inclusive)
    while page := list(islice(rows, BATCH_ROWS)):
        yield pa.RecordBatch.from_arrays(_arrays(table, page), schema=table.arrow_schema())


def halves(changes: Iterable[Operation]) -> Iterator[tuple[str, Row]]:
    """Yield the net changes of keys as rows that go and come."""
    for change in changes:
        if change.old is not None:
            yield ("-" if change.new is None else "U-", change.old)
        if change.new is not None:
            yield ("+" if change.old is None else "U+", change.new)


def fed(table: StorageTable, epoch: int, changes: Iterator[tuple[str, Row]]) -> Iterator[pa.RecordBatch]:
    """Yield the changes of an epoch with the columns of a change feed."""
    schema = pa.schema([pa.field("op", pa.string()), pa.field("epoch", pa.int64()), *table.arrow_schema()])
    while page := list(islice(changes, BATCH_ROWS)):
        ops, epochs = pa.array([op for op, _ in page], pa.string()), pa.array([epoch] * len(page), pa.int64())
        arrays = _arrays(table, [row for _, row in page])
        yield pa.RecordBatch.from_arrays([ops, epochs, *arrays], schema=schema)


def _arrays(table: StorageTable, rows: Sequence[Row]) -> list[pa.Array]:
    columns = [table.schema.column(name) for name in table.columns]
    return [array_of(values, column) for values, column in zip(zip(*rows, strict=True), columns, strict=True)]
