"""Two spaces on one store: what one of them has committed is never taken for a commit of the other one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from checkpoint import (
    CheckpointError,
    CheckpointKind,
    CheckpointStore,
    Reader,
    RunWriter,
    StoreFailedError,
    UnknownCheckpointError,
)
from checkpoint.session import Session
from objectspace import CheckpointProtocolError, PersistedObjectSpace

FULL, KINDS = CheckpointKind.FULL, [*CheckpointKind]


def two_spaces(store: CheckpointStore) -> tuple[PersistedObjectSpace, PersistedObjectSpace]:
    """Return two spaces on a store; the first one has an edit that is not saved."""
    one = PersistedObjectSpace(store)
    one.create_list("mine").append("stored")
    one.create_list("other's")
    one.checkpoint()
    one.get("mine").append("edited")
    return one, PersistedObjectSpace(store)


def commit_other(other: PersistedObjectSpace, kind: CheckpointKind) -> None:
    other.get("other's").append("committed")
    other.checkpoint(kind=kind)


def require_refused(one: PersistedObjectSpace) -> None:
    """Make sure that a space refuses to save, and takes over what the other one has committed."""
    one.get("mine").append("more")
    with pytest.raises(CheckpointProtocolError, match="has moved on"):
        one.checkpoint()
    one.rollback()
    assert (one.get("mine"), one.get("other's")) == (["stored"], ["committed"])
    one.get("mine").append("again")
    one.checkpoint()
    assert one.store.verify() == len(one.store.checkpoints())


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_that_was_refused_is_not_taken_for_that_of_the_space_that_came_first(
    kind: CheckpointKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(":memory:")
    one, other = two_spaces(store)
    writer = store.writer(kind)
    one.save(writer)

    def overtaken(base: Reader | None) -> AbstractContextManager[None]:
        """Let the other space commit after the commit of the first one has begun."""
        monkeypatch.undo()
        commit_other(other, kind)
        return store.unchanged_since(base)

    monkeypatch.setattr(store, "unchanged_since", overtaken)
    with pytest.raises(CheckpointError, match="has moved on since the save"):
        writer.commit()
    assert not writer.is_durable()
    require_refused(one)


class FailsToCommit(sqlite3.Connection):
    """A connection whose file system fails at the next commit of a transaction that has written something.

    If it is late, it fails once the commit is done, and with everything from then on.
    """

    fails = is_late = is_dead = False
    changes_before = 0

    def execute(self, *args: Any) -> sqlite3.Cursor:
        if args[0].startswith("BEGIN"):
            self.changes_before = self.total_changes
        is_commit = args[0] == "COMMIT" and self.total_changes > self.changes_before
        if FailsToCommit.is_dead or (FailsToCommit.fails and is_commit):
            self._fail(*args)
        return super().execute(*args)

    def _fail(self, *args: Any) -> None:
        FailsToCommit.fails = False
        if FailsToCommit.is_late and not FailsToCommit.is_dead:
            FailsToCommit.is_dead = True
            super().execute(*args)
        error = sqlite3.OperationalError("injected")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckpointStore:
    """Return a store whose connection can fail to commit."""
    monkeypatch.setattr(Session, "factory", FailsToCommit)
    for name in ("fails", "is_late", "is_dead"):
        monkeypatch.setattr(FailsToCommit, name, False)
    return CheckpointStore(tmp_path / "state.db")


def fail_to_commit(commit: Callable[[], object], *, is_late: bool = False) -> None:
    FailsToCommit.fails, FailsToCommit.is_late = True, is_late
    with pytest.raises(StoreFailedError, match="the file system failed"):
        commit()


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_of_unknown_outcome_is_not_taken_for_one_of_another_space(
    kind: CheckpointKind, failing: CheckpointStore
) -> None:
    one, other = two_spaces(failing)
    fail_to_commit(lambda: one.checkpoint(kind=kind))
    failing.reopen()
    other.rollback()
    commit_other(other, kind)
    require_refused(one)


@pytest.mark.parametrize("kind", KINDS)
def test_an_acknowledgement_is_not_of_a_checkpoint_that_was_made_again_since(kind: CheckpointKind) -> None:
    store = CheckpointStore(":memory:")
    one, other = two_spaces(store)
    writer = store.writer(kind)
    one.save(writer)
    writer.commit()
    other.rollback(epoch=1)
    commit_other(other, kind)
    one.on_saved()
    assert one.get("mine") == ["stored", "edited"], "what is in memory stays until the rollback"
    require_refused(one)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_acknowledged", [False, True])
def test_equal_rows_on_top_of_another_state_are_not_the_commit_of_unknown_outcome(
    kind: CheckpointKind, is_acknowledged: bool, failing: CheckpointStore
) -> None:
    one, other = two_spaces(failing)
    other.get("other's").append("from before")
    other.checkpoint()
    one.rollback()
    one.get("mine").append("edited")
    fail_to_commit(lambda: one.checkpoint(kind=kind))
    failing.reopen()
    other.rollback(epoch=1)
    commit_other(other, kind)
    other.get("mine").append("edited")
    other.checkpoint(kind=kind)
    if is_acknowledged:
        with pytest.raises(CheckpointProtocolError, match="before the commit: the writer is rolled back"):
            one.on_saved()
    one.get("mine").append("more")
    with pytest.raises(CheckpointProtocolError, match="has moved on"):
        one.checkpoint()
    one.rollback()
    assert (one.get("mine"), one.get("other's")) == (["stored", "edited"], ["committed"])


def test_an_equal_checkpoint_for_another_epoch_is_not_the_commit_of_unknown_outcome(failing: CheckpointStore) -> None:
    one, other = two_spaces(failing)
    fail_to_commit(lambda: one.checkpoint(epoch=51))
    failing.reopen()
    other.rollback()
    other.get("mine").append("edited")
    other.checkpoint(epoch=61)
    with pytest.raises(CheckpointProtocolError, match="before the commit: the writer is rolled back"):
        one.on_saved()
    one.rollback()
    assert one.get("mine") == ["stored", "edited"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_acknowledged", [False, True])
@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_commit_that_was_found_to_have_arrived_and_was_rolled_back_since_is_none(
    is_made_again: bool, is_acknowledged: bool, kind: CheckpointKind, failing: CheckpointStore
) -> None:
    one, other = two_spaces(failing)
    writer = failing.writer(kind)
    one.save(writer)
    fail_to_commit(writer.commit, is_late=True)
    FailsToCommit.is_dead = False
    failing.reopen()
    assert writer.is_durable()
    other.rollback()
    other.rollback(epoch=1)
    if is_made_again:
        commit_other(other, kind)
    if is_acknowledged:
        one.on_saved()
    one.get("mine").append("more")
    with pytest.raises(CheckpointProtocolError, match="has moved on"):
        one.checkpoint()
    one.rollback()
    assert (one.get("mine"), one.get("other's")) == (["stored"], ["committed"] if is_made_again else [])
    one.get("mine").append("again")
    one.checkpoint()
    assert failing.verify() == len(failing.checkpoints())


def test_nothing_is_read_of_a_commit_that_was_merged_away_before_it_was_found_to_have_arrived(
    failing: CheckpointStore,
) -> None:
    failing.configure(history=1)
    one = PersistedObjectSpace(failing, cache_slots=1)
    numbers = one.create_sorted_dictionary("numbers")
    numbers.update((number, number) for number in range(500))
    one.checkpoint()
    numbers[500] = 500
    writer = failing.writer()
    one.save(writer)
    fail_to_commit(writer.commit, is_late=True)
    FailsToCommit.is_dead = False
    failing.reopen()
    other = PersistedObjectSpace(failing)
    for number in range(3):
        other.get("numbers")[number] = -number
        other.checkpoint()
    failing.compact()
    one.on_saved()
    assert len(numbers) == 501
    for read in (list, lambda of: of[400], lambda of: list(of.irange(10, 20)), lambda of: of.peekitem(0)):
        with pytest.raises(UnknownCheckpointError, match="they were merged"):
            read(numbers)
    one.rollback()
    assert numbers.peekitem(2) == (2, -2)


@pytest.mark.parametrize("kind", KINDS)
def test_an_acknowledgement_that_is_interrupted_is_not_one_of_what_another_space_commits_then(
    kind: CheckpointKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(":memory:")
    one, other = two_spaces(store)
    writer = store.writer(kind)
    one.save(writer)
    writer.commit()

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(one, "_note_what_is_stored", interrupted)
        one.on_saved()
    other.rollback(epoch=1)
    commit_other(other, kind)
    require_refused(one)


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_that_comes_while_an_applied_run_is_acknowledged_is_not_overwritten(
    kind: CheckpointKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(":memory:")
    one, other = two_spaces(store)
    writer = RunWriter(kind)
    one.save(writer)
    writer.commit()
    store.apply(writer.run)
    other.rollback()
    is_newest_in = writer.is_newest_in

    def overtaken(*asked: Any) -> bool:
        """Let the other space commit once it is known that the run is the newest checkpoint."""
        found = is_newest_in(*asked)
        monkeypatch.undo()
        commit_other(other, kind)
        return found

    monkeypatch.setattr(writer, "is_newest_in", overtaken)
    one.on_saved()
    one.get("other's").append("overwritten")
    with pytest.raises(CheckpointProtocolError, match="has moved on"):
        one.checkpoint()
    one.rollback()
    assert (one.get("mine"), one.get("other's")) == (["stored", "edited"], ["committed"])


@pytest.mark.parametrize("kind", KINDS)
def test_whether_a_run_was_applied_is_not_known_while_the_store_has_failed(
    kind: CheckpointKind, failing: CheckpointStore
) -> None:
    one, _ = two_spaces(failing)
    writer = RunWriter(kind)
    one.save(writer)
    writer.commit()
    one.get("mine").append("since")
    fail_to_commit(lambda: failing.apply(writer.run), is_late=True)
    for work in (one.on_saved, lambda: one.save(RunWriter(kind))):
        with pytest.raises(StoreFailedError, match="reopen"):
            work()
    FailsToCommit.is_dead = False
    failing.reopen()
    one.on_saved()
    one.checkpoint()
    assert PersistedObjectSpace(failing).get("mine") == ["stored", "edited", "since"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_nobody_applied_is_not_the_equal_checkpoint_of_another_space(kind: CheckpointKind) -> None:
    store = CheckpointStore(":memory:")
    one, other = two_spaces(store)
    writer = RunWriter(kind)
    one.save(writer)
    writer.commit()
    commit_other(other, CheckpointKind.DIFFERENTIAL)
    other.get("mine").append("edited")
    other.checkpoint(kind=kind)
    with pytest.raises(CheckpointProtocolError, match="before the rows were applied: the writer is committed, but"):
        one.on_saved()
    one.get("mine").append(len(one.get("other's")))
    with pytest.raises(CheckpointProtocolError, match="has moved on"):
        one.checkpoint()


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_was_applied_is_acknowledged(kind: CheckpointKind) -> None:
    store = CheckpointStore(":memory:")
    one, _ = two_spaces(store)
    writer = RunWriter(kind)
    one.save(writer)
    writer.commit()
    store.apply(writer.run)
    one.on_saved()
    one.checkpoint()
    assert PersistedObjectSpace(store).get("mine") == ["stored", "edited"]


def test_a_writer_that_is_kept_holds_nothing_of_the_store() -> None:
    store = CheckpointStore(":memory:", history=1)
    space = PersistedObjectSpace(store)
    numbers = space.create_dictionary("numbers")
    kept = []
    for number in range(100):
        numbers["k"] = number
        kept.append(store.writer())
        space.save(kept[-1])
        kept[-1].commit()
        space.on_saved()
    store.prune(keep=1)
    (rows,) = store.database.execute("SELECT count(*) FROM state_item").fetchone()
    assert rows <= 2  # The newest checkpoint has its own, and another one in the merged run.
