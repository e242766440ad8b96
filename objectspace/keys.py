"""Keys as slots: equal keys give the same slot, and slots sort in SQLite as their keys sort in Python.

Integers of 64 bits, other floats and text are stored as they are, because SQLite orders them as Python does. Everything
else becomes bytes: one class byte, then a body that compares byte by byte as the values compare. Numbers that are equal
(``1``, ``1.0``, ``True``, ``Decimal(1)``) are one key to Python, so they share one slot. If the slot does not tell the
key with its type (:func:`is_exact`), the key is stored beside the value.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import cache
from numbers import Complex, Real
from typing import Any, SupportsInt
from uuid import UUID
from zoneinfo import ZoneInfo

from checkpoint.run import Slot
from objectspace.codec import (
    ClassChanged,
    Unencodable,
    ZoneChanged,
    encode,
    field_of,
    is_registered,
    is_utf8,
    name_of,
)
from objectspace.errors import shown

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
DECIMAL_EXPONENT_MAX = 6144
"""Decimals beyond this exponent, but for zero, are refused as keys: their exact digits would fill the memory."""

_CLASSES = (
    "none",
    "number",
    "text",
    "bytes",
    "date",
    "datetime",
    "aware",
    "time",
    "timedelta",
    "uuid",
    "tuple",
    "other",
)
_PLAIN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (bytes, bytes),
    (Real, int),
    (Real, float),
    (Fraction, lambda key: _as_decimal(key)),
    (Complex, complex),
    (Decimal, Decimal),
    (memoryview, bytes),
    (time, lambda key: time(key.hour, key.minute, key.second, key.microsecond)),  # Its zone may say nothing of it.
    (datetime, lambda key: datetime.combine(key.date(), key.timetz())),
    (date, lambda key: date(key.year, key.month, key.day)),
    (timedelta, lambda key: timedelta(key.days, key.seconds, key.microseconds)),
    (SupportsInt, int),  # A numpy bool is not a number to Python, and yet equals one.
)
"""What turns a value of another type into a plain one."""

_TAG = {name: bytes([0x10 + position]) for position, name in enumerate(_CLASSES)}
_EPOCH = datetime(1, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


def to_slot(key: Any) -> Slot:
    r"""Return the slot of a key.

    Raises:
        Unencodable: the key is of a type that cannot be stored, or is not equal to itself.

    >>> to_slot(7), to_slot(True), to_slot(2.0), to_slot("a"), to_slot(b"a")
    (7, 1, 2, 'a', b'\x13a')
    """
    kind = type(key)
    if kind is int and INT64_MIN <= key <= INT64_MAX:
        return key  # type: ignore[no-any-return]
    if kind is str and is_utf8(key):
        return key  # type: ignore[no-any-return]
    if kind is bytes:
        return _TAG["bytes"] + key  # type: ignore[no-any-return]
    if kind in _NUMBERS:
        return _number_slot(key)
    if kind is complex and key.imag == 0:
        return _number_slot(key.real)
    return comparable(key)


def storable(key: Any) -> Any:
    """Return a key that equals the given one and is of a type that can be stored, such as 2 for ``np.int64(2)``.

    Raises:
        Unencodable: there is none.

    >>> from fractions import Fraction
    >>> storable(Fraction(3, 2)), storable((Fraction(2), "a"))
    (1.5, (2, 'a'))
    """
    if isinstance(key, tuple):
        return tuple(map(storable, key))
    if isinstance(key, frozenset):
        return frozenset(map(storable, key))
    for kind, plain in _PLAIN:
        if isinstance(key, kind):
            with suppress(TypeError, ValueError, OverflowError):
                found = plain(key)
                if found == key and hash(found) == hash(key):
                    return found
    raise Unencodable(f"a {type(key).__name__} cannot be stored, nor does it equal what can")


def _as_decimal(key: Fraction) -> Decimal:
    """Return the Decimal that is exactly a fraction, or one near it if there is none."""
    places = key.denominator.bit_length()  # Of a product of twos and fives, no fewer than its decimal places.
    # By its digits, because arithmetic would round it.
    sign, digits, _ = Decimal(key.numerator * 10**places // key.denominator).as_tuple()
    return Decimal((sign, digits, -places))


def as_bound(key: Any) -> Any:
    """Return the bound of a range as an equal key of a type that can be stored, if there is one.

    >>> from fractions import Fraction
    >>> as_bound(Fraction(3, 2)), as_bound(Fraction(1, 3))
    (1.5, Fraction(1, 3))
    """
    if type(key) is tuple:
        return tuple(map(as_bound, key))
    if type(key) not in _SORTABLE or (type(key) is time and key.tzinfo is not None):
        with suppress(Unencodable):
            return storable(key)
    return key


def from_slot(slot: Slot) -> Any:
    """Return the key of a slot that tells it, because :func:`is_exact` holds for the key."""
    return slot[1:] if type(slot) is bytes else slot


def from_slots(slots: list[Any]) -> list[Any]:
    """Return the keys of many slots that tell them, in order: nearly always the slots themselves."""
    return slots if {int, float, str}.issuperset(map(type, slots)) else list(map(from_slot, slots))


def is_exact(key: Any) -> bool:
    """Return whether the slot alone tells the key, including its type."""
    kind = type(key)
    if kind is int:
        return bool(INT64_MIN <= key <= INT64_MAX)
    if kind is str:
        return is_utf8(key)
    return kind is bytes or (kind is float and key == key and not bool(key.is_integer()))


def as_stored(key: Any, slot: Slot) -> Any:
    """Return a key that was read from a slot, as one that has this slot.

    Older versions distinguished the second occurrence of a time that a clock shows twice from the first, although
    Python finds them equal. They did not distinguish a time that a clock shows twice or never from the same moment in
    another zone. And the rules of a zone may have changed since: what the clocks are to show is another moment then.
    Such a key comes back as the moment that it was, without the zone.

    Raises:
        TypeError: it cannot be hashed, because damage has turned it into another value.
        ClassChanged: a dataclass in it is compared by other fields now, so that it has another slot.
        ZoneChanged: a time inside of it was another moment when it was stored.
    """
    hash(key)
    if (zone := _zone_in(key)) is not None:
        return key if _has_slot(key, slot) else _as_moment(key, slot, zone)
    if (kind := _registered_in(key)) is not None and not _has_slot(key, slot):
        raise ClassChanged(kind.__name__)
    return key


def _zone_in(key: Any) -> str | None:
    """Return the name of the zone of a time that a key is or holds, if it has rules, which may change."""
    if type(key) in (tuple, frozenset):
        return None if _CLEAR.issuperset(map(type, key)) else next(filter(None, map(_zone_in, key)), None)
    zone = key.tzinfo if type(key) is datetime else None
    return zone.key if isinstance(zone, ZoneInfo) and zone.key != "UTC" else None


def _as_moment(key: Any, slot: Slot, zone: str) -> Any:
    is_moment = type(key) is datetime and type(slot) is bytes and len(slot) == _MOMENT_BYTES
    with suppress(OverflowError):
        found = _moment(slot) if is_moment else _without_zones(key)
        if _has_slot(found, slot):
            return found
    raise ZoneChanged(zone)


def _moment(slot: Any) -> datetime:
    return (_EPOCH + (int.from_bytes(slot[1:], "big") - 2**80) * _MICROSECOND).replace(tzinfo=UTC)


_MOMENT_BYTES = 17
"""How long the slot is of a moment: a tag, and the microseconds."""


def _registered_in(key: Any) -> type | None:
    """Return a registered class of which something in a key is."""
    if type(key) in (tuple, frozenset):
        return next(filter(None, map(_registered_in, key)), None)
    return type(key) if is_registered(type(key)) else None


def _has_slot(key: Any, slot: Slot) -> bool:
    try:
        return to_slot(key) == slot
    except Unencodable:
        return False


def _without_zones(key: Any) -> Any:
    if type(key) in (tuple, frozenset):
        return type(key)(map(_without_zones, key))
    return key.replace(tzinfo=timezone(key.utcoffset()), fold=0) if _is_unclear(key) else key


def keeps_order(key: Any) -> bool:
    """Return whether the slot of a key sorts among other slots as the key sorts among other keys.

    It does not for integers beyond 64 bits and for Decimals: they are equal to numbers that SQLite holds as such, and
    must share their slots, but cannot lie between them. Nor does it for times that the clocks of their zone show twice
    or never: Python compares them with others of the zone by what the clocks show.
    """
    kind = type(key)
    if kind is int or (kind is float and key.is_integer()):
        return bool(INT64_MIN <= key <= INT64_MAX)
    return kind not in (Decimal, Fraction) and not _is_unclear(key)


_CLEAR = frozenset({int, str, float, bool, bytes, type(None)})
"""Types of keys that hold no time."""


def _is_unclear(key: Any) -> bool:
    """Return whether a key is or holds a time that the clocks of its zone show twice or never."""
    if type(key) in (tuple, frozenset):
        return not _CLEAR.issuperset(map(type, key)) and any(map(_is_unclear, key))
    if type(key) is not datetime or key.tzinfo is None:
        return False
    return key.replace(fold=0).utcoffset() != key.replace(fold=1).utcoffset()


def outside(key: Any, beyond: float) -> Slot:
    """Return a slot that lies further out than those of all keys up to one that does not keep the order.

    Args:
        key: the key.
        beyond: which way is out, positive or negative infinity.
    """
    if not _is_unclear(key):
        return math.nextafter(nearest_double(key), beyond)
    return to_slot(_a_day_off(key, timedelta(days=math.copysign(1, beyond))))


def _a_day_off(key: Any, day: timedelta) -> Any:
    """Return a key whose first time that is unclear is a day off, which is more than any change of clocks."""
    if type(key) is not tuple:
        return key.astimezone(UTC) + day
    place = next(place for place, item in enumerate(key) if _is_unclear(item))
    return (*key[:place], _a_day_off(key[place], day))


def check_sortable(key: Any) -> None:
    """Refuse a key that has no place in a total order.

    Raises:
        TypeError: keys of this type cannot be stored, or have no total order, in Python or in a slot.
    """
    kind = type(key)
    if kind is tuple:
        for item in key:
            check_sortable(item)
    elif kind not in _SORTABLE:
        raise TypeError(f"{shown(key):.80} has no place in a sorted object: {_why_no_place(key)}")
    elif kind is float:
        refuse_nan(key)
    elif kind is Decimal:
        refuse_nan(key)
        _check_storable(key, _check_number)
    elif kind is time or kind is datetime:
        _check_storable(key, _BODIES[kind])
    elif kind is str and not is_utf8(key):
        raise TypeError(f"{key!r:.80} has no place in a sorted object: it holds a lone surrogate")


def _check_storable(key: Any, check: Callable[[Any], object]) -> None:
    """Refuse a key that has an order and no slot, before the edit has begun that asks for its slot."""
    try:
        check(key)
    except Unencodable as error:
        raise TypeError(f"{shown(key):.80} has no place in a sorted object: {error}") from None


def _why_no_place(key: Any) -> str:
    try:
        comparable(key)
    except Unencodable as error:
        return str(error)
    advice = ": use a tuple of its fields" if dataclasses.is_dataclass(key) else ""
    return f"keys of type {type(key).__name__} have no total order in Python, or none in the store{advice}"


def refuse_nan(bound: Any) -> None:
    """Refuse a bound that compares with no key.

    Raises:
        TypeError: the bound is nan, or a tuple that holds it.
    """
    if type(bound) is tuple:
        for item in bound:
            refuse_nan(item)
    elif isinstance(bound, float | Decimal) and math.isnan(bound):
        raise TypeError("nan has no place in a sorted object: it compares with nothing")


def comparable(key: Any) -> bytes:
    """Return a key of any type as bytes: its class, then a self-delimiting body in the order of the class.

    Raises:
        Unencodable: the key is of a type that cannot be stored, or is not equal to itself.
    """
    name, body = _BODIES.get(type(key), _other)(key)
    return _TAG[name] + body


def nearest_double(key: Any) -> float:
    """Return the double nearest to a number, or an infinite one if the number is too large for any."""
    try:
        return float(key) + 0.0
    except OverflowError:
        return math.inf if key > 0 else -math.inf


def _number_slot(key: Any) -> Slot:
    _check_number(key)
    if _is_infinite(key):
        return float(key)
    if key == int(key):
        whole = int(key)
        return whole if INT64_MIN <= whole <= INT64_MAX else comparable(key)
    nearest = nearest_double(key)
    return nearest if nearest == key else comparable(key)


def _is_infinite(key: Any) -> bool:
    # A finite Decimal beyond the doubles is infinite to math.isinf.
    return key.is_infinite() if type(key) is Decimal else type(key) is float and math.isinf(key)


def _check_number(key: Any) -> None:
    if key.is_nan() if type(key) is Decimal else key != key:
        raise Unencodable("nan is not equal to itself, so it could never be found again as a key")
    if type(key) is Decimal and key and key.is_finite() and abs(key.adjusted()) > DECIMAL_EXPONENT_MAX:
        raise Unencodable(
            f"a Decimal key may have an exponent of at most {DECIMAL_EXPONENT_MAX}: it has {key.adjusted()}"
        )


def _number(key: Any) -> tuple[str, bytes]:
    """Sort numbers of all types by the nearest double, then by what it misses."""
    _check_number(key)
    if _is_infinite(key):
        return "number", _double(float(key)) + (b"\xff" if key > 0 else b"\x00")
    nearest = nearest_double(key)
    missed = Fraction(key) - (0 if math.isinf(nearest) else Fraction(nearest))
    return "number", _double(nearest) + _residual(missed)


def _double(value: float) -> bytes:
    (bits,) = struct.unpack(">Q", struct.pack(">d", value))
    return struct.pack(">Q", bits ^ (0xFFFFFFFFFFFFFFFF if bits >> 63 else 1 << 63))


def _residual(missed: Fraction) -> bytes:
    if not missed:
        return b"\x80"
    positive = abs(missed)
    shift = positive.denominator.bit_length()
    # Through Decimal, because Python limits the digits that str() gives of an int.
    digits = str(Decimal(positive.numerator * 10**shift // positive.denominator))
    body = struct.pack(">I", len(digits) - shift + 2**31) + digits.rstrip("0").encode() + b"\x00"
    return b"\xc0" + body if missed > 0 else b"\x40" + bytes(255 - byte for byte in body)


def escaped(data: bytes) -> bytes:
    """Return bytes that end in two zeros and compare as ``data`` does; a zero in it becomes 00 FF."""
    return data.replace(b"\x00", b"\x00\xff") + b"\x00\x00"


def _microseconds(value: timedelta) -> bytes:
    return struct.pack(">QQ", *divmod(value // _MICROSECOND + 2**80, 2**64))


def _datetime(key: datetime) -> tuple[str, bytes]:
    zone, local = key.tzinfo, key.replace(tzinfo=None) - _EPOCH
    first = key.replace(fold=0).utcoffset()
    if first is None:
        return "datetime", _microseconds(local)
    moment = _microseconds(local - first)
    if not _is_unclear(key):
        return "aware", moment
    # A time that the clocks skip or repeat is equal to no time of another zone, not even the same moment (PEP 495). The
    # second of two times that the clocks of one zone show is equal to the first.
    if (name := name_of(zone)) is None:
        raise Unencodable(
            f"the clocks of its zone, a {type(zone).__name__}, show this time twice or never, so it is equal to none of"
            " another zone, and this zone is not stored: take a time in UTC, or in the ZoneInfo that its name gives now"
        )
    return "aware", moment + b"\x01" + escaped(name.encode())


def _time(key: time) -> tuple[str, bytes]:
    if key.tzinfo is not None:
        raise Unencodable("datetime.time with a time zone has no stored form: use a datetime as the key")
    return "time", _microseconds(datetime.combine(date.min, key) - _EPOCH)


def _tuple(key: tuple[Any, ...]) -> tuple[str, bytes]:
    return "tuple", b"".join(map(comparable, key)) + b"\x00"


def _frozenset(key: frozenset[Any]) -> tuple[str, bytes]:
    return "other", escaped(b"frozenset") + escaped(b"".join(sorted(map(comparable, key))))


def _complex(key: complex) -> tuple[str, bytes]:
    if key.imag == 0:
        return _number(key.real)
    return "other", escaped(b"complex") + comparable(key.real) + comparable(key.imag)


def _other(key: Any) -> tuple[str, bytes]:
    kind: type = type(key)
    if kind.__hash__ is None:
        raise Unencodable(f"a {kind.__name__} is not hashable, so it cannot be a key")
    if is_registered(kind):  # Only what is compared must be readable: one that is looked up need not be storable.
        if not _is_equal_by_fields(kind):
            raise Unencodable(
                f"a {kind.__name__} is not compared field by field, and its fields are its slot: let dataclass make its"
                " __eq__, or take a tuple as the key"
            )
        fields = tuple(field_of(key, field.name) for field in dataclasses.fields(kind) if field.compare)
        return "other", escaped(kind.__name__.encode()) + _tuple(fields)[1]
    return "other", escaped(encode(key).encode())


@cache
def _is_equal_by_fields(kind: type) -> bool:
    """Return whether a dataclass compares as a plain one with the same fields does."""
    compared = [(field.name, Any, dataclasses.field()) for field in dataclasses.fields(kind) if field.compare]
    return _steps(kind) == _steps(dataclasses.make_dataclass("Model", compared))


def _steps(kind: type) -> tuple[Any, ...]:
    """Return what a comparison does, or the comparison itself if it is not written in Python."""
    code = getattr(kind.__eq__, "__code__", None)
    return (kind.__eq__,) if code is None else (code.co_code, code.co_consts, code.co_names)


_NUMBERS = frozenset({int, float, bool, Decimal})
_SORTABLE = _NUMBERS | {str, bytes, date, datetime, time, timedelta, UUID}

_BODIES: dict[type, Callable[[Any], tuple[str, bytes]]] = {
    type(None): lambda key: ("none", b""),
    int: _number,
    float: _number,
    bool: _number,
    Decimal: _number,
    str: lambda key: ("text", escaped(key.encode("utf-8", "surrogatepass"))),
    bytes: lambda key: ("bytes", escaped(key)),
    date: lambda key: ("date", struct.pack(">I", key.toordinal())),
    datetime: _datetime,
    time: _time,
    timedelta: lambda key: ("timedelta", _microseconds(key)),
    UUID: lambda key: ("uuid", key.bytes),
    tuple: _tuple,
    frozenset: _frozenset,
    complex: _complex,
}
