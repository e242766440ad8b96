"""What a read through Spark names, in a space or a store file: its schema, its rows at an epoch, and its changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType

from checkpoint import CheckpointError, CheckpointStore
from checkpoint.address import local_path
from checkpoint.chain import Chain, open_cache
from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.operators.apply import OUTPUT
from objectspace.relational import StorageTable, TableSchema, tables
from objectspace.relational.united import united
from objectspace.spark.contents import BATCH_ROWS, KEY_VALUE_ARROW, OBJECT_ARROW, batched, pairs
from objectspace.spark.feed_columns import FeedColumns
from objectspace.spark.feed_schema import FEED
from objectspace.spark.feed_table import Place, Stored, tables_of
from objectspace.spark.history import History, Seen
from objectspace.spark.key_values import Parts, entries, key_value_tables
from objectspace.spark.pushdown import Bounds
from objectspace.spark.read_options import CALLED, columns_of, epoch_of, kind_of
from objectspace.spark.routes import PIPELINE
from objectspace.spark.storage import absolute, shared_location, storage_options
from objectspace.spark.table_rows import bounded, filled

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
        storage: what fsspec passes to the file system of a URL; it may be secret, and is not shown.
        mark: what tells the epoch from one of another history; empty if it was not looked at.
        fed: of a change feed, the table and its columns as they were at the start of the feed, if it was there.
        together: the schema that all shards can be read with; if it is ``None``, it is looked up when one lacks a
            column.
    """

    path: str
    kind: str
    name: str
    operator: str | None
    columns: tuple[str, ...] | None
    epoch: int | None
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    mark: str = ""
    fed: FeedColumns | None = field(default=None, compare=False)
    together: TableSchema | None = field(default=None, compare=False)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Subject:
        """Return what the options of a read name.

        Raises:
            ObjectSpaceError: an option is missing, unknown, without meaning for what is read, or not a number.
        """
        kind = kind_of(options)
        subject = absolute(options["path"]), kind, options[kind], options.get("operator")
        return cls(*subject, columns_of(options), epoch_of(options), storage_options(options))

    def fixed(self) -> Subject:
        """Return the same at one epoch, the newest if none was named, and in the history that it has now."""
        if self.mark:
            return self
        history = self.history()
        seen = history.seen(history.newest if self.epoch is None else self.epoch)
        return replace(self, epoch=seen.epoch, mark=seen.mark)

    def loaded(self) -> Subject:
        """Return the same at one epoch, with the schema that all shards can be read with there.

        Raises:
            ObjectSpaceError: as ``schema``.
        """
        subject = self.fixed()
        return replace(subject, together=subject.table_schema()) if self.kind == "table" else subject

    @property
    def is_file(self) -> bool:
        """Whether this is a single store file."""
        path = local_path(self.path)
        return path is not None and Path(path).is_file()

    def shards(self, epoch: int | None) -> int:
        """Return how many shards there are at an epoch, or at the newest."""
        return 1 if self.is_file else self.chain().shards_at(epoch)

    def epochs(self) -> tuple[int, int]:
        """Return the oldest epoch from which on all can be read, and the newest."""
        history = self.history()
        return history.oldest, history.newest

    def history(self) -> History:
        """Return the epochs that exist now, with what tells them from those of another history."""
        return History.of_file(self.path) if self.is_file else History.of_space(self.chain())

    @contextmanager
    def open(self, shard: int, epoch: int | None = None) -> Iterator[CheckpointStore]:
        """Open the store of a shard.

        Raises:
            CheckpointError: the epoch that was fixed belongs to another history than what is there.
        """
        if self.is_file:
            with CheckpointStore(self.path, read_only=True) as store:
                if self.mark:
                    self._require_fixed(History.of_store(store))
                yield store
            return
        chain = self.chain()
        with open_cache(chain.operator_plan(self.operator_in(chain), epoch), shard) as store:
            yield store

    def schema(self) -> StructType:
        """Return the schema of what is read.

        Raises:
            ObjectSpaceError: no shard has what is read, or the table has no such columns.
        """
        if self.kind == "table":
            return self._columns_of(self.table_schema())
        self._require_there()
        return _FIXED[self.kind]

    def feed_schema(self) -> StructType:
        """Return the schema of the changes of what is read.

        Raises:
            ObjectSpaceError: as ``schema``, or a column has the name of one that changes have.
        """
        found = self.schema()
        if taken := [name for name in found.names if name.lower() in FEED.names]:  # As Spark compares them.
            raise ObjectSpaceError(
                f"table {self.name!r} has a column {taken[0]!r}, a name that changes use for one of their own: choose"
                " others with the option columns"
            )
        return StructType([*FEED.fields, *found.fields])

    def feeding(self, names: Sequence[str]) -> Subject:
        """Return the same for a change feed that keeps some columns from now on, whatever the table comes to have.

        Raises:
            ObjectSpaceError: the table exists, and has no such column.
        """
        subject = replace(self, columns=tuple(names))
        try:
            epoch = subject.epochs()[1]
            found = replace(subject, epoch=epoch)._tables()
        except (CheckpointError, ObjectSpaceError):  # The space, or its operator, may be made later.
            return subject
        return subject._following(found, epoch)

    def feeding_from(self, epoch: int) -> Subject:
        """Return the same for a change feed of the table and its columns as they are at an epoch, if it exists.

        Raises:
            ObjectSpaceError: there are several tables of the name, or it has no such column.
        """
        return self._following(self.tables_at(epoch), epoch)

    def tables_at(self, epoch: int) -> tuple[Stored | None, ...]:
        """Return the table of the name as each shard has it at an epoch.

        Raises:
            ObjectSpaceError: there are several.
        """
        return replace(self, epoch=epoch)._tables()

    def numbers_at(self, epoch: int) -> tuple[int | None, ...] | None:
        """Return the number of the table in each shard at an epoch, ``None`` if it lacks columns that are wanted.

        Raises:
            ObjectSpaceError: there are several.
        """
        tables = self.tables_at(epoch)
        names = {name for one in tables if one is not None for name in one.schema.names}
        is_there = any(tables) and names.issuperset(self.columns or ())
        return tuple(None if one is None else one.number for one in tables) if is_there else None

    def followed_at(self, epoch: int) -> tuple[int | None, ...]:
        """Return the number that the table of the feed has in each shard at an epoch."""
        if self.fed is None:
            return ()
        if epoch == self.fed.epoch:
            return tuple(None if one is None else one.number for one in self.fed.starts)
        shards = self.shards(epoch)
        found = [
            self.fed.table_in(tables_of(space), Place(shard, shards, epoch))
            for shard, space in enumerate(replace(self, epoch=epoch)._spaces())
        ]
        return tuple(None if one is None else one.number for one in found)

    def _following(self, found: tuple[Stored | None, ...], epoch: int) -> Subject:
        schemas = [None if one is None else one.schema for one in found]
        if not any(schemas):
            return self
        schema = self._united(schemas)
        self._columns_of(schema)
        columns = tuple(schema.column(name) for name in self.columns or schema.names)
        return replace(self, fed=FeedColumns(columns, epoch, found))

    def table_schema(self) -> TableSchema:
        """Return the schema that the table can be read with in all shards, which may have evolved apart.

        Raises:
            ObjectSpaceError: no shard has it, or there is no such schema.

        Time: that of opening each shard; only the first if the library has made the table, the same in all.
        """
        return self.together or self._united(self._schemas())

    def _united(self, schemas: Sequence[TableSchema | None]) -> TableSchema:
        parts = {f"shard {shard}": schema for shard, schema in enumerate(schemas) if schema is not None}
        return united(self.name, parts, _APART, self.columns)

    def _schemas(self) -> tuple[TableSchema | None, ...]:
        """Return the schema of the table in each shard."""
        found = self._tables()
        if any(found):
            return tuple(None if one is None else one.schema for one in found)
        known = {name for space in self._spaces() for name in tables(space)}
        raise ObjectSpaceError(
            f"{self.path} has no table {self.name!r} at this epoch: there are {', '.join(sorted(known)) or 'none'}"
        )

    def _tables(self) -> tuple[Stored | None, ...]:
        """Return the table as each shard has it."""
        found: list[Stored | None] = []
        for space in self._spaces():
            there, name = tables_of(space), self.table_in(space)
            table = None if name is None else there.get(name)
            if table is not None and self._is_of_library(table.name, there.numbers):
                return (table._replace(number=None),) * self.shards(self.epoch)
            found.append(table)
        return tuple(found)

    def _is_of_library(self, name: str, there: Mapping[str, int]) -> bool:
        """Return whether a table is a result, whose schema follows from the pipeline, and not made by a user's code."""
        chain = None if self.is_file else self.chain()
        if chain is None or chain.newest is None or PIPELINE not in chain.newest.lineage:
            return False
        operator = self.operator_in(chain)
        return name == f"{operator}/{OUTPUT}" or (name == f"{operator}/table" and f"{operator}/{OUTPUT}" not in there)

    def table_in(self, space: PersistedObjectSpace) -> str | None:
        """Return the stored name of the table: its own, or the one under which a pipeline has materialised it.

        What a user's operator gives out has the name of the operator.

        Raises:
            ObjectSpaceError: there are several.
        """
        return self._found_in(tables(space), f"/{self.name}/table", f"/{self.name}/{OUTPUT}")

    def object_in(self, space: PersistedObjectSpace) -> str | None:
        """Return the stored name of the object: its own, or the one that it has under the name of an operator.

        Raises:
            ObjectSpaceError: there are several.
        """
        return self._found_in(space, f"/{self.name}")

    def key_values_in(self, space: PersistedObjectSpace) -> Parts | None:
        """Return the partitions of the key-value table, ``None`` if there is no such table.

        Raises:
            ObjectSpaceError: there are several.
        """
        known = key_value_tables(space)
        found = self._found_in(known, f"/kvt/{self.name}") if "/" in self.name else None
        return None if found is None else known[found]

    def _found_in(self, names: Iterable[str], *ends: str) -> str | None:
        """Return the name that was asked for, or else one with one of the ends; in a store file one of the operator."""
        of = f"{self.operator}/" if self.is_file and self.operator is not None else ""
        known = [name for name in names if name.startswith(of)]
        if self.name in known:
            return self.name
        found = sorted(name for name in known if f"/{name}".endswith(ends))
        if len(found) > 1:
            other = ", or its operator with the option operator" if self.is_file else ""
            raise ObjectSpaceError(
                f"{self.path} has several that are called {self.name!r}: {', '.join(found)}: give the whole name{other}"
            )
        return found[0] if found else None

    def _require_there(self) -> None:
        known: set[str] = set()
        for space in self._spaces():
            found = self.object_in(space) if self.kind == "object" else self.key_values_in(space)
            if found is not None:
                return
            known.update(space)
        raise ObjectSpaceError(
            f"{self.path} has no {CALLED[self.kind]} {self.name!r} at this epoch: its objects are"
            f" {', '.join(sorted(known)[:_MOST_NAMED]) or 'none'}"
        )

    def _spaces(self) -> Iterator[PersistedObjectSpace]:
        """Yield the space of each shard at the epoch; it is closed when the next one is asked for."""
        for shard in range(self.shards(self.epoch)):
            with self.open(shard, self.epoch) as store:
                yield PersistedObjectSpace(store, _at=store.reader(epoch=self._at(store, self.epoch)))

    def _at(self, store: CheckpointStore, epoch: int | None) -> int | None:
        """Return the epoch to read a store at, ``None`` for its newest."""
        # The cache of a shard stands at the epoch; its own last one is older if the shard has not changed since.
        return epoch if self.is_file and (epoch or store.next_epoch() > 1) else None

    def _columns_of(self, schema: TableSchema) -> StructType:
        struct = schema.to_spark()
        fields = {field["name"]: field for field in struct["fields"]}
        names = self.columns or tuple(fields)
        if missing := [name for name in names if name not in fields]:
            raise ObjectSpaceError(f"table {self.name!r} has no column {missing[0]!r}: it has {', '.join(fields)}")
        if len(set(names)) < len(names):
            raise ObjectSpaceError(f"the option columns is {', '.join(names)}: expected each column once")
        return StructType.fromJson({**struct, "fields": [fields[name] for name in names]})

    def batches(self, shard: int, epoch: int, bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield what one shard holds; of a table, what lies within bounds."""
        with self.open(shard, epoch) as store:
            at = self._at(store, epoch)
            space = PersistedObjectSpace(store, _at=store.reader(epoch=at))
            if self.kind == "table":
                name = self.table_in(space)
                if name is not None:
                    yield from self._table(StorageTable(store, name, None, at), store, bounds, at)
            elif self.kind == "kvt":
                yield from batched(entries(space, self.key_values_in(space) or ()), KEY_VALUE_ARROW)
            elif (found := self.object_in(space)) is not None:
                yield from batched(((shard, *pair) for pair in pairs(space.get(found))), OBJECT_ARROW)

    def _table(
        self, whole: StorageTable, store: CheckpointStore, bounds: Bounds, at: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield what a shard has of a table, which may have evolved in other shards only."""
        own, names = whole.schema, self.columns or (self.together or whole.schema).names
        read_as = self.together or (own if {*names} <= {*own.names} else self.table_schema())
        columns = [read_as.column(name) for name in names]
        table = StorageTable(store, whole.name, [name for name in names if name in own.names], at)
        if not all(one.name in own.names and own.column(one.name).type == one.type for one in columns):
            yield from filled(table, columns, bounds)
        else:
            yield from bounded(table, bounds) if bounds else table.to_batches(BATCH_ROWS)

    def chain(self) -> Chain:
        """Return the chain of the space, in the history that it was fixed in."""
        chain = Chain.open(shared_location(self.path, self.storage))
        if self.mark:
            self._require_fixed(History.of_space(chain))
        return chain

    def _require_fixed(self, history: History) -> None:
        """Refuse any history but the one in which the epoch was fixed."""
        history.require_loaded(Seen(self.epoch or 0, self.mark))

    def operator_in(self, chain: Chain) -> str:
        """Return the operator whose state is read.

        Raises:
            ObjectSpaceError: there is no epoch, or no such operator.
        """
        if chain.newest is None:
            raise ObjectSpaceError(f"{self.path} has no epoch yet: read it when its query has published one")
        names = sorted(name for name in chain.newest.lineage if name[0] != "$")
        found = self.operator
        if found is None:
            found = names[0] if len(names) == 1 else self._operator_named(names)
        if found not in names:
            raise ObjectSpaceError(
                f"{self.path}: there is no operator {found!r}: expected the option operator, or something that has the"
                f" name of its operator or begins with it: there are {', '.join(names) or 'none'}"
            )
        return found

    def _operator_named(self, operators: Sequence[str]) -> str:
        """Return the operator that the name itself tells, or the name: a whole one begins with it, a result has its."""
        middle = "/kvt/" if self.kind == "kvt" else "/"
        named = [one for one in operators if f"{self.name}/".startswith(one + middle)]
        return max(named, key=len, default=self.name)


_MOST_NAMED = 20

_APART = (
    "leave it out with the option columns, or name both there if they are two columns; or let each shard take a row"
    " with each version of its operator, and read an epoch from then on"
)
"""What to do if shards have no schema in common."""
