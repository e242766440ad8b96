"""What it costs to make changes durable, beside every store that a Python program would use in our place."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.registry import Action, Contestant, Scenario, Sizes, Step, Subject
from benchmarks.scenarios.stores import FLOOR, OURS, OURS_NORMAL, RIVALS, Kind, Ours, Store, changes


class Changing(Subject):
    """A store of which some entries change and become durable. Encoding is timed, making up the values is not."""

    def __init__(self, store: type[Store], place: Path, state: int, settings: Mapping[str, Any]) -> None:
        super().__init__(place, state, settings)
        self.store = store(place)
        self.size = state

    def fill(self) -> None:
        self.store.fill(self.state)

    def open(self) -> None:
        self.store.open()

    def action(self, step: Step, chance: random.Random) -> Action:
        entries = changes(step.values["kind"], step.units, self.size, chance)
        if step.values["kind"] == "appended":
            self.size += step.units
        return partial(self.change, entries)

    def change(self, entries: Mapping[int, str]) -> None:
        """Change entries and make them durable."""
        self.store.change(entries)

    def close(self) -> None:
        self.store.close()


class SavingAlone(Changing):
    """Our checkpoint without the assignments before it."""

    store: Ours

    def action(self, step: Step, chance: random.Random) -> Action:
        entries = changes(step.values["kind"], step.units, self.size, chance)
        if step.values["kind"] == "appended":
            self.size += step.units
        self.store.target.update(entries)
        return self._save

    def _save(self) -> None:
        self.store.space.checkpoint()


def contestant(kind: Kind, subject: Any = Changing) -> Contestant:
    """Return the contestant of a kind of store."""
    made = partial(subject, kind.store)
    return Contestant(kind.name, made, kind.configuration, kind.role, kind.needs, kind.refusal)


ALONE = Contestant(
    "objectspace, checkpoint() alone",
    partial(SavingAlone, Ours),
    "as objectspace, but the assignments are not timed, only checkpoint()",
    "part",
)

CONTESTANTS = (
    contestant(OURS),
    ALONE,
    contestant(OURS_NORMAL),
    *(contestant(kind) for kind in RIVALS),
    contestant(FLOOR),
)


def step(count: int, kind: str) -> Step:
    """Return the step that changes some entries."""
    x = count if kind == "random" else None
    return Step(f"{count:,} {kind}", count, {"kind": kind}, x, least_state=count)


# The large ones come late: what they leave to be merged is then not counted as that of the small ones. What is appended
# stays, so that it comes last.
FEW = (*(step(count, "random") for count in (1, 10, 100, 1_000)), step(1_000, "clustered"))
MANY = tuple(step(count, "random") for count in (10_000, 100_000))
APPENDED = step(1_000, "appended")

CHURN = Step("1,000 random", 1_000, {"kind": "random"})

SCENARIOS = (
    Scenario(
        name="checkpoint",
        group="store",
        title="A checkpoint: change some slots of many and make them durable",
        why="A streaming job, a bot or a simulation saves its state again and again; this is what one save costs.",
        state="stored slots",
        unit="dirty slot",
        contestants=CONTESTANTS,
        quick=Sizes(
            states=(10_000, 100_000),
            steps=(step(1, "random"), step(100, "random"), *FEW[3:], step(10_000, "random"), APPENDED),
            repetitions=7,
            seconds=0.7,
            patience=45,
        ),
        full=Sizes(
            states=(10_000, 100_000, 1_000_000, 10_000_000),
            steps=(*FEW, *MANY, APPENDED),
            repetitions=21,
            seconds=8,
            patience=1_800,
        ),
    ),
    Scenario(
        name="churn",
        group="store",
        title="Many checkpoints one after the other: how even they are",
        why="What is put off has to be paid at some time: a merge that stops a job for seconds is worse than one that"
        " costs a little at each checkpoint. Look at the 99th percentile and at the bytes of the whole run.",
        state="stored slots",
        unit="dirty slot",
        contestants=CONTESTANTS,
        quick=Sizes(states=(100_000,), steps=(CHURN,), repetitions=60, seconds=4, patience=45),
        full=Sizes(states=(1_000_000,), steps=(CHURN,), repetitions=500, seconds=60, patience=1_800),
    ),
)
