"""The kit for operators of one's own finds what is broken, and says what."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy
import pytest

from checkpoint import CheckpointError, CheckpointStore
from checkpoint.session import Session
from objectspace import PersistedObjectSpace, VolatileObjectSpace
from objectspace.operators import GroupTopN, HashJoin, Pipeline, count, max_
from objectspace.operators.events import EventOperator, Take
from objectspace.relational import Chunk, Column, TableSchema
from objectspace.testing import POINTS, SURVIVED, TWICE, crash_everywhere, runs, storage

SCHEMA = TableSchema([Column("k", "int64"), Column("v", "int64")], ["v"])


class Forgetful(EventOperator):
    """Keeps its count in memory only."""

    def _resume(self) -> None:
        self.count = 0

    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        self.count += 1
        return [self.count]


class Rewriting(EventOperator):
    """Writes its whole list anew with each event."""

    def _create(self) -> None:
        self.values = self._object("dictionary", "values")

    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        for place, known in enumerate([value, *list(self.values.values())]):
            self.values[place] = known
        return []


class Careless(EventOperator):
    """Takes a total that cannot be read for none."""

    def _create(self) -> None:
        self.total = self._object("value", "total", 0)

    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        try:
            known = self.total.value
        except CheckpointError:
            known = 0
        self.total.value = known + value
        return [known + value]


class Numbering:
    """Gives each row of a chunk a number, which it keeps in memory only."""

    def open(self, space: PersistedObjectSpace, name: str) -> None:
        self.count = 0

    def process(self, chunk: Chunk) -> list[Chunk]:
        self.count += 1
        return [Chunk(SCHEMA, ["+"], [(self.count, 0)])]

    def barrier(self, epoch: int) -> list[Chunk]:
        return []


class Plain:
    """No operator of any kind: functions of it are its events."""

    begun = opened = 0

    def open(self, space: PersistedObjectSpace, name: str) -> None:
        Plain.begun += 1
        self.total = space.get_or_create_value(name, 0)
        self.total.value += 0
        Plain.opened += 1

    def add(self, value: int) -> list[int]:
        self.total.value += value
        return [self.total.value]


def chunks(count: int) -> list[Any]:
    return [Chunk.from_rows(SCHEMA, [("+", (n % 2, n))]) for n in range(count)]


def test_state_in_memory_only_is_found() -> None:
    with pytest.raises(AssertionError, match=r"epoch 1, disturbed after the commit: epoch 2 gave \[1\], and \[2\]"):
        crash_everywhere(Forgetful, [1, 2, 3])


def test_the_culprit_of_too_many_dirty_slots_is_named() -> None:
    with pytest.raises(AssertionError, match=r"event 4 dirtied 4 items, and may dirty 3: 'operator/values' 4"):
        crash_everywhere(Rewriting, [1, 2, 3, 4], max_dirty_per_event=3, events_per_epoch=4)


@pytest.mark.parametrize("number", [0, -1, 1.5])
def test_an_epoch_has_events(number: Any) -> None:
    with pytest.raises(ValueError, match=r"events_per_epoch is .*: expected a whole number from 1"):
        crash_everywhere(Forgetful, [1, 2, 3], events_per_epoch=number)


OPTIMISED = """
from objectspace.operators.events import EventOperator
from objectspace.testing import crash_everywhere

class Forgetful(EventOperator):
    count = 0

    def _next(self, value, source, at):
        self.count += 1
        return [self.count]

