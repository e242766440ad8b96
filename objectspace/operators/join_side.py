"""One side of a join: its rows by join key, and for each row how many rows of the other side match it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from objectspace.operators.canonical import identity, is_plain
from objectspace.relational import Column, StateTable, TableSchema
from objectspace.relational.chunk import Op
from objectspace.relational.schema import Row
from objectspace.relational.watermarks import is_below

DEGREE = "_degree"
"""The column that holds how many rows of the other side match a row."""


class Entry:
    """A stored row, and how many rows of the other side match it; -1 if they are not counted."""

    __slots__ = ("degree", "row")

    def __init__(self, row: Row, degree: int = -1) -> None:
        self.row, self.degree = row, degree


Group = dict[Any, Any]
"""The rows of one join key, by what stands for their stream keys; entries if the side keeps degrees."""

NOTHING: Group = {}
"""The rows of a join key that has none."""


class JoinSide:
    """The rows of one input.

    Degrees change far more often than rows, so they have a table of their own, and only if the side needs them: if its
    rows may come out without a match, or depend on there being one.

    Args:
        schema: the schema of the input; its primary key is the stream key.
        join_key: the columns that are compared with those of the other side.
        null_safe: for each of them, whether NULL equals NULL.
        counts: whether degrees are kept.
        cache_keys: the number of join keys whose rows stay in memory.
        watermark_column: the column whose watermark cleans the tables.
        ordered_by: columns that follow the join key in the keys of the tables.
    """

    def __init__(
        self,
        schema: TableSchema,
        join_key: Sequence[str],
        null_safe: Sequence[bool],
        *,
        counts: bool,
        cache_keys: int,
        watermark_column: str | None = None,
        ordered_by: Sequence[str] = (),
    ) -> None:
        self.schema, self.counts = schema, counts
        self.nulls: Row = (None,) * len(schema.columns)
        self._places = [schema.place_of(name) for name in join_key]
        self._strict_places = [place for place, safe in zip(self._places, null_safe, strict=True) if not safe]
        leading = [*join_key, *ordered_by]
        key = [*leading, *(name for name, _ in schema.primary_key if name not in leading)]
        self.state_schema = TableSchema(schema.columns, key, watermark_column=watermark_column)
        columns = [schema.column(name) for name in dict.fromkeys(key)]
        degree = Column(DEGREE, "int64")
        self.degree_schema = TableSchema(
            [Column(c.name, c.type, c.nullable) for c in columns] + [degree], key, watermark_column=watermark_column
        )
        self._degree_places = [schema.place_of(column.name) for column in columns]
        self._cache_keys = cache_keys
        self._groups: dict[Any, Group] = {}
        self._held: dict[Any, Group] = {}
        self._is_whole: bool | None = None
        self._pending: list[tuple[bool, Row]] = []
        self._degrees_pending: list[tuple[bool, Entry]] = []
        self._shifted: dict[int, Entry] = {}
        places = list(schema.key_places)
        self._slot = identity([schema.columns[place].type for place in places], places)
        # NaN equals NaN in SQL, but nothing in Python; lists cannot be keys of a dictionary.
        is_plain_key = all(is_plain(schema.column(name).type) for name in join_key)
        self._encode = None if is_plain_key else TableSchema(schema.columns, list(join_key)).key_encoder.encode
        self.is_simple = len(self._places) == 1 and len(self._strict_places) == 1 and is_plain_key
        self._rows: StateTable
        self._degrees: StateTable | None = None

    def state(self) -> dict[str, TableSchema]:
        """Return the schema of each table by the part of its role that follows the name of the side."""
        return {"": self.state_schema, "_degree": self.degree_schema} if self.counts else {"": self.state_schema}

    def open(self, tables: Mapping[str, StateTable]) -> None:
        """Use the tables of :meth:`state`."""
        self._rows, self._degrees = tables[""], tables.get("_degree")
        self.forget()

    def forget(self) -> None:
        """Drop what is in memory."""
        for kept in (self._groups, self._held, self._pending, self._degrees_pending, self._shifted):
            kept.clear()
        self._is_whole = None

    def forget_below(self, watermark: Any) -> None:
        """Drop from memory the rows whose first join column is below a watermark. Time: O(join keys in memory)."""
        if self._encode is not None:
            self.forget()
            return
        firsts = ((known, known if self.is_simple else known[0]) for known in self._groups)
        for known in [known for known, first in firsts if is_below(first, watermark)]:
            del self._groups[known]

    def key_of(self, row: Row) -> Row | None:
        """Return the join key of a row, or ``None`` if a NULL in it matches nothing."""
        for place in self._strict_places:
            if row[place] is None:
                return None
        return tuple([row[place] for place in self._places])

    def known_of(self, rows: Sequence[Row]) -> list[Any]:
        """Return what stands for the join key of each row in memory, or ``None`` if a NULL in it matches nothing."""
        if self.is_simple:
            (place,) = self._places
            return [row[place] for row in rows]
        return [None if (key := self.key_of(row)) is None else self._known(key) for row in rows]

    def hold(self, known: Sequence[Any], keys: Sequence[Row | None] | None = None) -> dict[Any, Group]:
        """Return the rows of join keys by what stands for the keys, and hold them in memory until :meth:`settle`.

        Args:
            known: what stands for the keys.
            keys: the keys themselves.

        Time: O(1) per key, or O(its rows) from the table.
        """
        if self._has_all():
            self._held = self._groups
            return self._held
        groups, missing = self._groups, {}
        for one, key in dict(zip(known, keys or [(each,) for each in known])).items():
            if one is not None and key is not None:
                group = groups.pop(one, None)
                if group is None:
                    missing[one] = key
                else:
                    groups[one] = self._held[one] = group
        found = dict(zip(missing, self._read(list(missing.values()))))
        groups.update(found)
        self._held.update(found)
        return self._held

    def settle(self) -> None:
        """Write what was noted, and release the rows that were held.

        Time: O(log n) per row. Dirties: one slot per row, and one per degree if degrees are kept.
        """
        self._rows.write_rows(self._pending)
        if self._degrees is not None:
            changed = [*self._degrees_pending, *((True, entry) for entry in self._shifted.values())]
            self._degrees.write_rows([(comes, self._degree_row(entry)) for comes, entry in changed])
        self._held, self._pending, self._degrees_pending, self._shifted = {}, [], [], {}
        surplus = len(self._groups) - self._cache_keys
        if surplus > 0:
            self._is_whole = False
            for known in list(islice(self._groups, surplus)):
                del self._groups[known]

    def candidates(self, key: Row, opposite: Row) -> Iterable[Entry]:
        """Return the rows of a join key, which is held, that may match a row of the other side."""
        found = self._held.get(self._known(key), NOTHING).values()
        return found if self.counts else map(Entry, found)

    def apply(self, changes: Sequence[tuple[Op, Row]], known: Sequence[Any]) -> None:
        """Note changes of a side without degrees, with what stands for their join keys.

        Time: O(1) per row. Dirties: one slot per row.
        """
        groups, slot_of, is_whole = self._groups, self._slot, self._has_all()
        for (op, row), one in zip(changes, known):
            group = groups.get(one)
            if op == "+":
                if group is not None:
                    group[slot_of(row)] = row
                elif is_whole and one is not None:
                    groups[one] = {slot_of(row): row}
            elif group is not None:
                group.pop(slot_of(row), None)
                if not group and is_whole:
                    del groups[one]
        self._pending += [(op == "+", row) for (op, row), one in zip(changes, known) if one is not None]

    def insert(self, key: Row, row: Row, degree: int) -> None:
        """Note that a row came. Time: O(1). Dirties: one slot, and that of its degree if degrees are kept."""
        known, entry = self._known(key), Entry(row, degree)
        group = self._groups.get(known)
        if group is None and self._has_all():
            group = self._groups[known] = {}
        if group is not None:
            group[self._slot(row)] = entry if self.counts else row
        self._note(True, entry)

    def remove(self, key: Row, row: Row, degree: int) -> None:
        """Note that a row went. Time: O(1). Dirties: one slot, and that of its degree if degrees are kept."""
        known = self._known(key)
        group = self._groups.get(known)
        if group is not None:
            group.pop(self._slot(row), None)
            if not group and self._has_all():
                del self._groups[known]
        self._note(False, Entry(row, degree))

    def shift(self, entry: Entry, change: int) -> None:
        """Note that one more row of the other side matches a row, or one less. Dirties: the slot of the degree."""
        if self.counts:
            entry.degree += change
            self._shifted[id(entry)] = entry

    def padded(self, row: Row | None) -> Row:
        """Return a row, or as many NULLs if there is none."""
        return self.nulls if row is None else row

    def _known(self, key: Row) -> Any:
        """Return what stands for a join key in memory."""
        if self.is_simple:
            return key[0]
        return key if self._encode is None else self._encode(key)

    def _note(self, comes: bool, entry: Entry) -> None:
        self._pending.append((comes, entry.row))
        if self._degrees is not None:
            self._degrees_pending.append((comes, entry))

    def _has_all(self) -> bool:
        """Return whether all rows are in memory: the table was empty when opened, and all keys have fit since."""
        if self._is_whole is None:
            self._is_whole = next(self._rows.scan(), None) is None
        return self._is_whole

    def _read(self, keys: Sequence[Row]) -> list[Group]:
        found = self._rows.scan_all(keys)
        if self._degrees is None:
            return [{self._slot(row): row for row in rows} for rows in found]
        return [
            {self._slot(row): Entry(row, degree[-1]) for row, degree in zip(rows, degrees, strict=True)}
            for rows, degrees in zip(found, self._degrees.scan_all(keys), strict=True)
        ]

    def _degree_row(self, entry: Entry) -> Row:
        return (*(entry.row[place] for place in self._degree_places), entry.degree)
