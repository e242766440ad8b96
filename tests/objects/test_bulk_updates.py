"""Bulk updates happen wholly or not at all; two dictionaries are compared whatever is in memory of them."""

from __future__ import annotations

from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace, UnencodableValueError
from objectspace.objects import limits

NAN = float("nan")


class Level(IntEnum):
    HIGH = 3


REFUSED: list[tuple[str, Any]] = [
    ("dictionary", {5000: 1, NAN: 2}),
    ("dictionary", {5000: 1, object(): 2}),
    ("set", [5000, NAN]),
    ("set", [5000, (1, object())]),
    ("sorted_dictionary", {5000: 1, "a": 2}),
    ("sorted_dictionary", {5000: 1, NAN: 2}),
    ("sorted_dictionary", {5000.5: 1, NAN: 2}),
    ("sorted_set", [5000, "a"]),
    ("sorted_dictionary", {5000: 1, Decimal("1E+7000"): 2}),
    ("sorted_set", [5000.5, NAN]),
    ("sorted_set", [5000, Decimal("1E-7000")]),
    ("lists", {5000: [1], 1: [2], 5001: 3}),
    ("lists", {5000: [1], NAN: [2]}),
]


def stored(length: int) -> CheckpointStore:
    """Return a store of objects of all kinds that have keys."""
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    for kind in ("dictionary", "sorted_dictionary"):
        getattr(space, f"create_{kind}")(kind).update({key: key for key in range(length)})
    for kind in ("set", "sorted_set"):
        getattr(space, f"create_{kind}")(kind).update(range(length))
    space.create_dictionary("lists", of=list).update({key: [key] for key in range(length)})
    space.checkpoint()
    return store


# A dictionary or a set that is wholly in memory takes every key, and the save refuses it.
IN_MEMORY = [one for one in REFUSED if one[0] not in ("dictionary", "set")]


