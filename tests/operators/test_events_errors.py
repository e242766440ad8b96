"""Event operators where a function of the user raises: what is taken, what is held back, and what comes later."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectspace.operators.events import (
    Average,
    Buffer,
    Chain,
    EventOperator,
    GroupBy,
    Select,
    SelectMany,
    Take,
    Where,
    Window,
)
from objectspace.testing import crash_everywhere
from tests.operators.event_player import Make, Player, at_times, ended, inner, opened, played, recoveries, refusing


def stubborn(*bad: Any, times: int = 1) -> Callable[[Any], Any]:
    """Return a function that gives a value back, and refuses some of them the first times."""
    left = dict.fromkeys(bad, times)

    def _function(value: Any) -> Any:
        if left.get(value, 0):
            left[value] -= 1
            raise ValueError(f"refused: {value}")
        return value

    return _function


def fed_past_errors(operator: EventOperator, values: Sequence[Any]) -> list[Any]:
    """Return what comes out of values, some of which are refused."""
    out = []
    for value in values:
        with suppress(TypeError, ValueError):
            out += value(operator) if callable(value) else operator.on_next(value)
    return out


@pytest.mark.parametrize(("step", "means"), [(2, [1.5, 3.5, 5.5]), (1, [1.5, 2.5, 3.5, 4.5, 5.5, 6.5])])
def test_a_value_that_all_windows_refuse_is_counted_in_none(step: int, means: list[float]) -> None:
    window = opened(lambda: Window(2, lambda number: Average(), step))
    assert fed_past_errors(window, [1, None, 2, 3, 4, 5, 6, 7]) == means
    assert window.on_completed() == [7.0]


def test_a_value_that_one_window_refuses_is_counted_in_all() -> None:
    window = opened(lambda: Window(3, lambda number: Chain(Select(stubborn(*[7] * (number == 0))), Buffer(9)), 2))
    assert fed_past_errors(window, [5, 6, 7, 8, 9]) == [[5, 6], [7, 8, 9]]
    assert window.on_completed() == [[9]]


@pytest.mark.parametrize(
    "make",
    [
        lambda refuse: GroupBy(lambda value: value, lambda key: Select(refuse)),
        lambda refuse: Window(2, lambda number: Select(refuse)),
        lambda refuse: Window(None, lambda number: Select(refuse), duration=10, shift=5),
        lambda refuse: Window(2, lambda number: Select(refuse), duration=10),
    ],
)
def test_a_first_value_that_is_refused_begins_nothing(make: Callable[[Any], EventOperator]) -> None:
    player = Player(lambda: make(stubborn(0)))
    player.again()
    before = {name: str(player.space.get(name)) for name in player.space}
    with pytest.raises(ValueError, match="refused: 0"):
        player.operator.on_next(0, at=3)
    assert {name: str(player.space.get(name)) for name in player.space} == before
    assert player.space.checkpoint().slots == 0
    assert player.operator.on_next(0, at=4)


def test_an_operator_that_cannot_be_made_begins_no_group() -> None:
    groups = opened(lambda: GroupBy(lambda value: value, lambda key: Take(stubborn(2)(2))))
    assert fed_past_errors(groups, [2]) == []
    assert len(groups._keys) == 0  # type: ignore[attr-defined]


def test_what_other_sequences_give_beside_one_that_raises_comes_with_the_next_call() -> None:
    refuse = stubborn("x")
    many = opened(lambda: SelectMany(lambda key: Chain(Select(refuse), Take(1))))
    assert fed_past_errors(many, ["k", "k", "k", inner("k", "x"), inner("k", "y")]) == ["x", "x", "y"]  # type: ignore[arg-type]
    function = stubborn(2.0)
    groups = opened(lambda: GroupBy(lambda value: value, lambda key: Chain(Average(), Select(function))))
    assert fed_past_errors(groups, [1, 2, 3, ended, ended]) == [(1, 1.0), (3, 3.0)]
    assert groups.has_ended


def test_time_closes_what_it_closes_beside_what_raises() -> None:
    function = stubborn(2)
    groups = opened(
        lambda: GroupBy(lambda n: n, lambda key: Chain(Buffer(duration=10), Select(lambda found: function(found[0]))))
    )
    assert fed_past_errors(groups, at_times([0, 1, 2, 3])) == []
    with pytest.raises(ValueError, match="refused: 2"):
        groups.on_time(20)
    assert groups.on_time(21) == [(0, 0), (1, 1), (3, 3)]


def test_what_comes_behind_a_refused_value_is_handed_on_in_a_chain() -> None:
    make = lambda: Chain(SelectMany(lambda key: Take(2)), Select(stubborn("x")), Buffer(count=3))  # noqa: E731
    chain = opened(make)
    assert fed_past_errors(chain, ["k", "k", inner("k", "x"), inner("k", "y")]) == [["x", "y", "y"]]


def test_an_end_that_raises_can_be_given_again() -> None:
    for make in (lambda: Average(), lambda: Chain(Where(bool), Average(), Select(int))):
        operator = opened(make)
        operator.on_next(10**400)
        with pytest.raises(OverflowError):
            operator.on_completed()
        assert not operator.has_ended
    groups = opened(lambda: GroupBy(lambda n: n % 2, lambda key: Average()))
    assert fed_past_errors(groups, [10**400, 1]) == []
    with pytest.raises(OverflowError):
        groups.on_completed()
    assert (groups.has_ended, groups.on_next(-(10**400))) == (False, [(1, 1.0)])
    assert (groups.on_completed(), groups.has_ended) == ([(0, 0.0)], True)


def test_a_window_whose_end_raises_takes_no_value_more() -> None:
    window = opened(lambda: Window(2, lambda number: Average()))
    assert window.on_next(10**400) == []
    with pytest.raises(OverflowError):
        window.on_next(1)
    assert [window.on_next(2), window.on_next(3)] == [[], [2.5]]


def grouped_by(key: Callable[[Any], Any]) -> Make:
    return lambda: GroupBy(key, lambda key: Buffer(duration=10))


def test_what_an_error_holds_back_outlives_a_checkpoint_and_recovery() -> None:
    player = Player(grouped_by(lambda value: "k" if refusing(value) == value else None))
    assert fed_past_errors(player.operator, at_times([1, 2])) == []
    player.again()
    for at in (20, 21):
        with pytest.raises(ValueError, match="bad"):
            player.operator.on_next("bad", at=at)
        player.again()
    assert player.operator.on_next(3, at=22) == [("k", [0, 1])]
    player.again()
    assert player.operator.on_next(4, at=40) == [("k", [3])]
    assert "op/$held" not in player.space


def test_what_an_error_holds_back_at_the_end_comes_after_a_recovery_too() -> None:
    player = Player(lambda: GroupBy(lambda n: n, lambda key: Chain(Average(), Select(lambda mean: 1 / (mean - 2)))))
    assert fed_past_errors(player.operator, [1, 2, 3]) == []
    with pytest.raises(ZeroDivisionError):
        player.operator.on_completed()
    player.again()
    assert player.operator.on_completed() == [(1, -1.0), (3, 1.0)]
    assert list(player.space) == ["op/ended"]
    assert player.operator.on_completed() == []


def test_a_value_that_is_refused_leaves_nothing_of_more_windows_than_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("objectspace.operators.events.nested.OPEN_INNER", 3)
    function = stubborn(100.0, times=10)
    make = lambda number: Chain(Average(running=True), Select(function))  # noqa: E731
    player = Player(lambda: Window(None, make, duration=10, shift=1))
    assert player.operator.on_next(0, at=0) == [0.0]
    assert player.operator.on_time(19) == []
    names = list(player.space)
    with pytest.raises(ValueError, match="refused: 100"):
        player.operator.on_next(100, at=19)
    assert list(player.space) == names
    player.again()
    assert player.operator.on_next(1, at=19) == [1.0] * 10


def test_what_has_no_stored_form_is_held_back_in_memory_and_keeps_no_checkpoint_from_being_taken() -> None:
    function = stubborn(2)
    player = Player(
        lambda: Window(2, lambda number: Select(lambda n: function(n) and print) if number else Select(function), 1)
    )
    assert player.operator.on_next(1) == [1]
    with pytest.raises(ValueError, match="refused: 2"):
        player.operator.on_next(2)
    player.space.checkpoint()
    assert player.operator.on_next(3) == [print, print, print]


def test_every_crash_point_around_an_error() -> None:
    inner = lambda: Chain(Window(2, lambda number: Average()), Buffer(duration=9))  # noqa: E731
    make = lambda: GroupBy(lambda n: refusing(n) and "k", lambda key: inner())  # noqa: E731
    times = [(3, 0), (5, 1), ("bad", 20), ([], 21), (7, 22), (9, 40), (1, 60)]
    events = [lambda op, n=n, at=at: fed_past_errors(op, [lambda op: op.on_next(n, at=at)]) for n, at in times]
    operator = opened(make)
    assert [event(operator) for event in events] == [[], [], [], [], [("k", [4.0])], [], [("k", [8.0])]]
    assert crash_everywhere(make, events, storage=False) == 9 * len(events)


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=20),
    recoveries=recoveries,
    limits=st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
def test_refused_values_are_as_if_they_had_never_come(
    steps: list[tuple[int, bool]], recoveries: set[int], limits: tuple[int, int]
) -> None:
    times = [sum(step for step, _ in steps[: place + 1]) for place in range(len(steps))]
    values = [
        (at, None if is_bad else number) for number, (at, (_, is_bad)) in enumerate(zip(times, steps, strict=True))
    ]
    length, shift = limits
    makes: list[Make] = [
        # Where windows lie apart, a value between them is passed over, whatever it is.
        lambda: Window(length, lambda number: Average(), min(length, shift)),
        lambda: Window(None, lambda number: Average(), duration=length, shift=shift),
        lambda: Window(length, lambda number: Average(), duration=shift),
        lambda: GroupBy(lambda value: value is None or value % 2, lambda key: Average(running=True)),
    ]
    for make in makes:
        given = [lambda op, at=at, n=n: fed_past_errors(op, [lambda op: op.on_next(n, at=at)]) for at, n in values]
        taken = [lambda op, at=at, n=n: op.on_next(n, at=at) for at, n in values if n is not None]
        assert played(make, [*given, ended], recoveries)[0] == played(make, [*taken, ended], set())[0]


@pytest.mark.parametrize("bad", [None, "text", timedelta(1), Decimal(2)])
def test_what_cannot_be_added_is_named_and_not_taken(bad: Any) -> None:
    average = opened(Average)
    average.on_next(1.5)
    with pytest.raises(
        TypeError, match=re.escape(f"Average 'op': {bad!r} cannot be added to the sum so far, 1.5: let")
    ):
        average.on_next(bad)
    average.on_next(2.5)
    assert average.on_completed() == [2.0]
