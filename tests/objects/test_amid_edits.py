"""What a signal handler, or a method of a key, asks of a space in the middle of an edit is refused, or changes nothing.

A signal handler runs where a function is called, among other places.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from types import FrameType
from typing import Any, ClassVar

import pytest

from checkpoint import CheckpointStore
from objectspace import CheckpointProtocolError, PersistedObjectSpace, VolatileObjectSpace, register_dataclass
from tests.objects.interruptions import LIBRARY
from tests.objects.samples import shape
from tests.objects.test_interrupted_edits import CHANGE, EDITS, created, prepared
from tests.tally import TALLY

STEP = 997
"""A signal comes at each so many-th call; at each one where the faults are asked for at full scale."""

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Python drops what is raised while a generator is closed."""

PREPARED = ("saved", "dirty", "fresh", "unread", "paged")
"""How an object stands before it is edited."""

ASKED: tuple[Callable[[PersistedObjectSpace], object], ...]
ASKED = (PersistedObjectSpace.checkpoint, PersistedObjectSpace.rollback)
"""What a handler asks of a space."""

REFUSED = "was asked for in the middle of an edit, by a signal handler"


def signalled(work: Callable[[], object], calls: int, handler: Callable[[], object]) -> bool:
    """Do some work with a signal at a call of a function of the library; tell whether it came to that."""
    came = False

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls, came
        if event == "call" and frame.f_globals.get("__name__", "").startswith(LIBRARY):
            calls -= 1
            if calls < 0:
                sys.setprofile(None)
                came = True
                handler()

    sys.setprofile(profile)
    try:
        # A refusal, an iteration that found that it was saved, or one that misses what a rollback has taken.
        with suppress(RuntimeError, LookupError, TypeError, ValueError):
            work()
    finally:
        sys.setprofile(None)
    return came


def is_taken(space: PersistedObjectSpace) -> bool:
    """Try a checkpoint; tell whether it was taken, and not refused because an edit may be cut in two."""
    try:
        space.checkpoint()
    except CheckpointProtocolError:
        return False
    return True


@pytest.mark.parametrize("kind", EDITS)
def test_an_edit_in_whose_midst_a_signal_handler_saves_or_goes_back_is_whole_or_refused(
    kind: str, at_scale: bool, apart: int
) -> None:
    step, tried, refused = 1 if at_scale else STEP * apart, 0, 0
    for before, (number, edit), ask in product(PREPARED, enumerate(EDITS[kind], 1), ASKED):
        calls, came = 7 * number % step, True
        while came:
            space = prepared(kind, before)
            came = signalled(partial(edit, space.get("t")), calls, partial(ask, space))
            if not is_taken(space):
                assert came, "a save was refused although nothing came in between"
                space.rollback()
                refused += 1
            if "t" in space:
                assert shape(space.get("t").copy()) == shape(PersistedObjectSpace(space.store).get("t").copy())
            space._check()
            assert space.checkpoint().slots == 0
            space.store.verify()
            calls += step
            tried += 1
    TALLY["edits with something in their midst"] += tried
    assert refused < tried > len(EDITS[kind])


def test_a_rollback_while_slots_are_read_together_is_refused_or_they_are_read_anew() -> None:
    calls, came, expected = 0, True, prepared("tensor", "saved").get("t").copy()
    while came:
        space = prepared("tensor", "saved")
        found: list[Any] = []
        came = signalled(lambda: found.append(space.get("t")[...]), calls, space.rollback)  # noqa: B023
        assert all(shape(one) == shape(expected) for one in found)
        space._check()
        calls += 1
    assert calls > 50


@pytest.mark.parametrize("name", ["create", "delete", "rename"])
def test_a_checkpoint_while_the_names_of_a_space_change_is_refused(name: str) -> None:
    edits: dict[str, Callable[[PersistedObjectSpace], object]] = {
        "create": lambda space: space.create_list("new"),
        "delete": lambda space: space.delete("t"),
        "rename": lambda space: space.rename("t", "new"),
    }
    calls, came, refused = 0, True, 0
    while came:
        space = prepared("list", "saved")
        came = signalled(partial(edits[name], space), calls, space.checkpoint)
        if not is_taken(space):
            space.rollback()
            refused += 1
        space._check()
        space.store.verify()
        assert list(PersistedObjectSpace(space.store)) == list(space), f"after {calls} calls"
        calls += 1
    assert 0 < refused < calls


def test_a_checkpoint_of_another_space_in_the_middle_of_an_edit_is_taken() -> None:
    space, other, calls, came = prepared("list", "saved"), prepared("dictionary", "saved"), 0, True
    while came:
        other.get("t")[1] = calls
        came = signalled(lambda: space.get("t").insert(3, "new"), calls, other.checkpoint)
        assert is_taken(other)
        assert is_taken(space)
        calls += 1
    assert space.get("t") == PersistedObjectSpace(space.store).get("t")
    assert other.get("t") == PersistedObjectSpace(other.store).get("t")


