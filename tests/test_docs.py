"""The documentation cannot drift: its programs run, its commands exist, its tables are those of the docstrings."""

from __future__ import annotations

import doctest
import inspect
import re
import sqlite3
from pathlib import Path

import pytest

from objectspace import PersistedObjectSpace
from objectspace.objects import KINDS, ObjectDictionary

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
OBJECTS = (ROOT / "docs" / "objects.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def sections_of(page: Path) -> set[str]:
    """Return what links to the sections of a page end with, as GitHub makes it of their headings."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def rows_of(cls: type) -> list[list[str]]:
    """Return the rows of the table in the docstring of a class, as cells of plain text."""
    text = inspect.getdoc(cls) or ""
    body = text.split("\n")
    edges = [place for place, line in enumerate(body) if line.startswith("===")]
    lines = body[edges[1] + 1 : edges[2]]
    cells = (re.split(r"\s{2,}|(?<=``) (?=[\w\d])", line, maxsplit=1) for line in lines)
    return [[cell.replace("``", "`") for cell in row] for row in cells]


def test_the_programs_of_the_readme_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plain = [block for block in blocks("python") if "spark" not in block]
    scope: dict[str, object] = {}
    for block in plain:
        exec(block, scope)
    assert len(plain) == 5
    with PersistedObjectSpace.open("state.db") as space:
        assert space.get("counts") == {"a": 7, "b": 1}
    with sqlite3.connect("state.db") as connection:
        shown = connection.execute("SELECT slot, value FROM current_item WHERE name = 'events'").fetchall()
    assert shown == [(0, '"c"'), (1, '"b"'), (2, '"a"')]


def test_the_modules_that_the_page_about_the_code_names_are_there() -> None:
    named = re.findall(r"`([\w/]+\.py)`", (ROOT / "docs" / "code.md").read_text())
    assert len(named) > 40
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_the_errors_of_their_page_are_raised_as_it_shows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wrapped = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    found = doctest.testfile(str(ROOT / "docs" / "errors.md"), module_relative=False, optionflags=wrapped)
    assert (found.failed, found.attempted) == (0, 48)


def test_the_commands_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"make ([a-z][\w-]*)(?= |`|\n|$)", "\n".join(blocks("sh")))) | {"check", "bench-objects"}
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("cls", [cls for cls in [*KINDS.values(), ObjectDictionary] if cls.kind != "Value"])
def test_the_page_of_the_objects_says_what_each_method_dirties(cls: type) -> None:
    rows = rows_of(cls)
    assert rows
    section = OBJECTS.split(f"### {cls.__name__}\n")[1].split("\n### ")[0]
    for method, dirties in rows:
        assert f"| {method} | {dirties} |" in section


def test_the_links_of_the_pages_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target, section in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
            found = page.parent / target if target else page
            assert found.exists(), f"{page.name} links to {target}"
            assert not section or section in sections_of(found), f"{page.name} links to {target}#{section}"
