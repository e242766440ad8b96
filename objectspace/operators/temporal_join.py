"""TemporalJoin: each row with the version that was valid at its time, once watermarks say that this is known."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from typing import Any, ClassVar, Literal, get_args

from objectspace.operators.base import Operator, Watermark, column_names
from objectspace.operators.chunks import Change, taken
from objectspace.operators.hash_join import checked_keys, joined_schema
from objectspace.operators.net import net_changes
from objectspace.relational import Chunk, Column, Order, SchemaError, TableSchema
from objectspace.relational.bulk import keys_encoder
from objectspace.relational.checks import checked_watermark
from objectspace.relational.chunk import is_insert
from objectspace.relational.schema import Row
from objectspace.relational.watermarks import is_below
from objectspace.space import ObjectSpace

TemporalKind = Literal["inner", "left_outer"]

KINDS: tuple[TemporalKind, ...] = get_args(TemporalKind)


class TemporalJoin(Operator):
    """The join of each left row with the last right row of its key that is not later.

    The right side is a history of versions: a row is valid from its time until that of the next row with its key; of
    several rows with one time, the one with the greatest stream key counts. Its stream key should contain the time: a
    row that is retracted was never valid.

    Left rows wait until, by the watermarks of both sides, nothing earlier will come. At the next barrier they are
    emitted, once and for all, in the order of their times, and versions that no later row can ask for are removed. Rows
    that come although they are below the watermarks of both sides are dropped, and counted in ``late_rows``. A left row
    with a NULL in its key or time matches nothing, and is emitted at once if the kind keeps it.

    State: the left rows that wait, ordered by time and stream key; the versions of the right side, ordered by key, time
    and stream key; and the keys of the versions that have yet to become valid, ordered by time. An event dirties one
    slot on the left and two on the right.

    Args:
        left_schema: the schema of the left input; its primary key is the stream key, also of the output.
        right_schema: the schema of the right input.
        left_key: the columns of the left side that are compared.
        right_key: the corresponding columns of the right side, as many.
        left_time: the time column of the left side.
        right_time: the time column of the right side, of the same type.
        kind: ``inner``, or ``left_outer`` to keep rows without a version too.

    Raises:
        SchemaError: a column does not exist, or the types or the number of the columns differ.

    Source: Flink's event-time temporal join; SQL's ASOF JOIN.

    >>> from objectspace import VolatileObjectSpace
    >>> orders = TableSchema([Column("n", "int64"), Column("item", "string"), Column("at", "int64")], ["n"])
    >>> prices = TableSchema([Column("of", "string"), Column("since", "int64"), Column("p", "int64")], ["of", "since"])
    >>> join = TemporalJoin(orders, prices, ["item"], ["of"], "at", "since")
    >>> join.open(VolatileObjectSpace(), "join")
    >>> _ = join.process(Chunk.from_rows(prices, [("+", ("tea", 10, 3)), ("+", ("tea", 20, 4))]), side="right")
    >>> _ = join.process(Chunk.from_rows(orders, [("+", (1, "tea", 19)), ("+", (2, "tea", 31))]), side="left")
    >>> _ = join.watermark("at", 30, side="left"); _ = join.watermark("since", 35, side="right")
    >>> join.barrier(1)[0].rows()
    [('+', (1, 'tea', 19, 'tea', 10, 3))]
    >>> join.watermarks()
    [('at', 30)]
    """

    sides: ClassVar[tuple[str, ...]] = ("left", "right")

    def __init__(
        self,
        left_schema: TableSchema,
        right_schema: TableSchema,
        left_key: Sequence[str],
        right_key: Sequence[str],
        left_time: str,
        right_time: str,
        kind: TemporalKind = "inner",
    ) -> None:
        super().__init__()
        if kind not in KINDS:
            raise SchemaError(f"there is no temporal join of kind {kind!r}: expected one of {', '.join(KINDS)}")
        # The times are compared as well, so they must have one type too.
        left_key, right_key = column_names(left_key), column_names(right_key)
        checked_keys((left_schema, right_schema), ([*left_key, left_time], [*right_key, right_time]), None)
        self.kind, self._schemas = kind, {"left": left_schema, "right": right_schema}
        self._keys = {"left": left_key, "right": right_key}
        self._times = {"left": left_time, "right": right_time}
        self._places = {
            side: [schema.place_of(name) for name in (*self._keys[side], self._times[side])]
            for side, schema in self._schemas.items()
        }
        joined = joined_schema(left_schema, right_schema, {"left": kind == "left_outer", "right": False})
        self._output = TableSchema(joined.columns, left_schema.primary_key, watermark_column=left_time)
        self._nulls: Row = (None,) * len(right_schema.columns)
        kinds = [right_schema.column(name).type for name in right_key]
        self._encode_keys = keys_encoder(kinds, [Order()] * len(kinds))
        self._encode_times = keys_encoder([right_schema.column(right_time).type], [Order()])
        self._watermarks: dict[str, Any] = {}
        self._late = 0

    @property
    def schema(self) -> TableSchema:
        """The schema of its output; the stream key is that of the left side."""
        return self._output

    @property
    def late_rows(self) -> int:
        """How many rows have come below the watermarks of both sides since it was opened."""
        return self._late

    def state(self) -> list[tuple[str, TableSchema]]:
        """Return the schemas of the rows that wait, of the versions, and of the keys of versions to come."""
        left, right = self._schemas["left"], self._schemas["right"]
        waiting = TableSchema(left.columns, _key(left, [self._times["left"]]), watermark_column=self._times["left"])
        versions = TableSchema(right.columns, _key(right, [*self._keys["right"], self._times["right"]]))
        names = _key(right, [self._times["right"], *self._keys["right"]])
        coming = [right.column(name) for name in dict.fromkeys(names)]
        columns = [Column(column.name, column.type, column.nullable) for column in coming]
        return [
            ("waiting", waiting),
            ("versions", versions),
            ("coming", TableSchema(columns, names, watermark_column=self._times["right"])),
        ]

    def open(self, space: ObjectSpace, name: str) -> None:
        """Create its tables, or open them again."""
        super().open(space, name)
        self._forget()

    def process(self, chunk: Chunk, side: str = "left") -> list[Chunk]:
        """Take changes of one side, and return what need not wait: left rows that can match nothing.

        Raises:
            ValueError: there is no such side.
            SchemaMismatchError: the chunk has other columns.

        Time: O(rows · log n). Dirties: one slot per row on the left, two on the right.
        """
        self._check_side(side)
        watermark, places = self._tables["waiting"].watermark, self._places[side]
        out: list[Change] = []
        found: list[Change] = []
        for op, row in net_changes(taken(self._schemas[side], chunk)):
            if any(row[place] is None for place in places):
                out.append((op, row))
            elif watermark is not None and is_below(row[places[-1]], watermark):
                self._late += 1
            else:
                found.append((op, row))
        self._write(side, found)
        if side == "right" or self.kind == "inner" or not out:
            return []
        return [Chunk(self.schema, [op for op, _ in out], [row + self._nulls for _, row in out])]

    def watermark(self, column: str, value: Any, side: str = "left") -> list[Watermark]:
        """Accept a watermark of the times of one side; what follows for the output is known after the barrier.

        Raises:
            RowError: it is not a value of the column.

        Time: O(1).
        """
        self._check_side(side)
        if column == self._times[side] and value is not None:
            value = checked_watermark(self._schemas[side].column(column), value)
            self._watermarks[side] = max(value, self._watermarks.get(side, value))
        return []

    def watermarks(self) -> list[Watermark]:
        """Return the watermark for the times of the output that the last barrier made."""
        watermark = self._tables["waiting"].watermark
        return [] if watermark is None else [(self._times["left"], watermark)]

    def _flush(self) -> list[Chunk]:
        """Emit the rows that the watermarks of both sides have passed, and forget what only they could ask for."""
        if len(self._watermarks) < 2:
            return []
        due, waiting, coming = min(self._watermarks.values()), self._tables["waiting"], self._tables["coming"]
        rows = self._joined(list(waiting.scan(upper=(due,), inclusive=(True, False))))
        self._retire(list(coming.scan(upper=(due,), inclusive=(True, False))))
        waiting.update_watermark(due)
        coming.update_watermark(due)
        return [Chunk(self.schema, ["+"] * len(rows), rows)] if rows else []

    def _joined(self, arrived: Sequence[Row]) -> list[Row]:
        """Return left rows, given in the order of their times, with their versions; rows without one only if kept."""
        *places, at = self._places["left"]
        keys = self._encoded_keys(arrived, places)
        last = dict(zip(keys, arrived))
        prefixes = [[row[place] for place in places] for row in last.values()]
        found = self._tables["versions"].scan_all(prefixes, [(None, (row[at],)) for row in last.values()])
        versions = dict(zip(last, zip(found, self._times_of(found))))
        out = []
        for key, row, time in zip(keys, arrived, self._encode_times([[row[at] for row in arrived]])):
            rows, times = versions[key]
            place = bisect_right(times, time)
            if place or self.kind == "left_outer":
                out.append(row + (rows[place - 1] if place else self._nulls))
        return out

    def _encoded_keys(self, rows: Sequence[Row], places: Sequence[int]) -> list[bytes]:
        """Return what the join keys of rows, which are at some positions, are compared by."""
        return self._encode_keys([[row[place] for row in rows] for place in places]) if places else [b""] * len(rows)

    def _times_of(self, groups: Sequence[Sequence[Row]]) -> list[list[bytes]]:
        """Return the times of the versions of each key, in the form in which they are compared."""
        at = self._places["right"][-1]
        times = iter(self._encode_times([[row[at] for rows in groups for row in rows]]))
        return [list(islice(times, len(rows))) for rows in groups]

    def _retire(self, versions: Sequence[Row]) -> None:
        """Remove the versions before those that have become valid: no row will ask for the earlier ones any more."""
        table, schema = self._tables["versions"], self._tables["coming"].schema
        places = [schema.place_of(name) for name, _ in table.schema.primary_key]
        width = len(self._keys["right"])
        keys = self._encoded_keys(versions, places[:width])
        # Those of one key come in the order of their times, so the last one stays.
        last = dict(zip(keys, (tuple([row[place] for place in places]) for row in versions)))
        found = table.scan_all([key[:width] for key in last.values()], [(None, key[width:]) for key in last.values()])
        rows = [row for group in found for row in group]
        in_force = set(map(table.schema.key_encoder.encode, last.values()))
        table.write_rows(
            [(False, row) for key, row in zip(table.schema.encode_keys(rows), rows) if key not in in_force]
        )

    def _write(self, side: str, changes: Sequence[Change]) -> None:
        """Write changes of a side to its tables."""
        names = ("waiting",) if side == "left" else ("versions", "coming")
        schema = self._schemas[side]
        for table in map(self._tables.__getitem__, names):
            places = [schema.place_of(name) for name in table.schema.names]
            table.write_rows([(is_insert(op), tuple([row[place] for place in places])) for op, row in changes])

    def _forget(self) -> None:
        """Drop the watermarks that came since the last barrier."""
        self._watermarks.clear()


def _key(schema: TableSchema, leading: list[str]) -> list[str]:
    """Return the leading columns, then the rest of the stream key."""
    return [*leading, *(name for name, _ in schema.primary_key if name not in leading)]
