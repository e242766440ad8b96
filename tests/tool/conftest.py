"""Stores for the tool: one with a bug in its history, and a space of two shards."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from checkpoint.chain import Chain, location_at
from checkpoint.tool.command import cli, load
from objectspace import PersistedObjectSpace
from objectspace.relational import Column, StateTable, TableSchema
from tests.chain.chain_helpers import Publisher

ORDERS = TableSchema([Column("id", "int64"), Column("item", "string", nullable=True)], ["id desc"])

Tool = Callable[..., Result]

load()


def contents(path: Path, name: str) -> object:
    """Return what an object of a store holds, as a plain container."""
    with PersistedObjectSpace.open(path, read_only=True) as space:
        return space.get(name).copy()


def rows(tool: Tool, *arguments: object) -> list[dict[str, Any]]:
    """Return what a command prints with ``--json``."""
    found = tool(*arguments)
    assert found.exit_code in (0, 1), found.stderr
    return [json.loads(line) for line in found.output.splitlines()]


def state(tool: Tool, place: object, epoch: int | None = None) -> dict[str, int]:
    """Return the entries of ``counts`` of a space, at an epoch."""
    name = "counts" if epoch is None else f"counts@{epoch}"
    return {row["key"]: row["value"] for row in rows(tool, "show", place, name, "--format", "json", "-n", 0)}


@pytest.fixture
def tool() -> Tool:
    """Return what runs the command with some arguments."""

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="checkpoint")

    return run


@pytest.fixture(scope="session")
def store_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the store that each test gets a copy of."""
    path = tmp_path_factory.mktemp("store") / "state.db"
    with PersistedObjectSpace.open(path) as space:
        orders, counts = StateTable(space, "orders", ORDERS), space.create_dictionary("counts")
        events, lists = space.create_list("events"), space.create_dictionary("lists", of=list)
        lists["x"] = [1, 2]
        counts["alice"] = 1
        for epoch in range(1, 8):
            orders.insert_row((epoch, f"item {epoch}" if epoch % 2 else None))
            counts["bob"] = -epoch
            events.append({"n": epoch})
            if epoch == 5:
                del counts["alice"]
            space.checkpoint(epoch=epoch * 10)
    return path


@pytest.fixture
def store(store_once: Path, tmp_path: Path) -> Path:
    """Return a store of seven checkpoints, of epochs 10 to 70; the fifth loses alice."""
    return Path(shutil.copy(store_once, tmp_path / "state.db"))


@pytest.fixture(scope="session")
def location_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the space that each test gets a copy of."""
    folder = tmp_path_factory.mktemp("location")
    publish, chain = Publisher(folder / "cache"), Chain.open_or_create(location_at(folder / "space"), 2)
    publish(chain, {"a": 1}, {"b": 1})
    publish(chain, {"a": 2}, {})
    publish(chain, {}, {"b": 3, "c": 4})
    return folder / "space"


@pytest.fixture
def location(location_once: Path, tmp_path: Path) -> Path:
    """Return a space of two shards with three epochs."""
    return shutil.copytree(location_once, tmp_path / "space")