@pytest.mark.parametrize(
    ("name", "changes", "whole"), [(*one, 0) for one in REFUSED] + [(*one, 1000) for one in IN_MEMORY]
)
def test_an_update_that_is_refused_changes_nothing(
    name: str, changes: Any, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", whole)
    store = stored(10)
    space = PersistedObjectSpace(store)
    target = space.get(name)
    with pytest.raises((TypeError, UnencodableValueError)):
        target.update(changes)
    assert sorted(target) == list(range(10))
    assert name != "lists" or target[1] == [1]
    space._check()
    assert space.checkpoint().slots == 0


@pytest.mark.parametrize("whole", [0, 1000])
@pytest.mark.parametrize("name", ["dictionary", "set", "sorted_dictionary", "sorted_set", "lists"])
def test_keys_that_are_there_are_updated_by_what_is_equal_to_them(
    name: str, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", whole)
    space = PersistedObjectSpace(stored(10))
    target, keys = space.get(name), [np.False_, np.int64(1), Fraction(2), Level.HIGH]
    target.update({key: [5] for key in keys})
    space.checkpoint()
    space.rollback()
    assert sorted(space.get(name)) == list(range(10))
    assert {type(key) for key in space.get(name)} == {int}
    assert "set" in name or [list(space.get(name)[key]) for key in (0, 1, 2, 3)] == [[5]] * 4


def test_sorted_keys_that_do_not_compare_with_each_other_are_refused_together() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    for target in (space.create_sorted_dictionary("d"), space.create_sorted_set("s")):
        with pytest.raises(TypeError):
            target.update({1: 1, "a": 2})  # type: ignore[attr-defined]
        assert not len(target)


def test_lists_of_a_dictionary_are_put_together() -> None:
    store = stored(3)
    space = PersistedObjectSpace(store)
    lists = space.get_dictionary("lists")
    kept = lists[0]
    lists.update({0: kept, 1: [7], 9: (8, 8)}, x=[])
    assert lists[0] is kept
    lists[1] = lists[1]
    lists[1].append(1)
    kept.append(0)
    with pytest.raises(TypeError, match="unsupported operand"):
        _ = [("y", [1])] | lists
    assert lists | {"y": 1} == {**lists.copy(), "y": 1}
    space.checkpoint()
    again = PersistedObjectSpace(store).get_dictionary("lists")
    assert again.copy() == {0: [0, 0], 1: [7, 1], 2: [2], 9: [8, 8], "x": []}


@pytest.mark.parametrize("left", ["cold", "paged", "whole"])
@pytest.mark.parametrize("right", ["cold", "paged", "whole"])
def test_two_dictionaries_are_compared_whatever_is_read_of_them(
    left: str, right: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 0)
    store = stored(100)

    def in_state(state: str) -> Any:
        found = PersistedObjectSpace(store).get("dictionary")
        if state != "cold":
            assert (found[1] if state == "paged" else dict(found)[1]) == 1
        return found

    other = PersistedObjectSpace(store)
    other.get("dictionary").pop(5)
    assert in_state(left) == in_state(right)
    assert (in_state(left) != in_state(right)) is False
    assert in_state(left) != other.get("dictionary")
    assert (other.get("dictionary") == in_state(right)) is False
    assert [in_state(left)] == [in_state(right)]


def in_part(monkeypatch: pytest.MonkeyPatch, kind: str, contents: dict[Any, Any], **options: Any) -> tuple[Any, Any]:
    """Return a space with a stored object, of which nothing is read that nobody asks for, and the object."""
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 0)
    monkeypatch.setattr(limits, "PROMOTE_SHARE", 0)
    monkeypatch.setattr(limits, "EXPECT_SHARE", 0)
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    getattr(space, f"create_{kind}")("o", **options).update(contents)
    space.checkpoint()
    space = PersistedObjectSpace(store)
    return space, space.get("o")


@pytest.mark.parametrize("kind", ["dictionary", "sorted_dictionary"])
def test_values_of_several_types_that_are_read_together_are_known_as_they_are_stored(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    space, target = in_part(monkeypatch, kind, {key: [key] if key % 2 else key for key in range(40)})
    assert target.get_many(range(20)) == [[key] if key % 2 else key for key in range(20)]
    assert space.check_mutations() == []
    target[1].append(1)
    assert space.check_mutations() == [("o", 1)]
    target[3], target[4], target[5] = [3], 4, [6]
    assert space.checkpoint().slots == 1
    assert space.check_mutations() == [("o", 1)]


@pytest.mark.parametrize("kind", ["dictionary", "sorted_dictionary"])
def test_a_value_that_is_read_by_itself_is_known_as_it_is_stored(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    space, target = in_part(monkeypatch, kind, {key: [key] for key in range(40)})
    for key in range(4):
        assert target[key] == [key]
    assert space.check_mutations() == []
    target[1].append(1)
    assert space.check_mutations() == [("o", 1)]
    target[1], target[2] = target[1], [2]
    assert space.checkpoint().slots == 1
    assert space.check_mutations() == []


def test_keys_that_come_back_after_many_were_removed_are_written_if_they_hold_something_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space, target = in_part(monkeypatch, "sorted_dictionary", {key: [key] for key in range(40)})
    target.get_many(range(10))
    target.discard_many(range(5))
    target[1], target[2], target[3] = [1], [7], [3]
    target[3].append(3)
    assert space.checkpoint().slots == 4, "0 and 4 went, 2 and 3 are other lists"
    assert space.check_mutations() == []
    target[2].append(2)
    assert space.check_mutations() == [("o", 2)]
    space.rollback()
    assert target.copy() == {1: [1], 2: [7], 3: [3, 3], **{key: [key] for key in range(5, 40)}}


@pytest.mark.parametrize("kind", ["dictionary", "sorted_dictionary"])
def test_many_small_dicts_are_compared_with_what_is_stored_of_them(kind: str) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    target = getattr(space, f"create_{kind}")("o")
    target.update({key: {"n": key} for key in range(40)})
    space.checkpoint()
    target[0]["n"] = 5
    assert space.check_mutations() == [("o", 0)]
    target.update({key: {"n": key} for key in range(20)})
    assert space.checkpoint().slots == 0
    target.update({key: {"n": -key} for key in range(20)})
    assert space.checkpoint().slots == 19, "all but that of 0"
    assert space.check_mutations() == []
    target[1]["n"] = 1
    assert space.check_mutations() == [("o", 1)]


def test_a_raw_value_that_is_in_memory_is_written_if_it_differs_from_the_stored_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space, target = in_part(monkeypatch, "sorted_dictionary", {b"%d" % key: str(key) for key in range(9)}, raw=True)
    assert [target[b"%d" % key] for key in range(4)] == ["0", "1", "2", "3"]
    target[b"0"] = "x"
    target[b"1"], target[b"2"] = "y", "z"
    target[b"2"] = "2"
    assert space.checkpoint().slots == 2
    space.rollback()
    assert [target[b"%d" % key] for key in range(4)] == ["x", "y", "2", "3"]


def test_a_dictionary_in_part_is_joined_with_others_as_a_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = dict(zip("abc", range(3), strict=True))
    other = {"x": 1, "b": 7}
    for kind in ("dictionary", "sorted_dictionary"):
        space, target = in_part(monkeypatch, kind, plain)
        assert list((target | other).items()) == list((plain | other).items())
        assert list((other | target).items()) == list((other | plain).items())
        with pytest.raises(TypeError, match="unsupported operand"):
            _ = target | [("x", 1)]
        with pytest.raises(TypeError, match="unsupported operand"):
            _ = [("x", 1)] | target
        target |= other
        target |= [("c", 9)]
        assert target == plain | other | {"c": 9}
        assert bool(target)
        space.checkpoint()
        assert target.copy() == space.get("o").copy() == plain | other | {"c": 9}
        for key in list(target):
            del target[key]
        assert (bool(target), len(target), target == {}) == (False, 0, True)


@pytest.mark.parametrize("in_one", [False, True])
@pytest.mark.parametrize("kind", ["sorted_dictionary", "sorted_set"])
def test_a_key_without_a_place_among_the_slots_has_one_in_the_order(
    kind: str, in_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    space, target = in_part(monkeypatch, kind, dict.fromkeys(range(40)))
    assert 7 in target
    beyond = [-(2**70), 2**70]
    for new in [beyond] if in_one else [[key] for key in beyond]:
        target.update(dict.fromkeys(new) if kind == "sorted_dictionary" else new)
    expected = [-(2**70), *range(40), 2**70]
    assert (list(target), list(reversed(target))) == (expected, expected[::-1])
    assert list(target.irange(38)) == expected[-3:]
    space._check()
    assert space.checkpoint().slots == 2
    assert list(PersistedObjectSpace(space.store).get("o")) == expected


def test_an_object_that_is_put_in_its_own_place_outlives_an_update_that_is_refused() -> None:
    space = PersistedObjectSpace(stored(3))
    lists = space.get_dictionary("lists")
    kept = lists[0]
    with pytest.raises(TypeError):
        lists.update({0: kept, 1: [7], 2: 5})
    kept.append("still here")
    assert lists.copy() == {0: [0, "still here"], 1: [1], 2: [2]}


@pytest.mark.parametrize("keys", [[(1, 2), "a"], [1.5, True], [frozenset({1})]])
def test_keys_of_any_type_are_updated_together(keys: list[Any]) -> None:
    space = PersistedObjectSpace(stored(200))
    dictionary = space.get_dictionary("dictionary")
    expected = dictionary.copy() | dict.fromkeys(keys, "new")
    dictionary.update(dict.fromkeys(keys, "new"))
    assert dictionary == expected
    assert space.checkpoint().slots == len(keys)
    assert PersistedObjectSpace(space.store).get_dictionary("dictionary").copy() == expected


def test_a_key_that_is_set_twice_between_two_saves_holds_what_came_last() -> None:
    space = PersistedObjectSpace(stored(100))
    dictionary = space.get_dictionary("dictionary")
    for value in ("first", [2], "last"):
        dictionary[5] = value
        assert dictionary[5] == value
    dictionary[6], dictionary[6] = "other", 6
    assert space.checkpoint().slots == 1
    assert PersistedObjectSpace(space.store).get_dictionary("dictionary")[5] == "last"


@pytest.mark.parametrize(
    ("of", "contents"),
    [("sparse_array", {-3: "a", 10**12: [1]}), ("value", {"x": 1}), ("queue", [1, [2]]), ("linked_list", [3, 4])],
)
def test_objects_of_a_dictionary_begin_with_the_contents_they_are_given(of: Any, contents: Any) -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    space.create_dictionary("d", of=of)["k"] = contents
    space.checkpoint()
    found: Any = PersistedObjectSpace(store).get_dictionary("d")["k"]
    assert (found.value if of == "value" else type(contents)(found.copy())) == contents
