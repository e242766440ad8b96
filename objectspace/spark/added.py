"""The driver's side of operators that were added: one epoch, an action for each of them, and one manifest."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from checkpoint.chain import Chain, EpochPlan, Manifest, ShardSaved, SourcePosition
from objectspace.spark.aggregate import RunningAggregate
from objectspace.spark.errors import in_words
from objectspace.spark.in_driver import work_operators
from objectspace.spark.operator import Operator
from objectspace.spark.progress import PHASES, figures_of
from objectspace.spark.routes import require_same_operators

if TYPE_CHECKING:
    from objectspace.spark.pipeline import Pipeline


class AddedEpochs:
    """Makes the epochs of a pipeline of operators that were added.

    Args:
        pipeline: the pipeline.
        full_after: how many differential runs may follow a full one before the next full one is considered.
        cache: the folder of the local caches.
    """

    def __init__(self, pipeline: Pipeline, full_after: int, cache: str | None) -> None:
        self.chain: Chain = pipeline.chain
        self.operators = pipeline.operators
        self._full_after, self._cache = full_after, cache
        self._images, self._driver = pipeline.upkeep.images, pipeline.driver

    def run(self, rows: DataFrame, position: SourcePosition) -> Manifest | None:
        """Process one micro-batch and publish its epoch.

        Args:
            rows: the micro-batch.
            position: which one it is.

        Returns:
            The manifest of the new epoch, or None if the micro-batch had been committed before.

        Raises:
            FencedError: another driver has published this epoch, or the space was replaced; this one must stop.
            PipelineChangedError: the query has fed other operators before.
            TaskFailedError: a task failed for good; nothing was published.
            CheckpointError: micro-batches are missing, or the location cannot be used.

        Dirties: the location: a run file for each shard that changed, and one manifest.
        """
        started = time.perf_counter()
        plan = self.chain.begin(position, list(self.operators), self._full_after, self._cache)
        if plan is None:
            return None
        require_same_operators(self.chain, position.query, self.operators)
        with self.chain.working(plan):
            near = self._worked_in_driver(plan, rows)
            saved, milliseconds = (
                self._worked_in_tasks(plan, rows) if near is None else (near, _task_milliseconds(near))
            )
        figures = {} if near is None else {"driver": 1.0}
        for name, shards in saved.items():
            figures |= _figures_of(name, shards, milliseconds[name])
        for figure in ("rows", "input_bytes"):  # Each operator got all rows.
            totals = (sum(one.metrics.get(figure, 0) for one in shards) for shards in saved.values())
            figures[figure] = max(totals, default=0)
        figures["seconds"] = time.perf_counter() - started
        return self.chain.publish(plan, saved, figures, self._images(plan.epoch))

    def _worked_in_driver(self, plan: EpochPlan, rows: DataFrame) -> dict[str, list[ShardSaved]] | None:
        """Return what the shards have saved if the driver worked the epoch, None if tasks are to do it."""
        if any(
            type(one) is not Operator or type(one.process) is not RunningAggregate for one in self.operators.values()
        ):
            return None  # it is users' code
        return self._driver.attempt(plan, lambda: work_operators(self.operators, plan, rows, self._driver))

    def _worked_in_tasks(
        self, plan: EpochPlan, rows: DataFrame
    ) -> tuple[dict[str, list[ShardSaved]], dict[str, float]]:
        """Return what the shards have saved in tasks, and how long the action of each operator took, milliseconds."""
        saved: dict[str, list[ShardSaved]] = {}
        milliseconds: dict[str, float] = {}
        # One action for each operator: two in one job could see outputs of different attempts when an executor dies.
        for name, operator in self.operators.items():
            started = time.perf_counter()
            with in_words(name, plan.epoch):
                saved[name] = operator.run(plan.operators[name], rows)
            milliseconds[name] = (time.perf_counter() - started) * 1000
        return saved, milliseconds


def _task_milliseconds(saved: Mapping[str, Sequence[ShardSaved]]) -> dict[str, float]:
    """Return how long the work on the shards of each operator took, one after the other."""
    return {name: sum(one.metrics["task_seconds"] for one in shards) * 1000 for name, shards in saved.items()}


def _figures_of(operator: str, saved: Sequence[ShardSaved], ms: float) -> dict[str, float]:
    """Return the figures of an operator that was added, whose action took this long."""
    total = {key: sum(one.metrics.get(key, 0) for one in saved) for key in ("rows", *PHASES)}
    phases = {phase: total[phase] for phase in PHASES if total[phase]}
    return figures_of(operator, {"rows_in": total["rows"], "ms": ms, **phases})
