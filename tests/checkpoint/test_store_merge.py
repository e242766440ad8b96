"""Merging: whatever is merged or dropped, every checkpoint that can be read shows the state that it was made of."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint import CheckpointStore, Reader, Run, UnknownCheckpointError, growth, large, recent, tiers
from checkpoint.pages import PAGE_ROWS
from checkpoint.tiers import FAN_IN, RunMap, StoredRun, Waste
from objectspace import PersistedObjectSpace
from tests.checkpoint.store_helpers import (
    DIFFERENTIAL,
    FULL,
    Model,
    assert_bodies,
    image_of,
    quick_store,
    random_run,
    run_of,
    values_in,
)

FILL: dict[str, Callable[[Any], object]] = {
    "list": lambda large: large.extend(range(6_000)),
    "queue": lambda large: [large.enqueue(number) for number in range(6_000)] + [large.dequeue() for _ in range(900)],
    "stack": lambda large: [large.push(number) for number in range(6_000)],
    "dictionary": lambda large: large.update(dict.fromkeys(range(6_000), 0)),
    "sorted_set": lambda large: large.update(range(6_000)),
}

FROM_MEMORY = pytest.param(recent.MOST_ROWS, id="from memory", marks=pytest.mark.slow)


@pytest.fixture(params=[pytest.param(30, id="from either"), FROM_MEMORY], autouse=True)
def room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs be merged from memory alone, or now from memory and now from the disk."""
    monkeypatch.setattr(recent, "MOST_ROWS", request.param)
    monkeypatch.setattr(recent, "_TOGETHER", 1)
    monkeypatch.setattr(large, "INLINE_BYTES", 2)  # Values of later checkpoints lie beside their rows.


