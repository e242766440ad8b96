"""A key as a user types it: the slots that it may have, and whether a key that is found is the one that was typed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from decimal import Decimal
from typing import Any

import orjson

from checkpoint.run import Slot
from checkpoint.tool import printing
from checkpoint.tool.raw import BYTES_TAG, exact_number, number_in, slot_of


def slots_of(key: str | None, has: Callable[[Slot], bool], *, raw: bool) -> list[Slot]:
    """Return the slots that a key may have as text, number or bytes; none if only a look at all keys tells.

    Args:
        key: the key as it was typed.
        has: returns whether a slot is there.
        raw: whether the keys are kept as they are.
    """
    if raw and key is not None:
        return [key.encode()]
    if key is None or _beyond_slots(key) is not None:
        return []
    found: list[Slot] = [key, bytes([BYTES_TAG]) + key.encode()]
    inner = key[1:-1] if len(key) > 2 and key[0] == key[-1] == '"' else None
    if inner is not None:
        # A text that reads as a number is shown in quotes, and any other is often typed so.
        return [*found, inner] if printing.key(inner) == key or not any(map(has, found)) else found
    number = _TRUTH.get(key, slot_of(_number_in_json(key)))
    return found if number is None or number == key else [*found, number]


def _number_in_json(key: str) -> str:
    """Return the number that the JSON of a decimal or of an infinity holds; other keys as they are."""
    match _json_in(key):
        case {"$decimal": str(number), **rest} | {"$float": str(number), **rest} if not rest:
            return number
    return key


_TRUTH: dict[str, Slot] = {"true": 1, "false": 0}
"""The slots of truth values, which are those of the equal numbers."""


def _beyond_slots(key: str) -> Decimal | None:
    """Return the number that a key is if it is beyond 64 bits, so that SQLite does not store its slot as a number."""
    number = number_in(key)
    return number if number is not None and number.is_finite() and not -(2**63) <= number < 2**63 else None


def meaning(key: str | None) -> Callable[[Any, Collection[str]], bool]:
    """Return a function that tells whether a key, given with the words it is printed as, is the one that was typed."""
    number = None if key is None else _beyond_slots(key)
    typed = _json_in(key)

    def _is_meant(found: Any, words: Collection[str]) -> bool:
        if key == found or not {key, f"[{key}]"}.isdisjoint(words):
            return True
        if number is not None and (exact_number(found) == number or found == float(number)):
            return True
        held = _held(found)
        if typed is not _NOTHING:
            return bool(typed in (found, held))
        return key == (", ".join(map(printing.key, held)) if isinstance(held, list) and len(held) > 1 else held)

    return _is_meant


_NOTHING: Any = object()


def _json_in(text: str | None) -> Any:
    """Return the JSON that a text is, if it is that of a key which is neither number nor text."""
    try:
        found = orjson.loads(text or "")
    except orjson.JSONDecodeError:
        return _NOTHING
    return found if found is None or isinstance(found, (dict, list, bool)) else _NOTHING


def _held(key: Any) -> Any:
    """Return what a key holds, without the marks of its types.

    >>> _held({"$date": "2024-01-31"}), _held({"$tuple": ["fruit", {"$tuple": [7, 8]}]})
    ('2024-01-31', ['fruit', [7, 8]])
    """
    if isinstance(key, dict) and len(key) == 1 and next(iter(key)).startswith("$"):
        return _held(next(iter(key.values())))
    return list(map(_held, key)) if isinstance(key, list) else key
