"""Column values: the check that gives a value its one form, and its cell in the JSON of a stored row."""

from __future__ import annotations

import math
import operator
import struct
from binascii import Error as BinasciiError
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import Any

from objectspace.decimals import DECIMAL_TEXT, decimal_context
from objectspace.relational.types import DECIMAL_DIGITS_MAX, DataType

Check = Callable[[Any], Any]
"""Returns a value in its one form, or raises :class:`BadValue`."""

Cell = Callable[[Any], Any]
"""Turns a value into its JSON form, or back."""

DECIMAL_EXPONENT_MAX = 6144
"""Decimals beyond this exponent are refused: their digits would fill the memory."""

_EXACT = decimal_context(4 * DECIMAL_EXPONENT_MAX)
"""Rounds none of the decimals that are accepted."""

_INTEGER_BITS = {"int16": 16, "int32": 32, "int64": 64}


class BadValue(ValueError):
    """A value does not fit its type; the caller, which knows them, names the table and the column."""


def checker(kind: DataType) -> Check:
    """Return the check of a type, which gives a value its one form or says what is wrong with it.

    The check of a type never gets ``None``.
    """
    if kind.kind in _INTEGER_BITS:
        return _integer_check(_INTEGER_BITS[kind.kind])
    if kind.kind == "list":
        assert kind.element is not None
        return _list_check(checker(kind.element), kind)
    if kind.kind == "struct":
        return _struct_check({name: checker(field) for name, field in kind.fields}, kind)
    if kind.precision is not None:
        return _exact_decimal_check(kind)
    return _CHECKS[kind.kind]


def _integer_check(bits: int) -> Check:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def _check(value: Any) -> Any:
        if type(value) is int:
            if low <= value <= high:
                return value
            raise BadValue(f"{value} is out of range ({low} to {high})")
        return _check(_index(_unwrapped(value, f"int{bits}"), f"int{bits}"))

    return _check


