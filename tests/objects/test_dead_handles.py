"""A handle that outlives its object or its space refuses all work, and shows what it was and why."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from objectspace import (
    CheckpointProtocolError,
    ObjectNotFoundError,
    PersistedObjectSpace,
    VolatileObjectSpace,
)
from tests.objects.kinds import PUTS, create, every_kind


@every_kind
def test_nothing_works_after_close(space: PersistedObjectSpace, kind: str) -> None:
    handle = create(space, kind, "t")
    space.close()
    space.close()
    for use in (lambda: PUTS[kind](handle, 1), lambda: space.get("t"), space.checkpoint, space.rollback):
        with pytest.raises(CheckpointProtocolError, match="closed"):
            use()


@every_kind
@pytest.mark.parametrize("stored", [False, True])
def test_the_handle_of_a_deleted_object_refuses_work(space: PersistedObjectSpace, kind: str, stored: bool) -> None:
    handle = create(space, kind, "t")
    if stored:
        space.checkpoint()
    space.delete("t")
    with pytest.raises(ObjectNotFoundError, match="deleted"):
        PUTS[kind](handle, 1)
    again = create(space, kind, "t")
    with pytest.raises(ObjectNotFoundError, match="deleted"):
        PUTS[kind](handle, 1)
    PUTS[kind](again, 1)
    space.checkpoint()
    with pytest.raises(ObjectNotFoundError, match="deleted"):
        PUTS[kind](handle, 1)
    assert space.get("t") is again


def test_the_nodes_of_a_deleted_list_refuse_work(space: PersistedObjectSpace) -> None:
    node = space.create_linked_list("l").add_last(1)
    space.checkpoint()
    space.delete("l")
    with pytest.raises(ObjectNotFoundError):
        node.value = 2
    assert space.checkpoint().slots == 0


ENDINGS: dict[str, tuple[Callable[[PersistedObjectSpace, str], None], type[Exception], str]] = {
    "deleted": (lambda space, name: space.delete(name), ObjectNotFoundError, "deleted"),
    "closed": (lambda space, name: space.close(), CheckpointProtocolError, "its space is closed"),
    "taken back": (lambda space, name: space.rollback(), ObjectNotFoundError, "rolled back, or deleted"),
}
"""How the handles of an object come to refuse all work: by what, with which error, and what they show of it."""

every_ending = pytest.mark.parametrize("ending", sorted(ENDINGS))


@every_ending
def test_the_nodes_of_a_list_that_refuses_work_tell_no_place_and_go_into_no_other_list(
    space: PersistedObjectSpace, ending: str
) -> None:
    end, error, _ = ENDINGS[ending]
    other = VolatileObjectSpace().create_linked_list("other")
    numbers = space.create_linked_list("l")
    first, last, free = numbers.add_last(1), numbers.add_last(2), numbers.add_last(3)
    numbers.remove_node(free)
    end(space, "l")
    for use in (
        *(partial(getattr, node, link) for node in (first, last) for link in ("value", "next", "previous", "list")),
        lambda: other.add_last(first),
    ):
        with pytest.raises(error, match=r"LinkedList 'l'"):
            use()
    assert (free.value, free.next, free.previous, free.list) == (3, None, None, None)
    assert list(other) == []


@every_kind
@every_ending
def test_a_handle_that_refuses_work_shows_what_it_was_and_why(
    space: PersistedObjectSpace, kind: str, ending: str
) -> None:
    end, _, shown = ENDINGS[ending]
    handle, public = create(space, kind, "t"), kind.title().replace("_", "")
    end(space, "t")
    assert (repr(handle), str(handle), f"{handle}") == (f"<{public} 't' [{shown}]>",) * 3


@every_ending
def test_what_belongs_to_a_handle_that_refuses_work_shows_that(space: PersistedObjectSpace, ending: str) -> None:
    end, _, shown = ENDINGS[ending]
    owner = space.create_dictionary("t", of="sorted_set")
    member = owner.setdefault("a")
    view, items = member.view_between(0, 9), owner.items()
    end(space, "t")
    dead, of = f"""<SortedSet "t['a']" [{shown}]>""", f"<Dictionary 't' [{shown}]>"
    assert [*map(repr, (owner, items, member, view))] == [of, f"ItemsView({of})", dead, f"<SortedSetView of {dead}>"]


@every_ending
def test_nodes_and_views_of_a_handle_that_refuses_work_show_that(space: PersistedObjectSpace, ending: str) -> None:
    end, _, shown = ENDINGS[ending]
    node = space.create_linked_list("t").add_last(1)
    end(space, "t")
    assert repr(node) == f"<Node of <LinkedList 't' [{shown}]>>"
    again = PersistedObjectSpace(space.store)
    views = [again.create_sorted_dictionary("t").items(), again.create_dictionary("d").keys()]
    for name in "td":
        end(again, name)
    assert [*map(repr, views)] == [
        f"<StreamedItems of <SortedDictionary 't' [{shown}]>>",
        f"<StreamedKeys of <Dictionary 'd' [{shown}]>>",
    ]


def test_an_owned_object_that_was_got_before_a_rollback_shows_that(space: PersistedObjectSpace) -> None:
    numbers = space.create_dictionary("groups", of=list).setdefault("a")
    space.checkpoint()
    space.rollback()
    assert repr(numbers) == """<List "groups['a']" [got before a rollback]>"""


@pytest.mark.parametrize("is_touched", [False, True])
def test_a_node_from_before_a_rollback_refuses_to_be_set_and_a_removed_one_does_not(
    space: PersistedObjectSpace, is_touched: bool
) -> None:
    numbers = space.create_linked_list("l")
    node, removed = numbers.add_last(1), numbers.add_last(2)
    space.checkpoint()
    numbers.remove_node(removed)
    space.rollback()
    assert not is_touched or list(numbers) == [1, 2]
    with pytest.raises(
        ObjectNotFoundError, match=r"Node\(1\) is no longer in LinkedList 'l'.*take the node from the list again"
    ):
        node.value = 9
    assert (node.value, node.list, list(numbers)) == (1, None, [1, 2])
    removed.value = 3
    numbers.first.value = 9
    for free in (removed, node):
        numbers.add_last(free)
    node.value = 4
    space.checkpoint()
    assert list(PersistedObjectSpace(space.store).get("l")) == [9, 2, 3, 4]


@pytest.mark.parametrize("killed", range(4))
@pytest.mark.parametrize("of", [None, list])
def test_a_deletion_that_was_interrupted_leaves_one_handle_that_works(
    space: PersistedObjectSpace, monkeypatch: pytest.MonkeyPatch, of: type | None, killed: int
) -> None:
    handle = space.create_dictionary("d", of=of) if of else space.create_dictionary("d")
    handle.update({key: [key] for key in range(3)})
    space.checkpoint()
    kill, left = PersistedObjectSpace._kill, [killed]

    def _kill(self: PersistedObjectSpace, *given: Any) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        kill(self, *given)

    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr(PersistedObjectSpace, "_kill", _kill)
        space.delete("d")
    space.rollback()
    found = space.get("d")
    if found is not handle:
        with pytest.raises(ObjectNotFoundError):
            handle["x"] = [1]
    found["y"] = [2]
    space.checkpoint()
    again = PersistedObjectSpace(space.store).get("d")
    assert list(again) == list(found) == [0, 1, 2, "y"]
    assert len(again) == 4


def test_a_node_is_not_set_once_its_list_is_deleted_or_rolled_back(space: PersistedObjectSpace) -> None:
    for name, end in (("deleted", lambda: space.delete("deleted")), ("rolled back", space.rollback)):
        nodes = space.create_linked_list(name)
        node, other = nodes.add_last(1), nodes.add_last(2)
        space.checkpoint()
        other.value = 3
        end()
        with pytest.raises((ObjectNotFoundError, ValueError)):
            node.value = 5
        if name in space:
            assert list(space.get(name)) == [1, 2]
