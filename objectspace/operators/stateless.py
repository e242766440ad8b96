"""Filter, Project and Union: operators that store nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from objectspace.operators.base import Operator, Watermark, column_names
from objectspace.operators.chunks import Change, check_chunk, halves, paired
from objectspace.operators.predicates import Predicate, function_of, predicate_of
from objectspace.relational import Chunk, Column, SchemaError, TableSchema
from objectspace.relational.checks import checked_watermark
from objectspace.relational.types import parse_type
from objectspace.space import ObjectSpace

Computed = str | tuple[str, Callable[..., Any]]
"""The name of a column, or a type with a function of the columns that its parameters name."""


class Filter(Operator):
    """Lets rows pass that satisfy a condition.

    If only one half of an update satisfies it, that half passes as a plain insert or delete.

    Args:
        schema: the schema of the input, and of the output.
        predicate: ``("v", ">", 5)``, a list of such comparisons, or a function such as ``lambda v: v > 5``, which must
            always give the same result for the same row.

    >>> from objectspace.relational import Column
    >>> schema = TableSchema([Column("k", "string"), Column("v", "int64")], primary_key=["k"])
    >>> chunk = Chunk.from_rows(schema, [("+", ("a", 7)), ("U-", ("b", 9)), ("U+", ("b", 1))])
    >>> Filter(schema, ("v", ">", 5)).process(chunk)[0].rows()
    [('+', ('a', 7)), ('-', ('b', 9))]
    """

    def __init__(self, schema: TableSchema, predicate: Predicate) -> None:
        super().__init__()
        self.input, self.predicate = schema, predicate
        self._test = predicate_of(schema, predicate)

    @property
    def schema(self) -> TableSchema:
        """The schema of the output: that of the input."""
        return self.input

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Return the changes of the rows that satisfy the condition. Time: O(rows)."""
        check_chunk(self.input, chunk)
        test = self._test
        if all(op == "+" for op, _ in chunk.rows()):
            kept = [row for _, row in chunk.rows() if test(row)]
            return [Chunk(self.input, ["+"] * len(kept), kept)] if kept else []
        found = paired(self.input, ((self._passed(old), self._passed(new)) for old, new in halves(chunk)))
        return [found] if len(found) else []

    def watermark(self, column: str, value: Any, side: str = "input") -> list[Watermark]:
        """Pass a watermark on."""
        return [(column, value)]

    def _passed(self, change: Change | None) -> Change | None:
        return change if change is not None and self._test(change[1]) else None


