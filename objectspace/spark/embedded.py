"""A whole pipeline of engine-free operators inside each shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from objectspace import PersistedObjectSpace
from objectspace.operators import Pipeline, PipelineOperator


class EmbeddedPipeline:
    """Runs a pipeline of :mod:`objectspace.operators` on the rows of a shard: the ``process`` of an Operator.

    Rows meet only rows of their shard. So the answer is right if everything that the pipeline groups, joins or ranks by
    contains the key of the Operator, and for any pipeline at all if the space has one shard.

    Args:
        make: returns the pipeline; it is called on the executors.
        source: the name of the source that the rows belong to; they may have a column ``op`` with their operations.
        name: the name that its tables begin with.
    """

    def __init__(self, make: Callable[[], Pipeline], source: str, name: str = "pipeline") -> None:
        self._make, self._source, self._name = make, source, name

    def __call__(self, batches: Iterator[pa.RecordBatch], space: PersistedObjectSpace) -> None:
        """Take the rows of an epoch, and leave the results in the tables of the space."""
        pipeline = self._make()
        operator = PipelineOperator(pipeline)
        operator.open(space, self._name)
        epoch, found = space.store.next_epoch(), [batch for batch in batches if batch.num_rows]
        if found:
            # All at once, so that the order of the rows does not matter: the deletes of each key go before its inserts.
            operator.take({self._source: pa.Table.from_batches(found)}, epoch)
        operator.barrier(epoch)
