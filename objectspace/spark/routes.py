"""What the driver notes of a pipeline that is built: how the rows of each operator find their shard."""

from __future__ import annotations

from objectspace import PersistedObjectSpace
from objectspace.operators import Plan

PIPELINE = "$pipeline"
"""The operator under whose name the driver keeps what it must know of a pipeline."""

ROUTES = "$routes"
"""The dictionary that says by which columns of each side rows are routed; an operator that sees all rows has none."""


def note_routes(space: PersistedObjectSpace, plan: Plan) -> None:
    """Note for each operator with state by which columns its rows are routed. Dirties: an item for each."""
    routes = space.get_or_create_dictionary(ROUTES)
    for node in plan.stateful:
        keys = [keys or () for keys in node.keys]
        routes[plan.names[node]] = [list(side) for side in keys] if all(keys) else []


def noted_routes(space: PersistedObjectSpace) -> dict[str, list[list[str]]]:
    """Return what ``note_routes`` has noted."""
    return dict(space.get_dictionary(ROUTES).items()) if ROUTES in space else {}
