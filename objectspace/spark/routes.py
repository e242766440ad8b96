"""What the driver notes of a pipeline that is built: how the rows of each operator find their shard."""

from __future__ import annotations

from objectspace import PersistedObjectSpace
from objectspace.operators import Plan

PIPELINE = "$pipeline"
"""The operator under whose name the driver keeps what it must know of a pipeline."""

ROUTES = "$routes"
"""The dictionary that says by how many columns rows are routed, with which the keys of the operator's tables begin."""


def note_routes(space: PersistedObjectSpace, plan: Plan) -> None:
    """Note for each operator with state by how many columns its rows are routed. Dirties: an item for each."""
    routes = space.get_or_create_dictionary(ROUTES)
    for node in plan.stateful:
        keys = [keys or () for keys in node.keys]
        routes[plan.names[node]] = len(keys[0]) if keys and all(keys) else 0


def noted_routes(space: PersistedObjectSpace) -> dict[str, int]:
    """Return what ``note_routes`` has noted."""
    return dict(space.get_dictionary(ROUTES).items()) if ROUTES in space else {}
