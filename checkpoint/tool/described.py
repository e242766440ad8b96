"""A change in words: the object by its name or its owner's, the slot by its key, a table's row by its columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from checkpoint.diff import Change, IndexEntry, Table, with_values
from checkpoint.errors import CheckpointError, CorruptStoreError
from checkpoint.run import Payload, Slot, is_owner, owned_ids
from checkpoint.tool import key_values, printing
from checkpoint.tool.content import SETS, TABLES, WATERMARKS, State
from checkpoint.tool.printing import Row
from checkpoint.tool.raw import elements, is_raw, key_and_value, loaded, numbers_of


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


def lists_tables(change: Change) -> bool:
    """Return whether a change is of a dictionary that lists tables: their schemas, watermarks, or key-value tables."""
    name, kind = change.name, change.kind
    is_of_key_values = kind == "SortedDictionary" and name is not None and key_values.is_catalogue(name)
    return name in (TABLES, WATERMARKS) or is_of_key_values


def table_listed(change: Change) -> str | None:
    """Return the table that a changed entry of such a dictionary is about, ``None`` for any other change."""
    if change.table is not Table.ITEM or not lists_tables(change):
        return None
    name, slot = str(change.name), str(change.slot)
    return slot if name in (TABLES, WATERMARKS) else next(iter(key_values.tables_in(name, [slot])), None)


class Describer:
    """Says what changes between two states mean, by what the objects are called in them.

    Args:
        before: the state before.
        after: the state after.
    """

    def __init__(self, before: State, after: State) -> None:
        self._states = before, after
        self._rows: dict[int, tuple[Callable[[Slot, Payload], Row] | None, ...]] = {}
        self._renamed: dict[int, dict[str, str]] = {}
        self._created: dict[int, str | None] = {}
        self._titled: tuple[Any, tuple[str, str | None]] = (None, ("", None))
        self._parts: dict[str | None, tuple[str, int, bool] | None] = {}

    def names_of(self, change: Change) -> set[str]:
        """Return the names of what a change belongs to: its object, the owner of it, the table that it is a part of.

        What the dictionaries that list tables hold of one belongs to it, too.
        """
        owner = None if change.name is not None else self._owners.get(change.object, (None, None, None))[0]
        old = change.old.name if isinstance(change.old, IndexEntry) else None
        found = {change.name, old, owner, self._table_of(change.name), table_listed(change)}
        return {name for name in found if name is not None}

    def called(self, names: Iterable[str]) -> set[str]:
        """Return names as :meth:`names_of` has them: those of key-value tables whole, of what was renamed both."""
        found = {*names}
        for name in sorted(found):
            if not any(name in state.index for state in self._states):
                found |= {*filter(None, (state.key_value_table(name) for state in self._states))}
        ids = {state.index[name][0] for state in self._states for name in found & state.index.keys()}
        return found | {row[1] for state in self._states for row in state.index.values() if row[0] in ids}

    def describe(self, change: Change) -> Described:
        """Return a change in words.

        Raises:
            CorruptStoreError: what is stored cannot be read.
        """
        change = self._renamed_since(change)
        try:
            return self._described(with_values(change))
        except (ValueError, TypeError, KeyError, IndexError) as error:
            name = change.name or f"#{change.object}"
            raise CorruptStoreError(
                f"slot {change.slot!r} of {name!r} is damaged ({error!r}): see `checkpoint verify`"
            ) from None

    def place_of(self, change: Change) -> tuple[str, Table]:
        """Return the object and the table that :meth:`describe` names, which costs a fraction of all that it says."""
        change = self._renamed_since(change)
        part = self._partition(change)
        if part is None:
            return self._title(change)[0], change.table
        return part[0], Table.METADATA if change.table is Table.ITEM else change.table

    def _renamed_since(self, change: Change) -> Change:
        """Return a change with the name that its object has afterwards: it may have been renamed since."""
        before, after = self._names(change)
        name = after or before or change.name
        return change if name == change.name else replace(change, name=name)

    def _partition(self, change: Change) -> tuple[str, int, bool] | None:
        """Return the table and partition whose length, version or coming a change is; ``None`` for any other."""
        name = change.name
        if name not in self._parts:
            self._parts[name] = key_values.part_of(name) if self._table_of(name) else None
        part = self._parts[name]
        return part if part is not None and (change.table is not Table.ITEM or part[2]) else None

    def _described(self, change: Change) -> Described:
        if part := self._partition(change):
            return self._of_partition(change, *part)
        name, kind = self._title(change)
        if rows := self._as_rows(change):
            key, old, new = rows
            line = _row_line(key, old, new, self._renamed[change.object])
        else:
            key, old, new = self._values(change)
            is_tensor = kind == "Tensor" and change.table is Table.ITEM
            line = _elements(key, old, new) if is_tensor else _line(change, key, old, new)
        return _with_fields(change.table.value, name, kind, key, old, new, line)

    def _title(self, change: Change) -> tuple[str, str | None]:
        of = change.object, change.name, change.kind
        if of != self._titled[0]:  # Changes come object by object.
            self._titled = of, self._title_of(change)
        return self._titled[1]

    def _title_of(self, change: Change) -> tuple[str, str | None]:
        if change.name is None:
            owner, key, kind = self._owners.get(change.object, (None, None, None))
            return (f"{owner}[{printing.short(key, 40)}]" if owner else f"#{change.object}"), change.kind or kind
        if (table := self._table_of(change.name)) is not None:
            return table, "KeyValueTable"
        is_table = any(name in state.tables() for state, name in zip(self._states, self._names(change), strict=True))
        return change.name, "Table" if is_table else change.kind

    def _names(self, change: Change) -> tuple[str | None, str | None]:
        """Return what the object of a change is called before and after: another one may have its name then."""
        before, after = self._named
        return before.get(change.object), after.get(change.object)

    def _table_of(self, name: str | None) -> str | None:
        """Return the key-value table that an object belongs to."""
        part = key_values.part_of(name)
        return part[0] if part is not None and any(part[0] in state for state in self._states) else None

    def _of_partition(self, change: Change, table: str, partition: int, is_counter: bool) -> Described:
        """Return what changed of a partition besides its entries: that it came, its length, the last version."""
        _, old, new = self._values(change)
        if change.table is Table.INDEX:
            what = " counter" if is_counter else ""
        else:
            what = " version" if is_counter else f" {change.slot!s}"
        key = f"partition {partition}{what}"
        line = key if change.table is Table.INDEX else f"its {key} = {_shown(change, old, new)}"
        where = Table.METADATA if change.table is Table.ITEM else change.table
        return _with_fields(where.value, table, "KeyValueTable", key, old, new, line)

    def _as_rows(self, change: Change) -> tuple[Row, Row | None, Row | None] | None:
        """Return the primary key, the row before and the row after; None if this is not a row of a table."""
        if change.table is not Table.ITEM or change.name is None or change.slot is None:
            return None
        names = self._names(change)
        if change.object not in self._rows:
            self._rows[change.object] = tuple(map(_reader_of, self._states, names))
            self._renamed[change.object] = self._renamed_columns(names)
        assert not isinstance(change.old, IndexEntry)
        assert not isinstance(change.new, IndexEntry)
        stored = change.old, change.new
        old, new = (
            None if read is None or value is None else read(change.slot, value)
            for read, value in zip(self._rows[change.object], stored, strict=True)
        )
        if (old is None, new is None) != (change.old is None, change.new is None):
            return None
        state, name = self._states[new is not None], str(names[new is not None])
        row = new or old or {}
        return {column: row.get(column) for column in state.primary_key(name)}, old, new

    def _renamed_columns(self, names: tuple[str | None, str | None]) -> dict[str, str]:
        """Return the new names of renamed columns of a table, by their old ones.

        Args:
            names: the names of the table before and after.
        """
        old, new = (state.columns_by_id(str(name)) for state, name in zip(self._states, names, strict=True))
        return {old[id]: new[id] for id in old if new.get(id, old[id]) != old[id]}

    def _values(self, change: Change) -> tuple[Any, Any, Any]:
        if change.table is Table.INDEX:
            if isinstance(change.new, IndexEntry):
                self._created[change.object] = change.new.codec
            old, new = (list(entry) if isinstance(entry, IndexEntry) else None for entry in (change.old, change.new))
            return None, old, new
        assert not isinstance(change.old, IndexEntry)
        assert not isinstance(change.new, IndexEntry)
        if change.table is Table.METADATA:
            return change.slot, loaded(change.old), loaded(change.new)
        assert change.slot is not None
        slot, codec = change.slot, self._codec(change)
        is_text = isinstance(change.old, str) or isinstance(change.new, str)  # It is of what had the id of the tensor.
        if change.kind == "Tensor" and not is_text:
            chunks = [None if one is None else numbers_of(slot, one, codec) for one in (change.old, change.new)]
            origin = next(chunk[0] for chunk in chunks if chunk is not None)
            return origin, *(chunk and chunk[1] for chunk in chunks)
        raw = is_raw(codec)
        (old_key, old), (new_key, new) = (key_and_value(slot, one, raw=raw) for one in (change.old, change.new))
        plain = key_and_value(slot, None, raw=raw)[0]
        if change.kind in SETS:  # an element is there or not, whatever is stored of it
            return (new_key if change.old is None else old_key), *(
                one is not None or None for one in (change.old, change.new)
            )
        # The slot alone tells neither True from 1 nor 0.0 from 0.
        told = (key for key in (old_key, new_key) if (type(key), key) != (type(plain), plain))
        return next(told, plain), old, new

    def _codec(self, change: Change) -> str | None:
        """Return how the object is stored; an owned object is a plain one."""
        # Changes that are not made yet are in no state, and the object may have another name there.
        return self._codecs.get(change.object, self._created.get(change.object))

    @cached_property
    def _named(self) -> tuple[dict[int, str], dict[int, str]]:
        before, after = ({row[0]: name for name, row in state.index.items()} for state in self._states)
        return before, after

    @cached_property
    def _codecs(self) -> dict[int, str | None]:
        return {row[0]: row[3] for state in self._states for row in state.index.values()}

    @cached_property
    def _owners(self) -> dict[int, tuple[str, Any, str | None]]:
        """The owner, key and kind of each owned object. Made when the first change of one is described."""
        found: dict[int, tuple[str, Any, str | None]] = {}
        for state in self._states:
            for name, row in state.index.items():
                if is_owner(row):
                    kind = str((loaded(row[3]) or {}).get("of"))
                    for item in state.reader.items(row[0]):
                        for one in owned_ids([item.value]):
                            found[one] = name, key_and_value(item.slot, item.value)[0], kind
        return found


def _reader_of(state: State, name: str | None) -> Callable[[Slot, Payload], Row] | None:
    try:
        return None if name is None else state.row_reader(name)
    except CheckpointError:
        return None


def _with_fields(table: str, name: str, kind: str | None, key: Any, old: Any, new: Any, line: str) -> Described:
    fields = {"table": table, "object": name, "kind": kind, "key": key, "old": old, "new": new}
    return Described(name, f"{printing.plain(name)} ({kind})" if kind else printing.plain(name), line, fields)


def _line(change: Change, key: Any, old: Any, new: Any) -> str:
    if change.table is Table.INDEX:
        before, after = (entry[0] if entry else None for entry in (old, new))
        names = after if before is None else before if after in (None, before) else f"{before} → {after}"
        return f"object {printing.plain(str(names))}"
    if change.table is Table.ITEM and change.kind in SETS:
        return printing.key(key)
    if change.table is Table.ITEM:
        return f"{printing.key(key)} = {_shown(change, old, new)}"
    if key == "length" and list in (type(old), type(new)):
        return f"its length = {_shown(change, *map(_counted, (old, new)))}"
    return f"its {printing.key(key)} = {_shown(change, old, new)}"


def _counted(length: Any) -> Any:
    """Return in words the length of a container that also keeps the rank of its next slot, if the two differ."""
    return f"{length[0]} (the next slot has rank {length[1]})" if isinstance(length, list) else length


def _shown(change: Change, old: Any, new: Any) -> str:
    if change.old is not None and change.new is not None:
        return " → ".join(printing.short_pair(old, new))
    return printing.short(old if change.new is None else new)


def _row_line(key: Row, old: Row | None, new: Row | None, renamed: Mapping[str, str]) -> str:
    """Return a row by its columns; for a row that changed, its key and the columns that changed."""
    if old is None or new is None:
        return _columns(new or old or {})
    changed = [
        f"{printing.plain(column)}: {' → '.join(_cells(before, after))}"
        for column, before, after in _column_pairs(old, new, renamed)
        if before != after
    ] or ["the same values in another form"]
    return f"{_columns(key)}: {', '.join(changed)}" if key else ", ".join(changed)


def _column_pairs(old: Row, new: Row, renamed: Mapping[str, str]) -> Iterator[tuple[str, Any, Any]]:
    """Yield each column of two rows with its values in both; a renamed one once, by both names."""
    come = dict(new)
    for column, value in old.items():
        name = renamed.get(column, column)
        if name == column in renamed.values():  # It is gone, and another one has its name.
            yield column, value, None
        else:
            yield column if name == column else f"{name} (was {column})", value, come.pop(name, None)
    yield from ((column, None, value) for column, value in come.items())


def _columns(row: Row) -> str:
    return ", ".join(f"{printing.plain(column)}={_cell(value)}" for column, value in row.items())


def _cells(old: Any, new: Any) -> tuple[str, str]:
    return (_cell(old), _cell(new)) if None in (old, new) else printing.short_pair(old, new)


def _cell(value: Any) -> str:
    return "NULL" if value is None else printing.short(value)


def _element(number: Any) -> Any:
    return number["$float"] if isinstance(number, dict) else number


_MOST_ELEMENTS = 4


def _elements(origin: list[int], old: Any, new: Any) -> str:
    """Return a chunk of a tensor by the elements that changed; one that came or went as it is."""
    if not isinstance(old, list) or not isinstance(new, list):
        shown = " → ".join(printing.short(value) for value in (old, new) if value is not None)
        return f"{printing.key(origin)} = {shown}"
    before, after = (list(elements(one, origin)) for one in (old, new))
    changed = [(index, a, b) for (index, a), (_, b) in zip(before, after, strict=True) if repr(a) != repr(b)]
    lines = [f"{printing.key(index)} = {_element(a)} → {_element(b)}" for index, a, b in changed[:_MOST_ELEMENTS]]
    more = len(changed) - len(lines)
    return ", ".join(lines) + (f", and {more:,} more" if more else "")
