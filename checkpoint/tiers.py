"""Which runs a store has, and which of them to merge or to drop: plain arithmetic over numbers kept in memory.

The newest checkpoints keep rows of their own (the *history*). Older runs are merged in tiers: a run belongs to the tier
of its size, each tier eight times as large as the one below, and as soon as eight neighbours of a tier stand side by
side they become one run under the number of the newest of them. A row is so rewritten about once for each factor of
eight by which the state grows. When the runs above the oldest one, the *base*, have grown as large as the base, all
become one: what lies in the file stays within a small factor of the state.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

DEFAULT_HISTORY = 16
"""How many of the newest checkpoints keep rows of their own."""

FAN_IN = 8
"""How many neighbouring runs of a tier are merged into one."""

STEP_RUNS = 64
"""How many runs one step of a compaction merges at most."""


class RunMap:
    """The runs of a store by number, with their sizes, and the numbers of its full checkpoints.

    Args:
        sizes: number and item rows of every run that has rows under its own number, in order.
        fulls: the numbers of the full checkpoints, in order.

    >>> runs = RunMap([(1, 500), (2, 3), (3, 500), (4, 1)], [1, 3])
    >>> runs.live, runs.at(2)
    ((3, 4), (1, 2))
    >>> runs.obsolete(history=2)
    3
    """

    def __init__(self, sizes: Iterable[tuple[int, int]] = (), fulls: Iterable[int] = ()) -> None:
        self._sizes = dict(sizes)
        self._fulls = list(fulls)
        self.live = self.at(max(self._sizes, default=0))

    def __contains__(self, number: object) -> bool:
        return number in self._sizes

    def __len__(self) -> int:
        return len(self._sizes)

    def at(self, number: int) -> tuple[int, ...]:
        """Return the runs that make up the state at checkpoint ``number``, oldest first."""
        base = self._full_at(number)
        return tuple(run for run in self._sizes if base <= run <= number)

    def added(self, number: int, slots: int, *, is_full: bool) -> None:
        """Note the run of a new checkpoint."""
        self._sizes[number] = slots
        if is_full:
            self._fulls.append(number)
        self.live = (number,) if is_full else (*self.live, number)

    def merged(self, group: Sequence[int], slots: int) -> None:
        """Note that the runs of a group are now the newest of them."""
        *older, newest = group
        for number in older:
            del self._sizes[number]
        self._sizes[newest] = slots
        self.live = tuple(run for run in self.live if run in self._sizes)

    def dropped(self, first: int) -> None:
        """Note that every run before the full checkpoint ``first`` is gone."""
        self._sizes = {run: slots for run, slots in self._sizes.items() if run >= first}
        self._fulls = [number for number in self._fulls if number >= first]

    def removed(self, numbers: Iterable[int]) -> None:
        """Note that some runs are gone, none of them live."""
        for number in numbers:
            del self._sizes[number]

    def due(self, history: int, pins: Iterable[int] = ()) -> tuple[int, ...]:
        """Return the neighbouring runs to merge next, oldest first; nothing where reads visit few runs already.

        Args:
            history: how many of the newest runs to leave alone.
            pins: the checkpoints that somebody is reading. A group may end at one, but not reach across it: the rows
                would move out of his sight.

        Time: O(live runs).
        """
        candidates = self.live[:-history]
        if len(candidates) < FAN_IN:
            return ()
        return next(filter(None, map(self._group, _segments(candidates, pins))), ())

    def readable(self, number: int) -> int:
        """Return the oldest checkpoint from ``number`` on that has rows of its own; 0 where there is none."""
        return next((run for run in self._sizes if run >= number), 0)

    def rows(self, group: Iterable[int]) -> int:
        """Return the item rows of some runs."""
        return sum(self._sizes[run] for run in group)

    def unneeded(self, first: int, pins: Iterable[int] = ()) -> tuple[int, ...]:
        """Return the runs that neither a checkpoint from ``first`` on nor a pin is made up of."""
        needed = {run for target in _targets(first, pins) for run in self.at(target)}
        return tuple(run for run in self._sizes if run < first and run not in needed)

    def surplus(self, first: int, pins: Iterable[int] = ()) -> tuple[int, ...]:
        """Return the runs that do not have to stand alone where nothing older than ``first`` must be readable."""
        return tuple({run for segment in self._needed(first, pins) for run in segment[:-1]})

    def next_surplus(self, first: int, pins: Iterable[int] = ()) -> tuple[int, ...]:
        """Return the neighbouring runs to merge next to be rid of the surplus, oldest first.

        The newest go first, since what they hold is copied just once then; and not too many at a time, so that each
        merge is a step that can be interrupted.
        """
        return next((tuple(segment[-STEP_RUNS:]) for segment in self._needed(first, pins) if len(segment) > 1), ())

    def needed_full(self, first: int, pins: Iterable[int] = ()) -> int:
        """Return the full checkpoint that the state at ``first`` and at every pin begins with or after, or 0."""
        return self._full_at(min([first, *filter(None, pins)]))

    def obsolete(self, history: int, pins: Iterable[int] = ()) -> int:
        """Return the full checkpoint before which no run is needed any more, 0 where there is nothing to drop.

        Args:
            history: how many of the newest checkpoints must stay readable.
            pins: the checkpoints that somebody is reading; 0 stands for the empty store, which needs no run.
        """
        if not self._fulls:
            return 0
        oldest_kept = max(1, self.live[-1] - history + 1)
        first = self.needed_full(oldest_kept, pins)
        return first if next(iter(self._sizes)) < first else 0

    def _needed(self, first: int, pins: Iterable[int]) -> Iterator[Sequence[int]]:
        """Yield the stretches of runs that may become one each, the newest first."""
        for target in _targets(first, pins):
            yield from reversed(list(_segments(self.at(target), pins)))

    def _full_at(self, number: int) -> int:
        position = bisect_right(self._fulls, number)
        return self._fulls[position - 1] if position else 0

    def _group(self, segment: Sequence[int]) -> tuple[int, ...]:
        if len(segment) < FAN_IN:
            return ()
        sizes = [self._sizes[run] for run in segment]
        if segment[0] == self.live[0] and sum(sizes[1:]) >= sizes[0]:
            return tuple(segment)
        return next((tuple(segment[start : start + FAN_IN]) for start in _crowded(sizes)), ())


def _crowded(sizes: Sequence[int]) -> Iterator[int]:
    """Yield where a tier holds enough neighbours to merge, the lowest tier first.

    A run that is older than a larger one counts to the tier of the larger one: it has no other neighbours to grow with.
    So tiers never rise from old to new, and few runs are live although some checkpoints are large and others small.
    """
    end, top = len(sizes), 0
    for start in range(len(sizes) - 1, -1, -1):
        tier = _tier(sizes[start])
        if tier > top:
            if end - (start + 1) >= FAN_IN:
                yield start + 1
            end, top = start + 1, tier
    if end >= FAN_IN:
        yield 0


def _segments(candidates: Sequence[int], pins: Iterable[int]) -> Iterator[Sequence[int]]:
    start = 0
    for pin in sorted(set(pins)):
        end = bisect_right(candidates, pin)
        yield candidates[start:end]
        start = end
    yield candidates[start:]


def _targets(first: int, pins: Iterable[int]) -> list[int]:
    """Return the checkpoints up to ``first`` that must stay as they are, the newest first."""
    return sorted({first, *(pin for pin in pins if pin < first)}, reverse=True)


def _tier(slots: int) -> int:
    return max(0, (slots.bit_length() - 1) // 3 - 1)
