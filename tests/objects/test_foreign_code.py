"""What edits are given may run any code while it is read: a checkpoint, a rollback; and other threads may read."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from checkpoint import CheckpointStore
from objectspace import CheckpointProtocolError, ObjectNotFoundError, PersistedObjectSpace
from tests.objects.interruptions import interrupted

FEW_SLOTS = 10


def reopened(space: PersistedObjectSpace) -> PersistedObjectSpace:
    return PersistedObjectSpace(space.store)


def saving(space: PersistedObjectSpace, numbers: range) -> Iterator[int]:
    """Yield numbers, and take a checkpoint before each, which drops what is clean from the memory."""
    for number in numbers:
        space.checkpoint()
        yield number


@pytest.mark.parametrize("cache_slots", [FEW_SLOTS, 10_000])
@pytest.mark.parametrize("kind", ["set", "sorted_set"])
def test_elements_that_save_while_they_are_read_are_added(kind: str, cache_slots: int) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"), cache_slots=cache_slots)
    target = getattr(space, f"create_{kind}")("t")
    target.update(range(60))
    space.create_list("other").extend(range(60))
    space.checkpoint()
    target.update(saving(space, range(60, 70)))
    space.checkpoint()
    assert sorted(reopened(space).get("t")) == sorted(target) == list(range(70))


def test_a_sort_whose_key_saves_is_saved() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    numbers = space.create_list("t")
    numbers.extend(range(10))

    def key(number: int) -> int:
        space.checkpoint()
        return -number

    numbers.sort(key=key)
    space.checkpoint()
    assert list(reopened(space).get("t")) == list(numbers) == list(range(9, -1, -1))


EDITS: list[tuple[str, str, set[int]]] = [
    ("set", "update", {1, 100, 101}),
    ("sorted_set", "update", {1, 100, 101}),
    ("dictionary", "update", {1, 100, 101}),
    ("sorted_dictionary", "update", {1, 100, 101}),
    ("dictionary", "discard_many", set()),
    ("sorted_dictionary", "discard_many", set()),
]
"""Edits that are given 1, 100 and 101 one by one, and which of them are there afterwards."""


def filled(space: PersistedObjectSpace, kind: str, count: int) -> Any:
    """Return a stored object that has the keys or elements up to a count, with an edit of one of them."""
    target = getattr(space, f"create_{kind}")("t")
    target.update(dict.fromkeys(range(count), 0) if kind.endswith("dictionary") else range(count))
    space.checkpoint()
    target.update({1: 1} if kind.endswith("dictionary") else [-1])
    return target


@pytest.mark.parametrize("count", [9, 3000])
@pytest.mark.parametrize(("kind", "method", "there"), EDITS)
def test_what_goes_back_to_a_checkpoint_while_it_is_read_is_put_in_after_that(
    kind: str, method: str, there: set[int], count: int
) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    target = filled(space, kind, count)

    def values() -> Iterator[Any]:
        for number in (1, 100 + count, 101 + count):
            if number > 1:
                space.rollback()
            yield (number, "new") if method == "update" and kind.endswith("dictionary") else number

    getattr(target, method)(values())
    space._check()
    space.checkpoint()
    wanted = (set(range(count)) - {1}) | {number + count * (number > 1) for number in there}
    assert set(reopened(space).get("t")) == set(target) == wanted


@pytest.mark.parametrize("kind", ["array", "sparse_array", "sorted_dictionary"])
@pytest.mark.parametrize("end", ["delete", "close"])
def test_values_that_delete_what_they_are_for_are_refused(kind: str, end: str) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    target: Any = space.create_array("t", 9) if kind == "array" else getattr(space, f"create_{kind}")("t")
    target[0] = target[1] = 0
    space.checkpoint()
    target[0] = target[1] = 1

    def values() -> Iterator[Any]:
        yield (0, 2) if kind == "sorted_dictionary" else 2
        space.close() if end == "close" else space.delete("t")
        yield (1, 2) if kind == "sorted_dictionary" else 2

    with pytest.raises((ObjectNotFoundError, CheckpointProtocolError), match=r"deleted|closed"):
        target.update(values()) if kind == "sorted_dictionary" else target.__setitem__(slice(0, 2), values())


def test_an_index_that_changes_the_list_deletes_from_what_it_has_become() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    numbers = space.create_list("t")
    numbers.extend(range(60))
    space.checkpoint()

    class Changing:
        def __index__(self) -> int:
            numbers[7] = -7
            return 5

    del numbers[Changing() : 9]
    space.checkpoint()
    assert reopened(space).get("t") == numbers == [*range(5), *range(9, 60)]


def test_a_slice_of_a_list_whose_values_go_back_to_a_checkpoint_is_set_after_that() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    target = space.create_list("t")
    target.extend(range(200))
    space.checkpoint()
    target[100] = -1

    def values() -> Iterator[str]:
        yield "a"
        space.rollback()
        yield "b"

    target[3:7] = values()
    space.checkpoint()
    assert list(reopened(space).get("t")) == list(target) == [0, 1, 2, "a", "b", *range(7, 200)]


def test_a_sort_whose_key_goes_back_to_a_checkpoint_is_refused() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    target = space.create_list("t")
    target.extend([3, 1, 2])
    space.checkpoint()
    target[0] = 9
    with pytest.raises(CheckpointProtocolError, match="from before a rollback"):
        target.sort(key=lambda value: space.rollback() or value)
    assert list(target) == [3, 1, 2]


@pytest.mark.parametrize("of", ["dictionary", "list", "set"])
def test_contents_that_go_back_to_a_checkpoint_are_not_put_in(of: str) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    owner = space.create_dictionary("d", of=of)
    owner["a"] = {1: 1} if of == "dictionary" else [1]
    space.checkpoint()

    def contents() -> Iterator[Any]:
        yield (2, 2)
        space.rollback()
        yield (3, 3)

    with pytest.raises((ObjectNotFoundError, CheckpointProtocolError)):
        owner["n"] = contents()
    space.checkpoint()
    assert list(reopened(space).get("d")) == ["a"]


@pytest.mark.parametrize("kind", ["dictionary", "list"])
def test_an_assignment_that_was_kept_since_the_save_loses_no_other_edit(kind: str) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    target: Any = getattr(space, f"create_{kind}")("t")
    (target.extend if kind == "list" else target.update)([0] * 9 if kind == "list" else dict.fromkeys(range(9), 0))
    space.checkpoint()
    put = target.__setitem__
    for key in range(9):
        put(key, "kept") if key % 2 else target.__setitem__(key, "plain")
    if kind == "dictionary":
        take = target.__delitem__
        target.update({20: 1, 21: 2})
        put(22, 3)
        take(20)
    space.checkpoint()
    assert reopened(space).get("t") == target
    assert space.check_mutations() == []


@pytest.mark.parametrize("read", [lambda d: d[777], lambda d: d.get_many(range(100, 110)), lambda d: d.get(5)])
def test_a_read_that_is_interrupted_changes_nothing(read: Any) -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    space.create_dictionary("d").update(dict.fromkeys(range(3000), 0))
    space.checkpoint()
    lines, came = 0, True
    while came:
        space = PersistedObjectSpace(store, cache_slots=60)
        target = space.get("d")
        assert target[1] == 0
        came = interrupted(lambda target=target: read(target), lines)
        assert space.checkpoint().slots == 0
        lines += 3
    assert list(reopened(space).get("d")) == list(range(3000))
    assert lines > 30


@pytest.mark.parametrize(("kind", "add"), [("set", "add"), ("list", "append"), ("queue", "enqueue")])
def test_a_rollback_that_is_interrupted_can_be_done_again(kind: str, add: str, apart: int) -> None:
    lines, came = 0, True
    while came:
        space = PersistedObjectSpace(CheckpointStore(":memory:"))
        target = getattr(space, f"create_{kind}")("t")
        getattr(target, add)(1)
        space.checkpoint()
        getattr(target, add)(2)
        came = interrupted(space.rollback, lines)
        space.rollback()
        assert space.get("t") is target
        space.checkpoint()
        assert list(reopened(space).get("t")) == list(target) == [1]
        lines += apart
    assert lines > 50


def test_an_assignment_to_a_long_array_that_was_cut_in_two_is_refused() -> None:
    lines, came, ends = 0, True, set()
    while came:
        space = PersistedObjectSpace(CheckpointStore(":memory:"))
        array = space.create_array("a", 2000)
        space.checkpoint()
        came = interrupted(lambda array=array: array.__setitem__(slice(5, 8), [1, 2, 3]), lines)
        try:
            space.checkpoint()
            ends.add("saved")
        except CheckpointProtocolError:
            ends.add("refused")
        lines += 1
    assert ends == {"saved", "refused"}


def test_a_thread_that_reads_a_dictionary_does_not_make_a_save_of_another_object_change_it() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"), cache_slots=200)
    big, value = space.create_dictionary("big"), space.create_value("v", 0)
    big.update(dict.fromkeys(range(2000), 0))
    space.checkpoint()
    ended = threading.Event()

    def read() -> None:
        start = 0
        while not ended.is_set():
            big.get_many(range(start % 1900, start % 1900 + 90))
            start += 97

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(1, 300):
            value.value = number
            assert space.checkpoint().slots == 1
    finally:
        ended.set()
        reader.join()
        sys.setswitchinterval(before)
    assert reopened(space).get("big") == dict.fromkeys(range(2000), 0)
