"""What an object holds, read from its rows alone: keys, values, rows of tables, without the code that wrote them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from heapq import merge
from itertools import islice, starmap
from typing import Any

import orjson

from checkpoint.consistency import RANKED
from checkpoint.errors import CheckpointError, CorruptStoreError
from checkpoint.reader import Reader, StoredItem
from checkpoint.run import IndexRow, Payload, Slot, fault_of
from checkpoint.tool import key_values, table_keys
from checkpoint.tool.hiding import row_hider
from checkpoint.tool.raw import (
    BYTES_TAG,
    LOST,
    exact_number,
    is_raw,
    key_and_value,
    loaded,
    numbers_meant,
    numbers_of,
    slot_of,
)

TABLES = "$tables"
"""The dictionary in which a space keeps the schemas of its relational tables."""

WATERMARKS = "$watermarks"
"""The dictionary in which it keeps their watermarks."""

SEQUENCES = frozenset({"List", "LinkedList", "Queue", "Stack"})
"""The kinds whose elements are shown by their place, whatever their slots are."""

SETS = frozenset({"Set", "SortedSet"})

SORTED = frozenset({"SortedDictionary", "SortedSet"})


@dataclass(frozen=True)
class Entry:
    """One slot as a person reads it.

    Args:
        key: the index, key or name; for a table, the number of the row.
        value: the value, as JSON; for a table, the row by column names.
        slot: the slot itself.
        is_hidden: whether it is a row below the watermark of its table, which does not exist.
    """

    key: Any
    value: Any
    slot: Slot
    is_hidden: bool = False


class AbsentError(CheckpointError):
    """There is no object of a name.

    Args:
        message: what to say.
        name: the name.
        whole: the only name that ends with it after that of an operator; None if there is none, or several.
    """

    def __init__(self, message: str, name: str, whole: str | None) -> None:
        super().__init__(message)
        self.name = name
        self.whole = whole


def absence(name: str, known: Collection[str]) -> AbsentError:
    """Return the error that says that there is no object of a name, and which ones may be meant.

    Args:
        name: the name.
        known: the names that exist: what an operator keeps under its own name may be called by the end of its name.
    """
    ends = tuple(f"/{name}{role}" for role in ("", "/table", "/$output"))
    called = sorted(one for one in known if f"/{one}".endswith(ends))
    near = called or get_close_matches(name, sorted(known), 1)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "see `checkpoint ls`"
    whole = called[0] if len(called) == 1 and not name.startswith("$") else None
    return AbsentError(f"there is no object {name!r}: {hint}", name, whole)


class State:
    """The objects of a store at one checkpoint, by name.

    Args:
        reader: the state.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.index: dict[str, IndexRow] = {row[1]: row for row in reader.index()}
        self._tables: dict[str, dict[str, Any]] | None = None
        self.unlisted: list[str] = []
        """The dictionaries that are named like partitions of a key-value table but are none: nobody reads them."""
        self._partitions = self._key_value_tables()

    def __contains__(self, name: str) -> bool:
        return name in self.index or self.key_value_table(name) is not None

    def find(self, name: str) -> IndexRow:
        """Return the index row of an object.

        Raises:
            CheckpointError: there is no object of this name; those that may be meant are named.
        """
        if name in self.index:
            return self.index[name]
        raise absence(name, self.names())

    def names(self) -> set[str]:
        """Return the names by which an object may be called."""
        tables = {known for table in self._partitions for known in (table, "".join(key_values.split(table)))}
        return tables.union(self.index)

    def columns(self, name: str) -> list[dict[str, Any]] | None:
        """Return the columns of a relational table; ``None`` for any other object."""
        record = self.tables().get(name)
        return None if record is None else record["schema"]["columns"]

    def header(self, name: str) -> list[str]:
        """Return the names of the columns in which an object is shown."""
        columns = self.columns(name)
        if columns is not None:
            return [column["name"] for column in columns]
        if self._is_kvt(name):
            return list(key_values.COLUMNS)
        return ["element"] if self.kind_of(name) in SETS else ["key", "value"]

    def partitions(self, name: str) -> list[str]:
        """Return the names of the dictionaries of a key-value table; none for any other object."""
        return self._partitions.get(self.key_value_table(name) or "", [])

    def parts_of(self, name: str) -> list[str]:
        """Return the names of the objects that a name stands for: all of a key-value table, else the one."""
        parts = self.partitions(name)
        return [*parts, *(f"{part}/version" for part in parts)] or [name]

    def listed(self) -> dict[str, list[str]]:
        """Return what a person would list, with the objects that make it up: a key-value table is one entry."""
        hidden = {part for table in self._partitions for part in self.parts_of(table)}
        found = {name: [name] for name in self.index if name not in hidden}
        return found | {table: self.parts_of(table) if parts else [] for table, parts in self._partitions.items()}

    def is_table(self, name: str) -> bool:
        """Return whether an object is shown as rows with named columns."""
        return self.columns(name) is not None or self._is_kvt(name)

    def tables(self) -> dict[str, dict[str, Any]]:
        """Return what the space knows of its relational tables, by name.

        A note of a table whose name an object of another kind has now is left out: an older version kept it.

        Raises:
            CorruptStoreError: it is damaged.
        """
        if self._tables is None:
            row = self.index.get(TABLES)
            items = self.reader.items(row[0]) if row else ()
            found: dict[str, Any] = {
                str(item.slot): None if fault_of(item.value) else loaded(item.value) for item in items
            }
            for name, record in found.items():
                if not (isinstance(record, dict) and isinstance(record.get("schema"), dict) and "layouts" in record):
                    raise CorruptStoreError(f"the schema of table {name!r} is damaged: see `checkpoint verify`")
            self._tables = {name: record for name, record in found.items() if self._may_hold_rows(name)}
        return self._tables

    def _may_hold_rows(self, name: str) -> bool:
        """Return whether the object of a name can be that of a table: a raw sorted dictionary."""
        row = self.index.get(name)
        return row is not None and row[2] == "SortedDictionary" and row[3] != "{}"

    def kind_of(self, name: str) -> str:
        """Return the kind of an object; ``Table`` for a relational one."""
        if self.key_value_table(name):
            return "KeyValueTable"
        return "Table" if name in self.tables() else str(self.find(name)[2])

    def length(self, name: str) -> int:
        """Return how many elements an object has; for some kinds, how many are stored."""
        if self.key_value_table(name):
            return sum(self.length(part) for part in self.partitions(name))
        object_id, _, kind, _ = self.find(name)
        return self.length_of(object_id, str(kind), name)

    def length_of(self, object_id: int, kind: str, name: str) -> int:
        """Return how many elements an object has, by its id: an owned object has no name.

        Raises:
            CorruptStoreError: its metadata is damaged.
        """
        try:
            stored = {key: orjson.loads(text) for key, text in self.reader.metadata(object_id).items()}
            if kind == "Queue" and stored:
                return int(stored["tail"] - stored["head"])
            length = stored.get("count", stored.get("length"))
            if length is not None:
                return int(length[0] if isinstance(length, list) else length)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise CorruptStoreError(
                f"the metadata of {name!r} is damaged ({error!r}): see `checkpoint verify`"
            ) from None
        return self.reader.count(object_id)

    def entries(self, name: str, *, lower: str | None = None, upper: str | None = None) -> Iterator[Entry]:
        """Yield what an object holds, in the order of its kind. Time: O(slots). Memory: for one page of rows.

        Args:
            name: the object, or a key-value table.
            lower: the least index or key, as one types it.
            upper: the greatest one.

        Raises:
            CheckpointError: there is no such object, or its kind has no ranges.
        """
        bounded = lower is not None or upper is not None
        if bounded and self.is_table(name):
            raise CheckpointError(f"{name!r} is a table, whose rows --where chooses: --from and --to do not apply")
        if self.key_value_table(name):
            # A family lies in one partition; keys without one, which come last, may lie in any.
            return merge(*map(self._items, self.partitions(name)), key=lambda entry: entry.slot)
        kind = str(self.find(name)[2])
        if kind in ("Tensor", "Value") and bounded:
            raise CheckpointError(f"{name!r} is a {kind.lower()}, which has no ranges: --from and --to do not apply")
        if kind in SEQUENCES and bounded:
            first, last = (self._place(bound) for bound in (lower, upper))
            return self._elements(name, first or 0, None if last is None else last + 1)
        if kind in SORTED and "order" in self.reader.metadata(self.find(name)[0]):
            return self._in_memory_order(name, lower, upper)
        return self._items(name, self._bound(name, lower), self._bound(name, upper))

    def slots_of(self, name: str, cells: Mapping[str, str]) -> dict[str, list[Slot]] | None:
        """Return the slots at which a table has a row with a key; ``None`` if only a scan of the table tells.

        Args:
            name: the table.
            cells: what was typed, by column; others than those of the key do not matter.

        Returns: the slots, in their order, by the dictionary that they lie in.

        Time: O(slots that the key may have · log n).
        """
        if self._is_kvt(name):
            slots = key_values.slots_of(cells)
        else:
            record = self.tables().get(name)
            slots = None if record is None else table_keys.slots_of(record["schema"], cells)
        if slots is None:
            return None
        found: dict[str, list[Slot]] = {}
        for part in [name] if self.key_value_table(name) is None else self.partitions(name):
            object_id, _, _, codec = self.find(part)
            lead = b"" if is_raw(codec) else bytes([BYTES_TAG])
            stored = sorted({lead + slot for slot in slots})
            found[part] = [slot for slot in stored if self.reader.item(object_id, slot) is not None]
        return found

    def entries_at(self, slots: Mapping[str, Sequence[Slot]]) -> Iterator[Entry]:
        """Yield the rows at some slots, by the dictionary that they lie in, in the order of a scan."""

        def _of(part: str) -> Iterator[Entry]:
            read, object_id = self.entry_reader(part), self.find(part)[0]
            items = (self.reader.item(object_id, slot) for slot in slots[part])
            entries = (read(place, item) for place, item in enumerate(items) if item is not None)
            yield from (entry for entry in entries if not entry.is_hidden)

        return merge(*map(_of, slots), key=lambda entry: entry.slot)

    def _in_memory_order(self, name: str, lower: str | None, upper: str | None) -> Iterator[Entry]:
        """Yield the slots of a sorted object whose keys are not in the order of their slots: numbers beyond 64 bits."""
        entries = list(self._items(name))
        numbers = {entry.slot: number for entry in entries if (number := exact_number(entry.key)) is not None}
        least, greatest = min(numbers_meant(lower), default=None), max(numbers_meant(upper), default=None)
        if len(numbers) < len(entries):
            if lower is not None or upper is not None:
                raise CheckpointError(f"the keys of {name!r} are not in the order in which they are stored: no ranges")
            return iter(entries)
        if (lower, upper).count(None) != (least, greatest).count(None):
            raise CheckpointError(f"the keys of {name!r} are numbers: give numbers for --from and --to")
        entries.sort(key=lambda entry: numbers[entry.slot])
        return (
            entry
            for entry in entries
            if (least is None or numbers[entry.slot] >= least) and (greatest is None or numbers[entry.slot] <= greatest)
        )

    def _bound(self, name: str, text: str | None) -> Slot | None:
        """Return the slot of a bound, of the type that the slots have: all of other types are before or after it."""
        if text is None:
            return None
        object_id, _, _, codec = self.find(name)
        least = next((item.slot for item in self.reader.items(object_id, page_rows=1)), None)
        if isinstance(least, str):
            return text
        if not isinstance(least, bytes):
            return slot_of(text)
        if is_raw(codec):
            return text.encode()
        if least[:1] != bytes([BYTES_TAG]):
            raise CheckpointError(f"the keys of {name!r} are neither numbers, text nor bytes: it has no ranges")
        return bytes([BYTES_TAG]) + text.encode()

    def _elements(self, name: str, first: int, beyond: int | None) -> Iterator[Entry]:
        """Return an iterator over some elements of a sequence; those before them are passed over as they are stored."""
        items = islice(self._stored(name), first, beyond)
        return starmap(self.entry_reader(name), enumerate(items, first))

    def _items(self, name: str, lower: Slot | None = None, upper: Slot | None = None) -> Iterator[Entry]:
        entries = starmap(self.entry_reader(name), enumerate(self._stored(name, lower, upper)))
        yield from (entry for entry in entries if not entry.is_hidden)

    def _stored(self, name: str, lower: Slot | None = None, upper: Slot | None = None) -> Iterator[StoredItem]:
        object_id, _, kind, _ = self.find(name)
        if kind in RANKED and lower is None and upper is None:
            return self.reader.items_by_rank(object_id)
        return self.reader.items(object_id, lower, upper, reverse=kind == "Stack")

    def has_watermark(self, name: str) -> bool:
        """Return whether an object is a table some of whose stored rows may no longer exist."""
        return self._hider(name) is not None

    def _hider(self, name: str) -> Callable[[Slot, dict[str, Any]], bool] | None:
        """Return what tells the rows of a table that its watermarks hide; ``None`` if it has no watermarks."""
        record, row = self.tables().get(name), self.index.get(WATERMARKS)
        item = None if record is None or row is None else self.reader.item(row[0], name)
        if record is None or item is None:
            return None
        try:
            return row_hider(record["schema"], loaded(item.value))
        except (ValueError, TypeError, KeyError, StopIteration) as error:
            raise CorruptStoreError(
                f"the watermark of table {name!r} is damaged ({error!r}): see `checkpoint verify`"
            ) from None

    def entry_reader(self, name: str) -> Callable[[int, StoredItem], Entry]:
        """Return a function that makes an entry from a stored slot of an object and its place in the order of the kind.

        Raises:
            CorruptStoreError: raised by the function that is returned, if a slot is damaged.
        """
        read = self._reading(name)

        def _read(place: int, item: StoredItem) -> Entry:
            _require_value(item, repr(name))
            try:
                return read(place, item)
            except (ValueError, TypeError, KeyError, IndexError) as error:
                raise CorruptStoreError(
                    f"slot {item.slot!r} of {name!r} is damaged ({error!r}): see `checkpoint verify`"
                ) from None

        return _read

    def _reading(self, name: str) -> Callable[[int, StoredItem], Entry]:
        _, _, kind, codec = self.find(name)
        if (row_of := self.row_reader(name)) is not None:
            return partial(_row_entry, row_of, self._hider(name))
        if kind == "Tensor":
            return lambda place, item: Entry(*numbers_of(item.slot, item.value, codec), item.slot)
        if kind in SEQUENCES:
            return lambda place, item: Entry(place, loaded(item.value), item.slot)
        if kind in SETS:
            return lambda place, item: Entry(key_and_value(item.slot, item.value)[0], True, item.slot)
        raw, owned_kind = is_raw(codec), (loaded(codec) or {}).get("of")

        def _entry(_: int, item: StoredItem) -> Entry:
            key, value = key_and_value(item.slot, item.value, raw=raw)
            if owned_kind is not None:
                value = self._contents(int(value["$object"]), owned_kind)
            return Entry(key, value, item.slot)

        return _entry

    def row_reader(self, name: str) -> Callable[[Slot, Payload], dict[str, Any]] | None:
        """Return a function that makes a row, by column names, of a table's stored slot; ``None`` for other objects."""
        if self._is_partition(name):
            _, number, _ = key_values.part_of(name) or ("", 0, False)
            return key_values.row_reader(number, is_raw=is_raw(self.index[name][3]))
        record = self.tables().get(name)
        if record is None:
            return None
        columns, layouts = record["schema"]["columns"], record["layouts"]
        names = self.columns_by_id(name)
        # What rows hold that were stored before a column was added; it is kept in the form of a cell.
        defaults = {column["name"]: column.get("default") for column in columns}

        def _row(slot: Slot, payload: Payload) -> dict[str, Any]:
            number, *cells = loaded(payload)
            stored = zip(layouts[number], cells, strict=True)
            return defaults | {names[id]: cell for id, cell in stored if id in names}

        return _row

    def columns_by_id(self, name: str) -> dict[int, str]:
        """Return the names of the columns of a table by their ids, which stay; none for any other object."""
        record = self.tables().get(name)
        return {} if record is None else {column["id"]: column["name"] for column in record["schema"]["columns"]}

    def primary_key(self, name: str) -> list[str]:
        """Return the columns that tell the rows of a table apart."""
        record = self.tables().get(name)
        return list(key_values.KEY) if record is None else [column for column, _ in record["schema"]["primary_key"]]

    def _place(self, bound: str | None) -> int | None:
        if bound is None:
            return None
        try:
            place = int(bound)
        except ValueError:
            place = -1
        if place < 0:
            raise CheckpointError(f"{bound!r} is no place in a list: give a number from 0")
        return min(place, sys.maxsize - 1)  # no list is longer

    def key_value_table(self, name: str) -> str | None:
        """Return the name of a key-value table; ``None`` for any other object.

        The prefix may be left out, and the operator of a pipeline too if only one has a table of this name.
        """
        if name in self.index or name in self._partitions:
            return None if name in self.index else name
        places = {table: key_values.split(table) for table in self._partitions}
        found = [table for table, place in places.items() if "".join(place) == name]
        found = found or [table for table, place in places.items() if place[1] == name.removeprefix("kvt/")]
        return found[0] if len(found) == 1 else None

    def _key_value_tables(self) -> dict[str, list[str]]:
        """Return the partitions of each key-value table; one that was never written has none."""
        found: dict[str, list[str]] = {}
        numbers: dict[str, range | None] = {}
        for name, row in self.index.items():
            if key_values.is_catalogue(name) and row[2] == "SortedDictionary":
                for item in self.reader.items(row[0]):
                    entry = None if fault_of(item.value) else loaded(item.value)
                    for table in key_values.tables_in(name, [item.slot]):
                        found[table], numbers[table] = [], key_values.numbers_in(entry)
        for name in filter(self._is_partition, self.index):
            table, number, _ = key_values.part_of(name) or ("", 0, False)
            known = numbers.get(table)
            (found.setdefault(table, []) if known is None or number in known else self.unlisted).append(name)
        return found

    def _is_partition(self, name: str) -> bool:
        """Return whether this is a dictionary of a key-value table; an object of another one may have such a name."""
        part = key_values.part_of(name)
        is_there = part is not None and not part[2] and f"{name}/version" in self.index
        return is_there and self.index[name][2] == "SortedDictionary"

    def _is_kvt(self, name: str) -> bool:
        return self.key_value_table(name) is not None or self._is_partition(name)

    def _contents(self, object_id: int, kind: str) -> Any:
        """Return what an owned object holds, as a value of JSON."""
        items = self.reader.items_by_rank(object_id) if kind in RANKED else self.reader.items(object_id)
        pairs = []
        for item in items:
            _require_value(item, f"{kind} {object_id}")
            pairs.append(key_and_value(item.slot, item.value))
        if kind in SEQUENCES:
            return [value for _, value in pairs]
        if kind in SETS:
            return {"$set": [key for key, _ in pairs]}
        if all(isinstance(key, str) and key[:1] != "$" for key, _ in pairs):
            return dict(pairs)
        return {"$dict": [list(pair) for pair in pairs]}


def _require_value(item: StoredItem, whose: str) -> None:
    """Refuse a slot whose value is lost.

    Raises:
        CorruptStoreError: it is.
    """
    if (fault := fault_of(item.value)) is not None:
        raise CorruptStoreError(f"slot {item.slot!r:.80} of {whose} is damaged ({fault}): {LOST}")


def _row_entry(
    row_of: Callable[[Slot, Payload], dict[str, Any]],
    hides: Callable[[Slot, dict[str, Any]], bool] | None,
    place: int,
    item: StoredItem,
) -> Entry:
    row = row_of(item.slot, item.value)
    return Entry(place, row, item.slot, hides is not None and hides(item.slot, row))
