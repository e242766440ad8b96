"""The behaviour cases of joins, top-n and materialised views."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operators.executor_cases import MAKERS, run
from tests.relational.interpreter import CASES

OURS = [case for case in CASES if case["kind"] == "executor" and case["executor"] in MAKERS]


@pytest.mark.parametrize("case", OURS, ids=lambda case: case["id"])
def test_case(case: dict[str, Any]) -> None:
    run(case)


def test_there_are_cases_of_each_operator() -> None:
    assert {case["executor"] for case in OURS} == set(MAKERS)
