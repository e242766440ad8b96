"""An operator that is added to a pipeline: how its rows are routed, and what it does with those of a shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame

from checkpoint.chain import OperatorPlan, ShardSaved
from objectspace.errors import ObjectSpaceError
from objectspace.operators.base import column_names
from objectspace.operators.division.keyed import KeyedBy
from objectspace.spark.aggregate import RunningAggregate
from objectspace.spark.executor import MESSAGE_SCHEMA, Process, shard_task
from objectspace.spark.inputs import require_plain_names
from objectspace.spark.instants import InUtc
from objectspace.spark.routes import YOURS
from objectspace.spark.shards import shard_expression
from objectspace.spark.stateful import Stateful, WholeEpoch


@dataclass(frozen=True)
class Operator:
    """One stateful operator of a pipeline.

    Args:
        name: its name, under which its state is kept.
        key: the columns whose values bring rows together in a shard: text, binary or whole numbers.
        process: what it does with the rows of a shard in one epoch: a function, or an object with a method ``process``.
        columns: the columns of the input that it needs, or None for all.
        keyed: the names of the objects whose keys are the values of ``key``, in tuples if these are several columns; of
            a table it is the primary key. ``rescale`` divides these objects, and refuses those that it is not told of.
            A ``RunningAggregate`` need not be named.

    Raises:
        ObjectSpaceError: the process is a class, or neither a function nor such an object.
    """

    name: str
    key: tuple[str, ...]
    process: Process | Stateful
    columns: tuple[str, ...] | None = None
    keyed: tuple[str, ...] = ()

    if TYPE_CHECKING:  # What it takes is more than what its fields hold then.

        def __init__(
            self,
            name: str,
            key: Sequence[str] | str,
            process: Process | Stateful,
            columns: Sequence[str] | str | None = None,
            keyed: Sequence[str] | str = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        for field in ("key", "columns", "keyed"):
            given = getattr(self, field)
            if isinstance(given, Sequence):  # One name is meant by a string, not its letters.
                object.__setattr__(self, field, tuple(column_names(given)))
        if isinstance(self.process, type) or not (isinstance(self.process, Stateful) or callable(self.process)):
            raise ObjectSpaceError(
                f"operator {self.name}: expected a function of (batches, space) or an object with process(batch, space)"
                f", found {self.process!r}: pass an object, not its class"
            )

    def task(self, plan: OperatorPlan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """Return the function that runs on the executors, once for each shard."""
        return shard_task(plan, *self.work())

    def work(self) -> tuple[Process, dict[str, KeyedBy], str]:
        """Return what is done with the rows of a shard, which objects its keys route, and what the operator is.

        What it is, as text, differs if its state would differ; for users' code it is the key alone.
        """
        whole, by = dict.fromkeys(self.keyed, KeyedBy.whole(len(self.key))), f"by {', '.join(self.key)}"
        if isinstance(self.process, RunningAggregate):
            return self.process, {**self.process.keyed_by(self.key), **whole}, f"{self.process!r} {by}"
        process = WholeEpoch(self.process) if isinstance(self.process, Stateful) else self.process
        return InUtc(process), whole, f"{YOURS} {by}"

    def run(self, plan: OperatorPlan, rows: DataFrame) -> list[ShardSaved]:
        """Run the operator over a micro-batch as one Spark action, and return what its shards have saved.

        Args:
            plan: the plan of the operator.
            rows: the micro-batch.

        Raises:
            ObjectSpaceError: a key column is missing or of a type that cannot be hashed.

        Time: one Spark action over the rows. Dirties: new private run files; nothing shared changes.
        """
        used = rows.select(*self.columns) if self.columns else rows
        require_plain_names(used.columns)
        shard = shard_expression(used.schema, self.key, plan.shards)
        # The explicit number of partitions keeps adaptive execution from joining small ones into one task.
        tasks = used.repartitionById(plan.shards, shard).mapInArrow(self.task(plan), MESSAGE_SCHEMA)
        messages = [ShardSaved.from_json(row.message) for row in tasks.collect()]
        # If Spark knows beforehand that there are no rows, it runs no task at all.
        return messages or [ShardSaved(self.name, number, None) for number in range(plan.shards)]
