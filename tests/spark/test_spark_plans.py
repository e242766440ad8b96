"""Random plans on the driver's real code, with tasks in this process: retried, with new drivers and other shards."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint.chain import SourcePosition
from objectspace.operators import AggCall, Stream, col, count, max_, sum_
from objectspace.operators import Pipeline as Local
from objectspace.relational import Chunk
from objectspace.spark import rescale
from objectspace.spark.placement import Placement
from tests.operators.pipeline_trees import EDITS, SCHEMA, Tree, World, trees
from tests.operators.test_pipeline_oracle import Oracle
from tests.spark.drivers import Driver, driver_of, micro_batch
from tests.spark.frames import Frames


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle()


def applied(log: Counter[Any], chunk: Chunk, columns: tuple[str, ...]) -> None:
    for op, row in chunk.rows():
        cells = tuple(row[chunk.schema.place_of(column)] for column in columns)
        log[cells] += 1 if op in ("+", "U+") else -1
    assert all(number >= 0 for number in log.values())


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(1, 4), trees(3), st.lists(EDITS, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_a_random_plan_equals_the_batch_query(
    oracle: Oracle, shards: int, tree: Tree, epochs: list[Any], random: Random
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        frames, world = Frames(random).installed(patch), World()
        # Any epoch may be worked by the driver itself, whatever came before.
        patch.setattr(Placement, "is_in_driver", lambda self, plan, **_: random.random() < 0.5)
        log: Counter[Any] = Counter()
        made = None
        for number, edits in enumerate(epochs):
            if number and random.random() < 0.5:
                shards, made = random.randint(1, 4), None
                rescale(Path(folder) / "space", shards)
            driver, streams = driver_of(Path(folder), shards)
            result = tree.build(streams).materialize("result")
            result.sink("log", lambda _, chunk, columns=result.columns: applied(log, chunk, columns))
            made = driver.epochs() if made is None or random.random() < 0.5 else made
            batch = micro_batch(frames, world.change(edits))
            assert made.run(batch, SourcePosition("q", number)) is not None  # type: ignore[arg-type]
            assert Counter(driver.rows("result")) == oracle.answer(tree.sql, world)
        assert +log == Counter(driver.rows("result"))


def by_time(streams: dict[str, Stream]) -> None:
    """Build joins by time of two streams with watermarks."""
    left, right = (streams[name].watermark("v", 1) for name in "ab")
    columns = ["k", "v", "v_right"]
    near = left.join(right, on="k", how="full", within=("v", "v", 2)).select(*columns)
    near.materialize("near")
    near.window("v_right", 4).group_by("window_start").on_window_close().agg(n=count()).materialize("met")
    left.join(right, on="k", how="left", as_of=("v", "v")).select(*columns).materialize("valid")
    windows = left.window("v", 4).join(right.window("v", 4), on=["k", "window_start"], how="full")
    windows.group_by("k", "window_start").on_window_close().agg(n=count()).materialize("closed")
    both = left.union(right).window("v", 4).group_by("window_start")
    both.on_window_close().agg(n=count()).materialize("united")
    visits = left.sessions("v", 3, by="k").group_by("k", "session_start")
    visits.agg(n=count(), last=max_("v")).materialize("visits")
    visits.on_window_close().agg(n=count()).materialize("visited")


@pytest.mark.parametrize("shards", [pytest.param((1,) * 5, marks=pytest.mark.slow), (3, 3, 1, 2, 4)])
def test_joins_by_time_give_what_they_give_in_one_process(shards: tuple[int, ...], tmp_path: Path) -> None:
    """The watermark of a side that brings nothing in an epoch reaches the join all the same."""
    epochs: list[list[Any]] = [
        [("a", n, ("xy"[n % 2], n, 0)) for n in range(6)],
        [("b", n, ("xy"[n % 2], n + 1, 0)) for n in range(5)],
        [("b", 9, ("x", 12, 0))],
        [("a", 9, ("x", 13, 0)), ("a", 10, ("y", 2, 0))],
        [("b", 10, ("x", 30, 0))],
    ]
    local = Local()
    by_time({name: local.source(name, SCHEMA, key=["id", "v"]) for name in "ab"})
    run, world = local.run_local([]), World()
    with pytest.MonkeyPatch.context() as patch:
        frames = Frames(Random(shards[0])).installed(patch)
        for number, edits in enumerate(epochs):
            rescale(tmp_path / "space", shards[number]) if number else None
            driver = Driver(tmp_path / "space", shards[number], cache=tmp_path / "cache")
            by_time({name: driver.declare(name, ["id", "v"]) for name in "ab"})
            changes = world.change(edits)
            run.step(changes)
            batch = micro_batch(frames, changes)
            assert driver.epochs().run(batch, SourcePosition("q", number)) is not None  # type: ignore[arg-type]
            for name in ("near", "met", "valid", "closed", "united", "visits", "visited"):
                assert Counter(driver.rows(name)) == Counter(run.rows(name)), (number, name)
    assert run.rows("met") == [(0, 6), (4, 3)]
    assert len(run.rows("valid")) == 6
    assert len(run.rows("closed")) == 4
    assert run.rows("united") == [(0, 7), (4, 4)]
    assert run.rows("visited") == [("x", 0, 3), ("y", 1, 3)]


def by_text(streams: dict[str, Stream]) -> None:
    """Build what shows totals as text, straight from the aggregate and behind other operators."""
    priced = streams["a"].select("id", "k", d=(lambda row: Decimal(row.v) / 10, "decimal(10,2)"))
    totals = priced.group_by("k").agg(total=sum_("d"), most=max_("d"))
    groups = priced.group_by("d").agg(n=count()).group_by("n").agg(total=max_("d"))
    behind = {"direct": totals, "first": totals.top_n(2, order_by=["total desc", "k"]), "again": groups}
    for name, rows in (behind | {"joined": totals.join(streams["b"], on="k")}).items():
        rows.select(t=col("total").cast("string")).group_by("t").agg(n=count()).materialize(name)


@pytest.mark.parametrize("in_driver", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_decimals_have_one_text_whatever_the_shards(tmp_path: Path, in_driver: bool) -> None:
    local, world = Local(), World()
    by_text({name: local.source(name, SCHEMA, key=["id"]) for name in "ab"})
    run = local.run_local([])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Placement, "is_in_driver", lambda self, plan, **_: in_driver)
        frames = Frames(Random(1)).installed(patch)
        for number, shards in enumerate((3, 1, 2)):
            rescale(tmp_path / "space", shards) if number else None
            driver, streams = driver_of(tmp_path, shards)
            by_text(streams)
            edits: list[Any] = [("a", n, ("xyz"[n % 3], 10 * n + number * (n % 2), 0)) for n in range(6)]
            changes = world.change([*edits, *(("b", n, ("xyz"[n], 0, 0)) for n in range(3))])
            run.step(changes)
            batch = micro_batch(frames, changes)
            assert driver.epochs().run(batch, SourcePosition("q", number)) is not None  # type: ignore[arg-type]
            for name in ("direct", "first", "again", "joined"):
                assert sorted(driver.rows(name)) == sorted(run.rows(name)), (number, name)
    assert sorted(run.rows("direct")) == [("3.2", 1), ("5.2", 1), ("7.2", 1)]


@pytest.mark.parametrize("in_order", [False, True])
def test_rows_without_a_key_go_through_one_shuffle_where_their_numbers_count_for_nothing(
    in_order: bool, tmp_path: Path
) -> None:
    driver = Driver(tmp_path / "space", 3, cache=tmp_path / "cache")
    calls = {"n": count(), "worst": max_("v"), **({"first": AggCall("first_value", "v")} if in_order else {})}
    driver.declare("b", [])
    driver.declare("a", []).group_by("k").agg(**calls).materialize("result")
    epochs, world, rows = driver.epochs(), World(), Counter[Any]()
    assert (epochs.direct is None) == in_order
    with pytest.MonkeyPatch.context() as patch:
        frames = Frames(Random(1)).installed(patch)
        for number in range(3):
            edits: list[Any] = [("a", 100 * number + one, ("xyz"[one % 3], one + number, 0)) for one in range(40)]
            batch = micro_batch(frames, world.change(edits))
            assert epochs.run(batch, SourcePosition("q", number)) is not None  # type: ignore[arg-type]
            rows.update((k, v) for _, _, (k, v, _) in edits)
    expected = {
        k: (sum(n for (one, _), n in rows.items() if one == k), max(v for one, v in rows if one == k)) for k in "xyz"
    }
    assert {row[0]: row[1:3] for row in driver.rows("result")} == expected
