"""What an epoch brings: rows in any of the usual forms, as a chunk of the schema of their source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from objectspace.operators.canonical import dictionary_keys
from objectspace.operators.chunks import HALF_OF, HALVES, Change, ordered_by, unbroken
from objectspace.operators.net import net_changes
from objectspace.operators.plan import Node, Plan
from objectspace.relational import Chunk, Order, RowError, SchemaError, TableSchema
from objectspace.relational.bulk import keys_encoder
from objectspace.relational.chunk import OP_COLUMN, OPS, Op, is_insert
from objectspace.relational.schema import Row

ROWS_AN_EPOCH = 2**32
"""How many rows without a key a source may bring in one epoch."""

_MOST_ROWS = 2**63
"""How many numbers a column of 64 bits has for them."""


def chunks_of(
    plan: Plan,
    sources: Mapping[str, Node],
    batch: Mapping[str, Any],
    number: int,
    before: Mapping[str, int] | None = None,
) -> dict[Node, Chunk]:
    """Return what the sources bring in an epoch: one chunk for each way in which a source's rows are taken in.

    If rows are taken as they come, they stay as they are; otherwise they are reduced to what they say together in any
    order.

    Args:
        plan: the plan, which says how rows are taken.
        sources: the sources by their names.
        batch: their rows by their names: a chunk, Arrow data or anything that provides it as a stream, a pandas data
            frame, rows (tuples or mappings), or pairs (operation, row).
        number: the number of the batch; together with its place it is the key of a row that has none.
        before: by source, how many rows without a key have come under this number before.

    Raises:
        TypeError: the batch is not a mapping.
        RowError: there is no such source, a row does not fit, or the number is too large for rows without a key.
    """
    if not isinstance(batch, Mapping):
        raise TypeError(
            f"a batch is a mapping of the names of sources to their rows: found a {type(batch).__name__}, {batch!r:.80}"
        )
    for name in batch:
        if name not in sources:
            raise RowError(f"the pipeline has no source {name!r}: its sources are {', '.join(sources)}")
    found: dict[Node, Chunk] = {}
    for name, node in sources.items():
        if name in batch:
            try:
                chunk, first = _checked(node, batch[name]), number * ROWS_AN_EPOCH + (before or {}).get(name, 0)
                found |= {entrance: _taken_in(entrance, chunk, first) for entrance in plan.entrances(node)}
            except (RowError, SchemaError) as error:
                raise RowError(f"source {name!r}: {error}") from None
    return found


def _checked(node: Node, given: Any) -> Chunk:
    chunk = _chunk(TableSchema(node.schema.columns[:-1]) if node.is_numbered else node.schema, given)
    if node.append_only:
        _refuse_retractions(chunk)
    return chunk


def _taken_in(node: Node, chunk: Chunk, first: int) -> Chunk:
    if node.is_numbered:
        return _numbered(chunk, node.schema, first, in_order=node.as_it_comes)
    return unbroken(chunk) if node.as_it_comes else _ordered(_net(chunk))


def _chunk(schema: TableSchema, given: Any) -> Chunk:
    if isinstance(given, Chunk):
        if given.schema == schema:
            return Chunk(schema, given.ops, schema.check_rows(given.values))
        return Chunk.from_rows(schema, _named(given, schema.names))
    module = type(given).__module__.partition(".")[0]
    if module == "pandas":
        return Chunk.from_pandas(given, schema)
    if module == "pyarrow" or hasattr(given, "__arrow_c_stream__"):
        return Chunk.from_arrow(given, schema)
    if given is None:
        raise RowError("found None: give no rows as [], or leave the source out")
    if not isinstance(given, Iterable):
        raise RowError(f"expected rows, Arrow data or a data frame, found a {type(given).__name__}")
    entries = list(given)
    try:
        return Chunk.from_rows(schema, [_change(schema, entry) for entry in entries])
    except RowError as error:
        raise RowError(f"{error}{_advice(entries)}") from None


def _advice(entries: list[Any]) -> str:
    """Return what to do if an entry looks like a change whose operation has another name."""
    for entry in entries:
        if isinstance(entry, tuple | list) and len(entry) == 2 and _is_several(entry[1]):
            op = entry[0]
            if isinstance(op, str) and op not in OPS:
                return f"; a change is (operation, row) with one of {', '.join(OPS)}, if {op!r} is to be an operation"
    return ""


def _named(chunk: Chunk, expected: Sequence[str]) -> Iterable[tuple[Op, Any]]:
    """Return changes with values by column name, if the columns are in another order."""
    names = chunk.schema.names
    return chunk.rows() if names == expected else [(op, dict(zip(names, row))) for op, row in chunk.rows()]


def _change(schema: TableSchema, given: Any) -> Sequence[Any]:
    """Return an operation and its row; a row without an operation is inserted."""
    if isinstance(given, Mapping):
        row = {name: value for name, value in given.items() if name != OP_COLUMN}
        return (given.get(OP_COLUMN, "+"), row)
    if not isinstance(given, Sequence):
        raise RowError(f"{given!r:.80} is a {type(given).__name__}: a row is a tuple, a list or a mapping")
    return tuple(given) if _is_change(schema, given) else ("+", given)


def _is_change(schema: TableSchema, given: Sequence[Any]) -> bool:
    """Return whether this is an operation with its row, and perhaps a flag whether it counts, not just a row."""
    if len(given) not in (2, 3) or not (isinstance(given[0], str) and given[0] in OPS and _is_several(given[1])):
        return False
    columns, row = schema.columns, given[1]
    if len(given) != len(columns) or columns[0].type.kind != "string" or not columns[1].type.is_nested:
        return True
    # A row may also begin with a plus and continue with a list; but then that list is not like a row itself.
    if isinstance(row, Mapping):
        return row.keys() <= {column.name for column in columns}
    return len(row) == len(columns) and (row[1] is None or _is_several(row[1]))


def _is_several(value: object) -> bool:
    return isinstance(value, Sequence | Mapping) and not isinstance(value, str | bytes)


def _refuse_retractions(chunk: Chunk) -> None:
    for op, row in () if set(chunk.ops) <= {"+"} else chunk.rows():
        if op != "+":
            raise RowError(
                f"{op} {row!r:.200}: its rows are only added: declare it with a key, and without append_only"
            )


def _net(chunk: Chunk) -> Chunk:
    """Return the changes, with those of a key for which several rows come or go reduced to what they say together.

    It is the same on Spark. For each such key deletes then come before inserts, and what came and went cancels.
    """
    if set(chunk.ops) <= {"+"}:
        return chunk
    keys_of = dictionary_keys(chunk.schema, chunk.schema.key_places)
    keys = keys_of(chunk.values)
    mixed = _mixed(keys, chunk)
    if not mixed:
        return chunk
    keyed = list(zip(keys, chunk.rows(), strict=True))
    updated = {key for key, (op, _) in keyed if op in HALVES}
    net = net_changes(_chunk_of(chunk.schema, [change for key, change in keyed if key in mixed]))
    changed = zip(keys_of([row for _, row in net]), net, strict=True)
    kept = [change for key, change in keyed if key not in mixed]
    return _chunk_of(chunk.schema, kept + [(HALF_OF[op] if key in updated else op, row) for key, (op, row) in changed])


def _mixed(keys: Sequence[Any], chunk: Chunk) -> set[Any]:
    """Return the keys whose changes say more than that a row goes, and then perhaps that another one comes."""
    gone: dict[Any, Row | None] = {}
    mixed: set[Any] = set()
    halved: Any = _NONE
    for key, (op, row) in zip(keys, chunk.rows(), strict=True):
        # An update to the same row sets what a table may have missed. Halves of two updates say that what comes goes.
        is_update = op == "U+" and halved == key
        halved = key if op == "U-" else _NONE
        if key not in gone:
            gone[key] = None if is_insert(op) else row
        elif (old := gone[key]) is None or not is_insert(op) or (not is_update and chunk.schema.alike(old, row)):
            mixed.add(key)
        else:
            gone[key] = None
    return mixed


_NONE: Any = object()
"""Stands for no key."""


def _ordered(chunk: Chunk) -> Chunk:
    """Return the changes ordered by key, those of one key as they came, so what follows depends on no other order.

    The halves of an update that changes the key are separated: they become a delete and an insert.
    """
    found = _chunk_of(chunk.schema, ordered_by(chunk.schema.encode_keys(chunk.values), chunk.rows()))
    return unbroken(found) if "U-" in found.ops or "U+" in found.ops else found


def _chunk_of(schema: TableSchema, changes: Sequence[Change]) -> Chunk:
    return Chunk(schema, [op for op, _ in changes], [row for _, row in changes])


def _numbered(chunk: Chunk, schema: TableSchema, first: int, *, in_order: bool) -> Chunk:
    """Number the rows of a batch in the order in which they came if it matters, else in one set by the rows alone."""
    rows = list(chunk.values)
    if first + len(rows) > _MOST_ROWS:
        most = _MOST_ROWS // ROWS_AN_EPOCH - 1
        raise RowError(f"rows without a key are told apart by the number of their batch, which is {most:,} at most")
    if rows and not in_order:
        kinds = [column.type for column in chunk.schema.columns]
        keys = keys_encoder(kinds, [Order()] * len(kinds))(list(zip(*rows)))
        if len(set(keys)) < len(keys):
            # Values that are equal in SQL may be spelled differently, such as 1.0 and 1.00. No key begins with another
            # one.
            twice = {key for key, times in Counter(keys).items() if times > 1}
            keys = [key + repr(row).encode() if key in twice else key for key, row in zip(keys, rows)]
        rows = ordered_by(keys, rows)
    ops: list[Op] = ["+"] * len(rows)
    return Chunk(schema, ops, [(*row, number) for number, row in enumerate(rows, first)])
