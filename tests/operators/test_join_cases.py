"""The behaviour cases of joins, filters by a value, top-n, materialised views and first rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operators.executor_cases import MAKERS, logs, run, run_aligned, schema_of
from tests.relational.interpreter import CASES, OWN

OURS = [case for case in [*CASES, *OWN] if case["kind"] == "executor" and case["executor"] in MAKERS]

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

NOT_HERE = {"sort": "there is no operator that holds rows back until a watermark"}
"""Executors that the facts name and these operators do not include, with the reason."""


def test_every_executor_is_run() -> None:
    named = {case["executor"] for case in [*CASES, *OWN] if case["kind"] in ("executor", "executor_aligned")}
    assert named - NOT_HERE.keys() == set(MAKERS) | ELSEWHERE


SCHEMA = schema_of(["int64", "int64"], [0])
A, B = (1, 1), (1, 2)


def test_a_row_that_comes_and_goes_does_not_count() -> None:
    short = logs(SCHEMA, [("-", A), ("+", B)])
    assert logs(SCHEMA, [("-", A), ("+", A), ("-", A), ("+", (7, 7)), ("+", B), ("-", (7, 7))]) == short
    assert logs(SCHEMA, [("+", A), ("U-", A), ("U+", A), ("-", A)]) == ({}, {})


@pytest.mark.parametrize(
    "other",
    [
        [("+", B), ("-", A)],
        [("-", A)],
        [("-", A), ("+", A)],
        [("-", A), ("+", B), ("+", B)],
        [("-", A), ("+", B), ("-", B)],
        [("+", (7, 7)), ("-", A), ("+", B)],
    ],
)
def test_rows_that_do_not_cancel_are_compared_in_order(other: list[Any]) -> None:
    assert logs(SCHEMA, other) != logs(SCHEMA, [("-", A), ("+", B)])


def dedup_case(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    spec = {"types": ["int64", "int64"], "dedup_cols": [0], "stream_key": [1], **more}
    return {"kind": "executor", "executor": "dedup", "spec": spec, "steps": list(steps)}


GIVEN = [["+", [1, 7]], ["+", [2, 3]], ["+", [1, 5]]]

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a key too few": (dedup_case({"chunk": GIVEN, "expect": [["+", [1, 7]]]}, {"barrier": 1, "expect": []}), "barrier"),
    "a key twice": (
        dedup_case({"chunk": GIVEN, "expect": [GIVEN[0], GIVEN[1], GIVEN[2]]}, {"barrier": 1, "expect": []}),
        "barrier",
    ),
    "a row that did not come": (
        dedup_case({"chunk": GIVEN, "expect": [["+", [1, 6]], GIVEN[1]]}, {"barrier": 1, "expect": []}),
        "barrier",
    ),
    "a field of the operator": (dedup_case(ttl=1), "nothing reads the fields"),
    "a field of a step": (dedup_case({"chunk": [], "expect": [], "worker": 1}), "nothing reads the fields"),
    "a field of the case": (dedup_case() | {"retries": 1}, "nothing reads the fields"),
}
"""Cases that say what is not so, and what the interpreter answers."""


@pytest.mark.parametrize("name", WRONG)
def test_the_interpreter_finds_what_is_not_so(name: str) -> None:
    case, found = WRONG[name]
    with pytest.raises(AssertionError, match=found):
        run(case)


def test_a_column_that_is_not_the_stream_key_of_a_filter() -> None:
    spec = {
        "left_types": ["int64", "int64", "int64"],
        "right_types": ["int64"],
        "left_column": 1,
        "comparator": ">",
        "left_state_pk": [[1, "asc"], [2, "asc"]],
        "right_state_pk": [],
    }
    steps: list[dict[str, Any]] = [
        {"side": "right", "chunk": [["+", [5]]], "expect": []},
        {"barrier": 1, "expect": []},
        {"side": "left", "chunk": [["+", [1, 6, 1]], ["+", [1, 7, 2]]], "expect": [["+", [1, 6, 1]], ["+", [1, 7, 2]]]},
    ]
    assert run({"kind": "executor", "executor": "dynamic_filter", "spec": spec, "steps": steps}) == 3
