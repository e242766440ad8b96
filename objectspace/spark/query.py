"""The streaming query of a pipeline: Spark's own, with the library's errors where it knows what happened."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from checkpoint import CheckpointError
from objectspace.errors import ObjectSpaceError
from objectspace.spark.progress import EpochProgress


class Watch:
    """What is known of the query of a pipeline: how its last epochs went, and what ended it."""

    def __init__(self) -> None:
        self.progress: deque[EpochProgress] = deque(maxlen=100)
        self.error: BaseException | None = None

    def ours(self) -> BaseException | None:
        """Return the error that ended the query, if it is the library's."""
        return self.error if isinstance(self.error, CheckpointError | ObjectSpaceError) else None


class PipelineQuery(StreamingQuery):
    """A query of Spark; waiting for it raises the library's own error if there is one.

    Args:
        query: Spark's query.
        watch: what is known of it.
        release: releases what the driver holds for it, once it has ended.
    """

    def __init__(self, query: StreamingQuery, watch: Watch, release: Callable[[], None] = lambda: None) -> None:
        super().__init__(query._jsq)
        self._watch, self._release = watch, release

    def stop(self) -> None:
        """Stop the query; see Spark's own."""
        try:
            super().stop()
        finally:
            self._release()

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait until the query ends; see Spark's own.

        Raises:
            ObjectSpaceError, CheckpointError: what ended it, if the library knows.
            StreamingQueryException: something else ended it.
        """
        return self._called("awaitTermination", *(() if timeout is None else (timeout,)))  # type: ignore[no-any-return]

    def processAllAvailable(self) -> None:
        """Wait until all input is processed; see Spark's own.

        Raises: as ``awaitTermination``.
        """
        self._called("processAllAvailable")

    def exception(self) -> BaseException | None:  # type: ignore[override]
        """Return what ended the query, as the library's own error if known; None while it runs or if it ended well."""
        found = super().exception()
        return found if found is None else self._watch.ours() or found

    def _called(self, name: str, *given: Any) -> Any:
        try:
            return getattr(super(), name)(*given)
        except StreamingQueryException:
            known = self._watch.ours()
            if known is None:
                raise
            raise known from None
        finally:
            self._release_if_ended()

    def _release_if_ended(self) -> None:
        if not self.isActive:
            self._release()


@dataclass(frozen=True)
class Status:
    """How a pipeline stands.

    Args:
        location: where its space lies.
        shards: the number of shards.
        epoch: the newest published epoch, 0 before the first.
        is_active: whether its query runs in this process.
        last: what the newest epoch did; None before the first.
        error: what ended the query, in words, or None.
    """

    location: str
    shards: int
    epoch: int
    is_active: bool
    last: EpochProgress | None
    error: str | None
