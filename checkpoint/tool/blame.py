"""``blame``: which checkpoint last wrote each slot of an object."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click

from checkpoint.errors import CheckpointError
from checkpoint.reader import Reader, StoredItem
from checkpoint.record import CheckpointRecord
from checkpoint.run import CheckpointKind, Payload, Slot, is_owner, owned_ids
from checkpoint.store import CheckpointStore
from checkpoint.tiers import RunNumber
from checkpoint.tool import printing, typed_keys
from checkpoint.tool.command import Limit, cli, json_option, name_argument, say_limit, takes_source
from checkpoint.tool.content import SEQUENCES, Entry, State
from checkpoint.tool.listing import parts_with, require_one_operator, takes_short_name
from checkpoint.tool.raw import is_raw
from checkpoint.tool.source import OpenStore, Source, query


@cli.command()
@takes_source
@name_argument
@click.option("-n", "--limit", type=Limit(), default=50, show_default=True, help="How many; 0 for all.")
@json_option
@takes_short_name
def blame(source: Source, name: str, limit: int, is_json: bool) -> None:
    """Show which checkpoint last wrote each slot of an object.

    This is known as far as runs have not been merged. The number of a merged run is that of its newest checkpoint, and
    is marked with ≤; so is that of a complete image, which also holds what older checkpoints wrote. NAME may be
    NAME[KEY], for one slot. KEY is a number or text; any other key is given as its JSON, or as what that holds, such as
    2024-01-31 for a date. For a table it is one of the columns of the primary key, or all of them as they are printed.

    \b
    Examples:
      checkpoint blame state.db counts
      checkpoint blame state.db 'counts[bob]'
      checkpoint blame state.db 'shop/stock[fruit, apples]'
      checkpoint blame state.db orders --json
    """
    found = _blamed_in_all_shards(source, name)
    rows = islice(found, limit or None)
    if is_json:
        _print_blamed_json(rows, source.is_location)
    else:
        _print_blamed(rows, source.is_location)
    if limit and next(found, None) is not None:
        say_limit(limit)


def _print_blamed_json(found: Iterable[Blamed], is_space: bool) -> None:
    for one in found:
        where = {"shard": one.shard} if one.shard else {}
        # The numbers of a space are those of a temporary copy: epochs alone count.
        number = {} if is_space else {"number": one.number}
        fields = {"epoch": one.epoch, "key": one.key, "value": one.value, "merged": one.merged}
        click.echo(printing.as_json({**where, **number, **fields}))


def _print_blamed(found: Iterable[Blamed], is_space: bool) -> None:
    header = ["epoch", "key", "value"] if is_space else ["number", "epoch", "key", "value"]
    rows: list[list[Any]] = []
    shards: list[str] = []
    for one in found:
        number = one.epoch if is_space else one.number
        numbers = [f"≤{number}" if one.merged else number, *([] if is_space else [one.epoch])]
        rows.append([*numbers, one.shown, printing.short(one.value)])
        shards.append(one.shard)
    if any(shards):
        header, rows = ["shard", *header], [[shard, *row] for shard, row in zip(shards, rows, strict=True)]
    printing.print_table(header, rows)


@dataclass(frozen=True)
class Blamed:
    """One slot, and what wrote it last.

    Args:
        shard: the operator and shard, of a space.
        number: the checkpoint.
        epoch: its epoch.
        key: the key; for a table, the columns of the primary key.
        shown: the key in one line.
        value: the value.
        merged: whether the slot lies in a merged run, whose newest checkpoint this is, or in a complete image.
    """

    shard: str
    number: int
    epoch: int | None
    key: Any
    shown: str
    value: Any
    merged: bool


def _blamed_in_all_shards(source: Source, name: str) -> Iterator[Blamed]:
    """Yield the slots of an object in all shards.

    Raises:
        CheckpointError: there is no such object or key.
    """
    key: str | None = None
    plain_name, is_found = name, False
    for part in source.parts(None):
        state = State(part.readers[0])
        plain_name, key = _keyed(state, name)
        if plain_name in state:
            for one in _blamed(part, state, _Runs(source, part, state.reader), plain_name, key):
                is_found = True
                yield one
    if not is_found:
        _require_known(source, plain_name, key)


def _require_known(source: Source, name: str, key: str | None) -> None:
    require_one_operator(source, name, None)
    for _ in parts_with(source, name, None):
        break
    if key is not None:
        raise CheckpointError(
            f"{name!r} has no key {key!r}: see `{printing.command_line('show', *source.words, name)}`"
        )


def _keyed(state: State, name: str) -> tuple[str, str | None]:
    """Return the name and the key of NAME[KEY]; a name may hold brackets itself."""
    if name in state or not name.endswith("]"):
        return name, None
    places = [place for place, char in enumerate(name) if char == "["]
    place = next((place for place in reversed(places) if name[:place] in state), next(iter(places), None))
    return (name, None) if place is None else (name[:place], name[place + 1 : -1])


def _blamed(part: OpenStore, state: State, runs: _Runs, name: str, key: str | None) -> Iterator[Blamed]:
    """Yield the slots of an object; for a key-value table, those of its partitions one after the other."""
    whole = _slots_of_row(state, name, key)
    parts = [name] if state.key_value_table(name) is None else state.partitions(name)
    for one in parts:
        slots = None if whole is None else whole[one]
        if slots is None or slots:
            yield from _blamed_in_one(part.title, state, runs, one, key, slots)


def _blamed_in_one(
    shard: str, state: State, runs: _Runs, name: str, key: str | None, known: list[Slot] | None
) -> Iterator[Blamed]:
    """Yield the slots of one stored object; only those of the key, if they are known."""
    row = object_id, _, kind, _ = state.find(name)
    columns = None if state.row_reader(name) is None else state.primary_key(name)
    slots, only = _wanted_slots(state, name, key) if known is None else (known, _among(known))
    rows = runs.items(object_id, slots, only, is_reversed=kind == "Stack")
    read, is_meant = state.entry_reader(name), typed_keys.meaning(key)
    first, beyond = _places(kind, key)
    for place, (slot, value, number) in enumerate(islice(rows, first, beyond), first):
        entry = read(place, StoredItem(slot, value, None))
        found, words = _key_of(entry, columns)
        shown = ", ".join(words)
        if key is None or slots or is_meant(found, {*words, shown}):
            last = max(number, runs.newest_with(owned_ids([value]))) if is_owner(row) else number
            yield Blamed(shard, int(last), runs.epoch_of(last), found, shown, entry.value, runs.is_merged(last))


def _key_of(entry: Entry, columns: list[str] | None) -> tuple[Any, list[str]]:
    """Return the key of an entry, and the words that it is printed as.

    Args:
        entry: the entry.
        columns: those of the primary key, if the entry is a row.
    """
    if columns is None:
        return entry.key, [printing.key(entry.key)]
    cells = {column: entry.value.get(column) for column in columns}
    return cells, ["NULL" if cell is None else printing.short(cell) for cell in cells.values()]


def _wanted_slots(state: State, name: str, key: str | None) -> tuple[list[Slot], str]:
    """Return the slots that a key may have, none if more are to be read, and a condition on those that are read."""
    object_id, _, kind, codec = state.find(name)
    if kind in _READ_WHOLE or state.row_reader(name) is not None:
        return [], ""

    def _has(slot: Slot) -> bool:
        return state.reader.item(object_id, slot) is not None

    slots = typed_keys.slots_of(key, _has, raw=is_raw(codec))
    if slots and not is_raw(codec) and not any(map(_has, slots)):
        return [], " AND slot >= x''"  # Keys that are neither numbers nor text are bytes there.
    return slots, _among(slots)


def _among(slots: list[Slot]) -> str:
    return f" AND slot IN ({','.join('?' * len(slots))})" if slots else ""


_READ_WHOLE = SEQUENCES | {"Tensor"}
"""The kinds whose keys are not their slots: to find a key, all are read."""


def _slots_of_row(state: State, name: str, key: str | None) -> dict[str, list[Slot]] | None:
    """Return the slots of the row of a table whose whole key was typed; ``None`` if only a scan tells.

    They are those of :meth:`State.slots_of`, without which one row would cost a scan.
    """
    # What is cut, escaped or an object of JSON says not exactly what is stored.
    if key is None or not state.is_table(name) or not key.isprintable() or not _INEXACT.isdisjoint(key):
        return None
    columns, found = list(dict.fromkeys(state.primary_key(name))), dict[str, list[Slot]]()
    for typed in (key, f"[{key}]"):
        cells = typed.split(", ")
        slots = state.slots_of(name, dict(zip(columns, cells, strict=True))) if len(cells) == len(columns) else None
        for part, there in (slots or {}).items():
            found.setdefault(part, []).extend(there)
    return found if any(found.values()) else None


_INEXACT = frozenset("…\\{")


def _places(kind: str | None, key: str | None) -> tuple[int, int | None]:
    """Return where the slots that a key may mean begin, and where they end: all of them, but for an index."""
    if kind not in SEQUENCES or key is None or not _INDEX.fullmatch(key):
        return 0, None
    return int(key), int(key) + 1


_INDEX = re.compile("[0-9]{1,18}")
"""An index that a list may have."""


class _Runs:
    """The runs of a shard that tell when a slot was written: those of single checkpoints, as far as they are there.

    Args:
        source: the store or space.
        part: the store of the shard.
        reader: the state.
    """

    def __init__(self, source: Source, part: OpenStore, reader: Reader) -> None:
        records = part.store.checkpoints()
        self._store = part.store
        self._epochs = {record.number: record.epoch for record in records}
        self._images = _images(source, part, records)
        self._listed = ",".join(map(str, _finest(part.store, reader, records))) or "-1"

    def items(
        self, object_id: int, slots: list[Slot], only: str, *, is_reversed: bool
    ) -> Iterator[tuple[Slot, Payload, RunNumber]]:
        """Yield the slots of an object with their values and the newest run that has them.

        Args:
            object_id: the object.
            slots: what the condition speaks of.
            only: a condition on the slots, or none.
            is_reversed: whether the last slot comes first.
        """
        rows = query(
            self._store,
            f"SELECT slot, value, max(checkpoint) FROM stored_item WHERE checkpoint IN ({self._listed}) AND object = ?"
            f"{only} GROUP BY slot ORDER BY slot {'DESC' if is_reversed else ''}",
            object_id,
            *slots,
        )
        return (row for row in rows if row[1] is not None)

    def newest_with(self, owned: set[int]) -> RunNumber:
        """Return the newest run that has rows of objects that a slot owns; 0 if there is none."""
        found: RunNumber = 0
        for object_id in owned:
            for table in ("state_item", "state_metadata"):
                where = f"WHERE checkpoint IN ({self._listed}) AND object = ?"
                (newest,) = next(iter(query(self._store, f"SELECT max(checkpoint) FROM {table} {where}", object_id)))
                found = max(found, newest or 0)
        return found

    def epoch_of(self, run: RunNumber) -> int | None:
        """Return the epoch of the newest checkpoint in a run, if it is known."""
        return self._epochs.get(int(run))

    def is_merged(self, run: RunNumber) -> bool:
        """Return whether a run also holds what older checkpoints wrote."""
        return run != int(run) or int(run) in self._images


def _images(source: Source, part: OpenStore, records: list[CheckpointRecord]) -> set[int]:
    """Return the numbers of the checkpoints that also hold what older ones wrote: those of complete images."""
    found = {record.number for record in records[1:] if record.kind is CheckpointKind.FULL}
    if source.is_location and records and part.operator is not None and part.shard is not None:
        chain, begin = source.chain, records[0].epoch
        is_first = begin > chain.first_epoch and not chain.lineage(part.operator, part.shard, begin - 1)
        if begin > 1 and not is_first:
            found.add(records[0].number)
    return found


def _finest(store: CheckpointStore, reader: Reader, records: list[CheckpointRecord]) -> list[RunNumber]:
    """Return runs that make up a state, those of single checkpoints rather than what was merged from them."""
    begin = reader.newest
    readable = {record.number for record in records if record.run_slots is not None}
    full = {record.number for record in records if record.kind is CheckpointKind.FULL}
    # A full checkpoint does not say what is gone: what came before it is not part of the state.
    while begin not in full and begin - 1 in readable:
        begin -= 1
    if begin == reader.newest:
        return list(reader.runs)
    return [*store.reader(begin).runs, *range(begin + 1, reader.newest + 1)]
