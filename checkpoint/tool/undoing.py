"""What later checkpoints have built upon: what says how a table is read is not taken back from under its rows."""

from __future__ import annotations

from collections.abc import Sequence

from checkpoint.diff import Change, Table, differences
from checkpoint.errors import CheckpointError
from checkpoint.store import CheckpointStore
from checkpoint.tool import key_values
from checkpoint.tool.content import TABLES, WATERMARKS, State
from checkpoint.tool.described import Describer, lists_tables, table_listed
from checkpoint.tool.source import query, reader_at


def require_unused(store: CheckpointStore, changes: Sequence[Change], point: str) -> None:
    """Refuse to take back entries of tables that hold something else than before, which is not taken back along.

    Rows that were written since may have a layout that would be gone, and keys lie in partitions of which nobody would
    know.

    Args:
        store: the store, to whose newest state the changes are to be made.
        changes: the changes.
        point: the checkpoint whose entries they bring back.

    Raises:
        CheckpointError: a table holds something else; it is named with the checkpoint that wrote that.

    Time: O(rows of the runs since that checkpoint) where there are such entries.
    """
    entries = _entries_of(changes)
    if not entries:
        return
    before, head = reader_at(store, point), store.reader()
    describer = Describer(State(before), State(head))
    tables = describer.called(filter(None, map(table_listed, entries)))
    scopes = tuple(key_values.tables_below(str(one.name), str(one.slot)) for one in entries if not table_listed(one))
    undone = {(one.object, one.slot) for one in changes if one.table is Table.ITEM}
    for change in differences(before, head):
        if change.table is not Table.ITEM or (change.object, change.slot) in undone:
            continue
        for name in sorted(describer.names_of(change)):
            if name in tables or name.startswith(scopes):
                number = _writer_of(store, change)
                raise CheckpointError(
                    f"{name!r} holds what checkpoint {number} wrote, which nobody could find or read any more after"
                    f" this: undo that of checkpoint {number}, too, before or along; nothing was written"
                )


def _entries_of(changes: Sequence[Change]) -> list[Change]:
    """Return the changed entries of tables and scopes, but for those that only have another name and new scopes."""
    found = [one for one in changes if one.table is Table.ITEM and lists_tables(one) and one.name != WATERMARKS]
    records = [one for one in found if one.name == TABLES]
    moved = {one.old for one in records if one.new is None} & {one.new for one in records if one.old is None}
    return [
        one
        for one in found
        if not (one.name == TABLES and {one.old, one.new} & moved) and (table_listed(one) or one.new is None)
    ]


def _writer_of(store: CheckpointStore, change: Change) -> int:
    """Return the checkpoint that wrote a slot last: that of a merged run is its newest."""
    statement = "SELECT max(checkpoint) FROM state_item WHERE object = ? AND slot = ?"
    ((number,),) = query(store, statement, change.object, change.slot)
    return store.reader().newest if number is None else int(number)
