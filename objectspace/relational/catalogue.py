"""Which tables a space has: their ids, schemas and layouts, kept in one dictionary of the space beside the rows.

A table is a sorted dictionary under its own name. What is needed to read it without its code is in the dictionary
``$tables``: ``{"id": 3, "schema": {...}, "layouts": [[1, 2]]}``. The watermarks of all tables are in ``$watermarks``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from objectspace import DamagedObjectError, ObjectSpace
from objectspace.errors import GO_ON, NameInUseError
from objectspace.objects.base import DAMAGE
from objectspace.relational.errors import SchemaError, SchemaMismatchError
from objectspace.relational.evolution import difference, has_ids_of, why_not_evolved
from objectspace.relational.key_space import KeySpace
from objectspace.relational.registry import registry_of
from objectspace.relational.row_store import RowStore
from objectspace.relational.rows import Layout, RowCodec, StoredRows
from objectspace.relational.schema import TableSchema
from objectspace.relational.values import checker
from objectspace.relational.visibility import Visibility
from objectspace.relational.vnodes import VnodeBitmap
from objectspace.space import TABLES, WATERMARKS, may_be_table


@dataclass(frozen=True)
class TableRecord:
    """What a space knows about one table.

    Args:
        name: the name of the table, which is also that of the object that holds its rows.
        id: its number, in the order in which the tables were created.
        schema: its schema.
        layouts: the layouts of stored rows, by their numbers.
    """

    name: str
    id: int
    schema: TableSchema
    layouts: tuple[Layout, ...]

    def codec(self, stored: StoredRows = tuple) -> RowCodec:
        """Return the codec that reads and writes the rows; if it can get the stored rows, it finds a damaged one."""
        return RowCodec(self.schema, self.layouts, self.name, stored)

    def to_json(self) -> dict[str, Any]:
        """Return the record as it is stored."""
        return {"id": self.id, "schema": self.schema.to_json(), "layouts": [list(layout) for layout in self.layouts]}

    @classmethod
    def from_json(cls, name: str, stored: Mapping[str, Any]) -> TableRecord:
        """Return the record that :meth:`to_json` wrote.

        Raises:
            DamagedObjectError: it is not a record.
        """
        try:
            layouts = tuple(tuple(layout) for layout in stored["layouts"])
            return cls(name, stored["id"], TableSchema.from_json(stored["schema"]), layouts)
        except DAMAGE as error:
            raise damaged_record(name, stored, error) from error


def damaged_record(name: str, stored: object, error: Exception) -> DamagedObjectError:
    """Return the error for a stored record that is not a record, or cannot be that of this table."""
    return DamagedObjectError(
        f"Dictionary {TABLES!r}, slot {name!r}: expected the record of a table ({error!r}), found {stored!r:.80};"
        f" other tables are readable; {GO_ON}"
    )


def tables(space: ObjectSpace) -> dict[str, TableRecord]:
    """Return the records of a space's tables by their names, in the order in which the tables were created.

    >>> from objectspace import VolatileObjectSpace
    >>> from objectspace.relational import Column, StateTable
    >>> space = VolatileObjectSpace()
    >>> table = StateTable(space, "orders", TableSchema([Column("k", "int64")], ["k"]))
    >>> print(tables(space)["orders"].schema)
    k int64 not null, primary key (k asc nulls first)
    """
    if TABLES not in space:
        return {}
    records = space.get_dictionary(TABLES).items()
    return {name: TableRecord.from_json(name, stored) for name, stored in records if _has_rows(space, name)}


def drop_table(space: ObjectSpace, name: str) -> None:
    """Delete a table with its rows.

    Raises:
        SchemaMismatchError: there is no such table.

    Time: O(1).
    Dirties: two index rows, and the entries of the table in the catalogue.
    """
    find_record(space, name)
    space.delete(name)


def rename_table(space: ObjectSpace, name: str, new_name: str) -> None:
    """Rename a table, with its open handles.

    ``space.rename()`` does the same, whatever the object is; only this function drops what an earlier version has left
    under the new name.

    Raises:
        SchemaMismatchError: there is no such table.
        NameInUseError: the new name is taken.
        SchemaError: the new name is that of a catalogue.
        DamagedObjectError: the catalogue cannot be read; nothing has changed then.

    Time: O(open handles of the table).
    Dirties: an index row, and the entries of the table in the catalogue.
    """
    find_record(space, name)
    _refuse_name(new_name)
    catalogues = [space.get_dictionary(one) for one in (TABLES, WATERMARKS) if one in space]
    for entries in catalogues:
        entries.get_many((name, new_name))  # What is damaged is refused before anything changes.
    with space.in_one_piece():
        for entries in catalogues if new_name not in space else ():
            entries.pop(new_name, None)  # An earlier version has renamed a table of this name without them.
    space.rename(name, new_name)


def find_record(space: ObjectSpace, name: str) -> TableRecord:
    """Return the record of a table.

    Raises:
        SchemaMismatchError: there is no such table.
    """
    record = record_of(space, name)
    if record is None:
        raise SchemaMismatchError(f"there is no table {name!r} in this space: tables(space) lists those that there are")
    return record


def record_of(space: ObjectSpace, name: str) -> TableRecord | None:
    """Return the record of a table, or ``None`` if there is no such table."""
    stored = space.get_dictionary(TABLES).get(name) if TABLES in space and _has_rows(space, name) else None
    return None if stored is None else TableRecord.from_json(name, stored)


def _has_rows(space: ObjectSpace, name: str) -> bool:
    """Return whether the object of a name can be a table's: its own may have been deleted and replaced by another."""
    return name in space and may_be_table(*space.entry_of(name)[1:])


