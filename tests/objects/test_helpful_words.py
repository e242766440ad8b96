"""Mistakes that are easily made are answered with what to do instead."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from checkpoint import EpochTypeError
from objectspace import (
    CheckpointProtocolError,
    PersistedObjectSpace,
    UnencodableValueError,
    VolatileObjectSpace,
    WrongKindError,
)
from objectspace.objects import Dictionary, ObjectDictionary, SortedDictionary, limits
from objectspace.operators import Pipeline, avg
from objectspace.part import SpacePart
from objectspace.relational import Column, SchemaError, StateTable, TableSchema
from tests.objects.kinds import create, every_kind


def put_a_list_into_a_dictionary() -> None:
    space = VolatileObjectSpace()
    space.create_dictionary("d")["l"] = space.create_list("l")
    space.check_mutations()
    space.get("d")._encode(space.get("l"), "l")


def average_of_text() -> None:
    rows = Pipeline().source("rows", {"id": "int64", "name": "string"}, key=["id"])
    rows.agg(mean=avg("name"))


def groups() -> Any:
    """Return a space with a dictionary of lists, and a plain one."""
    space = VolatileObjectSpace()
    space.create_dictionary("plain")["a"] = 1
    space.create_dictionary("groups", of=list)["a"] = [1]
    return space


HUGE, HUGE_SHOWN = 10**5000, "an int of 16610 bits"
"""An integer of more digits than Python writes, and what messages say instead."""


def space_with_a_huge_key(value: Any) -> PersistedObjectSpace:
    space = PersistedObjectSpace.open(":memory:")
    space.create_dictionary("d")[HUGE] = value
    return space


def one_of_each() -> Any:
    """Return a space with an object of each kind that has an order, which has the kind's name."""
    space = VolatileObjectSpace()
    space.create_list("list").append(1)
    space.create_array("array", 3)
    space.create_sparse_array("sparse_array")
    space.create_sorted_set("sorted_set").add(1)
    space.create_sorted_dictionary("sorted_dictionary")[1] = 1
    return space


def sorted_set() -> Any:
    return VolatileObjectSpace().create_sorted_set("s")


def view_of_nothing() -> Any:
    return sorted_set().view_between(7, 9)


def put_what_cannot_be_stored_between(*, is_recovered: bool) -> None:
    space = PersistedObjectSpace.open(":memory:")
    space.create_list("l").extend(range(9))
    space.checkpoint()
    if is_recovered:
        space.rollback()
        space.get("l").append(object())
    else:
        space.get("l").insert(3, object())
    space.checkpoint()


def open_a_table_where_a_list_has_the_name_of_the_catalogue() -> None:
    space = groups()
    space.create_list("$tables")
    StateTable(space, "t", TableSchema([Column("k", "int64")], ["k"]))


