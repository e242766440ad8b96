"""Watermarks: groups that close, state that is cleaned, rows that come too late, and the windows of time."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint import CheckpointStore
from objectspace import VolatileObjectSpace
from objectspace.operators import (
    AggCall,
    Dedup,
    GroupTopN,
    HashAgg,
    HashJoin,
    Hop,
    Pipeline,
    TemporalJoin,
    Tumble,
    WatermarkFilter,
    count,
)
from objectspace.relational import Chunk, RowError, SchemaError, TableSchema
from tests.operators.agg_oracle import Log, Running, materialize, permuted
from tests.relational.helpers import schema_of

SCHEMA = schema_of("w int64", "k string", "v int64", "id int64", key=["id"], watermark_column="w")

CALLS = [AggCall("count"), AggCall("min", "v"), AggCall("array_agg", "v"), AggCall("count", "v", distinct=True)]


def closing() -> HashAgg:
    return HashAgg(SCHEMA, ["k", "w"], CALLS, emit_on_window_close=True)


def make_row(key: int, randomness: random.Random) -> Any:
    return (randomness.randrange(12), randomness.choice("ab"), randomness.choice([None, 1, 2, 3]), key)


def expected(rows: Any, low: int, high: int) -> list[Any]:
    groups: dict[Any, list[Any]] = {}
    for w, k, v, _ in sorted(rows, key=lambda row: row[3]):
        if low <= w < high:
            groups.setdefault((w, k), []).append(v)
    found = []
    for (w, k), values in sorted(groups.items()):
        there = [value for value in values if value is not None]
        found.append(("+", (k, w, len(values), min(there, default=None), values, len(set(there)))))
    return found


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_closed_windows_are_given_once_and_in_order(seed: int) -> None:
    randomness = random.Random(seed)
    running = Running(closing)
    log = Log(make_row, randomness)
    mark = 0
    for step in (3, 0, 4, 5):
        changes = [change for change in log.epoch(30) if change[1][0] >= mark]
        log.rows = {key: row for key, row in log.rows.items() if row[0] >= mark or row[0] < 0}
        there = materialized(running, changes)
        running.feed(permuted(changes, randomness))
        running.operator.watermark("w", mark + step)
        assert running.barrier() == expected(there, mark, mark + step)
        mark += step
        if randomness.random() < 0.5:
            running.recover()
    assert not any(running.stored().values())


def materialized(running: Running, changes: Any) -> list[Any]:
    """Return the rows that the operator was given so far and that are still there."""
    there: Counter[Any] = getattr(running, "there", Counter())
    for op, row in changes:
        there[row] += 1 if op in ("+", "U+") else -1
    running.there = +there  # type: ignore[attr-defined]
    return list(running.there)  # type: ignore[attr-defined]


def test_what_comes_after_its_window_closed_is_dropped_also_after_recovery() -> None:
    running = Running(closing)
    running.feed([("+", (1, "a", 5, 1))])
    running.operator.watermark("w", 2)
    assert running.barrier() == [("+", ("a", 1, 1, 5, [5], 1))]
    running.recover()
    assert running.run([("+", (1, "a", 6, 2)), ("+", (2, "a", 7, 3))]) == []
    assert running.operator.late_rows == 1  # type: ignore[attr-defined]
    running.operator.watermark("w", 9)
    assert running.barrier() == [("+", ("a", 2, 1, 7, [7], 1))]


def test_a_watermark_cleans_state_and_leaves_the_result() -> None:
    running = Running(lambda: HashAgg(SCHEMA, ["w"], CALLS))
    running.run([("+", (number % 5, "a", number, number)) for number in range(20)])
    result = running.rows()
    assert running.operator.watermark("w", 3) == [("w", 3)]
    assert running.operator.watermark("k", "a") == [], "no group column"
    assert running.run([("+", (4, "b", 1, 99))])[0][0] == "U-"
    assert len(running.rows()) == len(result)
    assert {len(rows) for name, rows in running.stored().items() if name.endswith("State")} == {2}


WINDOWS: dict[str, tuple[str, Callable[[int], Any]]] = {
    "numbers": ("int64", int),
    "floats": ("float64", float),
    "decimals": ("decimal", Decimal),
    "text": ("string", "{:04}".format),
}

SAME = ("floats", "decimals")
"""Windows that are kept as those of whole numbers are."""


@pytest.mark.parametrize("calls", [CALLS[:1], CALLS], ids=["short", "listed"])
@pytest.mark.parametrize("group_key", [["w"], ["k", "w"]], ids=str)
@pytest.mark.parametrize(
    ("kind", "make"),
    [pytest.param(*pair, id=kind, marks=[pytest.mark.slow] * (kind in SAME)) for kind, pair in WINDOWS.items()],
)
def test_groups_that_are_closed_leave_the_memory_and_others_stay(
    kind: str, make: Callable[[int], Any], group_key: list[str], calls: list[AggCall]
) -> None:
    schema = schema_of(f"w {kind}", "k string", "v int64", "id int64", key=["id"], watermark_column="w")
    running = Running(lambda: HashAgg(schema, group_key, calls))
    running.run([("+", (None, "a", 1, 0))])
    for number in range(1, 301):
        running.operator.watermark("w", make(number))
        running.run([("+", (make(number), "a", 1, number))])
    assert len(running.operator._known) <= 201
    ((_, old), (_, new)) = running.run([("+", (None, "a", 1, 301))])
    assert (old[len(group_key)], new[len(group_key)]) == (1, 2)


def test_closing_takes_a_window_column() -> None:
    plain = schema_of("a int64", "b int64", "id int64", key=["id"])
    with pytest.raises(SchemaError, match="emit_on_window_close takes a watermark on a group column"):
        HashAgg(plain, ["a", "b"], [AggCall("count")], emit_on_window_close=True)
    assert HashAgg(plain, ["a", "b"], [AggCall("count")], emit_on_window_close="b").schema.watermark_column == "b"


TIMES = schema_of("at timestamp", "id int64", key=["id"], watermark_column="at")


@pytest.mark.parametrize("slides", [1, 3])
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_windows_are_those_of_duckdb(slides: int, seed: int) -> None:
    randomness = random.Random(seed)
    slide = timedelta(minutes=randomness.choice([1, 7, 60]))
    hop = Hop(TIMES, "at", slide * slides, slide) if slides > 1 else Tumble(TIMES, "at", slide)
    start = datetime(1969, 12, 30)
    log = Log(lambda key, source: (start + timedelta(seconds=source.randrange(10**6)), key), randomness)
    result: dict[bytes, Any] = {}
    for _ in range(3):
        changes = Chunk.from_rows(TIMES, log.epoch(20))
        materialize(hop.schema, result, [change for chunk in hop.process(changes) for change in chunk])
    assert sorted(result.values(), key=repr) == sorted(in_duckdb(log.rows.values(), slide, slides), key=repr)


def in_duckdb(rows: Any, slide: timedelta, slides: int) -> list[Any]:
    """Return the rows with the windows that DuckDB's buckets make."""
    with duckdb.connect() as database:
        database.execute("CREATE TABLE t (moment TIMESTAMP, id BIGINT)")
        if rows:
            database.executemany("INSERT INTO t VALUES (?, ?)", list(rows))
        found = database.execute(
            "SELECT moment, id, time_bucket($slide, moment, TIMESTAMP '1970-01-01') - n * $slide AS start,"
            " start + $size FROM t, range($slides) AS numbers(n)",
            {"slide": slide, "size": slide * slides, "slides": slides},
        )
        return found.fetchall()


