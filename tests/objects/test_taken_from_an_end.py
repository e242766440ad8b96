"""Taking elements from an end of what is not in memory: what was taken before is not stepped over again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from checkpoint import CheckpointStore
from checkpoint.reader import Reader
from objectspace import PersistedObjectSpace
from objectspace.kvt import KeyValueTableConfiguration, KeyValueTableManager
from objectspace.objects import limits

COUNT, TAKEN = 1200, 400
FEW_ROWS = 60
"""More than are read for one element, which are a few small pages."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> CheckpointStore:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 0)
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    space.create_sorted_dictionary("dictionary").update(dict.fromkeys(range(COUNT), "v"))
    space.create_sorted_set("set").update(range(COUNT))
    manager = KeyValueTableManager(space)
    manager.create_scope("s")
    manager.create_key_value_table("s", "t", KeyValueTableConfiguration(4))
    manager.open_key_value_table("s", "t").put_all("f", [(b"%04d" % number, b"v") for number in range(COUNT)])
    space.checkpoint()
    return store


def family_of(space: PersistedObjectSpace) -> Any:
    return KeyValueTableManager(space).open_key_value_table("s", "t").family("f")


TAKES: dict[str, Callable[[PersistedObjectSpace], Callable[[], Any]]] = {
    "family": lambda space: family_of(space).popitem,
    "dictionary at the begin": lambda space: lambda: space.get_sorted_dictionary("dictionary").popitem(0),
    "dictionary at the end": lambda space: lambda: space.get_sorted_dictionary("dictionary").popitem(),
    "set at the begin": lambda space: lambda: space.get_sorted_set("set").pop(0),
    "set at the end": lambda space: lambda: space.get_sorted_set("set").pop(),
}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each row that scans over changed objects read."""
    read: list[int] = []
    rows = Reader.rows

    def _rows(self: Reader, *arguments: Any, **options: Any) -> Iterator[Any]:
        for row in rows(self, *arguments, **options):
            read.append(1)
            yield row

    monkeypatch.setattr(Reader, "rows", _rows)
    return read


@pytest.mark.parametrize("cache_slots", [100, 100_000])
@pytest.mark.parametrize("name", TAKES)
def test_what_was_taken_is_not_stepped_over_again(
    store: CheckpointStore, read: list[int], name: str, cache_slots: int
) -> None:
    space = PersistedObjectSpace(store, cache_slots=cache_slots)
    take = TAKES[name](space)
    for _ in range(TAKEN):
        take()
    assert len(read) < TAKEN * FEW_ROWS


@pytest.mark.parametrize("cache_slots", [100, 100_000])
def test_what_was_set_where_all_was_taken_is_found(store: CheckpointStore, cache_slots: int) -> None:
    space = PersistedObjectSpace(store, cache_slots=cache_slots)
    dictionary = space.get_sorted_dictionary("dictionary")
    for _ in range(TAKEN):
        dictionary.popitem(0)
    space.checkpoint()
    assert dictionary.peekitem(0) == (TAKEN, "v")
    for key in (7, 3):
        dictionary[key] = "new"
        assert dictionary.peekitem(0) == (key, "new")
        writer = store.writer()
        space.save(writer)
        writer.rollback()
        assert dictionary.peekitem(0) == (key, "new")
        space.checkpoint()
        assert dictionary.peekitem(0) == (key, "new")
    assert [dictionary.popitem(0)[0] for _ in range(3)] == [3, 7, TAKEN]
    space.rollback()
    assert [dictionary.popitem(0)[0] for _ in range(3)] == [3, 7, TAKEN]
    space.rollback(epoch=1)
    assert dictionary.peekitem(0) == (0, "v")


def test_keys_that_are_named_one_by_one_bring_an_object_into_memory(store: CheckpointStore) -> None:
    space = PersistedObjectSpace(store)
    dictionary = space.get_sorted_dictionary("dictionary")
    for key in range(TAKEN):
        dictionary.get_many([key])
    assert dictionary._table.complete


RANKED: dict[str, Callable[[PersistedObjectSpace], Any]] = {
    "pop": lambda space: space.get("ranked set").pop(),
    "popitem": lambda space: space.get("ranked dictionary").popitem()[0],
    "popitem of objects": lambda space: space.get("objects").popitem()[0],
}
PEEKS: dict[str, Callable[[PersistedObjectSpace], Any]] = {
    "first element": lambda space: next(iter(space.get("ranked set"))),
    "first key": lambda space: next(iter(space.get("ranked dictionary"))),
    "last key": lambda space: next(reversed(space.get("ranked dictionary"))),
    "last item": lambda space: next(reversed(space.get("ranked dictionary").items())),
    "last key of objects": lambda space: next(reversed(space.get("objects"))),
}
FEW_SORTS = 5


@pytest.fixture
def ranked(monkeypatch: pytest.MonkeyPatch) -> CheckpointStore:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 0)
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    space.create_set("ranked set").update(range(COUNT))
    space.create_dictionary("ranked dictionary").update((key, key) for key in range(COUNT))
    space.create_dictionary("objects", of=list).update((key, [key]) for key in range(COUNT))
    space.checkpoint()
    return store


@pytest.fixture
def sorts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each time that the store sorts an object by its ranks."""
    sorts: list[int] = []
    pages = Reader.pages_by_rank

    def _pages(self: Reader, *arguments: Any, **options: Any) -> Iterator[Any]:
        sorts.append(1)
        return pages(self, *arguments, **options)

    monkeypatch.setattr(Reader, "pages_by_rank", _pages)
    return sorts


