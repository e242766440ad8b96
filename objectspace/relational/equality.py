"""When rows are equal in SQL: as in Python, except that NaN is NaN, and a ``float32`` is the nearest 32-bit float."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from objectspace.relational.types import DataType
from objectspace.relational.values import nearest_float32

Equal = Callable[[Any, Any], bool]
"""Tells whether two values, or two rows, are equal."""


def equality(kinds: Sequence[DataType]) -> Equal:
    """Return a function that tells whether two checked rows with columns of these types are equal.

    >>> from objectspace.relational.types import parse_type
    >>> equal = equality([parse_type("int64"), parse_type("list<float64>")])
    >>> equal((1, [0.0, float("nan")]), (1, [-0.0, float("nan")])), equal((1, [0.5]), (2, [0.5]))
    (True, False)
    """
    tests = [_of_unlike(kind) for kind in kinds]
    if not any(tests):
        return operator.eq

    def _equal(one: Any, other: Any) -> bool:
        if one == other:
            return True
        for test, mine, yours in zip(tests, one, other):
            if mine != yours and (test is None or mine is None or yours is None or not test(mine, yours)):
                return False
        return True

    return _equal


def likeness(equal: Equal) -> Equal:
    """Return a function that tells whether two rows are equal and spelled alike, from one that tells equality.

    1.0 and 1.00 are equal, and so are 0.0 and -0.0; but a cast to text, for example, shows which it was.

    >>> from objectspace.relational.types import parse_type
    >>> alike = likeness(equality([parse_type("float64")]))
    >>> alike((float("nan"),), (float("nan"),)), alike((0.0,), (-0.0,))
    (True, False)
    """
    if equal is operator.eq:
        return equal
    return lambda one, other: one is other or (equal(one, other) and repr(one) == repr(other))


def _of_unlike(kind: DataType) -> Equal | None:
    """Return a function that tells whether two values that differ in Python are equal, or ``None`` if none are."""
    if kind.kind == "list":
        assert kind.element is not None
        equal = equality([kind.element])
        return None if equal is operator.eq else lambda one, other: _equal_lists(equal, one, other)
    if kind.kind == "struct":
        names, equal = [name for name, _ in kind.fields], equality([field for _, field in kind.fields])
        if equal is operator.eq:
            return None
        return lambda one, other: equal([one[name] for name in names], [other[name] for name in names])
    return _TESTS.get(kind.kind)


def _equal_lists(equal: Equal, one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(equal((mine,), (yours,)) for mine, yours in zip(one, other))


def _equal_float32(one: float, other: float) -> bool:
    return nearest_float32(one) == nearest_float32(other) or _are_nan(one, other)


def _are_nan(one: Any, other: Any) -> bool:
    return bool(one != one and other != other)


_TESTS: dict[str, Equal] = {"float32": _equal_float32, "float64": _are_nan, "decimal": _are_nan}
