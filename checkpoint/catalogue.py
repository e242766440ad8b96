"""The catalogue of runs: what the file says of them, read at opening and kept true by whoever merges or drops one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Sequence, Sized
from dataclasses import dataclass, field

from checkpoint import schema, seals
from checkpoint.errors import CorruptStoreError
from checkpoint.seals import Row
from checkpoint.session import Session
from checkpoint.tiers import RunMap, RunNumber, StoredRun, is_own

_MERGING, _MERGED, _DROPPED = "merging", "merged", "dropped"
"""The states of a run in the table ``run``."""


_MATTERING = "run_slots IS NOT NULL OR kind = 'full' OR number IN (SELECT first FROM run) ORDER BY number"
"""Which records of checkpoints say what runs hold: those that have one, and those that one begins with."""


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
    runs, fulls, others = (_told if is_sealed else _told_without_seals)(session)
    merged = [row[:4] for row in others if row[4] == _MERGED]
    try:
        _require_numbers([*runs, *merged])
        _require_numbers(fulls)
        _require_numbers([row[:3] for row in others])
        # One that says to hold what it cannot would be read for it one day; verify() finds its rows to be nobody's.
        runs += [row for row in merged if row[1] <= row[2] == int(row[0])]
        merging = {row[0]: tuple(json.loads(row[5])) for row in others if row[4] == _MERGING}
        _require_numbers(merging.values())
    except (ValueError, TypeError) as error:
        raise CorruptStoreError(
            f"{session.path}: the table of checkpoints is damaged: restore the file from a copy"
        ) from error
    catalogue = RunMap(map(StoredRun._make, runs), [row[0] for row in fulls])
    # A merge whose parts are not there can come from damage only: its own rows are of no use.
    possible = {run: parts for run, parts in merging.items() if parts and all(part in catalogue for part in parts)}
    dropped = [row[0] for row in others if row[4] != _MERGED and row[0] not in possible]
    return Catalogue(catalogue, possible, dropped)


def _told(session: Session) -> tuple[list[Row], list[Row], list[Row]]:
    """Return what the file says of the runs of checkpoints, of full checkpoints and of other runs, as it was written.

    A record that was written as differential and says to be full now is not one; a run of which it cannot be told what
    was written is none, and its rows stay where they are.
    """
    kind, first = map(seals.CHECKPOINT.columns.index, ("kind", "run_first"))
    rows = session.rows(seals.CHECKPOINT.select(_MATTERING, also=", run_slots"))
    records = [(*(seals.written(seals.CHECKPOINT, row[:-1]) or row[:-1]), row[-1]) for row in rows]
    runs = [(row[0], row[first] or row[0], row[0], row[-1]) for row in records if row[-1] is not None]
    fulls = [row[:1] for row in records if row[kind] == "full"]
    others = (seals.written(seals.RUN, row) for row in session.rows(seals.RUN.select()))
    return runs, fulls, [*filter(None, others)]


def _told_without_seals(session: Session) -> tuple[list[Row], list[Row], list[Row]]:
    """Return what :func:`_told` does, of a store of an older format."""
    is_first = session.row("PRAGMA user_version")[0] == 1
    first = schema.FIRST_IN_FORMAT_1 if is_first else "coalesce(run_first, number)"
    runs = session.rows(
        f"SELECT number, {first}, number, run_slots FROM checkpoint WHERE run_slots IS NOT NULL ORDER BY number"
    )
    fulls = session.rows("SELECT number FROM checkpoint WHERE kind = 'full' ORDER BY number")
    others = [] if is_first else session.rows("SELECT run, first, last, slots, state, parts FROM run")
    return runs, fulls, others


def note_merging(connection: sqlite3.Connection, run: RunNumber, parts: Sequence[StoredRun]) -> None:
    """Note that a merged run is being made of some parts.

    Dirties: one row.
    """
    names = json.dumps([part.run for part in parts])
    row = run, parts[0].first, parts[-1].last, _MERGING, names
    connection.execute("INSERT INTO run (run, first, last, state, parts) VALUES (?, ?, ?, ?, ?)", row)
    seals.renew(connection, seals.RUN, [run])


def noted_checks(connection: sqlite3.Connection, run: RunNumber) -> int:
    """Return how many parts of a run that is being made have been checked since all of them were copied."""
    found = connection.execute(f"SELECT slots FROM run WHERE run = ? AND state = '{_MERGING}'", (run,)).fetchone()
    return found[0] if found and type(found[0]) is int and found[0] > 0 else 0


def note_checks(connection: sqlite3.Connection, run: RunNumber, parts: int) -> None:
    """Note how many parts of a run that is being made have been checked since all of them were copied.

    Dirties: one row.
    """
    connection.execute("UPDATE run SET slots = ? WHERE run = ?", (parts, run))
    seals.renew(connection, seals.RUN, [run])


def note_merged(connection: sqlite3.Connection, run: RunNumber) -> StoredRun:
    """Note that a merged run is complete, and return it.

    Dirties: one row.
    """
    connection.execute(
        f"UPDATE run SET state = '{_MERGED}', parts = NULL, slots = (SELECT coalesce(sum(rows), 0) FROM portion"
        " WHERE portion.run = run.run AND source = 'state_item') WHERE run = ?",
        (run,),
    )
    seals.renew(connection, seals.RUN, [run])
    found = connection.execute("SELECT run, first, last, slots FROM run WHERE run = ?", (run,)).fetchone()
    return StoredRun(*found)


def note_dropped(connection: sqlite3.Connection, runs: Collection[RunNumber]) -> None:
    """Note that nobody reads some runs any more; their rows are deleted later.

    Dirties: one row each, two for the run of a checkpoint.
    """
    connection.executemany(
        "UPDATE checkpoint SET run_slots = NULL, run_digest = NULL WHERE number = ?",
        [(run,) for run in runs if is_own(run)],
    )
    connection.executemany(
        f"INSERT INTO run (run, first, last, state) VALUES (?, ?, ?, '{_DROPPED}')"
        f" ON CONFLICT (run) DO UPDATE SET state = '{_DROPPED}', parts = NULL",
        [(run, int(run), int(run)) for run in runs],
    )
    seals.renew(connection, seals.RUN, runs)
    for table in ("filter", "span"):
        connection.executemany(f"DELETE FROM {table} WHERE run = ?", [(run,) for run in runs])


def note_gone(connection: sqlite3.Connection, runs: Sequence[RunNumber]) -> None:
    """Note that the last rows of some dropped runs are deleted.

    Dirties: their rows of the catalogue.
    """
    connection.execute(f"DELETE FROM portion WHERE run IN ({marks(runs)})", runs)
    connection.execute(f"DELETE FROM run WHERE run IN ({marks(runs)})", runs)


def marks(values: Sized) -> str:
    """Return as many marks of parameters as there are values."""
    return ", ".join("?" * len(values))


def _require_numbers(rows: Iterable[Sequence[object]]) -> None:
    for row in rows:
        if not all(type(value) in (int, float) for value in row):
            raise ValueError(f"{row!r}: expected numbers")
