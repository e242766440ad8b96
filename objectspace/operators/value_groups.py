"""Groups whose calls keep values only: they are added up and settled column by column, not group by group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from objectspace.operators.aggregation import Aggregation, same_values
from objectspace.operators.canonical import is_plain
from objectspace.operators.vectorised import FEWEST, Folder, can_fold
from objectspace.relational import Chunk, InconsistentOperationError

HELD = 100_000
"""How many rows wait to be added up at once."""

Cells = Sequence[Any]


class ValueGroups(Aggregation):
    """An aggregation by group that goes the short way where no call keeps rows in order or counts distinct values."""

    def _forget(self) -> None:
        super()._forget()
        self._held: list[Any] = []
        self._folded: dict[Any, Cells] = {}

    def _plan_groups(self) -> None:
        super()._plan_groups()
        self._is_short = not self._ordered and not self._distinct
        self._is_plain = all(is_plain(self.input.columns[place].type) for place in self._key_places)
        folds = self._is_short and can_fold(self.input, self._key_places, self._accumulators)
        self._folder = Folder(self.input, self._key_places, self._accumulators) if folds else None

    def _take(self, pairs: list[Any]) -> None:
        if self._folder is None:
            super()._take(pairs)
            return
        self._held += pairs
        if len(self._held) >= HELD:
            self._fold()

    def _fold(self) -> None:
        """Add up the rows that wait."""
        pairs, self._held = self._held, []
        folded = self._folder.fold(pairs) if self._folder is not None and len(pairs) >= FEWEST else None
        if folded is None:
            super()._take(pairs)
        elif self._folded:
            self._join(folded.items())
        else:
            self._folded = folded

    def _join(self, more: Iterable[tuple[Any, Cells]]) -> None:
        folded, merges = self._folded, self._merges
        for key, cells in more:
            known = folded.get(key)
            folded[key] = cells if known is None else tuple([merge(a, b) for merge, a, b in zip(merges, known, cells)])

    def _flush(self) -> list[Chunk]:
        if not self._is_short:
            return super()._flush()
        self._fold()
        if self._touched:
            self._join((key, touched.cells) for key, touched in self._touched.items())
        ops, rows = self._settle_columns(self._folded)
        self._folded, self._touched = {}, {}
        self._evict()
        return self._emitted(ops, rows)

    def _settle_columns(self, changes: dict[Any, Cells]) -> tuple[list[Any], list[Any]]:
        """Settle the groups that changed, and return what they show."""
        keys = self._in_order(changes)
        groups = self._groups(keys)
        olds = self._olds(keys, groups)
        zero = tuple(self._zero)
        before = [zero if old is None else old for old in olds]
        after = self._merged(before, [changes[key] for key in keys])
        self._check_rows(groups, after)
        shown = [self._shown_rows(groups, cells) for cells in (before, after)]
        self._write(groups, olds, after)
        known = self._known
        for key, cells in zip(keys, after):
            if cells[0]:
                known[key] = cells
        return _changes(olds, after, *shown)

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

    def _olds(self, keys: list[Any], groups: list[tuple[Any, ...]]) -> list[Cells | None]:
        """Return the cells of groups as they were at the last barrier; ``None`` for a new group."""
        pop = self._known.pop
        olds = [pop(key, None) for key in keys]
        for place, old in enumerate(olds):
            if old is None and (row := self._table.get_row(groups[place])) is not None:
                values = row[len(self._keys) :]
                olds[place] = tuple([v if load is None else load(v) for load, v in zip(self._loads, values)])
        return olds

    def _merged(self, before: list[Cells], changes: list[Cells]) -> list[Cells]:
        columns = zip(zip(*before), zip(*changes))
        return list(zip(*[list(map(merge, old, new)) for merge, (old, new) in zip(self._merges, columns)]))

    def _check_rows(self, groups: list[tuple[Any, ...]], after: list[Cells]) -> None:
        """Refuse a group that has fewer rows than none."""
        if after and min(after)[0] < 0:
            group = groups[after.index(min(after))]
            raise InconsistentOperationError(f"group {self._shown(group)}: more rows were retracted than came")

    def _shown_rows(self, groups: list[tuple[Any, ...]], cells: list[Cells]) -> list[tuple[Any, ...]]:
        """Return the rows of the output for the cells of groups."""
        results = [list(map(result, cells)) for result in self._results if result is not None]
        for place, is_bounded in enumerate(self._bounded):
            there = [value for value in results[place] if value is not None] if is_bounded else []
            if there and not (-(2**63) <= min(there) and max(there) < 2**63):
                for group, row in zip(groups, zip(*results)):
                    self._check_results(group, row)
        columns = zip(*[self._shown_group(group) for group in groups])
        return list(zip(*columns, *results))

    def _write(self, groups: list[tuple[Any, ...]], olds: list[Cells | None], after: list[Cells]) -> None:
        """Write the rows of the state that changed."""
        stored = after
        if self._has_dumps:
            columns = [
                values if dump is None else list(map(dump, values)) for dump, values in zip(self._dumps, zip(*after))
            ]
            stored = list(zip(*columns))
        self._table.insert_rows(
            [(*group, *row) for group, row, old, new in zip(groups, stored, olds, after) if new[0] and old != new]
        )
        for group, old, new in zip(groups, olds, after):
            if old is not None and not new[0]:
                row = [cell if dump is None else dump(cell) for dump, cell in zip(self._dumps, old)]
                self._table.delete_row((*group, *row))


def _changes(
    olds: list[Cells | None], after: list[Cells], was: list[tuple[Any, ...]], now: list[tuple[Any, ...]]
) -> tuple[list[Any], list[Any]]:
    """Return the change of each group: an insert, a delete, a pair, or nothing."""
    ops: list[Any] = []
    rows: list[Any] = []
    for old, new, before, shown in zip(olds, after, was, now):
        if old is None:
            if new[0]:
                ops.append("+")
                rows.append(shown)
        elif not new[0]:
            ops.append("-")
            rows.append(before)
        elif before != shown and not same_values(before, shown):
            ops += ("U-", "U+")
            rows += (before, shown)
    return ops, rows
