"""Scanning the slots of an object in order, over all runs that make up a state."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from checkpoint.lookup import RunSpans, in_order
from checkpoint.pages import bytes_in
from checkpoint.run import Slot
from checkpoint.schema import VALUE
from checkpoint.session import Session
from checkpoint.tiers import RunNumber

if TYPE_CHECKING:
    from checkpoint.reader import Reader

_Row = Any
"""A row of a slot: (slot, value, rank), without the rank if nobody asks for it."""


class _Place(NamedTuple):
    """How a scan goes on: the rows of the next page, the run that leads, if any, and whether nothing is left."""

    rows: int
    leader: RunNumber | None
    is_end: bool


class _Stretch(NamedTuple):
    """Where a page lies: between two slots, both included, and beyond the last one that was seen."""

    lower: Slot | None
    upper: Slot | None
    last: Slot | None
    reverse: bool

    def outer(self) -> tuple[Slot | None, Slot | None]:
        """Return the least and the greatest slot that the rest may have."""
        if self.last is None:
            return self.lower, self.upper
        return (self.lower, self.last) if self.reverse else (self.last, self.upper)

    def up_to(self, slot: Slot) -> _Stretch:
        """Return the part that ends with a slot."""
        return self._replace(lower=slot) if self.reverse else self._replace(upper=slot)

    def condition(self) -> tuple[str, dict[str, Slot]]:
        """Return the SQL condition on the slots, and its parameters."""
        lower, upper, last, reverse = self
        if last is not None:
            # One bound a side: with two, SQLite seeks the first and steps over all pages that were read already.
            lower, upper = (lower, None) if reverse else (None, upper)
        conditions = {
            "lower": ("slot >= :lower", lower),
            "upper": ("slot <= :upper", upper),
            "last": ("slot < :last" if reverse else "slot > :last", last),
        }
        given = {name: (condition, bound) for name, (condition, bound) in conditions.items() if bound is not None}
        where = "".join(f" AND {condition}" for condition, _ in given.values())
        return where, {name: bound for name, (_, bound) in given.items()}


class PageSize:
    """How many rows the next page of a scan has.

    Args:
        session: the connection: if its store has large values, pages are short until it is known how large.
        rows: how many rows the first page has.
        most: how many rows a page has at most, unless the first has more.
    """

    def __init__(self, session: Session, rows: int, most: int) -> None:
        self._session, self._most = session, max(rows, most)
        self._has_large: bool | None = None
        self.rows = _LEAST_ROWS if rows > _LEAST_ROWS and self._may_be_large else rows

    @property
    def _may_be_large(self) -> bool:
        # Most scans end with their first page, which is short: they do not ask. A cached_property would hold a lock of
        # its own while it waits for the session.
        if self._has_large is None:
            self._has_large = self._session.peek("SELECT 1 FROM state_large LIMIT 1", ()) is not None
        return self._has_large

    @property
    def most_around(self) -> int:
        """How many rows of other runs are laid over and under the page."""
        return 8 * self.rows if self._may_be_large else _MOST_AROUND

    def after(self, page: list[_Row], fitting: int) -> int:
        """Return how many rows the page after another has, if no more are fitting for a reason of the caller."""
        self.rows = max(_LEAST_ROWS, min(8 * self.rows, self._most, fitting))
        if self._may_be_large and page:
            length = bytes_in(map(_value, page)) // len(page)
            most = max(1, min(self.rows, _MOST_LARGE, MOST_BYTES // (length + 1)))
            self.rows = 1 << (most.bit_length() - 1)  # Few different statements are prepared.
        return self.rows


class Scan:
    """The newest rows of the slots of an object in slot order, including those that mark deletions (value ``None``).

    One run leads, the one in which most rows lie: a page of it is read, and what the others have in between is laid
    under it and over it. If no run leads, the first few slots of all are merged, and the run that has most of them
    leads from there on. The same happens if the leading run is at its end, or the others have too many rows in between.

    Args:
        reader: the state that is read; between pages its runs may be merged.
        session: its connection.
        run_spans: what is known of its runs.
        object_id: the object.
        lower: the least slot; ``None`` is no bound.
        upper: the greatest slot, likewise.
        reverse: the greatest slot first.
        has_ranks: whether a row has its rank.
        only: how the values to read begin; others are given as ``""``. ``None`` reads all.
    """

    def __init__(
        self,
        reader: Reader,
        session: Session,
        run_spans: RunSpans,
        object_id: int,
        lower: Slot | None = None,
        upper: Slot | None = None,
        *,
        reverse: bool = False,
        has_ranks: bool = True,
        only: str | None = None,
    ) -> None:
        self._reader, self._session, self._run_spans = reader, session, run_spans
        self._object, self._bounds, self._reverse = object_id, (lower, upper), reverse
        self._columns = f"slot, {value_column(only)}{', rank' if has_ranks else ''}"

    def pages(self, page_rows: int) -> Iterator[list[_Row]]:
        """Yield the rows page by page: the first has so many rows, each later one up to eight times the one before.

        If the store has large values, it has fewer rows as well, so that pages of large values are not large.
        """
        runs, last = self._reader.runs, None
        self._reader.require_readable()
        if not runs:
            return
        size = PageSize(self._session, page_rows, self._reader.PAGE_ROWS)
        # If all is read, most of it lies in the oldest run, at least at the beginning.
        is_all = page_rows > _LEAST_ROWS and self._bounds == (None, None) and not self._reverse
        place = _Place(size.rows, runs[-1] if is_all else None, False)
        while not place.is_end:
            with self._reader.mutex:  # Nobody changes the runs from when a statement is built until it ends.
                page, place = self._page(_Stretch(*self._bounds, last, self._reverse), place, size)
            if not place.is_end:
                place = place._replace(rows=size.after(page, place.rows))
            if page:
                last = page[-1][0]  # Taken before the page is yielded: whoever gets it may change it.
                yield page

    def _page(self, rest: _Stretch, place: _Place, size: PageSize) -> tuple[list[_Row], _Place]:
        """Return the rows of the next slots, and where to go on."""
        runs = self._reader.runs
        # Runs may have been merged since the page before.
        if len(runs) > 1 and place.leader not in runs:
            return self._merged_page(rest, min(place.rows, _LEAST_ROWS))
        leader = runs[-1] if place.leader is None or place.leader not in runs else place.leader
        page = self._page_of(leader, rest, place.rows)
        is_end = len(page) < place.rows
        if len(runs) == 1:
            return page, _Place(place.rows * 8, leader, is_end)
        if is_end and (around := self._around(leader, rest, place.rows)) is not None:
            return self._laid(page, *around), _Place(place.rows, None, True)
        least, most = min(place.rows, _LEAST_ROWS), size.most_around
        while len(page) >= least or (is_end and page):
            if (around := self._around(leader, rest.up_to(page[-1][0]), most)) is not None:
                fitting = len(page) * most // (2 * sum(map(len, around)) + 1)
                return self._laid(page, *around), _Place(fitting, None if is_end else leader, False)
            page, is_end = page[: len(page) // 4], False
        return self._merged_page(rest, least)

    def _page_of(self, leader: RunNumber, rest: _Stretch, rows: int) -> list[_Row]:
        """Return so many rows of the run that leads."""
        where, bounds = rest.condition()
        # What differs between objects is bound, so that the sqlite3 module keeps the statements prepared.
        return self._query(
            f"SELECT {self._columns} FROM stored_item WHERE checkpoint = :leader AND object = :object{where}"
            f" ORDER BY slot {self._direction} LIMIT {rows}",
            {"leader": leader, "object": self._object, **bounds},
        )

    def _around(self, leader: RunNumber, part: _Stretch, most: int) -> tuple[list[_Row], list[_Row]] | None:
        """Return the rows that the older and the newer runs have; ``None`` if there are ``most`` or more."""
        others = self._others(leader, part)
        older = self._rows_of([run for run in others if run < leader], part, most)
        newer = self._rows_of([run for run in others if run > leader], part, most - len(older))
        return (older, newer) if len(older) + len(newer) < most else None

    def _others(self, leader: RunNumber, part: _Stretch) -> Sequence[RunNumber]:
        """Return the runs other than the leading one, without those that are known to have nothing there."""
        others = [run for run in self._reader.runs if run != leader]
        with suppress(TypeError):  # A number is not compared with text: then all are asked.
            return self._run_spans.reaching(others, self._object, *part.outer())
        return others

    def _rows_of(self, runs: Sequence[RunNumber], part: _Stretch, most: int) -> list[_Row]:
        """Return rows run by run, the oldest first, at most so many."""
        if not runs or not most:
            return []
        where, bounds = part.condition()
        return self._query(
            f"SELECT {self._columns} FROM stored_item WHERE checkpoint IN ({', '.join(map(str, runs))})"
            f" AND object = :object{where} ORDER BY checkpoint LIMIT {most}",
            {"object": self._object, **bounds},
        )

    def _laid(self, page: list[_Row], older: list[_Row], newer: list[_Row]) -> list[_Row]:
        """Return the rows of a page, some replaced by newer ones, with newer and older ones between them.

        The newer and the older ones come in the order of their runs, the page in the order of its slots.
        """
        if not newer and not older:
            return page
        if not older and len(newer) <= len(page) // _FEW_OVER and (replaced := _replaced(page, newer)):
            return replaced
        rows = [*older, *page, *newer]
        newest = dict(zip(map(_slot, rows), rows, strict=True))
        if len(newest) == len(page) and not older:
            return list(newest.values())
        slots = in_order(list(newest))
        return [newest[slot] for slot in (reversed(slots) if self._reverse else slots)]

    def _merged_page(self, rest: _Stretch, rows: int) -> tuple[list[_Row], _Place]:
        """Return what :meth:`_page` does if no run leads.

        Each run is read in the order of its index, and SQLite merges them: nothing is sorted, and of each run only the
        rows that the page needs are read.
        """
        self._reader.require_readable()
        runs, beyond = self._nearest(rest)
        found = self._merged_rows(runs, rest, beyond, rows)
        if beyond is not None and not found:  # According to what is known of the runs there must be one.
            beyond, found = None, self._merged_rows(self._reader.runs, rest, None, rows)
        # Older rows of the slot that the page ends with may be left: they lie at the end, not beyond it.
        newest = {row[0]: row[:-1] for row in reversed(found)}
        leader = Counter(map(_run, found)).most_common(1)[0][0] if found else None
        is_end = len(found) < rows and beyond is None
        return list(reversed(newest.values())), _Place(8 * rows, leader, is_end)

    def _merged_rows(self, runs: Sequence[RunNumber], rest: _Stretch, beyond: Slot | None, rows: int) -> list[_Row]:
        """Return so many rows of some runs in order, each with the number of its run.

        The newest row of a slot comes first, and there are none from ``beyond`` on.
        """
        if not runs:
            return []
        where, bounds = rest.condition()
        if beyond is not None:
            where += f" AND slot {'>' if self._reverse else '<'} :beyond"
            bounds["beyond"] = beyond
        numbers = {f"run{place}": run for place, run in enumerate(runs)}
        statement = _merging(self._columns, len(runs), where, self._direction, rows)
        return self._session.peek_all(statement, {"object": self._object, **numbers, **bounds})

    def _nearest(self, rest: _Stretch) -> tuple[Sequence[RunNumber], Slot | None]:
        """Return the runs that the next page may come from, and the slot that it ends before, or ``None``."""
        runs = self._reader.runs
        low, high = rest.outer()
        begin, end = (high, low) if self._reverse else (low, high)
        with suppress(TypeError):  # A number is not compared with text: then all are asked.
            found, beyond = self._run_spans.nearest(runs, self._object, begin, reverse=self._reverse)
            is_outside = None not in (beyond, end) and (beyond < end if self._reverse else beyond > end)
            return found, None if is_outside else beyond
        return runs, None

    def _query(self, statement: str, parameters: Mapping[str, object]) -> list[_Row]:
        self._reader.require_readable()
        return self._session.rows(statement, parameters)

    @property
    def _direction(self) -> str:
        return "DESC" if self._reverse else "ASC"


def value_column(only: str | None) -> str:
    """Return the column to read for the value: ``""`` for values that do not begin with ``only``, if that is given.

    >>> value_column(None), value_column("{")
    ('value', "CASE WHEN value IS NULL OR value >= '{' AND value < '|' THEN value ELSE '' END")
    """
    if only is None:
        return "value"
    first = only.replace("'", "''")
    beyond = only[:-1].replace("'", "''") + chr(ord(only[-1]) + 1)
    return f"CASE WHEN value IS NULL OR value >= '{first}' AND value < '{beyond}' THEN value ELSE '' END"


@lru_cache(maxsize=64)
def _merging(columns: str, runs: int, where: str, direction: str, rows: int) -> str:
    """Return the query for the first rows of an object in so many runs, the newest row of a slot first."""
    order = f" ORDER BY slot {direction}, checkpoint DESC"
    end = f"{order} LIMIT {rows}"
    select = "SELECT slot, value, rank, checkpoint FROM state_item"
    each = [f"{select} WHERE checkpoint = :run{place} AND object = :object{where}" for place in range(runs)]
    # A compound has a few hundred members at most; what each gives is in order, so compounds are members of another.
    parts = [" UNION ALL ".join(each[start : start + _MEMBERS]) for start in range(0, runs, _MEMBERS)]
    if len(parts) > 1:
        parts = [" UNION ALL ".join(f"SELECT * FROM ({part}{end})" for part in parts)]
    # What a value stands for is looked up last: in each member it would make the query longer than what it reads.
    found = f"SELECT slot, {VALUE} AS value, rank, checkpoint FROM ({parts[0]}{end})"
    return f"SELECT {columns}, checkpoint FROM ({found}){order}"


def _replaced(page: list[_Row], newer: list[_Row]) -> list[_Row] | None:
    """Return the rows of a page with a few replaced by newer ones; ``None`` if one has no row to replace."""
    slots: list[Any] = list(map(_slot, page))
    rows = page.copy()
    with suppress(TypeError):  # Numbers mixed with text are put in order elsewhere.
        if slots[0] > slots[-1]:
            return None
        for row in newer:
            place = bisect_left(slots, row[0])
            if place == len(slots) or slots[place] != row[0]:
                return None
            rows[place] = row
        return rows
    return None


_MOST_AROUND = 8192
"""How many rows of other runs are laid over and under one page of the leading run."""

_FEW_OVER = 16
"""If at most one row in so many is replaced by a newer one, these are put in place one by one."""

_LEAST_ROWS = 16
"""The least number of rows of the leading run that make a page; so many are merged from all runs if none leads."""

_MOST_LARGE = 256
"""How many rows a page has at most if the next ones may be large."""

MOST_BYTES = 1_048_576
"""About how many bytes the values of a page have at most if they are large."""

_MEMBERS = 256
"""How many runs are merged by one compound statement; SQLite takes 500 by default."""

_slot = itemgetter(0)
_value = itemgetter(1)
_run = itemgetter(-1)
