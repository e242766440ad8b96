"""A store of a million slots: no command that reads holds it in memory."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from checkpoint import CheckpointKind, CheckpointStore, Run
from checkpoint.session import Session
from tests.tool.conftest import Tool

SLOTS = 1_000_000

LIMIT = 200 * 1024 * 1024
"""Bytes."""


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of a list of a million slots, of which 100 change in the second checkpoint."""
    path = tmp_path_factory.mktemp("million") / "million.db"
    write(path, SLOTS, changed=100)
    return path


def write(path: Path, slots: int, changed: int) -> None:
    with CheckpointStore(path, durability="normal") as store:
        index = [(1, "numbers", "List", "{}")]
        metadata = [(1, "length", str(slots))]
        store.append(Run(CheckpointKind.FULL, index, metadata, [(1, n, str(n), None) for n in range(slots)]))
        items = [(1, n, "-1", None) for n in range(0, slots, slots // changed)]
        store.append(Run(CheckpointKind.DIFFERENTIAL, items=items))


class Counting(sqlite3.Connection):
    """A connection that counts the hundreds of instructions that SQLite executes."""

    hundreds = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.set_progress_handler(self._count, 100)

    def _count(self) -> int:
        Counting.hundreds += 1
        return 0


def test_the_work_of_a_diff_is_that_of_what_changed(
    tool: Tool, million: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "small.db", 10_000, changed=100)
    write(tmp_path / "much.db", 10_000, changed=1_000)
    monkeypatch.setattr(Session, "factory", Counting)

    def work(path: Path, changed: int) -> int:
        before = Counting.hundreds
        assert len(tool("diff", path, "--json").output.splitlines()) == changed
        return Counting.hundreds - before

    of_small, of_million = work(tmp_path / "small.db", 100), work(million, 100)
    assert 0 < of_million < 1.5 * of_small
    assert 5 * of_small < work(tmp_path / "much.db", 1_000) < 15 * of_small


def run_with_peak(arguments: list[str], output: Path) -> tuple[int, int]:
    """Run the command in another process, and return its exit status and its largest memory in bytes."""
    # Spawned by way of a small program, because a child begins with the size of its parent.
    program = (
        "import os, subprocess, sys; child = subprocess.Popen([sys.executable, '-m', 'checkpoint', *sys.argv[1:]]);"
        "_, status, usage = os.wait4(child.pid, 0);"
        "print(os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024, file=sys.stderr)"
    )
    read, write = os.pipe()
    with output.open("wb") as file, os.fdopen(read) as errors:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-c", program, *arguments],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, file.fileno(), 1), (os.POSIX_SPAWN_DUP2, write, 2)],
        )
        os.close(write)
        said = errors.read()
        os.waitpid(pid, 0)
    status, peak = said.split()[-2:]
    return int(status), int(peak)


@pytest.mark.parametrize(
    ("command", "status", "expected"),
    [
        ("log", 0, "1,000,000"),
        ("ls", 0, "1,000,000"),
        ("diff", 1, "990000 = 990000 → -1"),
        ("show", 0, "numbers = List of 1,000,000"),
    ],
)
def test_the_peak_memory_of_a_command(million: Path, tmp_path: Path, command: str, status: int, expected: str) -> None:
    names = ["numbers"] if command == "show" else []
    found, peak = run_with_peak([command, str(million), *names], tmp_path / "output")
    text = (tmp_path / "output").read_text()
    assert (found, expected in text) == (status, True)
    if command == "diff":
        assert len(text.splitlines()) == 1 + 100
    assert peak < LIMIT
