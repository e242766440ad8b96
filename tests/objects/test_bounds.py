"""State larger than memory: what is held stays within the budget, whatever is done with it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.held_slots import HeldSlots
from objectspace.objects import limits

SLOTS = 80_000
BUDGET = 5_000


@pytest.fixture(scope="module")
def store() -> CheckpointStore:
    """Return a store with large objects of some kinds, written in a few checkpoints."""
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    items, ordered = space.create_dictionary("d"), space.create_sorted_dictionary("s")
    for start in range(0, SLOTS, SLOTS // 4):
        items.update((number, str(number)) for number in range(start, start + SLOTS // 4))
        ordered.update((number, str(number)) for number in range(start // 4, (start + SLOTS // 4) // 4))
        space.checkpoint()
    groups = space.create_dictionary("g", of=list)
    for number in range(2_000):
        groups[number] = range(20)
    few = space.create_dictionary("few", of=list)
    for number in range(500):
        few[number] = range(50)
    for number in range(1_000):
        space.create_list(f"l{number}").extend(range(20))
    space.checkpoint()
    return store


def reopened(store: CheckpointStore) -> PersistedObjectSpace:
    return PersistedObjectSpace(store, cache_slots=BUDGET)


def held(space: PersistedObjectSpace) -> int:
    """Return how many slots are in memory, counted one by one and not by the space's own books."""
    return sum(handle._held() for handle in space._all_handles())


def read_at_random(space: PersistedObjectSpace) -> None:
    items, numbers = space.get("d"), random.Random(1)
    for number in range(20_000):
        key = numbers.randrange(SLOTS)
        assert items[key] == str(key)
        if number % 500 == 0:
            assert held(space) <= BUDGET + 1