@dataclass
class Driver:
    """A store beside a model of every checkpoint that was ever made, and the readers that somebody holds."""

    history: int
    rng: random.Random
    states: list[Model] = field(default_factory=lambda: [Model()])
    held: list[tuple[Reader, Model]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = quick_store(":memory:", history=self.history)

    def step(self, kind: str = DIFFERENTIAL) -> None:
        number = len(self.states)
        run = random_run(self.rng, number, FULL if kind == FULL else DIFFERENTIAL)
        self.states.append(self.states[-1].follow(run))
        self.store.append(run, epoch=10 * number + self.rng.randrange(9))
        assert image_of(self.store.reader()) == self.states[-1].image()

    def retained(self) -> list[int]:
        return [record.number for record in self.store.checkpoints() if record.run_slots is not None]

    def hold(self) -> None:
        number = self.rng.choice(self.retained())
        record = self.store.checkpoints()[number - 1]
        self.held.append((self.store.reader(epoch=record.epoch), self.states[number]))

    def release(self) -> None:
        if self.held:
            self.held.pop(self.rng.randrange(len(self.held)))

    def roll_back(self) -> None:
        number = self.rng.choice(self.retained()[-3:])
        self.store.truncate_after(number)
        del self.states[number + 1 :]
        for reader, _ in self.held:
            if reader.newest > number:
                with pytest.raises(UnknownCheckpointError, match="rollback"):
                    reader.index()
        self.held = [(reader, state) for reader, state in self.held if reader.newest <= number]
        assert image_of(self.store.reader()) == self.states[-1].image()

    def check_all(self) -> None:
        for number in self.retained():
            assert image_of(self.store.reader(number)) == self.states[number].image()
        newest = len(self.states) - 1
        assert set(self.retained()) >= set(range(max(1, newest - self.history + 1), newest + 1))
        assert self.store.verify() == len(self.retained())
        assert_bodies(self.store)

    def check_held(self) -> None:
        for reader, state in self.held:
            assert image_of(reader) == state.image()


@pytest.mark.parametrize("history", [1, *(pytest.param(history, marks=pytest.mark.slow) for history in (2, 5)), 16])
def test_every_retained_checkpoint_shows_its_state(history: int) -> None:
    driver = Driver(history, random.Random(history))
    for number in range(1, 201):
        driver.step()
        assert len(driver.store.reader().runs) <= history + 2 * FAN_IN
        if number % 20 == 0:
            driver.check_all()
    assert len(driver.retained()) <= history + 2 * FAN_IN


@pytest.mark.parametrize("every", [1, pytest.param(3, marks=pytest.mark.slow), 7, 40])
def test_full_checkpoints_in_between_let_the_older_runs_go(every: int) -> None:
    driver = Driver(4, random.Random(every))
    for number in range(1, 161):
        driver.step(FULL if number % every == 0 else DIFFERENTIAL)
        # What the history needs reaches back to the full checkpoint before its oldest one, and no further.
        assert len(driver.retained()) <= 4 + 2 * FAN_IN + min(every, 4)
        if number % 10 == 0:
            driver.check_all()


@pytest.mark.parametrize("seed", range(3))
def test_held_readers_never_see_anything_but_their_checkpoint(seed: int) -> None:
    driver = Driver(1 + seed % 3, random.Random(seed))
    driver.step()
    for _ in range(150):
        action = driver.rng.choices(["step", FULL, "hold", "release", "back"], [60, 3, 15, 12, 2])[0]
        if action == "hold":
            driver.hold()
        elif action == "release":
            driver.release()
        elif action == "back":
            driver.roll_back()
        else:
            driver.step(action)
        driver.check_held()
    driver.check_all()
    driver.held.clear()
    for _ in range(60):
        driver.step()
    assert len(driver.retained()) <= driver.history + 2 * FAN_IN


def test_what_was_merged_away_is_refused_with_a_reason() -> None:
    driver = Driver(1, random.Random(0))
    for _ in range(40):
        driver.step()
    with pytest.raises(UnknownCheckpointError, match="merged; the nearest that can be read: checkpoint"):
        driver.store.reader(2)
    with pytest.raises(UnknownCheckpointError):
        driver.store.truncate_after(2)
    with pytest.raises(UnknownCheckpointError, match="cannot be dropped"):
        driver.store.truncate_after(0)
    with pytest.raises(UnknownCheckpointError, match=r"has no checkpoint 99: it has 1 to \d+, of"):
        driver.store.reader(99)
    with pytest.raises(UnknownCheckpointError, match="has no epoch -1"):
        driver.store.reader(epoch=-1)


def test_a_store_that_is_truncated_to_nothing_begins_anew() -> None:
    store = quick_store(":memory:")
    for number in range(3):
        store.append(random_run(random.Random(0), number))
    store.truncate_after(0)
    assert store.checkpoints() == []
    assert image_of(store.reader()) == ([], [], [])
    assert store.append(Run(FULL)).number == 1


def grow(sizes: list[int], young: int) -> tuple[RunMap, int, int]:
    """Play the checkpoints of these sizes; return the runs, the most that were live and the rows rewritten."""
    runs, most, rewritten = RunMap(), 0, 0
    for number, slots in enumerate(sizes, 1):
        runs.added(number, slots, is_full=False)
        if group := runs.due(young):
            rewritten += runs.rows(group)
            merge_at_once(runs, group)
            runs.dropped(runs.unneeded(number))
        most = max(most, len(runs.live))
    return runs, most, rewritten


def merge_at_once(runs: RunMap, group: Sequence[float]) -> None:
    last = int(group[-1])
    runs.published(StoredRun(runs.number_for(last), runs[group[0]].first, last, runs.rows(group)))


def tiers_of(sizes: list[int]) -> float:
    return math.log(sum(sizes) + 8, FAN_IN)


@settings(max_examples=10, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 20), st.sampled_from([1, 100, 10_000, 1_000_000]))
def test_few_runs_are_live_and_a_row_is_rewritten_few_times(rng: random.Random, history: int, largest: int) -> None:
    sizes = [rng.choice([0, 1, rng.randint(1, largest)]) for _ in range(800)]
    _, most, rewritten = grow(sizes, history)
    assert most <= history + FAN_IN * (1 + tiers_of(sizes))
    assert rewritten <= 3 * sum(sizes) * (1 + tiers_of(sizes)) + FAN_IN * len(sizes)


