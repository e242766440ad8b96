"""Runs the behaviour cases of aggregations against ours, and says how theirs map to them.

Their orders take NULL for the greatest value. Their first barrier only opens the epoch; ours opens the operator. Their
DISTINCT hides rows one by one as they come; ours settles the counts of an epoch at its barrier, so a case compares what
the visible rows of a chunk add up to.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from objectspace.operators import AggCall, HashAgg, Operator, SimpleAgg
from objectspace.relational import TableSchema
from tests.fields import only
from tests.operators.agg_oracle import Running
from tests.relational.helpers import schema_of
from tests.relational.interpreter import CASES, OWN, check_fields, order_of, type_of

__all__ = ["CASES", "OWN", "RUNNERS"]


FIELDS = ("types", "stream_key", "agg_calls", "row_count_call")
"""What the specs of both aggregations have. Which call counts the rows of a group is our own affair."""


def input_schema(spec: dict[str, Any]) -> TableSchema:
    names = [f"c{place} {type_of(kind)}" for place, kind in enumerate(spec["types"])]
    key = spec.get("stream_key", range(len(names)))
    return schema_of(*names, key=[f"c{place}" for place in key])


def call_of(call: dict[str, Any]) -> AggCall:
    only(call, "kind", "args", "distinct", "order_by", "filter")
    keep = call.get("filter")
    return AggCall(
        call["kind"],
        *(f"c{place}" for place in call["args"]),
        distinct=call.get("distinct", False),
        order_by=[(f"c{place}", order_of(order)) for place, order in call.get("order_by", [])],
        filter=None if keep is None else (keep[0] if isinstance(keep[0], str) else f"c{keep[0]}", keep[1], keep[2]),
    )


def hash_agg(spec: dict[str, Any]) -> Operator:
    only(spec, *FIELDS, "group_key", "append_only", "emit_on_window_close")
    return HashAgg(
        input_schema(spec),
        [f"c{place}" for place in spec["group_key"]],
        [call_of(call) for call in spec["agg_calls"]],
        append_only=spec.get("append_only", False),
        emit_on_window_close=spec.get("emit_on_window_close", False),
    )


def simple_agg(spec: dict[str, Any]) -> Operator:
    only(spec, *FIELDS, "must_output_per_barrier")
    return SimpleAgg(
        input_schema(spec),
        [call_of(call) for call in spec["agg_calls"]],
        must_output=spec.get("must_output_per_barrier", False),
    )


MAKERS = {"hash_agg": hash_agg, "simple_agg": simple_agg}


def rows_of(chunk: list[Any]) -> list[Any]:
    """Return rows; halves of a pair whose rows have different keys are plain operations here."""
    return [(op, tuple(row), *rest) for op, row, *rest in chunk]


def grouped(changes: list[Any]) -> list[Any]:
    """Return changes with the halves of a pair together, in an order that does not count."""
    found: list[Any] = []
    for op, row in changes:
        if op == "U+":
            found[-1].append((op, row))
        else:
            found.append([(op, row)])
    return sorted(found, key=repr)


def run_executor(case: dict[str, Any]) -> int:
    spec = case["spec"]
    elides = not spec.get("must_output_per_barrier", False)
    running = Running(lambda: MAKERS[case["executor"]](spec), elides=elides)
    done = 0
    for step in case["steps"]:
        only(step, "chunk", "barrier", "watermark", "recover", "expect")
        expected = [(op, tuple(row)) for op, row in step.get("expect", [])]
        found = do_step(running, step)
        if case["compare"] == "ordered":
            assert found == expected, step
        else:
            assert grouped(found) == grouped(expected), step
        done += 1
    return done


def do_step(running: Running, step: dict[str, Any]) -> list[Any]:
    if "chunk" in step:
        running.feed(rows_of(step["chunk"]))
    elif "watermark" in step:
        mark = step["watermark"]
        only(mark, "col", "value")
        assert running.operator.watermark(f"c{mark['col']}", mark["value"]) == [(f"c{mark['col']}", mark["value"])]
    elif step.get("recover"):
        running.recover()
    elif step["barrier"] > 1:
        return running.barrier()
    return []


def run_agg_state(case: dict[str, Any]) -> int:
    spec = case["spec"]
    only(spec, "types", "stream_key", "call", "cache_capacity")
    capacity = spec.get("cache_capacity", 10)
    running = Running(lambda: SimpleAgg(input_schema(spec), [call_of(spec["call"])], cache_rows=capacity))
    done = 0
    for step in case["steps"]:
        only(step, "chunk", "recover", "expect")
        if step.get("recover"):
            running.recover()
        running.run(rows_of(step.get("chunk", [])))
        assert running.rows() == [(step["expect"],)], step
        done += 1
    return done


def run_distinct_dedup(case: dict[str, Any]) -> int:
    spec = case["spec"]
    only(spec, "types", "calls", "group")
    places = sorted({call["args"][0] for call in spec["calls"]})
    group = spec.get("group", [])
    calls = [{**call, "kind": "array_agg" if call.get("distinct") else "count"} for call in spec["calls"]]
    masks = [f"seen{place}" for place in range(len(calls) if any("visibility_in" in s for s in case["steps"]) else 0)]
    if masks:
        calls = [{**call, "filter": [mask, "=", True]} for call, mask in zip(calls, masks, strict=True)]
    schema = {"types": spec["types"], "masks": masks}
    running = Running(
        lambda: (
            HashAgg(numbered(schema), [f"c{place}" for place in group], [call_of(call) for call in calls])
            if group
            else SimpleAgg(numbered(schema), [call_of(call) for call in calls])
        )
    )
    serial = Serial()
    shown: list[Counter[Any]] = [Counter() for _ in calls]
    done = 0
    for step in case["steps"]:
        only(step, "chunk", "visibility_in", "expect_visibility", "check_counts")
        if "chunk" in step:
            running.run(serial.numbered(masked(step, len(masks))))
            follow(shown, calls, step)
            assert listed(running, calls, group) == [+counter for counter in shown]
        for value, counts in step.get("check_counts", []):
            table = running.space.get_sorted_dictionary(f"op/SimpleAggDedupForCol{places[0]}")
            kept = [text for text in table.values() if text.startswith(f"[0,{value},")]
            assert kept == ([] if counts is None else [f"[0,{value},{','.join(map(str, counts))}]"])
        done += 1
    return done


def numbered(spec: dict[str, Any]) -> TableSchema:
    """Return a schema with a stream key of its own: the rows of these cases are there several times."""
    names = [f"c{place} {type_of(kind)}" for place, kind in enumerate(spec["types"])]
    return schema_of(*names, *(f"{mask} bool" for mask in spec["masks"]), "id int64", key=["id"])


def masked(step: dict[str, Any], calls: int) -> list[Any]:
    """Return the rows of a chunk with a column for each call that says whether its FILTER lets the row through."""
    given = step.get("visibility_in", ["t" * len(step["chunk"])] * calls)
    seen = list(zip(*given, strict=True)) if calls else [()] * len(step["chunk"])
    chunk = zip(step["chunk"], seen, strict=True)
    return [(op, (*row, *(mark == "t" for mark in marks)), *rest) for (op, row, *rest), marks in chunk]


class Serial:
    """Numbers rows that come, and gives a row that goes the number of one like it."""

    def __init__(self) -> None:
        self.next = 0
        self.there: dict[Any, list[int]] = {}

    def numbered(self, chunk: list[Any]) -> list[Any]:
        found = []
        for op, row, *rest in chunk:
            if rest == [False]:
                continue
            if op == "+":
                self.next += 1
                self.there.setdefault(tuple(row), []).append(self.next)
                found.append((op, (*row, self.next)))
            else:
                found.append((op, (*row, self.there[tuple(row)].pop())))
        return found


def follow(shown: list[Counter[Any]], calls: list[Any], step: dict[str, Any]) -> None:
    """Add up the rows of a chunk that each call may see."""
    for counter, call, visibility in zip(shown, calls, step["expect_visibility"], strict=True):
        for (op, row, *_), seen in zip(step["chunk"], visibility, strict=True):
            if seen == "t":
                counter[row[call["args"][0]] if call["kind"] == "array_agg" else "rows"] += 1 if op == "+" else -1


def listed(running: Running, calls: list[Any], group: list[int]) -> list[Counter[Any]]:
    """Return what each call saw, from its results: one of no group, one for each group that has rows."""
    seen: list[Counter[Any]] = [Counter() for _ in calls]
    for row in running.rows():
        for counter, call, value in zip(seen, calls, row[len(group) :], strict=True):
            counter.update((value or []) if call["kind"] == "array_agg" else {"rows": value})
    return [+counter for counter in seen]


def run(case: dict[str, Any]) -> int:
    """Run a case of any of these kinds, each step of which is compared with what it expects; return how many."""
    check_fields(case)
    return RUNNERS[case["kind"]](case)


RUNNERS = {"executor": run_executor, "agg_state": run_agg_state, "distinct_dedup": run_distinct_dedup}
