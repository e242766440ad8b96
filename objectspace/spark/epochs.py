"""The side of the driver: one epoch of a pipeline, an action for each operator that keeps state, and one manifest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from checkpoint.chain import Chain, EpochPlan, Manifest, OperatorPlan, ShardSaved, SourcePosition
from checkpoint.chain.plan import require_one_each
from objectspace.operators import PipelineChangedError, Plan
from objectspace.operators.catalogue import compare, note, stored_names
from objectspace.spark.errors import in_words
from objectspace.spark.executor import MESSAGE_SCHEMA, open_shard, save_shard
from objectspace.spark.handover import Parcel, Report
from objectspace.spark.inputs import Declared
from objectspace.spark.progress import figures_of
from objectspace.spark.routes import PIPELINE, note_routes
from objectspace.spark.sinks import Delivery, note_parcels, noted_parcels
from objectspace.spark.stages import Stage, compiled
from objectspace.spark.tasks import ROUTED_SCHEMA, SOURCES, Intake, StageTask, intake_task

if TYPE_CHECKING:
    from objectspace.spark.pipeline import Pipeline


class Epochs:
    """Makes the epochs of a pipeline with declared sources.

    Args:
        pipeline: the pipeline.
        declared: its sources.
        full_after: how many differential runs may follow a full one before the next full one is considered.
        cache: the folder of the local caches.

    Raises:
        PipelineChangedError: the location holds the state of another pipeline.
        SchemaError: the pipeline has no result.
    """

    def __init__(
        self, pipeline: Pipeline, declared: Sequence[Declared], full_after: int = 64, cache: str | None = None
    ) -> None:
        self.chain: Chain = pipeline.chain
        self._full_after, self._cache = full_after, cache
        self._images = pipeline.upkeep.images
        self.plan = _checked_plan(pipeline, self._state_plan())
        wanted = {name: pipeline.results[name] for name in (*pipeline.functions, *pipeline.frames)}
        self.stages = compiled(self.plan, wanted, self.chain.shards)
        self._inputs = tuple(one.input() for one in declared)
        self._delivery = Delivery(
            self.chain.location, self.stages.results, pipeline.columns, pipeline.frames, pipeline.functions
        )
        self.direct = self._only_reader(declared)
        """The stage that takes the rows of the sources in its own action, where there is one."""
        self._is_first = True

    def run(self, rows: DataFrame, position: SourcePosition) -> Manifest | None:
        """Process one micro-batch and publish its epoch.

        Args:
            rows: the micro-batch.
            position: which one it is.

        Returns:
            The manifest of the new epoch, or None where the micro-batch had been committed before.

        Raises:
            FencedError: another driver has published this epoch; this one must stop.
            TaskFailedError: a task failed for good; nothing was published.
            CheckpointError: micro-batches are missing, or the location cannot be used.
        Dirties: the location: hand-over files, a run file for each shard that changed, and one manifest.
        """
        plan = self._begun(rows.sparkSession, position)
        if plan is None:
            return None
        epoch = _Epoch(self, plan, rows)
        manifest = epoch.made()
        self._delivery.deliver(rows.sparkSession, epoch.results())
        return manifest

    def _begun(self, spark: SparkSession, position: SourcePosition) -> EpochPlan | None:
        """Begin an epoch, after the functions of the last one were called where nobody knows whether they were."""
        names = [PIPELINE, *(name for stage in self.stages.stages for name in stage.operators)]
        plan = self.chain.begin(position, names, self._full_after, self._cache)
        newest, is_first = self.chain.newest, self._is_first
        self._is_first = False
        if newest is not None and self.stages.results:
            # A micro-batch that comes again was not finished. Another query says nothing about the end of the last one.
            is_open = newest.source == position if plan is None else is_first and newest.source.query != position.query
            if is_open:
                self._delivery.redeliver(spark, self._parcels_of(newest))
        return plan

    def _parcels_of(self, newest: Manifest) -> dict[str, list[Parcel]]:
        """Return where the changes of the newest micro-batch lie; an older one may have left what it noted."""
        with open_shard(self._state_plan(), 0) as space:
            found = noted_parcels(space)
        # A rescale is an epoch of its own after that of the micro-batch, and has its source.
        backwards = map(self.chain.manifest, range(newest.epoch, self.chain.first_epoch - 1, -1))
        same = {one.epoch for one in takewhile(lambda one: one.source == newest.source, backwards)}
        return {name: parcels for name, parcels in found.items() if parcels and parcels[0].epoch in same}

    def _state_plan(self) -> OperatorPlan:
        return self.chain.operator_plan(PIPELINE, cache=self._cache)

    def _only_reader(self, declared: Sequence[Declared]) -> Stage | None:
        """Return the one stage that can take the rows of the sources in its own action, through a shuffle."""
        readers = self.stages.readers()
        if len(readers) != 1 or self.stages.wants_rows():
            return None
        stage = next(stage for stage in self.stages.stages if stage.name in readers)
        # Should a part of the shuffle be made again, the numbers of rows without a key may be others.
        is_settled = not any(one.is_numbered for one in declared) or stage.passes_over_stream_keys()
        return stage if is_settled else None

    def publish(
        self, plan: EpochPlan, saved: Mapping[str, Sequence[ShardSaved]], figures: Mapping[str, float]
    ) -> Manifest:
        """Publish an epoch, and in it the images that were made beside."""
        return self.chain.publish(plan, saved, figures, self._images(plan.epoch))

    def save_state(self, plan: OperatorPlan, results: Mapping[str, Sequence[Parcel]]) -> list[ShardSaved]:
        """Save what the driver must know, where it changed."""
        saved = [ShardSaved(PIPELINE, shard, None) for shard in range(plan.shards)]
        if results or not any(plan.lineages):
            with open_shard(plan, 0) as space:
                if not any(plan.lineages):
                    note(space, self.plan, self.plan.stateful)
                note_routes(space, self.plan)
                note_parcels(space, results)
                saved[0] = save_shard(plan, space, 0)
        return saved

    def intake(self, epoch: int) -> Intake:
        """Return what takes the rows of the sources in an epoch."""
        return Intake(self._inputs, self.stages.sources, epoch)


class _Epoch:
    """One epoch under way."""

    def __init__(self, epochs: Epochs, plan: EpochPlan, rows: DataFrame) -> None:
        self._epochs, self._plan, self._rows = epochs, plan, rows
        self._spark = rows.sparkSession
        self._parcels: dict[int, list[Parcel]] = {}
        self._watermarks: dict[int, dict[str, object]] = {}
        self._figures: dict[str, float] = {}
        self._source_rows = 0

    def made(self) -> Manifest:
        """Run all stages, and publish."""
        started = time.perf_counter()
        saved: dict[str, list[ShardSaved]] = {}
        if self._epochs.direct is None:
            self._take_in()
        for stage in self._epochs.stages.stages:
            saved |= self._stage(stage)
        saved[PIPELINE] = self._epochs.save_state(self._plan.operators[PIPELINE], self.results())
        figures = {"rows": self._source_rows, "seconds": time.perf_counter() - started}
        return self._epochs.publish(self._plan, saved, {**self._figures, **figures})

    def results(self) -> dict[str, list[Parcel]]:
        """Return where the changes of the results lie."""
        return {name: self._parcels.get(one.number, []) for name, one in self._epochs.stages.results.items()}

    def _take_in(self) -> None:
        task = intake_task(self._plan.operators[PIPELINE], self._epochs.intake(self._plan.epoch))
        self._accept(SOURCES, lambda: self._rows.mapInArrow(task, MESSAGE_SCHEMA), None)

    def _stage(self, stage: Stage) -> dict[str, list[ShardSaved]]:
        plans = tuple(self._plan.operators[name] for name in stage.operators)
        is_direct = self._epochs.direct is stage
        parcels = tuple(one for _, number in stage.inputs for one in self._parcels.get(number, ()))
        promises = tuple(
            (side, column, value)
            for side, number in stage.inputs
            for column, value in self._watermarks.get(number, {}).items()
        )
        found: list[ShardSaved] = []
        if is_direct:
            task = StageTask(plans, stage, is_routed=True)
            found = self._accept(stage.name, lambda: self._routed(stage).mapInArrow(task, MESSAGE_SCHEMA), stage)
        if not found and (parcels or promises or not stage.rests or not any(plans[0].lineages)):
            task = StageTask(plans, stage, parcels, promises)
            rows = self._spark.range(0, stage.tasks, 1, stage.tasks)
            found = self._accept(stage.name, lambda: rows.mapInArrow(task, MESSAGE_SCHEMA), stage)
        return {plan.operator: self._complete(stage, plan, found) for plan in plans}

    def _complete(self, stage: Stage, plan: OperatorPlan, found: Sequence[ShardSaved]) -> list[ShardSaved]:
        """Return what the shards of an operator have saved, those too that had nothing to do."""
        saved = [one for one in found if one.operator == plan.operator]
        if found:
            require_one_each(plan.operator, stage.tasks, saved)
        others = range(stage.tasks if found else 0, plan.shards)
        return [*saved, *(ShardSaved(plan.operator, shard, None) for shard in others)]

    def _routed(self, stage: Stage) -> DataFrame:
        changes = self._rows.mapInArrow(self._epochs.intake(self._plan.epoch).routed, ROUTED_SCHEMA)
        # The explicit number of partitions keeps adaptive execution from joining small ones into one task.
        return changes.repartitionById(stage.tasks, "shard")

    def _accept(self, name: str, tasks: Callable[[], DataFrame], stage: Stage | None) -> list[ShardSaved]:
        """Run an action, and take in what its tasks say; return the saved shards."""
        started = time.perf_counter()
        with in_words(name, self._plan.epoch):
            reports = [Report.from_json(row.message) for row in tasks().collect()]
        for report in reports:
            for parcel in report.parcels:
                self._parcels.setdefault(parcel.exit, []).append(parcel)
        self._promise(reports, stage)
        self._count(name, reports, (time.perf_counter() - started) * 1000)
        return [one for report in reports for one in report.saved]

    def _promise(self, reports: Sequence[Report], stage: Stage | None) -> None:
        """Take promises that every task of a stage gives: the least of what they say holds for all."""
        given: dict[tuple[int, str], list[object]] = {}
        for report in reports:
            for number, column, value in report.watermarks:
                given.setdefault((number, column), []).append(value)
        for (number, column), values in given.items():
            if stage is not None and len(values) == stage.tasks:
                self._watermarks.setdefault(number, {})[column] = min(values)  # type: ignore[type-var]

    def _count(self, name: str, reports: Sequence[Report], milliseconds: float) -> None:
        """Add up what the tasks of an action have counted; its time is that of the operator that it is named after."""
        operators = dict.fromkeys([name, *(one for report in reports for one in report.figures)])
        for one in operators:
            total = _summed(report.figures.get(one, {}) for report in reports)
            self._source_rows += int(total.pop("source_rows", 0))
            if one == SOURCES:
                self._source_rows += int(total.pop("rows", 0))
                total["rows_in"] = self._source_rows
            self._figures |= figures_of(one, {**total, "ms": milliseconds if one == name else 0.0})


def _checked_plan(pipeline: Pipeline, state: OperatorPlan) -> Plan:
    """Return the plan of a pipeline with the names that its operators are stored under.

    Raises:
        PipelineChangedError: the state is that of another pipeline.
    """
    if not any(state.lineages):
        return pipeline.plan()
    with open_shard(state, 0) as space:
        plan = pipeline.plan(stored_names(space))
        difference = compare(space, plan)
        if difference.new or difference.gone:
            raise PipelineChangedError(
                f"the pipeline is not the one that the state at {state.location.url} is of:"
                f" {difference.describe(space, plan)}; go back to the pipeline as it was, or start at another location"
                " with the input from its beginning"
            )
    return plan


def _summed(figures: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for one in figures:
        for name, value in one.items():
            total[name] = total.get(name, 0) + value
    return total
