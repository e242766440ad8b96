"""Which runs a store has, which of them a read visits, and which to merge or drop: arithmetic on numbers.

A checkpoint's *own* run is stored under its number. A *merged* run holds what a stretch of neighbouring checkpoints
wrote. It is stored beside them under a number of its own, just above that of its newest checkpoint (64.5 may be 57 to
64), so numbers still say which of two runs is newer. The runs that a stretch consists of stay as long as a retained
checkpoint inside the stretch needs them.

Runs are merged in tiers: a run belongs to the tier of its size, each tier sixteen times as large as the one below, and
twenty-four adjacent runs of a tier become one. So a row is rewritten about once for each such factor by which the state
grows, and a read at any checkpoint visits some runs of each tier: their filters tell which. Large neighbours that
replace next to no rows of each other, as when much is loaded at once, stay as they are while the runs are few: a slot
lies between the least and the greatest one of only a few of them, so merging them would gain next to nothing.

When the rows above the oldest run, the *base*, that may replace others are as many as all others, all runs become one,
so the size of the file stays within a factor of the state. Rows of slots beyond all that were there before replace
nothing, and count as rows of the base; what deleted objects have left counts as replaced. While the runs are fewer,
there may be four times as many such rows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import NamedTuple

RunNumber = float
"""What the rows of a run are stored under: the number of a checkpoint (an int), or a little more for a merged run."""

Counting = Callable[[Sequence[RunNumber]], int]
"""Counts rows of some runs, oldest first."""

FAN_IN = 24
"""How many neighbouring runs of a tier are merged into one."""

_TIMES, _MANY_ROWS = 4, 16_384
"""While runs are few, the rows that may replace others may be so many times as many as these, and so many in all."""

_LARGE_ROWS, _MOST_APART = 4_096, 128
"""More large neighbours of a tier than that are merged even if they replace nothing.

Large runs are those that are stored with their spans: reads skip such runs if they have nothing.
"""

FEW_OF = 256
"""One row in so many may replace another, as when a counter is kept beside what grows: that is next to nothing."""

_MOST_TIMES, _MOST_TIMES_LARGE = 32, 512
"""When all rows above the base are so many times as many as its own, they are merged with it, whatever they are.

