"""Pipelines that change between runs: what still fits keeps its state, the rest is refused or goes on request."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoint import CheckpointStore
from objectspace import CheckpointProtocolError, ObjectSpace, ObjectSpaceError, PersistedObjectSpace, SpacePart
from objectspace.kvt import KeyValueTableConfiguration, KeyValueTableManager
from objectspace.operators import (
    Apply,
    ExpressionError,
    LocalRun,
    Operator,
    Pipeline,
    PipelineChangedError,
    Stream,
    catalogue,
    col,
    count,
    max_,
    run_local,
    sum_,
)
from objectspace.operators.plan import Node
from objectspace.relational import (
    Chunk,
    Column,
    EpochError,
    RelationalError,
    RowError,
    StateTable,
    TableSchema,
    drop_table,
    rename_table,
    tables,
)
from tests.operators.flight_pipelines import BATCHES, FLIGHTS, NAMES, built, counted, flights, named, per_carrier
from tests.operators.own_operators import Passing
from tests.operators.test_rollback import FIRST, OPERATORS, Open


def test_what_is_unchanged_keeps_its_state_when_a_result_is_added(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    run_local(built(counted), BATCHES, path).close()

    def with_more(pipeline: Pipeline) -> None:
        counted(pipeline)
        delays = Stream(pipeline, pipeline.results["delays"].inputs[0], ("carrier", "n", "worst"))
        delays.top_n(1, order_by=["worst desc"]).materialize("top")

    run = run_local(built(with_more), BATCHES, path)
    assert (run.position, run.epoch) == (3, 4)
    assert run.rows("top") == [("B6", 1, 40)]
    (receipt,) = run.receipts
    kept = {name: one.slots for name, one in receipt.objects.items() if name.startswith(("delays", "flights.HashAgg/"))}
    assert set(kept.values()) <= {0}
    run.step({"flights": [(9, "AA", 99)]})
    assert run.rows("top") == [("AA", 1, 99)]
    assert run.rows("delays") == [("AA", 1, 99), ("B6", 1, 40), ("UA", 2, 5)]
    run.close()


@pytest.mark.parametrize(
    ("least", "more", "said"),
    [
        (8, {}, r"it read Where\(\(v > 6\)\), and now reads Where\(\(v > 8\)\)"),
        (6, {"w": "int64"}, r"it read Source s \(id .*, v .*\), and now reads Source s \(id .*, v .*, w "),
    ],
)
def test_what_has_no_state_of_its_own_is_named_where_it_was_changed(
    tmp_path: Path, least: int, more: dict[str, str], said: str
) -> None:
    def piped(least: int, **columns: str) -> Pipeline:
        pipeline = Pipeline()
        source = pipeline.source("s", {"id": "int64", "v": "int64", **columns}, key=["id"])
        source.filter(col("v") > least).materialize("r")
        return pipeline

    run_local(piped(6), [{"s": [(1, 7)]}], tmp_path / "state.db").close()
    with pytest.raises(PipelineChangedError, match=said):
        run_local(piped(least, **more), [], tmp_path / "state.db")


def split_and_joined(steps: int, most: int) -> Pipeline:
    pipeline = Pipeline()
    stream = pipeline.source("s", {"id": "int64", "v": "int64"}, key=["id"])
    for step in range(steps):
        stream = stream.filter(col("v") > step).union(stream.filter(col("v") <= step))
    stream.filter(col("v") < most).materialize("r")
    return pipeline


def test_what_is_split_and_joined_again_and_again_costs_once_for_each_operator(tmp_path: Path) -> None:
    started = time.process_time()
    with run_local(split_and_joined(40, 99), [{"s": [(1, 5), (2, 50)]}], tmp_path / "state.db") as run:
        assert sorted(run.rows("r")) == [(1, 5), (2, 50)]
        (record,) = run.space.get_dictionary(catalogue.OPERATORS).values()
    assert len(record["reads"]) == 1 + 40 * 7 + 1
    assert (tmp_path / "state.db").stat().st_size < 200_000
    assert time.process_time() - started < 5


def test_what_was_noted_once_for_each_way_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with run_local(split_and_joined(2, 99), [{"s": [(1, 5)]}], path) as run:
        (node,) = run.plan.stateful
        noted = run.space.get_dictionary(catalogue.OPERATORS)
        noted["r"] = {**noted["r"], "reads": reads_by_every_way(node)}
        assert len(noted["r"]["reads"]) > len(node.reads())
        run.space.checkpoint(epoch=2)
    with run_local(split_and_joined(2, 99), [], path) as run:
        run.step({"s": [(2, 6)]})
        assert sorted(run.rows("r")) == [(1, 5), (2, 6)]
    said = r"it read Where\(\(v < 99\)\), and now reads Where\(\(v < 98\)\); go back"
    with pytest.raises(PipelineChangedError, match=said):
        run_local(split_and_joined(2, 98), [], path)


def reads_by_every_way(node: Node) -> list[str]:
    """Return what earlier versions noted of what an operator reads."""
    found = []
    for one in node.inputs:
        if one.inputs and not one.is_stateful:
            found += [one.describe(), *reads_by_every_way(one)]
        else:
            found.append(f"{one.describe()} {one.name} ({one.schema})")
    return found


def test_a_changed_operator_is_refused_by_name_and_dropped_on_request(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    run_local(built(counted), BATCHES, path).close()

    def changed(pipeline: Pipeline) -> None:
        pipeline.source("names", NAMES, key=["carrier"])
        flights(pipeline).group_by("carrier").agg(n=count(), total=sum_("delay")).materialize("delays")

    said = (
        r"'flights.HashAgg', stored as HashAgg\(carrier, .*max\(delay\) as worst\), is now HashAgg\(carrier, .*\);"
        r" and with them what reads from them: 'delays'; go back .* drop_changed=True"
    )
    with pytest.raises(PipelineChangedError, match=said):
        run_local(built(changed), BATCHES, path)
    untouched = run_local(built(counted), BATCHES, path)
    assert untouched.rows("delays") == [("B6", 1, 40), ("UA", 2, 5)]
    untouched.close()
    run = run_local(built(changed), BATCHES, path, drop_changed=True)
    assert run.rows("delays") == [("B6", 1, 40), ("UA", 2, 5)]
    run.step({"flights": [(5, "UA", 10)]})
    assert run.rows("delays") == [("B6", 1, 40), ("UA", 3, 15)]
    run.close()
    reopened = run_local(built(changed), [*BATCHES, {}], path)
    assert reopened.rows("delays") == [("B6", 1, 40), ("UA", 3, 15)]
    reopened.close()


def test_a_result_that_is_gone_is_named_and_its_tables_go_on_request(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    run_local(built(named), BATCHES[:2], path).close()
    with pytest.raises(PipelineChangedError, match="'named', stored as Materialize, is gone"):
        run_local(built(counted), BATCHES, path)
    run = run_local(built(counted), BATCHES, path, drop_changed=True)
    assert set(tables(run.space)) == {"flights.HashAgg/HashAggCall1", "flights.HashAgg/HashAggState", "delays/table"}
    assert run.rows("delays") == built(counted).run_local(BATCHES).rows("delays")
    run.close()


def with_many(pipeline: Pipeline) -> None:
    stream = per_carrier(pipeline)
    stream.materialize("delays")
    stream.filter(col("n") > 1).materialize("many")
    pipeline.source("names", NAMES, key=["carrier"])


def test_what_was_dropped_stays_so_where_no_batch_comes_after_it(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    run_local(built(with_many), BATCHES, path).close()
    dropped = run_local(built(counted), [], path, drop_changed=True)
    assert (dropped.position, dropped.epoch, len(dropped.receipts)) == (3, 4, 1)
    dropped.close()
    for batches in ([], BATCHES):
        run = run_local(built(counted), batches, path)
        assert (run.rows("delays"), run.receipts) == ([("B6", 1, 40), ("UA", 2, 5)], [])
        assert "many/table" not in tables(run.space)
        run.close()


def test_what_was_dropped_goes_with_the_epoch_of_a_batch_where_one_comes(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    run_local(built(with_many), BATCHES[:2], path).close()
    run = run_local(built(counted), BATCHES, path, drop_changed=True)
    assert (run.position, run.epoch, len(run.receipts)) == (3, 3, 1)
    run.close()


def test_a_sink_behind_stored_state_gets_the_changes_from_the_next_batch_on() -> None:
    space, got = PersistedObjectSpace(CheckpointStore(":memory:")), list[Any]()

    def handed_out(pipeline: Pipeline) -> None:
        pipeline.source("names", NAMES, key=["carrier"])
        delays = per_carrier(pipeline)
        delays.materialize("delays")
        delays.sink("log", lambda epoch, chunk: got.extend(chunk.rows()))

    run_local(built(counted), BATCHES[:1], space)
    run = run_local(built(handed_out), BATCHES[:1], space)
    assert got == []
    run.step(BATCHES[1])
    assert got[:1] == [("U-", ("B6", 1, 20))]


def test_what_is_new_needs_the_batches_from_the_first_one(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    run_local(built(counted), BATCHES, path).close()
    with pytest.raises(PipelineChangedError, match="found batches 1 to 2, but the state has 3: pass"):
        run_local(built(named), BATCHES[:2], path, drop_changed=True)
    with pytest.raises(PipelineChangedError, match="is new: found no batches, but the state has 3: pass them all"):
        run_local(built(named), [], path, drop_changed=True)
    run = LocalRun(built(named), path, drop_changed=True)
    with pytest.raises(PipelineChangedError, match="replay batches 1 to 3 first"):
        run.step({})
    with pytest.raises(RelationalError, match="batch 2 is replayed after batch 0"):
        run.replay(BATCHES[1], 2)
    run.close()
    kept = run_local(built(counted), BATCHES, path)
    assert kept.rows("delays") == [("B6", 1, 40), ("UA", 2, 5)]
    kept.close()


@pytest.mark.parametrize("bad", [BATCHES[:1], [*BATCHES[:2], {"flights": [(5, "UA", "late")]}]])
def test_a_change_that_fails_leaves_a_space_as_it_was(bad: list[Any]) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    run_local(built(counted), BATCHES, space)
    before = sorted(space)

    def with_more(pipeline: Pipeline) -> None:
        counted(pipeline)
        rows = Stream(pipeline, pipeline.sources["flights"], tuple(FLIGHTS))
        rows.group_by("delay").agg(n=count()).materialize("by_delay")

    with pytest.raises((PipelineChangedError, RowError)):
        run_local(built(with_more), bad, space)
    assert sorted(space) == before
    with LocalRun(built(with_more), space) as run:
        run.replay(BATCHES[0], 1)
    assert sorted(space) == before
    whole = run_local(built(with_more), BATCHES)
    assert run_local(built(with_more), BATCHES, space).rows("by_delay") == whole.rows("by_delay")


def test_what_is_new_goes_through_its_batches_one_after_the_other() -> None:
    def timely(results: int) -> Pipeline:
        pipeline = Pipeline()
        events = pipeline.source("events", {"id": "int64", "k": "string", "at": "int64"}, ["id"], append_only=True)
        windows = events.watermark("at", delay=0).window("at", 10).group_by("window_start").on_window_close()
        made = [events, events.dedup("k"), windows.agg(n=count())]
        for number, stream in enumerate(made[:results]):
            stream.materialize(f"r{number}")
        return pipeline

    batches = [{"events": [(7, "a", 25)]}, {"events": [(1, "a", 3), (2, "b", 31)]}, {"events": [(3, "b", 4)]}]
    store = CheckpointStore(":memory:")
    run_local(timely(1), batches, store).space.close()
    added, fresh = run_local(timely(3), batches, store), run_local(timely(3), batches)
    assert added.rows("r1") == fresh.rows("r1") == [(7, "a", 25), (2, "b", 31)], "of each key the earliest"
    assert added.rows("r2") == fresh.rows("r2") == [(20, 1)], "what was too late then is too late now"
    assert (added.position, added.epoch) == (3, 4)
    later = {"events": [(4, "c", 29), (5, "c", 40)]}
    for run in (added, fresh):
        run.step(later)
    assert added.rows("r2") == fresh.rows("r2") == [(20, 1), (30, 1)]


# What is new, beside what else its space holds


def by_delay(pipeline: Pipeline, condition: Callable[[Any], bool] = lambda row: True) -> None:
    counted(pipeline)
    rows = Stream(pipeline, pipeline.sources["flights"], tuple(FLIGHTS))
    rows.group_by("carrier").agg(total=sum_("delay")).materialize("totals")
    rows.filter(condition).group_by("delay").agg(n=count()).materialize("by_delay")


def with_state() -> PersistedObjectSpace:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    run_local(built(counted), BATCHES, space)
    return space


def same_as_fresh(run: LocalRun) -> bool:
    fresh = run_local(run.pipeline, BATCHES)
    return all(run.rows(name) == fresh.rows(name) for name in run.pipeline.results)


def test_what_others_have_not_saved_yet_outlives_a_replay() -> None:
    space = with_state()
    schema = TableSchema([Column("n", "int64")], ["n"], watermark_column="n")
    noted, below = StateTable(space, "noted", schema), StateTable(space, "totals/noted", schema)
    for table in (noted, below):
        table.insert_rows([(3,), (7,)])
        table.update_watermark(5)
    space.create_dictionary("mine")["a"] = 1
    assert same_as_fresh(run_local(built(by_delay), BATCHES, space))
    space.rollback()
    assert (list(noted.scan()), list(below.scan())) == ([(7,)], [(7,)])
    assert space.get_dictionary("mine")["a"] == 1


def test_what_another_table_has_sealed_ahead_is_not_sealed_once_more_after_a_replay() -> None:
    space = with_state()
    ahead = StateTable(space, "ahead", TableSchema([Column("n", "int64")], ["n"]))
    ahead.commit(9)
    with LocalRun(built(by_delay), space) as run:
        run.replay(BATCHES[0], 1)
        with pytest.raises(EpochError, match="epoch 9 is not after epoch 9"):
            ahead.commit(9)


@pytest.mark.parametrize("failing", [1, 2])
def test_a_replay_that_failed_begins_at_the_first_batch_again(failing: int) -> None:
    space, is_down = with_state(), [False]

    def fails(row: Any) -> bool:
        if is_down[0]:
            raise OSError("the service is down")
        return True

    run = LocalRun(built(lambda pipeline: by_delay(pipeline, fails)), space)
    for number, batch in enumerate(BATCHES[:failing], 1):
        is_down[0] = number == failing
        if number < failing:
            run.replay(batch, number)
    with pytest.raises(ExpressionError, match="the service is down"):
        run.replay(BATCHES[failing - 1], failing)
    is_down[0] = False
    with pytest.raises(EpochError, match=r"after batch 0: replay all from 1, .* goes back to before the first one"):
        run.replay(BATCHES[1], 2)
    for number, batch in enumerate(BATCHES, 1):
        run.replay(batch, number)
    run.finish_replay()
    assert same_as_fresh(run)
    assert same_as_fresh(LocalRun(run.pipeline, PersistedObjectSpace(space.store)))


def test_a_replay_whose_space_was_rolled_back_begins_at_the_first_batch_again() -> None:
    space = with_state()
    run = LocalRun(built(by_delay), space)
    run.replay(BATCHES[0], 1)
    space.rollback()
    for number, batch in enumerate(BATCHES, 1):
        run.replay(batch, number)
    run.finish_replay()
    assert same_as_fresh(run)


def test_a_batch_is_replayed_for_what_is_new_alone() -> None:
    run = run_local(built(counted), BATCHES)
    with pytest.raises(EpochError, match=r"batch 4 is replayed, but no operator is new: .* after batch 3 to step"):
        run.replay({}, 4)


def test_that_state_was_dropped_is_not_made_durable_before_what_is_new_was_fed() -> None:
    space = with_state()
    run = LocalRun(built(named), space, drop_changed=True)
    with pytest.raises(PipelineChangedError, match="is new: replay batches 1 to 3 first"):
        run.finish_dropping()
    run.close()
    assert run_local(built(counted), [], space).rows("delays") == [("B6", 1, 40), ("UA", 2, 5)]


@pytest.mark.parametrize("is_left", [False, True])
def test_nothing_is_saved_in_the_midst_of_a_replay_nor_fed_by_another_run(is_left: bool) -> None:
    space = with_state()
    other, run = LocalRun(built(counted), space), LocalRun(built(by_delay), space)
    run.replay(BATCHES[0], 1)
    if is_left:
        del run
    uses: list[Callable[[], Any]] = [
        space.checkpoint,
        lambda: space.save(space.store.writer()),
        lambda: other.step({}),
        lambda: run_local(built(by_delay), BATCHES, space),
    ]
    for use in uses:
        with pytest.raises(CheckpointProtocolError, match=r"'totals', .* have only a part .* with space.rollback\(\)"):
            use()
    assert other.rows("delays") == [("B6", 1, 40), ("UA", 2, 5)]
    if is_left:
        space.rollback()
        run = LocalRun(built(by_delay), space)
        run.replay(BATCHES[0], 1)
    for number in (2, 3):
        run.replay(BATCHES[number - 1], number)
    run.finish_replay()
    assert same_as_fresh(run)


# What goes, beside what is the user's


class Seen(Passing):
    """An operator of a user, which keeps how many rows it saw in a value that is called as it is."""

    def open(self, space: Any, name: str) -> None:
        self._seen = space.get_or_create_value(name, 0)

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        self._seen.value += len(chunk)
        return super().process(chunk)


def test_an_object_that_is_called_as_a_result_that_is_gone_stays() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    for name in ("named", "named+", "flights.HashAgg"):
        space.create_dictionary(name)["a"] = "mine"
    run_local(built(named), BATCHES, space)
    run_local(built(lambda pipeline: flights(pipeline).materialize("all")), only_flights(), space, drop_changed=True)
    assert sorted(space) == ["$operators", "$position", "$tables", "all/table", "flights.HashAgg", "named", "named+"]
    assert dict(space.get_dictionary("named")) == {"a": "mine"}


@pytest.mark.parametrize("kind", ["Seen", *sorted(catalogue.KEPT_BELOW)])
def test_an_object_that_is_called_as_the_operator_of_a_user_goes_with_it(kind: str) -> None:
    space, own = PersistedObjectSpace(CheckpointStore(":memory:")), type(kind, (Seen,), {})
    run_local(built(lambda pipeline: flights(pipeline).through(own, "seen").materialize("all")), only_flights(), space)
    assert space.get_value("seen").value > 0
    noted = space.get_dictionary(catalogue.OPERATORS)
    assert [name for name in noted if "own" in noted[name]] == ["seen"]
    if kind == "Seen":  # As an earlier version has noted it.
        noted["seen"] = {key: value for key, value in noted["seen"].items() if key != "own"}
    run_local(built(lambda pipeline: flights(pipeline).materialize("all")), only_flights(), space, drop_changed=True)
    assert "seen" not in space


def test_an_operator_stored_under_the_name_of_key_value_tables_goes_without_them() -> None:
    space = PersistedObjectSpace.open(":memory:")
    run_local(built(lambda pipeline: flights(pipeline).materialize("all")), only_flights(), space)
    manager = KeyValueTableManager(space)
    manager.create_scope("shop")
    manager.create_key_value_table("shop", "stock", KeyValueTableConfiguration(2))
    stock = manager.open_key_value_table("shop", "stock")
    stock.put(b"apples", b"17")
    rename_table(space, "all/table", "kvt/table")
    operators = space.get_dictionary(catalogue.OPERATORS)
    operators["kvt"] = operators.pop("all")
    run_local(built(lambda pipeline: flights(pipeline).materialize("other")), only_flights(), space, drop_changed=True)
    assert list(operators) == ["other"]
    assert "kvt/table" not in space
    assert (stock.count(), manager.list_scopes()) == (1, ["shop"])


def only_flights() -> list[dict[str, Any]]:
    return [{"flights": batch["flights"]} for batch in BATCHES]


@pytest.mark.parametrize("name", sorted(OPERATORS.keys() - {"pipeline"}))
def test_what_the_library_keeps_lies_below_the_names_of_operators(name: str) -> None:
    it = Open(OPERATORS[name])
    it.give(FIRST)
    it.end(1)
    assert all(one.startswith(("it/", "$")) for one in it.space)
    assert (type(it.operator).__name__ in catalogue.KEPT_BELOW) == bool(it.operator.state())


@pytest.mark.parametrize(
    ("key", "batch"),
    [([], [(0, "a", 2), (0, "a", 1)]), (["id"], [(1, "a", 1), (2, "a", 9), ("-", (2, "a", 9)), (3, "a", 1)])],
    ids=["numbered", "comes and goes"],
)
def test_a_result_that_takes_order_changes_nothing_for_others(key: list[str], batch: list[Any]) -> None:
    def rows_of(pipeline: Pipeline) -> Stream:
        return pipeline.source("rows", {"id": "int64", "k": "string", "v": "int64"}, key=key)

    def first(rows: Stream) -> Stream:
        late = rows.filter(col("id") >= 0).watermark("v", delay=0)
        found = late.group_by("k").top_n(1, ["id", "k"])
        found.materialize("top")
        return found

    def more(pipeline: Pipeline) -> None:
        rows = rows_of(pipeline)
        first(rows).group_by("v").agg(n=count()).materialize("by_value")
        rows.filter(col("id") >= 0).materialize("last", key=["k"], conflict="overwrite")

    space, batches = PersistedObjectSpace(CheckpointStore(":memory:")), [{"rows": batch}, {"rows": [(0, "b", 5)]}]
    run_local(built(lambda pipeline: first(rows_of(pipeline))), batches, space)
    run, fresh = run_local(built(more), batches, space), run_local(built(more), batches)
    for one in (run, fresh):
        one.step({"rows": [(-1, "b", 5), (-2, "a", 9), (5, "c", 7)]})
    assert [run.rows(name) for name in run.pipeline.results] == [fresh.rows(name) for name in run.pipeline.results]


class Delays:
    """Returns the delay of each row that came."""

    def process(self, batch: Any, space: Any) -> list[Any]:
        return [(delay,) for delay in batch["delay"].to_pylist()]


def applied(pipeline: Pipeline, *names: str) -> None:
    rows = flights(pipeline)
    rows.materialize("rows")
    if names:
        worst = rows.apply(Delays(), "delays", {"delay": "int64?"}).top_n(1, ["delay desc"])
        for name in names:
            worst.select("delay").materialize(name)


def beside(pipeline: Pipeline, *names: str) -> None:
    rows = pipeline.source("flights", FLIGHTS)
    rows.materialize("last", key=["id"], conflict="overwrite")
    worst = rows.top_n(1, ["delay desc"])
    for name in names:
        worst.select("delay").materialize(name)


def named_as(build: Callable[..., None], *names: str) -> Pipeline:
    return built(lambda pipeline: build(pipeline, *names))


def as_an_earlier_version(build: Any, batches: list[Any], *stages: tuple[str, ...]) -> CheckpointStore:
    """Return a store of stages of a pipeline that does not say how rows were numbered, which was by epochs."""
    store, note = CheckpointStore(":memory:"), catalogue.note
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Apply, "begin_batch", Operator.begin_batch)
        patch.setattr(catalogue, "note", lambda *given, repeatable: note(*given))
        patch.setattr(catalogue, "note_repeatable", lambda *_: None)
        for names in stages:
            run_local(named_as(build, *names), batches, store)
    return store


EARLY = [{"flights": [(1, "UA", 90), (2, "B6", 20)]}, {"flights": [(3, "UA", 99)]}]
MORE: dict[str, Any] = {"flights": [(4, "UA", 100)]}


@pytest.mark.parametrize(("build", "stages"), [(applied, [(), ("a",)]), (beside, [("a",)])])
def test_nothing_new_reads_rows_that_an_earlier_version_has_numbered_otherwise(build: Any, stages: Any) -> None:
    store = as_an_earlier_version(build, EARLY, *stages)
    said = r"'b' \(Materialize\) is new, and reads from .*TopN': its rows were numbered by .*another store"
    for batches in (EARLY, [*EARLY, MORE]):
        run = run_local(named_as(build, "a"), batches, store)
        assert run.rows("a") == [(max(row[2] for batch in batches for row in batch["flights"]),)]
        with pytest.raises(PipelineChangedError, match=said):
            run_local(named_as(build, "a", "b"), batches, store)


def test_a_store_of_an_earlier_version_takes_more_where_its_epochs_are_its_batches() -> None:
    store = as_an_earlier_version(applied, EARLY, ("a",))
    for names in ("a", "ab", "abc"):
        run = run_local(named_as(applied, *names), [*EARLY, MORE], store)
    run.step({"flights": [(5, "UA", 101)]})
    assert [run.rows(name) for name in "abc"] == [[(101,)]] * 3


def test_a_stateless_change_above_an_operator_changes_what_it_reads(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    run_local(built(counted), BATCHES, path).close()

    def filtered(pipeline: Pipeline) -> None:
        stream = flights(pipeline).filter(lambda row: row.delay is not None)
        stream.group_by("carrier").agg(n=count(), worst=max_("delay")).materialize("delays")

    with pytest.raises(PipelineChangedError, match=r"'flights\.HashAgg', stored as"):
        run_local(built(filtered), BATCHES, path)


def test_the_order_of_the_results_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    def two(pipeline: Pipeline, names: list[str]) -> None:
        stream = flights(pipeline)
        built_by = {
            "n": lambda: stream.group_by("carrier").agg(n=count()),
            "worst": lambda: stream.group_by("carrier").agg(worst=max_("delay")),
        }
        for name in names:
            built_by[name]().materialize(name)

    only = [{"flights": batch["flights"]} for batch in BATCHES]
    run_local(built(lambda pipeline: two(pipeline, ["n", "worst"])), only, path).close()
    run = run_local(built(lambda pipeline: two(pipeline, ["worst", "n"])), only, path)
    assert run.receipts == []
    assert run.rows("worst") == [("B6", 40), ("UA", 5)]
    run.close()


@pytest.mark.parametrize("lost", [["$operators"], ["$position"], ["$operators", "$position"]])
def test_rows_of_which_nothing_tells_what_batches_are_in_them_are_refused_until_they_are_dropped(
    lost: list[str],
) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    run_local(built(counted), BATCHES[:2], space)
    for name in lost:
        space.delete(name)
    space.checkpoint()
    missing = re.escape("no value '$position'" if "$position" in lost else "no entry of their operator in '$operators'")
    said = (
        rf"has rows in .*'flights\.HashAgg/HashAggState', 'delays/table', but {missing}, .* drop each of these tables"
    )
    for drop_changed in (False, True):
        with pytest.raises(PipelineChangedError, match=said):
            run_local(built(counted), BATCHES, space, drop_changed=drop_changed)
    for table in list(tables(space)):
        drop_table(space, table)
    assert run_local(built(counted), BATCHES, space).rows("delays") == [("B6", 1, 40), ("UA", 2, 5)]


class Counted:
    """Counts rows in objects of its own, and in no table."""

    def __repr__(self) -> str:
        return "Counted()"

    def process(self, batch: Any, space: Any) -> list[dict[str, Any]]:
        total, seen = space.get_or_create_value("total", 0), space.get_or_create_dictionary("seen")
        total.value += len(batch)
        for row in batch.to_pylist():
            seen[row["carrier"]] = seen.get(row["carrier"], 0) + 1
        return [{"total": total.value}]


def counted_apart(pipeline: Pipeline) -> None:
    flights(pipeline).apply(Counted(), "apart", schema={"total": "int64"}).sink("totals", lambda epoch, changes: None)


@pytest.mark.parametrize("lost", ["$operators", "$position"])
def test_objects_of_which_nothing_tells_what_batches_are_in_them_are_refused_until_they_are_deleted(lost: str) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    run_local(built(counted_apart), EARLY, space)
    counts = dict(space.get_dictionary("apart/seen"))
    space.delete(lost)
    space.checkpoint()
    said = r"has objects 'apart/total', 'apart/seen', but .* with space\.delete\(name\)"
    for drop_changed in (False, True):
        with pytest.raises(PipelineChangedError, match=said):
            run_local(built(counted_apart), EARLY, space, drop_changed=drop_changed)
    for name in ("apart/total", "apart/seen"):
        space.delete(name)
    run_local(built(counted_apart), EARLY, space)
    assert (space.get_dictionary("apart/seen"), space.get_value("apart/total").value) == (counts, sum(counts.values()))


class Begun(Passing):
    """Makes a key-value table, a tensor and what a clock tells when it is opened."""

    def open(self, space: ObjectSpace, name: str) -> None:
        self._total = space.get_or_create_value(name, time.time())
        if f"{name}/tensor" not in space:
            space.create_tensor(f"{name}/tensor", (3,), "int64")
        manager = KeyValueTableManager(SpacePart(space, f"{name}/"))
        manager.create_scope("s")
        manager.create_key_value_table("s", "t", KeyValueTableConfiguration(1))

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        self._total.value += 1
        return [chunk]


def begun(pipeline: Pipeline) -> None:
    flights(pipeline).through(Begun, "begun").materialize("delays")


def test_what_an_operator_of_a_user_makes_when_it_is_opened_is_no_state_of_batches() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    LocalRun(built(begun), space)
    space.checkpoint()
    space = PersistedObjectSpace(space.store)
    run_local(built(begun), EARLY, space)
    space.delete("$position")
    with pytest.raises(PipelineChangedError, match=r"rows in 'delays/table' and objects .*'begun', .* no value"):
        run_local(built(begun), EARLY, space)


def test_runs_that_were_only_opened_and_first_batches_that_fail_leave_what_is_taken_up_again() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    first, second = LocalRun(built(begun), space), LocalRun(built(begun), space)
    with pytest.raises(RowError):
        first.step({"flights": [("no flight",)]})
    second.step(EARLY[0])
    first.step(EARLY[1])
    assert (first.position, second.rows("delays")) == (2, first.rows("delays"))


def test_what_was_laid_down_for_an_operator_before_its_first_batch_is_its_own() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    SpacePart(space, "apart/").create_value("total", 100)
    run_local(built(counted_apart), EARLY, space)
    assert space.get_value("apart/total").value == 100 + sum(space.get_dictionary("apart/seen").values())


def test_an_operator_of_which_a_table_is_gone_is_refused_until_it_is_forgotten() -> None:
    store = CheckpointStore(":memory:")
    run_local(built(counted), BATCHES[:2], store)
    lost = "flights.HashAgg/HashAggState"
    ids = {name: object_id for object_id, name, _, _ in store.reader().index()}
    store.database.conn.execute("DELETE FROM state_metadata WHERE object = ?", (ids[lost],))
    store.reopen()
    assert len(store.repair(salvage=True).objects_lost) == 1
    space = PersistedObjectSpace(store)
    with pytest.raises(
        PipelineChangedError, match=rf"^'flights.HashAgg' .* its '{lost}' is gone: .* forget it with del"
    ):
        run_local(built(counted), BATCHES, space)
    for table in [name for name in tables(space) if name.startswith("flights.HashAgg/")]:
        drop_table(space, table)
    del space.get_dictionary("$operators")["flights.HashAgg"]
    assert run_local(built(counted), BATCHES, space).rows("delays") == [("B6", 1, 40), ("UA", 2, 5)]


def test_operators_whose_tables_were_deleted_since_nothing_listed_them_are_refused() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    run_local(built(counted), BATCHES[:2], space)
    for name in ["$tables", *tables(space)]:
        space.delete(name)
    space.checkpoint()
    with pytest.raises(PipelineChangedError, match=r"^'flights.HashAgg' .* is gone: .* forget it with del"):
        run_local(built(counted), BATCHES, space)
    space.delete("$operators")
    assert run_local(built(counted), BATCHES, space).rows("delays") == [("B6", 1, 40), ("UA", 2, 5)]


@pytest.mark.parametrize("lost", [["$tables"], ["$tables", "$operators", "$position"]])
def test_a_run_says_what_to_do_where_nothing_lists_the_tables(lost: list[str]) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    run_local(built(counted), BATCHES[:2], space)
    for name in lost:
        space.delete(name)
    space.checkpoint()
    with pytest.raises(ObjectSpaceError, match=r"nothing tells .* space\.rollback\(epoch=.* space\.delete\("):
        run_local(built(counted), BATCHES, space)
    for name in [name for name in space if "/" in name]:
        space.delete(name)
    if "$operators" in space:
        space.delete("$operators")
    assert run_local(built(counted), BATCHES, space).rows("delays") == [("B6", 1, 40), ("UA", 2, 5)]


def test_a_space_that_was_saved_before_the_first_batch_takes_it() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    LocalRun(built(counted), space)
    space.checkpoint()
    space.delete("$operators")
    space.checkpoint()
    assert run_local(built(counted), BATCHES, space).rows("delays") == [("B6", 1, 40), ("UA", 2, 5)]
