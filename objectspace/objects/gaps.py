"""Where a slot table is known to have nothing in the store, so a scan need not step over what was removed."""

from __future__ import annotations

from collections.abc import Callable
from weakref import ref

from checkpoint.reader import Reader
from checkpoint.run import Slot

_MOST_GAPS = 256
"""How many gaps a table remembers: one for each range whose ends are taken away."""


class Gaps:
    """The stretches of a slot table that scans have found empty from where they began.

    A gap begins with the bound of a scan and reaches up to the slot where the next one with that bound is to begin. It
    tells what one reader sees: whatever is stored in it was removed or set since, and what was set is in memory, where
    scans find it. When that is stored the gaps are cut there, and hold for the next reader.

    >>> from checkpoint import CheckpointStore
    >>> gaps, reader = Gaps(), CheckpointStore(":memory:").reader()
    >>> gaps.note(b"a", b"k", reader, reverse=False)
    >>> gaps.narrowed(b"a", b"z", reader, reverse=False), gaps.narrowed(b"a", b"z", reader, reverse=True)
    ((b'k', b'z'), (b'a', b'z'))
    """

    def __init__(self) -> None:
        self._ends: dict[tuple[Slot | None, bool], Slot] = {}
        self._reader: ref[Reader] | None = None
        """The reader for which the gaps hold, without keeping it alive; ``None`` for whichever comes next."""

    def clear(self) -> None:
        """Forget all gaps."""
        self._ends.clear()

    def note(self, begin: Slot | None, end: Slot, reader: Reader, *, reverse: bool) -> None:
        """Note that a reader sees nothing from a bound on, ``None`` for the end of all slots, before another slot."""
        self._hold_for(reader)
        self._ends.pop((begin, reverse), None)
        if len(self._ends) >= _MOST_GAPS:
            del self._ends[next(iter(self._ends))]
        self._ends[begin, reverse] = end

    def narrowed(
        self, lower: Slot | None, upper: Slot | None, reader: Reader, *, reverse: bool
    ) -> tuple[Slot | None, Slot | None]:
        """Return the bounds of a scan without the gap that it would begin with."""
        if not self._ends:
            return lower, upper
        self._hold_for(reader)
        end = self._ends.get((upper if reverse else lower, reverse))
        if end is None:
            return lower, upper
        return (lower, end) if reverse else (end, upper)

    def carry(self, first_set: Callable[[Slot | None, Slot | None, bool], Slot | None]) -> None:
        """Make the gaps hold for the next reader, which sees what was set.

        Args:
            first_set: returns the first slot between two bounds that was set, from the upper one if so told; the bound
                that it would reach last does not count.

        Time: O(gaps · log of what was set).
        """
        for (begin, reverse), end in list(self._ends.items()):
            found = first_set(end, begin, True) if reverse else first_set(begin, end, False)
            if found is not None:
                self._ends[begin, reverse] = found
        self._reader = None

    def _hold_for(self, reader: Reader) -> None:
        if self._reader is not None and self._reader() is not reader:
            self._ends.clear()
        self._reader = ref(reader)
