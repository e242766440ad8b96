"""Filters of Spark as bounds of a scan: what a filter says of the leading key columns decides what is read at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from objectspace.relational import RowError, TableSchema

_LOWER, _UPPER = (GreaterThan, GreaterThanOrEqual), (LessThan, LessThanOrEqual)


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
        """Tell whether anything is left out."""
        return bool(self.prefix) or self.lower is not None or self.upper is not None


def bounds_of(schema: TableSchema, filters: Iterable[Filter]) -> Bounds:
    """Return the bounds that some filters set together; Spark looks at what lies within them once more.

    Args:
        schema: the schema of the table.
        filters: the filters, all of which hold.

    >>> from objectspace.relational import Column
    >>> schema = TableSchema([Column("a", "int64"), Column("b", "int64")], ["a", "b"])
    >>> bounds_of(schema, [GreaterThan(("b",), 5), EqualTo(("a",), 1)])
    Bounds(prefix=(1,), lower=(5,), upper=None, inclusive=(False, True))
    """
    by_column: dict[str, list[Any]] = {}
    for one in filters:
        if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
            by_column.setdefault(".".join(one.attribute), []).append(one)
    prefix: list[Any] = []
    for name, _ in schema.primary_key:
        found = by_column.get(name, [])
        equal = [one.value for one in found if isinstance(one, EqualTo)]
        if not equal:
            return _checked(schema, _ranged(tuple(prefix), found))
        prefix.append(equal[0])
    return _checked(schema, Bounds(tuple(prefix)))


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
    """Return the bounds, or none where a value is not one of its column: Spark compares those in its own way."""
    try:
        for bound in (bounds.lower, bounds.upper):
            schema.check_key((*bounds.prefix, *(bound or ())), whole=False)
    except RowError:
        return Bounds()
    return bounds
