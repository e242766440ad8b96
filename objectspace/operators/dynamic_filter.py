"""DynamicFilter: the rows that satisfy a comparison with one value, which changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from objectspace.operators.base import Operator
from objectspace.operators.chunks import halves, paired, taken
from objectspace.operators.net import net_changes
from objectspace.operators.predicates import COMPARISONS
from objectspace.relational import Chunk, Column, SchemaError, StateTable, TableSchema
from objectspace.relational.chunk import Op
from objectspace.relational.schema import Row
from objectspace.space import ObjectSpace

RANGES = ("<", "<=", ">", ">=")
"""The comparisons that can be used."""


class DynamicFilter(Operator):
    """Passes the left rows whose column satisfies a comparison with the one value of the right side.

    Left rows are judged by the value of the last barrier. If the value has changed by the next barrier, the rows
    between the old value and the new one come or go then. A row with a NULL in the column does not pass, and none
    passes if the value is NULL or there is none. A row on the right replaces the one before.

    State: the left rows, ordered by the column and the stream key; and the value. An event on the left dirties the slot
    of its row, one on the right the slot of the value, however many rows come or go.

    Args:
        left_schema: the schema of the left input; its primary key is the stream key.
        right_schema: the schema of the right input, which has one column.
        column: the column of the left side that is compared.
        comparison: ``<``, ``<=``, ``>`` or ``>=``.

    Raises:
        SchemaError: there is no such column or comparison, or the types differ.

    Source: RisingWave's DynamicFilterExecutor.

    >>> from objectspace import VolatileObjectSpace
    >>> orders = TableSchema([Column("id", "int64"), Column("price", "int64")], ["id"])
    >>> mean = TableSchema([Column("mean", "int64")])
    >>> above = DynamicFilter(orders, mean, "price", ">")
    >>> above.open(VolatileObjectSpace(), "above")
    >>> _ = above.process(Chunk.from_rows(orders, [("+", (1, 5)), ("+", (2, 9))]), side="left")
    >>> _ = above.process(Chunk.from_rows(mean, [("+", (7,))]), side="right"); above.barrier(1)
    [Chunk(1 rows: + (2, 9))]
    >>> _ = above.process(Chunk.from_rows(mean, [("U-", (7,)), ("U+", (4,))]), side="right"); above.barrier(2)
    [Chunk(1 rows: + (1, 5))]
    """

    sides: ClassVar[tuple[str, ...]] = ("left", "right")

    def __init__(self, left_schema: TableSchema, right_schema: TableSchema, column: str, comparison: str) -> None:
        super().__init__()
        if comparison not in RANGES:
            raise SchemaError(f"there is no comparison {comparison!r}: expected one of {', '.join(RANGES)}")
        if len(right_schema.columns) != 1:
            raise SchemaError(f"the right side is one value: found the columns {', '.join(right_schema.names)}")
        compared, (value,) = left_schema.column(column), right_schema.columns
        if compared.type != value.type:
            raise SchemaError(f"column {column!r} is {compared.type} and {value.name!r} is {value.type}: cast one")
        self._schemas = {"left": left_schema, "right": right_schema}
        self._compare, self._is_low = COMPARISONS[comparison], comparison.startswith(">")
        self._place = left_schema.place_of(column)
        self._value: Any = None
        self._next: Any = None
        rest = [name for name, _ in left_schema.primary_key if name != column]
        self._rows_schema = TableSchema(left_schema.columns, [column, *rest])
        self._value_schema = TableSchema([Column(value.name, value.type, nullable=True)])
        # SQL's order: NaN is the greatest number, and equal to itself.
        self._encode = TableSchema([Column(column, compared.type)], [column]).key_encoder.encode

    @property
    def schema(self) -> TableSchema:
        """The schema of its output: that of the left side, without a watermark, because old rows may come and go."""
        left = self._schemas["left"]
        return TableSchema(left.columns, list(left.primary_key))

    def state(self) -> list[tuple[str, TableSchema]]:
        """Return the schemas of the rows and of the value."""
        return [("left", self._rows_schema), ("right", self._value_schema)]

    def open(self, space: ObjectSpace, name: str) -> None:
        """Create its tables, or open them again."""
        super().open(space, name)
        self._rows: StateTable = self._tables["left"]
        self._forget()

    def process(self, chunk: Chunk, side: str = "left") -> list[Chunk]:
        """Take changes of one side, and return the changes of left rows that pass.

        Raises:
            ValueError: there is no such side.
            SchemaMismatchError: the chunk has other columns.

        Time: O(rows · log n). Dirties: one slot per row on the left.
        """
        self._check_side(side)
        chunk = taken(self._schemas[side], chunk)
        if side == "right":
            self._take(net_changes(chunk))
            return []
        self._rows.write_rows([(op == "+", row) for op, row in net_changes(chunk)])
        found = paired(self.schema, ((self._passed(old), self._passed(new)) for old, new in halves(chunk)))
        return [found] if len(found) else []

    def _take(self, changes: Iterable[tuple[Op, Row]]) -> None:
        """Note the value that applies from the next barrier on."""
        for op, (value,) in changes:
            if op == "+":
                self._next = value
            elif self._known(value) == self._known(self._next):
                self._next = None

    def _flush(self) -> list[Chunk]:
        """Return the rows between the old value and the new one."""
        old, new = self._value, self._next
        if self._known(old) == self._known(new):
            return []
        changes: list[tuple[Op, Row]] = [
            ("+" if self._passes(row, new) else "-", row)
            for row in self._between(old, new)
            if self._passes(row, new) != self._passes(row, old)
        ]
        self._value = new
        self._tables["right"].insert_row((new,))
        return [Chunk(self.schema, [op for op, _ in changes], [row for _, row in changes])] if changes else []

    def _between(self, old: Any, new: Any) -> Iterable[Row]:
        """Return an iterator over the rows that one of two values lets pass and the other may not."""
        known = sorted((value for value in (old, new) if value is not None), key=self._known)
        if len(known) == 2:
            return self._rows.scan(lower=known[:1], upper=known[1:])
        return self._rows.scan(lower=known) if self._is_low else self._rows.scan(upper=known)

    def _passed(self, change: tuple[Op, Row] | None) -> tuple[Op, Row] | None:
        return change if change is not None and self._passes(change[1], self._value) else None

    def _passes(self, row: Row, value: Any) -> bool:
        mine = row[self._place]
        return mine is not None and value is not None and bool(self._compare(self._known(mine), self._known(value)))

    def _known(self, value: Any) -> Any:
        """Return what stands for a value in comparisons."""
        return None if value is None else self._encode((value,))

    def _forget(self) -> None:
        """Go back to the stored value."""
        stored = self._only_row("right")
        self._value = self._next = None if stored is None else stored[0]
