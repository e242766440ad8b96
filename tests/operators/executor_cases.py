"""Runs the behaviour cases of operators against ours, and says how theirs map to them.

Chunks come out of ours with the same net change a row and the same order a stream key as theirs, not always row by row.
A row that comes and goes within one step may be missing: the rows of a chunk count as a whole.

Their Dedup returns the first row of a key as it comes; ours returns, at the barrier, the one with the smallest stream
key of the epoch. They have a Sort too, which holds rows back until a watermark; there is no such operator here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.operators import Dedup, DynamicFilter, GroupTopN, HashJoin, Materialize, Operator, TopN
from objectspace.relational import Chunk, Column, TableSchema
from tests.fields import only
from tests.relational.interpreter import order_of, type_of, value_of

CASE_FIELDS = ("id", "kind", "title", "source", "note", "executor", "spec", "compare", "steps", "arrivals")
CASE_FIELDS += ("expect_messages",)

CONFLICTS = {"do_update_if_not_null": "update_if_not_null", "no_check": "check"}


def schema_of(types: list[str], key: list[int]) -> TableSchema:
    columns = [Column(f"c{place}", type_of(kind), nullable=True) for place, kind in enumerate(types)]
    return TableSchema(columns, [f"c{place}" for place in key])


JOIN_FIELDS = [f"{side}_{field}" for side in ("left", "right") for field in ("types", "key", "stream_key")]


def join_of(spec: dict[str, Any]) -> HashJoin:
    only(spec, *JOIN_FIELDS, "join_type", "null_safe", "condition", "append_only")
    schemas = [schema_of(spec[f"{side}_types"], spec[f"{side}_stream_key"]) for side in ("left", "right")]
    keys = [[f"c{place}" for place in spec[f"{side}_key"]] for side in ("left", "right")]
    condition = tuple(spec["condition"]) if "condition" in spec else None
    return HashJoin(*schemas, *keys, kind=spec["join_type"], null_safe=spec["null_safe"], condition=condition)  # type: ignore[arg-type]


def top_of(spec: dict[str, Any]) -> GroupTopN:
    only(spec, "types", "order_by", "stream_key", "limit", "offset", "with_ties", "append_only", "group_by")
    schema = schema_of(spec["types"], spec["stream_key"])
    options = {name: spec[name] for name in ("offset", "with_ties", "append_only") if name in spec}
    order = [(f"c{place}", order_of(how)) for place, how in spec["order_by"]]
    if "group_by" in spec:
        group = [f"c{place}" for place in spec["group_by"]]
        return GroupTopN(schema, group, order, spec["limit"], **options, cache_groups=1)
    return TopN(schema, order, spec["limit"], **options)


def filter_of(spec: dict[str, Any]) -> DynamicFilter:
    only(spec, "left_types", "right_types", "left_column", "comparator", "left_state_pk", "right_state_pk")
    assert spec.get("right_state_pk", []) == [], "the right side has one row"
    key = [place for place, _ in spec["left_state_pk"]]
    stream_key = [place for place in key if place != spec["left_column"]] or key
    left, right = schema_of(spec["left_types"], stream_key), schema_of(spec["right_types"], [])
    return DynamicFilter(left, right, f"c{spec['left_column']}", spec["comparator"])


def materialize_of(spec: dict[str, Any]) -> Materialize:
    only(spec, "types", "pk", "conflict", "version_columns", "stream_key")
    return Materialize(
        schema_of(spec["types"], spec["pk"]),
        CONFLICTS.get(spec["conflict"], spec["conflict"]),  # type: ignore[arg-type]
        [f"c{place}" for place in spec.get("version_columns", ())],
        stream_key=[f"c{place}" for place in spec["stream_key"]] if "stream_key" in spec else None,
    )


def dedup_of(spec: dict[str, Any]) -> Dedup:
    only(spec, "types", "dedup_cols", "stream_key")
    key = spec.get("stream_key", range(len(spec["types"])))
    return Dedup(schema_of(spec["types"], key), [f"c{place}" for place in spec["dedup_cols"]])


MAKERS: dict[str, Callable[[dict[str, Any]], Operator]] = {
    "dynamic_filter": filter_of,
    "hash_join": join_of,
    "top_n": top_of,
    "materialize": materialize_of,
    "dedup": dedup_of,
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
    """Return the net change of each row, and the changes of each stream key in order but those that cancel.

    A change and the one before it cancel if the same row comes and goes; then what was before them is the one before.
    """
    net: dict[Any, int] = defaultdict(int)
    order: dict[Any, list[Any]] = defaultdict(list)
    for op, row in rows:
        is_insert = op in ("+", "U+")
        net[row] += 1 if is_insert else -1
        changes = order[schema.key_of(row)]
        if changes and changes[-1] == (not is_insert, row):
            changes.pop()
        else:
            changes.append((is_insert, row))
    return {row: count for row, count in net.items() if count}, {key: left for key, left in order.items() if left}


def smallest(schema: TableSchema, rows: list[Any], key: Callable[[Any], Any]) -> dict[Any, Any]:
    """Return for each key the row with the smallest stream key; the first one of several."""
    found: dict[Any, Any] = {}
    for row in sorted(rows, key=lambda row: schema.key_encoder.encode(schema.key_of(row))):
        found.setdefault(key(row), row)
    return found


class Run:
    """One case: an operator on a space that is opened again where the case says so."""

    def __init__(self, case: dict[str, Any]) -> None:
        only(case, *CASE_FIELDS)
        self.spec, self.make = case["spec"], MAKERS[case["executor"]]
        self.store = CheckpointStore(":memory:")
        self.recover()

    def recover(self) -> None:
        self.space = PersistedObjectSpace(self.store)
        self.operator = self.make(self.spec)
        self.operator.open(self.space, "operator")

    def step(self, step: dict[str, Any]) -> None:
        only(step, "side", "chunk", "barrier", "watermark", "recover", "get", "expect")
        if step.get("recover"):
            self.space.close()
            self.recover()
            return
        if "get" in step:
            self.get(step["get"], step["expect"])
            return
        found = self.output(step)
        expected = self.expected(step)
        assert logs(self.operator.schema, found) == logs(self.operator.schema, expected), (step, found)

    def get(self, key: list[Any], expected: list[Any] | None) -> None:
        types = [self.spec["types"][place] for place in self.spec["pk"]]
        found = self.operator.get_row(rows_of(types, [["+", key]])[0][1])  # type: ignore[attr-defined]
        assert found == (None if expected is None else rows_of(self.spec["types"], [["+", expected]])[0][1])

    def output(self, step: dict[str, Any]) -> list[Any]:
        side = step.get("side", "input")
        if "barrier" in step:
            return self.barrier(step["barrier"])
        if "watermark" in step:
            mark = step["watermark"]
            only(mark, "col", "value")
            kind = types_of(self.spec, side)[mark["col"]]
            self.operator.watermark(f"c{mark['col']}", value_of(kind, mark["value"]), side=side)
            return []
        return self.process(side, step["chunk"])

    def expected(self, step: dict[str, Any]) -> list[Any]:
        return rows_of(output_types(self.spec), step["expect"])

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


class DedupRun(Run):
    """A case of Dedup: the keys that it expects of the chunks of an epoch are those of the rows at the barrier."""

    def __init__(self, case: dict[str, Any]) -> None:
        super().__init__(case)
        self.given: list[Any] = []
        self.returned: list[Any] = []

    def recover(self) -> None:
        super().recover()
        self.given, self.returned = [], []

    def key(self, row: Any) -> Any:
        return tuple(row[place] for place in self.spec["dedup_cols"])

    def expected(self, step: dict[str, Any]) -> list[Any]:
        self.returned += super().expected(step)
        if "chunk" in step:
            self.given += [row for _, row, *rest in rows_of(self.spec["types"], step["chunk"]) if rest != [False]]
        if "barrier" not in step:
            return []
        assert all(op == "+" and row in self.given for op, row in self.returned), step
        rows = smallest(self.operator._order, self.given, self.key)  # type: ignore[attr-defined]
        expected = [("+", rows[self.key(row)]) for _, row in self.returned]
        self.given, self.returned = [], []
        return expected


def run(case: dict[str, Any]) -> int:
    """Run the steps of a case, each of which is compared with what it expects; return how many there were."""
    script = DedupRun(case) if case["executor"] == "dedup" else Run(case)
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
