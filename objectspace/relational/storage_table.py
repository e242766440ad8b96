"""The storage table: reads what is committed of a table at one epoch."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

import orjson

from checkpoint import CheckpointStore, Reader, UnknownCheckpointError
from checkpoint.process import collecting_seldom
from checkpoint.run import Payload, Slot
from objectspace import PersistedObjectSpace
from objectspace.extras import require
from objectspace.objects.scans import in_pages
from objectspace.relational.catalogue import TableRecord
from objectspace.relational.equality import Equal, equality
from objectspace.relational.errors import RowError, SchemaError, SchemaMismatchError
from objectspace.relational.evolution import difference, why_not_evolved, why_not_made_again
from objectspace.relational.key_space import KeySpace
from objectspace.relational.keys import INCLUSIVE, KeyRange, check_inclusive
from objectspace.relational.memtable import Kind, Operation
from objectspace.relational.row_store import key_of, slot_of, text_of, texts_of
from objectspace.relational.schema import Row, TableSchema
from objectspace.relational.visibility import Visibility
from objectspace.relational.vnodes import VnodeBitmap
from objectspace.relational.watermarks import used_bits
from objectspace.space import TABLES, WATERMARKS, may_be_table

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa

BATCH_ROWS = 8192
"""The default number of rows of a batch."""


class StorageTable:
    """A table as it was committed at an epoch; later commits do not change what it reads.

    Args:
        store: the store, or a space on it.
        name: the name of the table.
        columns: the names of the columns that rows have, in this order; all by default.
        epoch: the epoch, by default the last one; if it has no checkpoint, the newest checkpoint before it is read.

    Raises:
        SchemaMismatchError: there is no such table at that epoch.
        SchemaError: at that epoch it has no column of one of the names.
        UnknownCheckpointError: the epoch is not committed yet, is before the first one, or its rows were merged into a
            newer checkpoint.

    >>> from objectspace.relational import Column, StateTable
    >>> store = CheckpointStore(":memory:"); space = PersistedObjectSpace(store)
    >>> table = StateTable(space, "t", TableSchema([Column("a", "int64"), Column("b", "string")], ["a"]))
    >>> table.insert_row((2, "x")); table.insert_row((1, "y")); table.commit(epoch=1)
    >>> _ = space.checkpoint(epoch=1)
    >>> list(StorageTable(store, "t", columns=["b"], epoch=1).scan())
    [('y',), ('x',)]
    """

    def __init__(
        self,
        store: CheckpointStore | PersistedObjectSpace,
        name: str,
        columns: Sequence[str] | None = None,
        epoch: int | None = None,
    ) -> None:
        self._store = store.store if isinstance(store, PersistedObjectSpace) else store
        self.name = name
        self._view = _View(self._store, _reader_at(self._store, epoch), name)
        schema = self._view.record.schema
        if isinstance(columns, str):
            raise SchemaError(f"table {name!r}: columns are names, such as [{columns!r}]: found {columns!r}")
        self.columns = tuple(schema.names if columns is None else columns)
        try:
            self._places = tuple(schema.place_of(column) for column in self.columns)
        except SchemaError as error:
            raise SchemaError(f"table {name!r}: {error}") from None

    @property
    def schema(self) -> TableSchema:
        """The schema of the table at the epoch, with all its columns."""
        return self._view.record.schema

    @property
    def epoch(self) -> int:
        """The epoch that is read; 0 if nothing was committed yet."""
        return self._view.epoch

    def get_row(self, key: Sequence[Any]) -> Row | None:
        """Return the row of a whole primary key, or ``None`` if there is none.

        Raises:
            RowError: the key does not fit the schema.

        Time: O(live runs · log n).
        """
        row = self._view.row(self._view.keys.checked(key))
        return None if row is None else self._output(row)

    def scan(
        self,
        prefix: Sequence[Any] = (),
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        inclusive: tuple[bool, bool] = INCLUSIVE,
        reverse: bool = False,
    ) -> Iterator[Row]:
        """Return an iterator over rows in key order; a distributed table is merged over its vnodes.

        Bounds are those of SQL: they compare values, whatever the direction of the column. Nothing compares with NULL,
        so a bounded range has no row in which a NULL would decide, nor one about which a NULL in the bound would
        decide.

        Args:
            prefix: values of the leading key columns that all rows have; ``None`` stands for NULL.
            lower: the least values of the key columns after the prefix, for as many of them as wanted.
            upper: the greatest values, likewise.
            inclusive: whether the bounds themselves belong to the range.
            reverse: whether to go backwards.

        Raises:
            RowError: a value does not fit the schema, or a bound covers columns of different directions.

        Time: O(log n), and O(1) per row; also per one that is passed over: deleted by a run that is not merged yet, or
        hidden by a watermark that does not lead the key.
        """
        check_inclusive(self.name, inclusive)
        rows = self._view.rows(*self._view.keys.checked_range(prefix, lower, upper), inclusive, reverse)
        return rows if self.columns == self.schema.names else map(self._output, rows)

    def to_batches(self, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Return an iterator over Arrow batches of the table in key order. Requires pyarrow, and memory for one batch.

        Raises:
            ValueError: a batch would have no rows.
        """
        if not isinstance(batch_rows, int) or batch_rows < 1:
            raise ValueError(f"table {self.name!r}: batch_rows is {batch_rows!r}: expected a number of rows from 1")
        return self._batches(batch_rows)

    def _batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        schema = self.arrow_schema()
        for texts in self._view.text_pages(batch_rows):
            yield self._batch(texts, schema)

    @collecting_seldom()
    def _batch(self, texts: list[str], schema: pa.Schema) -> pa.RecordBatch:
        """Return stored rows as a batch."""
        from objectspace.relational import arrow

        columns = [self.schema.columns[place] for place in self._places]
        cells = self._view.codec.cells(texts, self._places)
        arrays = [arrow.array_of_cells(cell, column) for cell, column in zip(cells, columns, strict=True)]
        return arrow.batch_of(arrays, schema, len(texts))

    @collecting_seldom()
    def to_arrow(self) -> pa.Table:
        """Return the whole table in key order as an Arrow table. Requires pyarrow."""
        require("pyarrow", "arrow")
        import pyarrow as pa

        return pa.Table.from_batches(self.to_batches(), self.arrow_schema())

    def to_pandas(self) -> pd.DataFrame:
        """Return the whole table in key order as a data frame. Requires pyarrow and pandas."""
        require("pandas", "spark")
        return self.to_arrow().to_pandas()

    def arrow_schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows that are read. Requires pyarrow."""
        require("pyarrow", "arrow")
        from objectspace.relational import arrow

        return arrow.schema_of([self.schema.columns[place] for place in self._places])

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Provide the whole table to any reader of Arrow streams, such as DuckDB, Polars or pyarrow."""
        require("pyarrow", "arrow")
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_batches(self.arrow_schema(), self.to_batches())
        return reader.__arrow_c_stream__(requested_schema)

    def changes(self, from_epoch: int, to_epoch: int, former_name: str | None = None) -> Iterator[Operation]:
        """Yield the net change of each key from one epoch to another, both included, in key order.

        Each is an :class:`Operation`, a tuple ``(kind, old, new)``: the kind is a :class:`Kind`, and the rows before
        and after are tuples. The old row of an insert and the new row of a delete are ``None``.

        The changes do not mention rows that were inserted and deleted in between, rows that a watermark has come to
        hide, rows that changed only in other columns, or values replaced by values that are equal in SQL, such as 1.0
        by 1.00. Across an epoch in which the table was renamed every row comes as an insert, because there was no table
        of this name before, unless its former name is given. Both epochs are read with the schema at ``to_epoch``, and
        rows have the columns of this storage table.

        Args:
            from_epoch: the first epoch.
            to_epoch: the last epoch.
            former_name: the name that the table had before the first epoch, by default that which it has now.

        Raises:
            RowError: ``from_epoch`` is after ``to_epoch``.
            SchemaMismatchError: the table was dropped in between and made again with another schema.
            SchemaError: at ``to_epoch`` it had no column of the name of one of this storage table.
            UnknownCheckpointError: ``to_epoch`` is not committed yet, or the state before ``from_epoch`` was merged or
                pruned; the state before epoch 1 is known if epochs are the numbers of their checkpoints.

        Time: O(rows that the checkpoints in between wrote · log n); O(rows of the table) if one of them is full.
        """
        if not isinstance(from_epoch, int) or not isinstance(to_epoch, int):
            raise RowError(f"changes from epoch {from_epoch!r} to {to_epoch!r}: expected two whole numbers")
        if from_epoch > to_epoch:
            raise RowError(f"changes from epoch {from_epoch} to {to_epoch}: the first is after the last")
        self._require_epoch(to_epoch)
        first, last = self._number_before(from_epoch), self._store.number_up_to(to_epoch)
        if first == last:
            return iter(())
        after = _View(self._store, self._store.reader(last), self.name)
        self._require_columns(after.record.schema, to_epoch)
        before = None if not first else _earlier(self._store, first, former_name or self.name, after)
        return self._net(before, after)

    def __repr__(self) -> str:
        return f"StorageTable({self.name!r}, epoch {self.epoch}, columns {', '.join(self.columns)})"

    def _net(self, before: _View | None, after: _View) -> Iterator[Operation]:
        are_equal = equality([after.record.schema.column(name).type for name in self.columns])
        for keys in in_pages(after.touched(before)):
            pairs = self._changed(before, after, keys)
            rows = iter(self._decoded(after, [text for pair in pairs for text in pair if text is not None]))
            for old, new in pairs:
                found = [None if text is None else next(rows) for text in (old, new)]
                kind = Kind.INSERT if old is None else Kind.DELETE if new is None else Kind.UPDATE
                if None in found or not are_equal(*found):
                    yield Operation(kind, *found)

    @collecting_seldom()
    def _changed(self, before: _View | None, after: _View, keys: list[bytes]) -> list[tuple[str | None, str | None]]:
        """Return the texts before and after for the rows that differ among those of some keys."""
        olds = [None] * len(keys) if before is None else before.texts(keys)
        news = after.texts(keys)
        if after.seen.hides_anything():
            # Readers follow the watermark themselves: what it hides now does not come as a delete.
            triples = zip(keys, olds, news, strict=True)
            olds = [after.visible(key, old) if new is None else old for key, old, new in triples]
        return [pair for pair in zip(olds, news, strict=True) if pair[0] != pair[1]]

    def _decoded(self, view: _View, texts: list[str]) -> list[Row]:
        places = [view.record.schema.place_of(name) for name in self.columns]
        return [tuple([row[place] for place in places]) for row in view.codec.decode_all(texts)]

    def _require_columns(self, schema: TableSchema, epoch: int) -> None:
        for name in self.columns:
            if name not in schema.names:
                raise SchemaError(
                    f"table {self.name!r} had no column {name!r} at epoch {epoch}, but {', '.join(schema.names)}: read"
                    f" the changes up to it with the columns that it had, StorageTable(store, {self.name!r},"
                    f" epoch={epoch}), or only some with columns="
                )

    def _number_before(self, epoch: int) -> int:
        try:
            return self._store.number_up_to(epoch - 1)
        except UnknownCheckpointError:
            raise UnknownCheckpointError(
                f"{self._store.path} no longer knows the state before epoch {epoch}: its checkpoints were"
                " pruned; read the table as it is with scan(), and the changes from then on"
            ) from None

    def _require_epoch(self, epoch: int) -> None:
        last = self._store.next_epoch() - 1
        if epoch > last:
            raise UnknownCheckpointError(f"{self._store.path} has no epoch {epoch} yet: the last one is {last}")

    def _output(self, row: Row) -> Row:
        return tuple([row[place] for place in self._places])


