"""Results that were made up, to test what is done with results."""

from __future__ import annotations

import random
from collections.abc import Sequence

from benchmarks.results import Case, Measurement, Outcome, Run, Table

REPETITIONS = 15


def measurement(role: str, seconds: float, noise: float, drift: Sequence[float], chance: random.Random) -> Measurement:
    """Return times around a middle; the drift is what a busy machine does to all contestants of a repetition."""
    wall = [seconds * slow * chance.uniform(1 - noise, 1 + noise) for slow in drift]
    return Measurement(
        role, wall, [one / 2 for one in wall], [4096] * len(wall), 4096 * (len(wall) + 1), 60 << 20, 50 << 20, 8192
    )


def case(label: str, ours: float, theirs: float, *, state: int = 1_000, seed: int = 0, noise: float = 0.02) -> Case:
    """Return a case of ours, one rival and a floor on a machine whose speed wanders by a factor of two."""
    chance = random.Random(f"{label}/{seed}/{state}")
    drift = [chance.uniform(1, 2) for _ in range(REPETITIONS)]
    found = Case(state, label, 10, 10)
    for name, role, seconds in (("ours", "ours", ours), ("them", "rival", theirs), ("floor", "floor", theirs / 10)):
        found.contestants[name] = measurement(role, seconds, noise, drift, chance)
    return found


def run(
    *, seed: int = 0, ours: float = 1e-3, wins: float = 1e-4, script: str = "1.40 (1.30-1.50)", quick: bool = True
) -> Run:
    """Return a run of a scenario that we lose, one that we win, and a script."""
    losing = Outcome("losing", "store", "We lose", "It hurts", 1.0, "slots", "slot")
    losing.cases = [
        case("reads | writes", ours, 5e-4, seed=seed),
        case("reads | writes", ours, 5e-4, seed=seed, state=10_000),
    ]
    losing.configurations = {"ours": "the defaults", "them": "as their documentation says"}
    losing.cases[0].absent = {"absent": "not installed: absent"}
    winning = Outcome("winning", "store", "We win", "It pleases", 1.0, "slots", "slot")
    winning.cases = [case("one", wins, 1e-3, seed=seed)]
    printed = Outcome("printed", "other", "A script", "It prints", 1.0)
    printed.tables = [Table("Gets", ["what", "here", "ratio"], [["a list", "1.2 us", script], ["a set", "1.2 us", ""]])]
    failed = Outcome("failed", "other", "A script", "It fails", failure="no such thing")
    machine = {"system": "Linux", "cpu": "a cpu", "cores": 2, "memory": 1 << 30, "disk": "ext4", "load": 0.5}
    return Run(
        quick,
        "2026-01-02T03:04:05+00:00",
        "0123456789abcdef",
        machine,
        {"Python": "3.11"},
        [winning, printed, failed, losing],
    )
