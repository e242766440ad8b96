"""Locations of streams: garbage collected beside them, S3 through a whole pipeline, and Spark Connect refused."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest
from filelock import FileLock
from moto.server import ThreadedMotoServer
from pyspark.sql import DataFrame, SparkSession

from checkpoint import CheckpointError, CheckpointKind, Run
from checkpoint.chain import (
    AcceptedRun,
    Chain,
    Collected,
    Manifest,
    OperatorPlan,
    SourcePosition,
    WaitingImage,
    cache_root,
    location_at,
    save_run,
)
from objectspace.errors import ObjectSpaceError
from objectspace.operators import count, sum_
from objectspace.spark import Pipeline, Retention, Upkeep
from tests.chain.chain_helpers import OPERATOR, Publisher
from tests.chain.faulty_location import FaultyLocation
from tests.chain.test_chain_s3 import ACCESS, BUCKET
from tests.patience import PATIENCE, wait_until

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


@pytest.mark.slow
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
    pipeline.upkeep.wait(PATIENCE)
    assert pipeline.upkeep.last is not None
    pipeline.upkeep.published(7)  # What epochs passed by while it was busy is made good by the next one.
    pipeline.upkeep.wait(PATIENCE)
    opened = Chain.open(pipeline.chain.location)
    assert 1 < opened.first_epoch <= 5
    assert opened.collect(retention.grace_seconds, retention.epochs).first_epoch == 5
    assert kept(Pipeline(tmp_path / "space", SHARDS, cache=tmp_path / "new cache")) == answer(6)


def test_an_image_is_named_when_it_has_waited_for_epochs_or_for_long(tmp_path: Path) -> None:
    chain = Pipeline(tmp_path / "space", 1).chain
    run = AcceptedRun("o", 0, 5, "run/x", CheckpointKind.FULL, "d", "c", 1, 1, 1, "s")
    upkeep = Upkeep(chain.location, Retention(grace_seconds=1000), image_lag=3)
    for age, epoch, found in [(0, 7, []), (0, 8, [run]), (251, 6, [run])]:
        upkeep._waiting["o", 0] = WaitingImage(run, time.time() - age)
        assert upkeep.images(epoch) == found
        assert upkeep.images(100) == ([] if found else [run])


class _Starts:
    """A job that is started anew for each micro-batch: its upkeep makes images, and lives for one epoch."""

    def __init__(self, folder: Path, shards: int = 1) -> None:
        self.chain = Chain.open_or_create(location_at(folder / "space"), shards)
        self._publish = Publisher(folder / "caches")
        self.runs = folder / "space" / "run"

    def __call__(self, grace: float = 1e9, lag: int = 3, full_after: int = 2) -> Manifest:
        """Publish one epoch, with the images of earlier starts."""
        upkeep = Upkeep(self.chain.location, Retention(64, 1, grace), full_after, lag)
        chain = Chain.open(self.chain.location)
        changes: list[dict[str, int | None]] = [{"a": chain.epoch}] * chain.shards
        manifest = self._publish(chain, *changes, images=upkeep.images(chain.epoch + 1))
        upkeep.published(manifest.epoch)
        upkeep.wait(PATIENCE)
        return manifest

    @property
    def notes(self) -> list[str]:
        return [name for name in self.chain.location.names("handover") if name.startswith("image-")]


def test_an_image_of_a_process_that_ended_is_made_once_and_named_by_a_later_one(tmp_path: Path) -> None:
    start = _Starts(tmp_path)
    named = [len(start().images) for _ in range(3)]
    (note,) = start.notes
    for _ in range(2):
        named.append(len(start().images))
        assert start.notes == [note], "no other one is made while it waits"
    named.append(len(start().images))
    assert named == [0, 0, 0, 0, 0, 1]
    assert len(list(start.runs.iterdir())) == 6 + 1
    assert note not in start.notes, "it is named"


_ENDS = """
import subprocess, sys, threading
from checkpoint.chain import location_at
from objectspace.spark import Retention, Upkeep
has_order, communicate = threading.Event(), subprocess.Popen.communicate

def hand_over(process, order=None, timeout=None):
    process.stdin.write(order)
    process.stdin.close()
    process.stdin = None
    has_order.set()
    return communicate(process, timeout=timeout)

