"""Reads in quick succession share a transaction, which nobody else notices."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

import pytest

from checkpoint import CheckpointError, CheckpointStore, WriterState, session
from checkpoint.write_ahead_log import LOG_BYTES
from tests.checkpoint.store_helpers import Fault, FaultyConnection, child, first_line, quick_store, run_of, values_in


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def store(path: Path) -> Iterator[CheckpointStore]:
    with quick_store(path) as opened:
        opened.append(run_of(dict.fromkeys(range(50), "old")))
        yield opened


def read_quickly(store: CheckpointStore, count: int = 50) -> set[object]:
    reader = store.reader()
    return {item.value for slot in range(count) if (item := reader.item(1, slot)) is not None}


def is_holding(store: CheckpointStore) -> bool:
    connection = store.session._connection
    return connection is not None and connection.in_transaction


def test_one_read_holds_nothing_and_many_share_a_transaction(store: CheckpointStore) -> None:
    store.reader().item(1, 1)
    assert not is_holding(store)
    read_quickly(store)
    assert is_holding(store)


def test_every_other_use_ends_it(store: CheckpointStore) -> None:
    uses: dict[str, Callable[[], object]] = {
        "append": lambda: store.append(run_of({1: "new"})),
        "scan": lambda: values_in(store.reader()),
        "verify": store.verify,
        "truncate": lambda: store.truncate_after(1),
        "compact": store.compact,
        "shrink": store.session.shrink,
        "reopen": store.reopen,
        "prune": lambda: store.prune(keep=1),
    }
    for name, use in uses.items():
        read_quickly(store)
        assert is_holding(store), name
        use()
        assert not is_holding(store), name


def test_what_is_written_between_reads_is_read(store: CheckpointStore) -> None:
    for value in range(30):
        store.append(run_of(dict.fromkeys(range(50), value)))
        assert read_quickly(store) == {str(value)}


def test_what_others_do_to_the_file_is_seen_after_a_moment(store: CheckpointStore, path: Path) -> None:
    reader = store.reader()
    reader.item(1, 1)
    reader.item(1, 2)
    with sqlite3.connect(path) as other:
        other.execute("UPDATE state_item SET value = 'damaged'")
    end = time.monotonic() + 100 * session._HOLD_SECONDS
    while (found := reader.item(1, 1)) is not None and found.value != "damaged":
        assert time.monotonic() < end, "never seen"


def test_who_gets_the_connection_finds_it_free(store: CheckpointStore, path: Path) -> None:
    read_quickly(store)
    store.database.conn.execute("CREATE TABLE mine (a)")
    read_quickly(store)
    store.database.conn.execute("INSERT INTO mine VALUES (1)")
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT a FROM mine").fetchall() == [(1,)]


def test_an_iteration_goes_on_while_slots_are_read(store: CheckpointStore) -> None:
    store.append(run_of(dict.fromkeys(range(0, 5000, 2), "new")))
    reader, found = store.reader(), []
    for item in reader.items(1, page_rows=16):
        read_quickly(store, 3)
        found.append(item.slot)
    for item in reader.items_by_rank(1, limit=100):
        read_quickly(store, 3)
        assert item.value in ('"old"', '"new"')
    assert found == sorted({*range(50), *range(0, 5_000, 2)})


def test_the_log_is_copied_and_cut_while_slots_are_read(store: CheckpointStore, path: Path) -> None:
    log = path.with_name("state.db-wal")
    for number in range(40):
        store.append(run_of(dict.fromkeys(range(2_000), f"{number}" * 100)))
        read_quickly(store)
    assert log.stat().st_size < 4 * LOG_BYTES
    store.close()
    assert not log.exists()


_READ_FOR_EVER = """
import sys
from checkpoint import CheckpointStore
with CheckpointStore(sys.argv[1], read_only=True) as store:
    reader = store.reader()
    print("reading")
    while True:
        reader.item(1, 1)
