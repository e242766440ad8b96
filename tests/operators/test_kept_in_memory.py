"""What operators keep in memory between epochs is bounded, and leaves with the rows that it stands for."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import pytest

from objectspace import VolatileObjectSpace
from objectspace.operators import AggCall, GroupTopN, HashAgg, HashJoin, Operator, sessions
from objectspace.operators.sessions import SessionWindow
from objectspace.relational import Chunk, Column, StateTable, TableSchema
from objectspace.space import ObjectSpace

MARK = "kept-"
"""How the texts in the rows begin, by which they are found."""

SCHEMA = TableSchema(
    [Column("k", "string"), Column("t", "int64"), Column("f", "float64"), Column("id", "string")], primary_key=["id"]
)
BY_TIME = TableSchema(SCHEMA.columns, primary_key=["id"], watermark_column="t")

Row = tuple[str, int, float, str]


def rows(count: int, keys: int) -> list[Row]:
    """Return rows of so many keys, the time of each of which is the number of its key."""
    return [(f"{MARK}k{n % keys}", n % keys, n % keys / 2, f"{MARK}{n}") for n in range(count)]


def kept(operator: Operator) -> set[str]:
    """Return the texts of rows that an operator holds, other than in its tables, which have a budget of their own."""
    found: set[str] = set()
    seen: set[int] = set()
    waiting: list[Any] = [operator]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | ModuleType | FunctionType | StateTable | ObjectSpace):
            continue
        seen.add(id(one))
        if isinstance(one, str) and one.startswith(MARK):
            found.add(one)
        waiting += gc.get_referents(one)
        if isinstance(one, dict):  # Texts that are keys can be in no cycle, so the collector does not name them.
            waiting += one
    return found


def epochs(operator: Operator, changes: list[list[tuple[Any, Row]]], *, watermarks: bool = False) -> Operator:
    """Give an operator changes, an epoch each on all its sides, with a watermark: the time does not go back."""
    operator.open(VolatileObjectSpace(), "operator")
    for epoch, some in enumerate(changes, start=1):
        for side in operator.sides:
            operator.process(Chunk.from_rows(SCHEMA, some), side=side)
            if watermarks:
                operator.watermark("t", some[-1][1][1], side=side)
        operator.barrier(epoch)
    return operator


def come(count: int, keys: int, step: int = 20) -> list[list[tuple[str, Row]]]:
    found = [("+", row) for row in rows(count, keys)]
    return [found[start : start + step] for start in range(0, count, step)]


def agg(schema: TableSchema = SCHEMA, *key: str, **options: Any) -> HashAgg:
    return HashAgg(schema, key or ["k"], [AggCall("count"), AggCall("min", "id")], **options)


def join(schema: TableSchema = SCHEMA, *key: str, **options: Any) -> HashJoin:
    return HashJoin(schema, schema, key or ["k"], key or ["k"], **options)


def top(schema: TableSchema = SCHEMA, *key: str, **options: Any) -> GroupTopN:
    return GroupTopN(schema, key or ["k"], ["id"], limit=1, **options)


BOUNDED: dict[str, tuple[Callable[[], Operator], int]] = {
    "groups of an aggregation": (lambda: agg(append_only=True, cache_groups=5), 5),
    "groups with a minimum that can be taken back": (lambda: agg(cache_groups=5, cache_rows=1), 5),
    "keys of each side of an inner join": (lambda: join(cache_keys=5), 10),
    "keys of each side of an outer join": (lambda: join(kind="full_outer", cache_keys=5), 10),
    "windows of a top-n": (lambda: top(cache_groups=5), 5),
    "ends of sessions": (lambda: SessionWindow(SCHEMA, "t", 1, ["k"]), 5),
}
"""Operators, and how many of 50 keys they keep at most."""


@pytest.mark.parametrize("name", BOUNDED)
def test_no_more_keys_are_kept_than_was_asked_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "CACHE_GROUPS", 5)
    make, most = BOUNDED[name]
    found = kept(epochs(make(), come(100, 50)))
    assert 0 < len({text for text in found if text.startswith(f"{MARK}k")}) <= most


@pytest.mark.parametrize("step", [10, 100])
@pytest.mark.parametrize("is_rising", [False, True])
def test_no_more_rows_of_a_group_are_kept_than_was_asked_for(step: int, is_rising: bool) -> None:
    there = [("+", (f"{MARK}k", 0, 0.0, f"{MARK}{n:03}")) for n in range(100)]
    there = there if is_rising else there[::-1]
    found = kept(epochs(agg(cache_rows=3), [there[start : start + step] for start in range(0, 100, step)]))
    assert 0 < len(found - {f"{MARK}k"}) <= 3


OPERATORS: dict[str, Callable[..., Operator]] = {
    "aggregation": agg,
    "aggregation of what only comes": lambda *given: agg(*given, append_only=True),
    "inner join": join,
    "outer join": lambda *given, **options: join(*given, kind="full_outer", **options),
    "top-n": top,
}


@pytest.mark.parametrize("name", [name for name in OPERATORS if "only comes" not in name])
@pytest.mark.parametrize("key", ["k", "f"])
@pytest.mark.parametrize("step", [1, 20])
def test_rows_that_have_gone_are_not_kept(name: str, key: str, step: int) -> None:
    there = come(40, 10, step)
    gone = [[("-", row) for _, row in some] for some in there]
    found = kept(epochs(OPERATORS[name](SCHEMA, key), [*there, *gone]))
    # That a window of a top-n is empty is worth knowing, and there are only so many windows.
    assert found == set() if name != "top-n" else all(text.startswith(f"{MARK}k") for text in found)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("key", [("t",), ("t", "f")])
def test_rows_below_a_watermark_are_not_kept(name: str, key: tuple[str, ...]) -> None:
    operator = OPERATORS[name](BY_TIME, *key, **({"watermarks": True} if "join" in name else {}))
    found = kept(epochs(operator, come(2_000, 2_000, 50), watermarks=True))
    # An aggregation looks for closed groups only once there are 200 of them.
    assert len([text for text in found if not text.startswith(f"{MARK}k")]) <= 250


@pytest.mark.parametrize("kind", ["inner", "full_outer"])
@pytest.mark.parametrize("key", [("t",), ("t", "f")])
def test_a_join_knows_the_rows_that_a_watermark_leaves(kind: str, key: tuple[str, ...]) -> None:
    left, right = ((f"{MARK}k", 900, 0.5, f"{MARK}{side}") for side in ("left", "right"))
    operator = epochs(join(BY_TIME, *key, kind=kind, watermarks=True), [[("+", (*left[:1], 1, *left[2:]))]])
    operator.process(Chunk.from_rows(SCHEMA, [("+", left)]), side="left")
    for side in operator.sides:
        operator.watermark("t", 900, side=side)
    operator.barrier(2)
    found = operator.process(Chunk.from_rows(SCHEMA, [("+", right)]), side="right") + operator.barrier(3)
    assert ("+", (*left, *right)) in [change for chunk in found for change in chunk.rows()]
