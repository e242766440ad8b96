"""Which table a change feed follows, in each shard of a space or in a store file.

The rows of a table are an object, whose number no other object of the shard ever has. So a table is known by that
number, whatever name it has at an epoch. One that was dropped and made again is another object: its rows go, and those
of the new one come if its columns are the same. After another number of shards, only names are left to go by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.relational import Column, TableSchema
from objectspace.relational.catalogue import record_of
from objectspace.relational.types import can_widen
from objectspace.space import may_be_table


class Place(NamedTuple):
    """Where changes come from: a shard, how many shards there are, and an epoch."""

    shard: int
    shards: int
    epoch: int


class Stored(NamedTuple):
    """A table as a shard has it at an epoch.

    Args:
        name: its whole name.
        number: that of the object that holds its rows; ``None`` of a table that the library makes, in each shard with
            another number, and never again.
        schema: its schema.
    """

    name: str
    number: int | None
    schema: TableSchema

    def is_itself(self, other: Stored | None) -> bool:
        """Return whether this is the very table that another one is, and not one that was made again."""
        return other is not None and (None in (self.number, other.number) or self.number == other.number)

    def has_columns_of(self, other: Stored) -> bool:
        """Return whether one that was made again goes on as the other one: as far as both have columns, they agree."""
        there = dict(zip(other.schema.ids, other.schema.columns))
        pairs = [(one, there[own]) for own, one in zip(self.schema.ids, self.schema.columns) if own in there]
        return all(one.name == old.name and fit(one, old) for one, old in pairs)


def fit(one: Column, other: Column) -> bool:
    """Return whether columns have types of which one holds all values of the other."""
    return can_widen(one.type, other.type) or can_widen(other.type, one.type)


class Tables(NamedTuple):
    """The tables of a space, whose records are read only when they are asked for.

    Args:
        space: the space.
        numbers: the numbers of all objects that may be tables, by their names.
    """

    space: PersistedObjectSpace
    numbers: Mapping[str, int]

    def get(self, name: str) -> Stored | None:
        """Return the table of a name, ``None`` if there is none."""
        record = record_of(self.space, name) if name in self.numbers else None
        return None if record is None else Stored(name, self.numbers[name], record.schema)

    def numbered(self, number: int) -> Stored | None:
        """Return the table whose rows are an object of a number, ``None`` if there is none."""
        return next((self.get(name) for name, own in self.numbers.items() if own == number), None)


def tables_of(space: PersistedObjectSpace) -> Tables:
    """Return the tables of a space."""
    found = {name: number for number, name, *kind in space.reader().index() if may_be_table(*kind)}
    return Tables(space, found)


def tables_at(store: CheckpointStore, epoch: int | None) -> Tables:
    """Return the tables of a store at an epoch that it has, or at its newest."""
    return tables_of(PersistedObjectSpace(store, _at=store.reader(epoch=epoch)))


def has_changed(before: Sequence[int | None], after: Sequence[int | None]) -> bool:
    """Return whether any shard has another table, or none, where it had one, by the numbers of both."""
    return any(old is not None and old != new for old, new in zip(before, after, strict=True))
