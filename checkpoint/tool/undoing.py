"""What changes must not take away: what says how the rows and keys that stay or come along are found and read.

That is the record of a relational table in ``$tables``, and the entry of a key-value table in its catalogue. The state
that would result is what counts: what has gone or been moved elsewhere keeps nobody from undoing anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from checkpoint.errors import CheckpointError, CorruptStoreError
from checkpoint.run import Payload, Run, Slot, fault_of
from checkpoint.store import CheckpointStore
from checkpoint.tool import key_values
from checkpoint.tool.content import TABLES, WATERMARKS, State
from checkpoint.tool.hiding import misfit
from checkpoint.tool.incomplete import require_complete
from checkpoint.tool.preview import Preview
from checkpoint.tool.raw import INTEGER_BITS, is_integer, loaded
from checkpoint.tool.source import query

_NUMBER = re.compile(r"(?:int|float)\d\d|decimal(?:\([^)]*\))?")


class _Loss(NamedTuple):
    """What nobody could find or read.

    Args:
        table: the table.
        why: what is there, and what it would lack.
        object: the object that holds it.
        slot: the slot; ``None`` for the object itself.
        how: how to undo what wrote it.
    """

    table: str
    why: str
    object: int
    slot: Slot | None = None
    how: str = "before or along"


def require_readable(store: CheckpointStore, run: Run) -> None:
    """Refuse changes after which there would be objects, rows, keys or watermarks that nobody could find or read.

    Args:
        store: the store, to whose newest state the changes are to be made.
        run: the run that makes them.

    Raises:
        CheckpointError: there would be some; the first one is named, and the checkpoint that wrote what a table lacks.

    Time: O(named objects + rows that change); O(rows) of a table whose record loses layouts or gets shorter integers.
    """
    now = store.reader()
    then = Preview(store.session, now, run)
    require_complete(now, then, run)
    before, after = State(now), State(then)
    known = set(_unlisted(before))
    unlisted = (loss for loss in _unlisted(after) if loss not in known)
    losses = chain(_unrecorded(before, after), _unread(before, after, run), _unheld(before, after), unlisted)
    loss = next(losses, None)
    if loss is not None:
        raise CheckpointError(f"table {loss.table!r} {loss.why}; {_advice(store, loss, run)}; nothing was written")


def _advice(store: CheckpointStore, loss: _Loss, run: Run) -> str:
    rows: Sequence[tuple[Any, ...]] = run.index if loss.slot is None else run.items
    if any(row[0] == loss.object and loss.slot in (None, row[1]) and row[2] is not None for row in rows):
        return "the changes bring that: make those first that its schema or its entry came with"
    table, condition = ("state_index", "") if loss.slot is None else ("state_item", " AND slot = ?")
    slots = () if loss.slot is None else (loss.slot,)
    statement = f"SELECT max(checkpoint) FROM {table} WHERE object = ?{condition}"
    ((number,),) = query(store, statement, loss.object, *slots)  # That of a merged run is its newest.
    return f"that is of checkpoint {number}: undo it, too, {loss.how}"


def _records(state: State) -> dict[int, dict[str, Any]]:
    """Return what a space knows of each existing relational table, by the id of the object."""
    try:
        found = state.tables()
    except CorruptStoreError:
        return {}  # What is damaged may well be undone.
    rows = [state.index[name] for name, one in found.items() if name in state.index and "columns" in one["schema"]]
    return {row[0]: found[row[1]] for row in rows if row[2] == "SortedDictionary"}


def _unrecorded(before: State, after: State) -> Iterator[_Loss]:
    """Yield the tables that would remain as objects that nobody knows to be tables."""
    lost = _records(before).keys() - _records(after).keys()
    for name, row in after.index.items():
        if row[0] in lost:
            yield _Loss(name, f"would stay without its schema in {TABLES!r}", row[0])


def _unread(before: State, after: State, run: Run) -> Iterator[_Loss]:
    """Yield for each table the first row that its schema could not read, of those that come, or of all if need be."""
    known = _records(before)
    came: dict[int, dict[Slot, Payload]] = {}
    for object_id, slot, value, _ in run.items:
        if value is not None:
            came.setdefault(object_id, {})[slot] = value
    for object_id, record in _records(after).items():
        old, mine = known.get(object_id, record), came.get(object_id, {})
        if not mine and record == known.get(object_id):
            continue
        shorter, layouts = _shorter(old, record), [] if _is_another(old, record) else record["layouts"]
        is_kept = old["layouts"] == layouts[: len(old["layouts"])] and not shorter and object_id in known
        for slot, value in mine.items() if is_kept else _rows(after, object_id):
            fitting = record["layouts"] if slot in mine else layouts
            if why := _misfit(value, [] if slot in mine else old["layouts"], fitting, shorter):
                name = next(name for name, row in after.index.items() if row[0] == object_id)
                yield _Loss(name, why, object_id, slot)
                break


def misfits(state: State) -> dict[int, tuple[str, str]]:
    """Return the name of each table whose column does not hold its watermark, and which one, by the id of the table."""
    marks, names = _watermarks(state), {row[0]: name for name, row in state.index.items()}
    found = {own: (names[own], _mark_misfit(record, marks.get(names[own]))) for own, record in _records(state).items()}
    return {own: (name, why) for own, (name, why) in found.items() if why}


def _unheld(before: State, after: State) -> Iterator[_Loss]:
    """Yield the watermarks that their columns would not hold, except for those that they do not hold already."""
    known, was, now = misfits(before), _watermarks(before), _watermarks(after)
    names = {row[0]: name for name, row in before.index.items()}
    for object_id, (name, why) in misfits(after).items():
        if known.get(object_id, ("", ""))[1] != why:
            old_name = names.get(object_id, name)
            slot = old_name if was.get(old_name) == now[name] else name
            how = "as a whole, before or with this: by a table's name no watermark goes back"
            yield _Loss(name, f"would have {why}, which does not hold it", after.index[WATERMARKS][0], slot, how)


def _watermarks(state: State) -> dict[Slot, Payload]:
    return dict(_rows(state, state.index[WATERMARKS][0])) if WATERMARKS in state.index else {}


def _mark_misfit(record: dict[str, Any], stored: Payload | None) -> str:
    try:
        return "" if stored is None else misfit(record["schema"], loaded(stored))
    except (CorruptStoreError, ValueError, TypeError, KeyError, StopIteration):
        return f"the watermarks {stored!r:.80}"  # Nor are they watermarks.


def _rows(state: State, object_id: int) -> Iterator[tuple[Slot, Payload]]:
    return ((item.slot, item.value) for item in state.reader.items(object_id))


def _is_another(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Return whether one record cannot have become the other: a table that had the name before is another one.

    The key stays as it is, and the only types that get wider are those of numbers.
    """
    families, keys = [], []
    for schema in (old["schema"], new["schema"]):
        ids = {column["name"]: column["id"] for column in schema["columns"]}
        families.append({column["id"]: _NUMBER.sub("number", column["type"]) for column in schema["columns"]})
        keys.append([(ids[name], order) for name, order in schema["primary_key"]])
    return keys[0] != keys[1] or any(families[1].get(own, kind) != kind for own, kind in families[0].items())


