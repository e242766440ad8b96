"""``df.writeStream.format("objectspace")``: a stream kept as a table, exactly once by the number of its micro-batch.

Each task saves its shard, and the commit on the driver publishes one manifest. So the rows must first be brought to
their shards, by ``df.repartitionById(shards, shard_expression(df.schema, key, shards))``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from checkpoint import FencedError
from checkpoint.chain import Chain, Location, OperatorPlan, ShardSaved, SourcePosition, collect_beside
from objectspace.errors import ObjectSpaceError
from objectspace.operators import Materialize
from objectspace.operators.chunks import moved_apart
from objectspace.operators.division.keyed import KeyedBy
from objectspace.operators.materialize import Conflict
from objectspace.relational import Chunk, SchemaError, TableSchema
from objectspace.spark.executor import current_shard, open_shard, save_shard
from objectspace.spark.feed_schema import require_epochs_of_rows
from objectspace.spark.handover import router, settled_for, together
from objectspace.spark.offsets import files_without_spark, offsets_before, offsets_of, query_of
from objectspace.spark.progress import figures_of
from objectspace.spark.routes import note_keyed, require_kind, require_same_operators
from objectspace.spark.stages import Exit
from objectspace.spark.storage import absolute, require_known, shared_location, storage_options
from objectspace.spark.upkeep import Retention

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Where Spark tells a task which query and micro-batch it works for."""

_OPTIONS = ("path", "table", "key", "op", "version", "shards", "retainEpochs", "checkpointLocation", "queryName")
"""The options of a write, apart from those for the file system; the last two are Spark's own."""


@dataclass
class Written(WriterCommitMessage):
    """What a task reports of the shard that it has written.

    Args:
        query: the id of the query.
        epoch: the epoch that it was written for.
        saved: the run of the shard as JSON; None if the micro-batch had been committed before.
        incarnation: the UUID of the space that it was written for.
        publisher: the mark of the epoch that it was built on; empty if there is none.
    """

    query: str
    epoch: int
    saved: str | None
    incarnation: str
    publisher: str


@dataclass(frozen=True)
class Planned:
    """What a look at the space, before the tasks of a micro-batch, tells them.

    Args:
        plan: how they open and save their shards.
        publisher: the mark of the epoch that they build on; empty if there is none.
        committed: the last committed batch of every query.
    """

    plan: OperatorPlan
    publisher: str
    committed: Mapping[str, int]


@dataclass(frozen=True)
class Target:
    """The table that a stream is kept in.

    Args:
        path: the location of the space.
        table: the name of the table, and of the operator that keeps it.
        key: its key.
        op_column: the column of operations, or None if rows replace those with their key.
        versions: the columns in which a row must not have less than the row that it replaces; without them the row of a
            later micro-batch stays, and of several in one micro-batch the greatest as text.
        shards: the number of shards; that of the space by default.
        retention: what is kept of the space.
        checkpoint: the folder where Spark keeps how far the stream was read; empty if that is not known.
        storage: what fsspec passes to the file system of a URL; it may be secret, and is not shown.
    """

    path: str
    table: str
    key: tuple[str, ...]
    op_column: str | None
    versions: tuple[str, ...]
    shards: int | None
    retention: Retention
    checkpoint: str = ""
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Target:
        """Return what the options of a write name.

        Raises:
            ObjectSpaceError: an option is missing, unknown or not a number.
        """
        require_known(options, _OPTIONS)
        missing = [name for name in ("path", "table", "key") if not options.get(name)]
        if missing:
            of_catalog = "; toTable() cannot be used, a table of Spark's catalog has no place for options"
            raise ObjectSpaceError(
                f"writeStream to format objectspace takes the option {missing[0]}: found none"
                f"{of_catalog if missing[0] == 'path' else ''}"
            )
        if options["table"].startswith("$"):
            raise ObjectSpaceError(
                f"the option table is {options['table']!r}: such names belong to the library: choose one without '$'"
            )
        shards, epochs = number_of(options, "shards"), number_of(options, "retainEpochs") or Retention.epochs
        return cls(
            absolute(options["path"]),
            options["table"],
            _names(options["key"]),
            options.get("op"),
            _names(options.get("version")),
            shards,
            Retention(epochs, every=epochs),
            options.get("checkpointLocation") or "",
            storage_options(options),
        )

    def chain(self) -> Chain:
        """Open the space, or found it if the number of shards is given, before the tasks write.

        Raises:
            CheckpointError: the location cannot be used, or is the memory of one process.
        """
        return self.found() if self.shards is None else Chain.open_or_create(self._location(), self.shards)

    def found(self) -> Chain:
        """Open the space that the tasks have found: if it was removed since, no other one may replace it.

        Raises:
            CheckpointError: as ``chain``, or there is no longer a space.
        """
        return Chain.open(self._location())

    def _location(self) -> Location:
        return shared_location(self.path, self.storage, publishes=True)

    def position(self, query: str, batch: int) -> SourcePosition:
        """Return which rows a micro-batch has, and which it follows."""
        files = files_without_spark(self.checkpoint, self.path, self.storage)
        return SourcePosition(query, batch, offsets_of(files, batch), offsets_before(files, batch))

    def query(self) -> str | None:
        """Return the id of the query; ``None`` if Spark's checkpoint is not known, or cannot be read.

        Raises:
            CheckpointError: what Spark has noted of the query is damaged.
        """
        return query_of(files_without_spark(self.checkpoint, self.path, self.storage), self.checkpoint)

    def schema(self, rows: StructType) -> TableSchema:
        """Return the schema of the table.

        Raises:
            ObjectSpaceError: an option names a column that is not there, or rows are taken back and have the epoch of a
                change feed.
        """
        if self.op_column is not None and self.op_column not in rows.names:
            raise ObjectSpaceError(
                f"the option op is {self.op_column!r}: expected one of the columns {', '.join(rows.names)}"
            )
        if self.op_column is not None:
            self._require_epochs_of_rows(rows)
        columns = TableSchema.from_spark(StructType([one for one in rows.fields if one.name != self.op_column]))
        if missing := [name for name in self.versions if name not in columns.names]:
            raise ObjectSpaceError(
                f"the option version is {missing[0]!r}: expected some of the columns {', '.join(columns.names)}"
            )
        return TableSchema(columns.columns, list(self.key))

    def _require_epochs_of_rows(self, rows: StructType) -> None:
        try:
            require_epochs_of_rows(rows, f"the option op={self.op_column!r}")
        except SchemaError as error:
            raise SchemaError(f"table {self.table!r}: {error}") from None

    def operator(self, schema: TableSchema) -> Materialize:
        """Return what keeps the table."""
        conflict: Conflict = "update_if_newer" if self.versions else "overwrite"
        return Materialize(schema, conflict, self.versions, hears_all=True)


class TableWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream into a table; one is made for each, and another for its commit.

    It does not look at the space when it is made: Spark says nothing of what is raised then in the process of a commit,
    and again in that of the abort which follows.

    Args:
        target: the table.
        rows: the schema of the stream.

    Raises:
        ObjectSpaceError: an option names a column that is not there, or rows are taken back and have the epoch of a
            change feed.
    """

    def __init__(self, target: Target, rows: StructType) -> None:
        self._target, self._schema = target, target.schema(rows)

    def looked(self) -> Self:
        """Look at the space, and return this writer, which then goes to the tasks: all of them share one look.

        Raises:
            PipelineChangedError: the space is fed in another way, or the query has fed another of its tables.
            CheckpointError: the location cannot be used.

        Dirties: ``space.json``, if it is absent and the number of shards is given.
        """
        _ = self._planned  # It is cached, and pickled with the writer.
        return self

    @cached_property
    def _planned(self) -> Planned:
        chain = self._target.chain()
        self._require_fed_so(chain, self._target.query())
        committed = dict(chain.newest.committed) if chain.newest is not None else {}
        return Planned(chain.operator_plan(self._target.table), _publisher(chain), committed)

    def _require_fed_so(self, chain: Chain, query: str | None) -> None:
        """Refuse a space that is fed in another way, and a query, if it is known, that has fed another table."""
        require_kind(chain.newest.lineage if chain.newest else (), chain.location.url, is_built=False)
        if query:
            require_same_operators(chain, query, [self._target.table])

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Save one shard, on an executor.

        Raises:
            ObjectSpaceError: a row belongs to another shard.
            RowError: a row does not fit the table.
        """
        query, batch = _position()
        planned, plan = self._planned, self._planned.plan
        shard, batches = current_shard(plan), list(iterator)
        if batch <= planned.committed.get(query, -1):
            return Written(query, plan.epoch, None, plan.incarnation, planned.publisher)
        with open_shard(plan, shard) as space:
            table = self._target.operator(self._schema)
            table.open(space, self._target.table)
            chunks = [self._chunk(one) for one in batches]
            if chunks:
                whole = together(chunks)
                self._require_own(whole, shard)
                table.process(settled_for(table, whole))
            table.barrier(plan.epoch)
            note_keyed(space, {table.table.name: KeyedBy.whole(len(self._target.key))})
            saved = save_shard(plan, space, shard, {"rows": sum(map(len, chunks))})
        return Written(query, plan.epoch, saved.to_json(), plan.incarnation, planned.publisher)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the epoch, on the driver.

        Raises:
            FencedError: another driver has published this epoch, or the space was replaced since the tasks looked.
            CheckpointError: a shard is missing, or the space, or the micro-batch was committed with other rows.
            PipelineChangedError: the space is fed in another way, or the query has fed another of its tables.
            ObjectSpaceError: the micro-batch comes again, and is not the last one.
        """
        written = [one for one in messages if isinstance(one, Written)]
        saved = [ShardSaved.from_json(one.saved) for one in written if one.saved is not None]
        chain = self._target.found()
        if not saved:
            self._require_last(chain, written, batchId)
        if not written:
            return
        # If Spark's checkpoint is not known, only a task knows the query.
        self._require_fed_so(chain, written[0].query)
        plan = chain.begin(self._target.position(written[0].query, batchId), [self._target.table])
        if plan is None:
            return
        _require_built_upon(chain, written)
        rows = sum(one.metrics["rows"] for one in saved)
        chain.publish(plan, {self._target.table: saved}, figures_of(self._target.table, {"rows_in": rows}))
        kept = self._target.retention
        if plan.epoch % kept.every == 0:
            # This process ends with the commit, which need not wait.
            collect_beside(chain.location, kept.grace_seconds, kept.epochs)

    def _require_last(self, chain: Chain, written: Sequence[Written], batch: int) -> None:
        """Refuse a micro-batch before the last one: Spark gives one again only from an older copy of its checkpoint."""
        known = {} if chain.newest is None else chain.newest.committed
        last = max((known.get(one.query, batch) for one in written), default=batch)
        if batch < last:
            raise ObjectSpaceError(
                f"space at {chain.location.url}: the stream comes with batch {batch} again, and the last one committed"
                f" here is {last}: an older copy of Spark's checkpoint was put back, and nothing tells whether its rows"
                " are the same: put the newest one there, or start a new stream from the input that the table has not"
                " seen"
            )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Leave everything as it is: a file that no manifest names counts for nothing, and is collected later."""

    def _chunk(self, batch: pa.RecordBatch) -> Chunk:
        return moved_apart(Chunk.from_arrow(batch, self._schema, op_column=self._target.op_column or "\0"))

    def _require_own(self, chunk: Chunk, shard: int) -> None:
        shards = self._planned.plan.shards
        route = router(Exit(0, self._schema, self._target.key, shards))
        for row, other in zip(chunk.values, route(chunk.values) if route is not None else ()):
            if other != shard:
                raise ObjectSpaceError(
                    f"table {self._target.table}: the row with the key {self._schema.key_of(row)!r} belongs to shard"
                    f" {other}, found it in {shard}: write df.repartitionById({shards},"
                    f" shard_expression(df.schema, {list(self._target.key)}, {shards}))"
                )


