"""Reading a store as of one checkpoint: the newest live run that has a slot decides what it holds."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import lru_cache, wraps
from operator import itemgetter
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from checkpoint.errors import UnknownCheckpointError
from checkpoint.lookup import Extents, Lookup, ReadRow, in_order, newest_of
from checkpoint.run import CheckpointKind, IndexRow, Page, Payload, Run, Slot, is_owner, reachable
from checkpoint.session import Session
from checkpoint.tiers import RunNumber

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _steadily(method: Callable[Concatenate[Reader, _P], _R]) -> Callable[Concatenate[Reader, _P], _R]:
    """Let nobody change the runs of a reader between the making of a statement and its end, also in other threads."""

    @wraps(method)
    def _locked(self: Reader, /, *args: _P.args, **options: _P.kwargs) -> _R:
        with self.mutex:
            return method(self, *args, **options)

    return _locked


class StoredItem(NamedTuple):
    """A slot as it is stored: its value and, for kinds that keep insertion order, its rank."""

    slot: Slot
    value: Payload
    rank: int | None


_RunRow = tuple[Slot, Payload | None, int | None, RunNumber]
"""A row of a slot, and the run that it is of."""

_Limits = tuple[Slot | None, Slot | None, Slot | None, bool]
"""The least and the greatest slot of a scan, the last one that was seen, and whether it goes backwards."""


class _Place(NamedTuple):
    """How a scan goes on: the rows of the next page, the run that leads, if any does, and whether nothing is left."""

    rows: int
    leader: RunNumber | None
    is_end: bool


class Reader:
    """A view of the state at one checkpoint, shared by everything that loads slots.

    The list of live runs decides the view: rows of other runs are never seen, not even those that a transaction on
    the same connection is about to commit. It stays right while checkpoints are made, and while runs are merged: the
    store knows its readers, and merges no run out of the sight of one.

    Args:
        session: the connection to read through.
        runs: the numbers of the runs that make up the state, in any order.
        between: gives a reader of just what came after one checkpoint up to another; None where that is not known.
        extents: what is known of the runs already.
        is_partial: the runs are not a whole state, but what came on top of an older one.
    """

    PAGE_ROWS = 1024
    """How many rows one statement of a scan fetches; between pages the store may be written."""

    FIRST_PAGE_ROWS = 16
    """How many it fetches first where the pages grow."""

    def __init__(
        self,
        session: Session,
        runs: Sequence[RunNumber],
        between: Callable[[int, int], Reader | None] | None = None,
        extents: Extents | None = None,
        *,
        is_partial: bool = False,
    ) -> None:
        self.is_partial = is_partial
        self._session, self._between, self.mutex = session, between, session.mutex
        self._extents = extents or Extents(session)
        self._refusal: str | None = None
        self.read_from(runs)

    @_steadily
    def read_from(self, runs: Sequence[RunNumber]) -> None:
        """Read the same state from other runs from now on."""
        self.runs = tuple(sorted(runs, reverse=True))
        self._lookup = Lookup(self._session, self.runs, self._extents)

    @property
    def _in(self) -> str:
        """The condition on the number of the run."""
        return _within(self.runs)

    @property
    def newest(self) -> int:
        """The number of the checkpoint that is read; 0 before the first."""
        return int(self.runs[0]) if self.runs else 0

    @property
    def is_retired(self) -> bool:
        """Whether the checkpoint that is read exists no more; another one may have its number by now."""
        return self._refusal is not None

    def retire(self, reason: str) -> None:
        """Refuse all further work, because the checkpoint that is read exists no more."""
        self._refusal = reason

    def of_nothing(self) -> Reader:
        """Return a reader of the empty state of the same store, which keeps no run from being merged."""
        return Reader(self._session, ())

    @_steadily
    def index(self) -> list[IndexRow]:
        """Return the index row of every object that exists, in order of their ids."""
        rows = self._query(
            f"SELECT object, name, kind, codec, max(checkpoint) FROM state_index WHERE checkpoint {self._in}"
            " GROUP BY object ORDER BY object"
        )
        return [(row[0], row[1], row[2], row[3]) for row in rows if row[2] is not None]

    @_steadily
    def entry(self, object_id: int) -> IndexRow | None:
        """Return the index row of one object, or ``None`` where no object of this id has a name.

        Time: O(live runs · log n).
        """
        self._require_readable()
        row = self._session.row(
            f"SELECT object, name, kind, codec FROM state_index WHERE checkpoint {self._in} AND object = ?"
            " ORDER BY checkpoint DESC LIMIT 1",
            (object_id,),
        )
        return None if row is None or row[2] is None else row

    @_steadily
    def metadata(self, object_id: int) -> dict[str, str]:
        """Return the metadata of one object: JSON text by key."""
        rows = self._query(
            f"SELECT key, value, max(checkpoint) FROM state_metadata WHERE checkpoint {self._in} AND object = ?"
            " GROUP BY key ORDER BY key",
            (object_id,),
        )
        return {key: value for key, value, _ in rows if value is not None}

    @_steadily
    def metadatum(self, object_id: int, key: str) -> str | None:
        """Return the JSON text of one key of the metadata of one object, ``None`` where it is not stored.

        Time: O(live runs · log n); O(log n) where the newest run has it.
        """
        self._require_readable()
        statement = newest_of("value", "state_metadata", "key", len(self.runs))
        row = self._session.peek(statement, (object_id, key, *self.runs)) if self.runs else None
        return None if row is None else row[0]

    def item(self, object_id: int, slot: Slot) -> StoredItem | None:
        """Return what one slot holds, or ``None``.

        Time: O(live runs · log n).
        """
        with self.mutex:
            if self._refusal is not None:
                self._require_readable()
            row = self._lookup.one(object_id, slot)
        return None if row is None or row[0] is None else StoredItem(slot, row[0], row[1])

    @_steadily
    def last_slot(self, object_id: int) -> Slot | None:
        """Return the greatest slot of an object, ``None`` where it has none.

        Time: O(live runs · log n), unless slots at the end were deleted lately.
        """
        self._require_readable()
        slot, is_deleted = self._lookup.last(object_id)
        if not is_deleted:
            return slot
        return next((item.slot for item in self.items(object_id, reverse=True, page_rows=1)), None)

    @_steadily
    def items_at(self, object_id: int, slots: Sequence[Slot]) -> list[ReadRow]:
        """Return the rows of those of many slots that hold anything, in any order: quicker than one by one.

        Time: O(slots · live runs · log n).
        """
        self._require_readable()
        return [row for row in self._lookup.many(object_id, slots) if row[1] is not None]

    @_steadily
    def depth(self, object_id: int) -> int:
        """Return how many of the runs have rows of an object."""
        self._require_readable()
        return len(self.runs) if len(self.runs) < 2 else len(self._extents.of(self.runs, object_id))

    def items(
        self,
        object_id: int,
        lower: Slot | None = None,
        upper: Slot | None = None,
        *,
        reverse: bool = False,
        page_rows: int | None = None,
    ) -> Iterator[StoredItem]:
        """Yield the slots of an object in slot order, with ``lower <= slot <= upper`` where bounds are given.

        Rows are fetched page by page, so the memory used does not depend on the size of the object.
        """
        size = page_rows or self.PAGE_ROWS
        for page in self.item_pages(object_id, lower, upper, reverse=reverse, page_rows=size):
            yield from map(StoredItem._make, page)

    def rows(
        self,
        object_id: int,
        lower: Slot | None = None,
        upper: Slot | None = None,
        *,
        reverse: bool = False,
        page_rows: int | None = None,
    ) -> Iterator[ReadRow]:
        """Yield the newest row of each slot as :meth:`items` does, those that mark deletions (value ``None``) too."""
        for page in self._pages(object_id, lower, upper, reverse, page_rows or self.PAGE_ROWS):
            yield from page

    def item_pages(
        self,
        object_id: int,
        lower: Slot | None = None,
        upper: Slot | None = None,
        *,
        reverse: bool = False,
        page_rows: int | None = None,
    ) -> Iterator[list[ReadRow]]:
        """Yield the slots as :meth:`items` does, in pages; unless told otherwise they grow, as most scans end early."""
        for page in self._pages(object_id, lower, upper, reverse, page_rows or self.FIRST_PAGE_ROWS):
            yield [row for row in page if row[1] is not None] if None in map(_value, page) else page

    def items_by_rank(self, object_id: int, *, reverse: bool = False, limit: int | None = None) -> Iterator[StoredItem]:
        """Yield the slots of an object in the order of their ranks.

        SQLite sorts, outside memory where it must, so the memory used does not depend on the size of the object. The
        order is fixed when the first slot is fetched: the store may be written meanwhile.

        Args:
            object_id: the object.
            reverse: the highest rank first.
            limit: how many slots to yield at most: few are found without sorting all.

        Time: O(slots stored), nearly all of it inside SQLite where ``limit`` is small.
        """
        for page in self.pages_by_rank(object_id, reverse=reverse, limit=limit):
            yield from map(StoredItem._make, page)

    def pages_by_rank(
        self, object_id: int, *, reverse: bool = False, limit: int | None = None
    ) -> Iterator[list[ReadRow]]:
        """Yield the slots as :meth:`items_by_rank` does, page by page."""
        with ExitStack() as stack:
            with self.mutex:
                self._require_readable()
                statement = (
                    f"SELECT slot, value, rank FROM (SELECT slot, value, rank, max(checkpoint) FROM state_item"
                    f" WHERE checkpoint {self._in} AND object = ? GROUP BY slot) WHERE value IS NOT NULL"
                    f" ORDER BY rank {'DESC' if reverse else 'ASC'} LIMIT ?"
                )
                cursor = self._session.cursor(statement, (object_id, -1 if limit is None else limit))
                fetch = stack.enter_context(cursor)
            while page := fetch(self.PAGE_ROWS):
                yield page

    def since(self, older: Reader) -> Reader | None:
        """Return a reader of just the runs that came on top of an older checkpoint, which deletions are part of too.

        Returns:
            ``None`` where this state is not the older one with later runs on top: the runs between are gone, were
            replaced by a complete image, or lie in another file.
        """
        if self._session is not older._session or self._between is None or not 0 < older.newest <= self.newest:
            return None
        between = self._between(older.newest, self.newest)
        # What an object held before it was deleted is in no later run once a base was made without it: if the object
        # has come back since, just a comparison tells what it lost.
        is_risky = between is not None and between.runs and int(self.runs[-1]) > older.newest
        if is_risky and between is not None and between.deletes_objects(filter(is_owner, self.index())):
            return None
        return between

    @_steadily
    def touched(self) -> set[int]:
        """Return the ids of all objects that the runs have any row of, be they alive or not.

        Time: O(rows).
        """
        statements = (
            f"SELECT DISTINCT object FROM {table} WHERE checkpoint {self._in}"
            for table in ("state_index", "state_metadata", "state_item")
        )
        return {row[0] for statement in statements for row in self._query(statement)}

    def deletes_objects(self, owners: Iterable[IndexRow] = ()) -> bool:
        """Tell whether the runs have a row that deletes an object: one with a name, or one of some owners.

        Time: O(rows of the index and of the owners).
        """
        with self.mutex:
            if self._query(f"SELECT 1 FROM state_index WHERE checkpoint {self._in} AND kind IS NULL LIMIT 1"):
                return True
        return any(row[1] is None for owner in owners for row in self.rows(owner[0]))

    def reachable(self) -> set[int]:
        """Return the ids of all objects that exist: the named ones and those that they own.

        Time: O(named objects + slots of objects that own others).
        """
        return reachable(self.index(), lambda object_id: (item.value for item in self.items(object_id)))

    def image(self) -> Run:
        """Return the complete state as one run.

        Time: O(state), memory too: for states that fit.
        """
        run = Run(CheckpointKind.FULL)
        tables: tuple[list[Any], ...] = (run.index, run.metadata, run.items)
        for place, rows in self.image_pages():
            tables[place].extend(rows)
        return run

    def image_pages(self, page_rows: int = 65_536) -> Iterator[Page]:
        """Yield the complete state page by page, in the order of a run.

        Args:
            page_rows: about how many rows a page has.

        Time: O(state); the memory used does not depend on it, only on the number of objects.
        """
        index = self.index()
        if index:
            yield 0, index
        live = sorted(reachable(index, lambda object_id: (item.value for item in self.items(object_id))))
        metadata = ([(one, key, value) for key, value in self.metadata(one).items()] for one in live)
        items = (
            [(one, *row) for row in page if row[1] is not None]
            for one in live
            for page in self._pages(one, None, None, False, self.PAGE_ROWS)
        )
        for place, parts in ((1, metadata), (2, items)):
            rows: list[Any] = []
            for part in parts:
                rows += part
                if len(rows) >= page_rows:
                    yield place, rows
                    rows = []
            if rows:
                yield place, rows

    @_steadily
    def count(self, object_id: int) -> int:
        """Return the number of slots that an object has stored.

        Time: O(n).
        """
        statement = (
            f"SELECT count(*) FROM (SELECT value, max(checkpoint) FROM state_item WHERE checkpoint {self._in}"
            " AND object = ? GROUP BY slot) WHERE value IS NOT NULL"
        )
        return int(self._query(statement, (object_id,))[0][0])

    def _pages(
        self, object_id: int, lower: Slot | None, upper: Slot | None, reverse: bool, page_rows: int
    ) -> Iterator[list[ReadRow]]:
        last, most = None, max(page_rows, self.PAGE_ROWS)
        # Where all is read, most of it lies in the oldest run, at the beginning at least.
        is_all = page_rows > _LEAST_ROWS and lower is None and upper is None and not reverse
        place = _Place(page_rows, self.runs[-1] if self.runs and is_all else None, not self.runs)
        while not place.is_end:
            page, place = self._page(object_id, (lower, upper, last, reverse), place)
            if page:
                last = page[-1][0]  # Before it is given away: whoever gets it may change it.
                yield page
            page_rows = max(_LEAST_ROWS, min(8 * page_rows, most, place.rows))
            place = place._replace(rows=page_rows)

    @_steadily
    def _page(self, object_id: int, limits: _Limits, place: _Place) -> tuple[list[ReadRow], _Place]:
        """Return the newest rows of the next slots in order, and where to go on.

        One run leads, which most rows lie in: a page of it is read, and what the others have in between is laid under
        it and over it. Where no run leads, the first few slots of all are merged, and the one that has most of them
        leads from there on; so it goes where the one that led is at its end, or the others have too many rows between.
        """
        # Runs may have been merged since the page before.
        if len(self.runs) > 1 and place.leader not in self.runs:
            return self._merged_page(object_id, limits, min(place.rows, _LEAST_ROWS))
        lower, upper, last, reverse = limits
        leader, rows = place.leader if place.leader in self.runs else self.runs[-1], place.rows
        rest, bounds = _range(*limits)
        # What differs from object to object is bound, so that SQLite's module keeps the statements prepared.
        page: list[ReadRow] = self._query(
            f"SELECT slot, value, rank FROM state_item WHERE checkpoint = :leader AND object = :object{rest}"
            f" ORDER BY slot {_direction(reverse)} LIMIT {rows}",
            {"leader": leader, "object": object_id, **bounds},
        )
        is_end = len(page) < rows
        if len(self.runs) == 1:
            return page, _Place(rows * 8, leader, is_end)
        if is_end:
            others = self._others(leader, object_id, limits)
            around = self._rows_of(others, object_id, rest, bounds, rows)
            if len(around) < rows:
                return _laid(around, leader, page, reverse=reverse), _Place(rows, None, True)
        while len(page) >= _LEAST_ROWS or (is_end and page):
            low, high = (page[-1][0], upper) if reverse else (lower, page[-1][0])
            others = self._others(leader, object_id, (low, high, last, reverse))
            around = self._rows_of(others, object_id, *_range(low, high, last, reverse), _MOST_AROUND)
            if len(around) < _MOST_AROUND:
                fitting = len(page) * _MOST_AROUND // (2 * len(around) + 1)
                return _laid(around, leader, page, reverse=reverse), _Place(fitting, None if is_end else leader, False)
            page, is_end = page[: len(page) // 4], False
        return self._merged_page(object_id, limits, _LEAST_ROWS)

    def _others(self, leader: RunNumber, object_id: int, limits: _Limits) -> Sequence[RunNumber]:
        """Return the runs but the one that leads, without those that are known to have nothing within the limits."""
        others = [run for run in self.runs if run != leader]
        lower, upper, last, reverse = limits
        low, high = (lower, upper if last is None else last) if reverse else (lower if last is None else last, upper)
        with suppress(TypeError):  # A number is not compared with text: then all are asked.
            return self._extents.reaching(others, object_id, low, high)
        return others

    def _rows_of(
        self, runs: Sequence[RunNumber], object_id: int, where: str, bounds: Mapping[str, object], most: int
    ) -> list[_RunRow]:
        """Return rows of an object run by run, with the numbers of their runs, so many at most."""
        if not runs:
            return []
        numbers = ", ".join(map(str, runs))
        return self._query(
            f"SELECT slot, value, rank, checkpoint FROM state_item WHERE checkpoint IN ({numbers})"
            f" AND object = :object{where} ORDER BY checkpoint LIMIT {most}",
            {"object": object_id, **bounds},
        )

    def _merged_page(self, object_id: int, limits: _Limits, rows: int) -> tuple[list[ReadRow], _Place]:
        """Return what :meth:`_page` does where no run leads.

        Each run is read in the order of its index, and SQLite merges them: nothing is sorted, and of each run just the
        rows that the page needs are read.
        """
        self._require_readable()
        runs, beyond = self._nearest(object_id, limits)
        found = self._merged_rows(runs, object_id, limits, beyond, rows)
        if beyond is not None and not found:  # What is known of the runs says that there must be one.
            beyond, found = None, self._merged_rows(self.runs, object_id, limits, None, rows)
        # Of a slot that the page ends with, older rows may be left: they lie at the end, and not beyond it.
        newest = {row[0]: row[:3] for row in reversed(found)}
        leader = Counter(map(_run, found)).most_common(1)[0][0] if found else None
        is_end = len(found) < rows and beyond is None
        return list(reversed(newest.values())), _Place(8 * rows, leader, is_end)

    def _merged_rows(
        self, runs: Sequence[RunNumber], object_id: int, limits: _Limits, beyond: Slot | None, rows: int
    ) -> list[_RunRow]:
        """Return so many rows of some runs in order, the newest one of a slot first, and none from a slot on."""
        if not runs:
            return []
        where, bounds = _range(*limits)
        if beyond is not None:
            where += f" AND slot {'>' if limits[-1] else '<'} :beyond"
            bounds["beyond"] = beyond
        numbers = {f"run{place}": run for place, run in enumerate(runs)}
        statement = _merging(len(runs), where, _direction(limits[-1]), rows)
        return self._session.peek_all(statement, {"object": object_id, **numbers, **bounds})

    def _nearest(self, object_id: int, limits: _Limits) -> tuple[Sequence[RunNumber], Slot | None]:
        """Return the runs that the next page may be of, and the slot that it ends before; ``None`` is no such slot."""
        lower, upper, last, reverse = limits
        begin, end = (upper, lower) if reverse else (lower, upper)
        with suppress(TypeError):  # A number is not compared with text: then all are asked.
            place = begin if last is None else last
            runs, beyond = self._extents.nearest(self.runs, object_id, place, reverse=reverse)
            is_outside = None not in (beyond, end) and (beyond < end if reverse else beyond > end)
            return runs, None if is_outside else beyond
        return self.runs, None

    def _query(self, statement: str, parameters: Sequence[object] | Mapping[str, object] = ()) -> list[Any]:
        self._require_readable()
        return self._session.rows(statement, parameters)

    def _require_readable(self) -> None:
        if self._refusal is not None:
            raise UnknownCheckpointError(self._refusal)


@lru_cache(maxsize=64)
def _merging(runs: int, where: str, direction: str, rows: int) -> str:
    """Return the query for the first rows of an object in so many runs, the newest row of a slot first."""
    end = f" ORDER BY slot {direction}, checkpoint DESC LIMIT {rows}"
    columns = "SELECT slot, value, rank, checkpoint FROM state_item"
    each = [f"{columns} WHERE checkpoint = :run{place} AND object = :object{where}" for place in range(runs)]
    # A compound has few hundred members at most; what each gives is in order, so compounds are members of another.
    parts = [" UNION ALL ".join(each[start : start + _MEMBERS]) for start in range(0, runs, _MEMBERS)]
    if len(parts) > 1:
        parts = [" UNION ALL ".join(f"SELECT * FROM ({part}{end})" for part in parts)]
    return parts[0] + end


def _direction(reverse: bool) -> str:
    return "DESC" if reverse else "ASC"


def _within(runs: Sequence[RunNumber]) -> str:
    """Return the condition on the number of the run."""
    if len(runs) == 1:
        return f"= {runs[0]}"
    return f"IN ({','.join(map(str, runs))})" if runs else "= -1"


def _laid(around: Sequence[_RunRow], leader: RunNumber, page: list[ReadRow], *, reverse: bool) -> list[ReadRow]:
    """Return the rows of a page of the run that leads with those of others, given run by run, under and over it."""
    older, rows = bisect_left(around, leader, key=_run), list(map(_row, around))
    return _overlaid(rows[:older], page, rows[older:], reverse=reverse)


def _overlaid(older: list[ReadRow], page: list[ReadRow], newer: list[ReadRow], *, reverse: bool) -> list[ReadRow]:
    """Return the rows of a page with newer ones in place of them, and newer and older ones between them.

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
    return [newest[slot] for slot in (reversed(slots) if reverse else slots)]


