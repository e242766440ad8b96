"""The key-value table: the calls of PDP-39 over partitions of a space."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from objectspace.kvt import addressing
from objectspace.kvt.core import TableCore, family_of, members_of, pair_of, typed
from objectspace.kvt.entries import K, Modification, Put, Remove, TableEntry, TableKey, V
from objectspace.kvt.errors import ConditionalTableUpdateError
from objectspace.kvt.iteration import READ_AHEAD, IteratorState, PageIterator
from objectspace.kvt.partition import Partition, pack
from objectspace.kvt.serializers import to_bytes
from objectspace.kvt.versions import KeyVersion, new_version

if TYPE_CHECKING:
    from objectspace.kvt.asynchronous import AsyncKeyValueTable
    from objectspace.kvt.family import FamilyView

D = TypeVar("D")


class KeyValueTable(TableCore[K, V]):
    """A handle on a table, which a manager opens.

    A key lies in a family, or in none; the same key in two families is two keys. Every accepted write gives its key a
    new version. Every call is atomic, and calls from several threads exclude one another. Keys and values are anything
    that the serializers take, except ``None``; what the serializers return decides which keys are equal.

    A write is durable with the next checkpoint of the space or, with ``autocommit=True``, when it returns.

    The calls raise TypeError or ValueError for arguments that no table takes, TableClosedError after :meth:`close` and
    NoSuchTableError after the table was deleted; those that write raise TableSealedError after it was sealed.

    >>> from objectspace import VolatileObjectSpace
    >>> from objectspace.kvt import KeyValueTableConfiguration, KeyValueTableManager
    >>> manager = KeyValueTableManager(VolatileObjectSpace())
    >>> manager.create_scope("s"), manager.create_key_value_table("s", "t", KeyValueTableConfiguration(4))
    (True, True)
    >>> table = manager.open_key_value_table("s", "t")
    >>> first = table.put(b"key", b"value", key_family="f")
    >>> table.replace(b"key", b"other", first, key_family="f") > first
    True
    >>> table.get(b"key", key_family="f").value
    b'other'
    """

    # Writing ----------------------------------------------------------------------------------------------------------

    def put(self, key: K, value: V, key_family: str | None = None) -> KeyVersion:
        """Set the value of a key, whether it exists or not, and return its new version.

        Time: O(log n). Dirties: one slot and the counter of the partition; for a new key, also the length.
        """
        stored = pack(to_bytes(self._values, value, "value"))
        address, index = self._address(key, key_family)
        number = self._commit_put(index, address, stored)
        return new_version(KeyVersion, (self._first + index, number))  # type: ignore[no-any-return]

    def put_if_absent(self, key: K, value: V, key_family: str | None = None) -> KeyVersion:
        """Set the value of a key that must not exist, and return its version.

        Raises:
            BadKeyVersionError: it exists.

        Time: O(log n). Dirties: one slot, the counter of the partition and the length.
        """
        return self._put(key, value, KeyVersion.NOT_EXISTS, key_family)

    def put_all(self, key_family: str, pairs: Iterable[tuple[K, V]]) -> list[KeyVersion]:
        """Set keys of one family, all at once, and return their versions in the order of the pairs.

        A key that occurs twice is set twice, and the last value stays.

        Time: O(pairs · log n). Dirties: one slot per key and the counter; if keys are new, also the length.
        """
        return self._versions(key_family, [Put(*pair_of(member)) for member in members_of(pairs)])

    def replace(self, key: K, value: V, version: KeyVersion, key_family: str | None = None) -> KeyVersion:
        """Set the value of a key that must have this version, and return the new one.

        ``KeyVersion.NO_VERSION`` makes this :meth:`put`, ``KeyVersion.NOT_EXISTS`` makes it :meth:`put_if_absent`.

        Raises:
            BadKeyVersionError: it has a different version.
            NoSuchKeyError: it does not exist.

        Time: O(log n). Dirties: one slot and the counter of the partition.
        """
        if version is KeyVersion.NO_VERSION:
            return self.put(key, value, key_family)
        return self._put(key, value, version, key_family)

    def replace_all(self, key_family: str, entries: Iterable[TableEntry[K, V]]) -> list[KeyVersion]:
        """Set keys of one family, all or none, each conditional on its version; return the new versions in order.

        All conditions are judged against the state before the batch.

        Raises:
            BadKeyVersionError: a key has a different version.
            NoSuchKeyError: a key does not exist.

        Time: O(entries · log n). Dirties: one slot per key and the counter; if keys are new, also the length.
        """
        members = [typed(entry, TableEntry) for entry in members_of(entries)]
        keys = [typed(entry.key, TableKey) for entry in members]
        puts = [Put(key.key, entry.value, key.version) for key, entry in zip(keys, members, strict=True)]
        return self._versions(key_family, puts)

    def remove(self, key: K, version: KeyVersion = KeyVersion.NO_VERSION, key_family: str | None = None) -> None:
        """Remove a key, conditional on its version if one is given; without one it may be absent.

        Raises:
            BadKeyVersionError: it has a different version.
            NoSuchKeyError: a version was given, and the key does not exist.

        Time: O(log n). Dirties: one slot, the counter of the partition and the length; nothing if the key is absent.
        """
        self._apply(key_family, [Remove(key, version)])

    def remove_all(self, key_family: str, keys: Iterable[TableKey[K]]) -> None:
        """Remove keys of one family, all or none, each conditional on its version.

        A key with ``KeyVersion.NOT_EXISTS`` makes its absence a condition for the others.

        Raises:
            BadKeyVersionError: a key has a different version.
            NoSuchKeyError: a version was given, and the key does not exist.

        Time: O(keys · log n). Dirties: one slot per key that exists, the counter and the length.
        """
        members = [typed(key, TableKey) for key in members_of(keys)]
        self._apply(family_of(key_family), [Remove(key.key, key.version) for key in members])

    def apply(self, key_family: str, modifications: Iterable[Modification[K, V]]) -> list[KeyVersion | None]:
        """Insert, set and remove keys of one family, all or none; return a version for each, ``None`` for a removal.

        All conditions are judged against the state before the batch; then the members are applied in order.

        Args:
            key_family: the family.
            modifications: :class:`Insert`, :class:`Put` and :class:`Remove`, mixed as you like.

        Raises:
            BadKeyVersionError: a key has a different version, or exists although it is to be inserted.
            NoSuchKeyError: a version was given, and the key does not exist.

        Time: O(members · log n). Dirties: one slot per key and the counter; if keys come or go, also the length.
        """
        return self._apply(family_of(key_family), members_of(modifications))

    @overload
    def update(self, key: K, function: Callable[[V | None], V], key_family: str | None = ...) -> KeyVersion: ...
    @overload
    def update(
        self, key: K, function: Callable[[V | D], V], key_family: str | None = ..., *, default: D
    ) -> KeyVersion: ...
    @overload
    def update(self, key: K, function: Callable[[V | D], V], key_family: str | None, default: D) -> KeyVersion: ...
    def update(
        self, key: K, function: Callable[[Any], V], key_family: str | None = None, default: Any = None
    ) -> KeyVersion:
        """Set a key to what a function makes of its value, with no other write in between; return the version.

        The function runs outside the lock. It is called again if another write came first, so it should have no side
        effects.

        Args:
            key: the key.
            function: from the present value to the new one.
            key_family: the family of the key.
            default: what the function gets if the key does not exist.

        Time: O(log n), and the function. Dirties: one slot and the counter; for a new key, also the length.

        >>> from objectspace import VolatileObjectSpace
        >>> from objectspace.kvt import JSON, KeyValueTableConfiguration, KeyValueTableManager
        >>> manager = KeyValueTableManager(VolatileObjectSpace())
        >>> manager.create_scope("s"), manager.create_key_value_table("s", "t", KeyValueTableConfiguration(4))
        (True, True)
        >>> table = manager.open_key_value_table("s", "t", value_serializer=JSON)
        >>> for _ in range(3):
        ...     _ = table.update(b"hits", lambda n: n + 1, default=0)
        >>> table.get(b"hits").value
        3
        """
        while True:
            entry = self.get(key, key_family)
            version = KeyVersion.NOT_EXISTS if entry is None else entry.key.version
            value = function(default if entry is None else entry.value)
            try:
                return self._put(key, value, version, key_family)
            except ConditionalTableUpdateError:
                continue

    # Reading ----------------------------------------------------------------------------------------------------------

    def get(self, key: K, key_family: str | None = None) -> TableEntry[K, V] | None:
        """Return a key with its version and value, or ``None`` if it does not exist.

        Time: O(1) in memory; one row is read if it is not.
        """
        address, index = self._address(key, key_family)
        with self._lock:
            row = self._partition(index).read(address)
        return None if row is None else self._entry_of(key, row, self._first + index)

    def get_all(self, keys: Iterable[K], key_family: str | None = None) -> list[TableEntry[K, V] | None]:
        """Return what :meth:`get` returns for each key, in order, all as of one moment; keys may repeat."""
        wanted = members_of(keys)
        self._check_family(key_family)
        addresses = [self._address(key, key_family) for key in wanted]
        with self._lock:
            self._admit()
            rows = self._rows_at(addresses)
        return [
            None if row is None else self._entry_of(key, row, self._first + index)
            for key, row, (_, index) in zip(wanted, rows, addresses, strict=True)
        ]

    def exists(self, key: K, key_family: str | None = None) -> bool:
        """Return whether a key exists."""
        address, index = self._address(key, key_family)
        with self._lock:
            return self._partition(index).read(address) is not None

    def count(self, key_family: str | None = None) -> int:
        """Return the number of keys in a family, or in the whole table.

        Time: O(keys of the family); O(partitions) for the table.
        """
        if key_family is not None:
            with self._lock:
                return sum(len(page.items) for page in self._found(key_family, READ_AHEAD))
        with self._lock:
            return sum(len(self._partition(index)) for index in range(self._count))

    def families(self) -> list[str]:
        """Return the families that have keys, in the byte order of their table keys: the shorter first.

        Time: O(families · log n), in memory.
        """
        with self._lock:
            found = [name for index in range(self._count) for name in _families_of(self._partition(index))]
        return sorted(found, key=addressing.family_prefix)

    def family(self, key_family: str | None) -> FamilyView[K, V]:
        """Return a view of a family as a mutable mapping from key to value: it shows and makes changes at once.

        ``None`` gives the keys without a family, which can be read, set and removed, but not iterated over.
        """
        from objectspace.kvt.family import FamilyView

        return FamilyView(self, key_family)

    # Iterating --------------------------------------------------------------------------------------------------------

    def key_iterator(
        self, key_family: str, max_keys_at_once: int = 10, state: IteratorState | None = None
    ) -> PageIterator[TableKey[K]]:
        """Return an iterator over the keys of a family: pages of :class:`TableKey`, in byte order.

        Args:
            key_family: the family.
            max_keys_at_once: how many keys make a page; only the last one may have fewer.
            state: the state of a page, to continue after it.

        Raises:
            ValueError: the state is of another family or table.

        Time: O(log n + keys of the page) a page, in memory.

        >>> from objectspace import VolatileObjectSpace
        >>> from objectspace.kvt import KeyValueTableConfiguration, KeyValueTableManager
        >>> manager = KeyValueTableManager(VolatileObjectSpace())
        >>> manager.create_scope("s"), manager.create_key_value_table("s", "t", KeyValueTableConfiguration(4))
        (True, True)
        >>> table = manager.open_key_value_table("s", "t")
        >>> _ = table.put_all("f", [(b"b", b"2"), (b"a", b"1"), (b"c", b"3")])
        >>> [[item.key for item in page.items] for page in table.key_iterator("f", 2)]
        [[b'a', b'b'], [b'c']]
        """
        return self.key_range_iterator(key_family, None, None, max_keys_at_once, state)

    def entry_iterator(
        self, key_family: str, max_entries_at_once: int = 10, state: IteratorState | None = None
    ) -> PageIterator[TableEntry[K, V]]:
        """Return an iterator over the entries of a family, as :meth:`key_iterator` does over its keys."""
        return self.entry_range_iterator(key_family, None, None, max_entries_at_once, state)

    def key_prefix_iterator(
        self, key_family: str, prefix: K, max_keys_at_once: int = 10, state: IteratorState | None = None
    ) -> PageIterator[TableKey[K]]:
        """Return an iterator over the keys of a family whose serialized form begins with that of ``prefix``."""
        bounds = self._prefix_bounds(key_family, prefix)
        return self._pages(self._key_item, key_family, bounds, max_keys_at_once, state)

    def entry_prefix_iterator(
        self, key_family: str, prefix: K, max_entries_at_once: int = 10, state: IteratorState | None = None
    ) -> PageIterator[TableEntry[K, V]]:
        """Return an iterator over the entries of a family whose serialized keys begin with that of ``prefix``."""
        bounds = self._prefix_bounds(key_family, prefix)
        return self._pages(self._entry_item, key_family, bounds, max_entries_at_once, state)

    def key_range_iterator(
        self,
        key_family: str,
        from_key: K | None = None,
        to_key: K | None = None,
        max_keys_at_once: int = 10,
        state: IteratorState | None = None,
    ) -> PageIterator[TableKey[K]]:
        """Return an iterator over the keys of a family between two, both included; ``None`` means no bound."""
        bounds = self._range_bounds(key_family, from_key, to_key)
        return self._pages(self._key_item, key_family, bounds, max_keys_at_once, state)

    def entry_range_iterator(
        self,
        key_family: str,
        from_key: K | None = None,
        to_key: K | None = None,
        max_entries_at_once: int = 10,
        state: IteratorState | None = None,
    ) -> PageIterator[TableEntry[K, V]]:
        """Return an iterator over the entries of a family between two keys, both included; ``None`` means no bound."""
        bounds = self._range_bounds(key_family, from_key, to_key)
        return self._pages(self._entry_item, key_family, bounds, max_entries_at_once, state)

    def global_key_iterator(
        self, max_keys_at_once: int = 10, state: IteratorState | None = None
    ) -> PageIterator[TableKey[K]]:
        """Return an iterator over all keys of the table, in the byte order of their table keys.

        The items name their family. Families come first, by length and bytes, then the keys without a family, the
        longest first; only the empty key without a family comes before all others.
        """
        return self._pages(self._key_item_with_family, None, (b"", None, True), max_keys_at_once, state)

    def global_entry_iterator(
        self, max_entries_at_once: int = 10, state: IteratorState | None = None
    ) -> PageIterator[TableEntry[K, V]]:
        """Return an iterator over all entries of the table, in the order of :meth:`global_key_iterator`."""
        return self._pages(self._entry_item_with_family, None, (b"", None, True), max_entries_at_once, state)

    # The handle -------------------------------------------------------------------------------------------------------

    def as_async(self) -> AsyncKeyValueTable[K, V]:
        """Return an asyncio interface to this handle."""
        from objectspace.kvt.asynchronous import AsyncKeyValueTable

        return AsyncKeyValueTable(self)

    def close(self) -> None:
        """Close the handle, which refuses work from then on; other handles are not affected. May be called twice."""
        self._is_closed = True

    def __enter__(self) -> KeyValueTable[K, V]:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"KeyValueTable({self._path!r}, partition_count={self._count})"


def _families_of(partition: Partition) -> Iterable[str]:
    """Yield the families of a partition, skipping from the first key of one to the first of the next."""
    bound = b"\x00\x01"
    while (address := partition.ceiling(bound)) is not None and address < addressing.FAMILY_LESS:
        name, _ = partition.place_of(address)
        assert name is not None
        yield name
        bound = addressing.successor(addressing.family_prefix(name))
