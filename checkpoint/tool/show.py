"""``show`` and ``blame``: what an object holds, and since when."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import chain, islice
from typing import Any

import click
import orjson
from click.core import ParameterSource

from checkpoint.errors import CheckpointError
from checkpoint.reader import Reader, StoredItem
from checkpoint.record import CheckpointRecord
from checkpoint.run import CheckpointKind, Slot, is_owner, owned_ids
from checkpoint.store import CheckpointStore
from checkpoint.tiers import RunNumber
from checkpoint.tool import printing
from checkpoint.tool.command import Limit, cli, json_option, name_argument, takes_source
from checkpoint.tool.content import SEQUENCES, Entry, State
from checkpoint.tool.filters import condition, equalities
from checkpoint.tool.listing import parts_with, require_one_operator, takes_short_name
from checkpoint.tool.printing import Row
from checkpoint.tool.raw import BYTES_TAG, exact_number, is_raw, number_in, slot_of
from checkpoint.tool.source import OpenStore, Source, query


@cli.command()
@takes_source
@name_argument
@click.option("-n", "--limit", type=Limit(), default=50, show_default=True, help="How many; 0 for all.")
@click.option("--from", "lower", help="The least index or key: a number, or text.")
@click.option("--to", "upper", help="The greatest index or key.")
@click.option("--where", "conditions", multiple=True, help="For a table: COLUMN=VALUE; also != < <= > >=; repeatable.")
@click.option(
    "--format",
    "shape",
    type=click.Choice(["table", "json", "csv", "arrow"]),
    default="table",
    show_default=True,
    help="json: one line per entry; arrow: an Arrow IPC stream.",
)
@json_option
@takes_short_name
def show(
    source: Source,
    name: str,
    limit: int,
    lower: str | None,
    upper: str | None,
    conditions: tuple[str, ...],
    shape: str,
    is_json: bool,
) -> None:
    """Show what an object holds, in the form of its kind; NAME may be NAME@EPOCH.

    A list is shown by index, a queue from the head, a stack from the top, a dictionary in insertion order; a table as
    rows with column names, without those below its watermark; a key-value table, named scope/table, by family. In a
    space all shards of an operator are read, one after the other: anything but a row of a table then begins with its
    operator and shard.

    \b
    Examples:
      checkpoint show state.db counts
      checkpoint show state.db counts@12 --json
      checkpoint show state.db events --from 100 --to 120
      checkpoint show state.db orders --where carrier=UA --where 'delay>60'
      checkpoint show state.db orders -n 0 --format arrow > orders.arrow
    """
    shape = _shape(shape, is_json=is_json)
    name, point = split_epoch(source, name)
    contents = Contents(source, name, point, conditions, lower, upper)
    found = contents.rows()
    rows = islice(found, limit or None)
    if shape == "arrow":
        from checkpoint.tool.arrow import write_stream

        if sys.stdout.isatty():
            raise CheckpointError("Arrow data is not for a terminal: send it to a file or a pipe")
        write_stream(sys.stdout.buffer, contents, rows)
    elif shape == "table":
        _show_table(contents, rows)
    else:
        _show_lines(contents, rows, shape)
    # It may take long to find out whether more rows fulfil conditions, or lie in other shards.
    if limit and contents.given >= limit and (conditions or source.is_location or next(found, None) is not None):
        _say_limit(limit)


def _shape(shape: str, *, is_json: bool) -> str:
    """Return the shape of the rows that ``--format`` and ``--json`` ask for together."""
    asked = click.get_current_context().get_parameter_source("shape") is not ParameterSource.DEFAULT
    if is_json and asked and shape != "json":
        raise click.UsageError(f"--json and --format {shape} ask for two shapes: give one of them")
    return "json" if is_json else shape


def _say_limit(limit: int) -> None:
    """Say that there is more, to a user who has set no limit."""
    if click.get_current_context().get_parameter_source("limit") is ParameterSource.DEFAULT:
        click.echo(f"only the first {limit:,}: --limit 0 shows all", err=True)


class Contents:
    """The rows of an object, from one store or from all shards of a space.

    Args:
        source: the store or space.
        name: the object.
        point: the checkpoint; the newest for None.
        conditions: those of ``--where``.
        lower: the least index or key.
        upper: the greatest one.

    ``length`` is how many entries the shards have stored, ``is_counted`` whether it counts those of all shards and not
    only of the ones read so far, ``has_watermark`` whether some of them may be hidden, and ``given`` how many rows were
    asked for.

    Raises:
        CheckpointError: there is no such object or column.
    """

    def __init__(
        self,
        source: Source,
        name: str,
        point: str | None = None,
        conditions: tuple[str, ...] = (),
        lower: str | None = None,
        upper: str | None = None,
    ) -> None:
        self.name = name
        self._bounds = lower, upper
        total = require_one_operator(source, name, point)
        self._parts = parts_with(source, name, point)
        part, state = next(self._parts)
        self._first = part, state
        self.columns = state.columns(name)
        self.is_table = state.is_table(name)
        self.kind = state.kind_of(name)
        self.is_counted = total is not None or not part.title
        self.length = state.length(name) if total is None else total
        self.has_watermark = state.has_watermark(name)
        self._with_shard = bool(part.title) and not self.is_table
        self._own_header = state.header(name)
        self.header = ["operator", "shard", *self._own_header] if self._with_shard else self._own_header
        if conditions and not self.is_table:
            raise CheckpointError(f"--where goes with a table: {name!r} is a {self.kind}")
        kinds = {one["name"]: str(one["type"]) for one in self.columns or ()}
        self._conditions = [condition(text, self.header, kinds) for text in conditions]
        self._cells = equalities(conditions)
        self.given = 0

    def rows(self) -> Iterator[Row]:
        """Yield the rows, by column name. May be called only once."""
        part, state = self._first
        yield from self._rows_of(part, state)
        for part, state in self._parts:
            if not self.is_counted:
                self.length += state.length(self.name)
            yield from self._rows_of(part, state)
        self.is_counted = True

    def _rows_of(self, part: OpenStore, state: State) -> Iterator[Row]:
        where = {"operator": part.operator, "shard": part.shard} if self._with_shard else {}
        for entry in self._entries_of(state):
            row = self._row(entry)
            if all(holds(row) for holds in self._conditions):
                self.given += 1
                yield {**where, **row}

    def _entries_of(self, state: State) -> Iterator[Entry]:
        """Return the entries among which those that fulfil the conditions are: one, if they tell the whole key."""
        lower, upper = self._bounds
        if self._cells and self._bounds == (None, None):
            slots = state.slots_of(self.name, self._cells)
            if slots is not None:
                return state.entries_at(slots)
        return state.entries(self.name, lower=lower, upper=upper)

    def _row(self, entry: Entry) -> Row:
        if self.is_table:
            return dict(entry.value)
        if len(self._own_header) == 1:
            return {self._own_header[0]: entry.key}
        return {"key": entry.key, "value": entry.value}


def split_epoch(source: Source, name: str) -> tuple[str, str | None]:
    """Return the name and the checkpoint of NAME@EPOCH; a name may hold an @ itself."""
    head, at, epoch = name.rpartition("@")
    digits = epoch.removeprefix("-")
    if not at or not digits.isascii() or not digits.isdigit():
        return name, None
    with suppress(CheckpointError):  # that shard may no longer exist
        if any(name in State(part.readers[0]) for part in source.parts(None)):
            return name, None
    return head, f"@{epoch}"


def _show_table(contents: Contents, found: Iterator[Row]) -> None:
    is_table = contents.is_table or len(contents.header) > 2
    # The widths of columns depend on all rows, and so does how much of a space was counted; all else goes by.
    if is_table or not contents.is_counted:
        rows: Iterable[Row] = list(found)
    else:
        rows = chain(list(islice(found, 1)), found)  # What is refused at once is refused without a first line.
    # If the limit was reached, the other shards were not even opened.
    more = ("" if contents.is_counted else " or more") + (" stored" if contents.has_watermark else "")
    click.echo(f"{printing.plain(contents.name)} = {contents.kind} of {contents.length:,}{more}")
    if is_table:
        cells = [[_cell(row.get(column)) for column in contents.header] for row in rows]
        printing.print_table(list(contents.header), cells)
        return
    for row in rows:
        first, *rest = (row[column] for column in contents.header)
        click.echo(" = ".join([printing.key(first), *map(printing.short, rest)]))


def _cell(value: Any) -> Any:
    return value if type(value) in (int, float) else "NULL" if value is None else printing.short(value, 40)


def _show_lines(contents: Contents, rows: Iterator[Row], shape: str) -> None:
    if shape == "csv":
        _echo_csv(contents.header)
    for row in rows:
        ordered = [row.get(column) for column in contents.header]
        if shape == "json":
            click.echo(printing.as_json(dict(zip(contents.header, ordered, strict=True))))
        else:
            _echo_csv(ordered)


def _echo_csv(cells: Sequence[Any]) -> None:
    """Print a line of CSV: as it is in a pipe, and on a terminal without what that would obey."""
    line = printing.csv_line(cells)
    click.echo(printing.plain(line) if sys.stdout.isatty() else line, color=True)


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
    found = _found(source, name)
    rows = islice(found, limit or None)
    if is_json:
        _print_blamed_json(rows, source.is_location)
    else:
        _print_blamed(rows, source.is_location)
    if limit and next(found, None) is not None:
        _say_limit(limit)


def _found(source: Source, name: str) -> Iterator[Blamed]:
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
            for one in _blamed(part, state, plain_name, key, _images(source, part)):
                is_found = True
                yield one
    if not is_found:
        _require_known(source, plain_name, key)


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


def _require_known(source: Source, name: str, key: str | None) -> None:
    require_one_operator(source, name, None)
    for _ in parts_with(source, name, None):
        break
    if key is not None:
        raise CheckpointError(
            f"{name!r} has no key {key!r}: see `{printing.command_line('show', *source.words, name)}`"
        )


def _images(source: Source, part: OpenStore) -> set[int]:
    """Return the numbers of the checkpoints that also hold what older ones wrote: those of complete images."""
    records = part.store.checkpoints()
    found = {record.number for record in records[1:] if record.kind is CheckpointKind.FULL}
    if source.is_location and records and part.operator is not None and part.shard is not None:
        chain, begin = source.chain, records[0].epoch
        is_first = begin > chain.first_epoch and not chain.lineage(part.operator, part.shard, begin - 1)
        if begin > 1 and not is_first:
            found.add(records[0].number)
    return found


def _blamed(part: OpenStore, state: State, name: str, key: str | None, images: set[int]) -> Iterator[Blamed]:
    """Yield the slots of an object; for a key-value table, those of its partitions one after the other."""
    records = part.store.checkpoints()
    epochs = {record.number: record.epoch for record in records}
    runs = ",".join(map(str, _finest(part.store, state.reader, records))) or "-1"
    parts = [name] if state.key_value_table(name) is None else state.partitions(name)
    whole = _slots_of_row(state, name, key)
    for one in parts if whole is None else [part for part in parts if whole[part]]:
        row = object_id, _, kind, codec = state.find(one)
        is_row = state.row_reader(one) is not None
        has = partial(_has, state.reader, object_id)
        if whole is not None:
            slots = whole[one]
        else:
            slots = [] if is_row or kind in _READ_WHOLE else _slots(key, has, raw=is_raw(codec))
        only = f" AND slot IN ({','.join('?' * len(slots))})" if slots else ""
        if slots and not is_raw(codec) and not any(map(has, slots)):
            slots, only = [], " AND slot >= x''"  # Keys that are neither numbers nor text are bytes there.
        rows = query(
            part.store,
            f"SELECT slot, value, max(checkpoint) FROM stored_item WHERE checkpoint IN ({runs}) AND object = ?{only}"
            f" GROUP BY slot ORDER BY slot {'DESC' if kind == 'Stack' else ''}",
            object_id,
            *slots,
        )
        read, is_meant = state.entry_reader(one), _meaning(key)
        first, beyond = _places(kind, key)
        there = islice((row for row in rows if row[1] is not None), first, beyond)
        for place, (slot, value, number) in enumerate(there, first):
            entry = read(place, StoredItem(slot, value, None))
            found, words = entry.key, [printing.key(entry.key)]
            if is_row:
                found = {column: entry.value.get(column) for column in state.primary_key(one)}
                words = ["NULL" if cell is None else printing.short(cell) for cell in found.values()]
            shown = ", ".join(words)
            if key is None or slots or is_meant(found, {*words, shown}):
                written = max(number, _newest_of(part.store, runs, owned_ids([value]))) if is_owner(row) else number
                last = int(written)
                is_merged = written != last or last in images
                yield Blamed(part.title, last, epochs.get(last), found, shown, entry.value, is_merged)


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


def _newest_of(store: CheckpointStore, runs: str, owned: set[int]) -> RunNumber:
    """Return the newest of some runs that has rows of objects that a slot owns; 0 if there is none."""
    found: RunNumber = 0
    for object_id in owned:
        for table in ("state_item", "state_metadata"):
            where = f"WHERE checkpoint IN ({runs}) AND object = ?"
            (newest,) = next(iter(query(store, f"SELECT max(checkpoint) FROM {table} {where}", object_id)))
            found = max(found, newest or 0)
    return found


_READ_WHOLE = SEQUENCES | {"Tensor"}
"""The kinds whose keys are not their slots: to find a key, all are read."""


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


def _keyed(state: State, name: str) -> tuple[str, str | None]:
    """Return the name and the key of NAME[KEY]; a name may hold brackets itself."""
    if name in state or not name.endswith("]"):
        return name, None
    places = [place for place, char in enumerate(name) if char == "["]
    place = next((place for place in reversed(places) if name[:place] in state), next(iter(places), None))
    return (name, None) if place is None else (name[:place], name[place + 1 : -1])


def _has(reader: Reader, object_id: int, slot: Slot) -> bool:
    return reader.item(object_id, slot) is not None


def _slots(key: str | None, has: Callable[[Slot], bool], *, raw: bool) -> list[Slot]:
    """Return the slots that a key may have as text, number or bytes; none if only a look at all keys tells.

    Args:
        key: the key as it was typed.
        has: returns whether a slot is there.
        raw: whether the keys are kept as they are.
    """
    if raw and key is not None:
        return [key.encode()]
    if key is None or _beyond_slots(key) is not None:
        return []
    found: list[Slot] = [key, bytes([BYTES_TAG]) + key.encode()]
    inner = key[1:-1] if len(key) > 2 and key[0] == key[-1] == '"' else None
    if inner is not None:
        # A text that reads as a number is shown in quotes, and any other is often typed so.
        return [*found, inner] if printing.key(inner) == key or not any(map(has, found)) else found
    number = _TRUTH.get(key, slot_of(_number_in_json(key)))
    return found if number is None or number == key else [*found, number]


def _number_in_json(key: str) -> str:
    """Return the number that the JSON of a decimal or of an infinity holds; other keys as they are."""
    match _json_in(key):
        case {"$decimal": str(number), **rest} | {"$float": str(number), **rest} if not rest:
            return number
    return key


_TRUTH: dict[str, Slot] = {"true": 1, "false": 0}
"""The slots of truth values, which are those of the equal numbers."""


def _beyond_slots(key: str) -> Decimal | None:
    """Return the number that a key is if it is beyond 64 bits, so that SQLite does not store its slot as a number."""
    number = number_in(key)
    return number if number is not None and number.is_finite() and not -(2**63) <= number < 2**63 else None


def _meaning(key: str | None) -> Callable[[Any, Collection[str]], bool]:
    """Return a function that tells whether a key, given with the words it is printed as, is the one that was typed."""
    number = None if key is None else _beyond_slots(key)
    typed = _json_in(key)

    def _is_meant(found: Any, words: Collection[str]) -> bool:
        if key == found or not {key, f"[{key}]"}.isdisjoint(words):
            return True
        if number is not None and (exact_number(found) == number or found == float(number)):
            return True
        held = _held(found)
        if typed is not _NOTHING:
            return bool(typed in (found, held))
        return key == (", ".join(map(printing.key, held)) if isinstance(held, list) and len(held) > 1 else held)

    return _is_meant


_NOTHING: Any = object()


def _json_in(text: str | None) -> Any:
    """Return the JSON that a text is, if it is that of a key which is neither number nor text."""
    try:
        found = orjson.loads(text or "")
    except orjson.JSONDecodeError:
        return _NOTHING
    return found if found is None or isinstance(found, (dict, list, bool)) else _NOTHING


def _held(key: Any) -> Any:
    """Return what a key holds, without the marks of its types.

    >>> _held({"$date": "2024-01-31"}), _held({"$tuple": ["fruit", {"$tuple": [7, 8]}]})
    ('2024-01-31', ['fruit', [7, 8]])
    """
    if isinstance(key, dict) and len(key) == 1 and next(iter(key)).startswith("$"):
        return _held(next(iter(key.values())))
    return list(map(_held, key)) if isinstance(key, list) else key
