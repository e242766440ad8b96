"""The change feed of a table, in a space or a store file: its epochs, and the rows that changed in them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from checkpoint import CheckpointStore, CorruptStoreError
from checkpoint.chain import AcceptedRun, Chain, cache_root, fold, open_cache
from objectspace.errors import ObjectSpaceError
from objectspace.relational import StorageTable
from objectspace.spark.feed_columns import FeedColumns, Found
from objectspace.spark.feed_table import Place, Stored, has_changed, tables_at
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


def beginning(subject: Subject, start: Seen, end: Seen) -> Subject:
    """Return what is read by a feed that began before its table, with the table if it is there by now.

    It is that of the first epoch that has it, from the one that was read on. A feed that has read nothing begins with
    the table that there is at the end, at the first epoch since which no shard has lost it or made it again.

    Args:
        subject: the table.
        start: what the reader has seen.
        end: the last epoch to read.

    Raises:
        ObjectSpaceError: there are several tables of the name, or it has no such column.

    Time: that of opening each shard at each of the epochs that is looked at: O(log n) of them if nothing was read,
    else those until there is a table.
    """
    epochs = [epoch for epoch in subject.history().epochs if epoch <= end.epoch]
    if start.is_nothing:
        found = _unbroken_until(subject, epochs, end.epoch)
    else:
        later = (epoch for epoch in epochs if epoch >= start.epoch)
        found = next((epoch for epoch in later if subject.numbers_at(epoch) is not None), end.epoch)
    return subject.feeding_from(found)


def _unbroken_until(subject: Subject, epochs: Sequence[int], last: int) -> int:
    """Return the first of some epochs from which on no shard has another table than at the last one."""
    at_end = subject.numbers_at(last)
    if at_end is None:
        return last

    def _is_the_same(epoch: int) -> bool:
        numbers = subject.numbers_at(epoch)
        return numbers is not None and len(numbers) == len(at_end) and not has_changed(numbers, at_end)

    place = bisect_left(epochs, True, key=_is_the_same)  # No other object of a shard ever has the number.
    return epochs[place] if place < len(epochs) else last


def least_end(subject: Subject, history: History, epoch: int) -> int:
    """Return where the first trigger of a new feed may end: from then on each shard has the table of the start.

    What follows then need not know that the feed has left out others. In a shard that lacks the table, others may have
    its name before the start, and only a look at each epoch would tell.

    Args:
        subject: the table.
        history: the epochs that there are.
        epoch: where it would end.

    Time: O(1) if the feed began there, else that of opening each shard at O(log n) epochs.
    """
    fed = subject.fed
    if fed is None or fed.is_of_library or epoch >= fed.epoch:
        return epoch

    def is_followed(one: int) -> bool:
        """Return whether each shard has its table from an epoch up to the start."""
        return all(_is_unbroken(subject, span) for span in _up_to_start(subject, one))

    if is_followed(epoch):
        return epoch
    later = [one for one in history.epochs if epoch < one <= fed.epoch]
    return later[bisect_left(later, True, key=is_followed)]


def as_planned(subject: Subject, end: Seen) -> Subject:
    """Return what the first trigger of a feed reads, which was planned up to an epoch.

    A query that failed in its first trigger plans it again, up to the same epoch. If the table was made again
    meanwhile, then what the query began with is the one that was there at that epoch: what follows takes it for read.

    Args:
        subject: the table, as it was when this query started.
        end: the last epoch to read.

    Raises:
        ObjectSpaceError: the table that was there has other columns.

    Time: that of opening each shard at the end.
    """
    fed, rest = subject.fed, _up_to_start(subject, end.epoch)
    if fed is None or fed.is_of_library or not any(_is_broken(subject, span) for span in rest):
        return subject
    starts = subject.tables_at(end.epoch)
    for shard, table in enumerate(starts):
        if table is not None:  # The next trigger, which takes these rows back, would refuse other columns.
            fed.found_in(
                table, table, Place(shard, len(starts), end.epoch), f"table {subject.name!r} at epoch {end.epoch}"
            )
    return replace(subject, fed=replace(fed, epoch=end.epoch, starts=starts))


class Part(NamedTuple):
    """What one task reads.

    Args:
        shard: the shard.
        span: the epochs.
        only: of a new feed, the number that its table has in the shard up to the start of the feed, if it is there.
    """

    shard: int
    span: Span
    only: tuple[int, ...] | None = None


def parts(subject: Subject, start: Seen, spans: Sequence[Span]) -> list[Part]:
    """Return the shards of spans; those of a new feed begin with the table that is there at its start.

    Args:
        subject: the table.
        start: what the reader has seen.
        spans: the epochs.
    """
    fed = subject.fed
    if fed is None or not start.is_nothing or fed.is_of_library:
        return [Part(shard, span) for span in spans for shard in range(span.shards)]
    found = list[Part]()
    for place, span in reversed([*enumerate(spans)]):
        is_cut = place > 0 and _is_broken(subject, span)
        owns = _ends(subject, span)
        span = replace(span, is_whole=span.is_whole or is_cut)
        found[:0] = [Part(shard, span, () if own is None else (own,)) for shard, own in enumerate(owns)]
        if is_cut:  # Rows from before were in shards that other ones were made of: all that is left of them is here.
            break
    return found


def _up_to_start(subject: Subject, epoch: int) -> Iterable[Span]:
    """Return the epochs after one up to the start of a new feed."""
    start = epoch if subject.fed is None else subject.fed.epoch
    if subject.is_file:
        return [Span(epoch + 1, start, 1)] if epoch < start else []
    return spans_of(subject.chain(), epoch, start)


def _is_broken(subject: Subject, span: Span) -> bool:
    """Return whether a shard has another table before a span of a new feed than at its end, or at the start."""
    fed = subject.fed
    if fed is None or span.first > fed.epoch:
        return False
    return has_changed(subject.followed_at(span.first - 1), _ends(subject, span))


def _is_unbroken(subject: Subject, span: Span) -> bool:
    """Return whether each shard has the table before a span of a new feed that it has at its end, or at the start."""
    before = subject.followed_at(span.first - 1)
    return None not in before and [*before] == [*_ends(subject, span)]


def _ends(subject: Subject, span: Span) -> Sequence[int | None]:
    """Return the number of the table in each shard of a new feed at the end of a span, up to its start.

    As long as shards are those of the start, that is its number there: no shard may get another one after the span.
    """
    fed = subject.fed
    epoch = span.last if fed is None else fed.epoch
    if not subject.is_file:
        if span.first > epoch:
            return [None] * span.shards
        if span.last < epoch and not _has_same_shards(subject.chain(), span, epoch):
            return subject.followed_at(span.last)
    return subject.followed_at(epoch)


def _has_same_shards(chain: Chain, span: Span, epoch: int) -> bool:
    """Return whether the shards of a span are there up to an epoch after it."""
    return all(chain.shards_at(one) == span.shards for one in range(span.last + 1, epoch + 1))


def changes(subject: Subject, part: Part) -> _Batches:
    """Yield op, epoch and columns of the rows of a shard that changed in the epochs of a span.

    Args:
        subject: the table, with what the feed began with.
        part: the shard and the span.

    Raises:
        CheckpointError: the epochs belong to another history than those that the span was made of.
        UnknownCheckpointError: the epoch before the first was collected, maybe since the span was planned.
        CorruptStoreError: a run file is missing or damaged.

    Time: O(rows of the runs of these epochs), and what the cache of the machine lacks before them.
    """
    if subject.fed is None:
        raise ValueError(f"a part of the changes of {subject.name!r} was planned without a table")
    feed, span = _Feed(subject.fed, subject.name, part.only), part.span
    if subject.is_file:
        return _changes_of_file(subject, feed, span)
    chain = subject.chain()
    history, before = History.of_space(chain), span.first if span.is_whole else span.first - 1
    history.require(Seen(span.last, span.mark))
    _require_still_kept(history, before, span.last)
    place = Place(part.shard, span.shards, before)
    return _changes_of_shard(subject, chain, feed, place, span.last, is_whole=span.is_whole)


def _require_still_kept(history: History, before: int, last: int) -> None:
    """Make sure that a space still has the epochs after one up to another.

    Raises: as ``require_kept``.
    """
    if history.oldest > 1:  # Epoch 0, from which a feed may begin, is kept nowhere.
        require_kept(history.place, before, last, history.oldest)


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
            _fold_one(store, chain, accepted, before, last)
            yield from feed.changes_at(store, place._replace(epoch=accepted.epoch))


def _fold_one(store: CheckpointStore, chain: Chain, accepted: AcceptedRun, before: int, last: int) -> None:
    """Fold in one run of the epochs after one up to another.

    Raises:
        UnknownCheckpointError: a collection has removed some of them since the task began.
        CorruptStoreError: the run file is missing or damaged.
    """
    try:
        fold(store, chain.location, [accepted])
    except CorruptStoreError:
        # What a collection has removed is not damage: its floor, which is written first, shows that.
        _require_still_kept(History.of_space(Chain.open(chain.location)), before, last)
        raise


class _State(NamedTuple):
    """What a shard has at an epoch: the table of the feed, and the numbers of all."""

    epoch: int
    table: Stored | None
    numbers: Collection[int]


@dataclass
class _Feed:
    """Gives the rows and the changes of the table of a feed, epoch by epoch.

    Args:
        columns: the table and its columns at the start of the feed.
        name: what errors call the table.
        only: of a new feed, the number that the table has up to the start.
    """

    columns: FeedColumns
    name: str
    only: Collection[int] | None
    _last: _State | None = None

    def rows(self, store: CheckpointStore, place: Place, at: int | None = None) -> _Batches:
        """Yield all rows of the table as changes of an epoch: the rows at it, or at the end of the store."""
        table = self._state(store, place, at).table
        if table is not None:
            yield from self._all("+", store, table, place, at, self._found(table, table, place))

    def changes_at(self, store: CheckpointStore, place: Place) -> _Batches:
        """Yield the changes of an epoch that a store has as a checkpoint of its own."""
        epoch = place.epoch
        number = store.number_up_to(epoch - 1)
        former = place._replace(epoch=store.epoch_of(number))
        was = self._state(store, former, former.epoch) if number else _State(0, None, ())
        self._last = now = self._state(store, place, epoch)
        before, table = was.table, now.table
        if before is not None and table is not None and table.is_itself(before):
            found = self._found(table, before, place)
            changes = _reading(store, table, found, epoch).changes(epoch, epoch, before.name)
            yield from self._batches(found, epoch, halves(changes))
            return
        if before is not None and table is not None and table.number in was.numbers:
            raise ObjectSpaceError(
                f"{self._what(epoch)} was dropped, and {table.name!r} is another one now, which was there beside it:"
                " start another feed, with a new load() and another checkpointLocation"
            )
        found = [] if table is None else self._found(table, before, place)
        if before is not None:  # It is gone: nothing tells which of its rows are those of what took its place.
            yield from self._all("-", store, before, place, former.epoch, self._found(before, before, former))
        if table is not None:
            yield from self._all("+", store, table, place, epoch, found)

    def _state(self, store: CheckpointStore, place: Place, at: int | None) -> _State:
        """Return what is there at an epoch, or at the end of the store; what came of the epoch before is kept."""
        if self._last is not None and self._last.epoch == at:
            return self._last
        tables = tables_at(store, at)
        return _State(place.epoch, self.columns.table_in(tables, place, self.only), {*tables.numbers.values()})

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
