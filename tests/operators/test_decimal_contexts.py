"""Decimals are read, computed and written in the same way whatever a program does to the contexts of Python."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal, ExtendedContext, localcontext
from functools import cache
from typing import Any

import pytest

from objectspace.operators import Pipeline, col
from objectspace.operators.exact import from_decimal_text
from objectspace.operators.sql_rules import caster
from objectspace.relational import RowError
from objectspace.relational.types import DataType
from objectspace.relational.values import from_cell, to_cell

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


@cache
def computed(change: str) -> str:
    script = [sys.executable, "-c", COMPUTED.format(change=change)]
    return subprocess.run(script, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_results_do_not_depend_on_the_default_context_of_a_program(change: str) -> None:
    assert computed(change) == computed("")


def test_text_that_is_no_decimal_is_refused_in_a_context_that_traps_nothing() -> None:
    pipeline = Pipeline()
    texts = pipeline.source("s", {"id": "int64", "t": "string"}, key=["id"])
    texts.select("id", d=col("t").cast("decimal")).materialize("r")
    with localcontext(ExtendedContext), pipeline.run_local([{"s": [(1, " 1.50 ")]}]) as run:
        with pytest.raises(RowError, match="abc"):
            run.step({"s": [(2, "abc")]})
        assert run.rows("r") == [(1, Decimal("1.50"))]


@pytest.mark.parametrize("read", [caster(DataType("decimal")), from_cell(DataType("decimal")), from_decimal_text])
def test_decimal_text_keeps_all_digits_in_any_context(read: Any) -> None:
    text = "1." + "123456789" * 40 + "00"
    with localcontext(ExtendedContext):
        assert [str(read(one)) for one in (text, "1E-6000", "NaN", "-0.00")] == [text, "1E-6000", "NaN", "-0.00"]
        with pytest.raises(ArithmeticError):
            read("abc")


@pytest.mark.parametrize("write", [caster(DataType("string"), DataType("decimal")), to_cell(DataType("decimal"))])
def test_decimals_are_written_alike_in_any_context(write: Any) -> None:
    texts = ["1E+30", "-0E-9", "12.50", "NaN"]
    with localcontext(capitals=0, prec=1):
        assert [write(Decimal(text)) for text in texts] == texts
