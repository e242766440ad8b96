"""The readers of a change feed as Spark makes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.types import StructType

from objectspace.spark.source import ObjectSpaceSource


class FeedReaders:
    """The readers of a change feed: one of the driver, with which it starts, and one of the tasks, made later.

    Args:
        source: what is read.
        schema: the schema of the read, that of ``load()`` by default.
    """

    def __init__(self, source: ObjectSpaceSource, schema: StructType | None = None) -> None:
        self._source, self._schema = source, source.schema() if schema is None else schema
        self._driver: Any = source.streamReader(self._schema)
        self._driver.initialOffset()
        self._tasks: Any = None

    def prepareForTriggerAvailableNow(self) -> None:
        """End with what is there now."""
        self._driver.prepareForTriggerAvailableNow()

    def initialOffset(self) -> dict[str, Any]:
        """Return the position before the first epoch."""
        found: dict[str, Any] = self._driver.initialOffset()
        return found

    def latestOffset(self, start: dict[str, Any], limit: Any = None) -> dict[str, Any]:
        """Return the end of the next trigger."""
        found: dict[str, Any] = self._driver.latestOffset(start, limit)
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        """Return what the tasks of a trigger are given."""
        found: list[Any] = self._driver.partitions(start, end)
        return found

    def read(self, partition: Any) -> Iterator[Any]:
        """Return what the task of a partition gives."""
        self._tasks = self._tasks or self._source.streamReader(self._schema)
        found: Iterator[Any] = self._tasks.read(partition)
        return found
