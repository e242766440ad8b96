"""The bytes of a checkpoint of event operators, slot by slot and as one value: ``python -m benchmarks.events``.

Three operators over an hour of events, a checkpoint a minute: the buffer of an hour (an event each 29.9 s),
CombineLatest of 100 inputs of which one changes between two checkpoints, and SelectMany, whose list of inner sequences
grows by one a minute. The rival is the same operator with its whole state in one persisted value, as engines keep it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.timing import machine, table
from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.operators.events import Buffer, CombineLatest, EventOperator, SelectMany, Take

MINUTES = 60


class Whole:
    """A list, of which every change saves everything."""

    def __init__(self, space: PersistedObjectSpace) -> None:
        self.value = space.create_value("state", [])

    def put(self, place: int, entry: Any) -> None:
        """Set the entry at a place, at the end where there is none yet."""
        entries = list(self.value.value)
        entries[place : place + 1] = [entry]
        self.value.value = entries


def buffer_event(number: int) -> dict[str, Any]:
    """Return an event as sensors send them."""
    return {"device": f"sensor-{number % 7}", "at": number * 29.9, "value": number / 8}


def bytes_of(step: Callable[[int], object], space: PersistedObjectSpace) -> list[int]:
    """Return the bytes of the checkpoint of each minute."""
    found = []
    for minute in range(MINUTES):
        step(minute)
        found.append(space.checkpoint().bytes)
    return found


def opened(operator: Any) -> tuple[PersistedObjectSpace, Any]:
    """Return an operator on a space of its own."""
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    operator.open(space, "op")
    return space, operator


def buffer() -> tuple[list[int], list[int]]:
    """Return the bytes of each minute of the buffer of an hour."""
    space, mine = opened(Buffer(duration=3600))
    rival_space = PersistedObjectSpace(CheckpointStore(":memory:"))
    rival = Whole(rival_space)

    def step(minute: int) -> None:
        for number in (2 * minute, 2 * minute + 1):
            mine.on_next(buffer_event(number), at=number * 29.9)

    def whole(minute: int) -> None:
        for number in (2 * minute, 2 * minute + 1):
            rival.put(number, buffer_event(number))

    return bytes_of(step, space), bytes_of(whole, rival_space)


def combine() -> tuple[list[int], list[int]]:
    """Return the bytes of each minute of CombineLatest with one of 100 inputs changing."""
    space, mine = opened(CombineLatest(100))
    rival_space = PersistedObjectSpace(CheckpointStore(":memory:"))
    rival = Whole(rival_space)
    for source in range(100):
        mine.on_next(buffer_event(source), source=source)
        rival.put(source, buffer_event(source))
    space.checkpoint()
    rival_space.checkpoint()
    return (
        bytes_of(lambda minute: mine.on_next(buffer_event(minute + 1), source=minute % 100), space),
        bytes_of(lambda minute: rival.put(minute % 100, buffer_event(minute + 1)), rival_space),
    )


def select_many() -> tuple[list[int], list[int]]:
    """Return the bytes of each minute of SelectMany whose list of inner sequences grows by one."""
    make: Callable[[Any], EventOperator] = lambda key: Take(5)  # noqa: E731
    space, mine = opened(SelectMany(make))
    rival_space = PersistedObjectSpace(CheckpointStore(":memory:"))
    rival = Whole(rival_space)
    return (
        bytes_of(lambda minute: mine.on_next(f"sequence {minute}"), space),
        bytes_of(lambda minute: rival.put(minute, {"key": f"sequence {minute}", "left": 5}), rival_space),
    )


def main() -> None:
    """Run all three and print their tables."""
    print(machine("objectspace", "orjson"), end="\n\n")
    rows = []
    for name, run in (("Buffer of an hour", buffer), ("CombineLatest of 100", combine), ("SelectMany", select_many)):
        mine, whole = run()
        cells = [f"{found[1]:,}" if place == 0 else f"{found[-1]:,}" for found in (mine, whole) for place in (0, 1)]
        rows.append((name, *cells, f"{sum(mine):,}", f"{sum(whole):,}", f"{sum(mine) / sum(whole):.3f}"))
    heads = ("operator", "minute 2", "minute 60", "whole: minute 2", "whole: minute 60", "the hour", "whole", "ratio")
    print(table("Bytes of a checkpoint a minute", heads, rows))


if __name__ == "__main__":
    main()
