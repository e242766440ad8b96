"""A rollback of the space takes every operator back: it goes on as one does that is opened after a crash."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from checkpoint import CheckpointStore
from objectspace import CheckpointProtocolError, PersistedObjectSpace
from objectspace.operators import (
    AggCall,
    Dedup,
    DynamicFilter,
    ExpressionError,
    GroupTopN,
    HashAgg,
    HashJoin,
    Hop,
    IntervalJoin,
    LocalRun,
    Materialize,
    Operator,
    Pipeline,
    PipelineChangedError,
    SessionWindow,
    SimpleAgg,
    TemporalJoin,
    TopN,
    Union,
    WatermarkFilter,
    count,
    run_local,
    sum_,
)
from objectspace.operators.value_groups import HELD
from objectspace.relational import Chunk, Column, RowError, TableSchema

SCHEMA = TableSchema([Column("k", "int64"), Column("v", "int64"), Column("id", "int64")], ["id"], watermark_column="k")
VALUE = TableSchema([Column("v", "int64")])

DISTINCT = AggCall("count", "v", distinct=True)


def pipeline() -> Operator:
    found = Pipeline()
    rows = found.source("rows", SCHEMA)
    rows.group_by("k").agg(n=count()).join(rows, on="k").materialize("counts")
    return found.as_operator()


OPERATORS: dict[str, Callable[[], Operator]] = {
    "sums": lambda: HashAgg(SCHEMA, ["k"], [AggCall("count"), AggCall("sum", "v")]),
    "extremes": lambda: HashAgg(SCHEMA, ["k"], [AggCall("min", "v"), AggCall("array_agg", "v"), DISTINCT]),
    "windows": lambda: HashAgg(SCHEMA, ["k"], [AggCall("count")], emit_on_window_close=True),
    "all rows": lambda: SimpleAgg(SCHEMA, [AggCall("count"), AggCall("max", "v")]),
    "dedup": lambda: Dedup(SCHEMA, ["k"]),
    "inner join": lambda: HashJoin(SCHEMA, SCHEMA, ["k"], ["k"], watermarks=True),
    "outer join": lambda: HashJoin(SCHEMA, SCHEMA, ["k"], ["k"], "full_outer"),
    "interval join": lambda: IntervalJoin(SCHEMA, SCHEMA, ["v"], ["v"], "k", "k", -1, 1, "left_outer"),
    "temporal join": lambda: TemporalJoin(SCHEMA, SCHEMA, ["v"], ["v"], "k", "k"),
    "top-n": lambda: TopN(SCHEMA, ["v desc"], 2),
    "group top-n": lambda: GroupTopN(SCHEMA, ["k"], ["v"], 1),
    "filter": lambda: DynamicFilter(SCHEMA, VALUE, "v", ">"),
    "view": lambda: Materialize(SCHEMA),
    "checked view": lambda: Materialize(SCHEMA, "check"),
    "sessions": lambda: SessionWindow(SCHEMA, "v", 3, ["k"]),
    "hops": lambda: Hop(SCHEMA, "v", 4, 2),
    "watermark": lambda: WatermarkFilter(SCHEMA, "k", 1),
    "union": lambda: Union(SCHEMA),
    "pipeline": pipeline,
}

FIRST, DROPPED, LAST = ([(n % 3 + epoch, n % 4, 10 * epoch + n) for n in range(6)] for epoch in (0, 6, 1))


class Open:
    """An operator on a store."""

    def __init__(self, make: Callable[[], Operator]) -> None:
        self.make, self.store = make, CheckpointStore(":memory:")
        self.recover()

    def recover(self) -> None:
        self.space, self.operator = PersistedObjectSpace(self.store), self.make()
        self.operator.open(self.space, "it")

    def give(self, rows: list[Any]) -> list[Any]:
        """Give rows and a promise to each side, and return what comes of it."""
        found: list[Any] = []
        for side in self.operator.sides:
            schema = VALUE if side == "right" and isinstance(self.operator, DynamicFilter) else SCHEMA
            given = [("+", (2,))] if schema is VALUE else [("+", row) for row in rows]
            found += self.operator.process(Chunk.from_rows(schema, given), side)
            found.append(self.operator.watermark("k", rows[0][0], side))
        return found

    def end(self, epoch: int) -> list[Any]:
        return [*self.operator.barrier(epoch), self.operator.promises()]

    def stored(self) -> dict[str, list[Any]]:
        found = {name: self.space.get(name) for name in self.space}
        return {name: list(kept.items()) for name, kept in found.items()}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("ends", [False, True])
def test_what_is_dropped_leaves_no_trace(name: str, ends: bool) -> None:
    outcomes = []
    for is_dropped in (False, True):
        it = Open(OPERATORS[name])
        out = it.give(FIRST) + it.end(1)
        it.space.checkpoint(epoch=1)
        if is_dropped:
            it.give(DROPPED)
            if ends:
                it.end(2)
            it.space.rollback()
        else:
            it.recover()
        out += it.give(LAST) + it.end(2)
        it.space.checkpoint(epoch=2)
        outcomes.append((out, it.stored()))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("name", OPERATORS)
def test_before_the_first_checkpoint_it_is_opened_again(name: str) -> None:
    outcomes = []
    for is_dropped in (False, True):
        it = Open(OPERATORS[name])
        if is_dropped:
            it.give(DROPPED)
            it.end(1)
            it.space.rollback()
            it.operator.open(it.space, "it")
        outcomes.append((it.give(FIRST) + it.end(1), it.stored()))
    assert outcomes[0] == outcomes[1]


def test_a_space_does_not_keep_an_operator_that_nobody_needs_any_more() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    operator = OPERATORS["sums"]()
    operator.open(space, "it")
    kept = weakref.ref(operator)
    del operator
    gc.collect()
    assert kept() is None
    space.rollback()
    assert "it/HashAggState" not in space


def test_a_space_asks_no_operator_that_is_gone() -> None:
    space, asked = PersistedObjectSpace(CheckpointStore(":memory:")), set()
    for _ in range(3):
        operator = pipeline()
        operator.open(space, "it")
        asked.add((len(space._rollbacks), len(space._sealed)))
        del operator
        gc.collect()
    assert len(asked) == 1


def test_rows_that_wait_to_be_added_up_are_dropped() -> None:
    it = Open(OPERATORS["sums"])
    it.end(1)
    it.space.checkpoint(epoch=1)
    it.give([(1, 1, number) for number in range(HELD + 1)])
    it.space.rollback()
    assert it.end(2) == [[]]


def test_promises_of_an_epoch_that_was_refused_are_dropped() -> None:
    def made() -> Operator:
        found = Pipeline()
        rows = found.source("rows", {"id": "int64", "t": "int64", "v": "int64"}, key=["id"]).watermark("t", 0)
        rows.agg(total=sum_("v")).sink("total")
        rows.window("t", 10).group_by("window_start").on_window_close().agg(n=count()).sink("closed")
        return found.as_operator()

    def outcome(*bad: list[tuple[int, int, int]]) -> list[Any]:
        space, it, given = PersistedObjectSpace(CheckpointStore(":memory:")), made(), []
        it.open(space, "it")
        for epoch, rows in enumerate([[(1, 1, 5)], *bad, [(2, 12, 7)], [(3, 15, 1), (4, 25, 1)], [(5, 40, 1)]], 1):
            number = epoch - (len(bad) if epoch > 2 else 0)
            try:
                given.append([it.take({"rows": rows}, number), it.barrier(number)])
            except RowError:
                space.rollback()
                continue
            space.checkpoint(epoch=number)
        return given

    assert outcome([(2, 1000, 2**63 - 1)]) == outcome()


def test_what_came_out_of_a_pipeline_that_failed_half_way_is_dropped() -> None:
    found = Pipeline()
    rows = found.source("rows", SCHEMA)
    rows.sink("all")
    rows.select("id", part=(lambda row: 6 // row.v, "int64")).sink("parts")
    it = Open(found.as_operator)
    with pytest.raises(ExpressionError, match="by zero"):
        it.give([(1, 0, 1)])
    it.space.rollback()
    assert it.give([(1, 2, 2)])[:-1] == [
        Chunk.from_rows(SCHEMA, [("+", (1, 2, 2))]),
        Chunk.from_rows(found.results["parts"].schema, [("+", (2, 3))]),
    ]


# A run that is open when its space is rolled back

BATCHES: list[dict[str, Any]] = [{"rows": [(number, number % 2, 10 * number)]} for number in range(1, 4)]


def results(*names: str) -> Pipeline:
    found = Pipeline()
    rows = found.source("rows", SCHEMA)
    made = {"all": rows, "counts": rows.group_by("v").agg(n=count())}
    for name in names:
        made[name].materialize(name)
    return found


def uses(run: LocalRun, name: str) -> list[Callable[[], object]]:
    return [lambda: run.rows(name), lambda: run.step(BATCHES[2])]


def test_before_operators_were_dropped_it_is_refused() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    run_local(results("all", "counts"), BATCHES[:2], space)
    run_local(results("all"), [], space, drop_changed=True)
    run = run_local(results("all"), [], space)
    space.rollback(epoch=2)
    for use in uses(run, "all"):
        with pytest.raises(PipelineChangedError, match="'counts', stored as Materialize, is there no more"):
            use()
    again = run_local(results("all", "counts"), BATCHES, space)
    assert again.rows("counts") == [(0, 1), (1, 2)]


def test_before_operators_were_dropped_it_drops_them_again_where_it_may() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    run_local(results("all", "counts"), BATCHES[:2], space)
    run = run_local(results("all"), [], space, drop_changed=True)
    space.rollback(epoch=2)
    run.step(BATCHES[2])
    assert len(run.rows("all")) == 3
    with pytest.raises(PipelineChangedError, match=r"'counts' .* is new: found no batches"):
        run_local(results("all", "counts"), [], space)


def test_before_operators_were_added_it_asks_for_the_batches_again() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    run_local(results("all"), BATCHES[:2], space)
    run = run_local(results("all", "counts"), BATCHES[:2], space)
    space.rollback(epoch=2)
    assert len(run.rows("all")) == 2
    for use in uses(run, "counts"):
        with pytest.raises(PipelineChangedError, match=r"'counts' .* is new: replay batches 1 to 2 first"):
            use()
    for number, batch in enumerate(BATCHES[:2], 1):
        run.replay(batch, number)
    run.finish_replay()
    assert (run.rows("counts"), run.epoch) == ([(0, 1), (1, 1)], 3)


def test_it_forgets_the_changes_and_receipts_of_epochs_that_are_no_more() -> None:
    run = results("all").run_local(BATCHES)
    changes = run.changes("all")
    run.space.rollback(epoch=1)
    assert (run.changes("all"), len(run.receipts)) == (changes[:1], 1)
    run.step(BATCHES[1])
    assert (run.changes("all"), [receipt.epoch for receipt in run.receipts]) == (changes[:2], [1, 2])


# A run that is open when another one has been at work on its space


def test_a_run_goes_on_after_what_another_run_has_done() -> None:
    space, gone = PersistedObjectSpace(CheckpointStore(":memory:")), {"rows": [("-", (1, 1, 10))]}
    batches = [BATCHES[0], gone, BATCHES[2], BATCHES[0]]
    first = run_local(results("counts"), batches[:1], space)
    second = run_local(results("counts"), batches[:2], space)
    for batch, run in zip(batches[2:], (first, second)):
        run.step(batch)
    assert first.rows("counts") == second.rows("counts") == run_local(results("counts"), batches).rows("counts")
    assert first.position == second.position == 4


@pytest.mark.parametrize("drop_changed", [False, True])
@pytest.mark.parametrize("before", [0, 2])
def test_a_run_drops_nothing_of_what_another_run_has_added(drop_changed: bool, before: int) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    run = run_local(results("all"), BATCHES[:before], space, drop_changed=drop_changed)
    other = run_local(results("all", "counts"), BATCHES[:before], space)
    for use in uses(run, "all"):
        with pytest.raises(PipelineChangedError, match="'counts', stored as Materialize, is there no more"):
            use()
    for batch in BATCHES[before:]:
        other.step(batch)
    assert other.rows("counts") == run_local(results("all", "counts"), BATCHES).rows("counts")


# A pipeline between its rows and their barrier


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_checkpoint_before_the_barrier_of_a_pipeline_is_refused(is_saved: bool) -> None:
    it = Open(lambda: results("all", "counts").as_operator())
    it.operator.take(BATCHES[0], 1)
    with pytest.raises(CheckpointProtocolError, match=r"pipeline 'it' has taken rows.*: call barrier\(epoch\) on it"):
        if is_saved:
            it.space.save(it.store.writer())
        else:
            it.space.checkpoint(epoch=1)
    assert it.operator.barrier(1)
    it.space.checkpoint(epoch=1)
    it.recover()
    it.operator.take(BATCHES[2], 2)
    assert it.operator.barrier(2)[-1].rows() == [("U-", (1, 1)), ("U+", (1, 2))]


def test_after_a_rollback_no_rows_of_a_pipeline_are_on_their_way() -> None:
    it = Open(lambda: results("counts").as_operator())
    it.space.checkpoint()
    it.operator.take(BATCHES[0], 1)
    it.space.rollback()
    assert it.space.checkpoint().slots == 0
