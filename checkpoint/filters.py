"""What a run may have: the filter of a run rules out most slots that are not in it, so it is seldom searched in vain.

A filter is a row of flags, a power of two of them, sixteen to 32 for each row. The *hash* of a slot says which two of
them it sets: if one is not set, the run does not have the slot. Of the slots that a run does not have, about one in
sixty at most finds both set by others, and is searched for in vain. (After Bloom, "Space/time trade-offs in hash coding
with allowable errors", 1970.)

Larger runs are stored with their filter, in the table ``filter``. For others it is made in memory, as soon as so many
slots have been looked up that reading those of the run costs no more.
"""

from __future__ import annotations

import sqlite3
import struct
import sys
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import compress, repeat
from operator import and_, itemgetter
from typing import Any, Literal
from zlib import crc32

from checkpoint.run import Slot
from checkpoint.session import Session
from checkpoint.tiers import RunNumber

STORED_ROWS = range(512, 262_145)
"""Runs of so many rows are stored with a filter: writing it is one step of a merge, so it has a maximum size."""

MOST_BYTES = 1 << 23
"""How many bytes of filters are kept in memory."""

STEP = 8
"""After so many lookups, filters that have been paid for are loaded or made; later less often."""

_FLAGS_A_ROW = 16

_SECOND = 10
"""The second flag is given by the hash without so many of its last bits."""

_LOAD, _MAKE = 512, 8
"""Loading a filter takes as long as one search per so many rows of the run; making it, one per so many rows."""

_INTEGER, _FLOAT = struct.Struct("<q"), struct.Struct("<d")

_SPREAD, _START = 0x9E3779B1, 0xFFFFFFFF
"""Where the hashes of an object start: those of neighbouring objects start far away."""

RunFilter = tuple[RunNumber, bytes, int]
"""A run, the flags of its filter, eight to a byte, and the mask that turns a hash into the number of a flag."""

Together = tuple[RunNumber, ...]
"""Runs whose filters have the same size and lie side by side, the oldest first."""

Block = memoryview
"""The filters of such runs: for each position a number that contains the byte of each of them."""

RowsOf = Callable[[RunNumber], float]
"""Returns how many rows a run has."""

_SLOTS = "SELECT object, slot FROM state_item WHERE checkpoint = ? ORDER BY object, slot"

_STORED = "SELECT flags, checksum FROM filter WHERE run = ?"


def hash_of(object_id: int, slot: Slot) -> int:
    """Return the hash of a slot, a 32-bit integer: the same in every process, and for equal slots."""
    if isinstance(slot, int) and -(2**63) <= slot < 2**63:
        slot = _INTEGER.pack(slot)
    elif isinstance(slot, str):
        slot = slot.encode(errors="surrogatepass")
    elif not isinstance(slot, bytes):
        is_whole = -(2**63) <= slot < 2**63 and slot == int(slot)
        slot = _INTEGER.pack(int(slot)) if is_whole else _FLOAT.pack(slot)
    return crc32(slot, object_id * _SPREAD & _START)


def hashes_of(object_id: int, slots: Sequence[Any]) -> Iterable[int]:
    """Return the hashes of many slots of an object."""
    kinds = set(map(type, slots))
    if kinds == {int}:
        packed = struct.pack(f"<{len(slots)}q", *slots)
        slots = [packed[start : start + _INTEGER.size] for start in range(0, len(packed), _INTEGER.size)]
    elif kinds == {str}:
        slots = [slot.encode(errors="surrogatepass") for slot in slots]
    elif kinds != {bytes}:
        return [hash_of(object_id, slot) for slot in slots]
    return map(crc32, slots, repeat(object_id * _SPREAD & _START))


