"""Verifying a store: the structure of the file, the digest of every run, and that what is stored twice is the same."""

from __future__ import annotations

from itertools import chain, pairwise, product, zip_longest

from checkpoint import catalogue, filters, large, run_rows, schema, seals, spans
from checkpoint.catalogue import Catalogue
from checkpoint.consistency import check_objects
from checkpoint.digests import check_run
from checkpoint.errors import REPAIR, RESTORE, CorruptStoreError
from checkpoint.pages import TABLES, merged_pages
from checkpoint.progress import Progress, silent
from checkpoint.reader import Reader
from checkpoint.record import read_records
from checkpoint.session import Session
from checkpoint.tiers import RunMap, StoredRun, is_own

_OF_RECORDS = ("CHECK constraint failed in checkpoint", "CHECK constraint failed in run")


def verify(session: Session, progress: Progress = silent) -> int:
    """Check everything that a store holds, and return the number of checkpoints that can be read.

    Args:
        session: the store.
        progress: called with the number of rows checked so far and the total to check.

    Raises:
        CorruptStoreError: the first damage found, by number and epoch if it lies in a run.

    Time: O(rows), up to four times those that lie in merged runs. The rows are streamed.
    """
    check_schema(session)
    check_file(session)
    found = catalogue.load(session)
    check_seals(session)
    check_epochs(session)
    for row in session.rows("SELECT number FROM checkpoint WHERE run_slots IS NOT NULL OR run_digest IS NOT NULL"):
        check_record(session, found.runs, row[0])
    merged = [run for run in found.runs if not is_own(run.run)]
    stored, copied, live = (sum(run.slots for run in found.runs), sum(run.slots for run in merged), found.runs.live)
    done, total = 0, stored + copied + found.runs.rows(live)
    for run in [*(run.run for run in found.runs), *found.merging]:
        for rows in check_run(session, run):
            done = min(done + rows, stored)
            progress(done, total)
    for one in merged:
        check_merged(session, found.runs, one)
        done += one.slots
        progress(done, total)
    check_no_orphans(session, found)
    check_bodies(session, found.runs)
    for _, damage in chain(filters.find_wrong(session), spans.find_wrong(session)):
        raise CorruptStoreError(f"{session.path}: {damage}: {REPAIR}")
    check_next_object(session, found.runs)
    check_objects(Reader(session, live), session.path)
    progress(total, total)
    return found.runs.readable_count


def verify_up_to(session: Session, number: int) -> None:
    """Check what a copy of the checkpoints up to one would take over, except for filters and spans.

    Raises:
        CorruptStoreError: the first damage found; what lies only in newer checkpoints does not count.

    Time: O(rows up to the checkpoint). The rows are streamed.
    """
    check_schema(session)
    found = catalogue.load(session)
    check_seals(session, number)
    check_epochs(session, number)
    runs = RunMap([run for run in found.runs if run.last <= number], found.runs.fulls)
    for run in runs:
        for _ in check_run(session, run.run):
            pass
        if is_own(run.run):
            check_record(session, found.runs, int(run.run))
    check_no_orphans(session, found, number)
    check_bodies(session, runs)
    check_next_object(session, runs)


def check_schema(session: Session) -> None:
    """Check that the file has every table and view that its format has.

    Raises:
        CorruptStoreError: it has not.
    """
    check_tables(session)
    for kind, name in schema.find_derived(session.rows):
        raise CorruptStoreError(f"{session.path}: {lacks(kind, name)}: {REPAIR}")


def check_tables(session: Session) -> None:
    """Check that the file has the tables of its format, and no other one in the place of a view or an index.

    Raises:
        CorruptStoreError: a table is missing or has other columns, or one has the name of a view or an index.
    """
    for said in schema.find_unmendable(session.rows):
        raise CorruptStoreError(f"{session.path} is damaged: {said}")


def lacks(kind: str, name: str) -> str:
    """Return in words that a view or an index is not as the format has it."""
    return f"the {kind} {name} is missing, or is another one than the store has created"


def check_file(session: Session) -> None:
    """Let SQLite check the structure of the file.

    Raises:
        CorruptStoreError: it is damaged.
    """
    found = (row[0] for row in session.rows("PRAGMA integrity_check"))
    # If a sealed record says what it must not, its seal shows that, and what it should say.
    for damage in filter(lambda said: said != "ok" and not said.startswith(_OF_RECORDS), found):
        raise CorruptStoreError(f"{session.path} is damaged: SQLite says {damage}: {RESTORE}")


def check_seals(session: Session, number: int | None = None) -> None:
    """Check that the records of checkpoints and of runs are as they were written, up to a number if one is given.

    Raises:
        CorruptStoreError: one is not.

    Time: O(records). A store of an older format, which is only read, has no seals.
    """
    if session.row("PRAGMA user_version")[0] < seals.FORMAT:
        return
    for sealed in seals.TABLES:
        for row in seals.find_wrong(session.rows_as_stored, sealed):
            if _is_beyond(row[0], number):
                continue
            said = seals.said_of(sealed, row, seals.written(sealed, row))
            raise CorruptStoreError(f"{session.path}: {said}: {REPAIR}")


