"""Stateless operators of a pipeline: which rows stay, what is computed from them, the names of columns and keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from typing import Any

from objectspace.operators.base import Operator, Watermark
from objectspace.operators.bound import Bound
from objectspace.operators.canonical import dictionary_keys
from objectspace.operators.chunks import Change, halves, ordered_by, paired
from objectspace.operators.distinct import unused
from objectspace.operators.expressions import Expression, col
from objectspace.operators.expressions import condition as as_condition
from objectspace.operators.net import net_changes
from objectspace.operators.rules import FULL_JOIN_WATERMARK, note, noted
from objectspace.relational import Chunk, Column, TableSchema
from objectspace.relational.chunk import is_insert
from objectspace.relational.schema import Row


class Where(Operator):
    """Lets rows pass for which an expression is true; if only half of an update passes, it becomes plain.

    >>> schema = TableSchema([Column("a", "int64"), Column("b", "int64")], ["a"])
    >>> where = Where(schema, col("b") > 3)
    >>> where.process(Chunk.from_rows(schema, [("U-", (1, 2)), ("U+", (1, 5)), ("+", (2, 0))]))
    [Chunk(1 rows: + (1, 5))]
    """

    def __init__(self, schema: TableSchema, condition: Expression) -> None:
        super().__init__()
        self._schema, self._bound = schema, as_condition(condition).bind(schema)

    @property
    def schema(self) -> TableSchema:
        """The schema of its output."""
        return self._schema

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Return the changes of the rows that stay."""
        changes = chunk.rows()
        kept = self._bound.values([row for _, row in changes])
        return _chunks(self._schema, [change for change, keeps in zip(changes, kept, strict=True) if keeps])

    def kept_as(self, column: str) -> str | None:
        """Return the name that a column of the input has in the output: the same."""
        return column

    def watermark(self, column: str, value: Any, side: str = "input") -> list[Watermark]:
        """Pass a watermark on."""
        return [(column, value)]


