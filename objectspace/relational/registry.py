"""The open tables of a space, which seal at the same barrier and forget together."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

from objectspace import CheckpointProtocolError, ObjectSpace, ObjectSpaceError
from objectspace.relational.row_store import RowStore
from objectspace.relational.vnodes import VnodeBitmap
from objectspace.space import may_be_table


class OpenTable(Protocol):
    """What a barrier needs from a table."""

    @property
    def name(self) -> str:
        """The name of the table."""

    @property
    def epoch(self) -> int:
        """The last epoch that was sealed."""

    @property
    def is_dropped(self) -> bool:
        """Whether the table no longer exists."""

    def check_barrier(self, epoch: int) -> None:
        """Refuse an epoch that can be neither sealed nor sealed once more."""

    def seal(self) -> None:
        """Seal what was written since the last epoch, once the next one is checked."""

    def take_epoch(self, epoch: int) -> None:
        """Note that all of an epoch is sealed, here and in the other tables."""

    def reopen(self) -> None:
        """Let the last epoch be sealed once more, if it is not durable."""

    def follow_schema(self) -> None:
        """Take over the stored schema of the table, which another handle has changed."""

    def follow_watermarks(self) -> None:
        """Read the watermarks again, which another handle has raised."""

    def drop_unsealed(self) -> None:
        """Drop what is not sealed; nothing is read."""

    def forget(self) -> None:
        """Drop what is not sealed, and read again what is stored."""

    def renamed(self, new_name: str) -> None:
        """Take a new name."""

    def unsealed(self, vnodes: VnodeBitmap | None) -> int:
        """Return how many operations wait to be sealed, if they are on one of these vnodes."""


Handles = WeakKeyDictionary[OpenTable, None]
"""The open tables on the same rows, in the order in which they were opened; each of them keeps it alive."""


class Registry:
    """The open tables of one space; those with unsealed rows are kept alive.

    Tables are told of a barrier in the order in which they were opened, so every run of a program does the same.

    ``changes`` counts the changes to sealed rows of any table: several tables may be on the same rows. ``last_number``
    is how many tables the catalogue had when one was created last, and its number: the greatest as long as none went.

    Args:
        space: the space.
    """

    def __init__(self, space: ObjectSpace) -> None:
        self._space = ref(space)
        self._tables: WeakKeyDictionary[OpenTable, None] = WeakKeyDictionary()
        self._beside: WeakValueDictionary[int, Handles] = WeakValueDictionary()
        self._dirty: dict[OpenTable, None] = {}
        self.changes = 0
        self.last_number = (0, 0)

    def add(self, table: OpenTable, rows: RowStore) -> Handles:
        """Note that a table on some rows is open, and return what it must keep alive as long as it is."""
        handles = self._beside.get(id(rows.handle))
        if handles is None:
            handles = self._beside[id(rows.handle)] = WeakKeyDictionary()
        handles[table] = None
        self._tables[table] = None
        return handles

    def wrote(self, table: OpenTable) -> None:
        """Note that a table has rows that are not sealed."""
        self._dirty[table] = None

    def sealed(self, table: OpenTable) -> None:
        """Note that a table has no such rows any more."""
        self._dirty.pop(table, None)

    def refuse_beside(self, what: str, rows: RowStore, vnodes: VnodeBitmap | None, asks: OpenTable | None) -> None:
        """Refuse what cannot be right while another open table on the same rows has rows that are not sealed.

        Args:
            what: what is refused, for the error.
            rows: the stored rows.
            vnodes: the vnodes that it is about, or ``None`` for all.
            asks: the table whose own unsealed rows do not count.

        Raises:
            CheckpointProtocolError: there is such a table.

        Time: O(open handles of the table).
        """
        for table in self._on(rows.handle):
            if table is not asks and table in self._dirty and (count := table.unsealed(vnodes)):
                raise CheckpointProtocolError(
                    f"table {rows.table!r}: {what} while another open handle of it has rows that are not sealed"
                    f" ({count}), which this one neither sees nor checks: seal them first, with space.checkpoint() or"
                    " seal_tables(space, epoch), or drop them with space.rollback(), and go on"
                )

    def note_change(self) -> None:
        """Note that a table's sealed rows change, or which of them it reads: open scans begin again."""
        self.changes += 1

    def seal(self, epoch: int) -> None:
        """Seal an epoch of every open table.

        A table that has sealed it and was written to since seals it once more. If a table fails, none has the epoch:
        what the tables before it had waiting is in the space, and belongs to the epoch that the next call seals, this
        one or another.

        Raises:
            EpochError: one of them is already at a later epoch, or was written to since and the epoch is durable.
        """
        tables = [table for table in self.open() if table.epoch != epoch or table in self._dirty]
        for table in tables:
            table.check_barrier(epoch)
        for table in tables:
            table.seal()
        for table in tables:
            table.take_epoch(epoch)

    def reopen(self, names: Iterable[str]) -> None:
        """Let the tables below some names seal their last epoch once more, as long as it is not durable."""
        folders = tuple(f"{name}/" for name in names)
        for table in self.open():
            if table.name.startswith(folders):
                table.reopen()

    def changed_schema(self, rows: RowStore) -> None:
        """Have the open tables on some rows take over their schema, which was changed."""
        self.note_change()
        for table in self._on(rows.handle):
            table.follow_schema()

    def raised_watermark(self, rows: RowStore, by: OpenTable) -> None:
        """Have the other open tables on some rows take over their watermarks, which one table has raised."""
        for table in self._on(rows.handle):
            if table is not by:
                table.follow_watermarks()

    def sealed_epoch(self) -> int:
        """Return the last epoch that any open table has sealed, or 0 if none has."""
        return max((table.epoch for table in self.open()), default=0)

    def forget(self) -> None:
        """Have all tables drop what is not sealed before any of them reads what is stored, which may fail.

        A table whose stored entries are damaged refuses its own work from then on, and does not hold up the space.
        """
        self.last_number = (0, 0)
        for table in [one for one in self._dirty if one.is_dropped]:
            table.drop_unsealed()
        tables = self.open()
        for table in tables:
            table.drop_unsealed()
        for table in tables:
            with suppress(ObjectSpaceError):  # But not an interruption or a failure of the file.
                table.forget()

    def deleted(self, handle: object) -> None:
        """Have the tables on deleted rows drop what they have not sealed, which their reads look at first."""
        for table in self._on(handle):
            if table in self._dirty:
                table.drop_unsealed()

    def renamed(self, _: str, new_name: str) -> None:
        """Tell the open tables on the rows that have a new name now."""
        space = self._space()
        if space is None or not may_be_table(*space.entry_of(new_name)[1:]):
            return
        with suppress(ObjectSpaceError):  # No table is open on what cannot be got.
            for table in self._on(space.get(new_name)):
                table.renamed(new_name)

    def _on(self, handle: object) -> list[OpenTable]:
        """Return the open tables on the rows that a dictionary holds."""
        return list(self._beside.get(id(handle), ()))

    def open(self) -> list[OpenTable]:
        """Return the open tables in the order in which they were opened, and forget those that no longer exist."""
        found = []
        for table in list(self._tables):
            if not table.is_dropped:
                found.append(table)
                continue
            del self._tables[table]
            self._dirty.pop(table, None)
        return found


