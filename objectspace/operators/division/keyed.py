"""What an operator notes in its shards of objects whose keys tell how rows are routed."""

from __future__ import annotations

from dataclasses import dataclass

from objectspace import PersistedObjectSpace

KEYED = "$keyed"
"""The dictionary of a shard that says which of its objects are keyed by what routes the rows: ``KeyedBy`` by name."""

OPERATOR_NOTE = "$operator"
"""The entry of ``$keyed`` that says what the operator is, whose state this is."""


@dataclass(frozen=True)
class KeyedBy:
    """Where the keys of an object hold the values that its rows are routed by.

    Args:
        parts: how many parts a key has; one where it is no tuple.
        places: the places of these values among the parts, in the order in which rows are routed by them.
    """

    parts: int
    places: tuple[int, ...]

    @classmethod
    def whole(cls, parts: int) -> KeyedBy:
        """Return what says that a key is these values and nothing else."""
        return cls(parts, tuple(range(parts)))


def noted_keyed(space: PersistedObjectSpace) -> dict[str, KeyedBy]:
    """Return how each object of a shard is keyed of which that was noted."""
    stored = space.get_dictionary(KEYED).items() if KEYED in space else ()
    return {name: KeyedBy(known["parts"], tuple(known["places"])) for name, known in stored if name != OPERATOR_NOTE}
