"""HashAgg: aggregates by group, correct under inserts, updates and deletes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from objectspace.operators.agg_call import AggCall
from objectspace.operators.agg_plan import CACHE_GROUPS, CACHE_ROWS
from objectspace.operators.base import Watermark, column_names
from objectspace.operators.value_groups import ValueGroups
from objectspace.relational import Chunk, SchemaError, TableSchema


class HashAgg(ValueGroups):
    """Aggregates by group.

    At each barrier it returns one change per touched group, in the order of the group key: an insert if the group is
    new, a delete if its last row is gone, a pair if it shows something else, and nothing if it does not. The rows of an
    epoch may come in any order, even a delete before its insert.

    Args:
        schema: the schema of the input; its primary key is the stream key, and its watermark column, if it is a group
            column, is the one by which watermarks close groups.
        group_key: the names of the group columns; NULL is a group of its own.
        calls: the calls.
        append_only: whether the input has no retractions: extremes and sketches then need one value per group.
        emit_on_window_close: whether each group is emitted once, when a watermark says that it is complete; ``True``
            for the watermark column of the schema, or the name of a group column.
        cache_rows: how many rows of a group each ordered call keeps in memory; any number gives the same answers.
        cache_groups: how many groups stay in memory between epochs; any number gives the same answers.

    Raises:
        SchemaError: a column does not exist, or a call does not fit it.

    >>> from objectspace import VolatileObjectSpace
    >>> from objectspace.relational import Column
    >>> schema = TableSchema([Column("k", "string"), Column("v", "int64"), Column("id", "int64")], primary_key=["id"])
    >>> agg = HashAgg(schema, group_key=["k"], calls=[AggCall("count"), AggCall("sum", "v"), AggCall("min", "v")])
    >>> agg.open(VolatileObjectSpace(), "agg")
    >>> _ = agg.process(Chunk.from_rows(schema, [("+", ("a", 3, 1)), ("+", ("a", 5, 2)), ("+", ("b", 7, 3))]))
    >>> [chunk.rows() for chunk in agg.barrier(epoch=1)]
    [[('+', ('a', 2, 8, 3)), ('+', ('b', 1, 7, 7))]]
    >>> _ = agg.process(Chunk.from_rows(schema, [("-", ("a", 3, 1)), ("-", ("b", 7, 3))]))
    >>> [chunk.rows() for chunk in agg.barrier(epoch=2)]
    [[('U-', ('a', 2, 8, 3)), ('U+', ('a', 1, 5, 5)), ('-', ('b', 1, 7, 7))]]
    """

    _role = "HashAgg"

    def __init__(
        self,
        schema: TableSchema,
        group_key: Sequence[str],
        calls: Sequence[AggCall],
        *,
        append_only: bool = False,
        emit_on_window_close: bool | str = False,
        cache_rows: int = CACHE_ROWS,
        cache_groups: int = CACHE_GROUPS,
    ) -> None:
        group_key = column_names(group_key)
        if not group_key:
            raise SchemaError("HashAgg takes at least one group column: SimpleAgg aggregates all rows")
        self.emits_on_close = bool(emit_on_window_close)
        if self.emits_on_close:
            schema = _with_watermark(schema, group_key, emit_on_window_close)
        super().__init__(
            schema,
            group_key,
            calls,
            append_only=append_only,
            cache_rows=cache_rows,
            cache_groups=cache_groups,
        )

    def watermark(self, column: str, value: Any, side: str = "input") -> list[Watermark]:
        """Accept a watermark of a group column; where groups wait, only that which they wait for is passed on.

        Raises:
            RowError: it is not a value of the column.
        """
        found = super().watermark(column, value, side)
        # A group that waits for one column may be below the watermark of another one.
        return [] if self.emits_on_close and column != self._window else found

    def _emitted(self, ops: list[Any], rows: list[Any]) -> list[Chunk]:
        if not self.emits_on_close:
            return super()._emitted(ops, rows)
        return super()._emitted(["+"] * len(found), found) if (found := self._close()) else []

    def _close(self) -> list[Any]:
        """Return the rows of the groups below the watermark, in the order of their windows, and delete their state."""
        if self._next_watermark is None:
            return []
        found = []
        lower = (self._closed,) if self._closed is not None else (None,)
        inclusive = (self._closed is not None, False)
        for row in list(self._table.scan(lower=lower, upper=(self._next_watermark,), inclusive=inclusive)):
            group = row[: len(self._keys)]
            settled = self._loaded(row[len(group) :])
            for number, ordered in self._ordered.items():
                if ordered.is_listed:
                    settled.results[number] = ordered.whole(group)
            found.append((*self._shown_group(group), *settled.results))
        return found


def _with_watermark(schema: TableSchema, group_key: Sequence[str], given: bool | str) -> TableSchema:
    """Return a schema whose watermark column is the one that closes groups."""
    name = given if isinstance(given, str) else schema.watermark_column
    if name is None and len(group_key) == 1:
        (name,) = group_key
    if name not in group_key:
        raise SchemaError(
            f"emit_on_window_close takes a watermark on a group column ({', '.join(group_key)}): found {name!r}; name"
            " the column, or pass TableSchema(..., watermark_column=...)"
        )
    return TableSchema(schema.columns, list(schema.primary_key), watermark_column=name)