_registries: WeakKeyDictionary[ObjectSpace, ref[Registry]] = WeakKeyDictionary()
"""Weak both ways, because a registry's tables refer to the space: the space's hooks, or its tables, keep it alive."""


def registry_of(space: ObjectSpace) -> Registry:
    """Return the registry of a space; a space with checkpoints tells the registry of them and of rollbacks."""
    known = _registries.get(space)
    registry = None if known is None else known()
    if registry is None:
        registry = Registry(space)
        space.on_barrier(registry.seal)
        space.ask_sealed(registry.sealed_epoch)
        space.on_rollback(registry.forget)
        space.on_delete(registry.deleted)
        space.on_rename(registry.renamed)
        _registries[space] = ref(registry)  # Last: one that an interruption has left half known has no tables.
    return registry


def seal_tables(space: ObjectSpace, epoch: int) -> None:
    """Seal an epoch of every open table of a space: of all of them, or of none.

    ``space.checkpoint(epoch=)`` does this by itself; call this function before ``space.save(writer)``. Until the epoch
    is durable it may be sealed again, with what was written since.

    Raises:
        EpochError: one of them is already at a later epoch, or was written to since and the epoch is durable.

    Time: O(rows that are not sealed + open tables).
    Dirties: one item per net operation.
    """
    # After an error the epoch can be sealed again; an interruption leaves no half of it to be saved.
    with space.in_one_piece(Exception):
        registry_of(space).seal(epoch)
