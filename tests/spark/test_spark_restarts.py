"""What goes on from a space must be what the space is of: sources, operators, and the way that it is fed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from checkpoint import CheckpointError, FencedError, UnknownCheckpointError
from checkpoint.chain import Chain, location_at
from checkpoint.tool.copying import fork_space
from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.operators import PipelineChangedError, count, sum_
from objectspace.spark import (
    EpochProgress,
    Measure,
    Operator,
    Pipeline,
    RunningAggregate,
    TaskFailedError,
    shard_expression,
)

from .spark_helpers import TOTALS, totals_operator

ROWS = "id long, v long"


def put(folder: Path, source: str, rows: list[tuple[int, int]]) -> None:
    """Add a file to a source."""
    folder.mkdir(exist_ok=True)
    ids, values = zip(*rows, strict=True)
    table = pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.int64())})
    pq.write_table(table, folder / f"{source}-{len(list(folder.iterdir()))}.parquet")


def of_files(spark: SparkSession, folder: Path, order: str) -> Pipeline:
    """Return a pipeline of sources that read the files of their own in one folder."""
    pipeline = Pipeline(folder.parent / "space", 2, cache=folder.parent / "cache")
    for name in order:
        files = spark.readStream.schema(ROWS).option("pathGlobFilter", f"{name}-*.parquet").parquet(str(folder))
        stream = pipeline.source(name, files, key=["id"])
        if name != "z":
            stream.agg(n=count(), all=sum_("v")).materialize(f"of_{name}")
    return pipeline


def run(pipeline: Pipeline, folder: Path) -> None:
    pipeline.start(checkpoint_location=folder, trigger={"availableNow": True}).awaitTermination()


def test_sources_may_be_declared_in_another_order(spark: SparkSession, tmp_path: Path) -> None:
    """Spark knows a source by its place: each would read what the other one has left."""
    files = tmp_path / "in"
    put(files, "a", [(1, 1), (2, 1)])
    put(files, "b", [(1, 10), (2, 10), (3, 10)])
    run(of_files(spark, files, "ab"), tmp_path / "progress")
    put(files, "a", [(9, 1)])
    again = of_files(spark, files, "ba")
    run(again, tmp_path / "progress")
    assert (again.rows("of_a"), again.rows("of_b")) == ([(3, 3)], [(3, 30)])
    with pytest.raises(PipelineChangedError, match="of a pipeline with the sources a, b, found a, b, z: declare the"):
        run(of_files(spark, files, "zab"), tmp_path / "progress")


@pytest.mark.slow
def test_a_running_aggregate_of_another_key_or_other_measures_is_refused(
    spark: SparkSession, tmp_path: Path, query: Callable[[str], None]
) -> None:
    rows = spark.createDataFrame([("x", "y", 1)], "key string, other string, value long")

    def epoch(operator: Operator, batch: int) -> Any:
        pipeline = Pipeline(tmp_path / "space", 2, cache=tmp_path / "cache")
        pipeline.add(operator)
        return pipeline.run_epoch(rows, batch)

    more = RunningAggregate("totals", ("key",), (*TOTALS.measures, Measure("most", "max", "value")))
    wide = RunningAggregate("totals", ("key", "other"), TOTALS.measures)
    assert epoch(totals_operator(), 0) is not None
    for changed in (Operator("totals", ("key",), more), Operator("totals", ("key",), wide)):
        with pytest.raises(ObjectSpaceError, match=r"epoch 2: its state is that of RunningAggregate.*go back"):
            epoch(changed, 1)
    assert epoch(totals_operator(), 1) is not None


def test_each_row_counts_once_however_many_operators_take_it(
    spark: SparkSession, tmp_path: Path, query: Callable[[str], None]
) -> None:
    pipeline = Pipeline(tmp_path / "space", 2, cache=tmp_path / "cache")
    for name in ("one", "other"):
        pipeline.add(Operator(name, ("key",), TOTALS))
    manifest = pipeline.run_epoch(spark.createDataFrame([(f"{n}", n) for n in range(10)], "key string, value long"), 0)
    assert manifest is not None
    progress = EpochProgress.of(manifest)
    assert (progress.rows, [one.rows_in for one in progress.operators]) == (10, [10, 10])


def test_a_space_is_fed_in_one_way(spark: SparkSession, tmp_path: Path, query: Callable[[str], None]) -> None:
    def built(place: str) -> Pipeline:
        pipeline = Pipeline(tmp_path / place, 2, cache=tmp_path / "cache")
        pipeline.source("s", spark.createDataFrame([], ROWS), key=["id"]).materialize("r")
        return pipeline

    def added(place: str) -> Pipeline:
        pipeline = Pipeline(tmp_path / place, 2, cache=tmp_path / "cache")
        pipeline.add(Operator("r", ("id",), RunningAggregate("r", ("id",), (Measure("n", "rows"),))))
        return pipeline

    rows = spark.createDataFrame([(1, 1)], ROWS)
    built("built").run_epoch(rows, 0)
    added("added").run_epoch(rows, 0)
    with pytest.raises(PipelineChangedError, match=r"belongs to a pipeline with sources of its own \(r\)"):
        added("built").run_epoch(rows, 1)
    with pytest.raises(PipelineChangedError, match=r"belongs to operators that were added, or written tables \(r\)"):
        built("added").run_epoch(rows, 1)
    put(tmp_path / "in", "s", [(1, 1)])
    stream = spark.readStream.schema(ROWS).parquet(str(tmp_path / "in"))
    writer = stream.repartitionById(2, shard_expression(stream.schema, ("id",), 2)).writeStream.format("objectspace")
    options = {"table": "r", "key": "id", "path": str(tmp_path / "built"), "checkpointLocation": str(tmp_path / "w")}
    with pytest.raises(Exception, match="belongs to a pipeline with sources of its own"):
        writer.options(**options).trigger(availableNow=True).start().awaitTermination()
    assert built("built").run_epoch(rows, 1) is not None


def adding(place: Path, *operators: Operator) -> Pipeline:
    """Return a pipeline of operators that are added."""
    pipeline = Pipeline(place / "space", 2, cache=place / "cache")
    for operator in operators:
        pipeline.add(operator)
    return pipeline


def keeps_nothing(batches: Iterator[pa.RecordBatch], space: PersistedObjectSpace) -> None:
    """Stands for code of users."""


@pytest.mark.slow
def test_a_query_feeds_the_operators_that_it_has_fed(
    spark: SparkSession, tmp_path: Path, query: Callable[[str], None]
) -> None:
    rows = spark.createDataFrame([("a", 1)], "key string, value long")
    one, two, three = (Operator(name, ("key",), keeps_nothing) for name in ("one", "two", "three"))
    query("first")
    adding(tmp_path, one, two).run_epoch(rows, 0)
    for others, found in (((one,), "one"), ((one, two, three), "one, three, two"), ((one, three), "one, three")):
        with pytest.raises(
            PipelineChangedError, match=f"has fed the operators one, two, found {found}: one that is left"
        ):
            adding(tmp_path, *others).run_epoch(rows, 1)
    adding(tmp_path, two, one).run_epoch(rows, 1)
    query("another")
    adding(tmp_path, three).run_epoch(rows, 0)
    query("first")
    with pytest.raises(PipelineChangedError, match="has fed the operators one, two, found three"):
        adding(tmp_path, three).run_epoch(rows, 2)


@pytest.mark.slow
def test_code_of_users_keeps_the_key_by_which_its_rows_are_routed(
    spark: SparkSession, tmp_path: Path, query: Callable[[str], None]
) -> None:
    rows = spark.createDataFrame([("a", 1)], "key string, value long")
    adding(tmp_path, Operator("it", ("key",), keeps_nothing)).run_epoch(rows, 0)
    with pytest.raises(TaskFailedError, match="its state is that of yours by key, found yours by value"):
        adding(tmp_path, Operator("it", ("value",), keeps_nothing)).run_epoch(rows, 1)
    with pytest.raises(
        TaskFailedError, match=r"its state is that of yours by key, found RunningAggregate\(.* by value"
    ):
        adding(tmp_path, Operator("it", ("value",), TOTALS)).run_epoch(rows, 1)
    adding(tmp_path, Operator("it", ("key",), TOTALS)).run_epoch(rows, 1)


def test_what_is_no_operator_of_a_space_is_not_read_as_an_empty_one(
    spark: SparkSession, tmp_path: Path, query: Callable[[str], None]
) -> None:
    pipeline = adding(tmp_path, Operator("it", ("key",), keeps_nothing))
    with pipeline.read("it", 0) as space:
        assert list(space) == []
    pipeline.run_epoch(spark.createDataFrame([("a", 1)], "key string, value long"), 0)
    with pytest.raises(ObjectSpaceError, match="has no operator 'its' at epoch 1: it has it"):
        pipeline.operator_plan("its")


def endless(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").option("rowsPerSecond", 1).load().selectExpr("value id", "value v")


class Waits:
    """Takes longer than anybody waits for it."""

    def process(self, batch: pa.RecordBatch, space: PersistedObjectSpace) -> None:
        time.sleep(60)


def test_a_query_that_is_stopped_in_the_midst_of_an_epoch_has_no_error(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path / "space", 1, cache=tmp_path / "cache")
    pipeline.add(Operator("waits", ("id",), Waits()))
    query = pipeline.start(endless(spark), tmp_path / "progress")
    with pytest.raises(ObjectSpaceError, match=r"a query of this pipeline is running .* stop it first"):
        pipeline.start(endless(spark), tmp_path / "other")
    tracker = spark.sparkContext.statusTracker()
    while not tracker.getActiveJobsIds():
        assert query.isActive
    query.stop()
    assert (pipeline.status().error, query.exception()) == (None, None)


def test_the_memory_of_the_driver_is_no_location(spark: SparkSession) -> None:
    pipeline = Pipeline("memory://space", 1)
    pipeline.add(Operator("waits", ("id",), Waits()))
    with pytest.raises(CheckpointError, match="do not see the memory of this one: use a folder"):
        pipeline.start(endless(spark), "progress")
    with pytest.raises(CheckpointError, match="do not see the memory of this one: use a folder"):
        pipeline.run_epoch(spark.range(1), 0)


@pytest.mark.slow
def test_a_space_and_its_query_go_back_together(spark: SparkSession, tmp_path: Path) -> None:
    files, progress, again = tmp_path / "in", tmp_path / "progress", tmp_path / "again"
    for number in range(3):
        put(files, "a", [(number, 10**number)])
        run(of_files(spark, files, "a"), progress)
    fork = [sys.executable, "-m", "checkpoint", "fork", str(tmp_path / "space"), str(again / "space"), "@1"]
    subprocess.run(fork, check=True, capture_output=True)
    shutil.copytree(progress, again / "whole")
    shutil.copytree(progress, again / "progress")
    for file in [*(again / "progress" / "offsets").iterdir(), *(again / "progress" / "commits").iterdir()]:
        if file.name.strip(".").partition(".")[0] in ("1", "2"):
            file.unlink()

    def forked(space: Path = again / "space") -> Pipeline:
        pipeline = Pipeline(space, 2, cache=tmp_path / "cache")
        one_by_one = spark.readStream.schema(ROWS).option("maxFilesPerTrigger", 1).parquet(str(files))
        pipeline.source("a", one_by_one, key=["id"]).agg(n=count(), all=sum_("v")).materialize("of_a")
        return pipeline

    with pytest.raises(CheckpointError, match="the batches between are missing"):
        run(forked(), again / "whole")
    put(files, "a", [(3, 1000)])
    back = forked()
    assert back.rows("of_a") == [(1, 1)]
    run(back, again / "progress")
    assert back.rows("of_a") == [(4, 1111)]
    assert back.status().epoch == 2, "what the query had taken comes as one micro-batch, with the next file"
    # Now both lines have a batch 1; that of the original has a file, that of the fork three.
    fork[-2:] = [str(again / "first"), "@2"]
    subprocess.run(fork, check=True, capture_output=True)
    for file in [*(progress / "offsets").glob("*2*"), *(progress / "commits").glob("*2*")]:
        file.unlink()
    put(files, "a", [(4, 10000)])
    shutil.copytree(again / "progress", again / "other")
    for space, crossed in ((again / "space", progress), (again / "first", again / "other")):
        with pytest.raises(CheckpointError, match=r"batch 1 has other rows .* belongs to another history than the"):
            run(forked(space), crossed)
    run(forked(), again / "progress")
    run(forked(again / "first"), progress)
    assert back.rows("of_a") == forked(again / "first").rows("of_a") == [(5, 11111)]


Applied = dict[str, tuple[int, list[Any]]]
"""What a sink has applied, by the marks of the epochs: their numbers and changes."""


def feed(pipeline: Pipeline, batch: int, row: tuple[int, int], applied: Applied) -> list[str]:
    """Make an epoch of a row, and return the marks of those that were handed to a sink."""
    handed = []

    def note(changes: DataFrame, epoch: int) -> None:
        handed.append(pipeline.mark(epoch))
        applied.setdefault(handed[-1], (epoch, [tuple(one) for one in changes.collect()]))

    pipeline.for_each_epoch("r", note)
    pipeline.run_epoch(SparkSession.active().createDataFrame([row], ROWS), batch)
    return handed


def handing_out(space: Path) -> Pipeline:
    """Return a pipeline whose only result are the rows of its source."""
    pipeline = Pipeline(space, 1, cache=space.parent / "cache")
    pipeline.source("s", SparkSession.active().createDataFrame([], ROWS), key=["id"]).materialize("r")
    return pipeline


@pytest.mark.parametrize("how", ["a fork", "a plain copy"])
def test_a_sink_takes_the_epochs_after_an_older_state_was_put_back(
    spark: SparkSession, tmp_path: Path, query: Callable[[str], None], how: str
) -> None:
    """What it has applied of a number of an epoch is not what is given under that number afterwards."""
    space, again = tmp_path / "space", tmp_path / "again"
    applied: Applied = {}
    feed(handing_out(space), 0, (1, 1), applied)
    if how == "a plain copy":
        shutil.copytree(space, again)
    feed(handing_out(space), 1, (2, 666), applied)
    if how == "a fork":
        fork_space(Chain.open(location_at(space)), str(again), 1, (), lambda done, total: None)
    shutil.rmtree(space)
    shutil.move(again, space)
    feed(handing_out(space), 1, (2, 2), applied)
    assert [*applied.values()] == [(1, [("+", 1, 1)]), (2, [("+", 2, 666)]), (2, [("+", 2, 2)])]
    assert [handing_out(space).mark(epoch) for epoch in (1, 2)] == [[*applied][place] for place in (0, 2)]


def test_an_epoch_that_is_handed_out_again_has_the_same_mark(
    spark: SparkSession, tmp_path: Path, query: Callable[[str], None]
) -> None:
    applied: Applied = {}
    spaces = [tmp_path / name for name in ("one", "other", "one", "one")]
    handed = [feed(handing_out(space), 0, (1, 1), applied) for space in spaces]
    assert handed == [[handing_out(space).mark(1)] for space in spaces]
    assert len(applied) == 2
    one = handing_out(tmp_path / "one")
    with pytest.raises(UnknownCheckpointError, match="no epoch 2: expected one from 1 to 1"):
        one.mark(2)
    with pytest.raises(UnknownCheckpointError, match="no epoch 1: none was published yet"):
        handing_out(tmp_path / "new").mark(1)


def test_a_mark_in_a_sink_is_that_of_the_epoch_that_was_published(
    spark: SparkSession, tmp_path: Path, query: Callable[[str], None]
) -> None:
    """Whatever lies there since: the rows that the sink has are of that epoch."""
    pipeline, marks = handing_out(tmp_path / "one"), []
    feed(handing_out(tmp_path / "other"), 0, (2, 2), {})

    def replaced(changes: DataFrame, epoch: int) -> None:
        marks.append(pipeline.mark(epoch))
        shutil.move(tmp_path / "one", tmp_path / "away")
        shutil.move(tmp_path / "other", tmp_path / "one")
        marks.append(pipeline.mark(epoch))

    pipeline.for_each_epoch("r", replaced)
    pipeline.run_epoch(spark.createDataFrame([(1, 1)], ROWS), 0)
    assert marks == [handing_out(tmp_path / "away").mark(1)] * 2
    assert pipeline.mark(1) == handing_out(tmp_path / "one").mark(1) not in marks


def test_a_pipeline_whose_space_is_put_back_reads_what_is_there_and_feeds_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    files, places = tmp_path / "in", ("space", "progress")
    put(files, "a", [(1, 1)])
    run(of_files(spark, files, "a"), tmp_path / "progress")
    for place in places:
        shutil.copytree(tmp_path / place, tmp_path / "copy" / place)
    put(files, "a", [(2, 10)])
    board = of_files(spark, files, "a")
    run(board, tmp_path / "progress")
    assert (board.status().epoch, board.rows("of_a")) == (2, [(2, 11)])
    for place in places:
        shutil.rmtree(tmp_path / place)
        shutil.move(tmp_path / "copy" / place, tmp_path / place)
    (files / "a-1.parquet").unlink()
    put(files, "a", [(3, 100)])
    run(of_files(spark, files, "a"), tmp_path / "progress")
    assert (board.status().epoch, board.rows("of_a")) == (2, [(2, 101)])
    with pytest.raises(FencedError, match=r"json is another one .*: an older copy was put back .*make a new Pipeline"):
        run(board, tmp_path / "progress")
    run(of_files(spark, files, "a"), tmp_path / "progress")


def test_rows_that_no_sum_holds_may_be_left_out_of_the_source(spark: SparkSession, tmp_path: Path) -> None:
    """A cast of what is added up would be another plan, which the epochs that are there do not go with."""
    files, progress = tmp_path / "in", tmp_path / "progress"
    put(files, "a", [(1, 1), (2, 1)])
    run(of_files(spark, files, "a"), progress)
    put(files, "a", [(3, 2**63 - 1), (4, 5)])
    with pytest.raises(TaskFailedError, match=r"which no int64 holds: correct or leave out rows in the source, or add"):
        run(of_files(spark, files, "a"), progress)
    kept = Pipeline(tmp_path / "space", 2, cache=tmp_path / "cache")
    rows = spark.readStream.schema(ROWS).option("pathGlobFilter", "a-*.parquet").parquet(str(files)).where("id <> 3")
    kept.source("a", rows, key=["id"]).agg(n=count(), all=sum_("v")).materialize("of_a")
    run(kept, progress)
    assert kept.rows("of_a") == [(3, 7)]


def test_a_source_of_selected_columns_goes_on_when_others_come(spark: SparkSession, tmp_path: Path) -> None:
    files, progress = tmp_path / "in", tmp_path / "progress"

    def ran(schema: str, *columns: str) -> Pipeline:
        pipeline = Pipeline(tmp_path / "space", 2, cache=tmp_path / "cache")
        rows = spark.readStream.schema(schema).parquet(str(files)).select(*columns)
        pipeline.source("a", rows, key=["id"]).agg(n=count(), all=sum_("v")).materialize("of_a")
        run(pipeline, progress)
        return pipeline

    put(files, "a", [(1, 1), (2, 1)])
    ran(ROWS, "id", "v")
    more = pa.table({"note": ["new"], "v": pa.array([5], pa.int64()), "id": pa.array([3], pa.int64())})
    pq.write_table(more, files / "a-1.parquet")
    schema = "note string, v long, id long"
    with pytest.raises(PipelineChangedError, match="start at another location"):
        ran(schema, "*")
    assert ran(schema, "id", "v").rows("of_a") == [(3, 7)]
