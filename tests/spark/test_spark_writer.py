"""A stream that is written into a table: exactly once, over restarts."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from checkpoint import CheckpointError, FencedError
from checkpoint.chain import Chain, location_at
from checkpoint.chain.collect import MANIFESTS, RUNS, file_name
from checkpoint.chain.founding import SPACE_FILE
from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.operators import PipelineChangedError
from objectspace.relational import Column, SchemaError, StateTable, StorageTable, TableSchema
from objectspace.spark import Pipeline, shard_expression
from objectspace.spark.source import ObjectSpaceSource
from objectspace.spark.subject import Subject
from objectspace.spark.writer import TableWriter, Target, Written
from tests.patience import wait_until

SCHEMA = "op string, k string, v long"


def add_file(folder: Path, number: int, rows: list[tuple[str, str, int]]) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / f"{number}.parquet"
    pq.write_table(pa.table({name: [row[place] for row in rows] for place, name in enumerate(("op", "k", "v"))}), path)
    os.utime(path, (number + 1, number + 1))


def add_instants(path: Path, seconds: list[int]) -> None:
    path.parent.mkdir(exist_ok=True)
    instants = pa.array([second * 10**6 for second in seconds], pa.timestamp("us", "UTC"))
    keys = [f"k{second}" for second in seconds]
    pq.write_table(pa.table({"op": ["+"] * len(keys), "k": keys, "at": instants}), path)


def write(stream: DataFrame, root: Path, query: str = "ck", **options: str) -> None:
    given = {"path": str(root / "space"), "table": "t", "key": "k", "op": "op", "shards": "2", **options}
    named = stream.writeStream.format("objectspace").options(**given).queryName(root.name)
    writer = named.option("checkpointLocation", str(root / query))
    writer.trigger(availableNow=True).start().awaitTermination()


def kept(spark: SparkSession, root: Path, table: str = "t") -> list[tuple[str, int]]:
    return sorted(map(tuple, spark.read.format("objectspace").load(str(root / "space"), table=table).collect()))


def written(monkeypatch: pytest.MonkeyPatch, writer: TableWriter, number: int, batch: pa.RecordBatch) -> Written:
    """Return what the one task of a micro-batch of the query ``q`` says when it has written."""
    place = {"sql.streaming.queryId": "q", "streaming.sql.batchId": str(number)}
    context = SimpleNamespace(partitionId=lambda: 0, getLocalProperty=place.get)
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    message = writer.write(iter([batch]))
    assert isinstance(message, Written)
    return message


def commit(monkeypatch: pytest.MonkeyPatch, writer: TableWriter, number: int, batch: pa.RecordBatch) -> None:
    """Commit a micro-batch of the query ``q`` as Spark does, with one task."""
    writer.commit([written(monkeypatch, writer, number, batch)], number)


def test_a_stream_is_kept_as_a_table_exactly_once(spark: SparkSession, tmp_path: Path) -> None:
    add_file(tmp_path / "in", 0, [("+", f"k{n}", n) for n in range(9)])
    stream = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    routed = stream.repartitionById(2, shard_expression(stream.schema, ["k"], 2))
    write(routed, tmp_path)
    assert kept(spark, tmp_path) == [(f"k{n}", n) for n in range(9)]
    add_file(tmp_path / "in", 1, [("U-", "k1", 1), ("U+", "k1", 11), ("-", "k2", 2), ("+", "x", 7)])
    write(routed, tmp_path)
    assert kept(spark, tmp_path) == [("k0", 0), ("k1", 11), *((f"k{n}", n) for n in range(3, 9)), ("x", 7)]
    for commit in (tmp_path / "ck" / "commits").glob("*1*"):
        commit.unlink()  # As after a crash between the manifest and Spark's own note: the micro-batch comes again.
    write(routed, tmp_path)
    assert Chain.open(location_at(tmp_path / "space")).epoch == 2
    with pytest.raises(StreamingQueryException, match=r"repartitionById\(2, shard_expression"):
        write(stream.repartition(2), tmp_path / "other")
    assert not (tmp_path / "other" / "space" / "manifest").exists()


def test_a_written_stream_keeps_some_epochs_and_lets_go_of_the_others(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(4):
        add_file(tmp_path / "in", number, [("+", f"k{number}", number)])
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    write(stream.repartitionById(2, shard_expression(stream.schema, ["k"], 2)), tmp_path, retainEpochs="2")
    location = location_at(tmp_path / "space")
    wait_until(lambda: Chain.open(location).first_epoch >= 3, "the collection")
    chain = Chain.open(location)
    assert (chain.first_epoch, chain.epoch) == (3, 4)
    assert kept(spark, tmp_path) == [(f"k{n}", n) for n in range(4)]
    with pytest.raises(StreamingQueryException, match="retainEpochs is '0': expected a number of at least 1"):
        write(stream, tmp_path / "other", retainEpochs="0")

    def planned(**options: str) -> None:
        given = {"path": str(tmp_path / "another"), "table": "t", "key": "k", "op": "op", "shards": "2", **options}
        ObjectSpaceSource(given).streamWriter(stream.schema, overwrite=False)

    with pytest.raises(ObjectSpaceError, match="option op is 'ops': expected one of the columns op, k, v"):
        planned(op="ops")
    with pytest.raises(ObjectSpaceError, match="there is no option 'retainEpoch': expected retainEpochs"):
        planned(retainEpoch="2")
    with pytest.raises(ObjectSpaceError, match=r"takes the option path: found none; toTable\(\) cannot be used"):
        planned(path="")


@pytest.mark.slow
def test_the_epoch_of_a_change_feed_is_refused_where_rows_are_taken_back(spark: SparkSession, tmp_path: Path) -> None:
    with PersistedObjectSpace.open(tmp_path / "state.db") as space:
        StateTable(space, "t", TableSchema([Column("k", "string"), Column("v", "int64")], ["k"])).insert_row(("a", 1))
        space.checkpoint()
    feed = spark.readStream.format("objectspace").load(str(tmp_path / "state.db"), table="t", changes="true")
    names = spark.createDataFrame([("a", "b")], "k string, name string")
    with pytest.raises(
        StreamingQueryException, match=r"table 't': column 'epoch' is the epoch of a change feed.*op='op'"
    ):
        write(feed.repartition(1), tmp_path, shards="1")
    assert not (tmp_path / "space").exists()
    pipeline = Pipeline(tmp_path / "other", 1)
    for number, marked in enumerate(
        [feed, feed.join(names, "k"), feed.where("v > 0").withColumnRenamed("epoch", "at")]
    ):
        with pytest.raises(
            SchemaError, match=rf"source 's{number}': column '(epoch|at)' is the epoch of a change feed"
        ):
            pipeline.source(f"s{number}", marked, key=["k"], op_column="op")
        pipeline.source(f"log{number}", marked.withColumnRenamed("op", "what"))  # Each change as a row of its own.
    own = feed.select("op", "k", sf.col("epoch").alias("w", metadata={"objectspace": "own"}), sf.lit(7).alias("epoch"))
    own = own.withColumnRenamed("w", "v")
    pipeline.source("own", own, key=["k"], op_column="op")
    write(own.repartition(1), tmp_path, query="own", shards="1")
    [row] = spark.read.format("objectspace").load(str(tmp_path / "space"), table="t").collect()
    assert row.asDict() == {"k": "a", "v": 1, "epoch": 7}


def test_an_instant_is_kept_in_any_time_zone_and_one_after_the_last_year_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    add_instants(tmp_path / "in" / "0.parquet", [-62_135_596_800, 253_402_300_799])
    stream = spark.readStream.schema("op string, k string, at timestamp").parquet(str(tmp_path / "in"))
    routed = stream.repartitionById(2, shard_expression(stream.schema, ["k"], 2))
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        write(routed, tmp_path)
        add_instants(tmp_path / "in" / "1.parquet", [253_402_300_800])
        with pytest.raises(StreamingQueryException, match=r"column 'at': 10000-01-01 00:00:00.000000Z is out of range"):
            write(routed, tmp_path)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    found = spark.read.format("objectspace").load(str(tmp_path / "space"), table="t").selectExpr("unix_seconds(at)")
    assert sorted(second for (second,) in found.collect()) == [-62_135_596_800, 253_402_300_799]


def test_an_older_copy_of_the_checkpoint_of_a_stream_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(3):
        add_file(tmp_path / "in", number, [("+", f"k{number}", number)])
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    routed = stream.repartitionById(2, shard_expression(stream.schema, ["k"], 2))
    write(routed, tmp_path)
    for folder in ("commits", "offsets"):
        for number in (1, 2):
            for file in (tmp_path / "ck" / folder).glob(f"*{number}*"):
                file.unlink()
    with pytest.raises(StreamingQueryException, match="comes with batch 1 again, and the last one committed here is 2"):
        write(routed, tmp_path)
    assert kept(spark, tmp_path) == [(f"k{n}", n) for n in range(3)]


def test_the_last_batch_of_a_stream_that_comes_again_with_other_rows_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number in range(2):
        add_file(tmp_path / "in", number, [("+", f"k{number}", number)])
        stream = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
        routed = stream.repartitionById(2, shard_expression(stream.schema, ["k"], 2))
        write(routed, tmp_path)
    for folder in ("commits", "offsets"):
        for file in (tmp_path / "ck" / folder).glob("*1*"):
            file.unlink()  # As after a loss of power.
    add_file(tmp_path / "in", 2, [("+", "k2", 2)])
    with pytest.raises(StreamingQueryException, match="batch 1 again, with other rows than those that epoch 2 holds"):
        write(routed, tmp_path)
    assert kept(spark, tmp_path) == [("k0", 0), ("k1", 1)]


@pytest.mark.slow
def test_a_stream_that_has_fed_another_table_is_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    stream = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    routed = stream.repartitionById(2, shard_expression(stream.schema, ["k"], 2))
    location = location_at(tmp_path / "space")
    for number in range(2):
        add_file(tmp_path / "in", number, [("+", f"k{number}", number)])
        write(routed, tmp_path)
        write(routed, tmp_path, "another", table="other")  # Its epochs lie between.
    add_file(tmp_path / "in", 2, [("+", "k2", 2)])
    saved = location.names(RUNS)
    for query, table, found in (("ck", "u", "t, found u"), ("another", "t", "other, found t")):
        with pytest.raises(StreamingQueryException, match=f"the query has fed the operators {found}: one that is left"):
            write(routed, tmp_path, query, table=table)
    assert location.names(RUNS) == saved
    write(routed, tmp_path)
    write(routed, tmp_path, "another", table="other")
    for table in ("t", "other"):
        assert kept(spark, tmp_path, table) == [(f"k{n}", n) for n in range(3)]


def test_a_stream_whose_checkpoint_is_not_known_is_held_to_its_table_by_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OBJECTSPACE_CACHE", str(tmp_path / "cache"))
    options = {"path": str(tmp_path / "space"), "key": "k", "shards": "1"}
    rows, batch = StructType().add("k", "string"), pa.record_batch({"k": ["a"]})
    one, other = (TableWriter(Target.of({**options, "table": table}), rows) for table in ("t", "u"))
    commit(monkeypatch, one, 0, batch)
    for number in (0, 1):
        with pytest.raises(PipelineChangedError, match="the query has fed the operators t, found u: one that is left"):
            commit(monkeypatch, other, number, batch)
    assert Chain.open(location_at(tmp_path / "space")).epoch == 1


@pytest.mark.parametrize("how", ["by a copy that went on", "by one that was made anew"])
def test_a_space_that_is_replaced_while_the_tasks_write_is_noticed_by_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It has as many epochs, and lacks what the tasks have built upon."""
    monkeypatch.setenv("OBJECTSPACE_CACHE", str(tmp_path / "cache"))

    def fed(name: str, number: int, key: str) -> None:
        commit(monkeypatch, writer(name), number, pa.record_batch({"k": [key]}))

    def writer(name: str) -> TableWriter:
        options = {"path": str(tmp_path / name), "key": "k", "table": "t", "shards": "1"}
        return TableWriter(Target.of(options), StructType().add("k", "string"))

    fed("space", 0, "a")
    if how == "by a copy that went on":
        shutil.copytree(tmp_path / "space", tmp_path / "other")
    else:
        fed("other", 0, "a")
    fed("space", 1, "b")
    fed("other", 1, "c")
    message = written(monkeypatch, writer("space"), 2, pa.record_batch({"k": ["d"]}))
    shutil.move(tmp_path / "space", tmp_path / "away")
    shutil.move(tmp_path / "other", tmp_path / "space")
    beside = written(monkeypatch, writer("space"), 2, pa.record_batch({"k": ["d"]}))
    for messages in ([message], [beside, message], [message, beside]):
        with pytest.raises(FencedError, match=r"built upon epoch 2 with the mark .* found .* was replaced meanwhile"):
            writer("space").commit(messages, 2)
    assert Chain.open(location_at(tmp_path / "space")).epoch == 2
    writer("space").commit([beside], 2)


