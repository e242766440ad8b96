"""Chunks of the change log: rows, each with an operation.

``+`` inserts a row and ``-`` deletes one; ``U-`` with the old row, directly followed by ``U+`` with the new row of the
same key, is an update. At any point of a log each key is there at most once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from objectspace.extras import require
from objectspace.relational.errors import InconsistentOperationError, RowError, SchemaError
from objectspace.relational.schema import Row, TableSchema

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa

Op = Literal["+", "-", "U-", "U+"]

OPS: tuple[Op, ...] = ("+", "-", "U-", "U+")

Form = Literal["retract", "upsert"]

FORMS: tuple[Form, ...] = ("retract", "upsert")

OP_COLUMN = "op"
"""The name of the column that holds the operations in an Arrow batch or a data frame."""


class Chunk:
    """Some changes of one schema, in order.

    Args:
        schema: the schema of the rows.
        ops: the operation of each row.
        rows: rows in the one form that their types have, such as instants in UTC. They are not checked:
            :meth:`from_rows` checks and converts what comes from elsewhere.

    >>> from objectspace.relational import Column
    >>> schema = TableSchema([Column("k", "int64"), Column("v", "string")], primary_key=["k"])
    >>> chunk = Chunk.from_rows(schema, [("+", (1, "a")), ("-", (1, "a")), ("+", (1, "b"))])
    >>> chunk.compact().rows()
    [('+', (1, 'b'))]
    """

    def __init__(self, schema: TableSchema, ops: Sequence[Op], rows: Sequence[Row]) -> None:
        self.schema = schema
        self._ops, self._rows = list(ops), list(rows)

    @classmethod
    def from_rows(cls, schema: TableSchema, rows: Iterable[Sequence[Any]]) -> Chunk:
        """Return a chunk of pairs (operation, row); a third element ``False`` marks a row to leave out.

        Raises:
            RowError: there is no such operation, or a row does not fit the schema.
            SchemaError: the first argument is no schema.
        """
        _require_schema(schema, "from_rows takes the schema first, then the pairs (operation, row)")
        found = list(rows)
        for entry in found:
            if not isinstance(entry, Sequence) or len(entry) not in (2, 3) or entry[0] not in OPS:
                raise RowError(f"expected (operation, row) with one of {', '.join(OPS)}: found {entry!r:.200}")
        places = [place for place, entry in enumerate(found) if len(entry) == 2 or entry[2]]
        ops = [entry[0] for entry in found]
        checked = schema.check_rows([found[place][1] for place in places])
        if len(places) < len(found):
            return cls(schema, _whole(ops, places), checked)
        return cls(schema, ops, checked)

    @classmethod
    def from_arrow(
        cls,
        data: Any,
        schema: TableSchema | None = None,
        *,
        op_column: str = OP_COLUMN,
    ) -> Chunk:
        """Return a chunk of an Arrow batch or table, or of what is left in a stream of batches. Requires pyarrow.

        Args:
            data: the rows: a batch, a table, or anything with ``__arrow_c_stream__``; if the column of operations is
                missing, all rows are inserts.
            schema: the schema; that of the data by default.
            op_column: the name of the column of operations.

        Raises:
            RowError: this is not such data, there is no such operation, or a row does not fit the schema.
            SchemaError: a column of the schema is missing, or it or that of operations is there more than once; or the
                second argument is no schema.
        """
        require("pyarrow", "arrow")
        from objectspace.relational import arrow

        if schema is not None:
            _require_schema(schema, "from_arrow takes the data first, then the schema")
        found = arrow.whole(data)
        kind = schema or TableSchema.from_arrow(arrow.without(found.schema, op_column))
        return cls._of_columns(kind, *arrow.split(found, op_column, kind))

    @classmethod
    def from_pandas(
        cls, frame: pd.DataFrame, schema: TableSchema | None = None, *, op_column: str = OP_COLUMN
    ) -> Chunk:
        """Return a chunk of a data frame, like :meth:`from_arrow`.

        A missing value is NULL; whole numbers, which pandas turns into floats if one is missing, are taken as whole
        numbers.

        Raises:
            RowError: this is no data frame, there is no such operation, or a row does not fit the schema.
            SchemaError: as :meth:`from_arrow`.
        """
        require("pyarrow", "arrow")
        from objectspace.relational import arrow

        if schema is None:
            return cls.from_arrow(arrow.from_frame(frame), op_column=op_column)
        _require_schema(schema, "from_pandas takes the data frame first, then the schema")
        return cls._of_columns(schema, *arrow.split_frame(frame, op_column, schema))

    @classmethod
    def _of_columns(
        cls, schema: TableSchema, ops: list[Any], names: Sequence[str], columns: Sequence[list[Any]]
    ) -> Chunk:
        from objectspace.relational import arrow

        picked = list(arrow.picked(schema, names, columns))
        place = next((place for place, op in enumerate(ops) if op not in OPS), None)  # A list or struct has no hash.
        if place is not None:
            of = f" of the row {_shown_key(schema, picked[place])}" if picked else ""
            raise RowError(f"the operation {ops[place]!r:.80}{of}: expected one of {', '.join(OPS)}")
        return cls(schema, ops, schema.check_rows(picked))

    def to_arrow(self, *, op_column: str = OP_COLUMN) -> pa.RecordBatch:
        """Return the chunk as a batch whose first column holds the operations. Requires pyarrow.

        Args:
            op_column: the name of that column.

        Raises:
            SchemaError: the rows have a column of that name.
            RowError: Arrow's type of a column cannot hold a value.
        """
        require("pyarrow", "arrow")
        from objectspace.relational import arrow

        return arrow.joined(op_column, self._ops, self.schema, self._rows)

    def to_pandas(self, *, op_column: str = OP_COLUMN) -> pd.DataFrame:
        """Return the chunk as a data frame, like :meth:`to_arrow`. Requires pyarrow and pandas."""
        require("pandas", "spark")
        return self.to_arrow(op_column=op_column).to_pandas()

    @property
    def ops(self) -> Sequence[Op]:
        """The operations, one for each row."""
        return self._ops

    @property
    def values(self) -> Sequence[Row]:
        """The rows without their operations."""
        return self._rows

    def rows(self) -> list[tuple[Op, Row]]:
        """Return the pairs (operation, row)."""
        return list(zip(self._ops, self._rows, strict=True))

    def compact(
        self,
        key: Sequence[str] | None = None,
        *,
        form: Form = "retract",
        strict: bool = True,
    ) -> Chunk:
        """Return the net change of each key, in the order in which the keys first came (or came back).

        Args:
            key: the names of the key columns; the primary key by default.
            form: ``"retract"`` gives an update as a pair, ``"upsert"`` only its new row, as ``+``.
            strict: whether two successive inserts or two successive deletes of one key are refused; otherwise the
                change is from what the first delete names to what the last insert names.

        Raises:
            InconsistentOperationError: there are two such operations.
            ValueError: there is no such form.

        Time: O(rows).
        """
        return compacted([self], key, form=form, strict=strict)

    def without_noops(self) -> Chunk:
        """Return the chunk without neighbours of opposite operations and equal content; half a pair becomes plain.

        Time: O(rows).
        """
        kept: list[int] = []
        ops, rows, alike = self._ops, self._rows, self.schema.alike
        for place, (op, row) in enumerate(zip(ops, rows, strict=True)):
            if kept and is_insert(ops[kept[-1]]) != is_insert(op) and alike(rows[kept[-1]], row):
                kept.pop()
            else:
                kept.append(place)
        return Chunk(self.schema, _whole(ops, kept), [rows[place] for place in kept])

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[tuple[Op, Row]]:
        return iter(self.rows())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chunk) and self.schema == other.schema and self.rows() == other.rows()

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Chunk) -> Chunk:
        return Chunk(self.schema, self._ops + other._ops, self._rows + other._rows)

    def __repr__(self) -> str:
        shown = "; ".join(f"{op} {row!r}" for op, row in self.rows()[:8])
        return f"Chunk({len(self)} rows: {shown}{' ...' if len(self) > 8 else ''})"


def _require_schema(schema: Any, order: str) -> None:
    """Refuse something else, as it stands there if the arguments are swapped."""
    if not isinstance(schema, TableSchema):
        raise SchemaError(f"Chunk.{order}: expected a TableSchema, found a {type(schema).__name__}")


def _shown_key(schema: TableSchema, row: Row) -> str:
    """Return the primary key of a row as messages show it, or the whole row if the schema has none."""
    places = schema.key_places or range(len(schema.names))
    return f"{', '.join(f'{schema.names[place]}={row[place]!r}' for place in places):.200}"


def is_insert(op: Op) -> bool:
    """Return whether an operation adds its row."""
    return op in ("+", "U+")


def compacted(
    chunks: Iterable[Chunk],
    key: Sequence[str] | None = None,
    *,
    form: Form = "retract",
    strict: bool = True,
) -> Chunk:
    """Return the net change of each key over one or more chunks of one schema: see :meth:`Chunk.compact`."""
    if form not in FORMS:
        raise ValueError(f"form is {form!r}: expected one of {', '.join(FORMS)}")
    found = list(chunks)
    if not found:
        raise ValueError("there are no chunks to compact: pass at least one, which may be empty but has the schema")
    schema = found[0].schema
    whole = Chunk(schema, [op for chunk in found for op in chunk.ops], [row for chunk in found for row in chunk.values])
    keyed = schema if key is None else TableSchema(schema.columns, key)
    keys = keyed.encode_keys(whole.values)
    updates = _updates_told_once(keys, whole.ops)
    if updates is not None and form == "retract":
        net_changes = _plain_but(whole, updates)
        is_noop = any(schema.alike(*whole.values[place : place + 2]) for place in updates)
        return net_changes.without_noops() if is_noop else net_changes
    net: dict[bytes, tuple[Row | None, Row | None]] = {}
    for one, op, row in zip(keys, whole.ops, whole.values):
        _join(net, one, op, row, strict)
    return _net_chunk(schema, net, form)


def _updates_told_once(keys: Sequence[bytes], ops: Sequence[Op]) -> list[int] | None:
    """Return where updates begin if each key has one row or one update with adjacent halves, otherwise ``None``."""
    olds = [place for place, op in enumerate(ops[:-1]) if op == "U-"]
    updates = [place for place in olds if ops[place + 1] == "U+" and keys[place] == keys[place + 1]]
    return updates if len(set(keys)) + len(updates) == len(keys) else None


def _plain_but(chunk: Chunk, updates: Sequence[int]) -> Chunk:
    """Return a chunk in which only some updates, given by where they begin, remain updates."""
    ops: list[Op] = ["+" if is_insert(op) else "-" for op in chunk.ops]
    for place in updates:
        ops[place : place + 2] = "U-", "U+"
    return Chunk(chunk.schema, ops, chunk.values)


def _join(net: dict[bytes, tuple[Row | None, Row | None]], key: bytes, op: Op, row: Row, strict: bool) -> None:
    """Add one change to the net change of its key: (the row before, the row after)."""
    before, after = net.get(key, (None, None))
    if key in net and is_insert(op) == (after is not None) and strict:
        last = after if after is not None else before
        raise InconsistentOperationError(
            f"{op} {row!r:.200} follows {last!r:.200} of the same key: two inserts or two deletes"
        )
    if is_insert(op):
        net[key] = (before, row)
    elif key in net and before is None:
        del net[key]
    else:
        net[key] = (row if before is None else before, None)


def _net_chunk(schema: TableSchema, net: dict[bytes, tuple[Row | None, Row | None]], form: str) -> Chunk:
    ops: list[Op] = []
    rows: list[Row] = []
    for before, after in net.values():
        if before is None or after is None:
            ops.append("-" if after is None else "+")
            rows.append(before if after is None else after)  # type: ignore[arg-type]
        elif not schema.alike(before, after):
            ops += ["U-", "U+"] if form == "retract" else ["+"]
            rows += [before, after] if form == "retract" else [after]
    return Chunk(schema, ops, rows)


def _whole(ops: Sequence[Op], kept: Sequence[int]) -> list[Op]:
    """Return the operations at some places; half of an update becomes plain if its other half is not among them."""
    there = set(kept)

    def _op(place: int) -> Op:
        op = ops[place]
        if op == "U-" and not (place + 1 in there and ops[place + 1] == "U+"):
            return "-"
        if op == "U+" and not (place - 1 in there and ops[place - 1] == "U-"):
            return "+"
        return op

    return list(map(_op, kept))
