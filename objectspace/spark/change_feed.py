"""The change feed of a table, in a space or a store file: its epochs, and the rows that changed in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from checkpoint import CheckpointStore
from checkpoint.chain import Chain, cache_root, fold, open_cache
from objectspace import PersistedObjectSpace
from objectspace.relational import SchemaMismatchError, StorageTable, TableSchema
from objectspace.spark.feed_columns import FeedColumns, Place
from objectspace.spark.history import History, Seen, kept_records
from objectspace.spark.spans import Span, require_kept, spans_of
from objectspace.spark.subject import Subject
from objectspace.spark.table_rows import Changes, halves

_Batches = Iterator[pa.RecordBatch]


def spans(subject: Subject, start: Seen, end: Seen) -> list[Span]:
    """Return the epochs after one up to another, cut so that each span has one number of shards.

    Args:
        subject: the table.
        start: what the reader has seen.
        end: the last epoch to read.

    Raises:
        CheckpointError: what the reader has seen, or was to read, belongs to another history than what is there.
        UnknownCheckpointError: epochs that the reader has not seen yet were collected.
    """
    if not end.is_after(start):
        return []
    chain = None if subject.is_file else subject.chain()
    history = History.of_file(subject.path) if chain is None else History.of_space(chain)
    for known in (start, end):
        history.require(known)
    if chain is not None:
        found = list(spans_of(chain, start.epoch, end.epoch))
    else:
        # The task finds out what is there before the first of them.
        found = [Span(start.epoch + 1, end.epoch, 1, is_whole=start.is_nothing)]
        require_kept(history.place, _before(found[0]), end.epoch, history.oldest)
    return [replace(span, mark=history.seen(span.last).mark) for span in found]


def changes(subject: Subject, shard: int, span: Span) -> _Batches:
    """Yield op, epoch and columns of the rows of a shard that changed in the epochs of a span.

    Raises:
        CheckpointError: the epochs belong to another history than those that the span was made of.
        UnknownCheckpointError: the epoch before the first is no longer kept.
        CorruptStoreError: a run file is missing or damaged.

    Time: O(rows of the runs of these epochs), and what the cache of the machine lacks before them.
    """
    if subject.is_file:
        return _changes_of_file(subject, span)
    chain = subject.chain()
    History.of_space(chain).require(Seen(span.last, span.mark))
    before = span.first if span.is_whole else span.first - 1
    place = Place(shard, span.shards, before)
    return _changes_of_shard(subject, chain, place, span.last, is_whole=span.is_whole)


def _before(span: Span) -> int | None:
    """Return the epoch that the reader of a store file has seen, ``None`` if it has seen nothing."""
    return None if span.is_whole else span.first - 1


def _changes_of_file(subject: Subject, span: Span) -> _Batches:
    after = _before(span)
    with subject.open(0) as store:
        # Of the snapshot that gives the rows: the file may have dropped epochs since the plan was made.
        history, kept = History.of_store(store), kept_records(store)
        history.require(Seen(span.last, span.mark))
        require_kept(history.place, after, span.last, history.oldest)
        if after is None and kept[0].number > 1:
            yield from _rows(subject, store, Place(0, 1, history.oldest), at=history.oldest)
            after = history.oldest
        for record in kept:
            if (after is None or after < record.epoch) and record.epoch <= span.last:
                yield from _changes_at(subject, store, Place(0, 1, record.epoch))


def _changes_of_shard(subject: Subject, chain: Chain, place: Place, last: int, *, is_whole: bool) -> _Batches:
    operator, (shard, _, before) = subject.operator_in(chain), place
    # Caches of its own: a feed and a pipeline on one machine would wait for each other, and be at different epochs.
    plan = chain.operator_plan(operator, before, cache=str(cache_root() / "feeds"))
    if not before:
        # Before its first epoch a copy may say that it had the number of shards of its last one.
        plan = replace(plan, lineages=((),) * chain.shards_at(1))
    runs = chain.runs(operator, shard, before + 1, last)
    with open_cache(plan, shard, () if is_whole else runs) as store:
        if is_whole:
            yield from _rows(subject, store, place)
        for accepted in runs:
            # Not that of the newest state: the cache may be ahead, by what another reader or an attempt has folded in.
            schema = _schema_before(subject, store, accepted.epoch)
            # One by one: a cache reads only its last states, and an image knows nothing of what led to it.
            fold(store, plan.location, [accepted])
            yield from _changes_at(subject, store, place._replace(epoch=accepted.epoch), schema)


def _rows(subject: Subject, store: CheckpointStore, place: Place, at: int | None = None) -> _Batches:
    """Yield all rows of the table as changes of an epoch: the rows at it, or at the end of the store."""
    return _fed(subject, store, place, at, lambda table: (("+", row) for row in table.scan()))


def _changes_at(subject: Subject, store: CheckpointStore, place: Place, before: TableSchema | None = None) -> _Batches:
    """Yield the changes of an epoch that a store has as a checkpoint of its own."""
    epoch = place.epoch
    return _fed(subject, store, place, epoch, lambda table: halves(table.changes(epoch, epoch)), before)


def _fed(
    subject: Subject,
    store: CheckpointStore,
    place: Place,
    at: int | None,
    changes_of: Callable[[StorageTable], Changes],
    before: TableSchema | None = None,
) -> _Batches:
    """Yield changes with the columns of the feed; those that the table did not have yet get their defaults."""
    name = subject.table_in(PersistedObjectSpace(store, _at=store.reader(epoch=at)))
    if name is None:
        return
    schema = StorageTable(store, name, None, at).schema
    columns = subject.fed or _columns_at(subject, schema, place)
    what = f"table {subject.name!r} at epoch {place.epoch}"
    found = columns.found_in(schema, before, place, what)
    table = StorageTable(store, name, [one.stored.name for one in found if one.stored is not None], at)
    try:
        found_changes = changes_of(table)
    except SchemaMismatchError:  # It was made again, as another table: a feed that begins later goes past that.
        if place.epoch > columns.epoch:
            raise
        yield from _left(subject, store, place, columns, what)
        found_changes = (("+", row) for row in table.scan())
    yield from columns.batches(found, place.epoch, found_changes, what)


def _columns_at(subject: Subject, schema: TableSchema, place: Place) -> FeedColumns:
    """Return the columns of a feed that began before its table, which has each epoch as it is there."""
    names = subject.columns or schema.names
    if not {*names} <= {*schema.names} and (found := subject.feeding_from(place.epoch).fed) is not None:
        return found  # Other shards have them.
    columns = tuple(schema.column(name) for name in names)
    return FeedColumns(columns, place.epoch, (schema,) * place.shards)


def _left(subject: Subject, store: CheckpointStore, place: Place, columns: FeedColumns, what: str) -> _Batches:
    """Yield the rows that a table had before an epoch as rows that go."""
    at = store.epoch_of(store.number_up_to(place.epoch - 1))
    name = subject.table_in(PersistedObjectSpace(store, _at=store.reader(epoch=at)))
    assert name is not None
    found = columns.found_in(StorageTable(store, name, None, at).schema, None, place, what)
    table = StorageTable(store, name, [one.stored.name for one in found if one.stored is not None], at)
    yield from columns.batches(found, place.epoch, (("-", row) for row in table.scan()), what)


def _schema_before(subject: Subject, store: CheckpointStore, epoch: int) -> TableSchema | None:
    """Return the schema that the table had in a store just before an epoch, ``None`` if it was not there."""
    number = store.number_up_to(epoch - 1)
    return _schema_in(subject, store, store.epoch_of(number)) if number else None


def _schema_in(subject: Subject, store: CheckpointStore, at: int | None) -> TableSchema | None:
    """Return the schema that the table has in a store, ``None`` if it is not there."""
    if store.next_epoch() <= 1:
        return None
    name = subject.table_in(PersistedObjectSpace(store, _at=store.reader(epoch=at)))
    return None if name is None else StorageTable(store, name, None, at).schema
