"""What HashAgg and SimpleAgg share: groups whose changes are collected during an epoch and settled at its barrier.

During an epoch nothing is read or written: each row is added to the cells of its group, which start from nothing. At
the barrier the cells join what is stored. All of it is sums and sets, so the order of the rows of an epoch does not
matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from objectspace.operators.accumulators import Accumulator, Add, Result, result_of, roles_of
from objectspace.operators.agg_call import INTEGERS, ORDERED, AggCall, output_schema, sum_bounds
from objectspace.operators.base import Operator, Promise, column_names, no_collection
from objectspace.operators.canonical import identity, picker
from objectspace.operators.chunks import RETRACTED, check_chunk, checked_promise, refuse_retractions
from objectspace.operators.distinct import DistinctColumn, unused
from objectspace.operators.extremes import OrderedCall
from objectspace.operators.groups import Settled, Touched, add_rows, distinct_note, ordered_note, same
from objectspace.operators.predicates import numbered
from objectspace.operators.sketches import require_sketches
from objectspace.relational import Chunk, Column, DataType, InconsistentOperationError, RowError, TableSchema
from objectspace.relational.equality import equality
from objectspace.relational.watermarks import is_below
from objectspace.space import ObjectSpace

ROWS = DataType("int64")

CACHED_GROUPS = 200_000
"""How many groups stay in memory between epochs."""

CACHED_EXTREMES = 10
"""How many of the first rows of a group a call in order keeps in memory."""


class Aggregation(Operator):
    """The state and the calls of an aggregation.

    Args:
        schema: the schema of the input; its primary key is the stream key.
        group_key: the names of the group columns.
        calls: the calls.
        append_only: whether the input has no retractions: extremes and sketches then need one value a group.
        extreme_cache: how many rows of a group each call in order keeps in memory.
        group_cache: how many groups stay in memory between epochs.
    """

    _role = "Agg"

    def __init__(
        self,
        schema: TableSchema,
        group_key: Sequence[str],
        calls: Sequence[AggCall],
        *,
        append_only: bool = False,
        extreme_cache: int = CACHED_EXTREMES,
        group_cache: int = CACHED_GROUPS,
    ) -> None:
        super().__init__()
        self.input, self.calls, self.append_only = schema, tuple(calls), append_only
        self.group_key = tuple(column_names(group_key))
        self.late_rows = 0
        self._pending: Any = None
        self._closed: Any = None
        self._window = schema.watermark_column if schema.watermark_column in self.group_key else None
        self._keys = sorted(self.group_key, key=lambda name: name != self._window)
        self._extreme_cache, self._group_cache = extreme_cache, group_cache
        for call in self.calls:
            call.check(schema)
        self._filters, self._filter_of = numbered(schema, [call.filter for call in self.calls])
        self._plan_calls()
        self._output = output_schema(schema, self.group_key, self.calls, self._window)
        self._state = self._state_schema()
        self._plan_groups()
        self._forget()

    @property
    def schema(self) -> TableSchema:
        """The schema of the output: the group columns, then the calls; its key is the group key."""
        return self._output

    def state(self) -> list[tuple[str, TableSchema]]:
        """Return the tables: one for each call in order, that of the groups, one for each distinct column."""
        calls = [(ordered.role, ordered.schema) for ordered in self._ordered.values()]
        distinct = [(column.role, column.schema) for column in self._distinct.values()]
        return [*calls, (f"{self._role}State", self._state), *distinct]

    def open(self, space: ObjectSpace, name: str) -> None:
        """Create the state under a name, or open it again after recovery."""
        super().open(space, name)
        for ordered in self._ordered.values():
            ordered.table = self._tables[ordered.role]
        for column in self._distinct.values():
            column.table = self._tables[column.role]
        self._table = self._tables[f"{self._role}State"]
        self._forget()
        self._is_whole = next(self._table.scan(), None) is None

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Take some changes of the input; the output waits for the barrier.

        Raises:
            SchemaMismatchError: the chunk has other columns.
            InconsistentOperationError: the input was said to be append-only, and a row is retracted.

        Time: O(rows of the chunk).
        """
        self._check_open()
        check_chunk(self.input, chunk)
        if self.append_only:
            refuse_retractions(self, chunk)
        pairs = self._in_time(chunk.rows())
        self._take(pairs)
        return []

    @no_collection()
    def _take(self, pairs: list[Any]) -> None:
        """Add rows to their groups, one by one."""
        masks = [[test(row) for _, row in pairs] for test in self._filters]
        touched = self._touch(pairs)
        noted = [group.ordered for group in touched]
        for number in self._noted[0]:
            self._ordered[number].note_all(number, pairs, noted)
        for adds, notes, numbers, mask in zip(self._adds[1:], self._notes[1:], self._noted[1:], masks, strict=True):
            kept = [(*pair, group) for pair, group, keep in zip(pairs, touched, mask, strict=True) if keep]
            add_rows(adds, notes, kept)
            for number in numbers:
                self._ordered[number].note_all(number, [pair[:2] for pair in kept], [pair[2].ordered for pair in kept])

    def kept_as(self, column: str) -> str | None:
        """Return the name that a column of the input has in the output: of a group column the same."""
        return column if column in self.group_key else None

    def watermark(self, column: str, value: Any, side: str = "input") -> list[Promise]:
        """Take a promise about a group column: the state of groups below it is cleaned with the next barrier.

        Raises:
            RowError: it is no value of the column.
        """
        if column not in self.group_key:
            return []
        if column == self._window:
            value = checked_promise(self.input, column, value)
            self._pending = value if self._pending is None else max(self._pending, value)
        return [(column, value)]

    def barrier(self, epoch: int) -> list[Chunk]:
        """End an epoch: return one change a touched group, and seal the tables.

        Raises:
            EpochError: the epoch is not after the last one.
            InconsistentOperationError: more was retracted than came.
            RowError: a total leaves its type.

        A barrier that is refused leaves the operator as it was: it may be tried again after further changes.
        """
        self._check_epoch(epoch)
        with no_collection():
            chunks = self._flush()
            for table in self._tables.values():
                if self._pending is not None:
                    table.update_watermark(self._pending)
                table.commit(epoch)
        self._closed, self._pending = self._table.watermark, None
        return chunks

    # The rows of an epoch

    def _forget(self) -> None:
        """Drop what is in memory."""
        self._closed = self._table.watermark if self._tables else None
        self._touched: dict[Any, Touched] = {}
        self._known: dict[Any, Any] = {}
        self._is_whole = False
        """Whether all groups are known, so that one that is not is new."""
        self._pending = None
        self._new_rows: list[tuple[bool, tuple[Any, ...]]] = []

    def _in_time(self, pairs: list[Any]) -> list[Any]:
        """Return the rows of groups that are not closed yet."""
        if self._window is None or self._closed is None:
            return pairs
        place, closed = self.input.place_of(self._window), self._closed
        kept = [pair for pair in pairs if not is_below(pair[1][place], closed)]
        self.late_rows += len(pairs) - len(kept)
        return kept

    def _touch(self, pairs: list[Any]) -> list[Touched]:
        """Add rows to their groups, as far as calls without a filter go, and return the group of each."""
        found, touched, key_of, zero = [], self._touched, self._key_of, self._zero
        adds, notes = self._adds[0], self._notes[0]
        for op, row in pairs:
            key = key_of(row)
            group = touched.get(key)
            if group is None:
                group = touched[key] = Touched(self._group_of(row), zero.copy())
            cells = group.cells
            sign = 1 if op == "+" or op == "U+" else -1
            cells[0] += sign
            for add in adds:
                add(cells, row, sign)
            for note in notes:
                note(group, row, sign)
            found.append(group)
        return found

    # The barrier

    def _flush(self) -> list[Chunk]:
        """Settle the touched groups, and return their changes."""
        keys, is_whole = self._in_order(self._touched), self._is_whole
        # A barrier may be refused up to here: nothing that is kept has changed then.
        plans = [self._planned(key, self._touched[key]) for key in keys]
        self._is_whole = False
        self._write_rows([touched for _, touched, _, _ in plans])
        ops: list[Any] = []
        rows: list[Any] = []
        self._new_rows = []
        for key, touched, before, after in plans:
            self._settle(key, touched, before, after, ops, rows)
        self._table.write_rows(self._new_rows)
        self._touched, self._is_whole = {}, is_whole
        self._evict()
        return self._emitted(ops, rows)

    def _emitted(self, ops: list[Any], rows: list[Any]) -> list[Chunk]:
        """Return the changes as chunks."""
        return [Chunk(self._output, ops, rows)] if rows else []

    def _planned(self, key: Any, touched: Touched) -> tuple[Any, Touched, Settled | None, Settled]:
        """Return what was done to a group, what it was and what it becomes, as far as nothing is written for that."""
        before = self._read(key, touched.group)
        touched = self._with_distinct(touched)
        for number, changes in touched.ordered.items():
            self._ordered[number].check(changes)
        old = self._zero if before is None else before.cells
        cells = [merge(one, other) for merge, one, other in zip(self._merges, old, touched.cells)]
        if cells[0] < 0:
            raise InconsistentOperationError(f"group {self._shown(touched.group)}: {RETRACTED}")
        results = [None if result is None else result(cells) for result in self._results]
        self._check_results(touched.group, results)
        self._check_totals(touched.group, cells)
        return key, touched, before, Settled(cells, results, {} if before is None else before.heads)

    def _read(self, key: Any, group: tuple[Any, ...]) -> Settled | None:
        """Return a group as it was at the last barrier."""
        known: Settled | None = self._known.get(key)
        if known is None:
            if self._is_whole:
                return None
            row = self._table.get_row(group)
            if row is None:
                return None
            known = self._loaded(row[len(group) :])
        for number, ordered in self._ordered.items():
            if ordered.is_listed and known.results[number] is None:
                known.results[number] = ordered.whole(group)
        return known

    def _loaded(self, values: Sequence[Any]) -> Settled:
        cells = [value if load is None else load(value) for load, value in zip(self._loads, values[: len(self._loads)])]
        results = [None if result is None else result(cells) for result in self._results]
        for place, value in zip(self._kept_results, values[len(cells) :], strict=True):
            results[place] = value
        return Settled(cells, results, {})

    def _with_distinct(self, touched: Touched) -> Touched:
        """Return what was done to a group, with the values that came or went for the calls with DISTINCT."""
        if not touched.counted:
            return touched
        touched = touched.copy()
        fixed = dict(zip(self._key_places, touched.group, strict=True))
        for place, counted in touched.counted.items():
            turns, touched.writes[place] = self._distinct[place].settle(touched.group, counted)
            for number, value, sign in turns:
                row = {**fixed, place: value}
                for add in self._distinct_adds.get((place, number), ()):
                    add(touched.cells, row, sign)
                for note in self._distinct_notes.get((place, number), ()):
                    note(touched, row, sign)
        return touched

    def _write_rows(self, touched: Sequence[Touched]) -> None:
        """Write the rows of the calls in order and the counts of distinct values."""
        for number, ordered in self._ordered.items():
            ordered.write(one.ordered.get(number, {}) for one in touched)
        for one in touched:
            for place, writes in one.writes.items():
                self._distinct[place].write(writes)

    def _settle(
        self, key: Any, touched: Touched, before: Settled | None, after: Settled, ops: list[Any], rows: list[Any]
    ) -> None:
        """Write the state of a group and note its change."""
        for number, ordered in self._ordered.items():
            after.results[number] = self._answer(ordered, number, touched, before, after)
        self._write_state(touched.group, before, after)
        self._known.pop(key, None)
        if after.cells[0] or self._keeps_empty:
            self._known[key] = after
        self._note_change(touched.group, before, after, ops, rows)

    def _answer(
        self, ordered: OrderedCall, number: int, touched: Touched, before: Settled | None, after: Settled
    ) -> Any:
        """Return the result of a call in order."""
        changes = touched.ordered.get(number, {})
        if ordered.is_listed:
            return before.results[number] if before and not changes else ordered.whole(touched.group)
        if number not in after.heads:
            known = before.results[number] if before else None
            after.heads[number] = ordered.head(touched.group, known, is_new=before is None)
        ordered.apply(after.heads[number], changes)
        return ordered.first(after.heads[number], touched.group)

    _keeps_empty = False
    """Whether a group without rows is a group."""

    def _write_state(self, group: tuple[Any, ...], before: Settled | None, after: Settled) -> None:
        """Note the row of the state where it changed."""
        if after.cells[0] or self._keeps_empty:
            if before is None or before.cells != after.cells or self._is_other(before, after):
                self._new_rows.append((True, self._state_row(group, after)))
        elif before is not None:
            self._new_rows.append((False, self._state_row(group, before)))

    def _is_other(self, before: Settled, after: Settled) -> bool:
        return any(before.results[place] != after.results[place] for place in self._kept_results)

    def _state_row(self, group: tuple[Any, ...], settled: Settled) -> tuple[Any, ...]:
        cells = settled.cells
        if self._has_dumps:
            cells = [cell if dump is None else dump(cell) for dump, cell in zip(self._dumps, cells)]
        return (*group, *cells, *[settled.results[place] for place in self._kept_results])

    def _note_change(
        self, group: tuple[Any, ...], before: Settled | None, after: Settled, ops: list[Any], rows: list[Any]
    ) -> None:
        """Note what a group shows before and after: an insert, a delete, a pair, or nothing."""
        shown = self._shown_group(group)
        is_there = bool(after.cells[0]) or self._keeps_empty
        if before is None or not is_there:
            if is_there or before is not None:
                ops.append("+" if is_there else "-")
                rows.append((*shown, *(after if is_there or before is None else before).results))
        elif not self._are_equal(before.results, after.results):
            ops += ["U-", "U+"]
            rows += [(*shown, *before.results), (*shown, *after.results)]

    def _evict(self) -> None:
        """Forget the groups that were touched longest ago."""
        surplus = len(self._known) - self._group_cache
        if surplus > 0:
            self._is_whole = False
            for key in list(islice(self._known, surplus)):
                del self._known[key]

    def _in_order(self, touched: dict[Any, Touched]) -> list[Any]:
        """Return the keys of groups in the order of the keys of the tables."""
        try:
            return sorted(touched)
        except TypeError:
            encode = self._state.key_encoder.encode
            return sorted(touched, key=lambda key: encode(touched[key].group))

    def _check_results(self, group: tuple[Any, ...], results: Iterable[Any]) -> None:
        for call, result, bounds in zip(self.calls, results, self._bounds, strict=True):
            if bounds is not None and result is not None and not bounds[0] <= result <= bounds[1]:
                kind = call.output_type(self.input)
                raise RowError(
                    f"{call!r} of group {self._shown(group)} is {result}, which no {kind} holds: cast the column to"
                    " decimal before it is summed"
                )

    def _check_totals(self, group: tuple[Any, ...], cells: Sequence[Any]) -> None:
        """Refuse a total that cannot be stored, such as that of a mean."""
        for at, name in self._totals:
            if not -(2**63) <= cells[at] < 2**63 and (cells[0] or self._keeps_empty):
                raise RowError(
                    f"group {self._shown(group)}: the total of {name!r} is {cells[at]}, which no int64 holds: make the"
                    " column a decimal before it is added up"
                )

    def _shown(self, group: tuple[Any, ...]) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in zip(self._keys, group, strict=True)) or "of all rows"

    # What the calls need

    def _plan_calls(self) -> None:
        """Find the accumulators, the tables in order and the distinct columns that the calls need."""
        self._accumulators = [Accumulator("count", -1, ROWS)]
        self._ordered: dict[int, OrderedCall] = {}
        self._results: list[Result | None] = []
        self._counted: dict[int, set[int]] = {}
        for number, call in enumerate(self.calls):
            self._results.append(None if self._is_ordered(call) else self._plan_value(number, call))
            if self._is_ordered(call):
                self._ordered[number] = OrderedCall(
                    number, call, self.input, self._keys, self._role, self._extreme_cache
                )
                if call.is_distinct:
                    self._counted.setdefault(self._ordered[number].argument, set()).add(self._filter_of[number])
        self._distinct = {
            place: DistinctColumn(place, sorted(filters), self.input, self._keys, self._role)
            for place, filters in sorted(self._counted.items())
        }
        self._bind()

    def _is_ordered(self, call: AggCall) -> bool:
        return call.kind in ORDERED or (call.kind in ("min", "max") and not self.append_only)

    def _plan_value(self, number: int, call: AggCall) -> Result:
        """Find the accumulators of a call that keeps values, and return what makes its result of them."""
        place = self.input.place_of(call.columns[0]) if call.columns else -1
        kind, is_distinct = call.kind, call.is_distinct
        if kind == "approx_count_distinct":
            kind, is_distinct = (kind, False) if self.append_only else ("count", True)
            if self.append_only:
                require_sketches()
        if is_distinct:
            self._counted.setdefault(place, set()).add(self._filter_of[number])
        column = ROWS if place < 0 else self.input.columns[place].type
        at = {role: self._place(role, place, self._filter_of[number], is_distinct) for role in roles_of(kind)}
        return result_of(kind, column, at)

    def _place(self, role: str, place: int, number: int, is_distinct: bool) -> int:
        """Return the position of the cell of an accumulator; calls that need the same one share it."""
        if role == "count" and not is_distinct and place >= 0 and not self.input.columns[place].nullable:
            place = -1
        kept = Accumulator(role, place, ROWS if place < 0 else self.input.columns[place].type, number, is_distinct)
        if kept not in self._accumulators:
            self._accumulators.append(kept)
        return self._accumulators.index(kept)

    def _bind(self) -> None:
        """Sort what adds and notes rows by the filter and the DISTINCT before it."""
        self._adds: list[list[Add]] = [[] for _ in range(len(self._filters) + 1)]
        self._notes: list[list[Callable[[Touched, Any, int], None]]] = [[] for _ in range(len(self._filters) + 1)]
        self._noted: list[list[int]] = [[] for _ in range(len(self._filters) + 1)]
        self._distinct_adds: dict[tuple[int, int], list[Add]] = {}
        self._distinct_notes: dict[tuple[int, int], list[Callable[[Touched, Any, int], None]]] = {}
        for at, kept in enumerate(self._accumulators):
            if kept.distinct:
                self._distinct_adds.setdefault((kept.place, kept.filter), []).append(kept.adder(at))
            elif at:
                self._adds[kept.filter + 1].append(kept.adder(at))
        for number, ordered in self._ordered.items():
            if ordered.call.is_distinct:
                note = ordered_note(ordered, number)
                key = ordered.argument, self._filter_of[number]
                self._distinct_notes.setdefault(key, []).append(note)
            else:
                self._noted[self._filter_of[number] + 1].append(number)
        for place, column in self._distinct.items():
            for number, kept_filter in enumerate(column.filters):
                self._notes[kept_filter + 1].append(distinct_note(column, place, number))

    def _plan_groups(self) -> None:
        """Prepare what is done for each group."""
        places = [self.input.place_of(name) for name in self._keys]
        self._key_places = places
        self._key_of = identity([self.input.columns[place].type for place in places], places)
        self._group_of = picker(self.input, places)
        order = [self._keys.index(name) for name in self.group_key]
        self._shown_group: Callable[[tuple[Any, ...]], tuple[Any, ...]] = (
            same if order == sorted(order) else lambda group: tuple([group[place] for place in order])
        )
        self._zero = [kept.zero for kept in self._accumulators]
        self._merges = [kept.merger() for kept in self._accumulators]
        self._loads = [kept.loader() for kept in self._accumulators]
        self._dumps = [kept.dumper() for kept in self._accumulators]
        self._has_dumps = any(self._dumps)
        self._totals = [
            (at, self.input.names[kept.place])
            for at, kept in enumerate(self._accumulators)
            if kept.role == "sum" and kept.type.kind in INTEGERS
        ]
        self._are_equal = equality([column.type for column in self._output.columns[len(self.group_key) :]])
        self._bounds = [sum_bounds(call.output_type(self.input)) if call.kind == "sum" else None for call in self.calls]

    def _state_schema(self) -> TableSchema:
        """Return the columns of the state: the group, the cells, and results that cannot be made of them."""
        columns = [self.input.column(name) for name in self._keys]
        columns = [Column(column.name, column.type, column.nullable) for column in columns]
        for place, kept in enumerate(self._accumulators):
            column = "" if kept.place < 0 else f"_{self.input.names[kept.place]}"
            name = f"{kept.role}{column}" if kept.filter < 0 and not kept.distinct else f"{kept.role}{column}_{place}"
            is_nullable = kept.role in ("min", "max", "sketch")
            columns.append(Column(_free(name, columns), kept.cell_type, is_nullable))
        self._kept_results = [number for number, call in self._ordered.items() if not call.is_listed]
        for number in self._kept_results:
            call = self.calls[number]
            name = f"{call.name}_{number}"
            columns.append(Column(_free(name, columns), call.output_type(self.input), True))
        return TableSchema(columns, self._keys, watermark_column=self._window)


def _free(name: str, columns: Sequence[Column]) -> str:
    return unused(name, [column.name for column in columns])
