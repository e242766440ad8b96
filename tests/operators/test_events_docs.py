"""The pages about events and about testing: their programs run, and their table has every operator."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from objectspace.operators import events
from objectspace.testing import crash_everywhere

DOCS = Path(__file__).parents[2] / "docs"


def run_blocks(page: str) -> dict[str, object]:
    scope: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL):
        exec(block, scope)
    return scope


def test_the_page_of_the_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    scope = run_blocks("operators_events.md")
    assert capsys.readouterr().out == "121\n[] [(1, 1.0)]\n[] [(0, 2.0)]\n[2.0] [(1, 2.0)]\n"
    # The storage fails beneath the operators of the other page.
    assert crash_everywhere(scope["Distinct"], [1, 1, 2], max_dirty_per_event=1, storage=False) == 27


def test_the_page_of_the_kit() -> None:
    assert "Totals" in run_blocks("testing.md")


def test_the_table_has_every_operator() -> None:
    page = (DOCS / "operators_events.md").read_text()
    named = set(re.findall(r"`(\w+)\(", "\n".join(line for line in page.splitlines() if line.startswith("| `"))))
    assert named == set(events.__all__) - {"EventOperator"}
