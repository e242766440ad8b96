"""A stand-in for Spark's DataFrame that runs tasks in this process: some twice, and with rows in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import StructType

Partition = list[pa.RecordBatch]
Function = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Frames:
    """Makes frames, as a session does."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.sparkContext = SimpleNamespace(getLocalProperty=lambda name: "query")
        self.partition: int | None = None
        self.actions = 0

    def range(self, start: int, end: int, step: int, partitions: int) -> Frame:
        """Return a frame of numbers, one in each partition."""
        assert (start, end, step) == (0, partitions, 1)
        return Frame(self, [[pa.record_batch({"id": pa.array([number])})] for number in range(partitions)])

    def of(self, batch: pa.RecordBatch) -> Frame:
        """Return the rows of a micro-batch, shuffled and cut anywhere."""
        order = list(range(batch.num_rows))
        self.random.shuffle(order)
        cuts = sorted(self.random.choices(range(len(order) + 1), k=2))
        parts = [order[: cuts[0]], order[cuts[0] : cuts[1]], order[cuts[1] :]]
        return Frame(self, [[batch.take(pa.array(part, pa.int64()))] for part in parts])

    def installed(self, patch: pytest.MonkeyPatch) -> Frames:
        """Have tasks find their partition where Spark would tell it."""
        patch.setattr(TaskContext, "get", self._context)
        return self

    def _context(self) -> Any:
        """Return the context of the task that runs; None in the driver."""
        return None if self.partition is None else SimpleNamespace(partitionId=lambda: self.partition)


class Frame:
    """Partitions of record batches, and what is to be done with them."""

    def __init__(self, session: Frames, partitions: list[Partition]) -> None:
        self.sparkSession, self.partitions = session, partitions

    def mapInArrow(self, function: Function, _: Any) -> Frame:
        """Run a function over each partition; now and then a second time, whose output counts."""
        return Frame(self.sparkSession, [self._run(function, *one) for one in enumerate(self.partitions)])

    def repartitionById(self, count: int, column: str) -> Frame:
        """Send every row to the partition that it names, in any order."""
        found: list[Partition] = [[] for _ in range(count)]
        for batch in (batch for partition in self.partitions for batch in partition):
            for row, number in enumerate(batch.column(column).to_pylist()):
                found[number].append(batch.slice(row, 1))
        for partition in found:
            self.sparkSession.random.shuffle(partition)
        return Frame(self.sparkSession, found)

    @property
    def schema(self) -> StructType:
        """The columns, of which none holds instants."""
        return StructType()

    def where(self, condition: str) -> Frame:
        """Return the rows: there are few of them."""
        return self

    def toArrow(self) -> pa.Table:
        """Return the rows as a table."""
        return pa.Table.from_batches([batch for partition in self.partitions for batch in partition])

    def collect(self) -> list[Any]:
        """Return the rows."""
        self.sparkSession.actions += 1
        batches = (batch for partition in self.partitions for batch in partition)
        return [SimpleNamespace(**row) for batch in batches for row in batch.to_pylist()]

    def _run(self, function: Function, number: int, partition: Partition) -> Partition:
        session = self.sparkSession
        session.partition = number
        try:
            if session.random.random() < 0.2:
                assert all(batch.num_columns for batch in function(iter(partition)))
            return list(function(iter(partition)))
        finally:
            session.partition = None
