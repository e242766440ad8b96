"""What is seen of a query: its progress, beside Spark's own events, and the error that ends it, in words."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from checkpoint import CheckpointError
from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.operators import count
from objectspace.spark import EpochProgress, Operator, Pipeline, TaskFailedError
from objectspace.spark.printable import add_note
from objectspace.spark.sinks import no_exit
from tests.patience import wait_until

SCHEMA = "k string, v long"


class Seen(StreamingQueryListener):
    """Notes the query and the micro-batch of every event of progress."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, int]] = []

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self.batches.append((str(event.progress.id), event.progress.batchId))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass


class Divide:
    """Fails where a value is 0."""

    def process(self, batch: pa.RecordBatch, space: PersistedObjectSpace) -> None:
        for row in batch.to_pylist():
            12 // row["v"]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> DataFrame:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"k": ["a", "b"], "v": [1, 0]}), tmp_path / "in" / "0.parquet")
    return spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))


def test_progress_is_that_of_the_micro_batches_that_spark_tells_of(
    spark: SparkSession, stream: DataFrame, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = Pipeline(tmp_path / "space", 2, cache=tmp_path / "cache")
    pipeline.source("rows", stream, key=["k"]).group_by("k").agg(n=count()).materialize("counts")
    seen = Seen()
    spark.streams.addListener(seen)
    try:
        with caplog.at_level("INFO", logger="objectspace.spark"):
            query = pipeline.start(checkpoint_location=tmp_path / "query", trigger={"availableNow": True})
            query.awaitTermination()
        wait_until(lambda: seen.batches, "the progress of a batch")
    finally:
        spark.streams.removeListener(seen)
    [progress] = pipeline.progress()
    assert [(progress.query, progress.batch)] == seen.batches == [(query.id, 0)]
    assert str(progress) in caplog.messages
    assert progress == EpochProgress.of(pipeline.chain.manifest(1)) == pipeline.status().last
    told = json.loads(progress.json)
    assert (told["rows"], told["epoch"]) == (2, 1)
    assert all(one["bytes"] > 0 and one["phases"] for one in told["operators"])
    # The table of the groups is kept in the tasks of the aggregation.
    assert [one["ms"] > 0 for one in told["operators"]] == [True, False]
    assert query.exception() is None


def test_the_error_that_ends_a_query_is_in_words_wherever_one_asks(
    stream: DataFrame, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pipeline = Pipeline(tmp_path / "space", 2, cache=tmp_path / "cache")
    pipeline.add(Operator("divide", ("k",), Divide()))
    query = pipeline.start(stream, tmp_path / "query", {"availableNow": True})
    with pytest.raises(TaskFailedError, match="operator divide, epoch 1: ZeroDivisionError") as failed:
        query.awaitTermination()
    said = str(failed.value)
    assert "\n" not in said
    assert str(query.exception()) == pipeline.status().error == said
    assert failed.value.__suppress_context__
    out, errors = capfd.readouterr()
    assert len((out + errors).splitlines()) < 3, "Spark has printed a stack"


@pytest.mark.parametrize("is_added", [True, False])
def test_code_that_cannot_be_sent_to_tasks_is_told_in_words(stream: DataFrame, tmp_path: Path, is_added: bool) -> None:
    pipeline = Pipeline(tmp_path / "space", 2, cache=tmp_path / "cache")
    lock = Lock()
    if is_added:
        pipeline.add(Operator("locks", ("k",), SimpleNamespace(process=lambda batch, space: lock.locked())))
    else:
        rows = pipeline.source("rows", stream, key=["k"])
        rows.filter(lambda row: not lock.locked()).materialize("locks")
    query = pipeline.start(stream if is_added else None, tmp_path / "query", {"availableNow": True})
    told = (
        r"operator locks, epoch 1: its code.* cannot be sent to tasks \(TypeError: cannot pickle .*lock.* no DataFrame"
    )
    with pytest.raises(TaskFailedError, match=told) as failed:
        query.awaitTermination()
    assert pipeline.status().error == str(failed.value)


def leaves(*given: object) -> None:
    sys.exit(3)


@pytest.mark.parametrize("what", ["the function of result 'counts'", "on_epoch"])
def test_a_function_that_exits_ends_its_query(stream: DataFrame, tmp_path: Path, what: str) -> None:
    """Spark waits for ever for a thread that has ended."""
    pipeline = Pipeline(tmp_path / "space", 1, cache=tmp_path / "cache")
    pipeline.source("rows", stream, key=["k"]).group_by("k").agg(n=count()).materialize("counts")
    if what != "on_epoch":
        pipeline.for_each_epoch("counts", leaves)
    query = pipeline.start(None, tmp_path / "query", {"availableNow": True}, leaves if what == "on_epoch" else None)
    with pytest.raises(ObjectSpaceError, match=rf"^{what} raised SystemExit\(3\), as sys.exit\(\) does, .* to return"):
        query.awaitTermination(60)
    assert not query.isActive
    assert str(pipeline.status().error).startswith(f"{what} raised SystemExit(3)")


def is_cancelled(*given: object) -> None:
    raise asyncio.CancelledError


def test_what_is_no_error_is_made_one_but_for_an_interruption_of_the_program() -> None:
    with ThreadPoolExecutor(1) as pool:
        failed = pool.submit(no_exit("on_epoch")(is_cancelled)).exception()
    told = r"^on_epoch raised CancelledError\(\), which is no Exception, and ends no query: expected it to return"
    assert isinstance(failed, ObjectSpaceError)
    assert re.match(told, str(failed))
    with pytest.raises(asyncio.CancelledError), no_exit("on_epoch"):
        is_cancelled()


class Mute(Exception):
    """Has no text, and no list of notes."""

    __notes__ = "a note"  # type: ignore[assignment]

    def __str__(self) -> str:
        raise LookupError


def test_an_error_without_a_text_is_told_by_its_status(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path / "space", 1, cache=tmp_path / "cache")
    error = pipeline._watch.error = Mute()
    add_note(error, "raised by a function")
    said = "Mute, whose text cannot be told: asking for it raised LookupError; a note; raised by a function"
    assert pipeline.status().error == said


class Silent:
    """Ends in a way that leaves no message, or none that Spark can send."""

    def __init__(self, how: str) -> None:
        self.how = how

    def process(self, batch: pa.RecordBatch, space: PersistedObjectSpace) -> None:
        if self.how == "exits":
            os._exit(1)
        if self.how == "has another encoding":
            raise FileNotFoundError(os.fsdecode(b"no caf\xe9.csv"))
        raise AssertionError


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("says nothing", r"AssertionError \(in process, line \d+ of "),
        ("exits", "Python worker exited unexpectedly"),
        pytest.param(
            "has another encoding",
            r"FileNotFoundError: no caf\\udce9.csv \(in process, line \d+ of ",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_task_that_ends_without_a_message_is_told_in_words(
    stream: DataFrame, tmp_path: Path, how: str, told: str
) -> None:
    pipeline = Pipeline(tmp_path / "space", 1, cache=tmp_path / "cache")
    pipeline.add(Operator("silent", ("k",), Silent(how)))
    query = pipeline.start(stream, tmp_path / "query", {"availableNow": True})
    with pytest.raises(TaskFailedError, match=f"operator silent, epoch 1: .*{told}") as failed:
        query.awaitTermination()
    assert "\n" not in str(failed.value)


def test_an_error_of_the_library_is_told_as_it_is(stream: DataFrame, tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path / "space", 2, cache=tmp_path / "cache")
    pipeline.add(Operator("divide", ("k",), lambda batches, space: None))

    def fail(batch: int, manifest: object) -> None:
        raise CheckpointError("the disk is gone")

    query = pipeline.start(stream, tmp_path / "query", {"availableNow": True}, fail)
    with pytest.raises(CheckpointError, match="the disk is gone"):
        query.awaitTermination()
    assert isinstance(query.exception(), CheckpointError)
    assert pipeline.status().epoch == 1
