"""Decimals are computed in the same way whatever a program does to the contexts of Python."""

from __future__ import annotations

import subprocess
import sys

import pytest

COMPUTED = """
import decimal
from decimal import Decimal
{change}
decimal.setcontext(decimal.DefaultContext.copy())
from objectspace.operators import Pipeline, avg, col
from objectspace.relational import StorageTable
pipeline = Pipeline()
source = pipeline.source("s", {{"id": "int64", "d": "decimal"}}, key=["id"])
source.materialize("source")
source.filter(col("d") < 2).agg(mean=avg("d")).materialize("mean")
source.select("id", c=col("d").cast("decimal(38,1)"), x=col("d") * col("d")).materialize("rows")
run = pipeline.run_local([{{"s": [(1, Decimal(1)), (2, Decimal(1)), (3, Decimal(0)), (4, Decimal("1E+15"))]}}])
print(run.rows("mean"), run.rows("rows"), StorageTable(run.space.store, "source/table").to_arrow().to_pylist())
"""

CHANGES = {
    "rounding": "decimal.DefaultContext.rounding = decimal.ROUND_DOWN",
    "traps": "decimal.DefaultContext.traps[decimal.Inexact] = True",
    "exponents": "decimal.DefaultContext.Emax, decimal.DefaultContext.Emin = 20, -20",
}


def computed(change: str) -> str:
    script = [sys.executable, "-c", COMPUTED.format(change=change)]
    return subprocess.run(script, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_results_do_not_depend_on_the_default_context_of_a_program(change: str) -> None:
    assert computed(change) == computed("")
