"""Tumble and Hop: the time windows that a row belongs to, as two additional columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from objectspace.operators.base import Operator, Watermark
from objectspace.operators.chunks import Change, check_chunk, halves, paired
from objectspace.relational import Chunk, Column, RowError, SchemaError, TableSchema
from objectspace.relational.checks import checked_watermark
from objectspace.relational.schema import Row
from objectspace.relational.types import INTEGERS
from objectspace.relational.values import BadValue, checker

Span = timedelta | int
"""A length of time; for a column of whole numbers, a number."""

_Spans = dict[Any, list[tuple[Any, Any]]]
"""The starts and ends of the windows that a time lies in, by the start of the last window."""

_ORIGINS: dict[str, Any] = {
    "timestamp": datetime(1970, 1, 1),
    "timestamptz": datetime(1970, 1, 1, tzinfo=UTC),
    "date": date(1970, 1, 1),
    **dict.fromkeys(INTEGERS, 0),
}
"""The origin from which windows of each type are counted."""


class Hop(Operator):
    """Outputs each row once for every window that it lies in, with the start and the end of the window.

    A window begins at each multiple of ``slide`` from the origin, and holds the times from its start up to but not
    including its end. A row without a time lies in no window.

    Args:
        schema: the schema of the input.
        time_column: the name of the time column: ``timestamp``, ``timestamptz``, ``date`` or whole numbers.
        size: the length of a window.
        slide: the distance from the start of one window to that of the next; a divisor of the size.
        origin: where windows are counted from; 1970-01-01 or 0 by default.
        start, end: the names of the columns of the window. The stream key of the output is that of the input plus the
            start, unless each row lies in one window.

    Raises:
        SchemaError: the column does not exist or has another type, or the spans do not fit it.

    >>> from objectspace.relational import Column
    >>> schema = TableSchema([Column("at", "int64"), Column("id", "int64")], primary_key=["id"])
    >>> hop = Hop(schema, "at", size=10, slide=5)
    >>> hop.process(Chunk.from_rows(schema, [("+", (12, 1))]))[0].rows()
    [('+', (12, 1, 5, 15)), ('+', (12, 1, 10, 20))]
    >>> hop.watermark("at", 12)
    [('at', 12), ('window_start', 5), ('window_end', 15)]
    """

    def __init__(
        self,
        schema: TableSchema,
        time_column: str,
        size: Span,
        slide: Span,
        *,
        origin: Any = None,
        start: str = "window_start",
        end: str = "window_end",
    ) -> None:
        super().__init__()
        self.input, self.time_column, self.size, self.slide = schema, time_column, size, slide
        column = schema.column(time_column)
        _check_spans(column, size, slide)
        self.start, self._names = start, (start, end)
        self._origin = _ORIGINS[column.type.kind] if origin is None else _checked_origin(column, origin)
        self._place, self._kind = schema.place_of(time_column), column.type.kind
        columns = [Column(one.name, one.type, one.nullable, one.default) for one in schema.columns]
        columns += [Column(name, column.type) for name in self._names]
        key: list[Any] = [*schema.primary_key, *([] if slide == size else [start])]
        self._output = TableSchema(columns, key, watermark_column=start if _leads(schema, time_column) else None)

    @property
    def schema(self) -> TableSchema:
        """The schema of the output: that of the input with the two columns of the window."""
        return self._output

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Return the changes in their windows. Time: O(rows · size / slide).

        Raises:
            RowError: a row does not fit the schema, or a window begins before the range of its column's type, or ends
                after it.
        """
        check_chunk(self.input, chunk)
        # In their one form, in which the instants of the hour that occurs twice a year follow each other.
        chunk = Chunk(self.input, chunk.ops, self.input.check_rows(chunk.values))
        spans: _Spans = {}
        if set(chunk.ops) <= {"+"}:
            rows = [(*row, *span) for row in chunk.values for span in self._spans_of(row, spans)]
            found = Chunk(self._output, ["+"] * len(rows), rows)
        else:
            found = paired(self._output, self._pairs(chunk, spans))
        return [found] if len(found) else []

    def _pairs(self, chunk: Chunk, spans: _Spans) -> Iterator[tuple[Change | None, Change | None]]:
        """Yield the changes in each window: the old row and the new row that lie in it."""
        for halved in halves(chunk):
            before, after = (
                {}
                if half is None
                else {span[0]: (half[0], (*half[1], *span)) for span in self._spans_of(half[1], spans)}
                for half in halved
            )
            for start in dict.fromkeys([*before, *after]):
                yield before.get(start), after.get(start)

    def watermark(self, column: str, value: Any, side: str = "input") -> list[Watermark]:
        """Pass on a watermark, with one for the windows: none before the first one that it lies in gets more rows.

        Raises:
            RowError: it is not a value of the column.
        """
        value = checked_watermark(self.input.column(column), value)
        if column != self.time_column:
            return [(column, value)]
        try:
            first = self._starts(value)[0]
            bounds = zip(map(self._output.column, self._names), (first, first + self.size), strict=True)
            return [(column, value), *((found.name, checked_watermark(found, bound)) for found, bound in bounds)]
        except (OverflowError, RowError):  # The first window begins before the least value, so no watermark is needed.
            return [(column, value)]

    def _spans_of(self, row: Row, known: _Spans) -> Sequence[tuple[Any, Any]]:
        """Return the windows of a row, as pairs of start and end in order, and note them as known."""
        moment = row[self._place]
        if moment is None:
            return ()
        try:
            last = moment - (moment - self._origin) % self.slide
            if last not in known:
                found = [(start, start + self.size) for start in self._starts(moment)]
                self._output.check_rows([(*row, *span) for span in found])
                known[last] = found
        except OverflowError:
            raise RowError(f"the window of {moment!r} begins or ends beyond what a {self._kind} holds") from None
        return known[last]

    def _starts(self, moment: Any) -> list[Any]:
        """Return the starts of the windows that a time lies in, in order."""
        last = moment - (moment - self._origin) % self.slide
        return [last - number * self.slide for number in range(self._windows() - 1, -1, -1)]

    def _windows(self) -> int:
        size: Any = self.size
        return int(size // self.slide)


class Tumble(Hop):
    """Adds to each row the start and the end of the one window that it lies in.

    Args:
        schema: the schema of the input.
        time_column: the name of the time column.
        size: the length of a window; the next one begins where it ends.
        origin: where windows are counted from; 1970-01-01 or 0 by default.
        start, end: the names of the columns of the window. The stream key stays as it is.

    >>> from objectspace.relational import Column
    >>> schema = TableSchema([Column("at", "timestamp"), Column("id", "int64")], primary_key=["id"])
    >>> tumble = Tumble(schema, "at", timedelta(minutes=5))
    >>> op, row = tumble.process(Chunk.from_rows(schema, [("+", (datetime(2026, 1, 1, 12, 7), 1))]))[0].rows()[0]
    >>> row[2].isoformat(), row[3].isoformat()
    ('2026-01-01T12:05:00', '2026-01-01T12:10:00')
    """

    def __init__(
        self,
        schema: TableSchema,
        time_column: str,
        size: Span,
        *,
        origin: Any = None,
        start: str = "window_start",
        end: str = "window_end",
    ) -> None:
        super().__init__(schema, time_column, size, size, origin=origin, start=start, end=end)


def check_span(column: Column, name: str, span: Span) -> None:
    """Refuse a length of time that does not fit a time column.

    Raises:
        SchemaError: it does not fit, or the column has another type.
    """
    if column.type.kind not in _ORIGINS:
        raise SchemaError(f"windows are over one of {', '.join(_ORIGINS)}: {column.name!r} is {column.type}")
    is_number = column.type.kind in INTEGERS
    zero: Any = 0 if is_number else timedelta(0)
    wanted: type = int if is_number else timedelta
    if not isinstance(span, wanted) or isinstance(span, bool) or span <= zero:
        raise SchemaError(f"the {name} over {column} is a positive {wanted.__name__}: found {span!r}")
    if column.type.kind == "date" and span % timedelta(days=1):  # type: ignore[operator]
        raise SchemaError(f"the {name} over {column} is whole days: found {span!r}")


def _check_spans(column: Column, size: Span, slide: Span) -> None:
    check_span(column, "size of a window", size)
    check_span(column, "slide of a window", slide)
    if size % slide:  # type: ignore[operator]
        raise SchemaError(f"the size of a window is a multiple of its slide: found {size!r} and {slide!r}")


def _checked_origin(column: Column, origin: Any) -> Any:
    try:
        return checker(column.type)(origin)
    except BadValue as error:
        raise SchemaError(f"the origin of windows over {column} is one of its values: {error}") from None


def _leads(schema: TableSchema, time_column: str) -> bool:
    return schema.watermark_column == time_column
