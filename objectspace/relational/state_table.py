"""The state table: rows of one schema in key order, written through a MemTable that an epoch seals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import islice, repeat
from typing import Any, NoReturn

from checkpoint import CheckpointError
from checkpoint.errors import not_copied
from checkpoint.process import collecting_seldom
from objectspace import ObjectSpace
from objectspace.relational import table_scans
from objectspace.relational.catalogue import (
    TableRecord,
    damaged_record,
    open_record,
    record_of,
    watermarks_of,
)
from objectspace.relational.checks import check_epoch, checked_watermark, contradiction
from objectspace.relational.chunk import Chunk
from objectspace.relational.errors import (
    RowError,
    SchemaError,
    SchemaMismatchError,
    VnodeNotOwnedError,
)
from objectspace.relational.evolution import difference
from objectspace.relational.key_space import Bound, KeySpace
from objectspace.relational.keys import INCLUSIVE, check_inclusive
from objectspace.relational.memtable import Consistency, Kind, MemTable
from objectspace.relational.registry import registry_of
from objectspace.relational.row_store import RowStore
from objectspace.relational.schema import Row, TableSchema
from objectspace.relational.unread import read_or_leave
from objectspace.relational.values import checker
from objectspace.relational.visibility import Visibility
from objectspace.relational.vnodes import VnodeBitmap, cache_is_stale
from objectspace.relational.watermarks import used_bits
from objectspace.space import WATERMARKS

HIDDEN_ROWS = 1024
"""How many rows below the watermark a commit removes, plus twice as many as it writes; the rest stays hidden."""

_MOST_WAITING = 4096
"""The most inserted rows that wait to be encoded together."""

RowLike = Sequence[Any] | Mapping[str, Any]


class StateTable:
    """A table in an object space, created or opened by its name.

    What is written stays in the MemTable until the epoch is sealed, by :meth:`commit` or by
    ``space.checkpoint(epoch=)``, which seals every open table of the space and makes them all durable at once. Reads
    see writes immediately. Only one of several handles on the same rows can have unsealed rows: meanwhile writes
    through another handle are refused, unless it owns other vnodes. If one handle changes the schema, all of them have
    the new one at once: their reads show the table as it is now, and rows of the old form are refused.

    Args:
        space: the space.
        name: the name of the table, which is also that of the sorted dictionary that holds its rows.
        schema: its schema; may be omitted for a table that exists.
        consistency: ``"strict"`` checks every operation against memory and storage when it is called; ``"trusted"``
            relies on the caller to be consistent; ``"blind"`` overwrites.
        vnodes: the vnodes of a distributed table that this instance owns; all by default, or, if a column names them,
            those below 256 and those that are in use.
        evolve: whether a stored table takes over ``schema`` if its own differs.

    ``late_rows`` is how many rows that were to be written through this handle lay below the watermark: they were
    dropped.

    Raises:
        SchemaMismatchError: the table is stored with another schema.
        RowError: the watermark column cannot hold a watermark that is stored.
        CheckpointProtocolError: the schema would change while another handle of the same vnodes has unsealed rows; a
            write raises it too.

    >>> from objectspace import VolatileObjectSpace
    >>> from objectspace.relational import Column
    >>> schema = TableSchema([Column("a", "int64"), Column("b", "string", nullable=True)], primary_key=["a"])
    >>> table = StateTable(VolatileObjectSpace(), "t", schema, consistency="strict")
    >>> table.insert_row((2, None)); table.insert_row((1, "x")); table.update_row((2, None), (2, "y"))
    >>> list(table.scan()), table.get_row((2,))
    ([(1, 'x'), (2, 'y')], (2, 'y'))
    >>> table.commit(epoch=1)
    """

    def __init__(
        self,
        space: ObjectSpace,
        name: str,
        schema: TableSchema | None = None,
        consistency: Consistency = "blind",
        *,
        vnodes: Iterable[int] | None = None,
        evolve: bool = False,
    ) -> None:
        if schema is not None and not isinstance(schema, TableSchema):
            raise SchemaError(f"table {name!r}: the schema is {schema!r:.80}: expected a TableSchema")
        memtable, owned = MemTable(consistency), None if vnodes is None else VnodeBitmap(vnodes)
        if schema is not None:
            _key_space(name, schema, owned)  # A refusal leaves no table behind.
        self._record = open_record(space, name, schema, vnodes=owned, evolve=evolve)
        self._space, self._registry = space, registry_of(space)
        self._rows = RowStore(space, name)
        self._codec = self._record.codec(self._rows.all)
        self._keys = _key_space(name, self._record.schema, owned)
        self._owns_all = owned is None
        self._memtable = memtable
        self._waiting: list[Row] = []
        self._is_strict = consistency == "strict"
        self._next_watermark: Any = None
        self._is_sealed = True
        self._key_of = self._keys.of_row
        self.late_rows = 0
        self._epoch = space.last_epoch
        self._seen = Visibility(self._keys)
        self._read_watermarks()
        self._note_schema()
        # Never read: it keeps alive what tells the handles on these rows of each other.
        self._beside = self._registry.add(self, self._rows)

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._record.name

    @property
    def schema(self) -> TableSchema:
        """The schema of the table; if another handle changes it, the new one."""
        return self._record.schema

    @property
    def epoch(self) -> int:
        """The last epoch that was sealed; 0 before the first."""
        return self._epoch

    @property
    def is_dropped(self) -> bool:
        """Whether the table no longer exists: it was dropped, or its creation was rolled back."""
        return self._rows.is_deleted

    @property
    def consistency(self) -> Consistency:
        """How operations are checked."""
        return self._memtable.consistency

    @property
    def vnodes(self) -> VnodeBitmap:
        """The vnodes that this instance owns."""
        return self._keys.owned

    @property
    def watermark(self) -> Any:
        """The greatest committed watermark of the owned vnodes, or ``None`` if there is none."""
        return max((mark for mark in self._seen.marks.values() if mark is not None), default=None)

    def get_row(self, key: Sequence[Any]) -> Row | None:
        """Return the row of a whole primary key, or ``None`` if there is none.

        Raises:
            RowError: the key does not fit the schema.
            VnodeNotOwnedError: it belongs to a vnode of another instance.

        Time: O(log n).
        """
        text = self._visible_text(self._keys.key(self._keys.checked(key)))
        return None if text is None else self._codec.decode(text)

    @collecting_seldom()
    def get_rows(self, keys: Iterable[Sequence[Any]]) -> list[Row | None]:
        """Return the row of each of many whole primary keys, or ``None`` if there is none: faster than one by one.

        Raises:
            RowError: a key does not fit the schema.
            VnodeNotOwnedError: one belongs to a vnode of another instance.

        Time: O(keys · log n).
        """
        try:
            checked = self.schema.check_keys(list(keys))
        except RowError as error:
            raise RowError(f"table {self.name!r}: {error}") from None
        encoded = self._keys.keys(checked)
        if self._buffer:
            operations = list(map(self._buffer.get, encoded))
            sealed = iter(self._rows.get_all([key for key, one in zip(encoded, operations) if one is None]))
            texts = [next(sealed) if one is None else one.new for one in operations]
        else:
            texts = self._rows.get_all(encoded)
        decoded = iter(self._codec.decode_all([text for text in texts if text is not None]))
        found = [None if text is None else next(decoded) for text in texts]
        if not self._may_hide:
            return found
        hides = self._seen.hides
        return [None if row is None or hides(key, row) else row for key, row in zip(encoded, found)]

    def exists(self, key: Sequence[Any]) -> bool:
        """Return whether there is a row with a whole primary key, like :meth:`get_row` without decoding."""
        return self._visible_text(self._keys.key(self._keys.checked(key))) is not None

    def scan(
        self,
        prefix: Sequence[Any] = (),
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        inclusive: tuple[bool, bool] = INCLUSIVE,
        reverse: bool = False,
        *,
        vnode: int | None = None,
    ) -> Iterator[Row]:
        """Return an iterator over rows in key order; a distributed table is merged over the owned vnodes.

        Args:
            prefix: values of the leading key columns, which all rows have.
            lower: where to begin in key order: values of the key columns after the prefix; fewer than all stand for the
                whole group of keys that begin with them, and ``None`` stands for NULL.
            upper: where to end, likewise. On a descending column the greater value is the lower bound.
            inclusive: whether the bounds themselves belong to the range.
            reverse: whether to go backwards.
            vnode: read only this vnode of a distributed table.

        Raises:
            RowError: a value does not fit the schema.
            VnodeNotOwnedError: the prefix belongs to a vnode of another instance.

        A scan that is open while an epoch is sealed, the space is rolled back, or the schema is changed continues after
        its last key with the rows that are there then; some rows may have been read ahead, as they were.

        Time: O(log n), and O(1) per row; also per one that is passed over: deleted and not sealed yet, or hidden by a
        watermark that does not lead the key.
        """
        if inclusive is not INCLUSIVE:
            check_inclusive(self.name, inclusive)
        span = self._span(prefix, lower, upper, inclusive, vnode)
        return table_scans.scan(self, span, reverse=reverse)

    @collecting_seldom()
    def scan_all(
        self, prefixes: Sequence[Sequence[Any]], bounds: Sequence[tuple[Bound, Bound]] | None = None
    ) -> list[list[Row]]:
        """Return the rows below each of some prefixes, in key order: faster than separate scans.

        Args:
            prefixes: values of the leading key columns.
            bounds: for each prefix, where to begin and where to end, both included, as in :meth:`scan`.

        Raises:
            RowError: a value does not fit the schema.
            VnodeNotOwnedError: a prefix belongs to a vnode of another instance.

        Time: O(log n) per prefix and O(1) per row; also per one that is passed over, as in :meth:`scan`.
        """
        found = zip(prefixes, bounds or repeat((None, None), len(prefixes)), strict=True)
        return table_scans.scan_all(self, [self._span(prefix, *bound) for prefix, bound in found])

    def _span(
        self,
        prefix: Sequence[Any],
        lower: Bound,
        upper: Bound,
        inclusive: tuple[bool, bool] = INCLUSIVE,
        vnode: int | None = None,
    ) -> table_scans.Span:
        return table_scans.Span(*self._keys.checked_range(prefix, lower, upper), inclusive, vnode)

    def insert_row(self, row: RowLike) -> None:
        """Insert a row; if a row with its key is there, a blind or trusted table overwrites it.

        Raises:
            RowError: the row does not fit the schema.
            InconsistentOperationError: the table is strict and has a row with this key.
            VnodeNotOwnedError: the row belongs to a vnode of another instance.

        Time: O(1), in a strict table O(log n).
        Dirties: at the commit one item.
        """
        if not self._may_wait(row):
            self._insert(self._checked(row))
            return
        self._begin_write()
        self._waiting.append(row)  # type: ignore[arg-type]
        if len(self._waiting) >= _MOST_WAITING:
            self._write_waiting()

    @collecting_seldom()
    def insert_rows(self, rows: Iterable[RowLike]) -> None:
        """Insert many rows: the same as :meth:`insert_row` for each, and faster if the table is blind.

        Raises:
            RowError: a row does not fit the schema.
            InconsistentOperationError: the table is strict and has a row of a key.
            VnodeNotOwnedError: a row belongs to a vnode of another instance.

        An error leaves the table as it was before the call.

        Time: O(rows), in a strict table O(rows · log n).
        Dirties: at the commit one item per row.
        """
        checked = self._all_checked(list(rows))
        if not self._is_strict:
            self._write([True] * len(checked), checked)
            return
        with self._as_a_whole():
            for row in checked:
                self._insert(row)

    @collecting_seldom()
    def write_rows(self, changes: Iterable[tuple[bool, RowLike]]) -> list[bytes]:
        """Apply changes in order: pairs (whether the row comes, the row); faster than separate calls.

        Returns:
            the keys of the rows: bytes that compare as the rows do in the table.

        Raises:
            RowError: a row does not fit the schema.
            InconsistentOperationError: the table is strict and a change contradicts what it holds.
            VnodeNotOwnedError: a row belongs to a vnode of another instance.

        An error leaves the table as it was before the call.

        Time: O(rows), in a strict table O(rows · log n).
        Dirties: at the commit one item per net change.
        """
        found = list(changes)
        checked = self._all_checked([row for _, row in found])
        comes = [come for come, _ in found]
        if not self._is_strict:
            return self._write(comes, checked)
        with self._as_a_whole():
            for come, row in zip(comes, checked):
                (self._insert if come else self._delete)(row)
        return self._keys.of_rows(checked)

    def delete_row(self, old: RowLike) -> None:
        """Delete a row, which is given whole.

        Raises:
            RowError: the row does not fit the schema.
            InconsistentOperationError: the table is strict and has no row with this key, or a different one.
            VnodeNotOwnedError: the row belongs to a vnode of another instance.

        Time: O(1), in a strict table O(log n).
        Dirties: at the commit one item.
        """
        self._delete(self._checked(old))

    def update_row(self, old: RowLike, new: RowLike) -> None:
        """Replace a row by another one with the same key.

        Raises:
            RowError: a row does not fit the schema, or the keys differ.
            InconsistentOperationError: the table is strict and has no row with this key, or a different one.
            VnodeNotOwnedError: the row belongs to a vnode of another instance.

        Time: O(1), in a strict table O(log n).
        Dirties: at the commit one item; nothing if the rows are equal.
        """
        before, after = self._checked(old), self._checked(new)
        key = self._key_of(before)
        if key != self._key_of(after):
            raise RowError(
                f"table {self.name!r}: update of {before!r:.200} to {after!r:.200}: the keys differ; delete the one"
                " and insert the other"
            )
        late = self._seen.hides(key, before), self._seen.hides(key, after)
        if late == (False, False):
            self._update(key, before, after)
            return
        with self._as_a_whole():
            # Each counts itself if the watermark hides it.
            self._delete(before)
            self._insert(after)

    @collecting_seldom()
    def write_chunk(self, chunk: Chunk | Iterable[Sequence[Any]]) -> None:
        """Apply a chunk of the change log, row by row in order: ``-`` and ``U-`` delete, ``+`` and ``U+`` insert.

        Args:
            chunk: a :class:`Chunk`, or pairs (operation, row); a third element ``False`` marks a row to skip.

        Raises:
            RowError: a row does not fit the schema.
            SchemaMismatchError: the chunk has other columns.
            InconsistentOperationError: the table is strict and an operation contradicts what it holds.
            VnodeNotOwnedError: a row belongs to a vnode of another instance.

        An error leaves the table as it was before the chunk.

        Time: O(rows), in a strict table O(rows · log n).
        Dirties: at the commit one item per net operation.
        """
        if not isinstance(chunk, Iterable):
            raise RowError(f"table {self.name!r}: a chunk is a Chunk or pairs (operation, row): found {chunk!r:.80}")
        rows = chunk if isinstance(chunk, Chunk) else Chunk.from_rows(self.schema, chunk)
        if rows.schema is not self.schema and rows.schema.names != self.schema.names:
            differences = difference(rows.schema, self.schema, ("the chunk", "the table"))
            raise SchemaMismatchError(
                f"the chunk has the columns {rows.schema}: table {self.name!r} has {self.schema}: {differences}"
            )
        if self.consistency == "blind":
            self._write([op in ("+", "U+") for op in rows.ops], self._all_checked(rows.values))
            return
        with self._as_a_whole():
            for operation, row in rows.rows():
                checked = self._checked(row)
                (self._insert if operation in ("+", "U+") else self._delete)(checked)

    def operations(self) -> Iterator[tuple[Kind, Row | None, Row | None]]:
        """Yield (kind, old row, new row) of the net operations that are not sealed yet, in key order.

        For a distributed table they come vnode by vnode.

        The old row is the stored one; a blind table does not know it for an insert.
        """
        decode = self._codec.decode
        for _, (kind, old, new) in self._buffer.items():
            yield kind, None if old is None else decode(old), None if new is None else decode(new)

    def update_watermark(self, value: Any) -> None:
        """Promise that no row with a smaller value in the watermark column will be touched any more.

        From the next commit on, such rows are hidden from every read, and writes to them are dropped and counted in
        ``late_rows``. A watermark that goes backwards is ignored.

        Raises:
            RowError: the schema names no watermark column, or the value does not fit it or is NaN.

        Time: O(1). Dirties: at the commit one item.
        """
        if self._seen.column is None:
            raise RowError(f"table {self.name!r} has no watermark column: TableSchema(..., watermark_column=...)")
        found = checked_watermark(self._seen.column, value, self.name)
        if self._next_watermark is not None and not found > self._next_watermark:
            return
        self._rows.refuse_dead()
        self._refuse_read_only()
        self._registry.wrote(self)
        self._next_watermark = found

    def check_epoch(self, epoch: int) -> None:
        """Refuse an epoch that cannot be sealed.

        Raises:
            EpochError: it is not after the last one, or not a whole number of 64 bits.
            ObjectNotFoundError: the table is gone: it was dropped, or its creation was rolled back.
        """
        self._rows.refuse_dead()
        check_epoch(self.name, epoch, self._epoch)

    def check_barrier(self, epoch: int) -> None:
        """Check an epoch like :meth:`check_epoch`, but accept the last epoch once more until it is durable.

        What was written after it was sealed belongs to its checkpoint too, for example when a failed checkpoint is
        tried again.
        """
        # Epoch 0 may be stored or not, as 0 also stands for none: a store that has it refuses a second one.
        is_durable = epoch != 0 and epoch <= self._space.last_epoch
        if type(epoch) is not int or epoch != self._epoch or is_durable:
            self.check_epoch(epoch)

    @collecting_seldom()
    def commit(self, epoch: int) -> None:
        """Seal an epoch: what was written since the last one becomes part of it, durable with the next checkpoint.

        Raises:
            EpochError: it is not after the last epoch sealed.

        Time: O(net operations · log n).
        Dirties: one item per net operation, and the length.
        """
        self.check_epoch(epoch)
        with self._space.in_one_piece(Exception):  # After an error it can be sealed again.
            self.seal()
            self.take_epoch(epoch)

    def seal(self) -> None:
        """Do the work of :meth:`commit` once the epoch is checked; a barrier of the space does this by itself."""
        if self._buffer or self._next_watermark is not None:
            self._seal_written()
        elif self._may_hide:  # Where nothing waits, only hidden rows may still have to go.
            self._remove_hidden(HIDDEN_ROWS)

    @collecting_seldom()
    def _seal_written(self) -> None:
        written = len(self._buffer)
        gone, new = self._buffer.outcome()
        self._registry.note_change()
        self._rows.remove_all(gone)
        self._rows.put_all(new)
        self._buffer.clear()
        self._raise_watermark()
        self._remove_hidden(HIDDEN_ROWS + 2 * written)

    def take_epoch(self, epoch: int) -> None:
        """Note that an epoch is the last one that was sealed, and that nothing waits any more."""
        self._epoch, self._next_watermark, self._is_sealed = epoch, None, True
        self._registry.sealed(self)

    def reopen(self) -> None:
        """Let the last epoch be sealed once more, as long as it is not durable; what is sealed stays in it."""
        self._epoch = min(self._epoch, self._space.last_epoch)

    def vacuum(self) -> int:
        """Remove every sealed row below the watermark, and return how many there were.

        Time: O(rows below it) if the watermark column leads the key, otherwise O(n).
        Dirties: one item per row.
        """
        return self._remove_hidden(None)

    def update_vnodes(self, vnodes: Iterable[int]) -> bool:
        """Own other vnodes from now on; allowed only right after a commit.

        Returns:
            whether a cache of rows by key must be cleared, which is so if a vnode was gained.

        Raises:
            VnodeNotOwnedError: there are rows that are not sealed.
            ValueError: the table is not distributed, or there is no such vnode.
            ObjectNotFoundError: the table no longer exists.

        Time: O(vnodes). Dirties: nothing.
        """
        self._rows.refuse_dead()
        if not self._keys.is_distributed:
            raise ValueError(f"table {self.name!r} is not distributed: it has no vnodes")
        if self._buffer:
            raise VnodeNotOwnedError(
                f"table {self.name!r} has {len(self._buffer)} rows that are not sealed: move vnodes right after a"
                " commit"
            )
        previous, current = self._keys.owned, VnodeBitmap(vnodes)
        self._keys.owned, self._owns_all = current, False
        self._is_sealed = True  # So the next write asks again who else has rows of these vnodes.
        self._registry.note_change()
        if not current <= previous:
            self._next_watermark = None
        self._seen.read(self._stored_watermarks())
        return cache_is_stale(previous, current)

    def drop_unsealed(self) -> None:
        """Drop what is not sealed, without the reads that :meth:`forget` does."""
        self._waiting = []
        self._memtable.clear()
        self._registry.note_change()
        self.take_epoch(self._space.last_epoch)

    def forget(self) -> None:
        """Drop what is not sealed, and read again what is stored; a rollback of the space does this by itself.

        If that cannot be read, the next use of the table reads it, or raises the reason why it cannot.
        """
        self.drop_unsealed()
        read_or_leave(self)

    def _read_stored(self) -> None:
        self._take_over()
        self._read_watermarks()

    def follow_schema(self) -> None:
        """Take over the schema that another handle has given to the table.

        Rows of other vnodes that wait here stay, because their layout is still listed. A watermark that waits stays
        too: its column may have become wider, but is still the same column.
        """
        self._take_over()
        self._seen.read(self._stored_watermarks())
        if self._next_watermark is not None and self._seen.column is not None:
            self._next_watermark = checker(self._seen.column.type)(self._next_watermark)

    def follow_watermarks(self) -> None:
        """Read the watermarks again: another handle has raised them."""
        if self._may_hide:
            self._seen.read(self._stored_watermarks())

    def renamed(self, new_name: str) -> None:
        """Take a new name, which the rows have now: a renaming of the space calls this."""
        self._record = replace(self._record, name=new_name)
        # Asking an unread table for its keys would read it; they are then made again, with the name.
        vars(self)["_keys"].table = self._rows.table = new_name

    def unsealed(self, vnodes: VnodeBitmap | None) -> int:
        """Return how many operations wait to be sealed, if they are on one of these vnodes.

        If there are none, the next write asks again whether another handle has some.
        """
        if not (vnodes is None or self.vnodes.overlaps(vnodes)):
            return 0
        count = len(self._buffer)
        self._is_sealed = not count
        return count

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise not_copied(self, f"open another handle where it is needed: StateTable(space, {self.name!r})")

    def __repr__(self) -> str:
        return f"StateTable({self.name!r}, {self.schema})"

    def _take_over(self) -> None:
        """Continue with what is stored of the table: its schema was changed, or a rollback has taken back a change.

        All of it is made again, whatever it was: an interruption may have left a part of another schema here.
        """
        record = record_of(self._space, self._rows.name) or self._record
        keys, codec = self._stored_keys(record), record.codec(self._rows.all)
        seen = Visibility(keys)
        self._record, self._codec, self._keys, self._key_of, self._seen = record, codec, keys, keys.of_row, seen
        self._rows.table = record.name
        self._note_schema()

    def _stored_keys(self, record: TableRecord) -> KeySpace:
        """Return where the rows lie according to a stored record; the owned vnodes stay the same."""
        try:
            keys = _key_space(record.name, record.schema, None if self._owns_all else self._keys.owned)
        except ValueError as error:
            raise damaged_record(record.name, record.to_json(), error) from error
        keys.owned = self._keys.owned
        return keys

    def _note_schema(self) -> None:
        """Note what the schema implies for how rows are written and read."""
        self._may_hide = self._seen.column is not None
        is_free = self.consistency == "blind" and not self._may_hide and not self._keys.is_distributed
        self._may_wait: Callable[[Any], bool] = self.schema.is_in_form if is_free else _never

    @property
    def _buffer(self) -> MemTable:
        """What is written but not sealed."""
        if self._waiting:
            self._write_waiting()
        return self._memtable

    def _write_waiting(self) -> None:
        """Encode the rows that wait for it: they are in their one form, so nothing can be wrong with them."""
        waiting = self._waiting
        keys, texts = self._keys.of_rows(waiting), self._codec.encode_all(waiting)
        self._memtable.write_all(keys, [None] * len(keys), texts)
        if self._waiting is waiting:
            self._waiting = []

    def _begin_write(self) -> None:
        """Note that something is written.

        Raises:
            ObjectNotFoundError: the table no longer exists.
            CheckpointError: its space is read-only.
            CheckpointProtocolError: another handle of the same vnodes has unsealed rows.
        """
        self._rows.refuse_dead()
        if self._is_sealed:
            self._first_write()

    def _first_write(self) -> None:
        """Note the first write since the last commit; refuse it in a read-only space, or beside another handle's."""
        self._refuse_read_only()
        self._registry.refuse_beside("nothing can be written", self._rows, self.vnodes, asks=self)
        self._registry.wrote(self)
        self._is_sealed = False

    def _as_a_whole(self) -> AbstractContextManager[None]:
        """Take back the changes of a block that fails."""
        return self._buffer.all_or_nothing(partial(setattr, self, "late_rows", self.late_rows))

    def _refuse_read_only(self) -> None:
        if self._space.read_only:
            raise CheckpointError(
                f"table {self.name!r}: its space is read-only: open the store for writing, or fork it, to write rows"
            )

    def _checked(self, row: RowLike) -> Row:
        try:
            return self.schema.check_row(row)
        except RowError as error:
            raise RowError(f"table {self.name!r}: {error}") from None

    def _all_checked(self, rows: Sequence[RowLike]) -> Sequence[Row]:
        try:
            return self.schema.check_rows(rows)
        except RowError as error:
            raise RowError(f"table {self.name!r}: {error}") from None

    def _write(self, comes: Sequence[bool], rows: Sequence[Row]) -> list[bytes]:
        """Apply changes for which no stored rows need be known, and return the keys of the rows."""
        keys = self._keys.of_rows(rows)
        late = self._late(keys, rows)
        if not late:
            self._note(keys, comes, rows)
            return keys
        kept = [place for place in range(len(keys)) if place not in late]
        self._note([keys[place] for place in kept], [comes[place] for place in kept], [rows[place] for place in kept])
        self.late_rows += len(late)
        return keys

    def _late(self, keys: Sequence[bytes], rows: Sequence[Row]) -> set[int]:
        """Return the places of the rows that the watermark hides."""
        if not (self._may_hide and self._seen.hides_anything()):
            return set()
        hides = self._seen.hides
        return {place for place, (key, row) in enumerate(zip(keys, rows)) if hides(key, row)}

    def _note(self, keys: Sequence[bytes], comes: Sequence[bool], rows: Sequence[Row]) -> None:
        """Note changes in the MemTable."""
        texts = self._codec.encode_all(rows)
        if rows:
            self._begin_write()
        if all(comes):
            self._buffer.write_all(keys, [None] * len(keys), texts)
            return
        news = [text if come else None for come, text in zip(comes, texts)]
        olds = [None if come else text for come, text in zip(comes, texts)]
        self._buffer.write_all(keys, olds, news)

    def _insert(self, row: Row) -> None:
        key = self._key_of(row)
        if self._may_hide and self._seen.hides(key, row):
            self.late_rows += 1
            return
        self._begin_write()
        if self._is_strict and (present := self._visible_text(key)) is not None:
            self._refuse("insert", key, row, present, "use update_row(), or delete it first")
        self._buffer.insert(key, self._codec.encode(row))

    def _delete(self, row: Row) -> None:
        key = self._key_of(row)
        if self._may_hide and self._seen.hides(key, row):
            self.late_rows += 1
            return
        text = self._codec.encode(row)
        self._begin_write()
        if self._is_strict:
            text = self._require("delete", key, row, text)
        self._buffer.delete(key, text)

    def _update(self, key: bytes, before: Row, after: Row) -> None:
        text = self._codec.encode(before)
        self._begin_write()
        if self._is_strict:
            text = self._require("update", key, before, text)
        self._buffer.update(key, text, self._codec.encode(after))

    def _require(self, what: str, key: bytes, row: Row, text: str) -> str:
        """Return the text of the row of a key, which must be equal to ``row``, as the MemTable compares it."""
        present = self._visible_text(key)
        if present is None or not self._codec.same(present, text):
            missing = present is None
            advice = f"insert it, or leave the {what} out" if missing else "pass the row that is there: get_row(key)"
            self._refuse(what, key, row, present, advice)
        assert present is not None
        if present == text or self._buffer.get(key) is not None:
            return present
        # In the text that this schema writes, which may be a later one: the MemTable compares texts.
        return self._codec.encode(self._codec.decode(present))

    def _refuse(self, what: str, key: bytes, row: Row, present: str | None, advice: str) -> None:
        is_sealed = self._buffer.get(key) is None
        there = None if present is None else self._codec.decode(present)
        raise contradiction(self.name, self.schema, what, row, there, is_sealed=is_sealed, advice=advice)

    def _visible_text(self, key: bytes) -> str | None:
        found = self._buffer.get(key)
        text = self._rows.get(key) if found is None else found.new
        if text is None or not self._may_hide or not self._seen.hides(key, self._codec.decode(text)):
            return text
        return None

    def _stored_watermarks(self) -> Any:
        return watermarks_of(self._space, self._rows.name)

    def _read_watermarks(self) -> None:
        """Take over the stored watermarks and, if all vnodes are owned, the vnodes that are in use."""
        stored = self._stored_watermarks()
        if self._owns_all and self.schema.vnode_column is not None:
            self._keys.owned = VnodeBitmap.from_bits(used_bits(self.name, self._rows.key_from, stored))
        self._seen.read(stored)

    def _raise_watermark(self) -> None:
        if self._next_watermark is not None:
            raised = self._seen.raised(self._stored_watermarks(), self._next_watermark)
            if raised is not None:
                self._space.get_or_create_dictionary(WATERMARKS)[self._rows.name] = raised
            # In any case: an interrupted commit may have stored it without telling everybody.
            self._registry.raised_watermark(self._rows, by=self)

    def _remove_hidden(self, limit: int | None) -> int:
        """Remove sealed rows below the watermark; with a limit, at most that many, only from one end of the keys."""
        if not self._seen.hides_anything() or (limit is not None and not self._seen.leads):
            return 0
        candidates = (pair for part in self._seen.hidden_parts() for pair in self._rows.between(*part))
        hidden = (key for key, text in candidates if self._seen.hides(key, self._codec.decode(text)))
        found = list(islice(hidden, limit))
        self._registry.note_change()
        self._rows.remove_all(found)
        return len(found)


def _key_space(name: str, schema: TableSchema, owned: VnodeBitmap | None) -> KeySpace:
    keys = KeySpace(name, schema, owned)
    if owned is not None and not keys.is_distributed:
        raise ValueError(f"table {name!r} is not distributed: its schema has neither distribution_key nor vnode_column")
    return keys


def _never(row: object) -> bool:
    return False
