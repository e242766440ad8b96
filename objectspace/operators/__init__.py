"""Operators that keep their state in tables and persisted objects, and know no engine."""

from objectspace.operators.agg_call import AggCall, avg, count, max_, min_, sum_
from objectspace.operators.base import Operator
from objectspace.operators.dedup import Dedup
from objectspace.operators.hash_agg import HashAgg
from objectspace.operators.predicates import ExpressionError
from objectspace.operators.simple_agg import SimpleAgg
from objectspace.operators.stateless import Filter, Project, Union
from objectspace.operators.watermark_filter import WatermarkFilter
from objectspace.operators.windows import Hop, Tumble

__all__ = [
    "AggCall",
    "Dedup",
    "ExpressionError",
    "Filter",
    "HashAgg",
    "Hop",
    "Operator",
    "Project",
    "SimpleAgg",
    "Tumble",
    "Union",
    "WatermarkFilter",
    "avg",
    "count",
    "max_",
    "min_",
    "sum_",
]
