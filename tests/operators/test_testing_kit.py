"""The kit for operators of one's own finds what is broken, and says what."""

from __future__ import annotations

from typing import Any

import pytest

from objectspace import PersistedObjectSpace
from objectspace.operators import GroupTopN, HashJoin
from objectspace.operators.events import EventOperator
from objectspace.relational import Chunk, Column, TableSchema
from objectspace.testing import POINTS, SURVIVED, crash_everywhere

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


class Plain:
    """No operator of any kind: functions of it are its events."""

    def open(self, space: PersistedObjectSpace, name: str) -> None:
        self.total = space.get_or_create_value(name, 0)

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


def test_operators_of_the_change_log_and_anything_else() -> None:
    each = len(POINTS) + len(SURVIVED)
    assert crash_everywhere(lambda: GroupTopN(SCHEMA, ["k"], ["v"], 1), chunks(3), max_dirty_per_event=1) == 3 * each
    sides = [(side, chunk) for chunk in chunks(2) for side in ("left", "right")]
    join = crash_everywhere(lambda: HashJoin(SCHEMA, SCHEMA, ["k"], ["k"], "full_outer"), sides, events_per_epoch=2)
    assert join == 2 * each
    assert crash_everywhere(Plain, [lambda op: op.add(1), lambda op: op.add(2)]) == 2 * each
