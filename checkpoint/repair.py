"""Repairing a store: what is damaged is dropped, and the newest checkpoint that can be proved becomes the newest one.

A merged run is rebuilt from the runs beside it. A full checkpoint whose rows are damaged is rebuilt from the state
before it, if its digest says that nothing had changed in between. What cannot be proved is dropped, unless it is to be
salvaged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import chain

from checkpoint import filters, large, run_rows, schema, seals, spans, verify
from checkpoint.catalogue import Catalogue, load, note_dropped
from checkpoint.consistency import check_objects
from checkpoint.digests import check_run
from checkpoint.errors import REPAIR, RESTORE, SALVAGE, CorruptStoreError
from checkpoint.pages import TABLES
from checkpoint.progress import Progress, silent
from checkpoint.reader import Reader
from checkpoint.run import Run
from checkpoint.salvage import Salvage, newest_readable, write_salvaged
from checkpoint.session import Session
from checkpoint.tiers import RunMap, RunNumber, is_own


@dataclass(frozen=True)
class Repair:
    """What a repair found and did.

    Args:
        damage: each damage in words.
        rebuilt: the full checkpoints that were rebuilt from the state before them.
        lost: the checkpoints that could be read before, or seemed so, and no longer can.
        newest: the newest checkpoint; 0 for an empty store.
        objects_lost: the objects that were left out of a salvaged checkpoint, each with what was found.
        unproved: the objects that were kept in it as they read, although one of their runs is not as it was written.
    """

    damage: tuple[str, ...]
    rebuilt: tuple[int, ...]
    lost: tuple[int, ...]
    newest: int
    objects_lost: tuple[str, ...] = ()
    unproved: tuple[str, ...] = ()


def repair(
    session: Session, connection: sqlite3.Connection, progress: Progress = silent, *, salvage: bool = False
) -> Repair:
    """Repair a store inside a transaction of the caller, who must reload the catalogue afterwards.

    Args:
        session: the store.
        connection: inside a transaction.
        progress: called with the number of rows checked so far and the total to check.
        salvage: keep the newest checkpoint as it reads if it cannot be proved.

    Raises:
        CorruptStoreError: no checkpoint can be proved (or read, to salvage it), or the structure of the file itself is
            damaged.

    Time: O(rows). Memory: one state, if a full checkpoint is rebuilt. Dirties: the rows of what is damaged.
    """
    derived = _mend_schema(session, connection)
    records, doubtful = _mend_records(session, connection)
    verify.check_file(session)
    found = load(session)
    before = [int(run.run) for run in found.runs if is_own(run.run)]
    damage = _damages(session, found, progress)
    for number in doubtful:
        damage.setdefault(number, f"{session.path}: it cannot be told what checkpoint {number} was")
    rebuilt = [int(run) for run in damage if is_own(run) and _rebuild(session, connection, found.runs, run, damage)]
    gone = damage.keys() - set(rebuilt)
    note_dropped(connection, gone)
    sound = RunMap([run for run in found.runs if run.run not in gone], found.runs.fulls)
    newest = _newest_sound(session, sound, before, damage)
    strays = _drop_strays(session, connection, found)
    saved = _salvaged(session, connection, found, gone, doubtful, newest) if salvage else None
    # Without a record there is no saying what was there.
    if not (newest or saved) and (found.runs.readable_count or strays):
        advice = f"read: {RESTORE}" if salvage else f"proved: {SALVAGE}"
        raise CorruptStoreError(f"{session.path}: no checkpoint can be {advice}")
    lost = [number for number in before if number > newest or number not in sound or not sound.at(number)]
    unreadable = [number for number in lost if number <= newest and number not in gone]
    note_dropped(connection, unreadable)
    strays += _mend_bodies(session, connection, sound)
    _drop_after(connection, newest, saved.run.last if saved else 0)
    large.drop_unused(connection, [*found.dropped, *gone, *unreadable])
    strays += _drop_shortcuts(session, connection)
    strays += _drop_digests(session, connection)
    reused = _mend_next_object(session, connection, RunMap([*sound, *([saved.run] if saved else [])]))
    told = [f"{session.path}: {text}" for text in [*derived, *records]]
    report = Repair((*told, *damage.values(), *strays, *reused), tuple(rebuilt), tuple(lost), newest)
    if saved is None:
        return report
    return replace(report, newest=saved.run.last, objects_lost=saved.objects_lost, unproved=saved.unproved)


def _mend_schema(session: Session, connection: sqlite3.Connection) -> list[str]:
    """Create views and indexes again that are not as they were, and return what was wrong.

    Raises:
        CorruptStoreError: a table is not as it was, so that nothing that is read can be relied on; or one that may be
            somebody's has the name of a view or an index.
    """
    verify.check_tables(session)
    wrong = list(schema.find_derived(session.rows))
    for _, name in wrong:
        schema.create_derived(connection, name)
    return [verify.lacks(kind, name) for kind, name in wrong]


def _salvaged(
    session: Session,
    connection: sqlite3.Connection,
    found: Catalogue,
    damaged: Collection[RunNumber],
    doubtful: Collection[int],
    newest: int,
) -> Salvage | None:
    """Write the newest state that can be read as a checkpoint, if it is newer than the newest sound one."""
    parts = newest_readable(found.runs, damaged, doubtful)
    if not parts or int(parts[-1]) <= newest:
        return None
    taken = [*(run.run for run in found.runs), *found.merging, *found.dropped]
    return write_salvaged(session, connection, parts, damaged, taken, newest)


def _mend_records(session: Session, connection: sqlite3.Connection) -> tuple[list[str], list[int]]:
    """Correct the records, even those that SQLite would not accept: see :func:`checkpoint.seals.mend`.

    In a record that was just found correct, what was recorded of the run must equal what its checkpoint wrote.
    """
    connection.execute("PRAGMA ignore_check_constraints = ON")
    try:
        damages, doubtful = seals.mend(connection)
    finally:
        connection.execute("PRAGMA ignore_check_constraints = OFF")
    differs = "run_slots IS NOT NULL AND run_first IS NULL AND (run_slots, run_digest) IS NOT (slots, digest)"
    for (number,) in session.rows(f"SELECT number FROM checkpoint WHERE {differs}"):
        damages.append(f"what was recorded of the run of checkpoint {number} is not what the checkpoint wrote")
    connection.execute(f"UPDATE checkpoint SET run_slots = slots, run_digest = digest WHERE {differs}")
    return damages, doubtful


def _damages(session: Session, found: Catalogue, progress: Progress) -> dict[RunNumber, str]:
    """Return each run that is not as it was written, with what is wrong."""
    damage: dict[RunNumber, str] = {}
    done, total = 0, sum(run.slots for run in found.runs)
    for run in [*(run.run for run in found.runs), *found.merging]:
        try:
            for rows in check_run(session, run):
                done = min(done + rows, total)
                progress(done, total)
            if is_own(run):
                verify.check_record(session, found.runs, int(run))
        except CorruptStoreError as error:
            session.require_settled()
            damage[run] = _said(error)
    sound = RunMap([run for run in found.runs if run.run not in damage], found.runs.fulls)
    for stored in [run for run in sound if not is_own(run.run)]:
        try:
            verify.check_merged(session, sound, stored)
        except CorruptStoreError as error:
            damage[stored.run] = _said(error)
    return damage


def _said(error: CorruptStoreError) -> str:
    """Return the message of an error, without the advice that is being followed."""
    return str(error).removesuffix(f": {REPAIR}")


def _rebuild(
    session: Session, connection: sqlite3.Connection, runs: RunMap, run: RunNumber, damage: Iterable[RunNumber]
) -> bool:
    """Rebuild a full checkpoint from the state before it, and return whether that is what it was."""
    number = int(run)
    sound = RunMap([one for one in runs if one.run not in damage], runs.fulls)
    parts = sound.at(number - 1) if number in runs.fulls else ()
    if not parts:
        return False
    image: Run = Reader(session, parts).image()
    slots, _, digest = image.measure()
    wanted = connection.execute("SELECT slots, digest FROM checkpoint WHERE number = ?", (number,)).fetchone()
    if wanted != (slots, digest):
        return False
    for table in TABLES:
        connection.execute(f"DELETE FROM {table.name} WHERE checkpoint = ?", (number,))
    run_rows.insert(connection, number, image)
    connection.execute("UPDATE checkpoint SET run_slots = slots, run_digest = digest WHERE number = ?", (number,))
    return True


def _newest_sound(session: Session, sound: RunMap, numbers: list[int], damage: dict[RunNumber, str]) -> int:
    """Return the newest checkpoint whose runs and objects are sound, 0 if there is none."""
    for number in reversed(numbers):
        if number not in sound or not (parts := sound.at(number)):
            continue
        try:
            check_objects(Reader(session, parts), session.path)
        except CorruptStoreError as error:
            damage.setdefault(-number, _said(error))
            continue
        return number
    return 0


def _drop_strays(session: Session, connection: sqlite3.Connection, found: Catalogue) -> list[str]:
    """Delete the rows that belong to no run, and return what was wrong."""
    known = {*(run.run for run in found.runs), *found.merging, *found.dropped}
    strays: list[str] = []
    for table, column in run_rows.NUMBERED:
        if table != "checkpoint":
            for number in [number for number in run_rows.numbers_in(session, table, column) if number not in known]:
                connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (number,))
                strays.append(f"{session.path}: {table} has rows under {column} {number}, which has no run")
    return strays


def _drop_after(connection: sqlite3.Connection, newest: int, salvaged: int) -> None:
    """Delete the rows of checkpoints after the newest sound one, except those of the salvaged one."""
    for table, column in run_rows.NUMBERED:
        connection.execute(f"DELETE FROM {table} WHERE {column} >= ? AND {column} <> ?", (newest + 1, salvaged))


def _mend_bodies(session: Session, connection: sqlite3.Connection, sound: RunMap) -> list[str]:
    """Make each large value be deleted with the last row that refers to it, and return what was wrong."""
    wrong = chain(large.find_unused(session), *(large.find_wrong(session, run) for run in sound))
    damages = [f"{session.path}: {damage}" for damage in wrong]
    large.mend(session, connection, sound)
    return damages


def _drop_shortcuts(session: Session, connection: sqlite3.Connection) -> list[str]:
    """Delete the filters and spans that are wrong, which only costs reads some time, and return what was wrong."""
    damages: list[str] = []
    for table, find_wrong in (("filter", filters.find_wrong), ("span", spans.find_wrong)):
        wrong = list(find_wrong(session))
        connection.executemany(f"DELETE FROM {table} WHERE run = ?", [(run,) for run, _ in wrong])
        damages += [f"{session.path}: {damage}" for _, damage in wrong]
    return damages


def _drop_digests(session: Session, connection: sqlite3.Connection) -> list[str]:
    """Delete the digests of runs that no longer exist, and return what was wrong."""
    alone = "run_slots IS NULL AND run_digest IS NOT NULL"
    numbers = [row[0] for row in session.rows(f"SELECT number FROM checkpoint WHERE {alone} ORDER BY number")]
    connection.execute(f"UPDATE checkpoint SET run_digest = NULL WHERE {alone}")
    return [f"{session.path}: checkpoint {number} has the digest of a run, which is not there" for number in numbers]


def _mend_next_object(session: Session, connection: sqlite3.Connection, sound: RunMap) -> tuple[str, ...]:
    """Make new objects get ids that no other one has or had, and return what was wrong."""
    try:
        verify.check_next_object(session, sound)
    except CorruptStoreError as error:
        following = 1 + verify.greatest_object(session, sound)
        connection.execute("INSERT OR REPLACE INTO setting VALUES ('next_object_id', ?)", (following,))
        return (_said(error),)
    return ()
