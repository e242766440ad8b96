"""The page of Spark: its programs run, one after the other."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from objectspace.spark import session
from objectspace.spark.session import _FILE_MANAGER, _start_no_processes_for_files

ROOT = Path(__file__).parents[2]


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def run(program: str, folder: Path, scope: dict[str, Any]) -> None:
    """Run a program as it stands, but for its folders: Java does not follow when this process changes its own."""
    exec(re.sub(r'(parquet\("|"(?=state/))', rf"\1{folder}/", program), scope)


def without_carrier(scope: dict[str, Any], database: sqlite3.Connection) -> list[Any]:
    """Return what the sink of the page has of the group of NULL after it has changed twice."""
    scope["reporting"] = SimpleNamespace(mark=str)
    for epoch, changes in ((2, [("+", 1)]), (3, [("U-", 1), ("U+", 2)]), (4, [("U-", 2), ("U+", 3)])):
        rows = [SimpleNamespace(op=op, carrier=None, n=n, worst=7) for op, n in changes]
        scope["upsert"](SimpleNamespace(collect=lambda rows=rows: rows), epoch)
    return database.execute("SELECT * FROM delays WHERE carrier IS NULL").fetchall()


def test_the_programs_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OBJECTSPACE_CACHE", str(tmp_path / "cache"))
    scope: dict[str, Any] = {}
    for program in blocks("docs/spark.md"):
        run(program, tmp_path, scope)
    assert "Apply(builtins.Longest by carrier)" in scope["emitting"].explain()
    assert scope["pipeline"].rows("worst_carriers") == [
        ("DL", 1, 90, 2.5),
        ("B6", 1, 9, 2.5),
        ("UA", 2, 20, 2.5),
    ]
    with sqlite3.connect("report.db") as database:
        assert sorted(database.execute("SELECT * FROM delays")) == [("B6", 1, 9), ("DL", 1, 90), ("UA", 2, 20)]
        assert list(database.execute("SELECT * FROM applied")) == [("delays", scope["reporting"].mark(1))]
        assert without_carrier(scope, database) == [(None, 3, 7)]
    printed = capsys.readouterr().out
    assert printed.startswith("[('DL', 1, 90, 2.5), ('B6', 1, 9, 2.5), ('UA', 2, 20, 2.5)]\n+-------+")
    assert {("+", "DL", "90"), ("+", "B6", "9"), ("+", "UA", "20")} == set(
        re.findall(r"^\| +(\+)\| +(\w\w)\| +(\d+)\|$", printed, re.MULTILINE)
    )
    assert "{'DL': 90}\n{'B6': 9}\n{'UA': 20}\n" in printed
    assert "\n[(1, 2), (2, 1)]\n" in printed
    assert {("UA", "20"), ("B6", "9")} == set(re.findall(r"^\| +(\w\w)\| +(\d+)\|$", printed, re.MULTILINE))
    assert re.search(r"epoch 1 \(batch 0\): 5 rows, \d+ dirty slots", printed)


def ran(programs: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what programs print that are run as one script."""
    scope: dict[str, Any] = {}
    for program in programs:
        run(program, folder, scope)
    return capsys.readouterr().out


def test_the_readme_is_enough_to_write_an_operator(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OBJECTSPACE_CACHE", str(tmp_path / "cache"))
    programs = [block for block in blocks("README.md") if "flights_df" in block or "readStream" in block]
    printed, again = ran(programs, tmp_path, capsys), ran(programs, tmp_path, capsys)
    said = re.findall(r"# .*?(\[.*\])", "".join(block for block in blocks("README.md") if "flights_df" in block))
    assert len(said) == 2
    assert printed.splitlines()[:2] == said
    assert again == printed
    assert {("UA", "20"), ("B6", "9"), ("DL", "90")} == set(re.findall(r"\| *(\w\w)\| +(\d+)\|", printed))


def test_the_pages_have_folders_of_their_own() -> None:
    readme, page = (set(re.findall(r'"(state/\w+)"', "".join(blocks(name)))) for name in ("README.md", "docs/spark.md"))
    assert readme
    assert page
    assert readme.isdisjoint(page)


def test_a_quiet_session_has_the_settings_that_the_page_advises(spark: SparkSession) -> None:
    advised = re.findall(r"^\| `(spark\.[\w.]+)=([\w.]+)` \|", (ROOT / "docs/spark.md").read_text(), re.MULTILINE)
    assert spark.sparkContext.appName == "tests"
    assert len(advised) == 3
    assert {name: spark.conf.get(name) for name, _ in advised} == dict(advised)


def test_a_quiet_session_leaves_the_files_of_queries_to_what_spark_is_told(spark: SparkSession) -> None:
    other = spark.newSession()
    other.conf.set(_FILE_MANAGER, "of somebody else")
    _start_no_processes_for_files(other)
    assert other.conf.get(_FILE_MANAGER) == "of somebody else"
    other.conf.unset(_FILE_MANAGER)
    _start_no_processes_for_files(other)
    assert other.conf.get(_FILE_MANAGER) == spark.conf.get(_FILE_MANAGER)


def test_a_quiet_session_asks_for_no_class_that_spark_has_no_more(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_WITHOUT_PROCESSES", "org.apache.spark.Moved")
    other = spark.newSession()
    _start_no_processes_for_files(other)
    assert other.conf.get(_FILE_MANAGER, None) is None
