"""What the driver notes of a pipeline that is built: how the rows of each operator find their shard."""

from __future__ import annotations

from objectspace import PersistedObjectSpace
from objectspace.operators import Plan

PIPELINE = "$pipeline"
"""The operator under whose name the driver keeps what it must know of a pipeline."""

ROUTES = "$routes"
"""The dictionary that says by which columns of each side rows are routed; an operator that sees all rows has none."""

KINDS = "$kinds"
"""The dictionary that says of which types these columns are, of operators of users."""


def note_routes(space: PersistedObjectSpace, plan: Plan) -> None:
    """Note for each operator with state by which columns its rows are routed. Dirties: an item for each.

    Of operators of users also the types, and an item more: they may keep objects that have these values as keys.
    """
    routes = space.get_or_create_dictionary(ROUTES)
    for node in plan.stateful:
        keys = [keys or () for keys in node.keys]
        routes[plan.names[node]] = [list(side) for side in keys] if all(keys) else []
        if node.keeps_state:
            sides = zip(keys, node.inputs, strict=True)
            kinds = [[str(one.schema.column(column).type) for column in side] for side, one in sides]
            space.get_or_create_dictionary(KINDS)[plan.names[node]] = kinds


def noted_routes(space: PersistedObjectSpace, of: str = ROUTES) -> dict[str, list[list[str]]]:
    """Return what ``note_routes`` has noted: the columns, or of :data:`KINDS` their types."""
    return dict(space.get_dictionary(of).items()) if of in space else {}
