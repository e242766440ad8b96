"""What one thread reads while another one saves is right at each step of both, or an iteration is refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, islice
from typing import Any

import pytest

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.objects import limits, scans
from tests.objects.kinds import PUTS
from tests.objects.stand_ins import done_at_step, read_at_each_step

STORED, COUNT = 4, 7

OPTIONS: dict[str, dict[str, Any]] = {
    "array": {"length": limits.DENSE_LENGTH + 8, "default": 0},
    "tensor": {"shape": COUNT, "chunks": 2},
}

REMOVALS: dict[str, Callable[[Any], Any]] = {
    "dictionary": lambda target: target.pop(1),
    "linked_list": lambda target: target.remove_first(),
    "list": lambda target: [target.__setitem__(place, place + 40) for place in range(COUNT)],
    "queue": lambda target: target.dequeue(),
    "set": lambda target: target.discard(1),
    "sorted_dictionary": lambda target: target.pop(1),
    "sorted_set": lambda target: target.discard(1),
    "sparse_array": lambda target: target.__delitem__(1),
    "stack": lambda target: target.pop(),
}

READS: dict[str, Callable[[Any], Any]] = {
    "forwards": lambda target: list(islice(target, 10)),
    "backwards": lambda target: list(reversed(target)),
    "length": len,
    "first": lambda target: target.peek(),
    "items": lambda target: list(target.items()),
    "together": lambda target: target.get_many(list(range(COUNT))),
    "equality": lambda target: target == {key: key % 6 for key in range(COUNT) if key != 1},
    "by index": lambda target: [target[place] for place in range(COUNT - 1)],
}

CASES: list[tuple[str, str]] = [
    (kind, read)
    for kind, reads in {
        "array": "by index, forwards, length",
        "dictionary": "backwards, equality, forwards, items, length, together",
        "linked_list": "backwards, forwards, length",
        "list": "backwards, by index, forwards, length",
        "queue": "backwards, first, forwards, length",
        "set": "backwards, forwards, length",
        "sorted_dictionary": "backwards, equality, forwards, items, length, together",
        "sorted_set": "backwards, forwards, length",
        "sparse_array": "backwards, by index, equality, forwards, length",
        "stack": "backwards, first, forwards, length",
        "tensor": "by index, forwards",
    }.items()
    for read in reads.split(", ")
]

STEPS = ["the save", "its acknowledgement", "the save after one that failed"]


MOVING: list[tuple[str, str, str]] = [
    (kind, read, step)
    for kind, steps in {"queue": STEPS[1:2], "set": STEPS[1:2], "sparse_array": STEPS[1:2], "stack": STEPS}.items()
    for step in steps
    for of, read in CASES
    if of == kind
]
"""Where a step moves elements in memory, or drops those that an iteration would go on with."""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 0)
    monkeypatch.setattr(limits, "PROMOTE_SHARE", 10**9)


def edited(kind: str) -> Any:
    """Return an object with elements that are stored, and others that came and went since."""
    space = PersistedObjectSpace(CheckpointStore(":memory:"), cache_slots=STORED)
    target = getattr(space, f"create_{kind}")("o", **OPTIONS.get(kind, {}))
    put_all(kind, target, range(STORED))
    space.checkpoint()
    if kind == "array":  # It is not in memory then, and what was set is laid over what is stored.
        target = PersistedObjectSpace(space.store, cache_slots=STORED).get("o")
    put_all(kind, target, range(STORED, COUNT))
    REMOVALS.get(kind, len)(target)
    return target


def put_all(kind: str, target: Any, numbers: range) -> None:
    for number in numbers:
        if hasattr(target, "__setitem__") and kind != "list":
            # The value of the last one is the default of an array, which needs no row.
            target[number] = number % 6
        else:
            PUTS[kind](target, number)


def at(space: Any, step: str) -> Callable[[], object]:
    """Go on up to a step, and return what does it."""
    writer = space.store.writer()
    if step == STEPS[0]:
        return lambda: space.save(writer)
    space.save(writer)
    if step == STEPS[1]:
        writer.commit()
        return lambda: space.on_saved()
    writer.rollback()
    following = space.store.writer()
    return lambda: space.save(following)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("kind", "read"), CASES)
def test_what_is_read_at_each_instruction_of_a_save_is_right(kind: str, read: str, step: str) -> None:
    target = edited(kind)
    expected = READS[read](edited(kind))
    found = read_at_each_step(target._home, at(target._home, step), lambda: READS[read](target))
    assert found == [expected]


@pytest.mark.parametrize(("kind", "read", "step"), MOVING)
def test_a_save_that_comes_at_an_instruction_of_what_reads_makes_it_wrong_nowhere(
    kind: str, read: str, step: str, at_scale: bool, apart: int
) -> None:
    expected = READS[read](edited(kind))
    for number in count(step=1 if at_scale else 3 * apart):
        target = edited(kind)
        has_come, found = done_at_step(
            target._home, number, at(target._home, step), lambda target=target: READS[read](target)
        )
        if not has_come:
            break
        assert found in (None, expected), f"after {number} instructions"
    assert number > 0


def test_a_scan_goes_on_in_the_places_that_it_has_begun_with_while_a_save_forgets_some() -> None:
    target = edited("array")
    places = scans.places_of(target._table)
    before = list(places)
    target._home.save(target._home.store.writer())
    assert list(places) == before
    assert list(islice(target, COUNT + 1)) == [*range(COUNT - 1), 0, 0]


def test_a_queue_that_is_not_read_yet_is_read_after_clean_slots_were_dropped() -> None:
    space = PersistedObjectSpace(edited("queue")._home.store, cache_slots=1)
    target = space.get("o")
    target._shrink(gently=False)
    assert list(target) == [*range(STORED)]


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("kind", ["dictionary", "set", "sorted_dictionary"])
def test_what_another_one_reads_or_drops_at_an_instruction_of_a_look_up_hides_nothing(
    kind: str, drops: bool, at_scale: bool, apart: int
) -> None:
    target = PersistedObjectSpace(edited(kind)._home.store).get("o")

    def read_all() -> None:
        target._load_whole()
        if drops:
            target._shrink(gently=False)

    for number in count(step=1 if at_scale else 3 * apart):
        assert -1 not in target
        target._shrink(gently=False)
        has_come, found = done_at_step(target._home, number, read_all, lambda: 2 in target)
        assert found, f"after {number} instructions"
        if not has_come:
            break
    assert number > 0
