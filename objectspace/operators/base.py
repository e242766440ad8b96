"""What all operators have in common: changes in, changes out, and state under a name of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import wraps
from types import FunctionType
from typing import Any, ClassVar
from weakref import WeakMethod

from checkpoint.errors import not_copied
from objectspace.errors import CheckpointProtocolError
from objectspace.operators.prompt import ShownAtPrompt
from objectspace.relational import Chunk, SchemaError, StateTable, TableSchema
from objectspace.relational.schema import KeyPart, Row
from objectspace.space import ObjectSpace

Watermark = tuple[str, Any]
"""A watermark: the name of a column, and the least value that a later row can have in it."""


Method = Callable[..., list[Chunk]]


def _cut_if_interrupted(process: Method) -> Method:
    """Have what interrupts a method of an operator leave the space cut, so that no half of it is ever saved.

    An error, such as one of a user's function, does not: the method says itself what it leaves then.
    """

    @wraps(process)
    def _whole(self: Operator, *given: Any, **named: Any) -> list[Chunk]:
        try:  # Around a chunk of one row, a block would take longer than the chunk.
            return process(self, *given, **named)
        except BaseException:
            if self._home is None:
                raise
            with self._home.in_one_piece(Exception):
                raise

    return _whole


def _in_one_piece(barrier: Method) -> Method:
    """Do the same, and refuse saves in its midst, where an epoch is sealed by half."""

    @wraps(barrier)
    def _whole(self: Operator, *given: Any, **named: Any) -> list[Chunk]:
        if self._home is None:
            return barrier(self, *given, **named)
        with self._home.in_one_piece(Exception):
            return barrier(self, *given, **named)

    return _whole


class Operator(ShownAtPrompt, ABC):
    """Something that takes chunks of a change log and returns chunks of a change log.

    An operator is independent of any engine. It is opened on a space and takes chunks; at each barrier it returns what
    it held back and seals its tables, and the checkpoint of the space makes them durable. The same state and the same
    rows of an epoch, in any order, give the same state and the same output.

    If :meth:`process` or :meth:`barrier` is interrupted, by Ctrl-C or for lack of memory, nothing of its space is saved
    before a rollback.
    """

    sides: ClassVar[tuple[str, ...]] = ("input",)
    """The names of its inputs, from left to right."""

    _home: ObjectSpace | None = None
    """The space that it is open on."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, whole in (("process", _cut_if_interrupted), ("barrier", _in_one_piece)):
            if isinstance(vars(cls).get(name), FunctionType):
                setattr(cls, name, whole(vars(cls)[name]))

    def __init__(self) -> None:
        self._tables: dict[str, StateTable] = {}

    @property
    @abstractmethod
    def schema(self) -> TableSchema:
        """The schema of its output; the primary key is the stream key, which is in the output at most once."""

    @property
    def passes_over_stream_keys(self) -> bool:
        """Whether the stream keys of its input rows make no difference to it."""
        return False

    def kept_as(self, column: str) -> str | None:
        """Return the name under which every output row has a column of the input, or ``None`` if it does not."""
        return None

    def state(self) -> list[tuple[str, TableSchema]]:
        """Return the role and the schema of each table that it keeps, known before it is opened."""
        return []

    def open(self, space: ObjectSpace, name: str) -> None:
        """Create its state under a name, or open it again after recovery.

        After a rollback of the space it is back at the last checkpoint without being opened again; only if there is no
        checkpoint yet, its tables are gone, and it must be opened again.

        Raises:
            SchemaMismatchError: the state under the name is that of another operator.
        """
        self._tables = {role: StateTable(space, f"{name}/{role}", schema) for role, schema in self.state()}
        # After the tables, which hear of a rollback first, so what is read from them is what is stored.
        self._follow_rollbacks(space)

    def begin_batch(self, batch: int) -> None:  # Few operators number rows.
        """Tell the operator which batch comes next, if a run counts batches.

        A batch that is fed once more has its number again, but in another epoch, so an operator that numbers rows
        numbers them by the batch.
        """

    @abstractmethod
    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Take some changes of one input, and return the changes of the output that are known already.

        Raises:
            TypeError: it is not a chunk.
            SchemaMismatchError: the chunk has other columns than the input.
            CheckpointProtocolError: the operator keeps state and is not open.
        """

    def watermark(self, column: str, value: Any, side: str = "input") -> list[Watermark]:
        """Accept a watermark: no later input row has a lower value in the column. Return those for the output.

        State that can never be needed again is removed at the next barrier.
        """
        return []

    @_in_one_piece
    def barrier(self, epoch: int) -> list[Chunk]:
        """End an epoch: return the changes of the output that were held back, and seal the tables.

        A barrier that is refused leaves the operator as it was, and may be tried again once the cause is put right.

        Raises:
            EpochError: the epoch is not after the last one.
        """
        self._check_epoch(epoch)
        chunks = self._flush()
        for table in self._tables.values():
            table.commit(epoch)
        return chunks

    def fed_by(self, sides: Collection[str]) -> None:  # Few without state have several inputs.
        """Tell which of the inputs come here, if an engine runs an operator without state in several places."""

    def watermarks(self) -> list[Watermark]:
        """Return the watermarks for the output that the last barrier made, besides what :meth:`watermark` passes on.

        They hold for what comes after the barrier; most operators make none of their own.
        """
        return []

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self._home is not None:
            raise not_copied(self, "it is open on a space; make another operator, and open that where it is needed")
        return super().__reduce_ex__(protocol)

    def _at_prompt(self) -> tuple[str, str]:
        columns = f"columns {', '.join(self.schema.names)}"
        for role, table in self._tables.items():
            return f"{table.name.removesuffix(f'/{role}')!r}, {columns}", ""
        return columns, "not open" if self._home is None and self.state() else ""

    def _check_open(self) -> None:
        """Refuse to take anything before :meth:`open` has given the operator its tables."""
        if not self._tables and self.state():
            raise not_open(self)

    def _check_side(self, side: str) -> None:
        """Refuse changes of a side that the operator does not have, and any before it is open."""
        self._check_open()
        if side not in self.sides:
            expected = " or ".join(map(repr, self.sides))
            raise ValueError(f"{type(self).__name__} has no side {side!r}: expected {expected}")

    def _check_epoch(self, epoch: int) -> None:
        """Refuse an epoch that cannot be sealed, before anything is returned for it."""
        self._check_open()
        for table in self._tables.values():
            table.check_epoch(epoch)

    def _follow_rollbacks(self, space: ObjectSpace) -> None:
        """Have :meth:`_forget` called after each rollback; this does not keep the operator alive."""
        self._home = space
        call_after_rollbacks(space, self._forget)

    def _forget(self) -> None:  # Not every operator has anything in memory.
        """Drop what is in memory, and take over what is stored: the space was rolled back."""

    def _only_row(self, role: str) -> Row | None:
        """Return the row of a table that has at most one; ``None`` also if a rollback has left no table."""
        table = self._tables[role]
        return None if table.is_dropped else table.get_row(())

    def _flush(self) -> list[Chunk]:
        """Return what was held back until the barrier."""
        return []


def call_after_rollbacks(space: ObjectSpace, method: Callable[[], None]) -> None:
    """Have a method called after each rollback of a space; this does not keep its object alive."""
    found = WeakMethod(method, lambda _: take_back())

    def _call() -> None:
        called = found()
        if called is not None:
            called()

    take_back = space.on_rollback(_call)


def ask_before_saves(space: ObjectSpace, method: Callable[[ObjectSpace], None]) -> None:
    """Have a method called with a space before each checkpoint and save, which it may refuse by raising."""
    found = WeakMethod(method, lambda _: take_back())

    def _ask() -> None:
        called = found()
        if called is not None:
            called(space)

    take_back = space.ask_before_save(_ask)


def not_open(operator: object) -> CheckpointProtocolError:
    """Return the error for an operator that is used before it is opened."""
    return CheckpointProtocolError(
        f"{type(operator).__name__} is not open: call open(space, name) before anything else; nothing was taken"
    )


def check_number(what: str, number: object, least: int) -> None:
    """Refuse what is no whole number, or too small.

    Raises:
        SchemaError: it is one of these.
    """
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise SchemaError(f"{what} is {number!r}: expected a number from {least}")


def column_names(given: Sequence[str] | str) -> list[str]:
    """Return the column names that a user gives: a string is one name."""
    return [given] if isinstance(given, str) else list(given)


def order_parts(given: Iterable[KeyPart] | str | None) -> list[KeyPart]:
    """Return the parts of the order that a user gives: a string is one of them, and ``None`` stands for no order.

    Raises:
        SchemaError: these are no columns.
    """
    is_one = isinstance(given, str) or not isinstance(given, Iterable)
    found: list[Any] = [] if given is None else [given] if is_one else list(given)
    if not all(isinstance(part, Sequence) for part in found):
        raise SchemaError(f"order_by= takes columns, as in ['mean desc']: found {given!r:.200}; compute others before")
    return found
