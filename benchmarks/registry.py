"""What a scenario is: a small declaration of who does what, at which sizes, and why anybody would care.

A module declares its scenarios in a tuple ``SCENARIOS``; ``benchmarks/scenarios/__init__.py`` names the modules. A
program that prints its own Markdown tables joins as a :class:`Script`, in three lines.
"""

from __future__ import annotations

import importlib
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import util
from pathlib import Path
from typing import Any, Literal

Action = Callable[[], object]
Role = Literal["ours", "part", "rival", "floor"]

DEFAULT_MODULE = "benchmarks.scenarios"


class Subject(ABC):
    """One contestant at one state. It is filled in one process, and opened and measured in another.

    Args:
        place: a folder of its own.
        state: how large the state is; the scenario says what is counted.
        settings: what the sizes of the scenario say besides.
    """

    def __init__(self, place: Path, state: int, settings: Mapping[str, Any]) -> None:
        self.place, self.state, self.settings = place, state, settings

    def fill(self) -> None:  # noqa: B027 - many scenarios start with nothing
        """Make the state and close it. Neither its time nor its memory is counted."""

    def open(self) -> None:  # noqa: B027 - some open in the action
        """Open what was filled, before the first repetition."""

    @abstractmethod
    def action(self, step: Step, chance: random.Random) -> Action:
        """Prepare one repetition of a step and return what is timed.

        What the action returns, unless None, must be the same for all contestants: they are given the same chance.
        """

    def close(self) -> None:  # noqa: B027 - some leave nothing open
        """Close what is open."""


@dataclass(frozen=True)
class Contestant:
    """One way to do the work.

    Args:
        name: what the tables call it.
        subject: makes the subject.
        configuration: which configuration was used, and why: what its own documentation advises.
        role: ``ours``; a ``rival``; a ``floor``, which promises less and only shows how low one could get; or a
            ``part`` of ours, which is shown and not compared.
        needs: the modules that must be installed.
        refusal: returns why it cannot take part here, or None.
        largest: the largest state that it is given, with the reason.
    """

    name: str
    subject: Callable[[Path, int, Mapping[str, Any]], Subject]
    configuration: str
    role: Role = "rival"
    needs: tuple[str, ...] = ()
    refusal: Callable[[], str | None] | None = None
    largest: tuple[int, str] | None = None

    def missing(self, state: int = 0) -> str | None:
        """Return why it does not take part at a state, or None."""
        absent = [name for name in self.needs if util.find_spec(name) is None]
        if absent:
            return f"not installed: {', '.join(absent)}"
        if self.largest is not None and state > self.largest[0]:
            return f"not run above {self.largest[0]:,}: {self.largest[1]}"
        return self.refusal() if self.refusal else None


@dataclass(frozen=True)
class Step:
    """One thing to do to the state, a number of times.

    Args:
        label: what the tables call it.
        units: how many units of work it is: times and bytes are given for one.
        values: what the subject needs to know.
        x: where the step stands on the axis of a chart of steps.
        least_state: the smallest state that it makes sense for.
    """

    label: str
    units: int
    values: Mapping[str, Any] = field(default_factory=dict)
    x: int | None = None
    least_state: int = 0


@dataclass(frozen=True)
class Sizes:
    """How much of a scenario is run.

    Args:
        states: the sizes of the state.
        steps: what is done at each of them.
        repetitions: how many are counted, after one that warms up.
        seconds: a contestant that has used so many in a step stops after ``LEAST_REPETITIONS``.
        patience: how many seconds filling a state, or one repetition, may take before the contestant is given up.
        settings: what every subject is told.
    """

    states: Sequence[int]
    steps: Sequence[Step]
    repetitions: int
    seconds: float = 2.0
    patience: float = 60.0
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Scenario:
    """Contestants that do the same work in turn.

    Args:
        name: what the command line and the results call it.
        group: what it belongs to.
        title: what the page calls it.
        why: why a user would care.
        state: what a state counts: "stored slots".
        unit: what a unit of a step is: "dirty slot".
        contestants: who takes part; exactly one is ours.
        quick: a small run.
        full: the run that the page is made of.
    """

    name: str
    group: str
    title: str
    why: str
    state: str
    unit: str
    contestants: tuple[Contestant, ...]
    quick: Sizes
    full: Sizes

    def sizes(self, quick: bool) -> Sizes:
        """Return how much is run."""
        return self.quick if quick else self.full

    def contestant(self, name: str) -> Contestant:
        """Return a contestant by its name."""
        return next(one for one in self.contestants if one.name == name)


@dataclass(frozen=True)
class Script:
    """A program that measures for itself and prints Markdown tables.

    A cell ``1.46 (1.31-1.90)`` is a ratio with the least and the greatest of its repetitions: those are compared from
    one run to another, and drawn.

    Args:
        name, group, title, why: as of a scenario.
        module: what ``python -m`` runs.
        better: whether a ratio below one (``"less"``) or above one (``"more"``) is a win for us.
        needs: the modules that must be installed.
        quick: arguments of the small run.
        full: arguments of the full run.
        patience: after how many seconds it is given up.
    """

    name: str
    group: str
    title: str
    why: str
    module: str
    better: Literal["less", "more"] = "less"
    needs: tuple[str, ...] = ()
    quick: tuple[str, ...] = ("--quick",)
    full: tuple[str, ...] = ()
    patience: float = 3_600.0

    def missing(self) -> str | None:
        """Return why it cannot be run here, or None."""
        wanted = (self.module, *self.needs)
        absent = [name for name in wanted if util.find_spec(name) is None]
        return f"not installed: {', '.join(absent)}" if absent else None


Entry = Scenario | Script


def load(module: str = DEFAULT_MODULE) -> dict[str, Entry]:
    """Return the scenarios that a module declares, by name.

    Raises:
        ValueError: two have one name, or a scenario has not exactly one contestant of ours.
    """
    found: dict[str, Entry] = {}
    for entry in importlib.import_module(module).SCENARIOS:
        if entry.name in found:
            raise ValueError(f"two scenarios are named {entry.name!r}: rename one of them")
        if isinstance(entry, Scenario):
            _require_sound(entry)
        found[entry.name] = entry
    return found


def _require_sound(scenario: Scenario) -> None:
    names = [one.name for one in scenario.contestants]
    if len(set(names)) < len(names):
        raise ValueError(f"scenario {scenario.name!r}: two contestants have one name: {names}")
    ours = [one.name for one in scenario.contestants if one.role == "ours"]
    if len(ours) != 1:
        raise ValueError(f"scenario {scenario.name!r}: expected one contestant of ours, found {ours}")


def select(entries: Mapping[str, Entry], names: Sequence[str]) -> list[Entry]:
    """Return the scenarios that are named by name or by group, in the order of their declaration; all for none.

    Raises:
        LookupError: a name is neither a scenario nor a group.
    """
    known = set(entries) | {entry.group for entry in entries.values()}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise LookupError(f"no scenario or group {unknown[0]!r}: expected one of {', '.join(sorted(known))}")
    return [entry for entry in entries.values() if not names or {entry.name, entry.group} & set(names)]
