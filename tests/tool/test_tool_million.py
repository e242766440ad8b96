"""A store of a million slots: no command that reads holds it in memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from checkpoint import CheckpointKind, CheckpointStore, Run

SLOTS = 1_000_000

LIMIT = 200 * 1024 * 1024
"""Bytes."""


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of a list of a million slots, of which 100 change in the second checkpoint."""
    path = tmp_path_factory.mktemp("million") / "million.db"
    with CheckpointStore(path, durability="normal") as store:
        index = [(1, "numbers", "List", "{}")]
        metadata = [(1, "length", str(SLOTS))]
        store.append(Run(CheckpointKind.FULL, index, metadata, [(1, n, str(n), None) for n in range(SLOTS)]))
        changed = [(1, n, "-1", None) for n in range(0, SLOTS, SLOTS // 100)]
        store.append(Run(CheckpointKind.DIFFERENTIAL, items=changed))
    return path


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
        ("verify", 0, "2 runs, all as their digests say"),
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
