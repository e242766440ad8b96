"""Joins of pipelines beside DuckDB: by time, with watermarks that clean their state, and with keys that are NULL."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace, VolatileObjectSpace
from objectspace.operators import HashJoin, LocalRun, Pipeline, PipelineChangedError, Stream, col, count, lit, sum_
from objectspace.relational import Chunk, Column, SchemaError, StorageTable, TableSchema
from objectspace.testing import crash_everywhere

CONNECTION = duckdb.connect()
DELAY = {"a": 2, "b": 5}

Rows = list[tuple[int, int, int]]


def timed(pipeline: Pipeline) -> dict[str, Stream]:
    """Return two streams of a number, a key and a time, with watermarks of different delays."""
    schema = {"id": "int64", "k": "int64", "t": "int64"}
    found = {name: pipeline.source(name, schema, key=["id", "t"], append_only=True) for name in DELAY}
    return {name: stream.watermark("t", DELAY[name]) for name, stream in found.items()}


class Timely:
    """What watermarks let through of rows that come in batches."""

    def __init__(self) -> None:
        self.rows: dict[str, Rows] = {name: [] for name in DELAY}
        self.greatest: dict[str, int | None] = dict.fromkeys(DELAY)

    def mark(self, name: str) -> int:
        greatest = self.greatest[name]
        return -100 if greatest is None else greatest - DELAY[name]

    def take(self, batch: dict[str, Rows]) -> None:
        for name, rows in batch.items():
            self.rows[name] += [row for row in rows if row[2] >= self.mark(name)]
            times = [row[2] for row in rows]
            if times:
                self.greatest[name] = max(times if self.greatest[name] is None else [*times, self.greatest[name]])

    def answer(self, sql: str) -> Counter[Any]:
        tables = []
        for name, rows in self.rows.items():
            values = " UNION ALL ".join(f"SELECT {number}, {key}, {time}" for number, key, time in rows)
            empty = "SELECT 0::BIGINT, 0::BIGINT, 0::BIGINT WHERE false"
            tables.append(f"{name}(id, k, t) AS ({empty}{' UNION ALL ' if rows else ''}{values})")
        return Counter(CONNECTION.execute(f"WITH {', '.join(tables)} {sql}").fetchall())


def numbered(steps: list[list[tuple[str, int, int, int]]]) -> list[dict[str, Rows]]:
    """Return batches in which time goes on, and every row has a number of its own."""
    batches: list[dict[str, Rows]] = []
    number = now = 0
    for step in steps:
        batch: dict[str, Rows] = {"a": [], "b": []}
        for name, key, forward, back in step:
            number, now = number + 1, now + forward
            batch[name].append((number, key, now - back))
        batches.append(batch)
    return batches


BATCHES = st.lists(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 3), st.integers(0, 7)), max_size=6),
    max_size=6,
).map(numbered)

RECOVERIES = st.sets(st.integers(0, 5))

KINDS = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN"}


def played(build: Any, batches: list[dict[str, Rows]], recoveries: set[int]) -> LocalRun:
    """Run a pipeline on a store, opened again before some of the batches."""
    store = CheckpointStore(":memory:")

    def _open() -> LocalRun:
        pipeline = Pipeline()
        build(timed(pipeline)).materialize("result")
        return LocalRun(pipeline, PersistedObjectSpace(store))

    run = _open()
    for number, batch in enumerate(batches):
        if number in recoveries:
            run.space.close()
            run = _open()
        run.step(batch)
    return run


def timely(batches: list[dict[str, Rows]]) -> Timely:
    found = Timely()
    for batch in batches:
        found.take(batch)
    return found


@pytest.mark.parametrize("how", KINDS)
@settings(max_examples=5, deadline=None)
@given(batches=BATCHES, recoveries=RECOVERIES)
def test_a_join_within_an_interval(how: str, batches: list[dict[str, Rows]], recoveries: set[int]) -> None:
    def build(streams: dict[str, Stream]) -> Stream:
        near = streams["a"].join(streams["b"], on="k", how=how, within=("t", "t", -2, 1))
        return near.select("k", "t", "t_right", a="id", b="id_right")

    run = played(build, batches, recoveries)
    near = f"FROM a {KINDS[how]} b ON a.k = b.k AND a.t - b.t BETWEEN -2 AND 1"
    sql = f"SELECT coalesce(a.k, b.k), a.t, b.t, a.id, b.id {near}"
    assert Counter(run.rows("result")) == timely(batches).answer(sql)


@pytest.mark.parametrize(("time", "least", "most"), [("t", -2, 1), ("u", -2, 1), ("t", 1, None), ("u", None, 2)])
@pytest.mark.parametrize(
    "how", ["inner", *(pytest.param(how, marks=pytest.mark.slow) for how in ("left", "right")), "full"]
)
@settings(max_examples=5, deadline=None)
@given(batches=BATCHES, recoveries=RECOVERIES)
def test_windows_of_either_time_close_behind_a_join_within_an_interval(
    how: str, time: str, least: int | None, most: int | None, batches: list[dict[str, Rows]], recoveries: set[int]
) -> None:
    def build(streams: dict[str, Stream]) -> Stream:
        near = streams["a"].join(streams["b"], on="k", how=how, within=("t", "t", least, most))
        near = near.select("k", "t", u="t_right").filter(col("k") >= 0).window(time, 4, 2)
        return near.group_by("k", "window_start").on_window_close().agg(n=count(), total=sum_(time))

    run, model = played(build, batches, recoveries), timely(batches)
    a, b = (model.mark(name) if model.rows[name] else -100 for name in "ab")
    mark = min(a, b + (least or 0)) if time == "t" else min(b, a - (most or 0))
    bounds = [f"a.t - b.t {sign} {by}" for sign, by in ((">=", least), ("<=", most)) if by is not None]
    near = f"SELECT coalesce(a.k, b.k) k, a.t, b.t u FROM a {KINDS[how]} b ON {' AND '.join(['a.k = b.k', *bounds])}"
    start = f"{time} - (({time} % 2) + 2) % 2 - d"
    windows = f"SELECT k, {start} w, {time} t FROM ({near}), (SELECT unnest([0, 2]) d)"
    closed = f"SELECT k, w, count(*), sum(t) FROM ({windows}) WHERE w < {mark - mark % 2 - 2} GROUP BY k, w"
    assert Counter(run.rows("result")) == (model.answer(closed) if min(a, b) > -100 else Counter())


@settings(max_examples=15, deadline=None)
@given(batches=BATCHES, recoveries=RECOVERIES)
def test_the_watermarks_of_both_times_of_a_join_hold_for_what_is_behind_it(
    batches: list[dict[str, Rows]], recoveries: set[int]
) -> None:
    def near(streams: dict[str, Stream]) -> Stream:
        return streams["a"].join(streams["b"], on="k", within=("t", "t", -2, 1)).select("k", "t", u="t_right")

    def both(streams: dict[str, Stream]) -> Stream:
        again = near(streams).join(streams["b"].select("k", v="t"), on="k", within=("u", "v", 0, 1))
        found = again.union(again).select("k", "v").group_by("k", "v").agg(n=count()).materialize("counted")
        return found.group_by("k", "v").on_window_close().agg(n=sum_("n"))

    def as_of(streams: dict[str, Stream]) -> Stream:
        versions = streams["a"].select("k", "id", at="t")
        return near(streams).select("k", "u").join(versions, on="k", as_of=("u", "at")).select("k", "u", "at")

    model = timely(batches)
    least = {name: model.mark(name) if model.rows[name] else -100 for name in "ab"}
    pairs = "FROM a JOIN b ON a.k = b.k AND a.t - b.t BETWEEN -2 AND 1"
    mark = min(least["b"], min(least["b"], least["a"] - 1) - 1)
    triples = f"{pairs} JOIN b c ON c.k = b.k AND b.t - c.t BETWEEN 0 AND 1 WHERE c.t < {mark}"
    expected = model.answer(f"SELECT a.k, c.t, 2 * count(*) {triples} GROUP BY 1, 2")
    run = played(both, batches, recoveries)
    assert Counter(run.rows("result")) == (expected if min(least.values()) > -100 else Counter())
    mark = min(least["b"], least["a"] - 1)
    joined = f"(SELECT a.k, b.t u {pairs} WHERE b.t < {mark}) p ASOF JOIN a v ON p.k = v.k AND p.u >= v.t"
    expected = model.answer(f"SELECT p.k, p.u, v.t FROM {joined}")
    run = played(as_of, batches, recoveries)
    assert Counter(run.rows("result")) == (expected if min(least.values()) > -100 else Counter())


@pytest.mark.parametrize("join_first", [True, False])
def test_a_union_has_each_watermark_that_all_its_streams_have(join_first: bool) -> None:
    pipeline = Pipeline()
    left, right, other = (
        pipeline.source(name, {"k": "string", "t": "int64"}).watermark("t", 0) for name in ("left", "right", "other")
    )
    joined = left.join(right.select("k", u="t"), on="k", within=("t", "u", 0, 0)).select("k", "t", "u")
    renamed = other.select("k", u="t", t=lit(0)).select("k", "t", "u")
    streams = (joined, renamed) if join_first else (renamed, joined)
    closed = streams[0].union(streams[1]).group_by("u").on_window_close()
    closed.agg(n=count()).materialize("closed")
    times = [[1, 2], [2], [9], []]
    batches = [{name: [("x", time) for time in few] for name in ("left", "right", "other")} for few in times]
    assert pipeline.run_local(batches).rows("closed") == [(1, 2), (2, 6)]


def test_groups_that_wait_for_one_column_give_no_watermark_of_another() -> None:
    pipeline = Pipeline()
    left, right = (
        pipeline.source(name, {"k": "string", time: "int64"}).watermark(time, 0)
        for name, time in (("left", "t"), ("right", "u"))
    )
    counts = left.window("t", 10).group_by("k", "window_start", "t").on_window_close().agg(n=count())
    counts.join(right, on="k", within=("t", "u", 0, 0)).select("t", "u").materialize("met")
    times = [[12], [17], [], [30], []]
    run = pipeline.run_local([{name: [("x", time) for time in few] for name in ("left", "right")} for few in times])
    assert run.rows("met") == [(12, 12), (17, 17)]


@settings(max_examples=6, deadline=None)
@given(batches=BATCHES, recoveries=RECOVERIES, how=st.sampled_from(["inner", "left"]))
def test_a_join_as_of_a_time(batches: list[dict[str, Rows]], recoveries: set[int], how: str) -> None:
    def build(streams: dict[str, Stream]) -> Stream:
        valid = streams["a"].join(streams["b"], on="k", how=how, as_of=("t", "t"))
        return valid.select("id", "k", "t", "t_right")

    run, model = played(build, batches, recoveries), timely(batches)
    mark = min(map(model.mark, DELAY)) if all(map(model.rows.get, DELAY)) else -100
    outer = "LEFT" if how == "left" else ""
    sql = f"SELECT a.id, a.k, a.t, b.t FROM a ASOF {outer} JOIN b ON a.k = b.k AND a.t >= b.t WHERE a.t < {mark}"
    assert Counter(run.rows("result")) == model.answer(sql)


@pytest.mark.parametrize("hop", [4, 2], ids=["tumbling", "hopping"])
@pytest.mark.parametrize("how", KINDS)
@settings(max_examples=5, deadline=None)
@given(batches=BATCHES, recoveries=RECOVERIES)
def test_watermarks_clean_a_join_of_windows_and_close_the_windows_behind_it(
    how: str, hop: int, batches: list[dict[str, Rows]], recoveries: set[int]
) -> None:
    def build(streams: dict[str, Stream]) -> Stream:
        left, right = (stream.window("t", 4, hop) for stream in streams.values())
        both = left.join(right, on=["k", "window_start"], how=how)
        both.materialize("pairs")
        return both.group_by("window_start").on_window_close().agg(n=count(), total=sum_("t"))

    run, model = played(build, batches, recoveries), timely(batches)
    windows = f"(SELECT *, t - ((t % {hop}) + {hop}) % {hop} - d AS w FROM {{}}, (SELECT unnest(range(0, 4, {hop})) d))"
    pairs = f"FROM {windows.format('a')} a {KINDS[how]} {windows.format('b')} b ON a.k = b.k AND a.w = b.w"
    rows = [(row[0], row[2]) for row in run.rows("pairs", hidden=False)]
    assert Counter(rows) == model.answer(f"SELECT a.id, a.t {pairs}")
    marks = [mark - mark % hop - (4 - hop) for mark in map(model.mark, DELAY)]
    least = min(marks) if all(map(model.rows.get, DELAY)) else -100
    closed = f"SELECT coalesce(a.w, b.w) AS w, count(*), sum(a.t) {pairs} WHERE coalesce(a.w, b.w) < {least} GROUP BY 1"
    assert Counter(run.rows("result")) == model.answer(closed)
    name = next(node for node in run.plan.stateful if node.label == "HashJoin")
    run.step({})
    for side, place in (("left", 3), ("right", 3)):
        table = StorageTable(run.space, f"{run.plan.names[name]}/{side}")
        assert all(row[place] >= least for row in table.scan())
        assert len(run.space.get(table.name)) == len(list(table.scan())), "what is hidden is gone as well"


@settings(max_examples=6, deadline=None)
@given(batches=BATCHES, recoveries=RECOVERIES)
def test_watermarks_clean_the_first_rows_of_windows_and_pass_tables(
    batches: list[dict[str, Rows]], recoveries: set[int]
) -> None:
    def build(streams: dict[str, Stream]) -> Stream:
        windows = streams["a"].window("t", 4).group_by("k", "window_start")
        first = windows.top_n(1, ["t desc", "id"]).materialize("first", key=["k", "window_start"])
        return first.group_by("window_start").on_window_close().agg(n=count(), total=sum_("id"))

    run, model = played(build, batches, recoveries), timely(batches)
    rank = "row_number() OVER (PARTITION BY k, t - ((t % 4) + 4) % 4 ORDER BY t DESC, id)"
    first = f"(SELECT *, t - ((t % 4) + 4) % 4 AS w FROM a QUALIFY {rank} = 1)"
    assert Counter((row[0], row[2]) for row in run.rows("first")) == model.answer(f"SELECT id, t FROM {first}")
    mark = model.mark("a") - model.mark("a") % 4
    closed = f"SELECT w, count(*), sum(id) FROM {first} WHERE w < {mark} GROUP BY w"
    assert Counter(run.rows("result")) == model.answer(closed)
    run.step({})
    name = next(run.plan.names[node] for node in run.plan.stateful if node.label == "GroupTopN")
    kept = list(StorageTable(run.space, f"{name}/rows").scan())
    assert all(row[3] >= mark for row in kept)
    assert len(run.space.get(f"{name}/rows")) == len(kept)


def test_full_joins_on_what_is_the_stream_key_keep_the_watermark_of_the_column_that_is_never_null() -> None:
    pipeline = Pipeline()
    schema = {"id": "int64", "at": "int64"}
    counts = [
        pipeline.source(name, schema, key=["id"], append_only=True)
        .watermark("at", 0)
        .window("at", 10)
        .group_by("window_start")
        .agg(**{name: count()})
        for name in "abc"
    ]
    both = counts[0].join(counts[1], on="window_start", how="full")
    assert both.schema.watermark_column == "window_start"
    all_three = both.join(counts[2], on="window_start", how="full")
    all_three.group_by("window_start").on_window_close().agg(n=sum_("a"), m=sum_("b"), o=sum_("c")).materialize(
        "closed"
    )
    run = pipeline.run_local([{name: [(n, n * 10)] for name in "abc" if n % 3 or name != "a"} for n in range(20)])
    assert run.rows("closed") == [(n * 10, 1 if n % 3 else None, 1, 1) for n in range(19)]
    sizes = [len(run.space.get(one.name)) for one in run.plan.tables() if ".HashJoin/" in one.name]
    assert sizes == [1] * 8
    hidden = counts[0].select("a").group_by("a").on_window_close()
    with pytest.raises(SchemaError, match=r"one on '_window_start'; keep that with select\(\) and group by it too"):
        hidden.agg(n=count())


def test_a_watermark_ends_where_rows_below_it_may_still_change() -> None:
    stream = timed(Pipeline())["a"]
    assert stream.top_n(1, ["t"]).schema.watermark_column is None
    assert stream.select("k", "t").join(stream, on="k", how="semi").schema.watermark_column is None
    assert stream.materialize("by_k", key=["k"]).schema.watermark_column is None
    assert stream.materialize("by_t", key=["k", "t"]).schema.watermark_column == "t"
    with pytest.raises(SchemaError, match="takes a watermark on a group column"):
        stream.join(stream, on="k").group_by("k", "t").on_window_close().agg(n=count())


def test_what_a_join_by_time_cannot_do_is_refused() -> None:
    pipeline = Pipeline()
    streams = timed(pipeline)
    plain = pipeline.source("plain", {"id": "int64", "k": "int64", "t": "int64"}, key=["id", "t"], append_only=True)
    with pytest.raises(SchemaError, match=r"the right side has none on 't': use \.watermark\('t', delay\)"):
        streams["a"].join(plain, on="k", as_of=("t", "t"))
    with pytest.raises(SchemaError, match="as_of= goes without within="):
        streams["a"].join(streams["b"], on="k", as_of=("t", "t"), where="k")
    with pytest.raises(SchemaError, match=r"within= takes \(left time, right time, how far apart\)"):
        streams["a"].join(streams["b"], on="k", within=("t", "t"))
    with pytest.raises(SchemaError, match="no temporal join of kind 'full_outer'"):
        streams["a"].join(streams["b"], on="k", how="full", as_of=("t", "t"))
    with pytest.raises(SchemaError, match=r"lower, the least of within=, is 1\.5: between times of int64 it is a int"):
        streams["a"].join(streams["b"], on="k", within=("t", "t", 1.5, 2))
    for bounds in [(timedelta.max,), (timedelta.min, timedelta.max)]:
        with pytest.raises(SchemaError, match=r"999999.*: at most 999,999,999 days, or None for any time"):
            streams["a"].join(streams["b"], on="k", within=("t", "t", *bounds))
    prices = pipeline.source("prices", {"k": "int64", "t": "int64"}, key=["k"]).watermark("t", 0)
    with pytest.raises(SchemaError, match="the key of the right side must hold its time 't'"):
        streams["a"].join(prices, on="k", as_of=("t", "t"))


@pytest.mark.slow
def test_joins_by_time_survive_every_crash_point() -> None:
    pipeline = Pipeline()
    streams = timed(pipeline)
    near = streams["a"].join(streams["b"], on="k", how="full", within=("t", "t", 3))
    near.join(streams["b"], on="k", how="left", as_of=("t", "t"), suffix="_valid").materialize("near")
    batches = numbered([[(name, n % 2, 2, n % 4) for name in "ab"] for n in range(4)])
    assert crash_everywhere(pipeline, batches, storage=False) == 4 * 9


# Stream keys of which all may be NULL


def nullable(pipeline: Pipeline) -> list[Stream]:
    return [pipeline.source(name, {"id": "int64?", "k": "int64?"}, key=["id"]) for name in ("a", "b")]


@pytest.mark.parametrize("null_safe", [False, True])
def test_rows_of_a_full_join_whose_keys_are_null_stay_apart(null_safe: bool) -> None:
    pipeline = Pipeline()
    left, right = nullable(pipeline)
    left.join(right, on="k", how="full", null_safe=null_safe).materialize("all")
    run = pipeline.run_local([{"a": [(None, 1)]}, {"b": [(None, 2)]}])
    assert Counter(run.rows("all")) == Counter([(None, 1, None), (None, 2, None)])
    run.step({"a": [("U-", (None, 1)), ("U+", (None, 2))]})
    assert run.rows("all") == [(None, 2, None)]
    run.step({"a": [("U-", (None, 2)), ("U+", (None, None))], "b": [("-", (None, 2))]})
    assert run.rows("all") == [(None, None, None)]
    run.step({"b": [(None, None)]})
    assert len(run.rows("all")) == 1 if null_safe else 2
    run.step({"a": [("-", (None, None))]})
    assert run.rows("all") == [(None, None, None)]


def test_a_full_join_of_two_single_rows() -> None:
    pipeline = Pipeline()
    sums = [stream.agg(total=sum_("k")) for stream in nullable(pipeline)]
    sums[0].join(sums[1], on="total", how="full").materialize("sums")
    run = pipeline.run_local([{}, {"a": [(1, 5)]}, {"b": [(1, 7)]}])
    assert Counter(run.rows("sums")) == Counter([(5,), (7,)])
    run.step({"b": [("U-", (1, 7)), ("U+", (1, 5))]})
    assert run.rows("sums") == [(5,)]


def test_the_operator_takes_a_mark_into_its_stream_key() -> None:
    schema = TableSchema([Column("k", "int64", nullable=True)], ["k"])
    join = HashJoin(schema, schema, ["k"], ["k"], "full_outer", in_left="there")
    join.open(VolatileObjectSpace(), "join")
    found = [join.process(Chunk.from_rows(schema, [("+", (None,))]), side=side)[0].rows() for side in join.sides]
    assert found == [[("+", (None, None, True))], [("+", (None, None, False))]]
    assert [name for name, _ in join.schema.primary_key] == ["k", "k_right", "there"]
    with pytest.raises(SchemaError, match="in_left='there' is for full outer joins: found a join of kind 'inner'"):
        HashJoin(schema, schema, ["k"], ["k"], in_left="there")


def null_safe(mask: Any, *, has_watermarks: bool = False) -> Pipeline:
    """Return the pipeline of a join on two columns that may be NULL."""
    pipeline = Pipeline()
    left = pipeline.source("left", {"id": "int64", "x": "int64?", "at": "int64?"}, key=["id"], append_only=True)
    right = pipeline.source("right", {"rid": "int64", "x": "int64?", "at": "int64?"}, key=["rid"], append_only=True)
    if has_watermarks:
        left, right = left.watermark("at", 100), right.watermark("at", 100)
    left.join(right, on=["x", "at"], null_safe=mask).select("id", "rid").materialize("r")
    return pipeline


WITH_NULLS = [(1, None, 5), (2, 7, None), (3, 7, 5), (4, None, None)]


@pytest.mark.parametrize("has_watermarks", [False, True])
@pytest.mark.parametrize(
    ("mask", "met"),
    [
        (False, [3]),
        (None, [3]),
        (True, [1, 2, 3, 4]),
        ((True, False), [1, 3]),
        ([False, True], [2, 3]),
        ((True, True), [1, 2, 3, 4]),
    ],
)
def test_null_is_equal_to_null_in_the_columns_of_which_that_is_said(
    mask: Any, met: list[int], has_watermarks: bool
) -> None:
    epochs = [{"left": WITH_NULLS}, {"right": WITH_NULLS}]
    with null_safe(mask, has_watermarks=has_watermarks).run_local(epochs) as run:
        assert run.rows("r") == [(number, number) for number in met]


def test_state_is_not_taken_over_by_a_join_that_is_null_safe_in_another_column(tmp_path: Path) -> None:
    null_safe((True, False)).run_local([{"left": WITH_NULLS}], tmp_path / "state.db").close()
    with pytest.raises(PipelineChangedError, match=r"null-safe on x.* null-safe on at"):
        null_safe((False, True)).run_local([], tmp_path / "state.db")
    with null_safe([True, False]).run_local([{}, {"right": WITH_NULLS}], tmp_path / "state.db") as run:
        assert run.rows("r") == [(1, 1), (3, 3)]


@pytest.mark.parametrize("mask", [(True,), (True, False, True), "xy", 1, (1, 0)])
def test_a_null_safe_that_does_not_fit_the_columns_is_refused(mask: Any) -> None:
    with pytest.raises(SchemaError, match="null_safe= is True or False, or a list of one for each column of on="):
        null_safe(mask)


def test_columns_of_different_types_are_refused_by_the_names_that_they_have() -> None:
    pipeline = Pipeline()
    orders = pipeline.source("orders", {"id": "int64", "v": "int64"}, key=["id"])
    names = pipeline.source("names", {"id": "string", "name": "string"}, key=["id"])
    expected = r"'id' of the left side, int64, and 'id' of the right side, string: .* as col\('id'\).cast\('int64'\)"
    with pytest.raises(SchemaError, match=expected):
        orders.join(names, "id")
    prices = pipeline.source("prices", {"id": "int64", "at": "timestamp"}, key=["id", "at"], append_only=True)
    timed = pipeline.source("sold", {"id": "int64", "at": "timestamptz"}, key=["id"], append_only=True)
    one, other = (stream.watermark("at", timedelta(0)) for stream in (timed, prices))
    with pytest.raises(SchemaError, match="as_of= has 'at' of the left side, timestamptz, and 'at' of the right side"):
        one.join(other, "id", as_of=("at", "at"))
    numbered = names.with_columns(id=col("id").cast("int64"))
    orders.join(numbered, "id").select("id", "name").materialize("named")
    with pipeline.run_local([{"orders": [(1, 10), (2, 20)], "names": [("2", "two")]}]) as run:
        assert run.rows("named") == [(2, "two")]
