"""What commands say where a disk is full or takes no writes: which file it is about, and what can be done."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checkpoint import CheckpointStore, session
from tests.checkpoint.store_helpers import Fault, FaultyConnection
from tests.tool.conftest import Tool

Leave = Callable[[int], None]


@pytest.fixture
def leave(monkeypatch: pytest.MonkeyPatch) -> Leave:
    """Return what makes SQLite fail as on a disk with some bytes left, where the index of a log cannot grow."""

    def _leave(free: int) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
        monkeypatch.setattr(session.Session, "factory", FaultyConnection)
        monkeypatch.setattr(FaultyConnection, "fault", Fault(1, sqlite3.SQLITE_IOERR, lasting=True))

    return _leave


@pytest.mark.parametrize("words", [["log", "{}"], ["compact", "{}"], ["fork", "{}", "{}.fork"]])
@pytest.mark.parametrize(
    ("free", "said"),
    [
        (4096, "no space is left: free some, then run it again"),
        (2**30, "the file system failed: see to the disk, then run it again"),
    ],
)
def test_a_disk_that_is_full_is_told_from_one_that_fails(
    tool: Tool, store: Path, leave: Leave, words: list[str], free: int, said: str
) -> None:
    leave(free)
    found = tool(*(word.replace("{}", str(store)) for word in words))
    assert (found.exit_code, found.stderr.startswith(f"error: {store}: {said}")) == (2, True), found.stderr
    assert "reopen" not in found.stderr


def test_a_program_is_told_to_open_the_store_again(store: Path, leave: Leave) -> None:
    leave(0)
    with pytest.raises(session.StoreFailedError, match=r"no space is left: free some, then call reopen\(\)"):
        CheckpointStore(store)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), sqlite3.OperationalError("full")])
def test_a_copy_that_a_full_disk_has_no_room_for_says_so(
    tool: Tool, store: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def _fail(*_: object) -> None:
        if isinstance(error, sqlite3.Error):
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr("checkpoint.fork._write", _fail)
    found = tool("fork", store, f"{store}.fork")
    assert (found.exit_code, "no space is left: free some, try again" in found.stderr) == (2, True)


@pytest.mark.parametrize("command", ["compact", "prune", "repair", "revert"])
def test_no_command_advises_an_option_that_there_is_not(
    tool: Tool, store: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    words = [command, store, *(["HEAD"] if command == "revert" else [])]
    with CheckpointStore(store):
        found = tool(*words)
    assert (found.exit_code, "is being written by" in found.stderr) == (2, True)
    assert "read_only" not in found.stderr

    def _refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("filelock.FileLock.acquire", _refuse)
    found = tool(*words)
    assert found.stderr.endswith("(Read-only file system): check the permissions of its folder\n")
