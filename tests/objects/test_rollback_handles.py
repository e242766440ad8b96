"""What a handle stands for after a rollback: its own object under whatever name, and never another one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from checkpoint import CheckpointStore, EpochTypeError, StoreFailedError, UnknownCheckpointError
from objectspace import CheckpointProtocolError, ObjectNotFoundError, PersistedObjectSpace
from objectspace.objects.torn import Torn
from tests.objects.kinds import PUTS, create, every_kind


def test_a_rollback_finds_objects_under_their_old_names_and_ids(space: PersistedObjectSpace) -> None:
    one, other = space.create_list("one"), space.create_list("other")
    one.extend(range(100))
    other.append("other")
    space.checkpoint()
    one.clear()
    one.append("lost")
    for old, new in (("one", "x"), ("other", "one"), ("x", "other")):
        space.rename(old, new)
    space.rollback()
    assert space.get("one") is one
    assert space.get("other") is other
    assert (list(one), list(other)) == (list(range(100)), ["other"])
    space._check()


def test_a_rollback_to_an_epoch_finds_objects_that_were_cleared_since(space: PersistedObjectSpace) -> None:
    items = space.create_list("l")
    for epoch in range(1, 6):
        items.extend([epoch] * 40)
        space.checkpoint(epoch=epoch)
        items.clear()
    space.rollback(epoch=2)
    assert list(items) == [2] * 40
    items.append("more")
    space.checkpoint()
    assert list(PersistedObjectSpace(space.store).get("l")) == [2] * 40 + ["more"]


def refused(handle: Any, kind: str) -> None:
    with pytest.raises(ObjectNotFoundError, match="its creation was rolled back, or it was deleted"):
        PUTS[kind](handle, 1)


@every_kind
def test_a_rollback_does_not_take_the_object_of_another_space_for_one_that_was_never_stored(kind: str) -> None:
    store = CheckpointStore(":memory:")
    one, other = PersistedObjectSpace(store), PersistedObjectSpace(store)
    mine = create(one, kind, "mine")
    PUTS[kind](mine, 1)
    create(other, kind, "theirs")
    other.checkpoint()
    one.rollback()
    refused(mine, kind)
    assert (list(one), one.checkpoint().slots, one.get("theirs") is mine) == (["theirs"], 0, False)
    one._check()


@pytest.mark.parametrize("ending", ["taken back", "interrupted"])
def test_an_object_whose_save_came_to_nothing_was_never_stored(space: PersistedObjectSpace, ending: str) -> None:
    mine = space.create_list("mine")
    writer = space.store.writer()
    space.save(writer)
    space._torn = Torn.WITHIN if ending == "interrupted" else Torn.NO
    writer.rollback()
    theirs = PersistedObjectSpace(space.store)
    theirs.create_list("theirs").append(1)
    theirs.checkpoint()
    space.rollback()
    refused(mine, "list")
    assert space.get("theirs") == [1]


def test_an_object_whose_save_was_committed_is_found_though_an_edit_was_interrupted(
    space: PersistedObjectSpace,
) -> None:
    mine = space.create_list("mine")
    mine.append(1)
    writer = space.store.writer()
    space.save(writer)
    writer.commit()
    space._torn = Torn.WITHIN
    space.rollback()
    assert space.get("mine") is mine
    assert mine == [1]


@pytest.mark.parametrize("when", ["unsaved", "taken back", "interrupted"])
def test_an_id_of_a_cleared_object_that_was_never_stored_is_none_of_its_own(when: str) -> None:
    store = CheckpointStore(":memory:")
    one = PersistedObjectSpace(store)
    mine = one.create_list("mine")
    mine.extend(range(100))
    one.checkpoint()
    other = PersistedObjectSpace(store)
    mine.clear()
    mine.extend(range(50))
    if when != "unsaved":
        writer = store.writer()
        one.save(writer)
        mine.clear()
        one._torn = Torn.WITHIN if when == "interrupted" else Torn.NO
        writer.rollback()
    for name in ("a", "b"):
        other.create_list(name).append(name)
    other.checkpoint()
    one.rollback()
    assert one.get("mine") is mine
    assert (list(mine), one.get("a"), one.get("b")) == (list(range(100)), ["a"], ["b"])
    one._check()


def test_a_rollback_that_is_interrupted_and_done_again_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(":memory:")
    one = PersistedObjectSpace(store)
    old = one.create_list("old")
    old.extend(range(100))
    one.checkpoint()
    old.clear()
    mine = one.create_list("mine")
    other = PersistedObjectSpace(store)
    for name in "abc":
        other.create_list(name)
    other.checkpoint()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(store, "next_object_id", Mock(side_effect=KeyboardInterrupt))
        one.rollback()
    one.rollback()
    refused(mine, "list")
    assert (one.get("old") is old, list(old)) == (True, list(range(100)))
    one._check()


@pytest.mark.parametrize("error", [KeyboardInterrupt, StoreFailedError("the disk is gone")])
@pytest.mark.parametrize("place", ["reader", "truncate_after", "_delete_after", "after truncate_after"])
def test_a_rollback_to_an_epoch_that_fails_leaves_nothing_to_be_saved(
    monkeypatch: pytest.MonkeyPatch, place: str, error: Any
) -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    counts = space.create_dictionary("counts")
    for number in (1, 2):
        counts["a"] = number
        space.checkpoint()
    counts["a"] = 3
    with monkeypatch.context() as patch, pytest.raises(type(error) if isinstance(error, Exception) else error):
        if place.startswith("after "):
            truncate = store.truncate_after
            patch.setattr(store, "truncate_after", lambda number: (truncate(number), _raise(error)))
        else:
            patch.setattr(store, place, Mock(side_effect=error))
        space.rollback(epoch=1)
    with pytest.raises(CheckpointProtocolError, match=r"rollback.* was interrupted partway"):
        space.checkpoint()
    space.rollback(epoch=1)
    assert counts.copy() == {"a": 1}
    counts["a"] = 4
    assert space.checkpoint().epoch == 2
    space._check()


def test_a_rollback_that_cannot_tell_how_a_save_ended_leaves_nothing_to_be_saved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    counts = space.create_dictionary("counts")
    counts["a"] = 1
    space.checkpoint()
    counts["a"] = 2
    writer = store.writer()
    space.save(writer)
    with monkeypatch.context() as patch, pytest.raises(StoreFailedError):
        patch.setattr(writer, "is_newest_in", Mock(side_effect=StoreFailedError("the disk is gone")))
        space.rollback()
    with pytest.raises(CheckpointProtocolError):
        space.checkpoint()
    space.rollback()
    assert counts.copy() == {"a": 1}


@pytest.mark.parametrize("epoch", [7, "1"])
def test_a_rollback_to_an_epoch_that_is_not_there_leaves_the_edits(space: PersistedObjectSpace, epoch: Any) -> None:
    counts = space.create_dictionary("counts")
    space.checkpoint()
    counts["a"] = 1
    with pytest.raises((UnknownCheckpointError, EpochTypeError)):
        space.rollback(epoch=epoch)
    assert space.checkpoint().slots == 1
    assert counts.copy() == {"a": 1}


def _raise(error: Any) -> None:
    raise error


PAIRS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tensors of two shapes": (
        lambda space: space.create_tensor("x", (2, 3), "i4"),
        lambda space: space.create_tensor("x", (3, 2), "f4"),
    ),
    "list and array": (lambda space: space.create_list("x"), lambda space: space.create_array("x", 2)),
    "dictionary and sorted dictionary": (
        lambda space: space.create_dictionary("x"),
        lambda space: space.create_sorted_dictionary("x"),
    ),
    "sparse arrays of two defaults": (
        lambda space: space.create_sparse_array("x", 0),
        lambda space: space.create_sparse_array("x", 7),
    ),
    "set and sorted set": (lambda space: space.create_set("x"), lambda space: space.create_sorted_set("x")),
    "list and dictionary": (lambda space: space.create_list("x"), lambda space: space.create_dictionary("x")),
    "dictionaries of two kinds": (
        lambda space: space.create_dictionary("x", of="list"),
        lambda space: space.create_dictionary("x", of="set"),
    ),
}
"""Objects of one name that cannot stand for each other."""


@pytest.mark.parametrize("pair", sorted(PAIRS))
def test_a_handle_does_not_outlive_that_a_difference_to_a_fork_puts_another_object_in_its_place(
    tmp_path: Path, pair: str
) -> None:
    mine, theirs = PAIRS[pair]
    with PersistedObjectSpace.open(tmp_path / "a.db") as space:
        space.checkpoint()
        space.store.fork(tmp_path / "b.db")
        old = mine(space)
        space.checkpoint()
        with PersistedObjectSpace.open(tmp_path / "b.db") as fork:
            expected = theirs(fork)
            fork.checkpoint()
            space.store.apply_changes(space.store.diff(space.store.reader(), fork.store.reader()))
            space.rollback()
            now = space.get("x")
            assert (now.kind, now._options(), len(now)) == (expected.kind, expected._options(), len(expected))
        with pytest.raises(ObjectNotFoundError, match="its creation was rolled back, or it was deleted"):
            len(old)


def test_a_rollback_lets_go_of_what_a_dictionary_owns(space: PersistedObjectSpace) -> None:
    groups = space.create_dictionary("d", of=list)
    kept = groups.setdefault("k", [1])
    space.checkpoint()
    kept.append(2)
    space.rollback()
    with pytest.raises(
        ObjectNotFoundError, match=r"List \"d\['k'\]\" was got before a rollback: .* from Dictionary 'd'"
    ):
        kept.append(3)
    assert list(groups["k"]) == [1]
    groups["k"].append(4)
    space.checkpoint()
    assert groups.copy() == {"k": [1, 4]}
    space._check()
