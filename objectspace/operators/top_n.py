"""TopN and GroupTopN: the first rows of a stream in an order, right also when rows are taken back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import Any

from objectspace.operators.base import Operator
from objectspace.operators.net import net_changes
from objectspace.relational import Chunk, SchemaError, StateTable, TableSchema
from objectspace.relational.chunk import Op, is_insert
from objectspace.relational.schema import KeyPart, Row
from objectspace.space import ObjectSpace

Window = dict[bytes, Row]
"""The first rows of a group by their keys, in order: those before the offset, those of the result, and their ties."""

Difference = tuple[list[Row], list[tuple[Row, Row]], list[Row]]
"""The rows that left, the old and new rows of those that changed, and the rows that are new."""

CACHE_GROUPS = 10_000
"""How many windows stay in memory unless the operator is told otherwise."""


class GroupTopN(Operator):
    """The first rows of each group in an order.

    All rows are kept, ordered by group, order and stream key, so that whatever is taken back, the next one is found by
    reading on. A chunk costs a look at the first rows of the groups in which these may have changed, whatever the size
    of the groups, and only the net change goes out.

    State: one table with the input, keyed by group, order and stream key. An event dirties the slot of its row.

    Args:
        schema: the schema of the input; its primary key is the stream key, which breaks ties, ascending.
        group_key: the columns of a group.
        order_by: the order: names, or pairs of a name and a direction such as ``("v", "desc nulls last")``.
        limit: how many rows of a group to give.
        offset: how many to pass over before.
        with_ties: whether rows that are equal to the last one in the order are given too.
        append_only: whether nothing is ever taken back: then only the first rows are kept.
        cache_groups: how many windows to keep in memory.

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
        order_by: Sequence[KeyPart],
        limit: int,
        offset: int = 0,
        with_ties: bool = False,
        *,
        append_only: bool = False,
        cache_groups: int = CACHE_GROUPS,
    ) -> None:
        super().__init__()
        _check_numbers(limit, offset, with_ties, cache_groups)
        self._input, self.limit, self.offset, self.with_ties = schema, limit, offset, with_ties
        self._append_only, self._cache_groups = append_only, cache_groups
        self._group_places = [schema.place_of(name) for name in group_key]
        self._state_schema = TableSchema(schema.columns, [*group_key, *order_by, *_rest(schema, group_key, order_by)])
        self._order_places = self._state_schema.key_places[: len(group_key) + len(order_by)]
        self._ordered = TableSchema(schema.columns, [*group_key, *order_by])
        self._windows: OrderedDict[Row, Window] = OrderedDict()

    @property
    def schema(self) -> TableSchema:
        """The schema of its output: that of the input."""
        return self._input

    def state(self) -> list[tuple[str, TableSchema]]:
        """Return the schema of the table of its rows."""
        return [("rows", self._state_schema)]

    def open(self, space: ObjectSpace, name: str) -> None:
        """Create the table of its rows, or open it again."""
        super().open(space, name)
        self._windows.clear()
        space.on_rollback(self._windows.clear)

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Take changes, and return what they changed in the first rows of their groups.

        Time: O(rows · log n + groups touched · (offset + limit)). Dirties: one slot a row.
        """
        changed: dict[Row, list[tuple[Op, Row]]] = {}
        for op, row in net_changes(chunk):
            changed.setdefault(tuple(row[place] for place in self._group_places), []).append((op, row))
        changes = [self._change_group(group, rows) for group, rows in changed.items()]
        # What leaves one group may come in another: it leaves first.
        gone = [("-", row) for one in changes for row in one[0]]
        new = [("+", row) for one in changes for row in one[2]]
        pairs = [entry for one in changes for old, now in one[1] for entry in (("U-", old), ("U+", now))]
        found: list[Any] = gone + pairs + new
        return [Chunk(self._input, [op for op, _ in found], [row for _, row in found])] if found else []

    @property
    def _rows(self) -> StateTable:
        return self._tables["rows"]

    def _change_group(self, group: Row, rows: list[tuple[Op, Row]]) -> Difference:
        """Apply the changes of one group."""
        before = self._window(group)
        is_touched = self._reaches(before, rows)
        for op, row in rows:
            if is_insert(op):
                self._rows.insert_row(row)
            else:
                self._rows.delete_row(row)
        after = self._keep(group, self._read(group)) if is_touched else before
        if self._append_only:
            self._evict(rows, before, after)
        return _difference(self._result(before), self._result(after))

    def _window(self, group: Row) -> Window:
        if group in self._windows:
            self._windows.move_to_end(group)
            return self._windows[group]
        return self._keep(group, self._read(group))

    def _keep(self, group: Row, window: Window) -> Window:
        self._windows[group] = window
        if len(self._windows) > self._cache_groups:
            self._windows.popitem(last=False)
        return window

    def _read(self, group: Row) -> Window:
        """Read the first rows of a group."""
        rows = self._rows.scan(prefix=group)
        first = list(islice(rows, self.offset + self.limit))
        if self.with_ties and len(first) == self.limit and first:
            last = self._order_of(first[-1])
            first += takewhile(lambda row: self._order_of(row) == last, rows)
        return {self._key(row): row for row in first}

    def _reaches(self, window: Window, rows: list[tuple[Op, Row]]) -> bool:
        """Tell whether changes may concern the first rows: none beyond the last of them does."""
        if len(window) < self.offset + self.limit:
            return True
        last = next(reversed(window), b"")
        ties = self._order_of(window[last]) if self.with_ties and window else None
        return any(self._key(row) <= last or (ties is not None and self._order_of(row) == ties) for _, row in rows)

    def _evict(self, rows: list[tuple[Op, Row]], before: Window, after: Window) -> None:
        """Forget rows that can never be among the first again."""
        entered = {self._key(row): row for _, row in rows}
        for key, row in (before | entered).items():
            if key not in after:
                self._rows.delete_row(row)

    def _result(self, window: Window) -> Window:
        return dict(islice(window.items(), self.offset, None)) if self.offset else window

    def _key(self, row: Row) -> bytes:
        return self._state_schema.key_encoder.encode(self._state_schema.key_of(row))

    def _order_of(self, row: Row) -> bytes:
        return self._ordered.key_encoder.encode(self._ordered.key_of(row))


class TopN(GroupTopN):
    """The first rows of a stream in an order.

    State: one table with the input, keyed by order and stream key. An event dirties the slot of its row.

    Args:
        schema: the schema of the input; its primary key is the stream key, which breaks ties, ascending.
        order_by: the order: names, or pairs of a name and a direction such as ``("v", "desc nulls last")``.
        limit: how many rows to give.
        offset: how many to pass over before.
        with_ties: whether rows that are equal to the last one in the order are given too.
        append_only: whether nothing is ever taken back: then only the first rows are kept.

    Raises:
        SchemaError: a column does not exist, a number is negative, or ties are asked for with an offset.

    Source: RisingWave's TopNExecutor.
    """

    def __init__(
        self,
        schema: TableSchema,
        order_by: Sequence[KeyPart],
        limit: int,
        offset: int = 0,
        with_ties: bool = False,
        *,
        append_only: bool = False,
    ) -> None:
        super().__init__(schema, (), order_by, limit, offset, with_ties, append_only=append_only, cache_groups=1)


def _check_numbers(limit: int, offset: int, with_ties: bool, cache_groups: int) -> None:
    for what, number, least in (("limit", limit, 0), ("offset", offset, 0), ("cache_groups", cache_groups, 1)):
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise SchemaError(f"{what} is {number!r}: expected a number from {least}")
    if with_ties and offset:
        raise SchemaError(f"with_ties gives no sense with an offset, which is {offset}: leave one of them out")


def _rest(schema: TableSchema, group_key: Sequence[str], order_by: Sequence[KeyPart]) -> Iterator[str]:
    """Yield the columns of the stream key that neither group nor order tell."""
    known = {*group_key, *(name for name, _ in TableSchema(schema.columns, list(order_by)).primary_key)}
    return (name for name, _ in schema.primary_key if name not in known)


def _difference(before: Window, after: Window) -> Difference:
    gone = [row for key, row in before.items() if key not in after]
    changed = [(before[key], row) for key, row in after.items() if key in before and before[key] != row]
    return gone, changed, [row for key, row in after.items() if key not in before]
