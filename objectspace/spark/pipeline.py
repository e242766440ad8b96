"""Pipelines: stateful operators over the micro-batches of a stream, one published epoch for each."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from checkpoint.chain import Chain, Location, Manifest, OperatorPlan, ShardSaved, SourcePosition, location_at
from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.spark.connect import require_classic
from objectspace.spark.executor import MESSAGE_SCHEMA, Process, open_shard, shard_task
from objectspace.spark.shards import shard_expression
from objectspace.spark.stateful import Stateful, WholeEpoch
from objectspace.spark.upkeep import Retention, Upkeep


@dataclass(frozen=True)
class Operator:
    """One stateful operator of a pipeline.

    Args:
        name: its name, which its state is kept under.
        key: the columns by whose value rows come together in a shard: text, binary or whole numbers.
        process: what it does with the rows of a shard in one epoch: a function, or an object with a method ``process``.
        columns: the columns of the input that it needs, or None for all.

    Raises:
        ObjectSpaceError: the process is a class, or neither a function nor such an object.
    """

    name: str
    key: tuple[str, ...]
    process: Process | Stateful
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.process, type) or not (isinstance(self.process, Stateful) or callable(self.process)):
            raise ObjectSpaceError(
                f"operator {self.name}: expected a function of (batches, space) or an object with process(batch, space)"
                f", found {self.process!r}: pass an object, not its class"
            )

    def task(self, plan: OperatorPlan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """Return the function that runs on the executors, once for each shard."""
        return shard_task(plan, WholeEpoch(self.process) if isinstance(self.process, Stateful) else self.process)

    def run(self, plan: OperatorPlan, rows: DataFrame) -> list[ShardSaved]:
        """Run the operator over a micro-batch as one Spark action, and return what its shards have saved.

        Args:
            plan: the plan of the operator.
            rows: the micro-batch.

        Raises:
            ObjectSpaceError: a key column is missing or of a type that cannot be hashed.
        Dirties: new private run files; nothing shared changes.
        """
        used = rows.select(*self.columns) if self.columns else rows
        shard = shard_expression(used.schema, self.key, plan.shards)
        # The explicit number of partitions keeps adaptive execution from joining small ones into one task.
        tasks = used.repartitionById(plan.shards, shard).mapInArrow(self.task(plan), MESSAGE_SCHEMA)
        messages = [ShardSaved.from_json(row.message) for row in tasks.collect()]
        # Where Spark knows beforehand that there are no rows it runs no task at all.
        return messages or [ShardSaved(self.name, number, None) for number in range(plan.shards)]


class Pipeline:
    """Stateful operators whose state lies at a location, fed by the micro-batches of one streaming query.

    Args:
        location: where the space lies: a folder or an fsspec URL that the driver and all executors reach.
        shards: the number of shards, 1 to 256; ``rescale`` changes it for a space that exists.
        options: what fsspec passes to the file system of a URL.
        full_after: how many differential runs may follow a full one before the next full one is considered.
        cache: the folder of the local caches, or None for the default of each machine.
        retention: which epochs are kept; the rest is removed in the background while a stream runs.

    Raises:
        CheckpointError: the location cannot be used, or holds a space with another number of shards.
        CorruptStoreError: a file of the space is damaged.
    """

    def __init__(
        self,
        location: str | os.PathLike[str] | Location,
        shards: int,
        *,
        options: Mapping[str, Any] | None = None,
        full_after: int = 64,
        cache: str | os.PathLike[str] | None = None,
        retention: Retention | None = None,
    ) -> None:
        self.chain = Chain.open_or_create(location_at(location, options), shards)
        self.operators: dict[str, Operator] = {}
        self._full_after = full_after
        self._cache = None if cache is None else os.path.abspath(cache)
        self.upkeep = Upkeep(self.chain.location, retention or Retention())

    def add(self, operator: Operator) -> Operator:
        """Add an operator, and return it.

        Raises:
            ObjectSpaceError: the name is taken.
        """
        if operator.name in self.operators:
            raise ObjectSpaceError(f"operator {operator.name}: the pipeline has one of this name: choose another name")
        self.operators[operator.name] = operator
        return operator

    def run_epoch(self, rows: DataFrame, batch: int) -> Manifest | None:
        """Process one micro-batch and publish its epoch; the function for ``foreachBatch``.

        Args:
            rows: the micro-batch.
            batch: its number.

        Returns:
            The manifest of the new epoch, or None where the micro-batch had been committed before.

        Raises:
            FencedError: another driver has published this epoch; this one must stop.
            CheckpointError: micro-batches are missing, or a shard gave no message or several.
        Dirties: the location: a run file for each shard that changed, and one manifest.
        """
        started = time.perf_counter()
        plan = self.chain.begin(
            SourcePosition(_query_id(rows), batch), list(self.operators), self._full_after, self._cache
        )
        if plan is None:
            return None
        # One action for each operator: two in one job could see outputs of different attempts when an executor dies.
        saved = {name: operator.run(plan.operators[name], rows) for name, operator in self.operators.items()}
        return self.chain.publish(plan, saved, {"seconds": time.perf_counter() - started})

    def start(
        self,
        stream: DataFrame,
        checkpoint_location: str | os.PathLike[str],
        trigger: Mapping[str, Any] | None = None,
        on_epoch: Callable[[int, Manifest | None], None] | None = None,
    ) -> StreamingQuery:
        """Start feeding a stream through the pipeline.

        Args:
            stream: the streaming rows.
            checkpoint_location: the folder where Spark keeps how far it has read.
            trigger: the trigger of the query, such as ``{"availableNow": True}``.
            on_epoch: called after each micro-batch with its number and what ``run_epoch`` returned.

        Raises:
            CheckpointError: the location cannot be read.
            ObjectSpaceError: the stream belongs to a Spark Connect session.
        """
        require_classic(stream)
        self.chain.refresh()

        def _each(rows: DataFrame, batch: int) -> None:
            manifest = self.run_epoch(rows, batch)
            if manifest is not None:
                self.upkeep.published(manifest.epoch)
            if on_epoch:
                on_epoch(batch, manifest)

        writer = stream.writeStream.foreachBatch(_each).option("checkpointLocation", os.fspath(checkpoint_location))
        return (writer.trigger(**trigger) if trigger else writer).start()

    @contextmanager
    def read(self, operator: str, shard: int, epoch: int | None = None) -> Iterator[PersistedObjectSpace]:
        """Open the space of one shard in this process, as of a published epoch; nothing that is edited is kept.

        Args:
            operator: the name of the operator.
            shard: the number of the shard.
            epoch: the epoch, the newest by default.

        Raises:
            UnknownCheckpointError: the epoch has not been published.
            CorruptStoreError: a file of the space is damaged.
        """
        with open_shard(self.chain.operator_plan(operator, epoch, cache=self._cache), shard) as space:
            yield space


def _query_id(rows: DataFrame) -> str:
    query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not query:
        raise ObjectSpaceError(
            "run_epoch was called outside a streaming query: expected to be called by foreachBatch: use Pipeline.start"
        )
    return query
