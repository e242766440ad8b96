"""Every behaviour case of the objects, by its id."""

from __future__ import annotations

from typing import Any

import pytest

from tests.objects.interpreter import CASES, Interpreter, dump

LEFT_OUT = {
    "dict-null-key": "Python dictionaries take None for a key, and so do these",
}
"""Cases that do not apply, with the reason."""


@pytest.mark.parametrize("case", [case for case in CASES if case["id"] not in LEFT_OUT], ids=lambda case: case["id"])
def test_case(case: dict[str, Any]) -> None:
    interpreter = Interpreter()
    for step in case["script"]:
        interpreter.step(step)
    if not interpreter.has_damage:
        interpreter.check()
    expected = (case["expect"] or {}).get("contents", {})
    assert {name: dump(interpreter.env[name]) for name in expected} == expected