def _reader_at(store: CheckpointStore, epoch: int | None) -> Reader:
    """Return a reader of the newest checkpoint up to an epoch: no table changes between two checkpoints."""
    if type(epoch) is int and epoch < store.next_epoch() and (number := store.number_up_to(epoch)):
        return store.reader(number)
    return store.reader(epoch=epoch)


class _AnyVnode(VnodeBitmap):
    """The vnodes in which rows may lie: others have no rows, and asking for them is not refused."""

    def require(self, vnode: int, table: str, what: object) -> int:
        """Return the vnode."""
        return vnode


class _View:
    """One table at one checkpoint."""

    def __init__(self, store: CheckpointStore, reader: Reader, name: str) -> None:
        self.store, self.reader, self.name = store, reader, name
        self.epoch = store.epoch_of(reader.newest)
        index = reader.named((name, TABLES, WATERMARKS))
        has_rows = name in index and may_be_table(*index[name][2:])
        stored = reader.item(index[TABLES][0], name) if has_rows and TABLES in index else None
        if stored is None:
            raise SchemaMismatchError(f"there is no table {name!r} {self._known_from()}")
        self.object_id = index[name][0]
        self._watermarks_id = index[WATERMARKS][0] if WATERMARKS in index else None
        self.take(TableRecord.from_json(name, orjson.loads(stored.value)))

    def take(self, record: TableRecord) -> None:
        """Take over a schema, and the watermarks."""
        every = WeakMethod(self._all)  # A cycle would hold the reader, and so its epoch, until Python collects cycles.
        self.record, self.codec = record, record.codec(lambda: rows() if (rows := every()) else ())
        stored = None if self._watermarks_id is None else self.reader.item(self._watermarks_id, self.name)
        watermarks = None if stored is None else orjson.loads(stored.value)
        own = record.schema.vnode_column is not None
        self.keys = KeySpace(self.name, record.schema, self._vnodes(watermarks) if own else None)
        self.seen = Visibility(self.keys, watermarks)

    def _known_from(self) -> str:
        """Return where a table was looked for, and what tells which ones are there."""
        if not self.reader.newest:
            return f"in {self.store.path}, where no epoch is committed yet: space.checkpoint() commits one"
        return (
            f"at epoch {self.epoch} of {self.store.path}: tables(space.at({self.epoch})) lists those that there are; a"
            " table is there from the first checkpoint after it was made"
        )

    def _vnodes(self, watermarks: Any) -> VnodeBitmap:
        """Return the vnodes of a table whose rows name them: the usual ones, and others that it has used."""

        def _key_from(start: bytes) -> bytes | None:
            item = next(self.reader.items(self.object_id, slot_of(start), page_rows=1), None)
            return None if item is None else key_of(item.slot)

        return _AnyVnode.from_bits(used_bits(self.name, _key_from, watermarks))

    def row(self, values: Row) -> Row | None:
        """Return the row of a key."""
        key = self.keys.key(values)
        text = self.visible(key, self.text(key))
        return None if text is None else self.codec.decode(text)

    def text(self, key: bytes) -> str | None:
        """Return the stored text of a row, hidden or not."""
        item = self.reader.item(self.object_id, slot_of(key))
        return None if item is None else text_of(item.value)

    def texts(self, keys: list[bytes]) -> list[str | None]:
        """Return the stored texts of the rows of many keys that are not hidden."""
        rows = self.reader.items_at(self.object_id, list(map(slot_of, keys)))
        found = dict(zip([key_of(row[0]) for row in rows], texts_of([row[1] for row in rows]), strict=True))
        texts = list(map(found.get, keys))
        return list(map(self.visible, keys, texts)) if self.seen.hides_anything() else texts

    def visible(self, key: bytes, text: str | None) -> str | None:
        """Return a text unless the watermark hides its row."""
        return None if text is None or self.seen.hides(key, self.codec.decode(text)) else text

    def rows(
        self, prefix: Row, lower: Row | None, upper: Row | None, inclusive: tuple[bool, bool], reverse: bool
    ) -> Iterator[Row]:
        """Yield the rows of a range as SQL sees it."""
        (lower, upper), inclusive = zip(*map(_decided, (lower, upper), inclusive))
        pages = self._pages([] if () in (lower, upper) else self._sql_ranges(prefix, lower, upper, inclusive), reverse)
        rows = (row for page in pages for row in self.codec.decode_all(page))
        bounds = [bound for bound in (lower, upper) if bound is not None]
        columns = self.record.schema.columns
        places = self.record.schema.key_places[len(prefix) :][: max(map(len, bounds), default=0)]
        if any(columns[place].nullable for place in places):
            tests = [(place, equality([columns[place].type])) for place in places]
            return (row for row in rows if all(_is_known(row, tests, bound) for bound in bounds))
        return rows

    def text_pages(self, size: int) -> Iterator[list[str]]:
        """Yield the texts of all rows in key order, in pages."""
        pages = self._pages(self.keys.ranges((), None, None, (True, True)), reverse=False)
        return in_pages(chain.from_iterable(pages), size, size)

    def touched(self, before: _View | None) -> list[bytes]:
        """Return the keys whose rows may differ from those of an earlier state, in key order."""
        between = self.reader.since(before.reader) if before and before.object_id == self.object_id else None
        if between is not None:
            found = {row[0] for row in between.rows(self.object_id)}
        else:
            # A complete image says nothing about what it leaves out, and another object nothing about this one.
            views = [self] if before is None else [self, before]
            found = {item.slot for view in views for item in view.reader.items(view.object_id)}
        return sorted(map(key_of, found), key=self.keys.body_of)

    def _sql_ranges(
        self, prefix: Row, lower: Row | None, upper: Row | None, inclusive: tuple[bool, bool]
    ) -> list[KeyRange]:
        reach = max(len(bound) for bound in (lower or (), upper or ()))
        orders = self.record.schema.key_encoder.orders[len(prefix) : len(prefix) + reach]
        if len({order.descending for order in orders}) > 1:
            raise RowError(
                f"table {self.name!r}: a bound over ascending and descending columns is not a range: bound one, filter"
                " the others"
            )
        if orders and orders[0].descending:
            lower, upper, inclusive = upper, lower, (inclusive[1], inclusive[0])
        return [part for found in self.keys.ranges(prefix, lower, upper, inclusive) for part in self.seen.parts(found)]

    def _pages(self, ranges: list[KeyRange], reverse: bool) -> Iterator[list[str]]:
        """Yield the texts of the visible rows of some ranges in key order, in pages that grow."""
        if len(ranges) > 1 and self.keys.is_distributed:
            streams = [self._pairs(found, reverse) for found in ranges]
            body = self.keys.body_of
            merged = heapq.merge(*streams, key=lambda pair: body(pair[0]), reverse=reverse)
            yield from ([text for _, text in page] for page in in_pages(merged, most=BATCH_ROWS))
            return
        hides = self.seen.hides_anything()
        for found in ranges[:: -1 if reverse else 1]:
            for page in self._stored(found, reverse):
                yield [text for _, text in self._shown(page)] if hides else texts_of([row[1] for row in page])

    def _pairs(self, found: KeyRange, reverse: bool) -> Iterator[tuple[bytes, str]]:
        return (pair for page in self._stored(found, reverse) for pair in self._shown(page))

    def _shown(self, page: list[tuple[Slot, Payload]]) -> list[tuple[bytes, str]]:
        """Return (key, text) of the rows that no watermark hides."""
        keys, texts = [key_of(row[0]) for row in page], texts_of([row[1] for row in page])
        pairs = zip(keys, texts, strict=True)
        if not self.seen.hides_anything():
            return list(pairs)
        return [(key, text) for key, text in pairs if self.visible(key, text) is not None]

    def _all(self) -> Iterator[tuple[Slot, Payload]]:
        return chain.from_iterable(self._stored((b"", b""), reverse=False))

    def _stored(self, found: KeyRange, reverse: bool) -> Iterator[list[tuple[Slot, Payload]]]:
        """Yield the stored rows of one range in pages."""
        start, end = slot_of(found[0]), slot_of(found[1])
        for page in self.reader.item_pages(self.object_id, start or None, end or None, reverse=reverse):
            # The end of a range is not part of it, and can only be where the pages begin or end.
            edge = 0 if reverse else -1
            if end and page and page[edge][0] == end:
                del page[edge]
            yield page


