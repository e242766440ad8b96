"""The page of the aggregates: its program runs and prints what it says, and its tables name what there is."""

from __future__ import annotations

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
    assert all(hasattr(operators, name) for name in ("HashAgg", "SimpleAgg", "Dedup", "AggCall"))
