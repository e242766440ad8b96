"""The change feed of a table, in a space or a store file: its epochs, and the rows that changed in them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from checkpoint import CheckpointStore
from checkpoint.chain import Chain, cache_root, fold, open_cache
from objectspace.relational import StorageTable
from objectspace.spark.feed_columns import FeedColumns, Found
from objectspace.spark.feed_table import Place, Stored, tables_at
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


def beginning(subject: Subject, start: Seen, end: Seen) -> FeedColumns | None:
    """Return the table of a feed that began before it, at the first of some epochs that has it, ``None`` if none has.

    Args:
        subject: the table.
        start: what the reader has seen.
        end: the last of the epochs.

    Raises:
        ObjectSpaceError: there are several tables of the name, or it has no such column.

    Time: that of opening each shard at O(log n) of the epochs.
    """
    epochs = [one for one in subject.history().epochs if (start.is_nothing or one > start.epoch) and one <= end.epoch]
    place = bisect_left(epochs, True, key=subject.is_there)
    return subject.feeding_from(epochs[place] if place < len(epochs) else end.epoch).fed


def changes(subject: Subject, shard: int, span: Span) -> _Batches:
    """Yield op, epoch and columns of the rows of a shard that changed in the epochs of a span.

    Raises:
        CheckpointError: the epochs belong to another history than those that the span was made of.
        UnknownCheckpointError: the epoch before the first is no longer kept.
        CorruptStoreError: a run file is missing or damaged.

    Time: O(rows of the runs of these epochs), and what the cache of the machine lacks before them.
    """
    subject = subject if subject.fed is not None else subject.feeding_from(span.last)
    if subject.fed is None:
        return iter(())
    feed = _Feed(subject.fed, subject.name)
    if subject.is_file:
        return _changes_of_file(subject, feed, span)
    chain = subject.chain()
    History.of_space(chain).require(Seen(span.last, span.mark))
    before = span.first if span.is_whole else span.first - 1
    place = Place(shard, span.shards, before)
    return _changes_of_shard(subject, chain, feed, place, span.last, is_whole=span.is_whole)


def _before(span: Span) -> int | None:
    """Return the epoch that the reader of a store file has seen, ``None`` if it has seen nothing."""
    return None if span.is_whole else span.first - 1


def _changes_of_file(subject: Subject, feed: _Feed, span: Span) -> _Batches:
    after = _before(span)
    with subject.open(0) as store:
        # Of the snapshot that gives the rows: the file may have dropped epochs since the plan was made.
        history, kept = History.of_store(store), kept_records(store)
        history.require(Seen(span.last, span.mark))
        require_kept(history.place, after, span.last, history.oldest)
        if after is None and kept[0].number > 1:
            yield from feed.rows(store, Place(0, 1, history.oldest), at=history.oldest)
            after = history.oldest
        for record in kept:
            if (after is None or after < record.epoch) and record.epoch <= span.last:
                yield from feed.changes_at(store, Place(0, 1, record.epoch))


def _changes_of_shard(
    subject: Subject, chain: Chain, feed: _Feed, place: Place, last: int, *, is_whole: bool
) -> _Batches:
    operator, (shard, _, before) = subject.operator_in(chain), place
    # Caches of its own: a feed and a pipeline on one machine would wait for each other, and be at different epochs.
    plan = chain.operator_plan(operator, before, cache=str(cache_root() / "feeds"))
    if not before:
        # Before its first epoch a copy may say that it had the number of shards of its last one.
        plan = replace(plan, lineages=((),) * chain.shards_at(1))
    runs = chain.runs(operator, shard, before + 1, last)
    with open_cache(plan, shard, () if is_whole else runs) as store:
        if is_whole:
            yield from feed.rows(store, place)
        for accepted in runs:
            # One by one: a cache reads only its last states, and an image knows nothing of what led to it.
            fold(store, plan.location, [accepted])
            yield from feed.changes_at(store, place._replace(epoch=accepted.epoch))


class _Feed(NamedTuple):
    """Gives the rows and the changes of the table of a feed.

    Args:
        columns: the table and its columns at the start of the feed.
        name: what errors call the table.
    """

    columns: FeedColumns
    name: str

    def rows(self, store: CheckpointStore, place: Place, at: int | None = None) -> _Batches:
        """Yield all rows of the table as changes of an epoch: the rows at it, or at the end of the store."""
        table = self.columns.table_in(tables_at(store, at), place)
        if table is not None:
            yield from self._all("+", store, table, place, at, self._found(table, table, place))

    def changes_at(self, store: CheckpointStore, place: Place) -> _Batches:
        """Yield the changes of an epoch that a store has as a checkpoint of its own."""
        epoch = place.epoch
        table = self.columns.table_in(tables_at(store, epoch), place)
        if table is None:
            return
        number = store.number_up_to(epoch - 1)
        former = place._replace(epoch=store.epoch_of(number))
        before = self.columns.table_in(tables_at(store, former.epoch), former) if number else None
        found = self._found(table, before, place)
        if before is not None and table.is_itself(before):
            changes = _reading(store, table, found, epoch).changes(epoch, epoch, before.name)
            yield from self._batches(found, epoch, halves(changes))
            return
        if before is not None:  # It was made again: nothing tells which of its rows are still the same.
            yield from self._all("-", store, before, place, former.epoch, self._found(before, before, former))
        yield from self._all("+", store, table, place, epoch, found)

    def _all(
        self, op: str, store: CheckpointStore, table: Stored, place: Place, at: int | None, found: Sequence[Found]
    ) -> _Batches:
        changes = ((op, row) for row in _reading(store, table, found, at).scan())
        return self._batches(found, place.epoch, changes)

    def _found(self, table: Stored, before: Stored | None, place: Place) -> list[Found]:
        return self.columns.found_in(table, before, place, self._what(place.epoch))

    def _batches(self, found: Sequence[Found], epoch: int, changes: Changes) -> _Batches:
        return self.columns.batches(found, epoch, changes, self._what(epoch))

    def _what(self, epoch: int) -> str:
        return f"table {self.name!r} at epoch {epoch}"


def _reading(store: CheckpointStore, table: Stored, found: Sequence[Found], at: int | None) -> StorageTable:
    """Return what reads the columns that were found."""
    return StorageTable(store, table.name, [one.stored.name for one in found if one.stored is not None], at)
