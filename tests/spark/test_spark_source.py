"""State as a DataFrame: tables, objects and key-value tables, of a space and of a file, and the change feed."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import time
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from checkpoint import CheckpointError
from checkpoint.chain import Chain, location_at
from checkpoint.tool.copying import fork_space
from objectspace import PersistedObjectSpace, SpacePart, VolatileObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.kvt import KeyValueTableConfiguration, KeyValueTableManager
from objectspace.operators import Pipeline as LocalPipeline
from objectspace.relational import Column, StateTable, TableSchema
from objectspace.spark import Operator, Pipeline
from objectspace.spark.change_feed import Part, changes
from objectspace.spark.forms import conforming
from objectspace.spark.key_values import key_value_tables
from objectspace.spark.source import ChangeReader, ObjectSpaceSource, SpaceReader
from objectspace.spark.spans import Span
from objectspace.spark.subject import Subject
from objectspace.spark.writer import Target
from tests.spark.feed_readers import FeedReaders

from .spark_helpers import QUERY_ID, SHARDS

SCHEMA = TableSchema([Column("k", "string"), Column("total", "int64")], ["k"])


def keep_totals(batches: Iterator[pa.RecordBatch], space: PersistedObjectSpace) -> None:
    """Keep the sum of each key in a table, the rows in a list, and the last value in a key-value table."""
    table, seen = StateTable(space, "totals", SCHEMA), space.get_or_create_list("seen")
    manager = KeyValueTableManager(space)
    manager.create_scope("s")
    manager.create_key_value_table("s", "last", KeyValueTableConfiguration(2))
    last = manager.open_key_value_table("s", "last")
    for batch in batches:
        for row in batch.to_pylist():
            known = table.get_row((row["key"],))
            table.insert_row((row["key"], row["value"] + (known[1] if known else 0)))
            seen.append(row["value"])
            last.put(row["key"].encode(), str(row["value"]).encode(), key_family="f")


@pytest.fixture(scope="module")
def location(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, batches: list[DataFrame]) -> str:
    """A space of three epochs, which all tests of this module read."""
    place = tmp_path_factory.mktemp("read")
    pipeline = Pipeline(place / "space", SHARDS, cache=place / "cache")
    pipeline.add(Operator("totals", ("key",), keep_totals))
    spark.sparkContext.setLocalProperty(QUERY_ID, "read")
    for number, batch in enumerate(batches):
        pipeline.run_epoch(batch, number)
    return str(place / "space")


def sums(batches: list[DataFrame]) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in (row for batch in batches for row in _rows(batch)):
        found[row.key] = found.get(row.key, 0) + row.value
    return found


@cache
def _rows(batch: DataFrame) -> list[Any]:
    return batch.collect()


def load(spark: SparkSession, path: Any, **options: Any) -> DataFrame:
    return spark.read.format("objectspace").options(**options).load(str(path))


def rows_read(collected: DataFrame) -> int:
    """Return how many rows a DataFrame got of its source when it was collected."""
    plan = collected._jdf.queryExecution().executedPlan()
    return int(plan.collectLeaves().head().metrics().apply("numOutputRows").value())


def test_a_table_of_all_shards_at_any_epoch(spark: SparkSession, location: str, batches: list[DataFrame]) -> None:
    newest = load(spark, location, table="totals")
    assert newest.schema.simpleString() == "struct<k:string,total:bigint>"
    assert newest.rdd.getNumPartitions() == SHARDS
    assert {row.k: row.total for row in newest.collect()} == sums(batches)
    assert {row.k: row.total for row in load(spark, location, table="totals", epoch=1).collect()} == sums(batches[:1])
    assert load(spark, location, table="totals", columns="total").columns == ["total"]
    assert newest.where("k = 'k3'").agg({"total": "sum"}).collect()[0][0] == sums(batches)["k3"]


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    """Spark's setting that filters go to the source."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.usefixtures("pushing")
def test_a_filter_on_the_key_decides_what_is_read(spark: SparkSession, location: str, batches: list[DataFrame]) -> None:
    totals = sums(batches)
    for condition, wanted in (
        ("k = 'k3'", {"k3"}),
        ("k > 'k3' AND total > 0", {key for key in totals if key > "k3"}),
        ("k >= 'k10' AND k < 'k4'", {key for key in totals if "k10" <= key < "k4"}),
    ):
        rows = load(spark, location, table="totals", pushdown="true").where(condition)
        assert {row.k: row.total for row in rows.collect()} == {key: totals[key] for key in wanted}
        assert rows_read(rows) == len(wanted)


