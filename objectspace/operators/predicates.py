"""Conditions on rows: comparisons with constants, or Python functions of the columns that their parameters name."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from numbers import Number
from typing import Any

from objectspace.operators import rules
from objectspace.operators.bound import ExpressionError, reader
from objectspace.operators.expressions import Expression, condition
from objectspace.operators.row_functions import kind_of
from objectspace.operators.sql_rules import MAY_BE_NAN, are_doubles, common_type, comparing, rank, to_float
from objectspace.relational import DataType, RowError, SchemaError, TableSchema
from objectspace.relational.values import nearest_float32

Comparison = tuple[Any, ...]
Predicate = Comparison | list[Any] | Callable[..., Any] | Expression
"""A comparison ``("v", ">", 5)``, a list of them that must all hold, a function such as ``lambda v: v > 5``, or an
expression such as ``col("v") > 5``."""

RowTest = Callable[[Any], bool]

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""The functions that compare two values, neither of them NULL."""

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {**COMPARISONS, "in": lambda value, among: value in among}


def predicate_of(schema: TableSchema, predicate: Predicate) -> RowTest:
    """Return a function that tells whether a row satisfies a condition.

    As in SQL, a row for which the condition is unknown because of a NULL does not.

    Raises:
        SchemaError: the condition has no meaning for the schema.

    >>> from objectspace.relational import Column
    >>> schema = TableSchema([Column("k", "string"), Column("v", "int64", nullable=True)])
    >>> test = predicate_of(schema, ("v", ">", 5))
    >>> test(("a", 6)), test(("a", None)), predicate_of(schema, lambda k, v: v is None and k == "a")(("a", None))
    (True, False, True)
    """
    if callable(predicate):
        function = function_of(schema, predicate)
        return lambda row: bool(function(row))
    if isinstance(predicate, Expression):
        value = condition(predicate).bind(schema).value
        return lambda row: value(row) is True
    if isinstance(predicate, list) and predicate[:1] and isinstance(predicate[0], str):
        return _comparison(schema, tuple(predicate))
    if isinstance(predicate, list):
        tests = [_comparison(schema, part) for part in predicate]
        return lambda row: all(test(row) for test in tests)
    return _comparison(schema, predicate)


def numbered(schema: TableSchema, given: Sequence[Predicate | None]) -> tuple[list[RowTest], list[int]]:
    """Return the tests of some conditions, equal ones once, and the number of each one's test, -1 for none.

    Raises:
        SchemaError: a condition has no meaning for the schema.
    """
    found: list[Predicate] = []
    numbers: list[int] = []
    for one in given:
        known = (number for number, other in enumerate(found) if _is_same(one, other))
        numbers.append(-1 if one is None else next(known, len(found)))
        if one is not None and numbers[-1] == len(found):
            found.append(one)
    return [predicate_of(schema, one) for one in found], numbers


def _is_same(one: Predicate | None, other: Predicate) -> bool:
    if isinstance(one, Expression) or isinstance(other, Expression):
        return isinstance(one, Expression) and isinstance(other, Expression) and one.is_same(other)
    return one == other