def test_a_large_base_is_not_rewritten_for_a_few_small_checkpoints() -> None:
    sizes = [1_000_000] + [2000] * 400
    _, most, rewritten = grow(sizes, 1)
    assert rewritten < 4 * sum(sizes[1:])
    assert most < 2 * FAN_IN


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_merged_and_dropped_every_kept_checkpoint_is_whole(seed: int) -> None:
    rng = random.Random(seed)
    runs, pins, fulls, history = RunMap(), set[int](), [0], rng.choice([1, 5, 40])
    for number in range(1, 150):
        if is_full := rng.random() < 0.03:
            fulls.append(number)
        runs.added(number, rng.choice([0, 1, 9, 100]), is_full=is_full)
        pins = {pin for pin in pins if rng.random() < 0.9} | ({number} if rng.random() < 0.05 else set())
        while group := runs.due(min(8, history)):
            merge_at_once(runs, group)
        first = number - history + 1
        runs.dropped(runs.unneeded(first, pins))
        for kept in [*range(max(1, first), number + 1), *pins]:
            assert kept in runs
        for own in [run.last for run in runs if run.run == run.last]:
            parts = [runs[run] for run in runs.at(own)]
            begin = max(full for full in fulls if full <= own) or 1
            assert {checkpoint for part in parts for checkpoint in range(part.first, part.last + 1)} == set(
                range(begin, own + 1)
            )


def test_a_thousand_retained_checkpoints_are_read_through_few_runs() -> None:
    store, model = quick_store(":memory:", history=1000), Model()
    images = [model.image()]
    for number in range(1, 1101):
        run = random_run(random.Random(number), number)
        model = model.follow(run)
        images.append(model.image())
        store.append(run)
        assert len(store.reader().runs) <= 40
    assert len([record for record in store.checkpoints() if record.run_slots is not None]) >= 1000
    for number in range(101, 1101):
        assert len(store.reader(number).runs) <= 40
        if number % 13 == 0:
            assert image_of(store.reader(number)) == images[number]
    rows = store.database.execute("SELECT checkpoint, count(*) FROM state_item GROUP BY checkpoint").fetchall()
    written = {record.number: record.slots for record in store.checkpoints()[-1000:] if record.slots}
    assert {number: count for number, count in rows if number in written} == written


@pytest.mark.parametrize(("rows", "times"), [(1_000, 32), pytest.param(5_000, 16, marks=pytest.mark.slow)])
def test_rows_that_replace_all_others_again_and_again_are_soon_merged(rows: int, times: int) -> None:
    store = quick_store(":memory:", history=1)
    for number in range(100):
        store.append(run_of(dict.fromkeys(range(rows), number)))
        assert store.database["state_item"].count <= times * rows
    assert store.verify()


