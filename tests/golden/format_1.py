"""What the golden store of format 1 holds, and how it was written: ``python -m tests.golden.format_1`` writes another.

The file must open for ever, so it is never written again; a later format gets a file and a module of its own.
"""

from __future__ import annotations

import datetime
import sys
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from checkpoint import CheckpointKind
from objectspace import PersistedObjectSpace

PATH = Path(__file__).with_name("format_1.db")

VALUES = [
    None,
    True,
    -(2**70),
    1.5,
    float("inf"),
    "text with \u00e9 and \U0001f600",
    b"\x00bytes",
    (1, [2, {"k": "v"}]),
    Decimal("1.50"),
    uuid.UUID(int=7),
    datetime.datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=datetime.UTC),
    datetime.date(2024, 2, 29),
    datetime.timedelta(days=-1, microseconds=3),
]

FIRST: dict[str, Any] = {
    "array": [0, 0, 42, 0],
    "dictionary": {"b": 1, 2: "two", (3, "x"): [3], b"k": None},
    "groups": {"a": [1, 2], "b": [3]},
    "linked_list": ["first", "second", "third"],
    "list": VALUES,
    "queue": [1, 2, 3],
    "set": ["y", "x"],
    "sorted_dictionary": {-5: "a", 0: "b", 7: "c"},
    "sorted_set": ["a", "b", "c"],
    "sparse_array": {-(2**62): "low", 9: "nine"},
    "stack": ["top", "bottom"],
    "tensor": [[0.0, 0.0, 0.0], [0.0, 2.5, 0.0]],
    "value": {"nested": [1, 2, 3]},
}
"""Everything in the store at epoch 10."""

SECOND: dict[str, Any] = {
    **{name: contents for name, contents in FIRST.items() if name not in ("stack", "value")},
    "array": [0, 43, 42, 0],
    "dictionary": {2: "two", (3, "x"): [3], b"k": None, "b": "again"},
    "groups": {"a": [1, 2, 9]},
    "linked_list": ["first", "between", "second", "third"],
    "list": ["in front", *VALUES],
    "queue": [2, 3, 4],
    "renamed": {"nested": [1, 2, 3]},
    "set": ["x", "z"],
}
"""Everything in the store at epochs 20 and 30, of which the latter is a full checkpoint."""


def contents(space: PersistedObjectSpace) -> dict[str, Any]:
    """Return everything in a space as plain containers."""
    return {name: _plain(space.kind_of(name), space.get(name)) for name in sorted(space)}


def write(path: Path) -> None:
    """Write the golden store."""
    with PersistedObjectSpace.open(path) as space:
        _make_first(space)
        space.checkpoint(epoch=10)
        _make_second(space)
        space.checkpoint(epoch=20)
        space.checkpoint(epoch=30, kind=CheckpointKind.FULL)


def _plain(kind: str, found: Any) -> Any:
    if kind == "Value":
        return found.value
    if kind == "Tensor":
        return found[:].tolist()
    if kind == "SparseArray":
        return dict(found.assigned())
    if kind in ("Dictionary", "SortedDictionary"):
        return {
            key: list(value) if hasattr(value, "append") and kind == "Dictionary" else value
            for key, value in found.items()
        }
    return list(found)


def _make_first(space: PersistedObjectSpace) -> None:
    space.create_array("array", 4, default=0)[2] = 42
    space.create_dictionary("dictionary").update(FIRST["dictionary"])
    groups = space.create_dictionary("groups", of=list)
    groups["a"], groups["b"] = [1, 2], [3]
    linked = space.create_linked_list("linked_list")
    for word in FIRST["linked_list"]:
        linked.add_last(word)
    space.create_list("list").extend(VALUES)
    queue, stack = space.create_queue("queue"), space.create_stack("stack")
    for number in FIRST["queue"]:
        queue.enqueue(number)
    for word in reversed(FIRST["stack"]):
        stack.push(word)
    letters = space.create_set("set")
    for letter in FIRST["set"]:
        letters.add(letter)
    space.create_sorted_dictionary("sorted_dictionary").update(FIRST["sorted_dictionary"])
    space.create_sorted_set("sorted_set").update("cab")
    sparse = space.create_sparse_array("sparse_array")
    for index, word in FIRST["sparse_array"].items():
        sparse[index] = word
    space.create_tensor("tensor", (2, 3), dtype=np.float64)[1, 1] = 2.5
    space.create_value("value", FIRST["value"])


def _make_second(space: PersistedObjectSpace) -> None:
    space.get_array("array")[1] = 43
    dictionary = space.get_dictionary("dictionary")
    del dictionary["b"]
    dictionary["b"] = "again"
    groups = space.get_dictionary("groups")
    groups["a"].append(9)
    del groups["b"]
    linked = space.get_linked_list("linked_list")
    linked.add_after(linked.first, "between")
    space.get_list("list").insert(0, "in front")
    queue = space.get_queue("queue")
    queue.dequeue()
    queue.enqueue(4)
    letters = space.get_set("set")
    letters.discard("y")
    letters.add("z")
    space.rename("value", "renamed")
    space.delete("stack")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
