"""Whole columns of keys and values: what is alike is handled together, in a fraction of the time of one by one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import orjson

from checkpoint.run import Payload
from objectspace.keys import INT64_MAX, INT64_MIN

ALONE = frozenset({int, str, bytes})
"""Types of keys that, among keys whose slots tell them with their types, are equal to nothing but themselves."""


def texts_of(kind: type, values: list[Any]) -> list[Payload] | None:
    """Return the texts of values of one type, or ``None`` if that takes a closer look at each."""
    if kind is str and (joined := "".join(values)).isascii():
        if joined.isprintable() and '"' not in joined and "\\" not in joined:
            return [f'"{value}"' for value in values]
        return list(map(bytes.decode, map(orjson.dumps, values)))
    if kind is int and min(values) >= INT64_MIN and max(values) <= INT64_MAX:
        return list(map(repr, values))
    return _flat_texts(values) if kind is dict else None


def _flat_texts(values: list[dict[Any, Any]]) -> list[Payload] | None:
    """Return the texts of dictionaries that hold nothing but what JSON has, or ``None`` if one holds more."""
    names = set(chain.from_iterable(values))
    if any(type(name) is not str or name.startswith("$") for name in names):
        return None
    held = list(chain.from_iterable(map(dict.values, values)))
    kinds = set(map(type, held))
    numbers = held if kinds == {int} else [one for one in held if type(one) is int]
    # An integer that takes 64 bits without a sign is a number to orjson, but the codec marks it as a large one.
    if not _FLAT.issuperset(kinds) or max(numbers, default=0) > INT64_MAX:
        return None
    try:
        # All as one text, cut where one ends and another begins: no line of JSON has a line break in it.
        texts = orjson.dumps(values)[1:-1].decode().replace("},{", "}\n{").split("\n")
        return list(texts) if len(texts) == len(values) else list(map(bytes.decode, map(orjson.dumps, values)))
    except orjson.JSONEncodeError:
        return None


_FLAT = frozenset({int, str, bool, type(None)})


def are_slots(edited: Iterable[Any]) -> bool:
    """Return whether keys are of one type and are their own slots."""
    kinds = set(map(type, edited))
    if not kinds:
        return False
    if kinds == {int}:
        return bool(min(edited) >= INT64_MIN and max(edited) <= INT64_MAX)
    return kinds == {str} and all(map(str.isascii, edited))