class FilterMaker:
    """Makes the filter of a run.

    Args:
        rows: how many item rows the run has at most.
    """

    def __init__(self, rows: int) -> None:
        self._flags, self._rows = bytearray(_flags_for(rows)), 0

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        """Add item rows, or only the object and the slot of each, in the order of objects.

        Time: O(rows).
        """
        flags, mask, start = self._flags, len(self._flags) - 1, 0
        self._rows += len(rows)
        while start < len(rows):
            object_id = rows[start][0]
            end = bisect_right(rows, object_id, start, key=_object)
            for hashed in hashes_of(object_id, list(map(_slot, rows[start:end]))):
                flags[hashed & mask] = flags[hashed >> _SECOND & mask] = 1
            start = end

    def store(self, connection: sqlite3.Connection, run: RunNumber) -> None:
        """Write the filter.

        Dirties: one row.
        """
        packed = self.packed()
        connection.execute("INSERT INTO filter VALUES (?, ?, ?)", (run, packed, _checksum(run, packed)))

    def packed(self) -> bytes:
        """Return the flags, eight to a byte: as many as the rows added need, so halves of more are combined."""
        flags, length = int(self._flags[::-1].translate(_AS_TEXT), 2), len(self._flags)
        while length > _flags_for(self._rows):
            length //= 2
            flags = flags >> length | flags & ((1 << length) - 1)
        return flags.to_bytes(length // 8, "little")


def is_stored(rows: int) -> bool:
    """Return whether a run of so many rows is stored with a filter."""
    return rows in STORED_ROWS


def store(connection: sqlite3.Connection, run: RunNumber, rows: Sequence[Sequence[Any]]) -> None:
    """Write the filter of a run if it is of a size for one.

    Args:
        connection: inside a transaction.
        run: the number of the run, which is not the oldest one: the oldest is asked last, and has nearly all slots.
        rows: its item rows, sorted.

    Time: O(rows). Dirties: one row, or none.
    """
    if is_stored(len(rows)):
        maker = FilterMaker(len(rows))
        maker.add(rows)
        maker.store(connection, run)


def filter_of(session: Session, run: RunNumber, rows: int) -> FilterMaker:
    """Return the filter of an existing run, made from its rows. Time: O(rows). The rows are streamed."""
    maker = FilterMaker(rows)
    with session.cursor(_SLOTS, (run,)) as fetch:
        while found := fetch(_PAGE_ROWS):
            maker.add(found)
    return maker


def untrusted(session: Session) -> list[RunNumber]:
    """Return the runs whose stored filter is not used because its checksum is wrong.

    Time: O(bytes of the filters).
    """
    runs = [run for (run,) in session.rows("SELECT run FROM filter")] if session.has_table("filter") else []
    return [run for run in runs if _load(session, run) is None]


def find_wrong(session: Session) -> Iterator[tuple[RunNumber, str]]:
    """Yield each run whose stored filter is not that of its rows, with what is wrong: it might hide a slot.

    Time: O(rows of the runs that have one). The rows are streamed.
    """
    runs = [run for (run,) in session.rows("SELECT run FROM filter")] if session.has_table("filter") else []
    for run in runs:
        stored = _load(session, run) or b""
        if stored != filter_of(session, run, len(stored) * 8 // _FLAGS_A_ROW).packed():
            yield run, f"the filter of run {run} is not that of its rows"


def passing(filters: Iterable[RunFilter], hashed: int) -> list[RunNumber]:
    """Return the runs that may have a slot."""
    second = hashed >> _SECOND
    bit, other = 1 << (hashed & 7), 1 << (second & 7)
    return [
        run for run, flags, mask in filters if flags[(hashed & mask) >> 3] & bit and flags[(second & mask) >> 3] & other
    ]


class Sieve:
    """The filters of the runs of a state side by side, so that those of one size are tested together.

    The bytes at one position of up to eight filters lie together, as one number: one step gets a flag of each of them.
    (As the bits do in "Bloofi: multidimensional Bloom filters" by Crainiceanu and Lemire, 2015.)

    Args:
        filters: the filters, in any order.
        known: the ``blocks`` of another sieve; those of the same runs are reused.
    """

    def __init__(self, filters: Iterable[RunFilter], known: Mapping[Together, Block] | None = None) -> None:
        self.blocks: dict[Together, Block] = {}
        self._always: list[RunNumber] = []
        self._laid: list[tuple[int, Together, Block]] = []
        by_mask: dict[int, list[tuple[RunNumber, bytes]]] = {}
        for run, flags, mask in sorted(filters):  # The oldest ones stay together when others come and go.
            if flags == _ALWAYS:
                self._always.append(run)
            else:
                by_mask.setdefault(mask, []).append((run, flags))
        for mask, same in by_mask.items():
            parts = [tuple(zip(*same[start : start + _MOST], strict=True)) for start in range(0, len(same), _MOST)]
            for runs, beside in parts:
                block = self.blocks[runs] = (known or {}).get(runs) or _side_by_side(beside)
                self._laid.append((mask >> 3, runs, block))

    def passing(self, hashed: int) -> list[RunNumber]:
        """Return the runs that may have a slot, the newest first. Time: O(runs / 8)."""
        second = hashed >> _SECOND
        bit, other, one, two = hashed & 7, second & 7, hashed >> 3, second >> 3
        found = self._always.copy()
        for mask, runs, block in self._laid:
            if both := block[one & mask] >> bit & block[two & mask] >> other & _FIRST_BITS:
                found += compress(runs, both.to_bytes(block.itemsize, sys.byteorder))
        found.sort(reverse=True)
        return found


def _side_by_side(filters: Sequence[bytes]) -> Block:
    width = 1 << (len(filters) - 1).bit_length()
    table = bytearray(width * len(filters[0]))
    for place, flags in enumerate(filters):
        table[place::width] = flags
    return memoryview(table).cast(_NUMBERS[width])


class Hashes:
    """The hashes of many slots, to be tested against some filters.

    Args:
        hashes: the hashes, in any order.
    """

    def __init__(self, hashes: Iterable[int]) -> None:
        self._hashes = list(hashes)
        self._bits = [1 << (hashed & 7) for hashed in self._hashes]
        self._places: dict[int, list[int]] = {}
        self._getters: dict[int, Callable[[bytes], Sequence[int]]] = {}

    def kept(self, is_kept: Iterable[bool]) -> Hashes:
        """Return some of the hashes, given for each whether to keep it."""
        return Hashes(compress(self._hashes, is_kept))

    def passing(self, one: RunFilter, start: int, stop: int) -> list[int]:
        """Return the positions, in a range of the hashes, of those whose slots the run may have.

        Time: O(hashes), nearly all of it without a Python step for each.
        """
        if start >= stop:
            return []
        _, flags, mask = one
        hashes = self._hashes
        has_first = map(and_, self._bytes_at(flags, mask, start, stop), self._bits[start:stop])
        return [
            place
            for place in compress(range(start, stop), has_first)
            if flags[((second := hashes[place] >> _SECOND) & mask) >> 3] & 1 << (second & 7)
        ]

    def _bytes_at(self, flags: bytes, mask: int, start: int, stop: int) -> Iterable[int]:
        """Return the byte of a filter in which the first flag of each of some hashes lies."""
        if mask not in self._places:
            self._places[mask] = places = [(hashed & mask) >> 3 for hashed in self._hashes]
            self._getters[mask] = itemgetter(*places, *places[:1])  # For one place it would not return a sequence.
        if (stop - start) * _FEW_OF < len(self._hashes):
            return map(flags.__getitem__, self._places[mask][start:stop])
        return self._getters[mask](flags)[start:stop]


class Filters:
    """The filters of the runs of a store, as far as they have been worth having.

    Args:
        session: the connection.
        rows_of: returns how many rows a run has; without it there are no filters.
    """

    def __init__(self, session: Session, rows_of: RowsOf | None = None) -> None:
        self._session, self._rows_of = session, rows_of
        self._changes = self._searches = self._seen = self._next = 0
        self._blocks: dict[Together, Block] = {}
        self.clear()

    def note(self, runs: Sequence[RunNumber]) -> int:
        """Note that a slot is looked up in some runs, and return how often any filter has been added or removed.

        Args:
            runs: the runs of a state, the newest first.

        Time: O(1), occasionally O(runs), and O(rows) of a run whose filter is made.
        """
        self._searches += 1
        if self._searches >= self._next and self._rows_of is not None:
            self._learn(runs, self._rows_of)
            self._seen, self._next = self._searches, self._searches + min(max(STEP, self._searches // 4), 128 * STEP)
        return self._changes

    def sieve(self, filters: Iterable[RunFilter]) -> Sieve:
        """Return the filters of a state side by side. Time: O(bytes of those that were not there the last time)."""
        found = Sieve(filters, self._blocks)
        self._blocks = found.blocks
        return found

    def of(self, runs: Sequence[RunNumber]) -> Sequence[RunFilter]:
        """Return a filter for each of some runs; nothing if all of them would let every slot pass."""
        found = [(run, flags := self._flags.get(run, _ALWAYS), 8 * len(flags) - 1) for run in runs]
        return found if any(run in self._flags for run in runs) else ()

    def one(self, run: RunNumber, slots: int) -> RunFilter | None:
        """Note that many slots are looked up in one run; return its filter if one can be had soon.

        Time: O(1); O(rows) for reading a stored one.
        """
        if run not in self._flags and self._rows_of is not None:
            self._since[run] = self._since.get(run, self._seen) - slots
            rows = self._rows_of(run)
            if run not in self._unstored and rows <= min(_LOAD * slots, self._most_rows()):
                self._find(run, int(rows), is_paid=False)
        flags = self._flags.get(run)
        return (run, flags, 8 * len(flags) - 1) if flags else None

    def keep(self, runs: Container[RunNumber]) -> None:
        """Forget all other runs: another one may have their number one day."""
        gone = {run for run in self._since if run not in runs}
        if gone:
            self._blocks = {known: block for known, block in self._blocks.items() if gone.isdisjoint(known)}
        for run in gone:
            self._changes += 1
            self._room += len(self._flags.pop(run, b""))
            self._unstored.discard(run)
            del self._since[run]  # Last: what an interruption leaves of a run is looked for there the next time.

    def clear(self) -> None:
        """Forget everything."""
        self._changes += 1
        self._blocks = {}
        self._flags: dict[RunNumber, bytes] = {}
        self._room = MOST_BYTES
        self._searches = self._seen = 0
        self._next = STEP
        self._unstored: set[RunNumber] = set()
        self._since: dict[RunNumber, int] = {}

    def _learn(self, runs: Sequence[RunNumber], rows_of: RowsOf) -> None:
        # The oldest run is asked last, and has nearly all slots.
        for run in runs[:-1]:
            # A run that was not there last time was added since.
            paid = self._searches - self._since.setdefault(run, self._seen)
            rows = rows_of(run)
            if run not in self._flags and rows <= min(_LOAD * paid, self._most_rows()):
                self._find(run, int(rows), is_paid=rows <= _MAKE * paid)

    def _most_rows(self) -> int:
        """Return how many rows a run may have for its filter still to be kept in memory."""
        return self._room * 8 // (2 * _FLAGS_A_ROW)

    def _find(self, run: RunNumber, rows: int, *, is_paid: bool) -> None:
        found = None if run in self._unstored else _load(self._session, run)
        if found is None:
            self._unstored.add(run)
            if not is_paid:
                return
            maker = FilterMaker(rows)
            maker.add(self._session.peek_all(_SLOTS, (run,)))
            found = maker.packed()
        self._flags[run] = found
        self._room -= len(found)
        self._changes += 1


def _flags_for(rows: int) -> int:
    return 1 << (max(8, rows * _FLAGS_A_ROW) - 1).bit_length()


def _load(session: Session, run: RunNumber) -> bytes | None:
    """Return the stored filter of a run; None if there is none that can be trusted."""
    row = session.peek(_STORED, (run,)) if session.has_table("filter") else None
    if row is None or type(row[0]) is not bytes or not row[0] or row[1] != _checksum(run, row[0]):
        return None
    return row[0]


def _checksum(run: RunNumber, packed: bytes) -> int:
    return crc32(packed, crc32(str(run).encode()))


_FEW_OF = 4
"""For fewer than one in so many hashes, the bytes of a filter are fetched one by one."""

_MOST = 8
"""So many filters lie side by side: as many as there are bytes in a 64-bit number."""

_NUMBERS: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""The format of a number, by its bytes."""

_FIRST_BITS = 0x0101010101010101
"""One bit of each byte."""

_AS_TEXT = bytes.maketrans(b"\0\1", b"01")

_ALWAYS = b"\xff"
"""The filter of a run that has none."""

_PAGE_ROWS = 4_096

_object = itemgetter(0)
_slot = itemgetter(1)
