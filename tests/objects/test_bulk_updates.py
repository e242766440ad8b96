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
    space.checkpoint()
    again = PersistedObjectSpace(store).get_dictionary("lists")
    assert again.copy() == {0: [0], 1: [7], 2: [2], 9: [8, 8], "x": []}


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
