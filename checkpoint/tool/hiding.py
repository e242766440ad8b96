"""Which stored rows of a relational table do not exist: those below its watermark, by the same rule as its code."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from datetime import date, datetime, time
from functools import reduce
from operator import or_
from struct import pack, unpack
from typing import Any

from checkpoint.run import Slot
from checkpoint.tool.raw import INTEGER_BITS, is_integer, number_in

_VNODE_BYTES = 2
"""The bytes of the vnode that the keys of a distributed table begin with."""

_VALUES: dict[str, Callable[[Any], Any]] = {
    "float32": lambda cell: unpack("<f", pack("<f", float(cell)))[0],
    "float64": float,
    "decimal": number_in,
    "binary": b64decode,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamptz": datetime.fromisoformat,
}
"""What is compared of a cell, by the type of its column; for all others, the cell itself. NaN is below nothing."""

_EXACT = _VALUES | dict.fromkeys((*INTEGER_BITS, "float32", "float64"), number_in)
"""What is compared of two watermarks: their columns may have had different types of numbers."""


def row_hider(schema: dict[str, Any], watermarks: list[Any]) -> Callable[[Slot, dict[str, Any]], bool] | None:
    """Return a function of a row's slot and cells that tells if it is hidden; ``None`` if the table has no watermark.

    Args:
        schema: the schema of the table, as it is stored.
        watermarks: its watermarks: pairs of a bit pattern of vnodes and a cell.

    >>> schema = {"watermark_column": "b", "columns": [{"name": "b", "type": "int64"}], "vnode_column": "k"}
    >>> hides = row_hider(schema, [["1", 5], ["2", 7]])
    >>> [[hides(bytes([0, vnode]), {"b": cell}) for cell in (4, 5, 7, None)] for vnode in (0, 1, 2)]
    [[True, False, False, False], [True, True, False, False], [False, False, False, False]]
    """
    column = schema["watermark_column"]
    if column is None or not watermarks:
        return None
    value_of = _value_of(schema, _VALUES)
    marks = _marks(value_of, watermarks)
    is_distributed = bool(schema.get("distribution_key") or schema.get("vnode_column"))

    def _hides(slot: Slot, row: dict[str, Any]) -> bool:
        cell = row.get(column)
        if cell is None:
            return False
        vnode = int.from_bytes(bytes(slot)[:_VNODE_BYTES], "big") if is_distributed else 0  # type: ignore[arg-type]
        value = value_of(cell)
        return value is not None and any(bits >> vnode & 1 and value < mark for bits, mark in marks)

    return _hides


def falls_back(schema: dict[str, Any], old: list[Any], new: list[Any]) -> bool:
    """Return whether watermarks would be lower than others for any vnode.

    >>> schema = {"watermark_column": "b", "columns": [{"name": "b", "type": "int64"}]}
    >>> [falls_back(schema, [["3", 5]], new) for new in ([["1", 5], ["2", 7]], [["2", 7]], [["3", 4]])]
    [False, True, True]
    >>> falls_back(schema, [["1", "7"]], [["1", 5]])
    True
    """
    value_of = _value_of(schema, _EXACT)
    kept = _marks(value_of, new)
    return any(
        bits & ~reduce(or_, (found for found, mark in kept if mark >= lowest), 0)
        for bits, lowest in _marks(value_of, old)
    )


def misfit(schema: dict[str, Any], watermarks: list[Any]) -> str:
    """Return which watermark its column does not hold, and what the column is; empty if it holds all.

    >>> schema = {"watermark_column": "b", "columns": [{"name": "b", "type": "int16"}]}
    >>> misfit(schema, [["1", 5]]), misfit(schema, [["1", 5], ["2", "7"]])
    ('', "the watermark '7' in its column 'b' of int16")
    """
    name = schema["watermark_column"]
    if name is None:
        return ""
    kind, value_of = _type_of(schema), _value_of(schema, _VALUES)
    unheld = (cell for _, cell in watermarks if not _is_held(cell, kind, value_of))
    return next((f"the watermark {cell!r:.80} in its column {name!r} of {kind}" for cell in unheld), "")


def _is_held(cell: Any, kind: str, value_of: Callable[[Any], Any]) -> bool:
    if kind in INTEGER_BITS:
        return is_integer(cell, INTEGER_BITS[kind])
    try:
        return value_of(cell) is not None
    except (ValueError, TypeError, ArithmeticError):
        return False


def _type_of(schema: dict[str, Any]) -> str:
    return next(str(one["type"]) for one in schema["columns"] if one["name"] == schema["watermark_column"])


def _value_of(schema: dict[str, Any], values: dict[str, Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """Return a function that gives what is compared of a cell of the watermark column."""
    return values.get(_type_of(schema).partition("(")[0], lambda cell: cell)


def _marks(value_of: Callable[[Any], Any], watermarks: list[Any]) -> list[tuple[int, Any]]:
    return [(int(bits, 16), value_of(cell)) for bits, cell in watermarks]
