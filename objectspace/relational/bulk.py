"""Keys and texts of many rows at once, column by column, with the same bytes and letters as row by row."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from operator import add
from typing import Any

from objectspace.keys import escaped
from objectspace.relational.keys import Encoder, FixedForm, Order, column_encoder, fixed_form
from objectspace.relational.types import DataType

ColumnEncoder = Callable[[Sequence[Any]], list[bytes]]
"""Encodes the values of one key column of many rows."""

MANY_ROWS = 64
"""The number of rows from which it pays to make Arrow columns of their keys."""

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""The array type code of an unsigned number of each width."""


def keys_encoder(
    kinds: Sequence[DataType], orders: Sequence[Order]
) -> Callable[[Sequence[Sequence[Any]]], list[bytes]]:
    """Return a function that encodes keys given by their columns; a key has at least one column.

    >>> from objectspace.relational.types import parse_type
    >>> encode = keys_encoder([parse_type("int16"), parse_type("string")], [Order(), Order()])
    >>> [key.hex(" ") for key in encode([(1, None), ("a", "b")])]
    ['01 80 01 01 61 00 00', '00 01 62 00 00']
    """
    columns = [column_keys(kind, order) for kind, order in zip(kinds, orders, strict=True)]
    has_blocks = any(fixed_form(kind) is not None for kind in kinds)

    def _encode(values: Sequence[Sequence[Any]]) -> list[bytes]:
        if has_blocks and len(values[0]) >= MANY_ROWS and _has_arrow():
            from objectspace.relational.keys_arrow import encode_columns

            return encode_columns(kinds, orders, values)
        parts = [encode(column) for encode, column in zip(columns, values, strict=True)]
        if len(parts) == 1:
            return parts[0]
        return list(map(add, *parts)) if len(parts) == 2 else list(map(b"".join, zip(*parts)))

    return _encode


def _has_arrow() -> bool:
    """Return whether pyarrow is loaded: it encodes quickly, but importing it takes longer than most programs encode."""
    return sys.modules.get("pyarrow") is not None and sys.modules.get("numpy") is not None


def column_keys(kind: DataType, order: Order) -> ColumnEncoder:
    """Return a function that encodes the values of one key column, which may be ``None``."""
    one, form = column_encoder(kind, order), fixed_form(kind)
    tag = bytes([255 - order.tags[0] if order.descending and form is None else order.tags[0]])
    if form is not None:
        return partial(_fixed, form=form, tag=tag, one=one, descending=order.descending)
    if kind.kind == "string" and not order.descending:
        return partial(_texts, tag=tag, one=one)
    return lambda values: list(map(one, values))


def _fixed(values: Sequence[Any], *, form: FixedForm, tag: bytes, one: Encoder, descending: bool) -> list[bytes]:
    """Encode numbers and whatever counts as a number."""
    if None in values:
        return list(map(one, values))
    width = form.width
    numbers = values if form.is_whole else map(form.number, values)
    move = (256**width - 1 - form.offset).__sub__ if descending else form.offset.__add__
    packed = array(_CODES[width], map(move, numbers))
    if sys.byteorder == "little":
        packed.byteswap()
    data = packed.tobytes()
    return [tag + data[start : start + width] for start in range(0, len(data), width)]


def _texts(values: Sequence[Any], *, tag: bytes, one: Encoder) -> list[bytes]:
    """Encode texts in ascending order."""
    if None in values:
        return list(map(one, values))
    data = list(map(str.encode, values))
    if b"\x00" in b"".join(data):
        return [tag + escaped(value) for value in data]
    return [tag + value + b"\x00\x00" for value in data]


def split_texts(whole: str, rows: int) -> list[str] | None:
    """Return the texts of the rows in the text of a list of rows, without their brackets.

    Return ``None`` if the text does not show where a row ends.

    >>> split_texts('[[1,"a"],[2,"b"]]', 2), split_texts('[["],["]]', 1)
    (['1,"a"', '2,"b"'], None)
    """
    parts = whole[2:-2].split("],[")
    return parts if len(parts) == rows else None
