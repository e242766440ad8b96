"""Bounds are taken of filters only where they say what the filters say."""

from __future__ import annotations

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


@pytest.mark.parametrize(("kind", "is_bound"), [(DoubleType(), True), (FloatType(), False)], ids=str)
def test_a_column_that_is_read_as_another_type_sets_no_bound(kind: DoubleType | FloatType, is_bound: bool) -> None:
    schema = TableSchema([Column("f", "float64"), Column("id", "int64")], ["f", "id"])
    read_as = StructType([StructField("f", kind), StructField("id", LongType())])
    assert bool(bounds_of(schema, [EqualTo(("f",), 0.5)], read_as)) is is_bound
