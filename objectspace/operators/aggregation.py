"""What HashAgg and SimpleAgg share: groups whose changes are collected during an epoch and settled at its barrier.

During an epoch nothing is read or written: each row is added to the cells of its group, which start from nothing. At
the barrier the cells are combined with what is stored. All of it is sums and sets, so the order of the rows of an epoch
does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from checkpoint.process import collecting_seldom
from objectspace.operators.agg_plan import PlannedCalls
from objectspace.operators.base import Watermark
from objectspace.operators.chunks import RETRACTED, check_chunk, refuse_retractions
from objectspace.operators.distinct import Entry
from objectspace.operators.extremes import OrderedCall
from objectspace.operators.groups import Settled, Touched, add_rows
from objectspace.relational import Chunk, InconsistentOperationError, Order, RowError
from objectspace.relational.checks import checked_watermark
from objectspace.relational.keys import column_encoder
from objectspace.relational.watermarks import is_below
from objectspace.space import ObjectSpace

_CORRECT = "correct or leave out rows in the source"
"""What helps if a sum fits no type, without another plan, which the stored state does not go with."""

_CORRECT_OR_CAST = (
    f"{_CORRECT}, or add up a cast to decimal in a pipeline that starts at another store or location, with its input"
    " from the beginning"
)
"""What helps if a sum of whole numbers does not fit; no decimal of Spark is wider than that of a sum of decimals."""

_FEW = 100
"""How many groups stay in memory without a look at whether they are closed."""


class Aggregation(PlannedCalls):
    """The groups of an aggregation: what rows change in them, and what they return at a barrier."""

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

    @collecting_seldom()
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
        """Return the name that a column of the input has in the output: the same, if it is a group column."""
        return column if column in self.group_key else None

    def watermark(self, column: str, value: Any, side: str = "input") -> list[Watermark]:
        """Accept a watermark of a group column: the state of groups below it is removed at the next barrier.

        Raises:
            RowError: it is not a value of the column.
        """
        if column not in self.group_key:
            return []
        value = checked_watermark(self.input.column(column), value)
        if column == self._window:
            self._next_watermark = value if self._next_watermark is None else max(self._next_watermark, value)
        return [(column, value)]

    def barrier(self, epoch: int) -> list[Chunk]:
        """End an epoch: return one change per touched group, and seal the tables.

        Raises:
            EpochError: the epoch is not after the last one.
            InconsistentOperationError: more was retracted than came.
            RowError: a total is out of the range of its type.

        A barrier that is refused leaves the operator as it was, and may be tried again after further changes.
        """
        self._check_epoch(epoch)
        with collecting_seldom():
            chunks = self._flush()
            for table in self._tables.values():
                if self._next_watermark is not None:
                    table.update_watermark(self._next_watermark)
                table.commit(epoch)
        self._closed, self._next_watermark = self._table.watermark, None
        if self._window is not None and len(self._known) > 2 * self._kept:
            self._forget_closed()
        return chunks

    # The rows of an epoch

    def _forget(self) -> None:
        """Drop what is in memory."""
        self._closed = self._table.watermark if self._tables else None
        self._touched: dict[Any, Touched] = {}
        self._known: dict[Any, Any] = {}
        self._kept = _FEW
        """How many groups were known when those that are closed were last forgotten."""
        self._is_whole = False
        """Whether all groups are known, so an unknown group is new."""
        self._next_watermark = None
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
        """Add rows to their groups for the calls without a filter, and return the group of each."""
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
        touched = [self._touched[key] for key in keys]
        plans = list(map(self._planned, keys, touched, self._read(keys, touched), self._look_up(touched)))
        self._is_whole = False
        self._write_rows([one for _, one, _, _ in plans])
        ops: list[Any] = []
        rows: list[Any] = []
        self._new_rows = []
        for plan in plans:
            self._settle(*plan, ops, rows)
        self._table.write_rows(self._new_rows)
        self._touched, self._is_whole = {}, is_whole
        self._evict()
        return self._emitted(ops, rows)

    def _emitted(self, ops: list[Any], rows: list[Any]) -> list[Chunk]:
        """Return the changes as chunks."""
        return [Chunk(self._output, ops, rows)] if rows else []

    def _planned(
        self, key: Any, touched: Touched, before: Settled | None, counted: Mapping[int, list[Entry]]
    ) -> tuple[Any, Touched, Settled | None, Settled]:
        """Return what was done to a group, what it was and what it becomes, as far as this needs no writing."""
        touched = self._with_distinct(touched, counted)
        for number, changes in touched.ordered.items():
            self._ordered[number].check([changes])
        old = self._zero if before is None else before.cells
        cells = [merge(one, other) for merge, one, other in zip(self._merges, old, touched.cells)]
        if cells[0] < 0:
            raise InconsistentOperationError(f"group {self._shown(touched.group)}: {RETRACTED}")
        results = [None if result is None else result(cells) for result in self._results]
        self._check_results(touched.group, results)
        self._check_totals(touched.group, cells)
        return key, touched, before, Settled(cells, results, {} if before is None else before.heads)

    def _read(self, keys: Sequence[Any], touched: Sequence[Touched]) -> list[Settled | None]:
        """Return groups as they were at the last barrier."""
        found: list[Settled | None] = list(map(self._known.get, keys))
        missing = [] if self._is_whole else [place for place, known in enumerate(found) if known is None]
        for place, row in zip(missing, self._table.get_rows([touched[place].group for place in missing]), strict=True):
            found[place] = None if row is None else self._loaded(row[len(touched[place].group) :])
        listed = [(number, ordered) for number, ordered in self._ordered.items() if ordered.is_listed]
        for number, ordered in listed:
            for one, known in zip(touched, found, strict=True):
                if known is not None and known.results[number] is None:
                    known.results[number] = ordered.whole(one.group)
        return found

    def _look_up(self, touched: Sequence[Touched]) -> list[dict[int, list[Entry]]]:
        """Return for each group the values that calls with DISTINCT count, by the positions of their columns."""
        found: list[dict[int, list[Entry]]] = [{} for _ in touched]
        for place, column in self._distinct.items():
            some = [number for number, one in enumerate(touched) if place in one.counted]
            counted = [(touched[number].group, touched[number].counted[place]) for number in some]
            for number, entries in zip(some, column.look_up(counted), strict=True):
                found[number][place] = entries
        return found

    def _loaded(self, values: Sequence[Any]) -> Settled:
        cells = [value if load is None else load(value) for load, value in zip(self._loads, values[: len(self._loads)])]
        results = [None if result is None else result(cells) for result in self._results]
        for place, value in zip(self._kept_results, values[len(cells) :], strict=True):
            results[place] = value
        return Settled(cells, results, {})

    def _with_distinct(self, touched: Touched, counted: Mapping[int, list[Entry]]) -> Touched:
        """Return what was done to a group, including the values that came or went for the calls with DISTINCT."""
        if not counted:
            return touched
        touched = touched.copy()
        fixed = dict(zip(self._key_places, touched.group, strict=True))
        for place, entries in counted.items():
            turns, touched.writes[place] = self._distinct[place].settle(touched.group, entries)
            for number, value, sign in turns:
                row = {**fixed, place: value}
                for add in self._distinct_adds.get((place, number), ()):
                    add(touched.cells, row, sign)
                for note in self._distinct_notes.get((place, number), ()):
                    note(touched, row, sign)
        return touched

    def _write_rows(self, touched: Sequence[Touched]) -> None:
        """Write the rows of the ordered calls and the counts of distinct values."""
        for number, ordered in self._ordered.items():
            ordered.write(one.ordered.get(number, {}) for one in touched)
        for place, column in self._distinct.items():
            column.write(write for one in touched for write in one.writes.get(place, ()))

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
        """Return the result of an ordered call."""
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
        """Note the row of the state if it changed."""
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
        surplus = len(self._known) - self._cache_groups
        if surplus > 0:
            self._is_whole = False
            for key in list(islice(self._known, surplus)):
                del self._known[key]

    def _forget_closed(self) -> None:
        """Forget the groups below the watermark, which no row can touch any more.

        This looks at all of them, so it is due once they are twice as many as it left: that is a few looks a group.
        """
        for key in [] if self._closed is None else self._closed_keys(self._closed):
            del self._known[key]
        self._kept = max(len(self._known), _FEW)

    def _closed_keys(self, closed: Any) -> list[Any]:
        """Return the keys of the known groups below a watermark: each begins with the value of the window column."""
        if self._is_plain:
            return [key for key in self._known if is_below(key if len(self._keys) == 1 else key[0], closed)]
        encode = column_encoder(self._state.columns[0].type, Order())
        null, mark = encode(None), encode(closed)
        return [key for key in self._known if key < mark and not key.startswith(null)]

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
                advice = _CORRECT if kind.kind == "decimal" else _CORRECT_OR_CAST
                raise RowError(f"{call!r} of group {self._shown(group)} is {result}, which no {kind} holds: {advice}")

    def _check_totals(self, group: tuple[Any, ...], cells: Sequence[Any]) -> None:
        """Refuse a total that cannot be stored, such as that of a mean."""
        for at, name in self._totals:
            if not -(2**63) <= cells[at] < 2**63 and (cells[0] or self._keeps_empty):
                raise RowError(
                    f"group {self._shown(group)}: the total of {name!r} is {cells[at]}, which no int64 holds:"
                    f" {_CORRECT_OR_CAST}"
                )

    def _shown(self, group: tuple[Any, ...]) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in zip(self._keys, group, strict=True)) or "of all rows"
