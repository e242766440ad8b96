"""Pipelines: stateful operators over the micro-batches of a stream, one published epoch for each."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from checkpoint.chain import Chain, Location, Manifest, OperatorPlan, SourcePosition, location_at
from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.operators import Pipeline as Builder
from objectspace.operators import Stream
from objectspace.relational import SchemaError, StorageTable, tables
from objectspace.relational.schema import KeyPart
from objectspace.spark.added import AddedEpochs
from objectspace.spark.connect import PipelineElsewhere, require_classic, require_classic_session
from objectspace.spark.epochs import Epochs
from objectspace.spark.executor import open_shard
from objectspace.spark.history import History
from objectspace.spark.in_driver import Driver
from objectspace.spark.inputs import (
    Declared,
    keyed_schema,
    require_distinct,
    require_plain_name,
    require_streams,
    require_told_apart,
    wide,
)
from objectspace.spark.offsets import Files, files_of, newest_commit, offsets_before, offsets_of
from objectspace.spark.operator import Operator
from objectspace.spark.placement import DRIVER_ROWS
from objectspace.spark.printable import in_words
from objectspace.spark.progress import EpochProgress
from objectspace.spark.query import PipelineQuery, Status, Watch
from objectspace.spark.routes import PIPELINE, require_kind
from objectspace.spark.sinks import FrameFunction, no_exit, require_handed_out
from objectspace.spark.storage import require_shared
from objectspace.spark.upkeep import TASKS_WAIT, Retention, Upkeep

LOG = logging.getLogger("objectspace.spark")
"""Where the progress of every epoch is logged, at level INFO."""

_TRIGGERS = frozenset(["availableNow", "once", "processingTime"])
"""The triggers of Spark that run micro-batches."""


class Pipeline(Builder):
    """Stateful operators whose state lies at a location, fed by the micro-batches of one streaming query.

    There are two ways to say what it does. Declare sources, and build on them: grouping, joining, ranking and the rest,
    including operators of your own, are methods of the streams, as in :mod:`objectspace.operators`. Or :meth:`add`
    operators that only keep state: each of them gets the rows of the one stream that is given to ``start``.

    Args:
        location: where the space lies: a folder, or a URL of S3, GCS or Azure, that the driver and all executors can
            reach.
        shards: the number of shards, 1 to 256; ``rescale`` changes that of an existing space.
        options: what fsspec passes to the file system of a URL.
        full_after: how many differential runs of a shard may follow an image before the next one is considered; it is
            made in the background while a stream runs.
        cache: the folder of the local caches, or None for the default of each machine.
        retention: which epochs are kept; the others are removed in the background while a stream runs.
        driver_rows: how many rows an epoch may have for the driver to work it itself, if that is quicker than tasks and
            no users' code runs; 0 for never.

    Raises:
        CheckpointError: the location cannot be used, or holds a space with another number of shards.
        CorruptStoreError: a file of the space is damaged.
        ObjectSpaceError: there is no space yet, and Spark is Spark Connect.
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
        driver_rows: int = DRIVER_ROWS,
    ) -> None:
        super().__init__(location, shards)
        place = location_at(location, options, publishes=True)
        require_classic_session(place)
        self.chain = Chain.open_or_create(place, shards)
        self.operators: dict[str, Operator] = {}
        self.frame_functions: dict[str, list[FrameFunction]] = {}
        self._declared: dict[str, Declared] = {}
        self._epochs: Epochs | None = None
        self._query: StreamingQuery | None = None
        self._files: Files | None = None
        self._watch = Watch()
        self._full_after = TASKS_WAIT * full_after
        self._cache = None if cache is None else os.path.abspath(cache)
        self.driver = Driver(driver_rows)
        self.upkeep = Upkeep(self.chain.location, retention or Retention(), full_after)

    def source(
        self,
        name: str,
        schema: Any,
        key: Sequence[KeyPart] = (),
        *,
        append_only: bool | None = None,
        op_column: str | None = None,
    ) -> Stream:
        """Declare an input.

        Args:
            name: its name.
            schema: its rows: a streaming DataFrame.
            key: the columns that tell its rows apart; without a key every row counts as another one.
            append_only: whether its rows are never changed or taken back; true by default if there is no ``op_column``.
            op_column: the column that says what a row does: ``+``, ``-``, ``U-`` with the old row, ``U+`` with the new.

        Raises:
            ObjectSpaceError: the rows belong to a Spark Connect session.
            SchemaError: the name is taken, or a column is missing or of a type without a match, or rows are taken back
                and have the epoch of a change feed.
        """
        if not isinstance(schema, DataFrame):
            return super().source(name, schema, key, append_only=bool(append_only))
        require_classic(schema, "Pipeline.source")
        require_distinct(name, self._declared)
        require_plain_name(name, "source")
        try:
            found = keyed_schema(schema, op_column, key)
        except SchemaError as error:
            raise SchemaError(f"source {name!r}: {error}") from None
        if op_column is not None and not found.primary_key:
            raise SchemaError(
                f"source {name!r}: op_column={op_column!r} takes rows back, and nothing tells which: name the columns"
                " that tell its rows apart with key="
            )
        stream = super().source(name, found, append_only=op_column is None if append_only is None else append_only)
        self._declared[name] = Declared(name, schema, op_column, stream.node, not found.primary_key)
        return stream

    def for_each_epoch(self, result: str | Stream, function: FrameFunction) -> None:
        """Call a function with the changes of a result, epoch by epoch.

        It runs in the driver after the epoch is published. After a crash it may be called again, for the same epoch
        with the same changes, maybe in another order, so what it does must be idempotent, by means of the :meth:`mark`
        of the epoch. It is not called if nothing changed.

        Args:
            result: the name of what was materialised or sunk, or the stream that ``sink`` or ``materialize`` returned.
            function: takes the changes, a DataFrame with the column ``op`` before those of the result, and the epoch.
                Each key has at most one row that goes (``-`` or ``U-``) and one that comes (``+`` or ``U+``).

        Raises:
            ObjectSpaceError: the query runs already.
            SchemaError: there is no such result.
        """
        if self._query is not None and self._query.isActive:
            raise ObjectSpaceError("the query is running: call for_each_epoch before start()")
        named = [name for name, node in self.results.items() if isinstance(result, Stream) and node is result.node]
        name = result if isinstance(result, str) else (named or [""])[0]
        if name not in self.results:
            raise SchemaError(
                f"the pipeline has no result {name or result!r}: it has {', '.join(self.results) or 'none'}: end a"
                " stream with materialize(name) or sink(name) first"
            )
        self.frame_functions.setdefault(name, []).append(function)

    def add(self, operator: Operator) -> Operator:
        """Add an operator, and return it.

        Raises:
            ObjectSpaceError: the name is taken.

        Time: O(1). Dirties: nothing.
        """
        if operator.name in self.operators:
            raise ObjectSpaceError(f"operator {operator.name}: the pipeline has one of this name: choose another name")
        self.operators[operator.name] = operator
        return operator

    def run_epoch(self, rows: DataFrame, batch: int) -> Manifest | None:
        """Process one micro-batch and publish its epoch; the function for ``foreachBatch``.

        Args:
            rows: the micro-batch; for a pipeline with several sources, in the form that :meth:`micro_batch` returns.
            batch: its number.

        Returns:
            The manifest of the new epoch, or None if the micro-batch had been committed before.

        Raises:
            FencedError: another driver has published this epoch, or the space was replaced; this one must stop.
            TaskFailedError: a task failed for good; nothing was published.
            CheckpointError: micro-batches are missing or come with other rows, a shard gave no message or several, or
                the location is the memory of this process.
            ObjectSpaceError: the rows belong to a Spark Connect session, or to no streaming query.

        Time: the Spark actions of the operators, over the rows that came.
        Dirties: the location: a run file for each shard that changed, and one manifest.
        """
        require_classic(rows, "Pipeline.run_epoch")
        require_shared(self.chain.location)
        manifest = self._begun().run(rows, self._position(rows, batch))
        if manifest is not None:
            progress = EpochProgress.of(manifest)
            self._watch.progress.append(progress)
            self.driver.note(progress)
            if progress.in_driver:
                self.driver.shards.accepted(manifest)
            LOG.info("%s", progress)
            self.upkeep.published(manifest.epoch)
        return manifest

    def stream(self) -> DataFrame:
        """Return the rows of all declared sources as one stream, which is what ``start`` runs.

        Raises:
            SchemaError: no source is declared, one does not stream, or Spark takes two of its columns for one.
        """
        if not self._declared:
            raise SchemaError(
                "the pipeline has no source: declare one with source(name, df, key=), or pass start() a stream"
            )
        require_streams(list(self._declared.values()))
        # To Spark a source is its place in the query: its offsets are those of whatever stood there before.
        return self.micro_batch({name: self._declared[name].frame for name in self._built().sources})

    def micro_batch(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Return the rows of some sources as one DataFrame, in the form that ``run_epoch`` takes.

        Args:
            frames: the rows by the names of the sources; a source that brings none may be left out.

        Raises:
            ObjectSpaceError: the rows belong to a Spark Connect session.
            SchemaError: there is no such source, or Spark takes two columns of one for one column.
        """
        for name, frame in frames.items():
            if name not in self._declared:
                raise SchemaError(f"the pipeline has no source {name!r}: it has {', '.join(self._declared) or 'none'}")
            require_classic(frame, "Pipeline.micro_batch")
        require_told_apart(list(self._declared.values()))
        return wide(list(self._declared.values()), frames)

    def start(
        self,
        stream: DataFrame | None = None,
        checkpoint_location: str | os.PathLike[str] | None = None,
        trigger: Mapping[str, Any] | None = None,
        on_epoch: Callable[[int, Manifest | None], None] | None = None,
    ) -> StreamingQuery:
        """Start the streaming query.

        Args:
            stream: the rows for operators that were added; None if sources are declared.
            checkpoint_location: the folder where Spark keeps how far it has read.
            trigger: the trigger of the query: ``{"availableNow": True}``, or ``{"processingTime": "10 seconds"}``.
            on_epoch: called after each micro-batch with its number and what ``run_epoch`` returned.

        Returns:
            The query; waiting for it raises the library's own error if that is what ended it.

        Raises:
            CheckpointError: the location cannot be read, or lacks micro-batches that Spark's checkpoint has as done.
            FencedError: the space was replaced under this pipeline, which must be created again.
            ObjectSpaceError: the stream belongs to a Spark Connect session.
            PipelineChangedError: the location holds the state of another pipeline.
            SchemaError: there is nothing to run, or two things; or Spark takes two columns of a source for one, or of
                what ``for_each_epoch`` hands out.
            TypeError: the trigger is not a mapping, or none that runs micro-batches.
        """
        _require_trigger(trigger)
        if checkpoint_location is None:
            raise SchemaError("start() takes a checkpoint_location=: the folder where Spark keeps how far it has read")
        if (stream is None) == bool(self.operators) or (self.operators and self._declared):
            raise SchemaError(
                "start() takes a stream for operators that were added, and none if sources are declared; a pipeline"
                " has one or the other"
            )
        if self._query is not None and self._query.isActive:
            raise ObjectSpaceError(
                f"a query of this pipeline is running ({self._query.id}): stop it first; another pipeline needs a"
                " location of its own"
            )
        require_shared(self.chain.location)
        self.chain.refresh()
        self._epochs, self._watch = None, Watch()
        self.driver.shards.release()  # A query that ended unnoticed has left them open.
        self._require_kind(is_built=bool(self._declared))
        rows = self.stream() if stream is None else stream
        require_classic(rows, "Pipeline.start")
        require_handed_out(rows.sparkSession, {name: self.columns[name] for name in self.frame_functions})
        place = os.fspath(checkpoint_location)
        done = newest_commit(rows.sparkSession, place)
        if done is not None:
            self.chain.require_committed(done)
        self._files = files_of(rows.sparkSession, place)
        writer = rows.writeStream.foreachBatch(self._each(on_epoch)).option("checkpointLocation", place)
        query = (writer.trigger(**trigger) if trigger else writer).start()
        self._query = PipelineQuery(query, self._watch, self.driver.shards.release)
        return self._query

    @property
    def incarnation(self) -> str:
        """The UUID of the space; a fork has another one, and so has a space that was made again.

        A plain copy of the folder that is put back has the same UUID: :meth:`mark` tells the epochs of the two apart.
        """
        return self.chain.incarnation

    def mark(self, epoch: int) -> str:
        """Return a text that identifies this very epoch, by which a sink knows whether it has applied it.

        The mark is the same however often the epoch is handed out, and also in a fork or a copy that has the epoch.
        Another space gives the same numbers to its epochs, and so does a space after an older state was put back, even
        as a plain copy: their marks differ. In a function that gets the changes of an epoch, it is the mark of what was
        published there; elsewhere, that of what is there now.

        Args:
            epoch: the epoch.

        Raises:
            UnknownCheckpointError: the epoch has not been published, or is no longer kept.
            CheckpointError: the location cannot be read, or no longer holds a space.
        """
        is_delivered = self._epochs is not None and self._epochs.delivery.epoch == epoch
        chain = self.chain if is_delivered else self.chain.newest_view()
        return History.of_space(chain).mark_of(epoch)

    def progress(self) -> list[EpochProgress]:
        """Return what the last epochs of this process did, at most a hundred, oldest first."""
        return list(self._watch.progress)

    def status(self) -> Status:
        """Return how the pipeline stands; if its space was replaced, what is there now.

        Raises:
            CheckpointError: the location cannot be read, or no longer holds a space.
        """
        chain = self.chain.newest_view()
        newest, error = chain.newest, self._watch.error
        if self._query is not None and self._query.exception() is None:
            error = None  # the query was stopped in the middle of an epoch
        return Status(
            chain.location.url,
            chain.shards,
            chain.epoch,
            self._query is not None and self._query.isActive,
            None if newest is None else EpochProgress.of(newest),
            None if error is None else in_words(error),
        )

    def operator_plan(self, operator: str, epoch: int | None = None) -> OperatorPlan:
        """Return what ``open_shard`` takes on an executor: how to open any shard of an operator.

        The ``epoch`` of the plan is the one that work on it leads to: one more than the epoch that it opens.

        Args:
            operator: the name of the operator.
            epoch: the epoch, the newest by default.

        Raises:
            UnknownCheckpointError: the epoch has not been published.
            ObjectSpaceError: there is no such operator at the epoch.
        """
        chain = self.chain.newest_view()
        at = chain.epoch if epoch is None else epoch
        known = sorted(name for name in chain.manifest(at).lineage if name != PIPELINE) if at else []
        if known and operator not in known:
            raise ObjectSpaceError(
                f"space at {chain.location.url} has no operator {operator!r} at epoch {at}: it has {', '.join(known)}"
            )
        return chain.operator_plan(operator, epoch, cache=self._cache)

    @contextmanager
    def read(self, operator: str, shard: int, epoch: int | None = None) -> Iterator[PersistedObjectSpace]:
        """Open the space of one shard in this process, as of a published epoch; edits are not kept.

        Args:
            operator: the name of the operator.
            shard: the number of the shard.
            epoch: the epoch, the newest by default.

        Raises:
            UnknownCheckpointError: the epoch has not been published.
            ObjectSpaceError: there is no such operator at the epoch.
            CorruptStoreError: a file of the space is damaged.
        """
        with open_shard(self.operator_plan(operator, epoch), shard) as space:
            yield space

    def rows(self, name: str, epoch: int | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of a materialised result, read without Spark, shard by shard in the order of the key.

        So the rows of a top-n do not come in the order of its ranks: sort them.

        Args:
            name: its name.
            epoch: the epoch, the newest by default.

        Raises:
            SchemaError: nothing is materialised under the name in this pipeline, which must be built as it ran.
            UnknownCheckpointError: the epoch has not been published.
        """
        self.materialized(name)
        found: list[tuple[Any, ...]] = []
        # All shards as of one epoch, whatever a query publishes meanwhile.
        plan = self.operator_plan(name, epoch)
        for shard in range(plan.shards):
            with open_shard(plan, shard) as space:
                if f"{name}/table" in tables(space):
                    found += StorageTable(space.store, f"{name}/table", self.columns[name]).scan()
        return found

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Pickle to a stand-in: functions that see a stream take its schema to executors, not the driver's side."""
        return (PipelineElsewhere, ())

    def _position(self, rows: DataFrame, batch: int) -> SourcePosition:
        files = self._files
        if files is None:
            return SourcePosition(_query_id(rows), batch)
        # Once the query has made an epoch in this process, it and the space share one history.
        before = "" if self._watch.progress else offsets_before(files, batch)
        return SourcePosition(_query_id(rows), batch, offsets_of(files, batch), before)

    def _require_kind(self, *, is_built: bool) -> None:
        newest = self.chain.newest
        require_kind(newest.lineage if newest else (), self.chain.location.url, is_built=is_built)

    def _begun(self) -> Epochs | AddedEpochs:
        """Return what makes the epochs, for either kind of pipeline."""
        if self._declared:
            return self._built()
        self._require_kind(is_built=False)
        return AddedEpochs(self, self._full_after, self._cache)

    def _built(self) -> Epochs:
        if self._epochs is None:
            self._require_kind(is_built=True)
            declared = list(self._declared.values())
            undeclared = [name for name in self.sources if name not in self._declared]
            if undeclared:
                raise SchemaError(f"source {undeclared[0]!r} has no rows: declare it with a streaming DataFrame")
            self._epochs = Epochs(self, declared, self._full_after, self._cache)
        return self._epochs

    def _each(self, on_epoch: Callable[[int, Manifest | None], None] | None) -> Callable[[DataFrame, int], None]:
        watch = self._watch

        def _run(rows: DataFrame, batch: int) -> None:
            try:
                manifest = self.run_epoch(rows, batch)
                if on_epoch:
                    with no_exit("on_epoch"):
                        on_epoch(batch, manifest)
            except BaseException as error:
                watch.error = error
                self.driver.shards.release()
                raise

        return _run


def _require_trigger(trigger: Mapping[str, Any] | None) -> None:
    """Refuse what is no trigger of Spark's that runs micro-batches, which ``foreachBatch`` takes alone."""
    if trigger is None or (isinstance(trigger, Mapping) and _TRIGGERS.issuperset(trigger)):
        return
    raise TypeError(
        f"start(): trigger is {trigger!r:.80}: expected a mapping, such as {{'availableNow': True}} or"
        f" {{'processingTime': '10 seconds'}}, with one of {', '.join(sorted(_TRIGGERS))}"
    )


def _query_id(rows: DataFrame) -> str:
    query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not query:
        raise ObjectSpaceError(
            "run_epoch was called outside a streaming query: expected to be called by foreachBatch: use Pipeline.start"
        )
    return query
