"""What may go wrong between the operators of a built pipeline; rows of the table in docs/spark_failures.md."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from checkpoint import CheckpointError, FencedError
from checkpoint.chain import Location, Manifest, SourcePosition, location_at
from objectspace.operators import Stream, count, max_, sum_
from objectspace.spark import Pipeline, Retention, TaskFailedError, Upkeep, rescale
from objectspace.spark import epochs as epochs_module
from objectspace.spark.actions import EpochInTasks
from objectspace.spark.epochs import Epochs
from objectspace.spark.sinks import note_parcels
from tests.chain.faulty_location import FaultyLocation
from tests.patience import PATIENCE
from tests.tally import TALLY

from .drivers import Driver, micro_batch
from .frames import Frames
from .spark_helpers import orphans

SHARDS = 2
Changes = dict[str, list[tuple[str, tuple[Any, ...]]]]

EPOCHS: list[Changes] = [
    {"a": [("+", (n, "xyz"[n % 3], n % 7, n % 5)) for n in range(20)], "b": [("+", (1, "x", 5, 1))]},
    {"a": [("-", (n, "xyz"[n % 3], n % 7, n % 5)) for n in range(0, 20, 4)], "b": [("+", (2, "y", 6, 1))]},
    {"a": [("+", (n, "xyzu"[n % 4], n % 7, n % 5)) for n in range(20, 30)]},
]


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> Frames:
    """The stand-in for Spark."""
    return Frames(Random(5)).installed(monkeypatch)


@dataclass
class Told:
    """What the sink was told, epoch by epoch."""

    changes: dict[int, list[Any]]
    calls: int = 0

    def __call__(self, epoch: int, chunk: Any) -> None:
        self.calls += 1
        rows = sorted(chunk.rows(), key=repr)
        assert self.changes.setdefault(epoch, rows) == rows, "other changes for the same epoch"


def build(made: Driver) -> Stream:
    """Build a chain of operators with state, two of which see all rows, and return the totals."""
    a, b = (made.declare(name, ["id"]) for name in ("a", "b"))
    totals = a.join(b.select("id", "k", x="v"), on="k", how="left").group_by("k")
    counted = totals.agg(n=count(), most=max_("v"), total=sum_("w")).materialize("totals")
    counted.top_n(2, order_by=["n desc", "k"]).materialize("busiest")
    counted.agg(groups=count(), rows=sum_("n")).materialize("overall")
    return counted


def driver(folder: Path, told: Told, shards: int = SHARDS, **options: Any) -> tuple[Driver, Epochs]:
    """Return a new driver of the pipeline, and what makes its epochs."""
    made = Driver(folder / "space", shards, cache=folder / "cache", **options)
    build(made).sink("log", told)
    return made, made.epochs()


def run(epochs: Epochs, frames: Frames, number: int, changes: Changes) -> Manifest | None:
    rows = micro_batch(frames, {"a": [], "b": [], **changes})
    return epochs.run(rows, SourcePosition("q", number))  # type: ignore[arg-type]


def state(made: Driver) -> dict[str, list[Any]]:
    return {name: sorted(made.rows(name), key=repr) for name in ("totals", "busiest", "overall")}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[Any]]]:
    """What the results are after each epoch where nothing fails."""
    folder, found = tmp_path_factory.mktemp("undisturbed"), []
    with pytest.MonkeyPatch.context() as patch:
        frames = Frames(Random(5)).installed(patch)
        for number, changes in enumerate(EPOCHS):
            made, epochs = driver(folder, Told({}))
            assert run(epochs, frames, number, changes) is not None
            found.append(state(made))
    return found


class Lost(Exception):
    """The driver dies here."""


def test_a_driver_that_dies_between_any_two_operators(
    frames: Frames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[dict[str, list[Any]]]
) -> None:
    told, stages = Told({}), len(driver(tmp_path / "another", Told({}))[1].stages.stages)
    true_stage = EpochInTasks._stage
    for number, changes in enumerate(EPOCHS[:2]):
        for dies_at in range(1, stages + 1):
            done: list[str] = []

            def stage(self: EpochInTasks, one: Any, dies_at: int = dies_at, done: list[str] = done) -> Any:
                found = true_stage(self, one)
                done.append(one.name)
                if len(done) == dies_at:
                    raise Lost
                return found

            made, epochs = driver(tmp_path, told)
            with monkeypatch.context() as patch, pytest.raises(Lost):
                patch.setattr(EpochInTasks, "_stage", stage)
                run(epochs, frames, number, changes)
            assert made.status().epoch == number
            TALLY["drivers that died between operators"] += 1
        made, epochs = driver(tmp_path, told)
        assert run(epochs, frames, number, changes) is not None
        assert state(made) == answers[number]
        made.upkeep.published(number + 1)
        made.upkeep.wait(PATIENCE)
        assert {name[:12] for name in made.chain.location.names("handover")} == {f"{number + 1:012d}"}
    left = len(orphans(made))
    assert left > stages, "the attempts that were lost have left no files"
    assert made.chain.collect(grace_seconds=0, keep_epochs=2).runs == left
    assert sorted(told.changes) == [1, 2]
    assert told.calls == 2


def test_storage_that_fails_at_any_operation_of_a_built_pipeline(
    frames: Frames, tmp_path: Path, answers: list[dict[str, list[Any]]], at_scale: bool
) -> None:
    first, space = Told({}), tmp_path / "space"
    run(driver(tmp_path, first)[1], frames, 0, EPOCHS[0])
    shutil.copytree(space, tmp_path / "whole")
    failed = 0
    for at in range(1, 1_000, 1 if at_scale else 32):
        faulty = FaultyLocation(location_at(space), at, late=at % 2 == 0, lasting=at % 3 == 0)
        told = Told(dict(first.changes))
        with suppress(CheckpointError, TaskFailedError):
            made = Driver(faulty, SHARDS, cache=tmp_path / f"cache {at}")
            build(made).sink("log", told)
            run(made.epochs(), frames, 1, EPOCHS[1])
        if faulty.seen < at:
            break
        made, epochs = driver(tmp_path, told)
        run(epochs, frames, 1, EPOCHS[1])
        assert made.status().epoch == 2, f"operation {at}"
        assert state(made) == answers[1], f"operation {at}"
        assert sorted(told.changes) == [1, 2], f"operation {at}"
        shutil.rmtree(space)
        shutil.copytree(tmp_path / "whole", space)
        failed += 1
        TALLY["crash points"] += 1
    assert failed > (40 if at_scale else 1), "so few operations were tried"


def test_changes_are_handed_out_under_their_epoch_also_after_a_rescale(frames: Frames, tmp_path: Path) -> None:
    told = Told({})
    made, epochs = driver(tmp_path, told)
    run(epochs, frames, 0, EPOCHS[0])
    rescale(tmp_path / "space", 3)
    made, epochs = driver(tmp_path, told, shards=3)
    assert run(epochs, frames, 0, EPOCHS[0]) is None
    assert told.calls == 2
    assert sorted(told.changes) == [1]
    assert made.status().epoch == 2


def test_a_copy_without_hand_over_files_goes_on(
    frames: Frames, tmp_path: Path, answers: list[dict[str, list[Any]]], caplog: pytest.LogCaptureFixture
) -> None:
    told = Told({})
    run(driver(tmp_path, told)[1], frames, 0, EPOCHS[0])
    shutil.copytree(tmp_path / "space", tmp_path / "copy" / "space", ignore=lambda *_: {"handover"})
    made, epochs = driver(tmp_path / "copy", told)
    assert run(epochs, frames, 0, EPOCHS[0]) is None
    assert "the changes of result log in epoch 1 may have been handed out before and cannot be again" in caplog.text
    assert run(epochs, frames, 1, EPOCHS[1]) is not None
    assert state(made) == answers[1]
    assert (told.calls, sorted(told.changes)) == (2, [1, 2])


@pytest.mark.parametrize("becomes", ["nothing", "a new space", "an older copy"])
def test_a_driver_whose_work_finds_its_space_replaced_is_fenced(frames: Frames, tmp_path: Path, becomes: str) -> None:
    _, epochs = driver(tmp_path, Told({}))
    run(epochs, frames, 0, EPOCHS[0])
    shutil.copytree(tmp_path / "space", tmp_path / "older")
    run(epochs, frames, 1, EPOCHS[1])
    for folder in ("space", "cache"):  # Without a cache the work needs the run files, which are gone.
        shutil.rmtree(tmp_path / folder)
    if becomes == "a new space":
        driver(tmp_path, Told({}))
    if becomes == "an older copy":
        shutil.copytree(tmp_path / "older", tmp_path / "space")
    with pytest.raises(FencedError, match=r"under this driver, which must stop: nothing was published") as fenced:
        run(epochs, frames, 2, EPOCHS[2])
    assert "run/" in str(fenced.value.__cause__), "the work has not met what is gone"


def test_a_sink_that_comes_back_takes_nothing_from_the_others(frames: Frames, tmp_path: Path) -> None:
    def sunk(*names: str) -> tuple[Driver, Epochs, dict[str, Told]]:
        made, told = Driver(tmp_path / "space", SHARDS, cache=tmp_path / "cache"), {name: Told({}) for name in names}
        totals = build(made)
        for name in names:
            totals.select("k", "n").sink(name, told[name])
        return made, made.epochs(), told

    for number, names in enumerate((["one", "two"], ["one"])):
        made, epochs, _ = sunk(*names)
        run(epochs, frames, number, EPOCHS[number])
        made.upkeep.published(number + 1)
        made.upkeep.wait(PATIENCE)
    # The driver dies after the second epoch was published: so its micro-batch comes again, to both sinks.
    _, epochs, told = sunk("one", "two")
    assert run(epochs, frames, 1, EPOCHS[1]) is None
    assert sorted(told["one"].changes) == [2]
    assert told["two"].changes == {}, "what a sink missed while it was away is not its to get"


def test_an_error_of_a_function_stays_what_it_is(frames: Frames, tmp_path: Path) -> None:
    class Own(Exception):
        __notes__ = "of the user"  # type: ignore[assignment]

    def fails(epoch: int, chunk: Any) -> None:
        raise Own

    made = Driver(tmp_path / "space", SHARDS, cache=tmp_path / "cache")
    build(made).sink("log", fails)
    with pytest.raises(Own) as failed:
        run(made.epochs(), frames, 0, EPOCHS[0])
    assert failed.value.__notes__[0] == "of the user"
    assert "raised by the function of result 'log' for epoch 1" in failed.value.__notes__[1]


@pytest.mark.parametrize(
    ("after", "is_noted"),
    [
        (lambda totals: totals.select("k", "most", "n"), True),
        (lambda totals: totals.select("k", n="most", most="n"), True),
        (lambda totals: totals.select("k", "most", "n"), False),
        (lambda totals: totals.select("k", "most"), False),
    ],
    ids=["in another order", "of other values", "in another order, of an earlier version", "fewer, of the same"],
)
def test_a_result_is_given_nothing_of_another_one_that_had_its_name(
    frames: Frames,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    after: Callable[[Stream], Stream],
    is_noted: bool,
) -> None:
    def sunk(result: Callable[[Stream], Stream], function: Any) -> Epochs:
        made = Driver(tmp_path / "space", SHARDS, cache=tmp_path / "cache")
        result(build(made)).sink("log", function)
        return made.epochs()

    def before(totals: Stream) -> Stream:
        return totals.select("k", "n", "most")

    def dies(epoch: int, chunk: Any) -> None:
        raise Lost

    if not is_noted:
        monkeypatch.setattr(epochs_module, "note_parcels", lambda space, found, built: note_parcels(space, found, {}))
    for number in range(2):
        with pytest.raises(Lost):
            run(sunk(before, dies), frames, number, EPOCHS[number])
    as_it_was, told = Told({}), Told({})
    assert run(sunk(before, as_it_was), frames, 1, EPOCHS[1]) is None
    assert sorted(as_it_was.changes) == [2]
    changed = sunk(after, told)
    assert run(changed, frames, 1, EPOCHS[1]) is None
    assert told.changes == {}
    assert (
        "result log in epoch 2 may have been handed out before and cannot be again: they are of a result" in caplog.text
    )
    assert run(changed, frames, 2, EPOCHS[2]) is not None
    assert sorted(told.changes) == [3]


def test_a_result_whose_functions_have_changed_is_given_what_it_has_not_taken(frames: Frames, tmp_path: Path) -> None:
    def sunk(least: int, function: Any) -> Epochs:
        made = Driver(tmp_path / "space", SHARDS, cache=tmp_path / "cache")
        build(made).filter(lambda row: row.n > least).sink("log", function)
        return made.epochs()

    def dies(epoch: int, chunk: Any) -> None:
        raise Lost

    with pytest.raises(Lost):
        run(sunk(0, dies), frames, 0, EPOCHS[0])
    told = Told({})
    assert run(sunk(-1, told), frames, 0, EPOCHS[0]) is None
    assert sorted(told.changes) == [1]


def test_what_an_older_epoch_noted_of_a_result_says_nothing_of_a_newer_one(
    frames: Frames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sunk(column: str, function: Any) -> Epochs:
        made = Driver(tmp_path / "space", SHARDS, cache=tmp_path / "cache")
        build(made).select("k", column).sink("log", function)
        return made.epochs()

    def dies(epoch: int, chunk: Any) -> None:
        raise Lost

    def by_an_earlier_version(space: Any, found: Any, built: Any) -> None:
        noted = dict(space.get_dictionary("$built").items())
        note_parcels(space, found, built)
        space.get_dictionary("$built").update(noted)

    assert run(sunk("n", Told({})), frames, 0, EPOCHS[0]) is not None
    monkeypatch.setattr(epochs_module, "note_parcels", by_an_earlier_version)
    with pytest.raises(Lost):
        run(sunk("total", dies), frames, 1, EPOCHS[1])
    its_own, of_another = Told({}), Told({})
    assert run(sunk("n", of_another), frames, 1, EPOCHS[1]) is None
    assert run(sunk("total", its_own), frames, 1, EPOCHS[1]) is None
    assert (sorted(of_another.changes), sorted(its_own.changes)) == ([], [2])


@pytest.mark.slow
def test_images_are_made_beside_the_epochs_of_a_built_pipeline(
    frames: Frames, tmp_path: Path, answers: list[dict[str, list[Any]]]
) -> None:
    made = Driver(tmp_path / "space", SHARDS, cache=tmp_path / "cache")
    made.upkeep = Upkeep(made.chain.location, Retention(epochs=3, every=4), full_after=2, image_lag=2)
    build(made)
    epochs = made.epochs()
    there_and_back: list[Changes] = [{"b": [(op, (7, "z", 1, 1))]} for op in ("+", "-")]
    for number, changes in enumerate([*EPOCHS, *(there_and_back * 4)]):
        assert run(epochs, frames, number, changes) is not None
        made.upkeep.published(number + 1)
        made.upkeep.wait(PATIENCE)
    newest = made.chain.newest
    assert newest is not None
    imaged = {image.operator for image in newest.images}
    assert any("HashJoin" in operator for operator in imaged)
    assert all(len(made.chain.lineage(image.operator, image.shard)) < 12 for image in newest.images)
    kinds = {run.kind.value for manifest in made.chain.manifests(len(EPOCHS)) for run in manifest.runs}
    assert kinds == {"differential"}, "a task has written an image"
    made.chain.collect(grace_seconds=0, keep_epochs=1)
    assert state(made) == answers[-1]
    fresh = Driver(tmp_path / "space", SHARDS, cache=tmp_path / "another cache")
    build(fresh)
    assert state(fresh) == answers[-1]


@dataclass
class Quota(FaultyLocation):
    """Takes so many run files and no more."""

    files: int = 0

    def write(self, name: str, data: bytes) -> None:
        if name.startswith("run/") and len(self.inner.names("run")) >= self.files:
            raise CheckpointError(f"{name}: the quota of {self.files} files is used up")
        self.inner.write(name, data)


def test_a_task_that_fails_between_two_operators(
    spark: SparkSession, tmp_path: Path, query: Callable[[str], None]
) -> None:
    def driver(location: Location) -> Pipeline:
        pipeline = Pipeline(location, 1, cache=tmp_path / "cache")
        rows = pipeline.source("rows", spark.createDataFrame([], "id long, key string, value long"), key=["id"])
        totals = rows.group_by("key").agg(n=count(), total=sum_("value"))
        totals.agg(keys=count(), rows=sum_("n")).materialize("overall")
        return pipeline

    def batch(number: int) -> DataFrame:
        rows = [(100 * number + n, f"k{n % 5}", n) for n in range(40)]
        return spark.createDataFrame(rows, "id long, key string, value long")

    space = location_at(tmp_path / "space")
    driver(space).run_epoch(batch(0), 0)
    there = len(space.names("run"))
    with pytest.raises(TaskFailedError, match=r"the quota of \d+ files is used up; nothing of the epoch was published"):
        driver(Quota(space, 0, files=there + 1)).run_epoch(batch(1), 1)
    assert len(space.names("run")) == there + 1, "the first operator has saved its shard, the next one nothing"
    assert driver(space).rows("overall") == [(5, 40)]
    driver(space).run_epoch(batch(1), 1)
    assert driver(space).rows("overall") == [(5, 80)]
    assert len(orphans(driver(space))) == 1
