"""Key-value tables as they lie in a store: what their objects are called, and the entry that a stored slot is.

A table is a sorted dictionary and a counter of versions for each partition that was ever written, and an entry in a
catalogue. The slots begin with the length of the family, so a family is one range of them. The names of all tables of
an operator in a pipeline begin with that of the operator: ``mine/kvt/shop/stock``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from checkpoint.run import Payload, Slot
from checkpoint.tool.raw import BYTES_TAG, as_text, loaded

CATALOGUE, COUNTER = "kvt/catalogue", "kvt/partitions"
"""The sorted dictionary of scopes and tables, and the value that is the number of the next partition."""

COLUMNS = ("family", "key", "version", "value")
"""What is shown of each entry."""

KEY = COLUMNS[:2]
"""The columns that tell the entries apart."""

_OBJECT = re.compile(r"((?:.+?/)??kvt/[\w.-]+/[\w.-]+)/(\d+)(/version)?", re.ASCII | re.DOTALL)

_PATH = re.compile("[^/]+/[^/]+")

_TABLE = re.compile(rf"((?:.+/)?)kvt/({_PATH.pattern})", re.DOTALL)

_LONGEST_FAMILY = 8190


def part_of(name: str | None) -> tuple[str, int, bool] | None:
    """Return the table, the partition, and whether it is the counter, from the name of an object; None for any other.

    >>> part_of("kvt/shop/stock/3/version"), part_of("stock")
    (('kvt/shop/stock', 3, True), None)
    """
    matched = _OBJECT.fullmatch(name or "")
    return None if matched is None else (matched[1], int(matched[2]), matched[3] is not None)


def whole(name: str) -> str:
    """Return the table for the name of one of its objects, and any other name as it is.

    >>> whole("kvt/shop/stock/3"), whole("stock")
    ('kvt/shop/stock', 'stock')
    """
    found = part_of(name)
    return name if found is None else found[0]


def is_catalogue(name: str) -> bool:
    """Return whether an object has the name of a catalogue of tables."""
    return f"/{name}".endswith(f"/{CATALOGUE}")


def tables_in(catalogue: str, slots: Iterable[Slot]) -> list[str]:
    """Return the tables that the slots of a catalogue name; a user's dictionary of such a name may hold more.

    >>> tables_in("mine/kvt/catalogue", ["shop", "shop/stock", "/", "a/b/c"])
    ['mine/kvt/shop/stock']
    """
    folder = catalogue.removesuffix("catalogue")
    return [f"{folder}{slot}" for slot in slots if isinstance(slot, str) and _PATH.fullmatch(slot)]


def numbers_in(entry: Any) -> range | None:
    """Return the numbers of the partitions of a table from its entry in a catalogue, ``None`` if it says none.

    >>> numbers_in({"first": 4, "partitions": 2, "sealed": False}), numbers_in({})
    (range(4, 6), None)
    """
    match entry:
        case {"first": int(first), "partitions": int(count)}:
            return range(first, first + count)
    return None


def split(table: str) -> tuple[str, str]:
    """Return what the names of a table begin with, and its scope and name.

    >>> split("kvt/shop/stock"), split("mine/kvt/shop/stock")
    (('', 'shop/stock'), ('mine/', 'shop/stock'))
    """
    matched = _TABLE.fullmatch(table)
    assert matched is not None, table
    return matched[1], matched[2]


def row_reader(partition: int, *, is_raw: bool) -> Callable[[Slot, Payload], dict[str, Any]]:
    """Return a function that makes an entry, by column names, of a stored slot.

    Args:
        partition: the first part of the versions.
        is_raw: whether the dictionary keeps keys and values as they are; tables of older versions do not.
    """

    def _row(slot: Slot, payload: Payload) -> dict[str, Any]:
        if not isinstance(slot, bytes):
            raise TypeError(f"{slot!r} is no table key")
        family, key = _address(slot if is_raw else slot.removeprefix(bytes([BYTES_TAG])))
        number, value = _split(payload) if is_raw else loaded(payload)
        return {"family": family, "key": as_text(key), "version": f"{partition}:{number}", "value": value}

    return _row


def slots_of(cells: Mapping[str, str]) -> list[bytes] | None:
    r"""Return the slots that an entry may have whose family and key were typed; ``None`` if only a scan tells.

    >>> slots_of({"family": "abc", "key": "def"}), slots_of({"family": "NULL", "key": "abc"}), slots_of({"key": "abc"})
    ([b'\x00\x03abcdef'], [b'\xff\xfdabc', b'\x00\x04NULLabc'], None)
    """
    try:
        family, key = (cells.get(column, "").encode() for column in KEY)
    except UnicodeEncodeError:
        return None
    # A key that is no text is shown as an object of JSON, and a text may look like that.
    if not 0 < len(family) <= _LONGEST_FAMILY or not key or len(key) > _LONGEST_FAMILY or key.startswith(b"{"):
        return None
    without = [(-len(key) & 0xFFFF).to_bytes(2, "big") + key] if family == b"NULL" else []
    return [*without, len(family).to_bytes(2, "big") + family + key]


def _address(table_key: bytes) -> tuple[str | None, bytes]:
    """Return family and key; a length that stands for no family is that of the key, negated."""
    length = int.from_bytes(table_key[:2], "big")
    if not 0 < length <= _LONGEST_FAMILY:
        return None, table_key[2:]
    return table_key[2 : 2 + length].decode(), table_key[2 + length :]


def _split(payload: Payload) -> tuple[int, Any]:
    if isinstance(payload, bytes):
        number, _, value = payload.partition(b" ")
        return int(number), as_text(value)
    text, _, rest = payload.partition(" ")
    return int(text), rest
