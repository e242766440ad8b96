"""Sessions: what an event dirties, what is left out and what is refused; the oracle is that of the pipelines."""

from __future__ import annotations

from datetime import datetime, timedelta
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.operators import SessionWindow
from objectspace.relational import Chunk, Column, InconsistentOperationError, SchemaError, TableSchema
from objectspace.testing import crash_everywhere

SCHEMA = TableSchema(
    [Column("who", "string"), Column("at", "int64", nullable=True), Column("id", "int64")], primary_key=["id"]
)


class Sessions:
    """Sessions by person on a store, an epoch for each change."""

    def __init__(self) -> None:
        self.space = PersistedObjectSpace(CheckpointStore(":memory:"))
        self.operator = SessionWindow(SCHEMA, "at", 10, by=["who"])
        self.operator.open(self.space, "sessions")
        self.epoch = 0

    def take(self, *changes: tuple[str, tuple[object, ...]]) -> tuple[list[object], int]:
        """Return what comes out of a chunk, and how many slots it dirties."""
        self.epoch += 1
        out = self.operator.process(Chunk.from_rows(SCHEMA, changes))
        self.operator.barrier(self.epoch)
        rows: list[object] = [change for chunk in out for change in chunk.rows()]
        return rows, self.space.checkpoint(epoch=self.epoch).slots


def test_a_row_at_the_end_of_a_session_dirties_its_own_slot() -> None:
    sessions = Sessions()
    sessions.take(*(("+", ("a", 5 * n, n)) for n in range(100)))
    assert sessions.take(("+", ("a", 504, 100))) == ([("+", ("a", 504, 100, 0))], 1)
    assert sessions.take(("+", ("b", 504, 101))) == ([("+", ("b", 504, 101, 504))], 1)
    assert sessions.take(("-", ("a", 0, 0)))[1] == 101, "the first row gave the session its start"


def test_a_row_joins_two_sessions_and_parts_them_when_it_goes() -> None:
    sessions = Sessions()
    sessions.take(("+", ("a", 0, 1)), ("+", ("a", 18, 2)), ("+", ("a", 27, 3)))
    joined = [
        ("U-", ("a", 18, 2, 18)),
        ("U+", ("a", 18, 2, 0)),
        ("U-", ("a", 27, 3, 18)),
        ("U+", ("a", 27, 3, 0)),
        ("+", ("a", 9, 4, 0)),
    ]
    assert sessions.take(("+", ("a", 9, 4))) == (joined, 3)
    out, dirty = sessions.take(("U-", ("a", 9, 4)), ("U+", ("a", 8, 4)))
    assert (len(out), dirty) == (6, 4), "18 is no more than 10 after 8"
    assert sessions.take(("+", ("a", None, 5))) == ([], 0)


def test_the_gap_itself_is_no_part_of_a_session() -> None:
    schema = TableSchema([Column("at", "timestamp")], ["at"])
    operator = SessionWindow(schema, "at", timedelta(minutes=1))
    operator.open(PersistedObjectSpace(CheckpointStore(":memory:")), "sessions")
    begin = datetime(2026, 1, 1)
    times = [begin + timedelta(seconds=n) for n in (0, 59, 119, 178)]
    (out,) = operator.process(Chunk.from_rows(schema, [("+", (time,)) for time in times]))
    assert [row[1] for _, row in out.rows()] == [times[0], times[0], times[2], times[2]]


def test_what_does_not_fit_is_refused() -> None:
    sessions = Sessions()
    sessions.take(("+", ("a", 0, 1)))
    with pytest.raises(InconsistentOperationError, match=r"- \('a', 5, 1\) finds nothing under its key"):
        sessions.take(("+", ("a", 3, 2)), ("-", ("a", 5, 1)))
    assert sessions.take(("+", ("a", 20, 3))) == ([("+", ("a", 20, 3, 20))], 1), "nothing of the chunk was taken"
    with pytest.raises(SchemaError, match="the gap of a session over at int64 is a positive int: found 0"):
        SessionWindow(SCHEMA, "at", 0)
    with pytest.raises(SchemaError, match=r"windows are over one of .*'who' is string"):
        SessionWindow(SCHEMA, "who", 5)
    bounded = TableSchema([SCHEMA.columns[0], Column("at", "int64"), SCHEMA.columns[2]], ["id"], watermark_column="at")
    with pytest.raises(SchemaError, match="sessions by 'at', their own time, would be one for each time: leave it out"):
        SessionWindow(bounded, "at", 5, by=["at"])
    assert SessionWindow(bounded, "at", 5, by=["who", "who"]).by == ("who",)


def test_every_crash_point() -> None:
    rows = [("+", ("a", 9, 1)), ("+", ("a", 0, 2)), ("-", ("a", 9, 1)), ("+", ("a", 14, 3))]
    events = [Chunk.from_rows(SCHEMA, [change]) for change in rows]
    assert (
        crash_everywhere(SessionWindow(SCHEMA, "at", 10, by=["who"]), events, max_dirty_per_event=2, storage=False)
        == 4 * 9
    )


def sessions_of(rows: set[tuple[str, int, int]]) -> set[tuple[object, ...]]:
    """Return rows with the starts of their sessions, computed from all of them at once."""
    found, last, start = set(), ("", 0), 0
    for who, at, number in sorted(rows):
        if last[0] != who or at - last[1] >= 10:
            start = at
        found.add((who, at, number, start))
        last = who, at
    return found


STEPS = st.lists(
    st.builds(
        lambda who, at, n: (who, at, 100 * at + 10 * n + "ab".index(who)),
        st.sampled_from("ab"),
        st.integers(0, 60),
        st.integers(0, 2),
    ),
    max_size=30,
)


@given(STEPS, st.sets(st.integers(0, 29)), st.integers(1, 12), st.integers(1, 2), st.sampled_from([0, 1, 16]))
def test_rows_in_any_order_are_in_the_sessions_of_all_rows(
    steps: list[tuple[str, int, int]], recoveries: set[int], size: int, groups: int, passed: int
) -> None:
    sessions, there, shown = Sessions(), set[tuple[str, int, int]](), set[object]()
    with patch.multiple("objectspace.operators.sessions", CACHE_GROUPS=groups, MOST_PASSED=passed):
        for start in range(0, len(steps), size):
            if start in recoveries:
                sessions.operator.open(sessions.space, "sessions")
            changes = [("-" if step in there else "+", step) for step in dict.fromkeys(steps[start : start + size])]
            there ^= {step for _, step in changes}
            for op, row in sessions.take(*changes)[0]:  # type: ignore[misc]
                (shown.add if op in ("+", "U+") else shown.remove)(row)
            assert shown == sessions_of(there)
