"""Keys: sorting their bytes is sorting the values, for every type and order, one by one and in batches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cmp_to_key
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectspace.relational import Column, DataType, RowError, SchemaError, TableSchema, next_key
from objectspace.relational.arrow import arrow_type
from objectspace.relational.keys import Order, column_encoder, key_range
from objectspace.relational.keys_arrow import encode_keys
from objectspace.relational.values import checker
from tests.relational.samples import ORDERS, VALUES, rank, type_of

Values = list[Any]


def key_of(value: Any, kind: str, order: str) -> bytes:
    checked = None if value is None else checker(type_of(kind))(value)
    return column_encoder(type_of(kind), Order.parse(order))(checked)


def compare(one: Any, other: Any, kind: str, order: str) -> int:
    """Compare as SQL's ORDER BY does: nulls where the order puts them, values in its direction."""
    parsed = Order.parse(order)
    if one is None or other is None:
        return ((one is None) - (other is None)) * (-1 if parsed.nulls_first else 1)
    first, second = rank(one, type_of(kind)), rank(other, type_of(kind))
    return ((first > second) - (first < second)) * (-1 if parsed.descending else 1)


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data(), order=st.sampled_from(ORDERS))
def test_keys_sort_as_values_do(kind: str, data: st.DataObject, order: str) -> None:
    values = data.draw(st.lists(st.none() | VALUES[kind], min_size=2, max_size=6))
    by_value = sorted(values, key=cmp_to_key(lambda one, other: compare(one, other, kind, order)))
    keys = [key_of(value, kind, order) for value in by_value]
    assert keys == sorted(keys)
    for (one, first), (other, second) in zip(zip(by_value, keys), list(zip(by_value, keys))[1:]):
        assert (first == second) == (compare(one, other, kind, order) == 0), (one, other)


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_no_key_is_the_beginning_of_another(kind: str, data: st.DataObject) -> None:
    order = data.draw(st.sampled_from(ORDERS))
    one, other = (key_of(data.draw(st.none() | VALUES[kind]), kind, order) for _ in range(2))
    assert one == other or not (one.startswith(other) or other.startswith(one))


@given(prefix=VALUES["string"], rows=st.lists(st.tuples(VALUES["string"], VALUES["int32"]), max_size=6))
def test_a_prefix_finds_exactly_its_rows(prefix: str, rows: list[tuple[str, int]]) -> None:
    schema = TableSchema([Column("a", "string"), Column("b", "int32")], primary_key=["a desc", "b"])
    start, end = key_range(schema.key_encoder.encode, (prefix,), None, None, (True, True))
    for row in rows:
        key = schema.key_encoder.encode(row)
        assert (start <= key and (not end or key < end)) == (row[0] == prefix)


@given(st.binary(max_size=6), st.binary(max_size=3))
def test_the_next_key_is_greater_than_all_that_begin_so(key: bytes, rest: bytes) -> None:
    following = next_key(key)
    assert following > key + rest if following else set(key) <= {255}


BATCHED = [kind for kind in VALUES if "struct" not in kind]


@pytest.mark.parametrize("kind", BATCHED)
@settings(max_examples=12)
@given(data=st.data())
def test_a_batch_has_the_keys_of_its_rows(kind: str, data: st.DataObject) -> None:
    order = data.draw(st.sampled_from(ORDERS))
    values = data.draw(st.lists(st.none() | VALUES[kind].filter(fits_arrow), max_size=5))
    schema = TableSchema([Column("n", "int16"), Column("v", kind, nullable=True)], ["n", ("v", order)])
    checked = [schema.check_row((place, value)) for place, value in enumerate(values)]
    arrays = [pa.array(range(len(values)), pa.int16()), pa.array([v for _, v in checked], arrow_type(type_of(kind)))]
    batch = pa.record_batch(arrays, names=["n", "v"])
    assert encode_keys(schema, batch) == [schema.key_encoder.encode(schema.key_of(row)) for row in checked]


def fits_arrow(value: Any) -> bool:
    from decimal import Decimal

    return not isinstance(value, Decimal) or (
        value.is_finite() and abs(value) < 10**19 and int(value.as_tuple().exponent) > -18
    )


def test_sliced_batches_have_the_keys_of_their_rows() -> None:
    schema = TableSchema([Column("a", "timestamptz", nullable=True), Column("b", "bool")], ["a", "b desc"])
    moments = [None if n % 3 else datetime(2020, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(9)]
    batch = pa.record_batch({"a": pa.array(moments, pa.timestamp("ms", "UTC")), "b": [n % 2 == 0 for n in range(9)]})
    assert encode_keys(schema, batch.slice(2, 5)) == encode_keys(schema, batch)[2:7]
    assert encode_keys(schema, pa.Table.from_batches([batch, batch.slice(0, 2)]))[9:] == encode_keys(schema, batch)[:2]


def test_a_batch_without_a_key_column_is_refused() -> None:
    schema = TableSchema([Column("a", "int64")], ["a"])
    with pytest.raises(SchemaError, match="key column 'a' is missing"):
        encode_keys(schema, pa.record_batch({"b": [1]}))
    with pytest.raises(RowError, match="key column 'a'"):
        encode_keys(schema, pa.record_batch({"a": ["x"]}))


def test_nulls_are_the_smallest_however_an_order_is_given() -> None:
    assert Order(descending=True) == Order.parse("desc") == Order.parse("desc nulls last")
    assert (Order(), Order(True, True)) == (Order.parse("asc"), Order.parse("desc nulls first"))
    schemas = [TableSchema([Column("v", "int64", nullable=True)], [("v", order)]) for order in ("desc", Order(True))]
    assert schemas[0] == schemas[1]


def test_a_type_that_there_is_not_is_refused_when_it_is_made() -> None:
    for made in (lambda: DataType("varchar"), lambda: DataType("list"), lambda: DataType("decimal", 10)):
        with pytest.raises(SchemaError, match="there is no such type"):
            made()


def test_a_key_of_nothing_is_one_key() -> None:
    schema = TableSchema([Column("a", "int64")])
    assert schema.key_encoder.encode(()) == b""
    assert encode_keys(schema, pa.record_batch({"a": [1, 2]})) == [b"", b""]
