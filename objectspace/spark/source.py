"""``spark.read.format("objectspace")``: state as a DataFrame, of any epoch, one input partition per shard.

``readStream`` gives the change feed of a relational table: the net change of each row, epoch by epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from objectspace.errors import ObjectSpaceError
from objectspace.spark import change_feed
from objectspace.spark.change_feed import Part
from objectspace.spark.feed_columns import FeedColumns
from objectspace.spark.feed_schema import FEED
from objectspace.spark.forms import conforming
from objectspace.spark.history import Seen
from objectspace.spark.pushdown import Bounds, bounds_of
from objectspace.spark.read_options import is_set
from objectspace.spark.spans import Span
from objectspace.spark.subject import Subject
from objectspace.spark.writer import TableWriter, Target, number_of

MOST_EPOCHS = 1000
"""How many epochs one trigger of a change feed takes, unless ``maxEpochsPerTrigger`` says another number."""


@dataclass
class ShardPartition(InputPartition):
    """The part of a read that one shard gives.

    Args:
        shard: its number.
        epoch: the epoch that is read.
    """

    shard: int
    epoch: int


@dataclass
class ChangesPartition(InputPartition):
    """The part of a change feed that one shard gives.

    Args:
        shard: its number.
        span: the epochs that are read.
        only: of a new feed, the number that its table has up to its start, if it is there.
        fed: the table and its columns, as the reader of the driver has them.
    """

    shard: int
    span: Span
    only: tuple[int, ...] | None
    fed: FeedColumns


class ObjectSpaceSource(DataSource):
    """State as a data source of Spark.

    A DataFrame stays at the epoch of its ``load()``, unless it is given a schema: then Spark does not ask for one at
    that time. ``readStream`` with ``changes=true`` gives what changed in a table, with the columns ``op`` and ``epoch``
    before its own. Options: one of ``table``, ``object`` and ``kvt`` (``scope/table``) with a name; ``operator`` if the
    space has several; ``epoch``, but not of a stream; ``columns`` of a table, separated by commas; ``pushdown=true`` of
    a table that one filtered query reads; of a stream ``maxEpochsPerTrigger``; and for the file system any that begin
    with ``fsspec.``, as text or JSON.
    """

    _loaded: Subject | None = None
    """What ``load()`` has found: Spark keeps this object for every reader that the DataFrame needs."""

    _was_sent = False
    """Whether it comes from another process: Spark plans a write with a new object, and commits it with a sent one."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Come from another process."""
        self.__dict__.update(state, _was_sent=True)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "objectspace"

    def schema(self) -> StructType:
        """Return the schema of what is read; changes have ``op`` and ``epoch`` before the columns.

        Raises:
            ObjectSpaceError: the options name nothing that is there, or columns that cannot be told apart.
        """
        subject = Subject.of(self.options)
        if self._is_feed():
            return subject.feed_schema()
        self._loaded = subject.loaded()
        return self._loaded.schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch.

        Raises:
            ObjectSpaceError: changes are asked for, or the schema of the read is empty, has a column twice, or differs
                from the option columns.
        """
        if self._is_feed():
            raise ObjectSpaceError("changes are a stream: use spark.readStream, or leave the option changes out")
        subject = self._loaded or Subject.of(self.options)
        _require_columns(schema)
        if subject.columns is not None and {*subject.columns} != {*schema.names}:
            raise ObjectSpaceError(
                f"the option columns is {', '.join(subject.columns)}, and the schema of the read has"
                f" {', '.join(schema.names)}: name the columns in one of them"
            )
        if subject.kind == "table":
            subject = replace(subject, columns=tuple(schema.names))
        is_filtered = subject.kind == "table" and is_set(self.options, "pushdown")
        return FilteredReader(subject, schema) if is_filtered else SpaceReader(subject, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of the change feed.

        Raises:
            ObjectSpaceError: what is read is not a table, the option changes is missing, an option is not a number, or
                the schema of the read is empty, lacks op or has a column twice.
        """
        subject = Subject.of(self.options)
        if subject.kind != "table" or not self._is_feed():
            raise ObjectSpaceError("readStream gives the changes of a table: pass the options table and changes=true")
        _require_columns(schema)
        if "op" not in schema.names:
            raise ObjectSpaceError(
                f"the schema of the read has {', '.join(schema.names)}: expected op besides, a string, which says"
                " whether a row comes or goes, and epoch, a long, if it is wanted"
            )
        most = number_of(self.options, "maxEpochsPerTrigger") or MOST_EPOCHS
        return ChangeReader(subject, schema, most)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Refuse a write that is not a stream.

        Raises:
            ObjectSpaceError: always.
        """
        raise ObjectSpaceError(
            "format objectspace takes the rows of a stream, an epoch a micro-batch: use spark.readStream and"
            " df.writeStream with trigger(availableNow=True) for rows that already exist"
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a micro-batch: options ``table``, ``key``, ``op``, ``version`` and ``shards``.

        Raises:
            ObjectSpaceError: the stream is written in complete mode, or an option is missing.
            PipelineChangedError: the space is fed in another way, or the query has fed another table of it.
            CheckpointError: the location cannot be used.

        The last two only before anything is written; after that it is the commit of the writer that raises them.
        """
        if overwrite:
            raise ObjectSpaceError("format objectspace takes changes, not whole results: use outputMode append")
        writer = TableWriter(Target.of(self.options), schema)
        return writer if self._was_sent else writer.looked()

    def _is_feed(self) -> bool:
        return is_set(self.options, "changes")


