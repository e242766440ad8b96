"""The catalogue of runs: what the file says of them, read on opening and kept true by whoever merges or drops one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Sequence, Sized
from dataclasses import dataclass, field
from typing import NamedTuple

from checkpoint import schema, seals
from checkpoint.record import records_damaged
from checkpoint.seals import Row
from checkpoint.session import Session
from checkpoint.tiers import RunMap, RunNumber, StoredRun, is_own

_MERGING, _MERGED, _DROPPED = "merging", "merged", "dropped"
"""The states of a run in the table ``run``."""


_PUT = f"INSERT OR REPLACE INTO run ({', '.join(seals.RUN.columns)}, seal) VALUES (?, ?, ?, ?, ?, ?, ?)"

_MATTERING = "run_slots IS NOT NULL OR kind = 'full' OR number IN (SELECT first FROM run) ORDER BY number"
"""Which checkpoint records say what runs hold: those that have a run, and those that one begins with."""


@dataclass
class Catalogue:
    """The runs of a store.

    Args:
        runs: those that can be read.
        merging: those that are being made: number and parts.
        dropped: those whose rows are being deleted.
    """

    runs: RunMap
    merging: dict[RunNumber, tuple[RunNumber, ...]] = field(default_factory=dict)
    dropped: list[RunNumber] = field(default_factory=list)


def load(session: Session) -> Catalogue:
    """Read the catalogue.

    Raises:
        CorruptStoreError: it is damaged.

    Time: O(runs · log n) and O(full checkpoints).
    """
    is_sealed = session.row("PRAGMA user_version")[0] >= seals.FORMAT
    told = (_read_sealed if is_sealed else _read_unsealed)(session)
    merged = [row[:4] for row in told.others if row[4] == _MERGED]
    try:
        _require_numbers([*told.runs, *merged])
        _require_numbers(told.fulls)
        _require_numbers([row[:3] for row in told.others])
        # A run that claims to hold what it cannot would be read for it one day; verify() finds that its rows belong to
        # nobody.
        runs = [*told.runs, *(row for row in merged if row[1] <= row[2] == int(row[0]))]
        merging = {row[0]: tuple(json.loads(row[5])) for row in told.others if row[4] == _MERGING}
        _require_numbers(merging.values())
    except (ValueError, TypeError) as error:
        raise records_damaged(session) from error
    catalogue = RunMap(map(StoredRun._make, runs), [row[0] for row in told.fulls])
    # A merge whose parts are not there can only come from damage: its own rows are useless.
    possible = {run: parts for run, parts in merging.items() if parts and all(part in catalogue for part in parts)}
    dropped = [row[0] for row in told.others if row[4] != _MERGED and row[0] not in possible]
    return Catalogue(catalogue, possible, dropped)


class _Catalogued(NamedTuple):
    """What the file says of the runs of checkpoints, of full checkpoints (their numbers), and of other runs."""

    runs: list[Row]
    fulls: list[Row]
    others: list[Row]


def _read_sealed(session: Session) -> _Catalogued:
    """Return what the file says, as it was written.

    A record that was written as differential and now claims to be full is not full; if that cannot be determined, it
    has no run. A merged run for which it cannot be determined what was written does not count as one. Their rows stay
    where they are.
    """
    kind, first = map(seals.CHECKPOINT.columns.index, ("kind", "run_first"))
    rows = session.rows_as_stored(seals.CHECKPOINT.select(_MATTERING, also=", run_slots"))
    told = [(seals.written(seals.CHECKPOINT, row[:-1]) or row[:-1], row[-1]) for row in rows]
    records = [(*row, slots) for row, slots in told if seals.is_right(row) or seals.is_believed(row)]
    runs = [(row[0], row[first] or row[0], row[0], row[-1]) for row in records if row[-1] is not None]
    fulls = [row[:1] for row in records if row[kind] == "full"]
    others = (seals.written(seals.RUN, row) for row in session.rows_as_stored(seals.RUN.select()))
    return _Catalogued(runs, fulls, [*filter(None, others)])


def _read_unsealed(session: Session) -> _Catalogued:
    """Return what :func:`_read_sealed` does, for a store of an older format."""
    is_first = session.row("PRAGMA user_version")[0] == 1
    first = schema.FIRST_IN_FORMAT_1 if is_first else "coalesce(run_first, number)"
    runs = session.rows(
        f"SELECT number, {first}, number, run_slots FROM checkpoint WHERE run_slots IS NOT NULL ORDER BY number"
    )
    fulls = session.rows("SELECT number FROM checkpoint WHERE kind = 'full' ORDER BY number")
    others = [] if is_first else session.rows("SELECT run, first, last, slots, state, parts FROM run")
    return _Catalogued(runs, fulls, others)


def note_merging(
    connection: sqlite3.Connection, run: RunNumber, parts: Sequence[StoredRun], checked: int | None = None
) -> None:
    """Note that a merged run is being made of some parts.

    Args:
        connection: inside a transaction.
        run: the number of the merged run.
        parts: what it is made of.
        checked: how many of them have been checked since all were copied.

    Dirties: one row.
    """
    names = json.dumps([part.run for part in parts])
    _put(connection, (run, parts[0].first, parts[-1].last, checked, _MERGING, names))


def noted_checks(connection: sqlite3.Connection, run: RunNumber) -> int:
    """Return how many parts of a run that is being made have been checked since all of them were copied."""
    row = connection.execute(seals.RUN.select("run = ?"), (run,)).fetchone()
    checked = row[3] if row and seals.is_right(row) else 0
    return checked if type(checked) is int else 0


def note_merged(connection: sqlite3.Connection, run: RunNumber, parts: Sequence[StoredRun]) -> StoredRun:
    """Note that a merged run is complete, and return it.

    What the file says of it by now may be wrong, so nothing is taken over from there.

    Dirties: one row.
    """
    statement = "SELECT coalesce(sum(rows), 0) FROM portion WHERE run = ? AND source = 'state_item'"
    (slots,) = connection.execute(statement, (run,)).fetchone()
    found = StoredRun(run, parts[0].first, parts[-1].last, slots)
    _put(connection, (*found, _MERGED, None))
    return found


def note_dropped(connection: sqlite3.Connection, runs: Collection[RunNumber]) -> None:
    """Note that nobody reads some runs any more; their rows are deleted later.

    Dirties: one row each, two for the run of a checkpoint.
    """
    connection.executemany(
        "UPDATE checkpoint SET run_slots = NULL, run_digest = NULL WHERE number = ?",
        [(run,) for run in runs if is_own(run)],
    )
    for run in runs:
        _put(connection, (run, int(run), int(run), None, _DROPPED, None))
    for table in ("filter", "span"):
        connection.executemany(f"DELETE FROM {table} WHERE run = ?", [(run,) for run in runs])


def _put(connection: sqlite3.Connection, row: Row) -> None:
    """Write what the catalogue says of a run, and seal it."""
    connection.execute(_PUT, (*row, seals.seal_of(row)))


def note_gone(connection: sqlite3.Connection, runs: Sequence[RunNumber]) -> None:
    """Note that the last rows of some dropped runs are deleted.

    Dirties: their rows of the catalogue.
    """
    connection.execute(f"DELETE FROM portion WHERE run IN ({placeholders(runs)})", runs)
    connection.execute(f"DELETE FROM run WHERE run IN ({placeholders(runs)})", runs)


def placeholders(values: Sized) -> str:
    """Return as many placeholders as there are values."""
    return ", ".join("?" * len(values))


def _require_numbers(rows: Iterable[Sequence[object]]) -> None:
    for row in rows:
        if not all(type(value) in (int, float) for value in row):
            raise ValueError(f"{row!r}: expected numbers")
