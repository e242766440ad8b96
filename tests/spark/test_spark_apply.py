"""Operators of users in built pipelines: divided by their key over the shards, and divided anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from checkpoint.chain import SourcePosition
from objectspace import ObjectSpace, PersistedObjectSpace, operators
from objectspace.errors import ObjectSpaceError
from objectspace.kvt import KeyValueTableConfiguration, KeyValueTableManager
from objectspace.operators import Operator, col
from objectspace.relational import Chunk, StateTable, TableSchema
from objectspace.spark import EmbeddedPipeline, Pipeline, TaskFailedError, rescale
from objectspace.spark.epochs import Epochs
from tests.operators.pipeline_trees import EDITS, SCHEMA, World
from tests.operators.processors import expected, greatest

from .drivers import Driver, driver_of, micro_batch
from .frames import Frames

ROWS = {"a": [("+", (n, "wxyz"[n % 4], n, 0)) for n in range(12)], "b": []}
MORE = {"a": [("+", (n, "wxyz"[n % 4], n, 0)) for n in range(12, 16)], "b": []}


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> Frames:
    """The stand-in for Spark."""
    return Frames(Random(3)).installed(monkeypatch)


def step(driver: Driver, frames: Frames, number: int, changes: Any) -> None:
    made = driver.epochs().run(micro_batch(frames, changes), SourcePosition("q", number))  # type: ignore[arg-type]
    assert made is not None


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(EDITS, min_size=1, max_size=4), st.randoms(use_true_random=False))
@pytest.mark.slow
def test_retried_tasks_and_other_shards_change_nothing(epochs: list[Any], random: Random) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        frames, world, shards = Frames(random).installed(patch), World(), random.randint(1, 4)
        for number, edits in enumerate(epochs):
            if number and random.random() < 0.5:
                shards = random.randint(1, 4)
                rescale(Path(folder) / "space", shards)
            driver, streams = driver_of(Path(folder), shards)
            greatest(streams["a"])
            step(driver, frames, number, world.change(edits))
            assert (Counter(driver.rows("found")), Counter(driver.rows("counted"))) == expected(world)


def test_each_shard_has_the_keys_that_are_its_own(frames: Frames, tmp_path: Path) -> None:
    driver, streams = driver_of(tmp_path, 3)
    greatest(streams["a"])
    step(driver, frames, 0, ROWS)
    held = []
    for shard in range(3):
        with driver.read("greatest", shard) as space:
            held.append(list(space.get_dictionary("greatest/values")) if "greatest/values" in space else [])
    assert sorted(key for keys in held for key in keys) == ["w", "x", "y", "z"]
    assert sum(map(bool, held)) > 1


class Lost(Exception):
    """The driver dies here."""


def test_what_a_driver_did_not_publish_is_made_again(
    frames: Frames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: Any) -> None:
        raise Lost

    world, told = World(), Counter[Any]()
    for number, edits in enumerate([[("a", n, ("xy"[n % 2], n, 0)) for n in range(6)], [("a", 5, None)]]):
        changes = world.change(edits)
        for is_lost in (True, False):
            driver, streams = driver_of(tmp_path, 2)
            greatest(streams["a"]).sink("log", lambda epoch, chunk: told.update((epoch, *change) for change in chunk))
            with monkeypatch.context() as patch:
                patch.setattr(Epochs, "publish", dies if is_lost else Epochs.publish)
                with pytest.raises(Lost) if is_lost else nullcontext():
                    step(driver, frames, number, changes)
        assert Counter(driver.rows("found")) == expected(world)[0]
    assert told == {
        (1, "+", ("x", 4, 3)): 1,
        (1, "+", ("y", 5, 3)): 1,
        (2, "U-", ("y", 5, 3)): 1,
        (2, "U+", ("y", 3, 2)): 1,
    }


class Firsts(Operator):
    """The first row of each key, in a table of its own; it counts the rows of each key in a dictionary."""

    def __init__(self, schema: TableSchema, by: str = "k") -> None:
        super().__init__()
        self._schema, self._place, self._kept = schema, schema.place_of(by), TableSchema(schema.columns, [by])

    @property
    def schema(self) -> TableSchema:
        return self._schema

    def state(self) -> list[tuple[str, TableSchema]]:
        return [("firsts", self._kept)]

    def open(self, space: ObjectSpace, name: str) -> None:
        super().open(space, name)
        self._counts = space.get_or_create_dictionary(f"{name}/counts")

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        found = []
        for row in sorted(chunk.values):
            key = row[self._place]
            self._counts[key] = self._counts.get(key, 0) + 1
            if self._counts[key] == 1:
                self._tables["firsts"].insert_row(row)
                found.append(row)
        return [Chunk(self._schema, ["+"] * len(found), found)] if found else []


def test_an_operator_with_a_key_is_divided_and_divided_anew(frames: Frames, tmp_path: Path) -> None:
    shards = {0: 2, 1: 3, 2: 1, 3: 4}
    for number, changes in enumerate((ROWS, MORE, MORE, MORE)):
        if number:
            rescale(tmp_path / "space", shards[number])
        driver, streams = driver_of(tmp_path, shards[number])
        streams["a"].through(Firsts, "firsts", key="k").materialize("found")
        moved = {"a": [(op, (row[0] + 4 * number, *row[1:])) for op, row in changes["a"]], "b": []}
        step(driver, frames, number, moved)
        stage = driver.epochs().stages.stages[0]
        assert stage.tasks == shards[number]
    assert sorted(driver.rows("found")) == [(n, "wxyz"[n], n, 0) for n in range(4)]
    counts: Counter[str] = Counter()
    for shard in range(4):
        with driver.read("firsts", shard) as space:
            mine = space.get_dictionary("firsts/counts").copy()
            assert not set(mine) & set(counts)
            counts.update(mine)
    assert counts == dict.fromkeys("wxyz", 3 + 3)


def test_without_a_key_one_task_sees_all_rows(frames: Frames, tmp_path: Path) -> None:
    driver, streams = driver_of(tmp_path, 3)
    streams["a"].through(Firsts, "firsts").materialize("found")
    step(driver, frames, 0, ROWS)
    assert driver.epochs().stages.stages[0].tasks == 1
    rescale(tmp_path / "space", 2)
    again, streams = driver_of(tmp_path, 2)
    streams["a"].through(Firsts, "firsts").materialize("found")
    step(again, frames, 1, MORE)
    assert len(again.rows("found")) == 4


class Seldom(Firsts):
    """Returns nothing where there is nothing, and an iterator else."""

    def process(self, chunk: Chunk, side: str = "input") -> Any:
        kept = [(op, row) for op, row in chunk.rows() if row[0] > 11]
        return iter([Chunk.from_rows(self._schema, kept)]) if kept else None

    def barrier(self, epoch: int) -> Any:
        super().barrier(epoch)


@pytest.mark.parametrize("returned", [Chunk(SCHEMA, [], []), 5])
def test_what_an_operator_returns_is_as_in_one_process(frames: Frames, tmp_path: Path, returned: object) -> None:
    driver, streams = driver_of(tmp_path, 1)
    streams["a"].through(Seldom, "seldom").materialize("found")
    for number, changes in enumerate((ROWS, MORE)):
        step(driver, frames, number, changes)
    assert sorted(driver.rows("found")) == [row for _, row in MORE["a"]]
    with pytest.MonkeyPatch.context() as patched, pytest.raises(TypeError, match="expected a list of chunks"):
        patched.setattr(Seldom, "barrier", lambda self, epoch: returned)
        step(driver, frames, 2, ROWS)


class KeepsTable(Firsts):
    """Keeps rows of which nothing tells the key."""

    def __init__(self, schema: TableSchema) -> None:
        super().__init__(schema)
        self._kept = TableSchema([schema.column("w")], ["w"])

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        for row in {row[3:] for row in chunk.values}:
            self._tables["firsts"].insert_row(row)
        return []


class Lists:
    """Keeps its rows in one list."""

    def process(self, batch: Any, space: Any) -> None:
        space.get_or_create_list("rows").extend(batch["id"].to_pylist())


class Numbers:
    """Keeps the numbers of its rows, which are no keys."""

    def process(self, batch: Any, space: Any) -> None:
        space.get_or_create_set("seen").update(batch["id"].to_pylist())


class Shop:
    """Keeps a key-value table."""

    def process(self, batch: Any, space: Any) -> None:
        manager = KeyValueTableManager(space)
        manager.create_scope("shop")
        manager.create_key_value_table("shop", "stock", KeyValueTableConfiguration(1))
        manager.open_key_value_table("shop", "stock").put(b"a", b"1")


class Twice:
    """Returns each row twice, without a key."""

    def process(self, batch: Any, space: Any) -> Any:
        return [(row["k"], row["v"]) for row in batch.to_pylist() for _ in range(2)]


@pytest.mark.parametrize("shards", [1, 3])
def test_rows_that_are_added_have_the_same_numbers_whatever_the_shards(
    frames: Frames, tmp_path: Path, shards: int
) -> None:
    local, driver = operators.Pipeline(), Driver(tmp_path / "space", shards, cache=tmp_path / "cache")
    driver.declare("b", ["id"])
    for rows in (local.source("a", SCHEMA, append_only=True), driver.declare("a", [])):
        rows.apply(Twice(), "twice", {"k": "string", "v": "int64"}, key="k").materialize("found")
        rows.pipeline.columns["found"] = (*rows.pipeline.columns["found"], "_row")
    run = local.run_local([])
    for number, changes in enumerate((ROWS, MORE)):
        run.step({"a": [row for _, row in changes["a"]]})
        step(driver, frames, number, changes)
    found = driver.rows("found")
    assert len(found) == len(set(found)) == 32
    assert {(row[0], row[2]) for row in found} == {(row[0], row[2]) for row in run.rows("found")}


class Days:
    """Counts the rows of each day and price in a dictionary whose keys are both."""

    def process(self, batch: Any, space: Any) -> list[Any]:
        seen = space.get_or_create_dictionary("seen")
        for row in batch.to_pylist():
            seen[row["day"], row["price"]] = seen.get((row["day"], row["price"]), 0) + 1
        keys = {(row["day"], row["price"]) for row in batch.to_pylist()}
        return [(*key, seen[key]) for key in sorted(keys)]


def test_keys_of_any_type_are_divided(frames: Frames, tmp_path: Path) -> None:
    found = {"day": "date", "price": "decimal(6,2)", "n": "int64"}
    for number, shards in enumerate((1, 5, 2)):
        rescale(tmp_path / "space", shards) if number else None
        driver = Driver(tmp_path / "space", shards, cache=tmp_path / "cache")
        rows, _ = driver.declare("a", ["id"]), driver.declare("b", ["id"])
        dated = rows.select(
            "id",
            day=(lambda row: date(2020, 1, 1) + timedelta(row.id % 7), "date"),
            price=(lambda row: Decimal(row.id % 3), "decimal(6,2)"),
        )
        counted = dated.apply(Days(), "days", found, key=["day", "price"], output_key=["day", "price"])
        counted.materialize("found")
        step(driver, frames, number, {"a": [("+", (100 * number + n, "k", 0, 0)) for n in range(100)], "b": []})
    of_rows = Counter((n % 7, n % 3) for number in range(3) for n in range(100 * number, 100 * number + 100))
    assert sorted((row[0].day - 1, int(row[1]), row[2]) for row in driver.rows("found")) == sorted(
        (*key, count) for key, count in of_rows.items()
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda rows: rows.through(KeepsTable, "mine", "k"), "has the columns w: expected those that rows are routed"),
        (
            lambda rows: rows.apply(Lists(), "mine", {"k": "string?"}, "k"),
            "List 'mine/rows': expected objects with keys",
        ),
        (
            lambda rows: rows.apply(Numbers(), "mine", {"k": "string?"}, "k"),
            "Set 'mine/seen': the key 0 is not one that",
        ),
        (lambda rows: rows.apply(Shop(), "mine", {"k": "string?"}, "k"), "'mine/kvt/catalogue': expected objects with"),
    ],
    ids=["table", "list", "other keys", "key-value table"],
)
def test_what_cannot_be_divided_is_refused_in_words(
    frames: Frames, tmp_path: Path, make: Callable[[Any], Any], message: str
) -> None:
    driver, streams = driver_of(tmp_path, 1)
    make(streams["a"]).sink("out", lambda epoch, chunk: None)
    step(driver, frames, 0, ROWS)
    with pytest.raises(ObjectSpaceError, match=message):
        rescale(tmp_path / "space", 2)
    assert driver.status().epoch == 1


def test_it_runs_in_an_embedded_pipeline() -> None:
    def made() -> operators.Pipeline:
        pipeline = operators.Pipeline()
        greatest(pipeline.source("a", SCHEMA, key=["id"]))
        return pipeline

    def batch(*rows: tuple[Any, ...]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([dict(zip(("op", *SCHEMA), row, strict=True)) for row in rows])

    process = EmbeddedPipeline(made, "a")
    with PersistedObjectSpace.open(":memory:") as space:
        process(iter([batch(("+", 1, "x", 5, 0), ("+", 2, "x", 7, 0)), batch(("+", 3, "y", 7, 0))]), space)
        space.checkpoint()
        process(iter([batch(("-", 2, "x", 7, 0))]), space)
        assert list(StateTable(space, "pipeline/found/table").scan()) == [("x", 5, 1), ("y", 7, 1)]
        assert "pipeline/greatest/values" in space


class LongestDelay:
    """The longest delay of each carrier so far."""

    def process(self, batch: Any, space: Any) -> list[dict[str, Any]]:
        longest = space.get_or_create_dictionary("longest")
        for row in batch.to_pylist():
            longest[row["carrier"]] = max(row["delay"], longest.get(row["carrier"], 0))
        return [{"carrier": carrier, "delay": longest[carrier]} for carrier in set(batch["carrier"].to_pylist())]


def test_on_spark_it_is_exactly_once_and_can_be_read(
    spark: SparkSession, tmp_path: Path, query: Callable[[str], None]
) -> None:
    schema = "id long, carrier string, delay long"

    def driver(shards: int) -> Pipeline:
        pipeline = Pipeline(tmp_path / "space", shards, cache=tmp_path / "cache")
        flights = pipeline.source("flights", spark.createDataFrame([], schema), key=["id"])
        kinds = {"carrier": "string", "delay": "int64"}
        longest = flights.apply(LongestDelay(), "longest", kinds, key="carrier", output_key="carrier")
        longest.filter(col("delay") > 1).materialize("found")
        return pipeline

    def read(**options: str) -> list[Any]:
        return sorted(map(tuple, spark.read.format("objectspace").load(str(tmp_path / "space"), **options).collect()))

    for number, rows in enumerate([[(1, "UA", 9), (2, "B6", 20)], [(3, "UA", 20), (4, "DL", 1)]]):
        pipeline = driver(2 + number)
        frame = spark.createDataFrame(rows, schema)
        assert pipeline.run_epoch(frame, number) is not None
        assert pipeline.run_epoch(frame, number) is None
        if not number:
            rescale(tmp_path / "space", 3)
    assert sorted(pipeline.rows("found")) == [("B6", 20), ("UA", 20)]
    assert read(table="longest", operator="longest") == [("B6", 20), ("DL", 1), ("UA", 20)]
    assert {pair[1:] for pair in read(object="longest")} == {("B6", "20"), ("DL", "1"), ("UA", "20")}


class TextForNumber:
    """An operator that returns a text where its output has a number."""

    def process(self, batch: Any, space: Any) -> list[dict[str, Any]]:
        return [{"carrier": carrier, "delay": "late"} for carrier in set(batch["carrier"].to_pylist())]


def test_a_returned_row_that_does_not_fit_is_told_once_with_its_shard(
    spark: SparkSession, tmp_path: Path, query: Callable[[str], None]
) -> None:
    pipeline = Pipeline(tmp_path / "space", 1, cache=tmp_path / "cache")
    flights = pipeline.source("flights", spark.createDataFrame([], "id long, carrier string"), key=["id"])
    kinds = {"carrier": "string", "delay": "int64"}
    flights.apply(TextForNumber(), "late", kinds, key="carrier", output_key="carrier").materialize("found")
    told = r"^operator late, shard 0, epoch 1: TextForNumber returned what does not fit: .* the row is .*; nothing of"
    with pytest.raises(TaskFailedError, match=told):
        pipeline.run_epoch(spark.createDataFrame([(1, "UA")], "id long, carrier string"), 0)
