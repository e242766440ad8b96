"""TopN and GroupTopN: the first rows of a stream in an order, correct even if rows are retracted."""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import compress, islice, repeat
from operator import gt, itemgetter, lt, ne, not_
from typing import Any

from checkpoint.process import collecting_seldom
from objectspace.operators.base import Operator, Watermark, check_number, column_names, order_parts
from objectspace.operators.canonical import dictionary_keys
from objectspace.operators.chunks import refuse_retractions, taken
from objectspace.operators.net import net_changes
from objectspace.relational import Chunk, SchemaError, StateTable, TableSchema
from objectspace.relational.chunk import Op
from objectspace.relational.schema import KeyPart, Row
from objectspace.relational.watermarks import is_below
from objectspace.space import ObjectSpace

Rows = dict[bytes, Row]
"""Rows by their keys, in order."""

Difference = tuple[list[Row], list[tuple[Row, Row]], list[Row]]
"""The rows that left, the old and new rows of those that changed, and the rows that are new."""

COMPARED = frozenset(["int16", "int32", "int64", "float64", "string", "date"])
"""Types whose values Python compares as their keys do, unless one is NaN, which it never finds worse."""

CACHE_GROUPS = 10_000
"""The default number of groups whose heads stay in memory."""


SPARE = 16
"""How many rows beyond those that are needed a head has at least, so not every retraction has to read on."""


class Head:
    """The first rows of a group, as many as fit.

    Args:
        capacity: how many rows fit.
        rows: the known rows, by their keys and in order.
        is_whole: whether the group has no other rows.

    >>> head = Head(2, {}, is_whole=True)
    >>> left = {}
    >>> [head.change("+", key, (key.decode(),), left) for key in (b"c", b"a", b"b")]
    [None, None, ('c',)]
    >>> left
    {b'c': ('c',)}
    >>> head.keys, head.is_whole
    ([b'a', b'b'], False)
    """

    __slots__ = ("capacity", "is_whole", "keys", "rows")

    def __init__(self, capacity: int, rows: Rows, *, is_whole: bool) -> None:
        self.capacity, self.is_whole, self.keys, self.rows = capacity, is_whole, list(rows), rows

    def change(self, op: Op, key: bytes, row: Row, left: Rows) -> Row | None:
        """Take a change into account, and return the row that has no room; a row after all known ones has none.

        Args:
            op: ``+`` or ``-``.
            key: the key of the row.
            row: the row.
            left: where the rows that leave are noted; an entry that is already there for a key stays.

        Time: O(log capacity).
        """
        keys = self.keys
        if not self.is_whole and (not keys or key > keys[-1]):
            return row
        place = bisect_left(keys, key)
        if key in self.rows:
            del keys[place]
            left.setdefault(key, self.rows.pop(key))
        if op == "+":
            keys.insert(place, key)
            self.rows[key] = row
            if len(keys) > self.capacity:
                self.is_whole = False
                last = keys.pop()
                out = self.rows.pop(last)
                left.setdefault(last, out)
                return out
        return None


