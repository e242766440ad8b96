"""The three tables that have rows of runs, and reading the rows of some runs page by page in key order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from checkpoint.errors import REPAIR, CorruptStoreError
from checkpoint.run import slot_order
from checkpoint.session import Session
from checkpoint.tiers import RunNumber

PAGE_ROWS = 1024
"""About how many rows one page looks at."""

BYTES_A_ROW = 1024
"""Reading so many bytes takes as long as looking at a row: if there is more to read, a page has fewer rows."""

_MOST_ROWS = 4 * PAGE_ROWS
_NO_LIMIT = -1
_LEAST_STEP = 16

Key = tuple[Any, ...]
Seen = Callable[[RunNumber, list[Any]], None]


class RunTable(NamedTuple):
    """A table that has rows of runs: its name, the key after the number of the run, and the other columns."""

    name: str
    keys: str
    rest: str
    deleted_column: str
    """The column whose NULL marks a deletion."""
    width: int
    """The number of columns of the key."""
    integers: tuple[int, ...] = (0,)
    """The positions of the columns that hold only integers."""
    stored: str | None = None
    """The view that shows what the rows stand for, if the table does not."""

    @property
    def source(self) -> str:
        """Where the rows are read from."""
        return self.stored or self.name

    @property
    def columns(self) -> int:
        """The number of all columns after the number of the run."""
        return self.width + self.rest.count(",") + 1


TABLES = (
    RunTable("state_index", "object", "name, kind, codec", "kind", 1),
    RunTable("state_metadata", "object, key", "value", "value", 2),
    RunTable("state_item", "object, slot", "value, rank", "value", 2, (0, 3), "stored_item"),
)

ITEMS = len(TABLES) - 1
"""The position of the table of items."""


def merged_pages(
    session: Session,
    table: RunTable,
    parts: Sequence[RunNumber],
    live: set[int] | None = None,
    after: Key | None = None,
    seen: Seen | None = None,
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the newest row that some runs have for each key, in key order, page by page, with how many were looked at.

    Args:
        session: the connection.
        table: the table.
        parts: the runs, oldest first.
        live: the ids of the objects that exist, to leave out all others and deletions; None to leave out nothing.
        after: the key to begin after.
        seen: called with each run and its next rows, in key order: all of its rows, one page after another.

    Raises:
        CorruptStoreError: a key is not a valid one.
    """
    for rows in _pages(session, table, parts, after):
        counts = Counter(map(_run, rows))
        if not counts.keys() <= set(parts):
            raise _damaged(session, table)
        plain = list(map(itemgetter(slice(0, -1)), rows))
        if seen:
            start = 0
            for part, count in counts.items():
                seen(part, plain[start : start + count])
                start += count
        if len(counts) > 1:
            try:
                plain = newest_rows(table, plain)
            except TypeError as error:
                raise _damaged(session, table) from error
        yield len(rows), in_use(plain, live)


def _damaged(session: Session, table: RunTable) -> CorruptStoreError:
    return CorruptStoreError(f"{session.path}: {table.name} has a row with an invalid key: it is damaged; {REPAIR}")


def newest_rows(table: RunTable, rows: list[Any]) -> list[Any]:
    """Return the last row of each key, in key order."""
    is_of_one = table.width > 1 and len(set(map(_object, rows))) == 1
    key_of = _slot if is_of_one else itemgetter(*range(table.width))
    newest = dict(zip(map(key_of, rows), rows, strict=True))
    try:
        # The rows are already in order within each run, so sorting them is little more than merging.
        keys = sorted(newest)
    except TypeError:
        keys = sorted(newest, key=lambda key: key_order((0, key) if is_of_one else key))
    return list(map(newest.__getitem__, keys))


def in_use(rows: list[Any], live: set[int] | None) -> list[Any]:
    """Return the rows except deletions and those of objects that do not exist; all of them if that is not known."""
    return rows if live is None else [row for row in rows if row[2] is not None and row[0] in live]


def bytes_of(rows: list[Any]) -> int:
    """Return the total length of the values of some item rows."""
    return bytes_in(map(_value, rows))


def bytes_in(values: Iterable[Any]) -> int:
    """Return the total length of some values, of which those of deleted slots are ``None``."""
    found = list(filter(None, values))
    try:
        return sum(map(len, found))
    except TypeError:  # Damage has left something that is not a value.
        return sum(len(value) for value in found if isinstance(value, str | bytes))


