"""SessionWindow: rows that follow each other closely in time are one session."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from objectspace.operators.base import Operator
from objectspace.operators.chunks import paired, taken
from objectspace.operators.net import net_changes
from objectspace.operators.windows import Span, check_span
from objectspace.relational import Chunk, Column, InconsistentOperationError, StateTable, TableSchema
from objectspace.relational.chunk import Op
from objectspace.relational.schema import Row
from objectspace.space import ObjectSpace

CACHE_GROUPS = 10_000
"""Of how many groups the last row is kept in memory."""


class SessionWindow(Operator):
    """Gives each row with the start of its session.

    A row belongs to the session of the row before it, of the same group, where it comes less than ``gap`` after it;
    otherwise it begins a session, whose start is its time. A row without a time is in none, and is left out. The end of
    a session is no column: it changes with every row, so take the greatest time of the session, and add the gap.

    State: the rows with their sessions, ordered by group, time and stream key. An event dirties the slot of its row;
    one that joins two sessions, parts one, or comes before the first row of one, also those of the rows that change
    theirs.

    Args:
        schema: the schema of the input.
        time_column: the name of the column of the time: ``timestamp``, ``timestamptz``, ``date`` or whole numbers.
        gap: how long after its last row a session is open.
        by: the columns whose equal values make a group; by none, all rows are one.
        start: the name of the new column.

    Raises:
        SchemaError: a column does not exist or has another type, or the gap does not fit it.

    >>> from objectspace import VolatileObjectSpace
    >>> schema = TableSchema([Column("at", "int64"), Column("id", "int64")], primary_key=["id"])
    >>> sessions = SessionWindow(schema, "at", gap=10)
    >>> sessions.open(VolatileObjectSpace(), "sessions")
    >>> sessions.process(Chunk.from_rows(schema, [("+", (5, 1)), ("+", (22, 2))]))[0].rows()
    [('+', (5, 1, 5)), ('+', (22, 2, 22))]
    >>> sessions.process(Chunk.from_rows(schema, [("+", (13, 3))]))[0].rows()
    [('U-', (22, 2, 22)), ('U+', (22, 2, 5)), ('+', (13, 3, 5))]
    """

    def __init__(
        self,
        schema: TableSchema,
        time_column: str,
        gap: timedelta | int,
        by: Sequence[str] = (),
        *,
        start: str = "session_start",
    ) -> None:
        super().__init__()
        column = schema.column(time_column)
        check_span(column, "gap of a session", gap)
        self.input, self.time_column, self.by = schema, time_column, tuple(by)
        self._gap: Span = gap
        columns = [Column(one.name, one.type, one.nullable, one.default) for one in schema.columns]
        columns.append(Column(start, column.type))
        self._output = TableSchema(columns, list(schema.primary_key))
        leading = [*by, time_column]
        key = [*leading, *(name for name, _ in schema.primary_key if name not in leading)]
        self._kept = TableSchema(columns, key)
        self._place = schema.place_of(time_column)
        self._group_places = [schema.place_of(name) for name in self.by]
        self._last: dict[bytes, tuple[bytes, Row]] = {}

    @property
    def schema(self) -> TableSchema:
        """The schema of the output: that of the input, and the start of the session."""
        return self._output

    def state(self) -> list[tuple[str, TableSchema]]:
        """Return the table of the rows."""
        return [("rows", self._kept)]

    def open(self, space: ObjectSpace, name: str) -> None:
        """Create its state under a name, or open it again after recovery."""
        super().open(space, name)
        self._table: StateTable = self._tables["rows"]
        self._forget()

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Return the changes with their sessions, and those of rows whose session changes.

        Raises:
            SchemaMismatchError: the chunk has other columns.
            InconsistentOperationError: a row goes that is not there; nothing was changed.

        Time: O(log n) a row, O(1) where it is the last one of its group, and O(rows behind it in its session) where
        that session changes.
        """
        self._check_open()
        changes = [change for change in net_changes(taken(self.input, chunk)) if change[1][self._place] is not None]
        self._check_there([row for op, row in changes if op == "-"])
        touched: dict[bytes, list[Row | None]] = {}
        try:
            for op, row in changes:
                if op == "-":
                    self._remove(row, touched)
                else:
                    self._insert(row, touched)
        except BaseException:
            self._forget()
            raise
        pairs = ((_half("-", old), _half("+", new)) for _, (old, new) in sorted(touched.items()))
        found = paired(self._output, pairs)
        return [found] if len(found) else []

    def _check_there(self, gone: list[Row]) -> None:
        """Refuse rows to delete that are not there, or go twice."""
        taken_back: set[bytes] = set()
        for row in gone:
            key = self._kept.key_of((*row, None))
            slot = self._kept.key_encoder.encode(key)
            found = None if slot in taken_back else self._table.get_row(key)
            taken_back.add(slot)
            if found is None or not self.input.equal(found[:-1], row):
                there = "nothing" if found is None else f"{found[:-1]!r:.200}"
                raise InconsistentOperationError(
                    f"SessionWindow: - {row!r:.200} finds {there} under its key: delete the row that was inserted;"
                    " the chunk was not taken"
                )

    def _insert(self, row: Row, touched: dict[bytes, list[Row | None]]) -> None:
        time = row[self._place]
        before, after = self._neighbours(row)
        start = before[-1] if before is not None and self._is_near(before, time) else time
        new = (*row, start)
        self._put(None, new, touched)
        if after is None:
            self._note_last(new)
        elif after[self._place] - time < self._gap:
            self._move(after, start, touched)

    def _remove(self, row: Row, touched: dict[bytes, list[Row | None]]) -> None:
        stored = self._table.get_row(self._kept.key_of((*row, None)))
        assert stored is not None
        before, after = self._neighbours(row)
        self._last.pop(self._group_of(stored), None)
        self._put(stored, None, touched)
        if after is not None and after[-1] == stored[-1]:
            time = after[self._place]
            self._move(after, before[-1] if before is not None and self._is_near(before, time) else time, touched)

    def _neighbours(self, row: Row) -> tuple[Row | None, Row | None]:
        """Return the rows of the group before and after a row."""
        key = self._kept.key_of((*row, None))
        last = self._last.get(self._group_of(row))
        if last is not None and last[0] < self._kept.key_encoder.encode(key):
            return last[1], None
        group, place = key[: len(self.by)], key[len(self.by) :]
        before = self._table.scan(prefix=group, upper=place, inclusive=(True, False), reverse=True)
        after = self._table.scan(prefix=group, lower=place, inclusive=(False, True))
        return next(before, None), next(after, None)

    def _note_last(self, row: Row) -> None:
        """Note that a row is the last one of its group: rows that come in the order of time need not be looked for."""
        group = self._group_of(row)
        self._last.pop(group, None)
        self._last[group] = self._kept.key_encoder.encode(self._kept.key_of(row)), row
        if len(self._last) > CACHE_GROUPS:
            del self._last[next(iter(self._last))]

    def _group_of(self, row: Row) -> bytes:
        return self._kept.key_encoder.encode([row[place] for place in self._group_places])

    def _forget(self) -> None:
        self._last.clear()

    def _is_near(self, before: Row, time: Any) -> bool:
        return bool(time - before[self._place] < self._gap)

    def _move(self, first: Row, start: Any, touched: dict[bytes, list[Row | None]]) -> None:
        """Put a row and those behind it in its session into another one."""
        if first[-1] == start:
            return
        self._last.pop(self._group_of(first), None)
        key = self._kept.key_of(first)
        moved = []
        for row in self._table.scan(prefix=key[: len(self.by)], lower=key[len(self.by) :]):
            if row[-1] != first[-1]:
                break
            moved.append(row)
        for row in moved:
            self._put(row, (*row[:-1], start), touched)

    def _put(self, old: Row | None, new: Row | None, touched: dict[bytes, list[Row | None]]) -> None:
        """Write a row, and note what it was before the chunk and what it is now."""
        row = new or old
        assert row is not None
        if new is not None:
            self._table.insert_row(new)
        else:
            self._table.delete_row(row)
        change = touched.setdefault(self._output.key_encoder.encode(self._output.key_of(row)), [old, None])
        change[1] = new


def _half(op: Op, row: Row | None) -> tuple[Op, Row] | None:
    return None if row is None else (op, row)
