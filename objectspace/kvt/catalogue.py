"""The catalogue: which scopes and tables there are, in a sorted dictionary of the space.

An entry has the key ``scope`` or ``scope/table``; no name contains a slash. The entry of a table holds its partition
count, the id of its first partition, whether it is sealed, and a token of its creation. Partition ids are used again
only if the creation of their table was rolled back, and then the token tells the two tables apart. Tables that were
created before there were tokens have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from objectspace import DamagedObjectError, ObjectSpace
from objectspace.kvt.entries import MAX_PARTITIONS
from objectspace.kvt.errors import NoSuchTableError

NAME = "kvt/catalogue"
"""The name of the sorted dictionary."""

NEXT_PARTITION = "kvt/partitions"
"""The name of the value that is the id of the next partition."""

PARTITIONS, FIRST, SEALED, CREATED = "partitions", "first", "sealed", "created"

Entry = dict[str, Any]

_ALPHABET = re.compile(r"[A-Za-z0-9.-]+")

_PARTITION = re.compile(r"kvt/([^/]+/[^/]+)/[0-9]+(/version)?")
"""What the objects of partitions are called: their table, and whether the object is the counter."""

_ABSENT: Any = object()


def check_name(name: str, what: str, longest: int) -> str:
    """Return the name of a scope or table.

    Raises:
        TypeError: it is not text.
        ValueError: it is empty, too long, or has characters other than ASCII letters, digits, dots and hyphens.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a {what} is {name!r}: expected text")
    if not _ALPHABET.fullmatch(name) or len(name) > longest:
        raise ValueError(
            f"{name!r:.80} cannot name a {what}: use 1 to {longest} ASCII letters, digits, dots and hyphens"
        )
    return name


def scope_path(scope: str) -> str:
    """Return the key of a scope."""
    return check_name(scope, "scope", 255)


def table_path(scope: str, table: str) -> str:
    """Return the key of a table."""
    return f"{scope_path(scope)}/{check_name(table, 'table', 250)}"


def partition_name(path: str, partition_id: int) -> str:
    """Return the name of the sorted dictionary of a partition; that of its counter ends in ``/version``."""
    return f"kvt/{path}/{partition_id}"


def checked_entry(path: str, entry: Any) -> Entry:
    """Return what the catalogue has of a table.

    Raises:
        DamagedObjectError: it is not the entry of a table.
    """
    if not _is_entry(entry):
        raise DamagedObjectError(
            f"key-value table {path}, its entry in {NAME!r}: expected its partition count, the id of its first"
            f" partition and whether it is sealed, found {entry!r:.80}; other tables are readable; delete this one with"
            " delete_key_value_table(), or go back with space.rollback(epoch=...)"
        )
    return entry  # type: ignore[no-any-return]


def _is_entry(entry: Any) -> bool:
    if type(entry) is not dict:
        return False
    count, first, created = entry.get(PARTITIONS, 0), entry.get(FIRST, -1), entry.get(CREATED, 0)
    if any(type(number) is not int for number in (count, first, created)) or type(entry.get(SEALED)) is not bool:
        return False
    return bool(1 <= count <= MAX_PARTITIONS and first >= 0)


def identity(entry: Entry) -> tuple[int, int, int | None]:
    """Return what distinguishes a table from every other one that had or will have its name."""
    return entry[FIRST], entry[PARTITIONS], entry.get(CREATED)


