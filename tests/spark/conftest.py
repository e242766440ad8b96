"""One Spark session for all tests of this folder, and small pipelines over it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession

from objectspace.spark import Operator, Pipeline, quiet_session

from .spark_helpers import QUERY_ID, SHARDS, totals_operator

SLOW = ("test_spark_connect.py", "test_spark_failures_cluster.py")

BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""How Java runs plans that are used once: to optimise their code takes longer than to run it."""

WARM = f"""\
#!/bin/sh
if [ "$1 $2" = "-m pyspark.daemon" ]; then shift 2; set -- -m tests.spark.warm_daemon "$@"; fi
exec '{sys.executable}' "$@"
"""
"""What Spark runs as Python: a task, or a plan of a read, waits for no imports."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two threads, in which a failed task is tried again; what runs Python has its imports at once."""
    folder = tmp_path_factory.mktemp("spark")
    config = {"spark.sql.shuffle.partitions": "2", "spark.driver.extraJavaOptions": BRIEF}
    with pytest.MonkeyPatch.context() as patch:
        # Spark reads it when the session starts; the drivers of other processes have what they would have.
        patch.setenv("PYSPARK_PYTHON", str(executable(folder / "python", WARM)))
        session = quiet_session("tests", "local[2,4]", folder / "spark.log", config)
    yield session
    session.stop()


def executable(path: Path, script: str) -> Path:
    """Return a script as a file that can be run."""
    path.write_text(script)
    path.chmod(0o755)
    return path


@pytest.fixture
def query(spark: SparkSession) -> Iterator[Callable[[str], None]]:
    """A function that makes the driver look as inside ``foreachBatch`` of a query of this name."""
    context = spark.sparkContext

    def pretend(name: str) -> None:
        context.setLocalProperty(QUERY_ID, name)

    pretend(uuid4().hex)
    yield pretend
    context.setLocalProperty(QUERY_ID, None)  # type: ignore[arg-type]


@pytest.fixture
def make_pipeline(tmp_path: Path) -> Callable[..., Pipeline]:
    """A function that returns a new pipeline, as another driver would have it, over the space of the test."""

    def make(operator: Operator | None = None, shards: int = SHARDS) -> Pipeline:
        pipeline = Pipeline(tmp_path / "space", shards, cache=tmp_path / "cache")
        pipeline.add(operator or totals_operator())
        return pipeline

    return make


@pytest.fixture(scope="session")
def batches(spark: SparkSession) -> list[DataFrame]:
    """Three micro-batches of (key, value)."""
    return [
        spark.createDataFrame([(f"k{n % 11}", (n * 7 + batch) % 23) for n in range(60)], "key string, value long")
        for batch in range(3)
    ]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the clusters and the server of Spark Connect to ``--crash``: they take minutes."""
    return True if collection_path.name in SLOW and not config.getoption("crash") else None