class GroupTopN(Operator):
    """The first rows of each group in an order.

    All rows are kept, ordered by group, order and stream key, so whatever is retracted, the next row is found by
    reading on. A chunk costs a read of the first rows of each group in which these may have changed, however large the
    groups are, and only the net change goes out. Rows that are tied with the last one are among the first rows, and
    stay in memory with them: a change among many ties costs as much as there are of them.

    State: one table with the input, keyed by group, order and stream key. An event dirties the slot of its row.

    A watermark of a group column that is the watermark column of the schema removes the groups below it; what was
    already emitted for them stays.

    Args:
        schema: the schema of the input; its primary key is the stream key, which breaks ties, ascending.
        group_key: the columns of a group.
        order_by: the order: names or strings such as ``"v desc"``, or pairs such as ``("v", "desc nulls last")``.
        limit: how many rows of a group to emit.
        offset: how many rows to skip before them.
        with_ties: whether rows that are equal to the last one in the order are also emitted.
        append_only: whether nothing is ever retracted: then only the first rows are kept.
        cache_groups: of how many groups to keep the head in memory.

    Raises:
        SchemaError: a column does not exist, a number is negative, or ties are asked for with an offset.

    Source: RisingWave's GroupTopNExecutor.

    >>> from objectspace import VolatileObjectSpace
    >>> from objectspace.relational import Column
    >>> schema = TableSchema([Column("g", "string"), Column("v", "int64"), Column("id", "int64")], primary_key=["id"])
    >>> top = GroupTopN(schema, group_key=["g"], order_by=["v desc"], limit=1)
    >>> top.open(VolatileObjectSpace(), "top")
    >>> top.process(Chunk.from_rows(schema, [("+", ("a", 5, 1)), ("+", ("a", 7, 2)), ("+", ("b", 1, 3))]))[0].rows()
    [('+', ('a', 7, 2)), ('+', ('b', 1, 3))]
    >>> top.process(Chunk.from_rows(schema, [("-", ("a", 7, 2))]))[0].rows()
    [('-', ('a', 7, 2)), ('+', ('a', 5, 1))]
    """

    def __init__(
        self,
        schema: TableSchema,
        group_key: Sequence[str],
        order_by: Sequence[KeyPart] | str,
        limit: int,
        offset: int = 0,
        with_ties: bool = False,
        *,
        append_only: bool = False,
        cache_groups: int = CACHE_GROUPS,
    ) -> None:
        super().__init__()
        _check_numbers(limit, offset, with_ties, cache_groups)
        self.limit, self.offset, self.with_ties = limit, offset, with_ties
        self._append_only, self._cache_groups = append_only, cache_groups
        group_key = column_names(group_key)
        self._closing = schema.watermark_column if schema.watermark_column in group_key else None
        # State is cleaned by ranges of keys, so the watermark column comes first.
        group_key = self._group_key = sorted(group_key, key=lambda name: name != self._closing)
        self._group_places = [schema.place_of(name) for name in group_key]
        order = order_parts(order_by)
        key = [*group_key, *order, *_rest(schema, group_key, order)]
        self._state_schema = TableSchema(schema.columns, key, watermark_column=self._closing)
        self._output = TableSchema(schema.columns, list(schema.primary_key), watermark_column=self._closing)
        self._ordered = TableSchema(schema.columns, [*group_key, *order])
        self._needed = offset + limit
        self._capacity = self._needed + max(self._needed, SPARE)
        if append_only:
            # What no head holds is in no table, so ties are dropped only once it is known which rows they are.
            self._capacity = sys.maxsize if with_ties else self._needed
        self._first_column = self._compared(order)
        self._heads: dict[Any, Head] = {}
        self._groups_of = dictionary_keys(schema, self._group_places)
        self._is_whole: bool | None = None

    @property
    def schema(self) -> TableSchema:
        """The schema of its output: that of the input, with the watermark column if it is a group column."""
        return self._output

    def state(self) -> list[tuple[str, TableSchema]]:
        """Return the schema of the table of its rows."""
        return [("rows", self._state_schema)]

    def open(self, space: ObjectSpace, name: str) -> None:
        """Create the table of its rows, or open it again."""
        super().open(space, name)
        self._forget()

    @collecting_seldom()
    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Take changes, and return what they changed in the first rows of their groups.

        Raises:
            SchemaMismatchError: the chunk has other columns.
            InconsistentOperationError: the input was said to be append-only, and a row is retracted.

        Time: O(rows · log n + groups touched · (offset + limit)), where with ties all rows that are tied with the last
        one count into the limit; O(1) for a row of an append-only input that comes after the first rows by the first
        column of the order. Dirties: one slot per row; with append-only input one per row that enters the result or
        leaves it.
        """
        self._check_open()
        chunk = taken(self._output, chunk)
        changes = self._grown(chunk) if self._append_only else net_changes(chunk)
        rows = [row for _, row in changes]
        groups = self._groups_of(rows)
        members = dict(zip(groups, rows))
        heads = {group: self._head(group, row) for group, row in members.items()}
        keys = self._rows.write_rows([(op == "+", row) for op, row in changes])
        before: dict[Any, list[bytes]] = {}
        left: Rows = {}
        surplus: list[Row] = []
        for group, key, (op, row) in zip(groups, keys, changes):
            head = heads[group]
            if group not in before and self._reaches(head, key, row):
                before[group] = self._result(head)
            out = head.change(op, key, row, left)
            if out is not None:
                surplus.append(out)
        if self._append_only:
            surplus += [row for group in set(groups) for row in self._untied(heads[group], left)]
            self._rows.write_rows([(False, row) for row in surplus])
        found = [
            self._difference(old, heads[group], self._settled(group, heads[group], members[group]), left)
            for group, old in before.items()
        ]
        self._let_go()
        return self._emitted(found)

    def kept_as(self, column: str) -> str | None:
        """Return the name that a column of the input has in the output: the same."""
        return column

    def watermark(self, column: str, value: Any, side: str = "input") -> list[Watermark]:
        """Accept a watermark of a group column: groups below it are forgotten at the next barrier.

        Time: O(groups in memory). Dirties: at the next barrier one slot, and the rows that are removed.
        """
        if column not in self._group_key:
            return []
        if column == self._closing and value is not None:
            self._check_open()
            self._rows.update_watermark(value)
            firsts = ((group, group if len(self._group_places) == 1 else group[0]) for group in self._heads)
            for group in [group for group, first in firsts if is_below(first, value)]:
                del self._heads[group]
        return [(column, value)]

    def _reaches(self, head: Head, key: bytes, row: Row) -> bool:
        """Return whether a change may affect the result."""
        keys, needed = head.keys, self._needed
        if len(keys) < needed or not needed:
            return needed > 0
        last = keys[needed - 1]
        return key <= last or (self.with_ties and self._order_of(row) == self._order_of(head.rows[last]))

    def _grown(self, chunk: Chunk) -> list[tuple[Op, Row]]:
        """Return the changes of an input that only grows, without the rows that come after all of the first ones."""
        rows = chunk.values
        if set(chunk.ops) != {"+"}:
            changes = net_changes(chunk)
            rows = [row for _, row in changes]
            refuse_retractions(self, Chunk(self._output, [op for op, _ in changes], rows))
        try:
            near = self._near(rows) if self._needed else []
        except TypeError:
            near = rows  # The table says which value does not fit its column.
        return [("+", row) for row in near]

    def _near(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Return the rows that may be among the first of their groups; for most, one comparison tells."""
        place, is_worse = self._first_column
        if place is None:
            return rows
        if self._group_places:
            groups = self._groups_of(rows)
            last = {group: self._bound(group, place) for group in set(groups) & self._heads.keys()}
            bounds = map(last.get, groups)
            return [row for row, bound in zip(rows, bounds) if bound is None or _is_near(row[place], bound, is_worse)]
        values = list(map(itemgetter(place), rows))
        bound = self._bound((), place) if () in self._heads else None
        if bound is None:
            bound = self._bound_among(values)
        if bound is None:
            return rows
        try:
            return list(compress(rows, map(not_, map(is_worse, values, repeat(bound)))))
        except TypeError:  # There are NULLs among them.
            return [row for row, value in zip(rows, values) if _is_near(value, bound, is_worse)]

    def _bound_among(self, values: Sequence[Any]) -> Any:
        """Return the value of the last of the first rows if there were no other rows, or ``None`` if there are too few.

        Python does not order NaN, so it is also ``None`` if there is one.
        """
        if len(values) <= self._needed or any(map(ne, values, values)):
            return None
        return sorted(values, reverse=self._first_column[1] is lt)[self._needed - 1]

    def _bound(self, group: Any, place: int) -> Any:
        """Return the value of the last of the first rows of a group, or ``None`` if it does not have that many."""
        head = self._heads[group]
        return head.rows[head.keys[self._needed - 1]][place] if len(head.keys) >= self._needed else None

    def _emitted(self, changes: list[Difference]) -> list[Chunk]:
        # A row that leaves one group may come in another: it leaves first.
        gone = [("-", row) for one in changes for row in one[0]]
        new = [("+", row) for one in changes for row in one[2]]
        pairs = [entry for one in changes for old, now in one[1] for entry in (("U-", old), ("U+", now))]
        found: list[Any] = gone + pairs + new
        return [Chunk(self._output, [op for op, _ in found], [row for _, row in found])] if found else []

    def _compared(self, order_by: Sequence[KeyPart]) -> tuple[int | None, Callable[[Any, Any], bool]]:
        """Return the position of the order's first column, if Python compares its values so, and a test for worse."""
        order = TableSchema(self._output.columns, order_by).primary_key
        if not order or self._output.column(order[0][0]).type.kind not in COMPARED:
            return None, gt
        return self._output.place_of(order[0][0]), lt if order[0][1].descending else gt

    @property
    def _rows(self) -> StateTable:
        return self._tables["rows"]

    def _forget(self) -> None:
        """Drop what is in memory."""
        self._heads.clear()
        self._is_whole = None

    def _head(self, group: Any, row: Row) -> Head:
        """Return what is known of a row's group: everything if the table was empty and all heads have fit since."""
        known = self._heads.pop(group, None)
        if known is None:
            if self._is_whole is None:
                self._is_whole = next(self._rows.scan(), None) is None
            known = Head(self._capacity, {}, is_whole=True) if self._is_whole else self._read(row)
        self._heads[group] = known
        return known

    def _let_go(self) -> None:
        """Forget the heads that were touched longest ago."""
        surplus = len(self._heads) - self._cache_groups
        if surplus > 0:
            self._is_whole = False
            for group in list(islice(self._heads, surplus)):
                del self._heads[group]

    def _read(self, row: Row) -> Head:
        """Read the first rows of the group of a row."""
        rows = self._rows.scan(prefix=[row[place] for place in self._group_places])
        first = list(islice(rows, self._capacity))
        is_whole = len(first) < self._capacity
        if self.with_ties and self.limit and not is_whole:
            tied, is_whole = self._order_of(first[self.limit - 1]), True
            if self._order_of(first[-1]) != tied:
                is_whole = False
            for row in rows if is_whole else ():
                first.append(row)
                if self._order_of(row) != tied:
                    is_whole = False
                    break
        # Where many rows are tied, others have room: not every row that comes may cost another read of all of them.
        capacity = self._capacity if len(first) <= self._capacity else 2 * len(first)
        return Head(capacity, {self._key(row): row for row in first}, is_whole=is_whole)

    def _settled(self, group: Any, head: Head, row: Row) -> Head:
        """Return the head of the group of a row, reading on if it does not tell the result."""
        if not head.is_whole and not self._tells_result(head):
            head = self._heads[group] = self._read(row)
        return head

    def _tells_result(self, head: Head) -> bool:
        if len(head.keys) < self._needed:
            return False
        if not self.with_ties or not self.limit:
            return True
        last, tied = (head.rows[head.keys[place]] for place in (-1, self.limit - 1))
        return self._order_of(last) != self._order_of(tied)

    def _untied(self, head: Head, left: Rows) -> list[Row]:
        """Remove from a head without a limit what comes after its last row and those tied with it, and return that."""
        if not self.with_ties:
            return []
        result = self._result(head)
        gone, head.keys = head.keys[len(result) :], result
        rows = [head.rows.pop(key) for key in gone]
        for key, row in zip(gone, rows):
            left.setdefault(key, row)
        return rows

    def _difference(self, old: list[bytes], before: Head, after: Head, left: Rows) -> Difference:
        """Return how a result changed, from its keys before, both heads, and the rows that left the earlier one."""
        new = self._result(after)
        if old == new and left.keys().isdisjoint(old):
            return [], [], []
        stays = set(old).intersection(new)
        gone = [left[key] if key in left else before.rows[key] for key in old if key not in stays]
        come = [after.rows[key] for key in new if key not in stays]
        if left.keys().isdisjoint(new):
            return gone, [], come
        pairs = [(left[key], after.rows[key]) for key in new if key in left and key in old]
        changed = [(was, now) for was, now in pairs if not self._output.alike(was, now)]
        return gone, changed, come

    def _result(self, head: Head) -> list[bytes]:
        """Return the keys of the result of a group."""
        if not self.with_ties or len(head.keys) <= self.limit or not self.limit:
            return head.keys[self.offset : self._needed]
        # The keys of tied rows begin with what they have in common.
        tied = self._order_of(head.rows[head.keys[self.limit - 1]])
        return head.keys[: bisect_right(head.keys, tied, self.limit, key=lambda key: key[: len(tied)])]

    def _key(self, row: Row) -> bytes:
        return self._state_schema.key_encoder.encode(self._state_schema.key_of(row))

    def _order_of(self, row: Row) -> bytes:
        return self._ordered.key_encoder.encode(self._ordered.key_of(row))