class Catalogue:
    """The scopes and tables of a space. Nothing is created until there is something to keep.

    An entry stays the same object until it is changed, rolled back, or read again from the store: so a handle need only
    compare identities to find out whether what it knows still holds.
    """

    def __init__(self, space: ObjectSpace) -> None:
        self._space = space
        self.entries: Mapping[str, Entry] = {}
        """The sorted dictionary as it was last found: a lookup that fails must be repeated with :meth:`find`."""

    def find(self, path: str) -> Entry | None:
        """Return an entry, or ``None`` if there is none. The entry of a scope has nothing to read.

        Raises:
            DamagedObjectError: it is the entry of a table, and cannot be read.
        """
        self.entries = self._space.get_sorted_dictionary(NAME) if NAME in self._space else {}
        if "/" not in path:
            return {} if path in self.entries else None
        entry = self.entries.get(path, _ABSENT)
        return None if entry is _ABSENT else checked_entry(path, entry)

    def missing(self, path: str) -> NoSuchTableError:
        """Return the error for a table that is not there; it says which parts of the space have one of its name.

        Time: O(objects of the space).
        """
        names = [name for name in self._space if name.endswith(f"/{NAME}")]
        sorted_ones = [name for name in sorted(names) if self._space.kind_of(name) == "SortedDictionary"]
        parts = [name.removesuffix(NAME) for name in sorted_ones if path in self._space.get_sorted_dictionary(name)]
        return NoSuchTableError(
            f"there is no table {path} in this space: create it, or see the list of tables{_elsewhere(parts)}"
        )

    def put(self, path: str, entry: Entry | None) -> None:
        """Set an entry; ``None`` removes it. Dirties: one item; if an entry comes or goes, also the length."""
        entries = self._space.get_or_create_sorted_dictionary(NAME)
        if entry is None:
            entries.pop(path, None)
        else:
            entries[path] = entry

    def scopes(self) -> list[str]:
        """Return the names of all scopes, in order."""
        return [path for path in self._paths() if "/" not in path]

    def tables(self, scope: str) -> list[str]:
        """Return the names of the tables of a scope, in order."""
        prefix, following = f"{scope}/", f"{scope}0"  # "0" is the character after "/", and may be one of another scope
        return [path.removeprefix(prefix) for path in self._paths(prefix, following)]

    def reserve(self, count: int) -> int:
        """Return the first of a number of new partition ids. Dirties: one item.

        Raises:
            DamagedObjectError: what is stored as the next one is not an id.
        """
        following = self._space.get_or_create_value(NEXT_PARTITION, 0)
        if type(following.value) is not int or following.value < 0:
            raise DamagedObjectError(
                f"Value {following.name!r}: expected the id of the next partition, found {following.value!r:.80};"
                " existing tables are readable; set it to a number greater than the ids of all partitions, or go back"
                " with space.rollback(epoch=...)"
            )
        following.value += count
        return int(following.value - count)

    def _paths(self, lower: str | None = None, upper: str | None = None) -> list[str]:
        """Return the keys from one bound up to the other, which is not included."""
        if NAME not in self._space:
            return []
        return list(self._space.get_sorted_dictionary(NAME).irange(lower, upper, (True, False)))


def _elsewhere(parts: list[str]) -> str:
    """Return how to open a table that parts of a space have: an operator keeps its tables under its name."""
    shown = [f"KeyValueTableManager(SpacePart(space, {part!r}))" for part in parts]
    return f"; what an operator keeps is in its part of the space: {' or '.join(shown)}" if shown else ""


def objects_of_tables(space: ObjectSpace) -> set[str]:
    """Return the names that the objects of key-value tables have: the catalogue, and all partitions of each table.

    Time: O(objects of the space).
    """
    paths = set(space.get_sorted_dictionary(NAME)) if NAME in space else set()
    return {NAME, NEXT_PARTITION, *(name for name in space if _table_of(name) in paths)}


def delete_partitions(space: ObjectSpace, path: str, entry: Entry) -> None:
    """Delete the objects of all partitions of a table, even if an earlier deletion was interrupted.

    If the entry does not tell which these are, they are found by their names.

    Time: O(partitions), or O(objects of the space).
    Dirties: one index row for each of their objects.
    """
    for name in _named(path, entry) if FIRST in entry else [name for name in space if _table_of(name) == path]:
        if name in space:
            space.delete(name)


def _named(path: str, entry: Entry) -> Iterator[str]:
    for partition_id in range(entry[FIRST], entry[FIRST] + entry[PARTITIONS]):
        name = partition_name(path, partition_id)
        yield from (name, f"{name}/version")


def _table_of(name: str) -> str | None:
    """Return the table of an object that is named like one of a partition, or ``None`` for any other."""
    matched = _PARTITION.fullmatch(name)
    return None if matched is None else matched[1]
