"""One writer a store, in this process and among processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from checkpoint import CheckpointError, CheckpointStore, StoreFailedError, StoreLockedError
from checkpoint.lock import owner_of
from checkpoint.session import Session
from tests.checkpoint.store_helpers import child, first_line, other_lines, quick_store, run_of, values_in

HOLDER = """
import sys
from tests.checkpoint.store_helpers import quick_store, run_of
store = quick_store(sys.argv[1])
store.append(run_of({1: "a"}))
print("ready")
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def test_a_second_writer_in_this_process_is_told_who_the_first_is(path: Path) -> None:
    with quick_store(path) as store:
        with pytest.raises(
            StoreLockedError, match=f"by this process itself .process {os.getpid()} on .*handed to it: store.close"
        ):
            quick_store(path)
        store.append(run_of({1: "a"}))
    with quick_store(path) as store:
        assert values_in(store.reader()) == {1: "a"}


def test_a_second_writer_in_another_process_is_told_who_the_first_is(path: Path) -> None:
    with child(HOLDER, path) as process:
        assert first_line(process) == "ready"
        with pytest.raises(StoreLockedError, match=f"process {process.pid} on {socket.gethostname()}"):
            quick_store(path)
        with CheckpointStore(path, read_only=True) as store:
            assert values_in(store.reader()) == {1: "a"}


def test_the_lock_of_a_killed_process_is_taken_over(path: Path) -> None:
    with child(HOLDER, path) as process:
        assert first_line(process) == "ready"
        process.send_signal(signal.SIGKILL)
        process.wait()
        with quick_store(path) as store:
            assert values_in(store.reader()) == {1: "a"}
            assert store.append(run_of({2: "b"})).number == 2


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_writer_whose_lock_file_is_gone_changes_nothing(path: Path, is_replaced: bool) -> None:
    with quick_store(path) as store:
        store.append(run_of({1: "a"}))
        store.append(run_of({1: "b"}))
        path.with_name("state.db.lock").unlink()
        if is_replaced:
            with quick_store(path) as other:
                other.append(run_of({1: "c"}))
        works: tuple[Callable[[], object], ...] = (
            lambda: store.append(run_of({1: "d"})),
            lambda: store.truncate_after(1),
            store.compact,
            lambda: store.prune(keep=1),
            lambda: store.configure(history=2),
            store.reopen,
        )
        for work in works:
            with pytest.raises(CheckpointError, match=r"state\.db\.lock was removed or replaced"):
                work()
    with quick_store(path) as again:
        assert values_in(again.reader()) == {1: "c" if is_replaced else "b"}
        assert again.verify()


def test_a_compaction_ends_where_the_lock_file_goes_meanwhile(path: Path) -> None:
    def tell(done: int, total: int) -> None:
        if lock.exists():
            lock.unlink()
            with quick_store(path) as other:
                other.append(run_of({1: "other"}))

    lock = path.with_name("state.db.lock")
    with quick_store(path) as store:
        for number in range(20):
            store.append(run_of({1: number, number: 0}))
        with pytest.raises(CheckpointError, match=r"state\.db\.lock was removed or replaced"):
            store.compact(tell)
    with quick_store(path, read_only=True) as again:
        assert values_in(again.reader())[1] == "other"
        assert again.verify()


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_log_that_is_gone_is_noticed_and_nothing_committed_is_lost(path: Path, is_replaced: bool) -> None:
    log = path.with_name("state.db-wal")
    with quick_store(path) as store:
        store.append(run_of({1: "a"}))
        store.append(run_of({1: "b"}))
        log.unlink()
        if is_replaced:
            log.touch()
        with pytest.raises(StoreFailedError, match=r"state\.db-wal was removed .* was copied .* call reopen\(\)"):
            store.append(run_of({1: "c"}))
        with pytest.raises(StoreFailedError, match=r"until it is opened again .*log.*: call reopen\(\)"):
            store.append(run_of({1: "c"}))
        store.reopen()
        assert values_in(store.reader()) == {1: "b"}
        assert store.append(run_of({1: "c"})).number == 3
    with quick_store(path) as again:
        assert values_in(again.reader()) == {1: "c"}
        assert again.verify()


GLANCE = """
import sys
from checkpoint import CheckpointError, CheckpointStore
try:
    CheckpointStore(sys.argv[1], read_only=True).close()
except CheckpointError as error:
    print(type(error).__name__)
print("looked")
"""


@pytest.mark.parametrize("read_only", [False, True])
def test_whoever_looks_at_a_store_whose_log_is_gone_takes_nothing_of_it(path: Path, read_only: bool) -> None:
    """The index of the log is still locked: opening and closing it here would let another process begin a new one."""
    with quick_store(path) as store:
        store.append(run_of({1: "a"}))
        path.with_name("state.db-wal").unlink()
        with pytest.raises(StoreLockedError) if not read_only else suppress(CheckpointError):
            CheckpointStore(path, read_only=read_only).close()
        with child(GLANCE, path) as process:
            assert other_lines(process)[-1] == "looked"
        with pytest.raises(StoreFailedError, match=r"state\.db-wal was removed .* was copied"):
            store.append(run_of({1: "b"}))
    with quick_store(path) as again:
        assert values_in(again.reader()) == {1: "a"}


