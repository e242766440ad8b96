"""Operators that keep their state in tables and persisted objects, and know no engine."""

from objectspace.operators.base import Operator
from objectspace.operators.hash_join import HashJoin
from objectspace.operators.materialize import Materialize
from objectspace.operators.top_n import GroupTopN, TopN

__all__ = ["GroupTopN", "HashJoin", "Materialize", "Operator", "TopN"]