subprocess.Popen.communicate = hand_over
Upkeep(location_at(sys.argv[1]), Retention(every=1), full_after=2).published(3)
assert has_order.wait(300)
"""


def test_an_image_that_is_made_while_the_driver_ends_is_noted(tmp_path: Path) -> None:
    start = _Starts(tmp_path)
    for _ in range(2):
        start()
    start(lag=0, full_after=64)
    assert start.notes == []
    environment = {**os.environ, "OBJECTSPACE_CACHE": str(tmp_path / "machine")}
    subprocess.run([sys.executable, "-c", _ENDS, tmp_path / "space"], check=True, env=environment, timeout=PATIENCE)
    wait_until(lambda: start.notes, "a note")
    (note,) = start.notes
    assert note.endswith(".json")


def test_an_image_that_an_earlier_start_is_making_is_neither_made_again_nor_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start = _Starts(tmp_path)
    for _ in range(2):
        start(full_after=64)
    with FileLock(cache_root() / start.chain.incarnation / f"{OPERATOR}-0" / "image.lock"):
        start()
    assert (start.notes, caplog.text) == ([], "")
    start()
    assert len(start.notes) == 1


def test_an_image_that_has_waited_for_a_day_is_named_by_the_next_start(tmp_path: Path) -> None:
    start = _Starts(tmp_path)
    for _ in range(3):
        start(86_400)
    (note,) = start.notes
    os.utime(tmp_path / "space" / "handover" / note, (time.time() - 86_000,) * 2)
    assert len(start(86_400).images) == 1


def test_an_image_whose_note_is_damaged_is_made_again(tmp_path: Path) -> None:
    start = _Starts(tmp_path)
    for _ in range(3):
        start()
    (note,) = start.notes
    (tmp_path / "space" / "handover" / note).write_bytes(b"damaged")
    start()
    (another,) = start.notes
    assert another != note


def test_an_image_of_epochs_that_are_gone_is_made_again(tmp_path: Path) -> None:
    start = _Starts(tmp_path)
    for _ in range(3):
        start()
    (note,) = start.notes
    for epoch in (2, 3):
        start.chain.location.delete(f"manifest/{epoch:012d}.json")  # An older copy is put back.
    start(lag=0)
    assert start.notes == []
    start(lag=0)
    (another,) = start.notes
    assert another != note


def test_images_that_were_handed_to_an_epoch_that_failed_wait_again(tmp_path: Path) -> None:
    start = _Starts(tmp_path)
    for _ in range(3):
        start()
    upkeep = Upkeep(start.chain.location, Retention(), image_lag=0)
    (image,) = upkeep.images(4)
    assert upkeep.images(4) == []
    upkeep.published(3)
    upkeep.wait(PATIENCE)
    assert upkeep.images(4) == [image]


def test_epochs_go_on_while_the_notes_cannot_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    location = Pipeline(tmp_path / "space", 1).chain.location
    assert Upkeep(FaultyLocation(location, 1), Retention()).images(1) == []
    assert "the look for images that wait failed and will be retried" in caplog.text


def test_an_epoch_waits_for_no_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = Pipeline(tmp_path / "space", 1).chain
    may_go_on, calls = threading.Event(), []

    def slow(self: Chain, *_: Any) -> Collected:
        calls.append(threading.current_thread())
        may_go_on.wait(PATIENCE)
        return Collected(1, 0, 0, 0)

    monkeypatch.setattr(Chain, "collect", slow)
    upkeep = Upkeep(chain.location, Retention(every=3))
    for epoch in (1, 2):
        assert upkeep.published(epoch)
        upkeep.wait(PATIENCE)
    assert calls == []
    assert [upkeep.published(epoch) for epoch in range(3, 10)] == [True, *([False] * 6)]
    assert upkeep.is_busy()
    may_go_on.set()
    upkeep.wait(PATIENCE)
    assert not upkeep.is_busy()
    assert [thread.daemon for thread in calls] == [True]
    assert upkeep.published(12)
    upkeep.wait(PATIENCE)
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
        upkeep.wait(PATIENCE)
    assert "the collection of garbage failed and will be retried: no such place" in caplog.text
    assert upkeep.published(2)
    upkeep.wait(PATIENCE)
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
    upkeep.wait(PATIENCE)
    assert f"the collection of garbage failed and will be retried: run file {lost}" in caplog.text
    assert Chain.open(chain.location).first_epoch == 1
    (image,) = upkeep.images(4)
    assert image.shard == 1, "the runs of the other shard are there"
    publish(chain, {"a": 4}, {"a": 4}, images=[image], full_after=0)
    upkeep.published(5)
    upkeep.wait(PATIENCE)
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
    upkeep.wait(PATIENCE)
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


@pytest.mark.parametrize("given", [{"epochs": 64.0}, {"every": True}, {"epochs": 0}, {"grace_seconds": float("nan")}])
def test_a_retention_that_could_never_collect_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=r"Retention\(.*expected at least 1 epoch to keep"):
        Retention(**given)
