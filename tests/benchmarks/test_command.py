"""The command line, from a run to its page."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from benchmarks.__main__ import main
from benchmarks.results import Run

MODULE = "tests.benchmarks.samples"


def test_the_list_says_who_cannot_take_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--module", MODULE]) == 0
    out = capsys.readouterr().out
    assert "| mixed | group | A title | 7 | absent (not installed: no_such_module_anywhere)" in out
    assert "| gone | other | A script | a script | not installed: tests.benchmarks.no_such_script |" in out


def test_without_a_command_the_scenarios_of_the_project_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "| checkpoint | store |" in capsys.readouterr().out


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--quick", "--module", MODULE, "typo"]) == 2
    assert "no scenario or group 'typo'" in capsys.readouterr().err


def test_a_run_prints_json_keeps_it_and_its_page_can_be_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "results"
    assert main(["run", "--quick", "--json", "--module", MODULE, "--output", str(folder), "script"]) == 0
    printed = capsys.readouterr()
    (path,) = folder.iterdir()
    assert orjson.loads(printed.out) == orjson.loads(path.read_bytes())
    assert "[1/1] script" in printed.err
    page = tmp_path / "performance.md"
    assert main(["page", str(path), "--output", str(page)]) == 0
    assert "## script" in page.read_text()
    assert str(page) in capsys.readouterr().out


def test_a_scenario_that_fails_fails_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--quick", "--module", MODULE, "--output", str(tmp_path), "gone", "script"]) == 1
    out = capsys.readouterr().out
    assert "| gone | the scenario | not installed: tests.benchmarks.no_such_script |" in out
    assert "1.46 (1.31-1.90)" in out


def test_what_cannot_be_kept_is_not_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = tmp_path / "file"
    taken.touch()
    assert main(["run", "--quick", "--module", MODULE, "--output", str(taken), "script"]) == 2
    assert "[1/1]" not in capsys.readouterr().err


def test_the_disk_is_that_of_the_stores(tmp_path: Path) -> None:
    for root in (Path("/proc"), tmp_path):
        run = Run.begin(quick=True, root=root)
        assert (run.machine["disk"] == "proc") == (root == Path("/proc"))


def test_a_page_is_a_file_and_its_links_may_have_spaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, page = tmp_path / "results", tmp_path / "my page.md"
    assert main(["run", "--quick", "--module", MODULE, "--output", str(folder), "script", "mixed"]) == 0
    (path,) = folder.iterdir()
    assert main(["page", str(path), "--output", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err
    assert main(["page", str(path), "--output", str(page)]) == 0
    assert "](my%20page/" in page.read_text()
