"""Salvaging a store: its newest state, as it reads and without proof, is rewritten with a digest of its own.

A digest covers a whole run, so there is no telling which of its rows was changed. What does not decode or does not fit
together gives itself away: such objects are left out. The others are kept, and reported as unproved.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import orjson

from checkpoint import run_rows, spans
from checkpoint.consistency import KINDS, faults_in
from checkpoint.errors import CorruptStoreError
from checkpoint.owned import owned_kind
from checkpoint.reader import Reader
from checkpoint.record import CheckpointRecord, read_records, write_record
from checkpoint.run import CheckpointKind, IndexRow, Payload, fault_of, is_owner, reachable
from checkpoint.session import Session
from checkpoint.tiers import RunMap, RunNumber, StoredRun, is_own

_MOST_NAMED = 10
"""How many ids of objects without a name are listed."""


class Salvage(NamedTuple):
    """What was written: the run of the new checkpoint, the objects that it lacks and why, and the names of the others.

    There are no others listed if all that was read can be proved.
    """

    run: StoredRun
    objects_lost: tuple[str, ...]
    unproved: tuple[str, ...]


def newest_readable(
    runs: RunMap, damaged: Collection[RunNumber], doubtful: Collection[RunNumber]
) -> tuple[RunNumber, ...]:
    """Return the runs that make up the newest readable checkpoint, with no more damaged ones than necessary.

    Args:
        runs: all runs.
        damaged: those that are not as they were written.
        doubtful: those of which it is not known whether they hide what is older; they are read only if all else fails.
    """
    certain = _without(runs, doubtful)
    if not any(map(certain.at, _numbers(certain))):
        certain = runs
    newest = next(filter(certain.at, reversed(_numbers(certain))), 0)
    for run in damaged:
        fewer = _without(certain, [run])
        certain = fewer if fewer.at(newest) else certain
    return certain.at(newest)


def _numbers(runs: RunMap) -> list[int]:
    return [run.last for run in runs if is_own(run.run)]


def _without(runs: RunMap, some: Collection[RunNumber]) -> RunMap:
    # What a full checkpoint hides stays hidden even if its own rows are not to be read.
    return RunMap([run for run in runs if run.run not in some], runs.fulls)


def write_salvaged(
    session: Session,
    connection: sqlite3.Connection,
    parts: Sequence[RunNumber],
    damaged: Collection[RunNumber],
    taken: Iterable[RunNumber],
    parent: int,
) -> Salvage:
    """Write the state that some runs make up as a full checkpoint, inside a transaction of the caller.

    It seals the epoch of the state that was read, so that whoever counts by epochs goes on with the next one.

    Args:
        session: the store.
        connection: inside a transaction.
        parts: the runs, oldest first.
        damaged: the runs that are not as they were written.
        taken: all numbers of runs; the checkpoint gets a greater one, so that nobody takes it for an earlier one.
        parent: the newest checkpoint that was proved, 0 if none was.

    Time: O(state). The rows are streamed. Dirties: the rows of the state.
    """
    reader = Reader(session, parts)
    is_proved = not set(parts) & set(damaged)
    kept, lost = _survey(session, reader)
    if not is_proved:
        lost += _nameless(session, reader, kept)
    (last,) = connection.execute("SELECT max(number) FROM checkpoint").fetchone()
    number = 1 + int(max([last, *taken]))
    epoch = read_records(session, "WHERE number = ?", (reader.newest,))[0].epoch
    before = read_records(session, "WHERE number = ?", (parent,))
    epoch = max([epoch, *(record.epoch + 1 for record in before)])
    found, _ = run_rows.insert_pages(reader.image_pages(index=kept), connection, number)
    spans.store(connection, number, found.slots)
    # No two records share an epoch, and those that come after the parent are deleted.
    connection.execute("DELETE FROM checkpoint WHERE number > ?", (parent,))
    write_record(connection, CheckpointRecord.made_now(number, epoch, CheckpointKind.FULL, parent or None, found))
    unproved = [] if is_proved else [f"{kind} {name!r}" for _, name, kind, _ in kept]
    return Salvage(StoredRun(number, number, number, found.slots), tuple(lost), tuple(unproved))


def _survey(session: Session, reader: Reader) -> tuple[list[IndexRow], list[str]]:
    """Return the index rows of the objects that can be read whole, and the others in words."""
    kept, lost, names = list[IndexRow](), list[str](), set[str]()
    for object_id, row in _index(session, reader):
        fault = f"object {object_id!r} has an index row that cannot be read" if row is None else None
        if row is not None:
            fault = _index_fault(row, names) or _fault(session, reader, row)
        if fault is None and row is not None:
            kept.append(row)
            names.add(row[1])
        elif fault is not None:
            lost.append(fault)
    return kept, lost


def _nameless(session: Session, reader: Reader, kept: list[IndexRow]) -> list[str]:
    """Report which ids have rows that belong to nothing: damage may have destroyed the index row of an object."""
    runs = ", ".join(map(str, reader.runs))
    known = {row[0] for row in session.rows(f"SELECT DISTINCT object FROM state_index WHERE checkpoint IN ({runs})")}
    known |= reachable(kept, lambda owner: (item.value for item in reader.items(owner)))
    ids = [str(one) for one in sorted(one for one in reader.touched() - known if type(one) is int)]
    if not ids:
        return []
    which = ", ".join(ids[:_MOST_NAMED]) + (f" and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else "")
    why = "the name was lost, or they belonged to one that is left out or was deleted"
    return [f"rows of objects that have no name: {which} ({why})"]


def _index(session: Session, reader: Reader) -> Iterator[tuple[object, IndexRow | None]]:
    """Yield the id and the index row of each object that exists, ``None`` for one that cannot be read."""
    try:
        yield from [(row[0], row) for row in reader.index()]
        return
    except CorruptStoreError:
        session.require_settled()
    runs = ", ".join(map(str, reader.runs))
    for (object_id,) in session.rows(f"SELECT DISTINCT object FROM state_index WHERE checkpoint IN ({runs})"):
        try:
            row = reader.entry(object_id)
        except CorruptStoreError:
            session.require_settled()
            yield object_id, None
        else:
            yield from [(object_id, row)] if row is not None else []


def _index_fault(row: IndexRow, names: Collection[str]) -> str | None:
    object_id, name, kind, codec = row
    if type(object_id) is not int or type(name) is not str or type(kind) is not str:
        return f"object {object_id!r} has the name {name!r} and the kind {kind!r}"
    if name in names:
        return f"{kind} {name!r} (object {object_id}) has a name that another one has"
    try:
        is_codec = codec is None or (type(codec) is str and type(orjson.loads(codec)) is dict)
    except ValueError:
        is_codec = False
    return None if is_codec else f"{kind} {name!r} has a codec {codec!r:.80} in the index that cannot be read"


def _fault(session: Session, reader: Reader, row: IndexRow) -> str | None:
    """Return in words what is wrong with an object, or with one that it owns; None if it can be read whole."""
    try:
        return next(_faults(reader, row), None)
    except CorruptStoreError as error:
        session.require_settled()  # If SQLite found the damage, the file is damaged; otherwise a text is not text.
        return f"{row[2]} {row[1]!r} has a text that cannot be read ({error.__cause__ or error})"


def _faults(reader: Reader, row: IndexRow) -> Iterator[str]:
    """Yield what does not decode in an object and in those that it owns, and what does not fit together."""
    object_id, name, kind, codec = row
    is_raw = bool(orjson.loads(codec or "{}").get("raw"))
    yield from (f"{kind} {name!r} has {fault}" for fault in _undecodable(reader, object_id, kind, is_raw=is_raw))
    yield from faults_in(reader, row)
    if is_owner(row):
        of = owned_kind(codec)
        for one in sorted(reachable([row], lambda owner: (item.value for item in reader.items(owner))) - {object_id}):
            yield from (f"{of} {one} in {name!r} has {fault}" for fault in _undecodable(reader, one, of))


def _undecodable(reader: Reader, object_id: int, kind: str | None, *, is_raw: bool = False) -> Iterator[str]:
    """Yield what cannot be read of the metadata and the slots of an object."""
    for key, value in reader.metadata(object_id).items():
        if type(key) is not str or type(value) is not str:
            yield f"metadata {key!r} of {value!r:.80}"
    for item in reader.items(object_id):
        if item.rank is not None and type(item.rank) is not int:
            yield f"a slot {item.slot!r} of rank {item.rank!r:.80}"
        if fault := _value_fault(item.value, kind, is_raw=is_raw):
            yield f"a slot {item.slot!r} of {item.value!r:.80}, which cannot be read ({fault})"


def _value_fault(value: Payload, kind: str | None, *, is_raw: bool) -> str | None:
    """Return why a stored value cannot be read, or ``None`` if it can, as far as that can be told without its code."""
    if fault := fault_of(value):
        return fault
    if kind == "Tensor" and not isinstance(value, bytes):
        return f"it is a {type(value).__name__}"
    try:
        if kind in KINDS and kind != "Tensor" and not is_raw:
            orjson.loads(value)
    except ValueError as error:
        return str(error)
    return None
