"""Values of every column type for property tests, with what sorts them."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from objectspace.relational.types import DataType, parse_type

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)

ZONES = [UTC, timezone(timedelta(hours=5, minutes=30))]

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float32": st.floats(width=32),
    "float64": st.floats(),
    "decimal": st.decimals(allow_nan=True, allow_infinity=True, min_value=None, max_value=None).filter(
        lambda number: not number.is_finite() or abs(number.adjusted()) < 6000
    ),
    "decimal(9,3)": st.decimals(-999_999, 999_999, places=3),
    "string": TEXT | st.text(alphabet="ab\x00\x01\uffff", max_size=6),
    "binary": st.binary(max_size=12) | st.lists(st.sampled_from([0, 1, 255]), max_size=6).map(bytes),
    "date": st.dates(),
    "time": st.times(),
    "timestamp": st.datetimes(),
    "timestamptz": st.datetimes(
        datetime(1900, 1, 1),
        datetime(2200, 1, 1),
        timezones=st.sampled_from(ZONES),
    ),
}
VALUES["list<int32>"] = st.lists(st.none() | VALUES["int32"], max_size=4)
VALUES["list<string>"] = st.lists(st.none() | VALUES["string"], max_size=4)
VALUES["struct<a:int16,b:string>"] = st.fixed_dictionaries(
    {"a": st.none() | VALUES["int16"], "b": st.none() | VALUES["string"]}
)
VALUES["list<struct<d:decimal,f:float64>>"] = st.lists(
    st.none() | st.fixed_dictionaries({"d": st.none() | VALUES["decimal"], "f": st.none() | VALUES["float64"]}),
    max_size=3,
)

ORDERS = ["asc", "desc", "asc nulls last", "desc nulls first"]


def rank(value: Any, kind: DataType, nulls_first: bool = False) -> Any:
    """Return what Python sorts as a column sorts, ascending: (0 or 1 for a null, the value)."""
    if value is None:
        return (-1 if nulls_first else 1,)
    if kind.kind == "list":
        assert kind.element is not None
        return 0, [rank(item, kind.element) for item in value]
    if kind.kind == "struct":
        return 0, [rank(value[name], field) for name, field in kind.fields]
    if kind.kind.startswith("float"):
        number = struct.unpack(">f", struct.pack(">f", value))[0] if kind.kind == "float32" else value
        return 0, (1, 0.0) if math.isnan(number) else (0, number)
    if kind.kind == "decimal":
        return 0, (1, Decimal(0)) if value.is_nan() else (0, value)
    return 0, value.encode() if kind.kind == "string" else value


def type_of(name: str) -> DataType:
    return parse_type(name)


EXAMPLES: dict[str, Any] = {
    "bool": True,
    "int16": -3,
    "int32": 2**31 - 1,
    "int64": -(2**63),
    "float32": 1.5,
    "float64": -0.0,
    "decimal": Decimal("1.50"),
    "string": "a\x00\u00e9",
    "binary": b"\x00\xff",
    "date": date(2013, 1, 31),
    "time": time(23, 59, 0, 1),
    "timestamp": datetime(1969, 12, 31, 23, 59, 59, 999_999),
    "timestamptz": datetime(2013, 1, 31, 23, 59, tzinfo=UTC),
    "list<int32>": [1, None],
    "struct<a:int16,b:string>": {"a": 1, "b": None},
}
