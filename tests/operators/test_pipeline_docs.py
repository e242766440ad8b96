"""The page of pipelines: its programs run and print what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from objectspace import operators
from objectspace.operators import Expression, Stream
from objectspace.operators.agg_call import ARGUMENTS

PAGE = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()


def test_the_programs_print_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    scope: dict[str, Any] = {}
    for block in blocks:
        exec(block, scope)
    expected = re.findall(r"print\(.*?\)\s+#\s(.*)", "".join(blocks))
    (changes,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    expected[1:1] = changes.splitlines()
    printed = capsys.readouterr().out.splitlines()
    assert [said[: len(shown)] for said, shown in zip(printed, expected, strict=True)] == expected


def test_the_table_names_every_method_of_a_stream() -> None:
    section = PAGE.split("## Streams\n")[1].split("\n## ")[0]
    methods = [
        name for name in vars(Stream) if not name.startswith("_") and name not in ("then", "relabelled", "schema")
    ]
    assert methods
    for name in methods:
        assert re.search(rf"`[^|]*\b{name}\b", section), name


def test_the_page_names_every_method_of_an_expression() -> None:
    section = PAGE.split("## Expressions\n")[1].split("\n## ")[0]
    methods = [name for name in vars(Expression) if not name.startswith("_") and name not in ("bind", "is_same")]
    assert "is_null" in methods
    for name in methods:
        assert re.search(rf"\b{name}\(", section), name


def test_the_page_names_every_call_of_an_aggregation() -> None:
    section = PAGE.split("## Streams\n")[1].split("\n## ")[0]
    for kind in ARGUMENTS:
        function = next((name for name in (kind, f"{kind}_") if name in operators.__all__), kind)
        assert f"`{function}`" in section, kind
