"""What is said of optional libraries that are not there, or too old."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from pathlib import Path
from typing import NoReturn

import pytest

from checkpoint import CheckpointError, extras
from checkpoint.tool import arrow
from objectspace.operators import Pipeline, sum_, vectorised
from objectspace.relational import Chunk, Column, TableSchema

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


@pytest.fixture
def old_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    version_of = extras._version_of
    monkeypatch.setattr(extras, "_version_of", lambda name: "15.0.2" if name == "pyarrow" else version_of(name))


def test_the_oldest_versions_are_those_of_the_project() -> None:
    wanted = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    named = [re.match(r"([a-z]+)>=([\d.]+)", wish) for extra in ("arrow", "spark") for wish in wanted[extra]]
    assert {found[1]: found[2] for found in named if found} == extras.OLDEST


def test_what_is_installed_here_lacks_nothing() -> None:
    assert [extras.lack_of(library) for library in extras.OLDEST] == [None] * len(extras.OLDEST)


@pytest.mark.parametrize("found", ["18.0.0", "18.1", "100.0.0.dev3", None])
def test_a_new_enough_version_is_taken_and_so_is_one_that_says_nothing(
    monkeypatch: pytest.MonkeyPatch, found: str | None
) -> None:
    monkeypatch.setattr(extras, "_version_of", lambda name: found)
    assert extras.lack_of("pyarrow") is None


@pytest.mark.usefixtures("old_pyarrow")
def test_a_library_that_is_too_old_is_named_with_what_brings_a_newer_one() -> None:
    schema = TableSchema([Column("id", "int64")], ["id"])
    with pytest.raises(
        ImportError, match=r"pyarrow 18 or newer, but 15.0.2 is installed: pip install 'objectspace\[arrow"
    ):
        Chunk.from_rows(schema, [("+", (1,))]).to_arrow()


def test_a_pipeline_adds_row_by_row_beside_a_library_that_is_too_old_or_does_not_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = added()
    monkeypatch.setattr(vectorised, "_arrow", lambda: None)
    assert added() == expected
    monkeypatch.setattr(extras, "_version_of", lambda name: "15.0.2")
    assert added() == expected == [("item 0", 4_500), ("item 1", 4_500)]


def added() -> list[tuple[object, ...]]:
    pipeline = Pipeline()
    moves = pipeline.source("moves", {"id": "int64", "item": "string", "amount": "int64"}, key=["id"])
    moves.group_by("item").agg(stock=sum_("amount")).materialize("stock")
    with pipeline.run_local([{"moves": [(number, f"item {number % 2}", 3) for number in range(3_000)]}]) as run:
        return run.rows("stock")


def test_a_library_that_does_not_load_is_told_with_its_own_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def _import(name: str) -> NoReturn:
        raise ImportError(f"{name} requires NumPy 2.0 or newer, found 1.26.4")

    monkeypatch.setitem(sys.modules, "pyarrow", None)  # To import it fails.
    vectorised._arrow.cache_clear()
    assert added() == [("item 0", 4_500), ("item 1", 4_500)]
    monkeypatch.undo()
    vectorised._arrow.cache_clear()
    monkeypatch.setattr(importlib, "import_module", _import)
    with pytest.raises(CheckpointError, match=r"does not load here: pyarrow requires NumPy 2\.0"):
        arrow.arrow()
