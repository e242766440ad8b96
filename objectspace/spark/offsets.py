"""Which rows a micro-batch has: where it begins and ends in its sources, as Spark notes it before the micro-batch runs.

A number alone does not tell: where an older copy of Spark's checkpoint is put back, or its last files are lost with the
power, a number comes again with other rows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

_HEAD_LINES = 2
"""The version of the log, and what Spark notes of the micro-batch besides: when it was planned, and its settings."""

_LOG_OFFSET = re.compile(r'"logOffset":(\d+)')
"""A source of files counts the entries of a log of its own, which says what files these are."""


def offsets_of(spark: SparkSession, checkpoint: str, batch: int) -> str:
    """Return what tells the rows of a micro-batch from those of any other; nothing where Spark has noted nothing.

    Args:
        spark: the session.
        checkpoint: the folder where Spark keeps how far a query has read.
        batch: the number of the micro-batch.
    """
    noted = _read(spark, checkpoint, f"offsets/{batch}")
    if noted is None:
        return ""
    sources = noted.splitlines()[_HEAD_LINES:]
    digest = hashlib.blake2b("\n".join(sources).encode(), digest_size=16)
    for text in _file_logs(spark, checkpoint, sources):
        digest.update(text.encode())
    return digest.hexdigest()


def _file_logs(spark: SparkSession, checkpoint: str, sources: list[str]) -> Iterator[str]:
    for number, offset in enumerate(sources):
        found = _LOG_OFFSET.search(offset)
        if found is not None:
            entry = f"sources/{number}/{found[1]}"
            yield _read(spark, checkpoint, entry) or _read(spark, checkpoint, f"{entry}.compact") or ""


def _read(spark: SparkSession, checkpoint: str, name: str) -> str | None:
    """Return the text of a file of Spark's, ``None`` where there is none."""
    # Spark decides where a name leads: to its default file system, from its own working folder, and as it is spelt.
    jvm: Any = spark.sparkContext._jvm
    place = jvm.org.apache.hadoop.fs.Path(checkpoint, name)
    system = place.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    found = system.makeQualified(place).toUri()
    if found.getScheme() == "file":
        path = Path(found.getPath())
        return path.read_text() if path.is_file() else None
    if not system.exists(place):
        return None
    stream = system.open(place)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
