"""The slices of a sparse array reach as far as its indexes: over all 64 bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from objectspace import PersistedObjectSpace, VolatileObjectSpace

LOW, HIGH = -(2**63), 2**63 - 1


@pytest.fixture
def array() -> Any:
    made = VolatileObjectSpace().create_sparse_array("a", default=0)
    made[LOW], made[5], made[HIGH] = 1, 2, 3
    return made


def test_it_is_equal_to_a_dict_of_what_is_assigned(array: Any) -> None:
    assert array == {LOW: 1, 5: 2, HIGH: 3} == array.copy()
    assert array != {LOW: 1, 5: 2}
    assert array != [1, 2, 3]


def test_a_slice_may_hold_the_first_and_the_last_index(array: Any) -> None:
    assert array[HIGH - 1 : HIGH + 1] == [0, 3]
    assert array[LOW + 1 : LOW - 1 : -1] == [0, 1]
    assert array[LOW:HIGH:HIGH] == [1, 0, 0]
    array[LOW : HIGH + 1 : HIGH] = [6, 7, 8]
    del array[LOW:HIGH]
    assert array.copy() == {HIGH: 3}


@pytest.mark.parametrize("index", [LOW - 1, HIGH + 1, slice(LOW - 1, 5), slice(5, HIGH + 2), slice(5, LOW - 2, -1)])
def test_an_index_beyond_them_is_refused(array: Any, index: Any) -> None:
    with pytest.raises(IndexError, match=r"'a': the index .* has more than 64 bits"):
        _ = array[index]


def test_a_slice_of_more_indexes_than_a_list_can_have_is_refused(array: Any) -> None:
    with pytest.raises(ValueError, match=r"'a': a slice of 18446744073709551616 indexes .* use assigned"):
        _ = array[LOW : HIGH + 1]
    with pytest.raises(ValueError, match="1 values for a slice of 18446744073709551615"):
        array[LOW:HIGH] = [1]


def test_a_slice_that_no_memory_can_hold_is_refused_at_once(array: Any) -> None:
    with pytest.raises(MemoryError):
        array[0 : 2**60]


def test_an_array_that_is_longer_than_python_counts_is_refused() -> None:
    with pytest.raises(ValueError, match="use a sparse array"):
        VolatileObjectSpace().create_array("a", 2**63)


@pytest.mark.parametrize("whole", [0, 1024], ids=["paged", "in memory"])
def test_it_runs_backwards_over_what_is_assigned(monkeypatch: pytest.MonkeyPatch, whole: int) -> None:
    monkeypatch.setattr("objectspace.objects.limits.WHOLE_SLOTS", whole)
    space = PersistedObjectSpace.open(":memory:")
    space.create_sparse_array("a")[LOW] = 1
    space.get("a")[7] = 2
    space.checkpoint()
    space.rollback()
    space.get("a")[-3] = 3
    assert list(reversed(space.get("a"))) == [7, -3, LOW]


class Walked(dict[int, Any]):
    """Slots that count how often all of them are gone through."""

    walks = 0

    def __iter__(self) -> Iterator[int]:
        self.walks += 1
        return super().__iter__()


def test_all_slots_in_memory_are_gone_through_only_if_some_came_or_went_and_the_range_is_wide() -> None:
    array = VolatileObjectSpace().create_sparse_array("a")
    for index in reversed(range(100)):
        array[index] = index
    live = array._table.live = Walked(array._table.live)
    for index in range(20):
        del array[index : index + 1]
        assert list(array.assigned(index, index + 3)) == [(place, place) for place in (index + 1, index + 2)]
    assert live.walks == 0
    for place in range(20, 30):
        array[place] = -1
        assert next(iter(array)) == 20
        assert next(reversed(array)) == 99
        assert list(array.assigned(50, 53)) == [(50, 50), (51, 51), (52, 52)]
    assert live.walks == 1
    for change in (lambda: array.__setitem__(200, 0), lambda: array.__delitem__(99), lambda: array.__delitem__(200)):
        change()
        assert list(array) == sorted(live)
    array.clear()
    assert list(array) == []


def test_its_order_is_that_of_what_a_rollback_brings_back() -> None:
    space = PersistedObjectSpace.open(":memory:")
    array = space.create_sparse_array("a")
    array[3], array[1] = 1, 1
    space.checkpoint()
    del array[3]
    array[2] = 1
    assert list(array) == [1, 2]
    space.rollback()
    assert (list(array), list(reversed(array))) == ([1, 3], [3, 1])


def test_two_are_equal_if_their_defaults_and_what_is_assigned_are() -> None:
    space = VolatileObjectSpace()
    one, same, other = (space.create_sparse_array(name, default=int(name == "o")) for name in ("a", "b", "o"))
    for array in (one, same, other):
        array[3] = 7
    assert one == same
    assert one != other
    same[4] = 0
    assert one != same, "what is assigned counts, even if it is the default"


def test_an_empty_slice_takes_and_gives_nothing(array: Any) -> None:
    before = array.copy()
    assert array[5:5] == []
    array[5:5] = []
    del array[5:5]
    with pytest.raises(ValueError, match="1 values for a slice of 0"):
        array[5:5] = [1]
    assert array.copy() == before
