"""Looking up given slots, each in the newest of some runs that has it.

Runs are asked from the newest to the oldest, and only for what no newer one has answered. The range of slots in which a
run has rows of an object is remembered: if keys grow with time, most runs need not be asked.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from copy import copy
from functools import cache, partial
from itertools import compress, filterfalse, repeat
from operator import itemgetter, not_
from time import perf_counter
from typing import Any, NamedTuple

from checkpoint import spans, warming
from checkpoint.filters import Filters, Hashes, RowsOf, RunFilter, Sieve, hash_of, hashes_of, passing
from checkpoint.run import BELOW_ALL, Payload, Slot, slot_order
from checkpoint.session import Session
from checkpoint.spans import RunSpan
from checkpoint.tiers import RunNumber

ReadRow = tuple[Slot, Payload | None, int | None]
"""(slot, value, rank); a value of ``None`` marks a deletion."""


_NOWHERE = RunSpan(0, 0, 0)
"""Stands for the span of an object that a run has no rows of."""


class RunSpans:
    """The ranges of slots in which the runs of a store have rows of an object; a complete run never changes.

    Args:
        session: the connection.
        rows_of: returns how many rows a run has; without it the runs have no filters.

    ``filters`` has the filters of some runs.
    """

    def __init__(self, session: Session, rows_of: RowsOf | None = None) -> None:
        self.filters = Filters(session, rows_of)
        self._session, self._rows_of = session, rows_of
        self._found: dict[RunNumber, dict[int, RunSpan | None]] = {}
        self._stored: dict[RunNumber, dict[int, RunSpan] | None] = {}
        self._objects: set[int] = set()
        self._reads: Counter[int] = Counter()
        self._layouts: dict[int, Layout] = {}

    def of(self, runs: Sequence[RunNumber], object_id: int) -> list[RunSpan]:
        """Return the spans of those among some runs that have rows of an object, in the order of the runs.

        Time: O(runs), and two searches for each run that is new and has no stored spans.
        """
        if object_id not in self._objects and len(self._objects) >= _MOST_OBJECTS:
            self.clear()
        self._objects.add(object_id)
        unknown = [run for run in runs if object_id not in self._found.get(run, ())]
        for run, run_spans in zip(unknown, self._stored_of(unknown), strict=True):
            if run_spans is not None:
                self._found.setdefault(run, {})[object_id] = run_spans.get(object_id)
        searched = [run for run in unknown if self._stored[run] is None]
        if searched:
            for run, low, high in self._session.peek_all(_query_of_spans(searched), {"object": object_id}):
                found = None if low is None else RunSpan(run, low, high)
                self._found.setdefault(run, {})[object_id] = found
        found_all = (self._found[run][object_id] for run in runs)
        return [span for span in found_all if span is not None]

    def reaching(self, runs: Sequence[RunNumber], object_id: int, low: Any, high: Any) -> Sequence[RunNumber]:
        """Return those among some runs that may have a slot between two others, by what is stored with them; or all.

        Args:
            runs: the runs.
            object_id: the object.
            low: the least slot; ``None`` is no bound.
            high: the greatest slot; ``None`` is no bound.

        Raises:
            TypeError: a bound cannot be compared with all of their slots.
        """
        known = self._stored_of(runs)
        if not any(known):
            return runs
        run_spans = [None if of_run is None else of_run.get(object_id, _NOWHERE) for of_run in known]
        return [
            run
            for run, span in zip(runs, run_spans, strict=True)
            if span is None
            or (span is not _NOWHERE and (high is None or span.low <= high) and (low is None or low <= span.high))
        ]

    def nearest(
        self, runs: Sequence[RunNumber], object_id: int, place: Any, *, reverse: bool
    ) -> tuple[Sequence[RunNumber], Any]:
        """Return the runs that a scan meets first, and a slot before which it meets no others; ``None`` is no bound.

        Args:
            runs: the runs.
            object_id: the object.
            place: where the scan begins; ``None`` is the very beginning.
            reverse: whether it goes backwards.

        Raises:
            TypeError: the place cannot be compared with all of their slots, or these cannot be compared with each
                other.
        """
        known = self._stored_of(runs)
        if not any(known):
            return runs, None
        near: list[RunNumber] = []
        ahead: dict[RunNumber, Any] = {}
        for run, of_run in zip(runs, known, strict=True):
            span = None if of_run is None else of_run.get(object_id, _NOWHERE)
            if span is None:
                near.append(run)
            elif span is not _NOWHERE:
                begin, end = (span.high, span.low) if reverse else (span.low, span.high)
                if place is None or (place > begin if reverse else place < begin):
                    ahead[run] = begin
                elif end <= place if reverse else place <= end:
                    near.append(run)
        pick: Any = max if reverse else min
        first = pick(ahead.values(), default=None)
        near += [run for run, begin in ahead.items() if begin == first]
        return near, pick((begin for begin in ahead.values() if begin != first), default=None)

    def _stored_of(self, runs: Sequence[RunNumber]) -> list[dict[int, RunSpan] | None]:
        """Return the spans of all objects in each of some runs, ``None`` if they are not stored with it."""
        new = [run for run in runs if run not in self._stored]
        if new:
            self._stored.update(dict.fromkeys(new))
            rows_of = self._rows_of
            larger = [run for run in new if rows_of is None or rows_of(run) >= spans.LEAST_ROWS]
            for run, found in spans.stored(self._session, larger).items():
                self._stored[run] = {one.object: RunSpan(run, one.low, one.high) for one in found}
        return [self._stored[run] for run in runs]

    def layout(self, runs: Sequence[RunNumber], object_id: int) -> SideBySide | None:
        """Note a read, and return what tells which of some runs may have a slot of an object.

        Args:
            runs: the runs of a state, the newest first.
            object_id: the object.

        Returns:
            None if that is not known yet, or would save little.

        Time: O(runs) for what was written since the last call, O(runs · log runs) if runs were removed, else O(1).
        """
        known, asked = self._layouts.get(object_id), tuple(runs)
        if known is None:
            self._reads[object_id] += 1
            if self._reads[object_id] <= _READS:
                return None
            del self._reads[object_id]
        elif known.runs and asked[-len(known.runs) :] == known.runs:
            newer = asked[: len(asked) - len(known.runs)]
            beside = known.beside and known.beside.with_others(self.of(newer, object_id))
            self._layouts[object_id] = Layout(asked, beside)
            return beside
        run_spans = self.of(asked, object_id)
        beside = SideBySide(run_spans) if _is_worth_comparing(run_spans, len(asked)) else None
        self._layouts[object_id] = Layout(asked, beside)
        return beside

    def has_layout(self, object_id: int) -> bool:
        """Return whether an object was read often enough for :meth:`layout` to have determined its layout."""
        return object_id in self._layouts

    def keep(self, runs: Container[RunNumber]) -> None:
        """Forget all other runs: their numbers may be reused one day."""
        self.filters.keep(runs)
        gone = [run for run in {**self._found, **self._stored} if run not in runs]
        for run in gone:
            self._found.pop(run, None)
            self._stored.pop(run, None)
        if gone:
            # What was read so often is determined again at once.
            self._layouts = dict.fromkeys(self._layouts, Layout((), None))

    def clear(self) -> None:
        """Forget everything."""
        self.filters.clear()
        self._found.clear()
        self._stored.clear()
        self._objects.clear()
        self._reads.clear()
        self._layouts.clear()


class SideBySide:
    """The spans of an object, few of which cover any one slot: those side by side are found by bisection.

    Args:
        run_spans: the spans.

    >>> SideBySide([RunSpan(7, 0, 90), RunSpan(2, 50, 99), RunSpan(1, 0, 49)]).around(60)
    [7, 2]
    """

    def __init__(self, run_spans: Sequence[RunSpan]) -> None:
        self._ordered: list[RunSpan] = []
        self._others: list[RunSpan] = []
        highest: Any = BELOW_ALL
        for span in sorted(run_spans, key=_order_of_high):
            is_beside = slot_order(span.low) > highest
            (self._ordered if is_beside else self._others).append(span)
            highest = slot_order(span.high) if is_beside else highest
        self._lows: list[Any] = [span.low for span in self._ordered]

    def with_others(self, run_spans: Sequence[RunSpan]) -> SideBySide:
        """Return the same with some more spans. Time: O(spans that do not lie side by side)."""
        if not run_spans:
            return self
        more = copy(self)
        more._others = [*run_spans, *self._others]
        return more

    def around(self, slot: Any) -> list[RunNumber]:
        """Return the runs that have rows on both sides of a slot, or of the slot itself, the newest first.

        Raises:
            TypeError: the slot cannot be compared with all of theirs.
        """
        found = [run for run, low, high in self._others if low <= slot <= high]
        place = bisect_right(self._lows, slot) - 1
        if place >= 0 and slot <= self._ordered[place].high:
            found.append(self._ordered[place].run)
        found.sort(reverse=True)
        return found


class Layout(NamedTuple):
    """What is known of where an object lies in some runs, the newest first: nothing if comparing saves little."""

    runs: tuple[RunNumber, ...]
    beside: SideBySide | None


class Lookup:
    """The search for slots in the runs that make up a state.

    Args:
        session: the connection.
        runs: the runs, the newest first.
        run_spans: what is known of them.
    """

    def __init__(self, session: Session, runs: Sequence[RunNumber], run_spans: RunSpans) -> None:
        self._session, self._runs, self._run_spans = session, runs, run_spans
        self._beside: dict[int, SideBySide | None] = {}
        self._filters: dict[RunNumber, RunFilter] = {}
        self._sieve = Sieve(())
        self._changes = 0

    def one(self, object_id: int, slot: Slot) -> tuple[Payload | None, int | None] | None:
        """Return value and rank of the newest row of a slot, or ``None`` if there is none.

        Time: O(runs that may have it · log n).
        """
        runs = self._possible_runs(object_id, slot) if len(self._runs) > _FEW_RUNS else self._runs
        if not runs:
            return None
        statement = newest_of("value, rank", "stored_item", "slot", len(runs))
        return self._session.peek(statement, (*runs, object_id, slot))  # type: ignore[no-any-return]

    def last(self, object_id: int) -> tuple[Slot | None, bool]:
        """Return the greatest slot of which any run has a row, and whether the newest one marks a deletion.

        Time: O(runs · log n).
        """
        found = (
            self._session.peek(_last_of(len(self._runs)), (object_id, object_id, *self._runs)) if self._runs else None
        )
        return (None, False) if found is None else (found[0], bool(found[1]))

    def _possible_runs(self, object_id: int, slot: Slot) -> Sequence[RunNumber]:
        """Return the runs that may have a slot, the newest first."""
        runs = self._runs
        if self._beside.get(object_id, self) is not None:  # Otherwise comparing is known to save little.
            runs = self._runs_by_span(object_id, slot)
        if len(runs) <= _FEW_RUNS:
            return runs
        changes = self._run_spans.filters.note(self._runs)
        if changes != self._changes:
            self._take_filters(changes)
        if not self._filters:
            return runs
        hashed = hash_of(object_id, slot)
        if runs is self._runs:
            return self._sieve.passing(hashed)
        return passing(map(self._filters.__getitem__, runs), hashed)

    def _runs_by_span(self, object_id: int, slot: Slot) -> Sequence[RunNumber]:
        """Return the runs that have rows of an object on both sides of a slot, or all of them, the newest first."""
        beside = self._beside[object_id] if object_id in self._beside else self._find_beside(object_id)
        try:
            if beside is not None:
                return beside.around(slot)
            if object_id not in self._beside:
                return self._run_spans.reaching(self._runs, object_id, slot, slot)
        except TypeError:  # Numbers do not compare with text: then all are asked.
            pass
        return self._runs

    def _take_filters(self, changes: int) -> None:
        """Take over the filters of the runs, none if no run has one, as they are after so many changes."""
        known = self._run_spans.filters
        filters = {one[0]: one for one in known.of(self._runs)}
        self._filters, self._sieve = filters, known.sieve(filters.values())
        self._changes = changes  # Last: a sieve left unmade by an interruption would hide every slot.

    def many(self, object_id: int, slots: Sequence[Slot]) -> list[ReadRow]:
        """Return the newest rows of those among many slots that have any, in any order: faster than one by one.

        Time: O(slots · runs that may have them · log n), less if most are in the newest runs.
        """
        newest: dict[Slot, ReadRow] = {}
        left, runs = in_order(slots), self._runs
        if len(left) >= max(warming.LEAST_SLOTS, _A_RUN * len(runs)) and not self._session.in_memory:
            self._warm(object_id, left)
        if len(runs) > 1 and len(left) >= max(_MANY, _A_RUN * len(runs)):
            left, runs = self._from_the_newest(object_id, left, newest)
        if len(runs) > _FEW_RUNS:
            found = self._read_range(runs, object_id, left)
            rows = self._one_by_one(runs, object_id, left) if found is None else found
            newest.update(_by_slot(rows))
            return list(newest.values())
        if runs:
            newest.update(self._read_many(runs, object_id, left))
        return list(newest.values())

    def _warm(self, object_id: int, slots: Sequence[Slot]) -> None:
        """If the disk is slow, have the rows of slots in the oldest runs read before they are looked up."""
        run_spans = self._run_spans.of(self._runs, object_id)[::-1]
        some = slots[:: len(slots) // warming.PROBES][: warming.PROBES]
        if self._has_to_wait(_queries(run_spans, object_id, some)):
            warming.warm(self._session.path, _queries(run_spans, object_id, slots))

    def _one_by_one(self, runs: Sequence[RunNumber], object_id: int, slots: Sequence[Slot]) -> list[ReadRow]:
        """Return the newest rows that some of the runs have of a few slots: each is looked up where it may be."""
        among = set(runs)
        asked = ([run for run in self._possible_runs(object_id, slot) if run in among] for slot in slots)
        found = (
            self._session.peek(newest_of(_ROW, "stored_item", "slot", len(one)), (*one, object_id, slot))
            for one, slot in zip(asked, slots, strict=True)
            if one
        )
        return [row for row in found if row is not None]

    def _from_the_newest(
        self, object_id: int, slots: Sequence[Slot], newest: dict[Slot, ReadRow]
    ) -> tuple[Sequence[Slot], Sequence[RunNumber]]:
        """Note what is found run by run; once little is left, return that and the runs that were not asked."""
        run_spans, wanted, forgotten = self._run_spans.of(self._runs, object_id), _Wanted(object_id, slots), 0
        for place, (run, low, high) in enumerate(run_spans):
            if len(slots) - len(newest) < _MANY:
                return [*filterfalse(newest.__contains__, slots)], [span.run for span in run_spans[place:]]
            if (len(newest) - forgotten) * 2 > len(wanted.slots):
                wanted.forget(newest)
                forgotten = len(newest)
            asked = wanted.between(low, high, partial(self._filter_for, run))
            self._note_newest(run, object_id, [*filterfalse(newest.__contains__, asked)], newest)
        return [*filterfalse(newest.__contains__, slots)], ()

    def _filter_for(self, run: RunNumber, slots: int) -> RunFilter | None:
        """Return the filter of a run in which so many slots are looked up; the oldest run has nearly all of them."""
        return self._run_spans.filters.one(run, slots) if run != self._runs[-1] else None

    def _note_newest(self, run: RunNumber, object_id: int, asked: Sequence[Slot], newest: dict[Slot, ReadRow]) -> None:
        """Note the rows that a run has of some slots, which no newer run has."""
        dense = self._read_range((run,), object_id, asked)
        newest.update(self._read_many((run,), object_id, asked) if dense is None else _by_slot(dense))

    def _read_many(self, runs: Sequence[RunNumber], object_id: int, asked: Sequence[Slot]) -> dict[Slot, ReadRow]:
        """Return the newest rows that some runs have of many slots, some of these at a time."""
        found: dict[Slot, ReadRow] = {}
        for start in range(0, len(asked), _LENGTHS[-1]):
            found.update(_by_slot(self._read_slots(runs, object_id, asked[start : start + _LENGTHS[-1]])))
        return found

    def _read_slots(self, runs: Sequence[RunNumber], object_id: int, asked: Sequence[Slot]) -> list[ReadRow]:
        """Return the rows of some slots, run by run, the oldest first."""
        found = self._read_range(runs, object_id, asked)
        return self._read_by_name(runs, object_id, asked) if found is None else found

    def _read_by_name(self, runs: Sequence[RunNumber], object_id: int, asked: Sequence[Slot]) -> list[ReadRow]:
        # Few lengths make few statements, which SQLite's module then keeps prepared.
        length = next(length for length in _LENGTHS if length >= len(asked))
        named = (*_run_parameters(runs), object_id, *asked, *repeat(asked[-1], length - len(asked)))
        return self._session.peek_all(_by_name(runs, length), named)

    def _read_range(self, runs: Sequence[RunNumber], object_id: int, asked: Sequence[Slot]) -> list[ReadRow] | None:
        """Return what :meth:`_read_by_name` does if few other rows lie between these, in order; else None."""
        if len(asked) < _LENGTHS[0]:
            return None
        where = f"FROM stored_item WHERE {_run_condition(runs)} AND object = ? AND slot BETWEEN ? AND ?"
        bounds, few = (*_run_parameters(runs), object_id, asked[0], asked[-1]), _DENSE * len(asked)
        if self._session.peek(f"SELECT 1 {where} LIMIT 1 OFFSET ?", (*bounds, few)):
            return None
        wanted = set(asked)
        rows: list[ReadRow] = self._session.peek_all(f"SELECT slot, value, rank {where} ORDER BY checkpoint", bounds)
        return [row for row in rows if row[0] in wanted]

    def _find_beside(self, object_id: int) -> SideBySide | None:
        found = self._run_spans.layout(self._runs, object_id)
        if self._run_spans.has_layout(object_id):
            self._beside[object_id] = found
        return found

    def _has_to_wait(self, probes: Sequence[warming.Query]) -> bool:
        """Return whether most of some queries, weighted by the slots they ask for, have to wait for a disk."""
        waits = slots = 0
        for statement, parameters in probes:
            started, asked = perf_counter(), len(parameters) - _BEFORE_SLOTS
            rows: list[ReadRow] = self._session.peek_all(statement, parameters)
            seconds = perf_counter() - started
            waits += asked * warming.is_slow(seconds / asked, sum(len(row[1] or "") for row in rows) // asked)
            slots += asked
        return waits > slots // 2


class _Wanted:
    """Slots to look up, in order, with their hashes once a filter is asked for them.

    Args:
        object_id: the object.
        slots: the slots.
    """

    def __init__(self, object_id: int, slots: Sequence[Slot]) -> None:
        self.slots = slots
        self._object = object_id
        self._hashes: Hashes | None = None

    def between(self, low: Slot, high: Slot, filter_for: Callable[[int], RunFilter | None]) -> Iterable[Slot]:
        """Return the slots from one to another that pass the filter, if there is one for so many slots."""
        start, stop = _place(bisect_left, self.slots, low), _place(bisect_right, self.slots, high)
        asked, found = self.slots[start:stop], filter_for(stop - start)
        if found is None or (len(asked) >= _MANY_MORE and self._has_most(found, asked)):
            return asked
        self._hashes = self._hashes or Hashes(hashes_of(self._object, self.slots))
        return map(self.slots.__getitem__, self._hashes.passing(found, start, stop))

    def _has_most(self, found: RunFilter, asked: Sequence[Slot]) -> bool:
        """Return whether a filter lets most of some slots pass, judging by a few: then it is faster not to ask it."""
        some = asked[:: len(asked) // _SAMPLED]
        return len(Hashes(hashes_of(self._object, some)).passing(found, 0, len(some))) * 2 > len(some)

    def forget(self, found: Container[Slot]) -> None:
        """Stop looking for those that were found."""
        is_left = [*map(not_, map(found.__contains__, self.slots))]
        self.slots = [*compress(self.slots, is_left)]
        self._hashes = self._hashes and self._hashes.kept(is_left)


@cache
def newest_of(columns: str, table: str, key: str, runs: int) -> str:
    """Return the query for columns of the row of an object and a key in the newest of so many runs that has one.

    Its parameters are the runs, the newest first, the object and the key.
    """
    if runs == 1:
        return f"SELECT {columns} FROM {table} WHERE checkpoint = ? AND object = ? AND {key} = ?"
    # The newest run comes first, and the first row ends the query. A list after IN would be sorted again for each slot.
    newest_first = ", ".join(["(?)"] * runs)
    return (
        f"SELECT {columns} FROM (VALUES {newest_first}) AS run CROSS JOIN {table}"
        f" WHERE checkpoint = run.column1 AND object = ? AND {key} = ? LIMIT 1"
    )


@cache
def _last_of(runs: int) -> str:
    """Return the query for the greatest slot that any of so many runs has of an object, and what the newest has.

    Its parameters are the object, twice, and the runs.
    """
    given = ", ".join(["(?)"] * runs)
    rows = "SELECT slot FROM state_item WHERE checkpoint = column1 AND object = ? ORDER BY slot DESC LIMIT 1"
    value = "SELECT value FROM state_item WHERE checkpoint = run AND object = ? AND slot = last"
    return (
        f"SELECT last, ({value}) IS NULL FROM (SELECT column1 AS run, ({rows}) AS last FROM (VALUES {given}))"
        " ORDER BY last DESC, run DESC LIMIT 1"
    )


def in_order(slots: Sequence[Slot]) -> Sequence[Slot]:
    """Return slots in the order of SQLite."""
    try:
        return sorted(slots)
    except TypeError:
        return sorted(slots, key=slot_order)


def _is_worth_comparing(run_spans: Sequence[RunSpan], runs: int) -> bool:
    """Return whether a slot lies outside enough of the spans of an object, on average."""
    bounds = [(slot_order(low), slot_order(high)) for _, low, high in run_spans]
    lows, highs = sorted(low for low, _ in bounds), sorted(high for _, high in bounds)
    outside = sum(bisect_left(highs, low) + len(bounds) - bisect_right(lows, high) for low, high in bounds)
    return len(bounds) ** 2 - outside <= _MOSTLY * runs * len(bounds)


def _order_of_high(span: RunSpan) -> tuple[int, Any]:
    return slot_order(span.high)


def _place(bisect: Any, slots: Sequence[Slot], slot: Slot) -> int:
    """Return where a slot belongs among others that are in order."""
    try:
        return bisect(slots, slot)  # type: ignore[no-any-return]
    except TypeError:  # A number is not compared with text.
        return bisect(slots, slot_order(slot), key=slot_order)  # type: ignore[no-any-return]


def _query_of_spans(runs: Sequence[RunNumber]) -> str:
    """Return the query for the least and the greatest slot that each of some runs has of an object."""
    first = "SELECT slot FROM state_item WHERE checkpoint = column1 AND object = :object ORDER BY slot"
    rows = ", ".join(f"({run})" for run in runs)
    return f"SELECT column1, ({first} LIMIT 1), ({first} DESC LIMIT 1) FROM (VALUES {rows})"


def _by_name(runs: Sequence[RunNumber], slots: int) -> str:
    """Return the query for the rows that some runs have of so many slots."""
    return (
        f"SELECT slot, value, rank FROM stored_item WHERE {_run_condition(runs)} AND object = ?"
        f" AND slot IN (?{', ?' * (slots - 1)}) ORDER BY checkpoint"
    )


def _run_condition(runs: Sequence[RunNumber]) -> str:
    return "checkpoint = ?" if len(runs) == 1 else f"checkpoint IN ({','.join(map(str, runs))})"


def _run_parameters(runs: Sequence[RunNumber]) -> Sequence[RunNumber]:
    return runs if len(runs) == 1 else ()


def _queries(run_spans: Sequence[RunSpan], object_id: int, slots: Sequence[Slot]) -> list[warming.Query]:
    """Return queries that read each slot in the first of some spans that may have it."""
    queries: list[warming.Query] = []
    left = slots
    for run, low, high in run_spans:
        if not left:
            break
        first, last = _place(bisect_left, left, low), _place(bisect_right, left, high)
        for start in range(first, last, _TOGETHER):
            asked = left[start : min(start + _TOGETHER, last)]
            queries.append((_by_name((run,), len(asked)), (run, object_id, *asked)))
        left = [*left[:first], *left[last:]] if first < last else left
    return queries


def _by_slot(rows: list[ReadRow]) -> dict[Slot, ReadRow]:
    return dict(zip(map(_slot, rows), rows, strict=True))


_FEW_RUNS = 3
"""Asking so many runs takes less time than finding out which of them have a slot."""

_READS = 16
"""After so many slots read one by one through a reader, the spans of their object are looked up."""

_MOSTLY = 0.9
"""If slots lie in more than this share of the spans of an object, comparing them costs more than it saves."""

_MOST_OBJECTS = 1024
"""For how many objects the spans are remembered."""

_MANY, _A_RUN = 64, 4
"""So many slots, in all and per run, are asked for run by run; fewer one by one, in the runs that may have each."""

_DENSE = 2
"""If runs have at most so many rows for each slot to look up, they are read in order instead of by name."""

_SAMPLED, _MANY_MORE = 64, 2_048
"""So many slots show whether a filter lets most of them pass, if there are at least as many as the second number."""

_BEFORE_SLOTS = 2
"""The parameters of such a statement before the slots: the run and the object."""

_TOGETHER = 16
"""So many slots are read ahead by one statement."""

_LENGTHS = (8, 16, 32, 64, 128, 256, 512, 1024)
"""How many slots a statement may ask for by name."""

_ROW = "slot, value, rank"

_slot = itemgetter(0)
