"""Reading a store as of one checkpoint: the newest live run that has a slot decides what it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import wraps
from operator import itemgetter
from typing import Any, Concatenate, NamedTuple, NoReturn, ParamSpec, TypeVar

import orjson

from checkpoint.digests import check_run
from checkpoint.errors import UnknownCheckpointError, not_copied
from checkpoint.lookup import Lookup, ReadRow, RunSpans, newest_of
from checkpoint.run import OWNED_KEY, CheckpointKind, IndexRow, Page, Payload, Run, Slot, is_owner, reachable
from checkpoint.scan import PageSize, Scan, value_column
from checkpoint.schema import VALUE
from checkpoint.session import Session
from checkpoint.tiers import RunNumber

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _steadily(method: Callable[Concatenate[Reader, _P], _R]) -> Callable[Concatenate[Reader, _P], _R]:
    """Keep all threads from changing the runs of a reader from when a statement is built until it ends."""

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


class SlotSummary(NamedTuple):
    """How many slots an object has, how many of them are no integers, and the least and the greatest of them."""

    slots: int
    others: int
    first: Slot | None
    last: Slot | None


StoredRow = tuple[Any, ...]
"""A slot as it is read with others: slot, value, and the rank if it was asked for."""


class Reader:
    """A view of the state at one checkpoint, shared by everything that loads slots.

    The list of live runs decides the view: rows of other runs are never seen, not even those that a transaction on the
    same connection is about to commit. It stays correct while checkpoints are made and while runs are merged: the store
    knows its readers, and merges no run away from under one.

    Args:
        session: the connection to read through.
        runs: the numbers of the runs that make up the state, in any order.
        between: returns a reader of only what came after one checkpoint, up to another; None if that is not known.
        run_spans: what is already known of the runs.
        is_partial: the runs are not a whole state, but what came on top of an older one.
    """

    PAGE_ROWS = 1024
    """How many rows one statement of a scan fetches; between pages the store may be written to."""

    FIRST_PAGE_ROWS = 16
    """How many rows it fetches first if the pages grow."""

    def __init__(
        self,
        session: Session,
        runs: Sequence[RunNumber],
        between: Callable[[int, int], Reader | None] | None = None,
        run_spans: RunSpans | None = None,
        *,
        is_partial: bool = False,
    ) -> None:
        self.is_partial = is_partial
        self._session, self._between, self.mutex = session, between, session.mutex
        self._run_spans = run_spans or RunSpans(session)
        self._refusal: str | None = None
        self.read_from(runs)

    def __repr__(self) -> str:
        what = f"{'changes up to ' if self.is_partial else ''}checkpoint {self.newest}"
        if self.is_retired:
            return f"<Reader of {self._session.path!r}, {what} [which no longer exists]>"
        return f"Reader({self._session.path!r}, {what}, runs {', '.join(map(str, self.runs)) or 'none'})"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise not_copied(self, "open the store where it is needed, and ask that for a reader")

    @_steadily
    def read_from(self, runs: Sequence[RunNumber]) -> None:
        """From now on, read the same state from other runs."""
        self.runs = tuple(sorted(runs, reverse=True))
        self._lookup = Lookup(self._session, self.runs, self._run_spans)

    @property
    def _in(self) -> str:
        """The condition on the number of the run."""
        if len(self.runs) == 1:
            return f"= {self.runs[0]}"
        return f"IN ({','.join(map(str, self.runs))})" if self.runs else "= -1"

    @property
    def newest(self) -> int:
        """The number of the checkpoint that this reads; 0 before the first."""
        return int(self.runs[0]) if self.runs else 0

    @property
    def is_retired(self) -> bool:
        """Whether the checkpoint that this reads no longer exists; another one may have its number by now."""
        return self._refusal is not None

    def retire(self, reason: str) -> None:
        """Refuse all further work, because the checkpoint that this reads no longer exists."""
        self._refusal = reason

    def require_readable(self) -> None:
        """Refuse to go on if the checkpoint that this reads no longer exists.

        Raises:
            UnknownCheckpointError: it does not exist.
        """
        if self._refusal is not None:
            raise UnknownCheckpointError(self._refusal)

    def of_nothing(self) -> Reader:
        """Return a reader of the empty state of the same store, which keeps no run from being merged."""
        return Reader(self._session, ())

    @_steadily
    def index(self) -> list[IndexRow]:
        """Return the index row of every object that exists, in order of id."""
        rows = self._query(
            f"SELECT object, name, kind, codec, max(checkpoint) FROM state_index WHERE checkpoint {self._in}"
            " GROUP BY object ORDER BY object"
        )
        return [(row[0], row[1], row[2], row[3]) for row in rows if row[2] is not None]

    @_steadily
    def named(self, names: Sequence[str]) -> dict[str, IndexRow]:
        """Return the index rows of those objects that have one of some names, by their names.

        Time: O(objects), of which only those that ever had such a name are brought into memory.
        """
        rows = self._query(
            f"SELECT DISTINCT object FROM state_index WHERE checkpoint {self._in}"
            f" AND name IN ({','.join('?' * len(names))})",
            names,
        )
        found = filter(None, [self.entry(row[0]) for row in rows])
        return {row[1]: row for row in found if row[1] in names}

    @_steadily
    def entry(self, object_id: int) -> IndexRow | None:
        """Return the index row of one object, or ``None`` if no object with this id has a name.

        Time: O(live runs · log n).
        """
        self.require_readable()
        row = self._session.row(
            f"SELECT object, name, kind, codec FROM state_index WHERE checkpoint {self._in} AND object = ?"
            " ORDER BY checkpoint DESC LIMIT 1",
            (object_id,),
        )
        return None if row is None or row[2] is None else row

    def knew(self, object_id: int, name: str, kind: str) -> bool:
        """Return whether the object had this id, name and kind in a checkpoint since which the store has all rows.

        An object that had the id before and was deleted does not count: the changes of a fork may use its id again. If
        the rows of a checkpoint are gone, that checkpoint may have deleted it.

        Time: O(index rows + checkpoints).
        """
        self.require_readable()
        has_merged = self._session.has_table("run")
        query = (
            "SELECT 1 FROM state_index WHERE object = :id AND name = :name AND kind = :kind"
            f" AND checkpoint > (SELECT coalesce(max(run), 0) FROM ({_DELETIONS if has_merged else _DELETED}))"
            f" AND checkpoint >= (SELECT max(number) FROM ({_WITHOUT_ROWS})) LIMIT 1"
        )
        return self._session.row(query, {"id": object_id, "name": name, "kind": kind}) is not None

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
        """Return the JSON text of one key of the metadata of one object, or ``None`` if it is not stored.

        Time: O(live runs · log n); O(log n) if the newest run has it.
        """
        self.require_readable()
        statement = newest_of("value", "state_metadata", "key", len(self.runs))
        row = self._session.peek(statement, (*self.runs, object_id, key)) if self.runs else None
        return None if row is None else row[0]

    def item(self, object_id: int, slot: Slot) -> StoredItem | None:
        """Return what one slot holds, or ``None`` if it holds nothing.

        Time: O(live runs · log n).
        """
        with self.mutex:
            if self._refusal is not None:
                self.require_readable()
            row = self._lookup.one(object_id, slot)
        return None if row is None or row[0] is None else _new(StoredItem, (slot, row[0], row[1]))

    @_steadily
    def last_slot(self, object_id: int) -> Slot | None:
        """Return the greatest slot of an object, or ``None`` if it has none.

        Time: O(live runs · log n), unless slots at the end were deleted recently.
        """
        self.require_readable()
        slot, is_deleted = self._lookup.last(object_id)
        if not is_deleted:
            return slot
        return next((item.slot for item in self.items(object_id, reverse=True, page_rows=1)), None)

    @_steadily
    def items_at(self, object_id: int, slots: Sequence[Slot]) -> list[ReadRow]:
        """Return the rows of those among many slots that hold anything, in any order: faster than one by one.

        Time: O(slots · live runs · log n).
        """
        self.require_readable()
        return [row for row in self._lookup.many(object_id, slots) if row[1] is not None]

    @_steadily
    def slots_naming(self, owner: int, ids: Iterable[int]) -> list[Slot]:
        """Return the slots of an object that name one of some ids, including those that name it only in an older run.

        Time: O(slots stored), all of it inside SQLite.
        """
        mark = f'"{OWNED_KEY}":'
        rows = self._query(
            f"SELECT DISTINCT slot FROM stored_item WHERE checkpoint {self._in} AND object = ? AND value IS NOT NULL"
            f" AND CAST(substr(value, instr(value, '{mark}') + {len(mark)}) AS INTEGER)"
            " IN (SELECT value FROM json_each(?))",
            (owner, orjson.dumps(sorted(ids)).decode()),
        )
        return [row[0] for row in rows]

    @_steadily
    def depth(self, object_id: int) -> int:
        """Return how many of the runs have rows of an object."""
        self.require_readable()
        return len(self.runs) if len(self.runs) < 2 else len(self._run_spans.of(self.runs, object_id))

    @_steadily
    def has_large(self, object_id: int) -> bool:
        """Return whether an object has values that are stored apart from their rows.

        Time: O(slots stored) without their values; O(1) if the store has no such value.
        """
        if not self._query("SELECT 1 FROM state_large LIMIT 1"):
            return False
        statement = f"SELECT 1 FROM state_item WHERE checkpoint {self._in} AND object = ? AND typeof(value) = 'integer'"
        return bool(self._query(f"{statement} LIMIT 1", (object_id,)))

    def items(
        self,
        object_id: int,
        lower: Slot | None = None,
        upper: Slot | None = None,
        *,
        reverse: bool = False,
        page_rows: int | None = None,
    ) -> Iterator[StoredItem]:
        """Yield the slots of an object in slot order, with ``lower <= slot <= upper`` if bounds are given.

        Rows are fetched page by page, so the memory used does not depend on the size of the object.
        """
        for row in self.rows(object_id, lower, upper, reverse=reverse, page_rows=page_rows):
            if row[1] is not None:
                yield StoredItem._make(row)

    def rows(
        self,
        object_id: int,
        lower: Slot | None = None,
        upper: Slot | None = None,
        *,
        reverse: bool = False,
        page_rows: int | None = None,
    ) -> Iterator[ReadRow]:
        """Yield the newest row of each slot as :meth:`items` does, but include deletions (value ``None``)."""
        scan = Scan(self, self._session, self._run_spans, object_id, lower, upper, reverse=reverse)
        for page in scan.pages(page_rows or self.PAGE_ROWS):
            yield from page

    def item_pages(
        self,
        object_id: int,
        lower: Slot | None = None,
        upper: Slot | None = None,
        *,
        reverse: bool = False,
        page_rows: int | None = None,
        only: str | None = None,
    ) -> Iterator[list[tuple[Slot, Payload]]]:
        """Yield slots and values in pages, in the order of :meth:`items`.

        Unless ``page_rows`` is given, pages grow, as most scans end early. If ``only`` says how a value begins, other
        values are not fetched: ``""`` stands for them.
        """
        scan = Scan(
            self, self._session, self._run_spans, object_id, lower, upper, reverse=reverse, has_ranks=False, only=only
        )
        for page in scan.pages(page_rows or self.FIRST_PAGE_ROWS):
            yield [row for row in page if row[1] is not None] if None in map(_value, page) else page

    def items_by_rank(self, object_id: int, *, reverse: bool = False, limit: int | None = None) -> Iterator[StoredItem]:
        """Yield the slots of an object in the order of their ranks.

        SQLite sorts, outside memory if necessary, so the memory used does not depend on the size of the object. The
        order is fixed when the first slot is fetched: the store may be written to meanwhile.

        Args:
            object_id: the object.
            reverse: start with the highest rank.
            limit: how many slots to yield at most: a few are found without sorting all.

        Time: O(slots stored), nearly all of it inside SQLite if ``limit`` is small.
        """
        for page in self.pages_by_rank(object_id, reverse=reverse, limit=limit):
            yield from map(StoredItem._make, page)

    def pages_by_rank(
        self, object_id: int, *, reverse: bool = False, limit: int | None = None, only: str | None = None
    ) -> Iterator[list[ReadRow]]:
        """Yield the slots as :meth:`items_by_rank` does, page by page, with values as :meth:`item_pages` has them."""
        with ExitStack() as stack:
            with self.mutex:
                self.require_readable()
                statement = (
                    f"SELECT slot, {value_column(only)}, rank"
                    f" FROM (SELECT slot, {VALUE} AS value, rank"
                    " FROM (SELECT slot, value, rank, max(checkpoint) FROM state_item"
                    f" WHERE checkpoint {self._in} AND object = ? GROUP BY slot)) WHERE value IS NOT NULL"
                    f" ORDER BY rank {'DESC' if reverse else 'ASC'} LIMIT ?"
                )
                cursor = self._session.cursor(statement, (object_id, -1 if limit is None else limit))
                size = self.page_size()
                fetch = stack.enter_context(cursor)
            while page := fetch(size.rows):
                size.after(page, self.PAGE_ROWS)
                yield page

    def page_size(self) -> PageSize:
        """Return how many rows the pages have of whoever reads many rows one page after another."""
        return PageSize(self._session, self.PAGE_ROWS, self.PAGE_ROWS)

    def since(self, older: Reader) -> Reader | None:
        """Return a reader of only the runs that came on top of an older checkpoint; deletions are part of them.

        Returns:
            ``None`` if this state is not the older one with later runs on top: the runs between are gone, were replaced
                by a complete image, or lie in another file.
        """
        if self._session is not older._session or self._between is None or not 0 < older.newest <= self.newest:
            return None
        between = self._between(older.newest, self.newest)
        # What an object held before it was deleted is in no later run once a base was made without it: if the object
        # has come back since, only a comparison shows what it lost.
        is_risky = between is not None and between.runs and int(self.runs[-1]) > older.newest
        if is_risky and between is not None and between.deletes_objects(filter(is_owner, self.index())):
            return None
        return between

    @_steadily
    def touched(self) -> set[int]:
        """Return the ids of all objects that the runs have any row of, whether or not they still exist.

        Time: O(rows).
        """
        statements = (
            f"SELECT DISTINCT object FROM {table} WHERE checkpoint {self._in}"
            for table in ("state_index", "state_metadata", "state_item")
        )
        return {row[0] for statement in statements for row in self._query(statement)}

    def deletes_objects(self, owners: Iterable[IndexRow] = ()) -> bool:
        """Return whether the runs have a row that deletes an object: one with a name, or one of some owners.

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

    def check_rows(self) -> None:
        """Compare the rows of the runs with the digests that were recorded of them.

        Raises:
            CorruptStoreError: they are not as they were written.

        Time: O(rows of the runs). The rows are streamed.
        """
        self.require_readable()
        for run in self.runs:
            for _ in check_run(self._session, run):
                pass

    def image(self) -> Run:
        """Return the complete state as one run.

        Time: O(state), memory too: for states that fit.
        """
        return Run.of_pages(CheckpointKind.FULL, self.image_pages())

    def image_pages(self, page_rows: int = 65_536, index: list[IndexRow] | None = None) -> Iterator[Page]:
        """Yield the complete state page by page, in the order of a run.

        Args:
            page_rows: about how many rows a page has.
            index: the index rows of the objects to include, together with those that they own; all by default.

        Time: O(state); the memory used does not depend on it, only on the number of objects.
        """
        index = self.index() if index is None else index
        if index:
            yield 0, index
        live = sorted(reachable(index, lambda object_id: (item.value for item in self.items(object_id))))
        metadata = ([(one, key, value) for key, value in self.metadata(one).items()] for one in live)
        items = (
            [(one, *row) for row in page if row[1] is not None]
            for one in live
            for page in Scan(self, self._session, self._run_spans, one).pages(self.PAGE_ROWS)
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
        """Return how many slots of an object are stored.

        Time: O(n).
        """
        statement = (
            f"SELECT count(*) FROM (SELECT value, max(checkpoint) FROM state_item WHERE checkpoint {self._in}"
            " AND object = ? GROUP BY slot) WHERE value IS NOT NULL"
        )
        return int(self._query(statement, (object_id,))[0][0])

    @_steadily
    def summary(self, object_id: int) -> SlotSummary:
        """Return how many slots of an object are stored, and which of them are the least and the greatest.

        Time: O(n).
        """
        statement = (
            "SELECT count(*), count(nullif(typeof(slot), 'integer')), min(slot), max(slot) FROM (SELECT slot, value,"
            f" max(checkpoint) FROM state_item WHERE checkpoint {self._in} AND object = ? GROUP BY slot)"
            " WHERE value IS NOT NULL"
        )
        return SlotSummary._make(self._query(statement, (object_id,))[0])

    @_steadily
    def last_rank(self, object_id: int) -> int | None:
        """Return the highest rank of the slots of an object, or None if no slot has one.

        Time: O(slots stored), all of it inside SQLite.
        """
        statement = (
            f"SELECT max(rank) FROM (SELECT value, rank, max(checkpoint) FROM state_item WHERE checkpoint {self._in}"
            " AND object = ? GROUP BY slot) WHERE value IS NOT NULL"
        )
        found: int | None = self._query(statement, (object_id,))[0][0]
        return found

    def _query(self, statement: str, parameters: Sequence[object] | Mapping[str, object] = ()) -> list[Any]:
        self.require_readable()
        return self._session.rows(statement, parameters)


_new = tuple.__new__
"""Makes a row at once: the class of a named tuple has a constructor in Python, which every read would wait for."""

_value = itemgetter(1)

_WITHOUT_ROWS = """
    SELECT max(number) AS number FROM checkpoint WHERE run_slots IS NULL
    UNION ALL SELECT max(number) - 1 FROM checkpoint WHERE number - 1 NOT IN (SELECT number FROM checkpoint)
"""
"""The newest checkpoints that no longer have rows of their own: one that is on record, and one that is not."""

_DELETED = """
    SELECT checkpoint AS run FROM state_index WHERE object = :id AND kind IS NULL
    UNION ALL SELECT number FROM checkpoint WHERE kind = 'full' AND run_slots IS NOT NULL
    AND number NOT IN (SELECT checkpoint FROM state_index WHERE object = :id)
"""
"""The runs in which an object is gone: those that delete it, and whole states without it."""

_DELETIONS = f"""
    {_DELETED}
    UNION ALL SELECT run FROM run WHERE state = 'merged' AND run NOT IN (
        SELECT checkpoint FROM state_index WHERE object = :id
    ) AND (
        first IN (SELECT number FROM checkpoint WHERE kind = 'full')
        OR first = (SELECT min(first) FROM run WHERE state = 'merged')
        AND first <= (SELECT min(coalesce(run_first, number)) FROM checkpoint WHERE run_slots IS NOT NULL)
    )
"""
"""The same for a store that has merged runs: a merged run that has nothing below it is a whole state."""
