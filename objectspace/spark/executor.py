"""The executors' side: open a shard where a task runs, and save it into a private file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Protocol
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import IntegerType, StringType, StructType

from checkpoint import CheckpointKind, Reader, Run, RunWriter
from checkpoint.chain import AcceptedRun, OperatorPlan, ShardSaved, open_cache, save_run
from checkpoint.process import collecting_seldom
from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.operators.division.keyed import KeyedBy
from objectspace.relational import seal_tables
from objectspace.space import CACHE_SLOTS
from objectspace.spark.ahead import fold_ahead
from objectspace.spark.printable import printable_errors
from objectspace.spark.routes import note_keyed, require_operator
from objectspace.spark.storage import require_shared

Process = Callable[[Iterator[pa.RecordBatch], PersistedObjectSpace], None]
"""What an operator does with the rows of its shard in one epoch: read them, and change objects of the space.

Rows come in any order, cut into batches in any way, and a task may be tried again: the state afterwards must depend
only on the state before and the rows. In an epoch without rows it may not be called at all.
"""

MESSAGE_SCHEMA = StructType().add("shard", IntegerType()).add("message", StringType())
"""What a saving task yields, one row: the number of its shard, and a ``ShardSaved`` as JSON."""


_BEGUN: WeakKeyDictionary[PersistedObjectSpace, Reader] = WeakKeyDictionary()
"""What open shards held when they were opened."""


@contextmanager
def open_shard(
    plan: OperatorPlan, shard: int | None = None, *, cache_slots: int = CACHE_SLOTS
) -> Iterator[PersistedObjectSpace]:
    """Open the space of one shard as the plan's lineages say, on a cache of this machine.

    Args:
        plan: the plan of the operator.
        shard: the number of the shard; by default, inside a task of ``repartitionById``, the task's own.
        cache_slots: how many clean slots to keep in memory; a large one counts as several.

    Raises:
        ObjectSpaceError: there is no such shard.
        CheckpointError: the location or the cache folder cannot be used, or a task would open the driver's memory.
        CorruptStoreError: a run file is missing or damaged.

    Time: O(runs of the shard + what the cache lacks). Dirties: the cache; edits are kept only by ``save_shard``.
    """
    if TaskContext.get() is not None:
        require_shared(plan.location)
    with open_cache(plan, current_shard(plan) if shard is None else _checked_shard(plan, shard)) as store:
        space = PersistedObjectSpace(store, cache_slots=cache_slots)
        _BEGUN[space] = space.store.reader()
        try:
            yield space
        finally:
            space.close()


def save_shard(
    plan: OperatorPlan,
    space: PersistedObjectSpace,
    shard: int | None = None,
    metrics: Mapping[str, float] | None = None,
) -> ShardSaved:
    """Save what has changed in an open shard into a private run file, and return the message for the driver.

    The cache stays where it was: if the driver accepts the run, the next open folds it in.

    Args:
        plan: the plan that the shard was opened with.
        space: the open space.
        shard: the number of the shard; the task's own by default.
        metrics: figures about the work, summed over the shards.

    Raises:
        ObjectSpaceError: the shard has made a checkpoint of its own since it was opened, or gone back to one.
        CheckpointError: the location cannot be written.

    Time: O(dirty slots), or O(state) if a full run is due. Dirties: one new file.
    """
    place = current_shard(plan) if shard is None else _checked_shard(plan, shard)
    _require_as_begun(plan, space, _BEGUN.get(space))
    saved, _ = save_shard_run(plan, space, place)
    return replace(saved, metrics=dict(metrics or {}))


def save_shard_run(plan: OperatorPlan, space: PersistedObjectSpace, shard: int) -> tuple[ShardSaved, Run]:
    """Do what ``save_shard`` does, and return the rows that were saved, too.

    Raises:
        CorruptStoreError: a full run is due, and the cache is not as it was written.
    """
    writer = RunWriter(plan.kind(shard))
    if writer.kind is CheckpointKind.FULL:
        # Whatever has become of a row in the cache of this machine would be the truth for all.
        space.store.reader().check_rows()
    seal_tables(space, plan.epoch)
    space.save(writer)
    writer.commit()
    return save_run(plan, shard, writer.run), writer.run


class Shards(Protocol):
    """Opens shards of operators, and saves them."""

    def open(self, plan: OperatorPlan, shard: int) -> AbstractContextManager[PersistedObjectSpace]:
        """Open the space of a shard as the plan's lineages say."""

    def save(self, plan: OperatorPlan, space: PersistedObjectSpace, shard: int) -> ShardSaved:
        """Save what has changed in an open shard into a private run file."""


