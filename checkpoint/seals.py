"""Seals: a checksum in every record of a checkpoint and of a merged run, so that a wrong one is detected and corrected.

What a store shows depends on these few cells. A checkpoint recorded as full hides all that is older, and lets it be
deleted; a merged run recorded as beginning too early hides what lies there. No digest of rows covers them.

A record that is not as it was written is compared with everything that another bit, another word or a nearby number
would make of it. If one of these fits the seal, it is what was written: any other has one chance in four thousand
million.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple
from zlib import crc32

Row = tuple[Any, ...]

Likely = Mapping[str, Iterable[object]]
"""For some columns, what their cells are likely to have been."""

FORMAT = 5
"""The first format whose records have seals."""


_NEAR, _MOST_EPOCHS = 64, 100_000
"""So many numbers around a wrong one are tried, and so many epochs after the previous one."""


class Sealed(NamedTuple):
    """A table whose rows have seals.

    Args:
        table: its name.
        columns: what the seal covers; the first is the key.
        words: the values that some of them may have.
    """

    table: str
    columns: tuple[str, ...]
    words: Mapping[str, Sequence[str]]

    @property
    def key(self) -> str:
        """The column by which a row is found."""
        return self.columns[0]

    def select(self, where: str = "TRUE", also: str = "") -> str:
        """Return the statement that reads rows with their seals, followed by other columns."""
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


def fetch_as_stored(connection: sqlite3.Connection, statement: str, parameters: Sequence[object] = ()) -> list[Any]:
    """Return all rows of a query; in text that is not UTF-8, the invalid bytes appear as lone surrogates."""
    factory, connection.text_factory = connection.text_factory, _text_as_stored
    try:
        return connection.execute(statement, parameters).fetchall()
    finally:
        connection.text_factory = factory


def _text_as_stored(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def seal_of(cells: Sequence[object]) -> int:
    """Return the seal of a row: a checksum of its sealed columns.

    >>> seal_of((1, 10, "full")) == seal_of((1, 10, "differential"))
    False
    """
    return crc32(ascii(tuple(cells)).encode())


def is_right(row: Row) -> bool:
    """Return whether a row, with its seal as the last cell, is as it was written."""
    return bool(row[-1] == crc32(ascii(row[:-1]).encode()))


def written(sealed: Sealed, row: Row, likely: Likely = MappingProxyType({})) -> Row | None:
    """Return a row, with its seal as the last cell, as it was written; ``None`` if that cannot be determined.

    Args:
        sealed: the table.
        row: the row.
        likely: what else some of its cells may have been.

    Time: O(bits of the row) if it is wrong.
    """
    if is_right(row):
        return row
    *cells, seal = row
    for place, name in enumerate(sealed.columns):
        words = sealed.words.get(name, ())
        for other in chain((None,), words, _near(cells[place]), likely.get(name, ())):
            if seal_of((*cells[:place], other, *cells[place + 1 :])) == seal:
                return (*cells[:place], other, *cells[place + 1 :], seal)
    return None


def _near(cell: object) -> Iterator[object]:
    if isinstance(cell, int):
        yield from (cell ^ (1 << bit) for bit in range(63))
        yield from range(cell - _NEAR, cell + _NEAR)
    elif isinstance(cell, str):
        data = cell.encode(errors="surrogateescape")
        whole = int.from_bytes(data)
        for bit in range(8 * len(data)):
            with suppress(UnicodeDecodeError):
                yield (whole ^ (1 << bit)).to_bytes(len(data)).decode()


def find_wrong(query: Callable[[str], Iterable[Row]], sealed: Sealed) -> Iterator[Row]:
    """Yield the rows of a table that are not as they were written.

    Args:
        query: returns the rows of a statement, with text as it is stored.
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
    """Seal all rows that have no seal, such as those from a store of an older format.

    Dirties: the rows.
    """
    for sealed in TABLES:
        renew(connection, sealed, [row[0] for row in connection.execute(sealed.select("seal IS NULL")).fetchall()])


