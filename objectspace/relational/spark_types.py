"""Spark's schemas as JSON, so this layer needs no Spark: ``StructType.fromJson`` and ``jsonValue`` use this form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from objectspace.relational.errors import SchemaError
from objectspace.relational.schema import Column
from objectspace.relational.types import DataType, parse_type

_TO_SPARK = {
    "bool": "boolean",
    "int16": "short",
    "int32": "integer",
    "int64": "long",
    "float32": "float",
    "float64": "double",
    "decimal": "decimal(38,18)",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "time": "time(6)",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}
_FROM_SPARK = {spark: kind for kind, spark in _TO_SPARK.items()} | {"byte": "int16"}


_COLLATIONS = "__COLLATIONS"
"""The key under which Spark keeps the collations of a column in its metadata."""


def to_struct(columns: Iterable[Column]) -> dict[str, Any]:
    """Return columns as the JSON value of a ``StructType``."""
    return {"type": "struct", "fields": [_field(column.name, column.type, column.nullable) for column in columns]}


def columns_of(struct: Mapping[str, Any]) -> list[Column]:
    """Return the columns of the JSON value of a ``StructType``.

    Raises:
        SchemaError: a type has no match.
    """
    return [Column(field["name"], _kind_of(field), bool(field["nullable"])) for field in struct["fields"]]


def _kind_of(field: Mapping[str, Any]) -> DataType:
    """Return the type of a field; if there is none, the error names the field."""
    try:
        found = _kind(field["type"])
    except SchemaError as error:
        raise SchemaError(f"column {field['name']!r}: {error}") from None
    if collations := field.get("metadata", {}).get(_COLLATIONS):
        raise SchemaError(
            f"column {field['name']!r} is text with a collation ({', '.join(map(str, collations.values()))}), and text"
            f" is compared by its letters here: cast it, with collate({field['name']}, 'UTF8_BINARY')"
        )
    return found


def _field(name: str, kind: DataType, nullable: bool) -> dict[str, Any]:
    return {"name": name, "type": _spark(kind), "nullable": nullable, "metadata": {}}


def _spark(kind: DataType) -> Any:
    if kind.kind == "list":
        assert kind.element is not None
        return {"type": "array", "elementType": _spark(kind.element), "containsNull": True}
    if kind.kind == "struct":
        return {"type": "struct", "fields": [_field(name, field, True) for name, field in kind.fields]}
    return str(kind) if kind.precision is not None else _TO_SPARK[kind.kind]


def _kind(spark: Any) -> DataType:
    if isinstance(spark, Mapping) and spark["type"] == "array":
        return DataType("list", element=_kind(spark["elementType"]))
    if isinstance(spark, Mapping) and spark["type"] == "struct":
        return DataType("struct", fields=tuple((field["name"], _kind_of(field)) for field in spark["fields"]))
    if isinstance(spark, str) and spark.startswith("decimal("):
        return parse_type(spark)
    if isinstance(spark, str) and spark.startswith("time("):
        return DataType("time")
    if not isinstance(spark, str) or spark not in _FROM_SPARK:
        name = spark["type"] if isinstance(spark, Mapping) else spark
        advice = "drop it, or make it an array of structs with map_entries()" if name == "map" else "cast it"
        taken = ", ".join(sorted(_FROM_SPARK))
        raise SchemaError(
            f"Spark's type {name} has no match: {advice}; there are {taken}, and arrays and structs of these"
        )
    return DataType(_FROM_SPARK[spark])
