"""Going through a slot table: what is stored, with what changed since the last save laid over it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

from sortedcontainers import SortedDict

from checkpoint.lookup import ReadRow
from checkpoint.reader import Reader, StoredItem, StoredRow
from checkpoint.run import Payload, Slot, slot_order
from objectspace.objects import limits
from objectspace.objects.base import ABSENT

if TYPE_CHECKING:
    from objectspace.objects.table import SlotTable

T = TypeVar("T")

FIRST_PAGE_ROWS = 16
"""How many slots the first page of a scan has."""

Entry = tuple[Any, Any, StoredItem | None]
"""(key, value, item) of one slot; the item is what was read of a slot that is not in memory, else ``None``."""


def stream(table: SlotTable) -> Iterator[Entry]:
    """Yield every slot in the order of the object, without keeping what is read."""
    return scan(table) if table.ranks is None else _stream(_Begin(table))


def _stream(begin: _Begin) -> Iterator[Entry]:
    """Yield every slot of an object with ranks in the order of insertion, or in the opposite one."""
    return _in_turn(begin, _stream_settled(begin), _stream_new(begin))


def _in_turn(begin: _Begin, settled: Iterator[T], new: Iterator[T]) -> Iterator[T]:
    """Yield what has the rank that the store has for it and what was inserted since, the one after the other."""
    return chain(new, settled) if begin.reverse else chain(settled, new)


class _Begin:
    """What a scan of a table begins with, all as of one moment: another thread may acknowledge a save meanwhile."""

    reader: Reader
    """What reads the state; an object that is new has none."""

    def __init__(
        self, table: SlotTable, lower: Slot | None = None, upper: Slot | None = None, *, reverse: bool = False
    ) -> None:
        self.table, self.reverse, self._bounds = table, reverse, (lower, upper)
        with table.owner._home.mutex:
            if not table.owner._fresh:
                self.reader = table.owner._home.reader()
                self.narrowed = table.gaps.narrowed(lower, upper, self.reader, reverse=reverse)
                """The bounds without the gap that is known there."""
            self.saves, self._size, self.flight = table.saves, _size(table), _Flight(table)
            self.first_new = table.rank_base if table.saved_page is None else table.rank_base_before
            """The first rank that the reader does not know."""
            self.is_as_stored = not (table.complete or table.edits or table.gone or table.saved_page)
            """Whether the reader has all that there is, and nothing is to be laid over it."""

    def refuse_change(self) -> None:
        """Refuse to go on if slots came or went since, or a page was turned.

        Raises:
            RuntimeError: they did.
        """
        if self.table.saves != self.saves or _size(self.table) != self._size:
            raise RuntimeError(
                f"{self.table.owner._describe()} changed during iteration, or was saved: iterate over a list of it"
            )

    def note_gap(self, passed: int, found: Slot | None) -> None:
        """Note that it has stepped over removed slots before it found the first stored one, ``None`` for none."""
        first, last = reversed(self._bounds) if self.reverse else self._bounds
        end = last if found is None else found
        if passed < limits.PASSED_SLOTS or end is None:
            return
        table, home = self.table, self.table.owner._home
        with home.mutex:
            # What was cleared, saved or rolled back meanwhile no longer has the slots that were passed.
            if home.reader() is self.reader and table.saves == self.saves:
                table.gaps.note(first, end, self.reader, reverse=self.reverse)


class _Flight:
    """The save that is on its way to the store when a scan begins, and that may arrive before the scan ends.

    What it has saved is clean from then on, may be dropped from memory, and is not what the scan has read from the
    store. Any other save ends the scan.
    """

    def __init__(self, table: SlotTable) -> None:
        self._table, self._page = table, table.saved_page
        ranks, first = table.ranks or {}, table.rank_base_before
        # If there is no order of insertion, not all of it is gone through.
        page = (self._page or ()) if ranks else ()
        self.inserted = {key: ranks[key] for key in page if ranks.get(key, -1) >= first}
        """The ranks of those of its keys that have other ones in the store, or none."""

    @property
    def has_landed(self) -> bool:
        """Whether it has arrived."""
        return self._page is not None and self._table.saved_page is not self._page

    def has_brought(self, key: Any) -> bool:
        """Return whether it has arrived, and what a key holds may be other than what was read before."""
        return self.has_landed and key in self._page  # type: ignore[operator]  # it is a page


def scan(
    table: SlotTable, lower: Slot | None = None, upper: Slot | None = None, *, reverse: bool = False
) -> Iterator[Entry]:
    """Yield the slots in slot order, with ``lower <= slot <= upper`` if bounds are given.

    What a slot holds is looked up when its turn comes: it may have been set since the scan began.
    """
    with table.owner._home.mutex:
        begin, changed = _Begin(table, lower, upper, reverse=reverse), _overlay(table, lower, upper, reverse)
        changed = chain(list(islice(changed, 1)), changed)  # It looks at the places when the first one is taken.
    live = table.live
    for entry in _merged(begin, changed):
        begin.refuse_change()
        key, _, item = entry
        known = dict.get(live, key, ABSENT)
        if known is not ABSENT:
            yield key, known, None
        elif table.is_dirty(key):
            continue  # It was removed.
        elif item is not None and not begin.flight.has_brought(key):
            yield entry
        elif (known := table.read(key)) is not ABSENT:
            yield key, known, None
    begin.refuse_change()


def keys_of(table: SlotTable, *, reverse: bool = False) -> Iterator[Any]:
    """Return an iterator over every key in the order of the object, or in the opposite one, that begins now."""
    if (found := _in_memory(table, dict.keys, reverse)) is not None:
        return found
    if table.load_if_worthwhile():
        return keys_of(table, reverse=reverse)
    if table.ranks is None:
        return keys_between(table, reverse=reverse)
    begin = _Begin(table, reverse=reverse)
    if begin.is_as_stored:
        pages = _ranked_pages(begin, table.owner._key_prefix)
        return _in_turn(begin, _settled_keys(begin, pages), (key for key, _, _ in _stream_new(begin)))
    return (key for key, _, _ in _stream(begin))


def items_of(table: SlotTable, *, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
    """Return an iterator over every (key, value) as :func:`keys_of` does over the keys."""
    if (found := _in_memory(table, dict.items, reverse)) is not None:
        return found
    if table.load_if_worthwhile():
        return items_of(table, reverse=reverse)
    if table.ranks is None:
        return pairs_of(table, reverse=reverse)
    begin = _Begin(table, reverse=reverse)
    if begin.is_as_stored:
        settled = _settled_pairs(begin, _ranked_pages(begin))
        return _in_turn(begin, settled, ((key, value) for key, value, _ in _stream_new(begin)))
    return ((key, value) for key, value, _ in _stream(begin))


def _in_memory(table: SlotTable, view: Callable[[dict[Any, Any]], Any], reverse: bool) -> Iterator[Any] | None:
    """Return the iterator of a view of the slots if all are in memory, else ``None``."""
    drops = table.drops
    found = table.of_whole(lambda live: (reversed if reverse else iter)(view(live)))
    return None if found is None else _unless_dropped(table, drops, found)


def _unless_dropped(table: SlotTable, drops: int, found: Iterator[T]) -> Iterator[T]:
    """Yield what is in memory as long as nothing is dropped: what is read again may lie at other places of the dict.

    Raises:
        RuntimeError: slots were dropped.
    """
    for one in found:
        if table.drops != drops:
            break
        yield one
    if table.drops != drops:
        raise RuntimeError(
            f"{table.owner._describe()} changed during iteration, or left the memory with a save or a rollback: iterate"
            " over a list of it"
        )


def keys_between(
    table: SlotTable, lower: Slot | None = None, upper: Slot | None = None, *, reverse: bool = False
) -> Iterator[Any]:
    """Yield the keys of what :func:`scan` yields; values in the store are not read."""
    begin = _Begin(table, lower, upper, reverse=reverse)
    if begin.is_as_stored:
        return _settled_keys(begin, _stored_pages(begin, table.owner._key_prefix))
    return (key for key, _, _ in scan(table, lower, upper, reverse=reverse))


def pairs_of(
    table: SlotTable, lower: Slot | None = None, upper: Slot | None = None, *, reverse: bool = False
) -> Iterator[tuple[Any, Any]]:
    """Yield the (key, value) of what :func:`scan` yields."""
    begin = _Begin(table, lower, upper, reverse=reverse)
    if begin.is_as_stored:
        return _settled_pairs(begin, _stored_pages(begin))
    return ((key, value) for key, value, _ in scan(table, lower, upper, reverse=reverse))


def pages_of(
    table: SlotTable, lower: Slot | None = None, upper: Slot | None = None, *, reverse: bool = False
) -> Iterator[list[tuple[Any, Any]]]:
    """Yield what :func:`pairs_of` does in lists that grow, each as it is when its turn comes."""
    begin = _Begin(table, lower, upper, reverse=reverse)
    if begin.is_as_stored:
        return _settled_pages(begin, _stored_pages(begin))
    return in_pages(pairs_of(table, lower, upper, reverse=reverse))


def in_pages(found: Iterable[T], size: int = FIRST_PAGE_ROWS, most: int = Reader.PAGE_ROWS) -> Iterator[list[T]]:
    """Yield what is found in lists that grow from a given size: whoever takes little pays for little."""
    rest = iter(found)
    while page := list(islice(rest, size)):
        yield page
        size = min(8 * size, most)


def _stored_pages(begin: _Begin, only: str | None = None) -> Iterator[list[tuple[Slot, Payload]]]:
    """Yield the pages of a store that has all that there is: the first is small, as most scans end early."""
    passed, first, (low, high) = 0, limits.PASSED_SLOTS, begin.narrowed
    object_id = begin.table.owner._id
    found = begin.reader.item_pages(object_id, low, high, reverse=begin.reverse, page_rows=first, only=only)
    pages = _unless_changed(begin, found)
    for page in pages:
        if page:
            begin.note_gap(passed, page[0][0])
            yield page
            break
        passed += first
    else:
        begin.note_gap(passed, None)
    yield from pages


def _ranked_pages(begin: _Begin, only: str | None = None) -> Iterator[list[ReadRow]]:
    """Yield the pages of a store in the order of the ranks.

    The store sorts all slots for the first page. Whoever stops before the last one has read few of them for that.
    """
    table = begin.table
    price = 1 + table.count // limits.SCAN_SHARE
    table.scanned += price
    found = begin.reader.pages_by_rank(table.owner._id, reverse=begin.reverse, only=only)
    yield from _unless_changed(begin, found)
    table.scanned = max(0, table.scanned - price)


def _unless_changed(begin: _Begin, pages: Iterator[list[T]]) -> Iterator[list[T]]:
    """Yield pages of the store, and look for a change before each and at the end: what is gone cannot be read."""
    begin.refuse_change()
    for page in pages:
        yield page
        begin.refuse_change()


def _settled_pairs(begin: _Begin, pages: Iterator[Sequence[StoredRow]]) -> Iterator[tuple[Any, Any]]:
    """Yield the keys and values of some pages of the store, decoded page by page."""
    table, live = begin.table, begin.table.live
    for page in pages:
        found = table.owner._pairs_of(page)
        if dict.__len__(live):
            found = [(key, dict.get(live, key, value)) for key, value in found]
        for row, pair in zip(page, found, strict=True):
            if table.edits or table.gone or table.complete or table.saves != begin.saves:
                begin.refuse_change()
                yield from _as_changed(table, pair, row)
            else:
                yield pair


def _settled_keys(begin: _Begin, pages: Iterator[Sequence[StoredRow]]) -> Iterator[Any]:
    """Yield the keys of some pages of the store, as :func:`_settled_pairs` does with their values."""
    table = begin.table
    for page in pages:
        for row, key in zip(page, table.owner._keys_of(page), strict=True):
            if table.edits or table.gone or table.complete or table.saves != begin.saves:
                begin.refuse_change()
                yield from (changed for changed, _ in _as_changed(table, (key, None), row))
            else:
                yield key


def _settled_pages(begin: _Begin, pages: Iterator[list[tuple[Slot, Payload]]]) -> Iterator[list[tuple[Any, Any]]]:
    """Yield the keys and values of some pages of the store in slot order, page by page."""
    table, live = begin.table, begin.table.live
    for page in pages:
        found = table.owner._pairs_of(page)
        if table.edits or table.gone or table.complete:
            found = [pair for row, old in zip(page, found, strict=True) for pair in _as_changed(table, old, row)]
        elif dict.__len__(live):
            found = [(key, dict.get(live, key, value)) for key, value in found]
        if found:
            yield found


def _as_changed(table: SlotTable, pair: tuple[Any, Any], row: StoredRow) -> Iterator[tuple[Any, Any]]:
    """Yield a pair as it is after it was read; nothing if it is gone, or has come back at another place."""
    key = pair[0]
    known = dict.get(table.live, key, ABSENT)
    if not table.complete and not table.is_dirty(key):
        yield pair
    elif known is not ABSENT and (table.ranks is None or table.ranks.get(key) == row[2]):
        yield key, known


def _dirty_keys(table: SlotTable) -> Iterable[Any]:
    """Return the keys in memory that are not as the store has them."""
    if table.owner._fresh:
        return list(dict.keys(table.live))
    dirty = chain(table.edits, table.saved_page or ())
    return dict.fromkeys(key for key in dirty if dict.__contains__(table.live, key))


def _stream_settled(begin: _Begin) -> Iterator[Entry]:
    """Yield the slots that have the rank which the store has for them."""
    table, flight = begin.table, begin.flight
    assert table.ranks is not None
    for item in map(StoredItem._make, chain.from_iterable(_ranked_pages(begin))):
        begin.refuse_change()
        key, value = table.owner._key_value(item)
        known = dict.get(table.live, key, ABSENT)
        if table.is_dirty(key):
            if known is not ABSENT and table.ranks.get(key) == item.rank:
                yield key, known, None
        elif not flight.has_brought(key):
            yield (key, value, item) if known is ABSENT else (key, known, None)
        elif key not in flight.inserted and (known := table.read(key)) is not ABSENT:
            yield key, known, None


def _stream_new(begin: _Begin) -> Iterator[Entry]:
    """Yield the slots that were inserted since: their ranks are higher than any in the store."""
    table, flight = begin.table, begin.flight
    assert table.ranks is not None
    begin.refuse_change()
    with table.owner._home.mutex:  # What is acknowledged meanwhile may be dropped, and its ranks too.
        # What was put into a set without being noted has no rank yet: it is the newest.
        ranks = {key: table.ranks.get(key, table.next_rank) for key in _dirty_keys(table)}
        new = {key: rank for key, rank in ranks.items() if rank >= begin.first_new}
        if flight.has_landed:
            new = flight.inserted | new
    for key in sorted(new, key=new.__getitem__, reverse=begin.reverse):
        begin.refuse_change()
        value = ABSENT if table.is_dirty(key) and not dict.__contains__(table.live, key) else table.read(key)
        if value is not ABSENT:
            yield key, value, None
    begin.refuse_change()


def _merged(begin: _Begin, changed: Iterator[tuple[Any, Any]]) -> Iterator[Entry]:
    """Yield the stored slots and, in their places, those that were changed before the scan, without a value."""
    dirty, reverse = next(changed, None), begin.reverse
    for item in () if begin.table.owner._fresh else _stored_items(begin):
        place = slot_order(item.slot) if dirty else None
        while dirty and (dirty[0] > place if reverse else dirty[0] < place):
            yield dirty[1], ABSENT, None
            dirty = next(changed, None)
        if dirty and dirty[0] == place:
            yield dirty[1], ABSENT, None
            dirty = next(changed, None)
        else:
            yield (*begin.table.owner._key_value(item), item)
    while dirty:
        yield dirty[1], ABSENT, None
        dirty = next(changed, None)


def _stored_items(begin: _Begin) -> Iterator[StoredItem]:
    """Yield stored slots, and note where the first is that was neither removed nor set since."""
    table, passed = begin.table, 0
    rows = _stored_rows(table, *begin.narrowed, begin.reverse)
    for row in rows:
        if row[1] is None:
            passed += 1
            continue
        item = StoredItem._make(row)
        if not table.is_dirty(table.owner._key_value(item)[0]):
            begin.note_gap(passed, item.slot)
            yield item
            break
        passed += 1
        yield item
    else:
        begin.note_gap(passed, None)
    yield from (StoredItem._make(row) for row in rows if row[1] is not None)


def _stored_rows(table: SlotTable, lower: Slot | None, upper: Slot | None, reverse: bool) -> Iterator[ReadRow]:
    """Yield the rows of slots, those of removed ones too, in pages that grow: most scans end early.

    If a checkpoint is acknowledged meanwhile, the next page is read from the new state.
    """
    home, last, page_rows = table.owner._home, None, FIRST_PAGE_ROWS
    while True:
        reader = home.reader()
        page = reader.rows(table.owner._id, lower, upper, reverse=reverse, page_rows=page_rows)
        for count, row in enumerate(page, 1):
            if row[0] != last:
                yield row
                last = row[0]
            if home.reader() is not reader or count == page_rows < reader.PAGE_ROWS:
                break
        else:
            return
        lower, upper = (lower, last) if reverse else (last, upper)
        page_rows = min(8 * page_rows, reader.PAGE_ROWS)


def _overlay(table: SlotTable, lower: Slot | None, upper: Slot | None, reverse: bool) -> Iterator[tuple[Any, Any]]:
    """Yield (place, key) of the slots that must come from memory: all of a fresh object, else the changed ones.

    They are looked up a few at a time, as most scans end early; in the places as they were when the scan began.
    """
    places, size, is_first = places_of(table), FIRST_PAGE_ROWS, True
    start = None if lower is None else slot_order(lower)
    stop = None if upper is None else slot_order(upper)
    while some := list(
        islice(places.irange(start, stop, (is_first or reverse, is_first or not reverse), reverse), size)
    ):
        yield from [(place, places[place]) for place in some]
        start, stop = (start, some[-1]) if reverse else (some[-1], stop)
        size, is_first = 8 * size, False


def places_of(table: SlotTable) -> SortedDict:
    """Return the dirty keys by their places, with all of a fresh object."""
    with table.owner._home.mutex:  # A save that is collecting may be forgetting some.
        places = table.places
        if places is None or table.owner._fresh:
            places = table.places = SortedDict((slot_order(table.known_slot(key)), key) for key in _dirty_keys(table))
        return places


def _size(table: SlotTable) -> int:
    """Return what must stay as it is while the slots are iterated; an array has its length whatever it stores."""
    return len(table) if table.owner._counts_slots else 0