@pytest.mark.parametrize("saves", [False, True])
@pytest.mark.parametrize("cache_slots", [100, 100_000])
@pytest.mark.parametrize("name", RANKED)
def test_taking_what_was_inserted_first_or_last_does_not_sort_all_each_time(
    ranked: CheckpointStore, sorts: list[int], name: str, cache_slots: int, saves: bool
) -> None:
    space = PersistedObjectSpace(ranked, cache_slots=cache_slots)
    taken = []
    for turn in range(COUNT):
        taken.append(RANKED[name](space))
        if saves and not turn % 100:
            space.checkpoint()
    assert taken == list(range(COUNT) if name == "pop" else reversed(range(COUNT)))
    assert len(sorts) <= FEW_SORTS
    with pytest.raises(KeyError, match="is empty"):
        RANKED[name](space)


@pytest.mark.parametrize("name", PEEKS)
def test_looking_at_an_end_again_and_again_brings_what_fits_into_memory(
    ranked: CheckpointStore, sorts: list[int], name: str
) -> None:
    space = PersistedObjectSpace(ranked)
    assert len({PEEKS[name](space) for _ in range(TAKEN)}) == 1
    assert len(sorts) <= FEW_SORTS


def test_what_is_gone_through_to_the_end_is_not_kept_in_memory(ranked: CheckpointStore) -> None:
    dictionary = PersistedObjectSpace(ranked).get("ranked dictionary")
    for _ in range(10):
        assert len(list(dictionary)) == len(list(dictionary.items())) == COUNT
    assert not dictionary._held()


@pytest.mark.parametrize("cache_slots", [100, 100_000])
def test_the_last_key_is_the_last_one_whatever_came_and_went(ranked: CheckpointStore, cache_slots: int) -> None:
    space = PersistedObjectSpace(ranked, cache_slots=cache_slots)
    dictionary = space.get("ranked dictionary")
    dictionary["new"] = 0
    assert dictionary.popitem() == ("new", 0)
    assert dictionary.popitem() == (COUNT - 1, COUNT - 1)
    space.checkpoint()  # The rank of "new" is free again.
    dictionary["other"] = 1
    assert dictionary.popitem() == ("other", 1)
    del dictionary[COUNT - 2]
    dictionary[3] = "again in its place"
    dictionary[COUNT - 1] = "back at the end"
    assert [dictionary.popitem()[0] for _ in range(2)] == [COUNT - 1, COUNT - 3]
    writer = space.store.writer()
    space.save(writer)
    writer.rollback()
    assert dictionary.popitem()[0] == COUNT - 4
    space.rollback()
    assert dictionary.popitem()[0] == COUNT - 2


@pytest.mark.parametrize("cache_slots", [100, 100_000])
def test_the_first_element_is_the_first_one_whatever_came_and_went(ranked: CheckpointStore, cache_slots: int) -> None:
    space = PersistedObjectSpace(ranked, cache_slots=cache_slots)
    elements = space.get("ranked set")
    assert elements.pop() == 0
    elements.discard(1)
    elements.add(0)
    assert elements.pop() == 2
    space.checkpoint()
    elements.discard(3)
    elements.add(3)
    assert elements.pop() == 4
    space.rollback()
    assert elements.pop() == 3
    space.rollback(epoch=1)
    assert elements.pop() == 0


@pytest.mark.parametrize("saves", [False, True])
@pytest.mark.parametrize("name", ["ranked dictionary", "objects"])
def test_what_is_put_at_the_end_and_taken_again_needs_no_sorting(
    ranked: CheckpointStore, sorts: list[int], name: str, saves: bool
) -> None:
    space = PersistedObjectSpace(ranked, cache_slots=100)
    dictionary, value = space.get(name), [1] if name == "objects" else 1
    dictionary.popitem()
    for turn in range(100):
        for key in range(turn % 3 + 1):
            dictionary["new", turn, key] = value
        if saves:
            space.checkpoint()
        assert [dictionary.popitem()[0] for _ in range(turn % 3 + 2)] == [
            *(("new", turn, key) for key in reversed(range(turn % 3 + 1))),
            COUNT - 2 - turn,
        ]
        if turn % 2:
            space.checkpoint()  # The ranks of what came and went are free again.
    assert len(sorts) <= FEW_SORTS


