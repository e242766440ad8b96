"""The slot table: values by key, of which some or all are in memory, and what changed since the last save."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count, filterfalse, islice, repeat
from operator import is_, itemgetter
from typing import Any, TypeVar

from sortedcontainers import SortedDict

from checkpoint.lookup import ReadRow
from checkpoint.process import collecting_seldom
from checkpoint.reader import Reader
from checkpoint.run import ItemRow, Slot, slot_order
from objectspace import keys
from objectspace.codec import ATOMS, Unencodable, decode_together
from objectspace.errors import UnencodableValueError
from objectspace.objects import limits, saving, scans
from objectspace.objects.base import ABSENT, Fingerprint
from objectspace.objects.columns import ALONE, are_slots
from objectspace.objects.ends import LastKeys
from objectspace.objects.gaps import Gaps
from objectspace.objects.torn import Torn, undivided, undivided_read
from objectspace.objects.variants import is_cold

T = TypeVar("T")

STORED: Any = Fingerprint(-1)
"""Stands for a stored value that must be written over whatever it is, because its rank or its key has changed."""

_get = dict.get
_at: Any = dict.__getitem__
_put = dict.__setitem__
_pop = dict.pop


class SlotTable:
    """The slots of one object by key.

    Invariants: a key of ``edits`` is in ``live``; a key of ``gone`` is not; both hold what is stored of their keys
    (:data:`ABSENT` if nothing is). ``saved_page`` holds the same of the page that is being committed. The keys of
    ``edits`` are those of ``live``: if an equal key of another type is assigned, the first one stays, as in a dict.
    ``count`` is ``kept``, which the open page began with, and what is new in ``edits``, without what is in ``gone``.

    Args:
        owner: the object that the slots belong to.
        live: the dictionary for values in memory; the handle itself if it is one.
        is_ranked: whether the order of insertion is kept, in the ranks of the rows.
    """

    def __init__(self, owner: Any, live: dict[Any, Any] | None = None, *, is_ranked: bool) -> None:
        self.owner = owner
        self.live: dict[Any, Any] = {} if live is None else live
        self.edits: dict[Any, Any] = {}
        """The keys that were set on the open page, with what is stored of them."""
        self.gone: dict[Any, Any] = {}
        """The keys that were removed on the open page, with what is stored of them."""
        self.saved_page: dict[Any, Any] | None = None
        """What was stored of the keys of the page that a save has on its way; ``None`` if there is none."""
        self.prints: dict[Any, int] = {}
        """The hash of the stored text of each value in memory that may be changed in place."""
        self.new_prints: dict[Any, int] = {}
        """Those of the texts that the save is collecting."""
        self.ranks: dict[Any, int] | None = {} if is_ranked else None
        """Where each key in memory stands in the order of insertion; ``None`` if there is no such order.

        Until all slots are in memory, there may be ranks of other keys, which count for nothing.
        """
        self.next_rank = 0
        self.rank_base = self.rank_base_before = 0
        """The first rank that is not stored, as the open page began and as the one on its way did."""
        self.complete = True
        """Whether all slots are in memory."""
        self.count = 0
        """How many slots there are, if not all are in memory."""
        self.kept = self.kept_before = 0
        """How many there were as the open page began, and as the one on its way did."""
        self.drops = 0
        """How often slots were dropped from memory: what was read of a whole object meanwhile is not whole."""
        self.faults = 0
        """How many slots were read one by one or by name: if they are many, the rest is read too."""
        self.unweighed: list[int] = []
        """The sizes of slots that were read by themselves and not weighed yet."""
        self.scanned = 0
        """How many slots could have been read one by one for the scans that have ended before their end."""
        self.saves = 0
        """How often a page was turned or all memory dropped: an iteration that finds that ends with an error."""
        self.is_mixed = False
        """Whether there may be a key that its slot does not tell, such as ``True``: it stands beside its value."""
        self.places: SortedDict | None = None
        """The dirty keys by their place in the order of slots, for scans; ``None`` until one asks for it."""
        self.last_keys = LastKeys()
        """The keys to be taken from the end, if not all are in memory."""
        self.gaps = Gaps()
        """Where scans have found nothing but removed slots."""

    def __len__(self) -> int:
        drops = self.drops
        length = dict.__len__(self.live) if self.complete else self.count
        return length if self.drops == drops else self.count

    @property
    def is_small(self) -> bool:
        """Whether the object is read whole when it is touched first."""
        return len(self) <= limits.WHOLE_SLOTS

    def begin_cold(self, count: int, next_rank: int = 0) -> None:
        """Forget all memory of a stored object of ``count`` slots."""
        self._reset(next_rank)
        self.complete, self.count, self.kept = False, count, count
        self.drops += 1  # A rollback in a signal handler may have come in the midst of what reads from memory.

    def of_whole(self, take: Callable[[dict[Any, Any]], T]) -> T | None:
        """Return what is taken from the values in memory if these are all that there are, else ``None``.

        Another thread may drop clean slots meanwhile: what is taken then is not returned.
        """
        drops = self.drops
        if not self.complete:
            return None
        taken = take(self.live)
        return taken if self.drops == drops else None

    def read(self, key: Any) -> Any:
        """Return the value of a key, from memory or else from the store; :data:`ABSENT` if there is none."""
        value = _get(self.live, key, ABSENT)
        if value is not ABSENT:
            return value
        drops = self.drops
        if self.complete:
            value = _get(self.live, key, ABSENT)  # Again: another thread may have read all of them since.
            if value is not ABSENT or self.drops == drops:
                return value
        return self._fault(key)

    @collecting_seldom()
    def read_all(self, wanted: Sequence[Any], default: Any = ABSENT) -> list[Any]:
        """Return the value of each of many keys, or the default if there is none."""
        self.expect(len(wanted))
        if (whole := self.of_whole(lambda live: list(map(_get, repeat(live), wanted, repeat(default))))) is not None:
            return whole
        found: list[Any] = []
        step = self.fetched_at_once()
        for start in range(0, len(wanted), step):
            part = wanted[start : start + step]
            with self.owner._home.mutex:
                self.fetch(part)
                found += map(_get, repeat(self.live), part, repeat(default))
        return found

    def fetched_at_once(self) -> int:
        """Return how many slots may be read together."""
        return max(limits.FETCH_SLOTS, int(self.owner._home.cache_slots) // limits.FETCH_ROOM)

    @undivided_read
    def fetch(self, wanted: Collection[Any]) -> None:
        """Read those of some keys that are not in memory: what is still not there afterwards is not stored either.

        That is true as long as the caller holds the mutex of the space, since other threads may drop clean slots.

        Time: O(keys · live runs · log n).
        """
        home, live = self.owner._home, self.live
        if is_cold(self.owner):  # A rollback in a signal handler came since the read began.
            self.owner._wake()
        with home.mutex:
            if self.complete:
                return
            home.make_room()
            missing = list(filterfalse(partial(dict.__contains__, live), wanted))
            if self.gone or self.saved_page or not ALONE.issuperset(map(type, missing)):
                missing = list(filter(self._may_be_stored, missing))
            is_own_slot = self.owner._is_plain and are_slots(missing)
            slots = missing if is_own_slot else [slot for slot in map(self._slot_of, missing) if slot is not None]
            rows = home.reader().items_at(self.owner._id, slots)
            self._take(rows)
            sizes = list(map(len, map(_second, rows)))
            if sizes:
                self.owner._weigh(len(sizes), sum(sizes))
            small = sum(map(limits.PROMOTE_CHARACTERS.__ge__, sizes))
            faults = small // limits.FETCH_SHARE
            # A few that are named cost no less than one by itself.
            self._count_faults(max(1, faults // self._depth()) if faults else bool(small))

    def _take(self, rows: list[ReadRow]) -> None:
        """Bring rows that were read into memory, whole columns of them; what is there already stays."""
        pairs = self.owner._pairs_of(rows)
        found = list(map(_first, pairs))
        if not dict.keys(self.live).isdisjoint(found):
            new = [place for place, key in enumerate(found) if not dict.__contains__(self.live, key)]
            rows, pairs, found = ([column[place] for place in new] for column in (rows, pairs, found))
        kinds = set(map(type, map(_second, pairs)))
        if kinds.isdisjoint(ATOMS):
            self.prints.update(zip(found, map(hash, map(_second, rows)), strict=True))
        elif not ATOMS.issuperset(kinds):
            hashes = zip(found, map(_second, pairs), map(hash, map(_second, rows)), strict=True)
            self.prints.update((key, hashed) for key, value, hashed in hashes if type(value) not in ATOMS)
        if self.ranks is not None:
            ranks = zip(found, map(_third, rows), strict=True)
            self.ranks.update((key, rank) for key, rank in ranks if rank is not None)
        dict.update(self.live, pairs)

    @collecting_seldom()
    @undivided
    def write_all(self, changes: dict[Any, Any]) -> None:
        """Set the values of many keys."""
        self.expect(len(changes))
        with self.owner._home.mutex:
            self.fetch(changes)
            if self.remember_many_old(changes, is_fetched=True):
                dict.update(self.live, changes)
            else:
                for key in () if self.owner._fresh else changes:
                    if type(key) not in ALONE and key not in self.live:
                        self.owner._slot(key)  # What cannot be stored is refused before anything is set.
                for key, value in changes.items():
                    self.write(key, value)

    @undivided
    def write(self, key: Any, value: Any) -> None:
        """Set the value of a key."""
        if self.complete:
            self._write(key, value)
            return
        with self.owner._home.mutex:  # Another thread may be dropping clean slots, and this one is clean until then.
            self._write(key, value)

    def _write(self, key: Any, value: Any) -> None:
        if key not in self.edits:
            self.remember_old(key)
        _put(self.live, key, value)

    @undivided
    def write_new(self, key: Any, value: Any) -> None:
        """Set the value of a key that is neither in memory nor stored, unless it was removed: nothing is read."""
        self.owner._home.touch(self.owner)
        if not self.owner._fresh:
            if not self.complete and type(key) not in ALONE:
                self.owner._slot(key)  # What cannot be stored is refused at once.
            with self.owner._home.mutex:
                self.add_key(key)
        _put(self.live, key, value)

    @undivided
    def remember_old(self, key: Any) -> None:
        """Remember what is stored of a key that is about to be set for the first time on this page."""
        old = _get(self.live, key, ABSENT)
        if self.edits and type(old) in ATOMS and type(key) in ALONE and not self.is_mixed and self.places is None:
            # The page has an edit already, so the owner is known as dirty; and what is in memory is what is stored.
            self.edits[key] = old
            return
        self.owner._home.touch(self.owner)
        if self.complete:
            self._remember_old(key)
        else:
            with self.owner._home.mutex:
                self._remember_old(key)

    @undivided
    def remember_many_old(self, keys_to_set: Collection[Any], *, is_fetched: bool = False) -> bool:
        """Do what :meth:`remember_old` does for many keys, and return whether it could: not if one needs care.

        Args:
            keys_to_set: the keys.
            is_fetched: whether those of them that are not in memory are known not to be stored.
        """
        if not (self.complete or is_fetched) or self.is_mixed or self.places is not None:
            return False
        if not ALONE.issuperset(map(type, keys_to_set)):
            return False
        if keys_to_set:
            self.owner._home.touch(self.owner)
        if not self.owner._fresh:
            self._remember_many_old(
                [key for key in keys_to_set if key not in self.edits] if self.edits else keys_to_set
            )
        return True

    def _remember_many_old(self, new: Collection[Any]) -> None:
        """Note keys that have no edit on this page, those that are not in memory as new ones."""
        olds = list(map(_get, repeat(self.live), new, repeat(ABSENT)))
        kinds = set(map(type, olds))
        if kinds.isdisjoint(_WATCHED):
            self.edits.update(zip(new, map(Fingerprint, map(_get, repeat(self.prints), new, repeat(-1))), strict=True))
        elif ATOMS.issuperset(kinds):
            self.edits.update(zip(new, olds, strict=True))
        elif self.ranks is None and _WATCHED.issuperset(kinds):
            back = self.gone.keys() & new
            self.edits.update(zip(new, olds, strict=True))
            self.count += olds.count(ABSENT) - len(back)
            for key in back:
                self.add_key(key)
        elif kinds == {type(ABSENT)} and not self.gone:
            self._add_keys(new)
        else:
            for key, old in zip(new, olds, strict=True):
                if old is ABSENT:
                    self.add_key(key)
                else:
                    self.edits[key] = old if type(old) in ATOMS else Fingerprint(self.prints.get(key, -1))

    def _remember_old(self, key: Any) -> None:
        if self.owner._fresh:
            return
        stored = ABSENT if key in self.gone else self._stored(key)
        if stored is ABSENT:
            if not self.complete and type(key) not in ALONE:
                self.owner._slot(key)  # What cannot be stored is refused at once.
            self.add_key(key)
        else:
            self._add_edit(self._original(key), stored)

    @undivided
    def add_key(self, key: Any) -> None:
        """Note a key that is new, or comes back after it was removed: at the end, if the order is that of insertion."""
        stored = self.gone.get(key, ABSENT)
        if self.ranks is not None:
            self.ranks[key] = self.next_rank
            self.next_rank += 1
            stored = stored if stored is ABSENT else STORED
        elif stored is not ABSENT and type(stored) is not Fingerprint and not keys.is_exact(key):
            stored = STORED
        self._add_edit(key, stored)
        self.gone.pop(key, None)
        self.count += 1

    def _add_keys(self, new: Collection[Any]) -> None:
        """Do what :meth:`add_key` does for many keys of which nothing is stored, if the order is that of insertion."""
        assert self.ranks is not None
        self.ranks.update(zip(new, count(self.next_rank), strict=False))
        self.next_rank += len(new)
        self.edits.update(zip(new, repeat(ABSENT), strict=False))
        self.count += len(new)

    def _add_edit(self, key: Any, stored: Any) -> None:
        self.edits[key] = stored
        if self.places is not None:
            self.places[slot_order(self.owner._slot(key))] = key

    @undivided
    def delete(self, key: Any) -> Any:
        """Remove a key and return its value, :data:`ABSENT` if there was none."""
        if self.complete:
            return self._delete(key)
        with self.owner._home.mutex:
            return self._delete(key)

    @collecting_seldom()
    @undivided
    def delete_all(self, unwanted: Sequence[Any]) -> int:
        """Remove those of many keys that are there, and return how many they were."""
        self.expect(len(unwanted))
        before, step = len(self), self.fetched_at_once()
        for start in range(0, len(unwanted), step):
            part = unwanted[start : start + step]
            with self.owner._home.mutex:
                self.fetch(part)
                if not self._tell_themselves(part):
                    for key in part:
                        self._delete(key)
                elif not dict.keys(self.live).isdisjoint(part):
                    self.owner._home.touch(self.owner)
                    self._delete_loaded(part)
        return before - len(self)

    def _tell_themselves(self, some: Sequence[Any]) -> bool:
        """Return whether some keys are equal to none of another type, and are stored as what they are."""
        if self.owner._fresh or self.is_mixed or self.places is not None:
            return False
        kinds = set(map(type, some))
        return kinds <= {bytes} or are_slots(some) or (self.ranks is not None and kinds <= ALONE)

    def _delete_loaded(self, unwanted: Sequence[Any]) -> None:
        """Do what :meth:`_delete` does for those of many keys that are in memory.

        The number of slots is corrected last, so that an interruption is seen.
        """
        live, edits, gone, prints, removed = self.live, self.edits, self.gone, self.prints, 0
        for key in unwanted:
            value = _pop(live, key, ABSENT)
            if value is ABSENT:
                continue
            removed += 1
            if key in edits:
                stored = edits[key]
            else:
                stored = value if type(value) in ATOMS else Fingerprint(prints.get(key, -1))
            if stored is not ABSENT:
                gone[key] = stored
            edits.pop(key, None)
            if prints:
                prints.pop(key, None)
            if self.ranks is not None:
                self.ranks.pop(key, None)
        self.count -= removed

    @undivided
    def forget_key(self, key: Any, old: Any) -> None:
        """Note that a key, whose value was ``old``, was removed from memory."""
        self._forget_key(key, self._with_key(key, self.edits.get(key, old)))

    def _forget_key(self, key: Any, stored: Any) -> None:
        """Note that a key has left memory, in steps none of which an interruption leaves unseen."""
        if stored is not ABSENT:
            self.gone[key] = stored
        self.edits.pop(key, None)
        if self.ranks is not None:
            self.ranks.pop(key, None)
        self.count -= 1
        if self.places is not None:
            self.places.pop(slot_order(self.known_slot(key)), None)

    def _delete(self, key: Any) -> Any:
        value = self.read(key)
        if value is ABSENT:
            return ABSENT
        self.owner._home.touch(self.owner)
        if self.owner._fresh:
            _pop(self.live, key)
            return value
        stored = self.edits[key] if key in self.edits else self._stored(key)
        if type(key) not in ALONE and (stored is not ABSENT or self.places is not None):
            key = self._met(key)  # What was asked for may be equal to a key that is stored, and have no slot itself.
        stored = self._with_key(key, stored)
        _pop(self.live, key)
        self._forget_key(key, stored)
        self.prints.pop(key, None)
        return value

    @undivided
    def delete_last(self) -> tuple[Any, Any] | None:
        """Remove the last key in memory and return it with its value; ``None`` if not all slots are there, or none is.

        ``dict.popitem`` leaves no hole where the key was. A search for the last key steps over those that others leave.
        """
        with self.owner._home.mutex:  # Another thread may be dropping clean slots.
            if not self.complete or not dict.__len__(self.live):
                return None
            self.owner._home.touch(self.owner)
            key, value = dict.popitem(self.live)
            if not self.owner._fresh:
                self.forget_key(key, value if type(value) in ATOMS else Fingerprint(self.prints.get(key, -1)))
                self.prints.pop(key, None)
            return key, value

    @undivided
    def clear(self) -> None:
        """Remove every key; more than a few stored slots are left behind under the old id of the object.

        Dirties: one row per stored slot up to 32 of them, otherwise two index rows.
        """
        self.owner._wake()
        if not len(self):
            return
        self.owner._home.touch(self.owner)
        if self.owner._fresh or len(self) + len(self.gone) > limits.CLEAR_ROWS:
            self.restart()
            return
        for key in list(scans.keys_of(self)):
            self.delete(key)

    @undivided
    def restart(self) -> None:
        """Become empty under a new id, under which nothing is stored yet."""
        with self.owner._home.mutex:  # Another thread may be dropping clean slots.
            if not self.owner._fresh:
                self.owner._home.renumber(self.owner)
            self._reset(0)
            self.complete, self.count = True, 0

    def forget_new(self, is_default: Callable[[Any], bool]) -> None:
        """Forget the slots that are not stored and hold what an absent slot stands for: they need no row."""
        if not self.owner._fresh:
            self.require_whole()
        with self.owner._home.mutex:
            self.places = None  # Another thread may be in the middle of a scan over them.
            for key in list(self.live if self.owner._fresh else self.edits):
                if (self.owner._fresh or self.edits[key] is ABSENT) and is_default(self.live[key]):
                    self.delete(key)

    def rows(self) -> list[ItemRow]:
        """Return the rows of the open page."""
        return saving.rows_of(self)

    def require_whole(self) -> None:
        """Refuse to save an edit that an interruption has cut in two.

        Raises:
            CheckpointProtocolError: what is noted is not what is there.

        Time: O(dirty slots).
        """
        self._require_whole(has_values=self.edits.keys() <= dict.keys(self.live))

    def whole_values(self, edited: Sequence[Any]) -> list[Any]:
        """Return the values of all keys that were set; refuse as :meth:`require_whole`, in the same pass.

        Args:
            edited: the keys of ``edits``, in any order.
        """
        values: list[Any] = []
        with suppress(KeyError):
            values += map(_at, repeat(self.live), edited)
        self._require_whole(has_values=len(values) == len(edited))
        return values

    def _require_whole(self, *, has_values: bool) -> None:
        live = dict.keys(self.live)
        counted = len(live) if self.complete else self.kept + self._count_new() - len(self.gone)
        if not (has_values and self.gone.keys().isdisjoint(live) and counted == self.count):
            self.owner._torn = Torn.WITHIN
        self.owner._require_whole()

    def _count_new(self) -> int:
        """Return how many slots of the open page are not stored."""
        return sum(map(is_, self.edits.values(), repeat(ABSENT)))

    def turn(self) -> None:
        """Open a new page; the one so far is in flight."""
        if self.owner._fresh:
            self.saved_page, self.prints = {}, {}
            if self.ranks is not None:
                self.ranks = {key: rank for rank, key in enumerate(dict.keys(self.live))}
                self.next_rank = len(self.ranks)
        else:
            self.saved_page = self.edits | self.gone
        self.prints.update(self.new_prints)
        self.last_keys.page_turns(self)
        self.rank_base_before, self.rank_base = self.rank_base, self.next_rank
        self.edits, self.gone = {}, {}
        self.count = len(self)
        self.kept_before, self.kept = self.kept, self.count
        self.places = None
        self.saves += 1

    def _first_dirty(self, lower: Slot | None, upper: Slot | None, reverse: bool) -> Slot | None:
        """Return the first slot between two bounds that is set in memory, the bound at the end of the way left out."""
        start, stop = (None if bound is None else slot_order(bound) for bound in (lower, upper))
        found = scans.places_of(self).irange(start, stop, (not reverse, reverse), reverse)
        return next((self.known_slot(self.places[place]) for place in found), None)  # type: ignore[index]

    def settle(self, durable: bool, was_fresh: bool) -> None:
        """Drop the page in flight, or take it back if it is not durable."""
        if durable:
            self.gaps.carry(self._first_dirty)
        else:
            self.rank_base, self.kept = self.rank_base_before, self.kept_before
            # First: what other threads read meanwhile is not as the store has it, and must not be taken for that.
            self.edits, self.gone = ({}, {}) if was_fresh else self._with_page(self.saved_page or {})
        self.saved_page = self.places = None

    def _with_page(self, page: dict[Any, Any]) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Return the edits, and what is gone, with those of a page that is not stored after all."""
        edits, gone = self.edits.copy(), self.gone.copy()
        for key, stored in page.items():
            edits.pop(key, None)
            gone.pop(key, None)
            if dict.__contains__(self.live, key):
                known = self._met(key)  # An equal key of another type may have come in its place.
                edits[known] = self._taken_back(known, stored)
            elif stored is not ABSENT:
                gone[key] = self._taken_back(key, stored)
        return edits, gone

    @collecting_seldom()
    def load_all(self) -> None:
        """Read what is not in memory yet.

        Time: O(stored slots).
        """
        with self.owner._home.mutex:
            if not self.complete:
                self._load_rest()

    @undivided_read
    def _load_rest(self) -> None:
        merged = self._load_columns() or {}
        for key, value, item in () if merged else scans.stream(self):
            merged[key] = value
            if item is not None:
                self._note_stored(key, value, item)
        if self.owner._counts_slots and len(merged) != self.count:
            self.owner._damaged("length", self.count, f"{len(merged)} slots are stored")
        dict.clear(self.live)
        dict.update(self.live, merged)
        if self.ranks is not None and len(self.ranks) > len(merged):
            for key in [key for key in self.ranks if key not in merged]:
                del self.ranks[key]  # An edit of it was interrupted: when it is added again it stands at the end.
        self.kept += len(merged) - self.count
        self.complete, self.count = True, len(merged)
        self.last_keys.forget()
        self.owner._home.account(self.owner)

    def _load_columns(self) -> dict[Any, Any] | None:
        """Return all slots, read in whole columns, of an object with nothing in memory; ``None`` if that cannot be.

        Only if every key is its own slot and every text is plain JSON: a fifth of the time of one by one.
        """
        if dict.__len__(self.live) or self.edits or self.gone or self.saved_page or not self.owner._is_plain:
            return None
        reader = self.owner._home.reader()
        items = reader.items(self.owner._id) if self.ranks is None else reader.items_by_rank(self.owner._id)
        slots, texts, ranks = zip(*items, strict=True) if (items := list(items)) else ((), (), ())
        values = decode_together(texts) if are_slots(slots) else None
        if values is None:
            return None
        if self.ranks is not None:
            self.ranks.update(zip(slots, ranks, strict=True))
        if not ATOMS.issuperset(map(type, values)):
            hashes = zip(slots, values, map(hash, texts), strict=True)
            self.prints.update((slot, hashed) for slot, value, hashed in hashes if type(value) not in ATOMS)
        return dict(zip(slots, values, strict=True))

    def expect(self, reads: int) -> None:
        """Read all slots now if this many reads would take longer, and if all fit."""
        if is_cold(self.owner):  # What the caller was given to read may have rolled back.
            self.owner._wake()
        price = reads * limits.EXPECT_SHARE
        if not self.complete and price > self.count and self._fits() and price > self.count * self._depth():
            self.owner._load_whole()

    def shrink(self) -> None:
        """Drop clean slots from memory, one by one: other threads may be reading the rest."""
        self.count = len(self)
        self.complete, self.faults = False, 0
        self.drops += 1  # After that: whoever finds this number and a whole object has found it before.
        for key in [key for key in dict.keys(self.live) if not self.is_dirty(key)]:
            _pop(self.live, key)
            self.prints.pop(key, None)
            if self.ranks is not None:
                self.ranks.pop(key, None)

    def stored_differences(self) -> Iterator[Any]:
        """Yield the keys whose value in memory is not the stored one although they were not set."""
        if self.owner._fresh:
            return
        for key, value in dict.items(self.live):
            if type(value) not in ATOMS and not self.is_dirty(key) and not self._is_as_stored(key, value):
                yield key

    def _is_as_stored(self, key: Any, value: Any) -> bool:
        stored, owner = self.prints.get(key), self.owner
        with suppress(UnencodableValueError):
            if stored is None or stored == hash(owner._text(key, value)):
                return True
        return bool(owner._is_read_from(owner._home.reader().item(owner._id, self.known_slot(key)), value))

    def is_dirty(self, key: Any) -> bool:
        """Return whether the store does not hold what it should for a key: memory decides, and must keep it."""
        return key in self.edits or key in self.gone or key in (self.saved_page or ())

    def check(self) -> None:
        """Assert the invariants of the table."""
        live = dict.keys(self.live)
        assert self.owner._is_open() or self.edits.keys() <= live, f"edited but not there: {self.edits.keys() - live}"
        assert self.owner._is_open() or not self.gone.keys() & live, f"gone but there: {self.gone.keys() & live}"
        assert not self.edits.keys() & self.gone.keys()
        assert ABSENT not in self.gone.values(), "gone but never stored"
        if not self.owner._fresh:
            assert not self.complete or self.owner._is_open() or self.count == len(live), (self.count, len(live))
            if self.ranks is not None and not self.owner._is_open():
                # A read or an edit that was interrupted may have left the rank of a key that is not in memory.
                assert self.ranks.keys() == live if self.complete else self.ranks.keys() >= live
        assert not (self.owner._fresh and (self.edits or self.gone)), "a fresh object needs no edits"
        assert not self.owner._fresh or self.complete, "a fresh object is nowhere but in memory"

    def _reset(self, next_rank: int) -> None:
        dict.clear(self.live)
        self.edits, self.gone, self.saved_page, self.prints = {}, {}, None, {}
        self.ranks = None if self.ranks is None else {}
        self.next_rank = self.rank_base = self.rank_base_before = next_rank
        self.faults, self.scanned, self.places = 0, 0, None
        self.gaps.clear()
        self.last_keys.forget()
        self.saves += 1

    def _stored(self, key: Any) -> Any:
        """Return what is stored of a key: an atom, the fingerprint of another value, or :data:`ABSENT`."""
        value = self.read(key)
        if value is ABSENT or type(value) in ATOMS:
            return value
        return Fingerprint(self.prints.get(key, -1))

    def _original(self, key: Any) -> Any:
        """Return the key of ``live`` that is equal to ``key``: ``1`` may have been asked for as ``True``."""
        return key if not self.is_mixed and type(key) in ALONE else self._met(key)

    def _met(self, key: Any) -> Any:
        probe = _Probe(key)
        return probe.met if dict.__contains__(self.live, probe) else key

    def _with_key(self, key: Any, stored: Any) -> Any:
        """Return what is stored of a key that is removed, including its type: an equal one may come back."""
        if self.ranks is not None or stored is ABSENT or type(stored) is Fingerprint:
            return stored
        original = self._original(key)
        return stored if keys.is_exact(original) else Fingerprint(hash(self.owner._text(original, stored)))

    def _taken_back(self, key: Any, stored: Any) -> Any:
        """Return what is known to be stored of a key whose edit was saved in vain: maybe only that something is."""
        if stored is ABSENT:
            return ABSENT
        if self.ranks is not None:
            # One that was removed meanwhile has come back at the end, and is another key, maybe of another type.
            return stored if self.ranks.get(key, self.rank_base) < self.rank_base else STORED
        return STORED if self.is_mixed or type(key) not in ALONE else stored

    def _fault(self, key: Any) -> Any:
        """Read one slot that is not in memory."""
        if is_cold(self.owner):  # Asked by what was made before a rollback: an iterator, a method that was kept.
            self.owner._wake()
            return self.read(key)
        if not self._may_be_stored(key):
            return ABSENT
        with self.owner._home.mutex:
            known = _get(self.live, key, ABSENT)
            if known is not ABSENT:  # Another thread has read it, or all of them.
                return known
            slot = self._slot_of(key)
            item = None if slot is None else self.owner._home.reader().item(self.owner._id, slot)
            if item is None:
                return ABSENT
            stored_key, value = self.owner._key_value(item)
            known = _get(self.live, stored_key, ABSENT)
            if known is not ABSENT:
                return known
            self.owner._home.make_room()
            size = len(item.value)
            self.unweighed.append(size)  # Each of them: a sample could miss all large ones.
            if size > limits.PROMOTE_CHARACTERS or len(self.unweighed) == limits.WEIGHED_TOGETHER:
                self._weigh_read()
            self._note_stored(stored_key, value, item)
            _put(self.live, stored_key, value)
            self.faults += size <= limits.PROMOTE_CHARACTERS
            held = self.owner._held()
            if held * self.owner._weight > self.owner._accounted:
                self._count_faults(0, ahead=held // limits.AHEAD_SHARE)
            return value

    def _weigh_read(self) -> None:
        """Have the slots weighed that were read by themselves since the last time."""
        sizes, self.unweighed = self.unweighed, []
        self.owner._weigh(len(sizes), sum(sizes))

    def _slot_of(self, key: Any) -> Slot | None:
        """Return the slot in which a key may be found, or ``None`` if it is equal to none that can be stored."""
        try:
            return self.owner._slot(key)  # type: ignore[no-any-return]
        except UnencodableValueError:
            with suppress(Unencodable, UnencodableValueError):
                return self.owner._slot(keys.storable(key))  # type: ignore[no-any-return]
            return None

    def known_slot(self, key: Any) -> Slot:
        """Return the slot of a key that is stored or to be stored, or is equal to one.

        Raises:
            UnencodableValueError: the key was stored by an older version, which did not refuse it.
        """
        slot = self._slot_of(key)
        return self.owner._slot(key) if slot is None else slot

    def _may_be_stored(self, key: Any) -> bool:
        """Return whether a key that is not in memory may be in the store: not if it was removed, or is NaN."""
        return bool(key == key) and key not in self.gone and key not in (self.saved_page or ())

    def _count_faults(self, count: int, ahead: int = 0) -> None:
        """Account for slots that were read; read all of them if those that were are a large part.

        Args:
            count: how many were read, if they are not counted yet.
            ahead: how many to account for that may be read next: for each by itself it adds to the time of reading it.
        """
        self.faults += count
        self.owner._home.account(self.owner, (self.owner._held() + ahead) * self.owner._weight)
        self.load_if_worthwhile()

    def load_if_worthwhile(self) -> bool:
        """Read all slots if those that were read one by one are a large part, and if all fit; return whether it did."""
        if self.complete or (self.faults + self.scanned) * limits.PROMOTE_SHARE <= self.count:
            return False
        if self.scanned:
            self._weigh_some()
        is_worthwhile = self._fits()
        if is_worthwhile:
            self.owner._load_whole()
        return is_worthwhile

    def _weigh_some(self) -> None:
        """Have some slots weighed if none was: going through keys says nothing of their values."""
        with self.owner._home.mutex:
            if not self.owner._weighed[0]:
                rows = self.owner._home.reader().rows(self.owner._id, page_rows=scans.FIRST_PAGE_ROWS)
                values = (row[1] for row in rows if row[1] is not None)
                sizes = [len(value) for value in islice(values, scans.FIRST_PAGE_ROWS)]
                self.owner._weigh(len(sizes), sum(sizes))

    def _depth(self) -> int:
        """Return how many runs all slots are read from, while those that are named are mostly in the newest."""
        reader: Reader = self.owner._home.reader()
        return max(1, reader.depth(self.owner._id))

    def _fits(self) -> bool:
        """Return whether all slots may be in memory."""
        return bool(self.count * self.owner._weight * 2 <= self.owner._home.cache_slots)

    def _note_stored(self, key: Any, value: Any, row: ReadRow) -> None:
        if type(value) not in ATOMS:
            self.prints[key] = hash(row[1])
        if self.ranks is not None and row[2] is not None:
            self.ranks[key] = row[2]


_first, _second, _third = itemgetter(0), itemgetter(1), itemgetter(2)

_WATCHED = ATOMS | {type(ABSENT)}


class _Probe:
    """Looks a key up like an equal one, and meets the one that is there."""

    def __init__(self, key: Any) -> None:
        self.met = key
        self._key = key

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        self.met = other
        return bool(other == self._key)