def _shorter(old: dict[str, Any], new: dict[str, Any]) -> dict[int, int]:
    """Return the columns, by their ids, whose integers have fewer bits than before, and how many."""
    was = {column["id"]: column["type"] for column in old["schema"]["columns"]}
    types = {column["id"]: column["type"] for column in new["schema"]["columns"] if column["id"] in was}
    bits = INTEGER_BITS  # Only these cannot read every value of what they were widened to.
    return {own: bits[kind] for own, kind in types.items() if bits.get(kind, 99) < bits.get(was[own], 99)}


def _misfit(value: Payload, old: list[list[int]], new: list[list[int]], shorter: dict[int, int]) -> str:
    """Return why a row cannot be read: its layout is gone, or differs from before, or an integer is too long."""
    row: Any = None if fault_of(value) else loaded(value)
    number = row[0] if isinstance(row, list) and row else None
    if not isinstance(number, int) or number >= len(new) or old[number : number + 1] not in ([], [new[number]]):
        return f"holds a row of layout {number!r:.80}, which its schema would not know"
    for own, cell in zip(new[number], row[1:], strict=False):
        if own in shorter and cell is not None and not is_integer(cell, shorter[own]):
            return f"holds {cell!r:.80} in a column that would have integers of {shorter[own]} bits"
    return ""


def _unlisted(state: State) -> Iterator[_Loss]:
    """Yield what of key-value tables is not as a catalogue says: partitions, scopes, and the next partition."""
    entries = dict(_entries(state))
    for part in chain(state.unlisted, chain.from_iterable(map(state.partitions, state.listed()))):
        table, number, _ = key_values.part_of(part) or ("", 0, False)
        if table not in entries or number not in entries[table].numbers:
            why = f"would hold keys in partition {number}, which no catalogue has"
            yield _Loss(table, why, state.index[part][0])
    for table, entry in entries.items():
        if "/" in str(entry.slot) and table.rpartition("/")[0] not in entries:
            yield _Loss(table, "would be in a scope that no catalogue has", entry.object, entry.slot)
        if entry.numbers.stop > _following(state, entry.counter):
            why = f"has partition {entry.numbers.stop - 1}, and {entry.counter!r} would give this number away again"
            yield _Loss(table, why, entry.object, entry.slot)


class _Entry(NamedTuple):
    """What a catalogue holds of a table or a scope, which has no partitions: their numbers, the counter, and where."""

    numbers: range
    counter: str
    object: int
    slot: Slot


def _entries(state: State) -> Iterator[tuple[str, _Entry]]:
    for name, row in state.index.items():
        if key_values.is_catalogue(name) and row[2] == "SortedDictionary":
            counter = f"{name.removesuffix(key_values.CATALOGUE)}{key_values.COUNTER}"
            for slot, value in _rows(state, row[0]):
                path = f"{name.removesuffix('catalogue')}{slot!s}"
                yield path, _Entry(key_values.numbers_in(loaded(value)) or range(0), counter, row[0], slot)


def _following(state: State, counter: str) -> int:
    """Return the number of the next partition."""
    row = state.index.get(counter)
    found = [loaded(value) for _, value in _rows(state, row[0])] if row else []
    return next((one for one in found if isinstance(one, int)), 0)
