"""The sources of a pipeline on Spark: several streams as one, so that one micro-batch is one epoch of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import CharType, StringType, StructType, VarcharType

from objectspace.operators import Node
from objectspace.operators.sources import key_parts
from objectspace.relational import SchemaError, TableSchema
from objectspace.relational.chunk import OPS
from objectspace.relational.schema import KeyPart
from objectspace.spark.feed_schema import require_epochs_of_rows
from objectspace.spark.tasks import TAG, SourceInput

_TEXT = (StringType, CharType, VarcharType)
"""Spark's types of text, of which the last two are no kinds of the first."""


@dataclass(frozen=True)
class Declared:
    """A source as it was declared.

    Args:
        name: its name.
        frame: its rows, a streaming DataFrame.
        op_column: the column of operations, or None if rows are only added.
        node: its node in the plan.
        is_numbered: whether it was declared without a key.
    """

    name: str
    frame: DataFrame
    op_column: str | None
    node: Node
    is_numbered: bool

    def input(self) -> SourceInput:
        """Return what a task must know."""
        return SourceInput(self.name, self.node.schema, self.op_column, self.is_numbered, self.node.append_only)


def schema_of(frame: DataFrame, op_column: str | None) -> StructType:
    """Return the columns of a source without that of the operations.

    Raises:
        SchemaError: there is no such column, or it is not text; or another one is the epoch of a change feed.
    """
    if op_column is not None and op_column not in frame.columns:
        raise SchemaError(f"op_column {op_column!r}: the source has the columns {', '.join(frame.columns)}")
    if op_column is not None and not isinstance(kind := frame.schema[op_column].dataType, _TEXT):
        raise SchemaError(
            f"op_column {op_column!r} is of the type {kind.simpleString()}: expected text, one of {', '.join(OPS)} in"
            " each row"
        )
    if op_column is not None:
        require_epochs_of_rows(frame.schema, f"op_column={op_column!r}")
    return StructType([one for one in frame.schema.fields if one.name != op_column])


def require_plain_names(names: Iterable[str]) -> None:
    """Make sure that Spark finds columns by their names when it hands rows to Python.

    Raises:
        SchemaError: a name has a dot or a backtick, or is a star, which it takes for something else.
    """
    for name in names:
        require_plain_name(name, "column")


def require_plain_name(name: str, what: str) -> None:
    """Make sure that Spark finds a column by a name.

    Args:
        name: the name.
        what: what has the name: ``column``, or ``source``, whose rows are a column beside those of other sources.

    Raises:
        SchemaError: it has a dot or a backtick, or is a star, which Spark takes for something else.
    """
    if "." in name or "`" in name or name == "*":
        advice = "rename it, with withColumnRenamed() for example" if what == "column" else "choose another name"
        raise SchemaError(
            f"{what} {name!r}: Spark cannot hand a column to Python whose name has a dot or a backtick, or is a star:"
            f" {advice}"
        )


def require_distinct(name: str, known: Iterable[str]) -> None:
    """Make sure that a source has a name of its own even to Spark, which does not tell upper from lower case.

    Raises:
        SchemaError: another name differs in nothing else.
    """
    for other in known:
        if other != name and other.lower() == name.lower():
            raise SchemaError(
                f"source {name!r}: there is a source {other!r}, and Spark takes the two for one name: choose another"
            )


def require_streams(sources: Sequence[Declared]) -> None:
    """Make sure that every source streams.

    Raises:
        SchemaError: one does not.
    """
    for one in sources:
        if not one.frame.isStreaming:
            raise SchemaError(
                f"source {one.name!r} is a DataFrame that does not stream: read it with spark.readStream; its rows join"
                " the epoch in which they come"
            )


def require_told_apart(sources: Sequence[Declared]) -> None:
    """Make sure that Spark finds each column of the sources when it hands their rows to Python.

    Raises:
        SchemaError: two columns of a source differ only by case, which Spark is set to ignore.
    """
    for one in sources:
        if found := taken_for_one(one.frame.sparkSession, one.frame.columns):
            raise SchemaError(
                f"source {one.name!r}: Spark takes its columns {found[0]!r} and {found[1]!r} for one: rename one of"
                " them, or set spark.sql.caseSensitive to true"
            )


def taken_for_one(spark: SparkSession, columns: Iterable[str]) -> tuple[str, str] | None:
    """Return two columns that differ only by case if Spark is set to ignore it, or ``None`` if it tells all apart."""
    if str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true":  # Spark takes TRUE, too.
        return None
    known: dict[str, str] = {}
    for name in columns:
        other = known.setdefault(name.lower(), name)
        if other != name:
            return other, name
    return None


def wide(sources: Sequence[Declared], frames: Mapping[str, DataFrame]) -> DataFrame:
    """Return the rows of all sources as one DataFrame: of one source as they are, of several in a column for each.

    Args:
        sources: all sources.
        frames: the rows of each that has any.
    """
    if len(sources) == 1:
        return frames[sources[0].name]
    shapes = {one.name: StructType.fromJson(_nullable(one.frame.schema.jsonValue())) for one in sources}
    return reduce(DataFrame.unionByName, (_tagged(name, frame, shapes) for name, frame in frames.items()))


def _tagged(source: str, frame: DataFrame, shapes: Mapping[str, StructType]) -> DataFrame:
    columns = [sf.lit(source).alias(TAG)]
    for name, shape in shapes.items():
        if name == source:
            columns.append(sf.struct(*(sf.col(f"`{field}`") for field in shape.names)).cast(shape).alias(name))
        else:
            columns.append(sf.lit(None).cast(shape).alias(name))
    return frame.select(*columns)


def _nullable(shape: Any) -> Any:
    """Return the JSON value of a type that takes NULL everywhere: the rows of one source have none of another's fields.

    Arrow does not read a NULL of a struct whose fields take none.
    """
    if isinstance(shape, list):
        return [_nullable(one) for one in shape]
    if not isinstance(shape, dict):
        return shape
    return {name: name in _TAKES_NULL or _nullable(value) for name, value in shape.items()}


_TAKES_NULL = frozenset({"nullable", "containsNull", "valueContainsNull"})


def keyed_schema(frame: DataFrame, op_column: str | None, key: Sequence[KeyPart]) -> TableSchema:
    """Return the schema of the changes of a source; a key column takes NULL only if its DataFrame says so.

    Raises:
        SchemaError: the key is not names of columns, the column of operations is missing or not text, or another one is
            the epoch of a change feed.
    """
    parts = key_parts(key)
    found = schema_of(frame, op_column)
    require_plain_names(found.names)
    return TableSchema.from_spark(found, parts)
