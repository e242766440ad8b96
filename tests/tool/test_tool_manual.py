"""The page of the tool is what the tool says of itself."""

from __future__ import annotations

from pathlib import Path

from checkpoint.tool.manual import manual

PAGE = Path(__file__).parents[2] / "docs" / "tool.md"


def test_the_page_ends_with_the_help_of_every_command() -> None:
    assert PAGE.read_text().endswith(f"## The commands\n\n{manual()}")
