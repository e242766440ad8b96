"""The behaviour cases of joins, filters by a value, top-n and materialised views."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operators.executor_cases import MAKERS, run, run_aligned
from tests.relational.interpreter import CASES

OURS = [case for case in CASES if case["kind"] == "executor" and case["executor"] in MAKERS]


ALIGNED = [case for case in CASES if case["kind"] == "executor_aligned"]


@pytest.mark.parametrize("case", OURS, ids=lambda case: case["id"])
def test_case(case: dict[str, Any]) -> None:
    assert run(case) == len(case["steps"])


def test_there_are_cases_of_each_operator() -> None:
    assert {case["executor"] for case in OURS} == set(MAKERS)


@pytest.mark.parametrize("case", ALIGNED, ids=lambda case: case["id"])
def test_aligned_case(case: dict[str, Any]) -> None:
    assert case["executor"] == "hash_join"
    run_aligned(case)


ELSEWHERE = {"hash_agg", "simple_agg"}
"""Executors that the tests of aggregations run."""


def test_every_executor_is_run() -> None:
    named = {case["executor"] for case in CASES if case["kind"] in ("executor", "executor_aligned")}
    assert named == set(MAKERS) | ELSEWHERE