def key_order(key: Key) -> tuple[Any, int, Any]:
    """Return a key that sorts the keys of metadata or items as SQLite does."""
    return key[0], *slot_order(key[1])


def _pages(session: Session, table: RunTable, parts: Sequence[RunNumber], after: Key | None) -> Iterator[list[Any]]:
    """Yield the rows of all parts page by page, each page a range of keys, and within it part by part, oldest first.

    One part leads: a page ends after so many rows of it. If the others turn out to have far more rows in between, the
    part that has most leads from then on. If all that is left is one page, no part has to lead.
    """
    may_be_large = bool(table.stored and session.row("SELECT 1 FROM state_large LIMIT 1"))
    rest = f"FROM {table.source} WHERE checkpoint IN ({', '.join(map(str, parts))}){_beyond(table, after is None)}"
    most = _LEAST_STEP if may_be_large else _MOST_ROWS
    left = session.row(f"SELECT count(*) FROM (SELECT 1 {rest} LIMIT {most})", _named("ab", after))[0]
    if left < most:
        columns = f"{table.keys}, {table.rest}, checkpoint"
        rows = session.rows(f"SELECT {columns} {rest} ORDER BY checkpoint, {table.keys}", _named("ab", after))
        if rows:
            yield rows
        return
    step = 1 if may_be_large else max(_LEAST_STEP, PAGE_ROWS // max(1, len(parts)))
    leaders, limit = list(parts), _MOST_ROWS
    while leaders:
        last = _key_beyond(session, table, leaders[0], after, step)
        if last is None:
            leaders.pop(0)
            continue
        bounds = {**_named("ab", after), **_named("cd", last), "limit": limit}
        rows = session.rows(_range_statement(table, parts, after is None), bounds)
        if len(rows) == limit:
            leader = Counter(map(_run, rows)).most_common(1)[0][0]
            leaders = [leader, *(part for part in leaders if part != leader)]
            # If even one row of the leader is too much, there are thousands of parts, and the page is as large as it
            # is.
            limit, step = limit if step > 1 else _NO_LIMIT, max(1, step // 2)
            continue
        yield rows
        after, limit = last, _MOST_ROWS
        cost = len(rows) + (bytes_of(rows) // BYTES_A_ROW if may_be_large else 0)
        step = max(1 if may_be_large else _LEAST_STEP, min(PAGE_ROWS, step * PAGE_ROWS // cost))


def _key_beyond(session: Session, table: RunTable, part: RunNumber, after: Key | None, step: int) -> Key | None:
    """Return the key that is so many rows of a part beyond another one, or its last key; None if there is none."""
    where = f"FROM {table.name} WHERE checkpoint = {part}{_beyond(table, after is None)}"
    backwards = ", ".join(f"{key} DESC" for key in table.keys.split(", "))
    for order in (f"{table.keys} LIMIT 1 OFFSET {step - 1}", f"{backwards} LIMIT 1"):
        found: Key | None = session.row(f"SELECT {table.keys} {where} ORDER BY {order}", _named("ab", after))
        if found is not None:
            return found
    return None


def _range_statement(table: RunTable, parts: Sequence[RunNumber], is_first: bool) -> str:
    """Return the query of one page; SQLite seeks its range in each of the parts."""
    upto = f"({table.keys}) <= ({', '.join(':' + name for name in 'cd'[: table.width])})"
    return (
        f"SELECT {table.keys}, {table.rest}, checkpoint FROM {table.source} WHERE checkpoint IN"
        f" ({', '.join(map(str, parts))}){_beyond(table, is_first)} AND {upto}"
        f" ORDER BY checkpoint, {table.keys} LIMIT :limit"
    )


def _beyond(table: RunTable, is_first: bool) -> str:
    return "" if is_first else f" AND ({table.keys}) > ({', '.join(':' + name for name in 'ab'[: table.width])})"


def _named(names: str, key: Key | None) -> dict[str, Any]:
    return dict(zip(names, key or (), strict=False))


_object = itemgetter(0)
_slot = itemgetter(1)
_value = itemgetter(2)
_run = itemgetter(-1)
