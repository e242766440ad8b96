"""State on Spark: one space per shard, saved by the executors and committed by the driver, exactly once.

A pipeline keeps its state at a location that every machine reaches. Each micro-batch becomes an epoch: the rows reach
their shards, each shard saves what has changed into a private run file, and one manifest makes all of them count.

``pipeline`` is what users see. ``stages`` divides its plan into actions of Spark, ``epochs`` is the driver's side of an
epoch, ``tasks`` and ``executor`` that of the machines, and ``handover`` what goes from one action to the next.
``source``, ``change_feed`` and ``writer`` are the data source ``objectspace``.
"""

import objectspace.spark._needs  # noqa: F401
from objectspace.spark.aggregate import Measure, RunningAggregate
from objectspace.spark.embedded import EmbeddedPipeline
from objectspace.spark.errors import TaskFailedError
from objectspace.spark.executor import MESSAGE_SCHEMA, Process, message_batch, open_shard, save_shard, shard_task
from objectspace.spark.java import JavaNotFoundError, ensure_java
from objectspace.spark.operator import Operator
from objectspace.spark.pipeline import Pipeline
from objectspace.spark.progress import EpochProgress, OperatorProgress
from objectspace.spark.query import PipelineQuery, Status
from objectspace.spark.rescale import rescale
from objectspace.spark.session import quiet_session
from objectspace.spark.shards import VNODES, hash_of, shard_expression, shard_of, vnode_of
from objectspace.spark.stateful import Stateful
from objectspace.spark.upkeep import Retention, Upkeep

__all__ = [
    "MESSAGE_SCHEMA",
    "VNODES",
    "EmbeddedPipeline",
    "EpochProgress",
    "JavaNotFoundError",
    "Measure",
    "Operator",
    "OperatorProgress",
    "Pipeline",
    "PipelineQuery",
    "Process",
    "Retention",
    "RunningAggregate",
    "Stateful",
    "Status",
    "TaskFailedError",
    "Upkeep",
    "ensure_java",
    "hash_of",
    "message_batch",
    "open_shard",
    "quiet_session",
    "rescale",
    "save_shard",
    "shard_expression",
    "shard_of",
    "shard_task",
    "vnode_of",
]
