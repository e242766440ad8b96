"""Iterators that are open while a save reaches the store, or while an object is cleared, miss and add nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.objects import limits
from objectspace.relational import StateTable
from tests.relational.helpers import schema_of

COUNT = 600


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 0)
    monkeypatch.setattr(limits, "PROMOTE_SHARE", 10**9)


def opened(kind: str, **options: Any) -> Any:
    """Return an object of even keys of which nothing is in memory."""
    store = CheckpointStore(":memory:")
    with PersistedObjectSpace(store) as space:
        target = getattr(space, f"create_{kind}")("o", **options)
        for key in range(0, COUNT, 2):
            put(target, key, -key)
        space.checkpoint()
    return PersistedObjectSpace(store, cache_slots=20).get("o")


def put(target: Any, key: int, value: int) -> None:
    if hasattr(target, "add"):
        target.add(key)
    else:
        target[key] = value


def edit(target: Any) -> None:
    """Set slots, remove some, and remove and insert some, which then come last where the order is that of insertion."""
    for key in range(100, 200):
        put(target, key, key)
    if hasattr(target, "discard"):
        remove = target.discard
    else:
        remove = target.__delitem__
    for key in range(120, 140):
        remove(key)
    for key in range(10, 20, 2):
        remove(key)
        put(target, key, 7)


KINDS: dict[str, dict[str, Any]] = {
    "dictionary": {},
    "set": {},
    "sorted_dictionary": {},
    "sorted_set": {},
    "sparse_array": {"default": 0},
}

ITERATORS: dict[str, Callable[[Any], Iterator[Any]]] = {
    "keys": lambda target: iter(getattr(target, "assigned", target.__iter__)()),
    "items": lambda target: iter(target.items() if hasattr(target, "items") else target),
    "backwards": reversed,
}

CASES = [
    (kind, iterate) for kind in KINDS for iterate in ITERATORS if (kind, iterate) != ("set", "backwards")
]  # A set is read whole to go through it backwards.


@pytest.mark.parametrize("is_durable", [True, False])
@pytest.mark.parametrize("taken", [1, 60, 150, 290])
@pytest.mark.parametrize(("kind", "iterate"), CASES)
def test_an_iterator_goes_on_over_the_end_of_a_save(kind: str, iterate: str, taken: int, is_durable: bool) -> None:
    target = opened(kind, **KINDS[kind])
    space = target._home
    edit(target)
    expected = list(ITERATORS[iterate](target))
    writer = space.store.writer()
    space.save(writer)
    found = ITERATORS[iterate](target)
    first = [next(found) for _ in range(taken)]
    if is_durable:
        writer.commit()
        space.on_saved()
    else:
        writer.rollback()
        space.checkpoint()
        with pytest.raises(RuntimeError, match="changed during iteration"):
            list(found)
        found = iter(expected[taken:])
    assert first + list(found) == expected
    assert list(ITERATORS[iterate](target)) == expected


def test_an_array_is_iterated_over_the_end_of_a_save() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"), cache_slots=20)
    array = space.create_array("o", 400, default=0)
    array[:] = range(400)
    space.checkpoint()
    array[100:200] = [9] * 100
    writer = space.store.writer()
    space.save(writer)
    found = iter(array)
    first = [next(found) for _ in range(50)]
    writer.commit()
    space.on_saved()
    assert first + list(found) == [*range(100), *[9] * 100, *range(200, 400)]


@pytest.mark.parametrize("whole", [0, 1000])
@pytest.mark.parametrize("taken", [1, 10, 290])
@pytest.mark.parametrize("begins", ["before the save", "after it"])
def test_a_table_is_scanned_over_a_save_and_its_end(
    begins: str, taken: int, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", whole)
    space = PersistedObjectSpace(CheckpointStore(":memory:"), cache_slots=20)
    table = StateTable(space, "t", schema_of("k int64", "v int64", key=["k"]))
    table.insert_rows([(key, 0) for key in range(400)])
    space.checkpoint(epoch=1)
    table.insert_rows([(key, 1) for key in range(100, 200)])
    table.commit(2)
    writer = space.store.writer(epoch=2)
    if begins == "after it":
        space.save(writer)
    found = table.scan()
    first = [next(found) for _ in range(taken)]
    if begins == "before the save":
        space.save(writer)
    writer.commit()
    space.on_saved()
    assert first + list(found) == [(key, int(100 <= key < 200)) for key in range(400)]


def test_an_iterator_that_was_open_over_clear_leaves_nothing_behind() -> None:
    target = opened("sorted_dictionary")
    for key in range(60):
        target[key] = 1
    found = iter(target)
    next(found)
    target.clear()
    with pytest.raises(RuntimeError, match="changed during iteration"):
        next(found)
    target.update(dict.fromkeys(range(100), 2))
    target._home.checkpoint()
    assert list(target) == list(range(100))


@pytest.mark.parametrize("iterate", ["keys", "items"])
def test_a_key_that_goes_during_an_iteration_is_refused_or_passed_over(iterate: str) -> None:
    target = opened("sorted_dictionary")
    for key in range(0, 60, 2):
        target[key] = 1
    found = ITERATORS[iterate](target)
    next(found)
    del target[2]
    with pytest.raises(RuntimeError, match="changed during iteration"):
        next(found)
    found = ITERATORS[iterate](target)
    next(found)
    del target[4]
    target[COUNT + 1] = 1
    assert next(found) in (6, (6, 1))


def test_other_threads_read_what_nobody_changes_while_a_save_is_acknowledged() -> None:
    target = opened("sorted_dictionary")
    space = target._home
    found: list[list[int]] = []
    expected: list[list[int]] = []
    for number in range(20):
        target.pop(2 * number)
        target[COUNT + number] = number
        writer = space.store.writer()
        space.save(writer)
        writer.commit()
        reader = threading.Thread(target=lambda: found.append(list(target)))
        reader.start()
        space.on_saved()
        reader.join()
        expected.append([*range(2 * number + 2, COUNT, 2), *range(COUNT, COUNT + number + 1)])
        assert list(target) == expected[-1]
    assert found == expected


def test_an_element_that_is_put_back_into_a_set_during_an_iteration_is_no_error() -> None:
    target = opened("set")
    found = iter(target)
    next(found)
    reversed(target)  # It is read whole for that.
    target.discard(4)
    target.add(4)
    rest = list(found)
    assert {*rest, 0, 4} == {*range(0, COUNT, 2)}
    assert len(rest) == len({*rest})
