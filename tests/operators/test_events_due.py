"""Inner sequences hear of the time when they are due, and what comes out is as if they heard of every time."""

from __future__ import annotations

import gc
import math
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace, VolatileObjectSpace
from objectspace.operators.events import Average, Buffer, Chain, EventOperator, GroupBy, SelectMany, Take, Window
from objectspace.operators.events.nested import Nested
from tests.operators.event_player import Make, Player

LENGTHS = st.sampled_from([0.1, 0.3, 1, 2.5, 7])
COUNTS = st.integers(1, 3)


def nests(inner: st.SearchStrategy[Make]) -> st.SearchStrategy[Make]:
    return st.one_of(
        st.builds(lambda make: lambda: GroupBy(lambda value: value % 3, lambda key: make()), inner),
        st.builds(lambda make, n: lambda: Window(n, lambda number: make()), inner, COUNTS),
        st.builds(
            lambda make, d, s: lambda: Window(None, lambda number: make(), duration=d, shift=s), inner, LENGTHS, LENGTHS
        ),
        st.builds(lambda make, n, d: lambda: Window(n, lambda number: make(), duration=d), inner, COUNTS, LENGTHS),
        st.builds(lambda make, d: lambda: Chain(make(), Buffer(duration=d)), inner, LENGTHS),
    )


MAKES: st.SearchStrategy[Make] = st.recursive(
    st.one_of(
        st.builds(lambda d, s: lambda: Buffer(duration=d, shift=s), LENGTHS, LENGTHS),
        st.builds(lambda n, d: lambda: Buffer(n, duration=d), COUNTS, LENGTHS),
        st.builds(lambda n: lambda: Buffer(n), COUNTS),
        st.builds(lambda n: lambda: Take(n), COUNTS),
    ),
    nests,
    max_leaves=3,
)

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["value", "value", "value", "inner", "inner", "time", "save", "reopen", "rollback"]),
        st.integers(0, 5),
        st.sampled_from([0, 0, 0.1, 0.2, 0.3, 1, 3]),
    ),
    max_size=25,
)


class Run(Player):
    """An operator with inner sequences of some kind, by key for a GroupBy and by value for a SelectMany."""

    def __init__(self, make: Make, many: bool) -> None:
        self._many = many
        super().__init__(lambda: SelectMany(lambda v: make()) if many else GroupBy(lambda v: v, lambda k: make()))

    def step(self, what: str, value: int, at: float) -> str:
        """Do something, and return what came out, or the error."""
        try:
            if what == "time":
                return repr(self.operator.on_time(at))
            if what == "inner" and self._many:
                return repr(self.operator.on_inner(value, value + 1, at))
            if what in ("value", "inner"):
                return repr(self.operator.on_next(value, at=at))
        except (TypeError, ValueError) as error:
            return repr(error)
        if what == "rollback":
            self.space.rollback()
            self.operator.open(self.space, "op")
        elif what == "save":
            self.space.checkpoint()
        else:
            self.again()
        return ""

    def end(self) -> str:
        return repr(self.operator.on_completed()) + repr(list(self.space))


@settings(max_examples=150)
@given(make=MAKES, many=st.booleans(), steps=STEPS)
def test_what_comes_out_is_as_if_all_heard_of_every_time(make: Make, many: bool, steps: list[Any]) -> None:
    ours, told = Run(make, many), Run(make, many)
    at = 0.0
    for what, value, passes in steps:
        at += passes
        found = ours.step(what, value, at)
        with patch.object(Nested, "_due_by", lambda self, at: sorted(self._waiting())):
            assert found == told.step(what, value, at)
    assert ours.end() == told.end()