crash_everywhere(Forgetful, [1, 2, 3])
"""


def test_what_is_found_is_found_without_assert_statements_too() -> None:
    command = [sys.executable, "-O", "-c", OPTIMISED]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "AssertionError: epoch 1, disturbed after the commit: epoch 2 gave [1], and [2] undisturbed" in found.stderr


EACH = len(POINTS) + len(SURVIVED) + len(TWICE)
"""How often each epoch is disturbed around its checkpoint."""


def test_operators_of_the_change_log() -> None:
    top = GroupTopN(SCHEMA, ["k"], ["v"], 1)
    assert crash_everywhere(top, chunks(3), max_dirty_per_event=1, storage=False) == 3 * EACH
    sides = [(side, chunk) for chunk in chunks(2) for side in ("left", "right")]
    join = HashJoin(SCHEMA, SCHEMA, ["k"], ["k"], "full_outer")
    assert crash_everywhere(join, sides, events_per_epoch=2, storage=False) == 2 * EACH
    with pytest.raises(AssertionError, match=r"epoch 2 gave \[\('\+', \(1, 0\)\)\], and \[\('\+', \(2, 0\)\)\] undist"):
        crash_everywhere(Numbering, chunks(2))


def test_the_order_in_which_the_rows_of_an_epoch_come_out_is_no_difference() -> None:
    rows = [Chunk.from_rows(SCHEMA, [("+", (1, n)), ("+", (1, 10 - n))]) for n in range(2)]
    sides = [(side, chunk) for chunk in rows for side in ("left", "right")]
    join = HashJoin(SCHEMA, SCHEMA, ["k"], ["k"])
    assert crash_everywhere(join, sides, events_per_epoch=2, storage=False) == 2 * EACH


def test_what_fails_in_the_storage_only_is_found() -> None:
    assert crash_everywhere(Careless, [1, 2], storage=False) == 2 * EACH
    with pytest.raises(
        AssertionError,
        match=r"after epoch 1, disturbed by the failure of storage operation \d+, once: epoch 2 gave \[2\]",
    ):
        crash_everywhere(Careless, [1, 2])


def test_every_operation_of_the_storage_fails_also_while_it_is_opened_again() -> None:
    Plain.begun = Plain.opened = 0
    runs = crash_everywhere(Plain, [lambda op: op.add(1)])
    assert runs > EACH
    assert Plain.begun > Plain.opened > runs


def test_an_error_of_the_operator_is_no_failure_of_the_storage() -> None:
    def refuse(operator: Plain) -> list[int]:
        raise CheckpointError("the operator says no")

    before = Session.factory
    with pytest.raises(CheckpointError, match="the operator says no"):
        crash_everywhere(Plain, [refuse])
    assert Session.factory is before


def test_no_store_stays_open_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stores: list[CheckpointStore] = []

    class Noted(CheckpointStore):
        def __init__(self, *given: Any, **options: Any) -> None:
            stores.append(self)
            super().__init__(*given, **options)

    monkeypatch.setattr(runs, "CheckpointStore", Noted)
    monkeypatch.setattr(storage, "CheckpointStore", Noted)
    assert crash_everywhere(Plain, [lambda op: op.add(1)]) < len(stores)
    assert all(store._is_closed for store in stores)


def test_a_pipeline_takes_batches() -> None:
    pipeline = Pipeline()
    rows = pipeline.source("rows", {"k": "int64", "v": "int64"})
    rows.group_by("k").agg(n=count(), most=max_("v")).materialize("result")
    batches = [{"rows": [(1, 5), (2, 6)]}, {"rows": [(1, 7)]}]
    assert crash_everywhere(pipeline, batches[:1]) > EACH
    assert crash_everywhere(lambda: pipeline, batches, storage=False) == 2 * EACH
    with pytest.raises(AssertionError, match=r"event 1 dirtied 4 items, and may dirty 3: 'operator/rows.HashAgg/Hash"):
        crash_everywhere(pipeline, batches, max_dirty_per_event=3)


class Keeper:
    """Keeps values in a dictionary, and gives some back."""

    def __init__(self, make: Any = lambda value: value, out: Any = lambda value: []) -> None:
        self._made, self._out = make, out

    def open(self, space: Any, name: str) -> None:
        self._values = space.get_or_create_dictionary(name)

    def on_next(self, value: Any) -> list[Any]:
        self._values[len(self._values)] = self._made(value)
        return self._out(value)  # type: ignore[no-any-return]


@dataclass
class Holding:
    values: list[int]


@pytest.mark.parametrize(
    ("make", "events"),
    [
        (Keeper, [{8, 0}, {16, 0, 8}, {"a", "b", "c"}, frozenset({8, 0})]),
        (Keeper, [{"b": 1, "a": 2}, [1, {2}], bytearray(b"q"), (1, (2,))]),
        (lambda: Keeper(lambda value: value.append(9) or value), [[1], [2]]),
        (lambda: Keeper(lambda value: value[1].append(9), lambda value: [len(value[1])]), [("a", [1]), ("b", [2])]),
        (lambda: Keeper(lambda value: value.values.pop(), lambda value: [*value.values]), [Holding([1]), Holding([2])]),
        (lambda: Keeper(out=lambda value: [float("nan"), (float("nan"),), {"x": float("nan")}]), [1, 2]),
        (lambda: Keeper(out=lambda value: [numpy.arange(3)]), [1, 2]),
    ],
    ids=["sets", "others", "changed events", "changed in tuples", "changed in objects", "nan", "arrays"],
)
def test_no_operator_is_blamed_for_how_values_are_shown(make: Any, events: list[Any]) -> None:
    assert crash_everywhere(make, events, storage=False) == len(events) * EACH


class Hidden:
    """Counts in memory, and keeps the count in the midst of a large tensor."""

    def open(self, space: Any, name: str) -> None:
        self._tensor, self._count = space.get_or_create_tensor(name, (3_000,), "float64"), 0

    def on_next(self, value: Any) -> list[Any]:
        self._count += 1
        self._tensor[1_500] = float(self._count)
        return []


def test_what_is_wrong_in_the_midst_of_a_large_tensor_is_found() -> None:
    with pytest.raises(AssertionError, match="'operator' ends as"):
        crash_everywhere(Hidden, [1, 2, 3], storage=False)


class Processing:
    def process(self, batch: Any, space: Any) -> list[Any]:
        return []


def test_an_operator_of_your_own_is_given_in_a_pipeline() -> None:
    with pytest.raises(TypeError, match="an operator of your own, which runs in a pipeline"):
        crash_everywhere(Processing(), [1])


def test_nothing_may_come_out_as_none_and_events_may_come_from_a_generator() -> None:
    assert crash_everywhere(lambda: Keeper(out=lambda value: None), iter([1, 2]), storage=False) == 2 * EACH


PIPELINE = Pipeline()
PIPELINE.source("rows", {"k": "int64"}).sink("all")


@pytest.mark.parametrize(
    ("subject", "events", "said"),
    [
        (None, [1], "None is no operator: expected one with open"),
        (object, [1], "object object at .* is no operator: expected one with open"),
        (lambda: 5, [1], "5 is no operator"),
        (Processing, [1], "an operator of your own, which runs in a pipeline"),
        (lambda: Keeper(out=lambda value: 7), [1], "event 1: Keeper returned 7: expected a list of what comes out, or"),
        (Keeper, [lambda keeper: "text"], "event 1: the function returned 'text': expected a list"),
        (Plain, [1], "event 1: Plain takes no values: expected on_next"),
        (Keeper, 5, "events is 5: expected a list of events"),
        (PIPELINE, {"rows": [(1,)]}, "events is {.*: expected a list of events; one alone is a list of one"),
        (PIPELINE, [[(1,)]], r"event 1: PipelineOperator takes a batch, a mapping of .*: found \[\(1,\)\]"),
    ],
)
def test_what_is_no_operator_or_none_of_its_events_is_refused(subject: Any, events: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        crash_everywhere(subject, events, storage=False)


def test_an_operator_that_was_opened_is_refused() -> None:
    operator = Take(2)
    operator.open(VolatileObjectSpace(), "op")
    with pytest.raises(
        TypeError, match=r"Take is copied for each run, and cannot be .*: give one that was never opened"
    ):
        crash_everywhere(operator, [1], storage=False)
