"""SimpleAgg: aggregates over all rows."""

from __future__ import annotations

from collections.abc import Sequence

from objectspace.operators.agg_call import AggCall
from objectspace.operators.agg_plan import CACHE_ROWS
from objectspace.operators.aggregation import Aggregation
from objectspace.operators.groups import Touched
from objectspace.relational import Chunk, TableSchema


class SimpleAgg(Aggregation):
    """Aggregates all rows into one row that is always there.

    It returns the row at its first barrier, even over no rows, and pairs from then on; it does not return it again
    after recovery.

    Args:
        schema: the schema of the input; its primary key is the stream key.
        calls: the calls.
        append_only: whether the input has no retractions: extremes and sketches then need one value.
        cache_rows: how many rows each ordered call keeps in memory; any number gives the same answers.
        must_output: whether each barrier returns a pair, even if nothing changed.

    >>> from objectspace import VolatileObjectSpace
    >>> from objectspace.relational import Column
    >>> schema = TableSchema([Column("v", "int64"), Column("id", "int64")], primary_key=["id"])
    >>> agg = SimpleAgg(schema, calls=[AggCall("count"), AggCall("sum", "v")])
    >>> agg.open(VolatileObjectSpace(), "agg")
    >>> agg.barrier(epoch=1)[0].rows(), agg.barrier(epoch=2)
    ([('+', (0, None))], [])
    """

    _role = "SimpleAgg"
    _keeps_empty = True

    def __init__(
        self,
        schema: TableSchema,
        calls: Sequence[AggCall],
        *,
        append_only: bool = False,
        cache_rows: int = CACHE_ROWS,
        must_output: bool = False,
    ) -> None:
        super().__init__(schema, (), calls, append_only=append_only, cache_rows=cache_rows)
        self._must_output = must_output

    def _flush(self) -> list[Chunk]:
        if not self._touched and (() not in self._known or self._must_output):
            self._touched[()] = Touched((), self._zero.copy())
        chunks = super()._flush()
        if chunks or not self._must_output:
            return chunks
        shown = tuple(self._known[()].results)
        return [Chunk(self.schema, ["U-", "U+"], [shown, shown])]
