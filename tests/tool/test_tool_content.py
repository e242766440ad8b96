"""What show, ls, diff and blame make of each kind of object."""

from __future__ import annotations

import io
import json
import shutil
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint import CheckpointKind, CheckpointStore
from checkpoint.chain import Chain, SourcePosition, location_at, save_run
from checkpoint.reader import Reader
from objectspace import PersistedObjectSpace, SpacePart
from objectspace.kvt import KeyValueTableConfiguration, KeyValueTableManager, table_key
from objectspace.operators import Pipeline
from objectspace.relational import Column, StateTable, TableSchema
from tests.chain.chain_helpers import run_of
from tests.tool.conftest import Tool, rows

WIDE = TableSchema(
    [
        Column("id", "int64"),
        Column("price", "decimal(10,2)", nullable=True),
        Column("day", "date", nullable=True),
        Column("at", "timestamptz", nullable=True),
        Column("raw", "binary", nullable=True),
        Column("ratio", "float64", nullable=True),
        Column("tags", "list<string>", nullable=True),
    ],
    ["id"],
)

ROW = (1, Decimal("1.50"), date(2026, 1, 31), datetime(2026, 1, 31, 12, tzinfo=UTC), b"\0\xff", float("inf"), ["a"])


@pytest.fixture
def kinds(kinds_once: Path, tmp_path: Path) -> Path:
    """Return a store with an object of every kind."""
    return Path(shutil.copy(kinds_once, tmp_path / "kinds.db"))


