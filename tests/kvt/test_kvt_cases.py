"""Every behaviour case of the key-value tables, by its id."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.kvt.interpreter import CASES, ERRORS, HEADER, Interpreter, run_case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(case: dict[str, Any]) -> None:
    run_case(case)


NOT_RUN = {
    "hash52": "keys are routed here by xxh64, with 64 bits",
    "partition_of_hash52": "keys are routed here by xxh64, with 64 bits",
    "partition": "it is that of another hash function",
    "table_key_beta1": "keys have the layout of PDP-39 here",
    "hash52_beta1": "keys have the layout of PDP-39 here",
    "partition_beta1": "keys have the layout of PDP-39 here",
}
"""Operations of the header that only the profiles ranges, murmur3 and beta1-addressing have, with the reason."""


def names_of(line: str, text: str) -> list[str]:
    """Return the operations that a line of the header names."""
    if line == "map_*":
        listed = re.sub(r"\([^)]*\)", "", text.partition(":")[2])
        return [f"map_{name.strip()}" for name in listed.split(",")]
    return line.split(" / ")


def test_every_operation_of_the_header_is_run_or_has_a_reason() -> None:
    named = {name for line, text in HEADER["meta"]["ops"].items() for name in names_of(line, text)}
    assert {name for name in named if not hasattr(Interpreter, f"do_{name}")} == NOT_RUN.keys()


def test_every_expectation_and_error_of_the_header_is_known() -> None:
    forms = set(re.findall(r"(\w+):", " ".join(HEADER["meta"]["expectations"])))
    assert {form for form in forms if not hasattr(Interpreter, f"as_{form}")} == {"error", "error_any"}
    assert HEADER["meta"]["errors"].keys() - {"note"} == ERRORS.keys()


PUT: list[Any] = ["put", None, "k", "v"]

RIGHT: list[list[Any]] = [
    [[*PUT, {"bind": "a"}], ["same_partition", ["$a"], {"ok": True}]],
    [["put_range", "F", 0, 3, "k%d", "v", {"bind_all": "all"}], ["same_partition", "$all", {"ok": True}]],
    [["put_range", "F", 0, 2, "k%d", {"hex": "00"}, {"count": 2}], ["get", "F", "k1", {"entry": ["k1", "\0", None]}]],
    [
        ["put_all_range", "F", 0, 2, "k%d", "v", {"bind_list": ["a", "b"]}],
        ["get", "F", "k1", {"entry": ["k1", "v", "$b"]}],
    ],
    [[*PUT, {"bind": "a"}], ["distinct_partitions_at_least", ["$a"], 2, {"ok": False}]],
    [
        ["save", {"ok": None}],
        ["create_scope", "s", {"ok": True}],
        ["create", "s", "x", {"partitions": 1}, {"ok": True}],
        ["open", "x", "s", "x", {"ok": None}],
        ["reload", {"ok": None}],
        ["get", None, "k", {"entry": None}],
    ],
    [["list", "scope", {"names": [{"rep_text": "table", "n": 1}]}]],
]
"""Scripts with forms that the header allows and no case has."""


@pytest.mark.parametrize("script", RIGHT)
def test_the_interpreter_takes_what_is_so(script: list[Any]) -> None:
    run_case({"config": {"partitions": 4}, "script": script})


WRONG: list[tuple[list[Any], type[Exception], str]] = [
    ([*PUT, {}], AssertionError, "expects nothing"),
    ([*PUT, {"error": "NoSuchKey", "bind": "a"}], AssertionError, "something else"),
    (["get", None, "k", {"nothing": None}], AttributeError, "as_nothing"),
    (["merge", None, "k", {"ok": None}], AttributeError, "do_merge"),
    (["get", {"rep_text": "F", "n": 1, "m": 1}, "k", {"entry": None}], AssertionError, "nothing reads"),
    (["get", "F", {"hex": "00", "n": 1}, {"entry": None}], AssertionError, "nothing reads"),
    (["update", "scope", "table", {"partitions": 4, "ttl": 1}, {"ok": True}], AssertionError, "nothing reads"),
]
"""Steps that no interpreter may pass over, and what it answers."""


@pytest.mark.parametrize(("step", "kind", "found"), WRONG)
def test_what_is_not_known_is_refused(step: list[Any], kind: type[Exception], found: str) -> None:
    with pytest.raises(kind, match=found):
        run_case({"config": {"partitions": 4}, "script": [step]})


def test_a_field_that_nobody_reads_is_refused() -> None:
    for wrong in ({"retries": 1}, {"config": {"partitions": 1, "segments": 1}}):
        with pytest.raises(AssertionError, match="nothing reads"):
            run_case({"config": {"partitions": 1}, "script": [], **wrong})
