"""A rollback of the space takes every operator back: it goes on as one does that is opened after a crash."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count as numbers
from threading import Event, Timer
from typing import Any
from unittest.mock import Mock

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
    Stream,
    TemporalJoin,
    TopN,
    Union,
    WatermarkFilter,
    count,
    run_local,
    sum_,
)
from objectspace.operators.turns import turns_on
from objectspace.operators.value_groups import HELD
from objectspace.relational import Chunk, Column, RowError, StateTable, StorageTable, TableSchema
from tests.objects.interruptions import at_exit, interrupted
from tests.patience import PATIENCE

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
        """Give rows and a watermark to each side, and return what comes of it."""
        found: list[Any] = []
        for side in self.operator.sides:
            schema = VALUE if side == "right" and isinstance(self.operator, DynamicFilter) else SCHEMA
            given = [("+", (2,))] if schema is VALUE else [("+", row) for row in rows]
            found += self.operator.process(Chunk.from_rows(schema, given), side)
            found.append(self.operator.watermark("k", rows[0][0], side))
        return found

    def end(self, epoch: int) -> list[Any]:
        return [*self.operator.barrier(epoch), self.operator.watermarks()]

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


def test_watermarks_of_an_epoch_that_was_refused_are_dropped() -> None:
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
        with pytest.raises(PipelineChangedError, match="'counts', stored as Materialize, is gone"):
            use()
    again = run_local(results("all", "counts"), BATCHES, space)
    assert again.rows("counts") == [(0, 1), (1, 2)]


def test_before_operators_were_dropped_it_drops_them_again_where_it_may() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    run_local(results("all", "counts"), BATCHES[:2], space)
    run = run_local(results("all"), [], space, drop_changed=True)
    space.rollback(epoch=2)
    with pytest.raises(
        PipelineChangedError, match=r"'counts', stored .*finish_dropping\(\) of this run drop that again"
    ):
        run.rows("all")
    assert not run.is_behind
    assert "counts/table" in space
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
@pytest.mark.parametrize("is_rolled_back", [False, True])
@pytest.mark.parametrize(("before", "has_dropped"), [(0, False), (2, False), (2, True)])
def test_a_run_drops_nothing_of_what_another_run_has_added(
    drop_changed: bool, is_rolled_back: bool, before: int, has_dropped: bool
) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    if has_dropped:
        run_local(results("all", "counts"), BATCHES[:before], space)
        if not drop_changed:
            run_local(results("all"), [], space, drop_changed=True)
    run = run_local(results("all"), BATCHES[:before], space, drop_changed=drop_changed)
    other = run_local(results("all", "counts"), BATCHES[:before], space)
    if is_rolled_back:
        space.checkpoint()
        space.rollback()
    for use in uses(run, "all"):
        with pytest.raises(PipelineChangedError, match="'counts', stored as Materialize, is gone"):
            use()
    for batch in BATCHES[before:]:
        other.step(batch)
    assert other.rows("counts") == run_local(results("all", "counts"), BATCHES).rows("counts")


def test_a_run_drops_nothing_of_what_another_space_has_added() -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    run = run_local(results("all"), BATCHES[:2], space, drop_changed=True)
    run_local(results("all", "counts"), BATCHES[:2], store)
    space.rollback()
    for use in [*uses(run, "all"), lambda: run.is_behind]:
        with pytest.raises(PipelineChangedError, match="'counts', stored as Materialize, is gone"):
            use()
    assert run_local(results("all", "counts"), [], space).rows("counts") == [(0, 1), (1, 1)]


def test_what_a_run_has_dropped_is_durable_with_its_epoch_though_another_one_drops_beside_it() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    run_local(results("all", "counts"), BATCHES[:2], space)
    run = LocalRun(results("all"), space, drop_changed=True)
    LocalRun(results("counts"), space, drop_changed=True)
    again = LocalRun(results("all"), space, drop_changed=True)
    for number, batch in enumerate(BATCHES[:2], 1):
        again.replay(batch, number)
    again.finish_replay()
    assert run.rows("all") == again.rows("all") == [(1, 1, 10), (2, 0, 20)]
    run.finish_dropping()
    assert (run.epoch, run.position) == (3, 2)


def test_a_run_opens_anew_what_another_one_has_dropped_and_a_third_one_has_created_again() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    both, one, again = (
        LocalRun(results(*names), space, drop_changed=True)
        for names in [("all", "counts"), ("all",), ("all", "counts")]
    )
    assert both.rows("counts") == []
    both.step(BATCHES[0])
    assert both.rows("counts") == again.rows("counts") == [(1, 1)]
    with pytest.raises(PipelineChangedError, match="'counts', stored as Materialize, is gone"):
        one.step(BATCHES[1])


# A run that is open while another one feeds operators that are new


def test_a_run_reads_its_results_after_a_rollback_while_another_one_feeds_others() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    old = run_local(results("all"), BATCHES[:2], space)
    behind = LocalRun(results("all", "counts"), space)
    space.rollback()
    feeder = LocalRun(results("all", "counts"), space)
    feeder.replay(BATCHES[0], 1)
    assert old.rows("all") == [(1, 1, 10), (2, 0, 20)]
    assert (old.is_behind, behind.is_behind) == (False, True)
    with pytest.raises(CheckpointProtocolError, match=r"a run cannot open operators that are new while .*'counts'"):
        behind.rows("all")


@pytest.mark.parametrize("fed", [0, 1, 2])
def test_a_run_that_is_closed_takes_nothing_back_but_what_it_has_begun(fed: int) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    run_local(results("all"), BATCHES[:2], space)
    behind, feeder = (LocalRun(results("all", "counts"), space) for _ in range(2))
    for number, batch in enumerate(BATCHES[:fed], 1):
        feeder.replay(batch, number)
    if fed == 2:
        feeder.finish_replay()
    space.create_dictionary("mine")
    behind.close()
    assert ("mine" in space) == (fed > 0)
    if fed == 1:
        feeder.close()
        assert "mine" not in space


# The midst of an epoch


def with_sink(function: Callable[[int, Chunk], object]) -> Pipeline:
    found = results("counts")
    Stream(found, found.sources["rows"], SCHEMA.names).sink("out", function)
    return found


REFUSED: dict[str, Callable[[LocalRun, LocalRun], object]] = {
    "checkpoint": lambda run, _: run.space.checkpoint(),
    "save": lambda run, _: run.space.save(run.space.store.writer()),
    "step": lambda run, _: run.step(BATCHES[1]),
    "finish": lambda run, _: run.finish_replay(),
    "another step": lambda _, other: other.step(BATCHES[1]),
    "another replay": lambda _, other: other.replay(BATCHES[0], 1),
    "another close": lambda _, other: other.close(),
    "another run": lambda run, _: LocalRun(results("all"), run.space, drop_changed=True),
}


@pytest.mark.parametrize("name", REFUSED)
def test_in_the_midst_of_an_epoch_nothing_is_saved_nor_done_by_another_run(name: str) -> None:
    space, is_bad = PersistedObjectSpace(CheckpointStore(":memory:")), [False]

    def function(epoch: int, chunk: Chunk) -> None:
        space.get_or_create_dictionary("seen")[str(epoch)] = len(chunk)
        if is_bad[0]:
            REFUSED[name](run, other)

    run = run_local(with_sink(function), BATCHES[:1], space)
    other = LocalRun(results("all", "counts"), space)
    is_bad[0] = True
    with pytest.raises(
        CheckpointProtocolError, match=r"while a run processes epoch 2, .* write into the space without"
    ):
        run.step(BATCHES[1])
    assert dict(space.get_dictionary("seen")) == {"1": 1}
    is_bad[0] = False
    run.step(BATCHES[1])
    assert run.rows("counts") == [(0, 1), (1, 1)]
    assert dict(space.get_dictionary("seen")) == {"1": 1, "2": 1}


def test_in_the_midst_of_an_epoch_the_results_of_another_run_may_be_read() -> None:
    space, seen = PersistedObjectSpace(CheckpointStore(":memory:")), list[Any]()
    run = run_local(with_sink(lambda epoch, chunk: seen.append(other.rows("counts"))), [], space)
    other = LocalRun(run.pipeline, space)
    for batch in BATCHES[:2]:
        run.step(batch)
    assert seen == [[(1, 1)], [(0, 1), (1, 1)]]


def test_while_a_thread_is_in_a_step_a_run_of_another_thread_is_refused_and_changes_nothing() -> None:
    space, refused = PersistedObjectSpace(CheckpointStore(":memory:")), list[str]()

    def step_in_another_thread() -> None:
        with ThreadPoolExecutor(1) as pool:
            refused.append(str(pool.submit(other.step, BATCHES[1]).exception()))

    def rows() -> Iterator[Any]:
        step_in_another_thread()
        yield from BATCHES[0]["rows"]

    run = LocalRun(with_sink(lambda epoch, chunk: step_in_another_thread()), space)
    other = LocalRun(run.pipeline, space)
    run.step({"rows": rows()})
    assert "no run can change the space while another thread changes it with a run" in refused[0]
    assert "no run can change the space while a run processes epoch 1" in refused[1]
    assert (run.position, run.rows("counts")) == (1, [(1, 1)])


@pytest.mark.parametrize("is_opened", [False, True])
def test_while_a_thread_reads_its_batch_no_run_of_another_thread_is_opened_and_none_goes_back(is_opened: bool) -> None:
    space, refused = PersistedObjectSpace(CheckpointStore(":memory:")), list[str]()
    run, changed = run_local(results("counts"), BATCHES[:1], space), results("counts", "all")
    other = LocalRun(changed, space) if is_opened else None

    def rows() -> Iterator[Any]:
        space.create_list("mine").append(1)
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(other.close if other else lambda: run_local(changed, [], space)).exception()
            refused.append(str(found))
        yield from BATCHES[1]["rows"]

    run.step({"rows": rows()})
    assert "while another thread changes it with a run" in refused[0]
    assert list(space.get_list("mine")) == [1]
    assert run.rows("counts") == [(0, 1), (1, 1)]


def test_a_run_that_fails_while_it_feeds_goes_back_whoever_is_being_refused_meanwhile() -> None:
    space, entered, leave = PersistedObjectSpace(CheckpointStore(":memory:")), Event(), Event()
    run = run_local(results("counts"), BATCHES[:2], space)

    def be_refused() -> None:
        with turns_on(space).in_one_thread("no run can change the space"):
            entered.set()
            leave.wait(PATIENCE)

    def batches() -> Iterator[Any]:
        yield BATCHES[0]
        pool.submit(be_refused)
        assert entered.wait(PATIENCE)
        Timer(0.1, leave.set).start()
        raise ZeroDivisionError

    with ThreadPoolExecutor(1) as pool, pytest.raises(ZeroDivisionError):
        run_local(results("counts", "all"), batches(), space)
    run.step(BATCHES[2])
    assert run.position == 3


def test_a_block_that_an_interruption_kept_from_saying_that_it_was_left_admits_others() -> None:
    turns = turns_on(PersistedObjectSpace(CheckpointStore(":memory:")))
    turns.in_one_thread("nothing").__enter__()
    gc.collect()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: turns.in_one_thread("nothing").__enter__()).result() is None


def test_in_the_midst_of_a_batch_that_is_replayed_its_run_feeds_no_other() -> None:
    space, is_bad = PersistedObjectSpace(CheckpointStore(":memory:")), [True]

    class Feeding(Operator):
        schema = SCHEMA

        def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
            if is_bad[0]:
                run.replay(BATCHES[0], 1)
            return [chunk]

    run_local(results("all"), BATCHES[:1], space)
    pipeline = results("all")
    Stream(pipeline, pipeline.sources["rows"], SCHEMA.names).through(lambda _: Feeding(), "fed").materialize("new")
    run = LocalRun(pipeline, space)
    with pytest.raises(CheckpointProtocolError, match="no run can change the space while a run processes epoch 2"):
        run.replay(BATCHES[0], 1)
    is_bad[0] = False
    run.replay(BATCHES[0], 1)
    run.finish_replay()
    assert run.rows("new") == [(1, 1, 10)]


def test_an_epoch_in_whose_midst_the_space_was_rolled_back_fails() -> None:
    space, is_bad = PersistedObjectSpace(CheckpointStore(":memory:")), [True]
    run = LocalRun(with_sink(lambda epoch, chunk: space.rollback() if is_bad[0] else None), space)
    with pytest.raises(
        CheckpointProtocolError, match=r"rolled back while a run processed epoch 1, .*give the batch again"
    ):
        run.step(BATCHES[0])
    is_bad[0] = False
    run.step(BATCHES[0])
    assert (run.position, run.rows("counts")) == (1, [(1, 1)])


LEFT: dict[str, Callable[[LocalRun], object]] = {
    "checkpoint": lambda run: run.space.checkpoint(),
    "save": lambda run: run.space.save(run.space.store.writer()),
    "step": lambda run: run.step(BATCHES[1]),
    "rows": lambda run: run.rows("counts"),
    "position": lambda run: run.position,
    "another run": lambda run: LocalRun(run.pipeline, run.space),
}


@pytest.mark.parametrize("name", LEFT)
@pytest.mark.parametrize("is_saving", [False, True])
def test_of_an_epoch_that_failed_nothing_is_saved_before_a_rollback(
    name: str, is_saving: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_bad = False
    run = run_local(with_sink(lambda epoch, chunk: is_bad and 1 // 0), BATCHES[:1])
    is_bad = not is_saving
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(run.space, "rollback", Mock(side_effect=KeyboardInterrupt))
        patch.setattr(run.space.store, "append", Mock(side_effect=OSError))
        run.step(BATCHES[1])
    with pytest.raises(
        CheckpointProtocolError, match=r"a run has failed in epoch 2, .*: call space\.rollback\(\), and give the batch"
    ):
        LEFT[name](run)
    run.space.rollback()
    is_bad = False
    run.step(BATCHES[1])
    assert (run.position, run.rows("counts")) == (2, [(0, 1), (1, 1)])


def test_a_run_is_closed_also_where_its_rollback_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    run = LocalRun(with_sink(lambda epoch, chunk: 1 // 0))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(run.space, "rollback", Mock(side_effect=KeyboardInterrupt))
        run.step(BATCHES[0])
    run.close()
    with pytest.raises(CheckpointProtocolError, match="this space is closed"):
        run.space.checkpoint()


# What others have left when an epoch begins


def beside(space: PersistedObjectSpace) -> tuple[StateTable, Any]:
    """Return a table and a dictionary with something that is not saved."""
    table, noted = StateTable(space, "mine", VALUE), space.create_dictionary("noted")
    table.insert_row((7,))
    noted["k"] = "precious"
    return table, noted


def test_an_epoch_covers_what_a_checkpoint_that_failed_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_local(results("all"), BATCHES[:1], CheckpointStore(":memory:"))
    space = run.space
    behind = LocalRun(results("all", "counts"), space)
    _, noted = beside(space)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="no room"):
        patch.setattr(space.store, "append", Mock(side_effect=OSError("no room")))
        space.checkpoint()
    behind.replay(BATCHES[0], 1)
    behind.finish_replay()
    assert (behind.epoch, behind.rows("counts")) == (2, [(1, 1)])
    noted["k"] = "more"
    with monkeypatch.context() as patch, pytest.raises(OSError, match="no room"):
        patch.setattr(space.store, "append", Mock(side_effect=OSError("no room")))
        space.checkpoint()
    assert behind.step(BATCHES[1]).epoch == 3
    stored = PersistedObjectSpace(space.store)
    assert stored.get("noted") == {"k": "more"}
    assert list(StateTable(stored, "mine").scan()) == [(7,)]
    assert behind.rows("counts") == run_local(results("counts"), BATCHES[:2]).rows("counts")


@pytest.mark.usefixtures("only_new_garbage")
def test_an_interruption_of_a_run_that_is_let_go_late_takes_nothing_back(apart: int) -> None:
    expected = run_local(results("counts"), BATCHES[:2]).rows("counts")
    for number in numbers(step=apart):
        run, kept = run_local(results("counts"), BATCHES[:1], CheckpointStore(":memory:")), list[BaseException]()
        if not interrupted(lambda: run.step(BATCHES[1]), number, where=at_exit, kept=kept):  # noqa: B023
            break
        if run.position == 1:
            run.step(BATCHES[1])
        _, noted = beside(run.space)
        kept.clear()
        gc.collect()
        assert noted["k"] == "precious"
        run.space.checkpoint()
        assert run.rows("counts") == expected
    assert number > 0


def test_an_epoch_is_no_earlier_than_one_that_a_table_has_sealed() -> None:
    run = run_local(results("counts"), BATCHES[:1])
    table, _ = beside(run.space)
    table.commit(10)
    assert [run.step(batch).epoch for batch in BATCHES[1:]] == [10, 11]
    assert list(StorageTable(run.space, "mine", epoch=10).scan()) == [(7,)]
    assert [epoch for epoch, _ in run.changes("counts")] == [1, 10, 11]


def test_while_a_save_is_in_flight_a_run_goes_on_with_nothing() -> None:
    seen: list[int] = []
    run = run_local(with_sink(lambda epoch, chunk: seen.append(epoch)), BATCHES[:1])
    _, noted = beside(run.space)
    writer = run.space.store.writer()
    run.space.save(writer)
    noted["k"] = "more"
    with pytest.raises(CheckpointProtocolError, match="two saves in flight"):
        run.step(BATCHES[1])
    assert (seen, noted["k"]) == ([1], "more")
    writer.commit()
    run.step(BATCHES[1])
    assert (run.epoch, run.position, PersistedObjectSpace(run.space.store).get("noted")) == (3, 2, {"k": "more"})


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


@pytest.mark.parametrize("how", ["the run goes on", "another run goes on", "a rollback"])
def test_a_batch_whose_rows_move_the_space_while_they_are_read_is_refused(how: str) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    run, other = LocalRun(results("counts"), space), LocalRun(results("counts"), space)
    moves: dict[str, Callable[[], object]] = {
        "the run goes on": lambda: run.step(BATCHES[0]),
        "another run goes on": lambda: other.step(BATCHES[0]),
        "a rollback": space.rollback,
    }

    def rows() -> Iterator[tuple[int, ...]]:
        moves[how]()
        yield from BATCHES[1]["rows"]

    with pytest.raises(CheckpointProtocolError, match="while the rows of batch 1 were read"):
        run.step({"rows": rows()})
    for batch in BATCHES[run.position :]:
        run.step(batch)
    assert run.rows("counts") == run_local(results("counts"), BATCHES).rows("counts")
