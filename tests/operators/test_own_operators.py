"""Operators of users in a pipeline: what is none, and what they return that is not what comes out."""

from __future__ import annotations

from typing import Any

import pytest

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace, SpacePart
from objectspace.kvt import KeyValueTableConfiguration, KeyValueTableManager
from objectspace.operators import AggCall, Dedup, HashJoin, Hop, LocalRun, Operator, Pipeline, SimpleAgg, count
from objectspace.operators.apply import Apply
from objectspace.relational import Chunk, Column, SchemaError, StateTable, TableSchema

SCHEMA = TableSchema([Column("id", "int64"), Column("k", "string")], ["id"])
BATCH = {"rows": [(1, "a"), (2, "b")]}


class Gives(Operator):
    """Gives what a function makes of a chunk."""

    def __init__(self, schema: TableSchema, out: Any = lambda chunk: [chunk]) -> None:
        super().__init__()
        self._schema, self._out = schema, out

    @property
    def schema(self) -> TableSchema:
        return self._schema

    def process(self, chunk: Chunk, side: str = "input") -> Any:
        return self._out(chunk)


def passed(operator: Any) -> Pipeline:
    found = Pipeline()
    found.source("rows", SCHEMA).through(operator, "own").materialize("found")
    return found


class KeepsKeys(Gives):
    """Keeps the ids in a key-value table, which it makes when it is opened."""

    def open(self, space: Any, name: str) -> None:
        manager = KeyValueTableManager(SpacePart(space, f"{name}/"))
        manager.create_scope("s")
        manager.create_key_value_table("s", "t", KeyValueTableConfiguration(1))
        self.keys = manager.open_key_value_table("s", "t")

    def process(self, chunk: Chunk, side: str = "input") -> Any:
        for _, (number, _) in chunk.rows():
            if number < 0:
                raise ArithmeticError(number)
            self.keys.put(b"%d" % number, b"")
        return [chunk]


def test_a_run_that_was_only_opened_is_no_reason_to_refuse_another_one() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    first = LocalRun(passed(KeepsKeys), space)
    space.checkpoint()
    second = LocalRun(passed(KeepsKeys), space)
    with pytest.raises(ArithmeticError):
        second.step({"rows": [(-1, "a")]})
    second.step({"rows": [(1, "a")]})
    first.step({"rows": [(2, "b")]})
    assert LocalRun(passed(KeepsKeys), PersistedObjectSpace(space.store)).rows("found") == [(1, "a"), (2, "b")]


def test_an_operator_of_one_row_needs_no_key() -> None:
    counted = passed(lambda schema: SimpleAgg(schema, [AggCall("count")]))
    assert counted.run_local([BATCH, {"rows": [(3, "c")]}]).rows("found") == [(3,)]


def test_rows_without_a_key_may_be_grouped() -> None:
    found = Pipeline()
    rows = found.source("rows", SCHEMA).through(lambda schema: Gives(TableSchema(schema.columns)), "own")
    rows.group_by("k").agg(n=count()).materialize("found")
    assert found.run_local([BATCH, {"rows": [(3, "a")]}]).rows("found") == [("a", 2), ("b", 1)]


class WithTables(Gives):
    """Keeps tables whose roles are like the names of operators, or have a slash."""

    def state(self) -> list[tuple[str, TableSchema]]:
        return [("a/b", SCHEMA), ("own/table", SCHEMA), ("c", SCHEMA)]


def test_a_plan_shows_all_tables_of_an_operator_whatever_their_roles_are() -> None:
    lines = passed(WithTables).explain().splitlines()
    shown = [line.split("'")[1] for line in lines if " table " in line]
    assert shown == ["found/table", "own/a/b", "own/own/table", "own/c"]


def test_an_operator_of_a_user_may_return_none_for_no_chunks() -> None:
    assert passed(lambda schema: Gives(schema, lambda chunk: None)).run_local([BATCH]).rows("found") == []
    assert passed(lambda schema: Gives(schema, lambda chunk: iter([chunk]))).run_local([BATCH]).rows("found") != []


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (
            lambda chunk: chunk,
            r"operator Gives returned Chunk\(2 rows: .*: expected a list of chunks, or None for none$",
        ),
        (lambda chunk: [("+", (1, "a"))], r"operator Gives returned \('\+', \(1, 'a'\)\): expected a list of chunks"),
        (lambda chunk: 5, "operator Gives returned 5: expected a list of chunks"),
    ],
)
def test_what_an_operator_of_a_user_returns_is_a_list_of_chunks(out: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        passed(lambda schema: Gives(schema, out)).run_local([BATCH])


@pytest.mark.parametrize(
    ("operator", "said"),
    [
        (Gives(SCHEMA), "found an operator Gives: every task makes its own"),
        (None, "found None: every task"),
        (lambda schema: 5, "made 5: derive it from"),
        (lambda schema: HashJoin(schema, schema, ["k"], ["k"]), r"\(HashJoin\) has the inputs left, right: through"),
    ],
)
def test_what_is_no_operator_for_a_stream_is_refused(operator: Any, said: str) -> None:
    with pytest.raises(SchemaError, match=f"operator 'own'.*{said}"):
        passed(operator)


class WithoutSpace:
    def process(self, batch: Any) -> None:
        """Take a batch, and no space."""


class KeepsTable:
    def process(self, batch: Any, space: Any) -> None:
        StateTable(space, "mine", SCHEMA)


def test_the_method_of_an_object_takes_a_batch_and_a_space() -> None:
    rows = Pipeline().source("rows", SCHEMA)
    with pytest.raises(SchemaError, match=r"operator 'own' \(WithoutSpace\): expected process\(batch, space\), found"):
        rows.apply(WithoutSpace(), "own", SCHEMA)  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match=r"expected process\(batch, space\), found process\(batch"):
        Apply(SCHEMA, WithoutSpace(), "own", SCHEMA)  # type: ignore[arg-type]


def test_the_space_of_an_object_takes_no_relational_tables() -> None:
    pipeline = Pipeline()
    pipeline.source("rows", SCHEMA).apply(KeepsTable(), "own", SCHEMA).sink("found")
    with pytest.raises(ValueError, match=r"under 'own/'.*whose relational tables belong to a whole space: a part has"):
        pipeline.run_local([BATCH])


def test_watermarks_of_the_columns_of_a_join_pass_windows_and_no_other_operator_of_a_user() -> None:
    def counted(operator: Any, column: str) -> Pipeline:
        found = Pipeline()
        left, right = (
            found.source(side, {"id": "int64", side: "int64"}, key=["id"]).watermark(side, 0) for side in ("t", "u")
        )
        near = left.join(right, on="id", within=("t", "u", -1, 1)).through(operator, "own")
        near.group_by(column).on_window_close().agg(n=count()).materialize("counts")
        return found

    windows = counted(lambda schema: Hop(schema, "u", 10, 10), "u")
    assert windows.run_local([{side: [(at, at)] for side in "tu"} for at in (5, 20)]).rows("counts") == [(5, 1)]
    for other in (lambda schema: Gives(schema), lambda schema: Dedup(schema, ["id"])):
        with pytest.raises(SchemaError, match="takes a watermark on a group column"):
            counted(other, "u")