class TaskShards:
    """Opens shards for as long as a task needs them, and then folds what was saved into the caches."""

    def __init__(self) -> None:
        self._saved: dict[tuple[str, int], tuple[Run, AcceptedRun]] = {}

    @contextmanager
    def open(self, plan: OperatorPlan, shard: int) -> Iterator[PersistedObjectSpace]:
        """Open the space of a shard; see ``open_shard``."""
        with ExitStack() as opened:
            store = opened.enter_context(open_cache(plan, shard))
            with closing(PersistedObjectSpace(store)) as space:
                yield space
            saved = self._saved.pop((plan.operator, shard), None)
            # An image that replaces a lineage makes a cache of its own.
            if saved is not None and not (saved[0].kind is CheckpointKind.FULL and plan.lineages[shard]):
                fold_ahead(opened, store, *saved)

    def save(self, plan: OperatorPlan, space: PersistedObjectSpace, shard: int) -> ShardSaved:
        """Save what has changed in an open shard; see ``save_shard``."""
        saved, run = save_shard_run(plan, space, shard)
        if saved.run is not None:
            self._saved[plan.operator, shard] = run, saved.run
        return saved


def shard_task(
    plan: OperatorPlan, process: Process, keyed: Mapping[str, KeyedBy] | None = None, does: str = ""
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``mapInArrow`` that runs an operator over the rows of one shard.

    Args:
        plan: the plan of the operator.
        process: what the operator does.
        keyed: which of its objects have keys that tell how rows are routed; ``rescale`` needs to know.
        does: what the operator is, as text: state of another one is refused.
    """

    def _run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with collecting_seldom(), printable_errors():
            saved = work_shard(plan, current_shard(plan), batches, process, keyed, does)
        yield message_batch(saved)

    return _run


def work_shard(
    plan: OperatorPlan,
    shard: int,
    batches: Iterator[pa.RecordBatch],
    process: Process,
    keyed: Mapping[str, KeyedBy] | None = None,
    does: str = "",
    shards: Shards | None = None,
) -> ShardSaved:
    """Run an operator over the rows of one shard, and save it.

    Args:
        plan: the plan of the operator.
        shard: the number of the shard.
        batches: its rows.
        process: what the operator does.
        keyed: which of its objects have keys that tell how rows are routed; ``rescale`` needs to know.
        does: what the operator is, as text; empty if that does not matter.
        shards: what opens and saves the shard; by default, one that serves this call alone.

    Raises:
        CheckpointError: the location or the cache folder cannot be used.
        PipelineChangedError: the state is that of another operator.

    Dirties: the cache, and one new file of the location.
    """
    using = TaskShards() if shards is None else shards
    started = time.perf_counter()
    counted = _Counted(batches)
    with using.open(plan, shard) as space:
        require_operator(space, plan.operator, does)
        opened = time.perf_counter()
        begun = space.store.reader()
        process(counted, space)
        _require_as_begun(plan, space, begun)
        note_keyed(space, keyed or {})
        processed = time.perf_counter()
        saved = using.save(plan, space, shard)
        ended = time.perf_counter()
    metrics = {
        "rows": counted.rows,
        "input_bytes": counted.bytes,
        "task_seconds": ended - started,
        "open_ms": (opened - started) * 1000,
        "process_ms": (processed - opened) * 1000,
        "save_ms": (ended - processed) * 1000,
    }
    return replace(saved, metrics=metrics)


def message_batch(saved: ShardSaved) -> pa.RecordBatch:
    """Return the one output row of a task, in the form of ``MESSAGE_SCHEMA``."""
    return pa.record_batch({"shard": pa.array([saved.shard], pa.int32()), "message": pa.array([saved.to_json()])})


def current_shard(plan: OperatorPlan) -> int:
    """Return the shard of the running task: after ``repartitionById`` it is the number of the partition.

    A task does not know how many others there are: if they are fewer than the shards, that goes unnoticed.

    Raises:
        ObjectSpaceError: this is not a Spark task, or there are more partitions than shards of the plan.
        CheckpointError: the location is the memory of the driver.
    """
    context = TaskContext.get()
    if context is None:
        raise ObjectSpaceError(f"operator {plan.operator}: no Spark task runs here: say which shard to open")
    require_shared(plan.location)
    if context.partitionId() >= plan.shards:
        raise ObjectSpaceError(
            f"operator {plan.operator}: expected partitions 0 to {plan.shards - 1}, found {context.partitionId()}:"
            f" send the rows through repartitionById({plan.shards}, ...)"
        )
    return context.partitionId()


def _checked_shard(plan: OperatorPlan, shard: int) -> int:
    if type(shard) is not int or not 0 <= shard < plan.shards:
        raise ObjectSpaceError(
            f"operator {plan.operator}: there is no shard {shard!r}: expected 0 to {plan.shards - 1}"
        )
    return shard


def _require_as_begun(plan: OperatorPlan, space: PersistedObjectSpace, begun: Reader | None) -> None:
    """Refuse to save what is no longer counted from the state that the plan says."""
    if begun is not None and (begun.is_retired or begun.newest != space.store.next_number() - 1):
        raise ObjectSpaceError(
            f"operator {plan.operator}: a checkpoint of the shard was made, or it went back to one, since it was"
            " opened, which the epoch does not hold: leave checkpoints to the pipeline, which saves what was changed"
        )


class _Counted(Iterator[pa.RecordBatch]):
    """An iterator of batches that counts their rows and bytes."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows = self.bytes = 0

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._batches)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes
        return batch
