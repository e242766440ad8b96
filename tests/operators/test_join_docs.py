"""The page about joins: its programs give what it says, and its table has every operator."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from objectspace import operators

PAGE = Path(__file__).parents[2] / "docs" / "operators_joins.md"


def test_the_programs_of_the_page() -> None:
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted > 25
    assert found.failed == 0


def test_the_table_has_every_operator_of_the_page() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == {name for name in operators.__all__ if name.endswith(("Join", "TopN"))} | {
        "Materialize",
        "DynamicFilter",
    }
