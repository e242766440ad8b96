"""The worked examples of README and of the page of the tool: every command is run, and prints what stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGE = (ROOT / "docs" / "tool.md").read_text()

TIMES = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00")


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which the command is on the path."""
    (tmp_path / "bin").mkdir()
    for name, module in (("checkpoint", "checkpoint"), ("sqlite-utils", "sqlite_utils")):
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        script.chmod(0o755)
    path = [str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    return {**os.environ, "PATH": os.pathsep.join(path)}


def transcript(text: str, title: str) -> str:
    """Return the first block with commands after a text."""
    return re.findall(r"```text\n(\$ .*?)```", text[text.index(title) :], re.DOTALL)[0]


def replayed(block: str, folder: Path, environment: dict[str, str]) -> str:
    """Run the commands of a block, and return it with what they print."""
    lines = []
    for line in block.splitlines():
        if line.startswith("$ "):
            done = subprocess.run(
                ["sh", "-c", line[2:]],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            lines += [line, *done.stdout.splitlines()]
    return "\n".join(lines) + "\n"


def program(text: str, mark: str) -> str:
    return next(block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if mark in block)


def test_a_bug_is_found_and_undone_and_the_pipeline_goes_on(
    tmp_path: Path, shell: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    exec(program(README, "shop = Pipeline()"), scope)
    block = transcript(README, "fewer than no pears")
    assert TIMES.sub("T", replayed(block, tmp_path, shell)) == TIMES.sub("T", block)
    going_on = program(README, "run = shop.run_local")
    exec(going_on, scope)
    assert capsys.readouterr().out.strip() == going_on.split("# ")[1].splitlines()[0]


def test_forks_and_rollbacks_are_drawn(tmp_path: Path, shell: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(program(PAGE, "what-if.db"), {})
    block = transcript(PAGE, "## Forks and rollbacks")
    assert TIMES.sub("T", replayed(block, tmp_path, shell)) == TIMES.sub("T", block)


def test_it_is_said_when_a_key_changed(tmp_path: Path, shell: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(program(PAGE, "stock.db"), {})
    block = transcript(PAGE, "## When a key changed")
    assert replayed(block, tmp_path, shell) == block


def test_other_tools_read_a_store(tmp_path: Path, shell: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(program(PAGE, "what-if.db"), {})
    block = transcript(PAGE, "## Other tools")
    assert TIMES.sub("T", replayed(block, tmp_path, shell)) == TIMES.sub("T", block)
