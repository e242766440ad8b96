"""DISTINCT: how often each value is there in its group, so it counts from the first time to the last."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

from objectspace.operators.canonical import canonical
from objectspace.relational import Column, InconsistentOperationError, Order, StateTable, TableSchema
from objectspace.relational.keys import column_encoder
from objectspace.relational.schema import Row

Turn = tuple[int, Any, int]
"""A filter, a value, and whether the value came (+1) or went (-1) for the calls with that filter."""

Write = tuple[Row | None, Row | None]
"""The stored row of counts and the one that replaces it; ``None`` means no row."""

Counted = dict[bytes, list[Any]]
"""By encoded value: the value, then how much its count changed for each filter."""


class Entry:
    """A value that was counted.

    Args:
        shown: the value, in the form that equal values share.
        key: where its counts are stored.
        changes: how much its count changed for each filter.
    """

    __slots__ = ("changes", "key", "shown", "stored")

    def __init__(self, shown: Any, key: Row, changes: Sequence[int]) -> None:
        self.shown, self.key, self.changes = shown, key, changes
        self.stored: Row | None = None


class DistinctColumn:
    """The counts of the values of one column, one for each filter that calls apply to it.

    Args:
        place: the position of the column in the input.
        filters: the numbers of the filters; -1 stands for all rows.
        schema: the schema of the input.
        group_key: the names of the group columns, in the order of the keys of the tables.
        role: the prefix of the names of the operator's tables.
    """

    def __init__(
        self, place: int, filters: Sequence[int], schema: TableSchema, group_key: Sequence[str], role: str
    ) -> None:
        self.place, self.filters, self.role = place, list(filters), f"{role}DedupForCol{place}"
        column = schema.columns[place]
        self._form = canonical(column.type)
        self._encode = column_encoder(column.type, Order())
        self._is_grouped = column.name in group_key
        names = list(dict.fromkeys([*group_key, column.name]))
        kept = [Column(name, schema.column(name).type, schema.column(name).nullable) for name in names]
        counters: list[Column] = []
        for number in range(len(self.filters)):
            counters.append(Column(unused(f"rows_{number}", names), "int64"))
        watermark = schema.watermark_column if schema.watermark_column in group_key else None
        self.schema = TableSchema([*kept, *counters], names, watermark_column=watermark)
        self.table: StateTable

    def note(self, counted: Counted, row: Any, number: int, sign: int) -> None:
        """Note that a row of a group that passed a filter came or went. Time: O(1)."""
        value = row[self.place]
        found = counted.setdefault(self._encode(value), [value, *[0] * len(self.filters)])
        found[number + 1] += sign

    def look_up(self, counted: Sequence[tuple[Row, Counted]]) -> list[list[Entry]]:
        """Return the counted values of groups, those of each group in order, with what is stored of them.

        Time: O(values · log n).
        """
        found = [[self._entry(group, *each) for _, each in sorted(values.items())] for group, values in counted]
        entries = [entry for values in found for entry in values]
        for entry, row in zip(entries, self.table.get_rows([entry.key for entry in entries]), strict=True):
            entry.stored = row
        return found

    def _entry(self, group: Row, value: Any, *changes: int) -> Entry:
        shown = value if self._form is None else self._form(value)
        return Entry(shown, group if self._is_grouped else (*group, shown), changes)

    def settle(self, group: Row, entries: Sequence[Entry]) -> tuple[list[Turn], list[Write]]:
        """Return the values that came or went with the changes of a group, and what has to be written.

        Raises:
            InconsistentOperationError: a value went more often than it came.
        """
        turns: list[Turn] = []
        writes: list[Write] = []
        for entry in entries:
            shown, key, changes, stored = entry.shown, entry.key, entry.changes, entry.stored
            before = list(stored[len(key) :]) if stored else [0] * len(changes)
            after = [count + change for count, change in zip(before, changes, strict=True)]
            if min(after) < 0:
                raise InconsistentOperationError(f"{shown!r} of group {group!r} was retracted more often than it came")
            if before != after:
                writes.append((stored, (*key, *after) if any(after) else None))
            for number, old, new in zip(self.filters, before, after, strict=True):
                if (old > 0) != (new > 0):
                    turns.append((number, shown, 1 if new else -1))
        return turns, writes

    def write(self, writes: Iterable[Write]) -> None:
        """Write counts."""
        changes = ((row is not None, row or stored) for stored, row in writes)
        self.table.write_rows((comes, changed) for comes, changed in changes if changed is not None)

    def clear(self, group: Sequence[Any]) -> None:
        """Delete the counts of a group. Time: O(values of the group)."""
        for row in list(self.table.scan(prefix=group)):
            self.table.delete_row(row)


def unused(name: str, taken: Container[str]) -> str:
    """Return a name that is not taken, by adding leading underscores if it is.

    >>> unused("count", ["k", "count"])
    '_count'
    """
    while name in taken:
        name = f"_{name}"
    return name
