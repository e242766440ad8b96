"""Values that are equal in SQL and not in Python, such as NaN: rows of them come and go, keys of them are one key."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from objectspace import VolatileObjectSpace
from objectspace.operators import DynamicFilter, HashJoin, Operator, SessionWindow, TopN
from objectspace.relational import Chunk, Column, TableSchema

SPELLINGS: dict[str, Callable[[], list[Any]]] = {
    "float64": lambda: [float("nan"), float("nan")],
    "float32": lambda: [0.1, 0.10000000149011612],
    "decimal": lambda: [Decimal("NaN"), Decimal("NaN")],
    "list<float64>": lambda: [[float("nan"), 0.0], [float("nan"), -0.0]],
    "list<int64>": lambda: [[1, 2], [1, 2]],
    "struct<a: float64, b: int64>": lambda: [{"a": float("nan"), "b": 1}, {"a": float("nan"), "b": 1}],
}
"""For each type two spellings of one value."""


def schema_of(kind: str) -> TableSchema:
    return TableSchema([Column("v", kind), Column("at", "int64"), Column("id", "int64")], ["id"])


def opened(operator: Operator) -> Operator:
    operator.open(VolatileObjectSpace(), "it")
    return operator


def changes(operator: Operator, schema: TableSchema, rows: list[Any], side: str | None = None) -> list[Any]:
    """Return what comes out: the operation and the number of each row."""
    out = operator.process(Chunk.from_rows(schema, rows), operator.sides[0] if side is None else side)
    return [(op, row[2]) for chunk in out for op, row in chunk.rows()]


KEPT: dict[str, Callable[[TableSchema], Operator]] = {
    "top-n": lambda schema: TopN(schema, ["id"], 5),
    "top-n of rows that only come": lambda schema: TopN(schema, ["id"], 5, append_only=True),
    "sessions": lambda schema: SessionWindow(schema, "at", 5),
    "filter": lambda schema: DynamicFilter(schema, TableSchema([Column("least", "int64")]), "at", ">"),
    "join": lambda schema: HashJoin(schema, schema, ["at"], ["at"]),
    "left join": lambda schema: HashJoin(schema, schema, ["at"], ["at"], "left_outer"),
}


@pytest.mark.parametrize("kind", SPELLINGS)
@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("ops", ["+-", "-+"])
def test_a_row_that_comes_and_goes_in_one_chunk_is_in_no_state(kind: str, name: str, ops: str) -> None:
    operator, schema = opened(KEPT[name](schema_of(kind))), schema_of(kind)
    one, other = SPELLINGS[kind]()
    found = changes(operator, schema, [(ops[0], (one, 1, 1)), (ops[1], (other, 1, 1)), ("+", (one, 1, 2))])
    assert {number for _, number in found} <= {1, 2}
    tables = [table for table in operator._tables.values() if "id" in table.schema.names]
    assert [row for table in tables for row in table.scan() if row[table.schema.place_of("id")] == 1] == []


@pytest.mark.parametrize("kind", SPELLINGS)
def test_a_row_of_a_session_can_go(kind: str) -> None:
    sessions, schema = opened(SessionWindow(schema_of(kind), "at", 5)), schema_of(kind)
    one, other = SPELLINGS[kind]()
    assert changes(sessions, schema, [("+", (one, 1, 1)), ("+", (one, 4, 2))]) == [("+", 1), ("+", 2)]
    assert changes(sessions, schema, [("-", (other, 1, 1))]) == [("-", 1), ("U-", 2), ("U+", 2)]


@pytest.mark.parametrize("kind", SPELLINGS)
def test_the_value_of_a_filter_can_go(kind: str) -> None:
    schema, value = schema_of(kind), TableSchema([Column("least", kind, nullable=True)])
    above = opened(DynamicFilter(schema, value, "v", ">="))
    one, other = SPELLINGS[kind]()
    changes(above, schema, [("+", (one, 1, 1))], "left")
    changes(above, value, [("+", (one,))], "right")
    assert [op for chunk in above.barrier(1) for op in chunk.ops] == ["+"]
    changes(above, value, [("-", (other,))], "right")
    assert [op for chunk in above.barrier(2) for op in chunk.ops] == ["-"]
