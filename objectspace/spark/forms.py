"""The form in which Spark takes Arrow data: the types and the nullability of the schema that it was told."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from objectspace.errors import ObjectSpaceError


def conforming(schema: StructType, what: str) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return a function that gives a batch the types of a schema of Spark; columns are found by their names.

    Args:
        schema: the schema: what a user has asked for, or times in Spark's unit.
        what: what is read, for errors.

    Raises:
        ObjectSpaceError: when it is called: a column is missing, a value does not fit, or a NULL is not allowed.
    """
    wanted = to_arrow_schema(schema, timezone="UTC")

    def _conformed(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(wanted):
            return batch
        return pa.RecordBatch.from_arrays([_column(batch, field, what) for field in wanted], schema=wanted)

    return _conformed


def _column(batch: pa.RecordBatch, field: pa.Field, what: str) -> pa.Array:
    place = batch.schema.get_field_index(field.name)
    if place < 0:
        raise ObjectSpaceError(
            f"{what} has no column {field.name!r}: the schema of the read may name {', '.join(batch.schema.names)}"
        )
    found = batch.column(place)
    if found.null_count and not field.nullable:
        raise ObjectSpaceError(f"{what}, column {field.name!r}: it holds NULL, and the schema of the read allows none")
    if found.type.equals(field.type):
        return found
    _require_fields(found.type, field.type, f"{what}, column {field.name!r}")
    try:
        return found.cast(field.type)
    except pa.ArrowException as error:
        raise ObjectSpaceError(
            f"{what}, column {field.name!r}: it is {found.type}, and the schema of the read says {field.type}: {error}"
        ) from None


def _require_fields(found: pa.DataType, wanted: pa.DataType, where: str) -> None:
    """Refuse a field that a struct does not have, also one in a list: PyArrow makes a NULL of it."""
    if pt.is_list(found) and pt.is_list(wanted):
        _require_fields(found.value_type, wanted.value_type, where)
    if not (pt.is_struct(found) and pt.is_struct(wanted)):
        return
    names = [field.name for field in found]
    for field in wanted:
        if field.name not in names:
            raise ObjectSpaceError(
                f"{where}: it has no field {field.name!r}: the schema of the read may name {', '.join(names)}"
            )
        _require_fields(found.field(field.name).type, field.type, f"{where}, field {field.name!r}")
