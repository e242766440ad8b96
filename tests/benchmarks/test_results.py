"""Results as JSON, and what is said of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.figures import Spread
from benchmarks.results import Outcome, Run, Table, joined, newest
from benchmarks.scripts import ratios_in
from tests.benchmarks import made


def test_results_come_back_as_they_were_written(tmp_path: Path) -> None:
    run = made.run()
    path = run.save(tmp_path / "results")
    assert path.name == "quick-20260102030405-0123456789.json"
    assert Run.read(path) == run


def test_the_newest_full_run_is_before_any_quick_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="run python -m benchmarks run first"):
        newest(tmp_path)
    quick = made.run().save(tmp_path)
    assert newest(tmp_path) == quick
    full = made.run(quick=False).save(tmp_path)
    assert newest(tmp_path) == full


def test_runs_in_parts_are_one_with_the_newest_outcome_of_each_scenario() -> None:
    early, late = made.run(), made.run()
    early.started, late.started, late.commit = "2026-01-01", "2026-01-02", "another"
    late.outcomes, late.machine = [replace(late.outcomes[0], notes="again")], {**late.machine, "cores": 99}
    together = joined([late, early])
    assert [outcome.name for outcome in together.outcomes] == [outcome.name for outcome in early.outcomes]
    assert together.outcomes[0].notes == "again"
    assert [replace(outcome, made="") for outcome in together.outcomes[1:]] == early.outcomes[1:]
    assert together.commit == f"{early.commit}, another"
    assert "2026-01-02 at commit `another`" in together.outcomes[0].made
    assert together.outcomes[0].made.endswith(", 99 cores.")
    assert together.outcomes[1].made.startswith(f"Measured 2026-01-01 at commit `{early.commit[:10]}`: ")
    assert joined([early]).outcomes == early.outcomes


def test_a_scenario_that_only_a_quick_run_has_stands_among_full_ones_and_says_so() -> None:
    full, quick = made.run(quick=False), made.run()
    quick.started, only = "2099-01-01", full.outcomes.pop()
    together = joined([quick, full])
    assert not together.quick
    titles = {outcome.name: outcome.title for outcome in together.outcomes}
    assert titles.pop(only.name) == f"{only.title} (small sizes)"
    assert titles == {outcome.name: outcome.title for outcome in full.outcomes}


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"format": 99}', b'{"format": 1, "outcomes": []}'])
def test_what_is_no_result_is_refused_by_name(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=r"odd\.json"):
        Run.read(path)


def test_the_scenario_with_the_worst_ratio_stands_first() -> None:
    assert [outcome.name for outcome in report.losses_first(made.run())] == ["losing", "printed", "winning", "failed"]


def test_a_floor_is_shown_and_is_no_loss() -> None:
    run = made.run()
    assert {one.rival for one in report.standings(run.outcomes[0])} == {"them"}
    assert "| floor |" in report.case_table(run.outcomes[0], run.outcomes[0].cases[0])


def test_losses_are_counted_by_rival_with_the_worst_case() -> None:
    lost, won = report.losing(made.run(), True), report.losing(made.run(), False)
    assert "| [losing](#losing) | them | 2 of 2 | 2.0 (" in lost
    assert "reads \\| writes (" in lost
    assert "| [printed](#printed) | Gets: ratio | 1 of 1 | 1.4 (1.3-1.5) | a list | yes |" in lost
    assert "winning" not in lost
    assert "| [winning](#winning) | them | 1 of 1 | 0.10 (" in won


def test_bytes_are_lost_too_and_less_than_a_page_is_not_compared() -> None:
    run = made.run()
    losing = run.outcomes[3].cases
    losing[0].contestants["ours"].written_all *= 3
    losing[1].contestants["them"].written_all = 100
    lost, won = report.writing(run, True), report.writing(run, False)
    assert "| [losing](#losing) | them | 1 of 1 | 3.0 | reads \\| writes (1,000 slots) |" in lost
    assert "winning" not in lost
    assert "| [winning](#winning) | them | 1 of 1 | 1.0 | one |" in won


def test_a_ratio_of_rates_is_turned_round() -> None:
    outcome = Outcome("rates", "g", "t", "w", better="more")
    outcome.tables = [Table("Puts", ["what", "rate"], [["a", "4.00 (2.00-5.00)"]])]
    assert report.standings(outcome)[0].ratio == Spread(0.25, 0.2, 0.5)


def test_the_labels_of_a_ratio_are_the_texts_before_it() -> None:
    rows = [
        ["list of 10", "`t[i]`", "27.9 ns", "1.88", "1.46 (1.31-1.90)", "2.5"],
        ["10,000", "x", "1 us", "2", "none", ""],
    ]
    found = ratios_in(Table("Gets", ["object", "code", "here", "there", "ratio", "aim"], rows))
    assert found == {("list of 10, `t[i]`", "ratio"): Spread(1.46, 1.31, 1.9)}


def test_who_did_not_take_part_is_listed() -> None:
    assert report.absences(made.run().outcomes) == [
        ("failed", "the scenario", "no such thing"),
        ("losing", "absent", "not installed: absent"),
    ]


def test_percentiles_stand_where_there_are_enough_repetitions() -> None:
    outcome = made.run().outcomes[0]
    assert "99th" not in report.case_table(outcome, outcome.cases[0])
    ours = outcome.cases[0].contestants["ours"]
    ours.wall = [1.0] * 99 + [4.0]
    assert "99th percentile / median" in report.case_table(outcome, outcome.cases[0])
    assert "| 1.0, 4.0 |" in report.case_table(outcome, outcome.cases[0])
