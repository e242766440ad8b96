"""Sessions under a watermark: they give what they would without one, and forget what no change can touch any more."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.operators import Pipeline, SessionWindow, Stream, count, max_, session_ends
from objectspace.operators import sessions as sessions_module
from objectspace.relational import Chunk, Column, RowError, SchemaError, StateTable, StorageTable, TableSchema, tables
from objectspace.testing import crash_everywhere

from .test_sessions import sessions_of

GAP = 10
SCHEMA = TableSchema(
    [Column("who", "string", nullable=True), Column("at", "int64"), Column("id", "int64")],
    primary_key=["id"],
    watermark_column="at",
)


class Sessions:
    """Sessions by person under a watermark on a store, an epoch for each step."""

    def __init__(self) -> None:
        self.space = PersistedObjectSpace(CheckpointStore(":memory:"))
        self.epoch = 0
        self.open()
        self.take()

    def open(self) -> None:
        self.operator = SessionWindow(SCHEMA, "at", GAP, by=["who"])
        self.operator.open(self.space, "sessions")

    def take(self, *changes: tuple[str, tuple[Any, ...]], watermark: int | None = None) -> list[Any]:
        """Return what comes out of an epoch, which ends with a watermark for what comes after it."""
        self.epoch += 1
        out = self.operator.process(Chunk.from_rows(SCHEMA, changes))
        if watermark is not None:
            assert self.operator.watermark("at", watermark) == [("at", watermark)]
        assert self.operator.barrier(self.epoch) == []
        self.space.checkpoint(epoch=self.epoch)
        return [change for chunk in out for change in chunk.rows()]

    def kept(self, role: str = "rows") -> list[Any]:
        return list(StorageTable(self.space, f"sessions/{role}").scan())

    @property
    def slots(self) -> int:
        return sum(len(self.kept(role)) for role in ("rows", "open", "ends"))


def test_sessions_that_have_ended_are_forgotten_and_of_open_ones_all_but_what_tells_them() -> None:
    sessions = Sessions()
    sessions.take(*(("+", ("a", 5 * n, n)) for n in range(20)), ("+", (None, 3, 100)), watermark=50)
    assert sessions.kept() == [("a", 5 * n, n, 0) for n in range(9, 20)]
    assert sessions.kept("open") == [(0, "a")]
    assert sessions.operator.watermarks() == [("session_start", 0)]
    assert sessions.take(("+", ("a", 100, 20)), watermark=105) == [("+", ("a", 100, 20, 0))]
    assert sessions.kept() == [("a", 100, 20, 0)]
    assert sessions.take(("+", ("b", 107, 30)), watermark=110) == [("+", ("b", 107, 30, 107))]
    assert sessions.kept() == [("b", 107, 30, 107)]
    assert sessions.operator.watermarks() == [("session_start", 107)]
    sessions.take(watermark=200)
    assert (sessions.slots, sessions.operator.watermarks()) == (0, [("session_start", 200)])
    assert sessions.take(("+", ("a", 205, 40))) == [("+", ("a", 205, 40, 205))]


def test_a_row_at_the_watermark_that_goes_does_not_hold_up_the_end_of_its_session() -> None:
    sessions = Sessions()
    sessions.take(("+", ("a", 0, 1)), ("+", ("a", 5, 2)), ("+", ("a", 10, 3)), watermark=10)
    assert sessions.kept("ends") == [(5, "a", 0)]
    sessions.take(("-", ("a", 10, 3)), ("+", ("b", 15, 4)), watermark=15)
    assert (sessions.kept("open"), sessions.operator.watermarks()) == ([(15, "b")], [("session_start", 15)])


def test_sessions_that_an_earlier_version_has_stored_are_found() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    earlier = SessionWindow(TableSchema(SCHEMA.columns, ["id"]), "at", GAP, by=["who"])
    earlier.open(space, "sessions")
    rows = [("a", 5, 1), ("b", 9, 2), ("b", 15, 3)]
    earlier.process(Chunk.from_rows(TableSchema(SCHEMA.columns, ["id"]), [("+", row) for row in rows]))
    earlier.barrier(1)
    space.checkpoint(epoch=1)
    operator = SessionWindow(SCHEMA, "at", GAP, by=["who"])
    operator.open(space, "sessions")
    space.checkpoint(epoch=2)  # Both tables are there from now on, and empty.
    for _ in range(2):
        operator.process(Chunk.from_rows(SCHEMA, [("+", ("c", 16, 4))]))
        operator.watermark("at", 15)
        operator.barrier(3)
        assert operator.watermarks() == [("session_start", 9)]
        kept = {role: list(StateTable(space, f"sessions/{role}", schema).scan()) for role, schema in operator.state()}
        assert [row[0] for row in kept["rows"]] == ["b", "b", "c"]
        assert kept["open"] == [(9, "b"), (16, "c")]
        space.rollback()


def test_an_own_operator_of_sessions_has_no_watermark_where_none_comes() -> None:
    found = Pipeline().source("rows", SCHEMA).through(lambda schema: SessionWindow(schema, "at", GAP), "mine")
    with pytest.raises(SchemaError, match="the stream has none"):
        found.group_by("session_start").on_window_close().agg(n=count())


def test_only_the_watermark_of_its_times_counts() -> None:
    sessions = Sessions()
    assert sessions.operator.watermark("id", 5) == []
    with pytest.raises(RowError, match="the watermark of 'at'"):
        sessions.operator.watermark("at", "late")
    assert sessions.operator.watermarks() == []
    plain = SessionWindow(TableSchema(SCHEMA.columns, ["id"]), "at", GAP)
    assert (plain.watermark("at", 5), [role for role, _ in plain.state()]) == ([], ["rows"])
    assert plain.schema.watermark_column is None


@pytest.mark.parametrize("watermark", [-(2**63), -(2**63) + 5])
def test_before_the_earliest_end_nothing_has_ended(watermark: int) -> None:
    sessions = Sessions()
    sessions.take(("+", ("a", -(2**63), 1)), watermark=watermark)
    assert sessions.kept() == [("a", -(2**63), 1, -(2**63))]
    sessions.take(watermark=-(2**63) + GAP)
    assert sessions.slots == 0


LATEST: dict[str, tuple[Any, Any]] = {
    "int16": (32_765, 1),
    "date": (date(9999, 12, 29), timedelta(days=1)),
    "timestamp": (datetime(9999, 12, 31, 23, 57), timedelta(minutes=1)),
    "timestamptz": (datetime(9999, 12, 31, 23, 57, tzinfo=UTC), timedelta(minutes=1)),
}


@pytest.mark.parametrize("kind", LATEST)
def test_times_of_each_type_up_to_the_last_that_it_holds(kind: str) -> None:
    begin, unit = LATEST[kind]
    pipeline = Pipeline()
    times = pipeline.source("times", {"at": kind}).watermark("at", 0 * unit).sessions("at", 2 * unit)
    times.group_by("session_start").on_window_close().agg(n=count()).materialize("closed")
    run = pipeline.run_local([{"times": [(begin,)]}])
    assert run.rows("closed") == []
    run.step({"times": [(begin + 2 * unit,)]})
    assert run.rows("closed") == [(begin, 1)]
    run.step({})
    assert run.rows("closed") == [(begin, 1)], "the last one never ends: no watermark is so late"


Step = tuple[list[tuple[str, int, int]], int, bool, bool]
STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 25), st.integers(0, 1)), max_size=6),
        st.integers(0, 12),
        st.booleans(),
        st.booleans(),
    ),
    max_size=12,
)


@given(STEPS, st.sampled_from([0, 1, 16]))
def test_what_is_forgotten_makes_no_difference(steps: list[Step], passed: int) -> None:
    sessions, there, shown, watermark = Sessions(), set[Any](), set[Any](), 0
    places = {"CACHE_GROUPS": 1, "MOST_PASSED": passed}
    with patch.multiple(sessions_module, **places), patch.object(session_ends, "LOOKS", 1 + passed):
        for events, step, is_opened, is_failed in steps:
            if is_opened:
                sessions.open()
            first_open = dict(sessions.operator.watermarks()).get("session_start", 0)
            rows = dict.fromkeys((who, watermark + at, 10 * (watermark + at) + n) for who, at, n in events)
            changes = [("-" if row in there else "+", (*row[:2], 2 * row[2] + (row[0] == "a"))) for row in rows]
            if is_failed:
                sessions.operator.process(Chunk.from_rows(SCHEMA, changes))
                sessions.operator.watermark("at", watermark + 100)
                sessions.operator.barrier(sessions.epoch + 1)
                sessions.space.rollback()
            old, watermark = watermark, watermark + step
            there ^= set(rows)
            for op, row in sessions.take(*changes, watermark=watermark):
                (shown.add if op in ("+", "U+") else shown.remove)(row)
                assert row[1] >= old, "what lies before the watermark stays as it is"
                assert row[3] >= first_open
            assert shown == sessions_of({(*row[:2], 2 * row[2] + (row[0] == "a")) for row in there})
            _check_kept(sessions, shown, watermark)


def _check_kept(sessions: Sessions, shown: set[Any], watermark: int) -> None:
    """Check that of each group the rows from the watermark on are kept, and little else."""
    kept = set(sessions.kept())
    assert {row for row in shown if row[1] >= watermark} <= kept <= shown
    ends = {
        (who, start): max(at for one, at, _, of in shown if (one, of) == (who, start)) for who, _, _, start in shown
    }
    assert {(who, start) for start, who in sessions.kept("open")} == {
        session for session, last in ends.items() if watermark - last < GAP
    }
    assert {(who, start) for who, _, _, start in kept} <= {(who, start) for start, who in sessions.kept("open")}
    for who, start in ends:
        passed = [at for one, at, _, of in kept if (one, of) == (who, start) and at < watermark]
        assert all(at > watermark - 2 * GAP - 12 for at in passed[:-1])
    (found,) = sessions.operator.watermarks()
    assert found == ("session_start", min([watermark, *(start for start, _ in sessions.kept("open"))]))


def visits(pipeline: Pipeline) -> Stream:
    clicks = pipeline.source("clicks", {"who": "string", "at": "int64"}).watermark("at", delay=5)
    return clicks.sessions("at", gap=GAP, by="who")


def test_each_session_is_given_once_after_those_that_began_before_it_and_nothing_of_it_stays() -> None:
    pipeline = Pipeline()
    found = visits(pipeline).group_by("who", "session_start").on_window_close().agg(n=count(), last=max_("at"))
    found.materialize("visits")
    run = pipeline.run_local([{"clicks": [("a", 0), ("b", 2), ("a", 8)]}, {"clicks": [("a", 12), ("b", 14)]}])
    assert run.rows("visits") == []
    run.step({"clicks": [("b", 20), ("a", 26)]})
    assert run.rows("visits") == [], "the first of b has ended, and waits for that of a, which began before it"
    run.step({"clicks": [("b", 29)]})
    assert run.rows("visits") == [("a", 0, 3, 12), ("b", 2, 1, 2)]
    run.step({"clicks": [("c", 1_000)]})
    run.step({})
    assert run.rows("visits") == [("a", 0, 3, 12), ("a", 26, 1, 26), ("b", 2, 1, 2), ("b", 14, 3, 29)]
    sizes = {
        name: len(list(StorageTable(run.space, name).scan())) for name in tables(run.space) if "visits" not in name
    }
    assert max(sizes.values()) == 1, sizes


def test_every_crash_point() -> None:
    def made() -> Pipeline:
        pipeline = Pipeline()
        totals = visits(pipeline).group_by("who", "session_start").on_window_close().agg(n=count())
        totals.materialize("visits")
        return pipeline

    times = [("a", 0), ("a", 9), ("b", 12), ("a", 30), ("b", 60)]
    assert crash_everywhere(made, [{"clicks": [time]} for time in times], storage=False) == 5 * 9


def test_a_watermark_column_for_which_no_watermark_comes_ends_nothing() -> None:
    pipeline = Pipeline()
    found = pipeline.source("rows", SCHEMA).sessions("at", GAP, by="who")
    assert found.schema.watermark_column is None
    with pytest.raises(SchemaError, match=r"takes a watermark on a group column"):
        found.group_by("session_start").on_window_close().agg(n=count())
