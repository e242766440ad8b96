"""Tables and chunks as Arrow data. This module needs pyarrow: ``pip install 'objectspace[arrow]'``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pt

from objectspace.decimals import decimal_context
from objectspace.relational.errors import RowError, SchemaError
from objectspace.relational.schema import Column, Row, TableSchema
from objectspace.relational.types import FLOATS, INTEGERS, TIMES, DataType
from objectspace.relational.values import from_cell, to_cell
from objectspace.relational.values_arrow import NO_VALUE, is_list, listed

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

_ARROW = {
    "bool": pa.bool_(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "decimal": pa.decimal128(38, 18),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}

_READ_FROM_TEXT = frozenset(TIMES)
"""Types whose cells Arrow parses itself."""


def to_schema(schema: TableSchema) -> pa.Schema:
    """Return a schema as an Arrow schema."""
    return schema_of(schema.columns)


def schema_of(columns: Iterable[Column]) -> pa.Schema:
    """Return columns as an Arrow schema."""
    return pa.schema([field_of(column) for column in columns])


def batch_of(arrays: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Return arrays as a batch; without arrays, a batch that has only a number of rows."""
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def field_of(column: Column) -> pa.Field:
    """Return a column as an Arrow field."""
    return pa.field(column.name, arrow_type(column.type), column.nullable)


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type for a type; a decimal without parameters gets 38 digits, 18 of them after the point."""
    if kind.kind == "list":
        assert kind.element is not None
        return pa.list_(arrow_type(kind.element))
    if kind.kind == "struct":
        return pa.struct([pa.field(name, arrow_type(field)) for name, field in kind.fields])
    return _ARROW[kind.kind] if kind.precision is None else pa.decimal128(kind.precision, kind.scale)


def columns_of(schema: pa.Schema) -> list[Column]:
    """Return the columns of an Arrow schema.

    Raises:
        SchemaError: it is no schema, or a type has no match.
    """
    if not isinstance(schema, pa.Schema):
        raise SchemaError(
            f"expected a pyarrow.Schema, found a {type(schema).__name__}: of Arrow data, give its .schema"
        )
    return [Column(field.name, _kind(field.type), field.nullable) for field in schema]


def whole(data: Any) -> pa.RecordBatch | pa.Table:
    """Return Arrow data, or anything that provides it as a stream, as one batch or table; a reader is read once.

    Raises:
        RowError: it is something else.
    """
    if isinstance(data, pa.RecordBatch | pa.Table):
        return data
    try:
        reader = data if isinstance(data, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(data)
    except (TypeError, pa.ArrowInvalid):  # A single column is a stream as well, but not of batches.
        raise RowError(
            f"expected Arrow data with columns, found a {type(data).__name__}: pass a table, a batch or a reader of"
            " batches"
        ) from None
    return reader.read_all()


def split(
    data: pa.RecordBatch | pa.Table, op_column: str, schema: TableSchema
) -> tuple[list[Any], list[str], list[list[Any]]]:
    """Return the operations of a batch or table, and the names and values of its other columns.

    Columns that the schema does not have are empty.

    Raises:
        RowError: Python has no such value.
        SchemaError: two columns have the name of one that is used.
    """
    names, used = [name for name in data.schema.names if name != op_column], set(schema.names)
    _refuse_twice(data.schema.names, {op_column, *used})
    has_ops = op_column in data.schema.names
    ops = listed(data.column(op_column), f"column {op_column!r}") if has_ops else ["+"] * data.num_rows
    return ops, names, [listed(data.column(name), f"column {name!r}") if name in used else [] for name in names]


def _refuse_twice(names: Sequence[str], used: Set[str]) -> None:
    """Refuse data in which a column that is used is there more than once: nothing tells which of them counts."""
    twice = next((name for name, times in Counter(names).items() if times > 1 and name in used), None)
    if twice is not None:
        raise SchemaError(
            f"column {twice!r} is there more than once: the data has {', '.join(names)}; drop or rename all but one"
        )


def split_frame(
    frame: pd.DataFrame, op_column: str, schema: TableSchema
) -> tuple[list[Any], list[str], list[list[Any]]]:
    """Return what :func:`split` returns for a data frame, with whole numbers where the schema has them.

    If one value of such a column is missing, pandas has all of them as floats.
    """
    ops, names, columns = split(from_frame(frame), op_column, schema)
    kinds = {column.name: column.type for column in schema.columns}
    wholes = [_wholes(kinds[name]) if name in kinds else None for name in names]
    return (
        ops,
        names,
        [values if whole is None else list(map(whole, values)) for whole, values in zip(wholes, columns, strict=True)],
    )


def from_frame(frame: pd.DataFrame) -> pa.Table:
    """Return a data frame as a table.

    Raises:
        RowError: this is no data frame, or Arrow has no type for the values of a column.
    """
    if not _is_frame(frame):
        raise RowError(f"expected a data frame of pandas, found a {type(frame).__name__}: from_arrow takes Arrow data")
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except NO_VALUE as error:
        raise RowError(f"{_culprit(frame)}: {error}") from None


def _is_frame(value: Any) -> bool:
    pandas = sys.modules.get("pandas")  # Without it there are no data frames.
    return pandas is not None and isinstance(value, pandas.DataFrame)


def _culprit(frame: pd.DataFrame) -> str:
    """Return what to call the first column that Arrow does not accept."""
    for name, values in frame.items():
        try:
            pa.array(values, from_pandas=True)
        except NO_VALUE:
            return f"column {name!r}"
    return "the data frame"


def _wholes(kind: DataType) -> Callable[[Any], Any] | None:
    """Return a function that makes floats whole numbers where a type needs it, or ``None`` if it does not."""
    if kind.kind in INTEGERS:
        return _whole
    if kind.kind == "list":
        element = _wholes(kind.element)  # type: ignore[arg-type]
        return None if element is None else lambda values: values if values is None else list(map(element, values))
    fields = {name: whole for name, field in kind.fields if (whole := _wholes(field)) is not None}
    return None if not fields else lambda value: _whole_fields(fields, value)


def _whole(value: Any) -> Any:
    """Return a float as the whole number that it is; beyond 2**53 it is not known which number it was."""
    return int(value) if type(value) is float and value.is_integer() and abs(value) <= 2**53 else value


def _whole_fields(fields: Mapping[str, Callable[[Any], Any]], value: Any) -> Any:
    return value if value is None else {**value, **{name: whole(value.get(name)) for name, whole in fields.items()}}


def without(schema: pa.Schema, name: str) -> pa.Schema:
    """Return a schema without one of its fields."""
    return pa.schema([field for field in schema if field.name != name])


def picked(schema: TableSchema, names: Sequence[str], columns: Sequence[list[Any]]) -> Iterable[Row]:
    """Return the rows of columns, in the order of a schema.

    Raises:
        SchemaError: a column of the schema is missing.
    """
    missing = [name for name in schema.names if name not in names]
    if missing:
        raise SchemaError(f"column {missing[0]!r} is missing: the data has {', '.join(names)}")
    places = [names.index(name) for name in schema.names]
    return zip(*[columns[place] for place in places], strict=True)


def joined(op_column: str, ops: Sequence[str], schema: TableSchema, rows: Sequence[Row]) -> pa.RecordBatch:
    """Return operations and rows as one batch.

    Raises:
        SchemaError: the rows have a column that is called as that of the operations.
    """
    if op_column in schema.names:
        raise SchemaError(
            f"the rows have a column {op_column!r}, as that of the operations is called: give another op_column="
        )
    columns = zip(*rows, strict=True) if rows else [()] * len(schema.columns)
    arrays = [array_of(values, column) for values, column in zip(columns, schema.columns, strict=True)]
    fields = [pa.field(op_column, pa.string(), False), *map(field_of, schema.columns)]
    return pa.RecordBatch.from_arrays([pa.array(list(ops), pa.string()), *arrays], schema=pa.schema(fields))


def array_of(values: Iterable[Any], column: Column) -> pa.Array:
    """Return the values of a column as an array.

    Raises:
        RowError: a value has no place in Arrow's type, for example a NaN in a decimal.
    """
    try:
        return pa.array(_fitting(list(values), column.type), arrow_type(column.type))
    except (pa.ArrowInvalid, ArithmeticError, TypeError, ValueError) as error:
        why = "it has too many digits" if isinstance(error, InvalidOperation) else error
        raise RowError(
            f"column {column.name!r} ({column.type}) has a value that Arrow's {arrow_type(column.type)} cannot hold:"
            f" {why}{_DECIMALS if str(column.type) == 'decimal' else ''}"
        ) from None


_DECIMALS = "; give it a type with fewer digits after the point, with .cast('decimal(38,0)') for example"


def _fitting(values: list[Any], kind: DataType) -> list[Any]:
    """Return values as Arrow holds them: decimals without a fixed scale get at most 18 digits after the point."""
    if kind == _ANY_DECIMAL:
        return [value.quantize(_LEAST, context=_WIDE) if _is_longer(value) else value for value in values]
    if not kind.is_nested or not _holds_any_decimal(kind):
        return values
    if kind.element is not None:
        return [value if value is None else _fitting(value, kind.element) for value in values]
    return [
        value if value is None else {name: _fitting([value[name]], one)[0] for name, one in kind.fields}
        for value in values
    ]


def _holds_any_decimal(kind: DataType) -> bool:
    parts = [one for _, one in kind.fields] + ([] if kind.element is None else [kind.element])
    return kind == _ANY_DECIMAL or any(map(_holds_any_decimal, parts))


def _is_longer(value: Any) -> bool:
    return isinstance(value, Decimal) and value.is_finite() and value.as_tuple().exponent < -_PLACES  # type: ignore[operator]


def array_of_cells(cells: list[Any], column: Column) -> pa.Array:
    """Return the cells of stored rows as an array.

    Raises:
        RowError: a value has no place in Arrow's type.
    """
    kind = column.type
    if kind.kind in _READ_FROM_TEXT:
        try:
            return pa.array(cells, pa.string()).cast(arrow_type(kind))
        except pa.ArrowInvalid:
            return array_of([value_of(kind, cell) for cell in cells], column)
    if kind.kind in FLOATS:
        try:
            return pa.array(cells, arrow_type(kind))
        except (pa.ArrowInvalid, TypeError):
            return array_of([None if cell is None else float(cell) for cell in cells], column)
    if to_cell(kind) is None:
        return array_of(cells, column)
    return array_of([value_of(kind, cell) for cell in cells], column)


def value_of(kind: DataType, cell: Any) -> Any:
    """Return the value of a cell."""
    value = from_cell(kind)
    return cell if value is None else value(cell)


def _kind(arrow: pa.DataType) -> DataType:
    if pt.is_dictionary(arrow) or pt.is_run_end_encoded(arrow):
        return _kind(arrow.value_type)
    if isinstance(arrow, pa.BaseExtensionType) and arrow.extension_name not in _OF_THEIR_OWN:
        return _kind(arrow.storage_type)
    if is_list(arrow):
        return DataType("list", element=_kind(arrow.value_type))
    if pt.is_struct(arrow):
        return DataType("struct", fields=tuple((field.name, _kind(field.type)) for field in arrow))
    if pt.is_decimal128(arrow) and arrow.scale >= 0:
        return DataType("decimal", arrow.precision, arrow.scale)
    for matches, kind in _KINDS:
        if matches(arrow):
            return DataType(kind)
    raise SchemaError(f"Arrow's type {arrow} has no match: cast it to one of {', '.join(map(str, _ARROW.values()))}")


_OF_THEIR_OWN = frozenset({"arrow.bool8", "arrow.uuid"})
"""The extension types whose values are others than those that hold them."""

_ANY_DECIMAL = DataType("decimal")
_PLACES = 18
_LEAST = Decimal((0, (1,), -_PLACES))
_WIDE = decimal_context(400, rounding=ROUND_HALF_UP)

_KINDS = (
    (pt.is_boolean, "bool"),
    (lambda arrow: pt.is_int8(arrow) or pt.is_uint8(arrow) or pt.is_int16(arrow), "int16"),
    (lambda arrow: pt.is_uint16(arrow) or pt.is_int32(arrow), "int32"),
    (lambda arrow: pt.is_uint32(arrow) or pt.is_int64(arrow), "int64"),
    (lambda arrow: pt.is_float16(arrow) or pt.is_float32(arrow), "float32"),
    (pt.is_float64, "float64"),
    (lambda arrow: pt.is_decimal256(arrow), "decimal"),
    (lambda arrow: pt.is_string(arrow) or pt.is_large_string(arrow) or pt.is_string_view(arrow), "string"),
    (lambda arrow: pt.is_binary(arrow) or pt.is_large_binary(arrow) or pt.is_fixed_size_binary(arrow), "binary"),
    (pt.is_binary_view, "binary"),
    (pt.is_date, "date"),
    (pt.is_time, "time"),
    (lambda arrow: pt.is_timestamp(arrow) and arrow.tz is None, "timestamp"),
    (pt.is_timestamp, "timestamptz"),
)
