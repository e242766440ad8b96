"""What operators require of the chunks that they take, and how they keep pairs whole in those that they return."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from objectspace.operators.base import Operator
from objectspace.relational import Chunk, InconsistentOperationError, SchemaMismatchError, TableSchema
from objectspace.relational.chunk import Op
from objectspace.relational.evolution import differing
from objectspace.relational.schema import Row

FIRST = "materialize(name, key, conflict='overwrite')"
"""What makes the changes of a source consistent that brings keys twice or retracts what it has not brought."""

RETRACTED = f"more rows were retracted than came: after a source that takes back what it has not brought, put {FIRST}"
"""The error for a group that cannot exist."""

Change = tuple[Op, Row]

HALF_OF: dict[Op, Op] = {"-": "U-", "+": "U+"}
"""The name of an operation if it is half of an update; :func:`unbroken` makes lone halves plain."""

HALVES = frozenset(HALF_OF.values())
"""The operations on the old and the new row of an update."""

T = TypeVar("T")


def check_chunk(schema: TableSchema, chunk: Chunk) -> None:
    """Refuse anything that is not a chunk with the columns of an input.

    Raises:
        TypeError: it is not a chunk.
        SchemaMismatchError: it has other columns.
    """
    if not isinstance(chunk, Chunk):
        raise TypeError(f"an operator takes a Chunk: found {chunk!r:.80}; Chunk.from_rows(schema, changes) makes one")
    if chunk.schema is schema:
        return
    expected, found = ({column.name: column.type for column in one.columns} for one in (schema, chunk.schema))
    if list(expected.items()) != list(found.items()):
        differences = "; ".join(differing(expected, found, ("expected", "found")))
        raise SchemaMismatchError(f"the chunk has the columns {chunk.schema}: the input has {schema}: {differences}")


def taken(schema: TableSchema, chunk: Chunk) -> Chunk:
    """Return a chunk with the schema of an input, whose stream key is the one that tells rows apart.

    Raises:
        TypeError: it is not a chunk.
        SchemaMismatchError: it has other columns.
    """
    check_chunk(schema, chunk)
    is_keyed_alike = chunk.schema is schema or chunk.schema.primary_key == schema.primary_key
    return chunk if is_keyed_alike else Chunk(schema, chunk.ops, chunk.values)


def refuse_retractions(operator: Operator, chunk: Chunk) -> None:
    """Refuse a chunk that retracts rows.

    Raises:
        InconsistentOperationError: it does.
    """
    if set(chunk.ops) <= {"+"}:
        return
    for op, row in chunk.rows():
        if op != "+":
            raise InconsistentOperationError(
                f"{type(operator).__name__} takes an append-only input: found {op} {row!r:.200}; the chunk was not"
                " taken"
            )


def ordered_by(keys: Sequence[Any], things: Sequence[T]) -> list[T]:
    """Return things in the order of their keys; those with equal keys keep their order.

    >>> ordered_by([b"b", b"a", b"b"], [1, 2, 3])
    [2, 1, 3]
    """
    return [things[place] for place in sorted(range(len(things)), key=keys.__getitem__)]


def paired(schema: TableSchema, pairs: Iterable[tuple[Change | None, Change | None]]) -> Chunk:
    """Return the chunk of changes that came alone or as the two halves of an update.

    An update whose halves are alike is left out; one with a missing half, or one that changes the key, becomes a plain
    delete and a plain insert.

    >>> from objectspace.relational import Column
    >>> schema = TableSchema([Column("k", "int64"), Column("v", "int64")], ["k"])
    >>> paired(schema, [(("U-", (1, 1)), ("U+", (1, 2))), (("U-", (1, 2)), None), (None, ("+", (3, 3)))]).rows()
    [('U-', (1, 1)), ('U+', (1, 2)), ('-', (1, 2)), ('+', (3, 3))]
    """
    found: list[Change] = []
    for old, new in pairs:
        if old is not None and new is not None:
            if schema.alike(old[1], new[1]):
                continue
            same = schema.same_key(old[1], new[1])
            found += [("U-" if same else "-", old[1]), ("U+" if same else "+", new[1])]
        elif old is not None:
            found.append(("-", old[1]))
        elif new is not None:
            found.append(("+", new[1]))
    return Chunk(schema, [op for op, _ in found], [row for _, row in found])


def halves(chunk: Chunk) -> Iterable[tuple[Change | None, Change | None]]:
    """Yield the changes of a chunk: (old, new) for an update, with ``None`` in place of what is not there."""
    waiting: Change | None = None
    for change in chunk.rows():
        if waiting is not None and change[0] != "U+":
            yield waiting, None
            waiting = None
        if change[0] == "U-":
            waiting = change
        elif change[0] == "-":
            yield change, None
        else:
            yield waiting, change
            waiting = None
    if waiting is not None:
        yield waiting, None


def unbroken(chunk: Chunk) -> Chunk:
    """Return a chunk in which each half of an update is plain unless the other half, of the same key, is beside it."""
    if not HALVES.intersection(chunk.ops) or _are_pairs(chunk):
        return chunk
    found: list[Change] = []
    for old, new in halves(chunk):
        is_pair = old is not None and new is not None and chunk.schema.same_key(old[1], new[1])
        if old is not None:
            found.append(old if is_pair else ("-", old[1]))
        if new is not None:
            found.append(new if is_pair else ("+", new[1]))
    return Chunk(chunk.schema, [op for op, _ in found], [row for _, row in found])


def _are_pairs(chunk: Chunk) -> bool:
    """Return whether all halves of updates are adjacent: the old row and the new row of one key."""
    ops, same_key = chunk.ops, chunk.schema.same_key
    olds = [place for place, op in enumerate(ops[:-1]) if op == "U-"]
    if not len(olds) == ops.count("U-") == ops.count("U+") or any(ops[place + 1] != "U+" for place in olds):
        return False
    return all(same_key(*chunk.values[place : place + 2]) for place in olds)


def moved_apart(chunk: Chunk) -> Chunk:
    """Return a chunk in which an update that changes the key is a delete and an insert; lone halves stay halves."""
    if "U-" not in chunk.ops:
        return chunk
    ops = list(chunk.ops)
    for place, op in enumerate(ops[:-1]):
        if op == "U-" and ops[place + 1] == "U+" and not chunk.schema.same_key(*chunk.values[place : place + 2]):
            ops[place : place + 2] = ["-", "+"]
    return Chunk(chunk.schema, ops, chunk.values)
