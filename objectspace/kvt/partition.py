"""One partition: a sorted dictionary from table key to version number and value, and the counter of its versions.

The dictionary is a raw one: a slot is the table key, and what is stored of it is the number, a space and the value, as
text if the value is text, so that anybody can read it in the store: ``12 blue``. Tables that were created before there
were raw dictionaries keep their rows as lists, ``[12,"blue"]``, and continue to do so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from objectspace import DamagedObjectError, ObjectSpace, SortedDictionary, Value
from objectspace.kvt.addressing import split_table_key
from objectspace.kvt.shared import Floor, Shared
from objectspace.kvt.versions import KeyVersion
from objectspace.objects.base import DAMAGE

Stored = str | bytes
"""A value as it is kept: text if its bytes are UTF-8, so that anybody can read it in the store; else bytes."""

Row = Sequence[int | Stored]
"""What is kept of a key: ``(number, value)``."""

Change = tuple[bytes, Stored | None, KeyVersion]
"""(table key, value, condition); a value of ``None`` removes the key."""


_ANY = KeyVersion.NO_VERSION

_NONE_GIVEN = object()


def pack(data: bytes) -> Stored:
    """Return the stored form of bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def unpack(stored: Stored) -> bytes:
    """Return the bytes of their stored form."""
    return stored.encode() if type(stored) is str else stored  # type: ignore[return-value]


def stored_entries(rows: SortedDictionary[bytes, Any]) -> Iterator[tuple[bytes, int, bytes]]:
    """Yield (table key, version number, value) of every key in the dictionary of a partition, in byte order.

    Raises:
        DamagedObjectError: what is stored of a key cannot be read.

    >>> from objectspace import VolatileObjectSpace
    >>> rows = VolatileObjectSpace().create_sorted_dictionary("rows", raw=True)
    >>> rows[b"key"] = "12 blue"
    >>> list(stored_entries(rows))
    [(b'key', 12, b'blue')]
    """
    pairs = rows.items()
    for key, (number, value) in _split_all(rows.name, pairs) if rows.is_raw else pairs:
        yield key, number, unpack(value)


def place_of(name: str, address: bytes) -> tuple[str | None, bytes]:
    """Return family and key of a table key that a partition holds.

    Args:
        name: the name of the dictionary of the partition.
        address: the table key.

    Raises:
        DamagedObjectError: it is not a table key.
    """
    try:
        return split_table_key(address)
    except ValueError as error:
        raise DamagedObjectError(
            f"partition {name!r} of a key-value table, table key {address!r}: invalid ({error}); the other keys are"
            " readable one by one; remove this one from the dictionary of the partition,"
            f" del space.get_sorted_dictionary({name!r})[{address!r}], or go back with space.rollback(epoch=...)"
        ) from error


def _joined(number: int, value: Stored) -> Stored:
    return f"{number} {value}" if isinstance(value, str) else b"%d %b" % (number, value)


def _listed(number: int, value: Stored) -> Any:
    return [number, value]


def _split(stored: Any) -> tuple[int, Stored]:
    number, _, value = stored.partition(" " if type(stored) is str else b" ")
    return int(number), value


def _split_all(name: str, pairs: Iterable[tuple[bytes, Any]]) -> Iterator[tuple[bytes, tuple[int, Stored]]]:
    for key, stored in pairs:
        try:
            row = _split(stored)
        except DAMAGE as error:
            raise _damaged(name, key, stored, error) from error
        yield key, row


def _damaged(name: str, key: bytes, stored: object, error: Exception) -> DamagedObjectError:
    try:
        family, own = split_table_key(key)
        where = f"key {own!r}" + ("" if family is None else f" of family {family!r}")
    except ValueError:
        where = f"table key {key!r}"
    return DamagedObjectError(
        f"partition {name!r} of a key-value table, {where}: what is stored cannot be read ({error}); found"
        f" {stored!r:.80}, expected a number, a space and the value; put or remove this key without a version, or"
        " go back with space.rollback(epoch=...)"
    )


