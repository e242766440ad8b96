"""Every behaviour case of relational tables, by its id."""

from __future__ import annotations

from typing import Any

import pytest

from tests.relational.interpreter import CASES, KINDS, OWN, RUNNERS

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
    assert RUNNERS[case["kind"]](case) is None


def test_what_is_left_out_exists() -> None:
    assert {case["id"] for case in MINE} > LEFT_OUT.keys()


def test_every_kind_runs_or_has_a_reason() -> None:
    assert KINDS.keys() == RUNNERS.keys() | ELSEWHERE | NOT_RUN.keys()
    assert not any(case["kind"] in NOT_RUN for case in [*CASES, *OWN])