class Select(Operator):
    """Computes other columns from each row, and keeps the stream key: the parts that are not asked for stay hidden.

    Args:
        schema: the schema of the input.
        columns: the expression of each column of the output.
        key: the columns that are already the stream key, if they are fewer than the primary key of the schema.
        watermarks: output columns that keep the watermark of an input column, by that input column; the watermark
            column is one of these rather than the input column itself.

    >>> schema = TableSchema([Column("a", "int64"), Column("b", "int64")], ["a"])
    >>> select = Select(schema, {"double": col("b") * 2})
    >>> print(select.schema)
    double int64 not null, _a int64 not null, primary key (_a asc nulls first)
    >>> select.process(Chunk.from_rows(schema, [("+", (1, 2))]))
    [Chunk(1 rows: + (4, 1))]
    """

    def __init__(
        self,
        schema: TableSchema,
        columns: Mapping[str, Expression],
        key: Sequence[str] | None = None,
        watermarks: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        found = dict(columns)
        used = schema if key is None else TableSchema(schema.columns, key)
        made_key = []
        for name, order in used.primary_key:
            shown = next((out for out, made in found.items() if made.column == name), None) or unused(f"_{name}", found)
            found.setdefault(shown, col(name))
            made_key.append((shown, order))
        self._bound = [_bound(made, schema) for made in found.values()]
        made = [bound.column(name) for name, bound in zip(found, self._bound, strict=True)]
        self._moved = {made.column: name for name, made in reversed(found.items()) if made.column is not None}
        self._names = {**self._moved, **(watermarks or {})}
        watermark = None if schema.watermark_column is None else self._names.get(schema.watermark_column)
        if watermark != self._moved.get(schema.watermark_column or "", watermark):
            note(FULL_JOIN_WATERMARK)
        self._schema = TableSchema(made, made_key, watermark_column=watermark)
        # Columns that only move have been checked before.
        names = [made.column for made in found.values() if made.column is not None]
        self._places = list(map(schema.place_of, names)) if len(names) == len(found) else None

    @property
    def schema(self) -> TableSchema:
        """The schema of its output."""
        return self._schema

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Return the changes of the computed rows; an update that changes nothing is dropped."""
        changes = chunk.rows()
        made = self._computed([row for _, row in changes])
        return _chunks(self._schema, [(op, row) for (op, _), row in zip(changes, made, strict=True)])

    def _computed(self, rows: list[Row]) -> list[Row]:
        if self._places is not None:
            places = self._places
            return [tuple([row[place] for place in places]) for row in rows]
        columns = [bound.values(rows) for bound in self._bound]
        return [self._schema.check_row(row) for row in zip(*columns, strict=True)]

    def kept_as(self, column: str) -> str | None:
        """Return the name that a column of the input has in the output: the one under which it is selected."""
        return self._moved.get(column)

    def watermark(self, column: str, value: Any, side: str = "input") -> list[Watermark]:
        """Pass a watermark on under the name that the column has in the output."""
        return [(self._names[column], value)] if column in self._names else []


class Relabel(Operator):
    """Renames columns, and touches no row."""

    def __init__(self, schema: TableSchema, names: Mapping[str, str]) -> None:
        super().__init__()
        columns = [Column(names.get(one.name, one.name), one.type, one.nullable) for one in schema.columns]
        self._names, watermark = names, schema.watermark_column
        self._schema = TableSchema(
            columns,
            [(names.get(name, name), order) for name, order in schema.primary_key],
            watermark_column=None if watermark is None else names.get(watermark, watermark),
        )

    @property
    def schema(self) -> TableSchema:
        """The schema of its output."""
        return self._schema

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Return the same changes under the other names."""
        changes = chunk.rows()
        return [Chunk(self._schema, [op for op, _ in changes], [row for _, row in changes])]

    def kept_as(self, column: str) -> str | None:
        """Return the name that a column of the input has in the output: the new one, if it gets one."""
        return self._names.get(column, column)

    def watermark(self, column: str, value: Any, side: str = "input") -> list[Watermark]:
        """Pass a watermark on under the other name."""
        return [(self._names.get(column, column), value)]


class Rekey(Operator):
    """Takes other columns as the key of the rows, and returns the net changes at the barrier.

    In one epoch a key may go from one row to another. So deletes of a key come before inserts of it, whatever the order
    of the changes; an update that leaves the key as it is stays an update.

    Rows that come to one key come in the order of the keys that they had, so which of them stays depends on no other
    order, such as that in which a join has its rows in memory.

    Args:
        schema: the schema of its output.
        in_order: whether the rows come in the order in which a source gave them, which matters and is kept.
    """

    def __init__(self, schema: TableSchema, *, in_order: bool = False) -> None:
        super().__init__()
        self._schema, self._in_order = schema, in_order
        self._held: list[Chunk] = []

    @property
    def schema(self) -> TableSchema:
        """The schema of its output."""
        return self._schema

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Take some changes; the output waits for the barrier, unless the key stays the same."""
        if chunk.schema.primary_key == self._schema.primary_key:
            return [Chunk(self._schema, chunk.ops, chunk.values)]
        self._held.append(chunk)
        return []

    def kept_as(self, column: str) -> str | None:
        """Return the name that a column of the input has in the output: the same."""
        return column

    def watermark(self, column: str, value: Any, side: str = "input") -> list[Watermark]:
        """Pass a watermark on."""
        return [(column, value)]

    def _forget(self) -> None:
        self._held = []

    def _flush(self) -> list[Chunk]:
        held, self._held = self._held, []
        if not held:
            return []
        updates = list(_updates(held, in_order=self._in_order))
        rows = [row for update in updates for _, row in update]
        keys = iter(dictionary_keys(self._schema, self._schema.key_places)(rows))
        places: dict[Any, tuple[list[Change], ...]] = {}
        for update in updates:
            mine = list(islice(keys, len(update)))
            is_kept = len(update) == 2 and mine[0] == mine[1]
            for key, (op, row) in zip(mine, update, strict=True):
                gone, kept, new = places.setdefault(key, ([], [], []))
                if is_kept:
                    kept.append((op, row))
                else:
                    (new if is_insert(op) else gone).append(("+" if is_insert(op) else "-", row))
        return _chunks(self._schema, [change for parts in places.values() for part in parts for change in part])


def _updates(chunks: Sequence[Chunk], *, in_order: bool) -> Iterator[list[Change]]:
    """Yield the net changes of some chunks: the old and the new row of an update together, other rows one by one.

    They come in the order of their keys, or in the order in which the keys first came.
    """
    schema = chunks[0].schema
    together = Chunk(schema, [op for one in chunks for op in one.ops], [row for one in chunks for row in one.values])
    changes = net_changes(together)
    keys = dictionary_keys(schema, schema.key_places)([row for _, row in changes])
    by_key: dict[Any, list[Change]] = {}
    for key, change in zip(keys, changes, strict=True):
        by_key.setdefault(key, []).append(change)
    each = list(by_key.values())
    if not in_order:
        each = ordered_by(schema.encode_keys([found[0][1] for found in each]), each)
    for found in each:
        if [op for op, _ in found] == ["-", "+"]:
            yield [("U-", found[0][1]), ("U+", found[1][1])]
        else:
            yield from ([change] for change in found)


def _bound(made: Expression, schema: TableSchema) -> Bound:
    """Return an expression over the rows of a schema; a column that only moves keeps the spelling of its values."""
    if made.column is None:
        return made.bind(schema)
    with noted():  # It is not read.
        return replace(made.bind(schema), value=itemgetter(schema.place_of(made.column)))


def _chunks(schema: TableSchema, changes: Sequence[Change]) -> list[Chunk]:
    """Return changes as a chunk without half updates and updates that change nothing; no chunk if none are left."""
    ops, rows = [op for op, _ in changes], [row for _, row in changes]
    found = Chunk(schema, ops, rows)
    if "U-" in ops or "U+" in ops:
        found = paired(schema, halves(found))
    return [found] if len(found) else []