class Partition:
    """A partition of a table, addressed by table keys. The caller holds the lock of the space.

    Its two objects are created by the first write.

    Args:
        space: the space that it lies in.
        name: the name of its dictionary.
        partition_id: the first part of its versions.
        shared: the numbers given out in this space.
        floor: what a number exceeds if numbers may be lost.
    """

    def __init__(self, space: ObjectSpace, name: str, partition_id: int, shared: Shared, floor: Floor) -> None:
        self._space, self._name, self._shared, self._floor = space, name, shared, floor
        self.id = partition_id
        self._rows: SortedDictionary[bytes, Any] | None = None
        self._counter: Value[int]
        self._stored_of: Callable[[int, Stored], Any]
        self._changed: Mapping[bytes, bool] | tuple[bytes, ...] = ()
        """The keys that the last write changed, with whether it removed them, so putting them back reads nothing.

        For a single put it is the key alone, which takes less time. A key that was set is in memory; of one that was
        removed the dictionary may know nothing without reading.
        """

    def __len__(self) -> int:
        rows = self._open()
        return 0 if rows is None else len(rows)

    @property
    def stamp(self) -> int:
        """The number of the last write: as long as it stays the same, and no rollback comes, so do the contents."""
        return -1 if self._open() is None else self._counter.value

    def read(self, key: bytes) -> Row | None:
        """Return what is kept of a table key, or ``None`` if it does not exist."""
        rows = self._open()
        stored = None if rows is None else rows.get(key)
        try:
            return stored if stored is None or not rows.is_raw else _split(stored)  # type: ignore[union-attr]
        except DAMAGE as error:
            raise _damaged(self._name, key, stored, error) from error

    def read_all(self, keys: Sequence[bytes]) -> list[Row | None]:
        """Return what is kept of each table key, as :meth:`read` does."""
        rows = self._open()
        if rows is None:
            return [None] * len(keys)
        stored: list[Any] = rows.get_many(keys)
        if not rows.is_raw:
            return stored
        try:
            return [one if one is None else _split(one) for one in stored]
        except DAMAGE:
            return list(map(self.read, keys))  # The damaged one says so.

    def judge(self, changes: Sequence[Change]) -> tuple[int, KeyVersion] | None:
        """Return the first change whose condition fails, by its place, with the version of its key; else ``None``."""
        places = [place for place, (_, _, wanted) in enumerate(changes) if wanted is not _ANY and wanted != _ANY]
        rows = self.read_all([changes[place][0] for place in places])
        for place, row in zip(places, rows, strict=True):
            _, _, wanted = changes[place]
            actual = KeyVersion.NOT_EXISTS if row is None else KeyVersion(self.id, row[0])  # type: ignore[arg-type]
            if wanted != actual:
                return place, actual
        return None

    def write(self, changes: Sequence[Change]) -> list[int | None]:
        """Apply changes whose conditions were judged, all or none, and return their numbers; ``None`` for a removal.

        Time: O(changes · log n). Dirties: one slot per change, the counter, and, if keys come or go, the length.
        """
        if len(changes) == 1:
            return self._apply(changes)
        keys = [key for key, _, _ in changes]
        before = self.read_all(keys)
        try:
            return self._apply(changes)
        except BaseException:
            self.put_back(keys, before)
            raise

    def put(self, key: bytes, value: Stored) -> int:
        """Set a key whatever its version, as :meth:`write` does, and return its number."""
        rows, self._changed = self._rows, ()
        if rows is None:
            rows = self._created()
        counter, given = self._counter, self._shared.given
        number = counter.value
        if given.get(self.id, _NONE_GIVEN) != number:
            number = self._resume(number)
        number += 1
        counter.value = given[self.id] = number  # First: an interruption may waste a number, but never give one twice.
        self._changed = (key,)
        rows[key] = self._stored_of(number, value)
        return number

    def put_back(self, keys: Sequence[bytes], before: Sequence[Row | None]) -> None:
        """Undo what the last write did to its keys; the numbers that it took are not given out again.

        Nothing is read: the store may be what has failed.

        Time: O(keys · log n). Dirties: one slot per key that was changed.
        """
        rows = self._open()
        if rows is None:
            return
        changed = dict.fromkeys(self._changed, False) if isinstance(self._changed, tuple) else self._changed
        for key, row in zip(keys, before, strict=True):
            is_removed = changed.get(key)
            if row is not None and is_removed is not None:
                put = rows.put_removed if is_removed else rows.__setitem__
                put(key, self._stored_of(*row))  # type: ignore[arg-type]
            elif is_removed is False:
                rows.pop(key, None)
            elif is_removed and rows.was_set(key):  # An interruption came before that could be noted.
                rows.put_removed(key, self._stored_of(0, ""))
                del rows[key]

    def items(self, lower: bytes, upper: bytes | None, inclusive: tuple[bool, bool]) -> Iterator[tuple[bytes, Row]]:
        """Yield (table key, row) between two bounds in order; an upper bound of ``None`` means no bound."""
        rows = self._open()
        if rows is None:
            return iter(())
        found = chain.from_iterable(rows.pages_between(lower, upper, inclusive))
        return _split_all(self._name, found) if rows.is_raw else found

    def place_of(self, address: bytes) -> tuple[str | None, bytes]:
        """Return family and key of a table key that was found here, as :func:`place_of` does."""
        return place_of(self._name, address)

    def ceiling(self, key: bytes) -> bytes | None:
        """Return the least table key that is not less than ``key``."""
        rows = self._open()
        return None if rows is None else rows.ceiling(key)

    def _open(self) -> SortedDictionary[bytes, Any] | None:
        """Return the dictionary, or ``None`` if no handle has written yet."""
        if self._rows is None and self._name in self._space:
            self._take(self._space.get_sorted_dictionary(self._name))
        return self._rows

    def _created(self) -> SortedDictionary[bytes, Any]:
        """Return the dictionary, creating it if no handle has written yet."""
        rows = self._open()
        return self._take(self._space.create_sorted_dictionary(self._name, raw=True)) if rows is None else rows

    def _take(self, rows: SortedDictionary[bytes, Any]) -> SortedDictionary[bytes, Any]:
        """Keep the dictionary and what belongs to it: itself last, as a failed reading must leave nothing half done."""
        # If an interruption came between the creation of the two objects, there are rows, of no keys, and no counter.
        self._counter = self._space.get_or_create_value(f"{self._name}/version", 0)
        self._stored_of = _joined if rows.is_raw else _listed
        self._rows = rows
        return rows

    def _apply(self, changes: Sequence[Change]) -> list[int | None]:
        changed: dict[bytes, bool] = {}
        self._changed = changed
        rows = self._open()
        if rows is None:
            if all(value is None for _, value, _ in changes):
                return [None] * len(changes)
            rows = self._created()
        stored_of = self._stored_of
        numbers: list[int | None] = []
        first = number = self._last_number()
        try:
            for key, value, _ in changes:
                if value is None and key not in rows:
                    numbers.append(None)
                    continue
                if number == first:
                    self._count(first + len(changes))  # As many as it may take, before the first row that has one.
                number += 1
                changed.setdefault(key, False)
                if value is not None:
                    rows[key] = stored_of(number, value)
                    changed[key] = False
                    numbers.append(number)
                else:
                    del rows[key]
                    changed[key] = True
                    numbers.append(None)
        finally:
            if number != first:
                self._count(number)
        return numbers

    def _last_number(self) -> int:
        """Return the number after which the next write continues."""
        number = self._counter.value
        return number if self._shared.given.get(self.id, _NONE_GIVEN) == number else self._resume(number)

    def _resume(self, number: Any) -> int:
        """Return the number after which writes continue if the counter is not the last number given out here.

        Raises:
            DamagedObjectError: the counter is not a number.
        """
        if type(number) is not int or number < 0:
            raise DamagedObjectError(
                f"Value {self._counter.name!r}: expected the number of the last write to a partition of a key-value"
                f" table, found {number!r:.80}; its keys are readable; set it to a number that no version in the"
                " partition exceeds, or go back with space.rollback(epoch=...)"
            )
        return self._shared.resume(self.id, number, self._floor)

    def _count(self, number: int) -> None:
        """Note which number was given out last."""
        self._counter.value = self._shared.given[self.id] = number