@pytest.mark.parametrize("kind", EDITS)
def test_edits_of_a_volatile_space_have_no_midst(kind: str) -> None:
    volatile, space = VolatileObjectSpace(), prepared(kind, "fresh")
    target = created(volatile, kind)  # type: ignore[arg-type]
    signalled(partial(CHANGE[kind], target), 1, volatile.checkpoint)
    CHANGE[kind](space.get("t"))
    assert shape(target.copy()) == shape(space.get("t").copy())


def test_a_refusal_in_the_middle_of_an_edit_says_what_is_edited_and_what_to_do() -> None:
    space, refusals = prepared("dictionary", "saved"), []

    def ask() -> None:
        try:
            space.checkpoint()
        except CheckpointProtocolError as refusal:
            refusals.append(str(refusal))

    signalled(partial(space.get("t").pop, 5), 5, ask)
    with pytest.raises(CheckpointProtocolError, match=r"go back to the last checkpoint with rollback\(\)"):
        space.checkpoint()
    assert refusals[0].startswith(f"Dictionary 't': a checkpoint {REFUSED}")
    space.rollback()
    assert space.get("t")[5] == 5


@register_dataclass
@dataclass(frozen=True)
class Asking:
    """A key that asks something when its hash is asked for the next time but so many."""

    number: int
    ask: ClassVar[Callable[[], object]]
    left: ClassVar[int] = -1

    def __hash__(self) -> int:
        Asking.left -= 1
        if Asking.left == 0:
            Asking.ask()
        return hash(self.number)


KEYED: list[tuple[str, Callable[[Any], object]]] = [
    ("dictionary", lambda d: d.pop(Asking(5))),
    ("dictionary", lambda d: d.__setitem__(Asking(5), -5)),
    ("dictionary", lambda d: d.__setitem__(Asking(55), -5)),
    ("dictionary", lambda d: d.__delitem__(Asking(5))),
    ("dictionary", lambda d: d.update({Asking(5): -5})),
    ("dictionary", lambda d: d.discard_many([Asking(5)])),
    ("set", lambda s: s.discard(Asking(5))),
    ("set", lambda s: s.add(Asking(55))),
    ("set", lambda s: s.update([Asking(55)])),
]


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize(("kind", "edit"), KEYED)
def test_a_checkpoint_that_the_hash_of_a_key_takes_is_refused(
    kind: str, edit: Callable[[Any], object], is_open: bool
) -> None:
    for number in range(1, 9):
        space = PersistedObjectSpace(CheckpointStore(":memory:"))
        target: Any = getattr(space, f"create_{kind}")("t")
        target.update({Asking(key): key for key in range(20)})
        space.checkpoint()
        if is_open:
            target.update({Asking(key): 0 for key in range(1, 30)})
        Asking.ask, Asking.left = space.checkpoint, number
        with suppress(CheckpointProtocolError):
            edit(target)
        has_asked, Asking.left = Asking.left <= 0, -1
        assert is_taken(space) != has_asked
        space.rollback()
        assert shape(target.copy()) == shape(PersistedObjectSpace(space.store).get("t").copy())


@pytest.mark.parametrize("before", ["saved", "dirty", "unread"])
def test_values_of_a_slice_that_save_while_they_are_read_are_put_in(before: str) -> None:
    space = prepared("list", before)
    target = space.get("t")
    expected = list(target)
    expected[3:6] = [0, 1]

    def values() -> Iterator[int]:
        for number in range(2):
            space.checkpoint()
            yield number

    target[3:6] = values()
    space.checkpoint()
    assert list(PersistedObjectSpace(space.store).get("t")) == list(target) == expected


@pytest.mark.parametrize("kind", ["dictionary", "list", "sorted_set"])
def test_a_checkpoint_while_slots_are_read_is_taken_or_refused_and_nothing_has_to_go_back(
    kind: str, at_scale: bool, apart: int
) -> None:
    store, calls, came, refused = prepared(kind, "saved").store, 0, True, 0
    while came:
        space = PersistedObjectSpace(store)
        other = space.get_or_create_value("v")
        other.value = calls
        refusals: list[CheckpointProtocolError] = []

        def ask(space: PersistedObjectSpace = space, refusals: list[CheckpointProtocolError] = refusals) -> None:
            try:
                space.checkpoint()
            except CheckpointProtocolError as refusal:
                refusals.append(refusal)

        came = signalled(space.get("t").copy, calls, ask)
        refused += len(refusals)
        assert is_taken(space)
        assert shape(space.get("t").copy()) == shape(PersistedObjectSpace(store).get("t").copy())
        calls += 1 if at_scale else 23
    assert 0 < refused < calls
