"""Spark Connect: what works there, and a clear error for what does not."""

from __future__ import annotations

import os
from typing import NoReturn

from pyspark.sql import is_remote

from checkpoint.chain import Chain, Location
from objectspace.errors import ObjectSpaceError

_CLASSIC = (
    "expected one of a classic session, because a pipeline works in the process that drives the micro-batches: make it"
    " with SparkSession.builder.master(...); spark.read.format('objectspace') works through Spark Connect as well"
)


def require_classic(rows: object, place: str) -> None:
    """Refuse the rows of a Spark Connect session, before anything is started.

    There Spark runs the function of each micro-batch in a process of the server, where the pipeline of this process and
    the id of the query are out of reach. Reading a space works in both.

    Args:
        rows: a DataFrame, streaming or not.
        place: what got it, for the error.

    Raises:
        ObjectSpaceError: it belongs to Spark Connect.
    """
    if type(rows).__module__.startswith("pyspark.sql.connect"):
        raise ObjectSpaceError(f"{place} got a DataFrame of a Spark Connect session: {_CLASSIC}")


def require_classic_session(location: Location) -> None:
    """Refuse to found a space in a process of Spark Connect, before anything is written; an existing one is read.

    Args:
        location: where the space lies.

    Raises:
        ObjectSpaceError: the process has sessions of Spark Connect, and there is no space yet.
    """
    if is_remote() and not Chain.is_at(location):
        raise ObjectSpaceError(
            f"Pipeline at {location.url}: this process has a Spark Connect session, whose rows no pipeline takes:"
            f" {_CLASSIC}"
        )


def in_session_folder() -> bool:
    """Return whether the working folder of this process is one that Spark made for a session, and removes with it.

    Spark gives such a folder to the workers of every session of Spark Connect.
    """
    return os.environ.get("SPARK_JOB_ARTIFACT_UUID", "default") != "default"


class PipelineElsewhere:
    """What a pipeline is in other processes: a stand-in of which nothing works.

    Functions that see a stream, and so its pipeline, go to executors with the schema and without the driver's side.

    Raises:
        ObjectSpaceError: something of the pipeline is asked for.

    >>> PipelineElsewhere().rows
    Traceback (most recent call last):
    objectspace.errors.ObjectSpaceError: Pipeline.rows was asked for in a process that does not drive the ...
    """

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ObjectSpaceError(
            f"Pipeline.{name} was asked for in a process that does not drive the micro-batches, where there is no"
            f" pipeline: it works in the process that made it, with rows of a session there: {_CLASSIC}"
        )
