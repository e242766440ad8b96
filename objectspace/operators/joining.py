"""Joins of streams: names that both sides have, columns that must be equal, and the columns of the output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from objectspace.operators.builder import JOINS, Stream
from objectspace.operators.computed import Rekey, Select
from objectspace.operators.expressions import Expression, coalesce, col, expression, lit, shown
from objectspace.operators.hash_join import HashJoin, JoinKind
from objectspace.operators.plan import Node
from objectspace.relational import Column, SchemaError, TableSchema

On = Sequence[str | tuple[str, str]] | str


def joined(
    left: Stream, right: Stream, on: On, how: str, *, where: Any = None, null_safe: bool = False, suffix: str = "_right"
) -> Stream:
    """Return the join of two streams: see :meth:`Stream.join`."""
    pairs = [(one, one) if isinstance(one, str) else one for one in ([on] if isinstance(on, str) else on)]
    if not pairs:
        raise SchemaError("join() takes at least one column in on=: rows meet by equal values")
    shared = [name for name, other in pairs if name == other]
    kind = cast(JoinKind, JOINS.get(how, how))
    if kind == "full_outer" and not _tells_absence(left, right):
        left, right = _marked(left, "_in_left"), _marked(right, "_in_right")
    renamed = _names_of_right(left, right, shared, suffix)
    other = right.relabelled(renamed) if renamed else right
    keys = [name for name, _ in pairs], [renamed.get(name, name) for _, name in pairs]
    schemas = left.schema, other.schema

    def _make() -> HashJoin:
        return HashJoin(
            *schemas,
            left_key=keys[0],
            right_key=keys[1],
            kind=kind,
            null_safe=null_safe,
            condition=_condition(*schemas, where),
        )

    operator = _make()
    output = operator.schema
    structure = f"{kind} on {', '.join(f'{one} = {two}' for one, two in zip(*keys, strict=True))}"
    structure += (" null-safe" if null_safe else "") + ("" if where is None else f" where {expression(where)}")
    node = Node(
        "HashJoin",
        structure,
        operator.schema,
        (left.node, other.node),
        operator.sides,
        _make,
        (tuple(keys[0]), tuple(keys[1])),
        operator.state(),
        kind == "inner" and left.node.append_only and right.node.append_only,
    )
    visible = [name for name in (*left.columns, *other.columns) if name in operator.schema.names]
    found = Stream(left.pipeline, node, visible)
    if "semi" in kind or "anti" in kind:
        return found if kind.startswith("left") else found.relabelled({new: old for old, new in renamed.items()})
    columns = _output(left, other, kind, shared, renamed)
    key = [name for name, _ in operator.schema.primary_key]
    if kind in ("inner", "left_outer"):
        # What the left side has too says nothing more: a row of it has one value there, or none.
        key = [name for name in key if name not in {renamed[name] for name in shared}]
    structure = ", ".join(shown(name, made) for name, made in columns.items())
    return found.then("Select", structure, lambda: Select(output, columns, key), visible=tuple(columns))


def _tells_absence(left: Stream, right: Stream) -> bool:
    """Tell whether a key of which a part is NULL shows that this side has no row there."""
    return all(
        any(not stream.schema.columns[place].nullable for place in stream.schema.key_places) for stream in (left, right)
    )


def _marked(stream: Stream, name: str) -> Stream:
    """Return a stream with one more hidden key column, which is never NULL."""
    while name in stream.schema.names:
        name = f"_{name}"
    columns = {one: col(one) for one in stream.schema.names} | {name: lit(True)}
    before = stream.schema
    marked = stream.then("Marked", name, lambda: Select(before, columns))
    schema = TableSchema(marked.schema.columns, [*marked.schema.primary_key, name])
    return marked.then("Rekey", f"and {name}", lambda: Rekey(schema))


def _names_of_right(left: Stream, right: Stream, shared: Sequence[str], suffix: str) -> dict[str, str]:
    """Return new names for the columns of the right side that the left side has too."""
    taken = {*left.schema.names, *right.schema.names}
    found: dict[str, str] = {}
    for name in right.schema.names:
        if name in left.schema.names:
            hidden = name in shared or name not in right.columns
            new = f"_right_{name.lstrip('_')}" if hidden else f"{name}{suffix}"
            while hidden and new in taken:
                new = f"_{new}"
            if new in taken:
                raise SchemaError(f"both sides have a column {name!r}, and {new!r} is taken: pass another suffix=")
            found[name] = new
            taken.add(new)
    return found


def _condition(left: TableSchema, right: TableSchema, where: Any) -> Any:
    """Return a further condition as a function of a joined row."""
    if where is None:
        return None
    both = TableSchema([Column(one.name, one.type, one.nullable) for one in (*left.columns, *right.columns)])
    return expression(where).bind(both).value


def _output(
    left: Stream, right: Stream, kind: str, shared: Sequence[str], renamed: Mapping[str, str]
) -> dict[str, Expression]:
    """Return the columns of the output: those of ``on`` once, from the side that has them."""
    found = {}
    for name in left.columns:
        found[name] = col(name)
        if name in shared and kind == "right_outer":
            found[name] = col(renamed[name])
        elif name in shared and kind == "full_outer":
            found[name] = coalesce(name, renamed[name])
    hidden = {renamed[name] for name in shared}
    return found | {name: col(name) for name in right.columns if name not in hidden}