def test_a_commit_founds_no_space_in_the_place_of_one_that_was_removed(spark: SparkSession, tmp_path: Path) -> None:
    add_file(tmp_path / "in", 0, [("+", "k0", 0)])
    stream = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    routed = stream.repartitionById(2, shard_expression(stream.schema, ["k"], 2))
    founding = tmp_path / "space" / SPACE_FILE

    def removing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        founding.unlink(missing_ok=True)
        yield from batches

    with pytest.raises(StreamingQueryException, match=r"no space here: expected a file space\.json"):
        write(routed.mapInArrow(removing, stream.schema), tmp_path)
    assert not founding.exists()


def test_only_the_commit_says_what_is_wrong_with_a_space_since_its_tasks_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what is raised before the commit is asked for, and again before the abort is, Spark says nothing."""
    monkeypatch.setenv("OBJECTSPACE_CACHE", str(tmp_path / "cache"))
    source = ObjectSpaceSource({"path": str(tmp_path / "space"), "key": "k", "table": "t", "shards": "1"})
    rows = StructType().add("k", "string")
    planned = source.streamWriter(rows, overwrite=False)
    assert isinstance(planned, TableWriter)
    message = written(monkeypatch, pickle.loads(pickle.dumps(planned)), 0, pa.record_batch({"k": ["a"]}))
    (tmp_path / "space" / SPACE_FILE).write_text("{}")
    with pytest.raises(CheckpointError, match=SPACE_FILE):
        source.streamWriter(rows, overwrite=False)
    committing = pickle.loads(pickle.dumps(source)).streamWriter(rows, overwrite=False)
    with pytest.raises(CheckpointError, match=SPACE_FILE):
        committing.commit([message], 0)
    committing.abort([message], 0)


def test_a_stream_whose_table_was_not_noted_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    add_file(tmp_path / "in", 0, [("+", "k0", 0)])
    stream = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    routed = stream.repartitionById(2, shard_expression(stream.schema, ["k"], 2))
    write(routed, tmp_path)
    location, name = location_at(tmp_path / "space"), file_name(MANIFESTS, 1)
    before = Chain.open(location).manifest(1)
    location.write(name, replace(before, metrics={"rows": 1}).to_json())  # As earlier versions have left it.
    for number in (1, 2):
        add_file(tmp_path / "in", number, [("+", f"k{number}", number)])
        write(routed, tmp_path)
    assert kept(spark, tmp_path) == [(f"k{n}", n) for n in range(3)]
    add_file(tmp_path / "in", 3, [("+", "k3", 3)])
    with pytest.raises(StreamingQueryException, match="has fed the operators t, found u"):
        write(routed, tmp_path, table="u")


def test_the_checkpoint_of_a_stream_is_looked_at_where_it_can_be(tmp_path: Path) -> None:
    options = {"path": "s3://bucket/space", "table": "t", "key": "k"}
    noted = location_at("memory://ck")
    noted.write("offsets/3", b"v1\n{}\n7")
    for place, space in (("memory://ck", "memory://space"), ("memory://ck", "s3://bucket"), ("", "memory://space")):
        known = Target.of({**options, "path": space, "checkpointLocation": place}).position("q", 3).offsets
        assert bool(known) == (place == "memory://ck" and space == "memory://space")


@pytest.mark.parametrize("turn", [1, -1])
def test_the_row_with_the_greatest_version_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn: int) -> None:
    monkeypatch.setenv("OBJECTSPACE_CACHE", str(tmp_path / "cache"))
    options = {"path": str(tmp_path / "space"), "table": "t"}
    target = Target.of({**options, "key": "k", "op": "op", "version": "at, v", "shards": "1"})
    rows = StructType().add("op", "string").add("k", "string").add("at", "long").add("v", "long")
    batches = [
        ([("a", 9, 1), ("a", 10, 2), ("a", 10, 1), ("b", None, 3), ("c", 1, 1)], "+"),
        ([("a", 9, 5), ("b", 0, 1), ("c", 1, 1), ("d", 1, 1)], "+"),
        ([("d", 0, 0)], "-"),
    ]
    for number, (values, op) in enumerate(batches):
        columns = [[op] * len(values), *map(list, zip(*values[::turn], strict=True))]
        batch = pa.record_batch(columns, pa.schema({"op": "string", "k": "string", "at": "int64", "v": "int64"}))
        commit(monkeypatch, TableWriter(target, rows), number, batch)
    with Subject.of(options).open(0) as store:
        assert list(StorageTable(store, "t/table").scan()) == [("a", 10, 2), ("b", 0, 1), ("c", 1, 1)]
    with pytest.raises(ObjectSpaceError, match="option version is 'op': expected some of the columns k, at, v"):
        TableWriter(Target.of({**options, "key": "k", "op": "op", "version": "op"}), rows)


def test_a_table_has_no_name_that_belongs_to_the_library(tmp_path: Path) -> None:
    with pytest.raises(ObjectSpaceError, match=r"the option table is '\$x': such names belong to the library"):
        Target.of({"path": str(tmp_path / "space"), "table": "$x", "key": "k"})