@pytest.fixture(scope="session")
def kinds_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the store that each test gets a copy of."""
    path = tmp_path_factory.mktemp("kinds") / "kinds.db"
    with PersistedObjectSpace.open(path) as space:
        wide = StateTable(space, "wide", WIDE)
        numbers = space.create_list("list")
        numbers.extend(range(5))
        numbers.insert(2, "middle")
        queue, stack = space.create_queue("queue"), space.create_stack("stack")
        for number in range(4):
            queue.enqueue(number)
            stack.push(number)
        queue.dequeue()
        space.create_set("set").update(["b", (1, 2)])
        space.create_dictionary("mixed").update({1: "number", "1": "text", b"\xff": "bytes"})
        lists = space.create_dictionary("lists", of=list)
        lists["small"], lists["large"] = [1], list(range(100))
        tensor = space.create_tensor("tensor", (2, 3), "int32")
        tensor[1, 2] = 7
        raw = space.create_sorted_dictionary("raw", raw=True)
        raw.update({b"k": "42", b"\x13k": '{"$key":1}', b"\xff": b"\0"})
        manager = KeyValueTableManager(space)
        manager.create_scope("s")
        manager.create_key_value_table("s", "t", KeyValueTableConfiguration(partition_count=3))
        manager.create_key_value_table("s", "unused", KeyValueTableConfiguration(partition_count=1))
        table = manager.open_key_value_table("s", "t")
        for family in ("f", "g", None):
            for number in range(3):
                table.put(f"k{number}".encode(), b"v", key_family=family)
        wide.insert_row(ROW)
        wide.insert_row((2, *[None] * 6))
        space.checkpoint(epoch=1)
        wide.update_row((2, *[None] * 6), (2, Decimal("9.99"), *[None] * 5))
        wide.delete_row(ROW)
        lists["small"].append(2)
        space.checkpoint(epoch=2)
        table.put(b"k1", b"7", key_family="f")
        table.remove(b"k2", key_family="g")
        raw[b"k"], tensor[0, 0] = "43", 1
        lists["small"].append(3)
        numbers.insert(0, "first")
        space.checkpoint(epoch=3)
    return path


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """Return a store with a key-value table as it was kept before raw dictionaries were there."""
    path = tmp_path / "older.db"
    with PersistedObjectSpace.open(path) as space:
        space.create_sorted_dictionary("kvt/catalogue").update({"s": {}, "s/t": {"partitions": 1, "first": 4}})
        rows = space.create_sorted_dictionary("kvt/s/t/4")
        rows.update({table_key(b"k", "f"): [1, "blue"], table_key(b"\xff"): [2, b"\xfe"]})
        space.create_value("kvt/s/t/4/version", 2)
        space.create_list("kvt/s/t/5").append("no partition")
        space.checkpoint()
    return path


def shown(tool: Tool, path: Path, *arguments: object) -> list[str]:
    found = tool("show", path, *arguments)
    assert found.exit_code == 0, found.stderr
    return [line.rstrip() for line in found.output.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["list", "--from", 2, "--to", 4], ["2 = 1", "3 = middle", "4 = 2"]),
        (["queue"], ["0 = 1", "1 = 2", "2 = 3"]),
        (["stack"], ["0 = 3", "1 = 2", "2 = 1", "3 = 0"]),
        (["set"], ["b", '{"$tuple":[1,2]}']),
        (["mixed"], ["1 = number", '"1" = text', '{"$bytes":"/w=="} = bytes']),
        (["lists", "-n", 1], ["small = [1,2,3]"]),
        (["tensor"], ["[0,0] = [[1,0,0],[0,0,7]]"]),
        (["raw"], ['{"$bytes":"E2s="} = {"$key":1}', "k = 43", '{"$bytes":"/w=="} = {"$bytes":"AA=="}']),
    ],
)
def test_an_object_is_shown_as_its_kind_reads(
    tool: Tool, kinds: Path, arguments: list[object], expected: list[str]
) -> None:
    assert shown(tool, kinds, *arguments)[1:] == expected


@pytest.mark.parametrize("name", ["s/t", "kvt/s/t"])
def test_a_key_value_table_is_shown_by_family(tool: Tool, kinds: Path, name: str) -> None:
    assert shown(tool, kinds, name)[0] == f"{name} = KeyValueTable of 8"
    rows = [json.loads(line) for line in shown(tool, kinds, f"{name}@1", "--format", "json")]
    keys = [f"k{n}" for n in range(3)]
    assert [(row["family"], row["key"], row["value"]) for row in rows] == [
        (family, key, "v") for family in ("f", "g", None) for key in keys
    ]
    changed = shown(tool, kinds, name, "--where", "family=f", "--where", "value=7", "--format", "csv")
    assert (changed[0], changed[1].split(",")[:2]) == ("family,key,version,value", ["f", "k1"])
    assert len(shown(tool, kinds, name, "--where", "family=NULL")) == 2 + 3
    assert shown(tool, kinds, "s/unused") == ["s/unused = KeyValueTable of 0", "family  key  version  value"]


class Keeping:
    """An operator of a pipeline with a key-value table of its own."""

    def process(self, batch: Any, space: Any) -> None:
        manager = KeyValueTableManager(space)
        if "s" not in manager.list_scopes():
            manager.create_scope("s")
            manager.create_key_value_table("s", "t", KeyValueTableConfiguration(2))
        manager.open_key_value_table("s", "t").put(b"key", str(batch.num_rows).encode(), key_family="f")


@pytest.mark.parametrize("name", ["s/t", "kvt/s/t", "mine/s/t", "mine/kvt/s/t"])
def test_a_key_value_table_of_an_operator_in_a_pipeline(tool: Tool, tmp_path: Path, name: str) -> None:
    pipeline = Pipeline()
    rows = pipeline.source("rows", {"id": "int64"}, key=["id"])
    rows.apply(Keeping(), "mine", {"id": "int64"}, output_key=["id"]).materialize("nothing")
    pipeline.run_local([{"rows": [(1,)]}, {"rows": [(2,), (3,)]}], tmp_path / "run.db").close()
    assert shown(tool, tmp_path / "run.db", name)[0] == f"{name} = KeyValueTable of 1"
    assert shown(tool, tmp_path / "run.db", name, "--format", "csv")[1].split(",")[::3] == ["f", "2"]
    assert tool("restore", tmp_path / "run.db", tmp_path / "kept.db", "--object", name).exit_code == 0
    kept = tool("ls", tmp_path / "kept.db").output
    assert "mine/kvt/s/t" in kept
    assert "nothing/table" not in kept


def test_a_key_value_table_of_an_older_version(tool: Tool, older: Path) -> None:
    assert shown(tool, older, "s/t", "--format", "csv")[1:] == [
        "f,k,4:1,blue",
        ',"{""$bytes"":""/w==""}",4:2,"{""$bytes"":""/g==""}"',
    ]
    assert shown(tool, older, "kvt/s/t/5") == ["kvt/s/t/5 = List of 1", "0 = no partition"]


def test_a_key_value_table_is_one_entry_of_ls(tool: Tool, kinds: Path) -> None:
    rows: dict[str, Any] = {
        row["name"]: row for row in map(json.loads, tool("ls", kinds, "--tree", "--json").output.splitlines())
    }
    table = rows["kvt/s/t"]
    assert (table["kind"], table["length"]) == ("KeyValueTable", 8)
    assert table["bytes"] == sum(part["bytes"] for part in table["owned"])
    assert sum(part["length"] for part in table["owned"]) == 8
    assert not [name for name in rows if name.startswith("kvt/s/t/")]
    assert (rows["kvt/s/unused"]["length"], rows["kvt/s/unused"]["bytes"]) == (0, 0)


def test_a_diff_of_a_key_value_table_is_by_its_keys(tool: Tool, kinds: Path) -> None:
    for name in ("s/t", "kvt/s/t"):
        rows = [json.loads(line) for line in tool("diff", kinds, 2, 3, name, "--json").output.splitlines()]
        items = {tuple(row["key"].values()): (row["old"], row["new"]) for row in rows if row["table"] == "item"}
        assert set(items) == {("f", "k1"), ("g", "k2")}
        (old, new), (removed, nothing) = items["f", "k1"], items["g", "k2"]
        assert (old["value"], new["value"], removed["value"], nothing) == ("v", "7", "v", None)
        assert {row["object"] for row in rows} == {"kvt/s/t"}
    lines = tool("diff", kinds, 2, 3, "s/t").output.splitlines()
    assert lines[0] == "kvt/s/t (KeyValueTable)"
    assert lines[-1].startswith("  ~ its partition ")
    assert tool("diff", kinds, 2, 3, "s/t", "--stat").output.startswith(" kvt/s/t | 2 -~\n")


def test_a_diff_of_raw_values_and_of_a_tensor(tool: Tool, kinds: Path) -> None:
    assert tool("diff", kinds, 2, 3, "raw").output.splitlines()[1:] == ["  ~ k = 42 → 43"]
    assert tool("diff", kinds, 2, 3, "tensor").output.splitlines()[1:] == ["  ~ [0,0] = 0 → 1"]


def test_a_diff_of_sets_has_elements(tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with PersistedObjectSpace.open(path) as space:
        plain, dates = space.create_set("set"), space.create_sorted_set("dates")
        plain.add("a")
        space.checkpoint()
        plain.add("b")
        plain.discard("a")
        dates.add(date(2026, 1, 31))
        space.checkpoint()
    found = [line for line in tool("diff", path).output.splitlines() if not line[4:].startswith("its ")]
    assert found == ["set (Set)", "  - a", "  + b", "dates (SortedSet)", '  + {"$date":"2026-01-31"}']
    rows = [json.loads(line) for line in tool("diff", path, "--json").output.splitlines()]
    changes = {json.dumps(row["key"]): (row["old"], row["new"]) for row in rows if row["table"] == "item"}
    assert changes == {'"a"': (True, None), '"b"': (None, True), '{"$date": "2026-01-31"}': (None, True)}


def test_a_name_with_brackets_and_a_key(tool: Tool, tmp_path: Path) -> None:
    with PersistedObjectSpace.open(tmp_path / "s.db") as space:
        space.create_dictionary("a[b]").update({"x": 1, "y[z]": 2})
        space.checkpoint()
    for name, value in (("a[b][x]", [1]), ("a[b][y[z]]", [2]), ("a[b]", [1, 2])):
        found = tool("blame", tmp_path / "s.db", name, "--json").output.splitlines()
        assert [json.loads(line)["value"] for line in found] == value


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (str(2**63), [1]),
        ("-1" + "0" * 30, [2]),
        ("1e+300", [3]),
        ("1" + "0" * 40, [4]),
        ('"q"', [5]),
        ("q", [6]),
        ('"bob"', [7]),
        ('"7"', [8, 9]),
    ],
)
def test_blame_finds_a_key_as_it_is_shown(tool: Tool, tmp_path: Path, key: str, expected: list[int]) -> None:
    keys = [2**63, -(10**30), 1e300, "1" + "0" * 40, '"q"', "q", "bob", "7", '"7"', 7]
    with PersistedObjectSpace.open(tmp_path / "s.db") as space:
        space.create_dictionary("d").update({key: place for place, key in enumerate(keys, start=1)})
        space.checkpoint()
    found = tool("blame", tmp_path / "s.db", f"d[{key}]", "--json").output.splitlines()
    assert sorted(json.loads(line)["value"] for line in found) == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("2024-01-31", 1),
        ("2024-02-01", 2),
        ('{"$date":"2024-01-31"}', 1),
        ("fruit, 7", 3),
        ('["fruit",7]', 3),
        ("null", 4),
        ('{ "$tuple": ["fruit", 7] }', 3),
        ("true", 5),
        ("00000000-0000-0000-0000-000000000007", 6),
        ("[1,[2,3]]", 8),
        ("1e300", 9),
    ],
)
def test_blame_finds_a_key_of_any_type_as_what_it_holds(tool: Tool, tmp_path: Path, key: str, expected: int) -> None:
    keys = [
        date(2024, 1, 31),
        "2024-02-01",
        ("fruit", 7),
        None,
        True,
        UUID(int=7),
        date(2024, 2, 1),
        (1, (2, 3)),
        1e300,
    ]
    keys += [(date(2024, 1, 31),), ("fruit, 7",)]
    with PersistedObjectSpace.open(tmp_path / "s.db") as space:
        space.create_dictionary("d").update({key: place for place, key in enumerate(keys, start=1)})
        space.checkpoint()
    found = tool("blame", tmp_path / "s.db", f"d[{key}]", "--json").output.splitlines()
    assert [json.loads(line)["value"] for line in found] == [expected]


def test_a_dictionary_that_is_called_as_a_catalogue_may_hold_any_key(tool: Tool, tmp_path: Path) -> None:
    with PersistedObjectSpace.open(tmp_path / "s.db") as space:
        space.create_sorted_dictionary("my/kvt/catalogue").update({"/": 1, "a/b/c": 2, "a/": 3})
        space.checkpoint()
    for name in ("none", "a/b/c", "my/kvt/a/b/c", "/"):
        found = tool("show", tmp_path / "s.db", name)
        assert (found.exit_code, f"there is no object {name!r}" in found.stderr) == (2, True), found.stderr
    assert len(shown(tool, tmp_path / "s.db", "my/kvt/catalogue")) == 4


def test_a_patch_of_a_key_value_table_alone(tool: Tool, kinds: Path, tmp_path: Path) -> None:
    assert tool("fork", kinds, tmp_path / "fork.db", 2).exit_code == 0
    assert tool("diff", kinds, 2, 3, "s/t", "--patch", tmp_path / "p.jsonl").exit_code == 1
    assert tool("apply", tmp_path / "fork.db", tmp_path / "p.jsonl").exit_code == 0
    assert shown(tool, tmp_path / "fork.db", "s/t") == shown(tool, kinds, "s/t")
    assert shown(tool, tmp_path / "fork.db", "raw") != shown(tool, kinds, "raw")


@pytest.mark.parametrize("prefix", ["", "mine/"])
def test_a_key_value_table_goes_with_its_entry_and_no_other(tool: Tool, tmp_path: Path, prefix: str) -> None:
    path, fork, patch = tmp_path / "s.db", tmp_path / "fork.db", tmp_path / "p.jsonl"
    with PersistedObjectSpace.open(path) as space:
        space.create_list("l")
        space.checkpoint()
        manager = KeyValueTableManager(SpacePart(space, prefix) if prefix else space)
        for scope, name in (("a", "one"), ("shop", "other"), ("shop", "stock")):
            manager.create_scope(scope)
            manager.create_key_value_table(scope, name, KeyValueTableConfiguration(partition_count=2))
            manager.open_key_value_table(scope, name).put(b"k", name.encode(), "f")
        space.checkpoint()
    assert tool("fork", path, fork, 1).exit_code == 0
    assert tool("diff", path, 1, 2, "shop/stock", "--patch", patch).exit_code == 1
    assert tool("apply", fork, patch).exit_code == 0
    assert tool("revert", path, 2, "--object", "shop/stock").exit_code == 0
    for one, scopes, left in ((fork, ["shop"], ["stock"]), (path, ["a", "shop"], ["other"])):
        assert tool("verify", one).exit_code == 0
        with PersistedObjectSpace.open(one) as space:
            manager = KeyValueTableManager(SpacePart(space, prefix) if prefix else space)
            assert (manager.list_scopes(), manager.list_key_value_tables("shop")) == (scopes, left)
            entry = manager.open_key_value_table("shop", left[0]).get(b"k", "f")
            assert (entry and entry.value) == left[0].encode()
            assert manager.create_key_value_table("shop", "new", KeyValueTableConfiguration(partition_count=1))
            assert manager.open_key_value_table("shop", "new").count() == 0


@pytest.mark.parametrize(
    ("name", "key", "epoch"),
    [
        ("s/t[f, k1]", {"family": "f", "key": "k1"}, 3),
        ("kvt/s/t[NULL, k0]", {"family": None, "key": "k0"}, 1),
        ("raw[k]", "k", 3),
        ("tensor[0,0]", [0, 0], 3),
    ],
)
def test_blame_decodes_keys(tool: Tool, kinds: Path, name: str, key: object, epoch: int) -> None:
    (row,) = map(json.loads, tool("blame", kinds, name, "--json").output.splitlines())
    assert (row["key"], row["epoch"]) == (key, epoch)
    assert len(tool("blame", kinds, name).output.splitlines()) == 2


@pytest.mark.parametrize(
    ("keys", "lower", "expected"),
    [
        ([b"a", b"k", b"z"], "k", ["k = 1", "z = 2"]),
        (["007", "5", "a"], "5", ['"5" = 1', "a = 2"]),
        ([1, 5, 70], "5", ["5 = 1", "70 = 2"]),
    ],
)
def test_a_bound_is_of_the_type_of_the_keys(
    tool: Tool, tmp_path: Path, keys: list[Any], lower: str, expected: list[str]
) -> None:
    with PersistedObjectSpace.open(tmp_path / "s.db") as space:
        space.create_sorted_dictionary("d").update({key: place for place, key in enumerate(keys)})
        space.create_sorted_dictionary("tuples").update({(1, 2): 3})
        space.checkpoint()
    assert shown(tool, tmp_path / "s.db", "d", "--from", lower)[1:] == expected
    assert "has no ranges" in tool("show", tmp_path / "s.db", "tuples", "--from", 1).stderr


@pytest.mark.parametrize(
    ("kind", "add"), [("list", "append"), ("linked_list", "add_last"), ("queue", "enqueue"), ("stack", "push")]
)
def test_a_part_of_a_sequence_is_what_all_of_it_has_there(tool: Tool, tmp_path: Path, kind: str, add: str) -> None:
    path = tmp_path / "s.db"
    with PersistedObjectSpace.open(path) as space:
        made = getattr(space, f"create_{kind}")("it")
        for number in range(5):
            getattr(made, add)(number)
            space.checkpoint()
    whole = [json.loads(line) for line in tool("blame", path, "it", "--json").output.splitlines()]
    assert sorted(row["value"] for row in whole) == [row["key"] for row in whole] == [0, 1, 2, 3, 4]
    for place, row in enumerate(whole):
        assert json.loads(tool("blame", path, f"it[{place}]", "--json").output) == row
        shown = tool("show", path, "it", "--from", place, "--to", place, "--format", "json").output
        assert list(json.loads(shown).values()) == [place, row["value"]]
    for absent in ("5", "05", "-1", "9" * 30):
        assert tool("blame", path, f"it[{absent}]").exit_code == 2


def test_blame_of_a_list_is_by_index(tool: Tool, kinds: Path) -> None:
    rows = [json.loads(line) for line in tool("blame", kinds, "list", "--json").output.splitlines()]
    assert [(row["key"], row["value"], row["epoch"]) for row in rows[:4]] == [
        (0, "first", 3),
        *((1, 0, 1), (2, 1, 1), (3, "middle", 1)),
    ]
    (third,) = map(json.loads, tool("blame", kinds, "list[3]", "--json").output.splitlines())
    assert third == rows[3]
    newest = json.loads(tool("blame", kinds, "stack", "-n", 1, "--json").output)
    assert (newest["key"], newest["value"]) == (0, 3)


def test_an_export_of_a_key_value_table_is_by_its_keys(tool: Tool, kinds: Path, tmp_path: Path) -> None:
    assert tool("export", kinds, "s/t", tmp_path / "t.parquet").exit_code == 0
    rows = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert [(row["family"], row["key"], row["value"]) for row in rows[:3]] == [
        ("f", "k0", "v"),
        ("f", "k1", "7"),
        ("f", "k2", "v"),
    ]


@pytest.mark.parametrize(
    ("conditions", "ids"),
    [
        (["id=1"], [1]),
        (["id!=1"], [2]),
        (["id>=1", "id<2"], [1]),
        (["price=NULL"], [2]),
        (["price!=NULL"], [1]),
        (["price>1.4"], [1]),
        (["price<1.4"], []),
        (["day=2026-01-31"], [1]),
        (["id==2"], [2]),
    ],
)
def test_conditions_choose_rows(tool: Tool, kinds: Path, conditions: list[str], ids: list[int]) -> None:
    options = [part for one in conditions for part in ("--where", one)]
    assert [json.loads(line)["id"] for line in shown(tool, kinds, "wide@1", *options, "--format", "json")] == ids


def table_of(tool: Tool, *arguments: object) -> pa.Table:
    return pa.ipc.open_stream(io.BytesIO(tool("show", *arguments, "--format", "arrow").stdout_bytes)).read_all()


def test_arrow_has_the_types_of_the_schema(tool: Tool, kinds: Path) -> None:
    found = table_of(tool, kinds, "wide@1")
    assert [str(field.type) for field in found.schema] == [
        *("int64", "decimal128(10, 2)", "date32[day]", "timestamp[us, tz=UTC]", "binary", "double", "string")
    ]
    assert tuple(found.to_pylist()[0].values()) == (*ROW[:6], '["a"]')
    assert table_of(tool, kinds, "list", "--to", 1).to_pylist() == [
        {"key": 0, "value": "first"},
        {"key": 1, "value": "0"},
    ]
    assert table_of(tool, kinds, "wide", "--where", "id=7").num_rows == 0


def test_parquet_has_them_too(tool: Tool, kinds: Path, tmp_path: Path) -> None:
    assert tool("export", kinds, "wide@1", tmp_path / "wide.parquet").exit_code == 0
    assert pq.read_table(tmp_path / "wide.parquet").equals(table_of(tool, kinds, "wide@1"))


def test_a_diff_of_a_table_has_columns(tool: Tool, kinds: Path) -> None:
    found = tool("diff", kinds, 1, 2)
    assert [line for line in found.output.splitlines() if "its length" not in line] == [
        "wide (Table)",
        '  - id=1, price=1.50, day=2026-01-31, at=2026-01-31T12:00:00Z, raw=AP8=, ratio=inf, tags=["a"]',
        "  ~ id=2: price: NULL → 9.99",
        "lists[small] (List)",
        "  + 1 = 2",
    ]
    assert tool("diff", kinds, 1, 2, "lists").output.splitlines()[-1] == "  + 1 = 2"
    rows = [json.loads(line) for line in tool("diff", kinds, 1, 2, "wide", "--json").output.splitlines()]
    assert {"key": {"id": 2}, "price": "9.99"}.items() <= {
        "key": rows[-1]["key"],
        "price": rows[-1]["new"]["price"],
    }.items()


@pytest.mark.parametrize(
    ("change", "after", "said"),
    [
        (lambda schema: schema.renamed("a", "c"), (1, 5, 4), "c (was a): 3 → 5"),
        (lambda schema: schema.renamed("a", "c"), (1, 3, 5), "b: 4 → 5"),
        (lambda schema: schema.renamed("a", "c").renamed("b", "a").renamed("c", "b"), (1, 3, 5), "a (was b): 4 → 5"),
        (lambda schema: schema.without_column("b").renamed("a", "b"), (1, 5), "b (was a): 3 → 5, b: 4 → NULL"),
        (
            lambda schema: schema.renamed("a", "c").with_column(Column("a", "int64", default=0)),
            (1, 3, 4, 5),
            "a: NULL → 5",
        ),
    ],
)
def test_a_diff_over_a_renaming_shows_a_column_once(
    tool: Tool, tmp_path: Path, change: Any, after: tuple[int, ...], said: str
) -> None:
    path = tmp_path / "s.db"
    with PersistedObjectSpace.open(path) as space:
        table = StateTable(space, "t", TableSchema([Column(name, "int64") for name in ("k", "a", "b")], ["k"]))
        table.insert_row((1, 3, 4))
        space.checkpoint(epoch=1)
        table = StateTable(space, "t", change(table.schema), evolve=True)
        table.insert_row(after)
        space.checkpoint(epoch=2)
    assert tool("diff", path, 1, 2, "t").output.splitlines()[-1] == f"  ~ k=1: {said}"


def test_rows_have_the_defaults_of_columns_that_were_added_later(tool: Tool, tmp_path: Path) -> None:
    path, exported = tmp_path / "s.db", tmp_path / "t.parquet"
    pair = Column("pair", "struct<a:decimal,b:list<date>>", default={"a": Decimal("1.0"), "b": [date(2026, 1, 31)]})
    added = [replace(column, default=value) for column, value in zip(WIDE.columns[1:], ROW[1:], strict=True)]
    with PersistedObjectSpace.open(path) as space:
        table = StateTable(space, "t", TableSchema(WIDE.columns[:1], ["id"]))
        table.insert_rows([(1,), (2,)])
        space.checkpoint(epoch=1)
        table = StateTable(space, "t", reduce(TableSchema.with_column, [pair, *added], table.schema), evolve=True)
        old, as_old = ((key, pair.default, *ROW[1:]) for key in (2, 3))
        table.insert_row(as_old)
        space.checkpoint(epoch=2)
        table.insert_row(old)
        table.update_row((1, *old[1:]), (1, *old[1:-1], []))
        space.checkpoint(epoch=3)
    rows = [json.loads(line) for line in shown(tool, path, "t@2", "--json", "--where", "price=1.5")]
    assert rows == [rows[2] | {"id": number} for number in (1, 2, 3)]
    assert tool("export", path, "t", exported, "@2").exit_code == 0
    found = pq.read_table(exported).to_pylist()
    assert found == [found[2] | {"id": number} for number in (1, 2, 3)]
    assert tool("diff", path, 2, 3).output.splitlines()[1:] == [
        '  ~ id=1: tags: ["a"] → []',
        "  ~ id=2: the same values in another form",
    ]
    assert json.loads(tool("blame", path, "t[3]", "--json").output)["value"] == rows[2]
    first = tool("bisect", path, "--input", "t", "--json", "--", "sh", "-c", "! grep -q '\"id\":1,.*1.50'")
    assert json.loads(first.stdout)["epoch"] == 2


def test_the_sum_of_a_diff_is_as_gits(tool: Tool, kinds: Path) -> None:
    assert tool("diff", kinds, 1, 2, "--stat").output.splitlines() == [
        " wide         | 2 -~",
        " lists[small] | 1 +",
        " 2 objects changed, 1 slot added(+), 1 slot removed(-), 1 slot changed(~)",
    ]
    assert tool("diff", kinds, 1, 1, "--stat").output == ""


@pytest.mark.parametrize("ends", [(0, 1), (0, 3), (1, 3), (3, 1), (2, 3)])
def test_the_sum_of_a_diff_counts_what_its_lines_say(tool: Tool, kinds: Path, ends: tuple[int, int]) -> None:
    lines = [json.loads(line) for line in tool("diff", kinds, *ends, "--json").output.splitlines()]
    sums = [json.loads(line) for line in tool("diff", kinds, *ends, "--stat", "--json").output.splitlines()]
    signs = {"added": "+", "removed": "-", "changed": "~"}
    assert {row["object"] for row in sums} == {line["object"] for line in lines if line["table"] != "metadata"}
    assert Counter({(row["object"], signs[word]): row[word] for row in sums for word in signs if row[word]}) == Counter(
        (line["object"], line["op"]) for line in lines if line["table"] == "item"
    )


def test_long_names_in_the_sum_of_a_diff_can_be_told_apart(tool: Tool, tmp_path: Path) -> None:
    with PersistedObjectSpace.open(tmp_path / "s.db") as space:
        for end in ("left", "right"):
            space.create_list(f"{'very' * 12}_long_name_of_the_{end}").append(1)
        space.checkpoint()
    *lines, _ = tool("diff", tmp_path / "s.db", 0, 1, "--stat").output.splitlines()
    start = " veryveryveryveryveryvery"
    assert lines == [f"{start}…ery_long_name_of_the_left | 1 +", f"{start}…ry_long_name_of_the_right | 1 +"]


def test_bars_of_a_large_diff_are_scaled(tool: Tool, tmp_path: Path) -> None:
    with PersistedObjectSpace.open(tmp_path / "s.db") as space:
        space.create_list("many").extend(range(1000))
        space.create_list("one").append(1)
        space.checkpoint()
    many, one, _ = tool("diff", tmp_path / "s.db", 0, 1, "--stat").output.splitlines()
    assert (many.count("+"), one.count("+")) == (40, 1)


@pytest.mark.parametrize(
    ("of", "held", "expected"),
    [
        (list, [5, "a"], [5, "a"]),
        (list, [], []),
        (dict, {"b": 1, "a": 2}, {"b": 1, "a": 2}),
        (dict, {}, {}),
        (dict, {5: "a", "9": b"b"}, {"$dict": [[5, "a"], ["9", {"$bytes": "Yg=="}]]}),
        (dict, {"$a": 1}, {"$dict": [["$a", 1]]}),
        (set, [9, 5], {"$set": [9, 5]}),
        ("sorted_set", [9, 5], {"$set": [5, 9]}),
        ("sparse_array", {7: 1}, {"$dict": [[7, 1]]}),
    ],
)
def test_what_an_object_owns_is_shown_as_its_kind_reads(
    tool: Tool, tmp_path: Path, of: Any, held: Any, expected: Any
) -> None:
    with PersistedObjectSpace.open(tmp_path / "state.db") as space:
        space.create_dictionary("owner", of=of)["x"] = held
        space.checkpoint()
    found = tool("show", tmp_path / "state.db", "owner", "--format", "json").output
    assert json.loads(found) == {"key": "x", "value": expected}
    assert list(json.loads(found)["value"]) == list(expected)


def test_a_tree_of_what_objects_own(tool: Tool, kinds: Path) -> None:
    found = [line.split() for line in tool("ls", kinds, "--tree").output.splitlines()]
    place = next(number for number, row in enumerate(found) if row[0] == "lists")
    assert [row[:3] for row in found[place + 1 : place + 3]] == [["├─", "large", "List"], ["└─", "small", "List"]]
    few = tool("ls", kinds, "--tree", "--children", 1).output
    assert "└─ 1 more" in few
    rows: dict[str, Any] = {
        row["name"]: row for row in map(json.loads, tool("ls", kinds, "--tree", "--json").output.splitlines())
    }
    owned = rows["lists"]["owned"]
    assert [(one["key"], one["length"]) for one in owned] == [("large", 100), ("small", 3)]
    assert rows["lists"]["bytes"] > sum(one["bytes"] for one in owned) > 0
    assert rows["lists"]["dirty"] == 1


def test_the_bytes_of_ls_are_those_of_the_newest_row_of_each_slot(tool: Tool, tmp_path: Path) -> None:
    generator, path = Random(3), tmp_path / "state.db"
    with PersistedObjectSpace.open(path) as space:
        counts, lists = space.create_dictionary("counts"), space.create_dictionary("lists", of="list")
        for _ in range(40):
            for key in generator.sample(range(60), 12):
                if generator.random() < 0.4:
                    counts.pop(key, None)
                    lists.pop(key, None)
                else:
                    counts[key] = "x" * generator.randrange(9)
                    lists.setdefault(key, []).append(key)
            space.checkpoint()
    with CheckpointStore(path) as store:
        for epoch in (1, 2, 3, 11, 40):
            reader = store.reader(epoch=epoch)
            found = {row["name"]: row["bytes"] for row in rows(tool, "ls", path, f"@{epoch}", "--json")}
            (counts_id, *_), (lists_id, *_) = reader.index()
            owned = sorted(reader.reachable() - {counts_id})
            assert found == {"counts": _bytes(reader, [counts_id]), "lists": _bytes(reader, [lists_id, *owned])}


def _bytes(reader: Reader, ids: list[int]) -> int:
    items = [item for one in set(ids) for item in reader.items(one)]
    return sum(len(str(item.slot)) + len(str(item.value)) for item in items)


def test_blame_of_a_table_is_by_its_key(tool: Tool, kinds: Path) -> None:
    (row,) = map(json.loads, tool("blame", kinds, "wide[2]", "--json").output.splitlines())
    assert (row["epoch"], row["key"], row["value"]["price"]) == (2, {"id": 2}, "9.99")
    assert tool("blame", kinds, "wide[7]").exit_code == 2


def test_a_restored_table_opens_with_its_schema_alone(tool: Tool, kinds: Path, tmp_path: Path) -> None:
    assert tool("restore", kinds, tmp_path / "wide.db", "@1", "--object", "wide").exit_code == 0
    with PersistedObjectSpace.open(tmp_path / "wide.db") as space:
        assert sorted(space) == ["$tables", "wide"]
        assert StateTable(space, "wide", WIDE).get_row((1,)) == ROW
    assert tool("restore", kinds, tmp_path / "kvt.db", "--object", "s/t").exit_code == 0
    with PersistedObjectSpace.open(tmp_path / "kvt.db") as space:
        entry = KeyValueTableManager(space).open_key_value_table("s", "t").get(b"k1", key_family="g")
    assert entry is not None
    assert entry.value == b"v"
    for name in ("wide.db", "kvt.db"):
        assert tool("verify", tmp_path / name).exit_code == 0


def test_what_is_stored_cannot_steer_a_terminal(tool: Tool, tmp_path: Path) -> None:
    with PersistedObjectSpace.open(tmp_path / "s.db") as space:
        space.create_dictionary("evil\x1b[2J").update(
            {"k\x1b]0;x\a": "v\x1b[31m\u202e", "\x7f\x9b31m": [2**70, "\u2066"]}
        )
        schema = TableSchema([Column("id", "int64"), Column("c\x1b[2J", "string")], ["id"])
        StateTable(space, "table\x1b[2J", schema).insert_row((1, "x"))
        space.checkpoint()
        connection = space.store.database.conn
        connection.execute("UPDATE checkpoint SET time = '\x1b[2J'")
        connection.commit()
    (tmp_path / "rows.jsonl").write_text("1\n")
    for command in (
        *(["ls"], ["show", "evil\x1b[2J"], ["diff"], ["diff", "--stat"], ["blame", "evil\x1b[2J"]),
        *(["show", "table\x1b[2J"], ["blame", "evil\x1b[2J[absent]"], ["log", "--graph"]),
        ["import", str(tmp_path / "rows.jsonl"), "new\x1b[2J"],
    ):
        for more in ((), ("--json",)):
            output = tool(command[0], tmp_path / "s.db", *command[1:], *more).output
            assert all(char.isprintable() or char == "\n" for char in output), command


def test_what_a_space_holds_cannot_steer_a_terminal(tool: Tool, tmp_path: Path) -> None:
    chain, operator = Chain.open_or_create(location_at(tmp_path / "space"), 1), "evil\x1b[2J"
    plan = chain.begin(SourcePosition("q\x1b[2J", 0), [operator], cache=str(tmp_path / "cache"))
    assert plan is not None
    run = run_of({"a": 1}, CheckpointKind.FULL)
    chain.publish(plan, {operator: [save_run(plan.operators[operator], 0, run)]})
    for command in (["log", "--graph"], ["diff"], ["doctor"], ["ls", "--operator", "absent"], ["show", "counts"]):
        output = tool(command[0], tmp_path / "space", *command[1:]).output
        assert all(char.isprintable() or char == "\n" for char in output), command


@pytest.mark.parametrize("is_noted", [False, True], ids=["now", "by an earlier version"])
def test_an_object_that_has_the_name_of_a_table_that_is_gone_is_shown_as_what_it_is(
    tool: Tool, tmp_path: Path, is_noted: bool
) -> None:
    path = tmp_path / "s.db"
    with PersistedObjectSpace.open(path) as space:
        StateTable(space, "orders", TableSchema([Column("id", "int64")], ["id"])).insert_row((1,))
        space.checkpoint()
        record = space.get_dictionary("$tables")["orders"]
        space.delete("orders")
        space.create_list("orders").extend([5, 6])
        if is_noted:
            space.get_dictionary("$tables")["orders"] = record
        space.checkpoint()
    assert tool("show", path, "orders").output == "orders = List of 2\n0 = 5\n1 = 6\n"
    for command in (["ls"], ["diff", 1, 2], ["blame", "orders"], ["export", "orders", tmp_path / "orders.jsonl"]):
        found = tool(command[0], path, *command[1:])
        assert found.exit_code < 2, found.output
    assert (tmp_path / "orders.jsonl").read_text() == '{"key":0,"value":5}\n{"key":1,"value":6}\n'
