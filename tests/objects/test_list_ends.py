"""A stored list is appended to without being read; what is asked for beyond its end reads the rest. Nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from checkpoint import CheckpointError, CheckpointStore
from objectspace import CheckpointProtocolError, DamagedObjectError, PersistedObjectSpace, VolatileObjectSpace
from objectspace.objects.variants import is_partial

OLD = [*range(50), "x", 2.5, [1], {"a": 1}]
"""What is stored at first, values that may be changed in place among it."""


@pytest.fixture
def store() -> Iterator[CheckpointStore]:
    """A store with one list, in the middle of which elements were inserted, at its very end too."""
    with CheckpointStore(":memory:") as store:
        space = PersistedObjectSpace(store)
        numbers = space.create_list("l")
        numbers.extend(OLD[:30] + OLD[32:-3] + OLD[-1:])
        space.checkpoint()
        numbers.insert(30, OLD[30])
        numbers.insert(31, OLD[31])
        for value in OLD[-3:-1]:
            numbers.insert(-1, value)
        space.checkpoint()
        assert list(numbers) == OLD
        yield store


def recovered(store: CheckpointStore) -> tuple[PersistedObjectSpace, Any]:
    space = PersistedObjectSpace(store)
    return space, space.get_list("l")


def stored(store: CheckpointStore) -> list[Any]:
    space, numbers = recovered(store)
    space._check()
    return list(numbers)


def appended(numbers: Any) -> None:
    """Append in every way that reads no more than the end."""
    numbers.append(1)
    numbers.extend([[2], 3])
    numbers += (value for value in [4])
    assert len(numbers) == len(OLD) + 4
    assert is_partial(numbers)


ADDED = [1, [2], 3, 4]


def end(space: PersistedObjectSpace, writer: Any, *, is_refused: bool) -> None:
    if is_refused:
        writer.rollback()
    else:
        writer.commit()
        space.on_saved()


def test_appending_reads_the_length_and_the_end(store: CheckpointStore) -> None:
    space, numbers = recovered(store)
    read: list[int] = []
    query = space._reader._query

    def _query(*args: Any) -> Any:
        found = query(*args)
        read.append(len(found))
        return found

    space._reader._query = _query  # type: ignore[method-assign]
    appended(numbers)
    assert space.checkpoint().slots == len(ADDED)
    assert sum(read) < 5
    assert list.__len__(numbers) == len(ADDED)
    assert stored(store) == OLD + ADDED


@pytest.mark.parametrize("left", [0, 1, 7, 53])
def test_a_list_that_was_shortened_in_other_checkpoints_has_another_end(store: CheckpointStore, left: int) -> None:
    expected = OLD[:left]
    for again in range(3):
        space, numbers = recovered(store)
        del numbers[left + again :]
        space.checkpoint()
        space, numbers = recovered(store)
        assert len(numbers) == left + again
        numbers.append(again)
        expected.append(again)
        assert space.checkpoint().slots <= 1 + again
        assert stored(store) == expected


TOUCHES: list[Callable[[Any], Any]] = [
    list,
    lambda numbers: repr(numbers).rstrip(")")[-9:],
    lambda numbers: numbers[0],
    lambda numbers: numbers[-1],
    lambda numbers: numbers[2:-2],
    lambda numbers: numbers == OLD + ADDED,
    lambda numbers: [0, *numbers],
    lambda numbers: [0] + numbers,  # noqa: RUF005
    lambda numbers: numbers + [0],  # noqa: RUF005
    lambda numbers: [2] in numbers,
    lambda numbers: numbers.index("x"),
    lambda numbers: list(reversed(numbers)),
    lambda numbers: numbers.copy(),
    lambda numbers: numbers.pop(),
    lambda numbers: numbers.pop(0),
    lambda numbers: numbers.insert(-2, "new"),
    lambda numbers: numbers.insert(20, "new"),
    lambda numbers: numbers.remove("x"),
    lambda numbers: numbers.reverse(),
    lambda numbers: numbers.sort(key=repr),
    lambda numbers: numbers.clear(),
    lambda numbers: numbers.__imul__(2).copy(),
    lambda numbers: numbers.__setitem__(-1, "new"),
    lambda numbers: numbers.__setitem__(5, "new"),
    lambda numbers: numbers.__setitem__(slice(40, None), ["new"]),
    lambda numbers: numbers.__delitem__(slice(None, None, 3)),
]


@pytest.mark.parametrize("saves", ["", "before", "in flight", "refused"])
@pytest.mark.parametrize("touch", range(len(TOUCHES)))
def test_what_is_asked_for_beyond_the_end_reads_the_rest(store: CheckpointStore, touch: int, saves: str) -> None:
    space, numbers = recovered(store)
    appended(numbers)
    writer = None
    if saves == "before":
        space.checkpoint()
    elif saves:
        writer = store.writer()
        space.save(writer)
    assert is_partial(numbers)
    model = OLD + ADDED
    assert TOUCHES[touch](numbers) == TOUCHES[touch](model)
    if writer is not None:
        end(space, writer, is_refused=saves == "refused")
    space._check()
    assert list(numbers) == model
    space.checkpoint()
    assert stored(store) == model
    assert space.check_mutations() == []
    assert space.checkpoint().slots == 0


@pytest.mark.parametrize("looks", [False, True])
def test_a_commit_that_fails_is_made_up_for_by_the_next(store: CheckpointStore, looks: bool) -> None:
    space, numbers = recovered(store)
    appended(numbers)
    writer = store.writer()
    space.save(writer)
    numbers.append("after the save")
    writer.rollback()
    assert not looks or list(numbers) == [*OLD, *ADDED, "after the save"]
    assert space.checkpoint().slots == len(ADDED) + 1
    assert stored(store) == [*OLD, *ADDED, "after the save"]


@pytest.mark.parametrize("is_owned", [False, True])
@pytest.mark.parametrize("saves", ["", "before", "in flight"])
def test_what_was_appended_to_an_unread_list_is_no_mutation(saves: str, is_owned: bool) -> None:
    writing = PersistedObjectSpace(CheckpointStore(":memory:"))
    group = writing.create_dictionary("g", of=list).setdefault("a")
    (group if is_owned else writing.create_list("l")).extend([1, [2]])
    writing.checkpoint()
    space = PersistedObjectSpace(writing.store)
    numbers = space.get_dictionary("g")["a"] if is_owned else space.get_list("l")
    changed: list[Any] = []
    numbers.append(changed)
    if saves == "before":
        space.checkpoint()
    elif saves:
        space.save(space.store.writer())
    numbers.append(3)
    assert is_partial(numbers)
    assert space.check_mutations() == []
    changed.append("in place")
    expected = [("g['a']" if is_owned else "l", 2)] if saves == "before" else []
    assert space.check_mutations() == expected, "an element that no checkpoint has yet is saved as it is"


def test_a_rollback_drops_what_was_appended(store: CheckpointStore) -> None:
    space, numbers = recovered(store)
    appended(numbers)
    kept = numbers.append
    space.rollback()
    assert list(numbers) == OLD
    kept("new")
    assert space.checkpoint().slots == 1
    assert stored(store) == [*OLD, "new"]


@pytest.mark.parametrize("reads_first", [False, True])
@pytest.mark.parametrize("is_cold", [False, True])
def test_a_kept_append_goes_on_in_every_state(store: CheckpointStore, is_cold: bool, reads_first: bool) -> None:
    space, numbers = recovered(store)
    if not is_cold:
        numbers.append(0)
    kept = numbers.append
    expected = OLD + ([] if is_cold else [0])
    for number in range(1, 4):
        if reads_first:
            assert list(numbers) == expected
        kept(number)
        expected.append(number)
        space.checkpoint()
        assert stored(store) == expected


STATES = ["cold", "appended", "watched", "changed"]


def in_state(store: CheckpointStore, state: str) -> Any:
    """Return a list of the values of before and 1, read so far as its state says."""
    _, numbers = recovered(store)
    if state == "watched":
        assert list(numbers) == OLD
    if state == "changed":
        numbers.reverse()
        numbers.reverse()
    if state != "cold":
        numbers.append(1)
    return numbers


@pytest.mark.parametrize("left", STATES)
@pytest.mark.parametrize("right", STATES)
def test_two_lists_are_compared_and_joined_whatever_is_read_of_them(
    store: CheckpointStore, left: str, right: str
) -> None:
    models = [OLD + [1] * (state != "cold") for state in (left, right)]
    for name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__add__", "__contains__"):
        model = [models[0][:48], models[1][:48]] if name[2:4] in ("lt", "le", "gt", "ge") else models
        handles = [in_state(store, left), in_state(store, right)]
        if model is not models:  # Of numbers alone, which compare.
            for handle in handles:
                del handle[48:]
        assert getattr(handles[0], name)(handles[1]) == getattr(model[0], name)(model[1]), name
    assert [in_state(store, left)] == [in_state(store, right)] or models[0] != models[1]
    assert in_state(store, right) in [models[1]]


def test_many_checkpoints_in_one_space_and_in_new_ones(store: CheckpointStore) -> None:
    expected = list(OLD)
    space, numbers = recovered(store)
    for number in range(200):
        if number % 7 == 0:
            space, numbers = recovered(store)
        numbers.append(number)
        expected.append(number)
        assert space.checkpoint().slots == 1
    assert is_partial(numbers)
    assert list(numbers) == expected == stored(store)


def test_an_element_that_was_appended_and_changed_in_place_is_named(store: CheckpointStore) -> None:
    space, numbers = recovered(store)
    assert len(numbers) == len(OLD)
    assert space.check_mutations() == []
    late: list[int] = [1]
    numbers.append(late)
    space.checkpoint()
    late.append(2)
    assert is_partial(numbers)
    assert space.check_mutations() == [("l", len(OLD))]
    numbers[-1] = late
    space.checkpoint()
    assert stored(store) == [*OLD, [1, 2]]


def test_what_code_in_c_takes_away_from_the_end_is_found(store: CheckpointStore) -> None:
    space, numbers = recovered(store)
    appended(numbers)
    space.checkpoint()
    assert list.pop(numbers) == ADDED[-1]
    space.checkpoint()
    assert list(numbers) == OLD + ADDED[:-1] == stored(store)


def test_extending_by_itself_and_by_what_saves_meanwhile(store: CheckpointStore) -> None:
    space, numbers = recovered(store)
    numbers.extend(numbers)
    space.checkpoint()
    space, numbers = recovered(store)

    def values() -> Iterator[int]:
        yield 1
        space.checkpoint()
        yield 2

    numbers.extend(values())
    space.checkpoint()
    assert stored(store) == [*OLD, *OLD, 1, 2]


def test_a_view_and_a_closed_space_refuse(store: CheckpointStore) -> None:
    space, numbers = recovered(store)
    with space.at(1) as past, pytest.raises(CheckpointError):
        past.get_list("l").append(1)
    with space.at(1) as past:
        assert len(past.get_list("l")) == len(OLD) - 4
    space.close()
    with pytest.raises(CheckpointProtocolError):
        numbers.append(1)


@pytest.mark.parametrize("slot", [5, "at the end"])
def test_a_damaged_list_says_so_and_keeps_what_was_appended(store: CheckpointStore, slot: Any) -> None:
    connection = store.database.conn
    if slot == "at the end":
        connection.execute("UPDATE state_item SET slot = 'z' WHERE slot = (SELECT max(slot) FROM state_item)")
    else:
        connection.execute("DELETE FROM state_item WHERE slot = ?", (slot,))
    space, numbers = recovered(store)
    with pytest.raises(DamagedObjectError, match="'l'"):
        for _ in range(2):
            numbers.append(1)
            assert list(numbers)
    space._check()
    with pytest.raises(DamagedObjectError):
        numbers.copy()


def test_a_buffer_appends_to_many_lists(store: CheckpointStore) -> None:
    space = PersistedObjectSpace(store, cache_slots=100)
    buffers = space.create_dictionary("b", of=list)
    for number in range(300):
        for key in range(5):
            buffers.setdefault(key).append([number, key])
        if number % 20 == 19:
            space.checkpoint()
            if number % 60 == 59:
                space = PersistedObjectSpace(store, cache_slots=100)
                buffers = space.get_dictionary("b")
            space._check()
    assert {key: len(values) for key, values in buffers.items()} == dict.fromkeys(range(5), 300)
    assert buffers.pop(3) == [[number, 3] for number in range(300)]


@pytest.mark.parametrize("times", [2**100, -(2**100)])
def test_a_list_is_not_repeated_more_often_than_64_bits_can_say(times: int) -> None:
    numbers: Any = VolatileObjectSpace().create_list("t")
    numbers.extend([1, 2])
    with pytest.raises(OverflowError):
        numbers *= times
    assert numbers == [1, 2]


@pytest.mark.parametrize("index", [slice(None, None, 7), slice(40, 3, -5), slice(-1, None, -2)])
def test_elements_apart_are_assigned_one_by_one(store: CheckpointStore, index: slice) -> None:
    space, numbers = recovered(store)
    places = range(len(OLD))[index]
    expected = list(OLD)
    expected[index] = numbers[index] = [-place for place in places]
    assert list(numbers) == expected
    for wrong in ([1], []):
        with pytest.raises(ValueError, match=f"{len(wrong)} values for an extended slice of {len(places)}"):
            numbers[index] = wrong
    assert space.checkpoint().slots == sum(repr(old) != repr(new) for old, new in zip(OLD, expected, strict=True))
    assert stored(store) == expected


@pytest.mark.parametrize("is_refused", [False, True])
def test_what_a_save_has_on_its_way_may_be_removed_meanwhile(store: CheckpointStore, is_refused: bool) -> None:
    space, numbers = recovered(store)
    numbers[0], numbers[-1] = "on its way", {"b": 2}
    numbers.append("new")
    writer = store.writer()
    space.save(writer)
    del numbers[-3:], numbers[0]
    end(space, writer, is_refused=is_refused)
    space._check()
    assert list(numbers) == OLD[1:-2]
    space.checkpoint()
    assert stored(store) == OLD[1:-2]


def test_a_list_that_was_emptied_one_by_one_begins_anew(store: CheckpointStore) -> None:
    space, numbers = recovered(store)
    numbers.insert(1, "between")
    for _ in range(len(numbers)):
        numbers.pop(0)
    numbers.append("first")
    numbers.append("last")
    space.checkpoint()
    assert stored(store) == ["first", "last"]


@pytest.mark.parametrize("place", [0, 1, 2, -1])
def test_stretches_that_come_to_one_place_again_and_again_stay_in_order(place: int) -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    numbers, expected = space.create_list("l"), [0, [1], 2, 3]
    numbers.extend(expected)
    for count in range(2, 30):
        space.checkpoint()
        come = [count, [count]] * count
        numbers[place:place] = come
        expected[place:place] = come
        space._check()
    space.checkpoint()
    assert stored(store) == expected
