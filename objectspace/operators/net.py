"""The net changes of a chunk: what its rows say together, whatever their order."""

from __future__ import annotations

from objectspace.relational import Chunk
from objectspace.relational.chunk import Op, is_insert
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
    key_of = chunk.schema.key_of
    gone: dict[Row, list[Row]] = {}
    new: dict[Row, list[Row]] = {}
    order: dict[Row, None] = {}
    for op, row in chunk.rows():
        key = key_of(row)
        order[key] = None
        mine, opposite = (new, gone) if is_insert(op) else (gone, new)
        if row in opposite.get(key, ()):
            opposite[key].remove(row)
        else:
            mine.setdefault(key, []).append(row)
    found: list[tuple[Op, Row]] = []
    for key in order:
        found += [("-", row) for row in gone.get(key, ())]
        found += [("+", row) for row in new.get(key, ())]
    return found
