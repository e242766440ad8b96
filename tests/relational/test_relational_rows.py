"""Rows: exact round trips for every type, bad values refused by column, and schemas that change under stored rows."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectspace import VolatileObjectSpace
from objectspace.relational import (
    Chunk,
    Column,
    RowError,
    SchemaError,
    SchemaMismatchError,
    StateTable,
    TableSchema,
    tables,
)
from objectspace.relational.rows import RowCodec
from tests.relational.samples import EXAMPLES, VALUES


def same(one: Any, other: Any) -> bool:
    """Compare exactly: with types, signs of zeros, digits of decimals, and NaN equal to itself."""
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or repr(one) == repr(other)
    return type(one) is type(other) and (str(one) == str(other) if isinstance(one, Decimal) else one == other)


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_a_row_comes_back_as_it_was(kind: str, data: st.DataObject) -> None:
    schema = TableSchema([Column("k", "int64"), Column("v", kind, nullable=True)], ["k"])
    row = schema.check_row((1, data.draw(st.none() | VALUES[kind])))
    codec = RowCodec(schema)
    text = codec.encode(row)
    assert same(list(codec.decode(text)), list(row))
    assert same(list(codec.decode_all([text, text])[1]), list(row))
    assert same(list(schema.check_row(row)), list(row))
    assert codec.same(text, text)


def test_a_column_with_a_list_for_its_default_can_be_hashed() -> None:
    one, other = (Column("tags", "list<string>", default=["a"]) for _ in range(2))
    assert len({one, other, Column("tags", "list<string>", default=["b"])}) == 2


def test_a_stored_row_is_readable() -> None:
    schema = TableSchema([Column(f"c{place}", kind) for place, kind in enumerate(EXAMPLES)])
    assert RowCodec(schema).encode(schema.check_row(tuple(EXAMPLES.values()))) == (
        '[0,true,-3,2147483647,-9223372036854775808,1.5,-0.0,"1.50","a\\u0000é","AP8=","2013-01-31",'
        '"23:59:00.000001",'
        '"1969-12-31T23:59:59.999999","2013-01-31T23:59:00Z",[1,null],[1,null]]'
    )


BAD = [
    ("int16", 2**15, "out of range"),
    ("int32", True, "expected int32, found bool True"),
    ("int64", 2**63, "out of range"),
    ("int64", "7", "expected int64, found str '7'"),
    ("int64", 1.0, "expected int64, found float 1.0"),
    ("bool", 1, "expected bool"),
    ("float64", "nan", "expected float64"),
    ("float64", 2**53 + 1, "no 64-bit float"),
    ("float32", 1e300, "out of range"),
    ("decimal", 1.5, "pass Decimal"),
    ("decimal", Decimal("1e7000"), "exponent"),
    ("decimal(4,2)", Decimal("100"), "does not fit"),
    ("decimal(4,2)", Decimal("1.001"), "does not fit"),
    ("decimal(4,2)", Decimal("NaN"), "no place"),
    ("string", b"a", "expected string"),
    ("string", "\ud800", "lone surrogate"),
    ("binary", "a", "expected binary"),
    ("date", datetime(2020, 1, 1), "expected date"),
    ("time", time(1, tzinfo=UTC), "time zone"),
    ("timestamp", datetime(2020, 1, 1, tzinfo=UTC), "time zone"),
    ("timestamp", date(2020, 1, 1), "expected timestamp"),
    ("timestamptz", datetime(2020, 1, 1), "no time zone"),
    ("list<int64>", [1, "a"], "element 1: expected int64"),
    ("list<int64>", "ab", "expected list<int64>"),
    ("struct<a:int64>", {"b": 1}, "expected the fields"),
    ("struct<a:int64>", {"a": "x"}, "field 'a'"),
    (
        "int64",
        None,
        "takes no NULL: pass a value, or declare the column with nullable=True (for a pipeline as 'int64?')",
    ),
]


@pytest.mark.parametrize(("kind", "value", "message"), BAD)
def test_a_bad_value_is_refused_by_column(kind: str, value: Any, message: str) -> None:
    schema = TableSchema([Column("k", "int64"), Column("v", kind)], ["k"])
    with pytest.raises(RowError, match="column 'v'") as caught:
        schema.check_row((1, value))
    assert message in str(caught.value)


def test_numpy_scalars_and_named_rows_are_taken() -> None:
    schema = TableSchema([Column("k", "int64"), Column("v", "float64"), Column("w", "bool", nullable=True)], ["k"])
    assert schema.check_row((np.int32(1), np.float64(2), np.bool_(True))) == (1, 2.0, True)
    assert schema.check_row({"v": 2, "k": 1}) == (1, 2.0, None)
    with pytest.raises(RowError, match="no column 'x'"):
        schema.check_row({"x": 1})
    with pytest.raises(RowError, match="3 values"):
        schema.check_row((1, 2.0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([Column("a", "int64"), Column("a", "int64")],), "twice"),
        (([Column("a", "int64")], ["b"]), "no column 'b'"),
        (([Column("a", "int64")], ["a upwards"]), "order"),
        (([Column("a", "int64", id=1), Column("b", "int64", id=1)],), "same id"),
    ],
)
def test_a_schema_without_meaning_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        TableSchema(*arguments)


@pytest.mark.parametrize(
    "kind", ["int99", "list<", "list<int64", "struct<a:int64,a:int64>", "decimal(40)", "int64>", 7]
)
def test_a_type_without_meaning_is_refused(kind: Any) -> None:
    with pytest.raises(SchemaError, match="type"):
        Column("a", kind)


# Schemas that change --------------------------------------------------------------------------------------------------


def base() -> tuple[VolatileObjectSpace, TableSchema]:
    space = VolatileObjectSpace()
    schema = TableSchema([Column("k", "int64"), Column("v", "int16"), Column("w", "string", nullable=True)], ["k"])
    table = StateTable(space, "t", schema)
    table.write_chunk([("+", (1, 10, "a")), ("+", (2, 20, None))])
    table.commit(1)
    return space, table.schema


def columns_of(*pairs: tuple[str, str]) -> TableSchema:
    return TableSchema([Column(name, kind) for name, kind in pairs], ["k"])


def rows_with(space: VolatileObjectSpace, schema: TableSchema) -> list[Any]:
    return list(StateTable(space, "t", schema, evolve=True).scan())


def test_a_column_can_be_added_dropped_renamed_and_widened() -> None:
    space, schema = base()
    schema = schema.with_column(Column("x", "date", default=date(2020, 1, 1))).widened("v", "int64").renamed("w", "u")
    assert rows_with(space, schema) == [(1, 10, "a", date(2020, 1, 1)), (2, 20, None, date(2020, 1, 1))]
    schema = schema.without_column("u")
    table = StateTable(space, "t", schema, evolve=True)
    table.update_row((1, 10, date(2020, 1, 1)), (1, 2**40, date(2021, 1, 1)))
    table.commit(2)
    assert rows_with(space, schema) == [(1, 2**40, date(2021, 1, 1)), (2, 20, date(2020, 1, 1))]


@pytest.mark.parametrize(("kind", "default"), [("list<int64>", [1]), ("struct<a:list<int64>>", {"a": [1]})])
def test_a_row_that_is_changed_in_place_leaves_the_default_of_its_column_alone(kind: str, default: Any) -> None:
    space = VolatileObjectSpace()
    table = StateTable(space, "t", TableSchema([Column("k", "int64")], ["k"]))
    table.insert_rows([(1,), (2,)])
    table.commit(1)
    changed = table.schema.with_column(Column("v", kind, default=default))
    table = StateTable(space, "t", changed, evolve=True)
    for row in table.scan():
        (row[1] if isinstance(row[1], list) else row[1]["a"]).append(2)
    assert list(table.scan()) == [(1, default), (2, default)]
    assert table.schema.column("v").default == default


def test_a_key_column_is_found_by_its_longest_name() -> None:
    schema = TableSchema([Column("a", "int64"), Column("a b", "int64")], ["a b desc", "a"])
    assert [name for name, _ in schema.primary_key] == ["a b", "a"]


def test_a_dropped_column_does_not_come_back_under_its_name() -> None:
    space, schema = base()
    schema = schema.without_column("w").with_column(Column("w", "string", nullable=True))
    assert rows_with(space, schema) == [(1, 10, None), (2, 20, None)]


def test_a_schema_without_ids_is_matched_by_names() -> None:
    space, _ = base()
    columns = [Column("w", "string", nullable=True), Column("k", "int64"), Column("n", "bool", default=True)]
    schema = TableSchema(columns, ["k"])
    assert rows_with(space, schema) == [("a", 1, True), (None, 2, True)]
    assert tables(space)["t"].layouts == ((1, 2, 3), (3, 1, 4))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda schema: schema.with_column(Column("x", "int64")), "needs a default"),
        (lambda schema: columns_of(("k", "int64"), ("v", "bool"), ("w", "string")), "cannot change from int16 to bool"),
        (lambda schema: TableSchema(schema.columns, ["k desc"]), "stay as they are"),
        (lambda schema: columns_of(("k", "int64"), ("v", "int16"), ("w", "string")), "may hold NULL"),
    ],
)
def test_a_change_that_rows_cannot_follow_is_refused(change: Any, message: str) -> None:
    space, schema = base()
    with pytest.raises(SchemaMismatchError, match=message):
        StateTable(space, "t", change(schema), evolve=True)
    assert rows_with(space, schema) == [(1, 10, "a"), (2, 20, None)]


def test_another_schema_is_refused_with_both_printed_and_what_differs() -> None:
    space, schema = base()
    with pytest.raises(SchemaMismatchError) as caught:
        StateTable(space, "t", columns_of(("k", "int64"), ("v", "bool"), ("x", "string")))
    differs = (
        "column 'v': stored int16 not null, wanted bool not null; column 'w': stored string, wanted none; column 'x'"
    )
    assert f"{differs}: stored none, wanted string not null\n" in str(caught.value)
    assert f"stored: {schema}" in str(caught.value)
    assert "cast, add or leave out columns; or open it with evolve=True" in str(caught.value)
    with pytest.raises(
        SchemaMismatchError, match=r"stored primary key \(k asc nulls first\), wanted primary key \(k desc"
    ):
        StateTable(space, "t", TableSchema(schema.columns, ["k desc"]))
    with pytest.raises(SchemaMismatchError, match="the order of the columns: stored k, v, w, wanted w, v, k"):
        StateTable(space, "t", TableSchema(schema.columns[::-1], ["k"]))
    with pytest.raises(SchemaMismatchError, match="no table 'u'"):
        StateTable(space, "u")


def test_key_columns_can_neither_be_dropped_nor_narrowed() -> None:
    _, schema = base()
    with pytest.raises(SchemaError, match="part of the key"):
        schema.without_column("k")
    with pytest.raises(SchemaError, match="cannot be widened"):
        schema.widened("k", "int32")


def test_schemas_go_to_arrow_and_spark_and_back() -> None:
    from pyspark.sql.types import StructType

    kinds = [kind for kind in EXAMPLES if kind != "decimal"]
    schema = TableSchema([Column(f"c{place}", kind, nullable=place % 2 == 0) for place, kind in enumerate(kinds)])
    assert TableSchema.from_arrow(schema.to_arrow()) == schema
    assert TableSchema.from_spark(StructType.fromJson(schema.to_spark())) == schema
    assert TableSchema.from_json(schema.to_json()) == schema
    with pytest.raises(SchemaError, match="no match"):
        TableSchema.from_spark({"type": "struct", "fields": [{"name": "a", "type": "variant", "nullable": True}]})


@pytest.mark.parametrize(
    "found", [None, "a long", {}, {"fields": 1}, {"fields": [{"name": "a", "type": "long"}]}], ids=str
)
def test_what_is_no_schema_of_spark_is_refused(found: Any) -> None:
    with pytest.raises(SchemaError, match=r"^expected a StructType of Spark, or its JSON value: found "):
        TableSchema.from_spark(found)


@pytest.mark.parametrize("depth", [251, 300, 3_000])
def test_a_type_that_is_nested_too_deep_is_refused(depth: int) -> None:
    with pytest.raises(SchemaError, match=r"^the type 'list<list<.*lists and structs are nested too deep in it$"):
        Column("v", "list<" * depth + "int64" + ">" * depth)
    assert TableSchema([Column("v", "list<" * 250 + "int64" + ">" * 250)]).columns[0].type.kind == "list"


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array(["a", None], pa.string_view()), "string"),
        (pa.array([b"a", None], pa.binary_view()), "binary"),
        (pa.array(["a", None]).dictionary_encode(), "string"),
        (pc.run_end_encode(pa.array([3, None])), "int64"),
        (pa.array(["{}", None], pa.json_()), "string"),
        (pa.ExtensionArray.from_storage(pa.opaque(pa.int64(), "n", "v"), pa.array([3, None])), "int64"),
        (pa.array([[b"a"], None], pa.list_(pa.binary_view())), "list<binary>"),
    ],
    ids=str,
)
def test_a_column_of_arrow_has_the_type_of_the_values_that_it_holds(array: Any, kind: str) -> None:
    fields = [pa.field("k", pa.int64(), nullable=False), pa.field("v", array.type)]
    schema = TableSchema.from_arrow(pa.schema(fields), ["k"])
    assert str(schema.column("v").type) == kind
    rows = Chunk.from_arrow(pa.table([pa.array([1, 2]), array], schema=pa.schema(fields)), schema).rows()
    values = {"string": array[0].as_py(), "binary": b"a", "int64": 3, "list<binary>": [b"a"]}
    assert rows == [("+", (1, values[kind])), ("+", (2, None))]


@pytest.mark.parametrize("kind", [pa.uuid(), pa.bool8()], ids=str)
def test_a_column_of_arrow_whose_values_are_not_what_holds_them_is_refused(kind: Any) -> None:
    with pytest.raises(SchemaError, match=r"Arrow's type extension<arrow\.\w+> has no match: cast it to one of"):
        TableSchema.from_arrow(pa.schema([("v", kind)]))


@pytest.mark.parametrize("kind", ["decimal(1²)", "decimal(٣)", "decimal(x)"])
def test_a_number_of_digits_that_is_none_is_refused(kind: str) -> None:
    with pytest.raises(SchemaError, match="is no number"):
        Column("v", kind)


@pytest.mark.parametrize("given", [object(), pa.table({"v": [1]}), ["v"]])
def test_what_is_no_arrow_schema_is_refused(given: Any) -> None:
    with pytest.raises(
        SchemaError, match=rf"expected a pyarrow\.Schema, found a {type(given).__name__}: of Arrow data"
    ):
        TableSchema.from_arrow(given)
