"""An edit that is interrupted at any line is saved as it is in memory, or refused until the space goes back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from types import FrameType
from typing import Any

import pytest

from checkpoint import CheckpointStore
from objectspace import CheckpointProtocolError, PersistedObjectSpace
from objectspace.objects import limits
from tests.objects.interruptions import interrupted
from tests.objects.samples import shape
from tests.tally import TALLY

COUNT = 60
"""How many slots an object has: more than are cleared one by one."""

FEW_SLOTS = 40
STEP = 151
"""An interruption comes at each so many-th line; at each one where the faults are asked for at full scale."""

Edit = Callable[[Any], object]


def each(edit: Callable[[Any, int], object], count: int) -> Edit:
    """Return an edit that does another one with each number."""
    return lambda target: [edit(target, number) for number in range(count)]


def in_turn(*edits: Edit) -> Edit:
    """Return an edit that does some others one after the other."""
    return lambda target: [edit(target) for edit in edits]


FILL: dict[str, Edit] = {
    "dictionary": lambda d: d.update({key: key for key in range(COUNT)}),
    "sorted_dictionary": lambda d: d.update({key: key for key in range(COUNT)}),
    "raw": lambda d: d.update({b"%03d" % key: str(key) for key in range(COUNT)}),
    "set": lambda s: s.update(range(COUNT)),
    "sorted_set": lambda s: s.update(range(COUNT)),
    "list": lambda numbers: numbers.extend(range(COUNT)),
    "queue": each(lambda q, number: q.enqueue(number), COUNT),
    "stack": each(lambda s, number: s.push(number), COUNT),
    "linked_list": each(lambda chain, number: chain.add_last(number), COUNT),
    "array": lambda a: a.__setitem__(slice(COUNT), range(COUNT)),
    "sparse_array": lambda a: a.__setitem__(slice(0, COUNT), range(COUNT)),
    "value": lambda v: setattr(v, "value", list(range(COUNT))),
    "tensor": lambda t: t.__setitem__(..., COUNT),
    "lists": each(lambda d, number: d.setdefault(number).append(number), 9),
}
"""What is in an object of each kind before."""

CHANGE: dict[str, Edit] = {
    "dictionary": in_turn(lambda d: d.__setitem__(50, 0), lambda d: d.pop(51), lambda d: d.__setitem__(700, 0)),
    "sorted_dictionary": in_turn(lambda d: d.__setitem__(50, 0), lambda d: d.pop(51), lambda d: d.__setitem__(-7, 0)),
    "raw": in_turn(lambda d: d.__setitem__(b"050", ""), lambda d: d.pop(b"051"), lambda d: d.__setitem__(b"7", "")),
    "set": in_turn(lambda s: s.discard(51), lambda s: s.add(700)),
    "sorted_set": in_turn(lambda s: s.discard(51), lambda s: s.add(-7)),
    "list": in_turn(lambda numbers: numbers.insert(30, "new"), lambda numbers: numbers.append(0)),
    "queue": in_turn(lambda q: q.dequeue(), lambda q: q.enqueue(0)),
    "stack": in_turn(lambda s: s.pop(), lambda s: s.push(0)),
    "linked_list": in_turn(lambda chain: chain.remove_last(), lambda chain: chain.add_first(0)),
    "array": lambda a: a.__setitem__(50, 0),
    "sparse_array": lambda a: a.__setitem__(700, 0),
    "value": lambda v: setattr(v, "value", 0),
    "tensor": lambda t: t.__setitem__((9, slice(None)), 0),
    "lists": lambda d: d[8].append(0),
}
"""What makes an object of each kind dirty."""

OF_DICTIONARIES: list[Edit] = [
    in_turn(lambda d: d.__setitem__(5, -1), lambda d: d.__setitem__(500, 1), lambda d: d.pop(7), lambda d: d.popitem()),
    in_turn(lambda d: d.update({1: -1, 600: 2}), lambda d: d.update({key: -key for key in range(20, 90)})),
    in_turn(each(lambda d, key: d.__setitem__(key, key + 1), 45), lambda d: d.pop(3), lambda d: d.setdefault(900, 1)),
    in_turn(lambda d: d.pop(9), lambda d: d.__setitem__(9, 9), lambda d: d.__setitem__(901, 1), lambda d: d.pop(901)),
    in_turn(lambda d: d.update({5: 6, 800: 7}), lambda d: d.discard_many([*range(3, 20), 50, 700, 800, 5])),
    lambda d: d.clear(),
    in_turn(each(lambda d, _: d.popitem(), 5), lambda d: d.__setitem__(9, 1), lambda d: d.popitem()),
]
OF_SETS: list[Edit] = [
    in_turn(lambda s: s.add(500), lambda s: s.discard(5), lambda s: s.pop(), lambda s: s.update(range(50, 70))),
    in_turn(each(lambda s, element: s.add(element + 30), 60), lambda s: s.discard(65), lambda s: s.add(65)),
    in_turn(lambda s: s.__ixor__(set(range(50, 70))), lambda s: s.__isub__(set(range(5)))),
    lambda s: s.clear(),
    in_turn(each(lambda s, _: s.pop(), 20), lambda s: s.discard(25), lambda s: s.pop(), lambda s: s.add(25)),
]
EDITS: dict[str, list[Edit]] = {
    "dictionary": OF_DICTIONARIES,
    "sorted_dictionary": OF_DICTIONARIES,
    "raw": [
        in_turn(lambda d: d.__setitem__(b"005", "x"), lambda d: d.__setitem__(b"9", "x"), lambda d: d.pop(b"006")),
        lambda d: d.update({b"%03d" % key: "y" for key in range(50, 70)}),
        in_turn(lambda d: d.update({b"005": "z", b"9": "z"}), lambda d: d.discard_many([b"005", b"9", b"007", b"x"])),
    ],
    "set": OF_SETS,
    "sorted_set": OF_SETS,
    "list": [
        in_turn(lambda n: n.append(1), lambda n: n.insert(3, 4), lambda n: n.pop(), lambda n: n.pop(3)),
        in_turn(lambda n: n.append(1), lambda n: n.__delitem__(slice(20, 40)), lambda n: n.remove(11)),
        in_turn(lambda n: n.append(1), lambda n: n.__delitem__(slice(None, 30, 3)), lambda n: n.insert(4, 5)),
        lambda n: n.__delitem__(slice(None, None, -2)),
        in_turn(lambda n: n.__setitem__(slice(10, 12), "abc"), lambda n: n.reverse()),
        each(lambda n, place: n.__setitem__(place, "x"), 40),
        lambda n: n.clear(),
    ],
    "queue": [
        each(lambda q, _: q.enqueue(q.dequeue()), 2 * COUNT + 10),
        each(lambda q, _: q.dequeue(), COUNT),
        lambda q: q.clear(),
    ],
    "stack": [
        each(lambda s, number: (s.pop(), s.pop(), s.push(number)), 20),
        each(lambda s, _: s.pop(), COUNT),
        lambda s: s.clear(),
    ],
    "linked_list": [
        in_turn(lambda c: c.add_first(-1), lambda c: c.remove(30), lambda c: c.remove_first()),
        in_turn(lambda c: c.move_after(c.first, c.last), lambda c: c.move_before(c.last, c.find(5))),
        each(lambda c, number: c.add_after(c.first, number), 70),
        lambda c: c.clear(),
    ],
    "array": [in_turn(lambda a: a.__setitem__(3, -1), lambda a: a.fill(7))],
    "sparse_array": [
        in_turn(lambda a: a.__setitem__(slice(55, 65), [0] * 10), lambda a: a.__delitem__(slice(4, 30))),
        lambda a: a.clear(),
    ],
    "value": [each(lambda v, number: setattr(v, "value", [number, {"a": number}]), 20)],
    "tensor": [
        in_turn(lambda t: t.__setitem__((3, 4), -1.0), lambda t: t.__setitem__((slice(2, 8), slice(3, 9)), 7.0)),
        lambda t: t.__setitem__(t[...] > 5, 1.0),
    ],
    "lists": [
        in_turn(
            lambda d: d[3].append(9),
            lambda d: d.setdefault(77).append(9),
            lambda d: d.pop(2),
            lambda d: d.__delitem__(4),
            lambda d: d.popitem(),
        ),
        lambda d: d.clear(),
    ],
}
"""Edits of an object of each kind."""


def created(space: PersistedObjectSpace, kind: str) -> Any:
    """Return a new object of a kind, filled."""
    makers: dict[str, Callable[[], Any]] = {
        "raw": lambda: space.create_sorted_dictionary("t", raw=True),
        "array": lambda: space.create_array("t", COUNT),
        "tensor": lambda: space.create_tensor("t", (10, 10), "float64", chunks=(4, 4)),
        "lists": lambda: space.create_dictionary("t", of=list),
    }
    target = makers[kind]() if kind in makers else getattr(space, f"create_{kind}")("t")
    FILL[kind](target)
    return target


def prepared(kind: str, before: str) -> PersistedObjectSpace:
    """Return a space whose object was just saved, is dirty besides, not read yet, or too large for the memory."""
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    target = created(space, kind)
    if before != "fresh":
        space.checkpoint()
    if before == "dirty":
        CHANGE[kind](target)
    if before in ("unread", "paged"):
        return PersistedObjectSpace(space.store, cache_slots=FEW_SLOTS if before == "paged" else COUNT * COUNT)
    return space


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("before", ["saved", "dirty", "fresh", "unread", "paged"])
@pytest.mark.parametrize("kind", EDITS)
def test_an_interrupted_edit_is_saved_as_it_is_in_memory_or_refused(
    kind: str, before: str, at_scale: bool, apart: int
) -> None:
    step, tried = 1 if at_scale else STEP * apart, 0
    for number, edit in enumerate(EDITS[kind], 1):
        lines, came = 7 * number % step, True
        while came:
            space = prepared(kind, before)
            target = space.get("t")
            came = interrupted(partial(edit, target), lines)
            if is_saved(space):
                assert shape(target.copy()) == shape(PersistedObjectSpace(space.store).get("t").copy())
            else:
                assert came, "a save was refused although nothing was interrupted"
                space.rollback()
            space._check()
            assert space.checkpoint().slots == 0
            lines += step
            tried += 1
    TALLY["edits interrupted"] += tried
    assert tried > len(EDITS[kind])


@pytest.mark.parametrize("kind", ["queue", "stack", pytest.param("linked_list", marks=pytest.mark.slow)])
def test_nothing_is_called_damaged_after_an_interrupted_edit(kind: str, at_scale: bool, apart: int) -> None:
    refused = 0
    for edit in EDITS[kind][1:]:
        for lines in count(step=1 if at_scale else 5 * apart):
            target = prepared(kind, "unread").get("t")
            came = interrupted(partial(edit, target), lines)
            refused += not is_done(target.copy)
            if not came:
                break
    assert refused > 0


def test_an_element_whose_adding_was_interrupted_is_added_again_once_all_are_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 0)
    lines, came, saved = 0, True, 0
    while came:
        space = prepared("set", "unread")
        target = space.get("t")
        came = interrupted(partial(target.add, 700), lines)
        lines += 1
        if is_saved(space):
            space._check()
            assert list(reversed(target))[-1] == 0
            target.add(700)
            space.checkpoint()
            space._check()
            assert list(PersistedObjectSpace(space.store).get("t")) == [*range(COUNT), 700], f"after {lines} lines"
            saved += 1
    assert 0 < saved < lines


@pytest.mark.parametrize("before", ["saved", "fresh"])
def test_a_set_gives_the_first_of_its_elements_after_an_interruption(before: str) -> None:
    lines, came = 0, True
    while came:
        target = prepared("set", before).get("t")
        target.pop()
        edit = in_turn(lambda s: s.discard(5), lambda s: s.add(5), lambda s: s.pop(), lambda s: s.discard(2))
        came = interrupted(partial(edit, target), lines)
        expected = list(target)
        assert [target.pop() for _ in expected] == expected, f"after {lines} lines"
        lines += 1


@pytest.mark.parametrize("following", [lambda numbers: None, lambda numbers: numbers.pop(2)])
def test_a_list_is_edited_and_saved_after_an_interruption_of_its_look_at_what_changed(following: Edit) -> None:
    lines, came = 0, True
    while came:
        space = PersistedObjectSpace(CheckpointStore(":memory:"))
        numbers = space.create_list("l")
        numbers.extend(range(8))
        space.checkpoint()
        in_turn(each(lambda n, place: n.__setitem__(place, "x"), 8), lambda n: n.extend("abcd"))(numbers)
        came = interrupted(partial(numbers.insert, 3, "new"), lines)
        numbers[-1] = "last"
        following(numbers)
        space.checkpoint()
        space._check()
        assert PersistedObjectSpace(space.store).get_list("l") == numbers, f"after {lines} lines"
        lines += 1


def test_of_places_apart_all_are_removed_from_a_list_or_none_is() -> None:
    lines, came, left = 0, True, set()
    while came:
        space = prepared("list", "saved")
        numbers = space.get_list("t")
        came = interrupted(partial(numbers.__delitem__, slice(None, None, 2)), lines)
        assert list(numbers) in ([*range(COUNT)], [*range(1, COUNT, 2)]), f"after {lines} lines"
        space.checkpoint()
        space._check()
        assert PersistedObjectSpace(space.store).get_list("t") == numbers, f"after {lines} lines"
        left.add(len(numbers))
        lines += 1
    assert left == {COUNT, COUNT // 2}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind == "lists")) for kind in EDITS])
def test_an_object_whose_reading_was_interrupted_is_read_anew_even_if_giving_it_up_was_interrupted_too(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, came = 0, True
    while came:
        space = prepared(kind, "unread")
        target, expected = space.get("t"), shape(PersistedObjectSpace(space.store).get("t").copy())
        with monkeypatch.context() as patched:
            patched.setattr(PersistedObjectSpace, "account", interrupt)
            came = interrupted(target.copy, lines, where=is_giving_up)
        assert shape(target.copy()) == expected, f"after {lines} lines"
        space._check()
        assert space.checkpoint().slots == 0
        lines += 1
    assert lines > 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("touch", [len, lambda numbers: numbers.append(1), lambda numbers: numbers.extend([1, 2])])
def test_a_list_whose_reading_was_given_up_is_read_anew_even_if_it_is_touched_at_its_end(
    touch: Callable[[list[int]], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, came = 0, True
    while came:
        space = prepared("list", "unread")
        target, expected = space.get_list("t"), [*range(COUNT)]
        with monkeypatch.context() as patched:
            patched.setattr(PersistedObjectSpace, "account", interrupt)
            came = interrupted(target.copy, lines, where=is_giving_up)
        assert touch(target) == touch(expected)  # type: ignore[arg-type]
        space.checkpoint()
        space._check()
        assert PersistedObjectSpace(space.store).get_list("t") == target == expected, f"after {lines} lines"
        lines += 1
    assert lines > 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_append_that_was_kept_counts_after_a_rollback_however_often_reading_was_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines, came = 0, True
    while came:
        space = prepared("list", "dirty")
        target = space.get_list("t")
        append = target.append
        space.rollback()
        with monkeypatch.context() as patched:
            patched.setattr(PersistedObjectSpace, "account", interrupt)
            came = interrupted(target.copy, lines, where=is_giving_up)
        space.rollback()
        append("kept")
        space.checkpoint()
        assert PersistedObjectSpace(space.store).get_list("t") == [*range(COUNT), "kept"], f"after {lines} lines"
        lines += 1
    assert lines > 1


def interrupt(*_: object) -> None:
    """Do what Ctrl-C does."""
    raise KeyboardInterrupt


def is_giving_up(frame: FrameType | None) -> bool:
    """Tell whether a reading is being given up."""
    while frame is not None and frame.f_code.co_name != "_go_cold":
        frame = frame.f_back
    return frame is not None


def is_saved(space: PersistedObjectSpace) -> bool:
    """Try a checkpoint; tell whether it was taken, and not refused for an interruption."""
    return is_done(space.checkpoint)


def is_done(work: Callable[[], object]) -> bool:
    """Try some work; tell whether it was done, and not refused for an interruption."""
    try:
        work()
    except CheckpointProtocolError as refusal:
        if "interrupted partway" not in str(refusal):
            raise
        return False
    return True