def open_record(
    space: ObjectSpace,
    name: str,
    schema: TableSchema | None,
    *,
    vnodes: VnodeBitmap | None = None,
    evolve: bool,
) -> TableRecord:
    """Return the record of a table, made if there is none; the object of its rows then exists too.

    If the schema changes, the open handles of the table have the new one at once.

    Args:
        space: the space.
        name: the name of the table.
        schema: the schema that the caller expects, or ``None`` for the stored one.
        vnodes: the vnodes of the instance that is opened, or ``None`` for all.
        evolve: whether a stored table takes over this schema if its own differs.

    Raises:
        SchemaMismatchError: the stored schema differs, or cannot become this one.
        NameInUseError: the name is that of another object, or of rows without a schema.
        RowError: the column of the new schema cannot hold a watermark that is stored.
        CheckpointProtocolError: the schema would change while an open handle has rows of these vnodes that are not
            sealed.

    Dirties: for a new table two index rows and an entry of the catalogue; an entry if the schema changes.
    """
    record = record_of(space, name)
    if record is None:
        _require_no_rows(space, name, schema)
        with space.in_one_piece():
            return _create(space, name, schema)
    if schema is None or _is_same(schema, record.schema):
        return record
    if not evolve:
        raise _mismatch(record, schema, _ADVICE)
    try:
        changed = schema.with_ids_of(record.schema)
    except SchemaError as error:
        raise _mismatch(record, schema, str(error)) from None
    reason = why_not_evolved(record.schema, changed) or _other_default(changed, record)
    if reason:
        raise _mismatch(record, schema, reason)
    rows = RowStore(space, name)
    registry_of(space).refuse_beside("its schema cannot change", rows, vnodes, asks=None)
    codec = RowCodec(changed, record.layouts)
    record = TableRecord(name, record.id, changed, tuple(codec.layouts))
    Visibility(KeySpace(name, changed), watermarks_of(space, name))  # A schema that is refused changes nothing.
    with space.in_one_piece():  # Handles that had taken over half of it would write rows of neither schema.
        space.get_dictionary(TABLES)[name] = record.to_json()
        registry_of(space).changed_schema(rows)
    return record


