"""A store, and a table of four partitions in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from objectspace import PersistedObjectSpace
from objectspace.kvt import KeyValueTable, KeyValueTableConfiguration, KeyValueTableManager


@pytest.fixture
def space(tmp_path: Path) -> Iterator[PersistedObjectSpace]:
    with PersistedObjectSpace.open(tmp_path / "state.db") as opened:
        yield opened


@pytest.fixture
def manager(space: PersistedObjectSpace) -> KeyValueTableManager:
    manager = KeyValueTableManager(space)
    manager.create_scope("s")
    manager.create_key_value_table("s", "t", KeyValueTableConfiguration(4))
    return manager


@pytest.fixture
def table(manager: KeyValueTableManager) -> KeyValueTable[Any, Any]:
    return manager.open_key_value_table("s", "t")
