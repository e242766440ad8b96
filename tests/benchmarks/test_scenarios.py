"""Every declared scenario does its work at a tiny size, and all contestants that are here find the same."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.registry import Contestant, Scenario, Step, load
from benchmarks.scenarios.stores import RIVALS, Kind, changes

SCENARIOS = {name: entry for name, entry in load().items() if isinstance(entry, Scenario)}

STATES = {"reads": 3, "middle": 20, "state": 200, "conversation": 0}
"""Sizes of the state; 1,000 where nothing is said."""

UNITS = 5
SLOTS = 1_200


def tiny(scenario: Scenario) -> list[Step]:
    steps = scenario.quick.steps[:3]
    return [replace(step, units=min(step.units, UNITS)) for step in steps]


def answers_of(scenario: Scenario, contestant: Contestant, place: Path) -> list[object]:
    """Fill, open and run each step twice, as the workers do, and return what was found."""
    place.mkdir()
    state, settings = STATES.get(scenario.name, 1_000), {"slots": SLOTS}
    contestant.subject(place, state, settings).fill()
    subject = contestant.subject(place, state, settings)
    subject.open()
    found = []
    for step in tiny(scenario):
        for repetition in range(2):
            found.append(subject.action(step, random.Random(f"{step.label}/{repetition}"))())
    subject.close()
    return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_runs_and_its_contestants_agree(name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    present = [one for one in scenario.contestants if one.missing() is None]
    assert any(one.role == "ours" for one in present)
    assert len(present) >= 2
    found = {one.name: answers_of(scenario, one, tmp_path / str(n)) for n, one in enumerate(present)}
    answers = {name: repr(answer) for name, answer in found.items() if any(one is not None for one in answer)}
    assert len(set(answers.values())) <= 1, answers


@pytest.mark.parametrize("name", ["reads", "diff", "rollback", "restart"])
def test_a_scenario_that_reads_says_what_it_has_read(name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    ours = next(one for one in scenario.contestants if one.role == "ours")
    assert all(answers_of(scenario, ours, tmp_path / "ours"))


PLAIN = [kind for kind in RIVALS if not kind.needs and kind.refusal is None]


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.name)
def test_a_store_holds_what_it_was_given_after_it_was_closed(kind: Kind, tmp_path: Path) -> None:
    store = kind.store(tmp_path)
    store.fill(30)
    store.open()
    entries = changes("random", 10, 30, random.Random(1)) | changes("appended", 3, 30, random.Random(2))
    store.change(entries)
    store.close()
    again = kind.store(tmp_path)
    again.open()
    assert {key: again.get(key) for key in entries} == entries
    unchanged = next(key for key in range(30) if key not in entries)
    assert again.get(unchanged) == f"{unchanged:044d}"
    again.close()


def test_what_changes_is_as_many_as_was_asked_for_and_of_its_shape() -> None:
    chance = random.Random(3)
    assert len(changes("random", 10, 100, chance)) == 10
    assert list(changes("appended", 3, 100, chance)) == [100, 101, 102]
    clustered = list(changes("clustered", 4, 100, chance))
    assert clustered == [*range(clustered[0], clustered[0] + 4)]
    assert max(clustered) < 100