@pytest.mark.parametrize("make", [closing, lambda: Dedup(SCHEMA, ["w"])])
def test_a_watermark_that_is_no_value_of_the_column_is_refused_at_once(make: Any) -> None:
    running = Running(make)
    for wrong in ("soon", None):
        with pytest.raises(RowError, match=r"the watermark of 'w' \(int64\): "):
            running.operator.watermark("w", wrong)
    running.feed([("+", (5, "a", 1, 1))])
    running.operator.watermark("w", 6)
    assert len(running.barrier()) == 1


def test_a_window_passes_watermarks_on() -> None:
    hop = Hop(TIMES, "at", timedelta(minutes=10), timedelta(minutes=5))
    at = datetime(2026, 1, 1, 12, 7)
    given = dict(hop.watermark("at", at))
    assert given == {"at": at, "window_start": datetime(2026, 1, 1, 12, 0), "window_end": datetime(2026, 1, 1, 12, 10)}
    assert hop.schema.watermark_column == "window_start"
    assert hop.process(Chunk.from_rows(TIMES, [("+", (None, 1))])) == []


@pytest.mark.parametrize(
    ("size", "slide", "why"),
    [
        (timedelta(0), timedelta(1), "positive"),
        (5, 5, "positive timedelta"),
        (timedelta(minutes=5), timedelta(minutes=2), "multiple"),
    ],
)
def test_spans_must_fit(size: Any, slide: Any, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        Hop(TIMES, "at", size, slide)


def test_the_watermark_filter_drops_what_is_too_late() -> None:
    plain = schema_of("at int64", "id int64", key=["id"])
    running = Running(lambda: WatermarkFilter(plain, "at", delay=5))
    operator: Any = running.operator

    def feed(*moments: Any) -> list[Any]:
        rows = [("+", (moment, number)) for number, moment in enumerate(moments)]
        return [row[0] for chunk in operator.process(Chunk.from_rows(plain, rows)) for _, row in chunk]

    assert feed(100, 10, None) == [100, 10, None], "the watermark moves at barriers only"
    assert operator.watermarks() == []
    running.barrier()
    assert operator.watermarks() == [("at", 95)]
    assert feed(94, 95, 90, None) == [95, None]
    assert operator.late_rows == 2
    running.barrier()
    running.recover()
    operator = running.operator
    assert (operator.watermarks(), feed(94, 96)) == ([("at", 95)], [96])
    assert operator.process(Chunk.from_rows(plain, [("U-", (96, 1)), ("U+", (1, 1))]))[0].rows() == [("-", (96, 1))]
    assert operator.watermark("at", 3) == []
    assert operator.watermark("id", 3) == [("id", 3)]


@pytest.mark.parametrize(
    ("kind", "delay", "least"),
    [("int16", 5, -(2**15)), ("timestamp", timedelta(days=1), datetime.min), ("date", timedelta(days=1), date.min)],
)
def test_a_watermark_before_all_that_its_type_holds_is_none(kind: str, delay: Any, least: Any) -> None:
    pipeline = Pipeline()
    times = pipeline.source("times", {"id": "int64", "at": kind}, key=["id"]).watermark("at", delay)
    times.group_by("at").agg(n=AggCall("count")).materialize("counts")
    with pipeline.run_local([{"times": [(1, least)]}, {"times": [(2, least)]}]) as run:
        assert run.rows("counts") == [(least, 2)]


@pytest.mark.parametrize(
    ("kind", "delay", "size", "moments"),
    [
        ("int16", 5_000, 10_000, (-27_000, 30)),
        ("timestamp", timedelta(days=8), timedelta(days=7), (datetime(1, 1, 10), datetime(2024, 1, 1))),
    ],
)
def test_a_window_that_begins_before_all_that_its_type_holds_has_no_watermark(
    kind: str, delay: Any, size: Any, moments: Any
) -> None:
    pipeline = Pipeline()
    times = pipeline.source("times", {"id": "int64", "at": kind}, key=["id"]).watermark("at", delay)
    windows = times.window("at", size).group_by("window_start").on_window_close()
    windows.agg(n=AggCall("count")).materialize("counts")
    with pipeline.run_local([{"times": [(1, moments[0])]}, {"times": [(2, moments[1])]}]) as run:
        assert [row[1] for row in run.rows("counts")] == [1]


IN_TIME: list[Callable[[TableSchema], Any]] = [
    lambda schema: HashAgg(schema, ["w"], [AggCall("count")]),
    lambda schema: GroupTopN(schema, ["w"], ["id"], 1),
    lambda schema: Dedup(schema, ["w"]),
    lambda schema: HashJoin(schema, schema, ["w"], ["w"], "left_outer", watermarks=True),
    lambda schema: TemporalJoin(schema, schema, ["k"], ["k"], "w", "w", "left_outer"),
]


@pytest.mark.parametrize("number", [float, Decimal])
@pytest.mark.parametrize("make", IN_TIME)
def test_nan_is_never_too_late(make: Callable[[TableSchema], Any], number: type) -> None:
    kind = "float64" if number is float else "decimal"
    schema = schema_of(f"w {kind}", "k int64", "id int64", key=["id"], watermark_column="w")
    operator = make(schema)
    operator.open(VolatileObjectSpace(), "op")
    given: list[Chunk] = []
    for epoch, values in enumerate((["1", "NaN"], ["NaN", "2", "7"]), start=1):
        rows = [("+", (number(value), 0, 10 * epoch + place)) for place, value in enumerate(values)]
        for side in operator.sides:
            given += operator.process(Chunk.from_rows(schema, rows), side)
        for side in operator.sides:
            with pytest.raises(RowError, match=r"the watermark of 'w'.* is NaN: pass a number"):
                operator.watermark("w", number("NaN"), side)
            operator.watermark("w", number(5), side)
        given += operator.barrier(epoch)
    assert getattr(operator, "late_rows", len(operator.sides)) == len(operator.sides)
    if not isinstance(operator, TemporalJoin):
        assert any(row[0] != row[0] for chunk in given for row in chunk.values)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-3, 40)), max_size=6), min_size=1, max_size=5))
def test_windows_of_first_rows_by_a_key_without_the_time_close_by_a_watermark_of_their_own(
    batches: list[list[tuple[str, int]]],
) -> None:
    numbers = itertools.count()
    epochs = [{"seen": [(next(numbers), *row) for row in batch]} for batch in batches]
    pipeline = Pipeline()
    seen = pipeline.source("seen", {"id": "int64", "ad": "string", "at": "int64"}, key=["id"], append_only=True)
    first = seen.watermark("at", 5).dedup("ad")
    first.materialize("first")
    windows = first.watermark("at", 5).window("at", 10).group_by("window_start")
    windows.on_window_close().agg(n=count()).materialize("closed")
    windows.agg(n=count()).materialize("all")
    run = pipeline.run_local(epochs, CheckpointStore(":memory:"))
    mark = max((at for *_, at in run.rows("first")), default=-100) - 5
    assert run.rows("closed") == [(start, n) for start, n in run.rows("all") if start + 10 <= mark]
