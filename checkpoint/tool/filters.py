"""Conditions of ``--where``: a column, a sign and a value."""

from __future__ import annotations

import operator
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar

from checkpoint.errors import CheckpointError
from checkpoint.tool import printing
from checkpoint.tool.printing import Row
from checkpoint.tool.raw import number_in

_T = TypeVar("_T", datetime, time)

_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}

_CONDITION = re.compile(r"(.+?)(==|!=|<=|>=|=|<|>)(.*)", re.DOTALL)


def condition(text: str, columns: Sequence[str], kinds: Mapping[str, str] | None = None) -> Callable[[Row], bool]:
    """Return a function that tells whether a row fulfils ``COLUMN=VALUE``; the other signs are ``!= < <= > >=``.

    Numbers, dates, times and bytes are compared as what they are, NaN as the greatest number, and everything else as
    text; ``NULL`` stands for no value, which equals no other value.

    Args:
        text: the condition.
        columns: the columns that exist.
        kinds: the types of those that have one; without a type a cell is compared as what it looks like.

    Raises:
        CheckpointError: it is not a condition, names no column, or its value is not of the column's type.

    >>> condition("delay>=9.5", ["delay"])({"delay": 10})
    True
    >>> condition("at<2026-01-31 12:00", ["at"], {"at": "timestamptz"})({"at": "2026-01-31T11:59:59.500000Z"})
    True
    """
    matched = _CONDITION.fullmatch(text)
    if matched is None:
        raise CheckpointError(f"--where takes COLUMN=VALUE (or != < <= > >=): found {text!r}")
    column, sign, value = matched[1].strip(), matched[2], matched[3]
    if column not in columns:
        near = get_close_matches(column, columns, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise CheckpointError(f"there is no column {column!r}: {hint}it has {', '.join(columns)}")
    if value == "NULL":
        if sign not in ("=", "!="):
            raise CheckpointError(f"{text!r}: NULL is compared by = and != only")
        return lambda row: (row.get(column) is None) is (sign == "=")
    what, read = _READERS.get((kinds or {}).get(column, "").partition("(")[0], ("", None))
    if read is None:
        return lambda row: _holds(row.get(column), sign, value)
    try:
        right = read(value)
    except (ValueError, ArithmeticError):
        raise CheckpointError(f"{text!r}: the column {column!r} holds {what}: expected one, found {value!r}") from None
    return lambda row: row.get(column) is not None and bool(_SIGNS[sign](read(row[column]), right))


def equalities(conditions: Iterable[str]) -> dict[str, str]:
    """Return the values that columns have to be equal to, by column: the last one of each.

    >>> equalities(["a=1", "b>2", "c == d"])
    {'a': '1', 'c': ' d'}
    """
    found = (_CONDITION.fullmatch(text) for text in conditions)
    return {one[1].strip(): one[3] for one in found if one is not None and one[2] in ("=", "==")}


def _holds(cell: Any, sign: str, value: str) -> bool:
    """Return whether a cell of unknown type fulfils a condition."""
    if cell is None:
        return False
    left: Any
    right: Any
    left, right = cell if isinstance(cell, str) else printing.as_json(cell), value
    if isinstance(cell, (int, float)) and not isinstance(cell, bool):
        left, right = Decimal(str(cell)), number_in(value)
        if right is None:
            return sign == "!="
    elif sign not in ("=", "!=") and (numbers := (number_in(left), number_in(right)))[0] is not None:
        left, right = numbers if numbers[1] is not None else (left, right)
    return bool(_SIGNS[sign](left, right))


def _number(cell: Any) -> tuple[bool, Decimal]:
    found = Decimal(str(cell))
    return (True, Decimal()) if found.is_nan() else (False, found)


def _moment(cell: str) -> datetime:
    return _without_zone(datetime.fromisoformat(cell))


def _instant(cell: str) -> datetime:
    moment = datetime.fromisoformat(cell)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _time(cell: str) -> time:
    return _without_zone(time.fromisoformat(cell))


def _without_zone(found: _T) -> _T:
    if found.tzinfo is not None:
        raise ValueError("it has a time zone")
    return found


_READERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("int16", "int32", "int64", "float32", "float64", "decimal"), ("numbers", _number)),
    "date": ("dates", date.fromisoformat),
    "time": ("times without a time zone", _time),
    "timestamp": ("timestamps without a time zone", _moment),
    "timestamptz": ("timestamps, in UTC where they name no time zone", _instant),
    "binary": ("bytes as base64", partial(b64decode, validate=True)),
}
"""What a column of a type holds, and what reads a cell of it so that it can be compared."""
