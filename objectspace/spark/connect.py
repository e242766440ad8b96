"""Spark Connect: what works there, and a clear word where it does not."""

from __future__ import annotations

from objectspace.errors import ObjectSpaceError


def require_classic(stream: object) -> None:
    """Refuse a stream of a Spark Connect session, before anything is started.

    There Spark runs the function of each micro-batch in a process of the server, where the pipeline of this process and
    the id of the query are out of reach. Reading a space works in both.

    Raises:
        ObjectSpaceError: the stream belongs to Spark Connect.
    """
    if type(stream).__module__.startswith("pyspark.sql.connect"):
        raise ObjectSpaceError(
            "Pipeline.start got a stream of a Spark Connect session: expected one of a classic session, because a"
            " pipeline works in the process that drives the micro-batches: make the session with"
            " SparkSession.builder.master(...); spark.read.format('objectspace') works through Spark Connect as well"
        )
