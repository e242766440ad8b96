"""Operators that keep their state in tables and persisted objects, and know no engine."""

from objectspace.operators.base import Operator

__all__ = ["Operator"]
