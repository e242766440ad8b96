"""Reading a store as of one checkpoint: the newest live run that has a slot decides what it holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from threading import RLock
from typing import NamedTuple

from checkpoint.run import CheckpointKind, IndexRow, Payload, Run, Slot, reachable


class StoredItem(NamedTuple):
    """A slot as it is stored: its value and, for kinds that keep insertion order, its rank."""

    slot: Slot
    value: Payload
    rank: int | None


class Reader:
    """A view of the state at one checkpoint, shared by everything that loads slots.

    The list of live runs decides the view: rows of other runs are never seen, not even those that a transaction on
    the same connection is about to commit.

    Args:
        connection: the connection to read through.
        lock: held while a statement runs, because a commit may run in another thread.
        runs: the numbers of the live runs, in any order.
    """

    PAGE_ROWS = 1024
    """How many rows one statement of a scan fetches; between pages the store may be written."""

    def __init__(self, connection: sqlite3.Connection, lock: RLock, runs: Sequence[int]) -> None:
        self._connection = connection
        self._lock = lock
        self.runs = tuple(sorted(runs, reverse=True))
        self._in = "= -1" if not runs else f"= {runs[0]}" if len(runs) == 1 else f"IN ({','.join(map(str, self.runs))})"
        self._point = (
            f"SELECT value, rank FROM state_item WHERE checkpoint {self._in} AND object = ? AND slot = ?"
            " ORDER BY checkpoint DESC LIMIT 1"
        )

    def index(self) -> list[IndexRow]:
        """Return the index row of every object that exists, in order of their ids."""
        rows = self._query(
            f"SELECT object, name, kind, codec, max(checkpoint) FROM state_index WHERE checkpoint {self._in}"
            " GROUP BY object ORDER BY object"
        )
        return [(row[0], row[1], row[2], row[3]) for row in rows if row[2] is not None]

    def metadata(self, object_id: int) -> dict[str, str]:
        """Return the metadata of one object: JSON text by key."""
        rows = self._query(
            f"SELECT key, value, max(checkpoint) FROM state_metadata WHERE checkpoint {self._in} AND object = ?"
            " GROUP BY key ORDER BY key",
            (object_id,),
        )
        return {key: value for key, value, _ in rows if value is not None}

    def item(self, object_id: int, slot: Slot) -> StoredItem | None:
        """Return what one slot holds, or ``None``.

        Time: O(live runs · log n).
        """
        with self._lock:
            row = self._connection.execute(self._point, (object_id, slot)).fetchone()
        if row is None or row[0] is None:
            return None
        return StoredItem(slot, row[0], row[1])

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
        page_rows = page_rows or self.PAGE_ROWS
        last: Slot | None = None
        while True:
            page = self._page(object_id, lower, upper, last, reverse, page_rows)
            for slot, value, rank, _ in page:
                if value is not None:
                    yield StoredItem(slot, value, rank)
            if len(page) < page_rows:
                return
            last = page[-1][0]

    def items_by_rank(self, object_id: int) -> Iterator[StoredItem]:
        """Yield the slots of an object in the order of their ranks.

        SQLite sorts outside memory where it must, so the memory used does not depend on the size of the object.
        """
        statement = (
            f"SELECT slot, value, rank, max(checkpoint) FROM state_item WHERE checkpoint {self._in} AND object = ?"
            " GROUP BY slot ORDER BY rank"
        )
        with self._lock:
            cursor = self._connection.execute(statement, (object_id,))
        while page := self._fetch(cursor):
            for slot, value, rank, _ in page:
                if value is not None:
                    yield StoredItem(slot, value, rank)

    def reachable(self) -> set[int]:
        """Return the ids of all objects that exist: the named ones and those that they own.

        Time: O(named objects + slots of objects that own others).
        """
        return reachable(self.index(), lambda object_id: (item.value for item in self.items(object_id)))

    def image(self) -> Run:
        """Return the complete state as one run.

        Time: O(state), memory too: for states that fit.
        """
        live = self.reachable()
        run = Run(CheckpointKind.FULL, index=self.index())
        for object_id in sorted(live):
            run.metadata += [(object_id, key, value) for key, value in self.metadata(object_id).items()]
            run.items += [(object_id, slot, value, rank) for slot, value, rank in self.items(object_id)]
        return run

    def count(self, object_id: int) -> int:
        """Return the number of slots that an object has stored.

        Time: O(n).
        """
        statement = (
            f"SELECT count(*) FROM (SELECT value, max(checkpoint) FROM state_item WHERE checkpoint {self._in}"
            " AND object = ? GROUP BY slot) WHERE value IS NOT NULL"
        )
        return int(self._query(statement, (object_id,))[0][0])

    def _page(
        self, object_id: int, lower: Slot | None, upper: Slot | None, last: Slot | None, reverse: bool, page_rows: int
    ) -> list[tuple[Slot, Payload | None, int | None, int]]:
        where, bounds = _range(lower, upper, last, reverse)
        order = f"ORDER BY slot {'DESC' if reverse else 'ASC'} LIMIT {page_rows}"
        # Each run gives its own first page through its index: without the inner limits SQLite would sort whole runs.
        branches = " UNION ALL ".join(
            "SELECT * FROM (SELECT slot, value, rank, checkpoint FROM state_item"
            f" WHERE checkpoint = {run} AND object = :object{where} {order})"
            for run in self.runs
        )
        if len(self.runs) == 1:
            return self._query(branches, {"object": object_id, **bounds})
        merged = f"SELECT slot, value, rank, max(checkpoint) FROM ({branches}) GROUP BY slot {order}"
        return self._query(merged, {"object": object_id, **bounds}) if self.runs else []

    def _query(self, statement: str, parameters: Sequence[object] | dict[str, object] = ()) -> list[tuple]:  # type: ignore[type-arg]
        with self._lock:
            return self._connection.execute(statement, parameters).fetchall()

    def _fetch(self, cursor: sqlite3.Cursor) -> list[tuple]:  # type: ignore[type-arg]
        with self._lock:
            return cursor.fetchmany(self.PAGE_ROWS)


def _range(lower: Slot | None, upper: Slot | None, last: Slot | None, reverse: bool) -> tuple[str, dict[str, Slot]]:
    """Return the SQL condition and the parameters of one page: within the bounds and beyond the last row seen."""
    conditions = {
        "lower": ("slot >= :lower", lower),
        "upper": ("slot <= :upper", upper),
        "last": ("slot < :last" if reverse else "slot > :last", last),
    }
    given = {name: (condition, bound) for name, (condition, bound) in conditions.items() if bound is not None}
    where = "".join(f" AND {condition}" for condition, _ in given.values())
    return where, {name: bound for name, (_, bound) in given.items()}
