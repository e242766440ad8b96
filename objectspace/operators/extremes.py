"""Extremes and ordered calls: the rows of each group in the order of the call, so a retraction finds the next one.

The table of such a call has the key ``group columns | order | stream key``, so the answer comes first below the prefix
of the group. A cache of the first few rows of each group sits in front of it and never changes an answer: what it does
not know it reads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

from objectspace.operators.agg_call import LISTED, AggCall
from objectspace.operators.canonical import canonical
from objectspace.operators.chunks import FIRST
from objectspace.relational import Column, InconsistentOperationError, Order, StateTable, TableSchema
from objectspace.relational.keys import KeyEncoder

Entry = tuple[bytes, Any]
"""The key of a row in the table of a call, and the value that the row gives the call."""

Changes = dict[bytes, list[Any]]
"""By key and arguments: how many more times a row came than went, and the row."""

Noted = dict[int, Changes]
"""By the number of a call: what an epoch did to the rows of one group."""


class Head:
    """The first rows of a group, as many as fit.

    Args:
        capacity: how many rows fit.
        entries: the known rows, in order.
        is_whole: whether the group has no other rows.

    >>> head = Head(2, [], is_whole=True)
    >>> for key in (b"c", b"a", b"b"): head.insert(key, key.decode())
    >>> head.entries, head.is_whole
    ([(b'a', 'a'), (b'b', 'b')], False)
    >>> head.remove(b"a"); head.remove(b"b"); head.is_unknown
    True
    """

    __slots__ = ("capacity", "entries", "is_whole")

    def __init__(self, capacity: int, entries: Iterable[Entry] = (), *, is_whole: bool = False) -> None:
        self.capacity, self.entries, self.is_whole = capacity, list(entries), is_whole

    @property
    def is_unknown(self) -> bool:
        """Whether the first row has to be read."""
        return not self.entries and not self.is_whole

    def insert(self, key: bytes, value: Any) -> None:
        """Take a row into account; a row after the known ones is skipped if the group is not whole."""
        place = bisect_left(self.entries, (key,))
        if place == len(self.entries) and not self.is_whole:
            return
        self.entries.insert(place, (key, value))
        if len(self.entries) > self.capacity:
            self.entries.pop()
            self.is_whole = False

    def fill(self, entries: list[Entry]) -> None:
        """Take the rows of a group that had none, in any order."""
        if len(entries) > 1:
            entries.sort(key=_key_of)
        self.is_whole = len(entries) <= self.capacity
        self.entries = entries if self.is_whole else entries[: self.capacity]

    def remove(self, key: bytes) -> None:
        """Take into account that a row is gone.

        The first entry may stand for only a value, which is stored with the state of the group: then it is not known
        whether another row has the value too.
        """
        place = bisect_left(self.entries, (key,))
        if place < len(self.entries) and self.entries[place][0] == key:
            del self.entries[place]
        elif place and key.startswith(self.entries[place - 1][0]):
            del self.entries[place - 1 :]
            self.is_whole = False


class OrderedCall:
    """A call that keeps the rows of its groups in order.

    Args:
        number: its position among the calls, which names its table.
        call: the call.
        schema: the schema of the input.
        group_key: the names of the group columns, in the order of the keys of the tables.
        role: the prefix of the names of the operator's tables.
        capacity: how many rows of a group the cache holds.
    """

    def __init__(
        self, number: int, call: AggCall, schema: TableSchema, group_key: Sequence[str], role: str, capacity: int
    ) -> None:
        self.call, self.role, self.capacity = call, f"{role}Call{number}", capacity
        self.is_listed = call.kind in LISTED
        self._is_extreme = call.kind in ("min", "max")
        self._drops_null = self._is_extreme or call.kind == "string_agg"
        self.argument = schema.place_of(call.columns[0])
        self.places, self.schema = self._layout(schema, group_key)
        self._encode = self.schema.key_encoder.encode
        others = [place for place in range(len(self.places)) if place not in self.schema.key_places]
        kinds = [self.schema.columns[place].type for place in others]
        self._others = (others, KeyEncoder(kinds, [Order()] * len(kinds)))
        self._value_of = self._reader()
        self._is_grouped = call.columns[0] in group_key
        self.table: StateTable

    def note(self, changes: Changes, row: Any, sign: int) -> None:
        """Note that a row of a group came or went. Time: O(1)."""
        if self._drops_null and row[self.argument] is None:
            return
        kept = tuple([row[place] for place in self.places])
        key = self._encode(self.schema.key_of(kept))
        others, encoder = self._others
        full = key + encoder.encode([kept[place] for place in others]) if others else key
        found = changes.get(full)
        if found is None:
            changes[full] = [sign, key, kept]
        else:
            found[0] += sign

    def note_all(self, number: int, pairs: Sequence[Any], groups: Sequence[Noted]) -> None:
        """Note that many rows came or went, each with the notes of its group: faster than :meth:`note` for each.

        Time: O(rows).
        """
        triples = zip(pairs, groups)
        if self._drops_null:
            triples = ((pair, group) for pair, group in triples if pair[1][self.argument] is not None)  # type: ignore[assignment]
        found = list(triples)
        if len(self.places) < 2 or self._others[0] or not found:
            for (op, row), group in found:
                self.note(group.setdefault(number, {}), row, _sign(op))
            return
        kept = list(map(itemgetter(*self.places), [row for (_, row), _ in found]))
        keys = self.schema.encode_columns([[row[place] for row in kept] for place in self.schema.key_places])
        for ((op, _), group), key, row in zip(found, keys, kept):
            changes = group.get(number)
            if changes is None:
                group[number] = {key: [_sign(op), key, row]}
            elif key in changes:
                changes[key][0] += _sign(op)
            else:
                changes[key] = [_sign(op), key, row]

    def check(self, groups: Iterable[Changes]) -> None:
        """Refuse rows that came or went twice.

        Raises:
            InconsistentOperationError: there are such rows.

        Time: O(changes).
        """
        for times, _, row in [change for changes in groups for change in changes.values()]:
            if times > 1 or times < -1:
                pairs = ", ".join(f"{name}={value!r}" for name, value in zip(self.schema.names, row, strict=True))
                raise InconsistentOperationError(
                    f"{self.call!r}: the row ({pairs}) came {times:+} times in one epoch: the stream key"
                    " (the primary key of the input schema) must tell rows apart, and a row come before it goes:"
                    f" after a source that cannot promise it, put {FIRST}"
                )

    def write(self, groups: Iterable[Changes]) -> None:
        """Apply the changes of groups to the table: rows that went before rows that came."""
        found = [change for changes in groups for change in changes.values()]
        gone = [(False, row) for times, _, row in found if times < 0]
        self.table.write_rows(gone + [(True, row) for times, _, row in found if times > 0])

    def apply(self, head: Head, changes: Changes) -> None:
        """Apply the changes of a group to its cache."""
        if head.is_whole and not head.entries:
            head.fill([(key, self._value_of(row)) for times, key, row in changes.values() if times > 0])
            return
        came = []
        for times, key, row in changes.values():
            if times < 0:
                head.remove(key)
            elif times:
                came.append((key, row))
        for key, row in came:
            head.insert(key, self._value_of(row))

    def head(self, group: Sequence[Any], value: Any, *, is_new: bool) -> Head:
        """Return what is known of a group: nothing for a new one, the stored value for a minimum or maximum."""
        if is_new or (self._is_extreme and value is None):
            return Head(self.capacity, is_whole=True)
        if not self._is_extreme:
            return Head(self.capacity)
        return Head(self.capacity, [(self._encode(group if self._is_grouped else [*group, value]), value)])

    def first(self, head: Head, group: Sequence[Any]) -> Any:
        """Return the answer for a group, reading the table if the cache does not know it.

        Time: O(1); O(log n + capacity) if it reads.
        """
        if head.is_unknown:
            rows = list(islice(self.table.scan(prefix=group), self.capacity))
            head.entries = [(self._encode(self.schema.key_of(row)), self._value_of(row)) for row in rows]
            head.is_whole = len(rows) < self.capacity
        return head.entries[0][1] if head.entries else None

    def whole(self, group: Sequence[Any]) -> Any:
        """Return the answer of a call that holds a part of every row of the group. Time: O(rows of the group)."""
        found = [self._value_of(row) for row in self.table.scan(prefix=group)]
        if self.call.kind == "array_agg":
            return found or None
        return "".join([text for place, pair in enumerate(found) for text in pair[place == 0 :]]) if found else None

    def _layout(self, schema: TableSchema, group_key: Sequence[str]) -> tuple[list[int], TableSchema]:
        """Return the positions of the columns that are kept, and the schema of the table."""
        key: dict[str, str] = dict.fromkeys(group_key, "asc")
        order: list[tuple[str, Order]] = list(TableSchema(schema.columns, self.call.order_by).primary_key)
        if self._is_extreme:
            order = [(self.call.columns[0], Order.parse("desc" if self.call.kind == "max" else "asc"))]
        unique = self.call.columns[:1] if self.call.is_distinct else _identifying(schema)
        for name, direction in [*order, *((name, Order()) for name in unique)]:
            turned = _reversed(direction) if self.call.kind == "last_value" else direction
            key.setdefault(name, str(turned))
        names = list(dict.fromkeys([*key, *self.call.columns]))
        columns = [Column(name, schema.column(name).type, schema.column(name).nullable) for name in names]
        watermark = schema.watermark_column if schema.watermark_column in group_key else None
        return [schema.place_of(name) for name in names], TableSchema(
            columns, list(key.items()), watermark_column=watermark
        )

    def _reader(self) -> Callable[[Any], Any]:
        """Return a function that gives the call the value of a table row; for text also the delimiter before it."""
        place = self.schema.place_of(self.call.columns[0])
        if self.call.kind == "string_agg":
            if len(self.call.columns) == 1:
                return lambda row: (self.call.delimiter, row[place])
            before = self.schema.place_of(self.call.columns[1])
            return lambda row: (row[before] or "", row[place])
        form = canonical(self.schema.columns[place].type)
        return (lambda row: row[place]) if form is None else (lambda row: form(row[place]))


def _sign(op: str) -> int:
    return 1 if op == "+" or op == "U+" else -1


def _identifying(schema: TableSchema) -> Sequence[str]:
    """Return the columns that tell rows apart: those of the stream key, or all without one."""
    return [name for name, _ in schema.primary_key] or schema.names


def _key_of(entry: Entry) -> bytes:
    return entry[0]


def _reversed(order: Order) -> Order:
    return Order(not order.descending, not order.nulls_first)
