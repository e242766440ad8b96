"""The columns of a change feed: what each of them is in a shard at an epoch.

Each shard numbers its columns itself, and never gives a number twice. So a column of the start is found by the number
that it has in that shard; anything else that a shard has under its name is another column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

from objectspace.errors import ObjectSpaceError
from objectspace.relational import Column, TableSchema
from objectspace.relational.arrow import schema_of
from objectspace.relational.types import can_widen
from objectspace.relational.values import BadValue, checker
from objectspace.spark.contents import BATCH_ROWS
from objectspace.spark.table_rows import Changes, arrays_of


class Place(NamedTuple):
    """Where changes come from: a shard, how many shards there are, and an epoch."""

    shard: int
    shards: int
    epoch: int


class Found(NamedTuple):
    """A column of a feed, with the default that it has in a shard, and what it is there.

    Args:
        column: the column.
        stored: the stored one, ``None`` if rows hold its default.
    """

    column: Column
    stored: Column | None


@dataclass(frozen=True)
class FeedColumns:
    """The columns that a change feed has from its start on, whatever the table had before or comes to have.

    Args:
        columns: the columns, as all shards could be read with at the start.
        epoch: the epoch of the start.
        schemas: the schema that each shard had then, ``None`` if it had no such table.
    """

    columns: tuple[Column, ...]
    epoch: int
    schemas: tuple[TableSchema | None, ...]

    def found_in(self, schema: TableSchema, before: TableSchema | None, place: Place, what: str) -> list[Found]:
        """Return what each column is in the schema of a shard at an epoch.

        Args:
            schema: the schema.
            before: the one just before that epoch, ``None`` if there was no such table.
            place: the shard and the epoch.
            what: what is read, for errors.

        Raises:
            ObjectSpaceError: it was dropped or renamed, or it cannot be told what it is.
        """
        at_start = self.schemas[place.shard] if len(self.schemas) == place.shards else None
        is_later = place.epoch > self.epoch
        try:
            if len(self.schemas) != place.shards:
                find = self._later_of_other_shards if is_later else self._older_of_other_shards
                return [find(column, schema) for column in self.columns]
            if is_later:
                return [_later(column, at_start, schema, before, self._claimed(at_start)) for column in self.columns]
            return [_older(column, at_start, schema) for column in self.columns]
        except _Lost as lost:
            raise ObjectSpaceError(
                f"{what} {lost}: start another feed, with a new load() and another checkpointLocation; if that does"
                " not have it either, with the option columns, or a schema, without it"
            ) from None

    def batches(self, found: Sequence[Found], epoch: int, changes: Changes, what: str) -> Iterator[pa.RecordBatch]:
        """Yield the changes of an epoch, whose rows have the values of the columns that were found.

        Raises:
            ObjectSpaceError: a column was widened since the start, and a value does not fit the type it had then.
        """
        fields = [pa.field("op", pa.string()), pa.field("epoch", pa.int64()), *schema_of(self.columns)]
        columns, stored = [one.column for one in found], [one.stored for one in found]
        while page := list(islice(changes, BATCH_ROWS)):
            ops, epochs = pa.array([op for op, _ in page], pa.string()), pa.array([epoch] * len(page), pa.int64())
            arrays = arrays_of(columns, stored, [row for _, row in page], what)
            yield pa.RecordBatch.from_arrays([ops, epochs, *arrays], schema=pa.schema(fields))

    def _claimed(self, at_start: TableSchema | None) -> set[int]:
        """Return the numbers that columns of the feed had in a shard at the start."""
        names = {column.name for column in self.columns}
        return {own for own, name in zip(at_start.ids, at_start.names) if name in names} if at_start else set()

    def _numbers(self, column: Column) -> set[int]:
        """Return the numbers that a column had in the shards of the start; 0 for one that did not have it."""
        known = [one for one in self.schemas if one is not None]
        return {one.ids[one.place_of(column.name)] if column.name in one.names else 0 for one in known}

    def _later_of_other_shards(self, column: Column, schema: TableSchema) -> Found:
        """Return a column after the shards of the start were divided, which had come to be alike before."""
        numbers = self._numbers(column)
        if len(numbers - {0}) != 1:
            raise _Lost(f"had column {column.name!r} under other numbers in other shards, which were divided since")
        stored = _numbered(max(numbers), schema)
        if stored is None or not _fit(column, stored):
            raise _Lost.dropped(column)
        if 0 in numbers and not _has_default_of(column, stored):
            raise _Lost.changed(column, stored)
        return Found(column, stored)

    def _older_of_other_shards(self, column: Column, schema: TableSchema) -> Found:
        """Return a column before the shards of the start were made by a division, until which all were alike."""
        numbers = self._numbers(column)
        if any(0 < number <= schema.last_id for number in numbers):  # They had it when they were divided.
            if len(numbers) > 1:
                raise _Lost.apart(column)
            stored = _numbered(max(numbers), schema)
            return Found(column, stored if stored is not None and can_widen(stored.type, column.type) else None)
        if not self._is_one_default(column):
            raise _Lost.apart(column)
        return Found(column, None)

    def _is_one_default(self, column: Column) -> bool:
        """Return whether rows without a column have the same value for it in all shards of the start."""
        having = [one.column(column.name) for one in self.schemas if one is not None and column.name in one.names]
        return all(_has_default_of(column, one) for one in having)


class _Lost(Exception):
    """It can no longer be said what a column is."""

    @classmethod
    def dropped(cls, column: Column) -> _Lost:
        """Say that a column is gone."""
        return cls(f"no longer has column {column.name!r}, which the feed began with")

    @classmethod
    def apart(cls, column: Column) -> _Lost:
        """Say that nothing tells what a column is in older rows."""
        return cls(
            f"has column {column.name!r} in shards that have dropped or added it in other ways since they were divided,"
            " so nothing tells what it is in rows from before"
        )

    @classmethod
    def changed(cls, column: Column, stored: Column) -> _Lost:
        """Say that rows that were given with one default have another one now."""
        return cls(
            f"has column {column.name!r} with the default {stored.default!r} now, and the feed has given rows without"
            f" it with {column.default!r}"
        )


def _older(column: Column, at_start: TableSchema | None, schema: TableSchema) -> Found:
    """Return a column in a shard up to the start: under the number that it had there then, or not yet there."""
    if at_start is None:
        stored = schema.column(column.name) if column.name in schema.names else None
    elif column.name in at_start.names:
        stored = _numbered(at_start.ids[at_start.place_of(column.name)], schema)
        column = replace(column, default=_cast(at_start.column(column.name).default, column))
    else:
        stored = None  # What had its name was another one, which is gone.
    return Found(column, stored if stored is not None and can_widen(stored.type, column.type) else None)


def _later(
    column: Column, at_start: TableSchema | None, schema: TableSchema, before: TableSchema | None, claimed: set[int]
) -> Found:
    """Return a column in a shard after the start."""
    if at_start is not None and column.name in at_start.names:
        stored = _numbered(at_start.ids[at_start.place_of(column.name)], schema)
        if stored is None:
            raise _Lost.dropped(column)
        column = replace(column, default=_cast(at_start.column(column.name).default, column))
    else:
        stored = _came_later(column, schema, before, claimed)
    if stored is not None and not _fit(column, stored):
        raise _Lost.dropped(column)
    return Found(column, stored)


def _came_later(column: Column, schema: TableSchema, before: TableSchema | None, claimed: set[int]) -> Column | None:
    """Return by its name a column that a shard did not have at the start, if it is the same one as before."""
    stored = schema.column(column.name) if column.name in schema.names else None
    if stored is not None and stored.id in claimed:
        return None  # Another column of the feed, which keeps its name there.
    if before is not None and column.name in before.names:
        if stored is None or stored.id != before.ids[before.place_of(column.name)]:
            raise _Lost.dropped(column)
    elif before is not None and stored is not None:
        if stored.id <= before.last_id:
            raise _Lost(f"has renamed another column to {column.name!r}, of which the feed has given the default")
        if not _has_default_of(column, stored):
            raise _Lost.changed(column, stored)
    return stored


def _numbered(number: int, schema: TableSchema) -> Column | None:
    return next((column for own, column in zip(schema.ids, schema.columns) if own == number), None)


def _fit(column: Column, stored: Column) -> bool:
    return can_widen(stored.type, column.type) or can_widen(column.type, stored.type)


def _has_default_of(column: Column, stored: Column) -> bool:
    """Return whether rows without a column hold its default as the feed has given it."""
    try:
        return repr(_cast(stored.default, column)) == repr(column.default)
    except BadValue:
        return False


def _cast(default: object, column: Column) -> object:
    """Return a default in the form of a column's type."""
    return None if default is None else checker(column.type)(default)
