"""``spark.read.format("objectspace")``: state as a DataFrame, of any epoch, one input partition a shard.

``readStream`` gives the change feed of a relational table: the net change of each row, epoch by epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from checkpoint import CheckpointStore
from checkpoint.chain import Chain, location_at, open_cache
from objectspace import PersistedObjectSpace, codec
from objectspace.errors import ObjectSpaceError
from objectspace.kvt import split_table_key, stored_entries
from objectspace.operators.apply import OUTPUT
from objectspace.relational import StorageTable, TableSchema, tables
from objectspace.spark.pushdown import Bounds, bounds_of, is_pushing
from objectspace.spark.writer import TableWriter, Target

BATCH_ROWS = 8192

_FIXED = {
    "kvt": StructType()
    .add("partition", IntegerType())
    .add("family", StringType())
    .add("key", BinaryType())
    .add("version", LongType())
    .add("value", BinaryType()),
    "object": StructType().add("shard", IntegerType()).add("key", StringType()).add("value", StringType()),
}
"""The schemas of what has no columns of its own."""

_SUBJECTS = ("table", "object", "kvt")


@dataclass
class ShardPartition(InputPartition):
    """The part of a read that one shard gives.

    Args:
        shard: its number.
        first: of a change feed, the first epoch that is read.
        last: the last epoch that is read.
    """

    shard: int
    first: int
    last: int


@dataclass(frozen=True)
class Subject:
    """What is read: one table or object of an operator of a space, or of a store file.

    Args:
        path: the location of a space, or a store file.
        kind: ``table``, ``object`` or ``kvt``.
        name: its name; of a key-value table ``SCOPE/TABLE``.
        operator: of a space, the operator whose state it is; the only one by default.
        columns: of a table, the columns to give.
        epoch: the epoch, the newest by default.
    """

    path: str
    kind: str
    name: str
    operator: str | None
    columns: tuple[str, ...] | None
    epoch: int | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Subject:
        """Return what the options of a read name.

        Raises:
            ObjectSpaceError: an option is missing, not known or no number.
        """
        given = [kind for kind in _SUBJECTS if kind in options]
        if "path" not in options or len(given) != 1:
            raise ObjectSpaceError("load(location) takes one of the options table, object and kvt: name what to read")
        columns, epoch = options.get("columns"), options.get("epoch")
        if epoch is not None and not epoch.isdigit():
            raise ObjectSpaceError(f"the option epoch is {epoch!r}: expected a number")
        names = tuple(name.strip() for name in columns.split(",")) if columns else None
        number = None if epoch is None else int(epoch)
        return cls(options["path"], given[0], options[given[0]], options.get("operator"), names, number)

    @property
    def is_file(self) -> bool:
        """Whether this is one store file."""
        return "://" not in self.path and Path(self.path).is_file()

    def shards(self) -> int:
        """Return how many shards there are."""
        return 1 if self.is_file else self._chain().shards_at(self.epoch)

    def newest(self) -> int:
        """Return the newest epoch."""
        if not self.is_file:
            return self._chain().epoch
        with CheckpointStore(self.path, read_only=True) as store:
            return store.next_epoch() - 1

    @contextmanager
    def open(self, shard: int, epoch: int | None = None) -> Iterator[CheckpointStore]:
        """Open the store of a shard."""
        if self.is_file:
            with CheckpointStore(self.path, read_only=True) as store:
                yield store
            return
        chain = self._chain()
        with open_cache(chain.operator_plan(self._operator(chain), epoch), shard) as store:
            yield store

    def schema(self) -> StructType:
        """Return the schema of what is read.

        Raises:
            ObjectSpaceError: no shard has the table.
        """
        return self._columns_of(self.table_schema()) if self.kind == "table" else _FIXED[self.kind]

    def table_schema(self) -> TableSchema:
        """Return the schema of the table.

        Raises:
            ObjectSpaceError: no shard has it.
        """
        known: set[str] = set()
        for shard in range(self.shards()):
            with self.open(shard, self.epoch) as store:
                space = PersistedObjectSpace(store)
                name = self.table_in(space)
                if name is not None:
                    return tables(space)[name].schema
                known.update(tables(space))
        raise ObjectSpaceError(
            f"{self.path} has no table {self.name!r} at this epoch: there are {', '.join(sorted(known)) or 'none'}"
        )

    def table_in(self, space: PersistedObjectSpace) -> str | None:
        """Return the stored name of the table: its own, or the one under which a pipeline has materialised it.

        What an operator of a user gives out has the name of the operator.
        """
        known = tables(space)
        if self.name in known:
            return self.name
        ends = tuple(f"/{self.name}/{role}" for role in ("table", OUTPUT))
        return next((name for name in known if f"/{name}".endswith(ends)), None)

    def object_in(self, space: PersistedObjectSpace) -> str | None:
        """Return the stored name of the object: its own, or the one that it has under the name of an operator."""
        if self.name in space:
            return self.name
        return next((name for name in space if name.endswith(f"/{self.name}")), None)

    def _columns_of(self, schema: TableSchema) -> StructType:
        struct = schema.to_spark()
        fields = {field["name"]: field for field in struct["fields"]}
        names = self.columns or tuple(fields)
        if missing := [name for name in names if name not in fields]:
            raise ObjectSpaceError(f"table {self.name!r} has no column {missing[0]!r}: it has {', '.join(fields)}")
        return StructType.fromJson({**struct, "fields": [fields[name] for name in names]})

    def batches(self, shard: int, epoch: int, bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield what one shard holds, of a table within bounds."""
        with self.open(shard, epoch) as store:
            # The cache of a shard stands at the epoch; its own last one is older where the shard has not changed since.
            at = epoch if self.is_file and epoch else None
            space = PersistedObjectSpace(store, _at=store.reader(epoch=at))
            if self.kind == "table":
                name = self.table_in(space)
                if name is not None:
                    table = StorageTable(store, name, self.columns, at)
                    yield from _bounded(table, bounds) if bounds else table.to_batches(BATCH_ROWS)
            elif self.kind == "kvt":
                yield from _batched(_entries(space, self.name), _KEY_VALUE_ARROW)
            elif (found := self.object_in(space)) is not None:
                yield from _batched(((shard, *pair) for pair in _pairs(space.get(found))), _OBJECT_ARROW)

    def changes(self, shard: int, first: int, last: int) -> Iterator[tuple[Any, ...]]:
        """Yield (op, epoch, values of the columns) of each row that changed in the epochs from first to last."""
        with self.open(shard, last) as store:
            name = self.table_in(PersistedObjectSpace(store))
            if name is None:
                return
            for epoch in range(first, min(last, store.next_epoch() - 1) + 1):
                table = StorageTable(store, name, self.columns)
                for change in table.changes(epoch, epoch):
                    if change.old is not None:
                        yield ("-" if change.new is None else "U-", epoch, *change.old)
                    if change.new is not None:
                        yield ("+" if change.old is None else "U+", epoch, *change.new)

    def _chain(self) -> Chain:
        return Chain.open(location_at(self.path))

    def _operator(self, chain: Chain) -> str:
        names = sorted(name for name in (chain.newest.lineage if chain.newest is not None else ()) if name[0] != "$")
        found = self.operator
        if found is None:  # What a pipeline materialises is an operator of that name.
            found = names[0] if len(names) == 1 else self.name if self.name in names else None
        if found is None or found not in names:
            raise ObjectSpaceError(f"{self.path}: name an operator with option operator: {', '.join(names) or 'none'}")
        return found


