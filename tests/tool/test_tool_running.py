"""Every command that reads, while another process writes the store or the space all the time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from objectspace import PersistedObjectSpace
from tests.tool.conftest import Tool

WRITER = """
import sys
from objectspace import PersistedObjectSpace
with PersistedObjectSpace.open(sys.argv[1]) as space:
    numbers, total = space.get_list("numbers"), space.get_value("total")
    while True:
        numbers.append(len(numbers))
        numbers[0] = len(numbers)
        total.value = len(numbers)
        space.checkpoint()
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """Return a store that another process writes: the value ``total`` is the length of the list ``numbers``."""
    path = tmp_path / "running.db"
    with PersistedObjectSpace.open(path) as space:
        space.create_list("numbers").append(1)
        space.create_value("total", 1)
        space.checkpoint()
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)]) as writer:
        try:
            while path.stat().st_size == 0 or last_epoch(path) < 20:
                time.sleep(0.05)
            yield path
            assert writer.poll() is None
        finally:
            writer.kill()


def last_epoch(path: Path) -> int:
    with PersistedObjectSpace.open(path, read_only=True) as space:
        return space.store.checkpoints()[-1].epoch


READING = [
    "log",
    "log --objects",
    "log --graph",
    "ls",
    "show numbers -n 0",
    "diff",
    "diff HEAD~3 HEAD --stat",
    "blame numbers",
    "verify",
    "doctor",
    "top --count 2 --interval 0.05",
    "restore {new}.db",
    "fork {new}.db",
    "export numbers {new}.csv",
    "report {new}.html",
    "compact --dry-run",
    "prune --keep 3 --dry-run",
    "repair --dry-run",
]


@pytest.mark.parametrize("round_", range(2))
def test_what_is_read_is_one_checkpoint(tool: Tool, running: Path, tmp_path: Path, round_: int) -> None:
    for number, command in enumerate(READING):
        name, *rest = command.replace("{new}", str(tmp_path / f"new{number}")).split()
        found = tool(name, running, *rest)
        # Reads that follow each other may put off the copy of the log for a while, and doctor says so.
        is_advice = name == "doctor" and "the write-ahead log keeps growing" in found.output
        assert is_advice or found.exit_code in ((0,) if name == "doctor" else (0, 1)), (command, found.output)
        assert found.output, command
        if name in ("restore", "fork"):
            with PersistedObjectSpace.open(tmp_path / f"new{number}.db", read_only=True) as space:
                assert len(space.get_list("numbers")) == space.get_value("total").value
    listed = [json.loads(line) for line in tool("ls", running, "--json").output.splitlines()]
    assert {one["name"] for one in listed} == {"numbers", "total"}


def test_writing_is_refused_with_the_process_that_writes(tool: Tool, running: Path) -> None:
    for command in (["compact"], ["prune", "--keep", 1], ["repair"], ["revert", "HEAD"]):
        found = tool(command[0], running, *command[1:])
        assert (found.exit_code, "is being written by" in found.stderr) == (2, True), command
