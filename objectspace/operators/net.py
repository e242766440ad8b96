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
    """Return the changes of a chunk without those that cancel; of each stream key deletes come before inserts.

    A shuffle may bring the new row of an update before its old one. The rows that come and those that go do not depend
    on the order; the state before the chunk settles nothing here.

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
    join = _join if chunk.schema.equal is eq else partial(_join_unlike, chunk.schema.equal)
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
            found += [("-", row) for row in gone]
            found += [("+", row) for row in new]
    return found


def is_unchanged(chunk: Chunk, old: Row, new: Row) -> bool:
    """Tell whether an update says nothing: rows that are equal in another spelling, 1.0 and 1.00, do differ for some.

    What is cast to text, for example, shows it.
    """
    return chunk.schema.equal(old, new) and (chunk.schema.equal is eq or repr(old) == repr(new))


def _pairs(chunk: Chunk, keys: Sequence[Any]) -> int:
    """Return how many updates there are of which the new row comes just after the old one, which is another."""
    ops, rows, equal = chunk.ops, chunk.values, chunk.schema.equal
    olds = [place for place, op in enumerate(ops[:-1]) if op == "U-" and ops[place + 1] == "U+"]
    return sum(keys[old] == keys[old + 1] and not equal(rows[old], rows[old + 1]) for old in olds)


def _join(net: tuple[list[Row], list[Row]], comes: bool, row: Row) -> None:
    """Join a change to the rows that went and those that came."""
    mine, opposite = net[::-1] if comes else net
    if row in opposite:
        opposite.remove(row)
    else:
        mine.append(row)


def _join_unlike(equal: Equal, net: tuple[list[Row], list[Row]], comes: bool, row: Row) -> None:
    """Join a change where rows may be equal that Python finds unlike."""
    mine, opposite = net[::-1] if comes else net
    for place, other in enumerate(opposite):
        if equal(other, row):
            del opposite[place]
            return
    mine.append(row)


_PLAIN: dict[Op, Op] = {"+": "+", "-": "-", "U+": "+", "U-": "-"}
"""The operations on rows that are no pairs."""
