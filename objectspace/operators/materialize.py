"""Materialize: keeps the newest row of each key in a table that anyone can read, and says what changed in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from objectspace.operators.base import Operator, Watermark, column_names
from objectspace.operators.canonical import dictionary_keys, rank
from objectspace.operators.chunks import Change, taken, unbroken
from objectspace.relational import Chunk, SchemaError, StateTable, TableSchema
from objectspace.relational.chunk import Op, is_insert
from objectspace.relational.schema import Row
from objectspace.space import ObjectSpace

Conflict = Literal["overwrite", "ignore", "update_if_newer", "update_if_not_null", "check"]

CONFLICTS: tuple[Conflict, ...] = ("overwrite", "ignore", "update_if_newer", "update_if_not_null", "check")


class Materialize(Operator):
    """The rows of a stream by their primary key, in a state table.

    Its output is rebuilt from what is really stored, chunk by chunk: whatever comes in, the output is a consistent log
    with one change per key. With ``"check"`` the input must be consistent, and is passed on as the output.

    ================== ================================ =============== ==========================
    conflict           insert of a key that is there    delete          old row of an update
    ================== ================================ =============== ==========================
    overwrite          the later row stays              by the key      passed over
    ignore             the earlier row stays            by the key      deletes by the key
    update_if_newer    the row with the later version   by the key      passed over
    update_if_not_null NULL keeps the stored value      by the key      passed over
    check              InconsistentOperationError       checked         checked
    ================== ================================ =============== ==========================

    The old row of an update that changes the key of the table is a delete.

    State: one table with the rows. An event dirties the slot of its key.

    Args:
        schema: the schema of the input; its primary key is the key of the table.
        conflict: what happens to a row whose key is already there.
        version_column: the column, or the columns, in which a row must not have less than the row that it replaces;
            NULL is the least. Deletes need no version.
        stream_key: the columns that identify a row downstream, if they are more than the primary key: an update that
            changes one of them goes out as a delete and an insert.
        hears_all: whether it gets all changes of a source, even those that cancel each other: then :meth:`missed` can
            tell which rows it has missed.
        trusts: whether the input is known to tell exactly how the rows of the table change, as an aggregation does for
            its groups: then the table is written without being read, and the input is the output.

    Raises:
        SchemaError: there is no such conflict handling or column, or ``update_if_newer`` has no version.

    Source: RisingWave's MaterializeExecutor.

    >>> from objectspace import VolatileObjectSpace
    >>> from objectspace.relational import Column
    >>> schema = TableSchema([Column("k", "int64"), Column("v", "int64")], primary_key=["k"])
    >>> view = Materialize(schema)
    >>> view.open(VolatileObjectSpace(), "view")
    >>> _ = view.process(Chunk.from_rows(schema, [("+", (1, 3)), ("+", (2, 5))]))
    >>> view.process(Chunk.from_rows(schema, [("+", (1, 4)), ("-", (2, 0))]))[0].rows()
    [('U-', (1, 3)), ('U+', (1, 4)), ('-', (2, 5))]
    """

    def __init__(
        self,
        schema: TableSchema,
        conflict: Conflict = "overwrite",
        version_column: str | Sequence[str] | None = None,
        *,
        stream_key: Sequence[str] | str | None = None,
        hears_all: bool = False,
        trusts: bool = False,
    ) -> None:
        super().__init__()
        if conflict not in CONFLICTS:
            raise SchemaError(f"conflict is {conflict!r}: expected one of {', '.join(CONFLICTS)}")
        if conflict == "update_if_newer" and not version_column:
            raise SchemaError(
                "update_if_newer compares versions: name their columns with version_column=, or in a pipeline with"
                " version="
            )
        names = column_names(version_column or ())
        self._input, self.conflict, self._hears_all, self._trusts = schema, conflict, hears_all, trusts
        self._versions = [(schema.place_of(name), rank(schema.column(name).type)) for name in names]
        self._keys_of = dictionary_keys(schema, schema.key_places)
        watermark = schema.watermark_column if self._keeps(schema.watermark_column) else None
        key: list[Any] = column_names(stream_key or ()) or list(schema.primary_key)
        self._output = TableSchema(schema.columns, key, watermark_column=watermark)
        self._is_wider = not set(self._output.key_places) <= set(schema.key_places)

    @property
    def schema(self) -> TableSchema:
        """The schema of its output: that of the input, with the stream key as primary key."""
        return self._output

    @property
    def table(self) -> StateTable:
        """The table of the rows; it does not exist before :meth:`open`."""
        self._check_open()
        return self._tables["table"]

    def state(self) -> list[tuple[str, TableSchema]]:
        """Return the schema of the table of the rows."""
        return [("table", self._input)]

    def open(self, space: ObjectSpace, name: str) -> None:
        """Create the table, or open it again."""
        table = StateTable(space, f"{name}/table", self._input, "strict" if self.conflict == "check" else "blind")
        self._tables, self._home = {"table": table}, space

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Take changes, and return what they changed in the table.

        Raises:
            SchemaMismatchError: the chunk has other columns.
            InconsistentOperationError: with ``"check"``, the chunk contradicts the table; nothing of it is applied.

        Time: O(rows · log n). Dirties: one slot per key that changes.
        """
        self._check_open()
        chunk = taken(self._input, chunk)
        if self.conflict == "check":
            self.table.write_chunk(chunk)
            return [chunk] if len(chunk) else []
        if "U-" in chunk.ops:
            chunk = unbroken(chunk)
        if self._trusts:
            self.table.write_rows([(is_insert(op), row) for op, row in chunk.rows() if op != "U-"])
            return [Chunk(self._output, chunk.ops, chunk.values)] if len(chunk) else []
        keys = self._keys_of(chunk.values)
        rows = dict(zip(keys, chunk.values))
        before = dict(zip(rows, self.table.get_rows(list(map(self._input.key_of, rows.values())))))
        return self._apply(before, self._after(before, keys, chunk))

    def _after(self, before: dict[Any, Row | None], keys: list[Any], chunk: Chunk) -> dict[Any, Row | None]:
        """Return the row of each key after the chunk."""
        after = before.copy()
        changes = zip(keys, chunk.ops, chunk.values)
        if self.conflict == "overwrite" and not self._versions:
            after.update((key, None if op == "-" else row) for key, op, row in changes if op != "U-")
        else:
            for key, op, row in changes:
                after[key] = self._resolved(op, after[key], row)
        return after

    def missed(self, given: Chunk, net: Chunk) -> Chunk:
        """Return what unordered changes mean for the table under keys whose changes all cancel each other.

        If no change was left out on the way, the table may have another row under the key than the changes tell of. A
        row that comes and goes takes that one with it, and a row whose delete holds no more than the key comes after
        the delete. An update to the same row sets it.

        Args:
            given: the changes.
            net: what is left of them.

        Time: O(changes · log n).
        """
        if not self._hears_all or self.conflict == "check" or len(net) == len(given):
            return Chunk(given.schema, [], [])
        told = set(self._keys_of(net.values))
        silent: dict[Any, list[Change]] = {}
        for key, change in zip(self._keys_of(given.values), given.rows(), strict=True):
            if key not in told:
                silent.setdefault(key, []).append(change)
        firsts = [self._input.key_of(changes[0][1]) for changes in silent.values()]
        stored = zip(silent.values(), self.table.get_rows(firsts), strict=True)
        found = [change for changes, row in stored for change in self._set_anew(changes, row)]
        return Chunk(given.schema, [op for op, _ in found], [row for _, row in found])

    def _set_anew(self, changes: list[Change], present: Row | None) -> list[Change]:
        """Return what changes of one key that cancel each other do to the row that is there."""
        last = max((row for _, row in changes), key=repr)
        if present is not None and any(self._input.alike(present, row) for _, row in changes):
            return []
        if {op for op, _ in changes} <= {"U-", "U+"}:
            return [("U-", last), ("U+", last)]
        if present is None:
            return []
        beside = [value for place, value in enumerate(last) if place not in self._input.key_places]
        is_key_only = bool(beside) and all(value is None for value in beside)
        # A row that was put together from several rows is like none of them, even if it goes and comes again.
        is_put_again = is_key_only or self.conflict == "update_if_not_null"
        return [("-", last), ("+", last)] if is_put_again else [("-", last)]

    def kept_as(self, column: str) -> str | None:
        """Return the name that a column of the input has in the output: the same, if it is a key column."""
        return column if self._keeps(column) else None

    def watermark(self, column: str, value: Any, side: str = "input") -> list[Watermark]:
        """Pass on a watermark of a key column; with other columns a row may replace an earlier one."""
        return [(column, value)] if self._keeps(column) else []

    def _keeps(self, column: str | None) -> bool:
        return any(column == name for name, _ in self._input.primary_key)

    def get_row(self, key: Sequence[Any]) -> Row | None:
        """Return the row of a key, or ``None`` if there is none. Time: O(log n)."""
        return self.table.get_row(key)

    def scan(self, prefix: Sequence[Any] = (), **bounds: Any) -> Iterator[Row]:
        """Return an iterator over the rows in key order, with the arguments of :meth:`StateTable.scan`."""
        return self.table.scan(prefix, **bounds)

    def _resolved(self, op: Op, present: Row | None, row: Row) -> Row | None:
        """Return the row that a change leaves in place of the row that is there."""
        if op == "-":
            return None
        if op == "U-":
            return None if self.conflict == "ignore" else present
        if present is None:
            return row
        if self.conflict == "ignore" or self._version(row) < self._version(present):
            return present
        if self.conflict == "update_if_not_null":
            return tuple(old if new is None else new for old, new in zip(present, row, strict=True))
        return row

    def _version(self, row: Row) -> list[tuple[bool, Any]]:
        found = [(row[place], rank) for place, rank in self._versions]
        return [(value is not None, None if value is None else rank(value)) for value, rank in found]

    def _apply(self, before: dict[Any, Row | None], after: dict[Any, Row | None]) -> list[Chunk]:
        """Write what has changed, and return the changes."""
        alike = self._input.alike
        pairs = [
            (old, new)
            for old, new in zip(before.values(), after.values())
            if old is not new and (old is None or new is None or not alike(old, new))
        ]
        self.table.write_rows([(True, new) if new is not None else (False, old) for old, new in pairs])  # type: ignore[misc]
        ops: list[Op] = []
        rows: list[Row] = []
        for old, new in pairs:
            if old is not None and new is not None:
                ops += ("U-", "U+") if self._is_same(old, new) else ("-", "+")
                rows += (old, new)
            else:
                ops.append("-" if new is None else "+")
                rows.append(old if new is None else new)  # type: ignore[arg-type]
        return [Chunk(self._output, ops, rows)] if ops else []

    def _is_same(self, old: Row, new: Row) -> bool:
        """Return whether two rows with one primary key are the same row downstream."""
        return not self._is_wider or self._output.same_key(old, new)
