"""Which sessions may still change, and what a watermark lets a SessionWindow forget."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from objectspace.relational import Column, StateTable, TableSchema
from objectspace.relational.schema import Row
from objectspace.relational.values import BadValue, checker


class SessionEnds:
    """The sessions that are open: those that a row which is still to come may join.

    A watermark promises that no more changes come before it, so a session has ended once the watermark has passed its
    last row by the gap. Then all its rows are forgotten. Of one that is still open, the last row before the watermark
    tells the session of whatever comes next, so those before it are forgotten, too.

    State: ``open`` has one row for each open session, ordered by its start. ``ends`` has one for each, ordered by the
    last row that it had when it was looked at: a session is looked at again once that row would have been its end. So
    its events dirty nothing here but at its begin, and then once in a gap.

    Args:
        kept: the schema of the rows with their sessions; the start of the session is the last column.
        time_column: the name of the time column.
        by: the columns that make a group.
        gap: how long a session stays open after its last row.
    """

    def __init__(self, kept: TableSchema, time_column: str, by: Sequence[str], gap: timedelta | int) -> None:
        self._place, self._by = kept.place_of(time_column), [kept.place_of(name) for name in by]
        self._gap: Any = gap
        time, start = kept.columns[self._place], kept.columns[-1]
        group = [Column(one.name, one.type, one.nullable) for one in map(kept.columns.__getitem__, self._by)]
        self._open_schema = TableSchema([Column(start.name, start.type), *group], [start.name, *by])
        columns = [Column(time.name, time.type), *group, Column(start.name, start.type)]
        self._ends_schema = TableSchema(columns, [time.name, *by, start.name])
        self._encode, self._check = self._open_schema.key_encoder.encode, checker(time.type)
        self._touched: dict[bytes, Row] = {}

    def state(self) -> list[tuple[str, TableSchema]]:
        """Return the two tables."""
        return [("open", self._open_schema), ("ends", self._ends_schema)]

    def open(self, rows: StateTable, tables: dict[str, StateTable]) -> None:
        """Take the tables, and that of the rows."""
        self._rows, self._open, self._ends = rows, tables["open"], tables["ends"]

    def note(self, row: Row) -> None:
        """Note a row that came or went. Time: O(1)."""
        if row[self._place] == row[-1]:  # It begins its session, which is there as long as such a row is.
            session = (row[-1], *(row[place] for place in self._by))
            self._touched[self._encode(session)] = session

    def settle(self) -> None:
        """Bring the tables up to date with the rows that were noted. Dirties: two slots for each new session."""
        sessions = list(self._touched.values())
        for session, known in zip(sessions, self._open.get_rows(sessions), strict=True):
            has_begun = self._is_there(session)
            if has_begun != (known is not None):
                self._open.write_rows([(has_begun, session)])
            if has_begun and known is None:
                self._ends.insert_row((session[0], *session[1:], session[0]))
        self.forget()

    def close(self, watermark: Any) -> Any:
        """Forget what no change can touch any more, and return the start of the first session that one can touch.

        Args:
            watermark: the least time of the rows that are still to come.

        Time: O(sessions that are looked at · log n + rows that are forgotten).
        """
        try:
            last = self._check(watermark - self._gap)
        except (BadValue, OverflowError):  # No time is so early: none has ended.
            due: list[Row] = []
        else:
            due = list(self._ends.scan(upper=[last]))
        for end in due:
            self._look_at(end, watermark)
        first = next(self._open.scan(), None)
        return watermark if first is None else min(watermark, first[0])

    def forget(self) -> None:
        """Drop what was noted and has not reached the tables."""
        self._touched.clear()

    def _is_there(self, session: Row) -> bool:
        start, *group = session
        return any(row[-1] == start for row in self._rows.scan(prefix=[*group, start]))

    def _look_at(self, end: Row, watermark: Any) -> None:
        """Forget a session if it has ended; else what is not needed of it, and note when to look again."""
        _, *group, start = end
        if self._open.get_row((start, *group)) is not None:
            rows, passed = self._rows_of(group, start, watermark)
            if not rows or watermark - rows[-1][self._place] >= self._gap:
                unneeded, is_open = rows, False
            else:
                unneeded, is_open = rows[: max(passed - 1, 0)], True
            self._rows.write_rows([(False, row) for row in unneeded])
            if is_open:
                self._ends.insert_row((rows[-1][self._place], *group, start))
            else:
                self._open.delete_row((start, *group))
        # There is no such session any more if its first row went, or another session took it in.
        self._ends.delete_row(end)

    def _rows_of(self, group: Sequence[Any], start: Any, watermark: Any) -> tuple[list[Row], int]:
        """Return the rows of a session that are kept, and how many of them lie before the watermark."""
        rows: list[Row] = []
        passed = 0
        for row in self._rows.scan(prefix=group, lower=[start]):
            if row[-1] != start:
                break
            rows.append(row)
            passed += row[self._place] < watermark
        return rows, passed
