"""What is copied as a plain container, and what is neither copied nor pickled."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from objectspace import (
    PersistedObjectSpace,
    VolatileObjectSpace,
)
from tests.objects.kinds import PUTS, create, every_kind


@every_kind
def test_handles_are_copied_as_plain_containers_and_never_pickled(space: PersistedObjectSpace, kind: str) -> None:
    handle = create(space, kind, "t")
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(handle)
    assert type(handle.copy()).__module__ != type(handle).__module__ if hasattr(handle, "copy") else kind
    if kind in ("list", "dictionary"):
        assert type(copy.copy(handle)) is type(copy.deepcopy(handle)) is {"list": list, "dictionary": dict}[kind]
    with pytest.raises(TypeError, match="belongs to a space"):
        type(handle)()


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, pickle.dumps])
def test_spaces_and_stores_are_neither_copied_nor_pickled(
    space: PersistedObjectSpace, clone: Callable[[Any], Any]
) -> None:
    found: dict[Any, str] = {
        space: r"open the store .*fork\(\)",
        space.store: r"open :memory: .*fork\(\)",
        space.store.reader(): "open the store",
        space.store.writer(): "open another writer",
        VolatileObjectSpace(): "it has no store: make another one",
    }
    for one, instead in found.items():
        with pytest.raises(TypeError, match=f"{type(one).__name__}.* is neither copied nor pickled: {instead}"):
            clone(one)


@pytest.mark.parametrize(
    "kind", ["array", "list", "queue", "stack", "linked_list", "set", "dictionary", "sorted_dictionary"]
)
def test_an_object_that_holds_nan_is_equal_to_itself_and_its_copy(space: PersistedObjectSpace, kind: str) -> None:
    handle = create(space, kind, "t")
    PUTS[kind](handle, math.nan)
    assert handle == handle
    assert handle == handle.copy()


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, pickle.dumps])
def test_nodes_and_views_have_one_place_and_views_of_ranges_are_copied_as_sets(
    space: PersistedObjectSpace, clone: Callable[[Any], Any]
) -> None:
    node = space.create_linked_list("l").add_last([1])
    dictionary, ordered = space.create_dictionary("d"), space.create_sorted_dictionary("s")
    for found in (dictionary, ordered):
        found.update({1: [1], 2: [2]})
    views = [view() for found in (dictionary, ordered) for view in (found.keys, found.values, found.items)]
    for taken in (node, *views):
        with pytest.raises(TypeError, match="not copied or pickled"):
            clone(taken)
    space.create_sorted_set("q").update(range(9))
    view = space.get("q").view_between(3, 5)
    if clone is pickle.dumps:
        with pytest.raises(TypeError, match="view of SortedSet 'q' is not pickled"):
            clone(view)
    else:
        assert (type(clone(view)), clone(view)) == (set, {3, 4, 5})


@pytest.mark.parametrize("kind", ["array", "queue", "stack", "linked_list"])
def test_containers_of_one_length_are_equal_if_their_elements_are(kind: str) -> None:
    space = VolatileObjectSpace()

    def made(name: str, *values: Any) -> Any:
        if kind == "array":
            array = space.create_array(name, len(values))
            array[:] = values
            return array
        target = getattr(space, f"create_{kind}")(name)
        put = {"queue": "enqueue", "stack": "push", "linked_list": "add_last"}[kind]
        for value in values:
            getattr(target, put)(value)
        return target

    one, same, other, longer = made("a", 1, 2), made("b", 1, 2.0), made("c", 1, 3), made("d", 1, 2, 3)
    assert one == same
    assert one == list(one)
    for unequal in (other, longer, [1, 3], [3, 1], [], dict.fromkeys(one)):
        assert one != unequal
        assert unequal != one


def test_the_first_and_the_last_node_of_a_value_are_found_or_none() -> None:
    nodes = VolatileObjectSpace().create_linked_list("l")
    assert nodes.find(1) is nodes.find_last(1) is None
    first, _, last = nodes.add_last(1), nodes.add_last(2), nodes.add_last(1)
    assert (nodes.find(1), nodes.find_last(1)) == (first, last)
    assert nodes.find(3) is nodes.find_last(3) is None


@pytest.mark.parametrize("kind", ["dictionary", "sorted_dictionary"])
def test_mappings_of_one_length_are_equal_if_their_items_are(kind: str) -> None:
    space = VolatileObjectSpace()
    one, other = (getattr(space, f"create_{kind}")(name) for name in "ab")
    one.update({1: "a", 2: "b"})
    other.update({1: "a", 2: "c"})
    assert one == {2: "b", 1: "a"}
    for unequal in (other, {1: "a", 3: "b"}, {1: "a"}, {1: "a", 2: "b", 3: "c"}, [1, 2]):
        assert one != unequal
    assert (1, "a") in one.items()
    for absent in ((1,), (1, "b"), (1, "a", 2), (3, None), [1, "a"], 1):
        assert absent not in one.items()
