"""Apply: a user's object, which knows neither engines nor chunks, processes the rows of each epoch."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from objectspace.operators.base import Operator, column_names, not_open
from objectspace.operators.canonical import identity
from objectspace.operators.chunks import Change, paired, taken
from objectspace.operators.distinct import unused
from objectspace.operators.materialize import Materialize
from objectspace.operators.net import net_changes
from objectspace.operators.returned import changes_of
from objectspace.operators.sources import ROW_ID
from objectspace.part import SpacePart
from objectspace.relational import Chunk, Column, RowError, SchemaError, StateTable, TableSchema
from objectspace.relational.chunk import OP_COLUMN
from objectspace.space import ObjectSpace

if TYPE_CHECKING:
    import pyarrow as pa

OUTPUT = "$output"
"""The role of the table of what is in the output: a name that no user's object can have."""

_ROWS_A_KEY = 2**32
"""How many rows may be added for one key in one batch."""


@runtime_checkable
class Processor(Protocol):
    """An object with a method that turns the rows of an epoch into rows: see :meth:`Stream.apply`.

    Its attributes are its configuration; what it keeps lies in the space. Each operator works with a copy of the
    object, so an attribute that ``process`` changes is lost.
    """

    def process(self, batch: pa.RecordBatch, space: SpacePart, /) -> Any:
        """Change objects of the space according to the rows of an epoch, and return the resulting rows.

        Args:
            batch: the rows that came for the keys of one shard, at least one, in the order of the stream's key. If the
                stream has retractions, the first column is ``op``: ``+`` for a row that came and ``-`` for one that
                went; ``U-`` with the old row of an update, and right after it ``U+`` with the new one. The batch
                holds only what the epoch changed in the end.
            space: where the object keeps its objects and key-value tables, under names of its own.

        Returns:
            an Arrow batch or table, a pandas data frame, rows (mappings or tuples), or ``None`` for no rows.
        """


