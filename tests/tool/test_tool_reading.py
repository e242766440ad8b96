"""The commands that only read, on a file, on a space, and on a store that somebody writes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path

import pytest

from checkpoint import CheckpointKind, CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.kvt import KeyValueTableConfiguration, KeyValueTableManager
from objectspace.relational import Column, StateTable, TableSchema
from tests.tool.conftest import Tool


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_log(tool: Tool, store: Path) -> None:
    found = tool("log", store)
    assert found.exit_code == 0
    header, *rows, spark = lines(found.output)
    assert header.split() == ["number", "epoch", "kind", "time", "slots", "bytes"]
    assert [row.split()[:3] for row in rows] == [[str(n), str(10 * n), "differential"] for n in range(7, 0, -1)]
    assert spark.startswith("bytes, oldest to newest: █")
    newest = json.loads(tool("log", store, "-n", 1, "--json", "--objects").output)
    assert (newest["epoch"], newest["objects"]) == (70, {"orders": 1, "counts": 1, "events": 1})


def test_ls(tool: Tool, store: Path) -> None:
    rows = {row["name"]: row for row in map(json.loads, tool("ls", store, "--json").output.splitlines())}
    kinds = {name: (row["kind"], row["length"]) for name, row in rows.items()}
    assert kinds["orders"] == ("Table", 7)
    assert kinds["events"] == ("List", 7)
    assert kinds["counts"] == ("Dictionary", 1)
    before = {
        row["name"]: row["length"] for row in map(json.loads, tool("ls", store, "@40", "--json").output.splitlines())
    }
    assert before["counts"] == 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["counts"], ["counts = Dictionary of 1", "bob = -7"]),
        (["counts@20"], ["counts = Dictionary of 2", "alice = 1", "bob = -2"]),
        (["events", "-n", "1", "--format", "json"], ['{"key":0,"value":{"n":1}}']),
        (["events", "-n", "1", "--json"], ['{"key":0,"value":{"n":1}}']),
        (["events", "--from", "5", "--format", "csv"], ["key,value", '5,"{""n"":6}"', '6,"{""n"":7}"']),
        (["lists"], ["lists = Dictionary of 1", "x = [1,2]"]),
        (["orders", "--where", "item=item 3"], ["orders = Table of 7", "id  item", " 3  item 3"]),
        (["orders", "-n", "2", "--format", "csv"], ["id,item", "7,item 7", "6,"]),
    ],
)
def test_show(tool: Tool, store: Path, arguments: list[str], expected: list[str]) -> None:
    found = tool("show", store, *arguments)
    assert (found.exit_code, lines(found.output)) == (0, expected)


def test_rows_have_one_shape(tool: Tool, store: Path) -> None:
    found = tool("show", store, "counts", "--json", "--format", "csv")
    assert (found.exit_code, found.stdout) == (2, "")
    assert "--json and --format csv ask for two shapes" in found.stderr


def test_csv_has_what_is_stored(tool: Tool, tmp_path: Path) -> None:
    with PersistedObjectSpace.open(tmp_path / "state.db") as space:
        space.create_list("l").append("\x1b[31mred")
        space.checkpoint()
    assert tool("show", tmp_path / "state.db", "l", "--format", "csv").output == "key,value\n0,\x1b[31mred\n"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        *(("price=1.5", "12"), ("price!=1.5", "3"), ("price>1.49", "123"), ("price==1.5", "12")),
        *(("code=7", "2"), ("code!=7", "13"), ("code<8", "123")),
    ],
)
def test_decimals_are_compared_as_numbers(tool: Tool, tmp_path: Path, condition: str, expected: str) -> None:
    columns = [Column("id", "int64"), Column("price", "decimal"), Column("code", "string")]
    with PersistedObjectSpace.open(tmp_path / "state.db") as space:
        table = StateTable(space, "t", TableSchema(columns, ["id"]))
        table.insert_rows([(1, Decimal("1.5"), "007"), (2, Decimal("1.50"), "7"), (3, Decimal(2), "07")])
        space.checkpoint()
    found = tool("show", tmp_path / "state.db", "t", "--where", condition, "--format", "json")
    assert "".join(str(json.loads(line)["id"]) for line in found.output.splitlines()) == expected


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with a table whose cells are not in the order of their texts."""
    path = tmp_path_factory.mktemp("typed") / "state.db"
    kinds = {
        "at": "timestamptz",
        "local": "timestamp",
        "hour": "time",
        "day": "date",
        "ratio": "float64",
        "raw": "binary",
    }
    columns = [Column("id", "int64"), *(Column(name, kind, nullable=True) for name, kind in kinds.items())]
    first = datetime(2026, 1, 31, 12)
    later = first + timedelta(milliseconds=500)
    with PersistedObjectSpace.open(path) as space:
        table = StateTable(space, "t", TableSchema(columns, ["id"]))
        table.insert_row((1, first.replace(tzinfo=UTC), first, first.time(), first.date(), 1.5, b"\xfb"))
        table.insert_row((2, later.replace(tzinfo=UTC), later, later.time(), later.date(), math.nan, b"a"))
        table.insert_row((3, None, None, None, None, math.inf, None))
        space.checkpoint()
    return path


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        *(("at>2026-01-31T12:00:00Z", "2"), ("at<2026-01-31T12:00:00Z", ""), ("at=2026-01-31T13:00:00.5+01:00", "2")),
        *(("at<=2026-01-31 12:00", "1"), ("local=2026-01-31T12:00:00.5", "2"), ("local>=2026-01-31", "12")),
        *(("hour=12:00", "1"), ("hour!=12:00", "2"), ("day<2026-02-01", "12"), ("day=NULL", "3")),
        *(("ratio<nan", "13"), ("ratio<=nan", "123"), ("ratio=NaN", "2"), ("ratio>1.5", "23"), ("ratio!=inf", "12")),
        *(("raw<+w==", "2"), ("raw=YQ==", "2")),
    ],
)
def test_cells_are_compared_as_the_types_of_their_columns(
    tool: Tool, typed: Path, condition: str, expected: str
) -> None:
    found = tool("show", typed, "t", "--where", condition, "--format", "json")
    assert (found.exit_code, "".join(str(json.loads(line)["id"]) for line in found.output.splitlines())) == (
        0,
        expected,
    )


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        *(("at>noon", "timestamps, in UTC"), ("local<2026-01-31T12:00Z", "timestamps without a time zone")),
        *(("hour=12:00+01:00", "times without"), ("day>2026", "dates"), ("ratio<a", "numbers"), ("raw=a", "bytes as")),
    ],
)
def test_a_value_that_is_none_of_the_type_of_the_column_is_refused(
    tool: Tool, typed: Path, condition: str, holds: str
) -> None:
    found = tool("show", typed, "t", "--where", condition)
    assert (found.exit_code, f"holds {holds}" in found.stderr, "expected one, found" in found.stderr) == (2, True, True)


