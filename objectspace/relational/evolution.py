"""What lies between two schemas of a table: whether the later one reads the rows of the other, and how they differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from objectspace.relational.schema import TableSchema
from objectspace.relational.types import can_widen


def why_not_evolved(old: TableSchema, new: TableSchema) -> str:
    """Return why rows of an older schema cannot be read with a newer one; empty if they can."""
    later = dict(zip(new.ids, new.columns))
    for own, column in zip(old.ids, old.columns):
        if own in later and not can_widen(column.type, later[own].type):
            return f"column {column.name!r} cannot change from {column.type} to {later[own].type}"
        if own in later and column.nullable and not later[own].nullable:
            return f"column {column.name!r} may hold NULL: it cannot become NOT NULL"
    if _key_shape(old) != _key_shape(new) or _vnode_shape(old) != _vnode_shape(new):
        return "the columns, types and orders of the key, and what is distributed by, stay as they are"
    if old.watermark_column is not None and _watermark_id(old) != _watermark_id(new):
        return (
            f"column {old.watermark_column!r} has a watermark: without it the rows that this hides would come back, and"
            " of another column it says nothing"
        )
    for own, column in later.items():
        if own not in old.ids and not column.nullable and column.default is None:
            return f"the new column {column.name!r} needs a default, or nullable=True: there are rows without it"
    return ""


def why_not_made_again(old: TableSchema, new: TableSchema) -> str:
    """Return why the columns of a table that was made again are others than those of the older one; else empty.

    Each table numbers its columns itself: only their names tell what they are. The rows of both are read by these
    numbers, so they must agree.
    """
    names, numbers = dict(zip(old.ids, old.names)), dict(zip(old.names, old.ids))
    for own, name in zip(new.ids, new.names):
        if names.get(own, name) != name:
            return f"column {name!r} has the number that {names[own]!r} had, and is another one"
        if numbers.get(name, own) != own:
            return f"column {name!r} has another number than it had: the table evolved in another way"
    return ""


def has_ids_of(wanted: TableSchema, stored: TableSchema) -> bool:
    """Return whether columns that were given ids have the same ids in a stored schema of the same columns."""
    pairs = zip(wanted.columns, stored.columns, strict=True)
    return all(own.id == there.id or (not own.id and there.id not in wanted.dropped_ids) for own, there in pairs)


def difference(one: TableSchema, other: TableSchema, said: tuple[str, str] = ("stored", "wanted")) -> str:
    """Return how two schemas differ: in which columns, with both types, and in which roles.

    Args:
        one: a schema.
        other: the other one.
        said: what to call them.

    >>> from objectspace.relational.schema import Column
    >>> stored = TableSchema([Column("k", "int64"), Column("v", "string")], ["k"])
    >>> difference(stored, TableSchema([Column("k", "int64"), Column("w", "int16", nullable=True)], ["k"]))
    "column 'v': stored string not null, wanted none; column 'w': stored none, wanted int16"
    """
    shapes = [
        {column.name: str(column).removeprefix(f"{column.name} ") for column in each.columns} for each in (one, other)
    ]
    found = differing(shapes[0], shapes[1], said)
    if one.roles() != other.roles():
        found.append(f"{said[0]} {', '.join(one.roles())}, {said[1]} {', '.join(other.roles())}")
    return "; ".join(found) or "columns of one name are not the same: one was dropped, and another one added"


def differing(one: Mapping[str, object], other: Mapping[str, object], said: tuple[str, str]) -> list[str]:
    """Return what to say about the columns that differ.

    Args:
        one: descriptions of the columns of one side, by their names.
        other: those of the other side.
        said: what to call the sides.
    """
    if one == other and list(one) != list(other):
        return [f"the order of the columns: {said[0]} {', '.join(one)}, {said[1]} {', '.join(other)}"]
    return [
        f"column {name!r}: {said[0]} {one.get(name, 'none')}, {said[1]} {other.get(name, 'none')}"
        for name in dict.fromkeys([*one, *other])
        if one.get(name) != other.get(name)
    ]


def _key_shape(schema: TableSchema) -> list[Any]:
    """Return everything that decides the bytes of a key: ids, types and orders."""
    return [
        (schema.ids[place], str(schema.columns[place].type), str(order))
        for place, (_, order) in zip(schema.key_places, schema.primary_key, strict=True)
    ]


def _vnode_shape(schema: TableSchema) -> list[int]:
    """Return the ids of the columns that decide the vnode of a row."""
    names = [schema.vnode_column] if schema.vnode_column is not None else schema.distribution_key
    return [schema.ids[schema.place_of(name)] for name in names]


def _watermark_id(schema: TableSchema) -> int | None:
    return None if schema.watermark_column is None else schema.ids[schema.place_of(schema.watermark_column)]