def _decided(bound: Row | None, is_inclusive: bool) -> tuple[Row | None, bool]:
    """Return a bound cut off at its first NULL: rows that are equal up to there cannot be compared with it."""
    if bound is None or None not in bound:
        return bound, is_inclusive
    return bound[: bound.index(None)], False


def _is_known(row: Row, tests: list[tuple[int, Equal]], bound: Row) -> bool:
    """Return whether SQL knows how a row compares with a bound: it does not if a NULL decides."""
    for (place, equal), value in zip(tests, bound):
        if row[place] is None:
            return False
        if not equal((row[place],), (value,)):
            return True
    return True


def _earlier(store: CheckpointStore, number: int, name: str, after: _View) -> _View | None:
    """Return a table at an earlier checkpoint, read with a later schema, or ``None`` if it did not exist."""
    try:
        view = _View(store, store.reader(number), name)
    except SchemaMismatchError:
        return None
    known, now = view.record, after.record
    reason = why_not_evolved(known.schema, now.schema)
    if view.object_id != after.object_id and not reason:
        reason = why_not_made_again(known.schema, now.schema)
    if not reason and now.layouts[: len(known.layouts)] != known.layouts:
        reason = "the table had evolved in another way, so its rows are stored otherwise"
    if reason:
        raise SchemaMismatchError(
            f"table {name!r} was dropped and made again with another schema, and there are no changes between the two:"
            f" {difference(known.schema, now.schema, ('before', 'after'))}\n  before: {known.schema}\n"
            f"  after: {now.schema}\n{reason}"
        )
    view.take(after.record)
    return view
