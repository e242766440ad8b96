"""Operators that keep their state in tables and persisted objects, and are independent of any engine.

``base`` says what an operator is: changes in, changes out, and state under a name. ``builder`` makes a ``plan`` of
them, ``graph`` is the plan at work, and ``run`` works it epoch by epoch in one process. ``catalogue`` notes in the
space which operators it keeps, so that a changed pipeline reuses what still fits. ``events`` has the operators of
single values, and ``division`` divides the state of shards anew.
"""

from objectspace.operators.agg_call import AggCall, avg, count, max_, min_, sum_
from objectspace.operators.apply import Apply, Processor
from objectspace.operators.base import Operator
from objectspace.operators.bound import ExpressionError
from objectspace.operators.builder import Grouped, Pipeline, Stream
from objectspace.operators.catalogue import PipelineChangedError
from objectspace.operators.dedup import Dedup
from objectspace.operators.dynamic_filter import DynamicFilter
from objectspace.operators.events import (
    Average,
    Buffer,
    Chain,
    CombineLatest,
    Concat,
    EventOperator,
    GroupBy,
    Select,
    SelectMany,
    SkipUntil,
    Take,
    Where,
    Window,
    Zip,
)
from objectspace.operators.expressions import Expression, call, coalesce, col, lit, when
from objectspace.operators.fused import PipelineOperator
from objectspace.operators.hash_agg import HashAgg
from objectspace.operators.hash_join import HashJoin
from objectspace.operators.interval_join import IntervalJoin
from objectspace.operators.materialize import Materialize
from objectspace.operators.plan import Node, Plan
from objectspace.operators.run import LocalRun, run_local
from objectspace.operators.sessions import SessionWindow
from objectspace.operators.simple_agg import SimpleAgg
from objectspace.operators.stateless import Filter, Project, Union
from objectspace.operators.temporal_join import TemporalJoin
from objectspace.operators.top_n import GroupTopN, TopN
from objectspace.operators.watermark_filter import WatermarkFilter
from objectspace.operators.windows import Hop, Tumble
from objectspace.relational import Chunk

__all__ = [
    "AggCall",
    "Apply",
    "Average",
    "Buffer",
    "Chain",
    "Chunk",
    "CombineLatest",
    "Concat",
    "Dedup",
    "DynamicFilter",
    "EventOperator",
    "Expression",
    "ExpressionError",
    "Filter",
    "GroupBy",
    "GroupTopN",
    "Grouped",
    "HashAgg",
    "HashJoin",
    "Hop",
    "IntervalJoin",
    "LocalRun",
    "Materialize",
    "Node",
    "Operator",
    "Pipeline",
    "PipelineChangedError",
    "PipelineOperator",
    "Plan",
    "Processor",
    "Project",
    "Select",
    "SelectMany",
    "SessionWindow",
    "SimpleAgg",
    "SkipUntil",
    "Stream",
    "Take",
    "TemporalJoin",
    "TopN",
    "Tumble",
    "Union",
    "WatermarkFilter",
    "Where",
    "Window",
    "Zip",
    "avg",
    "call",
    "coalesce",
    "col",
    "count",
    "lit",
    "max_",
    "min_",
    "run_local",
    "sum_",
    "when",
]
