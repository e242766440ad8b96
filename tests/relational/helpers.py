"""What the tests of tables share: spaces that tell of barriers, and small schemas."""

from __future__ import annotations

from typing import Any

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.relational import Column, TableSchema


def space_on(store: CheckpointStore) -> Any:
    """Return a space whose checkpoints are barriers."""
    return PersistedObjectSpace(store)


def new_space(**options: Any) -> Any:
    return space_on(CheckpointStore(":memory:", **options))


def schema_of(*columns: str, key: Any = (), **roles: Any) -> TableSchema:
    """Return a schema from columns such as ``"a int64"``; all of them take NULL."""
    pairs = [column.split(" ", 1) for column in columns]
    return TableSchema([Column(name, kind, nullable=True) for name, kind in pairs], key, **roles)
