"""Conditions of ``--where``: a column, a sign and a value."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from typing import Any

from checkpoint.errors import CheckpointError
from checkpoint.tool import printing
from checkpoint.tool.printing import Row

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


def condition(
    text: str, columns: Sequence[str], decimals: Collection[str] = (), numbers: Collection[str] = ()
) -> Callable[[Row], bool]:
    """Return what tells whether a row fulfils ``COLUMN=VALUE``; the other signs are ``!= < <= > >=``.

    Numbers are compared as numbers, all else as text; ``NULL`` stands for no value, which no other value is like.

    Args:
        text: the condition.
        columns: the columns that there are.
        decimals: those that hold decimals, which are kept as text.
        numbers: those that hold nothing but numbers.

    Raises:
        CheckpointError: it is no condition, names no column, or compares numbers with what is none.

    >>> condition("delay>=9.5", ["delay"])({"delay": 10})
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
    if column in (*decimals, *numbers) and _number(value) is None and value.lower() != "nan":
        raise CheckpointError(f"{text!r}: the column {column!r} holds numbers: expected one, found {value!r}")
    return lambda row: _holds(row.get(column), sign, value, is_decimal=column in decimals)


def _holds(cell: Any, sign: str, value: str, *, is_decimal: bool) -> bool:
    if cell is None:
        return False
    left: Any
    right: Any
    left, right = cell if isinstance(cell, str) else printing.as_json(cell), value
    if isinstance(cell, (int, float)) and not isinstance(cell, bool):
        left, right = Decimal(str(cell)), _number(value)
        if right is None:
            return sign == "!="
    elif (is_decimal or sign not in ("=", "!=")) and (numbers := (_number(left), _number(right)))[0] is not None:
        left, right = numbers if numbers[1] is not None else (left, right)
    return bool(_SIGNS[sign](left, right))


def _number(text: str) -> Decimal | None:
    try:
        found = Decimal(text)
    except InvalidOperation:
        return None
    return found if not found.is_nan() else None
