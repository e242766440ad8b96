"""Epochs that the driver works itself give what tasks give, whatever comes between them."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import cycle
from operator import methodcaller
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from checkpoint import CheckpointError, CheckpointKind, CorruptStoreError
from checkpoint.chain import AcceptedRun, Chain, EpochPlan, Manifest, OperatorPlan, SourcePosition, location_at
from checkpoint.session import PAGE_BYTES
from objectspace.operators import Node, col, count, max_, sum_
from objectspace.operators import Operator as LocalOperator
from objectspace.operators import Pipeline as Local
from objectspace.operators.computed import Relabel
from objectspace.spark import EpochProgress, Operator, Pipeline, RunningAggregate, held, placement
from objectspace.spark import in_driver as module
from objectspace.spark.executor import open_shard, save_shard
from objectspace.spark.held import HELD_SLOTS, LEAST_HELD_SLOTS, HeldShards
from objectspace.spark.inputs import Declared, wide
from objectspace.spark.placement import (
    DRIVER_ROWS,
    FIRST_PAUSE,
    FIRST_STREAK,
    MOST_HELD_BYTES,
    MOST_INPUT_BYTES,
    MOST_SLOTS,
    MOST_STATE_BYTES,
    PAUSE,
    STREAK,
    TRIAL,
    Placement,
    runs_code_of_users,
)
from objectspace.spark.tasks import TAG
from tests.operators.pipeline_trees import SCHEMA, World
from tests.patience import wait_until
from tests.spark.drivers import Driver, micro_batch
from tests.spark.frames import Frames
from tests.spark.spark_helpers import TOTALS, expected, kept, totals_operator

Make = Callable[..., Pipeline]

NO_STATE = EpochPlan(0, SourcePosition("q", 0), {})


def small(spark: SparkSession, number: int, rows: int = 50) -> DataFrame:
    return spark.createDataFrame([(f"k{n % 13}", n * 7 + number) for n in range(rows)], "key string, value long")


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the driver work whatever is small, however long it takes."""
    monkeypatch.setattr(placement, "HEAD_START", math.inf)
    monkeypatch.setattr(Placement, "worked_in_driver", lambda self, *_: None)


def places(pipeline: Pipeline) -> list[bool]:
    return [one.in_driver for one in pipeline.progress()]


@pytest.mark.usefixtures("eager")
def test_small_epochs_are_worked_by_the_driver_and_large_ones_in_tasks(
    spark: SparkSession, tmp_path: Path, query: Callable[[str], None]
) -> None:
    pipeline = Pipeline(tmp_path / "space", 3, cache=tmp_path / "cache", driver_rows=60)
    pipeline.add(totals_operator())
    rows = [50, 50, 50, 50, 61, 10, 0, 10]
    batches = [small(spark, number, count) for number, count in enumerate(rows)]
    for number, batch in enumerate(batches):
        manifest = pipeline.run_epoch(batch, number)
        assert manifest is not None
        assert kept(pipeline) == expected(batches[: number + 1])
        progress = EpochProgress.of(manifest)
        assert (progress.rows, progress.input_bytes > 0) == (rows[number], rows[number] > 0)
    # Of 61 rows the driver fetches so many that it knows better; after that tasks tell that the next ones are few.
    assert places(pipeline) == [False, False, True, True, False, False, True, True]


def test_code_of_users_runs_in_tasks(spark: SparkSession, tmp_path: Path, query: Callable[[str], None]) -> None:
    pipeline = Pipeline(tmp_path / "space", 2, cache=tmp_path / "cache")
    pipeline.add(Operator("mine", ("key",), lambda batches, space: [None for _ in batches] and None))
    for number in range(TRIAL + 2):
        pipeline.run_epoch(small(spark, number), number)
    assert not any(places(pipeline))


@cache
def cached(row: Any) -> int:
    """A function that has no code of its own."""
    return int(row.id) * 2


class Doubled(RunningAggregate):
    """An aggregate with code of a user."""


class Noted(Operator):
    """An operator with code of a user."""


DOUBLED = Doubled(TOTALS.dictionary, TOTALS.key, TOTALS.measures)


