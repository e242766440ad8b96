"""What is taken back leaves nothing behind, however long the decimals are; rows are told from changes by the schema."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectspace.operators import AggCall, Filter, Pipeline, Stream, avg, call, col, count, max_, sum_
from objectspace.relational import RowError

LONG = st.decimals(min_value=-(10**19), max_value=10**19, places=18, allow_nan=False)
CALLS = {"t": sum_("v"), "m": avg("v"), "p": AggCall("variance_pop", "v"), "s": AggCall("stddev", "v")}


def grouped(*batches: Any) -> list[Any]:
    pipeline = Pipeline()
    source = pipeline.source("s", {"id": "int64", "v": "decimal?"}, key=["id"])
    source.agg(n=count(), **CALLS).materialize("r")
    return list(pipeline.run_local([{"s": batch} for batch in batches]).rows("r"))


@given(st.lists(LONG, min_size=1, max_size=5), st.lists(LONG, min_size=1, max_size=5))
def test_aggregates_of_long_decimals_are_those_of_the_rows_that_are_left(
    kept: list[Decimal], gone: list[Decimal]
) -> None:
    rows = list(enumerate([*kept, *gone]))
    left = grouped(rows, [("-", row) for row in rows[len(kept) :]])
    assert repr(left) == repr(grouped(rows[: len(kept)]))


def test_an_aggregate_over_an_aggregate_takes_back_long_means() -> None:
    pipeline = Pipeline()
    source = pipeline.source("s", {"id": "int64", "g": "int64", "v": "decimal?"}, key=["id"])
    source.group_by("g").agg(m=avg("v")).agg(t=sum_("m")).materialize("r")
    rows = [(place, 1, Decimal(12345678901 + place)) for place in (0, 1, 3)]
    run = pipeline.run_local([{"s": rows}, {"s": [("-", row) for row in rows[:2]]}])
    assert list(run.rows("r")) == [(Decimal(12345678904),)]


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        (
            {"sign": "string", "parts": "list<int64>", "note": "string?"},
            [("+", [3], None), ("-", [4], ""), ("a", [], "")],
        ),
        ({"sign": "string", "at": "struct<x:int64,y:int64>", "is": "bool"}, [("+", {"x": 1, "y": 2}, False)]),
        ({"sign": "string", "parts": "list<string>"}, [("+", ["a", "b"]), ("U-", [])]),
    ],
)
def test_a_row_that_begins_like_a_change_is_a_row(columns: dict[str, str], rows: list[Any]) -> None:
    pipeline = Pipeline()
    pipeline.source("s", columns).materialize("r")
    found = pipeline.run_local([{"s": rows}, {"s": [("+", rows[0])]}]).rows("r")
    assert sorted(found, key=repr) == sorted([*rows, rows[0]], key=repr)


PASSED: dict[str, Callable[[Stream], Stream]] = {
    "source": lambda s: s,
    "filter": lambda s: s.filter(col("id") > 0),
    "select": lambda s: s.with_columns(more=col("id") + 1),
    "window": lambda s: s.window("id", 5),
    "sessions": lambda s: s.sessions("id", 5),
    "watermark": lambda s: s.watermark("id", 5),
    "union": lambda s: s.union(s.filter(col("id") > 1)),
    "filter by": lambda s: s.filter_by("id", "<=", s.agg(most=max_("id"))),
    "join": lambda s: s.join(s.select("id", other="d"), on="id").join(s.select(again="d", id="id"), on="id"),
    "left join": lambda s: s.join(s.select("id", other="d"), on="id", how="left"),
    "join in time": lambda s: s.join(s.select("k", at="id"), on="k", within=("id", "at", 1)),
    "semi join": lambda s: s.join(s.select("id"), on="id", how="semi"),
    "top-n": lambda s: s.top_n(5, ["d"]),
    "table": lambda s: s.materialize("kept", key=["k"], conflict="overwrite"),
    "own": lambda s: s.through(lambda schema: Filter(schema, ("id", ">", 0)), "own"),
}

ONE, AGAIN = Decimal("1.0"), Decimal("1.00")


@pytest.mark.parametrize(("kind", "one", "other"), [("decimal", ONE, AGAIN), ("list<float64>", [0.0], [-0.0])])
@pytest.mark.parametrize("ops", ["- +", "U- U+", "+ -"])
@pytest.mark.parametrize("name", PASSED)
def test_an_update_to_another_spelling_is_one(name: str, ops: str, kind: str, one: Any, other: Any) -> None:
    """Whatever order its halves come in: what shows the spelling takes back what it gave."""
    pipeline = Pipeline()
    source = pipeline.source("s", {"id": "int64", "k": "int64", "d": kind}, key=["id"])
    shown = PASSED[name](source).with_columns(text=call(str, "string", "d"))
    shown.group_by("text").agg(n=count()).materialize("r")
    rows = {"-": (1, 1, one), "+": (1, 1, other)}
    run = pipeline.run_local([{"s": [(1, 1, one)]}, {"s": [(op, rows[op[-1]]) for op in ops.split()]}])
    assert run.rows("r") == [(str(other), 1)]
    run.step({"s": [("-", (1, 1, other))]})
    assert run.rows("r") == []


@pytest.mark.parametrize("name", PASSED)
def test_a_row_that_is_kept_is_found_in_another_spelling(name: str) -> None:
    pipeline = Pipeline()
    source = pipeline.source("s", {"id": "int64", "k": "int64", "d": "decimal"}, key=["id"])
    PASSED[name](source).group_by("d").agg(n=count()).materialize("r")
    run = pipeline.run_local([{"s": [(1, 1, ONE), (2, 2, ONE)]}, {"s": [("-", (1, 1, AGAIN)), ("-", (2, 2, AGAIN))]}])
    assert run.rows("r") == []


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("Infinity", "Infinity", ("NaN", "NaN", "NaN", "Infinity", "Infinity", "-Infinity")),
        ("1E+90", "3", ("1", "3" * 90, f"{10**90 - 3}", f"{10**90 + 3}", f"{3 * 10**90}", f"-1{'0' * 90}")),
        (
            f"{10**80}.1",
            "2",
            ("0.1", f"{5 * 10**79}", f"{10**80 - 2}.1", f"{10**80 + 2}.1", f"{2 * 10**80}.2", f"-{10**80}.1"),
        ),
        ("-7", "2", ("-1", "-3", "-9", "-5", "-14", "7")),
    ],
)
def test_arithmetic_of_decimals_keeps_all_digits(left: str, right: str, expected: tuple[str, ...]) -> None:
    pipeline = Pipeline()
    source = pipeline.source("s", {"id": "int64", "a": "decimal", "b": "decimal"}, key=["id"])
    a, b = col("a"), col("b")
    made = {"remainder": a % b, "quotient": a // b, "difference": a - b, "total": a + b, "product": a * b, "less": -a}
    source.select("id", **made).materialize("r")
    (row,) = pipeline.run_local([{"s": [(1, Decimal(left), Decimal(right))]}]).rows("r")
    found = [str(value) if value.is_nan() else value for value in row[1:]]
    wanted = [value if value == "NaN" else Decimal(value) for value in expected]
    assert found == wanted


@pytest.mark.parametrize("value", [2**62, -(2**62) - 1])
def test_a_mean_whose_total_is_too_great_says_of_which_group(value: int) -> None:
    pipeline = Pipeline()
    source = pipeline.source("s", {"id": "int64", "g": "int64", "v": "int64"}, key=["id"])
    source.group_by("g").agg(m=avg("v")).materialize("r")
    with pytest.raises(RowError, match=r"group g=7: the total of 'v' is -?\d+, which no int64 holds: correct or"):
        pipeline.run_local([{"s": [(place, 7, value) for place in range(2)]}])


@pytest.mark.parametrize("beside", [count(), max_("v"), AggCall("array_agg", "v")])
def test_a_mean_takes_the_least_total_that_an_int64_holds(beside: Any) -> None:
    pipeline = Pipeline()
    source = pipeline.source("s", {"id": "int64", "g": "int64", "v": "int64"}, key=["id"])
    source.group_by("g").agg(m=avg("v"), beside=beside).materialize("r")
    ((_, mean, _),) = pipeline.run_local([{"s": [(place, 7, -(2**62)) for place in range(2)]}]).rows("r")
    assert mean == -(2.0**62)
