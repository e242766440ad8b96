"""What may go wrong around an epoch; each test is a row of the table in docs/spark_failures.md."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from checkpoint import CheckpointError, FencedError
from checkpoint.chain import Chain, Location, OperatorPlan, ShardSaved, SourcePosition, location_at
from objectspace.spark import Pipeline
from objectspace.spark.executor import open_shard, save_shard
from tests.chain.faulty_location import FaultyLocation
from tests.patience import PATIENCE
from tests.tally import TALLY

from .spark_helpers import SHARDS, expected, kept, orphans, totals_operator

ROOT = Path(__file__).parents[2]

MakePipeline = Callable[..., Pipeline]
Query = Callable[[str], None]
T = TypeVar("T")

pytestmark = pytest.mark.usefixtures("query")


@dataclass
class SlowLocation(FaultyLocation):
    """Takes its time at one operation."""

    seconds: float = 0.3

    def _try(self, work: Callable[[], T]) -> T:
        self.seen += 1
        if self.seen == self.at:
            time.sleep(self.seconds)
        return work()


@dataclass
class OnDriver(FaultyLocation):
    """Fails on the driver; what goes to the executors is sound."""

    def __reduce__(self) -> tuple[Any, ...]:
        return copy, (self.inner,)


@dataclass
class OnExecutors(FaultyLocation):
    """Fails in tasks, at the same operation of each."""

    def _try(self, work: Callable[[], T]) -> T:
        return work() if TaskContext.get() is None else super()._try(work)


def attempt(location: Location, cache: Path, rows: DataFrame, batch: int) -> None:
    """Run one epoch as a driver that has just started would."""
    pipeline = Pipeline(location, SHARDS, cache=cache)
    pipeline.add(totals_operator())
    pipeline.run_epoch(rows, batch)
    pipeline.upkeep.wait(PATIENCE)


@pytest.mark.parametrize("place", [OnDriver, OnExecutors])
def test_storage_that_fails_at_any_operation(
    tmp_path: Path,
    batches: list[DataFrame],
    make_pipeline: MakePipeline,
    at_scale: bool,
    place: type[FaultyLocation],
) -> None:
    make_pipeline().run_epoch(batches[0], 0)
    space = location_at(tmp_path / "space")
    whole = shutil.copytree(tmp_path / "space", tmp_path / "whole")
    points = 0
    # A task reads a run and writes one; where it is tried again it finds what it has read in its cache.
    for at in range(1, 100, 1 if at_scale else 8) if place is OnDriver else (1, 2) if at_scale else (2,):
        faulty = place(space, at, late=at % 2 == 0, lasting=at % 3 == 0)
        try:
            attempt(faulty, tmp_path / f"cache {at}", batches[1], 1)
            is_past_the_end = place is OnDriver and faulty.seen < at
        except (CheckpointError, PySparkException):
            is_past_the_end = False
        if is_past_the_end:
            break
        make_pipeline().run_epoch(batches[1], 1)
        assert kept(make_pipeline()) == expected(batches[:2]), f"wrong after a fault at operation {at}"
        assert make_pipeline().chain.epoch == 2
        shutil.rmtree(tmp_path / "space")
        shutil.copytree(whole, tmp_path / "space")
        points += 1
        TALLY["crash points"] += 1
    assert points > (8 if at_scale and place is OnDriver else 0)


def test_storage_that_is_slow_at_an_operation(
    tmp_path: Path, batches: list[DataFrame], make_pipeline: MakePipeline
) -> None:
    for at in (4, 7):
        attempt(SlowLocation(location_at(tmp_path / f"space {at}"), at), tmp_path / "cache", batches[0], 0)
        pipeline = Pipeline(tmp_path / f"space {at}", SHARDS, cache=tmp_path / "cache")
        assert kept(pipeline) == expected(batches[:1])


def test_a_zombie_task_of_an_older_application_changes_nothing(
    make_pipeline: MakePipeline, batches: list[DataFrame]
) -> None:
    make_pipeline().run_epoch(batches[0], 0)
    old = make_pipeline().chain.begin(SourcePosition("any", 0), ["totals"])
    assert old is not None
    pipeline = make_pipeline()
    pipeline.run_epoch(batches[1], 1)
    with open_shard(old.operators["totals"], 0) as space:
        space.get_or_create_dictionary("totals")["zombie"] = {"rows": 1, "sum": 1}
        late = save_shard(old.operators["totals"], space, 0)
    assert late.run is not None
    assert late.run.file.removeprefix("run/") in orphans(pipeline)
    pipeline.run_epoch(batches[2], 2)
    assert kept(make_pipeline()) == expected(batches)
    with pytest.raises(FencedError):
        make_pipeline().chain.publish(old, {"totals": _messages(old.operators["totals"], late)})
    assert kept(make_pipeline()) == expected(batches)


def _messages(plan: OperatorPlan, late: ShardSaved) -> list[ShardSaved]:
    return [late, *(ShardSaved(plan.operator, shard, None) for shard in range(1, plan.shards))]


@pytest.mark.slow
def test_an_older_copy_of_the_space_is_noticed(
    tmp_path: Path, make_pipeline: MakePipeline, batches: list[DataFrame]
) -> None:
    make_pipeline().run_epoch(batches[0], 0)
    shutil.copytree(tmp_path / "space", tmp_path / "copy")
    running = make_pipeline()
    running.run_epoch(batches[1], 1)
    shutil.rmtree(tmp_path / "space")
    shutil.copytree(tmp_path / "copy", tmp_path / "space")
    cache, elsewhere = tmp_path / "cache", tmp_path / "cache of another machine"
    cache.rename(elsewhere)  # A task that runs elsewhere needs the run files that are gone.
    with pytest.raises(FencedError, match="an older copy was put back under this driver"):
        running.run_epoch(batches[2], 2)
    shutil.rmtree(cache)
    elsewhere.rename(cache)
    with pytest.raises(CheckpointError, match="comes with batch 2, but the last one committed here is 0"):
        make_pipeline().run_epoch(batches[2], 2)
    # The caches of this machine have seen epoch 2; the copy has not, and what it makes of it is another one.
    make_pipeline().run_epoch(batches[2], 1)
    assert kept(make_pipeline()) == expected([batches[0], batches[2]])


@pytest.mark.parametrize("jump", [-400 * 86_400, 400 * 86_400])
def test_a_clock_that_jumps(
    make_pipeline: MakePipeline, batches: list[DataFrame], monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    pipeline = make_pipeline()
    pipeline.run_epoch(batches[0], 0)
    plan = pipeline.chain.begin(SourcePosition("any", 0), ["totals"])
    assert plan is not None
    saved = [_saved(plan.operators["totals"], shard) for shard in range(SHARDS)]
    true_time = time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: true_time() + jump)
        # The files of the epoch under way look ages old to this clock, and are kept all the same.
        assert Chain.open(pipeline.chain.location).collect(grace_seconds=3600).runs == 0
        manifest = pipeline.chain.publish(plan, {"totals": saved})
    assert manifest.epoch == 2
    for shard in range(SHARDS):
        with pipeline.read("totals", shard) as space:
            assert space.get_or_create_dictionary("totals")[f"extra {shard}"] == {"rows": 1, "sum": shard}
    pipeline.run_epoch(batches[1], 1)
    found = {key: figures for key, figures in kept(pipeline).items() if not key.startswith("extra")}
    assert found == expected(batches[:2])


def _saved(plan: OperatorPlan, shard: int) -> ShardSaved:
    with open_shard(plan, shard) as space:
        space.get_or_create_dictionary("totals")[f"extra {shard}"] = {"rows": 1, "sum": shard}
        return save_shard(plan, space, shard)


DECORATORS = r"^((?:@.*\n|    .*\n|\)\n)*)"
"""What stands above a function."""


def test_the_page_of_failures_names_tests_that_exist_and_those_that_take_long() -> None:
    page = (ROOT / "docs" / "spark_failures.md").read_text()
    named = set(re.findall(r"`(test_\w+)(?:\[[\w-]+\])?`( ◇)?", page))
    there = {
        name: "@pytest.mark.slow\n" in above
        for path in (ROOT / "tests").rglob("test_*.py")
        for above, name in re.findall(DECORATORS + r"def (test_\w+)", path.read_text(), re.M)
    }
    assert len(named) > 20
    for name, long in named:
        assert name in there, f"no such test: {name}"
        assert there[name] == bool(long), f"{name} is marked ◇, or it is not, against its own mark"