def _replaced(page: list[ReadRow], newer: list[ReadRow]) -> list[ReadRow] | None:
    """Return the rows of a page with a few newer ones in place of them; ``None`` where one has no row to replace."""
    slots: list[Any] = list(map(_slot, page))
    rows = page.copy()
    with suppress(TypeError):  # Numbers beside text are put in order elsewhere.
        if slots[0] > slots[-1]:
            return None
        for row in newer:
            place = bisect_left(slots, row[0])
            if place == len(slots) or slots[place] != row[0]:
                return None
            rows[place] = row
        return rows
    return None


def _range(lower: Slot | None, upper: Slot | None, last: Slot | None, reverse: bool) -> tuple[str, dict[str, Slot]]:
    """Return the SQL condition and the parameters of one page: within the bounds and beyond the last row seen."""
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


_MOST_AROUND = 8192
"""How many rows of other runs are laid over and under one page of the leading run."""

_FEW_OVER = 16
"""Where one row of so many or fewer is replaced by a newer one, these are put in place one by one."""

_LEAST_ROWS = 16
"""How many rows of the leading run make a page at least; so many are merged of all runs where none leads."""

_MEMBERS = 256
"""How many runs are merged by one compound statement; SQLite takes 500 by default."""

_slot = itemgetter(0)
_value = itemgetter(1)
_run = itemgetter(3)
_row = itemgetter(0, 1, 2)
