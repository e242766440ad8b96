"""One side of a join: its rows by join key, and for each row how many of the other side match it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from objectspace.relational import Column, StateTable, TableSchema
from objectspace.relational.schema import Row

DEGREE = "_degree"
"""The column that holds how many rows of the other side match a row."""


class Entry:
    """A stored row, and how many rows of the other side match it; -1 where nobody counts them."""

    __slots__ = ("degree", "row")

    def __init__(self, row: Row, degree: int = -1) -> None:
        self.row, self.degree = row, degree


Group = dict[bytes, Entry]
"""The rows of one join key, by their keys in the table."""


class JoinSide:
    """The rows of one input.

    Degrees change far more often than rows do, so they have a table of their own, and only where the side needs them:
    where its rows may come out without a match, or depend on there being one.

    Args:
        schema: the schema of the input; its primary key is the stream key.
        join_key: the columns that are compared with those of the other side.
        null_safe: of each of them whether NULL equals NULL.
        counts: whether degrees are kept.
        cache_keys: of how many join keys the rows stay in memory.
        watermark_column: the column whose watermark cleans the tables.
        ordered_by: columns that follow the join key in the keys of the tables.
    """

    def __init__(
        self,
        schema: TableSchema,
        join_key: Sequence[str],
        null_safe: Sequence[bool],
        *,
        counts: bool,
        cache_keys: int,
        watermark_column: str | None = None,
        ordered_by: Sequence[str] = (),
    ) -> None:
        self.schema, self.counts = schema, counts
        self.nulls: Row = (None,) * len(schema.columns)
        self._places = [schema.place_of(name) for name in join_key]
        self._strict_places = [place for place, safe in zip(self._places, null_safe, strict=True) if not safe]
        leading = [*join_key, *ordered_by]
        key = [*leading, *(name for name, _ in schema.primary_key if name not in leading)]
        self.state_schema = TableSchema(schema.columns, key, watermark_column=watermark_column)
        columns = [schema.column(name) for name in dict.fromkeys(key)]
        degree = Column(DEGREE, "int64")
        self.degree_schema = TableSchema(
            [Column(c.name, c.type, c.nullable) for c in columns] + [degree], key, watermark_column=watermark_column
        )
        self._degree_places = [schema.place_of(column.name) for column in columns]
        self._cache_keys = cache_keys
        self._groups: OrderedDict[Any, Group] = OrderedDict()
        # NaN equals NaN in SQL, and nothing in Python.
        is_float = any(schema.column(name).type.kind.startswith("float") for name in join_key)
        self._encode = TableSchema(schema.columns, list(join_key)).key_encoder.encode if is_float else None
        self._rows: StateTable
        self._degrees: StateTable | None = None

    def open(self, rows: StateTable, degrees: StateTable | None) -> None:
        """Stand on these tables."""
        self._rows, self._degrees = rows, degrees
        self._groups.clear()

    def forget(self) -> None:
        """Drop what is in memory."""
        self._groups.clear()

    def key_of(self, row: Row) -> Row | None:
        """Return the join key of a row, ``None`` where a NULL in it matches nothing."""
        for place in self._strict_places:
            if row[place] is None:
                return None
        return tuple([row[place] for place in self._places])

    def candidates(self, key: Row, opposite: Row) -> Iterable[Entry]:
        """Return the rows of a join key that may match a row of the other side, in the order of their keys."""
        return self.group(key).values()

    def group(self, key: Row) -> Group:
        """Return the rows of a join key, in the order of their stream keys. Time: O(1), or O(rows) from the table."""
        known = key if self._encode is None else self._encode(key)
        group = self._groups.get(known)
        if group is not None:
            self._groups.move_to_end(known)
            return group
        group = self._groups[known] = self._read(key)
        if len(self._groups) > self._cache_keys:
            self._groups.popitem(last=False)
        return group

    def insert(self, key: Row, row: Row, degree: int) -> None:
        """Store a row. Time: O(log n). Dirties: one slot, and one of its degree where degrees are kept."""
        entry = Entry(row, degree if self.counts else -1)
        self.group(key)[self._slot(row)] = entry
        self._rows.insert_row(row)
        self._write_degree(entry)

    def remove(self, key: Row, row: Row, degree: int) -> None:
        """Remove a row. Time: O(log n). Dirties: one slot, and one of its degree where degrees are kept."""
        self.group(key).pop(self._slot(row), None)
        self._rows.delete_row(row)
        if self._degrees is not None:
            self._degrees.delete_row(self._degree_row(Entry(row, degree)))

    def shift(self, entry: Entry, change: int) -> None:
        """Note that one more row of the other side matches a row, or one less. Dirties: one slot, of the degree."""
        if self.counts:
            entry.degree += change
            self._write_degree(entry)

    def padded(self, row: Row | None) -> Row:
        """Return a row, or as many NULLs where there is none."""
        return self.nulls if row is None else row

    def _slot(self, row: Row) -> bytes:
        return self.state_schema.key_encoder.encode(self.state_schema.key_of(row))

    def _read(self, key: Row) -> Group:
        rows = list(self._rows.scan(prefix=key))
        degrees: Iterator[Row] = iter(()) if self._degrees is None else self._degrees.scan(prefix=key)
        counted = [row[-1] for row in degrees] if self.counts else [-1] * len(rows)
        return {self._slot(row): Entry(row, degree) for row, degree in zip(rows, counted, strict=True)}

    def _degree_row(self, entry: Entry) -> Row:
        return (*(entry.row[place] for place in self._degree_places), entry.degree)

    def _write_degree(self, entry: Entry) -> None:
        if self._degrees is not None:
            self._degrees.insert_row(self._degree_row(entry))