@pytest.mark.usefixtures("pushing")
def test_the_filter_of_a_query_is_not_that_of_the_next(
    spark: SparkSession, location: str, batches: list[DataFrame]
) -> None:
    totals = load(spark, location, table="totals")
    assert totals.where("k = 'k3'").count() == 1
    assert totals.count() == len(sums(batches))
    assert totals.where("k = 'k3' OR total < 0").count() == 1
    assert totals.where("k = 'k3'").alias("a").join(totals.alias("b"), "k").count() == 1


def test_pushdown_without_the_setting_of_spark_is_refused(spark: SparkSession, location: str) -> None:
    with pytest.raises(PySparkException, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
        load(spark, location, table="totals", pushdown="true").collect()


@pytest.mark.usefixtures("pushing")
def test_a_data_frame_stays_at_the_epoch_of_its_load(
    spark: SparkSession, tmp_path: Path, batches: list[DataFrame], make_pipeline: Callable[..., Pipeline], query: Any
) -> None:
    pipeline, place = make_pipeline(Operator("totals", ("key",), keep_totals)), tmp_path / "space"
    pipeline.run_epoch(batches[0], 0)
    plain, pushed = load(spark, place, table="totals"), load(spark, place, table="totals", pushdown="true")
    for number in (1, 2):
        pipeline.run_epoch(batches[number], number)
        assert {row.k: row.total for row in plain.collect()} == sums(batches[:1])
        assert pushed.where("k = 'k3'").head().total == sums(batches[:1])["k3"]


def test_objects_and_key_value_tables(spark: SparkSession, location: str, batches: list[DataFrame]) -> None:
    seen = load(spark, location, object="seen")
    assert seen.count() == sum(batch.count() for batch in batches)
    assert load(spark, location, object="seen", epoch=1).count() == batches[0].count()
    last = load(spark, location, kvt="s/last").collect()
    assert {(row.family, bytes(row.key).decode()) for row in last} == {("f", key) for key in sums(batches)}
    then = load(spark, location, kvt="s/last", epoch=1).collect()
    assert {bytes(row.key).decode() for row in then} == set(sums(batches[:1]))
    assert {bytes(row.value) for row in then} != {bytes(row.value) for row in last}
    assert len({row.version for row in last if row.partition == 0}) == sum(row.partition == 0 for row in last)


@pytest.mark.parametrize("prefix", ["", "operator/"])
def test_a_key_value_table_that_was_never_written_is_empty(spark: SparkSession, tmp_path: Path, prefix: str) -> None:
    path = tmp_path / "state.db"
    with PersistedObjectSpace.open(path) as space:
        manager = KeyValueTableManager(SpacePart(space, prefix))
        manager.create_scope("s")
        manager.create_key_value_table("s", "empty", KeyValueTableConfiguration(4))
        space.checkpoint()
    assert load(spark, str(path), kvt="s/empty").collect() == []
    for absent in ("s/other", "s"):
        with pytest.raises(PySparkException, match=f"has no key-value table '{absent}'"):
            load(spark, str(path), kvt=absent).collect()


def test_a_partition_that_a_key_value_table_does_not_have_is_not_read() -> None:
    space = VolatileObjectSpace()
    manager = KeyValueTableManager(space)
    manager.create_scope("s")
    manager.create_key_value_table("s", "t", KeyValueTableConfiguration(1))
    manager.open_key_value_table("s", "t").put(b"k", b"v")
    for number in (1, 2):  # As changes of a fork may bring them, where a table of this name was created anew.
        space.create_sorted_dictionary(f"kvt/s/t/{number}", raw=True)[b"\x00\x01fk"] = "1 astray"
    assert key_value_tables(space) == {"kvt/s/t": ((0, "kvt/s/t/0"),)}


def test_the_change_feed_adds_up_to_the_table(spark: SparkSession, location: str, batches: list[DataFrame]) -> None:
    feed = spark.readStream.format("objectspace").options(table="totals", changes="true").load(location)
    query = feed.writeStream.format("memory").queryName("changes").trigger(availableNow=True).start()
    query.awaitTermination()
    net: dict[tuple[str, int], int] = {}
    for row in spark.table("changes").collect():
        net[row.k, row.total] = net.get((row.k, row.total), 0) + (1 if row.op in ("+", "U+") else -1)
    assert {key: count for key, count in net.items() if count} == dict.fromkeys(sums(batches).items(), 1)
    assert {row.epoch for row in spark.table("changes").select("epoch").distinct().collect()} == {1, 2, 3}


def test_a_store_file(spark: SparkSession, tmp_path: Path) -> None:
    with PersistedObjectSpace.open(tmp_path / "state.db") as space:
        space.create_dictionary("d", of=list).update({"a": [1], ("b", 2): [2, 3]})
        space.checkpoint()
    for path in (f"{tmp_path}/state.db", f"file:{tmp_path}/state.db"):
        rows = load(spark, path, object="d").collect()
        assert [(row.key, row.value) for row in rows] == [("a", "[1]"), ('{"$tuple":["b",2]}', "[2,3]")]
    with pytest.raises(PySparkException, match="no epoch 0"):
        load(spark, tmp_path / "state.db", object="d", epoch=0)


def test_a_feed_of_what_is_there_ends_when_it_has_given_all(
    spark: SparkSession, location: str, batches: list[DataFrame]
) -> None:
    options = {"table": "totals", "changes": "true", "maxEpochsPerTrigger": "1"}
    feed = spark.readStream.format("objectspace").options(**options).load(location)
    query = feed.writeStream.format("memory").queryName("one_by_one").trigger(availableNow=True).start()
    query.awaitTermination()
    assert {row.epoch for row in spark.table("one_by_one").select("epoch").distinct().collect()} == {1, 2, 3}


@pytest.mark.slow
def test_a_feed_whose_space_was_put_back_ends_with_an_error(spark: SparkSession, location: str, tmp_path: Path) -> None:
    space, newer = tmp_path / "space", Chain.open(location_at(location))
    followed: set[int] = set()

    def follow() -> None:
        options = {"table": "totals", "changes": "true", "maxEpochsPerTrigger": "2"}
        feed = spark.readStream.format("objectspace").options(**options).load(str(space))
        writer = feed.writeStream.foreachBatch(lambda rows, _: followed.update(row.epoch for row in rows.collect()))
        writer.option("checkpointLocation", str(tmp_path / "feed")).trigger(
            availableNow=True
        ).start().awaitTermination()

    shutil.copytree(location, space)
    follow()
    assert followed == {1, 2, 3}
    shutil.rmtree(space)
    fork_space(newer, str(space), 2, (), lambda done, total: None)
    with pytest.raises(PySparkException, match=r"comes from epoch 3: expected .* found that the newest epoch is 2"):
        follow()
    shutil.rmtree(space)
    fork_space(newer, str(space), 3, (), lambda done, total: None)
    followed.clear()
    follow()
    assert not followed


def test_sparse_arrays_and_tensors_give_their_places_and_elements(tmp_path: Path) -> None:
    with PersistedObjectSpace.open(tmp_path / "state.db") as space:
        space.create_sparse_array("sparse", default=0)[10**12] = 7
        space.create_tensor("row", 3, "float64", chunks=[2])[:] = [0.5, math.nan, 2]
        space.create_tensor("square", (2, 2), "bool")[1, 0] = True
        space.create_tensor("single", (), "uint8", fill=5)
        space.checkpoint()

    def read(name: str) -> dict[str | None, str]:
        subject = Subject.of({"path": str(tmp_path / "state.db"), "object": name})
        reader = SpaceReader(subject, subject.schema())
        rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
        return {row["key"]: row["value"] for row in rows}

    assert read("sparse") == {"1000000000000": "7"}
    assert read("row") == {"0": "0.5", "1": '{"$float":"nan"}', "2": "2.0"}
    assert read("square") == {
        '{"$tuple":[0,0]}': "false",
        '{"$tuple":[0,1]}': "false",
        '{"$tuple":[1,0]}': "true",
        '{"$tuple":[1,1]}': "false",
    }
    assert read("single") == {None: "5"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "takes one of the options table, object and kvt: name what to read"),
        (
            {"table": "totals", "object": "x"},
            "found table='totals' and object='x': give one; a reader keeps its options",
        ),
        ({"table": "nothing"}, "has no table 'nothing'"),
        ({"object": "nothing"}, "has no object 'nothing' at this epoch: its objects are .*seen"),
        ({"kvt": "s/nothing"}, "has no key-value table 's/nothing'"),
        ({"table": "totals", "columns": "k,price"}, "has no column 'price'"),
        ({"table": "totals", "columns": "k,total,k"}, "columns is k, total, k: expected each column once"),
        ({"table": "totals", "epoch": "last"}, "expected a whole number"),
        ({"table": "totals", "epoch": "-1"}, "expected a whole number from 0 on"),
        ({"table": "totals", "epcoh": "1"}, "there is no option 'epcoh': expected epoch, or one for the file system"),
        *(
            (
                {kind: name, option: "true"},
                f"the option {option} has no meaning where the {called} '{name}' is read: leave",
            )
            for kind, name, called in (("object", "seen", "object"), ("kvt", "shop/stock", "key-value table"))
            for option in ("columns", "pushdown", "changes", "maxEpochsPerTrigger")
        ),
        (
            {"table": "totals", "maxEpochsPerTrigger": "1"},
            "maxEpochsPerTrigger has no meaning where the table 'totals' is read: pass changes=true with it, or leave",
        ),
        ({"table": "totals", "changes": "true", "epoch": "1"}, "epoch has no meaning where the changes of the table"),
        ({"table": "totals", "changes": "true", "pushdown": "true"}, "pushdown has no meaning where the changes of"),
        ({"table": "totals", "changes": "yes"}, "the option changes is 'yes': expected true or false"),
        ({"table": "totals", "columns": " "}, "the option columns is empty"),
        ({"table": "totals", "operator": "other"}, "there is no operator 'other': expected the option operator"),
    ],
)
def test_bad_options(location: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(ObjectSpaceError, match=message):
        ObjectSpaceSource({"path": location, **options}).schema()


def test_a_read_without_a_location_says_so() -> None:
    with pytest.raises(ObjectSpaceError, match=r"^load\(\) lacks a location: give"):
        ObjectSpaceSource({"table": "totals"}).schema()


def test_a_read_of_several_locations_says_that_it_takes_one(spark: SparkSession, location: str) -> None:
    with pytest.raises(PySparkException, match=r"load\(\) takes one location: found \[.*,.*\]: read each by itself"):
        spark.read.format("objectspace").option("table", "totals").load([location, location])


# What Spark hands over when such a table is created without a schema of its own, and when it is read.
@pytest.mark.parametrize("options", [{"provider": "objectspace", "owner": "me", "option.table": "totals"}, {}], ids=str)
def test_a_table_of_the_catalog_is_refused_with_what_can_be_read(location: str, options: dict[str, str]) -> None:
    given = {**options, "path": location, "location": location, "table": "totals"} if options else {}
    with pytest.raises(ObjectSpaceError, match=r"table of Spark's catalog.*: use CREATE TEMPORARY VIEW name USING"):
        ObjectSpaceSource(given).reader(StructType([StructField("total", LongType())]))


def test_what_can_be_read_instead_of_a_table_of_the_catalog(spark: SparkSession, location: str) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW viewed USING objectspace OPTIONS (path '{location}', table 'totals')")
    assert spark.table("viewed").count() == load(spark, location, table="totals").count()


@pytest.mark.parametrize("kind", [{"table": "totals"}, {"object": "seen"}, {"kvt": "s/last"}], ids=str)
def test_what_is_off_without_options_may_be_put_off(location: str, kind: dict[str, str]) -> None:
    options = {"path": location, **kind}
    off = {"changes": "false", "pushdown": "False"}
    assert ObjectSpaceSource({**options, **off}).schema() == ObjectSpaceSource(options).schema()


def test_columns_that_a_schema_does_not_have_and_writes_that_are_no_streams_are_refused(location: str) -> None:
    source = ObjectSpaceSource({"path": location, "table": "totals", "columns": "k"})
    with pytest.raises(ObjectSpaceError, match="the option columns is k, and the schema of the read has total"):
        source.reader(StructType([StructField("total", LongType())]))
    with pytest.raises(ObjectSpaceError, match="takes the rows of a stream"):
        source.writer(source.schema(), overwrite=False)


@pytest.mark.parametrize(
    "options", [{"table": "totals"}, {"table": "totals", "changes": "true"}, {"object": "seen"}], ids=str
)
@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "schema of the read is empty: expected columns"),
        (("op", "k", "op"), "read has op, k, op: expected each column once"),
    ],
)
def test_a_schema_of_no_column_or_of_one_twice_is_refused(
    location: str, options: dict[str, str], names: tuple[str, ...], message: str
) -> None:
    source = ObjectSpaceSource({"path": location, **options})
    read = source.streamReader if "changes" in options else source.reader
    with pytest.raises(ObjectSpaceError, match=message):
        read(StructType([StructField(name, LongType()) for name in names]))