class SpaceReader(DataSourceReader):
    """Reads what a space held at one epoch, one partition per shard, in the schema of the read."""

    def __init__(self, subject: Subject, schema: StructType) -> None:
        self._subject, self._schema = subject.fixed(), schema
        self._bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each shard."""
        epoch = self._subject.epoch or 0
        return [ShardPartition(shard, epoch) for shard in range(self._subject.shards(epoch))]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Yield what a shard holds.

        Raises:
            ObjectSpaceError: it does not fit the schema of the read.
        """
        found = self._subject.batches(partition.shard, partition.epoch, self._bounds)
        return map(conforming(self._schema, f"{self._subject.kind} {self._subject.name!r}"), found)


class FilteredReader(SpaceReader):
    """Reads only what lies within the bounds that filters set on a table.

    Spark keeps the reader, with its bounds, for all later queries of the same DataFrame, and tells it nothing of them.
    So it is there for those who ask for it and take another DataFrame for each filter.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take filters, and return all of them: Spark checks what is left once more."""
        self._bounds = bounds_of(self._subject.table_schema(), filters, self._schema)
        return filters


class ChangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what changed in a table, epoch by epoch.

    What it gives adds up to the table. If the first epochs were collected, the oldest that is kept gives all rows. Its
    offsets have the mark of their epoch, so it continues only in the history that it has read.

    Spark makes two of them: one for the driver, with which the feed starts, and one for the tasks, at whatever time the
    first of them is planned. So only what the driver asks for looks at what is there, and a partition says the rest.
    """

    def __init__(self, subject: Subject, schema: StructType, most: int) -> None:
        self._subject, self._schema, self._most = subject, schema, most
        self._until: int | None = None
        self._has_started = False
        self._first_end: dict[str, Any] | None = None

    def prepareForTriggerAvailableNow(self) -> None:
        """Note the newest epoch: that is where the stream ends."""
        self._until = self._started().epochs()[1]

    def initialOffset(self) -> dict[str, Any]:
        """Return the position before the first epoch.

        Raises:
            ObjectSpaceError: the schema of the read has a column that the table lacks.
        """
        self._started()
        return Seen().offset()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """Return the newest epoch, or as many further as one trigger takes; the start if there is none after it.

        Raises:
            CheckpointError: what the stream has read was replaced, by an older state or by something that was made
                again.

        Time: O(1) small files.
        """
        subject = self._started()
        seen, history = Seen.of(start), subject.history()
        history.require(seen)
        newest = history.newest if self._until is None else min(history.newest, self._until)
        further = history.further(seen, self._most)
        if seen.is_nothing:
            further = change_feed.least_end(subject, history, further)
        last = history.seen(min(newest, further))
        found = last.offset() if last.is_after(seen) else start
        if seen.is_nothing:
            self._first_end = found
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return a partition for each shard of each span of epochs that have the same shards.

        Raises:
            CheckpointError: as ``latestOffset``.
            UnknownCheckpointError: epochs that the stream has not seen yet were collected.
        """
        subject, seen, last = self._started(), Seen.of(start), Seen.of(end)
        spans = change_feed.spans(subject, seen, last)
        if subject.fed is None and spans:
            self._subject = subject = change_feed.beginning(subject, seen, last)
        elif seen.is_nothing and end != self._first_end:  # Another query has planned it, before this one started.
            subject = change_feed.as_planned(subject, last)
        if subject.fed is None:
            return []
        parts = change_feed.parts(subject, seen, spans)
        return [ChangesPartition(*part, subject.fed.of_shard(part.shard, part.span.shards)) for part in parts]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a shard, in the schema of the read.

        Raises:
            CheckpointError: as ``latestOffset``.
            ObjectSpaceError: they do not fit the schema of the read.
        """
        subject = replace(self._subject, fed=partition.fed)
        found = change_feed.changes(subject, Part(partition.shard, partition.span, partition.only))
        return map(conforming(self._schema, f"table {self._subject.name!r}"), found)

    def _started(self) -> Subject:
        """Return what is read, with the table that was there when the driver first asked for anything."""
        if not self._has_started:
            self._subject = self._subject.feeding([name for name in self._schema.names if name not in FEED.names])
            self._has_started = True
        return self._subject


def _require_columns(schema: StructType) -> None:
    """Refuse a schema of a read that is empty, of which Spark counts no row, or has a column twice."""
    if not schema.names:
        raise ObjectSpaceError("the schema of the read is empty: expected columns; without a schema all are read")
    if len(set(schema.names)) < len(schema.names):
        raise ObjectSpaceError(f"the schema of the read has {', '.join(schema.names)}: expected each column once")