MISTAKES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (put_a_list_into_a_dictionary, UnencodableValueError, r"store handle.copy\(\), or make the dictionary with"),
    (lambda: SpacePart(VolatileObjectSpace(), "op/").checkpoint(), CheckpointProtocolError, "whoever has the space"),
    (lambda: SpacePart(VolatileObjectSpace(), "op/").rollback(), CheckpointProtocolError, "whoever has the space"),
    (lambda: Pipeline().run_local({"rows": []}), TypeError, "a list of mappings, one for each epoch"),  # type: ignore[arg-type]
    (lambda: put_what_cannot_be_stored_between(is_recovered=False), UnencodableValueError, "List 'l', index 3: object"),
    (lambda: put_what_cannot_be_stored_between(is_recovered=True), UnencodableValueError, "List 'l', index 9: object"),
    (lambda: groups().get("groups").pop("a", 1, 2), TypeError, "at most 2 arguments, got 3"),
    (lambda: Dictionary.fromkeys("ab"), TypeError, r"use space\.create_dictionary\(name\)"),  # type: ignore[arg-type]
    (
        lambda: SortedDictionary.fromkeys("ab"),  # type: ignore[arg-type]
        TypeError,
        r"belongs to a space: use space\.create_sorted_dictionary\(name\)",
    ),
    (
        lambda: ObjectDictionary.fromkeys("ab"),  # type: ignore[arg-type]
        TypeError,
        r"belongs to a space: use space\.create_dictionary\(name, of=\.\.\.\)",
    ),
    (lambda: groups().get_or_create_dictionary("groups"), WrongKindError, "exists with of='list': pass it"),
    (lambda: groups().get_or_create_dictionary("plain", of=list), WrongKindError, "exists without of: leave it out"),
    (lambda: groups().create_dictionary("d", of="x"), ValueError, "'linked_list', 'list', 'queue'"),
    (
        lambda: groups().create_dictionary("d", of=ObjectDictionary),
        ValueError,
        "of is .*ObjectDictionary'>: expected list",
    ),
    (lambda: groups().get_or_create_dictionary("d", of=[]), ValueError, r"of is \[\]: expected list, dict, set or the"),
    (
        open_a_table_where_a_list_has_the_name_of_the_catalogue,
        WrongKindError,
        "the library's; if yours .*, rename it",
    ),
    (lambda: view_of_nothing().pop(), KeyError, "is empty here: there is nothing to pop"),
    (lambda: view_of_nothing().view_between(8, math.nan), TypeError, "nan has no place"),
    (lambda: sorted_set().add(Fraction(1, 3)), TypeError, r"Fraction\(1, 3\) has no place .*: .* has no stored form"),
    (
        lambda: sorted_set().add(np.True_),
        TypeError,
        r"np\.True_ has no place .*: .* is a numpy type: store value\.item",
    ),
    (lambda: sorted_set().add(1j), TypeError, "1j has no place .*: keys of type complex have no total order"),
    (lambda: groups().get("groups").update(b=5), TypeError, "'groups', key 'b': found 5 for an object of kind List"),
    (lambda: groups().get("groups").setdefault("b", None), TypeError, "'groups', key 'b': found None"),
    (
        lambda: space_with_a_huge_key(object()).checkpoint(),
        UnencodableValueError,
        f"'d', slot {HUGE_SHOWN}: object has",
    ),
    (lambda: one_of_each().get("list").pop(HUGE), IndexError, f"has 1 elements, none at {HUGE_SHOWN}"),
    (lambda: one_of_each().get("array")[-HUGE], IndexError, f"has 3 elements, none at {HUGE_SHOWN}"),
    (lambda: one_of_each().get("sparse_array")[HUGE], IndexError, f"index {HUGE_SHOWN} has more than 64 bits"),
    (lambda: one_of_each().get("sorted_set").pop(HUGE), IndexError, f"none at {HUGE_SHOWN}"),
    (lambda: one_of_each().get("sorted_set").view_between(0, 9).pop(HUGE), IndexError, f"none at {HUGE_SHOWN}"),
    (lambda: one_of_each().get("sorted_set").view_between(HUGE, 1), ValueError, f"{HUGE_SHOWN} is greater than 1"),
    (lambda: one_of_each().get("sorted_dictionary").popitem(HUGE), IndexError, f"none at {HUGE_SHOWN}"),
    (lambda: groups().create_array("a", HUGE), ValueError, f"array 'a': the length is {HUGE_SHOWN}: expected 0 to"),
    (lambda: VolatileObjectSpace(cache_slots=-HUGE), ValueError, f"cache_slots is {HUGE_SHOWN}: keep at least 1"),
    (lambda: groups().create_list(HUGE), TypeError, f"a name is text: found {HUGE_SHOWN} of type int"),
    (lambda: space_with_a_huge_key(1).at(HUGE), EpochTypeError, f"epoch is {HUGE_SHOWN}: expected an int of 64 bits"),
    (
        lambda: groups().create_tensor("t", (2,), "int8", fill=300),
        ValueError,
        "fill of a tensor is 300: expected a number that fits its dtype int8",
    ),
    (lambda: groups().create_tensor("t", (2,), fill=[]), ValueError, r"fill of a tensor is \[\]: expected a number"),
    (average_of_text, SchemaError, "'name' is string: expected decimal, float32, float64, int16"),
]


@pytest.mark.parametrize("length", ["3", 3.0, None, True])
def test_a_length_that_is_no_whole_number_is_refused_with_the_array(length: Any) -> None:
    space = VolatileObjectSpace()
    for make in (space.create_array, space.get_or_create_array):
        with pytest.raises(TypeError, match=rf"^array 'a': the length is {length!r}: expected a whole number"):
            make("a", length)
    assert "a" not in space


USES_OF_AN_INDEX: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("array", lambda array, index: array[index]),
    ("array", lambda array, index: array.__setitem__(index, 1)),
    ("array", lambda array, index: array.index(1, index)),
    ("list", lambda target, index: target.insert(index, 1)),
    ("list", lambda target, index: target.pop(index)),
    ("sparse_array", lambda array, index: array[index]),
    ("sparse_array", lambda array, index: array.__setitem__(index, 1)),
    ("sparse_array", lambda array, index: array.__delitem__(index)),
    ("sparse_array", lambda array, index: array[0:index]),
    ("sparse_array", lambda array, index: list(array.assigned(index))),
    ("sorted_set", lambda target, index: target.pop(index)),
    ("sorted_set", lambda target, index: target.view_between(0, 9).pop(index)),
    ("sorted_dictionary", lambda target, index: target.peekitem(index)),
    ("sorted_dictionary", lambda target, index: target.popitem(index)),
]