@pytest.mark.parametrize("kept", [0, pytest.param(5_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["list", "queue", "stack", "dictionary", "sorted_set"])
def test_what_a_deleted_object_leaves_goes_with_the_next_checkpoints(kind: str, kept: int) -> None:
    store = quick_store(":memory:", history=1)
    space = PersistedObjectSpace(store)
    space.create_list("kept").extend(range(kept))
    small = space.create_dictionary("small")
    space.checkpoint()
    FILL[kind](getattr(space, f"create_{kind}")("large"))
    space.checkpoint()
    space.delete("large")
    for number in range(200):
        small[number % 7] = number
        space.checkpoint()
    assert store.database["state_item"].count < kept + 500
    assert store.verify()


def test_a_deletion_of_what_a_damaged_length_belongs_to_is_saved() -> None:
    store = quick_store(":memory:", history=1)
    space = PersistedObjectSpace(store)
    space.create_list("large").extend(range(5_000))
    space.checkpoint()
    store.database["state_metadata"].update((1, 1, "length"), {"value": "["})
    space.delete("large")
    for number in range(40):
        space.get_or_create_value("small").value = number
        space.checkpoint()
    assert space.get_value("small").value == 39


@pytest.mark.slow
def test_what_only_grows_is_not_merged_with_all_that_was_there() -> None:
    store = quick_store(":memory:", history=1)
    before = store.database.conn.total_changes
    for number in range(300):
        store.append(run_of(dict.fromkeys(range(500 * number, 500 * number + 500), 0)))
    assert len(store.reader().runs) < 3 * FAN_IN
    assert store.database.conn.total_changes - before < 3.5 * 300 * 500, "written once, merged once, deleted once"
    for number in range(400):
        store.append(run_of({random.Random(number * slot).randrange(150_000): number for slot in range(500)}))
    assert len(values_in(store.reader())) == 150_000
    assert store.database["state_item"].count < 3 * 150_000
    assert store.verify()


def test_large_neighbours_that_replace_nothing_stay_as_they_are_while_they_are_few() -> None:
    runs, none = RunMap(), Mock(return_value=0)
    for number in range(1, 101):
        runs.added(number, 100_000, is_full=False)
        assert runs.due(8, waste=Waste(none)) == ()
    assert runs.in_the_way == 100 - 3 * FAN_IN
    for number in range(101, 140):
        runs.added(number, 100_000, is_full=False)
    assert runs.due(8, waste=Waste(none)) == tuple(range(1, FAN_IN + 1))


def test_of_large_neighbours_those_that_replace_others_are_merged() -> None:
    runs = RunMap()
    for number in range(1, 60):
        runs.added(number, 100_000, is_full=False)
    assert runs.due(8, waste=Waste(lambda asked: 100_000 * (30 in asked))) == tuple(range(25, 49))
    assert runs.due(8) == tuple(range(1, 52)), "all of it replaces the base"


def test_what_was_loaded_at_once_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_LARGE_ROWS", 200)
    store = quick_store(":memory:", history=1)
    for start in range(0, 20_000, 200):
        store.append(run_of(dict.fromkeys(range(start, start + 200), 0)))
    assert (len(store.reader().runs), store.database["portion"].count) == (100, 0)
    expected = dict.fromkeys(range(20_000), 0)
    for number in range(1, 150):
        changed = {random.Random(number * slot).randrange(20_000): number for slot in range(150)}
        store.append(run_of(changed))
        expected |= changed
        assert len(store.reader().runs) < 100 + 3 * FAN_IN
    assert values_in(store.reader()) == expected
    assert store.database["state_item"].count < 3 * 20_000
    assert store.verify()


@pytest.mark.parametrize(("counters", "is_left"), [(0, True), (4, True), (5, False)])
def test_a_few_slots_that_change_beside_what_grows_do_not_have_it_merged(
    counters: int, is_left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "_LARGE_ROWS", 200)
    for module in (tiers, growth):
        monkeypatch.setattr(module, "FEW_OF", 50)
    store, expected = quick_store(":memory:", history=1), dict[int, int]()
    for start in range(0, 10_000, 200):
        run = run_of(dict.fromkeys(range(start, start + 200 - counters), start))
        expected |= dict.fromkeys(range(start, start + 200 - counters), start)
        store.append(Run(DIFFERENTIAL, run.index, [], run.items + run_of(counted(counters, start), object_id=2).items))
    assert (len(store.reader().runs) == 50) is is_left
    assert values_in(store.reader()) == expected
    assert values_in(store.reader(), object_id=2) == counted(counters, 9_800)
    assert store.verify()


def counted(counters: int, number: int) -> dict[int, int]:
    return dict.fromkeys(range(counters), number)


@pytest.mark.parametrize(
    "kind", ["owned", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("cleared", "deleted"))]
)
def test_rows_out_of_reach_go_although_no_row_replaces_them(kind: str, tmp_path: Path) -> None:
    with PersistedObjectSpace.open(tmp_path / "state.db", durability="normal") as space:
        kept = space.create_list("kept")
        groups = space.create_dictionary("groups", of=list)
        for cycle in range(12):
            for _ in range(30):
                names = {"cleared": "one", "deleted": f"some {cycle}"}
                target = groups.setdefault(cycle, []) if kind == "owned" else space.get_or_create_list(names[kind])
                target.extend(range(100))
                kept.append(cycle)
                space.checkpoint()
            if kind == "cleared":
                target.clear()
            elif kind == "deleted":
                space.delete(f"some {cycle}")
            else:
                del groups[cycle]
        assert space.store.database["state_item"].count < 0.6 * 12 * 3_000, "it only grows"


@pytest.mark.parametrize("newest_first", [False, True])
def test_what_comes_and_goes_beside_a_large_state_does_not_pile_up(newest_first: bool) -> None:
    store = quick_store(":memory:", history=1)
    store.append(run_of(dict.fromkeys(range(2_500), 0)))
    for number in range(200):
        slots = range(150 * number, 150 * number + 150)
        store.append(run_of(dict.fromkeys(slots, number), object_id=2))
        store.append(run_of(dict.fromkeys(slots[15:] if newest_first else slots, None), object_id=2))
    deletions = store.database.execute("SELECT count(*) FROM state_item WHERE value IS NULL").fetchone()[0]
    assert deletions < 15_000, f"{deletions} of 30,000"
    assert store.verify()


@pytest.mark.parametrize("rows", [1, 100, pytest.param(1_000, marks=pytest.mark.slow)])
def test_runs_stay_few_also_where_each_checkpoint_is_made_by_a_process_of_its_own(rows: int, tmp_path: Path) -> None:
    state = dict.fromkeys(range(20_000), 0)
    most = 0
    for number in range(140):
        with quick_store(tmp_path / "state.db", history=1) as store:
            edits = dict.fromkeys(random.Random(number).sample(range(20_000), rows), number) if number else state
            store.append(run_of(edits))
            state |= edits
            most = max(most, len(store.reader().runs))
    assert most < 100
    with CheckpointStore(tmp_path / "state.db", read_only=True) as store:
        assert store.verify()
        assert values_in(store.reader()) == state


def test_no_checkpoint_pays_for_more_than_a_few_times_what_it_wrote() -> None:
    store = quick_store(":memory:", history=4)
    store.append(run_of(dict.fromkeys(range(60_000), 0)))
    most = 0
    for number in range(1, 120):
        before = store.database.conn.total_changes
        store.append(run_of({random.Random(number * 300 + slot).randrange(60_000): number for slot in range(300)}))
        most = max(most, store.database.conn.total_changes - before)
    assert most < 300 * 3 * 10 + 4 * PAGE_ROWS
    assert len(store.reader().runs) < 3 * FAN_IN
    assert len(values_in(store.reader())) == 60_000
    assert store.database["state_item"].count < 60_000 * 3
    store.verify()


def test_small_checkpoints_pay_seldom_for_a_slice_that_is_larger_than_they_owe() -> None:
    store = quick_store(":memory:", history=1)
    for number in range(2 * FAN_IN):
        store.append(run_of(dict.fromkeys(range(2_000), number)))
    paid = []
    for number in range(200):
        before = store.database.conn.total_changes
        store.append(run_of({0: number}))
        paid.append(store.database.conn.total_changes - before > PAGE_ROWS // 2)
    assert 0 < sum(paid) < 100, "a merge of a page at every checkpoint, or none at all"


def test_nothing_that_is_gone_stays_in_the_base() -> None:
    store = quick_store(":memory:", history=1)
    for number in range(1, 100):
        store.append(run_of({number: "x", number - 1: None}))
        store.append(run_of({0: "y"}, object_id=1 + number))
        store.append(Run(DIFFERENTIAL, [(1 + number, "gone", None, None)]))
    base = store.reader().runs[-1]
    assert base > 200
    rows = store.database.execute("SELECT slot, value FROM state_item WHERE checkpoint = ?", (base,)).fetchall()
    assert len(rows) == 1
    assert rows[0][1] is not None
    assert store.database["state_item"].count <= 3 * FAN_IN
