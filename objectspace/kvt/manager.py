"""The manager: scopes and tables of a space (PDP-39's control plane)."""

from __future__ import annotations

from typing import Any, cast, overload

from objectspace import CheckpointKind, DamagedObjectError, ObjectSpace, Receipt, SpacePart
from objectspace.kvt.catalogue import (
    CREATED,
    FIRST,
    PARTITIONS,
    SEALED,
    Catalogue,
    Entry,
    delete_partitions,
    identity,
    scope_path,
    table_path,
)
from objectspace.kvt.entries import K, KeyValueTableConfiguration, V
from objectspace.kvt.errors import NoSuchScopeError, ScopeNotEmptyError
from objectspace.kvt.serializers import BYTES, Serializer, checked_serializer
from objectspace.kvt.shared import Floor, require_persisted, shared_of
from objectspace.kvt.table import KeyValueTable
from objectspace.kvt.versions import clock_floor


class KeyValueTableManager:
    """Creates, lists, seals and deletes the key-value tables of a space, and opens them.

    Scopes and tables live in the space like everything else: what is created is durable with the next checkpoint. A
    space may have any number of managers.

    Threads may share a manager and its tables. If they do, use :meth:`checkpoint` and :meth:`rollback` of the manager
    instead of those of the space: they wait for calls that are under way.

    Args:
        space: the space, or a part of one. A read-only one (``space.at(epoch=7)``) has tables to read.
        autocommit: commit each call, of the manager and of the tables that it opens. If such a commit fails, everything
            is as it was before the call, except that a deleted table stays deleted; deleting it again commits that.
        version_floor: returns a number that no lost version can exceed; see :func:`~objectspace.kvt.clock_floor`, the
            default. With ``lambda: 0`` versions depend on nothing but the writes, for tasks that are replayed: a number
            that was rolled back is given out again.

    Raises:
        TypeError: the space is not a space, or the floor not a function.
        ValueError: ``autocommit`` is asked for, but the space stores nothing.

    >>> from checkpoint import CheckpointStore
    >>> from objectspace import PersistedObjectSpace
    >>> space = PersistedObjectSpace(CheckpointStore(":memory:"))
    >>> manager = KeyValueTableManager(space)
    >>> manager.create_scope("shop"), manager.create_key_value_table("shop", "stock", KeyValueTableConfiguration(4))
    (True, True)
    >>> table = manager.open_key_value_table("shop", "stock")
    >>> version = table.put(b"apples", b"17", key_family="fruit")
    >>> manager.checkpoint().objects["kvt/shop/stock/3"].slots
    1
    """

    def __init__(
        self, space: ObjectSpace | SpacePart, *, autocommit: bool = False, version_floor: Floor = clock_floor
    ) -> None:
        named = _space(space)
        if not callable(version_floor):
            raise TypeError(f"version_floor is {version_floor!r:.80}: expected a function, such as clock_floor")
        if autocommit:
            require_persisted(named)
        self._space, self._autocommit, self._floor = named, autocommit, version_floor
        self._shared = shared_of(named)
        self._lock = self._shared.lock
        self._catalogue = Catalogue(named)
        self._deleted: set[str] = set()
        """The tables whose deletion could not be committed: it is done in memory, and the next call must commit it."""

    def __repr__(self) -> str:
        return f"KeyValueTableManager({self._space!r}{', autocommit=True' if self._autocommit else ''})"

    def create_scope(self, scope: str) -> bool:
        """Create a scope; return False if it exists.

        Raises:
            ValueError: the name has characters other than ASCII letters, digits, dots and hyphens, or too many.

        Time: O(log n). Dirties: one item and the length of the catalogue.
        """
        path = scope_path(scope)
        with self._lock:
            is_new = self._catalogue.find(path) is None
            if is_new:
                self._set(path, {}, None)
        return is_new

    def delete_scope(self, scope: str) -> bool:
        """Delete a scope; return False if there is none.

        Raises:
            ScopeNotEmptyError: it holds tables.

        Time: O(tables of the scope). Dirties: one item and the length of the catalogue.
        """
        path = scope_path(scope)
        with self._lock:
            entry = self._catalogue.find(path)
            if entry is None:
                return False
            if tables := self._catalogue.tables(scope):
                held = f"{len(tables)} tables, {tables[0]!r} first: delete them"
                raise ScopeNotEmptyError(
                    f"scope {scope!r} holds " + (held if len(tables) > 1 else f"1 table, {tables[0]!r}: delete it")
                )
            self._set(path, None, entry)
        return True

    def list_scopes(self) -> list[str]:
        """Return the names of all scopes, in order."""
        with self._lock:
            return self._catalogue.scopes()

    def create_key_value_table(self, scope: str, table: str, configuration: KeyValueTableConfiguration) -> bool:
        """Create a table; return False if one of this name exists, whatever its configuration.

        Raises:
            NoSuchScopeError: there is no such scope.
            ValueError: the name has characters other than ASCII letters, digits, dots and hyphens, or too many.
            DamagedObjectError: there is a table of this name whose entry in the catalogue is damaged, or the id of the
                next partition is.

        Time: O(log n), whatever the number of partitions. Dirties: two items and the length of the catalogue.
        """
        path = table_path(scope, table)
        _configuration(configuration)
        with self._lock:
            self._require_scope(scope)
            is_new = self._catalogue.find(path) is None
            if is_new:
                self._set(path, self._new_entry(configuration.partition_count), None)
        return is_new

    def list_key_value_tables(self, scope: str) -> list[str]:
        """Return the names of the tables of a scope, in order.

        Raises:
            NoSuchScopeError: there is no such scope.
        """
        scope_path(scope)
        with self._lock:
            self._require_scope(scope)
            return self._catalogue.tables(scope)

    def get_key_value_table_configuration(self, scope: str, table: str) -> KeyValueTableConfiguration:
        """Return the configuration of a table.

        Raises:
            NoSuchTableError: there is no such table.
        """
        path = table_path(scope, table)
        with self._lock:
            entry = self._catalogue.find(path)
        if entry is None:
            raise self._catalogue.missing(path)
        return KeyValueTableConfiguration(entry[PARTITIONS])

    def update_key_value_table(self, scope: str, table: str, configuration: KeyValueTableConfiguration) -> bool:
        """Change the configuration of a table; return False if there is none.

        A configuration holds nothing but the partition count, and that is fixed: so this only tells whether a table is
        as expected.

        Raises:
            ValueError: the partition count is a different one.

        Time: O(log n). Dirties: nothing.
        """
        path = table_path(scope, table)
        wanted = _configuration(configuration).partition_count
        with self._lock:
            entry = self._catalogue.find(path)
        if entry is not None and entry[PARTITIONS] != wanted:
            raise ValueError(
                f"table {path} has {entry[PARTITIONS]} partitions, not {wanted}: their number is fixed; create another"
                " table and copy the entries"
            )
        return entry is not None

    def seal_key_value_table(self, scope: str, table: str) -> bool:
        """Seal a table: from then on it takes no writes, by any handle. Return False if there is none.

        Time: O(log n). Dirties: one item of the catalogue.
        """
        path = table_path(scope, table)
        with self._lock:
            entry = self._catalogue.find(path)
            if entry is not None and not entry[SEALED]:
                self._set(path, {**entry, SEALED: True}, entry)
        return entry is not None

    def delete_key_value_table(self, scope: str, table: str) -> bool:
        """Delete a table with all it holds; return False if there is none. Its handles refuse work from then on.

        If this is interrupted, the table is sealed and may have lost some of its keys: delete it again. A table whose
        entry in the catalogue is damaged is deleted as well, with all objects that are named like its partitions.

        Time: O(partitions), or O(objects of the space) if the entry is damaged. Dirties: two index rows per partition
        that was written to, one item and the length of the catalogue.
        """
        path = table_path(scope, table)
        with self._lock:
            try:
                entry = self._catalogue.find(path)
            except DamagedObjectError:
                entry = {}
            if entry is not None:
                # The entry goes last, so that an interrupted deletion can be repeated; until then handles look up their
                # partitions again, and write nothing.
                self._catalogue.put(path, {**entry, SEALED: True})
                delete_partitions(self._space, path, entry)
                self._deleted.add(path)
                self._catalogue.put(path, None)
            was_there = path in self._deleted
            if was_there:
                self._changed()
            self._deleted.discard(path)
        return was_there

    @overload
    def open_key_value_table(
        self, scope: str, table: str, *, autocommit: bool | None = None
    ) -> KeyValueTable[bytes, bytes]: ...

    @overload
    def open_key_value_table(
        self, scope: str, table: str, *, key_serializer: Serializer[K], autocommit: bool | None = None
    ) -> KeyValueTable[K, bytes]: ...

    @overload
    def open_key_value_table(
        self, scope: str, table: str, *, value_serializer: Serializer[V], autocommit: bool | None = None
    ) -> KeyValueTable[bytes, V]: ...

    @overload
    def open_key_value_table(
        self,
        scope: str,
        table: str,
        *,
        key_serializer: Serializer[K],
        value_serializer: Serializer[V],
        autocommit: bool | None = None,
    ) -> KeyValueTable[K, V]: ...

    def open_key_value_table(
        self,
        scope: str,
        table: str,
        *,
        key_serializer: Serializer[Any] = BYTES,
        value_serializer: Serializer[Any] = BYTES,
        autocommit: bool | None = None,
    ) -> KeyValueTable[Any, Any]:
        """Return a handle on a table. Nothing is read until it is needed.

        Args:
            scope: the scope of the table.
            table: the name of the table.
            key_serializer: turns keys into bytes, and bytes into keys; ``BYTES``, ``UTF8``, ``JSON`` or your own.
            value_serializer: the same for values.
            autocommit: commit each call that writes, with everything else that is dirty in the space; by default as the
                manager does. If such a commit fails, the keys of the call are as they were before it.

        Raises:
            NoSuchTableError: there is no such table.
            DamagedObjectError: its entry in the catalogue is damaged.
            TypeError: a serializer lacks one of the two methods.
        """
        keys = checked_serializer(key_serializer, "key_serializer")
        values = checked_serializer(value_serializer, "value_serializer")
        commits = self._autocommit if autocommit is None else autocommit
        path = table_path(scope, table)
        return KeyValueTable(self._space, path, keys, values, commits, self._floor)

    def checkpoint(self, epoch: int | None = None, kind: CheckpointKind = CheckpointKind.DIFFERENTIAL) -> Receipt:
        """Make a checkpoint of the space, after the calls that are under way in other threads, and return its receipt.

        Time: O(dirty slots · log dirty slots), and O(1) for each live handle of the space that is a list, dictionary,
        set, queue or stack.
        """
        with self._lock:
            return require_persisted(self._space, "call checkpoint() of that").checkpoint(epoch, kind)

    def rollback(self, epoch: int | None = None) -> None:
        """Roll the space back, after the calls that are under way in other threads.

        Args:
            epoch: drop also every checkpoint after it; without one, drop what is not committed.
        """
        with self._lock:
            require_persisted(self._space, "call rollback() of that").rollback(epoch)

    def _new_entry(self, count: int) -> Entry:
        first = self._catalogue.reserve(count)
        entry = {PARTITIONS: count, FIRST: first, SEALED: False, CREATED: self._shared.creation(first, self._floor)}
        self._shared.creations[identity(entry)] += 1
        return entry

    def _set(self, path: str, entry: Entry | None, before: Entry | None) -> None:
        """Set an entry of the catalogue and commit it; if that fails, the entry is as it was before."""
        try:
            self._catalogue.put(path, entry)
            self._changed()
        except BaseException:
            self._catalogue.put(path, before)
            raise

    def _changed(self) -> None:
        if self._autocommit:
            require_persisted(self._space).checkpoint()

    def _require_scope(self, scope: str) -> None:
        if self._catalogue.find(scope) is None:
            raise NoSuchScopeError(f"there is no scope {scope!r} in this space: create_scope() makes one")


def _space(space: object) -> ObjectSpace:
    """Return what a manager works on; raise TypeError if it is nothing of that kind."""
    if not isinstance(space, ObjectSpace | SpacePart):
        raise TypeError(
            f"the space is {space!r:.80}, a {type(space).__name__}: pass an object space, such as"
            " PersistedObjectSpace.open(path), or a SpacePart"
        )
    return cast(ObjectSpace, space)  # A part has the methods that are needed, except those for checkpoints.


def _configuration(configuration: object) -> KeyValueTableConfiguration:
    if not isinstance(configuration, KeyValueTableConfiguration):
        raise TypeError(f"the configuration is {configuration!r:.80}: pass KeyValueTableConfiguration(partition_count)")
    return configuration
