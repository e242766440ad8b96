"""Choosing some objects of a state, by a run that deletes the others so that nothing is loaded; or of changes.

A relational table brings its schema and its watermarks, a key-value table its partitions and its entry in the
catalogue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

import orjson

from checkpoint.consistency import LENGTH
from checkpoint.diff import Change, IndexEntry, Table
from checkpoint.reader import Reader, StoredItem
from checkpoint.run import CheckpointKind, Payload, Run, fault_of
from checkpoint.tool import key_values
from checkpoint.tool.content import TABLES, WATERMARKS, State, absence
from checkpoint.tool.described import Describer, lists_tables, table_listed
from checkpoint.tool.hiding import falls_back
from checkpoint.tool.raw import loaded


def selection(state: State, names: Sequence[str]) -> tuple[Run, set[str]]:
    """Return the run that leaves only some objects, empty if no name is given, and which of the names exist.

    Args:
        state: the state.
        names: the objects, relational tables and key-value tables to keep.
    """
    if not names:
        return Run(CheckpointKind.DIFFERENTIAL), set()
    known = {name for name in names if name in state}
    wanted: set[str] = set()
    schemas: set[str] = set()
    entries: dict[str, set[str]] = {}
    for name in known:
        wanted |= set(state.parts_of(name))
        if (table := state.key_value_table(name)) is not None:
            operator, path = key_values.split(table)
            entries.setdefault(operator, set()).update((path.split("/")[0], path))
        if state.columns(name) is not None:
            schemas.add(name)
    run = Run(CheckpointKind.DIFFERENTIAL)
    wanted |= {f"{operator}{key_values.COUNTER}" for operator in entries}
    catalogues = {f"{operator}{key_values.CATALOGUE}": paths for operator, paths in entries.items()}
    for catalogue, keys in {TABLES: schemas, WATERMARKS: schemas, **catalogues}.items():
        if catalogue not in known and any(_item(state, catalogue, key) for key in keys):
            wanted.add(catalogue)
            _trim(run, state, catalogue, keys)
    run.index += [(row[0], row[1], None, None) for row in state.index.values() if row[1] not in wanted]
    return run, known


def of_objects(changes: Iterable[Change], names: Collection[str], before: State, after: State) -> Iterator[Change]:
    """Yield the changes of some objects. Memory: these changes.

    The dictionaries that list tables stay where they are, with what they hold of other tables. What a key-value table
    that comes needs besides its own entry, its scope and the number of the next partition, comes along, and never goes.
    That number never gets smaller, since others may have been given what it counts, nor does any watermark of a table
    that is there before and after.

    Args:
        changes: the changes between two states.
        names: the objects, relational tables and key-value tables.
        before: the state before the changes.
        after: the state after them.
    """
    describer = Describer(before, after)
    wanted = describer.called(names)
    found = [one for one in changes if describer.names_of(one) & wanted or lists_tables(one) or _is_counter(one)]
    came = {table_listed(one) for one in found if one.old is None and one.name not in (TABLES, WATERMARKS)} & wanted
    places = [key_values.split(table) for table in sorted(filter(None, came))]
    counters = {f"{operator}{key_values.COUNTER}" for operator, _ in places}
    scopes = {(f"{operator}{key_values.CATALOGUE}", path.split("/")[0]) for operator, path in places}
    for _, grouped in groupby(found, attrgetter("object")):
        group = list(grouped)
        name = group[0].name
        if _is_counter(group[0]):
            yield from group if name in wanted | counters and not any(map(_is_smaller, group)) else ()
            continue
        if not lists_tables(group[0]) or name in wanted:
            yield from group
            continue
        items = [one for one in group if one.table is Table.ITEM]
        kept = [one for one in items if table_listed(one) in wanted or (one.old is None and (name, one.slot) in scopes)]
        if name == WATERMARKS and kept:
            kept = _never_lower(kept, before, after)
        if kept:
            yield from (one for one in group if one.table is Table.INDEX and one.new is not None)
            yield from _length_change(kept, before.reader)
            yield from kept


def with_versions_now(changes: Iterable[Change], now: Reader) -> Iterator[Change]:
    """Yield changes, with those of a partition's last version fitted to a state: it never becomes lower.

    Every key that is written moves it, so others nearly always have since. A version that was given to somebody is
    given to nobody else, even if what it was given for is undone: it may be the condition of a change.

    Args:
        changes: what changed.
        now: the state to apply them to.
    """
    for change in changes:
        item = now.item(change.object, change.slot or 0) if _is_version(change) else None
        numbers = [_number(one) for one in (change.old, change.new, item.value if item else None)]
        if item is None or None in numbers:
            yield change
            continue
        given = change.new if numbers[1] > numbers[2] else item.value  # type: ignore[operator]  # none of them is None
        yield replace(change, old=item.value, old_rank=item.rank, new=given, new_rank=item.rank)


def _is_version(change: Change) -> bool:
    """Return whether a change is of the last version of a partition of a key-value table, which stays."""
    part = key_values.part_of(change.name) if change.kind == "Value" and change.table is Table.ITEM else None
    return part is not None and part[2]


def _number(stored: Payload | IndexEntry | None) -> int | None:
    found = None if isinstance(stored, IndexEntry) or fault_of(stored) else loaded(stored)
    return found if type(found) is int else None


def require_found(names: Sequence[str], found: Collection[str], known: Collection[str]) -> None:
    """Refuse names that no store has.

    Args:
        names: the names.
        found: those of them that exist.
        known: all names that exist.

    Raises:
        CheckpointError: a name does not exist; those that may be meant are named.
    """
    for name in names:
        if name not in found:
            raise absence(name, known)


def _is_counter(change: Change) -> bool:
    """Return whether a change is of the number of the next partition."""
    return change.kind == "Value" and f"/{change.name}".endswith(f"/{key_values.COUNTER}")


def _is_smaller(change: Change) -> bool:
    """Return whether a change takes a number away, or makes it smaller."""
    numbers = [loaded(one) for one in (change.old, change.new) if not isinstance(one, IndexEntry)]
    return change.new is None or (None not in numbers and numbers != sorted(numbers))


def _never_lower(changes: Sequence[Change], before: State, after: State) -> list[Change]:
    """Return changes of watermarks without what lowers those of a table that is there before and after."""
    found = {str(one.slot): one for one in changes}
    names = {row[0]: name for name, row in after.index.items()}
    for old_name, row in before.index.items():
        name = names.get(row[0])
        if name is None or not found.keys() & {old_name, name}:
            continue
        kept, there = _mark_kept(old_name, name, before, after), _item(before, WATERMARKS, name)
        if kept is None:
            continue
        given = found.pop(name, None)
        if there is None or there.value != kept.value:
            old, old_rank = (there.value, there.rank) if there else (None, None)
            ranks = [given.new_rank if given else None, old_rank, kept.rank]
            rank = next(rank for rank in ranks if rank is not None)
            found[name] = replace(changes[0], slot=name, old=old, old_rank=old_rank, new=kept.value, new_rank=rank)
    return [found[slot] for slot in sorted(found)]


def _mark_kept(old_name: str, name: str, before: State, after: State) -> StoredItem | None:
    """Return the watermarks that a table has before, if those that it has afterwards are lower."""
    record, old, new = after.tables().get(name), _item(before, WATERMARKS, old_name), _item(after, WATERMARKS, name)
    if old is None or record is None or record["schema"]["watermark_column"] is None:
        return None
    is_lower = falls_back(record["schema"], loaded(old.value), loaded(new.value) if new else [])
    return old if is_lower else None


def _length_change(kept: Sequence[Change], base: Reader) -> Iterator[Change]:
    """Yield the change of the length of a dictionary that gets only some of its changes, if there is one."""
    one = kept[0]
    old = base.metadatum(one.object, LENGTH) if base.entry(one.object) is not None else None
    grown = sum((change.new is not None) - (change.old is not None) for change in kept)
    ranks = [change.new_rank for change in kept if change.new_rank is not None]
    new = _length_after(old, grown, ranks, is_ranked=one.kind == "Dictionary")
    if new != (old or "0"):
        yield Change(Table.METADATA, one.object, one.name, one.kind, LENGTH, old, new)


def _length_after(stored: str | None, grown: int, ranks: Iterable[int] = (), *, is_ranked: bool) -> str:
    """Return the length to store after slots came or went: only a kind that keeps the order also stores a next rank.

    >>> _length_after("2", -1, is_ranked=True), _length_after("[1,2]", 1, [5], is_ranked=True)
    ('[1,2]', '[2,6]')
    """
    found = orjson.loads(stored or "0")
    length, following = found if isinstance(found, list) else (found, found)
    length, following = length + grown, max([following, *(rank + 1 for rank in ranks)])
    return orjson.dumps([length, following] if is_ranked and length != following else length).decode()


def _item(state: State, name: str, key: str) -> StoredItem | None:
    return state.reader.item(state.index[name][0], key) if name in state.index else None


def _trim(run: Run, state: State, name: str, keys: Collection[str]) -> None:
    """Delete all but some entries of a catalogue, and set its length; the ranks continue where they were."""
    object_id = state.find(name)[0]
    slots = [item.slot for item in state.reader.items(object_id)]
    gone = [slot for slot in slots if slot not in keys]
    if not gone:
        return
    stored, is_ranked = state.reader.metadatum(object_id, LENGTH), state.find(name)[2] == "Dictionary"
    run.metadata.append((object_id, LENGTH, _length_after(stored, -len(gone), is_ranked=is_ranked)))
    run.items += [(object_id, slot, None, None) for slot in gone]
