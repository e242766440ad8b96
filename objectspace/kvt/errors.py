"""The errors of key-value tables: a base class, and one subclass per cause that is also the builtin kind that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from objectspace.errors import ObjectSpaceError

if TYPE_CHECKING:
    from objectspace.kvt.versions import KeyVersion


class KeyValueTableError(ObjectSpaceError):
    """A call of a key-value table was refused; it has changed nothing."""


class NoSuchScopeError(KeyValueTableError, LookupError, ValueError):
    """There is no scope of this name."""


class NoSuchTableError(KeyValueTableError, LookupError):
    """There is no table of this name, or the table of this handle is gone."""


class ScopeNotEmptyError(KeyValueTableError, RuntimeError):
    """The scope still holds tables."""


class TableClosedError(KeyValueTableError, RuntimeError):
    """The handle was closed."""


class TableSealedError(KeyValueTableError, RuntimeError):
    """The table was sealed: it can be read, and takes no writes."""


class FamilyRequiredError(KeyValueTableError, TypeError):
    """The operation is for the keys of one family, but none was given."""


class SerializationError(KeyValueTableError, ValueError):
    """What was to be read is not what this module wrote."""


class ConditionalTableUpdateError(KeyValueTableError):
    """The key is not in the state that the caller demanded; nothing of the call, or of its batch, was applied.

    Attributes:
        table: the scope and name of the table.
        key_family: the family of the key, or ``None`` if it has none.
        key: the key.
        expected: the version that was asked for.
        actual: the version that the key has; ``KeyVersion.NOT_EXISTS`` if there is no such key.
    """

    def __init__(self, table: str, key_family: str | None, key: Any, expected: KeyVersion, actual: KeyVersion) -> None:
        super().__init__(table, key_family, key, expected, actual)
        self.table, self.key_family, self.key, self.expected, self.actual = table, key_family, key, expected, actual

    def __str__(self) -> str:
        family = "" if self.key_family is None else f", family {self.key_family!r}"
        return (
            f"table {self.table}{family}, key {self.key!r:.80}: expected {self.expected.describe()},"
            f" found {self.actual.describe()}; get the key again, then decide"
        )


class BadKeyVersionError(ConditionalTableUpdateError):
    """The key has a different version than expected, or exists although it must not."""


class NoSuchKeyError(ConditionalTableUpdateError):
    """A version was expected of a key that does not exist."""
