"""The page of relational tables: its programs run and print what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from objectspace.relational import Column, TableSchema

PAGE = (Path(__file__).parents[2] / "docs" / "relational.md").read_text()


def test_the_programs_print_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    scope: dict[str, Any] = {}
    for block in blocks:
        exec(block, scope)
    expected = re.findall(r"print\(.*#\s+(.*)", "".join(blocks))
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(expected) == 14
    assert all(said.startswith(shown) for shown, said in zip(printed, expected, strict=True))
    scope["store"].close()


def test_the_page_names_every_method_that_changes_a_schema() -> None:
    for name in ("with_column", "without_column", "renamed", "widened"):
        assert hasattr(TableSchema, name)
        assert f"`{name}(" in PAGE, name


def test_the_key_that_is_drawn_is_the_key() -> None:
    schema = TableSchema([Column("carrier", "string"), Column("delay", "int64")], ["carrier", "delay desc"])
    drawn = re.search(r"dictionary\s+([0-9A-F |]+?)\s{2,}\[", PAGE)
    assert drawn is not None
    assert bytes.fromhex(drawn[1].replace("|", "")) == schema.key_encoder.encode(("UA", 90))
