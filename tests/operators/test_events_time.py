"""Time in groups of groups: only those hear of it in which something waits for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectspace import VolatileObjectSpace
from objectspace.operators.events import Average, Buffer, Chain, EventOperator, GroupBy, Select, SelectMany, Window
from tests.operators.event_player import Make, Player, played, recoveries


@pytest.mark.parametrize("make", [partial(GroupBy, lambda value: value), partial(Window, 3), SelectMany])
def test_groups_in_which_nothing_waits_for_time_do_not_hear_of_it(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told, on_time = [], Chain.on_time

    def _on_time(chain: Chain, at: float) -> list[Any]:
        told.append(chain.name)
        return on_time(chain, at)

    monkeypatch.setattr(Chain, "on_time", _on_time)
    player = Player(lambda: GroupBy(lambda value: value, lambda key: make(lambda inner: Average(running=True))))
    for at in range(5):
        player.operator.on_next(at, at=at)
    assert told == []
    player.again()
    player.operator.on_time(5)  # Before it is opened again, nobody knows what is in a group.
    assert len(told) == 5
    for value in (0, 7):
        player.operator.on_next(value, at=value)
    assert len(told) == 5


def test_an_own_window_that_does_something_at_a_time_hears_of_it_in_a_group() -> None:
    class Ticking(Window):
        def _tick(self, at: float) -> list[Any]:
            return [at]

    player = Player(lambda: GroupBy(lambda value: "all", lambda key: Ticking(3, lambda inner: Buffer(count=9))))
    assert player.operator.on_next(1) == []
    assert player.operator.on_time(2) == [("all", 2)]


def waiting_where_odd(key: int) -> EventOperator:
    return Chain(Select(itemgetter(2)), Buffer(duration=3) if key % 2 else Average(running=True))


def in_groups_of_groups() -> EventOperator:
    return GroupBy(itemgetter(0), lambda key: GroupBy(itemgetter(1), waiting_where_odd))


def in_one_kind_of_group() -> EventOperator:
    groups = GroupBy(itemgetter(0, 1), lambda key: waiting_where_odd(key[1]))
    return Chain(groups, Select(lambda pair: (pair[0][0], (pair[0][1], pair[1]))))


def event(value: tuple[int, int, int], at: int) -> Callable[[EventOperator], list[Any]]:
    """Return an event after which the groups that time has closed are in the order of their keys."""
    return lambda operator: sorted(operator.on_next(value, at=at), key=str)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 4)), max_size=20), recoveries)
def test_a_group_of_groups_hears_of_the_time_where_an_inner_one_waits(steps: list[Any], recovered: set[int]) -> None:
    times = accumulate(step for *_, step in steps)
    events: list[Any] = [event((*keys, at), at) for (*keys, _), at in zip(steps, times, strict=True)]
    makes: list[Make] = [in_groups_of_groups, in_groups_of_groups, in_one_kind_of_group]
    found, undisturbed, expected = (
        played(make, events, place)[0] for make, place in zip(makes, (recovered, set(), set()), strict=True)
    )
    assert found == undisturbed == expected


@pytest.mark.parametrize("at", [1e22 + 1, 1e25, 1e300, sys.float_info.max])
@pytest.mark.parametrize("make", [lambda: Buffer(duration=10), lambda: Buffer(duration=14, shift=3)])
def test_a_time_beyond_all_others_ends_what_is_open(make: Any, at: float) -> None:
    buffer = make()
    buffer.open(VolatileObjectSpace(), "buffer")
    buffer.on_next("x", at=1)
    assert buffer.on_time(at) == [["x"]]
    assert buffer.on_time(at) == []
