"""Locations of streams: garbage collected beside them, S3 through a whole pipeline, and Spark Connect refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest
from moto.server import ThreadedMotoServer
from pyspark.sql import DataFrame, SparkSession

from checkpoint import CheckpointError, CheckpointKind, Run
from checkpoint.chain import AcceptedRun, Chain, Collected, OperatorPlan, SourcePosition, location_at, save_run
from objectspace.errors import ObjectSpaceError
from objectspace.operators import count, sum_
from objectspace.spark import Pipeline, Retention, Upkeep
from objectspace.spark.upkeep import _Waiting
from tests.chain.chain_helpers import OPERATOR, Publisher
from tests.chain.test_chain_s3 import ACCESS, BUCKET

from .clusters import KEYS, ROWS, answer, make_input
from .spark_helpers import SHARDS, kept, totals_operator


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The address of an S3 server on loopback, with a bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    boto3.client("s3", endpoint_url=f"http://{host}:{port}", **ACCESS).create_bucket(Bucket=BUCKET)
    yield f"http://{host}:{port}"
    server.stop()


def run(spark: SparkSession, folder: Path, pipeline: Pipeline) -> None:
    """Feed the files of a folder, one a micro-batch, through a pipeline."""
    pipeline.add(totals_operator())
    stream = spark.readStream.schema("key string, value long").option("maxFilesPerTrigger", 1)
    query = pipeline.start(stream.parquet(str(folder / "input")), folder / "query", {"availableNow": True})
    query.awaitTermination()


def test_a_whole_pipeline_on_s3(spark: SparkSession, tmp_path: Path, endpoint: str) -> None:
    make_input(tmp_path, 2)
    access = {"key": "test", "secret": "test", "client_kwargs": {"region_name": "us-east-1"}}
    url, options = f"s3://{BUCKET}/{uuid4().hex}/space", {"endpoint_url": endpoint, **access}
    seen: list[int] = []

    def built(cache: str) -> Pipeline:
        pipeline = Pipeline(url, SHARDS, options=options, cache=tmp_path / cache)
        stream = spark.readStream.schema("key string, value long").option("maxFilesPerTrigger", 1)
        totals = pipeline.source("rows", stream.parquet(str(tmp_path / "input"))).group_by("key")
        counted = totals.agg(n=count(), sum=sum_("value")).materialize("totals")
        counted.agg(keys=count(), rows=sum_("n")).materialize("overall")
        pipeline.for_each_epoch(counted, lambda changes, epoch: seen.append(changes.count()))
        return pipeline

    built("cache").start(checkpoint_location=tmp_path / "query", trigger={"availableNow": True}).awaitTermination()
    again = built("another cache")
    assert {key: (n, total) for key, n, total in again.rows("totals")} == answer(2)
    assert {key: (n, total) for key, n, total in again.rows("totals", epoch=1)} == answer(1)
    assert again.rows("overall") == [(KEYS, 2 * ROWS)]
    assert seen == [KEYS, 2 * KEYS]  # the second time each group goes and comes


def test_garbage_is_collected_beside_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    make_input(tmp_path, 6)
    retention = Retention(epochs=2, every=2, grace_seconds=0)
    pipeline = Pipeline(tmp_path / "space", SHARDS, cache=tmp_path / "cache", retention=Retention(epochs=2, every=2))
    run(spark, tmp_path, pipeline)
    pipeline.upkeep.wait(60)
    assert pipeline.upkeep.last is not None
    pipeline.upkeep.published(7)  # What epochs passed by while it was busy is made good by the next one.
    pipeline.upkeep.wait(60)
    opened = Chain.open(pipeline.chain.location)
    assert 1 < opened.first_epoch <= 5
    assert opened.collect(retention.grace_seconds, retention.epochs).first_epoch == 5
    assert kept(Pipeline(tmp_path / "space", SHARDS, cache=tmp_path / "new cache")) == answer(6)


def test_an_image_that_waits_too_long_is_given_up(tmp_path: Path) -> None:
    chain = Pipeline(tmp_path / "space", 1).chain
    run = AcceptedRun("o", 0, 5, "run/x", CheckpointKind.FULL, "d", "c", 1, 1, 1, "s")
    upkeep = Upkeep(chain.location, Retention(grace_seconds=1000), image_lag=3)
    for age, epoch, found in [(0, 7, []), (0, 8, [run]), (251, 6, [run]), (501, 8, [])]:
        upkeep._waiting["o", 0] = _Waiting(run, time.monotonic() - age)
        assert upkeep.images(epoch) == found
        assert upkeep.images(100) == ([run] if (age, epoch) == (0, 7) else [])


def test_an_epoch_waits_for_no_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = Pipeline(tmp_path / "space", 1).chain
    may_go_on, calls = threading.Event(), []

    def slow(self: Chain, *_: Any) -> Collected:
        calls.append(threading.current_thread())
        may_go_on.wait(60)
        return Collected(1, 0, 0, 0)

    monkeypatch.setattr(Chain, "collect", slow)
    upkeep = Upkeep(chain.location, Retention(every=3))
    for epoch in (1, 2):
        assert upkeep.published(epoch)
        upkeep.wait(60)
    assert calls == []
    assert [upkeep.published(epoch) for epoch in range(3, 10)] == [True, *([False] * 6)]
    assert upkeep.is_busy()
    may_go_on.set()
    upkeep.wait(60)
    assert not upkeep.is_busy()
    assert [thread.daemon for thread in calls] == [True]
    assert upkeep.published(12)
    upkeep.wait(60)
    assert len(calls) == 2


def test_a_collection_that_fails_is_logged_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(self: Chain, *_: Any) -> Collected:
        raise CheckpointError("no such place")

    upkeep = Upkeep(Pipeline(tmp_path / "space", 1).chain.location, Retention(every=1))
    with monkeypatch.context() as patch:
        patch.setattr(Chain, "collect", fails)
        assert upkeep.published(1)
        upkeep.wait(60)
    assert "the collection of garbage failed and will be retried: no such place" in caplog.text
    assert upkeep.published(2)
    upkeep.wait(60)
    assert upkeep.last == Collected(1, 0, 0, 0)


def test_a_collection_that_misses_a_file_is_logged_and_images_are_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    publish, chain = Publisher(tmp_path / "caches"), Chain.open_or_create(location_at(tmp_path / "space"), 2)
    for number in range(4):
        publish(chain, {"a": number}, {"a": number})
    lost = chain.lineage(OPERATOR, 0)[0].file
    chain.location.delete(lost)
    upkeep = Upkeep(chain.location, Retention(epochs=1, every=1, grace_seconds=0), full_after=2, image_lag=0)
    upkeep.published(4)
    upkeep.wait(60)
    assert f"the collection of garbage failed and will be retried: run file {lost}" in caplog.text
    assert Chain.open(chain.location).first_epoch == 1
    (image,) = upkeep.images(4)
    assert image.shard == 1, "the runs of the other shard are there"
    publish(chain, {"a": 4}, {"a": 4}, images=[image], full_after=0)
    upkeep.published(5)
    upkeep.wait(60)
    assert upkeep.last is not None
    assert upkeep.last.first_epoch == 5, "no epoch that is kept needs the file any more"


def test_an_image_that_fails_keeps_nothing_else_from_being_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(self: Upkeep, plan: OperatorPlan, shard: int) -> None:
        raise ValueError("a client's own kind of error")

    chain = Chain.open_or_create(location_at(tmp_path / "space"), 1)
    plan = chain.begin(SourcePosition("q", 0), ["o"], cache=str(tmp_path / "cache"))
    assert plan is not None
    run = Run(CheckpointKind.FULL, [(1, "n", "Value", None)], [], [(1, "value", "1", None)])
    chain.publish(plan, {"o": [save_run(plan.operators["o"], 0, run)]})
    monkeypatch.setattr(Upkeep, "_due", lambda self, plan: [0])
    monkeypatch.setattr(Upkeep, "_make_image", fails)
    upkeep = Upkeep(chain.location, Retention(every=1))
    upkeep.published(1)
    upkeep.wait(60)
    assert "the image of o/0 failed and will be retried: a client's own kind of error" in caplog.text
    assert upkeep.last == Collected(1, 0, 0, 0)


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"every": 0}, {"grace_seconds": -1}, {"grace_seconds": float("nan")}])
def test_a_retention_that_keeps_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected at least 1 epoch"):
        Retention(**wrong)


def test_a_stream_of_spark_connect_is_refused(tmp_path: Path, make_pipeline: Callable[..., Pipeline]) -> None:
    remote: DataFrame = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()  # type: ignore[assignment]
    with pytest.raises(ObjectSpaceError, match="expected one of a classic session"):
        make_pipeline().start(remote, tmp_path / "query")
    assert not (tmp_path / "query").exists()


def test_no_space_is_founded_in_a_process_of_spark_connect_and_one_that_is_there_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Pipeline(tmp_path / "there", shards=2)
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    with pytest.raises(
        ObjectSpaceError, match="this process has a Spark Connect session, whose rows no pipeline takes"
    ):
        Pipeline(tmp_path / "new", shards=2)
    assert not (tmp_path / "new").exists()
    assert Pipeline(tmp_path / "there", shards=2).chain.epoch == 0
