"""Methods that a caller keeps across a save, and sources that run a save while they are read, lose nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from checkpoint import CheckpointStore
from objectspace import CheckpointProtocolError, ObjectNotFoundError, PersistedObjectSpace
from objectspace.objects import set as set_module

KEPT: list[tuple[str, str, Callable[[Any, int], object]]] = [
    ("list", "append", lambda kept, i: kept(i)),
    ("list", "extend", lambda kept, i: kept([i])),
    ("set", "add", lambda kept, i: kept(i)),
    ("set", "update", lambda kept, i: kept([i])),
    ("queue", "enqueue", lambda kept, i: kept(i)),
    ("stack", "push", lambda kept, i: kept(i)),
    ("dictionary", "setdefault", lambda kept, i: kept(i, i)),
    ("dictionary", "update", lambda kept, i: kept({i: i})),
    ("sorted_set", "add", lambda kept, i: kept(i)),
]


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize(("kind", "method", "use"), KEPT)
def test_a_method_kept_across_saves_loses_nothing(kind: str, method: str, use: Any, is_stored: bool) -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    target = getattr(space, f"create_{kind}")("t")
    if is_stored:
        use(getattr(target, method), -1)
        space.checkpoint()
        use(getattr(target, method), -2)
    kept = getattr(target, method)
    for i in range(5):
        use(kept, i)
        space.checkpoint()
    space._check()
    assert list(PersistedObjectSpace(store).get("t")) == list(target)
    assert set(range(5)) <= set(target)


def test_an_add_that_was_kept_before_other_edits_loses_nothing() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"), cache_slots=100)
    elements = space.create_set("t")
    add = elements.add
    elements.update(range(200))
    space.checkpoint()
    add("late")
    assert list(elements) == [*range(200), "late"]
    space.checkpoint()
    add("later")
    elements.discard("later")
    space.checkpoint()
    space._check()
    assert list(PersistedObjectSpace(space.store).get_set("t")) == list(elements) == [*range(200), "late"]


def test_elements_are_removed_from_the_end_without_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    elements, walks = space.create_set("t"), Mock(side_effect=reversed)
    elements.update(range(200))
    space.checkpoint()
    elements.add(200)
    monkeypatch.setattr(set_module, "reversed", walks, raising=False)
    for element in range(200, 100, -1):
        elements.discard(element)
    assert walks.call_count <= 2
    space.checkpoint()
    assert list(PersistedObjectSpace(space.store).get_set("t")) == [*range(101)]


def test_a_kept_dequeue_and_pop_are_noticed() -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    queue, stack = space.create_queue("q"), space.create_stack("s")
    for i in range(6):
        queue.enqueue(i)
        stack.push(i)
    dequeue, pop = queue.dequeue, stack.pop
    for _ in range(3):
        dequeue()
        pop()
        space.checkpoint()
    again = PersistedObjectSpace(store)
    assert (list(again.get("q")), list(again.get("s"))) == ([3, 4, 5], [2, 1, 0])


ADDING: list[tuple[str, str, Callable[[int], Any]]] = [
    ("list", "append", int),
    ("queue", "enqueue", int),
    ("stack", "push", int),
    ("set", "add", int),
    ("sorted_set", "add", int),
    ("linked_list", "add_last", int),
    ("dictionary", "update", lambda i: {i: i}),
    ("sorted_dictionary", "update", lambda i: {i: i}),
]


@pytest.mark.parametrize("is_touched", [False, True])
@pytest.mark.parametrize("edits", [(), ("before",), ("after",)])
@pytest.mark.parametrize(("kind", "method", "made"), ADDING)
def test_a_method_kept_over_a_rollback_harms_nothing(
    kind: str, method: str, made: Any, edits: tuple[str, ...], is_touched: bool
) -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    target = getattr(space, f"create_{kind}")("t")
    for i in range(5):
        getattr(target, method)(made(i))
    space.checkpoint()
    if "before" in edits:
        getattr(target, method)(made(99))
    kept = getattr(target, method)
    if "after" in edits:
        kept(made(99))
    space.rollback()
    try:
        kept(made(5))
    except CheckpointProtocolError:
        assert not kind.endswith("dictionary")
        is_there = False
    else:
        is_there = True
    assert not is_touched or (5 in target) == is_there
    space.checkpoint()
    assert (5 in target) == is_there
    space._check()
    stored = PersistedObjectSpace(store).get("t")
    assert sorted(stored) == sorted(target)
    assert set(range(5)) <= set(stored)


def test_a_reversed_set_may_be_asked_for_by_a_method_that_was_kept_over_a_rollback() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    target = space.create_set("t")
    target.update(range(5))
    space.checkpoint()
    kept = target.__reversed__
    space.rollback()
    assert list(kept()) == [4, 3, 2, 1, 0]


@pytest.mark.parametrize(("kind", "method", "made"), ADDING[:-2])
def test_a_method_of_a_deleted_object_is_refused(kind: str, method: str, made: Any) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    target = getattr(space, f"create_{kind}")("t")
    getattr(target, method)(made(1))
    space.checkpoint()
    kept = getattr(target, method)
    space.delete("t")
    with pytest.raises(ObjectNotFoundError, match="deleted"):
        kept(made(2))
    assert space.checkpoint().slots == 0


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("kind", ["list", "set", "dictionary"])
def test_a_source_may_save_while_it_is_read(kind: str, is_stored: bool) -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    target = getattr(space, f"create_{kind}")("t")
    if is_stored:
        space.checkpoint()

    def source() -> Iterator[Any]:
        for i in range(3):
            yield (i, i) if kind == "dictionary" else i
            space.checkpoint()

    (target.extend if kind == "list" else target.update)(source())
    space.checkpoint()
    assert list(PersistedObjectSpace(store).get("t")) == list(target) == [0, 1, 2]


def test_two_spaces_cannot_write_over_each_other() -> None:
    store = CheckpointStore(":memory:")
    one, other = PersistedObjectSpace(store), PersistedObjectSpace(store)
    one.create_list("x").append(1)
    one.checkpoint()
    other.create_list("y").append(2)
    with pytest.raises(CheckpointProtocolError, match="moved on"):
        other.checkpoint()
    other.rollback()
    other.create_list("y").append(2)
    other.checkpoint()
    assert list(PersistedObjectSpace(store)) == ["x", "y"]


def test_a_writer_of_another_store_is_refused() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    space.create_list("l").append(1)
    with pytest.raises(CheckpointProtocolError, match="another store"):
        space.save(CheckpointStore(":memory:").writer())
    assert space.checkpoint().slots == 1


@pytest.mark.parametrize(("kind", "method", "made"), ADDING)
def test_a_method_kept_while_clean_slots_are_dropped_goes_on(kind: str, method: str, made: Any) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"), cache_slots=10)
    target = getattr(space, f"create_{kind}")("t")
    for i in range(30):
        getattr(target, method)(made(i))
    space.checkpoint()
    assert 3 in target
    kept = getattr(target, method)
    space.create_list("other").extend(range(100))
    for _ in range(2):
        space.checkpoint()
    kept(made(99))
    space.checkpoint()
    assert sorted(PersistedObjectSpace(space.store).get("t")) == [*range(30), 99]


@pytest.mark.parametrize("between", [lambda t: t.clear(), lambda t: t._home.rollback(), lambda t: t.reverse()])
def test_an_assignment_and_a_removal_that_were_kept_do_what_those_of_the_list_do(between: Any) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    target = space.create_list("t")
    target.extend(range(40))
    space.checkpoint()
    put, remove = target.__setitem__, target.__delitem__
    between(target)
    target.extend(range(3))
    expected = list(target)
    put(0, 7)
    expected[0] = 7
    remove(slice(1, 2))
    del expected[1:2]
    space.checkpoint()
    assert list(PersistedObjectSpace(space.store).get_list("t")) == list(target) == expected
