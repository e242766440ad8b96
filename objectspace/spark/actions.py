"""One epoch of a pipeline as actions of Spark: one for each stage, with what each hands over to the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from checkpoint.chain import EpochPlan, Manifest, OperatorPlan, ShardSaved
from checkpoint.chain.plan import require_one_each
from objectspace.spark.errors import in_words
from objectspace.spark.executor import MESSAGE_SCHEMA
from objectspace.spark.handover import Parcel, Report
from objectspace.spark.progress import figures_of
from objectspace.spark.routes import PIPELINE
from objectspace.spark.stages import Stage
from objectspace.spark.tasks import ROUTED_SCHEMA, SOURCE_BYTES, SOURCE_ROWS, SOURCES, StageTask, intake_task

if TYPE_CHECKING:
    from objectspace.spark.epochs import Epochs


Plans = tuple[OperatorPlan, ...]
StageWatermarks = tuple[tuple[str, str, object], ...]
"""The watermarks for a stage: (side, column, value)."""


class EpochInTasks:
    """One epoch under way, worked in tasks of Spark: an action for each stage.

    Args:
        epochs: the pipeline.
        plan: the plan of the epoch.
        rows: the micro-batch.
    """

    def __init__(self, epochs: Epochs, plan: EpochPlan, rows: DataFrame) -> None:
        self._epochs, self._plan, self._rows = epochs, plan, rows
        self._spark = rows.sparkSession
        self._parcels: dict[int, list[Parcel]] = {}
        self._watermarks: dict[int, dict[str, Any]] = {}
        self._figures: dict[str, float] = {}
        self._source_rows = self._source_bytes = 0
        self._started = time.perf_counter()

    def work(self) -> dict[str, list[ShardSaved]]:
        """Run all stages, and return what the shards of each operator have saved; none of it counts yet."""
        saved: dict[str, list[ShardSaved]] = {}
        self._take_in()
        for stage in self._epochs.stages.stages:
            saved |= self._stage(stage)
        saved[PIPELINE] = self._epochs.save_state(self._plan.operators[PIPELINE], self.results())
        return saved

    def publish(self, saved: Mapping[str, Sequence[ShardSaved]]) -> Manifest:
        """Publish the epoch that was worked."""
        seconds = time.perf_counter() - self._started
        figures = {"rows": self._source_rows, "input_bytes": self._source_bytes, "seconds": seconds}
        return self._epochs.publish(self._plan, saved, {**self._figures, **figures})

    def results(self) -> dict[str, list[Parcel]]:
        """Return where the changes of the results lie."""
        return {name: self._parcels.get(one.number, []) for name, one in self._epochs.stages.results.items()}

    def _take_in(self) -> None:
        """Hand the rows of the sources over to the stages that read them, unless one stage takes them itself."""
        if self._epochs.direct is None:
            task = intake_task(self._plan.operators[PIPELINE], self._epochs.intake(self._plan.epoch))
            self._accept(SOURCES, lambda: _reports(self._rows.mapInArrow(task, MESSAGE_SCHEMA)), None)

    def _stage(self, stage: Stage) -> dict[str, list[ShardSaved]]:
        plans = tuple(self._plan.operators[name] for name in stage.operators)
        found = self._work_stage(stage, plans, self._watermarks_to(stage))
        return {plan.operator: self._complete(stage, plan, found) for plan in plans}

    def _watermarks_to(self, stage: Stage) -> StageWatermarks:
        """Return the watermarks for each side of a stage: if several stages feed it, the least of all."""
        given: dict[str, list[dict[str, Any]]] = {}
        for side, number in stage.inputs:
            given.setdefault(side, []).append(self._watermarks.get(number, {}))
        return tuple(
            (side, column, min(one[column] for one in each))
            for side, each in given.items()
            for column in each[0]
            if all(column in one for one in each)
        )

    def _work_stage(self, stage: Stage, plans: Plans, watermarks: StageWatermarks) -> list[ShardSaved]:
        """Return what the shards of a stage have saved; nothing if it had nothing to do."""
        parcels = tuple(one for _, number in stage.inputs for one in self._parcels.get(number, ()))
        found: list[ShardSaved] = []
        if self._epochs.direct is stage:
            task = StageTask(plans, stage, is_routed=True)
            found = self._accept(
                stage.name, lambda: _reports(self._routed(stage).mapInArrow(task, MESSAGE_SCHEMA)), stage
            )
        if not found and (parcels or not self._rests(stage, plans, watermarks)):
            task = StageTask(plans, stage, parcels, watermarks)
            rows = self._spark.range(0, stage.tasks, 1, stage.tasks)
            found = self._accept(stage.name, lambda: _reports(rows.mapInArrow(task, MESSAGE_SCHEMA)), stage)
        return found

    def _rests(self, stage: Stage, plans: Plans, watermarks: StageWatermarks) -> bool:
        """Return whether a stage has nothing to do if no changes come to it."""
        return not watermarks and stage.rests and any(plans[0].lineages)

    def _complete(self, stage: Stage, plan: OperatorPlan, found: Sequence[ShardSaved]) -> list[ShardSaved]:
        """Return what the shards of an operator have saved, including those that had nothing to do."""
        saved = [one for one in found if one.operator == plan.operator]
        if found:
            require_one_each(plan.operator, stage.tasks, saved)
        others = range(stage.tasks if found else 0, plan.shards)
        return [*saved, *(ShardSaved(plan.operator, shard, None) for shard in others)]

    def _routed(self, stage: Stage) -> DataFrame:
        changes = self._rows.mapInArrow(self._epochs.intake(self._plan.epoch).routed, ROUTED_SCHEMA)
        # The explicit number of partitions keeps adaptive execution from joining small ones into one task.
        return changes.repartitionById(stage.tasks, "shard")

    def _accept(self, name: str, run: Callable[[], list[Report]], stage: Stage | None) -> list[ShardSaved]:
        """Run an action, take in what its tasks report, and return the saved shards."""
        started = time.perf_counter()
        with in_words(name, self._plan.epoch):
            reports = run()
        for report in reports:
            for parcel in report.parcels:
                self._parcels.setdefault(parcel.exit, []).append(parcel)
        self._take_watermarks(reports, stage)
        self._count(name, reports, (time.perf_counter() - started) * 1000)
        return [one for report in reports for one in report.saved]

    def _take_watermarks(self, reports: Sequence[Report], stage: Stage | None) -> None:
        """Take the watermarks that every task of a stage gives: the least of them holds for all."""
        given: dict[tuple[int, str], list[Any]] = {}
        for report in reports:
            for number, column, value in report.watermarks:
                given.setdefault((number, column), []).append(value)
        for (number, column), values in given.items():
            if stage is not None and len(values) == stage.tasks:
                self._watermarks.setdefault(number, {})[column] = min(values)

    def _count(self, name: str, reports: Sequence[Report], milliseconds: float) -> None:
        """Add up what the tasks of an action have counted; its time counts for the operator that it is named after."""
        operators = dict.fromkeys([name, *(one for report in reports for one in report.figures)])
        for one in operators:
            total = _summed(report.figures.get(one, {}) for report in reports)
            self._source_rows += int(total.pop(SOURCE_ROWS, 0))
            self._source_bytes += int(total.pop(SOURCE_BYTES, 0))
            if one == SOURCES:
                total["rows_in"] = self._source_rows
            self._figures |= figures_of(one, {**total, "ms": milliseconds if one == name else 0.0})


def _reports(tasks: DataFrame) -> list[Report]:
    return [Report.from_json(row.message) for row in tasks.collect()]


def _summed(figures: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for one in figures:
        for name, value in one.items():
            total[name] = total.get(name, 0) + value
    return total
