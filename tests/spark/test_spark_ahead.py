"""What a task has saved is in the cache of its machine before it is accepted, and leaves no trace where it is not."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from checkpoint import CheckpointError, CheckpointKind, CheckpointStore
from checkpoint.chain import Chain, EpochPlan, OperatorPlan, ShardSaved, SourcePosition, location_at, open_cache
from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.spark import ahead
from objectspace.spark.ahead import wait_until_folded
from objectspace.spark.executor import work_shard

Work = Callable[[PersistedObjectSpace], None]


class World:
    """A chain with one shard, and the tasks of its epochs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.chain = Chain.open_or_create(location_at(folder / "space"), 1)

    def begin(self) -> EpochPlan:
        """Plan the next epoch."""
        plan = self.chain.begin(SourcePosition("q", self.chain.epoch), ["op"], cache=str(self.folder / "cache"))
        assert plan is not None
        return plan

    def publish(self, work: Work) -> ShardSaved:
        """Work an epoch and publish it."""
        plan = self.begin()
        saved = task(plan.operators["op"], work)
        self.chain.publish(plan, {"op": [saved]})
        return saved

    def caches(self) -> list[Path]:
        """Return the files of the caches, private ones too."""
        return sorted((self.folder / "cache").rglob("*.db"))

    def epochs(self) -> list[int]:
        """Return the epochs that the one cache stands for."""
        (path,) = self.caches()
        with CheckpointStore(path, read_only=True) as store:
            return [record.epoch for record in store.checkpoints()]

    def content(self) -> dict[Any, Any]:
        """Return what a task of the next epoch finds."""
        found: dict[Any, Any] = {}
        task(self.begin().operators["op"], lambda space: found.update(space.get_or_create_dictionary("d")))
        return found


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A space without an epoch, of which runs of any size are folded ahead."""
    monkeypatch.setattr(ahead, "LEAST_ROWS", 1)
    return World(tmp_path)


def task(plan: OperatorPlan, work: Work) -> ShardSaved:
    """Do what a task of Spark does, and what its machine does afterwards."""

    def process(batches: Iterator[pa.RecordBatch], space: PersistedObjectSpace) -> None:
        assert list(batches) == []
        work(space)

    saved = work_shard(plan, 0, iter(()), process)
    wait_until_folded()
    return saved


def put(**values: int) -> Work:
    """Return the work of setting some slots."""
    return lambda space: space.get_or_create_dictionary("d").update(values)


def test_the_next_task_reads_no_run_file(world: World) -> None:
    world.publish(put(a=1))
    saved = world.publish(put(b=2))
    assert world.epochs() == [1, 2]
    assert saved.run is not None
    world.chain.location.write(saved.run.file, b"a task that reads this fails")
    assert world.content() == {"a": 1, "b": 2}


def test_an_attempt_that_was_not_accepted_leaves_no_trace(world: World) -> None:
    world.publish(put(a=1))
    plan = world.begin()
    task(plan.operators["op"], put(a=666, lost=1))
    assert world.epochs() == [1, 2]
    before = world.caches()
    world.publish(put(b=2))  # The same epoch once more, with other rows.
    assert world.content() == {"a": 1, "b": 2}
    assert world.caches() == before


def test_another_attempt_may_be_accepted_after_this_machine_has_folded_its_own(world: World, tmp_path: Path) -> None:
    world.publish(put(a=1))
    plan = world.begin()
    elsewhere = World(tmp_path)
    elsewhere.folder = tmp_path / "elsewhere"
    other = elsewhere.begin()
    task(plan.operators["op"], put(a=2))
    saved = task(other.operators["op"], put(a=3))
    world.chain.publish(plan, {"op": [saved]})
    assert world.content() == {"a": 3}
    elsewhere.chain.refresh()
    assert elsewhere.content() == {"a": 3}


def test_the_first_epoch_may_be_tried_again(world: World) -> None:
    task(world.begin().operators["op"], put(lost=1))
    world.publish(put(a=1))
    assert world.content() == {"a": 1}


def test_an_epoch_without_changes_is_not_folded(world: World) -> None:
    world.publish(put(a=1))
    world.publish(put(a=1))
    assert world.epochs() == [1]


def test_a_task_that_fails_folds_nothing(world: World) -> None:
    world.publish(put(a=1))

    def fails(space: PersistedObjectSpace) -> None:
        put(a=2)(space)
        raise ObjectSpaceError("on purpose")

    with pytest.raises(ObjectSpaceError, match="on purpose"):
        task(world.begin().operators["op"], fails)
    assert world.epochs() == [1]
    assert world.content() == {"a": 1}


def test_a_private_cache_is_gone_at_once(world: World) -> None:
    world.publish(put(a=1))
    with open_cache(world.begin().operators["op"], 0) as held:
        world.publish(put(a=2))
        assert [str(path) for path in world.caches()] == [held.path]
    assert world.epochs() == [1]
    assert world.content() == {"a": 2}


def test_what_cannot_be_folded_ahead_is_folded_when_the_shard_is_opened(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(self: CheckpointStore, run: object, epoch: int) -> None:
        raise CheckpointError("no room")

    world.publish(put(a=1))
    with monkeypatch.context() as patched, caplog.at_level(logging.INFO, "objectspace.spark"):
        patched.setattr(CheckpointStore, "apply", fails)
        world.publish(put(b=2))
    assert "could not be folded in ahead of its epoch; opening the shard does it: no room" in caplog.text
    assert world.epochs() == [1]
    assert world.content() == {"a": 1, "b": 2}


def test_small_runs_are_left_for_the_next_task(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "LEAST_ROWS", 2)
    world.publish(put(a=1, b=1))
    world.publish(put(a=2))
    assert world.epochs() == [1]
    world.publish(put(a=3, b=3))
    assert world.epochs() == [1, 2, 3]


def test_an_image_in_the_place_of_a_lineage_is_not_folded_ahead(world: World) -> None:
    for number in range(3):
        world.publish(put(a=number))
    plan = replace(world.begin().operators["op"], full_after=1)
    assert plan.kind(0) is CheckpointKind.FULL
    assert task(plan, put(b=1)).run is not None
    assert world.epochs() == [1, 2, 3]


def test_without_a_thread_to_be_had_the_task_ends_well(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    world.publish(put(a=1))
    with monkeypatch.context() as patched, caplog.at_level(logging.INFO, "objectspace.spark"):
        patched.setattr(threading.Thread, "start", fails)
        world.publish(put(a=2))
    assert "opening the shard does it: can't start new thread" in caplog.text
    assert world.content() == {"a": 2}
    assert len(world.caches()) == 1


def test_nothing_of_a_task_stays_in_memory_with_what_is_folded(world: World) -> None:
    world.publish(put(a=1))
    spaces: list[weakref.ref[PersistedObjectSpace]] = []

    def work(space: PersistedObjectSpace) -> None:
        put(a=2)(space)
        spaces.append(weakref.ref(space))

    held = threading.Event()
    with pytest.MonkeyPatch.context() as patched:
        apply = CheckpointStore.apply
        patched.setattr(CheckpointStore, "apply", lambda *given: (held.wait(10), apply(*given)))
        work_shard(world.begin().operators["op"], 0, iter(()), lambda batches, space: work(space))
        gc.collect()
        assert spaces[0]() is None  # Although its run is still to be folded.
        held.set()
        wait_until_folded()
    assert world.epochs() == [1, 2]
