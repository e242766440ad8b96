"""Bisecting: which checkpoint did it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from objectspace import PersistedObjectSpace
from tests.tool.conftest import Tool


def test_bisect_finds_the_checkpoint_that_lost_a_key(tool: Tool, store: Path) -> None:
    check = "import sys; from objectspace import *; s = PersistedObjectSpace.open(sys.argv[1], read_only=True);"
    check += " sys.exit('alice' not in s.get('counts'))"
    found = tool("bisect", store, "--", sys.executable, "-c", check, "{}")
    assert found.exit_code == 0
    assert "\ncheckpoint 5, epoch 50" in found.output


def test_bisect_gives_an_object_as_json(tool: Tool, store: Path) -> None:
    with PersistedObjectSpace.open(store) as space:
        space.create_list("late").append("here")
        space.checkpoint(epoch=80)
    check = "import json, sys; keys = [json.loads(line)['key'] for line in sys.stdin]; sys.exit('alice' not in keys)"
    found = tool("bisect", store, "--input", "counts", "--json", "--", sys.executable, "-c", check)
    assert json.loads(found.stdout)["epoch"] == 50
    absent = tool("bisect", store, "--input", "late", "--json", "--", "sh", "-c", "! grep -q here")
    assert json.loads(absent.stdout)["epoch"] == 80
    with PersistedObjectSpace.open(store) as space:
        space.delete("late")
        space.checkpoint(epoch=90)
    gone = tool("bisect", store, "--bad", "@80", "--input", "late", "--json", "--", "sh", "-c", "! grep -q here")
    assert json.loads(gone.stdout)["epoch"] == 80
    unknown = tool("bisect", store, "--input", "cuonts", "--", "true")
    assert (unknown.exit_code, "did you mean 'counts'?" in unknown.stderr) == (2, True)


def test_bisect_reads_what_its_command_or_a_writer_merges_meanwhile(tool: Tool, store: Path) -> None:
    check = (
        "import json, subprocess, sys; subprocess.run([sys.executable, '-m', 'checkpoint', 'compact', sys.argv[1]]);"
    )
    check += " sys.exit('alice' not in [json.loads(line)['key'] for line in sys.stdin])"
    found = tool("bisect", store, "--input", "counts", "--json", "--", sys.executable, "-c", check, store)
    assert (found.exit_code, json.loads(found.stdout)["epoch"]) == (0, 50)


@pytest.mark.parametrize("given", [["--input", "bad"], []])
def test_bisect_finds_the_first_checkpoint_from_the_empty_state(tool: Tool, tmp_path: Path, given: list[str]) -> None:
    path = tmp_path / "state.db"
    with PersistedObjectSpace.open(path) as space:
        space.create_value("bad", True)
        for _ in range(3):
            space.checkpoint()
    read = "'true' in sys.stdin.read()" if given else "bool(PersistedObjectSpace.open(sys.argv[1]))"
    check = [
        sys.executable,
        "-c",
        f"import sys; from objectspace import *; sys.exit({read})",
        *([] if given else ["{}"]),
    ]
    without = tool("bisect", path, *given, "--", *check)
    assert (without.exit_code, "give a --good one, 0 for the state before the first" in without.stderr) == (2, True)
    found = tool("bisect", path, "--good", 0, *given, "--", *check)
    assert (found.exit_code, "\ncheckpoint 1, epoch 1" in found.output) == (0, True)
    assert found.output.endswith(f"see: checkpoint diff {path} 0 1\n")
    always = tool("bisect", path, "--good", 0, "--", "false")
    assert (always.exit_code, "fails at the empty state" in always.stderr) == (2, True)
    assert tool("bisect", path, "--good", 0, "--bad", 0, "--", "true").exit_code == 2


def test_bisect_from_the_empty_state_over_checkpoints_that_were_merged(tool: Tool, store: Path) -> None:
    assert tool("prune", store, "--keep", 3).exit_code == 0
    found = tool("bisect", store, "--good", 0, "--input", "events", "--json", "--", "sh", "-c", "! grep -q .")
    assert found.exit_code == 0
    assert f"checkpoint {json.loads(found.stdout)['number']}: fails" in found.stderr
    see = tool("bisect", store, "--good", 0, "--input", "events", "--", "sh", "-c", "! grep -q .").stdout.split("see: ")
    assert tool(*see[1].split()[1:]).exit_code == 1


@pytest.mark.parametrize("given", [["--input", "counts"], []])
def test_bisect_of_a_space_from_the_empty_state(tool: Tool, location: Path, given: list[str]) -> None:
    show = [sys.executable, "-m", "checkpoint", "ls", "{}", "--json"]
    check = ["! grep -q ."] if given else ['! "$@" | grep -q counts', "sh", *show]
    found = tool("bisect", location, "--good", 0, *given, "--", "sh", "-c", *check)
    assert (found.exit_code, found.stdout.startswith("checkpoint 1, epoch 1")) == (0, True), found.output
    assert found.output.endswith(f"see: checkpoint diff {location} 0 1\n")


def test_bisect_refuses_a_good_checkpoint_whose_rows_were_merged(tool: Tool, store: Path) -> None:
    assert tool("prune", store, "--keep", 3).exit_code == 0
    assert tool("compact", store).exit_code == 0
    listed = [json.loads(line) for line in tool("log", store, "--json").output.splitlines()]
    merged = next(row["number"] for row in listed if not row["readable"])
    found = tool("bisect", store, "--good", merged, "--", "true")
    assert (found.exit_code, f"no longer has rows of checkpoint {merged}" in found.stderr) == (2, True)
