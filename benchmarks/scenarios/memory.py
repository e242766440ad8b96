"""Single operations in memory, beside the containers that Python or sortedcontainers has for them."""

from __future__ import annotations

import random
from functools import partial

from benchmarks.objects import OPERATIONS, OPERATIONS_TABLE, compiled, loaded_object
from benchmarks.registry import Action, Contestant, Scenario, Sizes, Step, Subject


class Objects(Subject):
    """A persisted object, saved once, so that each change must be noted."""

    def action(self, step: Step, chance: random.Random) -> Action:
        operation = OPERATIONS_TABLE[step.values["number"]]
        return partial(compiled(operation.mine or operation.code), loaded_object(operation))


class Containers(Subject):
    """The plain container."""

    def action(self, step: Step, chance: random.Random) -> Action:
        operation = OPERATIONS_TABLE[step.values["number"]]
        return partial(compiled(operation.code), operation.builtin(operation.contents))


def steps() -> tuple[Step, ...]:
    """Return a step for each operation."""
    return tuple(
        Step(f"{one.kind} of {len(one.contents):,}: {one.mine or one.code}", OPERATIONS, {"number": number})
        for number, one in enumerate(OPERATIONS_TABLE)
    )


SCENARIOS = (
    Scenario(
        name="memory",
        group="objects",
        title="Operations in memory",
        why="An object that notes its changes is slower than one that does not. The inner loop of a job feels it.",
        state="operations",
        unit="operation",
        contestants=(
            Contestant("objectspace", Objects, "an object of a space in memory, saved once before", "ours"),
            Contestant("plain container", Containers, "list, dict, set, deque, SortedDict, SortedSet"),
        ),
        quick=Sizes((OPERATIONS,), steps(), repetitions=3, seconds=1),
        full=Sizes((OPERATIONS,), steps(), repetitions=15, seconds=20),
    ),
)