def test_bad_options_are_told_through_spark(spark: SparkSession, location: str) -> None:
    with pytest.raises(PySparkException, match="there is no option 'epcoh': expected epoch"):
        load(spark, location, table="totals", epcoh="1").collect()


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    """Return a store file with a table of types that Spark has in forms of its own."""
    columns = [Column("k", "string"), Column("at", "time"), Column("d", "decimal"), Column("n", "int64", nullable=True)]
    with PersistedObjectSpace.open(tmp_path / "typed.db") as space:
        table = StateTable(space, "t", TableSchema(columns, ["k"]))
        table.insert_row(("a", time(12, 30, 0, 5), Decimal("0.12345678901234567891"), 1))
        table.insert_row(("b", time(1), Decimal(2), None))
        space.checkpoint()
    return tmp_path / "typed.db"


def test_times_and_long_decimals_are_read(spark: SparkSession, typed: Path) -> None:
    for pushdown in ("false", "true"):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
        found = load(spark, typed, table="t", pushdown=pushdown).where("k = 'a'").collect()
        assert [tuple(row) for row in found] == [("a", time(12, 30, 0, 5), Decimal("0.123456789012345679"), 1)]
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_schema_that_is_given_says_which_columns_and_types(spark: SparkSession, typed: Path) -> None:
    reader = spark.read.format("objectspace").options(table="t", epoch=1)
    found = reader.schema("n int, k string").load(str(typed)).orderBy("k").collect()
    assert [tuple(row) for row in found] == [(1, "a"), (None, "b")]
    with pytest.raises(PySparkException, match="no column 'x'"):
        reader.schema("k string, x long").load(str(typed)).collect()


