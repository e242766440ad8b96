"""The columns that a change feed has before those of its table, and the mark by which one of them is known again."""

from __future__ import annotations

from pyspark.sql.types import LongType, StringType, StructType

from objectspace.relational import SchemaError

_MARK, _EPOCH = "objectspace", "epoch of a change"

FEED = StructType().add("op", StringType()).add("epoch", LongType(), metadata={_MARK: _EPOCH})
"""The columns that a change feed has before those of the table.

Spark keeps what is noted of a column while it is selected, renamed and joined, and drops it where it is computed from.
A writer sees the optimised plan, where an empty note gives way to the one before it.
"""


def require_epochs_of_rows(rows: StructType, op: str) -> None:
    """Make sure that rows that are taken back come as they came before: a feed says of each when it changed.

    Args:
        rows: the columns of the rows.
        op: how the column of operations was named, for the error.

    Raises:
        SchemaError: a column is the epoch of a change feed.
    """
    for one in rows.fields:
        if one.metadata.get(_MARK) == _EPOCH:
            raise SchemaError(
                f"column {one.name!r} is the epoch of a change feed, which is that of each change and not of its row:"
                f" with {op} a row that goes would not be that which came, which had another epoch: leave the column"
                f" out, with .drop({one.name!r}), or, if rows are only ever added, keep it with another mark than"
                f" that of the feed, as col({one.name!r}).alias('since', metadata={{{_MARK!r}: 'own'}})"
            )
