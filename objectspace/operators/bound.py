"""Expressions that know their columns: their type, and their value for a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from objectspace.operators import rules
from objectspace.relational import Column, DataType, RelationalError, SchemaError, TableSchema
from objectspace.relational.schema import Row
from objectspace.relational.values import nearest_float32

RowFunction = Callable[[Row], Any]


class ExpressionError(RelationalError, ValueError):
    """A user's function failed on a row; the chunk that holds the row was not taken."""


def reader(schema: TableSchema, name: str) -> RowFunction:
    """Return a function that reads a column of a row; a ``float32`` becomes the nearest 32-bit number, however given.

    Raises:
        SchemaError: there is no such column.

    >>> reader(TableSchema([Column("f", "float32")]), "f")((0.1,))
    0.10000000149011612
    """
    place = schema.place_of(name)
    if schema.columns[place].type.kind != "float32":
        return itemgetter(place)
    rules.note(rules.FLOAT32)
    return lambda row: None if row[place] is None else nearest_float32(row[place])


@dataclass(frozen=True)
class Bound:
    """An expression that knows its columns.

    Args:
        type: the type of its values; ``None`` for a span of time, which no column can hold.
        nullable: whether it may be NULL.
        value: its value for one row.
    """

    type: DataType | None
    nullable: bool
    value: RowFunction

    def values(self, rows: Sequence[Row]) -> list[Any]:
        """Return its values for some rows."""
        return list(map(self.value, rows))

    def column(self, name: str) -> Column:
        """Return the column that holds its values.

        Raises:
            SchemaError: no column can hold a span of time, or a NULL without a type.
        """
        if self.type is None:
            raise SchemaError(
                f"column {name!r} would hold a span of time, or NULL of no type: add a span to a timestamp, cast a NULL"
            )
        return Column(name, self.type, self.nullable)


@dataclass(frozen=True)
class ArrowBound(Bound):
    """An expression of pyarrow, computed for many rows at once."""

    compute: Callable[[Sequence[Row]], list[Any]]

    def values(self, rows: Sequence[Row]) -> list[Any]:
        """Return its values for some rows."""
        return self.compute(rows)


@dataclass(frozen=True)
class Constant(Bound):
    """A value that is the same for every row, and known before there are rows."""

    constant: Any


class NamedRow:
    """A row whose values are read by the names of their columns: ``row.price``, ``row["price"]``."""

    __slots__ = ("_names", "_row")

    def __init__(self, names: dict[str, int], row: Row) -> None:
        self._names, self._row = names, row

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise SchemaError(f"there is no column {name!r}: the columns are {', '.join(self._names)}")
        return self._row[self._names[name]]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __repr__(self) -> str:
        return repr(dict(zip(self._names, self._row, strict=True)))


def named_reader(schema: TableSchema) -> Callable[[Row], tuple[NamedRow]]:
    """Return a function that makes a row a function's only argument, with its columns as :func:`reader` reads them."""
    names = {name: place for place, name in enumerate(schema.names)}
    if all(column.type.kind != "float32" for column in schema.columns):
        return lambda row: (NamedRow(names, row),)
    reads = [reader(schema, name) for name in schema.names]
    return lambda row: (NamedRow(names, tuple([read(row) for read in reads])),)
