"""Unions of streams: rows of several streams, told apart by the number of their stream and their key there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from objectspace.operators.bound import Bound
from objectspace.operators.computed import Select
from objectspace.operators.distinct import unused
from objectspace.operators.expressions import Expression, col, lit
from objectspace.operators.plan import Node
from objectspace.operators.stateless import Union
from objectspace.relational import Column, DataType, SchemaError, TableSchema

if TYPE_CHECKING:
    from objectspace.operators.builder import Stream


def united(streams: Sequence[Stream]) -> Stream:
    """Return the rows of streams with the same columns: see :meth:`Stream.union`.

    Raises:
        SchemaError: they have different columns.
    """
    first = streams[0]
    for other in streams[1:]:
        _check_same(first, other)
    keyed = [_keyed(stream.select(*first.columns), place) for place, stream in enumerate(streams)]
    make = partial(Union, _union_schema([stream.schema for stream in keyed]), inputs=len(keyed))
    operator = make()
    node = Node(
        "Union",
        "",
        operator.schema,
        tuple(stream.node for stream in keyed),
        operator.sides,
        make,
        (None,) * len(keyed),
        append_only=all(stream.node.append_only for stream in streams),
        has_watermark=all(stream.node.has_watermark for stream in streams),
        more_watermark_columns=tuple(
            [
                one
                for one in keyed[0].node.watermark_columns
                if all(one in stream.node.watermark_columns for stream in keyed)
            ]
        ),
    )
    return first.pipeline.stream_of(node, first.columns)


def _keyed(stream: Stream, place: int) -> Stream:
    """Return the visible columns with a key that also says from which of several streams a row is.

    The key columns have names that no visible column has, and the same names in all streams, whose columns are the
    same.
    """
    schema = stream.schema
    branch, key = unused("_branch", stream.columns), unused("_key", stream.columns)

    def _bind(_: TableSchema) -> Bound:
        encode, key_of = schema.key_encoder.encode, schema.key_of
        return Bound(DataType("binary"), False, lambda row: encode(key_of(row)))

    columns = {name: col(name) for name in stream.columns}
    columns |= {key: Expression(f"key of {place}", _bind), branch: lit(place)}
    return stream.then("Keyed", str(place), lambda: _Keyed(schema, columns, [branch, key]))


class _Keyed(Select):
    """Computes columns, and takes some of them as the stream key in place of the former one."""

    def __init__(self, schema: TableSchema, columns: Mapping[str, Expression], key: Sequence[str]) -> None:
        super().__init__(TableSchema(schema.columns, watermark_column=schema.watermark_column), columns)
        self._schema = TableSchema(self._schema.columns, key, watermark_column=self._schema.watermark_column)


def _union_schema(schemas: Sequence[TableSchema]) -> TableSchema:
    """Return the schema of a union, in which a column takes NULL if it does in one of the inputs."""
    columns = [
        Column(one.name, one.type, any(schema.columns[place].nullable for schema in schemas))
        for place, one in enumerate(schemas[0].columns)
    ]
    watermarks = {schema.watermark_column for schema in schemas}
    return TableSchema(
        columns, list(schemas[0].primary_key), watermark_column=watermarks.pop() if len(watermarks) == 1 else None
    )


def _check_same(one: Stream, other: Stream) -> None:
    shapes = [[(name, str(each.schema.column(name).type)) for name in each.columns] for each in (one, other)]
    if shapes[0] != shapes[1]:
        raise SchemaError(f"union() takes streams with the same columns: found {shapes[0]} and {shapes[1]}")
