"""Rows as text: a JSON array of the number of the row's layout and the values.

A *layout* is the list of column ids that a row was written with. A schema that has changed has more than one, and old
rows stay as they are: a column that is not in the layout of a row takes its default, one that is no longer in the
schema is skipped, a renamed one is found by its id, and a widened one reads the narrower value::

    layout 0: (k, v)         [0,7,"a"]         read with (k, v, w int64 default 5):    (7, "a", 5)
    layout 1: (k, v, w)      [1,8,"b",6]                                               (8, "b", 6)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from operator import itemgetter
from typing import Any

import orjson

from checkpoint.run import fault_of
from objectspace.errors import DamagedObjectError, ObjectSpaceError
from objectspace.objects.base import DAMAGE
from objectspace.relational.bulk import split_texts
from objectspace.relational.errors import RowError, SchemaMismatchError
from objectspace.relational.schema import Row, TableSchema
from objectspace.relational.types import FLOATS, DataType
from objectspace.relational.values import Cell, from_cell, to_cell
from objectspace.space import TABLES

Layout = tuple[int, ...]
"""The ids of the columns of a stored row."""

StoredRows = Callable[[], Iterable[tuple[Any, Any]]]
"""A function that returns (encoded key, text) of the rows of a table."""


class RowCodec:
    """Turns checked rows into text and back.

    Args:
        schema: the schema to read and write with.
        layouts: the layouts of stored rows, by their numbers; the layout of the schema is added if it is new.
        table: the name of the table, for errors.
        stored: a function that returns its rows as they are stored, used to find the key of a damaged row.

    >>> from objectspace.relational import Column
    >>> codec = RowCodec(TableSchema([Column("k", "int64"), Column("v", "date")], ["k"]))
    >>> from datetime import date
    >>> codec.encode((7, date(2013, 1, 31)))
    '[0,7,"2013-01-31"]'
    >>> codec.decode('[0,7,"2013-01-31"]')
    (7, datetime.date(2013, 1, 31))
    """

    def __init__(
        self, schema: TableSchema, layouts: Iterable[Layout] = (), table: str = "", stored: StoredRows = tuple
    ) -> None:
        self.schema, self._table, self._stored = schema, table, stored
        mine = schema.ids
        self.layouts = [*map(tuple, layouts)]
        if mine not in self.layouts:
            self.layouts.append(mine)
        self.current = self.layouts.index(mine)
        self._to = _present(to_cell(column.type) for column in schema.columns)
        self._from = _present(from_cell(column.type) for column in schema.columns)
        self._floats = [place for place, column in enumerate(schema.columns, 1) if column.type.kind in FLOATS]
        self._is_inexact = any(map(_has_other_spellings, (column.type for column in schema.columns)))

    def encode(self, row: Row) -> str:
        """Return the text of a checked row.

        Raises:
            RowError: a value has no text.
        """
        cells = [self.current, *row]
        for place, cell in self._to:
            cells[place] = cell(cells[place])
        try:
            return orjson.dumps(cells).decode()
        except orjson.JSONEncodeError as error:
            raise RowError(f"a row cannot be stored: {error}; the row is {row!r:.200}") from None

    def encode_all(self, rows: Sequence[Row]) -> list[str]:
        """Return the texts of many checked rows. Time: a third of that of as many single calls.

        Raises:
            RowError: a value has no text.

        >>> from objectspace.relational import Column
        >>> RowCodec(TableSchema([Column("k", "int64")], ["k"])).encode_all([(7,), (8,)])
        ['[0,7]', '[0,8]']
        """
        if len(rows) < 2 or not self.schema.columns:
            return list(map(self.encode, rows))
        try:
            parts = split_texts(orjson.dumps(self._cells(rows)).decode(), len(rows))
        except orjson.JSONEncodeError:
            parts = None
        if parts is None:
            return list(map(self.encode, rows))
        head = f"[{self.current},"
        return [head + part + "]" for part in parts]

    def decode(self, text: str | bytes) -> Row:
        """Return the row of a text, with the columns of the schema.

        Raises:
            DamagedObjectError: the text is not that of a row.
        """
        try:
            cells = orjson.loads(text)
            if cells[0] != self.current:
                cells = self._fitted(cells)
            for place, cell in self._from:
                cells[place] = cell(cells[place])
            return tuple(cells[1:])
        except ObjectSpaceError:
            raise
        except DAMAGE as error:
            raise self._damaged(text, error) from error

    def decode_all(self, texts: Sequence[str]) -> list[Row]:
        """Return the rows of many texts. Time: half of that of as many single calls.

        Raises:
            DamagedObjectError: one of the texts is not that of a row.
        """
        try:
            return self._decoded(texts)
        except DAMAGE:
            return list(map(self.decode, texts))  # Decoding the damaged one raises.

    def _decoded(self, texts: Sequence[str]) -> list[Row]:
        rows = self._parsed(texts)
        for place, cell in self._from:
            if place in self._floats and _AS_THEY_ARE.issuperset(map(type, map(itemgetter(place), rows))):
                continue
            for cells in rows:
                cells[place] = cell(cells[place])
        return [tuple(cells[1:]) for cells in rows]

    def cells(self, texts: Sequence[str], places: Sequence[int]) -> list[list[Any]]:
        """Return the cells of some columns of many rows, column by column.

        Raises:
            DamagedObjectError: one of the texts is not that of a row.
        """
        try:
            rows = self._parsed(texts)
            return [[row[place + 1] for row in rows] for place in places]
        except DAMAGE:
            for text in texts:
                self.decode(text)  # Decoding the damaged one raises.
            raise

    def same(self, one: str, other: str) -> bool:
        """Return whether two texts stand for rows that are equal in SQL: 1.0 and 1.00, 0.0 and -0.0 are."""
        if one == other:
            return True
        if not self._is_inexact and one.startswith(f"[{self.current},") and other.startswith(f"[{self.current},"):
            return False
        return self.schema.equal(self.decode(one), self.decode(other))

    def _cells(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Return many rows in values that JSON can hold, without their layout."""
        finite = [place for place in self._floats if _are_finite(map(itemgetter(place - 1), rows))]
        to = [(place, cell) for place, cell in self._to if place not in finite]
        if not to:
            return rows
        columns: list[Iterable[Any]] = list(zip(*rows))
        for place, cell in to:
            columns[place - 1] = map(cell, columns[place - 1])
        return list(zip(*columns))

    def _parsed(self, texts: Sequence[str]) -> list[list[Any]]:
        # No text holds a line break, so one that lost its closing quote is not completed by its neighbour.
        rows: list[list[Any]] = orjson.loads("[" + ",\n".join(texts) + "]")
        if len(rows) != len(texts):
            rows = list(map(orjson.loads, texts))  # A damaged one holds more than a row.
        if {cells[0] for cells in rows} - {self.current}:
            rows = [cells if cells[0] == self.current else self._fitted(cells) for cells in rows]
        return rows

    def _damaged(self, text: object, error: Exception) -> DamagedObjectError:
        key = next((key for key, found in self._stored() if found == text), None)
        where = f"table {self._table!r}" + ("" if key is None else f", the row of the encoded key {key!r}")
        rows = f"space.get_sorted_dictionary({self._table!r})"
        delete = "drop the table" if key is None else f"delete this row with {rows}.pop({key!r})"
        why = fault_of(text) or error
        return DamagedObjectError(
            f"{where}: what is stored cannot be read ({why}); found {text!r:.80}, expected a JSON array of the"
            f" number of a layout and the values; {delete}, or go back with space.rollback(epoch=...)"
        )

    def _fitted(self, cells: list[Any]) -> list[Any]:
        """Return the cells of a row of another layout as cells of the current one."""
        if cells[0] >= len(self.layouts):
            raise SchemaMismatchError(
                f"a row has layout {cells[0]}, and the catalogue lists those up to {len(self.layouts) - 1}: the entry"
                f" of the table in the dictionary {TABLES!r} is not that of its rows; go back to a checkpoint where it"
                " is"
            )
        stored = dict(zip(self.layouts[cells[0]], cells[1:], strict=True))
        fitted = [self.current]
        for own, column in zip(self.schema.ids, self.schema.columns):
            if own in stored:
                fitted.append(stored[own])
            else:
                cell = to_cell(column.type)
                # A new copy each time if it could be changed in place.
                default = deepcopy(column.default) if column.type.is_nested else column.default
                fitted.append(cell(default) if cell else default)
        return fitted


def _are_finite(numbers: Iterable[float | None]) -> bool:
    """Return whether all numbers that are there are finite; false also if they are so great that their sum is not."""
    return math.isfinite(sum(filter(None, numbers)))


def _present(cells: Iterable[Cell | None]) -> list[tuple[int, Cell]]:
    """Return the place in a stored row of each column that needs a conversion, with the conversion."""
    return [(place, cell) for place, cell in enumerate(cells, 1) if cell is not None]


def _has_other_spellings(kind: DataType) -> bool:
    """Return whether equal values of a type may have different texts."""
    if kind.element is not None:
        return _has_other_spellings(kind.element)
    return kind.kind in (*FLOATS, "decimal") or any(_has_other_spellings(field) for _, field in kind.fields)


_AS_THEY_ARE = frozenset({float, type(None)})
"""The cells of a column of floats that are already its values: those that are not finite are text."""