def _index(value: Any, wanted: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise _wrong(value, wanted)
    return operator.index(value)


def _unwrapped(value: Any, wanted: str) -> Any:
    """Return a NumPy value as Python's own."""
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return value.item()
    if type(value).__module__.startswith(("pandas", "numpy")) and not isinstance(value, datetime):
        raise _wrong(value, wanted)
    return value


def _wrong(value: Any, wanted: str) -> BadValue:
    name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return BadValue(f"expected {wanted}, found {name} {value!r:.80}")


def _bool(value: Any) -> Any:
    plain = _unwrapped(value, "bool")
    if type(plain) is not bool:
        raise _wrong(value, "bool")
    return plain


def _float64(value: Any) -> Any:
    if type(value) is float:
        return value
    plain = _unwrapped(value, "float64")
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        raise _wrong(value, "float64")
    try:
        number = float(plain)
    except OverflowError:
        raise BadValue(f"{plain!r:.60} is out of range") from None
    if number != plain and number == number:
        raise BadValue(f"{plain!r} is no 64-bit float: the nearest one is {number!r}")
    return number


def _float32(value: Any) -> Any:
    number = _float64(value)
    try:
        _FLOAT32.pack(number)
    except OverflowError:
        raise BadValue(f"{number!r} is out of range for a 32-bit float") from None
    return number


_FLOAT32 = struct.Struct(">f")


def nearest_float32(value: float) -> float:
    """Return the 32-bit float that is nearest to a number."""
    return float(_FLOAT32.unpack(_FLOAT32.pack(value))[0])


def _decimal(value: Any) -> Any:
    plain = value if type(value) is Decimal else _unwrapped(value, "decimal")
    if isinstance(plain, float):
        raise BadValue(f"{plain!r} is a float: pass Decimal({str(plain)!r}), or use a float64 column")
    if isinstance(plain, bool) or not isinstance(plain, int | Decimal):
        raise _wrong(value, "decimal")
    number = Decimal(plain)
    if number.is_nan():
        return Decimal("NaN")
    if number.is_finite() and (
        abs(number.adjusted()) > DECIMAL_EXPONENT_MAX or abs(int(number.as_tuple().exponent)) > 2 * DECIMAL_EXPONENT_MAX
    ):
        raise BadValue(f"the exponent of a decimal is {DECIMAL_EXPONENT_MAX} at most: it is {number.adjusted()}")
    return number


def _exact_decimal_check(kind: DataType) -> Check:
    assert kind.precision is not None
    assert kind.scale is not None
    scale, whole = kind.scale, kind.precision - kind.scale

    def _check(value: Any) -> Any:
        number = _decimal(value)
        if not number.is_finite():
            raise BadValue(f"{number} has no place in a {kind}: use a decimal column")
        shortest = number.normalize(_EXACT)
        if int(shortest.as_tuple().exponent) < -scale or (shortest and shortest.adjusted() >= whole):
            raise BadValue(f"{number} does not fit {kind}: {whole} digits before the point, {scale} after it")
        return number

    return _check


def _string(value: Any) -> Any:
    if type(value) is not str:
        if not isinstance(value, str):
            raise _wrong(value, "string")
        value = str.__str__(value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadValue(f"{value!r:.60} holds a lone surrogate, and is not text: use a binary column") from None
    return value


def _binary(value: Any) -> Any:
    if type(value) is bytes:
        return value
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _wrong(value, "binary")
    return bytes(value)


def _date(value: Any) -> Any:
    if type(value) is not date:
        raise _wrong(value, "date")
    return value


def _time(value: Any) -> Any:
    if not isinstance(value, time):
        raise _wrong(value, "time")
    if value.tzinfo is not None:
        raise BadValue(f"{value!r} has a time zone: a time has none")
    return value.replace(fold=0)


def _moment(value: Any, wanted: str) -> datetime:
    if not isinstance(value, datetime) or value != value:
        raise _wrong(value, wanted)
    if getattr(value, "nanosecond", 0):
        raise BadValue(f"{value!r} has nanoseconds: a {wanted} has microseconds; round it first")
    if type(value) is datetime and not value.fold:
        return value
    return datetime.combine(value.date(), value.time(), value.tzinfo).replace(fold=value.fold)


def _timestamp(value: Any) -> Any:
    moment = _moment(value, "timestamp")
    if moment.tzinfo is not None:
        raise BadValue(f"{value!r} has a time zone: use a timestamptz column, or value.replace(tzinfo=None)")
    return moment.replace(fold=0) if moment.fold else moment


def _timestamptz(value: Any) -> Any:
    moment = _moment(value, "timestamptz")
    if moment.tzinfo is UTC:
        return moment
    if moment.utcoffset() is None:
        raise BadValue(f"{value!r} has no time zone: use a timestamp column, or value.replace(tzinfo=UTC)")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise BadValue(f"{value!r} is out of range in UTC") from None


def _list_check(element: Check, kind: DataType) -> Check:
    def _check(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise _wrong(value, str(kind))
        return [
            None if item is None else _inside(element, item, f"element {place}") for place, item in enumerate(value)
        ]

    return _check


def _struct_check(fields: dict[str, Check], kind: DataType) -> Check:
    def _check(value: Any) -> Any:
        if not isinstance(value, Mapping):
            if not isinstance(value, list | tuple) or len(value) != len(fields):
                raise _wrong(value, str(kind))
            value = dict(zip(fields, value, strict=True))
        if value.keys() != fields.keys():
            raise BadValue(f"expected the fields {list(fields)} of {kind}, found {list(value)}")
        return {
            name: None if value[name] is None else _inside(field, value[name], f"field {name!r}")
            for name, field in fields.items()
        }

    return _check


def _inside(check: Check, value: Any, where: str) -> Any:
    try:
        return check(value)
    except BadValue as error:
        raise BadValue(f"{where}: {error}") from None


_CHECKS: dict[str, Check] = {
    "bool": _bool,
    "float32": _float32,
    "float64": _float64,
    "decimal": _decimal,
    "string": _string,
    "binary": _binary,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
}


# Cells ----------------------------------------------------------------------------------------------------------------


def form_test(kinds: Sequence[tuple[DataType, bool]]) -> tuple[Callable[[Any], bool], Callable[[Any], bool]]:
    """Return quick tests of whether a row, or many rows, are already in their one form; they may miss some.

    Nearly all rows are in that form.

    Args:
        kinds: the type of each column, and whether it is nullable.

    >>> from objectspace.relational.types import parse_type
    >>> test, test_all = form_test([(parse_type("int64"), False), (parse_type("string"), True)])
    >>> test((1, None)), test((None, "a")), test((2**63, "a")), test_all([(1, None), (None, "a")])
    (True, False, False, False)
    """
    tests = ["type(row) is tuple", f"len(row) == {len(kinds)}"]
    for place, (kind, nullable) in enumerate(kinds):
        test = _form_of(kind).format(f"row[{place}]")
        tests.append(f"(row[{place}] is None or {test})" if nullable else test)
    return _compiled(" and ".join(tests))


@lru_cache(maxsize=512)
def _compiled(test: str) -> tuple[Callable[[Any], bool], Callable[[Any], bool]]:
    """Return functions from the text of a row test, compiled once because pipelines often make the same schemas."""
    names = {"Decimal": Decimal, "QUANTA": _QUANTA, "UTC": UTC, "date": date, "datetime": datetime, "time": time}
    # One loop in one expression: a call for each row would cost more than the test.
    return eval(f"lambda row: {test}", names), eval(f"lambda rows: all([{test} for row in rows])", names)


def _form_of(kind: DataType) -> str:
    """Return a test for the one form of a type, as an expression; values that fail it are always checked."""
    if kind.precision is not None and kind.scale is not None:
        is_short = f"({{0}}.same_quantum(QUANTA[{kind.scale}]) or {{0}}.as_tuple()[2] >= {-kind.scale})"
        return f"{_FINITE} and {{0}}.adjusted() < {kind.precision - kind.scale} and {is_short}"
    return _FORMS.get(kind.kind, "False")


_QUANTA = [Decimal((0, (1,), -scale)) for scale in range(DECIMAL_DIGITS_MAX + 1)]
"""A decimal of each scale: comparing with it is faster than asking for an exponent."""

_FINITE, _MOST = "type({0}) is Decimal and {0}.is_finite()", DECIMAL_EXPONENT_MAX

_FORMS = {
    "bool": "type({0}) is bool",
    "int16": f"type({{0}}) is int and {-(2**15)} <= {{0}} <= {2**15 - 1}",
    "int32": f"type({{0}}) is int and {-(2**31)} <= {{0}} <= {2**31 - 1}",
    "int64": f"type({{0}}) is int and {-(2**63)} <= {{0}} <= {2**63 - 1}",
    "float64": "type({0}) is float",
    # That many characters hold no more digits, so no exponent is too small either.
    "decimal": f"{_FINITE} and abs({{0}}.adjusted()) <= {_MOST} and len(str({{0}})) <= {_MOST}",
    # A lone surrogate is not printable.
    "string": "type({0}) is str and ({0}.isascii() or {0}.isprintable())",
    "binary": "type({0}) is bytes",
    "date": "type({0}) is date",
    "time": "type({0}) is time and {0}.tzinfo is None and not {0}.fold",
    "timestamp": "type({0}) is datetime and {0}.tzinfo is None and not {0}.fold",
    "timestamptz": "type({0}) is datetime and {0}.tzinfo is UTC and not {0}.fold",
}
"""The forms of types without parameters."""


def to_cell(kind: DataType) -> Cell | None:
    """Return a function that turns a checked value, perhaps ``None``, into JSON; ``None`` if it is JSON already."""
    inner = _to_inner(kind)
    return None if inner is None else lambda value: None if value is None else inner(value)


def from_cell(kind: DataType) -> Cell | None:
    """Return a function that turns a stored cell back into its value, or ``None`` if it is the value already."""
    inner = _from_inner(kind)
    return None if inner is None else lambda cell: None if cell is None else inner(cell)


def _to_inner(kind: DataType) -> Cell | None:
    if kind.kind == "list":
        assert kind.element is not None
        element = to_cell(kind.element)
        return None if element is None else lambda value: [element(item) for item in value]
    if kind.kind == "struct":
        cells = [(name, to_cell(field) or _same) for name, field in kind.fields]
        return lambda value: [cell(value[name]) for name, cell in cells]
    return _TO_CELL.get(kind.kind)


def _from_inner(kind: DataType) -> Cell | None:
    if kind.kind == "list":
        assert kind.element is not None
        element = from_cell(kind.element)
        return None if element is None else lambda cell: [element(item) for item in cell]
    if kind.kind == "struct":
        values = [(name, from_cell(field) or _same) for name, field in kind.fields]
        return lambda cell: {name: value(item) for (name, value), item in zip(values, cell, strict=True)}
    return _FROM_CELL.get(kind.kind)


def _same(value: Any) -> Any:
    return value


def _float_cell(value: float) -> Any:
    return value if math.isfinite(value) else repr(value)


def _cell_binary(cell: str) -> bytes:
    try:
        return a2b_base64(cell, strict_mode=True)
    except BinasciiError as error:
        raise ValueError(str(error)) from None


_TO_CELL: dict[str, Cell] = {
    "float32": _float_cell,
    "float64": _float_cell,
    "decimal": DECIMAL_TEXT.to_sci_string,
    "binary": lambda value: b2a_base64(value, newline=False).decode(),
    "date": date.isoformat,
    "time": time.isoformat,
    "timestamp": datetime.isoformat,
    "timestamptz": lambda value: value.replace(tzinfo=None).isoformat() + "Z",
}

_FROM_CELL: dict[str, Cell] = {
    "float32": float,
    "float64": float,
    "decimal": DECIMAL_TEXT.create_decimal,
    "binary": _cell_binary,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamptz": datetime.fromisoformat,
}
