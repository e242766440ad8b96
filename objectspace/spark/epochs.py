"""The driver's side: one epoch of a pipeline, an action for each operator that keeps state, and one manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from checkpoint.chain import Chain, EpochPlan, Manifest, OperatorPlan, ShardSaved, SourcePosition
from objectspace.operators import PipelineChangedError, Plan
from objectspace.operators.catalogue import compare, note, stored_names
from objectspace.spark.actions import EpochInTasks
from objectspace.spark.executor import open_shard, save_shard
from objectspace.spark.handover import Parcel
from objectspace.spark.in_driver import EpochInDriver
from objectspace.spark.inputs import Declared
from objectspace.spark.placement import runs_code_of_users
from objectspace.spark.routes import PIPELINE, note_routes, note_sources, noted_sources
from objectspace.spark.sinks import Delivery, built_as, note_parcels, noted_built, noted_parcels
from objectspace.spark.stages import Stage, compiled
from objectspace.spark.tasks import Intake

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

    def __init__(self, pipeline: Pipeline, declared: Sequence[Declared], full_after: int, cache: str | None) -> None:
        self.chain: Chain = pipeline.chain
        self._full_after, self._cache = full_after, cache
        self._images = pipeline.upkeep.images
        self.plan, noted = _checked_plan(pipeline, self._state_plan())
        self.sources = noted or [one.name for one in declared]
        """The sources in the order in which Spark knows them."""
        self._is_noted = bool(noted)
        wanted = {name: pipeline.results[name] for name in (*pipeline.functions, *pipeline.frame_functions)}
        self.stages = compiled(self.plan, wanted, self.chain.shards)
        self._inputs = tuple(one.input() for one in declared)
        built = {name: built_as(node) for name, node in wanted.items()}
        self.delivery = Delivery(
            self.chain.location,
            self.stages.results,
            pipeline.columns,
            built,
            pipeline.frame_functions,
            pipeline.functions,
        )
        self.direct = self._only_reader(declared)
        """The stage that takes the rows of the sources in its own action, if there is one."""
        self._is_first = True
        self._driver = pipeline.driver
        self._runs_code_of_users = runs_code_of_users(self.plan.nodes)

    def run(self, rows: DataFrame, position: SourcePosition) -> Manifest | None:
        """Process one micro-batch and publish its epoch.

        Args:
            rows: the micro-batch.
            position: which one it is.

        Returns:
            The manifest of the new epoch, or None if the micro-batch had been committed before.

        Raises:
            FencedError: another driver has published this epoch, or the space was replaced; this one must stop.
            TaskFailedError: a task failed for good; nothing was published.
            CheckpointError: micro-batches are missing, or the location cannot be used.

        Dirties: the location: hand-over files, a run file for each shard that changed, and one manifest.
        """
        plan = self._begun(rows.sparkSession, position)
        if plan is None:
            return None
        with self.chain.working(plan):
            epoch, saved = self._worked(plan, rows)
        manifest = epoch.publish(saved)
        self.delivery.deliver(rows.sparkSession, epoch.results())
        return manifest

    def _worked(self, plan: EpochPlan, rows: DataFrame) -> tuple[EpochInTasks, dict[str, list[ShardSaved]]]:
        """Return an epoch, and what its shards have saved: worked by the driver if that is quicker, or in tasks."""
        if not self._runs_code_of_users:
            near = EpochInDriver(self, plan, rows, self._driver)
            saved = self._driver.attempt(plan, near.work)
            if saved is not None:
                return near, saved
        epoch = EpochInTasks(self, plan, rows)
        return epoch, epoch.work()

    def _begun(self, spark: SparkSession, position: SourcePosition) -> EpochPlan | None:
        """Begin an epoch; if it is not known whether the functions of the last one were called, call them first."""
        names = [PIPELINE, *(name for stage in self.stages.stages for name in stage.operators)]
        plan = self.chain.begin(position, names, self._full_after, self._cache)
        newest, is_first = self.chain.newest, self._is_first
        self._is_first = False
        if newest is not None and self.stages.results:
            # A micro-batch that comes again was not finished. Another query says nothing about the end of the last one.
            is_open = newest.source == position if plan is None else is_first and newest.source.query != position.query
            if is_open:
                self.delivery.redeliver(spark, *self._parcels_of(newest))
        return plan

    def _parcels_of(self, newest: Manifest) -> tuple[dict[str, list[Parcel]], dict[str, str]]:
        """Return where the changes of the newest micro-batch lie, and how its results were built.

        An older micro-batch may have left what it noted.
        """
        with open_shard(self._state_plan(), 0) as space:
            found = noted_parcels(space)
            built = noted_built(space, found)
        # A rescale is an epoch of its own after that of the micro-batch, and has its source.
        backwards = map(self.chain.manifest, range(newest.epoch, self.chain.first_epoch - 1, -1))
        same = {one.epoch for one in takewhile(lambda one: one.source == newest.source, backwards)}
        return {name: parcels for name, parcels in found.items() if parcels and parcels[0].epoch in same}, built

    def _state_plan(self) -> OperatorPlan:
        return self.chain.operator_plan(PIPELINE, cache=self._cache)

    def _only_reader(self, declared: Sequence[Declared]) -> Stage | None:
        """Return the one stage that can take the rows of the sources in its own action, through a shuffle."""
        readers = self.stages.readers()
        if len(readers) != 1 or self.stages.wants_rows():
            return None
        stage = next(stage for stage in self.stages.stages if stage.name in readers)
        # If a part of the shuffle is made again, rows without a key may get other numbers.
        is_settled = not any(one.is_numbered for one in declared) or stage.passes_over_stream_keys()
        return stage if is_settled else None

    def publish(
        self, plan: EpochPlan, saved: Mapping[str, Sequence[ShardSaved]], figures: Mapping[str, float]
    ) -> Manifest:
        """Publish an epoch, and in it the images that were made meanwhile."""
        manifest = self.chain.publish(plan, saved, figures, self._images(plan.epoch))
        self._is_noted = True
        return manifest

    def save_state(self, plan: OperatorPlan, results: Mapping[str, Sequence[Parcel]]) -> list[ShardSaved]:
        """Save what the driver must know, if it changed."""
        saved = [ShardSaved(PIPELINE, shard, None) for shard in range(plan.shards)]
        if results or not self._is_noted:
            with open_shard(plan, 0) as space:
                if not any(plan.lineages):
                    note(space, self.plan, self.plan.stateful)
                note_routes(space, self.plan)
                note_sources(space, self.sources)
                note_parcels(space, results, self.delivery.built)
                saved[0] = save_shard(plan, space, 0)
        return saved

    def intake(self, epoch: int) -> Intake:
        """Return what takes the rows of the sources in an epoch."""
        return Intake(self._inputs, self.stages.sources, epoch)


def _checked_plan(pipeline: Pipeline, state: OperatorPlan) -> tuple[Plan, list[str]]:
    """Return the plan of a pipeline with the names that its operators are stored under, and the order of its sources.

    Raises:
        PipelineChangedError: the state is that of another pipeline.
    """
    if not any(state.lineages):
        return pipeline.plan(), []
    with open_shard(state, 0) as space:
        plan = pipeline.plan(stored_names(space))
        difference = compare(space, plan)
        if difference.new or difference.gone:
            raise PipelineChangedError(
                f"the pipeline is not the one the state at {state.location.url} belongs to:"
                f" {difference.describe(space, plan)}; go back to the pipeline as it was, or start at another location"
                " with the input from its beginning"
            )
        noted = noted_sources(space)
    if noted and set(noted) != set(pipeline.sources):
        raise PipelineChangedError(
            f"the state at {state.location.url} is of a pipeline with the sources {', '.join(sorted(noted))}, found"
            f" {', '.join(sorted(pipeline.sources))}: declare the same ones, or start at another location with the"
            " input from its beginning"
        )
    return plan, noted
