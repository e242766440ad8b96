"""Patches: the changes between two checkpoints as lines of JSON, which can be kept, read and applied.

The first line says the format. Since format 2 a last line says how many lines stand before it, and their digest: a
patch that was cut short, or has lost a line, is refused before anything is written.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from types import NoneType
from typing import Any

import orjson

from checkpoint.diff import NO_OPTIONS, Change, IndexEntry, Table, with_values
from checkpoint.errors import CheckpointError, CorruptStoreError
from checkpoint.run import OWNED_KEY, owned_ids

_FORMAT = 2
"""The version of the format, which the first line says. Patches of format 1, which have no last line, are read, too."""

_END = b'{"end":'
"""How the last line begins."""

BEGINNING = b'{"patch":'
"""How every patch begins, whatever its version."""


def lines_of(changes: Iterable[Change]) -> Iterator[bytes]:
    """Yield the lines of a patch, those of a change at once.

    The first change of an owned object is preceded by the slot of its owner, as a change of nothing; that of an object
    whose slots the index says something about, or could, by its entry. The last line says how many stand before it, and
    their digest.

    Raises:
        CorruptStoreError: a value is lost.
    """
    seal = _Seal()
    for told in chain([orjson.dumps({"patch": _FORMAT})], _lines_of(changes)):
        seal.add(*told.split(b"\n"))
        yield told
    yield seal.line()


def _lines_of(changes: Iterable[Change]) -> Iterator[bytes]:
    last: Change | None = None
    entries: set[int] = set()
    for change in map(with_values, changes):
        owner = change.owner if change.owner != last else None
        told = [line for one in (owner, change) if one is not None for line in (*_entry_told(one, entries), one)]
        yield b"\n".join(map(_line_of, told))
        last = change.owner


class _Seal:
    """How many lines have gone by, and their digest."""

    def __init__(self) -> None:
        self._count, self._digest = 0, hashlib.blake2b(digest_size=16)

    def add(self, *lines: bytes) -> None:
        """Take the next lines."""
        for line in lines:
            self._digest.update(line.rstrip(b"\r\n") + b"\n")
            self._count += 1

    def line(self) -> bytes:
        """Return the line that comes after these."""
        return orjson.dumps({"end": self._count, "digest": self._digest.hexdigest()})

    def require_whole(self, line: bytes) -> None:
        """Refuse lines that do not match what the last one says.

        Raises:
            CheckpointError: they are not.
        """
        expected = self.line()
        if line.strip() != expected:
            raise CheckpointError(
                f"the patch is not as it was written: its last line is {line.strip()[:80]!r}, and that of its"
                f" {self._count} other lines is {expected!r}: {_ANEW}"
            )


_ANEW = 'write it again, or make {"patch":1} its first line and leave out its last one if it was edited on purpose'


_VARIED = frozenset({"Dictionary", "SortedDictionary"})
"""The kinds of which some objects have slots that mean something else than those of the others."""


def _entry_told(change: Change, entries: set[int]) -> Iterator[Change]:
    """Yield the entry of an object as a change of nothing if no line has told it yet, and add it to those told."""
    if change.object in entries or change.name is None:
        return
    entries.add(change.object)
    is_telling = change.codec not in (None, NO_OPTIONS) or (change.codec is not None and change.kind in _VARIED)
    if is_telling and change.table is not Table.INDEX:
        entry = IndexEntry(change.name, str(change.kind), change.codec)
        yield replace(change, table=Table.INDEX, slot=None, old=entry, new=entry, old_rank=None, new_rank=None)


def _line_of(change: Change) -> bytes:
    fields = [change.table.value, change.object, change.name, change.kind, change.slot, change.old, change.new]
    return orjson.dumps([_packed(field) for field in fields] + [change.old_rank, change.new_rank])


def changes_of(lines: Iterable[bytes]) -> Iterator[Change]:
    """Yield the changes of a patch.

    Raises:
        CheckpointError: a line, named by its number, is not a change; or lines are missing; or the format is newer.
    """
    owners: dict[int, Change] = {}
    codecs: dict[int, str | None] = {}
    for number, line in _numbered(lines):
        try:
            table, object_id, name, kind, *values, old_rank, new_rank = orjson.loads(line)
            slot, old, new = map(_unpacked, values)
            change = Change(Table(table), object_id, name, kind, slot, old, new, old_rank, new_rank)
            _require_types(change)
            if isinstance(entry := change.new or change.old, IndexEntry):
                codecs[object_id] = entry.options
            change = replace(change, codec=codecs.get(object_id))
            if owned := _owned_by(change):
                owners |= dict.fromkeys(owned, change)
            elif change.table is not Table.INDEX or change.old != change.new:
                yield replace(change, owner=owners.get(object_id)) if name is None else change
        except (CorruptStoreError, ValueError, TypeError, KeyError) as error:
            raise CheckpointError(f"line {number} of the patch is damaged ({error}): {line[:80]!r}") from None


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are changes, with their numbers.

    Raises:
        CheckpointError: others are missing.
    """
    seal, number, has_end = _Seal(), 0, True
    rest = enumerate(lines, start=1)
    for number, line in rest:
        if number == 1:
            has_end = _format_of(line) == 1  # Nothing says where a patch of that format ends.
        elif not has_end and line.startswith(_END):
            seal.require_whole(line)
            has_end = True
            if (more := next(rest, None)) is not None:
                raise CheckpointError(f"line {more[0]} of the patch comes after its last one: {_ANEW}")
        else:
            yield number, line
        seal.add(line)
    if not has_end:
        raise CheckpointError(f"the patch ends with line {number}, which is not its last one: it was cut: {_ANEW}")


