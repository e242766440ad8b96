"""Every behaviour case of relational tables, by its id."""

from __future__ import annotations

from typing import Any

import pytest

from tests.relational.interpreter import CASES, FIELDS, KINDS, OWN, RUNNERS, check_fields, run_state_table

LEFT_OUT = {
    "key.order.interval.asc": "there is no interval type here: Python has none with months",
    "key.order.timestamp.asc": "timestamps have microseconds, as Python's and Spark's do: the case has nanoseconds",
    "mem.delete_insert_same": "an update to the row that is there already leaves nothing here; the case allows it",
}
"""Cases that do not apply, with the reason."""

ELSEWHERE = frozenset(["executor", "executor_aligned", "agg_state", "distinct_dedup"])
"""Kinds whose cases run beside the operators."""

NOT_RUN = {
    "table_key_layout": "nothing says what a case of it holds, and the keys here have a layout of their own",
    "value_bytes": "rows are stored as JSON here, not in that encoding",
    "property": "it is a sentence, to be written down as a test",
}
"""Kinds that cannot be run, with the reason: there is no case of them."""

MINE = [case for case in [*CASES, *OWN] if case["kind"] in RUNNERS]


@pytest.mark.parametrize("case", [case for case in MINE if case["id"] not in LEFT_OUT], ids=lambda case: case["id"])
def test_case(case: dict[str, Any]) -> None:
    check_fields(case)
    assert RUNNERS[case["kind"]](case) is None


def test_what_is_left_out_exists() -> None:
    assert {case["id"] for case in MINE} > LEFT_OUT.keys()


def test_every_kind_runs_or_has_a_reason() -> None:
    assert KINDS.keys() == RUNNERS.keys() | ELSEWHERE | NOT_RUN.keys()
    assert not any(case["kind"] in NOT_RUN for case in [*CASES, *OWN])
    assert FIELDS.keys() >= RUNNERS.keys()


INT_PREFIX = next(case for case in OWN if case["id"] == "own.key_prefix.bytes")


@pytest.mark.parametrize("field", ["prefix_hex", "end_exclusive_hex"])
def test_the_bytes_of_a_prefix_are_compared(field: str) -> None:
    RUNNERS["key_prefix"](INT_PREFIX)
    with pytest.raises(AssertionError):
        RUNNERS["key_prefix"]({**INT_PREFIX, field: "0080000004"})


TABLE = {"columns": [["k", "int32"], ["v", "int32"]], "pk": [[0, "asc"]]}
BEGIN: list[dict[str, Any]] = [{"do": "init_epoch", "epoch": 1}, {"do": "insert", "row": [1, 1]}]
TWICE = {"do": "insert", "row": [1, 2]}


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([TWICE], "no commit was expected to fail"),
        ([TWICE, {"do": "commit", "epoch": 2}], "an operation of the epoch was refused"),
        ([{"do": "commit", "epoch": 2, "expect_error": "inconsistent_operation"}], "no operation of the epoch"),
        ([{"do": "get", "pk": [1], "expect": [1, 2]}], "gave"),
    ],
)
def test_the_interpreter_finds_what_is_not_so(steps: list[dict[str, Any]], found: str) -> None:
    with pytest.raises(AssertionError, match=found):
        run_state_table({"table": TABLE, "steps": [*BEGIN, *steps]})


@pytest.mark.parametrize("more", [{"ttl": 1}, {"worker": "A"}])
def test_a_field_that_nobody_reads_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="nothing reads the fields"):
        check_fields({"kind": "state_table", "table": TABLE, "steps": [], **more})
    with pytest.raises(AssertionError, match="nothing reads the fields"):
        run_state_table({"table": {**TABLE, **more}, "steps": []})
    with pytest.raises(TypeError):
        run_state_table({"table": TABLE, "steps": [*BEGIN, {**TWICE, **more}]})
