"""Which runs a state is made of and which are dropped, beside the plain rules, and what it takes to find out."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import Mock

import pytest

from checkpoint.tiers import RunMap, RunNumber, StoredRun, is_own


@dataclass
class Plain:
    """The rules as they are stated, for all runs each time; of runs in the order in which they came."""

    runs: list[StoredRun] = field(default_factory=list)
    fulls: list[int] = field(default_factory=list)

    def at(self, number: int) -> tuple[RunNumber, ...]:
        return self.cover(self.runs, max([1, *(full for full in self.fulls if full <= number)]), number)

    def between(self, older: int, newer: int) -> tuple[RunNumber, ...]:
        if any(older < full <= newer for full in self.fulls):
            return ()
        return self.cover([run for run in self.runs if run.first > older], older + 1, newer)

    def cover(self, runs: Sequence[StoredRun], low: int, high: int) -> tuple[RunNumber, ...]:
        chosen: list[RunNumber] = []
        newest = high
        while high >= low:
            fitting = [run for run in reversed(runs) if run.first <= high <= run.last <= newest]
            if not fitting:
                return ()
            best = min(fitting, key=lambda run: (run.first, -run.last))
            chosen.insert(0, best.run)
            high = best.first - 1
        return tuple(chosen)

    def unneeded(self, first: int, pins: Collection[int], held: Collection[RunNumber]) -> list[RunNumber]:
        read = {*self.at(max(run.last for run in self.runs)), *held}
        kept = [run.last for run in self.runs if is_own(run.run) and run.last < first and {run.run} & {*read, *pins}]
        wanted = {*read, *kept, *(run for number in kept for run in self.at(number))}
        gone = [run for run in self.runs if run.run not in wanted and not (is_own(run.run) and run.last >= first)]
        return [run.run for run in sorted(gone, key=lambda run: run.last) if self.is_idle(run, max(first, run.last))]

    def is_idle(self, run: StoredRun, reading: int) -> bool:
        return any(run.last < full <= reading for full in self.fulls) or any(
            one.first <= run.first and run.last <= one.last <= reading and one[1:3] != run[1:3] for one in self.runs
        )


@dataclass
class Beside:
    """A history in a map of runs and by the plain rules, with merges under way and readers, which hold what they read.

    Readers are told of a merge if it ends before their checkpoint.
    """

    rng: random.Random
    runs: RunMap = field(default_factory=RunMap)
    plain: Plain = field(default_factory=Plain)
    merging: dict[RunNumber, tuple[RunNumber, ...]] = field(default_factory=dict)
    readers: list[tuple[int, tuple[RunNumber, ...]]] = field(default_factory=list)
    number: int = 0

    def add(self, *, is_full: bool) -> None:
        self.number += 1
        slots = self.rng.choice([0, 1, 9, 100])
        self.runs.added(self.number, slots, is_full=is_full)
        self.plain.runs.append(self.runs[self.number])
        if is_full:
            self.plain.fulls.append(self.number)
            self.merging = {}

    def begin_merges(self, young: int) -> None:
        while parts := self.runs.due(young, {part for parts in self.merging.values() for part in parts}):
            self.merging[self.runs.number_for(int(parts[-1]), self.merging)] = parts

    def begin_any_merge(self) -> None:
        """Begin to merge some neighbours, whether or not it is due."""
        start = self.rng.randrange(len(self.runs.live))
        parts = self.runs.live[start : start + self.rng.randint(2, 30)]
        self.merging[self.runs.number_for(int(parts[-1]), self.merging)] = parts

    def end_merge(self) -> None:
        run, parts = self.merging.popitem()
        merged = StoredRun(run, self.runs[parts[0]].first, int(parts[-1]), self.runs.rows(parts))
        self.runs.published(merged)
        self.plain.runs.append(merged)
        self.readers = [(one, self.runs.at(one) if one >= merged.last else read) for one, read in self.readers]
        assert self.readers == [(one, self.plain.at(one)) for one, _ in self.readers]

    def prune(self, first: int) -> None:
        """Merge what makes up a checkpoint and those before it that are read, then drop what only they needed."""
        for target in {first, *(one for one, _ in self.readers if one < first)}:
            parts = self.runs.at(target)
            self.merging = {self.runs.number_for(target): parts} if len(parts) > 1 else {}
            if self.merging:
                self.end_merge()
        self.sweep(first)

    def sweep(self, first: int) -> None:
        pins = {one for one, _ in self.readers}
        held = {run for parts in [*(read for _, read in self.readers), *self.merging.values()] for run in parts}
        held |= {*self.rng.sample([run.run for run in self.runs], k=self.rng.choice([0, 0, 1]))}
        gone = self.runs.unneeded(first, pins, lambda: held)
        assert [*gone] == self.plain.unneeded(first, pins, held)
        self.runs.dropped(gone)
        self.plain.runs = [run for run in self.plain.runs if run.run not in gone]

    def load(self, last: int) -> None:
        """Forget what is known and what came after a checkpoint, as when a store is opened, forked or rolled back."""
        runs = [run for run in self.plain.runs if run.last <= last]
        self.plain = Plain(
            sorted(runs, key=lambda run: not is_own(run.run)), [n for n in self.plain.fulls if n <= last]
        )
        self.runs = RunMap(self.plain.runs, self.plain.fulls)
        self.merging = {run: parts for run, parts in self.merging.items() if all(part in self.runs for part in parts)}
        self.readers, self.number = [(one, read) for one, read in self.readers if one <= last], last

    def check(self) -> None:
        assert [*self.runs] == sorted(self.plain.runs, key=lambda run: run.last)
        assert self.runs.live == self.plain.at(self.number)
        older, newer = sorted(self.rng.choices(range(self.number + 1), k=2))
        assert (self.runs.at(newer), self.runs.between(older, newer)) == (
            self.plain.at(newer),
            self.plain.between(older, newer) if older < newer else (),
        )

    def own(self) -> list[int]:
        return [run.last for run in self.runs if is_own(run.run)]


@pytest.mark.parametrize("seed", range(12))
def test_runs_are_read_and_dropped_by_the_plain_rules_whatever_has_happened(seed: int) -> None:
    rng = random.Random(seed)
    beside, history, full = Beside(rng), rng.choice([1, 5, 40, 1000]), rng.choice([0, 0.02])
    for _ in range(150):
        beside.add(is_full=rng.random() < full)
        beside.begin_merges(min(8, history))
        if rng.random() < 0.1:
            beside.begin_any_merge()
        if rng.random() < 0.1:
            pinned = rng.choice(beside.own())
            beside.readers.append((pinned, beside.runs.at(pinned)))
        if beside.readers and rng.random() < 0.1:
            beside.readers.pop(rng.randrange(len(beside.readers)))
        if rng.random() < 0.3:
            beside.sweep(beside.number - history + 1)
        if rng.random() < 0.05:
            beside.sweep(rng.randrange(beside.number + 1))  # Another history, or the age of the checkpoints.
        while beside.merging and rng.random() < 0.5:
            beside.end_merge()
        if rng.random() < 0.01:
            beside.prune(rng.choice(beside.own()[-40:]))
        if rng.random() < 0.02:
            beside.load(beside.number if rng.random() < 0.7 else rng.choice(beside.own()[-20:]))
        beside.check()


class Watched(StoredRun):
    """A run that counts how often any is looked at."""

    looks = 0

    def __getattribute__(self, name: str) -> Any:
        Watched.looks += 1
        return super().__getattribute__(name)


def retained(count: int) -> RunMap:
    """Return the runs of so many checkpoints, every twenty-four of which were merged."""
    own = [Watched(number, number, number, 1) for number in range(1, count + 1)]
    return RunMap([*own, *(Watched(last + 0.5, last - 23, last, 24) for last in range(24, count + 1, 24))])


def test_to_look_for_what_nobody_needs_takes_what_has_changed_however_much_is_kept() -> None:
    runs, held = retained(2400), Mock(return_value=())
    assert runs.unneeded(1, held=held) == ()
    Watched.looks = 0
    assert runs.unneeded(1, held=held) == ()
    assert not held.called
    assert Watched.looks < 50
    runs.published(Watched(2400.75, 1825, 2400, 576))
    assert runs.unneeded(1, held=lambda: [2400.5]) == ()
    Watched.looks = 0
    assert runs.unneeded(1, held=held) == (2400.5,)
    assert Watched.looks < 100


def test_to_drop_the_oldest_takes_the_oldest_however_much_is_kept() -> None:
    runs = retained(2400)
    runs.dropped(runs.unneeded(25))
    Watched.looks = 0
    gone = runs.unneeded(49)
    runs.dropped(gone)
    assert gone == tuple(range(25, 49))
    assert Watched.looks < 600
    assert runs.readable_count == 2400 - 48


def test_what_is_older_than_the_history_and_read_is_not_made_up_again_each_time() -> None:
    runs = retained(2400)
    pins, held = {*range(100, 1300, 24)}, {run for number in range(100, 1300, 24) for run in runs.at(number)}
    runs.dropped(runs.unneeded(2000, pins, lambda: held))
    at = Mock(wraps=runs.at)
    runs.at = at  # type: ignore[method-assign]
    for first in range(2001, 2100):
        runs.dropped(runs.unneeded(first, pins, lambda: held))
    assert at.call_count < 100
    assert all(runs.at(pin) for pin in pins)


def test_a_checkpoint_whose_own_run_holds_more_keeps_it_beside_a_merged_one_that_reaches_farther_back() -> None:
    runs = RunMap([StoredRun(1, 1, 1, 9), StoredRun(3, 2, 3, 9), StoredRun(4, 4, 4, 9)], fulls=[1])
    runs.published(StoredRun(3.5, 1, 3, 18))
    assert runs.live == (3.5, 4)
    assert runs.unneeded(first=1) == ()
    assert runs.unneeded(first=4) == (1, 3)


@pytest.mark.parametrize(("rows", "is_all"), [(100, True), (99, False)])
def test_all_becomes_one_run_once_as_many_rows_may_replace_others_as_there_are(rows: int, is_all: bool) -> None:
    later = [StoredRun(number, number, number, rows) for number in range(2, 26)]
    runs = RunMap([StoredRun(1, 1, 1, 24 * 100), *later, StoredRun(26, 26, 26, 1)], fulls=[1])
    assert (runs.due(1) == runs.live[:-1]) is is_all


def test_the_readable_checkpoints_around_a_number_are_found() -> None:
    runs = RunMap([StoredRun(number, number, number, 1) for number in (2, 3, 6, 9)])
    assert [runs.readable(number) for number in range(1, 11)] == [2, 2, 3, 6, 6, 6, 9, 9, 9, 0]
    assert [runs.nearest(number) for number in (1, 2, 3, 4, 9, 10)] == [[2], [3], [2, 6], [3, 6], [6], [9]]
    assert (RunMap().readable(1), RunMap().nearest(1)) == (0, [])