@pytest.mark.parametrize("operator", [totals_operator(DOUBLED), Noted("totals", ("key",), TOTALS)])
def test_an_aggregate_of_a_user_runs_in_tasks(
    make_pipeline: Make, spark: SparkSession, query: Callable[[str], None], operator: Operator
) -> None:
    pipeline = make_pipeline(operator)
    for number in range(TRIAL + 1):
        pipeline.run_epoch(small(spark, number), number)
    assert not any(places(pipeline))


class Passed(Relabel):
    """An operator of a user."""


def test_what_calls_functions_is_known() -> None:
    def nodes(build: Callable[[Any], Any]) -> Any:
        pipeline = Local()
        build(pipeline.source("s", SCHEMA, key=["id"])).materialize("r")
        return pipeline.plan().nodes

    def passed(schema: Any) -> LocalOperator:
        return Passed(schema, {})

    own = [
        lambda s: s.filter(col("v") > 1).group_by("k").agg(n=count(), most=max_("v")).top_n(3, ["n desc"]),
        lambda s: s.join(s.select("id", "k", x="v"), on="k", how="full").select("k", y=col("x") + 1, key=col("id")),
        lambda s: s.window("v", 3).group_by("window_start").agg(total=sum_("v")),
    ]
    of_users = [
        lambda s: s.select("id", twice=(cached, "int64")),
        lambda s: s.filter(methodcaller("__len__")),
        lambda s: s.filter(lambda row: row.v > 1),
        lambda s: s.agg(n=count(filter=lambda v: v > 1)),
        lambda s: s.through(passed, "p", key=["k"]),
    ]
    assert [runs_code_of_users(nodes(one)) for one in own] == [False] * len(own)
    assert [runs_code_of_users(nodes(one)) for one in of_users] == [True] * len(of_users)


