"""Options for the file system reach it: reading, following and writing a table on an S3 server of another address."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import boto3
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer
from pyspark import TaskContext
from pyspark.sql.types import LongType, StringType, StructType

from checkpoint import CheckpointError
from checkpoint.chain import Chain, location_at
from objectspace.spark import Pipeline, open_shard, rescale, shard_task
from objectspace.spark.source import ObjectSpaceSource
from objectspace.spark.subject import Subject
from objectspace.spark.writer import Target
from tests.spark.feed_readers import FeedReaders

BUCKET = "bucket"
SCHEMA = StructType().add("k", StringType()).add("v", LongType())


@pytest.fixture(scope="module")
def storage() -> Iterator[dict[str, str]]:
    """The options for a server that ends with the module."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = {"endpoint_url": f"http://{host}:{port}", "region_name": "us-east-1"}
    access = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    boto3.client("s3", **client, **access).create_bucket(Bucket=BUCKET)
    yield {"fsspec.key": "test", "fsspec.secret": "test", "fsspec.client_kwargs": json.dumps(client)}
    server.stop()


def test_a_table_on_s3_is_written_read_and_followed(
    storage: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OBJECTSPACE_CACHE", str(tmp_path))
    place = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "0"}
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(partitionId=lambda: 0, getLocalProperty=place.get))
    space = {"path": f"s3://{BUCKET}/{uuid4().hex}/space", "table": "t", **storage}
    writer = ObjectSpaceSource({**space, "key": "k", "shards": "1"}).streamWriter(SCHEMA, overwrite=False)
    writer.commit([writer.write(iter([pa.record_batch({"k": ["a", "b"], "v": [1, 2]})]))], 0)
    source = ObjectSpaceSource(space)
    reader = source.reader(source.schema())
    assert [batch.to_pydict() for part in reader.partitions() for batch in reader.read(part)] == [
        {"k": ["a", "b"], "v": [1, 2]}
    ]
    source = ObjectSpaceSource({**space, "changes": "true"})
    feed = FeedReaders(source)
    parts = feed.partitions({"epoch": 0}, feed.latestOffset({"epoch": 0}, None))
    assert [batch.to_pydict() for part in parts for batch in feed.read(part)] == [
        {"op": ["+", "+"], "epoch": [1, 1], "k": ["a", "b"], "v": [1, 2]}
    ]


def test_what_a_value_says_is_json_or_text() -> None:
    options = {"path": "memory://x", "table": "t", "fsspec.secret": "a{b", "fsspec.anon": "true", "fsspec.key": '"12"'}
    subject = Subject.of(options)
    assert subject.storage == {"secret": "a{b", "anon": True, "key": "12"}
    assert "a{b" not in repr(subject)
    assert Target.of({**options, "key": "k"}).storage == subject.storage


def test_a_file_system_that_cannot_decide_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    options = {"path": f"dir://{tmp_path}/space", "table": "t", "key": "k", "shards": "1"}
    with pytest.raises(CheckpointError, match=r"\(dir\) cannot create a file only where it is absent.*use a folder"):
        Target.of({**options, "fsspec.target_protocol": "file", "fsspec.path": str(tmp_path)}).chain()


def test_the_memory_of_one_process_is_refused_wherever_tasks_would_open_it(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"memory://{uuid4().hex}"
    refused = pytest.raises(
        CheckpointError, match=f"location {url}: .* do not see the memory of this one: use a folder"
    )
    with refused:
        ObjectSpaceSource({"path": url, "table": "t", "key": "k", "shards": "1"}).streamWriter(SCHEMA, overwrite=False)
    for options in ({}, {"changes": "true"}):
        with refused:
            ObjectSpaceSource({"path": url, "table": "t", **options}).schema()
    plan = Chain.open_or_create(location_at(url), 1).operator_plan("own")
    with open_shard(plan, 0) as space:
        assert not list(space)
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(partitionId=lambda: 0))
    for shard in (None, 0):
        with refused, open_shard(plan, shard):
            pass
    with refused:
        next(shard_task(plan, lambda batches, space: None)(iter([])))


OPENED: dict[str, Callable[[str], object]] = {
    "pipeline": lambda url: Pipeline(url, 1),
    "rescale": lambda url: rescale(url, 2),
    "writeStream": lambda url: Target.of({"path": url, "table": "t", "key": "k", "shards": "1"}).chain(),
}


@pytest.mark.parametrize("opened", OPENED)
def test_who_publishes_is_told_at_once_that_a_file_system_is_unable(opened: str) -> None:
    with pytest.raises(CheckpointError, match=r"location sftp://h/x: its file system \(sftp\) cannot create a file"):
        OPENED[opened]("sftp://h/x")
