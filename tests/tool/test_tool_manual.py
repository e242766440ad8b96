"""The page of the tool is what the tool says of itself."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from checkpoint.tool.manual import manual
from tests.tool.conftest import Tool

PAGE = Path(__file__).parents[2] / "docs" / "tool.md"


def test_the_page_ends_with_the_help_of_every_command() -> None:
    assert PAGE.read_text().endswith(f"## The commands\n\n{manual()}")


@pytest.mark.parametrize(("found", "said"), [("9.8", "version 9.8"), (None, "not installed: it is run from its files")])
def test_the_version_is_told_also_if_nothing_is_installed(
    tool: Tool, monkeypatch: pytest.MonkeyPatch, found: str | None, said: str
) -> None:
    def _version(name: str) -> str:
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(metadata, "version", _version)
    assert tool("--version").output == f"checkpoint, {said}\n"


@pytest.mark.parametrize("command", ["revert", "apply", "fork", "compact", "prune", "gc", "repair", "import"])
def test_a_command_for_a_whole_store_or_space_offers_no_shards(tool: Tool, command: str) -> None:
    assert "--shard" not in tool(command, "--help").output
    assert "--shard" in tool("restore", "--help").output, "the word is that of the commands that take one"
