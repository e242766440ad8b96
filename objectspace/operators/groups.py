"""Groups of an aggregation: what an epoch did to one, and what one is between epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from objectspace.operators.accumulators import Add
from objectspace.operators.distinct import Counted, DistinctColumn
from objectspace.operators.extremes import Head, Noted, OrderedCall


class Touched:
    """What an epoch did to one group.

    Args:
        group: the values of its group columns, in the order of the keys of the tables.
        cells: its cells, with nothing in them yet.
    """

    __slots__ = ("cells", "counted", "group", "ordered", "writes")

    def __init__(self, group: tuple[Any, ...], cells: list[Any]) -> None:
        self.group, self.cells = group, cells
        self.ordered: Noted = {}
        self.counted: dict[int, Counted] = {}
        self.writes: dict[int, list[Any]] = {}

    def copy(self) -> Touched:
        """Return a copy with the same changes, which takes further changes independently of this one.

        Rows that ordered calls have noted are shared: what is noted later must be of other calls.
        """
        found = Touched(self.group, self.cells.copy())
        found.ordered, found.counted, found.writes = self.ordered.copy(), self.counted, self.writes.copy()
        return found


class Settled:
    """A group as it was at a barrier: its cells, the results of its calls, and what is known of its ordered rows."""

    __slots__ = ("cells", "heads", "results")

    def __init__(self, cells: list[Any], results: list[Any], heads: dict[int, Head]) -> None:
        self.cells, self.results, self.heads = cells, results, heads


def add_rows(adds: Iterable[Add], notes: Iterable[Any], rows: list[Any]) -> None:
    """Add rows, each with its operation and its group."""
    for op, row, group in rows:
        sign = 1 if op == "+" or op == "U+" else -1
        for add in adds:
            add(group.cells, row, sign)
        for note in notes:
            note(group, row, sign)


def ordered_note(ordered: OrderedCall, number: int) -> Callable[[Touched, Any, int], None]:
    """Return a function that notes a row of a group for an ordered call."""

    def _note(touched: Touched, row: Any, sign: int) -> None:
        ordered.note(touched.ordered.setdefault(number, {}), row, sign)

    return _note


def distinct_note(column: DistinctColumn, place: int, number: int) -> Callable[[Touched, Any, int], None]:
    """Return a function that counts the value of a row of a group."""

    def _note(touched: Touched, row: Any, sign: int) -> None:
        column.note(touched.counted.setdefault(place, {}), row, number, sign)

    return _note


def joined_notes(one: Noted | None, other: Noted) -> Noted:
    """Return what two notes of an epoch together did to the rows of one group; neither of them is changed."""
    if not one:
        return other
    found = {number: {key: list(change) for key, change in changes.items()} for number, changes in one.items()}
    for number, changes in other.items():
        known = found.setdefault(number, {})
        for key, (times, *row) in changes.items():
            known[key] = [times + (known[key][0] if key in known else 0), *row]
    return found


def same(group: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the group columns as they are."""
    return group
