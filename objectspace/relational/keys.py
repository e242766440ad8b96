"""Keys as bytes that compare as the values do, column after column.

Each column is a tag and a body, and is self-delimiting, so the encoding of the first columns is a prefix of exactly
those rows that agree on them::

    ("ab", 7)   asc, asc      01 61 62 00 00 | 01 80 00 00 00 00 00 00 07
                              |  a  b  end     |  int64 with its sign flipped
                              value            value
    (None, 7)   desc, asc     FF             | 01 80 00 00 00 00 00 00 07

============================ =====================================================================
part                         bytes, ascending
============================ =====================================================================
tag, nulls first             00 for NULL, 01 before a value
tag, nulls last              00 before a value, 01 for NULL
bool                         00, 01
int16 int32 int64            big-endian with the sign flipped
float32 float64              IEEE 754: the sign flipped, negative numbers complemented; -0.0 is 0.0; NaN is the greatest
decimal                      class, exponent, digits in pairs, 00; complemented for negative numbers; 1.0 is 1.00
string, binary               the bytes with 00 as 00 FF, then 00 00
date time                    days and microseconds as integers
timestamp timestamptz        microseconds since 1970 as an int64
list                         01 before each element, 00 at the end; NULL elements last
struct                       field after field; NULL fields last
============================ =====================================================================

A descending column is the complement of all its bytes. Where NULL goes is said in terms of the scan's order:
``desc nulls last`` puts NULL after every value of the descending column.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from objectspace.keys import escaped
from objectspace.relational.errors import RowError, SchemaError
from objectspace.relational.types import DataType

Encoder = Callable[[Any], bytes]

FLIP = bytes(255 - byte for byte in range(256))
"""Complements bytes: ``data.translate(FLIP)``."""


@dataclass(frozen=True, init=False)
class Order:
    """The direction of a key column, and where its nulls go; by default nulls are the smallest, as in Spark.

    Args:
        descending: whether the greatest value comes first.
        nulls_first: whether nulls come before all values; by default they do unless the greatest value comes first.

    >>> str(Order.parse("desc")), str(Order(descending=True)), str(Order.parse("ASC nulls last"))
    ('desc nulls last', 'desc nulls last', 'asc nulls last')
    """

    descending: bool
    nulls_first: bool

    def __init__(self, descending: bool = False, nulls_first: bool | None = None) -> None:
        object.__setattr__(self, "descending", descending)
        object.__setattr__(self, "nulls_first", not descending if nulls_first is None else nulls_first)

    @classmethod
    def parse(cls, text: str | Order) -> Order:
        """Return the order that a text names: ``asc`` or ``desc``, then ``nulls first`` or ``nulls last``.

        Raises:
            SchemaError: it does not name an order.
        """
        if isinstance(text, Order):
            return text
        words = text.lower().split() if isinstance(text, str) else []
        direction, rest = words[:1], words[1:]
        if direction not in (["asc"], ["desc"]) or rest not in ([], ["nulls", "first"], ["nulls", "last"]):
            raise SchemaError(f"the order {text!r}: expected asc or desc, then nothing, 'nulls first' or 'nulls last'")
        return cls(direction == ["desc"], rest == ["nulls", "first"] if rest else None)

    def __str__(self) -> str:
        return f"{'desc' if self.descending else 'asc'} nulls {'first' if self.nulls_first else 'last'}"

    @property
    def tags(self) -> tuple[int, int]:
        """The byte before a value and the byte for NULL, as they are stored."""
        value, null = (1, 0) if self.nulls_first != self.descending else (0, 1)
        return (255 - value, 255 - null) if self.descending else (value, null)


def column_encoder(kind: DataType, order: Order) -> Encoder:
    """Return a function that encodes one key column: a checked value or ``None``.

    >>> from objectspace.relational.types import parse_type
    >>> column_encoder(parse_type("string"), Order.parse("asc"))("ab").hex(" ")
    '01 61 62 00 00'
    """
    value_tag, null_tag = order.tags
    null = bytes([null_tag])
    fixed = fixed_form(kind)
    if fixed is not None:
        return _fixed_encoder(fixed, value_tag, null, order.descending)
    if kind.kind in ("string", "binary") and not order.descending:
        return _text_encoder(bytes([value_tag]), null, kind.kind == "string")
    body = body_encoder(kind)
    tag = bytes([255 - value_tag if order.descending else value_tag])
    if order.descending:
        return lambda value: null if value is None else (tag + body(value)).translate(FLIP)
    return lambda value: null if value is None else tag + body(value)


@dataclass(frozen=True)
class FixedForm:
    """How a type becomes an unsigned integer of fixed width.

    Args:
        width: the number of bytes.
        offset: what is added to the number, so it is not negative.
        number: the function that turns a value into a number.
    """

    width: int
    offset: int
    number: Callable[[Any], int]

    @property
    def is_whole(self) -> bool:
        """Whether values are already numbers."""
        return self.number is _whole


def fixed_form(kind: DataType) -> FixedForm | None:
    """Return the form of a type of fixed width, or ``None`` for another type."""
    return _FIXED.get(kind.kind)


def body_encoder(kind: DataType) -> Encoder:
    """Return a function that encodes a value of a type, ascending and without a tag."""
    fixed = fixed_form(kind)
    if fixed is not None:
        return lambda value: (fixed.number(value) + fixed.offset).to_bytes(fixed.width, "big")
    if kind.kind == "list":
        assert kind.element is not None
        element = column_encoder(kind.element, _NESTED)
        return lambda value: b"".join([b"\x01" + element(item) for item in value]) + b"\x00"
    if kind.kind == "struct":
        fields = [(name, column_encoder(field, _NESTED)) for name, field in kind.fields]
        return lambda value: b"".join([encode(value[name]) for name, encode in fields])
    return _BODIES[kind.kind]


def next_key(key: bytes) -> bytes:
    """Return the smallest key greater than every key that begins with ``key``, or an empty one if there is none.

    >>> next_key(bytes([97, 255])), next_key(bytes([255]))
    (b'b', b'')
    """
    stem = key.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b""


_PACKERS = {1: ">BB", 2: ">BH", 4: ">BI", 8: ">BQ"}


def _fixed_encoder(form: FixedForm, tag: int, null: bytes, descending: bool) -> Encoder:
    pack, number, offset = struct.Struct(_PACKERS[form.width]).pack, form.number, form.offset
    if descending:
        top = 256**form.width - 1 - offset
        return lambda value: null if value is None else pack(tag, top - number(value))
    if number is _whole:
        return lambda value: null if value is None else pack(tag, value + offset)
    return lambda value: null if value is None else pack(tag, number(value) + offset)


def _text_encoder(tag: bytes, null: bytes, is_text: bool) -> Encoder:
    if is_text:
        return lambda value: null if value is None else tag + escaped(value.encode())
    return lambda value: null if value is None else tag + escaped(value)


def _whole(value: int) -> int:
    return value


def _days(value: date) -> int:
    return value.toordinal() - _FIRST_DAY


def _day_microseconds(value: time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _microseconds(value: datetime) -> int:
    since = value.replace(tzinfo=None) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _float_number(code: str, integer: str) -> Callable[[float], int]:
    pack, unpack = struct.Struct(code).pack, struct.Struct(integer).unpack
    width = struct.calcsize(code)
    sign, ones, nan = 1 << (8 * width - 1), (1 << 8 * width) - 1, unpack(pack(float("nan")))[0] & ~(1 << 8 * width - 1)

    def _number(value: float) -> int:
        bits: int = nan if value != value else unpack(pack(value + 0.0))[0]
        if bits == sign:
            bits = 0
        return bits ^ (ones if bits & sign else sign)

    return _number


_FIRST_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1)
_NESTED = Order(nulls_first=False)

_FIXED = {
    "bool": FixedForm(1, 0, int),
    "int16": FixedForm(2, 2**15, _whole),
    "int32": FixedForm(4, 2**31, _whole),
    "int64": FixedForm(8, 2**63, _whole),
    "float32": FixedForm(4, 0, _float_number(">f", ">I")),
    "float64": FixedForm(8, 0, _float_number(">d", ">Q")),
    "date": FixedForm(4, 2**31, _days),
    "time": FixedForm(8, 0, _day_microseconds),
    "timestamp": FixedForm(8, 2**63, _microseconds),
    "timestamptz": FixedForm(8, 2**63, _microseconds),
}

_NEGATIVE_INFINITY, _NEGATIVE, _ZERO, _POSITIVE, _INFINITY, _NAN = (bytes([number]) for number in range(6))


def _decimal_body(value: Decimal) -> bytes:
    if value.is_nan():
        return _NAN
    if value.is_infinite():
        return _INFINITY if value > 0 else _NEGATIVE_INFINITY
    if not value:
        return _ZERO
    digits = "".join(map(str, value.as_tuple().digits)).rstrip("0")
    pairs = bytes(int(digits[place : place + 2].ljust(2, "0")) + 1 for place in range(0, len(digits), 2))
    body = (value.adjusted() + 2**15).to_bytes(2, "big") + pairs + b"\x00"
    return _POSITIVE + body if value > 0 else _NEGATIVE + body.translate(FLIP)


_BODIES: dict[str, Encoder] = {
    "decimal": _decimal_body,
    "string": lambda value: escaped(value.encode()),
    "binary": escaped,
}


class KeyEncoder:
    """Encodes keys of several columns, whole keys and leading parts.

    Args:
        kinds: the types of the key columns.
        orders: their orders.
    """

    def __init__(self, kinds: Sequence[DataType], orders: Sequence[Order]) -> None:
        self.orders = tuple(orders)
        self.columns = tuple(column_encoder(kind, order) for kind, order in zip(kinds, orders, strict=True))

    def encode(self, values: Sequence[Any]) -> bytes:
        """Return the key of checked values, one for each of the leading columns."""
        return b"".join([encode(value) for encode, value in zip(self.columns, values)])


KeyRange = tuple[bytes, bytes]
"""From a key up to but not including another; an empty end is no end."""

NOTHING: KeyRange = (b"\x00", b"\x00")
"""The range without keys."""


INCLUSIVE = (True, True)
"""Both bounds of a range belong to it."""


def check_inclusive(table: str, inclusive: object) -> None:
    """Refuse a value that does not say for two bounds whether they belong to a range.

    Raises:
        RowError: it is not a pair.
    """
    if not isinstance(inclusive, tuple | list) or len(inclusive) != 2:
        raise RowError(
            f"table {table!r}: inclusive is a pair, (True, False) for a lower bound that belongs to the range and an"
            f" upper one that does not: found {inclusive!r:.80}"
        )


def key_range(
    encode: Callable[[Sequence[Any]], bytes],
    prefix: Sequence[Any],
    lower: Sequence[Any] | None,
    upper: Sequence[Any] | None,
    inclusive: tuple[bool, bool],
) -> KeyRange:
    """Return the keys below a prefix and between two bounds in key order.

    A bound may have fewer columns than the key: it then stands for the group of all keys that begin with it. Included,
    the whole group is in the range; excluded, none of it.
    """
    start = end = encode(prefix)
    end = next_key(end)
    if lower is not None:
        start = encode([*prefix, *lower])
        if not inclusive[0]:
            start = next_key(start)
            if not start:
                return NOTHING
    if upper is not None:
        end = encode([*prefix, *upper])
        if inclusive[1]:
            end = next_key(end)
        elif not end:
            return NOTHING
    return NOTHING if end and start >= end else (start, end)


def intersect(one: KeyRange, other: KeyRange) -> KeyRange:
    """Return the keys that are in both ranges.

    >>> intersect((b"a", b"f"), (b"c", b""))
    (b'c', b'f')
    """
    start = max(one[0], other[0])
    end = min((end for end in (one[1], other[1]) if end), default=b"")
    return NOTHING if end and start >= end else (start, end)
