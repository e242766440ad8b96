"""One row of a table by its whole key: found without a scan, and the same that a scan finds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from checkpoint.session import Session
from checkpoint.tool import printing, table_keys
from checkpoint.tool.content import State
from objectspace import PersistedObjectSpace
from objectspace.kvt import KeyValueTableConfiguration, KeyValueTableManager
from objectspace.relational import Column, StateTable, TableSchema
from objectspace.relational.key_space import KeySpace
from tests.tool.conftest import Tool, rows
from tests.tool.test_tool_million import Counting

KEYS = [(-5, "a"), (7, None), (7, "NULL"), (7, "7"), (7, "b, c"), (None, "[x]"), (7, "\0é"), (2**63 - 1, "")]

COLUMNS = {
    "id": ["n"],
    "code": ["t"],
    "both": ["n", "t"],
    "spread": ["n", "t"],
    "ratio": ["f"],
    "s/t": ["family", "key"],
}
"""The columns of the keys of the tables."""


def write(path: Path, count: int) -> None:
    columns = [Column("n", "int64", nullable=True), Column("t", "string", nullable=True), Column("f", "float64")]
    with PersistedObjectSpace.open(path) as space:
        keys: list[tuple[str, Sequence[str], Sequence[str]]] = [
            *(("id", ["n desc nulls last"], []), ("code", ["t"], []), ("both", ["n", "t desc"], [])),
            *(("spread", ["t", "n"], ["n"]), ("ratio", ["f"], [])),
        ]
        for name, key, spread in keys:
            table = StateTable(space, name, TableSchema(columns, key, distribution_key=spread))
            for place, (n, t) in enumerate([*KEYS, *((number + 10, f"k{number}") for number in range(count))]):
                table.insert_row((n, t, place - 0.5))
        manager = KeyValueTableManager(space)
        manager.create_scope("s")
        manager.create_key_value_table("s", "t", KeyValueTableConfiguration(2))
        pairs = manager.open_key_value_table("s", "t")
        for family in ("f", "NULL", "b, c", None):
            for _, t in KEYS:
                pairs.put((t or "none").encode(), b"v", key_family=family)
            pairs.put(b"\xff", b"v", key_family=family)
        pairs.put_all("f", [(b"k%d" % number, b"v") for number in range(count)])
        space.checkpoint()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "s.db"
    write(path, 20)
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "s.db"
    write(path, 3_000)
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        *(["blame", name] for name in ("id[27]", "code[k17]", "both[27, k17]", "spread[k17, 27]", "s/t[f, k17]")),
        *(["show", name, "--where", "n=27", "--where", "t==k17"] for name in ("id", "code", "both", "spread")),
        ["show", "s/t", "--where", "family=f", "--where", "key=k17"],
    ],
)
def test_a_row_by_its_whole_key_costs_no_scan(
    tool: Tool, small: Path, large: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(Session, "factory", Counting)

    def work(path: Path) -> int:
        before = Counting.hundreds
        assert len(rows(tool, arguments[0], path, *arguments[1:], "--json")) == 1
        return Counting.hundreds - before

    of_small, of_large = work(small), work(large)
    assert of_large < of_small + 30


@pytest.mark.parametrize("name", COLUMNS)
def test_a_row_by_its_whole_key_is_what_a_scan_finds(
    tool: Tool, small: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    numbers = ["7", "07", "7.0", "-5", "1e1", "NaN", "-0", "NULL", str(2**63 - 1), str(2**63), "0.5"]
    texts = ["a", "NULL", "7", "b, c", "[x]", "x", "", "é", '{"$bytes":"/w=="}', "k3"]
    cells = {"n": numbers, "t": texts, "f": numbers, "family": ["f", *texts], "key": texts}
    chosen = [dict(zip(COLUMNS[name], pair, strict=True)) for pair in product(*map(cells.__getitem__, COLUMNS[name]))]

    def found() -> list[Any]:
        asked = ([f"--where={column}={cell}" for column, cell in one.items()] for one in chosen)
        return [rows(tool, "show", small, name, "--json", *conditions) for conditions in asked]

    by_key = found()
    monkeypatch.setattr(State, "slots_of", lambda *_: None)
    assert by_key == found()
    assert any(by_key)


@pytest.mark.parametrize("name", COLUMNS)
def test_blame_finds_a_row_by_its_key_as_a_scan_does(
    tool: Tool, small: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    typed = {"absent", "2", "[x]"}
    for row in rows(tool, "blame", small, name, "--json", "-n", 0):
        cells = ["NULL" if cell is None else printing.short(cell) for cell in row["key"].values()]
        typed |= {", ".join(cells), *cells}

    def found() -> list[tuple[int, str]]:
        return [
            (one.exit_code, one.output) for one in (tool("blame", small, f"{name}[{key}]") for key in sorted(typed))
        ]

    by_key = found()
    monkeypatch.setattr(State, "slots_of", lambda *_: None)
    assert by_key == found()
    assert sum(status == 0 for status, _ in by_key) > 5


@pytest.mark.parametrize("order", ["asc", "desc", "asc nulls last", "desc nulls first"])
def test_the_slots_of_a_typed_key_are_those_of_the_code_of_tables(order: str) -> None:
    for kind in ("int16", "int32", "int64", "string"):
        columns = [Column("n", kind, nullable=True), Column("t", "string", nullable=True)]
        for spread in ([], ["n"]):
            schema = TableSchema(columns, [f"n {order}", f"t {order}"], distribution_key=spread)
            stored = json.loads(json.dumps(schema.to_json()))
            for n in (None, 0, -1, 32767) if kind != "string" else (None, "a\0b"):
                for t in (None, "", "é", "NULL"):
                    cells = {"n": "NULL" if n is None else str(n), "t": "NULL" if t is None else t}
                    slots = table_keys.slots_of(stored, cells)
                    assert slots is not None
                    assert KeySpace("t", schema).key((n, t)) in slots


def test_keys_that_look_like_others_are_told_from_them(tool: Tool, tmp_path: Path) -> None:
    path, others = tmp_path / "state.db", [None, "null", "true", "[1]", '{"$tuple":[1]}', '"a"', "12", "a"]
    with PersistedObjectSpace.open(path) as space:
        d = space.create_dictionary("d")
        d.update({True: "x", **dict.fromkeys(others, 0)})
        space.checkpoint()
        del d[True]
        d[1] = "y"
        space.checkpoint()
    shown = [line.rpartition(" = ")[0] for line in tool("show", path, "d").output.splitlines()[1:] if line]
    assert shown == ["null", *map(json.dumps, others[1:-1]), "a", "1"]
    added = [row["key"] for row in rows(tool, "diff", path, 0, 1, "--json") if row["table"] == "item"]
    assert [key for key in added if isinstance(key, bool)] == [True]
    assert set(others) < set(added)
    assert "~ true = x → y" in tool("diff", path, 1, 2).output
