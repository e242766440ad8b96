"""Users' operators in a pipeline: where they stand, and by which columns rows are routed to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from objectspace.extras import require
from objectspace.operators.apply import Apply, Processor, require_processor
from objectspace.operators.base import Operator
from objectspace.operators.fingerprints import describe
from objectspace.operators.sessions import SessionWindow
from objectspace.operators.sources import check_name, key_parts, source_schema
from objectspace.operators.windows import Hop
from objectspace.relational import SchemaError, TableSchema

if TYPE_CHECKING:
    from objectspace.operators.builder import Stream


def passed(
    stream: Stream, operator: Callable[[TableSchema], Operator], name: str, key: Sequence[str] | str = ()
) -> Stream:
    """Return the output of a user's operator: see :meth:`Stream.through`."""
    check_name(name)
    stream.pipeline.require_no_source(name)
    schema, keys = stream.schema, key_columns(stream, name, key)
    made = _made(operator, schema, name)
    visible = tuple(column for column in made.schema.names if column in stream.columns or not column.startswith("_"))
    structure = describe(operator) + (f" by {', '.join(keys)}" if keys else "")
    found = stream.then(type(made).__name__, structure, lambda: operator(schema), visible=visible, keys=keys, name=name)
    found.node.keeps_state = found.node.is_own = True
    # Windows pass a watermark on, and make none.
    is_made = made.schema.watermark_column != schema.watermark_column and not isinstance(made, Hop | SessionWindow)
    found.node.has_watermark |= is_made
    if not isinstance(made, Hop):
        found.node.more_watermark_columns = ()
    return found


def _made(operator: Any, schema: TableSchema, name: str) -> Operator:
    """Return a user's operator for a stream.

    Raises:
        SchemaError: it is not an operator, or does not have exactly one input.
    """
    expected = f"operator {name!r}: expected the class of an Operator, or a function that makes one for the schema"
    if isinstance(operator, Operator) or not callable(operator):
        raise SchemaError(f"{expected}: found {_told(operator)}: every task makes its own")
    made: Any = operator(schema)
    if not isinstance(made, Operator):
        raise SchemaError(f"{expected}: {_told(operator)} made {_told(made)}: derive it from objectspace's Operator")
    if len(made.sides) != 1:
        raise SchemaError(
            f"operator {name!r} ({type(made).__name__}) has the inputs {', '.join(made.sides)}: through() feeds one;"
            " union() puts two together"
        )
    return made


def _told(value: Any) -> str:
    return f"an operator {type(value).__name__}" if isinstance(value, Operator) else f"{value!r:.80}"


def applied(
    stream: Stream,
    processor: Processor,
    name: str,
    schema: Any,
    key: Sequence[str] | str = (),
    output_key: Sequence[str] | str = (),
) -> Stream:
    """Return the rows that a user's object returns: see :meth:`Stream.apply`."""
    check_name(name)
    stream.pipeline.require_no_source(name)
    require_processor(f"operator {name!r} ({type(processor).__name__})", processor)
    require("pyarrow", "arrow")
    given, keys, append_only = stream.schema, key_columns(stream, name, key), stream.node.append_only
    try:
        found = source_schema(schema, key_parts(output_key))
    except SchemaError as error:
        raise SchemaError(f"operator {name!r}: {error}") from None
    output = TableSchema(found.columns, list(found.primary_key))  # Nobody would see to what it says about watermarks.
    structure = describe(type(processor)) + (f" by {', '.join(keys)}" if keys else "")
    options: dict[str, Any] = {"visible": stream.columns, "append_only": append_only}
    made = stream.then(
        "Apply",
        structure,
        lambda: Apply(given, processor, name, output, keys, **options),
        visible=output.names,
        keys=keys,
        append_only=not output.primary_key,
        name=name,
    )
    made.node.keeps_state = True
    return made


def key_columns(stream: Stream, name: str, key: Sequence[str] | str) -> tuple[str, ...]:
    """Return the key columns of an operator.

    Raises:
        SchemaError: the stream has no such column, or a column is given twice.
    """
    try:
        keys: tuple[Any, ...] = tuple(key_parts(key))
    except SchemaError as error:
        raise SchemaError(f"operator {name!r}: {error}") from None
    for column in keys:
        if column not in stream.columns or keys.count(column) > 1:
            found = "found it twice" if column in stream.columns else f"expected one of {', '.join(stream.columns)}"
            raise SchemaError(
                f"operator {name!r}: key column {column!r}: {found}: name columns of the stream once each"
            )
    return keys
