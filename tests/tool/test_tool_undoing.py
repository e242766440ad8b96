"""Undoing what later checkpoints have built upon is refused; what a command leaves behind where it fails is nothing."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace as replaced
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import checkpoint.tool.changes
import checkpoint.tool.moving
from checkpoint import CheckpointError, CheckpointStore
from checkpoint.chain import Chain, location_at
from checkpoint.lock import WriterLock
from checkpoint.tool.patch import BEGINNING, changes_of
from checkpoint.tool.source import remove_unused
from objectspace import PersistedObjectSpace
from objectspace.kvt import KeyValueTableConfiguration, KeyValueTableManager
from objectspace.relational import Column, StateTable, TableSchema, drop_table, rename_table
from tests.chain.chain_helpers import OPERATOR
from tests.tool.conftest import ORDERS, Tool

LARGE = 2**70


def test_an_object_into_which_others_have_written_since_is_not_undone(tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with PersistedObjectSpace.open(path) as space:
        array = space.create_array("a", 2000, default=0)
        for place in (1, 100):
            array[place] = place
            space.checkpoint()
    refused = tool("revert", path, "1", "--object", "a")
    assert (refused.exit_code, "slot 100 is not theirs" in refused.output) == (2, True)
    assert tool("revert", path, "2", "--object", "a").exit_code == 0
    with PersistedObjectSpace.open(path) as space:
        assert [place for place, value in enumerate(space.get("a")) if value] == [1]


def test_what_is_undone_may_be_named_without_its_operator(tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with PersistedObjectSpace.open(path) as space:
        for name in ("longest/longest", "a/late", "b/late"):
            space.create_dictionary(name)["n"] = 1
        space.checkpoint()
    refused = tool("revert", path, "1", "--object", "late")
    assert (refused.exit_code, refused.stderr) == (
        2,
        "error: there is no object 'late': did you mean 'a/late' or 'b/late'?\n",
    )
    assert tool("revert", path, "1", "--object", "longest").exit_code == 0
    with PersistedObjectSpace.open(path) as space:
        assert sorted(space) == ["a/late", "b/late"]


def test_an_owned_object_that_was_deleted_since_is_not_undone(tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with PersistedObjectSpace.open(path) as space:
        queues = space.create_dictionary("o", of="queue")
        for number in range(2):
            for key in "ab":
                queues.setdefault(key).enqueue(number)
            space.checkpoint()
        del queues["b"]
        space.checkpoint()
    refused = tool("revert", path, "2")
    assert (refused.exit_code, "is to change, but there is no such object (any more)" in refused.output) == (2, True)


def of_a_fork(tmp_path: Path, ours: Callable[[PersistedObjectSpace], object]) -> tuple[Path, Path]:
    """Return a store after an edit, and a fork from before it, with a list under the key "q"."""
    here, there = tmp_path / "a.db", tmp_path / "b.db"
    with PersistedObjectSpace.open(here) as space:
        space.create_dictionary("lists", of=list)
        space.checkpoint()
        space.store.fork(there)
        ours(space)
        space.checkpoint()
    with PersistedObjectSpace.open(there) as space:
        lists = space.get_dictionary("lists")
        lists["q"] = [1]
        space.checkpoint()
        lists["q"].append(2)
        space.checkpoint()
    return here, there


def listed(key: str, *contents: int) -> Callable[[PersistedObjectSpace], object]:
    return lambda space: space.get_dictionary("lists").update({key: contents})


@pytest.mark.parametrize(
    ("points", "ours", "other"),
    [
        ((1, 2), lambda space: space.create_list("mine").append(1), "List 'mine'"),
        ((2, 3), listed("k", 1), "lists['k']"),
        ((3, 2), listed("k", 1, 2), "lists['k']"),
    ],
)
def test_a_patch_of_an_owned_object_is_none_for_another_one_of_its_id(
    tool: Tool, tmp_path: Path, points: tuple[int, int], ours: Any, other: str
) -> None:
    (here, there), patch = of_a_fork(tmp_path, ours), tmp_path / "p.jsonl"
    assert tool("diff", there, *points, "--patch", patch).exit_code == 1
    before = tool("diff", here, 0, "HEAD").stdout
    for more in ("--dry-run", "--json"):
        refused = tool("apply", here, patch, more)
        assert (refused.exit_code, f"object 2, lists['q'], but object 2 is {other} here" in refused.stderr) == (2, True)
    assert (tool("diff", here, 0, "HEAD").stdout, "nothing was written" in refused.stderr) == (before, True)


def test_a_patch_says_whose_an_owned_object_is_by_lines_that_change_nothing(tool: Tool, tmp_path: Path) -> None:
    (here, there), patch = of_a_fork(tmp_path, listed("q", 1)), tmp_path / "p.jsonl"
    assert "2 changes in" in tool("diff", there, 2, 3, "--patch", patch).stderr
    _, entry, owner, *own, _ = patch.read_bytes().splitlines()
    header = b'{"patch":1}'
    index = {"index": ["lists", "Dictionary", '{"of":"List"}']}
    assert json.loads(entry) == ["index", 1, "lists", "Dictionary", None, index, index, None, None]
    assert json.loads(owner) == ["item", 1, "lists", "Dictionary", "q", '{"$object":2}', '{"$object":2}', 0, 0]
    with CheckpointStore(there, read_only=True) as store:
        changes = list(store.diff(2, 3))
    assert list(changes_of([header, entry, owner, *own])) == changes
    # A patch of an older version has no such lines, and is applied by what the object holds.
    assert list(changes_of([header, *own])) == [replaced(change, owner=None) for change in changes]
    patch.write_bytes(b"\n".join([header, *own]))
    assert tool("apply", here, patch).exit_code == 0
    with PersistedObjectSpace.open(here) as space:
        assert space.get("lists").copy() == {"q": [1, 2]}


@pytest.mark.parametrize("is_inverted", [False, True])
def test_a_tensor_that_takes_the_id_of_another_object_is_shown_and_undone(
    tool: Tool, tmp_path: Path, is_inverted: bool
) -> None:
    paths = [tmp_path / name for name in ("a.db", "b.db")]
    for path, is_tensor in zip(paths, (is_inverted, not is_inverted), strict=True):
        with PersistedObjectSpace.open(path) as space:
            if is_tensor:
                space.create_tensor("x", (3,), "int8")[0] = 1
            else:
                space.create_dictionary("x", of=list)["k"] = ["text"]
            space.checkpoint()
    with CheckpointStore(paths[0]) as here, CheckpointStore(paths[1], read_only=True) as there:
        here.apply_changes(list(here.diff(here.reader(), there.reader())))
    shown = tool("diff", paths[0], 1, 2)
    signs = "-+" if is_inverted else "+-"
    assert (shown.exit_code, f'{signs[1]} k = {{"$object":2}}' in shown.stdout) == (1, True)
    assert (tool("revert", paths[0], 2).exit_code, tool("verify", paths[0]).exit_code) == (0, 0)
    assert tool("diff", paths[0], 1, 3).exit_code == 0


Step = Callable[[PersistedObjectSpace], object]

MARKED = TableSchema([Column("a", "int64"), Column("b", "int16", nullable=True)], ["a"], watermark_column="b")
"""The schema of the table ``t`` that each of the stores below begins with."""


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Path]:
    """Return what makes a store with two rows and a scope, and a checkpoint for each step after that."""

    def _make(*steps: Step) -> Path:
        path = tmp_path / "state.db"
        with PersistedObjectSpace.open(path) as space:
            StateTable(space, "t", MARKED).insert_rows([(1, 5), (2, 6)])
            KeyValueTableManager(space).create_scope("shop")
            for step in (lambda _: None, *steps):
                step(space)
                space.checkpoint()
        return path

    return _make


def changed(change: Callable[[TableSchema], TableSchema]) -> Step:
    return lambda space: StateTable(space, "t", change(StateTable(space, "t").schema), evolve=True)


evolve = changed(lambda schema: schema.with_column(Column("c", "int64", nullable=True)))
rename_column = changed(lambda schema: schema.renamed("b", "new"))


def widen(kind: str) -> Step:
    return changed(lambda schema: schema.widened("b", kind))


def insert(*row: object, name: str = "t") -> Step:
    return lambda space: StateTable(space, name).insert_row(row)


def delete(space: PersistedObjectSpace) -> None:
    StateTable(space, "t").delete_row((1, 5, None))


def mark(watermark: float) -> Step:
    return lambda space: StateTable(space, "t").update_watermark(watermark)


def rename(space: PersistedObjectSpace) -> None:
    rename_table(space, "t", "u")


def replace(space: PersistedObjectSpace) -> None:
    drop_table(space, "t")
    StateTable(space, "u", MARKED)


def create(name: str, scope: str = "shop") -> Step:
    return lambda space: KeyValueTableManager(space).create_key_value_table(scope, name, KeyValueTableConfiguration(1))


def drop(space: PersistedObjectSpace) -> None:
    KeyValueTableManager(space).delete_key_value_table("shop", "stock")


def put(space: PersistedObjectSpace) -> None:
    KeyValueTableManager(space).open_key_value_table("shop", "stock").put(b"k", b"v", "f")


def create_scope(space: PersistedObjectSpace) -> None:
    KeyValueTableManager(space).create_scope("new")


def both(*steps: Step) -> Step:
    return lambda space: [step(space) for step in steps]


@pytest.mark.parametrize(
    ("steps", "name", "own"),
    [
        ([evolve, insert(3, 5, 7)], "t", "$tables"),
        ([widen("int64"), insert(3, 2**40)], "t", "$tables"),
        ([widen("int64"), mark(2**40)], "t", "$tables"),
        ([widen("decimal"), mark(5)], "t", "$tables"),
        ([create("stock"), put], "kvt/shop/stock", "kvt/catalogue"),
        ([create_scope, create("one", "new")], "kvt/new/one", "kvt/catalogue"),
    ],
)
def test_what_says_how_a_table_is_read_is_not_undone_under_what_was_written_since(
    tool: Tool, made: Callable[..., Path], tmp_path: Path, steps: list[Step], name: str, own: str
) -> None:
    path, whole, patch = made(*steps), tmp_path / "whole.db", tmp_path / "p.jsonl"
    assert tool("fork", path, whole).exit_code == 0
    assert tool("diff", path, 2, 1, "--patch", patch).exit_code == 1
    for chosen in (("revert", path, 2), ("revert", path, 2, "--object", own), ("apply", path, patch)):
        for dry in ((), ("--dry-run",)):
            refused = tool(*chosen, *dry)
            assert (refused.exit_code, f"table {name!r} " in refused.stderr) == (2, True)
            assert "that is of checkpoint 3: undo it, too" in refused.stderr
    assert tool("diff", path, 0, "--stat").output == tool("diff", whole, 0, "--stat").output
    for number in (3, 2):
        assert tool("revert", path, number).exit_code == 0
    assert tool("diff", path, 1).output == ""
    for step in steps:
        with PersistedObjectSpace.open(path) as space:
            step(space)
            space.checkpoint()


@pytest.mark.parametrize(
    ("steps", "name", "own"),
    [
        ([both(evolve, insert(3, 5, 7))], "t", "$tables"),
        ([rename], "u", "$tables"),
        ([replace, insert(5, 5, name="u")], "u", "$tables"),
        ([lambda space: StateTable(space, "u", MARKED)], "u", "$tables"),
        ([both(create("stock"), put)], "kvt/shop/stock", "kvt/catalogue"),
    ],
)
def test_an_entry_is_not_undone_without_what_came_with_it(
    tool: Tool, made: Callable[..., Path], steps: list[Step], name: str, own: str
) -> None:
    path = made(*steps)
    refused = tool("revert", path, 2, "--object", own)
    assert (refused.exit_code, f"table {name!r} " in refused.stderr) == (2, True)
    assert "that is of checkpoint 2: undo it, too" in refused.stderr
    assert len(steps) == 2 or tool("revert", path, 2, "--object", name).exit_code == 0


@pytest.mark.parametrize(
    ("steps", "rows"),
    [
        ([evolve, delete], [(2, 6)]),
        ([evolve, mark(6)], [(2, 6)]),
        ([rename_column, insert(3, 7)], [(1, 5), (2, 6), (3, 7)]),
        ([widen("int64"), mark(6)], [(2, 6)]),
        ([widen("int64"), insert(3, 7)], [(1, 5), (2, 6), (3, 7)]),
        ([rename, insert(3, 7, name="u")], [(1, 5), (2, 6), (3, 7)]),
        ([create_scope, lambda space: space.create_dictionary("kvt/new/notes")], [(1, 5), (2, 6)]),
    ],
)
def test_what_was_written_since_keeps_nobody_from_undoing_where_it_can_be_read(
    tool: Tool, made: Callable[..., Path], steps: list[Step], rows: list[tuple[int, int]]
) -> None:
    path = made(*steps)
    assert tool("revert", path, 2).exit_code == 0
    with PersistedObjectSpace.open(path) as space:
        assert list(StateTable(space, "t", MARKED).scan()) == rows


def test_rows_do_not_come_back_into_a_table_that_cannot_read_them(tool: Tool, made: Callable[..., Path]) -> None:
    path = made(both(evolve, insert(3, 5, 7)), lambda space: StateTable(space, "t").delete_row((3, 5, 7)))
    assert tool("revert", path, 2, "--object", "$tables").exit_code == 0
    refused = tool("revert", path, 3)
    assert (refused.exit_code, "'t' holds a row of layout 1" in refused.stderr) == (2, True)
    assert "make those first that its schema" in refused.stderr


def test_no_watermark_falls_where_a_table_is_chosen_by_name(
    tool: Tool, made: Callable[..., Path], tmp_path: Path
) -> None:
    path = made(
        *(both(insert(number, number), mark(number)) for number in (7, 8, 9)), both(rename, insert(5, 5, name="u"))
    )
    patch = tmp_path / "p.jsonl"
    assert tool("revert", path, 3, "--object", "t").exit_code == 0
    assert tool("diff", path, "HEAD", 1, "u", "--patch", patch).exit_code == 1
    assert tool("apply", path, patch).exit_code == 0
    with PersistedObjectSpace.open(path) as space:
        table = StateTable(space, "t")
        assert (list(table.scan()), table.watermark) == ([], 9)


@pytest.mark.parametrize("more", [[], [rename]])
@pytest.mark.parametrize(
    ("narrow", "wide", "watermark", "said"),
    [
        ("int16", "int64", 2**15, "32768"),
        ("int16", "float64", 5.5, "5.5"),
        ("int16", "decimal", 5, "'5'"),
        ("float32", "float64", 1e300, "1e+300"),
        ("int32", "decimal(12,2)", 5, "'5'"),
    ],
)
def test_no_column_gets_too_narrow_for_its_watermark(
    tool: Tool,
    made: Callable[..., Path],
    tmp_path: Path,
    narrow: str,
    wide: str,
    watermark: float,
    said: str,
    more: list[Step],
) -> None:
    path, patch = made(both(widen(narrow), mark(1)), both(widen(wide), mark(watermark), *more)), tmp_path / "p.jsonl"
    assert tool("diff", path, 3, 2, "t", "--patch", patch).exit_code == 1
    for chosen in (("revert", path, 3, "--object", "t"), ("apply", path, patch)):
        for dry in ((), ("--dry-run",)):
            refused = tool(*chosen, *dry)
            assert (refused.exit_code, "checkpoint 3: undo it, too, as a whole" in refused.stderr) == (2, True)
            assert f"table 't' would have the watermark {said} in its column 'b' of {narrow}, " in refused.stderr
    assert tool("revert", path, 3).exit_code == 0
    with PersistedObjectSpace.open(path) as space:
        assert StateTable(space, "t").watermark == 1


def test_the_number_of_the_next_partition_falls_only_where_all_is_undone(
    tool: Tool, made: Callable[..., Path], tmp_path: Path
) -> None:
    path, patch = made(create("stock"), drop, create("other")), tmp_path / "p.jsonl"
    assert tool("revert", path, 4, "--object", "kvt/partitions").exit_code == 2
    assert tool("diff", path, 4, 2, "shop/stock", "--patch", patch).exit_code == 1
    assert tool("apply", path, patch).exit_code == 0
    assert tool("revert", path, 5, "--object", "shop/stock").exit_code == 0
    assert tool("revert", path, 3, "--object", "shop/stock").exit_code == 0
    with PersistedObjectSpace.open(path) as space:
        assert space.get("kvt/partitions").value == 2
    for number in ("HEAD", "HEAD~2", "HEAD~4", 4):
        assert tool("revert", path, number).exit_code == 0
    assert tool("diff", path, 3).output == ""


def test_a_key_is_undone_or_applied_where_another_one_of_its_partition_was_written_since(
    tool: Tool, made: Callable[..., Path], tmp_path: Path
) -> None:
    def _keys(path: Path, put: bytes = b"") -> list[bytes]:
        with PersistedObjectSpace.open(path) as space:
            table = KeyValueTableManager(space).open_key_value_table("shop", "stock")
            if put:
                versions.append(table.put(put, b"v", "f"))
                space.checkpoint()
            return [one for one in (b"k", b"l", b"m") if table.get(one, "f") is not None]

    versions: list[Any] = []
    path, fork, patch = made(both(create("stock"), put)), tmp_path / "fork.db", tmp_path / "p.jsonl"
    for key in (b"l", b"m"):
        _keys(path, key)
    assert tool("fork", path, fork, 2).exit_code == 0
    assert tool("diff", path, 2, 3, "--patch", patch).exit_code == 1
    assert _keys(fork, b"m") == [b"k", b"m"]
    assert tool("apply", fork, patch).exit_code == 0
    assert _keys(fork) == [b"k", b"l", b"m"]
    for number, chosen in ((3, ("--object", "shop/stock")), (4, ())):
        assert tool("revert", path, number, *chosen, "--dry-run").exit_code == 0
        assert tool("revert", path, number, *chosen).exit_code == 0
    assert _keys(path) == [b"k"]
    with PersistedObjectSpace.open(path) as space:
        assert space.get("kvt/shop/stock/0/version").value == versions[1].number


def test_a_rehearsal_of_the_newest_checkpoint_is_of_the_store_in_which_it_was_found(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"
    with PersistedObjectSpace.open(path) as space:
        value = space.create_value("v", 0)
        space.checkpoint()

        def _beside(*found: Any) -> Any:
            value.value += 1
            space.checkpoint()
            return of_objects(*found)

        of_objects = checkpoint.tool.changes._of_objects
        monkeypatch.setattr(checkpoint.tool.changes, "_of_objects", _beside)
        value.value = 5
        space.checkpoint()
        shown = tool("revert", path, "HEAD", "--dry-run")
    assert (shown.exit_code, "5 → 0" in shown.stdout) == (0, True)


@pytest.mark.parametrize("chosen", [(), ("--shard", 0), ("--operator", OPERATOR, "--shard", 1)])
def test_a_rehearsal_refuses_a_space_as_the_work_does(
    tool: Tool, location: Path, tmp_path: Path, chosen: tuple[object, ...]
) -> None:
    shard, patch = tmp_path / "shard.db", tmp_path / "p.jsonl"
    assert tool("restore", location, shard, "--shard", 0).exit_code == 0
    with PersistedObjectSpace.open(shard) as space:
        space.create_value("new", 1)
        space.checkpoint()
    assert tool("diff", shard, "--patch", patch).exit_code == 1
    work, rehearsal = (tool("apply", location, patch, *chosen, *dry) for dry in ((), ("--dry-run",)))
    assert (work.exit_code, "which only a pipeline writes: restore it" in work.stderr) == (2, True)
    assert (rehearsal.exit_code, rehearsal.output) == (2, work.output)


def test_a_rehearsal_describes_a_tensor_by_its_id(tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with PersistedObjectSpace.open(path) as space:
        tensor = space.create_tensor("old", (4,), "int64")
        space.checkpoint()
        tensor[1] = 7
        space.checkpoint()
        space.rename("old", "new")
        space.checkpoint()
    shown = tool("revert", path, "2", "--dry-run")
    assert (shown.exit_code, "[0,7,0,0]" in shown.output.replace(" ", "")) == (0, True)


@pytest.mark.parametrize("more", [[], [Column("c", "string", default="v")]])
def test_rows_are_shown_by_what_their_table_is_called_in_each_state(
    tool: Tool, tmp_path: Path, more: list[Column]
) -> None:
    path = tmp_path / "state.db"
    with PersistedObjectSpace.open(path) as space:
        live = StateTable(space, "live", TableSchema([Column("a", "int64"), Column("b", "int64")], ["a"]))
        following = StateTable(space, "next", TableSchema([Column("x", "int64"), *more, Column("y", "int64")], ["x"]))
        row = (1, *("v" for _ in more))
        following.insert_row((*row, 5))
        space.checkpoint()
        live.insert_row((2, 2))
        space.checkpoint()
        for name, new_name in (("live", "old"), ("next", "live")):
            rename_table(space, name, new_name)
        following.update_row((*row, 5), (*row, 6))
        wider = live.schema.with_column(Column("c", "int64", default=0))
        StateTable(space, "old", wider, evolve=True).insert_row((3, 3, 3))
        space.checkpoint()
    for points, line, shown in (((2, 3), "+ a=3, b=3, c=3", "5 → 6"), ((3, 2), "- a=3, b=3, c=3", "6 → 5")):
        lines = tool("diff", path, *points).stdout.splitlines()
        assert {f"  {line}", f"  ~ x=1: y: {shown}"} <= {*lines}
    said = tool("revert", path, 2, "--dry-run").stdout
    assert tool("revert", path, 2).exit_code == 0
    assert said == tool("diff", path).stdout == "old (Table)\n  ~ its length = 2 → 1\n  - a=2, b=2, c=0\n"


def test_rows_of_which_no_schema_is_known_in_a_state_are_shown_as_they_are(tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with PersistedObjectSpace.open(path) as space:
        table = StateTable(space, "t", TableSchema([Column("a", "int64"), Column("b", "int64")], ["a"]))
        StateTable(space, "other", ORDERS)
        space.checkpoint()
        table.insert_row((7, 8))
        drop_table(space, "other")
        space.rename("t", "other")
        del space.get_dictionary("$tables")["other"]
        space.checkpoint()
    assert " = [0,7,8]\n" in tool("diff", path).stdout


def test_a_rehearsal_says_what_a_diff_says_afterwards(tool: Tool, tmp_path: Path) -> None:
    path, fork, patch = tmp_path / "state.db", tmp_path / "fork.db", tmp_path / "p.jsonl"
    with PersistedObjectSpace.open(path) as space:
        orders, lists = StateTable(space, "orders", ORDERS), space.create_dictionary("lists", of=list)
        orders.insert_rows([(1, "a"), (2, "b")])
        lists.update({"x": [1], "y": [2]})
        space.create_list("gone").append(1)
        space.checkpoint()
        changed = orders.schema.renamed("item", "what").with_column(Column("left", "int64", default=0))
        orders = StateTable(space, "orders", changed, evolve=True)
        orders.insert_row((3, "c", 5))
        orders.update_row((1, "a", 0), (1, "A", 0))
        StateTable(space, "new", ORDERS).insert_row((1, "x"))
        lists["z"] = [3]
        del lists["y"]
        space.delete("gone")
        manager = KeyValueTableManager(space)
        manager.create_scope("s")
        manager.create_key_value_table("s", "t", KeyValueTableConfiguration(partition_count=1))
        manager.open_key_value_table("s", "t").put(b"k", b"v")
        space.checkpoint()
    assert tool("fork", path, fork, 1).exit_code == 0
    assert tool("diff", path, "--patch", patch).exit_code == 1
    for tried, points in ((("apply", fork, patch), (1, 2)), (("revert", path, 2), (2, 1))):
        said = tool(*tried, "--dry-run")
        assert (said.exit_code, said.stdout) == (0, tool("diff", path, *points).stdout)
    assert "  + id=3, what=c, left=5\n" in tool("apply", fork, patch, "--dry-run").stdout


def test_a_fork_of_some_objects_that_fails_is_not_there(
    tool: Tool, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def _fail(*_: object) -> Any:
        raise CheckpointError("the disk is full")

    monkeypatch.setattr(checkpoint.tool.moving, "selection", _fail)
    assert tool("fork", store, tmp_path / "fork.db", "--object", "counts").exit_code == 2
    assert not list(tmp_path.glob("fork.db*"))


KILLED = """
import os, signal, sys
from checkpoint import CheckpointStore
from checkpoint.tool.command import main