def test_diff(tool: Tool, store: Path) -> None:
    found = tool("diff", store, 4, 5, "counts")
    assert found.exit_code == 1
    assert lines(found.output) == [
        "counts (Dictionary)",
        "  ~ its length = 2 → 1 (the next slot has rank 2)",
        "  - alice = 1",
        "  ~ bob = -4 → -5",
    ]
    assert tool("diff", store, "HEAD", "HEAD").exit_code == 0
    stat = [json.loads(line) for line in tool("diff", store, "@10", "@70", "--stat", "--json").output.splitlines()]
    assert {row["object"]: (row["added"], row["removed"], row["changed"]) for row in stat} == {
        "orders": (6, 0, 0),
        "events": (6, 0, 0),
        "counts": (0, 1, 1),
    }


def test_blame(tool: Tool, store: Path) -> None:
    rows = [json.loads(line) for line in tool("blame", store, "events", "--json").output.splitlines()]
    assert [(row["epoch"], row["key"]) for row in rows] == [(10 * n, n - 1) for n in range(1, 8)]


def test_blame_names_nothing_that_was_gone_before_a_full_checkpoint(tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with PersistedObjectSpace.open(path) as space:
        counts = space.create_dictionary("counts")
        counts.update(a=1, b=2)
        space.checkpoint()
        del counts["a"]
        space.checkpoint(kind=CheckpointKind.FULL)
        counts["c"] = 3
        space.checkpoint()
    rows = [json.loads(line) for line in tool("blame", path, "counts", "--json").output.splitlines()]
    assert [(row["number"], row["key"], row["value"]) for row in rows] == [(2, "b", 2), (3, "c", 3)]
    assert "no key 'a'" in tool("blame", path, "counts[a]").output


def written_over(space: PersistedObjectSpace, mebibytes: int) -> None:
    """Write so much into one value, a MiB at a time."""
    value = space.get("v")
    for number in range(mebibytes):
        value.value = str(number % 10) * 2**20
        space.checkpoint()


def test_doctor_tells_a_log_that_a_snapshot_holds_back_from_one_that_is_long(tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with PersistedObjectSpace.open(path) as space:
        space.store.configure(history=1)
        space.create_value("v", "")
        space.checkpoint()
        space.store.compact()
        with CheckpointStore(path, read_only=True):
            written_over(space, 3)
            found = tool("doctor", path, "--json")
            facts = json.loads(found.output)
            assert facts["log bytes"] > 2**20 > facts["bytes"]
            assert (found.exit_code, facts["advice"]) == (0, [])  # It is not due to be copied yet.
            written_over(space, 12)
            found = tool("doctor", path)
            assert (found.exit_code, "a reader holds an old snapshot" in found.output) == (2, True)
        written_over(space, 2)  # The first of them copies the log, the second begins it anew.
        found = tool("doctor", path)
        assert (found.exit_code, "old snapshot" in found.output) == (0, False)


def test_a_partition_that_a_key_value_table_does_not_have(tool: Tool, tmp_path: Path) -> None:
    path, fork = tmp_path / "state.db", tmp_path / "fork.db"
    with PersistedObjectSpace.open(path) as space:
        manager = KeyValueTableManager(space)
        manager.create_scope("s")
        manager.create_key_value_table("s", "t", KeyValueTableConfiguration(4))
        space.checkpoint(epoch=1)
        space.store.fork(fork, epoch=1)
        manager.delete_key_value_table("s", "t")
        manager.create_key_value_table("s", "t", KeyValueTableConfiguration(4))
        space.checkpoint(epoch=2)
        with PersistedObjectSpace.open(fork) as other:
            KeyValueTableManager(other).open_key_value_table("s", "t").put(b"k", b"of the fork", key_family="f")
            other.checkpoint(epoch=2)
            space.store.apply_changes(other.store.diff(a_epoch=1, b_epoch=2))
        space.rollback()
        manager.open_key_value_table("s", "t").put(b"k", b"own", key_family="f")
        space.checkpoint()
    shown = tool("show", path, "kvt/s/t").output
    assert "own" in shown
    assert "of the fork" not in shown
    assert "of the fork" in tool("show", path, "kvt/s/t/2").output
    found = tool("doctor", path)
    assert (found.exit_code, "kvt/s/t/2 holds keys of another table than today's kvt/s/t" in found.output) == (2, True)


def test_verify_and_doctor(tool: Tool, store: Path) -> None:
    assert "7 runs, all match their digests" in tool("verify", store).output
    found = tool("doctor", store, "--json")
    assert (found.exit_code, json.loads(found.output)["writer"]) == (0, "none")
    with store.open("r+b") as file:
        file.seek(store.stat().st_size - 40)
        file.write(b"damage" * 4)
    damaged = tool("verify", store)
    assert damaged.exit_code == 2
    assert damaged.stderr.startswith("error: ")


def test_a_store_that_somebody_writes(tool: Tool, store: Path) -> None:
    with PersistedObjectSpace.open(store) as space:
        space.get_dictionary("counts")["carol"] = 3
        assert "carol" not in tool("show", store, "counts").output
        space.checkpoint()
        assert "carol = 3" in tool("show", store, "counts").output
        assert "process" in tool("doctor", store).output
        refused = tool("compact", store)
        assert (refused.exit_code, "is being written by" in refused.stderr) == (2, True)


def test_a_space(tool: Tool, location: Path) -> None:
    assert [line.split()[0] for line in lines(tool("log", location).output)] == ["epoch", "3", "2", "1", "bytes,"]
    assert lines(tool("show", location, "counts", "--shard", 1).output)[1:] == ["b = 3", "c = 4"]
    assert lines(tool("show", location, "counts@1", "--shard", 0).output)[1:] == ["a = 1"]
    assert "2 shards at epoch 3" in tool("verify", location).output
    changed = ["  ~ its length = 1 → 2", "  ~ b = 1 → 3", "  + c = 4"]
    assert lines(tool("diff", location, "@1", "@3", "--shard", 1).output)[1:] == changed
    assert "has no shard 7" in tool("ls", location, "--shard", 7).stderr
    assert "there is no operator 'x'" in tool("ls", location, "--operator", "x").stderr
    assert tool("apply", location, "nothing").exit_code == 2


def test_top(tool: Tool, store: Path) -> None:
    found = lines(tool("top", store, "--count", 2, "--interval", 0).output)
    assert found[0].startswith("epoch 70; over the last 6 checkpoints: ")
    assert sum(line.startswith("events ") for line in found) == 2


class Page(HTMLParser):
    """Collects the headings of a page, and refuses what comes from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.is_heading = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {"src", "href"} & {name for name, _ in attrs}
        self.is_heading = tag == "h2"

    def handle_data(self, data: str) -> None:
        if self.is_heading:
            self.headings.append(data)
            self.is_heading = False


def test_report(tool: Tool, store: Path, tmp_path: Path) -> None:
    with PersistedObjectSpace.open(store) as space:
        space.create_list("<script>alert(1)</script>").append(1)
        space.checkpoint()
    assert tool("report", store, tmp_path / "report.html").exit_code == 0
    text = (tmp_path / "report.html").read_text()
    page = Page()
    page.feed(text)
    assert page.headings[:3] == ["Totals", "Bytes a checkpoint", "Slots a checkpoint"]
    assert "alert(1)</script>" not in text
    assert text.count("<rect") == 16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "{}", "count"], "did you mean 'counts'?"),
        (["show", "{}", "counts@15"], "has no checkpoint @15: there are 1 to 7"),
        (["diff", "{}", "99"], "has no checkpoint 99"),
        (["diff", "{}", "yesterday"], "names no checkpoint"),
        (["show", "{}", "orders", "--where", "id>seven"], "the column 'id' holds numbers: expected one, found 'seven'"),
        (["prune", "{}.d", "--keep", "3"], ".d' does not exist"),
        (["repair", "."], "no space here"),
        (["show", "{}", "orders", "--where", "price=1"], "there is no column 'price': it has id, item"),
        (["show", "{}", "counts", "--where", "a=1"], "goes with a table"),
        (["log", "nothing.db"], "'nothing.db' does not exist"),
        (["log", __file__], "test_tool_reading.py"),
        (["export", "{}", "counts", "x.xls"], "expected one of .parquet"),
        (["gc", "{}"], "is a store file"),
        (["bisect", "{}", "--good", "5", "--bad", "3", "--", "true"], "a good checkpoint before a bad one"),
    ],
)
def test_bad_input(tool: Tool, store: Path, arguments: list[str], message: str) -> None:
    found = tool(*(argument.replace("{}", str(store)) for argument in arguments))
    assert found.exit_code == 2
    assert found.stderr.startswith("error: ")
    assert message in found.stderr
    assert "Traceback" not in found.stderr


def test_the_installed_command(store: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "checkpoint", "show", str(store), "counts"], capture_output=True, text=True, check=True
    )
    assert lines(done.stdout) == ["counts = Dictionary of 1", "bob = -7"]
    wrong = subprocess.run([sys.executable, "-m", "checkpoint", "lgo"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, "Did you mean 'log'?" in wrong.stderr) == (2, True)


def test_what_was_left_out_is_said_on_standard_error(tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with PersistedObjectSpace.open(path) as space:
        space.create_list("short").extend(range(50))
        space.create_list("long").extend(range(51))
        space.checkpoint()
    for command in (["show", "--format", "csv"], ["show"], ["blame", "--json"], ["blame"]):
        found = {name: tool(command[0], path, name, *command[1:]) for name in ("short", "long")}
        assert found["short"].stderr == ""
        assert found["long"].stderr == "only the first 50: --limit 0 shows all\n"
        assert tool(command[0], path, "long", *command[1:], "-n", "50").stderr == ""
        assert len(found["long"].stdout.splitlines()) == len(found["short"].stdout.splitlines())


def test_numbers_of_a_tensor_that_json_does_not_have_are_written_as_elsewhere(tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with PersistedObjectSpace.open(path) as space:
        tensor = space.create_tensor("t", (3,), "float64")
        tensor[0], tensor[2] = math.nan, 1.5
        space.checkpoint()
        tensor[0] = -math.inf
        space.checkpoint()
    shown = json.loads(tool("show", path, "t", "--format", "json").stdout)
    assert shown["value"] == [{"$float": "-inf"}, 0.0, 1.5]
    (changed,) = map(json.loads, tool("diff", path, "--json").stdout.splitlines())
    assert (changed["old"], changed["new"]) == ([{"$float": "nan"}, 0.0, 1.5], [{"$float": "-inf"}, 0.0, 1.5])
    assert "nan → -inf" in tool("diff", path).stdout


def test_an_empty_key_value_table_is_blamed_for_nothing(tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with PersistedObjectSpace.open(path) as space:
        manager = KeyValueTableManager(space)
        manager.create_scope("shop")
        manager.create_key_value_table("shop", "empty", KeyValueTableConfiguration(2))
        space.checkpoint()
    for name in ("shop/empty", "kvt/shop/empty"):
        found = tool("blame", path, name, "--json")
        assert (found.exit_code, found.output) == (0, "")


@pytest.mark.parametrize("kind", ["tensor", "value"])
def test_what_has_no_ranges_says_so(tool: Tool, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "state.db"
    with PersistedObjectSpace.open(path) as space:
        if kind == "tensor":
            space.create_tensor("t", (2000,), "int64")[1000] = 7
        else:
            space.create_value("t", 7)
        space.checkpoint()
    found = tool("show", path, "t", "--from", "1000")
    assert (found.exit_code, f"'t' is a {kind}, which has no ranges" in found.stderr) == (2, True)


def test_a_key_is_found_by_the_json_that_it_is_printed_as(tool: Tool, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    keys = [Decimal("1.50"), math.inf, Decimal("1.23456789012345678901"), 10**30, -7, 2.5, "1.50", "inf", (1, "a")]
    with PersistedObjectSpace.open(path) as space:
        space.create_dictionary("d").update((key, place) for place, key in enumerate(keys))
        space.checkpoint()
    for line in tool("blame", path, "d", "--json").stdout.splitlines():
        row = json.loads(line)
        found = tool("blame", path, f"d[{json.dumps(row['key'])}]", "--json")
        assert [json.loads(one)["value"] for one in found.stdout.splitlines()] == [row["value"]], row


def test_an_empty_path_is_no_path_of_a_new_store(tool: Tool, store: Path) -> None:
    for command in ("fork", "restore"):
        assert tool(command, store, "").stderr == "error: the path of the new store is empty: name a new file\n"
