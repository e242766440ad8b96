"""Expressions of pyarrow: the text that is their identity, and their values for the rows of a schema."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from objectspace.operators.bound import ArrowBound, Bound
from objectspace.operators.row_functions import form_of
from objectspace.relational import TableSchema
from objectspace.relational.schema import Row


def text_and_bind(given: Any) -> tuple[str, Callable[[TableSchema], Bound]]:
    """Return what makes an expression of one of pyarrow, which is computed for all rows of a chunk at once.

    Args:
        given: the expression of pyarrow.

    Returns:
        Its text, and the function that prepares it for the rows of a schema.
    """
    text = f"arrow({_whole(given)})"

    def _bind(schema: TableSchema) -> Bound:
        import pyarrow as pa
        import pyarrow.dataset as ds

        from objectspace.relational import Chunk
        from objectspace.relational.values_arrow import listed

        def _table(rows: Sequence[Row]) -> pa.Table:
            batch = Chunk(schema, ["+"] * len(rows), rows).to_arrow(op_column="$op")
            return ds.dataset(pa.Table.from_batches([batch])).to_table(columns={"value": given})

        (column,) = TableSchema.from_arrow(_table([]).schema).columns
        form = form_of(column.type, text) if column.type.kind == "timestamptz" else None

        def _values(rows: Sequence[Row]) -> list[Any]:
            found = listed(_table(rows)["value"], text) if rows else []
            return found if form is None else [None if value is None else form(value) for value in found]

        return ArrowBound(column.type, True, lambda row: _values([row])[0], _values)

    return text, _bind


def _whole(given: Any) -> str:
    """Return the text of a pyarrow expression, together with what that text leaves out.

    It leaves out a part of a long list, for which a digest is added; and which numbers are floats, since a whole one is
    written like an integer.
    """
    _, (content,) = given.__reduce__()
    text, kinds = str(given), _kinds_of_literals(content)
    if kinds:
        text += f" of {', '.join(kinds)}"
    return f"{text}#{hashlib.sha256(content).hexdigest()[:16]}" if "..." in text else text


def _kinds_of_literals(content: Any) -> list[str]:
    """Return the types of the literals in a pyarrow expression, in whose text a float is written like an integer."""
    import pyarrow as pa
    import pyarrow.compute as pc

    literals = pa.ipc.open_file(content).read_all().columns
    floats = [column[0] for column in literals if pa.types.is_floating(column.type)]
    is_hidden = any(str(pc.scalar(one)).lstrip("-").isdigit() for one in floats)
    return [str(column.type) for column in literals] if is_hidden else []
