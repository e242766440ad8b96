"""The running aggregate: the same state whatever the order and the batches, and nulls as in SQL."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.spark import Measure, RunningAggregate

MEASURES = (
    Measure("rows", "rows"),
    Measure("nulls", "nulls", "value"),
    Measure("count", "count", "value"),
    Measure("sum", "sum", "value"),
    Measure("min", "min", "value"),
    Measure("max", "max", "value"),
)
ONE = RunningAggregate("one", ("key",), MEASURES)
TWO = RunningAggregate("two", ("key", "part"), MEASURES)
SCHEMA = pa.schema([("key", pa.string()), ("part", pa.int64()), ("value", pa.int64())])

Row = dict[str, Any]


def _state(
    aggregate: RunningAggregate, epochs: list[list[list[Row]]], schema: pa.Schema = SCHEMA
) -> list[tuple[Any, Any]]:
    with CheckpointStore(":memory:") as store:
        space = PersistedObjectSpace(store)
        for batches in epochs:
            aggregate((pa.RecordBatch.from_pylist(rows, schema) for rows in batches), space)
            space.checkpoint()
        return list(space.get_or_create_dictionary(aggregate.dictionary).items())


def _rows(count: int) -> list[Row]:
    dice = random.Random(5)
    values = [None, -7, 0, 3, 10**12]
    return [
        {"key": dice.choice([None, "a", "b"]), "part": dice.randrange(2), "value": dice.choice(values)}
        for _ in range(count)
    ]


@pytest.mark.parametrize("aggregate", [ONE, TWO])
def test_order_and_batches_do_not_matter(aggregate: RunningAggregate) -> None:
    rows = _rows(50)
    shuffled = random.Random(6).sample(rows, len(rows))
    cut = [shuffled[:1], [], shuffled[1:30], shuffled[30:]]
    assert _state(aggregate, [[rows]]) == _state(aggregate, [cut])


@pytest.mark.parametrize("aggregate", [ONE, TWO])
def test_epochs_add_up(aggregate: RunningAggregate) -> None:
    rows = _rows(50)
    assert sorted(_state(aggregate, [[rows]]), key=repr) == sorted(
        _state(aggregate, [[rows[:20]], [], [rows[20:21], rows[21:]]]), key=repr
    )


def test_figures_are_those_of_sql() -> None:
    values = [4, None, -1, None]
    rows = [{"key": "a", "part": 0, "value": value} for value in values] + [{"key": None, "part": 0, "value": None}]
    assert dict(_state(ONE, [[rows[:2]], [rows[2:]]])) == {
        "a": {"rows": 4, "nulls": 2, "count": 2, "sum": 3, "min": -1, "max": 4},
        None: {"rows": 1, "nulls": 1, "count": 0, "sum": None, "min": None, "max": None},
    }


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()])
def test_sums_are_exact_however_the_rows_are_cut(kind: pa.DataType) -> None:
    values = [2**63 - 1, 2**63 - 1, 5, None, 2**62]
    rows = [{"key": key, "value": value} for value in values for key in "ab"] + [{"key": "c", "value": None}]
    schema = pa.schema({"key": pa.string(), "value": kind})
    for epochs in ([[rows]], [[rows[:3], rows[3:6], rows[6:]]], [[rows[:2]], [rows[2:]]], [[rows[:5]], [rows[5:]]]):
        state = dict(_state(ONE, epochs, schema))
        assert {key: figures["sum"] for key, figures in state.items()} == {
            "a": 2**64 + 2**62 + 3,
            "b": 2**64 + 2**62 + 3,
            "c": None,
        }
        assert type(state["a"]["sum"]) is int


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_nan_is_the_greatest_float_and_zero_is_one_whatever_the_order(kind: pa.DataType) -> None:
    values = {"a": [1.5, math.nan, None], "b": [math.nan], "c": [-0.0, 0.0], "d": [-1.0, -math.inf], "e": [None]}
    wanted = {"a": (1.5, math.nan), "b": (math.nan,) * 2, "c": (0.0,) * 2, "d": (-math.inf, -1.0), "e": (None,) * 2}
    rows = [{"key": key, "value": value} for key, some in values.items() for value in some]
    schema = pa.schema({"key": pa.string(), "value": kind})
    aggregate = RunningAggregate("floats", ("key",), (Measure("min", "min", "value"), Measure("max", "max", "value")))
    for turned in (rows, rows[::-1]):
        for epochs in ([[turned]], [[[row] for row in turned]], [[[row]] for row in turned]):
            state = _state(aggregate, epochs, schema)
            assert repr(sorted((key, (one["min"], one["max"])) for key, one in state)) == repr(sorted(wanted.items()))


def test_the_hour_that_comes_twice_is_two_hours() -> None:
    schema = pa.schema([("key", pa.string()), ("at", pa.timestamp("us", "Europe/Berlin"))])
    first = datetime(2024, 10, 27, 0, 30, tzinfo=UTC)
    times = [first + timedelta(minutes=minutes) for minutes in (20, 60, 0, 80)]
    epochs: list[list[list[Row]]] = [[[{"key": "a", "at": at}]] for at in times]
    spans = RunningAggregate("spans", ("key",), (Measure("from", "min", "at"), Measure("to", "max", "at")))
    assert _state(spans, epochs, schema) == [("a", {"from": min(times), "to": max(times)})]
    counts = RunningAggregate("counts", ("at",), (Measure("rows", "rows"),))
    together = [[[row for ((row,),) in epochs]]]
    assert [(at.timestamp(), one["rows"]) for at, one in _state(counts, together, schema)] == [
        (at.timestamp(), 1) for at in sorted(times)
    ]


KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.null(), []),
    (pa.bool_(), [False, True]),
    (pa.int8(), [-1, 0]),
    (pa.uint64(), [0, 2**64 - 1]),
    (pa.large_string(), ["", "a"]),
    (pa.binary(), [b"", b"a"]),
    (pa.binary(2), [b"ab", b"ac"]),
    (pa.decimal128(9, 2), [Decimal("-0.00"), Decimal("1.00")]),
    (pa.decimal256(50, 2), [Decimal("-0.00"), Decimal("1.00")]),
    (pa.date32(), [date(2026, 1, 1), date(2026, 1, 2)]),
    (pa.time64("us"), [time(0, 0, 0, 1), time(1)]),
    (pa.timestamp("us"), [datetime(2026, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1)]),
    (pa.timestamp("ms", "UTC"), [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)]),
    (pa.duration("us"), [timedelta(0), timedelta(microseconds=1)]),
]


@pytest.mark.parametrize(("kind", "values"), KEYS, ids=lambda one: str(one) if isinstance(one, pa.DataType) else "")
def test_no_row_of_a_key_is_lost(kind: pa.DataType, values: list[Any]) -> None:
    schema = pa.schema([("key", kind), ("part", pa.int64())])
    rows = [{"key": key, "part": 0} for key in [*values, None] * 2]
    counts = (Measure("rows", "rows"),)
    for aggregate in (RunningAggregate("one", ("key",), counts), RunningAggregate("two", ("part", "key"), counts)):
        found = _state(aggregate, [[rows], [rows[:1], rows[1:]]], schema)
        assert [figures["rows"] for _, figures in found] == [4] * (len(values) + 1)
        assert [key if aggregate.key == ("key",) else key[1] for key, _ in found] == [*values, None]


@pytest.mark.parametrize(
    "kind",
    [
        pa.float32(),
        pa.float64(),
        pa.date64(),
        pa.timestamp("ns"),
        pa.time64("ns"),
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.int64()),
        pa.struct({"a": pa.int64()}),
    ],
    ids=str,
)
def test_a_key_that_python_and_arrow_may_take_for_different_ones_is_refused(kind: pa.DataType) -> None:
    aggregate = RunningAggregate("counts", ("k", "d"), (Measure("rows", "rows"),))
    schema = pa.schema([("k", pa.string()), ("d", kind)])
    with pytest.raises(ObjectSpaceError, match=r"aggregate counts: .* in key column d, found .*: cast it") as refused:
        _state(aggregate, [[[{"k": "a", "d": None}]]], schema)
    assert f"found {kind}:" in str(refused.value)


def test_the_columns_that_are_used() -> None:
    assert ONE.columns == ["key", "value"]
    assert TWO.columns == ["key", "part", "value"]


def test_what_cannot_be_computed_is_refused() -> None:
    with pytest.raises(ObjectSpaceError, match=r"measure m: expected a function of rows, .*, found median"):
        Measure("m", "median", "value")
    with pytest.raises(ObjectSpaceError, match="aggregate a: expected key columns and measures"):
        RunningAggregate("a", ("k",), ())
    lacking = RunningAggregate("a", ("k",), (Measure("s", "sum", "zz"),))
    with (
        CheckpointStore(":memory:") as store,
        pytest.raises(ObjectSpaceError, match="aggregate a: the rows have no column 'zz': they have k, v"),
    ):
        lacking(iter([pa.record_batch({"k": ["a"], "v": [1]})]), PersistedObjectSpace(store))
    with pytest.raises(ObjectSpaceError, match="measure m: expected a column"):
        Measure("m", "sum")
    far = pa.record_batch({"k": ["a"], "v": pa.array([2_932_897], pa.date32())})
    for key, figure in (("k", "v"), ("v", "k")):
        dates = RunningAggregate("d", (key,), (Measure("m", "max", figure),))
        with (
            CheckpointStore(":memory:") as store,
            pytest.raises(ObjectSpaceError, match="column 'v': 10000-01-01 is out"),
        ):
            dates(iter([far]), PersistedObjectSpace(store))
    batch = pa.RecordBatch.from_pydict({"key": ["a"], "value": [1.5]})
    with CheckpointStore(":memory:") as store, pytest.raises(ObjectSpaceError, match="sum: expected whole numbers"):
        ONE(iter([batch]), PersistedObjectSpace(store))
