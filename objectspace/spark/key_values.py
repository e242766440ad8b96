"""The key-value tables in a space or store file, as a read through Spark finds them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

from objectspace import ObjectSpace, PersistedObjectSpace
from objectspace.kvt import stored_entries
from objectspace.kvt.catalogue import FIRST, PARTITIONS, checked_entry
from objectspace.kvt.catalogue import NAME as CATALOGUE
from objectspace.kvt.partition import place_of

Parts = Sequence[tuple[int, str]]
"""The numbers of the partitions of a table that hold anything, and the objects that they are kept in."""

# The tables of a user's operator have the name of the operator before theirs.
_PART = re.compile(r"((?:.+/)?kvt/[^/]+/[^/]+)/(\d+)", re.ASCII | re.DOTALL)


def key_value_tables(space: ObjectSpace) -> dict[str, Parts]:
    """Return the key-value tables of a space by their stored names; one that was never written to has no parts."""
    numbers = dict(_listed(space))
    found: dict[str, Parts] = dict.fromkeys(numbers, ())
    for name in sorted(space):
        # Changes of a fork may leave a partition of another table that had the name.
        if (part := _PART.fullmatch(name)) and int(part[2]) in numbers.get(part[1], (int(part[2]),)):
            found[part[1]] = (*found.get(part[1], ()), (int(part[2]), name))
    return found


def _listed(space: ObjectSpace) -> Iterator[tuple[str, range]]:
    """Yield the tables that the catalogues of a space have, with the numbers of their partitions."""
    for name in space:
        if f"/{name}".endswith(f"/{CATALOGUE}"):
            prefix = name.removesuffix(CATALOGUE)
            for path, entry in space.get_sorted_dictionary(name).items():
                if "/" in path:
                    first, count = itemgetter(FIRST, PARTITIONS)(checked_entry(path, entry))
                    yield f"{prefix}kvt/{path}", range(first, first + count)


def entries(space: PersistedObjectSpace, parts: Parts) -> Iterator[tuple[Any, ...]]:
    """Yield (partition, family, key, version, value) of each entry of a table."""
    for number, name in parts:
        for address, version, value in stored_entries(space.get_sorted_dictionary(name)):
            family, key = place_of(name, address)
            yield number, family, key, version, value
