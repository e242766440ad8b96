"""The page of the key-value tables runs, and every public name says what it is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from objectspace import kvt
from objectspace.testing import crash_everywhere

PAGE = (Path(__file__).parents[2] / "docs" / "key_value_tables.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
WRITES = ["put", "put_if_absent", "put_all", "replace", "replace_all", "remove", "remove_all", "apply", "update"]


def test_the_programs_of_the_page_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    for block in BLOCKS:
        exec(block, scope)
    printed = capsys.readouterr().out
    assert len(BLOCKS) == 4
    assert "{'pears': '5', 'plums': '9'} [] ['fruit'] 2" in printed
    assert "[TableKey(key=b'figs'" in printed
    assert "expected version" in printed
    assert printed.endswith("\n2\n")


def test_the_operator_of_the_page_keeps_the_same_whatever_was_tried_before() -> None:
    scope: dict[str, Any] = {}
    exec(next(block for block in BLOCKS if "class Stock" in block), scope)
    assert crash_everywhere(scope["pipeline"], [{"deliveries": [("pears", 3)]}]) > 50


@pytest.mark.parametrize("name", kvt.__all__)
def test_a_public_name_says_what_it_is(name: str) -> None:
    found = getattr(kvt, name)
    assert inspect.getdoc(found)
    if inspect.isclass(found) and not issubclass(found, Exception):
        for label, method in inspect.getmembers(found, inspect.isfunction):
            if not label.startswith("_") and method.__module__.startswith("objectspace."):
                assert inspect.getdoc(method), f"{name}.{label} has no docstring"
                assert "return" in inspect.get_annotations(method), f"{name}.{label} does not say what it returns"


@pytest.mark.parametrize("write", WRITES)
def test_a_write_says_what_it_costs(write: str) -> None:
    text = inspect.getdoc(getattr(kvt.KeyValueTable, write)) or ""
    assert "Time:" in text
    assert "Dirties:" in text
