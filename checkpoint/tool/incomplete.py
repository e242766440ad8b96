"""Incomplete changes, as of a patch that was cut: nobody could read the objects that they would leave.

Since its second format a patch says how many lines it has; one that was written before, or edited, does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from checkpoint.consistency import RANKED, fault_of
from checkpoint.errors import CheckpointError
from checkpoint.owned import member, owned_kind, owner_slots
from checkpoint.reader import Reader
from checkpoint.run import IndexRow, Payload, Run, Slot, is_owner, owned_ids

_Row = tuple[Payload | None, int | None]
"""What a slot holds after the changes, ``None`` if it is gone, and its rank."""

_Rows = dict[int, dict[Slot, _Row]]
"""The slots of objects that change."""


class _Subject(NamedTuple):
    """An object that changes, its kind, what the index says of its slots, and its name in words."""

    object: int
    kind: str | None
    codec: str | None
    name: str
    is_new: bool


def require_complete(before: Reader, after: Reader, run: Run) -> None:
    """Refuse changes after which an object would not have the slots its metadata says, unless that is so already.

    Args:
        before: the state before the changes.
        after: the same with the run on top.
        run: the run that makes them.

    Raises:
        CheckpointError: there is such an object.

    Time: O(changes · live runs · log n); if owned objects change, also O(slots of the objects that own others).
    """
    rows: _Rows = {own: {} for own in (*(row[0] for row in run.index), *(row[0] for row in run.metadata))}
    for object_id, slot, value, rank in run.items:
        rows.setdefault(object_id, {})[slot] = value, rank
    for own, kind, codec, name, is_new in _subjects(before, after, rows):
        if not is_new and _agrees(before, after, own, kind, rows[own]):
            continue
        fault = fault_of(after, own, kind, codec)
        if fault and (is_new or not fault_of(before, own, kind, codec)):
            raise CheckpointError(
                f"the {kind} {name} would have {fault}: some of the changes are missing, as when a patch was cut or"
                " edited: make them again; nothing was written"
            )


def _subjects(before: Reader, after: Reader, rows: _Rows) -> Iterator[_Subject]:
    """Yield the objects that change, as they are afterwards."""
    named = {row[0]: row for row in after.index()}
    for own, (_, name, kind, codec) in named.items():
        if own in rows:
            yield _Subject(own, kind, codec, repr(name), before.entry(own) is None)
    told: set[int] = set()
    for owner in filter(is_owner, named.values()):
        for slot, (value, _) in rows.get(owner[0], {}).items():
            for own in owned_ids([value]):
                told.add(own)
                yield _member(own, owner, slot, value, is_new=True)
    rest = rows.keys() - named.keys() - told
    for own, (owner, item) in (owner_slots(before, rest) if rest else {}).items():
        if owner[0] in named and item.slot not in rows.get(owner[0], {}):
            yield _member(own, named[owner[0]], item.slot, item.value, is_new=False)


def _member(own: int, owner: IndexRow, slot: Slot, value: Payload | None, *, is_new: bool) -> _Subject:
    return _Subject(own, owned_kind(owner[3]), None, member(owner[1], slot, value), is_new)


def _agrees(before: Reader, after: Reader, object_id: int, kind: str | None, rows: dict[Slot, _Row]) -> bool:
    """Return whether the metadata of an object changes as its slots do, as far as the changes alone can tell."""
    stored = before.items_at(object_id, list(rows))
    old, new = {row[0] for row in stored}, {slot for slot, (value, _) in rows.items() if value is not None}
    try:
        was, now = (_extent(kind, reader.metadata(object_id)) for reader in (before, after))
    except (ValueError, TypeError, KeyError):
        return False
    if kind == "Array":
        return bool(was == now and old <= new and all(slot in now for slot in new))
    if kind not in ("Queue", "Stack"):
        ranks = [rank for value, rank in rows.values() if value is not None and rank is not None]
        has_next = kind not in RANKED or _is_next(was[1], now[1], {row[2] for row in stored}, ranks)
        return bool(now[0] - was[0] == len(new) - len(old)) and has_next
    common = len(range(max(was.start, now.start), min(was.stop, now.stop)))
    came, gone = new - old, old - new
    has_all = (len(came), len(gone)) == (len(now) - common, len(was) - common)
    return has_all and all(slot in now for slot in came) and not any(slot in now for slot in gone)


def _is_next(was: int, now: int, left: set[int | None], taken: list[int]) -> bool:
    """Return whether the next rank is still above all others: one that falls passes only ranks that are left."""
    return max(taken, default=-1) < now and (was - now <= len(left) and left.issuperset(range(now, was)))


def _extent(kind: str | None, metadata: dict[str, str]) -> Any:
    """Return how many slots the metadata of an object says, and the next rank; for slots in a row, their range."""
    found = {key: orjson.loads(text) for key, text in metadata.items()}
    if kind == "Queue":
        return range(found["head"], found["tail"])
    if kind == "Stack":
        return range(found["count"])
    length = found["length"]
    if kind == "Array":
        return range(length)
    return length if isinstance(length, list) else [length, length]
