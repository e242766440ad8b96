"""Applying differences: changes become the run of a new checkpoint, or are refused if they do not fit.

A change fits if its slot holds what it held then, and if its object is the same one as then: a fork gives the same ids
to objects of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import orjson

from checkpoint.consistency import LENGTH, RANKED
from checkpoint.diff import NO_OPTIONS, Change, IndexEntry, Table, is_same, with_values
from checkpoint.errors import CheckpointError, CorruptStoreError
from checkpoint.key_order import IN_MEMORY, ORDER, breaks_order, is_sorted, keeps_order, may_compare
from checkpoint.owned import member, owned_kind, owner_slots
from checkpoint.reader import Reader
from checkpoint.run import OWNED_KEY, CheckpointKind, Payload, Run, Slot, is_owner, owned_ids


def counted_now(changes: Iterable[Change], base: Reader) -> list[Change]:
    """Return changes as they apply to a given state.

    A length changes from its value there, by as much as it did originally. The mark that a sorted object is read whole,
    since its slots do not sort as its keys, stays as long as the object has such a slot, and comes with the first one.

    Args:
        changes: what changed.
        base: the state to apply them to: other slots may have come and gone there since.

    Time: O(changes · live runs · log n); if a sorted object had its first such slot, also O(such slots). Memory: the
    changes.
    """
    changes = list(changes)
    ranked = {change.object for change in changes if (change.old_rank, change.new_rank) != (None, None)}
    others = {change.object for change in changes if change.table is Table.INDEX and not _is_renaming(change)}
    counted = [
        change if change.object in others else _as_counted_now(change, base, change.object in ranked)
        for change in changes
    ]
    return list(_as_ordered_now(counted, base))


def run_applying(changes: Iterable[Change], base: Reader) -> Run:
    """Return the run that applies changes to a state, adjusted by :func:`counted_now`.

    Args:
        changes: what changed.
        base: the state to apply them to.

    Raises:
        CheckpointError: a slot does not hold what the change says it held, or belongs to another object; or the changes
            would add an object whose id another one has, or to a sorted object a key that does not compare with its
            other keys.

    Time: O(changes · live runs · log n); if objects are added, or owned ones change, also O(slots of the objects that
    own others). Memory: the changes.
    """
    changes = counted_now(changes, base)
    index = {change.object: change for change in changes if change.table is Table.INDEX}
    entries_of = cache(partial(_entries_among, index=index, base=base))
    gained, lost = _comings_and_goings(changes, index, entries_of)
    there = base.reachable() if gained or any(change.name is None for change in changes) else set()
    for change in {change.object: change for change in changes if change.object not in gained}.values():
        if change.owner is not None and change.object in there:  # A change of one that is gone does not fit.
            _require_same_owner(change, change.owner, _either(entries_of(change.owner.object)), base)
    run = Run(CheckpointKind.DIFFERENTIAL)
    for change in changes:
        entries = entries_of(change.object)
        _require_same_object(change, entries, base, is_replaced=change.object in gained)
        with_values(replace(change, old=None))  # What was lost may be replaced, and is not brought back.
        if change.table is Table.INDEX or change.object not in gained or change.object in lost:
            is_there = _either(entries) is not None or (change.name is None and change.object in there)
            _require_fit(change, base, is_there=is_there)
        if change.object not in lost or change.object in gained or change.table is Table.INDEX:
            _add(run, change)
    _require_free((gained - lost) & there, changes, base)
    _require_comparable([change for change in changes if change.object not in gained], base)
    _require_one_each(run, base)
    _require_all_of(lost - gained, changes, base)
    _hide_remains(run, gained - lost, base)
    _note_returns(run, gained - index.keys())
    return run


def _comings_and_goings(
    changes: list[Change], index: dict[int, Change], entries_of: Callable[[int], _Entries]
) -> tuple[set[int], set[int]]:
    """Return the ids of the objects that changes create, and of those that they end."""
    gained = {object_id for object_id, change in index.items() if change.old is None}
    lost = {object_id for object_id, change in index.items() if change.new is None}
    owned_before: set[int] = set()
    owned_after: set[int] = set()
    for change in changes:
        if change.table is Table.ITEM:
            before, after = entries_of(change.object)
            owned_before |= _owned_by(before, change.old)
            owned_after |= _owned_by(after, change.new)
    return gained | (owned_after - owned_before), lost | (owned_before - owned_after)


def _owned_by(entry: IndexEntry | None, value: Payload | IndexEntry | None) -> set[int]:
    """Return the id that a slot of the object with this entry names, if its slots refer to others."""
    return _ids_in(value) if _is_of_owner(entry) else set()


def _is_of_owner(entry: IndexEntry | None) -> bool:
    return entry is not None and is_owner((0, *entry))


def _ids_in(value: Payload | IndexEntry | None) -> set[int]:
    """Return the id of the owned object that a stored value names; any other value names none."""
    try:
        ids = owned_ids([value] if isinstance(value, str) and OWNED_KEY in value else [])
    except (CorruptStoreError, TypeError):
        return set()
    return {one for one in ids if type(one) is int}


_Entries = tuple[IndexEntry | None, IndexEntry | None]
"""What the index says of an object before the changes, and after them."""


def _entries_among(object_id: int, index: dict[int, Change], base: Reader) -> _Entries:
    """Return the entries of an object before the changes of the index and after them."""
    change = index.get(object_id)
    if change is None:
        entry = _stored_entry(base, object_id)
        return entry, entry
    before, after = (one if isinstance(one, IndexEntry) else None for one in (change.old, change.new))
    return before, after


def _either(entries: _Entries) -> IndexEntry | None:
    """Return the entry of an object after the changes, or before them if they end it."""
    return entries[1] or entries[0]


def _stored_entry(base: Reader, object_id: int) -> IndexEntry | None:
    row = base.entry(object_id)
    return None if row is None else IndexEntry.of(row)


def _as_counted_now(change: Change, base: Reader, is_ranked: bool) -> Change:
    """Return a change of a length as a change from the length in the state; every other change as it is."""
    if change.table is not Table.METADATA or change.slot != LENGTH or change.kind == "Array":
        return change  # The length of an array is not a count: it differs if a fork made another array.
    found = base.metadatum(change.object, LENGTH)
    counts = [_count(text) for text in (change.old, change.new, found)]
    if found == change.old or None in counts:
        return change
    (old, next_before), (new, next_after), (now, following) = counts  # type: ignore[misc]  # none of them is None
    length = now + new - old
    # An object that keeps the order of insertion never reuses a rank: those that a change brings may have been taken
    # since.
    if length < 0 or (is_ranked and _are_ranks_taken(next_before, next_after, following)):
        return change
    has_ranks = is_ranked or following != now
    following = next_after if is_ranked and next_after > next_before else following
    value = [length, following] if has_ranks and following != length else length
    return replace(change, old=found, new=orjson.dumps(value).decode())


def _as_ordered_now(changes: list[Change], base: Reader) -> Iterator[Change]:
    """Yield changes with their effect on the order of sorted objects, whose other slots may have changed by now."""
    suspects = {one.object: one for one in changes if one.table is Table.ITEM and _may_break_order(one)}
    tellers = {change.object: change for change in changes if _tells_order(change)}
    in_order = _sorted_among(tellers | suspects, changes, base)
    told: dict[int, set[Slot]] = {own: set() for own in tellers}
    for change in changes:
        if change.table is Table.ITEM and change.object in told:
            told[change.object].add(_slot(change))
    broken = (in_order & suspects.keys()) - told.keys()
    broken = {own for own in broken if base.metadatum(own, ORDER) is None}
    for change in changes:
        if change.table is Table.ITEM and change.object in broken:
            broken.remove(change.object)
            yield replace(
                change, table=Table.METADATA, slot=ORDER, old=None, new=IN_MEMORY, old_rank=None, new_rank=None
            )
        is_order = _tells_order(change) and change.object in in_order
        yield _order_now(change, base, told[change.object], change.object in suspects) if is_order else change


def _tells_order(change: Change) -> bool:
    return change.table is Table.METADATA and change.slot == ORDER


def _is_renaming(change: Change) -> bool:
    """Return whether a change of the index at most renames an object."""
    before, after = (one if isinstance(one, IndexEntry) else None for one in (change.old, change.new))
    return is_same(before, after)


def _may_break_order(item: Change) -> bool:
    """Return whether a slot that stays or is added would not sort as its key, if its object is a sorted one."""
    new = _payload(item.new)
    return new is not None and not keeps_order(_slot(item), new)


def _order_now(change: Change, base: Reader, touched: set[Slot], is_broken: bool) -> Change:
    """Return a change of the order of an object as a change from the order in the state."""
    found, new = base.metadatum(change.object, ORDER), _payload(change.new)
    if is_broken or (found is not None and new is None and breaks_order(base, change.object, touched)):
        new = IN_MEMORY
    return replace(change, old=found, new=new)


def _sorted_among(items: dict[int, Change], changes: Iterable[Change], base: Reader) -> set[int]:
    """Return the ids of those objects that are sorted, given a change of each object."""
    index = {change.object: change for change in changes if change.table is Table.INDEX} if items else {}
    owners = owner_slots(base, [own for own, item in items.items() if item.name is None]) if items else {}
    found = set()
    for own in items:
        _, entry = _entries_among(own, index, base)
        kind, options = (entry.kind, entry.options) if entry else (None, None)
        if own in owners:
            _, owner = _entries_among(owners[own].owner[0], index, base)
            kind, options = owned_kind(owner.codec if owner else None), None
        if is_sorted(kind, options):
            found.add(own)
    return found


def _count(text: Payload | IndexEntry | None) -> tuple[int, int] | None:
    """Return a stored length and the next rank to be given; ``None`` if the text is no such length."""
    try:
        value = orjson.loads(text)  # type: ignore[arg-type]  # anything but text is not JSON
    except orjson.JSONDecodeError:
        return None
    found = value if isinstance(value, list) and len(value) == 2 else [value, value]
    return (found[0], found[1]) if {type(number) for number in found} == {int} else None


def _require_same_object(change: Change, entries: _Entries, base: Reader, *, is_replaced: bool) -> None:
    """Refuse a change of another object than the one that has its id: a fork gives the same ids to objects of its own.

    If the object is being added, what had the id before is another one.

    Raises:
        CheckpointError: it is one.
    """
    entry = _either(entries)
    if change.table is Table.INDEX or entry is None:
        return
    if (is_replaced or _is_of(change, entry, base)) and _may_hold(change, entries):
        return
    whose = "an object that another one owns" if change.name is None else _in_words(change)
    raise CheckpointError(
        f"{change.table} slot {change.slot!r}: the change is of {whose}, but object {change.object} is"
        f" {_in_words(entry)} here: apply changes to the store that they were made from, and those of a fork from where"
        " it began; nothing was written"
    )


def _is_of(change: Change, entry: IndexEntry, base: Reader) -> bool:
    """Return whether a change belongs to the object with this entry, which may have been renamed since."""
    if change.kind != entry.kind or change.codec not in (None, entry.options):
        return False
    return change.name == entry.name or (change.name is not None and base.knew(change.object, change.name, entry.kind))


def _may_hold(change: Change, entries: _Entries) -> bool:
    """Return whether the values of a change suit the object before and after: ids of others, if it owns any."""
    pairs = zip(entries, (change.old, change.new), strict=True)
    return change.table is not Table.ITEM or all(
        value is None or not _is_of_owner(entry) or bool(_ids_in(value)) for entry, value in pairs
    )


def _in_words(subject: Change | IndexEntry) -> str:
    """Describe an object by its kind, its name, and what the index says of its slots."""
    options = subject.options if isinstance(subject, IndexEntry) else subject.codec
    return f"{subject.kind} {subject.name!r}" + (f" with {options}" if options not in (None, NO_OPTIONS) else "")


def _require_same_owner(change: Change, owner: Change, entry: IndexEntry | None, base: Reader) -> None:
    """Refuse a change of an owned object if the object with its id is at another place.

    Raises:
        CheckpointError: another owner has it, or another key.
    """
    item = base.item(owner.object, _slot(owner))
    is_there = item is not None and _ids_in(item.value) == {change.object}
    if is_there and entry is not None and _is_of(owner, entry, base):
        return
    if owner_slots(base, {change.object}).get(change.object) is None:
        return  # It has a name: the change does not fit.
    whose = member(owner.name, owner.slot, _payload(owner.new))
    what = f"{change.table} slot {change.slot!r}: the change is of object {change.object}, {whose}"
    raise _taken(what, change.object, base)


def _require_free(taken: set[int], changes: Iterable[Change], base: Reader) -> None:
    """Refuse to add an object whose id an existing one has.

    Raises:
        CheckpointError: it is.
    """
    if taken:
        object_id = min(taken)
        raise _taken(f"the changes bring object {object_id}, {_brought(object_id, changes)}", object_id, base)


def _brought(object_id: int, changes: Iterable[Change]) -> str:
    """Return in words what the changes add under an id."""
    for change in changes:
        if change.table is Table.INDEX and change.object == object_id and isinstance(change.new, IndexEntry):
            return f"{change.new.kind} {change.new.name!r}"
        if change.table is Table.ITEM and _ids_in(change.new) == {object_id}:
            return member(change.name, change.slot, _payload(change.new))
    return "which another one owns"


def _taken(what: str, object_id: int, base: Reader) -> CheckpointError:
    """Return the error that says that an id belongs to another object here."""
    entry, slot = _stored_entry(base, object_id), owner_slots(base, {object_id}).get(object_id)
    here = f"{entry.kind} {entry.name!r}" if entry else "another one"
    if slot is not None:
        here = member(slot.owner[1], slot.item.slot, slot.item.value)
    return CheckpointError(
        f"{what}, but object {object_id} is {here} here, as a fork gives the same ids to objects of its own: apply"
        " changes of a fork to the state from which it began, or make the edits in a space, which gives ids that are"
        " free; nothing was written"
    )


def _require_fit(change: Change, base: Reader, *, is_there: bool) -> None:
    """Refuse a change of something that is not as it was, or of an object that is gone.

    Raises:
        CheckpointError: the slot holds something else.
    """
    found: object
    expected: object = change.old
    if change.table is Table.INDEX:
        found = _stored_entry(base, change.object)
    elif change.table is Table.METADATA:
        found = base.metadata(change.object).get(str(change.slot))
    else:
        item = base.item(change.object, _slot(change))
        found = (item.value, item.rank) if item else (None, None)
        expected = change.old, change.old_rank
    whose = "which another one owns" if change.name is None else f"{change.name!r}"
    what = f"{change.table} slot {change.slot!r} of object {change.object}, {whose},"
    if change.table is not Table.INDEX and not is_there:
        raise CheckpointError(f"{what} is to change, but there is no such object (any more); nothing was written")
    if found != expected:
        holds, old = _apart(found, expected)
        why = "something else has changed it since"
        if _gives_ranks_that_are_taken(change, found):
            why = "keys were inserted on both sides, and their order is kept"
        raise CheckpointError(
            f"{what} holds {holds}, but the change is from {old}: {why}; nothing was written: undo that first, or put"
            " the object back as it was at a checkpoint, with the patch of `checkpoint diff PATH HEAD CHECKPOINT NAME"
            " --patch FILE`"
        )


def _gives_ranks_that_are_taken(change: Change, found: Any) -> bool:
    """Return whether a change of a length, which differs by now, comes from keys whose ranks others now have."""
    if change.table is not Table.METADATA or change.slot != LENGTH or change.kind not in RANKED:
        return False
    before, after, now = (_count(text) for text in (change.old, change.new, found))
    return bool(before and after and now) and _are_ranks_taken(before[1], after[1], now[1])  # type: ignore[index]


def _are_ranks_taken(next_before: int, next_after: int, following: int) -> bool:
    """Return whether ranks given between two states may also have been given here, judging by the next one here."""
    return next_after > next_before != following


def _apart(found: object, expected: object) -> tuple[str, str]:
    """Return what a slot holds and what was expected, as text; the ranks only if they alone differ."""
    pair: tuple[Any, Any] = found, expected
    if isinstance(found, tuple) and isinstance(expected, tuple) and found[0] != expected[0]:
        pair = found[0], expected[0]
    holds, old = ("nothing" if one is None else one if isinstance(one, str) else repr(one) for one in pair)
    return f"{holds:.200}", f"{old:.200}"


def _require_comparable(changes: list[Change], base: Reader) -> None:
    """Refuse keys that do not compare with others of a sorted object, as when it was empty when they were added.

    Raises:
        CheckpointError: there are some.

    Time: O(changes · live runs · log n).
    """
    items = [change for change in changes if change.table is Table.ITEM]
    brought = {change.object: change for change in items if change.old is None and change.new is not None}
    touched: dict[int, set[Slot]] = {own: set() for own in _sorted_among(brought, changes, base)}
    for change in items:
        if change.object in touched:
            touched[change.object].add(_slot(change))
    for own, slots in touched.items():
        slot, others = _slot(brought[own]), (item.slot for item in base.items(own, page_rows=16))
        other = next((one for one in others if one not in slots), None)
        if other is not None and not may_compare(other, slot):
            whose = "which another one owns" if brought[own].name is None else f"{brought[own].name!r}"
            raise CheckpointError(
                f"the changes bring slot {slot!r} to object {own}, {whose}, which holds {other!r}, and the keys of a"
                " sorted object compare with each other: something else has written into it since; nothing was written"
            )


def _require_one_each(run: Run, base: Reader) -> None:
    """Refuse changes after which two objects would have one name, or one object two entries.

    Raises:
        CheckpointError: they would.

    Time: O(named objects) if the index changes.
    """
    told = Counter(row[0] for row in run.index)
    twice = next((row for row in run.index if told[row[0]] > 1), None)
    if twice is not None:
        raise CheckpointError(
            f"the changes of the index hold object {twice[0]}, {twice[1]!r}, {told[twice[0]]} times, and one change of"
            " it leads from one state to another: give each change once; nothing was written"
        )
    names = {row[0]: row[1] for row in base.index()} if run.index else {}
    names |= {row[0]: row[1] for row in run.index}
    for row in run.index:
        if row[2] is None:
            del names[row[0]]
    doubled = [name for name, count in Counter(names.values()).items() if count > 1]
    if doubled:
        raise CheckpointError(
            f"the changes bring an object {doubled[0]!r}, and another one has this name: apply them to the state that"
            " they were made from; nothing was written"
        )


def _require_all_of(lost: set[int], changes: Iterable[Change], base: Reader) -> None:
    """Refuse to end an object that holds more than the changes remove: others have written to it since.

    Raises:
        CheckpointError: it does.

    Time: O(slots of the changes).
    """
    taken: dict[int, set[Slot]] = {object_id: set() for object_id in lost}
    for change in changes:
        if change.table is Table.ITEM and change.object in taken:
            taken[change.object].add(_slot(change))
    for object_id, slots in taken.items():
        entry = base.entry(object_id)
        if entry is None:
            continue
        more = next((item.slot for item in base.items(object_id) if item.slot not in slots), None)
        if more is not None:
            raise CheckpointError(
                f"the changes end object {object_id}, {entry[1]!r}, and its slot {more!r} is not theirs: something"
                " else has written into it since; nothing was written"
            )


def _add(run: Run, change: Change) -> None:
    if change.table is Table.INDEX:
        entry = change.new if isinstance(change.new, IndexEntry) else None
        run.index.append((change.object, *entry) if entry else (change.object, change.name or "", None, None))
    elif change.table is Table.METADATA:
        value = _payload(change.new)
        run.metadata.append((change.object, str(change.slot), None if value is None else str(value)))
    else:
        run.items.append((change.object, _slot(change), _payload(change.new), change.new_rank))


def _hide_remains(run: Run, gained: set[int], base: Reader) -> None:
    """Delete what older runs still hold of objects that come back: it was out of reach, and would be seen again."""
    metadata = {row[:2] for row in run.metadata if row[0] in gained}
    items = {row[:2] for row in run.items if row[0] in gained}
    for object_id in gained:
        keys = base.metadata(object_id)
        run.metadata += [(object_id, key, None) for key in keys if (object_id, key) not in metadata]
        slots = (item.slot for item in base.items(object_id))
        run.items += [(object_id, slot, None, None) for slot in slots if (object_id, slot) not in items]


def _note_returns(run: Run, owned: set[int]) -> None:
    """Record that objects owned by others may have been gone before, by the row of one deletion.

    Nothing else writes to an object that was gone, and differences rely on that if no object was deleted.
    """
    if owned:
        run.index.append((min(owned), "", None, None))


def _payload(value: Payload | IndexEntry | None) -> Payload | None:
    return None if isinstance(value, IndexEntry) else value


def _slot(change: Change) -> Slot:
    if change.slot is None:
        raise CheckpointError(f"a change of object {change.object} names no slot: give the slot of the item")
    return change.slot