def test_a_log_that_is_gone_is_kept_until_no_reader_is_left(path: Path) -> None:
    with quick_store(path) as store:
        store.append(run_of({1: "a"}))
        with CheckpointStore(path, read_only=True) as reader:
            for number in range(20):
                store.append(run_of({1: number}))
            path.with_name("state.db-wal").unlink()
            for work in (lambda: store.append(run_of({1: "b"})), store.reopen, store.reopen):
                with pytest.raises(StoreFailedError, match="a reader holds an older checkpoint: close every reader"):
                    work()
            assert values_in(reader.reader()) == {1: "a"}
            with pytest.warns(RuntimeWarning, match="closing the store before every"):
                store.session._log.warn_if_lost(store.session.connection)
        store.reopen()
        assert values_in(store.reader()) == {1: 19}
        store.append(run_of({1: "b"}))
    with quick_store(path) as again:
        assert values_in(again.reader()) == {1: "b"}
        assert again.verify()


def test_a_log_that_goes_during_a_commit_is_noticed_and_the_checkpoint_is_there(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Connection(sqlite3.Connection):
        def execute(self, statement: str, *given: Any) -> sqlite3.Cursor:
            if statement == "COMMIT" and gone:
                gone.pop().unlink()
            return super().execute(statement, *given)

    gone: list[Path] = []
    monkeypatch.setattr(Session, "factory", Connection)
    with quick_store(path) as store:
        store.append(run_of({1: "a"}))
        gone.append(path.with_name("state.db-wal"))
        with pytest.raises(StoreFailedError, match="was removed or replaced"):
            store.append(run_of({1: "b"}))
        store.reopen()
        assert values_in(store.reader()) == {1: "b"}


LOOK = (
    "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM checkpoint').fetchall(); c.close()"
)


def test_a_program_that_reads_its_own_file_loses_no_checkpoint_to_the_next_that_looks(path: Path) -> None:
    with quick_store(path) as store:
        store.append(run_of({1: "a"}))
        path.read_bytes()  # Closing the file ends the locks of this process, except those of newer SQLites.
        subprocess.run([sys.executable, "-c", LOOK, path], check=True)
        if not path.with_name("state.db-wal").exists():
            with pytest.raises(StoreFailedError, match="was removed or replaced"):
                store.append(run_of({1: "b"}))
            store.reopen()
        store.append(run_of({1: "b"}))
    with quick_store(path) as again:
        assert values_in(again.reader()) == {1: "b"}


def test_two_names_of_one_file_are_one_store(path: Path) -> None:
    alias = path.with_name("alias.db")
    with quick_store(path):
        alias.symlink_to(path)
        with pytest.raises(StoreLockedError):
            quick_store(alias)
    with quick_store(alias), pytest.raises(StoreLockedError):
        quick_store(path)


def test_a_store_may_be_closed_by_another_thread(path: Path) -> None:
    store = quick_store(path)
    thread = threading.Thread(target=store.close)
    thread.start()
    thread.join()
    with quick_store(path) as again:
        assert again.checkpoints() == []


def test_an_owner_that_cannot_be_read_is_another_process(path: Path) -> None:
    with quick_store(path):
        path.with_name("state.db.owner").write_text("[]")
        with pytest.raises(StoreLockedError, match="another process"):
            quick_store(path)


@pytest.mark.parametrize("pid", [2**31, 2**63, 10**18])
def test_an_owner_with_a_number_that_no_process_has_is_gone(path: Path, pid: int) -> None:
    quick_store(path).close()
    note = path.with_name("state.db.owner")
    note.write_text(json.dumps({"pid": pid, "host": socket.gethostname()}))
    assert owner_of(path) is None
    note.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
    assert owner_of(path) == f"process {os.getpid()} on {socket.gethostname()}"


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Have this process be root; return to whom it gives files."""
    given: list[tuple[int, int]] = []
    of_file = os.fstat

    def fstat(opened: int) -> os.stat_result:
        found = of_file(opened)
        return os.stat_result((*found[:4], 0, 0, *found[6:]))

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fstat", fstat)
    monkeypatch.setattr(os, "fchown", lambda opened, *whose: given.append(whose))
    return given


def owned_by(user: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a user own each file by its name."""
    at = Path.stat

    def stat(file: Path, **more: Any) -> os.stat_result:
        found = at(file, **more)
        return os.stat_result((*found[:4], user, user, *found[6:]))

    monkeypatch.setattr(Path, "stat", stat)


@pytest.mark.parametrize("owner", [0, 4711])
def test_a_lock_that_root_makes_belongs_to_the_owner_of_the_store(
    path: Path, monkeypatch: pytest.MonkeyPatch, given: list[tuple[int, int]], owner: int
) -> None:
    owned_by(owner, monkeypatch)
    quick_store(path).close()
    quick_store(path).close()
    assert given == ([(owner, owner)] if owner else [])


def test_root_gives_away_and_writes_no_other_file_that_was_put_in_the_place_of_its_own(
    path: Path, monkeypatch: pytest.MonkeyPatch, given: list[tuple[int, int]]
) -> None:
    quick_store(path).close()
    owned_by(4711, monkeypatch)
    other = path.with_name("of root")
    other.write_text("of root")
    lock = path.with_name("state.db.lock")
    lock.unlink()
    lock.hardlink_to(other)
    path.with_name("state.db.owner").symlink_to(other)
    with quick_store(path):
        assert owner_of(path) == f"process {os.getpid()} on {socket.gethostname()}", "its note is a file of its own"
    assert (given, other.read_text()) == ([], "of root")


def test_a_store_that_failed_to_open_leaves_no_lock(path: Path) -> None:
    path.write_bytes(b"no database, but long enough to look like one" * 20)
    for _ in range(2):
        with pytest.raises(Exception, match="no checkpoint store"):
            quick_store(path)
    path.unlink()
    with quick_store(path) as store:
        assert store.checkpoints() == []
