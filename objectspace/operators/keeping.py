"""Results that are kept: the stream, keyed as the table is, in a Materialize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from objectspace.operators.computed import Rekey
from objectspace.operators.materialize import Conflict, Materialize
from objectspace.operators.plan import Node, Plan
from objectspace.operators.sources import check_name, names_of
from objectspace.relational import SchemaError, TableSchema

if TYPE_CHECKING:
    from objectspace.operators.builder import Stream


def kept(
    stream: Stream,
    name: str,
    key: Sequence[str] | None,
    conflict: Conflict | None,
    version: Sequence[str] | str | None,
) -> Stream:
    """Return the changes of a table that keeps a stream: see :meth:`Stream.materialize`.

    Raises:
        SchemaError: as there.
    """
    check_name(name)
    stream.pipeline.require_no_source(name)
    if version is not None and conflict not in _VERSIONED:
        rules = " or ".join(map(repr, _VERSIONED[:2]))
        raise SchemaError(f"materialize({name!r}): version= is for conflict={rules}: found conflict={conflict!r}")
    takes_order, origin = conflict not in (None, "check"), stream.node
    if key is not None:
        before, columns = stream.schema, list(names_of([key if isinstance(key, str) else list(key)]))
        schema = TableSchema(before.columns, columns, watermark_column=before.watermark_column)
        # After an operator with state, rows come in no meaningful order.
        in_order = takes_order and not Plan([stream.node]).stateful
        stream = stream.then("Rekey", ", ".join(columns), lambda: Rekey(schema, in_order=in_order))
    given, chosen = stream.schema, conflict or "overwrite"
    structure = "" if conflict is None else f"{conflict}{'' if version is None else f' {version}'}"
    # An operator in between may have dropped changes that cancel, and one with another key has.
    hears_all = origin.label == "Source" and not origin.is_own and origin.schema.primary_key == given.primary_key
    trusts = conflict is None and key is None and _is_exact(origin)
    options: dict[str, Any] = {
        "conflict": chosen,
        "version_column": version,
        "hears_all": hears_all,
        "trusts": trusts,
    }
    return stream.then(
        "Materialize",
        structure,
        lambda: Materialize(given, **options),
        keys=tuple(column for column, _ in given.primary_key),
        append_only=False,
        name=name,
        takes_order=takes_order,
    )


def _is_exact(node: Node) -> bool:
    """Return whether the changes of a node are consistent whatever comes in, as those of aggregations are."""
    while node.is_one_of(_ROW_BY_ROW):
        (node,) = node.inputs
    return node.is_one_of(("HashAgg", "SimpleAgg"))


_VERSIONED = ("update_if_newer", "update_if_not_null", "overwrite")
"""The rules for conflicts that may go by a version; with one, the last is the same as the first."""

_ROW_BY_ROW = ("Select", "Where", "Relabel")
"""Operators that pass changes on one by one, by the same stream key."""