def watermarks_of(space: ObjectSpace, name: str) -> Any:
    """Return the watermarks of a table as they are stored, or ``None`` if there are none."""
    return space.get_dictionary(WATERMARKS).get(name) if WATERMARKS in space else None


def _other_default(changed: TableSchema, record: TableRecord) -> str:
    """Return why a schema would change what rows from before an added column hold; empty if it would not."""
    known = {column.id: column for column in record.schema.columns}
    for column in changed.columns:
        is_missing = any(column.id not in layout for layout in record.layouts)
        if column.id not in known or not is_missing:
            continue
        default = known[column.id].default
        kept = None if default is None else checker(column.type)(default)  # In the form of the wider type.
        if repr(column.default) != repr(kept):
            return f"rows from before column {column.name!r} was added hold {default!r} in it: its default stays that"
    return ""


def _is_same(wanted: TableSchema, stored: TableSchema) -> bool:
    """Return whether schemas are equal; if the wanted one identifies its columns by ids, in the ids too."""
    return wanted == stored and has_ids_of(wanted, stored)


def _create(space: ObjectSpace, name: str, schema: TableSchema | None) -> TableRecord:
    if schema is None:
        raise SchemaMismatchError(f"there is no table {name!r} in this space: pass a schema to create it")
    _refuse_name(name)
    known = space.get_or_create_dictionary(TABLES)  # First, so a space that does not accept the name keeps no rows.
    registry = registry_of(space)
    count, last = registry.last_number
    number = 1 + (last if count == len(known) else max(map(_number_in, known.values()), default=0))
    space.create_sorted_dictionary(name, raw=True)
    record = TableRecord(name, number, schema.with_ids(), (schema.ids,))
    known[name] = record.to_json()
    registry.last_number = len(known), number
    return record


def _refuse_name(name: str) -> None:
    """Refuse to give a table the name of a catalogue."""
    if name in (TABLES, WATERMARKS):
        raise SchemaError(f"{name!r} is the name of what lists the tables: choose another one")


def _number_in(stored: Any) -> int:
    """Return the number in the record of a table; 0 if the record is damaged, so other tables can still be created."""
    number = stored.get("id") if isinstance(stored, Mapping) else None
    return number if type(number) is int else 0


def _require_no_rows(space: ObjectSpace, name: str, schema: TableSchema | None) -> None:
    """Refuse to create a table under the name of existing rows that no schema describes.

    Raises:
        NameInUseError: there are such rows.
    """
    if schema is not None and _has_rows(space, name):
        raise NameInUseError(
            f"table {name!r} cannot be created: {name!r} is a raw sorted dictionary, as the rows of a table are, and"
            f" {TABLES!r} has no entry of it, so nothing tells its columns: a salvage may have left that out, or it was"
            f" made as an object, or renamed as one by an earlier version; {_heal(space, name)}go back to a checkpoint"
            " that has the entry with space.rollback(epoch=...), or delete it with what it holds by"
            f" space.delete({name!r}), or choose another name"
        )


def _heal(space: ObjectSpace, name: str) -> str:
    """Return what makes a table of rows whose entry waits under a name that no object has; empty where none waits."""
    waiting = [one for one in space.get_dictionary(TABLES) if one not in space] if TABLES in space else []
    if not waiting:
        return ""
    shown = ", ".join(map(repr, waiting[:_SHOWN])) + (", ..." if len(waiting) > _SHOWN else "")
    return (
        f"{TABLES!r} has entries of names that no object has: {shown}; if the rows are those of one of them, give"
        f" them that name back, as with space.rename({name!r}, {waiting[0]!r}), or "
    )


_SHOWN = 5
"""How many names an error shows at most."""


_ADVICE = (
    "expected the stored schema: cast, add or leave out columns; or open it with evolve=True where that is allowed"
)


def _mismatch(record: TableRecord, wanted: TableSchema, advice: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"table {record.name!r} is stored with another schema: {difference(record.schema, wanted)}\n"
        f"  stored: {record.schema}\n  wanted: {wanted}\n{advice}"
    )
