"""What a read through Spark names, in a space or a store file: its schema, its rows at an epoch, and its changes."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType

from checkpoint import CheckpointError, CheckpointStore
from checkpoint.address import local_path
from checkpoint.chain import Chain, cache_root, fold, open_cache
from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.operators.apply import OUTPUT
from objectspace.relational import SchemaMismatchError, StorageTable, TableSchema, tables
from objectspace.relational.united import united
from objectspace.spark.contents import BATCH_ROWS, KEY_VALUE_ARROW, OBJECT_ARROW, batched, pairs
from objectspace.spark.feed_columns import FeedColumns, Place
from objectspace.spark.history import History, Seen, kept_records
from objectspace.spark.key_values import Parts, entries, key_value_tables
from objectspace.spark.pushdown import Bounds
from objectspace.spark.routes import PIPELINE
from objectspace.spark.spans import Span, require_kept, spans_of
from objectspace.spark.storage import absolute, require_known, shared_location, storage_options
from objectspace.spark.table_rows import Changes, bounded, filled, halves

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

FEED = StructType().add("op", StringType()).add("epoch", LongType())
"""The columns that a change feed has before those of the table."""

_SUBJECTS = ("table", "object", "kvt")

_OPTIONS = (*_SUBJECTS, "path", "operator", "columns", "epoch", "pushdown", "changes", "maxEpochsPerTrigger")
"""The options of a read, apart from those for the file system."""

_OF_TABLES = ("columns", "pushdown", "changes", "maxEpochsPerTrigger")

_MEANINGLESS = {
    "the table": ("maxEpochsPerTrigger",),
    "the changes of the table": ("epoch", "pushdown"),
    "the object": _OF_TABLES,
    "the key-value table": _OF_TABLES,
}
"""For each kind of read, the options that have no meaning for it."""

_SWITCHES = ("changes", "pushdown")
"""Options that are off by default: saying so has a meaning for every read."""


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
        fed: of a change feed, the columns as the table had them at the start of the feed.
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
        require_known(options, _OPTIONS)
        kind = _kind_of(options)
        _require_meaning(options, kind)
        columns, epoch = options.get("columns"), options.get("epoch")
        if columns is not None and not columns.strip():
            raise ObjectSpaceError("the option columns is empty: expected names of columns, with commas between them")
        if epoch is not None and not epoch.isdecimal():
            raise ObjectSpaceError(f"the option epoch is {epoch!r}: expected a whole number from 0 on")
        names = tuple(name.strip() for name in columns.split(",")) if columns else None
        number = None if epoch is None else int(epoch)
        subject = absolute(options["path"]), kind, options[kind], options.get("operator")
        return cls(*subject, names, number, storage_options(options))

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
        return 1 if self.is_file else self._chain().shards_at(epoch)

    def epochs(self) -> tuple[int, int]:
        """Return the oldest epoch from which on all can be read, and the newest."""
        history = self.history()
        return history.oldest, history.newest

    def history(self) -> History:
        """Return the epochs that exist now, with what tells them from those of another history."""
        return History.of_file(self.path) if self.is_file else History.of_space(self._chain())

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
        chain = self._chain()
        with open_cache(chain.operator_plan(self._operator(chain), epoch), shard) as store:
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
        if taken := [name for name in found.names if name in FEED.names]:
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
            return subject._feeding_from(subject.epochs()[1])
        except CheckpointError:  # The space may be made later.
            return subject

    def _feeding_from(self, epoch: int) -> Subject:
        """Return the same for a change feed with the columns that the table has at an epoch, if it exists."""
        try:
            schemas = replace(self, epoch=epoch)._schemas()
        except (CheckpointError, ObjectSpaceError):  # It may be made later.
            return self
        schema = self._united(schemas)
        self._columns_of(schema)
        columns = tuple(schema.column(name) for name in self.columns or schema.names)
        return replace(self, fed=FeedColumns(columns, epoch, schemas))

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
        known: set[str] = set()
        found: list[TableSchema | None] = []
        for space in self._spaces():
            there, name = tables(space), self.table_in(space)
            found.append(None if name is None else there[name].schema)
            if name is not None and self._is_of_library(name, there):
                return (found[-1],) * self.shards(self.epoch)
            known.update(there)
        if any(found):
            return tuple(found)
        raise ObjectSpaceError(
            f"{self.path} has no table {self.name!r} at this epoch: there are {', '.join(sorted(known)) or 'none'}"
        )

    def _is_of_library(self, name: str, there: Container[str]) -> bool:
        """Return whether a table is a result, whose schema follows from the pipeline, and not made by a user's code."""
        chain = None if self.is_file else self._chain()
        if chain is None or chain.newest is None or PIPELINE not in chain.newest.lineage:
            return False
        operator = self._operator(chain)
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
            f"{self.path} has no {_CALLED[self.kind]} {self.name!r} at this epoch: its objects are"
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

    def spans(self, start: Seen, end: Seen) -> list[Span]:
        """Return the epochs after one up to another, cut so that each span has one number of shards.

        Args:
            start: what the reader has seen.
            end: the last epoch to read.

        Raises:
            CheckpointError: what the reader has seen, or was to read, belongs to another history than what is there.
            UnknownCheckpointError: epochs that the reader has not seen yet were collected.
        """
        if end.epoch <= start.epoch:
            return []
        chain = None if self.is_file else self._chain()
        history = History.of_file(self.path) if chain is None else History.of_space(chain)
        for known in (start, end):
            history.require(known)
        if chain is not None:
            found = list(spans_of(chain, start.epoch, end.epoch))
        else:
            require_kept(history.place, start.epoch, end.epoch, history.oldest)
            found = [Span(start.epoch + 1, end.epoch, 1)]  # The task finds out what is there before the first of them.
        return [replace(span, mark=history.seen(span.last).mark) for span in found]

    def changes(self, shard: int, span: Span) -> Iterator[pa.RecordBatch]:
        """Yield op, epoch and columns of the rows of a shard that changed in the epochs of a span.

        Raises:
            CheckpointError: the epochs belong to another history than those that the span was made of.
            UnknownCheckpointError: the epoch before the first is no longer kept.
            CorruptStoreError: a run file is missing or damaged.

        Time: O(rows of the runs of these epochs), and what the cache of the machine lacks before them.
        """
        if self.is_file:
            return self._changes_of_file(span)
        chain = self._chain()
        History.of_space(chain).require(Seen(span.last, span.mark))
        before = span.first if span.is_whole else span.first - 1
        place = Place(shard, span.shards, before)
        return self._changes_of_shard(chain, place, span.last, is_whole=span.is_whole)

    def _changes_of_file(self, span: Span) -> Iterator[pa.RecordBatch]:
        after = span.first - 1
        with self.open(0) as store:
            # Of the snapshot that gives the rows: the file may have dropped epochs since the plan was made.
            history, kept = History.of_store(store), kept_records(store)
            history.require(Seen(span.last, span.mark))
            require_kept(history.place, after, span.last, history.oldest)
            if after < history.oldest and kept[0].number > 1:
                yield from self._rows(store, Place(0, 1, history.oldest), at=history.oldest)
                after = history.oldest
            for record in kept:
                if after < record.epoch <= span.last:
                    yield from self._changes_at(store, Place(0, 1, record.epoch))

    def _changes_of_shard(self, chain: Chain, place: Place, last: int, *, is_whole: bool) -> Iterator[pa.RecordBatch]:
        operator, (shard, _, before) = self._operator(chain), place
        # Caches of its own: a feed and a pipeline on one machine would wait for each other, and be at different epochs.
        plan = chain.operator_plan(operator, before, cache=str(cache_root() / "feeds"))
        if not before:
            # Before its first epoch a copy may say that it had the number of shards of its last one.
            plan = replace(plan, lineages=((),) * chain.shards_at(1))
        runs = chain.runs(operator, shard, before + 1, last)
        with open_cache(plan, shard, () if is_whole else runs) as store:
            if is_whole:
                yield from self._rows(store, place)
            for accepted in runs:
                schema = self._schema_in(store, None)
                # One by one: a cache reads only its last states, and an image knows nothing of what led to it.
                fold(store, plan.location, [accepted])
                yield from self._changes_at(store, place._replace(epoch=accepted.epoch), schema)

    def _rows(self, store: CheckpointStore, place: Place, at: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows of the table as changes of an epoch: the rows at it, or at the end of the store."""
        return self._fed(store, place, at, lambda table: (("+", row) for row in table.scan()))

    def _changes_at(
        self, store: CheckpointStore, place: Place, before: TableSchema | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the changes of an epoch that a store has as a checkpoint of its own."""
        epoch = place.epoch
        return self._fed(store, place, epoch, lambda table: halves(table.changes(epoch, epoch)), before)

    def _fed(
        self,
        store: CheckpointStore,
        place: Place,
        at: int | None,
        changes: Callable[[StorageTable], Changes],
        before: TableSchema | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield changes with the columns of the feed; those that the table did not have yet get their defaults."""
        name = self.table_in(PersistedObjectSpace(store, _at=store.reader(epoch=at)))
        if name is None:
            return
        schema = StorageTable(store, name, None, at).schema
        columns = self.fed or self._columns_at(schema, place)
        what = f"table {self.name!r} at epoch {place.epoch}"
        found = columns.found_in(schema, before, place, what)
        table = StorageTable(store, name, [one.stored.name for one in found if one.stored is not None], at)
        try:
            found_changes = changes(table)
        except SchemaMismatchError:  # It was made again, as another table: a feed that begins later goes past that.
            if place.epoch > columns.epoch:
                raise
            yield from self._left(store, place, columns, what)
            found_changes = (("+", row) for row in table.scan())
        yield from columns.batches(found, place.epoch, found_changes, what)

    def _columns_at(self, schema: TableSchema, place: Place) -> FeedColumns:
        """Return the columns of a feed that began before its table, which has each epoch as it is there."""
        names = self.columns or schema.names
        if not {*names} <= {*schema.names} and (found := self._feeding_from(place.epoch).fed) is not None:
            return found  # Other shards have them.
        columns = tuple(schema.column(name) for name in names)
        return FeedColumns(columns, place.epoch, (schema,) * place.shards)

    def _left(self, store: CheckpointStore, place: Place, columns: FeedColumns, what: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows that a table had before an epoch as rows that go."""
        at = store.epoch_of(store.number_up_to(place.epoch - 1))
        name = self.table_in(PersistedObjectSpace(store, _at=store.reader(epoch=at)))
        assert name is not None
        found = columns.found_in(StorageTable(store, name, None, at).schema, None, place, what)
        table = StorageTable(store, name, [one.stored.name for one in found if one.stored is not None], at)
        yield from columns.batches(found, place.epoch, (("-", row) for row in table.scan()), what)

    def _schema_in(self, store: CheckpointStore, at: int | None) -> TableSchema | None:
        """Return the schema that the table has in a store, ``None`` if it is not there."""
        if store.next_epoch() <= 1:
            return None
        name = self.table_in(PersistedObjectSpace(store, _at=store.reader(epoch=at)))
        return None if name is None else StorageTable(store, name, None, at).schema

    def _chain(self) -> Chain:
        chain = Chain.open(shared_location(self.path, self.storage))
        if self.mark:
            self._require_fixed(History.of_space(chain))
        return chain

    def _require_fixed(self, history: History) -> None:
        """Refuse any history but the one in which the epoch was fixed."""
        history.require_loaded(Seen(self.epoch or 0, self.mark))

    def _operator(self, chain: Chain) -> str:
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
        first, _, rest = self.name.partition("/")
        is_scope = self.kind == "kvt" and not rest.startswith("kvt/")
        return first if first in operators and not is_scope else self.name


def is_set(options: Mapping[str, str], name: str) -> bool:
    """Return whether an option is ``true``.

    Raises:
        ObjectSpaceError: it is neither ``true`` nor ``false``.
    """
    given = options.get(name, "false")
    if given.lower() not in ("true", "false"):
        raise ObjectSpaceError(f"the option {name} is {given!r}: expected true or false")
    return given.lower() == "true"


def _kind_of(options: Mapping[str, str]) -> str:
    """Return which option names what to read, at the location that is there."""
    if "path" not in options:
        raise ObjectSpaceError("load() lacks a location: give the one of a space, or the path of a store file")
    given = [kind for kind in _SUBJECTS if kind in options]
    if not given:
        raise ObjectSpaceError("load(location) takes one of the options table, object and kvt: name what to read")
    if len(given) > 1:
        found = " and ".join(f"{kind}={options[kind]!r}" for kind in given)
        raise ObjectSpaceError(
            f"load(location) takes one of the options table, object and kvt: found {found}: give one; a reader keeps"
            " its options, so begin with a new spark.read or spark.readStream"
        )
    return given[0]


def _require_meaning(options: Mapping[str, str], kind: str) -> None:
    """Refuse an option that would be silently ignored because it has no meaning for what is read."""
    read = (
        f"the {_CALLED[kind]}" if not (kind == "table" and is_set(options, "changes")) else "the changes of the table"
    )
    for name in _MEANINGLESS[read]:
        is_default = name in _SWITCHES and options.get(name, "").lower() == "false"
        if name in options and not is_default:
            what = "leave it out" if read != "the table" else "pass changes=true with it, or leave it out"
            raise ObjectSpaceError(f"the option {name} has no meaning where {read} {options[kind]!r} is read: {what}")


_CALLED, _MOST_NAMED = {"table": "table", "object": "object", "kvt": "key-value table"}, 20

_APART = (
    "leave it out with the option columns, or name both there if they are two columns; or let each shard take a row"
    " with each version of its operator, and read an epoch from then on"
)
"""What to do if shards have no schema in common."""
