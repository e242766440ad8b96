"""The columns of a change feed: what each of them is in a shard at an epoch.

Each shard numbers its columns itself, and never gives a number twice. So a column of the start is found by the number
that it has in that shard; anything else that a shard has under its name is another column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
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
from objectspace.spark.feed_table import Place, Stored, Tables, fit
from objectspace.spark.table_rows import Changes, arrays_of


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
    """The table that a change feed follows, and the columns that it has from its start on, whatever becomes of both.

    Args:
        columns: the columns, as all shards could be read with at the start.
        epoch: the epoch of the start.
        starts: the table as each shard had it then, ``None`` if it did not have it.
    """

    columns: tuple[Column, ...]
    epoch: int
    starts: tuple[Stored | None, ...]

    @property
    def is_of_library(self) -> bool:
        """Whether it is a result of a pipeline, which has no number and is never made again."""
        return any(one is not None and one.number is None for one in self.starts)

    def of_shard(self, shard: int, shards: int) -> FeedColumns:
        """Return what the tasks of a shard need: of the tables at the start only that of the shard, if it had one.

        Args:
            shard: the number of the shard.
            shards: how many there are where it reads.
        """
        own = self.starts[shard] if len(self.starts) == shards else None
        if own is None:
            return self
        return replace(self, starts=tuple(own if number == shard else None for number in range(shards)))

    def table_in(self, tables: Tables, place: Place, only: Collection[int] | None = None) -> Stored | None:
        """Return which of the tables of a shard at an epoch is that of the feed, ``None`` if none is.

        Args:
            tables: the tables.
            place: the shard and the epoch.
            only: of a new feed, the number that the table has up to the start, if there is one: it gives no other.
        """
        if only is not None and not self._is_later(place):
            return next((tables.numbered(number) for number in only), None)
        start = self._start(place)
        found = None if start is None or start.number is None else tables.numbered(start.number)
        if found is not None:
            return found
        names = {one.name for one in (self.starts if start is None else [start]) if one is not None}
        return next((one for name in sorted(names) if (one := tables.get(name)) is not None), None)

    def found_in(self, table: Stored, before: Stored | None, place: Place, what: str) -> list[Found]:
        """Return what each column is in the table of a shard at an epoch.

        Args:
            table: the table.
            before: the one just before that epoch, ``None`` if there was none; the table itself if that is no matter.
            place: the shard and the epoch.
            what: what is read, for errors.

        Raises:
            ObjectSpaceError: it was dropped or renamed, or it cannot be told what it is.
        """
        try:
            if len(self.starts) == place.shards:
                return self._found(table, before, place)
            if self._is_later(place):
                return [self._later_of_other_shards(column, table, before) for column in self.columns]
            if before is not None and not table.is_itself(before) and not table.has_columns_of(before):
                raise _Lost.made_again(before.schema, table.schema)
            return [self._older_of_other_shards(column, table.schema) for column in self.columns]
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

    def _start(self, place: Place) -> Stored | None:
        """Return the table as a shard had it at the start, if the shards are those of the start."""
        return self.starts[place.shard] if len(self.starts) == place.shards else None

    def _is_later(self, place: Place) -> bool:
        return place.epoch > self.epoch

    def _found(self, table: Stored, before: Stored | None, place: Place) -> list[Found]:
        start = self._start(place)
        at_start = None if start is None else start.schema
        # What was not there just before was made again, and may have got the number of the old one, if that is unused.
        is_new = before is None and self._is_later(place)
        if start is not None and (is_new or not table.is_itself(start)) and not table.has_columns_of(start):
            is_older = before is not None and table.is_itself(before)
            raise (_Lost.apart_since if is_older else _Lost.made_again)(start.schema, table.schema)
        if not self._is_later(place):
            return [_older(column, at_start, table.schema) for column in self.columns]
        was = before.schema if before is not None and table.is_itself(before) else None
        names = {column.name for column in self.columns}
        claimed = {own for own, name in zip(at_start.ids, at_start.names) if name in names} if at_start else set[int]()
        return [_later(column, at_start, table.schema, was, claimed) for column in self.columns]

    def _numbers(self, column: Column) -> set[int]:
        """Return the numbers that a column had in the shards of the start; 0 for one that did not have it."""
        known = [one.schema for one in self.starts if one is not None]
        return {one.ids[one.place_of(column.name)] if column.name in one.names else 0 for one in known}

    def _later_of_other_shards(self, column: Column, table: Stored, before: Stored | None) -> Found:
        """Return a column after the shards of the start were divided, which had come to be alike before."""
        numbers = self._numbers(column)
        if len(numbers - {0}) != 1:
            raise _Lost(f"had column {column.name!r} under other numbers in other shards, which were divided since")
        stored = _numbered(max(numbers), table.schema)
        if stored is None:
            raise _Lost.dropped(column)
        if not table.is_itself(before):  # Only names tell that the columns are numbered as before.
            was = column if before is None else _numbered(stored.id, before.schema)
            if was is None or was.name != stored.name:
                raise _Lost.made_again(None if before is None else before.schema, table.schema)
        _require_fit(column, stored)
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
        schemas = [one.schema for one in self.starts if one is not None]
        return all(_has_default_of(column, one.column(column.name)) for one in schemas if column.name in one.names)


class _Lost(Exception):
    """It can no longer be said what a column is."""

    @classmethod
    def dropped(cls, column: Column) -> _Lost:
        """Say that a column is gone."""
        return cls(f"no longer has column {column.name!r}, which the feed began with")

    @classmethod
    def renamed(cls, column: Column, stored: Column) -> _Lost:
        """Say that a column has another name, which nothing tells later."""
        return cls(f"has renamed column {column.name!r}, which it got after the feed began, to {stored.name!r}")

    @classmethod
    def made_again(cls, old: TableSchema | None, new: TableSchema) -> _Lost:
        """Say that what has the name of the table is another one."""
        before = "" if old is None else f", before it had {', '.join(old.names)}"
        return cls(f"was made again with other columns, or in another order: it has {', '.join(new.names)}{before}")

    @classmethod
    def apart_since(cls, old: TableSchema, new: TableSchema) -> _Lost:
        """Say that a table that is not that of the start has other columns, which it may have got at any time."""
        return cls(
            "is another one than the feed began with, as it was made again or cleared since, and has other columns:"
            f" it has {', '.join(new.names)}, that one had {', '.join(old.names)}"
        )

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
        # If its type has come to hold more than that of the feed, the first value that does not fit ends the feed.
        return Found(replace(column, default=_cast(at_start.column(column.name).default, column)), stored)
    stored = _came_later(column, schema, before, claimed)
    if stored is not None:
        _require_fit(column, stored)
    return Found(column, stored)


def _came_later(column: Column, schema: TableSchema, before: TableSchema | None, claimed: set[int]) -> Column | None:
    """Return by its name a column that a shard did not have at the start, if it is the same one as before."""
    stored = _named(column, schema, claimed)
    was = None if before is None else _named(column, before, claimed)
    if was is not None and (stored is None or stored.id != was.id):
        renamed = _numbered(was.id, schema)
        raise _Lost.dropped(column) if renamed is None else _Lost.renamed(column, renamed)
    if before is not None and was is None and stored is not None:
        if stored.id <= before.last_id:
            raise _Lost(f"has renamed another column to {column.name!r}, of which the feed has given the default")
        if not _has_default_of(column, stored):
            raise _Lost.changed(column, stored)
    return stored


def _named(column: Column, schema: TableSchema, claimed: set[int]) -> Column | None:
    """Return the column of a name, unless it is another column of the feed, which has this name in the shard."""
    found = schema.column(column.name) if column.name in schema.names else None
    return None if found is None or found.id in claimed else found


def _numbered(number: int, schema: TableSchema) -> Column | None:
    return next((column for own, column in zip(schema.ids, schema.columns) if own == number), None)


def _require_fit(column: Column, stored: Column) -> None:
    if not fit(column, stored):
        raise _Lost(f"has column {column.name!r} as {stored.type}, and the feed began with {column.type}")


def _has_default_of(column: Column, stored: Column) -> bool:
    """Return whether rows without a column hold its default as the feed has given it."""
    try:
        return repr(_cast(stored.default, column)) == repr(column.default)
    except BadValue:
        return False


def _cast(default: object, column: Column) -> object:
    """Return a default in the form of a column's type."""
    return None if default is None else checker(column.type)(default)
