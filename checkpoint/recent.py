"""The rows of recently written runs, kept in memory: most are merged soon, and need not be read for that.

What is merged from memory is what was acknowledged, whatever has become of it on disk meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from checkpoint.pages import PAGE_ROWS, TABLES, Key, RunTable, in_use, key_order, newest_rows
from checkpoint.run import table_bytes
from checkpoint.tiers import RunNumber

Rows = Sequence[list[Any]]
"""The rows of a run: a list for each table, in key order."""

MOST_ROWS = 131_072
"""How many rows are kept in all; larger ones count for more."""

_ROW_BYTES = 128
"""A run counts for at least one row per so many bytes."""

_TOGETHER, _LARGE = 32, 2
"""So many runs of one size have room: those that are merged together, and larger ones if the whole state is small."""

_SAMPLED = 64
"""One row in so many marks where a page may end."""

_APART = PAGE_ROWS // _SAMPLED
"""How many such marks lie in a page."""


class RecentRuns:
    """The runs of a store whose rows are in memory: small ones, and all of a small state."""

    def __init__(self) -> None:
        self._rows: dict[RunNumber, Rows] = {}
        self._sizes: dict[RunNumber, int] = {}
        self._room = MOST_ROWS

    def add(self, run: RunNumber, rows: Rows, size: int) -> None:
        """Keep the rows of a run if there is room for them, if need be that of larger runs; not rows that could change.

        Args:
            run: its number.
            rows: its rows in each table.
            size: their bytes.
        """
        if any(set(map(type, part)) - {tuple} for part in rows):
            return
        weight = _weight(rows, size)
        while self._room < weight:
            largest = max(self._sizes, key=self._sizes.__getitem__, default=None)
            if largest is None or self._sizes[largest] <= weight:
                return
            self._forget(largest)
        self._rows[run], self._sizes[run] = [list(part) for part in rows], weight
        self._room -= weight

    def of(self, runs: Sequence[RunNumber]) -> list[Rows] | None:
        """Return the rows of some runs; None if not all of them are here."""
        return [self._rows[run] for run in runs] if all(run in self._rows for run in runs) else None

    def keep(self, runs: Collection[RunNumber]) -> None:
        """Forget all other runs."""
        for run in [run for run in self._rows if run not in runs]:
            self._forget(run)

    def _forget(self, run: RunNumber) -> None:
        del self._rows[run]
        self._room += self._sizes.pop(run)


class Gathered:
    """The rows of a run that is being made, to be kept; ``size`` is their bytes.

    >>> rows = Gathered()
    >>> rows.add(2, [(1, 3, "42", None)])
    True
    >>> rows.tables, rows.size
    (([], [], [(1, 3, '42', None)]), 3)
    """

    def __init__(self) -> None:
        self.tables: Rows = tuple([] for _ in TABLES)
        self.size = 0

    def add(self, place: int, rows: list[Any]) -> bool:
        """Take the next rows of the table at a position; return whether all rows may still be kept."""
        self.tables[place].extend(rows)
        self.size += table_bytes(place, rows)
        return _weight(self.tables, self.size) <= MOST_ROWS


def is_worth_keeping(rows: int, base: int) -> bool:
    """Return whether a run will be merged from memory: whether the runs that it is merged with have room beside it.

    Args:
        rows: its item rows.
        base: those of the base.
    """
    return rows * _TOGETHER <= MOST_ROWS or max(rows, base) * _LARGE <= MOST_ROWS


def kept_pages(table: RunTable, parts: Sequence[list[Any]], live: set[int] | None) -> Iterator[tuple[int, list[Any]]]:
    """Yield what :func:`checkpoint.pages.merged_pages` does, for rows in memory.

    Args:
        table: the table.
        parts: its rows in each run, in the order of their keys, the oldest run first.
        live: the ids of the objects that exist, to leave out all others and deletions; None to leave out nothing.
    """
    places = [0] * len(parts)
    for end in [*_ends(table, parts), None]:
        beyond = [len(part) if end is None else _place_of(table, part, end) for part in parts]
        slices = [part[place:stop] for part, place, stop in zip(parts, places, beyond, strict=True) if place < stop]
        rows = [row for part in slices for row in part]
        places = beyond
        newest = newest_rows(table, rows) if len(slices) > 1 else rows
        if rows:
            yield len(rows), in_use(newest, live)


def _ends(table: RunTable, parts: Sequence[list[Any]]) -> list[Key]:
    """Return keys between which lie about as many rows as a page has, and never many more."""
    sample = [row for part in parts for row in part[_SAMPLED::_SAMPLED]]
    return [row[: table.width] for row in newest_rows(table, sample)[_APART::_APART]]


def _place_of(table: RunTable, rows: list[Any], end: Key) -> int:
    """Return how many rows come before a key."""
    try:
        return bisect_left(rows, end)  # A row is greater than its own key, being longer.
    except TypeError:
        return bisect_left(rows, key_order(end), key=lambda row: key_order(row[: table.width]))


def _weight(rows: Rows, size: int) -> int:
    return max(sum(map(len, rows)), size // _ROW_BYTES)
