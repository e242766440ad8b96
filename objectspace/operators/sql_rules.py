"""The SQL rules that expressions follow: types of results, comparisons of non-numbers, divisions, casts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal, Overflow
from typing import Any

from objectspace.decimals import DECIMAL_TEXT, decimal_context
from objectspace.relational import DataType, RowError, SchemaError
from objectspace.relational.keys import body_encoder
from objectspace.relational.types import FLOATS, NUMBERS, TIMES
from objectspace.relational.values import BadValue, checker, nearest_float32

_CAST = decimal_context(76)
"""The context for casting them: what does not fit raises, and is refused by the expression."""

_EXACT = decimal_context(60_000, traps=[Overflow])
"""The context for other operations on decimals, which rounds none that a column accepts; infinity minus infinity is
NaN, as with floats."""

EXACT_NUMBERS = frozenset(NUMBERS) - {*FLOATS}

MAY_BE_NAN = frozenset([*FLOATS, "decimal"])
"""Types whose values may be NaN, which are compared by their :func:`rank`."""


def result_type(symbol: str, a: DataType | None, b: DataType | None) -> DataType | None:
    """Return the type of an arithmetic operation; ``None`` stands for a span of time.

    Raises:
        SchemaError: it does not accept these types.
    """
    kinds = [None if one is None else one.kind for one in (a, b)]
    if None in kinds and symbol in "+-":
        other = next((kind for kind in kinds if kind is not None), None)
        if symbol == "-" and kinds[1] in TIMES:
            raise SchemaError(
                f"no {other} is taken from a span of time: write the {other} first, and the span after it"
            )
        if other in (*TIMES, None):
            return None if other is None else DataType(other)
    bad = [kind for kind in kinds if kind not in NUMBERS]
    if bad:
        also = ", or a time and a span of time" if symbol in "+-" else ""
        found = bad[0] or "a span of time"
        raise SchemaError(f"{symbol} takes numbers{also}: found {found}; call() computes anything else")
    if symbol == "/" or set(kinds) & set(FLOATS):
        return DataType("float64")
    return DataType("decimal" if "decimal" in kinds else "int64")


def common_type(a: DataType | None, b: DataType | None, where: str) -> DataType | None:
    """Return the type that two expressions have in common.

    Raises:
        SchemaError: they have none.
    """
    if a is None or b is None:
        return a or b
    if a == b:
        return a
    kinds = [a.kind, b.kind]
    if all(kind in NUMBERS for kind in kinds):
        if set(kinds) & set(FLOATS):
            return DataType("float64")
        return DataType("decimal" if "decimal" in kinds else "int64")
    raise SchemaError(f"{where} takes values of one type: found {a} and {b}")


def rank(value: Any) -> Any:
    """Return a number that compares as in SQL: NaN is equal to itself and greater than all others."""
    return (1, 0) if value != value else (0, value)


def comparing(a: DataType | None, b: DataType | None) -> Callable[[Any], Any] | None:
    """Return a function that makes values of two types comparable as in SQL, or ``None`` if they already are.

    A decimal or a whole number beside a double is compared as a double: ``0.1`` is the same number in both. Lists and
    structs are compared as keys are: value by value, where NULL is equal to itself and comes last.

    >>> from objectspace.relational.types import parse_type
    >>> key = comparing(parse_type("list<float64>"), None)
    >>> key([1.0]) < key([math.nan]) == key([-math.nan]) < key([None]) == key([None])
    True
    """
    nested = next((one for one in (a, b) if one is not None and one.is_nested), None)
    if nested is not None:
        return _nested_key(nested)
    if are_doubles(a, b):
        return lambda value: rank(to_float(value))
    return rank if any(one is not None and one.kind in MAY_BE_NAN for one in (a, b)) else None


def are_doubles(a: DataType | None, b: DataType | None) -> bool:
    """Return whether values of two types are compared as doubles: a decimal or an int64 beside a double is."""
    kinds = {one.kind for one in (a, b) if one is not None}
    return not kinds.isdisjoint(("decimal", "int64")) and not kinds.isdisjoint(FLOATS)


def _nested_key(kind: DataType) -> Callable[[Any], bytes]:
    """Return a function that turns a list or struct, perhaps a function's result, into bytes that compare alike."""
    check, encode = checker(kind), body_encoder(kind)

    def _key(value: Any) -> bytes:
        try:
            return encode(check(value))
        except BadValue as error:
            raise RowError(f"{value!r:.80} cannot be compared as {kind}: {error}") from None

    return _key


def widening(kind: DataType | None, wanted: DataType | None) -> Callable[[Any], Any] | None:
    """Return a function that converts values to the type that theirs has in common with others; ``None`` if not needed.

    >>> widening(DataType("decimal", 5, 2), DataType("float64"))(Decimal("0.10"))
    0.1
    """
    if kind is None or wanted is None or kind.kind not in EXACT_NUMBERS:
        return None
    if wanted.kind in FLOATS:
        return to_float
    return Decimal if wanted.kind == "decimal" != kind.kind else None


