"""A process that was forked leaves the stores of its parent alone."""

from __future__ import annotations

import multiprocessing
import re
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event, Thread

import pytest
from click.testing import CliRunner

from checkpoint import CheckpointError, CheckpointStore, inherited
from checkpoint.tool.command import cli, load
from objectspace import PersistedObjectSpace
from tests.checkpoint.store_helpers import child, first_line, quick_store, run_of
from tests.patience import PATIENCE

FORK = multiprocessing.get_context("fork")
SPAWN = multiprocessing.get_context("spawn")

REFUSED = re.compile(
    "^InheritedStoreError: .*was open in the process that this one was forked from.*spawn.*close the store before"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with quick_store(tmp_path / "state.db") as store:
        store.append(run_of({1: "a"}))
    return tmp_path / "state.db"


def tell(work: Callable[[], object], answers: Connection) -> None:
    """Send what some work returns, or is refused with."""
    try:
        answers.send(str(work()))
    except CheckpointError as error:
        answers.send(f"{type(error).__name__}: {error}")


def told(work: Callable[[], object], how: multiprocessing.context.BaseContext = FORK) -> str:
    """Return what some work in a child returns, or is refused with."""
    answers, theirs = how.Pipe(duplex=False)
    process = how.Process(target=tell, args=(work, theirs))  # type: ignore[attr-defined]
    process.start()
    process.join()
    assert process.exitcode == 0
    return str(answers.recv())


def numbers(path: Path) -> list[int]:
    """Return the numbers of the checkpoints, read only."""
    with CheckpointStore(path, read_only=True) as store:
        return [record.number for record in store.checkpoints()]


def following(path: Path) -> int:
    """Return the number of a checkpoint that is written."""
    with quick_store(path) as store:
        return store.append(run_of({1: "b"})).number


@pytest.mark.parametrize("is_reader", [False, True])
def test_a_child_is_refused_what_its_parent_has_open_by_whatever_path(path: Path, is_reader: bool) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    with CheckpointStore(path, read_only=is_reader) as store:
        for name in (path, link):
            assert REFUSED.match(told(partial(numbers, name)))
            assert REFUSED.match(told(partial(following, name)))
        assert REFUSED.match(told(store.reopen))
    assert numbers(path) == [1]


@pytest.mark.parametrize("words", ["log {}", "show {} a", "compact {}", "import {}.new {} rows", "fork {} {}.fork"])
def test_the_tool_refuses_it_too(path: Path, words: str) -> None:
    arguments = words.format(path, path).split()
    with quick_store(path):
        found = told(partial(output, arguments))
    assert "was open in the process that this one was forked from" in found
    assert sorted(path.parent.glob("state.db.[nf]*")) == []


def output(arguments: list[str]) -> str:
    """Return what a command prints, run in this process."""
    load()
    return CliRunner().invoke(cli, arguments).output


def test_a_fork_waits_until_no_other_thread_is_about_to_open_a_store(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is inside of SQLite at that moment holds its locks, in the child for ever."""
    entered, is_inside = Event(), []

    def look(*_: object) -> None:
        is_inside.append(True)
        entered.set()
        time.sleep(0.3)
        is_inside.clear()

    monkeypatch.setattr("checkpoint.recognised.recognise", look)
    thread = Thread(target=numbers, args=(path,))
    thread.start()
    assert entered.wait(PATIENCE)
    assert told(lambda: is_inside) == "[]"
    thread.join()


def test_a_fork_waits_for_nobody_without_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it waits for may wait for the thread that forks."""
    monkeypatch.setattr(inherited, "_PATIENCE_SECONDS", 0.2)
    entered, leave = Event(), Event()

    def hold(store: CheckpointStore) -> None:
        with inherited.OPENING, store.session.mutex:
            entered.set()
            leave.wait(PATIENCE)

    with quick_store(path.with_name("other.db")) as store:
        thread = Thread(target=hold, args=(store,))
        thread.start()
        assert entered.wait(PATIENCE)
        assert told(partial(numbers, path)) == "[1]"
        leave.set()
        thread.join()


def test_a_grandchild_is_refused_it_too(path: Path) -> None:
    with quick_store(path):
        assert REFUSED.match(told(partial(told, partial(numbers, path))))


def test_a_child_opens_what_its_parent_does_not_have_open(path: Path) -> None:
    other = path.with_name("other.db")
    with quick_store(other):
        assert told(partial(numbers, path)) == "[1]"
        assert told(partial(following, path)) == "2"
    assert told(partial(numbers, other)) == "[]"


def test_a_process_that_is_spawned_opens_what_its_parent_has_open(path: Path) -> None:
    with quick_store(path):
        assert told(partial(numbers, path), SPAWN) == "[1]"


def test_a_connection_that_was_handed_out_keeps_the_store_open(path: Path) -> None:
    connection = quick_store(path).database.conn
    assert REFUSED.match(told(partial(numbers, path)))
    connection.close()
    assert told(partial(numbers, path)) == "[1]"


def test_a_child_that_closes_what_its_parent_has_open_leaves_it_locked(path: Path) -> None:
    with PersistedObjectSpace.open(path) as space:
        for end in (space.close, space.store.close):
            told(end)
            assert path.with_name("state.db.owner").exists()
            assert told(partial(following, path), SPAWN).startswith("StoreLockedError: ")


_ENDS_LATER = """
import os, sys
from tests.checkpoint.store_helpers import quick_store
store = quick_store(sys.argv[1])
if os.fork():
    store.close()
    os._exit(0)
print("forked", flush=True)
sys.stdin.readline()
"""

_IS_KILLED = """
import os, sys
from tests.checkpoint.store_helpers import quick_store, run_of
print(quick_store(sys.argv[1]).append(run_of({1: "b"})).number, flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_child_that_ends_leaves_what_others_have_written_meanwhile(path: Path) -> None:
    with child(_ENDS_LATER, path) as ending:
        assert first_line(ending) == "forked"
        ending.wait()
        with child(_IS_KILLED, path) as killed:
            assert first_line(killed) == "2"
            killed.wait()
        assert ending.communicate("end")[0] == ""
    assert numbers(path) == [1, 2]


def test_a_child_is_refused_and_its_parent_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with PersistedObjectSpace.open(path) as space:
        space.create_list("b").append(0)
        space.checkpoint()
        space.rollback()
        space.create_list("a").append(1)
        rows = iter(space.store.reader().items_by_rank(space.get("b")._id))
        next(rows)
        works = (space.checkpoint, space.rollback, space.store.reader().index, space.get("b").copy, partial(list, rows))
        for work in works:
            assert re.match("InheritedStoreError: .* was opened before this process was forked", told(work))
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
            for work in [space.store.checkpoints, partial(numbers, path)] * 4:
                process = FORK.Process(target=work)
                process.start()
                process.join(30)
                is_hung = process.is_alive()
                process.kill()
                assert not is_hung
        finally:
            is_over.set()
            thread.join()