def _format_of(line: bytes) -> int:
    """Return the format that the first line says."""
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        found = None
    for version in range(1, _FORMAT + 1):
        if found == {"patch": version}:
            return version
    raise CheckpointError(f"this is no patch of format 1 to {_FORMAT}: it begins with {line[:80]!r}")


def _owned_by(change: Change) -> set[int]:
    """Return the id of the object in a slot if this is a change of nothing, which tells its owner."""
    is_same = (change.old, change.old_rank) == (change.new, change.new_rank)
    is_owner = is_same and isinstance(change.new, str) and f'"{OWNED_KEY}":' in change.new
    return owned_ids([str(change.new)]) if is_owner else set()


def _require_types(change: Change) -> None:
    """Refuse fields that no store has: SQLite would keep them, and nobody could read the object any more.

    Raises:
        TypeError: there is one.
    """
    slots, values = _TYPES[change.table]
    entries = [one for one in (change.old, change.new) if isinstance(one, IndexEntry)]
    fields: tuple[tuple[set[type], list[Any]], ...] = (
        ({int}, [change.object]),
        ({str}, [text for entry in entries for text in (entry.name, entry.kind)]),
        ({str, NoneType}, [change.name, change.kind, *(entry.codec for entry in entries)]),
        (slots, [change.slot]),
        ({*values, NoneType}, [change.old, change.new]),
        ({int, NoneType}, [change.old_rank, change.new_rank]),
    )
    for types, found in fields:
        for field in found:
            if type(field) not in types or (type(field) is int and not -(2**63) <= field < 2**63):
                raise TypeError(f"found {field!r}, expected one of {', '.join(sorted(one.__name__ for one in types))}")


_TYPES: dict[Table, tuple[set[type], set[type]]] = {
    Table.INDEX: ({NoneType}, {IndexEntry}),
    Table.METADATA: ({str}, {str}),
    Table.ITEM: ({int, float, str, bytes}, {str, bytes}),
}
"""The types of slots and of values."""


def _packed(field: Any) -> Any:
    if isinstance(field, bytes):
        return {"hex": field.hex()}
    if isinstance(field, float) and not math.isfinite(field):
        return {"float": repr(field)}  # JSON has no infinity, and a slot may be one
    return {"index": list(field)} if isinstance(field, IndexEntry) else field


def _unpacked(field: Any) -> Any:
    if not isinstance(field, dict):
        return field
    ((tag, value),) = field.items()
    return _TAGS[tag](value)


_TAGS: dict[str, Callable[[Any], Any]] = {
    "hex": bytes.fromhex,
    "float": float,
    "index": lambda entry: IndexEntry(*entry),
}
