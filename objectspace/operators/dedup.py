"""Dedup: the first row of each key of an append-only input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from objectspace.operators.base import Operator, Watermark, column_names
from objectspace.operators.canonical import identity
from objectspace.operators.chunks import check_chunk, ordered_by, refuse_retractions
from objectspace.relational import Chunk, SchemaError, TableSchema
from objectspace.relational.checks import checked_watermark
from objectspace.relational.schema import Row
from objectspace.relational.watermarks import is_below


class Dedup(Operator):
    """The first row of each key: an earlier epoch wins, within an epoch the smallest stream key.

    It returns the rows at the barrier, in the order of the key. The input must be append-only; where rows can be
    retracted, ``GroupTopN`` with a limit of 1 keeps the rows that may take their place.

    Args:
        schema: the schema of the input; its primary key is the stream key. If its watermark column is part of the key,
            a watermark removes the keys below it.
        key: the names of the columns that make rows the same; NULL is the same as NULL.

    Raises:
        SchemaError: a column does not exist.

    >>> from objectspace import VolatileObjectSpace
    >>> from objectspace.relational import Column
    >>> schema = TableSchema([Column("k", "string"), Column("id", "int64")], primary_key=["id"])
    >>> dedup = Dedup(schema, key=["k"])
    >>> dedup.open(VolatileObjectSpace(), "dedup")
    >>> _ = dedup.process(Chunk.from_rows(schema, [("+", ("a", 2)), ("+", ("a", 1)), ("+", ("b", 3))]))
    >>> dedup.barrier(epoch=1)[0].rows()
    [('+', ('a', 1)), ('+', ('b', 3))]
    """

    def __init__(self, schema: TableSchema, key: Sequence[str]) -> None:
        super().__init__()
        if not key:
            raise SchemaError("Dedup takes at least one key column")
        key = column_names(key)
        self.input, self.late_rows = schema, 0
        self._next_watermark: Any = None
        self._window = schema.watermark_column if schema.watermark_column in key else None
        keys = sorted(key, key=lambda name: name != self._window)
        self._output = TableSchema(schema.columns, list(key), watermark_column=self._window)
        self._kept = TableSchema(schema.columns, keys, watermark_column=self._window)
        places = [schema.place_of(name) for name in keys]
        self._order = schema if schema.primary_key else TableSchema(schema.columns, schema.names)
        self._key_of = identity([schema.columns[place].type for place in places], places)
        self._forget()

    @property
    def schema(self) -> TableSchema:
        """The schema of the output: that of the input, with the key as its primary key."""
        return self._output

    def state(self) -> list[tuple[str, TableSchema]]:
        """Return the table of the first rows."""
        return [("AppendOnlyDedup", self._kept)]

    def open(self, space: Any, name: str) -> None:
        """Create its state under a name, or open it again after recovery."""
        super().open(space, name)
        self._table = self._tables["AppendOnlyDedup"]
        self._forget()

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Take some rows; the output waits for the barrier.

        Raises:
            InconsistentOperationError: a row is retracted.

        Time: O(rows of the chunk).
        """
        self._check_open()
        check_chunk(self.input, chunk)
        refuse_retractions(self, chunk)
        found, key_of = self._found, self._key_of
        for _, row in chunk.rows():
            key = key_of(row)
            if key not in found or self._comes_before(row, found[key]):
                found[key] = row
        return []

    def kept_as(self, column: str) -> str | None:
        """Return the name that a column of the input has in the output: the same."""
        return column

    def watermark(self, column: str, value: Any, side: str = "input") -> list[Watermark]:
        """Accept a watermark; if the column is in the key, what is below the watermark is removed at the next barrier.

        Raises:
            RowError: it is not a value of the column.
        """
        value = checked_watermark(self.input.column(column), value)
        if column == self._window:
            self._next_watermark = value if self._next_watermark is None else max(self._next_watermark, value)
        return [(column, value)]

    def barrier(self, epoch: int) -> list[Chunk]:
        """End an epoch: return the rows whose key is new, and seal the table."""
        self._check_epoch(epoch)
        chunks = self._flush()
        if self._next_watermark is not None:
            self._table.update_watermark(self._next_watermark)
        self._table.commit(epoch)
        self._next_watermark = None
        return chunks

    def _forget(self) -> None:
        self._found: dict[Any, Row] = {}
        self._next_watermark = None

    def _comes_before(self, row: Row, other: Row) -> bool:
        encode, key_of = self._order.key_encoder.encode, self._order.key_of
        return encode(key_of(row)) < encode(key_of(other))

    def _flush(self) -> list[Chunk]:
        given, closed = list(self._found.values()), self._table.watermark
        if closed is not None and self._window is not None:
            place = self.input.place_of(self._window)
            given = [row for row in given if not is_below(row[place], closed)]
        stored = self._table.get_rows(list(map(self._kept.key_of, given)))
        new = [row for row, known in zip(given, stored, strict=True) if known is None]
        self.late_rows += len(self._found) - len(given)
        self._found = {}
        rows = ordered_by(self._kept.encode_keys(new), new)
        self._table.insert_rows(rows)
        return [Chunk(self._output, ["+"] * len(rows), rows)] if rows else []
