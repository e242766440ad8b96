"""Views and iterators that are kept over a checkpoint or a rollback show what is there, or say that it has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

import pytest

from checkpoint import CheckpointStore
from objectspace import CheckpointProtocolError, PersistedObjectSpace

SIZE = 40

Make = Callable[[Any], Iterator[Any]]

ITERATORS: dict[str, list[Make]] = {
    "array": [iter],
    "queue": [iter, reversed],
    "stack": [iter, reversed],
    "linked_list": [iter, reversed],
    "set": [iter, reversed],
    "sorted_set": [iter, reversed, lambda s: s.irange(), lambda s: iter(s.view_between(-1, SIZE))],
    "dictionary": [iter, reversed, lambda d: iter(d.items()), lambda d: iter(d.values()), lambda d: reversed(d.keys())],
    "sorted_dictionary": [
        iter,
        reversed,
        lambda d: d.irange(0),
        lambda d: iter(d.items()),
        lambda d: chain.from_iterable(d.pages_between()),
    ],
    "sparse_array": [iter],
}

CASES = [(kind, make) for kind, makes in ITERATORS.items() for make in makes]

OF_DICT = [("dictionary", iter), ("dictionary", reversed)]
"""Python's own: they look at nothing but the size."""


@pytest.fixture
def space() -> PersistedObjectSpace:
    """Return a space with little room, with an object of each kind and one that takes the room."""
    space = PersistedObjectSpace(CheckpointStore(":memory:"), cache_slots=50)
    for kind in ITERATORS:
        arguments = (SIZE,) if kind == "array" else ()
        fill(getattr(space, f"create_{kind}")(kind, *arguments))
    space.create_dictionary("other").update(dict.fromkeys(range(SIZE), 0))
    space.checkpoint()
    space.rollback()
    return space


def fill(target: Any, places: Iterable[int] = range(SIZE)) -> None:
    put = next(
        (getattr(target, name) for name in ("add", "enqueue", "push", "add_last") if hasattr(target, name)),
        lambda place: target.__setitem__(place, place),
    )
    for place in places:
        put(place)


def evict(space: PersistedObjectSpace) -> None:
    """Let a checkpoint of another object take the room."""
    other = space.get_dictionary("other")
    for key in range(SIZE):
        other[key] = other.get(key) + 1
    space.checkpoint()
    for key in range(SIZE):
        _ = other[key]


@pytest.mark.parametrize("come_between", [evict, PersistedObjectSpace.rollback])
@pytest.mark.parametrize(("kind", "make"), CASES)
def test_an_iterator_that_was_not_begun(
    space: PersistedObjectSpace, kind: str, make: Make, come_between: Callable[[Any], None]
) -> None:
    target = space.get(kind)
    expected = list(make(target))
    iterator = make(target)
    come_between(space)
    try:
        found: object = list(iterator)
    except RuntimeError as error:
        found = error
    assert found == expected or "changed" in str(found)
    assert list(make(target)) == expected


@pytest.mark.parametrize("is_dirty", [False, True])
@pytest.mark.parametrize(("kind", "make"), CASES)
def test_an_iterator_that_was_begun_before_a_rollback(
    space: PersistedObjectSpace, kind: str, make: Make, is_dirty: bool
) -> None:
    target: Any = space.get(kind)
    expected = list(make(target))
    if is_dirty:
        fill(target)
    iterator = make(target)
    begun = [next(iterator) for _ in range(3)]
    space.rollback()
    try:
        begun += iterator
    except RuntimeError:
        begun = expected
    assert begun == expected, "it ended early, or went on with what is gone"


def make_way(space: PersistedObjectSpace) -> None:
    """Let an object that comes and goes take all room."""
    other = space.get_dictionary("other")
    other.update(dict.fromkeys(range(10 * SIZE)))
    space.checkpoint()
    other.clear()
    space.checkpoint()


