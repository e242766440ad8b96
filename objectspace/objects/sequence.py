"""What the list keeps of its stored elements: their labels in order, and what changed since the last save."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from checkpoint.run import ItemRow
from objectspace.codec import ATOMS
from objectspace.errors import UnencodableValueError
from objectspace.objects.base import ABSENT, Fingerprint, unchanged
from objectspace.objects.labels import Label, between, spread, spread_all


class Sequenced:
    """The slots of an object whose elements lie in a sequence; the slot of an element is its label.

    While the labels are whole numbers one apart they are not kept one by one: ``labels`` is a ``range`` then.

    Invariants: ``labels`` increases strictly; a label of ``edits`` is in ``labels``; one of ``gone`` is not; both hold
    what is stored of their labels. ``saved_page`` holds the same of the page that is being committed. ``strays`` holds
    what is stored of labels whose value was written without being noted: an edit of such a label is wrong about that.
    """

    def __init__(self) -> None:
        self.labels: range | list[Label] = range(0)
        self.edits: dict[Label, Any] = {}
        self.gone: dict[Label, Any] = {}
        self.saved_page: dict[Label, Any] | None = None
        self.strays: dict[Label, Fingerprint] = {}
        self.moved: dict[Label, Label] = {}
        """Under which labels elements are stored that have other ones on the open page, if they are no atoms."""
        self._moved_before: dict[Label, Label] = {}
        self.prints: dict[Label, int] = {}
        self._new_prints: dict[Label, int] = {}
        self.is_torn = False
        """Whether an interruption has cut an edit in two: nobody can tell then which labels are whose."""

    def stored(self, label: Label, value: Any) -> Any:
        """Return what is stored of an element: an atom, or the fingerprint of another value."""
        # No text has the fingerprint -1: what is there without one came without being noted, and is written over.
        return value if type(value) in ATOMS else Fingerprint(self.prints.get(label, -1))

    def set(self, place: int, old: Any) -> None:
        """Note that the element at ``place``, whose value was ``old``, gets another value."""
        label = self.labels[place]
        if label not in self.edits:
            self.edits[label] = self.stored(label, old)

    def append(self, count: int = 1) -> None:
        """Note that so many elements were appended."""
        labels, self.is_torn = self.labels, True
        if count > 1 and isinstance(labels, range) and not self.gone:
            self.labels = range(labels.start, labels.stop + count)
            self.edits.update(dict.fromkeys(range(labels.stop, labels.stop + count), ABSENT))
        else:
            for _ in range(count):
                self._insert(len(self.labels), self._next())
        self.is_torn = False

    def begin_after(self, label: Label) -> None:
        """Keep the labels of what is appended from now on: what is stored goes up to ``label``."""
        start = math.floor(label) + 1
        self.labels = range(start, start)

    def precede(self, labels: list[Label]) -> None:
        """Put the labels of stored elements before those that are kept."""
        if not labels:
            return
        first, kept = labels[0], self.labels
        is_dense = labels[-1] == first + len(labels) - 1 and {int}.issuperset(map(type, labels))
        if is_dense and isinstance(kept, range) and (not kept or kept.start == first + len(labels)):
            self.labels = range(int(first), int(first) + len(labels) + len(kept))
        else:
            self.labels = [*labels, *kept]

    def insert(self, place: int, values: Sequence[Any]) -> None:
        """Note that an element is being inserted at ``place`` into ``values``; then call :meth:`ended`."""
        self.is_torn = True
        label = self._between(place)
        if label is None:
            self._relabel(place, values)
            label = self._between(place)
        assert label is not None
        self._insert(place, label)

    def insert_all(self, place: int, count: int, values: Sequence[Any]) -> None:
        """Note that so many elements are being inserted at ``place`` into ``values``; then call :meth:`ended`.

        Time: O(count + n), whereas one by one each moves all labels after it.
        """
        if count == 1:
            self.insert(place, values)
            return
        self.is_torn = True
        read = self.labels.__getitem__
        before, after = map(read, range(place - 1, -1, -1)), map(read, range(place, len(self.labels)))
        first, second, new = spread_all(before, after, count)
        if first or second:
            self._rename(place - first, [*new[:first], *new[first + count :]], values)
        come, labels = new[first : first + count], self.labels
        if isinstance(labels, range) and not place and (come[0], come[-1]) == (labels.start - count, labels.start - 1):
            self.labels = range(labels.start - count, labels.stop)
        else:
            self._listed()[place:place] = come
        for label in come:
            self.edits[label] = self.gone.pop(label, ABSENT)

    def remove(self, place: int, old: Any) -> None:
        """Note that the element at ``place``, whose value was ``old``, is being removed; then call :meth:`ended`."""
        self.remove_all(place, [old])

    def remove_all(self, start: int, olds: Sequence[Any]) -> None:
        """Note that elements from ``start`` on, which were ``olds``, are being removed; then call :meth:`ended`."""
        self.is_torn = True
        stop = start + len(olds)
        removed = self.labels[start:stop]
        if isinstance(self.labels, range) and stop == len(self.labels):
            self.labels = self.labels[:start]
        elif isinstance(self.labels, range) and start == 0:
            self.labels = self.labels[stop:]
        else:
            del self._listed()[start:stop]
        self._note_removed(removed, olds)

    def remove_at(self, places: slice, olds: Sequence[Any]) -> None:
        """Note that the elements at places apart, which were ``olds``, are being removed; then call :meth:`ended`.

        Time: O(n), whereas one by one each moves all labels after it.
        """
        self.is_torn = True
        if olds:
            removed = self.labels[places]
            del self._listed()[places]
            self._note_removed(removed, olds)

    def ended(self) -> None:
        """Note that the elements are as the last insertion or removal said they would be."""
        self.is_torn = False

    def rows(self, object_id: int, values: Sequence[Any], encode: Any, stored_text: Any) -> list[ItemRow]:
        """Return the rows of the open page.

        Args:
            object_id: the list.
            values: the elements in order.
            encode: gives the text of a value at a label.
            stored_text: gives the text that is stored of a value at a label, ``None`` if that is of another value.
        """
        rows: list[ItemRow] = []
        self._new_prints = {}
        for label, stored in self._corrected().items():
            value = values[self.place(label)]
            if value is stored and type(value) in ATOMS:
                self.prints.pop(label, None)
                continue
            try:
                text = encode(value, label)
            except UnencodableValueError:  # It has only moved, and was stored when it still could be.
                text = stored_text(value, self.moved[label]) if label in self.moved else None
                if text is None:
                    raise
            self._remember(label, value, text)
            if stored is ABSENT or not unchanged(stored, value, text):
                rows.append((object_id, label, text, None))
        return rows + [(object_id, label, None, None) for label in self.gone]

    def all_rows(self, object_id: int, values: Sequence[Any], encode: Any) -> list[ItemRow]:
        """Return the rows of every element, which get the labels 0, 1, 2, ..."""
        rows: list[ItemRow] = []
        self._new_prints = {}
        for label, value in enumerate(values):
            text = encode(value, label)
            if type(value) not in ATOMS:
                self._new_prints[label] = hash(text)
            rows.append((object_id, label, text, None))
        return rows

    def turn(self, was_fresh: bool, length: int) -> None:
        """Open a new page; the one so far is in flight."""
        if was_fresh:
            self.labels, self.prints = range(length), {}
        self.prints.update(self._new_prints)
        self.saved_page = {} if was_fresh else self._corrected() | self.gone
        self.edits, self.gone, self.strays = {}, {}, {}
        self._moved_before, self.moved = self.moved, {}

    def settle(self, durable: bool, was_fresh: bool) -> None:
        """Drop the page in flight, or take it back if it is not durable."""
        page, self.saved_page = self.saved_page or {}, None
        moved_before, self._moved_before = self._moved_before, {}
        if durable:
            return
        moved = {label: moved_before.get(origin, origin) for label, origin in self.moved.items()}
        self.moved = moved_before | moved
        if was_fresh:
            self.edits, self.gone, self.prints = {}, {}, {}
            return
        for label, stored in page.items():
            self.edits.pop(label, None)
            self.gone.pop(label, None)
            if self._has(label):
                self.edits[label] = stored
            elif stored is not ABSENT:
                self.gone[label] = stored

    def place(self, label: Label) -> int:
        """Return the index of a label. Time: O(log n)."""
        if isinstance(self.labels, range):
            return int(label) - self.labels.start
        return bisect_left(self.labels, label)

    def check(self, length: int) -> None:
        """Assert the invariants for a sequence of ``length`` elements."""
        assert len(self.labels) == length, (len(self.labels), length)
        labels = set(self.labels)
        assert all(left < right for left, right in pairwise(self.labels)), self.labels
        assert self.edits.keys() <= labels, f"edited but not there: {self.edits.keys() - labels}"
        assert not self.gone.keys() & labels, f"gone but there: {self.gone.keys() & labels}"
        assert ABSENT not in self.gone.values()

    def _corrected(self) -> dict[Label, Any]:
        """Return the edits with what is truly stored of their labels."""
        strays = self.strays
        if not strays:
            return self.edits
        return {**self.edits, **{label: strays[label] for label in strays if label in self.edits}}

    def _has(self, label: Label) -> bool:
        place = bisect_left(self.labels, label)
        return place < len(self.labels) and self.labels[place] == label

    def _remember(self, label: Label, value: Any, text: str) -> None:
        if type(value) not in ATOMS:
            self._new_prints[label] = hash(text)
        else:
            self.prints.pop(label, None)

    def _next(self) -> Label:
        """Return the label of an element at the end; an empty range says where it begins."""
        if isinstance(self.labels, range):
            return self.labels.stop
        return between(self.labels[-1], None) or 0 if self.labels else 0

    def _note_removed(self, labels: Sequence[Label], olds: Sequence[Any]) -> None:
        """Note what is stored under labels that were removed, whose elements were ``olds``."""
        for label, old in zip(labels, olds, strict=True):
            known = self.edits.pop(label) if label in self.edits else self.stored(label, old)
            if known is not ABSENT:
                self.gone[label] = known
            self.prints.pop(label, None)

    def _listed(self) -> list[Label]:
        if isinstance(self.labels, range):
            self.labels = list(self.labels)
        return self.labels

    def _between(self, place: int) -> Label | None:
        left = self.labels[place - 1] if place else None
        right = self.labels[place] if place < len(self.labels) else None
        return between(left, right)

    def _insert(self, place: int, label: Label) -> None:
        """Put a new label at ``place`` and note it as an edit."""
        labels = self.labels
        if isinstance(labels, range) and not labels:
            self.labels = [label] if isinstance(label, float) else range(label, label + 1)
        elif isinstance(labels, range) and label == labels.stop:
            self.labels = range(labels.start, labels.stop + 1)
        elif isinstance(labels, range) and label == labels.start - 1:
            self.labels = range(labels.start - 1, labels.stop)
        else:
            self._listed().insert(place, label)
        self.edits[label] = self.gone.pop(label, ABSENT)

    def _relabel(self, place: int, values: Sequence[Any]) -> None:
        """Make room at ``place`` by giving the elements around it new labels."""
        read = self._listed().__getitem__
        before, _, new = spread(map(read, range(place - 1, -1, -1)), map(read, range(place, len(self.labels))))
        self._rename(place - before, new, values)

    def _rename(self, start: int, new: list[Label], values: Sequence[Any]) -> None:
        """Give the elements from ``start`` on new labels."""
        labels, stop = self._listed(), start + len(new)
        moved = list(zip(range(start, stop), labels[start:stop], strict=True))
        origins: list[Label | None] = []
        for position, label in moved:
            origin = self.moved.pop(label, None) if label in self.edits else label
            origins.append(None if type(values[position]) in ATOMS else origin)
            known = self.edits.pop(label) if label in self.edits else self.stored(label, values[position])
            if known is not ABSENT:
                self.gone[label] = known
            self.prints.pop(label, None)
        labels[start:stop] = new
        for label, origin in zip(new, origins, strict=True):
            self.edits[label] = self.gone.pop(label, ABSENT)
            if origin is not None:
                self.moved[label] = origin
