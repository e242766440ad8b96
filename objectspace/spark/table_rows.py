"""Rows and changes of a relational table, as Arrow takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa

from objectspace.errors import ObjectSpaceError
from objectspace.relational import Column, RowError, StorageTable, TableSchema
from objectspace.relational.arrow import array_of, schema_of
from objectspace.relational.memtable import Operation
from objectspace.relational.schema import Row
from objectspace.relational.types import can_widen
from objectspace.relational.values import BadValue, checker
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
    """Yield the rows of a table within bounds with some columns, of which it may lack some or have narrower ones.

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


class Place(NamedTuple):
    """Where changes come from: a shard, of how many there are, at an epoch."""

    shard: int
    shards: int
    epoch: int


@dataclass(frozen=True)
class FeedColumns:
    """The columns that a change feed has from its start on, whatever the table had and comes to have.

    Each shard numbers its columns itself: what one is called in other epochs is told by its id in that shard. Another
    number of shards has others, in which columns are found by their names.

    Args:
        columns: the columns, as all shards could be read with at the start.
        epoch: the epoch of the start.
        schemas: the schema that each shard had then, ``None`` where it had no such table.
    """

    columns: tuple[Column, ...]
    epoch: int = 0
    schemas: tuple[TableSchema | None, ...] = ()

    def found_in(self, schema: TableSchema, place: Place, what: str) -> list[Column | None]:
        """Return what each column is in the schema of a shard at an epoch; ``None`` where it was added later.

        Raises:
            ObjectSpaceError: it was dropped before.
        """
        at_start = self.schemas[place.shard] if len(self.schemas) == place.shards else None
        try:
            if at_start is not None:
                return [_by_id(column, at_start, schema) for column in self.columns]
            return [self._by_name(column, schema, is_later=place.epoch > self.epoch) for column in self.columns]
        except _Dropped as dropped:
            raise ObjectSpaceError(
                f"{what} has no column {dropped.args[0]!r} any more, which the feed began with: start another one, with"
                " the option columns, or a schema, without it"
            ) from None

    def batches(
        self, found: Sequence[Column | None], epoch: int, changes: Changes, what: str
    ) -> Iterator[pa.RecordBatch]:
        """Yield the changes of an epoch, whose rows have the values of the columns that were found.

        Raises:
            ObjectSpaceError: a column was widened since the start, and a value does not fit the type of then.
        """
        fields = [pa.field("op", pa.string()), pa.field("epoch", pa.int64()), *schema_of(self.columns)]
        while page := list(islice(changes, BATCH_ROWS)):
            ops, epochs = pa.array([op for op, _ in page], pa.string()), pa.array([epoch] * len(page), pa.int64())
            arrays = arrays_of(self.columns, found, [row for _, row in page], what)
            yield pa.RecordBatch.from_arrays([ops, epochs, *arrays], schema=pa.schema(fields))

    def _by_name(self, column: Column, schema: TableSchema, *, is_later: bool) -> Column | None:
        """Return the column in a shard of which nothing is known of the start of the feed."""
        found = schema.column(column.name) if column.name in schema.names else None
        if found is None and not is_later:
            found = self._former(column, schema)
        known = [one for one in self.schemas if one is not None]
        if found is None and is_later and known and all(column.name in one.names for one in known):
            raise _Dropped(column.name)
        if found is not None and not is_later and not can_widen(found.type, column.type):
            return None  # Another one that had its name.
        return found

    def _former(self, column: Column, schema: TableSchema) -> Column | None:
        """Return what is called otherwise since, where all shards of the start have it under the same id."""
        known = [one for one in self.schemas if one is not None]
        ids = {one.ids[one.place_of(column.name)] for one in known if column.name in one.names}
        found = [one for own, one in zip(schema.ids, schema.columns) if {own} == ids]
        return next((one for one in found if not any(one.name in there.names for there in known)), None)


class _Dropped(Exception):
    """A column is gone."""


def _by_id(column: Column, at_start: TableSchema, schema: TableSchema) -> Column | None:
    """Return a column of a shard by the id that it had there at the start; by its name where it was not there then."""
    if column.name not in at_start.names:
        return schema.column(column.name) if column.name in schema.names else None
    own = at_start.ids[at_start.place_of(column.name)]
    if own in schema.ids:
        return schema.columns[schema.ids.index(own)]
    if own <= schema.last_id:
        raise _Dropped(column.name)
    return None


def arrays_of(
    columns: Sequence[Column], found: Sequence[Column | None], rows: Sequence[Row], what: str
) -> list[pa.Array]:
    """Return rows as arrays of some columns.

    Args:
        columns: the columns.
        found: what each of them is in the rows, which have those that are there; the others have their defaults.
        rows: the rows, one at least.
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
        return array_of([None if value is None else check(value) for value in values], column)
    except (BadValue, RowError) as error:
        raise ObjectSpaceError(
            f"{what}: column {column.name!r} is {there.type} now, and the feed began with {column.type}, which does not"
            f" hold this value: start another one, with a new load(), or a schema, which has that type; {error}"
        ) from None


def _arrays(table: StorageTable, rows: Sequence[Row]) -> list[pa.Array]:
    columns = [table.schema.column(name) for name in table.columns]
    return [array_of(values, column) for values, column in zip(zip(*rows, strict=True), columns, strict=True)]