@pytest.mark.parametrize("index", ["1", 1.0, b""])
@pytest.mark.parametrize(("name", "use"), USES_OF_AN_INDEX)
def test_an_index_that_is_no_whole_number_is_refused_with_the_object(
    name: str, use: Callable[[Any, Any], Any], index: Any
) -> None:
    target = one_of_each().get(name)
    before = target.copy()
    with pytest.raises(TypeError, match=rf"'{name}': the index is {index!r}: expected a whole number"):
        use(target, index)
    assert target.copy() == before


def test_an_index_that_numpy_refuses_is_refused_with_the_tensor() -> None:
    tensor = VolatileObjectSpace().create_tensor("t", (2, 3))
    for index, told in [((0, 3), "index 3 is out of bounds for axis 1 with size 3"), ("a", "only integers, slices")]:
        for use in (lambda at: tensor[at], lambda at: tensor.__setitem__(at, 1)):
            with pytest.raises(IndexError, match=rf"^Tensor 't': {told}"):
                use(index)
    assert tensor.touched() == 0


@pytest.mark.parametrize("lengths", ["3", 3.0, (1, None)])
def test_lengths_of_a_tensor_that_are_no_whole_numbers_are_refused_in_words(lengths: Any) -> None:
    space = VolatileObjectSpace()
    with pytest.raises(TypeError, match=r"the shape of a tensor: found .*, expected a whole number for each dimension"):
        space.create_tensor("t", lengths)
    with pytest.raises(
        TypeError, match=r"the chunks of a tensor: found .*, expected a whole number for each dimension"
    ):
        space.create_tensor("t", (2, 2), chunks=lengths)
    assert "t" not in space


@pytest.mark.parametrize(("mistake", "kind", "message"), MISTAKES)
def test_a_mistake_is_answered_with_what_to_do(mistake: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        mistake()


@pytest.mark.parametrize("kind", ["list", "queue", "stack", "linked_list", "set", "sorted_set"])
@pytest.mark.parametrize("contents", [5, None, 0.5])
def test_what_has_no_values_is_refused_as_an_object_and_changes_nothing(kind: str, contents: Any) -> None:
    assert refuses(kind, contents, TypeError, "expected an iterable of values")


@pytest.mark.parametrize("kind", ["dictionary", "sorted_dictionary", "sparse_array"])
@pytest.mark.parametrize(
    ("contents", "error"),
    [(5, TypeError), (None, TypeError), ([1], TypeError), ([(1, 2, 3)], ValueError), ("ab", ValueError)],
)
def test_what_has_no_pairs_is_refused_as_an_object_and_changes_nothing(
    kind: str, contents: Any, error: type[Exception]
) -> None:
    assert refuses(kind, contents, error, "expected a mapping or pairs")


def refuses(kind: str, contents: Any, error: type[Exception], expected: str) -> bool:
    """Tell whether contents that are refused by name, for a new key and for one that is there, change nothing."""
    space = PersistedObjectSpace.open(":memory:")
    groups = space.create_dictionary("groups", of=kind)
    present = groups.setdefault("there")
    space.checkpoint()
    for key in ("new", "there"):
        with pytest.raises(error, match=rf"'groups', key '{key}': found .* for an object of kind .*: {expected} \("):
            groups[key] = contents
    return (list(groups), groups["there"], space.checkpoint().slots) == (["there"], present, 0)


@every_kind
def test_an_object_has_the_name_of_its_public_class_in_every_state(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 0)
    space = PersistedObjectSpace.open(":memory:")
    handle, public = create(space, kind, "o"), kind.title().replace("_", "")
    for reach_state in (lambda: None, space.checkpoint, space.rollback, lambda: repr(handle), space.close):
        reach_state()
        assert (type(handle).__name__, type(handle).__qualname__) == (public, public)


def test_a_library_that_is_not_installed_is_named_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("checkpoint.extras.find_spec", lambda name: None if name == "numpy" else found(name))
    with pytest.raises(ImportError, match=r"takes numpy, .*pip install 'objectspace\[tensor\]'"):
        VolatileObjectSpace().create_tensor("t", (2, 2))
