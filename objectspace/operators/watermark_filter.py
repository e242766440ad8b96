"""WatermarkFilter: makes watermarks from the times of rows, and drops rows that come too late."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from objectspace.operators.base import Operator, Watermark
from objectspace.operators.chunks import Change, check_chunk, halves, paired
from objectspace.relational import Chunk, Column, SchemaError, TableSchema
from objectspace.relational.types import INTEGERS, TIMES
from objectspace.relational.values import BadValue, checker


class WatermarkFilter(Operator):
    """Makes the watermark: the greatest time up to the last barrier, minus a delay. Rows below it are dropped.

    The watermark moves only at barriers, so which rows of an epoch are dropped does not depend on their order. Ask
    :meth:`watermarks` for it after each barrier. It survives recovery, so what was too late once is too late again.

    Args:
        schema: the schema of the input.
        column: the name of the time column.
        delay: how far below the greatest time the time of a row may be; a number for a column of whole numbers.

    Raises:
        SchemaError: the column does not exist or has another type, or the delay does not fit it.

    >>> from objectspace import VolatileObjectSpace
    >>> from objectspace.relational import Column
    >>> schema = TableSchema([Column("at", "int64"), Column("id", "int64")], primary_key=["id"])
    >>> late = WatermarkFilter(schema, "at", delay=5)
    >>> late.open(VolatileObjectSpace(), "late")
    >>> _ = late.process(Chunk.from_rows(schema, [("+", (20, 1))])); _ = late.barrier(epoch=1)
    >>> late.watermarks(), late.process(Chunk.from_rows(schema, [("+", (14, 2)), ("+", (15, 3))]))[0].rows()
    ([('at', 15)], [('+', (15, 3))])
    """

    def __init__(self, schema: TableSchema, column: str, delay: timedelta | int) -> None:
        super().__init__()
        kind = schema.column(column).type
        wanted: type = timedelta if kind.kind in TIMES else int
        if kind.kind not in (*TIMES, *INTEGERS):
            raise SchemaError(f"watermarks are of {', '.join((*TIMES, *INTEGERS))}: {column!r} is {kind}")
        if not isinstance(delay, wanted) or isinstance(delay, bool) or delay < wanted(0):
            raise SchemaError(f"the delay of {column!r} ({kind}) is a {wanted.__name__} from 0 on: found {delay!r}")
        self.input, self.column, self.delay, self.late_rows = schema, column, delay, 0
        self._place, self._check = schema.place_of(column), checker(kind)
        self._greatest: Any = None
        self._seen: Any = None
        columns = [Column(one.name, one.type, one.nullable, one.default) for one in schema.columns]
        self._output = TableSchema(columns, list(schema.primary_key), watermark_column=column)
        self._kept = TableSchema([Column("greatest", kind)])

    @property
    def schema(self) -> TableSchema:
        """The schema of the output: that of the input, with the watermark column."""
        return self._output

    def state(self) -> list[tuple[str, TableSchema]]:
        """Return the table that holds the greatest time."""
        return [("WatermarkFilter", self._kept)]

    def open(self, space: Any, name: str) -> None:
        """Create its state under a name, or open it again after recovery."""
        super().open(space, name)
        self._table = self._tables["WatermarkFilter"]
        self._forget()

    @property
    def current(self) -> Any:
        """The watermark; ``None`` before the first barrier with a time, or if its type holds no value so early."""
        if self._greatest is None:
            return None
        try:
            return self._check(self._greatest - self.delay)
        except (BadValue, OverflowError):
            return None

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Return the changes that are not too late. Time: O(rows)."""
        self._check_open()
        check_chunk(self.input, chunk)
        watermark = self.current
        for _, row in chunk.rows():
            moment = row[self._place]
            if moment is not None and (self._seen is None or moment > self._seen):
                self._seen = moment
        found = paired(
            self._output, ((self._in_time(old, watermark), self._in_time(new, watermark)) for old, new in halves(chunk))
        )
        return [found] if len(found) else []

    def watermark(self, column: str, value: Any, side: str = "input") -> list[Watermark]:
        """Pass on a watermark of another column."""
        return [] if column == self.column else [(column, value)]

    def watermarks(self) -> list[Watermark]:
        """Return the watermark."""
        watermark = self.current
        return [] if watermark is None else [(self.column, watermark)]

    def _flush(self) -> list[Chunk]:
        if self._seen != self._greatest:
            self._greatest = self._seen
            self._table.insert_row((self._greatest,))
        return []

    def _forget(self) -> None:
        """Go back to the stored time."""
        row = self._only_row("WatermarkFilter")
        self._greatest = self._seen = None if row is None else row[0]

    def _in_time(self, change: Change | None, watermark: Any) -> Change | None:
        if change is None:
            return None
        moment = change[1][self._place]
        if watermark is None or moment is None or moment >= watermark:
            return change
        self.late_rows += 1
        return None
