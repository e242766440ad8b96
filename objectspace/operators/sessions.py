"""SessionWindow: rows that follow each other closely in time form one session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from objectspace.operators.base import Operator, Watermark, column_names
from objectspace.operators.chunks import Change, paired, taken
from objectspace.operators.net import net_changes
from objectspace.operators.rules import SESSIONS, note
from objectspace.operators.session_ends import SessionEnds
from objectspace.operators.windows import Span, check_span
from objectspace.relational import Chunk, Column, InconsistentOperationError, SchemaError, StateTable, TableSchema
from objectspace.relational.checks import checked_watermark
from objectspace.relational.chunk import Op
from objectspace.relational.schema import Row
from objectspace.space import ObjectSpace

CACHE_GROUPS = 10_000
"""The number of groups whose last row is kept in memory."""

MOST_PASSED = 16
"""How many unchanged stored rows a walk passes before it seeks its next place instead."""

Move = tuple[Row | None, Row | None]
"""A row as it was and as it is, or ``None`` if there is none."""


class SessionWindow(Operator):
    """Adds to each row the start of its session.

    A row belongs to the session of the row before it in its group if it comes less than ``gap`` after that row;
    otherwise it begins a session, whose start is its time. A row without a time is in no session, and is left out. The
    end of a session is not a column, because it changes with every row: take the greatest time of the session, and add
    the gap.

    State: the rows with their sessions, ordered by group, time and stream key. An event dirties the slot of its row;
    one that joins two sessions, splits one, or comes before the first row of one also dirties the slots of the rows
    whose session changes.

    If the time column is the watermark column of the schema, a watermark ends the sessions that it has passed by the
    gap: their rows are forgotten, and the output has a watermark on the start, that of the first session which is still
    open. That takes two more slots for each open session.

    Args:
        schema: the schema of the input; its watermark column, if it is the time column, is the one that ends sessions.
        time_column: the name of the time column: ``timestamp``, ``timestamptz``, ``date`` or whole numbers.
        gap: how long a session stays open after its last row.
        by: the columns whose equal values make a group; without any, all rows are one group.
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
        self.input, self.time_column, self.by = schema, time_column, tuple(dict.fromkeys(column_names(by)))
        self._gap: Span = gap
        columns = [Column(one.name, one.type, one.nullable, one.default) for one in schema.columns]
        columns.append(Column(start, column.type))
        is_bounded = schema.watermark_column == time_column
        self._output = TableSchema(columns, list(schema.primary_key), watermark_column=start if is_bounded else None)
        leading = [*self.by, time_column]
        key = [*leading, *(name for name, _ in schema.primary_key if name not in leading)]
        self._kept = TableSchema(columns, key)
        self._place = schema.place_of(time_column)
        self._group_places = [schema.place_of(name) for name in self.by]
        self._last: dict[bytes, tuple[bytes, Row]] = {}
        self._ends: SessionEnds | None = None
        if is_bounded:
            if time_column in self.by:
                raise SchemaError(
                    f"sessions by {time_column!r}, their own time, would be one for each time: leave it out"
                )
            note(SESSIONS)
            self._ends = SessionEnds(self._kept, time_column, self.by, gap)
        self._next_watermark: Any = None
        self._first_open: Any = None

    @property
    def schema(self) -> TableSchema:
        """The schema of the output: that of the input, plus the start of the session."""
        return self._output

    def state(self) -> list[tuple[str, TableSchema]]:
        """Return the table of the rows, and if a watermark ends sessions, those of the open ones."""
        return [("rows", self._kept), *(self._ends.state() if self._ends else ())]

    def open(self, space: ObjectSpace, name: str) -> None:
        """Create its state under a name, or open it again after recovery."""
        super().open(space, name)
        self._table: StateTable = self._tables["rows"]
        if self._ends:
            self._ends.open(self._table, self._tables)
        self._forget()

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Return the changes with their sessions, and the changes of rows whose session changes.

        Raises:
            SchemaMismatchError: the chunk has other columns.
            InconsistentOperationError: a row that is not there is deleted; nothing was changed.

        Time: O(log n) per row, O(1) if it is the last one of its group, and O(rows after it in its session) if that
        session changes. The rows of a chunk that are near each other in a group are found by one scan.
        """
        self._check_open()
        changes = [change for change in net_changes(taken(self.input, chunk)) if change[1][self._place] is not None]
        try:
            moves = [move for group, places in self._by_group(changes).items() for move in self._moves(group, places)]
            self._table.write_rows((new is not None, new or old) for old, new in moves)  # type: ignore[misc]
        except BaseException:
            self._last.clear()
            raise
        if self._ends:
            for row in (row for move in moves for row in move if row is not None):
                self._ends.note(row)
        return self._given(moves)

    def watermark(self, column: str, value: Any, side: str = "input") -> list[Watermark]:
        """Accept a watermark; if it is that of the time column, the sessions that it ends are forgotten at the barrier.

        Raises:
            RowError: it is not a value of the column.
        """
        if self._ends is None or column != self.time_column:
            return []
        value = checked_watermark(self.input.column(column), value)
        self._next_watermark = value if self._next_watermark is None else max(self._next_watermark, value)
        # The session of a row depends on those before it, so what lies before all later changes stays as it is.
        return [(column, value)]

    def watermarks(self) -> list[Watermark]:
        """Return the watermark of the starts of sessions: the start of the first one that is still open."""
        return [] if self._first_open is None else [(self._output.names[-1], self._first_open)]

    def _flush(self) -> list[Chunk]:
        if self._ends:
            self._ends.settle()
            if self._next_watermark is not None:
                self._first_open = self._ends.close(self._next_watermark)
                self._next_watermark = None
        return []

    def _by_group(self, changes: list[Change]) -> dict[bytes, list[_Place]]:
        """Return the places that change in each group, in the order of the table."""
        rows = [row for _, row in changes]
        found: dict[bytes, _Place] = {}
        for key, (op, row) in zip(self._kept.encode_keys(rows), changes):
            place = found.get(key)
            if place is None:
                place = found[key] = _Place(key, row)
            if op == "+":
                place.new = row
            elif place.gone is not None:
                raise _not_there(row, "nothing")
            else:
                place.gone = row
        groups: dict[bytes, list[_Place]] = {}
        for key in sorted(found):
            groups.setdefault(self._group_of(found[key].row), []).append(found[key])
        return groups

    def _moves(self, group: bytes, places: list[_Place]) -> Iterator[Move]:
        """Yield the moves of a group's rows: of those that change, and of those that another session takes over."""
        walk = _Walk(self._table, self._place, self._gap, len(self.by))
        self._seek(walk, group, places[0])
        for place in places:
            yield from self._moves_before(walk, group, place)
            stored = walk.take(place.key)
            if place.gone is not None:
                self._check_there(place.gone, stored)
            new = None if place.new is None else walk.put(place.new)
            yield stored if place.gone is not None else None, new
        yield from walk.moves_behind()
        if walk.ahead is None:
            self._note_last(group, walk.before)

    def _moves_before(self, walk: _Walk, group: bytes, place: _Place) -> Iterator[Move]:
        """Walk to a place, and yield the rows on the way that another session takes over."""
        passed = 0
        while walk.ahead is not None and walk.ahead_key < place.key:
            move = walk.step()
            if move is not None:
                passed = 0
                yield move
            elif (passed := passed + 1) > MOST_PASSED:
                self._seek(walk, group, place)

    def _seek(self, walk: _Walk, group: bytes, place: _Place) -> None:
        """Position a walk before a place; the rows before it stay as they are."""
        if group not in self._last:
            self._note_last(group, walk.last_of(place.row))
        last = self._last.get(group)
        if last is None or last[0] < place.key:
            walk.begin_behind(None if last is None else last[1])
        else:
            walk.begin_at(place.row)

    def _check_there(self, gone: Row, stored: Row | None) -> None:
        """Refuse the deletion of a row that is not there."""
        if stored is None or not self.input.equal(stored[:-1], gone):
            raise _not_there(gone, "nothing" if stored is None else f"{stored[:-1]!r:.200}")

    def _note_last(self, group: bytes, row: Row | None) -> None:
        """Note the last row of a group, so rows that come in the order of time need no search."""
        self._last.pop(group, None)
        if row is not None:
            self._last[group] = self._kept.key_encoder.encode(self._kept.key_of(row)), row
        if len(self._last) > CACHE_GROUPS:
            del self._last[next(iter(self._last))]

    def _group_of(self, row: Row) -> bytes:
        return self._kept.key_encoder.encode([row[place] for place in self._group_places])

    def _forget(self) -> None:
        self._last.clear()
        self._next_watermark = self._first_open = None
        if self._ends:
            self._ends.forget()

    def _given(self, moves: list[Move]) -> list[Chunk]:
        """Return the output changes: for each stream key what was there before the chunk, and what is there now."""
        touched: dict[bytes, list[Row | None]] = {}
        keys = self._output.encode_keys([new or old for old, new in moves])  # type: ignore[misc]
        for key, (old, new) in zip(keys, moves):
            change = touched.setdefault(key, [None, None])
            change[0], change[1] = old or change[0], new or change[1]
        pairs = ((_half("-", old), _half("+", new)) for _, (old, new) in sorted(touched.items()))
        found = paired(self._output, pairs)
        return [found] if len(found) else []


