"""The persisted list: a real ``list`` in which an insertion in the middle dirties one slot."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from operator import is_, is_not
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Never, Self, SupportsIndex, TypeVar, overload

from checkpoint.reader import StoredItem
from checkpoint.run import ItemRow, Payload, Slot
from objectspace import codec
from objectspace.codec import ATOMS, decode_together
from objectspace.objects import limits
from objectspace.objects.base import Fingerprint, PersistedObject, item_text
from objectspace.objects.labels import Label
from objectspace.objects.placing import placed, whole
from objectspace.objects.sequence import Sequenced
from objectspace.objects.torn import reads_first, undivided, undivided_read
from objectspace.objects.variants import become, is_cold, is_partial, named_as

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparison

T = TypeVar("T")
S = TypeVar("S")


class List(list[T], PersistedObject):
    """A list; one slot per element.

    It has the methods of ``list``. A handle is *open* if its object is new or a large part of it has changed since the
    last save: it is a plain ``list``, and the next save finds the changes by comparison. Otherwise it is *watched* and
    notes each change. A stored list is read whole when it is first touched; only ``append``, ``extend`` and ``len``
    read no more than its length and its end.

    Changing a stored element in place is not an edit: assign it again. ``space.check_mutations()`` finds such slots,
    and also what C code has written without calling the methods: do not use ``heapq`` on a persisted list; use a sorted
    set instead.

    =============================== =======================================================
    method                          dirties
    =============================== =======================================================
    ``l[i] = v``                    1 item
    ``append``, ``insert``          1 item and the length, wherever it is
    ``del l[i]``, ``pop``           1 item and the length, wherever it is
    ``extend``, ``l[i:j] = values`` 1 item per element that changes, and the length
    ``sort``, ``reverse``           the items whose value changes
    ``clear``                       the length, and the items up to 32, else 2 index rows
    =============================== =======================================================

    >>> from objectspace import VolatileObjectSpace
    >>> l = VolatileObjectSpace().create_list("l")
    >>> l.extend([1, 2, 4])
    >>> l.insert(2, 3)
    >>> l
    List('l', [1, 2, 3, 4])
    """

    kind = "List"
    __hash__ = None  # type: ignore[assignment]
    if TYPE_CHECKING:  # To a type checker, an __init__ that is assigned as a variable is not a constructor.

        def __init__(self, *_: Never, **__: Never) -> None: ...
    else:
        __init__ = PersistedObject.__init__

    _twin: list[T] | None
    """The elements as they were when the list was opened; ``None`` while changes are noted."""
    _sequence: Sequenced
    """The order labels of the elements, and what changed since the last save."""
    _noted: int
    """How many changes were noted since the last save, or since it was last tried to open the list."""
    _unread: int
    """How many stored elements are not in memory: those at the beginning."""
    _unread_to: Label | None
    """The label of the last of them."""

    def _begin(self, options: dict[str, Any]) -> None:
        self._sequence, self._twin, self._noted = Sequenced(), None, 0
        self._unread, self._unread_to = 0, None
        if not self._fresh:
            self._go_cold()

    @undivided
    def insert(self, index: SupportsIndex, value: T) -> None:
        """Insert a value before ``index``.

        Time: O(n) in memory, as for ``list``.
        Dirties: one item and the length; sometimes a few neighbours.
        """
        place = _clamp(whole(self, index), len(self))
        if self._watch():
            self._sequence.insert(place, self)
        list.insert(self, place, value)
        self._sequence.ended()

    @undivided
    def pop(self, index: SupportsIndex = -1) -> T:
        """Remove the element at ``index`` and return it.

        Raises:
            IndexError: there is no such element.

        Time: O(n - index) in memory, as for ``list``.
        Dirties: one item and the length.
        """
        place = self._place(index)
        if self._watch():
            self._sequence.remove(place, list.__getitem__(self, place))
        value = list.pop(self, place)
        self._sequence.ended()
        return value

    def remove(self, value: T) -> None:
        """Remove the first element equal to ``value``.

        Raises:
            ValueError: there is none.

        Time: O(n). Dirties: one item and the length.
        """
        self.pop(list.index(self, value))

    def extend(self, values: Iterable[T]) -> None:
        """Put values at the end.

        Time: O(values). Dirties: one item per value, and the length.
        """
        # Anything but a plain container may run any code while it is read, even a save of the space: it is read first.
        added = values if type(values) in (list, tuple, range) else list(values)
        if type(self) is not List:
            self._lend_append()
        list.extend(self, added)

    def __iadd__(self, values: Iterable[T]) -> Self:  # type: ignore[override, misc]  # as list itself has it
        self.extend(values)
        return self

    @undivided
    def clear(self) -> None:
        """Remove every element.

        Time: O(1) slots written beyond 32 of them.
        Dirties: one item per element up to 32, two index rows beyond that; the length.
        """
        self._wake()
        if not len(self):
            return
        if self._watch() and len(self) + len(self._sequence.gone) <= limits.CLEAR_ROWS:
            for place in range(len(self) - 1, -1, -1):
                self._sequence.remove(place, list.pop(self))
            self._sequence.ended()
            return
        if not self._fresh:
            self._start_anew()
        list.clear(self)

    @overload
    def sort(self, *, key: None = None, reverse: bool = False) -> None: ...
    @overload
    def sort(self, *, key: Callable[[T], SupportsRichComparison], reverse: bool = False) -> None: ...
    def sort(self, **options: Any) -> None:
        """Sort in place, with ``key`` and ``reverse`` as for ``list.sort``.

        Time: O(n log n). Dirties: the items whose value changes.
        """
        before = list(self)
        found = sorted(before, **options)  # It may run any code, even a save of the space: nothing is noted before it.
        self._home.touch(self)  # First: after a rollback, what was sorted is no longer what is here.
        if len(self) != len(before) or not all(map(is_, self, before)):
            self[:] = before
            raise ValueError("list modified during sort")
        self._replace_all(found)

    @undivided
    def reverse(self) -> None:
        """Reverse the order in place.

        Time: O(n). Dirties: the items whose value changes.
        """
        if not self._watch():
            list.reverse(self)
            return
        self._replace_all(list(self)[::-1])

    def __imul__(self, count: SupportsIndex) -> Self:
        """Repeat the elements in place.

        Time: O(elements added or removed). Dirties: one item each, and the length.
        """
        times = operator.index(count)
        _ = [] * times  # A list refuses what has more than 64 bits.
        if times <= 0:
            self.clear()
        elif times > 1:
            self.extend(list(self) * (times - 1))
        return self

    @overload
    def __add__(self, other: list[T]) -> list[T]: ...
    @overload
    def __add__(self, other: list[S]) -> list[T | S]: ...
    def __add__(self, other: Any) -> Any:
        return list.__add__(self, _read_whole(other))

    def __eq__(self, other: object) -> bool:
        return list.__eq__(self, _read_whole(other))

    def __ne__(self, other: object) -> bool:
        return list.__ne__(self, _read_whole(other))

    def __lt__(self, other: list[T]) -> bool:
        return list.__lt__(self, _read_whole(other))

    def __le__(self, other: list[T]) -> bool:
        return list.__le__(self, _read_whole(other))

    def __gt__(self, other: list[T]) -> bool:
        return list.__gt__(self, _read_whole(other))

    def __ge__(self, other: list[T]) -> bool:
        return list.__ge__(self, _read_whole(other))

    def __radd__(self, other: list[S]) -> list[S | T]:
        return other + list(self) if isinstance(other, list) else NotImplemented

    def copy(self) -> list[T]:
        """Return a plain ``list`` with the same elements."""
        return list(self)

    @recursive_repr("[...]")
    def __repr__(self) -> str:
        return f"List({self._name!r}, {list(self)!r})"

    _place = placed

    def _watch(self) -> bool:
        """Prepare a change that may have to be noted; return whether it must be."""
        self._home.touch(self)
        self._close()
        self._note_tail()
        return not self._fresh

    def _note_tail(self) -> None:
        """Give labels to the elements that were appended since the last look."""
        if self._is_astray():
            self._note_slip()
        if not self._fresh:
            self._sequence.append(list.__len__(self) - len(self._sequence.labels))

    @undivided
    def _lend_append(self) -> None:
        """Prepare for appending: elements beyond the labels are new, and nothing more is noted of them until a save."""
        self._home.touch(self)
        if self._is_astray():
            self._note_slip()
        if not self._fresh:
            self.__dict__["append"] = super().append

    def _start_anew(self) -> None:
        """Leave what is stored behind under the old id: the next save writes the whole list."""
        self._home.renumber(self)
        self._sequence, self._twin, self._unread = Sequenced(), None, 0
        self.__dict__.pop("append", None)
        self.__class__ = List

    @undivided
    def _replace_all(self, values: list[T]) -> None:
        """Replace the elements with as many values."""
        if self._watch():
            for place, (old, new) in enumerate(zip(self, values, strict=True)):
                if old is not new:
                    self._sequence.set(place, old)
        list.__setitem__(self, slice(None), values)

    @undivided
    def _try_open(self) -> None:
        """Stop noting single changes, unless a value may have been changed in place: comparing would not find it."""
        self._noted = 0
        if self._twin is None and not self._sequence.prints and not self._sequence.strays:
            self._note_tail()
            self._twin = None if self._fresh else list(self)
            self.__class__ = List

    def _close(self) -> None:
        """Note what has changed since the list was opened, and watch it from now on.

        Only the twin is brought up to date: other threads may be reading the elements.
        """
        twin, sequence = self._twin, self._sequence
        if twin is None:
            return
        if sequence.is_torn:  # This was interrupted: the list is written again.
            self._twin, self.__class__ = None, _Watched
            return
        changed = list(compress(range(len(twin)), map(is_not, twin, self)))
        if len(self) >= len(twin) and len(changed) * 2 <= len(twin):
            sequence.is_torn, self._twin = True, None
            self.__class__ = _Watched
            for place in changed:
                sequence.set(place, twin[place])
            sequence.append(len(self) - len(twin))
            sequence.is_torn = False
            return
        # The twin and the labels change in step: an interruption leaves the rest to be done again.
        self._replace(twin, 0, len(twin), list(self))
        self._twin, self.__class__ = None, _Watched

    def _replace(self, target: list[Any], start: int, stop: int, values: list[T]) -> None:
        """Replace a part of the elements, which ``target`` holds, with values: no more of it than differs."""
        old = list.__getitem__(target, slice(start, stop))
        head = _common(old, values)
        tail = _common(old[head:][::-1], values[head:][::-1])
        self._splice(target, start + head, stop - tail, values[head : len(values) - tail])

    def _splice(self, target: list[Any], start: int, stop: int, values: list[T]) -> None:
        """Replace a slice with values: element by element as far as it goes, then remove or insert the rest."""
        sequence, shared = self._sequence, min(stop - start, len(values))
        for place, new in enumerate(values[:shared], start):
            old = list.__getitem__(target, place)
            if not _is_same(old, new):
                sequence.set(place, old)
                list.__setitem__(target, place, new)
        sequence.remove_all(start + shared, list.__getitem__(target, slice(start + shared, stop)))
        list.__delitem__(target, slice(start + shared, stop))
        sequence.ended()
        if start + shared == list.__len__(target):
            sequence.is_torn = target is not self  # Nobody would find a twin that is longer than its labels.
            list.extend(target, values[shared:])
            sequence.append(len(values) - shared)  # Last: elements without labels are found, but no labels alone.
            return
        if rest := values[shared:]:
            place = start + shared
            sequence.insert_all(place, len(rest), target)
            list.__setitem__(target, slice(place, place), rest)
            sequence.ended()

    def _rows(self) -> list[ItemRow]:
        if self._fresh:
            return self._sequence.all_rows(self._id, self, self._encode)
        self._close()
        self._note_tail()
        values = list.copy(self) if self._unread else self
        return self._sequence.rows(self._id, values, self._encode, self._stored_text)

    def _metadata(self) -> dict[str, Any]:
        return {"length": len(self)}

    def _turn(self) -> None:
        self._sequence.turn(self._fresh, len(self))
        self._was_fresh, self._fresh = self._fresh, False
        self._turn_metadata()
        self.__dict__.pop("append", None)
        if not is_partial(self):
            self.__class__ = _Watched
        self._noted = 0

    def _settle(self, durable: bool) -> None:
        was_fresh, self._was_fresh = bool(self._was_fresh), None
        if not durable:
            self._close()
            self._note_tail()
        if not self._fresh:
            self._sequence.settle(durable, was_fresh)
        if was_fresh and not durable:
            self._fresh = True
            self.__class__ = List
        self._settle_metadata(durable)

    def _go_cold(self) -> None:
        self._twin, self._unread = None, 0
        self._sequence = Sequenced()
        list.clear(self)
        become(self, _Unread, "cold", PersistedObject._wake)

    def _warm(self) -> type:
        """Read all elements."""
        self._unread, self._unread_to = self._load_length(), None
        self._read_rest()
        warm: type = _Watched
        return warm

    @undivided_read
    def _read_rest(self) -> None:
        """Put the stored elements that are not in memory before those that are.

        What is in memory is what was appended since the length was read. A wholly unread list may hold elements as
        well, without labels: a bound ``append`` that was kept from before has put them there.
        """
        labels: list[Any] = []
        values: list[Any] = []
        reader = self._home.reader()
        for page in reader.item_pages(self._id, upper=self._unread_to, page_rows=reader.PAGE_ROWS):
            labels += [slot for slot, _ in page]
            values += self._read(page)
            if page:
                self._weigh(2, len(page[0][1]) + len(page[-1][1]))  # A sample: the values of a list are mostly alike.
        if len(labels) != self._unread:
            self._damaged("length", self._unread, f"{len(labels)} elements are stored")
        self._label_of_last(labels[-1] if labels else 0)
        kept, length = self._sequence.labels, list.__len__(self)
        try:
            self._sequence.precede(labels)
            list.__setitem__(self, slice(0, 0), values)
            self._unread = 0
        except BaseException:  # An interruption: nothing of it was read.
            self._sequence.labels, self._unread = kept, len(labels)
            list.__delitem__(self, slice(0, list.__len__(self) - length))
            raise

    def _read_end(self) -> None:
        """Read as much of an unread list as it takes to append to it."""
        with self._home.mutex:
            if is_cold(self) and self._is_half_read:
                self._wake()
            elif is_cold(self):
                self._load_end()

    @undivided_read
    def _load_end(self) -> None:
        length = self._load_length()
        if not length:
            self._wake()
            return
        last = self._label_of_last(self._home.reader().last_slot(self._id))
        self._unread, self._unread_to = length, last
        self._sequence.begin_after(last)
        become(self, _Unread, "partial", List._wake_rest)

    def _label_of_last(self, slot: Slot | None) -> Label:
        """Return the slot of the last stored element, which is a number if all are: SQLite sorts text after numbers."""
        if not isinstance(slot, int | float):
            self._damaged(slot, slot, "expected the label of an element, a number")
        return slot

    @undivided_read
    def _wake_rest(self) -> None:
        with self._home.mutex:
            if is_partial(self):
                self._home.make_room()
                if self._unread:
                    self._read_rest()
                self.__class__ = _Watched
                self._home.account(self)

    def _read(self, page: Sequence[tuple[Slot, Payload]]) -> list[Any]:
        """Return the elements of stored rows; remember what those that may be changed in place were."""
        values = decode_together([value for _, value in page])
        if values is not None and ATOMS.issuperset(map(type, values)):
            return values
        items = [StoredItem(slot, value, None) for slot, value in page]
        values = [self._decode(item_text(item), item.slot) for item in items]
        for item, value in zip(items, values):
            if type(value) not in ATOMS:
                self._sequence.prints[item.slot] = hash(item_text(item))  # type: ignore[index]
        return values

    def _encode(self, value: Any, slot: Any) -> str:
        try:
            return codec.encode(value)
        except codec.Unencodable as error:
            place = slot if self._fresh else self._unread + self._sequence.place(slot)
            raise self._unencodable("index", place, error) from error.__cause__

    def _stored_text(self, value: Any, label: Label) -> str | None:
        """Return the text that is stored of an element under a label, ``None`` if that is of something else."""
        item = self._home.reader().item(self._id, label)
        return item_text(item) if item is not None and self._is_read_from(item, value) else None

    def _has_slipped(self) -> bool:
        if self._fresh or self._twin is not None:
            return False
        return self._sequence.is_torn or list.__len__(self) != len(self._sequence.labels)

    def _is_astray(self) -> bool:
        """Return whether the length changed without being noted; after an append, elements at the end do not count."""
        if self._sequence.is_torn and not self._fresh:
            return True
        added = list.__len__(self) - len(self._sequence.labels)
        return added != 0 and self._has_slipped() and (added < 0 or "append" not in self.__dict__)

    @undivided
    def _note_slip(self) -> None:
        self._wake_rest()
        sequence = self._sequence
        if sequence.is_torn or list.__len__(self) < len(sequence.labels) or sequence.saved_page is not None:
            # Nobody can tell which labels the elements that are gone had, or what the save will have stored.
            self._start_anew()
            return
        for item in list(self._home.reader().items(self._id)):
            label: Any = item.slot
            text = item_text(item)
            if label in sequence.edits or (label not in sequence.gone and self._is_unlike(item)):
                sequence.edits[label] = Fingerprint(hash(text))
        sequence.append(list.__len__(self) - len(sequence.labels))

    def _held(self) -> int:
        return list.__len__(self)

    def _stored_differences(self) -> Iterable[Any]:
        """Yield the indexes of what differs from what is stored although nothing has noted that.

        Time: O(n), all of it read from the store: C code that writes into a list leaves no other trace.
        """
        sequence = self._sequence
        if self._fresh or self._twin is not None or not list.__len__(self) or self._is_astray():
            return
        if self._unread and not sequence.labels:
            return  # What is in memory was appended since the last save: nothing of it is stored.
        noted = {**sequence.edits, **sequence.gone, **(sequence.saved_page or {})}
        start = sequence.labels[0] if self._unread else None
        for item in list(self._home.reader().items(self._id, start)):
            label: Any = item.slot
            text = item_text(item)
            if label not in noted and self._is_unlike(item):
                sequence.strays[label] = Fingerprint(hash(text))
                yield self._unread + sequence.place(label)

    def _is_unlike(self, item: StoredItem) -> bool:
        """Return whether an element differs from what the stored item says."""
        label: Any = item.slot
        return not self._is_as_stored(item, list.__getitem__(self, self._sequence.place(label)))

    def _check(self) -> None:
        if (type(self) is _Watched or is_partial(self)) and not self._is_astray():
            self._note_tail()
            self._sequence.check(list.__len__(self))
        assert self._twin is None or type(self) is List
        assert not self._fresh or (type(self) is List and not self._sequence.edits)
        assert bool(self._unread) == is_partial(self)


def _read_whole(other: Any) -> Any:
    """Return what ``list`` itself may look into: a copy if a list is not wholly in memory."""
    return list(other) if isinstance(other, _Unread) else other


def _clamp(place: int, length: int) -> int:
    return max(0, place + length) if place < 0 else min(place, length)


@named_as(List)
class _Watched(List[T]):
    """A list that notes each change."""

    def append(self, value: T, /) -> None:
        """Put a value at the end. Time: O(1). Dirties: one item and the length."""
        self._lend_append()
        list.append(self, value)

    @undivided
    def __delitem__(self, index: SupportsIndex | slice) -> None:
        if type(self) is not _Watched:
            del self[index]
            return
        if not isinstance(index, slice):
            self.pop(index)
            return
        places = range(*index.indices(len(self)))
        if type(self) is not _Watched:  # An __index__ has changed it.
            del self[index]
        elif len(places) == len(self):
            self.clear()
        else:
            self._remove_at(places if places.step > 0 else places[::-1])

    @undivided
    def _remove_at(self, places: range) -> None:
        """Remove the elements at increasing places, which are not all that there are."""
        if places and places[-1] - places[0] == len(places) - 1:
            self._set_slice(slice(places[0], places[-1] + 1), [])
            return
        index = slice(places.start, places.stop, places.step)
        if self._watch():
            self._sequence.remove_at(index, list.__getitem__(self, index))
        list.__delitem__(self, index)
        self._sequence.ended()

    @undivided
    def __setitem__(self, index: Any, value: Any) -> None:
        if type(self) is not _Watched:  # The method was kept, and nothing is noted now, or nothing is read.
            self[index] = value
            return
        sequence = self._sequence
        labels, edits = sequence.labels, sequence.edits
        if type(index) is not int or not 0 <= index < len(labels):
            self._set_with_care(index, value)
            return
        label = labels[index]
        if label in edits:
            list.__setitem__(self, index, value)
            return
        old = list.__getitem__(self, index)
        if not edits:
            self._home.touch(self)
        edits[label] = old if type(old) in ATOMS else sequence.stored(label, old)
        list.__setitem__(self, index, value)
        self._noted += 1
        if self._noted * limits.OPEN_SHARE > list.__len__(self):
            self._try_open()

    @reads_first
    def _set_with_care(self, index: Any, value: Any) -> None:
        """Assign a slice, an index from the end, or an element that was appended lately."""
        if not isinstance(index, slice):
            self._set_at(self._place(index), value)
            return
        values = list(value)
        if type(self) is _Watched:
            self._set_slice(index, values)
        else:
            self[index] = values  # Code that ran as they were read has opened it, or rolled back.

    @undivided
    def _set_at(self, place: int, value: T) -> None:
        """Assign an element, which may have been appended lately."""
        self._home.touch(self)
        if place < len(self._sequence.labels):
            self[place] = value
        else:
            list.__setitem__(self, place, value)

    @undivided
    def _set_slice(self, index: slice, values: list[T]) -> None:
        places = range(*index.indices(len(self)))
        if places.step != 1:
            if len(places) != len(values):
                raise ValueError(f"{self._describe()}: {len(values)} values for an extended slice of {len(places)}")
            for place, value in zip(places, values, strict=True):
                self[place] = value
            return
        start, stop = places.start, max(places.start, places.stop)
        if not self._watch():
            list.__setitem__(self, index, values)
            return
        self._replace(self, start, stop, values)


def _is_same(old: Any, new: Any) -> bool:
    """Return whether a slot is assigned what it holds; a value that may have been changed in place never is."""
    return old is new and type(old) in ATOMS


def _common(left: list[Any], right: list[Any]) -> int:
    """Return how many elements at the beginning are the same."""
    for count, (old, new) in enumerate(zip(left, right, strict=False)):
        if not _is_same(old, new):
            return count
    return min(len(left), len(right))


@named_as(List)
class _Unread(List[T]):
    """A list of which nothing was read, or no more than is needed to append to it; anything else reads it."""

    _unguarded = frozenset(("append", "extend", "__iadd__", "__len__"))

    def append(self, value: T, /) -> None:
        """Put a value at the end. Time: O(1). Dirties: one item and the length."""
        self._read_end()
        self._lend_append()
        list.append(self, value)

    def extend(self, values: Iterable[T]) -> None:
        """Put values at the end. Time: O(values). Dirties: one item per value, and the length."""
        added = values if type(values) in (list, tuple, range) else list(values)
        self._read_end()
        List.extend(self, added)

    def __len__(self) -> int:
        with self._home.mutex:  # Another thread may be reading the rest.
            self._read_end()
            return self._unread + list.__len__(self)
