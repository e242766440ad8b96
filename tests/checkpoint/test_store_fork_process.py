"""A process that was forked leaves the stores of its parent alone."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event, Thread

import pytest

from checkpoint import CheckpointError, CheckpointStore
from objectspace import PersistedObjectSpace

FORK = multiprocessing.get_context("fork")


def use(space: PersistedObjectSpace, path: Path, answers: Connection) -> None:
    """Do in a child what works in its parent: all of it is refused; a store that is opened here is read."""
    found = []
    for work in (space.checkpoint, space.rollback, lambda: space.store.reader().index(), lambda: space.get("b").copy()):
        try:
            found.append(f"{work()}")
        except CheckpointError as error:
            found.append(str(error))
    space.close()
    with CheckpointStore(path, read_only=True) as store:
        found.append(str(len(store.checkpoints())))
    answers.send(found)


def test_a_child_is_refused_and_its_parent_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with PersistedObjectSpace.open(path) as space:
        space.create_list("b").append(0)
        space.checkpoint()
        space.rollback()
        space.create_list("a").append(1)
        answers, theirs = multiprocessing.Pipe()
        child = FORK.Process(target=use, args=(space, path, theirs))
        child.start()
        *refused, number = answers.recv()
        child.join()
        assert child.exitcode == 0
        assert len(refused) == 4
        assert all("was opened before this process was forked" in answer for answer in refused), refused
        assert number == "1"
        with pytest.raises(CheckpointError, match="is being written by"):
            CheckpointStore(path)
        for number in range(3):
            space.get_list("a").append(number)
            space.checkpoint()
        assert space.store.verify()
    with PersistedObjectSpace.open(path) as again:
        assert list(again.get_list("a")) == [1, 0, 1, 2]


def test_a_store_in_memory_is_copied_with_its_process() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    space.create_list("a").append(1)
    answers, theirs = multiprocessing.Pipe()
    work = FORK.Process(target=lambda: theirs.send(space.checkpoint().slots))
    work.start()
    assert answers.recv() == 1
    work.join()
    assert space.checkpoint().slots == 1


def read(path: Path) -> None:
    """Read in a child what another process writes."""
    with CheckpointStore(path, read_only=True) as store:
        store.verify()


def test_a_child_is_not_hung_by_a_commit_of_another_thread(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with PersistedObjectSpace.open(path) as space:
        target, is_over = space.create_dictionary("d"), Event()

        def commit() -> None:
            while not is_over.is_set():
                target.update({key: time.time() for key in range(2_000)})
                space.checkpoint()

        thread = Thread(target=commit)
        thread.start()
        try:
            for work, given in [(space.store.checkpoints, ()), (read, (path,))] * 4:
                child = FORK.Process(target=work, args=given)
                child.start()
                child.join(30)
                is_hung = child.is_alive()
                child.kill()
                assert not is_hung
        finally:
            is_over.set()
            thread.join()