@pytest.mark.parametrize("leave", [make_way, PersistedObjectSpace.rollback])
@pytest.mark.parametrize(
    ("kind", "make"), [case for case in CASES if case[0] in ("set", "dictionary") and case not in OF_DICT]
)
def test_what_left_the_memory_and_was_read_again_is_not_gone_on_with_at_another_place(
    space: PersistedObjectSpace, kind: str, make: Make, leave: Callable[[Any], None]
) -> None:
    """A dict tells its iterators only whether its size has changed."""
    target: Any = space.get(kind)
    assert len(list(target)) == SIZE
    for key in [*range(SIZE // 8), *range(SIZE - SIZE // 8, SIZE)]:  # Their places stay empty as long as it is there.
        target.remove(key) if kind == "set" else target.pop(key)
    space.checkpoint()
    iterator = make(target)
    begun = next(iterator)
    leave(space)
    assert all(key in target for key in range(SIZE // 8, SIZE - SIZE // 8))
    with pytest.raises(RuntimeError, match="left the memory with a save or a rollback"):
        list(iterator)
    assert begun == next(make(target))


def test_an_array_gives_nothing_that_was_rolled_back(space: PersistedObjectSpace) -> None:
    target = space.create_array("long", 3000, default=0)
    space.checkpoint()
    space.rollback()
    target[700] = 5
    iterator = iter(target)
    found = [next(iterator)]
    space.rollback()
    with suppress(RuntimeError):
        found += iterator
    assert set(found) == {0}


def test_behind_what_is_stored_of_an_array_there_is_what_was_saved_since(space: PersistedObjectSpace) -> None:
    target = space.create_array("long", 3000, default=0)
    target[0] = 1
    space.checkpoint()
    space.rollback()
    iterator = iter(target)
    begun = [next(iterator) for _ in range(100)]
    target[700] = 5
    space.checkpoint()
    make_way(space)
    assert [*begun, *iterator] == [1, *[0] * 699, 5, *[0] * 2299]


@pytest.mark.parametrize("is_read", [False, True])
def test_a_page_that_follows_shows_what_was_set_before_it(space: PersistedObjectSpace, is_read: bool) -> None:
    target = space.get_sorted_dictionary("sorted_dictionary")
    if is_read:
        assert len(list(target.items())) == SIZE
    pages = target.pages_between(2, SIZE - 2)
    first = next(pages)
    target[3] = target[SIZE - 5] = "new"
    assert first == [(key, key) for key in range(2, 18)]
    rest = [pair for page in pages for pair in page]
    assert rest == [(key, "new" if key == SIZE - 5 else key) for key in range(18, SIZE - 1)]


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("change", [lambda d: d.pop(SIZE - 1), lambda d: d.update({SIZE: 0}), lambda d: d.clear()])
def test_pages_refuse_keys_that_come_or_go_between_them(
    space: PersistedObjectSpace, is_read: bool, change: Callable[[Any], Any]
) -> None:
    target = space.get_sorted_dictionary("sorted_dictionary")
    if is_read:
        assert len(list(target.items())) == SIZE
    pages = target.pages_between(2)
    next(pages)
    change(target)
    with pytest.raises(RuntimeError, match="changed"):
        list(pages)


@pytest.mark.parametrize("come_between", [evict, PersistedObjectSpace.rollback])
@pytest.mark.parametrize("kind", ["dictionary", "sorted_dictionary"])
def test_a_view_is_live(space: PersistedObjectSpace, kind: str, come_between: Callable[[Any], None]) -> None:
    target: Any = space.get(kind)
    assert len(list(target)) == SIZE
    keys, values, items = target.keys(), target.values(), target.items()
    target[SIZE] = SIZE
    assert (len(keys), SIZE in keys, (SIZE, SIZE) in items, SIZE in values) == (SIZE + 1, True, True, True)
    del target[SIZE]
    come_between(space)
    everything = list(range(SIZE))
    assert (len(keys), len(values), len(items)) == (SIZE, SIZE, SIZE)
    assert (list(keys), list(values)) == (everything, everything)
    assert list(items) == list(zip(everything, everything, strict=True))
    assert (5 in keys, SIZE in keys, keys & {5, SIZE}) == (True, False, {5})
    assert keys.mapping == target
    assert keys == target.keys()


def test_a_kept_assignment_loses_nothing_when_slots_were_dropped(space: PersistedObjectSpace) -> None:
    target = space.get_dictionary("dictionary")
    for key in range(SIZE):
        _ = target[key]
    put = target.__setitem__
    evict(space)
    for key in range(SIZE - 5, SIZE + 5):
        put(key, "new")
    space.checkpoint()
    expected = {key: key for key in range(SIZE - 5)} | dict.fromkeys(range(SIZE - 5, SIZE + 5), "new")
    assert target == expected
    assert PersistedObjectSpace(space.store).get_dictionary("dictionary") == expected


@pytest.mark.parametrize("kind", [kind for kind in ITERATORS if kind not in ("array", "linked_list")])
def test_a_kept_clear_clears_what_was_rolled_back_to(space: PersistedObjectSpace, kind: str) -> None:
    target: Any = space.get(kind)
    clear = target.clear
    space.rollback()
    clear()
    assert list(target) == []
    space.checkpoint()
    assert list(PersistedObjectSpace(space.store).get(kind)) == []  # type: ignore[call-overload]


def partly_saved(kind: str, unsaved: int, room: int) -> Any:
    """Return a queue or a stack of which some elements are saved, in memory where there is room, and others are not."""
    space = PersistedObjectSpace(CheckpointStore(":memory:"), cache_slots=room)
    target: Any = getattr(space, f"create_{kind}")(kind)
    add(40)(target)
    space.checkpoint()
    take(10)(target)
    space.checkpoint()
    add(unsaved)(target)
    return target


def add(count: int) -> Callable[[Any], object]:
    return lambda target: [getattr(target, ADD[target.kind])((count, number)) for number in range(count)]


def take(count: int) -> Callable[[Any], object]:
    return lambda target: [getattr(target, TAKE[target.kind])() for _ in range(count)]


def save(target: Any) -> None:
    target._home.checkpoint()


def go_back(target: Any) -> None:
    target._home.rollback()


ADD, TAKE = {"Queue": "enqueue", "Stack": "push"}, {"Queue": "dequeue", "Stack": "pop"}

DISTURBANCES: dict[str, list[Callable[[Any], object]]] = {
    "save": [save],
    "save, add": [save, add(5)],
    "save, add more": [save, add(9)],
    "take": [take(7)],
    "take, add": [take(10), add(10)],
    "take, add, save": [take(9), add(9), save],
    "take all, add": [take(30), add(30)],
    "go back, add": [go_back, add(5)],
    "add": [add(5)],
}


@pytest.mark.parametrize("room", [2, 1000])
@pytest.mark.parametrize("unsaved", [0, 4])
@pytest.mark.parametrize("disturbance", DISTURBANCES)
@pytest.mark.parametrize("make", [iter, reversed])
@pytest.mark.parametrize("kind", ["queue", "stack"])
def test_an_iterator_of_a_queue_or_a_stack_misses_nothing_or_is_refused(
    kind: str, make: Make, disturbance: str, unsaved: int, room: int, at_scale: bool, apart: int
) -> None:
    expected = list(make(partly_saved(kind, unsaved, room)))
    for begun in range(1, len(expected), 1 if at_scale else 4 * apart):
        target = partly_saved(kind, unsaved, room)
        iterator = make(target)
        found = [next(iterator) for _ in range(begun)]
        for step in DISTURBANCES[disturbance]:
            step(target)
        try:
            found += iterator
        except RuntimeError:
            assert (kind, make, disturbance) != ("stack", iter, "add"), "what comes on top is not in its way"
        else:
            assert found[: len(expected)] == expected, f"{begun} were taken before"


MANY = 600
"""More than there is room for: they are read in pages."""


@pytest.mark.parametrize("begun", [0, 1])
@pytest.mark.parametrize("is_edited", [False, True])
def test_an_iterator_of_a_closed_space_gives_all_or_says_so(is_edited: bool, begun: int) -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    for kind in ITERATORS:
        fill(getattr(space, f"create_{kind}")(kind, *([MANY] if kind == "array" else [])), range(MANY))
    space.checkpoint()
    for kind, make in CASES:
        space = PersistedObjectSpace(store, cache_slots=50)
        target: Any = space.get(kind)
        if is_edited:
            fill(target, [MANY // 2])
        grows = is_edited and kind in {"queue", "stack", "linked_list"}
        expected = len(list(make(PersistedObjectSpace(store).get(kind)))) + grows
        iterator = make(target)
        found = [next(iterator) for _ in range(begun)]
        space.close()
        try:
            found += iterator
        except CheckpointProtocolError:
            continue
        assert len(found) == expected, kind
