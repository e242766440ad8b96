"""What a user's object returns, checked: rows in any of the usual forms, or chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from objectspace.operators.chunks import Change
from objectspace.relational import Chunk, RowError, SchemaError, TableSchema
from objectspace.relational.chunk import OP_COLUMN, OPS
from objectspace.relational.schema import Row


def changes_of(schema: TableSchema, returned: Any) -> Iterator[Change]:
    """Yield the returned rows with their operations; of a row that goes only the key counts.

    Old rows of updates are left out, because the new row replaces them. If the schema has no key, rows can only be
    added.

    Args:
        schema: the schema of the rows.
        returned: Arrow data or a pandas data frame, in which a column ``op`` may say what a row does; mappings, which
            may have ``op`` too; tuples; or ``None``.

    Raises:
        RowError: these are not rows, or one does not fit the schema.

    >>> from objectspace.relational import Column
    >>> schema = TableSchema([Column("k", "string"), Column("v", "int64")], ["k"])
    >>> list(changes_of(schema, [{"k": "a", "v": 1}, {"op": "-", "k": "b"}, ("c", 2)]))
    [('+', ('a', 1)), ('-', ('b', None)), ('+', ('c', 2))]
    """
    for op, given in _given(schema, returned):
        if op not in OPS:
            raise RowError(f"the operation {op!r}: expected one of {', '.join(OPS)}")
        if op != "+" and not schema.primary_key:
            raise RowError(
                f"{op} {given!r:.200}: rows are only added: to replace or take back, name their key with output_key= of"
                " apply(), or key= of an Apply"
            )
        if op == "-":
            yield op, _gone(schema, given)
        elif op != "U-":
            yield "+", schema.check_row(given)


def _given(schema: TableSchema, returned: Any) -> Iterator[tuple[Any, Any]]:
    """Yield what was returned as pairs of an operation and a row."""
    module = type(returned).__module__.partition(".")[0]
    if returned is None:
        return
    if module in ("pyarrow", "pandas") or hasattr(returned, "__arrow_c_stream__"):
        yield from _columnar(schema, returned, module)
        return
    if isinstance(returned, Mapping | str | bytes) or not isinstance(returned, Iterable):
        raise RowError(f"expected Arrow data, a data frame, rows or None, found a {type(returned).__name__}")
    for row in returned:
        if isinstance(row, Mapping):
            yield row.get(OP_COLUMN, "+"), {name: value for name, value in row.items() if name != OP_COLUMN}
        elif isinstance(row, Sequence) and not isinstance(row, str | bytes):
            yield "+", row
        else:
            raise RowError(f"expected rows as mappings or tuples, found {row!r:.200}")


def _columnar(schema: TableSchema, data: Any, module: str) -> Iterable[tuple[Any, Row]]:
    from objectspace.relational import arrow

    if module == "pandas":
        ops, names, columns = arrow.split_frame(data, OP_COLUMN, schema)
    else:
        ops, names, columns = arrow.split(arrow.whole(data), OP_COLUMN, schema)
    if unknown := [name for name in names if name not in schema.names]:
        raise SchemaError(f"there is no column {unknown[0]!r}: the columns are {', '.join(schema.names)}")
    return zip(ops, arrow.picked(schema, names, columns), strict=True)


def _gone(schema: TableSchema, given: Any) -> Row:
    """Return a row that goes, of which only the key counts."""
    if not isinstance(given, Mapping):
        given = dict(zip(schema.names, given, strict=False))
    key = schema.check_key([given.get(name) for name, _ in schema.primary_key])
    values = dict(zip([name for name, _ in schema.primary_key], key, strict=True))
    return tuple([values.get(name) for name in schema.names])


def chunks_from(operator: object, found: Any) -> Iterable[Chunk]:
    """Return the chunks that an operator returned: none for ``None``.

    Raises:
        TypeError: these are not chunks.
    """
    if type(found) is list:
        for made in found:
            if not isinstance(made, Chunk):
                raise _no_chunks(operator, made)
        return found
    if isinstance(found, Chunk) or not isinstance(found, Iterable | None):
        raise _no_chunks(operator, found)
    return () if found is None else (one for made in found for one in chunks_from(operator, [made]))


def _no_chunks(operator: object, found: Any) -> TypeError:
    among = "" if isinstance(found, Chunk) else "; Chunk.from_rows(schema, changes) makes one"
    return TypeError(
        f"operator {type(operator).__name__} returned {found!r:.80}: expected a list of chunks, or None for none{among}"
    )
