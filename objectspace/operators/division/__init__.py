"""Dividing the shards of a space anew, without an engine: who opens a shard after a rescale does it.

A row or a key belongs to the vnode of the values that it is routed by (``vnodes``), which are told by what was noted of
an operator (``rules``, ``keyed``). A new shard takes from the old ones what belongs to its vnodes (``dividing``),
which they must have noted alike (``agreement``).
"""

from objectspace.operators.division.agreement import Notes, copy_notes, require_same_tables, require_same_watermarks
from objectspace.operators.division.dividing import divide
from objectspace.operators.division.keyed import KEYED, OPERATOR_NOTE, KeyedBy, noted_keyed
from objectspace.operators.division.rules import Rule
from objectspace.operators.division.shard import OldShard
from objectspace.operators.division.vnodes import (
    hash_of,
    overlapping,
    owner_of,
    shard_of,
    vnode_of,
    vnode_router,
)
from objectspace.relational.vnodes import VNODES

__all__ = [
    "KEYED",
    "OPERATOR_NOTE",
    "VNODES",
    "KeyedBy",
    "Notes",
    "OldShard",
    "Rule",
    "copy_notes",
    "divide",
    "hash_of",
    "noted_keyed",
    "overlapping",
    "owner_of",
    "require_same_tables",
    "require_same_watermarks",
    "shard_of",
    "vnode_of",
    "vnode_router",
]
