"""Instants are the same in any time zone of a session, also in the hour that its clocks show twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from objectspace import PersistedObjectSpace
from objectspace.operators import col, count, max_
from objectspace.spark import Measure, Operator, Pipeline, RunningAggregate
from objectspace.spark.instants import in_utc
from objectspace.spark.placement import Placement

FIRST = datetime(2024, 10, 27, 0, 30, tzinfo=UTC)
SECOND = FIRST + timedelta(hours=1)
"""Two instants at which the clocks of Berlin show the same."""

ROWS = "id long, k string, at timestamp"

LATEST = RunningAggregate("latest", ("at",), (Measure("rows", "rows"), Measure("last", "max", "at")))


@pytest.fixture(
    params=["Europe/Berlin", *(pytest.param(zone, marks=pytest.mark.slow) for zone in ("UTC", "America/New_York"))]
)
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


class Seen:
    """How often each instant came, by a user."""

    def process(self, batch: pa.RecordBatch, space: PersistedObjectSpace) -> None:
        seen = space.get_or_create_dictionary("seen")
        for row in batch.to_pylist():
            seen[row["at"]] = seen.get(row["at"], 0) + 1


def seen_in_batches(batches: Iterator[pa.RecordBatch], space: PersistedObjectSpace) -> None:
    for batch in batches:
        Seen().process(batch, space)


def frame(spark: SparkSession, first_id: int) -> DataFrame:
    # The session shows what it is given without a zone, so these are seconds.
    rows = [(first_id + place, "a", at.timestamp()) for place, at in enumerate((FIRST, SECOND))]
    return spark.createDataFrame(rows, "id long, k string, s double").selectExpr("id", "k", "timestamp_seconds(s) at")


@pytest.mark.parametrize("process", [Seen(), seen_in_batches], ids=["object", "function"])
@pytest.mark.usefixtures("zone")
def test_code_of_users_gets_instants_in_utc(
    spark: SparkSession, tmp_path: Path, query: Callable[[str], None], process: Any
) -> None:
    pipeline = Pipeline(tmp_path / "space", 1, cache=tmp_path / "cache")
    pipeline.add(Operator("own", ("k",), process))
    pipeline.run_epoch(frame(spark, 0), 0)
    with pipeline.read("own", 0) as space:
        found = space.get_dictionary("seen").copy()
    assert found == {FIRST: 1, SECOND: 1}
    assert {at.utcoffset() for at in found} == {timedelta(0)}


@pytest.mark.usefixtures("zone")
def test_the_driver_and_tasks_take_turns_at_an_aggregate_of_instants(
    spark: SparkSession, tmp_path: Path, query: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = cycle([False, True])
    monkeypatch.setattr(Placement, "is_in_driver", lambda self, plan, **_: next(turns))
    pipeline = Pipeline(tmp_path / "space", 1, cache=tmp_path / "cache")
    pipeline.add(Operator("latest", ("k",), LATEST))
    for number in range(4):
        pipeline.run_epoch(frame(spark, 2 * number), number)
    assert [one.in_driver for one in pipeline.progress()] == [False, True, False, True]
    with pipeline.read("latest", 0) as space:
        found = space.get_dictionary("latest").copy()
    assert found == {at: {"rows": 4, "last": at} for at in (FIRST, SECOND)}


@pytest.mark.usefixtures("zone")
def test_the_driver_works_a_pipeline_over_instants_as_tasks_do(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = cycle([False, True])
    monkeypatch.setattr(Placement, "is_in_driver", lambda self, plan, **_: next(turns))
    for number in range(4):
        frame(spark, 2 * number).coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(ROWS).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    pipeline = Pipeline(tmp_path / "space", 1, cache=tmp_path / "cache")
    rows = pipeline.source("rows", stream, key=["id"])
    rows.select("id", "at", hour=col("at").hour()).group_by("at", "hour").agg(
        rows=count(), last=max_("at")
    ).materialize("hours")
    pipeline.start(checkpoint_location=tmp_path / "query", trigger={"availableNow": True}).awaitTermination()
    assert [one.in_driver for one in pipeline.progress()] == [False, True, False, True]
    assert sorted(pipeline.rows("hours")) == [(FIRST, 0, 4, FIRST), (SECOND, 1, 4, SECOND)]


def test_instants_inside_of_other_values_are_put_in_utc_too() -> None:
    at = pa.timestamp("us", "Europe/Berlin")
    kinds = {"list": pa.list_(at), "struct": pa.struct({"at": at, "n": pa.int64()}), "map": pa.map_(at, pa.list_(at))}
    row = {"list": [FIRST, None, SECOND], "struct": {"at": SECOND, "n": 1}, "map": [(FIRST, [SECOND])]}
    given = pa.RecordBatch.from_pylist([row, dict.fromkeys(kinds)], schema=pa.schema(kinds))
    found = in_utc(given)
    assert "Berlin" not in str(found.schema)
    assert found.to_pylist() == [row, dict.fromkeys(kinds)]
    assert in_utc(found) is found
