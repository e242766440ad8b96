"""Real streams: restarts from Spark's checkpoint, a dropped checkpoint, and the demo with its kill."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from checkpoint import CheckpointError
from checkpoint.chain import Manifest, SourcePosition
from objectspace.operators import count, sum_
from objectspace.spark import Pipeline
from objectspace.spark.offsets import files_of, files_without_spark, newest_commit, offsets_before, offsets_of, query_of

from .spark_helpers import expected, kept

MakePipeline = Callable[..., Pipeline]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """A stream of three micro-batches."""
    (tmp_path / "input").mkdir()
    for number in range(3):
        rows = pa.table({"key": [f"k{n % 5}" for n in range(20)], "value": list(range(number, number + 20))})
        path = tmp_path / "input" / f"{number}.parquet"
        pq.write_table(rows, path)
        os.utime(path, (number + 1, number + 1))
    source = spark.readStream.schema("key string, value long").option("maxFilesPerTrigger", 1)
    return source.parquet(str(tmp_path / "input"))


def _run(pipeline: Pipeline, stream: DataFrame, progress: Path, fail_at: int | None = None) -> list[int | None]:
    seen: list[int | None] = []

    def on_epoch(batch: int, manifest: Manifest | None) -> None:
        seen.append(manifest.epoch if manifest else None)
        if batch == fail_at:
            raise OSError("lost after the publish")

    pipeline.start(stream, progress, {"availableNow": True}, on_epoch).awaitTermination()
    return seen


def test_a_restart_skips_what_was_published(
    make_pipeline: MakePipeline, stream: DataFrame, tmp_path: Path, spark: SparkSession
) -> None:
    with pytest.raises(StreamingQueryException, match="lost after the publish"):
        _run(make_pipeline(), stream, tmp_path / "progress", fail_at=1)
    assert make_pipeline().chain.epoch == 2
    assert _run(make_pipeline(), stream, tmp_path / "progress") == [None, 3]
    assert kept(make_pipeline()) == expected([spark.read.parquet(str(tmp_path / "input"))])


def test_a_dropped_checkpoint_starts_a_new_query_on_the_same_space(
    make_pipeline: MakePipeline, stream: DataFrame, tmp_path: Path, spark: SparkSession
) -> None:
    assert _run(make_pipeline(), stream, tmp_path / "progress") == [1, 2, 3]
    assert _run(make_pipeline(), stream, tmp_path / "new progress") == [4, 5, 6]
    rows = spark.read.parquet(str(tmp_path / "input"))
    assert kept(make_pipeline()) == expected([rows, rows])


@pytest.mark.parametrize("spelling", ["{}", "file:{}", "file://{}", "a relative path"])
def test_the_offsets_of_a_batch_are_found_however_its_folder_is_spelled(
    spelling: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    jvm: Any = spark.sparkContext._jvm
    folder = tmp_path / "a b%20c#d"
    (folder / "offsets").mkdir(parents=True)
    (folder / "offsets" / "7").write_text('v1\n{}\n{"logOffset":0}\n')
    (folder / "sources" / "0").mkdir(parents=True)
    (folder / "sources" / "0" / "0").write_text("a")
    named = spelling.format(folder)
    if spelling == "a relative path":
        named = os.path.relpath(folder, jvm.java.lang.System.getProperty("user.dir"))
        monkeypatch.chdir(tmp_path)
    place = jvm.org.apache.hadoop.fs.Path(named)
    system = place.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    assert system.exists(place), "it is no folder of Spark's"
    found = offsets_of(files_of(spark, named), 7)
    assert found == offsets_of(files_of(spark, str(folder)), 7) != ""
    assert offsets_of(files_of(spark, named), 8) == ""
    assert newest_commit(spark, named) is None
    (folder / "metadata").write_text('{"id":"q"}')
    (folder / "commits").mkdir()
    for name in ("9", "10", ".10.crc"):
        (folder / "commits" / name).touch()
    assert newest_commit(spark, named) == SourcePosition("q", 10)
    if spelling != "a relative path":
        assert offsets_of(files_without_spark(named, "s3://bucket/space", {}), 7) == found, "without Spark"


@pytest.mark.parametrize("noted", [b"", b"{x", b"[1]", b"{}", b'{"id":5}', b'{"id":null}', b"5", b"\xff\xfe"])
def test_a_damaged_note_of_the_query_is_told_with_its_file(noted: bytes, tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "metadata").write_bytes(noted)
    with pytest.raises(
        CheckpointError, match=rf"^{tmp_path}/metadata is damaged, .* put the file back from a copy, or"
    ):
        newest_commit(spark, str(tmp_path))
    with pytest.raises(CheckpointError, match=rf"^{tmp_path}/metadata is damaged"):
        query_of(files_without_spark(str(tmp_path), str(tmp_path / "space"), {}), str(tmp_path))


def test_a_folder_that_only_hadoop_finds_is_as_if_it_were_empty() -> None:
    assert files_without_spark("dbfs:/progress", "s3://bucket/space", {})("metadata") is None


def test_what_came_before_a_batch_is_known_as_long_as_all_of_it_is_kept() -> None:
    noted = {"offsets/7": 'v1\n{}\n{"logOffset":3}\n5', "sources/0/3": "a"}
    noted |= {"offsets/8": 'v1\n{}\n{"logOffset":4}\n6', "sources/0/4": "b"}
    assert offsets_before(noted.get, 8) == offsets_of(noted.get, 7) != offsets_of(noted.get, 8)
    assert offsets_before({**noted, "sources/0/3": "b"}.get, 8) != offsets_of(noted.get, 7)
    del noted["sources/0/3"]
    assert (offsets_before(noted.get, 8), offsets_before(noted.get, 0)) == ("", "")


def test_the_files_of_a_source_with_a_name_are_found_under_it() -> None:
    noted = {
        "offsets/7": 'v2\n{}\na_1:{"logOffset":3}\nb:-\n2:{"logOffset":5}',
        "sources/a_1/3": "a",
        "sources/2/5": "c",
    }
    before = offsets_before(noted.get, 8)
    assert before == offsets_of(noted.get, 7) != ""
    for name in ("sources/a_1/3", "sources/2/5"):
        assert offsets_of({**noted, name: "other"}.get, 7) != before
    noted["sources/2/5.compact"] = noted.pop("sources/2/5")
    assert offsets_of(noted.get, 7) == before


A, B, RATE = '{"logOffset":3}', '{"logOffset":5}', "40"


@pytest.mark.parametrize(
    ("uses", "logs"),
    [
        ([A, B], {"0/3": "a", "1/5": "b"}),
        ([A, A], {"0/3": "a", "0/5": "not read yet"}),
        ([A, A, B], {"0/3": "a", "1/5": "b"}),
        ([A, A, B], {"0/3": "a", "1/5": "b", "1/3": "what b has read before"}),
        ([A, B, A], {"0/3": "a", "1/5": "b", "1/3": "what b has read before"}),
        ([A, A, A], {"0/3": "a", "1/3": "another one that has read as far"}),
        ([RATE, RATE, A, A], {"1/3": "a"}),
        ([RATE, A, "41", A, B], {"1/3": "a", "3/5.compact": "b"}),
    ],
)
def test_the_log_of_a_source_that_is_used_more_than_once_is_found(uses: list[str], logs: dict[str, str]) -> None:
    noted = {"offsets/7": "\n".join(["v1", "{}", *uses]), **{f"sources/{name}": text for name, text in logs.items()}}
    found = offsets_of(noted.get, 7)
    for name, text in logs.items():
        is_read = text in ("a", "b", "another one that has read as far")
        assert (offsets_of({**noted, f"sources/{name}": "other"}.get, 7) != found) == is_read, name


def test_one_stream_of_files_may_be_two_sources(stream: DataFrame, tmp_path: Path) -> None:
    def _rows() -> list[list[Any]]:
        pipeline = Pipeline(tmp_path / "space", 2, cache=tmp_path / "cache")
        for name, condition in (("odd", "value % 2 = 1"), ("even", "value % 2 = 0")):
            found = pipeline.source(name, stream.filter(condition), key=["key", "value"], op_column=None)
            found.agg(n=count(), total=sum_("value")).materialize(f"of {name}")
        pipeline.start(checkpoint_location=tmp_path / "progress", trigger={"availableNow": True}).awaitTermination()
        return [pipeline.rows("of odd"), pipeline.rows("of even")]

    first = _rows()
    (tmp_path / "progress" / "commits" / "2").unlink()  # The last micro-batch comes once more, and is known.
    assert _rows() == first
    assert first == [[(30, 320)], [(30, 310)]]


@pytest.mark.parametrize(("version", "offset", "log"), [("v1", "", "0"), ("v2", "a:", "a")])
def test_a_batch_whose_files_are_not_known_any_more_is_refused(version: str, offset: str, log: str) -> None:
    noted = {"offsets/7": f'{version}\n{{}}\n{offset}{{"logOffset":3}}'}
    with pytest.raises(
        CheckpointError, match=rf"no sources/{log}/3, .* micro-batch 7 .*: put the file back from a copy"
    ):
        offsets_of(noted.get, 7)
    assert offsets_before(noted.get, 8) == ""


def test_an_older_checkpoint_of_spark_is_noticed(
    make_pipeline: MakePipeline, stream: DataFrame, tmp_path: Path, spark: SparkSession
) -> None:
    progress, older = tmp_path / "progress", tmp_path / "older"
    with pytest.raises(StreamingQueryException, match="lost after the publish"):
        _run(make_pipeline(), stream, progress, fail_at=1)
    shutil.copytree(progress, older)
    for folder in ("offsets", "commits", "sources/0"):
        for name in ("1", ".1.crc"):
            (older / folder / name).unlink(missing_ok=True)
    (tmp_path / "input" / "1.parquet").unlink()
    with pytest.raises(CheckpointError, match="batch 1 again, with other rows than those that epoch 2 holds"):
        _run(make_pipeline(), stream, older)
    assert make_pipeline().chain.epoch == 2


@pytest.mark.slow
def test_the_demo_survives_its_kill_and_starts_afresh(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "objectspace.spark.demo", "--location", str(tmp_path / "demo")]
    command += ["--first", "30", "--days", "15"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert re.search(r"Killed with SIGKILL after epoch \d of 4", done.stdout)
    assert re.search(r"^UA +\d,\d{3} +\d+ +\d+\.\d\d +\d+$", done.stdout, re.MULTILINE)
    assert re.search(r"^AIRTRAN|^EMBRAER", done.stdout, re.MULTILINE)
    assert "\nEQUAL: the state after the kill" in done.stdout
    assert done.returncode == 0


def test_the_demo_leaves_the_files_of_others_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    command = [sys.executable, "-m", "objectspace.spark.demo", "--location", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "holds files that are not the demo's: choose another --location" in done.stderr
    assert (tmp_path / "mine").read_text() == "precious"
