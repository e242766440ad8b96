"""Calls of an aggregation: which function, of which columns, over which rows, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from objectspace.operators.base import order_parts
from objectspace.operators.fingerprints import describe, described_value
from objectspace.operators.predicates import Predicate, predicate_of
from objectspace.relational import Column, DataType, SchemaError, TableSchema
from objectspace.relational.schema import KeyPart
from objectspace.relational.types import DECIMAL_DIGITS_MAX, INTEGERS, NUMBERS

AggKind = Literal[
    "count", "sum", "avg", "min", "max", "first_value", "last_value", "string_agg", "array_agg", "bool_and", "bool_or",
    "stddev", "stddev_pop", "variance", "variance_pop", "approx_count_distinct",
]  # fmt: skip

ARGUMENTS: dict[AggKind, tuple[int, int]] = {
    "count": (0, 1),
    "sum": (1, 1),
    "avg": (1, 1),
    "min": (1, 1),
    "max": (1, 1),
    "first_value": (1, 1),
    "last_value": (1, 1),
    "string_agg": (1, 2),
    "array_agg": (1, 1),
    "bool_and": (1, 1),
    "bool_or": (1, 1),
    "stddev": (1, 1),
    "stddev_pop": (1, 1),
    "variance": (1, 1),
    "variance_pop": (1, 1),
    "approx_count_distinct": (1, 1),
}
"""How many columns each call takes, at least and at most."""

ORDERED = frozenset(["first_value", "last_value", "string_agg", "array_agg"])
"""Calls whose result depends on the order of the rows."""

LISTED = frozenset(["string_agg", "array_agg"])
"""Calls whose result holds a part of every row."""

_INDIFFERENT = frozenset(["min", "max", "first_value", "last_value", "bool_and", "bool_or", "approx_count_distinct"])
"""Calls that repeated equal values do not change, so DISTINCT makes no difference."""

_DOMAIN: dict[str, frozenset[str]] = {
    **dict.fromkeys(["sum", "avg", "stddev", "stddev_pop", "variance", "variance_pop"], frozenset(NUMBERS)),
    **dict.fromkeys(["bool_and", "bool_or"], frozenset(["bool"])),
    "string_agg": frozenset(["string"]),
}


@dataclass(frozen=True, init=False, repr=False, eq=False)
class AggCall:
    """One call of an aggregation.

    Two calls are equal if all that was given is equal; a filter that is a function is equal to itself alone.

    Args:
        kind: ``count sum avg min max first_value last_value string_agg array_agg bool_and bool_or stddev stddev_pop
            variance variance_pop approx_count_distinct``.
        columns: its arguments; ``count`` takes none to count all rows, ``string_agg`` may take the delimiters as a
            second.
        distinct: whether equal values count once.
        order_by: the order of the rows, if it matters; ties, and all rows without it, go by the stream key.
        filter: which rows count: ``("v", ">", 5)``, a list of such comparisons, a function such as
            ``lambda v: v > 5``, or an expression such as ``col("v") > 5``.
        delimiter: what ``string_agg`` puts between values.
        name: the name of the output column.

    Raises:
        SchemaError: there is no such call, or it takes no such arguments.

    >>> AggCall("sum", "v", filter=("v", ">", 0)), AggCall("count").name
    (AggCall('sum', 'v', filter=('v', '>', 0)), 'count')
    """

    kind: AggKind
    columns: tuple[str, ...]
    distinct: bool
    order_by: tuple[KeyPart, ...]
    filter: Predicate | None
    delimiter: str
    name: str

    def __init__(
        self,
        kind: AggKind,
        *columns: str,
        distinct: bool = False,
        order_by: Sequence[KeyPart] | str | None = (),
        filter: Predicate | None = None,
        delimiter: str = ",",
        name: str | None = None,
    ) -> None:
        if kind not in ARGUMENTS:
            raise SchemaError(f"there is no call {kind!r}: the calls are {', '.join(ARGUMENTS)}")
        if strange := [column for column in columns if not isinstance(column, str)]:
            raise SchemaError(
                f"{kind} takes names of columns: found {strange[0]!r:.200}: compute it before: with_columns(name=...)"
            )
        if not isinstance(delimiter, str):
            raise SchemaError(f"{kind} takes text as its delimiter: found {delimiter!r:.80}")
        least, most = ARGUMENTS[kind]
        if not least <= len(columns) <= most:
            raise SchemaError(f"{kind} takes {least} to {most} columns: found {len(columns)} ({', '.join(columns)})")
        if distinct and not columns:
            raise SchemaError(f"{kind} with distinct takes a column")
        order, name = tuple(order_parts(order_by)), name or "_".join([kind, *columns[:1]])
        vars(self).update(kind=kind, columns=columns, distinct=distinct, order_by=order)
        vars(self).update(filter=filter, delimiter=delimiter, name=name)

    def __eq__(self, other: object) -> bool:
        return self._traits() == other._traits() if isinstance(other, AggCall) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.kind, self.columns, self.name))

    def _traits(self) -> dict[str, Any]:
        """Return all that it consists of, in a form that can be compared: an expression cannot, but its text can."""
        return {**vars(self), "filter": self.filter if callable(self.filter) else repr(self.filter)}

    @property
    def is_distinct(self) -> bool:
        """Whether equal values count once and this makes a difference."""
        return self.distinct and self.kind not in _INDIFFERENT

    def check(self, schema: TableSchema) -> None:
        """Refuse a call that has no meaning for an input.

        Raises:
            SchemaError: a column does not exist or has another type, or DISTINCT and the order contradict each other.
        """
        for column in self.columns:
            schema.place_of(column)
        kinds = _DOMAIN.get(self.kind)
        for column in self.columns:
            found = schema.column(column).type
            if kinds is not None and found.kind not in kinds:
                expected = ", ".join(sorted(kinds))
                raise SchemaError(f"{self!r}: column {column!r} is {found}: expected {expected}")
        order = TableSchema(schema.columns, self.order_by).primary_key
        if self.is_distinct and len(self.columns) > 1:
            raise SchemaError(f"{self!r}: DISTINCT takes one column; pass delimiter= instead of a column")
        if self.is_distinct and any(name not in self.columns for name, _ in order):
            raise SchemaError(f"{self!r}: with DISTINCT the order can only be by {self.columns[0]!r}")
        if self.filter is not None:
            predicate_of(schema, self.filter)

    def renamed(self, name: str, filter: Predicate | None) -> AggCall:
        """Return the same call with another name and filter."""
        made = copy(self)
        vars(made).update(name=name, filter=filter)
        return made

    def output_type(self, schema: TableSchema) -> DataType:
        """Return the type of the result."""
        if self.kind in _RESULTS:
            return DataType(_RESULTS[self.kind])
        kind = schema.column(self.columns[0]).type
        if self.kind == "array_agg":
            return DataType("list", element=kind)
        if self.kind == "sum":
            return _sum_type(kind)
        if self.kind == "avg":
            return DataType("decimal") if kind.kind == "decimal" else DataType("float64")
        assert isinstance(kind, DataType)
        return kind

    def __repr__(self) -> str:
        given: list[str] = [repr(self.kind), *map(repr, self.columns)]
        shown: dict[str, Any] = {"distinct": self.distinct or None, "order_by": list(self.order_by) or None}
        given += [f"{name}={value!r}" for name, value in {**shown, "filter": self.filter}.items() if value is not None]
        return f"AggCall({', '.join(given)})"


_RESULTS = {
    **dict.fromkeys(["count", "approx_count_distinct"], "int64"),
    **dict.fromkeys(["stddev", "stddev_pop", "variance", "variance_pop"], "float64"),
    **dict.fromkeys(["bool_and", "bool_or"], "bool"),
}


def output_schema(
    schema: TableSchema, group_key: Sequence[str], calls: Sequence[AggCall], watermark_column: str | None
) -> TableSchema:
    """Return the output columns of an aggregation: those of the group, then one per call."""
    names: list[str] = list(group_key)
    columns = [schema.column(name) for name in names]
    columns = [Column(column.name, column.type, column.nullable) for column in columns]
    for call in calls:
        name, number = call.name, 2
        while name in names:
            name, number = f"{call.name}_{number}", number + 1
        names.append(name)
        is_count = call.kind in ("count", "approx_count_distinct")
        columns.append(Column(name, call.output_type(schema), not is_count))
    return TableSchema(columns, list(group_key), watermark_column=watermark_column)


def _sum_type(kind: DataType) -> DataType:
    if kind.kind == "decimal":
        return kind if kind.precision is None else DataType("decimal", DECIMAL_DIGITS_MAX, kind.scale)
    return DataType("int64" if kind.kind in INTEGERS else "float64")


def sum_bounds(kind: DataType) -> tuple[Any, Any] | None:
    """Return the least and the greatest sum that a type of :func:`_sum_type` holds, or ``None`` if it holds any.

    >>> sum_bounds(DataType("int64")), sum_bounds(DataType("decimal"))
    ((-9223372036854775808, 9223372036854775807), None)
    """
    if kind.kind == "int64":
        return -(2**63), 2**63 - 1
    if kind.precision is None or kind.scale is None:
        return None
    digits = (9,) * kind.precision
    return Decimal((1, digits, -kind.scale)), Decimal((0, digits, -kind.scale))


def count(*columns: str, **options: Any) -> AggCall:
    """Return a count of all rows, or of the rows with a value in a column."""
    return AggCall("count", *columns, **options)


def sum_(column: str, **options: Any) -> AggCall:
    """Return a sum, which is NULL over no values."""
    return AggCall("sum", column, **options)


def avg(column: str, **options: Any) -> AggCall:
    """Return an average, which is NULL over no values."""
    return AggCall("avg", column, **options)


def min_(column: str, **options: Any) -> AggCall:
    """Return a minimum, which is NULL over no values."""
    return AggCall("min", column, **options)


def max_(column: str, **options: Any) -> AggCall:
    """Return a maximum, which is NULL over no values."""
    return AggCall("max", column, **options)


def _condition_text(condition: Any) -> str:
    if isinstance(condition, list | tuple):
        return described_value(condition)
    return describe(condition) if callable(condition) else repr(condition)


def call_text(call: AggCall) -> str:
    """Return everything that a call does as text: ``count(distinct bidder where v > 5)``."""
    arguments = f"{'distinct ' if call.distinct else ''}{', '.join(call.columns)}"
    order = ", ".join(part if isinstance(part, str) else " ".join(map(str, part)) for part in call.order_by)
    condition = call.filter
    shown = "" if condition is None else _condition_text(condition)
    parts = [arguments, order and f"order by {order}", shown and f"where {shown}"]
    if call.kind == "string_agg":
        parts.append(f"between {call.delimiter!r}")
    return f"{call.kind}({' '.join(part for part in parts if part)})"
