"""A change in words: the object by its name or its owner's, the slot by its key, a row of a table by its columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from checkpoint.diff import Change, IndexEntry, Table
from checkpoint.errors import CheckpointError
from checkpoint.run import Payload, Slot, is_owner, owned_ids
from checkpoint.tool import printing
from checkpoint.tool.content import State
from checkpoint.tool.raw import key_and_value, key_of, loaded

Row = dict[str, Any]


@dataclass(frozen=True)
class Described:
    """A change as it is printed.

    Args:
        name: the object, or the owner with the key of what it owns.
        title: the name with its kind.
        line: what changed, in one line.
        fields: the same as JSON.
    """

    name: str
    title: str
    line: str
    fields: dict[str, Any]


def sign_of(change: Change) -> str:
    """Return + for what came, - for what went, and ~ for what changed."""
    return "+" if change.old is None else "-" if change.new is None else "~"


class Describer:
    """Says what changes between two states mean.

    Args:
        before: the state before.
        after: the state after.
    """

    def __init__(self, before: State, after: State) -> None:
        self._states = before, after
        self._rows: dict[str, tuple[Callable[[Slot, Payload], Row] | None, ...]] = {}

    def owner_of(self, change: Change) -> str | None:
        """Return the name of the object that owns the one that changed; None where it has a name itself."""
        return None if change.name is not None else self._owners.get(change.object, (None, None, None))[0]

    def describe(self, change: Change) -> Described:
        """Return a change in words."""
        owner, key, owned_kind = (
            self._owners.get(change.object, (None, None, None)) if change.name is None else (None,) * 3
        )
        name = change.name or (f"{owner}[{printing.short(key, 40)}]" if owner else f"#{change.object}")
        kind = self._kind(change, owned_kind)
        rows = self._as_rows(change)
        row_key, old, new = rows or self._values(change)
        fields = {"table": change.table.value, "object": name, "kind": kind, "key": row_key, "old": old, "new": new}
        line = _row_line(row_key, old, new) if rows else _line(change, row_key, old, new)
        return Described(name, f"{printing.plain(name)} ({kind})" if kind else printing.plain(name), line, fields)

    def _kind(self, change: Change, owned_kind: str | None) -> str | None:
        is_table = change.name is not None and any(change.name in state.tables() for state in self._states)
        return "Table" if is_table else change.kind or owned_kind

    def _as_rows(self, change: Change) -> tuple[Row, Row | None, Row | None] | None:
        """Return the primary key, the row before and the row after; None where this is no row of a table."""
        if change.table is not Table.ITEM or change.name is None or change.slot is None:
            return None
        if change.name not in self._rows:
            self._rows[change.name] = tuple(_reader_of(state, change.name) for state in self._states)
        readers = self._rows[change.name]
        reader = readers[1] or readers[0]
        if reader is None:
            return None
        read_old, read_new = readers[0] or reader, reader
        assert not isinstance(change.old, IndexEntry)
        assert not isinstance(change.new, IndexEntry)
        old = None if change.old is None else read_old(change.slot, change.old)
        new = None if change.new is None else read_new(change.slot, change.new)
        state = self._states[1] if readers[1] else self._states[0]
        row = new or old or {}
        return {column: row.get(column) for column in state.primary_key(change.name)}, old, new

    def _values(self, change: Change) -> tuple[Any, Any, Any]:
        if change.table is Table.INDEX:
            old, new = (list(entry) if isinstance(entry, IndexEntry) else None for entry in (change.old, change.new))
            return None, old, new
        assert not isinstance(change.old, IndexEntry)
        assert not isinstance(change.new, IndexEntry)
        if change.table is Table.METADATA:
            return change.slot, loaded(change.old), loaded(change.new)
        assert change.slot is not None
        (old_key, old), (new_key, new) = (key_and_value(change.slot, one) for one in (change.old, change.new))
        plain = key_of(change.slot)
        return next((key for key in (old_key, new_key) if key != plain), plain), old, new

    @cached_property
    def _owners(self) -> dict[int, tuple[str, Any, str | None]]:
        """The owner, key and kind of each object that is owned. Made when the first change of one is described."""
        found: dict[int, tuple[str, Any, str | None]] = {}
        for state in self._states:
            for name, row in state.index.items():
                if is_owner(row):
                    kind = str((loaded(row[3]) or {}).get("of"))
                    for item in state.reader.items(row[0]):
                        for one in owned_ids([item.value]):
                            found[one] = name, key_and_value(item.slot, item.value)[0], kind
        return found


def _reader_of(state: State, name: str) -> Callable[[Slot, Payload], Row] | None:
    try:
        return state.row_reader(name) if name in state.index else None
    except CheckpointError:
        return None


def _line(change: Change, key: Any, old: Any, new: Any) -> str:
    if change.table is Table.INDEX:
        before, after = (entry[0] if entry else None for entry in (old, new))
        return f"object {after if before is None else before if after in (None, before) else f'{before} → {after}'}"
    shown = " → ".join(
        printing.short(value) for value, is_there in ((old, change.old), (new, change.new)) if is_there is not None
    )
    return f"{'' if change.table is Table.ITEM else 'its '}{printing.key(key)} = {shown}"


def _row_line(key: Row, old: Row | None, new: Row | None) -> str:
    """Return a row by its columns; of a row that changed its key, and the columns that changed."""
    if old is None or new is None:
        return _columns(new or old or {})
    changed = [
        f"{column}: {_cell(old.get(column))} → {_cell(new.get(column))}"
        for column in dict.fromkeys((*old, *new))
        if old.get(column) != new.get(column)
    ]
    return f"{_columns(key)}: {', '.join(changed)}" if key else ", ".join(changed)


def _columns(row: Row) -> str:
    return ", ".join(f"{column}={_cell(value)}" for column, value in row.items())


def _cell(value: Any) -> str:
    return "NULL" if value is None else printing.short(value)
