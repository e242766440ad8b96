"""Every behaviour case of the objects, by its id."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.objects.interpreter import CASES, COMMON, HEADER, SPECIAL, Interpreter, run_case

LEFT_OUT = {
    "dict-null-key": "Python dictionaries take None for a key, and so do these",
}
"""Cases that do not apply, with the reason."""


@pytest.mark.parametrize("case", [case for case in CASES if case["id"] not in LEFT_OUT], ids=lambda case: case["id"])
def test_case(case: dict[str, Any]) -> None:
    run_case(case)


QUEUE: list[Any] = [["create", "queue", "q"], ["call", "q", "enqueue", 1]]
LENGTH = ["call", "q", "len"]
TWENTY: list[Any] = [["create", "set", "s"], ["call", "s", "union_with", [*range(20)]], ["checkpoint", "full"]]

WRONG: dict[str, tuple[list[Any], str]] = {
    "a refused step that changes something": (
        [*QUEUE, ["raises", "empty", ["repeat", 2, ["call", "q", "dequeue"]]]],
        "was refused, and changed something",
    ),
    "a full checkpoint that writes more": (
        [*TWENTY, ["expect_counts", {"put": {"index": 1, "items": 19}}]],
        "a full one",
    ),
    "a checkpoint that deletes more": (
        [
            *TWENTY,
            ["call", "s", "except_with", [1, 2]],
            ["checkpoint", "differential"],
            ["expect_counts", {"del": {"items": 1}}],
        ],
        "'items': 2",
    ),
    "a store that has more metadata": (
        [*QUEUE, ["checkpoint", "full"], ["expect_store", {"index": 1, "items": 1}]],
        "head",
    ),
    "a load that brings another length": (
        [*QUEUE, ["checkpoint", "full"], ["new_space"], ["load"], ["get", "queue", "q"], ["returns", 2, LENGTH]],
        "returned 1, expected 2",
    ),
    "counts of a table that there is not": (
        [*QUEUE, ["checkpoint", "full"], ["expect_counts", {"put": {"index": 1, "rows": 9}}]],
        "rows",
    ),
    "counts of something else than puts and deletions": (
        [*QUEUE, ["checkpoint", "full"], ["expect_counts", {"delete": {}}]],
        "delete",
    ),
    "a store with a table that there is not": (
        [*QUEUE, ["checkpoint", "full"], ["expect_store", {"index": 1, "metadata": 2, "items": 1, "data": 0}]],
        "data",
    ),
}
"""Scripts that say what is not so, and what the interpreter answers."""


@pytest.mark.parametrize("name", WRONG)
def test_the_interpreter_finds_what_is_not_so(name: str) -> None:
    script, found = WRONG[name]
    interpreter = Interpreter()
    for step in script[:-1]:
        interpreter.step(step)
    with pytest.raises(AssertionError, match=found):
        interpreter.step(script[-1])


RIGHT: dict[str, list[Any]] = {
    "a second load is refused": [
        *QUEUE,
        ["checkpoint", "full"],
        ["raises", "protocol", ["load"]],
        ["recover"],
        ["raises", "protocol", ["load"]],
        ["get", "queue", "q"],
        ["returns", 1, LENGTH],
    ],
    "a new space has what it loads": [
        *QUEUE,
        ["checkpoint", "full"],
        ["new_space"],
        ["raises", "not_found", ["get", "queue", "q"]],
        ["load"],
        ["get", "queue", "q"],
        ["raises", "protocol", ["load"]],
        ["checkpoint", "differential"],
        ["expect_writes", {"put": [], "del": []}],
    ],
    "a full checkpoint of a new space replaces the store": [
        *QUEUE,
        ["checkpoint", "full"],
        ["new_space"],
        ["create", "value", "v", 1],
        ["checkpoint", "full"],
        ["expect_store", {"index": 1, "items": 1}],
        ["recover"],
        ["raises", "not_found", ["get", "queue", "q"]],
    ],
    "a length that was saved counts though its object is deleted by now": [
        ["create", "set", "s"],
        ["call", "s", "add", 1],
        ["save", "differential"],
        ["delete", "s"],
        ["commit"],
        ["on_saved"],
        ["expect_counts", {"put": {"index": 1, "items": 1}}],
        ["expect_store", {"index": 1, "items": 1}],
        ["checkpoint", "differential"],
        ["expect_store", {}],
    ],
    "a new space that loads a damaged store": [
        *TWENTY,
        ["corrupt_row", "items", "s", 0],
        ["new_space"],
        ["load"],
        ["raises", "corrupt_store", ["get", "set", "s"]],
    ],
}
"""Scripts of what no case has."""


@pytest.mark.parametrize("name", RIGHT)
def test_the_interpreter_takes_what_is_so(name: str) -> None:
    run_case({"script": RIGHT[name], "expect": None})


def test_every_step_and_method_of_the_header_is_known() -> None:
    assert all(hasattr(Interpreter, f"do_{op}") for op in HEADER["ops"])
    known = COMMON.keys() | {method for _, method in SPECIAL}
    lines = [line for methods in HEADER["methods"].values() for line in methods if not line.startswith("as set")]
    named = {re.split(r"\W", part)[0] for line in lines for part in re.findall(r"^\w+|(?<== )add_last", line)}
    assert named <= known


def test_a_field_that_nobody_reads_is_refused() -> None:
    for wrong in ({"script": [], "expect": None, "epoch": 1}, {"script": [], "expect": {"content": {}}}):
        with pytest.raises(AssertionError, match="nothing reads"):
            run_case(wrong)
