"""Groups whose calls keep values only: they are added up and settled column by column, not group by group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress, repeat
from operator import add, eq, itemgetter
from typing import Any

from objectspace.operators.aggregation import Aggregation
from objectspace.operators.base import no_collection
from objectspace.operators.canonical import is_plain
from objectspace.operators.chunks import check_chunk, refuse_retractions
from objectspace.operators.groups import same
from objectspace.operators.vectorised import FEWEST, Folder, can_fold
from objectspace.relational import Chunk, InconsistentOperationError
from objectspace.relational.equality import Equal

HELD = 100_000
"""How many rows wait to be added up at once."""

Cells = Sequence[Any]
Group = tuple[Any, Any]
"""The cells of a group and the row that it shows."""

ABSENT: Group = (None, None)
"""A group that is not there."""


class ValueGroups(Aggregation):
    """An aggregation by group that goes the short way where no call keeps rows in order or counts distinct values."""

    def _forget(self) -> None:
        super()._forget()
        self._held_ops: list[Any] = []
        self._held_rows: list[Any] = []
        self._folded: dict[Any, Cells] = {}

    def _plan_groups(self) -> None:
        super()._plan_groups()
        self._is_short = not self._ordered and not self._distinct
        self._is_plain = all(is_plain(self.input.columns[place].type) for place in self._key_places)
        folds = self._is_short and can_fold(self.input, self._key_places, self._accumulators)
        self._folder = Folder(self.input, self._key_places, self._accumulators) if folds else None

    @property
    def passes_over_stream_keys(self) -> bool:
        """Whether the rows of its input count the same whatever their stream keys are: where all calls only add up."""
        return self.append_only and self._folder is not None

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Take some changes of the input; the output waits for the barrier. Time: O(rows of the chunk)."""
        if self._folder is None:
            return super().process(chunk, side)
        check_chunk(self.input, chunk)
        if self.append_only:
            refuse_retractions(self, chunk)
        if self._closed is None:
            self._held_ops += chunk.ops
            self._held_rows += chunk.values
        else:
            pairs = self._in_time(chunk.rows())
            self._held_ops += [op for op, _ in pairs]
            self._held_rows += [row for _, row in pairs]
        if len(self._held_rows) >= HELD:
            self._fold()
        return []

    @no_collection()
    def _fold(self) -> None:
        """Add up the rows that wait."""
        ops, rows = self._held_ops, self._held_rows
        folded = self._folder.fold(ops, rows) if self._folder is not None and len(rows) >= FEWEST else None
        self._held_ops, self._held_rows = [], []
        if folded is None:
            self._take(list(zip(ops, rows)))
        elif self._folded:
            self._join(self._folded, folded.items())
        else:
            self._folded = folded

    def _join(self, folded: dict[Any, Cells], more: Iterable[tuple[Any, Cells]]) -> None:
        merges = self._merges
        for key, cells in more:
            known = folded.get(key)
            folded[key] = cells if known is None else tuple([merge(a, b) for merge, a, b in zip(merges, known, cells)])

    def _epoch(self) -> dict[Any, Cells]:
        """Return what the epoch did to each group, apart from what is kept of it: the barrier may yet be refused."""
        if not self._touched:
            return self._folded
        found = self._folded.copy()
        self._join(found, ((key, touched.cells) for key, touched in self._touched.items()))
        return found

    def _flush(self) -> list[Chunk]:
        if not self._is_short:
            return super()._flush()
        self._fold()
        ops, rows = self._settle_columns(self._epoch())
        self._folded, self._touched = {}, {}
        self._evict()
        return self._emitted(ops, rows)

    def _settle_columns(self, changes: dict[Any, Cells]) -> tuple[list[Any], list[Any]]:
        """Settle the groups that changed, and return what they show."""
        keys = self._in_order(changes)
        groups, is_whole = self._groups(keys), self._is_whole
        olds = self._olds(keys, groups)
        # What is known lacks these groups until they are back: a barrier that is refused leaves it incomplete.
        self._is_whole = False
        zero = tuple(self._zero)
        before = [zero if old is None else old for old, _ in olds]
        after = self._merged(before, [changes[key] for key in keys])
        self._check_rows(groups, after)
        shown = self._shown_rows(groups, after)
        self._write(groups, olds, after)
        found = list(zip(after, shown))
        self._known.update([(key, group) for key, group in zip(keys, found) if group[0][0]])
        self._is_whole = is_whole
        return _changes(olds, found, self._output.equal)

    def _groups(self, keys: list[Any]) -> list[tuple[Any, ...]]:
        """Return the group columns of the keys of groups."""
        if not self._is_plain:
            return [self._touched[key].group for key in keys]
        return [(key,) for key in keys] if len(self._keys) == 1 else keys

    def _in_order(self, touched: dict[Any, Any]) -> list[Any]:
        try:
            return sorted(touched)
        except TypeError:
            encode = self._state.key_encoder.encode
            return [key for _, key in sorted(zip(map(encode, self._groups(list(touched))), touched))]

    def _olds(self, keys: list[Any], groups: list[tuple[Any, ...]]) -> list[Group]:
        """Return groups as they were at the last barrier."""
        olds: list[Group] = list(map(self._known.pop, keys, repeat(ABSENT)))
        unknown = [] if self._is_whole else [place for place, old in enumerate(olds) if old is ABSENT]
        rows = self._table.get_rows([groups[place] for place in unknown])
        stored = [(place, row) for place, row in zip(unknown, rows) if row is not None]
        cells = [self._loaded_cells(row[len(self._keys) :]) for _, row in stored]
        shown = self._shown_rows([groups[place] for place, _ in stored], cells) if cells else []
        for (place, _), *old in zip(stored, cells, shown):
            olds[place] = (old[0], old[1])
        return olds

    def _loaded_cells(self, values: Sequence[Any]) -> Cells:
        return tuple([value if load is None else load(value) for load, value in zip(self._loads, values)])

    def _merged(self, before: list[Cells], changes: list[Cells]) -> list[Cells]:
        columns = zip(zip(*before), zip(*changes))
        return list(zip(*[list(map(merge, old, new)) for merge, (old, new) in zip(self._merges, columns)]))

    def _check_rows(self, groups: list[tuple[Any, ...]], after: list[Cells]) -> None:
        """Refuse a group that has fewer rows than none, and a total that cannot be stored."""
        for at, _ in self._totals if after else ():
            totals = [cells[at] for cells in after]
            if min(totals) < -(2**63) or max(totals) >= 2**63:
                for group, cells in zip(groups, after):
                    self._check_totals(group, cells)
        if not after or min(map(_first, after)) >= 0:
            return
        for group, cells in zip(groups, after):
            if cells[0] < 0:
                raise InconsistentOperationError(f"group {self._shown(group)}: more rows were retracted than came")

    def _shown_rows(self, groups: list[tuple[Any, ...]], cells: list[Cells]) -> list[tuple[Any, ...]]:
        """Return the rows of the output for the cells of groups."""
        results = [list(map(result, cells)) for result in self._results if result is not None]
        for place, is_bounded in enumerate(self._bounded):
            there = [value for value in results[place] if value is not None] if is_bounded else []
            if there and not (min(there) >= -(2**63) and max(there) < 2**63):
                for group, row in zip(groups, zip(*results)):
                    self._check_results(group, row)
        shown = groups if self._shown_group is same else map(self._shown_group, groups)
        if len(self._keys) == 1:
            return list(zip(map(_first, shown), *results))
        return list(zip(*zip(*shown), *results))

    def _write(self, groups: list[tuple[Any, ...]], olds: list[Group], after: list[Cells]) -> None:
        """Write the rows of the state that changed."""
        stored = after
        if self._has_dumps:
            columns = [
                values if dump is None else list(map(dump, values)) for dump, values in zip(self._dumps, zip(*after))
            ]
            stored = list(zip(*columns))
        rows = list(map(add, groups, stored))
        are_other = [new[0] and new != old[0] for new, old in zip(after, olds)]
        self._table.insert_rows(rows if all(are_other) else list(compress(rows, are_other)))
        if all(map(_first, after)):
            return
        for group, (old, _), new in zip(groups, olds, after):
            if old is not None and not new[0]:
                row = [cell if dump is None else dump(cell) for dump, cell in zip(self._dumps, old)]
                self._table.delete_row((*group, *row))


_first = itemgetter(0)


def _changes(olds: list[Group], news: list[tuple[Cells, tuple[Any, ...]]], equal: Equal) -> tuple[list[Any], list[Any]]:
    """Return the change of each group: an insert, a delete, a pair, or nothing."""
    may_be_equal = equal is not eq
    ops: list[Any] = []
    rows: list[Any] = []
    for (old, before), (new, shown) in zip(olds, news):
        if old is None:
            if new[0]:
                ops.append("+")
                rows.append(shown)
        elif not new[0]:
            ops.append("-")
            rows.append(before)
        elif before != shown and not (may_be_equal and equal(before, shown)):
            ops += ("U-", "U+")
            rows += (before, shown)
    return ops, rows