class TopN(GroupTopN):
    """The first rows of a stream in an order.

    With ties a change among them costs as much as there are of them: see :class:`GroupTopN`.

    State: one table with the input, keyed by order and stream key. An event dirties the slot of its row.

    Args:
        schema: the schema of the input; its primary key is the stream key, which breaks ties, ascending.
        order_by: the order: names or strings such as ``"v desc"``, or pairs such as ``("v", "desc nulls last")``.
        limit: how many rows to emit.
        offset: how many rows to skip before them.
        with_ties: whether rows that are equal to the last one in the order are also emitted.
        append_only: whether nothing is ever retracted: then only the first rows are kept.

    Raises:
        SchemaError: a column does not exist, a number is negative, or ties are asked for with an offset.

    Source: RisingWave's TopNExecutor.
    """

    def __init__(
        self,
        schema: TableSchema,
        order_by: Sequence[KeyPart] | str,
        limit: int,
        offset: int = 0,
        with_ties: bool = False,
        *,
        append_only: bool = False,
    ) -> None:
        super().__init__(schema, (), order_by, limit, offset, with_ties, append_only=append_only, cache_groups=1)


def _check_numbers(limit: int, offset: int, with_ties: bool, cache_groups: int) -> None:
    for what, number, least in (("limit", limit, 0), ("offset", offset, 0), ("cache_groups", cache_groups, 1)):
        check_number(what, number, least)
    if with_ties and offset:
        raise SchemaError(f"with_ties makes no sense with an offset, which is {offset}: leave one of them out")


def _rest(schema: TableSchema, group_key: Sequence[str], order_by: Sequence[KeyPart]) -> Iterator[str]:
    """Yield the columns of the stream key that are neither in the group nor in the order."""
    known = {*group_key, *(name for name, _ in TableSchema(schema.columns, order_by).primary_key)}
    return (name for name, _ in schema.primary_key if name not in known)


def _is_near(value: Any, bound: Any, is_worse: Callable[[Any, Any], bool]) -> bool:
    return value is None or not is_worse(value, bound)
