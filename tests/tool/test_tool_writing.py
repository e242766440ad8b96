"""The commands that write: patches, reverts, copies and upkeep."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from checkpoint import CheckpointError, CheckpointStore
from checkpoint.tool.patch import changes_of
from objectspace import PersistedObjectSpace
from objectspace.relational import Column, StateTable, TableSchema, rename_table, tables
from tests.tool.conftest import ORDERS, Tool, contents


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
