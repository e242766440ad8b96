"""What commands say where a disk is full or takes no writes: which file it is about, and what can be done."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checkpoint import CheckpointStore, StoreFailedError, session
from checkpoint.failures import explained
from checkpoint.tool.exchange import WRITERS
from objectspace import PersistedObjectSpace
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
    with pytest.raises(StoreFailedError, match=r"no space is left: free some, then open it again"):
        CheckpointStore(store)


@pytest.mark.parametrize(
    ("room", "said"), [(2**30, "the temporary folder in which SQLite sorts"), (0, "free some and")]
)
def test_a_full_temporary_folder_is_told_from_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, said: str
) -> None:
    other = next(place for place in ("/dev/shm", "/proc") if os.stat(place).st_dev != os.stat(tmp_path).st_dev)
    monkeypatch.setenv("SQLITE_TMPDIR", other)
    monkeypatch.setattr(os, "access", lambda *_: True)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=room))
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    found = str(explained(str(tmp_path / "state.db"), error))
    assert (said in found, other in found) == (True, room > 0), found


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


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Path]:
    """A store of some MiB, while no file of this process may grow beyond 256 KiB."""
    path = tmp_path / "large.db"
    with PersistedObjectSpace.open(path) as space:
        for number in range(4):
            space.get_or_create_dictionary("d").update(dict.fromkeys(range(8000), f"{number}" * 100))
            space.checkpoint()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**18, limits[1]))
    yield path
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("words", [["compact", "--dry-run"], ["prune", "--dry-run"], ["repair", "--dry-run"]])
def test_a_rehearsal_that_the_temporary_folder_has_no_room_for_names_it(
    tool: Tool, large: Path, words: list[str]
) -> None:
    found = tool(words[0], large, *words[1:])
    said = f"error: {large} cannot be copied into the temporary folder {tempfile.gettempdir()}: free some room"
    assert (found.exit_code, found.stderr.startswith(said)) == (2, True), found.stderr


def test_a_file_that_cannot_be_rewritten_has_been_compacted_all_the_same(
    tool: Tool, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class _Failing(session.Session.factory):  # type: ignore[name-defined,misc]
        def execute(self, statement: str, *arguments: Any) -> Any:
            if statement == "VACUUM":
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
                raise error
            return super().execute(statement, *arguments)

    monkeypatch.setattr(session.Session, "factory", _Failing)
    found = tool("compact", store)
    assert (found.exit_code, "what was merged or dropped before stays so" in found.stderr) == (2, True), found.stderr


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
    assert found.stderr.endswith("(Read-only file system): its file system takes no writes: mount it for writing\n")


class FullFile(BytesIO):
    """A file on a disk that is full."""

    def write(self, _: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("words", [["report", "{}"], ["diff", "{}", "--patch"], ["export", "{}", "counts"]])
def test_what_a_full_disk_does_not_take_is_named(
    tool: Tool, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    opened, target = Path.open, tmp_path / "new.jsonl"

    def _open(path: Path, *args: Any, **options: Any) -> Any:
        return FullFile() if path.suffix == ".tmp" else opened(path, *args, **options)

    monkeypatch.setattr(Path, "open", _open)
    found = tool(*(word.replace("{}", str(store)) for word in words), target)
    assert (found.exit_code, found.stderr) == (2, f"error: {target}: no space left on device\n")
    assert not target.exists()


FULL = OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device")
"""As pyarrow says it."""


@pytest.mark.parametrize(
    ("ending", "error", "said"),
    [
        ("csv", OSError(errno.ENOSPC, "No space left on device"), ": no space left on device"),
        ("parquet", FULL, ": no space left on device"),
        (
            "sqlite",
            sqlite3.OperationalError("database or disk is full"),
            " cannot be written (SQLite says: database or disk is full)",
        ),
    ],
)
def test_an_export_that_a_full_disk_does_not_take_is_named(
    tool: Tool, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, error: Exception, said: str
) -> None:
    def _fail(path: Path, *_: object) -> int:
        path.write_bytes(b"the beginning")
        raise error

    monkeypatch.setitem(WRITERS, ending, _fail)
    target = tmp_path / f"orders.{ending}"
    found = tool("export", store, "orders", target)
    assert (found.exit_code, found.stderr) == (2, f"error: {target}{said}\n")
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "arrow", "db"])
def test_an_export_into_a_folder_that_takes_no_files_names_its_target(tool: Tool, store: Path, ending: str) -> None:
    target = f"/proc/orders.{ending}"  # where nobody can make a file, not even root
    found = tool("export", store, "orders", target)
    assert (found.exit_code, found.stderr.startswith(f"error: {target}")) == (2, True), found.stderr
    assert ".tmp" not in found.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["export", "{}", "counts", "s3://bucket/counts.csv"],
        ["report", "{}", "s3://bucket/report.html"],
        ["diff", "{}", "--patch", "s3://bucket/patch.jsonl"],
    ],
)
def test_a_file_is_not_written_to_a_url(tool: Tool, store: Path, words: list[str]) -> None:
    found = tool(*(word.replace("{}", str(store)) for word in words))
    said = f"error: {words[-1]} is a URL: what is written is a file; give a path\n"
    assert (found.exit_code, found.stderr) == (2, said)


@pytest.mark.parametrize("spelling", ["file:{}", "file://{}"])
def test_a_path_with_its_protocol_is_that_path(tool: Tool, store: Path, tmp_path: Path, spelling: str) -> None:
    copy = tmp_path / "copy.db"
    assert tool("restore", spelling.format(store), spelling.format(copy)).exit_code == 0
    assert tool("show", str(copy), "counts").stdout == tool("show", spelling.format(store), "counts").stdout
    refused = tool("log", "file://elsewhere/copy.db")
    assert (refused.exit_code, "names the host 'elsewhere'" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    "words", [["log", "s3:/b/x"], ["restore", "{}", "s3:/b/x"], ["export", "{}", "counts", "s3:/b/x"]]
)
def test_a_url_with_one_slash_is_no_path(tool: Tool, store: Path, words: list[str]) -> None:
    refused = tool(*(word.replace("{}", str(store)) for word in words))
    assert (refused.exit_code, "'s3:/b/x' has one slash after the protocol 's3'" in refused.stderr) == (2, True)
