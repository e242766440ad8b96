"""After a crash or a deployment: how long until the state answers, and how much memory that takes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.registry import Action, Contestant, Scenario, Sizes, Step, Subject
from benchmarks.scenarios.stores import OURS, RIVALS, Kind, Store


class Restarting(Subject):
    """A store that is opened in each repetition; the program has been imported, the disk cache is warm."""

    def __init__(self, store: type[Store], place: Path, state: int, settings: Mapping[str, Any]) -> None:
        super().__init__(place, state, settings)
        self.kind = store
        self.store: Store | None = None

    def fill(self) -> None:
        self.kind(self.place).fill(self.state)

    def action(self, step: Step, chance: random.Random) -> Action:
        self.close()
        keys = [chance.randrange(self.state) for _ in range(step.values["reads"])]
        return partial(self._open_and_read, keys)

    def _open_and_read(self, keys: list[int]) -> list[str]:
        self.store = self.kind(self.place)
        self.store.open()
        return [self.store.get(key) for key in keys]

    def close(self) -> None:
        if self.store is not None:
            self.store.close()
            self.store = None


def contestant(kind: Kind) -> Contestant:
    """Return the contestant of a kind of store."""
    return Contestant(
        kind.name, partial(Restarting, kind.store), kind.configuration, kind.role, kind.needs, kind.refusal
    )


STEPS = (Step("open, read 1 key", 1, {"reads": 1}), Step("open, read 1,000 keys", 1, {"reads": 1_000}))

SCENARIOS = (
    Scenario(
        name="restart",
        group="store",
        title="Restart: open the store and read",
        why="A job that starts again after a crash answers nothing until it has its state back. A design that loads"
        " everything takes longer and longer, and as much memory as there is state.",
        state="stored slots",
        unit="restart",
        contestants=tuple(contestant(kind) for kind in (OURS, *RIVALS)),
        quick=Sizes(states=(1_000, 100_000), steps=STEPS, repetitions=7, seconds=2, patience=45),
        full=Sizes(
            states=(1_000, 10_000, 100_000, 1_000_000, 10_000_000),
            steps=STEPS,
            repetitions=15,
            seconds=30,
            patience=1_800,
        ),
    ),
)
