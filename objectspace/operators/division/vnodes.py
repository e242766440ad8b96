"""The vnode of a key and of a row: the same for Python, for Spark, and for whoever divides a shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import xxhash

from objectspace.relational import Order, SchemaError, TableSchema
from objectspace.relational.keys import KeyEncoder
from objectspace.relational.vnodes import SEED, VNODES, column_hasher

KeyPart = str | bytes | int | None

Router = Callable[[Sequence[Sequence[Any]]], list[int]]
"""What tells of rows to which vnodes they belong, or to which shards."""


def hash_of(*key: KeyPart) -> int:
    """Return the hash of a key, unsigned, 64 bits.

    >>> hex(hash_of("UA"))
    '0xf88ec363da504497'
    """
    state = SEED
    for part in key:
        if part is not None:  # Spark passes over a null
            state = xxhash.xxh64_intdigest(_bytes_of(part), seed=state)
    return state


def vnode_of(*key: KeyPart) -> int:
    """Return the vnode of a key, 0 to 255."""
    return hash_of(*key) >> 56


def shard_of(shards: int, *key: KeyPart) -> int:
    """Return the shard of a key.

    Args:
        shards: the number of shards, 1 to 256.
        key: the columns of the key: text, bytes, whole numbers of at most 64 bits, or None.

    >>> [shard_of(4, carrier) for carrier in ("AA", "DL", "UA", None)]
    [0, 0, 3, 0]
    """
    return owner_of(vnode_of(*key), shards)


def owner_of(vnode: int, shards: int) -> int:
    """Return the shard that owns a vnode: each owns a range of them.

    >>> [owner_of(vnode, 3) for vnode in (0, 85, 86, 255)]
    [0, 0, 1, 2]
    """
    return vnode * shards // VNODES


def overlapping(shard: int, shards: int, before: int) -> list[int]:
    """Return which of the shards that there were own any vnode of a new one.

    >>> overlapping(1, 3, before=2), overlapping(1, 4, before=2)
    ([0, 1], [0])
    """
    return sorted({owner_of(vnode, before) for vnode in range(VNODES) if owner_of(vnode, shards) == shard})


def vnode_router(schema: TableSchema, places: Sequence[int]) -> Router:
    """Return the function from rows to the vnodes of their values at some places; without any all are in the first."""
    kinds = [schema.columns[place].type for place in places]
    if not places:
        return lambda rows: [0] * len(rows)
    try:
        vnodes = column_hasher(kinds)
    except SchemaError:  # Spark hashes such a type in its own way: here the key counts as it is stored.
        encode = KeyEncoder(kinds, [Order() for _ in kinds]).encode
        digest = xxhash.xxh64_intdigest
        return lambda rows: [digest(encode([row[place] for place in places]), SEED) >> 56 for row in rows]
    return lambda rows: vnodes([[row[place] for row in rows] for place in places])


def _bytes_of(part: str | bytes | int) -> bytes:
    if isinstance(part, str):
        return part.encode()
    return part if isinstance(part, bytes) else part.to_bytes(8, "little", signed=True)