setattr(CheckpointStore, sys.argv.pop(1), lambda *_: os.kill(os.getpid(), signal.SIGKILL))
main()
"""


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("append", ["restore", "{}", "new.db", "--object", "counts"]),
        ("append", ["fork", "{}", "new.db", "--object", "counts"]),
        ("compact", ["restore", "{}", "new.db"]),
        ("compact", ["restore", "{}", "new.db", "--shard", "1"]),
    ],
)
def test_a_copy_that_is_killed_before_it_is_reduced_is_not_there(
    tool: Tool, store: Path, location: Path, tmp_path: Path, step: str, words: list[str]
) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    words = [word.replace("{}", str(location if "--shard" in words else store)) for word in words]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, step, *words],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=False,
    )
    left = sorted(path.name for path in folder.iterdir())
    assert (killed.returncode, bool(left)) == (-signal.SIGKILL, True)
    assert all(name.startswith(".new.db.") and ".tmp" in name for name in left)
    monday = tool("restore", store, folder / "monday.db")
    assert monday.exit_code == 0
    for name in left:
        os.utime(folder / name, (0, 0))
    listed = json.loads(tool("doctor", folder / "monday.db", "--json").output)["leftovers"]
    assert sorted(Path(path).name for path in listed) == left
    again = subprocess.run([sys.executable, "-m", "checkpoint", *words], cwd=folder, check=False)
    assert again.returncode == 0
    if "--object" in words:
        found = [json.loads(line)["name"] for line in tool("ls", folder / "new.db", "--json").output.splitlines()]
        assert found == [words[-1]]


def test_a_copy_whose_log_cannot_be_copied_into_it_does_not_appear(
    tool: Tool, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def _leave_log(staged: Path, *_: object) -> None:
        staged.with_name(f"{staged.name}-wal").write_bytes(b"what the file lacks")

    monkeypatch.setattr(checkpoint.tool.moving, "_reduce", _leave_log)
    found = tool("fork", store, tmp_path / "fork.db", "--object", "counts")
    assert (found.exit_code, "its log could not be copied into it" in found.stderr) == (2, True)
    assert not list(tmp_path.glob("*fork.db*"))


def test_a_copy_that_cannot_be_reduced_is_named_as_it_was_to_be(
    tool: Tool, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def _fail(store: CheckpointStore, *_: object) -> None:
        raise CheckpointError(f"{store.path}: no space is left")

    monkeypatch.setattr(CheckpointStore, "append", _fail)
    found = tool("restore", store, tmp_path / "new.db", "--object", "counts")
    assert (found.exit_code, found.stderr) == (2, f"error: {tmp_path / 'new.db'}: no space is left\n")
    assert not list(tmp_path.glob("*new.db*"))


def test_a_new_store_that_somebody_else_has_made_meanwhile_stays(tmp_path: Path) -> None:
    used, empty, locked = (tmp_path / f"{name}.db" for name in ("used", "empty", "locked"))
    with PersistedObjectSpace.open(used) as space:
        space.create_value("v", 1)
        space.checkpoint()
    CheckpointStore(empty).close()
    with CheckpointStore(locked):
        for path in (used, empty, locked):
            remove_unused(str(path))
    assert [path.exists() for path in (used, empty, locked)] == [True, False, True]
    assert not list(tmp_path.glob("empty.db*"))


def test_a_name_with_an_at_is_that_of_an_object_where_there_is_one(tool: Tool, tmp_path: Path) -> None:
    path, target = tmp_path / "state.db", tmp_path / "out.jsonl"
    with PersistedObjectSpace.open(path) as space:
        for name in ("x", "x@3"):
            space.create_value(name, f"of {name}")
        space.checkpoint()
        space.delete("x@3")
        space.checkpoint()
        space.checkpoint()
    assert tool("export", path, "x@3", target, "1").exit_code == 0
    assert json.loads(target.read_text())["value"] == "of x@3"
    assert "of x" in tool("show", path, "x@3").output


def test_numbers_beyond_64_bits_are_in_order_and_have_ranges(tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with PersistedObjectSpace.open(path) as space:
        numbers, sparse = space.create_sorted_set("s"), space.create_sparse_array("a", 0)
        numbers.update([LARGE, -LARGE, 5, 1.5])
        sparse[-(2**63)] = 1
        space.checkpoint()

    def shown(*arguments: object) -> list[Any]:
        lines = tool("show", path, *arguments, "--format", "json").output.splitlines()
        return [next(iter(json.loads(line).values())) for line in lines]

    large, least = {"$int": str(LARGE)}, {"$int": str(-LARGE)}
    assert shown("s") == [least, 1.5, 5, large]
    assert shown("s", "--from", "1.5", "--to", LARGE) == [1.5, 5, large]
    assert shown("s", "--to", LARGE - 1) == [least, 1.5, 5]
    assert shown("a", "--to", -(2**63)) == [-(2**63)]
    assert "give numbers" in tool("show", path, "s", "--from", "x").output


def test_a_bound_of_numbers_beyond_64_bits_is_taken_as_it_is_printed(tool: Tool, tmp_path: Path) -> None:
    path, keys = tmp_path / "state.db", [0.1, 2**63 - 1, 2**63, 2.0**70, 2**70 + 1, 1e23, 1e300, float("inf")]
    with PersistedObjectSpace.open(path) as space:
        space.create_sorted_set("s").update(keys)
        space.create_sorted_set("d").update([Decimal("0.1"), Decimal("0.3"), 2**64])
        space.checkpoint()

    def shown(*arguments: object) -> int:
        return len(tool("show", path, *arguments, "--format", "json").output.splitlines())

    for place, key in enumerate(keys, start=1):
        assert (shown("s", "--to", key), shown("s", "--from", key)) == (place, len(keys) - place + 1)
    assert (shown("s", "--to", 2**70 - 1), shown("s", "--to", "1e400"), shown("s", "--from", "1e22")) == (3, 7, 3)
    for place, text in enumerate(["0.1", "0.3", str(2**64)], start=1):
        assert (shown("d", "--to", text), shown("d", "--from", text)) == (place, 3 - place + 1)


@pytest.mark.parametrize(("command", "status"), [(("diff", "1", "2"), 1), (("log",), 0)])
def test_a_reader_that_has_enough_gets_the_status_of_the_answer(
    tmp_path: Path, command: tuple[str, ...], status: int
) -> None:
    path = tmp_path / "state.db"
    with PersistedObjectSpace.open(path) as space:
        entries = space.create_dictionary("d")
        for _ in range(2):
            entries.update({len(entries) + key: "text" * 50 for key in range(2000)})
            space.checkpoint()
    name, *rest = command
    program = f"import os; from checkpoint.tool.command import main; {_PIPE}"
    done = subprocess.run([sys.executable, "-c", program, name, path, *rest], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (status, b"")


_PIPE = "read, write = os.pipe(); os.dup2(write, 1); os.close(read); main()"


def test_who_asks_who_writes_keeps_nobody_from_writing(
    tool: Tool, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with CheckpointStore(store):
        assert "is being written by process" in tool("doctor", store).output
        owner = store.with_name(store.name + ".owner").read_bytes()
    store.with_name(store.name + ".owner").write_bytes(owner)  # As a process leaves it that was killed, and is gone.
    monkeypatch.setattr("os.kill", _no_process)
    taken = WriterLock(store)
    try:
        assert "is being written" not in tool("doctor", store).output
    finally:
        taken.release()


def _no_process(*_: int) -> None:
    raise ProcessLookupError


def test_what_is_collected_meanwhile_is_not_called_damaged(
    tool: Tool, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = Chain.open(location_at(location))

    def _collect(*_: object) -> Any:
        chain.collect(0, 1)
        raise CheckpointError("run file is missing")

    monkeypatch.setattr("checkpoint.chain.read_run", _collect)
    answer = tool("verify", location)
    assert (answer.exit_code, "epochs before 3 were collected while they were read" in answer.output) == (2, True)


def test_a_floor_beyond_the_newest_epoch_is_told(tool: Tool, location: Path) -> None:
    Chain.open(location_at(location)).collect(0, 1)
    for manifest in (location / "manifest").glob("*3*"):
        manifest.unlink()
    answer = tool("gc", location)
    assert (answer.exit_code, "its first kept epoch is 3, and the newest is 2" in answer.output) == (2, True)


def test_a_patch_is_not_replaced_where_a_name_is_wrong(tool: Tool, store: Path, tmp_path: Path) -> None:
    patch = tmp_path / "fix.jsonl"
    assert tool("diff", store, "--patch", patch).exit_code == 1
    before = patch.read_bytes()
    refused = tool("diff", store, "1", "2", "nope", "--patch", patch)
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert patch.read_bytes() == before


def test_a_patch_goes_where_a_link_leads_and_into_pipes(tool: Tool, store: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    link.symlink_to(target)
    assert tool("diff", store, "--patch", link).exit_code == 1
    assert link.is_symlink()
    assert target.read_bytes().startswith(BEGINNING)
    assert tool("diff", store, "--patch", "/dev/null").exit_code == 1
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize("command", [("diff", "--patch"), ("report",)])
def test_what_cannot_be_written_leaves_what_was_there(
    tool: Tool, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    target = tmp_path / "there"
    name, *options = command
    assert tool(name, store, *options, target).exit_code in (0, 1)
    before = target.read_bytes()

    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("checkpoint.tool.command.os.replace", fails)
    assert tool(name, store, *options, target).exit_code == 2
    assert target.read_bytes() == before
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".tmp")]


def test_a_closed_pipe_does_not_hide_that_there_are_changes(store: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "checkpoint", "diff", str(store), "--patch", str(tmp_path / "p"), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.close()
    assert running.returncode == 1
