"""Threads that read, one that writes, and one that keeps the store in order: none waits for ever or reads wrong."""

from __future__ import annotations

import faulthandler
import random
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from itertools import cycle
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace

COUNT = 2_000
PATIENCE_SECONDS = 120
"""How long until a thread that has not ended is taken for one that waits for ever."""

READS: dict[str, Callable[[Any, int], object]] = {
    "dictionary": lambda target, number: target[number],
    "list": lambda target, number: target[number],
    "queue": lambda target, number: number if target.peek() == 0 else None,
    "set": lambda target, number: number if number in target else None,
    "sorted_dictionary": lambda target, number: target.floor(number),
    "stack": lambda target, number: number if target.peek() == COUNT - 1 else None,
}
"""What gives a number back if the object of a kind has all numbers up to a count."""


@pytest.fixture
def space(tmp_path: Path) -> PersistedObjectSpace:
    """Return a space with objects that nobody changes, with little room, and others that are to be changed."""
    space = PersistedObjectSpace.open(tmp_path / "state.db", durability="normal")
    numbers = range(COUNT)
    space.create_dictionary("dictionary").update(zip(numbers, numbers, strict=True))
    space.create_sorted_dictionary("sorted_dictionary").update(zip(numbers, numbers, strict=True))
    space.create_set("set").update(numbers)
    space.create_list("list").extend(numbers)
    queue, stack = space.create_queue("queue"), space.create_stack("stack")
    for number in numbers:
        queue.enqueue(number)
        stack.push(number)
    space.create_dictionary("changed").update(dict.fromkeys(numbers, 0))
    owned = space.create_dictionary("owned", of=list)
    for number in range(50):
        owned[number] = [number]
    space.checkpoint()
    return PersistedObjectSpace(space.store, cache_slots=300)


def read(space: PersistedObjectSpace, seed: int, is_over: Event) -> int:
    """Read slots at random until all is over, and return how many."""
    numbers, count = random.Random(seed), 0
    while not is_over.is_set():
        kind, number = numbers.choice(list(READS)), numbers.randrange(COUNT)
        assert READS[kind](space.get(kind), number) == number, kind
        count += 1
    return count


def keep_in_order(store: CheckpointStore, is_over: Event) -> int:
    """Look after a store until all is over, and return how often."""
    works: list[Callable[[], object]] = [store.compact, store.verify, lambda: store.prune(keep=2), store.reopen]
    for count, work in enumerate(cycle(works)):
        if is_over.wait(0.01):  # Between two works others have their turn.
            return count
        work()
    raise AssertionError("a cycle ends never")


def write(space: PersistedObjectSpace, epochs: int) -> None:
    changed, owned = space.get_dictionary("changed"), space.get("owned")
    for epoch in range(epochs):
        changed.update(dict.fromkeys(range(epoch, COUNT, 7), epoch))
        owned[epoch % 50].append(epoch)  # type: ignore[index]
        space.checkpoint()


def started(work: Callable[[], object]) -> Future[object]:
    """Start some work in a thread that does not keep the process from ending."""
    result: Future[object] = Future()

    def _work() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    Thread(target=_work, daemon=True).start()
    return result


def test_threads_wait_for_each_other_but_not_for_ever(space: PersistedObjectSpace, at_scale: bool, apart: int) -> None:
    is_over, epochs = Event(), 2_000 if at_scale else 60 // apart
    others = [
        *(started(partial(read, space, seed, is_over)) for seed in range(2)),
        started(partial(keep_in_order, space.store, is_over)),
    ]
    writing = started(partial(write, space, epochs))
    is_written = bool(wait([writing], PATIENCE_SECONDS).done)
    is_over.set()
    if not is_written:
        faulthandler.dump_traceback()
    assert is_written, "the threads wait for each other"
    writing.result()
    assert all(count.result(PATIENCE_SECONDS) for count in others)
    space._check()
    again = PersistedObjectSpace(space.store)
    assert again.get("changed") == space.get("changed")
    assert [again.get("owned")[number] for number in range(50)] == [  # type: ignore[index]
        [number, *range(number, epochs, 50)] for number in range(50)
    ]
