"""The key-value tables in a space or store file, as a read through Spark finds them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from objectspace import PersistedObjectSpace
from objectspace.kvt import split_table_key, stored_entries
from objectspace.kvt.catalogue import NAME as CATALOGUE

Parts = Sequence[tuple[int, str]]
"""The numbers of the partitions of a table that hold anything, and the objects that they are kept in."""

# The tables of an operator of a user have the name of the operator before theirs.
_PART = re.compile(r"((?:.+/)?kvt/[^/]+/[^/]+)/(\d+)", re.ASCII | re.DOTALL)


def key_value_tables(space: PersistedObjectSpace) -> dict[str, Parts]:
    """Return the key-value tables of a space by their stored names; one that nothing was written to has no parts."""
    found: dict[str, Parts] = {}
    for name in sorted(space):
        if part := _PART.fullmatch(name):
            found[part[1]] = (*found.get(part[1], ()), (int(part[2]), name))
        elif f"/{name}".endswith(f"/{CATALOGUE}"):
            prefix = name.removesuffix(CATALOGUE)
            for path in space.get(name):
                if "/" in path:
                    found.setdefault(f"{prefix}kvt/{path}", ())
    return found


def entries(space: PersistedObjectSpace, parts: Parts) -> Iterator[tuple[Any, ...]]:
    """Yield (partition, family, key, version, value) of each entry of a table."""
    for number, name in parts:
        for address, version, value in stored_entries(space.get_sorted_dictionary(name)):
            family, key = split_table_key(address)
            yield number, family, key, version, value
