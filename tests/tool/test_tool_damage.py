"""Damaged stores, pipes that close early, and what the tool keeps in memory."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from objectspace import PersistedObjectSpace
from objectspace.relational import Column, StateTable, TableSchema
from tests.tool.conftest import Tool
from tests.tool.test_tool_writing import contents

# Not ru_maxrss, which a process inherits from the one that started it.
PEAK = "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1], file=sys.stderr)"


def damage(store: Path, statement: str) -> None:
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(statement)


def test_repair_drops_the_damaged_checkpoint(tool: Tool, store: Path) -> None:
    assert (tool("repair", store).exit_code, tool("repair", store, "--dry-run").exit_code) == (0, 0)
    damage(store, "UPDATE state_item SET value = '99' WHERE checkpoint = 7 AND slot = 'bob'")
    assert tool("verify", store).exit_code == 2
    tried = tool("repair", store, "--dry-run", "--json")
    assert (tried.exit_code, json.loads(tried.output)["lost"]) == (1, [7])
    assert tool("verify", store).exit_code == 2
    done = tool("repair", store)
    assert done.exit_code == 1
    assert done.output.splitlines()[-1] == "1 damaged; checkpoints lost: 7; the newest is 6"
    assert tool("verify", store).exit_code == 0
    assert contents(store, "counts") == {"bob": -6}


def test_what_can_be_read_is_kept_where_nothing_can_be_proved(tool: Tool, store: Path, tmp_path: Path) -> None:
    events = "(SELECT object FROM state_index WHERE name = 'events')"
    damage(store, f"UPDATE state_item SET value = '[' WHERE checkpoint = 1 AND object = {events}")
    for arguments in (["verify", store], ["repair", store], ["fork", store, tmp_path / "fork.db"]):
        refused = tool(*arguments)
        assert (refused.exit_code, "by `checkpoint repair --salvage`" in refused.stderr) == (2, True)
    tried = json.loads(tool("repair", store, "--salvage", "--dry-run", "--json").output)
    assert (tried["lost"], tried["newest"], len(tried["objects_lost"])) == ([1, 2, 3, 4, 5, 6, 7], 8, 1)
    assert [line.startswith(f"{store}: the rows of checkpoint 1 ") for line in tried["damage"]] == [True]
    assert tool("verify", store).exit_code == 2
    done = tool("repair", store, "--salvage")
    assert done.exit_code == 1
    lines = done.output.splitlines()
    assert lines[1].startswith("left out: List 'events' has a slot 0 of '[', which cannot be read (")
    assert lines[2:-1] == [f"kept unproved: {one}" for one in tried["unproved"]]
    assert lines[-1] == "1 damaged; checkpoints lost: 1, 2, 3, 4, 5, 6, 7; the newest is 8"
    assert tool("verify", store).exit_code == 0
    assert contents(store, "counts") == {"bob": -7}


@pytest.mark.parametrize("arguments", [["repair"], ["compact"], ["prune", "--keep", "1"]])
def test_a_dry_run_that_fails_names_the_store_as_the_work_does(
    tool: Tool, store: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    damage(store, "UPDATE state_item SET value = '{'")
    damage(store, "DELETE FROM checkpoint WHERE number = 3")
    monkeypatch.chdir(store.parent)
    tried = tool(*arguments, store.name, "--dry-run")
    assert (tried.exit_code, str(store) in tried.stderr) == (2, True)
    done = tool(*arguments, store.name)
    assert (done.exit_code, done.stderr) == (2, tried.stderr)


def test_a_file_whose_structure_is_damaged_is_not_repaired_and_read_where_it_is_whole(
    tool: Tool, store: Path, tmp_path: Path
) -> None:
    with PersistedObjectSpace.open(store) as space:
        space.get_dictionary("counts").update(kim=1, kit=2)
        space.checkpoint(epoch=80)
    whole = store.read_bytes()
    assert whole.count(b"kim") == 1
    store.write_bytes(whole.replace(b"kim", b"zim"))
    for arguments in (["verify", store], ["repair", store], ["repair", store, "--salvage"]):
        refused = tool(*arguments)
        assert (refused.exit_code, "SQLite says row not in PRIMARY KEY order" in refused.stderr) == (2, True)
    assert store.read_bytes() == whole.replace(b"kim", b"zim")
    assert tool("export", store, "events", tmp_path / "events.jsonl").exit_code == 0
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 7
    fork = tmp_path / "fork.db"
    assert [tool("fork", store, fork, epoch).exit_code for epoch in ("@80", "@70")] == [2, 0]
    assert (tool("verify", fork).exit_code, contents(fork, "counts")) == (0, {"bob": -7})


def test_a_value_whose_body_is_lost_is_never_shown_as_its_number(tool: Tool, tmp_path: Path) -> None:
    path, patch = tmp_path / "state.db", tmp_path / "changes.patch"
    with PersistedObjectSpace.open(path) as space:
        numbers = space.create_dictionary("numbers")
        lists = space.create_dictionary("lists", of=list)
        space.create_dictionary("others")["k"] = 1
        numbers["k"], lists["k"] = "x" * 1000, ["x" * 1000]
        space.checkpoint()
        numbers["k"], lists["k"][0] = "small", "small"
        space.checkpoint()
    damage(path, "DELETE FROM state_large")
    for arguments in (
        ["show", path, "numbers@1"],
        ["show", path, "lists@1"],
        ["export", path, "numbers@1", tmp_path / "numbers.jsonl"],
        ["diff", path, 1, 2],
        ["diff", path, 1, 2, "--json"],
        ["diff", path, 1, 2, "--patch", patch],
        ["revert", path, 2],
    ):
        found = tool(*arguments)
        assert (found.exit_code, "its value lay apart from its row and is lost" in found.stderr) == (2, True), arguments
        assert "`checkpoint repair`" in found.stderr
        assert "slot 'k' of " in found.stderr or "slot 0 of " in found.stderr
    assert not patch.exists()
    assert tool("diff", path, 0, 1, "others").exit_code == 1
    assert tool("show", path, "numbers").exit_code == 0


def test_repair_of_a_space_is_refused(tool: Tool, location: Path) -> None:
    for arguments in ([], ["--dry-run"]):
        found = tool("repair", location, *arguments)
        assert (found.exit_code, "is a space of shards" in found.stderr) == (2, True)


@pytest.mark.parametrize("command", ["log", "ls", "show counts", "diff", "blame counts", "verify", "doctor", "top"])
def test_a_file_cut_short_is_one_line_of_trouble(tool: Tool, store: Path, command: str) -> None:
    store.write_bytes(store.read_bytes()[:5000])
    name, *rest = command.split()
    found = tool(name, store, *rest, *(["--count", "1"] if name == "top" else []))
    assert found.exit_code == 2
    assert found.stderr.startswith("error: ")
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["ls", "show counts", "diff 1 7", "blame counts", "report {}.html", "revert 7"])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE state_index SET name = x'ff'",
        "UPDATE state_index SET name = 7 WHERE object % 2",
        "UPDATE state_metadata SET key = 7 WHERE object % 2",
        "UPDATE state_item SET value = '{' WHERE object % 2",
        "UPDATE state_item SET value = '{' WHERE object % 2 = 0",
    ],
)
def test_damaged_rows_are_one_line_of_trouble_or_none(
    tool: Tool, store: Path, tmp_path: Path, statement: str, command: str
) -> None:
    damage(store, statement)
    name, *rest = command.replace("{}", str(tmp_path / "page")).split()
    found = tool(name, store, *rest)
    assert found.exit_code in (0, 1, 2)
    assert "CHECKPOINT_DEBUG" not in found.stderr
    assert "char 1" not in found.stderr or "damaged" in found.stderr
    assert (found.exit_code == 2) is found.stderr.startswith("error: ")
    assert tool("verify", store).exit_code == 2


@pytest.mark.parametrize("cell", ["5", 2**40, "no number"])
def test_a_watermark_that_its_column_does_not_hold_is_damage(tool: Tool, tmp_path: Path, cell: object) -> None:
    path = tmp_path / "state.db"
    with PersistedObjectSpace.open(path) as space:
        schema = TableSchema([Column("k", "int64"), Column("b", "int16")], ["k"], watermark_column="b")
        StateTable(space, "t", schema).update_watermark(5)
        space.checkpoint()
        assert tool("verify", path).exit_code == 0
        space.get_dictionary("$watermarks")["t"] = [["1", cell]]
        space.checkpoint()
    found = tool("verify", path)
    assert (found.exit_code, f"table 't' has the watermark {cell!r} in its column 'b'" in found.stderr) == (2, True)
    assert tool("revert", path, 2).exit_code == tool("verify", path).exit_code == 0


def test_blame_of_one_key(tool: Tool, store: Path) -> None:
    with PersistedObjectSpace.open(store) as space:
        space.get_dictionary("counts")[b"raw"] = 1
        space.checkpoint(epoch=80)
    for key, epoch in (("counts[bob]", 70), ("counts[raw]", 80), ("events[2]", 30)):
        (row,) = map(json.loads, tool("blame", store, key, "--json").output.splitlines())
        assert row["epoch"] == epoch
    missing = tool("blame", store, "counts[carol]")
    assert (missing.exit_code, "has no key 'carol'" in missing.stderr) == (2, True)


def test_doctor_leaves_the_file_as_it_is(tool: Tool, store: Path) -> None:
    before = store.read_bytes()
    assert tool("doctor", store).exit_code == 0
    assert store.read_bytes() == before


def test_the_empty_state_is_no_fork(tool: Tool, store: Path, tmp_path: Path) -> None:
    for command in ("fork", "restore"):
        assert tool(command, store, tmp_path / "new.db", 0).exit_code == 2
        assert not (tmp_path / "new.db").exists()


def test_a_pipe_that_closes_early(tmp_path: Path) -> None:
    big(tmp_path / "big.db", 20_000)
    command = [sys.executable, "-m", "checkpoint", "show", str(tmp_path / "big.db"), "big", "-n", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait() == 0


def test_a_patch_goes_into_a_pipe(tool: Tool, store: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "checkpoint", "diff", str(store), "4", "7", "--patch", "/dev/stdout"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert tool("diff", store, 4, 7, "--patch", tmp_path / "p.jsonl").exit_code == done.returncode == 1
    assert done.stdout == (tmp_path / "p.jsonl").read_text()


def big(path: Path, slots: int) -> None:
    with PersistedObjectSpace.open(path) as space:
        numbers = space.create_list("big")
        numbers.extend(range(slots))
        space.checkpoint()
        numbers[7] = -1
        space.checkpoint()


def peak(*arguments: object) -> int:
    """Return the largest memory of a run of the command, in KiB."""
    program = f"import sys\nfrom checkpoint.tool.command import main\ntry:\n    main()\nfinally:\n    {PEAK}"
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return int(done.stderr.split()[-1])


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return a small and a large store, which are only read."""
    paths = [tmp_path_factory.mktemp("growing") / f"{slots}.db" for slots in (1_000, 100_000)]
    for path in paths:
        big(path, int(path.stem))
    return paths


