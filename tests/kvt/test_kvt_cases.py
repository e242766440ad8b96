"""Every behaviour case of the key-value tables, by its id."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kvt.interpreter import CASES, Interpreter


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(case: dict[str, Any]) -> None:
    interpreter = Interpreter(case["config"]["partitions"])
    for step in case["script"]:
        interpreter.step(step)
    interpreter.space._check()
    assert interpreter.space.check_mutations() == []
