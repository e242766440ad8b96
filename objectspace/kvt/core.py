"""What the calls of a table are made of: addresses, admission, the commit of a batch, and the rows of an iteration."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from operator import itemgetter
from typing import Any, Generic, NoReturn, TypeVar

from objectspace import ObjectSpace
from objectspace.kvt import addressing
from objectspace.kvt.catalogue import CREATED, FIRST, PARTITIONS, SEALED, Catalogue, Entry, identity, partition_name
from objectspace.kvt.entries import Insert, K, Modification, Put, Remove, TableEntry, TableKey, V
from objectspace.kvt.errors import (
    BadKeyVersionError,
    ConditionalTableUpdateError,
    FamilyRequiredError,
    NoSuchKeyError,
    NoSuchTableError,
    TableClosedError,
    TableSealedError,
)
from objectspace.kvt.iteration import READ_AHEAD, Found, IteratorState, PageIterator, position_of
from objectspace.kvt.partition import Change, Partition, Row, Stored, pack, place_of, unpack
from objectspace.kvt.serializers import BYTES, Serializer, to_bytes
from objectspace.kvt.shared import Floor, require_persisted, shared_of
from objectspace.kvt.versions import KeyVersion, clock_floor, new_version

D = TypeVar("D")
Item = TypeVar("Item")
_WrittenT = TypeVar("_WrittenT")

Bounds = tuple[bytes, bytes | None, bool]
"""(lower, upper, whether the upper one is included); an upper bound of ``None`` means no bound."""

_FAMILIES_KNOWN = 4096
"""For how many families a handle remembers where they lie."""


class TableCore(Generic[K, V]):
    """The part of a table below its public calls."""

    def __init__(
        self,
        space: ObjectSpace,
        path: str,
        key_serializer: Serializer[K] = BYTES,  # type: ignore[assignment]
        value_serializer: Serializer[V] = BYTES,  # type: ignore[assignment]
        autocommit: bool = False,
        floor: Floor = clock_floor,
    ) -> None:
        if autocommit:
            require_persisted(space)
        self._space, self._path, self._floor, self._autocommit = space, path, floor, autocommit
        self._keys, self._values = key_serializer, value_serializer
        self._shared = shared_of(space)
        self._lock = self._shared.lock
        self._catalogue = Catalogue(space)
        self._families: dict[str, tuple[bytes, int]] = {}
        self._partitions: dict[int, Partition] = {}
        self._is_closed = False
        with self._lock:
            self._entry = self._catalogue.find(path) or self._missing()
        self._creation = self._shared.creations[identity(self._entry)]
        self._first: int = self._entry[FIRST]
        self._count: int = self._entry[PARTITIONS]

    @property
    def name(self) -> str:
        """The scope and the name of the table, with a slash between them."""
        return self._path

    def _put(self, key: K, value: V, version: KeyVersion, key_family: str | None) -> KeyVersion:
        stored = pack(to_bytes(self._values, value, "value"))
        address, index = self._address(key, key_family)
        if type(version) is not KeyVersion:
            raise _no_version(version)
        (number,) = self._commit(index, key_family, [(address, stored, version)])
        return new_version(KeyVersion, (self._first + index, number))  # type: ignore[no-any-return]

    def _commit_put(self, index: int, address: bytes, stored: Stored) -> int:
        """Do what :meth:`_commit` does for one change without a condition."""
        with self._lock:
            partition = self._writable(index)
            if not self._autocommit:
                return partition.put(address, stored)
            return self._durably(partition, [address], lambda: partition.put(address, stored))

    def _versions(self, key_family: str, puts: Sequence[Put[K, V]]) -> list[KeyVersion]:
        return self._apply(family_of(key_family), puts)  # type: ignore[return-value]

    def _apply(self, key_family: str | None, modifications: Sequence[Modification[K, V]]) -> list[KeyVersion | None]:
        """Serialize and check everything, then commit it."""
        changes = [self._change(one, key_family) for one in modifications]
        if not changes:
            self._check_family(key_family)
            with self._lock:
                self._writable(0)
            return []
        index = changes[0][1]
        numbers = self._commit(index, key_family, [change for change, _ in changes])
        return [None if number is None else KeyVersion(self._first + index, number) for number in numbers]

    def _change(self, modification: Any, key_family: str | None) -> tuple[Change, int]:
        stored: Stored | None = None
        version = KeyVersion.NOT_EXISTS
        if not isinstance(modification, Insert):
            version = typed(modification, (Insert, Put, Remove)).version
            if type(version) is not KeyVersion:
                raise _no_version(version)
        if not isinstance(modification, Remove):
            stored = pack(to_bytes(self._values, modification.value, "value"))
        address, index = self._address(modification.key, key_family)
        return (address, stored, version), index

    def _commit(self, index: int, key_family: str | None, changes: list[Change]) -> list[int | None]:
        """Judge the conditions of changes to one partition, apply all, and make them durable if that is asked."""
        with self._lock:
            partition = self._writable(index)
            failed = partition.judge(changes)
            if failed is not None:
                place, actual = failed
                raise self._conflict(key_family, changes[place], actual, partition.id)
            if not self._autocommit:
                return partition.write(changes)
            keys = [address for address, _, _ in changes]
            return self._durably(partition, keys, lambda: partition.write(changes))

    def _durably(self, partition: Partition, keys: Sequence[bytes], write: Callable[[], _WrittenT]) -> _WrittenT:
        """Write, and make it durable; if that fails, the keys are as they were.

        This is not a context manager: one that Ctrl-C keeps from learning that it was left would put the keys back
        later.
        """
        before = partition.read_all(keys)
        try:
            written = write()
            self._space.checkpoint()
        except BaseException:
            partition.put_back(keys, before)
            raise
        return written

    def _pop_first(self, key_family: str) -> TableEntry[K, V] | None:
        """Remove the first key of a family, as it was read, and return its entry; ``None`` if there is none."""
        while (page := next(self._found(key_family, 1), None)) is not None:
            address, _, partition_id = found = page.items[0]
            entry = self._entry_item(found)
            with suppress(ConditionalTableUpdateError):
                self._commit(partition_id - self._first, key_family, [(address, None, entry.key.version)])
                return entry
        return None

    def _clear(self, key_family: str) -> None:
        """Remove every key of a family by its table key, as the serializer may turn it into other bytes now."""
        with self._lock:
            pages = self._found(key_family, READ_AHEAD)
            changes: list[Change] = [
                (address, None, KeyVersion.NO_VERSION) for page in pages for address, _, _ in page.items
            ]
            index = self._family_place(key_family)[1]
            if changes:
                self._commit(index, key_family, changes)
            else:
                self._writable(index)

    def _found(self, key_family: str, size: int) -> PageIterator[Found]:
        """Return an iterator over what is kept of the keys of a family."""
        return self._pages(lambda found: found, key_family, self._range_bounds(key_family, None, None), size, None)

    def _conflict(
        self, key_family: str | None, change: Change, actual: KeyVersion, partition_id: int
    ) -> ConditionalTableUpdateError:
        address, _, expected = change
        is_missing = actual == KeyVersion.NOT_EXISTS and expected.partition == partition_id
        key: Any = address[addressing.key_start(address) :]
        with suppress(Exception):  # What cannot be read back must not hide the conflict: it is told in bytes.
            key = self._keys.deserialize(key)
        error = NoSuchKeyError if is_missing else BadKeyVersionError
        return error(self._path, key_family, key, expected, actual)

    def _address(self, key: K, key_family: str | None) -> tuple[bytes, int]:
        """Return the table key of a key and the index of its partition."""
        data = to_bytes(self._keys, key, "key")
        if key_family is None:
            address = addressing.table_key(data)
            return address, addressing.partition_of_route(address, self._count)
        prefix, index = self._family_place(key_family)
        return addressing.joined(prefix, data), index

    def _check_family(self, key_family: str | None) -> None:
        """Refuse what is not a family, even if no key comes with it."""
        if key_family is not None:
            self._family_place(key_family)

    def _family_place(self, key_family: str) -> tuple[bytes, int]:
        try:
            known = self._families.get(key_family)
        except TypeError:  # It has no hash, so it is not text, which is said below.
            known = None
        if known is None:
            prefix = addressing.family_prefix(family_of(key_family))
            known = prefix, addressing.partition_of_route(prefix, self._count)
            if len(self._families) >= _FAMILIES_KNOWN:
                self._families.clear()
            self._families[key_family] = known
        return known

    def _admit(self) -> None:
        """Refuse work if the handle is closed or the table gone. The caller holds the lock.

        The entry in the catalogue is another object after a change, a rollback or a reading from the store. Only then
        is there something to find out, and the objects of the partitions are looked up again.
        """
        if self._is_closed:
            raise TableClosedError(f"this handle on table {self._path} is closed: open another one with the manager")
        try:
            entry: Entry | None = self._catalogue.entries[self._path]
        except KeyError:
            entry = None
        if entry is not self._entry:
            self._look_up()

    def _look_up(self) -> None:
        entry = self._catalogue.find(self._path) or self._missing()
        found = identity(entry)
        if found != identity(self._entry) or self._shared.creations[found] != self._creation:
            raise NoSuchTableError(
                f"table {self._path} of this handle was deleted or rolled back, and created again since: open it again"
            )
        self._entry = entry
        self._partitions.clear()

    def _missing(self) -> NoReturn:
        raise self._catalogue.missing(self._path)

    def _writable(self, index: int) -> Partition:
        self._admit()
        partition = self._partitions.get(index)
        if partition is None:
            partition = self._partition(index)
        if self._entry[SEALED]:
            raise TableSealedError(f"table {self._path} is sealed: it can be read, but takes no writes")
        return partition

    def _partition(self, index: int) -> Partition:
        """Return a partition of a table that is there. The caller holds the lock."""
        self._admit()
        found = self._partitions.get(index)
        if found is None:
            number = self._first + index
            name = partition_name(self._path, number)
            found = self._partitions[index] = Partition(self._space, name, number, self._shared, self._floor)
        return found

    def _rows_at(self, addresses: Sequence[tuple[bytes, int]]) -> list[Row | None]:
        """Return what is kept at each (table key, partition), those of a partition read together."""
        places: dict[int, list[int]] = {}
        for place, (_, index) in enumerate(addresses):
            places.setdefault(index, []).append(place)
        rows: list[Row | None] = [None] * len(addresses)
        for index, those in places.items():
            found = self._partition(index).read_all([addresses[place][0] for place in those])
            for place, row in zip(those, found, strict=True):
                rows[place] = row
        return rows

    # Items and bounds of an iteration ---------------------------------------------------------------------------------

    def _pages(
        self,
        item: Callable[[Found], Item],
        key_family: str | None,
        bounds: Bounds,
        size: int,
        state: IteratorState | None,
    ) -> PageIterator[Item]:
        if state is not None:
            self._check_state(state, key_family)
        indexes = range(self._count) if key_family is None else [self._family_place(key_family)[1]]
        start = state or IteratorState(self._path, self._first, key_family, b"", self._entry.get(CREATED))
        pages = PageIterator(
            _TableRows(self, indexes, bounds), self._lock, size, item, start, is_begun=state is not None
        )
        with self._lock:
            self._admit()
        return pages

    def _check_state(self, state: IteratorState, key_family: str | None) -> None:
        if not isinstance(state, IteratorState):
            raise TypeError(f"the state is {state!r:.80}: pass page.state, or IteratorState.from_bytes(...)")
        position_of(state)
        place = (self._path, self._first, key_family, self._entry.get(CREATED))
        if (state.table, state.incarnation, state.key_family, state.created) != place:
            raise ValueError(
                f"the state is of table {state.table}, family {state.key_family!r}, but this iteration is over table"
                f" {self._path}, family {key_family!r}: a state resumes where it was taken, not in a table that was"
                " deleted or rolled back and created again"
            )

    def _range_bounds(self, key_family: str, from_key: K | None, to_key: K | None) -> tuple[bytes, bytes, bool]:
        prefix = addressing.family_prefix(family_of(key_family))
        lower = prefix if from_key is None else self._address(from_key, key_family)[0]
        if to_key is None:
            return lower, addressing.successor(prefix), False
        return lower, self._address(to_key, key_family)[0], True

    def _prefix_bounds(self, key_family: str, prefix: K) -> tuple[bytes, bytes, bool]:
        lower = self._address(prefix, family_of(key_family))[0]
        return lower, addressing.successor(lower), False

    def _key_item(self, found: Found) -> TableKey[K]:
        address, row, partition_id = found  # Of a family, so the bounds have seen to the beginning of the address.
        key = self._keys.deserialize(address[addressing.key_start(address) :])
        return TableKey(key, KeyVersion(partition_id, row[0]))  # type: ignore[arg-type]

    def _key_item_with_family(self, found: Found) -> TableKey[K]:
        address, row, partition_id = found
        family, key = place_of(partition_name(self._path, partition_id), address)
        version = KeyVersion(partition_id, row[0])  # type: ignore[arg-type]
        return TableKey(self._keys.deserialize(key), version, family)

    def _entry_item(self, found: Found) -> TableEntry[K, V]:
        _, row, _ = found
        return TableEntry(self._key_item(found), self._values.deserialize(unpack(row[1])))  # type: ignore[arg-type]

    def _entry_item_with_family(self, found: Found) -> TableEntry[K, V]:
        _, row, _ = found
        key = self._key_item_with_family(found)
        return TableEntry(key, self._values.deserialize(unpack(row[1])))  # type: ignore[arg-type]

    def _entry_of(self, key: K, row: Row, partition_id: int) -> TableEntry[K, V]:
        number, stored = row
        version = KeyVersion(partition_id, number)  # type: ignore[arg-type]
        return TableEntry(TableKey(key, version), self._values.deserialize(unpack(stored)))  # type: ignore[arg-type]


class _TableRows:
    """The rows of some partitions of a table, between two bounds, in the order of their table keys."""

    def __init__(self, table: TableCore[Any, Any], indexes: Iterable[int], bounds: Bounds) -> None:
        self._table, self._indexes = table, list(indexes)
        self._lower, self._upper, self._is_closed = bounds

    def stamp(self) -> list[int]:
        """Return the number of the last write to each partition, after that of the rollbacks."""
        numbers = [self._table._partition(index).stamp for index in self._indexes]
        return [self._table._shared.rollbacks, *numbers]

    def read(self, after: bytes | None, count: int) -> list[Found]:
        """Return the next rows after a table key."""
        is_first = after is None or after < self._lower
        lower = self._lower if is_first or after is None else after
        sources = [
            self._rows(partition, lower, is_first)
            for partition in map(self._table._partition, self._indexes)
            if len(partition)
        ]
        rows = sources[0] if len(sources) == 1 else heapq.merge(*sources, key=itemgetter(0))
        return list(islice(rows, count))

    def _rows(self, partition: Partition, lower: bytes, is_first: bool) -> Iterable[Found]:
        number = partition.id
        return ((key, row, number) for key, row in partition.items(lower, self._upper, (is_first, self._is_closed)))


def family_of(key_family: str | None) -> str:
    """Return a family that an operation needs.

    Raises:
        FamilyRequiredError: it is ``None``.
    """
    if key_family is None:
        raise FamilyRequiredError(
            "this operation is for keys of one family: give key_family; keys without one are"
            " got, put and removed one by one, and found by global_key_iterator()"
        )
    return key_family


def members_of(members: Iterable[D]) -> list[D]:
    """Return the members of a batch, taken from their iterable once."""
    if members is None or isinstance(members, (str, bytes)):
        raise TypeError(f"the members of the batch are {members!r:.80}: expected a list or another iterable")
    return list(members)


def pair_of(member: Any) -> tuple[Any, Any]:
    """Return the member of a batch that is a key and a value; raise TypeError if it is not."""
    if not isinstance(member, tuple | list) or len(member) != 2:
        raise TypeError(f"{member!r:.80} is a {type(member).__name__}: expected a pair of key and value")
    return member[0], member[1]


def typed(member: Any, kinds: Any) -> Any:
    """Return the member of a batch; raise TypeError if it is of none of the kinds."""
    if not isinstance(member, kinds):
        names = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
        raise TypeError(f"{member!r:.80} is a {type(member).__name__}: expected {names}")
    return member


def _no_version(version: object) -> TypeError:
    return TypeError(f"the version is {version!r:.80}: expected a KeyVersion, such as KeyVersion.NO_VERSION")
