"""The errors of relational tables: each names the table, the key or column, and what to do."""

from __future__ import annotations

from objectspace.errors import ObjectSpaceError


class RelationalError(ObjectSpaceError):
    """Something went wrong in a table; the rows of the epoch are as they were before the call."""


class SchemaError(RelationalError, ValueError):
    """A schema, a column type or an order is not valid."""


class SchemaMismatchError(RelationalError, TypeError):
    """A stored table has a different schema from the one it was opened with, or there is no such table."""


class RowError(RelationalError, ValueError):
    """A row or key does not fit the schema: its length, a type, a range, or a NULL."""


class InconsistentOperationError(RelationalError, ValueError):
    """An operation contradicts what the table holds: it inserts a key that is there, or deletes a different row."""


class EpochError(RelationalError, ValueError):
    """An epoch is sealed twice, or goes backwards."""


class VnodeNotOwnedError(RelationalError, LookupError):
    """A row or key belongs to a vnode that this instance of the table does not own."""
