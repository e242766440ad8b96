"""Epochs: the state equals a batch query through failed tasks, replays, crashes and rivals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from checkpoint import CheckpointError, FencedError, UnknownCheckpointError
from checkpoint.chain import Chain, OperatorPlan, SourcePosition, location_at
from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.spark import EpochProgress, Operator, Pipeline, open_shard, save_shard
from objectspace.spark.upkeep import TASKS_WAIT

from .spark_helpers import SHARDS, TOTALS, expected, kept, orphans, totals_operator

MakePipeline = Callable[..., Pipeline]
Query = Callable[[str], None]
Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

pytestmark = pytest.mark.usefixtures("query")


def test_the_state_equals_a_batch_query_after_every_epoch(
    make_pipeline: MakePipeline, batches: list[DataFrame]
) -> None:
    pipeline = make_pipeline()
    for number, rows in enumerate(batches):
        manifest = pipeline.run_epoch(rows, number)
        assert manifest is not None
        assert (manifest.epoch, manifest.metrics["rows"]) == (number + 1, 60)
    for number in range(len(batches)):
        assert kept(pipeline, number + 1) == expected(batches[: number + 1])
    assert kept(make_pipeline()) == expected(batches)
    with pytest.raises(UnknownCheckpointError):
        kept(pipeline, 9)


def test_an_empty_batch_makes_an_epoch_without_files(make_pipeline: MakePipeline, batches: list[DataFrame]) -> None:
    pipeline = make_pipeline()
    pipeline.run_epoch(batches[0], 0)
    manifest = pipeline.run_epoch(batches[1].limit(0), 1)
    assert manifest is not None
    assert (manifest.epoch, manifest.runs) == (2, ())
    assert kept(pipeline) == expected(batches[:1])


def test_a_task_that_fails_before_it_saves_is_tried_again(
    make_pipeline: MakePipeline, batches: list[DataFrame]
) -> None:
    totals = TOTALS

    def fails_once(rows: Iterator[pa.RecordBatch], space: PersistedObjectSpace) -> None:
        totals(rows, space)
        if TaskContext.get().attemptNumber() == 0:  # type: ignore[union-attr]
            raise OSError("lost before the save")

    make_pipeline().run_epoch(batches[0], 0)
    pipeline = make_pipeline(totals_operator(fails_once))
    pipeline.run_epoch(batches[1], 1)
    assert kept(pipeline) == expected(batches[:2])
    assert orphans(pipeline) == set()


def test_a_task_that_fails_after_it_saved_leaves_a_file_that_is_never_read(
    make_pipeline: MakePipeline, batches: list[DataFrame]
) -> None:
    class FailsOnce(Operator):
        def task(self, plan: OperatorPlan) -> Task:
            inner = Operator.task(self, plan)

            def run(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                message = list(inner(rows))
                if TaskContext.get().attemptNumber() == 0:  # type: ignore[union-attr]
                    raise OSError("lost after the save")
                yield from message

            return run

    make_pipeline().run_epoch(batches[0], 0)
    pipeline = make_pipeline(FailsOnce("totals", ("key",), TOTALS))
    pipeline.run_epoch(batches[1], 1)
    assert len(orphans(pipeline)) == SHARDS
    for name in orphans(pipeline):
        pipeline.chain.location.write(f"run/{name}", b"whoever reads this fails")
    assert kept(pipeline) == expected(batches[:2])


def test_a_task_that_fails_for_good_publishes_nothing(make_pipeline: MakePipeline, batches: list[DataFrame]) -> None:
    def fails(rows: Iterator[pa.RecordBatch], space: PersistedObjectSpace) -> None:
        raise OSError("lost for good")

    make_pipeline(shards=1).run_epoch(batches[0], 0)
    with pytest.raises(PySparkException, match="lost for good"):
        make_pipeline(totals_operator(fails), shards=1).run_epoch(batches[1], 1)
    pipeline = make_pipeline(shards=1)
    assert pipeline.chain.epoch == 1
    pipeline.run_epoch(batches[1], 1)
    assert kept(pipeline) == expected(batches[:2])


@pytest.mark.slow
def test_an_operator_that_makes_a_checkpoint_of_its_own_is_refused(
    make_pipeline: MakePipeline, batches: list[DataFrame]
) -> None:
    totals = TOTALS

    def saves(rows: Iterator[pa.RecordBatch], space: PersistedObjectSpace) -> None:
        totals(rows, space)
        space.checkpoint()

    with pytest.raises(PySparkException, match="operator totals, epoch 1: a checkpoint of the shard was made"):
        make_pipeline(totals_operator(saves)).run_epoch(batches[0], 0)
    make_pipeline().run_epoch(batches[0], 0)
    assert kept(make_pipeline()) == expected(batches[:1])


def goes_back_and_on(space: PersistedObjectSpace) -> None:
    """Make another checkpoint with the number and the epoch of the one that the shard was opened at."""
    space.rollback(epoch=1)
    space.get_dictionary("counts")["other"] = 1
    space.checkpoint(epoch=2)


@pytest.mark.parametrize(
    "does",
    [lambda space: space.checkpoint(), lambda space: space.rollback(epoch=1), goes_back_and_on],
    ids=["checkpoint", "rollback", "both"],
)
def test_what_was_saved_in_the_cache_alone_is_not_the_shard(
    tmp_path: Path, does: Callable[[PersistedObjectSpace], Any]
) -> None:
    chain = Chain.open_or_create(location_at(tmp_path / "space"), 1)
    for batch in range(3):
        plan = chain.begin(SourcePosition("q", batch), ["op"], cache=str(tmp_path / "cache"))
        assert plan is not None
        operator = plan.operators["op"]
        with open_shard(operator, 0) as space:
            counts = space.get_or_create_dictionary("counts")
            counts[f"k{batch}"] = batch
            if batch == 2:
                does(space)
                counts = space.get_dictionary("counts")
                counts["later"] = 1
                with pytest.raises(ObjectSpaceError, match="operator op: a checkpoint of the shard was made, or it"):
                    save_shard(operator, space, 0)
            else:
                chain.publish(plan, {"op": [save_shard(operator, space, 0)]})
    with open_shard(chain.operator_plan("op"), 0) as space:
        assert dict(space.get_dictionary("counts")) == {"k0": 0, "k1": 1}


@pytest.mark.parametrize("shard", [-1, 2, True, "0"])
def test_there_is_no_other_shard_than_those_that_there_are(tmp_path: Path, shard: Any) -> None:
    plan = Chain.open_or_create(location_at(tmp_path / "space"), 2).operator_plan("op", cache=str(tmp_path / "cache"))
    with (
        pytest.raises(ObjectSpaceError, match=f"there is no shard {shard!r}: expected 0 to 1"),
        open_shard(plan, shard),
    ):
        pass


def test_a_committed_batch_is_not_processed_again(make_pipeline: MakePipeline, batches: list[DataFrame]) -> None:
    pipeline = make_pipeline()
    for number, rows in enumerate(batches):
        pipeline.run_epoch(rows, number)
    before = pipeline.chain.location.names("run")
    assert make_pipeline().run_epoch(batches[2], 2) is None
    assert make_pipeline().run_epoch(batches[0], 0) is None
    assert pipeline.chain.location.names("run") == before
    assert kept(make_pipeline()) == expected(batches)


def test_a_crash_before_the_publish_is_made_good_by_the_replay(
    make_pipeline: MakePipeline, batches: list[DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pipeline().run_epoch(batches[0], 0)

    def crash(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Chain, "publish", crash)
        with pytest.raises(KeyboardInterrupt):
            make_pipeline().run_epoch(batches[1], 1)
    pipeline = make_pipeline()
    assert len(orphans(pipeline)) > 0
    pipeline.run_epoch(batches[1], 1)
    assert kept(pipeline) == expected(batches[:2])


def test_the_second_of_two_drivers_stops(make_pipeline: MakePipeline, batches: list[DataFrame]) -> None:
    first, second = make_pipeline(), make_pipeline()
    first.run_epoch(batches[0], 0)
    assert second.status().epoch == 1, "who asks how it stands is shown the epochs of others"
    with pytest.raises(FencedError, match="epoch 1 was published by another driver"):
        second.run_epoch(batches[1], 0)
    assert kept(make_pipeline()) == expected(batches[:1])


def test_another_query_goes_on_with_the_state(
    make_pipeline: MakePipeline, batches: list[DataFrame], query: Query
) -> None:
    query("first")
    make_pipeline().run_epoch(batches[0], 0)
    query("second")  # as after Spark's own checkpoint was dropped: batches count from 0 again
    manifest = make_pipeline().run_epoch(batches[1], 0)
    assert manifest is not None
    assert manifest.committed == {"first": 0, "second": 0}
    assert kept(make_pipeline()) == expected(batches[:2])


def test_another_number_of_shards_is_refused(make_pipeline: MakePipeline, batches: list[DataFrame]) -> None:
    make_pipeline().run_epoch(batches[0], 0)
    with pytest.raises(CheckpointError, match="has 3 shards, found a pipeline with 4"):
        make_pipeline(shards=4)
    assert kept(make_pipeline()) == expected(batches[:1])


def test_a_task_writes_a_full_run_where_no_image_has_come(tmp_path: Path, batches: list[DataFrame]) -> None:
    pipeline = Pipeline(tmp_path / "space", 1, full_after=1, cache=tmp_path / "cache")
    pipeline.add(totals_operator())
    fed = [batches[number % 3] for number in range(TASKS_WAIT + 3)]
    for number, rows in enumerate(fed):
        pipeline.run_epoch(rows, number)
    kinds = [run.kind.value for manifest in pipeline.chain.manifests() for run in manifest.runs]
    assert kinds == ["full", *["differential"] * TASKS_WAIT, "full", "differential"]
    assert kept(pipeline) == expected(fed)


def test_two_operators_share_one_manifest(make_pipeline: MakePipeline, batches: list[DataFrame]) -> None:
    pipeline = make_pipeline()
    pipeline.add(Operator("other", "value", TOTALS))  # type: ignore[arg-type]
    manifest = pipeline.run_epoch(batches[0], 0)
    assert manifest is not None
    assert {run.operator for run in manifest.runs} == {"totals", "other"}
    figures = {one.name: one for one in EpochProgress.of(manifest).operators}
    assert [figures[name].rows_in for name in ("totals", "other")] == [60, 60]
    assert all(set(one.phases) == {"open_ms", "process_ms", "save_ms"} and one.bytes for one in figures.values())
    with pytest.raises(ObjectSpaceError, match="operator other: the pipeline has one of this name"):
        pipeline.add(Operator("other", ("key",), TOTALS))


def test_a_batch_outside_a_stream_is_refused(
    make_pipeline: MakePipeline, batches: list[DataFrame], query: Query
) -> None:
    query("")
    with pytest.raises(ObjectSpaceError, match="outside a streaming query"):
        make_pipeline().run_epoch(batches[0], 0)
