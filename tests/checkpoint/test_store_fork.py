"""Forks: an independent file as of an epoch, complete or absent, which overwrites nothing."""

from __future__ import annotations

import errno
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from checkpoint import CheckpointError, CheckpointStore, CorruptStoreError, UnknownCheckpointError
from objectspace import PersistedObjectSpace
from tests.checkpoint.store_helpers import Fault, crash_points, image_of, quick_store, run_of, values_in
from tests.checkpoint.world import World, store_of


@pytest.mark.parametrize("history", [1, 4, 60])
def test_a_fork_shows_every_checkpoint_that_its_origin_could(tmp_path: Path, history: int) -> None:
    world = World(random.Random(history))
    store = store_of([world.run() for _ in range(50)], history)
    kept = [record for record in store.checkpoints() if record.run_slots is not None]
    for record in kept[-8:]:
        path = tmp_path / f"{record.number}.db"
        store.fork(path, epoch=record.epoch)
        with quick_store(path, history=history) as fork:
            assert fork.checkpoints() == [known for known in store.checkpoints() if known.number <= record.number]
            assert image_of(fork.reader()) == image_of(store.reader(record.number))
            assert image_of(fork.reader(kept[0].number)) == image_of(store.reader(kept[0].number))
            assert fork.verify() == len([known for known in kept if known.number <= record.number])
            assert list(fork.diff(fork.reader(), store.reader())) == list(store.diff(record.number))


def test_a_fork_and_its_origin_go_their_own_ways(tmp_path: Path) -> None:
    space = PersistedObjectSpace.open(tmp_path / "state.db")
    log = space.create_list("log")
    for epoch, word in ((10, "early"), (20, "later")):
        log.append(word)
        space.checkpoint(epoch=epoch)
    space.store.fork(tmp_path / "fork.db", epoch=10)
    fork = PersistedObjectSpace.open(tmp_path / "fork.db")
    fork.get_list("log").append(11)
    fork.create_value("v", 1)
    fork.checkpoint(epoch=11)
    log.append(30)
    space.checkpoint()
    assert list(fork.get_list("log")) == ["early", 11]
    assert (list(log), list(space)) == (["early", "later", 30], ["log"])
    space.close()
    fork.close()
    assert b"later" not in (tmp_path / "fork.db").read_bytes()


def test_a_read_only_store_and_an_empty_one_can_be_forked(tmp_path: Path) -> None:
    with quick_store(tmp_path / "state.db") as store:
        store.fork(tmp_path / "empty.db")
        store.append(run_of({1: "a"}))
        with quick_store(tmp_path / "state.db", read_only=True) as reading:
            store.append(run_of({1: "b"}))
            reading.fork(tmp_path / "a.db")
    with quick_store(tmp_path / "a.db", read_only=True) as fork, quick_store(tmp_path / "empty.db") as empty:
        assert values_in(fork.reader()) == {1: "a"}
        assert empty.checkpoints() == []
        assert empty.append(run_of({1: "c"})).number == 1


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE checkpoint SET bytes = bytes + 64 WHERE number = 9",
        "UPDATE checkpoint SET digest = upper(digest) WHERE number = 9",
        "UPDATE checkpoint SET epoch = 1000 WHERE number = 9",
        "UPDATE run SET last = last - 1",
        "INSERT INTO state_item VALUES (0.5, 1, 7, '7', NULL)",
        "DELETE FROM setting WHERE key = 'next_object_id'",
        "UPDATE state_large SET checkpoint = 7 WHERE checkpoint = 5",
    ],
)
def test_a_fork_takes_no_damage_along(tmp_path: Path, damage: str) -> None:
    world = World(random.Random(5))
    store = store_of([world.run() for _ in range(50)], 60)
    store.database.conn.execute(damage)
    with pytest.raises(CorruptStoreError):
        store.verify()
    with pytest.raises(CorruptStoreError):
        store.fork(tmp_path / "fork.db")
    assert list(tmp_path.iterdir()) == []


