"""The page of Spark: its programs run, one after the other."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def run(program: str, folder: Path, scope: dict[str, Any]) -> None:
    """Run a program; Java does not follow when this process changes its folder, so that its folders become absolute."""
    exec(re.sub(r'(parquet\("|"(?=state/))', rf"\1{folder}/", program), scope)


def add_input(folder: Path) -> None:
    (folder / "flights").mkdir()
    (folder / "weather").mkdir()
    flights = {"id": [1, 2, 3], "carrier": ["UA", "B6", "UA"], "origin": ["JFK"] * 3, "delay": [9, 20, None]}
    pq.write_table(pa.table(flights), folder / "flights" / "0.parquet")
    pq.write_table(pa.table({"origin": ["JFK"], "wind": [2.5]}), folder / "weather" / "0.parquet")


def test_the_programs_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OBJECTSPACE_CACHE", str(tmp_path / "cache"))
    add_input(tmp_path)
    programs = [block.replace(", epoch=12", "") for block in blocks("docs/spark.md")]
    first, sink, emitting, own, reading, copy, watching = programs
    building, start = first.split("query = ")
    scope: dict[str, Any] = {}
    for program in (building, sink, f"query = {start}", emitting, own, reading, copy, watching):
        run(program, tmp_path, scope)
    assert "Apply(builtins.Longest by carrier)" in scope["emitting"].explain()
    assert scope["pipeline"].rows("worst_carriers") == [("B6", 1, 20, 2.5), ("UA", 2, 9, 2.5)]
    with sqlite3.connect("report.db") as database:
        assert sorted(database.execute("SELECT * FROM delays")) == [("B6", 1, 20), ("UA", 2, 9)]
        assert list(database.execute("SELECT epoch FROM applied")) == [(1,)]
    printed = capsys.readouterr().out
    assert {("UA", "9"), ("B6", "20")} == set(re.findall(r"\| +(\w\w)\| +(\d+)\|", printed))
    assert re.search(r"epoch 1 \(batch 0\): 4 rows, \d+ dirty slots", printed)


def test_the_readme_is_enough_to_write_an_operator(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OBJECTSPACE_CACHE", str(tmp_path / "cache"))
    scope: dict[str, Any] = {}
    for program in (block for block in blocks("README.md") if "flights_df" in block or "readStream" in block):
        run(program, tmp_path, scope)
    printed = capsys.readouterr().out
    assert printed.startswith("[('B6', 1, 20, 2.5), ('UA', 2, 9, 2.5)]\n[('B6', 20), ('UA', 9)]\n")
    assert {("UA", "9"), ("B6", "20")} == set(re.findall(r"\| *(\w\w)\| +(\d+)\|", printed))


def test_a_quiet_session_has_the_settings_that_the_page_advises(spark: SparkSession) -> None:
    advised = re.findall(r"^\| `(spark\.[\w.]+)=(\w+)` \|", (ROOT / "docs/spark.md").read_text(), re.MULTILINE)
    assert len(advised) == 2
    assert {name: spark.conf.get(name) for name, _ in advised} == dict(advised)
