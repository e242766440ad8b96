"""Every behaviour case of the objects, by its id."""

from __future__ import annotations

from typing import Any

import pytest

from tests.objects.interpreter import CASES, Interpreter, dump

LEFT_OUT = {
    "dict-null-key": "Python dictionaries take None for a key, and so do these",
}
"""Cases that do not apply, with the reason."""


@pytest.mark.parametrize("case", [case for case in CASES if case["id"] not in LEFT_OUT], ids=lambda case: case["id"])
def test_case(case: dict[str, Any]) -> None:
    interpreter = Interpreter()
    for step in case["script"]:
        interpreter.step(step)
    if not interpreter.has_damage:
        interpreter.check()
    expected = (case["expect"] or {}).get("contents", {})
    assert {name: dump(interpreter.env[name]) for name in expected} == expected


QUEUE: list[Any] = [["create", "queue", "q"], ["call", "q", "enqueue", 1]]
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
