"""Seals: a checksum in every record of a checkpoint and of a merged run, so that a wrong one is told, and put right.

What a store shows hangs on these few cells. A checkpoint that is said to be full hides all that is older, and lets it
be deleted; a merged run that is said to begin too early hides what lies there. No digest of rows covers them.

A record that is not as it was written is compared with all that another bit, another word or a number nearby would make
of it. Where one of these fits the seal, that is what was written: any other has one chance in four thousand million.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from zlib import crc32

Row = tuple[Any, ...]

FORMAT = 5
"""The first format whose records have seals."""


_NEAR = 64


class Sealed(NamedTuple):
    """A table whose rows have seals.

    Args:
        table: its name.
        columns: what the seal is of; the first is the key.
        words: what some of them may say.
    """

    table: str
    columns: tuple[str, ...]
    words: Mapping[str, Sequence[str]]

    @property
    def key(self) -> str:
        """The column by which a row is found."""
        return self.columns[0]

    def select(self, where: str = "TRUE", also: str = "") -> str:
        """Return the statement that reads rows with their seals, and other columns behind them."""
        return f"SELECT {', '.join(self.columns)}, seal{also} FROM {self.table} WHERE {where}"


CHECKPOINT = Sealed(
    "checkpoint",
    ("number", "epoch", "kind", "parent", "slots", "bytes", "digest", "time", "format", "run_first"),
    {"kind": ("full", "differential")},
)
"""What a checkpoint was when it was committed; ``run_slots`` and ``run_digest`` go with its run, and are not sealed."""

RUN = Sealed(
    "run",
    ("run", "first", "last", "slots", "state", "parts"),
    {"state": ("merging", "merged", "dropped")},
)
"""What the catalogue says of a merged run, or of one whose rows are being deleted."""

TABLES = (CHECKPOINT, RUN)


def seal_of(cells: Sequence[object]) -> int:
    """Return the seal of a row: a checksum of what stands in its sealed columns.

    >>> seal_of((1, 10, "full")) == seal_of((1, 10, "differential"))
    False
    """
    return crc32(ascii(tuple(cells)).encode())


def is_right(row: Row) -> bool:
    """Tell whether a row, with its seal as the last cell, is as it was written."""
    return bool(row[-1] == crc32(ascii(row[:-1]).encode()))


def written(sealed: Sealed, row: Row) -> Row | None:
    """Return a row, with its seal as the last cell, as it was written; ``None`` where that cannot be told.

    Time: O(bits of the row) where it is wrong.
    """
    if is_right(row):
        return row
    *cells, seal = row
    for place, name in enumerate(sealed.columns[1:], start=1):
        for other in (None, *sealed.words.get(name, ()), *_near(cells[place])):
            if seal_of((*cells[:place], other, *cells[place + 1 :])) == seal:
                return (*cells[:place], other, *cells[place + 1 :], seal)
    return None


def _near(cell: object) -> Iterator[object]:
    if isinstance(cell, int):
        yield from (cell ^ (1 << bit) for bit in range(63))
        yield from range(cell - _NEAR, cell + _NEAR)
    elif isinstance(cell, str):
        data = cell.encode(errors="surrogatepass")
        whole = int.from_bytes(data)
        for bit in range(8 * len(data)):
            with suppress(UnicodeDecodeError):
                yield (whole ^ (1 << bit)).to_bytes(len(data)).decode()


def find_wrong(query: Callable[[str], Iterable[Row]], sealed: Sealed) -> Iterator[Row]:
    """Yield the rows of a table that are not as they were written.

    Args:
        query: returns the rows that a statement gives.
        sealed: the table.

    Time: O(rows of the table).
    """
    return (row for row in query(sealed.select()) if not is_right(row))


def renew(connection: sqlite3.Connection, sealed: Sealed, keys: Iterable[float]) -> None:
    """Seal rows as they are now.

    Dirties: the rows.
    """
    for key in keys:
        row = connection.execute(sealed.select(f"{sealed.key} = ?"), (key,)).fetchone()
        connection.execute(f"UPDATE {sealed.table} SET seal = ? WHERE {sealed.key} = ?", (seal_of(row[:-1]), key))


def add(connection: sqlite3.Connection) -> None:
    """Seal all rows that have no seal, as those that a store of an older format has left.

    Dirties: the rows.
    """
    for sealed in TABLES:
        renew(connection, sealed, [row[0] for row in connection.execute(sealed.select("seal IS NULL")).fetchall()])


def mend(connection: sqlite3.Connection) -> list[str]:
    """Put right the rows that are not as they were written, and return what was wrong.

    A record of a checkpoint of which it cannot be told what is wrong stays and is sealed: its run has a digest of its
    own. A merged run of which it cannot be told stays wrong, and so is nobody's.

    Dirties: the rows.
    """
    damages = []
    for sealed in TABLES:
        for row in list(find_wrong(connection.execute, sealed)):
            damages.append(said_of(sealed, row))
            right = written(sealed, row)
            if right is not None:
                _write(connection, sealed, right)
            elif sealed is CHECKPOINT:
                renew(connection, sealed, row[:1])
    return damages


def _write(connection: sqlite3.Connection, sealed: Sealed, row: Row) -> None:
    cells = ", ".join(f"{name} = ?" for name in sealed.columns)
    connection.execute(f"UPDATE {sealed.table} SET {cells} WHERE {sealed.key} = ?", (*row[:-1], row[0]))


def said_of(sealed: Sealed, row: Row) -> str:
    """Say what is wrong with a row."""
    right = written(sealed, row)
    what = "the record of checkpoint" if sealed is CHECKPOINT else "what the catalogue says of run"
    if right is None:
        return f"{what} {row[0]!r} is not as it was written, and it cannot be told which of {row[:-1]} is wrong"
    name, found, wanted = next(
        (name, found, wanted)
        for name, found, wanted in zip((*sealed.columns, "seal"), row, right, strict=True)
        if found != wanted or type(found) is not type(wanted)
    )
    return f"{what} {row[0]!r} is not as it was written: its {name} is {found!r} and was {wanted!r}"