def test_a_fork_leaves_out_damage_after_its_checkpoint_and_what_only_makes_reads_quick(tmp_path: Path) -> None:
    store = quick_store(":memory:", history=100)
    for number in range(1, 5):
        store.append(run_of(dict.fromkeys(range(5000 * number), number)))
    execute = store.database.conn.execute
    execute("UPDATE span SET low = low - 1 WHERE run = 3")
    execute("UPDATE filter SET flags = zeroblob(length(flags)) WHERE run = 3")
    execute("UPDATE checkpoint SET bytes = 0 WHERE number = 4")
    execute("INSERT INTO state_item VALUES (5, 1, 7, '7', NULL)")
    expected = values_in(store.reader(3))
    store.fork(tmp_path / "fork.db", epoch=3)
    with quick_store(tmp_path / "fork.db") as fork:
        assert fork.verify() == 3
        assert values_in(fork.reader()) == expected
        assert [row[0] for row in fork.database.execute("SELECT run FROM filter")] == [2]


def test_a_fork_overwrites_nothing(tmp_path: Path) -> None:
    store = quick_store(":memory:")
    store.append(run_of({1: "a"}))
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "left.db-wal").write_bytes(b"")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("taken", "left.db", "dangling"):
        with pytest.raises(CheckpointError, match="exists: a fork overwrites nothing"):
            store.fork(tmp_path / name)
    with pytest.raises(CheckpointError, match=r"the folder .* does not exist"):
        store.fork(tmp_path / "no" / "fork.db")
    with pytest.raises(CheckpointError, match="NUL"):
        store.fork("a\0b")
    with pytest.raises(UnknownCheckpointError, match="no epoch 9"):
        store.fork(tmp_path / "fork.db", epoch=9)
    assert sorted(os.listdir(tmp_path)) == ["dangling", "left.db-wal", "taken"]
    assert (tmp_path / "taken").read_text() == "mine"


def test_without_hard_links_a_rename_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    store = quick_store(":memory:")
    store.fork(tmp_path / "fork.db")
    with pytest.raises(CheckpointError, match="exists"):
        store.fork(tmp_path / "fork.db")
    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(CheckpointError, match="see to its disk"):
        store.fork(tmp_path / "other.db")
    assert os.listdir(tmp_path) == ["fork.db"]


def test_a_fork_survives_every_crash_point(
    tmp_path: Path, inject: Callable[[Fault | None], None], some_fault: dict[str, Any], apart: int
) -> None:
    target = tmp_path / "fork.db"
    with quick_store(tmp_path / "state.db", history=2) as store:
        for number in range(9):
            store.append(run_of({number: number}))
    points = 0

    def work() -> None:
        with CheckpointStore(tmp_path / "state.db", history=2) as store:
            store.fork(target, epoch=8)

    for _ in crash_points(inject, some_fault, work, apart):
        if target.exists():
            assert_complete(target)
        points += 1
        assert not list(tmp_path.glob(".fork*"))
        target.unlink(missing_ok=True)
    assert_complete(target)
    print(f"{points} crash points tried: {some_fault}")
    assert apart * points > 15


def assert_complete(path: Path) -> None:
    with quick_store(path) as fork:
        assert values_in(fork.reader()) == {number: number for number in range(8)}
        assert fork.verify() > 0


def test_a_fork_for_which_no_file_can_be_opened_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def fail(*_: Any) -> NoReturn:
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise error

    with quick_store(tmp_path / "state.db") as store:
        store.append(run_of({1: "a"}))
        with monkeypatch.context() as patched:
            patched.setattr("checkpoint.fork._write", fail)
            patched.setattr(os, "open", refuse)
            with pytest.raises(
                CheckpointError, match=r"fork\.db cannot be written .*: this process has too many files"
            ):
                store.fork(tmp_path / "fork.db")
        store.fork(tmp_path / "fork.db")


@pytest.mark.parametrize("is_founded", [False, True])
def test_a_copy_of_the_file_alone_is_an_older_state_and_no_new_store(tmp_path: Path, is_founded: bool) -> None:
    if is_founded:
        quick_store(tmp_path / "state.db").close()
    with quick_store(tmp_path / "state.db") as store:
        for number in range(1, 4):
            store.append(run_of({number: "a"}))
            shutil.copy(store.path, tmp_path / "copy.db")
            with quick_store(tmp_path / "copy.db", read_only=True) as copied:
                assert values_in(copied.reader()) == {1: "a"}


def test_a_copy_of_the_file_alone_is_whole_again_once_a_reader_that_came_first_has_gone(tmp_path: Path) -> None:
    with quick_store(tmp_path / "state.db") as store:
        with quick_store(store.path, read_only=True):
            store.append(run_of({1: "a"}))
        store.append(run_of({2: "a"}))
        shutil.copy(store.path, tmp_path / "copy.db")
        with quick_store(tmp_path / "copy.db", read_only=True) as copied:
            assert copied.verify() == 2
