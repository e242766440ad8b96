"""The daemon of Spark that forks the processes of Python, with what each of them would import there before it works.

Spark's own one imports nothing, so that each process takes a second of a processor before it does anything: the first
ones, those after each failed task, and those after a minute without work.
"""

from __future__ import annotations

import importlib
import sys

from pyspark.daemon import manager

WARM = (
    "objectspace.spark",
    "objectspace.testing",
    "pandas",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark_objectspace",
    "pytest",
    "tests.spark.spark_helpers",
)

if __name__ == "__main__":
    for name in (*WARM, *sys.argv[1:2]):
        importlib.import_module(name)
    manager()
