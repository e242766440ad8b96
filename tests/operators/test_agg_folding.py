"""Adding up many rows at once gives what adding them one by one gives, to the bit."""

from __future__ import annotations

import random
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectspace.operators import AggCall, HashAgg, Pipeline, count, value_groups, vectorised
from objectspace.operators.accumulators import Accumulator
from objectspace.operators.aggregation import Aggregation
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

ORDER = "ORDER BY o DESC NULLS LAST, id"

FIRST_ROWS = {
    **EXTREMES,
    "min(v) FILTER (v > 2)": AggCall("min", "v", filter=("v", ">", 2)),
    f"first(v {ORDER})": AggCall("first_value", "v", order_by=["o desc"]),
    f"last(v {ORDER})": AggCall("last_value", "v", order_by=["o desc"]),
}

BY_GROUP, BY_COLUMN, AT_ONCE, MIXED = (0, 10**9), (10**9, 10**9), (1, 10**9), (5, 7)
"""The fewest rows that are added up at once, and how many wait for it; 0 where each group is settled by itself."""


def outcome(seed: int, group: str, calls: Any, *, append_only: bool, way: tuple[int, int]) -> tuple[Any, Any]:
    """Return the outputs and the state after some epochs."""
    fewest, held = way
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(value_groups, "FEWEST", fewest)
        patch.setattr(value_groups, "HELD", held)
        if way == BY_GROUP:
            patch.setattr(value_groups, "can_fold", lambda *given: False)
            patch.setattr(value_groups.ValueGroups, "_flush", Aggregation._flush)
        randomness = random.Random(seed)
        given = {"append_only": append_only, "cache_groups": seed % 3, "cache_rows": 1 + seed % 2}
        running = Running(lambda: HashAgg(SCHEMA, group.split(", "), list(calls.values()), **given))
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
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10**6), append_only=st.booleans())
def test_at_once_is_one_by_one(group: str, seed: int, append_only: bool) -> None:
    calls = {**SUMS, **(EXTREMES if append_only else FIRST_ROWS)}
    expected, *found = (
        outcome(seed, group, calls, append_only=append_only, way=way) for way in (BY_GROUP, BY_COLUMN, AT_ONCE, MIXED)
    )
    assert found == [expected] * 3


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


@pytest.mark.parametrize("library", ["pyarrow", "numpy"])
def test_rows_are_added_one_by_one_without_a_library(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectorised, "lack_of", {library: "it"}.get)
    assert not can_fold(schema_of("k string", key=["k"]), [0], [Accumulator("count", -1, DataType("int64"))])


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1E-21", "1E+25"])
@pytest.mark.parametrize("kind", ["decimal?", "list<decimal>?"])
def test_values_that_are_only_counted_may_be_any(kind: str, value: str) -> None:
    pipeline = Pipeline()
    rows = pipeline.source("rows", {"id": "int64", "g": "int64", "v": kind}, key=["id"])
    rows.group_by("g").agg(n=count("v")).materialize("t")
    held = Decimal(value) if kind == "decimal?" else [Decimal(value)]
    given = [(number, 0, held if number % 4 else None) for number in range(FEWEST)]
    assert pipeline.run_local([{"rows": given}]).rows("t") == [(0, FEWEST * 3 // 4)]
