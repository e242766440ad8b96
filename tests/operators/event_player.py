"""An operator of events that is opened again in the middle of a history, and the events that it gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace, VolatileObjectSpace
from objectspace.operators.events import EventOperator

Make = Callable[[], EventOperator]


class Player:
    """An operator on a store, opened again whenever the history says so."""

    def __init__(self, make: Make) -> None:
        self.make, self.store = make, CheckpointStore(":memory:")
        self.open()

    def open(self) -> None:
        self.space = PersistedObjectSpace(self.store)
        self.operator = self.make()
        self.operator.open(self.space, "op")

    def again(self) -> None:
        self.space.checkpoint()
        self.space.close()
        self.open()


def played(make: Make, events: list[Any], recoveries: set[int]) -> tuple[list[Any], Player]:
    """Return what comes out of events: values of input 0, or functions of the operator."""
    player, out = Player(make), []
    for place, event in enumerate(events):
        if place in recoveries:
            player.again()
        out += event(player.operator) if callable(event) else player.operator.on_next(event)
    return out, player


recoveries = st.sets(st.integers(0, 20), max_size=5)


def ended(operator: EventOperator) -> list[Any]:
    return operator.on_completed()


def once(event: Any) -> Any:
    return lambda operator: operator.on_next(*event) if isinstance(event, tuple) else operator.on_next(event)


def at_times(times: Sequence[float]) -> list[Any]:
    """Return events that come at some times, each with its number."""
    return [lambda op, at=at, n=n: op.on_next(n, at=at) for n, at in enumerate(times)]


def inner(key: str, value: int) -> Any:
    return lambda operator: operator.on_inner(key, value)


def opened(make: Make) -> EventOperator:
    operator = make()
    operator.open(VolatileObjectSpace(), "op")
    return operator


def refusing(value: Any) -> Any:
    if value == "bad":
        raise ValueError(value)
    return value
