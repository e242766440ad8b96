"""Contestants in processes of their own: in turn, counted, and given up without stopping the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.registry import Scenario, Script, load
from benchmarks.results import Outcome
from benchmarks.runner import run, run_scenario, sync_files
from benchmarks.scripts import run_script
from tests.benchmarks import samples

MODULE = "tests.benchmarks.samples"
PAGE = 4096


def outcome_of(name: str, root: Path, progress: list[str] | None = None) -> Outcome:
    scenario = load(MODULE)[name]
    assert isinstance(scenario, Scenario)
    say = (lambda _: None) if progress is None else progress.append
    return run_scenario(scenario, quick=True, progress=say, module=MODULE, root=root)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, list[str], Path]:
    root, progress = tmp_path_factory.mktemp("bench"), list[str]()
    return outcome_of("mixed", root, progress), progress, root


Mixed = tuple[Outcome, list[str], Path]


def test_each_step_that_the_state_is_large_enough_for_is_a_case(mixed: Mixed) -> None:
    outcome, progress, _ = mixed
    assert outcome.failure is None
    assert [(case.state, case.label, case.units, case.x) for case in outcome.cases] == [
        (10_000, "first", 1, None),
        (10_000, "second", 2, 2),
    ]
    assert progress[-2:] == ["mixed: 10,000, first", "mixed: 10,000, second"]


def test_the_warm_up_is_not_counted_and_every_figure_is_there(mixed: Mixed) -> None:
    first = mixed[0].cases[0]
    assert list(first.contestants) == ["ours", "heavy", "failing", "floor"]
    for one in first.contestants.values():
        assert len(one.wall) == len(one.cpu) == len(one.written) == 3
        assert all(seconds > 0 for seconds in one.wall)
        assert 0 < one.before <= one.peak
        assert one.stored > 0
    assert [one.role for one in first.contestants.values()] == ["ours", "rival", "rival", "floor"]


def test_the_kernel_counts_the_pages_that_were_written(mixed: Mixed) -> None:
    first, second = (case.contestants["ours"] for case in mixed[0].cases)
    # Where the file system of the tests has no disk, the kernel counts nothing.
    if second.written_all:
        assert all(written >= PAGE for written in first.written)
        assert all(written >= 2 * PAGE for written in second.written)
        assert second.written_all >= 4 * 2 * PAGE
    else:
        assert first.written == second.written == [0, 0, 0]


def test_memory_is_that_of_the_contestant_alone(mixed: Mixed) -> None:
    first = mixed[0].cases[0].contestants
    assert first["heavy"].peak >= first["heavy"].before + samples.HELD_BYTES
    assert first["ours"].peak < first["heavy"].peak


def test_who_does_not_take_part_is_reported_with_the_reason(mixed: Mixed) -> None:
    first, second = mixed[0].cases
    assert first.absent == {
        "unfillable": "filling it failed: OSError: no room",
        "absent": "not installed: no_such_module_anywhere",
        "refused": "not advised here",
        "small": "not run above 10: it would take for ever",
    }
    assert second.absent == {**first.absent, "failing": "failed at 'second': RuntimeError: no second step"}
    assert list(second.contestants) == ["ours", "heavy", "floor"]


def test_nothing_is_left_on_the_disk(mixed: Mixed) -> None:
    assert list(mixed[2].iterdir()) == []


@pytest.mark.slow
def test_one_that_takes_too_long_or_dies_is_given_up_and_the_others_go_on(tmp_path: Path) -> None:
    case = outcome_of("slow", tmp_path).cases[0]
    assert len(case.contestants["ours"].wall) == 3
    assert case.absent == {
        "slow": "failed at 'first': took more than 5 s",
        "dying": "failed at 'first': its process ended: without a word",
    }


def test_contestants_that_find_different_answers_fail_the_scenario(tmp_path: Path) -> None:
    outcome = outcome_of("wrong", tmp_path)
    assert outcome.failure is not None
    assert "the contestants found different answers" in outcome.failure
    assert outcome.cases == []


def test_a_script_gives_its_tables() -> None:
    script = load(MODULE)["script"]
    assert isinstance(script, Script)
    outcome = run_script(script, quick=False)
    assert outcome.failure is None
    assert [(one.title, len(one.rows)) for one in outcome.tables] == [("Gets", 2), ("Sizes", 1)]
    assert outcome.tables[0].header == ["object", "code", "here", "there", "ratio"]
    assert outcome.notes.startswith("`python -m tests.benchmarks.printing`: ")


@pytest.mark.parametrize(("name", "failure"), [("broken", "it failed at the end"), ("endless", "took more than 3 s")])
def test_a_script_that_fails_keeps_the_tables_that_it_printed(name: str, failure: str) -> None:
    script = load(MODULE)[name]
    assert isinstance(script, Script)
    outcome = run_script(script, quick=True)
    assert outcome.failure == failure
    assert [one.title for one in outcome.tables] == ["Gets", "Sizes"]


def test_a_run_is_kept_after_each_scenario(tmp_path: Path) -> None:
    entries = [load(MODULE)[name] for name in ("gone", "script")]
    kept: list[list[str]] = []
    found = run(entries, quick=False, progress=lambda _: None, keep=lambda run: kept.append([*names(run.outcomes)]))
    assert kept == [["gone"], ["gone", "script"]]
    assert found.outcomes[0].failure == "not installed: tests.benchmarks.no_such_script"
    assert not found.quick
    assert found.versions["Python"]


def test_states_that_are_too_large_are_left_out_and_named() -> None:
    outcome = run([load(MODULE)["mixed"]], quick=True, progress=lambda _: None, module=MODULE, largest=100).outcomes[0]
    assert (outcome.cases, outcome.notes) == ([], "States above 100 were left out: 10,000.")


def names(outcomes: list[Outcome]) -> list[str]:
    return [outcome.name for outcome in outcomes]


def test_syncing_what_was_left_behind_minds_no_folder_and_no_file_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "below").mkdir()
    for name in ("data", "data-shm", "below/lock.mdb", "below/more"):
        (tmp_path / name).write_bytes(b"1")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    synced: list[str] = []
    monkeypatch.setattr(
        "os.fsync", lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
    )
    sync_files(tmp_path)
    assert sorted(synced) == ["below", "data", "more"]