def mend(connection: sqlite3.Connection) -> tuple[list[str], list[int]]:
    """Correct the rows that are not as they were written.

    If it cannot be determined what is wrong with the record of a checkpoint, the record stays and is sealed: its run
    has a digest of its own. If it cannot be determined for a merged run, that stays wrong, and so belongs to nobody.

    Returns:
        what was wrong, and the checkpoints for which it cannot be determined whether they hide what is older, or what
            their epoch is.

    Dirties: the rows.
    """
    damages: list[str] = []
    doubtful: list[int] = []
    for sealed in TABLES:
        for row in list(find_wrong(partial(fetch_as_stored, connection), sealed)):
            likely = _likely(connection, row) if sealed is CHECKPOINT else {}
            right = written(sealed, row, likely)
            damages.append(said_of(sealed, row, right))
            if right is not None:
                _write(connection, sealed, row[0], right[:-1])
            elif sealed is CHECKPOINT:
                _write(connection, sealed, row[0], _legible(row[:-1]))
                doubtful += [row[0]] if _is_doubtful(connection, row) else []
    return damages, doubtful


def is_believed(row: Row) -> bool:
    """Return whether the record of a checkpoint can be relied on although it is not known what is wrong with it.

    It cannot if it says that nothing before it counts: that may be what is wrong.
    """
    number, _, kind = row[:3]
    return isinstance(number, int) and (number == 1 or kind == "differential")


def _likely(connection: sqlite3.Connection, row: Row) -> dict[str, Sequence[object]]:
    """Return what cells of the record of a checkpoint are likely to have been, judging by what is stored elsewhere."""
    own = connection.execute("SELECT run_slots, run_digest FROM checkpoint WHERE number = ?", row[:1]).fetchone()
    before, after = _epochs_around(connection, row)
    low = max(before + 1, min(after, 2**62) - _MOST_EPOCHS) if before == -(2**63) else before + 1
    return {"slots": own[:1], "digest": own[1:], "epoch": range(low, min(after, low + _MOST_EPOCHS))}


def _epochs_around(connection: sqlite3.Connection, row: Row) -> tuple[int, int]:
    """Return the epochs of the checkpoints before and after one."""
    statements = (
        "SELECT max(epoch) FROM checkpoint WHERE number < ?",
        "SELECT min(epoch) FROM checkpoint WHERE number > ?",
    )
    before, after = (connection.execute(statement, row[:1]).fetchone()[0] for statement in statements)
    return before if isinstance(before, int) else -(2**63), after if isinstance(after, int) else 2**63


def _is_doubtful(connection: sqlite3.Connection, row: Row) -> bool:
    before, after = _epochs_around(connection, row)
    return not (is_believed(row) and isinstance(row[1], int) and before < row[1] < after)


def _legible(cells: Sequence[Any]) -> Row:
    """Return cells that the sqlite3 module can read again, whatever they are."""
    texts = (
        cell.encode(errors="surrogateescape").decode(errors="replace") if isinstance(cell, str) else cell
        for cell in cells
    )
    number, epoch, kind, *others = texts
    return (number, epoch, kind if kind in CHECKPOINT.words["kind"] else "differential", *others)


def _write(connection: sqlite3.Connection, sealed: Sealed, key: object, cells: Row) -> None:
    """Write a row as it should be, and seal it."""
    names = ", ".join(f"{name} = ?" for name in (*sealed.columns, "seal"))
    connection.execute(f"UPDATE {sealed.table} SET {names} WHERE {sealed.key} = ?", (*cells, seal_of(cells), key))


def said_of(sealed: Sealed, row: Row, right: Row | None) -> str:
    """Say what is wrong with a row, given what it should be, which is ``None`` if that is not known."""
    what = "the record of checkpoint" if sealed is CHECKPOINT else "what the catalogue says of run"
    if right is None:
        return f"{what} {row[0]!r} is not as it was written, and it cannot be told which of {row[:-1]} is wrong"
    name, found, wanted = next(
        (name, found, wanted)
        for name, found, wanted in zip((*sealed.columns, "seal"), row, right, strict=True)
        if found != wanted or type(found) is not type(wanted)
    )
    return f"{what} {row[0]!r} is not as it was written: its {name} is {found!r} and was {wanted!r}"
