"""Stateless operators over expressions: which rows stay, what is computed from them, and streams put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from objectspace.operators.base import Operator
from objectspace.operators.expressions import Bound, Expression, col
from objectspace.relational import Chunk, Column, DataType, TableSchema
from objectspace.relational.chunk import Op

Row = tuple[Any, ...]
Change = tuple[Op, Row]


class Where(Operator):
    """Lets the rows through for which an expression is true; half of an update that is left becomes plain.

    >>> schema = TableSchema([Column("a", "int64"), Column("b", "int64")], ["a"])
    >>> where = Where(schema, col("b") > 3)
    >>> where.process(Chunk.from_rows(schema, [("U-", (1, 2)), ("U+", (1, 5)), ("+", (2, 0))]))
    [Chunk(1 rows: + (1, 5))]
    """

    def __init__(self, schema: TableSchema, condition: Expression) -> None:
        super().__init__()
        self._schema, self._bound = schema, condition.bind(schema)

    @property
    def schema(self) -> TableSchema:
        """The schema of its output."""
        return self._schema

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Return the changes of the rows that stay."""
        changes = chunk.rows()
        kept = self._bound.values([row for _, row in changes])
        return _chunks(self._schema, [change for change, keeps in zip(changes, kept, strict=True) if keeps])


class Select(Operator):
    """Computes other columns from each row, and keeps the stream key: what of it is not asked for stays hidden.

    Args:
        schema: the schema of the input.
        columns: the expression of each column of the output.
        key: the columns that are the stream key already, where they are fewer than the primary key of the schema.

    >>> schema = TableSchema([Column("a", "int64"), Column("b", "int64")], ["a"])
    >>> select = Select(schema, {"double": col("b") * 2})
    >>> print(select.schema)
    double int64 not null, _a int64 not null, primary key (_a asc nulls first)
    >>> select.process(Chunk.from_rows(schema, [("+", (1, 2))]))
    [Chunk(1 rows: + (4, 1))]
    """

    def __init__(
        self, schema: TableSchema, columns: Mapping[str, Expression], key: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        found = dict(columns)
        used = schema if key is None else TableSchema(schema.columns, key)
        made_key = []
        for name, order in used.primary_key:
            shown = next((out for out, made in found.items() if str(made) == name), None) or _free(f"_{name}", found)
            found.setdefault(shown, col(name))
            made_key.append((shown, order))
        self._bound: list[Bound] = [made.bind(schema) for made in found.values()]
        made = [bound.column(name) for name, bound in zip(found, self._bound, strict=True)]
        self._schema = TableSchema(made, made_key)
        self._casts = [_widen(column.type) for column in made]

    @property
    def schema(self) -> TableSchema:
        """The schema of its output."""
        return self._schema

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Return the changes of the computed rows; an update that changes nothing is dropped."""
        changes = chunk.rows()
        rows = [row for _, row in changes]
        columns = [bound.values(rows) for bound in self._bound]
        widened = [values if cast is None else [*map(cast, values)] for values, cast in zip(columns, self._casts)]
        made = [self._schema.check_row(row) for row in zip(*widened, strict=True)]
        return _chunks(self._schema, [(op, row) for (op, _), row in zip(changes, made, strict=True)])


class Relabel(Operator):
    """Gives the columns other names, and touches no row."""

    def __init__(self, schema: TableSchema, names: Mapping[str, str]) -> None:
        super().__init__()
        columns = [Column(names.get(one.name, one.name), one.type, one.nullable) for one in schema.columns]
        self._schema = TableSchema(columns, [(names.get(name, name), order) for name, order in schema.primary_key])

    @property
    def schema(self) -> TableSchema:
        """The schema of its output."""
        return self._schema

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Return the same changes under the other names."""
        changes = chunk.rows()
        return [Chunk(self._schema, [op for op, _ in changes], [row for _, row in changes])]


class Rekey(Operator):
    """Takes other columns as the key of the rows; an update that changes them becomes a delete and an insert."""

    def __init__(self, schema: TableSchema) -> None:
        super().__init__()
        self._schema = schema

    @property
    def schema(self) -> TableSchema:
        """The schema of its output."""
        return self._schema

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Return the same changes by the other key."""
        return _chunks(self._schema, chunk.rows())


class Merge(Operator):
    """Puts streams of one schema together, as UNION ALL; the keys of its inputs must already tell their rows apart."""

    def __init__(self, schemas: Sequence[TableSchema]) -> None:
        super().__init__()
        columns = [
            Column(one.name, one.type, any(schema.columns[place].nullable for schema in schemas))
            for place, one in enumerate(schemas[0].columns)
        ]
        self._schema = TableSchema(columns, list(schemas[0].primary_key))

    @property
    def schema(self) -> TableSchema:
        """The schema of its output."""
        return self._schema

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Return the changes of any side."""
        changes = chunk.rows()
        return [Chunk(self._schema, [op for op, _ in changes], [row for _, row in changes])]


def _free(name: str, taken: Mapping[str, Any]) -> str:
    while name in taken:
        name = f"_{name}"
    return name


def _widen(kind: DataType) -> Any:
    """Return what makes a value of the branches of an expression one of its type; they may be of narrower ones."""
    if kind.kind in ("float32", "float64"):
        return lambda value: float(value) if isinstance(value, int) else value
    return None


def _chunks(schema: TableSchema, changes: list[Change]) -> list[Chunk]:
    """Return changes as a chunk without halves of updates, and without updates of nothing; none where none is left."""
    kept: list[Change] = []
    for op, row in changes:
        last = kept[-1] if kept else None
        if op != "U+":
            _end_pair(kept)
            kept.append((op, row))
        elif last is None or last[0] != "U-":
            kept.append(("+", row))
        elif last[1] == row:
            kept.pop()
        elif schema.key_of(last[1]) != schema.key_of(row):
            kept[-1:] = [("-", last[1]), ("+", row)]
        else:
            kept.append(("U+", row))
    _end_pair(kept)
    return [Chunk(schema, [op for op, _ in kept], [row for _, row in kept])] if kept else []


def _end_pair(kept: list[Change]) -> None:
    """Make the first half of an update a delete where its second half did not come."""
    if kept and kept[-1][0] == "U-":
        kept[-1] = ("-", kept[-1][1])
