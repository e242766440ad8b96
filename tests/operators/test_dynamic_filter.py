"""Filters by a value: what its changes dirty, NaN and NULL, and what is refused; the oracle is that of the trees."""

from __future__ import annotations

import math
from typing import Any

import pytest

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.operators import DynamicFilter, Pipeline, max_
from objectspace.relational import Chunk, Column, SchemaError, TableSchema
from objectspace.testing import crash_everywhere

ROWS = TableSchema([Column("id", "int64"), Column("v", "float64", nullable=True)], ["id"])
VALUE = TableSchema([Column("limit", "float64", nullable=True)])


class Filter:
    """A filter on a store, an epoch for each step."""

    def __init__(self, comparison: str) -> None:
        self.space = PersistedObjectSpace(CheckpointStore(":memory:"))
        self.operator = DynamicFilter(ROWS, VALUE, "v", comparison)
        self.operator.open(self.space, "filter")
        self.epoch = 0

    def step(self, rows: list[Any], value: Any) -> tuple[list[tuple[str, int]], int]:
        """Return the numbers of the rows that come or go, and how many slots the epoch dirties."""
        self.epoch += 1
        out = self.operator.process(Chunk.from_rows(ROWS, rows), side="left")
        out += self.operator.process(Chunk.from_rows(VALUE, [("+", (value,))]), side="right")
        out += self.operator.barrier(self.epoch)
        found = [(op, row[0]) for chunk in out for op, row in chunk.rows()]
        return found, self.space.checkpoint(epoch=self.epoch).slots


def test_a_change_of_the_value_dirties_its_slot_alone() -> None:
    above = Filter(">=")
    assert above.step([("+", (n, float(n))) for n in range(100)], 50.0)[0] == [("+", n) for n in range(50, 100)]
    assert above.step([("-", (99, 99.0))], 50.0) == ([("-", 99)], 1)
    assert above.step([], 47.0) == ([("+", 47), ("+", 48), ("+", 49)], 1)
    assert above.step([], 47.0) == ([], 0)
    assert above.step([], None) == ([("-", n) for n in range(47, 99)], 1)


def test_nan_is_the_greatest_number_and_null_passes_nothing() -> None:
    below = Filter("<")
    assert below.step([("+", (1, math.nan)), ("+", (2, None)), ("+", (3, math.inf))], math.nan)[0] == [("+", 3)]
    assert below.step([], math.nan) == ([], 0)
    assert below.step([], math.inf)[0] == [("-", 3)]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(SchemaError, match="there is no comparison '='"):
        DynamicFilter(ROWS, VALUE, "v", "=")
    with pytest.raises(SchemaError, match="column 'id' is int64 and 'limit' is float64: cast one"):
        DynamicFilter(ROWS, VALUE, "id", ">")
    pipeline = Pipeline()
    rows = pipeline.source("rows", ROWS)
    with pytest.raises(SchemaError, match="compares with a stream of one row and one column"):
        rows.filter_by("v", ">", rows)


def test_every_crash_point() -> None:
    pipeline = Pipeline()
    rows = pipeline.source("rows", ROWS)
    rows.filter_by("v", ">=", rows.agg(most=max_("v"))).materialize("greatest")
    batches = [{"rows": [(1, 5.0), (2, 7.0)]}, {"rows": [("-", (2, 7.0))]}, {"rows": [(3, 5.0), (4, None)]}]
    assert crash_everywhere(pipeline, batches, storage=False) == 3 * 9
    assert pipeline.run_local(batches).rows("greatest") == [(1, 5.0), (3, 5.0)]
