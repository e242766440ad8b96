"""What is divided by a rescale: objects of which it is known that rows are routed by their keys, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import LongType, StringType, StructType

from checkpoint.chain import Chain, ShardSaved, SourcePosition, location_at
from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.kvt import KeyValueTableConfiguration, KeyValueTableManager
from objectspace.relational import Column, StateTable, TableSchema
from objectspace.spark import Measure, Operator, RunningAggregate, open_shard, rescale, shard_of
from objectspace.spark.writer import TableWriter, Target

from .frames import Frame, Frames
from .test_spark_rescale import OPERATOR, publish

Fill = Callable[[PersistedObjectSpace], Any]
USERS = [f"user{n}" for n in range(20)]
ROWS = [{"user": user, "day": day, "n": day + 1} for user in USERS for day in range(3)]
SCHEMA = TableSchema([Column("user", "string"), Column("n", "int64")], ["user"])
PER_DAY = RunningAggregate("per_day", ("day", "user"), (Measure("n", "sum", "n"),))


class LastDay:
    def process(self, batch: pa.RecordBatch, space: PersistedObjectSpace) -> None:
        last = space.get_or_create_dictionary("last")
        for row in batch.to_pylist():
            last[row["user"]] = max(row["day"], last.get(row["user"], 0))


def key_value_table(space: PersistedObjectSpace) -> None:
    manager = KeyValueTableManager(space)
    manager.create_scope("s")
    manager.create_key_value_table("s", "t", KeyValueTableConfiguration(2))
    manager.open_key_value_table("s", "t").put(b"k", b"v", key_family="f")


def deleted_key_value_table(space: PersistedObjectSpace) -> None:
    key_value_table(space)
    manager = KeyValueTableManager(space)
    manager.delete_key_value_table("s", "t")
    manager.delete_scope("s")


def table(space: PersistedObjectSpace) -> None:
    totals = StateTable(space, "totals", SCHEMA)
    for place, user in enumerate(USERS):
        totals.insert_row((user, place))


def run(folder: Path, operator: Operator, shards: int, patch: pytest.MonkeyPatch) -> None:
    """Publish the one epoch of an operator, whose tasks run in this process."""
    chain = Chain.open_or_create(location_at(folder / "space"), shards)
    plan = chain.begin(SourcePosition("q", 0), [operator.name], cache=str(folder / "cache"))
    assert plan is not None
    rows: list[list[dict[str, Any]]] = [[] for _ in range(shards)]
    for row in ROWS:
        rows[shard_of(shards, *(row[column] for column in operator.key))].append(row)
    frame = Frame(Frames(Random(1)).installed(patch), [[pa.RecordBatch.from_pylist(part)] for part in rows])
    messages = frame.mapInArrow(operator.task(plan.operators[operator.name]), None).collect()
    chain.publish(plan, {operator.name: [ShardSaved.from_json(row.message) for row in messages]})


def held(folder: Path, read: Callable[[PersistedObjectSpace], Any]) -> list[Any]:
    """Return what is read of each shard at the newest epoch."""
    chain = Chain.open(location_at(folder / "space"))
    (operator,) = chain.manifest(chain.epoch).lineage
    plan = chain.operator_plan(operator, cache=str(folder / "cache"))
    found = []
    for shard in range(plan.shards):
        with open_shard(plan, shard) as space:
            found.append(read(space))
    return found


@pytest.mark.parametrize("before", [1, 2])
def test_a_running_aggregate_of_a_longer_key_follows_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    run(tmp_path, Operator("days", ("user",), PER_DAY), before, monkeypatch)
    rescale(tmp_path / "space", 3)
    shards = held(tmp_path, lambda space: dict(space.get_or_create_dictionary("per_day").items()))
    assert all(shard_of(3, user) == place for place, kept in enumerate(shards) for _, user in kept)
    assert {key: row for kept in shards for key, row in kept.items()} == {
        (row["day"], row["user"]): {"n": row["n"]} for row in ROWS
    }
    rescale(tmp_path / "space", 5)
    again = held(tmp_path, lambda space: len(space.get_or_create_dictionary("per_day")))
    assert sum(again) == len(ROWS), "what was noted has gone along"


def test_an_aggregate_that_lacks_the_routing_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, Operator("days", ("n",), PER_DAY), 1, monkeypatch)
    with pytest.raises(ObjectSpaceError, match="'per_day': nothing says that its keys are the values that rows"):
        rescale(tmp_path / "space", 3)


def test_an_operator_names_its_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "silent", Operator("o", ("user",), LastDay()), 1, monkeypatch)
    with pytest.raises(ObjectSpaceError, match="nothing says that its keys are the values that rows are routed by"):
        rescale(tmp_path / "silent" / "space", 3)
    run(tmp_path, Operator("o", ("user",), LastDay(), keyed=("last",)), 1, monkeypatch)
    rescale(tmp_path / "space", 3)
    shards = held(tmp_path, lambda space: set(space.get_or_create_dictionary("last")))
    assert shards == [{user for user in USERS if shard_of(3, user) == place} for place in range(3)]


def test_keys_with_other_parts_than_an_operator_says_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PerDay:
        def process(self, batch: pa.RecordBatch, space: PersistedObjectSpace) -> None:
            space.get_or_create_dictionary("d").update({(row["day"], row["user"]): 1 for row in batch.to_pylist()})

    run(tmp_path, Operator("o", ("user",), PerDay(), keyed=("d",)), 1, monkeypatch)
    with pytest.raises(ObjectSpaceError, match=r"the key \(0, 'user0'\) is not one that rows are routed by"):
        rescale(tmp_path / "space", 3)


@pytest.mark.parametrize(
    ("fill", "named", "message"),
    [
        (lambda space: space.create_dictionary("d").update({("ann", 1): 1}), [], r"keyed=\{'keyed': \['d'\]\}"),
        (lambda space: space.create_sorted_set("s").add("ann"), [], "SortedSet 's': nothing says that its keys"),
        (table, [], "SortedDictionary 'totals': nothing says that its keys"),
        (key_value_table, [], "operator keyed, shard 0, .* 'kvt/.*found a part of key-value tables"),
        (key_value_table, ["kvt/s/t/0"], "found a part of key-value tables"),
        (deleted_key_value_table, [], "the key-value tables are all deleted, .*'kvt/catalogue' and 'kvt/partitions'"),
        (lambda space: space.create_list("log").append(1), ["log"], "List 'log': expected objects with keys"),
        (
            lambda space: space.create_dictionary("d", of=list).update(a=[1]),
            [],
            "Dictionary 'd': nothing says that its",
        ),
        (lambda space: space.create_dictionary("$own"), ["$own"], "this one is the library's own"),
        (lambda space: space.create_dictionary("d").update({1.5: 1}), ["d"], "the key 1.5 is not one that rows"),
        (
            lambda space: space.create_dictionary("d").update({2**63: 1}),
            ["d"],
            "the key 9223372036854775808 is not one",
        ),
        (
            lambda space: space.create_dictionary("d"),
            ["d", "e"],
            "keyed names 'e', and no shard has an object of this name",
        ),
    ],
)
def test_nothing_of_one_shard_is_divided_on_a_guess(tmp_path: Path, fill: Fill, named: list[str], message: str) -> None:
    chain = publish(tmp_path, 1, lambda space, _: fill(space))
    files = chain.location.names("run")
    with pytest.raises(ObjectSpaceError, match=message):
        rescale(tmp_path / "space", 4, keyed={OPERATOR: named})
    assert Chain.open(chain.location).epoch == 1
    assert chain.location.names("run") == files


def test_without_the_list_and_the_counter_of_deleted_key_value_tables_the_rest_is_divided(tmp_path: Path) -> None:
    def _fill(space: PersistedObjectSpace, _: int) -> None:
        deleted_key_value_table(space)
        space.delete("kvt/catalogue")
        space.delete("kvt/partitions")
        space.create_dictionary("d").update({"ann": 1})

    publish(tmp_path, 1, _fill)
    rescale(tmp_path / "space", 4, keyed={OPERATOR: ["d"]})
    assert Chain.open(location_at(tmp_path / "space")).shards == 4


def test_another_operator_than_those_that_were_added(tmp_path: Path) -> None:
    publish(tmp_path, 1, lambda space, _: space.create_dictionary("d"))
    with pytest.raises(
        ObjectSpaceError, match="the operator 'other': expected one that was added to a pipeline: keyed"
    ):
        rescale(tmp_path / "space", 2, keyed={"other": ["d"]})


def test_a_table_that_a_stream_was_written_into_is_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OBJECTSPACE_CACHE", str(tmp_path / "cache"))
    said = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "0"}
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(partitionId=lambda: 0, getLocalProperty=said.get))
    schema = StructType().add("user", StringType()).add("n", LongType())
    target = Target.of({"path": str(tmp_path / "space"), "table": "t", "key": "user", "shards": "1"})
    writer = TableWriter(target, schema)
    writer.commit([writer.write(iter([pa.record_batch({"user": USERS, "n": range(len(USERS))})]))], 0)
    rescale(tmp_path / "space", 3)
    shards = held(tmp_path, lambda space: {user for user, _ in StateTable(space, "t/table").scan()})
    assert shards == [{user for user in USERS if shard_of(3, user) == place} for place in range(3)]


@pytest.mark.parametrize("name", ["totals", "raw", "lists"])
def test_what_is_named_goes_with_its_rows(tmp_path: Path, name: str) -> None:
    def fill(space: PersistedObjectSpace, _: int) -> None:
        if name == "totals":
            table(space)
        elif name == "lists":
            space.create_dictionary("lists", of=list).update({user: [user] for user in USERS})
        else:
            space.create_sorted_dictionary("raw", raw=True).update({user.encode(): user for user in USERS})

    def read(space: PersistedObjectSpace) -> Any:
        if name == "totals":
            return {row[0] for row in StateTable(space, "totals", SCHEMA).scan()}
        if name == "lists":
            return {user for users in space.get_or_create_dictionary("lists", of=list).values() for user in users}
        return set(space.get_or_create_sorted_dictionary("raw", raw=True).values())

    publish(tmp_path, 1, fill)
    rescale(tmp_path / "space", 3, keyed={OPERATOR: [name]})
    assert held(tmp_path, read) == [{user for user in USERS if shard_of(3, user) == place} for place in range(3)]