def function_of(schema: TableSchema, function: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return a function of columns, named by its parameters, as a function of rows.

    Raises:
        SchemaError: a parameter does not name a column.
    """
    names = _parameters(function)
    if unknown := [name for name in names if name not in schema.names]:
        first = schema.names[0] if schema.names else "v"
        raise SchemaError(
            f"there is no column {unknown[0]!r}: the columns are {', '.join(schema.names)}: a function here takes"
            f" columns as its parameters, as in lambda {first}: {first} > 1"
        )
    reads = [reader(schema, name) for name in names]

    def _of_row(row: Any) -> Any:
        try:
            return function(*[read(row) for read in reads])
        except Exception as error:
            given = ", ".join(f"{name}={read(row)!r:.80}" for name, read in zip(names, reads, strict=True))
            raise ExpressionError(
                f"{describe(function)} failed for {given}: {type(error).__name__}: {error}; values may be None where a"
                " column is nullable"
            ) from error

    return _of_row


def describe(expression: Any) -> str:
    """Return a condition or function as text.

    >>> describe(("v", ">", 5)), describe([("v", ">", 5), ("v", "<", 9)])
    ('v > 5', 'v > 5 and v < 9')
    """
    if callable(expression):
        return f"{getattr(expression, '__name__', type(expression).__name__)}({', '.join(_parameters(expression))})"
    if isinstance(expression, list):
        return " and ".join(map(describe, expression))
    column, comparison, *literal = expression
    return " ".join([column, comparison, *map(repr, literal)])


def _parameters(function: Callable[..., Any]) -> list[str]:
    found = inspect.signature(function).parameters.values()
    return [one.name for one in found if one.default is one.empty and one.kind is not one.VAR_KEYWORD]


def _comparison(schema: TableSchema, parts: Sequence[Any]) -> RowTest:
    if not isinstance(parts, tuple) or not 2 <= len(parts) <= 3 or not isinstance(parts[1], str):
        raise SchemaError(f"a condition is (column, comparison, value), a list of them or a function: found {parts!r}")
    place, name = schema.place_of(parts[0]), parts[1].lower()
    if len(parts) == 2 and name in ("is null", "is not null"):
        return (lambda row: row[place] is None) if name == "is null" else (lambda row: row[place] is not None)
    if len(parts) == 2 or name not in _COMPARISONS:
        known = ", ".join([*_COMPARISONS, "is null", "is not null"])
        raise SchemaError(f"the condition {parts!r}: expected one of {known}, and a value where it takes one")
    compare, literal, kind = _COMPARISONS[name], parts[2], schema.columns[place].type
    if literal is None:
        return lambda row: False
    by_type = _by_type(kind, literal, parts)
    if kind.is_nested:
        nested_test = _nested_test(kind, compare, parts)
        return lambda row: row[place] is not None and nested_test(row[place])
    if MAY_BE_NAN.isdisjoint([one.kind for one in (kind, *by_type) if one is not None]):
        return lambda row: row[place] is not None and bool(compare(row[place], literal))
    if any(_may_round(kind, other, given) for other, given in by_type.items()):
        rules.note(rules.DOUBLES)
    tests = [_number_test(compare, given, as_double=are_doubles(kind, other)) for other, given in by_type.items()]
    test = tests[0] if len(tests) == 1 else lambda value: any(one(value) for one in tests)
    if kind.kind == "float32":
        rules.note(rules.FLOAT32)
        return lambda row: row[place] is not None and test(nearest_float32(row[place]))
    return lambda row: row[place] is not None and test(row[place])


def _may_round(kind: DataType, other: DataType | None, literal: Any) -> bool:
    """Return whether an int64 is compared with a double that may stand for other whole numbers too."""
    if not are_doubles(kind, other) or all(one is None or one.kind != "int64" for one in (kind, other)):
        return False
    numbers = literal if isinstance(literal, Collection) else [literal]
    return any(isinstance(one, int | float) and abs(one) >= 2**53 for one in numbers)


def _by_type(kind: DataType, literal: Any, parts: Sequence[Any]) -> dict[DataType | None, Any]:
    """Return what a column is compared with, by its type: a value, or the values of a list.

    Raises:
        SchemaError: they cannot be compared, or ``in`` has no list.
    """
    is_list = parts[1].lower() == "in"
    if is_list and (isinstance(literal, str | bytes) or not isinstance(literal, Collection)):
        raise SchemaError(f"the condition {parts!r}: in takes a list of values: found {literal!r:.80}")
    found: dict[DataType | None, list[Any]] = {}
    for one in () if kind.is_nested else literal if is_list else [literal]:
        # Numbers of other libraries, such as NumPy's, compare in their own way.
        is_foreign = isinstance(one, Number) and not isinstance(one, int | float | Decimal)
        other = None if is_foreign else kind_of(one)
        common_type(kind, other, f"the condition {parts!r}")
        found.setdefault(other, []).append(one)
    return {other: given if is_list else literal for other, given in found.items()}


def _nested_test(kind: DataType, compare: Callable[[Any, Any], Any], parts: Sequence[Any]) -> RowTest:
    """Return a comparison of lists or structs with one or more literals.

    Raises:
        SchemaError: a literal is of another type.
    """
    prepare, literal = comparing(kind, None), parts[2]
    assert prepare is not None
    try:
        wanted = {prepare(one) for one in literal if one is not None} if parts[1].lower() == "in" else prepare(literal)
    except RowError as error:
        raise SchemaError(f"the condition {parts!r}: {error}") from None
    return lambda value: bool(compare(prepare(value), wanted))


def _number_test(compare: Callable[[Any, Any], Any], literal: Any, *, as_double: bool) -> RowTest:
    """Return a comparison with a literal for numbers that may be NaN, which equals itself and is the greatest."""
    if as_double:
        doubles = list(map(to_float, literal)) if isinstance(literal, Collection) else to_float(literal)
        test = _number_test(compare, doubles, as_double=False)
        return lambda value: test(float(value))
    if isinstance(literal, Collection):
        of_nan = any(one != one for one in literal)
    else:
        of_nan = bool(compare(rank(float("nan")), rank(literal)))
    if literal != literal:
        of_number = bool(compare(0, 1))
        return lambda value: of_number if value == value else of_nan
    return lambda value: bool(compare(value, literal)) if value == value else of_nan