class ObjectSpaceSource(DataSource):
    """State as a data source of Spark.

    A DataFrame stays at the epoch of its ``load()``. ``readStream`` with ``changes=true`` gives what changed in a
    table, with the columns ``op`` and ``epoch`` before its own. Options: one of ``table``, ``object`` and ``kvt``
    (``scope/table``) with a name; ``operator`` where the space has several; ``epoch``; ``columns`` of a table,
    separated by commas; of a stream ``maxEpochsPerTrigger``.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "objectspace"

    def schema(self) -> StructType:
        """Return the schema of what is read; changes have ``op`` and ``epoch`` before the columns."""
        found = Subject.of(self.options).schema()
        if not self._is_feed():
            return found
        return StructType([StructField("op", StringType()), StructField("epoch", LongType()), *found.fields])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch.

        Raises:
            ObjectSpaceError: changes are asked for.
        """
        if self._is_feed():
            raise ObjectSpaceError("changes are a stream: use spark.readStream, or leave the option changes out")
        subject = Subject.of(self.options)
        return FilteredReader(subject) if subject.kind == "table" and is_pushing() else SpaceReader(subject)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of the change feed.

        Raises:
            ObjectSpaceError: it is no table that is read, or the option changes is missing.
        """
        subject = Subject.of(self.options)
        if subject.kind != "table" or not self._is_feed():
            raise ObjectSpaceError("readStream gives the changes of a table: pass the options table and changes=true")
        return ChangeReader(subject, int(self.options.get("maxEpochsPerTrigger", "1000")))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a micro-batch: options ``table``, ``key``, ``op`` and ``shards``.

        Raises:
            ObjectSpaceError: the stream is written in complete mode, or an option is missing.
        """
        if overwrite:
            raise ObjectSpaceError("format objectspace takes changes, not whole results: use outputMode append")
        return TableWriter(Target.of(self.options), schema)

    def _is_feed(self) -> bool:
        return self.options.get("changes", "false").lower() == "true"