With a large base it takes more: so many large neighbours are merged with it, some at a time, before it comes to that.
"""

YOUNG = 8
"""How many of the newest runs are left alone, so that a short history makes no second copy of what is soon dropped."""

_FRACTIONS = 1024


class StoredRun(NamedTuple):
    """A run: its number, the checkpoints from ``first`` to ``last`` whose rows it holds, and how many item rows."""

    run: RunNumber
    first: int
    last: int
    slots: int


@dataclass(frozen=True)
class Waste:
    """Counts the useless rows of some runs.

    Args:
        replaced: counts the rows that may replace rows of earlier runs.
        deserted: counts other rows, of objects that were deleted since; none by default.
    """

    replaced: Counting
    deserted: Counting = lambda runs: 0


class RunMap:
    """The runs of a store, and the numbers of its full checkpoints.

    Args:
        runs: all that can be read, in any order.
        fulls: the numbers of the full checkpoints, in order.

    >>> runs = RunMap([StoredRun(1, 1, 1, 500), StoredRun(2, 2, 2, 3), StoredRun(3, 3, 3, 500)], fulls=[1, 3])
    >>> runs.live, runs.at(2)
    ((3,), (1, 2))
    >>> runs.published(StoredRun(2.5, 1, 2, 501))
    >>> runs.at(2), runs.unneeded(first=2)
    ((2.5,), (1,))
    """

    def __init__(self, runs: Iterable[StoredRun] = (), fulls: Iterable[int] = ()) -> None:
        self._sorted = sorted(runs, key=_by_last)
        self._by_number = {run.run: run for run in self._sorted}
        self._spans = [run for run in self._sorted if not _is_single(run)]
        self._fulls = list(fulls)
        self._own = sorted(run.last for run in self._sorted if is_own(run.run))
        self._apart = 0
        self._wide = {span.run for span in self._spans if is_own(span.run)}
        # What is known between calls of unneeded(): where merged runs with the same last checkpoint may replace each
        # other, and what the checkpoints are made of that keep their own runs although they are older than the history.
        self._unsettled = {span.last for span in self._spans}
        self._pinned: dict[int, tuple[RunNumber, ...]] = {}
        self.live = self.at(self._own[-1]) if self._own else ()

    def __contains__(self, run: object) -> bool:
        return run in self._by_number

    def __getitem__(self, run: RunNumber) -> StoredRun:
        return self._by_number[run]

    def __iter__(self) -> Iterator[StoredRun]:
        return iter(self._sorted)

    @property
    def fulls(self) -> Sequence[int]:
        """The numbers of the full checkpoints, in order."""
        return self._fulls

    @property
    def readable_count(self) -> int:
        """How many checkpoints can be read."""
        return len(self._own)

    def at(self, number: int) -> tuple[RunNumber, ...]:
        """Return the runs that make up the state at checkpoint ``number``, oldest first; none if one is missing.

        Time: O(these runs · log n), and O(runs that were merged into these, if they were merged themselves).
        """
        return self._cover(max(1, self._full_at(number)), number, self._spans)

    def between(self, older: int, newer: int, without: RunNumber = 0) -> tuple[RunNumber, ...]:
        """Return runs that hold exactly what came after one checkpoint up to another; none if there are none such."""
        if self._full_at(newer) > older:
            return ()
        spans = self._spans[bisect_right(self._spans, older, key=_by_last) :]
        return self._cover(older + 1, newer, [run for run in spans if run.first > older and run.run != without])

    def added(self, number: int, slots: int, *, is_full: bool) -> None:
        """Note the run of a new checkpoint."""
        run = StoredRun(number, number, number, slots)
        self._sorted.append(run)
        self._by_number[number] = run
        self._own.append(number)
        if is_full:
            self._fulls.append(number)
        self.live = (number,) if is_full else (*self.live, number)

    def published(self, run: StoredRun) -> None:
        """Note that a merged run is complete: checkpoints from its last one on may be read through it."""
        insort(self._sorted, run, key=_by_last)
        insort(self._spans, run, key=_by_last)
        self._by_number[run.run] = run
        self._unsettled.add(run.last)
        self._pinned = {number: runs for number, runs in self._pinned.items() if number < run.last}
        self.live = self.at(self._own[-1])

    def dropped(self, runs: Collection[RunNumber]) -> None:
        """Note that some runs are gone, none of them live.

        Time: O(runs from the oldest to the newest of them).
        """
        gone = [self._by_number.pop(run) for run in runs]
        if not gone:
            return
        oldest, newest = min(map(_by_last, gone)), max(map(_by_last, gone))
        for known in (self._sorted, self._spans):
            place = _range_of(known, oldest, newest)
            known[place] = [run for run in known[place] if run.run in self._by_number]
        place = slice(bisect_left(self._own, oldest), bisect_right(self._own, newest))
        self._own[place] = [number for number in self._own[place] if number in self._by_number]
        missing = {run.run for run in gone}
        self._pinned = {
            number: runs for number, runs in self._pinned.items() if number < oldest or missing.isdisjoint(runs)
        }

    def due(
        self,
        young: int,
        busy: Collection[RunNumber] = (),
        waste: Waste | None = None,
    ) -> tuple[RunNumber, ...]:
        """Return the neighbouring runs to merge next, oldest first; nothing if reads already visit few runs.

        Args:
            young: how many of the newest runs to leave alone.
            busy: runs that must not be merged: they already are being merged.
            waste: counts the useless rows; by default all but those of the first run may replace others.

        Time: O(live runs).
        """
        apart = 0
        for stretch in _stretches(self.live[:-young], busy):
            group, standing = self._group(stretch, waste or Waste(self._above_first))
            if group:
                return group
            apart += standing
        self._apart = apart
        return ()

    @property
    def in_the_way(self) -> int:
        """How many live runs a read has to search: all but those that :meth:`due` has found to lie apart."""
        return max(0, len(self.live) - self._apart)

    def unneeded(
        self, first: int, pins: Collection[int] = (), held: Callable[[], Iterable[RunNumber]] = tuple
    ) -> tuple[RunNumber, ...]:
        """Return the runs to drop.

        Args:
            first: the oldest checkpoint of the history: it and all newer ones keep their own runs.
            pins: older checkpoints that keep theirs.
            held: returns the runs that somebody is reading; asked only if some could be dropped but for that.

        Time: O(runs before ``first``), for the history to keep O(what was merged since the last call).
        """
        idle = [*self._idle_before(first), *self._idle_from(first)]
        wanted = self._wanted(first, pins, held()) if idle else set()
        return tuple(run.run for run in idle if run.run not in wanted)

    def readable(self, number: int) -> int:
        """Return the oldest checkpoint from ``number`` on that can be read; 0 if there is none."""
        place = bisect_left(self._own, number)
        return self._own[place] if place < len(self._own) else 0

    def nearest(self, number: int) -> list[int]:
        """Return the last checkpoint before ``number`` and the first one after it that can be read."""
        return self._own[: bisect_left(self._own, number)][-1:] + self._own[bisect_right(self._own, number) :][:1]

    def rows(self, runs: Iterable[RunNumber]) -> int:
        """Return how many item rows some runs have."""
        return sum(self._by_number[run].slots for run in runs)

    def number_for(self, last: int, taken: Collection[RunNumber] = ()) -> RunNumber:
        """Return a free number for a merged run whose newest checkpoint is ``last``."""
        step = 1
        while (number := last + step / _FRACTIONS) in self._by_number or number in taken:
            step += 1
        return number

    def full_at(self, first: int, pins: Collection[int] = ()) -> int:
        """Return the full checkpoint that the state at ``first`` and at every pin begins with or after, or 0."""
        return self._full_at(min([first, *filter(None, pins)]))

    def _cover(self, low: int, high: int, spans: Sequence[StoredRun]) -> tuple[RunNumber, ...]:
        """Return the fewest runs that hold all of a stretch and nothing later, oldest first; none if one is missing.

        Of the runs that hold what is still needed, the one that reaches farthest back is taken, of several such the
        newest. Runs may overlap: a slot that two of them mention was last changed in the stretch of the later one, or
        has the same value in both.

        Args:
            low: the first checkpoint of the stretch.
            high: the last one.
            spans: the runs to take from, beside those that a single checkpoint has as its own.
        """
        chosen: list[RunNumber] = []
        end = bisect_right(spans, high, key=_by_last)
        while high >= low:
            start = bisect_left(spans, high, hi=end, key=_by_last)
            # Those with later checkpoints that were not taken before do not reach so far back.
            best = min(reversed(spans[start:end]), key=_by_first, default=None)
            if best is None or best.first > high:
                best = self._single(high)
            if best is None:
                return ()
            chosen.append(best.run)
            high, end = best.first - 1, start
        return tuple(reversed(chosen))

    def _single(self, number: int) -> StoredRun | None:
        """Return the own run of a checkpoint if it holds nothing else."""
        run = self._by_number.get(number)
        return run if run is not None and _is_single(run) else None

    def _wanted(self, first: int, pins: Collection[int], held: Iterable[RunNumber]) -> set[RunNumber]:
        """Return the runs that are live, that somebody is reading, or that a checkpoint before ``first`` is made of.

        A checkpoint whose own run stays can be read, so all runs that make it up stay too. Where the own run of one is
        taken for a later one, both are made up alike from there back.
        """
        wanted = {*self.live, *held}
        before = self._own[: bisect_left(self._own, first)]
        known, self._pinned, taken = self._pinned, {}, set[RunNumber]()
        for number in reversed([number for number in before if number in wanted or number in pins]):
            if number not in taken or number in self._wide:
                runs = self._pinned[number] = known.get(number) or self.at(number)
                taken.update((number, *runs))
        return wanted | taken

    def _idle_before(self, first: int) -> list[StoredRun]:
        """Return the runs before a checkpoint that it is not made of: one that holds more, or a full one, is read."""
        runs, spans = (known[: bisect_right(known, first, key=_by_last)] for known in (self._sorted, self._spans))
        farthest = {span.last: span.first for span in sorted(spans, key=_by_first, reverse=True)}
        idle, full, last, here, later = list[StoredRun](), self._full_at(first), first + 1, inf, inf
        for run in reversed(runs):
            if run.last < last:
                last, here, later = run.last, farthest.get(run.last, run.last), min(here, later)
            if last < first and (last < full or later <= run.first or here < run.first):
                idle.append(run)
        return idle[::-1]

    def _idle_from(self, first: int) -> list[StoredRun]:
        """Return the merged runs of the checkpoints from ``first`` on that another one replaces, with the same last.

        Only where a merged run was published, or one stayed because it was wanted, there can be any.
        """
        replaced = {last: runs for last in self._unsettled if (runs := self._replaced_at(last))}
        self._unsettled = {*replaced}
        return [run for last in sorted(replaced) if last >= first for run in replaced[last]]

    def _replaced_at(self, last: int) -> list[StoredRun]:
        spans = self._spans[_range_of(self._spans, last, last)]
        farthest = min(map(_by_first, spans), default=0)
        return [run for run in spans if run.first > farthest and not is_own(run.run)]

    def _full_at(self, number: int) -> int:
        position = bisect_right(self._fulls, number)
        return self._fulls[position - 1] if position else 0

    def _group(self, stretch: Sequence[RunNumber], waste: Waste) -> tuple[tuple[RunNumber, ...], int]:
        """Return what to merge of a stretch, and how many runs stay as they are although they are a crowd.

        To merge is the whole stretch with the base, or neighbours of a tier, or nothing.
        """
        if len(stretch) < FAN_IN:
            is_due = self.rows(stretch) >= _MANY_ROWS and self._is_outgrown(stretch, _TIMES, waste)
            return tuple(stretch) if is_due else (), 0
        if self._is_outgrown(stretch, 1, waste):
            return tuple(stretch), 0
        apart = 0
        for low, high in _tiers([self._by_number[run].slots for run in stretch]):
            for start in range(low, high - FAN_IN + 1, FAN_IN):
                crowd = tuple(stretch[start : start + FAN_IN])
                if high - low > _MOST_APART or not self._is_apart(crowd, waste):
                    return crowd, 0
                apart += FAN_IN
        return (), apart

    def _is_apart(self, crowd: Sequence[RunNumber], waste: Waste) -> bool:
        """Return whether merging neighbours would gain next to nothing: they are large, and hardly replace each other.

        The second is checked only if the first holds.
        """
        if min(self._by_number[run].slots for run in crowd) < _LARGE_ROWS:
            return False
        return waste.replaced(crowd) * FEW_OF <= self.rows(crowd)

    def _is_outgrown(self, stretch: Sequence[RunNumber], times: int, waste: Waste) -> bool:
        """Return whether a stretch has the base, and its useless rows may be ``times`` times as many as the others.

        Useless are those that were replaced, and those of deleted objects; the first are counted only if all rows above
        the base are many.
        """
        rows, base = self.rows(stretch), self.rows(stretch[:1])
        if stretch[:1] != self.live[:1]:
            return False
        left = waste.deserted(stretch) if rows >= _LARGE_ROWS else 0
        if rows - base + left < times * (base - left):
            return False
        most = _MOST_TIMES_LARGE if base >= _LARGE_ROWS else _MOST_TIMES
        replaced = rows - base if rows - base >= most * base else waste.replaced(stretch)
        return replaced + left >= times * (rows - replaced - left)

    def _above_first(self, runs: Sequence[RunNumber]) -> int:
        return self.rows(runs[1:])


def is_own(run: RunNumber) -> bool:
    """Return whether a run is stored under the number of a checkpoint."""
    return isinstance(run, int)


def _tiers(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the range of positions of the neighbours of each tier, the lowest tier first.

    A run older than a larger one belongs to the tier of the larger one: it has no other neighbours to grow with. So
    tiers never rise from old to new, and few runs are live even if some checkpoints are large and others small.
    """
    end, top = len(sizes), 0
    for start in range(len(sizes) - 1, -1, -1):
        tier = _tier(sizes[start])
        if tier > top:
            yield start + 1, end
            end, top = start + 1, tier
    yield 0, end


def _stretches(runs: Sequence[RunNumber], busy: Collection[RunNumber]) -> Iterator[Sequence[RunNumber]]:
    """Yield the stretches of neighbours in which none is busy, oldest first."""
    start = 0
    for end, run in enumerate(runs):
        if run in busy:
            yield runs[start:end]
            start = end + 1
    yield runs[start:]


def _tier(slots: int) -> int:
    return max(0, (slots.bit_length() - 1) // 4 - 1)


def _is_single(run: StoredRun) -> bool:
    """Return whether a run is the own one of a checkpoint, and holds nothing of others."""
    return run.run == run.first


def _range_of(runs: Sequence[StoredRun], oldest: int, newest: int) -> slice:
    """Return where those runs lie, sorted by their last checkpoints, whose last one is within some bounds."""
    return slice(bisect_left(runs, oldest, key=_by_last), bisect_right(runs, newest, key=_by_last))


_by_first, _by_last = attrgetter("first"), attrgetter("last")
