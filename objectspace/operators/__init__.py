"""Operators that keep their state in tables and persisted objects, and know no engine."""

from objectspace.operators.agg_call import AggCall, avg, count, max_, min_, sum_
from objectspace.operators.base import Operator
from objectspace.operators.hash_agg import HashAgg
from objectspace.operators.simple_agg import SimpleAgg

__all__ = ["AggCall", "HashAgg", "Operator", "SimpleAgg", "avg", "count", "max_", "min_", "sum_"]
