"""Bounds are taken of filters only where they say what the filters say."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan
from pyspark.sql.types import DoubleType, FloatType, LongType, StructField, StructType

from objectspace.relational import Column, TableSchema
from objectspace.spark.pushdown import Bounds, bounds_of

SCHEMA = TableSchema([Column("k", "decimal(38,18)"), Column("f", "float64"), Column("s.a", "int64")], ["k", "f", "s.a"])
LONG = Decimal("12345678901.123456789012345679")
SHORT = Decimal("1.500000000000000000")


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(("k",), SHORT)], Bounds((SHORT,))),
        # PySpark rounds what has more digits than Python's decimals have by default.
        ([EqualTo(("k",), +LONG)], Bounds()),
        ([EqualTo(("k",), SHORT), EqualTo(("f",), 0.5), EqualTo(("s", "a"), 1)], Bounds((SHORT, 0.5))),
        ([EqualTo(("k",), SHORT), GreaterThan(("f",), 0.5)], Bounds((SHORT,), (0.5,), None, (False, True))),
    ],
    ids=str,
)
def test_bounds(filters: list[Filter], expected: Bounds) -> None:
    assert bounds_of(SCHEMA, filters) == expected


@pytest.mark.parametrize(
    ("value", "is_bound"),
    [
        (date(1582, 10, 15), False),  # As Spark hands over each of the ten days before, which Java's calendar lacks.
        (datetime(1582, 10, 15, 12, tzinfo=UTC), False),
        (datetime(1883, 11, 18, 17, tzinfo=UTC), False),  # As minutes before it, where New York left its local time.
        (date(2011, 12, 31), False),  # As the day before, where Samoa skipped it.
        (date(1900, 1, 1), True),
        (datetime(2011, 12, 31, tzinfo=UTC), True),
    ],
    ids=str,
)
def test_a_time_that_stands_for_others_sets_no_bound(value: date, is_bound: bool) -> None:
    schema = TableSchema([Column("t", "timestamptz" if isinstance(value, datetime) else "date")], ["t"])
    assert bool(bounds_of(schema, [EqualTo(("t",), value)])) is is_bound
    assert bool(bounds_of(schema, [GreaterThan(("t",), value)])) is is_bound


@pytest.mark.parametrize(("kind", "is_bound"), [(DoubleType(), True), (FloatType(), False)], ids=str)
def test_a_column_that_is_read_as_another_type_sets_no_bound(kind: DoubleType | FloatType, is_bound: bool) -> None:
    schema = TableSchema([Column("f", "float64"), Column("id", "int64")], ["f", "id"])
    read_as = StructType([StructField("f", kind), StructField("id", LongType())])
    assert bool(bounds_of(schema, [EqualTo(("f",), 0.5)], read_as)) is is_bound
