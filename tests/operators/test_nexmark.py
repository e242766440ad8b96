"""The queries of Nexmark, at small size, beside DuckDB."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from benchmarks.nexmark import as_batches, pipeline_of
from benchmarks.nexmark_events import SCHEMAS, SIDE, SIDE_ROWS, Batch, Nexmark
from benchmarks.nexmark_queries import QUERIES
from checkpoint import CheckpointStore
from objectspace.operators import run_local
from objectspace.relational import Chunk

EVENTS, SIZE = 3000, 700


@pytest.fixture(scope="module")
def batches() -> list[Batch]:
    return list(as_batches(Nexmark(seed=3), EVENTS, SIZE))


@pytest.fixture(scope="module")
def oracle(batches: list[Batch]) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        for name, schema in {**SCHEMAS, "side": SIDE}.items():
            rows = [row for batch in batches for row in batch.get(name, [])]
            data = Chunk(schema, ["+"] * len(rows), rows).to_arrow(op_column="$op")
            connection.register(name, pa.Table.from_batches([data]))
        yield connection


def bag(rows: list[Any]) -> Counter[Any]:
    """Return rows whatever their order; means are rounded where two computations may differ."""
    return Counter(tuple(round(cell, 6) if isinstance(cell, float) else cell for cell in row) for row in rows)


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_what_duckdb_gives(name: str, batches: list[Batch], oracle: duckdb.DuckDBPyConnection) -> None:
    store = CheckpointStore(":memory:")
    run_local(pipeline_of(QUERIES[name]), batches[:2], store).space.close()
    run = run_local(pipeline_of(QUERIES[name]), batches, store)
    found = bag(run.rows("answer"))
    assert len(found) > 0
    assert found == bag(oracle.execute(QUERIES[name].sql).fetchall())
    store.close()


def test_the_page_has_every_query_and_says_which_are_left_out() -> None:
    page = (Path(__file__).parents[2] / "docs" / "nexmark.md").read_text()
    rows = re.findall(r"^\| (q\d+) \| (.*)$", page, re.MULTILINE)
    assert [name for name, _ in rows] == [f"q{number}" for number in range(23)]
    assert {name for name, row in rows if "left out" not in row} == set(QUERIES)


def test_the_generator_is_seeded_and_keeps_its_proportions(batches: list[Batch]) -> None:
    again = list(as_batches(Nexmark(seed=3), EVENTS, SIZE))
    other = list(as_batches(Nexmark(seed=4), EVENTS, SIZE))
    assert again == batches != other
    counts = [sum(len(batch[kind]) for batch in batches) for kind in SCHEMAS]
    assert counts == [EVENTS // 50, EVENTS * 3 // 50, EVENTS * 46 // 50]
    assert batches[0]["side"] == SIDE_ROWS