def build(pipeline: Any, streams: dict[str, Any]) -> None:
    joined = streams["a"].join(streams["b"].select("id", "k", x="v"), on="k", how="left")
    totals = joined.group_by("k").agg(n=count(), most=max_("v"), all=sum_("x")).materialize("totals")
    totals.top_n(2, order_by=["n desc", "k"]).materialize("busiest")


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_places_taken_in_turn_give_one_state(seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The driver goes on with what it holds only where nobody else has worked meanwhile."""
    caplog.set_level(logging.INFO, "objectspace.spark")
    random, world, local = Random(seed), World(), Local()
    build(local, {name: local.source(name, SCHEMA, key=["id"]) for name in "ab"})
    run = local.run_local([])
    with pytest.MonkeyPatch.context() as patch:
        frames = Frames(random).installed(patch)
        turns = cycle([True, True, False])
        patch.setattr(Placement, "is_in_driver", lambda self, plan, **_: next(turns))
        made = [_driver(tmp_path) for _ in range(2)]
        for number in range(8):
            edits: list[Any] = [
                (random.choice("ab"), random.randrange(9), random.choice([None, ("xyz"[random.randrange(3)], one, 0)]))
                for one in range(12)
            ]
            changes = world.change(edits)
            run.step(changes)
            epochs, driver = made[random.random() < 0.3]
            driver.chain.refresh()
            if random.random() < 0.2:
                with pytest.raises(CheckpointError, match="power"), pytest.MonkeyPatch.context() as failing:
                    failing.setattr(Chain, "publish", _fail)
                    epochs.run(micro_batch(frames, changes), SourcePosition("q", number))  # type: ignore[arg-type]
            rows = micro_batch(frames, changes)
            assert epochs.run(rows, SourcePosition("q", number)) is not None  # type: ignore[arg-type]
            for name in ("totals", "busiest"):
                assert Counter(driver.rows(name)) == Counter(run.rows(name)), (number, name)
        assert "could not" not in caplog.text
        assert any("driver" in manifest.metrics for manifest in driver.chain.manifests())
        assert any("driver" not in manifest.metrics for manifest in driver.chain.manifests())


def _driver(folder: Path) -> Any:
    driver = Driver(folder / "space", 3, cache=folder / "cache")
    build(driver, {name: driver.declare(name, ["id"]) for name in "ab"})
    return driver.epochs(), driver


def _fail(*_: Any) -> Any:
    raise CheckpointError("the power failed")


def test_what_the_driver_cannot_work_is_worked_in_tasks(
    spark: SparkSession, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch, query: Callable[[str], None]
) -> None:
    pipeline = make_pipeline()
    monkeypatch.setattr(module, "fetched", _fail)
    batches = [small(spark, number) for number in range(TRIAL + 2)]
    for number, batch in enumerate(batches):
        pipeline.run_epoch(batch, number)
    assert not any(places(pipeline))
    assert kept(pipeline) == expected(batches)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_query_that_ends_leaves_no_shard_open(spark: SparkSession, make_pipeline: Make, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pipeline = make_pipeline()
    stream = spark.readStream.schema("key string, value long").option("maxFilesPerTrigger", 1)
    batches = [small(spark, number) for number in range(TRIAL + 2)]
    for number, batch in enumerate(batches):
        batch.write.parquet(str(tmp_path / "in" / str(number)))
    rows = stream.option("recursiveFileLookup", "true").parquet(str(tmp_path / "in"))
    query = pipeline.start(rows, tmp_path / "checkpoint")
    query.processAllAvailable()
    assert any(places(pipeline))
    assert len(pipeline.driver.shards) == 3
    query.stop()
    wait_until(lambda: not len(pipeline.driver.shards), "an end of the driver's work")
    assert len(pipeline.driver.shards) == 0
    assert kept(pipeline) == expected(batches)


def held_pair(tmp_path: Path) -> tuple[Chain, HeldShards]:
    """Return a chain with an epoch that two held shards have saved, and these."""
    chain, shards = Chain.open_or_create(location_at(tmp_path / "space"), 2), HeldShards()
    publish_held(chain, shards, 0, tmp_path)
    return chain, shards


def publish_held(chain: Chain, shards: HeldShards, number: int, tmp_path: Path) -> Manifest:
    """Publish an epoch in which each held shard counts one more."""
    plan = chain.begin(SourcePosition("q", number), ["op"], cache=str(tmp_path / "cache"))
    assert plan is not None
    one, saved = plan.operators["op"], []
    for shard in range(2):
        with shards.turn(), shards.open(one, shard) as space:
            counts = space.get_or_create_dictionary("counts")
            assert dict(counts) == dict.fromkeys(range(number), shard)
            counts[number] = shard
            saved.append(shards.save(one, space, shard))
    return chain.publish(plan, {"op": saved})


def test_what_an_epoch_accepted_is_taken_over_before_the_next_one_begins(tmp_path: Path) -> None:
    chain, shards = held_pair(tmp_path)
    assert chain.newest is not None
    shards.accepted(chain.newest).join()
    held_now = {key: (one.space, one.run) for key, one in shards._held.items()}
    assert [run for _, run in held_now.values()] == [None, None]
    for number in (1, 2):
        shards.accepted(publish_held(chain, shards, number, tmp_path)).join()
    assert all(shards._held[key].space is space for key, (space, _) in held_now.items()), "none was opened anew"
    shards.release()


def test_what_cannot_be_taken_over_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "objectspace.spark")
    chain, shards = held_pair(tmp_path)
    assert chain.newest is not None
    with monkeypatch.context() as failing:
        failing.setattr(held._Held, "take_over", _fail)
        shards.accepted(chain.newest).join()
    assert len(shards) == 0
    assert "could not go on, and is reopened: the power failed" in caplog.text
    publish_held(chain, shards, 1, tmp_path)
    shards.release()


def test_what_was_not_accepted_is_not_taken_over(tmp_path: Path) -> None:
    chain, shards = held_pair(tmp_path)
    assert chain.newest is not None
    other = replace(chain.newest, runs=())
    shards.accepted(other).join()
    assert all(one.run is not None for one in shards._held.values())
    publish_held(chain, shards, 1, tmp_path)
    shards.release()


def trained(
    rows: int = 10, work_ms: float = 200, most_rows: int = DRIVER_ROWS, row_bytes: int = 20, slots: int = 5
) -> Placement:
    made = Placement(most_rows)
    for _ in range(TRIAL):
        assert not made.is_in_driver(NO_STATE)
        made.worked_in_tasks(rows, slots, 300, work_ms, rows * row_bytes)
    return made


def test_the_driver_works_where_it_is_quicker() -> None:
    assert trained().is_in_driver(NO_STATE)
    assert not trained(rows=DRIVER_ROWS + 1).is_in_driver(NO_STATE)
    assert not trained(work_ms=1_000).is_in_driver(NO_STATE)
    assert not trained(rows=100_000, slots=MOST_SLOTS + 1).is_in_driver(NO_STATE)
    assert not trained(rows=0, most_rows=0).is_in_driver(NO_STATE), "0 is for never, also for no rows"


def test_after_two_slow_epochs_tasks_have_the_next_ones() -> None:
    made = trained()
    for ms in (400, 400, 200, 400, 400):
        assert made.is_in_driver(NO_STATE)
        made.worked_in_driver(10, 5, ms, 200)
    assert pause_of(made) == FIRST_PAUSE


def test_each_time_that_tasks_were_quicker_they_have_more_epochs() -> None:
    made, pauses = trained(), []
    for _ in range(6):
        for ms in (900, 400, 400):  # The first one opens the shards.
            assert made.is_in_driver(NO_STATE)
            made.worked_in_driver(10, 5, ms, 200)
        pauses.append(pause_of(made))
    assert pauses == [16, 32, 64, 128, 256, 256]
    for _ in range(FIRST_STREAK):
        made.worked_in_driver(10, 5, 100, 200)
    for _ in range(TRIAL):
        made.worked_in_tasks(10, 5, 300, 200, 200)
    made.failed()
    assert pause_of(made) == FIRST_PAUSE, "the driver was quicker for long"


@pytest.mark.parametrize("between", [1, 2, 3])
def test_a_driver_that_opens_the_shards_again_and_again_is_judged_by_that(between: int) -> None:
    made, driven = trained(), 0
    for _ in range(20):
        made.worked_in_tasks(DRIVER_ROWS + 1, 5, 3_000, 200, 200)
        made.worked_in_tasks(10, 5, 300, 200, 200)
        for _ in range(between):
            is_in_driver = made.is_in_driver(NO_STATE)
            driven += is_in_driver
            (made.worked_in_driver(10, 5, 400, 200) if is_in_driver else made.worked_in_tasks(10, 5, 300, 200, 200))
    assert driven < 10, "tasks have most of what they do sooner"


def pause_of(made: Placement) -> int:
    """Return for how many epochs tasks have the work."""
    return next(epochs for epochs in range(PAUSE + 1) if made.is_in_driver(NO_STATE))


def test_an_epoch_without_rows_does_not_say_what_tasks_take() -> None:
    made = trained(rows=0)
    for _ in range(4):
        made.worked_in_driver(10, 5, 400, 200)
        assert made.is_in_driver(NO_STATE)
    for _ in range(2):
        made.worked_in_driver(0, 5, 400, 0)
    assert not made.is_in_driver(NO_STATE)


def test_tasks_try_again_now_and_then() -> None:
    made, streaks = trained(), [0]
    for _ in range(2 * STREAK):
        if made.is_in_driver(NO_STATE):
            made.worked_in_driver(10, 5, 100, 200)
            streaks[-1] += 1
        else:
            made.worked_in_tasks(10, 5, 300, 200, 200)
            made.is_in_driver(NO_STATE)
            made.worked_in_tasks(10, 5, 300, 200, 200)
            streaks.append(0)
    assert streaks[:2] == [FIRST_STREAK, STREAK]


def test_many_more_rows_than_tasks_have_seen_are_left_to_them() -> None:
    made = trained(rows=10)
    assert made.most_rows == 1_040
    made.worked_in_driver(1_041, 5, 100, 20_820)
    assert not made.is_in_driver(NO_STATE)


def test_many_more_slots_than_the_driver_works_are_left_to_tasks() -> None:
    made = trained()
    made.worked_in_driver(10, MOST_SLOTS, 100, 200)
    assert made.is_in_driver(NO_STATE)
    made.worked_in_driver(10, MOST_SLOTS + 1, 100, 200)
    assert not made.is_in_driver(NO_STATE)


def test_rows_that_have_no_room_in_memory_are_left_to_tasks() -> None:
    assert not trained(rows=1_000, row_bytes=100_000).is_in_driver(NO_STATE)
    made = trained(rows=1_000, row_bytes=1_000)
    assert made.is_in_driver(NO_STATE)
    made.worked_in_driver(1_000, 5, 100, 4_000_000)
    assert made.most_rows == MOST_INPUT_BYTES // 4_000, "the rows have become larger"
    made.worked_in_driver(0, 5, 100, 0)
    assert made.most_rows == MOST_INPUT_BYTES // 4_000, "an epoch without rows says nothing of them"


def test_a_state_that_is_held_may_be_larger_than_one_that_has_to_be_read() -> None:
    def plan(size: int) -> EpochPlan:
        run = AcceptedRun("op", 0, 1, "run/x", CheckpointKind.FULL, "", "", 1, 1, size)
        lineages = ((run,),)
        return EpochPlan(
            1, SourcePosition("q", 1), {"op": OperatorPlan(location_at("memory://x"), "", "op", 2, lineages)}
        )

    made = trained()
    for size, found in ((MOST_STATE_BYTES, (True, True)), (MOST_HELD_BYTES, (False, True))):
        assert (made.is_in_driver(plan(size)), made.is_in_driver(plan(size), is_held=True)) == found
    assert not made.is_in_driver(plan(MOST_HELD_BYTES + 1), is_held=True)


def test_held_shards_share_the_memory(tmp_path: Path) -> None:
    chain, shards, found = Chain.open_or_create(location_at(tmp_path / "space"), 1), HeldShards(), []
    for number in (2, 1_000):
        shards.expect(number)
        with shards.turn(), shards.open(chain.operator_plan(f"op{number}", cache=str(tmp_path / "cache")), 0) as space:
            found.append(space.cache_slots)
    shards.release()
    assert found == [HELD_SLOTS // 2, LEAST_HELD_SLOTS]


def test_shards_are_closed_whoever_lets_go_of_them_when(monkeypatch: pytest.MonkeyPatch) -> None:
    shards, closed = HeldShards(), []
    monkeypatch.setattr(HeldShards, "_close", lambda self: closed.append(True))
    with shards.turn():
        shards.release()
        assert not closed, "somebody works with them"
    assert len(closed) == 1
    with shards.turn():
        pass
    assert len(closed) == 1
    monkeypatch.setattr(held, "IDLE_SECONDS", 0.01)
    with shards.turn():
        pass
    assert shards._timer is not None
    shards._timer.join(10)
    assert len(closed) == 2


def test_a_damaged_cache_of_the_driver_is_made_anew(tmp_path: Path) -> None:
    chain = Chain.open_or_create(location_at(tmp_path / "space"), 1)
    plan = chain.begin(SourcePosition("q", 0), ["op"], cache=str(tmp_path / "first"))
    assert plan is not None
    with open_shard(plan.operators["op"], 0) as space:
        space.create_dictionary("counts").update({f"key {number}": "x" * 50 for number in range(4000)})
        chain.publish(plan, {"op": [save_shard(plan.operators["op"], space, 0)]})
    shards, again = HeldShards(), chain.operator_plan("op", cache=str(tmp_path / "cache"))
    with shards.turn(), shards.open(again, 0) as space:
        assert "counts" in space
    shards.release()
    (cache,) = (tmp_path / "cache").rglob("*.db")
    data = bytearray(cache.read_bytes())
    for page in range(PAGE_BYTES * 20, len(data), PAGE_BYTES):
        data[page : page + 200] = b"\xff" * 200
    cache.write_bytes(bytes(data))
    removed = pytest.raises(CorruptStoreError, match="was a cache of this machine and is removed now: try again")
    with removed, shards.turn(), shards.open(again, 0) as space:
        space.get("counts").copy()
    with shards.turn(), shards.open(again, 0) as space:
        assert len(space.get("counts").copy()) == 4000
    shards.release()


def test_rows_of_two_sources_with_columns_that_take_no_null_are_fetched(spark: SparkSession) -> None:
    frames = {name: spark.sql("SELECT 1L AS id, 'x' AS x, array(1) AS y") for name in ("a", "b")}
    declared = [Declared(name, frame, None, cast(Node, None), False) for name, frame in frames.items()]
    row = {"id": 1, "x": "x", "y": [1]}
    found = module.fetched(wide(declared, frames), 10).to_pylist()
    assert sorted(found, key=str) == [{TAG: "a", "a": row, "b": None}, {TAG: "b", "a": None, "b": row}]
