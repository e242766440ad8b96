"""Ctrl-C in the middle of what an operator takes: no half of it is ever saved, and a rollback puts all right."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partialmethod
from itertools import count
from types import FrameType
from typing import Any

import pytest

from checkpoint import CheckpointStore
from objectspace import CheckpointProtocolError, PersistedObjectSpace
from objectspace.operators import Apply, Chain, EventOperator, Operator, Pipeline
from objectspace.operators import count as number_of
from objectspace.operators.events import Average, Buffer, CombineLatest, GroupBy, SelectMany, Take, Where, Window, Zip
from objectspace.operators.run import LocalRun, run_local
from objectspace.relational import Chunk, TableSchema
from tests.objects.interruptions import interrupted
from tests.operators.event_player import Player
from tests.operators.test_rollback import FIRST, LAST, OPERATORS, SCHEMA, Open

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Python drops what is raised while a generator is closed."""

Stored = list[tuple[Any, ...]]


def stored(store: CheckpointStore) -> Stored:
    """Return all that a store holds, as anybody who opens it finds it."""
    reader = store.reader()
    return sorted(
        (*entry, list(reader.items(object_id)), reader.metadata(object_id)) for object_id, *entry in reader.index()
    )


def checkpointed(space: PersistedObjectSpace) -> Stored:
    space.checkpoint()
    return stored(space.store)


def is_saved(space: PersistedObjectSpace) -> bool:
    """Save a space unless that is refused."""
    with suppress(CheckpointProtocolError):
        space.checkpoint()
        return True
    return False


class Halted:
    """An operator that has taken some rows, and more of an epoch that may be interrupted."""

    def __init__(self, name: str, call: str) -> None:
        self.it = Open(OPERATORS[name])
        self.it.give(FIRST)
        self.it.end(1)
        self.it.space.checkpoint(epoch=1)
        self.ends, self.chunk = call == "barrier", Chunk.from_rows(SCHEMA, [("+", row) for row in LAST])
        if self.ends:
            self.it.give(LAST)

    def call(self) -> object:
        operator = self.it.operator
        if self.ends:
            return operator.barrier(2)
        return operator.process(self.chunk, operator.sides[0])

    def again(self) -> Stored:
        """Go back, and do all of the epoch."""
        self.it.space.rollback()
        if self.ends:
            self.it.give(LAST)
        self.call()
        if not self.ends:
            self.it.end(2)
        return checkpointed(self.it.space)


@pytest.mark.parametrize("call", ["process", "barrier"])
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_that_is_interrupted_is_saved_before_or_after_or_not_at_all(
    name: str, call: str, at_scale: bool, apart: int
) -> None:
    before, after = Halted(name, call), Halted(name, call)
    after.call()
    whole = [stored(one.it.store) for one in (before, after) if is_saved(one.it.space)]
    refused, ended = 0, Halted(name, call).again()
    for line in count(0 if at_scale else 5, 13 if at_scale else 97 * apart if call == "process" else 97):
        it = Halted(name, call)
        if not interrupted(it.call, line):
            break
        if is_saved(it.it.space):
            assert stored(it.it.store) in whole
        else:
            refused += 1
            assert it.again() == ended
    assert refused > 0 or name in ("hops", "union")


EVENTS: dict[str, tuple[Callable[[], EventOperator], int]] = {
    "average": (Average, 1),
    "buffer": (lambda: Buffer(count=3, skip=2), 1),
    "chain": (lambda: Chain(Where(bool), Take(3), Average()), 1),
    "combine": (lambda: CombineLatest(2), 2),
    "groups": (lambda: GroupBy(lambda value: value % 2, lambda _: Buffer(count=2)), 1),
    "inner": (lambda: SelectMany(lambda value: Take(2)), 1),
    "take": (lambda: Take(3), 1),
    "window": (lambda: Window(2, lambda _: Average()), 1),
    "zip": (lambda: Zip(2), 2),
}


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_that_is_interrupted_is_saved_before_or_after_or_not_at_all(
    name: str, at_scale: bool, apart: int
) -> None:
    make, inputs = EVENTS[name]

    def played(events: int) -> Player:
        player = Player(make)
        for number in range(events):
            player.operator.on_next(number, number % inputs)
        player.space.checkpoint()
        return player

    for events in range(1, 6):
        player = played(events)
        whole = [stored(player.store)]
        player.operator.on_next(events, events % inputs)
        whole.append(checkpointed(player.space))
        for line in count(step=2 if at_scale else 11 * apart):
            player = played(events)
            if not interrupted(lambda: player.operator.on_next(events, events % inputs), line):  # noqa: B023
                break
            if is_saved(player.space):
                assert stored(player.store) in whole
            else:
                player.space.rollback()
                player.operator.open(player.space, "op")
                player.operator.on_next(events, events % inputs)
                assert checkpointed(player.space) == whole[1]
        assert line > 0