def _publisher(chain: Chain) -> str:
    return "" if chain.newest is None else chain.newest.publisher


def _require_built_upon(chain: Chain, written: Sequence[Written]) -> None:
    """Refuse what tasks wrote if they built on anything but the newest epoch of a space.

    Raises:
        FencedError: one of them did, as when the space was replaced since; nothing was published.
    """
    url, next_one, mark = chain.location.url, chain.epoch + 1, _publisher(chain)
    for one in written:
        if one.incarnation == chain.incarnation and one.epoch != next_one:
            raise FencedError(
                f"space at {url}: the tasks wrote for epoch {one.epoch}, but the next one is {next_one}: another driver"
                " feeds the space; stop one of them, then start this one again"
            )
        if (one.incarnation, one.publisher) != (chain.incarnation, mark):
            raise FencedError(
                f"space at {url}: the tasks have built upon epoch {one.epoch - 1} with the mark {one.publisher!r} of"
                f" the space {one.incarnation}, found epoch {chain.epoch} with the mark {mark!r} of {chain.incarnation}"
                ": the space was replaced meanwhile, and nothing was published: put back what was there, or start a"
                " stream with the checkpoint that belongs to what is there now"
            )


def _names(text: str | None) -> tuple[str, ...]:
    """Return the names in an option, which are separated by commas."""
    return tuple(name.strip() for name in text.split(",")) if text else ()


def number_of(options: Mapping[str, str], name: str) -> int | None:
    """Return a number of at least 1 that an option gives, or None if it is not given.

    Raises:
        ObjectSpaceError: it is something else.
    """
    found = options.get(name)
    if found is None:
        return None
    if not found.isdecimal() or not int(found):
        raise ObjectSpaceError(f"the option {name} is {found!r}: expected a number of at least 1")
    return int(found)


def _position() -> tuple[str, int]:
    context: Any = TaskContext.get()
    query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    if not query or batch is None:
        raise ObjectSpaceError("Spark does not tell this task its query and micro-batch: use Pipeline.start instead")
    return query, int(batch)