class Apply(Operator):
    """Hands the changes of each epoch to a user's object as one Arrow batch, and outputs what it returns.

    With an output key a returned row replaces the last one with its key, a row with ``-`` in the column ``op`` takes
    that one back, and the output says what changed. Without one each returned row is added to the output.

    State: what the object keeps, under the name of the operator; with an output key also a table of the rows that are
    in the output. A returned row that differs from the last one of its key dirties its slot.

    Args:
        schema: the schema of the input.
        processor: the object; the operator works with a copy of it.
        name: what errors call the operator.
        output: the schema of the rows that it returns; the primary key is the output key.
        key: the columns of the input by which an engine divides its work; returned rows are of keys that came.
        visible: the columns of the input that it sees; all by default.
        append_only: whether the input has no retractions: the batch then has no column of operations.

    Raises:
        SchemaError: the object cannot be copied, or the schemas do not go together.

    >>> from objectspace import VolatileObjectSpace
    >>> class Longest:
    ...     def process(self, batch, space):
    ...         longest = space.get_or_create_dictionary("longest")
    ...         for row in batch.to_pylist():
    ...             longest[row["k"]] = max(row["v"], longest.get(row["k"], 0))
    ...         return [{"k": k, "most": longest[k]} for k in set(batch["k"].to_pylist())]
    >>> rows = TableSchema([Column("id", "int64"), Column("k", "string"), Column("v", "int64")], ["id"])
    >>> output = TableSchema([Column("k", "string"), Column("most", "int64")], ["k"])
    >>> operator = Apply(rows, Longest(), "longest", output, ["k"], append_only=True)
    >>> operator.open(VolatileObjectSpace(), "longest")
    >>> for epoch, value in enumerate([3, 9, 4], 1):
    ...     _ = operator.process(Chunk.from_rows(rows, [("+", (epoch, "a", value))]))
    ...     print(operator.barrier(epoch))
    [Chunk(1 rows: + ('a', 3))]
    [Chunk(2 rows: U- ('a', 3); U+ ('a', 9))]
    []
    """

    def __init__(
        self,
        schema: TableSchema,
        processor: Processor,
        name: str,
        output: TableSchema,
        key: Sequence[str] = (),
        *,
        visible: Sequence[str] | None = None,
        append_only: bool = False,
    ) -> None:
        super().__init__()
        self.input, self._append_only = schema, append_only
        key, visible = column_names(key), None if visible is None else column_names(visible)
        self._what = f"operator {name!r} ({type(processor).__name__})"
        self._processor = _copied(self._what, processor)
        _check_schemas(self._what, schema, output, key, visible or schema.names, append_only)
        self._seen = TableSchema([schema.column(column) for column in visible or schema.names])
        self._pick = _picker([schema.place_of(column) for column in self._seen.names])
        routed = [column for column in key if column not in dict(schema.primary_key)]
        self._updated = TableSchema(schema.columns, [*schema.primary_key, *routed])
        self._returned = output
        self._key_of, self._out_key_of = (_key_function(one, key) for one in (schema, output))
        self._output = Output(output) if output.primary_key else None
        self._schema = output if self._output is not None else _numbered(output, key)
        self._pending: list[Chunk] = []
        self._number: int | None = None

    @property
    def schema(self) -> TableSchema:
        """The schema of the output: what the object returns, with a number for each row if there is no output key."""
        return self._schema

    def state(self) -> list[tuple[str, TableSchema]]:
        """Return the table of what is in the output, if rows are replaced."""
        return [] if self._output is None else self._output.state()

    def open(self, space: ObjectSpace, name: str) -> None:
        """Create its state under a name, or open it again after recovery."""
        self._space = SpacePart(space, f"{name}/")
        if self._output is not None:
            self._output.open(space, name)
        self._follow_rollbacks(space)
        self._forget()

    def begin_batch(self, batch: int) -> None:
        """From now on, number added rows by this batch, not by the epoch."""
        self._number = batch

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Take some changes; the object gets them at the barrier.

        Raises:
            SchemaMismatchError: the chunk has other columns.

        Time: O(1).
        """
        self._check_open()
        self._pending.append(taken(self.input, chunk))
        return []

    def barrier(self, epoch: int) -> list[Chunk]:
        """End an epoch: hand its changes to the object, and return what its returned rows change in the output.

        If the object fails, or what it returned is refused, its changes to the space stay: roll the space back.

        Raises:
            RowError: a returned row does not fit the schema, or is of a key that did not come.

        Time: O(rows · log rows), plus what the object takes. Dirties: what the object changes, and a slot for each
        returned row that differs from the last one with its key.
        """
        self._check_open()
        if self._output is not None:
            self._output._check_epoch(epoch)
        changes = self._changes()
        made = list(self._made(changes)) if changes else []
        self._forget()
        if self._output is None:
            return self._added(made, epoch if self._number is None else self._number)
        chunk = Chunk(self._returned, [op for op, _ in made], [row for _, row in made])
        return [*self._output.process(chunk), *self._output.barrier(epoch)]

    def _check_open(self) -> None:
        if not hasattr(self, "_space"):
            raise not_open(self)

    def _forget(self) -> None:
        self._pending = []

    def _changes(self) -> list[Change]:
        """Return what the epoch changed, ordered by the stream key, so the order in which it came does not matter."""
        rows = [row for chunk in self._pending for row in chunk.values]
        ops = [op for chunk in self._pending for op in chunk.ops]
        found = paired(self._updated, _halves(Chunk(self.input, ops, rows)))
        return found.rows()

    def _made(self, changes: list[Change]) -> Iterator[Change]:
        """Hand changes to the object, and yield the rows that it returned, checked."""
        keys = {self._key_of(row) for _, row in changes}
        try:
            returned = self._processor.process(self._batch(changes), self._space)
        except StopIteration as error:  # Here it would end an iteration, and nobody could tell why.
            raise RuntimeError(f"{self._what} raised StopIteration, as next() does at the end") from error
        try:
            for op, row in changes_of(self._returned, returned):
                if self._out_key_of(row) not in keys:
                    raise RowError(f"{row!r:.200} has a key that is not in the batch: return rows of its keys")
                yield op, row
        except (RowError, SchemaError) as error:
            raise type(error)(f"{self._what} returned what does not fit: {error}") from None

    def _batch(self, changes: list[Change]) -> pa.RecordBatch:
        rows = [self._pick(row) for _, row in changes]
        try:
            chunk = Chunk(self._seen, [op for op, _ in changes], rows)
            batch = chunk.to_arrow(op_column=unused(OP_COLUMN, self._seen.names))
        except RowError as error:
            raise RowError(f"{self._what}: {error}") from None
        return batch.select(list(self._seen.names)) if self._append_only else batch

    def _added(self, made: list[Change], number: int) -> list[Chunk]:
        """Number the rows of each key, so the numbers do not depend on which keys share a shard."""
        count: Counter[Any] = Counter()
        rows = []
        for _, row in made:
            key = self._out_key_of(row)
            rows.append((*row, number * _ROWS_A_KEY + count[key]))
            count[key] += 1
        return [Chunk(self._schema, ["+"] * len(rows), rows)] if rows else []


class Output(Materialize):
    """The rows that are in the output, in a table whose name no user's object can have."""

    def state(self) -> list[tuple[str, TableSchema]]:
        """Return the schema of the table of the rows."""
        return [(OUTPUT, self._output)]

    def open(self, space: ObjectSpace, name: str) -> None:
        """Create the table, or open it again."""
        self._tables = {"table": StateTable(space, f"{name}/{OUTPUT}", self._output, "blind")}
        self._follow_rollbacks(space)


