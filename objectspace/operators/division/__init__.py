"""Dividing the shards of a space anew, without an engine: who opens a shard after a rescale does it.

A row or a key belongs to the vnode of the values that it is routed by (``vnodes``), which are told by what was noted of
an operator (``rules``, ``keyed``). A new shard takes from the old ones what belongs to its vnodes (``dividing``).
"""

from objectspace.operators.division.dividing import copy_notes, divide
from objectspace.operators.division.evolved import join_tables
from objectspace.operators.division.keyed import KEYED, OPERATOR_NOTE, KeyedBy, noted_keyed
from objectspace.operators.division.rules import Rule
from objectspace.operators.division.shard import OldShard
from objectspace.operators.division.vnodes import (
    VNODES,
    hash_of,
    overlapping,
    owner_of,
    shard_of,
    vnode_of,
    vnode_router,
)

__all__ = [
    "KEYED",
    "OPERATOR_NOTE",
    "VNODES",
    "KeyedBy",
    "OldShard",
    "Rule",
    "copy_notes",
    "divide",
    "hash_of",
    "join_tables",
    "noted_keyed",
    "overlapping",
    "owner_of",
    "shard_of",
    "vnode_of",
    "vnode_router",
]
