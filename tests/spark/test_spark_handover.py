"""What tasks hand over: changes that come from several are in one order, whatever their keys are."""

from __future__ import annotations

import pytest

from objectspace.relational import Chunk, Column, TableSchema
from objectspace.spark.handover import settled
from tests.operators.spellings import SPELLINGS


@pytest.mark.parametrize("kind", SPELLINGS)
def test_several_inserts_of_one_key_are_in_one_order(kind: str) -> None:
    schema = TableSchema([Column("k", kind), Column("v", "int64")], ["k"])
    one, other = (SPELLINGS[kind][3] * 2)[:2]
    rows = [("+", (SPELLINGS[kind][1][0], 1)), ("+", (one, 2)), ("-", (other, 2)), ("+", (other, 3)), ("+", (one, 1))]
    found = [settled(Chunk.from_rows(schema, given)) for given in (rows, rows[::-1])]
    assert [[(op, row[1]) for op, row in chunk.rows()] for chunk in found] == [[("+", 1), ("+", 1), ("+", 3)]] * 2
