"""Stored slots and values as JSON has them: keys of bytes, tagged values, the numbers of a tensor."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import orjson

from checkpoint.errors import CorruptStoreError
from checkpoint.run import Payload, Slot, fault_of

BYTES_TAG = 0x13
"""The first byte of the slot of a key of bytes."""

INTEGER_BITS = {"int16": 16, "int32": 32, "int64": 64}
"""How many bits the integers of a column have, by its type."""


LOST = "see `checkpoint verify`, and run `checkpoint repair`"
"""What to do about a value that is lost."""


def loaded(payload: Payload | None) -> Any:
    """Return a stored value as JSON; bytes as base64 in ``{"$bytes": ...}``.

    Raises:
        CorruptStoreError: it is lost.
    """
    if payload is None:
        return None
    if (fault := fault_of(payload)) is not None:
        raise CorruptStoreError(f"a slot is damaged ({fault}): {LOST}")
    if isinstance(payload, bytes):
        return {"$bytes": base64.b64encode(payload).decode()}
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        return payload


def is_raw(codec: str | None) -> bool:
    """Return whether an object keeps its keys and values as they are.

    >>> is_raw('{"raw":true}'), is_raw(None)
    (True, False)
    """
    return codec is not None and "raw" in codec and (loaded(codec) or {}).get("raw") is True


def key_and_value(slot: Slot, payload: Payload | None, *, raw: bool = False) -> tuple[Any, Any]:
    """Return the key and the value of a stored slot.

    Args:
        slot: the slot.
        payload: what it holds.
        raw: whether both are kept as they are.
    """
    if raw and isinstance(slot, bytes):
        return as_text(slot), payload if isinstance(payload, str) else loaded(payload)
    value = loaded(payload)
    if isinstance(value, dict) and "$key" in value:
        return value["$key"], value.get("$value")
    return key_of(slot), value


def key_of(slot: Slot) -> Any:
    """Return the key that a slot stands for, as JSON; a key of bytes as text if it is UTF-8."""
    if isinstance(slot, float) and not math.isfinite(slot):
        return {"$float": repr(slot)}
    if not isinstance(slot, bytes):
        return slot
    return as_text(slot.removeprefix(bytes([BYTES_TAG])))


def as_text(data: bytes) -> Any:
    """Return bytes as text if they are printable UTF-8, else as base64 in ``{"$bytes": ...}``.

    >>> as_text(b"blue"), as_text(b"\\xff")
    ('blue', {'$bytes': '/w=='})
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    return text if text.isprintable() else {"$bytes": base64.b64encode(data).decode()}


def exact_number(key: Any) -> Decimal | None:
    """Return a key as the number that it is, even beyond 64 bits; ``None`` if it is not a number.

    >>> exact_number({"$int": "9223372036854775808"}), exact_number(1.5), exact_number("7")
    (Decimal('9223372036854775808'), Decimal('1.5'), None)
    """
    if isinstance(key, dict) and len(key) == 1:
        mark, digits = next(iter(key.items()))
        return number_in(digits) if mark in ("$int", "$decimal", "$float") else None
    return Decimal(key) if isinstance(key, (int, float)) else None


def number_in(text: Any) -> Decimal | None:
    """Return the number that a text is, ``None`` if it is not one or has no place among others."""
    try:
        found = Decimal(text)
    except (ArithmeticError, ValueError, TypeError):
        return None
    return None if found.is_nan() else found


def numbers_meant(text: str | None) -> list[Decimal]:
    """Return the numbers that a bound may mean: itself, and the float that is printed so; none if it is not a number.

    >>> numbers_meant("1e22"), numbers_meant("1e23")
    ([Decimal('1E+22')], [Decimal('1E+23'), Decimal('99999999999999991611392')])
    """
    number = number_in(text)
    if number is None:
        return []
    nearest = Decimal(float(number))
    return [number] if _is_integer_text(text) or nearest.is_infinite() or nearest == number else [number, nearest]


def _is_integer_text(text: str | None) -> bool:
    try:
        int(text)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return False
    return True


def is_integer(cell: Any, bits: int) -> bool:
    """Return whether a cell is an integer of so many bits.

    >>> is_integer(2**15 - 1, 16), is_integer(2**15, 16), is_integer("5", 16)
    (True, False, False)
    """
    return type(cell) is int and -(1 << bits - 1) <= cell < 1 << bits - 1


def slot_of(text: str | None) -> Slot | None:
    """Return the slot that a text on the command line stands for: a number if it is one, else text.

    >>> slot_of("7"), slot_of("1.5"), slot_of("bob"), slot_of(None)
    (7, 1.5, 'bob', None)
    """
    for kind in (int, float):
        try:
            found = kind(text)  # type: ignore[arg-type]
        except (ValueError, TypeError):
            continue
        return found if isinstance(found, float) or -(2**63) <= found < 2**63 else text
    return text


_FORMATS = {"i": {1: "b", 2: "h", 4: "i", 8: "q"}, "u": {1: "B", 2: "H", 4: "I", 8: "Q"}, "f": {2: "e", 4: "f", 8: "d"}}


def numbers_of(slot: Slot, payload: Payload, codec: str | None) -> tuple[Any, Any]:
    """Return a chunk of a tensor: the index of its first element, and its numbers as nested lists.

    What is not a plain number stays as bytes; numbers that JSON does not have are written as elsewhere.
    """
    found = orjson.loads(codec or "{}")
    shape, chunks, kind = found["shape"], found["chunks"], str(found["dtype"])
    counts = [-(-extent // chunk) for extent, chunk in zip(shape, chunks, strict=True)]
    place = int(slot)
    origin: list[int] = []
    for count, chunk in zip(reversed(counts), reversed(chunks), strict=True):
        place, number = divmod(place, count)
        origin.insert(0, number * chunk)
    letter = "?" if kind.endswith("b1") else _FORMATS.get(kind[1:2], {}).get(int(kind[2:] or 0))
    if letter is None or not isinstance(payload, bytes):
        return origin, loaded(payload)
    width = struct.calcsize(letter)
    flat: list[Any] = list(struct.unpack(f"<{len(payload) // width}{letter}", payload))
    if letter in _FORMATS["f"].values():
        flat = [number if math.isfinite(number) else {"$float": repr(number)} for number in flat]
    whole = [min(chunk, extent - start) for chunk, extent, start in zip(chunks, shape, origin, strict=True)]
    return origin, _nested(flat, whole if math.prod(whole) == len(flat) else chunks)


def _nested(flat: list[Any], shape: list[int]) -> Any:
    if not shape:
        return flat[0] if flat else None
    step = math.prod(shape[1:])
    return [_nested(flat[row * step : (row + 1) * step], shape[1:]) for row in range(shape[0])]


def elements(numbers: Any, origin: list[int]) -> Iterator[tuple[list[int], Any]]:
    """Yield index and number of each element of a chunk.

    >>> list(elements([[7, 8]], [0, 4]))
    [([0, 4], 7), ([0, 5], 8)]
    """
    if not isinstance(numbers, list):
        yield list(origin), numbers
        return
    for place, inner in enumerate(numbers):
        for rest, number in elements(inner, origin[1:]):
            yield [origin[0] + place, *rest], number