def to_float(value: Any) -> Any:
    """Return a number as a double, which is infinite for a number out of range."""
    try:
        return float(value)
    except OverflowError:  # For a decimal, Python gives infinity itself.
        return math.inf if value > 0 else -math.inf


def _quotient(x: Any, y: Any) -> Any:
    """Divide and cut off the fraction, as in SQL; NULL by zero."""
    if y == 0:
        return None
    if isinstance(x, float):
        found = x / y
        return float(math.trunc(found)) if math.isfinite(found) else found
    whole = abs(x) // abs(y)
    return whole if (x < 0) == (y < 0) else -whole


def _remainder(x: Any, y: Any) -> Any:
    """Return the remainder, with the sign of the dividend, as in SQL; NULL by zero."""
    if y == 0:
        return None
    if isinstance(x, float):
        return math.nan if math.isinf(x) else math.fmod(x, y)
    return (1 if x >= 0 else -1) * (abs(x) % abs(y))


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: None if y == 0 else x / y,
    "//": _quotient,
    "%": _remainder,
}

WIDE_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda x, y: _EXACT.add(Decimal(x), Decimal(y)),
    "-": lambda x, y: _EXACT.subtract(Decimal(x), Decimal(y)),
    "*": lambda x, y: _EXACT.multiply(Decimal(x), Decimal(y)),
    "//": lambda x, y: None if y == 0 else _EXACT.divide_int(Decimal(x), Decimal(y)),
    "%": lambda x, y: None if y == 0 else _EXACT.remainder(Decimal(x), Decimal(y)),
}

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
    "=": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
}


def caster(wanted: DataType, given: DataType | None = None) -> Callable[[Any], Any]:
    """Return a function that casts to a type of :data:`CASTS`; decimals are rounded to scale, half away from zero.

    It raises an ``ArithmeticError``, a ``TypeError`` or a ``ValueError`` for a value that cannot be cast to the type.

    Args:
        wanted: the type.
        given: the type of the values.

    >>> caster(DataType("decimal", 5, 2))("1.005")
    Decimal('1.01')
    """
    if given is not None and wanted.kind == "string" and given.kind in _TEXTS:
        return _TEXTS[given.kind]
    plain = CASTS[wanted.kind]
    if wanted.kind not in EXACT_NUMBERS:
        return plain
    check = checker(wanted)
    if wanted.scale is None:
        return lambda value: check(plain(value))
    unit = Decimal((0, (1,), -wanted.scale))
    return lambda value: check(plain(value).quantize(unit, ROUND_HALF_UP, _CAST))


def _number(value: Any) -> Any:
    """Return what a number is made from: text in ASCII, without the underscores that Python would ignore."""
    if isinstance(value, str) and ("_" in value or not value.isascii()):
        raise ValueError("this is no number in SQL")
    return value


def _float32_text(value: float) -> str:
    """Return a 32-bit number as text, with as many digits as tell it from others.

    >>> _float32_text(nearest_float32(0.1))
    '0.1'
    """
    fewest = 6 if abs(value) >= _LEAST_NORMAL else 1
    shortest = (float(f"{value:.{digits}g}") for digits in range(fewest, 10))
    return str(next((one for one in shortest if nearest_float32(one) == value), value))


_TEXTS: dict[str, Callable[[Any], str]] = {"decimal": DECIMAL_TEXT.to_sci_string, "float32": _float32_text}
"""How numbers are written of which Python's own text depends on a context, or is that of a double."""

_LEAST_NORMAL = 2.0**-126
"""From this number on, a 32-bit number has at least six digits."""


def _date(value: Any) -> Any:
    if isinstance(value, str):
        if not _DATE.fullmatch(value):
            raise ValueError("this is no date in SQL")
        return date.fromisoformat(value.strip())
    return value.date() if isinstance(value, datetime) else value


def _timestamp(value: date) -> datetime:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return datetime(value.year, value.month, value.day)


_DATE = re.compile(r"\s*\d{4}-\d{2}-\d{2}\s*", re.ASCII)

CASTS: dict[str, Callable[[Any], Any]] = {
    "int16": lambda value: int(_number(value)),
    "int32": lambda value: int(_number(value)),
    "int64": lambda value: int(_number(value)),
    "float32": lambda value: nearest_float32(float(_number(value))),
    "float64": lambda value: float(_number(value)),
    "decimal": lambda value: Decimal(str(value) if isinstance(value, float) else _number(value), DECIMAL_TEXT),
    "string": lambda value: str(value).lower() if isinstance(value, bool) else str(value),
    "date": _date,
    "timestamp": _timestamp,
}


def castable(wanted: DataType) -> tuple[str, ...]:
    """Return the types whose values can be cast to a type of :data:`CASTS`."""
    times = tuple(sorted(TIMES))
    if wanted.kind == "date":
        return (*times, "string")
    if wanted.kind == "timestamp":
        return times
    numbers = (*NUMBERS, "bool", "string")
    return (*numbers, "time", *times) if wanted.kind == "string" else numbers
