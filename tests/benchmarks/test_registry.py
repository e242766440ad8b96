"""What is declared, and how it is chosen."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType

import pytest

from benchmarks.registry import Contestant, Scenario, Script, load, select
from tests.benchmarks import samples

MODULE = "tests.benchmarks.samples"


def declared(monkeypatch: pytest.MonkeyPatch, *entries: object) -> str:
    module = ModuleType("declared_scenarios")
    module.SCENARIOS = entries  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "declared_scenarios", module)
    return "declared_scenarios"


def test_every_declared_scenario_says_who_takes_part_and_why_a_user_would_care() -> None:
    found = load()
    assert {"checkpoint", "churn", "conversation", "restart", "middle", "reads", "diff", "rollback"} <= found.keys()
    for entry in found.values():
        assert len(entry.why) > 40, entry.name
        if isinstance(entry, Scenario):
            assert all(one.configuration for one in entry.contestants), entry.name
            assert {step.label for step in entry.quick.steps} <= {step.label for step in entry.full.steps}, entry.name
            assert max(entry.quick.states) <= max(entry.full.states), entry.name


def test_a_scenario_is_chosen_by_its_name_or_its_group_in_the_order_of_declaration() -> None:
    found, group = load(MODULE), ["mixed", "slow", "wrong", "script", "broken", "endless"]
    assert [entry.name for entry in select(found, [])] == [*group, "gone"]
    assert [entry.name for entry in select(found, ["gone", "mixed"])] == ["mixed", "gone"]
    assert [entry.name for entry in select(found, ["group"])] == group
    with pytest.raises(LookupError, match=r"no scenario or group 'typo': expected one of broken, endless, gone, group"):
        select(found, ["mixed", "typo"])


def test_two_scenarios_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="two scenarios are named 'mixed'"):
        load(declared(monkeypatch, samples.SCENARIOS[0], samples.SCENARIOS[0]))


@pytest.mark.parametrize(
    ("contestants", "message"),
    [
        ((), "expected one contestant of ours, found \\[\\]"),
        (
            (Contestant("a", samples.Well, "", "ours"), Contestant("b", samples.Well, "", "ours")),
            "found \\['a', 'b'\\]",
        ),
        (
            (Contestant("a", samples.Well, "", "ours"), Contestant("a", samples.Well, "")),
            "two contestants have one name",
        ),
    ],
)
def test_a_scenario_has_one_contestant_of_ours(
    contestants: tuple[Contestant, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = replace(samples.scenario("odd"), contestants=contestants)
    with pytest.raises(ValueError, match=message):
        load(declared(monkeypatch, scenario))


def test_a_contestant_says_why_it_is_missing() -> None:
    scenario = samples.SCENARIOS[0]
    assert isinstance(scenario, Scenario)
    reasons = {one.name: one.missing(10_000) for one in scenario.contestants}
    assert reasons["absent"] == "not installed: no_such_module_anywhere"
    assert reasons["refused"] == "not advised here"
    assert reasons["small"] == "not run above 10: it would take for ever"
    assert reasons["ours"] is None
    assert scenario.contestant("small").missing(10) is None


def test_a_script_says_why_it_is_missing() -> None:
    assert Script("a", "b", "c", "d", "tests.benchmarks.printing").missing() is None
    assert Script("a", "b", "c", "d", "tests.benchmarks.nothing").missing() == "not installed: tests.benchmarks.nothing"
