"""Random plans on the driver's real code, with tasks in this process: retried, with new drivers and other shards."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint.chain import SourcePosition
from objectspace.relational import Chunk
from objectspace.spark import rescale
from tests.operators.pipeline_trees import EDITS, Tree, World, trees
from tests.operators.test_pipeline_oracle import Oracle
from tests.spark.drivers import driver_of, micro_batch
from tests.spark.frames import Frames


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle()


def applied(log: Counter[Any], chunk: Chunk, columns: tuple[str, ...]) -> None:
    for op, row in chunk.rows():
        cells = tuple(row[chunk.schema.place_of(column)] for column in columns)
        log[cells] += 1 if op in ("+", "U+") else -1
    assert all(number >= 0 for number in log.values())


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(1, 4), trees(3), st.lists(EDITS, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_a_random_plan_equals_the_batch_query(
    oracle: Oracle, shards: int, tree: Tree, epochs: list[Any], random: Random
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        frames, world = Frames(random).installed(patch), World()
        log: Counter[Any] = Counter()
        made = None
        for number, edits in enumerate(epochs):
            if number and random.random() < 0.5:
                shards, made = random.randint(1, 4), None
                rescale(Path(folder) / "space", shards)
            driver, streams = driver_of(Path(folder), shards)
            result = tree.build(streams).materialize("result")
            result.sink("log", lambda _, chunk, columns=result.columns: applied(log, chunk, columns))
            made = driver.epochs() if made is None or random.random() < 0.5 else made
            batch = micro_batch(frames, world.change(edits))
            assert made.run(batch, SourcePosition("q", number)) is not None  # type: ignore[arg-type]
            assert Counter(driver.rows("result")) == oracle.answer(tree.sql, world)
        assert +log == Counter(driver.rows("result"))