class SpaceReader(DataSourceReader):
    """Reads what a space held at one epoch, a partition a shard."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._epoch = subject.newest() if subject.epoch is None else subject.epoch
        self._bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each shard."""
        return [ShardPartition(shard, 0, self._epoch) for shard in range(self._subject.shards())]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Yield what a shard holds."""
        return self._subject.batches(partition.shard, partition.last, self._bounds)


class FilteredReader(SpaceReader):
    """Reads of a table only what lies within the bounds that filters set."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take filters, and return all of them: Spark looks at what is left once more."""
        self._bounds = bounds_of(self._subject.table_schema(), filters)
        return filters


class ChangeReader(DataSourceStreamReader):
    """Reads what changed in a table, epoch by epoch."""

    def __init__(self, subject: Subject, most: int) -> None:
        self._subject, self._most = subject, most
        self._seen = 0

    def initialOffset(self) -> dict[str, int]:
        """Return the position before the first epoch."""
        return {"epoch": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:
        """Return the newest epoch, or as many further as one trigger takes."""
        self._seen = min(self._subject.newest(), self._seen + self._most)
        return {"epoch": self._seen}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return a partition for each shard."""
        self._seen = max(self._seen, end["epoch"])
        span = (start["epoch"] + 1, end["epoch"])
        return [ShardPartition(shard, *span) for shard in range(self._subject.shards())] if span[0] <= span[1] else []

    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the changes of a shard."""
        return self._subject.changes(partition.shard, partition.first, partition.last)


_KEY_VALUE_ARROW = pa.schema(
    {
        "partition": pa.int32(),
        "family": pa.string(),
        "key": pa.binary(),
        "version": pa.int64(),
        "value": pa.binary(),
    }
)
_OBJECT_ARROW = pa.schema([("shard", pa.int32()), ("key", pa.string()), ("value", pa.string())])


def _batched(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    kept: list[tuple[Any, ...]] = []
    for row in rows:
        kept.append(row)
        if len(kept) == BATCH_ROWS:
            yield _batch(kept, schema)
            kept = []
    if kept:
        yield _batch(kept, schema)


def _batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _bounded(table: StorageTable, bounds: Bounds) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table within bounds."""
    rows = table.scan(bounds.prefix, bounds.lower, bounds.upper, bounds.inclusive)
    return _batched(rows, table.arrow_schema())


def _entries(space: PersistedObjectSpace, name: str) -> Iterator[tuple[Any, ...]]:
    """Yield (partition, family, key, version, value) of a key-value table."""
    middle = f"/kvt/{name}/"  # That of an operator of a user has the name of the operator before it.
    for object_name in sorted(one for one in space if middle in f"/{one}"):
        number = object_name.rpartition("/")[2]
        if number.isdigit():
            for address, version, value in stored_entries(space.get_sorted_dictionary(object_name)):
                family, key = split_table_key(address)
                yield int(number), family, key, version, value


def _pairs(target: Any) -> Iterator[tuple[str | None, str]]:
    """Yield the keys and values of an object as JSON."""
    if hasattr(target, "items"):
        pairs: Iterable[tuple[Any, Any]] = target.items()
    elif hasattr(target, "value"):
        pairs = [(None, target.value)]
    else:
        pairs = enumerate(target)
    for key, value in pairs:
        plain = value.copy() if hasattr(value, "_describe") else value
        yield None if key is None else key if isinstance(key, str) else _json(key), _json(plain)


def _json(value: Any) -> str:
    return orjson.dumps(codec.plain(value)).decode()
