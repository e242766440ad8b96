"""A pipeline as one operator: rows that come in several batches of an epoch, and the numbers by which they are told."""

from __future__ import annotations

from typing import Any

import pytest

from checkpoint import CheckpointStore
from objectspace import CheckpointProtocolError, PersistedObjectSpace
from objectspace.operators import Pipeline, PipelineOperator, count
from objectspace.operators.agg_call import AggCall
from objectspace.relational import RowError, SchemaError

Rows = list[tuple[str, int]]


def made(space: PersistedObjectSpace) -> PipelineOperator:
    pipeline = Pipeline()
    events = pipeline.source("events", {"k": "string", "v": "int64"})
    events.materialize("all")
    events.group_by("k").agg(n=count(), values=AggCall("array_agg", "v")).materialize("groups")
    operator = pipeline.as_operator()
    operator.open(space, "mine")
    return operator


@pytest.fixture
def space() -> PersistedObjectSpace:
    return PersistedObjectSpace(CheckpointStore(":memory:"))


def end(operator: PipelineOperator, space: PersistedObjectSpace, epoch: int, *batches: Rows) -> list[Any]:
    found = [chunk for rows in batches for chunk in operator.take({"events": rows}, epoch)]
    found += operator.barrier(epoch)
    space.checkpoint(epoch=epoch)
    return [change for chunk in found for change in chunk.rows()]


def kept(space: PersistedObjectSpace) -> list[list[str]]:
    return [list(space.get(f"mine/{name}/table").values()) for name in ("all", "groups")]


def test_rows_without_a_key_that_come_in_several_batches_of_an_epoch_are_all_kept(space: PersistedObjectSpace) -> None:
    changes = end(made(space), space, 1, [("a", 1), ("a", 2)], [("a", 3), ("b", 4)])
    assert {op for op, _ in changes} == {"+"}, "nothing has taken the place of another row"
    other = PersistedObjectSpace(CheckpointStore(":memory:"))
    end(made(other), other, 1, [("a", 1), ("a", 2), ("a", 3), ("b", 4)])
    assert kept(space) == kept(other)
    assert len(kept(space)[0]) == 4


def test_a_number_of_an_epoch_that_has_ended_is_refused_for_rows_without_a_key(space: PersistedObjectSpace) -> None:
    operator = made(space)
    end(operator, space, 2, [("a", 1)])
    for number in (1, 2):
        with pytest.raises(
            CheckpointProtocolError, match=rf"'mine': source 'events' .* batch {number}, .* had batch 2"
        ):
            operator.take({"events": [("a", 2)]}, number)
    assert operator.take({"events": []}, 2) == [], "no row needs a number"
    end(operator, space, 3, [("a", 2)])
    assert len(kept(space)[0]) == 2


def test_an_epoch_that_is_given_again_after_a_rollback_has_the_same_numbers(space: PersistedObjectSpace) -> None:
    operator = made(space)
    end(operator, space, 1, [("a", 1)])
    operator.take({"events": [("a", 2)]}, 2)
    space.rollback()
    end(operator, space, 2, [("a", 2)], [("a", 3)])
    space.rollback(epoch=1)
    end(operator, space, 2, [("a", 2)], [("a", 3)])
    other = PersistedObjectSpace(CheckpointStore(":memory:"))
    again = made(other)
    end(again, other, 1, [("a", 1)])
    end(again, other, 2, [("a", 2), ("a", 3)])
    assert kept(space) == kept(other)


@pytest.mark.parametrize("number", [None, "x", 1.5, True, -1])
def test_what_is_no_number_of_a_batch_is_refused(space: PersistedObjectSpace, number: Any) -> None:
    with pytest.raises(SchemaError, match=r"the number of a batch is .*: expected a number from 0"):
        made(space).take({"events": [("a", 1)]}, number)


def test_a_number_that_is_too_large_for_rows_without_a_key_is_refused(space: PersistedObjectSpace) -> None:
    operator = made(space)
    with pytest.raises(RowError, match="told apart by the number of their batch, which is 2,147,483,647 at most"):
        operator.take({"events": [("a", 1)]}, 2**31)
    end(operator, space, 1, [("a", 1)])