def test_a_schema_that_does_not_fit_is_refused(typed: Path) -> None:
    for field, message in [
        (StructField("x", LongType()), "no column 'x'"),
        (StructField("k", LongType()), "column 'k': it is string, and the schema of the read says int64"),
        (StructField("n", LongType(), nullable=False), "column 'n': it holds NULL"),
    ]:
        reader = SpaceReader(Subject.of({"path": str(typed), "table": "t"}), StructType([field]))
        with pytest.raises(ObjectSpaceError, match=message):
            list(reader.read(reader.partitions()[0]))


@pytest.mark.usefixtures("spark")  # By which a schema is parsed.
@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            "s struct<aa:long,b:int>",
            r"^table 't', column 's': it has no field 'aa': the schema of the read may name a, b$",
        ),
        ("l array<struct<z:struct<y:long>>>", r"^table 't', column 'l', field 'z': it has no field 'y': .* name x$"),
        ("s struct<b:int>, l array<struct<z:struct<x:int>>>", None),
    ],
)
def test_a_field_that_a_struct_does_not_have_is_refused(wanted: str, message: str | None) -> None:
    batch = pa.record_batch({"s": [{"a": 1, "b": 2}], "l": [[{"z": {"x": 3}}]]})
    conformed = conforming(StructType.fromDDL(wanted), "table 't'")
    if message is None:
        assert conformed(batch).to_pylist() == [{"s": {"b": 2}, "l": [{"z": {"x": 3}}]}]
    else:
        with pytest.raises(ObjectSpaceError, match=message):
            conformed(batch)