class _Place:
    """What a chunk says about one key of the table: the row that goes, and the row that comes."""

    __slots__ = ("gone", "key", "new", "row")

    def __init__(self, key: bytes, row: Row) -> None:
        self.key, self.row = key, row
        self.gone: Row | None = None
        self.new: Row | None = None


class _Walk:
    """A walk over the rows of one group in the order of time, which finds the session of each.

    Args:
        table: the rows with their sessions; it is not written until the walk is over.
        place: the position of the time in a row.
        gap: how long a session stays open after its last row.
        width: how many columns make a group.
    """

    def __init__(self, table: StateTable, place: int, gap: Span, width: int) -> None:
        self._table, self._place, self._gap, self._width = table, place, gap, width
        self._key_of, self._encode = table.schema.key_of, table.schema.key_encoder.encode
        self.before: Row | None = None
        self.ahead: Row | None = None
        self.ahead_key = b""
        self._rows: Iterator[Row] = iter(())

    def last_of(self, row: Row) -> Row | None:
        """Return the last row of the group of a row."""
        return next(self._table.scan(prefix=self._key_of((*row, None))[: self._width], reverse=True), None)

    def begin_behind(self, last: Row | None) -> None:
        """Begin after the last row of the group."""
        self.before, self._rows = last, iter(())
        self._read()

    def begin_at(self, row: Row) -> None:
        """Begin between the rows before the place of a row and those that follow."""
        key = self._key_of((*row, None))
        group, place = key[: self._width], key[self._width :]
        self.before = next(self._table.scan(prefix=group, upper=place, inclusive=(True, False), reverse=True), None)
        self._rows = self._table.scan(prefix=group, lower=place)
        self._read()

    def take(self, key: bytes) -> Row | None:
        """Take the stored row of a key out of the sessions, if it is the next one."""
        if self.ahead is None or self.ahead_key != key:
            return None
        stored = self.ahead
        self._read()
        return stored

    def put(self, row: Row) -> Row:
        """Place a row next, and return it with its session."""
        self.before = (*row, self._start(row))
        return self.before

    def step(self) -> Move | None:
        """Pass the next stored row; return it as it was and as it is, if another session takes it over."""
        stored = self.ahead
        assert stored is not None
        start = self._start(stored)
        self._read()
        if start == stored[-1]:
            self.before = stored
            return None
        self.before = (*stored[:-1], start)
        return stored, self.before

    def moves_behind(self) -> Iterator[Move]:
        """Pass stored rows as long as another session takes them over, and yield them as they were and as they are."""
        while self.ahead is not None and (move := self.step()) is not None:
            yield move

    def _start(self, row: Row) -> Any:
        time, before = row[self._place], self.before
        return before[-1] if before is not None and time - before[self._place] < self._gap else time

    def _read(self) -> None:
        self.ahead = next(self._rows, None)
        if self.ahead is not None:
            self.ahead_key = self._encode(self._key_of(self.ahead))


def _not_there(row: Row, found: str) -> InconsistentOperationError:
    return InconsistentOperationError(
        f"SessionWindow: - {row!r:.200} finds {found} under its key: delete the row that was inserted; the chunk was"
        " not taken"
    )


def _half(op: Op, row: Row | None) -> tuple[Op, Row] | None:
    return None if row is None else (op, row)