def counted() -> Pipeline:
    found = Pipeline()
    rows = found.source("rows", {"id": "int64", "k": "string"}, key=["id"])
    rows.group_by("k").agg(n=number_of()).materialize("counts")
    return found


def ends_an_epoch(frame: FrameType) -> bool:
    """Tell whether a run may be at the end of an epoch there."""
    return frame.f_code.co_name in ("_run_epoch", "let_save", "made_epoch", "end_epoch", "__exit__")


def test_of_two_runs_on_a_space_each_knows_of_an_epoch_whose_end_was_interrupted(apart: int) -> None:
    first, second, third = ({"rows": [(number, "a"), (9 - number, "b")]} for number in (1, 2, 3))
    expected = run_local(counted(), [first, second, third]).rows("counts")

    def stepped() -> tuple[LocalRun, LocalRun]:
        space = PersistedObjectSpace(CheckpointStore(":memory:"))
        one = run_local(counted(), [first], space)
        return one, run_local(counted(), [], space)

    for line in count(step=apart):
        one, other = stepped()
        if not interrupted(lambda: other.step(second), line, where=ends_an_epoch):  # noqa: B023
            break
        if one.position == 1:
            one.step(second)
        one.step(third)
        assert one.rows("counts") == other.rows("counts") == expected
        assert run_local(counted(), [], one.space.store).rows("counts") == expected
    assert line > 20


def depth(value: Any) -> int:
    return 1 + depth(value[0]) if value else 0


def test_a_value_too_deep_for_a_function_is_an_error_as_any_other() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    edits = space.create_list("edits")
    operator = Where(lambda value: depth(value) < 9)
    operator.open(space, "op")
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    for value in (5, deep):
        edits.append("an edit beside it")
        with pytest.raises((TypeError, RecursionError)):
            operator.on_next(value)
        assert space.checkpoint().slots == 1


class Unbound(Operator):
    """An operator whose ``process`` is no function of its own."""

    process = partialmethod(lambda self, taken, chunk, side="input": [taken], "taken")  # type: ignore[assignment]

    @property
    def schema(self) -> TableSchema:
        return SCHEMA

    @staticmethod
    def barrier(epoch: int) -> Any:
        return [epoch]


def test_methods_of_an_operator_may_be_any_that_a_class_can_have() -> None:
    operator = Unbound()
    operator.open(PersistedObjectSpace(CheckpointStore(":memory:")), "it")
    assert (operator.process("a chunk"), operator.barrier(7)) == (["taken"], [7])


def at_depth(room: int, work: Callable[[], object]) -> object:
    """Do some work with room for only so many more calls."""
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1

    def down(more: int) -> object:
        return work() if more <= 0 else down(more - 1)

    return down(sys.getrecursionlimit() - depth - room)


@pytest.mark.parametrize("name", ["sums", "extremes", "windows", "dedup", "outer join", "pipeline"])
def test_an_operator_for_which_the_stack_was_too_full_is_saved_before_or_after_or_not_at_all(
    name: str, apart: int
) -> None:
    after, ended = Halted(name, "barrier"), Halted(name, "barrier").again()
    outcomes = [[*map(Chunk.rows, after.it.operator.barrier(2))]]
    refused = 0
    for room in range(5, 60, apart):
        it = Halted(name, "barrier")
        try:
            at_depth(room, it.call)
        except RecursionError:
            out = [*map(Chunk.rows, it.it.operator.barrier(2))]
            if is_saved(it.it.space):
                assert (out, stored(it.it.store)) == (outcomes[0], ended)
            else:
                refused += 1
                assert it.again() == ended
    assert refused > 0


def test_a_save_that_code_of_a_user_asks_for_amid_a_barrier_is_refused() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))

    class Saves:
        def process(self, batch: Any, part: Any) -> Any:
            part.get_or_create_list("seen").append(len(batch))
            with pytest.raises(CheckpointProtocolError, match="still under way"):
                space.checkpoint()
            return batch.to_pylist()

        def __deepcopy__(self, _: object) -> Saves:
            return self

    operator = Apply(SCHEMA, Saves(), "own", SCHEMA, ["id"])
    operator.open(space, "own")
    operator.process(Chunk.from_rows(SCHEMA, [("+", row) for row in FIRST]))
    assert sum(map(len, operator.barrier(1))) == len(FIRST)
    assert space.checkpoint(epoch=1).slots > len(FIRST)
