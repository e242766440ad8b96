"""Iterators that are open while a save reaches the store, or while an object is cleared, miss and add nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from checkpoint import CheckpointStore
from objectspace import ObjectDictionary, PersistedObjectSpace
from objectspace.objects import limits, scans
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
        target[key] = [value] if isinstance(target, ObjectDictionary) else value


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


RANKED: list[tuple[str, dict[str, Any]]] = [("dictionary", {}), ("dictionary", {"of": list}), ("set", {})]

RANKED_CASES = [
    (kind, options, iterate)
    for kind, options in RANKED
    for iterate in ITERATORS
    if (kind, iterate) in CASES and not (options and iterate == "items")  # Of objects, they are looked up by the keys.
]


@pytest.mark.parametrize(("kind", "options", "iterate"), RANKED_CASES)
def test_a_save_between_what_is_stored_and_what_is_new_ends_an_iteration(
    kind: str, options: dict[str, Any], iterate: str
) -> None:
    target = opened(kind, **options)
    put(target, COUNT, 0)
    put(target, COUNT + 1, 0)
    found = ITERATORS[iterate](target)
    for _ in range(2 if iterate == "backwards" else COUNT // 2):
        next(found)
    target._home.checkpoint()
    with pytest.raises(RuntimeError, match="changed during iteration"):
        next(found)


@pytest.mark.parametrize(("kind", "options", "iterate"), RANKED_CASES)
def test_a_save_after_the_last_key_ends_an_iteration_too(kind: str, options: dict[str, Any], iterate: str) -> None:
    target = opened(kind, **options)
    put(target, COUNT, 0)
    found = ITERATORS[iterate](target)
    for _ in range(COUNT // 2 + 1):
        next(found)
    target._home.checkpoint()
    with pytest.raises(RuntimeError, match="changed during iteration"):
        next(found)


@pytest.mark.parametrize(("kind", "options", "iterate"), RANKED_CASES)
def test_a_save_ends_an_iterator_of_an_order_of_insertion_that_was_not_begun(
    kind: str, options: dict[str, Any], iterate: str
) -> None:
    target = opened(kind, **options)
    found = ITERATORS[iterate](target)
    put(target, COUNT, 0)
    (target.discard if kind == "set" else target.pop)(4)
    target._home.checkpoint()
    with pytest.raises(RuntimeError, match="changed during iteration"):
        next(found)


@pytest.mark.parametrize(("kind", "iterate"), CASES)
def test_an_iterator_that_was_not_begun_shows_what_came_and_went(kind: str, iterate: str) -> None:
    target = opened(kind, **KINDS[kind])
    found = ITERATORS[iterate](target)
    put(target, COUNT, 0)
    (target.discard if hasattr(target, "discard") else target.__delitem__)(4)
    assert list(found) == list(ITERATORS[iterate](target))


@pytest.mark.parametrize("changes", [{COUNT: 5}, {10: 5}, {12: 5, COUNT: 6}])
@pytest.mark.parametrize(("kind", "iterate"), CASES)
def test_an_iterator_that_was_made_while_a_save_was_in_flight_begins_after_it(
    kind: str, iterate: str, changes: dict[int, int]
) -> None:
    target = opened(kind, **KINDS[kind])
    edit(target)
    put(target, COUNT, 0)
    writer = target._home.store.writer()
    target._home.save(writer)
    found = ITERATORS[iterate](target)
    writer.commit()
    target._home.on_saved()
    for key, value in changes.items():
        put(target, key, value)
    assert list(found) == list(ITERATORS[iterate](target))


@pytest.mark.parametrize("taken", [0, limits.PASSED_SLOTS])
@pytest.mark.parametrize(("kind", "options", "iterate"), [*RANKED_CASES, ("sorted_dictionary", {}, "keys")])
def test_an_iterator_over_a_checkpoint_that_a_rollback_drops_says_that_all_has_changed(
    kind: str, options: dict[str, Any], iterate: str, taken: int
) -> None:
    target = opened(kind, **options)
    space = target._home
    put(target, COUNT, 0)
    space.checkpoint(epoch=2)
    found = ITERATORS[iterate](target)
    first = [next(found) for _ in range(taken)]
    space.rollback(epoch=1)
    if taken or kind != "sorted_dictionary":
        with pytest.raises(RuntimeError, match="changed during iteration"):
            next(found)
    else:
        assert first + list(found) == list(range(0, COUNT, 2))


class Announced:
    """A mutex that says when a thread has to wait for it."""

    def __init__(self, mutex: Any, has_to_wait: threading.Event) -> None:
        self._mutex, self._has_to_wait = mutex, has_to_wait

    def __enter__(self) -> None:
        if not self._mutex.acquire(blocking=False):
            self._has_to_wait.set()
            self._mutex.acquire()

    def __exit__(self, *_: object) -> None:
        self._mutex.release()


@pytest.mark.parametrize("taken", [0, 1, 100])
@pytest.mark.parametrize(("kind", "iterate"), CASES)
def test_a_thread_that_reads_between_two_objects_of_which_a_save_is_acknowledged(
    kind: str, iterate: str, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = opened(kind, **KINDS[kind])
    space, read_on = target._home, threading.Event()
    edit(target)
    other: Any = space.create_list("other")
    other.append(1)
    writer = space.store.writer()
    space.save(writer)
    expected = list(ITERATORS[iterate](target))
    begun = ITERATORS[iterate](target) if taken else None
    found = [next(begun) for _ in range(taken)] if begun else []
    writer.commit()
    monkeypatch.setattr(space, "mutex", Announced(space.mutex, read_on))

    def _read() -> None:
        found.extend(begun or ITERATORS[iterate](target))
        read_on.set()

    def _settle(durable: bool) -> None:
        reader.start()
        read_on.wait()
        type(other)._settle(other, durable)

    reader = threading.Thread(target=_read)
    monkeypatch.setattr(other, "_settle", _settle)
    space.on_saved()
    reader.join()
    assert found == expected


@pytest.mark.parametrize(("kind", "iterate"), [("set", "keys"), ("dictionary", "items")])
def test_what_another_thread_drops_from_memory_as_an_iteration_begins_is_read(
    kind: str, iterate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = opened(kind)
    expected = list(ITERATORS[iterate](target))
    target._load_whole()

    def _drop(live: dict[Any, Any]) -> Any:
        target._shrink(gently=False)
        return getattr(dict, iterate)(live)

    monkeypatch.setattr(scans, "dict", type("dict", (dict,), {iterate: staticmethod(_drop)}), raising=False)
    assert list(ITERATORS[iterate](target)) == expected
