"""Which operators share the tasks of another one, and that sharing changes nothing but the number of actions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from checkpoint.chain import SourcePosition
from objectspace.operators import Pipeline as Local
from objectspace.operators import Stream, col, count, max_, sum_
from objectspace.relational import Column, TableSchema
from objectspace.spark import stages
from objectspace.spark.progress import EpochProgress
from objectspace.spark.stages import Stages, compiled
from tests.operators.own_operators import Passing
from tests.operators.pipeline_trees import World
from tests.spark.drivers import driver_of, micro_batch
from tests.spark.frames import Frames

SHARDS = 3
ROWS = TableSchema([Column("id", "int64"), *(Column(name, "int64") for name in "abv")], primary_key=["id"])

Build = Callable[[Stream, Stream], Stream]


def by_a(rows: Stream, _: Stream) -> Stream:
    return rows.group_by("a").agg(n=count(), most=max_("v"))


def stages_of(build: Build, shards: int = SHARDS) -> Stages:
    """Return the stages of what is built of two sources."""
    pipeline = Local()
    build(pipeline.source("left", ROWS), pipeline.source("right", ROWS))
    return compiled(pipeline.plan(), {}, shards)


def guests(build: Build, shards: int = SHARDS) -> list[str]:
    """Return the names of the guests of what is built, in order."""
    return [name for stage in stages_of(build, shards).stages for name in stage.guests]


@pytest.mark.parametrize(
    "build",
    [
        lambda left, right: by_a(left, right).materialize("result"),
        lambda left, right: by_a(left, right).filter(col("n") > 1).materialize("result"),
        lambda left, right: by_a(left, right).select("n", key="a").materialize("result"),
        lambda left, right: by_a(left, right).materialize("result", key=["a"]),
        lambda left, _: left.group_by("b", "a").agg(n=count()).materialize("result"),
        lambda left, right: left.join(right, on="a").group_by("a").agg(n=count()).materialize("result"),
    ],
)
def test_the_table_of_groups_is_a_guest_of_their_aggregation(build: Build) -> None:
    assert guests(build) == ["result"]


@pytest.mark.parametrize(
    "build",
    [
        lambda left, right: by_a(left, right).materialize("result", key=["n"]),
        lambda left, right: by_a(left, right).select(a=col("a") + 1, n="n").materialize("result", key=["a"]),
        lambda left, _: left.group_by("a", "b").agg(n=count()).materialize("result", key=["b", "a"]),
        lambda left, right: by_a(left, right).top_n(2, ["n desc"]).materialize("result"),
        lambda left, right: by_a(left, right).union(by_a(right, left)).materialize("result"),
        lambda left, right: left.join(right, on="a").materialize("result"),
        lambda left, _: left.materialize("result"),
    ],
)
def test_rows_that_go_to_another_shard_are_handed_over(build: Build) -> None:
    assert guests(build) == []


def test_in_one_shard_everything_with_one_input_is_a_guest() -> None:
    def build(left: Stream, right: Stream) -> Stream:
        return by_a(left.join(right, on="b").select("a", "v"), right).top_n(2, ["n desc"]).materialize("result")

    assert len(stages_of(build, 1).stages) == 1
    assert guests(build, 1)[-1] == "result"
    assert len(stages_of(build).stages) == 4


def test_guests_follow_each_other() -> None:
    def build(left: Stream, right: Stream) -> Stream:
        kept = by_a(left, right).materialize("groups")
        return kept.group_by("a").top_n(1, ["n desc"]).materialize("tops", key=["a"])

    assert [len(stage.operators) for stage in stages_of(build).stages] == [4]


def test_a_space_in_which_nobody_was_a_guest_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The state of an operator lies where it did, whoever's tasks it is kept in."""
    frames, world, seen = Frames(Random(3)).installed(monkeypatch), World(), Counter[Any]()
    for number, kinds in enumerate([frozenset(), stages._GUESTS, frozenset(), stages._GUESTS]):
        monkeypatch.setattr(stages, "_GUESTS", kinds)
        driver, streams = driver_of(tmp_path, SHARDS)
        groups = streams["a"].group_by("k").agg(n=count(), sum=sum_("v"))
        groups.materialize("groups")
        edits: list[Any] = [("a", 50 * number + one, ("uvwxyz"[one % 6], one + number, 0)) for one in range(50)]
        seen.update((k, v) for _, _, (k, v, _) in edits)
        epochs = driver.epochs()
        manifest = epochs.run(micro_batch(frames, world.change(edits)), SourcePosition("q", number))  # type: ignore[arg-type]
        assert manifest is not None
        assert [stage.guests for stage in epochs.stages.stages] == ([("groups",)] if kinds else [(), ()])
        expected = {k: (sum(n for (one, _), n in seen.items() if one == k),) for k in "uvwxyz"}
        assert {row[0]: row[1:2] for row in driver.rows("groups")} == expected
        shown = {one.name: one for one in EpochProgress.of(manifest).operators}
        assert shown["groups"].rows_in == (6 if number == 0 else 12)
        assert shown["groups"].slots == sum(run.slots for run in manifest.runs if run.operator == "groups") >= 6
        assert shown["a.HashAgg"].rows_out == shown["groups"].rows_in
        assert (shown["groups"].ms == 0) == bool(kinds)
        assert {"open_ms", "process_ms", "save_ms"} <= set(shown["groups"].phases)


def test_a_way_of_many_operators_is_looked_through_once() -> None:
    pipeline = Local()
    stream = by_a(pipeline.source("left", ROWS), pipeline.source("right", ROWS))
    for step in range(40):
        stream = stream.filter(col("n") > step).union(stream.filter(col("n") <= step))
    for step in range(900):
        stream = stream.filter(col("n") > step)
    stream.materialize("result")
    found = compiled(pipeline.plan(), {"changes": stream.node}, SHARDS)
    assert [stage.name for stage in found.stages] == ["left.HashAgg", "result"]
    assert found.results["changes"].keys is None


class Dedup(Passing):
    """It has the name of an operator of the library, and is none."""


def test_an_operator_of_a_user_is_not_taken_for_one_of_the_library() -> None:
    def build(left: Stream, right: Stream) -> Stream:
        return by_a(left, right).through(Dedup, "late").materialize("result")

    assert {stage.name: stage.rests for stage in stages_of(build).stages}["late"] is False
    assert "late" not in guests(build)
