"""HashJoin: the join of two streams, correct under inserts, updates and deletes on both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Literal, get_args

from checkpoint.process import collecting_seldom
from objectspace.operators.base import Operator, Watermark, check_number, column_names
from objectspace.operators.bound import ExpressionError, reader
from objectspace.operators.chunks import taken
from objectspace.operators.join_side import Entry, JoinSide
from objectspace.operators.net import net_changes
from objectspace.operators.predicates import COMPARISONS
from objectspace.operators.sql_rules import common_type, comparing
from objectspace.relational import Chunk, Column, RelationalError, SchemaError, TableSchema
from objectspace.relational.checks import checked_watermark
from objectspace.relational.chunk import Op, is_insert
from objectspace.relational.schema import Row
from objectspace.space import ObjectSpace

JoinKind = Literal[
    "inner", "left_outer", "right_outer", "full_outer", "left_semi", "left_anti", "right_semi", "right_anti"
]

KINDS: tuple[JoinKind, ...] = get_args(JoinKind)

Condition = tuple[str | int, str, str | int] | Callable[[Row], Any]
"""``("price", "<", "limit")`` over columns of the joined row, by name or position; or a function of the joined row."""

CACHE_KEYS = 100_000
"""The default number of join keys whose rows a side keeps in memory."""


class HashJoin(Operator):
    """The join of two streams by equal keys, with an optional further condition.

    The rows of a chunk count as a whole, whatever their order; across chunks, the changes of one stream key must come
    in order. Rows come out as they are found, split into deletes and inserts; neighbours that cancel each other are
    left out.

    The columns of an output row are those of the left side, then those of the right side, with ``_right`` appended to a
    name that both have; a semi or anti join gives only the rows of its main side. The stream key is that of both sides
    together. If all columns of the two keys may be NULL, it cannot tell a row of a full outer join that has no left
    side from one that has no right side: ``in_left`` adds a column to it that can.

    State: for each side a table of its rows, keyed by join key and stream key. If the rows of a side may come out
    without a match, or depend on there being one (the kept sides of outer joins, the main side of semi and anti joins),
    also a table of how many rows match each of them, its degree. An event dirties the slot of its row, and the slot of
    the degree of each match on a side that has degrees.

    A row is compared with each row of its join key on the other side, also those that the condition refuses. If the
    condition is about times, an :class:`IntervalJoin` reads only those that are near.

    Args:
        left_schema: the schema of the left input; its primary key is the stream key.
        right_schema: the schema of the right input.
        left_key: the columns of the left side that are compared.
        right_key: the corresponding columns of the right side, as many.
        kind: ``inner``, ``left_outer``, ``right_outer``, ``full_outer``, ``left_semi``, ``left_anti``, ``right_semi``
            or ``right_anti``.
        null_safe: whether NULL equals NULL: one value for all columns, or one for each; it does not by default.
        condition: a further condition for a match; NULL is not a match.
        in_left: the name of an additional column of a full outer join, which is the last one and part of the stream
            key: whether the row has a left side.
        watermarks: whether watermarks of the first key column clean the state.
        cache_keys: the number of join keys whose rows a side keeps in memory.

    Raises:
        SchemaError: the keys do not fit each other, or there is no such kind, column or comparison.

    Source: RisingWave's HashJoinExecutor.

    >>> from objectspace import VolatileObjectSpace
    >>> from objectspace.relational import Column
    >>> orders = TableSchema([Column("item", "string"), Column("n", "int64")], primary_key=["n"])
    >>> prices = TableSchema([Column("item", "string"), Column("price", "int64")], primary_key=["item"])
    >>> join = HashJoin(orders, prices, ["item"], ["item"], "left_outer")
    >>> join.open(VolatileObjectSpace(), "join")
    >>> join.process(Chunk.from_rows(orders, [("+", ("tea", 1))]), side="left")[0].rows()
    [('+', ('tea', 1, None, None))]
    >>> join.process(Chunk.from_rows(prices, [("+", ("tea", 5))]), side="right")[0].rows()
    [('-', ('tea', 1, None, None)), ('+', ('tea', 1, 'tea', 5))]
    """

    sides: ClassVar[tuple[str, ...]] = ("left", "right")
    _takes_short_way: ClassVar[bool] = True

    def __init__(
        self,
        left_schema: TableSchema,
        right_schema: TableSchema,
        left_key: Sequence[str],
        right_key: Sequence[str],
        kind: JoinKind = "inner",
        null_safe: bool | Sequence[bool] | None = None,
        condition: Condition | None = None,
        *,
        in_left: str | None = None,
        watermarks: bool = False,
        cache_keys: int = CACHE_KEYS,
    ) -> None:
        super().__init__()
        if kind not in KINDS:
            raise SchemaError(f"there is no join of kind {kind!r}: expected one of {', '.join(KINDS)}")
        check_number("cache_keys", cache_keys, 0)
        self.kind, self._keys = kind, (column_names(left_key), column_names(right_key))
        safe = checked_keys((left_schema, right_schema), self._keys, null_safe)
        self._main = None if kind in ("inner", "left_outer", "right_outer", "full_outer") else kind.partition("_")[0]
        self._is_anti = kind.endswith("anti")
        self._keeps = {"left": kind in ("left_outer", "full_outer"), "right": kind in ("right_outer", "full_outer")}
        self._has_watermarks, self._cache_keys = watermarks, cache_keys
        self._sides = {
            side: self._side(side, schema, key, safe)
            for side, schema, key in zip(self.sides, (left_schema, right_schema), self._keys, strict=True)
        }
        if in_left is not None and kind != "full_outer":
            raise SchemaError(f"in_left={in_left!r} is for full outer joins: found a join of kind {kind!r}")
        self._pair = self._plain_pair if in_left is None else self._marked_pair
        self._joined = joined_schema(left_schema, right_schema, self._keeps, in_left)
        self._output = self._with_watermark(self._joined if self._main is None else self._sides[self._main].schema)
        self._matches = _predicate(condition, self._joined)
        self._is_plain = kind == "inner" and condition is None and self._takes_short_way
        self._watermarks: dict[str, Any] = {}
        self._cleaned: Any = None

    @property
    def schema(self) -> TableSchema:
        """The schema of its output; its watermark column is the one whose watermarks are passed on."""
        return self._output

    @property
    def watermark_columns(self) -> tuple[str, ...]:
        """The columns of its output that it gives watermarks of, once both sides have some."""
        return tuple([name for name in map(self._watermark_column_of, self._ranked_sides()) if name is not None])

    def state(self) -> list[tuple[str, TableSchema]]:
        """Return the schemas of its tables: rows and degrees of the left side, then of the right side."""
        return [
            (f"{name}{what}", schema) for name, side in self._sides.items() for what, schema in side.state().items()
        ]

    def open(self, space: ObjectSpace, name: str) -> None:
        """Create its tables, or open them again."""
        super().open(space, name)
        for role, side in self._sides.items():
            side.open({what: self._tables[f"{role}{what}"] for what in side.state()})
        self._forget()

    @collecting_seldom()
    def process(self, chunk: Chunk, side: str = "left") -> list[Chunk]:
        """Take changes of one side, and return the changes of the join.

        Args:
            chunk: the changes.
            side: ``"left"`` or ``"right"``.

        Raises:
            ValueError: there is no such side.
            SchemaMismatchError: the chunk has other columns.
            ExpressionError: the condition is a function, and it failed; the chunk was not taken.

        Time: O(rows · (log n + rows of the join key)), however many of these the condition refuses.
        Dirties: one slot per row, and one per match whose degree changes.
        """
        self._check_side(side)
        changes = net_changes(taken(self._sides[side].schema, chunk))
        try:
            out = self._meet(side, changes) if self._is_plain else self._change(side, changes)
        except BaseException:
            # Nothing of the chunk is written yet: once its notes in memory are dropped, it was not taken.
            for one in self._sides.values():
                one.forget()
            raise
        for one in self._sides.values():
            one.settle()
        return [out] if len(out) else []

    def _meet(self, side: str, changes: list[tuple[Op, Row]]) -> Chunk:
        """Apply changes of an inner join without a condition, and return what they change: the fast path."""
        mine, other = self._sides[side], self._sides[opposite(side)]
        arrived = [row for _, row in changes]
        known = mine.known_of(arrived)
        held = other.hold(known, None if mine.is_simple else list(map(mine.key_of, arrived)))
        ops: list[Op] = []
        rows: list[Row] = []
        is_left = side == "left"
        for (op, row), found in zip(changes, map(held.get, known)):
            if found:
                rows += (
                    [row + match for match in found.values()] if is_left else [match + row for match in found.values()]
                )
                ops += [op] * len(found)
        mine.apply(changes, known)
        return Chunk(self.schema, ops, rows)

    def _change(self, side: str, changes: list[tuple[Op, Row]]) -> Chunk:
        """Apply changes one by one, and return what they change."""
        self._hold(side, [row for _, row in changes])
        change = self._change_main if self._main is not None else self._change_joined
        found = [entry for op, row in changes for entry in change(side, is_insert(op), row)]
        ops: list[Op] = ["+" if comes else "-" for comes, _ in found]
        return Chunk(self.schema, ops, [row for _, row in found]).without_noops()

    def _hold(self, side: str, arrived: Sequence[Row]) -> None:
        """Hold in memory what may match some rows of a side."""
        mine = self._sides[side]
        self._sides[opposite(side)].hold(mine.known_of(arrived), list(map(mine.key_of, arrived)))

    def watermark(self, column: str, value: Any, side: str = "left") -> list[Watermark]:
        """Accept a watermark of the first column of the join key; once both sides have one, the lesser one holds.

        Raises:
            RowError: it is not a value of the column.

        Time: O(join keys in memory). Dirties: one slot per table at the next barrier, and the rows that are cleaned.
        """
        self._check_side(side)
        key = self._keys[self.sides.index(side)]
        if not self._has_watermarks or not key or column != key[0] or value is None:
            return []
        self._note_watermark(side, checked_watermark(self._sides[side].schema.column(column), value))
        if len(self._watermarks) < 2:
            return []
        least = min(self._watermarks.values())
        if self._cleaned is None or least > self._cleaned:
            self._clean_below(least)
        names = [self._output_name(one, self._keys[place][0]) for place, one in enumerate(self.sides)]
        return [(name, least) for name in names if name is not None]

    def _clean_below(self, watermark: Any) -> None:
        """Have the rows of join keys below a watermark removed at the next barrier."""
        self._cleaned = watermark
        for table in self._tables.values():
            table.update_watermark(watermark)
        for side in self._sides.values():
            side.forget_below(watermark)

    def _forget(self) -> None:
        """Drop what is in memory."""
        for side in self._sides.values():
            side.forget()
        self._watermarks.clear()
        self._cleaned = None

    def _with_watermark(self, schema: TableSchema) -> TableSchema:
        """Return the schema of the output with the column that has watermarks, or ``None`` if there is none."""
        name = next(iter(self.watermark_columns), None)
        return TableSchema(schema.columns, list(schema.primary_key), watermark_column=name)

    def _ranked_sides(self) -> tuple[str, ...]:
        """Return the sides, first the one whose columns are NULL in fewer rows."""
        return self.sides[::-1] if self.kind == "right_outer" else self.sides

    def _watermark_column_of(self, side: str) -> str | None:
        """Return the column of the output that keeps the watermarks of a side, or ``None`` if none does."""
        key = self._keys[self.sides.index(side)]
        return self._output_name(side, key[0]) if self._has_watermarks and key else None

    def _note_watermark(self, side: str, value: Any) -> Any:
        """Note a watermark of one side, and return the one that holds: watermarks only grow."""
        self._watermarks[side] = max(value, self._watermarks.get(side, value))
        return self._watermarks[side]

    def _output_name(self, side: str, column: str) -> str | None:
        """Return the name that a column of an input has in the output, or ``None`` if it is not there."""
        if self._main is not None:
            return column if side == self._main else None
        place = self._sides[side].schema.place_of(column)
        return self._joined.names[place + (len(self._sides["left"].nulls) if side == "right" else 0)]

    def _side(self, side: str, schema: TableSchema, key: list[str], null_safe: list[bool]) -> JoinSide:
        """Return the state of one side."""
        return JoinSide(
            schema,
            key,
            null_safe,
            counts=self._is_counted(side),
            cache_keys=self._cache_keys,
            watermark_column=key[0] if self._has_watermarks and key else None,
        )

    def _is_counted(self, side: str) -> bool:
        """Return whether the output of a row of a side depends on how many rows match it."""
        return self._keeps[side] or self._main == side

    def _change_joined(self, side: str, comes: bool, row: Row) -> Iterator[tuple[bool, Row]]:
        """Apply one change of an inner or outer join, and yield what it changes."""
        facing = opposite(side)
        other, keeps_other = self._sides[facing], self._keeps[facing]
        matches = self._apply(side, comes, row)
        if not matches and self._keeps[side]:
            yield comes, self._pair(side, row, None)
        for entry in matches:
            if not keeps_other or entry.degree:
                yield comes, self._pair(side, row, entry.row)
            elif comes:
                yield False, self._pair(side, None, entry.row)
                yield True, self._pair(side, row, entry.row)
            else:
                yield False, self._pair(side, row, entry.row)
                yield True, self._pair(side, None, entry.row)
            if comes:
                other.shift(entry, 1)

    def _change_main(self, side: str, comes: bool, row: Row) -> Iterator[tuple[bool, Row]]:
        """Apply one change of a semi or anti join, and yield what it changes."""
        other = self._sides[opposite(side)]
        matches = self._apply(side, comes, row)
        if side == self._main:
            if bool(matches) != self._is_anti:
                yield comes, row
            return
        for entry in matches:
            if not entry.degree:
                yield comes != self._is_anti, entry.row
            if comes:
                other.shift(entry, 1)

    def _apply(self, side: str, comes: bool, row: Row) -> list[Entry]:
        """Store or remove a row, and return its matches, whose degrees do not count it."""
        mine, other = self._sides[side], self._sides[opposite(side)]
        key = mine.key_of(row)
        if key is None:
            return []
        matches = [entry for entry in other.candidates(key, row) if self._is_match(side, row, entry.row)]
        if comes:
            mine.insert(key, row, len(matches))
        else:
            mine.remove(key, row, len(matches))
            for entry in matches:
                other.shift(entry, -1)
        return matches

    def _is_match(self, side: str, row: Row, other: Row) -> bool:
        return self._matches is None or bool(self._matches(self._pair(side, row, other)))

    def _plain_pair(self, side: str, row: Row | None, other: Row | None) -> Row:
        """Return the joined row of a row of a side and one of the other side."""
        left, right = (row, other) if side == "left" else (other, row)
        return self._sides["left"].padded(left) + self._sides["right"].padded(right)

    def _marked_pair(self, side: str, row: Row | None, other: Row | None) -> Row:
        """Return the joined row, and whether it has a left side."""
        return (*self._plain_pair(side, row, other), (row if side == "left" else other) is not None)


def opposite(side: str) -> str:
    """Return the other side of a join."""
    return "right" if side == "left" else "left"


def checked_keys(
    schemas: tuple[TableSchema, TableSchema], keys: tuple[list[str], list[str]], null_safe: bool | Sequence[bool] | None
) -> list[bool]:
    """Check that the keys of both sides can be compared, and return for each column whether NULL equals NULL."""
    if len(keys[0]) != len(keys[1]):
        raise SchemaError(f"the join keys have {len(keys[0])} and {len(keys[1])} columns: expected as many")
    for left, right in zip(*keys, strict=True):
        types = schemas[0].column(left).type, schemas[1].column(right).type
        if types[0] != types[1]:
            raise SchemaError(f"join key {left!r} is {types[0]} and {right!r} is {types[1]}: expected one type")
    safe = [bool(null_safe)] * len(keys[0]) if null_safe is None or isinstance(null_safe, bool) else list(null_safe)
    if len(safe) != len(keys[0]):
        raise SchemaError(f"null_safe has {len(safe)} values for {len(keys[0])} key columns")
    return safe


def joined_schema(
    left: TableSchema, right: TableSchema, keeps: dict[str, bool], in_left: str | None = None
) -> TableSchema:
    """Return the schema of joined rows; the stream keys of both sides, and the mark, identify one."""
    new_names: dict[str, str] = {}
    taken = set(left.names)
    for name in right.names:
        new = name
        while new in taken:
            new = f"{new}_right"
        taken.add(new)
        new_names[name] = new
    columns = [Column(c.name, c.type, c.nullable or keeps["right"]) for c in left.columns]
    columns += [Column(new_names[c.name], c.type, c.nullable or keeps["left"]) for c in right.columns]
    key = [name for name, _ in left.primary_key] + [new_names[name] for name, _ in right.primary_key]
    if in_left is not None:
        columns.append(Column(in_left, "bool"))
        key.append(in_left)
    return TableSchema(columns, key)


def _predicate(condition: Condition | None, schema: TableSchema) -> Callable[[Row], Any] | None:
    if condition is None:
        return None
    if callable(condition):
        return _guarded(condition)
    if not isinstance(condition, tuple | list) or len(condition) != 3:
        raise SchemaError(f"a condition is (column, comparison, column) or a function of the row: found {condition!r}")
    left, comparison, right = condition
    if comparison not in COMPARISONS:
        raise SchemaError(f"there is no comparison {comparison!r}: expected one of {', '.join(COMPARISONS)}")
    first, second = (schema.place_of(name) if isinstance(name, str) else name for name in (left, right))
    if max(first, second) >= len(schema.columns):
        raise SchemaError(f"the condition {condition!r}: the joined row has {len(schema.columns)} columns, from 0")
    types = schema.columns[first].type, schema.columns[second].type
    common_type(*types, f"the condition {condition!r}")
    compare, prepare = COMPARISONS[comparison], comparing(*types)
    read_first, read_second = (reader(schema, schema.names[place]) for place in (first, second))

    def _matches(row: Row) -> bool:
        one, other = read_first(row), read_second(row)
        if one is None or other is None:
            return False
        return bool(compare(one, other) if prepare is None else compare(prepare(one), prepare(other)))

    return _matches


def _guarded(condition: Callable[[Row], Any]) -> Callable[[Row], Any]:
    """Return the condition with an error that says on which row it failed."""

    def _matches(row: Row) -> Any:
        try:
            return condition(row)
        except RelationalError:
            raise
        except Exception as error:
            raise ExpressionError(
                f"the condition of a join failed for {row!r:.200}: {type(error).__name__}: {error}; values may be None"
                " where a column is nullable; the chunk was not taken"
            ) from error

    return _matches
