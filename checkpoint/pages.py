"""The three tables that have rows of runs, and reading the rows of some runs page by page in order of their keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from checkpoint.session import Session
from checkpoint.tiers import RunNumber

PAGE_ROWS = 1024
"""How many rows one page looks at."""


class Table(NamedTuple):
    """A table: its name, the key after the number of the run, and the other columns."""

    name: str
    keys: str
    rest: str
    mark: str
    """The column whose NULL marks a deletion."""

    @property
    def width(self) -> int:
        """The number of columns of the key."""
        return self.keys.count(",") + 1


TABLES = (
    Table("state_index", "object", "name, kind, codec", "kind"),
    Table("state_metadata", "object, key", "value", "value"),
    Table("state_item", "object, slot", "value, rank", "value"),
)


def merged_pages(
    session: Session,
    table: Table,
    parts: Sequence[RunNumber],
    live: set[int] | None = None,
    after: tuple[Any, ...] | None = None,
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the rows that the newest of some runs have for each key, in order of keys, and how many were looked at.

    Args:
        session: the connection.
        table: the table.
        parts: the runs.
        live: the ids of the objects that exist, to leave out all others and deletions; None to leave out nothing.
        after: the key to begin after.
    """
    while True:
        page = session.rows(_page_statement(table, parts, after is None), dict(zip("ab", after or (), strict=False)))
        rows = []
        for row in page:
            key = row[: table.width]
            if key != after:
                after = key
                rows.append(row[:-1])
        yield len(page), rows if live is None else [row for row in rows if row[2] is not None and row[0] in live]
        if len(page) < PAGE_ROWS:
            return


def _page_statement(table: Table, parts: Sequence[RunNumber], is_first: bool) -> str:
    """Return the query of one page: SQLite merges the parts, of each of which just the rows of the page are read."""
    beyond = "" if is_first else f" AND ({table.keys}) > ({', '.join(':' + mark for mark in 'ab'[: table.width])})"
    branches = " UNION ALL ".join(
        f"SELECT {table.keys}, {table.rest}, checkpoint FROM {table.name} WHERE checkpoint = {part}{beyond}"
        for part in parts
    )
    return f"{branches} ORDER BY {table.keys}, checkpoint DESC LIMIT {PAGE_ROWS}"
