"""What expressions are made of: functions of a row that are put together, and Python values with their types and forms.

Nothing here knows an expression, only its type and its values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from objectspace.operators import rules
from objectspace.operators.bound import Bound, Constant, ExpressionError, RowFunction
from objectspace.operators.sql_rules import common_type, comparing, widening
from objectspace.relational import DataType, RelationalError, RowError, SchemaError
from objectspace.relational.schema import Row
from objectspace.relational.types import FLOATS
from objectspace.relational.values import BadValue, checker, nearest_float32


def kind_of(value: Any) -> DataType | None:
    """Return the type of a Python value, or ``None`` if it fits several.

    Raises:
        SchemaError: no column type has such values.
    """
    if value is None or isinstance(value, timedelta):
        return None
    if isinstance(value, datetime):
        return DataType("timestamptz" if value.tzinfo else "timestamp")
    if isinstance(value, Decimal) and value.is_snan():
        raise SchemaError(f"{value!r} has no order and no double: write Decimal('NaN')")
    for cls, kind in _LITERALS:
        if isinstance(value, cls):
            return DataType(kind)
    hint = ": in a pipeline use col() and lit() of objectspace.operators" if type(value).__name__ == "Column" else ""
    raise SchemaError(f"{value!r} is a {type(value).__name__}: no column type has such values{hint}")


_LITERALS: tuple[tuple[type, str], ...] = (
    (bool, "bool"),
    (int, "int64"),
    (float, "float64"),
    (Decimal, "decimal"),
    (str, "string"),
    (bytes, "binary"),
    (date, "date"),
    (time, "time"),
)


def literal(value: Any) -> str:
    """Return a value as text; a decimal says that it is one, since it may compare differently from the same float."""
    if value is None:
        return "null"
    is_quoted = isinstance(value, str | date | time | timedelta | Decimal)
    text = "'" + str(value).replace("'", "''") + "'" if is_quoted else str(value)
    return f"decimal {text}" if isinstance(value, Decimal) else text


def form_of(kind: DataType, text: str) -> Callable[[Any], Any] | None:
    """Return a function that puts an outside value into the form that operations on its type need, if it must be.

    A ``bool`` may be anything that has a truth value, a double may be a decimal or a whole number, a 32-bit number
    becomes the nearest one, and an instant may be in any time zone. The result is ``None`` if values already have the
    form.
    """
    if kind.kind == "bool":
        return bool
    if kind.kind not in ("timestamptz", *FLOATS):
        return None
    check, widened = checker(kind), (int, Decimal) if kind.kind in FLOATS else ()
    nearest = nearest_float32 if kind.kind == "float32" else _same

    def _form(value: Any) -> Any:
        try:
            return nearest(check(float(value) if isinstance(value, widened) else value))
        except (BadValue, OverflowError) as error:
            raise RowError(f"{text}: {error}") from None

    return _form


def in_form(function: RowFunction, form: Callable[[Any], Any] | None) -> RowFunction:
    """Return a function whose results, other than NULL, are put into a form."""
    if form is None:
        return function

    def _value(row: Row) -> Any:
        value = function(row)
        return None if value is None else form(value)

    return _value


def as_branch(bound: Bound, kind: DataType | None) -> RowFunction:
    """Return a function that gives the values of an expression in the type that it has in common with others."""
    if bound.type is not None and kind is not None and bound.type.kind == "decimal" and kind.kind in FLOATS:
        rules.note(rules.BRANCHES)
    return in_form(bound.value, widening(bound.type, kind))


def both(f: RowFunction, g: RowFunction, function: Callable[[Any, Any], Any], prepare: Any = None) -> RowFunction:
    """Return a function of the values of two, NULL if either is; ``prepare`` may first change the form of both."""

    def _value(row: Row) -> Any:
        x, y = f(row), g(row)
        if x is None or y is None:
            return None
        return function(x, y) if prepare is None else function(prepare(x), prepare(y))

    return _value


def comparable(a: DataType | None, b: DataType | None, values: Iterable[Any]) -> tuple[Callable[[Any], Any], set[Any]]:
    """Return a function that makes values of one type comparable with some of another, and those in that form."""
    common_type(a, b, "is_in()")
    prepare = comparing(a, b) or _same
    return prepare, set(map(prepare, values))


def _same(value: Any) -> Any:
    return value


def in_range(symbol: str, kind: DataType, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a function of times whose error says what was out of range."""

    def _checked(x: Any, y: Any) -> Any:
        try:
            return function(x, y)
        except OverflowError:
            raise RowError(f"{x!r} {symbol} {y!r} is beyond what a {kind} holds") from None

    return _checked


def by_days(text: str, given: Iterable[Bound], function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a function of a date and a span that refuses hours, which no date can hold; known spans at once."""
    for bound in given:
        if isinstance(bound, Constant):
            _whole_days(text, bound.constant, SchemaError)

    def _checked(x: Any, y: Any) -> Any:
        for one in (x, y):
            _whole_days(text, one, RowError)
        return function(x, y)

    return _checked


def _whole_days(text: str, span: Any, error: type[RelationalError]) -> None:
    """Refuse a span that is not whole days; anything that is not a span passes."""
    if isinstance(span, timedelta) and (span.seconds or span.microseconds):
        raise error(
            f"{text}: {span!r} is not whole days, and a date has no hours: make a timestamp of the date with"
            " cast('timestamp') first"
        )


def guarded(function: Callable[..., Any], given: Callable[[Row], Sequence[Any]]) -> RowFunction:
    """Return a function that calls a user's function for a row, and says on which row it failed."""

    def _value(row: Row) -> Any:
        arguments = given(row)
        try:
            return function(*arguments)
        except RelationalError:
            raise
        except Exception as error:
            name = getattr(function, "__name__", type(function).__name__)
            raise ExpressionError(
                f"the function {name} failed for the row {row!r:.200}: {type(error).__name__}: {error}; values may be"
                " None where a column is nullable"
            ) from error

    return _value
