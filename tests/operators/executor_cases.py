"""Runs the behaviour cases of operators against ours, and says how theirs map to them.

Chunks come out of ours with the same net change a row and the same order a stream key as theirs, not always row by row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.operators import DynamicFilter, GroupTopN, HashJoin, Materialize, Operator, TopN
from objectspace.relational import Chunk, Column, TableSchema
from tests.relational.interpreter import order_of, type_of, value_of

CONFLICTS = {"do_update_if_not_null": "update_if_not_null", "no_check": "check"}


def schema_of(types: list[str], key: list[int]) -> TableSchema:
    columns = [Column(f"c{place}", type_of(kind), nullable=True) for place, kind in enumerate(types)]
    return TableSchema(columns, [f"c{place}" for place in key])


def join_of(spec: dict[str, Any]) -> HashJoin:
    schemas = [schema_of(spec[f"{side}_types"], spec[f"{side}_stream_key"]) for side in ("left", "right")]
    keys = [[f"c{place}" for place in spec[f"{side}_key"]] for side in ("left", "right")]
    condition = tuple(spec["condition"]) if "condition" in spec else None
    return HashJoin(*schemas, *keys, kind=spec["join_type"], null_safe=spec["null_safe"], condition=condition)  # type: ignore[arg-type]


def top_of(spec: dict[str, Any]) -> GroupTopN:
    schema = schema_of(spec["types"], spec["stream_key"])
    options = {name: spec[name] for name in ("offset", "with_ties", "append_only") if name in spec}
    order = [(f"c{place}", order_of(how)) for place, how in spec["order_by"]]
    if "group_by" in spec:
        group = [f"c{place}" for place in spec["group_by"]]
        return GroupTopN(schema, group, order, spec["limit"], **options, cache_groups=1)
    return TopN(schema, order, spec["limit"], **options)


def filter_of(spec: dict[str, Any]) -> DynamicFilter:
    left, right = schema_of(spec["left_types"], [0]), schema_of(spec["right_types"], [])
    return DynamicFilter(left, right, f"c{spec['left_column']}", spec["comparator"])


def materialize_of(spec: dict[str, Any]) -> Materialize:
    return Materialize(
        schema_of(spec["types"], spec["pk"]),
        CONFLICTS.get(spec["conflict"], spec["conflict"]),  # type: ignore[arg-type]
        [f"c{place}" for place in spec.get("version_columns", ())],
        stream_key=[f"c{place}" for place in spec["stream_key"]] if "stream_key" in spec else None,
    )


MAKERS: dict[str, Callable[[dict[str, Any]], Operator]] = {
    "dynamic_filter": filter_of,
    "hash_join": join_of,
    "top_n": top_of,
    "materialize": materialize_of,
}


def types_of(spec: dict[str, Any], side: str) -> list[str]:
    return spec["types"] if side == "input" else spec[f"{side}_types"]  # type: ignore[no-any-return]


def output_types(spec: dict[str, Any]) -> list[str]:
    if "types" in spec:
        return spec["types"]  # type: ignore[no-any-return]
    if "join_type" not in spec:
        return spec["left_types"]  # type: ignore[no-any-return]
    main = spec["join_type"].partition("_")[0] if spec["join_type"].endswith(("semi", "anti")) else None
    return spec[f"{main}_types"] if main else spec["left_types"] + spec["right_types"]  # type: ignore[no-any-return]


def rows_of(types: list[str], entries: list[Any]) -> list[Any]:
    return [
        (entry[0], tuple(value_of(kind, value) for kind, value in zip(types, entry[1], strict=True)), *entry[2:])
        for entry in entries
    ]


def logs(schema: TableSchema, rows: list[Any]) -> tuple[dict[Any, int], dict[Any, list[Any]]]:
    """Return the net change of each row, and the changes of each stream key in order."""
    net: dict[Any, int] = defaultdict(int)
    order: dict[Any, list[Any]] = defaultdict(list)
    for op, row in rows:
        net[row] += 1 if op in ("+", "U+") else -1
        order[schema.key_of(row)].append((op in ("+", "U+"), row))
    return {row: count for row, count in net.items() if count}, dict(order)


class Run:
    """One case: an operator on a space that is opened again where the case says so."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.spec, self.make = case["spec"], MAKERS[case["executor"]]
        self.store = CheckpointStore(":memory:")
        self.recover()

    def recover(self) -> None:
        self.space = PersistedObjectSpace(self.store)
        self.operator = self.make(self.spec)
        self.operator.open(self.space, "operator")

    def step(self, step: dict[str, Any]) -> None:
        if "recover" in step:
            self.space.close()
            self.recover()
            return
        if "get" in step:
            found = self.operator.get_row(rows_of(self.spec["types"][: len(step["get"])], [["+", step["get"]]])[0][1])  # type: ignore[attr-defined]
            assert found == (None if step["expect"] is None else tuple(step["expect"]))
            return
        if "barrier" in step:
            found = self.barrier(step["barrier"])
        else:
            found = self.process(step.get("side", "input"), step["chunk"])
        expected = rows_of(output_types(self.spec), step["expect"])
        assert logs(self.operator.schema, found) == logs(self.operator.schema, expected), step

    def barrier(self, epoch: int) -> list[Any]:
        out = self.operator.barrier(epoch)
        self.space.checkpoint(epoch=epoch)
        return [row for chunk in out for row in chunk.rows()]

    def process(self, side: str, entries: list[Any]) -> list[Any]:
        schema = self.operator.schema
        if isinstance(self.operator, HashJoin):
            schema = self.operator._sides[side].schema
        elif side == "right":
            schema = self.operator.state()[1][1]
        chunk = Chunk.from_rows(schema, rows_of(types_of(self.spec, side), entries))
        return [row for out in self.operator.process(chunk, side=side) for row in out.rows()]


def run(case: dict[str, Any]) -> int:
    """Run the steps of a case, each of which is compared with what it expects; return how many there were."""
    script = Run(case)
    done = 0
    for step in case["steps"]:
        script.step(step)
        done += 1
    return done


def run_aligned(case: dict[str, Any]) -> None:
    """Run a case in which a side that has its barrier waits for that of the other side."""
    script = Run(case)
    waiting: dict[str, list[dict[str, Any]]] = {"left": [], "right": []}
    found: list[list[Any]] = [[]]
    for arrival in case["arrivals"]:
        waiting[arrival["side"]].append(arrival)
        found = _advance(script, waiting, found)
    expected: list[list[Any]] = [[]]
    for message in case["expect_messages"]:
        if "barrier" in message:
            expected.append([])
        else:
            expected[-1] += rows_of(output_types(case["spec"]), message["chunk"])
    schema = script.operator.schema
    assert [logs(schema, epoch) for epoch in found] == [logs(schema, epoch) for epoch in expected]


def _advance(script: Run, waiting: dict[str, list[dict[str, Any]]], found: list[list[Any]]) -> list[list[Any]]:
    """Process what need not wait, and return the output of each epoch so far."""
    for side, queue in waiting.items():
        while queue and "barrier" not in queue[0]:
            found[-1] += script.process(side, queue.pop(0)["chunk"])
    if all(waiting.values()):
        found = [*found[:-1], found[-1] + script.barrier(waiting["left"].pop(0)["barrier"]), []]
        waiting["right"].pop(0)
        return _advance(script, waiting, found)
    return found
