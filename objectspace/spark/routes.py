"""What is noted of how rows find their shard: by the driver for a pipeline that is built, else by each shard itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from checkpoint import UnknownCheckpointError
from checkpoint.chain import Chain
from objectspace import PersistedObjectSpace
from objectspace.operators import PipelineChangedError
from objectspace.operators.division.keyed import KEYED, OPERATOR_NOTE, KeyedBy, noted_keyed
from objectspace.spark.progress import EpochProgress

if TYPE_CHECKING:
    from objectspace.operators import Plan

PIPELINE = "$pipeline"
"""The operator under whose name the driver keeps what it must know of a pipeline."""

ROUTES = "$routes"
"""The dictionary that says which columns of each side rows are routed by; an operator that sees all rows has none."""

KINDS = "$kinds"
"""The dictionary that says of which types these columns are, for users' operators."""

YOURS = "yours"
"""What an operator that runs users' code is, before the words that say which columns its rows are routed by."""

SOURCES_NOTE = "$sources"
"""The dictionary that says at which place each source of a pipeline stands: to Spark a source is its place."""


def note_routes(space: PersistedObjectSpace, plan: Plan) -> None:
    """Note for each operator with state the columns that its rows are routed by. Dirties: an item for each.

    For users' operators also the types, with one more item: they may keep objects that have these values as keys.
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
    """Return what ``note_routes`` has noted: the columns, or with :data:`KINDS` their types."""
    return dict(space.get_dictionary(of).items()) if of in space else {}


def note_keyed(space: PersistedObjectSpace, keyed: Mapping[str, KeyedBy]) -> None:
    """Note which objects of a shard have keys that tell where their rows are routed.

    Args:
        space: the space of the shard.
        keyed: how each of them does; one that does not exist yet is skipped.

    Dirties: an item for each object whose note changes, so that most epochs dirty none.
    """
    wanted = {name: one for name, one in keyed.items() if name in space}
    known = noted_keyed(space)
    if wanted != known:
        notes = space.get_or_create_dictionary(KEYED)
        for name in known.keys() - wanted.keys():
            del notes[name]
        notes.update({name: asdict(one) for name, one in wanted.items()})


def require_operator(space: PersistedObjectSpace, name: str, does: str) -> None:
    """Make sure that the state of a shard is that of an operator, and note it where nothing is noted yet.

    Args:
        space: the space of the shard.
        name: the name of the operator.
        does: what it is, as text; empty if that does not matter.

    Raises:
        PipelineChangedError: it is that of another one.

    Dirties: an item, once.
    """
    stored: str | None = space.get_dictionary(KEYED).get(OPERATOR_NOTE) if KEYED in space else None
    if does and stored is None:
        space.get_or_create_dictionary(KEYED)[OPERATOR_NOTE] = does
    elif does and stored is not None and not _is_the_same(stored, does):
        raise PipelineChangedError(
            f"operator {name}: its state is that of {stored}, found {does}: go back to what it was, give it another"
            " name, or start at another location with the input from its beginning"
        )


def _is_the_same(one: str, other: str) -> bool:
    """Return whether what was noted of an operator fits what it is now: for users' code only the key counts."""
    if other.startswith(YOURS):
        one, other = other, one
    return other.endswith(one.removeprefix(YOURS)) if one.startswith(YOURS) else one == other


def note_sources(space: PersistedObjectSpace, names: Sequence[str]) -> None:
    """Note in which order the sources of a pipeline stand. Dirties: an item per source, once."""
    space.get_or_create_dictionary(SOURCES_NOTE).update({name: place for place, name in enumerate(names)})


def noted_sources(space: PersistedObjectSpace) -> list[str]:
    """Return the sources of a pipeline in their order; none if that was not noted."""
    noted = dict(space.get_dictionary(SOURCES_NOTE).items()) if SOURCES_NOTE in space else {}
    return sorted(noted, key=noted.__getitem__)


def require_kind(operators: Iterable[str], url: str, *, is_built: bool) -> None:
    """Make sure that a space is not fed in two ways that know nothing of each other.

    Args:
        operators: the operators that the space keeps state of.
        url: where it lies.
        is_built: whether a pipeline with declared sources is to feed it.

    Raises:
        PipelineChangedError: the space is fed in another way.
    """
    known = set(operators)
    if known and (PIPELINE in known) != is_built:
        found = "a pipeline with sources of its own" if not is_built else "operators that were added, or written tables"
        raise PipelineChangedError(
            f"space at {url} belongs to {found} ({', '.join(sorted(known - {PIPELINE}))}): use another location"
        )


def require_same_operators(chain: Chain, query: str, given: Iterable[str]) -> None:
    """Make sure that a query feeds the operators, or the written table, that it has fed before.

    Args:
        chain: the space.
        query: the id of the query.
        given: the names of those that are to get its next micro-batch.

    Raises:
        PipelineChangedError: it has fed others.
        CheckpointError: a manifest cannot be read.

    Time: O(epochs since the last one of the query); O(epochs that are kept) if none of its epochs is among them.
    """
    before, now = sorted(_fed_by(chain, query)), sorted(given)
    if before and before != now:
        raise PipelineChangedError(
            f"space at {chain.location.url}: the query has fed the operators {', '.join(before)}, found"
            f" {', '.join(now)}: one that is left out would miss micro-batches for good, and a new one those before: go"
            " back to what it was, or start at another location with the input from its beginning"
        )


def _fed_by(chain: Chain, query: str) -> list[str]:
    """Return the names of the operators that got the last micro-batch of a query; none if that is not known."""
    if chain.newest is None or query not in chain.newest.committed:
        return []
    with suppress(UnknownCheckpointError):  # What was collected meanwhile no longer says anything.
        # Epochs of other queries may lie between, and those in which the space got another number of shards.
        for made in map(chain.manifest, range(chain.epoch, chain.first_epoch - 1, -1)):
            if made.source.query == query and (fed := EpochProgress.of(made).operators):
                return [one.name for one in fed]
    return []