def iterate(space: PersistedObjectSpace) -> None:
    for name, count in (("d", SLOTS), ("s", SLOTS // 4)):
        items = space.get(name)
        assert all(key == place for place, key in enumerate(items))
        assert sum(1 for _ in items.items()) == len(items) == count
    assert held(space) <= 1


def iterate_and_read(space: PersistedObjectSpace) -> None:
    items = space.get("s")
    assert all(items[key] == str(key) for key in items)


def write_and_checkpoint(space: PersistedObjectSpace) -> None:
    for name, count in (("d", SLOTS), ("s", SLOTS // 4)):
        items = space.get(name)
        for key in range(0, count, 3):
            items[key] = "new"
            if key % 1000 == 0:
                space.checkpoint()
                assert held(space) <= BUDGET
        items[-1] = "first"
        space.rollback()


def read_owned(space: PersistedObjectSpace) -> None:
    for name, count, size in (("g", 2_000, 20), ("few", 500, 50)):
        groups = space.get(name)
        assert [len(groups[key]) for key in groups] == [size] * count
        assert sum(len(group) for group in groups.values()) == count * size


def read_many_objects(space: PersistedObjectSpace) -> None:
    for number in range(1_000):
        assert len(space.get(f"l{number}")) == 20


@pytest.mark.parametrize(
    "use", [read_at_random, iterate, iterate_and_read, write_and_checkpoint, read_owned, read_many_objects]
)
def test_memory_stays_within_the_budget(store: CheckpointStore, use: Callable[[Any], None]) -> None:
    space = reopened(store)
    use(space)
    space._check()
    assert held(space) <= BUDGET + 1
    assert held(space) <= space._held.total


def test_opening_reads_no_slot(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    statements: list[str] = []
    store.database.conn.set_trace_callback(statements.append)
    space = reopened(store)
    assert len(space.get("d")) == SLOTS
    store.database.conn.set_trace_callback(None)
    assert statements
    assert not any("_item" in statement for statement in statements)


def test_of_large_values_only_those_that_are_asked_for_are_read() -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    documents, small = space.create_dictionary("documents"), space.create_dictionary("small")
    documents.update((number, f"{number}" * 1_000) for number in range(1, 10))
    small.update((number, number) for number in range(9))
    space.checkpoint()
    space = PersistedObjectSpace(store)
    documents, small = space.get_dictionary("documents"), space.get_dictionary("small")
    assert documents[3] == "3" * 1_000
    assert documents.get_many([4, 5]) == ["4" * 1_000, "5" * 1_000]
    assert held(space) == 3
    assert small[3] == 3
    assert held(space) == 3 + 9
    assert documents == {number: f"{number}" * 1_000 for number in range(1, 10)}
    space._check()


@pytest.mark.parametrize(("kind", "put", "take"), [("queue", "enqueue", "dequeue"), ("stack", "push", "pop")])
def test_the_first_element_is_read_with_few_others(kind: str, put: str, take: str) -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    target: Any = getattr(space, f"create_{kind}")("t")
    for number in range(5_000):
        getattr(target, put)(number)
    space.checkpoint()
    space = PersistedObjectSpace(store)
    target = getattr(space, f"get_{kind}")("t")
    assert target.peek() == getattr(target, take)()
    assert 0 < held(space) <= 16
    rest = [getattr(target, take)() for _ in range(4_999)]
    assert rest == ([*range(1, 5_000)] if kind == "queue" else [*range(4_998, -1, -1)])


TEXT = "t" * 10 * limits.SLOT_BYTES

LARGE: dict[str, tuple[Callable[[Any, int], object], Callable[[Any, int], object]]] = {
    "dictionary": (lambda items, number: items.update({number: TEXT}), lambda items, number: items[number]),
    "sorted_dictionary": (lambda items, number: items.update({number: TEXT}), lambda items, number: items[number]),
    "queue": (lambda queue, _: queue.enqueue(TEXT), lambda queue, _: queue.dequeue()),
    "stack": (lambda stack, _: stack.push(TEXT), lambda stack, _: stack.pop()),
}


@pytest.mark.parametrize("kind", LARGE)
def test_a_large_value_counts_as_several_slots(kind: str) -> None:
    put, take = LARGE[kind]
    space = PersistedObjectSpace(CheckpointStore(":memory:"), cache_slots=2_000)
    target = getattr(space, f"create_{kind}")("t")
    for number in range(1_000):
        put(target, number)
        if number % 50 == 0:
            space.checkpoint()
            assert held(space) <= 2_000 // 10
    space.checkpoint()
    target, most = PersistedObjectSpace(space.store, cache_slots=2_000).get("t"), 0
    for number in range(1_000):
        assert take(target, number) == TEXT
        most = max(most, held(target._home))
    assert 10 < most <= 2_000 // 10
    target._home._check()


def test_large_values_are_weighed_although_small_ones_were_read_before() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"), cache_slots=2_000)
    values = space.create_dictionary("t")
    values.update({number: "s" if number < 5 else TEXT for number in range(1_000)})
    space.checkpoint()
    again = PersistedObjectSpace(space.store, cache_slots=2_000)
    for number, value in values.items():
        assert again.get_dictionary("t")[number] == value
        assert held(again) <= 2_000 // 10
    again._check()


@pytest.mark.parametrize("period", [2, 4, 8, 16, 17])
def test_large_values_are_weighed_at_whatever_distance_they_lie(period: int) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"), cache_slots=2_000)
    values = {number: TEXT * 10 if number % period == 1 else "s" for number in range(3_000)}
    space.create_dictionary("t").update(values)
    space.checkpoint()
    again = PersistedObjectSpace(space.store, cache_slots=2_000)
    target: Any = again.get("t")
    for number in range(24):  # They stay in memory.
        target[-number] = "new"
    most = 0
    for number in range(24, 3_000):
        assert target[number] == values[number]
        most = max(most, sum(map(len, dict.values(target))))
    assert len(TEXT) * 10 < most <= 2 * 2_000 * limits.SLOT_BYTES


def test_lists_of_large_values_leave_memory_when_nobody_has_them() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"), cache_slots=2_000)
    for number in range(100):
        space.create_list(f"l{number}").extend([TEXT] * 5)
    space.checkpoint()
    space = PersistedObjectSpace(space.store, cache_slots=2_000)
    for number in range(100):
        assert space.get_list(f"l{number}") == [TEXT] * 5
        assert held(space) <= 2_000 // 10
    space._check()


def test_dirty_slots_stay_whatever_the_budget() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"), cache_slots=10)
    items = space.create_dictionary("d")
    items.update((number, number) for number in range(5000))
    space.checkpoint()
    for number in range(0, 5000, 2):
        items[number] = -number
        assert items[4999 - number] is not None
    assert [items[number] for number in range(0, 5000, 2)] == [-number for number in range(0, 5000, 2)]
    assert space.checkpoint().slots == 2499
    assert dict(PersistedObjectSpace(space.store).get("d")) == dict(items)


def test_what_cannot_be_dropped_is_not_looked_at_again_for_each_few_slots(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = PersistedObjectSpace(store, cache_slots=100)
    items, groups, looks = space.get("d"), space.get("few"), 0

    def counted(self: HeldSlots, *given: Any, **named: Any) -> None:
        nonlocal looks
        looks += 1
        shrink(self, *given, **named)

    shrink = HeldSlots.shrink
    monkeypatch.setattr(HeldSlots, "shrink", counted)
    for number in range(10_000):
        items[number] = -1
    for number in range(500):
        groups[number].append(-1)
    assert looks < 60, "each time that a quarter more has come, not a quarter of the budget"
    assert sum(1 for _ in space.get("s")) == SLOTS // 4
    assert held(space) <= 1.25 * (10_000 + 500 * 51) + 100
    space.rollback()
    assert sum(1 for _ in space.get("s")) == SLOTS // 4
    assert held(space) <= 300


@pytest.mark.parametrize("end", ["checkpoint", "rollback"])
def test_the_room_of_dirty_slots_goes_with_them(end: str) -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    for name in ("edited", "read"):
        space.create_dictionary(name).update((number, number) for number in range(10_000))
    space.checkpoint()
    space = PersistedObjectSpace(store, cache_slots=100)
    items = space.get("edited")
    for number in range(10_000):
        items[number] = -1
    items.clear()
    getattr(space, end)()
    assert sum(map(space.get("read").__getitem__, range(5_000))) == sum(range(5_000))
    assert held(space) <= 300


@pytest.mark.parametrize(("count", "error"), [("x", TypeError), (None, TypeError), (1.5, TypeError), (0, ValueError)])
def test_a_budget_that_is_none_is_refused_before_a_file_is_made(count: Any, error: type, tmp_path: Path) -> None:
    with pytest.raises(error, match="cache_slots is"):
        PersistedObjectSpace(CheckpointStore(":memory:"), cache_slots=count)
    with pytest.raises(error, match="cache_slots is"):
        PersistedObjectSpace.open(tmp_path / "state.db", cache_slots=count)
    assert not list(tmp_path.iterdir())
