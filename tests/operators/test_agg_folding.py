"""Adding up many rows at once gives what adding them one by one gives, to the bit."""

from __future__ import annotations

import random
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectspace.operators import AggCall, HashAgg, Pipeline, count, value_groups
from objectspace.operators.accumulators import Accumulator
from objectspace.operators.vectorised import FEWEST, Folder, can_fold
from objectspace.relational import DataType
from tests.operators.agg_oracle import Log, Running, permuted
from tests.operators.test_agg_oracle import SCHEMA, check, make_row, more_than_came
from tests.relational.helpers import schema_of

SUMS = {
    "count(*)": AggCall("count"),
    "count(v)": AggCall("count", "v"),
    "sum(v)": AggCall("sum", "v"),
    "avg(o)": AggCall("avg", "o"),
}

EXTREMES = {"min(v)": AggCall("min", "v"), "max(s)": AggCall("max", "s"), "max(v)": AggCall("max", "v")}


def outcome(seed: int, group: str, calls: Any, *, append_only: bool, held: int) -> tuple[Any, Any]:
    """Return the outputs and the state after some epochs; rows are added up at once where ``held`` is not 0."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(value_groups, "FEWEST", 1 if held else 10**9)
        patch.setattr(value_groups, "HELD", held or 10**9)
        randomness = random.Random(seed)
        running = Running(
            lambda: HashAgg(SCHEMA, group.split(", "), list(calls.values()), append_only=append_only, group_cache=2)
        )
        log = Log(make_row, randomness)
        outputs = []
        for _ in range(3):
            changes = permuted(log.epoch(25, append_only=append_only), random.Random(held))
            running.feed(changes, chunk_size=3)
            if not append_only:
                running.refuse(more_than_came(len(log.rows)))
            outputs.append(running.barrier())
            check(running, list(log.rows.values()), calls, group)
            if seed % 3 == 0:
                running.recover()
        return repr(outputs), running.stored()


@pytest.mark.parametrize("group", ["k", "g, b", "g"])
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**6), append_only=st.booleans())
def test_at_once_is_one_by_one(group: str, seed: int, append_only: bool) -> None:
    calls = {**SUMS, **EXTREMES} if append_only else SUMS
    slow, quick, mixed = (outcome(seed, group, calls, append_only=append_only, held=held) for held in (0, 1000, 7))
    assert slow == quick == mixed


def test_a_sum_that_may_leave_64_bits_is_added_one_by_one() -> None:
    schema = schema_of("k string", "v int64", "id int64", key=["id"])
    rows = [("a", value, number) for number, value in enumerate([2**62, 2**62, -(2**62), -(2**63)])]
    folder = Folder(
        schema, [0], [Accumulator("count", -1, DataType("int64")), Accumulator("sum", 1, DataType("int64"))]
    )
    assert folder.fold(["+"] * 4, rows) is None
    assert folder.fold(["+", "+", "-"], [("a", 5, 1), (None, None, 2), ("a", 3, 3)]) == {"a": (0, 2), None: (1, 0)}


def test_what_can_be_added_up_at_once() -> None:
    schema = schema_of("k string", "f float64", "d date", "v int64", key=["v"])
    rows = Accumulator("count", -1, DataType("int64"))
    assert can_fold(schema, [0, 2], [rows, Accumulator("max", 2, DataType("date"))])
    assert not can_fold(schema, [1], [rows]), "0.0 and -0.0 are one group"
    assert not can_fold(schema, [0], [rows, Accumulator("sum", 1, DataType("float64"))]), "floats are added exactly"
    assert not can_fold(schema, [0], [Accumulator("count", 3, DataType("int64"), filter=0)])
    folder = Folder(schema, [2], [rows])
    assert folder.fold(["+"], [("a", 1.0, date(2026, 1, 1), 1)]) == {date(2026, 1, 1): (1,)}


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1E-21", "1E+25"])
@pytest.mark.parametrize("kind", ["decimal?", "list<decimal>?"])
def test_values_that_are_only_counted_may_be_any(kind: str, value: str) -> None:
    pipeline = Pipeline()
    rows = pipeline.source("rows", {"id": "int64", "g": "int64", "v": kind}, key=["id"])
    rows.group_by("g").agg(n=count("v")).materialize("t")
    held = Decimal(value) if kind == "decimal?" else [Decimal(value)]
    given = [(number, 0, held if number % 4 else None) for number in range(FEWEST)]
    assert pipeline.run_local([{"rows": given}]).rows("t") == [(0, FEWEST * 3 // 4)]