def test_the_feed_of_a_file_passes_over_epochs_that_it_has_not(spark: SparkSession, tmp_path: Path) -> None:
    with PersistedObjectSpace.open(tmp_path / "state.db") as space:
        table = StateTable(space, "t", SCHEMA)
        for epoch in (7, 10):
            table.insert_row((f"k{epoch}", epoch))
            space.checkpoint(epoch=epoch)
    subject = Subject.of({"path": str(tmp_path / "state.db"), "table": "t"}).feeding_from(10)
    batches = changes(subject, Part(0, Span(1, 10, 1, True)))
    found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert found == [("+", 7, "k7", 7), ("+", 10, "k10", 10)]


def test_a_trigger_takes_so_many_epochs_of_a_file_whatever_gaps_they_have(tmp_path: Path) -> None:
    with PersistedObjectSpace.open(tmp_path / "state.db") as space:
        StateTable(space, "t", SCHEMA)
        for epoch in (7, 10, 1_000_000, 1_000_001, 10**12):
            space.checkpoint(epoch=epoch)
    reader = ChangeReader(Subject.of({"path": str(tmp_path / "state.db"), "table": "t"}), StructType(), 2)
    offsets = [reader.initialOffset()]
    while (following := reader.latestOffset(offsets[-1], None)) != offsets[-1]:
        offsets.append(following)
    assert [offset["epoch"] for offset in offsets] == [0, 10, 1_000_001, 10**12]


