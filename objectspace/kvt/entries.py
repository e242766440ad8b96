"""What goes in and out of a table: keys with versions, entries, the members of a batch, and the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, Never, TypeVar

from objectspace.kvt.versions import KeyVersion

K = TypeVar("K")
V = TypeVar("V")
K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)

MAX_PARTITIONS = 2**31 - 1
"""More partitions than this would overflow the partition expression in Spark SQL."""


class TableKey(NamedTuple, Generic[K]):
    """A key with a version: the current one if a table returns it, the condition if it is an argument.

    Args:
        key: the key.
        version: its version.
        key_family: its family, if a call returns keys of more than one.
    """

    key: K
    version: KeyVersion = KeyVersion.NO_VERSION
    key_family: str | None = None


class TableEntry(NamedTuple, Generic[K, V]):
    """A key with its version, and its value."""

    key: TableKey[K]
    value: V


class Modification(Generic[K_co, V_co]):
    """What the members of a batch have in common."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Insert(Modification[K, V]):
    """A member of a batch: set a key that must not exist yet."""

    key: K
    value: V


@dataclass(frozen=True, slots=True)
class Put(Modification[K, V]):
    """A member of a batch: set a key, provided that it has this version if one is given."""

    key: K
    value: V
    version: KeyVersion = KeyVersion.NO_VERSION


@dataclass(frozen=True, slots=True)
class Remove(Modification[K, Never], Generic[K]):
    """A member of a batch: remove a key, provided that it has this version if one is given."""

    key: K
    version: KeyVersion = KeyVersion.NO_VERSION


@dataclass(frozen=True, slots=True)
class KeyValueTableConfiguration:
    """How a table is created; fixed for its life.

    Args:
        partition_count: how many partitions keys are spread over. Only those that were written to are stored, but
            ``count()``, ``families()`` and each page of the global iterators ask all of them.

    Raises:
        ValueError: the count is not positive.
    """

    partition_count: int

    def __post_init__(self) -> None:
        if type(self.partition_count) is not int:
            raise TypeError(f"partition_count is {self.partition_count!r}: expected an int")
        if not 1 <= self.partition_count <= MAX_PARTITIONS:
            raise ValueError(f"partition_count is {self.partition_count}: expected 1 to {MAX_PARTITIONS}")