def require_processor(what: str, processor: Any) -> None:
    """Refuse anything that is not an object with a method ``process``.

    Raises:
        SchemaError: it is a class, a function, or something else, or the method takes other arguments.
    """
    if isinstance(processor, type) or not isinstance(processor, Processor):
        raise SchemaError(
            f"{what}: expected an object with process(batch, space), found {processor!r}: pass an object, not its class"
            " and no function"
        )
    try:
        signature = inspect.signature(processor.process)
    except (TypeError, ValueError):
        return  # Some functions written in C do not say.
    try:
        signature.bind(None, None)
    except TypeError:
        raise SchemaError(f"{what}: expected process(batch, space), found process{signature}") from None


def _copied(what: str, processor: Processor) -> Processor:
    require_processor(what, processor)
    try:
        return deepcopy(processor)
    except TypeError as error:
        raise SchemaError(
            f"{what}: the object is copied for each task, but cannot be ({error}): make in process() what cannot be"
            " copied"
        ) from error


def _check_schemas(
    what: str, schema: TableSchema, output: TableSchema, key: Sequence[str], visible: Sequence[str], append_only: bool
) -> None:
    """Refuse schemas that do not go together.

    Raises:
        SchemaError: they do not; it says which column.
    """
    if OP_COLUMN in output.names or (OP_COLUMN in visible and not append_only):
        raise SchemaError(f"{what}: the column {OP_COLUMN!r} says what a row does: give yours another name")
    if not output.primary_key and ROW_ID in output.names:
        raise SchemaError(f"{what}: the column {ROW_ID!r} numbers the rows: give yours another name")
    out = {column.name: column.type for column in output.columns}
    for column in key:
        kind = schema.column(column).type
        if out.get(column) != kind:
            found = f"found {out[column]}" if column in out else f"the schema has {', '.join(output.names)}"
            raise SchemaError(f"{what}: expected the key column {column!r} ({kind}) in the schema: {found}: add it")
        if output.primary_key and column not in dict(output.primary_key):
            raise SchemaError(f"{what}: the output key lacks {column!r}: rows of each key are replaced on their own")


def _numbered(output: TableSchema, key: Sequence[str]) -> TableSchema:
    return TableSchema([*output.columns, Column(ROW_ID, "int64")], [*key, ROW_ID])


def _key_function(schema: TableSchema, key: Sequence[str]) -> Callable[[Any], Any]:
    places = [schema.place_of(column) for column in key]
    return identity([schema.columns[place].type for place in places], places)


def _picker(places: Sequence[int]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda row: tuple([row[place] for place in places])


def _halves(chunk: Chunk) -> Iterable[tuple[Change | None, Change | None]]:
    """Yield what went and what came, in the order of the stream key."""
    net = net_changes(chunk)
    keyed = sorted(zip(chunk.schema.encode_keys([row for _, row in net]), net), key=itemgetter(0))
    for _, group in groupby(keyed, key=itemgetter(0)):
        changes = [change for _, change in group]
        gone = [change for change in changes if change[0] == "-"]
        yield from zip_longest(gone, [change for change in changes if change[0] == "+"])
