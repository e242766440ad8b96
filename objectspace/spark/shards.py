"""Which shard a row belongs to, decided in the same way in Python and inside Spark.

The hash of a key is xxHash64 with seed 42 over its bytes (for a whole number, the eight of an int64, lowest first), as
Spark's ``xxhash64`` computes it. Several columns are hashed one after the other, with the hash so far as the seed. The
top eight bits are the vnode, and each shard owns a contiguous range of the 256 vnodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, IntegralType, StringType, StructType

from objectspace.errors import ObjectSpaceError
from objectspace.operators.division.vnodes import hash_of, shard_of, vnode_of
from objectspace.relational.vnodes import VNODES

__all__ = ["VNODES", "hash_of", "shard_expression", "shard_of", "vnode_of"]


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
    # As text it is one call into Java; built from functions it is tens, and takes longer than the tasks of a small
    # batch.
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
