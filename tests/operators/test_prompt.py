"""What a prompt shows of operators, pipelines and runs, and what is not copied of them."""

from __future__ import annotations

import copy
import pickle
from collections import ChainMap, UserDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from objectspace import VolatileObjectSpace
from objectspace.operators import HashAgg, Pipeline, TopN, col, count
from objectspace.operators.events import Chain, Take
from objectspace.operators.fingerprints import describe
from objectspace.operators.run import LocalRun
from objectspace.relational import Column, TableSchema

ROWS = TableSchema([Column("id", "int64"), Column("k", "string")], ["id"])


def flights() -> tuple[Pipeline, Any]:
    pipeline = Pipeline()
    return pipeline, pipeline.source("flights", {"id": "int64", "carrier": "string"}, key=["id"])


def test_an_operator_is_shown_by_its_name_and_columns() -> None:
    operator = HashAgg(ROWS, ["k"], [count()])
    assert repr(operator) == "<HashAgg columns k, count [not open]>"
    operator.open(VolatileObjectSpace(), "by_k")
    assert repr(operator) == "HashAgg('by_k', columns k, count)"


def test_an_event_operator_is_shown_by_its_name_and_whether_it_has_ended() -> None:
    first, chain = Take(1), Chain(Take(3))
    assert [repr(first), repr(chain)] == ["<Take [not open]>", "<Chain [not open]>"]
    first.open(VolatileObjectSpace(), "first")
    assert repr(first) == "Take('first')"
    first.on_next(1)
    assert repr(first) == "<Take 'first' [ended]>"


def test_pipelines_and_streams_are_shown_by_their_names_and_columns() -> None:
    pipeline, source = flights()
    assert repr(pipeline) == "Pipeline(sources flights; results none)"
    assert repr(source) == "Stream(Source 'flights', columns id, carrier)"
    assert repr(source.filter(col("id") > 3)) == "Stream(Where, columns id, carrier)"
    assert repr(source.group_by("carrier")) == "Grouped(by carrier, columns id, carrier)"
    source.group_by("carrier").agg(n=count()).materialize("counts")
    assert repr(pipeline) == "Pipeline(sources flights; results counts)"
    assert repr(pipeline.as_operator()) == "<PipelineOperator sources flights; results counts [not open]>"


def test_a_run_is_shown_by_its_store_epoch_and_results(tmp_path: Path) -> None:
    pipeline, source = flights()
    source.materialize("all")
    path = str(tmp_path / "s.db")
    with pipeline.run_local([{"flights": [(1, "UA")]}], path) as run:
        assert repr(run) == f"LocalRun({path!r}, epoch 1, results all)"
    assert repr(run) == f"<LocalRun {path!r} [closed]>"


def test_a_function_that_closes_over_an_operator_is_the_same_function_whatever_is_shown_of_it() -> None:
    operator = HashAgg(ROWS, ["k"], [count()])
    functions = [lambda: operator, operator.process]
    before = list(map(describe, functions))
    operator.open(VolatileObjectSpace(), "by_k")
    assert list(map(describe, functions)) == before


def test_it_is_the_same_function_if_the_operator_lies_deep_in_what_it_closes_over() -> None:
    pipeline = Pipeline()
    found = ChainMap({"of": UserDict({"pipeline": pipeline})})
    before = describe(lambda row: row in found)
    pipeline.source("rows", {"id": "int64"}, key=["id"]).materialize("all")
    assert "all" in repr(found)
    assert describe(lambda row: row in found) == before


@pytest.mark.parametrize("cls", [HashAgg, TopN, Pipeline, LocalRun])
def test_what_is_half_made_is_shown_as_any_object(cls: type) -> None:
    assert repr(cls.__new__(cls)).startswith(f"<{cls.__module__}.{cls.__name__} object at ")


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_is_open_on_a_space_is_neither_copied_nor_pickled(clone: Callable[[Any], Any]) -> None:
    operator, event_operator = HashAgg(ROWS, ["k"], [count()]), Take(1)
    for one in (operator, event_operator):
        copy.deepcopy(one).open(VolatileObjectSpace(), "o")
        one.open(VolatileObjectSpace(), "o")
    pipeline, source = flights()
    source.materialize("all")
    with pipeline.run_local([]) as run:
        for one in (operator, event_operator, run):
            with pytest.raises(TypeError, match=f"^{type(one).__name__}.* is neither copied nor pickled: .*open"):
                clone(one)
