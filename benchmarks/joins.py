"""The scenarios of joins and top-n for :mod:`benchmarks.operators`. Two events of ten are retractions, if any are."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable
from functools import partial
from typing import Any

from bytewax.operators import StatefulBatchLogic

from benchmarks.durable import (
    CHUNK,
    RIVAL,
    Batch,
    Change,
    Scenario,
    Step,
    chunks_of,
    pieces,
    run_bytewax,
    run_operator,
    run_whole,
)
from objectspace.operators import GroupTopN, HashJoin, TopN
from objectspace.relational import Column, TableSchema

LIMIT = 10
GROUPS = 10_000

SCHEMA = TableSchema([Column("k", "int64"), Column("v", "int64"), Column("id", "int64")], ["id"])

BY_HAND = "dictionaries that save themselves whole"


def changes(events: int, keys: int, sides: tuple[str, ...]) -> list[Batch]:
    """Return lists of changes, the sides in turn."""
    source, number = random.Random(7), 0
    live: dict[str, list[Any]] = {side: [] for side in sides}
    found: list[Batch] = []
    for place in range(events // CHUNK):
        side = sides[place % len(sides)]
        rows = live[side]
        made: list[Change] = []
        for _ in range(CHUNK):
            if len(rows) > CHUNK and source.random() < 0.2:
                old = source.randrange(len(rows) - CHUNK)
                rows[old], rows[-1] = rows[-1], rows[old]
                made.append(("-", rows.pop()))
            else:
                number += 1
                rows.append((source.randrange(keys), source.randrange(10**9), number))
                made.append(("+", rows[-1]))
        found.append((side, made))
    return found


# Joins ----------------------------------------------------------------------------------------------------------------


class Meeting(StatefulBatchLogic[Any, Any, Any]):
    """The rows of one join key, for Bytewax."""

    def __init__(self, state: Any) -> None:
        self.sides: dict[str, dict[int, Any]] = state or {"left": {}, "right": {}}

    def on_batch(self, values: list[tuple[str, str, Any]]) -> Any:
        """Take changes: side, operation and row."""
        out: list[Any] = []
        for side, op, row in values:
            mine, other = self.sides[side], self.sides["right" if side == "left" else "left"]
            if op == "+":
                mine[row[2]] = row
            else:
                del mine[row[2]]
            out += [(op, (*row, *match)) for match in other.values()]
        return out, StatefulBatchLogic.RETAIN

    def snapshot(self) -> Any:
        """Return what is saved."""
        return {side: dict(rows) for side, rows in self.sides.items()}


def plain_join() -> tuple[Any, Step]:
    """Return the state and the step of an inner join on dictionaries."""
    state: dict[str, dict[int, dict[int, Any]]] = {"left": {}, "right": {}}

    def step(side: str, changes: list[Change]) -> int:
        mine, other = state[side], state["right" if side == "left" else "left"]
        out = []
        for op, row in changes:
            if op == "+":
                mine.setdefault(row[0], {})[row[2]] = row
            else:
                del mine[row[0]][row[2]]
            out += [(op, (*row, *match)) for match in other.get(row[0], {}).values()]
        return len(out)

    return state, step


def hash_join(events: int) -> Scenario:
    """Return the scenario of an inner join of two streams."""
    given = changes(events, events // 4, ("left", "right"))
    flat = [(str(row[0]), (side, op, row)) for side, rows in given for op, row in rows]
    make = partial(HashJoin, SCHEMA, SCHEMA, ["k"], ["k"])
    return Scenario(
        f"inner join of {events:,} events by {events // 4:,} keys",
        events,
        {
            "HashJoin": partial(run_operator, make, chunks_of(SCHEMA, given)),
            BY_HAND: partial(run_whole, plain_join, given),
            RIVAL: partial(run_bytewax, Meeting, flat),
        },
    )


# Top-n ----------------------------------------------------------------------------------------------------------------


def first(rows: Iterable[Any]) -> list[Any]:
    """Return the first rows."""
    return heapq.nsmallest(LIMIT, rows, key=lambda row: (-row[1], row[2]))


class Best(StatefulBatchLogic[Any, Any, Any]):
    """The first rows of one key, for Bytewax: it looks through all rows where one of the first goes."""

    def __init__(self, state: Any) -> None:
        self.rows: dict[int, Any] = state or {}
        self.first: list[Any] = first(self.rows.values())

    def on_batch(self, values: list[Change]) -> Any:
        """Take changes, and return the rows that leave or enter the first."""
        before, rows, new = self.first, self.rows, []
        for op, row in values:
            if op == "+":
                rows[row[2]] = row
                new.append(row)
            else:
                del rows[row[2]]
        lost = any(row[2] not in rows for row in before)
        self.first = first(rows.values() if lost else [*before, *(row for row in new if row[2] in rows)])
        return list(set(before) ^ set(self.first)), StatefulBatchLogic.RETAIN

    def snapshot(self) -> Any:
        """Return what is saved."""
        return dict(self.rows)


def plain_top(logic: type[Best], *, is_grouped: bool) -> tuple[Any, Step]:
    """Return the state and the step of a top-n on dictionaries."""
    groups: dict[int, Best] = {}
    state: dict[int, Any] = {}

    def step(side: str, changes: list[Change]) -> int:
        by_group: dict[int, list[Change]] = {}
        for op, row in changes:
            by_group.setdefault(row[0] if is_grouped else 0, []).append((op, row))
        for group in by_group:
            if group not in groups:
                groups[group] = logic(None)
        given = sum(len(groups[group].on_batch(found)[0]) for group, found in by_group.items())
        state.update({group: groups[group].rows for group in by_group})
        return given

    return state, step


def top_n(events: int) -> Scenario:
    """Return the scenario of the first rows of a stream."""
    given = changes(events, 1, ("input",))
    flat = [("all", change) for _, rows in given for change in rows]
    return _tops(f"the first {LIMIT} of {events:,} events", partial(TopN, SCHEMA, ["v desc"], LIMIT), given, flat)


class Growing(Best):
    """The first rows of one key where nothing is ever taken back: no others are kept."""

    def on_batch(self, values: list[Change]) -> Any:
        """Take rows, and return those that leave or enter the first."""
        before = self.first
        self.first = first([*before, *(row for _, row in values)])
        self.rows = {row[2]: row for row in self.first}
        return list(set(before) ^ set(self.first)), StatefulBatchLogic.RETAIN


def top_of_growing(events: int) -> Scenario:
    """Return the scenario of the first rows of a stream that only grows."""
    source = random.Random(7)
    rows: list[Change] = [("+", (0, source.randrange(10**9), number)) for number in range(events)]
    given: list[Batch] = [("input", piece) for piece in pieces(rows, CHUNK)]
    make = partial(TopN, SCHEMA, ["v desc"], LIMIT, append_only=True)
    title = f"the first {LIMIT} of {events:,} events that only come"
    return _tops(title, make, given, [("all", change) for change in rows], Growing)


def group_top(events: int) -> Scenario:
    """Return the scenario of the first rows of each group."""
    given = changes(events, GROUPS, ("input",))
    flat = [(str(change[1][0]), change) for _, rows in given for change in rows]
    title = f"the first {LIMIT} of each of {GROUPS:,} groups of {events:,} events"
    return _tops(title, partial(GroupTopN, SCHEMA, ["k"], ["v desc"], LIMIT), given, flat)


def _tops(title: str, make: Any, given: list[Batch], flat: list[Any], logic: type[Best] = Best) -> Scenario:
    return Scenario(
        title,
        sum(len(rows) for _, rows in given),
        {
            make.func.__name__: partial(run_operator, make, chunks_of(SCHEMA, given)),
            BY_HAND: partial(run_whole, partial(plain_top, logic, is_grouped=make.func is GroupTopN), given),
            RIVAL: partial(run_bytewax, logic, flat),
        },
    )
