"""Whatever comes, and whenever the run is interrupted: a pipeline holds what the same query gives over what is left."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.operators import LocalRun, Pipeline
from objectspace.relational import Chunk
from tests.operators.pipeline_trees import BINARY, EDITS, LEAVES, SCHEMA, UNARY, Tree, World, on, over, trees


def pipeline_of(tree: Tree, append_only: bool = False) -> Pipeline:
    pipeline = Pipeline()
    streams = {name: pipeline.source(name, SCHEMA, key=["id"], append_only=append_only) for name in ("a", "b")}
    tree.build(streams).materialize("result")
    return pipeline


class Oracle:
    """DuckDB over what the sources hold."""

    def __init__(self) -> None:
        self.connection = duckdb.connect()

    def answer(self, sql: str, world: World) -> Counter[Any]:
        tables = [f"{name}(id, k, v, w) AS ({values(list(rows.values()))})" for name, rows in world.rows.items()]
        return Counter(self.connection.execute(f"WITH {', '.join(tables)} SELECT k, v, w FROM ({sql})").fetchall())


def values(rows: list[tuple[Any, ...]]) -> str:
    """Return rows as SQL, with their types also where there are none."""
    typed = "SELECT NULL::BIGINT, NULL::VARCHAR, NULL::BIGINT, NULL::BIGINT WHERE false"
    cells = ["(" + ", ".join("NULL" if cell is None else repr(cell) for cell in row) + ")" for row in rows]
    return f"{typed} UNION ALL VALUES {', '.join(cells)}" if rows else typed


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle()


def check(oracle: Oracle, tree: Tree, epochs: list[Any], recoveries: list[bool], *, append_only: bool = False) -> None:
    """Run a history epoch by epoch, recovering before some, and ask after each."""
    store, world = CheckpointStore(":memory:"), World()
    run = LocalRun(pipeline_of(tree, append_only), PersistedObjectSpace(store))
    log: Counter[Any] = Counter()
    for number, (edits, recovers) in enumerate(zip(epochs, recoveries, strict=True), 1):
        if recovers:
            run.space.close()
            run = LocalRun(pipeline_of(tree, append_only), PersistedObjectSpace(store))
        run.step(world.add(edits) if append_only else world.change(edits))
        assert Counter(run.rows("result")) == oracle.answer(tree.sql, world), tree.sql
        apply(log, [chunk for epoch, chunk in run.changes("result") if epoch == number])
        assert log == Counter(run.rows("result", hidden=True)), "the changes do not add up to the rows"
    store.close()


def apply(log: Counter[Any], chunks: list[Chunk]) -> None:
    """Apply changes to a bag of rows, each of which must be there before it goes."""
    for chunk in chunks:
        for op, row in chunk.rows():
            log[row] += 1 if op in ("+", "U+") else -1
            assert log[row] in (0, 1)
            if not log[row]:
                del log[row]


HISTORY = st.integers(1, 4).flatmap(
    lambda n: st.tuples(st.lists(EDITS, min_size=n, max_size=n), st.lists(st.booleans(), min_size=n, max_size=n))
)

SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("step", UNARY, ids=lambda step: step[1][:60])
@settings(SETTINGS, max_examples=4)
@given(history=HISTORY, leaf=st.sampled_from(LEAVES))
def test_each_operator_gives_what_its_query_gives(oracle: Oracle, step: Any, history: Any, leaf: Tree) -> None:
    check(oracle, on(step, leaf), *history)


@pytest.mark.parametrize("pair", BINARY, ids=lambda pair: pair[1][:60])
@settings(SETTINGS, max_examples=4)
@given(history=HISTORY, left=st.sampled_from(LEAVES), right=st.sampled_from(LEAVES))
def test_each_join_and_union_gives_what_its_query_gives(
    oracle: Oracle, pair: Any, history: Any, left: Tree, right: Tree
) -> None:
    check(oracle, over(pair, left, right), *history)


@settings(SETTINGS, max_examples=8)
@given(tree=trees(3), history=HISTORY)
def test_random_trees_three_deep_give_what_their_query_gives(oracle: Oracle, tree: Tree, history: Any) -> None:
    check(oracle, tree, *history)


@settings(SETTINGS, max_examples=8)
@given(tree=trees(2), history=HISTORY)
def test_random_trees_over_sources_that_only_grow(oracle: Oracle, tree: Tree, history: Any) -> None:
    check(oracle, tree, *history, append_only=True)


@settings(SETTINGS, max_examples=8)
@given(tree=trees(2), history=HISTORY, chance=st.randoms(use_true_random=False))
def test_the_order_of_the_rows_of_an_epoch_does_not_matter(tree: Tree, history: Any, chance: Random) -> None:
    world = World()
    batches = [world.add(edits) for edits in history[0]]
    mixed = [{name: chance.sample(rows, len(rows)) for name, rows in batch.items()} for batch in batches]
    outcomes = []
    for given_batches in (batches, mixed):
        store = CheckpointStore(":memory:")
        run = pipeline_of(tree).run_local(given_batches, store)
        items = store.database.execute("SELECT name, slot, value FROM current_item").fetchall()
        outcomes.append((items, [(epoch, chunk.rows()) for epoch, chunk in run.changes("result")]))
        store.close()
    assert outcomes[0] == outcomes[1]
