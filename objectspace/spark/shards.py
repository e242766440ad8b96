"""Which shard a row belongs to, decided alike in Python and inside Spark.

The hash of a key is xxHash64 with seed 42 over its bytes (of a whole number the eight of an int64, lowest first), as
Spark's ``xxhash64`` computes it; of several columns one is hashed after the other, with the hash so far as the seed.
The top eight bits are the vnode, and each shard owns a contiguous range of the 256 vnodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import xxhash
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, IntegralType, StringType, StructType

from objectspace.errors import ObjectSpaceError

VNODES = 256
"""The number of virtual nodes, which never changes; shards own ranges of them."""

_SEED = 42

KeyPart = str | bytes | int | None


def hash_of(*key: KeyPart) -> int:
    """Return the hash of a key, unsigned, 64 bits.

    >>> hex(hash_of("UA"))
    '0xf88ec363da504497'
    """
    state = _SEED
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
    return vnode_of(*key) * shards // VNODES


def shard_expression(schema: StructType, key: Sequence[str], shards: int) -> Column:
    """Return the Spark column that holds the shard of each row, for ``repartitionById``.

    Args:
        schema: the schema of the rows.
        key: the names of the key columns: text, binary or whole numbers.
        shards: the number of shards, 1 to 256.

    Raises:
        ObjectSpaceError: a column is missing or of another type.
    """
    parts = ", ".join(_hashable(schema, name) for name in key)
    # As text it is one call of Java; built of functions it is tens, and takes longer than the tasks of a small batch.
    vnode = f"cast(shiftrightunsigned(xxhash64({parts}), 56) AS int)"
    return sf.expr(f"cast(floor({vnode} * {shards} / {VNODES}) AS int)")


def _hashable(schema: StructType, name: str) -> str:
    if name not in schema.names:
        raise ObjectSpaceError(f"key column {name}: expected one of {', '.join(schema.names)}: name one of the input")
    kind, quoted = schema[name].dataType, "`" + name.replace("`", "``") + "`"
    if isinstance(kind, IntegralType):
        return f"cast({quoted} AS bigint)"
    if isinstance(kind, StringType | BinaryType):
        return f"cast({quoted} AS binary)"
    raise ObjectSpaceError(
        f"key column {name}: expected text, binary or a whole number, found {kind.simpleString()}: cast it to one"
    )


def _bytes_of(part: str | bytes | int) -> bytes:
    if isinstance(part, str):
        return part.encode()
    return part if isinstance(part, bytes) else part.to_bytes(8, "little", signed=True)
