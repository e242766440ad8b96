"""Registers ``format("objectspace")``: Spark looks for a module of this name by itself."""

from objectspace.spark.source import ObjectSpaceSource as DefaultSource

__all__ = ["DefaultSource"]