def test_a_feed_stays_with_its_table_when_another_one_gets_the_name_that_was_asked_for(tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "state.db"), "table": "t", "changes": "true"}
    with PersistedObjectSpace.open(tmp_path / "state.db") as space:
        table = StateTable(space, "p/t/table", SCHEMA)
        space.checkpoint()
        source = ObjectSpaceSource(options)
        reader = FeedReaders(source)
        StateTable(space, "t", SCHEMA).insert_row(("other", 1))
        table.insert_row(("k", 2))
        space.checkpoint()
        parts = reader.partitions({"epoch": 1}, {"epoch": 2})
        rows = [tuple(row.values()) for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert rows == [("+", 2, "k", 2)]


def test_a_column_that_spark_takes_for_one_of_the_feed_is_refused(tmp_path: Path) -> None:
    with PersistedObjectSpace.open(tmp_path / "state.db") as space:
        StateTable(space, "t", TableSchema([Column("k", "string"), Column("Epoch", "int64")], ["k"]))
        space.checkpoint()
    source = ObjectSpaceSource({"path": str(tmp_path / "state.db"), "table": "t", "changes": "true"})
    with pytest.raises(ObjectSpaceError, match="has a column 'Epoch', a name that changes use for one of their own"):
        source.schema()


def test_a_feed_without_op_in_its_schema_is_refused(location: str) -> None:
    source = ObjectSpaceSource({"path": location, "table": "totals", "changes": "true"})
    with pytest.raises(ObjectSpaceError, match="has k, total: expected op besides"):
        source.streamReader(StructType().add("k", "string").add("total", "long"))


@pytest.mark.slow
def test_a_feed_finds_the_columns_of_a_schema_of_its_own_by_their_names(spark: SparkSession, location: str) -> None:
    def read(schema: str) -> list[Any]:
        found: list[Any] = []
        feed = spark.readStream.format("objectspace").schema(schema).options(table="totals", changes="true")
        query = feed.load(location).writeStream.foreachBatch(lambda rows, _: found.extend(rows.collect()))
        query.trigger(availableNow=True).start().awaitTermination()
        return found

    whole = read("op string, epoch long, k string, total long")
    assert {row.epoch for row in whole} == {1, 2, 3}
    assert Counter(read("total long, op string")) == Counter((row.total, row.op) for row in whole)
    with pytest.raises(PySparkException, match="column 'k': it is string, and the schema of the read says int64"):
        read("op string, k long")


class Keeps:
    """An operator of a user, which keeps one entry."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def process(self, batch: Any, space: Any) -> list[Any]:
        manager = KeyValueTableManager(space)
        manager.create_scope("s")
        for name in ("t", "empty"):
            manager.create_key_value_table("s", name, KeyValueTableConfiguration(1))
        manager.open_key_value_table("s", "t").put(b"key", self._value)
        return []


def test_key_value_tables_of_one_name_are_told_apart_by_their_operators(tmp_path: Path) -> None:
    pipeline = LocalPipeline()
    source = pipeline.source("source", {"id": "int64"}, key=["id"])
    for name in ("one", "two"):
        kept = source.apply(Keeps(name.encode()), name, schema={"id": "int64"}, key=["id"])
        kept.sink(f"{name} out", lambda epoch, changes: None)
    pipeline.run_local([{"source": [(1,)]}], tmp_path / "state.db").close()

    def read(table: str, **options: str) -> list[bytes]:
        source = ObjectSpaceSource({"path": str(tmp_path / "state.db"), "kvt": table, **options})
        reader: Any = source.reader(source.schema())
        return [
            row["value"] for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()
        ]

    assert read("s/t", operator="one") == read("one/kvt/s/t") == [b"one"]
    assert read("s/t", operator="two") == [b"two"]
    assert read("two/kvt/s/empty") == []
    for table in ("s/t", "s/empty"):
        with pytest.raises(ObjectSpaceError, match=f"one/kvt/{table}, two/kvt/{table}: give the whole name, or its op"):
            read(table)
    with pytest.raises(ObjectSpaceError, match="has no key-value table 's/t'"):
        read("s/t", operator="three")


def test_what_several_operators_of_a_file_have_is_read_of_the_one_that_is_named(tmp_path: Path) -> None:
    with PersistedObjectSpace.open(tmp_path / "state.db") as space:
        for name in ("one", "two"):
            space.create_value(f"{name}/total", name)
            StateTable(space, f"{name}/t/table", SCHEMA).insert_row((name, 1))
        space.checkpoint()
        path = str(tmp_path / "state.db")
        for kind, name, stored in (("object", "total", "total"), ("table", "t", "t/table")):
            found = Subject.of({"path": path, kind: name, "operator": "two"})
            assert (found.table_in(space) if kind == "table" else found.object_in(space)) == f"two/{stored}"
            with pytest.raises(
                ObjectSpaceError, match=f"that are called '{name}': one/{stored}, two/{stored}: give the"
            ):
                Subject.of({"path": path, kind: name}).schema()
            with pytest.raises(ObjectSpaceError, match=f"has no {kind} '{name}'"):
                Subject.of({"path": path, kind: name, "operator": "three"}).schema()


def keeping_all_kinds(operator: str) -> Operator:
    def keep(batches: Iterator[pa.RecordBatch], space: PersistedObjectSpace) -> None:
        rows, part = sum(map(len, batches)), SpacePart(space, f"{operator}/")
        Keeps(operator.encode()).process(None, part)
        part.get_or_create_list("seen").append(rows)
        StateTable(space, f"{operator}/table", SCHEMA).insert_row((operator, rows))

    return Operator(operator, ("key",), keep)


def test_a_whole_name_tells_its_operator(spark: SparkSession, tmp_path: Path, batches: list[DataFrame]) -> None:
    pipeline = Pipeline(tmp_path / "space", 1, cache=tmp_path / "cache")
    for operator in ("one", "two", "s"):
        pipeline.add(keeping_all_kinds(operator))
    spark.sparkContext.setLocalProperty(QUERY_ID, "whole names")
    pipeline.run_epoch(batches[0], 0)

    def operators(**options: str) -> list[Any]:
        last = load(spark, tmp_path / "space", **options).collect()[-1]
        return [last[-1], last[0]]

    count = len(_rows(batches[0]))
    assert operators(table="two/table") == operators(table="two") == [count, "two"]
    assert operators(object="one/seen") == [str(count), 0]
    assert operators(kvt="two/kvt/s/t") == operators(kvt="s/t", operator="two") == [b"two", 0]
    for kind, name in (("table", "three/table"), ("kvt", "s/t"), ("object", "seen")):
        with pytest.raises(
            ObjectSpaceError, match=f"no operator '{name}': expected .* or begins with it: there are one"
        ):
            Subject.of({"path": str(tmp_path / "space"), kind: name}).schema()


def test_a_url_with_one_slash_is_no_path() -> None:
    options = {"path": "dbfs:/x", "table": "t"}
    for made in (lambda: Subject.of(options), lambda: Target.of({**options, "key": "k"})):
        with pytest.raises(CheckpointError, match="'dbfs:/x' has one slash after the protocol 'dbfs'"):
            made()


@pytest.mark.parametrize(
    ("spelling", "meant"),
    [
        ("state/x", "{}/state/x"),
        ("file:state/x", "{}/state/x"),
        ("file:{}/x", "{}/x"),
        ("file://{}/x", "{}/x"),
        ("s3://bucket/x", "s3://bucket/x"),
    ],
)
def test_a_path_is_that_of_who_names_it_however_it_is_spelt(
    spelling: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = {"path": spelling.format(tmp_path), "table": "t"}
    assert Subject.of(options).path == Target.of({**options, "key": "k"}).path == meant.format(tmp_path)
