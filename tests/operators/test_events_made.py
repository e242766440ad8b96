"""The operators of groups, windows and inner sequences: what makes them, and what is no operator or another's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace, VolatileObjectSpace
from objectspace.operators.events import (
    Average,
    Buffer,
    Chain,
    CombineLatest,
    Concat,
    EventOperator,
    GroupBy,
    Select,
    SelectMany,
    SkipUntil,
    Take,
    Where,
    Window,
    Zip,
)

Making = Callable[[Any], Any]

GROUPS: list[Callable[[Making], EventOperator]] = [
    lambda make: GroupBy(lambda value: value, make),
    lambda make: Window(1, make),
    lambda make: Window(None, make, duration=10, shift=5),
    lambda make: Window(2, make, duration=10),
    lambda make: SelectMany(make),
]
"""Operators that call a function for the first value."""


def opened(operator: Any, space: Any = None) -> Any:
    operator.open(VolatileObjectSpace() if space is None else space, "op")
    return operator


def failing(*failures: Any) -> Making:
    """Return a function that returns these values, or raises them, in turn, and then operators."""
    left = list(failures)

    def _make(key: Any) -> Any:
        found = left.pop(0) if left else Buffer(count=1)
        if isinstance(found, Exception):
            raise found
        return found

    return _make


def raising(key: Any) -> EventOperator:
    raise ZeroDivisionError(f"no operator for {key}")


def contents(space: Any) -> dict[str, str]:
    return {name: str(space.get(name)) for name in space}


# When it is made ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("around", GROUPS)
def test_a_value_whose_operator_cannot_be_made_is_refused_and_can_be_given_again(around: Any) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    operator = opened(around(failing(ZeroDivisionError("first"))), space)
    space.checkpoint()
    before = contents(space)
    with pytest.raises(ZeroDivisionError, match="first"):
        operator.on_next(0, at=1)
    assert contents(space) == before
    assert space.checkpoint().slots == 0
    operator.on_next(0, at=2)
    assert len(operator._keys) <= 1
    assert operator._following.value == 1


def test_a_value_that_begins_a_window_that_cannot_be_made_is_taken_by_no_other_window_either() -> None:
    window = opened(Window(2, failing(Buffer(count=9), ZeroDivisionError("second")), 1))
    assert window.on_next(1) == []
    with pytest.raises(ZeroDivisionError, match="second"):
        window.on_next(2)
    assert [window.on_next(2), window.on_completed()] == [[[2], [1, 2]], []]


@pytest.mark.parametrize("count", [None, 50])
def test_a_window_whose_time_is_over_ends_when_it_can_be_made_again(count: int | None) -> None:
    def _make(number: int) -> Buffer:
        if is_down:
            raise ConnectionError("not now")
        return Buffer(count=100)

    store, is_down = CheckpointStore(":memory:"), False
    space = PersistedObjectSpace(store)
    opened(Window(count, _make, duration=3), space).on_next(1, at=1)
    space.checkpoint()
    again, is_down = opened(Window(count, _make, duration=3), PersistedObjectSpace(store)), True
    for _ in range(2):
        with pytest.raises(ConnectionError):
            again.on_next(2, at=7)
    is_down = False
    found = [again.on_next(value, at=at) for value, at in ((2, 7), (3, 8), (4, 20), (5, 30))]
    assert (found, again.on_completed()) == ([[[1]], [], [[2, 3]], [[4]]], [[5]])


def test_the_mean_of_the_good_sequences_comes_beside_one_that_was_refused() -> None:
    chain = opened(Chain(SelectMany(lambda x: Take(10 // x)), Average()))
    chain.on_next(2)
    with pytest.raises(ZeroDivisionError):
        chain.on_next(0)
    assert [chain.on_inner(2, 8.0), chain.on_inner(2, 4.0), chain.on_completed()] == [[], [], []]
    assert chain.on_inner_completed(2) == [6.0]


def test_the_operator_of_an_inner_sequence_is_made_once() -> None:
    made: list[Any] = []
    many = opened(SelectMany(lambda x: made.append(x) or Buffer(duration=9)))  # type: ignore[func-returns-value]
    many.on_time(0)
    for value in "ab":
        many.on_next(value, at=1)
        many.on_inner(value, 1, at=2)
    assert (made, many.on_time(20)) == (["a", "b"], [[1], [1]])


def many_left(make: Making, values: str = "ab", touched: str = "") -> tuple[Any, SelectMany]:
    """Return a space with inner sequences, some of which have taken a value, and an operator of another function."""
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    many = opened(SelectMany(lambda key: Buffer(count=9)), space)
    for value in values:
        many.on_next(value)
    for value in touched:
        many.on_inner(value, 1)
    space.checkpoint()
    space.close()
    space = PersistedObjectSpace(store)
    return space, opened(SelectMany(make), space)


def test_inner_sequences_in_a_space_that_can_be_made_no_more_can_be_ended() -> None:
    space, many = many_left(raising)
    with pytest.raises(ZeroDivisionError):
        many.on_inner("a", 5)
    assert [many.on_inner_completed("a"), many.on_completed(), many.has_ended] == [[], [], False]
    assert [many.on_inner_completed("b"), many.has_ended, list(space)] == [[], True, ["op/ended"]]


def test_an_inner_sequence_that_holds_a_value_ends_when_it_can_be_made_again() -> None:
    _, many = many_left(failing(ZeroDivisionError("not yet"), Buffer(count=9)), "a", touched="a")
    with pytest.raises(ZeroDivisionError, match="not yet"):
        many.on_inner_completed("a")
    assert many.on_inner_completed("a") == [[1]]


def test_what_can_be_made_no_more_is_deleted() -> None:
    space, many = many_left(raising, touched="b")
    assert len(space) == 4
    many.delete()
    assert list(space) == []


def test_time_reaches_the_other_inner_sequences_beside_one_that_can_be_made_no_more() -> None:
    heard: list[float] = []

    class Timed(Buffer):
        takes_time = True

        def _tick(self, at: float) -> list[Any]:
            heard.append(at)
            return []

    _, many = many_left(lambda key: raising(key) if key == "a" else Timed(count=9))
    assert [many.on_time(20), many.on_next("c", at=21), many.on_inner_completed("a", at=22)] == [[], [], []]
    assert (heard, list(many._keys.values())) == ([20, 21, 22, 22], ["b", "c"])
    _, many = many_left(lambda key: raising(key) if key == "a" else Timed(count=9), touched="a")
    with pytest.raises(ZeroDivisionError, match="no operator for a"):
        many.on_time(30)
    assert heard[4:] == [30]


def test_time_reaches_an_inner_sequence_that_could_not_be_made_when_it_was_first_heard_of() -> None:
    _, many = many_left(failing(ZeroDivisionError("not yet"), Buffer(duration=9)), "a")
    assert [many.on_time(1), many.on_inner("a", 5, at=2), many.on_time(20)] == [[], [], [[5]]]


# What it is made by ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("around", GROUPS)
@pytest.mark.parametrize(
    ("found", "told"), [(None, "None"), ([Take(1)], "a list of 1"), (Average, "the class Average"), ("text", "'text'")]
)
def test_what_is_made_and_is_no_operator_is_refused_before_anything_is_taken(
    around: Any, found: Any, told: str
) -> None:
    operator = opened(around(failing(found)))
    with pytest.raises(TypeError, match=rf"'op': make returned for the \w+ 0 {told}.*: expected an operator, such as"):
        operator.on_next(0, at=1)
    assert (len(operator._keys), operator._following.value) == (0, 0)


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ([[Take(1), Average()]], r"operator 0 of a chain is a list of 2: expected an operator; Chain\(\*stages\)"),
        ([Take(1), None], "operator 1 of a chain is None: expected an operator; such as"),
        ([Take(1), Average], "operator 1 of a chain is the class Average: expected an operator"),
        ([len], "operator 0 of a chain is <built-in function len>: expected an operator"),
    ],
)
def test_what_is_no_operator_is_refused_in_a_chain(stages: list[Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        Chain(*stages)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Window(3, Average), r"Window: make is the class Average: .* such as lambda number: Average\(\)$"),
        (lambda: GroupBy(len, Average), r"GroupBy: make is the class Average: .* such as lambda key: Average\(\)$"),
        (lambda: SelectMany(Average), r"SelectMany: make is the class Average: .* lambda value: Average\(\)$"),
        (lambda: Window(3, Select), r"Window: make is the class Select: .* lambda number: Select\(\.\.\.\)$"),
        (lambda: Window(3, Concat), r"Window: make is the class Concat: expected a function of the number"),
        (lambda: Window(3, Average()), "Window: make is an operator Average: expected a function of the number"),  # type: ignore[arg-type]
        (lambda: GroupBy(len, None), "GroupBy: make is None: expected a function of the key"),  # type: ignore[arg-type]
        (lambda: GroupBy("k", Concat), "GroupBy: make is the class Concat: expected a function of the key"),  # type: ignore[arg-type]
        (lambda: GroupBy("k", lambda key: Concat()), "GroupBy: key is 'k': expected a function of a value"),  # type: ignore[arg-type]
        (lambda: Where(None), "Where: predicate is None: expected a function of a value"),  # type: ignore[arg-type]
        (lambda: Select(3), "Select: function is 3: expected a function of a value"),  # type: ignore[arg-type]
        (lambda: Window(3, lambda: Average()), r"Window: make has the parameters \(\): expected a function of the"),
        (lambda: GroupBy(len, lambda key, n: Take(n)), r"GroupBy: make has the parameters \(key, n\): expected a"),
        (lambda: Window(3, partial(Average)), r"Window: make has the parameters \(\*, running.*\): expected"),
    ],
)
def test_what_makes_no_operator_of_a_key_is_refused_in_words(make: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        make()


def test_a_function_that_does_not_say_what_it_takes_may_make_operators() -> None:
    operators = {1: Take(1)}
    assert opened(GroupBy(lambda value: value, operators.get)).on_next(1) == [(1, 1)]  # type: ignore[arg-type]
    assert opened(Window(1, lambda *numbers: Average())).on_next(4) == [4.0]


def test_what_could_take_a_key_for_a_setting_takes_it_by_name_alone() -> None:
    with pytest.raises(TypeError, match="positional argument"):
        Average(1)  # type: ignore[misc]
    with pytest.raises(TypeError, match="positional argument"):
        Buffer(1, 1, 1)  # type: ignore[misc]


# Whose it is ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("around", [GROUPS[0], lambda make: Window(2, make, 1), GROUPS[-1]])
@pytest.mark.parametrize("wrapped", [lambda one: one, Chain, lambda one: Chain(Where(bool), Chain(one))])
def test_one_operator_for_two_groups_is_refused_before_anything_is_taken(around: Any, wrapped: Any) -> None:
    one = Buffer(count=9)
    operator = opened(around(lambda key: wrapped(one)))
    operator.on_next(1)
    before = contents(operator._space)
    with pytest.raises(
        ValueError, match=r"'op': make returned for the \w+ \d one that is open as 'op/0/.*Buffer': exp"
    ):
        operator.on_next(2)
    assert contents(operator._space) == before


def test_an_operator_that_is_open_elsewhere_is_no_group() -> None:
    one = opened(Buffer(count=2))
    groups = opened(GroupBy(lambda value: value, lambda key: one), one._space)
    with pytest.raises(ValueError, match="one that is open as 'op': expected a new operator each time"):
        groups.on_next(1)
    one.delete()
    assert [groups.on_next(1), groups.on_next(1)] == [[], [(1, [1, 1])]]


def test_operators_that_are_kept_for_their_groups_are_used_again() -> None:
    kept = {key: Buffer(count=2) for key in (0, 1)}
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    groups = GroupBy(lambda value: value % 2, lambda key: Chain(kept[key], Take(1)))
    opened(groups, space)
    assert [groups.on_next(n) for n in (1, 3, 5, 2)] == [[], [(1, [1, 3])], [], []]  # A group that has begun anew.
    space.rollback()
    opened(groups, space)
    assert [groups.on_next(n) for n in (2, 4, 1)] == [[], [(0, [2, 4])], []]
    assert groups.on_completed() == [(1, [1])]


def test_operators_of_a_space_that_is_closed_are_used_again() -> None:
    one, store = Buffer(count=2), CheckpointStore(":memory:")
    for expected in ([], [("k", [1, 1])]):
        space = PersistedObjectSpace(store)
        assert opened(GroupBy(lambda value: "k", lambda key: one), space).on_next(1) == expected
        space.checkpoint()
        space.close()


def test_operators_that_wait_in_great_numbers_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("objectspace.operators.events.nested.OPEN_INNER", 2)
    kept = [Buffer(count=2) for _ in range(5)]
    many = opened(SelectMany(kept.__getitem__))
    for key in range(5):
        many.on_next(key)
    assert [many.on_inner(key, n) for n in (0, 1) for key in range(5)] == [[]] * 5 + [[[0, 1]]] * 5


def test_one_operator_is_in_a_chain_once() -> None:
    one = Take(2)
    with pytest.raises(ValueError, match="operator 1 of a chain is an operator Take already in it"):
        Chain(one, one)


# Several inputs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("several", [lambda: CombineLatest(2), lambda: Zip(2), lambda: Concat(3), SkipUntil])
def test_an_operator_of_several_inputs_is_the_first_of_a_chain(several: Any) -> None:
    assert Chain(several(), Take(1)).inputs == several().inputs
    for stage in (several, lambda: Chain(several(), Take(1))):
        with pytest.raises(
            ValueError, match=r"operator 1 of a chain is an operator \w+ with [23] inputs: only the first"
        ):
            Chain(Take(1), stage())


@pytest.mark.parametrize("around", GROUPS)
@pytest.mark.parametrize("several", [lambda: Zip(2), lambda: Chain(Concat(2), Take(1))])
def test_an_operator_of_several_inputs_is_no_group(around: Any, several: Any) -> None:
    operator = opened(around(lambda key: several()))
    before = contents(operator._space)
    with pytest.raises(ValueError, match=r"'op': make returned for the \w+ \d an operator \w+ with 2 inputs: expected"):
        operator.on_next(1, at=1)
    assert contents(operator._space) == before
