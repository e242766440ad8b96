"""The net changes of a chunk: what its rows say together, whatever their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from operator import eq
from typing import Any

from objectspace.operators.canonical import dictionary_keys
from objectspace.relational import Chunk
from objectspace.relational.chunk import Op, is_insert
from objectspace.relational.equality import Equal
from objectspace.relational.schema import Row


def net_changes(chunk: Chunk) -> list[tuple[Op, Row]]:
    """Return the changes of a chunk without those that cancel; for each stream key deletes come before inserts.

    A shuffle may bring the new row of an update before its old one. Which rows come and which go does not depend on the
    order; the state before the chunk plays no part. If a row comes and an equal row in another spelling goes, the new
    row replaces the old one: whatever shows the spelling has to hear of it.

    >>> from objectspace.relational import Column, TableSchema
    >>> schema = TableSchema([Column("k", "int64"), Column("v", "int64")], ["k"])
    >>> net_changes(Chunk.from_rows(schema, [("+", (1, 5)), ("+", (2, 0)), ("-", (1, 4)), ("-", (2, 0))]))
    [('-', (1, 4)), ('+', (1, 5))]

    Time: O(rows).
    """
    if set(chunk.ops) == {"+"}:
        return list(zip(chunk.ops, chunk.values))
    keys = dictionary_keys(chunk.schema, chunk.schema.key_places)(chunk.values)
    plain = zip(map(_PLAIN.__getitem__, chunk.ops), chunk.values)
    times = Counter(keys)
    if len(times) == len(keys) or len(times) + _pairs(chunk, keys) == len(keys):
        return list(plain)
    twice = {key for key, number in times.items() if number > 1}
    join = _join if chunk.schema.alike is eq else partial(_join_unlike, chunk.schema.alike)
    several: dict[Any, tuple[list[Row], list[Row]]] = {key: ([], []) for key in twice}
    for key, op, row in zip(keys, chunk.ops, chunk.values):
        if key in twice:
            join(several[key], is_insert(op), row)
    found: list[tuple[Op, Row]] = []
    for key, change in zip(keys, plain):
        if key not in twice:
            found.append(change)
        elif key in several:
            gone, new = several.pop(key)
            if len(gone) + len(new) > 2 and join is not _join:
                gone, new = _without_equal(chunk.schema.equal, gone, new)
            found += [("-", row) for row in gone]
            found += [("+", row) for row in new]
    return found


def _pairs(chunk: Chunk, keys: Sequence[Any]) -> int:
    """Return the number of updates whose new row comes right after the old one and differs from it."""
    ops, rows, alike = chunk.ops, chunk.values, chunk.schema.alike
    olds = [place for place, op in enumerate(ops[:-1]) if op == "U-" and ops[place + 1] == "U+"]
    return sum(keys[old] == keys[old + 1] and not alike(rows[old], rows[old + 1]) for old in olds)


def _join(net: tuple[list[Row], list[Row]], comes: bool, row: Row) -> None:
    """Add a change to the rows that went and those that came."""
    mine, opposite = net[::-1] if comes else net
    if row in opposite:
        opposite.remove(row)
    else:
        mine.append(row)


def _join_unlike(alike: Equal, net: tuple[list[Row], list[Row]], comes: bool, row: Row) -> None:
    """Add a change if rows may be alike that Python finds unlike, or the other way round."""
    mine, opposite = net[::-1] if comes else net
    for place, other in enumerate(opposite):
        if alike(other, row):
            del opposite[place]
            return
    mine.append(row)


def _without_equal(equal: Equal, gone: list[Row], new: list[Row]) -> tuple[list[Row], list[Row]]:
    """Return what is left of a key whose rows went in another spelling than they came: at most one row."""
    kept, left = [], sorted(new, key=repr)
    for row in sorted(gone, key=repr):
        place = next((place for place, other in enumerate(left) if equal(other, row)), None)
        if place is None:
            kept.append(row)
        else:
            del left[place]
    return kept, left


_PLAIN: dict[Op, Op] = {"+": "+", "-": "-", "U+": "+", "U-": "-"}
"""The operations on rows that are not pairs."""
