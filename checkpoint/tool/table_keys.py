"""The slots that a row of a relational table may have whose whole key was typed, by the same rule as its code.

So one row is found without a scan. The keys that a text does not tell exactly, such as floats, are left to the scan.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from typing import Any

from checkpoint.tool.raw import INTEGER_BITS

NULL = "NULL"
"""How no value is typed; a text may be the same."""

_INTEGER = re.compile("0|-?[1-9][0-9]{0,18}")

_LEADS = [vnode.to_bytes(2, "big") for vnode in range(256)]
"""What the keys of a table begin with whose rows are distributed by a hash, which is not computed here."""

_FLIP = bytes(255 - byte for byte in range(256))


def slots_of(schema: dict[str, Any], cells: Mapping[str, str]) -> list[bytes] | None:
    """Return all slots that a row may have whose cells were typed; ``None`` if only a scan tells.

    Args:
        schema: the schema of the table, as it is stored.
        cells: what was typed, by column; others than those of the key do not matter.

    >>> schema = {"columns": [{"name": "k", "type": "int16"}], "primary_key": [["k", "asc nulls first"]]}
    >>> [slot.hex(" ") for slot in slots_of(schema, {"k": "1"})], slots_of(schema, {"k": "1.0"})
    (['01 80 01'], None)
    """
    kinds = {column["name"]: str(column["type"]) for column in schema["columns"]}
    parts = [_parts_of(kinds[name], order, cells.get(name)) for name, order in schema["primary_key"]]
    if not parts or schema.get("vnode_column") is not None:
        return None
    known = [part for part in parts if part is not None]
    leads = _LEADS if schema.get("distribution_key") else [b""]
    return [b"".join(found) for found in product(leads, *known)] if len(known) == len(parts) else None


def _parts_of(kind: str, order: str, text: str | None) -> list[bytes] | None:
    """Return what a cell may add to a key: no value and the text that looks like it add different bytes."""
    is_descending = order.startswith("desc")
    value_tag, null_tag = (b"\1", b"\0") if order.endswith("first") != is_descending else (b"\0", b"\1")
    found = [null_tag] if text == NULL else []
    if kind == "string" or not found:
        body = None if text is None else _body_of(kind, text)
        if body is None:
            return None
        found.append(value_tag + body)
    return [part.translate(_FLIP) if is_descending else part for part in found]


def _body_of(kind: str, text: str) -> bytes | None:
    """Return the bytes of a value, ``None`` if the text does not tell it exactly."""
    if kind == "string":
        try:
            return text.encode().replace(b"\0", b"\0\xff") + b"\0\0"
        except UnicodeEncodeError:
            return None
    bits = INTEGER_BITS.get(kind)
    if bits is None or not _INTEGER.fullmatch(text) or not -(1 << bits - 1) <= int(text) < 1 << bits - 1:
        return None
    return (int(text) + (1 << bits - 1)).to_bytes(bits // 8, "big")
