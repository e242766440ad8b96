"""Users' stateful code: a class with one method, without a word of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import pyarrow as pa

from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError


@runtime_checkable
class Stateful(Protocol):
    """An operator as an object: its attributes are its configuration, and what it keeps lies in the space.

    The object is copied to each task, so an attribute that ``process`` changes is lost.
    """

    def process(self, batch: pa.RecordBatch, space: PersistedObjectSpace, /) -> None:
        """Update objects and key-value tables of the space with the rows of one shard in one epoch.

        A task may be tried again, and its rows may come in another order: the state afterwards must depend only on the
        state before and on which rows there are.

        Args:
            batch: all rows that the shard gets in the epoch, at least one, in any order; they are in memory at once.
            space: the space of the shard; it is saved when this returns, and left as it was when it raises.
        """


class WholeEpoch:
    """The ``Process`` that hands a ``Stateful`` object the rows of its shard as one batch, if there are any.

    Args:
        stateful: the object.
    """

    def __init__(self, stateful: Stateful) -> None:
        self.stateful = stateful

    def __call__(self, batches: Iterator[pa.RecordBatch], space: PersistedObjectSpace) -> None:
        """Process the rows of one shard in one epoch.

        Raises:
            ObjectSpaceError: a column of text or bytes is longer than one Arrow batch can hold.

        Time: O(rows) and what the object takes. Dirties: what the object changes.
        """
        found = [batch for batch in batches if batch.num_rows]
        if found:
            whole = pa.Table.from_batches(found).combine_chunks().to_batches()
            if len(whole) > 1:  # Arrow does not join what its 32-bit offsets cannot address
                raise ObjectSpaceError(
                    f"{type(self.stateful).__name__}: expected at most 2 GiB in a column of a shard and epoch, "
                    "found more: use smaller micro-batches, more shards, or a function of (batches, space)"
                )
            self.stateful.process(whole[0], space)
