"""By what the slots of an operator are told apart: the columns of its rows, or the keys of its objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from checkpoint.errors import RESTORE
from objectspace.errors import ObjectSpaceError
from objectspace.operators.division.keyed import KeyedBy
from objectspace.operators.division.vnodes import vnode_of, vnode_router
from objectspace.relational import Column, RelationalError, TableSchema

Sides = list[list[str]]

_DEPTHS = {"sides": 2, "kinds": 2, "named": 1}
"""In how many lists the texts of a rule lie."""

VnodeOfKey = Callable[[Any], int | None]
"""What tells to which vnode a key of an object belongs; None of one that rows are not routed by."""


@dataclass(frozen=True)
class Rule:
    """How an operator is divided; it lies in the files of divisions.

    Args:
        sides: by which columns rows of each side are routed; None of an operator that was added to a pipeline, and
            nothing of one whose rows all meet in its first shard.
        kinds: of which types these columns are, of operators of users, which may keep objects with such keys.
        named: which objects of an added operator the caller says to be divided by their keys.
    """

    sides: Sides | None = None
    kinds: Sides = field(default_factory=list)
    named: Sequence[str] = ()

    @classmethod
    def of(cls, noted: Mapping[str, Any], place: str) -> Rule:
        """Return the rule that lies in a file.

        Args:
            noted: its values, as ``dataclasses.asdict`` has made them.
            place: what is divided, for messages.

        Raises:
            ObjectSpaceError: they are not those of a rule.
        """
        given = {name: value for name, value in noted.items() if value is not None}
        if not all(name in _DEPTHS and _are_texts(value, _DEPTHS[name]) for name, value in given.items()):
            raise ObjectSpaceError(f"{place} is divided by the rule {dict(noted)!r:.200}, which is none: {RESTORE}")
        return cls(**given)

    @property
    def is_whole(self) -> bool:
        """Whether all rows meet in the first shard."""
        return self.sides == []

    @property
    def is_of_library(self) -> bool:
        """Whether only the library itself writes its tables, so that each row is where rows of its key go."""
        return bool(self.sides) and not self.kinds


def _are_texts(given: Any, depth: int) -> bool:
    """Tell whether something is a text, or so many lists of texts."""
    if depth:
        return isinstance(given, list | tuple) and all(_are_texts(one, depth - 1) for one in given)
    return isinstance(given, str)


def vnode_by_types(kinds: Sides) -> VnodeOfKey:
    """Return what tells the vnode of a key by the columns that the rows of each side are routed by, given their types.

    A key that cannot be that of a row has none: where the space has one shard, nothing else would tell.
    """
    sides = [[Column(f"part {place}", kind, nullable=True) for place, kind in enumerate(side)] for side in kinds]
    schemas = list(map(TableSchema, sides))
    routers = [(schema, vnode_router(schema, range(len(schema.columns)))) for schema in schemas]

    def _vnode(key: Any) -> int | None:
        parts = _parts(key)
        return next((route([parts])[0] for schema, route in routers if _fits(parts, schema)), None)

    return _vnode


def vnode_by_note(keyed: KeyedBy | None) -> VnodeOfKey:
    """Return what tells the vnode of a key by where it has the values that rows are routed by."""

    def _vnode(key: Any) -> int | None:
        routed = routed_values(key, keyed)
        return vnode_of(*routed) if routed and all(map(_may_be_routed_by, routed)) else None

    return _vnode


def _may_be_routed_by(part: Any) -> bool:
    if type(part) is int:
        return -(2**63) <= part < 2**63  # Spark has no others.
    return part is None or type(part) in (str, bytes)


def routed_values(key: Any, keyed: KeyedBy | None) -> tuple[Any, ...] | None:
    """Return the values in a key that its rows were routed by; None where it is no such key as was noted."""
    parts = _parts(key)
    if keyed is None:
        return parts
    return tuple(parts[place] for place in keyed.places) if len(parts) == keyed.parts else None


def _parts(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _fits(parts: tuple[Any, ...], schema: TableSchema) -> bool:
    """Tell whether values are those of a row just as they are."""
    try:
        row = schema.check_row(parts)
    except RelationalError:
        return False
    return [(type(part), part) for part in parts] == [(type(part), part) for part in row]