class Project(Operator):
    """Outputs other columns: some of the input columns, and values computed from them.

    Args:
        schema: the schema of the input.
        columns: for the name of each output column, the name of an input column, or a type and a function such as
            ``("int64", lambda v: 2 * v)``, which must always give the same result for the same row. A list of names
            keeps those columns as they are.
        key: the stream key of the output; by default that of the input, whose columns must then be in the output.

    Raises:
        SchemaError: a column does not exist, or the stream key is not in the output.

    >>> from objectspace.relational import Column
    >>> schema = TableSchema([Column("k", "string"), Column("v", "int64"), Column("w", "int64")], primary_key=["k"])
    >>> project = Project(schema, {"name": "k", "double": ("int64", lambda v: 2 * v)})
    >>> chunk = Chunk.from_rows(schema, [("+", ("a", 7, 0)), ("U-", ("b", 1, 1)), ("U+", ("b", 1, 2))])
    >>> project.process(chunk)[0].rows(), project.schema.names
    ([('+', ('a', 14))], ('name', 'double'))
    """

    def __init__(
        self, schema: TableSchema, columns: Mapping[str, Computed] | Sequence[str], key: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        self.input = schema
        given = columns if isinstance(columns, Mapping) else {name: name for name in column_names(columns)}
        self._names = {source: name for name, source in reversed(list(given.items())) if isinstance(source, str)}
        made = [_output_column(schema, name, expression) for name, expression in given.items()]
        watermark = None if schema.watermark_column is None else self._names.get(schema.watermark_column)
        self._output = TableSchema(made, self._key(key), watermark_column=watermark)
        self._getters = [_getter(schema, expression) for expression in given.values()]

    @property
    def schema(self) -> TableSchema:
        """The schema of the output."""
        return self._output

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Return the changes with the columns of the output; updates that change none of them are left out.

        Raises:
            ExpressionError: a function failed on a row.
            RowError: a function gave a value that does not fit the type of its column.

        Time: O(rows).
        """
        check_chunk(self.input, chunk)
        found = paired(self._output, ((self._changed(old), self._changed(new)) for old, new in halves(chunk)))
        return [found] if len(found) else []

    def watermark(self, column: str, value: Any, side: str = "input") -> list[Watermark]:
        """Pass a watermark on under the name that the column has in the output."""
        return [(self._names[column], value)] if column in self._names else []

    def _changed(self, change: Change | None) -> Change | None:
        if change is None:
            return None
        op, row = change
        return op, self._output.check_row(tuple([get(row) for get in self._getters]))

    def _key(self, key: Sequence[str] | None) -> list[Any]:
        if key is not None:
            return [*column_names(key)]
        missing = [name for name, _ in self.input.primary_key if name not in self._names]
        if missing:
            raise SchemaError(
                f"the stream key column {missing[0]!r} is not in the output: keep it, or name another key with key="
            )
        return [(self._names[name], order) for name, order in self.input.primary_key]


class Union(Operator):
    """Outputs the changes of several inputs of one schema as one.

    Args:
        schema: the schema of the inputs.
        inputs: the number of inputs, whose sides are then ``"input0"``, ``"input1"`` and so on; or the names of the
            sides.
        tag: the name of an additional column, which holds the number of the input and becomes part of the stream key.
            Without it a stream key must not be in two inputs.

    >>> from objectspace.relational import Column
    >>> schema = TableSchema([Column("k", "string")], primary_key=["k"])
    >>> union = Union(schema, inputs=2, tag="source")
    >>> union.process(Chunk.from_rows(schema, [("+", ("a",))]), side="input1")[0].rows()
    [('+', ('a', 1))]
    """

    def __init__(self, schema: TableSchema, inputs: int | Sequence[str] = 2, tag: str | None = None) -> None:
        super().__init__()
        # Each union has sides of its own; other operators have those of their class.
        self.sides = tuple(f"input{n}" for n in range(inputs)) if isinstance(inputs, int) else tuple(inputs)  # type: ignore[misc]
        self.input, self._tag = schema, tag
        self._output = schema if tag is None else _tagged(schema, tag)
        self._watermarks: dict[str, dict[str, Any]] = {}
        self._given: dict[str, Any] = {}
        self._fed: Collection[str] = self.sides

    @property
    def schema(self) -> TableSchema:
        """The schema of the output: that of the inputs, with the tag if there is one."""
        return self._output

    def process(self, chunk: Chunk, side: str = "input0") -> list[Chunk]:
        """Return the changes of one input. Time: O(rows).

        Raises:
            ValueError: there is no such side.
        """
        check_chunk(self.input, chunk)
        number = self._number(side)
        if not len(chunk):
            return []
        tail = () if self._tag is None else (number,)
        pairs = chunk.rows()
        return [Chunk(self._output, [op for op, _ in pairs], [(*row, *tail) for _, row in pairs])]

    def watermark(self, column: str, value: Any, side: str = "input0") -> list[Watermark]:
        """Accept a watermark of one input, and return the least of all inputs if that is a new one.

        Raises:
            RowError: it is not a value of the column.
        """
        self._number(side)
        value = checked_watermark(self.input.column(column), value)
        given = self._watermarks.setdefault(column, {})
        given[side] = max(given.get(side, value), value)
        if len(given) < len(self._fed):
            return []
        least = min(given.values())
        if column in self._given and least <= self._given[column]:
            return []
        self._given[column] = least
        return [(column, least)]

    def fed_by(self, sides: Collection[str]) -> None:
        """Tell which of the inputs come here: watermarks of the others are not waited for."""
        self._fed = sides

    def open(self, space: ObjectSpace, name: str) -> None:
        """Forget the watermarks from before; nothing is stored."""
        super().open(space, name)
        self._forget()

    def _forget(self) -> None:
        """Forget the watermarks: the operators upstream give them again."""
        self._watermarks.clear()
        self._given.clear()

    def _number(self, side: str) -> int:
        if side not in self.sides:
            raise ValueError(f"there is no side {side!r}: the sides are {', '.join(self.sides)}")
        return self.sides.index(side)


def _tagged(schema: TableSchema, tag: str) -> TableSchema:
    columns = [*schema.columns, Column(tag, "int32")]
    plain = [Column(column.name, column.type, column.nullable, column.default) for column in columns]
    return TableSchema(plain, [*schema.primary_key, tag], watermark_column=schema.watermark_column)


def _output_column(schema: TableSchema, name: str, expression: Computed) -> Column:
    if isinstance(expression, str):
        source = schema.column(expression)
        return Column(name, source.type, source.nullable)
    if not isinstance(expression, tuple) or len(expression) != 2 or not callable(expression[1]):
        raise SchemaError(f"column {name!r} is the name of a column or (type, function): found {expression!r}")
    return Column(name, parse_type(expression[0]), True)


def _getter(schema: TableSchema, expression: Computed) -> Callable[[Any], Any]:
    if isinstance(expression, str):
        place = schema.place_of(expression)
        return lambda row: row[place]
    return function_of(schema, expression[1])
