"""Groups that are added up and settled column by column, not group by group.

This works for calls that keep values, and for ordered calls that show one row, such as minima and maxima that can be
retracted: for the latter, only what is known of the first rows of a group is looked at group by group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import compress, repeat
from operator import add, eq, itemgetter
from typing import Any

from checkpoint.process import collecting_seldom
from objectspace.operators.aggregation import Aggregation
from objectspace.operators.chunks import RETRACTED, check_chunk, refuse_retractions
from objectspace.operators.extremes import Changes, Head, Noted, OrderedCall
from objectspace.operators.groups import joined_notes, same
from objectspace.operators.vectorised import FEWEST, Folder, can_fold
from objectspace.relational import Chunk, InconsistentOperationError
from objectspace.relational.equality import Equal

HELD = 100_000
"""How many rows wait to be added up at once."""

Cells = Sequence[Any]
Group = tuple[Any, Any, Any]
"""The cells of a group, the row that it shows, and what is known of its first rows, by ordered call."""

NO_GROUP: Group = (None, None, None)
"""A group that is not there."""


class ValueGroups(Aggregation):
    """An aggregation by group that takes a fast path if no call shows all rows of a group or counts values."""

    def _forget(self) -> None:
        super()._forget()
        self._held_ops: list[Any] = []
        self._held_rows: list[Any] = []
        self._folded: dict[Any, Cells] = {}
        self._noted_rows: defaultdict[Any, Noted] = defaultdict(dict)

    def _plan_groups(self) -> None:
        super()._plan_groups()
        self._is_short = not self._distinct and not any(ordered.is_listed for ordered in self._ordered.values())
        self._shown_from = len(self.group_key)
        folds = self._is_short and can_fold(self.input, self._key_places, self._accumulators)
        self._folder = Folder(self.input, self._key_places, self._accumulators) if folds else None

    @property
    def passes_over_stream_keys(self) -> bool:
        """Whether the stream keys of its input rows make no difference: if all calls only add up."""
        return self.append_only and self._folder is not None and not self._ordered

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Take some changes of the input; the output waits for the barrier. Time: O(rows of the chunk)."""
        if self._folder is None:
            return super().process(chunk, side)
        self._check_open()
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

    @collecting_seldom()
    def _fold(self) -> None:
        """Add up the rows that wait."""
        ops, rows = self._held_ops, self._held_rows
        folded = self._folder.fold(ops, rows) if self._folder is not None and len(rows) >= FEWEST else None
        self._held_ops, self._held_rows = [], []
        if folded is None:
            self._take(list(zip(ops, rows)))
            return
        if self._folded:
            self._join(self._folded, folded.items())
        else:
            self._folded = folded
        if self._ordered:
            self._note_rows(list(zip(ops, rows)))

    def _note_rows(self, pairs: list[Any]) -> None:
        """Note the rows that were added up for the ordered calls."""
        noted = list(map(self._noted_rows.__getitem__, [self._key_of(row) for _, row in pairs]))
        for test, numbers in zip([None, *self._filters], self._noted):
            kept = [True] * len(pairs) if test is None else [test(row) for _, row in pairs] if numbers else []
            for number in numbers:
                self._ordered[number].note_all(number, list(compress(pairs, kept)), list(compress(noted, kept)))

    def _join(self, folded: dict[Any, Cells], more: Iterable[tuple[Any, Cells]]) -> None:
        merges = self._merges
        for key, cells in more:
            known = folded.get(key)
            folded[key] = cells if known is None else tuple([merge(a, b) for merge, a, b in zip(merges, known, cells)])

    def _epoch(self) -> dict[Any, Cells]:
        """Return what the epoch did to each group, without changing what is kept: the barrier may yet be refused."""
        if not self._touched:
            return self._folded
        found = self._folded.copy()
        self._join(found, ((key, touched.cells) for key, touched in self._touched.items()))
        return found

    def _epoch_notes(self, keys: Sequence[Any]) -> list[Noted]:
        """Return what the epoch did to the rows of each group, without changing what is kept.

        Raises:
            InconsistentOperationError: a row came or went twice.
        """
        noted = [self._noted_rows.get(key, _NOTHING) for key in keys]
        if self._touched:
            noted = [
                joined_notes(known, self._touched[key].ordered) if key in self._touched else known
                for key, known in zip(keys, noted)
            ]
        for number, ordered in self._ordered.items():
            ordered.check([found[number] for found in noted if number in found])
        return noted

    def _flush(self) -> list[Chunk]:
        if not self._is_short:
            return super()._flush()
        self._fold()
        ops, rows = self._settle_columns(self._epoch())
        self._folded, self._touched = {}, {}
        self._noted_rows = defaultdict(dict)
        self._evict()
        return self._emitted(ops, rows)

    def _settle_columns(self, changes: dict[Any, Cells]) -> tuple[list[Any], list[Any]]:
        """Settle the groups that changed, and return what they show."""
        keys = self._in_order(changes)
        noted = self._epoch_notes(keys) if self._ordered else []
        groups, is_whole = self._groups(keys), self._is_whole
        olds = self._olds(keys, groups)
        # What is known lacks these groups until they are back: a barrier that is refused leaves it incomplete.
        self._is_whole = False
        zero = tuple(self._zero)
        before = [zero if old is None else old for old, _, _ in olds]
        after = self._merged(before, [changes[key] for key in keys])
        self._check_rows(groups, after)
        results = self._results_of(after)
        self._check_sums(groups, results)
        heads = self._answer_all(groups, olds, noted, results)
        found = list(zip(after, self._shown_rows(groups, results), heads))
        self._write(groups, olds, found)
        self._known.update([(key, group) for key, group in zip(keys, found) if group[0][0]])
        self._is_whole = is_whole
        return _changes(olds, found, self._output.equal)

    def _groups(self, keys: list[Any]) -> list[tuple[Any, ...]]:
        """Return the group columns for the keys of groups."""
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
        olds: list[Group] = list(map(self._known.pop, keys, repeat(NO_GROUP)))
        unknown = [] if self._is_whole else [place for place, old in enumerate(olds) if old is NO_GROUP]
        rows = self._table.get_rows([groups[place] for place in unknown])
        stored = [(place, row) for place, row in zip(unknown, rows) if row is not None]
        cells = [self._loaded_cells(row[len(self._keys) :]) for _, row in stored]
        found = [groups[place] for place, _ in stored]
        results = self._results_of(cells)
        for at, number in enumerate(self._kept_results, len(self._keys) + len(self._loads)):
            results[number] = [row[at] for _, row in stored]
        for (place, _), *old in zip(stored, cells, self._shown_rows(found, results)):
            olds[place] = (old[0], old[1], None)
        return olds

    def _loaded_cells(self, values: Sequence[Any]) -> Cells:
        return tuple([value if load is None else load(value) for load, value in zip(self._loads, values)])

    def _merged(self, before: list[Cells], changes: list[Cells]) -> list[Cells]:
        columns = zip(zip(*before), zip(*changes))
        return list(zip(*[list(map(merge, old, new)) for merge, (old, new) in zip(self._merges, columns)]))

    def _check_rows(self, groups: list[tuple[Any, ...]], after: list[Cells]) -> None:
        """Refuse a group with a negative number of rows, and a total that cannot be stored."""
        for at, _ in self._totals if after else ():
            totals = [cells[at] for cells in after]
            if min(totals) < -(2**63) or max(totals) >= 2**63:
                for group, cells in zip(groups, after):
                    self._check_totals(group, cells)
        if not after or min(map(_first, after)) >= 0:
            return
        for group, cells in zip(groups, after):
            if cells[0] < 0:
                raise InconsistentOperationError(f"group {self._shown(group)}: {RETRACTED}")

    def _results_of(self, cells: list[Cells]) -> list[list[Any]]:
        """Return the results of each call for the cells of groups; for ordered calls nothing yet."""
        return [[] if result is None else list(map(result, cells)) for result in self._results]

    def _check_sums(self, groups: list[tuple[Any, ...]], results: list[list[Any]]) -> None:
        """Refuse a sum that does not fit its type."""
        for place, bounds in enumerate(self._bounds):
            there = [] if bounds is None else [value for value in results[place] if value is not None]
            if bounds is not None and there and not (min(there) >= bounds[0] and max(there) <= bounds[1]):
                for number, group in enumerate(groups):
                    self._check_results(group, [column[number] if column else None for column in results])

    def _answer_all(
        self, groups: list[tuple[Any, ...]], olds: list[Group], noted: list[Noted], results: list[list[Any]]
    ) -> Iterable[Any]:
        """Write the rows of ordered calls, add their results, and return what is known of the first rows of groups."""
        if not self._ordered:
            return repeat(None)
        columns = []
        for at, (number, ordered) in enumerate(self._ordered.items()):
            changes = [found.get(number) for found in noted]
            ordered.write(filter(None, changes))
            heads = [None if old[2] is None else old[2][at] for old in olds]
            shown = [None if old[1] is None else old[1][self._shown_from + number] for old in olds]
            is_new = [old is NO_GROUP for old in olds]
            found = [_answered(ordered, *group) for group in zip(groups, heads, shown, is_new, changes)]
            results[number] = [answer for _, answer in found]
            columns.append([head for head, _ in found])
        return zip(*columns)

    def _shown_rows(self, groups: list[tuple[Any, ...]], results: list[list[Any]]) -> list[tuple[Any, ...]]:
        """Return the rows of the output for the results of groups."""
        if not groups:
            return []
        shown = groups if self._shown_group is same else map(self._shown_group, groups)
        if len(self._keys) == 1:
            return list(zip(map(_first, shown), *results))
        return list(zip(*zip(*shown), *results))

    def _write(self, groups: list[tuple[Any, ...]], olds: list[Group], news: list[Group]) -> None:
        """Write the rows of the state that changed."""
        rows = list(map(add, groups, self._state_columns(news)))
        if self._ordered:
            are_other = [new[0][0] and new[:2] != old[:2] for new, old in zip(news, olds)]
        else:
            are_other = [new[0] and new != old for (new, _, _), (old, _, _) in zip(news, olds)]
        self._table.insert_rows(rows if all(are_other) else list(compress(rows, are_other)))
        gone = [place for place, new in enumerate(news) if not new[0][0] and olds[place] is not NO_GROUP]
        stored = self._state_columns([olds[place] for place in gone])
        for place, row in zip(gone, stored):
            self._table.delete_row((*groups[place], *row))

    def _state_columns(self, found: list[Group]) -> Sequence[Any]:
        """Return what the state has for groups besides the group columns: their cells, and results that it keeps."""
        stored: Sequence[Any] = [cells for cells, _, _ in found]
        if self._has_dumps and found:
            columns = [
                values if dump is None else list(map(dump, values)) for dump, values in zip(self._dumps, zip(*stored))
            ]
            stored = list(zip(*columns))
        if not self._kept_results:
            return stored
        places = [self._shown_from + number for number in self._kept_results]
        return [(*cells, *[shown[place] for place in places]) for cells, (_, shown, _) in zip(stored, found)]


_NOTHING: Noted = {}

_first = itemgetter(0)


def _answered(
    ordered: OrderedCall, group: tuple[Any, ...], head: Head | None, shown: Any, is_new: bool, changes: Changes | None
) -> tuple[Head | None, Any]:
    """Return what is known of the first rows of a group after its changes, and the result of the call."""
    if not changes:
        return head, shown
    if head is None:
        head = ordered.head(group, shown, is_new=is_new)
    ordered.apply(head, changes)
    return head, head.entries[0][1] if head.entries else ordered.first(head, group)


def _changes(olds: list[Group], news: list[Group], equal: Equal) -> tuple[list[Any], list[Any]]:
    """Return the change of each group: an insert, a delete, a pair, or nothing."""
    may_be_equal = equal is not eq
    ops: list[Any] = []
    rows: list[Any] = []
    for (old, before, _), (new, shown, _) in zip(olds, news):
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