@pytest.mark.parametrize("command", ["verify", "restore"])
def test_no_command_holds_the_slots_in_memory(growing: list[Path], tmp_path: Path, command: str) -> None:
    grown = [peak(command, path, *([tmp_path / path.name] if command == "restore" else [])) for path in growing]
    # Pages that SQLite caches, of two files where one is written, and some of the rows that are checked; a slot in
    # memory would cost more than 150 bytes.
    assert grown[1] - grown[0] < 13 * 1024


@pytest.mark.parametrize(
    "command",
    [["show", "--json"], *(pytest.param(one, marks=pytest.mark.slow) for one in (["show"], ["blame", "--json"]))],
)
def test_rows_that_are_not_aligned_are_not_held_in_memory(growing: list[Path], command: list[str]) -> None:
    grown = [peak(command[0], path, "big", "-n", 0, *command[1:]) for path in growing]
    assert grown[1] - grown[0] < 13 * 1024


@pytest.mark.parametrize("command", ["restore", "compact"])
def test_damage_is_one_line_of_trouble_and_leaves_no_half_of_a_store(tool: Tool, tmp_path: Path, command: str) -> None:
    with PersistedObjectSpace.open(tmp_path / "state.db") as space:
        numbers = space.create_dictionary("numbers")
        for number in range(60):
            numbers[number % 7] = number
            space.checkpoint()
    newest_merged = "(SELECT max(run) FROM run WHERE state = 'merged')"
    damage(tmp_path / "state.db", f"UPDATE state_item SET value = '99' WHERE checkpoint = {newest_merged}")
    target = [tmp_path / "new.db"] if command == "restore" else []
    arguments = [sys.executable, "-m", "checkpoint", command, tmp_path / "state.db", *target]
    found = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (2, "", 1), found
    assert "merged run" in found.stderr
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith("new")] == []
