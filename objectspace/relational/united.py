"""What the parts of a table have in common if they have evolved apart, as those of shards do, each in its own epoch.

Each part numbers its columns itself, so ids of two parts are unrelated: columns with one name are one column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from objectspace.relational.errors import SchemaMismatchError
from objectspace.relational.schema import Column, TableSchema
from objectspace.relational.types import DataType, can_widen

Parts = Mapping[str, TableSchema]
"""The schemas of the parts of a table, by what errors call them."""


class _Apart(Exception):
    """Why parts cannot be read with one schema."""


def united(table: str, parts: Parts, advice: str, wanted: Sequence[str] | None = None) -> TableSchema:
    """Return the schema that all parts of a table can be read with; its columns have no ids.

    It has the columns of every part: first those of the part that has most, then those that only others have. A column
    has the widest of its types. In a part that does not have it, a column holds its default, or NULL. If the keys of
    the parts differ, the schema has no key.

    Args:
        table: the name of the table, for errors.
        parts: the schemas of its parts, at least one.
        advice: what to do if there is no such schema.
        wanted: the columns that are read; others need not fit.

    Raises:
        SchemaMismatchError: the types or defaults of a column differ, or a column that some parts have may be one that
            has another name in others.

    >>> old = TableSchema([Column("k", "int64"), Column("v", "int32")], ["k"])
    >>> new = old.widened("v", "int64").with_column(Column("w", "bool", default=False))
    >>> print(united("t", {"shard 0": old, "shard 1": new}, "let both take a row"))
    k int64 not null, v int64 not null, w bool not null, primary key (k asc nulls first)
    """
    fullest = max(parts.values(), key=lambda schema: len(schema.names))
    names = dict.fromkeys([*fullest.names, *(name for schema in parts.values() for name in schema.names)])
    try:
        columns = [
            _column(name, parts, wanted or ()) if wanted is None or name in wanted else _first(name, parts)
            for name in names
        ]
    except _Apart as error:
        raise SchemaMismatchError(f"table {table!r} has evolved apart: {error}: {advice}") from None
    return TableSchema(columns, fullest.primary_key if len({*map(_key, parts.values())}) == 1 else ())


def may_be_renamed(name: str, there: TableSchema, other: TableSchema) -> str | None:
    """Return the column of another part that may be the same under another name, or ``None`` if there is none.

    It has the same number, as if all parts were changed in the same way, and nothing tells it from a renamed column:
    not even a part with columns of both names, because one may have been added after the other was renamed.
    """
    own = there.ids[there.place_of(name)]
    if own not in other.ids:
        return None
    column, found = there.column(name), other.columns[other.ids.index(own)]
    return found.name if found.name != name and _fit(column, found) else None


def _fit(one: Column, other: Column) -> bool:
    """Return whether a column can be another one, widened: its default is the same, in the form of the wider type."""
    if not can_widen(one.type, other.type):
        return can_widen(other.type, one.type) and _fit(other, one)
    return repr(replace(one, type=other.type).default) == repr(other.default)


def _key(schema: TableSchema) -> tuple[tuple[str, str, str], ...]:
    places = zip(schema.primary_key, schema.key_places, strict=True)
    return tuple((name, str(order), str(schema.columns[place].type)) for (name, order), place in places)


def _first(name: str, parts: Parts) -> Column:
    return replace(next(schema.column(name) for schema in parts.values() if name in schema.names), id=0)


def _column(name: str, parts: Parts, named: Sequence[str]) -> Column:
    """Return the column with which all parts can be read."""
    having = {place: schema.column(name) for place, schema in parts.items() if name in schema.names}
    for place, other in parts.items():
        for there in having:
            renamed = may_be_renamed(name, parts[there], other)
            if renamed is not None and not {name, renamed} <= {*named}:
                raise _Apart(
                    f"column {name!r} of {there} may be {renamed!r} of {place} with another name, or another column"
                )
    kind = _widest(name, having)
    columns = {place: replace(column, type=kind, id=0) for place, column in having.items()}
    defaults = {repr(column.default): column for column in columns.values() if column.default is not None}
    is_missing = len(having) < len(parts)
    if is_missing and len(defaults) > 1:
        said = ", ".join(f"{column.default!r} in {place}" for place, column in columns.items())
        raise _Apart(f"column {name!r} has several defaults ({said}), and some parts do not have it")
    found = next(iter([*defaults.values(), *columns.values()]))
    is_nullable = any(column.nullable for column in columns.values()) or (is_missing and found.default is None)
    return replace(found, nullable=is_nullable)


def _widest(name: str, having: Mapping[str, Column]) -> DataType:
    kinds: list[DataType] = [column.type for column in having.values()]
    for kind in kinds:
        if all(can_widen(other, kind) for other in kinds):
            return kind
    said = ", ".join(f"{column.type} in {place}" for place, column in having.items())
    raise _Apart(f"column {name!r} is {said}, and none of these holds all values of the others")
