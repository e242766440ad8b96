"""IntervalJoin: the join of rows near in time, which forgets what, by the watermarks, nothing can match any more."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from objectspace.operators.base import Watermark
from objectspace.operators.hash_join import Condition, HashJoin, JoinKind, opposite
from objectspace.operators.join_side import Entry, JoinSide
from objectspace.relational import Chunk, Column, SchemaError, StateTable, TableSchema
from objectspace.relational.checks import checked_watermark
from objectspace.relational.schema import Row
from objectspace.relational.values import BadValue, checker

_TIME_TYPES = frozenset(["int16", "int32", "int64", "timestamp", "timestamptz"])
"""The types that a time column can have."""

LONGEST = timedelta(days=999_999_999)
"""The longest span of time whose negative is a span too."""

_Span = tuple[Any, Any]
"""From one time to another, both included; ``None`` is no bound."""


class IntervalSide(JoinSide):
    """The rows of one input in the order of their times, read from the table and held for at most one chunk.

    Args:
        schema: the schema of the input.
        join_key: the columns that are compared with those of the other side.
        null_safe: for each of them, whether NULL equals NULL.
        counts: whether degrees are kept.
        time: the time column.
        opposite_place: where a row of the other side has its time.
        reach: how much earlier and how much later than a row of the other side its matches may be, ``None`` for any
            time.
    """

    def __init__(
        self,
        schema: TableSchema,
        join_key: Sequence[str],
        null_safe: Sequence[bool],
        *,
        counts: bool,
        time: str,
        opposite_place: int,
        reach: tuple[Any, Any],
    ) -> None:
        super().__init__(schema, join_key, null_safe, counts=counts, cache_keys=1, ordered_by=[time])
        key = [name for name, _ in self.state_schema.primary_key]
        names = list(dict.fromkeys([time, *key]))
        columns = [Column(column.name, column.type, column.nullable) for column in map(schema.column, names)]
        self._times_schema = TableSchema(columns, names)
        self._times_places = [schema.place_of(name) for name in names]
        self._key_places = [names.index(name) for name in key]
        self._times: StateTable | None = None
        self._due: Any = None
        self._near: dict[Any, tuple[list[Any], list[Entry]]] = {}
        self._time_place, self._opposite_place, self._reach = schema.place_of(time), opposite_place, reach
        self._check = checker(schema.column(time).type)

    def state(self) -> dict[str, TableSchema]:
        """Return the schemas of its tables; the keys in the order of time are among them if rows can be forgotten."""
        times = {} if self._reach[0] is None else {"_times": self._times_schema}
        return super().state() | times

    def open(self, tables: Mapping[str, StateTable]) -> None:
        """Use the tables of :meth:`state`."""
        super().open(tables)
        self._times = tables.get("_times")

    def forget(self) -> None:
        """Drop what is in memory."""
        super().forget()
        self._due = None
        self._near.clear()

    def key_of(self, row: Row) -> Row | None:
        """Return the join key of a row, or ``None`` if a NULL in it, or in the time, matches nothing."""
        return None if row[self._time_place] is None else super().key_of(row)

    def hold_near(self, keys: Sequence[Row | None], opposites: Sequence[Row]) -> None:
        """Read the rows that are near rows of the other side, and hold them in memory until :meth:`settle`.

        Args:
            keys: the join keys of the rows of the other side, ``None`` for rows that match nothing.
            opposites: these rows.

        Time: O(log n) per row that is far from others of its key, and O(rows read).
        """
        spans: dict[Any, tuple[Row, list[_Span]]] = {}
        for key, row in zip(keys, opposites, strict=True):
            span = None if key is None else self._bounds(row[self._opposite_place])
            if key is not None and span is not None:
                spans.setdefault(self._known(key), (key, []))[1].append(span)
        wanted = [(known, key, span) for known, (key, several) in spans.items() for span in _merged(several)]
        found = self._read_near([key for _, key, _ in wanted], [span for _, _, span in wanted])
        for (known, _, _), entries in zip(wanted, found, strict=True):
            times, near = self._near.setdefault(known, ([], []))
            times += [entry.row[self._time_place] for entry in entries]
            near += entries

    def _read_near(self, keys: Sequence[Row], spans: Sequence[_Span]) -> list[list[Entry]]:
        """Return the rows of join keys from one time to another."""
        bounds = [((low,) if low is not None else None, (high,) if high is not None else None) for low, high in spans]
        rows = self._rows.scan_all(keys, bounds)
        if self._degrees is None:
            return [list(map(Entry, several)) for several in rows]
        degrees = self._degrees.scan_all(keys, bounds)
        return [
            [Entry(row, degree[-1]) for row, degree in zip(*both, strict=True)]
            for both in zip(rows, degrees, strict=True)
        ]

    def candidates(self, key: Row, opposite: Row) -> Sequence[Entry]:
        """Return the rows of a join key that are near a row of the other side and are held."""
        bounds, near = self._bounds(opposite[self._opposite_place]), self._near.get(self._known(key))
        if bounds is None or near is None:
            return ()
        low, high = bounds
        times, entries = near
        start = 0 if low is None else bisect_left(times, low)
        return entries[start : None if high is None else bisect_right(times, high)]

    def insert(self, key: Row, row: Row, degree: int) -> None:
        """Note that a row came. Time: O(1). Dirties: its slot, that of its time, and that of its degree."""
        self._note(True, Entry(row, degree))

    def remove(self, key: Row, row: Row, degree: int) -> None:
        """Note that a row went. Time: O(1). Dirties: its slot, that of its time, and that of its degree."""
        self._note(False, Entry(row, degree))

    def settle(self) -> None:
        """Write what was noted, and release the rows that were held.

        Time: O(log n) per row. Dirties: see :meth:`insert`, and one slot per degree that changed.
        """
        if self._times is not None:
            self._times.write_rows([(comes, self._times_row(row)) for comes, row in self._pending])
        super().settle()
        self._near.clear()

    def met_from(self, watermark: Any) -> Any:
        """Note that no more rows of the other side with a time below a watermark will come.

        Returns:
            the least time that may still be matched, or ``None`` if all may.
        """
        bounds = self._bounds(watermark)
        if bounds is not None and bounds[0] is not None:
            self._due = bounds[0]
        return self._due

    def clean(self) -> None:
        """Remove the rows that can never be matched again. Time: O(rows removed · log n). Dirties: their slots."""
        if self._times is None or self._due is None:
            return
        entries = list(self._times.scan(upper=(self._due,), inclusive=(True, False)))
        keys = [tuple([entry[place] for place in self._key_places]) for entry in entries]
        for row in self._rows.get_rows(keys):
            if row is not None:
                self._note(False, Entry(row))
        self.settle()

    def _times_row(self, row: Row) -> Row:
        return tuple([row[place] for place in self._times_places])

    def _bounds(self, time: Any) -> _Span | None:
        """Return from when to when rows match one with this time, or ``None`` if the type has no such times."""
        found: list[Any] = []
        for by, is_low in zip(self._reach, (True, False), strict=True):
            try:
                found.append(None if by is None else self._check(time + by))
            except (BadValue, OverflowError):
                is_late = by > -by
                if is_late == is_low:
                    return None
                found.append(None)
        return found[0], found[1]


class IntervalJoin(HashJoin):
    """The join of two streams by equal keys and by times that are near each other.

    A left row matches a right row if ``right time + lower <= left time <= right time + upper``. A watermark of one side
    says that no later row of that side has a lower time, and none with a lower time is retracted; the rows of the other
    side that only earlier rows could match are then removed from the state at the next barrier. The output is the same
    as without watermarks.

    State: that of :class:`HashJoin`, with the tables ordered by join key, time and stream key, and nothing of it in
    memory; and for a side whose rows can be forgotten, their keys in the order of time. An event dirties the slot of
    its row, that of its time, and the slot of the degree of each match on a side that has degrees.

    Args:
        left_schema: the schema of the left input; its primary key is the stream key.
        right_schema: the schema of the right input.
        left_key: the columns of the left side that are compared.
        right_key: the corresponding columns of the right side, as many.
        left_time: the time column of the left side: whole numbers or timestamps.
        right_time: the time column of the right side, of the same type.
        lower: the least value of left time minus right time: a number or a ``timedelta``; ``None`` for no bound.
        upper: the greatest value.
        kind: as for :class:`HashJoin`.
        null_safe: as for :class:`HashJoin`; a NULL time matches nothing.
        condition: a further condition for a match.
        in_left: as for :class:`HashJoin`.

    Raises:
        SchemaError: a column does not exist, the times have other types, or the interval is not valid.

    Source: the interval joins of Flink and RisingWave.

    >>> from objectspace import VolatileObjectSpace
    >>> ads = TableSchema([Column("ad", "string"), Column("shown", "int64")], ["ad", "shown"])
    >>> clicks = TableSchema([Column("of", "string"), Column("at", "int64")], ["of", "at"])
    >>> join = IntervalJoin(ads, clicks, ["ad"], ["of"], "shown", "at", lower=-10, upper=0)
    >>> join.open(VolatileObjectSpace(), "join")
    >>> join.process(Chunk.from_rows(ads, [("+", ("tea", 5)), ("+", ("tea", 30))]), side="left")
    []
    >>> join.process(Chunk.from_rows(clicks, [("+", ("tea", 12))]), side="right")[0].rows()
    [('+', ('tea', 5, 'tea', 12))]
    >>> join.watermark("at", 20, side="right"), join.barrier(1)     # no click before 20: no ad before 10 is kept
    ([], [])
    """

    def __init__(
        self,
        left_schema: TableSchema,
        right_schema: TableSchema,
        left_key: Sequence[str],
        right_key: Sequence[str],
        left_time: str,
        right_time: str,
        lower: Any = None,
        upper: Any = None,
        kind: JoinKind = "inner",
        null_safe: bool | Sequence[bool] | None = None,
        condition: Condition | None = None,
        *,
        in_left: str | None = None,
    ) -> None:
        self._times = {"left": left_time, "right": right_time}
        self._time_places = {"left": left_schema.place_of(left_time), "right": right_schema.place_of(right_time)}
        kinds = [schema.column(self._times[side]).type for side, schema in _both(left_schema, right_schema)]
        _check_interval(str(kinds[0]), str(kinds[1]), lower, upper)
        self._reaches = {
            "left": (lower, upper),
            "right": (None if upper is None else -upper, None if lower is None else -lower),
        }
        super().__init__(left_schema, right_schema, left_key, right_key, kind, null_safe, condition, in_left=in_left)

    _takes_short_way = False

    def watermark(self, column: str, value: Any, side: str = "left") -> list[Watermark]:
        """Accept a watermark of the times of one side, and return what follows for the times of the output.

        Raises:
            RowError: it is not a value of the column.

        Time: O(1). Dirties: at the next barrier the slots of the rows that are removed.
        """
        self._check_side(side)
        if column != self._times[side] or value is None:
            return []
        held = self._note_watermark(side, checked_watermark(self._sides[side].schema.column(column), value))
        met = self._interval_side(opposite(side)).met_from(held)
        self._met[opposite(side)] = met
        return [found for one in self.sides for found in self._output_watermark(one)]

    def open(self, space: Any, name: str) -> None:
        """Create its tables, or open them again."""
        self._met: dict[str, Any] = {}
        super().open(space, name)

    def _forget(self) -> None:
        """Drop what is in memory."""
        super()._forget()
        self._met.clear()

    def _hold(self, side: str, arrived: Sequence[Row]) -> None:
        """Hold in memory what may match some rows of a side."""
        self._interval_side(opposite(side)).hold_near(list(map(self._sides[side].key_of, arrived)), arrived)

    def _flush(self) -> list[Chunk]:
        for side in self.sides:
            self._interval_side(side).clean()
        return []

    def _output_watermark(self, side: str) -> list[Watermark]:
        """Return the least time of a side that a later output row may have, if it is known."""
        name, own, met = self._output_name(side, self._times[side]), self._watermarks.get(side), self._met.get(side)
        return [] if name is None or own is None or met is None else [(name, min(own, met))]

    def _watermark_column_of(self, side: str) -> str | None:
        """Return the time column of a side in the output, if watermarks bound it."""
        return None if self._reaches[side][0] is None else self._output_name(side, self._times[side])

    def _interval_side(self, side: str) -> IntervalSide:
        found = self._sides[side]
        assert isinstance(found, IntervalSide)
        return found

    def _side(self, side: str, schema: TableSchema, key: list[str], null_safe: list[bool]) -> JoinSide:
        return IntervalSide(
            schema,
            key,
            null_safe,
            counts=self._is_counted(side),
            time=self._times[side],
            opposite_place=self._time_places[opposite(side)],
            reach=self._reaches[side],
        )


def _merged(spans: Iterable[_Span]) -> list[_Span]:
    """Return spans that do not overlap and together cover the same times, in order."""
    found: list[_Span] = []
    for low, high in sorted(spans, key=lambda span: (span[0] is not None, span[0])):
        last = found[-1] if found else None
        if last is not None and (low is None or last[1] is None or low <= last[1]):
            found[-1] = last[0], None if last[1] is None or high is None else max(last[1], high)
        else:
            found.append((low, high))
    return found


def _both(left: TableSchema, right: TableSchema) -> list[tuple[str, TableSchema]]:
    return [("left", left), ("right", right)]


def check_reach(name: str, by: Any) -> None:
    """Refuse a span of time that is too long to look equally far in the other direction.

    Raises:
        SchemaError: it is too long.
    """
    if isinstance(by, timedelta) and by > LONGEST:
        raise SchemaError(f"{name} is {by!r}: at most {LONGEST.days:,} days, or None for any time")


def _check_interval(left: str, right: str, lower: Any, upper: Any) -> None:
    if left != right or left not in _TIME_TYPES:
        raise SchemaError(f"the times are {left} and {right}: expected one type of {', '.join(sorted(_TIME_TYPES))}")
    expected = timedelta if left.startswith("timestamp") else int
    for name, by in (("lower, the least of within=,", lower), ("upper, the greatest of within=,", upper)):
        if by is not None and (not isinstance(by, expected) or isinstance(by, bool)):
            raise SchemaError(f"{name} is {by!r}: between times of {left} it is a {expected.__name__}")
        check_reach(name, by)
    if lower is not None and upper is not None and lower > upper:
        raise SchemaError(f"the interval from {lower!r} to {upper!r} is empty: the first must be <= the second")
