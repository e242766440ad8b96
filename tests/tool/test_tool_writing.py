"""The commands that write: patches, reverts, copies, upkeep, import and export."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint import CheckpointError, CheckpointStore
from checkpoint.tool.patch import changes_of
from objectspace import PersistedObjectSpace, register_dataclass
from objectspace.relational import Column, StateTable, StorageTable, TableSchema, rename_table, tables
from tests.tool.conftest import ORDERS, Tool


def contents(path: Path, name: str) -> object:
    with PersistedObjectSpace.open(path, read_only=True) as space:
        return space.get(name).copy()


def test_a_patch_goes_onto_another_store(tool: Tool, store: Path, tmp_path: Path) -> None:
    assert tool("fork", store, tmp_path / "fork.db", 4).exit_code == 0
    assert tool("diff", store, 4, 7, "--patch", tmp_path / "p.jsonl").exit_code == 1
    assert "changes would be made" in tool("apply", tmp_path / "fork.db", tmp_path / "p.jsonl", "--dry-run").stderr
    assert contents(tmp_path / "fork.db", "counts") == {"alice": 1, "bob": -4}
    assert tool("apply", tmp_path / "fork.db", tmp_path / "p.jsonl").exit_code == 0
    with (
        CheckpointStore(store, read_only=True) as ours,
        CheckpointStore(tmp_path / "fork.db", read_only=True) as theirs,
    ):
        assert list(ours.diff(theirs.reader(), ours.reader())) == []
    again = tool("apply", tmp_path / "fork.db", tmp_path / "p.jsonl")
    assert (again.exit_code, "nothing was written" in again.stderr) == (2, True)


def test_an_infinite_key_goes_through_a_patch_and_a_file(tool: Tool, tmp_path: Path) -> None:
    path, patch, rows = tmp_path / "state.db", tmp_path / "p.jsonl", tmp_path / "rows.jsonl"
    with PersistedObjectSpace.open(path) as space:
        limits = space.create_sorted_dictionary("limits")
        space.checkpoint()
        limits.update({float("inf"): "none", float("-inf"): "all", 0.5: "half"})
        space.checkpoint()
    assert tool("diff", path, "--patch", patch).exit_code == 1
    assert tool("fork", path, tmp_path / "fork.db", 1).exit_code == 0
    assert tool("apply", tmp_path / "fork.db", patch).exit_code == 0
    assert contents(tmp_path / "fork.db", "limits") == contents(path, "limits")
    assert tool("export", path, "limits", rows).exit_code == 0
    assert tool("import", tmp_path / "new.db", rows, "limits", "--key", "key").exit_code == 0
    assert contents(tmp_path / "new.db", "limits") == contents(path, "limits")


def test_revert_undoes_the_newest_checkpoint_and_refuses_what_changed_since(tool: Tool, store: Path) -> None:
    assert tool("revert", store, 7).output.startswith("checkpoint 8, epoch 71: ")
    assert contents(store, "counts") == {"bob": -6}
    assert contents(store, "events") == [{"n": n} for n in range(1, 7)]
    refused = tool("revert", store, 2)
    assert (refused.exit_code, "nothing was written" in refused.stderr) == (2, True)
    assert tool("revert", store, 0).exit_code == 2


def test_revert_of_some_objects(tool: Tool, store: Path) -> None:
    with PersistedObjectSpace.open(store) as space:
        space.get_dictionary("lists")["x"].append(3)
        space.get_dictionary("counts")["bob"] = 0
        space.checkpoint(epoch=80)
        space.get_dictionary("counts")["bob"] = 1
        space.checkpoint(epoch=90)
    assert tool("revert", store, "@80").exit_code == 2
    unknown = tool("revert", store, "@80", "--object", "lits")
    assert (unknown.exit_code, "did you mean 'lists'?" in unknown.stderr) == (2, True)
    dry = tool("revert", store, "@80", "--object", "lists", "--dry-run")
    assert dry.output.splitlines()[:3] == ["lists[x] (List)", "  ~ its length = 3 → 2", "  - 2 = 3"]
    assert tool("revert", store, "@80", "--object", "lists").exit_code == 0
    assert (contents(store, "lists"), contents(store, "counts")) == ({"x": [1, 2]}, {"bob": 1})


def test_a_dry_run_of_nothing_ends_as_the_work_does(tool: Tool, tmp_path: Path) -> None:
    with PersistedObjectSpace.open(tmp_path / "s.db") as space:
        space.checkpoint()
    for dry in ((), ("--dry-run",)):
        found = tool("revert", tmp_path / "s.db", 1, *dry)
        assert (found.exit_code, "there are no changes" in found.stderr) == (2, True)


def test_a_table_goes_with_its_schema(tool: Tool, tmp_path: Path) -> None:
    path, patch = tmp_path / "s.db", tmp_path / "p.jsonl"
    with PersistedObjectSpace.open(path) as space:
        StateTable(space, "first", ORDERS)
        space.checkpoint()
        StateTable(space, "orders", ORDERS).insert_row((1, "x"))
        space.create_list("other")
        space.checkpoint()
    assert tool("fork", path, tmp_path / "fork.db", 1).exit_code == 0
    assert tool("diff", path, 1, 2, "orders", "--patch", patch).exit_code == 1
    assert tool("apply", tmp_path / "fork.db", patch).exit_code == 0
    with PersistedObjectSpace.open(tmp_path / "fork.db") as space:
        assert list(StateTable(space, "orders", ORDERS).scan()) == [(1, "x")]
        assert "other" not in space
    assert tool("revert", path, 2, "--object", "orders").exit_code == 0
    assert tool("verify", path).exit_code == 0
    with PersistedObjectSpace.open(path) as space:
        assert list(StateTable(space, "orders", ORDERS).scan()) == []  # made anew
        StateTable(space, "third", ORDERS).insert_row((3, "y"))
        space.checkpoint()
    for name, left in (("orders", {"first", "third"}), ("third", {"first"})):
        assert tool("revert", path, 4, "--object", name).exit_code == 0
        assert tool("verify", path).exit_code == 0
        with PersistedObjectSpace.open(path) as space:
            assert tables(space).keys() == left
            assert all(list(StateTable(space, one).scan()) == [(3, "y")] for one in left - {"first"})
    with PersistedObjectSpace.open(path) as space:
        StateTable(space, "fourth", ORDERS)
        assert list(tables(space)) == ["first", "fourth"]


@pytest.fixture
def marked(tmp_path: Path) -> Path:
    """Return a store whose second checkpoint is that of two watermarks, of which each hides a row of its table."""
    path = tmp_path / "marked.db"
    with PersistedObjectSpace.open(path) as space:
        found = [StateTable(space, name, MARKED) for name in ("t", "u")]
        for table in found:
            table.insert_rows([(1, 1), (2, 9)])
        space.checkpoint(epoch=1)
        for table in found:
            table.update_watermark(5)
        space.checkpoint(epoch=2)
    return path


MARKED = TableSchema([Column("k", "int64"), Column("b", "int64")], ["k"], watermark_column="b")


def scanned(path: Path, name: str) -> list[Any]:
    with PersistedObjectSpace.open(path) as space:
        return list(StateTable(space, name).scan())


def test_a_table_goes_with_its_watermark(tool: Tool, marked: Path, tmp_path: Path) -> None:
    for number, command in enumerate(("restore", "fork")):
        assert tool(command, marked, tmp_path / f"{number}.db", "--object", "t").exit_code == 0
        assert scanned(tmp_path / f"{number}.db", "t") == [(2, 9)]
        assert '"u"' not in tool("show", tmp_path / f"{number}.db", "$watermarks", "--json").output
    (changed,) = map(json.loads, tool("diff", marked, 1, 2, "t", "--json").output.splitlines())
    assert (changed["op"], changed["object"], changed["key"]) == ("+", "$watermarks", "t")
    assert tool("diff", marked, 1, 2, "t", "--patch", tmp_path / "p.jsonl").exit_code == 1
    assert tool("fork", marked, tmp_path / "first.db", 1).exit_code == 0
    assert tool("apply", tmp_path / "first.db", tmp_path / "p.jsonl").exit_code == 0
    assert (scanned(tmp_path / "first.db", "t"), scanned(tmp_path / "first.db", "u")) == ([(2, 9)], [(1, 1), (2, 9)])
    assert tool("verify", tmp_path / "first.db").exit_code == 0


@pytest.mark.parametrize(
    ("kind", "values", "options"),
    [
        ("int16", [4, 5, 6], {}),
        ("float32", [0.1, 0.25, 1e10], {}),
        ("float64", [float("-inf"), 1.5, float("nan")], {}),
        ("decimal", [Decimal("-9.5"), Decimal("10"), Decimal("NaN")], {}),
        ("string", ["Z", "a", "ä"], {}),
        ("binary", [b"\0", b"\x01", b"\xff"], {}),
        ("date", [date(999, 1, 1), date(2026, 1, 1), date(2026, 1, 2)], {}),
        ("timestamp", [datetime(2026, 1, 1), datetime(2026, 1, 1, microsecond=5), datetime(2026, 1, 1, 1)], {}),
        ("timestamptz", [datetime(2026, 1, 1, microsecond=place, tzinfo=UTC) for place in (0, 5, 10)], {}),
        ("int64", [4, 5, 6], {"distribution_key": ["k"]}),
        ("int64", [4, 5, 6], {"vnode_column": "k"}),
    ],
)
def test_rows_below_a_watermark_are_not_shown(
    tool: Tool, tmp_path: Path, kind: str, values: list[Any], options: dict[str, Any]
) -> None:
    path = tmp_path / "s.db"
    columns = [Column("k", "int64"), Column("b", kind, nullable=True)]
    with PersistedObjectSpace.open(path) as space:
        table = StateTable(space, "t", TableSchema(columns, ["k"], watermark_column="b", **options))
        table.insert_rows([*enumerate(values), (3, None)])
        space.checkpoint(epoch=1)
        table.update_watermark(values[1])
        space.checkpoint(epoch=2)
        assert [row[0] for row in table.scan()] == [1, 2, 3]
    assert tool("export", path, "t", tmp_path / "t.csv").exit_code == 0
    for text in (tool("show", path, "t", "--format", "csv").output, (tmp_path / "t.csv").read_text()):
        assert sorted(line.split(",")[0] for line in text.splitlines()) == ["1", "2", "3", "k"]
    assert tool("show", path, "t").output.startswith("t = Table of 4 stored\n")
    assert len(tool("show", path, "t@1", "--json").output.splitlines()) == 4


def test_what_was_renamed_goes_whole_by_either_name(tool: Tool, marked: Path, tmp_path: Path) -> None:
    with PersistedObjectSpace.open(marked) as space:
        rename_table(space, "t", "v")
        space.checkpoint(epoch=3)
    for name in ("t", "v"):
        fork, patch = tmp_path / f"{name}.db", tmp_path / f"{name}.jsonl"
        assert tool("fork", marked, fork, 2).exit_code == 0
        assert tool("diff", marked, 2, 3, name, "--patch", patch).exit_code == 1
        assert tool("apply", fork, patch).exit_code == 0
        assert scanned(fork, "v") == [(2, 9)]
        assert tool("revert", fork, 3, "--object", name).exit_code == 0
        assert scanned(fork, "t") == [(2, 9)]
        assert tool("verify", fork).exit_code == 0


def test_revert_of_the_first_checkpoint(tool: Tool, tmp_path: Path) -> None:
    with PersistedObjectSpace.open(tmp_path / "s.db") as space:
        space.create_value("v", 1)
        space.checkpoint()
    assert tool("revert", tmp_path / "s.db", 1).exit_code == 0
    assert tool("ls", tmp_path / "s.db", "--json").output == ""


@pytest.mark.parametrize(
    "line",
    [
        *("[]", "no json", '["item",1]', '["nothing",1,null,null,1,null,"2",null,null]'),
        '["item",1,"d","Dictionary","k",null,5,null,null]',
        '["item",1,"d","Dictionary","k",null,"5",null,"first"]',
        '["item",1,"d","Dictionary",true,null,"5",null,1]',
        '["item",1,"d","Dictionary",{"slot":1},null,"5",null,1]',
        '["item",1,"d","Dictionary",9223372036854775808,null,"5",null,1]',
        '["item",1.5,"d","Dictionary","k",null,"5",null,1]',
        '["metadata",1,"d","Dictionary","length","1",2,null,null]',
        '["index",9,"z","List",null,null,{"index":["z",null,"{}"]},null,null]',
        '["index",9,"z","List",null,null,"z",null,null]',
    ],
)
def test_a_damaged_patch_names_its_line(tool: Tool, store: Path, tmp_path: Path, line: str) -> None:
    (tmp_path / "p.jsonl").write_text(f'{{"patch":1}}\n{line}\n')
    found = tool("apply", store, tmp_path / "p.jsonl")
    assert (found.exit_code, "line 2 of the patch is damaged" in found.stderr) == (2, True)
    (tmp_path / "p.jsonl").write_text('{"patch":3}\n')
    assert "no patch of format 1 to 2" in tool("apply", store, tmp_path / "p.jsonl").stderr
    limited = tool("diff", store, "--patch", tmp_path / "p.jsonl", "-n", 1)
    assert (limited.exit_code, "half changed" in limited.stderr) == (2, True)


@pytest.fixture
def kinds(tool: Tool, tmp_path: Path) -> Path:
    """Return a patch that changes an object of nearly every kind and brings one, and a fork that it fits beside it."""
    path, patch = tmp_path / "state.db", tmp_path / "p.jsonl"
    with PersistedObjectSpace.open(path) as space:
        for round_ in ("old", "new"):
            lists = space.get_or_create_dictionary("lists", of=list)
            for name in ("old", round_):
                space.get_or_create_list(f"list {name}").append(1)
                space.get_or_create_queue(f"queue {name}").enqueue(1)
                space.get_or_create_stack(f"stack {name}").push(1)
                space.get_or_create_sorted_set(f"set {name}").add(round_)
                space.get_or_create_array(f"array {name}", 2, default=0)[1] += 1
                lists.setdefault(name).append(1)
            space.checkpoint()
    assert tool("diff", path, "--patch", patch).exit_code == 1
    assert tool("fork", path, tmp_path / "fork.db", 1).exit_code == 0
    return patch


def test_a_patch_that_lost_lines_is_refused(kinds: Path) -> None:
    lines = kinds.read_bytes().splitlines()
    assert len(list(changes_of(lines))) > 30
    for place in range(1, len(lines)):
        for damaged in (lines[:place], lines[:place] + lines[place + 1 :], [*lines[:place], lines[1], *lines[place:]]):
            with pytest.raises(CheckpointError, match=r"last one.*(it was cut|edited on purpose)"):
                list(changes_of(damaged))
    with pytest.raises(CheckpointError, match=f"line {len(lines) + 1} of the patch comes after its last one"):
        list(changes_of([*lines, lines[1]]))


def test_a_patch_of_the_first_format_is_refused_where_it_lost_what_objects_cannot_be_without(
    tool: Tool, kinds: Path
) -> None:
    fork = kinds.with_name("fork.db")
    lines = ['{"patch":1}', *kinds.read_text().splitlines()[1:-1]]
    places = [place for place, line in enumerate(lines) if line.startswith('["metadata"')]
    rows = [(place, json.loads(line)) for place, line in enumerate(lines) if line.startswith('["item"')]
    slots = [place for place, row in rows if row[5] is None or (row[3] != "Array" and row[5] != row[6])]
    for place in (*places, *slots):
        kinds.write_text("\n".join(lines[:place] + lines[place + 1 :]))
        refused = tool("apply", fork, kinds)
        assert refused.exit_code == 2, lines[place]
        assert "nothing was written" in refused.stderr
    kinds.write_text("\n".join(lines))
    assert tool("apply", fork, kinds).exit_code == 0
    assert tool("verify", fork).exit_code == 0


@pytest.mark.parametrize("kind", ["dictionary", "set"])
def test_a_patch_of_the_first_format_is_refused_where_it_lost_which_rank_comes_next(
    tool: Tool, tmp_path: Path, kind: str
) -> None:
    path, fork, patch = tmp_path / "state.db", tmp_path / "fork.db", tmp_path / "p.jsonl"
    with PersistedObjectSpace.open(path) as space:
        keys = getattr(space, f"create_{kind}")("keys")
        keys.update({"a": 1, "b": 2})
        space.checkpoint()
        keys.pop("a") if kind == "dictionary" else keys.remove("a")
        keys.update({"c": 3})
        space.checkpoint()
    assert tool("fork", path, fork, 1).exit_code == 0
    assert tool("diff", path, "--patch", patch).exit_code == 1
    lines = ['{"patch":1}', *patch.read_text().splitlines()[1:-1]]
    patch.write_text("\n".join(line for line in lines if '"length"' not in line))
    refused = tool("apply", fork, patch)
    assert (refused.exit_code, "would have a slot of rank 2 where its metadata says that 2" in refused.stderr) == (
        2,
        True,
    )
    patch.write_text("\n".join(lines))
    assert (tool("apply", fork, patch).exit_code, tool("verify", fork).exit_code) == (0, 0)
    assert (tool("revert", fork, 2).exit_code, tool("verify", fork).exit_code) == (0, 0)


def test_restore_whole_and_in_part(tool: Tool, store: Path, location: Path, tmp_path: Path) -> None:
    assert tool("restore", store, tmp_path / "whole.db", "@40").exit_code == 0
    assert contents(tmp_path / "whole.db", "counts") == {"alice": 1, "bob": -4}
    assert tool("restore", store, tmp_path / "part.db", "--object", "lists").exit_code == 0
    with PersistedObjectSpace.open(tmp_path / "part.db") as space:
        assert (list(space), space.get("lists").copy()) == (["lists"], {"x": [1, 2]})
    alone = tool("diff", tmp_path / "part.db")
    assert (alone.exit_code, f"use checkpoint diff {tmp_path / 'part.db'} 0 HEAD" in alone.stderr) == (2, True)
    assert tool("diff", tmp_path / "part.db", 0, "HEAD").stdout.endswith("  + 0 = 1\n  + 1 = 2\n")
    assert tool("restore", store, tmp_path / "table.db", "@20", "--object", "orders").exit_code == 0
    assert tool("show", tmp_path / "table.db", "orders", "--format", "csv").output == "id,item\n2,\n1,item 1\n"
    assert tool("restore", location, tmp_path / "shard.db", "--shard", 1).exit_code == 0
    assert tool("restore", store, tmp_path / "part.db").exit_code == 2


def test_a_fork_of_some_objects(tool: Tool, store: Path, location: Path, tmp_path: Path) -> None:
    fork = tmp_path / "fork.db"
    assert tool("fork", store, fork, "@40", "--object", "orders", "--object", "lists").exit_code == 0
    with PersistedObjectSpace.open(fork) as space:
        assert sorted(space) == ["$tables", "lists", "orders"]
        assert StateTable(space, "orders", ORDERS).get_row((1,)) == (1, "item 1")
    assert tool("show", fork, "counts@40", "--format", "csv").output == "key,value\nalice,1\nbob,-4\n"
    assert tool("verify", fork).exit_code == 0
    missing = tool("fork", store, tmp_path / "no.db", "--object", "lits")
    assert (missing.exit_code, "did you mean 'lists'?" in missing.stderr) == (2, True)
    assert not (tmp_path / "no.db").exists()


def test_compact_and_prune(tool: Tool, store: Path) -> None:
    assert (
        "4 checkpoints would not be readable any more, 3 stay" in tool("prune", store, "--keep", 3, "--dry-run").output
    )
    assert tool("prune", store, "--keep", 3).output.startswith("4 checkpoints cannot be read any more, 3 stay")
    assert "runs would go from 3 to 1" in tool("compact", store, "--dry-run").output
    assert tool("compact", store).exit_code == 0
    assert contents(store, "counts") == {"bob": -7}


def test_prune_keeps_the_record_of_what_is_young(tool: Tool, tmp_path: Path) -> None:
    with PersistedObjectSpace.open(tmp_path / "state.db") as space:
        counts = space.create_dictionary("counts")
        for number in range(60):
            counts[number % 5] = number
            space.checkpoint()
    assert tool("prune", tmp_path / "state.db", "--older-than", 30).output.startswith("0 checkpoints cannot be read")
    assert len(tool("log", tmp_path / "state.db", "-n", 0, "--json").output.splitlines()) == 60
    assert tool("prune", tmp_path / "state.db", "--older-than", 0, "--keep", 7).exit_code == 0
    assert len(tool("log", tmp_path / "state.db", "-n", 0, "--json").output.splitlines()) == 7


def test_gc(tool: Tool, location: Path) -> None:
    assert tool("gc", location, "--grace", 0, "--keep-epochs", 1).exit_code == 0
    assert tool("verify", location).exit_code == 0


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


def test_export_and_import(tool: Tool, store: Path, tmp_path: Path) -> None:
    for ending in ("csv", "jsonl", "parquet", "db"):
        assert tool("export", store, "orders", tmp_path / f"orders.{ending}").output.endswith(": 7 rows\n")
    rows = sqlite3.connect(tmp_path / "orders.db").execute("SELECT id, item FROM orders").fetchall()
    assert rows == [(n, f"item {n}" if n % 2 else None) for n in range(7, 0, -1)]
    for ending in ("csv", "jsonl", "parquet"):
        new = tmp_path / f"new-{ending}.db"
        assert tool("import", new, tmp_path / f"orders.{ending}", "orders", "--key", "id").exit_code == 0
        assert contents(new, "orders")[7] == {"item": "item 7"}  # type: ignore[index]
    assert tool("import", new, tmp_path / "orders.csv", "list").exit_code == 0
    assert len(contents(new, "list")) == 7  # type: ignore[arg-type]
    assert tool("import", new, tmp_path / "orders.csv", "list").exit_code == 2
    assert tool("export", store, "orders", tmp_path / "orders.csv").exit_code == 2
    assert tool("export", store, "counts", tmp_path / "counts.jsonl").exit_code == 0
    assert tool("import", new, tmp_path / "counts.jsonl", "counts", "--key", "key").exit_code == 0
    assert contents(new, "counts") == {"bob": -7}


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_values_that_json_does_not_have_come_back(tool: Tool, tmp_path: Path, ending: str) -> None:
    content = {
        b"\xff": Decimal("1.50"),
        (1, "a"): date(2026, 1, 31),
        "text": {"nested": [b"\0", {"$key": "no tag"}]},
        "\x7f\\\x9b": {"\u202e": ["\\\u2066", 2**70, "\\u202e"]},
        7: None,
    }
    with PersistedObjectSpace.open(tmp_path / "old.db") as space:
        space.create_dictionary("d").update(content)
        space.checkpoint()
    target = tmp_path / f"d.{ending}"
    assert tool("export", tmp_path / "old.db", "d", target).exit_code == 0
    assert tool("import", tmp_path / "new.db", target, "d", "--key", "key").exit_code == 0
    assert contents(tmp_path / "new.db", "d") == content


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_a_table_comes_back_with_its_types(tool: Tool, tmp_path: Path, ending: str) -> None:
    types = {
        "id": "int64",
        "price": "decimal(10,2)",
        "day": "date",
        "at": "timestamp",
        "raw": "binary",
        "name": "string",
    }
    schema = TableSchema([Column(name, kind, nullable=name != "id") for name, kind in types.items()], ["id"])
    row = (1, Decimal("1.50"), date(2026, 1, 31), datetime(2026, 1, 31, 12), b"\0\xff", "x")
    with PersistedObjectSpace.open(tmp_path / "old.db") as space:
        table = StateTable(space, "t", schema)
        table.insert_row(row)
        table.insert_row((2, *[None] * 5))
        space.checkpoint()
    target = tmp_path / f"t.{ending}"
    assert tool("export", tmp_path / "old.db", "t", target).exit_code == 0
    assert tool("import", tmp_path / "new.db", target, "t", "--primary-key", "id").exit_code == 0
    with CheckpointStore(tmp_path / "new.db", read_only=True) as store:
        found = StorageTable(store, "t", epoch=store.checkpoints()[-1].epoch)
        assert list(found.scan()) == [row, (2, *[None] * 5)]
    seen = [tool("show", tmp_path / name, "t", "--format", "json").output for name in ("old.db", "new.db")]
    assert seen[0] == seen[1]


def test_without_hard_links_a_rename_does(
    tool: Tool, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    assert tool("export", store, "counts", tmp_path / "counts.csv").exit_code == 0
    assert "exists already" in tool("export", store, "counts", tmp_path / "counts.csv").stderr
    assert not list(tmp_path.glob(".*"))


def test_truth_values_and_mixed_lists_go_through_csv(tool: Tool, tmp_path: Path) -> None:
    schema = TableSchema([Column("id", "int64"), Column("open", "bool"), Column("tags", "string")], ["id"])
    with PersistedObjectSpace.open(tmp_path / "old.db") as space:
        StateTable(space, "t", schema).insert_row((1, True, '[1,"x"]'))
        space.create_dictionary("d").update({True: False})
        space.checkpoint()
    for name in ("t", "d"):
        assert tool("export", tmp_path / "old.db", name, tmp_path / f"{name}.csv").exit_code == 0
    assert tool("import", tmp_path / "new.db", tmp_path / "t.csv", "t", "--primary-key", "id").exit_code == 0
    assert tool("import", tmp_path / "new.db", tmp_path / "d.csv", "d", "--key", "key").exit_code == 0
    assert contents(tmp_path / "new.db", "d") == {True: False}
    with CheckpointStore(tmp_path / "new.db", read_only=True) as store:
        assert list(StorageTable(store, "t").scan()) == [(1, True, '[1,"x"]')]


def test_a_dollar_of_another_file_stays(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"type":{"$ref":"#/x"}}\n')
    assert tool("import", tmp_path / "new.db", tmp_path / "rows.jsonl", "rows").exit_code == 0
    assert contents(tmp_path / "new.db", "rows") == [{"type": {"$ref": "#/x"}}]


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("a,b\n1,2\n1,3\n", ("--key", "a"), "row 2: 'a' is 1 as in an earlier row"),
        ("a,b\n1,2\n1,3\n", ("--primary-key", "a"), "row 2: 'a' is 1 as in an earlier row"),
        ("a,a\n1,2\n", (), "several columns 'a'"),
    ],
)
def test_an_import_that_would_lose_something_is_refused(
    tool: Tool, tmp_path: Path, text: str, options: tuple[str, ...], expected: str
) -> None:
    (tmp_path / "in.csv").write_text(text)
    found = tool("import", tmp_path / "new.db", tmp_path / "in.csv", "t", *options)
    assert found.exit_code == 2
    assert expected in found.stderr
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [('{"a":' + "[" * 500 + "]" * 500 + "}", "t", "deep"), ('{"a":1}', "$tables", "begin with a dollar")],
    ids=["deep", "dollar"],
)
def test_an_import_that_is_refused_leaves_no_store(
    tool: Tool, tmp_path: Path, text: str, name: str, expected: str
) -> None:
    (tmp_path / "in.jsonl").write_text(text)
    found = tool("import", tmp_path / "new.db", tmp_path / "in.jsonl", name)
    assert (found.exit_code, expected in found.stderr) == (2, True), found.stderr
    assert list(tmp_path.glob("new.db*")) == []


@pytest.mark.parametrize(("last", "expected"), [('{"k":-1,"w":"x"}', "has a column 'w'"), ("[]", "row 1001 is []")])
def test_a_late_row_that_is_unlike_the_others_is_refused(tool: Tool, tmp_path: Path, last: str, expected: str) -> None:
    (tmp_path / "in.jsonl").write_text("".join(f'{{"k":{row}}}\n' for row in range(1000)) + last)
    found = tool("import", tmp_path / "new.db", tmp_path / "in.jsonl", "t", "--primary-key", "k")
    assert (found.exit_code, expected in found.stderr) == (2, True), found.stderr
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_columns_of_one_name_are_refused(tool: Tool, tmp_path: Path, ending: str) -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    if ending == "parquet":
        pq.write_table(table, tmp_path / "in.parquet")
    else:
        with pa.ipc.new_file(str(tmp_path / "in.arrow"), table.schema) as writer:
            writer.write_table(table)
    found = tool("import", tmp_path / "new.db", tmp_path / f"in.{ending}", "t")
    assert (found.exit_code, "several columns 'a'" in found.stderr) == (2, True), found.stderr


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_long_numbers_and_long_texts_keep_every_digit(tool: Tool, tmp_path: Path, ending: str) -> None:
    number, text = 123456789012345678901234567890, "x" * 200_000
    lines = {"csv": f"k,v\n1,{number}\n2,{text}\n", "jsonl": f'{{"k":1,"v":{number}}}\n{{"k":2,"v":"{text}"}}\n'}
    (tmp_path / f"in.{ending}").write_text(lines[ending])
    assert tool("import", tmp_path / "new.db", tmp_path / f"in.{ending}", "d", "--key", "k").exit_code == 0
    assert contents(tmp_path / "new.db", "d") == {1: {"v": number}, 2: {"v": text}}


def test_bytes_in_a_column_of_text_are_told_as_elsewhere(tool: Tool, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "in.db")) as database, database:
        database.execute("CREATE TABLE t (k, v)")
        database.executemany("INSERT INTO t VALUES (?, ?)", [(1, b"\xff"), (2, "x")])
    assert tool("import", tmp_path / "new.db", tmp_path / "in.db", "t", "--primary-key", "k").exit_code == 0
    with CheckpointStore(tmp_path / "new.db", read_only=True) as store:
        assert list(StorageTable(store, "t").scan()) == [(1, '{"$bytes":"/w=="}'), (2, "x")]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "arrow", "db"])
def test_a_table_whose_key_has_nulls_comes_back(tool: Tool, tmp_path: Path, ending: str) -> None:
    columns = [Column("a", "int64"), Column("b", "string", nullable=True), Column("c", "int64", nullable=True)]
    rows = [(1, "x", None), (1, None, 7), (2, None, 8)]
    with PersistedObjectSpace.open(tmp_path / "old.db") as space:
        table = StateTable(space, "t", TableSchema(columns, ["a", "b"]))
        for row in rows:
            table.insert_row(row)
        space.checkpoint()
    file, new = tmp_path / f"t.{ending}", tmp_path / "new.db"
    assert tool("export", tmp_path / "old.db", "t", file).exit_code == 0
    assert tool("import", new, file, "t", "--primary-key", "a,b").exit_code == 0
    with CheckpointStore(new, read_only=True) as store:
        assert sorted(StorageTable(store, "t").scan(), key=str) == sorted(rows, key=str)


def test_a_null_that_comes_late_in_a_key_is_refused_with_what_to_do(tool: Tool, tmp_path: Path) -> None:
    lines = [f'{{"a":1,"b":{number}}}' for number in range(1_000)]
    (tmp_path / "in.jsonl").write_text("\n".join([*lines, '{"a":1}']))
    found = tool("import", tmp_path / "new.db", tmp_path / "in.jsonl", "t", "--primary-key", "a,b")
    assert found.exit_code == 2
    assert (
        "row 1001 has no value of the key column 'b', which each of the first 1,000 has: move the row" in found.stderr
    )


def test_the_lines_of_a_diff_tell_none_from_nothing(tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with PersistedObjectSpace.open(path) as space:
        space.create_dictionary("d").update(x=1, y=1, z=None)
        space.checkpoint()
        space.get_dictionary("d").update(x=None, new=None)
        del space.get_dictionary("d")["y"]
        space.checkpoint()
    lines = map(json.loads, tool("diff", path, 1, 2, "--json").output.splitlines())
    assert {line["key"]: line["op"] for line in lines if line["table"] == "item"} == {"x": "~", "y": "-", "new": "+"}


def test_blame_knows_who_changed_an_object_in_a_slot(tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with PersistedObjectSpace.open(path) as space:
        lists = space.create_dictionary("lists", of=list)
        lists["k"], lists["other"] = [1], [5]
        space.checkpoint()
        lists["k"].append(2)
        space.checkpoint()
    lines = map(json.loads, tool("blame", path, "lists", "--json").output.splitlines())
    assert {line["key"]: (line["number"], line["value"]) for line in lines} == {"k": (2, [1, 2]), "other": (1, [5])}


def grown(space: PersistedObjectSpace, number: int) -> None:
    """Add a slot to objects of every kind whose length says how many they have, and take one of before away."""
    space.get_or_create_set("set").add(number)
    space.get_or_create_sorted_set("sorted").add(number)
    space.get_or_create_dictionary("dictionary")[number] = str(number)
    space.get_or_create_list("list").append(number)
    space.get_or_create_dictionary("lists", list).setdefault("a").append(number)
    if number % 3 == 0:
        for name in ("set", "sorted"):
            space.get(name).discard(number - 1)
        del space.get("dictionary")[number - 1], space.get("list")[-2], space.get("lists")["a"][-2]
    space.checkpoint()


@pytest.mark.parametrize(
    ("undone", "left"), [([4], {1, 3, 6, 7}), ([3], {1, 2, 4, 6, 7}), ([3, 2], {1, 4, 6, 7}), ([6, 5], {1, 3, 4, 7})]
)
def test_what_came_and_went_in_an_epoch_is_undone_although_the_objects_have_grown(
    tool: Tool, tmp_path: Path, undone: list[int], left: set[int]
) -> None:
    path = tmp_path / "s.db"
    with PersistedObjectSpace.open(path) as space:
        for number in range(1, 8):
            grown(space, number)
    for epoch in undone:
        said = tool("revert", path, f"@{epoch}", "--dry-run").stdout
        assert tool("revert", path, f"@{epoch}").exit_code == 0
        assert tool("diff", path).stdout == said
    assert tool("verify", path).exit_code == 0
    with PersistedObjectSpace.open(path) as space:
        for target in (*map(space.get, ("set", "sorted", "dictionary", "list")), space.get("lists")["a"]):
            assert sorted(target) == sorted(left)
            assert len(target) == len(left)
        grown(space, 10)
        order = list(space.get("set")), list(space.get("dictionary"))
        assert order[0][-1] == order[1][-1] == 10
    with PersistedObjectSpace.open(path) as space:
        assert (list(space.get("set")), list(space.get("dictionary"))) == order


def test_what_has_gone_since_is_not_undone(tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with PersistedObjectSpace.open(path) as space:
        for number in range(1, 8):
            grown(space, number)
    refused = tool("revert", path, "@5")
    assert (refused.exit_code, "something else has changed it since" in refused.stderr) == (2, True)


def test_a_patch_whose_place_in_the_order_of_insertion_is_taken_is_refused(tool: Tool, tmp_path: Path) -> None:
    path, patch = tmp_path / "s.db", tmp_path / "p.jsonl"
    with PersistedObjectSpace.open(path) as space:
        for number in (1, 2):
            space.get_or_create_set("set").add(number)
            space.get_or_create_sorted_set("sorted").add(number)
            space.checkpoint(epoch=number)
        space.store.fork(tmp_path / "fork.db", epoch=1)
    with PersistedObjectSpace.open(tmp_path / "fork.db") as space:
        space.get("set").add(7)
        space.get("sorted").add(7)
        space.checkpoint(epoch=2)
    for name, code in (("set", 2), ("sorted", 0)):
        assert tool("diff", path, "@1", "@2", name, "--patch", patch).exit_code == 1
        found = tool("apply", tmp_path / "fork.db", patch)
        assert (found.exit_code, "nothing was written" in found.stderr) == (code, bool(code))
    assert contents(tmp_path / "fork.db", "sorted") == {1, 2, 7}


def test_what_would_create_a_tensor_is_described(tool: Tool, tmp_path: Path) -> None:
    path, fork, patch = tmp_path / "state.db", tmp_path / "fork.db", tmp_path / "p.jsonl"
    with PersistedObjectSpace.open(path) as space:
        space.create_value("", 1)
        space.checkpoint()
        space.create_tensor("t", (3,), "f4")[1] = 5
        space.checkpoint()
    assert tool("fork", path, fork, 1).exit_code == 0
    assert tool("diff", path, "--patch", patch).exit_code == 1
    tried = tool("apply", fork, patch, "--dry-run")
    assert (tried.exit_code, "5.0" in tried.output) == (0, True)
    assert tool("revert", path, "HEAD").exit_code == 0
    assert tool("revert", path, "HEAD", "--dry-run").exit_code == 0
    assert {
        name
        for line in tool("log", path, "--objects", "--json").output.splitlines()
        for name in json.loads(line)["objects"]
    } == {"", "t"}


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv", "jsonl", "db"])
@pytest.mark.parametrize("folder", ["c:d", "./c:d", "s3:d"])
def test_a_folder_may_look_like_the_scheme_of_a_url(
    tool: Tool, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, ending: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(folder).mkdir()
    target = f"{folder}/orders.{ending}"
    assert tool("export", store, "orders", target).output == f"{target}: 7 rows\n"
    assert tool("import", f"{folder}/new.db", target, "orders", "--key", "id").exit_code == 0
    assert sorted(contents(Path(folder, "new.db"), "orders")) == list(range(1, 8))


def test_values_with_a_dollar_that_are_none_of_ours_are_imported_as_they_are(tool: Tool, tmp_path: Path) -> None:
    values = [
        *(
            {"$decimal": "x"},
            {"$complex": [1]},
            {"$complex": {}},
            {"$timedelta": [9_999_999_999, 0, 0]},
            {"$date": "x"},
        ),
        *({"$datetime": ["2026-01-31", zone, 0]} for zone in ("No/Where", "Europe")),
        *({"$dataclass": given} for given in ("x", ["x"], ["x", {}, 1], {})),
    ]
    rows, path = tmp_path / "rows.jsonl", tmp_path / "new.db"
    rows.write_text("".join(json.dumps({"value": value}) + "\n" for value in values))
    assert tool("import", path, rows, "given").exit_code == 0
    assert contents(path, "given") == [{"value": value} for value in values]


def test_one_value_that_is_none_of_ours_leaves_its_neighbours_what_they_are(tool: Tool, tmp_path: Path) -> None:
    given = '{"key":"k","value":[{"$decimal":"1.5"},{"$later":{"a":{"$date":"2026-01-31"}}}]}\n'
    (tmp_path / "rows.jsonl").write_text(given)
    assert tool("import", tmp_path / "new.db", tmp_path / "rows.jsonl", "d", "--key", "key").exit_code == 0
    assert contents(tmp_path / "new.db", "d") == {"k": [Decimal("1.5"), {"$later": {"a": date(2026, 1, 31)}}]}


@pytest.fixture
def point(monkeypatch: pytest.MonkeyPatch) -> type[Point]:
    """Return a dataclass that is registered here, as the program of a user does; a command knows none."""
    monkeypatch.setattr("objectspace.codec._registered", {})
    register_dataclass(Point)
    return Point


@dataclass(frozen=True)
class Point:
    """A value of a user."""

    x: int
    y: object = None


def imported(store: Path, file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Import a file in a process that knows no dataclass."""
    command = [sys.executable, "-m", "checkpoint", "import", str(store), str(file), "d", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_dataclasses_come_back_through_a_process_that_does_not_know_them(
    tool: Tool, tmp_path: Path, point: type[Point], ending: str
) -> None:
    content = {
        "one": point(1, Decimal("2.5")),
        "among others": [Decimal("1.5"), {"in": (point(2), b"x")}],
        "set": {point(1), point(2)},
        "dict": {1: point(3)},
    }
    with PersistedObjectSpace.open(tmp_path / "old.db") as space:
        space.create_dictionary("d").update(content)
        space.checkpoint()
    target = tmp_path / f"d.{ending}"
    assert tool("export", tmp_path / "old.db", "d", target).exit_code == 0
    assert imported(tmp_path / "new.db", target, "--key", "key").returncode == 0
    assert contents(tmp_path / "new.db", "d") == content


def test_a_dataclass_that_would_be_a_key_is_refused(tool: Tool, tmp_path: Path, point: type[Point]) -> None:
    with PersistedObjectSpace.open(tmp_path / "old.db") as space:
        space.create_dictionary("d").update({(1, point(1)): 1})
        space.checkpoint()
    assert tool("export", tmp_path / "old.db", "d", tmp_path / "d.jsonl").exit_code == 0
    done = imported(tmp_path / "new.db", tmp_path / "d.jsonl", "--key", "key")
    assert (done.returncode, "row 1: 'key' cannot be a key without its class: a Point" in done.stderr) == (2, True)
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet", "db"])
def test_a_column_may_be_called_as_a_mark_is(tool: Tool, tmp_path: Path, ending: str) -> None:
    with PersistedObjectSpace.open(tmp_path / "old.db") as space:
        schema = TableSchema([Column("$date", "string")], ["$date"])
        StateTable(space, "t", schema).insert_row(("2026-01-31",))
        space.checkpoint()
    target = tmp_path / f"t.{ending}"
    assert tool("export", tmp_path / "old.db", "t", target).exit_code == 0
    assert tool("import", tmp_path / "new.db", target, "t", "--primary-key", "$date").exit_code == 0
    assert tool("import", tmp_path / "new.db", target, "l").exit_code == 0
    assert contents(tmp_path / "new.db", "l") == [{"$date": "2026-01-31"}]
    seen = [tool("show", tmp_path / name, "t", "--json").output for name in ("old.db", "new.db")]
    assert seen == ['{"$date":"2026-01-31"}\n'] * 2


def test_raw_values_come_back_as_what_they_are(tool: Tool, tmp_path: Path) -> None:
    content = {"a": b"q", "b": "q", "c": b"\xff", "d": b""}
    with PersistedObjectSpace.open(tmp_path / "old.db") as space:
        space.create_sorted_dictionary("d", raw=True).update({key.encode(): value for key, value in content.items()})
        space.checkpoint()
    assert tool("export", tmp_path / "old.db", "d", tmp_path / "d.jsonl").exit_code == 0
    assert tool("import", tmp_path / "new.db", tmp_path / "d.jsonl", "d", "--key", "key").exit_code == 0
    assert contents(tmp_path / "new.db", "d") == content


def test_an_object_that_sqlite_takes_no_table_for_is_refused_with_what_to_do(tool: Tool, tmp_path: Path) -> None:
    with PersistedObjectSpace.open(tmp_path / "s.db") as space:
        space.create_dictionary("SQLite_x")["a"] = 1
        space.checkpoint()
    found = tool("export", tmp_path / "s.db", "SQLite_x", tmp_path / "x.db")
    assert (found.exit_code, "export to one of .parquet, .csv" in found.stderr) == (2, True), found.stderr
    assert sorted(path.name for path in tmp_path.glob("*x*.db*")) == []
    assert tool("export", tmp_path / "s.db", "SQLite_x", tmp_path / "x.csv").exit_code == 0
