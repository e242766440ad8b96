"""A regression is found where there is one, and not where only the machine was busy."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.comparison import Change, compare, describe, relative
from benchmarks.results import Run
from tests.benchmarks import made


def verdicts(old: Run, new: Run) -> dict[str, str]:
    return {f"{one.scenario}: {one.case}": one.verdict for one in compare(old, new) if one.verdict != "same"}


def find(changes: list[Change], scenario: str, case: str) -> Change:
    return next(one for one in changes if (one.scenario, one.case) == (scenario, case))


@pytest.mark.parametrize("seed", range(1, 6))
def test_the_same_work_on_a_machine_that_wanders_by_a_factor_of_two_is_the_same(seed: int) -> None:
    assert verdicts(made.run(), made.run(seed=seed)) == {}


def test_what_became_slower_is_found_with_its_ratio_and_stands_first() -> None:
    changes = compare(made.run(), made.run(seed=1, ours=1.3e-3))
    assert [one.verdict for one in changes[:3]] == ["slower", "slower", "same"]
    worst = changes[0]
    assert worst.scenario == "losing"
    assert worst.low <= worst.ratio <= worst.high
    assert math.isclose(worst.ratio, 1.3, rel_tol=0.05)
    assert worst.beside == ("them",)
    assert worst.is_regression


def test_what_became_faster_is_no_regression() -> None:
    changes = compare(made.run(), made.run(seed=1, wins=5e-5))
    found = find(changes, "winning", "one")
    assert found.verdict == "faster"
    assert not any(one.is_regression for one in changes)


def test_a_change_that_the_band_allows_is_the_same() -> None:
    slower = made.run(seed=1, ours=1.3e-3)
    assert [one for one in compare(made.run(), slower, band=0.5) if one.verdict != "same"] == []


def test_noise_as_wide_as_the_change_is_no_regression() -> None:
    old, new = made.run(), made.run(seed=1)
    for run, ours in ((old, 1e-3), (new, 1.15e-3)):
        run.outcomes[3].cases = [made.case("noisy", ours, 5e-4, seed=int(ours * 1e6), noise=0.6)]
    assert find(compare(old, new), "losing", "noisy").verdict == "same"


def test_more_bytes_for_the_same_work_are_a_regression() -> None:
    old, new = made.run(), made.run(seed=1)
    for run in (old, new):
        run.outcomes[0].cases[0].contestants["ours"].written_all = 1_000_000
    assert verdicts(old, new) == {}
    new.outcomes[0].cases[0].contestants["ours"].written_all = 3_000_000
    assert verdicts(old, new) == {"winning: one, bytes written": "more bytes"}


def test_the_ratios_of_scripts_differ_only_where_their_extremes_are_apart() -> None:
    old = made.run()
    assert verdicts(old, made.run(script="2.00 (1.80-2.40)")) == {"printed: Gets: a list: ratio": "slower"}
    assert verdicts(old, made.run(script="1.80 (1.60-2.40)")) == {}


def test_a_rival_that_stopped_early_is_not_paired_with() -> None:
    old, new = made.run(), made.run(seed=1)
    slow = new.outcomes[0].cases[0].contestants["them"]
    slow.wall = slow.wall[:3]
    found = find(compare(old, new), "winning", "one")
    assert found.beside == ()
    assert relative(new.outcomes[0].cases[0], []) == [
        math.log(seconds) for seconds in new.outcomes[0].cases[0].contestants["ours"].wall
    ]


def test_what_is_only_in_one_run_is_said() -> None:
    old, new = made.run(), made.run(seed=1)
    new.outcomes[3].cases.pop()
    del new.outcomes[1]
    assert verdicts(old, new) == {
        "printed: the scenario": "only in one",
        "losing: reads | writes (10,000 slots)": "only in one",
    }
    assert "only in one" in describe(compare(old, new))


def test_a_quick_run_is_not_compared_with_a_full_one() -> None:
    with pytest.raises(ValueError, match="one run is quick and the other full"):
        compare(made.run(), made.run(quick=False))


def test_the_command_says_by_its_status_whether_to_merge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same, worse = made.run(seed=1), made.run(seed=2, ours=2e-3)
    paths = [str(run.save(tmp_path / str(n))) for n, run in enumerate((made.run(), same, worse))]
    assert command.main(["compare", paths[0], paths[1]]) == 0
    assert "0 changes, 7 cases the same" in capsys.readouterr().out
    assert command.main(["compare", paths[0], paths[2]]) == 1
    shown = capsys.readouterr().out
    assert "2 changes, 5 cases the same" in shown
    assert "| losing | reads \\| writes (1,000 slots) | slower |" in shown
    assert command.main(["compare", paths[0], str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err
