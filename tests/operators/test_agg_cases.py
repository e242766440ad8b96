"""Every behaviour case of aggregations, by its id."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operators.agg_interpreter import CASES, MAKERS, OWN, RUNNERS, run

ELSEWHERE = {
    "hash_join": "the cases of joins have an interpreter of their own",
    "top_n": "the cases of TopN have an interpreter of their own",
    "materialize": "the cases of Materialize have an interpreter of their own",
    "dedup": "the cases of Dedup run beside those of joins",
    "sort": "there is no operator that holds rows back until a watermark",
    "dynamic_filter": "the cases of DynamicFilter run beside those of joins",
}
"""Operators whose cases do not run here, with the reason."""

MINE = [case for case in [*CASES, *OWN] if case["kind"] in RUNNERS and case.get("executor", "hash_agg") in MAKERS]


@pytest.mark.parametrize("case", MINE, ids=lambda case: case["id"])
def test_case(case: dict[str, Any]) -> None:
    assert run(case) == len(case["steps"])


def test_every_case_runs_here_or_has_a_reason() -> None:
    others = [case for case in CASES if case["kind"] in RUNNERS and case not in MINE]
    assert {case["executor"] for case in others} <= ELSEWHERE.keys()
    assert len(MINE) >= 28