@pytest.mark.parametrize("look", [lambda d: next(iter(d)), lambda d: next(iter(d.items())), lambda d: d.popitem()])
def test_large_values_are_not_taken_for_small_ones_after_a_look_at_an_end(
    look: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 0)
    store, large = CheckpointStore(":memory:"), 40 * limits.SLOT_BYTES
    space = PersistedObjectSpace(store)
    space.create_dictionary("d").update((key, "x" * large) for key in range(COUNT))
    space.checkpoint()
    space.get("d").discard_many(range(100))
    space.checkpoint()
    dictionary = PersistedObjectSpace(store, cache_slots=COUNT * 10).get("d")
    for _ in range(10):
        look(dictionary)
    for key in range(COUNT // 2):
        dictionary.get(key)
    assert dictionary._held() * 40 <= COUNT * 10


def test_long_keys_kept_for_the_next_calls_are_fewer(ranked: CheckpointStore) -> None:
    space = PersistedObjectSpace(ranked)
    space.create_set("long").update(f"{number:04}" + "x" * 40 * limits.SLOT_BYTES for number in range(COUNT))
    space.checkpoint()
    elements = PersistedObjectSpace(ranked, cache_slots=100).get("long")
    assert elements.pop()[:4] == "0000"
    assert len(elements._first) <= limits.FETCH_SLOTS // 40
    assert [elements.pop()[:4] for _ in range(100)] == [f"{number:04}" for number in range(1, 101)]


def test_a_frozenset_that_was_discarded_as_a_set_is_not_taken(space: PersistedObjectSpace) -> None:
    sets = space.create_set("s")
    first, second, third = (frozenset({number}) for number in range(3))
    for one in (first, second, third):
        sets.add(one)
    space.checkpoint()
    assert sets.pop() == first
    sets.discard(set(second))  # type: ignore[arg-type]
    assert sets.pop() == third
    assert not sets


@pytest.mark.parametrize("is_refused", [False, True])
@pytest.mark.parametrize("popped", [1, 3, 5, 9, 25, 60])
def test_a_stack_may_be_emptied_below_what_a_save_has_on_its_way(popped: int, is_refused: bool) -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    stack = space.create_stack("s")
    expected: list[Any] = [number if number % 3 else [number] for number in range(60)]
    for value in expected:
        stack.push(value)
    space.checkpoint()
    for _ in range(3):
        assert stack.pop() == expected.pop()
    for value in ("x", [58], "y", "z"):
        stack.push(value)
        expected.append(value)
    writer = store.writer()
    space.save(writer)
    for _ in range(popped):
        assert stack.pop() == expected.pop()
    stack.push("after")
    expected.append("after")
    if is_refused:
        writer.rollback()
    else:
        writer.commit()
        space.on_saved()
    stack._check()
    space.checkpoint()
    stack._check()
    assert stack.copy() == expected
    assert PersistedObjectSpace(store).get_stack("s").copy() == expected


def test_what_was_changed_in_place_is_found_at_both_ends_of_a_queue() -> None:
    store = CheckpointStore(":memory:")
    first = PersistedObjectSpace(store)
    queue = first.create_queue("q")
    for number in range(100):
        queue.enqueue([number])
    first.checkpoint()
    space = PersistedObjectSpace(store)
    queue = space.get_queue("q")
    last = [100]
    queue.enqueue(last)
    space.checkpoint()
    queue.enqueue(["not saved yet"])
    assert queue.dequeue() == [0]
    assert space.check_mutations() == []
    queue.peek().append("in place")
    last.append("in place")
    assert space.check_mutations() == [("q", 1), ("q", 100)]


@pytest.mark.parametrize("reverse", [False, True])
def test_what_is_set_in_a_stretch_that_was_found_empty_is_found_there(
    reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 0)
    monkeypatch.setattr(limits, "PROMOTE_SHARE", 0)
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    space.create_sorted_dictionary("d").update({key: key for key in range(100)})
    space.checkpoint()
    space = PersistedObjectSpace(store)
    numbers = space.get_sorted_dictionary("d")
    ends = range(99, 49, -1) if reverse else range(50)
    for key in ends:
        assert next(numbers.irange(reverse=reverse)) == key
        del numbers[key]
    first = 49 if reverse else 50
    assert next(numbers.irange(reverse=reverse)) == first
    space.checkpoint()
    assert next(numbers.irange(reverse=reverse)) == first
    came = [60, 70] if reverse else [40, 30]
    for key in came:
        numbers[key] = "came"
        assert next(numbers.irange(reverse=reverse)) == key
        space.checkpoint()
        assert next(numbers.irange(reverse=reverse)) == key
    assert list(numbers) == sorted([*came, *(range(50) if reverse else range(50, 100))])
