"""Rows and changes of a relational table, as Arrow takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Self

import pyarrow as pa

from objectspace.errors import ObjectSpaceError
from objectspace.relational import Column, StorageTable, TableSchema
from objectspace.relational.arrow import array_of, schema_of
from objectspace.relational.memtable import Operation
from objectspace.relational.schema import Row
from objectspace.spark.contents import BATCH_ROWS
from objectspace.spark.pushdown import Bounds

Changes = Iterator[tuple[str, Row]]
"""Pairs of an operation and a row."""


def bounded(table: StorageTable, bounds: Bounds) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table within bounds."""
    rows = table.scan(bounds.prefix, bounds.lower, bounds.upper, bounds.inclusive)
    while page := list(islice(rows, BATCH_ROWS)):
        yield pa.RecordBatch.from_arrays(_arrays(table, page), schema=table.arrow_schema())


def halves(changes: Iterable[Operation]) -> Changes:
    """Yield the net changes of keys as rows that go and come."""
    for change in changes:
        if change.old is not None:
            yield ("-" if change.new is None else "U-", change.old)
        if change.new is not None:
            yield ("+" if change.old is None else "U+", change.new)


@dataclass(frozen=True)
class FeedColumns:
    """The columns that a change feed has from its start on, whatever the table had and comes to have.

    Args:
        columns: the columns as the table had them then, with their ids.
    """

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, schema: TableSchema, names: Sequence[str]) -> Self:
        """Return the columns of a table that have some names.

        Raises:
            SchemaError: there is none of a name.
        """
        settled = schema.with_ids()
        return cls(tuple(replace(settled.column(name), id=settled.ids[settled.place_of(name)]) for name in names))

    def names_in(self, schema: TableSchema, what: str) -> list[str | None]:
        """Return what each column is called in the schema of an epoch; ``None`` where it was added later.

        Raises:
            ObjectSpaceError: it was dropped before.
        """
        found = dict(zip(schema.ids, schema.names, strict=True))
        for column in self.columns:
            if column.id not in found and column.id <= schema.last_id:
                raise ObjectSpaceError(
                    f"{what} has no column {column.name!r} any more, which the feed began with: start another one, with"
                    " the option columns, or a schema, without it"
                )
        return [found.get(column.id) for column in self.columns]

    def batches(self, found: Sequence[str | None], epoch: int, changes: Changes) -> Iterator[pa.RecordBatch]:
        """Yield the changes of an epoch, whose rows have the values of the columns that were found."""
        fields = [pa.field("op", pa.string()), pa.field("epoch", pa.int64()), *schema_of(self.columns)]
        while page := list(islice(changes, BATCH_ROWS)):
            ops, epochs = pa.array([op for op, _ in page], pa.string()), pa.array([epoch] * len(page), pa.int64())
            stored = zip(*[row for _, row in page], strict=True)
            cells = [
                [one.default] * len(page) if name is None else next(stored) for one, name in zip(self.columns, found)
            ]
            arrays = [array_of(values, column) for values, column in zip(cells, self.columns, strict=True)]
            yield pa.RecordBatch.from_arrays([ops, epochs, *arrays], schema=pa.schema(fields))


def _arrays(table: StorageTable, rows: Sequence[Row]) -> list[pa.Array]:
    columns = [table.schema.column(name) for name in table.columns]
    return [array_of(values, column) for values, column in zip(zip(*rows, strict=True), columns, strict=True)]