@pytest.mark.parametrize(
    "inner", [lambda: Buffer(duration=100), lambda: Window(None, lambda n: Average(), duration=100)]
)
def test_only_those_that_are_due_are_told(inner: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = GroupBy(lambda value: value, lambda key: inner())
    groups.open(VolatileObjectSpace(), "groups")
    for value in range(50):
        groups.on_next(value, at=value)
    told: list[str] = []
    on_time = EventOperator.on_time
    monkeypatch.setattr(EventOperator, "on_time", lambda self, at: told.append(self.name) or on_time(self, at))
    assert groups.on_time(60) == groups.on_time(99) == []
    assert {*told} == {"groups"}
    assert len(groups.on_time(101.5)) == 2
    assert {name.rpartition("/")[0] for name in told if name.endswith((".Buffer", ".Window"))} == {
        "groups/0",
        "groups/1",
    }


class Fails(EventOperator):
    """An operator that passes values on, and whose first end fails."""

    def _create(self) -> None:
        self.has_failed = False

    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        return [value]

    def _finish(self, source: int) -> list[Any]:
        if not self.has_failed:
            self.has_failed = True
            raise RuntimeError("once")
        return super()._finish(source)


@pytest.mark.parametrize("restarts", [False, True])
def test_what_an_end_that_failed_has_left_comes_with_the_next_one(restarts: bool) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    groups = SelectMany(lambda value: Chain(Buffer(duration=10), Fails()))
    groups.open(space, "groups")
    for value in "abc":
        groups.on_next(value, at=0)
        groups.on_inner(value, value, at=1)
    with pytest.raises(RuntimeError, match="once"):
        groups.on_inner_completed("a", at=3)
    if restarts:
        space.checkpoint()
        groups = SelectMany(lambda value: Chain(Buffer(duration=10), Fails()))
        groups.open(PersistedObjectSpace(space.store), "groups")
        with pytest.raises(RuntimeError, match="once"):
            groups.on_inner_completed("a", at=3)
    assert groups.on_inner_completed("a", at=4) == [["a"]]


def test_an_end_that_failed_is_given_again_with_the_next_time() -> None:
    groups = GroupBy(lambda value: value % 2, lambda key: Chain(Take(2), Fails(), Buffer(duration=100)))
    groups.open(VolatileObjectSpace(), "groups")
    groups.on_next(1, at=0)
    with pytest.raises(RuntimeError, match="once"):
        groups.on_next(3, at=1)
    assert groups.on_time(2) == [(1, [1, 3])]


@pytest.mark.parametrize("due", [None, "soon", math.nan, [1]])
def test_an_operator_that_cannot_say_when_it_is_due_hears_of_every_time(due: Any) -> None:
    class Says(Times):
        def _due_from(self) -> Any:
            return due[7] if isinstance(due, list) else due

    groups = GroupBy(lambda value: value, lambda key: Says())
    groups.open(VolatileObjectSpace(), "groups")
    groups.on_next(1, at=0)
    assert groups.on_time(1) == [(1, 1)]


@pytest.mark.parametrize("is_mixed_in", [False, True])
@pytest.mark.parametrize("method", ["on_time", "_tick", "_tick_alone"])
def test_what_overrides_a_method_that_hears_of_the_time_hears_of_every_time(method: str, is_mixed_in: bool) -> None:
    heard: list[float] = []

    def hears(self: Buffer, at: float) -> Any:
        heard.append(at)
        return getattr(Buffer, method)(self, at)

    mixin = type("Mixin", (), {method: hears})
    kind: Any = type("Heard", (mixin, Buffer), {}) if is_mixed_in else type("Heard", (Buffer,), {method: hears})
    groups = GroupBy(lambda value: value, lambda key: kind(duration=100))
    groups.open(VolatileObjectSpace(), "groups")
    groups.on_next(1, at=0)
    del heard[:]
    for at in (1, 2):
        groups.on_time(at)
    assert heard == [1, 2]


def test_classes_that_are_made_for_one_key_do_not_stay() -> None:
    def make(key: int) -> EventOperator:
        class Mine(Times):
            def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
                self._end()
                return [value]

        return Mine()

    groups = GroupBy(lambda value: value, make)
    groups.open(VolatileObjectSpace(), "groups")
    for key in range(100):
        groups.on_next(key, at=key)
    gc.collect()
    assert len(Times.__subclasses__()) < 10


class Times(EventOperator):
    """An operator that gives every time that it hears of."""

    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        return []

    def _tick(self, at: float) -> list[Any]:
        return [at]


class Hurried(Buffer):
    """A buffer that also gives every time that it hears of, of which the buffer that it is knows nothing."""

    def _tick(self, at: float) -> list[Any]:
        return [*super()._tick(at), at]


@pytest.mark.parametrize("inner", [Times, lambda: Hurried(duration=100), lambda: Chain(Take(9), Times())])
def test_an_operator_of_ones_own_hears_of_every_time(inner: Make) -> None:
    groups = GroupBy(lambda value: value, lambda key: inner())
    groups.open(VolatileObjectSpace(), "groups")
    groups.on_next(1, at=0)
    groups.on_next(2, at=0)
    for at in (1, 2):
        assert groups.on_time(at) == [(1, at), (2, at)]