"""


def test_readers_in_other_processes_hold_what_they_opened(store: CheckpointStore, path: Path) -> None:
    with child(_READ_FOR_EVER, path) as reading:
        assert first_line(reading) == "reading"
        for number in range(5):
            store.append(run_of({1: number}))
            assert store.reader().item(1, 1) == (1, str(number), None)
        assert reading.poll() is None


@pytest.mark.parametrize("at", range(1, 8))
def test_a_failing_lock_is_an_error_of_the_store(path: Path, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.Session, "factory", FaultyConnection)
    with quick_store(path) as store:
        store.append(run_of({1: "a"}))
        monkeypatch.setattr(FaultyConnection, "fault", Fault(at, sqlite3.SQLITE_IOERR))
        with pytest.raises(CheckpointError, match="injected"):
            for _ in range(10):
                store.reader().item(1, 1)
                store.reader().item(1, 1)
                store.checkpoints()
        monkeypatch.setattr(FaultyConnection, "fault", None)
        store.reopen()
        assert read_quickly(store) == {'"a"'}


class Interrupted(sqlite3.Connection):
    """A connection whose user presses Ctrl-C just after a statement."""

    after: ClassVar[str] = ""

    def execute(self, *args: Any) -> sqlite3.Cursor:
        done = super().execute(*args)
        if args[0] == Interrupted.after:
            Interrupted.after = ""
            raise KeyboardInterrupt
        return done


@pytest.mark.parametrize("after", ["BEGIN", "COMMIT"])
def test_an_interrupt_leaves_no_transaction_behind(path: Path, after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.Session, "factory", Interrupted)
    with quick_store(path) as store:
        store.append(run_of({1: "a"}))
        monkeypatch.setattr(Interrupted, "after", after)
        with pytest.raises(KeyboardInterrupt):
            for _ in range(5):
                store.reader().item(1, 1)
                store.reader().item(1, 1)
                store.checkpoints()
        store.append(run_of({1: "b"}))
        assert read_quickly(store, 2) == {'"b"'}
        store.compact()


@pytest.mark.parametrize("code", [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL])
def test_a_shared_read_that_cannot_end_is_ended_by_the_next_use(
    path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session.Session, "factory", FaultyConnection)
    with quick_store(path) as store:
        store.append(run_of({1: "a"}))
        read_quickly(store, 9)
        monkeypatch.setattr(FaultyConnection, "fault", Fault(1, code))
        with pytest.raises(CheckpointError, match="injected"):
            store.checkpoints()
        monkeypatch.setattr(FaultyConnection, "fault", None)
        store.append(run_of({1: "b"}))
        assert not is_holding(store)
        assert read_quickly(store, 2) == {'"b"'}


def test_a_writer_is_given_once_the_store_is_open_again(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, is_opening, may_open = session.Session._connect, Event(), Event()

    def connect_late(opened: session.Session) -> sqlite3.Connection:
        is_opening.set()
        assert may_open.wait(60)
        return connect(opened)

    monkeypatch.setattr(session.Session, "_connect", connect_late)
    with ThreadPoolExecutor(2) as threads:
        reopening = threads.submit(store.reopen)
        assert is_opening.wait(60)
        asking = threads.submit(store.writer)
        assert not wait([asking], 0.1).done
        may_open.set()
        assert asking.result().state is WriterState.OPEN
        reopening.result()


def test_a_writer_is_given_without_ending_what_another_thread_does(store: CheckpointStore) -> None:
    read_quickly(store)
    store.writer()
    assert is_holding(store)


def test_a_scan_waits_for_no_other_scan(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    peek, has_asked, may_go_on = session.Session.peek, Event(), Event()

    def peek_late(opened: session.Session, statement: str, parameters: tuple[Any, ...]) -> Any:
        if "state_large" in statement and not has_asked.is_set():
            has_asked.set()
            assert may_go_on.wait(60)
        return peek(opened, statement, parameters)

    monkeypatch.setattr(session.Session, "peek", peek_late)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(list, store.reader().items(1, page_rows=1024))
        assert has_asked.wait(60)
        second = threads.submit(list, store.reader().items(1, page_rows=1024))
        is_done = bool(wait([second], 10).done)
        may_go_on.set()
        assert is_done
        assert first.result() == second.result()


@pytest.mark.parametrize("is_reader", [False, True])
def test_an_iteration_goes_on_while_the_store_is_opened_again(store: CheckpointStore, is_reader: bool) -> None:
    store.append(run_of(dict.fromkeys(range(5_000), "new")))
    with CheckpointStore(store.path, read_only=True) if is_reader else nullcontext(store) as used:
        rows, others = used.reader().items_by_rank(1), used.reader().items_by_rank(1)
        found = [next(rows).slot, next(others).slot]
        connection = used.session._connection
        assert connection is not None
        store.append(run_of(dict.fromkeys(range(5_000), "newer")))
        used.reopen()
        assert used.reader().item(1, 7) == (7, '"newer"', None)
        assert {item.value for item in rows} == {'"new"'}
        assert connection.total_changes >= 0
        others.close()
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")
    assert found == [0, 0]


def test_a_store_that_is_closed_ends_its_iterations_also_those_from_before(store: CheckpointStore) -> None:
    store.append(run_of(dict.fromkeys(range(5_000), "new")))
    rows = store.reader().items_by_rank(1)
    next(rows)
    connection = store.session._connection
    assert connection is not None
    store.reopen()
    store.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
    with pytest.raises(CheckpointError, match="is closed: open the store again"):
        list(rows)


def test_an_iteration_ends_where_the_file_system_failed_under_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.Session, "factory", FaultyConnection)
    with quick_store(path) as store:
        store.append(run_of(dict.fromkeys(range(5_000), "a")))
        rows = store.reader().items_by_rank(1)
        next(rows)
        monkeypatch.setattr(FaultyConnection, "fault", Fault(1, sqlite3.SQLITE_IOERR))
        with pytest.raises(CheckpointError, match="injected"):
            store.checkpoints()
        monkeypatch.setattr(FaultyConnection, "fault", None)
        store.reopen()
        with pytest.raises(RuntimeError, match="reopened while an iteration over it was under way: iterate again"):
            list(rows)
        assert read_quickly(store) == {'"a"'}
