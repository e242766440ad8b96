"""Import and export: files of CSV, JSON lines, Parquet, Arrow and SQLite."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace, register_dataclass
from objectspace.relational import Column, StateTable, StorageTable, TableSchema
from tests.tool.conftest import Tool, contents


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
