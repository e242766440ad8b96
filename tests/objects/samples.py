"""Values and keys to store, chosen for what they break, and how to compare them exactly."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

VALUES: list[Any] = [
    0, 1, -1, None, True, False, 1.0, 0.0, -0.0, float("nan"), float("inf"), 2**64, -(2**200), "", "text", "\ud800",
    "$dict", b"", b"\x00\xff", (), (1, (2,)), [], [1, [2]], {}, {"a": [1]}, {"$bytes": 1}, {1: "x", None: 2}, {1, "a"},
    frozenset({1}), Decimal("1.50"), date(2013, 1, 31), datetime(2013, 1, 31, 5, tzinfo=UTC), timedelta(days=-1),
    UUID(int=7), 1 + 2j, bytearray(b"b"),
]  # fmt: skip

KEYS: list[Any] = [
    0, False, -0.0, 1, True, 1.0, Decimal(1), 1 + 0j, 2, 3, -7, 1.5, Decimal("1.5"), Decimal("0.1"), 2**63, 2.0**63, "",
    "a", "1", "\x00", "\ud800", b"", b"a", None, (), (1,), (True,), (1, "a"), (1, (2.0,)), frozenset(), frozenset({1}),
    float("inf"), date(2013, 1, 31), datetime(2013, 1, 31), datetime(2013, 1, 31, 5, tzinfo=UTC),
    datetime(2013, 1, 31, 6, tzinfo=timezone(timedelta(hours=1))), timedelta(1), UUID(int=7), 10**5000,
]  # fmt: skip

NUMBERS: list[Any] = [
    0, -0.0, False, 1, True, 1.0, 2, 2.5, Decimal("2.5"), Decimal("0.1"), 0.1, 3, -3, 7, 2**63, -(2**63), 2**63 - 1,
    2.0**63, float("inf"), -float("inf"), 10**400, Decimal("1E-400"), Decimal("1E+400"), Decimal("-3E+400"),
    Decimal("0E+9999"), Decimal("-0E-9999"),
]  # fmt: skip

TUPLES: list[Any] = [(), (1,), (True,), (1, 2), (1, 2.0), (1, 3), (2,), (2, -1), (2**70,), (Decimal("0.1"), 5), (0,)]

TEXTS: list[Any] = ["", "a", "A", "aa", "a\x00", "a\x00b", "b", "é", "\U0001f600", "\uffff", "1"]

values = st.one_of(st.integers(0, 9), st.sampled_from(VALUES)).map(deepcopy)
keys = st.one_of(st.integers(0, 30), st.sampled_from(KEYS))


def shape(value: Any) -> str:
    """Return text that two values share only if they are the same in type and content, all the way down."""
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(shape, value))})"
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}({', '.join(sorted(map(shape, value)))})"
    if isinstance(value, dict):
        return f"dict({', '.join(f'{shape(key)}: {shape(item)}' for key, item in value.items())})"
    return f"{type(value).__name__} {hash(value)}" if type(value) is int and abs(value) > 2**99 else repr(value)


def change_in_place(value: Any) -> None:
    """Change a mutable value; leave any other as it is."""
    if isinstance(value, list):
        value.append(len(value))
    elif isinstance(value, dict):
        value[str(len(value))] = len(value)
    elif isinstance(value, set):
        value.add(len(value))