def _is_beyond(run: object, number: int | None) -> bool:
    """Return whether a run is newer than a checkpoint; in a damaged file its number may be anything."""
    return number is not None and isinstance(run, int | float) and run >= number + 1


def check_epochs(session: Session, number: int | None = None) -> None:
    """Check that later checkpoints seal later epochs, up to a number if one is given.

    Raises:
        CorruptStoreError: one does not.
    """
    rows = session.rows("SELECT number, epoch FROM checkpoint ORDER BY number")
    for (_, before), (later, epoch) in pairwise(rows):
        if epoch <= before and not _is_beyond(later, number):
            raise CorruptStoreError(
                f"{session.path}: checkpoint {later} has the epoch {epoch}, and the one before it {before}: {RESTORE}"
            )


def check_record(session: Session, runs: RunMap, number: int) -> None:
    """Check that the record of a checkpoint agrees with its run, and that the checkpoint is whole.

    Raises:
        CorruptStoreError: it does not.
    """
    record = read_records(session, "WHERE number = ?", (number,))[0]
    is_alone = number in runs and runs[number].first == number
    if number not in runs or not runs.at(number):
        what = "has no run, or one without those before it"
    elif is_alone and (record.slots, record.digest) != (record.run_slots, record.run_digest):
        what = f"wrote {record.slots} slots with the digest {record.digest}, and its run was recorded as other"
    else:
        return
    raise CorruptStoreError(f"{session.path}: checkpoint {number} (epoch {record.epoch}) {what}: {REPAIR}")


def check_merged(session: Session, runs: RunMap, merged: StoredRun) -> None:
    """Check that a merged run is what the runs it was made of yield, if these are still there.

    Raises:
        CorruptStoreError: it is not.

    Time: O(rows). The rows are streamed.
    """
    parts = runs.between(merged.first - 1, merged.last, without=merged.run)
    if not parts:
        return
    is_base = runs.at(merged.last)[:1] == (merged.run,)
    live = Reader(session, parts).reachable() if is_base else None
    for table in TABLES:
        made, expected = (
            chain.from_iterable(rows for _, rows in merged_pages(session, table, sources, live))
            for sources in ((merged.run,), parts)
        )
        for found, wanted in zip_longest(made, expected):
            if found != wanted:
                raise CorruptStoreError(
                    f"{session.path}: the merged run {merged.run} has {found} in {table.name}, and checkpoints"
                    f" {merged.first} to {merged.last} give {wanted}: {REPAIR}"
                )


def check_no_orphans(session: Session, found: Catalogue, number: int | None = None) -> None:
    """Check that no row lies outside a run, up to a number if one is given.

    Raises:
        CorruptStoreError: one does; the message names its table.
    """
    known = {*(run.run for run in found.runs), *found.merging, *found.dropped}
    for table, column in run_rows.NUMBERED[1:]:
        if not session.has_table(table):
            continue
        for run in run_rows.numbers_in(session, table, column):
            if run not in known and not _is_beyond(run, number):
                raise CorruptStoreError(
                    f"{session.path}: {table} has rows under {column} {run}, which has no run: {REPAIR}"
                )


def check_bodies(session: Session, runs: RunMap) -> None:
    """Check that each large value is deleted with the last row that refers to it.

    Raises:
        CorruptStoreError: one does not.

    Time: O(rows). The rows are streamed.
    """
    for damage in chain(large.find_unused(session), *(large.find_wrong(session, run) for run in runs)):
        raise CorruptStoreError(f"{session.path}: {damage}: {REPAIR}")


def check_next_object(session: Session, runs: RunMap) -> None:
    """Check that no object will be given an id that another one has or had: it would show that one's slots.

    Raises:
        CorruptStoreError: the setting ``next_object_id`` is not greater than every id in the store.
    """
    found = session.row("SELECT value FROM setting WHERE key = 'next_object_id'")
    following, greatest = found[0] if found else 1, greatest_object(session, runs)
    if not (isinstance(following, int) and following > greatest):
        raise CorruptStoreError(
            f"{session.path}: the next object would have the id {following!r}, and the ids up to {greatest} are"
            f" used: {REPAIR}"
        )


def greatest_object(session: Session, runs: RunMap) -> int:
    """Return the greatest id of an object in some runs, 0 if there is none; the index has only those with a name."""
    found = (
        session.row(f"SELECT max(object) FROM {table.name} WHERE checkpoint = ?", (stored.run,))[0]
        for table, stored in product(TABLES, runs)
    )
    return max(filter(None, found), default=0)
