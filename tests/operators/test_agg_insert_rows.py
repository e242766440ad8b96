"""Many rows written at once are what they are one by one."""

from __future__ import annotations

from typing import Any

import pytest

from objectspace.relational import InconsistentOperationError, RowError, StateTable
from tests.relational.helpers import new_space, schema_of

SCHEMA = schema_of("k int64", "v string", key=["k"])

ROWS: list[Any] = [(2, "b"), (1, "a"), {"k": 2, "v": "c"}]


@pytest.mark.parametrize("consistency", ["blind", "trusted"])
def test_at_once_is_one_by_one(consistency: Any) -> None:
    space = new_space()
    slow, quick = (StateTable(space, name, SCHEMA, consistency) for name in ("slow", "quick"))
    for row in ROWS:
        slow.insert_row(row)
    assert list(quick.scan()) == [], "a scan before the rows: its order takes them in too"
    quick.insert_rows(ROWS)
    quick.insert_rows([])
    assert list(quick.scan()) == list(slow.scan()) == [(1, "a"), (2, "c")]
    assert list(quick.operations()) == list(slow.operations())
    space.checkpoint(epoch=1)
    assert list(quick.scan()) == [(1, "a"), (2, "c")]


def test_what_does_not_fit_inserts_nothing() -> None:
    table = StateTable(new_space(), "t", SCHEMA)
    with pytest.raises(RowError, match="table 't': column 'k'"):
        table.insert_rows([(1, "a"), ("x", "b")])
    assert list(table.scan()) == []


def test_a_strict_table_checks_each_row_and_takes_none_if_one_is_there_already() -> None:
    table = StateTable(new_space(), "t", SCHEMA, "strict")
    with pytest.raises(InconsistentOperationError):
        table.insert_rows(ROWS)
    assert list(table.scan()) == []
    table.insert_rows(ROWS[:2])
    assert list(table.scan()) == [(1, "a"), (2, "b")]
