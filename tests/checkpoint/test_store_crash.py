"""Every crash point: whichever statement fails, and however, the store is at checkpoint k or k+1 and goes on."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import _GeneratorContextManager, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest

from checkpoint import CheckpointError, CheckpointStore, Run, StoreFailedError
from checkpoint.session import Session
from checkpoint.tiers import FAN_IN
from objectspace import PersistedObjectSpace
from tests.checkpoint.store_helpers import FAULTS, FULL, Fault, Inject, crash_points, quick_store, run_of, values_in
from tests.golden import format_1
from tests.objects.interruptions import interrupted
from tests.tally import TALLY

DUE = FAN_IN + 1
"""After so many checkpoints, two of which are kept, the next one begins a merge."""


def change(epoch: int) -> dict[int, Any]:
    """Return the slots that an epoch changes: the values of two of them lie beside their rows."""
    small = {epoch % 7: epoch, (epoch + 3) % 7: None if epoch % 4 == 0 else -epoch}
    return small | {100: f"{epoch:0600}", 100 + epoch % 3: None if epoch % 5 == 0 else f"{-epoch:0600}"}


def state_at(epoch: int) -> dict[int, Any]:
    state: dict[int, Any] = {}
    for step in range(1, epoch + 1):
        state |= change(step)
    return {slot: value for slot, value in sorted(state.items()) if value is not None}


def advance(store: CheckpointStore, epoch: int) -> None:
    store.append(run_of(change(epoch), FULL if epoch % (DUE + 3) == 0 else "differential"), epoch)


def epoch_of(store: CheckpointStore) -> int:
    records = store.checkpoints()
    return records[-1].epoch if records else 0


def prepare(folder: Path, epochs: int) -> Path:
    """Return a store that is about to merge, in a folder that is copied for every crash point."""
    folder.mkdir()
    with quick_store(folder / "state.db", history=2) as store:
        for epoch in range(1, epochs + 1):
            store.append(run_of(change(epoch)), epoch)
    return folder


def assert_goes_on(path: Path, acknowledged: int, allowed: set[int]) -> None:
    with quick_store(path, history=2) as store:
        epoch = epoch_of(store)
        assert epoch in allowed, (epoch, acknowledged)
        assert values_in(store.reader()) == state_at(epoch)
        store.verify()
        advance(store, epoch + 1)
        assert values_in(store.reader()) == state_at(epoch + 1)
        store.verify()


STEP = 7
"""One statement in so many of what takes hundreds fails in turn, unless all are asked for."""


def test_checkpoints_and_merges_survive_every_crash_point(
    tmp_path: Path, inject: Inject, some_fault: dict[str, Any], at_scale: bool, apart: int
) -> None:
    begin = prepare(tmp_path / "begin", DUE)
    path = tmp_path / "run" / "state.db"
    acknowledged = DUE

    def work() -> None:
        nonlocal acknowledged
        shutil.copytree(begin, path.parent, dirs_exist_ok=True)
        acknowledged = DUE
        with quick_store(path, history=2) as store:
            for epoch in range(DUE + 1, DUE + 4):
                advance(store, epoch)
                acknowledged = epoch

    points = 0
    for _ in crash_points(inject, some_fault, work, step=1 if at_scale else STEP * apart):
        assert_goes_on(path, acknowledged, {acknowledged, acknowledged + 1})
        shutil.rmtree(path.parent)
        points += 1
    print(f"{points} crash points tried: {some_fault}")
    assert apart * points > 15
    assert acknowledged == DUE + 3


def test_creating_a_store_survives_every_crash_point(
    tmp_path: Path, inject: Inject, some_fault: dict[str, Any]
) -> None:
    path = tmp_path / "state.db"
    points = 0
    for _ in crash_points(inject, some_fault, lambda: quick_store(path).close()):
        assert_goes_on(path, 0, {0})
        for file in tmp_path.iterdir():
            file.unlink()
        points += 1
    print(f"{points} crash points tried: {some_fault}")
    assert points > 5


def test_the_upgrade_of_an_older_format_survives_every_crash_point(
    tmp_path: Path, inject: Inject, some_fault: dict[str, Any], apart: int
) -> None:
    path = tmp_path / "state.db"

    def work() -> None:
        shutil.copy(format_1.PATH, path)
        quick_store(path).close()

    points = 0
    for _ in crash_points(inject, some_fault, work, apart):
        for read_only in (True, False):
            with PersistedObjectSpace.open(path, read_only=read_only) as space:
                assert format_1.contents(space) == format_1.SECOND
                assert space.store.verify() == 3
        with PersistedObjectSpace.open(path) as space:
            space.get_list("list").append("more")
            space.checkpoint()
            assert space.store.verify() == 4
        for file in tmp_path.iterdir():
            file.unlink()
        points += 1
    print(f"{points} crash points tried: {some_fault}")
    assert apart * points > 10


def test_a_rollback_survives_every_crash_point(
    tmp_path: Path, inject: Inject, some_fault: dict[str, Any], apart: int
) -> None:
    begin = prepare(tmp_path / "begin", DUE)
    path = tmp_path / "run" / "state.db"

    def work() -> None:
        shutil.copytree(begin, path.parent, dirs_exist_ok=True)
        with quick_store(path, history=2) as store:
            store.truncate_after(DUE - 1)

    points = 0
    for _ in crash_points(inject, some_fault, work, apart):
        assert_goes_on(path, DUE, {DUE - 1, DUE})
        shutil.rmtree(path.parent)
        points += 1
    print(f"{points} crash points tried: {some_fault}")
    assert apart * points > 10


@pytest.mark.parametrize("late", [False, True])
def test_after_an_error_of_the_disk_nothing_is_written_before_reopening(
    tmp_path: Path, inject: Inject, late: bool
) -> None:
    fault = {"code": sqlite3.SQLITE_IOERR, "late": late}
    points = 0
    inject(None)
    with quick_store(tmp_path / "state.db", history=2) as store:
        for at in range(1, 6):
            run, number = run_of({1: at, 10 + at: "x"}), store.next_number()
            inject(Fault(at, **fault))
            with pytest.raises(StoreFailedError, match=r"reopen\(\)"):
                store.append(run)
            inject(None)
            with pytest.raises(StoreFailedError, match="takes no writes"):
                store.append(run)
            with pytest.raises(StoreFailedError):
                store.holds(number, run)
            store.reopen()
            if not store.holds(number, run):
                store.append(run)
            assert values_in(store.reader())[1] == at
            assert (store.next_number(), store.verify() > 0) == (number + 1, True)
            points += 1
    assert points == 5


def test_when_the_disk_is_full_a_retry_works(tmp_path: Path, inject: Inject) -> None:
    inject(None)
    with quick_store(tmp_path / "state.db", history=2) as store:
        for at in range(1, 6):
            inject(Fault(at, sqlite3.SQLITE_FULL))
            with pytest.raises(CheckpointError, match="free some and try again"):
                store.append(run_of({1: at}))
            inject(None)
            assert store.append(run_of({1: at})).number == at
            assert values_in(store.reader()) == {1: at}


def test_what_cannot_be_taken_back_is_not_shown(tmp_path: Path, inject: Inject) -> None:
    inject(None)
    with quick_store(tmp_path / "state.db") as store:
        store.append(run_of({1: "a"}))
        inject(Fault(4, sqlite3.SQLITE_FULL, lasting=True))
        with pytest.raises(CheckpointError, match="try again"):
            store.append(run_of({1: "b"}))
        inject(None)
        with pytest.raises(StoreFailedError, match=r"reopen\(\)"):
            store.append(run_of({1: "b"}))
        store.reopen()
        assert values_in(store.reader()) == {1: "a"}
        assert store.append(run_of({1: "b"})).number == 2


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if not fault["lasting"]], ids=str)
@pytest.mark.parametrize("kind", ["full", "differential"])
def test_edits_in_a_space_outlive_every_failed_statement(
    tmp_path: Path, inject: Inject, fault: dict[str, Any], kind: Any
) -> None:
    inject(None)
    store = quick_store(tmp_path / "state.db", history=2)
    space = PersistedObjectSpace(store)
    cells, log = space.create_array("cells", 4, default=0), space.create_list("log")
    space.checkpoint()
    points = at = 0
    while True:
        at += 1
        injected = Fault(at, **fault)
        inject(injected)
        cells[at % 4] += at
        log.append(at)
        failed = False
        try:
            space.checkpoint(kind=kind)
        except CheckpointError:
            failed = True
        inject(None)
        # Between the failure and the next save the object goes back to what was stored before it.
        cells[at % 4] -= at
        with suppress(StoreFailedError):
            space.checkpoint()
        store.reopen()
        space.checkpoint()
        with_what_is_stored = PersistedObjectSpace(store)
        assert list(with_what_is_stored.get_array("cells")) == list(cells) == [0] * 4
        assert list(with_what_is_stored.get_list("log")) == list(log) == list(range(1, at + 1))
        points += failed
        TALLY["crash points"] += failed
        if injected.seen < at:
            break
    print(f"{points} failed checkpoints of a space: {kind} {fault}")
    assert points >= 5
    store.close()


def test_a_merge_that_fails_does_not_fail_the_checkpoint_before_it(tmp_path: Path, inject: Inject) -> None:
    shutil.copytree(prepare(tmp_path / "begin", DUE), tmp_path / "run")
    inject(None)
    with quick_store(tmp_path / "run" / "state.db", history=2) as store:
        inject(Fault(9, sqlite3.SQLITE_IOERR))
        assert store.append(run_of(change(DUE + 1))).number == DUE + 1
        inject(None)
        with pytest.raises(StoreFailedError):
            store.append(run_of(change(DUE + 2)))
        store.reopen()
        assert len(store.reader().runs) == DUE + 1
        store.append(run_of(change(DUE + 2)))
        assert len(store.reader().runs) < DUE + 1
        assert values_in(store.reader()) == state_at(DUE + 2)


def test_an_interrupt_between_commit_and_return_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    store = quick_store(":memory:")
    store.append(Run(FULL))
    transaction = store.session.transaction

    def _transaction(**options: Any) -> Any:
        with transaction(**options) as connection:
            yield connection
        raise KeyboardInterrupt

    monkeypatch.setattr(store.session, "transaction", contextmanager(_transaction))
    with pytest.raises(KeyboardInterrupt):
        store.append(run_of({1: "a"}))
    monkeypatch.undo()
    assert store.next_number() == 3
    assert store.append(run_of({2: "b"})).number == 3
    assert values_in(store.reader()) == {1: "a", 2: "b"}


@pytest.mark.parametrize("place", ["transaction", "_statements"])
@pytest.mark.parametrize(
    "work",
    [
        lambda store: store.append(run_of({1: "lost"})),
        lambda store: store.truncate_after(1),
        lambda store: store.prune(keep=1),
        lambda store: store.compact(),
        lambda store: store.configure(history=3),
    ],
    ids=["append", "truncate_after", "prune", "compact", "configure"],
)
def test_an_interrupt_before_a_transaction_is_told_that_it_is_left_takes_it_back(
    work: Callable[[CheckpointStore], object], place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept: list[Any] = []  # As long as somebody has the interruption, its generators are not collected.
    leave = _GeneratorContextManager.__exit__

    def _leave(self: Any, *error: Any) -> Any:
        if not kept and self.gen.__name__ == place:
            kept.append(self)
            raise KeyboardInterrupt
        return leave(self, *error)

    store = quick_store(tmp_path / "a.db")
    for epoch in (1, 2, 3):
        advance(store, epoch)
    monkeypatch.setattr(_GeneratorContextManager, "__exit__", _leave)
    with pytest.raises(KeyboardInterrupt):
        work(store)
    monkeypatch.undo()
    assert store.next_number() == 4
    assert values_in(store.reader()) == state_at(3)
    with store.session.transaction() as connection:
        kept.clear()
        assert connection.in_transaction, "the one before took back the one that is under way"
    advance(store, 4)
    store.verify()
    store.close()
    with CheckpointStore(tmp_path / "a.db") as again:
        assert values_in(again.reader()) == state_at(4)


def test_what_is_interrupted_once_more_as_memory_is_read_anew_takes_no_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    def _interrupted() -> None:
        raise KeyboardInterrupt

    store = quick_store(":memory:")
    advance(store, 1)
    monkeypatch.setattr(store.session, "copy_log", _interrupted)
    monkeypatch.setattr(store.session, "end_transaction", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        advance(store, 2)
    monkeypatch.undo()
    with pytest.raises(StoreFailedError, match=r"interrupted before its content was read again.* reopen\(\)"):
        advance(store, 3)
    store.reopen()
    advance(store, 3)
    assert values_in(store.reader()) == state_at(3)


class FailingCommits(sqlite3.Connection):
    """A connection on a disk that fails with a commit, and from then on."""

    left: ClassVar[int | None] = None
    """How many commits succeed before; ``None`` for all."""

    def execute(self, statement: str, *given: Any) -> sqlite3.Cursor:
        if FailingCommits.left is not None and (statement == "COMMIT" or FailingCommits.left < 0):
            FailingCommits.left -= 1
            if FailingCommits.left < 0:
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR
                raise error
        return super().execute(statement, *given)


@pytest.mark.parametrize("commits", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_store_whose_opening_again_is_interrupted_anywhere_takes_no_writes_before_another_one(
    commits: int, tmp_path: Path, at_scale: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "factory", FailingCommits)
    refused = 0
    for lines in count(step=1 if at_scale else 19):
        with quick_store(tmp_path / f"{lines}.db", history=16) as store:
            for epoch in range(1, 20):
                store.append(run_of({1000 + epoch: epoch}))
            monkeypatch.setattr(FailingCommits, "left", commits)
            with pytest.raises(StoreFailedError):
                store.prune(keep=1)
            monkeypatch.setattr(FailingCommits, "left", None)
            came = interrupted(store.reopen, lines, ("checkpoint",))
            try:
                store.append(run_of({1020: 20}))
            except CheckpointError:
                refused += 1
                store.reopen()
                store.append(run_of({1020: 20}))
            assert values_in(store.reader()) == {1000 + epoch: epoch for epoch in range(1, 21)}, f"after {lines} lines"
            for epoch in range(21, 60):
                store.append(run_of({1000 + epoch: epoch}))
            store.verify()
        if not came:
            break
    assert refused


def test_a_rollback_that_is_interrupted_anywhere_leaves_in_memory_what_the_file_says() -> None:
    ends = set()
    for lines in count(0, 11):
        store = quick_store(":memory:")
        for epoch in range(1, 4):
            advance(store, epoch)
        reader = store.reader()
        came = interrupted(lambda: store.truncate_after(1), lines)  # noqa: B023 - it is called at once
        last = epoch_of(store)
        assert (store.next_epoch(), reader.is_retired) == (last + 1, last == 1)
        assert values_in(store.reader()) == state_at(last)
        advance(store, last + 1)
        assert values_in(store.reader()) == state_at(last + 1)
        store.verify()
        ends.add(last)
        if not came:
            break
    assert ends == {1, 3}
