"""What a state table refuses, in words: epochs, watermarks, and operations that contradict its rows."""

from __future__ import annotations

from typing import Any

from objectspace.relational.errors import EpochError, InconsistentOperationError, RowError
from objectspace.relational.schema import Column, Row, TableSchema
from objectspace.relational.values import BadValue, checker

_LAST_EPOCH = 2**63 - 1
"""The greatest epoch that a checkpoint can have."""


def check_epoch(table: str, epoch: Any, last: int) -> None:
    """Refuse an epoch that cannot be sealed.

    Args:
        table: the name of the table.
        epoch: the epoch.
        last: the last one that was sealed.

    Raises:
        EpochError: it is not after the last one, or not a whole number of 64 bits.
    """
    if not isinstance(epoch, int) or isinstance(epoch, bool):
        raise EpochError(f"table {table!r}: an epoch is a whole number: found {epoch!r}")
    if epoch > _LAST_EPOCH:
        raise EpochError(
            f"table {table!r}: epoch {epoch} is not a 64-bit int, and no checkpoint can have it: the greatest is"
            f" {_LAST_EPOCH}"
        )
    if epoch <= last:
        raise EpochError(
            f"table {table!r}: epoch {epoch} is not after epoch {last}, the last one sealed: each epoch is sealed once,"
            " in order"
        )


def checked_watermark(column: Column, value: Any, table: str | None = None) -> Any:
    """Return a watermark in the one form of its column.

    Args:
        column: the watermark column.
        value: the watermark.
        table: the name of the table, if it is that of one.

    Raises:
        RowError: the value does not fit the column, or is NULL or NaN.
    """
    try:
        if value is None:
            raise BadValue("it is NULL: pass a value")
        found = checker(column.type)(value)
        if found != found:
            raise BadValue("it is NaN: pass a number")
    except BadValue as error:
        where = "" if table is None else f"table {table!r}: "
        raise RowError(f"{where}the watermark of {column.name!r} ({column.type}): {error}") from None
    return found


def contradiction(
    table: str, schema: TableSchema, what: str, row: Row, present: Row | None, *, is_sealed: bool, advice: str
) -> InconsistentOperationError:
    """Return the error of an operation that contradicts what a strict table has.

    Args:
        table: the name of the table.
        schema: its schema.
        what: the operation.
        row: the row that it was called with.
        present: the row that the table has under the same key, if any.
        is_sealed: whether that is how it was sealed, and not written since.
        advice: what to do instead.
    """
    names = [name for name, _ in schema.primary_key]
    shown = ", ".join(f"{name}={value!r:.80}" for name, value in zip(names, schema.key_of(row), strict=True))
    there = "no row" if present is None else f"the row {present!r:.200}"
    where = "" if is_sealed and present is None else " (sealed)" if is_sealed else " (not sealed yet)"
    return InconsistentOperationError(
        f"table {table!r}, key ({shown}): {what} of {row!r:.200}, but the table has {there} of this key{where};"
        f" {advice}"
    )
