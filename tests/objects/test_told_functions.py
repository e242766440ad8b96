"""Functions that a space tells of a deletion and of a renaming."""

from __future__ import annotations

import pytest

from objectspace import CheckpointProtocolError, PersistedObjectSpace


def test_all_are_told_of_a_renaming_and_of_a_deletion_whatever_one_of_them_raises(space: PersistedObjectSpace) -> None:
    told: list[object] = []

    def _fail(*told_of: object) -> None:
        told.append(told_of)
        raise LookupError(f"number {len(told)}")

    for function in (_fail, lambda *told_of: told.append(told_of), _fail):
        space.on_rename(function)
        space.on_delete(function)
    handle = space.create_list("a")
    handle.append(1)
    with pytest.raises(LookupError, match="number 1"):
        space.rename("a", "b")
    assert (told, list(space)) == ([("a", "b")] * 3, ["b"])
    space.checkpoint()
    told.clear()
    with pytest.raises(LookupError, match="number 1"):
        space.delete("b")
    assert (told, list(space)) == ([(handle,)] * 3, [])
    space.checkpoint()
    assert list(PersistedObjectSpace(space.store)) == []


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_all_are_told_of_a_renaming_or_nothing_is_saved(space: PersistedObjectSpace) -> None:
    told: list[tuple[str, str]] = []
    space.on_rename(lambda *names: told.append(names))
    space.create_list("a")
    space.checkpoint()
    space.rename("a", "b")
    assert told == [("a", "b")]
    space.on_rename(_interrupt)
    with pytest.raises(KeyboardInterrupt):
        space.rename("b", "c")
    with pytest.raises(CheckpointProtocolError, match="interrupted partway"):
        space.checkpoint()
    space.rollback()
    assert list(space) == ["a"]


def test_all_are_told_of_a_deletion_or_nothing_is_saved(space: PersistedObjectSpace) -> None:
    space.create_list("a").append(1)
    space.checkpoint()
    assert len(space.get("a")) == 1
    space.on_delete(_interrupt)
    with pytest.raises(KeyboardInterrupt):
        space.delete("a")
    with pytest.raises(CheckpointProtocolError, match="interrupted partway"):
        space.checkpoint()
    space.rollback()
    assert list(space) == ["a"]


def test_the_handle_of_a_deleted_object_is_told_once_it_refuses_work(space: PersistedObjectSpace) -> None:
    told: list[str] = []
    space.on_delete(lambda handle: told.append(repr(handle)))
    space.create_list("a").append(1)
    space.checkpoint()
    space.delete("a")
    assert told == ["<List 'a' [deleted]>"]
    space.rollback()
    space.delete("a")  # Nobody has a handle of it.
    assert told == ["<List 'a' [deleted]>"]
