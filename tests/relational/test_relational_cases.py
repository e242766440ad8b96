"""Every behaviour case of relational tables, by its id."""

from __future__ import annotations

from typing import Any

import pytest

from tests.relational.interpreter import CASES, RUNNERS

LEFT_OUT = {
    "key.order.interval.asc": "there is no interval type here: Python has none with months",
    "key.order.timestamp.asc": "timestamps have microseconds, as Python's and Spark's do: the case has nanoseconds",
    "mem.delete_insert_same": "an update to the row that is there already leaves nothing here; the case allows it",
}
"""Cases that do not apply, with the reason."""

MINE = [case for case in CASES if case["kind"] in RUNNERS]


@pytest.mark.parametrize("case", [case for case in MINE if case["id"] not in LEFT_OUT], ids=lambda case: case["id"])
def test_case(case: dict[str, Any]) -> None:
    assert RUNNERS[case["kind"]](case) is None


def test_what_is_left_out_exists() -> None:
    assert {case["id"] for case in MINE} > LEFT_OUT.keys()
