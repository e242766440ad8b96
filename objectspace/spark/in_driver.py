"""Epochs that the driver works itself: it fetches the rows, and works the shards one after the other.

The result is what tasks make of the same rows: the same run files, hand-over files and figures.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from checkpoint.chain import EpochPlan, ShardSaved
from checkpoint.process import collecting_seldom
from objectspace.errors import ObjectSpaceError
from objectspace.relational import Chunk
from objectspace.spark.actions import EpochInTasks, Plans, StageWatermarks
from objectspace.spark.executor import work_shard
from objectspace.spark.handover import Outbox, Parcel, Report, carried, together, write_parcel
from objectspace.spark.held import HeldShards
from objectspace.spark.placement import Placement
from objectspace.spark.progress import EpochProgress
from objectspace.spark.shards import shard_expression
from objectspace.spark.stages import Stage
from objectspace.spark.tasks import SOURCE_BYTES, SOURCE_ROWS, SOURCES, StageTask

if TYPE_CHECKING:
    from objectspace.spark.epochs import Epochs
    from objectspace.spark.operator import Operator

LOG = logging.getLogger("objectspace.spark")

T = TypeVar("T")

_PLACE = (1 << 33) - 1
"""The bits of ``monotonically_increasing_id`` that count the rows of a partition."""


class TooManyRowsError(ObjectSpaceError):
    """A micro-batch has more rows than the driver works itself."""


class Driver:
    """What the driver needs to work epochs itself.

    Args:
        most_rows: how many rows an epoch may have; 0 if it is to work none.
    """

    def __init__(self, most_rows: int) -> None:
        self.placement = Placement(most_rows)
        self.shards = HeldShards()

    def attempt(self, plan: EpochPlan, work: Callable[[], T]) -> T | None:
        """Return what the work for an epoch gives, or None if tasks are to do it.

        What fails here is tried in tasks: these are tried again, and say in words what is wrong.
        """
        if not self.placement.is_in_driver(plan, is_held=len(self.shards) > 0):
            self.shards.release()
            return None
        self.shards.expect(sum(one.shards for one in plan.operators.values()))
        try:
            with self.shards.turn(), collecting_seldom():
                return work()
        except TooManyRowsError as error:
            LOG.info("epoch %d: %s", plan.epoch, error)
        except Exception as error:
            self.placement.failed()
            LOG.info("epoch %d: the driver could not run it, tasks do: %s", plan.epoch, error)
        return None

    def note(self, progress: EpochProgress) -> None:
        """Note what an epoch took, to decide where the next one is worked."""
        if progress.in_driver:
            self.placement.worked_in_driver(progress.rows, progress.slots, progress.ms, progress.input_bytes)
        else:
            work = sum(value for one in progress.operators for value in one.phases.values())
            self.placement.worked_in_tasks(progress.rows, progress.slots, progress.ms, work, progress.input_bytes)


def fetched(rows: DataFrame, most_rows: int) -> pa.Table:
    """Return the rows of a micro-batch as its tasks would have them.

    Args:
        rows: the micro-batch.
        most_rows: how many there may be; from a partition with more, no others are fetched.

    Raises:
        TooManyRowsError: there are more.
    """
    table = rows.where(f"(monotonically_increasing_id() & {_PLACE}L) <= {most_rows}L").toArrow()
    if table.num_rows > most_rows:
        raise TooManyRowsError(f"the micro-batch has more than {most_rows:,} rows: tasks run it")
    return table


def work_operators(
    operators: Mapping[str, Operator], plan: EpochPlan, rows: DataFrame, driver: Driver
) -> dict[str, list[ShardSaved]]:
    """Run operators that were added over a micro-batch, and return what the shards of each have saved.

    Args:
        operators: the operators by name.
        plan: the plan of the epoch.
        rows: the micro-batch.
        driver: what is needed for it.

    Raises: as ``fetched``.
    """
    routes = {
        f"$shard{place}": shard_expression(rows.schema, one.key, plan.operators[one.name].shards)
        for place, one in enumerate(operators.values())
    }
    columns = [route.alias(name) for name, route in routes.items()]
    table = fetched(rows.select("*", *columns), driver.placement.most_rows)
    saved = {}
    for route, (name, operator) in zip(routes, operators.items(), strict=True):
        used = table.select(list(operator.columns or rows.columns))
        process, keyed, does = operator.work()
        saved[name] = [
            work_shard(plan.operators[name], shard, part, process, keyed, does, driver.shards)
            for shard, part in enumerate(_parts(used, table[route], plan.operators[name].shards))
        ]
    return saved


class EpochInDriver(EpochInTasks):
    """One epoch under way, worked by the driver; what goes from stage to stage stays in memory.

    Args:
        epochs: the pipeline.
        plan: the plan of the epoch.
        rows: the micro-batch.
        driver: what is needed for it.
    """

    def __init__(self, epochs: Epochs, plan: EpochPlan, rows: DataFrame, driver: Driver) -> None:
        super().__init__(epochs, plan, rows)
        self._driver = driver
        self._results = {one.number for one in epochs.stages.results.values()}
        self._changes: dict[int, dict[int, list[Chunk]]] = {}
        self._figures["driver"] = 1.0

    def _take_in(self) -> None:
        intake = self._epochs.intake(self._plan.epoch)
        table = fetched(self._rows, self._driver.placement.most_rows)
        outbox = intake.outbox()
        for _ in intake.pushed(table.to_batches(), outbox):
            pass
        parcels = self._hand_over(outbox)
        if self._epochs.direct is None:
            figures = {SOURCE_ROWS: float(table.num_rows), SOURCE_BYTES: float(table.nbytes)}
            self._accept(SOURCES, lambda: [Report(parcels=parcels, figures={SOURCES: figures})], None)
        else:
            self._source_rows += table.num_rows
            self._source_bytes += table.nbytes

    def _work_stage(self, stage: Stage, plans: Plans, watermarks: StageWatermarks) -> list[ShardSaved]:
        inputs = [(side, self._changes.pop(number, {})) for side, number in stage.inputs]
        if not any(found for _, found in inputs) and self._rests(stage, plans, watermarks):
            return []
        task = StageTask(plans, stage, (), watermarks)

        def _run() -> list[Report]:
            return [self._work_shard(task, shard, inputs) for shard in range(stage.tasks)]

        return self._accept(stage.name, _run, stage)

    def _work_shard(self, task: StageTask, shard: int, inputs: list[tuple[str, dict[int, list[Chunk]]]]) -> Report:
        found: dict[str, list[Chunk]] = {side: [] for side in task.stage.schemas}
        for side, changes in inputs:
            found[side] += changes.get(shard, ())
        chunks = {side: together(given) for side, given in found.items() if given}
        return task.work(shard, chunks, self._driver.shards, self._hand_over)

    def _hand_over(self, outbox: Outbox) -> tuple[Parcel, ...]:
        """Keep what goes to other stages, and write what belongs to results into files."""
        parcels, location = [], self._epochs.chain.location
        for number, shard, chunk in outbox.taken():
            if number in self._results:
                parcels.append(write_parcel(location, self._plan.epoch, number, shard, chunk))
            else:
                self._changes.setdefault(number, {}).setdefault(shard, []).append(carried(chunk))
        return tuple(parcels)


def _parts(table: pa.Table, shards: pa.ChunkedArray, count: int) -> Iterator[Iterator[pa.RecordBatch]]:
    """Yield the rows of each shard, in the batches that there are."""
    for shard in range(count):
        part = table.filter(pc.equal(shards, shard))
        yield (batch for batch in part.to_batches() if batch.num_rows)
