"""Filters of Spark as bounds of a scan: what a filter says of the leading key columns decides what is read at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual
from pyspark.sql.types import StructType

from objectspace.relational import RowError, TableSchema

_LOWER, _UPPER = (GreaterThan, GreaterThanOrEqual), (LessThan, LessThanOrEqual)
_COMPARISONS = (EqualTo, *_LOWER, *_UPPER)

_DIGITS = 28
"""Of the default context of Python's decimals."""

_FIRST_SAFE_YEAR = 1900
"""Spark hands dates and instants over in Java's old calendar, by the time zone of Java: it lacks ten days of 1582, and
some minutes or a day where a place left its local time, the last at the end of 1899."""

_AFTER_SKIPPED = frozenset([date(1993, 8, 22), date(1995, 1, 1), date(2011, 12, 31)])
"""What Spark makes of the day before where the time zone of Java has skipped that one, in the Pacific."""


@dataclass(frozen=True)
class Bounds:
    """What is read of a table.

    Args:
        prefix: the values of the leading key columns.
        lower: the least value of the key column that follows, in a tuple of one, or None.
        upper: the greatest, likewise.
        inclusive: whether the bounds themselves belong to the range.
    """

    prefix: tuple[Any, ...] = ()
    lower: tuple[Any, ...] | None = None
    upper: tuple[Any, ...] | None = None
    inclusive: tuple[bool, bool] = (True, True)

    def __bool__(self) -> bool:
        """Return whether anything is left out."""
        return bool(self.prefix) or self.lower is not None or self.upper is not None


def bounds_of(schema: TableSchema, filters: Iterable[Filter], read_as: StructType | None = None) -> Bounds:
    """Return the bounds that some filters set together; Spark checks what lies within them once more.

    Args:
        schema: the schema of the table.
        filters: the filters, all of which hold.
        read_as: the schema that the table is read with; a column that is read as another type sets no bound.

    >>> from objectspace.relational import Column
    >>> schema = TableSchema([Column("a", "int64"), Column("b", "int64")], ["a", "b"])
    >>> bounds_of(schema, [GreaterThan(("b",), 5), EqualTo(("a",), 1)])
    Bounds(prefix=(1,), lower=(5,), upper=None, inclusive=(False, True))
    """
    as_stored = _read_as_stored(schema, read_as)
    by_column: dict[str, list[Any]] = {}
    for one in filters:
        if not isinstance(one, _COMPARISONS) or _may_be_rounded(one.value):
            continue
        name, *fields = one.attribute
        if not fields and name in as_stored:
            by_column.setdefault(name, []).append(one)
    prefix: list[Any] = []
    for name, _ in schema.primary_key:
        found = by_column.get(name, [])
        equal = [one.value for one in found if isinstance(one, EqualTo)]
        if not equal:
            return _checked(schema, _ranged(tuple(prefix), found))
        prefix.append(equal[0])
    return _checked(schema, Bounds(tuple(prefix)))


def _read_as_stored(schema: TableSchema, read_as: StructType | None) -> set[str]:
    """Return the columns that are read as the type that they have."""
    own = {field.name: field.dataType for field in StructType.fromJson(schema.to_spark()).fields}
    if read_as is None:
        return set(own)
    return {field.name for field in read_as.fields if own.get(field.name) == field.dataType}


def _may_be_rounded(value: Any) -> bool:
    """Return whether a literal may differ from that of the filter: PySpark makes Decimals with 28 digits."""
    if isinstance(value, date):  # Or an instant.
        return value.year < _FIRST_SAFE_YEAR or value in _AFTER_SKIPPED
    return isinstance(value, Decimal) and len(value.as_tuple().digits) >= _DIGITS


def _ranged(prefix: tuple[Any, ...], filters: Sequence[Any]) -> Bounds:
    lower = next((one for one in filters if isinstance(one, _LOWER)), None)
    upper = next((one for one in filters if isinstance(one, _UPPER)), None)
    return Bounds(
        prefix,
        None if lower is None else (lower.value,),
        None if upper is None else (upper.value,),
        (not isinstance(lower, GreaterThan), not isinstance(upper, LessThan)),
    )


def _checked(schema: TableSchema, bounds: Bounds) -> Bounds:
    """Return the bounds, or none if a value is not one of its column: Spark compares those in its own way."""
    try:
        for bound in (bounds.lower, bounds.upper):
            schema.check_key((*bounds.prefix, *(bound or ())), whole=False)
    except RowError:
        return Bounds()
    return bounds
