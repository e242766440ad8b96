"""The page of the aggregates: its program runs and prints what it says, and its tables name what there is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from objectspace import operators
from objectspace.operators.agg_call import ARGUMENTS

PAGE = (Path(__file__).parents[2] / "docs" / "operators_aggregates.md").read_text()


def test_the_program_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(program, {})
    comments = [line.partition("# ")[2] for line in program.splitlines() if "print(" in line or line.startswith("# ")]
    said = [comment.split(": one")[0] for comment in comments if comment]
    assert capsys.readouterr().out.splitlines() == said
    assert len(said) == 5


def test_the_tables_name_every_call_and_operator() -> None:
    named = set(re.findall(r"`(\w+)", PAGE))
    assert named >= ARGUMENTS.keys()
    assert named >= {"HashAgg", "SimpleAgg", "Dedup", "Filter", "Project", "Union", "Tumble", "Hop", "WatermarkFilter"}


def test_every_operator_of_the_page_is_there_and_takes_what_the_page_says() -> None:
    said = re.findall(r"`([A-Z]\w+)\((schema[\w, =]*)\)`", PAGE)
    assert len(said) == 10
    for name, arguments in said:
        taken = list(inspect.signature(getattr(operators, name)).parameters)
        given = [argument.partition("=")[0] for argument in arguments.split(", ")]
        assert taken[: len(given)] == given, name
