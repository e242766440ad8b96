"""Which sessions may still change, and what a watermark lets a SessionWindow forget."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any

from objectspace.relational import Column, StateTable, TableSchema
from objectspace.relational.schema import Row
from objectspace.relational.values import BadValue, checker

LOOKS = 4096
"""How many sessions are looked at together."""


class SessionEnds:
    """The sessions that are open: those that a row which is still to come may join.

    A watermark promises that no more changes come before it, so a session has ended once the watermark has passed its
    last row by the gap. Then all its rows are forgotten. Of one that is still open, the last row before the watermark
    tells the session of whatever comes next, so those before it are forgotten, too.

    State: ``open`` has one row for each open session, ordered by its start. ``ends`` has one for each, ordered by the
    last row that it had before the watermark when it was looked at, or by its start: a session is looked at again once
    that row would have been its end. So its events dirty nothing here but at its begin, and then once in a gap.

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
        self._encode, self._encode_group = self._open_schema.key_encoder.encode, kept.key_encoder.encode
        self._check = checker(time.type)
        self._touched: dict[bytes, Row] = {}
        self._is_known = False

    def state(self) -> list[tuple[str, TableSchema]]:
        """Return the two tables."""
        return [("open", self._open_schema), ("ends", self._ends_schema)]

    def open(self, rows: StateTable, tables: dict[str, StateTable]) -> None:
        """Take the tables, and that of the rows."""
        self._rows, self._open, self._ends = rows, tables["open"], tables["ends"]
        self._is_known = False

    def note(self, row: Row) -> None:
        """Note a row that came or went. Time: O(1)."""
        if row[self._place] == row[-1]:  # It begins its session, which is there as long as such a row is.
            session = (row[-1], *(row[place] for place in self._by))
            self._touched[self._encode(session)] = session

    def settle(self) -> None:
        """Bring the tables up to date with the rows that were noted. Dirties: two slots for each new session."""
        if not self._is_known:
            self._find_all()
        sessions = list(self._touched.values())
        known = [row is not None for row in self._open.get_rows(sessions)]
        first = self._rows.scan_all([(*group, start) for start, *group in sessions])
        there = [any(row[-1] == start for row in rows) for (start, *_), rows in zip(sessions, first, strict=True)]
        changed = [(new, one) for one, old, new in zip(sessions, known, there, strict=True) if new != old]
        self._open.write_rows(changed)
        self._ends.insert_rows((start, *group, start) for is_new, (start, *group) in changed if is_new)
        self._touched.clear()

    def close(self, watermark: Any) -> Any:
        """Forget what no change can touch any more, and return the start of the first session that one can touch.

        Args:
            watermark: the least time of the rows that are still to come.

        Time: O(sessions that are looked at · log n + their rows up to the watermark).
        """
        try:
            last = self._check(watermark - self._gap)
        except (BadValue, OverflowError):  # No time is so early: none has ended.
            due: list[Row] = []
        else:
            due = list(self._ends.scan(upper=[last]))
        for place in range(0, len(due), LOOKS):
            self._look_at(due[place : place + LOOKS], watermark)
        first = next(self._open.scan(), None)
        return watermark if first is None else min(watermark, first[0])

    def forget(self) -> None:
        """Drop what was noted and has not reached the tables, which may be back where they were."""
        self._touched.clear()
        self._is_known = False

    def _find_all(self) -> None:
        """Find the sessions of rows that an earlier version has stored, which had no other tables."""
        if next(self._open.scan(), None) is None:
            for row in self._rows.scan():
                session = (row[-1], *(row[place] for place in self._by))
                self._touched[self._encode(session)] = session
        self._is_known = True

    def _look_at(self, ends: list[Row], watermark: Any) -> None:
        """Forget those sessions that have ended; else what is not needed of them, and note when to look again."""
        named = {self._encode(session): session for session in ((start, *group) for _, *group, start in ends)}
        # Those are no sessions any more whose first row went, or which another one took in.
        there = [session for session in self._open.get_rows(named.values()) if session is not None]
        rows = self._rows_of(there, watermark)
        gone: list[Row] = []
        ended: list[Row] = []
        again: list[Row] = []
        for session in there:
            own = rows.get(self._encode(session), [])
            if not own or watermark - own[-1][self._place] >= self._gap:
                gone += own
                ended.append(session)
            else:
                passed = [row for row in own if row[self._place] < watermark]
                gone += passed[:-1]
                # Not one from the watermark on, which may still go.
                last = passed[-1][self._place] if passed else session[0]
                again.append((last, *session[1:], session[0]))
        self._rows.write_rows((False, row) for row in gone)
        self._open.write_rows((False, session) for session in ended)
        self._ends.write_rows([*((False, end) for end in ends), *((True, end) for end in again)])

    def _rows_of(self, sessions: list[Row], watermark: Any) -> dict[bytes, list[Row]]:
        """Return the kept rows up to the watermark of some sessions, and of those that follow them in their groups.

        What lies behind the watermark makes no difference: if a session goes on there, its last row before is so near
        to the watermark that it has not ended.
        """
        first: dict[bytes, Row] = {}
        for session in sorted(sessions, key=itemgetter(0)):
            first.setdefault(self._encode_group(session[1:]), session)
        found: dict[bytes, list[Row]] = {}
        spans = [((start,), (watermark,)) for start, *_ in first.values()]
        for (_, *group), rows in zip(
            first.values(), self._rows.scan_all([one[1:] for one in first.values()], spans), strict=True
        ):
            for start, own in groupby(rows, key=itemgetter(-1)):
                found[self._encode((start, *group))] = list(own)
        return found
