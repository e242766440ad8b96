"""Tables that have evolved apart in the shards that come together: one record for all, and which layout a row has then.

Each shard numbers its columns and layouts itself. So columns are one where their names are one, the layouts of all
shards are listed one after the other, and the number that a row begins with is changed where it is another one there:
who opens the new shard does it, as he takes the rows over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from objectspace.errors import ObjectSpaceError
from objectspace.relational import Column, SchemaError, SchemaMismatchError, TableRecord, TableSchema
from objectspace.relational.rows import Layout
from objectspace.relational.united import united

Renumbered = dict[str, list[int]]
"""Of each table whose rows have other layouts in the new shard, the new numbers by the old ones."""

_SCHEMA_KEYS = ("schema", "layouts")
"""What a record says of how rows are read; the number of a table only says when a shard has made it."""

_ADVICE = (
    "let each shard take a row with the same version of its operator, so that all have the same columns, and rescale"
    " then; where that does not help, keep the shards, or feed a new space from the beginning"
)


def join_tables(place: str, known: Mapping[str, Any], target: dict[str, Any]) -> Renumbered:
    """Take over what a shard has noted of its tables, beside what others have.

    Args:
        place: how an error calls the notes.
        known: the notes.
        target: what the shards before have noted, which becomes what is true for all of them.

    Returns:
        how the layouts of the rows of this shard are numbered now; tables where nothing changes are not in it.

    Raises:
        ObjectSpaceError: the rows of a table cannot be read with one schema.
    """
    renumbered: Renumbered = {}
    for name, value in known.items():
        there = target.setdefault(name, value)
        if all(there[key] == value[key] for key in _SCHEMA_KEYS):
            continue
        try:
            record, numbers = _joined(TableRecord.from_json(name, there), TableRecord.from_json(name, value))
        except (SchemaError, SchemaMismatchError) as error:
            raise ObjectSpaceError(f"{place}: {error}") from None
        stored = record.to_json()
        target[name] = {**there, **{key: stored[key] for key in _SCHEMA_KEYS}}
        if numbers != [*range(len(numbers))]:
            renumbered[name] = numbers
    return renumbered


def with_layout(text: str, numbers: Sequence[int]) -> str:
    """Return the text of a stored row with the new number of its layout.

    >>> with_layout('[1,7,"a"]', [0, 3])
    '[3,7,"a"]'
    """
    end = text.index("," if "," in text else "]")
    return f"[{numbers[int(text[1:end])]}{text[end:]}"


def _joined(mine: TableRecord, other: TableRecord) -> tuple[TableRecord, list[int]]:
    """Return the record of the rows of both, and the numbers of the layouts of the other one in it."""
    parts = {"the shards before it": mine.schema, "this one": other.schema}
    both = united(mine.name, parts, _ADVICE)
    ids = _renumbered(mine, other)
    own = {**{name: ids[number] for name, number in _ids(other.schema)}, **dict(_ids(mine.schema))}
    columns = [replace(_settled(column, mine, other), id=own[column.name]) for column in both.columns]
    schema = TableSchema(
        columns,
        mine.schema.primary_key,
        watermark_column=mine.schema.watermark_column,
        distribution_key=mine.schema.distribution_key,
        vnode_column=mine.schema.vnode_column,
        last_id=max(mine.schema.last_id, other.schema.last_id, *ids.values()),
    ).with_ids()
    _require_evolved(schema, mine, other, ids)
    theirs = [tuple(ids[number] for number in layout) for layout in other.layouts]
    layouts: list[Layout] = [*dict.fromkeys([*mine.layouts, *theirs, schema.ids])]
    return TableRecord(mine.name, mine.id, schema, tuple(layouts)), [layouts.index(layout) for layout in theirs]


def _ids(schema: TableSchema) -> Iterable[tuple[str, int]]:
    return zip(schema.names, schema.ids, strict=True)


def _renumbered(mine: TableRecord, other: TableRecord) -> dict[int, int]:
    """Return what the ids of the columns of the other shard are in the record of both."""
    known, found = dict(_ids(mine.schema)), dict[int, int]()
    fresh = count(max(mine.schema.last_id, other.schema.last_id) + 1)
    for name, number in _ids(other.schema):
        if name in known:
            found[number] = known[name]
        else:  # What this shard had under such an id, and has dropped, must not come back.
            found[number] = number if number > mine.schema.last_id else next(fresh)
    for number in sorted({number for layout in other.layouts for number in layout} - {*other.schema.ids}):
        is_free = number not in mine.schema.ids and number not in found.values()
        found[number] = number if is_free else next(fresh)
    return found


def _settled(column: Column, mine: TableRecord, other: TableRecord) -> Column:
    """Return a column that both may have with the default that rows without it have held so far.

    Raises:
        SchemaMismatchError: they have held different ones, or there is none.
    """
    having = [record for record in (mine, other) if column.name in record.schema.names]
    stored = [record.schema.column(column.name) for record in having]
    if len(having) == 1:
        if column.nullable and not stored[0].nullable:
            raise _refused(mine, f"column {column.name!r} has no default, and not all shards have it")
        return column
    defaults = [replace(one, type=column.type).default for one in stored]
    needed = [default for record, default in zip(having, defaults, strict=True) if _has_rows_without(record, column)]
    if len({*map(repr, needed)}) > 1:
        raise _refused(
            mine, f"rows without column {column.name!r} hold {needed[0]!r} in some shards, {needed[1]!r} here"
        )
    return replace(column, default=[*needed, *defaults][0])


def _has_rows_without(record: TableRecord, column: Column) -> bool:
    own = record.schema.ids[record.schema.place_of(column.name)]
    return any(own not in layout for layout in record.layouts)


def _require_evolved(schema: TableSchema, mine: TableRecord, other: TableRecord, ids: Mapping[int, int]) -> None:
    """Make sure that the rows of both can be read with one schema, as if they had evolved to it."""
    columns = [
        replace(column, id=ids[number]) for column, number in zip(other.schema.columns, other.schema.ids, strict=True)
    ]
    theirs = TableSchema(
        columns,
        other.schema.primary_key,
        watermark_column=other.schema.watermark_column,
        distribution_key=other.schema.distribution_key,
        vnode_column=other.schema.vnode_column,
        last_id=schema.last_id,
    )
    for old in (mine.schema, theirs):
        if reason := schema.why_not_evolved_from(old):
            raise _refused(mine, reason)
    if schema.watermark_column != theirs.watermark_column:
        raise _refused(mine, f"the watermark: {mine.schema.difference_to(other.schema, ('there', 'here'))}")


def _refused(table: TableRecord, reason: str) -> SchemaMismatchError:
    return SchemaMismatchError(f"table {table.name!r} has evolved apart: {reason}: {_ADVICE}")
